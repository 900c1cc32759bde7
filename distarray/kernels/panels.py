"""Kernels of linear algebra on a matrix that is cut: steps of factorisations, on one panel or one row block each.

Panels come transposed, as rows: a row block in C order is a column block in Fortran order, which is what LAPACK wants,
and tiles are cut along their first axis (`ops.linalg.panels`). Kernels use the functions of the standard; where these
are not enough, SciPy's and their likes in CuPy stand behind the namespace, imported late because they take a quarter of
a second. Fresh pages cost as much as a narrow product, so a kernel makes its result once and changes it in place.
`BLOCK` is a part of `tables.BLOCK`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.linalg import LinAlgError

from distarray.kernels.linalg import cholesky, qr_r
from distarray.kernels.namespaces import Block, Namespace, Params, is_strict, placed


def _adjoint(xp: Namespace, x: Block) -> Block:
    """Return the conjugated transpose of a matrix."""
    return xp.conj(x.T) if xp.isdtype(x.dtype, "complex floating") else x.T


# ----------------------------------------------------------------------------------------------------- triangles


def _solve_triangular(xp: Namespace, a: Block, b: Block, *, lower: bool, unit: bool = False) -> Block:
    """Return the `x` with ``a @ x = b``, of which one triangle is read; with `unit` its diagonal counts as ones."""
    if is_strict(xp):
        # the standard has no triangular solver
        triangle = (xp.tril if lower else xp.triu)(a, k=0 if not unit else -1 if lower else 1)
        if unit:
            triangle = triangle + xp.eye(a.shape[0], dtype=a.dtype, device=a.device)
        return xp.linalg.solve(triangle, b)
    if xp is np:
        from scipy.linalg import solve_triangular
    else:
        from cupyx.scipy.linalg import solve_triangular
    return solve_triangular(a, b, lower=lower, unit_diagonal=unit, check_finite=False)


# ------------------------------------------------------------------------------------------------------ Cholesky


def _cholesky_panel(xp: Namespace, head: Block, *, params: Params) -> Block:
    """Return the rows of `U` in ``U^H @ U``, from the rows of what is left of the matrix."""
    width = head.shape[0]
    corner = xp.triu(head[:, :width])
    # what lies below the diagonal has not been kept up to date, and some backends read it
    corner = cholesky(xp, corner + _adjoint(xp, xp.triu(corner, k=1)), params=(True,))
    if head.shape[1] == width:
        return corner
    rest = _solve_triangular(xp, _adjoint(xp, corner), head[:, width:], lower=True)
    return xp.concat([corner, rest], axis=1)


def _cholesky_update(xp: Namespace, tile: Block, rows: Block, *, params: Params) -> Block:
    """Return a tile of what is left less the product of the last panel: right of the diagonal, where it is read."""
    width = rows.shape[1] - tile.shape[1]
    first = params[-1][0]  # the row of what is left at which the tile begins
    out = xp.asarray(tile, copy=True)
    own = rows[:, width + first : width + first + tile.shape[0]]
    out[:, first:] -= _adjoint(xp, own) @ rows[:, width + first :]
    return out


# ------------------------------------------------------------------------------------------------------------ LU


def _pivoted(xp: Namespace, columns: Block) -> tuple[Block, Block, Block]:
    """Return `L` below and `U` above the diagonal of permuted rows; which rows these are; the sign of their order."""
    m, n = columns.shape
    if is_strict(xp):
        return _pivoted_stepwise(xp, columns)
    if xp is np:
        from scipy.linalg.lapack import get_lapack_funcs

        (getrf,) = get_lapack_funcs(("getrf",), (columns,))
        factors, swaps, _ = getrf(columns)
    else:
        from cupyx.scipy.linalg import lu_factor

        factors, swaps = lu_factor(columns, check_finite=False)
        swaps = swaps.get()  # a few integers: exchanges follow each other, which is no work for a device
    order = np.arange(m)
    for i, j in enumerate(swaps.tolist()):
        if i != j:
            order[i], order[j] = order[j], order[i]
    odd = int(np.count_nonzero(swaps != np.arange(min(m, n)))) % 2
    return factors, xp.asarray(order), xp.asarray([-1 if odd else 1])


def _pivoted_stepwise(xp: Namespace, columns: Block) -> tuple[Block, Block, Block]:
    """Factorise with the functions of the standard, and without a look at any value."""
    m, n = columns.shape
    a = xp.asarray(columns, copy=True)
    rows = xp.arange(m, device=a.device)
    order, sign = rows, xp.ones(1, dtype=xp.int64, device=a.device)
    for i in range(min(m, n)):
        pivot = xp.argmax(xp.abs(a[i:, i])) + i
        swapped = xp.where(rows == i, pivot, xp.where(rows == pivot, i, rows))
        a, order = xp.take(a, swapped, axis=0), xp.take(order, swapped)
        sign = xp.where(pivot == i, sign, -sign)
        head = a[i, i]
        a[i + 1 :, i] = xp.where(head == 0, a[i + 1 :, i], a[i + 1 :, i] / xp.where(head == 0, 1 + 0 * head, head))
        a[i + 1 :, i + 1 :] = a[i + 1 :, i + 1 :] - a[i + 1 :, i : i + 1] @ a[i : i + 1, i + 1 :]
    return a, order, sign


def _lu_panel(xp: Namespace, head: Block, *, params: Params) -> tuple[Block, ...]:
    """Return the factors of some columns, which come as rows; `params` begin with the row of their diagonal.

    Returns
    -------
    packed, order
        `U` and below it `L`, transposed; which rows, counted from the diagonal's, stand there.
    sign, logarithm
        Of the determinant of this part of `U`, and of the order of rows.
    """
    above = params[0]
    factors, order, sign = _pivoted(xp, head[:, above:].T)
    diagonal = xp.linalg.diagonal(factors)
    size = xp.abs(diagonal)
    with np.errstate(divide="ignore", invalid="ignore"):
        logarithm = xp.reshape(xp.sum(xp.log(size)), (1,))
        phase = xp.where(size == 0, diagonal, diagonal / size)
        sign = xp.astype(sign, diagonal.dtype) * xp.prod(phase)
    return xp.concat([head[:, :above], factors.T], axis=1), order, sign, logarithm


def _lu_forward(xp: Namespace, tile: Block, packed: Block, order: Block, *, params: Params) -> Block:
    """Return columns, as rows, after one panel: permuted, and with a multiple of its rows taken from those below
    them.
    """
    above = tile.shape[1] - order.shape[0]
    below = above + packed.shape[0]
    kept = xp.arange(above, dtype=order.dtype, **placed(xp, order))
    out = xp.take(tile, xp.concat([kept, order + above]), axis=1)
    corner = packed[:, above:below].T
    top = _solve_triangular(xp, corner, out[:, above:below].T, lower=True, unit=True).T
    out[:, above:below] = top
    out[:, below:] -= top @ packed[:, below:]
    return out


def _lu_backward(xp: Namespace, tile: Block, packed: Block, *, params: Params) -> Block:
    """Return right-hand sides, as rows, whose unknowns of one panel are solved for and taken from the rows above
    them.
    """
    above = params[0]
    below = above + packed.shape[0]
    corner = packed[:, above:below].T
    if xp is np and not xp.all(xp.diagonal(corner)):  # elsewhere the answer would have to be waited for
        raise LinAlgError("Singular matrix")
    out = xp.asarray(tile, copy=True)
    solved = _solve_triangular(xp, corner, tile[:, above:below].T, lower=False).T
    out[:, above:below] = solved
    out[:, :above] -= solved @ packed[:, :above]
    return out


# ------------------------------------------------------------------------------------------------------------ QR


def _qr_tile(xp: Namespace, rows: Block, *, params: Params) -> tuple[Block, Block]:
    """Return the factors of a row block; `Q` as wide as the block, with zeros where there are fewer rows than
    columns.
    """
    q, r = xp.linalg.qr(rows)
    missing = rows.shape[1] - q.shape[1]
    if missing:
        q = xp.concat([q, xp.zeros_like(rows[:, :missing])], axis=1)
    return q, r


def _qr_join(xp: Namespace, q: Block, above: Block, *, params: Params) -> Block:
    """Return a row block of `Q` from its own one and its part of the one above in the tree."""
    return q[:, : above.shape[0]] @ above


def _qr_signs(xp: Namespace, top: Block, r: Block, *, params: Params) -> Block:
    """Return by what the rows of `R` are multiplied to have LAPACK's signs, given the first rows of the matrix.

    A reflector of LAPACK's gives `R` the diagonal ``-sign(a) * |...|`` where `a` is the element that it finds there;
    in terms of an orthonormal `Q` that is the pivot of elimination in ``Q - diag(signs)``, whose first rows are enough.
    A column that is a triangle's already has no reflector.

    References
    ----------
    G. Ballard, J. Demmel, L. Grigori, M. Jacquelin, H. D. Nguyen, E. Solomonik, Reconstructing Householder vectors from
    tall-skinny QR, IPDPS 2014, section 3 (modified LU).
    """
    n = r.shape[0]
    size = xp.max(xp.abs(r)) if n else xp.asarray(1.0)
    size = xp.astype(xp.where(size == 0, xp.ones_like(size), size), r.dtype)
    top, r = top / size, r / size
    diagonal = xp.linalg.diagonal(r)
    along = xp.real(diagonal) if xp.isdtype(r.dtype, "complex floating") else diagonal
    safe = r + xp.where(diagonal == 0, xp.ones_like(diagonal), xp.zeros_like(diagonal)) * xp.eye(
        n, dtype=r.dtype, **placed(xp, r)
    )
    left = xp.asarray(_solve_triangular(xp, safe.T, top.T, lower=True).T, copy=True)
    signs = xp.ones_like(diagonal)
    nearly = 1 - n * float(xp.finfo(r.dtype).eps)
    for k in range(n):
        pivot = left[k, k]
        real = xp.real(pivot) if xp.isdtype(r.dtype, "complex floating") else pivot
        # An element that is zero counts as positive, in the matrix and not in Q.
        is_negative = (real < 0) | ((real == 0) & (along[k] < 0))
        sign = xp.where(is_negative, -xp.ones_like(pivot), xp.ones_like(pivot))
        stays = (xp.abs(pivot) >= nearly) | (diagonal[k] == 0)
        signs[k] = xp.where(stays, sign, -sign)
        column = left[k + 1 :, k] / (pivot + sign)
        left[k + 1 :, k + 1 :] -= xp.where(stays, 0 * column, column)[:, None] * left[k : k + 1, k + 1 :]
    return signs


def _reflected(xp: Namespace, columns: Block) -> tuple[Block, Block]:
    """Return what LAPACK's ``geqrf`` does: `R` with the reflectors' vectors below it, and their factors tau."""
    if is_strict(xp):
        return _reflected_stepwise(xp, columns)
    packed, tau = xp.linalg.qr(columns, mode="raw")
    return packed.T, tau


def _reflected_stepwise(xp: Namespace, columns: Block) -> tuple[Block, Block]:
    """Do the same with the functions of the standard, and without a look at any value."""
    m, n = columns.shape
    a = xp.asarray(columns, copy=True)
    tau = xp.zeros(min(m, n), dtype=a.dtype, device=a.device)
    is_complex = xp.isdtype(a.dtype, "complex floating")
    for i in range(min(m, n)):
        head, tail = a[i, i], a[i + 1 :, i]
        real = xp.real(head) if is_complex else head
        below = xp.sum(xp.abs(tail) ** 2)
        norm = xp.sqrt(xp.abs(head) ** 2 + below)
        beta = xp.astype(xp.where(real < 0, norm, -norm), a.dtype)
        stays = (below == 0) & (xp.imag(head) == 0 if is_complex else below == 0)
        beta = xp.where(stays, head, beta)
        factor = xp.where(stays, 0 * head, (beta - head) / xp.where(beta == 0, 1 + 0 * beta, beta))
        vector = tail / xp.where(stays, 1 + 0 * head, head - beta)
        whole = xp.concat([xp.ones(1, dtype=a.dtype, device=a.device), vector])[:, None]
        back = xp.conj(factor) if is_complex else factor
        a[i:, i + 1 :] = a[i:, i + 1 :] - back * (whole @ (_adjoint(xp, whole) @ a[i:, i + 1 :]))
        a[i, i], a[i + 1 :, i], tau[i] = beta, vector, factor
    return a, tau


def _qr_panel(xp: Namespace, head: Block, *, params: Params) -> tuple[Block, ...]:
    """Return the reflectors that make some columns, which come as rows, a triangle; `params` begin with its first row.

    Returns
    -------
    r, v, t
        The columns afterwards, as rows. The reflectors' product is ``I - V @ T @ V^H``; `v` is `V` transposed.

    References
    ----------
    R. Schreiber, C. Van Loan, A storage-efficient WY representation for products of Householder transformations, SIAM
    J. Sci. Stat. Comput. 10 (1989), as LAPACK's ``larft`` does it.
    """
    above = params[0]
    packed, tau = _reflected(xp, head[:, above:].T)
    n = tau.shape[0]
    rows = xp.zeros_like(head)
    rows[:, :above] = head[:, :above]
    rows[:, above : above + n] = xp.triu(packed[:n, :]).T
    v = xp.tril(packed[:, :n], k=-1).T + xp.eye(n, packed.shape[0], dtype=head.dtype, **placed(xp, head))
    inner = _adjoint(xp, v).T @ v.T  # V^H V
    t = xp.zeros((n, n), dtype=head.dtype, **placed(xp, head))
    for k in range(n):
        t[:k, k] = -tau[k] * (t[:k, :k] @ inner[:k, k])
        t[k, k] = tau[k]
    return rows, v, t


def _qr_forward(xp: Namespace, tile: Block, v: Block, t: Block, *, params: Params) -> Block:
    """Return columns, as rows, times the adjoint of a panel's reflectors."""
    above = tile.shape[1] - v.shape[1]
    out = xp.asarray(tile, copy=True)
    out[:, above:] -= (tile[:, above:] @ _adjoint(xp, v)) @ _adjoint(xp, t).T @ v
    return out


def _qr_backward(xp: Namespace, tile: Block, v: Block, t: Block, *, params: Params) -> Block:
    """Return columns, as rows, times a panel's reflectors; where none have come yet, the panel's own columns of the
    identity.

    `params` begin with the length of a column.
    """
    above, n = params[0] - v.shape[1], t.shape[0]
    if tile.shape[0]:
        out = xp.asarray(tile, copy=True)
    else:
        out = xp.eye(n, params[0], k=above, dtype=v.dtype, **placed(xp, v))
    out[:, above:] -= (out[:, above:] @ _adjoint(xp, v)) @ t.T @ v
    return out


#: By name of the operation; see `tables.BLOCK`.
BLOCK: dict[str, Callable[..., Any]] = {
    "cholesky_panel": _cholesky_panel,
    "cholesky_update": _cholesky_update,
    "lu_backward": _lu_backward,
    "lu_forward": _lu_forward,
    "lu_panel": _lu_panel,
    "qr_backward": _qr_backward,
    "qr_forward": _qr_forward,
    "qr_join": _qr_join,
    "qr_panel": _qr_panel,
    "qr_r_tile": qr_r,
    "qr_signs": _qr_signs,
    "qr_tile": _qr_tile,
}
