"""numpy's functions, ufuncs and ndarray's methods on DistArrays give numpy's results, and nothing gathers silently."""

from __future__ import annotations

import copy
import math
import pickle
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distarray as dx
from distarray.testing import force_tiles
from distarray.testing.assertions import assert_close, assert_equal

X = np.arange(24.0).reshape(2, 3, 4) - 7.5
WHERE = X > 0

#: One line per way of calling a ufunc; each is called on a numpy array and on a DistArray. Functions of numpy have
#: their table in test_numpy_coverage.py.
CALLS: dict[str, Callable[[Any], Any]] = {
    "add": lambda x: np.add(x, 1),
    "add, dtype": lambda x: np.add(x, 1, dtype="f4"),
    "add of lists": lambda x: np.add(x[0, 0], [1, 2, 3, 4]),
    "divmod": lambda x: np.divmod(x, 3)[1],
    "modf": lambda x: np.modf(x)[0],
    "add.reduce": lambda x: np.add.reduce(x),
    "add.reduce, axis, keepdims": lambda x: np.add.reduce(x, axis=(0, 2), keepdims=True),
    "maximum.reduce": lambda x: np.maximum.reduce(x, axis=None),
    "logical_and.reduce": lambda x: np.logical_and.reduce(x, axis=1),
    "add.accumulate": lambda x: np.add.accumulate(x, axis=1),
    "multiply.outer": lambda x: np.multiply.outer(x[0, 0], x[0, 1]),
}

#: What methods have no function of their own above, and those that take numpy's positions.
METHODS: dict[str, Callable[[Any], Any]] = {
    "T": lambda x: x.T,
    "mT": lambda x: x.mT,
    "flat": lambda x: np.asarray(list(x.flat)) if isinstance(x, np.ndarray) else x.flat,
    "sum": lambda x: x.sum(1, "f4"),
    "mean": lambda x: x.mean(axis=1, keepdims=True),
    "reshape": lambda x: x.reshape(4, -1),
    "ravel of a view": lambda x: x[:, ::2].ravel(),
    "ravel, A": lambda x: x.T.ravel("A"),
    "ravel, K": lambda x: x.transpose(1, 2, 0).ravel("K"),
    "flatten, F": lambda x: x.flatten("F"),
    "transpose": lambda x: x.transpose(2, 0, 1),
    "swapaxes": lambda x: x.swapaxes(0, 2),
    "diagonal": lambda x: x.diagonal(1, 1, 2),
    "squeeze": lambda x: x[:, :1].squeeze(1),
    "astype": lambda x: x.astype("i4"),
    "round": lambda x: (x / 3).round(2),
    "clip": lambda x: x.clip(None, 3),
    "conj": lambda x: (x * 1j).conj(),
    "imag": lambda x: (x * 1j).imag,
    "argsort, all": lambda x: x.argsort(axis=None),
    "take": lambda x: x.take([3, 1]),
    "compress": lambda x: x.compress([True, False, True], axis=1),
    "nonzero": lambda x: (x > 1).nonzero()[0],
    "trace": lambda x: x.trace(1, 1, 2),
    "cumprod": lambda x: x.cumprod(axis=2),
    "power by 2": lambda x: x**2,
    "power by a half": lambda x: abs(x) ** 0.5,
    "power by -1": lambda x: x**-1,
    "reflected power": lambda x: 2**x,
    "reflected matmul": lambda x: np.ones((5, 3)) @ x,
    "divmod": lambda x: divmod(x, 2)[0],
    "reflected divmod": lambda x: divmod(7, x)[1],
    "equal to None": lambda x: x == None,  # noqa: E711
    "equal to text": lambda x: x != "a",
    "bits": lambda x: ~(x > 0) & (x < 5) | (x == 0.5) ^ True,
    "shifts": lambda x: (x.astype(int) << 2) >> 1,
}


