"""Programs against numpy: values, dtypes, bits, aliasing, reductions, scratch, floating point events."""

from __future__ import annotations

import itertools
import pickle
import re
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from helpers import peak_nbytes
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made_programs import assert_same_bits, programs, values

from distarray.expr.instructions import Instruction, RuntimeScalar
from distarray.kernels import program as program_module
from distarray.kernels import sliced
from distarray.kernels.elementwise import elementwise, is_exact
from distarray.kernels.monoids import MONOIDS
from distarray.kernels.outcomes import Reduction
from distarray.kernels.program import Program
from distarray.kernels.schedule import Scheduler, SliceState
from distarray.kernels.slices import ADDED_UP, copy_across, crossed_extents, reduced_extents, slice_extents

F8 = np.dtype("f8")
PROPERTY = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@pytest.fixture
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices of some tens of elements, so that small boxes have many."""
    monkeypatch.setattr(program_module, "WHOLE", 4)
    monkeypatch.setattr(sliced, "REDUCED_SLICE", 64)
    monkeypatch.setattr(sliced, "SMALLEST_SLICE", 64)
    monkeypatch.setattr(sliced, "LARGEST_SLICE", 64)


# --- random programs ------------------------------------------------------------------------------------------------


@PROPERTY
@given(st.data())
def test_random_programs_equal_numpy_in_slices(small_slices: None, data: st.DataObject) -> None:
    with np.errstate(all="ignore"):
        program, inputs, scalars, shape, registers = data.draw(programs())
        outcome = program.run(inputs, scalars, shape)
    for register, out in zip(program.outputs, outcome.outputs, strict=True):
        assert_same_bits(out, np.broadcast_to(registers[register], shape))
        assert out.flags.c_contiguous
        assert out.flags.writeable


@PROPERTY
@given(st.data())
def test_random_programs_equal_numpy_in_one_piece(data: st.DataObject) -> None:
    with np.errstate(all="ignore"):
        program, inputs, scalars, shape, registers = data.draw(programs())
        outcome = program.run(inputs, scalars, shape)
    for register, out in zip(program.outputs, outcome.outputs, strict=True):
        assert_same_bits(out, np.broadcast_to(registers[register], shape))
        assert not any(np.shares_memory(out, x) for x in inputs)


@PROPERTY
@given(st.data())
def test_outputs_in_strided_regions_are_filled(small_slices: None, data: st.DataObject) -> None:
    with np.errstate(all="ignore"):
        program, inputs, scalars, shape, registers = data.draw(programs())
        tiles = [np.zeros(tuple(2 * n + 1 for n in shape), registers[r].dtype) for r in program.outputs]
        outs = [t[tuple(slice(1, None, 2) for _ in shape)][..., ::-1] if shape else t for t in tiles]
        program.run(inputs, scalars, shape, outs)
    for register, out, tile in zip(program.outputs, outs, tiles, strict=True):
        assert_same_bits(out, np.broadcast_to(registers[register], shape))
        out[...] = 0
        assert not tile.any()  # nothing else was written


@PROPERTY
@given(st.data())
def test_outputs_may_be_inputs_element_by_element(small_slices: None, data: st.DataObject) -> None:
    with np.errstate(all="ignore"):
        program, inputs, scalars, shape, registers = data.draw(programs())
        owned = [np.array(np.broadcast_to(x, shape)) for x in inputs]
        outs, free = [], list(range(len(owned)))
        for r in program.outputs:
            dtype = np.asarray(registers[r]).dtype
            match = data.draw(st.sampled_from([None, *[i for i in free if owned[i].dtype == dtype]]))
            if match is not None:
                free.remove(match)
            outs.append(None if match is None else owned[match])
        register = data.draw(st.integers(0, len(registers) - 1))
        largest = Reduction(register, "max", tuple(range(len(shape))), np.asarray(registers[register]).dtype)
        is_ordered = largest.dtype.kind in "bif" and 0 not in shape
        program = Program(program.n_inputs, program.instructions, program.outputs, (largest,) * is_ordered)
        # 0-d inputs were scalars before and are arrays now: power differs in the last bit
        expected = program.run([x.copy() for x in owned], scalars, shape)
        outcome = program.run(owned, scalars, shape, outs)
    for actual, wanted in zip(outcome.outputs, expected.outputs, strict=True):
        assert_same_bits(actual, wanted)
    for found, right in zip(outcome.partials, expected.partials, strict=True):
        assert_same_bits(np.asarray(found), np.asarray(right))


def _lying(x: np.ndarray, form: str) -> np.ndarray:
    """Return an array with the elements of `x` that lie in another order, or apart."""
    if form == "contiguous" or not x.ndim:
        return x.copy()
    if form == "columns":
        return np.array(x, order="F")
    apart = np.zeros(tuple(2 * n for n in x.shape), x.dtype)[tuple(slice(None, None, 2) for _ in x.shape)]
    apart[...] = x
    return apart


@PROPERTY
@given(st.data())
def test_runs_of_one_program_do_not_know_of_each_other(small_slices: None, data: st.DataObject) -> None:
    """Whatever lies how, is to be stored in arrays of its own, or of another dtype."""
    with np.errstate(all="ignore"):
        program, inputs, scalars, shape, registers = data.draw(programs())
        owned = [np.array(np.broadcast_to(x, shape)) for x in inputs]
        alone = Program(program.n_inputs, program.instructions, program.outputs).run(owned, scalars, shape)
        for form in data.draw(st.lists(st.sampled_from(["contiguous", "columns", "apart"]), min_size=2, max_size=4)):
            dtypes = ["c16" if registers[r].dtype.kind in "fc" else "f8" for r in program.outputs]
            outs = [np.empty(shape, dtype) if data.draw(st.booleans()) else None for dtype in dtypes]
            found = program.run([_lying(x, form) for x in owned], scalars, shape, outs)
            for out, right in zip(found.outputs, alone.outputs, strict=True):
                assert_same_bits(out, right.astype(out.dtype))


@pytest.mark.parametrize("n", [3, 20_000])
def test_inputs_are_stored_as_they_were_where_outputs_lie_in_their_memory(n: int) -> None:
    x, y = np.arange(n, dtype="f8"), np.arange(n, dtype="f8") + n
    before = x.copy(), y.copy()
    Program(2, (), (1, 0)).run([x, y], (), (n,), [x, y])
    assert_same_bits(x, before[1])
    assert_same_bits(y, before[0])


def test_what_is_stored_beside_a_result_in_its_place_needs_no_copy_of_the_whole() -> None:
    x, kept = np.ones(1_000_000), np.empty(1_000_000)
    program = Program(1, (Instruction("negative", (0,), F8),), (1, 0))
    _, peak = peak_nbytes(lambda: program.run([x], (), x.shape, [x, kept]))
    assert peak < x.nbytes / 2
    np.testing.assert_array_equal(kept, -x)


@pytest.mark.parametrize("apart", [2, 4, 8, -4])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "i8"])
def test_functions_are_right_for_elements_that_lie_apart(small_slices: None, dtype: str, apart: int) -> None:
    """numpy's own kernel of ``negative`` is not, where it writes apart: ``x[:, 0] = -x[:, 0]`` of few columns."""
    x = np.zeros(200 * abs(apart), dtype)[::apart]
    x[...] = np.arange(1, 201)
    for name in ("negative", "square", "positive", "sign", "absolute"):
        program, out = Program(1, (Instruction(name, (0,), x.dtype),), (1,)), np.zeros_like(x, shape=800)[::4]
        expected = getattr(np, name)(x.copy())
        assert_same_bits(program.run([x], (), x.shape, [out]).outputs[0], expected)
        assert_same_bits(program.run([x], (), x.shape, [x]).outputs[0], expected)


