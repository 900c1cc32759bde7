"""Reductions: the table tests itself against numpy, on every dtype and combination of axes."""

from __future__ import annotations

import itertools
import warnings

import catalogue as ops
import numpy as np
import pytest

import distarray as dx
from distarray.expr.op import CATALOGUE

REDUCTIONS = sorted(name for name, op in CATALOGUE.items() if op.kind == "reduce" and not name.endswith(".reduce"))
DTYPES = "? b B h H i I l L e f d F D m8[s] M8[D]".split()
SHAPE = (2, 3, 4)
AXES = [
    None,
    (),
    *itertools.chain.from_iterable(itertools.combinations(range(3), n) for n in (1, 2, 3)),
    1,
    -1,
    (-1, 0),
]
TOLERANCE = {"e": 2e-3, "f": 1e-5, "F": 1e-5, "d": 1e-13, "D": 1e-13}


def sample(dtype, shape=SHAPE, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.integers(0 if np.dtype(dtype).kind in "uMm" else -4, 5, shape)
    if np.dtype(dtype).kind == "c":
        return (x + 1j * rng.integers(-4, 5, shape)).astype(dtype)
    if np.dtype(dtype).kind == "f":
        return (x + rng.random(shape)).astype(dtype)
    return x.astype(dtype)


def arguments(name, axis):
    """numpy's reductions that return an index take one axis."""
    if name.startswith("arg") and isinstance(axis, tuple):
        pytest.skip("one axis")
    return {"axis": axis}


def check(kit, ours, theirs, dtype):
    with np.errstate(over="ignore"):
        try:
            expected = theirs()
        except TypeError:
            with pytest.raises(TypeError):
                ours()
            return
        result = ours()
    tolerance = TOLERANCE.get(np.asarray(expected).dtype.char, 0)
    kit.assert_same(result, expected, rtol=max(tolerance, TOLERANCE.get(dtype, 0)), atol=tolerance * 10)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reduction_over_all_axes_is_numpys(kit, name, keepdims, dtype):
    x = sample(dtype)
    check(
        kit,
        lambda: getattr(ops, name)(kit.node(x), keepdims=keepdims),
        lambda: getattr(np, name)(x, keepdims=keepdims),
        dtype,
    )


@pytest.mark.parametrize("axis", AXES, ids=str)
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reduction_over_axes_is_numpys(kit, name, keepdims, axis):
    kwargs = arguments(name, axis)
    for dtype in ("i", "d"):
        x = sample(dtype)
        if axis == () and name in ("var", "std"):
            continue
        check(
            kit,
            lambda: getattr(ops, name)(kit.node(x), keepdims=keepdims, **kwargs),  # called at once
            lambda: getattr(np, name)(x, keepdims=keepdims, **kwargs),
            dtype,
        )


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (0, 3), (2, 0, 3)], ids=str)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_shapes_without_elements_or_axes(kit, name, shape):
    x = np.ones(shape)
    axes = [None, *range(len(shape))]
    for axis in axes:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            try:
                expected = getattr(np, name)(x, axis=axis)
            except ValueError as error:
                with pytest.raises(type(error)):
                    getattr(ops, name)(kit.node(x), axis=axis)
                continue
            kit.assert_same(getattr(ops, name)(kit.node(x), axis=axis), expected)


def test_extremum_of_nothing_is_an_error_at_the_call_only_where_results_exist(kit):
    x = np.ones((0, 3))
    kit.assert_same_error(lambda: ops.max(kit.node(x), axis=0), lambda: np.max(x, axis=0))
    kit.assert_same(ops.max(kit.node(x), axis=1), np.max(x, axis=1))


@pytest.mark.parametrize("function", ["mean", "var", "std"])
@pytest.mark.parametrize("shape", [(0,), (0, 3)])
def test_moments_of_nothing_warn_at_the_call_as_numpys(kit, function, shape):
    def told(make):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            make()
        return {str(w.message) for w in caught}

    x = np.ones(shape)
    axis = len(shape) - 2 if len(shape) > 1 else None
    assert told(lambda: getattr(ops, function)(kit.node(x), axis=axis)) == told(
        lambda: getattr(np, function)(x, axis=axis)
    )
    with np.errstate(invalid="raise"), pytest.warns(RuntimeWarning), pytest.raises(FloatingPointError):
        getattr(ops, function)(kit.node(x), axis=axis)


@pytest.mark.parametrize("axis", [3, -4, (0, 3), (0, 0), (1, -2), 1.5, "a"], ids=str)
@pytest.mark.parametrize("name", ["sum", "max", "mean", "var", "count_nonzero", "argmax", "all"])
def test_bad_axis_is_numpys_error(kit, name, axis):
    x = np.ones(SHAPE)
    kit.assert_same_error(lambda: getattr(ops, name)(kit.node(x), axis=axis), lambda: getattr(np, name)(x, axis=axis))


