"""Counting: in which bin elements fall, how many fall in each, and where the bins begin.

An element is looked up in the edges where it lies, and the counts of the tiles are added up. Edges that depend on the
data need their extremes, or what an estimator of the width wants: these are computed at the call.
"""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from sys import maxsize
from typing import Any

import numpy as np

from distarray.arguments import check_cast, host_array, integer, naming, number, parse_shape, sequence, shown
from distarray.array.array import DistArray
from distarray.array.environment import forced_parts
from distarray.composed.collections import compute, persist
from distarray.composed.creation import zeros
from distarray.composed.index_tricks import ravel_multi_index
from distarray.composed.views import as_it_is, beside
from distarray.errors import NotSupportedError, warn_user
from distarray.expr.expr import Environment, source
from distarray.expr.side_by_side import side_by_side
from distarray.kernels.sorting import numbers_within
from distarray.ops import differences, elementwise, quantiles, reductions, searching
from distarray.ops.counting import counted, counted_within
from distarray.ops.families import by_numpy
from distarray.types import DType

Histogram = tuple[DistArray, DistArray]
#: Numbers that are counted while the largest is looked for: counted once more where there are others.
MANY_NUMBERS = 1024
#: Bytes of counts that are looked at with the largest number.
FEW_COUNTS = 1 << 16
#: Rows for each place, so that tiles of rows are about even.
MANY_ROWS = 16


def _counts_nbytes(x: Any, /, weights: Any = None, minlength: int = 0) -> int:
    """Return the bytes of counts; of sums of weights, which round, more than any that are computed at the call."""
    return maxsize if weights is not None else 8 * max(int(x.max()) + 1, int(minlength))


@by_numpy(np.bincount, _counts_nbytes)
@side_by_side
def bincount(x: Any, /, weights: Any = None, minlength: int = 0) -> DistArray:
    """Return how often each non-negative integer occurs in a vector; with `weights`, the sum of those that stand at it.

    The counts, or with weights the largest integer, are computed at the call.
    """
    x = as_it_is(np.zeros(0, np.intp) if isinstance(x, list | tuple) and not x else x)
    if x.ndim != 1:
        raise ValueError("object too deep for desired array" if x.ndim > 1 else "object of too small depth")
    if x.dtype.kind not in "biu":
        raise TypeError(f"Cannot cast array data from {x.dtype!r} to dtype('int64') according to the rule 'safe'")
    n = integer(minlength, "minlength", truths=False)
    if n < 0:
        raise ValueError("'minlength' must not be negative")
    parse_shape(n, "minlength")
    if not x.size:
        return _counts(x, None, n)  # of nothing, numpy counts without a look at weights
    if weights is not None:
        weights = weights_of(x, weights)
    counts, guess = None, builtins.max(n, MANY_NUMBERS)
    block = x._ready() if weights is None and forced_parts.get() is None else None
    if block is not None:
        here, least, most = numbers_within(block, guess)
        n = builtins.max(n, most + 1)
        if least >= 0 and _fits(x, n):
            made = here[:n] if n <= guess else np.bincount(block.astype(np.intp, copy=False), minlength=n)
            return x._on(source(made, x._env))
    elif weights is None and _fits(x, guess):
        counts, ends = counted_within(x, guess)
        if x._env.device == "cpu" and counts.nbytes <= FEW_COUNTS:
            # Both come to this process with one look, where a part of the counts is no more work for anybody.
            made, bounds = compute(counts, ends)
            counts = x._on(source(made[: builtins.max(n, int(bounds.max()) + 1)], x._env))
        else:
            counts, ends = persist(counts, ends)
            bounds = ends._host()
        least, most = bounds.min(), bounds.max()
    else:
        least, most = _extremes(x)
    if int(least) < 0:
        raise ValueError("'list' argument must have no negative elements")
    n = builtins.max(n, int(most) + 1)
    if counts is None or n > guess:
        return _counts(x, weights, n)
    return counts if n == counts.size else counts[:n].copy()


def _fits(at: DistArray, n: int) -> bool:
    """Return whether each tile of an array may have a row of so many counts."""
    return n * np.dtype(np.intp).itemsize <= Environment(at.team, at.device).block_nbytes


def weights_of(x: DistArray, weights: Any) -> DistArray:
    """Return ``weights=`` as an array beside `x`: a real number for each element of a vector."""
    made = beside(x, weights if isinstance(weights, DistArray) else host_array(weights, "weights", kinds="biuf"))
    check_cast(made.dtype, np.float64, name="weights")
    if made.shape != x.shape:
        raise ValueError(f"The weights and list don't have the same length: {made.shape} and {x.shape}")
    return made


