"""Distributions as elementwise functions of words and parameters: gamma, Poisson, binomial and the like.

Each method that tries until it succeeds (rejection) draws from the stream that the element's own word seeds: its
number depends on the word and the parameters, on nothing else. All elements of a slice make their first try together,
those that fail their second, and so on.

A parameter is a number or a vector as long as the words. Numbers are checked where they enter; of arrays, those without
axes included, whose values are known only here, numpy's ValueError is raised here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from distarray.kernels.random_words import Floats, Words, namespace, normal, open_uniform, uniform, word
from distarray.types import DType

Parameter = Any  # a float, or a vector of float64

#: Words that one try may take, and where they begin in the stream: words before these belong to `normal`.
_PER_TRY, _BEGIN = 4, 1 << 20
#: No method fails more often: the least accepting one has every third try succeed.
_MOST_TRIES = 1_000


def _require(holds: Any, text: str) -> None:
    """Raise numpy's ValueError if a parameter does not hold: an array, or a number that was none at the call."""
    if not (holds.all() if hasattr(holds, "all") else holds):
        raise ValueError(text)


def _at(x: Parameter, chosen: Any) -> Parameter:
    return x[chosen] if getattr(x, "ndim", 0) else x


def _rejection(attempt: Callable[..., tuple[Floats, Any]], seeds: Words, *params: Parameter) -> Floats:
    """Return what `attempt` accepts first, for every element.

    Parameters
    ----------
    attempt
        ``(draw, *params) -> (numbers, whether each is accepted)``; ``draw(j)`` are the words that it may use, j < 4.
    """
    found, at = None, None
    for k in range(_MOST_TRIES):
        first = _BEGIN + k * _PER_TRY

        def draw(j: int, seeds: Words = seeds, first: int = first) -> Words:
            # The very first word is the seed: it is random already.
            return seeds if first + j == _BEGIN else word(seeds, first + j)

        values, ends = attempt(draw, *params)
        ends |= values != values  # of a parameter that is nan comes nan
        if found is None or at is None:
            found, at = values, namespace(seeds).nonzero(~ends)[0]
            again = at
        else:
            found[at[ends]] = values[ends]
            again = ~ends
            at = at[again]
        if not at.shape[0]:
            return found
        seeds, params = seeds[again], tuple([_at(p, again) for p in params])
    raise ArithmeticError(f"no number was accepted in {_MOST_TRIES} tries; the parameters are beyond the method")


# --------------------------------------------------------------------------------------------- gamma


def _try_gamma(draw: Callable[[int], Words], d: Parameter, c: Parameter) -> tuple[Floats, Any]:
    """Return a generator with two squeezes for gamma numbers of shape ``d + 1/3 >= 1`` (Marsaglia and Tsang 2000)."""
    x = normal(draw(0))
    xp = namespace(x)
    v = 1.0 + c * x
    v = v * v * v
    u = open_uniform(draw(1))
    square = x * x
    ends = u < 1.0 - 0.0331 * square * square
    open_ = xp.nonzero(~ends)[0]
    v_, d_ = v[open_], _at(d, open_)
    ends[open_] = xp.log(u[open_]) < 0.5 * square[open_] + d_ * (1.0 - v_ + xp.log(v_))
    ends &= v > 0.0
    return d * v, ends


def _gamma_from_one(seeds: Words, shape: Parameter) -> Floats:
    """Return gamma numbers of a shape of at least 1."""
    xp = namespace(seeds)
    d = shape - 1.0 / 3.0
    return _rejection(_try_gamma, seeds, d, 1.0 / xp.sqrt(9.0 * d))


def _small_shapes(seeds: Words, shape: Parameter) -> tuple[Floats, Any, Parameter]:
    """Return gamma numbers of the shape, or of one more where it is below 1; where that is, and log(u) of those."""
    xp = namespace(seeds)
    if not getattr(shape, "ndim", 0):
        small = xp.arange(seeds.shape[0] if shape < 1.0 else 0)
        base = _gamma_from_one(seeds, shape + 1.0 if shape < 1.0 else shape)
    else:
        small = xp.nonzero(shape < 1.0)[0]
        base = _gamma_from_one(seeds, _where(xp, shape < 1.0, shape + 1.0, shape))
    # A word before the first try's.
    return base, small, xp.log(open_uniform(word(seeds[small], -1)))


