"""Shapes and order: everything that moves elements and computes none.

Nothing here has a kernel. A view is a lens: the ``*_lens`` functions make one from a shape, check the user's axes, and
raise as numpy does; the array layer makes aliasing handles of the same lenses. What copies in numpy (``concat``,
``roll``, ``tile``, ``pad`` ...) is an empty array and a chain of writes through lenses, or a reshape of a broadcast.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, SupportsIndex

import numpy as np

from distarray.arguments import (
    CASTINGS,
    MAX_COUNT,
    choice,
    host_array,
    integer,
    integers,
    normalize_axes,
    normalize_axis,
    parse_shape,
    refuse_loose_axis,
    sequence,
    shown,
)
from distarray.dtypes import as_dtype
from distarray.errors import NotSupportedError
from distarray.expr.affine import Affine, Term
from distarray.expr.bind import (
    Box,
    DType,
    bind_create,
    bind_get,
    bind_put,
    bind_reshape,
    unbox,
)
from distarray.expr.bind import broadcast_shapes as _broadcast_shapes
from distarray.expr.expr import Environment, Expr, Scalar
from distarray.expr.rewrite import FULL
from distarray.expr.side_by_side import side_by_side
from distarray.ops.creation import EMPTY, TRI, fill_value_of
from distarray.ops.elementwise import astype, not_equal, subtract, where
from distarray.ops.families import Array, one_array, view
from distarray.types import AxesLike, DTypeLike, HostArray, Shape

__all__ = [
    # lenses
    "broadcast_lens", "diagonal_lens", "expand_lens", "flip_lens", "moveaxis_order", "permute_lens", "rot90_lens",
    "slice_lens", "squeeze_lens", "swapaxes_order",
    # the standard
    "broadcast_arrays", "broadcast_shapes", "broadcast_to", "concat", "diff", "expand_dims", "flip",
    "matrix_transpose", "moveaxis", "permute_dims", "repeat", "reshape", "roll", "squeeze", "stack", "tile", "tril",
    "triu", "unstack",
    # numpy
    "append", "array_split", "atleast_1d", "atleast_2d", "atleast_3d", "column_stack", "concatenate", "delete_slice",
    "diag", "diagflat", "diagonal", "dsplit", "dstack", "ediff1d", "extended", "fliplr", "flipud", "hsplit", "hstack",
    "pad", "ravel", "resolve_shape", "rollaxis", "rot90", "split", "swapaxes", "transpose", "vsplit",
    "row_stack",
    "vstack",
]  # fmt: skip

# ------------------------------------------------------------------------------------------------------ lenses


def permute_lens(shape: Shape, axes: Sequence[SupportsIndex] | None = None) -> Affine:
    """The axes of an array in another order; reversed if `axes` is None."""
    ndim = len(shape)
    if axes is None:
        order = tuple(range(ndim - 1, -1, -1))
    else:
        axes = integers(axes, "axes")
        if len(axes) != ndim:
            raise ValueError(f"axes don't match array: axes={axes} for an array of rank {ndim}")
        order = normalize_axes(axes, ndim, "axes")
    return Affine.identity(shape).permuted(order)


def flip_lens(shape: Shape, axis: AxesLike = None) -> Affine:
    """The elements in reverse order along `axis`, all axes by default."""
    return Affine.identity(shape).flipped(normalize_axes(axis, len(shape)))


def expand_lens(shape: Shape, axis: AxesLike) -> Affine:
    """New axes of extent 1 at the positions `axis` of the result."""
    added = integers(axis, "axis")
    lens = Affine.identity(shape)
    for a in sorted(normalize_axes(added, len(shape) + len(added))):
        lens = lens.expanded(a)
    return lens


def squeeze_lens(shape: Shape, axis: AxesLike = None) -> Affine:
    """Without the axes `axis`, which must have extent 1; all such axes by default."""
    refuse_loose_axis(axis)
    if axis is None:
        axes = tuple(a for a, n in enumerate(shape) if n == 1)
    elif not shape and axis in (0, -1):  # numpy's: a number has the axis that it would have
        axes = ()
    else:
        axes = normalize_axes(axis, len(shape))
        for a in axes:
            if shape[a] != 1:
                raise ValueError(
                    "cannot select an axis to squeeze out which has size not equal to one: "
                    f"axis {a} of shape {shape} has {shape[a]}"
                )
    return Affine.identity(shape).squeezed(axes)


def broadcast_lens(shape: Shape, to: Shape) -> Affine:
    """An array of `shape` seen as one of shape `to`."""
    return Affine.identity(shape).broadcast(to)


def diagonal_lens(shape: Shape, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Affine:
    """The diagonal of two axes as the new last axis."""
    if len(shape) < 2:
        raise ValueError(f"diag requires an array of at least two dimensions, not one of shape {shape}")
    first, second = normalize_axis(axis1, len(shape), "axis1"), normalize_axis(axis2, len(shape), "axis2")
    if first == second:
        raise ValueError(f"axis1 and axis2 cannot be the same: axis {first}")
    return Affine.identity(shape).diagonal(integer(offset, "offset"), first, second)


def slice_lens(shape: Shape, axis: int, start: int, length: int, step: int = 1) -> Affine:
    """`length` elements from `start` on along one axis; with step 0 one element again and again. Nothing is checked."""
    terms: list[Term] = [(a, 0, 1) for a in range(len(shape))]
    terms[axis] = (None, start, 0) if step == 0 else (axis, start, step if length > 1 else 1)
    return Affine((*shape[:axis], length, *shape[axis + 1 :]), tuple(terms))


def rot90_lens(shape: Shape, k: int = 1, axes: Sequence[int] = (0, 1)) -> Affine:
    """`k` quarter turns in the plane of `axes`, from the first towards the second."""
    axes = integers(axes, "axes")
    ndim = len(shape)
    if len(axes) != 2:
        raise ValueError(f"len(axes) must be 2, not axes={axes}")
    if axes[0] == axes[1] or abs(axes[0] - axes[1]) == ndim:
        raise ValueError(f"Axes must be different, not axes={axes}")
    if not all(-ndim <= a < ndim for a in axes):
        raise ValueError(f"Axes={axes} out of range for array of ndim={ndim}.")
    first, second = (a % ndim for a in axes)
    lens = Affine.identity(shape)
    order = list(range(ndim))
    order[first], order[second] = second, first
    match integer(k, "k") % 4:
        case 0:
            return lens
        case 1:
            return lens.flipped((second,)).permuted(order)
        case 2:
            return lens.flipped((first, second))
        case _:
            return lens.permuted(order).flipped((second,))


def moveaxis_order(ndim: int, source: AxesLike, destination: AxesLike) -> tuple[int, ...]:
    """The permutation that moves axes `source` to the places `destination`; the others keep their order."""
    froms, tos = (
        normalize_axes(integers(a, name), ndim, name) for a, name in ((source, "source"), (destination, "destination"))
    )
    if len(froms) != len(tos):
        raise ValueError(
            "`source` and `destination` arguments must have the same number of elements, not "
            f"{source} and {destination}"
        )
    order = [a for a in range(ndim) if a not in froms]
    for to, a in sorted(zip(tos, froms)):
        order.insert(to, a)
    return tuple(order)


def swapaxes_order(ndim: int, axis1: int, axis2: int) -> tuple[int, ...]:
    """The permutation that exchanges two axes."""
    first, second = normalize_axis(axis1, ndim, "axis1"), normalize_axis(axis2, ndim, "axis2")
    order = list(range(ndim))
    order[first], order[second] = second, first
    return tuple(order)


# ------------------------------------------------------------------------------------------------------- views


def permute_dims(x: Array, /, axes: Sequence[SupportsIndex]) -> Array:
    """The axes of `x` in the order `axes`. A view."""
    return view("permute_dims", x, lambda shape: permute_lens(shape, axes))


def transpose(a: Array, axes: Sequence[SupportsIndex] | None = None) -> Array:
    """The axes of `a` in the order `axes`, reversed by default. A view."""
    return view("transpose", a, lambda shape: permute_lens(shape, axes))


def matrix_transpose(x: Array, /) -> Array:
    """The last two axes exchanged. A view."""
    return view("matrix_transpose", x, matrix_transpose_lens)


def matrix_transpose_lens(shape: Shape) -> Affine:
    """The last two axes exchanged."""
    if len(shape) < 2:
        raise ValueError(f"Input array must be at least 2-dimensional, but it is {len(shape)}")
    return permute_lens(shape, swapaxes_order(len(shape), -1, -2))


def moveaxis(x: Array, source: AxesLike, destination: AxesLike, /) -> Array:
    """Axes `source` moved to the places `destination`. A view."""
    return view("moveaxis", x, lambda shape: permute_lens(shape, moveaxis_order(len(shape), source, destination)))


def rollaxis(a: Array, axis: int, start: int = 0) -> Array:
    """`axis` moved to stand before the axis that is now at `start`. A view."""

    def lens(shape: Shape) -> Affine:
        ndim = len(shape)
        source = normalize_axis(axis, ndim)
        if not -ndim <= integer(start, "start") <= ndim:
            raise np.exceptions.AxisError(f"'start' arg requires {-ndim} <= start < {ndim + 1}, but {start} was passed")
        to = start + ndim if start < 0 else start
        return permute_lens(shape, moveaxis_order(ndim, source, to - (source < to)))

    return view("rollaxis", a, lens)


def swapaxes(a: Array, axis1: int, axis2: int) -> Array:
    """Two axes exchanged. A view."""
    return view("swapaxes", a, lambda shape: permute_lens(shape, swapaxes_order(len(shape), axis1, axis2)))


def flip(x: Array, /, axis: AxesLike = None) -> Array:
    """The elements in reverse order along `axis`, all axes by default. A view."""
    return view("flip", x, lambda shape: flip_lens(shape, axis))


def flipud(m: Array) -> Array:
    """Reversed along the first axis. A view."""
    return view("flipud", m, lambda shape: flip_lens(_require_ndim(shape, 1), 0))


def fliplr(m: Array) -> Array:
    """Reversed along the second axis. A view."""
    return view("fliplr", m, lambda shape: flip_lens(_require_ndim(shape, 2), 1))


def _require_ndim(shape: Shape, ndim: int) -> Shape:
    if len(shape) < ndim:
        raise ValueError(f"Input must be >= {ndim}-d.")
    return shape


def rot90(m: Array, k: int = 1, axes: Sequence[int] = (0, 1)) -> Array:
    """`k` quarter turns in the plane of `axes`. A view."""
    return view("rot90", m, lambda shape: rot90_lens(shape, k, axes))


def expand_dims(x: Array, /, axis: AxesLike = 0) -> Array:
    """New axes of extent 1 at the positions `axis` of the result. A view."""
    return view("expand_dims", x, lambda shape: expand_lens(shape, axis))


def squeeze(x: Array, /, axis: AxesLike = None) -> Array:
    """Without the axes `axis`, which must have extent 1; all such axes by default. A view."""
    return view("squeeze", x, lambda shape: squeeze_lens(shape, axis))


def broadcast_to(x: Array, /, shape: Sequence[int] | int) -> Array:
    """`x` seen as an array of `shape`. A read-only view; only the elements of `x` exist and travel."""
    return view("broadcast_to", x, lambda own: broadcast_lens(own, parse_shape(shape)))


def broadcast_arrays(*arrays: Array) -> list[Array]:
    """All arrays as views of their common shape."""
    shape = _broadcast_shapes(*(one_array("broadcast_arrays", x)[0].shape for x in arrays)) if arrays else ()
    return [broadcast_to(x, shape) for x in arrays]


def broadcast_shapes(*shapes: Any) -> Shape:
    """The shape to which arrays of these shapes broadcast."""
    return _broadcast_shapes(*map(parse_shape, shapes)) if shapes else ()


def diagonal(a: Array, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array:
    """The diagonal of two axes as the new last axis. A view (numpy's is read-only)."""
    return view("diagonal", a, lambda shape: diagonal_lens(shape, offset, axis1, axis2))


def _at_least(ndim: int, arrays: Sequence[Array], lens: Any) -> Any:  # one array or a tuple, as numpy
    results = tuple(view(f"atleast_{ndim}d", x, lens) for x in arrays)
    return results[0] if len(results) == 1 else results


def atleast_1d(*arys: Array) -> Any:
    """Each array with at least one axis."""
    return _at_least(1, arys, lambda shape: expand_lens(shape, 0) if not shape else Affine.identity(shape))


def atleast_2d(*arys: Array) -> Any:
    """Each array with at least two axes, new ones first."""
    return _at_least(2, arys, lambda shape: expand_lens(shape, tuple(range(max(2 - len(shape), 0)))))


def atleast_3d(*arys: Array) -> Any:
    """Each array with at least three axes; a matrix gets a last one, a vector one on each side."""
    added = {0: (0, 1, 2), 1: (0, 2), 2: (2,)}
    return _at_least(3, arys, lambda shape: expand_lens(shape, added.get(len(shape), ())))


# ----------------------------------------------------------------------------------------------------- reshape


def resolve_shape(old: Shape, new: Any) -> Shape:
    """The shape `new` for the elements of an array of shape `old`, its -1 replaced.

    Raises
    ------
    ValueError
        If the sizes differ, or there are several -1; numpy's text.
    """
    shape = given = integers(new, "shape")
    size = math.prod(old)
    unknown = [i for i, n in enumerate(shape) if n < 0]
    if len(unknown) > 1:
        raise ValueError(f"can only specify one unknown dimension, not shape={given}")
    if unknown:
        known = math.prod(n for n in shape if n >= 0)
        if shape[unknown[0]] == -1 and known and size % known == 0:
            shape = tuple(size // known if n == -1 else n for n in shape)
    if math.prod(shape) != size or any(n < 0 for n in shape):
        raise ValueError(f"cannot reshape array of size {size} into shape {str(given).replace(' ', '')}")
    return shape


def reshape(x: Array, /, shape: Any, order: str = "C", *, copy: bool | None = None) -> Array:
    """The elements of `x` in the same order with another shape; one extent may be -1.

    Parameters
    ----------
    order
        ``"C"``: the last axis runs fastest; ``"F"``: the first one. ``"A"`` means C here: values have no memory order.
    copy
        Read by the array layer, where results may alias; a value has none.
    """
    node, box = one_array("reshape", x)
    return box(_reshaped(node, resolve_shape(node.shape, shape), order))


def _reshaped(node: Expr, shape: Shape, order: str) -> Expr:
    if choice(order, ("C", "F", "A", "K"), "order") != "F":
        return bind_reshape(node, shape)
    # reshape(x, s, F) = reshape(x.T, s[::-1], C).T
    turned = bind_reshape(bind_get(node, permute_lens(node.shape)), shape[::-1])
    return bind_get(turned, permute_lens(turned.shape))


def ravel(a: Array, order: str = "C") -> Array:
    """The elements of `a` in one axis."""
    node, box = one_array("ravel", a)
    return box(_reshaped(node, (node.size,), order))


# ------------------------------------------------------------------------------------------------ put together


def _put_together(pieces: Iterable[tuple[Affine, Expr | Scalar]], shape: Shape, dtype: DType, env: Environment) -> Expr:
    """A new array written piece by piece; the lenses cover it."""
    result = bind_create(EMPTY, shape, dtype, env)
    for lens, value in pieces:
        if 0 not in lens.shape:
            result = bind_put(result, lens, value)
    return result


def _joined(nodes: Sequence[Expr], axis: int, dtype: DType, env: Environment) -> Expr:
    """Arrays that agree in all other axes, one after the other along `axis`."""
    first = nodes[0].shape
    shape = (*first[:axis], sum(n.shape[axis] for n in nodes), *first[axis + 1 :])
    pieces = []
    start = 0
    for n in nodes:
        pieces.append((slice_lens(shape, axis, start, n.shape[axis]), n))
        start += n.shape[axis]
    return _put_together(pieces, shape, dtype, env)


def _unboxed(name: str, arrays: Iterable[Array], *, is_weak: bool = False) -> tuple[list[Expr], Environment, Box]:
    """The nodes of several arrays. Numbers have a dtype of their own, or with `is_weak` that of the others."""
    if not hasattr(arrays, "__dx_node__"):
        arrays = sequence(arrays, "arrays", "arrays")
    arrays = tuple(arrays)
    if not arrays:
        raise ValueError(f"need at least one array to {name}")
    operands = unbox(name, arrays)
    given: list[Any] = operands.nodes  # nodes and numbers
    if is_weak and any(type(n) is not Expr for n in given):
        dtype = np.result_type(*(n.dtype if type(n) is Expr else type(n)(1) for n in given))
        given = [n if type(n) is Expr else np.asarray(n).astype(dtype)[()] for n in given]
    nodes = [n if type(n) is Expr else _full((), n, np.asarray(n).dtype, operands.env) for n in given]
    return nodes, operands.env, operands.box


def _full(shape: Shape, value: Any, dtype: DType, env: Environment) -> Expr:
    return bind_create(FULL, shape, dtype, env, (), fill_value_of(value, dtype))


def _common_dtype(nodes: Iterable[Expr], dtype: DTypeLike | None = None, casting: Any = "same_kind") -> DType:
    dtypes = [n.dtype for n in nodes]
    choice(casting, CASTINGS, "casting")
    if dtype is None:
        return as_dtype(np.result_type(*dtypes))
    wanted = as_dtype(dtype)
    for d in dtypes:
        if not np.can_cast(d, wanted, casting):
            raise TypeError(f"Cannot cast array data from {d!r} to {wanted!r} according to the rule '{casting}'")
    return wanted


def concat(
    arrays: Sequence[Array], /, axis: int | None = 0, *, dtype: DTypeLike | None = None, casting: str = "same_kind"
) -> Array:
    """Arrays one after the other along `axis`; flattened first if `axis` is None."""
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
    for i, n in enumerate(nodes):
        if n.ndim != ndim:
            raise ValueError(
                "all the input array dimensions except for the concatenation axis must match exactly, "
                f"but the array at index 0 has {ndim} dimension(s) and the array at index {i} has {n.ndim} dimension(s)"
            )
        for a in range(ndim):
            if a != axis and n.shape[a] != nodes[0].shape[a]:
                raise ValueError(
                    "all the input array dimensions except for the concatenation axis must match exactly, but along "
                    f"dimension {a}, the array at index 0 has size {nodes[0].shape[a]} and the array at index {i} has "
                    f"size {n.shape[a]}"
                )
    return box(_joined(nodes, axis, common, env))


concatenate = concat


def stack(
    arrays: Sequence[Array], /, *, axis: int = 0, dtype: DTypeLike | None = None, casting: str = "same_kind"
) -> Array:
    """Arrays of one shape along a new axis."""
    nodes, env, box = _unboxed("stack", arrays)
    if any(n.shape != nodes[0].shape for n in nodes):
        raise ValueError(f"all input arrays must have the same shape, not {sorted({n.shape for n in nodes})}")
    axis = normalize_axis(axis, nodes[0].ndim + 1)
    common = _common_dtype(nodes, dtype, casting)
    # Through lenses that drop the new axis: the pieces are written as they are.
    shape = (*nodes[0].shape[:axis], len(nodes), *nodes[0].shape[axis:])
    pieces = [(slice_lens(shape, axis, i, 1).squeezed((axis,)), n) for i, n in enumerate(nodes)]
    return box(_put_together(pieces, shape, common, env))


def unstack(x: Array, /, *, axis: int = 0) -> tuple[Array, ...]:
    """The elements of `x` along `axis`, as views."""
    node, box = one_array("unstack", x)
    if node.ndim == 0:
        raise ValueError("Input array must be at least 1-d.")
    axis = normalize_axis(axis, node.ndim)
    return tuple(
        box(bind_get(node, slice_lens(node.shape, axis, i, 1).squeezed((axis,)))) for i in range(node.shape[axis])
    )


def vstack(tup: Sequence[Array], *, dtype: DTypeLike | None = None, casting: str = "same_kind") -> Array:
    """Rows on top of each other."""
    return concat([atleast_2d(x) for x in _as_arrays("vstack", tup)], axis=0, dtype=dtype, casting=casting)


row_stack = vstack


def hstack(tup: Sequence[Array], *, dtype: DTypeLike | None = None, casting: str = "same_kind") -> Array:
    """Arrays side by side: along the second axis, vectors along the first."""
    arrays = [atleast_1d(x) for x in _as_arrays("hstack", tup)]
    axis = 0 if one_array("hstack", arrays[0])[0].ndim == 1 else 1
    return concat(arrays, axis=axis, dtype=dtype, casting=casting)


def dstack(tup: Sequence[Array]) -> Array:
    """Arrays along the third axis."""
    return concat([atleast_3d(x) for x in _as_arrays("dstack", tup)], axis=2)


def column_stack(tup: Sequence[Array]) -> Array:
    """Vectors as the columns of a matrix; matrices side by side."""

    def columns(shape: Shape) -> Affine:
        lens = expand_lens(shape, tuple(range(max(2 - len(shape), 0))))
        return lens.permuted((1, 0)) if len(shape) < 2 else lens

    return concat([view("column_stack", x, columns) for x in _as_arrays("column_stack", tup)], axis=1)


def _as_arrays(name: str, arrays: Iterable[Array]) -> list[Array]:
    """Boxed arrays as they are; host data as literals of the same environment, boxed as the first boxed array is."""
    nodes, _, box = _unboxed(name, arrays)
    return [box(n) for n in nodes]


@side_by_side
def append(arr: Array, values: Array, axis: int | None = None) -> Array:
    """`values` after `arr` along `axis`; both flattened by default."""
    if axis is None:
        arr, values = (ravel(part) for part in _as_arrays("append", (arr, values)))
    return concat((arr, values), axis=0 if axis is None else axis)


def _has_items(value: Any) -> bool:
    """Whether a value has a length; an array without axes has the method, but no length."""
    return hasattr(value, "__len__") and getattr(value, "ndim", 1) != 0


def array_split(ary: Array, indices_or_sections: int | Sequence[int], axis: int = 0) -> list[Array]:
    """Parts of `ary` along `axis`, as views: so many, or between the given indices."""
    node, box = one_array("array_split", ary)
    axis = normalize_axis(axis, node.ndim)
    n = node.shape[axis]
    if _has_items(indices_or_sections):
        points = [0, *integers(indices_or_sections, "indices_or_sections"), n]
    else:
        sections = integer(indices_or_sections, "indices_or_sections")
        if sections <= 0:
            raise ValueError(f"number sections must be larger than 0, not indices_or_sections={sections}")
        if sections > MAX_COUNT:
            raise OverflowError(f"indices_or_sections={sections} is too large")
        each, extra = divmod(n, sections)
        points = [i * each + min(i, extra) for i in range(sections + 1)]
    parts = []
    for start, stop in pairwise(points):
        low, high, _ = slice(start, stop).indices(n)
        parts.append(box(bind_get(node, slice_lens(node.shape, axis, low, max(high - low, 0)))))
    return parts


def split(ary: Array, indices_or_sections: int | Sequence[int], axis: int = 0) -> list[Array]:
    """Equal parts of `ary` along `axis`, as views."""
    if not _has_items(indices_or_sections):
        node, _ = one_array("split", ary)
        n = node.shape[normalize_axis(axis, node.ndim)]
        sections = integer(indices_or_sections, "indices_or_sections")
        if not sections:
            raise ZeroDivisionError("split: indices_or_sections=0")
        if n % sections:
            raise ValueError(
                f"array split does not result in an equal division: {n} elements in {indices_or_sections=}"
            )
    return array_split(ary, indices_or_sections, axis)


def hsplit(ary: Array, indices_or_sections: int | Sequence[int]) -> list[Array]:
    """Parts along the second axis, of a vector along the first."""
    ndim = one_array("hsplit", ary)[0].ndim
    if ndim == 0:
        raise ValueError("hsplit only works on arrays of 1 or more dimensions")
    return split(ary, indices_or_sections, 1 if ndim > 1 else 0)


def vsplit(ary: Array, indices_or_sections: int | Sequence[int]) -> list[Array]:
    """Parts along the first axis."""
    if one_array("vsplit", ary)[0].ndim < 2:
        raise ValueError("vsplit only works on arrays of 2 or more dimensions")
    return split(ary, indices_or_sections, 0)


def dsplit(ary: Array, indices_or_sections: int | Sequence[int]) -> list[Array]:
    """Parts along the third axis."""
    if one_array("dsplit", ary)[0].ndim < 3:
        raise ValueError("dsplit only works on arrays of 3 or more dimensions")
    return split(ary, indices_or_sections, 2)


def delete_slice(x: Array, start: int, stop: int, axis: int) -> Array:
    """`x` without the elements from `start` to `stop` along `axis`."""
    node, box = one_array("delete", x)
    n = node.shape[axis]
    kept = [bind_get(node, slice_lens(node.shape, axis, a, b - a)) for a, b in ((0, start), (stop, n))]
    return box(_joined(kept, axis, node.dtype, node.env))


def extended(x: Array, axis: int, before: Scalar) -> Array:
    """`x` with one more element, `before`, at the beginning of `axis`."""
    node, box = one_array("extended", x)
    shape = (*node.shape[:axis], 1, *node.shape[axis + 1 :])
    return box(_joined([_full(shape, before, node.dtype, node.env), node], axis, node.dtype, node.env))


def roll(x: Array, /, shift: int | Sequence[int], axis: AxesLike = None) -> Array:
    """Elements moved by `shift` along `axis`, those that leave come back on the other side.

    Several axes and shifts broadcast against each other; without an axis the flattened array rolls.
    """
    node, box = one_array("roll", x)
    if axis is None:
        flat = bind_reshape(node, (node.size,))
        shifts = integers(shift, "shift")
        return box(bind_reshape(_rolled(flat, {0: sum(shifts)}), node.shape))
    axes = [normalize_axis(a, node.ndim) for a in integers(axis, "axis")]
    shifts = integers(shift, "shift")
    if len(shifts) != len(axes) and 1 not in (len(shifts), len(axes)):
        raise ValueError(f"shift={shifts} and axis={tuple(axes)} do not broadcast: they are of different length")
    by: dict[int, int] = {}
    for i in range(max(len(shifts), len(axes)) if shifts and axes else 0):
        a = axes[i % len(axes)]
        by[a] = by.get(a, 0) + shifts[i % len(shifts)]
    return box(_rolled(node, by))


def _rolled(node: Expr, by: dict[int, int]) -> Expr:
    for axis, shift in by.items():
        n = node.shape[axis]
        shift = shift % n if n else 0
        if shift:
            # roll(x, s) = concat(x[n-s:], x[:n-s])
            parts = [slice_lens(node.shape, axis, n - shift, shift), slice_lens(node.shape, axis, 0, n - shift)]
            node = _joined([bind_get(node, p) for p in parts], axis, node.dtype, node.env)
    return node


# ------------------------------------------------------------------------------------------------ more elements


def repeat(x: Array, repeats: Any, /, *, axis: int | None = None) -> Array:
    """Each element `repeats` times along `axis`, of the flattened array by default.

    An array of repeats, one for each element, is read at the call: the shape of the result depends on it.
    """
    node, box = one_array("repeat", x)
    if axis is None:
        node = bind_reshape(node, (node.size,))
        axis = 0
    elif node.ndim == 0:
        node = bind_reshape(node, (1,))
        axis = normalize_axis(axis, 1)
    axis = normalize_axis(axis, node.ndim)
    n = node.shape[axis]
    many = host_array(repeats, "repeats", kinds="biu")
    if many.ndim > 1:
        raise ValueError(f"repeats={shown(repeats)}: object too deep for desired array")
    if many.shape not in ((), (1,)) and len(many) != n:
        raise ValueError(
            f"operands could not be broadcast together with shape ({n},) ({len(many)},) along axis={axis}: "
            f"repeats={shown(repeats)}"
        )
    if n and (many < 0).any():
        raise ValueError(f"repeats may not contain negative values: repeats={shown(repeats)}")
    if many.size != 1:
        from distarray.ops.indexing import take

        return box(take(node, np.repeat(np.arange(n), many), axis=axis))
    counts = max(int(many.reshape(())), 0)
    # repeat(x, r) = reshape(broadcast(x[..., :, None], r))
    lens = Affine.identity(node.shape).expanded(axis + 1)
    lens = lens.broadcast((*node.shape[: axis + 1], counts, *node.shape[axis + 1 :]))
    return box(bind_reshape(bind_get(node, lens), (*node.shape[:axis], n * counts, *node.shape[axis + 1 :])))


def tile(x: Array, repetitions: int | Sequence[int], /) -> Array:
    """`x` beside itself: so many times along each axis."""
    node, box = one_array("tile", x)
    times = integers(repetitions, "repetitions")
    ndim = max(node.ndim, len(times))
    times = (1,) * (ndim - len(times)) + times
    if any(t < 0 for t in times):
        raise ValueError(f"negative dimensions are not allowed: repetitions={times}")
    return box(_tiled(bind_reshape(node, (1,) * (ndim - node.ndim) + node.shape), times))


#: Axes that an array of numpy may have.
_MAX_NDIM = 64


def _tiled(node: Expr, times: Shape) -> Expr:
    shape = node.shape
    result = parse_shape(tuple([t * n for t, n in zip(times, shape)]), "the shape of the tiled array")
    if 0 in result:
        return bind_create(EMPTY, result, node.dtype, node.env)
    if node.ndim + sum(t > 1 and n > 1 for t, n in zip(times, shape)) > _MAX_NDIM:
        # An axis that is not repeated is one with the axis before it, the elements of which come along. Where no two
        # axes are one, each is repeated: so many axes of more than one element have more elements than an array may.
        blocks: list[tuple[int, int]] = []
        for t, n in zip(times, shape):
            if blocks and (t == 1 or blocks[-1][1] == 1 == n):
                blocks[-1] = (blocks[-1][0] * t, blocks[-1][1] * n)
            else:
                blocks.append((t, n))
        joined = bind_reshape(node, tuple([n for _, n in blocks]))
        return bind_reshape(_tiled(joined, tuple([t for t, _ in blocks])), result)
    # tile(x, t) = reshape(broadcast(x[None, :, None, :], t0, n0, t1, n1)), new axes only where both are more than one
    places: list[int] = []
    spread: list[int] = []
    for t, n in zip(times, shape):
        places.append(len(spread) + (t != 1 != n))
        spread += [t, n] if t != 1 != n else [t * n]
    terms = tuple([(place, 0, 1) if n != 1 else (None, 0, 0) for place, n in zip(places, shape)])
    return bind_reshape(bind_get(node, Affine(tuple(spread), terms)), result)


_OTHER_PAD_MODES = ("linear_ramp", "maximum", "mean", "median", "minimum")
_PAD_MODES = ("constant", "edge", "wrap", "reflect", "symmetric", "empty")


@side_by_side
def pad(array: Array, pad_width: Any, mode: str = "constant", *, constant_values: Any = 0) -> Array:
    """`array` with more elements before and after it along each axis.

    Parameters
    ----------
    pad_width
        ``(before, after)`` for each axis, or one pair or number for all, or a mapping from axes to them.
    mode
        ``constant``, ``edge``, ``wrap``, ``reflect``, ``symmetric`` or ``empty``.
    constant_values
        As `pad_width`, for ``constant``.
    """
    node, box = one_array("pad", array)
    if callable(mode) or (isinstance(mode, str) and mode in _OTHER_PAD_MODES):
        raise NotSupportedError(
            f"pad: mode={mode!r} is not one of {', '.join(_PAD_MODES)}; concatenate the borders instead"
        )
    choice(mode, _PAD_MODES, "mode")
    if isinstance(pad_width, dict):
        pairs: list[Any] = [(0, 0)] * node.ndim
        for key, width in pad_width.items():
            for a in normalize_axes(key, node.ndim):
                pairs[a] = (width, width) if isinstance(width, int) else tuple(width)
        pad_width = pairs
    widths = _pairs("pad_width", pad_width, node.ndim, "iu")
    if (widths < 0).any():
        raise ValueError(f"index can't contain negative values: pad_width={shown(pad_width)}")
    values = _pairs("constant_values", constant_values, node.ndim)
    for axis, (low, high) in enumerate(widths.tolist()):
        if not low and not high:
            continue
        before: list[Expr]
        if mode in ("constant", "empty"):
            before, after = (
                [_border(node, axis, width, value if mode == "constant" else None)]
                for width, value in zip((low, high), values[axis])
            )
        else:
            n = node.shape[axis]
            if n == 0:
                raise ValueError(f"can't extend empty axis {axis} using modes other than 'constant' or 'empty'")
            before = _runs(node, axis, _mirror(mode, np.arange(-low, 0), n))
            after = _runs(node, axis, _mirror(mode, np.arange(n, n + high), n))
        node = _joined([*before, node, *after], axis, node.dtype, node.env)
    return box(node)


def _pairs(name: str, value: Any, ndim: int, kinds: str = "biufcmM") -> HostArray:
    array = host_array(value, name, kinds=kinds)
    try:
        return np.broadcast_to(array, (ndim, 2))
    except ValueError:
        raise ValueError(
            f"operands could not be broadcast together: {name} of shape {array.shape} for {ndim} axes"
        ) from None


def _border(node: Expr, axis: int, width: int, value: Any) -> Expr:
    shape = (*node.shape[:axis], width, *node.shape[axis + 1 :])
    if value is None:
        return bind_create(EMPTY, shape, node.dtype, node.env)
    return _full(shape, np.asarray(value).astype(node.dtype)[()], node.dtype, node.env)


def _mirror(mode: str, index: HostArray, n: int) -> HostArray:
    """The elements 0 .. n-1 that stand at `index` outside of them."""
    if mode == "edge" or (mode == "reflect" and n == 1):
        nearest: HostArray = np.clip(index, 0, n - 1)
        return nearest
    if mode == "wrap":
        return index % n
    period, last = (2 * n, 2 * n - 1) if mode == "symmetric" else (2 * n - 2, 2 * n - 2)
    folded = index % period
    mirrored: HostArray = np.minimum(folded, last - folded)
    return mirrored


def _runs(node: Expr, axis: int, index: HostArray) -> list[Expr]:
    """The elements at `index` along `axis`, as one view for each run of constant step."""
    runs = []
    i = 0
    while i < len(index):
        step = int(index[i + 1] - index[i]) if i + 1 < len(index) else 1
        breaks = np.flatnonzero(np.diff(index[i:]) != step)
        length = int(breaks[0]) + 1 if len(breaks) else len(index) - i
        runs.append(bind_get(node, slice_lens(node.shape, axis, int(index[i]), length, step)))
        i += length
    return runs


# ---------------------------------------------------------------------------------------- diagonals, triangles


def diag(v: Array, k: int = 0) -> Array:
    """The `k`-th diagonal of a matrix (a view), or the matrix with the vector `v` on it."""
    node, box = one_array("diag", v)
    if node.ndim == 2:
        return box(bind_get(node, diagonal_lens(node.shape, k)))
    if node.ndim != 1:
        raise ValueError("Input must be 1- or 2-d.")
    k = integer(k, "k")
    n = node.shape[0] + abs(k)
    zeros = _full((n, n), 0, node.dtype, node.env)
    return box(bind_put(zeros, diagonal_lens((n, n), k), node) if node.shape[0] else zeros)


def diagflat(v: Array, k: int = 0) -> Array:
    """The matrix with the elements of `v` on its `k`-th diagonal."""
    return diag(ravel(v), k)


def tril(x: Array, /, *, k: int = 0) -> Array:
    """`x` with zeros above the `k`-th diagonal of its last two axes."""
    return _triangle("tril", x, k)


def triu(x: Array, /, *, k: int = 0) -> Array:
    """`x` with zeros below the `k`-th diagonal of its last two axes."""
    return _triangle("triu", x, k)


def _triangle(name: str, x: Array, k: int) -> Array:
    node, box = one_array(name, x)
    if node.ndim == 0:
        raise TypeError(f"{name}: the array needs at least one axis")
    if node.ndim == 1:
        # numpy: a vector is every row of a square matrix
        node = bind_get(node, broadcast_lens(node.shape, (node.shape[0], node.shape[0])))
    k = integer(k, "k")
    mask = bind_create(TRI, node.shape[-2:], np.dtype(bool), node.env, (), k if name == "tril" else k - 1)
    zero: Any = _full((), 0, node.dtype, node.env) if node.dtype.kind in "mM" else node.dtype.type(0).item()
    return box(where(mask, node, zero) if name == "tril" else where(mask, zero, node))


# ------------------------------------------------------------------------------------------------- differences


def diff(x: Array, /, *, axis: int = -1, n: int = 1, prepend: Array = None, append: Array = None) -> Array:
    """`n`-th differences of neighbours along `axis`, with values before and after if given."""
    n = integer(n, "n")
    if n == 0:
        return x
    if n < 0:
        raise ValueError(f"order must be non-negative but got n={n}")
    node, box = one_array("diff", x)
    if node.ndim == 0:
        raise ValueError("diff requires input that is at least one dimensional")
    axis = normalize_axis(axis, node.ndim)
    parts = [x]
    for name, value, at in (("prepend", prepend, 0), ("append", append, len(parts))):
        if value is not None:
            extra = unbox("diff", (x, value)).nodes[1]
            if type(extra) is not Expr:
                extra = _full((), extra, np.asarray(extra).dtype, node.env)
            if extra.ndim == 0:
                extra = broadcast_to(extra, (*node.shape[:axis], 1, *node.shape[axis + 1 :]))
            if _beside_axis(extra.shape, axis) != _beside_axis(node.shape, axis):
                raise ValueError(
                    f"{name}={shown(value)} of shape {extra.shape} must match an array of shape {node.shape} in all "
                    f"axes but axis={axis}"
                )
            parts.insert(0 if at == 0 else len(parts), box(extra))
    joined = concat(parts, axis=axis) if len(parts) > 1 else x
    node, box = one_array("diff", joined)
    function = not_equal if node.dtype.kind == "b" else subtract
    for _ in range(min(n, node.shape[axis])):  # further ones are empty too
        m = max(node.shape[axis] - 1, 0)
        left = bind_get(node, slice_lens(node.shape, axis, 0, m))
        right = bind_get(node, slice_lens(node.shape, axis, min(1, node.shape[axis]), m))
        node = function(right, left)
    # An empty axis has no differences; a difference of moments is still a duration.
    return box(astype(node, function(node, node).dtype) if node.dtype.kind == "M" else node)


def _beside_axis(shape: Shape, axis: int) -> tuple[Shape, Shape] | None:
    """The extents before and after an axis; None if there is no such axis."""
    return (shape[:axis], shape[axis + 1 :]) if axis < len(shape) else None


@side_by_side
def ediff1d(ary: Array, to_end: Array = None, to_begin: Array = None) -> Array:
    """Differences of neighbours of the flattened array, with values before and after if given."""
    dtype = one_array("ediff1d", ary)[0].dtype
    if dtype.kind == "b":
        subtract(ary, ary)  # numpy's error: only `diff` takes its `not_equal` for booleans
    parts = [diff(ravel(ary))]
    for name, value, at in (("to_begin", to_begin, 0), ("to_end", to_end, 2)):
        if value is None:
            continue
        given = value.dtype if hasattr(value, "dtype") else host_array(value, name).dtype
        if not np.can_cast(given, dtype, "same_kind"):
            raise TypeError(
                f"dtype of `{name}` must be compatible with input `ary` under the `same_kind` rule: {given} is not "
                f"with {dtype}"
            )
        parts.insert(at, value)
    if len(parts) == 1:
        return parts[0]
    return concat([ravel(p) for p in _as_arrays("ediff1d", parts)], dtype=dtype)
