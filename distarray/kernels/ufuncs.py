"""Ufuncs of two operands along an axis: folds, scans and segments of whole blocks and of tiles.

Written with a function of two arrays alone, so that namespaces whose functions have no methods (``reduce``,
``accumulate``) do the same; numpy's blocks go through numpy's own methods. `combine` and `halved` serve `monoids` too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from itertools import accumulate
from typing import Any

import numpy as np

from distarray.errors import NotSupportedError
from distarray.kernels.elementwise import is_exact
from distarray.kernels.namespaces import Block, Namespace, Params, astype, is_strict, loop_dtype, placed
from distarray.types import DType, HostArray

#: Elements of rows from which on it pays to call a function for each of them.
LONG = 256


def combine(xp: Namespace, name: str) -> Callable[..., Any]:
    """Return the function that numpy calls `name`: here of two arrays mostly.

    Raises
    ------
    NotSupportedError
        If the namespace has none of that name.
    """
    found = getattr(xp, name, None)
    if found is None:
        device = "strict" if is_strict(xp) else "cuda"
        raise NotSupportedError(f"not on {device}: it has no function {name}")
    return found  # type: ignore[no-any-return]


def halved(xp: Namespace, name: str, x: Block, axis: int) -> Block:
    """Return `x` folded along an axis with elements, which stays with extent 1: neighbours, then neighbours of
    those.
    """
    function = combine(xp, name)
    lead = (slice(None),) * axis
    while (n := x.shape[axis]) > 1:
        pairs = function(x[(*lead, slice(0, n - 1, 2), ...)], x[(*lead, slice(1, n, 2), ...)])
        if n % 2:
            pairs = xp.concat([pairs, x[(*lead, slice(n - 1, n), ...)]], axis=axis)
        x = pairs
    return x


def _fold(xp: Namespace, name: str, x: Block, dtype: DType) -> Block:
    """Apply an associative function along axis 0, which has elements and keeps the extent 1."""
    if xp is np:
        return np.asarray(getattr(np, name).reduce(x, axis=0, dtype=loop_dtype(dtype), keepdims=True))
    return halved(xp, name, astype(xp, x, dtype), 0)


def _scan(xp: Namespace, name: str, x: Block, axis: int, dtype: DType) -> Block:
    """Return an associative function's partial results along an axis."""
    if xp is np:
        out = np.empty_like(x, dtype)
        _scan_into(out, name, x, axis)
        return out
    x = astype(xp, x, dtype)
    if x.shape[axis] < 2:
        return xp.asarray(x, copy=True)
    if name in ("add", "multiply"):
        # The standard's own, and CuPy's.
        of = {"add": ("cumulative_sum", "cumsum"), "multiply": ("cumulative_prod", "cumprod")}[name]
        return getattr(xp, of[0] if hasattr(xp, of[0]) else of[1])(x, axis=axis, dtype=x.dtype)
    # Hillis and Steele, "Data parallel algorithms" (1986): after step k each element holds 2**k elements.
    function, lead, step = combine(xp, name), (slice(None),) * axis, 1
    while step < x.shape[axis]:
        joined = function(x[(*lead, slice(None, -step), ...)], x[(*lead, slice(step, None), ...)])
        x = xp.concat([x[(*lead, slice(None, step), ...)], joined], axis=axis)
        step *= 2
    return x


def _scan_into(out: HostArray, name: str, x: HostArray, axis: int) -> None:
    """Write a function's partial results along an axis, which may be into `x` itself.

    NumPy goes along each column by itself, which takes twice as long as row by row; of what is not exact the kernel for
    rows would give other bits than that for single elements (products of complex numbers).
    """
    ufunc = getattr(np, name)
    has_long_rows = axis < x.ndim - 1 and x.shape[-1] >= LONG and x.strides[-1] == out.strides[-1] == x.itemsize
    if not (has_long_rows and x.dtype == out.dtype and is_exact(name, (x.dtype,))):
        ufunc.accumulate(x, axis=axis, dtype=loop_dtype(out.dtype), out=out)
        return
    rows, made = np.moveaxis(x, axis, 0), np.moveaxis(out, axis, 0)
    made[:1] = rows[:1]
    for i in range(1, len(rows)):
        ufunc(made[i - 1], rows[i], out=made[i])


