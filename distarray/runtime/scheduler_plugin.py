"""What runs in the scheduler's process: our graphs, the placement of their tasks, and the cutting of lineage.

A task of ours carries its *home* as an annotation. When a graph arrives, and whenever a worker is lost, the plugin
turns homes into strict worker restrictions; so the mapping from homes to workers has one owner, and no submission can
race with the loss of a worker. Strict restrictions also keep tasks out of work stealing and of the scheduler's queue of
root tasks.

The plugin comes with the first client that uses distarray and goes with the last (`join`); then scheduler and workers
are as they were. What it does concerns keys of ours alone. It remembers a worker that departed as long as the arrays of
a client or a task have it as a home, and announces differences, so its state and its messages do not grow with time.

This is the one file that touches the scheduler's own records (`TaskState`); `tests/runtime/test_scheduler_plugin.py`
notices when distributed changes them.
"""

from __future__ import annotations

import asyncio
import math
import uuid
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from time import time
from typing import Any

from dask._task_spec import Task, TaskRef
from dask.typing import Key
from distributed.active_memory_manager import ReduceReplicas, Suggestion
from distributed.core import Status, clean_exception
from distributed.diagnostics.plugin import SchedulerPlugin
from distributed.protocol.pickle import dumps
from tornado.ioloop import PeriodicCallback

from distarray.runtime.connections import hurry
from distarray.runtime.scheduler_runs import ScheduledRuns
from distarray.runtime.task_graph import HOME, RUN
from distarray.runtime.transport import RUNS
from distarray.runtime.wire import TOPIC, is_ours, unpack
from distarray.runtime.worker_plugin import CUT, GONE, LEAVE, LineagePlugin

#: Looking after blocks and their copies is done four times as often as dask's memory manager acts.
_SWEEP = "distarray-apart"
_SWEEP_SECONDS = 0.5

#: States of workers that go because somebody said so.
_LEAVING = frozenset({Status.closing, Status.closing_gracefully})


async def join(client: str, *, dask_scheduler: Any) -> dict[str, Any]:
    """Run on the scheduler: give a client the plugin, and have the workers ready for it.

    Parameters
    ----------
    client
        Its ``id``. It leaves when the scheduler removes it.

    Returns
    -------
    dict
        `PlacementPlugin.state`.
    """
    plugin = dask_scheduler.plugins.get(TOPIC)
    if plugin is None:
        plugin = PlacementPlugin()
        plugin.start(dask_scheduler)
        dask_scheduler.add_plugin(plugin, name=TOPIC)
    plugin.clients.setdefault(client, (-1, frozenset()))
    await asyncio.shield(plugin.equipped)
    if client not in dask_scheduler.clients:  # closed meanwhile
        plugin.remove_client(dask_scheduler, client)
    state: dict[str, Any] = plugin.state()
    return state


def _is_to_read(worker: Any, block: Any) -> bool:
    """Return whether a task that waits, or is processed, is to read a block at a worker."""
    return any(
        reader.processing_on is worker or worker.address in (reader.worker_restrictions or ())
        for reader in block.waiters or ()
    )


class ReduceVisits(ReduceReplicas):  # type: ignore[misc]  # distributed has no type information
    """ReduceVisits is Dask's policy, which drops replicas above one, and of blocks of ours keeps the one that is at
    home, and those that a worker is still to read.

    Dask's own keeps any, so that blocks wander, and plans move more than they think.

    Parameters
    ----------
    replaced
        The policy that this one stands for.
    """

    def __init__(self, placement: PlacementPlugin, replaced: ReduceReplicas) -> None:
        self.placement = placement
        self.replaced = replaced

    def run(self) -> Iterator[Suggestion]:
        for suggestion in super().run():
            visiting = self.placement.visits(suggestion.ts)
            keeping = suggestion.ts.who_has - visiting
            # a worker that is paused, or leaves, need not keep anything
            if not visiting or any(worker.status != Status.running for worker in keeping):
                yield suggestion
            elif done := {worker for worker in visiting if not _is_to_read(worker, suggestion.ts)}:
                yield suggestion._replace(candidates=done)


