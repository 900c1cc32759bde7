"""Means and variances of some of the elements: ``where=`` and ``mean=`` of numpy's reductions, and those without nan.

Compositions of sums; what concerns all elements is one monoid (`distarray.ops.reductions`) and does not come here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from distarray.arguments import normalize_axes
from distarray.array.array import DistArray
from distarray.composed.ufunc_reductions import mask_of, mask_over, reduce
from distarray.dtypes import as_dtype
from distarray.ops import elementwise, reductions
from distarray.types import DType, DTypeLike


def not_nan(x: DistArray, where: Any) -> Any:
    """Return which elements count: those that `where` says (None: all) and that are not nan."""
    numbers = elementwise.logical_not(elementwise.isnan(x))
    return numbers if where is None else elementwise.logical_and(numbers, mask_of(where))


def _dtypes(x: DistArray, dtype: DTypeLike) -> tuple[DType, DType]:
    """Return the dtype of the result, and that in which it is computed: half floats in single."""
    result = as_dtype(dtype) if dtype is not None else np.dtype(np.float64) if x.dtype.kind in "biu" else x.dtype
    return result, np.dtype(np.float32) if result == np.float16 else result


def _count(x: DistArray, axis: Any, keepdims: bool, where: Any) -> Any:
    """Return how many elements count for each result: a number, or an array if a mask decides."""
    if where is None:
        return int(np.prod([x.shape[a] for a in normalize_axes(axis, x.ndim)], dtype=np.intp))
    return reductions.sum(mask_over(x, where), axis, keepdims=keepdims)


def masked_mean(x: DistArray, axis: Any, dtype: DTypeLike, keepdims: bool, where: Any) -> Any:
    """Return the mean of the elements that count."""
    result, work = _dtypes(x, dtype)
    total = reduce(np.add, x, axis, None if work.kind == "m" else work, keepdims=keepdims, where=where)
    return elementwise.divide(total, _count(x, axis, keepdims, where)).astype(result, copy=False)


def masked_variance(
    x: DistArray,
    axis: Any,
    dtype: DTypeLike,
    ddof: float,
    keepdims: bool,
    where: Any = None,
    mean: Any = None,
    *,
    is_nan_of_few: bool = False,
) -> Any:
    """Return the variance of the elements that count, in two passes: the mean first.

    Parameters
    ----------
    ddof
        What is taken off the count for the divisor, which is at least 0.
    mean
        About what, if that is known already; it has kept the axes.
    is_nan_of_few
        Whether the result is nan where the divisor is 0: numpy's rule for what passes over nan.
    """
    result, work = _dtypes(x, dtype)
    if x.dtype == np.float16 and work.kind in "fc":
        x = x.astype(work, copy=False)
    if mean is None:
        total = reduce(np.add, x, axis, work, keepdims=True, where=True if where is None else where)
        mean = elementwise.divide(total, _count(x, axis, True, where)).astype(work, copy=False)
    away = elementwise.subtract(x, mean)
    if away.dtype.kind == "c":
        square = elementwise.add(elementwise.square(away.real), elementwise.square(away.imag))
        result = result.type(0).real.dtype if dtype is None else result
    else:
        square = elementwise.square(away)
    spread = reduce(
        np.add, square, axis, None if dtype is None else work, keepdims=keepdims, where=True if where is None else where
    )
    count = _count(x, axis, keepdims, where)
    left = max(count - ddof, 0) if where is None else elementwise.maximum(elementwise.subtract(count, ddof), 0)
    if is_nan_of_few:
        left = elementwise.where(elementwise.greater(left, 0), left, np.nan)
    return elementwise.divide(spread, left).astype(result, copy=False)
