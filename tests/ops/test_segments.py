"""Reductions by labels, against a loop over the segments."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from helpers import some

import distarray as dx
from distarray import config
from distarray.testing import counting, force_tiles
from distarray.testing.assertions import assert_close, assert_equal

RNG = np.random.default_rng(0)
A = RNG.integers(1, 5, (11, 4)).astype(float)
LABELS = RNG.integers(-1, 6, 11)
FUNCTIONS = "sum prod max min mean var count any all first last".split()


@pytest.fixture(params=[None, 1, 3], ids=["small", "one tile", "three tiles"])
def tiles(request: pytest.FixtureRequest) -> Iterator[None]:
    with nullcontext() if request.param is None else force_tiles(request.param):
        yield


def by_hand(func: str, a: np.ndarray, labels: np.ndarray, n: int) -> np.ndarray:
    limits = np.finfo(a.dtype) if a.dtype.kind == "f" else np.iinfo(a.dtype) if a.dtype.kind == "i" else None
    empty: Any = {
        "max": -np.inf if a.dtype.kind == "f" else getattr(limits, "min", None),
        "min": np.inf if a.dtype.kind == "f" else getattr(limits, "max", None),
        "mean": np.nan,
        "var": np.nan,
        "first": 0,
        "last": 0,
    }
    rows = []
    for s in range(n):
        rest = a[labels == s]
        if func == "count":
            rows.append(np.full(a.shape[1:], len(rest)))
        elif not len(rest) and func in empty:
            rows.append(np.full(a.shape[1:], empty[func]))
        else:
            rows.append(rest[0 if func == "first" else -1] if func in ("first", "last") else getattr(rest, func)(0))
    return np.array(rows)


@pytest.mark.parametrize("func", FUNCTIONS)
@pytest.mark.parametrize("dtype", some(["f8", "i4", "c16"]))
def test_every_function_is_a_loop_over_segments(tiles: None, func: str, dtype: str) -> None:
    if dtype == "c16" and func in ("max", "min"):
        with pytest.raises(TypeError, match="order"):
            dx.segment_reduce(dx.asarray(A.astype(dtype)), LABELS, func=func)
        return
    a = A.astype(dtype)
    x = dx.asarray(a)
    for n in (8, 4):
        expected = by_hand(func, a, LABELS, n)
        for labels in (dx.asarray(LABELS), LABELS):
            found = dx.segment_reduce(x, labels, n, func=func, mode="drop")
            assert_close(found, expected, rtol=1e-12, check_dtype=False)
            found = dx.segment_reduce(x.T, labels, n, axis=1, func=func, mode="drop")
            assert_close(found, expected.T, rtol=1e-12, check_dtype=False)


@pytest.mark.parametrize("dtype", ["?", "i1", "u2", "f2", "f4"])
@pytest.mark.parametrize("func", ["sum", "prod", "max", "mean", "var", "any", "first"])
def test_dtypes_are_those_of_numpys_reductions(func: str, dtype: str) -> None:
    if dtype == "?" and func == "var":
        pytest.skip("numpy has no variance of booleans")
    a = np.array([1, 0, 1, 1], dtype)
    found = dx.segment_reduce(dx.asarray(a), [0, 0, 1, 1], func=func)
    expected = a.dtype if func == "first" else getattr(np, func)(a).dtype
    assert found.dtype == expected
    assert found.compute().dtype == expected


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_a_variance_overflows_where_its_segment_does_and_not_for_lying_in_one_tile(dtype: str) -> None:
    a = np.repeat(np.array([2.0 ** (np.finfo(dtype).maxexp - 3)], dtype), 8)
    labels = np.arange(8) // 2
    with force_tiles(4):
        found = dx.segment_reduce(dx.asarray(a), labels, 5, func="var")
        assert_equal(found, np.array([0, 0, 0, 0, np.nan], dtype))


def test_half_floats_are_added_up_in_single_precision(tiles: None) -> None:
    a, labels = np.array([60_000, 60_032, 0, 0, 0, 400], "f2"), np.array([0, 0, 1, 1, 1, 1])
    for func in ("mean", "var"):
        wide = [getattr(np, func)(a[labels == s].astype("f4")) for s in range(2)]
        assert_equal(dx.segment_reduce(dx.asarray(a), labels, func=func), np.array(wide).astype("f2"))
    ones = np.array([2048, *[1] * 40], "f2")
    assert dx.segment_sum(dx.asarray(ones), np.zeros(41, int)).tolist() == [2088.0]


def test_a_mean_of_time_spans_is_numpys(tiles: None) -> None:
    a = np.array([1, 2, "NaT", 5, 2**60 + 1, 2**60 + 1], "m8[s]")
    labels = np.array([0, 0, 1, 1, 2, 2])
    expected = np.array([*[a[labels == s].mean() for s in range(3)], np.timedelta64("NaT")], "m8[s]")
    assert_equal(dx.segment_reduce(dx.asarray(a), labels, 4, func="mean"), expected)


def test_the_number_of_segments_is_asked_for_where_it_is_not_said(tiles: None) -> None:
    x, labels = dx.asarray(A), dx.asarray(LABELS)
    n = LABELS.max() + 1
    assert_equal(dx.segment_sum(x, labels, mode="drop"), by_hand("sum", A, LABELS, n))
    assert_equal(dx.segment_max(x, LABELS.tolist(), mode="drop"), by_hand("max", A, LABELS, n))
    with config.set(data_dependent="raise"):
        assert dx.segment_sum(x, abs(labels), 7).shape == (7, 4)
        assert dx.segment_sum(x, abs(LABELS)).shape == (n, 4)
        with pytest.raises(ValueError, match="data-dependent"):
            dx.segment_sum(x, labels)


def test_first_and_last_follow_the_axis_over_tiles() -> None:
    a = np.arange(24.0)
    labels = np.arange(24) % 5
    with force_tiles(3):
        x = dx.asarray(a)
        assert_equal(dx.segment_reduce(x, labels, func="first"), a[:5])
        assert_equal(dx.segment_reduce(x, labels, func="last"), np.array([20.0, 21.0, 22.0, 23.0, 19.0]))


def test_arrays_without_elements_and_without_segments(tiles: None) -> None:
    x = dx.asarray(np.ones((0, 3)))
    assert_equal(dx.segment_sum(x, np.array([], int), 2), np.zeros((2, 3)))
    assert_equal(dx.segment_sum(x, dx.zeros(0, int), 0), np.zeros((0, 3)))
    assert_equal(dx.segment_sum(x, []), np.zeros((0, 3)))
    assert_equal(dx.segment_sum(dx.asarray(A), LABELS * 0 - 1, 2, mode="drop"), np.zeros((2, 4)))
    assert dx.segment_sum(dx.asarray(A), LABELS, 0, mode="drop").compute().shape == (0, 4)


@pytest.mark.parametrize("func", FUNCTIONS)
@pytest.mark.parametrize("bad", [-1, 3, 100])
def test_a_label_that_is_no_segment_is_an_error_at_the_call(tiles: None, func: str, bad: int) -> None:
    """Of host labels and of labels that are to be computed, along any axis: nothing is dropped unsaid."""
    x = dx.asarray(A)
    labels = np.arange(11) % 3
    labels[-2] = bad
    for given in (labels, labels.tolist(), dx.asarray(labels), dx.asarray(labels) + 0):
        for call in (
            lambda given=given: dx.segment_reduce(x, given, 3, func=func),
            lambda given=given: dx.segment_reduce(x.T, given, 3, axis=1, func=func),
        ):
            with pytest.raises(IndexError, match=f"label {bad} is none of 3 segments"):
                call()
    assert_close(
        dx.segment_reduce(x, dx.asarray(labels), 3, func=func, mode="drop"),
        by_hand(func, A, labels, 3),
        rtol=1e-12,
        check_dtype=False,
    )
    if bad < 0:
        with pytest.raises(IndexError, match=f"label {bad} is none of"):
            dx.segment_reduce(x, dx.asarray(labels), func=func)


def test_the_functions_of_segments_refuse_and_drop_alike() -> None:
    x, labels = dx.asarray([1.0, 2.0, 4.0]), dx.asarray([0, 5, 0])
    for name in ("sum", "prod", "max", "min", "mean"):
        function = getattr(dx, f"segment_{name}")
        with pytest.raises(IndexError, match="label 5"):
            function(x, labels, 2)
        expected = by_hand(name, np.array([1.0, 2.0, 4.0]), np.array([0, 5, 0]), 2)
        assert_equal(function(x, labels, 2, mode="drop"), expected)
    with config.set(errors="deferred"):
        deferred = dx.segment_sum(x, labels, 2)
        with pytest.raises(IndexError, match="label 5"):
            deferred.compute()


def test_no_element_moves_only_rows_of_segments() -> None:
    """Peers, complaint 16."""
    x = dx.asarray(np.ones((64, 5)), team=dx.Team((4,), ("T",)), sharding=("T", None)).persist()
    labels = dx.asarray(np.arange(64) % 3, team=x.team, sharding=("T",)).persist()
    with config.set(block_bytes=8), counting() as c:
        dx.segment_sum(x, labels, 3).persist()
    assert c.messages == 3
    assert c.bytes_moved == 3 * 3 * 5 * 8
    assert dict(c.by_class) == {"tile": 4, "combine": 1, "piece": 0, "project": 0}


@pytest.mark.parametrize(
    ("labels", "options", "error"),
    [
        ([0.5] * 11, {}, TypeError),
        ([0] * 10, {}, ValueError),
        ([[0] * 11], {}, ValueError),
        ([0] * 11, {"func": "median"}, ValueError),
        ([0] * 11, {"mode": "clip"}, ValueError),
        ([0] * 11, {"num_segments": -1}, ValueError),
        ([0] * 11, {"axis": 2}, np.exceptions.AxisError),
    ],
)
def test_what_does_not_fit_raises_at_the_call(labels: Any, options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        dx.segment_reduce(dx.asarray(A), labels, **options)


@pytest.mark.cluster
def test_segments_on_a_cluster(cluster4: Any) -> None:
    x = dx.asarray(A, sharding=("x", None))
    for func in FUNCTIONS:
        for labels in (LABELS, dx.asarray(LABELS)):
            found = dx.segment_reduce(x, labels, 6, func=func, mode="drop")
            assert_close(found, by_hand(func, A, LABELS, 6), rtol=1e-12)
    with pytest.raises(IndexError, match="label -1"):
        dx.segment_sum(x, dx.asarray(LABELS), 6)
