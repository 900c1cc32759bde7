"""numpy's functions that pass over nan or replace it: reductions, positions of extremes, partial sums and products.

A nan is replaced by what changes nothing, or left out of what counts; extremes are those of ``fmax`` and ``fmin``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from distarray.arguments import NOT_GIVEN, flag, keeps_axes, normalize_axis, shown
from distarray.array.array import DistArray
from distarray.array.out import into
from distarray.composed.blockwise import map_blocks
from distarray.composed.moments import masked_mean, masked_variance, not_nan
from distarray.composed.numpy_signatures import (
    argmax,
    argmin,
    corrected,
    cumprod,
    cumsum,
    mean,
    put_index,
    root,
    variance,
)
from distarray.composed.ufunc_reductions import reduce
from distarray.composed.views import as_distarray, as_number
from distarray.dtypes import as_dtype
from distarray.expr.broadcasting import broadcast_shapes
from distarray.expr.side_by_side import side_by_side
from distarray.ops import elementwise, reductions
from distarray.ops.families import by_numpy, ready_made
from distarray.types import AxesLike, DTypeLike, Shape


def without_nan(a: Any, by: float) -> DistArray:
    """Return `a` with this number in the places of nan."""
    x = as_distarray(a)
    return elementwise.where(elementwise.isnan(x), by, x) if x.dtype.kind in "fc" else x


@by_numpy(np.nansum)
@side_by_side
def nansum(
    x: Any, /, axis: AxesLike = None, dtype: DTypeLike = None, out: Any = None, keepdims: bool = False,
    initial: Any = NOT_GIVEN, where: Any = True,
) -> DistArray:  # fmt: skip
    """Return the sum over `axis` with nan as 0."""
    return reduce(np.add, without_nan(x, 0.0), axis, dtype, out, keepdims, initial, where)


@by_numpy(np.nanprod)
@side_by_side
def nanprod(
    x: Any, /, axis: AxesLike = None, dtype: DTypeLike = None, out: Any = None, keepdims: bool = False,
    initial: Any = NOT_GIVEN, where: Any = True,
) -> DistArray:  # fmt: skip
    """Return the product over `axis` with nan as 1."""
    return reduce(np.multiply, without_nan(x, 1.0), axis, dtype, out, keepdims, initial, where)


@by_numpy(np.nanmax)
@side_by_side
def nanmax(
    x: Any, /, axis: AxesLike = None, out: Any = None, keepdims: bool = False, initial: Any = NOT_GIVEN,
    where: Any = True,
) -> DistArray:  # fmt: skip
    """Return the largest element along `axis` that is not nan; nan where there is none, with a warning."""
    return _extreme(np.fmax, x, axis, out, keepdims, initial, where)


@by_numpy(np.nanmin)
@side_by_side
def nanmin(
    x: Any, /, axis: AxesLike = None, out: Any = None, keepdims: bool = False, initial: Any = NOT_GIVEN,
    where: Any = True,
) -> DistArray:  # fmt: skip
    """Return the smallest element along `axis` that is not nan; nan where there is none, with a warning."""
    return _extreme(np.fmin, x, axis, out, keepdims, initial, where)


def _extreme(ufunc: np.ufunc, x: Any, axis: Any, out: Any, keepdims: Any, initial: Any, where: Any) -> DistArray:
    x = as_distarray(x)
    made = reduce(ufunc, x, axis, None, out, keepdims, initial, where)
    if out is not None or x.dtype.kind not in "fcmM":  # what is written to `out` is not looked at
        return made
    return elementwise.warned(made, "All-NaN slice encountered", "nan")


@ready_made(1, is_boxed=True)
@side_by_side
def nanmean(
    x: Any, /, axis: AxesLike = None, dtype: DTypeLike = None, out: Any = None, keepdims: bool = False, *,
    where: Any = True,
) -> DistArray:  # fmt: skip
    """Return the mean over `axis` of what is not nan."""
    x = as_distarray(x)
    if x.dtype.kind not in "fc":
        return mean(x, axis, dtype, out, keepdims, where=where)
    counted = not_nan(x, where)
    _check_inexact(x, dtype, out)
    made = masked_mean(
        without_nan(x, 0.0), axis, dtype, keeps_axes(keepdims), counted, out, passes_nan=True, is_zero=where is True
    )
    return into(out, made, casting="unsafe")


@ready_made(1, is_boxed=True)
@side_by_side
def nanvar(
    x: Any, /, axis: AxesLike = None, dtype: DTypeLike = None, out: Any = None, ddof: float = 0,
    keepdims: bool = False, *, where: Any = True, mean: Any = NOT_GIVEN, correction: float | None = NOT_GIVEN,
) -> DistArray:  # fmt: skip
    """Return the variance over `axis` of what is not nan; nan where too little is left."""
    x = as_distarray(x)
    _check_inexact(x, dtype, out)
    return into(out, _nanvar(x, axis, dtype, out, ddof, keepdims, where, mean, correction), casting="unsafe")


@ready_made(1, is_boxed=True)
@side_by_side
def nanstd(
    x: Any, /, axis: AxesLike = None, dtype: DTypeLike = None, out: Any = None, ddof: float = 0,
    keepdims: bool = False, *, where: Any = True, mean: Any = NOT_GIVEN, correction: float | None = NOT_GIVEN,
) -> DistArray:  # fmt: skip
    """Return the standard deviation over `axis` of what is not nan; nan where too little is left."""
    x = as_distarray(x)
    _check_inexact(x, dtype, out)
    return into(out, root(_nanvar(x, axis, dtype, out, ddof, keepdims, where, mean, correction), out))


def _check_inexact(x: DistArray, dtype: DTypeLike, out: Any) -> None:
    if x.dtype.kind in "mM":
        np.nanvar(np.ones(1, x.dtype))  # which numpy refuses, whatever the dtype
    if x.dtype.kind not in "fc":
        return
    if dtype is not None and as_dtype(dtype).kind not in "fc":
        raise TypeError(f"If a is inexact, then dtype must be inexact: a has {x.dtype!r}, dtype={shown(dtype)}")
    if hasattr(out, "dtype") and out.dtype.kind not in "fc":
        raise TypeError(f"If a is inexact, then out must be inexact: a has {x.dtype!r} and out {out.dtype!r}")


def _nanvar(
    x: DistArray, axis: Any, dtype: Any, out: Any, ddof: float, keepdims: Any, where: Any, mean: Any, correction: Any
) -> Any:
    less = corrected(ddof, correction)
    if x.dtype.kind not in "fc":
        return variance(x, axis, dtype, out, less, keepdims, where, mean)
    counted = not_nan(x, where)
    about = None if mean is NOT_GIVEN else mean
    plain = without_nan(x, 0.0)
    return masked_variance(
        plain, axis, dtype, less, keeps_axes(keepdims), counted, about, out, passes_nan=True, is_zero=where is True
    )


# -------------------------------------------------------------------------------------------- what is no number


def nan_to_num(x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> DistArray:
    """Return the elements with nan and infinities replaced: by 0, the largest and the smallest number unless said
    otherwise.

    Without `copy` they are replaced in `x` itself, which is returned.

    Raises
    ------
    ValueError
        If `x` is to be changed, and is read-only; or if what is to be there instead does not broadcast to it.
    """
    array = as_distarray(x)
    has_nan = array.dtype.kind in "fc"
    if has_nan:
        nan, posinf, neginf = [_fitting(value, array.shape) for value in (nan, posinf, neginf)]
    if copy is not None:
        flag(copy, "copy")
    made: DistArray = elementwise.nan_to_num(array, nan, posinf, neginf)
    if not copy and array is x:
        if has_nan:
            array[...] = made
        made = x
    elif not has_nan:
        made = array.astype(array.dtype)  # which lies as numpy's copy does
    return as_number(made)


def _fitting(value: Any, shape: Shape) -> Any:
    """Return what is written to an array of a shape, without axes of one before those that the array has."""
    own = np.shape(value)
    n_more = max(len(own) - len(shape), 0)
    last = own[n_more:]
    if own[:n_more] != (1,) * n_more or broadcast_shapes(last, shape) != shape:
        raise ValueError(f"could not broadcast input array from shape {own} into shape {shape}")
    return value if last == own else np.reshape(value, last)


@by_numpy(np.nanargmax)
def nanargmax(a: Any, axis: int | None = None, out: Any = None, *, keepdims: bool = False) -> DistArray:
    """Return the index of the first largest element along `axis` that is not nan.

    Raises
    ------
    ValueError
        If there is nothing but nan somewhere along `axis`.
    """
    return _position(argmax, a, -math.inf, axis, out, bool(keepdims))


@by_numpy(np.nanargmin)
def nanargmin(a: Any, axis: int | None = None, out: Any = None, *, keepdims: bool = False) -> DistArray:
    """Return the index of the first smallest element along `axis` that is not nan.

    Raises
    ------
    ValueError
        If there is nothing but nan somewhere along `axis`.
    """
    return _position(argmin, a, math.inf, axis, out, bool(keepdims))


def _position(
    find: Callable[..., DistArray], a: Any, neutral: float, axis: int | None, out: Any, keepdims: bool
) -> DistArray:
    """Return what `find` finds of `a` with `neutral` in the places of nan, which must leave something along `axis`."""
    x = as_distarray(a)
    if axis is not None and x.ndim:
        normalize_axis(axis, x.ndim)
    if x.dtype.kind not in "fc":
        return find(x, axis, out, keepdims=keepdims)
    nans = elementwise.isnan(x)
    found = find(elementwise.where(nans, neutral, x), axis, keepdims=keepdims)
    if x.size:
        nothing = reductions.all(nans, axis=axis, keepdims=keepdims)
        found = map_blocks(_there, found, nothing, dtype=found.dtype)  # which raises at the call, or waits
    return put_index(out, found)


def _there(position: Any, nothing: Any) -> Any:
    if isinstance(nothing, np.ndarray) and nothing.any():  # elsewhere the answer would have to be waited for
        raise ValueError("All-NaN slice encountered")
    return position


def nancumsum(a: Any, axis: int | None = None, dtype: DTypeLike = None, out: Any = None) -> DistArray:
    """Return partial sums along `axis`, or of the flattened array, with nan as 0."""
    return cumsum(without_nan(a, 0), axis, dtype, out)


def nancumprod(a: Any, axis: int | None = None, dtype: DTypeLike = None, out: Any = None) -> DistArray:
    """Return partial products along `axis`, or of the flattened array, with nan as 1."""
    return cumprod(without_nan(a, 1), axis, dtype, out)