def _counts(at: DistArray, weights: DistArray | None, n: int) -> DistArray:
    """Return how often each of the first `n` integers stands in an array that has no others, or the sum of the
    weights in a vector.
    """
    dtype = np.dtype(np.intp if weights is None else np.float64)
    at = at.astype(np.intp, copy=False)
    if weights is not None:
        check_cast(weights.dtype, dtype)
        weights = weights.astype(dtype, copy=False)
    if _fits(at, n):
        return counted(at, weights, n)
    # A row of so many for each tile would be too much: the counts are cut, and elements travel to them.
    counts = zeros((n,), dtype, team=at.team, device=at.device)
    return counts.at[at].add(1 if weights is None else weights) if at.size else counts


# ----------------------------------------------------------------------------------------------------- bins


@by_numpy(np.digitize)
@side_by_side
def digitize(x: Any, bins: Any, right: bool = False) -> DistArray:
    """Return in which bin each element falls; `bins` rise or fall."""
    x = as_it_is(beside(bins, x))
    if x.dtype.kind == "c":
        raise TypeError("x may not be complex")
    edges = bins if isinstance(bins, DistArray) else host_array(bins, "bins")
    check_cast(edges.dtype, np.float64, name="bins")
    if edges.ndim != 1:
        raise ValueError(f"object too deep for desired array: bins={shown(bins)} must have one axis")
    side = "left" if right else "right"
    if _rise(edges, bins):
        return elementwise.as_scalar(placed(x, edges, side))
    return len(edges) - placed(x, edges[::-1], side)


def _rise(edges: Any, bins: Any) -> bool:
    """Return whether edges rise, else they fall; as numpy says of nan: what begins with a step to or from it falls.

    Raises
    ------
    ValueError
        If they do neither.
    """
    if _never(~(edges[1:] >= edges[:-1])):
        return True
    rises, falls = edges[1:] > edges[:-1], edges[1:] < edges[:-1]
    is_rising = bool(rises[int((edges[1:] != edges[:-1]).argmax())])
    if not _never(falls if is_rising else rises):
        raise ValueError(f"bins={shown(bins)} must be monotonically increasing or decreasing")
    return is_rising


def _never(mask: Any) -> bool:
    """Return whether no element of a mask is true: of an array of distarray computes this one bit."""
    return not bool(mask.any())


def placed(x: DistArray, edges: Any, side: str) -> DistArray:
    """Return how many of the rising `edges` are below each element, those equal to it included on the ``right``
    side.
    """
    return searching.searchsorted(beside(x, edges), x, side=side)


def _ends(range: Any) -> tuple[Any, Any]:
    """Return the two numbers that the user gave as ``range=``."""
    ends = sequence(range, "range", "two numbers")
    if len(ends) != 2:
        raise ValueError(f"range={shown(range)} must be two numbers, not {len(ends)}")
    return number(ends[0], "range", real=True), number(ends[1], "range", real=True)


def _outer_edges(x: DistArray, range: Any) -> tuple[Any, Any]:
    """Return the ends of the bins: of the range, or the extremes of the elements, which it computes."""
    if range is not None:
        first, last = _ends(range)
        if x.dtype.kind in "mM" and np.result_type(first, last).kind not in "mM":
            raise TypeError(f"range={shown(range)} must be of {x.dtype}, as the elements are")
        if first > last:
            raise ValueError(f"max must be larger than min in range parameter: range={shown(range)}")
        given = "supplied"
    elif not x.size:
        first, last, given = 0, 1, "autodetected"
    else:
        first, last = _extremes(x)
        given = "autodetected"
    if not (np.isfinite(first) and np.isfinite(last)):
        raise ValueError(f"{given} range of [{first}, {last}] is not finite")
    return (first - 0.5, last + 0.5) if first == last else (first, last)


@side_by_side
def histogram_bin_edges(a: Any, bins: Any = 10, range: Any = None, weights: Any = None) -> DistArray:
    """Return the edges of the bins that `histogram` counts in: given, evenly spaced, or of a width that is estimated.

    Parameters
    ----------
    bins
        The edges; the number of bins; or how to estimate their width: ``auto``, ``doane``, ``fd``, ``rice``,
        ``scott``, ``sqrt`` or ``sturges``.
    range
        The ends of the first and the last bin; the extremes of the elements by default.
    """
    x = _subtractable(a)
    if weights is not None:
        weights = _beside_all(x, weights)
    return beside(x, _edges(x.ravel(), bins, range, weights))