@pytest.mark.parametrize("tiles", [None, 2], ids=["small", "tiles"])
@pytest.mark.parametrize("call", [*CALLS.values(), *METHODS.values()], ids=[*CALLS, *METHODS])
def test_call_is_numpys(call: Callable[[Any], Any], tiles: int | None) -> None:
    expected = call(X)
    if tiles is None:
        assert_close(call(dx.asarray(X)), expected, rtol=1e-6, atol=1e-12)
    else:
        with force_tiles(tiles):
            assert_close(call(dx.asarray(X)), expected, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize(
    "call",
    [
        lambda x, out: np.add(x, 1, out=out),
        lambda x, out: np.sqrt(abs(x), out),
        lambda x, out: np.cumsum(x, 1, None, out),
        lambda x, out: x.round(1, out=out),
        lambda x, out: np.multiply(x, 2, out=out, where=x > 0),
        lambda x, out: np.concatenate([x[:1], x[1:]], 0, out),
    ],
)
def test_out_is_written_and_returned(call: Callable[[Any, Any], Any]) -> None:
    expected = np.full(X.shape, 9.0)
    call(X, expected)
    out = dx.full(X.shape, 9.0)
    alias = out[0]
    assert call(dx.asarray(X), out) is out
    assert_equal(out, expected)
    assert_equal(alias, expected[0])


def test_out_that_does_not_fit_is_refused_and_unchanged() -> None:
    x, out = dx.ones((2, 3)), dx.zeros((3,))
    with pytest.raises(ValueError, match="shape"):
        np.add(x, 1, out=out)
    with pytest.raises(TypeError):
        np.add(x[0], 0.5, out=dx.zeros(3, dtype=int))
    assert_equal(out, np.zeros(3))


def test_updates_at_repeated_positions_accumulate() -> None:
    x = dx.zeros(4)
    np.add.at(x, [0, 0, 2], [1.0, 2.0, 3.0])
    assert_equal(x, np.array([3.0, 0, 3, 0]))


def test_operators_of_numpy_arrays_leave_the_operation_to_us() -> None:
    x = dx.arange(3.0)
    for made in (np.ones(3) + x, np.float64(2) * x, np.ones(3) == x, np.ones((2, 3)) @ x):
        assert isinstance(made, dx.DistArray)


def test_a_type_that_knows_arrays_goes_first() -> None:
    class Quantity:
        __array_ufunc__ = None

        def __radd__(self, other: Any) -> str:
            return "theirs"

    assert dx.arange(3) + Quantity() == "theirs"


@pytest.mark.parametrize("function", [np.is_busday, np.datetime_as_string])
def test_what_is_missing_raises_and_names_the_way_out(function: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError, match=r"is not implemented for DistArray; use .*compute\(\) \(192 B\)"):
        function(dx.asarray(X))


def test_gathering_is_the_users_choice_warns_and_has_a_cap() -> None:
    days = np.arange("2024-01-01", "2024-01-25", dtype="M8[D]")
    x = dx.asarray(days)
    with dx.config.set(fallback="gather"):
        with pytest.warns(UserWarning, match="gathering 192 B"):
            made = np.is_busday(x)
        assert_equal(made, np.is_busday(days))
    with dx.config.set(fallback="gather", fallback_max_bytes=100), pytest.raises(MemoryError, match="192 B"):
        np.is_busday(x)


def test_questions_about_arrays_compute_nothing() -> None:
    x = dx.zeros((3, 2)) + 1
    with dx.testing.counting() as c:
        assert np.shape(x) == (3, 2)
        assert np.ndim(x) == 2
        assert np.size(x) == 6
        assert np.result_type(x, np.float32) == np.float64
    assert c.evaluations == 0


@pytest.mark.parametrize("function", ["add", "log10", "sum", "sort", "reshape", "clip"])
def test_functions_take_numbers_and_lists(function: str) -> None:
    args = {"add": (1, [2, 3]), "log10": (100.0,), "reshape": ([1, 2, 3, 4], (2, 2)), "clip": ([1, 5, 9], 2, 6)}
    given = args.get(function, ([3, 1, 2],))
    assert_equal(getattr(dx, function)(*given), getattr(np, function)(*given))


NUMBERS: dict[str, Callable[[Any], Any]] = {
    "float": float,
    "int": int,
    "complex": complex,
    "bool": bool,
    "format": lambda x: f"{x:.3f}",
    "item": lambda x: x.item(),
}


@pytest.mark.parametrize("function", NUMBERS.values(), ids=NUMBERS)
@pytest.mark.parametrize("value", [2.5, 0.0, -3.0])
def test_number_of_an_array_without_axes_is_numpys(function: Callable[[Any], Any], value: float) -> None:
    assert function(dx.asarray(value)) == function(np.array(value)[()])


def test_index_needs_an_integer_without_axes() -> None:
    assert [10, 20, 30][dx.asarray(1)] == 20
    for wrong in (dx.asarray(1.0), dx.asarray([1])):
        with pytest.raises(TypeError):
            range(3)[wrong]


def test_truth_of_several_elements_is_ambiguous() -> None:
    with pytest.raises(ValueError, match="ambiguous"):
        bool(dx.ones(2))


def test_sequence_protocol_is_numpys() -> None:
    x = dx.asarray(X)
    assert len(x) == 2
    assert 0.5 in x
    assert 99 not in x
    assert [float(v) for v in x[0, 0]] == X[0, 0].tolist()
    assert x.tolist() == X.tolist()
    assert x.tobytes() == X.tobytes()
    assert x.item(5) == X.item(5)
    assert x.item(1, 0, 2) == X.item(1, 0, 2)
    with pytest.raises(TypeError, match="unsized"):
        len(dx.asarray(1))
    with pytest.raises(TypeError, match="0-d"):
        iter(dx.asarray(1))
    with pytest.raises(TypeError, match="unhashable"):
        hash(x)


def test_methods_in_place_change_every_alias() -> None:
    x = dx.asarray([3.0, 1.0, 2.0])
    v = x[::-1]
    x.sort()
    assert_equal(v, np.array([3.0, 2, 1]))
    x.fill(7)
    assert_equal(v, np.full(3, 7.0))
    dx.copyto(x, [1, 2, 3], where=np.array([True, False, True]))
    assert_equal(v, np.array([3.0, 7, 1]))
    dx.putmask(x, x > 2, [0.0, 5.0])
    assert_equal(v, np.array([0.0, 5, 1]))
    m = dx.zeros((3, 3))
    dx.fill_diagonal(m, [1, 2, 3])
    assert_equal(m, np.diag([1.0, 2, 3]))


@pytest.mark.parametrize(
    ("update", "text"),
    [
        (lambda x: x.__iadd__(0.5), "Cannot cast ufunc 'add' output"),
        (lambda x: x.__itruediv__(2), "Cannot cast ufunc 'divide' output"),
    ],
)
def test_update_that_does_not_cast_back_is_numpys_error(update: Callable[[Any], Any], text: str) -> None:
    x = dx.arange(3)
    with pytest.raises(TypeError, match=text):
        update(x)
    with pytest.raises(TypeError, match=text):
        update(np.arange(3))
    assert_equal(x, np.arange(3))


def test_update_that_grows_the_array_is_an_error() -> None:
    x = dx.zeros(3)
    with pytest.raises(ValueError, match=r"non-broadcastable output operand with shape \(3,\)"):
        x += np.zeros((2, 3))


@pytest.mark.parametrize(
    "value", [3.7, -1, 300, 1j, np.nan, [1, 2], None, "4", np.float32(2.5), np.array([[1, 2, 3]]), np.ones((3, 1))]
)
@pytest.mark.parametrize("index", [0, slice(None), (slice(None), 1), ([0, 2], [1, 1])], ids=str)
@pytest.mark.parametrize("dtype", ["i1", "f4", "c8", "?"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_assignment_casts_and_fails_as_numpys(value: Any, index: Any, dtype: str) -> None:
    host = np.arange(9).reshape(3, 3).astype(dtype)
    x = dx.asarray(host)
    expected: type[Exception] | None = None
    try:
        host[index] = value
    except (TypeError, ValueError, OverflowError) as error:
        expected = type(error)
    if expected is None:
        x[index] = value
    else:
        with pytest.raises(expected):
            x[index] = value
    assert_equal(x, host)


def test_imaginary_parts_are_lost_with_a_warning() -> None:
    x = dx.zeros(2)
    with pytest.warns(np.exceptions.ComplexWarning):
        x[:] = dx.asarray([1 + 2j, 3])
    assert_equal(x, np.array([1.0, 3.0]))


@pytest.mark.parametrize("dtype", ["c8", "c16"])
def test_real_and_imaginary_part_are_views_that_lose_no_bit(dtype: str) -> None:
    host = np.array([[1 + 2j, np.inf - 0.0j], [complex(-0.0, np.nan), 5]]).astype(dtype)
    x = dx.asarray(host)
    x.imag[0] = 7
    x.T.real[1] += 1
    host.imag[0] = 7
    host.T.real[1] += 1
    found = np.asarray(x)
    assert found.dtype == host.dtype
    np.testing.assert_array_equal(found.view(found.real.dtype), host.view(host.real.dtype))
    np.testing.assert_array_equal(np.signbit(found.real), np.signbit(host.real))


MASKED = np.ma.masked_array([1.0, 2.0, 3.0, 4.0], [0, 1, 0, 1])


@pytest.mark.parametrize(
    "function",
    [
        lambda x, m: x * m,
        lambda x, m: x < m,
        lambda x, m: x.__iadd__(m),
        lambda x, m: x @ m,
        np.add,
        lambda x, m: np.maximum(m, x),
        np.add.outer,
        dx.add,
        lambda x, m: dx.sum(m),
        lambda x, m: np.where(x > 1, m, 0),
        lambda x, m: np.concatenate([x, m]),
        lambda x, m: x + np.ma.masked,
        lambda x, m: dx.trapezoid(m, x),
        lambda x, m: np.trapezoid(x, m),
        lambda x, m: dx.nanmean(m),
        lambda x, m: np.interp(x, x, m),
        lambda x, m: dx.polyval(x, m),
        lambda x, m: dx.gradient(m),
        lambda x, m: dx.flip(m),
        lambda x, m: dx.unique(m),
        lambda x, m: dx.choose(x.astype("i8"), [m, m, x, x]),
        lambda x, m: dx.choose(x.astype("i8") * 0, np.ma.stack([m, m])),
        lambda x, m: dx.select([x > 1], [m]),
        lambda x, m: dx.select([x > 1], [x], m),
    ],
)
def test_no_mask_is_lost_silently(function: Any) -> None:
    """There are no masked arrays here: what would need one is refused, also where numpy drops the mask."""
    x = dx.asarray(np.arange(4.0))
    with pytest.raises(dx.NotSupportedError, match=r"a masked array, whose mask would be lost; m\.filled"):
        function(x, MASKED)
    np.testing.assert_array_equal(np.asarray(x), np.arange(4.0))


def test_masks_that_hide_nothing_and_masked_arrays_made_on_purpose() -> None:
    x = dx.asarray(np.arange(4.0))
    np.testing.assert_array_equal(np.asarray(x + np.ma.masked_array(np.ones(4))), np.arange(4.0) + 1)
    np.testing.assert_array_equal(np.asarray(dx.asarray(MASKED)), np.asarray(MASKED))
    assert (np.ma.add(MASKED, np.asarray(x)).mask == MASKED.mask).all()


def test_numbers_are_keys_as_numpys_are() -> None:
    x = dx.asarray([3, 4, 3])
    assert set(x) == {3, 4}
    assert {3: "three"}[x[0]] == "three"
    assert Counter(x) == Counter([3, 4, 3])
    assert hash(x.sum()) == hash(10)
    assert hash(dx.asarray([2.5])[0]) == hash(2.5)
    for array in (x, x[:1], dx.asarray(3)):
        with pytest.raises(TypeError, match="unhashable type: 'DistArray'"):
            hash(array)


def test_arguments_may_be_arrays_and_iterators_where_numpys_may() -> None:
    x = dx.asarray([3, 4])
    for make, draw in ((dx.random.default_rng, "random"), (dx.random.RandomState, "random_sample")):
        for seed, same in ((x, [3, 4]), (x[0], 3), (x.sum(), 7)):
            assert_equal(getattr(make(seed), draw)(3), np.asarray(getattr(make(same), draw)(3)))
    assert_equal(dx.indices(len(v) for v in ([1, 2], [3, 4, 5])), np.indices((2, 3)))
    m = dx.asarray(np.arange(6).reshape(2, 3))
    assert_equal(m.transpose(dx.asarray([1, 0])), np.arange(6).reshape(2, 3).T)
    assert_equal(m.transpose(np.array([1, 0])), np.arange(6).reshape(2, 3).T)
    assert math.trunc(dx.asarray([-2.7])[0]) == -2
    with pytest.raises(TypeError, match="__trunc__"):
        math.trunc(x)


def test_finfo_knows_what_numpys_knows() -> None:
    for dtype in ("f4", "f8", "c16"):
        ours, theirs = dx.finfo(dtype), np.finfo(dtype)
        for name in ("precision", "nmant", "epsneg", "maxexp", "smallest_subnormal"):
            assert getattr(ours, name) == getattr(theirs, name)
        assert copy.copy(ours) == pickle.loads(pickle.dumps(ours)) == ours
    with pytest.raises(AttributeError, match="nothing"):
        _ = dx.finfo("f4").nothing
