"""Floating-point events are numpy's: the same warnings, errors and calls, wherever elements are computed."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest import mock

import numpy as np
import pytest

import distarray as dx
from distarray.kernels import interpret
from distarray.testing import force_tiles


@contextmanager
def in_passes() -> Iterator[None]:
    """Compute few elements as many are: in passes over memory."""
    with dx.config.set(eager_bytes=0), mock.patch.object(interpret, "HELPED", 1):
        yield


WAYS = {
    "at the call": nullcontext,
    "when it is seen": lambda: dx.config.set(eager_bytes=0),
    "in tiles": lambda: force_tiles(2),
    "in passes": in_passes,
}
MODES = ("warn", "raise", "ignore", "call", "log")


@pytest.fixture(params=list(WAYS))
def way(request: pytest.FixtureRequest) -> Iterator[None]:
    with WAYS[request.param]():
        yield


class _Log:
    def __init__(self) -> None:
        self.text: set[str] = set()

    def write(self, text: str) -> None:
        self.text.add(text)


def outcome(function: Callable[[Any, Any], Any], xp: Any, x: Any, mode: str) -> Any:
    """What a function gives, raises, warns of, calls and logs."""
    called: set[str] = set()
    handlers = {"call": lambda kind, _flag: called.add(kind), "log": _Log()}
    error, value = None, None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with np.errstate(call=handlers.get(mode), divide=mode, over=mode, invalid=mode):  # type: ignore[call-overload]  # str
            try:
                value = np.asarray(function(xp, x))
            except FloatingPointError as raised:
                error = str(raised)
    said = {(w.category, str(w.message)) for w in caught}
    logged = handlers["log"].text
    return value, error, said, called, logged


HUGE, INFINITE = np.array([[3e38, 3e38, 3e38], [1, 2, 3]], "f4"), np.array([[np.inf, -np.inf, 1], [1, 2, 0]])
NANS = np.array([[np.nan, np.nan, np.nan], [1, np.nan, 3], [np.nan, np.nan, 2]])
CASES: dict[str, tuple[Callable[[Any, Any], Any], np.ndarray]] = {
    "a quotient": (lambda xp, x: 1 / x, INFINITE),
    "a sum that overflows": (lambda xp, x: xp.sum(x, axis=1), HUGE),
    "a sum of rows that overflows": (lambda xp, x: xp.sum(xp.concat([x, x]), axis=0), HUGE),
    "a sum of infinities": (lambda xp, x: xp.sum(x), INFINITE),
    "a sum cast to integers": (lambda xp, x: xp.sum(x, axis=0, dtype="i4"), INFINITE),
    "a mean of infinities": (lambda xp, x: xp.mean(x, axis=1), INFINITE),
    "a mean rounded to half floats": (lambda xp, x: xp.mean(x, axis=1, dtype="f2"), np.full((2, 3), 6e4, "f2")),
    "a matrix product of half floats": (lambda xp, x: x @ x.T, np.full((2, 3), 6e4, "f2")),
    "an inner product that overflows": (lambda xp, x: xp.dot(x[0], x[0]), HUGE),
    "an einsum that overflows": (lambda xp, x: xp.einsum("ij,kj->ik", x, x), HUGE),
    "a sum of half floats": (lambda xp, x: xp.sum(x, axis=1), np.full((2, 3), 6e4, "f2")),
    "a mean of nothing": (lambda xp, x: xp.mean(x[:0], axis=0), HUGE),
    "a variance of nothing": (lambda xp, x: xp.var(x[:0]), HUGE),
    "a variance of one": (lambda xp, x: xp.var(x[:1], axis=0, ddof=1), NANS[1:]),
    "a mean where nothing counts": (
        lambda xp, x: xp.mean(x, axis=1, where=xp.asarray([[True], [False]])),
        INFINITE[::-1],
    ),
    "a variance where little counts": (
        lambda xp, x: xp.var(x, axis=0, ddof=1, where=xp.asarray([[True], [False], [False]])),
        np.arange(9.0).reshape(3, 3),
    ),
    "a nanmean of nothing": (lambda xp, x: xp.nanmean(x, axis=1), NANS),
    "a nanmean of columns": (lambda xp, x: xp.nanmean(x, axis=0), NANS),
    "a nanvar of nothing": (lambda xp, x: xp.nanvar(x, axis=1), NANS),
    "a nanstd of little": (lambda xp, x: xp.nanstd(x, axis=1, ddof=1), NANS),
    "a nanmax of nothing": (lambda xp, x: xp.nanmax(x, axis=1), NANS),
    "a nanmin of columns": (lambda xp, x: xp.nanmin(x, axis=0, keepdims=True), NANS),
    "a median of nothing": (lambda xp, x: xp.median(x[:0]), INFINITE),
    "a median of nothing in rows": (lambda xp, x: xp.median(x[:, :0], axis=1), INFINITE),
    "a nanmax of no time": (
        lambda xp, x: xp.nanmax(x, axis=1),
        np.array([["NaT", "NaT", "NaT"], [1, "NaT", 3]], "m8[s]"),
    ),
    "a nanmin of nothing at all": (lambda xp, x: xp.nanmin(x), np.full((3, 2), np.nan, "f4")),
}


@pytest.mark.parametrize("mode", ["warn", "raise"])
@pytest.mark.parametrize("name", ["a mean rounded to half floats", "a sum of half floats"])
def test_what_one_tile_finishes_is_told_too(name: str, mode: str) -> None:
    function, x = CASES[name]
    team = dx.Team((2,), ("R",))
    with dx.config.set(eager_bytes=0, block_bytes=0):
        found = outcome(function, dx, dx.asarray(x, team=team, sharding=("R", None)), mode)
    assert found[1:] == outcome(function, np, x, mode)[1:]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", CASES)
def test_what_is_met_is_told_as_by_numpy(way: None, name: str, mode: str) -> None:
    function, x = CASES[name]
    value, *expected = outcome(function, np, x, mode)
    found, *said = outcome(function, dx, dx.asarray(x), mode)
    assert said == expected
    if value is not None:
        assert found.dtype == value.dtype
        np.testing.assert_allclose(found, value, rtol=1e-6)


def test_each_operation_has_the_state_of_its_own_line(way: None) -> None:
    """Also where they are fused, and the last of them is computed at the call."""
    x = dx.asarray(np.arange(6.0))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        quotient = 1 / x
        with np.errstate(all="ignore"):
            root = np.sqrt(x - 3)
        with np.errstate(all="raise"):
            total = np.asarray(quotient + root)
        np.testing.assert_array_equal(np.isnan(total), np.arange(6) < 3)
        with np.errstate(invalid="raise"), pytest.raises(FloatingPointError, match="encountered in log"):
            np.log(x - 3)
    assert {str(w.message) for w in caught} == {"divide by zero encountered in divide"}


def two_of_a_name(x: Any) -> list[tuple[int, str]]:
    """Return what is told, and of which line, of functions that are called twice, in two states."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with np.errstate(all="ignore"):
            ignored = (x - 3) / (x - 3)
            few = np.log(x[:3] - 1)
        np.asarray(ignored / 2)
        np.asarray((ignored / 2).sum())
        np.asarray(np.log(np.exp(few)[:, None] + (x[None, :] + 1000)))
        warned = (x - 4) / (x - 4)
        with np.errstate(all="raise"):
            np.asarray((warned + ignored) / 2)
            with pytest.raises(FloatingPointError, match="divide by zero encountered in divide"):
                np.asarray((ignored / 2) / (x - 5))
    return sorted((w.lineno, str(w.message)) for w in caught)


