"""Arrays that dask reads, from disk or from another worker, at addresses at which their elements can be used.

Dask reads all frames of a value into one buffer, and an array lies in it after a header of any length. NumPy computes
with such arrays by way of buffers, and a product of matrices copies all of one, each time: as much memory again as it
has, which nobody counted. So workers copy it once, when it is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from distributed.protocol.serialize import dask_deserialize

__all__ = ["align_reads", "aligned", "read_as_dask"]


def aligned(x: Any) -> Any:
    """Return an array that lies where its elements can be used: itself if it does, else a copy in the same order."""
    if x.flags.aligned or 0 in x.strides:  # a broadcast one would be larger
        return x
    found = x.copy(order="K")
    found.flags.writeable = x.flags.writeable
    return found


def align_reads() -> None:
    """Have all arrays aligned that dask reads in this process."""
    global _read
    reads = dask_deserialize.dispatch(np.ndarray)
    if reads is not _read_aligned:
        _read = reads
        dask_deserialize.register(np.ndarray, _read_aligned)


def read_as_dask() -> None:
    """Have arrays read as dask does it."""
    if dask_deserialize.dispatch(np.ndarray) is _read_aligned:
        dask_deserialize.register(np.ndarray, _read)


#: What dask reads them with.
_read: Any = None


def _read_aligned(header: Mapping[str, Any], frames: Sequence[Any]) -> Any:
    return aligned(_read(header, frames))