class PlacementPlugin(SchedulerPlugin):  # type: ignore[misc]  # distributed has no type information
    """The PlacementPlugin of a scheduler lets a living worker serve every home.

    A worker serves its own home. When it is lost, the survivor with the least to do takes it over, and tasks that wait
    for the lost worker are woken. A worker that joins takes back the home of a lost one of its name (a nanny restarts a
    worker under its name and a new address), else a lost home from the busiest survivor. Only later graphs go to it;
    what runs stays where it is.

    A worker that is being retired serves nothing from then on, and one that is paused nothing once a client has lost
    patience with it (`relieve`); both do again when they run again.
    """

    name = TOPIC

    def __init__(self) -> None:
        self.generation = uuid.uuid4().hex
        #: Changes so far, on top of the time: those of a plugin come after those of the plugins before it.
        self.version = int(time() * 1e6)
        #: Name of every worker that lives, or is lost and somebody's home, by address.
        self.names: dict[str, Any] = {}
        #: Lost home -> the worker that serves it. Missing while no worker is alive.
        self.serves: dict[str, str] = {}
        self.lost: dict[str, None] = {}
        #: What the clients were told last: names of those who serve; lost homes, their names and who serves them.
        self._told: tuple[dict[str, Any], dict[str, tuple[Any, str | None]]] = ({}, {})
        #: Those of the lost that nobody retired: they may come back, restarted by their nanny.
        self.crashed: set[str] = set()
        #: Workers that are paused, and since when.
        self.paused: dict[str, float] = {}
        #: Workers that live and serve nothing.
        self.idle: set[str] = set()
        #: Block -> its copy, for those whose lineage is cut.
        self.copies: dict[Key, Key] = {}
        #: Client -> the homes of its teams, and the number of the message that said so.
        self.clients: dict[str, tuple[int, frozenset[str]]] = {}
        #: Workers that understand our messages.
        self.hearing: set[str] = set()

    def start(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        self.names = {address: worker.name for address, worker in scheduler.workers.items()}
        states = {address: worker.status for address, worker in scheduler.workers.items()}
        self.paused = {address: time() for address, status in states.items() if status == Status.paused}
        self.idle = {address for address, status in states.items() if status in _LEAVING}
        self._told = self._known()
        if (manager := scheduler.extensions.get("amm")) is not None:
            for policy in [p for p in manager.policies if type(p) is ReduceReplicas]:
                manager.policies.remove(policy)
                manager.add_policy(ReduceVisits(self, policy))
        self.handlers = {
            "distarray_cut": self.cut,
            "distarray_adopt": self.adopt,
            "distarray_blame": self.blame,
            "distarray_hold": self.hold,
            "distarray_relieve": self.relieve,
            "restart": self.restarted,
        }
        self.restart_workers = scheduler.handlers["restart"]
        scheduler.handlers.update(self.handlers)
        self.runs = ScheduledRuns(scheduler, self)
        scheduler.worker_plugins[CUT] = dumps(LineagePlugin(self.generation))
        #: Done when the workers that were there have the plugin; those that join have it when they hear their first.
        self.equipped = asyncio.ensure_future(self._equip())

    async def _equip(self) -> None:
        scheduler = self.scheduler
        answers = await scheduler.broadcast(
            msg={"op": "plugin-add", "plugin": scheduler.worker_plugins[CUT], "name": CUT}, on_error="return"
        )
        for worker, answer in answers.items():
            if isinstance(answer, BaseException):
                continue  # is being lost
            if answer["status"] == "error":
                raise clean_exception(**answer)[1]
            self.hearing.add(worker)
        if not self.clients:
            self._tell_workers({"op": LEAVE, "generation": self.generation})  # the client left meanwhile

    # -- clients -------------------------------------------------------------------------------------------------

    def hold(self, client: str, homes: Sequence[str], number: int) -> None:
        """Note which homes the teams of a client have: these are served, whatever becomes of the workers."""
        if client in self.clients and self.clients[client][0] < number:
            self.clients[client] = number, frozenset(homes)
            self._forget()

    def remove_client(self, scheduler: Any, client: str) -> None:
        if self.clients.pop(client, None) is None:
            return
        if self.clients:
            self._forget()
        else:
            self._leave()

    def _leave(self) -> None:
        """Leave scheduler and workers as they were."""
        scheduler = self.scheduler
        if (manager := scheduler.extensions.get("amm")) is not None:
            for policy in [p for p in manager.policies if type(p) is ReduceVisits and p.placement is self]:
                manager.policies.remove(policy)
                manager.add_policy(policy.replaced)
        for name in self.handlers:
            del scheduler.handlers[name]
        scheduler.handlers["restart"] = self.restart_workers
        if (sweep := scheduler.periodic_callbacks.pop(_SWEEP, None)) is not None:
            sweep.stop()
        self.runs.close()
        scheduler.remove_plugin(TOPIC)
        del scheduler.worker_plugins[CUT]
        self._tell_workers({"op": LEAVE, "generation": self.generation})
        self.hearing.clear()

    def _tell_workers(self, message: dict[str, Any]) -> None:
        # A worker that does not know a message would break with the scheduler.
        for worker in self.hearing & self.scheduler.workers.keys():
            self.scheduler.worker_send(worker, dict(message))

    def tell(self, worker: str, message: dict[str, Any]) -> None:
        """Send a message to a worker, on the stream that also brings it tasks; nothing if it is lost."""
        if worker in self.hearing and worker in self.scheduler.workers:
            self.scheduler.worker_send(worker, message)

    def _hurry(self, task: Any) -> None:
        """Have those be told at once, when the scheduler is through with what it does now, who wait for a task: the
        worker that is to run it and has nothing else to do, and the clients that want its result.
        """
        if (worker := task.processing_on) is not None:
            is_idle = len(worker.processing) <= worker.nthreads  # has a thread for each task that it was sent
            streams = [self.scheduler.stream_comms.get(worker.address)] if is_idle else []
        else:
            streams = [self.scheduler.client_comms.get(client.client_key) for client in task.who_wants or ()]
        for stream in streams:
            if stream is not None:
                asyncio.get_running_loop().call_soon(hurry, stream)

    async def restarted(self, **options: Any) -> None:
        """Restart the workers as the scheduler does, which is to hold no task for anybody but its clients then."""
        self.runs.close()
        await self.restart_workers(**options)

    def restart(self, scheduler: Any) -> None:
        self.runs.clear()

    # -- placement -----------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return what a client is told when it joins: which workers live, and who serves the lost homes."""
        workers, serves = self._known()
        return {"workers": workers, "serves": serves, **self._always_told()}

    def _always_told(self) -> dict[str, Any]:
        """Return what is told whenever something changed: also the lost homes whose worker may come back."""
        crashed = [home for home in self.lost if home in self.crashed]
        return {"version": self.version, "living": len(self.scheduler.workers), "crashed": crashed}

    def _known(self) -> tuple[dict[str, Any], dict[str, tuple[Any, str | None]]]:
        workers = {address: self.names.get(address) for address in self._serving()}
        return workers, {home: (self.names.get(home), self.serves.get(home)) for home in self.lost}

    def _announce(self) -> None:
        """Tell clients what changed since they were told last."""
        self.version += 1
        (old, served), (workers, serves) = self._told, self._known()
        self._told = workers, serves
        event = {
            "joined": {worker: name for worker, name in workers.items() if worker not in old},
            "left": [worker for worker in old if worker not in workers],
            "serves": {home: facts for home, facts in serves.items() if served.get(home) != facts},
            "forgotten": [home for home in served if home not in serves],
            **self._always_told(),
        }
        # What is sent to a client that has gone without a word, as that of a task does with its worker, is an error in
        # the scheduler's log.
        for client, comm in self.scheduler.client_comms.items():
            if comm.closed():
                self.scheduler.unsubscribe_topic(TOPIC, client)
        self.scheduler.log_event(TOPIC, event)

    def _forget(self) -> None:
        """Let go of the lost homes that no team of a client and no task has."""
        if not self.lost:
            return
        needed = {task.annotations[HOME] for task in self.scheduler.tasks.values() if HOME in (task.annotations or ())}
        needed.update(*[homes for _, homes in self.clients.values()])
        for home in self.lost.keys() - needed:
            del self.lost[home]
            self.serves.pop(home, None)
            self.names.pop(home, None)
            self.crashed.discard(home)

    def address(self, home: str) -> str:
        """Return the worker that serves `home`; `home` itself while nobody can."""
        if (home not in self.scheduler.workers or home in self.idle) and home not in self.serves:
            self._reassign(home)  # lost before this plugin came, or named by a client that knows it from elsewhere
        return self.serves.get(home, home)

    def _serving(self) -> list[str]:
        """Return the workers that can serve a home."""
        return [address for address in self.scheduler.workers if address not in self.idle]

    def _place(self, task: Any) -> str | None:
        """Return the worker that serves the home of a task; None for what has none."""
        home = (task.annotations or {}).get(HOME)
        return None if home is None else self.address(home)

    def _reassign(self, home: str) -> None:
        self.lost[home] = None
        load = Counter(self.serves.values())
        # Deterministic: among equals the first to have joined.
        self.serves.pop(home, None)
        if workers := self._serving() or list(self.scheduler.workers):
            self.serves[home] = min(workers, key=lambda worker: (worker in self.paused, load[worker]))

    def update_graph(self, scheduler: Any, *, annotations: Mapping[str, Mapping[Key, str]], **kwargs: Any) -> None:
        homes = annotations.get(HOME)
        if homes:
            self._restrict([scheduler.tasks[key] for key in homes])
        if runs := annotations.get(RUN):
            self.runs.begin(runs)  # type: ignore[arg-type]  # annotations of all kinds

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
        self.paused.pop(worker, None)
        self.idle.discard(worker)
        # Runs after the scheduler released what the worker had: what could run at once now waits in "no-worker".
        self.hearing.discard(worker)
        self._hand_over(worker, stimulus_id)
        self._tell_workers({"op": GONE, "address": worker})

    def _hand_over(self, worker: str, stimulus_id: str, moving: Collection[Any] = ()) -> None:
        """Let others serve what a worker served, and do what waits for it; `moving`: tasks that it is to do no more."""
        scheduler = self.scheduler
        for home in [worker, *(home for home, served_by in self.serves.items() if served_by == worker)]:
            self._reassign(home)
        stranded = self._stranded(scheduler)
        self._restrict(stranded)
        # Recommendations are worked off from the end.
        stranded.sort(key=lambda task: task.priority, reverse=True)
        found = {task.key: "processing" for task in stranded if task.state == "no-worker"}
        found |= {task.key: "released" for task in moving if task.state == "processing"}
        scheduler.transitions(found, stimulus_id)
        self._forget()
        self._announce()

    def log_event(self, topic: str, msg: Any) -> None:
        """Hear the scheduler's events, of which the plugin wants those that tell how workers are, and why they went."""
        if topic == RUNS:
            self.runs.told(msg["run"], msg["attempt"], msg["exception"])
        action = msg.get("action") if type(msg) is dict else None
        if action == "worker-status-change":
            self._changed(topic, Status[msg["status"]], msg["stimulus_id"])
        elif action == "remove-worker" and topic != "all" and not msg["expected"] and topic not in self.idle:
            self.crashed.add(topic)

    def _changed(self, worker: str, status: Status, stimulus_id: str) -> None:
        if status == Status.paused:
            self.paused.setdefault(worker, time())
        elif status in _LEAVING:
            self.idle.add(worker)
            self._hand_over(worker, stimulus_id)
        elif status == Status.running:
            self.paused.pop(worker, None)
            if worker in self.idle:
                self.idle.discard(worker)
                self._came(worker)

    def relieve(self, seconds: float) -> list[tuple[str, Any, float]]:
        """Give the part of workers that are paused for longer than this to others, except for what they are doing.

        Returns
        -------
        list of tuple
            Address, name and seconds of pause of workers that do nothing, and whose part nobody can take over.
        """
        scheduler, stuck = self.scheduler, []
        for address, since in list(self.paused.items()):
            worker, pause = scheduler.workers[address], time() - since
            if pause < seconds or address in self.idle:
                continue
            if any(other not in self.paused for other in self._serving()):
                self.idle.add(address)
                waiting = [task for task in worker.processing if task not in worker.executing]
                ours = [task for task in waiting if HOME in (task.annotations or {})]
                self._hand_over(address, f"distarray-relieve-{time()}", ours)
            elif not worker.executing:
                stuck.append((address, worker.name, pause))
        return stuck

    def add_worker(self, scheduler: Any, worker: str) -> None:
        self.hearing.add(worker)
        self.names[worker] = scheduler.workers[worker].name
        self._came(worker)

    def _came(self, worker: str) -> None:
        """Note that a worker joined, or serves again."""
        name = self.names[worker]
        self.lost.pop(worker, None)  # the address came back
        self.serves.pop(worker, None)
        load = Counter(self.serves.values())
        taken = [home for home in self.lost if self.names.get(home) == name and self.serves.get(home) != worker]
        if not taken and self.lost:
            taken = [max(self.lost, key=lambda home: load[self.serves[home]] if home in self.serves else math.inf)]
        taken += [home for home in self.lost if home not in self.serves and home not in taken]
        for home in taken:
            self.serves[home] = worker
        self.crashed -= {worker, *taken}
        # Restrictions only: the scheduler itself wakes what the new worker can run, right after this call.
        self._restrict(self._stranded(self.scheduler))
        self._forget()
        self._announce()

    def _stranded(self, scheduler: Any) -> list[Any]:
        """Return the tasks of ours that are restricted to a worker that is no more, or serves nothing."""
        serving = set(self._serving())
        return [
            task
            for task in scheduler.tasks.values()
            if task.annotations and HOME in task.annotations and serving.isdisjoint(task.worker_restrictions or ())
        ]

    # -- replicas ------------------------------------------------------------------------------------------------

    def transition(self, key: Key, start: str, finish: str, *args: Any, stimulus_id: str, **kwargs: Any) -> None:
        """Drop what a worker fetched for a task of ours, once no other task at that worker is to read it.

        Dask would keep the replica for as long as the block, or until its memory manager acts.
        """
        self.runs.transition(key, start, finish, kwargs)
        if finish not in ("processing", "memory"):
            return
        task = self.scheduler.tasks[key]
        if HOME not in (task.annotations or {}):
            return
        self._hurry(task)
        if start != "processing" or finish != "memory":
            return
        for worker in task.who_has:
            visiting = [block.key for block in task.dependencies if self._is_done_with(block, worker)]
            if visiting:
                self.scheduler.request_remove_replicas(worker.address, visiting, stimulus_id=stimulus_id)

    def _is_done_with(self, block: Any, worker: Any) -> bool:
        """Return whether a worker holds a replica of a block that belongs elsewhere, and is to read it no more."""
        return len(block.who_has or ()) > 1 and not _is_to_read(worker, block) and worker in self.visits(block)

    def visits(self, block: Any) -> set[Any]:
        """Return the workers that hold a replica of a block of ours, if others hold it at whose home it is.

        What has no home, such as data from a client, is at home where no task of ours reads it.
        """
        holders = block.who_has or set()
        place = self._place(block)
        if len(holders) < 2 or (place is None and not is_ours(block.key)):
            return set()
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
        self.runs.settled(done)
        # On the stream that also brings tasks: a worker has heard of the cut before it is asked to read a copy.
        if cut:
            self._tell_workers({"op": CUT, "keys": cut})
        return done

    def keep_apart(self, block: Any, copy: Any) -> bool:
        """Keep a block and its copy on different workers from now on, and return whether they are on two now.

        Of several replicas the one at home is kept. After a loss a home may move to the worker of the other key.
        """
        self.copies[block.key] = copy.key
        is_apart = self._part(block, copy)
        if _SWEEP not in self.scheduler.periodic_callbacks:
            sweep = self.scheduler.periodic_callbacks[_SWEEP] = PeriodicCallback(self._part_all, _SWEEP_SECONDS * 1000)
            sweep.start()
        return is_apart

    def adopt(self, pairs: Sequence[tuple[Key, Key]]) -> None:
        """Do as `keep_apart` for blocks that were born with a copy, as far as both are here still."""
        tasks = self.scheduler.tasks
        for key, copy_key in pairs:
            if key in tasks and copy_key in tasks:
                self.keep_apart(tasks[key], tasks[copy_key])

    def _part(self, block: Any, copy: Any) -> bool:
        """Drop replicas so that block and copy share no worker, and return whether they are on two workers."""
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
        """Return the key of the task whose failure made `key` fail."""
        task = self.scheduler.tasks.get(key)
        cause = None if task is None else task.exception_blame
        return None if cause is None else cause.key
