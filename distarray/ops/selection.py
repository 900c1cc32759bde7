"""Selection: the elements of given ranks of a vector that is cut, without sorting it.

A sample says between which elements the wanted ones should be. One pass over the tiles counts the elements below and up
to each of these pivots: a wanted element is a pivot, or it lies strictly between two of them. Only what lies there is
taken out, about n^(2/3) elements, and selected from by sorting. Whatever the sample, the answer is exact; a sample
that misleads makes more elements to be taken out, never more than each member has.

References
----------
Floyd and Rivest, "Expected time bounds for selection", 1975.
"""

from __future__ import annotations

from collections.abc import Generator
from math import isqrt
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from distarray.expr.bind import bind_tiles, literal
from distarray.expr.expr import Expr
from distarray.expr.op import declare
from distarray.ops.programs import Ask, together
from distarray.ops.runs import Runs, elements_at, picked, sorted_runs
from distarray.sharding.sharding import Sharding
from distarray.types import HostArray

#: operands: the vector, the pivots. A row for each tile: how many elements are below each pivot, how many up to it, and
#: how many are no nan.
COUNT_TILES = declare("count_tiles", "tiles")
#: operands: the vector, the limits that there are. params: whether there is a lower one, and an upper one.
BETWEEN_TILES = declare("between_tiles", "tiles")

#: Vectors up to this size are sorted in tiles instead; so are vectors of which more pivots would be looked at.
SMALL, MANY = 1 << 13, 32

Ranks: TypeAlias = NDArray[np.int64]
Selecting: TypeAlias = Generator[Ask, tuple[HostArray, ...], HostArray]


def ranked(row: Expr, cut: Sharding, ranks: Ranks) -> Selecting:
    """Return a program: the elements of these ranks, in ``0 .. n - 1``, of the order of a vector, as a host array."""
    wanted, inverse = np.unique(ranks, return_inverse=True)
    n_samples = 0 if row.dtype.kind == "c" else round(row.size ** (2 / 3))
    places = np.unique([_around(rank, row.size, n_samples) for rank in wanted.tolist()])
    if row.size <= SMALL or len(places) > MANY or not n_samples:
        found = yield from elements_at(sorted_runs(row, cut, stable=False), wanted)
    else:
        sample = yield from _sample(row, cut, n_samples)
        pivots = np.unique(sample[places[(places >= 0) & (places < len(sample))]])
        found = yield from _between(row, cut, wanted, pivots[pivots == pivots])  # without nan
    return found[inverse.reshape(ranks.shape)]


def _around(rank: int, n: int, n_samples: int) -> tuple[int, int]:
    """Return the samples that the element of a rank should lie between; it does at three standard deviations."""
    middle, away = rank * n_samples // n, 3 * isqrt(n_samples) // 2
    return middle - away, middle + away + 1


def _sample(row: Expr, cut: Sharding, n: int) -> Selecting:
    """Return a program: elements at regular places, in order."""
    bounds = cut.boundaries(row.shape)[0]
    positions = []
    for length in np.diff(bounds).tolist():
        share = -(-n * length // row.size)
        positions.append((2 * np.arange(share, dtype=np.int64) + 1) * length // (2 * share or 1))
    (values,) = yield Ask((picked(Runs(row, None, bounds, cut, False), positions),), kept=(row,))
    return np.sort(values)


def _between(row: Expr, cut: Sharding, ranks: Ranks, pivots: HostArray) -> Selecting:
    """Return a program: the elements of these ranks, found among the pivots and in the gaps between them."""
    bounds, m = cut.boundaries(row.shape)[0], len(pivots)
    result = ((cut.n_tiles, 2 * m + 1), np.int64, range(cut.n_tiles + 1))
    operands: list[Any] = [(row, bounds), (literal(pivots, row.env, "pivots"), None)]
    (counts,) = yield Ask(bind_tiles(COUNT_TILES, operands, [result], cut), kept=(row,))
    below, up_to = np.append(counts[:, :m], counts[:, -1:], axis=1), np.insert(counts[:, m:-1], 0, 0, axis=1)
    # Gap k is between pivots k - 1 and k: its elements are those of the ranks from starts[k] to ends[k].
    starts, ends = up_to.sum(axis=0), below.sum(axis=0)
    found = np.full(len(ranks), _nan_of(row.dtype), row.dtype)
    gap = np.searchsorted(ends, ranks, side="right")
    is_known = gap <= m  # the others are nan
    programs, places = [], []
    for k in np.unique(gap[is_known]).tolist():
        here = gap == k
        is_pivot = here & (ranks < starts[k])
        if is_pivot.any():
            found[is_pivot] = pivots[k - 1]
        inside = here & ~is_pivot
        if inside.any():
            inner, inner_cut = _taken_out(row, cut, pivots, k, below[:, k] - up_to[:, k])
            programs.append(elements_at(sorted_runs(inner, inner_cut, stable=False), ranks[inside] - starts[k]))
            places.append(inside)
    for place, values in zip(places, (yield from together(programs)), strict=True):
        found[place] = values
    return found


def _nan_of(dtype: np.dtype[Any]) -> Any:
    """Return what nan or not-a-time is; 0 where there is none, and none can be found."""
    return np.array("NaT", dtype) if dtype.kind in "mM" else np.nan if dtype.kind == "f" else 0


def _taken_out(row: Expr, cut: Sharding, pivots: HostArray, gap: int, counts: Ranks) -> tuple[Expr, Sharding]:
    """Return the elements in a gap, of which each tile has so many, and how they are cut."""
    limits = pivots[max(gap - 1, 0) : gap + 1]
    found = np.cumsum([0, *counts]).tolist()
    operands: list[Any] = [(row, cut.boundaries(row.shape)[0]), (literal(limits, row.env, "pivots"), None)]
    result = ((found[-1],), row.dtype, found)
    (inner,) = bind_tiles(BETWEEN_TILES, operands, [result], cut, (gap > 0, gap < len(pivots)))
    return inner, Sharding(cut.mesh, cut.axes, (), (tuple(found),))
