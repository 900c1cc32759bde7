"""Counting small integers: every tile counts its own, and the counts are added."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from distarray.expr.bind import bind_tiles, unbox
from distarray.expr.expr import Expr
from distarray.expr.op import declare
from distarray.ops.families import Array, one_array
from distarray.ops.manipulation import slice_at
from distarray.ops.programs import vector_cut
from distarray.ops.reductions import sum as _sum
from distarray.sharding.sharding import Sharding

#: operands: the integers, their weights if there are any. params: (how many numbers are counted,)
BINCOUNT_TILES = declare("bincount_tiles", "tiles")
#: operands: the integers. params: (how many numbers are counted,)
WITHIN_TILES = declare("within_tiles", "tiles")


def counted(x: Array, weights: Array | None, n: int) -> Array:
    """Return how often each of ``0 .. n - 1`` stands in an array that has no others, or the sum of the weights where it
    does.

    Every member counts its rows, and holds `n` numbers.
    """
    operands = unbox("bincount", (x,) if weights is None else (x, weights))
    nodes: list[Expr] = operands.nodes  # type: ignore[assignment]  # arrays, checked by the caller
    cut, bounds = _tiles_of(nodes[0])
    n_tiles = len(bounds) - 1
    results: list[Any] = [((n_tiles, n), np.intp if weights is None else np.float64, range(n_tiles + 1))]
    (counts,) = bind_tiles(BINCOUNT_TILES, [(node, bounds) for node in nodes], results, cut, (n,))
    return operands.box(_of_all(counts))


def counted_within(x: Array, n: int) -> tuple[Array, Array]:
    """Return how often each of ``0 .. n - 1`` stands in a vector if there are no others; and for each of its tiles the
    least and the largest element, or 0 where that is less, or more: the counts mean nothing if one is not within.

    The vector is read once.
    """
    node, box = one_array("bincount", x)
    cut, bounds = _tiles_of(node)
    n_tiles = len(bounds) - 1
    each, dtype = range(n_tiles + 1), np.uint64 if node.dtype == np.uint64 else np.int64
    results = [((n_tiles, n), np.intp, each), ((n_tiles, 2), dtype, each)]
    counts, ends = bind_tiles(WITHIN_TILES, [(node, bounds)], results, cut, (n,))
    return box(_of_all(counts)), box(ends)


def _of_all(counts: Expr) -> Expr:
    """Return the sum of the counts of tiles, each a row."""
    if counts.shape[0] == 1:  # nothing is added, and nothing written again
        return slice_at(counts, 0, 0)
    return _sum(counts, axis=0)


def _tiles_of(node: Expr) -> tuple[Sharding | None, Sequence[int]]:
    """Return how a vector is cut to be counted, and where its tiles begin and end."""
    cut = vector_cut(node)
    return cut, (0, node.shape[0]) if cut is None else cut.boundaries(node.shape[:1])[0]
