"""Discrete distributions: integers, counts and bytes, with numpy's parameters."""

from __future__ import annotations

import math
from typing import Any, Unpack

import numpy as np

from distarray.arguments import count, integer, naming, shown
from distarray.array.array import DistArray
from distarray.composed.placing import Where
from distarray.composed.random_parameters import LARGEST_MEAN, Parameter, drawn_shape, known, parameter, whole_parameter
from distarray.composed.random_streams import RandomStreams
from distarray.dtypes import as_dtype
from distarray.ops import elementwise
from distarray.ops.random import RANDOM_BITS, sampled, sampled_vectors
from distarray.types import DType, DTypeLike

_INT64 = np.dtype(np.int64)
#: numpy's bound of the numbers of balls, beyond which logarithms of factorials lose too much.
_MOST_BALLS = 10**9


class Discrete(RandomStreams):
    """Discrete gives a generator the numbers of discrete distributions."""

    def integers(
        self,
        low: Any,
        high: Any = None,
        size: Any = None,
        dtype: DTypeLike = np.int64,
        endpoint: bool = False,
        **where: Unpack[Where],
    ) -> DistArray:
        """Return uniform integers from `low` up to, without, `high`, or from 0 up to `low`; with `high` if `endpoint`.

        Raises
        ------
        ValueError
            If there is no such integer, or a bound does not fit the dtype.
        """
        if high is None:
            low, high = 0, low
        wanted = as_dtype(dtype)
        if wanted.kind not in "biu":
            raise TypeError(f"Unsupported dtype {wanted!r} for integers")
        with naming(low=low, high=high):
            has_arrays = any(isinstance(b, DistArray) or np.ndim(b) for b in (low, high))
        if size is not None and 0 in drawn_shape(size):
            low = last = 0  # numpy looks at no bounds of nothing
        elif has_arrays:
            low, last = _bounds(low, high, wanted, endpoint)
        else:
            low, last = _whole(low, "low"), _whole(high, "high") - (not endpoint)
            _check_bounds(low, last, wanted)
        return self._sampled("integers", wanted, size, where, low, last)

    def bytes(self, length: int) -> bytes:
        """Return random bytes, in this process."""
        here: Where = {"team": None, "device": "cpu"}
        words = self._draw(RANDOM_BITS, (-(-count(length, "length") // 8),), np.uint64, (), here)
        drawn: bytes = np.asarray(words).astype("<u8").tobytes()
        return drawn[:length]

    # -------------------------------------------------------------------------------------------- counts

    def binomial(self, n: Parameter, p: Parameter, size: Any = None, **where: Unpack[Where]) -> DistArray:
        """Return how many of `n` trials succeed, each with probability `p`."""
        n, p = whole_parameter("n", n, "non-negative"), parameter("p", p, "in [0, 1]")
        return self._sampled("binomial", _INT64, size, where, n, p)

    def poisson(self, lam: Parameter = 1.0, size: Any = None, **where: Unpack[Where]) -> DistArray:
        """Return counts of events that are independent, `lam` of them on average."""
        return self._sampled("poisson", _INT64, size, where, parameter("lam", lam, "mean"))

    def negative_binomial(self, n: Parameter, p: Parameter, size: Any = None, **where: Unpack[Where]) -> DistArray:
        """Return failures before the `n`-th success, each with probability `p`: Poisson counts of a gamma mean."""
        n, p = parameter("n", parameter("n", n, "no nan"), "positive"), parameter("p", p, "in (0, 1]")
        if (values := known(n, p)) is not None:
            most, share = values
            if np.any((1.0 - share) / share * (most + 10.0 * np.sqrt(most)) > LARGEST_MEAN):
                raise ValueError("n too large or p too small, see Generator.negative_binomial Notes")
        shape = drawn_shape(size, n, p)
        mean = self._sampled("gamma", np.float64, shape, where, n) * ((1.0 - p) / p)
        return sampled("poisson", _INT64, self._words(shape, where, n, p), mean)

    def geometric(self, p: Parameter, size: Any = None, **where: Unpack[Where]) -> DistArray:
        """Return trials up to the first success, each with probability `p`, by inversion."""
        p = parameter("p", p, "in (0, 1]")
        u = self._uniform(size, where, p)
        with np.errstate(divide="ignore"):
            slope = np.log1p(np.negative(p))
            slope = slope if isinstance(slope, DistArray) or slope.ndim else float(slope)
            trials = elementwise.ceil(elementwise.log1p(-u) / slope)
        # The largest double below 2**63.
        return elementwise.clip(trials, 1.0, math.nextafter(2.0**63, 0)).astype(_INT64)

    def hypergeometric(
        self, ngood: Parameter, nbad: Parameter, nsample: Parameter, size: Any = None, **where: Unpack[Where]
    ) -> DistArray:
        """Return how many of `nsample` balls are good that are drawn from `ngood` good and `nbad` bad ones."""
        names = ("ngood", "nbad", "nsample")
        good, bad, taken = (whole_parameter(m, v, "non-negative") for m, v in zip(names, (ngood, nbad, nsample)))
        if (values := known(good, bad, taken)) is not None:
            if any(np.any(np.greater_equal(v, _MOST_BALLS)) for v in values[:2]):
                raise ValueError("both ngood and nbad must be less than 1000000000")
            if np.any(np.less(np.add(*values[:2]), values[2])):
                raise ValueError("ngood + nbad < nsample")
        return self._sampled("hypergeometric", _INT64, size, where, good, bad, taken)

    def logseries(self, p: Parameter, size: Any = None, **where: Unpack[Where]) -> DistArray:
        """Return numbers of the logarithmic distribution: k has a probability like ``p**k / k``."""
        return self._sampled("logseries", _INT64, size, where, parameter("p", p, "in [0, 1)"))

    def zipf(self, a: Parameter, size: Any = None, **where: Unpack[Where]) -> DistArray:
        """Return numbers of Zipf's distribution: k has a probability like ``k**-a``."""
        return self._sampled("zipf", _INT64, size, where, parameter("a", a, "above 1"))

    # ------------------------------------------------------------------------------------------- vectors

    def multinomial(self, n: Any, pvals: Any, size: Any = None, **where: Unpack[Where]) -> DistArray:
        """Return how often each category comes in `n` draws; the categories are a last axis, as long as `pvals`'s.

        The tile of a vector is whole: its counts are drawn one after the other.
        """
        n, pvals = whole_parameter("n", n, "non-negative"), parameter("pvals", pvals)
        if np.ndim(pvals) == 0 or pvals.shape[-1] == 0:
            raise ValueError(
                "pvals must have at least 1 dimension and the last dimension of pvals must be greater than 0."
            )
        if (values := known(pvals)) is not None:
            (shares,) = values
            if not np.all((shares >= 0) & (shares <= 1)):
                raise ValueError("pvals < 0, pvals > 1 or pvals contains NaNs")
            if np.any(shares[..., :-1].sum(axis=-1) > 1.0 + 1e-12):
                raise ValueError("sum(pvals[:-1]) > 1.0")
        return self._vectors("multinomial", n, pvals, size, where)

    def multivariate_hypergeometric(
        self, colors: Any, nsample: int, size: Any = None, method: str = "marginals", **where: Unpack[Where]
    ) -> DistArray:
        """Return how many balls of each colour are among `nsample` drawn; the colours are a last axis.

        The tile of a vector is whole: its counts are drawn one after the other, whatever `method` says.
        """
        if method not in ("count", "marginals"):
            raise ValueError('method must be "count" or "marginals".')
        taken = integer(nsample, "nsample")
        if taken < 0:
            raise ValueError("nsample must be nonnegative.")
        balls = parameter("colors", colors)
        is_whole = np.size(balls) == 0 or getattr(colors, "dtype", np.asarray(colors).dtype).kind in "iu"
        if np.ndim(balls) != 1 or not is_whole or not np.all(np.asarray(balls) >= 0):
            raise ValueError(
                "colors must be a one-dimensional sequence of nonnegative integers not exceeding 9223372036854775807."
            )
        total = float(balls.sum())
        if total >= _MOST_BALLS:
            raise ValueError('When method is "marginals", sum(colors) must be less than 1000000000.')
        if taken > total:
            raise ValueError("nsample > sum(colors)")
        return self._vectors("multivariate_hypergeometric", float(taken), balls, size, where)

    def _vectors(self, name: str, n: Parameter, weights: Parameter, size: Any, where: Where) -> DistArray:
        one_each = np.broadcast_to(0.0, weights.shape[:-1])  # of the shape that the vectors have, and of no size
        words = self._draw(RANDOM_BITS, drawn_shape(size, n, one_each), np.uint64, (n, weights), where)
        count = n if isinstance(n, DistArray) else np.asarray(n)
        return sampled_vectors(name, words, count, weights)


def _whole(bound: Any, name: str) -> int:
    """Return a bound as an integer; of floating-point numbers it is what stands before the point, as numpy's, of text
    the number that it says.
    """
    value = bound.item() if isinstance(bound, np.ndarray | np.floating) else bound
    if isinstance(value, str | bytes):
        with naming(**{name: bound}):
            return int(value)
    return int(value) if isinstance(value, float) else integer(value, name)


def _check_bounds(low: int, last: int, dtype: DType) -> None:
    least, most = (0, 1) if dtype.kind == "b" else (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
    if low < least:
        raise ValueError(f"low is out of bounds for {dtype.name}")
    if last > most:
        raise ValueError(f"high is out of bounds for {dtype.name}")
    if low > last:
        raise ValueError("low >= high")


def _bounds(low: Any, high: Any, dtype: DType, endpoint: bool) -> tuple[Any, Any]:
    """Return the first and the last integer of each element, as arrays of 64 bits; those of the host are checked."""
    words = np.dtype(np.uint64) if dtype == np.uint64 else _INT64
    first, last = _as_integers(low, "low"), _as_integers(high, "high")
    if not isinstance(first, DistArray) and not isinstance(last, DistArray):
        shape = np.broadcast_shapes(first.shape, last.shape)
        if 0 not in shape:
            _check_bounds(int(first.min()), int(last.max()) - (not endpoint), dtype)
        if np.any(first > last if endpoint else first >= last):
            raise ValueError("low >= high")
    if last.dtype.kind == "O" and not endpoint:
        return first.astype(words), np.asarray(last - 1, object).astype(words)  # Python's: one beyond the dtype
    last = last.astype(words)
    return first.astype(words), last if endpoint else last - words.type(1)


def _as_integers(bound: Any, name: str) -> Any:
    if isinstance(bound, DistArray) or (isinstance(bound, np.ndarray) and bound.dtype.kind in "biu"):
        array = bound
    else:
        # Lists of Python's integers beyond 63 bits would become floats.
        with naming(**{name: bound}):
            array = np.asarray(bound)
            array = array.astype(_INT64) if array.dtype.kind in "SU" else array
        array = array if array.dtype.kind in "biu" else np.asarray(bound, object)
    if array.dtype.kind == "f" and array.ndim == 0:
        array = array.astype(_INT64)  # a number, as reductions return it
    if array.dtype.kind not in "biuO":
        raise TypeError(f"{name}={shown(bound)} must be integers, not {array.dtype}")
    if array.dtype.kind == "O":
        for value in array.flat:
            integer(value, name)
    return array
