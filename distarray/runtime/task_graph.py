"""Graphs as the scheduler of a cluster asks for them: tasks, the homes that they run on, and the runs they are of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from dask._task_spec import Task, TaskRef
from dask.typing import Key

from distarray.expr.expr import Expr, cell_of
from distarray.kernels.tasks import project
from distarray.lower.bundling import Bundled, Given, bundle_of
from distarray.lower.credits import Programs
from distarray.lower.parameters import Parameters
from distarray.lower.template import Template

#: Annotation of a task: the home that it runs on.
HOME = "distarray-home"
#: Annotation of the task of a member program: the name of its run, its member, and whether it is queued.
RUN = "distarray-run"


def read_from_outside(tasks: Mapping[Key, Task]) -> set[Key]:
    """Return the keys that tasks read and that none of them makes."""
    return {key for task in tasks.values() for key in task.dependencies} - tasks.keys()


def longest_chain(tasks: Mapping[Key, Task]) -> int:
    """Return the most tasks that run one after the other, of tasks in an order in which they can run.

    A window of a loop may be one submission of hundreds of steps.
    """
    depths: dict[Key, int] = {}
    for key, task in tasks.items():
        depths[key] = 1 + max((depths.get(k, 0) for k in task.dependencies), default=0)
    return max(depths.values(), default=0)


def taken_out(keys: Iterable[Key]) -> dict[Key, Task]:
    """Return the tasks that take tiles out of bundles, for those of some keys that are keys of such tiles."""
    found: dict[Key, Task] = {}
    for key in keys:
        if (place := bundle_of(key)) is not None:
            bundle, number = place
            found[key] = Task(key, project, number, TaskRef(bundle))
    return found


class TaskGraph:
    """A TaskGraph is tasks and their homes, in the form in which the scheduler asks for them.

    Stands where dask has an expression. A ``dask._expr.Expr`` would hash every task when it is made, and a
    HighLevelGraph would store one annotation per task and layer.

    Parameters
    ----------
    tasks
        The tasks by key; all of them are wanted, nothing is culled.
    members
        Index into `homes` of each task. Tasks without one run anywhere.
    homes
        Homes of the members, in rank order.
    """

    __slots__ = ("homes", "members", "tasks")

    def __init__(self, tasks: Mapping[Key, Task], members: Mapping[Key, int], homes: Sequence[str]) -> None:
        self.tasks = dict(tasks)
        self.members = {key: members[key] for key in self.tasks if key in members}
        self.homes = tuple(homes)

    def add(self, tasks: Mapping[Key, Task], homes: Mapping[Key, str]) -> None:
        """Add tasks, at homes that need not be of the members; those that have none run anywhere."""
        self.tasks.update(tasks)
        self.homes = tuple(dict.fromkeys((*self.homes, *homes.values())))
        number = {home: n for n, home in enumerate(self.homes)}
        self.members.update({key: number[home] for key, home in homes.items()})

    def __dask_graph__(self) -> dict[Key, Task]:
        return self.tasks

    def __dask_annotations__(self) -> dict[str, dict[Key, Any]]:
        homes, runs = self._homes(), self._runs()
        return {HOME: homes, RUN: runs} if runs else {HOME: homes}

    def _homes(self) -> dict[Key, str]:
        """Return the homes of tasks."""
        return {key: self.homes[member] for key, member in self.members.items()}

    def _runs(self) -> dict[Key, tuple[str, int, bool]]:
        """Return, of tasks that are programs of members, the name of the run, the member, and whether it is queued."""
        return {}


class MemberRun(NamedTuple):
    """A MemberRun is one run of a template as member programs, before it is sent.

    Parameters
    ----------
    name
        Of the run: unique in the scheduler's lifetime.
    template, programs
        What it is a run of, and in which form.
    parameters
        What varies, and the name of the measurement that it belongs to or None (`clocks`).
    given
        By member what its program is given: blocks, or what stands for their keys.
    found
        By member how its program finds its blocks among these; empty where they are the blocks.
    bundled
        Of which nodes and members the programs are given bundles: it decides `found`.
    tasks, members
        Of tasks beside the programs, which make what these are given.
    label
        What Dask's dashboard calls the programs: see `label_of`.
    """

    name: str
    template: Template
    programs: Programs
    parameters: tuple[Parameters, str | None]
    given: Mapping[int, tuple[Any, ...]]
    tasks: Mapping[Key, Task]
    members: Mapping[Key, int]
    label: str = "program"
    found: Mapping[int, Given] = MappingProxyType({})
    bundled: Bundled = frozenset()


def label_of(node: Expr) -> str:
    """Return the operation and the user's line that made a node, as Dask's dashboard shows it: a dash would end it."""
    if node.origin is None:
        return node.op.name
    path, number = node.origin.line
    return f"{node.op.name}@{cell_of(path) or Path(path).name}:{number}".replace("-", "_")
