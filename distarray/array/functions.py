"""numpy's functions that are compositions of others, or that write into their argument.

Each is a few lines of numpy-style code on DistArrays: what is deferred, planned and fused is decided below.
"""

from __future__ import annotations

import builtins
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from distarray.array.array import DistArray
from distarray.array.conversion import asarray
from distarray.array.creation import empty_like, zeros
from distarray.array.indexing import flatnonzero
from distarray.array.views import as_distarray, moveaxis
from distarray.errors import NotSupportedError
from distarray.expr.bind import normalize_axis
from distarray.ops import contractions, elementwise, manipulation, reductions, sorting
from distarray.types import AxesLike

__all__ = [
    "allclose", "array_equal", "array_equiv", "bincount", "choose", "convolve", "copyto", "corrcoef", "correlate",
    "cov", "delete", "digitize", "fill_diagonal", "gradient", "histogram", "insert", "interp", "isscalar", "iterable",
    "ndim", "place", "put", "putmask", "resize", "select", "shape", "size", "trapezoid", "tril_indices",
    "triu_indices", "unravel_index",
]  # fmt: skip


# ------------------------------------------------------------------------------------------------ questions


def shape(a: Any) -> tuple[int, ...]:
    """The shape of an array, or of what makes one."""
    return a.shape if isinstance(a, DistArray) else np.shape(a)


def ndim(a: Any) -> int:
    """The number of axes."""
    return len(shape(a))


def size(a: Any, axis: int | None = None) -> int:
    """The number of elements, or the extent of an axis."""
    own = shape(a)
    return int(np.prod(own, dtype=object)) if axis is None else own[axis]


def isscalar(element: Any) -> bool:
    """Whether `element` is a number of Python or numpy."""
    return np.isscalar(element)


def iterable(y: Any) -> bool:
    """Whether one can iterate over `y`."""
    return bool(y.ndim) if isinstance(y, DistArray) else np.iterable(y)