@pytest.mark.parametrize("dtype", ["i2", "i4", "i8"])
def test_signs_of_integers_are_written_apart(dtype: str) -> None:
    """numpy's own kernel of ``signbit`` loses half of them there."""
    x = np.random.default_rng(0).integers(-100, 100, 20_000).astype(dtype)
    program, out = Program(1, (Instruction("signbit", (0,), np.dtype(bool)),), (1,)), np.ones(40_000, bool)[::2]
    assert_same_bits(program.run([x], (), x.shape, [out]).outputs[0], x < 0)


@pytest.mark.parametrize("n", [9, 70_001])
@pytest.mark.parametrize(("dtype", "value"), [("u1", -1), ("u1", 300), ("i1", 200), ("i4", 2**33), ("u8", -5)])
def test_a_number_of_pythons_is_chosen_as_numpy_casts_it(n: int, dtype: str, value: int) -> None:
    x = np.arange(n).astype(dtype)
    program = Program(2, (Instruction("where", (0, 1, RuntimeScalar(0)), x.dtype),), (2,))
    assert_same_bits(program.run([x % 3 == 1, x], [value], x.shape).outputs[0], np.where(x % 3 == 1, x, value))


# --- bits -----------------------------------------------------------------------------------------------------------

UFUNCS = sorted(
    {
        name
        for name in dir(np)
        if isinstance(f := getattr(np, name), np.ufunc) and f.__name__ == name and f.signature is None and f.nout == 1
    }
    - {"isnat", "ldexp"}
)


def _signatures(name: str) -> list[tuple[str, ...]]:
    f = getattr(np, name)
    return [tuple(t[: f.nin]) for t in f.types if not set(t) & set("OgGMmpPlLqQhH")]


