"""Calls that gave other answers than numpy's, or none: host data beside arrays, dtypes, corners of single functions."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import module_at

import distarray as dx


def team() -> dx.Team:
    return dx.Team((2,), ("r",))


def named(a: Any, where: dx.Team | None = None) -> dx.DistArray:
    """An array on a team that somebody named."""
    return dx.asarray(a, team=where or team())


# ------------------------------------------------------------------------------------- host data beside arrays


def test_equal_arrays_are_equivalent_where_one_is_host_data() -> None:
    a = named([1, 2, 3])
    assert dx.array_equiv([1, 2, 3], a)
    assert dx.array_equiv(a, [1, 2, 3])
    assert dx.array_equal([1, 2, 3], a)
    assert not dx.array_equiv([1, 2, 4], a)
    assert not dx.array_equiv([1, 2], a)


def test_arrays_of_two_named_teams_are_refused_and_not_called_different() -> None:
    here, there = named([1, 2, 3], dx.Team((2,), ("r",))), named([1, 2, 3], dx.Team((3,), ("s",)))
    for compare in (dx.array_equiv, dx.array_equal):
        with pytest.raises(dx.EnvironmentMismatchError):
            compare(here, there)


GENERATED = module_at(Path(__file__).parent.parent / "test_wrong_calls.py")


def _arrays(value: Any) -> list[np.ndarray]:
    found: list[np.ndarray] = []
    GENERATED.each(value, lambda a: found.append(a) or a, np.ndarray)
    return found


def _only(value: Any, chosen: int, make: Callable[[np.ndarray], Any]) -> Any:
    """The arguments with one of their arrays replaced."""
    seen = iter(range(1_000))
    return GENERATED.each(value, lambda a: make(a) if next(seen) == chosen else a, np.ndarray)


def _results(value: Any) -> Iterator[dx.DistArray]:
    if isinstance(value, dx.DistArray):
        yield value
    elif isinstance(value, list | tuple):
        for v in value:
            yield from _results(v)


#: What writes into its first argument, which has to be an array of ours, and what names an option that we name only.
LEFT_OUT = {"searchsorted", "copyto", "fill_diagonal", "place", "put", "put_along_axis", "putmask"}
#: Further calls, of functions whose row in the table of coverage has one array only: (name, arguments, by keyword).
V = np.array([1.0, 2.0, 3.0, 4.0])
J = np.array([0, 2, 1])
FURTHER: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("digitize", (V, V), {}),
    ("histogram", (V, V), {}),
    ("histogram", (V, 3), {"weights": V}),
    ("histogram2d", (V, V, 3), {}),
    ("histogram2d", (V, V, [V, V]), {"weights": V}),
    ("histogramdd", ([V, V], 3), {"weights": V}),
    ("bincount", (J, V[:3]), {}),
    ("cov", (V, V), {}),
    ("cov", (V,), {"aweights": V, "fweights": np.array([1, 2, 1, 2])}),
    ("corrcoef", (V, V), {}),
    ("polyfit", (V, V, 1), {"w": V}),
    ("polyval", (V, V), {}),
    ("take", (V, J), {}),
    ("compress", (V > 2, V), {}),
    ("extract", (V > 2, V), {}),
    ("insert", (V, 1, V), {}),
    ("insert", (V, J, V[:3]), {}),
    ("trapezoid", (V, V), {}),
    ("interp", (V, V, V), {}),
    ("ravel_multi_index", ((J, J), (3, 3)), {}),
    ("choose", (J, [V[:3], V[:3], V[:3]]), {}),
    ("full", (4, V), {}),
    ("sum", (V,), {"where": V > 1}),
    ("mean", (V,), {"where": V > 1}),
    ("std", (V,), {"where": V > 1}),
    ("any", (V,), {"where": V > 1}),
    ("max", (V,), {"where": V > 1, "initial": 0}),
    ("nansum", (V,), {"where": V > 1}),
    ("nanmean", (V,), {"where": V > 1}),
    ("broadcast_arrays", (V, V), {}),
    ("meshgrid", (V, V), {}),
    ("repeat", (V[:3], J), {}),
    ("gradient", (V, V), {}),
    ("quantile", (V, V / 4), {}),
    ("percentile", (V, V), {}),
    ("nanquantile", (V, V / 4), {}),
    ("asarray", ([V, V],), {}),
    ("array", ([V, V],), {}),
    ("average", (V,), {"weights": V}),
    ("union1d", (V, V), {}),
    ("intersect1d", (V, V), {}),
    ("setxor1d", (V, V), {}),
    ("setdiff1d", (V, V + 1), {}),
    ("isin", (V, V), {}),
    ("searchsorted", (V, V), {"side": "right"}),
    ("piecewise", (V, [V > 2, V < 2], [1, 2]), {}),
    ("select", ([V > 2, V < 2], [V, V]), {}),
    ("where", (V > 2, V, V), {}),
    ("clip", (V, V, V), {}),
    ("lexsort", ((V, V),), {}),
    ("ediff1d", (V, V, V), {}),
    ("diff", (V,), {"prepend": V, "append": V}),
    ("append", (V, V), {}),
    ("kron", (V, V), {}),
    ("cross", (V[:3], V[:3]), {}),
    ("convolve", (V, V), {}),
    ("linspace", (V, V, 3), {}),
    ("geomspace", (V, V, 3), {}),
    ("logspace", (V, V, 3), {}),
    ("polyadd", (V, V), {}),
    ("polydiv", (V, V[:2]), {}),
    ("polyint", (V, 1, V[:1]), {}),
    ("apply_along_axis", (np.add, 0, V, V), {}),
    ("vander", (V,), {}),
    ("take_along_axis", (V[:3], J, 0), {}),
    ("block", ([V, V],), {}),
    ("einsum", ("i,i->i", V, V), {}),
    ("tensordot", (V, V), {"axes": 1}),
    ("pad", (V, J[:2]), {}),
    ("unwrap", (V,), {}),
    ("roll", (V, 1), {}),
    ("delete", (V, J), {}),
    ("resize", (V, 7), {}),
    ("tile", (V, 2), {}),
    ("ix_", (J, J), {}),
    ("unravel_index", (J, (3, 3)), {}),
    ("split", (V, J[:1]), {}),
    ("array_split", (V, J[:1]), {}),
    ("trim_zeros", (V,), {}),
    ("dot", (V, V), {}),
    ("inner", (V, V), {}),
    ("outer", (V, V), {}),
    ("vdot", (V, V), {}),
    ("heaviside", (V, V), {}),
    ("isclose", (V, V), {}),
    ("hstack", ([V, V],), {}),
    ("column_stack", ([V, V],), {}),
]


def calls_with_several_arrays() -> Iterator[Any]:
    for call in GENERATED.valid_calls():
        if call.name.split(",")[0] not in LEFT_OUT and len(_arrays((call.args, call.kwargs))) > 1:
            yield call
    for name, args, kwargs in FURTHER:
        if len(_arrays((args, kwargs))) > 1:
            yield GENERATED.Call(name, getattr(dx, name), getattr(np, name), args, kwargs)


def _failures(call: Any) -> Iterator[str]:
    n = len(_arrays((call.args, call.kwargs)))
    with np.errstate(all="ignore"):
        expected = call.numpys(*call.args, **call.kwargs)
    for chosen in range(n):
        where = team()
        args, kwargs = _only((call.args, call.kwargs), chosen, lambda a: named(a, where))
        try:
            with np.errstate(all="ignore"):
                made = call.ours(*args, **kwargs)
        except Exception as error:
            yield f"{call.name}, array {chosen} on a team: {type(error).__name__}: {error}"
            continue
        theirs = _arrays(expected) if isinstance(expected, list | tuple) else [np.asarray(expected)]
        ours = list(_results(made))
        if any(x.team is not where for x in ours):
            yield f"{call.name}, array {chosen} on a team: the result is on {[x.team for x in ours]}"
        # results that are host data stand beside them in some: numpy's order is no longer ours
        for x, y in zip(ours, theirs, strict=True) if len(ours) == len(theirs) else ():
            if not np.allclose(np.asarray(x), y, equal_nan=y.dtype.kind in "fc"):
                yield f"{call.name}, array {chosen} on a team: other values"


def test_host_data_lives_beside_the_first_array_in_every_function_of_several() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        failures = [f for call in calls_with_several_arrays() for f in _failures(call)]
    assert not failures, "\n".join(failures)


# ----------------------------------------------------------------------------------------------------- dtypes


def assert_same(ours: Any, theirs: Any) -> None:
    theirs = np.asarray(theirs)
    assert ours.dtype == theirs.dtype
    assert ours.shape == theirs.shape
    np.testing.assert_array_equal(np.asarray(ours), theirs)


@pytest.mark.parametrize("name", ["dot", "inner", "kron", "vdot"])
@pytest.mark.parametrize("number", [200, 2.0, True, 2j])
@pytest.mark.parametrize("dtype", ["u1", "f4"])
def test_products_make_an_array_of_a_number_first(name: str, number: Any, dtype: str) -> None:
    host = np.array([3] if name == "vdot" else [1, 2, 3], dtype)
    assert_same(getattr(dx, name)(named(host), number), getattr(np, name)(host, number))
    assert_same(getattr(dx, name)(number, named(host)), getattr(np, name)(number, host))


NUMBERS_BESIDE: dict[str, Any] = {
    "vectorize": lambda xp, y: xp.vectorize(lambda a, b: a * b + 1)(y, 3),
    "vectorize, number first": lambda xp, y: xp.vectorize(lambda a, b: a * b + 1)(3, b=y),
    "array_equiv": lambda xp, y: xp.array_equiv(y, 3),
    "compress": lambda xp, y: xp.compress(y > 2, 3 * [5]),
    "extract": lambda xp, y: xp.extract(True, y[:1]),
    "digitize": lambda xp, y: xp.digitize(3, y),
    "in1d": lambda xp, y: xp.isin(3, y),
    "intersect1d": lambda xp, y: xp.intersect1d(y, 3),
    "setdiff1d": lambda xp, y: xp.setdiff1d(3, y),
    "setxor1d": lambda xp, y: xp.setxor1d(y, 3),
    "meshgrid": lambda xp, y: xp.meshgrid(y, 3)[0],
}


@pytest.mark.parametrize("call", NUMBERS_BESIDE.values(), ids=NUMBERS_BESIDE)
def test_a_number_is_made_where_the_array_beside_it_is(call: Any) -> None:
    host = np.array([1.0, 2.0, 3.0])
    np.testing.assert_array_equal(np.asarray(call(dx, named(host))), call(np, host))


def test_nan_of_a_vector_are_one_element_along_its_axis_too() -> None:
    host = np.array([1, np.nan, np.inf, -np.inf, -0.0, 0.0, 2.5, np.nan, -3])
    cut = dx.asarray(host, team=dx.Team((3,), ("r",)), sharding=("r",))
    assert_same(dx.unique(cut, axis=0), np.unique(host, axis=0))
    for ours, theirs in zip(
        dx.unique(cut, True, True, True, axis=0), np.unique(host, True, True, True, axis=0), strict=True
    ):
        assert_same(ours, theirs)


@pytest.mark.parametrize(
    "fp",
    [
        [-np.inf, 0, 0, np.inf],
        [np.inf, np.inf, np.nan, 3],
        [np.inf + 1j, 0, complex(2, -np.inf), 1j],
        [1.5, -2, 0.25, 4],
    ],
)
def test_interp_beside_infinite_values_goes_out_from_the_other_point(fp: list[Any]) -> None:
    x = np.array([0.5, 1.5, 2.5, 0, 1, 2, 3, -1, 4, np.nan])
    assert_same(dx.interp(named(x), [0.0, 1, 2, 3], fp), np.interp(x, [0.0, 1, 2, 3], fp))


def test_interp_of_complex_positions_is_refused() -> None:
    for x, xp in (([0.5], [0, 1j]), ([0.5j], [0.0, 1.0])):
        with pytest.raises(TypeError, match="complex"):
            dx.interp(named(x), xp, [1.0, 2.0])


@pytest.mark.parametrize("new", [{"nan": np.inf}, {"posinf": np.inf}, {"neginf": -np.inf}, {"nan": 7.0}, {}])
def test_nan_to_num_puts_complex_numbers_together_without_arithmetic(new: dict[str, float]) -> None:
    host = np.array([complex(np.nan, 1), complex(1, np.nan), complex(np.inf, -0.0), complex(2, -np.inf), -0.0 - 0.0j])
    ours = np.asarray(dx.nan_to_num(named(host), **new))
    theirs = np.nan_to_num(host, **new)
    for part in ("real", "imag"):
        np.testing.assert_array_equal(getattr(ours, part), getattr(theirs, part))
        np.testing.assert_array_equal(np.signbit(getattr(ours, part)), np.signbit(getattr(theirs, part)))


@pytest.mark.parametrize("bins", ["sturges", "auto", "rice", "sqrt", "doane", "fd", "scott"])
@pytest.mark.parametrize("dtype", ["i1", "i8", "u1", "f4"])
def test_the_width_of_bins_is_that_of_extremes_that_do_not_wrap(bins: str, dtype: str) -> None:
    host = np.array([1, -128, 3, 127]).astype(dtype)
    assert_same(dx.histogram_bin_edges(named(host), bins), np.histogram_bin_edges(host, bins))


@pytest.mark.parametrize("weights", [[1, -1], [0, 0], [0.5, -0.5]])
def test_weights_whose_sum_is_zero_have_no_average(weights: list[float]) -> None:
    x = named([1.0, 2.0])
    for given in (weights, dx.asarray(weights, team=x.team)):
        with pytest.raises(ZeroDivisionError, match="sum to zero"):
            dx.average(x, weights=given)
    with pytest.raises(ZeroDivisionError, match="sum to zero"):
        dx.average(named(np.ones((2, 2))), axis=0, weights=np.array([[1, 1], [1, -1]]))


@pytest.mark.parametrize(("subscripts", "shape"), [("ii", (1, 4)), ("ii", (4, 1)), ("iij->j", (1, 3, 2))])
def test_a_label_that_stands_twice_in_one_operand_does_not_broadcast(subscripts: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="collapsing index"):
        np.einsum(subscripts, np.ones(shape))
    with pytest.raises(ValueError, match="collapsing index"):
        dx.einsum(subscripts, named(np.ones(shape)))


def test_ediff1d_has_the_dtype_of_the_array_and_refuses_what_does_not_cast_to_it() -> None:
    host = np.array([1, 5, 2], "i4")
    x = named(host)
    assert_same(dx.ediff1d(x, to_begin=[1, 2]), np.ediff1d(host, to_begin=[1, 2]))
    assert_same(dx.ediff1d(x, to_end=9), np.ediff1d(host, to_end=9))
    for name in ("to_begin", "to_end"):
        with pytest.raises(TypeError, match=name):
            dx.ediff1d(x, **{name: 1.5})


def test_the_square_of_booleans_has_numpys_dtype() -> None:
    host = np.array([True, False])
    assert_same(named(host) ** 2, host**2)


def test_a_number_in_a_union_of_sets_has_the_dtype_of_the_others() -> None:
    for host, number in ((np.array([1, 2], "f4"), 2.5), (np.array([1], "u1"), 200), (np.array([1], "u1"), 2.5)):
        assert_same(dx.union1d(named(host), number), np.union1d(host, number))
        assert_same(dx.concat([named(host), number], axis=None), np.concat([host, number], axis=None))
        assert_same(dx.append(named(host), number), np.append(host, number))


# ------------------------------------------------------------------------------------------------ the catalogue


def test_a_module_that_was_interrupted_may_declare_its_operations_again() -> None:
    from distarray.expr.op import CATALOGUE, declare

    known = declare("declared_in_a_test", "map")
    try:
        assert declare("declared_in_a_test", "map") is known
        assert CATALOGUE["declared_in_a_test"] is known
        with pytest.raises(AssertionError, match="declared twice"):
            declare("declared_in_a_test", "block", rule="i -> i")
        with pytest.raises(AssertionError, match="declared twice"):
            declare("sort_tiles" if "sort_tiles" in CATALOGUE else "astype", "map")
    finally:
        del CATALOGUE["declared_in_a_test"]


# ------------------------------------------------------------------------------- memory that others may write


def _from_dlpack(host: np.ndarray) -> tuple[dx.DistArray, np.ndarray]:
    return dx.from_dlpack(host), host


def _lent(host: np.ndarray) -> tuple[dx.DistArray, np.ndarray]:
    x = dx.asarray(host, team=None)
    return x, x.local()


def _exported(host: np.ndarray) -> tuple[dx.DistArray, np.ndarray]:
    x = dx.asarray(host, team=None)
    return x, np.from_dlpack(x)


@pytest.mark.parametrize("share", [_from_dlpack, _lent, _exported])
@pytest.mark.parametrize(
    "operation",
    [
        lambda x: x + 1,
        lambda x: x[1:4] * 2,
        lambda x: x.reshape((2, 3)).T.sum(axis=0),
        lambda x: (x * 2, x - 1)[0] + 3,
        lambda x: np.nan_to_num(x),
        lambda x: np.concatenate([x, x]),
        lambda x: np.sort(x),
    ],
)
def test_what_others_write_later_does_not_reach_what_was_made_before(share: Any, operation: Any) -> None:
    host = np.arange(6.0)
    expected = np.array(operation(host))
    x, outside = share(host)
    made = operation(x)
    outside[...] = -7
    np.testing.assert_array_equal(np.asarray(made), expected)
    np.testing.assert_array_equal(np.asarray(x), np.full(6, -7.0))


@pytest.mark.parametrize("share", [_from_dlpack, _lent, _exported])
def test_a_write_takes_what_is_in_the_memory_of_others_at_its_call(share: Any) -> None:
    x, outside = share(np.arange(6.0))
    y = dx.zeros(6, team=x.team)
    y[...] = x
    z = dx.zeros((2, 6), team=x.team)
    z[1] = x * 2
    outside[...] = -7
    np.testing.assert_array_equal(np.asarray(y), np.arange(6.0))
    np.testing.assert_array_equal(np.asarray(z[1]), 2 * np.arange(6.0))


def test_memory_of_others_is_known_for_as_long_as_an_array_has_it() -> None:
    from distarray.kernels import loans

    x = dx.from_dlpack(np.arange(6.0))
    assert loans.is_any_outside()
    del x
    assert not loans._foreign


def test_the_conjugate_of_real_numbers_by_method_is_the_array_itself() -> None:
    host = np.arange(3.0)
    x = named(host)
    assert x.conj() is x
    assert x.conjugate() is x
    assert_same(named(host * 1j).conj(), (host * 1j).conj())


INTERRUPTED = """
import numpy as np
import distarray as dx
from distarray.expr import op

