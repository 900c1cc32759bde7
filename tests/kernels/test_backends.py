"""Backends: device strings, blocks on fake devices, and the guard against copies to the host."""

from __future__ import annotations

import importlib.util
from contextlib import nullcontext
from typing import Any

import cupy_stand_in
import host_kernels
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distarray as dx
from distarray.errors import NotSupportedError
from distarray.expr.instructions import Instruction, RuntimeScalar
from distarray.kernels.backends import NUMPY
from distarray.kernels.devices import Device, backend_for, parse_device
from distarray.kernels.monoids import MONOIDS
from distarray.kernels.outcomes import Reduction
from distarray.kernels.program import Program
from distarray.testing import no_host_copies

F8 = np.dtype("f8")
strict_only = pytest.mark.skipif(importlib.util.find_spec("array_api_strict") is None, reason="needs array_api_strict")


@pytest.mark.parametrize(
    ("text", "device"),
    [
        ("cpu", Device("cpu", None)),
        ("cuda", Device("cuda", None)),
        ("cuda:12", Device("cuda", 12)),
        ("strict", Device("strict", None)),
        ("strict:2", Device("strict", 2)),
    ],
)
def test_device_strings(text: str, device: Device) -> None:
    assert parse_device(text) == device


@pytest.mark.parametrize("text", ["gpu", "cuda:", "cuda:x", "cpu:0", "strict:3", "CPU", "", "cuda:-1", 3])
def test_any_other_device_string_is_a_value_error(text: Any) -> None:
    """B-14"""
    with pytest.raises(ValueError, match="use cpu, cuda"):
        backend_for(text)


@pytest.mark.skipif(importlib.util.find_spec("cupy") is not None, reason="CuPy is here")
def test_cuda_without_cupy_says_what_is_missing() -> None:
    """B-14"""
    with pytest.raises(ImportError, match=r"device='cuda.*CuPy"):
        backend_for("cuda")


def test_numpy_blocks_have_the_asked_layout() -> None:
    for shape in ((3, 4), (300, 200, 7)):
        for layout in ("C", "F", tuple(range(len(shape)))[::-1]):
            block = NUMPY.empty(shape, "f8", layout)
            assert block.shape == shape
            axes = NUMPY.layout_of(block)
            assert axes == (tuple(range(len(shape))) if layout == "C" else tuple(range(len(shape)))[::-1])
            block[...] = np.arange(block.size).reshape(shape)
            copy = NUMPY.copy(block)
            assert NUMPY.layout_of(copy) == axes
            assert not np.shares_memory(copy, block)
            np.testing.assert_array_equal(copy, block)
    turned = NUMPY.empty((400, 30, 50), "f8", (1, 2, 0))
    assert turned.shape == (400, 30, 50)
    assert NUMPY.layout_of(turned) == (1, 2, 0)
    assert (NUMPY.zeros((2, 3), "i4") == 0).all()


@strict_only
def test_members_take_turns_on_the_fake_devices() -> None:
    names = [str(backend_for("strict", m).device) for m in range(4)]
    assert names[0] == names[2] != names[1] == names[3]
    assert str(backend_for("strict:1", 1).device) == names[0]
    assert backend_for("strict:2", 0) is backend_for("strict", 1)


@strict_only
def test_blocks_of_two_devices_do_not_mix_and_transport_moves_them() -> None:
    first, second = backend_for("strict", 0), backend_for("strict", 1)
    x, y = first.adopt(np.arange(3.0)), second.adopt(np.ones(3))
    with pytest.raises(ValueError, match="different devices"):
        x + y
    moved = first.adopt(y)
    assert moved.device == first.device
    assert first.adopt(moved) is moved
    np.testing.assert_array_equal(first.to_host(x + moved), [1.0, 2.0, 3.0])


