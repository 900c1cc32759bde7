"""Sums of products over labelled loops: matmul and its kin.

Every contraction is one operation, ``einsum``, whose params are ``(labels of each operand, labels of the result, join,
aggregation)``, and where the caller says its cut the mesh axes of each label that the result lacks; labels are small
integers. A product has the join `PRODUCT`; other joins are in `einsums`. An axis of extent 1 that broadcasts is dropped
by a lens first, and so is a label that stands twice in one operand (its diagonal is a view). A label of one operand
alone is summed before. So the kernel of a product sees batch loops, loops of one side, and summed loops, and nothing
else.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from distarray.arguments import check_ndim, integer, integers, normalize_axes, sequence, shown
from distarray.dtypes import as_dtype
from distarray.expr.affine import Affine
from distarray.expr.bind import Operands, bind, bind_get, bind_reshape, unbox
from distarray.expr.broadcasting import broadcast_shapes
from distarray.expr.expr import Expr, lying
from distarray.expr.joins import PRODUCT
from distarray.expr.op import declare
from distarray.expr.params import ContractParams, IndexParams, Labels
from distarray.ops.creation import arange, operand_node
from distarray.ops.elementwise import astype, conj, multiply
from distarray.ops.families import Array, one_array, ready_made, ufunc_of
from distarray.ops.indexing import TAKE
from distarray.ops.lenses import diagonal_lens, moveaxis_lens, permute_lens
from distarray.ops.reductions import sum as _sum
from distarray.ops.window_products import with_windows
from distarray.types import DType, DTypeLike

EINSUM = declare("einsum", "contract")


@lru_cache(maxsize=1024)
def _product_dtype(*dtypes: DType) -> DType:
    """Return what numpy's products give: the promoted dtype, small integers stay small, booleans stay booleans.

    Raises
    ------
    TypeError
        For dates, which have no products.
    """
    try:
        return as_dtype(np.matmul(*(np.zeros((1, 1), d) for d in dtypes)).dtype)
    except TypeError as error:
        # Where numpy has an answer (`dot`, `inner`), it has lost the unit.
        names = " and ".join(map(str, dtypes))
        error.add_note(f"sums of products of {names} have no dtype here; multiply the integers, x.astype('i8')")
        raise


def plain_loops(nodes: Sequence[Expr], labels: Sequence[Labels]) -> tuple[list[Expr], list[Labels], dict[int, int]]:
    """Return the operands whose every axis is a loop of its own: diagonals of repeated labels, no axis that broadcasts.

    Returns
    -------
    nodes, labels, extents
        The operands, their labels, and the extent of each label.
    """
    extents = _extents(tuple([node.shape for node in nodes]), tuple(map(tuple, labels)))
    plain: list[Expr] = []
    forms: list[Labels] = []
    for node, own in zip(nodes, labels):
        node, own = _without_repeats(node, own)
        # an axis of extent 1 that broadcasts is no loop of this operand
        ones = tuple([a for a, label in enumerate(own) if node.shape[a] == 1 and extents[label] != 1])
        plain.append(bind_get(node, Affine.identity(node.shape).squeezed(ones)) if ones else node)
        forms.append(tuple([label for a, label in enumerate(own) if a not in ones]) if ones else own)
    return plain, forms, extents


@lru_cache(maxsize=1024)
def _extents(shapes: tuple[tuple[int, ...], ...], labels: tuple[Labels, ...]) -> dict[int, int]:
    extents: dict[int, int] = {}
    for shape, own in zip(shapes, labels):
        for label, n in zip(own, shape):
            extents[label] = n if extents.get(label, 1) == 1 else extents[label]
    return extents


@lru_cache(maxsize=1024)
def alone(forms: tuple[Labels, ...], result: Labels) -> tuple[tuple[int, ...], ...]:
    """Return for each operand the axes whose labels neither another operand nor the result has."""
    found = []
    for i, own in enumerate(forms):
        others = {label for j, o in enumerate(forms) if j != i for label in o}
        found.append(tuple([a for a, label in enumerate(own) if label not in others and label not in result]))
    return tuple(found)


def contraction(
    nodes: Sequence[Expr], labels: Sequence[Labels], result: Labels, dtype: DType, name: str = "einsum"
) -> Expr:
    """Return the node of a sum of products of one or two operands; brings them into the form that kernels expect.

    Of its floating-point events numpy tells by `name`.
    """
    plain, forms, extents = plain_loops(nodes, labels)
    for i, axes in enumerate(alone(tuple(forms), result)):
        if axes:
            plain[i] = _sum(astype(plain[i], dtype, copy=False), axis=axes, dtype=dtype)
            forms[i] = tuple(label for a, label in enumerate(forms[i]) if a not in axes)
    if len(plain) == 1:
        (node,), (own,) = plain, forms
        node = bind_get(node, permute_lens(node.shape, [own.index(label) for label in result]))
        return astype(node, dtype, copy=False)
    if (windowed := with_windows(plain, forms, result, dtype, name)) is not None:
        return windowed
    agg = "any" if dtype.kind == "b" else "sum"
    params = ContractParams(tuple(forms), result, PRODUCT, agg, name=name)
    return bind(EINSUM, plain, tuple(extents[label] for label in result), dtype, params)


def _without_repeats(node: Expr, labels: Labels) -> tuple[Expr, Labels]:
    """Return the diagonals that a label standing twice means."""
    while len(set(labels)) < len(labels):
        first = next(a for a, label in enumerate(labels) if label in labels[a + 1 :])
        second = labels.index(labels[first], first + 1)
        node = bind_get(node, diagonal_lens(node.shape, 0, first, second))
        labels = (*(label for a, label in enumerate(labels) if a not in (first, second)), labels[first])
    return node, labels


# ------------------------------------------------------------------------------------------------------- products


def _too_few_axes(name: str, operands: Operands, i: int, signature: str, needed: int) -> Exception:
    """Return numpy's error for the i-th operand of a product: that of a number that does not fit the other comes
    first.
    """
    node = operands.nodes[i]
    if type(node) is Expr:
        ndim = node.ndim
    else:
        ndim, other = 0, operands.nodes[1 - i]
        if type(node) is int and type(other) is Expr and other.dtype.kind in "iu":
            try:
                other.dtype.type(node)
            except OverflowError as error:
                return error
    return ValueError(
        f"{name}: Input operand {i} does not have enough dimensions (has {ndim}, gufunc core with signature "
        f"{signature} requires {needed})"
    )


def _product(name: str, operands: Operands, cores: tuple[str, str], result: str, signature: str) -> Array:
    """Return a product of the last axes, written in letters, with leading axes that broadcast."""
    for i, (n, core) in enumerate(zip(operands.nodes, cores)):
        ndim = n.ndim if type(n) is Expr else 0
        if ndim < len(core):
            raise _too_few_axes(name, operands, i, signature, len(core))
    a, b = operands.nodes
    assert type(a) is Expr  # numbers have no axes: see above
    assert type(b) is Expr
    dtype = _product_dtype(a.dtype, b.dtype)
    labels, kept = _labels(name, (a.shape, b.shape), cores, result, signature)
    return operands.box(contraction((a, b), labels, kept, dtype, name))


@lru_cache(maxsize=1024)
def _labels(
    name: str, shapes: tuple[tuple[int, ...], tuple[int, ...]], cores: tuple[str, str], result: str, signature: str
) -> tuple[tuple[Labels, Labels], Labels]:
    """Return the labels of both operands of a product and of its result; numpy's errors for shapes that do not fit."""
    leads = [shape[: len(shape) - len(core)] for shape, core in zip(shapes, cores)]
    batch = broadcast_shapes(*leads)
    letters = {c: len(batch) + i for i, c in enumerate(dict.fromkeys(cores[0] + cores[1]))}
    sizes: dict[str, int] = {}
    for i, (shape, core) in enumerate(zip(shapes, cores)):
        for c, extent in zip(core, shape[len(shape) - len(core) :]):
            if sizes.setdefault(c, extent) != extent:
                raise ValueError(
                    f"{name}: Input operand {i} has a mismatch in its core dimension {core.index(c)}, with gufunc "
                    f"signature {signature} (size {extent} is different from {sizes[c]})"
                )
    left, right = [
        (*range(len(batch) - len(lead), len(batch)), *[letters[c] for c in core]) for lead, core in zip(leads, cores)
    ]
    return (left, right), (*range(len(batch)), *[letters[c] for c in result])


