"""Marked elements of a vector that is cut: how many, which, and how many before each place.

A mask lies as the vector does. Only the number of its true elements in each tile comes to the host; what is made with
these numbers as boundaries stays where it lies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from distarray.expr.bind import bind, bind_create, bind_tiles, literal
from distarray.expr.expr import Expr
from distarray.expr.op import declare
from distarray.expr.params import IndexParams
from distarray.expr.tiles import Bounds
from distarray.ops.creation import EMPTY
from distarray.ops.indexing import MASK_COUNTS, NONZERO, TAKE_PUT
from distarray.sharding.sharding import Sharding
from distarray.types import HostArray

#: operands: the mask, arrays cut alike
COMPRESS_TILES = declare("compress_tiles", "tiles")
#: operands: the mask, the number of true elements in the tiles before each
RANK_TILES = declare("rank_tiles", "tiles")


def counts_of(mask: Expr, bounds: Bounds, cut: Sharding | None) -> Expr:
    """Return the number of true elements of each tile."""
    tiles = range(len(bounds))
    (counts,) = bind_tiles(MASK_COUNTS, [(mask, bounds)], [((len(tiles) - 1,), np.int64, tiles)], cut)
    return counts


def _found(counts: HostArray) -> list[int]:
    return np.cumsum([0, *counts]).tolist()


def chosen(
    mask: Expr, arrays: Sequence[Expr], counts: HostArray, bounds: Bounds, cut: Sharding | None
) -> tuple[Expr, ...]:
    """Return the elements of `arrays`, which are cut alike along axis 0, where `mask`, of their first axes, is true."""
    found = _found(counts)
    results = [((found[-1], *x.shape[mask.ndim :]), x.dtype, found) for x in arrays]
    return bind_tiles(COMPRESS_TILES, [(x, bounds) for x in (mask, *arrays)], results, cut)


def places_of(mask: Expr, counts: HostArray, bounds: Bounds, cut: Sharding | None) -> Expr:
    """Return where `mask` is true."""
    found = _found(counts)
    (places,) = bind_tiles(NONZERO, [(mask, bounds)], [((found[-1],), np.int64, found)], cut)
    return places


def ranks_of(mask: Expr, counts: HostArray, bounds: Bounds, cut: Sharding | None) -> Expr:
    """Return how many elements of `mask` are true up to each place, less one: the number of the last true one."""
    before = literal(np.array(_found(counts)[:-1], np.int64), mask.env, "counts")
    operands: list[Any] = [(mask, bounds), (before, range(len(bounds)))]
    (ranks,) = bind_tiles(RANK_TILES, operands, [(mask.shape, np.int64, bounds)], cut)
    return ranks


def scattered(places: Expr, values: Expr, n: int, cut: Sharding | None) -> Expr:
    """Return a vector of `n` elements, cut regularly, with `values` at `places`, which are all of ``0 .. n - 1``
    once.
    """
    regular = None if cut is None else Sharding(cut.mesh, cut.axes[:1])
    base = bind_create(EMPTY, (n,), values.dtype, values.env, (), None, regular)
    return bind(TAKE_PUT, (base, values, places), (n,), values.dtype, IndexParams((0,), 0, 1))
