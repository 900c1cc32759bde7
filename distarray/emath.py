"""Functions of ``numpy.emath``: real numbers outside of a function's domain have complex results.

Whether there are any decides the dtype of the result, so they are looked for at the call: one reduction is computed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from distarray.array.array import DistArray
from distarray.composed.views import as_distarray
from distarray.expr.side_by_side import side_by_side
from distarray.ops import elementwise

__all__ = ["arccos", "arcsin", "arctanh", "log", "log10", "log2", "logn", "power", "sqrt"]

#: Types whose complex counterpart is of single precision.
_SINGLE = (np.single, np.byte, np.short, np.ubyte, np.ushort)


def _widened(x: Any, is_outside: Any) -> DistArray:
    """Return `x`, complex if elements are outside of the domain."""
    array = as_distarray(x)
    if array.dtype.kind == "c" or not bool(is_outside(array).any()):
        return array
    wide: DistArray = array.astype(np.csingle if issubclass(array.dtype.type, _SINGLE) else np.cdouble)
    return wide


def _not_negative(x: Any) -> DistArray:
    return _widened(x, lambda array: array < 0)


def _within_one(x: Any) -> DistArray:
    return _widened(x, lambda array: abs(array) > 1)


def sqrt(x: Any) -> DistArray:
    """Return the square root, complex where there are negative numbers."""
    return elementwise.sqrt(_not_negative(x))  # type: ignore[no-any-return]


def log(x: Any) -> DistArray:
    """Return the natural logarithm, complex where there are negative numbers."""
    return elementwise.log(_not_negative(x))  # type: ignore[no-any-return]


def log2(x: Any) -> DistArray:
    """Return the logarithm to base 2, complex where there are negative numbers."""
    return elementwise.log2(_not_negative(x))  # type: ignore[no-any-return]


def log10(x: Any) -> DistArray:
    """Return the logarithm to base 10, complex where there are negative numbers."""
    return elementwise.log10(_not_negative(x))  # type: ignore[no-any-return]


@side_by_side
def logn(n: Any, x: Any) -> DistArray:
    """Return the logarithm of `x` to base `n`, complex where there are negative numbers."""
    return elementwise.log(_not_negative(x)) / elementwise.log(_not_negative(n))  # type: ignore[no-any-return]


@side_by_side
def power(x: Any, p: Any) -> DistArray:
    """Return `x` to the power of `p`, complex where `x` is negative, and floating where `p` is."""
    exponent = as_distarray(p)
    if exponent.dtype.kind in "iu" and bool((exponent < 0).any()):
        exponent = exponent * 1.0
    return elementwise.pow(_not_negative(x), exponent)  # type: ignore[no-any-return]


def arccos(x: Any) -> DistArray:
    """Return the inverse cosine, complex where there are numbers beyond one."""
    return elementwise.acos(_within_one(x))  # type: ignore[no-any-return]


def arcsin(x: Any) -> DistArray:
    """Return the inverse sine, complex where there are numbers beyond one."""
    return elementwise.asin(_within_one(x))  # type: ignore[no-any-return]


def arctanh(x: Any) -> DistArray:
    """Return the inverse hyperbolic tangent, complex where there are numbers beyond one."""
    return elementwise.atanh(_within_one(x))  # type: ignore[no-any-return]
