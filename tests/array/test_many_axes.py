"""Arrays have up to 64 axes, as in NumPy; what computes a common shape does not end at 32, as some of NumPy's does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distarray as dx

N_AXES = 40
POINTS = (np.array([0, 1]), np.array([0, 2]), *[np.array([0, 0])] * (N_AXES - 2))


def written(x: Any, index: Any, value: Any) -> Any:
    x[index] = value
    return x


#: What has a common shape of more than 32 axes, of operands, results or index arrays.
CALLS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "add": lambda xp, a, b: a + b,
    "add, out": lambda xp, a, b: xp.add(a, b, out=xp.zeros((a + b).shape)),
    "add, wider out": lambda xp, a, b: xp.add(a, 1, out=xp.zeros((a + b).shape)),
    "equal, a string": lambda xp, a, b: a == "a",
    "not equal, None": lambda xp, a, b: a != None,  # noqa: E711  # elementwise
    "logaddexp, chain": lambda xp, a, b: xp.logaddexp(xp.exp(-((a - b) ** 2)), b).sum(0),
    "index, points": lambda xp, a, b: a[POINTS],
    "index, mesh": lambda xp, a, b: a[np.ix_([1, 0], [2, 0], *[[0]] * (N_AXES - 2))],
    "write, points": lambda xp, a, b: written(a, POINTS, 7),
    "write, mesh": lambda xp, a, b: written(a, np.ix_([1, 0], [2, 0], *[[0]] * (N_AXES - 2)), 7),
    "take_along_axis": lambda xp, a, b: xp.take_along_axis(a, xp.zeros(a.shape, int), 0),
    "where": lambda xp, a, b: xp.where(a > 2, a, b),
    "nan_to_num": lambda xp, a, b: xp.nan_to_num(xp.where(a > 2, np.nan, a), nan=7),
}


@pytest.mark.parametrize(
    "options",
    [{}, {"eager_bytes": 0}, {"eager_bytes": 0, "block_bytes": 16}],
    ids=["at the call", "deferred", "in several tiles"],
)
@pytest.mark.parametrize("name", CALLS)
def test_common_shapes_have_more_than_32_axes(name: str, options: dict[str, Any]) -> None:
    a = np.arange(6.0).reshape(2, 3, *[1] * (N_AXES - 2))
    b = np.arange(2.0).reshape(*[1] * (N_AXES - 1), 2)
    with dx.config.set(**options):
        made = np.asarray(CALLS[name](dx, dx.asarray(a.copy()), dx.asarray(b)))
    expected = CALLS[name](np, a.copy(), b)
    assert made.dtype == expected.dtype
    np.testing.assert_allclose(made, expected)


def test_index_arrays_without_a_common_shape_of_many_axes_are_refused() -> None:
    x = dx.zeros((2, 3))
    with dx.config.set(eager_bytes=0), pytest.raises(IndexError, match="shape mismatch: indexing arrays"):
        x[np.zeros((2, *[1] * 39), int), np.zeros((3, *[1] * 39), int)]
