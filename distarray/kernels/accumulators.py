"""Accumulators: what a program reduces slice by slice, added up in an order that the shape alone decides.

`partial` reduces a slice, in any thread; `add` takes what it gave, slice after slice.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from distarray.expr.affine import namespace
from distarray.kernels.buffers import POOL
from distarray.kernels.monoids import MONOIDS, Monoid, Pairs, Partial, Within
from distarray.kernels.outcomes import Called, Reduction
from distarray.kernels.short_rows import added_up, is_few
from distarray.kernels.slices import copy_out
from distarray.types import DType, HostArray

#: Where a slice of a box lies.
_Where: TypeAlias = slice | tuple[slice, ...]


def takes_rows(reduction: Reduction, ndim: int) -> bool:
    """Return whether the bits of a reduction are the same for rows that lie apart: elements of different rows are added
    up one after the other. Moments are of contiguous blocks, for their compiled loop.
    """
    monoid = MONOIDS[reduction.monoid]
    return ndim - 1 not in reduction.axes and (monoid.n_arrays == 1 or not monoid.is_ordered(reduction.dtype))


def is_turnable(reduction: Reduction, shape: tuple[int, ...], dtype: DType) -> bool:
    """Return whether a register of a dtype reduces to the same bits over slices with their axes in another order.

    Floating-point sums of a few elements do along the last axis, where numpy's order is known (`short_rows`).
    """
    monoid, axes = MONOIDS[reduction.monoid], reduction.axes
    if monoid.n_arrays > 1 or not axes or len(axes) == len(shape):
        return False
    if not monoid.is_ordered(reduction.dtype):
        return True
    is_along_rows = axes == (len(shape) - 1,) and dtype == monoid.state(reduction.dtype)
    return is_along_rows and is_few(monoid.ufunc, shape[-1], dtype)


def partial_of(reduction: Reduction, value: Any, shape: tuple[int, ...], within: Within | None) -> Partial | None:
    """Return the partial of one register that is there as a whole."""
    monoid = MONOIDS[reduction.monoid]
    kept = tuple(1 if a in reduction.axes else n for a, n in enumerate(shape))
    is_numpy = isinstance(value, np.ndarray | np.generic)
    if 0 in shape:
        xp = namespace(value)
        device = None if is_numpy else value.device
        identity = monoid.identity(kept, reduction.dtype, xp, device)
        if identity is None and 0 in kept:  # no elements to keep: the result has no elements, and so it is known
            empty = MONOIDS["sum"].identity(kept, reduction.dtype, xp, device)
            return empty if monoid.n_arrays == 1 else (empty,) * monoid.n_arrays
        return identity
    if is_numpy and (value.shape != shape or not value.flags.c_contiguous):
        value = np.array(np.broadcast_to(value, shape), order="C")
    return monoid.partial(value, reduction.axes, reduction.dtype, within)


class TotalAccumulator:
    """A TotalAccumulator is the partials of the slices of a total, one number each, folded pairwise by the ufunc itself
    at the end.
    """

    def __init__(self, reduction: Reduction, shape: tuple[int, ...], extents: tuple[int, ...]) -> None:
        self.monoid, self.shape = MONOIDS[reduction.monoid], (1,) * len(shape)
        self.dtype = self.monoid.state(reduction.dtype)
        n_slices = math.prod(-(-n // e) for n, e in zip(shape, extents, strict=True))
        self.parts = np.empty(n_slices, self.dtype)
        self.n = 0

    def partial(self, block: HostArray, _where: _Where, _within: Within) -> Partial:
        """Return what a slice comes to."""
        return self.monoid.total(block, self.dtype)

    def add(self, partial: Partial, _where: _Where) -> None:
        """Add what the next slice came to."""
        self.parts[self.n] = partial
        self.n += 1

    def result(self) -> Partial:
        assert self.n == len(self.parts)
        return np.asarray(self.monoid.fold(self.parts)).reshape(self.shape)


class Accumulator:
    """An Accumulator is the partials of the slices of one reduction, merged in pairs of equal weight (`Pairs`) where
    they lie on top of each other, and put side by side otherwise.

    Parameters
    ----------
    shape
        Of the box.
    extents
        Of the slices. None: boxes of any extents come, whose partials stay as they are.
    empty
        Makes an array of a shape and a dtype.
    order
        Axes of the results in the order in which the box has them; None if it is the same.
    """

    def __init__(
        self,
        reduction: Reduction,
        shape: tuple[int, ...],
        extents: tuple[int, ...] | None,
        empty: Callable[..., Any] = POOL.take,
        order: tuple[int, ...] | None = None,
    ) -> None:
        self.reduction = reduction
        self.monoid: Monoid = MONOIDS[reduction.monoid]
        self.kept = tuple(axis for axis in range(len(shape)) if axis not in reduction.axes)
        self.shape = tuple(1 if axis in reduction.axes else n for axis, n in enumerate(shape))
        self.empty, self.order = empty, order
        self.is_own = extents is not None
        #: After how many partials those of a region are put in their place; 0: at the end, where they may be all.
        self.per_region = 0
        if extents is not None and any(shape[axis] != extents[axis] for axis in self.kept):
            self.per_region = math.prod(-(-shape[axis] // extents[axis]) for axis in reduction.axes)
        self.waiting: dict[tuple[int, ...], tuple[Pairs, tuple[slice, ...]]] = {}
        self.done: Partial | None = None

    def partial(self, block: HostArray, where: _Where, within: Within) -> Partial:
        monoid, reduction = self.monoid, self.reduction
        if self.order is not None and monoid.is_ordered(reduction.dtype):
            return added_up(monoid.ufunc, block, reduction.axes[0])
        if monoid.n_arrays != 2:  # the only ones with an index
            return monoid.partial(block, reduction.axes, reduction.dtype)
        start = tuple([o + s.start for o, s in zip(within.origin, _box(where), strict=True)])
        return monoid.partial(block, reduction.axes, reduction.dtype, Within(start, within.extents))

    def add(self, partial: Partial, where: _Where) -> None:
        box = _box(where)
        region = tuple([box[axis].start for axis in self.kept])
        if region not in self.waiting:
            self.waiting[region] = Pairs(self.monoid, is_own=self.is_own), box
        pairs, _ = self.waiting[region]
        pairs.add(partial)
        if pairs.n == self.per_region:
            del self.waiting[region]
            self._put(pairs.result(), box)

    def _put(self, partial: Partial, box: tuple[slice, ...]) -> None:
        is_one = self.monoid.n_arrays == 1
        parts = (partial,) if is_one else partial
        if self.done is None:
            whole = tuple(self._empty(p.dtype) for p in parts)
            self.done = whole[0] if is_one else whole
        where = tuple(s if axis in self.kept else slice(None) for axis, s in enumerate(box))
        for whole, part in zip((self.done,) if is_one else self.done, parts, strict=True):
            if self.order is None:
                whole[where] = part
            else:
                copy_out(part, whole[where])

    def _empty(self, dtype: DType) -> Any:
        if self.order is None:
            return self.empty(self.shape, dtype)
        return self.empty([self.shape[k] for k in np.argsort(self.order)], dtype).transpose(self.order)

    def result(self) -> Partial:
        if self.done is None and len(self.waiting) == 1 and self.order is None:
            ((pairs, _),) = self.waiting.values()
            return pairs.result()
        for pairs, box in self.waiting.values():
            self._put(pairs.result(), box)
        done = self.done
        return done if self.order is None or done is None else done.transpose(np.argsort(self.order))


def accumulator(
    reduction: Reduction, shape: tuple[int, ...], extents: tuple[int, ...], order: tuple[int, ...] | None = None
) -> TotalAccumulator | Accumulator:
    """Return what adds up slices of these extents of a box, for results whose axes the box has in some order."""
    if reduction.is_total(shape):
        return TotalAccumulator(reduction, shape, extents)
    return Accumulator(reduction, shape, extents, order=order)


def _box(where: _Where) -> tuple[slice, ...]:
    return where if isinstance(where, tuple) else (where,)


class InOrder:
    """An InOrder hands partials to accumulators in the order of their slices, in whichever order they come.

    Parameters
    ----------
    accumulators
        Each with what a thread says that it calls while it adds to it.
    """

    def __init__(self, accumulators: Sequence[tuple[TotalAccumulator | Accumulator, Called]]) -> None:
        self._accumulators = accumulators
        self._lock = threading.Lock()
        self._early: dict[int, tuple[list[Partial], _Where]] = {}
        self._next = 0

    def add(self, number: int, partials: list[Partial], where: _Where, current: list[Called]) -> None:
        """Take what a slice came to, by accumulator, in a thread that says in `current` what it calls."""
        with self._lock:
            self._early[number] = partials, where
            while (found := self._early.pop(self._next, None)) is not None:
                for (accumulator, called), partial in zip(self._accumulators, found[0], strict=True):
                    current[0] = called
                    accumulator.add(partial, found[1])
                self._next += 1
