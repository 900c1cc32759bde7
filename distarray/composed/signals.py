"""Vectors as samples of functions: convolution, interpolation, differences and integrals.

Each is a few lines of numpy-style code on DistArrays: what is deferred, planned and fused is decided below.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from distarray.arguments import (
    check_cast,
    choice,
    host_array,
    naming,
    normalize_axes,
    normalize_axis,
    number,
    refuse_loose_axis,
    shown,
)
from distarray.array.array import DistArray
from distarray.composed.histograms import placed
from distarray.composed.views import all_beside, as_distarray, beside
from distarray.deferral import waiting
from distarray.expr.bind import bind_map
from distarray.expr.side_by_side import side_by_side
from distarray.ops import differences, elementwise, joining, manipulation, searching
from distarray.ops.families import by_numpy, ready_made
from distarray.ops.programs import WHOLE_NBYTES
from distarray.ops.window_products import convolution
from distarray.types import AxesLike

# ---------------------------------------------------------------------------------------------- convolution

#: Of convolutions, in the order in which numpy numbers them.
_MODES = ("valid", "same", "full")


@ready_made(2, is_boxed=True)
def convolve(a: Any, v: Any, mode: str = "full") -> DistArray:
    """Return the discrete convolution of two vectors: the longer one is cut, the shorter one whole at every member.

    Its cost is that of NumPy's, the product of both sizes; for a long shorter vector transforms (`fft`) are faster.
    """
    x, y = _vectors(a, v)
    return _convolved(x, y, _mode(mode))


def _convolved(x: DistArray, y: DistArray, mode: str) -> DistArray:
    if not x.size or not y.size:
        raise ValueError(f"{'a' if not x.size else 'v'} cannot be empty")
    if x.size < y.size:
        x, y = y, x
    with np.errstate(all="ignore"):  # numpy does not look at the flags here
        return x._on(convolution(x.__dx_node__(), y.__dx_node__(), mode))


def _mode(mode: Any) -> str:
    """Return the name of a mode, which may be given by numpy's number of it."""
    mode = int(mode) if isinstance(mode, np.integer) else mode
    found = choice(mode, (*_MODES, *range(len(_MODES))), "mode")
    return found if isinstance(found, str) else _MODES[found]


def _vectors(a: Any, v: Any) -> tuple[DistArray, DistArray]:
    """Return both as vectors; host data where the other one lives."""
    x, y = all_beside(a, v)
    return _vector(x), _vector(y)


def _vector(x: DistArray) -> DistArray:
    if x.ndim > 1:
        raise ValueError("object too deep for desired array")
    return x.reshape((x.size,))


@ready_made(2, is_boxed=True)
def correlate(a: Any, v: Any, mode: str = "valid") -> DistArray:
    """Return the cross-correlation of two vectors: the convolution with the second one reversed and conjugate."""
    for name, given in (("a", a), ("v", v)):
        if not np.ndim(given):
            raise ValueError(f"object of too small depth for desired array: {name}={shown(given)}")
    x, y = _vectors(a, v)
    mode = _mode(mode)
    if x.size < y.size:
        return _reversed(_convolved(y, _reversed(x), mode))._in_order("C")  # no view: it is contiguous, as numpy's
    return _convolved(x, _reversed(y), mode)


def _reversed(x: DistArray) -> DistArray:
    turned = x[::-1]
    with np.errstate(all="ignore"):  # the same as that of a convolution, with which it is computed
        return elementwise.conj(turned) if x.dtype.kind == "c" else turned


# -------------------------------------------------------------------------------------------- interpolation


@by_numpy(np.interp)
@side_by_side
def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> DistArray:
    """Interpolate linearly between the points ``(xp, fp)``, which rise in `xp`.

    With a `period` the points and `x` are taken modulo it, in any order. Points of up to 64 MiB are whole at every
    member; of more, each position reads those that it lies between.
    """
    x = as_distarray(x)
    knots, values = beside(x, xp), beside(x, fp)
    for value, name in ((left, "left"), (right, "right")):
        if value is not None:
            number(value, name, real=values.dtype.kind != "c")
    if period is not None:
        if getattr(period, "shape", ()) == (1,):  # numpy takes an array of one, along which a number becomes an array
            x, period = x.reshape((1,)) if x.ndim == 0 else x, period[0]
        period = number(period, "period")
    real, complex_ = np.dtype(np.float64), np.dtype(np.complex128)
    of_values = complex_ if values.dtype.kind == "c" else real
    for array, name, to in ((x, "x", real), (knots, "xp", real), (values, "fp", of_values)):
        if period is None or array.dtype.kind == "c":  # of what lies in a period numpy makes floats
            check_cast(array.dtype, to, name=name)
    n = knots.size
    if knots.ndim != 1 or values.ndim != 1 or n != values.size or not n:
        said = "fp and xp are not of the same length" if n else "array of sample points is empty"
        raise ValueError(f"{said}: xp is of shape {knots.shape}, fp of {values.shape}")
    if period is not None:
        if period == 0:
            raise ValueError("period must be a non-zero value")
        # In the dtype that is computed with: there is no remainder to be rounded, and no integer to be negative.
        x, knots, values = (a.astype(to, copy=False) for a, to in ((x, real), (knots, real), (values, of_values)))
        x, knots, values, left, right = *_one_period(x, knots, values, abs(period)), None, None
    is_small = max(knots.nbytes, values.nbytes) <= WHOLE_NBYTES
    if is_small and not x.device.startswith("strict"):  # the standard has no kernel for it
        found: Any = x._on(searching.interpolated(*[array.__dx_node__() for array in (x, knots, values)]))
    else:
        with waiting():  # no position that is read is outside
            found = _between(x, knots, values)
    if right is not None:
        found = elementwise.where(x > knots[-1], right, found)
    if left is not None:
        found = elementwise.where(x < knots[0], left, found)
    return elementwise.as_scalar(found)


