"""``dx.add`` and the others are objects as numpy's ufuncs are: options, methods and attributes; numpy is the oracle."""

from __future__ import annotations

import copy
import inspect
import pickle
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special
from hypothesis import given, settings
from hypothesis import strategies as st

import distarray as dx
from distarray.testing import force_tiles

UFUNCS = {name: f for name in dx.__all__ if isinstance(f := getattr(np, name, None), np.ufunc)}
SPECIAL = [name for name in dx.special.__all__ if isinstance(getattr(scipy.special, name, None), np.ufunc)]
LETTERS = "?bBiqefdFD"


@pytest.mark.parametrize("name", UFUNCS)
def test_attributes_are_numpys(name: str) -> None:
    ours, theirs = getattr(dx, name), UFUNCS[name]
    assert isinstance(ours, dx.ufunc)
    for attribute in ("nin", "nout", "nargs", "identity", "signature"):
        assert getattr(ours, attribute) == getattr(theirs, attribute), attribute
    assert ours.types == [loop for loop in theirs.types if "O" not in loop]
    assert ours.ntypes == len(ours.types)
    if name not in ("degrees", "radians"):  # one function with two names, where numpy has two
        assert (ours.__name__, repr(ours)) == (theirs.__name__, repr(theirs))
    assert ours.__doc__


@pytest.mark.parametrize("function", [*[getattr(dx, n) for n in UFUNCS], *[getattr(dx.special, n) for n in SPECIAL]])
def test_objects_are_one_each_through_pickles_and_copies(function: Any) -> None:
    assert pickle.loads(pickle.dumps(function)) is function
    assert copy.deepcopy(function) is function
    assert {function: 1}[function] == 1
    kinds = [p.kind.name for p in inspect.signature(function).parameters.values()]
    assert kinds[: function.nin] == ["POSITIONAL_ONLY"] * function.nin


def test_a_call_without_options_is_the_operation_and_runs_one_frame_of_the_object() -> None:
    x = dx.ones(3)
    dx.add(x, 1)
    seen: list[str] = []

    def watch(frame: Any, event: str, _arg: Any) -> None:
        if event == "call":
            seen.append(frame.f_code.co_qualname if hasattr(frame.f_code, "co_qualname") else frame.f_code.co_name)

    sys.setprofile(watch)
    try:
        dx.add(x, 1)
    finally:
        sys.setprofile(None)
    assert seen[:2] == ["ufunc.__call__", "bind_map"]


