"""Graphs as the scheduler of a cluster asks for them: tasks, the homes that they run on, and the runs they are of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from dask._task_spec import Task
from dask.typing import Key

__all__ = ["HOME", "RUN", "TaskGraph"]

#: Annotation of a task: the home that it runs on.
HOME = "distarray-home"
#: Annotation of the task of a member program: the name of its run, and its member.
RUN = "distarray-run"


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
    runs
        Of the tasks that are programs of members: the name of the run, and the member.
    """

    __slots__ = ("homes", "members", "runs", "tasks")

    def __init__(
        self,
        tasks: Mapping[Key, Task],
        members: Mapping[Key, int],
        homes: Sequence[str],
        runs: Mapping[Key, tuple[str, int]] = MappingProxyType({}),
    ) -> None:
        self.tasks = dict(tasks)
        self.runs = dict(runs)
        self.members = {key: members[key] for key in self.tasks if key in members}
        self.homes = tuple(homes)

    def __dask_graph__(self) -> dict[Key, Task]:
        return self.tasks

    def __dask_annotations__(self) -> dict[str, dict[Key, Any]]:
        homes = {key: self.homes[member] for key, member in self.members.items()}
        return {HOME: homes, RUN: self.runs} if self.runs else {HOME: homes}
