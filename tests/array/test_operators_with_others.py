"""Operators with what is neither an array nor a number of NumPy's do what they do with NumPy's arrays."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any
from unittest import mock

import numpy as np
import pytest
from helpers import some

import distarray as dx
from distarray.testing import force_tiles

DAYS = np.array(["2020-01-01", "2020-01-02", "NaT"], "M8[D]")
ARRAYS: dict[str, Any] = {
    "days": DAYS,
    "seconds": DAYS.astype("M8[s]"),
    "nanoseconds": DAYS.astype("M8[ns]"),
    "spans": np.array([1, 2, 3], "m8[D]"),
    "integers": np.array([1, 2, 3], "i2"),
    "floats": np.array([0.5, 0.1, 2.0]),
    "complex": np.array([2, 1j, 0.5]),
    "truth": np.array([True, False, True]),
}
OBJECTS: list[Any] = [
    date(2020, 1, 2),
    datetime(2020, 1, 2),
    timedelta(days=1),
    Fraction(2),
    Fraction(1, 2),
    Decimal("0.1"),
    Decimal(1),
    {1},
    object(),
    "a",
    [Fraction(2)] * 3,
    ["x", Decimal(2), Decimal(2)],
    [date(2020, 1, 1)],
]


@pytest.fixture(params=[None, 3], ids=["small", "three tiles"])
def tiles(request: pytest.FixtureRequest) -> Iterator[int | None]:
    if request.param is None:
        yield None
        return
    with force_tiles(request.param):
        yield request.param


@pytest.mark.parametrize("name", some(list(ARRAYS)))
@pytest.mark.parametrize("compare", [operator.eq, operator.ne])
def test_elements_are_equal_to_objects_where_python_says_so(tiles: None, name: str, compare: Any) -> None:
    for other in OBJECTS:
        expected, found = compare(ARRAYS[name], other), compare(dx.asarray(ARRAYS[name]), other)
        np.testing.assert_array_equal(np.asarray(found), expected, err_msg=str(other))
        assert np.asarray(found).dtype == np.bool_
    assert date(2020, 1, 2) in dx.asarray(DAYS)


class SaysEqual:
    """It is equal to ones and twos."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return other in (1, 2)

    def __float__(self) -> float:
        return 7.0


class SaysUnequal:
    def __ne__(self, other: object) -> bool:
        return other == 2


class Seven(int):
    pass


@pytest.mark.parametrize("name", ["integers", "floats", "complex", "truth"])
@pytest.mark.parametrize("compare", [operator.eq, operator.ne])
def test_objects_that_say_what_they_are_equal_to_are_asked(tiles: None, name: str, compare: Any) -> None:
    for other in (SaysEqual(), SaysUnequal(), mock.ANY, Seven(2), np.array(SaysEqual(), object)):
        for host in (ARRAYS[name], ARRAYS[name][1:2], ARRAYS[name][0]):
            expected, found = compare(host, other), compare(dx.asarray(host), other)
            np.testing.assert_array_equal(np.asarray(found), expected, err_msg=str(other))
            assert np.asarray(found).dtype == np.bool_
    with pytest.raises(TypeError, match="SaysEqual say themselves"):
        compare(dx.asarray(ARRAYS[name]), [SaysEqual()] * 3)


def test_a_number_repeats_sequences(tiles: None) -> None:
    for m in (np, dx):
        x = m.asarray([3, 1, 2])
        assert [0] * x.max() == [0, 0, 0]
        assert (0,) * x[0] == (0, 0, 0)
        assert x[2] * [4] == [4, 4]
        several = [5]
        several *= x[0]
        assert several == [5, 5, 5]
        np.testing.assert_array_equal(np.asarray(x * [1, 2, 3]), [3, 2, 6])
        np.testing.assert_array_equal(np.asarray(m.asarray(2) * [1, 2]), [2, 4])  # an array repeats nothing
        with pytest.raises(TypeError):
            [1] * m.asarray([1.0]).sum()
        with pytest.raises(TypeError):
            m.asarray(2) * ["a", "b"]


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
def test_a_matrix_has_products_of_matrices(tiles: None) -> None:
    a = np.array([[1.0, 2.0], [3.0, 4.0]])
    matrix = np.matrix(a)
    for x in (a, dx.asarray(a)):
        np.testing.assert_array_equal(np.asarray(matrix * x), a @ a)
        np.testing.assert_array_equal(np.asarray(x * matrix), a @ a)
    np.testing.assert_array_equal(np.asarray(matrix * dx.asarray(2.0)), 2 * a)
    row = np.array([1.0, 2.0])
    np.testing.assert_array_equal(np.asarray(dx.asarray(row) * matrix), row * matrix)
    for wrong in (lambda x: matrix * x(row), lambda x: x(np.ones((2, 2, 2))) * matrix):
        for x in (np.asarray, dx.asarray):
            with pytest.raises(ValueError):
                wrong(x)


