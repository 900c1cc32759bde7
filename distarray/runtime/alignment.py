"""Arrays that dask reads, from disk or from another worker, at addresses at which their elements can be used.

Dask reads all frames of a value into one buffer, and an array lies in it after a header of any length. NumPy computes
with such an array by way of small buffers, and a product of matrices copies all of it, each time: as much memory again,
which nobody counted. So workers align arrays when they are read. What comes from disk by itself is moved to where its
header was, in place; of other messages only what is small is copied, since both are there for a moment.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from distributed.protocol.serialize import dask_deserialize

from distarray.kernels.buffers import POOL
from distarray.runtime.wire import SMALL_PARTS

#: Bytes; what the system's allocator gives.
ALIGNMENT = 16


def align_reads(worker: Any) -> None:
    """Have the arrays aligned that a worker reads."""
    global _read
    reads = dask_deserialize.dispatch(np.ndarray)
    if reads is not _read_aligned:
        _read = reads
        dask_deserialize.register(np.ndarray, _read_aligned)
    if (store := _store_of(worker)) is not None and not isinstance(store.load, AlignedLoad):
        store.load = AlignedLoad(store.load)


def read_as_dask(worker: Any) -> None:
    """Have arrays read as dask does it."""
    if dask_deserialize.dispatch(np.ndarray) is _read_aligned:
        dask_deserialize.register(np.ndarray, _read)
    if (store := _store_of(worker)) is not None and isinstance(store.load, AlignedLoad):
        store.load = store.load.load


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
