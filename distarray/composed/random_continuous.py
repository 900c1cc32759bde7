"""Continuous distributions: functions of uniform, normal and gamma numbers, with numpy's parameters.

Where the inverse of the distribution function is known, it is taken of uniform numbers; where numbers of another
distribution become the wanted ones, that is done. All of it is elementwise, so it is one pass over memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Unpack

import numpy as np

from distarray.array.array import DistArray
from distarray.array.out import into
from distarray.composed.placing import Where
from distarray.composed.random_parameters import Parameter, drawn_shape, known, legal, parameter
from distarray.composed.random_streams import RandomStreams, size_and_dtype
from distarray.composed.views import as_distarray
from distarray.errors import warn_user
from distarray.ops import elementwise, linalg, reductions
from distarray.ops.random import RANDOM_NORMAL, RANDOM_UNIFORM
from distarray.types import DTypeLike

_LOWEST = float(np.finfo(np.float64).min)


class Continuous(RandomStreams):
    """Continuous gives a generator the numbers of continuous distributions."""

    # ------------------------------------------------------------------------------------------- uniform

    def random(
        self, size: Any = None, dtype: DTypeLike = np.float64, out: Any = None, **where: Unpack[Where]
    ) -> DistArray:
        """Return uniform numbers in [0, 1), of double or single precision."""
        size, wanted = size_and_dtype(size, dtype, out)
        return into(out, self._draw(RANDOM_UNIFORM, drawn_shape(size), wanted, (), where))

    def uniform(
        self, low: Parameter = 0.0, high: Parameter = 1.0, size: Any = None, **where: Unpack[Where]
    ) -> DistArray:
        """Return uniform numbers in ``[low, high)``."""
        low, high = parameter("low", low), parameter("high", high)
        values = known(high, low)
        if values is not None:
            with np.errstate(all="ignore"):
                span = np.subtract(*values)
            if not np.all(np.isfinite(span)):
                raise OverflowError("high - low range exceeds valid bounds")
            if np.any(np.signbit(span)):
                raise ValueError("high - low < 0")
        span = high - low
        if values is None:
            span = legal(span, span >= 0)
        return low + span * self._uniform(size, where, low, high)

    def triangular(
        self, left: Parameter, mode: Parameter, right: Parameter, size: Any = None, **where: Unpack[Where]
    ) -> DistArray:
        """Return numbers of the density that rises from `left` to `mode` and falls to `right`."""
        left, mode, right = parameter("left", left), parameter("mode", mode), parameter("right", right)
        if (values := known(left, mode, right)) is not None:
            least, most_likely, largest = values
            for is_bad, text in (
                (np.greater(least, most_likely), "left > mode"),
                (np.greater(most_likely, largest), "mode > right"),
                (np.equal(least, largest), "left == right"),
            ):
                if np.any(is_bad):
                    raise ValueError(text)
        u = self._uniform(size, where, left, mode, right)
        base = right - left
        if values is None:
            base = legal(base, (left <= mode) & (mode <= right) & (base > 0))
        rising = left + elementwise.sqrt(u * (base * (mode - left)))
        falling = right - elementwise.sqrt((1.0 - u) * (base * (right - mode)))
        return elementwise.where(u * base <= mode - left, rising, falling)

    # -------------------------------------------------------------------------------------------- normal

    def standard_normal(
        self, size: Any = None, dtype: DTypeLike = np.float64, out: Any = None, **where: Unpack[Where]
    ) -> DistArray:
        """Return normal numbers of mean 0 and deviation 1."""
        size, wanted = size_and_dtype(size, dtype, out)
        return into(out, self._draw(RANDOM_NORMAL, drawn_shape(size), wanted, (), where))

    def normal(
        self, loc: Parameter = 0.0, scale: Parameter = 1.0, size: Any = None, **where: Unpack[Where]
    ) -> DistArray:
        """Return normal numbers of mean `loc` and deviation `scale`."""
        loc, scale = parameter("loc", loc), parameter("scale", scale, "non-negative", of_formula=True)
        return loc + scale * self._normal(size, where, loc, scale)

    def lognormal(
        self, mean: Parameter = 0.0, sigma: Parameter = 1.0, size: Any = None, **where: Unpack[Where]
    ) -> DistArray:
        """Return the exponential of normal numbers."""
        mean, sigma = parameter("mean", mean), parameter("sigma", sigma, "non-negative", of_formula=True)
        return elementwise.exp(mean + sigma * self._normal(size, where, mean, sigma))

    def wald(self, mean: Parameter, scale: Parameter, size: Any = None, **where: Unpack[Where]) -> DistArray:
        """Return inverse Gaussian numbers (Michael, Schucany and Haas 1976)."""
        mean, scale = (
            parameter("mean", mean, "positive", of_formula=True),
            parameter("scale", scale, "positive", of_formula=True),
        )
        y = mean * elementwise.square(self._normal(size, where, mean, scale))
        u = self._uniform(size, where, mean, scale)
        # The larger root first: the smaller one would be a difference of numbers that are almost equal.
        larger = mean + mean / (2.0 * scale) * (y + elementwise.sqrt(4.0 * scale * y + y * y))
        smaller = mean * mean / larger
        return elementwise.where(u * (mean + smaller) <= mean, smaller, larger)

    def multivariate_normal(
        self,
        mean: Any,
        cov: Any,
        size: Any = None,
        check_valid: str = "warn",
        tol: float = 1e-8,
        *,
        method: str = "svd",
        **where: Unpack[Where],
    ) -> DistArray:
        """Return normal vectors along the last axis.

        Parameters
        ----------
        mean, cov
            Of shapes ``(n,)`` and ``(n, n)``; `cov` is factorised whole.
        size
            Shape of what holds the vectors; the result has one axis more.
        check_valid
            What to do about a `cov` of the host that is not positive semidefinite: ``warn``, ``raise`` or ``ignore``.
            One that is a DistArray is not looked at.
        method
            ``svd``, ``eigh`` or ``cholesky``.
        """
        if method not in ("svd", "eigh", "cholesky"):
            raise ValueError("method must be one of {'eigh', 'svd', 'cholesky'}")
        if check_valid not in ("warn", "raise", "ignore"):
            raise ValueError("check_valid must equal 'warn', 'raise', or 'ignore'")
        mean, cov = parameter("mean", mean), parameter("cov", cov)
        if np.ndim(mean) != 1:
            raise ValueError("mean must be 1 dimensional")
        if np.ndim(cov) != 2 or cov.shape[0] != cov.shape[1]:
            raise ValueError("cov must be 2 dimensional and square")
        if mean.shape[0] != cov.shape[0]:
            raise ValueError("mean and cov must have same length")
        if not isinstance(cov, DistArray):
            _check_covariance(cov, check_valid, tol)
        shape = (*drawn_shape(() if size is None else size), mean.shape[0])
        z = self._draw(RANDOM_NORMAL, shape, np.float64, (mean, cov), where)
        matrix = cov if isinstance(cov, DistArray) else as_distarray(cov).to_team(z.team).to_device(z.device)
        return mean + z @ _root(matrix, method)

    # --------------------------------------------------------------------------------------- exponential

    def standard_exponential(
        self,
        size: Any = None,
        dtype: DTypeLike = np.float64,
        method: str = "zig",
        out: Any = None,
        **where: Unpack[Where],
    ) -> DistArray:
        """Return exponential numbers of mean 1; by inversion, whatever `method` says."""
        size, wanted = size_and_dtype(size, dtype, out)
        u = self._draw(RANDOM_UNIFORM, drawn_shape(size), wanted, (), where)
        return into(out, -elementwise.log1p(-u))

    def exponential(self, scale: Parameter = 1.0, size: Any = None, **where: Unpack[Where]) -> DistArray:
        """Return exponential numbers of mean `scale`."""
        scale = parameter("scale", scale, "non-negative", of_formula=True)
        return scale * self._exponential(size, where, scale)

    def laplace(
        self, loc: Parameter = 0.0, scale: Parameter = 1.0, size: Any = None, **where: Unpack[Where]
    ) -> DistArray:
        """Return numbers of the double exponential distribution, by inversion."""
        loc, scale = parameter("loc", loc), parameter("scale", scale, "non-negative", of_formula=True)
        u = self._open_uniform(size, where, loc, scale)
        size_of = elementwise.log(2.0 * elementwise.minimum(u, 1.0 - u))
        return loc + scale * elementwise.where(u < 0.5, size_of, -size_of)

    def logistic(
        self, loc: Parameter = 0.0, scale: Parameter = 1.0, size: Any = None, **where: Unpack[Where]
    ) -> DistArray:
        """Draw logistic numbers, by inversion."""
        loc, scale = parameter("loc", loc), parameter("scale", scale, "non-negative", of_formula=True)
        u = self._open_uniform(size, where, loc, scale)
        return loc + scale * (elementwise.log(u) - elementwise.log1p(-u))

    def gumbel(
        self, loc: Parameter = 0.0, scale: Parameter = 1.0, size: Any = None, **where: Unpack[Where]
    ) -> DistArray:
        """Return numbers of the extreme value distribution of the first type, by inversion."""
        loc, scale = parameter("loc", loc), parameter("scale", scale, "non-negative", of_formula=True)
        u = self._open_uniform(size, where, loc, scale)
        return loc - scale * elementwise.log(-elementwise.log(u))

    def rayleigh(self, scale: Parameter = 1.0, size: Any = None, **where: Unpack[Where]) -> DistArray:
        """Return the lengths of normal vectors in the plane."""
        scale = parameter("scale", scale, "non-negative", of_formula=True)
        return scale * elementwise.sqrt(2.0 * self._exponential(size, where, scale))

    def weibull(self, a: Parameter, size: Any = None, **where: Unpack[Where]) -> DistArray:
        """Return Weibull numbers of shape `a` and scale 1."""
        a = parameter("a", a, "non-negative", of_formula=True)
        drawn = self._exponential(size, where, a)
        # nan is to show
        return elementwise.where(~np.less_equal(a, 0.0), elementwise.pow(drawn, _reciprocal(a)), 0.0)

    def pareto(self, a: Parameter, size: Any = None, **where: Unpack[Where]) -> DistArray:
        """Return numbers of the Pareto distribution of the second kind, which begins at 0."""
        a = parameter("a", a, "positive", of_formula=True)
        return elementwise.expm1(self._exponential(size, where, a) / a)

    def power(self, a: Parameter, size: Any = None, **where: Unpack[Where]) -> DistArray:
        """Return numbers in [0, 1] whose density is a power: the largest of `a` uniform ones."""
        a = parameter("a", a, "positive", of_formula=True)
        # 1 - u is never 0
        return elementwise.exp(elementwise.log1p(-self._uniform(size, where, a)) / a)

    def standard_cauchy(self, size: Any = None, **where: Unpack[Where]) -> DistArray:
        """Return numbers of the Cauchy distribution around 0, by inversion."""
        return elementwise.tan(math.pi * (self._uniform(size, where) - 0.5))

    # --------------------------------------------------------------------------------------------- gamma

    def standard_gamma(
        self,
        shape: Parameter,
        size: Any = None,
        dtype: DTypeLike = np.float64,
        out: Any = None,
        **where: Unpack[Where],
    ) -> DistArray:
        """Return gamma numbers of scale 1."""
        shape = parameter("shape", shape, "non-negative")
        size, wanted = size_and_dtype(size, dtype, out)
        return into(out, self._sampled("gamma", wanted, size, where, shape))

    def gamma(self, shape: Parameter, scale: Parameter = 1.0, size: Any = None, **where: Unpack[Where]) -> DistArray:
        """Draw gamma numbers."""
        shape, scale = (
            parameter("shape", shape, "non-negative"),
            parameter("scale", scale, "non-negative", of_formula=True),
        )
        return scale * self._gamma(shape, size, where, scale)

    def _gamma(self, shape: Parameter, size: Any, where: Where, *others: Parameter) -> DistArray:
        return self._sampled("gamma", np.float64, drawn_shape(size, shape, *others), where, shape)

    def chisquare(self, df: Parameter, size: Any = None, **where: Unpack[Where]) -> DistArray:
        """Return the sums of squares of `df` normal numbers."""
        df = parameter("df", df, "positive")
        return 2.0 * self._gamma(df / 2.0, size, where)

    def noncentral_chisquare(
        self, df: Parameter, nonc: Parameter, size: Any = None, **where: Unpack[Where]
    ) -> DistArray:
        """Return the sums of squares of `df` normal numbers, whose means have squares that sum to `nonc`."""
        df, nonc = parameter("df", df, "positive"), parameter("nonc", nonc, "non-negative")
        # A mixture of central ones, whose degrees of freedom are a Poisson number.
        more = self._sampled("poisson", np.float64, drawn_shape(size, df, nonc), where, nonc / 2.0)
        return 2.0 * self._gamma(df / 2.0 + more, size, where)

    def f(self, dfnum: Parameter, dfden: Parameter, size: Any = None, **where: Unpack[Where]) -> DistArray:
        """Return the ratios of two mean squares of `dfnum` and `dfden` normal numbers."""
        dfnum, dfden = parameter("dfnum", dfnum, "positive"), parameter("dfden", dfden, "positive")
        above = self._gamma(dfnum / 2.0, size, where, dfden)
        return (above / dfnum) / (self._gamma(dfden / 2.0, size, where, dfnum) / dfden)

    def noncentral_f(
        self, dfnum: Parameter, dfden: Parameter, nonc: Parameter, size: Any = None, **where: Unpack[Where]
    ) -> DistArray:
        """Return numbers like those of `f`, with a numerator that is `noncentral_chisquare`."""
        dfnum, dfden = parameter("dfnum", dfnum, "positive"), parameter("dfden", dfden, "positive")
        shape = drawn_shape(size, dfnum, dfden, parameter("nonc", nonc, "non-negative"))
        above = self.noncentral_chisquare(dfnum, nonc, shape, **where)
        return (above / dfnum) / (self.chisquare(dfden, shape, **where) / dfden)

    def standard_t(self, df: Parameter, size: Any = None, **where: Unpack[Where]) -> DistArray:
        """Return numbers of Student's t distribution: normal ones over the root of a mean square of `df` others."""
        df = parameter("df", df, "positive")
        square = self._gamma(df / 2.0, size, where) / (df / 2.0)
        return self._normal(size, where, df) / elementwise.sqrt(square)

    def beta(self, a: Parameter, b: Parameter, size: Any = None, **where: Unpack[Where]) -> DistArray:
        """Return beta numbers: the share of one gamma number in the sum of two."""
        a, b = parameter("a", a, "positive"), parameter("b", b, "positive")
        shape = drawn_shape(size, a, b)
        x = self._sampled("log_gamma", np.float64, shape, where, a)
        y = self._sampled("log_gamma", np.float64, shape, where, b)
        # Logarithms, the larger one as unit: gamma numbers of small parameters are too small for themselves.
        unit = elementwise.maximum(x, y)
        x, y = elementwise.exp(x - unit), elementwise.exp(y - unit)
        return x / (x + y)

    def dirichlet(self, alpha: Parameter, size: Any = None, **where: Unpack[Where]) -> DistArray:
        """Return vectors of shares that sum to 1, along a last axis as long as `alpha`."""
        alpha = parameter("alpha", alpha, "non-negative")
        if np.ndim(alpha) != 1:
            raise ValueError("alpha must be a one-dimensional sequence of numbers")
        shape = (*drawn_shape(() if size is None else size), alpha.shape[0])
        x = self._sampled("log_gamma", np.float64, shape, where, alpha)
        if 0 in x.shape:
            return x
        # Where all of `alpha` are 0 so are the shares, as numpy's; elsewhere the sum is at least 1.
        x = elementwise.exp(x - elementwise.maximum(reductions.max(x, axis=-1, keepdims=True), _LOWEST))
        return x / elementwise.maximum(reductions.sum(x, axis=-1, keepdims=True), 1.0)

    # ------------------------------------------------------------------------------------------ circular

    def vonmises(self, mu: Parameter, kappa: Parameter, size: Any = None, **where: Unpack[Where]) -> DistArray:
        """Return angles in [-pi, pi] around `mu`, of concentration `kappa`."""
        mu, kappa = parameter("mu", mu), parameter("kappa", kappa, "non-negative")
        angle = mu + self._sampled("vonmises", np.float64, drawn_shape(size, mu, kappa), where, kappa)
        return elementwise.remainder(angle + math.pi, 2.0 * math.pi) - math.pi


def _reciprocal(a: Parameter) -> Parameter:
    with np.errstate(divide="ignore"):
        found = np.divide(1.0, a)
    return found if isinstance(found, DistArray) or found.ndim else float(found)


def _check_covariance(cov: Any, check_valid: str, tol: float) -> None:
    if check_valid == "ignore":
        return
    _, s, vh = np.linalg.svd(cov)
    if not np.allclose(np.dot(vh.T * s, vh), cov, rtol=tol, atol=tol):
        text = "covariance is not symmetric positive-semidefinite."
        if check_valid == "raise":
            raise ValueError(text)
        warn_user(text)


def _root(cov: DistArray, method: str) -> DistArray:
    """Return a matrix r with ``r.T @ r == cov``."""
    if method == "cholesky":
        return linalg.cholesky(cov, upper=True)
    if method == "eigh":
        values, vectors = linalg.eigh(cov)
        # Rounding has made some that are 0 negative.
        scales: Callable[[Any], Any] = elementwise.sqrt
        return (vectors * scales(elementwise.maximum(values, 0.0))).T
    _, s, vh = linalg.svd(cov)
    return elementwise.sqrt(s)[:, None] * vh
