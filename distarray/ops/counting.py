"""Counting small integers: every tile counts its own, and the counts are added."""

from __future__ import annotations

from typing import Any

import numpy as np

from distarray.expr.bind import bind_tiles, unbox
from distarray.expr.expr import Expr
from distarray.expr.op import declare
from distarray.ops.families import Array
from distarray.ops.programs import vector_cut
from distarray.ops.reductions import sum as _sum

__all__ = ["counted"]

#: operands: the integers, their weights if there are any. params: (how many numbers are counted,)
BINCOUNT_TILES = declare("bincount_tiles", "tiles")


def counted(x: Array, weights: Array | None, n: int) -> Array:
    """Return how often each of ``0 .. n - 1`` stands in an array that has no others, or the sum of the weights where it
    does.

    Every member counts its rows, and holds `n` numbers.
    """
    operands = unbox("bincount", (x,) if weights is None else (x, weights))
    nodes: list[Expr] = operands.nodes  # type: ignore[assignment]  # arrays, checked by the caller
    cut = vector_cut(nodes[0])
    bounds = (0, nodes[0].shape[0]) if cut is None else cut.boundaries(nodes[0].shape[:1])[0]
    n_tiles = len(bounds) - 1
    results: list[Any] = [((n_tiles, n), np.intp if weights is None else np.float64, range(n_tiles + 1))]
    (counts,) = bind_tiles(BINCOUNT_TILES, [(node, bounds) for node in nodes], results, cut, (n,))
    return operands.box(_sum(counts, axis=0))