def _subtractable(a: Any) -> DistArray:
    """Return the elements of `a`, truth values as numbers, of which numpy warns."""
    x = as_it_is(a)
    if x.dtype != bool:
        return x
    warn_user(f"Converting input from {x.dtype} to {np.uint8} for compatibility.")
    return x.astype(np.uint8)


def _beside_all(x: DistArray, weights: Any) -> DistArray:
    """Return ``weights=`` of the elements of an array of any number of axes: of its shape, and maybe complex."""
    made = beside(x, weights if isinstance(weights, DistArray) else host_array(weights, "weights"))
    if made.shape != x.shape:
        raise ValueError(f"weights should have the same shape as a: {made.shape} is not {x.shape}")
    return made


def _number_or_edges(bins: Any, name: str) -> Any:  # an int, or an array here or there
    """Return the number of bins or their rising edges, as ``bins=`` says it; `name` is the place in it that is meant.

    Raises
    ------
    TypeError
        If it is neither an integer nor an array of numbers.
    ValueError
        If the number is not positive, or the edges have several axes or do not rise.
    """
    with naming(bins=bins):
        depth = np.ndim(bins)
    if depth > 1:
        raise ValueError(f"`{name}` must be 1d, when an array, not {shown(bins)}")
    if depth == 1:
        edges = bins if isinstance(bins, DistArray) else host_array(bins, "bins")
        if not _never(edges[:-1] > edges[1:]):
            raise ValueError(f"`{name}` must increase monotonically, when an array, not {shown(bins)}")
        return edges
    try:
        n = operator.index(bins)
    except TypeError:
        raise TypeError(f"`{name}` must be an integer, a string, or an array, not {shown(bins)}") from None
    if n < 1:
        raise ValueError(f"`{name}` must be positive, when an integer, not {n}")
    parse_shape(n, "bins")
    return n


def _edges(x: DistArray, bins: Any, range: Any, weights: Any) -> Any:  # an array here or there
    if x.dtype.kind == "b":
        x = x.astype(np.uint8)
    if isinstance(bins, str):
        if weights is not None:
            raise TypeError("Automated estimation of the number of bins is not supported for weighted data: weights=")
        if bins not in _WIDTHS and bins != "stone":
            raise ValueError(f"{bins!r} is not a valid estimator for `bins`")
        first, last = _outer_edges(x, range)
        n = _estimated_bins(x, bins, range, first, last)
    else:
        n = _number_or_edges(bins, "bins")
        if not isinstance(n, int):
            return n
        first, last = _outer_edges(x, range)
    dtype: DType = np.result_type(first, last, x.dtype)
    dtype = np.result_type(dtype, float) if np.issubdtype(dtype, np.integer) else dtype
    even = np.linspace(first, last, n + 1, endpoint=True, dtype=dtype)
    if (even[:-1] >= even[1:]).any():
        raise ValueError(f"Too many bins for data range. Cannot create {n} finite-sized bins.")
    return even


def _estimated_bins(x: DistArray, name: str, range: Any, first: Any, last: Any) -> int:
    if name == "stone":
        raise NotSupportedError(
            "histogram: bins='stone' needs a histogram for each number of bins; use bins='auto', or give their number"
        )
    if range is not None:
        inside = (x >= first) & (x <= last)
        x = x if bool(inside.all()) else x[inside]
    if not x.size:
        return 1
    if x.dtype.kind == "c":
        raise TypeError(f"histogram: complex numbers have no width of bins; give their number instead of {name!r}")
    width = _WIDTHS[name](x)
    if width and x.dtype.kind in "iu":
        width = builtins.max(width, 1)
    extent = int(last) - int(first) if np.result_type(first, last).kind in "iu" else last - first
    return math.ceil(extent / width) if width else 1


def _value(x: DistArray) -> Any:
    """Return the value of an array without axes, of its dtype: what follows is rounded as numpy rounds it."""
    return x._host()[()]


def _extremes(x: DistArray) -> tuple[Any, Any]:
    """Return the least and the largest element, computed in one pass."""
    return tuple([value[()] for value in compute(reductions.min(x), reductions.max(x))])


def _ptp(x: DistArray) -> Any:
    """Return the distance of the extremes; of integers as an int, since it may not fit their dtype."""
    low, high = _extremes(x)
    return int(high) - int(low) if x.dtype.kind in "iu" else high - low


def _fd(x: DistArray) -> Any:
    upper, lower = _value(quantiles.percentile(x, [75, 25]))
    return 2.0 * (upper - lower) * x.size ** (-1.0 / 3.0)


