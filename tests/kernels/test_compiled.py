"""Compiled programs give what the interpreter gives: bits, dtypes, warnings; and it serves where they are not there."""

from __future__ import annotations

import pickle
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from helpers import some
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import distarray as dx
from distarray import config
from distarray.expr.instructions import Instruction, RuntimeScalar
from distarray.kernels import compiled, compiler, schedule
from distarray.kernels.compiled import Compiled
from distarray.kernels.compiled_moments import RowMoments
from distarray.kernels.compiler import COMPILER
from distarray.kernels.elementwise import is_exact, loop_dtypes
from distarray.kernels.expressions import EXPRESSIONS
from distarray.kernels.loop_code import LOOPS
from distarray.kernels.monoids import MONOIDS
from distarray.kernels.outcomes import Outcome, Reduction
from distarray.kernels.program import Program
from distarray.runtime import memory

numba = pytest.importorskip("numba")

Array = np.ndarray[Any, Any]
BOOL, F8 = np.dtype(bool), np.dtype("f8")
DTYPES = [np.dtype(name) for name in sorted(LOOPS.types)]
#: What is compiled for others of their kind is compiled for these too, of another width.
ALIKE = ("int8", "int16", "uint16", "int32", "uint32", "uint64", "float32")
FEW = [pytest.param(d, marks=[pytest.mark.slow] * (d.name in ALIKE)) for d in DTYPES]
#: An odd number of elements, and more than a program runs as a whole: vectors end where the arrays do not.
N = 20_011
WARN = dict.fromkeys(("divide", "over", "invalid"), "warn") | {"under": "ignore"}
IGNORE = dict.fromkeys(("divide", "over", "invalid", "under"), "ignore")


def all_compiled(program: Program) -> list[Compiled]:
    """What has come of a program so far, compiled now."""
    found = [c for s in program.schedules.values() for c in getattr(s, "compiled", {}).values() if c is not None]
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
    before = c.n_slices
    actual = program.run(inputs, scalars, shape, errstate=errstate)
    assert c.n_slices > before or c.function is None
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


@pytest.mark.parametrize("dtype", FEW, ids=str)
def test_every_row_of_the_table_has_numpys_bits(dtype: np.dtype[Any]) -> None:
    assert len(rows(dtype)) > 10
    assert_same(both(of_rows(dtype), operands(dtype)), rows(dtype))


@pytest.mark.parametrize("given", FEW, ids=str)
def test_casts_have_numpys_bits(given: np.dtype[Any]) -> None:
    wanted = [d for d in DTYPES if d != given and is_exact("astype", (d, given))]
    program = Program(1, tuple(Instruction("astype", (0,), d) for d in wanted), tuple(range(1, 1 + len(wanted))))
    assert_same(both(program, [np.resize(hard(given), N)]), [str(d) for d in wanted])


@pytest.mark.parametrize("dtype", [np.dtype(d) for d in ("f4", "?")], ids=str)
@pytest.mark.parametrize("layout", some(["strided", "transposed", "broadcast", "rows", "0-d"]))
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


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_the_larger_of_two_zeros_is_the_one_that_numpy_takes(dtype: str) -> None:
    """IEEE 754 leaves it open; where numpy takes now this, now that, such a program is not compiled."""
    d = np.dtype(dtype)
    zero, least = RuntimeScalar(0), RuntimeScalar(1)
    pairs = [(0, 1), (1, 0), (0, zero), (zero, 1), (0, least), (least, 0)]
    for k, name in enumerate(("maximum", "minimum")):
        instructions = tuple(Instruction(name, pair, d) for pair in pairs)
        program = Program(2, (*instructions, Instruction("negative", (2,), d)), tuple(range(2, 9)))
        assert_same(both(program, operands(d), [0.0, -0.0], may_be_left=True))
        assert compiled._chosen_zero(name, d, (False, False)) in (1, -1), k


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


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(programs())
def test_random_programs_have_the_interpreters_bits_and_warnings(made: tuple[Program, list[Array]]) -> None:
    program, inputs = made
    assume(len(program.instructions) > 1)
    with np.errstate(all="ignore"):
        assert_same(both(program, inputs, may_be_left=True))
        program.schedules.clear()
        program.layouts.clear()
        assert_same(both(program, inputs, errstate=WARN, may_be_left=True))


