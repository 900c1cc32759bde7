"""Powers, chains and outer products of matrices and vectors, and their diagonals."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Any

from numpy.linalg import LinAlgError

from distarray.arguments import integer, normalize_axis, sequence
from distarray.expr.bind import unbox
from distarray.expr.broadcasting import broadcast_shapes
from distarray.expr.expr import Expr
from distarray.ops import contractions
from distarray.ops.contractions import matmul
from distarray.ops.einsums import einsum
from distarray.ops.elementwise import multiply, subtract
from distarray.ops.families import Array, one_array, ready_made
from distarray.ops.joining import stack
from distarray.ops.linalg.matrices import check_matrices, identity_of
from distarray.ops.linalg.systems import inv
from distarray.ops.manipulation import broadcast_to, moveaxis, slice_at
from distarray.ops.programs import boxed
from distarray.types import DTypeLike


@ready_made(1)
def matrix_power(x: Array, n: int, /) -> Array:
    """Return square matrices multiplied with themselves, `n` factors in all; inverses if `n` is negative."""
    node, box = one_array("matrix_power", x)
    check_matrices(node, square=True)
    n = integer(n, "n")
    if n == 0:
        return box(broadcast_to(identity_of(node), node.shape))
    may_raise = n < 0
    if may_raise:
        node, n = inv(node), -n
    # squares of squares, as many products as n has bits
    result: Expr | None = None
    while True:
        n, bit = divmod(n, 2)
        if bit:
            result = node if result is None else matmul(result, node)
        if not n:
            assert result is not None
            return boxed("matrix_power", box, [result])[0] if may_raise else box(result)
        node = matmul(node, node)


def multi_dot(arrays: Sequence[Array]) -> Array:
    """Return the product of several matrices, in the cheapest order; the first and the last may be vectors."""
    return _multiplied(*sequence(arrays, "arrays", "matrices"))


@ready_made(None)
def _multiplied(*arrays: Array) -> Array:
    if len(arrays) < 2:
        raise ValueError("Expecting at least two arrays.")
    operands = unbox("multi_dot", arrays)
    nodes = [n for n in operands.nodes if type(n) is Expr]
    ranks = [n.ndim for n in nodes]
    if len(nodes) < len(arrays) or any(r != 2 for r in ranks[1:-1]) or not {ranks[0], ranks[-1]} <= {1, 2}:
        raise LinAlgError("multi_dot: the arrays must be matrices, of which the first and the last may be vectors")
    for one, other in pairwise(nodes):
        if one.shape[-1] != other.shape[0]:
            raise ValueError(f"shapes {one.shape} and {other.shape} not aligned: {one.shape[-1]} != {other.shape[0]}")
    if len({node.dtype for node in nodes}) > 1:
        return operands.box(_two_at_a_time(nodes))
    letters: list[Any] = []
    for i, node in enumerate(nodes):
        both = [i, i + 1]
        letters += [node, both if node.ndim == 2 else [i + 1] if i == 0 else [i]]
    result = ([0] if ranks[0] == 2 else []) + ([len(nodes)] if ranks[-1] == 2 else [])
    return operands.box(einsum(*letters, result))


def _two_at_a_time(nodes: Sequence[Expr]) -> Expr:
    """Return the product of matrices of several dtypes in numpy's order: each product of two has the dtype of these."""
    extents = [1 if nodes[0].ndim == 1 else nodes[0].shape[0], *[node.shape[0] for node in nodes[1:]]]
    extents.append(1 if nodes[-1].ndim == 1 else nodes[-1].shape[1])

    @cache
    def cheapest(first: int, last: int) -> tuple[int, int]:
        """Return what a product of neighbours costs, and the last of its left factor; the first of equal ones."""
        if first == last:
            return 0, first
        beside = extents[first] * extents[last + 1]
        costs = [
            (cheapest(first, k)[0] + cheapest(k + 1, last)[0] + beside * extents[k + 1], k) for k in range(first, last)
        ]
        return min(costs)

    def product(first: int, last: int) -> Expr:
        if first == last:
            return nodes[first]
        middle = cheapest(first, last)[1]
        return matmul(product(first, middle), product(middle + 1, last))

    return product(0, len(nodes) - 1)


@ready_made(2)
def cross(x1: Array, x2: Array, /, *, axis: int = -1) -> Array:
    """Return the cross product of vectors of three elements along `axis`; the other axes broadcast."""
    operands = unbox("cross", (x1, x2))
    a, b = operands.nodes
    if type(a) is not Expr or type(b) is not Expr:
        raise ValueError("cross: both operands must be arrays of vectors with three elements")
    a, b = (moveaxis(n, normalize_axis(axis, n.ndim), -1) for n in (a, b))
    if a.shape[-1] != 3 or b.shape[-1] != 3:
        raise ValueError(
            "Both input arrays must be (arrays of) 3-dimensional vectors, "
            f"but they are {a.shape[-1]} and {b.shape[-1]} dimensional instead."
        )
    broadcast_shapes(a.shape, b.shape)

    x, y = ([slice_at(n, -1, i % 3) for i in range(5)] for n in (a, b))
    parts = [subtract(multiply(x[i + 1], y[i + 2]), multiply(x[i + 2], y[i + 1])) for i in range(3)]
    return operands.box(moveaxis(stack(parts, axis=-1), -1, axis))


def outer(x1: Array, x2: Array, /) -> Array:
    """Return all products of the elements of two vectors."""
    operands = unbox("outer", (x1, x2))
    ranks = [n.ndim if type(n) is Expr else 0 for n in operands.nodes]
    if ranks != [1, 1]:
        raise ValueError(f"Input arrays must be one-dimensional, but they are {ranks[0]}-d and {ranks[1]}-d.")
    return contractions.outer(x1, x2)


@ready_made(1)
def trace(x: Array, /, *, offset: int = 0, dtype: DTypeLike | None = None) -> Array:
    """Return the sums over the diagonals of the last two axes."""
    return contractions.trace(x, offset=offset, axis1=-2, axis2=-1, dtype=dtype)
