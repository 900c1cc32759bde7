"""Sorted runs: a vector whose tiles are each in order, exact splitting of it by rank, and its merge.

All order statistics stand on this. A vector that is cut is sorted tile by tile, where its elements lie (`sorted_runs`).
Its elements have one total order: by key, elements with equal keys by their tile, then by their place in it; as the
tiles are sorted stably, that is the order of a stable sort. `split` finds, for any ranks, how many elements of each
tile come before: a few rounds of looking at samples, whatever the keys (docs/explanation/sorting.md). `merged` brings
each tile of the sorted vector its slice of every run; all tiles of it have the regular cut's size, also where all keys
are equal.

References
----------
Multiway selection and exact splitting: Varman, Scheufler, Iyer and Ricard, "Merging multiple lists on
hierarchical-memory multiprocessors", 1991; rounds of samples: Solomonik and Kale, "Highly scalable parallel sorting",
2010.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from itertools import pairwise
from math import isqrt
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from distarray.expr.bind import bind_tiles, literal
from distarray.expr.expr import Expr
from distarray.expr.op import declare
from distarray.expr.tiles import Bounds
from distarray.ops.manipulation import sliced
from distarray.ops.programs import Ask
from distarray.sharding import cuts
from distarray.sharding.sharding import Sharding
from distarray.types import HostArray

#: params: (whether the order is a result too, descending, stable)
SORT_TILES = declare("sort_tiles", "tiles")
#: params: (``keys``, ``order`` or ``both``, descending); operands: the runs, then where their elements stood
MERGE_TILES = declare("merge_tiles", "tiles")
#: operands: the array, positions in each tile
PICK_TILES = declare("pick_tiles", "tiles")

#: Samples of one round of `split`, at most; and those of each interval, at least.
SAMPLES, SAMPLES_OF_INTERVAL = 1 << 16, 32

Positions: TypeAlias = NDArray[np.int64]
#: A part of a program: what it asks for, what it receives, what it returns.
Splitting: TypeAlias = Generator[Ask, tuple[HostArray, ...], Positions]


class Runs(NamedTuple):
    """Runs are a vector whose tiles are each in order.

    Parameters
    ----------
    keys
        The elements.
    order
        Where in the vector each of them stood; None if nobody asks.
    bounds, cut
        Boundaries of the tiles, and the mesh axes on which they lie (None: there is one tile).
    descending
        Whether the largest come first.
    """

    keys: Expr
    order: Expr | None
    bounds: Bounds
    cut: Sharding | None
    descending: bool

    @property
    def nodes(self) -> tuple[Expr, ...]:
        """Return what has to stay where it lies until it is merged."""
        return (self.keys,) if self.order is None else (self.keys, self.order)


def sorted_runs(
    x: Expr, cut: Sharding | None, *, with_order: bool = False, descending: bool = False, stable: bool = True
) -> Runs:
    """Return the tiles of a vector, each in order.

    Parameters
    ----------
    cut
        See `programs.vector_cut`.
    with_order
        Whether it is to be known where the elements stood.
    """
    bounds = (0, x.size) if cut is None else cut.boundaries(x.shape)[0]
    results: list[Any] = [(x.shape, x.dtype, bounds)]
    if with_order:
        results.append((x.shape, np.int64, bounds))
    made = bind_tiles(SORT_TILES, [(x, bounds)], results, cut, (with_order, descending, stable))
    return Runs(made[0], made[1] if with_order else None, bounds, cut, descending)


def sorted_vector(
    x: Expr, cut: Sharding | None, wanted: str, *, descending: bool = False
) -> Generator[Ask, tuple[HostArray, ...], tuple[Expr, ...]]:
    """Return a program: the vector in stable order, cut regularly over the places of `cut`.

    Parameters
    ----------
    wanted
        ``keys``, ``order`` (where they stood), or ``both``.
    """
    runs = sorted_runs(x, cut, with_order=wanted != "keys", descending=descending)
    nodes = runs.nodes if cut is None else (yield from merged_evenly(runs, wanted))
    return nodes[-1:] if wanted == "order" else nodes


def merged_evenly(runs: Runs, wanted: str) -> Generator[Ask, tuple[HostArray, ...], tuple[Expr, ...]]:
    """Return a program: runs of several tiles merged to a vector that is cut regularly over their places; for `wanted`
    see `sorted_vector`.
    """
    yield Ask((), ahead=merged_ahead(runs, wanted))
    bounds, ranks = _even_places(runs)
    positions = yield from split(runs, ranks)
    return merged(runs, positions, bounds, wanted)


def merged_ahead(runs: Runs, wanted: str) -> tuple[Expr, ...]:
    """Return nodes that need as much memory as to merge runs evenly (`merged_evenly`), which are never computed."""
    bounds, ranks = _even_places(runs)
    # Tiles of the result have the same sizes whatever the keys are; what comes from where is taken to be even.
    return merged(runs, _even(_lengths(runs.bounds), ranks), bounds, wanted)


def _even_places(runs: Runs) -> tuple[tuple[int, ...], Positions]:
    """Return where the tiles of a vector begin and end that is cut regularly over the places of runs, and the ranks at
    which all but the first begin.
    """
    assert runs.cut is not None
    bounds = cuts.boundaries(runs.keys.size, runs.cut.n_tiles)
    return bounds, np.array(bounds[1:-1], np.int64)


# ---------------------------------------------------------------------------------------------------- splitting


def split(runs: Runs, ranks: Positions) -> Splitting:
    """Return how many elements of each tile come before the elements of these ranks.

    Each pair of a tile and a rank has an interval that the answer lies in. A round looks at elements at regular
    positions of all intervals, puts them in order, and knows of each of them between which ranks it lies; so all
    intervals shrink by about the number of samples in them. Two or three rounds are enough for any size that fits into
    memory.

    Parameters
    ----------
    ranks
        In ``0 .. n``, in any order.

    Returns
    -------
    Positions
        One row for each tile, one column for each rank; a column sums to its rank.
    """
    n, lengths = runs.bounds[-1], _lengths(runs.bounds)[:, None]
    low, high = np.maximum(0, ranks - (n - lengths)), np.minimum(lengths, ranks)
    while (low < high).any():
        positions = _samples(low, high, n)
        (values,) = yield Ask((picked(runs, positions),), kept=runs.nodes)
        low, high = _narrowed(values, positions, low, high, ranks, lengths[:, 0], runs.descending)
    return np.asarray(low, np.int64)


def _even(lengths: Positions, ranks: Positions) -> Positions:
    """Return how many elements of each tile come before each rank if all tiles have the same distribution; rounded
    down.

    Parameters
    ----------
    lengths
        Of the tiles; they sum to the size of the vector, which no rank exceeds.

    Returns
    -------
    Positions
        One row for each tile, one column for each rank.
    """
    size = max(sum(lengths.tolist()), 1)
    # Of Python's integers: the product of a length and a rank overflows 64 bits from about 3e9 elements on.
    rows = [[length * rank // size for rank in ranks.tolist()] for length in lengths.tolist()]
    return np.array(rows, np.int64).reshape(len(lengths), len(ranks))


def _lengths(bounds: Bounds) -> Positions:
    return np.array([stop - start for start, stop in pairwise(bounds)], np.int64)


def _samples(low: Positions, high: Positions, n: int) -> list[Positions]:
    """Return for each tile the positions to look at: regular ones of its open intervals, all of them where these are
    few.
    """
    intervals = [np.unique(np.stack([a, b])[:, a < b], axis=1).T for a, b in zip(low, high)]
    widths = np.concatenate([i[:, 1] - i[:, 0] for i in intervals])
    n_tiles, n_ranks = low.shape
    # A round leaves about 4 / (samples of an interval) of the elements of an interval, of every rank that it serves.
    # With this many samples the next round has as many to look at, all that are left.
    aim = isqrt(4 * n * n_ranks * n_tiles)
    if widths.sum() <= min(2 * aim, SAMPLES):
        each = int(widths.max())
    else:
        share = isqrt(4 * int(widths.sum()) * int((low < high).sum())) // len(widths)
        each = max(min(share, SAMPLES // len(widths)), SAMPLES_OF_INTERVAL)
    nothing = np.empty(0, np.int64)
    return [np.unique(np.concatenate([nothing, *[_regular(int(a), int(b), each) for a, b in i]])) for i in intervals]


def _regular(low: int, high: int, n: int) -> Positions:
    width = high - low
    if width <= n:
        return np.arange(low, high, dtype=np.int64)
    return low + np.arange(1, n + 1, dtype=np.int64) * width // (n + 1)


def _narrowed(
    values: HostArray,
    positions: Sequence[Positions],
    low: Positions,
    high: Positions,
    ranks: Positions,
    lengths: Positions,
    descending: bool,
) -> tuple[Positions, Positions]:
    """Return the intervals after the samples `values` at `positions` have been seen, tile by tile."""
    n_tiles, n_samples = len(positions), len(values)
    tiles = np.arange(n_tiles)
    # Stable, and the samples of a tile in order: this is the total order of the elements.
    owner = np.repeat(tiles, [len(p) for p in positions])[_stable_order(values, descending)]
    before = np.zeros((n_samples + 1, n_tiles), np.int64)
    before[np.arange(1, n_samples + 1), owner] = 1
    np.cumsum(before, axis=0, out=before)
    # The samples of each tile, with one before its first element and those behind its last
    table = np.full((n_tiles, int(before[-1].max()) + 2), lengths[:, None])
    table[:, 0] = -1
    for row, p in zip(table, positions):
        row[1 : len(p) + 1] = p

    def at_most(sample: Positions) -> Positions:
        """Return how many elements stand before a sample at most, of those that may matter to the rank of its
        number.
        """
        upper = table[tiles, before[sample] + 1]
        return np.clip(upper.T, low, high).sum(axis=0)

    def at_least(sample: Positions) -> Positions:
        seen = before[sample]
        # of its own tile exactly as many as its position says
        exact = owner[sample][:, None] == tiles
        lower = table[tiles, seen + exact] + ~exact
        return np.clip(lower.T, low, high).sum(axis=0)

    first_open = _count_leading(n_samples, len(ranks), lambda s: at_most(s) < ranks)
    first_after = _count_leading(n_samples, len(ranks), lambda s: at_least(s) < ranks)
    new_low = (table[tiles, before[first_open]] + 1).T
    new_high = table[tiles, before[first_after] + 1].T
    return np.maximum(low, new_low), np.minimum(high, new_high)


def _stable_order(values: HostArray, descending: bool) -> Positions:
    if not descending:
        return np.argsort(values, kind="stable")
    return (len(values) - 1 - np.argsort(values[::-1], kind="stable"))[::-1]


def _count_leading(n: int, m: int, holds: Callable[[Positions], NDArray[np.bool_]]) -> Positions:
    """Return for each of `m` predicates on ``0 .. n - 1`` that hold up to some number and then no more how often it
    holds.
    """
    low, high = np.zeros(m, np.int64), np.full(m, n, np.int64)
    while (low < high).any():
        middle = (low + high) // 2
        good = holds(np.minimum(middle, n - 1)) & (low < high)
        low, high = np.where(good, middle + 1, low), np.where(good, high, middle)
    return low


# -------------------------------------------------------------------------------------------- elements and merging


def picked(runs: Runs, positions: Sequence[Positions]) -> Expr:
    """Return the elements at these positions of each tile, tile after tile."""
    bounds = np.cumsum([0, *map(len, positions)]).tolist()
    at = literal(np.concatenate(positions), runs.keys.env, "positions")
    operands = [(runs.keys, runs.bounds), (at, bounds)]
    (node,) = bind_tiles(PICK_TILES, operands, [((bounds[-1],), runs.keys.dtype, bounds)], runs.cut)
    return node


def elements_at(runs: Runs, ranks: Positions) -> Generator[Ask, tuple[HostArray, ...], HostArray]:
    """Return a program: the elements of these ranks, in ``0 .. n - 1``, as a host array."""
    wanted, inverse = np.unique(ranks, return_inverse=True)
    before = yield from split(runs, wanted)
    lengths = _lengths(runs.bounds)[:, None]
    # The element is the first, in the total order, of those that come next in each tile.
    has_next = before < lengths
    positions = [np.unique(row[there]) for row, there in zip(before, has_next)]
    (values,) = yield Ask((picked(runs, positions),), kept=runs.nodes)
    start = np.cumsum([0, *map(len, positions)])
    at = np.array([s + np.searchsorted(p, row) for s, p, row in zip(start, positions, before)])
    first = [column[there] for column, there in zip(at.T, has_next.T)]
    found = [values[c][_stable_order(values[c], runs.descending)[0]] for c in first]
    return np.array(found, values.dtype)[inverse.reshape(ranks.shape)]


def merged(runs: Runs, before: Positions, bounds: Sequence[int], wanted: str) -> tuple[Expr, ...]:
    """Return the vector in order, with these boundaries; every tile reads a slice of each run, once.

    Parameters
    ----------
    before
        How many elements of each tile come before the inner boundaries: from `split`.
    wanted
        See `sorted_vector`.
    """
    assert runs.cut is not None
    results: dict[str, Any] = {}
    keys: list[tuple[Expr, Sequence[int]]] = []
    order: list[tuple[Expr, Sequence[int]]] = []
    for (start, stop), row in zip(pairwise(runs.bounds), before):
        if start == stop:
            continue
        cut = (0, *row.tolist(), stop - start)
        keys.append((sliced(runs.keys, 0, start, stop - start), cut))
        if runs.order is not None:
            order.append((sliced(runs.order, 0, start, stop - start), cut))
    if not keys:
        return runs.nodes  # nothing to merge
    results = {"keys": (runs.keys.shape, runs.keys.dtype, bounds), "order": (runs.keys.shape, np.int64, bounds)}
    made = [results[name] for name in (("keys", "order") if wanted == "both" else (wanted,))]
    operands = keys if wanted == "keys" else [*keys, *order]
    return bind_tiles(MERGE_TILES, operands, made, runs.cut, (wanted, runs.descending))