def sums(*registers: int, axes: tuple[int, ...] = (0,), monoid: str = "sum") -> tuple[Reduction, ...]:
    return tuple(Reduction(r, monoid, axes, F8) for r in registers)


SQUARES = Instruction("subtract", (0, 1), F8), Instruction("square", (2,), F8)


@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)], ids=str)
@pytest.mark.parametrize("monoid", ["sum", "max", "moments", "argmax"])
def test_reductions_of_compiled_registers_keep_their_order(axes: tuple[int, ...], monoid: str) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((500, 700)), rng.standard_normal(700)
    assert_same(both(Program(2, SQUARES, (3,), sums(2, 3, 0, axes=axes, monoid=monoid)), [x, y[None]]))
    assert_same(both(Program(2, SQUARES, (), sums(3, axes=axes, monoid=monoid)), [x.T, y[:, None]]))


def test_an_output_may_be_an_input() -> None:
    """In place, several outputs, slices of several extents: nothing is stored before all is read."""
    x, y = np.random.default_rng(0).standard_normal((2, 300, 701))
    program = Program(2, (*SQUARES, Instruction("add", (3, 1), F8)), (4, 0, 2))
    (expected, *_), found = both(program, [x, y])
    for _ in range(2):
        a, b, extra = x.copy(), y.copy(), np.empty(x.shape)
        program.run([a, b], [], x.shape, [a, b, extra])
        all_compiled(program)
    del found
    for actual, e in zip((a, b, extra), expected, strict=True):
        assert_same_bits(actual, e)
    alone = Program(2, SQUARES, (3,))
    for _ in range(2):
        a = x[:, ::-1].copy()[:, ::-1]
        alone.run([a, y], [], x.shape, [a])
        assert_same_bits(a, (x - y) ** 2)
        assert all(c.function is not None for c in all_compiled(alone))


@pytest.mark.parametrize("at", [0, 5_000, N - 1, N - 3])
def test_a_slice_that_raises_a_flag_warns_as_numpy_does(at: int) -> None:
    x, y = np.random.default_rng(0).standard_normal((2, N))
    program = Program(2, (Instruction("divide", (0, 1), F8), Instruction("sqrt", (2,), F8)), (2, 3))
    y[at], x[at] = 0.0, -1.0
    expected, actual = both(program, [abs(x), abs(y)], errstate=WARN)
    assert [e.kind for e in actual.events] == ["divide by zero"]
    assert_same((expected, actual))
    assert_same(both(program, [x, y], errstate=WARN))
    with pytest.raises(FloatingPointError, match="encountered in divide"):
        program.run([abs(x), abs(y)], [], (N,), errstate=WARN | {"divide": "raise"})


@pytest.mark.parametrize("n", [16_385, 16_391, 16_400])
def test_what_where_does_not_choose_warns_too(n: int) -> None:
    """A compiler may compute an operand only where it is chosen; numpy computes it everywhere, and so tells of it."""
    x, zero = np.ones(n), np.ones(n)
    zero[-1] = 0
    for condition in ((1, 1), (0, 0), (1, RuntimeScalar(0))):
        program = Program(
            2,
            (
                Instruction("divide", (0, 1), F8),
                Instruction("not_equal", condition, BOOL),
                Instruction("where", (3, 2, 0), F8),
            ),
            (4,),
        )
        expected, actual = both(program, [x, zero], [0.0], errstate=WARN)
        assert [e.kind for e in actual.events] == ["divide by zero"]
        assert_same((expected, actual))


