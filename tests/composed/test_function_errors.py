"""numpy's errors of the functions that are compositions: raised at the call, of the same class."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distarray as dx

V = np.array([3.0, -1.0, 2.0, 7.0])
M = np.arange(12.0).reshape(3, 4)
NANS = np.full((2, 3), np.nan)

CALLS: dict[str, Callable[..., Any]] = {
    "apply_along_axis, empty": lambda m: np.apply_along_axis(np.sum, 0, m[:, :0]),
    "apply_along_axis, axis": lambda m: np.apply_along_axis(np.sum, 2, m),
    "apply_over_axes, function": lambda m: np.apply_over_axes(lambda x, axis: x[0, 0] + 0, m, [0]),
    "bincount, negative": lambda m: np.bincount(m[0].astype(int) - 1),
    "bincount, floats": lambda m: np.bincount(m[0]),
    "bincount, weights": lambda m: np.bincount(m[0].astype(int), m[0, :2]),
    "block, depths": lambda m: np.block([[m], m]),
    "block, empty": lambda m: np.block([[m], []]),
    "convolve, matrix": lambda m: np.convolve(m, m),
    "convolve, empty": lambda m: np.convolve(m[0], m[0, :0]),
    "cov, axes": lambda m: np.cov(m[None]),
    "cov, weights": lambda m: np.cov(m, aweights=[1.0, 2.0]),
    "cov, negative": lambda m: np.cov(m, fweights=[1, 2, -3, 4]),
    "cov, fractions": lambda m: np.cov(m, fweights=[1, 2.5, 3, 4]),
    "cross, extents": lambda m: np.cross(m, m),
    "diag_indices_from": lambda m: np.diag_indices_from(m),
    "digitize": lambda m: np.digitize(m, [1, 5, 2]),
    "geomspace": lambda m: np.geomspace(m, 3.0, 4),
    "gradient, edges": lambda m: np.gradient(m[:, :2], axis=1, edge_order=2),
    "gradient, distances": lambda m: np.gradient(m, [1.0, 2.0], axis=1),
    "histogram, none": lambda m: np.histogram(m, 0),
    "histogram, falling": lambda m: np.histogram(m, [3, 1]),
    "histogram, range": lambda m: np.histogram(m, range=(3, 1)),
    "histogram, estimator": lambda m: np.histogram(m, "good"),
    "histogram, estimator, weights": lambda m: np.histogram(m, "fd", weights=m),
    "histogram, nan": lambda m: np.histogram(m + np.nan),
    "histogram2d": lambda m: np.histogram2d(m[0], m[0, :2]),
    "histogramdd, bins": lambda m: np.histogramdd(m, [2, 3]),
    "interp": lambda m: np.interp(m, [1, 2], [3]),
    "interp, period": lambda m: np.interp(m, [1, 2], [3, 4], period=0),
    "ix_": lambda m: np.ix_(m),
    "linspace": lambda m: np.linspace(m, 3.0, -1),
    "nanargmax": lambda m: np.nanargmax(np.where(m > 3, m, np.nan), axis=1),
    "packbits": lambda m: np.packbits(m),
    "pad, no axis": lambda m: np.pad(m[0, 0, ...], -1),
    "piecewise": lambda m: np.piecewise(m, [m > 3], [1, 2, 3]),
    "poly": lambda m: np.poly(m),
    "polyder": lambda m: np.polyder(m[0], -1),
    "polyfit, degree": lambda m: np.polyfit(m[0], m[1], -1),
    "polyfit, extents": lambda m: np.polyfit(m[0], m[1, :2], 1),
    "polyint": lambda m: np.polyint(m[0], 2, [1, 2, 3][:0]),
    "put_along_axis": lambda m: np.put_along_axis(m, np.array([[9]]), 0, 1),
    "ravel_multi_index": lambda m: np.ravel_multi_index((m.astype(int), m.astype(int)), (3, 4)),
    "ravel_multi_index, mode": lambda m: np.ravel_multi_index((m.astype(int), m.astype(int)), (3, 4), "some"),
    "roots": lambda m: np.roots(m),
    "tril_indices_from": lambda m: np.tril_indices_from(m[0]),
    "unpackbits": lambda m: np.unpackbits(m),
    "unpackbits, count": lambda m: np.unpackbits(m.astype(np.uint8), count=-200),
    "unwrap, unsigned": lambda m: np.unwrap(m.astype(np.uint8), period=4),
    "unravel_index": lambda m: np.unravel_index(m.astype(int), (2, 3)),
}


@pytest.mark.parametrize("name", CALLS)
def test_error_is_numpys(name: str) -> None:
    with pytest.raises(Exception) as expected:  # of numpy: whatever it is
        CALLS[name](M.copy())
    with pytest.raises(expected.type):
        CALLS[name](dx.asarray(M))


def test_function_that_asks_for_too_much_says_so() -> None:
    with pytest.raises(dx.NotSupportedError, match=r"bins='stone'.*bins='auto'"):
        np.histogram(dx.asarray(M), "stone")


def test_unknown_modes_are_errors_of_the_newest_numpy() -> None:
    with pytest.raises(ValueError, match="mode='some' must be one of 'valid', 'same', 'full', 0, 1, 2"):
        dx.convolve(V, V, "some")
    with pytest.raises(ValueError, match="unexpected character"):
        dx.trim_zeros(V, "x")


@pytest.mark.parametrize(
    ("name", "args"),
    [
        *[(name, (3,)) for name in ("hamming", "hanning", "bartlett", "blackman", "identity", "ones", "fft.fftfreq")],
        *[(name, (1, 2)) for name in ("kaiser", "geomspace", "logspace", "linspace", "eye")],
    ],
)
def test_what_nobody_asked_for_is_refused_by_the_function_that_was_called(name: str, args: tuple[Any, ...]) -> None:
    function = operator.attrgetter(name)(dx)
    assert "team" in inspect.signature(function).parameters
    with pytest.raises(TypeError, match=name.rpartition(".")[2]):
        function(*args, nonsense=1)


@pytest.mark.parametrize("name", ["dot", "inner", "vdot", "matmul", "tensordot"])
def test_products_of_time_spans_are_refused_in_words(name: str) -> None:
    spans = dx.asarray(np.array([1, 2], "m8[s]"))
    for other in (spans, dx.asarray([1, 2])):
        with pytest.raises(TypeError, match=r"products of timedelta64\[s\] and .*astype"):
            getattr(dx, name)(spans, other, *([1] if name == "tensordot" else []))


def test_array_that_must_be_finite_is_computed() -> None:
    with pytest.raises(ValueError, match="array must not contain infs or NaNs"):
        dx.asarray_chkfinite(NANS)
    assert dx.asarray_chkfinite(V).shape == V.shape
