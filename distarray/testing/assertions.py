"""Comparison with numpy: values, dtype, shape and type of an array."""

from __future__ import annotations

from typing import Any

import numpy as np

from distarray.array.array import DistArray
from distarray.sharding.sharding import Sharding
from distarray.sharding.spec import format_type

__all__ = ["assert_close", "assert_equal"]


def assert_equal(
    actual: DistArray, expected: Any, *, sharding: Sharding | None = None, check_dtype: bool = True
) -> None:
    """Assert that an array is what numpy says, element for element: nan equals nan, and zeros are equal whatever their
    sign, since which of them stands first in what numpy sorts is nobody's promise.

    Shape, dtype and metadata are compared before anything is computed, so that an array that promises something else
    than it delivers is found out; then again on the values.

    Parameters
    ----------
    actual
        A DistArray.
    expected
        What numpy gives; a scalar stands for an array without axes.
    sharding
        How `actual` must lie when computed.
    check_dtype
        Whether the dtypes must be the same.

    Raises
    ------
    AssertionError
        Saying what differs.
    """
    host, found = _values(actual, expected, sharding, check_dtype)
    np.testing.assert_array_equal(found, host)


def assert_close(
    actual: DistArray,
    expected: Any,
    *,
    rtol: float = 1e-7,
    atol: float = 0.0,
    sharding: Sharding | None = None,
    check_dtype: bool = True,
) -> None:
    """Compare as `assert_equal` does, but values within rounding: the cut decides the order of floating sums."""
    host, found = _values(actual, expected, sharding, check_dtype)
    np.testing.assert_allclose(found, host, rtol=rtol, atol=atol)


def _values(actual: DistArray, expected: Any, sharding: Sharding | None, check_dtype: bool) -> tuple[Any, Any]:
    if not isinstance(actual, DistArray):
        raise AssertionError(f"expected a DistArray, got {type(actual).__name__}")
    host = np.asarray(expected)
    _check("shape", actual.shape, host.shape)
    if check_dtype:
        _check("dtype", actual.dtype, host.dtype)
    for name in ("ndim", "size", "nbytes") if check_dtype else ("ndim", "size"):
        _check(name, getattr(actual, name), getattr(host, name))
    # The notation of the type must hold whatever the array is.
    format_type(actual.shape, actual.dtype, actual._known_sharding())
    found = actual.compute()
    _check("shape of the values", found.shape, actual.shape)
    _check("dtype of the values", found.dtype, actual.dtype)
    if sharding is not None:
        _check("sharding", actual.sharding, sharding)
    return host, found


def _check(what: str, actual: Any, expected: Any) -> None:
    if actual != expected:
        raise AssertionError(f"{what} is {actual}, expected {expected}")
