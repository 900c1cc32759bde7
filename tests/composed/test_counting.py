"""Counts of integers: NumPy's, whatever is larger than was guessed, with one reading of the elements."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from helpers import peak_nbytes
from hypothesis import given, settings
from hypothesis import strategies as st

import distarray as dx
from distarray.composed import histograms
from distarray.kernels import sorting
from distarray.testing import counting, force_tiles


def assert_equal(found: dx.DistArray, expected: np.ndarray[Any, Any]) -> None:
    host = np.asarray(found)
    assert (host.dtype, host.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(host, expected)


DTYPES = ["?", "i1", "u1", "i2", "i4", "u4", "i8"]


@settings(max_examples=30)
@given(st.sampled_from(DTYPES), st.integers(1, 5000), st.integers(0, 3000), st.integers(1, 400), st.integers(0, 2**32))
def test_counts_are_numpys(dtype: str, most: int, minlength: int, size: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.integers(0, min(most, 1 if dtype == "?" else np.iinfo(dtype).max) + 1, size).astype(dtype)
    for team in (None, dx.Team((2,), ("t",))):
        assert_equal(dx.bincount(dx.asarray(x, team=team), minlength=minlength), np.bincount(x, minlength=minlength))
    with force_tiles(3):
        assert_equal(dx.bincount(dx.asarray(x), minlength=minlength), np.bincount(x, minlength=minlength))


@pytest.mark.parametrize("minlength", [0, 3, 7000])
def test_counts_on_another_device(minlength: int) -> None:
    for x in (np.arange(5000) % 7, np.arange(5000)):
        made = dx.bincount(dx.asarray(x, device="strict"), minlength=minlength)
        assert_equal(made, np.bincount(x, minlength=minlength))
    with pytest.raises(ValueError, match="negative"):
        dx.bincount(dx.asarray(-x, device="strict"), minlength=minlength)


def test_unsigned_numbers_of_64_bits_are_counted() -> None:
    x = np.arange(700, dtype=np.uint64) % 9
    assert_equal(dx.bincount(dx.asarray(x)), np.bincount(x.astype(np.intp)))


@pytest.mark.parametrize("tiles", [1, 3])
@pytest.mark.parametrize("weights", [None, np.arange(7.0)], ids=["counts", "weights"])
def test_nan_is_in_a_bin_that_ends_with_nan(weights: Any, tiles: int) -> None:
    host = np.array([1, np.nan, 3, np.nan, -1, 0, np.inf])
    for values, edges in (
        (host, [0, 2, np.nan]),
        (host, [0, 2, 4]),
        (np.where(host == host, 5, host).astype("m8[s]"), np.array([0, "NaT"], "m8[s]")),
    ):
        with dx.config.set(eager_bytes=0), force_tiles(tiles):
            counts, _ = dx.histogram(dx.asarray(values), edges, weights=weights)
        assert_equal(counts, np.histogram(values, edges, weights=weights)[0])


def test_of_nothing_no_weights_are_looked_at() -> None:
    nothing = np.zeros(0, np.intp)
    assert_equal(dx.bincount(dx.asarray(nothing), [1.0, 2.0], 3), np.bincount(nothing, [1.0, 2.0], 3))


@pytest.mark.parametrize("n", [3, 50, 5000])
@pytest.mark.parametrize(
    "x",
    [
        np.arange(10_000) % 3,
        np.where(np.arange(10_000) == 9_999, 70, np.arange(10_000) % 3),
        np.where(np.arange(10_000) == 5_000, -1, np.arange(10_000) % 3),
        np.where(np.arange(10_000) == 5_000, 2**62, 1),
        np.arange(10_000),
        np.arange(10_000)[::-1].astype("u2")[::3],
        np.zeros(0, int),
    ],
    ids=["within", "late", "negative", "huge", "rising", "strided", "none"],
)
def test_slices_are_counted_until_one_has_others(monkeypatch: Any, x: Any, n: int) -> None:
    monkeypatch.setattr(sorting, "COUNTED", 256)
    counts, least, most = sorting.numbers_within(x, n)
    assert (least, most) == (min(0, *x.tolist(), 0), max(0, *x.tolist(), 0))
    expected = np.bincount(x, minlength=n) if least >= 0 and most < n else np.zeros(n, np.intp)
    np.testing.assert_array_equal(counts, expected)


def runs(counts: Any, *names: str) -> list[bool]:
    return [any(name == n for n, _ in counts.kernels) for name in names]


def test_elements_are_read_once_where_the_guess_is_enough() -> None:
    x = dx.asarray(np.arange(1_000_000) % 999).persist()
    with counting() as counts:
        dx.bincount(x)
    assert not counts.evaluations  # it lies here
    with counting() as counts:
        dx.bincount(x + 1)
    assert runs(counts, "within_tiles", "max", "bincount_tiles") == [True, False, False]
    with counting() as counts:
        made = dx.bincount(x * 3)
        made.persist()
    assert runs(counts, "within_tiles", "max", "bincount_tiles") == [True, False, True]


def test_no_more_memory_is_taken_than_by_numpy() -> None:
    x = np.arange(2_000_000, dtype=np.int32) % 1000
    ours = dx.asarray(x).persist()
    peaks = []
    for count in (lambda: np.bincount(x, minlength=1000), lambda: dx.bincount(ours, minlength=1000)):
        count()
        peaks.append(peak_nbytes(count)[1])
    assert peaks[1] < peaks[0]


@pytest.mark.parametrize("size", [10, 400_000])
def test_negative_numbers_are_numpys_error(size: int) -> None:
    x = np.arange(size)
    x[-1] = -3
    with pytest.raises(ValueError, match="must have no negative elements"):
        dx.bincount(dx.asarray(x))
    assert histograms.MANY_NUMBERS < 400_000


@pytest.mark.parametrize("n", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("right", [False, True])
def test_bins_that_are_nan_rise_or_fall_as_numpy_says(n: int, right: bool) -> None:
    x = np.array([0, 1, 1.5, 2, 3, np.nan])
    for bins in product([np.nan, 1.0, 2.0, 3.0], repeat=n):
        with dx.config.set(eager_bytes=0):
            try:
                expected = np.digitize(x, np.array(bins), right)
            except ValueError:
                with pytest.raises(ValueError, match="monotonically"):
                    dx.digitize(dx.asarray(x), np.array(bins), right)
            else:
                for given in (np.array(bins), dx.asarray(np.array(bins))):
                    np.testing.assert_array_equal(dx.digitize(dx.asarray(x), given, right), expected, str(bins))


@pytest.mark.parametrize("minlength", [0, 60, 1024, 3000])
@pytest.mark.parametrize("largest", [49, 1023, 5000])
def test_few_counts_come_with_the_largest_number(largest: int, minlength: int) -> None:
    team = dx.Team((4,), ("x",))
    values = np.random.default_rng(0).integers(0, largest + 1, 300_000)
    values[7] = largest
    x = dx.asarray(values, team=team).reshard(("x",)).persist()
    with counting() as c:
        found = dx.bincount(x, minlength=minlength).persist()
    assert c.evaluations == (1 if largest < max(1024, minlength) else 2)
    assert found.team == team
    np.testing.assert_array_equal(np.asarray(found), np.bincount(values, minlength=minlength))
