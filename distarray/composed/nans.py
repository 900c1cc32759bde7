"""Functions that pass over nan and are no reduction to a number: positions of extremes, partial sums and products."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from distarray.arguments import normalize_axis
from distarray.array.array import DistArray
from distarray.array.out import into
from distarray.composed.blockwise import map_blocks
from distarray.composed.nan_reductions import without_nan
from distarray.composed.numpy_signatures import argmax, argmin, cumprod, cumsum
from distarray.composed.views import as_distarray, as_number
from distarray.ops import elementwise, reductions
from distarray.ops.families import by_numpy
from distarray.types import DTypeLike, Shape


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
    made: DistArray = elementwise.nan_to_num(array, copy, nan, posinf, neginf)
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
    if own[:n_more] != (1,) * n_more or np.broadcast_shapes(last, shape) != shape:
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
    return into(out, found)  # type: ignore[no-any-return]


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
