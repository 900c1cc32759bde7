"""``reduce``, ``accumulate`` and ``reduceat`` of any function of two operands.

Associative functions (`ASSOCIATIVE`) fold the tiles of an axis side by side: a reduction is a monoid, a scan hands the
totals of the tiles to the tiles behind them, a segment that lies in several tiles is joined of its parts. The others
(``subtract``, ``power`` ...) go from the first element to the last, as in numpy; for them one task holds whole axes.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from distarray.arguments import normalize_axis
from distarray.dtypes import as_dtype
from distarray.expr.bind import bind, bind_reduce, bind_tiles, literal
from distarray.expr.expr import Expr, lying
from distarray.expr.indexing import parse_index
from distarray.expr.op import Op, declare
from distarray.ops.elementwise import astype
from distarray.ops.families import Array, one_array
from distarray.ops.indexing import put_item, take
from distarray.ops.manipulation import moveaxis
from distarray.ops.programs import over_all_places, row_cut
from distarray.sharding.sharding import Sharding
from distarray.types import DType, DTypeLike, HostArray

#: The rows of associative functions that `reductions` has no function for.
_REDUCE: dict[str, Op] = {
    name: declare(f"{name}.reduce", "reduce", monoid=name)
    for name in (
        *("bitwise_and", "bitwise_or", "bitwise_xor", "logical_xor"),
        *("fmax", "fmin", "gcd", "lcm", "hypot", "logaddexp", "logaddexp2"),
    )
}
#: ``f(f(a, b), c) == f(a, f(b, c))``, up to rounding; of lcm not where it exceeds its dtype.
ASSOCIATIVE = frozenset({"add", "multiply", "maximum", "minimum", "logical_and", "logical_or", *_REDUCE}) - {"lcm"}

#: They bring their rule along: the axis is any. params: (rule, name, dtype of the result, axis)
ACCUMULATE = declare("accumulate", "block")
ACCUMULATE_IN_ORDER = declare("accumulate_in_order", "block")
#: Brings its rule along: with a mask it has two operands.
REDUCE_IN_ORDER = declare("reduce_in_order", "block")
REDUCEAT_IN_ORDER = declare("reduceat_in_order", "block", rule="... i, j k -> ... j | i: whole, k: whole")
#: The same of integers that are raised to a power, which may be negative: an error. By the row of all others.
_OF_POWERS = {
    ACCUMULATE_IN_ORDER: declare("accumulate_powers", "block", may_raise=True),
    REDUCE_IN_ORDER: declare("reduce_powers", "block", may_raise=True),
    REDUCEAT_IN_ORDER: declare("reduceat_powers", "block", rule=REDUCEAT_IN_ORDER.rule, may_raise=True),
}
TILE_TOTALS = declare("tile_totals", "tiles")
TILE_SCAN = declare("tile_scan", "tiles")
TILE_SEGMENTS = declare("tile_segments", "tiles")


@lru_cache(maxsize=4096)
def resolved_dtype(name: str, method: str, dtype: DType, wanted: DType | None, out: DType | None = None) -> DType:
    """Return the dtype in which a method of numpy's function computes for an array of `dtype`; its TypeError if it has
    none.

    Parameters
    ----------
    method
        ``reduce`` or ``accumulate``; ``reduceat`` is as ``accumulate``.
    wanted
        What the caller asks for with ``dtype=``.
    out
        The dtype of ``out=``, which has a say where the caller asks for none.
    """
    if wanted is None and out is not None:
        function: np.ufunc = getattr(np, name)
        found = function.resolve_dtypes((out, dtype, None), casting="unsafe", reduction=True)
        if method != "reduce" and len({*found}) > 1:
            raise TypeError(f"the resolved dtypes are not compatible with {name}.{method}. Resolved {found}")
        return as_dtype(found[0])
    if wanted is not None and dtype.kind == "c" and wanted.kind in "biuf":
        dtype = wanted  # else numpy warns here of the imaginary part
    with np.errstate(all="ignore"):
        made = getattr(getattr(np, name), method)(np.ones(1, dtype), dtype=wanted)
    return as_dtype(made.dtype)


def of_nothing(name: str, dtype: DType) -> np.generic | None:
    """Return what numpy's function gives of nothing, as a number of `dtype`; None if it gives none."""
    value = getattr(np, name).identity
    return None if value is None else np.array([value]).astype(dtype)[0]  # -1 is all bits of an unsigned number