@strict_only
@settings(max_examples=40, deadline=None)
@given(st.data())
def test_programs_on_strict_equal_numpy(data: st.DataObject) -> None:
    """B-15"""
    backend = backend_for("strict", 0)
    rng = np.random.default_rng(data.draw(st.integers(0, 50)))
    shape = tuple(data.draw(st.lists(st.integers(0, 5), max_size=3)))
    dtypes = data.draw(st.lists(st.sampled_from(["f4", "f8", "i4", "?", "c16"]), min_size=2, max_size=2))
    inputs = [np.asarray(rng.standard_normal(shape) * 5).astype(d) for d in dtypes]
    dtype = [np.dtype(d) for d in dtypes]
    instructions: list[Instruction] = []
    registers: list[Any] = list(inputs)
    for name in data.draw(
        st.lists(st.sampled_from(["add", "exp", "less", "where", "astype", "copy", "real", "clip", "arctan2", "abs"]))
    ):
        operand = st.integers(0, len(registers) - 1)
        a, b, c = data.draw(operand), data.draw(operand), data.draw(operand)
        kinds = {registers[a].dtype.kind, registers[b].dtype.kind}
        operands: tuple[Any, ...]
        with np.errstate(all="ignore"):
            if name in ("exp", "abs") and registers[a].dtype.kind in "fc":
                operands, value = (a,), getattr(np, name)(registers[a])
            elif name == "copy":
                operands, value = (a,), registers[a]
            elif name == "real":
                operands, value = (a,), registers[a].real
            elif name == "astype":
                operands, value = (a,), registers[a].astype("c16")
            elif name == "where":
                operands, value = (a, b, c), np.where(registers[a], registers[b], registers[c])
            elif name == "clip" and registers[a].dtype.kind == "f":
                operands, value = (a, RuntimeScalar(0), RuntimeScalar(1)), np.clip(registers[a], -1.0, 1.5)
            elif name == "add" and kinds <= set("fic"):
                operands, value = (a, b), registers[a] + registers[b]
            elif name in ("less", "arctan2") and kinds <= set("fi"):
                operands, value = (a, b), getattr(np, name)(registers[a], registers[b])
            else:
                continue
        instructions.append(Instruction(name, operands, value.dtype))
        registers.append(np.asarray(value))
        dtype.append(value.dtype)
    outputs = tuple(range(len(registers)))
    program = Program(2, tuple(instructions), outputs)
    with no_host_copies(), np.errstate(all="ignore"):
        outcome = program.run([backend.adopt(x) for x in inputs], [-1.0, 1.5], shape, backend=backend)
        found = [backend.to_host(x) for x in outcome.outputs]
    for actual, expected in zip(found, registers, strict=True):
        assert actual.dtype == expected.dtype
        np.testing.assert_allclose(actual, expected, rtol=1e-6)


#: The standard has no function of these names, so blocks that have nothing else do not reduce by them.
NOT_STANDARD = {"fmax", "fmin", "gcd", "lcm", "logaddexp2"}
BOOLEANS = ("any", "all", "logical_xor")
INTEGERS = ("count", "argmax", "argmin", "bitwise_and", "bitwise_or", "bitwise_xor")


@strict_only
@pytest.mark.parametrize("monoid", sorted(MONOIDS.keys() - NOT_STANDARD))
@pytest.mark.parametrize("axes", [(0,), (0, 1)])
def test_reductions_on_strict_equal_numpy_s(monoid: str, axes: tuple[int, ...]) -> None:
    backend = backend_for("strict", 1)
    x = np.random.default_rng(0).standard_normal((6, 4)).round(1)
    if monoid.startswith("bitwise"):
        x = (x * 10).astype("i8")
    dtype = np.dtype("?" if monoid in BOOLEANS else "i8" if monoid in INTEGERS else "f8")
    program = Program(1, (), (), (Reduction(0, monoid, axes, dtype),))

    def partials(cast: Any, used: Any) -> Any:
        tiles = [x[:2], x[2:5], x[5:], x[6:]]
        found = []
        for start, tile in zip((0, 2, 5, 6), tiles, strict=True):
            outcome = program.run([cast(tile)], (), tile.shape, backend=used, origin=(start, 0), extents=x.shape)
            found += outcome.partials
        return MONOIDS[monoid].finish(MONOIDS[monoid].combine(found), dtype)

    with no_host_copies():
        strict = backend.to_host(partials(backend.adopt, backend))
    assert strict.dtype == dtype
    np.testing.assert_allclose(strict, partials(np.asarray, NUMPY), rtol=1e-12)


