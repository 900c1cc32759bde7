"""What runs in the scheduler's process: our graphs, the placement of their tasks, and the cutting of lineage.

A task of ours carries its *home* as an annotation. When a graph arrives, and whenever a worker is lost, the plugin
turns homes into strict worker restrictions; so the mapping from homes to workers has one owner, and no submission can
race with the loss of a worker. Strict restrictions also keep tasks out of work stealing and of the scheduler's queue of
root tasks.

This is the one file that touches the scheduler's own records (`TaskState`); `tests/execution/test_scheduler_plugin.py`
notices when distributed changes them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from time import time
from typing import Any

from dask._task_spec import Task, TaskRef
from dask.typing import Key
from distributed.active_memory_manager import ReduceReplicas, Suggestion
from distributed.core import Status
from distributed.diagnostics.plugin import SchedulerPlugin
from tornado.ioloop import PeriodicCallback

from distarray.execution.placement import TOPIC
from distarray.execution.wire import unpack
from distarray.execution.worker_plugin import CUT, GONE

__all__ = ["Graph", "PlacementPlugin"]

#: Annotation of a task: the home that it runs on.
HOME = "distarray-home"
#: Looking after blocks and their copies is done four times as often as dask's memory manager acts.
_SWEEP = "distarray-apart"
_SWEEP_SECONDS = 0.5


class ReduceVisits(ReduceReplicas):  # type: ignore[misc]  # distributed has no type information
    """Dask's policy, which drops replicas above one, and keeps the one that is at home.

    Dask's own keeps any, so that blocks wander, and later plans move more than they think.
    """

    def __init__(self, placement: PlacementPlugin) -> None:
        self.placement = placement

    def run(self) -> Iterator[Suggestion]:
        for suggestion in super().run():
            visiting = self.placement.visits(suggestion.ts)
            keeping = suggestion.ts.who_has - visiting
            # a worker that is paused, or leaves, need not keep anything
            is_kept = visiting and all(worker.status == Status.running for worker in keeping)
            yield suggestion._replace(candidates=visiting) if is_kept else suggestion


class Graph:
    """Tasks and their homes, in the form in which the scheduler asks for them.

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

    def __dask_graph__(self) -> dict[Key, Task]:
        return self.tasks

    def __dask_annotations__(self) -> dict[str, dict[Key, str]]:
        return {HOME: {key: self.homes[member] for key, member in self.members.items()}}


