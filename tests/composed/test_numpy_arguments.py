"""numpy's arguments find their places in our signatures, whatever names and positions these have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import distarray as dx
from distarray.composed.numpy_arguments import Refused, call
from distarray.testing.assertions import assert_equal


def numpys(a: Any, n: Any = None, axis: int = -1, norm: Any = None, out: Any = None, order: str = "K") -> Any:
    """As functions of numpy are."""


def standards(x: Any, /, *, axis: int = -1, n: Any = None, norm: Any = "backward") -> tuple[Any, ...]:
    """As functions of the standard are."""
    return x, axis, n, norm


@pytest.mark.parametrize(
    ("args", "kwargs", "expected"),
    [
        ((1,), {}, (1, -1, None, "backward")),
        ((1, 5, 0), {}, (1, 0, 5, "backward")),
        ((1, 5, 0, "ortho"), {}, (1, 0, 5, "ortho")),
        ((), {"a": 1, "axis": 2}, (1, 2, None, "backward")),
        ((1,), {"out": None, "order": "F"}, (1, -1, None, "backward")),
        ((1, np._NoValue, 3), {}, (1, 3, None, "backward")),
    ],
)
def test_positions_become_keywords(args: tuple[Any, ...], kwargs: dict[str, Any], expected: tuple[Any, ...]) -> None:
    assert call(numpys, standards, args, kwargs) == expected


def test_other_name_at_the_same_position_is_the_same_argument() -> None:
    def theirs(N: int, M: Any = None, k: int = 0) -> None: ...

    def ours(n_rows: int, n_cols: Any = None, k: int = 0) -> tuple[Any, ...]:
        return n_rows, n_cols, k

    assert call(theirs, ours, (3,), {"M": 4}) == (3, 4, 0)
    assert call(theirs, ours, (), {"k": 1, "N": 2}) == (2, None, 1)


def test_argument_that_we_lack_is_dropped_if_it_says_the_default_and_refused_otherwise() -> None:
    def theirs(a: Any, mode: str = "raise", weights: Any = None) -> None: ...

    def ours(a: Any, weights: Any = None) -> tuple[Any, ...]:
        return a, weights

    assert call(theirs, ours, (1, "raise", 3), {}) == (1, 3)
    with pytest.raises(Refused, match="no mode= here"):
        call(theirs, ours, (1, "clip"), {})
    with pytest.raises(Refused, match="no mode= here"):
        call(theirs, ours, (1,), {"mode": "wrap"})


def test_out_is_written_by_functions_that_know_none() -> None:
    out = dx.zeros(3)
    x = dx.asarray([1.0, -4.0, 2.0])
    assert call(numpys, lambda a: a * 2, (x,), {"out": out}) is out
    assert_equal(out, np.array([2.0, -8.0, 4.0]))


def test_refusal_says_which_argument_and_the_way_out() -> None:
    x = dx.arange(4.0)
    with pytest.raises(dx.NotSupportedError, match=r"numpy\.empty_like with these arguments \(no subok= here\)"):
        np.empty_like(x, subok="maybe")


def test_like_makes_arrays_where_the_other_one_lives() -> None:
    x = dx.zeros(3, team=None)
    made = np.arange(4, like=x)
    assert isinstance(made, dx.DistArray)
    assert made.team is None
    assert dx.arange(4).team is not None
