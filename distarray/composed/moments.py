"""Means and variances of some of the elements: ``where=`` and ``mean=`` of numpy's reductions, and those without nan.

Compositions of sums; what concerns all elements is one monoid (`distarray.ops.reductions`) and does not come here.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np

from distarray.arguments import normalize_axes
from distarray.array.array import DistArray
from distarray.composed.ufunc_reductions import dtype_of_out, mask_of, mask_over, reduce, reduced_for
from distarray.dtypes import as_dtype
from distarray.errors import warn_user
from distarray.ops import elementwise, reductions
from distarray.types import DType, DTypeLike


def not_nan(x: DistArray, where: Any) -> Any:
    """Return which elements count: those that `where` says and that are not nan."""
    numbers, mask = elementwise.logical_not(elementwise.isnan(x)), mask_of(where)
    return numbers if mask is None else elementwise.logical_and(numbers, mask)


def _dtypes(x: DistArray, dtype: DTypeLike, passes_nan: bool) -> tuple[DType, DType]:
    """Return the dtype of the result, and that in which it is computed: half floats in single, unless that is said or
    nan is passed over.
    """
    result = as_dtype(dtype) if dtype is not None else np.dtype(np.float64) if x.dtype.kind in "biu" else x.dtype
    if x.dtype.kind in "mM" and dtype is not None:
        result = np.mean(np.ones(1, x.dtype), dtype=result).dtype  # or numpy's error
    is_wider = result == np.float16 and dtype is None and not passes_nan
    return result, np.dtype(np.float32) if is_wider else result


def _count(x: DistArray, axis: Any, keepdims: bool, where: Any) -> Any:
    """Return how many elements count for each result: a number, or an array if a mask decides."""
    if where is None:
        return int(np.prod([x.shape[a] for a in normalize_axes(axis, x.ndim)], dtype=np.intp))
    return reductions.sum(mask_over(x, where), axis, keepdims=keepdims)


def _asked(x: DistArray, dtype: DTypeLike, work: DType) -> DType | None:
    """Return the dtype that numpy asks of a sum, None: as of `x`, or as that of ``out=`` if there is one."""
    is_own = dtype is None and work == x.dtype
    return None if is_own or work.kind == "m" else work


def _total(x: DistArray, axis: Any, dtype: DType | None, keepdims: bool, where: Any, out: Any) -> Any:
    """Return the sum of what counts as ``out=`` holds it, where numpy divides it; as it is if there is none."""
    if out is None:
        return reduce(np.add, x, axis, dtype, keepdims=keepdims, where=where)
    total = reduced_for(out, np.add, x, axis, dtype, keepdims, where=where)
    return total.astype(dtype_of_out(out, total.dtype), copy=False)


def masked_mean(
    x: DistArray,
    axis: Any,
    dtype: DTypeLike,
    keepdims: bool,
    where: Any,
    out: Any,
    *,
    passes_nan: bool = False,
    is_zero: bool = False,
) -> Any:
    """Return the mean of the elements that count; for `out`, `passes_nan` and `is_zero` see `masked_variance`."""
    result, work = _dtypes(x, dtype, passes_nan)
    added = True if where is None or is_zero else where
    total = _total(x, axis, _asked(x, dtype, work), keepdims, added, out)
    count = _count(x, axis, keepdims, where)
    if where is not None:
        count = elementwise.warned(count, "Mean of empty slice", "no count")
    elif count == 0:
        warn_user("Mean of empty slice")
    return _quotient(total, count, total.dtype if out is not None else result, passes_nan)


def _quotient(total: Any, count: Any, dtype: DType, passes_nan: bool) -> Any:
    """Return a quotient as `dtype`; of what passes over nan numpy says nothing where nothing is left to count."""
    with np.errstate(divide="ignore", invalid="ignore") if passes_nan else nullcontext():
        quotient = elementwise.divide(total, count)
    return quotient.astype(dtype, copy=False)


def masked_variance(
    x: DistArray,
    axis: Any,
    dtype: DTypeLike,
    ddof: float,
    keepdims: bool,
    where: Any,
    mean: Any,
    out: Any,
    *,
    passes_nan: bool = False,
    is_zero: bool = False,
) -> Any:
    """Return the variance of the elements that count, in two passes: the mean first.

    Parameters
    ----------
    ddof
        What is taken off the count for the divisor, which is at least 0.
    mean
        About what, if that is known already; it has kept the axes.
    out
        What the caller writes the result into: numpy divides in its dtype, which so is that of the result.
    passes_nan
        As numpy's functions that pass over nan: the result is nan where the divisor is 0, which is all they say of it.
    is_zero
        Whether what does not count is 0, and adds nothing.
    """
    result, work = _dtypes(x, dtype, passes_nan)
    is_known = mean is not None
    if x.dtype == np.float16 and work.kind in "fc" and not passes_nan and (not is_known or dtype is not None):
        x = x.astype(work, copy=False)
    if mean is None:
        total = reduce(np.add, x, axis, work, keepdims=True, where=True if where is None or is_zero else where)
        mean = _quotient(total, _count(x, axis, True, where), work, passes_nan)
    away = elementwise.subtract(x, mean)
    is_complex = away.dtype.kind == "c" and x.dtype.kind in "bc"
    if passes_nan:
        away = away.astype(x.dtype, copy=False)
        square = elementwise.multiply(away, elementwise.conj(away)).real if is_complex else away * away
    elif is_complex:
        square = elementwise.add(elementwise.square(away.real), elementwise.square(away.imag))
    else:
        square = elementwise.square(away)
    if is_complex and dtype is None:
        result = result.type(0).real.dtype
    added = True if where is None else where
    is_cast = dtype is not None or (is_known and x.dtype.kind in "biu")
    spread = _total(square, axis, work if is_cast else None, keepdims, added, out)
    if is_known and dtype is None:
        result = spread.dtype  # that of the mean counts
    count = _count(x, axis, keepdims, where)
    if where is None:
        if count <= ddof:
            warn_user("Degrees of freedom <= 0 for slice")
        left: Any = max(count - ddof, 0)
    else:
        warning = "Degrees of freedom <= 0 for slice" + ("." if passes_nan else "")
        left = elementwise.maximum(elementwise.warned(elementwise.subtract(count, ddof), warning, "no count"), 0)
    if passes_nan:
        left = elementwise.where(elementwise.greater(left, 0), left, np.nan)
    return _quotient(spread, left, spread.dtype if out is not None else result, passes_nan)