@ufunc_of(2)
@ready_made(2)
def matmul(x1: Array, x2: Array, /) -> Array:
    """Return the matrix product over the last two axes; vectors are rows on the left, columns on the right.

    Leading axes broadcast.
    """
    operands = unbox("matmul", (x1, x2))
    ranks = [n.ndim if type(n) is Expr else 0 for n in operands.nodes]
    left = "k" if ranks[0] == 1 else "ik"
    right = "k" if ranks[1] == 1 else "kj"
    for i, n in enumerate(ranks):
        if n == 0:
            raise _too_few_axes("matmul", operands, i, "(n?,k),(k,m?)->(n?,m?)", 1)
    result = left.replace("k", "") + right.replace("k", "")
    return _product("matmul", operands, (left, right), result, "(n?,k),(k,m?)->(n?,m?)")


@ufunc_of(2)
@ready_made(2)
def matvec(x1: Array, x2: Array, /) -> Array:
    """Return the product of matrices with vectors, over the last axes; leading axes broadcast."""
    return _product("matvec", unbox("matvec", (x1, x2)), ("ik", "k"), "i", "(m,n),(n)->(m)")


@ufunc_of(2)
@ready_made(2)
def vecmat(x1: Array, x2: Array, /) -> Array:
    """Return the product of conjugated vectors with matrices, over the last axes; leading axes broadcast."""
    return _product("vecmat", _conjugated("vecmat", x1, x2), ("k", "kj"), "j", "(n),(n,m)->(m)")