declare, seen = op.declare, []

def interrupted(name, *args, **kwargs):
    made = declare(name, *args, **kwargs)
    if name == {name!r} and not seen:
        seen.append(name)
        raise KeyboardInterrupt
    return made

op.declare = interrupted
x = dx.asarray(np.arange(200_000.0)[::-1], team=dx.Team((2,), ("r",)), sharding=("r",))
try:
    {call}
except KeyboardInterrupt:
    pass
assert seen
op.declare = declare
print(np.asarray({call}).ravel()[:3])
"""


@pytest.mark.parametrize(
    ("name", "call", "printed"),
    [
        ("sort_tiles", "dx.sort(x)", "[0. 1. 2.]"),
        ("einsum", "dx.outer(x[:2] - 199_990, np.ones(3))", "[9. 9. 9.]"),
    ],
)
def test_an_interrupt_while_operations_are_declared_breaks_nothing(name: str, call: str, printed: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED.format(name=name, call=call)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == printed.split()


@pytest.mark.parametrize("name", ["matmul", "vecdot", "matvec", "vecmat"])
def test_a_number_that_does_not_cast_to_an_equivalent_dtype_is_refused(name: str) -> None:
    for xp in (np, dx):
        with pytest.raises(TypeError, match="cannot cast Python int"):
            getattr(xp, name)(xp.ones(3), -1, casting="equiv")


@pytest.mark.parametrize("char", "?bBqefdFD")
@pytest.mark.parametrize("mean", "bBqefdFD")
def test_the_dtype_of_a_mean_that_is_known_counts(char: str, mean: str) -> None:
    rng = np.random.default_rng(0)
    host, about = (rng.random((5, 4)) * 5).astype(char), (rng.random((1, 4)) * 5).astype(mean)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of half precision numpy's functions overflow
        for kwargs in ({}, {"ddof": 1}, {"dtype": "f8"}):
            found = dx.var(dx.asarray(host), axis=0, mean=dx.asarray(about), **kwargs)
            expected = np.var(host, axis=0, mean=about, **kwargs)
            assert found.dtype == expected.dtype
            np.testing.assert_allclose(np.asarray(found), expected, rtol=2e-3 if "e" in char + mean else 1e-6)


def test_views_of_an_array_that_was_a_number_are_views() -> None:
    for eager_bytes in (None, 0):
        with dx.config.set(**({} if eager_bytes is None else {"eager_bytes": 0})):
            found = []
            for xp in (np, dx):
                y = xp.asarray(np.arange(4.0))
                w, u, q, z = y.sum()[...], y.sum()[...], y[1:2].max()[...], y.sum()[...]
                w.flat[0] = 2
                u.reshape(1)[0] = 3
                v = q[...]
                v[...] = 7
                same = z
                z += 1
                xp.put(y.min()[...], 0, 5)
                found.append([float(value) for value in (w, u, q, v, z, same, y[0])])
            assert found[0] == found[1]


@pytest.mark.parametrize("char", "efdFDi")
def test_the_dtype_of_a_geometric_progression(char: str) -> None:
    start, stop = np.dtype(char).type(1), np.dtype(char).type(8)
    for ends in ((start, stop), (np.full(2, start), np.full(2, stop))):
        expected = np.geomspace(*ends, 4)
        found = dx.geomspace(*ends, 4)
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-14)
        assert dx.geomspace(*ends, 4, dtype="c8").dtype == np.geomspace(*ends, 4, dtype="c8").dtype


@pytest.mark.parametrize("dtype", ["M8[D]", "m8[s]", "?", "c8"])
def test_zeros_of_dates_are_trimmed(dtype: str) -> None:
    host = np.array([0, 0, 3, 0, 5, 0]).astype(dtype)
    assert_same(dx.trim_zeros(named(host)), np.trim_zeros(host))


def test_the_objective_of_the_paper_plans_factorizations() -> None:
    host = np.random.default_rng(0).random((5, 5))
    x = dx.asarray(host)
    with dx.config.set(objective="paper", eager_bytes=0, block_bytes=64):
        np.testing.assert_allclose(np.asarray(dx.linalg.svd(x)[1]), np.linalg.svd(host)[1])
        np.testing.assert_allclose(np.asarray(dx.linalg.pinv(x)), np.linalg.pinv(host))
        np.testing.assert_allclose(abs(np.asarray(dx.linalg.qr(x)[1])), abs(np.linalg.qr(host)[1]))


def test_planning_of_nothing_has_no_events() -> None:
    host = np.zeros((5, 0))
    with dx.config.set(planner="eindecomp", eager_bytes=0), np.errstate(all="raise"):
        x = dx.asarray(host, team=dx.Team((2,), ("x",)), sharding=("x", None))
        assert_same(dx.sort(x, axis=None), np.sort(host, axis=None))
        assert_same(dx.cumsum(x, axis=None), np.cumsum(host, axis=None))


RAISING = {
    "cumprod": lambda xp, x: xp.cumprod(x, axis=0),
    "accumulate": lambda xp, x: xp.multiply.accumulate(x),
    "reduceat": lambda xp, x: xp.divide.reduceat(x * 0, [0, 2]),
    "kron": lambda xp, x: xp.kron(x, xp.full((1, 2), 1e10)),
    "percentile": lambda xp, x: xp.percentile(xp.where(x > 2, np.inf, -np.inf), 50.0, axis=0),
    "transposed": lambda xp, x: xp.power.accumulate(x, axis=1),
}


@pytest.mark.parametrize("name", RAISING)
def test_what_numpy_is_to_raise_is_raised_at_the_call_of_what_else_would_wait(name: str) -> None:
    host = np.ones((4, 3))
    host[:2] = 1e308
    with dx.config.set(eager_bytes=0):
        for xp, x in ((np, host), (dx, dx.asarray(host))):
            with np.errstate(all="raise"), pytest.raises(FloatingPointError):
                RAISING[name](xp, x)


@pytest.mark.parametrize("pair", [("M8[D]", "f8"), ("f8", "M8[D]"), ("i8", "M8[s]"), ("m8[s]", "f8")])
def test_what_has_no_order_is_not_searched(pair: tuple[str, str]) -> None:
    row, sought = (np.arange(5).astype(dtype) for dtype in pair)
    with dx.config.set(eager_bytes=0):
        for search in (lambda xp, *args: xp.searchsorted(*args), lambda xp, *args: xp.digitize(*args[::-1])):
            with pytest.raises(TypeError):
                search(np, row, sought)
            with pytest.raises(TypeError):
                search(dx, dx.asarray(row), dx.asarray(sought))


@pytest.mark.parametrize("name", ["cumulative_sum", "cumulative_prod"])
@pytest.mark.parametrize("dtypes", [("i1", "u8"), ("f8", "i4"), ("u1", "f4")])
def test_cumulative_results_are_written_into_any_dtype(name: str, dtypes: tuple[str, str]) -> None:
    host, out = np.arange(1, 5, dtype=dtypes[0]), np.zeros(4, dtypes[1])
    ours = dx.asarray(out.copy())
    assert getattr(dx, name)(dx.asarray(host), out=ours) is ours
    getattr(np, name)(host, out=out)
    assert_same(ours, out)
