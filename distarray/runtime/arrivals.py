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
import weakref
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from itertools import count
from typing import Any, NamedTuple, overload

import numpy as np

from distarray.errors import BlocksLostError, UnreachableBlocksError
from distarray.expr.expr import BlockName, Environment, Stored
from distarray.kernels.inside import is_inside_task
from distarray.sharding.mesh import Mesh
from distarray.sharding.sharding import Sharding

__all__ = [
    "ArrivedBlocks",
    "ClusterName",
    "attach",
    "client_named",
    "client_of_team",
    "environment_here",
    "gathered",
    "name_of",
    "not_lost",
    "seceded",
    "settle_here",
    "undistributed",
]

#: Between looks at whether the scheduler still knows blocks that are waited for.
_LOOK_SECONDS = 0.25
#: How often blocks are asked for while workers are being lost.
_ATTEMPTS = 12
#: States of a task in the scheduler from which it will not be computed for who asks for its result only now.
_GONE = frozenset({None, "released", "forgotten"})

#: Futures of keys that another client, or nobody, may hold.
_attached: weakref.WeakSet[Any] = weakref.WeakSet()


class ClusterName(NamedTuple):
    """A cluster as pickles name it, and the client that the array had."""

    scheduler: str
    client: str
    address: str


def name_of(client: Any) -> ClusterName | None:
    """The cluster of a client; None of what is no client (any more)."""
    scheduler = getattr(client, "_scheduler_identity", {}).get("id")
    return None if scheduler is None else ClusterName(scheduler, client.id, client.scheduler.address)


def client_named(name: ClusterName) -> Any:
    """A running, synchronous client of a cluster: the one named, else any of this process, else the worker's.

    Raises
    ------
    UnreachableBlocksError
        If there is none.
    """
    distributed = sys.modules.get("distributed.client")
    found = [] if distributed is None else [c for c in list(distributed.Client._instances) if _is_of(c, name)]
    if not found and distributed is not None and getattr(_thread_state(), "key", None) is not None:
        with suppress(ValueError):  # no worker runs this thread
            worker_client = sys.modules["distributed.worker"].get_client()
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


def _thread_state() -> Any:
    return sys.modules["distributed.utils"].thread_state


def client_of_team(name: ClusterName) -> Any:
    """The client of a team that arrived; None inside a task, where nothing is distributed."""
    return None if is_inside_task() else client_named(name)


# ------------------------------------------------------------------------------------------- what arrays stand on


def environment_here(env: Environment) -> Environment:
    """The environment of an array that arrived with this one: none inside a task, else a team with a client here."""
    if env.team is None:
        return env
    if is_inside_task():
        return Environment(None, env.device)
    return Environment(env.team.settled(), env.device)


def undistributed(sharding: Sharding) -> Sharding:
    """The same tiles without a team: waves of one member."""
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
            from distarray.runtime.evaluate import executor_for

            keys = [block.key for block in memo.blocks if type(block) is BlockName]
            futures = iter(executor_for(here).attach(keys))
            memo.blocks = [next(futures) if type(block) is BlockName else block for block in memo.blocks]
    if here.team is None and arrived.team is not None:
        memo.sharding = undistributed(memo.sharding)
    # The arrays of one pickle share it, and the cluster may hold it for others: never overwritten.
    memo.exported = True
    memo.share()


