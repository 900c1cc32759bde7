"""Convolutions and differences are numpy's where elements are inf or nan, too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers import some
from hypothesis import given, settings
from hypothesis import strategies as st

import distarray as dx
from distarray.composed import signals
from distarray.sharding.sharding import Sharding
from distarray.testing import counting, force_tiles

INF, NAN = np.inf, np.nan
MODES: list[Any] = ["full", "same", "valid"]
VECTORS = [
    np.array([4, INF, 1, 2, 3]),
    np.array([NAN, 0.0, 2.0]),
    np.array([0.0, -INF]),
    np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
    np.array([2, 0, 1]),
    np.array([INF]),
    np.array([0.5, 0.0, INF, 0.0], "f4"),
]


@pytest.mark.parametrize("name", ["convolve", "correlate"])
@pytest.mark.parametrize("mode", some(["full", "same", "valid"]))
@pytest.mark.parametrize("tiles", some([3, 1]))
def test_convolutions_keep_inf_and_nan_where_they_are(name: str, mode: str, tiles: int) -> None:
    """No element is multiplied with the nothing beside the vectors, whichever of them is the shorter one."""
    for a in VECTORS:
        for v in VECTORS:
            expected = getattr(np, name)(a, v, mode)
            for ours, theirs in ((True, False), (False, True), (True, True)):
                with force_tiles(tiles):
                    x, y = dx.asarray(a) if ours else a, dx.asarray(v) + 0 if theirs else v
                    found = np.asarray(getattr(dx, name)(x, y, mode))
                assert found.dtype == expected.dtype
                np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize("tiles", [3, 1])
def test_halves_are_convolved_in_single_precision(mode: Any, tiles: int) -> None:
    a = np.tile(np.array([60000, 30000, -60000, 1], "f2"), 20)
    with force_tiles(tiles):
        found = dx.convolve(dx.asarray(a), dx.ones(3, dtype="f2"), mode)
        assert found.dtype == np.float16
        np.testing.assert_array_equal(np.asarray(found), np.convolve(a, np.ones(3, "f2"), mode))


@given(st.data())
@settings(max_examples=150)
def test_convolutions_are_numpys_to_the_bit_however_they_are_cut(data: st.DataObject) -> None:
    n, m = data.draw(st.integers(1, 60)), data.draw(st.integers(1, 20))
    dtype = data.draw(st.sampled_from(["f8", "f4", "f2", "c16", "i4", "u1", "?"]))
    name, mode = data.draw(st.sampled_from(["convolve", "correlate"])), data.draw(st.sampled_from(MODES))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    a, v = (rng.normal(size=size).astype(dtype) for size in (n, m))
    bounds = (0, *sorted(data.draw(st.lists(st.integers(0, n), min_size=2, max_size=2))), n)
    team = dx.Team((3,), ("R",))
    x = dx.asarray(a, team=team, sharding=Sharding(team.mesh, (("R",),), bounds=(bounds,)))
    if data.draw(st.booleans()):
        a, x = a[::-1], x[::-1]
    found = getattr(dx, name)(x, dx.asarray(v, team=team), mode)
    np.testing.assert_array_equal(np.asarray(found), getattr(np, name)(a, v, mode))


def test_a_convolution_goes_where_its_array_lives() -> None:
    x = dx.asarray(np.arange(5.0), team=dx.Team((2,), ("R",)), sharding=("R",))
    np.testing.assert_array_equal(np.asarray(dx.convolve(x, [1, 2])), np.convolve(np.arange(5.0), [1, 2]))
    np.testing.assert_array_equal(np.asarray(dx.correlate([1, 2], x)), np.correlate([1, 2], np.arange(5.0)))


COORDINATES: dict[str, Any] = {
    "integers": np.arange(6),
    "floats": np.arange(6) * 0.5,
    "list": [0.0, 1.0, 2.0, 3.0, 4.0, 5.0],
    "short": np.arange(6, dtype="f4") * 2,
    "falling": np.arange(6)[::-1],
    "uneven": np.arange(6) ** 2.0,
    "even at first": np.array([0, 1, 2, 3.5, 4, 5]),
    "nan": np.full(6, NAN),
}


@pytest.mark.parametrize("name", COORDINATES)
@pytest.mark.parametrize("edge_order", [1, 2])
@pytest.mark.parametrize("ours", [False, True], ids=["host", "ours"])
def test_gradient_notices_evenly_spaced_coordinates(name: str, edge_order: int, ours: bool) -> None:
    """A nan stays in the differences that it is part of: the formula for even distances has no middle element."""
    at = COORDINATES[name]
    f = np.random.default_rng(0).random((6, 3))
    f[2, 1], f[4, 0] = NAN, INF
    for values in (f, f.astype("f4"), f[:, 2]):
        with np.errstate(all="ignore"):
            expected = np.gradient(values, at, axis=0, edge_order=edge_order)
            found = dx.gradient(dx.asarray(values), dx.asarray(at) if ours else at, axis=0, edge_order=edge_order)
            assert found.dtype == expected.dtype
            np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-5)


@pytest.mark.parametrize("of_values", ["f8", "c16"])
@pytest.mark.parametrize("is_large", [False, True])
@pytest.mark.parametrize("tiles", [3, 1])
def test_interpolation_is_numpys(monkeypatch: pytest.MonkeyPatch, of_values: str, is_large: bool, tiles: int) -> None:
    """By one kernel where the points are whole at each member; of more points by those beside each position."""
    monkeypatch.setattr(signals, "WHOLE_NBYTES", 0 if is_large else 1 << 20)
    x = np.array([-1.0, 0.0, 0.25, 3.0, NAN, 7.5, 8.0, 9.0, INF])
    for n in (1, 2, 5):
        points, values = np.linspace(0, 8, n), np.arange(n) * (1 - 2j if of_values == "c16" else 1.5)
        for options in ({}, {"left": -9.0, "right": 9.0}, {"period": 9.0}):
            with force_tiles(tiles), np.errstate(invalid="ignore"):
                with counting() as counted:
                    y = dx.interp(dx.asarray(x) + 0, points, values, **options)
                assert is_large or "period" in options or not counted.tasks  # nothing is computed at the call
                np.testing.assert_allclose(np.asarray(y), np.interp(x, points, values, **options), rtol=1e-15)


@pytest.mark.parametrize("eager_bytes", [0, 2**20])
@pytest.mark.parametrize("of_points", ["u1", "i2", "f2", "f4", "f8"])
@pytest.mark.parametrize("of_values", ["f2", "i4", "c8"])
def test_one_period_is_taken_in_double_precision(of_points: str, of_values: str, eager_bytes: int) -> None:
    x = np.array([0, 1, 2.3, 4, 6, 8, 9, 10]).astype(of_points)
    points = np.array([1, 3, 5, 7, 9.2]).astype(of_points)
    values = np.array([8, -4, 9, 6, 4]).astype(of_values)
    for period in (5, 2.7, -11):
        with dx.config.set(eager_bytes=eager_bytes):
            found = dx.interp(dx.asarray(x), dx.asarray(points), dx.asarray(values), period=period)
            np.testing.assert_allclose(found, np.interp(x, points, values, period=period), rtol=1e-12)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("sizes", [(5, 6), (6, 5), (1, 4), (4, 1)])
def test_correlations_are_contiguous(sizes: tuple[int, int], mode: Any) -> None:
    for dtype in ("i8", "f4", "c16"):
        a, v = [np.arange(1, n + 1).astype(dtype) for n in sizes]
        found, expected = dx.correlate(dx.asarray(a), dx.asarray(v), mode), np.correlate(a, v, mode)
        assert (found.strides, found.flags.c_contiguous) == (expected.strides, expected.flags.c_contiguous)
        np.testing.assert_array_equal(found, expected)
