"""What large arrays do other than small ones, which numpy computes at the call: values, dtypes and errors of numpy."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import distarray as dx


@pytest.fixture(autouse=True)
def nothing_at_the_call() -> Iterator[None]:
    """As large ones go: no array is computed at the call, all are planned."""
    with dx.config.set(eager_bytes=0, block_bytes=0):
        yield


def assert_equal(made: Any, expected: Any) -> None:
    made = np.asarray(made)
    assert made.dtype == expected.dtype
    np.testing.assert_array_equal(made, expected)


@pytest.mark.parametrize("name", ["fmax", "fmin", "maximum", "minimum"])
@pytest.mark.parametrize("dtype", ["i1", "u1", "?", "f4"])
def test_extremes_are_those_of_what_is_cast(name: str, dtype: str) -> None:
    a = np.random.default_rng(0).integers(-1000, 1000, (20, 30))
    expected = getattr(np, name).reduce(a, axis=0, dtype=dtype)
    assert_equal(getattr(dx, name).reduce(dx.asarray(a), axis=0, dtype=dtype), expected)


@pytest.mark.parametrize("unit", ["m8[s]", "m8[ms]"])
def test_times_are_accumulated_into_out(unit: str) -> None:
    t = np.random.default_rng(0).integers(-5, 9, (20, 15)).astype("m8[s]")
    x = dx.asarray(t)
    for name in ("add", "maximum", "fmin"):
        ours, theirs = getattr(dx, name), getattr(np, name)
        made, expected = dx.empty(t.shape, unit), np.empty(t.shape, unit)
        ours.accumulate(x, axis=1, out=made)
        theirs.accumulate(t, axis=1, out=expected)
        assert_equal(made, expected)
        made, expected = dx.empty((20, 2), unit), np.empty((20, 2), unit)
        ours.reduceat(x, [0, 4], axis=1, out=made)
        theirs.reduceat(t, [0, 4], axis=1, out=expected)
        assert_equal(made, expected)


@pytest.mark.parametrize("name", ["add", "multiply", "less", "equal", "maximum", "bitwise_and", "floor_divide"])
@pytest.mark.parametrize("number", [3, 300, -2])
@pytest.mark.parametrize(
    "options",
    [{"casting": "unsafe"}, {"casting": "safe"}, {"dtype": "u8"}, {"dtype": "i1", "casting": "unsafe"}],
    ids=str,
)
def test_integers_out_of_bounds_do_not_wrap(name: str, number: int, options: dict[str, Any]) -> None:
    a = np.arange(1, 100).astype("u1")
    for swap in (False, True):
        both = [operator.itemgetter(*((1, 0) if swap else (0, 1)))((x, number)) for x in (a, dx.asarray(a))]
        try:
            expected = getattr(np, name)(*both[0], **options)
        except (OverflowError, TypeError) as error:
            kinds = (TypeError,) if isinstance(error, TypeError) else (OverflowError,)
            with pytest.raises(kinds):
                np.asarray(getattr(dx, name)(*both[1], **options))
        else:
            assert_equal(getattr(dx, name)(*both[1], **options), expected)


@pytest.mark.parametrize("dtypes", [("f4", "u2"), ("i2", "f4"), ("f8", "f4"), ("i4", "i4")])
def test_edges_along_all_axes_have_one_dtype(dtypes: tuple[str, str]) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(0, 100, 300).astype(d) for d in dtypes)
    expected = np.histogram2d(a, b, bins=4)
    for made, wanted in zip(dx.histogram2d(dx.asarray(a), dx.asarray(b), bins=4), expected, strict=True):
        assert_equal(made, wanted)


@pytest.mark.parametrize("mode", ["raise", "wrap", "clip"])
def test_no_positions_may_be_those_of_no_elements(mode: str) -> None:
    none = np.zeros(0, np.intp)
    expected = np.ravel_multi_index((none, none), (0, 3), mode=mode)  # type: ignore[call-overload]
    assert_equal(dx.ravel_multi_index((dx.asarray(none), dx.asarray(none)), (0, 3), mode=mode), expected)
    with pytest.raises(ValueError, match="cannot unravel if shape has zero entries"):
        dx.ravel_multi_index((dx.asarray([0]), dx.asarray([0])), (0, 3), mode=mode)
