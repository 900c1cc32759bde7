"""Blocks of a cluster that arrive by name: in a pickle, in a task, in another process.

A pickle carries the keys of blocks that workers hold, and which cluster that is. Where it arrives, a client of the same
scheduler reads them: the one that they were pickled with if it is here, else another one of this process; inside a task
of a worker, the worker's own. Where there is none, reading says so. As with distributed's Futures the keys keep nothing
alive while they travel: somebody has to hold the array until what reads it has begun.

Nothing here imports distributed, or asyncio, when it is loaded: where they were not imported there is no client.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from distarray.errors import UnreachableBlocksError
from distarray.expr.expr import BlockName, Environment, LazyBlocks, Stored
from distarray.kernels.inside import is_inside_task
from distarray.lazy import loaded
from distarray.runtime.attached import attach, read, thread_state, waiting_for
from distarray.runtime.connections import await_start
from distarray.runtime.members import executor_for
from distarray.sharding.mesh import Mesh
from distarray.sharding.sharding import Sharding


class ClusterName(NamedTuple):
    """A ClusterName is a cluster as pickles name it, and the client that the array had."""

    scheduler: str
    client: str
    address: str


def name_of(client: Any) -> ClusterName | None:
    """Return the cluster of a client; None of what is no client (any more)."""
    scheduler = getattr(client, "_scheduler_identity", {}).get("id")
    return None if scheduler is None else ClusterName(scheduler, client.id, client.scheduler.address)


def client_named(name: ClusterName) -> Any:
    """Return a running, synchronous client of a cluster: the one named, else any of this process, else the worker's.

    Raises
    ------
    UnreachableBlocksError
        If there is none.
    """
    distributed = loaded("distributed.client")
    found = [] if distributed is None else [c for c in list(distributed.Client._instances) if _is_of(c, name)]
    if not found and distributed is not None and getattr(thread_state(), "key", None) is not None:
        with suppress(ValueError):  # no worker runs this thread
            worker_client = sys.modules["distributed.worker"].get_client()
            await_start(worker_client)  # another thread of the worker may have just made it
            found = [worker_client] if _is_of(worker_client, name) else []
    if not found:
        raise UnreachableBlocksError(
            f"this array lives on the Dask cluster at {name.address}, and this process has no (synchronous) client of "
            f"it; open one with distributed.Client({name.address!r}) before the array is used, or send np.asarray(x)"
        )
    active = distributed._get_global_client() if distributed is not None else None
    return min(found, key=lambda c: (c.id != name.client, c is not active, c.id))


def _is_of(client: Any, name: ClusterName) -> bool:
    here = name_of(client) if client.status == "running" and not client.asynchronous else None
    return here is not None and here.scheduler == name.scheduler


def in_event_loop() -> bool:
    """Return whether this thread is the event loop of a synchronous client."""
    distributed = loaded("distributed.client")
    clients = [] if distributed is None else list(distributed.Client._instances)
    return any(c.asynchronous and not c._asynchronous for c in clients)


def client_of_team(name: ClusterName) -> Any:
    """Return the client of a team that arrived; None inside a task, where nothing is distributed."""
    return None if is_inside_task() else client_named(name)


# ------------------------------------------------------------------------------------------- what arrays stand on


def environment_here(env: Environment) -> Environment:
    """Return the environment of an array that arrived with this one: none inside a task, else a team with a client
    here.
    """
    if env.team is None:
        return env
    if is_inside_task():
        return Environment(None, env.device)
    return Environment(env.team.settled(), env.device)


def undistributed(sharding: Sharding) -> Sharding:
    """Return the same tiles without a team: waves of one member."""
    mesh, numbers = sharding.mesh, count(1)
    axes = tuple([tuple([f"%{next(numbers)}" for _ in names]) for names in sharding.axes])
    sizes = [mesh.sizes[mesh.axis_position(name)] for names in sharding.axes for name in names]
    waves = Mesh(tuple([name for names in axes for name in names]), tuple(sizes))
    return Sharding(waves, axes, (), sharding.bounds, sharding.layout)


def settle_here(memo: Stored, arrived: Environment, here: Environment) -> None:
    """Let what an array stands on refer to blocks that can be read from here: once, for all arrays of a pickle."""
    if type(memo.blocks) is list and any(type(block) is BlockName for block in memo.blocks):
        team = arrived.team
        name = None if team is None else team.cluster
        if name is None:
            raise UnreachableBlocksError(
                "this array was pickled without its Dask client, which was closed: what it stood on is lost"
            )
        if here.team is None:
            memo.blocks = ArrivedBlocks(name, memo.blocks)
        else:
            keys = [block.key for block in memo.blocks if type(block) is BlockName]
            futures = iter(executor_for(here).attach(keys))
            memo.blocks = [next(futures) if type(block) is BlockName else block for block in memo.blocks]
    if here.team is None and arrived.team is not None:
        memo.sharding = undistributed(memo.sharding)
    # The arrays of one pickle share it, and the cluster may hold it for others: never overwritten.
    memo.exported = True
    memo.share()


def _read(future: Any, key: Any) -> Any:
    """Return a block, given the Future of what is kept; a task takes it out of a bundle where that is."""
    from distarray.kernels.tasks import project  # late, as below: whoever imports the package has no cluster yet
    from distarray.lower.bundling import bundle_of

    place = bundle_of(key)
    block = read(future if place is None else future.client.submit(project, place[1], future, key=key))
    if isinstance(block, np.ndarray):
        block = block.view()  # a worker in this process has the same memory
        block.flags.writeable = False
    return block


class ArrivedBlocks(LazyBlocks):
    """ArrivedBlocks are blocks that are read from a cluster into this process, each when it is first asked for.

    Parameters
    ----------
    cluster
        Where they are.
    blocks
        `BlockName` of each; or the block, if it travelled or has been read.
    """

    def __init__(self, cluster: ClusterName, blocks: Sequence[Any]) -> None:
        self._cluster = cluster
        self._blocks = list(blocks)
        #: Of those that are to be read: the Future, and a lock that whoever reads it has.
        self._futures: dict[int, tuple[Any, threading.Lock]] | None = None
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._blocks)

    @property
    def present(self) -> Sequence[Any]:
        """Return what has been read, and names of the rest."""
        return self._blocks

    def __getitem__(self, number: Any) -> Any:  # an integer, or a slice
        if isinstance(number, slice):
            return [self[i] for i in range(len(self))[number]]
        block = self._blocks[number]
        return block if type(block) is not BlockName else self._arrive(range(len(self))[number])

    def _arrive(self, number: int) -> Any:
        name = self._blocks[number]
        found = self._future(number) if type(name) is BlockName else None
        if found is not None:
            future, reading = found
            with waiting_for(future, in_part=future.key != name.key), reading:
                if type(self._blocks[number]) is BlockName:
                    self._blocks[number] = _read(future, name.key)
                    with self._lock:
                        assert self._futures is not None
                        del self._futures[number]
        return self._blocks[number]

    def _future(self, number: int) -> tuple[Any, threading.Lock] | None:
        """Return the Future and the lock of a block; None if it was read meanwhile."""
        from distarray.lower.bundling import key_behind

        with self._lock:
            if self._futures is None:
                # All of them: what is read later must be there then.
                names = {i: b.key for i, b in enumerate(self._blocks) if type(b) is BlockName}
                held = list(dict.fromkeys(map(key_behind, names.values())))
                futures = dict(zip(held, attach(client_named(self._cluster), held), strict=True))
                self._futures = {i: (futures[key_behind(key)], threading.Lock()) for i, key in names.items()}
            return self._futures.get(number)

    def __reduce__(self) -> tuple[Any, ...]:
        return ArrivedBlocks, (self._cluster, self._blocks)
