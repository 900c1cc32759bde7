"""Order statistics along axes: medians, quantiles, percentiles, with nan or past them.

Many rows are worked on whole, each by one member. Along a vector that is cut, over all axes of a long array, and of
fewer rows than places, the few elements that count are selected (`selection.ranked`): only samples and the selected
elements come to the host, where they are joined as numpy does it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import nullcontext
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from distarray.arguments import MAX_COUNT, host_array, normalize_axes, shown
from distarray.dtypes import as_dtype
from distarray.errors import warn_user
from distarray.expr.bind import bind, bind_get, bind_reshape, literal, unbox
from distarray.expr.broadcasting import reduced_shape
from distarray.expr.expr import Expr
from distarray.expr.op import declare
from distarray.expr.side_by_side import side_by_side
from distarray.ops.elementwise import (
    astype,
    divide,
    equal,
    isfinite,
    isnan,
    less,
    logical_and,
    logical_not,
    logical_or,
    minimum,
    where,
)
from distarray.ops.families import Array, by_numpy, one_array
from distarray.ops.indexing import take_along_axis
from distarray.ops.joining import joined
from distarray.ops.lenses import permute_lens
from distarray.ops.manipulation import broadcast_to, moveaxis, sliced
from distarray.ops.programs import Ask, asked, run, together
from distarray.ops.reductions import any as _any
from distarray.ops.reductions import cumsum, mean
from distarray.ops.reductions import sum as _sum
from distarray.ops.selection import ranked
from distarray.ops.sorting import argsort, few_rows, rows_of
from distarray.sharding.sharding import Sharding
from distarray.types import AxesLike, HostArray

#: params: (method, whether the quantile is one Python number); operands: the array and the quantiles
QUANTILE = declare("quantile", "block", rule="... i, q -> ... q | i: whole, q: whole")
NANQUANTILE = declare("nanquantile", "block", rule="... i, q -> ... q | i: whole, q: whole")
MEDIAN = declare("median", "block", rule="... i -> ... | i: whole")
NANMEDIAN = declare("nanmedian", "block", rule="... i -> ... | i: whole")

# --------------------------------------------------------------------------------------- which elements, and how joined

#: What a program yields and receives, and the values of one vector that it returns.
Selection: TypeAlias = Generator[Ask, tuple[HostArray, ...], HostArray]
Indices: TypeAlias = NDArray[Any]  # floating where elements are to be interpolated


class _Neighbours(NamedTuple):
    """_Neighbours are the ranks on both sides of each quantile, and how far it is from the first to the second."""

    previous: NDArray[np.int64]
    following: NDArray[np.int64]
    weight: Indices | None  # None: it is an element


def _discrete(index: Indices, takes_previous: Callable[[Indices, Indices], Any]) -> Indices:
    previous = np.floor(index)
    chosen = np.where(takes_previous(index - previous, index), previous, previous + 1)
    return np.maximum(chosen.astype(np.intp), 0)


def _continuous(alpha: float, beta: float) -> Callable[[int, Indices], Indices]:
    return lambda n, q: n * q + (alpha + q * (1 - alpha - beta)) - 1


#: Where in the sorted vector of `n` elements a quantile is, by numpy's name of the method; an integer is an element.
#: Hyndman and Fan, "Sample quantiles in statistical packages", 1996; the last five are numpy's.
_INDEX: dict[str, Callable[[int, Indices], Indices]] = {
    "inverted_cdf": lambda n, q: _discrete(n * q - 1, lambda weight, _: weight == 0),
    "averaged_inverted_cdf": lambda n, q: n * q - 1,
    "closest_observation": lambda n, q: _discrete(
        n * q - 1 - 0.5, lambda weight, index: (weight == 0) & (np.floor(index) % 2 == 1)
    ),
    "interpolated_inverted_cdf": _continuous(0, 1),
    "hazen": _continuous(0.5, 0.5),
    "weibull": _continuous(0, 0),
    "median_unbiased": _continuous(1 / 3.0, 1 / 3.0),
    "normal_unbiased": _continuous(3 / 8.0, 3 / 8.0),
    "linear": lambda n, q: (n - 1) * q,
    "lower": lambda n, q: np.floor((n - 1) * q).astype(np.intp),
    "higher": lambda n, q: np.ceil((n - 1) * q).astype(np.intp),
    "midpoint": lambda n, q: 0.5 * (np.floor((n - 1) * q) + np.ceil((n - 1) * q)),
    "nearest": lambda n, q: np.around((n - 1) * q).astype(np.intp),
}


def _neighbours(n: int, q: Indices, method: str) -> _Neighbours:
    """Return which of `n` elements in order the quantiles `q` lie between."""
    index = np.asarray(_INDEX[method](n, q))
    if index.dtype.kind in "iu":
        at = np.clip(index.astype(np.int64), 0, n - 1)  # numpy: beyond the ends it is the last element or the first one
        return _Neighbours(at, at, None)
    previous = np.floor(index)
    weight = np.asarray(index - previous)
    following = previous + 1
    for beyond, end in ((index >= n - 1, n - 1), (index < 0, 0)):
        previous, following = (np.where(beyond, end, p) for p in (previous, following))
    if method == "averaged_inverted_cdf":
        weight = np.where(weight == 0, 0.5, 1.0)
    elif method == "midpoint":
        weight = np.where(index % 1 == 0, 0.0, 0.5)
    else:
        # counted from where the previous element is taken to be, as numpy does
        weight = np.where(index >= n - 1, index + 1, np.where(index < 0, index, weight))
    return _Neighbours(previous.astype(np.int64), following.astype(np.int64), weight.astype(index.dtype))


def _interpolated(a: HostArray, b: HostArray, weight: Any) -> HostArray:
    """Return what lies between `a` and `b`; from the nearer one, so that the ends are met exactly."""
    distance = np.subtract(b, a)
    found = np.asarray(a + distance * weight)
    nearer = np.asarray(b - distance * (1 - weight))
    return np.where(np.asarray(weight) >= 0.5, nearer, found).astype(found.dtype)


# ------------------------------------------------------------------------------------------------------ selection


def _has_nan(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "fcmM"


def _selected(row: Expr, cut: Sharding, ranks_of: Callable[[int], HostArray], skips_nan: bool) -> Selection:
    """Return a program: the elements of the ranks that `ranks_of` says for the number of elements, and the last one of
    all.

    The last one is nan where there is any nan; with `skips_nan` nan are none of the elements.
    """
    n = row.size
    if skips_nan and _has_nan(row.dtype):
        (nans,) = yield Ask((_sum(isnan(row), axis=None),), kept=(row,))
        n -= int(nans)
    last = max(n - 1, 0)
    ranks = np.append(ranks_of(n), last) if n else np.array([row.size - 1])
    return (yield from ranked(row, cut, ranks.astype(np.int64)))


def _quantiles_of(row: Expr, cut: Sharding, q: HostArray, method: str, is_weak: bool, skips_nan: bool) -> Selection:
    """Return a program: the quantiles of one vector."""
    found: list[_Neighbours] = []

    def ranks(n: int) -> HostArray:
        found.append(_neighbours(n, q, method))
        return np.concatenate(found[0][:2])

    elements = yield from _selected(row, cut, ranks, skips_nan)
    if not found or (_has_nan(row.dtype) and np.isnan(elements[-1])):
        _warn_of_nan(skips_nan)
        return np.full(q.shape, elements[-1])
    weight = found[0].weight
    previous, following = elements[: q.size], elements[q.size : 2 * q.size]
    if weight is None:
        return previous
    return _interpolated(previous, following, float(weight[0]) if is_weak else weight)


def _median_of(row: Expr, cut: Sharding, skips_nan: bool) -> Selection:
    """Return a program: the median of one vector, as an array of one."""
    elements = yield from _selected(row, cut, lambda n: np.unique([(n - 1) // 2, n // 2]), skips_nan)
    middle, last = elements[:-1], elements[-1:]
    if not middle.size or (_has_nan(row.dtype) and np.isnan(last).any()):
        _warn_of_nan(skips_nan)
        return last
    return np.asarray(np.mean(middle, keepdims=True))


def _warn_of_nan(skips_nan: bool) -> None:
    if skips_nan:
        warn_user("All-NaN slice encountered")


def _of_few_rows(name: str, row: Expr, make: Callable[[Expr], Selection], dtype: Any) -> Expr:
    """Return what `make` gives for each vector along the last axis, as its new last axis: values that are known
    here.
    """
    found: Sequence[HostArray] = run(name, together([make(each) for each in rows_of(row)]))
    values = np.stack(found).astype(dtype, copy=False)
    return literal(values.reshape(*row.shape[:-1], values.shape[-1]), row.env, name)


# ------------------------------------------------------------------------------------------------------ functions


def _last(node: Expr, axis: AxesLike) -> tuple[Expr, tuple[int, ...], Sharding | None]:
    """Return the axes to be reduced as one last axis; their numbers; how it is cut, if elements of it are to be
    selected.
    """
    axes = normalize_axes(axis, node.ndim)
    rest = [a for a in range(node.ndim) if a not in axes]
    n = prod([node.shape[a] for a in axes])
    moved = bind_get(node, permute_lens(node.shape, (*rest, *axes)))
    row = bind_reshape(moved, (*[node.shape[a] for a in rest], n))
    if len(axes) == 1:
        return row, axes, few_rows(node, axes[0])
    return row, axes, few_rows(row, row.ndim - 1)


def _median(name: str, a: Array, axis: AxesLike, keepdims: bool) -> Array:
    node, box = one_array(name, a)
    row, axes, cut = _last(node, axis)
    skips_nan = name == "nanmedian"
    dtype = as_dtype(getattr(np, name)(np.ones(1, node.dtype)).dtype)
    if cut is None:
        result = bind(NANMEDIAN if skips_nan else MEDIAN, (row,), row.shape[:-1], dtype)
    else:
        result = _of_few_rows(name, row, lambda each: _median_of(each, cut, skips_nan), dtype)
    return box(bind_reshape(result, reduced_shape(node.shape, axes, keepdims)))


def _bound(a: Array, *args: Any, **options: Any) -> int:
    """Return the bytes of a median for `by_numpy`: of nothing too many, since it would warn before the node does."""
    return 0 if np.size(a) else MAX_COUNT


@by_numpy(np.median, _bound)
def median(a: Array, axis: AxesLike = None, *, keepdims: bool = False) -> Array:
    """Return the middle element along `axis`, or the mean of the two in the middle; nan where there is one."""
    return _median("median", a, axis, keepdims)


def nanmedian(a: Array, axis: AxesLike = None, *, keepdims: bool = False) -> Array:
    """Return the median of what is not nan."""
    return _median("nanmedian", a, axis, keepdims)


def _points(name: str, q: Any) -> HostArray:
    """Return the quantiles as numbers from 0 to 1."""
    points = host_array(q, "q")
    if points.dtype.kind not in "fiub":
        raise TypeError(f"q={shown(q)} must be an array of real numbers")
    if not name.endswith("percentile"):
        limits = "Quantiles must be in the range [0, 1]"
    else:
        points, limits = np.asarray(np.true_divide(points, 100)), "Percentiles must be in the range [0, 100]"
    if not ((points >= 0) & (points <= 1)).all():
        raise ValueError(f"{limits}, not q={shown(q)}")
    return points


def _quantile(name: str, a: Array, q: Any, axis: AxesLike, method: str, keepdims: bool, weights: Any) -> Array:
    node, box = one_array(name, a)
    is_weak = type(q) in (int, float)  # of a Python number, numpy keeps the precision of the array
    points = _points(name, q)
    skips_nan = name.startswith("nan")
    if node.dtype.kind == "c":
        raise TypeError("a must be an array of real numbers")
    if skips_nan and not node.size:
        with np.errstate(divide="ignore", invalid="ignore") if node.dtype.kind == "f" else nullcontext():
            return mean(a, axis=axis, keepdims=keepdims)  # as numpy, which says of nanmean that it is of nothing
    if points.ndim > 2:
        raise ValueError(f"q must be a scalar or 1d (or 2d, as in numpy), not of shape {points.shape}")
    if not isinstance(method, str):
        raise TypeError(f"method={shown(method)} must be a name, not {type(method).__name__}")
    flat = points.ravel()
    if weights is not None:
        if method != "inverted_cdf":
            raise ValueError(f"Only method 'inverted_cdf' supports weights. Got: {method}.")
        return box(_weighted(name, node, points, axis, keepdims, weights))
    row, axes, cut = _last(node, axis)
    if row.shape[-1] == 0 and flat.size:
        raise IndexError(f"{name} of an empty slice: shape {node.shape}, axes {axes}")
    # numpy checks method and dtype, on one element
    sample: Any = np.quantile(np.ones(1, node.dtype), points.item() if is_weak else flat[:1], method=method)  # type: ignore[call-overload]
    if not flat.size:
        made = literal(np.empty((*row.shape[:-1], 0), sample.dtype), node.env, name)
    elif cut is None:
        asked = unbox(name, (row, flat)).nodes[1]
        op = NANQUANTILE if skips_nan else QUANTILE
        made = bind(op, (row, asked), (*row.shape[:-1], flat.size), as_dtype(sample.dtype), (method, is_weak))
    else:
        made = _of_few_rows(
            name, row, lambda each: _quantiles_of(each, cut, flat, method, is_weak, skips_nan), as_dtype(sample.dtype)
        )
    rest = reduced_shape(node.shape, axes, keepdims)
    return box(bind_reshape(moveaxis(made, -1, 0), (*points.shape, *rest)))


def _weighted(name: str, node: Expr, q: HostArray, axis: AxesLike, keepdims: bool, weights: Any) -> Expr:
    """Return quantiles of elements that count as much as their weights: those at which the sums of the weights, in
    order, reach `q` of all.
    """
    row, axes, _ = _last(node, axis)
    if row.shape[-1] == 0:
        raise IndexError(f"{name} of an empty slice: shape {node.shape}, axes {axes}")
    is_array = hasattr(type(weights), "__dx_node__") or type(weights) is Expr
    own = unbox(name, (node, weights if is_array else host_array(weights, "weights"))).nodes[1]
    assert type(own) is Expr
    if own.shape != node.shape:
        if axis is None:
            raise TypeError("Axis must be specified when shapes of a and weights differ.")
        if own.shape != tuple([node.shape[a] for a in axes]):
            raise ValueError(
                f"Shape of weights must be consistent with shape of a along specified axis: {own.shape} for the axes "
                f"{axes} of {node.shape}"
            )
        wide = tuple([n if a in axes else 1 for a, n in enumerate(node.shape)])
        order = sorted(range(own.ndim), key=lambda i: axes[i])
        moved = bind_get(own, permute_lens(own.shape, order))
        own = broadcast_to(bind_reshape(moved, wide), node.shape)
    counted = astype(_last(own, axis)[0], np.dtype(np.float64), copy=False)
    if name.startswith("nan") and _has_nan(node.dtype):
        counted = where(isnan(row), 0.0, counted)
    order_of = argsort(row)
    ranked_row = take_along_axis(row, order_of)
    sums = cumsum(take_along_axis(counted, order_of), axis=-1)
    last = row.shape[-1] - 1
    total = sliced(sums, -1, last, 1)
    is_wrong, is_empty = logical_or(equal(total, 0), logical_not(isfinite(total))), None
    if name.startswith("nan") and _has_nan(node.dtype):
        is_empty = isnan(sliced(ranked_row, -1, 0, 1))  # nan comes last
        is_wrong, total = logical_and(is_wrong, logical_not(is_empty)), where(is_empty, 1.0, total)
    looked_at = [_any(each) for each in (less(own, 0), is_wrong, is_empty) if each is not None]
    has_negative, has_wrong, *has_empty = asked(name, *looked_at, kept=(ranked_row, sums))
    if has_negative:
        raise ValueError("Weights must be non-negative.")
    if any(has_empty):
        warn_user("All-NaN slice encountered")
    if has_wrong:
        raise ValueError("Weights included NaN, inf or were all zero.")
    cdf = divide(sums, total)
    if q.dtype.kind == "f":
        cdf = astype(cdf, q.dtype, copy=False)
    cdf = where(equal(cdf, 0), -1, cdf)  # elements of no weight come before all others
    found = []
    for point in q.ravel().tolist():
        at = minimum(_sum(less(cdf, point), axis=-1, keepdims=True), last)
        found.append(take_along_axis(ranked_row, at))
    rest = reduced_shape(node.shape, axes, keepdims)
    if not found:
        return literal(np.empty((*q.shape, *rest), node.dtype), node.env, name)
    made = joined(found, row.ndim - 1, node.dtype, node.env)
    if _has_nan(node.dtype) and not name.startswith("nan"):
        largest = sliced(ranked_row, -1, last, 1)
        made = where(isnan(largest), largest, made)
    return bind_reshape(moveaxis(made, -1, 0), (*q.shape, *rest))


@by_numpy(np.quantile)
@side_by_side
def quantile(
    a: Array,
    q: float | Sequence[float],
    axis: AxesLike = None,
    *,
    method: str = "linear",
    keepdims: bool = False,
    weights: Any = None,
) -> Array:
    """Return the `q`-th quantiles along `axis`, 0 <= q <= 1; the axes of `q` come first.

    Over all axes, or along a vector that is cut, they are computed at the call: a few elements are selected
    (docs/explanation/sorting.md). `weights`, with ``method="inverted_cdf"``, say how much each element counts: they
    have the shape of `a` or of its reduced axes, and must not be negative, which is checked at the call.
    """
    return _quantile("quantile", a, q, axis, method, keepdims, weights)


@by_numpy(np.percentile)
@side_by_side
def percentile(
    a: Array,
    q: float | Sequence[float],
    axis: AxesLike = None,
    *,
    method: str = "linear",
    keepdims: bool = False,
    weights: Any = None,
) -> Array:
    """Return the `q`-th percentiles along `axis`, 0 <= q <= 100; as `quantile`."""
    return _quantile("percentile", a, q, axis, method, keepdims, weights)


@side_by_side
def nanquantile(
    a: Array,
    q: float | Sequence[float],
    axis: AxesLike = None,
    *,
    method: str = "linear",
    keepdims: bool = False,
    weights: Any = None,
) -> Array:
    """Return the quantiles of what is not nan."""
    return _quantile("nanquantile", a, q, axis, method, keepdims, weights)


@side_by_side
def nanpercentile(
    a: Array,
    q: float | Sequence[float],
    axis: AxesLike = None,
    *,
    method: str = "linear",
    keepdims: bool = False,
    weights: Any = None,
) -> Array:
    """Return the percentiles of what is not nan."""
    return _quantile("nanpercentile", a, q, axis, method, keepdims, weights)