@pytest.mark.parametrize("name", UFUNCS)
def test_bits_do_not_depend_on_strides_and_place(name: str) -> None:
    """B-20"""
    n = 203
    for signature in _signatures(name):
        operands = [values(c, n, seed=7 * i) for i, c in enumerate(signature)]
        if name in ("power", "left_shift", "right_shift") and signature[0] not in "efdFD":
            operands[1] = abs(operands[1]) % 5
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dtype = getattr(np, name)(*operands).dtype
            program = Program(len(operands), (Instruction(name, tuple(range(len(operands))), dtype),), (len(operands),))

            def run(arrays: list[np.ndarray], shape: tuple[int, ...], out: Any = None) -> np.ndarray:
                return program.run(arrays, (), shape, [out]).outputs[0]  # called in this iteration

            whole = run(operands, (n,))
            for start, stop, step in ((0, n, 2), (3, n, 3), (n - 1, None, -1), (0, 1, 1), (5, 8, 1), (11, 98, 1)):
                cut = slice(start, stop, step)
                views = [x[cut] for x in operands]
                assert_same_bits(run(views, views[0].shape), whole[cut])
            for k in (0, 50, 51, 117, 202):
                assert_same_bits(run([x[k : k + 1] for x in operands], (1,)), whole[k : k + 1])
            square = [x[:196].reshape(14, 14) for x in operands]
            mixed = [x if i else np.asfortranarray(x) for i, x in enumerate(square)]
            assert_same_bits(run(mixed, (14, 14)), whole[:196].reshape(14, 14))
            padded = np.zeros((14, 29), dtype)[:, ::2][:, :14]
            assert_same_bits(run(square, (14, 14), padded), whole[:196].reshape(14, 14))
            views = [x[:14, None] if i else x[:14] for i, x in enumerate(operands)]
            table = run([np.array(np.broadcast_to(x, (14, 14))) for x in views], (14, 14))
            if len(operands) > 1:
                assert_same_bits(run(views, (14, 14)), table)


@pytest.mark.parametrize("name", UFUNCS)
def test_bits_do_not_depend_on_slices(small_slices: None, name: str) -> None:
    test_bits_do_not_depend_on_strides_and_place(name)


@pytest.mark.parametrize("source", ["f2", "f4", "f8", "c8", "c16"])
@pytest.mark.parametrize("target", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"])
def test_casts_of_what_does_not_fit_do_not_depend_on_place(source: str, target: str) -> None:
    x = np.resize(values(source, 40), 203)
    program = Program(1, (Instruction("astype", (0,), np.dtype(target)),), (1,))
    with np.errstate(all="ignore"):
        whole = program.run([x], (), (203,)).outputs[0]
        for cut in (slice(0, 203, 2), slice(202, None, -1), slice(40, 41), slice(7, 80)):
            np.testing.assert_array_equal(program.run([x[cut]], (), x[cut].shape).outputs[0], whole[cut])


def test_narrow_registers_are_computed_once_and_have_the_same_bits() -> None:
    x, k = values("f8", (300, 400)), values("f8", (300, 1), seed=1)
    program = Program(
        2, (Instruction("exp", (1,), F8), Instruction("power", (2, 1), F8), Instruction("multiply", (0, 3), F8)), (4, 2)
    )
    with np.errstate(all="ignore"):
        narrow = program.run([x, k], (), x.shape).outputs
        wide = program.run([x, np.repeat(k, 400, 1)], (), x.shape).outputs
    for a, b in zip(narrow, wide, strict=True):
        assert_same_bits(a, b)


@pytest.mark.parametrize("shape", [(5000, 3), (3, 70_000), (200, 300), (40, 50, 60), (7, 5, 3, 400), (100_003,)])
@pytest.mark.parametrize("layout", ["C", "F", "mixed", "sliced"])
def test_every_layout_gives_numpy_s_values(shape: tuple[int, ...], layout: str) -> None:
    x, y = values("f8", shape), values("f4", shape, 1)
    row = values("f8", shape[-1:], 2)
    if layout == "F":
        x, y = np.asfortranarray(x), np.asfortranarray(y)
    elif layout == "mixed":
        x = np.asfortranarray(x)
    elif layout == "sliced":
        x = np.repeat(x, 2, axis=-1)[..., ::2]
    program = Program(
        3,
        (Instruction("multiply", (0, 1), F8), Instruction("add", (3, 2), F8), Instruction("tanh", (4,), F8)),
        (5, 3),
    )
    with np.errstate(all="ignore"):
        t, p = program.run([x, y, row], (), shape).outputs
        product = np.ascontiguousarray(x) * np.ascontiguousarray(y)
        assert_same_bits(p, product)
        assert_same_bits(t, np.tanh(product + row))


# --- kernels --------------------------------------------------------------------------------------------------------


def run_one(name: str, operands: list[Any], dtype: Any, params: tuple[Any, ...] = ()) -> np.ndarray:
    arrays = [x for x in operands if isinstance(x, np.ndarray)]
    scalars = [x for x in operands if not isinstance(x, np.ndarray)]
    place = {id(x): i for i, x in enumerate(arrays)}
    inputs = tuple(place[id(x)] if id(x) in place else RuntimeScalar(scalars.index(x)) for x in operands)
    shape = np.broadcast_shapes(*(x.shape for x in arrays))
    program = Program(len(arrays), (Instruction(name, inputs, np.dtype(dtype), params),), (len(arrays),))
    return program.run(arrays, scalars, shape).outputs[0]  # type: ignore[no-any-return]


@pytest.mark.parametrize("n", [1, 70, 100_000])
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i1", "u8", "M8[s]"])
def test_clip_with_one_or_two_bounds_equals_numpy(n: int, dtype: str) -> None:
    x = values(dtype, n)
    low, high = np.full(n, 2, dtype), np.full(n, 50, dtype)
    assert_same_bits(run_one("clip", [x, low, high], dtype), np.clip(x, low, high))
    assert_same_bits(run_one("clip", [x, high], dtype, ("max",)), np.clip(x, None, high))
    if dtype[0] != "M":
        assert_same_bits(run_one("clip", [x, 2], dtype, ("min",)), np.clip(x, 2, None))
        assert_same_bits(run_one("clip", [x, 2, 7], dtype), np.clip(x, 2, 7))


def test_names_of_the_standard_and_of_scipy_are_known() -> None:
    x, y = np.array([1.5, -2.5, 0.25]), np.array([2.0, 3.0, 4.0])
    for name in ("acos", "atan2", "pow", "conj", "abs", "hypot", "nextafter", "logaddexp", "atanh", "reciprocal"):
        f = getattr(np, name)
        with np.errstate(all="ignore"):
            assert_same_bits(run_one(name, [x, y][: f.nin], "f8"), f(*[x, y][: f.nin]))
    from scipy.special import ndtri

    assert_same_bits(run_one("special.ndtri", [np.array([0.1, 0.7])], "f8"), ndtri([0.1, 0.7]))
    assert_same_bits(run_one("modf", [x], "f8", (1,)), np.modf(x)[1])
    assert_same_bits(run_one("round", [x], "f8", (1,)), np.round(x, 1))
    assert_same_bits(run_one("imag", [x + 2j], "f8"), np.full(3, 2.0))


@pytest.mark.parametrize("name", ["matmul", "sum", "nothing_of_the_kind", "vecdot"])
def test_what_is_not_elementwise_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="not an elementwise function"):
        elementwise(name, (), F8, (F8,))


