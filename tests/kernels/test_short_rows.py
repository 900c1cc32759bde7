"""Short rows: reductions of a few elements each have numpy's bits, whichever way the slices lie."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made_programs import assert_same_bits

import distarray as dx
from distarray.expr.instructions import Instruction
from distarray.kernels import program as program_module
from distarray.kernels import sliced
from distarray.kernels.outcomes import Reduction
from distarray.kernels.program import Program
from distarray.kernels.short_rows import added_up, is_few, reduced
from distarray.kernels.slices import copy_out, turned

DTYPES = ("f8", "f4", "c16", "c8", "i4", "u1", "g")
PROPERTY = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def _made(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray[Any, Any]:
    """Return numbers of unlike magnitudes, so that each order of adding them rounds in a way of its own."""
    rng = np.random.default_rng(seed)
    made = rng.standard_normal(shape) * 10.0 ** rng.integers(-6, 7, shape)
    if np.dtype(dtype).kind == "c":
        made = made + 1j * rng.standard_normal(shape) * 10.0 ** rng.integers(-6, 7, shape)
    if np.dtype(dtype).kind in "iu":
        return rng.integers(0, 100, shape).astype(dtype)
    return made.astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("ufunc", [np.add, np.multiply, np.maximum])
def test_few_elements_are_added_in_the_order_of_numpy(dtype: str, ufunc: np.ufunc) -> None:
    for n in range(1, 16):
        block = _made((400, n), dtype, n)
        if not is_few(ufunc, n, block.dtype):
            continue
        with np.errstate(all="ignore"):
            wanted = ufunc.reduce(block, axis=-1, keepdims=True, dtype=block.dtype)
            assert_same_bits(added_up(ufunc, block, 1), wanted)
            assert_same_bits(added_up(ufunc, np.ascontiguousarray(block.T), 0).T, wanted)
            assert_same_bits(reduced(ufunc, block, (1,), block.dtype), wanted)


def test_sums_of_negative_zeros_keep_their_sign() -> None:
    for n in range(1, 12):
        block = np.full((300, n), -0.0)
        assert_same_bits(added_up(np.add, block, 1), np.add.reduce(block, axis=1, keepdims=True))


@pytest.mark.parametrize("dtype", ["c16", "c8", "f8", "f4"])
@pytest.mark.parametrize("n", range(2, 18))
def test_sums_of_short_rows_do_not_depend_on_how_many_there_are(dtype: str, n: int) -> None:
    host = _made((600, n), dtype)
    whole = np.asarray(dx.asarray(host).sum(axis=-1))
    in_parts = [np.asarray(dx.asarray(host[i : i + 15].copy()).sum(axis=-1)) for i in range(0, 600, 15)]
    assert_same_bits(whole, np.concatenate(in_parts))
    assert_same_bits(whole, host.sum(axis=-1))


@PROPERTY
@given(st.data())
def test_slices_that_are_turned_give_the_same_bits(monkeypatch: pytest.MonkeyPatch, data: st.DataObject) -> None:
    monkeypatch.setattr(program_module, "WHOLE", 4)
    monkeypatch.setattr(sliced, "REDUCED_SLICE", data.draw(st.sampled_from([512, 2048, 100_000])))
    dtype = np.dtype(data.draw(st.sampled_from(DTYPES)))
    shape = data.draw(st.tuples(st.integers(1, 300), st.integers(1, 6), st.integers(1, 14)))
    shape = tuple(data.draw(st.permutations(shape[:2]))) + shape[2:]
    wide = [data.draw(st.tuples(*(st.sampled_from([1, n]) for n in shape))) for _ in range(2)]
    inputs = [_made(tuple(2 * n if n > 1 else n for n in own), dtype.str, k) for k, own in enumerate(wide)]
    if data.draw(st.booleans()):
        inputs = [np.asfortranarray(x) for x in inputs]
    inputs = [x[tuple(slice(n) for n in own)] for x, own in zip(inputs, wide, strict=True)]
    monoids = data.draw(st.lists(st.sampled_from(["sum", "prod", "max", "min", "any"]), min_size=1, max_size=2))
    if dtype.kind == "c":
        monoids = [m for m in monoids if m in ("sum", "prod", "any")] or ["sum"]
    axes = data.draw(st.sampled_from([(2,), (2,), (1, 2), (1,), (0,), (0, 2)]))
    result = {m: np.dtype(bool) if m == "any" else dtype for m in monoids}
    calls = (Instruction("subtract", (0, 1), dtype), Instruction("multiply", (2, 2), dtype))
    program = Program(2, calls, (), tuple(Reduction(3, m, axes, result[m]) for m in monoids))
    whole = np.broadcast_shapes(*(x.shape for x in inputs))
    shape = tuple(max(n, own) for n, own in zip(shape, whole, strict=True))

    with np.errstate(all="ignore"):
        partials = program.run(inputs, [], shape).partials
        monkeypatch.setattr(sliced, "turned", lambda *_: None)
        plain = Program(2, calls, (), program.reductions).run(inputs, [], shape).partials
    for made, wanted in zip(partials, plain, strict=True):
        assert made.flags.c_contiguous
        assert_same_bits(made, wanted)


def test_distances_are_computed_along_the_points(monkeypatch: pytest.MonkeyPatch) -> None:
    orders = []
    plain = sliced.SlicedRun._turn

    def seen(run: sliced.SlicedRun, arrays: Any) -> Any:
        found = plain(run, arrays)
        orders.append(run.order)
        return found

    monkeypatch.setattr(sliced.SlicedRun, "_turn", seen)
    points, means = _made((60_000, 3), "f8"), _made((4, 3), "f8", 1)
    x, y = dx.asarray(points), dx.asarray(means)
    for function in (lambda a, b: ((a[:, None] - b) ** 2).sum(-1), lambda a, b: abs(a[:, None] - b).max(-1)):
        assert_same_bits(np.asarray(function(x, y)), function(points, means))
    assert orders == [(1, 2, 0), (1, 2, 0)]
    # Here numpy has long rows, or what is written is stored as it lies.
    orders.clear()
    np.asarray(((dx.asarray(_made((500_000, 3), "f8")) - y[0]) ** 2).sum(-1))
    assert orders == [None]


def test_whole_blocks_are_turned_in_each_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_module, "WHOLE", 4)
    monkeypatch.setattr(sliced, "REDUCED_SLICE", 512)
    block = _made((80, 64, 1, 2), "i4")
    program = Program(1, (Instruction("negative", (0,), block.dtype),), (), (Reduction(1, "max", (0, 2), block.dtype),))
    for k in range(3):
        made = program.run([block + k], [], block.shape).partials[0]
        assert_same_bits(made, (-(block + k)).max(axis=(0, 2), keepdims=True))


def test_what_is_turned_has_short_rows_and_a_much_longer_axis() -> None:
    points = np.ones((1000, 3))
    pairs = [np.broadcast_to(points[:, None], (1000, 40, 3)), np.broadcast_to(points[:40], (1000, 40, 3))]
    assert turned(pairs, (1000, 40, 3)) == (1, 2, 0)
    assert turned(pairs, (2, 40, 3)) == (0, 2, 1)
    assert turned(pairs, (2, 8, 3)) is None
    assert turned([np.ones((1000, 40, 3))], (1000, 40, 3)) is None
    assert turned([np.ones((1000, 3))[:, None]], (1000, 1, 3)) is None
    assert turned([np.broadcast_to(np.ones((1000, 1, 32)), (1000, 4, 32))], (1000, 4, 32)) is None


@pytest.mark.parametrize("n", [1, 2, 3, 4])
@pytest.mark.parametrize("dtype", ["f8", "f4", "c8"])
def test_columns_are_copied_whatever_lies_between(n: int, dtype: str) -> None:
    host = np.random.default_rng(0).integers(0, 1000, (3, 700, n + 2)).astype("f8")
    for x in (host[..., :n], host[..., n:0:-1], np.broadcast_to(host[:1, :, :1], (3, 700, n)), host.copy("F")[..., :n]):
        for out in (
            np.empty((3, 700, n), dtype),
            np.empty((n, 700, 3), dtype).T,
            np.empty((3, 700, 5), dtype)[..., :n],
        ):
            copy_out(x, out)
            assert_same_bits(out, x.astype(dtype))
