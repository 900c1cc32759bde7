"""Which worker serves which rank of a team.

A team lists its members by *home*: the address of the worker that served the rank when the team was made. Homes are
names and never change, so a type never changes. `Placement` knows, for one client, which worker serves each home now;
the decision itself is made in the scheduler (`scheduler_plugin`), which announces every change. Nothing here imports
distributed until a client exists.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from distarray.errors import ShardingError
from distarray.execution import reporting
from distarray.sharding import team
from distarray.sharding.team import Team

__all__ = ["Placement", "PlacementListener", "active_client", "placement_of", "resolve_members", "team_for_client"]

#: Topic under which the scheduler announces who serves whom.
TOPIC = "distarray-placement"
#: The axis of the team that stands for "all workers of this client".
TEAM_AXIS = "x"
#: How long to try to reach a worker directly before going through the scheduler.
_CONNECT_SECONDS = 1


def active_client() -> Any:
    """The active Dask client of this thread, or None where there is none.

    Inside a task there is none: what a task computes stays on its worker. Costs a dictionary look-up when distributed
    was never imported (it is not imported here).

    Returns
    -------
    distributed.Client or None
    """
    distributed = sys.modules.get("distributed.client")
    if distributed is None or getattr(sys.modules["distributed.utils"].thread_state, "key", None) is not None:
        return None
    client = distributed._get_global_client()
    return client if client is not None and client.status == "running" and not client.asynchronous else None


class PlacementListener(Protocol):
    """What wants to know of lost and joined workers."""

    def placement_changed(self) -> None: ...


class Placement:
    """Who serves each home, as one client knows it; made by `placement_of`.

    Parameters
    ----------
    client
        A running, synchronous ``distributed.Client``. The scheduler plugin is registered once per scheduler.
    """

    def __init__(self, client: Any) -> None:
        from distarray.execution.scheduler_plugin import PlacementPlugin
        from distarray.execution.worker_plugin import LineagePlugin

        self._client = weakref.ref(client)
        self._lock = threading.Lock()
        self._listeners: weakref.WeakSet[PlacementListener] = weakref.WeakSet()
        self._team: Callable[[], Team | None] = lambda: None  # a weak reference, once there is one
        self._version = -1
        self._names: dict[str, Any] = {}
        self._serves: dict[str, str] = {}
        self._workers: dict[str, Any] = {}
        self._unreachable: set[str] = set()
        client.register_plugin(LineagePlugin())
        client.register_plugin(PlacementPlugin())
        handler = weakref.WeakMethod(self._announced)
        client.subscribe_topic(TOPIC, lambda event: (method := handler()) and method(event))
        client.subscribe_topic(reporting.TOPIC, reporting.received)
        # After subscribing, so that no change falls between the two.
        client.sync(self.refresh)

    @property
    def client(self) -> Any:
        """The client; RuntimeError when it is gone."""
        client = self._client()
        if client is None or client.status in ("closing", "closed"):
            raise RuntimeError("the Dask client that held these blocks is closed")
        return client

    @property
    def workers(self) -> tuple[str, ...]:
        """Addresses of the workers that are alive, in a stable order."""
        return tuple(self._workers)

    def address(self, home: str) -> str:
        """The worker that serves `home` now."""
        return self._serves.get(home, home)

    def spare(self, address: str) -> str | None:
        """Another worker than `address`, for a second copy of its data; None if there is none."""
        workers = self.workers
        others = [worker for worker in workers if worker != address]
        if not others:
            return None
        # The next one in the ring, so that every worker keeps the copies of one other.
        return others[workers.index(address) % len(others)] if address in workers else others[0]

    def members(self) -> tuple[str, ...]:
        """Homes of the ranks that this client can use, in rank order: by host, then by the name of the worker.

        A worker that took the place of a lost one goes by the home of the lost one. While the current team is in use
        its members stay, lost or not.
        """
        current = self._team()
        if current is not None:
            return tuple(map(str, current.members))
        if not self._workers:
            self.client.wait_for_workers(1)
            self.client.sync(self.refresh)
        homes = {worker: worker for worker in self._workers}
        homes |= {
            worker: home for home, worker in self._serves.items() if self._names.get(home) == self._workers.get(worker)
        }
        return tuple(homes.values())

    def team(self) -> Team:
        """The team of all workers: the same object as long as somebody holds it, whatever happens to the workers."""
        with self._lock:
            current = self._team()
            if current is None:
                members = self.members()
                current = Team((len(members),), (TEAM_AXIS,), self.client, members)
                self._team = weakref.ref(current)
            return current

    def listen(self, listener: PlacementListener) -> None:
        """Call ``listener.placement_changed()``, in the client's event loop, after every change. Held weakly."""
        self._listeners.add(listener)

    async def reachable(self, address: str) -> bool:
        """Whether this process can talk to a worker directly, now. Costs nothing once there is a connection."""
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

    async def refresh(self) -> None:
        """Ask the scheduler, for those who cannot wait for its announcement."""
        self._update(await self.client.scheduler.distarray_placement())

    def _announced(self, event: tuple[float, Mapping[str, Any]]) -> None:
        self._update(event[1])

    def _update(self, state: Mapping[str, Any]) -> None:
        if state["version"] <= self._version:
            return
        self._version = state["version"]
        self._names = dict(state["names"])
        self._serves = dict(state["serves"])
        live = sorted(state["workers"], key=lambda address: _rank_order(address, self._names.get(address)))
        self._workers = {address: self._names.get(address) for address in live}
        self._unreachable &= self._workers.keys()
        for listener in list(self._listeners):
            listener.placement_changed()


def _rank_order(address: str, name: Any) -> tuple[str, bool, int, str]:
    # Workers of one host are neighbours; LocalCluster's names 0, 1, .. 10 sort as numbers.
    host = address.rpartition("://")[2].rpartition(":")[0]
    number = isinstance(name, int)
    return host, not number, name if number else 0, str(name) + address


_placements: weakref.WeakKeyDictionary[Any, Placement] = weakref.WeakKeyDictionary()
_placements_lock = threading.Lock()
if hasattr(os, "register_at_fork"):  # a forked process has no event loop that could use the parent's placements
    os.register_at_fork(after_in_child=_placements.clear)


def placement_of(client: Any) -> Placement:
    """The placement of a client: one object per client, made when first asked for (a few milliseconds)."""
    placement = _placements.get(client)
    if placement is None:
        with _placements_lock:
            placement = _placements.get(client)
            if placement is None:
                placement = _placements[client] = Placement(client)
    return placement


def team_for_client(client: Any) -> Team:
    """The team of all workers of a client, one axis ``"x"``.

    It is the same object while anything refers to it, so arrays made before and after the loss of a worker have one
    type. Once nothing does, the next call looks at the workers afresh.

    Parameters
    ----------
    client
        A running, synchronous ``distributed.Client``. Waits for its first worker.
    """
    return placement_of(client).team()


def resolve_members(client: Any, size: int) -> tuple[Any, tuple[Any, ...]]:
    """Members of a new team: homes of the client named, or of the active one; without any, threads of this process.

    The hook of `distarray.sharding.team`.
    """
    client = active_client() if client is None else client
    if client is None:
        return None, tuple(range(size))
    members = placement_of(client).members()
    if len(members) < size:
        raise ShardingError(f"a team of {size} members was asked for; {client!r} has {len(members)} workers")
    return client, members[:size]


team.resolve_members = resolve_members