def test_datetimes_and_durations_follow_numpy() -> None:
    a, b = values("M8[s]", 9), values("M8[s]", 9, 1)
    d = run_one("subtract", [a, b], "m8[s]")
    assert_same_bits(d, a - b)
    assert_same_bits(run_one("divide", [d, d.astype("m8[ms]")], "f8"), d / d.astype("m8[ms]"))
    assert_same_bits(run_one("less", [a, b], "?"), a < b)
    a[3] = "NaT"
    assert_same_bits(run_one("isnat", [a], "?"), np.isnat(a))
    assert_same_bits(run_one("maximum", [a, b], "M8[s]"), np.maximum(a, b))


def test_python_scalars_are_weak() -> None:
    x = np.arange(5, dtype="u1")
    assert_same_bits(run_one("add", [x, 3], "u1"), x + 3)
    assert_same_bits(run_one("multiply", [x.astype("f4"), 0.1], "f4"), x.astype("f4") * 0.1)
    assert_same_bits(run_one("where", [x > 2, x.astype("f4"), 0.0], "f4"), np.where(x > 2, x.astype("f4"), 0.0))
    with pytest.raises(OverflowError):
        run_one("add", [x, 300], "u1")


def test_exact_functions_are_told_by_dtype() -> None:
    assert is_exact("multiply", (F8, F8))
    assert not is_exact("multiply", (np.dtype("c16"),))
    assert is_exact("maximum", (np.dtype("i4"),))
    assert not is_exact("maximum", (F8,))


# --- reductions -----------------------------------------------------------------------------------------------------

REFERENCE = {
    "sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min, "any": np.any, "all": np.all,
    "count": np.count_nonzero, "argmax": np.argmax, "argmin": np.argmin,
}  # fmt: skip
OF_INTEGERS = ("bitwise_and", "bitwise_or", "bitwise_xor", "gcd", "lcm")
ROUNDED = ("sum", "prod", "moments", "hypot", "logaddexp", "logaddexp2")
RESULT = {
    "any": "?",
    "all": "?",
    "logical_xor": "?",
    "count": "i8",
    "argmax": "i8",
    "argmin": "i8",
    **dict.fromkeys(OF_INTEGERS, "i8"),
}


def reduce_with(program_axes: tuple[int, ...], monoid: str, x: np.ndarray, dtype: Any, **params: Any) -> np.ndarray:
    program = Program(1, (), (), (Reduction(0, monoid, program_axes, np.dtype(dtype)),))
    (partial,) = program.run([x], (), x.shape).partials
    return MONOIDS[monoid].finish(partial, np.dtype(dtype), **params)  # type: ignore[no-any-return]


