"""Kernels of linear algebra on whole matrices, which come in stacks of any shape.

`BLOCK` is a part of `tables.BLOCK`; steps of factorisations of matrices that are cut are in `panels`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from distarray.kernels.namespaces import Block, Namespace, Params, is_strict


def _linalg(name: str, *keywords: str) -> Callable[..., Any]:
    """Return a function of ``xp.linalg``; params become the named keywords."""

    def kernel(xp: Namespace, *blocks: Block, params: Params) -> Any:
        result = getattr(xp.linalg, name)(*blocks, **dict(zip(keywords, params)))
        # numpy gives named tuples, and scalars where no axis is left
        return tuple(map(xp.asarray, result)) if isinstance(result, tuple) else xp.asarray(result)

    return kernel


def _eigen(name: str) -> Callable[..., Any]:
    """Return a function of ``xp.linalg`` whose results are complex, whether or not they have imaginary parts."""

    def kernel(xp: Namespace, x: Block, *, params: Params) -> Any:
        made, dtype = getattr(xp.linalg, name)(x), xp.result_type(x.dtype, xp.complex64)
        return tuple([xp.astype(y, dtype) for y in made]) if isinstance(made, tuple) else xp.astype(made, dtype)

    return kernel


def qr_r(xp: Namespace, x: Block, *, params: Params) -> Block:
    """Return the triangle of QR factors alone."""
    if is_strict(xp):
        return xp.linalg.qr(x)[1]
    if xp is not np:
        import cupy  # array_api_compat wants two results whatever the mode

        return cupy.linalg.qr(x, mode="r")
    return np.linalg.qr(x, mode="r")


def cholesky(xp: Namespace, x: Block, *, params: Params) -> Block:
    """Return the lower or, if ``params`` say so, the upper triangle; of the operand the same triangle is read."""
    (upper,) = params
    if xp is np or is_strict(xp):
        return xp.linalg.cholesky(x, upper=upper)
    if not upper:
        return xp.linalg.cholesky(x)
    # x = U^H U with U = L^H, of the triangle above the diagonal
    return xp.conj(xp.swapaxes(xp.linalg.cholesky(xp.conj(xp.swapaxes(x, -1, -2))), -1, -2))


def _hermitian(name: str) -> Callable[..., Any]:
    """Return a function of ``xp.linalg`` that reads one triangle of a matrix, which params name."""

    def kernel(xp: Namespace, x: Block, *, params: Params) -> Any:
        if not is_strict(xp):
            return _linalg(name, "UPLO")(xp, x, params=params)
        # The standard leaves open which triangle is read: of the mirrored matrix both say the same.
        return _linalg(name)(xp, x if params[0] == "L" else xp.conj(xp.matrix_transpose(x)), params=())

    return kernel


def _svdvals(xp: Namespace, x: Block, *, params: Params) -> Block:
    return xp.linalg.svdvals(x) if hasattr(xp.linalg, "svdvals") else xp.linalg.svd(x, compute_uv=False)


def _lstsq(xp: Namespace, a: Block, b: Block, cutoff: Block, *, params: Params) -> tuple[Block, ...]:
    x, residuals, rank, s = xp.linalg.lstsq(a, b, rcond=float(cutoff))
    if residuals.shape[0] != b.shape[1]:  # numpy has none where the rank is too low
        residuals = xp.full(b.shape[1], math.nan, dtype=s.dtype)
    return x, residuals, xp.asarray(rank, dtype=np.intc), s


def _lstsq_columns(xp: Namespace, a: Block, b: Block, cutoff: Block, *, params: Params) -> tuple[Block, ...]:
    return _lstsq(xp, a, b, cutoff, params=params)[:2]


#: By name of the operation; see `tables.BLOCK`.
BLOCK: dict[str, Callable[..., Any]] = {
    "cholesky": cholesky,
    "det": _linalg("det"),
    "eig": _eigen("eig"),
    "eigh": _hermitian("eigh"),
    "eigvals": _eigen("eigvals"),
    "eigvalsh": _hermitian("eigvalsh"),
    "inv": _linalg("inv"),
    "lstsq": _lstsq,
    "lstsq_columns": _lstsq_columns,
    "qr": _linalg("qr", "mode"),
    "qr_r": qr_r,
    "slogdet": _linalg("slogdet"),
    "solve": _linalg("solve"),
    "svd": _linalg("svd", "full_matrices"),
    "svdvals": _svdvals,
}
