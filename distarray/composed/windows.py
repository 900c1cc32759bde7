"""Window functions of numpy, made where they lie: weights of the samples of a signal, that fall towards both ends."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Unpack

import numpy as np

from distarray.arguments import number
from distarray.array.array import DistArray
from distarray.composed.creation import arange, empty, ones
from distarray.composed.placing import WhereAndLayout, spells_where
from distarray.composed.views import as_distarray, without_number
from distarray.ops import elementwise, special


def _window(M: float, shape: Callable[[DistArray, float], Any], where: WhereAndLayout) -> DistArray:
    """Return the window whose weights `shape` gives for the odd or even numbers from ``1 - M`` to ``M - 1``, and ``M -
    1``.
    """
    if number(M, "M", real=True) < 1:
        return empty((0,), **where)
    if M == 1:
        return ones((1,), **where)
    return shape(arange(1.0 - M, M, 2.0, **where), M - 1.0)


@spells_where
def bartlett(M: float, **where: Unpack[WhereAndLayout]) -> DistArray:
    """Return the triangular window of `M` samples, zero at both ends."""
    return _window(M, lambda n, last: 1 - abs(n) / last, where)


@spells_where
def blackman(M: float, **where: Unpack[WhereAndLayout]) -> DistArray:
    """Return Blackman's window of `M` samples: three cosines."""

    def shape(n: DistArray, last: float) -> Any:
        once, twice = elementwise.cos(math.pi * n / last), elementwise.cos(2.0 * math.pi * n / last)
        return 0.42 + 0.5 * once + 0.08 * twice

    return _window(M, shape, where)


@spells_where
def hamming(M: float, **where: Unpack[WhereAndLayout]) -> DistArray:
    """Return Hamming's window of `M` samples: a raised cosine."""
    return _window(M, lambda n, last: 0.54 + 0.46 * elementwise.cos(math.pi * n / last), where)


@spells_where
def hanning(M: float, **where: Unpack[WhereAndLayout]) -> DistArray:
    """Return Hann's window of `M` samples: a raised cosine, zero at both ends."""
    return _window(M, lambda n, last: 0.5 + 0.5 * elementwise.cos(math.pi * n / last), where)


@spells_where
def kaiser(M: float, beta: float, **where: Unpack[WhereAndLayout]) -> DistArray:
    """Return Kaiser's window of `M` samples; the larger `beta` is, the narrower it is."""

    M, beta = float(number(M, "M", real=True)), float(beta)
    if M == 1.0:
        return ones((1,), **where)
    half = (M - 1.0) / 2.0
    n = arange(0.0, M, **where)  # one more than of other windows where M is no whole number, as numpy's
    return i0(beta * elementwise.sqrt(1 - ((n - half) / half) ** 2.0)) / float(np.i0(beta))


def i0(x: Any) -> DistArray:
    """Return the modified Bessel function of the first kind and order 0."""
    x = as_distarray(x)
    if x.dtype.kind == "c":
        raise TypeError("i0 not supported for complex values")
    if x.dtype.kind != "f":
        x = x.astype(np.float64)
    return without_number(special.i0(x).astype(x.dtype, copy=False))