def _doane(x: DistArray) -> Any:
    n = x.size
    sigma = _value(x.std())
    if n <= 2 or not sigma > 0:
        return 0.0
    spread = np.sqrt(6.0 * (n - 2) / ((n + 1.0) * (n + 3)))
    skewness = _value((((x - x.mean()) / sigma) ** 3).mean())
    return _ptp(x) / (1.0 + np.log2(n) + np.log2(1.0 + abs(skewness) / spread))


def _auto(x: DistArray) -> Any:
    # the interquartile range may be small or zero: not more bins than twice the root of the number of elements
    return builtins.min(builtins.max(_fd(x), _WIDTHS["sqrt"](x) / 2), _WIDTHS["sturges"](x))


#: Estimators of the width of bins, as numpy has them: names as there.
_WIDTHS: Mapping[str, Callable[[DistArray], Any]] = {
    "auto": _auto,
    "doane": _doane,
    "fd": _fd,
    "rice": lambda x: _ptp(x) / (2.0 * x.size ** (1.0 / 3)),
    "scott": lambda x: (24.0 * math.pi**0.5 / x.size) ** (1.0 / 3.0) * _value(x.std()),
    "sqrt": lambda x: _ptp(x) / np.sqrt(x.size),
    "sturges": lambda x: _ptp(x) / (np.log2(x.size) + 1.0),
}


# --------------------------------------------------------------------------------------------------- counts


def _histogram_nbytes(
    a: Any, bins: Any = 10, range: Any = None, density: bool | None = None, weights: Any = None
) -> int:
    """Return the bytes of counts and edges; where sums decide them, which round, or numpy warns, more than any that are
    computed at the call.
    """
    if weights is not None or isinstance(bins, str) or a.dtype.kind not in "iuf":
        return maxsize
    return 16 * max(np.size(bins), int(np.max(bins, initial=0)) if np.ndim(bins) == 0 else 0)


@by_numpy(np.histogram, _histogram_nbytes)
@side_by_side
def histogram(a: Any, bins: Any = 10, range: Any = None, density: bool | None = None, weights: Any = None) -> Histogram:
    """Return counts of the elements in bins, and the edges of the bins: see `histogram_bin_edges`.

    With `weights` their sums instead of counts; with `density` such that the integral over the range is 1.
    """
    x = _subtractable(a)
    if weights is not None:
        x, weights = x.ravel(), _beside_all(x, weights).ravel()
    else:
        x = _along_first_axis(x)
    edges = beside(x, _edges(x, bins, range, weights))
    if x.size and np.ndim(bins) == 0:  # numpy finds even bins by numbers, and makes integers of them
        elementwise.warn_of_lost_imaginary_part(np.result_type(x.dtype, edges.dtype), np.dtype(np.intp))
    if not edges.size:
        return zeros((0,), np.intp if weights is None else weights.dtype, team=x.team, device=x.device), edges
    n = edges.size - 1
    # What falls outside is counted in one more bin on either side.
    at = _bin_of(x, edges)
    if np.ndim(bins) and x.dtype.kind in "fmM":
        at = at - ((x != x) & (edges[-1] != edges[-1]))  # numpy puts them in order: nan is not above an edge of nan
    counts = _of_dtype(at, weights, n + 2)[1:-1]
    if density:
        return counts / differences.diff(edges).astype(np.float64, copy=False) / counts.sum(), edges
    return counts, edges


def _along_first_axis(x: DistArray) -> DistArray:
    """Return the elements of an array, in an array that is long enough to be counted in tiles of its first axis.

    It is the array itself where it can be: in one row, its elements would be copied.
    """
    size = 1 if x.team is None else x.team.size
    return x if x.ndim and x.shape[0] >= MANY_ROWS * size else x.ravel()


def _bin_of(x: DistArray, edges: DistArray) -> DistArray:
    """Return the bin of each element, 0 below all edges; the last bin includes its right edge."""
    return placed(x, edges, "right") - (x == edges[-1])


def _of_dtype(at: DistArray, weights: DistArray | None, n: int) -> DistArray:
    if weights is None:
        return _counts(at, None, n)
    if weights.dtype.kind == "c":
        sums: Any = _counts(at, weights.real, n) + 1j * _counts(at, weights.imag, n)
    else:
        sums = _counts(at, weights, n)
    return sums.astype(weights.dtype, copy=False)


def _grid_nbytes(sample: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None) -> int:
    """Return the bytes of counts of points in boxes; of sums of weights, as in `_counts_nbytes`."""
    d = sample.shape[1] if isinstance(sample, np.ndarray) else len(sample)
    sizes = [len(n) if _has_items(n) else n for n in (bins if _has_items(bins) else [bins] * d)]
    return maxsize if weights is not None else 8 * math.prod(sizes)