def test_in_place_a_flagged_slice_reads_what_was_there() -> None:
    x = np.linspace(0, 1, N)
    program = Program(1, (Instruction("reciprocal", (0,), F8), Instruction("subtract", (1, 0), F8)), (2,))
    with np.errstate(all="ignore"):
        expected = 1 / x - x
    for _ in range(2):
        a = x.copy()
        outcome = program.run([a], [], (N,), [a], errstate=WARN)
        assert [e.kind for e in outcome.events] == ["divide by zero"]
        assert_same_bits(a, expected)
        (c,) = all_compiled(program)
    assert c.n_flagged


def test_arrays_of_many_shapes_do_not_make_a_program_forget_what_is_compiled() -> None:
    program = Program(1, (Instruction("square", (0,), F8), Instruction("add", (1, 0), F8)), (2,))
    for n in range(2 * schedule.MAX_SCHEDULES):
        program.run([np.ones(N + n)], (), (N + n,))
        if not n:
            before = all_compiled(program)
    assert all_compiled(program) == before != []


def test_a_program_that_raises_flags_all_the_time_is_given_up() -> None:
    x = np.zeros(1_000_000)
    program = Program(1, (Instruction("reciprocal", (0,), F8), Instruction("add", (1, 0), F8)), (2,))
    assert_same(both(program, [x], errstate=WARN))
    (c,) = [c for s in program.schedules.values() for c in getattr(s, "compiled", {}).values()]
    assert c.function is None
    assert c.n_flagged >= compiler.MOST_FLAGGED


@pytest.mark.parametrize(
    "instructions",
    [
        (Instruction("exp", (0,), F8), Instruction("add", (1, 0), F8)),
        (Instruction("clip", (0, 0, 0), F8), Instruction("add", (1, 0), F8)),
        (Instruction("add", (0, 0), F8), Instruction("floor_divide", (1, 0), F8)),
        (Instruction("add", (0, 0), F8), Instruction("astype", (1,), np.dtype("i8"))),
    ],
    ids=lambda i: i[-1].function,
)
def test_what_has_no_exact_bits_is_left_to_the_interpreter(instructions: tuple[Instruction, ...]) -> None:
    program = Program(1, instructions, (2,))
    program.run([np.ones(N)], [], (N,))
    assert not [c for c in all_compiled(program) if c.function is not None]


@pytest.mark.parametrize("dtype", ["f2", "c16", ">f8"])
def test_dtypes_that_the_processor_has_not_are_left_to_the_interpreter(dtype: str) -> None:
    x = np.arange(N).astype(dtype)
    d = np.dtype(dtype).newbyteorder("=")
    program = Program(1, (Instruction("add", (0, 0), d), Instruction("subtract", (1, 0), d)), (2,))
    for _ in range(2):
        assert_same_bits(program.run([x], [], (N,)).outputs[0].real, x.real.astype(d.type(0).real.dtype))
        assert not [c for c in all_compiled(program) if c.function is not None]


@pytest.fixture
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "ENOUGH_SECONDS", 0.0)


@pytest.mark.usefixtures("_at_once")
def test_the_third_run_has_it_compiled_beside_the_work() -> None:
    program, x = Program(1, (Instruction("add", (0, 0), F8), Instruction("sqrt", (1,), F8)), (2,)), np.ones(N)
    for n in range(1, 4):
        program.run([x], [], (N,))
        COMPILER.wait()
        (c,) = [c for s in program.schedules.values() for c in getattr(s, "compiled", {}).values()]
        assert (c.function is not None) == (n == 3)
    assert pickle.loads(pickle.dumps(program)) is pickle.loads(pickle.dumps(program)), "workers keep what is compiled"


@pytest.mark.usefixtures("_at_once")
def test_threads_run_compiled_slices_side_by_side() -> None:
    x = np.random.default_rng(0).standard_normal((300, 900))
    program = Program(1, (Instruction("multiply", (0, 0), F8), Instruction("subtract", (1, 0), F8)), (2,), sums(2))
    with config.set(compiled=False):
        expected = program.run([x], [], x.shape)
    found: list[Outcome] = []

    def work() -> None:
        for _ in range(8):
            found.append(program.run([x], [], x.shape))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    COMPILER.wait()
    work()
    assert any(c.function is not None for c in all_compiled(program))
    for outcome in found:
        assert_same((expected, outcome))


