"""Reading and writing at integer positions, and through masks where no shape depends on them.

Indices are parsed by `expr.indexing.parse_index`; what is left here is to make nodes. Index arrays of the host are
checked where they enter; others by the kernel that makes positions of them, before anything is read or written. What
needs the number of true elements of a mask first (reading ``x[mask]``, ``nonzero``) is not here: whoever can evaluate
does it and calls `Advanced.with_arrays`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias, TypeGuard

import numpy as np

from distarray.arguments import host_positions, index_mode, normalize_axis, refuse_loose_axis
from distarray.expr.affine import Affine
from distarray.expr.bind import bind, bind_get, bind_put, bind_reshape, unbox
from distarray.expr.broadcasting import broadcast_shapes, shape_within
from distarray.expr.expr import GET, ITEM, Environment, Expr, source
from distarray.expr.indexing import Advanced, Basic, are_positions, check_indices
from distarray.expr.op import declare
from distarray.expr.params import IndexParams
from distarray.expr.pushdown import LOOKED_AT, SHARE
from distarray.ops import elementwise
from distarray.ops.creation import constant
from distarray.ops.elementwise import astype, where
from distarray.ops.families import Array, by_numpy, one_array
from distarray.ops.joining import joined
from distarray.ops.manipulation import moveaxis, sliced
from distarray.types import Casting, HostArray, Shape

#: How many elements of each part of a mask are true.
MASK_COUNTS = declare("mask_counts", "tiles")
#: Where a mask is true, one result per axis; the running sums of the counts are the boundaries.
NONZERO = declare("nonzero", "tiles")
#: params: (axes, position of the index axes in the result, number of index axes). operands: (x, an index per axis)
TAKE = declare("take", "take", may_raise=True)
#: Indices as positions that count from the front: the one place where computed indices are checked. operands: the
#: indices, the extent of the axis, which is no param because these are in the keys of plans. params: (the axis, which
#: the error names,)
POSITIONS = declare("positions", "block", rule="..., () -> ...", may_raise=True)
#: operands: (base, value, an index per axis)
TAKE_PUT = declare("take_put", "take_put", may_raise=True)
TAKE_ALONG_AXIS = declare("take_along_axis", "block", rule="... i, ... j -> ... j | i: whole", may_raise=True)

#: What a written value does to what stands there: ``set``, or numpy's name of a function of what stands there, and of
#: the value if it has two operands. Of repeated indices all count, and the last one is set.
Mode: TypeAlias = str
#: In so many parts at most an array is read that is made nowhere else.
MOST_RUNS = 256


def is_position(array: Any) -> TypeGuard[Expr]:
    """Return whether these are positions where a mask is true: inside of its axis, and not negative."""
    found = array.unsettled() if isinstance(array, Expr) and array.op is ITEM else None
    if found is None:
        return False
    source = found[0][0]
    return isinstance(source, Expr) and source.op is NONZERO


def positions_of(array: Any, n: int, axis: int, env: Environment) -> Expr:
    """Return an index array as a node of i64 positions that count from the front.

    Raises
    ------
    IndexError
        If a position is outside of the axis, where it can be seen without computing.
    """
    if is_position(array) or (type(array) is Expr and array.op is POSITIONS):
        return array
    if not isinstance(array, Expr):
        enter = getattr(type(array), "__dx_node__", None)
        if enter is None:
            return _ours(np.asarray(array), n, axis, env)
        array = enter(array)
    node = unbox("index", (array,), env).nodes[0]
    assert type(node) is Expr
    if node.memo is not None and node.memo.on_client and isinstance(block := node.memo.blocks[0], np.ndarray):
        is_plain = block.dtype == np.int64 and are_positions(block, n, axis)
        return node if is_plain else _ours(block, n, axis, env)
    extent = constant((), n, np.dtype(np.int64), node.env)
    return bind(POSITIONS, (node, extent), node.shape, np.dtype(np.int64), (axis,))


def _ours(indices: HostArray, n: int, axis: int, env: Environment) -> Expr:
    """Return host indices as a node of positions, which nobody else has."""
    return source(check_indices(indices, n, axis).astype(np.int64, copy=False), env)


def _parts(node: Expr, parsed: Advanced) -> tuple[Expr, tuple[int, ...], list[Expr], int]:
    """Return the basic view, the axes that arrays run over, the arrays as nodes, and their number of broadcast axes."""
    assert parsed.index_shape is not None, "masks are replaced by their positions first"
    view = bind_get(node, parsed.affine)
    axes = parsed.axes
    arrays = [
        # Those of numpy were copied and checked when the index was parsed; masks give columns of a matrix.
        source(np.ascontiguousarray(array, np.int64), node.env)
        if type(array) is np.ndarray and array.ndim
        else positions_of(array, view.shape[axis], axis, node.env)
        for axis, array in parsed.arrays
    ]
    return view, axes, arrays, len(parsed.index_shape)


def get_item(node: Expr, parsed: Basic | Advanced) -> Expr:
    """Return ``x[index]`` for a parsed index whose masks have been replaced by positions."""
    if isinstance(parsed, Basic):
        return bind_get(node, parsed.affine)
    view, axes, arrays, n_index = _parts(node, parsed)
    assert parsed.shape is not None
    return _taken(view, arrays, parsed.shape, IndexParams(axes, parsed.position, n_index))


def _taken(view: Expr, arrays: Sequence[Expr], shape: Shape, params: IndexParams) -> Expr:
    """Return the elements of a view at positions, one array of them for each of the axes that `params` names."""
    if view.nbytes >= SHARE * LOOKED_AT and _viewed(view).memo is None:
        view, arrays = _read_apart(view, params.axes, list(arrays))
    return bind(TAKE, (view, *arrays), shape, view.dtype, params)


def _viewed(view: Expr) -> Expr:
    """Return the array that a view shows; what is no view, or was computed, shows itself."""
    pending = view.unsettled() if view.op is GET else None
    found = view if pending is None else pending[0][0]
    assert type(found) is Expr
    return found


def _read_apart(view: Expr, axes: Sequence[int], arrays: list[Expr]) -> tuple[Expr, list[Expr]]:
    """Return an array that holds what is taken of a large one that is computed, or made from nothing, where it is read,
    and the positions in it; the array itself where all of it is made.

    Positions that follow each other are read as one view, which may be computed alone (`expr.pushdown`).
    """
    for k, axis in enumerate(axes):
        memo = arrays[k].memo
        at = memo.blocks[0] if memo is not None and memo.on_client else None
        if isinstance(at, np.ndarray) and 0 < SHARE * at.size <= view.shape[axis]:
            starts, ends = _runs(at)
            parts = _parts_apart(view, axis, starts, ends)
            if parts:
                run = np.searchsorted(starts, at, "right") - 1
                before = np.cumsum(ends - starts) - (ends - starts)
                view = joined(parts, axis, view.dtype, view.env)
                arrays[k] = source(np.asarray(at - starts[run] + before[run]), view.env)
    return view, arrays


def _runs(at: HostArray) -> tuple[HostArray, HostArray]:
    """Return where the runs of some positions begin and end: as many as `MOST_RUNS`, between the longest gaps.

    >>> [ends.tolist() for ends in _runs(np.array([7, 3, 4, 9, 3]))]
    [[3, 7, 9], [5, 8, 10]]
    """
    ordered = np.sort(at, axis=None)
    gaps = np.diff(ordered)
    last = np.flatnonzero(gaps > 1)
    if last.size >= MOST_RUNS:
        last = np.sort(np.argsort(gaps, kind="stable")[1 - MOST_RUNS :])
    return np.concatenate((ordered[:1], ordered[last + 1])), np.concatenate((ordered[last], ordered[-1:])) + 1


def _parts_apart(view: Expr, axis: int, starts: HostArray, ends: HostArray) -> list[Expr]:
    """Return parts of a view, which are computed without the rest of it; none if one of them is not, or if they would
    cost a large share of what the whole costs.
    """
    if SHARE * int((ends - starts).sum()) > view.shape[axis] or SHARE * LOOKED_AT * starts.size > view.nbytes:
        return []
    whole = _viewed(view)
    parts: list[Expr] = []
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        part = sliced(view, axis, start, end - start)
        if part.op is GET and whole in part.operands and not whole.op.family.is_created:
            return []
        parts.append(part)
    return parts


def put_item(
    node: Expr, parsed: Basic | Advanced, value: Array, mode: Mode = "set", casting: Casting = "same_kind"
) -> Expr:
    """Return a new version of `node` with `value` written at a parsed index whose masks have been replaced by
    positions.

    Parameters
    ----------
    value
        Array, scalar or host data; broadcasts to the shape that reading would have, and is cast as numpy casts.
    mode
        What is done with it; see `Mode`.
    casting
        How the result of an update may be cast back.

    Raises
    ------
    ValueError
        If the value does not broadcast; numpy's text.
    TypeError
        If an update gives a dtype that does not cast back to `node`'s, as in numpy's in-place operators.
    """
    shape = parsed.shape
    assert shape is not None
    written = _value(node, value, shape, mode, casting)
    if isinstance(parsed, Basic):
        if 0 in shape:
            return node
        if mode != "set":
            function: Any = getattr(elementwise, mode)
            operands = (bind_get(node, parsed.affine), written)[: getattr(np, mode).nin]
            written = astype(function(*operands), node.dtype, copy=False)
        return bind_put(node, parsed.affine, written)
    view, axes, arrays, n_index = _parts(node, parsed)
    if 0 in shape:
        return node
    params = IndexParams(axes, parsed.position, n_index, mode)
    new = bind(TAKE_PUT, (view, written, *arrays), view.shape, node.dtype, params)
    assert type(new) is Expr
    return new if view is node else bind_put(node, parsed.affine, new)


def _updated(old: np.dtype[Any], value: Any, mode: Mode, casting: Casting) -> np.dtype[Any]:
    """Return the dtype of an update of `old` by a dtype or a Python number; numpy's error if it does not cast back."""
    ufunc = getattr(np, mode)
    operands = (np.ones((0,), old), np.ones((0,), value) if isinstance(value, np.dtype) else value)
    dtype: np.dtype[Any] = ufunc(*operands[: ufunc.nin]).dtype
    if not np.can_cast(dtype, old, casting):
        raise TypeError(f"Cannot cast ufunc '{mode}' output from {dtype!r} to {old!r} with casting rule {casting!r}")
    return dtype