def _gamma(seeds: Words, shape: Parameter) -> Floats:
    """Return gamma numbers of scale 1; below shape 1 by ``gamma(a) = gamma(a + 1) * u**(1 / a)``."""
    xp = namespace(seeds)
    _require((shape >= 0) | (shape != shape), "shape < 0")
    found, small, log_u = _small_shapes(seeds, shape)
    if small.shape[0]:
        a = _at(shape, small)
        found[small] = found[small] * xp.exp(log_u / a)
    return found


def _log_gamma(seeds: Words, shape: Parameter) -> Floats:
    """Return logarithms of gamma numbers: those of a small shape are too small for themselves."""
    xp = namespace(seeds)
    _require((shape >= 0) | (shape != shape), "alpha < 0")
    found, small, log_u = _small_shapes(seeds, shape)
    found = xp.log(found)
    if small.shape[0]:
        a = _at(shape, small)
        # Quotients by less than 1e-306 may be infinite, and differences of two of them nan; those by 0 are to be.
        is_tiny = (a > 0) & (a < 1e-306)
        found[small] = found[small] + _where(xp, is_tiny, log_u / 1e-306, log_u / a)
    return found


# -------------------------------------------------------------------------------------------- counts

_STIRLING = np.array([math.lgamma(k + 1) - (k + 0.5) * math.log(k + 1) + (k + 1) - 0.5 * math.log(2 * math.pi)
                      for k in range(10)])  # fmt: skip


def _stirling_rest(k: Any) -> Floats:
    """Return what Stirling's formula for log(k!), expanded at k + 1, leaves: exact up to 9, then three terms of the
    series.
    """
    k = k if hasattr(k, "ndim") else np.float64(k)  # on a GPU functions of numbers give arrays without axes
    xp = namespace(k)
    table = xp.asarray(_STIRLING)
    n = k + 1.0
    square = n * n
    series = (1.0 / 12.0 - (1.0 / 360.0 - 1.0 / 1260.0 / square) / square) / n
    return _where(xp, k < 10.0, table[xp.clip(k, 0.0, 9.0).astype(np.int64)], series)


def _split(
    seeds: Words, is_small: Any, small: Callable[..., Floats], large: Callable[..., Floats], *params: Parameter
) -> Floats:
    """Return numbers of one of two methods by element: `small` where `is_small`, a bool or a vector of them."""
    if not getattr(is_small, "ndim", 0):
        return (small if is_small else large)(seeds, *params)
    xp = namespace(seeds)
    found = xp.empty(seeds.shape, np.float64)
    for chosen, method in ((xp.nonzero(is_small)[0], small), (xp.nonzero(~is_small)[0], large)):
        if chosen.shape[0]:
            found[chosen] = method(seeds[chosen], *[_at(p, chosen) for p in params])
    return found


def _inversion(seeds: Words, first: Parameter, ratio: Callable[..., Floats], *params: Parameter) -> Floats:
    """Return counts by searching the distribution from 0 upwards.

    Parameters
    ----------
    first
        Probability of 0.
    ratio
        ``(k, *params)``: probability of k over that of k - 1; 0 beyond the largest count.
    """
    xp = namespace(seeds)
    u = uniform(seeds)
    found = xp.zeros(seeds.shape, np.float64)
    p = first + xp.zeros(seeds.shape, np.float64)
    at = xp.nonzero(u >= p)[0]
    u, p, params = u[at] - p[at], p[at], tuple([_at(v, at) for v in params])
    k = 0
    while at.shape[0]:
        k += 1
        p = p * ratio(k, *params)
        # Where nothing is left of the distribution, rounding has left something of u.
        goes_on = (u >= p) & (p > 0.0)
        found[at[~goes_on & (p > 0.0)]] = k
        found[at[p <= 0.0]] = k - 1
        chosen = xp.nonzero(goes_on)[0]
        u, p, at = u[chosen] - p[chosen], p[chosen], at[chosen]
        params = tuple([_at(v, chosen) for v in params])
    return found


