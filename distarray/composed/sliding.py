"""Windows that slide over an array, and coarser grids."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from distarray.arguments import callback, integer, integers, mapping, normalize_axis
from distarray.array.array import DistArray
from distarray.composed.views import as_distarray
from distarray.errors import NotSupportedError
from distarray.expr.lens import Sliding, strided_dummy
from distarray.types import AxesLike, ShapeLike


def sliding_window_view(
    x: Any, window_shape: ShapeLike, axis: AxesLike = None, *, subok: bool = False, writeable: bool = False
) -> DistArray:
    """Return every window of an array, as numpy's ``sliding_window_view``: a read-only view.

    Parameters
    ----------
    x
        The array.
    window_shape
        Extents of the windows.
    axis
        The axes that they slide along; all by default. An axis may be given several times.

    Returns
    -------
    DistArray
        The window axes come last. Nothing is computed or copied. ``sum``, ``prod``, ``mean``, ``max``, ``min``,
        ``any``, ``all``, ``count_nonzero``, ``var`` and ``std`` (of up to 256 elements) over all window axes are made
        of shifted slices of `x`; products with another array (``@``, ``einsum``, ``tensordot``, ``vecdot``) that keep
        the axes which windows slide along read `x` and what lies behind a tile. So no window is made: a moving
        average with weights and a filter of an image hold `x` and their result. Whatever else reads the view makes
        what it reads of it: all of it has the size of `x` times the number of elements of a window.

    Raises
    ------
    ValueError
        If a window is larger than the array.

    Examples
    --------
    >>> import distarray as dx
    >>> v = dx.sliding_window_view(dx.arange(6), 3)
    >>> v.shape, v[1].tolist(), v.sum(axis=-1).tolist()
    ((4, 3), [1, 2, 3], [3, 6, 9, 12])
    >>> (v @ dx.asarray([1, 0, -1])).tolist()
    [-2, -2, -2, -2]
    """
    own = as_distarray(x)
    if writeable:
        raise NotSupportedError("sliding_window_view: windows share elements, so writeable=True is not supported")
    # numpy checks the numbers, on an array without memory
    window_shape = integers(window_shape, "window_shape")
    given: Any = None if axis is None else integers(axis, "axis")
    dummy = np.lib.stride_tricks.sliding_window_view(strided_dummy(own.shape), window_shape, given)
    window = dummy.shape[own.ndim :]
    axes = range(own.ndim) if given is None else given
    normal = tuple([normalize_axis(a, own.ndim) for a in axes])
    if not window:
        return own._alias()
    return own._view(Sliding(window, normal, dummy.shape), readonly=True)


def coarsen(
    reduction: Callable[..., Any], x: Any, axes: Mapping[int, int], trim_excess: bool = False, **kwargs: Any
) -> Any:
    """Return a reduction of neighbouring elements, as Dask's ``coarsen``.

    Parameters
    ----------
    reduction
        A reduction of distarray or numpy, such as ``np.mean``: called with the array and ``axis=``.
    x
        The array.
    axes
        For each axis how many neighbours become one element.
    trim_excess
        Leave out what is left over at the end of an axis, instead of raising.
    **kwargs
        Passed to the reduction.

    Raises
    ------
    ValueError
        If an extent is no multiple of its factor.

    Examples
    --------
    >>> import numpy as np
    >>> import distarray as dx
    >>> dx.coarsen(np.max, dx.arange(6), {0: 2}).tolist()
    [1, 3, 5]
    """
    own = as_distarray(x)
    factors = [1] * own.ndim
    callback(reduction, "reduction")
    axes = mapping(axes, "axes", "axes to factors")
    for axis, factor in axes.items():
        factors[normalize_axis(axis, own.ndim, "axes")] = integer(factor, "axes")
    if any(k < 1 for k in factors):
        raise ValueError(f"coarsen: the factors of axes={axes} must be positive")
    if any(n % k for n, k in zip(own.shape, factors, strict=True)):
        if not trim_excess:
            raise ValueError(f"Coarsening factors axes={axes} do not align with array shape {own.shape}.")
        own = own[tuple([slice(n // k * k) for n, k in zip(own.shape, factors, strict=True)])]
    shape = tuple([m for n, k in zip(own.shape, factors, strict=True) for m in (n // k, k)])
    return reduction(own.reshape(shape), axis=tuple(range(1, 2 * own.ndim, 2)), **kwargs)
