"""Arrays put together: concat, stack, roll and their kin.

What numpy copies is an empty array and a chain of writes through lenses.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from distarray.arguments import (
    CASTINGS,
    check_cast,
    check_ndim,
    choice,
    integers,
    naming,
    normalize_axis,
    refuse_loose_axis,
    sequence,
    shown,
)
from distarray.dtypes import as_dtype, cast_dtype
from distarray.expr.affine import Affine
from distarray.expr.bind import Box, bind_create, bind_get, bind_put, bind_reshape, unbox
from distarray.expr.expr import Environment, Expr, Scalar
from distarray.expr.side_by_side import side_by_side
from distarray.ops.creation import EMPTY, operand_node
from distarray.ops.elementwise import as_array, warn_of_lost_imaginary_part
from distarray.ops.families import Array, by_numpy, one_array, ready_made, view
from distarray.ops.lenses import box_lens, expand_lens, slice_lens
from distarray.ops.manipulation import at_least, ravel, sliced
from distarray.types import DType, DTypeLike, Shape


def put_together(pieces: Iterable[tuple[Affine, Expr | Scalar]], shape: Shape, dtype: DType, env: Environment) -> Expr:
    """Return a new array written piece by piece; the lenses cover it."""
    result = bind_create(EMPTY, shape, dtype, env)
    for lens, value in pieces:
        if 0 not in lens.shape:
            result = bind_put(result, lens, value)
    return result


def joined(nodes: Sequence[Expr], axis: int, dtype: DType, env: Environment) -> Expr:
    """Return arrays that agree in all other axes, one after the other along `axis`."""
    shape = _joined_shape([n.shape for n in nodes], axis)
    pieces = []
    start = 0
    for n in nodes:
        pieces.append((slice_lens(shape, axis, start, n.shape[axis]), n))
        start += n.shape[axis]
    return put_together(pieces, shape, dtype, env)


def _unboxed(name: str, arrays: Iterable[Array], *, is_weak: bool = False) -> tuple[list[Expr], Environment, Box]:
    """Return the nodes of several arrays. Numbers have a dtype of their own, or with `is_weak` that of the others."""
    if not hasattr(arrays, "__dx_node__"):
        arrays = sequence(arrays, "arrays", "arrays", is_lazy=False)
    arrays = tuple(arrays)
    if not arrays:
        raise ValueError(f"need at least one array to {name}")
    operands = unbox(name, arrays)
    given: list[Any] = operands.nodes  # nodes and numbers
    if is_weak and any(type(n) is not Expr for n in given):
        dtype = np.result_type(*(n.dtype if type(n) is Expr else type(n)(1) for n in given))
        given = [n if type(n) is Expr else np.asarray(n).astype(dtype)[()] for n in given]
    nodes = [operand_node(n, operands.env) for n in given]
    return nodes, operands.env, operands.box


def _common_dtype(nodes: Iterable[Expr], dtype: DTypeLike | None, casting: Any) -> DType:
    dtypes = [n.dtype for n in nodes]
    choice(casting, CASTINGS, "casting")
    wanted = as_dtype(np.result_type(*dtypes) if dtype is None else dtype)
    if wanted.kind in "mM" and dtype is not None:
        wanted = cast_dtype(np.result_type(*dtypes), wanted)
    for d in dtypes:
        check_cast(d, wanted, casting)
    warn_of_lost_imaginary_part(next((d for d in dtypes if d.kind == "c"), wanted), wanted)
    return wanted


def concat(
    arrays: Sequence[Array], /, axis: int | None = 0, *, dtype: DTypeLike | None = None, casting: str = "same_kind"
) -> Array:
    """Return arrays one after the other along `axis`; flattened first if `axis` is None."""
    nodes, env, box = _unboxed("concatenate", arrays, is_weak=axis is None)
    if axis is None:
        nodes = [bind_reshape(n, (n.size,)) for n in nodes]
        axis = 0
    common = _common_dtype(nodes, dtype, casting)
    ndim = nodes[0].ndim
    if ndim == 0:
        raise ValueError("zero-dimensional arrays cannot be concatenated")
    refuse_loose_axis(axis)
    axis = normalize_axis(axis, ndim)
    return box(joined(nodes, axis, common, env))


def _joined_shape(shapes: Sequence[Shape], axis: int) -> Shape:
    """Return the shape of arrays one after the other along an axis.

    Raises
    ------
    ValueError
        If they have other axes that differ.
    """
    first = shapes[0]
    for i, shape in enumerate(shapes):
        if len(shape) != len(first):
            raise ValueError(
                "all the input array dimensions except for the concatenation axis must match exactly, but the array at "
                f"index 0 has {len(first)} dimension(s) and the array at index {i} has {len(shape)} dimension(s)"
            )
        for a, (n, wanted) in enumerate(zip(shape, first, strict=True)):
            if a != axis and n != wanted:
                raise ValueError(
                    "all the input array dimensions except for the concatenation axis must match exactly, but along "
                    f"dimension {a}, the array at index 0 has size {wanted} and the array at index {i} has size {n}"
                )
    return (*first[:axis], sum(shape[axis] for shape in shapes), *first[axis + 1 :])


#: Blocks of nested lists: where each begins, and its node.
_Placed: TypeAlias = list[tuple[tuple[int, ...], Expr]]


def blocks(arrays: Sequence[Any], depth: int, ndim: int) -> Array:
    """Return the array that lists of blocks make which are nested so deep, the innermost along the last axis; each
    block is written once, where it comes.
    """
    leaves: list[Any] = list(arrays)
    for _ in range(depth - 1):
        leaves = [leaf for leaf_list in leaves for leaf in leaf_list]
    nodes, env, box = _unboxed("concatenate", leaves)
    common = _common_dtype(nodes, None, "same_kind")
    shape, placed = _placed(arrays, iter(nodes), ndim - depth, ndim)
    pieces = [(box_lens(node.shape, starts), node) for starts, node in placed]
    return box(put_together(pieces, shape, common, env))


def _placed(arrays: Any, nodes: Iterator[Expr], axis: int, ndim: int) -> tuple[Shape, _Placed]:
    """Return the shape of nested lists whose outermost runs along `axis`, and where their blocks lie in it."""
    if not isinstance(arrays, list):
        node = next(nodes)
        node = bind_get(node, expand_lens(node.shape, tuple(range(ndim - node.ndim))))
        return node.shape, [((0,) * ndim, node)]
    found: _Placed = []
    parts = [_placed(a, nodes, axis + 1, ndim) for a in arrays]
    at = 0
    for shape, placed in parts:
        found += [((*starts[:axis], starts[axis] + at, *starts[axis + 1 :]), node) for starts, node in placed]
        at += shape[axis]
    return _joined_shape([shape for shape, _ in parts], axis), found


def stack(
    arrays: Sequence[Array], /, *, axis: int = 0, dtype: DTypeLike | None = None, casting: str = "same_kind"
) -> Array:
    """Return arrays of one shape along a new axis."""
    nodes, env, box = _unboxed("stack", arrays)
    if any(n.shape != nodes[0].shape for n in nodes):
        raise ValueError(f"all input arrays must have the same shape, not {sorted({n.shape for n in nodes})}")
    axis = normalize_axis(axis, nodes[0].ndim + 1)
    check_ndim(nodes[0].ndim + 1, IndexError)
    common = _common_dtype(nodes, dtype, casting)
    # Through lenses that drop the new axis: the pieces are written as they are.
    shape = (*nodes[0].shape[:axis], len(nodes), *nodes[0].shape[axis:])
    pieces = [(slice_lens(shape, axis, i, 1).squeezed((axis,)), n) for i, n in enumerate(nodes)]
    return box(put_together(pieces, shape, common, env))


@by_numpy(np.vstack)
def vstack(tup: Sequence[Array], *, dtype: DTypeLike | None = None, casting: str = "same_kind") -> Array:
    """Return the rows on top of each other."""
    return concat([at_least(2, x) for x in as_arrays("vstack", tup)], axis=0, dtype=dtype, casting=casting)


row_stack = vstack


@by_numpy(np.hstack)
def hstack(tup: Sequence[Array], *, dtype: DTypeLike | None = None, casting: str = "same_kind") -> Array:
    """Return arrays side by side: along the second axis, vectors along the first."""
    arrays = [at_least(1, x) for x in as_arrays("hstack", tup)]
    axis = 0 if one_array("hstack", arrays[0])[0].ndim == 1 else 1
    return concat(arrays, axis=axis, dtype=dtype, casting=casting)


@by_numpy(np.dstack)
def dstack(tup: Sequence[Array]) -> Array:
    """Return arrays along the third axis."""
    return concat([at_least(3, x) for x in as_arrays("dstack", tup)], axis=2)


@by_numpy(np.column_stack)
def column_stack(tup: Sequence[Array]) -> Array:
    """Return vectors as the columns of a matrix; matrices side by side."""

    def columns(shape: Shape) -> Affine:
        lens = expand_lens(shape, tuple(range(max(2 - len(shape), 0))))
        return lens.permuted((1, 0)) if len(shape) < 2 else lens

    return concat([view("column_stack", x, columns) for x in as_arrays("column_stack", tup)], axis=1)


def as_arrays(name: str, arrays: Iterable[Array]) -> list[Array]:
    """Return boxed arrays as they are; host data as literals of the same environment, boxed as the first boxed array
    is.
    """
    nodes, _, box = _unboxed(name, arrays)
    return [box(n) for n in nodes]


@by_numpy(np.append)
@side_by_side
def append(arr: Array, values: Array, axis: int | None = None) -> Array:
    """Return `values` after `arr` along `axis`; both flattened by default."""
    if axis is None:
        arr, values = (ravel(part) for part in as_arrays("append", (arr, values)))
    return concat((arr, values), axis=0 if axis is None else axis)


@ready_made(1)
def roll(x: Array, /, shift: Any, axis: Any = None) -> Array:
    """Return the elements moved by `shift` along `axis`, those that leave come back on the other side.

    Several axes and shifts broadcast against each other; without an axis the flattened array rolls.
    """
    node, box = one_array("roll", x)
    if axis is None:
        flat = bind_reshape(node, (node.size,))
        shifts = _shifts(shift)
        return box(as_array(bind_reshape(_rolled(flat, {0: sum(shifts)}), node.shape)))
    axes = [normalize_axis(a, node.ndim) for a in integers(axis, "axis")]
    shifts = _shifts(shift)
    if len(shifts) != len(axes) and 1 not in (len(shifts), len(axes)):
        raise ValueError(f"shift={shifts} and axis={tuple(axes)} do not broadcast: they are of different length")
    by: dict[int, int] = {}
    for i in range(max(len(shifts), len(axes)) if shifts and axes else 0):
        a = axes[i % len(axes)]
        by[a] = by.get(a, 0) + shifts[i % len(shifts)]
    return box(_rolled(node, by))


def _shifts(shift: Any) -> tuple[int, ...]:
    """Return by how much elements move: numpy makes an int of whatever it is given."""
    if type(shift) is int:
        return (shift,)
    if np.ndim(shift) > 1:
        raise ValueError(f"'shift' and 'axis' should be scalars or 1D sequences: shift={shown(shift)}")
    with naming(shift=shift):
        return tuple([int(n) for n in np.atleast_1d(np.asarray(shift)).tolist()])


def _rolled(node: Expr, by: dict[int, int]) -> Expr:
    """Return a new array of the boxes that stay together: as numpy, two along each axis that rolls."""
    moves = [(Affine.identity(node.shape), node)]
    for axis, shift in by.items():
        n = node.shape[axis]
        if n and shift % n:
            first = shift % n
            halves = (0, n - first, first), (first, 0, n - first)  # to, from, and how many
            moves = [
                (
                    lens.compose(slice_lens(lens.shape, axis, to, size)),
                    sliced(part, axis, at, size),
                )
                for lens, part in moves
                for to, at, size in halves
            ]
    return put_together(moves, node.shape, node.dtype, node.env) if len(moves) > 1 else node
