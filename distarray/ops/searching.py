"""Searching in sorted vectors: where elements would have to be inserted.

A vector of one tile goes to where the sought elements lie. Of a vector that is cut every tile counts the elements
before each sought one, and the counts are added. Where both are too large to be whole at one place, all are sorted
together.
"""

from __future__ import annotations

from collections.abc import Generator

import numpy as np

from distarray.arguments import shown
from distarray.expr.bind import bind, bind_reshape, bind_tiles, unbox
from distarray.expr.expr import Expr
from distarray.expr.op import declare
from distarray.ops.creation import full
from distarray.ops.elementwise import add, greater_equal, less, logical_not, subtract
from distarray.ops.families import Array, by_numpy
from distarray.ops.indexing import take
from distarray.ops.joining import concat
from distarray.ops.marks import chosen, counts_of, ranks_of, scattered
from distarray.ops.programs import WHOLE_NBYTES, Ask, boxed, run, vector_cut
from distarray.ops.reductions import sum as _sum
from distarray.ops.runs import sorted_vector
from distarray.sharding import cuts
from distarray.sharding.sharding import Sharding
from distarray.types import HostArray

#: params: (side,)
SEARCHSORTED = declare("searchsorted", "block", rule="i, ... -> ... | i: whole")
#: operands: (positions, the points' own, their values)
INTERP = declare("interp", "block", rule="..., i, i -> ... | i: whole")
SEARCHSORTED_BY = declare("searchsorted_by", "block", rule="i, i, ... -> ... | i: whole", may_raise=True)
#: The positions, an error where one is outside. params: (how many there are,)
SORTER = declare("sorter", "block", rule="i -> i", may_raise=True)
#: How many elements of each tile stand before each sought element: one row for each tile. params: (side,)
SEARCH_TILES = declare("search_tiles", "tiles")


@by_numpy(np.searchsorted)
def searchsorted(x1: Array, x2: Array, /, side: str = "left", sorter: Array = None) -> Array:
    """Return the indices at which the elements of `x2` would be inserted into the sorted vector `x1`.

    They go before equal elements, with ``side="right"`` behind them. `sorter` has the indices that sort `x1`, if it is
    not sorted itself.
    """
    if not isinstance(side, str):
        raise TypeError(f"side={shown(side)}: search side must be str, not {type(side).__name__}")
    if side not in ("left", "right"):
        raise ValueError(f"search side must be 'left' or 'right' (got {side!r})")
    operands = unbox("searchsorted", (x1, x2) if sorter is None else (x1, x2, sorter))
    row, sought, *order = operands.nodes
    if type(row) is not Expr or row.ndim != 1:
        raise ValueError("object of too small depth for desired array")
    if type(sought) is not Expr:
        # a Python scalar adopts the dtype of the row where it fits
        dtype = np.result_type(row.dtype, sought)
        try:
            np.asarray(sought, dtype)
        except OverflowError:
            dtype = np.asarray(sought).dtype
        sought = full((), sought, dtype, operands.env)
    np.searchsorted(np.zeros(min(row.size, 1), row.dtype), np.zeros(min(sought.size, 1), sought.dtype))  # its errors
    if not order:
        return operands.box(_searched(row, sought, side))
    by = order[0]
    if type(by) is not Expr or by.dtype.kind not in "iu":
        raise TypeError("sorter must only contain integers")
    if by.shape != row.shape:
        raise ValueError("sorter.size must equal len(a)")
    if vector_cut(row) is not None:
        by = bind(SORTER, (by,), by.shape, by.dtype, by.shape)
        boxed("searchsorted", operands.box, [by])
        return operands.box(_searched(take(row, by, axis=0), sought, side))
    return operands.box(bind(SEARCHSORTED_BY, (row, by, sought), sought.shape, np.dtype(np.intp), (side,)))


def interpolated(x: Expr, knots: Expr, values: Expr) -> Expr:
    """Return what NumPy makes of the positions `x` between points whose vectors are whole at each place."""
    return bind(INTERP, (x, knots, values), x.shape, np.result_type(values.dtype, np.float64))


def _searched(row: Expr, sought: Expr, side: str) -> Expr:
    cut = vector_cut(row)
    if cut is not None and sought.size:
        bounds = cut.boundaries(row.shape)[0]
        if sought.nbytes <= max(WHOLE_NBYTES, row.nbytes // cut.n_tiles):
            return _counted(row, sought, side, bounds, cut)
        if row.nbytes > max(WHOLE_NBYTES, sought.nbytes // cut.n_tiles):
            return run("searchsorted", _sorted_together(row, sought, side, cut))
    return bind(SEARCHSORTED, (row, sought), sought.shape, np.dtype(np.intp), (side,))


def _counted(row: Expr, sought: Expr, side: str, bounds: tuple[int, ...], cut: Sharding) -> Expr:
    flat = bind_reshape(sought, (sought.size,))
    result = ((cut.n_tiles, flat.size), np.int64, range(cut.n_tiles + 1))
    (counts,) = bind_tiles(SEARCH_TILES, [(row, bounds), (flat, None)], [result], cut, (side,))
    return bind_reshape(_sum(counts, axis=0), sought.shape)


def _sorted_together(row: Expr, sought: Expr, side: str, cut: Sharding) -> Generator[Ask, tuple[HostArray, ...], Expr]:
    """Return a program: all are sorted together, so that no member holds more than its share, whatever the keys.

    Of equal elements the sought ones come first for ``left``, hence behind none of them, and last for ``right``.
    """
    flat = bind_reshape(sought, (sought.size,))
    n, cut = flat.size, Sharding(cut.mesh, cut.axes)  # evenly, wherever the row has its boundaries
    both = concat([flat, row] if side == "left" else [row, flat])
    (order,) = yield from sorted_vector(both, cut, "order")
    bounds = cuts.boundaries(order.size, cut.n_tiles)
    is_row = greater_equal(order, n) if side == "left" else less(order, row.size)
    (rows,) = yield Ask((counts_of(is_row, bounds, cut),), kept=(order,))
    ranks = ranks_of(is_row, rows, bounds, cut)
    is_sought = logical_not(is_row)
    places, found = chosen(is_sought, [order, ranks], np.diff(bounds) - rows, bounds, cut)
    first = 0 if side == "left" else row.size
    return bind_reshape(scattered(subtract(places, first), add(found, 1), n, cut), sought.shape)
