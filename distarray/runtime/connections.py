"""Connections of Dask's parts: what a client can be asked without a word to its scheduler, and streams that hurry."""

from __future__ import annotations

import time
import weakref
from typing import Any

from distarray.errors import ClusterGoneError

#: For which a client is waited for that is being made; as long as Dask tries to connect it by default.
_START_SECONDS = 30
#: Clients that were waited for in vain: one whose start raised keeps the status of one that starts.
_given_up: weakref.WeakSet[Any] = weakref.WeakSet()


def check_synchronous(client: Any) -> None:
    """Raise RuntimeError where a client is asynchronous."""
    if client.asynchronous:
        raise RuntimeError(
            f"{client!r} is asynchronous here (asynchronous=True, or this is the thread of its event loop), but arrays "
            "submit work and wait for it like numpy; use them in a thread (asyncio.to_thread) that has a synchronous "
            "distributed.Client(address), or say team=None for arrays that are not distributed"
        )


def await_start(client: Any) -> None:
    """Wait for a client that another thread is just making: it is the default, or its worker's, before it is connected.

    One that has lost its scheduler, and tries to find it again, is not waited for.
    """
    if client.status in ("newly-created", "connecting"):
        check_synchronous(client)
        end = time.monotonic() + _START_SECONDS
        while is_starting(client):
            if time.monotonic() > end:
                _given_up.add(client)
                return
            time.sleep(0.01)


def is_starting(client: Any) -> bool:
    """Return whether a client is yet to be connected for the first time: nothing hears its scheduler yet."""
    is_new = client.status in ("newly-created", "connecting") and getattr(client, "_handle_report_task", None) is None
    return is_new and client not in _given_up


def is_open(client: Any) -> bool:
    """Return whether a client is connected with its scheduler."""
    # A scheduler that says goodbye leaves the status as it was.
    comm = client.scheduler_comm
    return client.status == "running" and comm is not None and not comm.closed()


def gone(client: Any) -> ClusterGoneError:
    """Return the error for a client that is closed, or has lost its scheduler."""
    why = "is closed" if client is None or client.status in ("closing", "closed") else "has lost its scheduler"
    return ClusterGoneError(
        f"the Dask client {why}, and the blocks that its workers held are lost; on another Client teams are made anew, "
        "and arrays of data that are in this process, or can be made again, go there when they are next used"
    )


def hurry(stream: Any) -> None:
    """Have a stream of distributed send what it has gathered now, and what comes next at once; in its event loop.

    A ``BatchedSend`` waits for 2 to 10 ms between two messages. Whoever asks for one number after the other would wait
    so long at each of the doors on the way.
    """
    stream.next_deadline = None
    if stream.buffer:
        stream.waker.set()
