"""Runs of member programs, as the scheduler sees them: which belong together, and what happens when one is lost.

A run is the programs of one submission. While it is under way its programs, and the blocks that they were given, are
kept; when all are done they are let go of as Dask would. A program that has to run once more, since its worker or what
it made was lost, needs the messages of all others: the whole run begins anew, with the next *attempt* (`transport`).
So the scheduler has to know all programs of a run as long as one of them may be needed, which a task that never runs
and depends on all of them sees to: the *anchor*.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping
from itertools import count
from time import time
from typing import Any, Protocol

from dask._task_spec import DataNode
from dask.typing import Key
from distributed.scheduler import ClientState

from distarray.runtime.task_graph import HOME
from distarray.runtime.timelines import shown
from distarray.runtime.transport import ATTEMPT, BEGIN, END


class Homes(Protocol):
    """A Homes knows which worker serves a home, and reaches workers."""

    def address(self, home: str) -> str: ...
    def tell(self, worker: str, message: dict[str, Any]) -> None: ...


class _ScheduledRun:
    """A _ScheduledRun is what is known of a run.

    Parameters
    ----------
    programs
        The tasks of its programs, by member.
    is_queued
        Whether its programs hold so much that no other such run may be under way beside it.
    """

    def __init__(self, name: str, programs: dict[int, Any], homes: dict[int, str], *, is_queued: bool) -> None:
        self.name = name
        self.is_queued = is_queued
        #: Its place among queued runs, from when all its programs had what they are given for the first time.
        self.place: int | None = None
        self.programs = programs
        self.homes = homes
        self.members = {task.key: member for member, task in programs.items()}
        #: What is made of the programs' results, as long as it is known and its lineage is not cut.
        self.results = {reader.key for task in programs.values() for reader in task.dependents}
        self.attempt = 0
        #: Where each program runs in this attempt; those that were begun in it; those that are done.
        self.places: dict[int, str] = {}
        #: Workers that have a part in it, or had.
        self.workers: set[str] = set()
        self.begun: set[int] = set()
        self.done: set[int] = set()
        self.is_over = False
        self.hold = ClientState(f"distarray-run-{name}")
        self.anchor: Any = None
        self.due: list[tuple[str, tuple[Any, ...]]] = []


class ScheduledRuns:
    """The ScheduledRuns of a scheduler are the records of all runs of member programs that it may have to begin anew.

    Parameters
    ----------
    scheduler
        The ``distributed.Scheduler``.
    homes
        Says who serves a home.
    """

    def __init__(self, scheduler: Any, homes: Homes) -> None:
        self._scheduler = scheduler
        self._homes = homes
        self._numbers = count()
        self._runs: dict[str, _ScheduledRun] = {}
        #: By the key of a program, or of what is made of its result.
        self._of: dict[Key, _ScheduledRun] = {}

    def clear(self) -> None:
        """Forget all: the scheduler has forgotten its tasks."""
        self._runs.clear()
        self._of.clear()

    def close(self) -> None:
        """Hold no task any longer: nobody will be told what becomes of them."""
        for run in list(self._runs.values()):
            run.results.clear()
            self._drop(run)
        self._of.clear()

    # -- a run's life --------------------------------------------------------------------------------------------

    def begin(self, annotations: Mapping[Key, tuple[str, int, bool]]) -> None:
        """Note the runs of a graph that has come; none of its tasks has been sent to a worker.

        Parameters
        ----------
        annotations
            Of the tasks of programs: the name of the run, the member, and whether it is queued.
        """
        programs: defaultdict[tuple[str, bool], dict[int, Any]] = defaultdict(dict)
        for key, (name, member, is_queued) in annotations.items():
            if name not in self._runs:
                programs[name, is_queued][member] = self._scheduler.tasks[key]
        for (name, is_queued), tasks in programs.items():
            homes = {member: task.annotations[HOME] for member, task in tasks.items()}
            run = _ScheduledRun(name, tasks, homes, is_queued=is_queued)
            self._runs[name] = run
            self._of.update(dict.fromkeys([*run.members, *run.results], run))
            key = (f"dx-run-{name}",)
            run.anchor = self._scheduler.new_task(key, DataNode(key, None), "released")
            run.anchor.priority = min(task.priority for task in tasks.values())  # dask sorts by it
            for task in tasks.values():
                run.anchor.add_dependency(task)
            self._keep(run)
            run.places = {member: self._homes.address(home) for member, home in run.homes.items()}
            run.workers.update(run.places.values())
            if run.places != run.homes:
                self._tell(run)

    def _keep(self, run: _ScheduledRun) -> None:
        """Keep the programs of a run, and what they are given."""
        for task in run.programs.values():
            for kept in (task, *task.dependencies):
                if kept.who_wants is None:
                    kept.who_wants = set()
                kept.who_wants.add(run.hold)
                run.hold.wants_what.add(kept)

    def _let_go(self, run: _ScheduledRun) -> dict[Key, str]:
        found: dict[Key, str] = {}
        keys = [task.key for task in run.hold.wants_what]
        self._scheduler._client_releases_keys(keys=keys, cs=run.hold, recommendations=found)
        return found

    def _tell(self, run: _ScheduledRun) -> None:
        """Tell the workers of a run where its members are, that an attempt begins, and which runs it waits for.

        Of queued runs one is under way at a worker at a time: so what they hold does not add up. A run has its place
        when all its programs have what they are given, and waits for those with a place before it. What these are given
        was made by runs with places before theirs, so none waits for ever, also when some begin anew.
        """
        where = {home: run.places[member] for member, home in run.homes.items() if run.places[member] != home}
        if run.is_queued and run.place is None and len(run.begun) == len(run.programs):
            run.place = next(self._numbers)
        before: list[_ScheduledRun] | None = None
        if (place := run.place) is not None:
            queued = [other for other in self._runs.values() if not other.is_over]
            before = [other for other in queued if other.place is not None and other.place < place]
        run.workers.update(run.places.values())
        for worker in dict.fromkeys(run.places.values()):
            after = None if before is None else [other.name for other in before if worker in other.workers]
            message = {"op": BEGIN, "run": run.name, "attempt": run.attempt, "where": where, "after": after}
            self._homes.tell(worker, message)

    def _tell_of_end(self, run: _ScheduledRun, error: Any = None) -> None:
        at_work = [task.processing_on.address for task in run.programs.values() if task.processing_on is not None]
        for worker in run.workers.union(at_work):
            self._homes.tell(worker, {"op": END, "run": run.name, "attempt": run.attempt, "error": error})

    # -- what happens to it --------------------------------------------------------------------------------------

    def transition(self, key: Key, start: str, finish: str, facts: Mapping[str, Any]) -> None:
        """Note what became of a task; what follows from it is done once the scheduler is through with it.

        Parameters
        ----------
        facts
            What the scheduler tells plugins of it: the metadata of a task that is done, the error of one that failed.
        """
        run = self._of.get(key)
        if run is None:
            return
        member = run.members.get(key)
        if member is None:
            if finish == "forgotten":
                self.settled([key])
            return
        if start == "memory":
            run.done.discard(member)
        if finish == "waiting":
            # At once, not when it is to be sent to a worker: what the others are given has to be made again with it.
            if run.is_over or member in run.begun:
                self._soon(run, self._begin_anew)
        elif finish == "processing":
            run.begun.add(member)
            if run.places[member] != run.programs[member].processing_on.address:
                self._soon(run, self._begin_anew)
            elif len(run.begun) == len(run.programs) and (run.attempt or (run.is_queued and run.place is None)):
                # Of a later attempt once more: a worker may have come back to its address since the others were told.
                self._tell(run)
        elif finish == "memory" and start == "processing":
            shown(self._scheduler, key, facts)
            if (facts.get("metadata") or {}).get(ATTEMPT) != run.attempt:
                self._soon(run, self._again, member)
                return
            run.done.add(member)
            if len(run.done) == len(run.programs):
                self._soon(run, self._complete)
        elif finish == "forgotten" and not run.is_over:
            self._soon(run, self._lose)
        elif finish == "erred":
            failed = run.programs[member]
            blamed = failed.exception_blame or failed  # what it was to be given may have failed
            self._soon(run, self._end, facts.get("exception") or blamed.exception)

    def settled(self, keys: Any) -> None:
        """Note results that are forgotten, or whose lineage is cut: nothing is to be made again for them."""
        for key in keys:
            run = self._of.get(key)
            if run is not None and key in run.results:
                del self._of[key]
                run.results.discard(key)
                if not run.results:
                    self._soon(run, self._drop)

    def _soon(self, run: _ScheduledRun, action: Callable[..., None], *args: Any) -> None:
        due = action.__name__, args
        if due not in run.due:
            run.due.append(due)
            asyncio.get_running_loop().call_soon(self._do, run, action, *args)

    def _do(self, run: _ScheduledRun, action: Callable[..., None], *args: Any) -> None:
        run.due.remove((action.__name__, args))
        if self._runs.get(run.name) is run:
            action(run, *args)

    def _begin_anew(self, run: _ScheduledRun) -> None:
        if any(task.state == "forgotten" for task in run.programs.values()):
            self._lose(run)
            return
        run.attempt += 1
        run.is_over = False
        self._keep(run)
        again: dict[Key, str] = {}
        run.begun.clear()
        for member, task in run.programs.items():
            if task.state == "processing":
                run.begun.add(member)
                run.places[member] = task.processing_on.address
            else:
                run.places[member] = self._homes.address(run.homes[member])
                if task.state in ("memory", "released"):
                    again[task.key] = "released" if task.state == "memory" else "waiting"
        self._tell(run)
        self._scheduler.transitions(again, f"distarray-anew-{time()}")

    def told(self, run: str, attempt: int, exception: Any) -> None:
        """Begin a run anew of which messages may be lost, or end it if one cannot travel."""
        found = self._runs.get(run)
        if found is None or found.attempt != attempt or found.is_over:
            return
        if exception is None:
            self._soon(found, self._begin_anew)
        else:
            self._soon(found, self._end, exception)

    def _again(self, run: _ScheduledRun, member: int) -> None:
        """Have a program run again that was done when its run began anew: its messages went to an earlier attempt."""
        task = run.programs[member]
        if task.state == "memory" and member not in run.done:
            run.begun.discard(member)
            self._scheduler.transitions({task.key: "released"}, f"distarray-again-{time()}")

    def _complete(self, run: _ScheduledRun) -> None:
        if len(run.done) == len(run.programs):
            self._end(run)

    def _end(self, run: _ScheduledRun, error: Any = None) -> None:
        if run.is_over:
            return
        run.is_over = True
        self._tell_of_end(run, error)
        self._scheduler.transitions(self._let_go(run), f"distarray-end-{time()}")

    def _lose(self, run: _ScheduledRun) -> None:
        """Have Dask forget what a run has not made yet, as it forgot a program of which a block that it was given is
        lost: the others would wait for its messages.
        """
        run.is_over = True
        self._tell_of_end(run)
        for task in run.programs.values():
            task.has_lost_dependencies = True
        self._scheduler.transitions(dict.fromkeys(run.members, "forgotten"), f"distarray-lost-{time()}")

    def _drop(self, run: _ScheduledRun) -> None:
        """Forget a run of which nothing is needed any more."""
        if run.results:
            return
        if not run.is_over:
            self._tell_of_end(run)
        del self._runs[run.name]
        for key in run.members:
            self._of.pop(key, None)
        self._scheduler.transitions(self._let_go(run), f"distarray-drop-{time()}")
        self._scheduler.transitions({run.anchor.key: "forgotten"}, f"distarray-drop-{time()}")
