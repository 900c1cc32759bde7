"""The geometry of slices: in which order a box of loops is walked, and in pieces of what extents."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np

__all__ = ["axes_by_stride", "boxes", "narrowed", "slice_extents"]

Array = np.ndarray[Any, np.dtype[Any]]
Extents = tuple[int, ...]
Box = tuple[slice, ...]

#: A slice whose inner axis is cut is cut at whole vectors.
GRAIN = 64
#: Extent along each axis that is the fastest of some array, where arrays disagree: 64 float64 are 8 cache lines.
TILE = 64


def narrowed(x: Array) -> Array:
    """`x` without the axes along which it is broadcast: they have extent 1, leading ones are dropped.

    >>> narrowed(np.broadcast_to(np.arange(3), (2, 4, 3))).shape
    (3,)
    """
    if x.ndim and not all(x.strides):
        x = x[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in x.strides)]
    lead = next((a for a, n in enumerate(x.shape) if n != 1), x.ndim - 1)
    return x.reshape(x.shape[lead:]) if lead > 0 else x


def axes_by_stride(arrays: Sequence[Array], shape: Extents) -> tuple[list[Array], Extents, tuple[int, ...]]:
    """The arrays with their axes from slowest to fastest, neighbours joined where all arrays allow it.

    Parameters
    ----------
    arrays
        All of `shape`; broadcast axes have stride 0.

    Returns
    -------
    arrays, shape
        Views of one other shape with the same elements in one other order.
    fast
        Axes of the new shape that are the fastest of some array: more than one if the arrays disagree.
    """
    if all(a.flags.c_contiguous for a in arrays):
        return [a.reshape(-1) for a in arrays], (math.prod(shape),), (0,)
    if all(a.flags.f_contiguous for a in arrays):
        return [a.T.reshape(-1) for a in arrays], (math.prod(shape),), (0,)
    weight = [sum(abs(a.strides[axis]) for a in arrays) for axis in range(len(shape))]
    order = sorted((axis for axis, n in enumerate(shape) if n > 1), key=lambda axis: -weight[axis])
    order = [axis for axis, n in enumerate(shape) if n == 1] + order
    arrays = [a.transpose(order) for a in arrays]
    shape = tuple(shape[axis] for axis in order)
    joined: list[int] = []
    for axis, n in enumerate(shape):
        if axis and (
            shape[axis - 1] == 1 or all(a.strides[axis - 1] == a.strides[axis] * n for a in arrays)
        ):
            joined[-1] *= n
        else:
            joined.append(n)
    if len(joined) < len(shape):
        shape = tuple(joined)
        arrays = [a.reshape(shape) for a in arrays]
    fastest = set()
    for a in arrays:
        steps = [(abs(stride), -axis) for axis, stride in enumerate(a.strides) if stride and shape[axis] > 1]
        if steps:
            fastest.add(-min(steps)[1])
    return arrays, shape, tuple(sorted(fastest)) or (len(shape) - 1,)


def slice_extents(shape: Extents, budget: int, fast: Sequence[int] = ()) -> Extents:
    """Extents of a slice of at most about `budget` elements.

    Whole inner axes, then a range of one axis, then single steps; where several axes are `fast`, a tile that is at
    least `TILE` long along each of them. Ranges are balanced: the last slice is not a sliver.

    >>> slice_extents((4000, 4000), 16384), slice_extents((100, 16385), 16384)
    ((4, 4000), (1, 8256))
    """
    extents = [1] * len(shape)
    if len(fast) > 1:
        for axis in fast:
            extents[axis] = min(shape[axis], TILE)
    for axis in reversed(range(len(shape))):
        room = budget // math.prod(extents)
        if room < 2:
            break
        n, most = shape[axis], extents[axis] * room
        if n > most:
            parts = -(-n // most)
            extents[axis] = -(-n // parts)
            if most >= GRAIN and math.prod(extents[axis + 1 :]) == 1:
                extents[axis] = min(-(-extents[axis] // GRAIN) * GRAIN, most)
        else:
            extents[axis] = n
    return tuple(extents)


def boxes(shape: Extents, extents: Extents, order: Sequence[int]) -> Iterator[Box]:
    """The slices of a box in turn; `order` lists the axes from outermost to innermost loop."""
    ranges = [[slice(i, min(i + e, n)) for i in range(0, n, e)] for n, e in zip(shape, extents, strict=True)]
    place = [order.index(axis) for axis in range(len(shape))]
    for chosen in product(*(ranges[axis] for axis in order)):
        yield tuple([chosen[i] for i in place])
