"""Wrong answers that a reader found: numpy says what is right."""

import gc
import operator
import warnings
import weakref
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from helpers import module_at

import distarray as dx
from distarray.array.handle import is_scalar
from distarray.testing import force_tiles

A_TEAM = dx.Team((2,), ("r",))
NUMBERS = ("b", "h", "i", "B", "H", "I", "Q", "e", "f", "F")
IN_PLACE = (
    operator.iadd,
    operator.isub,
    operator.imul,
    operator.itruediv,
    operator.ifloordiv,
    operator.imod,
    operator.ipow,
    operator.iand,
    operator.ior,
    operator.ixor,
    operator.ilshift,
    operator.irshift,
)
TWO_SIDED = (operator.add, operator.sub, operator.truediv, operator.mod, operator.and_, operator.lt, operator.ne)


def cut(values):
    return dx.asarray(values, team=A_TEAM, sharding=("r",) + (None,) * (np.ndim(values) - 1))


def outcome(function, *args):
    """What comes of a call: the values and their dtype, or the builtin error that numpy's error is."""
    try:
        result = np.asarray(function(*args))
    except (TypeError, ValueError, IndexError) as error:
        return next(kind for kind in (TypeError, IndexError, ValueError) if isinstance(error, kind))
    return result.dtype, result.tolist()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("scalar", NUMBERS)
@pytest.mark.parametrize("own", ["b", "i", "l", "Q", "d", "D"])
def test_update_by_a_numpy_scalar_is_in_place(own, scalar):
    y = np.array(3).astype(scalar)[()]
    for function in IN_PLACE:
        a = np.arange(1, 5).astype(own)
        x = cut(a)
        seen = x[1:]
        expected = outcome(function, a, y)
        kept = x
        assert outcome(lambda x, y, f=function: kept if f(x, y) is kept else None, x, y) == expected, function
        assert np.array_equal(seen, a[1:]), function


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("scalar", NUMBERS)
@pytest.mark.parametrize("own", ["b", "i", "Q", "f", "D"])
def test_operators_with_numpy_scalars_have_numpys_dtype(own, scalar):
    y = np.array(3).astype(scalar)[()]
    a = np.arange(1, 5).astype(own)
    x = dx.asarray(a)
    for function in TWO_SIDED:
        assert outcome(function, x, y) == outcome(function, a, y), function
        assert outcome(function, y, x) == outcome(function, y, a), function
        assert outcome(lambda x, y, f=function: type(f(x, y)) in (dx.DistArray, np.ndarray), x, y) == outcome(
            lambda a, y, f=function: type(f(a, y)) in (dx.DistArray, np.ndarray), a, y
        )


OUTSIDE = [([0, 9, 3, 8], "i8"), ([0, 9, 3, 8], "u1"), ([0, -10, 3, 8], "i8"), ([8, -10], "i1"), ([0, -9, 8], "i8")]
WRITES = {
    "set": lambda x, i: operator.setitem(x, i, 5),
    "set at one": lambda x, i: operator.setitem(x, i[1], 5),
    "set in a view": lambda x, i: operator.setitem(x[::-1], i, 5),
    "set in rows": lambda x, i: operator.setitem(x.reshape(9, 1), (i,), 5),
    "add": lambda x, i: np.add.at(x, i, 1),
    "negative": lambda x, i: np.negative.at(x, i),
    "put_along_axis": lambda x, i: np.put_along_axis(x, i, 7.0, 0),
}
READS = {
    "get": lambda x, i: x[i],
    "take": lambda x, i: np.take(x, i),
    "take_along_axis": lambda x, i: np.take_along_axis(x, i, 0),
}


@pytest.mark.parametrize(("index", "dtype"), OUTSIDE)
@pytest.mark.parametrize("made", [cut, dx.asarray])
@pytest.mark.parametrize("computed", [lambda i: i + np.zeros((), i.dtype), lambda i: i[:]])
def test_computed_positions_outside_are_an_error_before_anything_changes(made, index, dtype, computed):
    i = np.array(index, dtype)
    for name, function in {**WRITES, **READS}.items():
        a = np.arange(9.0)
        x = made(a)
        assert outcome(function, x, computed(made(i))) == outcome(function, a, i), name
        assert np.array_equal(x, a), name
    x = made(np.arange(9.0))
    functional = outcome(lambda: x.at[computed(made(i))].add(1))
    assert (functional is IndexError) == (outcome(lambda: np.arange(9)[i]) is IndexError)
    assert np.array_equal(x, np.arange(9.0))


