"""What random programs have found, one test for each class of mistake."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distarray as dx
from distarray.testing.assertions import assert_equal


@pytest.fixture(params=[None, (2,), (2, 2, 2)], ids=repr)
def team(request: pytest.FixtureRequest) -> dx.Team | None:
    return None if request.param is None else dx.Team(request.param, tuple("rcd"[: len(request.param)]))


def of(host: np.ndarray, team: dx.Team | None) -> dx.DistArray:
    pin = None if team is None or not host.ndim else (("r",), *[None] * (host.ndim - 1))
    return dx.asarray(host, team=team, sharding=pin)


def test_windows_of_windows_are_views(team: dx.Team | None) -> None:
    host = np.arange(81).reshape(9, 9)
    view, windows = of(host, team), np.lib.stride_tricks.sliding_window_view
    found = dx.sliding_window_view(dx.sliding_window_view(view, 2, axis=0), 3, axis=1)
    assert_equal(found, windows(windows(host, 2, axis=0), 3, axis=1))
    assert_equal(found[1, ::2].sum(axis=-1), windows(windows(host, 2, axis=0), 3, axis=1)[1, ::2].sum(axis=-1))


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_segments_of_axes_with_empty_tiles(rows: int) -> None:
    host = np.arange(rows * 3).reshape(rows, 3)
    team = dx.Team((8,), ("r",))
    at = list(range(rows))
    assert_equal(np.add.reduceat(of(host, team), at, axis=0), np.add.reduceat(host, at, axis=0))


def test_choices_have_the_common_dtype_of_all_choices(team: dx.Team | None) -> None:
    host = np.arange(6, dtype="f2") - 2
    x = of(host, team)
    assert_equal(dx.choose((x != 0).astype(int), [x, 0]), np.choose((host != 0).astype(int), [host, 0]))
    assert_equal(dx.select([x > 1, x < 0], [1, 2], x), np.select([host > 1, host < 0], [1, 2], host))


def test_resize_and_contiguous_arrays_share_what_numpy_shares(team: dx.Team | None) -> None:
    host = np.arange(12.0).reshape(3, 4)
    x = of(host, team)
    assert not dx.shares_memory(dx.resize(x, (2, 3)), x)
    assert not dx.shares_memory(dx.ascontiguousarray(x.T), x)
    assert dx.shares_memory(dx.ascontiguousarray(x[1:]), x)


#: In place, wrong in its shape and its dtype at once: numpy speaks of the dtype.
WRONG: dict[str, Any] = {
    "operator": lambda x, y: x.__imul__(y),
    "out": lambda x, y: np.multiply(x[:3], y, out=x[:3]),
    "at an empty list": lambda x, y: x[[]].__imul__(y),
}


@pytest.mark.parametrize("call", WRONG.values(), ids=list(WRONG))
def test_updates_that_are_wrong_twice_raise_what_numpy_raises(call: Any, team: dx.Team | None) -> None:
    host, other = np.arange(4, dtype="u2"), np.ones((3, 3))
    with pytest.raises(TypeError) as expected:
        call(host.copy(), other)
    x = of(host, team)
    with pytest.raises(TypeError) as found:
        call(x, of(other, team))
    assert type(found.value) is type(expected.value) or isinstance(expected.value, type(found.value))
    assert_equal(x, host)


def test_masks_take_values_of_one_axis(team: dx.Team | None) -> None:
    host = np.arange(6.0).reshape(2, 3)
    x = of(host, team)
    with pytest.raises(TypeError, match="requires a 0 or 1-dimensional input"):
        x[x > 1] = host
    assert_equal(x, host)


def test_one_element_takes_no_array(team: dx.Team | None) -> None:
    host = np.arange(6.0)
    x = of(host, team)
    try:
        host[2] = np.ones(3)
    except (TypeError, ValueError) as expected:
        with pytest.raises(type(expected)):
            x[2] = np.ones(3)
    assert_equal(x, host)


def test_nothing_is_written_to_read_only_views(team: dx.Team | None) -> None:
    x = dx.broadcast_to(of(np.arange(3), team), (2, 3))
    with pytest.raises(ValueError, match="read-only"):
        dx.put(x, [], 1)
    with pytest.raises(ValueError, match="read-only"):
        np.add(x, np.ones((2, 3)), out=x)


def test_operators_in_place_replace_scalars(team: dx.Team | None) -> None:
    host = np.arange(6)
    x = of(host, team)
    total, expected = x.sum(), host.sum()
    for array in (host, x):
        array[3] *= 1.5
        array[1] -= 2.5
    assert_equal(x, host)
    total /= 4
    expected = expected / 4
    assert_equal(total, expected)
    whole = x.sum(keepdims=True)
    with pytest.raises(TypeError, match="Cannot cast ufunc"):
        whole *= 1.5


@pytest.mark.parametrize(
    "made",
    [
        lambda x: x.sum() + 1,
        lambda x: -x[1],
        lambda x: dx.clip(x[2], 0, 1),
        lambda x: abs(x.max() // 2),
        lambda x: dx.dot(x, x),
        lambda x: dx.full(3, 7)[1],
        lambda x: dx.ones(5, dtype=int).sum(),
    ],
    ids=["sum + 1", "negative", "clip", "abs", "dot", "element of a constant", "sum of a constant"],
)
def test_what_operations_make_of_one_element_is_replaced_by_updates_as_scalars_are(made: Callable[[Any], Any]) -> None:
    s = before = made(dx.arange(5))
    s *= 1.5
    assert s.dtype == float and before.dtype.kind == "i" and float(s) == 1.5 * int(before)


@pytest.mark.parametrize(
    "made", [lambda: dx.asarray(3), lambda: dx.asarray(3).astype("i4"), lambda: dx.where(True, 1, 2)]
)
def test_arrays_without_axes_keep_their_dtype_in_updates(made: Callable[[], Any]) -> None:
    s = made()
    with pytest.raises(TypeError, match="Cannot cast ufunc 'multiply' output"):
        s *= 1.5


NUMBERS: dict[str, Callable[[Any, Any], Any]] = {
    "std": lambda xp, x: xp.std(x),
    "sum": lambda xp, x: xp.sum(x),
    "vdot": lambda xp, x: xp.vdot(x, x),
    "trace": lambda xp, x: xp.trace(x),
    "einsum": lambda xp, x: xp.einsum("ij,ij", x, x),
    "reduce": lambda xp, x: np.add.reduce(x, axis=None),
    "argmax": lambda xp, x: x.argmax(),
    "element": lambda xp, x: x[0, 0] * 2,
    "copy of an element": lambda xp, x: x[0, 0].copy(),
}


@pytest.mark.parametrize("look", [np.asarray, lambda v: v.data], ids=["asarray", "data"])
@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("eager_bytes", [None, 0])
def test_a_number_that_was_looked_at_is_still_a_number(
    team: dx.Team | None, number: str, look: Callable[[Any], Any], eager_bytes: int | None
) -> None:
    """``v += 1`` replaces a number, and what was handed out of it is a copy."""
    host = np.array([[4.0, 5.0], [7.0, 2.0]])
    with dx.config.set({} if eager_bytes is None else {"eager_bytes": eager_bytes, "block_bytes": 0}):
        expected, v = NUMBERS[number](np, host), NUMBERS[number](dx, of(host, team))
        other, seen = v, look(v)
        if look is np.asarray:
            seen[...] = 0
        v += 1
        assert v is not other
        assert_equal(other, expected)
        assert_equal(v, expected + 1)
        v -= np.array([0.5, 1, 2])
        assert_equal(v, expected + 1 - np.array([0.5, 1, 2]))


@pytest.mark.parametrize("ufunc", [np.subtract, np.divide, np.power, np.arctan2, np.less], ids=repr)
@pytest.mark.parametrize(("value", "axis"), [(4.0, None), (4.0, 0), ([3.0, 2.0], ())])
def test_what_reduces_no_axis_begins_with_initial(ufunc: np.ufunc, value: Any, axis: Any, team: dx.Team | None) -> None:
    host = np.array(value)
    for where in (True, False):
        options = {"axis": axis, "initial": 10, "where": where, "dtype": bool if ufunc is np.less else None}
        assert_equal(ufunc.reduce(of(host, team), **options), ufunc.reduce(host, **options))


def test_truth_values_are_positions_for_put(team: dx.Team | None) -> None:
    for at in ([False, False, True, True], [True, False, True]):
        host, x = np.arange(4.0), of(np.arange(4.0), team)
        host.put(np.array(at), 7)
        x.put(of(np.array(at), team), 7)
        assert_equal(x, host)
    with pytest.raises(TypeError, match="safe"):
        x.put(of(np.array([1], "u8"), None), 7)


@pytest.mark.parametrize(("number", "error"), [(np.inf, OverflowError), (np.nan, ValueError)])
def test_a_number_that_is_no_integer_is_not_written_as_one(number: float, error: type[Exception]) -> None:
    x, s = dx.asarray(np.arange(3)), dx.asarray(np.array([number, 1.0]))
    for index in (0, slice(1, None)):
        with pytest.raises(error):
            x[index] = s[0] * 1
    with pytest.raises(error):
        x[0] += number
    assert_equal(x, np.arange(3))


VIEWS: dict[str, Callable[[Any, Any], Any]] = {
    "new axis": lambda xp, v: v[None],
    "reshape": lambda xp, v: v.reshape(1),
    "ravel": lambda xp, v: xp.ravel(v),
    "atleast_2d": lambda xp, v: xp.atleast_2d(v),
    "expand_dims": lambda xp, v: xp.expand_dims(v, 0),
    "ellipsis": lambda xp, v: v[...],
}


@pytest.mark.parametrize("see", VIEWS)
@pytest.mark.parametrize("eager_bytes", [None, 0])
def test_what_is_made_of_a_number_is_an_array_of_its_own(see: str, eager_bytes: int | None) -> None:
    """numpy has no views of numbers, but of arrays without axes."""
    makes: list[Callable[[Any, Any], Any]] = [
        lambda xp, x: x[1],
        lambda xp, x: x.sum(),
        lambda xp, x: xp.full((), 3.0),
        lambda xp, x: xp.asarray(x.sum()),
        lambda xp, x: x[:1].reshape(()),
    ]
    with dx.config.set({} if eager_bytes is None else {"eager_bytes": eager_bytes, "block_bytes": 0}):
        for make in makes:
            made = []
            for xp in (np, dx):
                x = xp.asarray(np.arange(3.0))
                v = make(xp, x)
                w = VIEWS[see](xp, v)
                w += 1
                w[...] *= 3
                made.append((x, v, w))
            for ours, theirs in zip(made[1], made[0], strict=True):
                assert_equal(ours, theirs)


def _written(at: Any, value: Any) -> Callable[[Any], Any]:
    return lambda x: x.flat.__setitem__(at, value)


#: What is done to the elements in one axis: parts of them are copies, values are repeated and cut off.
FLAT: dict[str, Callable[[Any], Any]] = {
    "a part": lambda x: x.flat[1:3].__setitem__(slice(None), 9),
    "all": lambda x: x.flat[...].__setitem__(slice(None), 9),
    "transposed": lambda x: x.T.flat.__setitem__(slice(0, 3), [1, 2]),
    "given": lambda x: setattr(x, "flat", [[1, 2]]),
    "its own rows": lambda x: x.flat.__setitem__(slice(0, 5), x[1]),
    "repeated": _written(slice(0, 4), [7, 8]),
    "cut off": _written(slice(0, 1), [7, 8]),
    "nothing": _written(slice(0, 3), []),
    "a diagonal": _written(slice(None, None, 4), 1),
    "at positions": _written([[0, 1], [2, 3]], [[1, 2], [3, 4], [5, 6]]),
    "at a mask": _written(np.array([True, False, True, True, False, False]), [1, 2]),
}


@pytest.mark.parametrize("write", FLAT)
def test_parts_of_flat_are_copies_and_what_is_written_to_them_is_repeated(write: str, team: dx.Team | None) -> None:
    host = np.arange(6.0).reshape(2, 3)
    x = of(host.copy(), team)
    FLAT[write](x)
    FLAT[write](host)
    assert_equal(x, host)
    assert [float(v) for v in x.flat] == host.ravel().tolist()
    assert type(x.flat + 1) is type(x.flat[1:]) is dx.DistArray


def test_flat_is_an_iterator_that_says_where_it_is(team: dx.Team | None) -> None:
    host = np.arange(6.0).reshape(2, 3)
    x = of(host, team)
    ours, theirs = x.flat, host.flat
    assert ours.base is x
    for _ in range(4):
        assert float(next(ours)) == next(theirs)
        assert (ours.index, ours.coords) == (theirs.index, theirs.coords)
    assert [*map(float, ours)] == [*theirs]
    assert len(ours) == len(theirs)


#: Functions that give memory of its own, or numbers, also where there is nothing to do.
OWN: dict[str, Callable[[Any, Any], Any]] = {
    "block": lambda xp, v: xp.block(v),
    "unstack": lambda xp, v: xp.unstack(v)[0],
    "require O": lambda xp, v: xp.require(v[1:], requirements="O"),
    "require C": lambda xp, v: xp.require(v[::2], requirements="C"),
}


@pytest.mark.parametrize("make", OWN)
def test_what_numpy_copies_is_a_copy(make: str, team: dx.Team | None) -> None:
    host = np.arange(6.0)
    x = of(host, team)
    w = OWN[make](dx, x)
    w += 5
    assert_equal(x, host)


def test_results_of_vectorize_have_the_dtypes_of_numpys_numbers() -> None:
    for dtype in ("i1", "u1", "f2", "c8", "?"):
        host = np.array([1, 0], dtype)
        assert_equal(dx.vectorize(lambda v: v * 2)(dx.asarray(host)), np.vectorize(lambda v: v * 2)(host))
    with pytest.raises(OverflowError), pytest.warns(RuntimeWarning, match="overflow"):
        dx.vectorize(lambda v, w: v + w)(dx.asarray([200], dtype="u1"), dx.asarray([100], dtype="u1"))


def test_borders_that_are_no_integers_are_refused(team: dx.Team | None) -> None:
    x = of(np.arange(6), team)
    with pytest.raises(ValueError, match="NaN"):
        dx.pad(x, 1, constant_values=np.nan)
    with pytest.raises(OverflowError, match="infinity"):
        dx.pad(x, 1, constant_values=(0, np.inf))
    assert dx.asfortranarray(dx.asarray(3.0)).shape == (1,)


@pytest.mark.parametrize("dtype", ["i1", "u1", "i4", "u2", "i8"])
@pytest.mark.parametrize("value", [300, -1, 2**40, (300, 1), np.int64(300), 3.7], ids=str)
def test_borders_beyond_a_dtype_are_numpys(dtype: str, value: Any, team: dx.Team | None) -> None:
    host = np.arange(2).astype(dtype)
    try:
        expected = np.pad(host, 1, constant_values=value)
    except OverflowError:
        with pytest.raises(OverflowError):
            dx.pad(of(host, team), 1, constant_values=value)
    else:
        assert_equal(dx.pad(of(host, team), 1, constant_values=value), expected)


#: Values that are longer than what they are written to.
LONG: dict[str, Callable[[Any, Any, Any], Any]] = {
    "a sequence at a number": lambda xp, x, i: x.__setitem__((0, i), [5]),
    "an array at a number": lambda xp, x, i: x.__setitem__((i, i), xp.asarray([5.0, 6.0])),
    "sequences at a row": lambda xp, x, i: x.__setitem__(i, [[5, 6, 7]]),
    "sequences at an array": lambda xp, x, i: x.__setitem__(xp.asarray(i), [[5, 6, 7]]),
    "at": lambda xp, x, i: np.add.at(x, (0, [0, 1]), [[1, 2]]),
    "at a mask": lambda xp, x, i: np.add.at(x, x > 2, xp.asarray([[1.0]])),
}


@pytest.mark.parametrize("write", LONG)
def test_values_longer_than_an_index_of_numbers_are_refused(write: str, team: dx.Team | None) -> None:
    host = np.arange(6.0).reshape(2, 3)
    with pytest.raises(ValueError) as expected:
        LONG[write](np, host.copy(), host[:, 0].argmin())
    x = of(host, team)
    with pytest.raises(ValueError, match=str(expected.value)[:30]):
        LONG[write](dx, x, x[:, 0].argmin())
    assert_equal(x, host)


def test_complex_numbers_lose_their_imaginary_part_and_arrays_do_not() -> None:
    x = dx.asarray([1 + 2j, 3.0])
    with pytest.warns(np.exceptions.ComplexWarning):
        assert float(x[0]) == 1.0
    with pytest.warns(np.exceptions.ComplexWarning):
        assert int(x.sum()) == 4
    with pytest.raises(TypeError, match="not 'complex'"):
        float(dx.asarray(1 + 2j))


def test_positions_that_do_not_cast_to_integers_are_refused() -> None:
    with pytest.raises(TypeError, match="according to the rule 'safe'"):
        dx.choose(dx.asarray([0, 1], dtype="u8"), [[1, 2], [3, 4]])
    with pytest.raises(ValueError, match="must be one dimensional and match the axis length of 3"):
        dx.delete(dx.arange(3), True)


def test_numbers_of_ours_are_written_as_numpys_are(team: dx.Team | None) -> None:
    for write in (dx.place, dx.putmask):
        x = of(np.arange(4), team)
        write(x, x > 1, x.mean())
        assert_equal(x, np.array([0, 1, 1, 1]))
        with pytest.raises(TypeError, match="according to the rule 'safe'"):
            write(x, x > 1, x * 1.5)
    assert_equal(dx.compress([True], of(np.array(2), team), axis=0), np.array([2]))
    dates = of(np.zeros((2, 0), "M8[s]"), team)
    assert_equal(dx.sliding_window_view(dates, 1, axis=0)[0], np.zeros((0, 1), "M8[s]"))


@pytest.mark.parametrize("eager_bytes", [None, 0])
def test_numbers_that_are_no_integers_are_refused_where_they_are_written(
    team: dx.Team | None, eager_bytes: int | None
) -> None:
    with dx.config.set({} if eager_bytes is None else {"eager_bytes": eager_bytes, "block_bytes": 0}):
        x, y = of(np.arange(3), team), of(np.array([1.0, np.inf, 2.0]), team)
        with pytest.raises(OverflowError, match="infinity"):
            x[0] = y.max()
        with pytest.raises(ValueError, match="NaN"):
            x[:2] = of(np.array([np.nan, np.nan]), team)[1]
        with pytest.raises(OverflowError, match="infinity"):
            x.fill(y[1])
        assert_equal(x, np.arange(3))
        x[1] = y.min() + 1.7
        assert_equal(x, np.array([0, 2, 2]))


@pytest.mark.parametrize("eager_bytes", [None, 0])
@pytest.mark.parametrize("mode", ["raise", "wrap", "clip"])
def test_what_is_taken_of_nothing_is_empty(eager_bytes: int | None, mode: str) -> None:
    """Where other axes are empty, too, no index is out of bounds."""
    settings = {} if eager_bytes is None else {"eager_bytes": eager_bytes, "block_bytes": 0}
    for shape, indices, axis in (((0, 0), [3, 1], -1), ((3, 0), [[1, 7]], 1), ((0, 4), [1], 0), ((0,), [], 0)):
        x = np.zeros(shape, "f4")
        with dx.config.set(**settings):
            try:
                wanted = np.take(x, np.array(indices, int), axis, mode=mode)
            except IndexError:
                with pytest.raises(IndexError):
                    dx.take(dx.asarray(x), np.array(indices, int), axis=axis, mode=mode)
            else:
                found = dx.take(dx.asarray(x), np.array(indices, int), axis=axis, mode=mode)
                assert (found.shape, found.dtype, np.asarray(found).shape) == (wanted.shape, wanted.dtype, wanted.shape)


@pytest.mark.parametrize("values", [[], [1.0]])
def test_nothing_is_put_where_nothing_may_be_written(values: list[float]) -> None:
    x = dx.broadcast_to(dx.arange(12.0), (2, 12))
    with pytest.raises(ValueError, match="read-only"):
        dx.putmask(x, x > 2, dx.asarray(values))


@pytest.mark.parametrize("mode", ["raise", "wrap", "clip"])
def test_nothing_is_put_into_nothing(mode: Any) -> None:
    for array in (np.zeros((0, 3)), dx.zeros((0, 3))):
        np.put(array, [], [], mode=mode)
        for values in ([], [1.0]):
            with pytest.raises(IndexError, match="empty array"):
                np.put(array, [0], values, mode=mode)


#: Values of a line, as programs write them: of the array's dtype, of a narrower one, of numpy's, a number.
LINES: dict[str, Callable[[Any], Any]] = {
    "array": lambda n: dx.arange(n) / 3,
    "integers": lambda n: dx.arange(n),
    "numpy's array": lambda n: np.arange(n) / 3,
    "numpy's integers": lambda n: np.arange(n, dtype="u1"),
    "number": lambda n: 2.5,
}


@pytest.mark.parametrize("line", LINES.values(), ids=list(LINES))
def test_lines_of_a_large_array_are_written_at_the_call(line: Callable[[int], Any]) -> None:
    n = 800  # 5 MB, more than is computed at the call
    x, host = dx.zeros((n, n)), np.zeros((n, n))
    values = line(n)
    before = x[3]
    for i in range(0, n, 50):
        value = values if isinstance(values, float) else values[i:]
        x[i, i:] = value
        x[i:, n - 1 - i] = value
        assert x._base.block is not None  # nothing waits
    for i in range(0, n, 50):
        value = values if isinstance(values, float) else np.asarray(values)[i:]
        host[i, i:] = value
        host[i:, n - 1 - i] = value
    assert_equal(x, host)
    assert_equal(before, host[3])


def test_what_reads_a_large_array_keeps_what_it_read_when_lines_are_written() -> None:
    x = dx.zeros((800, 800))
    twice = x * 2 + 1
    x[3] = np.arange(800)
    again = x * 2 + 1
    x[3] = -1
    assert float(twice.sum()) == 800 * 800
    assert_equal(again[3], np.arange(800) * 2.0 + 1)
    assert float(x.sum()) == -800


@pytest.mark.parametrize(
    "value", [np.arange(3) * 1j, np.arange(3.0), np.array(["1", "2", "3"]), np.zeros(4, int)], ids=str
)
def test_arrays_of_numpy_that_lose_something_are_written_as_numpy_writes_them(value: np.ndarray) -> None:
    host = np.zeros((2, 3), int)
    x = dx.asarray(host.copy())
    with warnings.catch_warnings(record=True) as expected:
        warnings.simplefilter("always")
        try:
            host[1] = value
        except (TypeError, ValueError) as error:
            with pytest.raises(type(error)):
                x[1] = value
        else:
            with warnings.catch_warnings(record=True) as found:
                warnings.simplefilter("always")
                x[1] = value
            assert [w.category for w in found] == [w.category for w in expected]
    assert_equal(x, host)


NUMBER_WRITES: list[Any] = [
    2,
    -1,
    300,
    2.5,
    1j,
    True,
    10**30,
    np.nan,
    np.float32(1.5),
    np.int8(3),
    "1",
    None,
    [4],
    [[4, 5]],
]


@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "u1", "c16", "?", "M8[s]"])
@pytest.mark.parametrize("at", [3, -1, (1, 2), (1, -3), 9, (1, 9), (1, 2, 0)], ids=str)
def test_numbers_are_written_at_positions_as_numpy_writes_them(at: Any, dtype: str) -> None:
    shape = (5,) if isinstance(at, int) else (2, 3)
    seen, expected = [], []
    for value in NUMBER_WRITES:
        for xp, found in ((np, expected), (dx, seen)):
            x: Any = xp.asarray(np.arange(6)[: np.prod(shape)].reshape(shape).astype(dtype))
            view = x[::-1]
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                try:
                    x[at] = value
                    error: Any = None
                except (TypeError, ValueError, IndexError, OverflowError) as raised:
                    error = type(raised)
            found.append((error, [w.category for w in told], np.asarray(x).tolist(), np.asarray(view).tolist()))
    for value, ours, numpys in zip(NUMBER_WRITES, seen, expected, strict=True):
        assert repr(ours) == repr(numpys) or (ours[0] and issubclass(ours[0], numpys[0])), value


def test_numbers_of_arrays_are_written_at_positions_in_place() -> None:
    host = np.arange(12.0).reshape(3, 4)
    x = dx.asarray(host.copy()) + 0
    block, row, before = x._base.block, x[1], x[1, 2]
    twice = x * 2
    for array in (host, x):
        array[1, 2] -= 0.5
        array[1, 2] /= array[0, 3]
        array[-1, 0] = array[1, 2]
        array[0, 0] = 7
    assert x._base.block is block
    assert_equal(x, host)
    assert_equal(row, host[1])
    assert float(before) == 6
    assert_equal(twice, np.arange(12.0).reshape(3, 4) * 2)
    x[0, 1] = dx.asarray([1.0])[0] * dx.asarray(3, dtype="f4")
    assert float(x[0, 1]) == 3
    outside = np.asarray(x)
    x[2, 2] = -1.0
    assert outside[2, 2] == -1
    times = dx.asarray(np.zeros(3, "M8[ms]"))
    times[1] = dx.asarray(np.array([5], "M8[s]"))[0]
    assert_equal(times, np.array([0, 5000, 0], "M8[ms]"))


def test_what_waits_is_written_at_the_call_once_it_was_computed() -> None:
    x = dx.ones((800, 800)) * 2
    row = dx.arange(800) / 3
    for i in range(600):  # more than a window of pending operations
        x[i] = row
    assert x._base.block is not None
    assert float(x.sum()) == pytest.approx(600 * float(row.sum()) + 200 * 800 * 2)
