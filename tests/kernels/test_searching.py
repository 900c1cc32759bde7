"""Places in a sorted row: what is guessed is what numpy finds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distarray.kernels import searching

SPECIAL = [0.0, -0.0, np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324]


@pytest.fixture
def any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guesses are made, and kept, however few elements there are and however many are wrong."""
    for name, value in (("MANY", 0), ("SHORTEST", 1), ("SLICE", 7), ("WRONG", 1.0)):
        monkeypatch.setattr(searching, name, value)


@given(
    row=st.lists(st.floats(-4, 4) | st.sampled_from(SPECIAL), min_size=0, max_size=30),
    sought=st.lists(st.floats(-5, 5) | st.sampled_from(SPECIAL), max_size=30),
    side=st.sampled_from(["left", "right"]),
    dtype=st.sampled_from(["f4", "f8", "i8", "i4"]),
)
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_places_are_numpys(any_size: None, row: list[float], sought: list[float], side: Any, dtype: str) -> None:
    with np.errstate(all="ignore"):
        rows, x = np.sort(np.asarray(row, "f8").astype(dtype)), np.asarray(row[:5] + sought, "f8").astype(dtype)
    with np.errstate(all="raise"):  # numpy's search computes nothing
        found = searching.searchsorted(np, rows, x, side)
    expected = np.searchsorted(rows, x, side)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "i4"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_even_rows_are_guessed(dtype: str, side: Any) -> None:
    row = np.linspace(-50, 80, 131).astype(dtype)
    x = np.random.default_rng(0).uniform(-60, 90, (7, 9000)).astype(dtype)
    x[0, :131] = row
    found = searching._guessed(row, x, side)
    # Elements outside on the left are looked for, and they are few enough.
    assert found is not None
    np.testing.assert_array_equal(found, np.searchsorted(row, x, side))


def test_uneven_rows_are_searched() -> None:
    row = np.exp(np.linspace(0, 20, 100))
    x = np.random.default_rng(0).uniform(0, 100, 40_000)
    assert searching._guessed(row, x, "left") is None
    np.testing.assert_array_equal(searching.searchsorted(np, row, x, "left"), np.searchsorted(row, x))


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("dtype", ["?", "i1", "u1", "f2", "i2", "u2", "i4", "u4", "i8", "u8", "f4"])
def test_elements_of_other_dtypes_than_the_row_are_looked_up_and_guessed(
    any_size: None, monkeypatch: pytest.MonkeyPatch, dtype: str, side: Any
) -> None:
    monkeypatch.setattr(searching, "TIMES", 0)
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 256, (50, 8 * np.dtype(dtype).itemsize), dtype="u1")
    x = bits.view(dtype)  # of truth values too: NumPy reads them from any bytes
    rows: list[Any] = [np.linspace(-200, 200, 40), np.linspace(0, 1e9, 9, dtype="f4"), np.arange(-70, 300, 10), []]
    for row in rows:
        for sought in (x, np.asfortranarray(x), x[::2, ::-1], x[0]):
            found = searching.searchsorted(np, np.asarray(row), sought, side)
            expected = np.searchsorted(row, sought, side)
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found, expected)


def test_a_long_row_is_cast_by_numpy_alone_for_a_few_elements_of_another_dtype() -> None:
    class Row(np.ndarray[Any, np.dtype[Any]]):
        def astype(self, *_: Any, **__: Any) -> Any:
            raise AssertionError

    row = np.arange(100_000, dtype="i4").view(Row)
    found = searching.searchsorted(np, row, np.array([7.5, 3.0]), "left")
    np.testing.assert_array_equal(found, [8, 3])


def test_many_small_integers_are_searched_once_for_each_value(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    plain = np.searchsorted
    monkeypatch.setattr(np, "searchsorted", lambda row, x, side: sizes.append(np.size(x)) or plain(row, x, side))
    x = np.random.default_rng(0).integers(0, 256, (300, 200), dtype="u1")
    np.testing.assert_array_equal(searching.searchsorted(np, np.arange(257.0), x, "right"), x.astype(int) + 1)
    assert sizes == [256]


@pytest.mark.parametrize("dtype", ["f8", "f4", "f2", "i4", "u1", "?"])
@pytest.mark.parametrize("is_max", [True, False])
@pytest.mark.parametrize("n", [1, 2, 3, 10])
def test_the_first_extreme_of_many_short_rows_is_numpys(dtype: str, is_max: bool, n: int) -> None:
    rng = np.random.default_rng(n)
    block = rng.integers(0, 2 if dtype == "?" else 4, (90, 80, n)).astype(dtype)
    if block.dtype.kind == "f":
        block[rng.random(block.shape) < 0.1] = np.nan
        block[rng.random(block.shape) < 0.1] = -0.0
    assert searching.has_long_rows(block, 2)
    value, at = searching.first_by_rows(block, 2, is_max=is_max)
    expected = (np.argmax if is_max else np.argmin)(block, axis=2, keepdims=True)
    np.testing.assert_array_equal(at, expected)
    np.testing.assert_array_equal(value, np.take_along_axis(block, expected, 2))