@pytest.mark.usefixtures("_at_once")
def test_what_cannot_be_compiled_is_said_and_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(text: str) -> Any:
        raise OSError("no space left")

    monkeypatch.setattr("distarray.kernels.compiled.loaded", broken)
    monkeypatch.setattr(COMPILER, "failures", [])
    program, x = Program(1, (Instruction("add", (0, 0), F8), Instruction("negative", (1,), F8)), (2,)), np.ones(N)
    for _ in range(5):
        assert_same_bits(program.run([x], [], (N,)).outputs[0], -2 * x)
        COMPILER.wait()
    assert COMPILER.failures == ["OSError: no space left"]
    (finding,) = [f for f in dx.doctor().findings if f.what == "compiled programs"]
    assert finding.verdict == "warning"
    assert "no space left" in finding.found


def test_later_processes_load_what_was_compiled() -> None:
    program, x = Program(1, (Instruction("add", (0, 0), F8), Instruction("floor", (1,), F8)), (2,)), np.ones(N)
    program.run([x], [], (N,))
    (c,) = all_compiled(program)
    c.compile()  # as another process would: from the file
    assert sum(c.function.stats.cache_hits.values()) == 1


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("shape", [(37, 64), (2, 5000), (1, 100), (40, 8, 16)], ids=str)
def test_moments_of_rows_are_numpys(dtype: str, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    x = (rng.standard_normal(shape) * 10.0 ** rng.integers(-5, 5, shape)).astype(dtype)
    x[:, ..., 1] = -0.0
    candidate = RowMoments()
    monkeypatch.setattr("distarray.kernels.compiled_moments._row_moments", lambda: candidate)
    expected = MONOIDS["moments"].partial(x, (0,), x.dtype)
    candidate.compile()
    for actual, e in zip(MONOIDS["moments"].partial(x, (0,), x.dtype), expected, strict=True):
        assert_same_bits(actual, e)
    assert candidate.n_slices == 1
    x[0, ..., 3] = np.inf
    with np.errstate(invalid="raise"), pytest.raises(FloatingPointError):
        MONOIDS["moments"].partial(x, (0,), x.dtype)


@pytest.mark.usefixtures("_at_once")
def test_arrays_are_computed_by_compiled_programs() -> None:
    """A user's loop in place, game of life and a variance, from the first run to those that are compiled."""
    rng = np.random.default_rng(0)
    h, g = rng.standard_normal((900, 700)), rng.integers(0, 2, (900, 900)).astype("u1")
    before = COMPILER.n_compiled

    def computed(xp: Any) -> list[Array]:
        u, near = xp.asarray(h.copy()), xp.asarray(g)
        for _ in range(4):
            u[1:-1, 1:-1] = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])
        near = near[:-2] + near[1:-1] * xp.uint8(2) + near[2:]
        alive = ((near == 3) | (near == 2)).astype("uint8")
        return [np.asarray(x) for x in (u, alive, xp.where(u > 0, u * u, -u), xp.var(u, axis=0))]

    expected = computed(np)
    for _ in range(6):
        actual = computed(dx)
        for x, e in zip(actual[:3], expected[:3], strict=True):
            assert_same_bits(x, e)
        np.testing.assert_allclose(actual[3], expected[3])
        COMPILER.wait()
    assert COMPILER.n_compiled > before


