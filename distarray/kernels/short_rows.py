"""Reductions of blocks whose last axis is short, by calls of numpy's that run along another one.

numpy's inner loop runs along the last axis; where that has few elements, most of the time goes into starting it. The
bits are numpy's all the same: what is added to what follows from the number of elements alone.
"""

from __future__ import annotations

import math

import numpy as np

from distarray.kernels.buffers import POOL, SMALLEST
from distarray.kernels.loans import copied
from distarray.kernels.namespaces import loop_dtype
from distarray.types import DType, HostArray

#: Rows of fewer elements are short.
SHORT = 32
#: Where elements are compared, long rows gain too (three times at 100 elements); of a sum this would change the bits.
SHORT_TO_COMPARE = 1024
#: Rows of fewer real numbers are added up element by element of all rows.
FEW = 16
#: Real numbers that numpy's pairwise summation adds up in pairs; fewer are added one after the other.
SIDE_BY_SIDE = 8


def reduced(ufunc: np.ufunc, block: HostArray, axes: tuple[int, ...], dtype: DType, short: int = SHORT) -> HostArray:
    """Return ``ufunc.reduce`` of a block with axes kept, with long inner loops where the last axis is `short`."""
    last = block.shape[-1] if block.ndim else 1
    if block.dtype == dtype and last < short and block.size >= 16 * short and block.flags.c_contiguous:
        if axes == (block.ndim - 1,) and is_few(ufunc, last, dtype):
            return added_up(ufunc, block, axes[0])
        if axes == tuple(range(block.ndim - 1)):
            # Several rows side by side as one long row, then these rows.
            rows = block.reshape(-1, last)
            n_beside = 2 * short // last
            whole = len(rows) - len(rows) % n_beside
            total = ufunc.reduce(rows[:whole].reshape(-1, n_beside * last), axis=0).reshape(n_beside, last)
            total = ufunc.reduce(np.concatenate([total, rows[whole:]]), axis=0)
            return np.asarray(total).reshape((1,) * (block.ndim - 1) + (last,))
    out = _memory_for(block, axes, dtype)
    return np.asarray(ufunc.reduce(block, axis=axes, dtype=loop_dtype(dtype), keepdims=True, out=out))


def is_few(ufunc: np.ufunc, n: int, dtype: DType) -> bool:
    """Return whether `added_up` makes the bits of numpy of `n` elements, faster."""
    if dtype.kind == "c":
        return 2 * n < FEW and ufunc is not np.multiply  # numpy rounds a product of two otherwise than that of many
    return n < FEW and (dtype.kind != "f" or ufunc in _ROUNDING_ALIKE)


#: Functions of floating-point numbers that round two of them as they do when they reduce several.
_ROUNDING_ALIKE = frozenset({np.add, np.multiply, np.maximum, np.minimum, np.fmax, np.fmin})


def added_up(ufunc: np.ufunc, block: HostArray, axis: int) -> HostArray:
    """Return what a ufunc makes of the few elements along an axis, which is kept, by calls for all of the others: bit
    for bit what numpy's ``reduce`` makes of these elements where they lie side by side.
    """
    n, is_inexact = block.shape[axis], block.dtype.kind in "fc"
    first = [np.s_[:]] * axis
    elements = [block[(*first, np.s_[i : i + 1])] for i in range(n)]
    n_paired = SIDE_BY_SIDE // 2 if block.dtype.kind == "c" else SIDE_BY_SIDE
    if ufunc is not np.add or not is_inexact or n < n_paired:
        n_paired = min(n, 2)
    total = copied(elements[0]) if n == 1 else _paired(ufunc, elements[:n_paired])
    for element in elements[n_paired:]:
        ufunc(total, element, out=total)
    if ufunc is np.add and is_inexact:
        ufunc(total, 0, out=total)  # of negative zeros numpy's sum is positive
    return total


def _paired(ufunc: np.ufunc, elements: list[HostArray]) -> HostArray:
    """Return what a ufunc makes of pairs, then of pairs of these, as numpy's pairwise summation does."""
    if len(elements) == 2:
        return np.asarray(ufunc(*elements, out=POOL.take(elements[0].shape, elements[0].dtype)))
    half = len(elements) // 2
    total = _paired(ufunc, elements[:half])
    return np.asarray(ufunc(total, _paired(ufunc, elements[half:]), out=total))


def _memory_for(block: HostArray, axes: tuple[int, ...], dtype: DType) -> HostArray | None:
    """Return memory for what numpy would reduce a block to in new pages; None where it is small, or where numpy would
    choose another order of loops.
    """
    kept = [1 if axis in axes else n for axis, n in enumerate(block.shape)]
    if math.prod(kept) * dtype.itemsize < SMALLEST or not block.flags.c_contiguous or dtype.hasobject:
        return None
    return POOL.take(kept, dtype)
