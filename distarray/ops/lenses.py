"""Lenses of numpy's views: made from a shape and what the user asked for, which they check.

They raise as numpy does. Operations on nodes read through them, and the array layer makes aliasing handles of the same
lenses.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import SupportsIndex

import numpy as np

from distarray.arguments import MAX_COUNT, choice, integer, integers, normalize_axes, normalize_axis, refuse_loose_axis
from distarray.expr.affine import Affine, Term
from distarray.types import AxesLike, Shape

#: Axes that ``atleast_1d`` and its kin add, by how many an array has: in front, but a vector comes between two.
_ADDED = {1: ((0,),), 2: ((0, 1), (0,)), 3: ((0, 1, 2), (0, 2), (2,))}


def permute_lens(shape: Shape, axes: Sequence[SupportsIndex] | None = None) -> Affine:
    """Return the axes of an array in another order; reversed if `axes` is None."""
    ndim = len(shape)
    if axes is None:
        order = tuple(range(ndim - 1, -1, -1))
    else:
        axes = integers(axes, "axes", truths=False)
        if len(axes) != ndim:
            raise ValueError(f"axes don't match array: axes={axes} for an array of rank {ndim}")
        order = normalize_axes(axes, ndim, "axes")
    return Affine.identity(shape).permuted(order)


def flip_lens(shape: Shape, axis: AxesLike = None, least: int = 0) -> Affine:
    """Return the elements of an array of at least so many axes in reverse order along `axis`, all axes by default."""
    if len(shape) < least:
        raise ValueError(f"Input must be >= {least}-d.")
    return Affine.identity(shape).flipped(normalize_axes(axis, len(shape)))


def expand_lens(shape: Shape, axis: AxesLike) -> Affine:
    """Return new axes of extent 1 at the positions `axis` of the result."""
    added = integers(integer(axis, "axis") if hasattr(axis, "ndim") else axis, "axis")
    lens = Affine.identity(shape)
    for a in sorted(normalize_axes(added, len(shape) + len(added))):
        lens = lens.expanded(a)
    return lens


def atleast_lens(shape: Shape, ndim: int) -> Affine:
    """Return an array with `ndim` axes at least, one to three, as numpy adds them."""
    return expand_lens(shape, _ADDED[ndim][len(shape)] if len(shape) < ndim else ())


def squeeze_lens(shape: Shape, axis: AxesLike = None) -> Affine:
    """Return the lens of a view without the axes `axis`, which must have extent 1; all such axes by default."""
    refuse_loose_axis(axis)
    if axis is None:
        axes = tuple(a for a, n in enumerate(shape) if n == 1)
    elif not shape and axis in (0, -1):  # numpy's: a number has the axis that it would have
        axes = ()
    else:
        axes = normalize_axes(axis, len(shape))
        for a in axes:
            if shape[a] != 1:
                raise ValueError(
                    "cannot select an axis to squeeze out which has size not equal to one: "
                    f"axis {a} of shape {shape} has {shape[a]}"
                )
    return Affine.identity(shape).squeezed(axes)


def broadcast_lens(shape: Shape, to: Shape) -> Affine:
    """Return an array of `shape` seen as one of shape `to`."""
    return Affine.identity(shape).broadcast(to)


def grid_lenses(sizes: Sequence[int], indexing: str, is_sparse: bool) -> list[Affine]:
    """Return for each axis of a grid the vector of coordinates along it as an array of the grid; if that is sparse,
    with extent 1 along every other axis. With ``"xy"`` the first two axes change places.
    """
    choice(indexing, ("xy", "ij"), "indexing")
    ndim = len(sizes)
    places = list(range(ndim))
    if indexing == "xy":
        places[:2] = places[:2][::-1]
    whole = tuple([sizes[place] for place in places])  # the exchange is its own inverse
    grid = []
    for place, n in zip(places, sizes):
        lens = Affine.identity((n,))
        for axis in range(ndim):
            if axis != place:
                lens = lens.expanded(axis)
        grid.append(lens if is_sparse else lens.broadcast(whole))
    return grid


def diagonal_lens(shape: Shape, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Affine:
    """Return the diagonal of two axes as the new last axis."""
    if len(shape) < 2:
        raise ValueError(f"diag requires an array of at least two dimensions, not one of shape {shape}")
    first, second = normalize_axis(axis1, len(shape), "axis1"), normalize_axis(axis2, len(shape), "axis2")
    if first == second:
        raise ValueError(f"axis1 and axis2 cannot be the same: axis {first}")
    return Affine.identity(shape).diagonal(integer(offset, "offset"), first, second)


def slice_lens(shape: Shape, axis: int, start: int, length: int, step: int = 1) -> Affine:
    """Return `length` elements from `start` on along one axis; with step 0 one element again and again. Nothing is
    checked.
    """
    terms: list[Term] = [(a, 0, 1) for a in range(len(shape))]
    terms[axis] = (None, start, 0) if step == 0 else (axis, start, step if length > 1 else 1)
    return Affine((*shape[:axis], length, *shape[axis + 1 :]), tuple(terms))


def box_lens(extents: Shape, starts: Sequence[int]) -> Affine:
    """Return a box of so many elements along each axis, from these on. Nothing is checked."""
    return Affine(extents, tuple([(axis, start, 1) for axis, start in enumerate(starts)]))


def split_lenses(
    shape: Shape, indices_or_sections: int | Sequence[int], axis: int = 0, *, is_equal: bool = False
) -> list[Affine]:
    """Return the parts of an array along `axis`: so many, or between the given indices.

    Parameters
    ----------
    is_equal
        Whether a number of parts must divide the extent.
    """
    axis = normalize_axis(axis, len(shape))
    n = shape[axis]
    # an array without axes has the method, but no length
    if hasattr(indices_or_sections, "__len__") and getattr(indices_or_sections, "ndim", 1) != 0:
        points = [0, *integers(indices_or_sections, "indices_or_sections"), n]
    else:
        sections = integer(indices_or_sections, "indices_or_sections")
        if is_equal and not sections:
            raise ZeroDivisionError("split: indices_or_sections=0")
        if is_equal and n % sections:
            raise ValueError(
                f"array split does not result in an equal division: {n} elements in {indices_or_sections=}"
            )
        if sections <= 0:
            raise ValueError(f"number sections must be larger than 0, not indices_or_sections={sections}")
        if sections > MAX_COUNT:
            raise OverflowError(f"indices_or_sections={sections} is too large")
        each, extra = divmod(n, sections)
        points = [i * each + min(i, extra) for i in range(sections + 1)]
    bounds = [slice(start, stop).indices(n) for start, stop in pairwise(points)]
    return [slice_lens(shape, axis, low, max(high - low, 0)) for low, high, _ in bounds]


def rot90_lens(shape: Shape, k: int = 1, axes: Sequence[int] = (0, 1)) -> Affine:
    """Return `k` quarter turns in the plane of `axes`, from the first towards the second."""
    axes = integers(axes, "axes", truths=False)
    ndim = len(shape)
    if len(axes) != 2:
        raise ValueError(f"len(axes) must be 2, not axes={axes}")
    if axes[0] == axes[1] or abs(axes[0] - axes[1]) == ndim:
        raise ValueError(f"Axes must be different, not axes={axes}")
    if not all(-ndim <= a < ndim for a in axes):
        raise ValueError(f"Axes={axes} out of range for array of ndim={ndim}.")
    first, second = (a % ndim for a in axes)
    lens = Affine.identity(shape)
    order = list(range(ndim))
    order[first], order[second] = second, first
    for _ in range(integer(k, "k") % 4):
        lens = lens.flipped((second,)).permuted(order)
    return lens


def moveaxis_lens(shape: Shape, source: AxesLike, destination: AxesLike) -> Affine:
    """Return the axes `source` moved to the places `destination`; the others keep their order."""
    ndim = len(shape)
    froms, tos = (
        normalize_axes(integers(a, name), ndim, name) for a, name in ((source, "source"), (destination, "destination"))
    )
    if len(froms) != len(tos):
        raise ValueError(
            "`source` and `destination` arguments must have the same number of elements, not "
            f"{source} and {destination}"
        )
    order = [a for a in range(ndim) if a not in froms]
    for to, a in sorted(zip(tos, froms)):
        order.insert(to, a)
    return Affine.identity(shape).permuted(order)


def rollaxis_lens(shape: Shape, axis: int, start: int) -> Affine:
    """Return `axis` moved to stand before the axis that is now at `start`."""
    ndim = len(shape)
    source = normalize_axis(axis, ndim)
    if not -ndim <= integer(start, "start") <= ndim:
        raise np.exceptions.AxisError(f"'start' arg requires {-ndim} <= start < {ndim + 1}, but {start} was passed")
    to = start + ndim if start < 0 else start
    return moveaxis_lens(shape, source, to - (source < to))


def swapaxes_lens(shape: Shape, axis1: int, axis2: int) -> Affine:
    """Return two axes exchanged."""
    first, second = normalize_axis(axis1, len(shape), "axis1"), normalize_axis(axis2, len(shape), "axis2")
    order = list(range(len(shape)))
    order[first], order[second] = second, first
    return Affine.identity(shape).permuted(order)


def matrix_transpose_lens(shape: Shape) -> Affine:
    """Return the last two axes exchanged."""
    if len(shape) < 2:
        raise ValueError(f"Input array must be at least 2-dimensional, but it is {len(shape)}")
    return swapaxes_lens(shape, -1, -2)
