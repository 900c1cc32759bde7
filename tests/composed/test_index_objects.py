"""``mgrid``, ``ogrid``, ``r_``, ``c_``, the iterators over elements and ``emath``: numpy is the oracle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distarray as dx
from distarray.testing import force_tiles

X = np.arange(6.0).reshape(2, 3)
S = np.s_
GRIDS = [
    *(S[0:5], S[0:5, 0:3], S[0:1:5j], S[-1:1:5j, 0:3], S[0:5:0.5,], S[1:10:2, 3:0:-1]),
    *(S[0:1:1j], S[:3, :4], S[5:2], ()),
]
Call = Callable[[Any, Callable[[Any], Any]], Any]
JOINS: dict[str, Call] = {
    "numbers": lambda m, c: m.r_[1:4, 0, 4],
    "arrays": lambda m, c: m.r_[c(X), c(X)],
    "last axis": lambda m, c: m.r_["-1", c(X), c(X)],
    "rows": lambda m, c: m.r_["0,2", [1, 2, 3], [4, 5, 6]],
    "columns": lambda m, c: m.r_["0,2,0", [1, 2, 3], [4, 5, 6]],
    "columns beside": lambda m, c: m.r_["1,2,0", [1, 2, 3], [4, 5, 6]],
    "three axes": lambda m, c: m.r_["0,3,1", c(X)],
    "points": lambda m, c: m.r_[-1:1:6j, [0] * 3, 5, 6],
    "weak number": lambda m, c: m.r_[c(X[0].astype("f4")), 1.5],
    "c_": lambda m, c: m.c_[c(np.array([1, 2, 3])), c(np.array([4.0, 5, 6]))],
    "c_ of a range": lambda m, c: m.c_[1:4, c(X.T)],
    "c_ of numbers": lambda m, c: m.c_[[[1, 2, 3]], 0, 0, [[4, 5, 6]]],
}


def assert_same(made: Any, expected: Any) -> None:
    many = isinstance(expected, tuple)
    for a, b in zip(made if many else (made,), expected if many else (expected,), strict=True):
        assert isinstance(a, dx.DistArray)
        np.testing.assert_array_equal(a, b)
        assert a.dtype == np.asarray(b).dtype


@pytest.mark.parametrize("key", GRIDS, ids=repr)
def test_grids_are_numpys(key: Any) -> None:
    assert_same(dx.mgrid[key], np.mgrid[key])
    assert_same(dx.ogrid[key], np.ogrid[key])


@pytest.mark.parametrize("n_tiles", [1, 3])
@pytest.mark.parametrize("name", JOINS)
def test_joins_are_numpys(name: str, n_tiles: int) -> None:
    with force_tiles(n_tiles):
        assert_same(JOINS[name](dx, dx.asarray), JOINS[name](np, np.asarray))


def test_wrong_keys_are_errors() -> None:
    for key in ((1, "a"), ("x", 1)):
        with pytest.raises(ValueError, match="special directive"):
            dx.r_[key]
    with pytest.raises(dx.NotSupportedError, match="matrix"):
        dx.r_["r", 1]
    with pytest.raises(TypeError, match="slices"):
        dx.mgrid[3]


def test_grids_of_any_size_are_lazy() -> None:
    with dx.testing.counting() as c:
        x, _y = dx.mgrid[0:1_000_000, 0:1_000_000]
    assert x.shape == (1_000_000, 1_000_000)
    assert c.evaluations == 0


ITERATIONS: dict[str, Call] = {
    "ndenumerate": lambda m, c: [(i, float(v)) for i, v in m.ndenumerate(c(X))],
    "broadcast": lambda m, c: [(float(p), float(q)) for p, q in m.broadcast(c(X), c(X[0]))],
    "attributes": lambda m, c: [getattr(m.broadcast(c(X), 1), n) for n in ("shape", "size", "nd", "ndim", "numiter")],
    "nditer": lambda m, c: [float(v) for v in m.nditer(c(X))],
    "nditer of two": lambda m, c: [(float(p), float(q)) for p, q in m.nditer([c(X), c(X[:, :1])])],
    "iteration": lambda m, c: [[float(v) for v in row] for row in c(X)],
    "in": lambda m, c: (2.0 in c(X), 7 in c(X), len(c(X))),
}


@pytest.mark.parametrize("n_tiles", [1, 3])
@pytest.mark.parametrize("name", ITERATIONS)
def test_elements_come_in_numpys_order(name: str, n_tiles: int) -> None:
    with force_tiles(n_tiles):
        assert ITERATIONS[name](dx, dx.asarray) == ITERATIONS[name](np, np.asarray)


def test_elements_come_some_rows_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("distarray.composed.iteration.CHUNK_NBYTES", 100)
    x = np.arange(200.0).reshape(10, 5, 4)
    assert [float(v) for _, v in dx.ndenumerate(dx.asarray(x))] == x.ravel().tolist()


def test_what_iterators_of_buffers_do_is_refused() -> None:
    x = dx.ones(2)
    for options in ({"op_flags": ["readwrite"]}, {"flags": ["external_loop"]}, {"order": "F"}, {"casting": "safe"}):
        with pytest.raises(dx.NotSupportedError, match="map_blocks"):
            dx.nditer(x, **options)
    with pytest.raises(ValueError, match="zero-sized"):
        dx.nditer(x[:0])


VALUES = [[1.0, -4.0], [1.0, 4], [1, -4], np.array([-1, 2], "f4"), np.array([3, -2], "i2"), [0.5, 2], [-3 + 1j, 2]]


@pytest.mark.parametrize("name", [n for n in dx.emath.__all__ if n not in ("power", "logn")])
@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_numbers_outside_of_the_domain_become_complex(name: str, value: Any) -> None:
    with np.errstate(all="ignore"):
        expected = getattr(np.emath, name)(np.asarray(value))
        for made in (getattr(dx.emath, name)(dx.asarray(value)), getattr(np.emath, name)(dx.asarray(value))):
            assert made.dtype == expected.dtype
            np.testing.assert_allclose(made, expected)


def test_powers_and_logarithms_of_negative_numbers() -> None:
    for x, p in ((VALUES[0], 0.5), (VALUES[2], -2), (VALUES[2], [2, -2]), (2, VALUES[2])):
        np.testing.assert_allclose(dx.emath.power(x, p), np.emath.power(x, p))
    np.testing.assert_allclose(dx.emath.logn(2, VALUES[2]), np.emath.logn(2, VALUES[2]))


def test_numpys_own_modules_are_here() -> None:
    assert dx.exceptions is np.exceptions
    assert dx.int_ is np.int_
    windows = dx.lib.stride_tricks.sliding_window_view(dx.arange(4.0), 2)
    assert isinstance(windows, dx.DistArray)