# ---------------------------------------------------------------------------------------------------- whole blocks


def _accumulate(xp: Namespace, x: Block, *, params: Params) -> Block:
    """Return ``ufunc.accumulate``; params are (rule, ufunc, dtype of the result, axis)."""
    _, name, dtype, axis = params
    return _scan(xp, name, x, axis, np.dtype(dtype))


def _accumulate_into(out: HostArray, x: HostArray, *, params: Params) -> None:
    """Write what `_accumulate` returns of a NumPy block."""
    _scan_into(out, params[1], x, params[3])


def _bits_of_axis(_xp: Namespace, x: Block, *, params: Params) -> Block:
    """Return ``view`` of the last axis, as a copy; params are (rule, dtype)."""
    if not hasattr(x, "view"):
        raise NotSupportedError("not on strict: the standard has no view of bits")
    return x.copy().view(np.dtype(str(params[1])))


def _accumulate_in_order(xp: Namespace, x: Block, *, params: Params) -> Block:
    """Accumulate by a function that is not associative, from the first element to the last; params as `_accumulate`."""
    if xp is np:
        return _accumulate(xp, x, params=params)
    _, name, dtype, axis = params
    function, x, low = combine(xp, name), astype(xp, x, np.dtype(dtype)), (slice(None),) * axis
    parts = list(accumulate([x[(*low, slice(i, i + 1), ...)] for i in range(x.shape[axis])], function))
    return xp.concat(parts, axis=axis) if parts else x


def _positions(xp: Namespace, index: Block) -> Any:
    """Return the positions as integers of Python: a few, which a device is waited for.

    Raises
    ------
    NotSupportedError
        If the namespace is the strict one, whose devices do not give up their elements.
    """
    if is_strict(xp):
        raise NotSupportedError("reduceat is not on strict: its positions are read in the kernel")
    return index.tolist()


def _as_rows(x: Block) -> Block:
    """Return a block with its last axis first and the others joined to one of at least two elements.

    Along a contiguous axis numpy's vector kernels (``arctan2``, ``power``) forget the running result: numpy 2.4 gives
    ``power.reduce([x, y, z]) != (x**y)**z``. Row by row they are right.
    """
    rows = np.moveaxis(x, -1, 0).reshape(x.shape[-1], math.prod(x.shape[:-1]))
    return np.ascontiguousarray(rows if rows.shape[1] != 1 else np.repeat(rows, 2, axis=1))


def _reduce_in_order(xp: Namespace, x: Block, *mask: Block, params: Params) -> Block:
    """Apply a function that is not associative, from the first element of the last axis to the last one.

    Params are (rule, ufunc, dtype of the result, initial value or None); a mask says which elements count, and comes
    with an initial value.
    """
    _, name, dtype, initial = params
    loop = np.dtype(dtype)
    if xp is np:
        options: dict[str, Any] = {} if initial is None else {"initial": initial}
        if mask:
            options["where"] = _as_rows(mask[0])
        total = getattr(np, name).reduce(_as_rows(x), axis=0, dtype=loop_dtype(loop), **options)
        width = math.prod(x.shape[:-1])
        return total[:width].reshape(x.shape[:-1])
    function, x = combine(xp, name), astype(xp, x, loop)
    total = x[..., 0] if initial is None else xp.full_like(xp.sum(x, axis=-1, dtype=x.dtype), initial.item())
    for i in range(1 if initial is None else 0, x.shape[-1]):
        joined = function(total, x[..., i])
        total = xp.where(mask[0][..., i], joined, total) if mask else joined
    return total


