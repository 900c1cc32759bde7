"""Vectors in several tiles are sorted, searched and selected from as numpy does it, whatever the keys and the cut."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distarray as dx
from distarray.ops import sets
from distarray.sharding import cuts
from distarray.testing import counting, force_tiles
from distarray.testing.assertions import assert_equal

DTYPES = ("?", "i1", "u2", "i8", "f2", "f4", "f8", "c16", "M8[D]", "m8[s]")
NAN = {"f": np.nan, "c": complex(1, np.nan), "M": np.datetime64("NaT"), "m": np.timedelta64("NaT")}


def keys(dtype: str, shape: str, n: int, seed: int) -> np.ndarray[Any, Any]:
    """Keys of a vector: constant, half of them equal, reversed, or drawn, with what is special of the dtype."""
    rng = np.random.default_rng(seed)
    made = rng.integers(0, 2 if dtype == "?" else 100, n)
    if shape == "constant":
        made[:] = 1
    elif shape == "half":
        made[rng.random(n) < 0.5] = 1
    elif shape == "reversed":
        made = np.sort(made)[::-1]
    kind = np.dtype(dtype).kind
    values = made.astype(dtype) if kind != "c" else made + 1j * rng.integers(0, 2, n)
    if shape == "special" and n:
        if kind in NAN:
            values[rng.integers(0, n, n // 4)] = NAN[kind]
        if kind == "f":
            for special in (0.0, -0.0, np.inf, -np.inf):
                values[rng.integers(0, n, n // 6)] = special
    return values


@st.composite
def vectors(draw: st.DrawFn, dtypes: tuple[str, ...] = DTYPES) -> tuple[dx.DistArray, np.ndarray[Any, Any]]:
    """A vector on a team of 1 to 8 members, in parts of any sizes, empty ones among them."""
    n, members = draw(st.integers(0, 80)), draw(st.integers(1, 8))
    shape = draw(st.sampled_from(("constant", "half", "reversed", "drawn", "special")))
    values = keys(draw(st.sampled_from(dtypes)), shape, n, draw(st.integers(0, 9)))
    inner = sorted(draw(st.lists(st.integers(0, n), min_size=members - 1, max_size=members - 1)))
    team = dx.Team((members,), ("R",))
    bounds = (0, *inner, n) if draw(st.booleans()) else None
    sharding = dx.Sharding(team.mesh, (("R",),), (), (bounds,))
    return dx.asarray(values, team=team, sharding=sharding), values


def stable(values: np.ndarray[Any, Any], *, descending: bool) -> np.ndarray[Any, Any]:
    if not descending:
        return np.argsort(values, stable=True)
    return (len(values) - 1 - np.argsort(values[::-1], stable=True))[::-1]


def same_bits(actual: dx.DistArray, expected: np.ndarray[Any, Any]) -> None:
    """Equal, zeros of either sign told apart."""
    assert_equal(actual, expected)
    if expected.dtype.kind == "f":
        np.testing.assert_array_equal(np.signbit(np.asarray(actual)), np.signbit(expected))


@settings(max_examples=80)
@given(vectors(), st.booleans())
def test_sort_and_argsort_are_stable_across_tiles(case: Any, descending: bool) -> None:
    x, values = case
    order = stable(values, descending=descending)
    assert_equal(dx.argsort(x, descending=descending), order)
    y = dx.sort(x, descending=descending)
    if x.team.size > 1 and x.size:
        assert y.sharding.boundaries(y.shape)[0] == cuts.boundaries(x.size, x.team.size)
    same_bits(y, values[order])


@settings(max_examples=60)
@given(vectors(("i8", "f4", "f8")), st.data())
def test_quantiles_are_selected(case: Any, data: st.DataObject) -> None:
    x, values = case
    if not x.size:
        return
    method = data.draw(st.sampled_from((
        "linear", "lower", "higher", "midpoint", "nearest", "hazen", "weibull", "inverted_cdf", "closest_observation",
        "averaged_inverted_cdf", "interpolated_inverted_cdf", "median_unbiased", "normal_unbiased",
    )))  # fmt: skip
    q = data.draw(st.sampled_from((0.5, 0, 1.0, [0.1, 0.9, 0.0], [[0.3], [0.77]], np.float32([0.2, 0.6]))))
    with np.errstate(invalid="ignore"):
        assert_equal(dx.quantile(x, q, method=method), np.quantile(values, q, method=method))
        kept = {"method": method, "keepdims": True}
        assert_equal(dx.percentile(x, 37.5, **kept), np.percentile(values, 37.5, **kept))
        assert_equal(dx.median(x), np.median(values))


@settings(max_examples=40)
@given(vectors(("i8", "f4", "f8")))
@pytest.mark.filterwarnings("ignore:All-NaN")
def test_nan_are_passed_over(case: Any) -> None:
    x, values = case
    if not x.size:
        return
    with np.errstate(invalid="ignore"):
        assert_equal(dx.nanmedian(x), np.nanmedian(values))
        assert_equal(dx.nanquantile(x, [0.2, 0.9]), np.nanquantile(values, [0.2, 0.9]))
        if values.dtype != np.float32 or hasattr(np, "matvec"):  # numpy 2.1 interpolates float32 in another precision
            assert_equal(dx.nanpercentile(x, 30), np.nanpercentile(values, 30))


@settings(max_examples=60)
@given(vectors(("?", "i8", "f4", "f8", "m8[s]")), st.data())
def test_selection_needs_no_sorted_tiles(case: Any, data: st.DataObject) -> None:
    """However little the sample says: pivots, gaps between them, nan, and the ends."""
    x, values = case
    if x.size < 2:
        return
    q = data.draw(st.lists(st.floats(0, 1), min_size=1, max_size=3))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("distarray.ops.selection.SMALL", 0)
        with np.errstate(invalid="ignore"):
            found = dx.quantile(x, q, method="higher")
    assert_equal(found, np.quantile(values, q, method="higher"))


@settings(max_examples=60)
@given(vectors(), st.booleans(), st.data())
def test_topk_takes_the_first_of_equals(case: Any, largest: bool, data: st.DataObject) -> None:
    x, values = case
    k = data.draw(st.integers(0, x.size))
    order = stable(values, descending=largest)[:k]
    found, at = dx.topk(x, k, largest=largest)
    assert_equal(at, order)
    same_bits(found, values[order])


@settings(max_examples=60)
@given(vectors(), st.integers(0, 9), st.sampled_from(("left", "right")))
def test_searchsorted_counts_in_every_tile(case: Any, seed: int, side: str) -> None:
    x, values = case
    sought = keys(values.dtype.str, "special", 12, seed).reshape(3, 4)
    expected = np.searchsorted(np.sort(values), sought, side)
    assert_equal(dx.searchsorted(dx.sort(x), dx.asarray(sought, team=x.team), side=side), expected)
    order = dx.argsort(x)
    assert_equal(dx.searchsorted(x, dx.asarray(sought, team=x.team), side=side, sorter=order), expected)


@settings(max_examples=40)
@given(vectors(("i1", "f8")), st.integers(0, 9), st.sampled_from(("left", "right")))
def test_vectors_too_large_to_be_whole_are_sorted_together(case: Any, seed: int, side: str) -> None:
    x, values = case
    sought = keys(values.dtype.str, "special", 50, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("distarray.ops.searching.WHOLE_NBYTES", 0)
        found = dx.searchsorted(dx.sort(x), dx.asarray(sought, team=x.team, sharding=("R",)), side=side)
    assert_equal(found, np.searchsorted(np.sort(values), sought, side))


@settings(max_examples=40)
@given(vectors())
def test_distinct_elements_across_tiles(case: Any) -> None:
    """B-9: also where every nan is distinct, and where all are one."""
    x, values = case
    for ours, theirs in zip(dx.unique(x, True, True, True), np.unique(values, True, True, True), strict=True):
        assert_equal(ours, theirs)
    for ours, theirs in zip(dx.unique_all(x), np.unique_all(values), strict=True):
        assert_equal(ours, theirs)
    assert_equal(dx.unique(x), np.unique(values))


@settings(max_examples=40)
@given(st.sampled_from("?bBhHiIlLqQ"), st.sampled_from(["least", "largest", "zero"]), st.integers(1, 90), st.data())
def test_distinct_integers_are_counted_where_there_are_few_between(
    char: str, where: str, extent: int, data: st.DataObject
) -> None:
    """Of every dtype, at both ends of what it can be, on any number of tiles; more than are counted are sorted."""
    dtype = np.dtype(char)
    least, most = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    extent = min(extent, most - least + 1)
    low = {"least": least, "largest": most - extent + 1, "zero": 0}[where]
    numbers = data.draw(st.lists(st.integers(low, min(low + extent - 1, most)), min_size=1, max_size=80))
    values = np.array(numbers, object).astype(dtype)
    shape = (2, -1) if len(values) % 2 == 0 else (-1,)
    team, sharding = dx.Team((data.draw(st.integers(1, 4)),), ("R",)), ("R", *[None] * (len(shape) - 1))
    x = dx.asarray(values.reshape(shape), team=team, sharding=sharding)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sets, "MOST_COUNTED", 40)
        for ours, theirs in zip(dx.unique_inverse(x), np.unique_inverse(values.reshape(shape)), strict=True):
            assert_equal(ours, theirs)
        for ours, theirs in zip(dx.unique(x, False, False, True), np.unique(values, False, False, True), strict=True):
            assert_equal(ours, theirs)
        assert_equal(dx.unique(x), np.unique(values))


@settings(max_examples=15)
@given(vectors(("i8", "f8", "M8[D]")), st.integers(0, 9))
def test_set_operations_across_tiles(case: Any, seed: int) -> None:
    x, a = case
    b = keys(a.dtype.str, "special", 30, seed)
    y = dx.asarray(b, team=x.team, sharding=("R",))
    assert_equal(dx.isin(x, y), np.isin(a, b))
    assert_equal(dx.isin(x, y, invert=True), np.isin(a, b, invert=True))
    for name in ("union1d", "intersect1d", "setdiff1d", "setxor1d"):
        assert_equal(getattr(dx, name)(x, y), getattr(np, name)(a, b))
    for ours, theirs in zip(dx.intersect1d(x, y, return_indices=True), np.intersect1d(a, b, return_indices=True)):
        assert_equal(ours, theirs)


@settings(max_examples=40)
@given(vectors(("i8", "f8")), st.data())
def test_partitions_across_tiles(case: Any, data: st.DataObject) -> None:
    x, values = case
    if not x.size:
        return
    kth = data.draw(st.lists(st.integers(-x.size, x.size - 1), min_size=1, max_size=3))
    found = np.asarray(dx.partition(x, kth))
    np.testing.assert_array_equal(np.sort(found), np.sort(values))
    np.testing.assert_array_equal(found[kth], np.sort(values)[kth])
    np.testing.assert_array_equal(values[np.asarray(dx.argpartition(x, kth))][kth], np.sort(values)[kth])


@pytest.mark.parametrize("axis", [0, 1, -1, (0, 2), None], ids=str)
@pytest.mark.parametrize("shape", [(2, 3, 40), (40, 2, 3)], ids=str)
def test_few_rows_are_worked_on_side_by_side(shape: tuple[int, ...], axis: Any) -> None:
    values = np.random.default_rng(0).integers(0, 20, shape).astype(float)
    team = dx.Team((8,), ("R",))
    sharding = tuple("R" if n == 40 else None for n in shape)
    x = dx.asarray(values, team=team, sharding=sharding)
    assert_equal(dx.median(x, axis=axis), np.median(values, axis=axis))
    assert_equal(dx.quantile(x, [0.1, 0.6], axis, keepdims=True), np.quantile(values, [0.1, 0.6], axis, keepdims=True))
    if not isinstance(axis, tuple):
        assert_equal(dx.sort(x, axis=axis), np.sort(values, axis=axis))
        assert_equal(dx.argsort(x, axis=axis), np.argsort(values, axis=axis, stable=True))
        found, at = dx.topk(x, 2, axis=axis, largest=False)
        order = np.argsort(values, axis=axis, stable=True)
        first = order[:2] if axis is None else np.take(order, [0, 1], axis)
        assert_equal(at, first)
        assert_equal(found, values.ravel()[first] if axis is None else np.take_along_axis(values, first, axis))


def test_rows_sorted_side_by_side_ask_together() -> None:
    team = dx.Team((8,), ("R",))
    values = np.random.default_rng(0).random((5, 400))
    rounds = []
    for rows in (1, 5):
        x = (dx.asarray(values[:rows], team=team, sharding=(None, "R")) + 0).persist()
        with counting() as c:
            dx.sort(x, axis=1).persist()
        rounds.append(c.evaluations)
    assert rounds[1] == rounds[0]


def test_many_rows_stay_whole() -> None:
    """A sort along an axis of as many rows as places: the planner cuts the rows, nothing is asked for."""
    team = dx.Team((4,), ("R",))
    values = np.random.default_rng(0).random((8, 40_000))
    x = (dx.asarray(values, team=team, sharding=(None, "R")) + 0).persist()
    with counting() as c, dx.config.set(block_bytes="1 MiB"):
        y = dx.sort(x, axis=1)
        assert y.sharding.parts == (4, 1)
        y.persist()
    assert c.fetched_bytes == 0
    assert_equal(y, np.sort(values, axis=1))


@pytest.mark.parametrize("whole_nbytes", [0, 1 << 20])
def test_lexsort_and_rows_across_tiles(monkeypatch: pytest.MonkeyPatch, whole_nbytes: int) -> None:
    monkeypatch.setattr("distarray.ops.sorting.WHOLE_NBYTES", whole_nbytes)
    rng = np.random.default_rng(0)
    a = rng.integers(0, 4, (90, 3))
    team = dx.Team((3,), ("R",))
    x = dx.asarray(a, team=team, sharding=("R", None))
    columns = [dx.asarray(np.array(c), team=team, sharding=("R",)) for c in a.T]
    assert_equal(dx.lexsort(columns), np.lexsort(list(a.T)))
    assert_equal(dx.lexsort(x.T), np.lexsort(a.T))
    for axis in (0, 1):
        ours, theirs = (xp.unique(v, True, True, True, axis=axis) for xp, v in ((dx, x), (np, a)))
        for one, other in zip(ours, theirs, strict=True):
            assert_equal(one, other.reshape(one.shape))
    assert_equal(dx.sort_complex(columns[0]), np.sort_complex(a[:, 0]))


def test_methods_partition_and_sort_in_place() -> None:
    values = np.random.default_rng(0).integers(0, 50, 40)
    with force_tiles(3):
        x = dx.asarray(values)
    x.partition(7)
    assert int(x[7]) == np.sort(values)[7]
    x.sort()
    assert_equal(x, np.sort(values))
    assert int(dx.asarray(values)[dx.asarray(values).argpartition(3)[3]]) == np.sort(values)[3]


def test_few_bytes_come_to_the_host_and_no_tile_is_larger() -> None:
    """Samples of two rounds, whatever the keys; every tile has its share, whatever the skew."""
    n, members = 40_000, 8
    team = dx.Team((members,), ("R",))
    for shape in ("constant", "half", "reversed", "drawn"):
        values = keys("i8", shape, n, 1)
        x = (dx.asarray(values, team=team, sharding=("R",)) + 0).persist()
        with counting() as c:
            y = dx.sort(x).persist()
        assert c.fetched_bytes < n * 8 // 8
        assert c.bytes_moved <= x.nbytes
        # each element in a sorted tile and in a merged one; and the samples
        assert c.allocated_bytes <= 2 * x.nbytes + c.fetched_bytes
        assert max(np.diff(y.sharding.boundaries(y.shape)[0])) == n // members
        assert c.evaluations <= 4
        assert_equal(y, np.sort(values))
        with counting() as c:
            dx.unique_all(x)
            dx.median(x)
        assert c.fetched_bytes < n * 8 // 2


def test_masked_rows_and_counts_of_bins_move_nothing_but_counts() -> None:
    team = dx.Team((4,), ("R",))
    values = np.random.default_rng(0).random((200_000, 3))
    x = (dx.asarray(values, team=team, sharding=("R", None)) + 0).persist()
    for mask, key in ((values[:, 0] > 0.5, x[:, 0] > 0.5), (values > 0.5, x > 0.5)):
        with counting() as c:
            y = x[key].persist()
        assert c.bytes_moved == 0
        assert_equal(y, values[mask])
    row = (x[:, 0] + 0).persist()
    with counting() as c, dx.config.set(block_bytes="1 MiB"):
        counts = dx.histogram(row, bins=np.linspace(0, 1, 11))[0].persist()
    assert c.bytes_moved <= 3 * 12 * 8  # also what falls outside
    assert_equal(counts, np.histogram(values[:, 0], bins=np.linspace(0, 1, 11))[0])


@pytest.mark.parametrize("name", ["sort", "median"])
def test_asking_can_be_forbidden(name: str) -> None:
    x = (dx.asarray(np.arange(10.0), team=dx.Team((2,), ("R",)), sharding=("R",)) + 0).persist()
    with dx.config.set(data_dependent="raise"), pytest.raises(ValueError, match="data-dependent"):
        getattr(dx, name)(x)


@pytest.mark.cluster
def test_sorting_on_a_cluster(cluster4: Any) -> None:
    values = keys("f8", "half", 4_000, 3)
    x = dx.asarray(values, sharding=(dx.current_team().mesh.names,))
    with counting() as c:
        y = dx.sort(x)
        y.persist()
    assert c.fetched_bytes < 16_000
    assert_equal(y, np.sort(values))
    assert_equal(dx.argsort(x), np.argsort(values, stable=True))
    assert_equal(dx.quantile(x, [0.1, 0.9]), np.quantile(values, [0.1, 0.9]))
    for ours, theirs in zip(dx.unique_all(x), np.unique_all(values), strict=True):
        assert_equal(ours, theirs)
