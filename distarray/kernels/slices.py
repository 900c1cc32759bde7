"""The geometry of slices: in which order a box of loops is walked, and in pieces of what extents."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import product

import numpy as np

from distarray.kernels.threads import run_along, threads_for_cost
from distarray.types import HostArray

Extents = tuple[int, ...]
Box = tuple[slice, ...]

#: A slice whose inner axis is cut is cut at whole vectors.
GRAIN = 64
#: Elements that a slice adds up at least, if there are so many: combining partial results costs several passes each.
ADDED_UP = 32


def narrowed(x: HostArray) -> HostArray:
    """Return `x` without the axes along which it is broadcast: they have extent 1, leading ones are dropped.

    >>> narrowed(np.broadcast_to(np.arange(3), (2, 4, 3))).shape
    (3,)
    """
    if x.ndim and not all(x.strides):
        x = x[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in x.strides)]
    lead = next((a for a, n in enumerate(x.shape) if n != 1), x.ndim - 1)
    return x.reshape(x.shape[lead:]) if lead > 0 else x


def axes_by_stride(arrays: Sequence[HostArray], shape: Extents) -> tuple[list[HostArray], Extents]:
    """Return the arrays with their axes from slowest to fastest, neighbours joined where all arrays allow it.

    Parameters
    ----------
    arrays
        All of `shape`; broadcast axes have stride 0.

    Returns
    -------
    arrays, shape
        Views of one other shape with the same elements in one other order.
    """
    if all(a.flags.c_contiguous for a in arrays):
        return [a.reshape(-1) for a in arrays], (math.prod(shape),)
    if all(a.flags.f_contiguous for a in arrays):
        return [a.T.reshape(-1) for a in arrays], (math.prod(shape),)
    weight = [sum(abs(a.strides[axis]) for a in arrays) for axis in range(len(shape))]
    order = sorted((axis for axis, n in enumerate(shape) if n > 1), key=lambda axis: -weight[axis])
    order = [axis for axis, n in enumerate(shape) if n == 1] + order
    arrays = [a.transpose(order) for a in arrays]
    shape = tuple(shape[axis] for axis in order)
    joined: list[int] = []
    for axis, n in enumerate(shape):
        if axis and (shape[axis - 1] == 1 or all(a.strides[axis - 1] == a.strides[axis] * n for a in arrays)):
            joined[-1] *= n
        else:
            joined.append(n)
    if len(joined) < len(shape):
        shape = tuple(joined)
        arrays = [a.reshape(shape) for a in arrays]
    return arrays, shape


#: A last axis with a longer stride than others is slow to read if its elements lie a multiple of so many bytes apart,
#: since they share sets of the cache, or if it has more elements than that holds lines (measured: 1.5 to 3 times).
SHARED_SETS, MANY_LINES = 2048, 2048
#: Elements of it that are copied at a time: as many lines as the nearest caches have room for, or as one set of them.
BAND, SHARED_BAND = 256, 16
#: Elements that are copied by a call at least, where there are few rows.
AT_A_TIME = 1 << 14


def is_across(x: HostArray) -> bool:
    """Return whether `x` is better turned first: its last axis is one along which reading is slow.

    >>> is_across(np.ones((4096, 3)).T), is_across(np.ones((4096, 3)))
    (True, False)
    """
    if x.ndim < 2 or x.shape[-1] < 2:
        return False
    last = abs(x.strides[-1])
    if last % SHARED_SETS and x.shape[-1] <= MANY_LINES:
        return False
    return any(0 < abs(s) < last for s, n in zip(x.strides[:-1], x.shape[:-1]) if n > 1)


#: A row of fewer elements takes longer to begin than to compute; what it is turned for has several times as many.
SHORT_ROW, LONGER = 16, 4


def turned(arrays: Sequence[HostArray], extents: Extents) -> tuple[int, ...] | None:
    """Return an order of the axes in which a slice of arrays has long rows, if it has short ones as it is; else None.

    An operand that is broadcast along one of the last axes, and not along the others, breaks each call into rows of the
    axes behind: ``points[:, None, :] - means`` has a row for each pair, as long as a point has coordinates.

    >>> points = np.ones((1000, 3))
    >>> turned([np.broadcast_to(points[:, None], (1000, 4, 3))], (1000, 4, 3)), turned([points], (1000, 3))
    ((1, 2, 0), None)
    """
    last, n = len(extents) - 1, 1
    following: list[int] | None = None  # by array the stride with which an axis goes on where the last ones end
    for axis in reversed(range(last + 1)):
        if extents[axis] == 1:
            continue
        if following is not None and any(a.strides[axis] != s for a, s in zip(arrays, following, strict=True)):
            break
        n *= extents[axis]
        following = [a.strides[axis] * extents[axis] for a in arrays]
    longest = max(range(last + 1), key=extents.__getitem__)
    if n >= SHORT_ROW or longest == last or extents[longest] < LONGER * n:
        return None
    return (*[axis for axis in range(last + 1) if axis != longest], longest)


def copy_across(x: HostArray, out: HostArray) -> None:
    """Copy ``out[...] = x`` for an `x` whose elements lie in another order: a band of its last axis at a time.

    Of a band the lines that its first row is read from are still in cache for the next rows; copied at once, every
    element of a row of `out` would come from another page of memory.
    """
    step = max(BAND, AT_A_TIME * x.shape[-1] // max(x.size, 1)) if abs(x.strides[-1]) % SHARED_SETS else SHARED_BAND
    for start in range(0, x.shape[-1], step):
        part = (..., slice(start, start + step))
        np.copyto(out[part], x[part])


#: Rows of so few elements are copied column by column where there are many of them: numpy begins anew in each row.
FEW_COLUMNS, MANY_ROWS = 3, 512


def copy_out(x: HostArray, out: HostArray) -> None:
    """Copy ``out[...] = x``, cast, whatever the order in which the elements of `x` lie; they share no memory."""
    if is_across(x):
        copy_across(x, out)
    elif _has_short_rows(x, out):
        for i in range(out.shape[-1]):
            np.copyto(out[..., i], x[..., i])
    else:
        np.copyto(out, x)


def _has_short_rows(x: HostArray, out: HostArray) -> bool:
    """Return whether numpy would copy `x` in many rows of a few elements."""
    return (
        x.shape == out.shape
        and out.ndim > 1
        and 1 < out.shape[-1] <= FEW_COLUMNS
        and out.size >= MANY_ROWS * out.shape[-1]
        and not (x.flags.c_contiguous and out.flags.c_contiguous)
        and not (x.flags.f_contiguous and out.flags.f_contiguous)
    )


def copy_by_threads(x: HostArray, out: HostArray) -> None:
    """Copy ``out[...] = x``, cast, in this thread and in those that are free; they share no memory."""
    n = threads_for_cost(out.size * (out.itemsize + x.itemsize))
    axes = [axis for axis, extent in enumerate(out.shape) if extent >= n]
    if n < 2 or not axes:
        copy_out(x, out)
        return
    axis = max(axes, key=lambda axis: abs(out.strides[axis]))
    whole = np.broadcast_to(x, out.shape)

    def part(begin: int, end: int) -> None:
        here = (*[slice(None)] * axis, slice(begin, end))
        copy_out(whole[here], out[here])

    run_along(out.shape[axis], n, part)


def slice_extents(shape: Extents, budget: int) -> Extents:
    """Return the extents of a slice of at most about `budget` elements.

    Whole inner axes, then a range of one axis, then single steps. Ranges are balanced: the last slice is not a
    sliver.

    >>> slice_extents((4000, 4000), 16384), slice_extents((100, 16385), 16384)
    ((4, 4000), (1, 8256))
    """
    return _filled(shape, [1] * len(shape), budget, reversed(range(len(shape))))


def crossed_extents(arrays: Sequence[HostArray], shape: Extents, budget: int) -> Extents:
    """Return the extents of a slice of arrays of a shape, which may lie in unlike orders.

    Where one runs fastest along another axis than the last, the slice has enough elements of that to use whole lines of
    memory.

    >>> x = np.empty((2000, 3000))
    >>> crossed_extents([x, x.T.copy().T], x.shape, 65536), crossed_extents([x, x], x.shape, 65536)
    ((63, 1024), (21, 3000))
    """
    last = len(shape) - 1
    for a in arrays:
        strides = {axis: abs(s) for axis, (s, n) in enumerate(zip(a.strides, shape, strict=True)) if s and n > 1}
        axis = min(strides, key=strides.__getitem__, default=last)
        if axis != last and last in strides:
            (inner,) = slice_extents(shape[last:], budget // min(shape[axis], GRAIN))
            others = [other for other in reversed(range(last)) if other != axis]
            return _filled(shape, [*[1] * last, inner], budget, (axis, *others))
    return slice_extents(shape, budget)


def reduced_extents(shape: Extents, axes: Sequence[int], budget: int) -> Extents:
    """Return the extents of a slice that is reduced over some axes, in ascending order.

    They are those of any slice, but where hardly any elements of that would be added up: then it has less of what
    follows the reduced axes and more of these, since each partial result costs several passes over it.

    >>> reduced_extents((4000, 4000), (0,), 131072), reduced_extents((10, 3_000_000), (0,), 131072)
    ((32, 4000), (10, 13107))
    """
    plain = slice_extents(shape, budget)
    least = min(math.prod([shape[axis] for axis in axes]), ADDED_UP)
    if not axes or axes[-1] == len(shape) - 1 or math.prod([plain[axis] for axis in axes]) >= least:
        return plain
    lead = axes[-1] + 1
    extents = [*[1] * lead, *slice_extents(shape[lead:], budget // least)]
    others = [axis for axis in range(lead) if axis not in axes]
    return _filled(shape, extents, budget, (*reversed(axes), *reversed(others)))


def _filled(shape: Extents, extents: list[int], budget: int, order: Iterable[int]) -> Extents:
    """Return the extents of a slice that has as much of one axis after the other as there is room for."""
    for axis in order:
        room = budget // math.prod(extents)
        if room < 2:
            break
        n = shape[axis]
        extents[axis] = -(-n // -(-n // room)) if n > room else n
        if n > room >= GRAIN and axis == len(shape) - 1:
            extents[axis] = min(-(-extents[axis] // GRAIN) * GRAIN, room)
    return tuple(extents)


def boxes(shape: Extents, extents: Extents, order: Sequence[int]) -> Iterator[Box]:
    """Yield the slices of a box in turn; `order` lists the axes from outermost to innermost loop."""
    ranges = [[slice(i, min(i + e, n)) for i in range(0, n, e)] for n, e in zip(shape, extents, strict=True)]
    place = [order.index(axis) for axis in range(len(shape))]
    for chosen in product(*(ranges[axis] for axis in order)):
        yield tuple([chosen[i] for i in place])