@PROPERTY
@given(data=st.data(), monoid=st.sampled_from(sorted(REFERENCE)), dtype=st.sampled_from(["f4", "f8", "i4", "?", "c8"]))
def test_reductions_equal_numpy(small_slices: None, data: st.DataObject, monoid: str, dtype: str) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 12), min_size=0, max_size=4)))
    axes = tuple(a for a in range(len(shape)) if data.draw(st.booleans()))
    x = values(dtype, shape, data.draw(st.integers(0, 9)), special=monoid not in ("sum", "prod"))
    if data.draw(st.booleans()) and x.ndim:
        x = np.asfortranarray(x)
    if monoid == "prod":
        x = np.where(x == 0, x, np.asarray(x / abs(x)).astype(x.dtype)) if dtype != "?" else x
    result = RESULT.get(monoid, np.sum(x).dtype if monoid in ("sum", "prod") else dtype)
    with np.errstate(all="ignore"):
        actual = reduce_with(axes, monoid, x, result)
        if monoid.startswith("arg"):
            kept = tuple(a for a in range(x.ndim) if a not in axes)
            rows = x.transpose(kept + axes).reshape(*(x.shape[a] for a in kept), -1)
            expected = REFERENCE[monoid](rows, axis=-1).reshape([1 if a in axes else n for a, n in enumerate(shape)])
        elif monoid == "count":
            expected = (x != 0).sum(axis=axes, keepdims=True)
        else:
            expected = REFERENCE[monoid](x, axis=axes, keepdims=True)
    assert actual.shape == np.shape(expected)
    assert actual.dtype == result
    if monoid in ("sum", "prod") and dtype in ("f4", "f8", "c8"):
        scale = np.abs(x).sum() if monoid == "sum" else 1.0
        eps = 1e-6 if dtype != "f8" else 1e-14
        np.testing.assert_allclose(actual, expected, rtol=10 * eps, atol=eps * scale)
    else:
        np.testing.assert_array_equal(actual, expected)


@PROPERTY
@given(st.data())
def test_moments_equal_numpy(small_slices: None, data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 12), min_size=1, max_size=3)))
    axes = tuple(a for a in range(len(shape)) if data.draw(st.booleans()))
    x = values(data.draw(st.sampled_from(["f8", "c16"])), shape, special=False) + 1000
    program = Program(1, (), (), (Reduction(0, "moments", axes, x.dtype),))
    (partial,) = program.run([x], (), shape).partials
    for of, reference in (("mean", np.mean), ("var", np.var), ("std", np.std)):
        actual = MONOIDS["moments"].finish(partial, of=of)
        np.testing.assert_allclose(actual, reference(x, axis=axes, keepdims=True), rtol=1e-11, atol=1e-10)


@pytest.mark.parametrize("shape", [(70_000,), (300, 400), (3, 50_000), (50_000, 3), (20, 30, 400), (3, 301, 400)])
def test_sum_has_the_same_bits_whatever_is_fused(shape: tuple[int, ...]) -> None:
    x, y = values("f8", shape, special=False), values("f8", shape, 1, special=False)
    for axes in {(0,), (len(shape) - 1,), tuple(range(len(shape)))}:
        total = Reduction(2, "sum", axes, F8)
        product = Instruction("multiply", (0, 1), F8)
        alone = Program(2, (product,), (), (total,)).run([x, y], (), shape).partials[0]
        given = Program(1, (), (), (Reduction(0, "sum", axes, F8),)).run([x * y], (), shape).partials[0]
        more = Program(
            2,
            (product, Instruction("tanh", (2,), F8), Instruction("add", (3, 1), F8)),
            (4, 2),
            (total, Reduction(3, "sum", (0,), F8), Reduction(4, "max", (), F8)),
        ).run([np.asfortranarray(x), y[..., ::-1].copy()[..., ::-1]], (), shape)
        assert_same_bits(alone, given)
        assert_same_bits(more.partials[0], alone)
        assert_same_bits(more.partials[2], more.outputs[0])


@pytest.mark.parametrize("monoid", ["sum", "max", "min", "prod", "any"])
@pytest.mark.parametrize("shape", [(5001, 3), (301, 7, 5), (40, 50, 31), (2000, 1), (1001, 9)])
def test_short_last_axes_reduce_as_others(monoid: str, shape: tuple[int, ...]) -> None:
    x = values("f8", shape, special=False) * 0.01 + 1
    for axes in ((0,), (len(shape) - 1,), tuple(range(len(shape) - 1)), tuple(range(1, len(shape)))):
        actual = reduce_with(axes, monoid, x, RESULT.get(monoid, "f8"))
        np.testing.assert_allclose(actual, REFERENCE[monoid](x, axis=axes, keepdims=True), rtol=1e-12)


def test_sums_are_as_accurate_as_numpy_s() -> None:
    x = np.full(3_000_000, 0.1, np.float32)
    assert abs(reduce_with((0,), "sum", x, "f4").item() / 3e5 - 1) <= 3e-7  # naive summation: 0.05
    assert reduce_with((0,), "sum", np.ones(5000, np.float16), "f2") == 5000


def test_moments_of_large_offset_do_not_cancel() -> None:
    x = 1e9 + np.random.default_rng(0).standard_normal(400_000)
    var = reduce_with((0,), "moments", x, "f8", of="var")
    np.testing.assert_allclose(var, np.var(x), rtol=1e-7)


