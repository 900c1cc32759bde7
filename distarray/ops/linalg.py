"""Linear algebra: the standard's ``linalg`` and numpy's beyond it.

A factorisation is a kernel on whole matrices, parallel over the leading axes; norms, ranks, powers and the
pseudo-inverse are composed of them and of products. Shapes and dtypes are numpy's, and so are the errors, raised at
the call; matrices that only their elements show to be singular or indefinite fail when the operation runs, which is at
the call too (`may_raise`).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.linalg import LinAlgError

from distarray.dtypes import as_dtype
from distarray.expr.bind import (
    DType,
    bind,
    bind_create,
    bind_get,
    bind_reshape,
    broadcast_shapes,
    normalize_axes,
    normalize_axis,
    unbox,
)
from distarray.expr.expr import ITEM, Expr
from distarray.expr.op import Op, declare
from distarray.ops import contractions
from distarray.ops.contractions import einsum, matmul
from distarray.ops.creation import EYE, empty_like, full
from distarray.ops.elementwise import (
    abs,
    add,
    astype,
    conj,
    divide,
    greater,
    isnan,
    logical_and,
    logical_not,
    multiply,
    not_equal,
    pow,
    sqrt,
    square,
    subtract,
    where,
)
from distarray.ops.elementwise import imag as _imag
from distarray.ops.elementwise import real as _real
from distarray.ops.families import Array, one_array
from distarray.ops.manipulation import (
    broadcast_to,
    diagonal_lens,
    expand_dims,
    matrix_transpose_lens,
    moveaxis,
    permute_lens,
    slice_lens,
    squeeze,
    stack,
)
from distarray.ops.reductions import any as _any
from distarray.ops.reductions import count_nonzero
from distarray.ops.reductions import max as _max
from distarray.ops.reductions import min as _min
from distarray.ops.reductions import sum as _sum
from distarray.types import AxesLike, DTypeLike, Shape

__all__ = [
    "EigResult", "EighResult", "LinAlgError", "QRResult", "SVDResult", "SlogdetResult", "cholesky", "cond", "cross",
    "det", "diagonal", "eig", "eigh", "eigvals", "eigvalsh", "inv", "lstsq", "matrix_norm", "matrix_power",
    "matrix_rank", "multi_dot", "norm", "outer", "pinv", "qr", "slogdet", "solve", "svd", "svdvals", "trace",
    "vector_norm",
]  # fmt: skip

_WHOLE = "i: whole, j: whole"
#: params: (upper,)
CHOLESKY = declare("cholesky", "block", rule=f"... i j -> ... i j | {_WHOLE}", may_raise=True)
INV = declare("inv", "block", rule=f"... i j -> ... j i | {_WHOLE}", may_raise=True)
DET = declare("det", "block", rule=f"... i j -> ... | {_WHOLE}")
SLOGDET = declare("slogdet", "block", rule=f"... i j -> ..., ... | {_WHOLE}")
SOLVE = declare("solve", "block", rule=f"... i j, ... i k -> ... j k | {_WHOLE}, k: whole", may_raise=True)
#: params: (mode,)
QR = declare("qr", "block", rule=f"... i j -> ... i k, ... k j | {_WHOLE}, k: whole")
QR_R = declare("qr_r", "block", rule=f"... i j -> ... k j | {_WHOLE}, k: whole")
#: params: (full_matrices,)
SVD = declare(
    "svd", "block", rule=f"... i j -> ... i p, ... k, ... q j | {_WHOLE}, p: whole, k: whole, q: whole", may_raise=True
)
SVDVALS = declare("svdvals", "block", rule=f"... i j -> ... k | {_WHOLE}, k: whole", may_raise=True)
#: params: (triangle that is read,)
EIGH = declare("eigh", "block", rule=f"... i j -> ... j, ... i j | {_WHOLE}", may_raise=True)
EIGVALSH = declare("eigvalsh", "block", rule=f"... i j -> ... j | {_WHOLE}", may_raise=True)
EIG = declare("eig", "block", rule=f"... i j -> ... j, ... i j | {_WHOLE}", may_raise=True)
EIGVALS = declare("eigvals", "block", rule=f"... i j -> ... j | {_WHOLE}", may_raise=True)
#: operands: a, b, the relative cutoff of singular values. results: x, squared residuals, rank, singular values
LSTSQ = declare(
    "lstsq", "block", rule="i j, i k, () -> j k, k, (), s | i: whole, j: whole, k: whole, s: whole", may_raise=True
)


class EigResult(NamedTuple):
    """Eigenvalues and, as columns, eigenvectors of general matrices; complex."""

    eigenvalues: Array
    eigenvectors: Array


class EighResult(NamedTuple):
    """Ascending eigenvalues and, as columns, eigenvectors of symmetric or Hermitian matrices."""

    eigenvalues: Array
    eigenvectors: Array


class QRResult(NamedTuple):
    """Orthonormal columns and an upper triangle."""

    Q: Array
    R: Array


class SlogdetResult(NamedTuple):
    """Sign and logarithm of the modulus of determinants."""

    sign: Array
    logabsdet: Array


class SVDResult(NamedTuple):
    """Left singular vectors, descending singular values, right singular vectors as rows."""

    U: Array
    S: Array
    Vh: Array


@lru_cache(maxsize=1024)
def _float_dtype(*dtypes: DType) -> DType:
    """The dtype in which numpy does linear algebra; its TypeError for half floats and dates."""
    return as_dtype(np.linalg.solve(*(np.ones((1, 1), d) for d in (*dtypes, *dtypes)[:2])).dtype)


def _real_dtype(dtype: DType) -> DType:
    return np.empty(0, dtype).real.dtype


def _complex_dtype(dtype: DType) -> DType:
    return np.result_type(dtype, np.complex64)


def _matrices(name: str, x: Array, *, square: bool = False) -> tuple[Expr, Any]:
    """The operand in a floating dtype, checked to be matrices, and how to box results."""
    node, box = one_array(name, x)
    if node.ndim < 2:
        raise LinAlgError(f"{node.ndim}-dimensional array given. Array must be at least two-dimensional")
    if square and node.shape[-1] != node.shape[-2]:
        raise LinAlgError(f"Last 2 dimensions of the array must be square, but they are {node.shape[-2:]}")
    cast = astype(node, _float_dtype(node.dtype), copy=False)
    assert type(cast) is Expr
    return cast, box


def _several(
    op: Op, operands: Sequence[Expr], shapes: Sequence[Shape], dtypes: Sequence[DType], params: tuple[Any, ...] = ()
) -> list[Expr]:
    """The results of an operation that has several: one node, and a projection for each."""
    node = bind(op, operands, tuple(shapes), tuple(dtypes), params)
    return [bind(ITEM, (node,), shape, dtype, (i,)) for i, (shape, dtype) in enumerate(zip(shapes, dtypes))]


# ----------------------------------------------------------------------------------------------- factorisations


def cholesky(x: Array, /, *, upper: bool = False) -> Array:
    """The triangle `L` with ``x = L @ L^H``, or `U` with ``x = U^H @ U`` if `upper`; only that triangle of `x` is read.

    Raises
    ------
    LinAlgError
        If a matrix is not square or not positive definite.
    """
    node, box = _matrices("cholesky", x, square=True)
    return box(bind(CHOLESKY, (node,), node.shape, node.dtype, (bool(upper),)))


def qr(x: Array, /, *, mode: str = "reduced") -> Any:
    """``x = Q @ R`` with orthonormal columns in `Q` and an upper triangle `R`.

    `mode` is ``"reduced"``, ``"complete"`` (a square `Q`) or numpy's ``"r"`` (`R` alone).
    """
    if mode not in ("reduced", "complete", "r"):
        raise ValueError(f"Unrecognized mode '{mode}'; use 'reduced', 'complete' or 'r'")
    node, box = _matrices("qr", x)
    *lead, m, n = node.shape
    k = m if mode == "complete" else min(m, n)
    if mode == "r":
        return box(bind(QR_R, (node,), (*lead, k, n), node.dtype, (mode,)))
    return QRResult(*map(box, _several(QR, (node,), ((*lead, m, k), (*lead, k, n)), (node.dtype,) * 2, (mode,))))


def svd(x: Array, /, *, full_matrices: bool = True, compute_uv: bool = True) -> Any:
    """``x = (U * S) @ Vh`` with orthonormal columns in `U`, rows in `Vh`, and `S` descending.

    With `full_matrices` both are square. Without `compute_uv` (numpy's) only `S` is returned.
    """
    if not compute_uv:
        return svdvals(x)
    node, box = _matrices("svd", x)
    *lead, m, n = node.shape
    k = min(m, n)
    p, q = (m, n) if full_matrices else (k, k)
    results = _several(
        SVD,
        (node,),
        ((*lead, m, p), (*lead, k), (*lead, q, n)),
        (node.dtype, _real_dtype(node.dtype), node.dtype),
        (bool(full_matrices),),
    )
    return SVDResult(*map(box, results))


def svdvals(x: Array, /) -> Array:
    """Singular values, descending."""
    node, box = _matrices("svdvals", x)
    return box(bind(SVDVALS, (node,), (*node.shape[:-2], min(node.shape[-2:])), _real_dtype(node.dtype)))


def eigh(x: Array, /, UPLO: str = "L") -> EighResult:  # numpy's name
    """Ascending eigenvalues and eigenvectors of symmetric or Hermitian matrices, of which one triangle is read."""
    node, box = _matrices("eigh", x, square=True)
    shapes, dtypes = (node.shape[:-1], node.shape), (_real_dtype(node.dtype), node.dtype)
    return EighResult(*map(box, _several(EIGH, (node,), shapes, dtypes, (_triangle(UPLO),))))


def eigvalsh(x: Array, /, UPLO: str = "L") -> Array:  # numpy's name
    """Ascending eigenvalues of symmetric or Hermitian matrices, of which one triangle is read."""
    node, box = _matrices("eigvalsh", x, square=True)
    return box(bind(EIGVALSH, (node,), node.shape[:-1], _real_dtype(node.dtype), (_triangle(UPLO),)))


def _triangle(name: str) -> str:
    name = name.upper()
    if name not in ("L", "U"):
        raise ValueError("UPLO argument must be 'L' or 'U'")
    return name


def eig(x: Array, /) -> EigResult:
    """Eigenvalues and eigenvectors of general matrices.

    Complex, as the standard says: numpy returns real ones where all happen to be real, which no dtype can tell before.
    """
    node, box = _matrices("eig", x, square=True)
    dtype = _complex_dtype(node.dtype)
    return EigResult(*map(box, _several(EIG, (node,), (node.shape[:-1], node.shape), (dtype, dtype))))


def eigvals(x: Array, /) -> Array:
    """Eigenvalues of general matrices; complex, see `eig`."""
    node, box = _matrices("eigvals", x, square=True)
    return box(bind(EIGVALS, (node,), node.shape[:-1], _complex_dtype(node.dtype)))


# -------------------------------------------------------------------------------- inverses, determinants, systems


def inv(x: Array, /) -> Array:
    """Inverse matrices.

    Raises
    ------
    LinAlgError
        If a matrix is not square or singular.
    """
    node, box = _matrices("inv", x, square=True)
    return box(bind(INV, (node,), node.shape, node.dtype))


def det(x: Array, /) -> Array:
    """Determinants."""
    node, box = _matrices("det", x, square=True)
    return box(bind(DET, (node,), node.shape[:-2], node.dtype))


def slogdet(x: Array, /) -> SlogdetResult:
    """Sign and logarithm of the modulus of determinants."""
    node, box = _matrices("slogdet", x, square=True)
    shape = node.shape[:-2]
    return SlogdetResult(*map(box, _several(SLOGDET, (node,), (shape, shape), (node.dtype, _real_dtype(node.dtype)))))


def solve(x1: Array, x2: Array, /) -> Array:
    """The solutions of ``x1 @ x = x2``; `x2` of one axis is a vector, else matrices, and leading axes broadcast.

    Raises
    ------
    LinAlgError
        If a matrix is not square or singular.
    ValueError
        If the shapes do not fit.
    """
    operands = unbox("solve", (x1, x2))
    a, b = operands.nodes
    if type(a) is not Expr or type(b) is not Expr:
        raise LinAlgError("0-dimensional array given. Array must be at least two-dimensional")
    _matrices("solve", a, square=True)
    dtype = _float_dtype(a.dtype, b.dtype)
    vector = b.ndim == 1
    if b.ndim == 0:
        raise ValueError("solve: Input operand 1 does not have enough dimensions (has 0, it needs at least 1)")
    right = expand_dims(b, axis=1) if vector else b
    n = a.shape[-1]
    if right.shape[-2] != n:
        raise ValueError(
            f"solve: Input operand 1 has a mismatch in its core dimension 0, with gufunc signature (m,m),(m,n)->(m,n) "
            f"(size {right.shape[-2]} is different from {n})"
        )
    lead = broadcast_shapes(a.shape[:-2], right.shape[:-2])
    cast = [astype(node, dtype, copy=False) for node in (a, right)]
    found = bind(SOLVE, cast, (*lead, n, right.shape[-1]), dtype)
    return operands.box(squeeze(found, axis=-1) if vector else found)


def lstsq(a: Array, b: Array, rcond: float | None = None) -> tuple[Array, Array, Array, Array]:
    """The `x` that minimises ``|a @ x - b|``.

    Returns
    -------
    x, residuals, rank, s
        Squared residuals for each column of `b`: none where `a` has no more rows than columns, and nan where its rank
        is less than its columns (numpy gives none there, but no shape can depend on a rank); the rank as an array
        without axes; singular values.
    """
    operands = unbox("lstsq", (a, b))
    left, right = operands.nodes
    if type(left) is not Expr or left.ndim != 2:
        raise LinAlgError("lstsq: a must be two-dimensional")
    if type(right) is not Expr or right.ndim not in (1, 2):
        raise LinAlgError("lstsq: b must have one or two dimensions")
    m, n = left.shape
    if right.shape[0] != m:
        raise LinAlgError(f"Incompatible dimensions: a has {m} rows, b has {right.shape[0]}")
    dtype = _float_dtype(left.dtype, right.dtype)
    real = _real_dtype(dtype)
    vector = right.ndim == 1
    right = expand_dims(right, axis=1) if vector else right
    k = right.shape[1]
    cutoff = float(np.finfo(dtype).eps) * max(m, n) if rcond is None else float(rcond)
    x, residuals, rank, s = _several(
        LSTSQ,
        (
            astype(left, dtype, copy=False),
            astype(right, dtype, copy=False),
            full((), cutoff, np.float64, operands.env),
        ),
        ((n, k), (k,), (), (min(m, n),)),
        (dtype, real, np.dtype(np.intc), real),
    )
    residuals = residuals if m > n else bind_get(residuals, slice_lens((k,), 0, 0, 0))
    x = squeeze(x, axis=1) if vector else x
    return operands.box(x), operands.box(residuals), operands.box(rank), operands.box(s)


def pinv(x: Array, /, *, rtol: Any = None, hermitian: bool = False) -> Array:
    """The pseudo-inverse; singular values up to `rtol` times the largest count as zero.

    By default `rtol` is ``max(m, n)`` times the precision. `hermitian` is numpy's and makes no difference.
    """
    node, box = _matrices("pinv", x)
    *lead, m, n = node.shape
    if 0 in (m, n):
        return box(empty_like(one_array("pinv", x)[0], shape=(*lead, n, m)))
    if rtol is None:
        rtol = max(m, n) * float(np.finfo(node.dtype).eps)
    elif not isinstance(rtol, float | int):
        rtol = _per_matrix(node, rtol)
    u, s, vh = svd(conj(node), full_matrices=False)
    large = greater(s, multiply(rtol, _max(s, axis=-1, keepdims=True)))
    with np.errstate(divide="ignore"):
        inverse = where(large, divide(1, s), 0)
    # x+ = V S+ U^H, and u, vh are those of the conjugated x
    scaled = multiply(expand_dims(inverse, axis=-1), bind_get(u, matrix_transpose_lens(u.shape)))
    return box(matmul(bind_get(vh, matrix_transpose_lens(vh.shape)), scaled))


# --------------------------------------------------------------------------------------------- norms and ranks


def vector_norm(x: Array, /, *, axis: AxesLike = None, keepdims: bool = False, ord: float | str = 2) -> Array:
    """The `ord`-norm of the elements along `axis`; of all elements by default."""
    node, _ = one_array("vector_norm", x)
    axes = normalize_axes(axis, node.ndim)
    if node.dtype.kind in "biu":
        x = astype(x, np.float64)
    size = abs(x)
    if ord == math.inf:
        return _max(size, axis=axes, keepdims=keepdims)
    if ord == -math.inf:
        return _min(size, axis=axes, keepdims=keepdims)
    if ord == 0:
        counted = astype(not_equal(x, 0), _real_dtype(one_array("vector_norm", x)[0].dtype))
        return _sum(counted, axis=axes, keepdims=keepdims)
    if ord == 1:
        return _sum(size, axis=axes, keepdims=keepdims)
    if ord == 2:
        return sqrt(_sum(_squares(x), axis=axes, keepdims=keepdims))
    if isinstance(ord, str):
        raise ValueError(f"Invalid norm order '{ord}' for vectors")
    return pow(_sum(pow(size, ord), axis=axes, keepdims=keepdims), 1 / ord)


def _squares(x: Array) -> Array:
    """The squared modulus: without a root in between, as numpy does it."""
    node, _ = one_array("norm", x)
    if node.dtype.kind != "c":
        return square(x)
    return add(square(_real(x)), square(_imag(x)))


def matrix_norm(x: Array, /, *, keepdims: bool = False, ord: float | str | None = "fro") -> Array:
    """The `ord`-norm of matrices: ``"fro"``, ``"nuc"``, 1, 2, inf and their negatives."""
    node, box = one_array("matrix_norm", x)
    if node.ndim < 2:
        raise ValueError(f"matrix_norm: the array needs at least two axes, but has {node.ndim}")
    return box(_matrix_norm(node, ord, keepdims))


def _matrix_norm(node: Expr, ord: float | str | None, keepdims: bool) -> Expr:
    if node.dtype.kind in "biu":
        node = astype(node, np.float64)
    kept = (*node.shape[:-2], 1, 1)
    result: Any
    if ord in ("fro", "f", None):
        return sqrt(_sum(_squares(node), axis=(-2, -1), keepdims=keepdims))  # type: ignore[no-any-return]  # of nodes
    if ord in (1, -1, math.inf, -math.inf):
        sums = _sum(abs(node), axis=-2 if ord in (1, -1) else -1)
        result = (_max if ord in (1, math.inf) else _min)(sums, axis=-1)
    elif ord in (2, -2, "nuc"):
        s = svdvals(node)
        result = _sum(s, axis=-1) if ord == "nuc" else (_max if ord == 2 else _min)(s, axis=-1)
    else:
        raise ValueError(f"Invalid norm order {ord!r} for matrices.")
    found = bind_reshape(result, kept) if keepdims else result
    assert type(found) is Expr
    return found


def norm(x: Array, ord: float | str | None = None, axis: AxesLike = None, keepdims: bool = False) -> Array:
    """numpy's norm: of vectors along one axis, of matrices along two, of all elements by default."""
    node, box = one_array("norm", x)
    if axis is None:
        if ord is None or (ord in ("f", "fro") and node.ndim == 2) or (ord == 2 and node.ndim == 1):
            return vector_norm(x, keepdims=keepdims)
        axes: tuple[int, ...] = tuple(range(node.ndim))
    else:
        axes = tuple(normalize_axis(a, node.ndim) for a in ((axis,) if hasattr(axis, "__index__") else tuple(axis)))  # type: ignore[arg-type]  # AxesLike without None
    if len(axes) == 1:
        if isinstance(ord, str):
            raise ValueError(f"Invalid norm order '{ord}' for vectors")
        return vector_norm(x, axis=axes, keepdims=keepdims, ord=2 if ord is None else ord)
    if len(axes) != 2:
        raise ValueError("Improper number of dimensions to norm.")
    if axes[0] == axes[1]:
        raise ValueError("Duplicate axes given.")
    rest = [a for a in range(node.ndim) if a not in axes]
    moved = bind_get(node, permute_lens(node.shape, (*rest, *axes)))
    found = _matrix_norm(moved, ord, False)
    if keepdims:
        found = bind_reshape(found, tuple(1 if a in axes else n for a, n in enumerate(node.shape)))
    return box(found)


def matrix_rank(x: Array, /, *, rtol: Any = None, tol: Any = None) -> Array:
    """The number of singular values above `rtol` times the largest one (or above numpy's `tol`).

    By default `rtol` is ``max(m, n)`` times the precision.
    """
    node, box = one_array("matrix_rank", x)
    if node.ndim < 2:
        # numpy: a vector has rank 1 unless it is zero
        return box(astype(_any(not_equal(node, 0)), np.intp))
    s = svdvals(node)
    if 0 in node.shape[-2:]:
        return box(count_nonzero(s, axis=-1))
    largest = _max(s, axis=-1, keepdims=True)
    if tol is not None:
        bound = tol if isinstance(tol, float | int) else _per_matrix(node, tol)
    else:
        if rtol is None:
            rtol = max(node.shape[-2:]) * float(np.finfo(s.dtype).eps)
        elif not isinstance(rtol, float | int):
            rtol = _per_matrix(node, rtol)
        bound = multiply(rtol, largest)
    return box(count_nonzero(greater(s, bound), axis=-1))


def _per_matrix(node: Expr, tolerance: Array) -> Expr:
    """Tolerances, one for each matrix, as they broadcast to its singular values."""
    found = expand_dims(unbox("tolerance", (node, tolerance)).nodes[1], axis=-1)
    assert type(found) is Expr
    return found


def cond(x: Array, p: float | str | None = None) -> Array:
    """The condition number: the norm of a matrix times that of its inverse; by singular values for 2, the default."""
    node, box = _matrices("cond", x)
    if 0 in node.shape[-2:]:
        raise LinAlgError("cond is not defined on empty arrays")
    with np.errstate(all="ignore"):
        if p in (None, 2, -2):
            s = svdvals(node)
            first, last = (bind_get(s, slice_lens(s.shape, s.ndim - 1, i, 1)) for i in (0, s.shape[-1] - 1))
            result = squeeze(divide(last, first) if p == -2 else divide(first, last), axis=-1)
        else:
            result = multiply(_matrix_norm(node, p, False), _matrix_norm(inv(node), p, False))
        # numpy: infinite, unless the matrix has a nan
        has_nan = _any(isnan(node), axis=(-2, -1))
        return box(where(logical_and(isnan(result), logical_not(has_nan)), math.inf, result))


# ----------------------------------------------------------------------------------------------------- products


def matrix_power(x: Array, n: int, /) -> Array:
    """Square matrices multiplied with themselves, `n` factors in all; inverses if `n` is negative."""
    node, box = one_array("matrix_power", x)
    if node.ndim < 2:
        raise LinAlgError(f"{node.ndim}-dimensional array given. Array must be at least two-dimensional")
    if node.shape[-1] != node.shape[-2]:
        raise LinAlgError(f"Last 2 dimensions of the array must be square, but they are {node.shape[-2:]}")
    try:
        n = operator.index(n)
    except TypeError as error:
        raise TypeError("exponent must be an integer") from error
    if n == 0:
        ones = bind_create(EYE, node.shape[-2:], node.dtype, node.env, (), 0)
        return box(broadcast_to(ones, node.shape))
    if n < 0:
        node, n = inv(node), -n
    # squares of squares, as many products as n has bits
    result: Expr | None = None
    while True:
        n, bit = divmod(n, 2)
        if bit:
            result = node if result is None else matmul(result, node)
        if not n:
            assert result is not None
            return box(result)
        node = matmul(node, node)


def multi_dot(arrays: Sequence[Array]) -> Array:
    """The product of several matrices, in the cheapest order; the first and the last may be vectors."""
    if len(arrays) < 2:
        raise ValueError("Expecting at least two arrays.")
    operands = unbox("multi_dot", arrays)
    nodes = [n for n in operands.nodes if type(n) is Expr]
    ranks = [n.ndim for n in nodes]
    if len(nodes) < len(arrays) or any(r != 2 for r in ranks[1:-1]) or not {ranks[0], ranks[-1]} <= {1, 2}:
        raise LinAlgError("multi_dot: the arrays must be matrices, of which the first and the last may be vectors")
    letters: list[Any] = []
    for i, node in enumerate(nodes):
        both = [i, i + 1]
        letters += [node, both if node.ndim == 2 else [i + 1] if i == 0 else [i]]
    result = ([0] if ranks[0] == 2 else []) + ([len(nodes)] if ranks[-1] == 2 else [])
    return operands.box(einsum(*letters, result))


def cross(x1: Array, x2: Array, /, *, axis: int = -1) -> Array:
    """The cross product of vectors of three elements along `axis`; the other axes broadcast."""
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

    def element(n: Expr, i: int) -> Expr:
        return bind_get(n, slice_lens(n.shape, n.ndim - 1, i % 3, 1).squeezed((n.ndim - 1,)))

    parts = [
        subtract(multiply(element(a, i + 1), element(b, i + 2)), multiply(element(a, i + 2), element(b, i + 1)))
        for i in range(3)
    ]
    return operands.box(moveaxis(stack(parts, axis=-1), -1, axis))


def outer(x1: Array, x2: Array, /) -> Array:
    """All products of the elements of two vectors."""
    operands = unbox("outer", (x1, x2))
    ranks = [n.ndim if type(n) is Expr else 0 for n in operands.nodes]
    if ranks != [1, 1]:
        raise ValueError(f"Input arrays must be one-dimensional, but they are {ranks[0]}-d and {ranks[1]}-d.")
    return contractions.outer(x1, x2)


def trace(x: Array, /, *, offset: int = 0, dtype: DTypeLike | None = None) -> Array:
    """The sums over the diagonals of the last two axes."""
    return contractions.trace(x, offset=offset, axis1=-2, axis2=-1, dtype=dtype)


def diagonal(x: Array, /, *, offset: int = 0) -> Array:
    """The diagonals of the last two axes. A view."""
    node, box = one_array("diagonal", x)
    return box(bind_get(node, diagonal_lens(node.shape, offset, -2, -1)))
