"""Programs of kernels that are drawn at random, with numpy's results, and values to run them on."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from distarray.expr.instructions import Instruction, RuntimeScalar
from distarray.kernels.program import Program

UNARY = ("negative", "absolute", "square", "exp", "sin", "tanh", "log1p", "floor", "sign", "isnan", "copy", "astype")
BINARY = ("add", "subtract", "multiply", "divide", "arctan2", "hypot", "less", "equal", "maximum", "copysign")
DTYPES = ("f4", "f8", "i4", "c16", "u1", "?")


def assert_same_bits(actual: Any, expected: Any) -> None:
    """Equal dtype, shape and bits; the sign and payload of a nan are free."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    np.testing.assert_array_equal(actual, expected)
    if actual.dtype.kind in "fc":
        real = np.dtype(f"f{actual.itemsize // (2 if actual.dtype.kind == 'c' else 1)}")
        a, e = (np.ascontiguousarray(x).reshape(-1).view(real) for x in (actual, expected))
        number = ~np.isnan(e)
        np.testing.assert_array_equal(np.signbit(a)[number], np.signbit(e)[number])


def values(dtype: Any, shape: Any, seed: int = 0, special: bool = True) -> np.ndarray:
    """Distinct numbers of many magnitudes, and a fifth of them special."""
    rng, dtype = np.random.default_rng(seed), np.dtype(dtype)
    n = int(np.prod(shape))
    if dtype.kind == "b":
        return rng.integers(0, 2, n).astype(bool).reshape(shape)
    if dtype.kind in "iu":
        low = max(np.iinfo(dtype).min, -100)
        return rng.integers(low, 100, n).astype(dtype).reshape(shape)
    if dtype.kind in "mM":
        return rng.integers(-1000, 1000, n).astype(dtype).reshape(shape)
    if dtype.kind == "c":
        half = f"f{dtype.itemsize // 2}"
        parts = [values(half, n, seed + i, special) for i in (1, 2)]
        return np.stack(parts, -1).view(dtype).reshape(shape)
    x = rng.standard_normal(n) * np.exp(rng.uniform(-4, 4, n))
    if special:
        odd = rng.random(n) < 0.2
        x[odd] = rng.choice([0.0, -0.0, np.nan, np.inf, -np.inf, 1.0, -1.0, 2.0, 0.5, 3.0, 1e-7, 1e5], odd.sum())
    with np.errstate(over="ignore"):
        return x.astype(dtype).reshape(shape)


@st.composite
def programs(draw: st.DrawFn) -> tuple[Program, list[np.ndarray], list[Any], tuple[int, ...], list[Any]]:
    """A program, inputs of any strides that broadcast to a shape, scalars, the shape, and numpy's registers."""
    shape = tuple(draw(st.lists(st.integers(0, 13), min_size=0, max_size=4)))
    seed = draw(st.integers(0, 99))
    inputs = []
    for i in range(draw(st.integers(1, 3))):
        own = tuple(1 if draw(st.integers(0, 5)) == 0 else n for n in shape)
        own = own[draw(st.integers(0, len(own))) :] if draw(st.integers(0, 5)) == 0 else own
        x = values(draw(st.sampled_from(DTYPES)), tuple(2 * n for n in own), seed + i)
        x = x[tuple(slice(None, None, 2) if n > 1 else slice(0, 1) if n else slice(0, 0) for n in own)]
        x = x.copy() if draw(st.booleans()) else x
        x = np.asfortranarray(x) if draw(st.integers(0, 4)) == 0 and x.ndim else x
        flips = [draw(st.integers(0, 4)) == 0 for _ in own]
        x = x[tuple(slice(None, None, -1 if flip else 1) for flip in flips)]
        inputs.append(np.broadcast_to(x, shape) if draw(st.booleans()) else x)
    scalars = [3, 0.5, 2.0]
    registers: list[Any] = [np.array(np.broadcast_to(x, shape), order="C") if x.ndim else x for x in inputs]
    instructions = []
    for _ in range(draw(st.integers(0, 8))):
        operand = st.integers(0, len(registers) - 1)
        kind = draw(st.integers(0, 9))
        if kind < 3:
            name, operands = draw(st.sampled_from(UNARY)), (draw(operand),)
        elif kind < 7:
            name, operands = draw(st.sampled_from(BINARY)), (draw(operand), draw(operand))
        elif kind < 9:
            name = draw(st.sampled_from(("add", "multiply", "power")))
            operands = (draw(operand), RuntimeScalar(draw(st.integers(0, 2))))
        else:
            name, operands = "where", (draw(operand), draw(operand), draw(operand))
        arguments = [scalars[x.index] if isinstance(x, RuntimeScalar) else registers[x] for x in operands]
        try:
            if name == "astype":
                dtype = np.dtype(draw(st.sampled_from(("f4", "f8", "c16"))))
                value = np.asarray(arguments[0].real if dtype.kind != "c" else arguments[0], dtype)
            elif name == "copy":
                value = arguments[0]
            elif name == "where":
                value = np.where(*arguments)
            else:
                value = getattr(np, name)(*arguments)
        except TypeError:
            continue  # numpy has no such function of these dtypes
        instructions.append(Instruction(name, operands, np.asarray(value).dtype))
        registers.append(np.asarray(value))
    count = len(registers)
    outputs = tuple(draw(st.lists(st.integers(0, count - 1), max_size=3)))
    return Program(len(inputs), tuple(instructions), outputs), inputs, scalars, shape, registers