def _value(node: Expr, value: Array, shape: Shape, mode: Mode, casting: Casting = "same_kind") -> Expr:
    """Return a written value as a node that broadcasts to `shape`; of `node`'s dtype, unless an update promotes it."""
    (held,) = unbox("setitem", (value,), node.env).nodes
    if type(held) is not Expr:
        # a Python scalar takes the array's dtype, and must fit
        weak: Any = held  # what type a scalar has, numpy decides
        dtype = node.dtype if mode == "set" else _updated(node.dtype, weak, mode, casting)
        held = constant((), held, dtype, node.env)
    own = shape_within(held.shape, shape)
    if own is None:
        raise ValueError(
            f"shape mismatch: value array of shape {held.shape} could not be broadcast to indexing result of shape "
            f"{shape}"
        )
    held = bind_reshape(held, own)
    if mode == "set":
        return astype(held, node.dtype, copy=False)
    _updated(node.dtype, held.dtype, mode, casting)
    return held


def put_mask(node: Expr, mask: Array, value: Array) -> Expr:
    """Return a new version of `node` with `value` where `mask` is true.

    The count of true elements is not needed: `value` is a scalar or has one element, or broadcasts over the axes of
    `node` that the mask does not have.

    Parameters
    ----------
    mask
        Boolean, of the shape of the first axes of `node`.
    """
    (held,) = unbox("setitem", (mask,), node.env).nodes
    assert type(held) is Expr
    m = held.ndim
    if held.shape != node.shape[:m]:
        axis = next((a for a in range(min(m, node.ndim)) if held.shape[a] != node.shape[a]), None)
        if axis is None:
            raise IndexError(f"too many indices for array: array is {node.ndim}-dimensional, but {m} were indexed")
        raise IndexError(
            f"boolean index did not match indexed array along axis {axis}; size of axis is {node.shape[axis]} but size "
            f"of corresponding boolean axis is {held.shape[axis]}"
        )
    rest = node.shape[m:]
    written = _value(node, value, (1, *rest), "set")
    if written.ndim > len(rest):
        written = bind_reshape(written, written.shape[1:])
    lens = Affine.identity(held.shape)
    for axis in range(m, node.ndim):
        lens = lens.expanded(axis)
    return where(bind_get(held, lens), written, node)


