"""Singular values and vectors, and the pseudo-inverse: of tall and of wide matrices through QR."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.linalg import LinAlgError

from distarray.arguments import host_array, shown
from distarray.expr.bind import bind, unbox
from distarray.expr.broadcasting import broadcast_shapes
from distarray.expr.expr import Expr
from distarray.expr.op import declare
from distarray.ops.contractions import matmul
from distarray.ops.creation import empty_like, indices
from distarray.ops.elementwise import divide, equal, greater, greater_equal, multiply, real, where
from distarray.ops.families import Array, one_array, ready_made
from distarray.ops.linalg.matrices import WHOLE, SVDResult, matrices, real_dtype, several
from distarray.ops.linalg.orthogonal import tall_qr
from distarray.ops.linalg.panels import adjoint, is_cut, is_tall, transposed
from distarray.ops.manipulation import expand_dims
from distarray.ops.programs import boxed
from distarray.ops.reductions import max as _max

#: params: (full_matrices,)
SVD = declare(
    "svd", "block", rule=f"... i j -> ... i p, ... k, ... q j | {WHOLE}, p: whole, k: whole, q: whole", may_raise=True
)
SVDVALS = declare("svdvals", "block", rule=f"... i j -> ... k | {WHOLE}, k: whole", may_raise=True)


@ready_made(1)
def svd(x: Array, /, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False) -> Any:
    """Return ``x = (U * S) @ Vh`` with orthonormal columns in `U`, rows in `Vh`, and `S` descending.

    Without `full_matrices`, a matrix that is cut and has at least twice as many rows as columns, or columns as rows,
    goes through `qr`, and only its triangle is brought to one member; any other one is brought there whole.

    Parameters
    ----------
    full_matrices
        Whether `U` and `Vh` are square.
    compute_uv
        numpy's: without, only `S` is returned.
    hermitian
        Whether the lower triangle says what the upper one is.

    Raises
    ------
    LinAlgError
        If the iteration does not converge.
    MemoryBudgetError
        If a matrix is brought to one member and does not fit its memory budget.
    """
    if hermitian:
        x = one_array("svd", x)[1](mirrored("svd", x))
    if not compute_uv:
        return svdvals(x)
    node, box = matrices("svd", x)
    if not full_matrices and is_cut(node):
        if is_tall(node.shape):
            return SVDResult(*boxed("svd", box, _tall(node), shared=True))
        if is_tall(node.shape[::-1]):
            v, s, uh = _tall(transposed(node))
            return SVDResult(*boxed("svd", box, [transposed(uh), s, transposed(v)], shared=True))
    return SVDResult(*boxed("svd", box, _whole(node, full_matrices=bool(full_matrices))))


def _whole(node: Expr, *, full_matrices: bool) -> list[Expr]:
    *lead, m, n = node.shape
    k = min(m, n)
    p, q = (m, n) if full_matrices else (k, k)
    shapes = ((*lead, m, p), (*lead, k), (*lead, q, n))
    return several(SVD, (node,), shapes, (node.dtype, real_dtype(node.dtype), node.dtype), (full_matrices,))


def _tall(node: Expr) -> tuple[Expr, Expr, Expr]:
    q, r = tall_qr(node)
    u, s, vh = _whole(r, full_matrices=False)
    return matmul(q, u), s, vh


@ready_made(1)
def svdvals(x: Array, /) -> Array:
    """Return singular values, descending.

    A matrix that is cut and has at least twice as many rows as columns, or columns as rows, goes through the triangle
    of `qr`, and only that is brought to one member; any other one is brought there whole.

    Raises
    ------
    LinAlgError
        If the iteration does not converge.
    MemoryBudgetError
        If a matrix is brought to one member and does not fit its memory budget.
    """
    node, box = matrices("svdvals", x)
    if is_cut(node):
        if is_tall(node.shape):
            node = tall_qr(node, with_q=False)[1]
        elif is_tall(node.shape[::-1]):
            node = tall_qr(transposed(node), with_q=False)[1]
    return box(bind(SVDVALS, (node,), (*node.shape[:-2], min(node.shape[-2:])), real_dtype(node.dtype)))


def mirrored(name: str, x: Array) -> Expr:
    """Return hermitian matrices of the lower triangles of square ones, in a floating dtype, as numpy reads them.

    Raises
    ------
    LinAlgError
        If they are not square.
    """
    node, _ = matrices(name, x)
    if node.shape[-1] != node.shape[-2]:
        raise LinAlgError(
            f"{name}, hermitian=True: Last 2 dimensions of the array must be square, but they are {node.shape[-2:]}"
        )
    row, column = indices(node.shape[-2:], None, node.env)
    made: Expr = where(greater_equal(row, column), node, adjoint(node))
    if node.dtype.kind == "c":
        made = where(equal(row, column), real(made), made)
    return made


@ready_made(1)
def pinv(x: Array, /, *, rtol: Any = None, hermitian: bool = False) -> Array:
    """Return the pseudo-inverse; singular values up to `rtol` times the largest count as zero.

    It is made of the factors of `svd`, which says what is brought to one member.

    Parameters
    ----------
    rtol
        By default ``max(m, n)`` times the precision.
    hermitian
        Whether the lower triangle says what the upper one is.

    Raises
    ------
    MemoryBudgetError
        If a matrix is brought to one member and does not fit its memory budget.
    """
    given, _ = one_array("pinv", x)
    if given.ndim > 1 and 0 in given.shape[-2:]:
        # of any dtype: there is nothing to factorise
        return empty_like(x, shape=(*given.shape[:-2], *given.shape[:-3:-1]))
    node, box = matrices("pinv", x)
    if hermitian:
        node = mirrored("pinv", node)
    *_, m, n = node.shape
    if rtol is None:
        rtol = max(m, n) * float(np.finfo(node.dtype).eps)
    else:
        rtol = tolerance(node, rtol, "rtol")
        lead = rtol.shape[:-1] if isinstance(rtol, Expr) else ()
        if broadcast_shapes(lead, node.shape[:-2]) != node.shape[:-2]:
            raise ValueError(
                f"non-broadcastable output operand: rtol is of shape {lead} for matrices of shape {node.shape[:-2]}"
            )
    u, s, vh = svd(node, full_matrices=False)
    large = greater(s, multiply(rtol, _max(s, axis=-1, keepdims=True)))
    with np.errstate(divide="ignore"):
        inverse = where(large, divide(1, s), 0)
    # x = U S V^H, hence x+ = V S+ U^H
    found = matmul(adjoint(vh), multiply(expand_dims(inverse, axis=-1), adjoint(u)))
    return boxed("pinv", box, [found])[0]


def tolerance(node: Expr, given: Array, name: str) -> Any:  # a number, None or a node
    """Return a tolerance, or one for each matrix, as they broadcast to its singular values.

    Raises
    ------
    TypeError
        If it is neither a real number nor an array of them.
    """
    if given is None or isinstance(given, float | int):
        return given
    if not hasattr(given, "dtype"):
        given = host_array(given, name, kinds="biuf")
    each = unbox(name, (node, given)).nodes[1]
    assert type(each) is Expr
    if each.dtype.kind == "c":
        raise TypeError(f"{name}={shown(given)} must be real")
    return expand_dims(each, axis=-1)
