"""Masks: where they are true, and the elements there, by positions in memory.

numpy's own indices of several axes look at each element by itself. One axis takes a third of the time, or less where
few are true, and parts of it go to all threads.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from distarray.kernels.buffers import POOL
from distarray.kernels.threads import run_parts, threads_for
from distarray.sharding.cuts import boundaries
from distarray.types import HostArray

#: Elements of a mask below which numpy's own index is as fast.
FEW = 1 << 12
#: Elements that are looked at in one go: positions of a slice stay in cache.
SLICE = 1 << 15


def compressed(block: HostArray, mask: HostArray) -> HostArray:
    """Return ``block[mask]`` in new memory; the mask has the extents of the first axes of the block."""
    if mask.size < FEW or not (block.flags.c_contiguous and mask.flags.c_contiguous):
        return block[mask]
    inner = block.shape[mask.ndim :]
    rows = block.reshape(mask.size, *inner)

    def take(at: HostArray, begin: int, end: int, out: HostArray) -> None:
        rows[begin:end].take(at, axis=0, out=out, mode="clip")

    return _gathered(mask, inner, block.dtype, take)


def where_true(mask: HostArray) -> tuple[HostArray, ...]:
    """Return what ``numpy.nonzero`` does of a mask."""
    if mask.ndim < 2 or mask.size < FEW or not mask.flags.c_contiguous:
        return mask.nonzero()

    def count(at: HostArray, begin: int, end: int, out: HostArray) -> None:
        np.add(at, begin, out=out)

    return tuple(np.unravel_index(_gathered(mask, (), np.dtype(np.intp), count), mask.shape))


def _gathered(
    mask: HostArray, inner: tuple[int, ...], dtype: Any, fill: Callable[[HostArray, int, int, HostArray], None]
) -> HostArray:
    """Return a row for each true element of a mask in C order.

    Parameters
    ----------
    inner, dtype
        Of the rows.
    fill
        Makes the rows of a slice of the flattened mask, given where it is true, its begin and its end.
    """
    flat = mask.reshape(-1)
    edges = [*pairwise(boundaries(mask.size, threads_for(mask.size)))]
    counts = [int(np.count_nonzero(flat[begin:end])) for begin, end in edges]
    out = POOL.take((sum(counts), *inner), dtype)

    def part(begin: int, end: int, to: int) -> None:
        for low in range(begin, end, SLICE):
            high = min(low + SLICE, end)
            at = flat[low:high].nonzero()[0]
            fill(at, low, high, out[to : to + at.size])
            to += at.size

    starts = accumulate(counts, initial=0)
    run_parts([partial(part, *edge, to) for edge, to in zip(edges, starts)])
    return out