def _row_in_order(op: Op, name: str, dtype: DType) -> Op:
    """Return the row of what goes in order by numpy's function `name`, in a dtype."""
    return _OF_POWERS[op] if name == "power" and dtype.kind == "i" else op


def in_dtype(node: Expr, dtype: DType) -> Expr:
    """Return what is folded in `dtype`: complex numbers lose their imaginary parts here, with numpy's warning, and not
    in kernels, whose warnings nobody sees.
    """
    return astype(node, dtype) if node.dtype.kind == "c" and dtype.kind in "iuf" else node


def reduce(name: str, x: Array, axes: tuple[int, ...], dtype: DType, *, keepdims: bool = False) -> Array:
    """Reduce by an associative function without a reduction of its own over `axes`, in the dtype of the result."""
    if name in ("fmax", "fmin"):  # the order is that of what is cast: 300 is less than 100 as a byte
        node, box = one_array(name, x)
        x = box(astype(node, dtype))
    return bind_reduce(_REDUCE[name], x, axes, dtype, keepdims=keepdims)


def reduce_in_order(name: str, x: Array, axis: int, dtype: DType, *, initial: Hashable, where: Array) -> Array:
    """Apply a function that is not associative from the first element along `axis` to the last one.

    One task holds the axis whole, so the other axes must be long enough to be cut.

    Parameters
    ----------
    initial
        A number of numpy to begin with; None: with the first element.
    where
        Which elements count; of the shape of `x`. Needs `initial`.
    """
    node, box = one_array(name, x)
    operands = [moveaxis(node, axis, -1)]
    if where is not None:
        operands.append(moveaxis(one_array(name, where)[0], axis, -1))
    rule = f"{', '.join(['... i'] * len(operands))} -> ... | i: whole"
    params = (rule, name, dtype.str, initial)
    op = _row_in_order(REDUCE_IN_ORDER, name, dtype)
    return box(bind(op, operands, operands[0].shape[:-1], dtype, params))


# ------------------------------------------------------------------------------------------------------- scans


def accumulate(name: str, x: Array, axis: int, dtype: DTypeLike | None = None) -> Array:
    """Return the partial results of a function along `axis`, each element with all before it.

    Where the axis is cut, or too much of the array would lie along it, every tile is folded to one row, and goes on
    from the rows of the tiles before it: two passes, and no more traffic than those rows. Else the axis is made whole.
    """
    node, box = one_array(name, x)
    axis = normalize_axis(axis, node.ndim)
    result = resolved_dtype(name, "accumulate", node.dtype, None if dtype is None else as_dtype(dtype))
    node = in_dtype(node, result)
    params = (name, result.str)
    cut = _axis_cut(node, axis) if name in ASSOCIATIVE else None
    if cut is None:
        op = ACCUMULATE if name in ASSOCIATIVE else _row_in_order(ACCUMULATE_IN_ORDER, name, result)
        loops = " ".join(["i" if a == axis else f"a{a}" for a in range(node.ndim)])
        rule = f"{loops} -> {loops} | i: whole"
        return box(bind(op, (node,), node.shape, result, (rule, *params, axis)))
    rows = moveaxis(node, axis, 0)
    bounds = cut.boundaries(rows.shape)[0]
    parts = range(len(bounds))
    totals, starts = bind_tiles(
        TILE_TOTALS,
        [(rows, bounds)],
        [((len(bounds) - 1, *rows.shape[1:]), result, parts), ((len(bounds) - 1,), np.int64, parts)],
        cut,
        params,
    )
    operands = [(rows, bounds), (totals, None), (starts, None)]
    (scan,) = bind_tiles(TILE_SCAN, operands, [(rows.shape, result, bounds)], cut, params)
    return box(moveaxis(scan, 0, axis))


def _axis_cut(node: Expr, axis: int) -> Sharding | None:
    """Return how an array whose `axis` comes first is cut along it, tile by tile; None where the other axes are better
    cut.
    """
    known = lying(node)
    rest = [()] * (node.ndim - 1)
    if known is not None and known.n_tiles > 1 and known.parts[axis] == known.n_tiles:
        return Sharding(known.mesh, (known.axes[axis], *rest), (), (known.bounds[axis], *[None] * len(rest)))
    if node.env.team is None or node.nbytes <= node.env.block_nbytes:
        return None
    n = node.shape[axis]
    return over_all_places(node, node.ndim) if node.size // n < node.env.team.mesh.size <= n else None