@pytest.mark.parametrize("name", ["max", "min"])
def test_sign_of_zero_in_extrema_does_not_depend_on_the_cut(name: str) -> None:
    rng = np.random.default_rng(0)
    x = np.where(rng.random(3000) < 0.999, *((-0.0, 0.0) if name == "max" else (0.0, -0.0)))
    wanted = name == "min"
    for axes, block in (((0,), x), ((0, 1), x.reshape(60, 50)), ((0,), x[:, None] * np.ones(2))):
        result = reduce_with(axes, name, block, "f8")
        assert (np.signbit(result) == wanted).all()
    monoid = MONOIDS[name]
    pieces = [monoid.partial(p, (0,), F8) for p in np.array_split(x, 7)]
    assert np.signbit(monoid.combine(pieces)) == wanted


@PROPERTY
@given(
    data=st.data(),
    monoid=st.sampled_from(sorted(MONOIDS)),
    cuts=st.lists(st.integers(0, 20), min_size=1, max_size=4),
)
def test_partials_of_tiles_combine_to_the_whole(data: st.DataObject, monoid: str, cuts: list[int]) -> None:
    x = values("f8", (20, 6), data.draw(st.integers(0, 20)), special=monoid not in ROUNDED)
    if monoid in OF_INTEGERS:
        x = np.nan_to_num(x, posinf=9, neginf=5).astype("i8") % 7 + 1
    bounds = [0, *sorted(cuts), 20]
    axes = data.draw(st.sampled_from([(0,), (0, 1)]))
    dtype = np.dtype(RESULT.get(monoid, "f8"))
    partials = []
    for low, high in pairwise(bounds):
        program = Program(1, (), (), (Reduction(0, monoid, axes, dtype),))
        tile = x[low:high]
        partials += program.run([tile], (), tile.shape, origin=(low, 0), extents=x.shape).partials
    before = pickle.dumps(partials)
    combined = MONOIDS[monoid].finish(MONOIDS[monoid].combine(partials), dtype)
    assert pickle.dumps(partials) == before  # combining changes none of them
    whole = reduce_with(axes, monoid, x, dtype)
    if monoid in ROUNDED:
        np.testing.assert_allclose(combined, whole, rtol=1e-9)
    else:
        np.testing.assert_array_equal(combined, whole)


@pytest.mark.parametrize("monoid", sorted(MONOIDS))
def test_empty_boxes_give_the_identity_or_no_value(monoid: str) -> None:
    def partial(shape: tuple[int, ...], axes: tuple[int, ...]) -> Any:
        dtype = np.dtype(RESULT.get(monoid, "f8"))
        program = Program(1, (), (), (Reduction(0, monoid, axes, dtype),))
        return program.run([np.empty(shape)], (), shape).partials[0]

    first = partial((0, 3), (0,))
    if monoid in ("max", "min", "fmax", "fmin", "lcm", "argmax", "argmin"):
        assert first is None
        assert MONOIDS[monoid].combine([first, None]) is None
    else:
        assert np.shape(first[0] if monoid == "moments" else first) == (1, 3)
    kept = partial((0, 3), (1,))
    assert np.shape(kept if MONOIDS[monoid].n_arrays == 1 else kept[0]) == (0, 1)


# --- scratch, overhead, threads, events -----------------------------------------------------------------------------


def _scheduled(program: Program, n_inputs: int, aliases: Sequence[Sequence[int]] = ()) -> Any:
    state = SliceState(F8, True)
    calls = program.calls((F8,) * n_inputs)
    n_entries = n_inputs + len(calls)
    given, places = dict.fromkeys(range(n_inputs), state), [state] * len(program.outputs)
    reduced = [(r.register, True) for r in program.reductions]
    aliases = aliases or [()] * len(places)
    return Scheduler(calls, given, program.outputs, places, reduced, n_entries, aliases).schedule()


def test_a_chain_of_any_length_needs_two_slices_of_scratch() -> None:
    chain = tuple(Instruction("exp" if k % 2 else "negative", (k,), F8) for k in range(20))
    assert len(_scheduled(Program(1, chain, (20,)), 1).slots) <= 2


def test_results_are_made_where_inputs_lie_that_are_read_no_more() -> None:
    """A step of conjugate gradients, ``x += a * p; r -= a * q; r @ r``: each is made in place."""
    a = RuntimeScalar(0)
    moved = (Instruction("multiply", (a, 1), F8), Instruction("add", (0, 4), F8))
    left = (Instruction("multiply", (a, 3), F8), Instruction("subtract", (2, 6), F8))
    squares = Instruction("multiply", (7, 7), F8)
    program = Program(4, (*moved, *left, squares), (5, 7), (Reduction(8, "sum", (0,), F8),))
    made = _scheduled(program, 4, [(0,), (2,)])
    assert [step.called.function for step in made.steps] == ["multiply", "add", "multiply", "subtract", "multiply"]
    assert not made.late
    # ``x + p`` may not lie where `q` does, which is read after it.
    other = _scheduled(program, 4, [(3,), (2,)])
    assert [step.called.function for step in (*other.steps[5:], *other.late)] == ["cast"]