@strict_only
def test_outputs_on_strict_are_filled_where_given() -> None:
    backend = backend_for("strict", 0)
    tile = backend.zeros((4, 6), "f8")
    program = Program(1, (Instruction("multiply", (0, RuntimeScalar(0)), F8),), (1,))
    region = tile[1:3, 2:5]
    program.run([backend.adopt(np.ones((2, 1)))], [3], (2, 3), [region], backend)
    expected = np.zeros((4, 6))
    expected[1:3, 2:5] = 3
    np.testing.assert_array_equal(backend.to_host(tile), expected)


@strict_only
@pytest.mark.skipif(host_kernels.COMPILER is None, reason="needs a C++ compiler")
@pytest.mark.parametrize("device", ["strict", "cuda"])
@pytest.mark.parametrize("dtype", ["u1", "i1", "i8", "u8"])
def test_whole_numbers_beyond_a_dtype_are_taken_as_numpy_does(device: str, dtype: str) -> None:
    x = np.array([0, 1, 5, np.iinfo(dtype).max], dtype)
    compared = "less less_equal greater greater_equal equal not_equal".split()
    beyond = (2**70, -(2**70), 300, -1, 5)
    calls = [(name, lambda xp, x, n, name=name: getattr(xp, name)(x, n), n) for name in compared for n in beyond]
    calls += [("where", lambda xp, x, n: xp.where(x > 1, x, n), n) for n in (300, -1)]
    calls += [("clip", lambda xp, x, n: xp.clip(x, *n), n) for n in ((-5, 3), (1, 2**70), (-(2**70), 300))]
    with cupy_stand_in.playing(n_gpus=1) if device == "cuda" else nullcontext():
        for name, call, n in calls:
            made = call(dx, dx.asarray(x, device=device), n).to_device("cpu")
            np.testing.assert_array_equal(made, call(np, x, n), f"{name} {n}", strict=True)


@strict_only
def test_what_the_standard_lacks_is_not_on_strict() -> None:
    """B-15"""
    backend = backend_for("strict", 0)
    with pytest.raises(NotSupportedError, match="not on strict: the standard has no dtype float16"):
        backend.empty((2,), "f2")
    program = Program(1, (Instruction("cbrt", (0,), F8),), (1,))
    with pytest.raises(NotSupportedError, match="not on strict: the standard has no cbrt"):
        program.run([backend.adopt(np.ones(3))], (), (3,), backend=backend)


@strict_only
def test_host_copies_raise_under_the_guard_only() -> None:
    """B-15"""
    backend = backend_for("strict", 0)
    x = backend.adopt(np.array(2.0))
    ways: list[Any] = [float, int, bool, complex, lambda a: a.__dlpack__(), lambda a: a.to_device(a.device)]
    for way in ways[:4]:
        way(x)
    with no_host_copies():
        with no_host_copies():
            pass
        for way in ways:
            with pytest.raises(RuntimeError, match="inside a kernel"):
                way(x)
        assert backend.to_host(x) == 2  # transport may
    assert float(x) == 2


@pytest.mark.gpu
@pytest.mark.skipif(importlib.util.find_spec("cupy") is None, reason="needs CuPy")
def test_programs_on_a_gpu_equal_numpy() -> None:
    backend = backend_for("cuda")
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((300, 200)), rng.standard_normal((300, 1))
    program = Program(
        2,
        (
            Instruction("multiply", (0, 1), F8),
            Instruction("add", (2, RuntimeScalar(0)), F8),
            Instruction("tanh", (3,), F8),
            Instruction("less", (4, 0), np.dtype(bool)),
            Instruction("where", (5, 0, 4), F8),
        ),
        (6, 4),
        (Reduction(6, "sum", (0,), F8), Reduction(4, "max", (0, 1), F8)),
    )
    expected = program.run([x, y], [2], x.shape)
    with no_host_copies():
        actual = program.run([backend.adopt(x), backend.adopt(y)], [2], x.shape, backend=backend)
    for a, e in zip(actual.outputs + actual.partials, expected.outputs + expected.partials, strict=True):
        np.testing.assert_allclose(backend.to_host(a), e, rtol=1e-12)
