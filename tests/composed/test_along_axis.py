"""A user's function along an axis: dtype and shape are those of its first result, and nothing else comes here."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import distarray as dx
from distarray.testing import force_tiles
from distarray.testing.assertions import assert_equal

M = np.arange(60.0).reshape(5, 4, 3)


def later_a_float(vector: Any) -> Any:
    return 1 if vector[0] < 10 else 2.5


def test_first_result_decides_the_dtype() -> None:
    with force_tiles(2):
        made = dx.apply_along_axis(later_a_float, 2, M)
        assert_equal(made, np.apply_along_axis(later_a_float, 2, M))


def test_only_a_description_comes_here() -> None:
    x = dx.asarray(np.arange(40_000.0).reshape(4, 10_000))
    with dx.testing.counting() as c:
        made = dx.apply_along_axis(np.sort, 1, x)
    assert c.fetched_bytes <= 256
    assert_equal(made, x.compute())


def test_function_that_fails_fails_at_the_call() -> None:
    with pytest.raises(ZeroDivisionError):
        dx.apply_along_axis(lambda v: 1 // 0, 0, M)


@pytest.mark.cluster
def test_functions_travel_to_workers(process_cluster: Any) -> None:
    factor = 3.0
    x = dx.asarray(M, sharding=(dx.current_team().axes[0], None, None))
    assert_equal(dx.apply_along_axis(lambda v: v[:2] * factor, 1, x), np.apply_along_axis(lambda v: v[:2] * 3, 1, M))
    made = dx.piecewise(x, [x < 10, x > 40], [lambda v: -v, lambda v: v * factor, 1.0])
    assert_equal(made, np.piecewise(M, [M < 10, M > 40], [lambda v: -v, lambda v: v * 3, 1.0]))
    assert_equal(dx.histogram(x, 4)[0], np.histogram(M, 4)[0])
    assert_equal(dx.packbits(x > 20, axis=1), np.packbits(M > 20, axis=1))


def test_put_along_an_axis_writes_through_views() -> None:
    x = dx.asarray(M)
    host = M.copy()
    np.put_along_axis(x[1:], np.array([[[0], [1], [2], [0]]]), [[7.0]], axis=2)
    np.put_along_axis(host[1:], np.array([[[0], [1], [2], [0]]]), [[7.0]], axis=2)
    assert_equal(x, host)
