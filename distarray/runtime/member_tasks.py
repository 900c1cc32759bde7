"""Member programs as Dask tasks: one for each member, and one for each array that is kept there.

The first run of a template sends each member's program with its task. From the second on workers have the programs, as
Dask's data under keys that live as long as the template, and a run sends what varies: the names of blocks and the
parameters. The tasks themselves are made where the scheduler is (`RunGraph`).
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from dask._task_spec import Task, TaskRef
from dask.typing import Key
from distributed.client import Future
from distributed.protocol.pickle import dumps

from distarray.caches import collected_later
from distarray.kernels import tasks as kernels
from distarray.kernels.inside import is_inside_task
from distarray.lower.bundling import Bundled, Given
from distarray.lower.member_programs import MemberProgram
from distarray.lower.recipes import named
from distarray.lower.template import Template
from distarray.runtime.shipping import calls_back
from distarray.runtime.task_graph import MemberRun, TaskGraph
from distarray.runtime.transport import SentProgram, loaded_program, run_program
from distarray.runtime.wire import PROGRAM, TEMPLATE


class ProgramTask(NamedTuple):
    """A ProgramTask is the program of one member in one run.

    Parameters
    ----------
    member
        Rank.
    program
        Its `SentProgram` as bytes, or what stands for the key under which its worker has it.
    given
        Blocks, or what stands for their keys.
    results
        Keys of the blocks and bundles that are kept, in the order of the program.
    """

    member: int
    program: bytes | TaskRef
    given: tuple[Any, ...]
    results: tuple[Key, ...]


class RunGraph(TaskGraph):
    """A RunGraph is the programs of one run, and the tasks beside them, as the scheduler asks for them.

    Parameters
    ----------
    tasks, members, homes
        Of the tasks beside them: see `TaskGraph`.
    name
        Of the run.
    parameters
        As bytes: every member gets them.
    programs
        One for each member that has something to do.
    label
        How Dask's dashboard calls the programs.
    is_queued
        Whether it is one of those, with credits, of which one is under way at a time at each worker.
    """

    __slots__ = ("is_queued", "label", "name", "parameters", "programs")

    def __init__(
        self,
        tasks: Mapping[Key, Task],
        members: Mapping[Key, int],
        homes: Sequence[str],
        name: str,
        parameters: bytes,
        programs: Sequence[ProgramTask],
        *,
        label: str,
        is_queued: bool,
    ) -> None:
        super().__init__(tasks, members, homes)
        self.name = name
        self.label = label
        self.parameters = parameters
        self.programs = programs
        self.is_queued = is_queued

    def program_key(self, member: int) -> Key:
        """Return the key of the task of a member's program."""
        return (f"{PROGRAM}{self.label}-{self.name}", member)

    def __dask_graph__(self) -> dict[Key, Task]:
        made = dict(self.tasks)
        for member, program, given, results in self.programs:
            key = self.program_key(member)
            args = self.name, member, self.is_queued, program, self.parameters
            made[key] = Task(key, run_program, key, *args, *given)
            for n, result in enumerate(results):
                made[result] = Task(result, kernels.project, n, TaskRef(key))
        return made

    def _homes(self) -> dict[Key, str]:
        found = super()._homes()
        for member, _, _, results in self.programs:
            found.update(dict.fromkeys((self.program_key(member), *results), self.homes[member]))
        return found

    def _runs(self) -> dict[Key, tuple[str, int, bool]]:
        return {self.program_key(p.member): (self.name, p.member, self.is_queued) for p in self.programs}


class SentTemplate:
    """A SentTemplate is what workers have of one template: by member its program, as bytes."""

    def __init__(self, programs: Mapping[int, bytes]) -> None:
        self.name = f"{TEMPLATE}{uuid.uuid4().hex}"
        self.programs = programs
        self.n_runs = 0
        #: By key, from the second run on: what keeps the programs known, as long as the template lives.
        self.futures: dict[Key, Future] = {}

    def key(self, member: int) -> Key:
        return (self.name, member)

    def is_there(self) -> bool:
        """Return whether the scheduler knows the programs: not after a restart of the cluster."""
        return bool(self.futures) and not any(f.status in ("cancelled", "error") for f in self.futures.values())


class SentTemplates:
    """The SentTemplates of a team are the templates that ran there as member programs, as long as they live.

    Parameters
    ----------
    homes
        Of the members, in rank order.
    """

    def __init__(self, homes: Sequence[str]) -> None:
        self._homes = homes
        self._lock = threading.Lock()
        #: By template; by the form of its programs, and what comes in bundles.
        self._known: WeakKeyDictionary[Template, dict[tuple[Any, Bundled], SentTemplate]] = WeakKeyDictionary()

    def graph_of(self, run: MemberRun) -> tuple[RunGraph, SentTemplate, Collection[Key]]:
        """Return the graph of a run, what workers have of its template, and keys of the graph that are to be held for
        that.
        """
        by_member = run.programs.by_member
        with self._lock:  # tasks that evaluate something hold no other
            known = self._known.setdefault(run.template, {})
            form = run.programs.form, run.bundled
            if form not in known:
                known[form] = SentTemplate(self._shipped(by_member, run.found))
            sent = known[form]
            sent.n_runs += 1
        new: dict[Key, Task] = {}
        if sent.n_runs > 1 and not sent.is_there():
            new = {sent.key(m): Task(sent.key(m), loaded_program, data) for m, data in sent.programs.items()}
        programs = [
            ProgramTask(
                member,
                sent.programs[member] if sent.n_runs == 1 else TaskRef(sent.key(member)),
                run.given[member],
                tuple([named(key, run.name) for key in program.kept_keys]),
            )
            for member, program in by_member.items()
        ]
        beside = {**run.members, **{key: key[1] for key in new}}
        data: bytes = dumps(run.parameters)
        # What a task asks for waits for nobody: the task, maybe a step of a program, waits for it. Nor is anybody to
        # wait for functions of the user's, which may wait for anything.
        is_users = bool(run.programs.made) or calls_back(run.parameters[0].late.values())
        is_queued = run.programs.ahead is not None and not is_inside_task() and not is_users
        tasks = {**run.tasks, **new}
        graph = RunGraph(tasks, beside, self._homes, run.name, data, programs, label=run.label, is_queued=is_queued)
        return graph, sent, new.keys()

    def _shipped(self, programs: Mapping[int, MemberProgram], found: Mapping[int, Given]) -> dict[int, bytes]:
        with collected_later():
            return {
                member: dumps(SentProgram(program, {n: self._homes[n] for n in program.others()}, found.get(member)))
                for member, program in programs.items()
            }
