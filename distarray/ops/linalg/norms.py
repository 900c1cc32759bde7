"""Norms, ranks and condition numbers: composed of reductions and of singular values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.linalg import LinAlgError

from distarray.arguments import integers, normalize_axes, normalize_axis, number, shown
from distarray.expr.bind import Box, bind_get, bind_reshape
from distarray.expr.broadcasting import reduced_shape
from distarray.expr.expr import Expr
from distarray.ops.elementwise import (
    abs,
    add,
    as_scalar,
    astype,
    divide,
    equal,
    greater,
    isnan,
    logical_and,
    logical_not,
    multiply,
    not_equal,
    pow,
    sqrt,
    square,
    where,
)
from distarray.ops.elementwise import imag as _imag
from distarray.ops.elementwise import real as _real
from distarray.ops.families import Array, one_array, ready_made
from distarray.ops.lenses import permute_lens
from distarray.ops.linalg.matrices import identity_of, matrices, real_dtype
from distarray.ops.linalg.singular import mirrored, svdvals, tolerance
from distarray.ops.linalg.systems import inv, slogdet
from distarray.ops.manipulation import expand_dims, slice_at
from distarray.ops.programs import boxed
from distarray.ops.reductions import any as _any
from distarray.ops.reductions import count_nonzero
from distarray.ops.reductions import max as _max
from distarray.ops.reductions import min as _min
from distarray.ops.reductions import sum as _sum
from distarray.types import AxesLike


@ready_made(1)
def vector_norm(x: Array, /, *, axis: AxesLike = None, keepdims: bool = False, ord: float | str = 2) -> Array:
    """Return the `ord`-norm of the elements along `axis`; of all elements by default."""
    node, _ = one_array("vector_norm", x)
    ord = _order(ord)
    if axis is not None:
        axis = integers(axis, "axis", truths=False) if isinstance(axis, tuple) else (_one_axis(axis),)
    axes = normalize_axes(axis, node.ndim)
    if node.dtype.kind not in "fc":
        x = astype(x, np.float64)
    size = abs(x)
    if ord == math.inf:
        return _largest(size, axes, keepdims)
    if ord == -math.inf:
        return _min(size, axis=axes, keepdims=keepdims)
    if ord == 0:
        counted = astype(not_equal(x, 0), real_dtype(one_array("vector_norm", x)[0].dtype))
        return _sum(counted, axis=axes, keepdims=keepdims)
    if ord == 1:
        return _sum(size, axis=axes, keepdims=keepdims)
    if ord == 2:
        return sqrt(_sum(_squares(x), axis=axes, keepdims=keepdims))
    if isinstance(ord, str):
        raise ValueError(f"Invalid norm order '{ord}' for vectors")
    return pow(_sum(pow(size, ord), axis=axes, keepdims=keepdims), 1 / ord)


def _one_axis(axis: Any) -> int:
    """Return an axis, from anything that numpy's norms take for one: what ``int`` makes a number of."""
    try:
        return int(axis)
    except (TypeError, ValueError):
        raise TypeError(f"'axis' must be None, an integer or a tuple of integers, not {shown(axis)}") from None


def _order(ord: Any) -> Any:
    """Return a name, None or a real number; what it is a norm of says which."""
    return ord if ord is None or isinstance(ord, str) else number(ord, "ord", real=True)


def _largest(sizes: Array, axes: tuple[int, ...], keepdims: bool = False) -> Array:
    """Return the largest of numbers that are not negative: of none it is 0, as their sum is."""
    node, _ = one_array("norm", sizes)
    function = _sum if any(node.shape[a] == 0 for a in axes) else _max
    return function(sizes, axis=axes, keepdims=keepdims)


def _squares(x: Array) -> Array:
    """Return the squared modulus: without a root in between, as numpy does it."""
    node, _ = one_array("norm", x)
    if node.dtype.kind != "c":
        return square(x)
    return add(square(_real(x)), square(_imag(x)))


@ready_made(1)
def matrix_norm(x: Array, /, *, keepdims: bool = False, ord: float | str | None = "fro") -> Array:
    """Return the `ord`-norm of matrices: ``"fro"``, ``"nuc"``, 1, 2, inf and their negatives.

    ``"nuc"``, 2 and -2 are made of `svdvals`, which says what is brought to one member; the others are sums where the
    matrix lies.

    Raises
    ------
    MemoryBudgetError
        If a matrix is brought to one member and does not fit its memory budget.
    """
    node, box = one_array("matrix_norm", x)
    ord = _order(ord)
    if node.ndim < 2:
        raise np.exceptions.AxisError(-2, node.ndim, "matrix_norm: the last two axes")
    return _boxed_norm("matrix_norm", box, _matrix_norm(node, ord, keepdims), ord)


def _boxed_norm(name: str, box: Box, found: Expr, ord: float | str | None) -> Array:
    # singular values may not converge, sums cannot fail
    return boxed(name, box, [found])[0] if ord in (2, -2, "nuc") else box(found)