def _has_items(value: Any) -> bool:
    return isinstance(value, list | tuple) or (isinstance(value, np.ndarray | DistArray) and value.ndim > 0)


@by_numpy(np.histogramdd, _grid_nbytes)
@side_by_side
def histogramdd(
    sample: Any, bins: Any = 10, range: Any = None, density: bool | None = None, weights: Any = None
) -> tuple[DistArray, list[DistArray]]:
    """Return counts of points in boxes of a grid, and the edges of the boxes along each axis.

    Parameters
    ----------
    sample
        An array with a point in each row, or a sequence of vectors: the coordinates along each axis.
    bins
        The number of bins along all axes; or for each axis their number or their edges.
    range
        For each axis the ends of the first and the last bin, or None for the extremes.
    density
        Divide by the volume of the boxes and the sum.
    weights
        Of the points; 1 by default.
    """
    columns = _columns(sample)
    d = len(columns)
    if not d:
        raise ValueError(f"object of too small depth for desired array: sample={shown(sample)} has points of no axes")
    is_one = not isinstance(bins, list | tuple | str | Mapping) and np.ndim(bins) == 0
    per_axis = [bins] * d if is_one else sequence(bins, "bins", "numbers or edges")
    if len(per_axis) != d:
        raise ValueError(
            f"The dimension of bins must be equal to the dimension of the sample: {len(per_axis)} is not {d}"
        )
    ranges = (None,) * d if range is None else sequence(range, "range", "pairs of numbers")
    if len(ranges) != d:
        raise ValueError(f"range={shown(range)} argument must have one entry per dimension, {d}")
    if weights is not None:
        weights = weights_of(columns[0], weights)
    edges = [_edges_along(i, *given) for i, given in enumerate(zip(columns, per_axis, ranges, strict=True))]
    # What falls outside is counted in one more bin on either side.
    extents = tuple([e.size + 1 for e in edges])
    at = ravel_multi_index([_bin_of(x, e) for x, e in zip(columns, edges)], extents, mode="clip")
    counts = _counts(at, weights, math.prod(extents)).reshape(extents).astype(np.float64, copy=False)
    counts = counts[(slice(1, -1),) * d]
    if density:
        total = counts.sum()
        for axis, e in enumerate(edges):
            counts = counts / differences.diff(e).reshape((-1,) + (1,) * (d - axis - 1))
        counts = counts / total
    return counts, edges


def _columns(sample: Any) -> Sequence[DistArray]:
    if isinstance(sample, DistArray | np.ndarray) and sample.ndim == 2:
        rows = as_it_is(sample)
        return [rows[:, i] for i in builtins.range(rows.shape[1])]
    if isinstance(sample, DistArray | np.ndarray) and sample.ndim != 1:
        raise ValueError("The sample must be a two-dimensional array, or a sequence of vectors.")
    parts = [sample] if isinstance(sample, DistArray | np.ndarray) else sequence(sample, "sample", "vectors")
    if not any(np.ndim(part) for part in parts):
        parts = [np.asarray(parts)]
    columns = [as_it_is(part) for part in parts]
    together = np.result_type(*columns) if columns else None  # as numpy, which makes one array of them
    return [column.astype(together, copy=False) for column in columns]


def _edges_along(axis: int, x: DistArray, bins: Any, range: Any) -> DistArray:
    given = _number_or_edges(bins, f"bins[{axis}]")
    if isinstance(given, int):
        return beside(x, np.linspace(*_outer_edges(x, range), given + 1))
    if not given.size:
        raise IndexError(f"`bins[{axis}]` must have one edge at least, when an array")
    return beside(x, given)


@side_by_side
def histogram2d(
    x: Any, y: Any, bins: Any = 10, range: Any = None, density: bool | None = None, weights: Any = None
) -> tuple[DistArray, DistArray, DistArray]:
    """Return counts of points in the plane, and the edges along both axes: see `histogramdd`."""
    x, y = as_it_is(x), as_it_is(y)
    if x.shape != y.shape:
        raise ValueError("x and y must have the same length.")
    if x.ndim > 1:
        raise ValueError(f"x and y must be vectors, not of shape {x.shape}")
    if _has_items(bins) and len(bins) not in (1, 2):  # edges alone are those of both axes
        bins = [bins, bins]
    counts, (along_x, along_y) = histogramdd([x, y], bins, range, density, weights)
    return counts, along_x, along_y
