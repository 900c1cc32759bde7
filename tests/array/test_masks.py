"""Masks and positions on cut arrays: counts come to the caller, elements stay where they are (B-9)."""

from __future__ import annotations

import re

import numpy as np
import pytest

import distarray as dx
from distarray.testing import counting, force_tiles
from distarray.testing.assertions import assert_equal

CUTS = [((3,), ("R",), ("R", None)), ((3,), ("R",), (None, "R")), ((2, 2), ("R", "C"), ("R", "C"))]


@pytest.fixture(params=CUTS, ids=["rows", "columns", "both"])
def array(request: pytest.FixtureRequest) -> tuple[dx.DistArray, np.ndarray]:
    shape, axes, sharding = request.param
    values = np.random.default_rng(0).random((9, 7))
    return dx.asarray(values, team=dx.Team(shape, axes), sharding=sharding), values


def test_b9_a_mask_brings_one_number_per_part(array: tuple[dx.DistArray, np.ndarray]) -> None:
    x, a = array
    x.persist()
    with counting() as c:
        y = x[x > 0.5]
        assert y.shape == (int((a > 0.5).sum()),)
    assert c.fetched_bytes <= 8 * x.team.size
    np.testing.assert_array_equal(np.asarray(y), a[a > 0.5])


def test_nonzero_and_argwhere_equal_numpy(array: tuple[dx.DistArray, np.ndarray]) -> None:
    x, a = array
    for got, expected in zip(dx.nonzero(x > 0.3), np.nonzero(a > 0.3), strict=True):
        assert got.dtype == expected.dtype
        np.testing.assert_array_equal(np.asarray(got), expected)
    np.testing.assert_array_equal(np.asarray(dx.argwhere(x > 0.3)), np.argwhere(a > 0.3))


@pytest.mark.parametrize("bound", [0.7, -1.0, 2.0])
def test_writes_through_masks_equal_numpy(array: tuple[dx.DistArray, np.ndarray], bound: float) -> None:
    x, a = array
    values = np.arange(float((a > bound).sum()))
    x[x > bound] = dx.asarray(values, team=x.team)
    a[a > bound] = values
    np.testing.assert_array_equal(np.asarray(x), a)
    x[x > 5] += 1
    a[a > 5] += 1
    np.testing.assert_array_equal(np.asarray(x), a)


def test_a_mask_of_one_axis_beside_a_slice(array: tuple[dx.DistArray, np.ndarray]) -> None:
    x, a = array
    rows = np.arange(9) % 2 == 0
    mask = dx.asarray(rows, team=x.team, sharding=("R",))
    np.testing.assert_array_equal(np.asarray(x[mask, 2:4]), a[rows, 2:4])
    np.testing.assert_array_equal(np.asarray(dx.flatnonzero(mask)), np.flatnonzero(rows))


def test_what_a_mask_picked_computes_where_it_lies(array: tuple[dx.DistArray, np.ndarray]) -> None:
    x, a = array
    y = x[x > 0.5]
    np.testing.assert_allclose(np.asarray(y * 2 + 1), a[a > 0.5] * 2 + 1, rtol=1e-15)
    assert x[x > 100].shape == (0,)
    assert float(x[x > 100].sum()) == 0.0


def test_the_option_raise_refuses_shapes_that_depend_on_data(array: tuple[dx.DistArray, np.ndarray]) -> None:
    x, _ = array
    with dx.config.set(data_dependent="raise"), pytest.raises(ValueError, match="data-dependent"):
        x[x > 0.5]


@pytest.mark.parametrize("index", [("m",), (..., "m"), (1, "m"), ("m", ..., None)], ids=str)
@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (4, 0), (4, 3), (0, 2), (2, 3), (0,)], ids=str)
def test_a_mask_without_elements_fits_any_axis(index: tuple[object, ...], shape: tuple[int, ...]) -> None:
    """As in numpy, where only an extent of 0 may differ from that of the axis."""
    a = np.arange(48.0).reshape(4, 4, 3)
    m = np.zeros(shape, bool)
    key = tuple(m if item == "m" else item for item in index)
    try:
        expected = a[key]
    except IndexError as error:
        with pytest.raises(IndexError, match=re.escape(str(error))):
            dx.asarray(a)[key]
        return
    with force_tiles(2):
        x = dx.asarray(a)
        ours = tuple(dx.asarray(m) if item is m else item for item in key)
        assert_equal(x[ours], expected)
        x[ours] = 1.0
        assert_equal(x, a)