# ---------------------------------------------------------------------------------------------------- segments


def reduceat(name: str, x: Array, indices: HostArray, axis: int, dtype: DTypeLike | None = None) -> Array:
    """Return numpy's ``ufunc.reduceat``: ``x[indices[i]:indices[i + 1]]`` folded, or ``x[indices[i]]`` where that is
    empty.

    Each tile of the axis folds what it has of each segment; parts of one segment are joined where the first one lies.

    Parameters
    ----------
    indices
        Positions along `axis`, one axis of integers of the host.

    Raises
    ------
    IndexError
        If a position is outside of the axis; numpy's text.
    """
    node, box = one_array(name, x)
    axis = normalize_axis(axis, node.ndim)
    n = node.shape[axis]
    outside = (indices < 0) | (indices >= n)
    if outside.any():
        raise IndexError(f"index {indices[outside][0]} out-of-bounds in {name}.reduceat [0, {n})")
    result = resolved_dtype(name, "accumulate", node.dtype, None if dtype is None else as_dtype(dtype))
    node = in_dtype(node, result)
    if name not in ASSOCIATIVE:
        moved = moveaxis(node, axis, -1)
        ranges = literal(_ranges(indices, n), node.env, name)
        shape = (*moved.shape[:-1], len(indices))
        op = _row_in_order(REDUCEAT_IN_ORDER, name, result)
        folded = bind(op, (moved, ranges), shape, result, (name, result.str))
        return box(moveaxis(folded, -1, axis))
    rows = moveaxis(node, axis, 0)
    cut = _axis_cut(node, axis) or row_cut(rows)
    return box(moveaxis(_segments(name, rows, cut, _ranges(indices, n), result), 0, axis))


def _ranges(starts: HostArray, n: int) -> HostArray:
    """Return where each segment of an axis of `n` elements starts and stops, int64; an empty one has an element."""
    starts = starts.astype(np.int64)
    return np.stack([starts, np.maximum(np.append(starts[1:], n), starts + 1)], axis=1)


def _segments(name: str, rows: Expr, cut: Sharding | None, ranges: HostArray, dtype: DType) -> Expr:
    """Return segments of axis 0, each folded to one row."""
    n = rows.shape[0]
    bounds = (0, n) if cut is None else cut.boundaries(rows.shape)[0]
    segment, local, pieces = _pieces(ranges[:, 0], ranges[:, 1], bounds)
    edges = [0, *np.cumsum(pieces).tolist()]
    at = literal(local, rows.env, name)
    shape = (len(segment), *rows.shape[1:])
    (parts,) = bind_tiles(TILE_SEGMENTS, [(rows, bounds), (at, edges)], [(shape, dtype, edges)], cut, (name, dtype.str))
    if np.array_equal(segment, np.arange(len(ranges))):
        return parts
    # A segment begins with its first part, which lies in the earliest tile.
    _, first = np.unique(segment, return_index=True)
    whole: Expr = take(parts, first, axis=0)
    rest = np.delete(np.arange(len(segment)), first)
    if not rest.size:
        return whole
    return put_item(whole, parse_index(segment[rest], whole.shape), take(parts, rest, axis=0), name)


def _pieces(starts: HostArray, stops: HostArray, bounds: Any) -> tuple[HostArray, HostArray, list[int]]:
    """Return what each tile has of each segment.

    Returns
    -------
    segment, local, pieces
        For each piece its segment, and its range in the tile; how many pieces each tile has. Tile by tile.
    """
    segments, ranges, pieces = [], [], []
    for low, high in pairwise(bounds):
        here = np.flatnonzero(np.maximum(starts, low) < np.minimum(stops, high))
        segments.append(here)
        ranges.append(np.stack([np.maximum(starts[here], low) - low, np.minimum(stops[here], high) - low], axis=1))
        pieces.append(len(here))
    return np.concatenate(segments), np.concatenate(ranges).astype(np.int64), pieces