@pytest.mark.parametrize("name", some(["equal", "not_equal", "less", "less_equal", "greater", "greater_equal"], 3))
def test_whole_numbers_with_and_without_a_sign_are_compared_exactly(name: str) -> None:
    """numpy compares them as they are; a compiler makes floats, or unsigned numbers, of both."""
    signed = np.array([-(2**63), -1, 0, 1, 2**53, 2**53 + 1, 2**63 - 1])
    unsigned = np.array([0, 1, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1], np.uint64)
    s, u = (np.resize(a.ravel(), N) for a in np.meshgrid(signed, unsigned))
    for operands in ((s, u), (u, s)):
        made = Instruction(name, (0, 1), np.dtype(bool))
        program = Program(2, (made, Instruction("logical_or", (2, 2), np.dtype(bool))), (3,))
        for outcome in both(program, operands):
            np.testing.assert_array_equal(outcome.outputs[0], getattr(np, name)(*operands))


CONSTANTS: dict[str, Callable[[Any], Any]] = {
    "difference": lambda i: (i - i) / (i - i),
    "comparisons": lambda i: (i == i) / (i != i),
    "reciprocal": lambda i: np.reciprocal((i ^ i).astype("f8")),
    "tests": lambda i: np.isnan(i * 1.0) / np.isnan(i * 1.0),
}


@pytest.mark.parametrize("name", CONSTANTS)
def test_what_a_compiler_could_compute_itself_still_warns(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "ENOUGH_RUNS", 1)
    monkeypatch.setattr(compiler, "ENOUGH_SECONDS", 0.0)
    i = dx.asarray(np.arange(1_000_000)) + 0
    i.persist()
    for _ in range(3):
        with pytest.warns(RuntimeWarning):
            CONSTANTS[name](i).persist()
        COMPILER.wait()


def test_no_warning_of_the_user_is_lost_while_a_program_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "ENOUGH_RUNS", 1)
    monkeypatch.setattr(compiler, "ENOUGH_SECONDS", 0.0)
    x = dx.asarray(np.ones((4000, 400))) + 0
    (x * 1.5 - x * 2 + 3 - x).persist()
    COMPILER.wait()  # the first of a process: Numba changes the filters of warnings while it begins
    before, failures = COMPILER.n_compiled, list(COMPILER.failures)
    (x * 1.25 - x * 3 + 7 - x).persist()
    while (thread := COMPILER._thread) is not None and thread.is_alive():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            thread.join(0.001)
            warnings.warn("of the user", stacklevel=1)
        assert [str(w.message) for w in caught] == ["of the user"]
    assert COMPILER.n_compiled > before and COMPILER.failures == failures


def test_a_process_that_was_forked_while_another_one_compiled_does_not_compile() -> None:
    made = compiler.Compiler()
    made.forked()
    assert made.is_usable
    made._thread = threading.current_thread()
    made._lock.acquire()
    made.forked()
    assert not made.is_usable and made._thread is None and not made._lock.locked()


@pytest.mark.cluster
def test_workers_compile_what_comes_often(process_cluster: Any) -> None:
    """A program comes to a worker anew with each evaluation, and is known there."""

    def compile_from(seconds: float, least_nbytes: int) -> None:  # workers do not know this module
        from distarray.kernels import compiler
        from distarray.runtime import memory

        compiler.ENOUGH_SECONDS, memory.COMPILER_NBYTES = seconds, least_nbytes

    def n_compiled() -> tuple[int, list[str]]:
        from distarray.kernels.compiler import COMPILER

        COMPILER.wait()
        return COMPILER.n_compiled, COMPILER.failures

    before = compiler.ENOUGH_SECONDS, memory.COMPILER_NBYTES
    process_cluster.run(compile_from, 0.0, 1)
    try:
        h = np.random.default_rng(0).standard_normal((2000, 400))
        x, expected = dx.asarray(h), np.sqrt(h * h + 1) - 0.1 * h
        for _ in range(6):
            np.testing.assert_array_equal(np.asarray(dx.sqrt(x * x + 1) - 0.1 * x), expected)
            process_cluster.run(n_compiled)
        found = process_cluster.run(n_compiled)
    finally:
        process_cluster.run(compile_from, *before)
    assert all(n >= 1 and not failures for n, failures in found.values()), found
