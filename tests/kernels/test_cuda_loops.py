"""The loops of generated kernels: every element once, whatever the strides, and folds that are the monoids' own."""

from __future__ import annotations

import math
from typing import Any

import cupy_stand_in
import host_kernels
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distarray.expr.instructions import Instruction, RuntimeScalar
from distarray.kernels import cuda_loops, cuda_reductions, cupy_backend
from distarray.kernels.cuda_code import C_TYPE
from distarray.kernels.monoids import MONOIDS, Within
from distarray.kernels.outcomes import Reduction
from distarray.kernels.program import Program

#: What is compiled for these is compiled for others of their kind.
ALIKE = ("int8", "int16", "uint16", "int32", "uint32", "uint64", "float32", "complex64")

extents = st.lists(st.integers(1, 7), min_size=0, max_size=4).map(tuple)


def strides_of(shape: tuple[int, ...], order: list[int], broadcast: list[bool]) -> tuple[int, ...]:
    """Steps of an array of 8 bytes per element with its axes in memory in some order, some of them broadcast."""
    steps, step = [0] * len(shape), 8
    for axis in reversed(order):
        if not broadcast[axis]:
            steps[axis] = step
            step *= shape[axis]
    return tuple(steps)


@st.composite
def nests(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], tuple[tuple[int, ...], ...]]:
    """A box, axes that are looped over, and the steps of some arrays."""
    shape = draw(extents)
    axes = tuple(a for a in range(len(shape)) if draw(st.booleans()))
    arrays = []
    for _ in range(draw(st.integers(1, 3))):
        order = draw(st.permutations(range(len(shape))))
        broadcast = [draw(st.booleans()) for _ in shape]
        arrays.append(strides_of(shape, list(order), broadcast))
    return shape, axes, tuple(arrays)


def offsets(nest: cuda_loops.Nest, n_arrays: int, i: int) -> tuple[int, ...]:
    """What a kernel computes from `Nest.arguments`, step by step."""
    divisors = nest.arguments[: 3 * (nest.ndim - 1)]
    steps = np.array(nest.arguments[3 * (nest.ndim - 1) :]).reshape(nest.ndim, n_arrays)
    found, t = np.zeros(n_arrays, int), i
    for a in range(nest.ndim - 1, -1, -1):
        d = t
        if a:
            n, m, h = map(int, divisors[3 * (a - 1) : 3 * a])
            q = ((((t * m) >> 32) + t) & 0xFFFFFFFF) >> h
            t, d = q, t - q * n
        found += d * steps[a]
    return tuple(int(o) for o in found)


@given(nests())
def test_a_nest_visits_every_element_once(case: Any) -> None:
    shape, axes, arrays = case
    nest = cuda_loops.nest_of(shape, axes, arrays)
    assert sorted(nest.order) == sorted(axes)
    assert nest.n == math.prod(shape[a] for a in axes)
    found = [offsets(nest, len(arrays), i) for i in range(nest.n)]
    positions = np.ndindex(*(shape[a] for a in nest.order))
    expected = [tuple(sum(i * s[a] for i, a in zip(at, nest.order, strict=True)) for s in arrays) for at in positions]
    assert found == expected


@given(st.sampled_from([(16, 24), (64, 40), (7, 64), (16, 3, 16), (96, 35)]), st.data())
def test_tiles_hold_every_element_once(shape: tuple[int, ...], data: st.DataObject) -> None:
    orders = [data.draw(st.permutations(range(len(shape)))) for _ in range(2)]
    strides = tuple(strides_of(shape, list(order), [False] * len(shape)) for order in orders)
    nest = cuda_loops.nest_of(shape, tuple(range(len(shape))), strides, is_free=True)
    found = sorted(offsets(nest, 2, i) for i in range(nest.n))
    expected = sorted(
        tuple(sum(i * s for i, s in zip(at, of, strict=True)) for of in strides) for at in np.ndindex(shape)
    )
    assert found == expected


def test_only_arrays_that_go_another_way_have_tiles() -> None:
    """A column that is broadcast along the rows is read well as it is."""
    rows, columns, broadcast = (512, 8), (8, 512), (8, 0)
    extents, axes = (64, 64), (0, 1)
    assert cuda_loops.nest_of(extents, axes, (rows, broadcast, rows), is_free=True).ndim == 2
    assert cuda_loops.nest_of(extents, axes, (rows, columns, rows), is_free=True).ndim == 4
    assert cuda_loops.nest_of(extents, axes, (rows, columns, rows)).ndim == 2
    assert cuda_loops.nest_of(extents, axes, (rows, rows), is_free=True).ndim == 1


