"""Folds by name of the operation: kernels that give partial results, how these combine, and what becomes of the last.

A tile's partial result may be anything that can travel: an array, a tuple of arrays, what a user's function returns. Up
to `planner.plan.FAN_IN` of them combine in one task, in the order of their tiles, level by level. Kernels use the
functions of the standard, taken from the namespace of the block; where numpy has a faster way, that way stands behind
``xp is np``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import prod
from typing import Any, Protocol

import numpy as np

from distarray.kernels.inside import as_task
from distarray.kernels.monoids import MONOIDS
from distarray.kernels.namespaces import Block, Params, astype, is_strict
from distarray.kernels.user_functions import own, read_only
from distarray.types import DType, Shape

#: Places in a block: numpy's for numpy's blocks, else a list.
Numbers = Any
#: Arrays of a segment reduction with the segments first.
State = tuple[Block, ...]


class Fold(Protocol):
    """A Fold is one row of the table."""

    def partial(self, xp: Any, *blocks: Block, params: Params) -> Any:
        """Return what one tile gives."""

    def combine(self, backend: Any, partials: Sequence[Any], params: Params) -> Any:
        """Return one partial result of several, in order; at least one."""

    def finish(self, xp: Any, partial: Any, shape: Shape, dtype: DType, params: Params) -> Block:
        """Return the result of the last partial result."""


class _UserReduction:
    """A _UserReduction is the functions of ``reduction``; params are (rule, steps); the late steps know how they are
    called.
    """

    def partial(self, xp: Any, *blocks: Block, params: Params) -> Any:
        seen = read_only(blocks)
        partial = as_task(params[1].chunk, *seen)
        return own(xp, partial, seen) if isinstance(partial, np.ndarray) else partial

    def combine(self, backend: Any, partials: Sequence[Any], params: Params) -> Any:
        adopted = [backend.adopt(p) if hasattr(p, "dtype") else p for p in partials]
        if len(adopted) == 1:
            return adopted[0]
        return as_task(params[1].combine, backend.xp, adopted)

    def finish(self, xp: Any, partial: Any, shape: Shape, dtype: DType, params: Params) -> Block:
        result = as_task(lambda: xp.asarray(params[1].aggregate(xp, [partial])))
        if result.size != prod(shape):
            raise ValueError(f"reduction: aggregate gave a result of shape {result.shape}, expected {shape}")
        return astype(xp, xp.reshape(result, shape), dtype)


# ------------------------------------------------------------------------------------------------ segments


class _Segments:
    """_Segments are reductions by labels; params are (rule, name, number of segments, correction).

    Operands are the block with the reduced axis first, and its labels; labels that are no segment are left out, or are
    an error. The state has the segments as its first axis.
    """

    def __init__(self, *, takes_all: bool = False) -> None:
        self.takes_all = takes_all

    def partial(self, xp: Any, *blocks: Block, params: Params) -> State:
        x, labels = blocks
        _, name, n, _ = params
        if self.takes_all and bool(xp.any(outside := (labels < 0) | (labels >= n))):
            bad = int(labels[outside][0])
            raise IndexError(
                f"segment_reduce: label {bad} is none of {n} segments; mode='drop' leaves such elements out"
            )
        return _STATES[name](xp, x, *_runs(xp, labels, n), n)

    def combine(self, backend: Any, partials: Sequence[State], params: Params) -> State:
        states = [tuple(map(backend.adopt, p)) for p in partials]
        merge = _MERGES[params[1]]
        while len(states) > 1:
            merged = [merge(backend.xp, *states[i : i + 2]) for i in range(0, len(states) - 1, 2)]
            states = merged + states[len(states) - len(states) % 2 :]
        return states[0]

    def finish(self, xp: Any, partial: State, shape: Shape, dtype: DType, params: Params) -> Block:
        _, name, _, correction = params
        if name == "mean":
            total, count = partial
            result = _quotient(xp, total, count)
        elif name == "var":
            count, _, spread = partial
            result = _quotient(xp, spread, count - correction)
        else:
            result = partial[0]
        return astype(xp, xp.asarray(xp.broadcast_to(result, shape), copy=True), dtype)


def _runs(xp: Any, labels: Block, n: int) -> tuple[Block | None, Numbers, Numbers]:
    """Return the order that sorts labels, None where they are sorted; the segments that occur; where each begins and
    the end.

    The order leaves out what is in no segment, and keeps elements of one segment as they stand.
    """
    here = (labels >= 0) & (labels < n)
    everything = bool(xp.all(here))
    if everything and bool(xp.all(labels[1:] >= labels[:-1])):
        order, ordered = None, labels
    else:
        (kept,) = xp.nonzero(here)
        picked = labels if everything else xp.take(labels, kept, axis=0)
        if xp is np and n <= 1 << 16:
            picked = picked.astype(np.uint16)  # numpy sorts these by radix, several times as fast
        by = xp.argsort(picked, stable=True) if xp is np or is_strict(xp) else xp.argsort(picked, kind="stable")
        order = by if everything else xp.take(kept, by, axis=0)
        ordered = xp.take(picked, by, axis=0)
    m = ordered.shape[0]
    (changes,) = xp.nonzero(ordered[1:] != ordered[:-1])
    if xp is np:
        starts = np.concatenate([[0], changes + 1, [m]]) if m else np.zeros(1, np.intp)
        return order, ordered[starts[:-1]], starts
    firsts = [0, *[int(i) + 1 for i in changes]] if m else []
    return order, [int(ordered[i]) for i in firsts], [*firsts, m]


#: Reductions that fold by one function of two rows (`Monoid.ufunc`).
_BY_UFUNC = ("sum", "prod", "max", "min", "any", "all")


def _reduced(xp: Any, name: str, x: Block, starts: Numbers) -> Block:
    """Return each run of rows of a block reduced to one row."""
    if xp is np:
        return MONOIDS[name].ufunc.reduceat(x, starts[:-1], axis=0)
    return xp.stack([getattr(xp, name)(x[a:b, ...], axis=0) for a, b in pairwise(starts)])


def _scattered(xp: Any, rows: Block | None, segments: Numbers, n: int, like: Block, fill: Any) -> Block:
    """Return the rows at their segments, and `fill` at the others."""
    out = xp.full((n, *like.shape[1:]), fill, dtype=like.dtype if rows is None else rows.dtype, device=like.device)
    if rows is None:
        return out
    if xp is np:
        out[segments] = rows
        return out
    for i, segment in enumerate(segments):
        out[segment, ...] = rows[i, ...]
    return out


def _ordered(xp: Any, x: Block, order: Block | None) -> Block:
    return x if order is None else xp.take(x, order, axis=0)


def _of_nothing(xp: Any, name: str, dtype: Any) -> Any:
    """Return what becomes of a segment without elements; of extrema the number that any other one beats."""
    if name not in ("max", "min"):
        return int(name in ("prod", "all"))
    if dtype.kind in "mM":  # of numpy alone; the number before the smallest is not a time
        return np.int64(-(2**63) + 1 if name == "max" else 2**63 - 1).astype(dtype)
    if xp.isdtype(dtype, "bool"):
        return name == "min"
    if xp.isdtype(dtype, "integral"):
        return xp.iinfo(dtype).min if name == "max" else xp.iinfo(dtype).max
    return -xp.inf if name == "max" else xp.inf


def _by_ufunc(name: str) -> Callable[..., State]:
    def state(xp: Any, x: Block, order: Block | None, segments: Numbers, starts: Numbers, n: int) -> State:
        x = _ordered(xp, x, order)
        if name in ("any", "all"):
            x = xp.astype(x, xp.bool, copy=False)
        elif name in ("sum", "prod"):  # small integers are added up in wide ones
            x = _wide(xp, xp.astype(x, xp.sum(x[:0, ...], axis=0).dtype, copy=False))
        rows = _reduced(xp, name, x, starts) if len(segments) else None
        return (_scattered(xp, rows, segments, n, x, _of_nothing(xp, name, x.dtype)),)

    return state


def _counted(xp: Any, x: Block, order: Block | None, segments: Numbers, starts: Numbers, n: int) -> State:
    """Return the elements of each segment, once for the axes beside it."""
    counts = xp.zeros((n,), dtype=xp.int64, device=x.device)
    if xp is np:
        counts[segments] = np.diff(starts)
    else:
        for segment, a, b in zip(segments, starts, starts[1:]):
            counts[segment] = b - a
    return (xp.reshape(counts, (n, *(1,) * (x.ndim - 1))),)


def _wide(xp: Any, x: Block) -> Block:
    """Return half floats in single precision, in which numpy adds them up, and anything else as it is."""
    return xp.astype(x, xp.float32) if not is_strict(xp) and x.dtype == np.float16 else x


def _floating(xp: Any, x: Block) -> Block:
    """Return numbers of which there is a mean: spans of time as they are, whole numbers in double precision."""
    is_mean = xp.isdtype(x.dtype, ("real floating", "complex floating")) or (xp is np and x.dtype.kind == "m")
    return _wide(xp, x) if is_mean else xp.astype(x, xp.float64)


def _mean_state(xp: Any, x: Block, *where: Any) -> State:
    return (*_STATES["sum"](xp, _floating(xp, x), *where), *_counted(xp, x, *where))


def _moments(xp: Any, x: Block, order: Block | None, segments: Numbers, starts: Numbers, n: int) -> State:
    x = _ordered(xp, _floating(xp, x), order)
    total, count = _mean_state(xp, x, None, segments, starts, n)
    mean = _quotient(xp, total, xp.where(count > 0, count, 1))
    lengths = [b - a for a, b in pairwise(starts)]
    if not len(segments):
        return count, mean, xp.abs(mean)
    if xp is np:
        away = x - np.repeat(mean[segments], lengths, axis=0)
    else:
        parts = [x[a:b, ...] - mean[s, ...] for s, a, b in zip(segments, starts, starts[1:])]
        away = xp.concat(parts)
    square = xp.abs(away) ** 2
    (spread,) = _STATES["sum"](xp, square, None, segments, starts, n)
    return count, mean, spread


def _picked(last: bool) -> Callable[..., State]:
    def state(xp: Any, x: Block, order: Block | None, segments: Numbers, starts: Numbers, n: int) -> State:
        x = _ordered(xp, x, order)
        at = xp.asarray(starts, dtype=xp.int64, device=x.device)
        rows = xp.take(x, at[1:] - 1 if last else at[:-1], axis=0) if len(segments) else None
        return _scattered(xp, rows, segments, n, x, 0), _counted(xp, x, order, segments, starts, n)[0] > 0

    return state


def _quotient(xp: Any, total: Block, count: Block) -> Block:
    """Return `total` per `count`; nan, or no time, of nothing."""
    safe = xp.where(count > 0, count, 1)
    if xp is np and total.dtype.kind == "m":
        return np.where(count > 0, total / safe, np.timedelta64("NaT"))
    kind = xp.abs(total[:0, ...]).dtype
    result = total / xp.astype(safe, kind)
    return xp.where(count > 0, result, xp.asarray(xp.nan, dtype=result.dtype, device=result.device))


def _merge_ufunc(name: str) -> Callable[..., State]:
    def merge(xp: Any, left: State, right: State) -> State:
        return tuple([MONOIDS[name].merged(a, b) for a, b in zip(left, right, strict=True)])

    return merge


def _merge_moments(xp: Any, left: State, right: State) -> State:
    # Where one side has nothing of a segment there is no distance: its square might overflow.
    (n, mean, spread), (k, other, other_spread) = left, right
    left, right = (n, xp.where(n > 0, mean, other), spread), (k, xp.where(k > 0, other, mean), other_spread)
    merged: State = MONOIDS["moments"].merge(left, right)
    return merged


def _merge_first(xp: Any, left: State, right: State) -> State:
    return xp.where(left[1], left[0], right[0]), left[1] | right[1]


def _merge_last(xp: Any, left: State, right: State) -> State:
    return xp.where(right[1], right[0], left[0]), left[1] | right[1]


_STATES: dict[str, Callable[..., State]] = {
    **{name: _by_ufunc(name) for name in _BY_UFUNC},
    "count": _counted,
    "mean": _mean_state,
    "var": _moments,
    "first": _picked(last=False),
    "last": _picked(last=True),
}
_MERGES: dict[str, Callable[..., State]] = {
    **{name: _merge_ufunc(name) for name in _BY_UFUNC},
    **dict.fromkeys(("count", "mean"), _merge_ufunc("sum")),
    "var": _merge_moments,
    "first": _merge_first,
    "last": _merge_last,
}

#: By name of the operation.
FOLD: dict[str, Fold] = {
    "reduction": _UserReduction(),
    "segment_reduce": _Segments(),
    "segment_reduce_all": _Segments(takes_all=True),
}