class ArrivedBlocks(Sequence[Any]):
    """Blocks that are read from a cluster into this process, each when it is first asked for.

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
        self._futures: dict[int, Any] | None = None
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._blocks)

    @property
    def present(self) -> Sequence[Any]:
        """What has been read, and names of the rest."""
        return self._blocks

    @overload
    def __getitem__(self, number: int) -> Any: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[Any]: ...
    def __getitem__(self, number: int | slice) -> Any:
        if isinstance(number, slice):
            return [self[i] for i in range(len(self))[number]]
        block = self._blocks[number]
        return block if type(block) is not BlockName else self._arrive(range(len(self))[number])

    def _arrive(self, number: int) -> Any:
        with self._lock:
            block = self._blocks[number]
            if type(block) is not BlockName:
                return block
            if self._futures is None:
                # All of them: what is read later must be there then.
                names = {i: b.key for i, b in enumerate(self._blocks) if type(b) is BlockName}
                futures = attach(client_named(self._cluster), list(names.values()))
                self._futures = dict(zip(names, futures))
            block = _read(self._futures[number])
            if isinstance(block, np.ndarray):
                block = block.view()  # a worker in this process has the same memory
                block.flags.writeable = False
            self._blocks[number] = block
            del self._futures[number]
            return block

    def __reduce__(self) -> tuple[Any, ...]:
        return ArrivedBlocks, (self._cluster, self._blocks)


# ------------------------------------------------------------------------------------------------------- Futures


def attach(client: Any, keys: Sequence[Any]) -> list[Any]:
    """Futures of keys that the scheduler of a client is to know; asks and waits for nothing."""
    future = sys.modules["distributed.client"].Future
    unknown = [key for key in keys if key not in client.futures]
    futures = [future(key, client) for key in keys]
    if unknown:
        client._send_to_scheduler({"op": "client-desires-keys", "keys": unknown, "client": client.id})
        _attached.update(f for f in futures if f.status == "pending")
    return futures


async def not_lost(client: Any, futures: Sequence[Any]) -> None:
    """Wait for those of the Futures that were attached, as long as the scheduler means to have their results.

    Raises
    ------
    BlocksLostError
        If it does not: nobody held them between pickling and reading.
    """
    import asyncio  # takes a tenth of the time of `import distarray`, and is there where there are Futures

    waiting = [f for f in futures if f.status == "pending" and f in _attached] if _attached else []
    while waiting:
        states = await client.scheduler.get_task_status(keys=[f.key for f in waiting])
        gone = [f.key for f in waiting if f.status == "pending" and states[f.key] in _GONE]
        if gone:
            raise BlocksLostError(
                f"block {gone[0]!r} is not on the cluster any more: an array that travels must be held, by x or by "
                "x.persist(), until what reads it has begun"
            )
        waits = [asyncio.ensure_future(f._state.wait()) for f in waiting]
        await asyncio.wait(waits, timeout=_LOOK_SECONDS)
        for wait in waits:
            wait.cancel()
        waiting = [f for f in waiting if f.status == "pending"]


def _read(future: Any) -> Any:
    """The result of an attached Future in this process; a task that has to wait for it gives up its thread."""
    client, sync = future.client, sys.modules["distributed.utils"].sync
    (state,) = sync(client.loop, client.scheduler.get_task_status, keys=[future.key]).values()
    with nullcontext() if state in _GONE | {"memory", "erred"} else seceded():
        return sync(client.loop, _gathered, client, future)


async def _gathered(client: Any, future: Any) -> Any:
    async def settle(futures: Sequence[Any]) -> None:
        await not_lost(client, [future])
        await future._state.wait()
        if future.status == "error":
            raise future._state.exception.with_traceback(future._state.traceback)
        if future.status == "cancelled":
            raise BlocksLostError(
                f"block {future.key!r} is lost ({future._state.exception}): the workers that held it were lost, or the "
                "cluster was restarted"
            )

    return (await gathered(client, [future], settle))[future.key]


async def gathered(
    client: Any, futures: Sequence[Any], settle: Callable[[Sequence[Any]], Awaitable[None]]
) -> dict[Any, Any]:
    """Results by key, wherever they are: asked of the workers if the client may, else of the scheduler.

    Not ``client._gather``: where a result is lost while it is waited for, that leaves a cycle which holds the Futures,
    and what it has gathered, until Python collects garbage.

    Parameters
    ----------
    settle
        Waits until the results are there, and raises if they will not be.
    """
    by_key = {future.key: future for future in futures}
    found: dict[Any, Any] = {}
    for _ in range(_ATTEMPTS):
        await settle([future for key, future in by_key.items() if key not in found])
        rest = [key for key in by_key if key not in found]
        if client.direct_to_workers:
            who_has = await client.scheduler.who_has(keys=rest)
            found |= (await sys.modules["distributed.utils_comm"].gather_from_workers(who_has, rpc=client.rpc))[0]
            rest = [key for key in rest if key not in found]
        if not rest:
            return found
        response = await client.scheduler.gather(keys=rest)
        if response["status"] == "OK":
            found |= response["data"]
            return found
        for key in response["keys"]:  # lost just now: the scheduler says when they are there again
            client._send_to_scheduler({"op": "report-key", "key": key})
            by_key[key]._state.reset()
    raise BlocksLostError(f"block {rest[0]!r} could not be brought here from the workers that hold it")


@contextmanager
def seceded() -> Iterator[None]:
    """In a task of a worker: leave its thread to other tasks, one of which may be what is waited for."""
    if getattr(_thread_state(), "key", None) is None:
        yield
        return
    is_free = False
    with suppress(KeyError, ValueError, AttributeError):  # not a thread of a pool, or no longer
        sys.modules["distributed.worker"].secede()
        is_free = True
    try:
        yield
    finally:
        if is_free:
            sys.modules["distributed.threadpoolexecutor"].rejoin()
