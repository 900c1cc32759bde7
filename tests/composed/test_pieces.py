"""Arrays put together of pieces and cut out of larger ones, where numpy's call in the table says too little."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import distarray as dx
from distarray.testing import force_tiles
from distarray.testing.assertions import assert_equal

BORDERED = np.pad(np.array([[1.0, 0.0, 2.0], [0.0, 3.0, 0.0]]), ((1, 2), (2, 1)))


@pytest.mark.parametrize("tiles", [1, 2])
@pytest.mark.parametrize(
    ("trim", "axis", "expected"),
    [
        ("fb", None, BORDERED[1:3, 2:5]),
        ("f", None, BORDERED[1:, 2:]),
        ("b", 0, BORDERED[:3]),
        ("fb", -1, BORDERED[:, 2:5]),
        ("fb", (), BORDERED),
    ],
)
def test_zeros_are_trimmed_along_each_axis(trim: str, axis: Any, expected: Any, tiles: int) -> None:
    with force_tiles(tiles):
        assert_equal(dx.trim_zeros(BORDERED, trim, axis), expected)


def test_nothing_is_left_of_zeros() -> None:
    assert dx.trim_zeros(np.zeros((2, 3))).shape == (0, 0)
    assert dx.trim_zeros(np.zeros((2, 3)), axis=0).shape == (0, 3)


def test_trimmed_array_is_a_view() -> None:
    x = dx.asarray(BORDERED)
    dx.trim_zeros(x)[...] = 9.0
    assert_equal(x, np.where(np.pad(np.ones((2, 3)), ((1, 2), (2, 1))) > 0, 9.0, 0.0))


def test_function_of_a_part_gets_its_elements_and_is_not_called_without_any() -> None:
    seen = []

    def centred(values: Any) -> Any:
        seen.append(values.shape)
        return values - values.mean()

    x = np.arange(10.0)
    made = dx.piecewise(x, [x > 5, x > 20], [centred, centred])
    assert_equal(made, np.piecewise(x, [x > 5, x > 20], [lambda v: v - v.mean(), lambda v: v]))
    assert seen == [(4,)]


def test_zeros_of_a_polynomial_are_real_where_numpys_are() -> None:
    assert dx.roots([1.0, -6.0, 11.0, -6.0, 0.0]).dtype == np.float64
    assert dx.roots([1.0, 0.0, 1.0]).dtype == np.complex128
    assert dx.roots([0.0, 0.0]).shape == (0,)
    assert dx.poly(np.array([1j, -1j])).dtype == np.float64
    assert dx.poly(np.array([1j, 1.0])).dtype == np.complex128
