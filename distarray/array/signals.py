"""Vectors as samples of functions: convolution, interpolation, differences and integrals.

Each is a few lines of numpy-style code on DistArrays: what is deferred, planned and fused is decided below.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from distarray.array.array import DistArray
from distarray.array.histograms import placed
from distarray.array.views import as_distarray, beside, moveaxis
from distarray.expr.bind import normalize_axis
from distarray.ops import elementwise, manipulation
from distarray.types import AxesLike

__all__ = ["convolve", "correlate", "gradient", "interp", "trapezoid", "unwrap"]


# ---------------------------------------------------------------------------------------------- convolution


def convolve(a: Any, v: Any, mode: str = "full") -> DistArray:
    """The discrete convolution of two vectors; the shorter one is short: one shifted product per element."""
    x, y = _vector(a), _vector(v)
    if not x.size or not y.size:
        raise ValueError(f"{'a' if not x.size else 'v'} cannot be empty")
    if x.size < y.size:
        x, y = y, x
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


def _vector(a: Any) -> DistArray:
    x = as_distarray(a)
    if x.ndim > 1:
        raise ValueError("object too deep for desired array")
    return x.reshape((x.size,))  # type: ignore[no-any-return]  # a method of a DistArray


def correlate(a: Any, v: Any, mode: str = "valid") -> DistArray:
    """The cross-correlation of two vectors: the convolution with the second one reversed and conjugate."""
    x, y = _vector(a), _vector(v)
    if x.size < y.size:
        return _reversed(correlate(y, x, mode))
    return convolve(x, _reversed(y), mode)


def _reversed(x: DistArray) -> DistArray:
    turned = x[::-1]
    return elementwise.conj(turned) if x.dtype.kind == "c" else turned


# -------------------------------------------------------------------------------------------- interpolation


def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: float | None = None) -> DistArray:
    """Piecewise linear interpolation between the points ``(xp, fp)``, which rise in `xp`.

    With a `period` the points and `x` are taken modulo it, in any order.
    """
    x = as_distarray(x)
    if x.dtype.kind == "c":
        raise TypeError(
            "Cannot cast array data from dtype('complex128') to dtype('float64') according to the rule 'safe'"
        )
    x = x.astype(np.float64, copy=False)
    knots, values = beside(x, xp).astype(np.float64, copy=False), beside(x, fp)
    n = knots.size
    if knots.ndim != 1 or values.ndim != 1 or n != values.size or not n:
        raise ValueError("fp and xp are not of the same length." if n else "array of sample points is empty")
    if period is not None:
        if period == 0:
            raise ValueError("period must be a non-zero value")
        x, knots, values, left, right = *_one_period(x, knots, values, abs(period)), None, None
        n = knots.size
    values = values.astype(np.result_type(values.dtype, np.float64), copy=False)
    if n == 1:
        inner: Any = x * 0 + values[0]
    else:
        at = (placed(x, knots, "right") - 1).clip(0, n - 2)
        slope = manipulation.diff(values) / manipulation.diff(knots)
        inner = slope[at] * (x - knots[at]) + values[at]
        inner = elementwise.where(x == knots[-1], values[-1], inner)
    inner = elementwise.where(x > knots[-1], values[-1] if right is None else right, inner)
    return elementwise.where(x < knots[0], values[0] if left is None else left, inner)  # type: ignore[no-any-return]


def _one_period(
    x: DistArray, knots: DistArray, values: DistArray, period: float
) -> tuple[DistArray, DistArray, DistArray]:
    """Positions and points in one period, with the last point before it and the first one after it."""
    order = (knots % period).argsort()
    knots, values = (knots % period)[order], values[order]
    knots = manipulation.concat([knots[-1:] - period, knots, knots[:1] + period])
    return x % period, knots, manipulation.concat([values[-1:], values, values[:1]])


# ---------------------------------------------------------------------------------- differences, integrals


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
    """Differences over distances: central ones inside, one-sided ones of order `edge_order` (1 or 2) at the edges."""
    f = as_distarray(f)
    if edge_order not in (1, 2):
        raise ValueError("'edge_order' greater than 2 not supported")
    axes = range(f.ndim) if axis is None else np.atleast_1d(np.asarray(axis)).tolist()
    axes = [normalize_axis(a, f.ndim) for a in axes]
    steps: list[Any] = list(varargs) if len(varargs) > 1 else [varargs[0] if varargs else 1.0] * len(axes)
    if len(steps) != len(axes):
        raise TypeError("invalid number of arguments")
    made = [_gradient_along(f, a, step, edge_order) for a, step in zip(axes, steps)]
    return made[0] if len(made) == 1 else tuple(made)


def _gradient_along(f: DistArray, axis: int, step: Any, edge_order: int) -> DistArray:
    y = moveaxis(f, axis, -1)
    n = y.shape[-1]
    if n < edge_order + 1:
        raise ValueError(
            "Shape of array too small to calculate a numerical gradient, at least (edge_order + 1) elements are "
            "required."
        )
    if y.dtype.kind == "b":
        raise TypeError("numpy boolean subtract, the `-` operator, is not supported, use the bitwise_xor instead.")
    if y.dtype.kind in "iu":
        y = y.astype(np.float64)
    inner, ends = _inner(y, step)
    if edge_order == 1:
        first, last = (y[..., 1:2] - y[..., :1]) / ends[0], (y[..., -1:] - y[..., -2:-1]) / ends[-1]
    else:
        first = _edge([y[..., i : i + 1] for i in range(3)], ends[0], ends[1])
        last = -_edge([y[..., n - 1 - i : n - i] for i in range(3)], ends[-1], ends[-2])
    made = manipulation.concat([first, inner, last], axis=-1)
    return moveaxis(made.astype(y.dtype, copy=False), -1, axis)


def _inner(y: DistArray, step: Any) -> tuple[Any, list[Any]]:
    """Central differences along the last axis, and the two distances at each of its ends."""
    if not np.ndim(step):
        return (y[..., 2:] - y[..., :-2]) / (2.0 * step), [step] * 4
    at = beside(y, step)
    if at.shape != y.shape[-1:]:
        raise ValueError("when 1d, distances must match the length of the corresponding dimension")
    h: DistArray = manipulation.diff(at.astype(np.result_type(at.dtype, np.float64), copy=False))
    left, right = h[:-1], h[1:]
    inner = (
        y[..., :-2] * (-right / (left * (left + right)))
        + y[..., 1:-1] * ((right - left) / (left * right))
        + y[..., 2:] * (left / (right * (left + right)))
    )
    return inner, [h[:1], h[1:2], h[-2:-1], h[-1:]]


def _edge(y: list[DistArray], h: Any, k: Any) -> Any:
    """The slope at the first of three points of distances `h` and `k`: that of the parabola through them."""
    return y[0] * (-(2.0 * h + k) / (h * (h + k))) + y[1] * ((h + k) / (h * k)) + y[2] * (-h / (k * (h + k)))


def unwrap(p: Any, discont: float | None = None, axis: int = -1, *, period: float = 2 * math.pi) -> DistArray:
    """`p` with multiples of `period` added along `axis`, so that neighbours differ by half a period at most.

    Jumps up to `discont` stay if that is more.
    """
    x = as_distarray(p)
    step = manipulation.diff(x, axis=axis)
    discont = period / 2 if discont is None else discont
    dtype = np.result_type(step.dtype, period)
    if dtype.kind in "iu":
        high, odd = divmod(period, 2)
        ambiguous = not odd
    else:
        high, ambiguous = period / 2, True
    wrapped = (step + high) % period - high
    if ambiguous:
        # half a period up stays up
        wrapped = elementwise.where((wrapped == -high) & (step > 0), high, wrapped)
    correction = elementwise.where(abs(step) < discont, 0, wrapped - step)
    first = (slice(None),) * normalize_axis(axis, x.ndim) + (slice(0, 1),)
    rest = (slice(None),) * normalize_axis(axis, x.ndim) + (slice(1, None),)
    parts = [x[first].astype(dtype, copy=False), (x[rest] + correction.cumsum(axis)).astype(dtype, copy=False)]
    return manipulation.concat(parts, axis=axis)  # type: ignore[no-any-return]  # boxed as x is