@pytest.mark.parametrize("made", [cut, dx.asarray])
def test_put_at_computed_positions_outside_leaves_the_array_alone(made):
    x = made(np.arange(9.0))
    with pytest.raises(IndexError, match="index 9 is out of bounds for axis 0 with size 9"):
        np.put(x, made(np.array([0, 9])) + 0, 5)
    assert np.array_equal(x, np.arange(9.0))


SCALARS = {
    "get": lambda x: x[0],
    "sum": lambda x: x.sum(),
    "max": lambda x: x.max(),
    "mean": lambda x: x.mean(),
    "matmul": lambda x: x @ x,
    "map": lambda x: x[0] * 2,
    "median": np.median,
    "take": lambda x: np.take(x, 1),
}


@pytest.mark.parametrize("dtype", ["d", "l"])
@pytest.mark.parametrize("value", [1, 1.5, np.arange(3.0)])
@pytest.mark.parametrize("name", SCALARS)
def test_an_update_replaces_what_is_a_scalar_in_numpy(name, value, dtype):
    a = np.arange(1, 6).astype(dtype)
    x = cut(a)
    for computed in (False, True):
        s, u = SCALARS[name](a), SCALARS[name](x)
        t, v = s, u
        if computed:
            assert float(u) == s
        s = s / 2
        u /= 2
        s = s + value
        u += value
        assert outcome(lambda x: x, u) == outcome(lambda x: x, s)
        assert np.array_equal(v, t)
        assert np.array_equal(x, a)


def test_an_array_without_axes_is_updated_in_place():
    total = cut(np.arange(4.0)).sum()
    for z in (
        dx.zeros((), team=A_TEAM),
        dx.asarray(5.0, team=A_TEAM),
        dx.zeros((), "D", team=A_TEAM),
        dx.asarray(total),
        dx.asarray(total, copy=True),
    ):
        alias = z
        z += 1
        z += 1
        z[...] = total
        z *= 2
        if z.dtype.kind == "c":
            z.real = 12
        np.add(z, 0, out=z)
        z += 1
        assert alias is z
        assert complex(alias) == 13
    assert float(total) == 6


@pytest.mark.parametrize(
    "name", ["less", "less_equal", "equal", "not_equal", "greater", "greater_equal", "logical_and"]
)
@pytest.mark.parametrize("value", [5, 2.5, -1, np.float32(0.1)])
@pytest.mark.parametrize("index", [[1, 3], [1, 3, 1], slice(1, 3)])
def test_at_of_comparisons_compares_with_the_number_itself(name, value, index):
    for dtype in ("d", "f", "l", "B"):
        a = np.arange(1, 7).astype(dtype)
        x = cut(a)
        ufunc = getattr(np, name)
        ufunc.at(a, index, value)
        ufunc.at(x, index, value)
        assert np.array_equal(x, a), dtype


@pytest.mark.parametrize("dtype", ["B", "f", "l"])
@pytest.mark.parametrize("value", [-1, 300, 0.1])
def test_at_takes_numbers_with_their_own_dtype(dtype, value):
    a = np.arange(6).astype(dtype)
    x = cut(a)
    for ufunc in (np.add, np.multiply, np.maximum):
        ufunc.at(a, [1, 3, 1], value)
        ufunc.at(x, [1, 3, 1], value)
        assert np.array_equal(x, a), ufunc


