"""Block layout: the order of the axes of a block in memory.

A layout is a permutation of the axes, *outermost first*: ``(2, 0, 1)`` means that axis 2 has the largest stride and
axis 1 is contiguous. ``"C"`` stands for ``(0, .., n-1)``, ``"F"`` for ``(n-1, .., 0)``; rank 0 and 1 are always C. The
layout is part of an array's type. Values never depend on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import index
from typing import TypeAlias

from distarray.errors import ShardingError

Layout: TypeAlias = tuple[int, ...]
#: What users write: ``"C"``, ``"F"`` or a permutation.
LayoutLike: TypeAlias = str | Sequence[int]


def c_layout(ndim: int) -> Layout:
    """Return the layout "C" of rank `ndim`."""
    return tuple(range(ndim))


def parse_layout(layout: LayoutLike, ndim: int) -> Layout:
    """Return the permutation, outermost axis first, that the user's `layout` means at rank `ndim`.

    Raises
    ------
    ShardingError
        If it is neither "C" nor "F" nor a permutation of the axes.

    Examples
    --------
    >>> parse_layout("F", 3), parse_layout("F", 1), parse_layout((2, 0, 1), 3)
    ((2, 1, 0), (0,), (2, 0, 1))
    """
    if isinstance(layout, str):
        if layout == "C":
            return c_layout(ndim)
        if layout == "F":
            return tuple(range(ndim - 1, -1, -1))
    else:
        try:
            axes = tuple(index(axis) for axis in layout)
        except TypeError:
            axes = None
        if axes is not None and sorted(axes) == list(range(ndim)):
            return axes
    raise ShardingError(
        f"layout={layout!r} is no order of the {ndim} axes of the array; "
        f"use 'C', 'F' or a permutation of {c_layout(ndim)}, outermost axis first"
    )


def layout_name(layout: Layout) -> str | Layout:
    """Return "C" or "F" where one fits (rank 0 and 1: "C"), else the permutation.

    >>> layout_name((0, 1)), layout_name((1, 0)), layout_name((1, 0, 2)), layout_name((0,))
    ('C', 'F', (1, 0, 2), 'C')
    """
    n = len(layout)
    if layout == tuple(range(n)):
        return "C"
    return "F" if layout == tuple(range(n - 1, -1, -1)) else layout


def layout_of(shape: Sequence[int], strides: Sequence[int]) -> Layout:
    """Return the order of axes that a block with these strides comes nearest to: by falling absolute stride.

    Axes of extent 1 have no meaningful stride: they never keep a block from being "C", or else "F".

    >>> layout_of((4, 3), (8, 32)), layout_of((4, 1), (8, 8)), layout_of((4, 3), (-24, 8))
    ((1, 0), (0, 1), (0, 1))
    """
    if any(n == 0 for n in shape):
        return c_layout(len(shape))
    long = sorted((axis for axis, n in enumerate(shape) if n > 1), key=lambda axis: -abs(strides[axis]))
    if long == sorted(long):
        return c_layout(len(shape))
    if long == sorted(long, reverse=True):
        return tuple(range(len(shape) - 1, -1, -1))
    return tuple(axis for axis, n in enumerate(shape) if n == 1) + tuple(long)


def drop_axes(layout: Layout, axes: Iterable[int]) -> Layout:
    """Return the layout after the removal of some axes: the order of the rest is kept, as reductions do.

    >>> drop_axes((2, 0, 1), (0,))
    (1, 0)
    """
    dropped = frozenset(axes)
    kept = [axis for axis in range(len(layout)) if axis not in dropped]
    renumbered = {axis: i for i, axis in enumerate(kept)}
    return tuple(renumbered[axis] for axis in layout if axis not in dropped)
