"""Arrays that dask reads, from disk or from another worker, at addresses at which their elements can be used.

Dask reads all frames of a value into one buffer, and an array lies in it after a header of any length. NumPy computes
with such an array by way of small buffers, and a product of matrices copies all of it, each time: as much memory again,
which nobody counted. So workers align arrays when they are read. What comes from disk by itself is moved to where its
header was, in place. What they send of their own is read into buffers that have nothing else; of other messages only
what is small is copied, since both are there for a moment.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from distributed.protocol import to_serialize
from distributed.protocol.serialize import dask_deserialize

from distarray.kernels.buffers import POOL
from distarray.runtime.wire import SMALL_PARTS

#: Bytes; what the system's allocator gives.
ALIGNMENT = 16
#: Bytes from which on another frame of a message takes less time than a copy.
APART_NBYTES = 256 * 1024
#: The first array of a message.
_AHEAD = np.zeros(1, np.uint8)


def ahead_of(nbytes: int) -> dict[str, Any]:
    """Return what a message says before its arrays of so many bytes, so that none of them need be aligned.

    Dask reads the first array of a message into one buffer with all that comes before it, and each one behind it into
    a buffer of its own.
    """
    return {"ahead": to_serialize(_AHEAD)} if nbytes >= APART_NBYTES else {}


def align_reads(worker: Any) -> None:
    """Have the arrays aligned that a worker reads, or that others read of it."""
    global _read
    reads = dask_deserialize.dispatch(np.ndarray)
    if reads is not _read_aligned:
        _read = reads
        dask_deserialize.register(np.ndarray, _read_aligned)
    if (store := _store_of(worker)) is not None and not isinstance(store.load, AlignedLoad):
        store.load = AlignedLoad(store.load)
    if not hasattr(get_data := worker.handlers["get_data"], "of_dask"):
        worker.handlers["get_data"] = _sent_apart(get_data, worker.state.tasks)


def read_as_dask(worker: Any) -> None:
    """Have arrays read as dask does it."""
    if dask_deserialize.dispatch(np.ndarray) is _read_aligned:
        dask_deserialize.register(np.ndarray, _read)
    if (store := _store_of(worker)) is not None and isinstance(store.load, AlignedLoad):
        store.load = store.load.load
    worker.handlers["get_data"] = getattr(get_data := worker.handlers["get_data"], "of_dask", get_data)


def _store_of(worker: Any) -> Any:
    """Return where a worker has what is on disk: a ``zict.Func``; None if it has no such store."""
    cache = getattr(worker.data, "slow", None)
    store = getattr(cache, "data", None)
    return store if hasattr(store, "load") else None


#: What dask reads them with.
_read: Any = None


def _read_aligned(header: Mapping[str, Any], frames: Sequence[Any]) -> Any:
    x = _read(header, frames)
    is_small = POOL.memory is None or x.nbytes <= POOL.memory // SMALL_PARTS
    if not is_small or x.flags.aligned or 0 in x.strides:  # a broadcast one would be larger
        return x
    found = x.copy(order="K")
    found.flags.writeable = x.flags.writeable
    return found


class _Ahead:
    """An _Ahead is a connection by which Dask sends values of tasks, with another array ahead of them."""

    def __init__(self, comm: Any, tasks: Mapping[Any, Any]) -> None:
        self._comm = comm
        self._tasks = tasks

    def __getattr__(self, name: str) -> Any:
        return getattr(self._comm, name)

    async def write(self, message: dict[str, Any], **options: Any) -> Any:
        nbytes = sum(self._tasks[key].nbytes or 0 for key in message["data"])
        return await self._comm.write(ahead_of(nbytes) | message, **options)


def _sent_apart(get_data: Callable[..., Any], tasks: Mapping[Any, Any]) -> Callable[..., Any]:
    """Return a worker's handler that sends values of tasks, so that large arrays need not be aligned."""

    @functools.wraps(get_data)
    async def sent(comm: Any, *args: Any, **kwargs: Any) -> Any:
        return await get_data(_Ahead(comm, tasks), *args, **kwargs)

    sent.of_dask = get_data  # type: ignore[attr-defined]
    return sent


class AlignedLoad:
    """An AlignedLoad makes values of the bytes that they have on disk, by another function, and aligns arrays."""

    def __init__(self, load: Any) -> None:
        self.load = load

    def __call__(self, stored: Any) -> Any:
        x = self.load(stored)
        if type(x) is not np.ndarray or x.flags.aligned or not x.flags.forc or type(stored) is not bytearray:
            return x
        buffer = np.frombuffer(stored, np.uint8)
        begin = x.ctypes.data - buffer.ctypes.data
        if not ALIGNMENT < begin == buffer.nbytes - x.nbytes:  # only what dask has read lies before it
            return x  # it was copied already, or decompressed
        moved = x.ctypes.data % ALIGNMENT
        ctypes.memmove(x.ctypes.data - moved, x.ctypes.data, x.nbytes)
        found = np.ndarray(x.shape, x.dtype, stored, begin - moved, x.strides)
        found.flags.writeable = x.flags.writeable
        return found
