"""Every parameter of every function that we share with numpy is taken, or stands in a list with the reason."""

from __future__ import annotations

import inspect
import pickle
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import distarray as dx
from distarray.composed import numpy_arguments

_FILES = "a file of numbers needs no pickle of Python objects"
#: Parameters that are taken at numpy's default only.
REASONS = {
    **{f"load {name}": _FILES for name in ("encoding", "max_header_size")},
}


def shared() -> Iterator[tuple[str, Any, Any]]:
    for prefix, ours, numpys in (("", dx, np), ("linalg.", dx.linalg, np.linalg), ("fft.", dx.fft, np.fft)):
        for name in ours.__all__:
            function, theirs = getattr(ours, name), getattr(numpys, name, None)
            if not callable(function) or not callable(theirs) or isinstance(theirs, type) or theirs is function:
                continue
            yield prefix + name, function, theirs


@pytest.mark.parametrize(("name", "function", "theirs"), list(shared()), ids=lambda v: v if isinstance(v, str) else "")
def test_every_parameter_of_numpys_is_taken_by_name_and_by_position(name: str, function: Any, theirs: Any) -> None:
    try:
        wanted = inspect.signature(theirs).parameters
    except ValueError:
        pytest.skip("this numpy does not tell the signature")
    ours = inspect.unwrap(function)
    own = inspect.signature(ours).parameters
    missing = []
    for parameter, p in wanted.items():
        if f"{name} {parameter}" in REASONS or p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD, p.POSITIONAL_ONLY):
            continue
        if parameter in own and own[parameter].kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY):
            continue
        if function is ours or not _has_place(theirs, ours, parameter):
            missing.append(parameter)
    assert not missing


def _has_place(theirs: Any, ours: Any, parameter: str) -> bool:
    """Whether a call that goes numpy's way does something with it."""
    (place,) = numpy_arguments._places(theirs, ours, 0, (parameter,))
    is_known = parameter in {"out", "like", "order", *numpy_arguments._WITHOUT_EFFECT}
    return place.keyword is not None or place.position is not None or is_known


