"""Sliding windows are views, and reductions over them never make them."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from helpers import some

import distarray as dx
from distarray.testing import counting, force_tiles
from distarray.testing.assertions import assert_close, assert_equal

windows_of = np.lib.stride_tricks.sliding_window_view
RNG = np.random.default_rng(0)
ARRAYS = {
    "f8": RNG.random((13, 6)),
    "i2": RNG.integers(-50, 50, (13, 6)).astype("i2"),
    "f2": RNG.random((13, 6)).astype("f2"),
    "c16": RNG.random((13, 6)) + 1j * RNG.random((13, 6)),
    "bool": RNG.random((13, 6)) > 0.3,
}
WINDOWS = [(3, 0), (2, 1), ((3, 2), None), ((2, 2), (0, 0)), (11, 0), (13, -2), (1, 1)]


@pytest.fixture(params=[None, 3], ids=["small", "three tiles"])
def tiles(request: pytest.FixtureRequest) -> Iterator[None]:
    with nullcontext() if request.param is None else force_tiles(request.param):
        yield


@pytest.mark.parametrize(("window", "axis"), WINDOWS)
def test_a_view_of_windows_is_numpys(tiles: None, window: Any, axis: Any) -> None:
    x = dx.asarray(ARRAYS["f8"])
    assert_equal(windows_of(x, window, axis=axis), windows_of(ARRAYS["f8"], window, axis=axis))


@pytest.mark.parametrize(("dtype", "windows"), [("f8", WINDOWS), *((dtype, WINDOWS[2:3]) for dtype in ARRAYS)])
@pytest.mark.parametrize("name", some("sum any mean min max all prod count_nonzero var std".split()))
def test_reductions_over_windows_are_numpys(tiles: None, dtype: str, windows: Any, name: str) -> None:
    if dtype in ("c16", "bool") and name in ("max", "min", "var", "std"):
        pytest.skip("numpy's own results are of little use")
    a = ARRAYS[dtype]
    x = dx.asarray(a)
    rtol, atol = (2e-2, 1e-3) if dtype == "f2" else (1e-9, 1e-12)
    for window, axis in windows:
        expected, found = windows_of(a, window, axis=axis), dx.sliding_window_view(x, window, axis)
        own = tuple(range(a.ndim, expected.ndim))
        for axes, keepdims in ((own, False), (own, True), ((0, *own), False)):
            assert_close(
                getattr(dx, name)(found, axis=axes, keepdims=keepdims),
                getattr(np, name)(expected, axis=axes, keepdims=keepdims),
                rtol=rtol,
                atol=atol,
            )


@pytest.mark.parametrize(
    "index",
    [
        0,
        np.s_[:, :, 1],
        np.s_[3, :, 1:3],
        np.s_[::2],
        np.s_[8:2:-2, ::-1],
        np.s_[0:0],
        np.s_[None, 2],
        np.s_[..., -1],
        np.s_[:, 2, [0, 2]],
    ],
)
def test_a_part_of_the_view_reads_a_part_of_the_array(tiles: None, index: Any) -> None:
    a = ARRAYS["f8"]
    found = dx.sliding_window_view(dx.asarray(a), 4, axis=0)[index]
    assert_equal(found, windows_of(a, 4, axis=0)[index])


@pytest.mark.parametrize("index", [np.s_[::2], np.s_[5:1:-1], np.s_[:, 1], np.s_[None, 2:], np.s_[..., 1:]])
@pytest.mark.parametrize("name", ["sum", "max", "std"])
def test_windows_may_be_left_out_before_they_are_reduced(tiles: None, name: str, index: Any) -> None:
    found = dx.sliding_window_view(dx.asarray(ARRAYS["f8"]), 3, axis=0)[index]
    expected = windows_of(ARRAYS["f8"], 3, axis=0)[index]
    assert_close(getattr(dx, name)(found, axis=-1), getattr(np, name)(expected, axis=-1))


def test_writes_show_in_the_view_and_the_view_cannot_be_written() -> None:
    a = ARRAYS["f8"].copy()
    x = dx.asarray(a)
    v = dx.sliding_window_view(x, 3, axis=0)
    x[2], a[2] = 100, 100
    assert_close(v.sum(axis=-1), windows_of(a, 3, axis=0).sum(-1))
    assert dx.shares_memory(v, x)
    with pytest.raises(ValueError, match="read-only"):
        v[0] = 1
    assert_close(pickle.loads(pickle.dumps(v)).sum(axis=-1), windows_of(a, 3, axis=0).sum(-1))


@pytest.mark.parametrize(("window", "axis"), [(14, 0), (-1, 0), ((1, 2, 3), None), (2, 5), (2, None)])
def test_errors_are_numpys(window: Any, axis: Any) -> None:
    with pytest.raises(ValueError) as expected:
        windows_of(ARRAYS["f8"], window, axis=axis)
    with pytest.raises(type(expected.value)):
        dx.sliding_window_view(dx.asarray(ARRAYS["f8"]), window, axis)


@pytest.mark.parametrize(("window", "n_passes"), [(5, 1), (100, 7)])
def test_no_window_is_made_for_a_reduction(window: int, n_passes: int) -> None:
    """Peers, complaint 14: short windows are one pass over the array, long ones a pass for each binary digit."""
    x = dx.arange(4000.0, team=dx.Team((4,), ("T",)), sharding=("T",)).persist()
    with counting() as c:
        y = dx.sliding_window_view(x, window).mean(axis=-1).persist()
    assert c.by_class["tile"] <= 4 * n_passes
    assert c.allocated_bytes <= n_passes * x.nbytes
    assert c.bytes_moved <= 3 * 2 * window * 8
    assert_close(y, windows_of(np.arange(4000.0), window).mean(-1))


def test_one_window_of_a_large_view_costs_one_window() -> None:
    x = dx.arange(4000.0, team=dx.Team((4,), ("T",)), sharding=("T",)).persist()
    with counting() as c:
        assert_equal(dx.sliding_window_view(x, 500)[7], np.arange(7.0, 507.0))
    assert c.allocated_bytes <= 2 * 500 * 8


PRODUCTS = [  # labels of an array, its window and its axes, subscripts
    ("f8", 3, 0, "abk,k->ab"),
    ("f8", 3, 0, "abk,kz->zba"),
    ("f4", (3, 2), None, "abkl,kl->ab"),
    ("f8", (3, 2), (1, 0), "abkl,lk->ba"),
    ("c16", (2, 2), (0, 0), "abkl,lkz->azb"),
    ("i2", 4, 0, "abk,bk->a"),
    ("bool", 3, 0, "abk,k->ab"),
    ("f2", 3, 1, "abk,bk->ab"),
    ("f8", 13, 0, "abk,k->ab"),
    ("f8", 3, 0, "abk,ak->b"),  # sums along the axis that windows slide along: of a view that is made
]


@pytest.mark.parametrize(("dtype", "window", "axis", "subscripts"), PRODUCTS)
def test_products_of_windows_are_numpys(tiles: None, dtype: str, window: Any, axis: Any, subscripts: str) -> None:
    a = ARRAYS["f8"].astype("f4") if dtype == "f4" else ARRAYS[dtype]
    expected = windows_of(a, window, axis=axis)
    extents = dict(zip(subscripts.partition(",")[0], expected.shape, strict=True)) | {"z": 3}
    shape = [extents[label] for label in subscripts.partition(",")[2].partition("->")[0]]
    other = (RNG.random(shape) * 4).astype(dtype)
    found = np.einsum(subscripts, dx.sliding_window_view(dx.asarray(a), window, axis), dx.asarray(other))
    rtol = {"f2": 2e-2, "f4": 1e-4}.get(dtype, 1e-12)
    assert_close(found, np.einsum(subscripts, expected, other), rtol=rtol, atol=1e-12)


@pytest.mark.parametrize(
    ("shape", "window", "axis", "other", "axes"),
    [
        ((7, 0), 2, 0, (0, 4), ((1,), (0,))),
        ((7, 0), 6, 0, (0, 6), ((1, 2), (0, 1))),
        ((0, 9), 2, 1, (2,), 1),
        ((3, 0), 2, 0, (2,), 1),
        ((2, 5), 5, 1, (5, 0), 1),
    ],
)
def test_products_of_windows_without_elements(
    tiles: None, shape: tuple[int, ...], window: int, axis: int, other: tuple[int, ...], axes: Any
) -> None:
    """A sum over nothing is zero, whatever lay in its memory; nothing at all is nothing."""
    a, b = np.zeros(shape), np.ones(other)
    expected = np.tensordot(windows_of(a, window, axis=axis), b, axes)
    for team in (dx.Team((3,), ("a",)), dx.Team((1,), ("a",))):
        used = [dx.full(5000, 7.0, team=team) for _ in range(3)]
        assert float(sum(x.sum() for x in used)) == 15_000 * 7
        del used
        x = dx.asarray(a, team=team, sharding=("a", None))
        assert_equal(dx.tensordot(dx.sliding_window_view(x, window, axis), b, axes), expected)


def test_zeros_of_windows_are_exact_and_events_are_told(tiles: None) -> None:
    """A filter of zeros gives zeros, nan stays nan, and who multiplies is named."""
    a = np.array([1.0, 2.0, np.nan, 4.0, 5.0, 1e308, 1e308, 0.0])
    view, row = dx.sliding_window_view(dx.asarray(a), 2), np.array([1.0, 1.0])
    with pytest.warns(RuntimeWarning, match="overflow encountered in matmul"):
        found = (view @ dx.asarray(np.array([[1.0, 0.0], [1.0, 0.0]]))).persist()
    with np.errstate(all="ignore"):
        assert_equal(found, windows_of(a, 2) @ np.array([[1.0, 0.0], [1.0, 0.0]]))
        assert_equal(view @ dx.asarray(row), windows_of(a, 2) @ row)


@pytest.mark.parametrize("window", [5, 100])
def test_no_window_is_made_for_a_product(window: int) -> None:
    """A weighted moving average holds the array and its result; what members are sent is the halo."""
    a = np.arange(4000.0)
    x, w = dx.arange(4000.0, team=dx.Team((4,), ("T",)), sharding=("T",)).persist(), np.linspace(0, 1, window)
    with counting() as c:
        y = (dx.sliding_window_view(x, window) @ w).persist()
    assert c.by_class["tile"] == 4
    assert c.allocated_bytes <= 2 * x.nbytes
    assert c.bytes_moved <= 3 * window * 8 + 4 * w.nbytes
    assert_close(y, windows_of(a, window) @ w)


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
def test_a_convolution_is_a_task_for_each_tile(mode: Any) -> None:
    """Whatever the length of the row is: members are sent halos."""
    x = dx.arange(4000.0, team=dx.Team((4,), ("T",)), sharding=("T",)).persist()
    row = np.linspace(0, 1, 300)
    with counting() as c:
        y = dx.convolve(x, row, mode).persist()
    assert c.by_class["tile"] == 4
    assert c.bytes_moved == 3 * (row.size - 1) * 8
    assert_equal(y, np.convolve(np.arange(4000.0), row, mode))


def test_the_papers_planner_takes_views_of_windows() -> None:
    """Of stages whose loops count tiles it knows no more than where they lie."""
    a = np.arange(12.0)
    with dx.config.set(objective="paper", eager_bytes=0):
        x = dx.asarray(a, team=dx.Team((2,), ("a",)), sharding=("a",))
        found = np.einsum("ab,a->b", dx.sliding_window_view(x, 3), np.ones(10))
        assert_close(found, np.einsum("ab,a->b", windows_of(a, 3), np.ones(10)))


def test_coarsen_is_dasks(tiles: None) -> None:
    x, a = dx.asarray(ARRAYS["f8"]), ARRAYS["f8"]
    assert_close(dx.coarsen(np.mean, x, {1: 3}), a.reshape(13, 2, 3).mean(2))
    assert_close(dx.coarsen(np.max, x, {0: 4, -1: 2}, trim_excess=True), a[:12].reshape(3, 4, 3, 2).max((1, 3)))
    with pytest.raises(ValueError, match="align"):
        dx.coarsen(np.sum, x, {0: 4})


@pytest.mark.cluster
def test_sliding_windows_on_a_cluster(cluster4: Any) -> None:
    x = dx.asarray(ARRAYS["f8"], sharding=("x", None))
    v = dx.sliding_window_view(x, 3, axis=0)
    assert_equal(v, windows_of(ARRAYS["f8"], 3, axis=0))
    assert_close(v.std(axis=-1), windows_of(ARRAYS["f8"], 3, axis=0).std(-1))
    filter_ = np.ones((3, 2))
    found = np.einsum("abkl,kl->ab", dx.sliding_window_view(x, (3, 2)), filter_)
    assert_close(found, np.einsum("abkl,kl->ab", windows_of(ARRAYS["f8"], (3, 2)), filter_))


@pytest.mark.cluster
@pytest.mark.parametrize("mode", ["full", "same", "valid"])
def test_a_convolution_on_a_cluster_sends_halos(cluster4: Any, mode: Any) -> None:
    a, row = np.arange(40_000.0), np.linspace(0, 1, 300)
    x, w = dx.asarray(a, sharding=("x",)).persist(), dx.asarray(row, sharding=("x",)).persist()
    with counting() as c:
        y = dx.convolve(x, w, mode).persist()
    assert c.bytes_moved == 8 * (3 * (row.size - 1) + 3 * row.size)  # and the row to each
    assert_equal(y, np.convolve(a, row, mode))