def _between(x: DistArray, knots: DistArray, values: DistArray) -> Any:
    """Return the values between points at the positions `x`; beyond them those of the first and the last one."""
    x, knots = x.astype(np.float64, copy=False), knots.astype(np.float64, copy=False)
    values = values.astype(np.result_type(values.dtype, np.float64), copy=False)
    if knots.size == 1:
        return manipulation.broadcast_to(values[0], x.shape)  # whatever the position, nan too
    at = (placed(x, knots, "right") - 1).clip(0, knots.size - 2)
    if values.dtype.kind == "c":
        real, imag = [_on_lines(x, knots, part, at) for part in (values.real, values.imag)]
        inner: Any = bind_map(elementwise.COMPLEX, [real, elementwise.where(elementwise.isnan(x), 0.0, imag)])
    else:
        inner = _on_lines(x, knots, values, at)
    inner = elementwise.where(x >= knots[-1], values[-1], inner)
    return elementwise.where(x < knots[0], values[0], inner)


def _on_lines(x: DistArray, knots: DistArray, values: DistArray, at: DistArray) -> Any:
    """Return the line through each two neighbouring points, at the positions `x` that lie behind the points `at`.

    As numpy: from the left point; where that is nan (of infinite values) from the right one; else what both have.
    """
    with np.errstate(all="ignore"):  # numpy does not look at the flags here
        slope = (differences.diff(values) / differences.diff(knots))[at]
        left, right = values[at], values[at + 1]
        from_left, from_right = slope * (x - knots[at]) + left, slope * (x - knots[at + 1]) + right
        level = elementwise.where(elementwise.isnan(from_right) & (left == right), left, from_right)
        found = elementwise.where(elementwise.isnan(from_left), level, from_left)
        # a point itself, whatever its neighbour is; and no position is no value
        found = elementwise.where(x == knots[at], left, found)
        return elementwise.where(elementwise.isnan(x), x, found)


def _one_period(
    x: DistArray, knots: DistArray, values: DistArray, period: float
) -> tuple[DistArray, DistArray, DistArray]:
    """Return the positions and points in one period, with the last point before it and the first one after it."""
    order = (knots % period).argsort()
    knots, values = (knots % period)[order], values[order]
    knots = joining.concat([knots[-1:] - period, knots, knots[:1] + period])
    return x % period, knots, joining.concat([values[-1:], values, values[:1]])


# ---------------------------------------------------------------------------------- differences, integrals


@ready_made(1, is_boxed=True)
@side_by_side
def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> DistArray:
    """Return the integral by the trapezoidal rule along `axis`: between points `x`, or over distances `dx`, which
    broadcast against neighbours.
    """
    y = as_distarray(y)
    along = normalize_axis(axis, y.ndim)
    if x is None:
        steps = dx if isinstance(dx, bool | int | float | complex | np.generic) else beside(y, dx)
    else:
        at = beside(y, x)
        if not at.ndim:
            raise ValueError(f"x={shown(x)}: diff requires input that is at least one dimensional")
        steps = differences.diff(at, axis=axis if at.ndim > 1 else 0)
        if at.ndim == 1:
            steps = steps.reshape([steps.size if a == along else 1 for a in range(y.ndim)])
    before = (slice(None),) * along
    with naming(x=x, dx=dx):
        areas = steps * (y[*before, 1:] + y[*before, :-1])
    return (areas / 2.0).sum(axis=axis)


@by_numpy(np.gradient)
@side_by_side
def gradient(f: Any, *varargs: Any, axis: AxesLike = None, edge_order: int = 1) -> Any:
    """Return differences over distances: central ones inside, one-sided ones of order `edge_order` (1 or 2) at the
    edges.

    Coordinates along an axis may stand for the distance: whether they are evenly spaced is computed at the call.
    """
    f = as_distarray(f)
    if number(edge_order, "edge_order", real=True) not in (1, 2):
        raise ValueError(f"edge_order={edge_order} is not supported; it is 1 or 2")
    axes = normalize_axes(axis, f.ndim)
    kinds = (DistArray, bool, int, float, complex)
    steps = [v if isinstance(v, kinds) else host_array(v, "varargs") for v in varargs] or [1.0]
    if len(steps) == 1 and not np.ndim(steps[0]):
        steps *= len(axes)
    if len(steps) != len(axes):
        raise TypeError(f"invalid number of arguments: {len(varargs)} distances for axis={shown(axis)}")
    made = [_gradient_along(f, a, step, edge_order) for a, step in zip(axes, steps)]
    return made[0] if len(made) == 1 else tuple(made)