V = np.random.default_rng(0).random(50)
W = V[::-1].copy()
EDGES = np.linspace(0, 1, 5)
#: Calls with arguments that numpy has beyond the standard, or in other places.
CALLS: dict[str, Callable[[Any, Callable[[Any], Any]], Any]] = {
    "histogram2d, edges": lambda m, c: m.histogram2d(c(V), c(W), bins=[EDGES, EDGES[::2]]),
    "histogram2d, one": lambda m, c: m.histogram2d(c(V), c(W), bins=EDGES),
    "histogram2d, mixed": lambda m, c: m.histogram2d(c(V), c(W), bins=[3, c(EDGES)]),
    "select": lambda m, c: m.select([c(V) > 0.5, c(V) > 0.2], [c(V), c(W)], default=7),
    "tri": lambda m, c: m.tri(N=3, M=4, k=1, dtype="i4"),
    "take, wrap": lambda m, c: m.take(c(V), [60, -70], mode="wrap"),
    "take, out": lambda m, c: m.take(c(V), [60, -70], None, c(np.zeros(2)), "clip"),
    "einsum": lambda m, c: m.einsum("i,i->", c(V), c(W), optimize=True, order="C", casting="safe", dtype="f8"),
    "clip": lambda m, c: m.clip(c(V), a_min=0.2, a_max=None),
    "clip, where": lambda m, c: m.clip(c(V), 0.2, 0.5, out=c(np.zeros(50)), where=c(V) > 0.1),
    "clip, dtype": lambda m, c: m.clip(c(V), 0.2, 0.5, dtype="f4"),
    "round": lambda m, c: m.round(c(V), decimals=2, out=c(np.zeros(50))),
    "median": lambda m, c: m.median(c(V), 0, None, True, True),
    "percentile": lambda m, c: m.percentile(c(V), [10, 20], 0, None, False, "linear", True),
    "quantile, out": lambda m, c: m.quantile(c(V), [0.1, 0.2], out=c(np.zeros(2)), overwrite_input=True),
    "weights": lambda m, c: m.quantile(c(V), [0, 0.3, 1], weights=c(W > 0.5), method="inverted_cdf"),
    "weights of rows": lambda m, c: m.percentile(
        c(V.reshape(10, 5)), 30, axis=0, weights=c(W[:10]), method="inverted_cdf", keepdims=True
    ),
    "weights past nan": lambda m, c: m.nanquantile(
        c(np.where(V > 0.8, np.nan, V)), 0.3, weights=c(W), method="inverted_cdf"
    ),
    "arange": lambda m, c: m.arange(0, 5, 1, "f4"),
    "nanmean": lambda m, c: m.nanmean(c(V), where=c(V) > 0.5),
    "max": lambda m, c: m.max(a=c(V), initial=3.0, where=c(V) > 0.5),
    "cumsum": lambda m, c: m.cumsum(c(V), dtype="f4", out=c(np.zeros(50, "f4"))),
    "full": lambda m, c: m.full((2, 3), 3, None, "F"),
    "ones_like": lambda m, c: m.ones_like(c(V), order="K", subok=True, shape=(2,)),
    "asarray": lambda m, c: m.asarray(c(V), "f4", "C"),
    "copy": lambda m, c: m.copy(c(V), "K", False),
    "dot": lambda m, c: m.dot(c(V), c(V.reshape(50, 1)), c(np.zeros(1))),
    "choose": lambda m, c: m.choose(c((V > 0.5) * 5), [c(V), c(W)], None, "clip"),
    "pinv": lambda m, c: m.linalg.pinv(c(V.reshape(5, 10)), 1e-3, False),
    "matrix_rank": lambda m, c: m.linalg.matrix_rank(A=c(V.reshape(5, 10)), tol=1e-3, hermitian=False),
    "fft": lambda m, c: m.fft.fft(c(V), out=c(np.zeros(50, complex))),
    "isposinf": lambda m, c: m.isposinf(c(V), c(np.ones(50, bool))),
    "tile": lambda m, c: m.tile(A=c(V), reps=2),
    "add": lambda m, c: m.add(c(V), 1, c(np.zeros(50)), where=c(V) > 0.5),
}


