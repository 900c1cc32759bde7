"""Functions of numpy that a user's function, or a write, is applied to along an axis."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

import numpy as np

from distarray.arguments import callback, integers, normalize_axis
from distarray.array.array import DistArray
from distarray.array.out import writes_host
from distarray.composed.blockwise import map_blocks
from distarray.composed.functions import put
from distarray.composed.views import as_distarray, expand_dims, moveaxis
from distarray.expr.broadcasting import shape_within
from distarray.expr.side_by_side import side_by_side
from distarray.types import HostArray, Shape

#: Bytes in which a task says what a user's function returned: dtype and shape, as text.
_DESCRIPTION = 256


@side_by_side
def apply_along_axis(func1d: Callable[..., Any], axis: int, arr: Any, *args: Any, **kwargs: Any) -> DistArray:
    """Call a function of vectors with each vector of `arr` along `axis`, which is not cut.

    Parameters
    ----------
    func1d
        Gets a vector, `args` and `kwargs`; returns a number, or an array of one shape for all vectors. It is called
        with the first vector at once, which says dtype and shape, and with all of them in the tasks.
    axis
        Whose place the axes of the results take.
    """
    x = as_distarray(arr)
    callback(func1d, "func1d")
    axis = normalize_axis(axis, x.ndim)
    if 0 in (*x.shape[:axis], *x.shape[axis + 1 :]):
        raise ValueError("Cannot apply_along_axis when any iteration dimensions are 0")
    last = moveaxis(x, axis, -1)
    first = last[(0,) * (x.ndim - 1)]
    said = map_blocks(
        _described, first, func1d, args, kwargs, dtype=np.uint8, drop_axis=0, new_axis=0, chunks=_DESCRIPTION
    )
    dtype, shape = ast.literal_eval(bytes(said._host()).rstrip(b"\0").decode())
    n = len(shape)
    ndim = x.ndim - 1 + n
    made = map_blocks(
        _each, last, func1d, args, kwargs, dtype, shape,
        dtype=dtype, drop_axis=x.ndim - 1, new_axis=tuple(range(x.ndim - 1, ndim)), chunks=shape,
    )  # fmt: skip
    return moveaxis(made, tuple(range(ndim - n, ndim)), tuple(range(axis, axis + n)))


def _described(vector: Any, func1d: Callable[..., Any], args: Any, kwargs: Any) -> HostArray:
    """Return the dtype and shape of what the function returns, as bytes: all that comes to the user's process."""
    made = func1d(vector, *args, **kwargs)
    if not hasattr(made, "dtype"):  # arrays of any kind say what they are; CuPy's become numpy's for nobody
        made = np.asanyarray(made)
    text = repr((made.dtype.str, made.shape)).encode()
    if len(text) > _DESCRIPTION:
        raise ValueError(f"apply_along_axis: a result of {made.ndim} axes is more than arrays have")
    return np.frombuffer(text.ljust(_DESCRIPTION, b"\0"), np.uint8)


def _each(block: Any, func1d: Callable[..., Any], args: Any, kwargs: Any, dtype: str, shape: Shape) -> Any:
    # of the block's kind: numpy's or CuPy's
    made = np.empty_like(block, dtype=dtype, shape=block.shape[:-1] + shape)
    for index in np.ndindex(block.shape[:-1]):
        value = func1d(block[index], *args, **kwargs)
        made[index] = value._host() if isinstance(value, DistArray) else value
    return made


def apply_over_axes(func: Callable[[Any, int], Any], a: Any, axes: Any) -> DistArray:
    """Call a function of an array and an axis for one axis after the other; axes that it takes away stay as 1."""
    value = as_distarray(a)
    callback(func, "func")
    ndim = value.ndim
    for axis in integers(axes, "axes", truths=False):
        axis = normalize_axis(axis, ndim, "axes")
        made = func(value, axis)
        if made.ndim != ndim:
            made = expand_dims(made, axis)
        if made.ndim != ndim:
            raise ValueError("function is not returning an array of the correct shape")
        value = made
    return value


@writes_host(np.put_along_axis)
def put_along_axis(arr: Any, indices: Any, values: Any, axis: int | None) -> None:
    """Write `values` into `arr` at the positions along `axis` that `indices` name for each place of the other axes."""
    at = indices if isinstance(indices, DistArray) else np.asarray(indices)
    if at.dtype.kind not in "iu":
        raise IndexError("`indices` must be an integer array")
    if axis is None:
        if at.ndim != 1:
            raise ValueError("when axis=None, `indices` must have a single dimension.")
        if shape_within(np.shape(values), at.shape) is None:  # `put` would repeat them, or leave the last ones out
            raise ValueError(f"shape mismatch: values of shape {np.shape(values)} at indices of shape {at.shape}")
        put(arr, at, values)
        return
    axis = normalize_axis(axis, arr.ndim)
    if at.ndim != arr.ndim:
        raise ValueError("`indices` and `arr` must have the same number of dimensions")
    places = [np.arange(n).reshape((-1,) + (1,) * (arr.ndim - i - 1)) for i, n in enumerate(arr.shape)]
    arr[(*places[:axis], at, *places[axis + 1 :])] = values