def _reduceat_in_order(xp: Namespace, x: Block, ranges: Block, *, params: Params) -> Block:
    """Return ``ufunc.reduceat`` along the last axis, of the segments that have these starts and stops."""
    name, loop = params[0], np.dtype(params[1])
    if xp is np:
        rows, width, ufunc = _as_rows(x), math.prod(x.shape[:-1]), getattr(np, name)
        folded = np.empty((width, len(ranges)), loop)
        for i, (start, stop) in enumerate(ranges):
            folded[:, i] = ufunc.reduce(rows[start:stop], axis=0, dtype=loop_dtype(loop))[:width]
        return folded.reshape(*x.shape[:-1], len(ranges))
    function, x = combine(xp, name), astype(xp, x, loop)
    segments = [range(start, max(stop, start + 1)) for start, stop in _positions(xp, ranges)]
    made = [reduce(function, [x[..., i : i + 1] for i in segment]) for segment in segments]
    return xp.concat(made, axis=-1) if made else x[..., :0]


# ----------------------------------------------------------------------------------------------------------- tiles


def _tile_totals(xp: Namespace, x: Block, *, params: Params) -> tuple[Block, Block]:
    """Return a tile of axis 0 folded to one row, and where it begins; -1 and any row if it has no elements.

    Params are (ufunc, dtype, offset of the tile).
    """
    name, dtype, offset = params
    loop = np.dtype(dtype)
    at = -1 if not x.shape[0] else offset[0]
    if at < 0:
        row = xp.zeros((1, *x.shape[1:]), dtype=astype(xp, x, loop).dtype, **placed(xp, x))
    else:
        row = _fold(xp, name, x, loop)
    return row, xp.full((1,), at, dtype=xp.int64, **placed(xp, x))


def _tile_scan(xp: Namespace, x: Block, totals: Block, starts: Block, *, params: Params) -> Block:
    """Return the partial results of a tile of axis 0, which go on from the totals of the tiles before it."""
    name, dtype, offset = params
    loop = np.dtype(dtype)
    (before,) = xp.nonzero((starts >= 0) & (starts < offset[0]))
    if not before.shape[0] or not x.shape[0]:
        return _scan(xp, name, x, 0, loop)
    carry = _fold(xp, name, xp.take(totals, before, axis=0), loop)
    if xp is not np:
        return combine(xp, name)(carry, _scan(xp, name, x, 0, loop))
    # One pass, in place: the first row takes the carry along.
    made, ufunc = x.astype(loop), getattr(np, name)
    ufunc(carry[0], made[0], out=made[0, ...])
    _scan_into(made, name, made, 0)
    return made


def _tile_segments(xp: Namespace, x: Block, bounds: Block, *, params: Params) -> Block:
    """Return the ranges of a tile of axis 0, each folded to one row; `bounds` has a row (start, stop) for each, not
    empty.
    """
    name, dtype = params[:2]
    loop = np.dtype(dtype)
    if not bounds.shape[0]:
        return astype(xp, x[:0, ...], loop)
    if xp is not np:
        return xp.concat([_fold(xp, name, x[a:b, ...], loop) for a, b in _positions(xp, bounds)], axis=0)
    ufunc, starts, stops = getattr(np, name), bounds[:, 0], bounds[:, 1]
    if stops[-1] == x.shape[0] and np.array_equal(stops[:-1], starts[1:]):
        return ufunc.reduceat(x, starts, axis=0, dtype=loop_dtype(loop))
    if stops.max() == x.shape[0]:
        # reduceat has no index for the end, but after the last range
        x = np.concatenate([x, x[:1]])
    return ufunc.reduceat(x, bounds.reshape(-1), axis=0, dtype=loop_dtype(loop))[::2]


#: ``(xp, *blocks, params=params) -> block``, or a tuple of blocks for an operation with several results.
BLOCK: dict[str, Callable[..., Any]] = {
    "accumulate": _accumulate,
    "view_of_axis": _bits_of_axis,
    **dict.fromkeys(("accumulate_in_order", "accumulate_powers"), _accumulate_in_order),
    **dict.fromkeys(("reduce_in_order", "reduce_powers"), _reduce_in_order),
    **dict.fromkeys(("reduceat_in_order", "reduceat_powers"), _reduceat_in_order),
    "tile_scan": _tile_scan,
    "tile_segments": _tile_segments,
    "tile_totals": _tile_totals,
}
#: As `tables.FILL`.
FILL: dict[str, Callable[..., None]] = {"accumulate": _accumulate_into}