@pytest.mark.parametrize(
    "calculate",
    [
        lambda days, spans, at, span: days == at,
        lambda days, spans, at, span: at != days,
        lambda days, spans, at, span: days > at,
        lambda days, spans, at, span: at >= days,
        lambda days, spans, at, span: days + span,
        lambda days, spans, at, span: span + days,
        lambda days, spans, at, span: spans == span,
        lambda days, spans, at, span: spans / span,
        lambda days, spans, at, span: at in days,
    ],
)
def test_dates_of_pandas_are_numpys(tiles: None, calculate: Any) -> None:
    pd = pytest.importorskip("pandas")
    days, spans = ARRAYS["days"], ARRAYS["spans"]
    at, span = pd.Timestamp("2020-01-02"), pd.Timedelta(days=1)
    expected = calculate(days, spans, at, span)
    found = calculate(dx.asarray(days), dx.asarray(spans), at, span)
    np.testing.assert_array_equal(np.asarray(found), expected)


def test_dates_of_pandas_are_equal_to_nothing_else(tiles: None) -> None:
    pd = pytest.importorskip("pandas")
    zoned = pd.Timestamp("2020-01-02", tz="UTC")
    for name in ("days", "spans", "integers", "floats", "truth"):
        for other in (pd.Timestamp("2021-01-02"), pd.Timedelta(days=7), pd.NaT, zoned):
            for compare in (operator.eq, operator.ne):
                expected, found = compare(ARRAYS[name], other), compare(dx.asarray(ARRAYS[name]), other)
                np.testing.assert_array_equal(np.asarray(found), expected, err_msg=f"{name} {other}")
    for calculate in (
        lambda: dx.asarray(DAYS) < zoned,
        lambda: dx.asarray(ARRAYS["integers"]) + pd.Timestamp("2020"),
        lambda: dx.asarray(ARRAYS["integers"]) < pd.Timedelta(days=1),
    ):
        with pytest.raises(TypeError):
            calculate()


@pytest.mark.parametrize("order", ["C", "F", "A", "a"])
def test_bytes_are_those_of_the_memory(tiles: None, order: Any) -> None:
    a = np.arange(6, dtype="u1").reshape(2, 3)
    for view in (
        lambda v: v,
        lambda v: v.T,
        lambda v: v.T.copy(),
        lambda v: v[::-1],
        lambda v: v.T[::2],
    ):
        assert view(dx.asarray(a)).tobytes(order) == view(a).tobytes(order)
        assert bytes(view(dx.asarray(a))) == bytes(view(a))
    assert bytes(dx.asarray([1.5])) == bytes(np.array([1.5]))
    assert bytes(dx.asarray(3)) == bytes(np.array(3)) == b"\0" * 3


@pytest.mark.parametrize("eager_bytes", [0, 1 << 20])
def test_texts_and_objects_stay_numpys_whatever_the_size(eager_bytes: int) -> None:
    """`where` of them gives them as NumPy does; no array of ours has them, not even a small one."""
    a, text = np.array([True, False, True]), np.array(list("abc"))
    with dx.config.set(eager_bytes=eager_bytes):
        x = dx.asarray(a)
        for given in ((text, "z"), (text.astype(object), "z"), ("yes", "no")):
            found = np.where(x, *given)
            assert type(found) is np.ndarray
            np.testing.assert_array_equal(found, np.where(a, *given))
        with pytest.raises(TypeError):
            np.where(x, text, np.nan)
        for call in (
            lambda: np.select([x], [text], "m"),
            lambda: np.choose(x.astype(int), [text, text]),
            lambda: np.compress(x, text),
            lambda: np.concatenate([text, x]),
            lambda: np.lexsort((text, x)),
        ):
            with pytest.raises((TypeError, dx.NotSupportedError)):
                call()