def along(node: Expr, axis: int | None, *, of_numbers: bool = True) -> tuple[Expr, int]:
    """Return the node to work on along `axis`, and that axis counted from the front; flattened if the axis is None.

    With `of_numbers` an array without axes is a row of one, as for numpy's functions that take the axis it would have.
    """
    if axis is None or (of_numbers and not node.ndim):
        node = bind_reshape(node, (node.size,))
    return node, normalize_axis(0 if axis is None else axis, node.ndim)


def take(x: Array, indices: Array, /, *, axis: int | None = None, mode: str = "raise") -> Array:
    """Return the elements of `x` at `indices` along `axis`, whose axes take its place; of the flattened array by
    default.

    Parameters
    ----------
    mode
        For indices outside of the axis: ``raise``, ``wrap`` or ``clip``.
    """
    mode = index_mode(mode)
    refuse_loose_axis(axis)
    node, box = one_array("take", x)
    node, axis = along(node, axis)
    n = node.shape[axis]
    index = _integers(indices)
    shape = tuple(np.shape(index)) if not hasattr(index, "shape") else tuple(index.shape)
    result = (*node.shape[:axis], *shape, *node.shape[axis + 1 :])
    if n == 0 or not math.prod(node.shape[:axis]):  # numpy looks at no index then
        if math.prod(result) or (mode == "raise" and math.prod(shape) and math.prod(node.shape[:axis])):
            raise IndexError("cannot do a non-empty take from an empty axes.")
        return box(constant(result, 0, node.dtype, node.env))
    if mode != "raise":
        index = _integers(confined(index, n, mode))
    positions = positions_of(index, n, axis, node.env)
    return box(_taken(node, [positions], result, IndexParams((axis,), axis, len(shape))))


