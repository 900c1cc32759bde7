"""Axes without elements beside axes that are cut: every tile of the result is of nothing, in its own shape."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import distarray as dx
from distarray.testing import force_tiles
from distarray.testing.assertions import assert_equal


@pytest.mark.parametrize("name", ["sum", "prod", "any", "all", "count_nonzero", "mean", "std"])
@pytest.mark.parametrize("axis", [1, (1, 2), (0, 1), None], ids=str)
@pytest.mark.parametrize("keepdims", [False, True])
def test_reductions_over_no_elements(name: str, axis: Any, keepdims: bool) -> None:
    a = np.ones((3, 0, 4))
    with force_tiles(3), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        expected = getattr(np, name)(a, axis=axis, keepdims=keepdims)
        assert_equal(getattr(dx, name)(dx.asarray(a), axis=axis, keepdims=keepdims), expected)


@pytest.mark.parametrize("offset", [-617, -1, 0, 3, 100])
def test_trace_of_a_diagonal_outside_of_the_matrices(offset: int) -> None:
    a = np.arange(30.0).reshape(5, 2, 3)
    with force_tiles(3):
        assert_equal(dx.linalg.trace(dx.asarray(a), offset=offset), np.linalg.trace(a, offset=offset))


SHAPES = [
    ((0, 3), 0), ((0, 3), 1), ((3, 0), 0), ((3, 0), 1), ((0, 0), 0), ((0, 0), 1), ((2, 0, 0), 1), ((0,), 0),
    ((0,), None), ((0, 3), None), ((3, 0, 2), (0, 1)), ((3, 0, 0), (0, 1)), ((0, 2, 0), (0, 1)),
]  # fmt: skip


@pytest.mark.parametrize("name", "average mean sum max min amax amin argmax argmin ptp nanmax nanmin nanargmax".split())
@pytest.mark.parametrize(("shape", "axis"), SHAPES)
@pytest.mark.parametrize("tiles", [1, 3])
def test_reductions_of_empty_axes_raise_where_numpys_do(name: str, shape: Any, axis: Any, tiles: int) -> None:
    """Also where the result has no elements: max, argmax and ptp need some to reduce, average some to count."""
    if isinstance(axis, tuple) and "arg" in name:
        pytest.skip("one axis")
    a = np.zeros(shape)
    with warnings.catch_warnings(), force_tiles(tiles):
        warnings.simplefilter("ignore", RuntimeWarning)
        x = dx.asarray(a)
        try:
            expected = getattr(np, name)(a, axis=axis)
        except (ValueError, ZeroDivisionError) as error:
            with pytest.raises(type(error)):
                getattr(dx, name)(x, axis=axis)
            with pytest.raises(type(error)):
                getattr(np, name)(x, axis=axis)
        else:
            assert_equal(getattr(dx, name)(x, axis=axis), expected)


@pytest.mark.parametrize("name", ["maximum", "minimum", "subtract", "fmax", "logical_or", "add"])
@pytest.mark.parametrize(("shape", "axis"), [(s, a) for s, a in SHAPES if isinstance(a, int)])
def test_methods_of_ufuncs_over_empty_axes_raise_where_numpys_do(name: str, shape: Any, axis: int) -> None:
    a, ufunc = np.zeros(shape), getattr(np, name)
    try:
        expected = ufunc.reduce(a, axis=axis)
    except ValueError:
        with pytest.raises(ValueError, match="no identity"):
            ufunc.reduce(dx.asarray(a), axis=axis)
    else:
        assert_equal(ufunc.reduce(dx.asarray(a), axis=axis), expected)


def test_weights_of_no_elements_sum_to_zero() -> None:
    for shape, weights in (((0, 3), []), ((0, 3), np.zeros((0, 3)))):
        with pytest.raises(ZeroDivisionError):
            np.average(np.zeros(shape), axis=0, weights=weights)
        with pytest.raises(ZeroDivisionError):
            dx.average(dx.zeros(shape), axis=0, weights=np.array(weights))
    assert_equal(dx.average(dx.zeros((0, 3)), axis=1, weights=np.ones(3)), np.zeros(0))


@pytest.mark.filterwarnings("ignore:divide by zero")
@pytest.mark.parametrize("order", [None, np.inf, -np.inf, 0, 1, -1, 2, -2, "nuc"])
@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0), (2, 0, 3), (0, 2, 2)])
def test_norms_of_no_elements_are_numpys(order: Any, shape: Any) -> None:
    a = np.zeros(shape)
    for axis in (0, 1, (0, 1)):
        try:
            expected = np.linalg.norm(a, order, axis=axis)
        except ValueError:
            with pytest.raises(ValueError, match=r"."):
                dx.linalg.norm(dx.asarray(a), order, axis=axis)
        else:
            assert_equal(dx.linalg.norm(dx.asarray(a), order, axis=axis), expected)


@pytest.mark.parametrize("dtype", ["f2", "f4", "i4"])
@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (2, 0, 3)])
def test_pinv_of_a_matrix_without_elements_has_any_dtype(dtype: str, shape: Any) -> None:
    a = np.zeros(shape, dtype)
    assert_equal(dx.linalg.pinv(dx.asarray(a)), np.linalg.pinv(a))


@pytest.mark.parametrize("method", ["sort", "argsort", "partition"])
@pytest.mark.parametrize("tiles", [1, 3])
def test_sorting_rows_of_which_there_are_none(method: str, tiles: int) -> None:
    """No vector to sort along an axis that has elements, as ``reduceat`` of an array without columns leaves it."""
    kth = (0,) if method == "partition" else ()

    def call(x: Any) -> Any:
        found = np.add.reduceat(x, [0, 1], axis=0)
        result = getattr(found, method)(*kth, axis=0)
        return found if result is None else result

    with force_tiles(tiles):
        assert_equal(call(dx.asarray(np.zeros((3, 0)))), call(np.zeros((3, 0))))


@pytest.mark.parametrize("power", [-1, -3, np.int64(-2)])
def test_integers_of_which_there_are_none_have_negative_powers(power: Any) -> None:
    for shape in ((0,), (0, 3)):
        a = np.ones(shape, int)
        assert_equal(dx.asarray(a) ** power, a**power)
        assert_equal(np.power(dx.asarray(a), power), np.power(a, power))
        x = dx.asarray(a)
        x **= power
        assert_equal(x, a)
    with pytest.raises(ValueError, match="negative integer powers"):
        dx.asarray([1]) ** power
    with pytest.raises(OverflowError):
        dx.asarray([1], dtype="u1") ** -1
