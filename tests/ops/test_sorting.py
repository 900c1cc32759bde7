"""Sorting, searching and quantiles are numpy's."""

from __future__ import annotations

import catalogue as ops
import numpy as np
import pytest

import distarray as dx

DTYPES = ["?", "b", "H", "i", "l", "e", "f", "d", "D", "M8[s]", "m8[D]"]


def sample(dtype, shape=(3, 4, 5)):
    x = np.random.default_rng(0).integers(0, 9, shape)
    x = x.astype(dtype)
    if x.dtype.kind == "f":
        x.flat[::7] = np.nan
    return x


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("axis", [0, 1, -1, None])
def test_sort_and_argsort_are_numpys(kit, axis, dtype):
    x = sample(dtype)
    kit.assert_same(ops.sort(kit.node(x), axis=axis), np.sort(x, axis=axis, stable=True))
    kit.assert_same(ops.argsort(kit.node(x), axis=axis), np.argsort(x, axis=axis, stable=True))


@pytest.mark.parametrize("dtype", ["b", "l", "d"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_descending_keeps_equals_in_order(kit, axis, dtype):
    x = np.nan_to_num(sample(dtype)).astype(dtype)
    order = kit.evaluate(ops.argsort(kit.node(x), axis=axis, descending=True))
    np.testing.assert_array_equal(order, np.argsort(-x.astype("f8"), axis=axis, stable=True))
    kit.assert_same(ops.sort(kit.node(x), axis=axis, descending=True), np.take_along_axis(x, order, axis))


def test_sort_of_nothing_and_bad_axes(kit):
    for shape in ((0,), (2, 0), (0, 3)):
        x = np.ones(shape)
        kit.assert_same(ops.sort(kit.node(x)), np.sort(x))
        kit.assert_same(ops.argsort(kit.node(x)), np.argsort(x))
    for x in (np.array(3), np.ones((2, 2))):
        kit.assert_same_error(lambda: ops.sort(kit.node(x), axis=2), lambda: np.sort(x, axis=2))


@pytest.mark.parametrize("side", ["left", "right"])
def test_searchsorted(kit, side):
    row = np.array([1, 2, 2, 3, 7])
    for sought in (np.array(2), np.array([[0, 2], [8, 3]]), np.array([2.5, 7]), np.empty(0)):
        kit.assert_same(
            ops.searchsorted(kit.node(row), kit.node(sought), side=side), np.searchsorted(row, sought, side)
        )
    kit.assert_same(ops.searchsorted(kit.node(row), 2, side=side), np.asarray(np.searchsorted(row, 2, side)))
    mixed = row[[3, 0, 4, 2, 1]]
    order = np.argsort(mixed, stable=True)
    kit.assert_same(
        ops.searchsorted(kit.node(mixed), kit.node(sought), side=side, sorter=kit.node(order)),
        np.searchsorted(mixed, sought, side, order),
    )


def test_bad_searchsorted_is_an_error_at_the_call(kit):
    row = np.arange(4)
    node = kit.node(row)
    kit.assert_same_error(lambda: ops.searchsorted(node, 1, side="up"), lambda: np.searchsorted(row, 1, "up"))
    kit.assert_same_error(
        lambda: ops.searchsorted(kit.node(row.reshape(2, 2)), 1), lambda: np.searchsorted(row.reshape(2, 2), 1)
    )
    for sorter in (np.ones(4), np.arange(3)):
        kit.assert_same_error(
            lambda: ops.searchsorted(node, 1, sorter=kit.node(sorter)),
            lambda: np.searchsorted(row, 1, sorter=sorter),
        )


@pytest.mark.parametrize("axis", [None, 0, 1, (0, 2), (-1, 0)], ids=str)
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("dtype", ["l", "e", "f", "d"])
def test_quantiles_are_numpys(kit, dtype, keepdims, axis):
    x = np.nan_to_num(sample(dtype)) + np.arange(60).reshape(3, 4, 5).astype(dtype) / (2 if dtype in "efd" else 1)
    x = x.astype(dtype)
    kit.assert_same(ops.median(kit.node(x), axis=axis, keepdims=keepdims), np.median(x, axis=axis, keepdims=keepdims))
    for q in (0.5, 0, [0.1, 0.9], [[0.1, 0.2], [0.3, 1]]):
        kwargs = {"axis": axis, "keepdims": keepdims}
        kit.assert_same(
            ops.quantile(kit.node(x), q, **kwargs), np.quantile(x, q, **kwargs), rtol=1e-3 if dtype == "e" else 1e-6
        )
        percents = np.multiply(q, 100).tolist()
        kit.assert_same(
            ops.percentile(kit.node(x), percents, **kwargs),
            np.percentile(x, percents, **kwargs),
            rtol=1e-3 if dtype == "e" else 1e-6,
        )


@pytest.mark.parametrize("method", ["lower", "higher", "nearest", "midpoint", "hazen", "median_unbiased"])
def test_quantile_methods(kit, method):
    x = np.random.default_rng(0).standard_normal((4, 7))
    kit.assert_same(
        ops.quantile(kit.node(x), [0.2, 0.5], 1, method=method),
        np.quantile(x, [0.2, 0.5], 1, method=method),
        rtol=1e-14,
    )


def test_bad_quantiles_are_errors_at_the_call(kit):
    x = np.ones(3)
    kit.assert_same_error(lambda: ops.quantile(kit.node(x), 1.5), lambda: np.quantile(x, 1.5))
    kit.assert_same_error(lambda: ops.percentile(kit.node(x), 101), lambda: np.percentile(x, 101))
    kit.assert_same_error(lambda: ops.median(kit.node(x), axis=1), lambda: np.median(x, axis=1))
    z = np.ones(3, complex)
    kit.assert_same_error(lambda: ops.quantile(kit.node(z), 0.5), lambda: np.quantile(z, 0.5))


@pytest.mark.parametrize(
    ("name", "q"), [("median", ()), ("nanmedian", ()), ("quantile", ([0.1, 0.5],)), ("quantile", (0.3,))]
)
@pytest.mark.parametrize("axis", [0, 1, 2, (0, 2)])
def test_rows_are_ordered_some_at_a_time(monkeypatch, name, q, axis):
    """Of all rows at once NumPy makes a copy or two, which nobody counts; the values are the same."""
    monkeypatch.setattr("distarray.kernels.sorting.ROWS_NBYTES", 300)
    a = np.random.default_rng(0).random((7, 5, 9))
    a[2, 3, 4] = np.nan
    x = dx.asarray(a)
    with dx.config.set(eager_bytes=0, block_bytes=0):
        found = getattr(dx, name)(x, *q, axis=axis)
        np.testing.assert_array_equal(np.asarray(found), getattr(np, name)(a, *q, axis=axis))
    np.testing.assert_array_equal(np.asarray(x), a)  # nothing is ordered in place