VIEWS = {
    "transposed": lambda x: x.T,
    "steps": lambda x: x[:, ::2],
    "reversed": lambda x: x[::-1, ::-1],
    "new axis": lambda x: x.T[None, :, ::2],
    "broadcast": lambda x: np.broadcast_to(x, (2, 4, 6)),
}
FLAT_WRITES = {
    "one": lambda x: operator.setitem(x.flat, 1, 100),
    "slice": lambda x: operator.setitem(x.flat, slice(0, 3), [7, 8, 9]),
    "all": lambda x: operator.setitem(x.flat, ..., 5),
    "positions": lambda x: operator.setitem(x.flat, np.array([0, 2]), [50, 60]),
    "mask": lambda x: operator.setitem(x.flat, np.arange(x.size) % 2 == 0, 1),
    "itself": lambda x: setattr(x, "flat", [1, 2, 3]),
    "put": lambda x: np.put(x, [0, 2], [4, 5]),
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("write", FLAT_WRITES)
def test_writes_through_flat_reach_the_array(view, write):
    a = np.arange(24.0).reshape(4, 6)
    x = dx.asarray(a, team=A_TEAM, sharding=("r", None))
    if view == "broadcast":
        with pytest.raises(ValueError, match="read-only"):
            FLAT_WRITES[write](VIEWS[view](x))
    else:
        FLAT_WRITES[write](VIEWS[view](x))
        FLAT_WRITES[write](VIEWS[view](a))
    assert np.array_equal(x, a)
    assert np.array_equal(VIEWS[view](x).flat, VIEWS[view](a).flat)


MASK = np.array([1, 0, 1, 0, 1, 0], bool)
FILLED = {
    "putmask": lambda x, v: np.putmask(x, MASK, v),
    "place": lambda x, v: np.place(x, MASK, v),
    "put": lambda x, v: np.put(x, [1, 2], v),
    "insert": lambda x, v: np.insert(x, 0, v),
    "setitem": lambda x, v: operator.setitem(x, slice(2, 4), v),
    "set at positions": lambda x, v: operator.setitem(x, [1, 2], v),
    "set at a mask": lambda x, v: operator.setitem(x, np.arange(6) < 2, v),
    "fill_diagonal": lambda x, v: np.fill_diagonal(x.reshape(2, 3), v),
    "flat": lambda x, v: setattr(x, "flat", v),
    "real": lambda x, v: setattr(x[:2], "real", v),
    "imag": lambda x, v: setattr(x[:2], "imag", v),
}
VALUES = {
    "floats": lambda xp: xp(np.array([1.5, 2.5])),
    "complex": lambda xp: xp(np.array([1j, 2])),
    "wide": lambda xp: xp(np.array([1, 300])),
    "a list of floats": lambda xp: [1.5, 2],
    "a list with 1j": lambda xp: [1j, 2],
    "1j": lambda xp: 1j,
    "2.5": lambda xp: 2.5,
    "-1": lambda xp: -1,
    "300": lambda xp: 300,
    "nan": lambda xp: np.nan,
    "numpy's 1j": lambda xp: np.complex128(1j),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("name", FILLED)
def test_what_is_written_casts_as_numpy_says(name, value):
    for dtype in ("l", "d", "B", "?", "D"):
        a = np.arange(6).astype(dtype)
        x = cut(a)
        try:
            expected: object = FILLED[name](a, VALUES[value](np.asarray))
        except (TypeError, ValueError, OverflowError) as error:
            with pytest.raises(type(error)):
                FILLED[name](x, VALUES[value](cut))
        else:
            result = FILLED[name](x, VALUES[value](cut))
            assert (result is None) if expected is None else np.array_equal(result, expected, equal_nan=True), dtype
        assert np.array_equal(x, a, equal_nan=True), dtype


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["std", "ptp", "var", "mean", "nanstd", "nanmean", "take", "sum"])
def test_out_is_cast_to_as_numpy_says(name):
    def call(x, out):
        return np.take(x, [1, 2], out=out) if name == "take" else getattr(np, name)(x, out=out)

    for dtype in ("l", "f", "D"):
        for other in ("i", "l", "d", "f", "D", "B"):
            a = np.arange(6).astype(dtype)
            shape = (2,) if name == "take" else ()
            expected = outcome(call, a, np.zeros(shape, other))
            result = outcome(call, cut(a), dx.zeros(shape, other, team=A_TEAM))
            if isinstance(expected, type):
                assert result is expected, (dtype, other)
            else:
                assert result[0] == expected[0], (dtype, other)
                assert np.allclose(result[1], expected[1]), (dtype, other)


def test_insert_takes_computed_positions_and_masks():
    a = np.arange(6.0)
    mask = np.array([True, False, True, False, False, True])
    assert np.array_equal(dx.insert(cut(a), cut(np.array([1, 2])) + 1, 1), np.insert(a, [2, 3], 1))
    assert np.array_equal(dx.insert(cut(a), cut(np.array([1, 2]))[1], 1), np.insert(a, 2, 1))
    assert np.array_equal(dx.insert(cut(a), mask, 7), np.insert(a, mask, 7))
    assert np.array_equal(dx.delete(cut(a), cut(np.array([1, 2])) + 1), np.delete(a, [2, 3]))


@pytest.mark.parametrize(("mine", "others"), [((1, 1), (1, 1, 1)), ((2, 2), (1, 2, 2)), ((2, 2), (1, 1, 2, 2))])
def test_matmul_in_place_does_without_axes_in_front(mine, others):
    for tiles in (None, 2):
        with force_tiles(tiles) if tiles else nullcontext():
            x, y = (dx.asarray(np.arange(1.0, 1.0 + np.prod(shape)).reshape(shape)) for shape in (mine, others))
            a, b, same = np.array(x), np.array(y), x
            x @= y
            a @= b
            assert x is same
            np.testing.assert_array_equal(x, a)


def test_matmul_in_place_by_a_vector_is_numpys_error():
    for n in (np.arange(3.0), np.eye(3)):
        x = dx.asarray(n, team=A_TEAM)
        with pytest.raises(ValueError, match="inplace matrix multiplication requires"):
            x @= np.arange(3.0)
        assert np.array_equal(x, n)


@pytest.mark.parametrize("kth", [0, 1, [1, 2]])
def test_partition_of_nothing_is_nothing(kth):
    for function in (np.partition, np.argpartition):
        assert outcome(function, cut(np.zeros(0)), kth) == outcome(function, np.zeros(0), kth)


def test_sort_in_place_takes_no_none_for_an_axis():
    with pytest.raises(TypeError, match="integer"):
        cut(np.arange(3.0)).sort(axis=None)


def test_take_along_the_first_axis_raises_at_the_call():
    x = dx.asarray(np.arange(12.0).reshape(4, 3), team=A_TEAM, sharding=("r", None))
    outside = dx.asarray(np.array([[0, 4, 1]]), team=A_TEAM) + 0
    with pytest.raises(IndexError, match="index 4 is out of bounds for axis 0 with size 4"):
        np.take_along_axis(x, outside, 0)


@pytest.mark.parametrize(
    ("a", "choices"), [([0, 0, 0], [5]), (np.zeros((2, 3), int), [np.arange(3.0)]), ([[0], [0]], [np.arange(2)])]
)
@pytest.mark.parametrize("mode", ["raise", "wrap", "clip"])
def test_one_choice_has_the_shape_of_what_is_chosen_and_memory_of_its_own(a, choices, mode):
    expected = np.choose(a, choices, mode=mode)
    ours = [dx.asarray(c) for c in choices]
    found = dx.choose(a, ours, mode=mode)
    np.testing.assert_array_equal(np.asarray(found), expected)
    assert found.dtype == expected.dtype
    found[...] = 9
    np.testing.assert_array_equal(np.asarray(ours[0]), choices[0])


@pytest.mark.parametrize("dtype", ["u1", "i1", "i2", "i8"])
@pytest.mark.parametrize("mode", ["wrap", "clip"])
@pytest.mark.parametrize("computed", [False, True])
def test_positions_of_small_integers_are_taken_and_put_in_long_arrays(mode, dtype, computed):
    at = np.array([1, 100, 127, 3], dtype) - np.array(4, dtype) * (dtype != "u1")
    a = np.arange(300.0)
    x = cut(a)
    index = dx.asarray(at, team=x.team) if computed else at
    np.testing.assert_array_equal(np.asarray(dx.take(x, index, mode=mode)), np.take(a, at, mode=mode))
    np.put(a, at, 5, mode=mode)
    dx.put(x, index, 5, mode=mode)
    np.testing.assert_array_equal(np.asarray(x), a)


@pytest.mark.parametrize("fp", [[5.0, 6.0], [0, 1j]])
def test_interp_of_no_position_is_numpys(fp):
    x = [np.nan, 0.25, 3.0]
    np.testing.assert_array_equal(np.asarray(dx.interp(x, [0.0, 1.0], fp)), np.interp(x, [0.0, 1.0], fp))
    np.testing.assert_array_equal(np.asarray(dx.interp(x, [1.0], fp[1:])), np.interp(x, [1.0], fp[1:]))


def test_negative_sizes_have_no_indices():
    for name in ("tril_indices", "triu_indices", "diag_indices"):
        for ours, numpys in zip(getattr(dx, name)(-2), getattr(np, name)(-2), strict=True):
            np.testing.assert_array_equal(ours, numpys)


def test_errors_of_an_iterable_are_raised_as_they_are():
    class Mine(ValueError):
        def __init__(self, a, b):
            super().__init__(f"{a} and {b}")

    def numbers():
        yield 1.0
        raise Mine("this", "that")

    with pytest.raises(Mine, match="this and that"):
        dx.fromiter(numbers(), float)


def test_updates_of_arrays_of_two_teams_are_refused_without_computing():
    x = dx.zeros((10**5, 10**5), team=dx.Team((2,), ("a",)))
    y = dx.zeros((10**5, 10**5), team=dx.Team((3,), ("b",)))
    for update in (lambda: x.__imatmul__(y), lambda: x.__iadd__(y), lambda: np.add.at(x, ..., y)):
        with pytest.raises(dx.EnvironmentMismatchError):
            update()


#: Functions, beside those of `test_numpy_coverage`, of which numpy makes a scalar, or an array without axes.
WITHOUT_AXES = {
    "astype of a sum": lambda x: x.sum().astype("f4"),
    "astype of an element": lambda x: x[0, 0, 0].astype("i8"),
    "astype of an array": lambda x: np.zeros_like(x[0, 0, 0]).astype("f4"),
    "copy of a sum": lambda x: x.sum().copy(),
    "quantile": lambda x: np.quantile(x, 0.5),
    "percentile of a vector": lambda x: np.percentile(x[0, 0], 30),
    "median of a vector": lambda x: np.median(x[0, 0]),
    "interp": lambda x: np.interp(0.5, np.arange(16.0), x[0, 0]),
    "where": lambda x: np.where(x[0, 0, 0] > 0, 1, 2.0),
    "reshape": lambda x: x.sum().reshape(()),
    "squeeze": lambda x: x[:1, :1, :1].squeeze(),
    "choose": lambda x: np.choose((x[0, 0, 0] > 0).astype("i8"), [x[0, 0, 0], x[0, 0, 1]]),
    "digitize": lambda x: np.digitize(x[0, 0, 0], np.arange(5.0)),
    "cond": lambda x: np.linalg.cond(x[0, :, :6] + 500 * np.eye(6)),
}


@pytest.mark.parametrize("tiles", [None, 3])
def test_every_function_of_numpy_that_gives_a_scalar_is_replaced_by_updates(tiles):
    coverage = module_at(Path(__file__).parents[1] / "composed" / "test_numpy_coverage.py")
    n_scalars, wrong = 0, []
    for row, call in {**coverage.ROWS, **WITHOUT_AXES}.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = call(coverage.X.copy())
            if getattr(expected, "shape", None) != ():
                continue
            with force_tiles(tiles) if tiles else nullcontext():
                made = call(dx.asarray(coverage.X.copy()))
        if isinstance(made, dx.DistArray):
            n_scalars += 1
            is_replaced = is_scalar(made)
            if is_replaced != isinstance(expected, np.generic):
                wrong.append((row, type(expected), made.__dx_node__()))
    assert n_scalars > 40
    assert not wrong


def test_a_random_number_is_replaced_by_updates():
    s = t = dx.random.default_rng(1).random()
    s += 1
    assert float(t) < 1 <= float(s)


@pytest.mark.parametrize("weights", ["?", "b", "B", "i", "e", "f", "d", "D"])
@pytest.mark.parametrize("own", ["?", "b", "H", "i", "e", "f", "D"])
def test_average_multiplies_in_the_dtype_of_the_result(own, weights):
    a, w = np.array([100, 101, 90, 0]).astype(own), np.array([2, 3, 1, 7]).astype(weights)
    for returned in (False, True):
        found, expected = (f(x, weights=w, returned=returned) for f, x in ((dx.average, cut(a)), (np.average, a)))
        pairs = zip(found, expected, strict=True) if returned else ((found, expected),)
        for mine, theirs in pairs:
            assert mine.dtype == theirs.dtype
            np.testing.assert_allclose(np.asarray(mine), theirs, rtol=1e-3 if theirs.dtype == "e" else 1e-6)


def test_average_of_durations_is_numpys_error():
    a = np.arange(4).astype("m8[s]")
    with pytest.raises(TypeError, match="could not be promoted"):
        np.average(a, weights=np.arange(1, 5))
    with pytest.raises(TypeError, match="could not be promoted"):
        dx.average(cut(a), weights=np.arange(1, 5))


@pytest.mark.parametrize("axis", [(1, 0), (0, 1), (2, 0), (2, 1, 0), (1, 2, 0), (-1, 0), (1,), 2])
def test_average_takes_weights_along_axes_in_any_order(axis):
    x = np.arange(24.0).reshape(2, 3, 4)
    extents = [x.shape[a] for a in (axis if isinstance(axis, tuple) else (axis,))]
    w = np.random.default_rng(1).random(extents)
    np.testing.assert_allclose(dx.average(cut(x), axis=axis, weights=w), np.average(x, axis=axis, weights=w))


@pytest.mark.parametrize("sections", [3, np.int64(3), np.array(3), "array", [3, 5], np.array([3, 5]), (3,), []])
@pytest.mark.parametrize("name", ["split", "array_split", "hsplit"])
def test_split_takes_a_number_of_every_kind(name, sections):
    on_host = sections if not isinstance(sections, str) else 3
    given = dx.asarray(3) if isinstance(sections, str) else sections
    found = getattr(dx, name)(cut(np.arange(9)), given)
    for mine, theirs in zip(found, getattr(np, name)(np.arange(9), on_host), strict=True):
        np.testing.assert_array_equal(np.asarray(mine), theirs)


@pytest.mark.parametrize("dtype", ["?", "b", "B", "Q", "e", "d", "F", "M8[s]", "M8[ns]", "m8[ms]"])
@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_differences_of_few_or_no_elements_have_numpys_dtype(dtype, n):
    a = np.arange(n).astype("i8").astype(dtype)
    for order in (1, 2, 4):
        assert outcome(lambda x, f: f.diff(x, n=order), cut(a), dx) == outcome(lambda x, f: f.diff(x, n=order), a, np)
    wide = np.zeros((n, 2), dtype)
    for axis in (0, 1):
        assert dx.diff(cut(wide), axis=axis).dtype == np.diff(wide, axis=axis).dtype
    assert outcome(dx.ediff1d, cut(a)) == outcome(np.ediff1d, a)


def test_tile_of_nothing_has_as_many_axes_as_it_will():
    """Arrays of so many axes that a tile cannot be a broadcast of twice as many."""
    shape = (0,) * 15 + (2,) * 25
    assert dx.tile(dx.zeros(shape), (2,) * 40).shape == np.tile(np.zeros(shape), (2,) * 40).shape
    times = (0,) + (2,) * 43
    for module in (np, dx):
        with pytest.raises(ValueError, match=r"too big|dimension exceeded"):
            module.tile(module.zeros((1, 2) * 22), times)


@pytest.mark.parametrize("shape", [(0, 2**40, 2**40), (2**40, 2**40), (0, 2**63), (2**63, 0)])
def test_extents_of_zero_let_no_shape_be_too_large(shape):
    for module in (np, dx):
        with pytest.raises(ValueError, match=r"too big|dimension exceeded"):
            module.zeros(shape, np.int8)
    assert dx.zeros((0, 2**60), np.int8).shape == np.zeros((0, 2**60), np.int8).shape


def test_what_is_wrong_with_a_percentile_is_said_once():
    with pytest.raises(ValueError, match=r"^Percentiles must be in the range \[0, 100\], not q=150$"):
        dx.percentile(cut(np.arange(4.0)), 150)
    with pytest.raises(ValueError, match=r"^Quantiles must be in the range \[0, 1\], not q=1.5$"):
        dx.quantile(cut(np.arange(4.0)), 1.5)


D, T = np.datetime64, np.timedelta64


@pytest.mark.parametrize("dtype", [None, "M8[D]", "M8[h]", "m8[s]"])
@pytest.mark.parametrize(
    "args",
    [
        (3, 5), (5,), (D("2020-01"),), (D("2020-01"), D("2020-03-01")), (D("2020-01"), 6), (D("2020-01"), T(6, "M")),
        (D("2020-01"), D("2020-09"), T(2, "M")), (D("2020-01"), "2020-04"), ("2020-01-01", "2020-01-05"),
        (D("2020-01-05"), D("2020-01-01"), -1), (D("2020-01-05"), D("2020-01-01"), 0), (D("NaT"), D("2024")),
        (D("2020"), D("2024"), T(5, "D")), (T(5, "h"),), (T(5, "h"), T(90, "m")), (T(1, "h"), 9), (5, T(9, "s")),
        (0, 10, T(3, "s")), (D("2020-01-01"), T(5, "h")),
    ],
)  # fmt: skip
def test_ranges_of_dates_are_numpys(args, dtype):
    try:
        expected = np.arange(*args, dtype=dtype)
    except (TypeError, ValueError) as error:
        with pytest.raises(type(error)):
            dx.arange(*args, dtype=dtype)
        return
    found = dx.arange(*args, dtype=dtype)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(np.asarray(found), expected)


@pytest.mark.parametrize("shape", [(2, 2), (3, 2), (1, 3), (0, 2), (3, 1, 2), (1, 2)])
def test_results_broadcast_into_out_but_not_along_core_dimensions(shape):
    a = np.arange(4.0).reshape(2, 2)
    out, ours = np.zeros(shape), dx.zeros(shape)
    try:
        np.matmul(a[:1], a, out=out)
    except ValueError:
        with pytest.raises(ValueError, match=r"core dimension|broadcast"):
            np.matmul(dx.asarray(a)[:1], dx.asarray(a), out=ours)
    else:
        np.matmul(dx.asarray(a)[:1], dx.asarray(a), out=ours)
    np.testing.assert_array_equal(np.asarray(ours), out)


@pytest.mark.parametrize("edge_order", [1, 2])
def test_gradient_of_dates_is_time_spans(edge_order):
    dates = np.array(["2020-01-05", "1999-12-31", "2020-01-05", "NaT", "2001-01-01"], "M8[D]")
    expected = np.gradient(dates, edge_order=edge_order)
    found = dx.gradient(dx.asarray(dates), edge_order=edge_order)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(np.asarray(found), expected)


@pytest.mark.parametrize("number", [300, -1, 1, 10**12])
def test_numbers_beyond_the_dtype_are_sought_and_chosen(number):
    a = np.array([1, 2], "u1")
    assert int(dx.searchsorted(cut(a), number)) == np.searchsorted(a, number)
    if number < 10**12:
        found = dx.select([a > 1], [cut(a)], number)
        np.testing.assert_array_equal(np.asarray(found), np.select([a > 1], [a], number))


@pytest.mark.parametrize("number", [float("nan"), float("inf"), 1.5, True])
def test_numbers_of_other_kinds_are_sought_among_integers(number):
    a = np.array([1, 2, 7])
    assert int(dx.searchsorted(cut(a), number)) == np.searchsorted(a, number)


@pytest.mark.parametrize("a", [[np.nan, 1.0, np.inf], [1, 2, 3], [complex(np.nan, 1), 0, 1]])
@pytest.mark.parametrize("copy", [True, False, None])
def test_nan_to_num_without_a_copy_writes_to_the_array(a, copy):
    a = np.array(a)
    x = cut(a)
    expected, found = np.nan_to_num(a, copy=copy), np.nan_to_num(x, copy=copy)
    assert (found is x) == (expected is a)
    np.testing.assert_array_equal(np.asarray(found), expected)
    np.testing.assert_array_equal(np.asarray(x), a)


@pytest.mark.parametrize("shape", [(), (4,), (1,), (1, 4), (1, 1, 1), (2, 4), (3,), (0,), (3, 0)])
@pytest.mark.parametrize("dtype", ["f8", "c8", "i8"])
@pytest.mark.parametrize("given", [np.asarray, dx.asarray], ids=["numpys", "ours"])
def test_what_nan_to_num_writes_broadcasts_to_the_array_and_never_the_array_to_it(shape, dtype, given):
    new = np.arange(np.prod(shape, dtype=int), dtype="f8").reshape(shape)
    for a in (np.array([0, 1, 1, 4]).astype(dtype), np.array(2).astype(dtype)):
        for name in ("nan", "posinf"):
            try:
                expected = np.nan_to_num(a, **{name: new})
            except ValueError:
                with pytest.raises(ValueError, match="broadcast"):
                    dx.nan_to_num(dx.asarray(a), **{name: given(new)})
            else:
                found = dx.nan_to_num(dx.asarray(a), **{name: given(new)})
                np.testing.assert_array_equal(found, expected)
                assert found.shape == expected.shape


@pytest.mark.parametrize("name", ["quantile", "percentile", "nanquantile", "nanpercentile"])
def test_quantiles_of_more_axes_than_two_are_refused_as_by_numpy(name):
    a = np.arange(8.0).reshape(4, 2)
    np.testing.assert_array_equal(
        getattr(dx, name)(cut(a), [[0.5, 1]], axis=0), getattr(np, name)(a, [[0.5, 1]], axis=0)
    )
    for xp, x in ((np, a), (dx, cut(a))):
        with pytest.raises(ValueError, match="scalar or 1d"):
            getattr(xp, name)(x, np.ones((1, 2, 3)), axis=0)


@pytest.mark.parametrize("order", [None, "c", "F", "f", "K"])
def test_orders_of_positions_are_said_as_in_numpy(order):
    for call in (
        lambda xp: xp.unravel_index(xp.asarray([9]), (6, 4), order=order),
        lambda xp: (xp.ravel_multi_index((xp.asarray([1]), xp.asarray([2])), (6, 4), order=order),),
    ):
        if order == "K":
            for xp in (np, dx):
                with pytest.raises(ValueError, match=r"order|permitted"):
                    call(xp)
        else:
            for ours, theirs in zip(call(dx), call(np), strict=True):
                np.testing.assert_array_equal(ours, theirs)


STEPS_OF = [
    (np.uint8(5), np.uint8(0), 6),
    (np.int8(-100), np.int8(100), 3),
    (np.uint64(3), np.uint64(0), 4),
    (1 << 62, -(1 << 63), 3),
    (0, 1 << 63, 3),
    (True, False, 3),
    (np.float32(0), np.float32(1), 4),
    (0, 1j, 3),
    (np.float16(0), 1, 7),
]


@pytest.mark.parametrize("ends", STEPS_OF, ids=str)
def test_the_step_of_linspace_is_one_of_floats(ends):
    step, expected = (xp.linspace(*ends, retstep=True)[1] for xp in (dx, np))
    assert type(step) is type(expected)
    assert step == expected


def test_what_dask_was_given_follows_the_shape_and_goes_with_the_version():
    dask = pytest.importorskip("dask")
    x = dx.arange(6.0)
    assert dask.compute(x)[0].shape == (6,)
    assert x.__dask_layers__() == x[:].__dask_layers__() != x[1:].__dask_layers__()
    x.shape = (2, 3)
    assert dask.compute(x)[0].shape == x.to_dask_array().shape == (2, 3)
    x = dx.arange(300_000.0) + 1
    x.to_dask_array()
    before = weakref.ref(x._base.current)
    x += 1
    assert float(x[0]) == 2
    gc.collect()
    assert before() is None


def test_what_is_read_only_is_so_for_its_views_and_for_the_base_of_these():
    for xp in (np, dx):
        x = xp.arange(4.0) + 0
        x.flags.writeable = False
        v = x[1:][:2]
        with pytest.raises(ValueError, match="read-only"):
            v.base[0] = 9
        with pytest.raises(ValueError, match="cannot set WRITEABLE flag to True"):
            v.setflags(write=True)
        x.flags.writeable = True
        assert not v.flags.writeable
        y = xp.arange(4.0) + 0
        v = y[1:]
        v.flags.writeable = False
        w = v[1:]
        assert not w.flags.writeable
        w.setflags(write=True)
        w[0], v.base[0] = 9, 3
        assert y.tolist() == [3, 1, 9, 3]
        whole = xp.broadcast_to(y, (2, 4))
        whole.base[1] = 7
        assert y[1] == 7


def test_a_small_unsigned_length_of_counts_bounds_no_overflow():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = dx.bincount(dx.asarray([1, 2, 1]), minlength=np.uint8(200))
    np.testing.assert_array_equal(np.asarray(made), np.bincount([1, 2, 1], minlength=200))


@pytest.mark.parametrize("cuts", [1, 3])
def test_the_largest_unsigned_positions_count_from_the_end(cuts):
    at = np.array([1, 2**64 - 1], np.uint64)
    with force_tiles(cuts):
        x = dx.arange(3)
        assert x[at].tolist() == x[dx.asarray(at) + np.uint64(0)].tolist() == [1, 2]
        x[at] = 7
        assert x.tolist() == [0, 7, 7]
        with pytest.raises(IndexError, match="out of bounds"):
            x[np.array([2**63], np.uint64)]


def test_dates_are_neither_real_nor_complex():
    for given in (["2020-01-01", "NaT"], np.array([3, "NaT"], "m8[s]")):
        host = np.array(given, None if isinstance(given, np.ndarray) else "M8[D]")
        for function in (np.isreal, np.iscomplex):
            ours = getattr(dx, function.__name__)(dx.asarray(host))
            np.testing.assert_array_equal(np.asarray(ours), function(host))
    with pytest.raises(TypeError, match="must be real"):
        dx.arange(1j, 3, dtype="i1")


@pytest.mark.parametrize("decimals", [-2, -1, 0, 1])
@pytest.mark.parametrize("dtype", ["i1", "u1", "i4", "i8", "u8", "f4", "c8"])
def test_large_arrays_are_rounded(dtype, decimals):
    host = (np.arange(600_000) % 101).astype(dtype)
    with dx.config.set(eager_bytes=0):
        made = np.asarray(dx.round(dx.asarray(host).reshape(600, 1000) + 0, decimals))
    assert made.dtype == host.dtype
    np.testing.assert_array_equal(made.reshape(-1), np.round(host, decimals))


@pytest.mark.parametrize("cuts", [0, 3])
def test_events_have_numpys_names_however_an_array_is_cut(cuts):
    big = np.full(12, 1e308)

    def at(xp):
        x = xp.asarray(big) + 0
        xp.add.at(x, [0, 0], 1e308)
        return x

    programs = [
        lambda xp: xp.cumsum(xp.asarray(big)),
        lambda xp: xp.multiply.accumulate(xp.asarray(big)),
        lambda xp: xp.subtract.accumulate(-xp.asarray(big)),
        lambda xp: xp.add.reduceat(xp.asarray(big), [0, 6]),
        lambda xp: xp.subtract.reduceat(-xp.asarray(big), [0, 6]),
        lambda xp: xp.linspace(0, 1e300, 12, dtype="i4"),
        *([at] if not cuts else []),  # numpy names it otherwise by itself where there are many
    ]
    for program in programs:
        told = []
        for xp in (np, dx):
            with warnings.catch_warnings(record=True) as met, force_tiles(cuts) if cuts else nullcontext():
                warnings.simplefilter("always")
                np.asarray(program(xp))
            told.append([str(each.message) for each in met])
        assert told[0] == told[1] and len(told[0]) == 1