def _matrix_norm(node: Expr, ord: float | str | None, keepdims: bool) -> Expr:
    if node.dtype.kind not in "fc":
        node = astype(node, np.float64)
    kept = (*node.shape[:-2], 1, 1)
    result: Any
    if ord in ("fro", "f", None):
        return sqrt(_sum(_squares(node), axis=(-2, -1), keepdims=keepdims))
    if ord in (1, -1, math.inf, -math.inf):
        sums = _sum(abs(node), axis=-2 if ord in (1, -1) else -1)
        result = _largest(sums, (-1,)) if ord in (1, math.inf) else _min(sums, axis=-1)
    elif ord in (2, -2, "nuc"):
        s = svdvals(node)
        result = _sum(s, axis=-1) if ord == "nuc" else _largest(s, (-1,)) if ord == 2 else _min(s, axis=-1)
    else:
        raise ValueError(f"Invalid norm order {ord!r} for matrices.")
    return bind_reshape(result, kept) if keepdims else result


@ready_made(1)
def norm(x: Array, ord: float | str | None = None, axis: AxesLike = None, keepdims: bool = False) -> Array:
    """Return numpy's norm: of vectors along one axis, of matrices along two, of all elements by default."""
    node, box = one_array("norm", x)
    ord = _order(ord)
    if axis is None:
        if ord is None or (ord in ("f", "fro") and node.ndim == 2) or (ord == 2 and node.ndim == 1):
            return vector_norm(x, keepdims=keepdims)
        axes: tuple[int, ...] = tuple(range(node.ndim))
    else:
        along = axis if isinstance(axis, tuple) else (_one_axis(axis),)
        if len(along) == 1 or ord in (None, "fro", "f"):
            integers(along, "axis", truths=False)
        axes = tuple([normalize_axis(a, node.ndim) for a in along])
    if len(axes) == 1:
        if isinstance(ord, str):
            raise ValueError(f"Invalid norm order '{ord}' for vectors")
        return vector_norm(x, axis=axes, keepdims=keepdims, ord=2 if ord is None else ord)
    if len(axes) != 2:
        raise ValueError(f"Improper number of dimensions to norm: axis={shown(axis)} of {node.ndim}")
    if axes[0] == axes[1]:
        raise ValueError(f"Duplicate axes given: axis={shown(axis)}")
    rest = [a for a in range(node.ndim) if a not in axes]
    moved = bind_get(node, permute_lens(node.shape, (*rest, *axes)))
    found = _matrix_norm(moved, ord, False)
    found = bind_reshape(found, reduced_shape(node.shape, axes, keepdims))
    return _boxed_norm("norm", box, found, ord)


@ready_made(1)
def matrix_rank(x: Array, /, *, rtol: Any = None, tol: Any = None, hermitian: bool = False) -> Array:
    """Return the number of singular values above `rtol` times the largest one (or above numpy's `tol`).

    Of matrices that are `hermitian` the lower triangle counts. By default `rtol` is ``max(m, n)`` times the precision.
    `svdvals` says what is brought to one member.

    Raises
    ------
    ValueError
        If both tolerances are given.
    MemoryBudgetError
        If a matrix is brought to one member and does not fit its memory budget.
    """
    if tol is not None and rtol is not None:
        raise ValueError(f"matrix_rank: tol={shown(tol)} and rtol={shown(rtol)} can't be both set")
    node, box = one_array("matrix_rank", x)
    if node.ndim < 2:
        # numpy: a vector has rank 1 unless it is zero
        return box(astype(_any(not_equal(node, 0)), np.intp))
    tol, rtol = tolerance(node, tol, "tol"), tolerance(node, rtol, "rtol")
    s = svdvals(mirrored("matrix_rank", node) if hermitian else node)
    if 0 in node.shape[-2:]:
        bound = rtol if tol is None else tol
        return box(count_nonzero(s if bound is None else greater(s, bound), axis=-1))
    largest = _max(s, axis=-1, keepdims=True)
    if tol is not None:
        bound = tol
    else:
        if rtol is None:
            rtol = max(node.shape[-2:]) * float(np.finfo(s.dtype).eps)
        bound = multiply(rtol, largest)
    return boxed("matrix_rank", box, [count_nonzero(greater(s, bound), axis=-1)])[0]


@ready_made(1)
def cond(x: Array, p: float | str | None = None) -> Array:
    """Return the condition number: the norm of a matrix times that of its inverse; by singular values for 2, the
    default.

    `svdvals` says what is brought to one member.

    Raises
    ------
    MemoryBudgetError
        If a matrix is brought to one member and does not fit its memory budget.
    """
    node, box = matrices("cond", x)
    p = p if p is None or isinstance(p, str) else number(p, "p", real=True)
    if 0 in node.shape[-2:]:
        raise LinAlgError("cond is not defined on empty arrays")
    with np.errstate(all="ignore"):
        if p in (None, 2, -2):
            s = svdvals(node)
            first, last = slice_at(s, -1, 0), slice_at(s, -1, s.shape[-1] - 1)
            result = divide(last, first) if p == -2 else divide(first, last)
        else:
            singular = equal(slogdet(node).sign, 0)
            regular = where(expand_dims(singular, axis=(-2, -1)), identity_of(node), node)
            result = multiply(_matrix_norm(node, p, False), _matrix_norm(inv(regular), p, False))
            result = where(singular, math.inf, result)
        # numpy: infinite, unless the matrix has a nan
        has_nan = _any(isnan(node), axis=(-2, -1))
        found = where(logical_and(isnan(result), logical_not(has_nan)), math.inf, result)
    return as_scalar(boxed("cond", box, [found])[0])