@pytest.mark.parametrize("name", CALLS)
def test_arguments_mean_what_numpys_mean(name: str) -> None:
    made, expected = CALLS[name](dx, dx.asarray), CALLS[name](np, np.asarray)
    many = isinstance(expected, tuple)
    for a, b in zip(made if many else (made,), expected if many else (expected,), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
        assert a.dtype == np.asarray(b).dtype


def test_like_says_where_an_array_is_made() -> None:
    team = dx.Team((2,), ("A",), members=(0, 1))
    x = dx.zeros(3, team=team)
    for made in (dx.ones(3, like=x), dx.array([1, 2], like=x, subok=True), dx.arange(3, like=x), dx.eye(3, like=x)):
        assert made.team == team
    assert dx.zeros(3, like=np.ones(2)).team == dx.zeros(3).team
    with pytest.raises(TypeError, match="like=3"):
        dx.zeros(3, like=3)


def test_what_has_no_meaning_is_refused_by_name() -> None:
    x = dx.ones(3)
    with pytest.raises(TypeError, match="nonsense"):
        dx.median(x, nonsense=1)
    with pytest.raises(ValueError, match="order='Z'"):
        dx.zeros(3, order="Z")
    with pytest.raises(TypeError, match="out='a'"):
        dx.median(x, out="a")


def test_public_functions_are_pickled_by_their_public_names() -> None:
    for function in (dx.sum, dx.median, dx.linalg.inv, dx.fft.fft, dx.zeros):
        assert pickle.loads(pickle.dumps(function)) is function


def test_wrong_weights_are_refused() -> None:
    for options, error in (
        ({"weights": W}, ValueError),
        ({"weights": W[:3], "method": "inverted_cdf"}, TypeError),
        ({"weights": W[:3], "method": "inverted_cdf", "axis": 0}, ValueError),
        ({"weights": -W, "method": "inverted_cdf"}, ValueError),
    ):
        for m, c in ((np, np.asarray), (dx, dx.asarray)):
            with pytest.raises(error):
                m.quantile(c(V), 0.5, **options)


def test_weights_of_what_is_no_nan_are_looked_at() -> None:
    nan, inf = np.nan, np.inf
    for x, w in (([nan, 2.0], [1.0, 0.0]), ([nan, 2.0], [1.0, inf]), ([nan, 2.0, 3.0], [1.0, 1.0, nan])):
        for m, c in ((np, np.asarray), (dx, dx.asarray)):
            with pytest.raises(ValueError, match="Weights included NaN"), np.errstate(invalid="ignore"):
                m.nanquantile(c(x), 0.5, weights=c(w), method="inverted_cdf")
    x, w = np.array([[nan, nan, nan], [nan, 2.0, 3.0]]), np.array([[1.0, 0.0, nan], [inf, 1.0, 2.0]])
    for m, c in ((np, np.asarray), (dx, dx.asarray)):
        with pytest.warns(RuntimeWarning, match="All-NaN slice encountered") as told:
            made = m.nanpercentile(c(x), [30, 50], axis=1, weights=c(w), method="inverted_cdf")
        np.testing.assert_array_equal(made, [[nan, 2.0], [nan, 3.0]])
        assert len(told) == 1


@pytest.mark.parametrize("wanted", [np.int64, np.uint8, np.float32, np.float64, np.complex64])
@pytest.mark.parametrize("dtype", ["?", "u1", "i8", "f4", "c8", "c16"])
@pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning")
def test_variances_are_computed_in_the_dtype_that_is_asked_for(dtype: str, wanted: type) -> None:
    x = (np.arange(12).reshape(4, 3) % 5 + (2j if dtype[0] == "c" else 0)).astype(dtype)
    for axis, ddof in ((None, 0), (0, 1), ((0, 1), 2)):
        expected = np.var(x, axis=axis, dtype=wanted, ddof=ddof)
        given = np.asarray(dx.var(dx.asarray(x), axis=axis, dtype=wanted, ddof=ddof))
        assert given.dtype == expected.dtype
        np.testing.assert_allclose(given, expected, rtol=1e-6)
    assert int(dx.std(dx.asarray(x), dtype=int)) == int(np.std(x, dtype=int))


def test_an_imaginary_part_that_is_dropped_is_told_once_and_at_the_users_line() -> None:
    x = dx.asarray(np.array([1 + 2j, 3 - 1j]))
    functions = (dx.sum, dx.cumsum, dx.nancumsum, dx.mean, dx.var, np.add.reduce, np.multiply.accumulate)
    for function in functions * 3:  # also by calls that could be made ready
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            np.asarray(function(x, dtype=np.float32))
        assert [(w.category, w.filename) for w in told] == [(np.exceptions.ComplexWarning, __file__)], function


@pytest.mark.parametrize("limits", [(2, 3), (np.array([1, 3, 2]), None), (None, np.array([1, 3, 2])), ([1, 3, 2], 3)])
@pytest.mark.parametrize("options", [{"dtype": "f2"}, {"dtype": "i4", "casting": "unsafe"}, {"casting": "safe"}])
def test_the_dtype_of_clip_holds_for_its_limits_too(limits: Any, options: Any) -> None:
    x = np.array([1, 2.5, 7], "f4")
    expected = np.clip(x, *limits, **options)
    made = dx.clip(dx.asarray(x), *limits, **options)
    assert made.dtype == expected.dtype
    np.testing.assert_array_equal(made, expected)


@pytest.mark.parametrize("options", [{"casting": "no"}, {"casting": "equiv"}, {"dtype": "f4", "casting": "safe"}])
def test_limits_that_do_not_cast_are_refused_by_clip(options: Any) -> None:
    x, high = np.array([1, 2.5, 7], "f4"), np.array([1, 3, 2])
    for xp in (np, dx):
        with pytest.raises(TypeError, match=r"[Cc]annot cast"):
            xp.clip(xp.asarray(x), None, high, **options)
