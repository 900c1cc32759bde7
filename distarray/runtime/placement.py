"""Which worker serves which rank of a team.

A team lists its members by *home*: the address of the worker that served the rank when the team was made. Homes are
names and never change, so a type never changes. `Placement` knows, for one client, which worker serves each home now;
the decision itself is made in the scheduler (`scheduler_plugin`), which announces every change. This module is loaded
when the first client is met (`clients`).
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import operator
import threading
import time
import uuid
import weakref
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from distarray import config
from distarray.errors import ClusterGoneError, WorkerPausedError
from distarray.kernels import reporting
from distarray.runtime.connections import check_synchronous, gone, is_open
from distarray.runtime.run_names import is_of_another
from distarray.runtime.wire import TOPIC
from distarray.sharding.team import Team

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: The axis of the team that stands for "all workers of this client".
TEAM_AXIS = "x"
#: How long to try to reach a worker directly before going through the scheduler.
_CONNECT_SECONDS = 1
#: Between looks at whether what is waited for can still come.
_LOOK_SECONDS = 0.25
#: A resource that no worker has. Tasks that need it say how many workers are wanted: adaptive clusters count tasks.
_NOBODY = "distarray-nobody"
#: Tasks per worker that is wanted, at first: an unknown task counts half a second, and a worker is worth five.
_TASKS_PER_WORKER = 10
_MOST_TASKS = 10_000
#: Numbers of the teams that follow a cluster; a newer team has a higher one. 1 is left for those of other processes.
_generations = itertools.count(2)
#: Between looks at whether more has to be asked for.
_ASK_SECONDS = 2


class _Miss(NamedTuple):
    """A _Miss is a worker that was lost: until when it is expected back, and its address."""

    until: float
    address: str


class _LoopCall:
    """A _LoopCall is a coroutine that runs in the event loop of another thread.

    The future of `asyncio.run_coroutine_threadsafe` has a condition: a signal that comes while its lock is taken or
    given back stops the loop for ever, or raises RuntimeError (see `waits`). Here only the thread that calls waits.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, function: Callable[..., Awaitable[Any]], *args: Any) -> None:
        self._loop = loop
        self._task: asyncio.Future[Any] | None = None
        self._running = threading.Lock()
        self._running.acquire()
        loop.call_soon_threadsafe(self._start, function, args)

    def _start(self, function: Callable[..., Awaitable[Any]], args: tuple[Any, ...]) -> None:
        self._task = asyncio.ensure_future(function(*args))
        self._task.add_done_callback(self._end)

    def _end(self, _: asyncio.Future[Any]) -> None:
        self._running.release()

    def wait(self, seconds: float) -> bool:
        """Wait for the end, at most some seconds; return whether it came."""
        return self._running.acquire(timeout=seconds)

    def result(self) -> Any:
        """Return what the coroutine returned, or raise what it raised, after the end."""
        assert self._task is not None
        return self._task.result()

    def cancel(self) -> None:
        """Cancel the coroutine, unless the loop is over."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        if self._task is not None:  # of calls that wait for the loop, the first is the start
            self._task.cancel()


def _heard(event: tuple[float, Any]) -> None:
    """Give a warning that a worker sent, if it is one of this process: the scheduler tells all clients."""
    if not is_of_another(event[1][0]):
        reporting.received(event)


class Placement:
    """A Placement knows who serves each home, as one client knows it; made by `clients.placement_of`.

    Parameters
    ----------
    client
        A running, synchronous ``distributed.Client``. The scheduler has its plugin until the last such client closes.
    """

    def __init__(self, client: Any) -> None:
        check_synchronous(client)
        self._client = weakref.ref(client)
        #: The connection for which this was made: a scheduler that comes back knows nothing of the former one.
        self.comm = client.scheduler_comm
        #: What the executors of this client share, and the executors of the teams that live; theirs to fill.
        self.lineage: Any = None
        self.executors: weakref.WeakKeyDictionary[Team, Any] = weakref.WeakKeyDictionary()
        #: Of two teams that live the one of all their members, for arrays that go from one to the other; `passage`'s to
        #: fill.
        self.joint: weakref.WeakKeyDictionary[Team, weakref.WeakKeyDictionary[Team, Team]] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()
        self._team: Team | None = None
        self._is_stale = True
        self._moving = threading.RLock()
        self._version = -1
        self._names: dict[str, Any] = {}
        self._serves: dict[str, str] = {}
        self._workers: dict[str, Any] = {}
        self._unreachable: set[str] = set()
        #: The home by which each of the workers goes.
        self._homes: dict[str, str] = {}
        #: Homes of workers that were lost, and may come back.
        self._missed: dict[str, _Miss] = {}
        self._n_living = self._n_seen = 0
        self._relieving: asyncio.Task[Any] | None = None
        #: Whose turn it is to ask workers for blocks that they may have on disk.
        self.turn = asyncio.Lock()
        #: How often each home occurs in the teams that something runs on, and how often the scheduler was told.
        self._held: Counter[str] = Counter()
        self._n_told = 0
        handler = weakref.WeakMethod(self._announced)
        client.subscribe_topic(TOPIC, lambda event: (method := handler()) and method(event))
        client.subscribe_topic(reporting.TOPIC, _heard)
        # After subscribing, so that no change falls between the two.
        self.sync(self.refresh)

    @property
    def client(self) -> Any:
        """Return the client; ClusterGoneError when it is closed, or has lost its scheduler."""
        client = self._client()
        if client is None or not is_open(client) or client.scheduler_comm is not self.comm:
            raise gone(client)
        return client

    def sync(self, function: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Run a coroutine in the client's event loop, and wait for it.

        All waits for a cluster are made here: they end when the scheduler is gone, and see to it that a worker that is
        paused does not stop them for longer than ``worker-timeout``.
        """
        client = self.client
        loop = client.loop.asyncio_loop
        if asyncio._get_running_loop() is loop:
            raise RuntimeError("the event loop of a client cannot wait for what is to run in it")
        call = _LoopCall(loop, self._outcome, function, args)
        try:
            while not call.wait(_LOOK_SECONDS):
                if not loop.is_running():
                    raise gone(client)
            outcome: tuple[BaseException | None, T] = call.result()
        except BaseException:
            call.cancel()  # interrupted
            raise
        finally:
            del call
        try:
            if outcome[0] is not None:
                raise outcome[0]
            return outcome[1]
        finally:
            # The error would refer to this frame, and the frame to it: it holds Futures until garbage is collected.
            del outcome

    def ask(
        self, function: Callable[..., T], *args: Any, of: Collection[str] | None = None, seconds: float = math.inf
    ) -> dict[str, T]:
        """Return what a function gives on each worker, by address; those that are lost meanwhile give nothing.

        Parameters
        ----------
        function, args
            As in ``client.run``, which raises where a worker is lost, or waits for half a minute.
        of
            Addresses of the workers; None: of all that serve.
        seconds
            For which their answers are waited for.
        """
        return self.sync(self.answers, function, args, self.workers if of is None else of, seconds)

    async def answers(
        self, function: Callable[..., T], args: tuple[Any, ...], of: Collection[str], seconds: float = math.inf
    ) -> dict[str, T]:
        """Return what `ask` does, in the event loop of the client."""
        ask = self.client._run
        asked = {
            address: asyncio.ensure_future(ask(function, *args, workers=[address], on_error="return")) for address in of
        }
        answers: dict[str, T] = {}
        end = time.monotonic() + seconds
        try:
            while asked and time.monotonic() < end:
                await asyncio.wait(asked.values(), timeout=_LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                for address, answer in list(asked.items()):
                    if answer.done():
                        del asked[address]
                        found = answer.result()[address]
                        if isinstance(found, Exception) and not isinstance(found, OSError):
                            raise found
                        if not isinstance(found, OSError):
                            answers[address] = found
                    elif address not in self._workers:
                        asked.pop(address).cancel()
        finally:
            for answer in asked.values():
                answer.cancel()
        return answers

    def spawn(self, function: Callable[..., Awaitable[None]], *args: Any) -> None:
        """Run a coroutine in the client's event loop, in the background. It ends with the cluster."""
        self.client.loop.add_callback(self._until_gone, function, args)

    async def _until_gone(self, function: Callable[..., Awaitable[None]], args: tuple[Any, ...]) -> None:
        try:
            await function(*args)
        except (OSError, asyncio.CancelledError, ClusterGoneError):
            if (client := self._client()) is not None and is_open(client):
                raise

    async def _outcome(
        self, function: Callable[..., Awaitable[T]], args: tuple[Any, ...]
    ) -> tuple[None, T] | tuple[BaseException, None]:
        """Return the error that a coroutine raised, or None, and its result."""
        try:
            return None, await self._watched(function, args)
        except (Exception, asyncio.CancelledError) as error:
            return error, None

    async def _watched(self, function: Callable[..., Awaitable[T]], args: tuple[Any, ...]) -> T:
        work = asyncio.ensure_future(function(*args))
        start = without = time.monotonic()
        is_told = False
        try:
            while not (await asyncio.wait((work,), timeout=_LOOK_SECONDS))[0]:
                now = time.monotonic()
                self._look(self.client, now - start)
                if self._workers:
                    without, is_told = now, False
                is_told = is_told or self._tell_of_no_worker(now - without)
            return work.result()
        except (OSError, asyncio.CancelledError) as error:
            # What distributed says of a connection that is no more.
            if (client := self._client()) is None or not is_open(client):
                raise gone(client) from error
            raise
        finally:
            work.cancel()
            del work  # it refers to its error, and the error to this frame

    def _tell_of_no_worker(self, waited: float) -> bool:
        """Say in the log where there was no worker for longer than ``worker-timeout``; return whether it was said.

        Nothing fails: an adaptive cluster may bring one in an hour.
        """
        patience = config.get("worker-timeout")
        if self._workers or patience is None or waited < patience:
            return False
        logger.warning("no worker serves since %.3g s; what waits goes on when there is one", waited)
        return True

    def _look(self, client: Any, waited: float) -> None:
        """Ask the scheduler now and then to relieve workers that are paused."""
        patience = config.get("worker-timeout")
        if patience is None:
            return
        asked = self._relieving
        if asked is not None and not asked.done():
            return
        stuck = [] if asked is None or asked.cancelled() or asked.exception() else asked.result()
        self._relieving = asyncio.ensure_future(client.scheduler.distarray_relieve(seconds=patience))
        # A scheduler that does not answer is found out by the client.
        self._relieving.add_done_callback(lambda done: done.cancelled() or done.exception())
        if stuck and waited >= patience:
            raise WorkerPausedError(
                f"{_listed(stuck)}, and no other worker can take over; free memory there (delete arrays, set a smaller "
                f"memory-limit), add workers, or wait for longer than worker-timeout = {patience:g} s"
            )

    @property
    def workers(self) -> tuple[str, ...]:
        """Return addresses of the workers that serve, in a stable order: alive, not retired, and not paused for
        long.
        """
        return tuple(self._workers)

    def address(self, home: str) -> str:
        """Return the worker that serves `home` now."""
        return self._serves.get(home, home)

    def spare(self, address: str) -> str | None:
        """Return another worker than `address`, for a second copy of its data; None if there is none."""
        workers = self.workers
        others = [worker for worker in workers if worker != address]
        if not others:
            return None
        # The next one in the ring, so that every worker keeps the copies of one other.
        return others[workers.index(address) % len(others)] if address in workers else others[0]

    def members(self, wanted: int = 1) -> tuple[str, ...]:
        """Return the homes of the ranks that this client can use, in rank order: by host, then by the name of the
        worker.

        A worker that took the place of a lost one goes by the home of the lost one. One that was just lost stays a
        member of the current team for ``worker-timeout``, since it may come back.

        Parameters
        ----------
        wanted
            So many are waited for where a cluster is adaptive, and one in any case.
        """
        self._hear()
        if len(self._workers) < wanted:
            self.sync(self.some_workers, wanted if _may_grow(self.client, wanted) else 1, _ASK_SECONDS)
        now = time.monotonic()
        with self._moving:
            homes = {*self._homes.values(), *(home for home, miss in self._missed.items() if now < miss.until)}
            return tuple(sorted(homes, key=lambda home: _rank_order(home, self._names.get(home))))

    def team(self) -> Team:
        """Return the team of the workers there are now; the same object for as long as they are the same."""
        if self._is_stale or self._missed or self._is_behind():
            with self._lock:
                self._is_stale = False
                members = self.members()
                current = self._team
                if current is None or current.members != members:
                    self._team = Team.following(TEAM_AXIS, self.client, members, next(_generations))
                    # A lost home is remembered by name, to be taken back, whether or not anything ran on the team.
                    self.hold(members, self._team)
                now = time.monotonic()
                with self._moving:
                    self._missed = {home: miss for home, miss in self._missed.items() if now < miss.until}
        assert self._team is not None
        return self._team

    def _n_elsewhere(self) -> int:
        """Return the workers that others of this process know of, who may hear of a change before this one."""
        client = self.client
        info = client._scheduler_identity if client.cluster is None else getattr(client.cluster, "scheduler_info", {})
        return len(info.get("workers", ()))

    def _is_behind(self) -> bool:
        return self._n_elsewhere() not in (self._n_seen, self._n_living)

    def _hear(self) -> None:
        """Ask what the scheduler has to say, if others of this process know of a change already."""
        if self._is_behind():
            self._n_seen = self._n_elsewhere()
            self.sync(self.refresh)

    def _ask_for(self, n: int, asked: list[Any]) -> None:
        """Say by tasks that nobody can do that so many workers are wanted; they are added to what was asked before."""
        # Dask's adaptive clusters divide what waits by the threads of the workers there are.
        more = range(max(_TASKS_PER_WORKER * n, len(asked)) if len(asked) < _MOST_TASKS else 0)
        key = f"dx-wanted-{uuid.uuid4().hex}"
        asked += self.client.map(operator.index, more, key=key, resources={_NOBODY: 1}, pure=False)

    async def some_workers(self, n: int = 1, again: float = math.inf) -> None:
        """Ask for workers, and for more after so many seconds each time, until there are `n`."""
        asked: list[Any] = []
        due = 0.0
        try:
            while len(self._workers) < n:
                if time.monotonic() >= due:
                    self._ask_for(n, asked)
                    due = time.monotonic() + again
                await asyncio.sleep(_LOOK_SECONDS)
        finally:
            for future in asked:
                future.release()

    async def reachable(self, address: str) -> bool:
        """Return whether this process can talk to a worker directly, now. Costs nothing once there is a connection."""
        client = self.client
        if client.direct_to_workers is not None and not client.direct_to_workers:
            return False
        if address in self._unreachable or address not in self._workers:
            return False
        try:
            # The pool's own patience with a worker that was just lost is half a minute; it tries again and again.
            client.rpc.reuse(address, await client.rpc.connect(address, timeout=_CONNECT_SECONDS))
        except OSError:
            # Lost, or behind a gateway: both for good.
            self._unreachable.add(address)
            return False
        return True

    def hold(self, homes: Sequence[str], owner: object) -> None:
        """Have the scheduler remember who serves these homes for as long as `owner` lives."""
        weakref.finalize(owner, _released, weakref.ref(self), homes).atexit = False
        self._in_loop(homes, 1)

    def _in_loop(self, homes: Sequence[str], times: int) -> None:
        client = self._client()
        if client is not None and client.status == "running":
            client.loop.add_callback(self._hold, homes, times)

    async def _hold(self, homes: Sequence[str], times: int) -> None:
        for home in homes:
            self._held[home] += times
        self._held += Counter()  # drops what is held no more
        self._n_told += 1
        # When client or scheduler are on their way out, this is of no use to anybody.
        with suppress(OSError, RuntimeError):
            client = self.client
            await client.scheduler.distarray_hold(client=client.id, homes=list(self._held), number=self._n_told)

    async def refresh(self) -> None:
        """Ask the scheduler, for those who cannot wait for its announcement, and for the first time."""
        from distarray.runtime.scheduler_plugin import join

        client = self.client
        state = await client.run_on_scheduler(join, client.id)
        if state["version"] > self._version:
            self._workers, self._names, self._serves = {}, {}, {}
            self._update(**state)

    def _announced(self, event: tuple[float, Mapping[str, Any]]) -> None:
        change = event[1]
        if change["version"] == self._version + 1:
            for gone in (*change["left"], *change["forgotten"]):
                for known in (self._workers, self._names, self._serves):
                    known.pop(gone, None)
            facts = {fact: change[fact] for fact in ("version", "serves", "living", "crashed")}
            self._update(workers=change["joined"], **facts)
        elif change["version"] > self._version:  # one was missed
            self.spawn(self.refresh)

    def _update(
        self,
        version: int,
        workers: Mapping[str, Any],
        serves: Mapping[str, tuple[Any, str | None]],
        living: int,
        crashed: Collection[str],
    ) -> None:
        """Note what is new of the workers.

        Parameters
        ----------
        workers
            Names of workers that serve now.
        serves
            Names of lost homes, and who serves them if anybody does.
        living
            How many workers there are, those that serve nothing among them.
        crashed
            All homes that were lost and may come back.
        """
        self._version = version
        patience = config.get("worker-timeout")
        until = time.monotonic() + (float("inf") if patience is None else patience)
        missed = {home: miss for home, miss in self._missed.items() if miss.address in crashed}
        missed |= {home: _Miss(until, address) for address, home in self._homes.items() if address in crashed}
        self._names |= workers
        for home, (name, worker) in serves.items():
            self._names[home] = name
            if worker is None:
                self._serves.pop(home, None)
            else:
                self._serves[home] = worker
        for back in workers:
            self._serves.pop(back, None)
        live = sorted((*self._workers, *workers), key=lambda address: _rank_order(address, self._names.get(address)))
        with self._moving:
            self._workers = {address: self._names.get(address) for address in live}
            self._homes = {address: address for address in live}
            self._homes |= {
                address: home
                for home, address in self._serves.items()
                if address in self._homes and self._names.get(home) == self._names.get(address)
            }
            self._missed = missed
            self._n_living = living
            self._is_stale = True
        self._unreachable &= self._workers.keys()
        if self.lineage is not None:
            self.lineage.placement_changed()


def _released(placement: weakref.ref[Placement], homes: Sequence[str]) -> None:
    # Finalizers are kept for as long as the process: they refer to no client.
    if (found := placement()) is not None:
        found._in_loop(homes, -1)


def _rank_order(address: str, name: Any) -> tuple[str, bool, int, str]:
    # Workers of one host are neighbours; LocalCluster's names 0, 1, .. 10 sort as numbers.
    host = address.rpartition("://")[2].rpartition(":")[0]
    number = isinstance(name, int)
    return host, not number, name if number else 0, str(name) + address


def _listed(stuck: list[tuple[str, Any, float]]) -> str:
    return " and ".join(
        f"worker {address} (name {name!r}) has been paused by Dask for {seconds:.0f} s, since its memory is nearly full"
        for address, name, seconds in stuck
    )


def _may_grow(client: Any, size: int) -> bool:
    """Return whether the cluster of a client adds workers as they are needed, up to so many."""
    adaptive = getattr(client.cluster, "_adaptive", None)
    return adaptive is not None and adaptive.state in ("starting", "running") and adaptive.maximum >= size