WRONG: dict[str, Callable[[Any, Any], Any]] = {
    "too few operands": lambda m, x: m.add(x),
    "none": lambda m, x: m.add(),
    "too many": lambda m, x: m.add(x, 1, None, 2),
    "unknown option": lambda m, x: m.add(x, 1, foo=1),
    "a tuple too long": lambda m, x: m.add(x, 1, out=(x, x)),
    "no tuple": lambda m, x: m.modf(x, out=x),
    "out twice": lambda m, x: m.add(x, 1, x, out=x),
    "out of no array": lambda m, x: m.add(x, 1, out=[1]),
    "casting": lambda m, x: m.add(x, 1, dtype="i4"),
    "casting's name": lambda m, x: m.add(x, 1, casting="foo"),
    "where": lambda m, x: m.add(x, 1, out=m.zeros((3, 4)), where=np.ones(4)),
    "reduce of one operand": lambda m, x: m.sin.reduce(x),
    "reduce of two results": lambda m, x: m.divmod.reduce(x),
    "reduce of vectors": lambda m, x: m.matmul.reduce(x),
    "axis": lambda m, x: m.add.reduce(x, axis=7),
    "order of a reduction": lambda m, x: m.subtract.reduce(x, axis=(0, 1)),
    "outer of one operand": lambda m, x: m.sin.outer(x, x),
    "at a value too many": lambda m, x: m.negative.at(x, [0], 1),
    "at a value too few": lambda m, x: m.add.at(x, [0]),
    "dtype and signature": lambda m, x: m.add(x, 1, dtype="d", signature="dd->d"),
    "order": lambda m, x: m.add(x, 1, order="Z"),
    "shape of out": lambda m, x: m.add(x, 1, out=m.zeros(2)),
    "dtype of out": lambda m, x: m.add(x, 1.5, out=m.zeros((3, 4), int)),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_calls_raise_what_numpys_raise(name: str) -> None:
    with pytest.raises(Exception) as theirs:  # whatever numpy raises
        WRONG[name](np, np.ones((3, 4)))
    with pytest.raises(Exception) as ours:
        WRONG[name](dx, dx.ones((3, 4)))
    assert issubclass(theirs.type, ours.type) or issubclass(ours.type, theirs.type), (ours.value, theirs.value)


def test_host_data_alone_is_taken_and_lives_where_a_mask_does() -> None:
    team = dx.Team((2,), ("A",), members=(0, 1))
    np.testing.assert_array_equal(dx.add.reduce([[1, 2], [3, 4]], axis=1), np.array([3, 7]))
    np.testing.assert_array_equal(dx.add.outer([1, 2], [3, 4]), np.add.outer([1, 2], [3, 4]))
    assert dx.add(1, 2, dtype="f4").dtype == np.float32
    assert dx.add(np.ones(2, "f4"), 1.0, where=np.array([True, False])).dtype == np.float32
    assert dx.add(np.ones(2), 1, where=dx.asarray([True, True], team=team)).team == team
    assert dx.add(np.ones(2), 1, out=dx.zeros(2, team=team)).team == team


def test_an_option_keeps_the_call_lazy() -> None:
    x, out = dx.ones(8), dx.zeros(8)
    with dx.config.set(eager_bytes=0), dx.testing.counting() as c:
        dx.multiply(x, 2, out=out, where=out == 0)
        dx.add.reduce(x, where=x > 0, initial=3.0)
        assert c.evaluations == 0
    np.testing.assert_array_equal(out, np.full(8, 2.0))


def _array(data: Any, shape: tuple[int, ...], letter: str) -> Any:
    seed = data.draw(st.integers(0, 99))
    values = np.random.default_rng(seed).integers(0, 5, shape)
    return values.astype(letter)


def _outcome(call: Callable[[], Any]) -> Any:
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            made = call()
        except Exception as error:  # compared with numpy's
            return error
    return made if isinstance(made, tuple) else (made,)


def _compare(name: str, ours: Any, theirs: Any) -> None:
    if isinstance(theirs, Exception):
        kinds = [k for k in (TypeError, ValueError, OverflowError, RuntimeError) if isinstance(theirs, k)]
        assert isinstance(ours, tuple(kinds)), (name, ours, theirs)
        return
    assert not isinstance(ours, Exception), (name, ours)
    for a, b in zip(ours, theirs, strict=True):
        if a is None or b is None:
            continue
        host = np.asarray(a)
        assert (host.dtype, host.shape) == (np.asarray(b).dtype, np.shape(b)), name
        np.testing.assert_allclose(host, b, rtol=1e-3 if host.dtype.itemsize < 8 else 1e-6, atol=1e-6)


ELEMENTWISE = sorted(name for name, f in UFUNCS.items() if f.signature is None and name not in ("isnat",))
BINARY = sorted(name for name in ELEMENTWISE if (UFUNCS[name].nin, UFUNCS[name].nout) == (2, 1))


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_calls_with_options_are_numpys(data: Any) -> None:
    name = data.draw(st.sampled_from(ELEMENTWISE))
    theirs = UFUNCS[name]
    shapes = st.sampled_from([(4, 3), (3,), (4, 1), ()])
    operands = [_array(data, data.draw(shapes), data.draw(st.sampled_from(LETTERS))) for _ in range(theirs.nin)]
    shape = np.broadcast_shapes(*(x.shape for x in operands))
    options: dict[str, Any] = {}
    if data.draw(st.booleans()):
        options["casting"] = data.draw(st.sampled_from(["safe", "same_kind", "unsafe"]))
    if data.draw(st.booleans()):
        options["dtype"] = data.draw(st.sampled_from("fdDi"))
    outs = [np.zeros(shape, data.draw(st.sampled_from("fdDq"))) for _ in range(theirs.nout)]
    given_outs = data.draw(st.sampled_from(["none", "ours", "numpys"]))
    if given_outs != "none" and data.draw(st.booleans()):
        options["where"] = _array(data, shape, "?")
    mine = [o.copy() if given_outs == "numpys" else dx.asarray(o) for o in outs]
    with force_tiles(data.draw(st.sampled_from([1, 3]))):
        more = {} if given_outs == "none" else {"out": tuple(mine)}
        ours = _outcome(lambda: getattr(dx, name)(*[dx.asarray(x) for x in operands], **more, **options))
        more = {} if given_outs == "none" else {"out": tuple(outs)}
        expected = _outcome(lambda: theirs(*operands, **more, **options))
        _compare(f"{name} {options}", ours, expected)
    if given_outs != "none" and not isinstance(ours, Exception):
        assert all(a is b for a, b in zip(ours, mine, strict=True))


@settings(max_examples=120, deadline=None)
@given(data=st.data())
def test_methods_are_numpys(data: Any) -> None:
    name = data.draw(st.sampled_from(BINARY))
    theirs, ours = UFUNCS[name], getattr(dx, name)
    x = _array(data, (4, 3), data.draw(st.sampled_from(LETTERS)))
    method = data.draw(st.sampled_from(["reduce", "accumulate", "reduceat", "outer", "at"]))
    if (name, method) in (("arctan2", "reduceat"), ("atan2", "reduceat")):
        return  # numpy's leaves elements out that its own reduce has
    with force_tiles(data.draw(st.sampled_from([1, 3]))), np.errstate(all="ignore"):
        if method == "at":
            value = _array(data, (3,), x.dtype.char)
            mine, host = dx.asarray(x), x.copy()
            made = _outcome(lambda: ours.at(mine, [0, 0, 2], value))
            wanted = _outcome(lambda: theirs.at(host, [0, 0, 2], value))
            assert isinstance(made, Exception) == isinstance(wanted, Exception)
            if not isinstance(made, Exception):
                _compare(name, (mine,), (host,))
            return
        axis = data.draw(st.sampled_from([0, 1, -1]))
        args: tuple[Any, ...] = ()
        options: dict[str, Any] = {"axis": axis}
        if method == "reduceat":
            args = ([0, 2, 1],)
        elif method == "outer":
            args, options = (x[0],), {}
        elif method == "reduce" and data.draw(st.booleans()):
            options |= {"axis": data.draw(st.sampled_from([None, 0, (0, 1)])), "keepdims": data.draw(st.booleans())}
            if theirs.identity is not None:
                options["where"] = _array(data, (4, 3), "?")
        host = getattr(theirs, method)
        made = _outcome(lambda: getattr(ours, method)(dx.asarray(x), *args, **options))
        _compare(f"{name}.{method} {options}", made, _outcome(lambda: host(x, *args, **options)))


def test_special_functions_have_the_options_too() -> None:
    x, out = np.linspace(0, 2, 7), np.zeros(7)
    assert dx.special.erf(dx.asarray(x), out=out, where=x > 1) is out
    np.testing.assert_allclose(out, np.where(x > 1, scipy.special.erf(x), 0))
    assert repr(dx.special.erf) == "<ufunc 'erf'>"
    assert dx.special.jv.types == [loop for loop in scipy.special.jv.types if "O" not in loop]


def test_objects_join_and_aggregate_as_numpys() -> None:
    x = dx.asarray(np.arange(6.0).reshape(2, 3))
    made = dx.einsum("ij,jk->ik", x, x.T, join=dx.add, agg=dx.maximum)
    np.testing.assert_array_equal(made, dx.einsum("ij,jk->ik", x, x.T, join="add", agg="max"))


@pytest.mark.cluster
def test_on_a_cluster_methods_targets_and_python_functions(cluster4: Any) -> None:
    x = np.arange(24.0).reshape(8, 3)
    team = dx.current_team()
    assert team is not None
    y, b = dx.asarray(x, sharding=(team.axes, None)), np.ones((8, 3))
    b += y
    np.testing.assert_array_equal(b, x + 1)
    np.testing.assert_array_equal(np.add.reduce(y, axis=0, out=b[0]), x.sum(0))
    np.testing.assert_array_equal(dx.maximum.accumulate(y % 5, axis=0), np.maximum.accumulate(x % 5, axis=0))
    np.add.at(b, dx.asarray([0, 0, 3]), 1.0)
    assert b[3, 0] == x[3, 0] + 2
    found = dx.vectorize(lambda v: v * 2 if v > 3 else 0.0)(y)
    np.testing.assert_array_equal(found, np.where(x > 3, x * 2, 0))
    bits = y.view("i8")
    bits[2:5] = 0
    assert not y[2:5].compute().any()
    np.testing.assert_array_equal(y[5:].view("f4"), x[5:].view("f4"))
    assert [float(v) for _, v in dx.ndenumerate(y[:2])] == x[:2].ravel().tolist()


NUMBERS: list[Callable[[Any], Any]] = [
    lambda xp: xp.add(3, 4, dtype="u8"),
    lambda xp: xp.power(3, 4, dtype="u1"),
    lambda xp: xp.maximum(3, 4, signature="BB->B"),
    lambda xp: xp.add(300, 4, dtype="u1"),
    lambda xp: xp.add(-1, 4, dtype="u8"),
    lambda xp: xp.add(3.5, 4, dtype="i8"),
    lambda xp: xp.add(1, 2.5, dtype="i4", casting="unsafe"),
    lambda xp: xp.add(3, 4, out=xp.zeros(2, "i8"), dtype="u4", casting="unsafe"),
    lambda xp: xp.negative(3, dtype="u1"),
    lambda xp: xp.add(2**63, 4),
    lambda xp: xp.multiply(2**64, 4),
    lambda xp: xp.add(2**64, 4.0),
    lambda xp: xp.divmod(2**63, 2),
    lambda xp: xp.bitwise_and(2**63, 1),
    lambda xp: xp.power(2, -1),
    lambda xp: xp.greater(2**63, 4),
    lambda xp: xp.ldexp(1, 2),
    lambda xp: xp.minimum(True, 3),
    lambda xp: xp.clip(5, 0, 2**63),
    lambda xp: xp.clip(2**63, 0, 4),
    lambda xp: xp.clip(5, 0, 2.5),
]


@pytest.mark.parametrize("call", NUMBERS)
def test_numbers_alone_are_of_the_loop_that_numpy_chooses_for_them(call: Callable[[Any], Any]) -> None:
    try:
        expected = call(np)
    except (TypeError, ValueError, OverflowError) as error:
        with pytest.raises(OverflowError if isinstance(error, OverflowError) else (TypeError, ValueError)):
            call(dx)
        return
    for ours, theirs in zip(*[v if isinstance(v, tuple) else (v,) for v in (call(dx), expected)], strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)
