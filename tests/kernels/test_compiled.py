"""Compiled programs give what the interpreter gives: bits, dtypes, warnings; and it serves where they are not there."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distarray import config
from distarray.expr.instructions import Instruction, RuntimeScalar
from distarray.kernels import compiled
from distarray.kernels.compiled import COMPILER, Compiled
from distarray.kernels.elementwise import is_exact, loop_dtypes
from distarray.kernels.expressions import EXPRESSIONS
from distarray.kernels.loop_code import LOOPS
from distarray.kernels.outcomes import Outcome, Reduction
from distarray.kernels.program import Program, shared_program

numba = pytest.importorskip("numba")

Array = np.ndarray[Any, Any]
BOOL, F8 = np.dtype(bool), np.dtype("f8")
DTYPES = [np.dtype(name) for name in sorted(LOOPS.types)]
#: An odd number of elements, and more than a program runs as a whole: vectors end where the arrays do not.
N = 20_011
WARN = dict.fromkeys(("divide", "over", "invalid"), "warn") | {"under": "ignore"}
IGNORE = dict.fromkeys(("divide", "over", "invalid", "under"), "ignore")


@pytest.fixture(scope="module", autouse=True)
def _own_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(compiled, "_folder", lambda: tmp_path_factory.getbasetemp())
        yield


def all_compiled(program: Program) -> list[Compiled]:
    """What has come of a program so far, compiled now."""
    found = [c for s in program._schedules.values() for c in getattr(s, "compiled", {}).values() if c is not None]
    for c in found:
        if c.function is None:
            c.compile()
    return found


def both(
    program: Program, inputs: Sequence[Array], scalars: Sequence[Any] = (), *, errstate: Any = IGNORE, may_be_left=False
) -> tuple[Outcome, Outcome]:
    """What the interpreter gives and what a compiled program gives; that one took all slices."""
    shape = np.broadcast_shapes(*(x.shape for x in inputs))
    with config.set(compiled=False):
        expected = program.run(inputs, scalars, shape, errstate=errstate)
    program.run(inputs, scalars, shape, errstate=errstate)
    (c,) = all_compiled(program)
    assert c.function is not None or may_be_left, "not compiled"
    before = c._n_slices
    actual = program.run(inputs, scalars, shape, errstate=errstate)
    assert c._n_slices > before or c.function is None
    return expected, actual


def assert_same_bits(actual: Array, expected: Array, told: str = "") -> None:
    assert actual.dtype == expected.dtype
    np.testing.assert_array_equal(actual, expected, err_msg=told)
    if expected.dtype.kind == "f":  # the sign of a nan is nobody's promise
        numbers = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(actual[numbers]), np.signbit(expected[numbers]), err_msg=told)


def assert_same(outcomes: tuple[Outcome, Outcome], told: Sequence[str] = ()) -> None:
    expected, actual = outcomes
    assert actual.events == expected.events
    for k, (a, e) in enumerate(zip(actual.outputs, expected.outputs, strict=True)):
        assert_same_bits(a, e, told[k] if told else "")
    for a, e in zip(actual.partials, expected.partials, strict=True):
        for x, y in zip(*(p if isinstance(p, tuple) else (p,) for p in (a, e)), strict=True):
            assert_same_bits(x, y)


def hard(dtype: np.dtype[Any]) -> Array:
    """Values at which machine code and numpy may part."""
    if dtype.kind == "b":
        return np.array([False, True])
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        wanted = [info.min, info.min + 1, -7, -2, -1, 0, 1, 2, 3, 7, info.max // 2 + 1, info.max - 1, info.max]
        return np.array([v for v in wanted if info.min <= v <= info.max], dtype)
    info = np.finfo(dtype)
    ends = [info.max, info.tiny, info.smallest_subnormal, info.eps, np.inf, 2.0**62, 2.0**53 + 2]
    return np.array(
        [s * v for v in (0.0, 0.25, 0.5, 1.0, 1.5, 2.5, 3.0, 1 / 3, *ends) for s in (1, -1)] + [np.nan], dtype
    )


def operands(dtype: np.dtype[Any]) -> tuple[Array, Array]:
    """All pairs of hard values, over and over."""
    first, second = np.meshgrid(hard(dtype), hard(dtype), indexing="ij")
    return np.resize(first.ravel(), N), np.resize(second.ravel(), N)


def rows(dtype: np.dtype[Any]) -> list[str]:
    """The rows of the table that may be compiled for a dtype, each computed in it."""
    found = []
    for name, row in EXPRESSIONS[dtype.kind].items():
        function = getattr(np, name)
        given = (dtype,) * function.nin
        result = function.resolve_dtypes((*given, None))[-1]
        may_be = LOOPS.filled(row, "abc", dtype) and is_exact(name, (dtype, result))
        if may_be and loop_dtypes(name, given, result)[0] == dtype:
            found.append(name)
    return found


def of_rows(dtype: np.dtype[Any]) -> Program:
    instructions = []
    for name in rows(dtype):
        nin = getattr(np, name).nin
        result = getattr(np, name).resolve_dtypes((*[dtype] * nin, None))[-1]
        instructions.append(Instruction(name, (0, 1)[:nin], result))
    return Program(2, tuple(instructions), tuple(range(2, 2 + len(instructions))))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_row_of_the_table_has_numpys_bits(dtype: np.dtype[Any]) -> None:
    assert len(rows(dtype)) > 10
    assert_same(both(of_rows(dtype), operands(dtype)), rows(dtype))


@pytest.mark.parametrize("given", DTYPES, ids=str)
def test_casts_have_numpys_bits(given: np.dtype[Any]) -> None:
    wanted = [d for d in DTYPES if d != given and is_exact("astype", (d, given))]
    program = Program(1, tuple(Instruction("astype", (0,), d) for d in wanted), tuple(range(1, 1 + len(wanted))))
    assert_same(both(program, [np.resize(hard(given), N)]), [str(d) for d in wanted])


@pytest.mark.parametrize("dtype", [np.dtype(d) for d in ("f8", "f4", "i8", "u1", "?")], ids=str)
@pytest.mark.parametrize("layout", ["strided", "transposed", "broadcast", "rows", "0-d"])
def test_operands_come_in_any_layout(dtype: np.dtype[Any], layout: str) -> None:
    x = np.resize(hard(dtype), (160, 306))
    y = np.resize(hard(dtype)[::-1], (160, 306))
    x, y = {
        "strided": (x[:, ::2], y[:, :153]),
        "transposed": (x.T, y.T.copy()),
        "broadcast": (x[:1], y[:, 1:2]),
        "rows": (x[1:, 3:200], y[:-1, 2:199]),
        "0-d": (x, np.asarray(y[0, 3])),
    }[layout]
    choice = Instruction("not_equal", (0, 1), BOOL), Instruction("where", (2, 0, 1), dtype)
    program = Program(2, (*choice, Instruction("logical_or", (3, 1), BOOL)), (3, 4))
    assert_same(both(program, [x, y]))


def test_scalars_are_weak_or_not() -> None:
    program = Program(
        1,
        (
            Instruction("multiply", (0, RuntimeScalar(0)), np.dtype("f4")),
            Instruction("add", (1, RuntimeScalar(1)), F8),
            Instruction("less", (RuntimeScalar(0), 2), BOOL),
        ),
        (1, 2, 3),
    )
    assert_same(both(program, [np.resize(hard(np.dtype("f4")), N)], [0.1, np.float64(0.1)]))
    assert_same(both(program, [np.resize(hard(np.dtype("f4")), N)], [0.3, np.float64(-0.7)]))


def test_products_and_sums_are_not_contracted() -> None:
    """x * x - y of ``y = fl(x * x)`` is 0 but where the product is not rounded before."""
    x = np.random.default_rng(0).standard_normal(N)
    program = Program(2, (Instruction("multiply", (0, 0), F8), Instruction("subtract", (2, 1), F8)), (3,))
    expected, actual = both(program, [x, x * x])
    assert not actual.outputs[0].any()
    assert not expected.outputs[0].any()


_BINARY = "add subtract multiply maximum minimum bitwise_xor less equal logical_and divide".split()
_UNARY = "negative absolute square sign sqrt reciprocal floor rint logical_not isfinite".split()


@st.composite
def programs(draw: st.DrawFn) -> tuple[Program, list[Array]]:
    """Programs of functions and casts, and operands of dtypes that mix."""
    dtypes = draw(st.lists(st.sampled_from(DTYPES), min_size=2, max_size=3))
    inputs = [np.resize(np.roll(hard(d), k), N)[:: draw(st.sampled_from((1, -1)))] for k, d in enumerate(dtypes)]
    values: list[Array] = [x[:1] for x in inputs]
    instructions: list[Instruction] = []
    for _ in range(draw(st.integers(2, 8))):
        name = draw(st.sampled_from((*_BINARY, *_UNARY, "where")))
        chosen = [draw(st.integers(0, len(values) - 1)) for _ in range(3)]
        function = np.where if name == "where" else getattr(np, name)
        nin = 3 if name == "where" else function.nin
        try:
            with np.errstate(all="ignore"):
                made = function(*[values[x] for x in chosen[:nin]])
        except TypeError:
            continue  # numpy has no loop
        exact = is_exact(name, (made.dtype, *(values[x].dtype for x in chosen[:nin])))
        if (
            made.dtype in DTYPES
            and exact
            and not any(f is None for f in loop_dtypes(name, tuple(values[x].dtype for x in chosen[:nin]), made.dtype))
        ):
            instructions.append(Instruction(name, tuple(chosen[:nin]), made.dtype))
            values.append(made)
    n = len(inputs)
    return Program(n, tuple(instructions), tuple(range(n, n + len(instructions)))), inputs


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(programs())
def test_random_programs_have_the_interpreters_bits_and_warnings(made: tuple[Program, list[Array]]) -> None:
    program, inputs = made
    if len(program.instructions) < compiled.LEAST_INSTRUCTIONS:
        return
    with np.errstate(all="ignore"):
        assert_same(both(program, inputs, may_be_left=True))
        program._schedules.clear()
        assert_same(both(program, inputs, errstate=WARN, may_be_left=True))