def test_what_only_goes_along_decides_no_order() -> None:
    """The index of argmax counts in C order, and an array in the order of Fortran is read as it lies."""
    fortran, index = (8, 512), (64, 1)
    alone = cuda_loops.nest_of((64, 64), (0, 1), (fortran,))
    along = cuda_loops.nest_of((64, 64), (0, 1), (fortran, index), n_guides=1)
    assert (alone.order, alone.ndim) == ((1, 0), 1)
    assert (along.order, along.ndim) == ((1, 0), 2)
    assert cuda_loops.nest_of((64, 64), (0, 1), (fortran, (0, 0)), n_guides=1).ndim == 1


@given(st.integers(1, 2**31 - 1), st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=20))
def test_division_by_a_constant_is_exact(n: int, numbers: list[int]) -> None:
    m, h = cuda_loops._reciprocal(n)
    assert 0 < m < 2**32
    for i in [*numbers, 0, n - 1, n, 2**31 - 1]:
        if i < 2**31:
            high = (i * m) >> 32
            assert high + i < 2**32
            assert (high + i) >> h == i // n


@given(st.integers(1, 10**6), st.integers(1, 10**8), st.sampled_from([1, 2, 4, 8]), st.booleans())
def test_shares_cover_all_that_is_reduced(n_kept: int, n_reduced: int, n: int, is_across: bool) -> None:
    (along, n_shares), (chunk, log_kept, _) = cuda_reductions.shares(n_kept, n_reduced, n, is_across)
    kept, reading = 1 << int(log_kept), cuda_loops.BLOCK >> int(log_kept)
    assert kept * reading == cuda_loops.BLOCK
    assert (along - 1) * kept < n_kept <= along * kept
    assert (n_shares - 1) * int(chunk) < n_reduced <= n_shares * int(chunk)
    assert chunk % (reading * n) == 0
    assert n_shares == 1 or along * n_shares <= 2 * cuda_reductions.N_BLOCKS


needs_compiler = pytest.mark.skipif(host_kernels.COMPILER is None, reason="needs a C++ compiler")


@pytest.fixture(scope="module")
def backend() -> Any:
    with cupy_stand_in.playing():
        yield cupy_backend.CupyBackend(0)


def arranged(values: np.ndarray, layout: str) -> np.ndarray:
    """The values in another order of memory."""
    if layout == "reversed":
        return values[::-1, ::-1].copy()[::-1, ::-1]
    if layout == "every other":
        wide = np.zeros((*values.shape[:-1], 2 * values.shape[-1]), values.dtype)
        wide[..., ::2] = values
        return wide[..., ::2]
    return np.asarray(values, order=layout)


SHAPES = [(7, 1, 5), (3, 700, 2), (2, 3, 1500)]