def _conjugated(name: str, x1: Array, x2: Array) -> Operands:
    """Return the operands of a product, the first one conjugated. Nothing of them has a handle of its own."""
    operands = unbox(name, (x1, x2))
    a = operands.nodes[0]
    if type(a) is Expr and a.dtype.kind == "c":
        operands.nodes[0] = conj(a)
    return operands


@ufunc_of(2, "axis")
@ready_made(2)
def vecdot(x1: Array, x2: Array, /, *, axis: int = -1) -> Array:
    """Return the inner product along `axis`, the first operand conjugated; the other axes broadcast."""
    operands = _conjugated("vecdot", x1, x2)
    axis = integer(axis, "axis", truths=False)
    if axis != -1:
        operands.nodes = [
            bind_get(node, moveaxis_lens(node.shape, axis, -1)) if type(node) is Expr else node
            for node in operands.nodes
        ]
    return _product("vecdot", operands, ("k", "k"), "", "(n),(n)->()")


@ready_made(2)
def tensordot(x1: Array, x2: Array, /, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> Array:
    """Return the sum of products over `axes`: so many last and first axes, or these axes of each operand."""
    a, b, box = _pair("tensordot", x1, x2)
    left: Any
    right: Any
    if hasattr(axes, "__index__") and not getattr(axes, "ndim", 0):
        n = integer(axes, "axes")
        if n > min(a.ndim, b.ndim):
            raise np.exceptions.AxisError(f"axes={n} are more than operands of {a.ndim} and {b.ndim} axes have")
        left, right = range(-n, 0), range(n)
    else:
        pair = sequence(axes, "axes", "two sequences of integers")
        if len(pair) != 2:
            raise ValueError(f"axes={shown(axes)} must be an integer or two sequences of integers")
        left, right = pair  # numpy allows two ints
    left, right = (integers(v, "axes", truths=False) for v in (left, right))
    if any(len(set(v)) < len(v) for v in (left, right)):
        raise ValueError(f"duplicate axes are not allowed in tensordot: axes={shown(axes)}")
    own_axes = [normalize_axes(v, n.ndim, "axes") for v, n in ((left, a), (right, b))]
    if len(left) != len(right) or any(a.shape[i] != b.shape[j] for i, j in zip(left, right)):
        raise ValueError(
            f"shape-mismatch for sum: axes {left} of shape {a.shape} against axes {right} of shape {b.shape}"
        )
    left, right = own_axes
    own = tuple(range(a.ndim))
    other: list[int] = [a.ndim + i for i in range(b.ndim)]
    for i, j in zip(left, right):
        other[j] = own[i]
    result = (*(i for i in own if i not in left), *(v for j, v in enumerate(other) if j not in right))
    dtype = _product_dtype(a.dtype, b.dtype)
    return box(contraction((a, b), (own, tuple(other)), result, dtype, "dot"))


@ready_made(2)
def outer(x1: Array, x2: Array, /) -> Array:
    """Return all products of the elements of two vectors; arrays are flattened first."""
    a, b, box = _pair("outer", x1, x2)
    a, b = bind_reshape(a, (a.size,)), bind_reshape(b, (b.size,))
    column = bind_get(a, Affine.identity(a.shape).expanded(1))
    return box(multiply(column, b))


@ready_made(2)
def inner(a: Array, b: Array, /) -> Array:
    """Return the sum of products over the last axis of both; a product with a scalar otherwise."""
    return _along_last("inner", a, b, 1)


@ready_made(2)
def dot(a: Array, b: Array) -> Array:
    """Return the sum of products over the last axis of `a` and the last but one of `b`; a product with a scalar
    otherwise.
    """
    return _along_last("dot", a, b, 2)


def _along_last(name: str, a: Array, b: Array, place: int) -> Array:
    """Return the sum of products over the last axis of `a` and that of `b` at this place, counted from its end."""
    x, y, box = _pair(name, a, b)
    if not x.ndim or not y.ndim:
        return box(multiply(x, y))
    axis = max(y.ndim - place, 0)
    if x.shape[-1] != y.shape[axis]:
        raise ValueError(
            f"shapes {x.shape} and {y.shape} not aligned: "
            f"{x.shape[-1]} (dim {x.ndim - 1}) != {y.shape[axis]} (dim {axis})"
        )
    return box(tensordot(x, y, axes=((-1,), (axis,))))


@ready_made(2)
@np.errstate(all="ignore")  # numpy tells nothing of it
def vdot(a: Array, b: Array, /) -> Array:
    """Return the inner product of two flattened arrays, the first conjugated."""
    x, y, box = _pair("vdot", a, b)
    if x.dtype.kind == "c":
        x = conj(x)
    if x.size != y.size:
        raise ValueError(f"cannot reshape array of size {x.size} into shape ({y.size},)")
    return box(tensordot(bind_reshape(x, (x.size,)), bind_reshape(y, (y.size,)), axes=1))


def _pair(name: str, a: Array, b: Array) -> tuple[Expr, Expr, Any]:
    """Return two operands; of a number numpy makes an array first, of the number's own dtype."""
    operands = unbox(name, (a, b))
    x, y = (operand_node(n, operands.env) for n in operands.nodes)
    return x, y, operands.box


@ready_made(2)
def kron(a: Array, b: Array) -> Array:
    """Return the Kronecker product: `b` scaled by each element of `a`."""
    x, y, box = _pair("kron", a, b)
    if not x.ndim or not y.ndim:
        return box(multiply(x, y))
    ndim = max(x.ndim, y.ndim)
    check_ndim(2 * ndim)
    left, right = ((1,) * (ndim - n.ndim) + n.shape for n in (x, y))
    # kron(a, b)[i * n + j] = a[i] * b[j] along every axis
    wide = bind_reshape(x, tuple(n for pair in zip(left, (1,) * ndim) for n in pair))
    fine = bind_reshape(y, tuple(n for pair in zip((1,) * ndim, right) for n in pair))
    return box(bind_reshape(multiply(wide, fine), tuple(n * m for n, m in zip(left, right))))


def trace(x: Array, /, *, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: DTypeLike | None = None) -> Array:
    """Return the sum over the diagonal of two axes (the first two, as in numpy); of a matrix that is cut only the
    diagonal moves.
    """
    node, box = one_array("trace", x)
    if dtype is not None and "m" in (node.dtype.kind, as_dtype(dtype).kind):  # numpy's leaves elements what they are
        made = np.trace(np.ones((1, 1), node.dtype), dtype=as_dtype(dtype)).dtype
        dtype = None if made == node.dtype else made
    return box(_sum(_diagonal(node, diagonal_lens(node.shape, offset, axis1, axis2)), axis=-1, dtype=dtype))


def _diagonal(node: Expr, lens: Affine) -> Expr:
    """Return the diagonal that a lens sees; of a matrix of which both axes are cut by its positions, since the boxes
    around its parts would move where it is read as a view.
    """
    known = lying(node)
    if node.ndim != 2 or known is None or 1 in known.parts:
        return bind_get(node, lens)
    starts = [start for _, start, _ in lens.terms]
    positions = [arange(start, start + lens.shape[0], 1, np.int64, node.env) for start in starts]
    return bind(TAKE, (node, *positions), lens.shape, node.dtype, IndexParams((0, 1), 0, 1))