def test_fused_sum_of_products_needs_less_than_one_block_of_temporaries() -> None:
    """B-33"""
    a_b_c_d = (Instruction("multiply", (0, 1), F8), Instruction("multiply", (2, 3), F8), Instruction("add", (4, 5), F8))
    program = Program(4, a_b_c_d, (6,))
    made = _scheduled(program, 4)
    assert len(made.slots) <= 2
    n = 1_000_000
    blocks = [values("f8", n, i, special=False) for i in range(4)]
    out = np.empty(n)
    _, peak = peak_nbytes(lambda: program.run(blocks, (), (n,), [out]))
    assert peak < out.nbytes
    np.testing.assert_array_equal(out, blocks[0] * blocks[1] + blocks[2] * blocks[3])


@pytest.mark.parametrize(
    ("name", "params", "dtypes"),
    [
        ("where", (), "?i8f8"),
        ("where", (), "i8f8f8"),
        ("round", (-2,), "i8"),
        ("modf", (0,), "f8"),
        ("byteswap", (), "f8"),
    ],
)
def test_calls_that_make_more_than_their_result_run_in_slices(name: str, params: Any, dtypes: str) -> None:
    n, given = 1_000_000, [np.dtype(d) for d in re.findall("[?]|[a-z]8", dtypes)]
    out = np.empty(n, given[-1])
    operands = [values(d.str, n, i, special=False) for i, d in enumerate(given)]
    program = Program(len(given), (Instruction(name, tuple(range(len(given))), out.dtype, params),), (len(given),))
    outcome, peak = peak_nbytes(lambda: program.run(operands, (), (n,), [out]))
    assert peak < out.nbytes / 2
    function = elementwise(name, params, out.dtype, tuple(given)).call
    np.testing.assert_array_equal(outcome.outputs[0], function(*operands))


def test_slices_depend_on_the_shape_only_and_are_balanced() -> None:
    assert slice_extents((10, 7), 64) == (5, 7)
    assert slice_extents((), 64) == ()
    assert slice_extents((3, 100), 64)[0] == 1
    for shape in ((1000,), (65, 3), (3, 65), (2, 3, 70)):
        assert int(np.prod(slice_extents(shape, 64))) <= 64


@PROPERTY
@given(st.data())
def test_slices_that_are_reduced_add_up_many_elements(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 5000), min_size=1, max_size=4)))
    axes = tuple(sorted(data.draw(st.sets(st.sampled_from(range(len(shape)))))))
    budget = data.draw(st.sampled_from([64, 4096, 131_072]))
    extents = reduced_extents(shape, axes, budget)
    assert all(1 <= e <= n for e, n in zip(extents, shape, strict=True))
    assert int(np.prod(extents)) <= budget
    if axes and axes[-1] < len(shape) - 1:
        n = int(np.prod([shape[a] for a in axes], dtype=float))
        # Extents are balanced: of 33 rows a slice has 17.
        assert np.prod([extents[a] for a in axes]) > min(n, ADDED_UP) / 2


@PROPERTY
@given(st.data())
def test_reductions_that_share_a_program_have_the_bits_of_each_alone(small_slices: None, data: st.DataObject) -> None:
    """Whatever slices each of them takes; and where what is stored overwrites what they read."""
    shape = tuple(data.draw(st.lists(st.integers(1, 150), min_size=1, max_size=3)))
    axes_of = st.sets(st.sampled_from(range(len(shape)))).map(lambda found: tuple(sorted(found)))
    reductions = tuple(
        Reduction(data.draw(st.sampled_from([0, 1])), monoid, data.draw(axes_of), F8)
        for monoid in data.draw(st.lists(st.sampled_from(["sum", "moments", "max", "argmin"]), min_size=1, max_size=4))
    )
    x = values("f8", shape, data.draw(st.integers(0, 9)), special=False)
    code = (Instruction("square", (0,), F8),)
    alone = [Program(1, code, (), (r,)).run([x], (), shape).partials[0] for r in reductions]
    outcome = Program(1, code, (1,), reductions).run([x], (), shape, [x] if data.draw(st.booleans()) else None)
    for found, wanted in zip(outcome.partials, alone, strict=True):
        for a, b in zip(found, wanted, strict=True) if isinstance(wanted, tuple) else [(found, wanted)]:
            assert_same_bits(a, b)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c16", "i4"])
