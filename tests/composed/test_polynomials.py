"""Polynomials of numpy's classes and of its package, at points of ours: numpy is the oracle."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import pytest

import distarray as dx
from distarray.testing.assertions import assert_close

X = np.linspace(-1, 1, 4)
Y = X[::-1] * 3
C = np.random.default_rng(0).standard_normal((4, 4, 4))
BASES = {"polynomial": "poly", "chebyshev": "cheb", "legendre": "leg", "laguerre": "lag", "hermite": "herm"}
BASES["hermite_e"] = "herme"


@pytest.mark.parametrize("tensor", [True, False])
@pytest.mark.parametrize("c", [C[0, 0], C[0], C, [1, 2, 3]], ids=["vector", "columns", "stack", "list"])
@pytest.mark.parametrize("points", [X, X.reshape(2, 2), X[2], X.astype("f4")], ids=["1d", "2d", "0d", "f4"])
@pytest.mark.parametrize("basis", BASES)
def test_values_pair_every_polynomial_with_every_point(basis: str, points: Any, c: Any, tensor: bool) -> None:
    if not tensor and np.ndim(points) > 1:
        points = points.reshape(4, 1)
    name = f"{BASES[basis]}val"
    expected = getattr(getattr(np.polynomial, basis), name)(points, c, tensor=tensor)
    ours = getattr(getattr(dx.polynomial, basis), name)
    made = ours(dx.asarray(points), c, tensor=tensor)
    assert isinstance(made, dx.DistArray)
    assert_close(made, expected, rtol=1e-6 if points.dtype == "f4" else 1e-12)
    assert_close(ours(dx.asarray(points), dx.asarray(c), tensor), expected, rtol=1e-6)
    np.testing.assert_array_equal(ours(points, dx.asarray(c), tensor), expected)


SEVERAL = {
    "f": C,
    "c": np.moveaxis(C, 0, 1) + 1j,
    "i": np.arange(16).reshape(4, 2, 2),
    "vector": C[0, 0],
    "columns": C[0],
}


@pytest.mark.parametrize("c", SEVERAL)
@pytest.mark.parametrize("axes", [0, 1, 2])
@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("basis", BASES)
def test_values_of_several_variables(basis: str, n: int, axes: int, c: Any) -> None:
    """There may be fewer axes of coefficients than variables, and points of any number of axes."""
    shape = (4, 1)[:axes]
    points, c = [v[: prod(shape)].reshape(shape) for v in (X, Y, X * Y)][:n], SEVERAL[c]
    for kind in ("val", "grid"):
        name = f"{BASES[basis]}{kind}{n}d"
        expected = getattr(getattr(np.polynomial, basis), name)(*points, c)
        ours = getattr(getattr(dx.polynomial, basis), name)
        for given in ([dx.asarray(p) for p in points], [*points[:-1], dx.asarray(points[-1])]):
            made = ours(*given, c)
            assert isinstance(made, dx.DistArray)
            assert_close(made, expected, rtol=1e-9)
        np.testing.assert_array_equal(ours(*points, c=dx.asarray(c)), expected)


def test_grids_of_points_are_ours_by_numpys_protocol() -> None:
    theirs = np.polynomial.polynomial.polygrid2d(dx.asarray(X), dx.asarray(Y), C)
    np.testing.assert_allclose(np.asarray(theirs), np.polynomial.polynomial.polygrid2d(X, Y, C))


def test_values_of_several_variables_are_ours_by_keyword() -> None:
    x, y = dx.asarray(X), dx.asarray(Y)
    expected = np.polynomial.polynomial.polygrid2d(X, Y, C)
    assert_close(dx.polynomial.polynomial.polygrid2d(x=x, y=y, c=C), expected, rtol=1e-12)
    with pytest.raises(ValueError, match="x, y are incompatible"):
        dx.polynomial.chebyshev.chebval2d(x, y[:2], C)
    with pytest.raises(TypeError):
        dx.polynomial.chebyshev.chebval2d(x, y, C, order=1)


@pytest.mark.parametrize("roots", [X, C[0], [1, 2]], ids=["vector", "columns", "list"])
def test_values_from_roots(roots: Any) -> None:
    expected = np.polynomial.polynomial.polyvalfromroots(Y, roots)
    assert_close(dx.polynomial.polynomial.polyvalfromroots(dx.asarray(Y), roots), expected, rtol=1e-12)
    assert_close(
        dx.polynomial.polynomial.polyvalfromroots(dx.asarray(Y), C[0], tensor=False),
        np.polynomial.polynomial.polyvalfromroots(Y, C[0], tensor=False),
        rtol=1e-12,
    )
    with pytest.raises(ValueError, match="ndim"):
        dx.polynomial.polynomial.polyvalfromroots(dx.asarray(Y), X, tensor=False)


def test_the_rest_of_the_package_is_numpys() -> None:
    assert dx.polynomial.Polynomial is np.polynomial.Polynomial
    assert dx.polynomial.legendre.leggauss is np.polynomial.legendre.leggauss
    for name in np.polynomial.__all__:
        assert hasattr(dx.polynomial, name)
    with pytest.raises(AttributeError):
        _ = dx.polynomial.nothing
    made = dx.polynomial.Chebyshev([1, 2, 3])(dx.asarray(X))
    np.testing.assert_array_equal(made, np.polynomial.Chebyshev([1, 2, 3])(X))


P = np.poly1d([1.0, 2, 3])
CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda m, p: m.polyadd(P, p),
    "sub": lambda m, p: m.polysub(p, P),
    "mul": lambda m, p: m.polymul(a1=P, a2=p),
    "div": lambda m, p: m.polydiv(p, P),
    "der": lambda m, _: m.polyder(P),
    "int": lambda m, p: m.polyint(P, 1, p[0]),
    "composed": lambda m, p: m.polyval(p, P),
}


@pytest.mark.parametrize("name", CALLS)
def test_polynomials_of_numpys_class_stay_of_it(name: str) -> None:
    p = np.array([2.0, -1, 4, 1])
    made, expected = CALLS[name](dx, dx.asarray(p)), CALLS[name](np, p)
    for one, other in zip(*[v if isinstance(v, tuple) else (v,) for v in (made, expected)], strict=True):
        assert isinstance(one, np.poly1d)
        assert one == other


@pytest.mark.parametrize("p", [[3j, 1.5j, -3j], [3j, 1.5j, -3j, 0], [3, 1.5, -3], [1j, 1j, 0], [3 + 1j, 1, 2]], ids=str)
@pytest.mark.parametrize("dtype", ["c8", "c16"])
def test_roots_of_complex_coefficients_are_complex_where_they_happen_to_be_real(p: list[complex], dtype: str) -> None:
    assert_close(dx.roots(dx.asarray(p, dtype=dtype)), np.roots(np.asarray(p, dtype)), rtol=1e-5)
    real = np.real(p).astype("f8")
    assert_close(dx.roots(dx.asarray(real)), np.roots(real), rtol=1e-12)


@pytest.mark.parametrize("dtypes", ["ddF", "dDF", "DdF", "DDF", "bed", "fed", "ffd", "dfd", "Ffd", "bBH"])
@pytest.mark.parametrize("cov", [False, True])
def test_weights_of_a_fit_leave_dtypes_as_they_are(dtypes: str, cov: bool) -> None:
    x, y, w = [
        values.astype(dtype) for values, dtype in zip([np.arange(1, 7), np.arange(6) % 4, np.arange(1, 7)], dtypes)
    ]
    try:
        expected = np.polyfit(x, y, 2, w=w, cov=cov)
    except TypeError:
        with pytest.raises(TypeError, match=r"cast|unsupported"):
            dx.polyfit(dx.asarray(x), dx.asarray(y), 2, w=dx.asarray(w), cov=cov)
        return
    found = dx.polyfit(dx.asarray(x), dx.asarray(y), 2, w=dx.asarray(w), cov=cov)
    for ours, theirs in zip(found if cov else [found], expected if cov else [expected], strict=True):
        assert_close(ours, theirs, rtol=1e-3)