def _is_host(x: Array) -> bool:
    return type(x) is not Expr and not hasattr(type(x), "__dx_node__")


def _integers(indices: Array) -> Array:
    """Return the index arrays as they are, host data as an array of integers."""
    array = host_positions(indices, "indices") if _is_host(indices) else indices
    if array.dtype.kind not in "iub":
        raise TypeError(
            f"indices: Cannot cast array data from {array.dtype!r} to dtype('int64') according to the rule 'safe'"
        )
    if array.dtype.kind == "b":
        return array.astype(np.int64) if isinstance(array, np.ndarray) else astype(array, np.int64)
    return array


def confined(indices: Array, n: int, mode: str) -> Array:
    """Return positions within ``0 .. n - 1``: modulo `n` with the mode ``wrap``, else the nearest ones."""
    # As positions: `n` may be more than the dtype of the indices holds.
    if _is_host(indices):
        array = host_positions(indices, "indices").astype(np.intp, copy=False)
        return array % n if mode == "wrap" else np.clip(array, 0, n - 1)
    indices = astype(indices, np.intp, copy=False)
    return elementwise.remainder(indices, n) if mode == "wrap" else elementwise.clip(indices, 0, n - 1)


@by_numpy(np.take_along_axis)
def take_along_axis(x: Array, indices: Array, /, axis: int | None = -1) -> Array:
    """Return for each position of the other axes the elements of `x` along `axis` that `indices` name there.

    The other axes broadcast. Without an axis both are flattened.
    """
    operands = unbox("take_along_axis", (x, indices))
    node, index = operands.nodes
    if type(node) is not Expr or type(index) is not Expr or index.dtype.kind not in "iu":
        raise IndexError("`indices` must be an integer array")
    if axis is None:
        if index.ndim != 1:
            raise ValueError("when axis=None, `indices` must have a single dimension.")
        node = bind_reshape(node, (node.size,))
        axis = 0
    if index.ndim != node.ndim:
        raise ValueError("`indices` and `arr` must have the same number of dimensions")
    axis = normalize_axis(axis, node.ndim)
    node = moveaxis(node, axis, -1)
    index = moveaxis(positions_of(index, node.shape[-1], axis, node.env), axis, -1)
    try:
        lead = broadcast_shapes(node.shape[:-1], index.shape[:-1])
    except ValueError as error:
        raise IndexError(f"shape mismatch: indexing arrays could not be broadcast together: {error}") from None
    found = bind(TAKE_ALONG_AXIS, (node, index), (*lead, index.shape[-1]), node.dtype)
    return operands.box(moveaxis(found, -1, axis))
