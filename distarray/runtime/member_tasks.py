"""Member programs as Dask tasks: one for each member, and one for each block that is kept."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from dask._task_spec import Task, TaskRef
from dask.typing import Key

from distarray.kernels import tasks as kernels
from distarray.lower.member_programs import member_programs
from distarray.runtime.executors import REFERENCES
from distarray.runtime.task_graph import TaskGraph
from distarray.runtime.transport import run_program, shipped_program
from distarray.runtime.wire import PROGRAM

__all__ = ["graph_of_programs"]


def graph_of_programs(
    tasks: Mapping[Key, Task],
    members: Mapping[Key, int],
    keep: Collection[Key],
    homes: Sequence[str],
    holder_of: Callable[[Key], int | None],
) -> tuple[TaskGraph, list[Key]]:
    """Return the graph that runs tasks as one program of each member.

    Parameters
    ----------
    tasks, members, keep
        As for `ClusterExecutor.submit`.
    homes
        Of the members, in rank order.
    holder_of
        Returns the member that has a block from before, None where that is not known.

    Returns
    -------
    graph, list of Key
        The second are the programs of which nothing is kept: they run if somebody wants them.
    """
    programs = member_programs(tasks, members, keep, _read, holder_of)
    name = uuid.uuid4().hex
    made: dict[Key, Task] = {}
    at: dict[Key, int] = {}
    runs: dict[Key, tuple[str, int]] = {}
    silent: list[Key] = []
    for member, program in programs.items():
        key = (f"{PROGRAM}{name}", member)
        to = {n: homes[n] for _, destinations in program.sent.values() for n in destinations}
        given = [TaskRef(k) for k in program.given]
        made[key] = Task(key, run_program, key, name, member, to, shipped_program(program), *given)
        at[key] = member
        runs[key] = name, member
        if not program.results:
            silent.append(key)
        for n, result in enumerate(program.results):
            made[result] = Task(result, kernels.project, n, TaskRef(key))
            at[result] = member
    return TaskGraph(made, at, homes, runs), silent


def _read(argument: Any) -> Key | None:
    return argument.key if type(argument) in REFERENCES else None
