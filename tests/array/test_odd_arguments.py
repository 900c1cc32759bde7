"""Arguments that are odd but legal, or just not: results on small, planned and cut arrays are NumPy's, and so are
classes of errors, warnings, and what is shared.
"""

from __future__ import annotations

import operator
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import distarray as dx
from distarray.array.handle import is_scalar
from distarray.testing.assertions import assert_equal

Of = Callable[[Any], Any]  # from what makes an array to an array of numpy, or of ours
Call = Callable[[Any, Of], Any]  # of a namespace


@pytest.fixture(params=["small", "planned", "cut"])
def of(request: pytest.FixtureRequest) -> Iterator[Of]:
    """Arrays of ours that are computed at the call, by a plan, and by a plan for two members."""
    team = dx.Team((2,), ("r",)) if request.param == "cut" else None

    def make(data: Any) -> Any:
        host = np.array(data)
        pin = None if team is None or not host.ndim else (("r",), *[None] * (host.ndim - 1))
        return dx.asarray(host, team=team, sharding=pin)

    with dx.config.set({} if request.param == "small" else {"eager_bytes": 0, "block_bytes": 0}):
        yield make


def outcome(call: Call, xp: Any, of: Of) -> tuple[Any, set[type[Warning]]]:
    """Return what a call gives, or the error that it raises, and the classes of its warnings."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            found = call(xp, of)
            if isinstance(found, dx.DistArray):
                found.compute()
        except Exception as error:
            found = error
    # NumPy 2.5 deprecates bare integers beside time spans
    return found, {w.category for w in told if "'generic' unit" not in str(w.message)}


def assert_as_numpy(call: Call, of: Of) -> None:
    expected, warned = outcome(call, np, np.array)
    found, told = outcome(call, dx, of)
    if isinstance(expected, Exception):
        assert isinstance(found, Exception) and (isinstance(found, type(expected)) or isinstance(expected, type(found)))
        return
    assert not isinstance(found, Exception), found
    assert told == warned - {UserWarning}  # numpy's of `where` without `out`
    pairs = zip(found, expected, strict=True) if isinstance(expected, tuple) else [(found, expected)]
    for ours, theirs in pairs:
        assert_equal(ours, theirs)
        if isinstance(ours, dx.DistArray):
            assert is_scalar(ours) == isinstance(theirs, np.generic), "a number in place of an array, or the other way"


def written(call: Callable[..., Any], *data: Any) -> Call:
    """Return the call on arrays of these data, which gives the first of them."""

    def run(xp: Any, of: Of) -> Any:
        arrays = [of(each) for each in data]
        call(xp, *arrays)
        return arrays[0]

    return run


def set_first(x: Any, value: Any) -> None:
    x[(0,) * x.ndim] = value


V, M = np.array([3.0, 1.0, 2.0]), np.arange(6.0).reshape(2, 3)
I = np.array([1, 2, 3])  # noqa: E741
SQUARE = np.arange(4.0).reshape(2, 2)


def _seen_through_a_grid(sparse: bool, indexing: str) -> Call:
    def run(xp: Any, of: Of) -> Any:
        x, y = of(V), of(I * 1.5)
        grid = xp.meshgrid(x, y, copy=False, sparse=sparse, indexing=indexing)
        x[0], y[1] = 9, 7
        return tuple(grid)

    return run


#: What is shared: of what the call gives, an element is written.
SHARED: dict[str, Call] = {
    **{
        f"{'sparse' if sparse else 'dense'} grid {indexing}": _seen_through_a_grid(sparse, indexing)
        for sparse in (False, True)
        for indexing in ("xy", "ij")
    },
    "sparse grid": written(lambda xp, x: set_first(xp.meshgrid(x, [1.0, 2.0], copy=False, sparse=True)[0], 9), V),
    "copied grid": written(lambda xp, x: set_first(xp.meshgrid(x, [1.0, 2.0], sparse=True)[0], 9), V),
    "first power": written(lambda xp, x: set_first(xp.linalg.matrix_power(x, 1), 9), SQUARE),
    "second power": written(lambda xp, x: set_first(xp.linalg.matrix_power(x, 2), 9), SQUARE),
    "edges": written(lambda xp, e, x: set_first(xp.histogram(x, bins=e)[1], 9), np.arange(4.0), V),
    "nan_to_num": written(lambda xp, x: set_first(xp.nan_to_num(x, copy=False), 9), [np.nan, 1.0]),
}


@pytest.mark.parametrize("name", SHARED)
def test_memory_is_shared_as_numpys(name: str, of: Of) -> None:
    assert_as_numpy(SHARED[name], of)


COPIED: dict[str, Call] = {
    "a row": written(lambda xp, x: xp.copyto(x, [[1, 2]]), [0.0, 0.0]),
    "a row where": written(lambda xp, x: xp.copyto(x, [[1, 2]], where=[True, False]), [0.0, 0.0]),
    "too many": written(lambda xp, x: xp.copyto(x, [[1, 2], [3, 4]]), [0.0, 0.0]),
    **{
        f"{value} to {dtype}": written(
            lambda xp, x, v=value, c=casting: xp.copyto(x, v, casting=c), np.arange(3).astype(dtype)
        )
        for value in (np.nan, np.inf, 1e30, 2.5, 300, -1, 1 + 2j)
        for dtype in ("i8", "i4", "u1", "?", "f4")
        for casting in ("unsafe",)
    },
    "no integer": written(lambda xp, x: xp.copyto(x, np.nan), I),
    "an array": written(lambda xp, x, v: xp.copyto(x, v, casting="unsafe"), I, [np.nan, 1.0, 2.0]),
    "fill with one element": written(lambda xp, x, v: x.fill(v), [True, False], [1.0]),
    "fill with a zero": written(lambda xp, x, v: x.fill(v), [True, False], [[0.0]]),
    "fill with two": written(lambda xp, x, v: x.fill(v), [True, False], [1.0, 1.0]),
    **{
        f"fill {d} with an array": written(lambda xp, x, v: x.fill(v), np.zeros(2, d), [1.0])
        for d in ("i4", "f8", "c8", "m8[s]")
    },
    "a time span as an integer": written(lambda xp, x, v: set_first(x, v[1]), I, np.array([1, 2], "m8[s]")),
    "digitize dates": lambda xp, of: xp.digitize(of([1, 2]), of(np.array([1, 2], "m8[s]"))),
}


@pytest.mark.parametrize("name", COPIED)
def test_values_are_copied_and_refused_as_numpys(name: str, of: Of) -> None:
    assert_as_numpy(COPIED[name], of)


def _power(base: Any, exponent: Any, mask: Any, out: Any) -> Call:
    def run(xp: Any, of: Of) -> Any:
        return xp.power(of(base), of(exponent) if np.ndim(exponent) else exponent, out=of(out), where=mask)

    return run


@pytest.mark.parametrize("mask", [False, [False] * 3, [False, True, False], True], ids=repr)
@pytest.mark.parametrize("exponent", [-1, -300, [-1, -2, 3]], ids=repr)
@pytest.mark.parametrize("base", ["i8", "i1", "u1", "?", "f4"])
def test_powers_that_nobody_asked_for_are_no_error(base: str, exponent: Any, mask: Any, of: Of) -> None:
    assert_as_numpy(_power(I.astype(base), exponent, mask, np.zeros(3)), of)


#: Into arrays of other dtypes.
INTO: dict[str, Callable[[Any, Any, Any], Any]] = {
    "median": lambda xp, x, out: xp.median(x, 0, out=out),
    "nanmedian": lambda xp, x, out: xp.nanmedian(x, 0, out=out),
    "nanpercentile": lambda xp, x, out: xp.nanpercentile(x, 50, 0, out=out),
    "percentile": lambda xp, x, out: xp.percentile(x, 50, 0, out=out),
    "dot": lambda xp, x, out: xp.dot(x, x[0], out=out),
    "dot, method": lambda xp, x, out: x.dot(x[0], out),
    "einsum": lambda xp, x, out: xp.einsum("ij->i", x, out=out),
    "round": lambda xp, x, out: xp.round(x[0], 1, out=out),
    "round to tens": lambda xp, x, out: xp.round(x[0], -1, out=out),
    "trace": lambda xp, x, out: xp.trace(x, out=out[:1].reshape(())),
}


@pytest.mark.parametrize("target", ["f8", "f4", "i4", "?"])
@pytest.mark.parametrize("source", ["f8", "i4", "u1"])
@pytest.mark.parametrize("name", INTO)
def test_results_go_into_arrays_of_the_dtypes_that_numpy_takes(name: str, source: str, target: str, of: Of) -> None:
    data = (np.arange(9).reshape(3, 3) * 2 + 1).astype(source)
    assert_as_numpy(lambda xp, of: INTO[name](xp, of(data), of(np.zeros(3, target))), of)


SPANS = np.array([1, 2], "m8[s]")
REFUSED: dict[str, Call] = {
    **{
        f"{value!r} to {dtype} at {at!r}": written(
            lambda xp, x, value=value, at=at: x.__setitem__(at, value), np.zeros(3, dtype)
        )
        for dtype in ("m8[s]", "m8[Y]", "M8[D]", "i8")
        for value in (np.timedelta64(1, "Y"), np.timedelta64(1, "ms"), np.datetime64("2000-01-01"))
        for at in (0, [0], [], [True, False, True], slice(0, 2))
    },
    **{
        f"{dtype} with {value!r} around": lambda xp, of, value=value, dtype=dtype: xp.pad(
            of(np.zeros(3, dtype)), 1, constant_values=value
        )
        for dtype in ("m8[s]", "m8[Y]", "M8[D]", "i8")
        for value in (np.timedelta64(1, "Y"), np.timedelta64(1, "s"), np.datetime64("2000-01-01"), 1)
    },
    **{
        f"{np.shape(values)} along all axes": written(
            lambda xp, x, values=values: xp.put_along_axis(x, np.array([0, 2, 5]), values, None), M
        )
        for values in (7.0, [7.0], [7.0, 8.0], [1.0, 2.0, 3.0], [[1.0, 2.0, 3.0]], [[7.0], [8.0], [9.0]], [], M)
    },
    **{
        f"a time span in the index {index}": lambda xp, of, index=index: of(M)[index]
        for index in (np.timedelta64(1), np.timedelta64(1, "s"), (0, np.timedelta64(1)))
    },
    "permuted, without axes": lambda xp, of: xp.random.default_rng(0).permuted(of(3)),
    "one of too many": lambda xp, of: xp.random.default_rng(0).choice(10**20),
    **{
        f"{name} along {axis!r}": lambda xp, of, name=name, axis=axis: getattr(xp.add, name)(
            of(M), *[[0]] * (name == "reduceat"), axis=axis
        )
        for name in ("accumulate", "reduceat")
        for axis in ([0], True, np.array([0]), (0,), None)
    },
    **{
        f"{name} of a truth value": lambda xp, of, name=name: operator.attrgetter(name)(xp)(True)
        for name in ("eye", "identity", "tri", "fft.fftfreq", "zeros", "hamming")
    },
    "a transform of a truth value": lambda xp, of: xp.fft.fft(of(V), True),
    "as many powers as a truth value": lambda xp, of: xp.vander(of(V), True),
    **{
        f"{name} into {dtype}": lambda xp, of, name=name, dtype=dtype: getattr(xp, name)(
            of(M), 0, out=of(np.zeros(3, dtype))
        )
        for name in ("nanargmax", "nanargmin", "argmax")
        for dtype in ("f8", "i8", "m8[s]", "?", "i4", "u8")
    },
    **{
        f"{name} into an array": lambda xp, of, name=name: getattr(xp, name)(1, 2, 3, out=of(np.zeros(3)))
        for name in ("linspace", "geomspace", "logspace")
    },
    "zeros into an array": lambda xp, of: xp.zeros(3, out=of(np.ones(3))),
    "a matrix product of time spans": lambda xp, of: xp.matmul(of(SPANS), of(SPANS)),
    **{f"cov {d}": lambda xp, of, d=d: xp.cov(of(M), dtype=d) for d in ("i8", "?", "f4")},
    **{f"bincount {n}": lambda xp, of, n=n: xp.bincount(of(I), minlength=n) for n in (True, 5, 2.0)},
    **{
        f"isin {kind} {d}": lambda xp, of, kind=kind, d=d: xp.isin(of(I.astype(d)), of(I), kind=kind)
        for kind in ("table", "sort", "other")
        for d in ("f8", "i4", "?")
    },
    **{
        f"{name} {label}": lambda xp, of, name=name, axis=axis: getattr(xp, name)(of(M), axis=axis(of))
        for name in ("sum", "max", "all", "std", "ptp", "count_nonzero", "nansum", "nanmax", "expand_dims", "flip")
        for label, axis in {
            "an array of one": lambda of: of([1]),
            "an array of two": lambda of: of([0, 1]),
            "a number": lambda of: of([1, 0])[0],
            "an array without axes": lambda of: of(1),
            "a list": lambda of: [1],
        }.items()
    },
    "squeeze": lambda xp, of: xp.squeeze(of(M[:, :1]), axis=of([1])),
    "norm, array": lambda xp, of: xp.linalg.norm(of(M), axis=of([0, 1])),
    "norm, list": lambda xp, of: xp.linalg.norm(of(M), axis=[1]),
    **{
        f"pinv {given}": lambda xp, of, given=given: xp.linalg.pinv(of(SQUARE), **given).round(9)
        for given in (
            {"rcond": 0.5, "rtol": 0.5},
            {"rtol": 0.5, "rcond": 0.5},
            {"rtol": 0.5, "rcond": None},
            {"rcond": None, "rtol": 0.5},
            {"rtol": None, "rcond": 0.5},
        )
    },
    **{
        f"matrix_rank {tol} {rtol}": lambda xp, of, tol=tol, rtol=rtol: xp.linalg.matrix_rank(
            of(SQUARE), tol=tol, rtol=rtol
        )
        for tol, rtol in ((0.1, 0.1), (None, 0.5), (1.5, None))
    },
    **{
        f"{name} of what has no places, {label}": lambda xp, of, name=name, items=items: getattr(xp, name)(
            items([of(I), of(I)])
        )
        for name in ("concatenate", "stack", "vstack", "hstack", "dstack", "column_stack")
        for label, items in {
            "generator": lambda arrays: (x for x in arrays),
            "map": lambda arrays: map(abs, arrays),
            "values": lambda arrays: dict(enumerate(arrays)).values(),
            "deque": deque,
        }.items()
    },
    **{
        f"{name} of a list": lambda xp, of, name=name, args=args: getattr(xp, name)([[1, 2], [3, 4]], *args)
        for name, args in {
            "place": ([[True, False]] * 2, [0]),
            "put": ([0], [1]),
            "putmask": ([[True, False]] * 2, [1]),
            "copyto": ([0],),
            "fill_diagonal": (0,),
            "put_along_axis": ([[0, 0]], 0, 0),
        }.items()
    },
    "copyto a list": lambda xp, of: xp.copyto([1, 2, 3], of(I)),
    **{
        f"insert at {at}": lambda xp, of, at=at: xp.insert(of(I), at if isinstance(at, float | list) else of(at), 9)
        for at in (np.array([1.0, 2.0]), np.array([]), np.array([1.0]), [1.0, 2.0], 1.0, [])
    },
    **{f"piecewise {n}": lambda xp, of, n=n: xp.piecewise(of(n), of(n) > 3, [4, 0]) for n in (3, 4, [3, 4])},
    **{
        f"arange {args} {dtype}": lambda xp, of, args=args, dtype=dtype: xp.arange(*args, dtype=dtype)
        for args in (
            ("1066-10-13", "1066-10-16"),
            ("2000-01", "2000-05", 2),
            ("2000-01", "2000-01-05"),
            ("2000-01", 3),
            (np.datetime64("2000-01"), np.datetime64("2000-05"), np.timedelta64(2, "M")),
            (np.timedelta64(1, "D"), np.timedelta64(3, "D")),
            (3,),
        )
        for dtype in ("M8", "m8", "M8[D]")
    },
    **{f"pad {mode}": lambda xp, of, mode=mode: xp.pad(of(I), 1, mode) for mode in (1, None, True, b"edge", "Edge")},
    "more elements than 64 bits count": lambda xp, of: of(np.ones((1,) * 5))[np.ix_(*[np.zeros(7132, int)] * 5)],
}


@pytest.mark.parametrize("name", REFUSED)
def test_arguments_are_refused_as_numpys(name: str, of: Of) -> None:
    assert_as_numpy(REFUSED[name], of)


def test_a_call_of_the_class_is_told_what_makes_arrays() -> None:
    with pytest.raises(TypeError, match=r"dx\.asarray, dx\.zeros"):
        dx.ndarray((2, 3), dtype="f8")


@pytest.mark.parametrize("axes", ["none", None, (0, 1)], ids=repr)
@pytest.mark.parametrize("s", [None, (2,), (2, 2), (None, 2), (-1, 2)], ids=repr)
@pytest.mark.parametrize("name", ["fftn", "irfftn", "rfft2"])
def test_lengths_without_axes_are_deprecated_at_every_call(name: str, s: Any, axes: Any, of: Of) -> None:
    options = {"s": s} if axes == "none" else {"s": s, "axes": axes}
    for _ in range(2):
        assert_as_numpy(lambda xp, of: getattr(xp.fft, name)(of(SQUARE), **options), of)


ROLLED: list[Any] = [True, 1.0, 2.5, [True], [True, False], [1.0], np.True_, [[1]], "1", None]


@pytest.mark.parametrize("is_ours", [False, True])
@pytest.mark.parametrize("shift", ROLLED, ids=repr)
@pytest.mark.parametrize("axis", [None, 0, (0, 1)], ids=repr)
def test_shifts_are_what_int_makes_of_them(shift: Any, axis: Any, is_ours: bool, of: Of) -> None:
    if is_ours and (shift is None or isinstance(shift, str)):
        return
    assert_as_numpy(lambda xp, of: xp.roll(of(M), of(shift) if is_ours else shift, axis=axis), of)


@pytest.mark.parametrize("name", ["mean", "var", "std"])
def test_a_method_of_numpys_that_would_leave_a_total_in_our_array_is_refused(name: str) -> None:
    x, out = np.arange(6.0).reshape(2, 3), dx.ones(3)
    with pytest.raises(TypeError, match=r"np\.mean\(x, out=\.\.\.\)"):
        getattr(x, name)(axis=0, out=out)
    np.testing.assert_array_equal(out, np.ones(3))
    assert getattr(np, name)(x, axis=0, out=out) is out
    np.testing.assert_array_equal(out, getattr(x, name)(axis=0))
    assert x.sum(axis=0, out=out) is out
    np.testing.assert_array_equal(out, x.sum(axis=0))


@pytest.mark.parametrize("name", ["subtract", "add", "divide", "hypot"])
@pytest.mark.parametrize("at", [[0, 2], [1, 0, 3, 3, 2], [4]], ids=repr)
def test_segments_go_up_to_the_next_one_also_where_the_result_is_cut(name: str, at: list[int], of: Of) -> None:
    assert_as_numpy(lambda xp, of: getattr(np, name).reduceat(of([9, 16, 25, 36, 49]), at), of)


@pytest.mark.parametrize("limits", [(1, 4), (None, 3), (2, None)], ids=repr)
def test_a_method_of_numpys_clips_to_our_limits_and_into_our_arrays(limits: tuple[Any, Any]) -> None:
    x = np.arange(6.0)
    least, most = limits
    expected = x.clip(least, most)
    out = dx.zeros(6)
    assert x.clip(least, most, out=out) is out
    np.testing.assert_array_equal(out, expected)
    ours = x.clip(*[None if limit is None else dx.asarray([limit]) for limit in limits])
    assert isinstance(ours, dx.DistArray)
    np.testing.assert_array_equal(ours, expected)


@pytest.mark.parametrize("times", [True, [True, False], [False, True]], ids=repr)
def test_truth_values_are_repetitions(times: Any, of: Of) -> None:
    assert_as_numpy(lambda xp, of: xp.tile(of(M), of(times)), of)


#: Of arrays and numbers without axes, some functions make numbers and some arrays.
WITHOUT_AXES: dict[str, Callable[[Any, Any], Any]] = {
    "flip": lambda xp, x: xp.flip(x),
    "nan_to_num": lambda xp, x: xp.nan_to_num(x),
    "einsum": lambda xp, x: xp.einsum("->", x),
    "einsum of an ellipsis": lambda xp, x: xp.einsum("...", x),
    "positive": lambda xp, x: +x,
    "conj": lambda xp, x: xp.conj(x),
    "twice negative": lambda xp, x: xp.negative(-x),
    "abs": lambda xp, x: abs(x),
    "round": lambda xp, x: xp.round(x),
    "tensordot": lambda xp, x: xp.tensordot(x, x, 0),
    "tensordot of vectors": lambda xp, x: xp.tensordot(x.reshape(1), x.reshape(1), 1),
    "dot": lambda xp, x: xp.dot(x, x),
    "roll": lambda xp, x: xp.roll(x, 1),
    "isin": lambda xp, x: xp.isin(x, x),
    "lexsort": lambda xp, x: xp.lexsort((x,)),
    "real": lambda xp, x: x.real,
    "imag": lambda xp, x: xp.imag(x) * 1,
}


@pytest.mark.parametrize("value", [2.5, -3, 1 + 2j], ids=repr)
@pytest.mark.parametrize("make", [lambda of, v: of(v), lambda of, v: of([v, v])[1]], ids=["array", "number"])
@pytest.mark.parametrize("name", WITHOUT_AXES)
def test_numbers_and_arrays_without_axes_are_told_apart(name: str, make: Any, value: Any, of: Of) -> None:
    assert_as_numpy(lambda xp, of: WITHOUT_AXES[name](xp, make(of, value)), of)


def test_the_bessel_function_makes_arrays(of: Of) -> None:
    assert_as_numpy(lambda xp, of: xp.i0(of(2.5)), of)


@pytest.mark.parametrize("period", [None, 3.0, 2 + 0j, -2, 0, np.array([3.0]), np.array([0])], ids=repr)
@pytest.mark.parametrize("points", [([2.0], [3.0]), ([2.0], [3j]), ([2.0, 3.0], [3.0, 4.0])], ids=repr)
@pytest.mark.parametrize("x", [1.0, [1.0], [1.0, 5.0], [[1.0]]], ids=repr)
def test_interpolation_between_few_points(x: Any, points: Any, period: Any, of: Of) -> None:
    assert_as_numpy(lambda xp, of: xp.interp(of(x), of(points[0]), of(points[1]), period=period), of)


@pytest.mark.parametrize("rowvar", [True, False])
@pytest.mark.parametrize("y", [(0,), (0, 3), (3,), (1, 0), (2, 3)], ids=repr)
@pytest.mark.parametrize("m", [(0, 3), (2, 0), (2, 3)], ids=repr)
def test_covariance_with_nothing(m: tuple[int, ...], y: tuple[int, ...], rowvar: bool, of: Of) -> None:
    data = [np.arange(np.prod(shape), dtype=float).reshape(shape) ** 2 for shape in (m, y)]
    assert_as_numpy(lambda xp, of: xp.cov(of(data[0]), of(data[1]), rowvar=rowvar), of)


NOTHING = np.zeros((0, 3))
DAYS = np.array(["2020-01-01", "2020-01-03", "2020-01-08"], "M8[D]")
#: Found by random arguments.
FOUND: dict[str, Call] = {
    **{
        f"{name} of a number along {axis!r}": lambda xp, of, name=name, axis=axis: getattr(xp, name)(of(2.0), axis=axis)
        for name in ("sum", "max", "nanmax", "nanargmax", "nanstd", "ptp")
        for axis in (np.int8(0), np.int64(-1), 1)
    },
    **{
        f"{name} of nothing": lambda xp, of, name=name: getattr(xp, name)(of(NOTHING), initial=5)
        for name in ("sum", "max", "nansum", "nanmin")
    },
    **{
        f"cumulative_sum along {axis}": lambda xp, of, axis=axis: xp.cumulative_sum(of(M), axis=axis)
        for axis in ((0,), (0, 1), (), 1)
    },
    **{
        f"sparse indices of {shape}": lambda xp, of, shape=shape: tuple(xp.indices(shape, sparse=True))
        for shape in ((0, 2), (2, 0), (2, 3), (0,))
    },
    **{
        f"indices of {shape} without a dtype, sparse={sparse}": lambda xp, of, shape=shape, sparse=sparse: xp.indices(
            shape, dtype=None, sparse=sparse
        )
        for shape in ((2, 3), (0,), ())
        for sparse in (False, True)
    },
    "a function of indices without a dtype": lambda xp, of: xp.fromfunction(np.add, (2, 3), dtype=None),
    "a number cast by a masked ufunc": lambda xp, of: xp.add(
        of(V), 300, dtype="f4", casting="unsafe", where=[True, False, True], out=of(np.zeros(3, "f4"))
    ),
    **{
        f"{value!r} cast as equivalent": lambda xp, of, value=value: xp.subtract(
            of(V.astype("f4")), value, casting="equiv"
        )
        for value in (1, 1.5, 1j, True)
    },
    **{
        f"{name} of {dtype}": lambda xp, of, name=name, dtype=dtype: getattr(xp, name)(
            of(np.array([2.3, 5.7, 3]).astype(dtype)), of(np.array([7.1, 1.9, 3]).astype(dtype)), 37
        )
        for name in ("linspace", "geomspace")
        for dtype in ("f8", "f4", "f2", "i4", "c8")
        if name == "linspace" or dtype == "f8"
    },
    **{
        f"{name} of {dtype} into {to}, {casting}": lambda xp, of, name=name, dtype=dtype, to=to, casting=casting: (
            getattr(xp, name)(
                [of(I.astype(dtype)), of(I)],
                casting=casting,
                out=of(np.zeros(6 if name == "concatenate" else (2, 3), to)),
            )
        )
        for name in ("concatenate", "stack")
        for dtype in ("f8", "c16")
        for to in ("f4", "f8", "i4")
        for casting in ("no", "safe", "same_kind", "unsafe")
    },
    "joined into an array and of a dtype": lambda xp, of: xp.stack([of(V)], dtype="f8", out=of(np.zeros((1, 3)))),
    **{
        f"from date to date by {step}": lambda xp, of, step=step: xp.arange(of(DAYS)[0], of(DAYS)[-1], step)
        for step in (1, np.timedelta64(2, "D"))
    },
    "a number of days from a date": lambda xp, of: xp.arange(of(DAYS)[0], of(DAYS)[1] - of(DAYS)[0], dtype="M8[D]"),
    "no choices for nothing": lambda xp, of: xp.choose(of(I - 4), [of(NOTHING), of(NOTHING)]),
    "vectors of matrices, equivalent": lambda xp, of: np.matvec(of(M), of(M), casting="equiv"),
    "equivalent dtypes": lambda xp, of: xp.add(of(V), of(V), casting="equiv"),
    "stacked without imaginary parts": lambda xp, of: xp.stack([of(I), of(V + 1j)], dtype="i8", casting="unsafe"),
    "selected of a wider dtype": lambda xp, of: xp.select([of(V > 1)] * 2, [of(I.astype("u1")), 1]),
    "selected with a wider default": lambda xp, of: xp.select([of(V > 1)], [of(I.astype("u1"))], 1),
    "the first nan of complex numbers": lambda xp, of: xp.argmin(of([[1 + 1j], [np.nan], [0]]), axis=0),
    "positions of no complex numbers": lambda xp, of: xp.argpartition(of(np.zeros(0, complex)), 0),
    **{
        f"{name} with none: {values}": lambda xp, of, name=name, values=values: getattr(of(values), name)(None)
        for name in ("__eq__", "__ne__")
        for values in (np.array(["2020", "NaT"], "M8[D]"), np.array([1, "NaT"], "m8[s]"), V)
    },
    "dates with objects": lambda xp, of: of(np.array(["NaT", "NaT"], "M8[D]")) == np.array([None, 3], object),
    **{
        f"{name} of a number in order": lambda xp, of, name=name: getattr(xp, name).reduce(of(5))
        for name in ("subtract", "divide", "power", "left_shift", "add")
    },
    **{
        f"complex numbers cast to {dtype}": lambda xp, of, dtype=dtype: of([1.7 + 2j, 3]).astype(dtype)
        for dtype in ("m8[s]", "M8[D]", "?", "i4", "f4", "c8")
    },
    **{
        f"complex numbers written to {dtype}": written(
            lambda xp, x, v: xp.copyto(x, v, casting="unsafe"), np.zeros(2, dtype), [1.7 + 2j, 3]
        )
        for dtype in ("m8[s]", "M8[D]", "?", "i4")
    },
    "a mean and the sum of its weights": lambda xp, of: xp.average(of(V), returned=True),
    **{f"kaiser {m}": lambda xp, of, m=m: xp.kaiser(m, 2.5) for m in (0, 1, 2, 2.5, 0.5, -1, np.float32(4), 5.2)},
    **{
        f"numbers close within {name}": lambda xp, of, name=name: xp.isclose(0, 1.5, **{name: of(V)})
        for name in ("rtol", "atol")
    },
    "a product that begins with a number": lambda xp, of: xp.prod(of([1e200, 1e200, 1e-200]), initial=1e-300),
    "products that begin with a number": lambda xp, of: of([[1e200, 1e200], [1e200, 1]]).prod(1, initial=1e-300),
    **{
        f"products along {axis} that begin with a number": lambda xp, of, axis=axis: xp.prod(
            of(np.arange(1.0, 25).reshape(2, 3, 4)), axis, initial=3
        )
        for axis in (None, (0, 2), (2, 1), 1, ())
    },
}


@pytest.mark.parametrize("casting", ["no", "equiv", "safe"])
@pytest.mark.parametrize("operands", [(1, 2), (1.0, 2), (True, 2), (2j, 1), (2, 0.0), (True, False)], ids=repr)
@pytest.mark.parametrize("name", ["add", "atan2", "power", "hypot", "divide", "maximum", "ldexp"])
def test_numbers_alone_are_cast_as_numpy_casts_them(name: str, operands: tuple[Any, Any], casting: Any) -> None:
    """NumPy 2.4 ends the process where it is asked for the loop of numbers that are not equivalent to it."""
    assert_as_numpy(lambda xp, of: getattr(xp, name)(*operands, casting=casting), np.array)


@pytest.mark.parametrize("name", FOUND)
def test_what_random_arguments_have_found(name: str, of: Of) -> None:
    assert_as_numpy(FOUND[name], of)


OF_THE_DTYPE: dict[str, Callable[[Any], Any]] = {
    "arithmetic": lambda x: x * 2 + x,
    "sum": lambda x: x.sum(),
    "largest": lambda x: x.max(),
    "slice": lambda x: x[1:3],
    "partial sums": lambda x: dx.cumsum(x),
    "sort": lambda x: dx.sort(x),
    "segments": lambda x: np.add.reduceat(x, [0, 2]),
    "outer": lambda x: np.multiply.outer(x, x),
    "joined": lambda x: dx.concatenate([x, x]),
    "choice": lambda x: dx.where(x > 1, x, x),
    "product": lambda x: x @ x,
    "cast": lambda x: x.astype(x.dtype),
    "like": lambda x: dx.zeros_like(x),
    "made": lambda x: dx.arange(3, dtype=x.dtype),
    "distinct": lambda x: dx.unique(x),
}


@pytest.mark.parametrize("name", OF_THE_DTYPE)
def test_a_dtype_that_equals_another_is_not_met_in_its_place(name: str, of: Of) -> None:
    """``longlong`` is another object than ``int64``, as is one with metadata, and libraries tell them apart."""
    call, wanted = OF_THE_DTYPE[name], np.dtype("i8")
    for other in (np.dtype("q" if wanted.char == "l" else "l"), np.dtype("i8", metadata={"of": "others"})):  # type: ignore[call-overload]
        if other == wanted:
            assert_equal(call(of(np.arange(5, dtype=other))), call(of(np.arange(5))))
        found = call(of(np.arange(5)))
        for dtype in (found.dtype, np.asarray(found).dtype):
            assert (type(dtype), dtype.metadata) == (type(wanted), None)


AXES: dict[str, Callable[..., Any]] = {
    "argsort": lambda xp, x, axis: xp.argsort(x, axis=axis),
    "argpartition": lambda xp, x, axis: xp.argpartition(x, 1, axis=axis),
    "sort": lambda xp, x, axis: xp.sort(x, axis=axis),
    "compress": lambda xp, x, axis: xp.compress([True, False], x, axis=axis),
    "unwrap": lambda xp, x, axis: xp.unwrap(x, axis=axis),
    "vecdot": lambda xp, x, axis: xp.vecdot(x, x, axis=axis),
    "tensordot": lambda xp, x, axis: xp.tensordot(x, x, axes=(axis, axis)),
    "apply_over_axes": lambda xp, x, axis: xp.apply_over_axes(lambda v, a: xp.sum(v, axis=a), x, axis),
    "rot90": lambda xp, x, axis: xp.rot90(x, axes=(axis, 0)),
    "packbits": lambda xp, x, axis: xp.packbits(x > 1, axis=axis),
    "unpackbits": lambda xp, x, axis: xp.unpackbits((x > 1).view("u1"), axis=axis),
    "vector_norm": lambda xp, x, axis: xp.linalg.vector_norm(x, axis=axis),
    "norm": lambda xp, x, axis: xp.linalg.norm(x, axis=axis),
    "matmul": lambda xp, x, axis: xp.matmul(x, x, axes=[axis, axis, axis]),
    "cumulative_sum": lambda xp, x, axis: xp.cumulative_sum(x, axis=axis),
    "flip": lambda xp, x, axis: xp.flip(x, axis=axis),
}


@pytest.mark.parametrize(
    "axis", [True, False, (True,), [1], np.array([1]), 1.0, np.True_, 1, (1,), (0, 1), -1], ids=str
)
@pytest.mark.parametrize("name", AXES)
def test_what_is_an_axis_is_numpys(name: str, axis: Any) -> None:
    host = np.arange(12.0).reshape(3, 4)[:, :3]
    try:
        expected = AXES[name](np, host, axis)
    except Exception:  # of truth values numpy's classes of errors differ
        for eager_bytes in (1 << 20, 0):
            with dx.config.set(eager_bytes=eager_bytes), pytest.raises((TypeError, ValueError, IndexError)):
                AXES[name](dx, dx.asarray(host), axis)
    else:
        with dx.config.set(eager_bytes=0):
            np.testing.assert_allclose(np.asarray(AXES[name](dx, dx.asarray(host), axis)), expected)


NOTHING = [
    (False, [9]),
    ([9], np.zeros(0, int)),
    (np.zeros(3, bool), [-9]),
    ([[9]], np.zeros((0, 2), int)),
    (None, False, [9]),
]


@pytest.mark.parametrize("index", NOTHING, ids=str)
@pytest.mark.parametrize("eager_bytes", [1 << 20, 0])
def test_an_index_of_nothing_is_not_looked_at(index: tuple[Any, ...], eager_bytes: int) -> None:
    host = np.arange(12.0).reshape(3, 4)
    with dx.config.set(eager_bytes=eager_bytes):
        for convert in (False, True):
            x = dx.asarray(host.copy())
            items = [dx.asarray(i) if convert and isinstance(i, list) else i for i in index]
            found = x[tuple(items)]
            assert found.shape == host[index].shape
            assert np.asarray(found).shape == host[index].shape
            x[tuple(items)] = 7.0
            np.testing.assert_array_equal(np.asarray(x), host)


@pytest.mark.parametrize("index", [(True, [9]), (9, np.zeros(0, int)), (slice(0, 0), [9]), ([9], slice(0, 0))], ids=str)
def test_an_index_beside_nothing_is_looked_at(index: tuple[Any, ...]) -> None:
    for x in (np.zeros((3, 4)), dx.zeros((3, 4))):
        with pytest.raises(IndexError):
            x[index]


@pytest.mark.parametrize("name", ["real", "complex", "nan", "stack", "tall", "empty"])
@pytest.mark.parametrize("tiles", [False, True])
def test_of_hermitian_matrices_the_lower_triangle_counts(name: str, tiles: bool) -> None:
    rng = np.random.default_rng(0)
    host = rng.random((3, 3))
    upper = np.triu(np.full((3, 3), np.nan), 1)
    hosts = {"real": host, "complex": host + 1j * host.T, "nan": host + upper, "stack": np.stack([host, host.T])}
    a = {**hosts, "tall": rng.random((4, 3)), "empty": np.zeros((0, 0))}[name]
    calls: list[Callable[..., Any]] = [
        lambda xp, x: xp.linalg.pinv(x, hermitian=True),
        lambda xp, x: xp.linalg.matrix_rank(x, hermitian=True),
        lambda xp, x: xp.linalg.matrix_rank(x, tol=0.5, hermitian=True),
        lambda xp, x: xp.linalg.svd(x, hermitian=True)[1],
        lambda xp, x: xp.linalg.svd(x, compute_uv=False, hermitian=True),
    ]
    with dx.config.set(eager_bytes=0):
        x = (
            dx.asarray(a, team=dx.Team((2,), ("r",)), sharding=(*[None] * (a.ndim - 2), "r", None))
            if tiles
            else dx.asarray(a)
        )
        for call in calls:
            try:
                expected = call(np, a)
            except np.linalg.LinAlgError:
                with pytest.raises(np.linalg.LinAlgError):
                    call(dx, x)
            else:
                np.testing.assert_allclose(np.asarray(call(dx, x)), expected, rtol=1e-10)


@pytest.mark.parametrize("tol", [0.5, np.array([0.1, 1.0]), np.array([[0.1], [1.0]])], ids=["one", "two", "column"])
@pytest.mark.parametrize("shape", [(3, 3), (0, 0), (2, 0, 0), (0, 3)])
def test_ranks_broadcast_over_their_tolerances(shape: tuple[int, ...], tol: Any) -> None:
    host = np.random.default_rng(0).random(shape)
    for name in ("tol", "rtol"):
        expected = np.linalg.matrix_rank(host, **{name: tol})
        found = dx.linalg.matrix_rank(dx.asarray(host), **{name: dx.asarray(tol)})
        np.testing.assert_array_equal(np.asarray(found), expected)
        assert found.shape == expected.shape


@pytest.mark.parametrize("name", ["polyder", "polydiv"])
def test_polynomials_of_several_axes_are_refused_where_numpy_refuses_them(name: str) -> None:
    host = np.arange(12.0).reshape(4, 3) + 1
    args = {"polyder": (1,), "polydiv": (host[:2],)}[name]
    for xp in (np, dx):
        with pytest.raises(ValueError, match=r"broadcast|sequence"):
            getattr(xp, name)(xp.asarray(host), *args)


@pytest.mark.parametrize("value", ["a", "5", b"5", b"a", ["5", "6"], ["a"], "5.5"], ids=repr)
def test_bounds_of_integers_are_what_a_text_says(value: Any) -> None:
    for bounds in ((2, value), (value, 9)):
        try:
            expected = np.random.default_rng(0).integers(*bounds)
        except ValueError:
            with pytest.raises(ValueError, match="invalid literal"):
                dx.random.default_rng(0).integers(*bounds)
        else:
            assert np.shape(dx.random.default_rng(0).integers(*bounds)) == np.shape(expected)


def test_limits_of_numpys_names_go_together() -> None:
    for kwargs in ({"a_min": 2}, {"a_max": 2}):
        for xp in (np, dx):
            with pytest.raises(TypeError):
                xp.clip(xp.arange(4), **kwargs)
    assert np.asarray(dx.clip(dx.arange(4), a_min=None, a_max=2)).tolist() == [0, 1, 2, 2]
    assert np.asarray(dx.clip(dx.arange(4), max=2)).tolist() == [0, 1, 2, 2]


def test_even_bins_of_complex_numbers_warn_of_the_part_that_is_lost() -> None:
    host = np.arange(6) * (1 + 0.5j)
    for xp in (np, dx):
        with pytest.warns(np.exceptions.ComplexWarning):
            counts, edges = xp.histogram(xp.asarray(host), 3)
        assert np.asarray(counts).tolist() == [2, 2, 2]
        assert edges.dtype == np.complex128


def test_weights_of_nothing_add_up_to_floats() -> None:
    counts, _ = dx.histogram(dx.zeros(0), 3, weights=dx.zeros(0))
    assert counts.dtype == np.asarray(counts).dtype == np.float64


@pytest.mark.parametrize("weights", [1, 2.5, 0])
@pytest.mark.parametrize("axis", [None, (), 0])
@pytest.mark.parametrize("shape", [(), (3,), (3, 1), (0, 2)])
def test_a_number_weighs_what_has_no_axes(shape: tuple[int, ...], axis: Any, weights: Any) -> None:
    host = np.arange(float(np.prod(shape, dtype=int))).reshape(shape)
    for dtype in ("f8", "f4"):
        x = host.astype(dtype)
        try:
            expected = np.average(x, axis=axis, weights=weights)
        except (TypeError, ValueError, ZeroDivisionError) as error:
            with pytest.raises(type(error)):
                dx.average(dx.asarray(x), axis=axis, weights=weights)
        else:
            found = dx.average(dx.asarray(x), axis=axis, weights=weights)
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(np.asarray(found), expected)


def test_points_of_the_plane_are_vectors() -> None:
    for xp in (np, dx):
        with pytest.raises(ValueError, match=r"vector|unpack"):
            xp.histogram2d(xp.ones((2, 2)), xp.ones((2, 2)))


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (2, 0, 3), (0,)])
@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("name", ["take", "compress", "partition", "argpartition"])
def test_places_along_arrays_of_nothing_are_looked_at_as_by_numpy(name: str, axis: int, shape: tuple[int, ...]) -> None:
    host = np.zeros(shape)
    calls: dict[str, Callable[..., Any]] = {
        "take": lambda xp, x: xp.take(x, [9], axis=axis),
        "compress": lambda xp, x: xp.compress([True] * 9, x, axis=axis),
        "partition": lambda xp, x: xp.partition(x, 9, axis=axis),
        "argpartition": lambda xp, x: xp.argpartition(x, 9, axis=axis),
    }
    with dx.config.set(eager_bytes=0):
        try:
            expected = calls[name](np, host)
        except IndexError:
            with pytest.raises(IndexError):
                calls[name](dx, dx.asarray(host))
        else:
            assert calls[name](dx, dx.asarray(host)).shape == expected.shape


def test_positions_in_a_period_may_be_time_spans() -> None:
    spans, host = np.arange(3).astype("m8[s]"), np.arange(3.0)
    with dx.config.set(eager_bytes=0):
        found = dx.interp(dx.asarray(spans), dx.asarray(host), dx.asarray(host), period=2)
        np.testing.assert_array_equal(np.asarray(found), np.interp(spans, host, host, period=2))
        with pytest.raises(TypeError, match="safe"):
            dx.interp(dx.asarray(spans), dx.asarray(host), dx.asarray(host))
