"""Futures of keys that another client, or nobody, may hold, and results that are brought here from where they are.

Nothing here imports distributed, or asyncio, when it is loaded: where they were not imported there is no client.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, TypeAlias

from distarray.errors import BlocksLostError, ClusterGoneError
from distarray.forks import free_in_child

#: Between looks at whether the scheduler still knows blocks that are waited for.
_LOOK_SECONDS = 0.25
#: How often blocks are asked for while workers are being lost.
_ATTEMPTS = 12
#: States of a task in the scheduler from which it will not be computed for who asks for its result only now.
_GONE = frozenset({None, "released", "forgotten"})

#: What else may have happened to a block that is lost with workers.
_MAYBE = (
    " (a worker whose memory is full is ended by its nanny, whose log says so), or it is that of an array that came in "
    "a pickle, which nobody held until it was read"
)

#: Is called with the Future of a task that failed, before the error of that is raised.
Blame: TypeAlias = Callable[[Any], Awaitable[None]]
#: Futures of keys that another client, or nobody, may hold.
_attached: weakref.WeakSet[Any] = weakref.WeakSet()
_attaching = free_in_child(threading.Lock())


def thread_state() -> Any:
    """Return what distributed knows of this thread: of one that runs a task its key and worker."""
    return sys.modules["distributed.utils"].thread_state


def attach(client: Any, keys: Sequence[Any]) -> list[Any]:
    """Return futures of keys that the scheduler of a client is to know; asks and waits for nothing."""
    future = sys.modules["distributed.client"].Future
    with _attaching:
        unknown = {key for key in keys if key not in client.futures}
        futures = [future(key, client) for key in keys]
        if unknown:
            client._send_to_scheduler({"op": "client-desires-keys", "keys": list(unknown), "client": client.id})
        if pending := [f for f in futures if f.status == "pending"]:
            # A key that was attached before, by another task of this worker, is known, and may be gone as well.
            states = {id(f._state) for f in _attached}
            _attached.update([f for f in pending if f.key in unknown or id(f._state) in states])
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
                "x.persist(), and not be written to, until what reads it has begun"
            )
        waits = [asyncio.ensure_future(f._state.wait()) for f in waiting]
        await asyncio.wait(waits, timeout=_LOOK_SECONDS)
        for wait in waits:
            wait.cancel()
        waiting = [f for f in waiting if f.status == "pending"]


def _another(error: BaseException) -> BaseException:
    """Return an exception that equals `error`, with a traceback of its own.

    The client holds the error of a task as long as a Future of the task lives. If that very object were raised, its
    traceback would hold the frames that it came through, and with them these Futures: the keys would stay for good.
    """
    kind = type(error)
    another = None
    with suppress(Exception):
        # Not `copy.copy`: distributed has tblib register a reduction of its own for every class of exceptions.
        reduced: Any = error.__reduce__()
        another = reduced[0](*reduced[1])
    if type(another) is not kind or str(another) != str(error):
        # The class of a user may take other arguments than those that it hands on.
        another = kind.__new__(kind, *error.args)
    another.__dict__.update(error.__dict__)
    if notes := getattr(error, "__notes__", None):
        another.__notes__ = list(notes)
    another.__cause__, another.__suppress_context__ = error.__cause__, error.__suppress_context__
    return another


def _lost(future: Any) -> BlocksLostError:
    """Return the error for a block that is no more."""
    why = getattr(future._state.exception, "reason", "unknown")
    if why == "scheduler-connection-lost":
        return ClusterGoneError(
            f"block {future.key!r} is lost: its client lost the connection to the scheduler, and with it all blocks "
            "that its workers held; compute it again from its sources"
        )
    said = {
        "scheduler-restart": "the cluster was restarted, which empties all workers",
        "unknown": "every worker that held a copy was lost at the same time",
        # dask's words for tasks and results whose last copy, or the last of what they are made of, went with a worker.
        "lost dependencies": "workers were lost that held all there was of what it is made of" + _MAYBE,
        "already forgotten": "workers were lost that held all there was of it, or of what it is made of" + _MAYBE,
    }
    return BlocksLostError(
        f"block {future.key!r} is lost: {said.get(why, f'it was cancelled ({why})')}; compute it again from its sources"
    )


async def settled(client: Any, futures: Sequence[Any], blame: Blame | None = None) -> None:
    """Wait until the results of Futures are there.

    Raises
    ------
    Exception
        What a task raised, of its own class.
    BlocksLostError
        If there will be no result, since workers were lost.
    """
    await not_lost(client, futures)
    for future in futures:
        await future._state.wait()
        if future.status == "error":
            if blame is not None:
                await blame(future)
            raise _another(future._state.exception).with_traceback(future._state.traceback)
        if future.status == "cancelled":
            raise _lost(future)


async def gathered(client: Any, futures: Sequence[Any], blame: Blame | None = None) -> dict[Any, Any]:
    """Return results by key, wherever they are: asked of the workers if the client may, else of the scheduler.

    Not ``client._gather``: where a result is lost while it is waited for, that leaves a cycle which holds the Futures,
    and what it has gathered, until Python collects garbage.

    Parameters
    ----------
    blame
        See `settled`, as which it raises.
    """
    by_key = {future.key: future for future in futures}
    found: dict[Any, Any] = {}
    for _ in range(_ATTEMPTS):
        await settled(client, [future for key, future in by_key.items() if key not in found], blame)
        rest = [key for key in by_key if key not in found]
        held = await client.scheduler.who_has(keys=rest)
        workers = sorted({address for places in held.values() for address in places})

        async def are_alive(workers: Sequence[str] = workers) -> bool:
            return len(await client.scheduler.ncores(workers=workers)) == len(workers)

        if client.direct_to_workers:
            gather = sys.modules["distributed.utils_comm"].gather_from_workers
            if (read := await while_alive(gather(held, rpc=client.rpc), are_alive)) is None:
                continue
            found |= read[0]
            rest = [key for key in rest if key not in found]
        if not rest:
            return found
        if (response := await while_alive(client.scheduler.gather(keys=rest), are_alive)) is None:
            continue
        if response["status"] == "OK":
            found |= response["data"]
            return found
        for key in response["keys"]:  # lost just now: the scheduler says when they are there again
            client._send_to_scheduler({"op": "report-key", "key": key})
            by_key[key]._state.reset()
    raise BlocksLostError(f"block {rest[0]!r} could not be brought here from the workers that hold it")


async def while_alive(reading: Awaitable[Any], are_alive: Callable[[], Awaitable[bool]]) -> Any:
    """Return what reading results from workers gives; None if one of these is lost meanwhile, which distributed would
    try to reach for half a minute.
    """
    import asyncio

    waiting = asyncio.ensure_future(reading)
    try:
        while not (await asyncio.wait((waiting,), timeout=_LOOK_SECONDS))[0]:
            if not await are_alive():
                return None
        return waiting.result()
    finally:
        waiting.cancel()


@contextmanager
def seceded() -> Iterator[None]:
    """Leave the thread, in a task of a worker, to other tasks, one of which may be what is waited for."""
    if getattr(thread_state(), "key", None) is None:
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


@contextmanager
def waiting_for(future: Any, *, in_part: bool) -> Iterator[None]:
    """Leave the thread, in a task of a worker, to other tasks if an attached Future is to be waited for.

    A lock that other tasks wait for is to be taken inside and given back there: they keep their threads, of which the
    task needs one at the end, and before that what it waits for.

    Parameters
    ----------
    in_part
        Whether a task of its own is to take out a part of it, which is waited for then.
    """
    client, sync = future.client, sys.modules["distributed.utils"].sync
    (state,) = sync(client.loop, client.scheduler.get_task_status, keys=[future.key]).values()
    with seceded() if in_part or state not in _GONE | {"memory", "erred"} else nullcontext():
        yield


def read(future: Any) -> Any:
    """Return the result of an attached Future in this process; who may have to wait for it is `waiting_for` it."""
    return sys.modules["distributed.utils"].sync(future.client.loop, _gathered, future.client, future)


async def _gathered(client: Any, future: Any) -> Any:
    return (await gathered(client, [future]))[future.key]