@pytest.mark.parametrize("name", ["sum", "prod", "mean", "var", "std"])
@pytest.mark.parametrize("dtype", ["f", "d", "D"])
def test_dtype_is_that_of_the_result(kit, name, dtype):
    x = sample("h")
    check(kit, lambda: getattr(ops, name)(kit.node(x), dtype=dtype), lambda: getattr(np, name)(x, dtype=dtype), dtype)


@pytest.mark.parametrize("name", ["var", "std"])
@pytest.mark.parametrize("correction", [0, 1, 1.5])
@pytest.mark.parametrize("dtype", ["l", "f", "D"])
def test_correction(kit, name, correction, dtype):
    x = sample(dtype)
    for axis in (None, 1):
        expected = getattr(np, name)(x, axis=axis, correction=correction)
        node = getattr(ops, name)(kit.node(x), axis=axis, ddof=correction)
        array = getattr(dx, name)(dx.asarray(x), axis=axis, correction=correction)
        for ours in (node, array.__dx_node__()):
            kit.assert_same(ours, expected, rtol=1e-5 if dtype == "f" else 1e-13)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", ["var", "std"])
@pytest.mark.parametrize("dtype", ["f", "F", "D"])
def test_without_degrees_of_freedom_only_what_is_constant_has_no_variance(name, dtype):
    x = np.array([[1.0, 2.0, 3.0], [4.0, 4.0, 4.0]], dtype)
    for axis in (None, 0, 1):
        for ddof in (6, 9):
            expected = getattr(np, name)(x, axis=axis, ddof=ddof)
            found = getattr(dx, name)(dx.asarray(x), axis=axis, ddof=ddof)
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(np.asarray(found), expected)


def test_correction_and_ddof_exclude_each_other(kit):
    x = np.ones(3)
    kit.assert_same_error(lambda: dx.var(dx.asarray(x), ddof=1, correction=1), lambda: np.var(x, ddof=1, correction=1))


def test_mean_of_half_floats_accumulates_in_single(kit):
    x = np.full(70_000, 1.5, np.float16)
    kit.assert_same(ops.mean(kit.node(x)), x.mean())


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_first_extremum_and_first_nan_win(kit, name):
    x = np.array([[3.0, 1, 3, 1], [1, np.nan, 2, np.nan]])
    for axis in (None, 0, 1):
        kit.assert_same(getattr(ops, name)(kit.node(x), axis=axis), getattr(np, name)(x, axis=axis))


# ---------------------------------------------------------------------------------------------------- cumulative


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d[0] not in "Mm"])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("name", ["cumulative_sum", "cumulative_prod"])
def test_cumulative(kit, name, axis, dtype):
    x = sample(dtype)
    for initial in (False, True):
        kwargs = {"axis": axis, "include_initial": initial}
        kit.assert_same(getattr(ops, name)(kit.node(x), **kwargs), getattr(np, name)(x, **kwargs))


@pytest.mark.parametrize("name", ["cumulative_sum", "cumulative_prod"])
def test_cumulative_needs_an_axis_above_rank_one(kit, name):
    x = np.ones((2, 2))
    kit.assert_same_error(lambda: getattr(ops, name)(kit.node(x)), lambda: getattr(np, name)(x))
    for small in (np.arange(1, 4), np.array(3), np.empty((0,))):
        kit.assert_same(getattr(ops, name)(kit.node(small)), getattr(np, name)(small))


@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
@pytest.mark.parametrize("axis", [None, 0, -1])
def test_numpys_cumulative_flattens(kit, name, axis):
    x = sample("i")
    kit.assert_same(getattr(ops, name)(kit.node(x), axis), getattr(np, name)(x, axis))
    kit.assert_same(getattr(ops, name)(kit.node(x), axis, "f4"), getattr(np, name)(x, axis, "f4"))


# -------------------------------------------------------------------------------------------------- compositions


def test_ptp_and_average(kit):
    x, w = sample("d"), np.array([1.0, 2, 3])
    kit.assert_same(ops.ptp(kit.node(x), axis=1), np.ptp(x, axis=1))
    kit.assert_same(ops.average(kit.node(x)), np.average(x), rtol=1e-14)
    kit.assert_same(ops.average(kit.node(x), axis=1, weights=w), np.average(x, axis=1, weights=w), rtol=1e-14)
    ours = ops.average(kit.node(x), weights=kit.node(x + 9), returned=True)
    kit.assert_same(ours, np.average(x, weights=x + 9, returned=True), rtol=1e-14)
    kit.assert_same_error(lambda: ops.average(kit.node(x), axis=0, weights=w), lambda: np.average(x, axis=0, weights=w))
