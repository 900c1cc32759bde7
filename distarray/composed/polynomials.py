"""Polynomials as vectors of coefficients, the highest power first: numpy's functions on DistArrays.

The degree is small as a rule, and what polynomials are evaluated at and fitted to is large. So an evaluation is a chain
of elementwise operations, one step for each coefficient, that runs in one pass; a fit is a least squares problem of
tall matrices. Where the number of zeros decides a shape, or imaginary parts a dtype, the coefficients are computed at
the call.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from distarray.arguments import number, parse_shape, shown
from distarray.array.array import DistArray
from distarray.array.out import hosted
from distarray.composed.creation import vander, zeros, zeros_like
from distarray.composed.pieces import trim_zeros
from distarray.composed.signals import convolve
from distarray.composed.views import all_beside, as_distarray, atleast_1d, beside
from distarray.errors import warn_user
from distarray.expr.side_by_side import side_by_side
from distarray.ops import contractions, elementwise, joining, linalg, manipulation, repetition, sorting
from distarray.ops.families import ready_made


def _zeros(x: DistArray, n: int, dtype: Any = None) -> DistArray:
    return zeros((n,), x.dtype if dtype is None else dtype, team=x.team, device=x.device)


def _coefficients(p: Any, beside_: Any = None) -> DistArray:
    """Return `p` where `beside_` lives: a vector, and no number."""
    x: DistArray = beside(beside_, p)
    if not x.ndim:
        raise TypeError(f"p={shown(p)} must be a vector of coefficients")
    return x


def _or_poly1d(function: Callable[..., Any]) -> Callable[..., Any]:
    """Leave a polynomial of numpy's class, which is of this process, to numpy's function: its result is another one."""
    theirs = getattr(np, function.__name__)

    @wraps(function)
    def with_poly1d(*args: Any, **kwargs: Any) -> Any:
        if any(isinstance(value, np.poly1d) for value in (*args, *kwargs.values())):
            return theirs(*hosted(args), **{name: hosted(value) for name, value in kwargs.items()})
        return function(*args, **kwargs)

    return with_poly1d


# ----------------------------------------------------------------------------------------------- arithmetic


@_or_poly1d
@side_by_side
def polyadd(a1: Any, a2: Any) -> DistArray:
    """Return the sum of two polynomials."""
    x, y = _aligned(a1, a2)
    return x + y


@_or_poly1d
@side_by_side
def polysub(a1: Any, a2: Any) -> DistArray:
    """Return the difference of two polynomials."""
    x, y = _aligned(a1, a2)
    return x - y


def _aligned(a1: Any, a2: Any) -> tuple[DistArray, DistArray]:
    """Return both with as many coefficients, zeros in front of the shorter one."""
    x, y = atleast_1d(*all_beside(a1, a2))
    n = max(x.shape[0], y.shape[0])
    x, y = (p if p.shape[0] == n else joining.concat([_zeros(p, n - p.shape[0]), p]) for p in (x, y))
    return x, y


@_or_poly1d
@side_by_side
def polymul(a1: Any, a2: Any) -> DistArray:
    """Return the product of two polynomials. Leading zeros are left out, whose number it computes."""
    both = atleast_1d(*all_beside(a1, a2))
    if any(p.ndim > 1 for p in both):
        raise ValueError("Polynomial must be 1d only.")
    x, y = (_stripped(p) for p in both)
    return convolve(x, y)


def _stripped(p: DistArray) -> DistArray:
    stripped: DistArray = trim_zeros(p, "f")
    return stripped if stripped.size else _zeros(p, 1)


@_or_poly1d
@side_by_side
def polydiv(u: Any, v: Any) -> tuple[DistArray, DistArray]:
    """Return the quotient and remainder of two polynomials. Leading zeros of the remainder are left out: computes
    it.
    """
    u, v = (p + 0.0 for p in atleast_1d(*all_beside(u, v)))
    if not u.size or not v.size:
        raise IndexError(f"polynomials have one coefficient at least: u is of shape {u.shape}, v of {v.shape}")
    dtype = np.result_type(u.dtype, v.dtype)
    m, n = u.shape[0] - 1, v.shape[0] - 1
    r: DistArray = u.astype(dtype, copy=False)
    scale = 1.0 / v[0]
    factors = []
    for k in range(m - n + 1):
        factors.append(scale * r[k])
        if factors[-1].ndim:
            raise ValueError("setting an array element with a sequence: polynomials have one axis")
        r = joining.concat([r[:k], r[k : k + n + 1] - factors[-1] * v, r[k + n + 1 :]])
    q = joining.stack(factors).astype(dtype, copy=False) if factors else _zeros(u, 1, dtype)
    # at least one coefficient is left
    counts = ~elementwise.isclose(r[:-1], 0, rtol=1e-14)
    first = int(counts.argmax()) if r.size > 1 and bool(counts.any()) else r.size - 1
    return q, r[first:]


# ----------------------------------------------------------------------------------------------- calculus


@_or_poly1d
def polyder(p: Any, m: int = 1) -> DistArray:
    """Return the `m`-th derivative of a polynomial."""
    m = _order(m)
    if m < 0:
        raise ValueError(f"Order of derivative must be positive (see polyint), not m={m}")
    derived = _coefficients(p)
    for _ in range(min(m, derived.shape[0])):  # nothing is left of it then
        derived = derived[:-1] * np.arange(derived.shape[0] - 1, 0, -1)
    if derived.ndim > 1:
        np.broadcast_shapes(derived[:-1].shape, (max(derived.shape[0] - 1, 0),))  # numpy differentiates once more
    return derived


def _order(m: Any) -> int:
    """Return how often to differentiate or integrate; numpy takes whatever ``int`` takes."""
    return int(number(m, "m", real=True))


@_or_poly1d
@ready_made(1, is_boxed=True)
@side_by_side
def polyint(p: Any, m: int = 1, k: Any = None) -> DistArray:
    """Return the `m`-th antiderivative of a polynomial, with the constants `k` of integration; 0 by default."""
    m = _order(m)
    if m < 0:
        raise ValueError(f"Order of integral must be positive (see polyder), not m={m}")
    whole = _coefficients(p)
    constants: DistArray = _zeros(whole, m, np.float64) if k is None else atleast_1d(beside(whole, k))
    if constants.shape[0] == 1 and m > 1:
        constants = repetition.tile(constants, m)
    if constants.shape[0] < m:
        raise ValueError(f"k must be a scalar or a rank-1 array of length 1 or >m, not of shape {constants.shape}")
    for i in range(m):
        whole = joining.concat([whole / np.arange(whole.shape[0], 0, -1), constants[i : i + 1]])
    return whole


@ready_made(2, is_boxed=True)
@side_by_side
def polyval(p: Any, x: Any) -> Any:  # an array, or a polynomial of numpy's class, as `x` is
    """Return the values of a polynomial at `x`, by Horner's rule: a step for each coefficient, all of them in one
    pass.
    """
    if isinstance(x, np.poly1d):
        return np.polyval(hosted(p), x)
    x = beside(p, x)
    coefficients = _coefficients(p, x)
    y: DistArray = zeros_like(x)
    for i in range(coefficients.shape[0]):
        y = y * x + coefficients[i]
    return y


# ---------------------------------------------------------------------------------------------------- fits


@side_by_side
def polyfit(
    x: Any, y: Any, deg: int, rcond: float | None = None, full: bool = False, w: Any = None, cov: Any = False
) -> Any:  # as numpy: coefficients, and what else is asked for
    """Return the polynomial of degree `deg` that fits points best, in the sense of least squares.

    Parameters
    ----------
    x
        Where, a vector.
    y
        The values there: a vector, or several as columns.
    rcond
        Singular values below this fraction of the largest one count as zero.
    full
        Return the squared residuals, the rank, the singular values and `rcond` too.
    w
        Weights of the residuals.
    cov
        Return the covariance matrix of the coefficients too; ``"unscaled"``: as the weights say.
    """
    order = int(number(deg, "deg", real=True)) + 1
    if deg < 0:
        raise ValueError(f"expected deg >= 0, not {deg}")
    parse_shape(order, "deg")
    if rcond is not None:
        number(rcond, "rcond", real=True)
    x = beside(y, x) + 0.0
    y = beside(x, y) + 0.0
    _check_points(x, y)
    if rcond is None:
        rcond = x.size * float(np.finfo(x.dtype).eps)
    left, right = vander(x, order), y
    if w is not None:
        weights = _weights(x, y, w)
        # In place, as in numpy: dtypes stay, and complex weights of real points are an error.
        left = (left * weights[:, None]).astype(left.dtype, casting="same_kind")
        right = (right * (weights[:, None] if y.ndim == 2 else weights)).astype(right.dtype, casting="same_kind")
    # columns of one length: better conditioned
    scale = elementwise.sqrt((left * left).sum(axis=0))
    left = left / scale
    c, residuals, rank, values = linalg.lstsq(left, right, rcond)
    c = (c.T / scale).T
    if full:
        return c, residuals, rank, values, rcond
    if int(rank) != order:
        warn_user("Polyfit may be poorly conditioned", np.exceptions.RankWarning)
    if not cov:
        return c
    base = linalg.inv(contractions.matmul(left.T, left)) / contractions.outer(scale, scale)
    return c, _scaled(base, residuals, x.size - order, cov, y.ndim)


def _check_points(x: DistArray, y: DistArray) -> None:
    if x.ndim != 1:
        raise TypeError("expected 1D vector for x")
    if not x.size:
        raise TypeError("expected non-empty vector for x")
    if y.ndim not in (1, 2):
        raise TypeError("expected 1D or 2D array for y")
    if x.shape[0] != y.shape[0]:
        raise TypeError("expected x and y to have same length")


def _weights(x: DistArray, y: DistArray, w: Any) -> DistArray:
    weights = beside(x, w) + 0.0
    if weights.ndim != 1:
        raise TypeError(f"expected a 1-d array for weights: w is of shape {weights.shape}")
    if weights.shape[0] != y.shape[0]:
        raise TypeError(f"expected w and y to have the same length: {weights.shape[0]} is not {y.shape[0]}")
    return weights


def _scaled(base: DistArray, residuals: DistArray, freedom: int, cov: Any, ndim: int) -> DistArray:
    if isinstance(cov, str) and cov == "unscaled":
        return base if ndim == 1 else base[:, :, None]
    if freedom <= 0:
        raise ValueError("the number of data points must exceed order to scale the covariance matrix")
    factor = residuals / freedom
    return base * factor if ndim == 1 else base[:, :, None] * factor


# ---------------------------------------------------------------------------------------------------- roots


@ready_made(1, is_boxed=True)
def poly(seq_of_zeros: Any) -> Any:  # an array, or 1.0 if there are no zeros, as numpy
    """Return the polynomial with these zeros, or the characteristic polynomial of a square matrix."""
    x = atleast_1d(as_distarray(seq_of_zeros))
    if x.ndim == 2 and x.shape[0] == x.shape[1] and x.shape[0]:
        is_real = x.dtype.kind != "c"
        x = linalg.eigvals(x)
    elif x.ndim == 1:
        is_real = x.dtype.kind != "c"
        x = x.astype(np.dtype(np.mintypecode(x.dtype.char)), copy=False)
    else:
        raise ValueError("input must be 1d or non-empty square 2d array.")
    if not x.size:
        return 1.0
    a: DistArray = beside(x, np.ones(1, x.dtype))
    with np.errstate(all="ignore"):  # numpy does not look at the flags here
        for i in range(x.size):
            zero = _zeros(x, 1)
            a = joining.concat([a, zero]) - joining.concat([zero, a * x[i]])
    if a.dtype.kind == "c" and (is_real or _conjugate(x)):
        # the zeros are conjugates of each other: numpy drops what rounding leaves
        return elementwise.real(a)
    return a


def _conjugate(x: DistArray) -> bool:
    """Return whether the conjugate of each element is an element: computes it."""
    # complex numbers stand by real and then by imaginary part
    return bool((sorting.sort(x) == sorting.sort(elementwise.conj(x))).all())


def roots(p: Any) -> DistArray:
    """Return the zeros of a polynomial: the eigenvalues of its companion matrix, computed at the call."""
    p = atleast_1d(as_distarray(p))
    if p.ndim != 1:
        raise ValueError("Input must be a rank-1 array.")
    without = trim_zeros(p, "f")
    inner = trim_zeros(without, "b")
    at_zero = without.size - inner.size
    if inner.dtype.kind not in "fc":
        inner = inner.astype(np.float64)
    n = inner.size
    if n < 2:
        return _zeros(p, at_zero, np.float64)
    below = manipulation.diag(beside(p, np.ones(n - 2, inner.dtype)), -1)
    companion = joining.concat([(-inner[1:] / inner[0])[None, :], below[1:]]) if n > 2 else -inner[1:] / inner[0]
    found = linalg.eigvals(companion.reshape((n - 1, n - 1)))
    if companion.dtype.kind != "c" and bool((found.imag == 0).all()):
        # numpy's of a real matrix are real where all happen to be
        found = elementwise.real(found)
    return joining.concat([found, _zeros(p, at_zero, found.dtype)])
