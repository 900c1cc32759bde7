"""Dates and time spans of every unit, and of none: casts, writes, comparisons, reductions into ``out=``, as numpy's."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distarray as dx


def assert_same(ours: Any, theirs: Any) -> None:
    theirs = np.asarray(theirs)
    assert ours.dtype == theirs.dtype
    assert ours.shape == theirs.shape
    np.testing.assert_array_equal(np.asarray(ours), theirs)


def named(host: Any) -> dx.DistArray:
    """An array in two tiles."""
    return dx.asarray(host, team=dx.Team((2,), ("r",)), sharding=("r",) * (host.ndim > 0) + (None,) * (host.ndim - 1))


#: A selection that numpy casts otherwise than the one before.
SELECTIONS: dict[str, Any] = {"all": slice(None), "one": 0, "integers": [0, 1], "mask": np.array([True, False, True])}


@pytest.mark.parametrize("at", SELECTIONS)
@pytest.mark.parametrize("target", ["m8", "M8"])
@pytest.mark.parametrize("source", ["m8[s]", "M8[s]", "m8", "i8"])
def test_dates_of_no_unit_are_written_as_numpy_writes_them(target: str, source: str, at: str) -> None:
    index = SELECTIONS[at]
    values = np.array([1, 2, 3]).astype(source)[: np.zeros(3)[index].size].reshape(np.zeros(3)[index].shape)
    expected, error = np.zeros(3, target), None
    try:
        expected[index] = values
    except (TypeError, ValueError) as raised:
        error = type(raised)
    for eager_bytes in (1 << 20, 0):
        with dx.config.set(eager_bytes=eager_bytes):
            x, given = named(np.zeros(3, target)), named(values)
            if error is None:
                x[index] = given
                assert_same(x, expected)
            else:
                with pytest.raises(error):
                    x[index] = given


@pytest.mark.parametrize("source", ["m8[s]", "M8[D]", "i8"])
def test_what_is_cast_to_time_spans_of_no_unit_keeps_its_unit(source: str) -> None:
    host = np.array([1, 2]).astype(source)
    with dx.config.set(eager_bytes=0):
        assert_same(dx.asarray(host).astype("m8"), host.astype("m8"))
        assert_same(dx.asarray(dx.asarray(host), dtype="m8"), np.asarray(host, dtype="m8"))
        assert_same(dx.astype(dx.asarray(host), "m8"), host.astype("m8"))


@pytest.mark.parametrize("name", ["place", "putmask"])
def test_time_spans_are_placed_among_those_of_no_unit(name: str) -> None:
    expected, mask = np.zeros(3, "m8"), np.array([True, False, True])
    getattr(np, name)(expected, mask, np.array([1, 2], "m8[s]"))
    with dx.config.set(eager_bytes=0):
        x = dx.zeros(3, "m8")
        getattr(dx, name)(x, dx.asarray(mask), dx.asarray(np.array([1, 2], "m8[s]")))
        assert_same(x, expected)


@pytest.mark.parametrize("n", [0, 2, 40])
@pytest.mark.parametrize("pair", [("m8[s]", "m8[Y]"), ("m8[s]", "M8[s]"), ("M8[D]", "f8"), ("m8", "m8[Y]")])
def test_what_has_no_common_unit_is_compared_as_numpy_compares_it(pair: tuple[str, str], n: int) -> None:
    hosts = np.arange(2).astype(pair[0]), np.arange(n).astype(pair[1])
    calls: list[Callable[..., Any]] = [
        lambda xp, x, y: xp.isin(x, y),
        lambda xp, x, y: xp.setdiff1d(x, y),
        lambda xp, x, y: x == y[:1] if y.size else x,
        lambda xp, x, y: x != y[:1] if y.size else x,
    ]
    with dx.config.set(eager_bytes=0):
        for call in calls:
            try:
                expected = call(np, *hosts)
            except TypeError:
                with pytest.raises(TypeError):
                    call(dx, *map(dx.asarray, hosts))
            else:
                assert_same(call(dx, *map(dx.asarray, hosts)), expected)


@pytest.mark.parametrize("value", [np.timedelta64(2, "s"), np.timedelta64(1, "Y"), np.datetime64(3, "D"), 2 + 0j, 2.5])
@pytest.mark.parametrize("dtype", ["m8[s]", "M8[D]", "f8", "i4"])
def test_a_number_that_is_an_array_fills_and_begins_as_numpys_number_does(value: Any, dtype: str) -> None:
    calls: list[Callable[..., Any]] = [
        lambda xp, x, v: xp.full(2, v, dtype=dtype),
        lambda xp, x, v: xp.full_like(x, v),
        lambda xp, x, v: xp.max(x, initial=v),
        lambda xp, x, v: x.fill(v) or x,
    ]
    for call in calls:
        host, box = np.arange(3).astype(dtype), np.array([value])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of imaginary parts
            try:
                expected = call(np, host, box[0])
            except (TypeError, ValueError) as error:
                with pytest.raises(type(error)):
                    call(dx, dx.asarray(np.arange(3).astype(dtype)), dx.asarray(box)[0])
            else:
                assert_same(call(dx, dx.asarray(np.arange(3).astype(dtype)), dx.asarray(box)[0]), expected)


def test_dates_are_chosen_among_time_spans_where_numpy_chooses_them() -> None:
    spans, dates = np.arange(2).astype("m8[s]"), np.arange(2).astype("M8[s]")
    with dx.config.set(eager_bytes=0):
        for xp, *arrays in ((np, spans, dates), (dx, dx.asarray(spans), dx.asarray(dates))):
            with pytest.raises(TypeError):
                xp.choose([0, 1], arrays)


@pytest.mark.parametrize("value", [2.5, True, 1j, 3, np.int64(3), np.float64(3)])
def test_ranges_of_dates_go_to_what_is_one(value: Any) -> None:
    for start in (np.datetime64(1, "s"), np.timedelta64(1, "s")):
        for given in (value, np.asarray(value)[()], dx.asarray(value)):
            ours = given.compute()[()] if isinstance(given, dx.DistArray) else given
            try:
                expected = np.arange(start, ours)
            except ValueError:
                with pytest.raises(ValueError, match="Could not convert"):
                    dx.arange(start, given)
            else:
                assert_same(dx.arange(start, given), expected)


@pytest.mark.parametrize("name", ["sum", "cumsum", "max", "mean", "trace", "median"])
@pytest.mark.parametrize("unit", ["ms", "us"])
def test_time_spans_are_reduced_into_those_of_another_unit(name: str, unit: str) -> None:
    host = np.arange(9).astype("m8[s]").reshape(3, 3)
    shape = (9,) if name == "cumsum" else ()
    expected, out = np.zeros(shape, f"m8[{unit}]"), named(np.zeros(shape, f"m8[{unit}]"))
    getattr(np, name)(host, out=expected)
    with dx.config.set(eager_bytes=0):
        assert getattr(dx, name)(named(host), out=out) is out
        assert_same(out, expected)


def test_what_is_accumulated_into_dates_is_refused() -> None:
    host = np.arange(3).astype("m8[s]")
    for xp, x, out in ((np, host, np.zeros(3, "M8[s]")), (dx, dx.asarray(host), dx.zeros(3, "M8[s]"))):
        with pytest.raises(TypeError, match="not compatible"):
            xp.cumsum(x, out=out)
    for xp, x, out in ((np, host, np.zeros(3, "m8")), (dx, dx.asarray(host), dx.zeros(3, "m8"))):
        with pytest.raises(ValueError, match="specific units"):
            xp.cumsum(x, out=out)


@pytest.mark.parametrize("name", ["sum", "mean", "cumsum", "cumulative_sum", "cumprod", "nansum"])
@pytest.mark.parametrize("dtype", ["m8[s]", "m8[ms]", "m8", "M8[s]", "f8"])
@pytest.mark.parametrize("held", ["m8[s]", "i8"])
def test_the_dtype_of_a_sum_of_time_spans_is_numpys(name: str, dtype: str, held: str) -> None:
    host = np.arange(4).astype(held)
    try:
        expected = getattr(np, name)(host, dtype=dtype)
    except TypeError:
        with pytest.raises(TypeError):
            getattr(dx, name)(named(host), dtype=dtype)
    else:
        assert_same(getattr(dx, name)(named(host), dtype=dtype), expected)


def test_even_bins_are_of_no_time_spans() -> None:
    for xp, x in ((np, np.arange(4).astype("m8[s]")), (dx, named(np.arange(4).astype("m8[s]")))):
        for n in (4, 0):
            with pytest.raises(TypeError):
                xp.histogram(x[:n], 3)


@pytest.mark.parametrize("dtype", ["M8[D]", "m8[s]", "f8"])
def test_the_first_date_counts_as_zero_along_no_axis_too(dtype: str) -> None:
    host = np.array([0, 3, 0]).astype(dtype)
    for axis in ((), 0, None):
        assert_same(dx.count_nonzero(named(host), axis=axis), np.count_nonzero(host, axis=axis))


@pytest.mark.parametrize("mode", ["maximum", "mean", "median"])
def test_time_spans_are_not_padded_by_statistics(mode: str) -> None:
    for xp, x in ((np, np.arange(4).astype("m8[s]")), (dx, named(np.arange(4).astype("m8[s]")))):
        with pytest.raises(TypeError, match="rint"):
            xp.pad(x, 1, mode=mode)


@pytest.mark.parametrize("dtype", ["f2", "i8", "c16", "m8[ms]"])
def test_the_dtype_of_a_mean_of_some_time_spans_is_numpys(dtype: str) -> None:
    host, mask = np.arange(4).astype("m8[s]"), np.array([True, False, True, True])
    try:
        expected = np.mean(host, where=mask, dtype=dtype)
    except TypeError:
        with pytest.raises(TypeError):
            dx.mean(named(host), where=named(mask), dtype=dtype)
    else:
        assert_same(dx.mean(named(host), where=named(mask), dtype=dtype), expected)


@pytest.mark.parametrize("casting", ["same_kind", "unsafe"])
@pytest.mark.parametrize("dtype", ["m8", "M8"])
@pytest.mark.parametrize("held", ["m8[s]", "M8[D]", "i8"])
def test_arrays_of_times_are_joined_in_their_unit(held: str, dtype: str, casting: Any) -> None:
    host = np.arange(3).astype(held)
    for name in ("concatenate", "stack"):
        try:
            expected = getattr(np, name)([host, host], dtype=dtype, casting=casting)
        except TypeError:
            with pytest.raises(TypeError):
                getattr(dx, name)([named(host), named(host)], dtype=dtype, casting=casting)
        else:
            found = getattr(dx, name)([named(host), named(host)], dtype=dtype, casting=casting)
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(np.asarray(found).view("i8"), expected.view("i8"))


@pytest.mark.parametrize("name", ["var", "std", "nanvar"])
def test_times_have_no_variance(name: str) -> None:
    for xp, x in ((np, np.arange(4).astype("m8[s]")), (dx, named(np.arange(4).astype("m8[s]")))):
        for dtype in (None, "c16", "f8"):
            with pytest.raises(TypeError):
                getattr(xp, name)(x, dtype=dtype)