def _gradient_along(y: DistArray, axis: int, step: Any, edge_order: int) -> DistArray:
    n = y.shape[axis]
    if n < edge_order + 1:
        raise ValueError(
            "Shape of array too small to calculate a numerical gradient, at least (edge_order + 1) elements are "
            "required."
        )
    if y.dtype.kind == "b":
        raise TypeError("numpy boolean subtract, the `-` operator, is not supported, use the bitwise_xor instead.")
    if y.dtype.kind in "iu":
        y = y.astype(np.float64)
    if y.dtype.kind == "M":  # as numpy: dates are spans since a common one
        y = y.astype(np.int64).astype(np.dtype(y.dtype.str.replace("M8", "m8")))
    h = _distances(y, axis, step)
    inner, ends = _inner(y, axis, h)

    def at(i: int) -> DistArray:
        return _part(y, axis, slice(i, i + 1))

    if edge_order == 1:
        first, last = (at(1) - at(0)) / ends[0], (at(n - 1) - at(n - 2)) / ends[-1]
    else:
        first = _edge([at(i) for i in range(3)], ends[0], ends[1])
        last = -_edge([at(n - 1 - i) for i in range(3)], ends[-1], ends[-2])
    made: DistArray = joining.concat([first, inner, last], axis=axis)
    return made.astype(y.dtype, copy=False)


def _part(x: DistArray, axis: int, part: slice) -> DistArray:
    """Return what a slice along an axis picks."""
    return x[(slice(None),) * axis + (part,)]


def _distances(y: DistArray, axis: int, step: Any) -> Any:
    """Return a number, or one for each two neighbours along an axis where they are not all the same."""
    if not np.ndim(step):
        return step
    at = step if isinstance(step, DistArray) else np.asarray(step)
    if at.shape != (y.shape[axis],):
        raise ValueError(
            f"when 1d, distances must match the length of the corresponding dimension: varargs has {shown(step)} of "
            f"shape {at.shape} for an axis of {y.shape[axis]}"
        )
    if at.dtype.kind in "iu":
        at = at.astype(np.float64)
    h = at[1:] - at[:-1]
    # As numpy: the formula for uneven distances takes the middle element too, and makes nan of what is nan there.
    if bool((h == h[:1]).all()):
        return np.asarray(h[:1])[0]
    return beside(y, h).reshape((-1,) + (1,) * (y.ndim - 1 - axis))


def _inner(y: DistArray, axis: int, h: Any) -> tuple[Any, list[Any]]:
    """Return central differences along an axis, and the two distances at each of its ends."""
    before, here, behind = (_part(y, axis, part) for part in (slice(-2), slice(1, -1), slice(2, None)))
    if not np.ndim(h):
        return (behind - before) / (2.0 * h), [h] * 4
    left, right = h[:-1], h[1:]
    inner = (
        before * (-right / (left * (left + right)))
        + here * ((right - left) / (left * right))
        + behind * (left / (right * (left + right)))
    )
    return inner, [h[:1], h[1:2], h[-2:-1], h[-1:]]


def _edge(y: list[DistArray], h: Any, k: Any) -> Any:
    """Return the slope at the first of three points of distances `h` and `k`: that of the parabola through them."""
    return y[0] * (-(2.0 * h + k) / (h * (h + k))) + y[1] * ((h + k) / (h * k)) + y[2] * (-h / (k * (h + k)))


@ready_made(1, is_boxed=True)
def unwrap(p: Any, discont: float | None = None, axis: int = -1, *, period: float = 2 * math.pi) -> DistArray:
    """Return `p` with multiples of `period` added along `axis`, so that neighbours differ by half a period at most.

    Jumps up to `discont` stay if that is more.
    """
    x = as_distarray(p)
    number(period, "period", real=True)
    if discont is not None:
        number(discont, "discont", real=True)
    step = differences.diff(x, axis=axis)
    discont = period / 2 if discont is None else discont
    dtype = np.result_type(step.dtype, period)
    if dtype.kind in "iu":
        high, odd = divmod(period, 2)
        ambiguous = not odd
    else:
        high, ambiguous = period / 2, True
    low = -high  # which unsigned integers refuse
    wrapped = (step - low) % period + low
    if ambiguous:
        # half a period up stays up
        wrapped = elementwise.where((wrapped == low) & (step > 0), high, wrapped)
    correction = elementwise.where(abs(step) < discont, 0, wrapped - step)
    refuse_loose_axis(axis)
    axis = normalize_axis(axis, x.ndim)
    first, rest = _part(x, axis, slice(1)), _part(x, axis, slice(1, None))
    parts = [first.astype(dtype, copy=False), (rest + correction.cumsum(axis)).astype(dtype, copy=False)]
    return joining.concat(parts, axis=axis)