@pytest.mark.parametrize("n", [6, 20_000])
def test_each_of_two_calls_of_one_function_has_the_state_of_its_own_line(way: None, n: int) -> None:
    """Also where they are fused, one of them is computed at its own shape, or a sum follows."""
    x = np.arange(float(n))
    assert two_of_a_name(dx.asarray(x)) == two_of_a_name(x) != []


@pytest.mark.parametrize("n", [6, 200_000])
def test_each_of_two_reductions_that_are_fused_has_the_state_of_its_own_line(way: None, n: int) -> None:
    """Whichever of them met it: in a slice, where partial results meet, or at the end."""
    big, small = np.full((n, 2), 1e308), np.ones((n, 2))
    for values, n_told in ((big, 0), (small, 1)):
        for axis in (None, 0):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                x = dx.asarray(values)
                with np.errstate(all="ignore"):
                    ignored = x.sum(axis=axis)
                heeded = (x * 1e308).sum(axis=axis) if n_told else x.max(axis=axis)
                dx.compute(ignored, heeded)
            assert [str(w.message) for w in caught] == ["overflow encountered in reduce"] * n_told


@pytest.mark.parametrize("name", ["maximum", "minimum", "fmax"])
def test_extrema_of_tiles_meet_no_event(name: str) -> None:
    """Zeros are told apart by sums, of which others overflow or are not valid."""
    x = np.tile([[0.0, -0.0], [1e308, 1e308], [np.inf, -np.inf]], (100, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with force_tiles(3):
            y = dx.asarray(x)
            found, _ = map(np.asarray, dx.compute(getattr(dx, name).reduce(y, axis=1), y * 0.5))
    np.testing.assert_array_equal(found, getattr(np, name).reduce(x, axis=1))
    assert (np.signbit(found[::3]) == (name == "minimum")).all()


def test_what_is_to_be_printed_goes_to_stderr(way: None, capfd: pytest.CaptureFixture[str]) -> None:
    with np.errstate(divide="print"):
        np.asarray(1 / dx.asarray(np.zeros(4)))
        ours = capfd.readouterr().err
        np.ones(4) / np.zeros(4)
    assert ours == capfd.readouterr().err


def test_a_function_is_called_of_the_state_in_which_it_was_given(way: None) -> None:
    x, met = dx.asarray(np.zeros(4)), []
    with np.errstate(divide="call", call=lambda kind, _: met.append(("first", kind))):
        1 / x
    with np.errstate(divide="call", call=lambda kind, _: met.append(("second", kind))):
        np.log(x)
    assert met == [("first", "divide by zero"), ("second", "divide by zero")]
    with np.errstate(divide="call", call=None), pytest.raises(NameError, match="no function found"):
        1 / x