def _try_poisson(draw: Callable[[int], Words], lam: Parameter) -> tuple[Floats, Any]:
    """Try PTRS: the transformed rejection method of Hoermann (1993), for means of at least 10."""
    u, v = uniform(draw(0)) - 0.5, open_uniform(draw(1))
    xp = namespace(u)
    b = 0.931 + 2.53 * xp.sqrt(lam)
    a = -0.059 + 0.02483 * b
    us = 0.5 - abs(u)
    k = xp.floor((2.0 * a / us + b) * u + lam + 0.43)
    ends = (us >= 0.07) & (v <= 0.9277 - 3.6224 / (b - 2.0))
    open_ = xp.nonzero(~ends & (k >= 0.0) & ((us >= 0.013) | (v <= us)))[0]
    a, b, us, v, lam, k_ = (_at(x, open_) for x in (a, b, us, v, lam, k))
    left = xp.log(v * (1.1239 + 1.1328 / (b - 3.4)) / (a / (us * us) + b))
    # log of lam**k * exp(-lam) / k!
    n = k_ + 1.0
    right = k_ * xp.log(lam / n) + (n - lam) - 0.5 * xp.log(2.0 * math.pi * n) - _stirling_rest(k_)
    ends[open_] = left <= right
    return k, ends


def _poisson(seeds: Words, lam: Parameter) -> Floats:
    xp = namespace(seeds)
    _require(lam >= 0, "lam < 0 or lam contains NaNs")

    def small(seeds: Words, lam: Parameter) -> Floats:
        return _inversion(seeds, xp.exp(-lam), lambda k, lam: lam / k, lam)

    return _split(seeds, lam < 10.0, small, partial(_rejection, _try_poisson), lam)


def _where(xp: Any, condition: Any, x: Any, y: Any) -> Floats:
    """Return ``xp.where`` of a condition that may be of parameters alone, hence a Python bool: CuPy takes arrays."""
    return xp.where(xp.asarray(condition), x, y)


def _try_binomial(draw: Callable[[int], Words], n: Parameter, p: Parameter) -> tuple[Floats, Any]:
    """Try BTRS: the transformed rejection method of Hoermann (1993), for n * p of at least 10, p up to 1/2."""
    u, v = uniform(draw(0)) - 0.5, open_uniform(draw(1))
    xp = namespace(u)
    q = 1.0 - p
    spread = xp.sqrt(n * p * q)
    b = 1.15 + 2.53 * spread
    a = -0.0873 + 0.0248 * b + 0.01 * p
    us = 0.5 - abs(u)
    k = xp.floor((2.0 * a / us + b) * u + n * p + 0.5)
    ends = (us >= 0.07) & (v <= 0.92 - 4.2 / b)
    open_ = xp.nonzero(~ends & (k >= 0.0) & (k <= n))[0]
    n, p, q, spread, a, b, us, v, k_ = (_at(x, open_) for x in (n, p, q, spread, a, b, us, v, k))
    m = xp.floor((n + 1.0) * p)
    left = xp.log(v * (2.83 + 5.1 / b) * spread / (a / (us * us) + b))
    # log of the probability of k over that of the mode m
    right = (
        (m + 0.5) * xp.log((m + 1.0) / (p / q * (n - m + 1.0)))
        + (n + 1.0) * xp.log((n - m + 1.0) / (n - k_ + 1.0))
        + (k_ + 0.5) * xp.log(p / q * (n - k_ + 1.0) / (k_ + 1.0))
        + _stirling_rest(m) + _stirling_rest(n - m) - _stirling_rest(k_) - _stirling_rest(n - k_)
    )  # fmt: skip
    ends[open_] = left <= right
    return k, ends