@needs_compiler
@pytest.mark.parametrize("layout", ["C", "F", "reversed", "every other"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_layouts_change_no_value(backend: Any, shape: tuple[int, ...], layout: str) -> None:
    """B-15."""
    f8 = np.dtype("f8")
    instructions = (Instruction("multiply", (0, 1), f8), Instruction("add", (2, RuntimeScalar(0)), f8))
    program = Program(2, instructions, (3,), (Reduction(3, "sum", (1,), f8),))
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal(shape), rng.standard_normal(shape[-1])
    given_ = [backend.adopt(arranged(x, layout)), backend.adopt(y)]
    assert given_[0].strides == arranged(x, layout).strides or layout in ("reversed", "every other")
    outcome = program.run(given_, (1.5,), shape, backend=backend)
    np.testing.assert_array_equal(backend.to_host(outcome.outputs[0]), x * y + 1.5)
    (total,) = outcome.partials
    np.testing.assert_allclose(backend.to_host(total), (x * y + 1.5).sum(axis=1, keepdims=True), rtol=1e-13, atol=1e-12)


def values_of(dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """Small numbers with equal ones among them; zeros of both signs and a nan where there are such."""
    rng = np.random.default_rng(7)
    values = rng.integers(0, 2 if dtype.kind == "b" else 4, shape) - (2 if dtype.kind in "if" else 0)
    made = values.astype(dtype)
    if dtype.kind in "fc":
        made[values == 0] *= -1
        made[..., -1, :] = np.where(rng.random(made[..., -1, :].shape) < 0.2, np.nan, made[..., -1, :])
    return made


FOLDED = "sum prod count any all max min fmax fmin argmax argmin moments".split()
RESULTS = {"count": "i8", "argmax": "i8", "argmin": "i8", "any": "?", "all": "?"}


def reductions_of(dtype: np.dtype, axes: tuple[int, ...]) -> list[Reduction]:
    """All reductions that a kernel has a fold for."""
    found = []
    for monoid in FOLDED:
        own = dtype
        if dtype.kind in "biu" and monoid in ("sum", "prod", "moments"):
            own = np.dtype("f8" if monoid == "moments" else "u8" if dtype.kind == "u" else "i8")
        r = Reduction(0, monoid, axes, np.dtype(RESULTS.get(monoid, own)))
        if cuda_reductions.fold_of(r.monoid, dtype, r.dtype) is not None:
            found.append(r)
        else:
            assert dtype.kind == "c", (dtype, monoid)
    return found


@needs_compiler
@pytest.mark.parametrize("dtype", [pytest.param(d, marks=[pytest.mark.slow] * (d in ALIKE)) for d in C_TYPE])
def test_folds_are_what_the_monoids_make(backend: Any, dtype: str) -> None:
    """All of them in one kernel; sums in another order."""
    for shape, axes in (((40, 3, 50), (0, 1, 2)), ((5, 7, 9), (0, 2)), ((2, 3, 4400), (2,)), ((900, 2, 3), (0,))):
        x = values_of(np.dtype(dtype), shape)
        reductions = reductions_of(x.dtype, axes)
        origin, whole = tuple(range(len(shape))), tuple(n + 5 for n in shape)
        program = Program(1, (), (), tuple(reductions))
        partials = program.run([backend.adopt(x)], (), shape, None, backend, None, origin, whole).partials
        for r, found in zip(reductions, partials, strict=True):
            with np.errstate(all="ignore"):
                expected = MONOIDS[r.monoid].partial(np.array(x), axes, r.dtype, Within(origin, whole))
            is_several = isinstance(expected, tuple)
            for a, e in zip(found if is_several else [found], expected if is_several else [expected], strict=True):
                assert_same(backend.to_host(a), e, is_exact=r.monoid not in ("sum", "prod", "moments"))


def assert_same(actual: np.ndarray, expected: np.ndarray, *, is_exact: bool) -> None:
    """The same numbers, zeros' signs included; a few units away where numbers are added in another order."""
    assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype)
    if not is_exact and expected.dtype.kind in "fc":
        np.testing.assert_allclose(actual, expected, rtol=100 * np.finfo(expected.dtype).eps, atol=1e-3)
        return
    np.testing.assert_array_equal(actual, expected)
    if expected.dtype.kind == "f":
        np.testing.assert_array_equal(np.signbit(actual[actual == 0]), np.signbit(expected[actual == 0]))


@needs_compiler
def test_several_reductions_and_outputs_are_one_kernel(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    kernel = cupy_backend._kernel
    monkeypatch.setattr(cupy_backend, "_kernel", lambda *source: made.append(source) or kernel(*source))
    f4 = np.dtype("f4")
    x = np.random.default_rng(3).standard_normal((30, 40)).astype("f4")
    reductions = (Reduction(1, "sum", (1,), f4), Reduction(0, "max", (1,), f4), Reduction(1, "moments", (1,), f4))
    program = Program(1, (Instruction("square", (0,), f4),), (1,), reductions)
    outcome = program.run([backend.adopt(x)], (), x.shape, backend=backend)
    assert [name for _, name in made] == ["distarray_reduction"]
    np.testing.assert_array_equal(backend.to_host(outcome.outputs[0]), x * x)
    total, largest, (n, mean, m2) = outcome.partials
    np.testing.assert_allclose(backend.to_host(total), (x * x).sum(axis=1, keepdims=True), rtol=1e-6)
    np.testing.assert_array_equal(backend.to_host(largest), x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(backend.to_host(m2 / n), (x * x).var(axis=1, keepdims=True), rtol=1e-5)
    np.testing.assert_allclose(backend.to_host(mean), (x * x).mean(axis=1, keepdims=True), rtol=1e-6)


@needs_compiler
def test_a_box_too_large_for_one_launch_takes_several(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cupy_backend, "MAX_ELEMENTS", 100)
    f8 = np.dtype("f8")
    x, y = np.arange(600.0).reshape(20, 30), np.arange(30.0)
    program = Program(2, (Instruction("add", (0, 1), f8),), (2,), (Reduction(2, "sum", (0,), f8),))
    outcome = program.run([backend.adopt(x), backend.adopt(y)], (), x.shape, backend=backend)
    np.testing.assert_array_equal(backend.to_host(outcome.outputs[0]), x + y)
    np.testing.assert_allclose(backend.to_host(outcome.partials[0]), (x + y).sum(axis=0, keepdims=True))