class PlacementPlugin(SchedulerPlugin):  # type: ignore[misc]  # distributed has no type information
    """Serves every home by a living worker.

    A worker serves its own home. When it is lost, the survivor with the least to do takes it over, and tasks that wait
    for the lost worker are woken. A worker that joins takes back the home of a lost one of its name (a nanny restarts a
    worker under its name and a new address), else a lost home from the busiest survivor. Only later graphs go to it;
    what runs stays where it is.
    """

    name = TOPIC
    idempotent = True

    def __init__(self) -> None:
        self.version = 0
        #: Name of every worker that was ever seen, by address.
        self.names: dict[str, Any] = {}
        #: Lost home -> the worker that serves it. Missing while no worker is alive.
        self.serves: dict[str, str] = {}
        self.lost: dict[str, None] = {}
        #: Block -> its copy, for those whose lineage is cut.
        self.copies: dict[Key, Key] = {}

    async def start(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        if (manager := scheduler.extensions.get("amm")) is not None:
            for policy in [p for p in manager.policies if type(p) is ReduceReplicas]:
                manager.policies.remove(policy)
                manager.add_policy(ReduceVisits(self))
        self.names = {address: worker.name for address, worker in scheduler.workers.items()}
        scheduler.handlers["distarray_placement"] = self.state
        scheduler.handlers["distarray_cut"] = self.cut
        scheduler.handlers["distarray_adopt"] = self.adopt
        scheduler.handlers["distarray_blame"] = self.blame

    # -- placement -----------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """What clients are told: who serves the lost homes, and which workers live."""
        names = {address: self.names.get(address) for address in (*self.lost, *self.scheduler.workers)}
        return {
            "version": self.version,
            "serves": dict(self.serves),
            "workers": list(self.scheduler.workers),
            "names": names,
        }

    def address(self, home: str) -> str:
        """The worker that serves `home`; `home` itself while nobody can."""
        if home not in self.scheduler.workers and home not in self.serves:
            self._reassign(home)  # lost before this plugin came, or named by a client that knows it from elsewhere
        return self.serves.get(home, home)

    def _place(self, task: Any) -> str | None:
        """The worker that serves the home of a task; None for what has none."""
        home = (task.annotations or {}).get(HOME)
        return None if home is None else self.address(home)

    def _reassign(self, home: str) -> None:
        self.lost[home] = None
        load = Counter(self.serves.values())
        # Deterministic: among equals the first to have joined.
        self.serves.pop(home, None)
        if workers := list(self.scheduler.workers):
            self.serves[home] = min(workers, key=lambda worker: load[worker])

    def update_graph(self, scheduler: Any, *, annotations: Mapping[str, Mapping[Key, str]], **kwargs: Any) -> None:
        homes = annotations.get(HOME)
        if homes:
            self._restrict([scheduler.tasks[key] for key in homes])

    def _restrict(self, tasks: Collection[Any]) -> None:
        # One set per worker for all tasks: dask replaces such sets and never changes them.
        restrictions: dict[str, set[str]] = {}
        for task in tasks:
            home = task.annotations[HOME]
            chosen = restrictions.get(home)
            if chosen is None:
                chosen = restrictions[home] = {self.address(home)}
            task.worker_restrictions = chosen
            task.host_restrictions = None
            task.loose_restrictions = False

    def remove_worker(self, scheduler: Any, worker: str, *, stimulus_id: str, **kwargs: Any) -> None:
        for home in [worker, *(home for home, served_by in self.serves.items() if served_by == worker)]:
            self._reassign(home)
        # Runs after the scheduler released what the worker had: what could run at once now waits in "no-worker".
        stranded = self._stranded(scheduler)
        self._restrict(stranded)
        waiting = [task for task in stranded if task.state == "no-worker"]
        # Recommendations are worked off from the end.
        waiting.sort(key=lambda task: task.priority, reverse=True)
        scheduler.transitions({task.key: "processing" for task in waiting}, stimulus_id)
        self._announce()
        if CUT in scheduler.worker_plugins:
            for address in list(scheduler.workers):
                scheduler.worker_send(address, {"op": GONE, "address": worker})

    def add_worker(self, scheduler: Any, worker: str) -> None:
        self.names[worker] = name = scheduler.workers[worker].name
        self.lost.pop(worker, None)  # the address came back
        self.serves.pop(worker, None)
        load = Counter(self.serves.values())
        taken = [home for home in self.lost if self.names.get(home) == name and self.serves.get(home) != worker]
        if not taken and self.lost:
            taken = [max(self.lost, key=lambda home: load[self.serves[home]] if home in self.serves else math.inf)]
        taken += [home for home in self.lost if home not in self.serves and home not in taken]
        for home in taken:
            self.serves[home] = worker
        # Restrictions only: the scheduler itself wakes what the new worker can run, right after this call.
        self._restrict(self._stranded(scheduler))
        self._announce()

    def _stranded(self, scheduler: Any) -> list[Any]:
        """Tasks of ours that are restricted to a worker that is no more."""
        workers = scheduler.workers
        return [
            task
            for task in scheduler.tasks.values()
            if task.annotations and HOME in task.annotations and not workers.keys() & (task.worker_restrictions or ())
        ]

    def _announce(self) -> None:
        self.version += 1
        self.scheduler.log_event(TOPIC, self.state())

    # -- replicas ------------------------------------------------------------------------------------------------

    def transition(self, key: Key, start: str, finish: str, *args: Any, stimulus_id: str, **kwargs: Any) -> None:
        """Drop what a worker fetched for a task of ours, once no other task at that worker is to read it.

        Dask would keep the replica for as long as the block, or until its memory manager acts.
        """
        if start != "processing" or finish != "memory":
            return
        task = self.scheduler.tasks[key]
        if HOME not in (task.annotations or {}):
            return
        for worker in task.who_has:
            visiting = [block.key for block in task.dependencies if self._is_done_with(block, worker)]
            if visiting:
                self.scheduler.request_remove_replicas(worker.address, visiting, stimulus_id=stimulus_id)

    def _is_done_with(self, block: Any, worker: Any) -> bool:
        """Whether a worker holds a replica of a block that belongs elsewhere, and is to read it no more."""
        if len(block.who_has or ()) < 2 or any(
            reader.processing_on is worker or worker.address in (reader.worker_restrictions or ())
            for reader in block.waiters or ()
        ):
            return False
        return worker in self.visits(block)

    def visits(self, block: Any) -> set[Any]:
        """The workers that hold a replica of a block, if others hold it at whose home it is.

        What has no home, such as data from a client, is at home where no task of ours reads it.
        """
        holders = block.who_has or set()
        if len(holders) < 2:
            return set()
        place = self._place(block)
        if place is not None:
            visiting = {worker for worker in holders if worker.address != place}
        else:
            places = {self._place(reader) for reader in block.dependents}
            visiting = {worker for worker in holders if worker.address in places}
        return visiting if len(visiting) < len(holders) else set()

    # -- lineage -------------------------------------------------------------------------------------------------

    def cut(self, pairs: Sequence[tuple[Key, Key | None]]) -> list[Key]:
        """Replace the lineage of blocks by copies of theirs.

        Parameters
        ----------
        pairs
            ``(key, copy)``: a block in memory and a second key with its `wire.pack`-ed value on another worker; or
            ``(key, None)``: the block has no copy and cannot be made again.

        Returns
        -------
        list of Key
            The keys whose lineage is cut. The others were not in memory, or their copy was not, or it shares its one
            worker with the block.

        Notes
        -----
        Afterwards the copy is plain data, without a way to compute it, and the block is a task that reads the copy. So
        a lost block is fetched from its copy by dask's own recovery, whatever depends on it is recomputed from there,
        and all tasks that led to the block are forgotten.
        """
        scheduler = self.scheduler
        done: list[Key] = []
        cut: list[Key] = []  # with the copies
        unused: dict[Any, None] = {}
        for key, copy_key in pairs:
            block = scheduler.tasks.get(key)
            copy = None if copy_key is None else scheduler.tasks.get(copy_key)
            if block is None or block.state != "memory":
                continue
            if copy_key is not None and (copy is None or copy.state != "memory"):
                continue
            for task in (block, copy) if copy is not None else (block,):
                for parent in task.dependencies:
                    parent.dependents.discard(task)
                    unused[parent] = None
                task.dependencies.clear()
                task.has_lost_dependencies = False
                task.run_spec = None
            if copy is not None:
                block.run_spec = Task(key, unpack, TaskRef(copy_key))
                block.add_dependency(copy)
                unused.pop(block, None)
                unused.pop(copy, None)
            if copy is None or self.keep_apart(block, copy):
                done.append(key)
            cut += (key,) if copy_key is None else (key, copy_key)
        forgotten = {task.key: "forgotten" for task in unused if not task.dependents and not task.who_wants}
        scheduler.transitions(forgotten, f"distarray-cut-{time()}")
        # On the stream that also brings tasks: a worker has heard of the cut before it is asked to read a copy.
        if cut and CUT in scheduler.worker_plugins:
            for worker in scheduler.workers:
                scheduler.worker_send(worker, {"op": CUT, "keys": cut})
        return done

    def keep_apart(self, block: Any, copy: Any) -> bool:
        """Keep a block and its copy on different workers, now and from now on; whether they are on two now.

        Of several replicas the one at home is kept. After a loss a home may move to the worker of the other key.
        """
        self.copies[block.key] = copy.key
        is_apart = self._part(block, copy)
        if _SWEEP not in self.scheduler.periodic_callbacks:
            sweep = self.scheduler.periodic_callbacks[_SWEEP] = PeriodicCallback(self._part_all, _SWEEP_SECONDS * 1000)
            sweep.start()
        return is_apart

    def adopt(self, pairs: Sequence[tuple[Key, Key]]) -> None:
        """`keep_apart` for blocks that were born with a copy, as far as both are here still."""
        tasks = self.scheduler.tasks
        for key, copy_key in pairs:
            if key in tasks and copy_key in tasks:
                self.keep_apart(tasks[key], tasks[copy_key])

    def _part(self, block: Any, copy: Any) -> bool:
        """Drop replicas so that block and copy share no worker; whether they are on two workers."""
        if block.state != "memory" or copy.state != "memory":
            return True
        place = self._place(block)
        for worker in block.who_has & copy.who_has:
            first, second = (copy, block) if worker.address == place else (block, copy)
            for task in (first, second):
                # A worker fails when it is asked to drop what a task of its own is reading.
                if len(task.who_has) > 1 and all(reader.processing_on is not worker for reader in task.waiters or ()):
                    self.scheduler.request_remove_replicas(
                        worker.address, [task.key], stimulus_id=f"distarray-apart-{time()}"
                    )
                    break
        return len(block.who_has | copy.who_has) > 1

    def _part_all(self) -> None:
        tasks = self.scheduler.tasks
        self.copies = {key: copy for key, copy in self.copies.items() if key in tasks and copy in tasks}
        apart = [self._part(tasks[key], tasks[copy]) for key, copy in self.copies.items()]
        if not all(apart) and len(self.scheduler.workers) > 1:
            self._announce()  # clients make the missing copies again
        if not apart:
            self.scheduler.periodic_callbacks.pop(_SWEEP).stop()

    def blame(self, key: Key) -> Key | None:
        """The key of the task whose failure made `key` fail."""
        task = self.scheduler.tasks.get(key)
        cause = None if task is None else task.exception_blame
        return None if cause is None else cause.key