def _binomial(seeds: Words, n: Parameter, p: Parameter) -> Floats:
    xp = namespace(seeds)
    _require(n >= 0, "n < 0")
    _require((p >= 0) & (p <= 1), "p < 0, p > 1 or p contains NaNs")
    n = n * 1.0
    is_high = p > 0.5
    rare = xp.minimum(p, 1.0 - p)

    def small(seeds: Words, n: Parameter, p: Parameter) -> Floats:
        none = xp.exp(n * xp.log1p(-p))
        return _inversion(seeds, none, lambda k, n, odds: xp.maximum(n - k + 1.0, 0.0) / k * odds, n, p / (1.0 - p))

    found = _split(seeds, n * rare < 10.0, small, partial(_rejection, _try_binomial), n, rare)
    return _where(xp, is_high, n - found, found)


def _log_factorial(k: Any) -> Floats:
    n = k + 1.0
    xp = namespace(n) if hasattr(n, "ndim") else np
    return (k + 0.5) * xp.log(n) - n + 0.5 * math.log(2.0 * math.pi) + _stirling_rest(k)


def _try_hypergeometric(
    draw: Callable[[int], Words], few: Parameter, many: Parameter, taken: Parameter
) -> tuple[Floats, Any]:
    """Try HRUA: the ratio of uniforms method of Stadlober (1989), for the rarer kind and at most half of all taken."""
    u, v = open_uniform(draw(0)), uniform(draw(1))
    xp = namespace(u)
    total = few + many
    p = few / total
    mean = taken * p
    variance = (total - taken) * taken * p * (1.0 - p) / (total - 1.0)
    c = xp.sqrt(variance + 0.5)
    h = 2.0 * math.sqrt(2.0 / math.e) * c + 3.0 - 2.0 * math.sqrt(3.0 / math.e)
    mode = xp.floor((taken + 1.0) * (few + 1.0) / (total + 2.0))

    def height(k: Any) -> Floats:
        return (
            _log_factorial(k) + _log_factorial(few - k) + _log_factorial(taken - k) + _log_factorial(many - taken + k)
        )

    x = mean + 0.5 + h * (v - 0.5) / u
    k = xp.floor(x)
    inside = (x >= 0.0) & (k <= xp.minimum(taken, few))
    k = _where(xp, inside, k, 0.0)
    return k, inside & (2.0 * xp.log(u) <= height(mode) - height(k))


def _hypergeometric(seeds: Words, good: Parameter, bad: Parameter, taken: Parameter) -> Floats:
    xp = namespace(seeds)
    for name, value in (("ngood", good), ("nbad", bad), ("nsample", taken)):
        _require(value >= 0, f"{name} < 0")
    _require(good + bad >= taken, "ngood + nbad < nsample")
    good, bad, taken = good * 1.0, bad * 1.0, taken * 1.0
    # What is left over is as good as what is taken, and the frequent kind tells the rare one.
    fewer = xp.minimum(taken, good + bad - taken)
    few, many = xp.minimum(good, bad), xp.maximum(good, bad)

    def small(seeds: Words, few: Parameter, many: Parameter, taken: Parameter) -> Floats:
        none = xp.exp(
            _log_factorial(many) - _log_factorial(many - taken)
            + _log_factorial(few + many - taken) - _log_factorial(few + many)
        )  # fmt: skip

        def ratio(k: int, few: Parameter, many: Parameter, taken: Parameter) -> Floats:
            return xp.maximum(few - k + 1.0, 0.0) * xp.maximum(taken - k + 1.0, 0.0) / k / (many - taken + k)

        return _inversion(seeds, none, ratio, few, many, taken)

    is_small = fewer * few / xp.maximum(good + bad, 1.0) < 10.0
    found = _split(seeds, is_small, small, partial(_rejection, _try_hypergeometric), few, many, fewer)
    found = _where(xp, good > bad, fewer - found, found)
    return _where(xp, fewer < taken, good - found, found)


def _logseries(seeds: Words, p: Parameter) -> Floats:
    """Return numbers by LK: Kemp's method (1981) for the logarithmic distribution."""
    xp = namespace(seeds)
    _require((p >= 0) & (p < 1), "p < 0, p >= 1 or p contains NaNs")
    v = open_uniform(word(seeds, 0))
    q = -xp.expm1(xp.log1p(-p) * open_uniform(word(seeds, 1)))
    k = _where(xp, v <= q * q, xp.floor(1.0 + xp.log(v) / xp.log(q)), _where(xp, v >= q, 1.0, 2.0))
    return _where(xp, v >= p, 1.0, xp.maximum(k, 1.0))