def allclose(a: Any, b: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> bool:
    """Whether all elements are close: `isclose`. Computes."""
    return bool(reductions.all(elementwise.isclose(a, b, rtol, atol, equal_nan)))


def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> bool:
    """Whether two arrays have one shape and equal elements. Computes."""
    x, y = as_distarray(a1), as_distarray(a2)
    if x.shape != y.shape:
        return False
    same = x == y
    if equal_nan and x.dtype.kind in "fcmM" and y.dtype.kind in "fcmM":
        same = same | ((x != x) & (y != y))
    return bool(same.all())


def array_equiv(a1: Any, a2: Any) -> bool:
    """Whether two arrays broadcast to one shape and have equal elements there. Computes."""
    x, y = as_distarray(a1), as_distarray(a2)
    try:
        same = x == y
    except ValueError:
        return False
    return bool(same.all())


# ----------------------------------------------------------------------------------------------- in place


def copyto(dst: DistArray, src: Any, casting: Any = "same_kind", where: Any = True) -> None:
    """Copy `src` into `dst`, where `where` is true."""
    given = src.dtype if hasattr(src, "dtype") else np.asarray(src).dtype
    if not (isinstance(src, bool | int | float | complex) or np.can_cast(given, dst.dtype, casting)):
        raise TypeError(f"Cannot cast array data from {given!r} to {dst.dtype!r} according to the rule {casting!r}")
    if where is True:
        dst[...] = src
    else:
        dst[...] = elementwise.where(where, src, dst)


def putmask(a: DistArray, mask: Any, values: Any) -> None:
    """Where `mask` is true, the element of `values` at the same flat position, repeated as needed."""
    given = as_distarray(values)
    if given.size == 0:
        return
    if given.size > 1:
        n = a.size
        repeats = -(-n // given.size)
        given = manipulation.tile(given.ravel(), repeats)[:n].reshape(a.shape)
    else:
        given = given.reshape(())
    a[...] = elementwise.where(as_distarray(mask).reshape(a.shape), given, a)


def place(arr: DistArray, mask: Any, vals: Any) -> None:
    """The first elements of `vals`, repeated as needed, where `mask` is true. Computes the mask."""
    at = flatnonzero(mask)
    given = as_distarray(vals).ravel()
    if not at.size:
        return
    if not given.size:
        raise ValueError("Cannot insert from an empty array!")
    put(arr, at, manipulation.tile(given, -(-at.size // given.size))[: at.size])


def put(a: DistArray, ind: Any, v: Any, mode: str = "raise") -> None:
    """Write at flat positions."""
    if mode != "raise":
        raise NotSupportedError(f"put: mode={mode!r} is not supported; wrap or clip the indices")
    at = as_distarray(ind).ravel() if isinstance(ind, DistArray) else np.asarray(ind).ravel()
    given = as_distarray(v).ravel()
    if not at.size:
        return
    if given.size != 1:
        given = manipulation.tile(given, -(-at.size // given.size))[: at.size]
    flat = a.ravel()
    flat[at] = given
    if flat._base is not a._base:
        a[...] = flat.reshape(a.shape)


def fill_diagonal(a: DistArray, val: Any, wrap: bool = False) -> None:
    """Write along the main diagonal, in place."""
    if a.ndim < 2:
        raise ValueError("array must be at least 2-d")
    if a.ndim > 2:
        if len(set(a.shape)) > 1:
            raise ValueError("All dimensions of input must be of equal length")
        at = np.arange(a.shape[0])
        a[(at,) * a.ndim] = val
        return
    if wrap and a.shape[0] > a.shape[1] + 1:
        step = a.shape[1] + 1
        put(a, np.arange(0, a.size, step), val)
        return
    diagonal = a._view(manipulation.diagonal_lens(a.shape))
    diagonal[...] = val if np.ndim(val) == 0 else np.resize(np.asarray(val), diagonal.shape)


# ------------------------------------------------------------------------------------------- choice, order


def select(condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0) -> DistArray:
    """For each element the first choice whose condition is true."""
    if len(condlist) != len(choicelist):
        raise ValueError("list of cases must be same length as list of conditions")
    if not condlist:
        raise ValueError("select with an empty condition list is not possible")
    result = default
    for condition, choice in zip(reversed(condlist), reversed(choicelist)):
        result = elementwise.where(condition, choice, result)
    return result  # type: ignore[no-any-return]  # boxed


def choose(a: Any, choices: Sequence[Any], mode: str = "raise") -> DistArray:
    """For each element the choice of that number."""
    x = as_distarray(a)
    n = len(choices)
    if mode == "wrap":
        x = x % n
    elif mode == "clip":
        x = x.clip(0, n - 1)
    elif bool(((x < 0) | (x >= n)).any()):
        raise ValueError("invalid entry in choice array")
    return select([x == i for i in range(n)], choices, 0)


def delete(arr: Any, obj: Any, axis: int | None = None) -> DistArray:
    """A copy without the elements at `obj` along `axis`; of the flattened array by default."""
    x, axis = _along(arr, axis)
    n = x.shape[axis]
    kept = np.ones(n, bool)
    at = np.asarray(obj) if not isinstance(obj, slice) else obj
    if isinstance(at, np.ndarray) and at.dtype.kind != "b" and at.size == 0:
        at = at.astype(np.intp)
    if isinstance(at, np.ndarray) and at.size and at.dtype.kind in "iu" and (at.min() < -n or at.max() >= n):
        bad = at[(at < -n) | (at >= n)].flat[0]
        raise IndexError(f"index {bad} is out of bounds for axis {axis} with size {n}")
    kept[at] = False
    return x[(slice(None),) * axis + (np.flatnonzero(kept),)]


def insert(arr: Any, obj: Any, values: Any, axis: int | None = None) -> DistArray:
    """A copy with `values` before the positions `obj` along `axis`; of the flattened array by default."""
    x, axis = _along(arr, axis)
    n = x.shape[axis]
    given = as_distarray(values).astype(x.dtype, copy=False)
    given = given.reshape((1,) * (x.ndim - given.ndim) + given.shape)
    count = len(range(n)[obj]) if isinstance(obj, slice) else int(np.size(obj))
    if not isinstance(obj, slice) and count == 1:
        if np.ndim(obj) == 0:
            # numpy: for one position, the first axis of the values is the axis of insertion
            given = moveaxis(given, 0, axis)
        count = given.shape[axis]
    # numpy finds the order, on positions: the k-th value is marked -1 - k
    marks = np.insert(np.arange(n), obj, -1 - np.arange(count))
    low = (slice(None),) * axis
    result = empty_like(x, shape=(*x.shape[:axis], len(marks), *x.shape[axis + 1 :]))
    result[(*low, np.flatnonzero(marks >= 0))] = x
    places = np.argsort(-1 - marks[marks < 0])
    result[(*low, np.flatnonzero(marks < 0)[places])] = given
    return result


def _along(arr: Any, axis: int | None) -> tuple[DistArray, int]:
    x = as_distarray(arr)
    if axis is None:
        return x.ravel(), 0
    return x, normalize_axis(axis, x.ndim)


def resize(a: Any, new_shape: Any) -> DistArray:
    """An array of a new shape, with the elements repeated as needed."""
    x = as_distarray(a).ravel()
    new = manipulation.parse_shape(new_shape)
    n = int(np.prod(new, dtype=object))
    if not x.size or not n:
        return zeros(new, x.dtype, team=x.team, device=x.device)
    repeated = x if n <= x.size else manipulation.tile(x, -(-n // x.size))
    return repeated[:n].reshape(new)  # type: ignore[no-any-return]  # boxed as x is


def unravel_index(indices: Any, shape: Any, order: str = "C") -> tuple[Any, ...]:
    """The positions along each axis that flat positions mean."""
    if not isinstance(indices, DistArray):
        return np.unravel_index(indices, shape, order)  # type: ignore[no-any-return, call-overload]
    dims = manipulation.parse_shape(shape)
    if order == "F":
        return unravel_index(indices, dims[::-1])[::-1]
    result: list[Any] = []
    rest: Any = indices
    for n in reversed(dims):
        result.append(rest % n)
        rest = rest // n
    return tuple(reversed(result))


def tril_indices(n: int, k: int = 0, m: int | None = None) -> tuple[np.ndarray[Any, Any], ...]:
    """Positions on and below the `k`-th diagonal of a matrix: host arrays, since they are indices."""
    return np.tril_indices(n, k, m)


def triu_indices(n: int, k: int = 0, m: int | None = None) -> tuple[np.ndarray[Any, Any], ...]:
    """Positions on and above the `k`-th diagonal of a matrix: host arrays, since they are indices."""
    return np.triu_indices(n, k, m)


# ------------------------------------------------------------------------------------------------- counting


def bincount(x: Any, /, weights: Any = None, minlength: int = 0) -> DistArray:
    """How often each non-negative integer stands in a vector, or the sum of the weights at it. Computes the largest."""
    x = as_distarray(x)
    if x.ndim != 1:
        raise ValueError("object too deep for desired array" if x.ndim > 1 else "object of too small depth")
    if x.dtype.kind not in "biu":
        raise TypeError(f"Cannot cast array data from {x.dtype!r} to dtype('int64') according to the rule 'safe'")
    n = operator.index(minlength)
    if n < 0:
        raise ValueError("'minlength' must not be negative")
    if x.size:
        if int(x.min()) < 0:
            raise ValueError("'list' argument must have no negative elements")
        n = builtins.max(n, int(x.max()) + 1)
    counts = zeros((n,), np.intp if weights is None else np.float64, team=x.team, device=x.device)
    if not x.size:
        return counts
    return counts.at[x].add(1 if weights is None else weights)


def digitize(x: Any, bins: Any, right: bool = False) -> DistArray:
    """In which bin each element falls; `bins` rise or fall."""
    edges = np.asarray(bins)
    if edges.ndim != 1:
        raise ValueError("object too deep for desired array")
    steps = np.diff(edges)
    if (steps >= 0).all():
        return _placed(x, edges, "left" if right else "right")
    if not (steps <= 0).all():
        raise ValueError("bins must be monotonically increasing or decreasing")
    return len(edges) - _placed(x, edges[::-1].copy(), "right" if right else "left")


def _placed(x: Any, edges: np.ndarray[Any, Any], side: str) -> DistArray:
    x = as_distarray(x)
    found = sorting.searchsorted(asarray(edges, team=x.team, device=x.device), x.ravel(), side=side)
    return found.reshape(x.shape)  # type: ignore[no-any-return]  # boxed as x is


def histogram(
    a: Any, bins: Any = 10, range: Any = None, density: bool | None = None, weights: Any = None
) -> tuple[DistArray, DistArray]:
    """Counts of the elements in bins, and the edges of the bins. Computes the extremes where edges depend on them."""
    x = as_distarray(a).ravel()
    if isinstance(bins, str):
        raise NotSupportedError(f"histogram: bins={bins!r} is not supported; give a number of bins or their edges")
    if np.ndim(bins) == 0:
        low, high = (float(x.min()), float(x.max())) if range is None and x.size else (range or (0.0, 1.0))
        edges = np.histogram_bin_edges(np.array([low, high]), operator.index(bins), range)
    else:
        edges = np.asarray(bins)
        if (edges[:-1] > edges[1:]).any():
            raise ValueError("`bins` must increase monotonically, when an array")
    n = len(edges) - 1
    at = _placed(x, edges, "right") - 1
    at = elementwise.where(x == edges[-1], n - 1, at)
    inside = (x >= edges[0]) & (x <= edges[-1])
    # What falls outside is counted in one more bin.
    counts = bincount(elementwise.where(inside, at, n), weights, n + 1)[:n]
    bounds = asarray(edges, team=x.team, device=x.device)
    if density:
        widths = np.diff(edges)
        return counts / widths / counts.sum(), bounds
    return counts, bounds


# ------------------------------------------------------------------------------------- signals, statistics


def convolve(a: Any, v: Any, mode: str = "full") -> DistArray:
    """The discrete convolution of two vectors; the shorter one is short: one shifted product per element."""
    x, y = as_distarray(a), as_distarray(v)
    if x.size < y.size:
        x, y = y, x
    if not y.size:
        raise ValueError("v cannot be empty")
    n, m = x.size, y.size
    padded = manipulation.pad(x, m - 1)
    total: Any = None
    for i in range(m):
        term = padded[m - 1 - i : m - 1 - i + n + m - 1] * y[i]
        total = term if total is None else total + term
    if mode == "full":
        return total  # type: ignore[no-any-return]  # boxed as x is
    if mode == "same":
        start = (m - 1) // 2
        return total[start : start + n]  # type: ignore[no-any-return]
    if mode == "valid":
        return total[m - 1 : n]  # type: ignore[no-any-return]
    raise ValueError(f"mode must be one of 'valid', 'same', or 'full' (got {mode!r})")


def correlate(a: Any, v: Any, mode: str = "valid") -> DistArray:
    """The cross-correlation of two vectors."""
    y = as_distarray(v)
    flipped = elementwise.conj(y[::-1]) if y.dtype.kind == "c" else y[::-1]
    if as_distarray(a).size < y.size and mode != "full":
        raise NotSupportedError("correlate: the first vector must be the longer one; exchange the two")
    return convolve(a, flipped, mode)


def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: float | None = None) -> DistArray:
    """Piecewise linear interpolation between the points ``(xp, fp)``, which rise in `xp` and come to this process."""
    if period is not None:
        raise NotSupportedError("interp: period= is not supported; reduce x and xp to one period first")
    x = as_distarray(x).astype(np.float64, copy=False)
    knots, values = np.asarray(xp, np.float64), np.asarray(fp)
    if knots.ndim != 1 or values.ndim != 1 or len(knots) != len(values) or not len(knots):
        raise ValueError("fp and xp are not of the same length." if len(knots) else "array of sample points is empty")
    if len(knots) == 1:
        inner: Any = x * 0 + values[0]
    else:
        at = (_placed(x, knots, "right") - 1).clip(0, len(knots) - 2)
        table = [asarray(t, team=x.team, device=x.device) for t in (np.diff(values) / np.diff(knots), knots, values)]
        slope, x0, y0 = (t[at] for t in table)
        inner = slope * (x - x0) + y0
        inner = elementwise.where(x == knots[-1], values[-1], inner)
    low = values[0] if left is None else left
    high = values[-1] if right is None else right
    inner = elementwise.where(x > knots[-1], high, inner)
    return elementwise.where(x < knots[0], low, inner)  # type: ignore[no-any-return]  # boxed as x is


def trapezoid(y: Any, x: Any = None, dx: float = 1.0, axis: int = -1) -> DistArray:
    """The integral by the trapezoidal rule along `axis`."""
    y = as_distarray(y)
    y = moveaxis(y, axis, -1)
    if x is None:
        steps: Any = dx
    else:
        at = as_distarray(x)
        steps = manipulation.diff(at) if at.ndim == 1 else manipulation.diff(moveaxis(at, axis, -1))
    return (steps * (y[..., 1:] + y[..., :-1]) / 2.0).sum(axis=-1)  # type: ignore[no-any-return]


def gradient(f: Any, *varargs: Any, axis: AxesLike = None, edge_order: int = 1) -> Any:
    """Differences over distances: central ones inside, one-sided ones of first order at the edges."""
    f = as_distarray(f)
    if edge_order != 1:
        raise NotSupportedError("gradient: edge_order=2 is not supported; compute the edges by slices")
    axes = range(f.ndim) if axis is None else np.atleast_1d(np.asarray(axis)).tolist()
    axes = [normalize_axis(a, f.ndim) for a in axes]
    steps: list[Any] = list(varargs) if len(varargs) > 1 else [varargs[0] if varargs else 1.0] * len(axes)
    if len(steps) != len(axes):
        raise TypeError("invalid number of arguments")
    made = [_gradient_along(f, a, step) for a, step in zip(axes, steps)]
    return made[0] if len(made) == 1 else tuple(made)


def _gradient_along(f: DistArray, axis: int, step: Any) -> DistArray:
    y = moveaxis(f, axis, -1)
    n = y.shape[-1]
    if n < 2:
        raise ValueError(
            "Shape of array too small to calculate a numerical gradient, at least 2 elements are required."
        )
    if y.dtype.kind in "biu":
        y = y.astype(np.float64)
    if np.ndim(step) == 0:
        inner = (y[..., 2:] - y[..., :-2]) / (2.0 * step)
        first, last = (y[..., 1:2] - y[..., :1]) / step, (y[..., -1:] - y[..., -2:-1]) / step
    else:
        h = np.diff(np.asarray(step))
        if len(h) != n - 1:
            raise ValueError("when 1d, distances must match the length of the corresponding dimension")
        left, right = h[:-1], h[1:]
        inner = (
            y[..., :-2] * (-right / (left * (left + right)))
            + y[..., 1:-1] * ((right - left) / (left * right))
            + y[..., 2:] * (left / (right * (left + right)))
        )
        first, last = (y[..., 1:2] - y[..., :1]) / h[0], (y[..., -1:] - y[..., -2:-1]) / h[-1]
    return moveaxis(manipulation.concat([first, inner, last], axis=-1), -1, axis)


def cov(
    m: Any,
    y: Any = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: int | None = None,
    fweights: Any = None,
    aweights: Any = None,
    *,
    dtype: Any = None,
) -> DistArray:
    """The covariance matrix of variables in rows, or in columns if `rowvar` is false."""
    if fweights is not None or aweights is not None:
        raise NotSupportedError("cov: weights are not supported; scale the observations by their roots")
    x = as_distarray(m)
    x = x.astype(dtype or np.result_type(x.dtype, np.float64), copy=False)
    x = x.reshape((1, -1)) if x.ndim < 2 else x
    x = x if rowvar or x.shape[0] == 1 else x.T
    if y is not None:
        other = as_distarray(y).astype(x.dtype, copy=False)
        other = other.reshape((1, -1)) if other.ndim < 2 else other if rowvar else other.T
        x = manipulation.concat([x, other], axis=0)
    n = x.shape[1] - ((0 if bias else 1) if ddof is None else ddof)
    centred = x - x.mean(axis=1, keepdims=True)
    turned = centred.T
    product = contractions.matmul(centred, elementwise.conj(turned) if x.dtype.kind == "c" else turned)
    return (product / builtins.max(n, 0)).squeeze()  # type: ignore[no-any-return]  # boxed as x is


def corrcoef(x: Any, y: Any = None, rowvar: bool = True, *, dtype: Any = None) -> DistArray:
    """The matrix of correlation coefficients of variables in rows, or in columns if `rowvar` is false."""
    c = cov(x, y, rowvar, dtype=dtype)
    if not c.ndim:
        return c / c
    deviation = elementwise.sqrt(c.diagonal().real)
    scaled = c / deviation[:, None] / deviation[None, :]
    # Rounding may lead out of the interval.
    return scaled.clip(-1, 1) if scaled.dtype.kind == "f" else scaled  # type: ignore[no-any-return]  # boxed as c is