@pytest.mark.parametrize("monoid", ["sum", "prod", "moments", "max", "argmax"])
@pytest.mark.parametrize("n", [130, 300, 1024, 1025, 1044, 1064, 1090])
def test_rows_that_lie_apart_are_added_up_as_those_that_do_not(
    monkeypatch: pytest.MonkeyPatch, dtype: str, monoid: str, n: int
) -> None:
    """What is computed lies in scratch, what is read may lie as it is, and the last slice may be a sliver."""
    if dtype == "c16" and monoid in ("max", "argmax"):
        return
    monkeypatch.setattr(program_module, "WHOLE", 4)
    monkeypatch.setattr(sliced, "REDUCED_SLICE", 4096)
    monkeypatch.setattr(sliced, "LARGEST_REDUCED_SLICE", 8192)
    x = (np.random.default_rng(n).standard_normal((120, n)) * 3).astype(dtype)
    of_result = {"argmax": np.dtype(np.intp), "moments": np.result_type(x.dtype, "f4")}.get(monoid, x.dtype)
    reduction = Reduction(0, monoid, (0,), of_result)
    copied = Program(1, (Instruction("positive", (0,), x.dtype),), (), (replace(reduction, register=1),))
    with np.errstate(all="ignore"):
        (found,) = Program(1, (), (), (reduction,)).run([x], (), x.shape).partials
        (wanted,) = copied.run([x], (), x.shape).partials
        (strided,) = Program(1, (), (), (reduction,)).run([np.repeat(x, 2, axis=0)[::2]], (), x.shape).partials
    for a, b, c in zip(found, wanted, strided, strict=True) if type(found) is tuple else [(found, wanted, strided)]:
        assert_same_bits(a, b)
        assert_same_bits(c, b)


def test_threads_share_a_program() -> None:
    x = values("f8", (4, 100_000), special=False)
    program = Program(1, (Instruction("square", (0,), F8), Instruction("add", (1, RuntimeScalar(0)), F8)), (2,))
    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(program.run, [x[i % 4]], [i], (100_000,)) for i in range(16)]
        for i, future in enumerate(futures):
            np.testing.assert_array_equal(future.result().outputs[0], x[i % 4] ** 2 + i)


@pytest.mark.parametrize("n", [5, 100_000])
def test_floating_point_events_come_back_and_do_not_warn(n: int) -> None:
    x = np.linspace(0.0, 1.0, n)
    program = Program(1, (Instruction("divide", (RuntimeScalar(0), 0), F8), Instruction("log", (0,), F8)), (1, 2))
    modes: Any = {"divide": "warn", "over": "warn", "invalid": "ignore", "under": "ignore"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        outcome = program.run([x], [1.0], (n,), errstate=modes)
    assert [str(e) for e in outcome.events] == [f"divide by zero encountered in {f}" for f in ("divide", "log")]
    assert program.run([x], [1.0], (n,), errstate={"all": "ignore"}).events == ()
    with pytest.raises(FloatingPointError, match="divide by zero"):
        program.run([x], [1.0], (n,), errstate={"all": "raise"})


def test_programs_are_values() -> None:
    make = lambda: Program(1, (Instruction("exp", (0,), F8),), (1,), (Reduction(1, "sum", (0,), F8),))
    a, b = make(), make()
    a.run([np.arange(3.0)], (), (3,))
    assert a == b
    assert hash(a) == hash(b)
    assert pickle.loads(pickle.dumps(a)) == a


def test_0d_operands_are_scalars_with_a_dtype() -> None:
    x = values("f8", 100_000, special=False)
    program = Program(2, (Instruction("power", (0, 1), F8),), (2,))
    assert_same_bits(program.run([x, np.array(2.0)], (), x.shape).outputs[0], np.power(x, np.array(2.0)))
    (out,) = program.run([np.array(3.0), np.array(2.0)], (), ()).outputs
    assert isinstance(out, np.ndarray)
    assert out.shape == ()
    assert out == 9


@PROPERTY
@given(st.data())
def test_arrays_of_unlike_orders_run_in_slices_of_whole_lines(data: st.DataObject) -> None:
    """Values and stored order are as ever; a slice has as many elements along the axis along which one runs fastest."""
    shape = tuple(data.draw(st.lists(st.integers(1, 70), min_size=2, max_size=3)))
    order = data.draw(st.permutations(range(len(shape))))
    crossed = np.ascontiguousarray(values("f8", shape, 1, special=False).transpose(order)).transpose(np.argsort(order))
    plain = values("f8", shape, 2, special=False)
    extents = crossed_extents([crossed, plain], shape, 4096)
    assert int(np.prod(extents)) <= 4096
    assert all(1 <= e <= n for e, n in zip(extents, shape, strict=True))
    fastest = order[-1]
    if shape[fastest] > 1 and shape[-1] > 1:
        assert extents[fastest] >= min(shape[fastest], 64) // 2  # balanced
    program = Program(2, (Instruction("multiply", (0, 1), F8),), (2,))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(program_module, "WHOLE", 4)
        for name in ("SMALLEST_SLICE", "LARGEST_SLICE"):
            patched.setattr(sliced, name, 256)
        (out,) = program.run([crossed, plain], (), shape).outputs
    assert_same_bits(out, crossed * plain)
    assert out.flags.c_contiguous


@pytest.mark.parametrize("shape", [(1, 5000), (2048, 33), (257, 256), (40, 3, 512), (7, 4096), (3, 0, 5000)])
def test_copies_across_are_copies(shape: tuple[int, ...]) -> None:
    for order in itertools.permutations(range(len(shape))):
        x = values("f8", shape, special=False).transpose(order)[::-1]
        out = np.empty(x.shape)
        copy_across(x, out)
        assert_same_bits(out, x)