def _try_zipf(draw: Callable[[int], Words], a: Parameter) -> tuple[Floats, Any]:
    """Try the method of Devroye (1986), X.6.1, with numbers above `2**63` left out of the first draw."""
    u, v = open_uniform(draw(0)), uniform(draw(1))
    xp = namespace(u)
    b = a - 1.0
    least = xp.exp(-63.0 * math.log(2.0) * b)
    k = xp.floor(xp.exp(-xp.log(u + (1.0 - u) * least) / b))
    t = xp.exp(b * xp.log1p(1.0 / k))
    top = xp.exp(math.log(2.0) * b)
    return k, (k < 2.0**63) & (v * k * (t - 1.0) / (top - 1.0) <= t / top)


def _zipf(seeds: Words, a: Parameter) -> Floats:
    _require(a > 1, "a <= 1 or a contains NaNs")
    # Of powers beyond 1000 all numbers but 1 are too rare to be seen.
    return _rejection(_try_zipf, seeds, namespace(seeds).minimum(a, 1000.0))


# -------------------------------------------------------------------------------------------- angles


def _try_vonmises(draw: Callable[[int], Words], s: Parameter, kappa: Parameter) -> tuple[Floats, Any]:
    """Try the method of Best and Fisher (1979)."""
    u = uniform(draw(0))
    xp = namespace(u)
    z = xp.cos(math.pi * u)
    w = (1.0 + s * z) / (s + z)
    y = kappa * (s - w)
    v = open_uniform(draw(1))
    ends = (y * (2.0 - y) - v >= 0.0) | (xp.log(y / v) + 1.0 - y >= 0.0)
    angle = xp.arccos(xp.clip(w, -1.0, 1.0))
    return _where(xp, uniform(draw(2)) < 0.5, -angle, angle), ends


def _vonmises(seeds: Words, kappa: Parameter) -> Floats:
    """Return angles around 0; of no concentration on the whole circle, of a very high one normal."""
    xp = namespace(seeds)
    _require((kappa >= 0) | (kappa != kappa), "kappa < 0")
    k = xp.clip(kappa, 1e-8, 1e6)
    # s = (1 + r**2) / (2 r) in Best and Fisher's notation; the series where that cancels
    tau = 1.0 + xp.sqrt(1.0 + 4.0 * k * k)
    rho = (tau - xp.sqrt(2.0 * tau)) / (2.0 * k)
    s = _where(xp, k < 1e-5, 1.0 / k + k, (1.0 + rho * rho) / (2.0 * _where(xp, k < 1e-5, 1.0, rho)))
    s = s if getattr(kappa, "ndim", 0) else float(s)
    found = _rejection(_try_vonmises, seeds, s, k)
    flat = math.pi * (2.0 * uniform(word(seeds, -1)) - 1.0)
    narrow = normal(word(seeds, -2)) / xp.sqrt(xp.maximum(kappa, 1.0))
    return _where(xp, kappa < 1e-8, flat, _where(xp, kappa > 1e6, narrow, found))


# ------------------------------------------------------------------------------------------ integers


def _integers(seeds: Words, low: Any, last: Any) -> Words:
    """Return words from `low` to `last`, both included, modulo ``2**64``: the upper half of the product word * count.

    Below 2**64 numbers of `count` that does not divide 2**64, some are drawn once too often: no one will see it.
    """
    xp = namespace(seeds)
    _require(low <= last, "low >= high")
    low, last = (x.astype(np.uint64) if getattr(x, "ndim", 0) else np.uint64(int(x) % 2**64) for x in (low, last))
    with np.errstate(over="ignore"):
        count = last - low + np.uint64(1)
        half, mask = np.uint64(32), np.uint64(2**32 - 1)
        c, d = count >> half, count & mask
        if getattr(c, "ndim", 0) or c:
            a, b = seeds >> half, seeds & mask
            middle = a * d + (b * d >> half)
            other = b * c + (middle & mask)
            product = a * c + (middle >> half) + (other >> half)
        elif not d:
            return low + seeds
        else:  # what most ask for: in as few passes, and as little memory, as there can be
            product, rest = seeds >> half, seeds & mask
            product *= d
            rest *= d
            rest >>= half
            product += rest
            product >>= half
            product += low
            return product
        return low + _where(xp, count == 0, seeds, product)


