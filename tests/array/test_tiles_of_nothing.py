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
