"""Least squares: of tall and of wide matrices through QR."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.linalg import LinAlgError

from distarray.arguments import number
from distarray.expr.bind import Boxed, bind_create, bind_put, literal, unbox
from distarray.expr.expr import Expr
from distarray.expr.op import declare
from distarray.ops.contractions import matmul
from distarray.ops.creation import EMPTY, full
from distarray.ops.elementwise import abs, astype, equal, square, subtract, where
from distarray.ops.families import Array, ready_made
from distarray.ops.lenses import slice_lens
from distarray.ops.linalg.matrices import float_dtype, real_dtype, several
from distarray.ops.linalg.orthogonal import tall_qr
from distarray.ops.linalg.panels import adjoint, is_cut, is_tall, row_blocks, rows
from distarray.ops.manipulation import expand_dims, sliced, squeeze
from distarray.ops.programs import boxed
from distarray.ops.reductions import sum as _sum
from distarray.types import HostArray

#: operands: a, b, the relative cutoff of singular values. results: x, squared residuals, rank, singular values
LSTSQ = declare(
    "lstsq", "block", rule="i j, i k, () -> j k, k, (), s | i: whole, j: whole, k: whole, s: whole", may_raise=True
)
#: Of a matrix `a` that every member has, whose rank and singular values are known: columns of `b` stay where they lie.
LSTSQ_COLUMNS = declare("lstsq_columns", "block", rule="i j, i k, () -> j k, k | i: whole, j: whole", may_raise=True)


@ready_made(2)
def lstsq(a: Array, b: Array, rcond: float | None = None) -> tuple[Array, Array, Array, Array]:
    """Return the `x` that minimises ``|a @ x - b|``, the shortest one if there are several.

    If `a` is host data, each member solves for the columns of `b` that it has; rank and singular values are computed
    here, at the call. If it is cut and has at least twice as many rows as columns, or columns as rows, it goes through
    `qr`, and only its triangle is brought to one member; any other one is brought there whole.

    Returns
    -------
    x, residuals, rank, s
        Squared residuals for each column of `b`: none where `a` has no more rows than columns, and nan where its rank
        is less than its columns (numpy gives none there, but no shape can depend on a rank); the rank as an array
        without axes; singular values.

    Raises
    ------
    LinAlgError
        If the shapes do not fit, or the iteration for the singular values does not converge.
    MemoryBudgetError
        If a matrix is brought to one member and does not fit its memory budget.
    """
    if rcond is not None:
        number(rcond, "rcond", real=True)
    operands = unbox("lstsq", (a, b))
    left, right = operands.nodes
    if type(left) is not Expr or left.ndim != 2:
        raise LinAlgError("lstsq: a must be two-dimensional")
    if type(right) is not Expr or right.ndim not in (1, 2):
        raise LinAlgError("lstsq: b must have one or two dimensions")
    m, n = left.shape
    if right.shape[0] != m:
        raise LinAlgError(f"Incompatible dimensions: a has {m} rows, b has {right.shape[0]}")
    dtype = float_dtype(left.dtype, right.dtype)
    vector = right.ndim == 1
    right = astype(expand_dims(right, axis=1) if vector else right, dtype, copy=False)
    left = astype(left, dtype, copy=False)
    # in single precision too, numpy counts as zero what would be so in double
    cutoff = float(np.finfo(np.float64).eps) * max(m, n) if rcond is None else float(rcond)
    solver: Callable[[Expr, Expr, Expr], list[Expr]] = _whole
    if not isinstance(a, Expr | Boxed):
        solver = _columns(np.asarray(a, dtype), cutoff)
    elif is_cut(left):
        solver = _tall if is_tall((m, n)) else _wide if is_tall((n, m)) else _whole
    x, residuals, rank, s = solver(left, right, full((), cutoff, np.float64, operands.env))
    residuals = residuals if m > n else sliced(residuals, 0, 0, 0)
    x = squeeze(x, axis=1) if vector else x
    x, residuals, rank, s = boxed("lstsq", operands.box, [x, residuals, rank, s], shared=solver in (_tall, _wide))
    return x, residuals, rank, s


def _whole(a: Expr, b: Expr, cutoff: Expr) -> list[Expr]:
    real = real_dtype(a.dtype)
    (m, n), k = a.shape, b.shape[1]
    dtypes = (a.dtype, real, np.dtype(np.intc), real)
    return several(LSTSQ, (a, b, cutoff), ((n, k), (k,), (), (min(m, n),)), dtypes)


def _columns(a: HostArray, cutoff: float) -> Callable[[Expr, Expr, Expr], list[Expr]]:
    """Return the solver for a matrix of this process."""
    real = real_dtype(a.dtype)
    values = np.linalg.svd(a, compute_uv=False).astype(real, copy=False)
    rank = np.asarray(np.sum(values > cutoff * values.max(initial=0)), np.intc)

    def solver(left: Expr, b: Expr, given: Expr) -> list[Expr]:
        k, n = b.shape[1], left.shape[1]
        found = several(LSTSQ_COLUMNS, (left, b, given), ((n, k), (k,)), (a.dtype, real))
        return [*found, literal(rank, b.env), literal(values, b.env)]

    return solver


def _tall(a: Expr, b: Expr, cutoff: Expr) -> list[Expr]:
    """Return solution, residuals, rank and singular values for more rows than columns.

    With ``a = Q R``, ``|a x - b|`` is least where ``|R x - Q^H b|`` is.
    """
    (m, n), k = a.shape, b.shape[1]
    if is_tall((m, n + k)):
        r, c, rest = _reduced(a, b)
        x, _, rank, s = _whole(r, c, cutoff)
        residuals = _sum(square(abs(rest)), axis=0)
    else:
        q, r = tall_qr(a)
        assert q is not None
        x, _, rank, s = _whole(r, matmul(adjoint(q), b), cutoff)
        residuals = _sum(square(abs(subtract(b, matmul(a, x)))), axis=0)
    return [x, where(equal(rank, n), residuals, math.nan), rank, s]


def _reduced(a: Expr, b: Expr) -> tuple[Expr, Expr, Expr]:
    """Return the triangle of `a`, ``Q^H b``, and a matrix whose columns are as long as what of `b` is left.

    They are the blocks of the triangle of `a` and `b` side by side, so no `Q` is formed.
    """
    (m, n), k = a.shape, b.shape[1]
    both = bind_create(EMPTY, (m, n + k), a.dtype, a.env, (), None, row_blocks(a))
    for part, start in ((a, 0), (b, n)):
        both = bind_put(both, slice_lens((m, n + k), 1, start, part.shape[1]), part)
    _, triangle = tall_qr(both, with_q=False)
    top, bottom = rows(triangle, 0, n), rows(triangle, n, n + k, columns_from=n)
    return sliced(top, 1, 0, n), sliced(top, 1, n, k), bottom


def _wide(a: Expr, b: Expr, cutoff: Expr) -> list[Expr]:
    """Return solution, residuals, rank and singular values for more columns than rows.

    With ``a^H = Q R`` the shortest solution is ``Q y``, where `y` solves ``R^H y = b``.
    """
    q, r = tall_qr(adjoint(a))
    assert q is not None
    y, residuals, rank, s = _whole(adjoint(r), b, cutoff)
    return [matmul(q, y), residuals, rank, s]