# ------------------------------------------------------------------------------------------- vectors


def _multinomial(xp: Any, words: Words, n: Any, weights: Any, *, params: Any) -> Any:
    """Return counts along the last axis, one category after the other: binomial among the draws that are left."""
    rest = 1.0

    def one(j: int, seeds: Words, left: Floats) -> Floats:
        nonlocal rest
        p = weights[..., j].reshape(-1) / rest
        rest = rest - weights[..., j].reshape(-1)
        return _binomial(seeds, left, xp.clip(_where(xp, p == p, p, 0.0), 0.0, 1.0))

    return _in_turn(xp, words, n, weights.shape[-1], one)


def _multivariate_hypergeometric(xp: Any, words: Words, n: Any, colors: Any, *, params: Any) -> Any:
    """Return counts along the last axis, one colour after the other among the draws that are left."""
    rest = colors.sum(axis=-1).reshape(-1) * 1.0

    def one(j: int, seeds: Words, left: Floats) -> Floats:
        nonlocal rest
        here = colors[..., j].reshape(-1) * 1.0
        rest = rest - here
        return _hypergeometric(seeds, here, rest, left)

    return _in_turn(xp, words, n, colors.shape[-1], one)


def _in_turn(xp: Any, words: Words, n: Any, count: int, one: Callable[[int, Words, Floats], Floats]) -> Any:
    found = xp.empty((*words.shape, count), dtype=np.int64)
    seeds, left = words.reshape(-1), n.reshape(-1) * 1.0
    with np.errstate(all="ignore"):
        for j in range(count - 1):
            drawn = one(j, word(seeds, j), left)
            found[..., j] = drawn.reshape(words.shape)
            left = left - drawn
    if count:
        found[..., count - 1] = left.reshape(words.shape)
    return found


# --------------------------------------------------------------------------------------------- table


def _sampler(sample: Callable[..., Any]) -> Callable[[tuple[Any, ...], DType], Callable[..., Any]]:
    """Return a row of `elementwise`'s table from a sampler of vectors."""

    def make(_params: tuple[Any, ...], dtype: DType) -> Callable[..., Any]:
        def call(words: Words, *operands: Any, out: Any = None) -> Any:
            shape = words.shape
            xp = namespace(words)
            given = []
            for x in operands:
                has_axes = bool(getattr(x, "ndim", 0))
                given.append(xp.broadcast_to(x, shape).reshape(-1) if has_axes else x[()] if hasattr(x, "ndim") else x)
            with np.errstate(all="ignore"):
                values = sample(xp.asarray(words).reshape(-1), *given).reshape(shape)
                if out is None:
                    return values.astype(dtype)
                out[...] = values
            return out

        return call

    return make


#: By name of the distribution: ``(words, *parameters) -> numbers``, vectors.
SAMPLERS: dict[str, Callable[..., Any]] = {
    "binomial": _binomial,
    "gamma": _gamma,
    "hypergeometric": _hypergeometric,
    "integers": _integers,
    "log_gamma": _log_gamma,
    "logseries": _logseries,
    "poisson": _poisson,
    "vonmises": _vonmises,
    "zipf": _zipf,
}
#: Names of operations, as in `elementwise`: ``make(params, dtype) -> call(words, *parameters, out=None)``.
MAPS: dict[str, Callable[[tuple[Any, ...], DType], Callable[..., Any]]] = {
    f"random_{name}": _sampler(sample) for name, sample in SAMPLERS.items()
}
#: As `tables.BLOCK`.
BLOCK: dict[str, Callable[..., Any]] = {
    "random_multinomial": _multinomial,
    "random_multivariate_hypergeometric": _multivariate_hypergeometric,
}
