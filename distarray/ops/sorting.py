"""Sorting, searching in sorted arrays, and quantiles: whole along the axis, parallel over the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from distarray.dtypes import as_dtype
from distarray.expr.bind import bind, bind_get, bind_reshape, normalize_axes, normalize_axis, unbox
from distarray.expr.expr import Expr
from distarray.expr.op import declare
from distarray.ops.families import Array, one_array
from distarray.ops.manipulation import moveaxis, permute_lens
from distarray.types import AxesLike, HostArray

__all__ = ["argsort", "median", "percentile", "quantile", "searchsorted", "sort"]

#: params: (descending, stable)
SORT = declare("sort", "block", rule="... i -> ... i | i: whole")
ARGSORT = declare("argsort", "block", rule="... i -> ... i | i: whole")
#: params: (side,)
SEARCHSORTED = declare("searchsorted", "block", rule="i, ... -> ... | i: whole")
SEARCHSORTED_BY = declare("searchsorted_by", "block", rule="i, i, ... -> ... | i: whole")
#: params: (method,); operands: the array and the quantiles
QUANTILE = declare("quantile", "block", rule="... i, q -> ... q | i: whole, q: whole")
MEDIAN = declare("median", "block", rule="... i -> ... | i: whole")


def _sorted(op: Any, x: Array, axis: int | None, descending: bool, stable: bool, dtype: Any) -> Array:
    node, box = one_array(op.name, x)
    if axis is None:
        node = bind_reshape(node, (node.size,))
        axis = -1
    axis = normalize_axis(axis, node.ndim)
    moved = moveaxis(node, axis, -1)
    made = bind(op, (moved,), moved.shape, dtype or node.dtype, (bool(descending), bool(stable)))
    return box(moveaxis(made, -1, axis))


def sort(x: Array, /, *, axis: int | None = -1, descending: bool = False, stable: bool = True) -> Array:
    """The elements of `x` in order along `axis`, of the flattened array if None; nan last, first if `descending`."""
    return _sorted(SORT, x, axis, descending, stable, None)


def argsort(x: Array, /, *, axis: int | None = -1, descending: bool = False, stable: bool = True) -> Array:
    """The indices that sort `x` along `axis`; equal elements keep their order if `stable`."""
    return _sorted(ARGSORT, x, axis, descending, stable, np.dtype(np.intp))


def searchsorted(x1: Array, x2: Array, /, *, side: str = "left", sorter: Array = None) -> Array:
    """Where to insert the elements of `x2` into the sorted vector `x1`: before equals, behind them for ``"right"``.

    `sorter` are the indices that sort `x1` where it is not sorted itself.
    """
    if side not in ("left", "right"):
        raise ValueError(f"search side must be 'left' or 'right' (got {side!r})")
    operands = unbox("searchsorted", (x1, x2) if sorter is None else (x1, x2, sorter))
    row, sought, *order = operands.nodes
    if type(row) is not Expr or row.ndim != 1:
        raise ValueError("object of too small depth for desired array")
    if type(sought) is not Expr:
        from distarray.ops.creation import full

        # a Python scalar adopts the dtype of the row where it fits
        sought = full((), sought, np.result_type(row.dtype, sought), operands.env)
    as_dtype(np.searchsorted(np.empty(0, row.dtype), np.empty(0, sought.dtype)).dtype)
    intp = np.dtype(np.intp)
    if not order:
        return operands.box(bind(SEARCHSORTED, (row, sought), sought.shape, intp, (side,)))
    by = order[0]
    if type(by) is not Expr or by.dtype.kind not in "iu":
        raise TypeError("sorter must only contain integers")
    if by.shape != row.shape:
        raise ValueError("sorter.size must equal len(a)")
    return operands.box(bind(SEARCHSORTED_BY, (row, by, sought), sought.shape, intp, (side,)))


# ---------------------------------------------------------------------------------------------------- quantiles


def _last(node: Expr, axis: AxesLike) -> tuple[Expr, tuple[int, ...]]:
    """The axes to be reduced as one last axis, and their numbers."""
    axes = normalize_axes(axis, node.ndim)
    rest = [a for a in range(node.ndim) if a not in axes]
    moved = bind_get(node, permute_lens(node.shape, (*rest, *axes)))
    n = 1
    for a in axes:
        n *= node.shape[a]
    return bind_reshape(moved, (*(node.shape[a] for a in rest), n)), axes


def _kept(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(1 if a in axes else n for a, n in enumerate(shape))


def median(a: Array, axis: AxesLike = None, *, keepdims: bool = False) -> Array:
    """The middle element along `axis`, or the mean of the two in the middle; nan where there is one."""
    node, box = one_array("median", a)
    row, axes = _last(node, axis)
    dtype = as_dtype(np.median(np.ones(1, node.dtype)).dtype)
    result = bind(MEDIAN, (row,), row.shape[:-1], dtype)
    return box(bind_reshape(result, _kept(node.shape, axes)) if keepdims else result)


def quantile(
    a: Array, q: float | Sequence[float], axis: AxesLike = None, *, method: str = "linear", keepdims: bool = False
) -> Array:
    """The `q`-th quantiles along `axis`, 0 <= q <= 1; the axes of `q` come first."""
    node, box = one_array("quantile", a)
    is_weak = type(q) in (int, float) and node.dtype.kind == "f"  # of a Python scalar, numpy keeps the precision
    points = np.asarray(q, dtype=node.dtype if is_weak else None)
    if not ((points >= 0) & (points <= 1)).all():
        raise ValueError("Quantiles must be in the range [0, 1]")
    return box(_quantile(node, points, axis, method, keepdims))


def _quantile(node: Expr, points: HostArray, axis: AxesLike, method: str, keepdims: bool) -> Expr:
    if points.dtype.kind not in "fiub":
        raise TypeError("q must be an array of real numbers")
    row, axes = _last(node, axis)
    dtype = as_dtype(np.quantile(np.ones(1, node.dtype), points.ravel()[:1], method=method).dtype)  # type: ignore[call-overload]  # checked by numpy
    if row.shape[-1] == 0:
        raise IndexError(f"quantile of an empty slice: shape {node.shape}, axes {axes}")
    asked = unbox("quantile", (row, points.ravel())).nodes[1]
    result = moveaxis(bind(QUANTILE, (row, asked), (*row.shape[:-1], points.size), dtype, (method,)), -1, 0)
    rest = _kept(node.shape, axes) if keepdims else row.shape[:-1]
    return bind_reshape(result, (*points.shape, *rest))


def percentile(
    a: Array, q: float | Sequence[float], axis: AxesLike = None, *, method: str = "linear", keepdims: bool = False
) -> Array:
    """The `q`-th percentiles along `axis`, 0 <= q <= 100; the axes of `q` come first."""
    node, box = one_array("percentile", a)
    hundred = node.dtype.type(100) if node.dtype.kind == "f" else 100
    points = np.asarray(np.true_divide(q, hundred))
    if not ((points >= 0) & (points <= 1)).all():
        raise ValueError("Percentiles must be in the range [0, 100]")
    return box(_quantile(node, points, axis, method, keepdims))
