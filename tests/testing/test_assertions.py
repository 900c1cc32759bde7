"""The test kit finds what it is for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import distarray as dx
from distarray.testing import force_tiles
from distarray.testing.assertions import assert_close, assert_equal


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        (dx.arange(3), np.array([0, 1, 3])),
        (dx.arange(3), np.arange(3.0)),
        (dx.arange(3), np.arange(3).reshape(1, 3)),
        (np.arange(3), np.arange(3)),
        (dx.asarray([np.nan]), np.array([0.0])),
    ],
)
def test_difference_is_found(actual: Any, expected: Any) -> None:
    with pytest.raises(AssertionError):
        assert_equal(actual, expected)


def test_equal_arrays_pass_with_their_sharding() -> None:
    team = dx.Team((2,), ("x",))
    x = dx.asarray([1.0, np.nan], team=team, sharding=("x",))
    assert_equal(x, np.array([1, np.nan]), sharding=x.sharding)
    with pytest.raises(AssertionError, match="sharding"):
        assert_equal(x, np.array([1, np.nan]), sharding=dx.Sharding.whole(team.mesh, 1))
    assert_close(x, np.array([1 + 1e-9, np.nan]))


def test_forced_tiles_are_uneven_and_go_through_tasks() -> None:
    host = np.arange(30.0).reshape(5, 6)
    with force_tiles(3), dx.testing.counting() as c:
        x = dx.asarray(host)
        assert x.sharding.boundaries(x.shape) == ((0, 0, 2, 5), (0, 1, 3, 6))
        assert_equal(x + 1, host + 1)
        assert dx.zeros(()).sharding.n_tiles == 1
        written = dx.zeros(12)
        written[3] = 1.0
        made = [
            dx.ones((4, 5)),
            dx.arange(10) + 0,
            written,
            written.reshape(3, 4),
            dx.sum(x, axis=0),
            dx.linalg.svd(x).S,
        ]
        assert [y.persist().sharding.n_tiles for y in made] == [9, 3, 3, 9, 3, 3]
        assert dx.ones((1,) * 20).sharding.n_tiles == 27
    assert c.tasks > 3
    assert c.inline == 0
    assert dx.asarray(host).sharding.n_tiles == 1
    with pytest.raises(ValueError, match="too few"), force_tiles(0):
        pass


def test_numpys_assertions_are_named_where_they_are_looked_for() -> None:
    with pytest.raises(AttributeError, match=r"use np\.testing\.assert_allclose, which takes a DistArray"):
        _ = dx.testing.assert_allclose
    with pytest.raises(AttributeError, match=r"'distarray\.testing' has no attribute 'nothing'$"):
        _ = dx.testing.nothing
    np.testing.assert_allclose(dx.arange(3.0), [0.0, 1.0, 2.0])
