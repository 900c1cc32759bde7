"""The source that is generated for CUDA means what numpy means: compiled by the host's C++ compiler, row by row.

A row of `expressions.EXPRESSIONS` is covered when it is there: the tables say what is tried. Where CuPy and NVRTC are
installed, CUDA's own compiler reads the same kernels; it needs no GPU.
"""

from __future__ import annotations

from typing import Any

import host_kernels
import numpy as np
import pytest
from helpers import some

from distarray.expr.instructions import Instruction, RuntimeScalar
from distarray.kernels import cuda_code, cuda_loops, cuda_reductions, expressions
from distarray.kernels.elementwise import is_exact, loop_dtypes
from distarray.kernels.outcomes import Reduction
from distarray.kernels.program import Program

pytestmark = pytest.mark.skipif(host_kernels.COMPILER is None, reason="needs a C++ compiler")

Array = np.ndarray[Any, Any]
DTYPES = [np.dtype(name) for name in cuda_code.C_TYPE]
BOOL = np.dtype(bool)
#: Monoids that a kernel folds.
FOLDED = "sum prod count any all max min fmax fmin argmax argmin moments".split()


def hard_values(dtype: np.dtype[Any]) -> Array:
    """Values at which C and numpy may part: the ends of a dtype, zeros of both signs, nan, halves."""
    if dtype.kind == "b":
        return np.array([False, True])
    if dtype.kind in "iu":
        info, bits = np.iinfo(dtype), 8 * dtype.itemsize
        wanted = [info.min, info.min + 1, -bits, -7, -2, -1, 0, 1, 2, 3, 7, bits - 1, bits, info.max - 1, info.max]
        return np.array([v for v in wanted if info.min <= v <= info.max], dtype)
    if dtype.kind == "f":
        info = np.finfo(dtype)
        ends = [info.max, info.tiny, info.smallest_subnormal, info.eps, np.inf]
        near = [0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 7.0, 10.5]
        return np.array([s * v for v in (*near, *ends) for s in (1, -1)] + [np.nan], dtype)
    # What is at the ends of complex numbers is numpy's own affair: its functions differ from those of C and of CUDA.
    parts = np.array([0.0, 0.5, -0.75, 1.0, -2.0, 3.5])
    return (parts[:, None] + 1j * parts).ravel().astype(dtype)


def pairs(values: Array) -> tuple[Array, Array]:
    """All pairs of values."""
    first, second = np.meshgrid(values, values, indexing="ij")
    return first.ravel(), second.ravel()


def generated_of(program: Program, inputs: list[Array], scalars: tuple[Any, ...] = ()) -> expressions.Generated:
    """What is generated for a program."""
    generated = expressions.generate(program, tuple(x.dtype for x in inputs), tuple(map(type, scalars)), cuda_code.CUDA)
    assert generated is not None, "no kernel was made"
    return generated


def on_device(program: Program, inputs: list[Array], scalars: tuple[Any, ...] = ()) -> list[Array]:
    """The outputs of a program by its generated kernel."""
    generated = generated_of(program, inputs, scalars)
    shape = np.broadcast_shapes(*(x.shape for x in inputs))
    dtypes = [*(x.dtype for x in inputs), *(i.dtype for i in program.instructions)]
    outputs = [np.empty(shape, dtypes[r]) for r in program.outputs]
    arrays = [*(np.broadcast_to(inputs[x], shape) for x in generated.inputs), *outputs]
    nest = cuda_loops.nest_of(shape, tuple(range(len(shape))), tuple(a.strides for a in arrays))
    kernel = host_kernels.RawKernel(
        cuda_loops.elementwise_source(generated, nest.ndim), "distarray_program", ("--fmad=false",)
    )
    values = [d.type(scalars[k]) for k, d in generated.scalars]
    grid = (-(-nest.n // (cuda_loops.BLOCK * cuda_loops.n_at_once(generated))),)
    kernel(grid, (cuda_loops.BLOCK,), (*arrays, *values, np.uint32(nest.n), *nest.arguments))
    return outputs


def assert_means_the_same(name: str, actual: Array, expected: Array, operands: list[Array]) -> None:
    """Bits where numpy's are defined, zeros' signs included; a few units in the last place elsewhere."""
    assert actual.dtype == expected.dtype
    told = f"{name} of {operands[0].dtype}"
    if is_exact(name, (expected.dtype, *(x.dtype for x in operands))) or expected.dtype.kind in "biu":
        np.testing.assert_array_equal(actual, expected, err_msg=told)
        if expected.dtype.kind == "f":
            is_number = ~np.isnan(expected)
            np.testing.assert_array_equal(np.signbit(actual[is_number]), np.signbit(expected[is_number]), told)
    else:
        precise = np.finfo(expected.dtype)
        np.testing.assert_allclose(actual, expected, rtol=16 * precise.eps, atol=4 * precise.tiny, err_msg=told)


def rows(dtype: np.dtype[Any]) -> list[str]:
    """The functions of the table that compute in a dtype."""
    return sorted(expressions.EXPRESSIONS["e" if dtype == np.float16 else dtype.kind])


def of_table(dtype: np.dtype[Any]) -> tuple[Program, list[Array]]:
    """All rows of a dtype as one program, on all pairs of its hard values."""
    first, second = pairs(hard_values(dtype))
    instructions = []
    with np.errstate(all="ignore"):
        for name in rows(dtype):
            function = getattr(np, name)
            operands = [first, second][: function.nin]
            result = function(*operands).dtype
            instructions.append(Instruction(name, tuple(range(function.nin)), result))
            (loop, *_) = loop_dtypes(name, tuple(x.dtype for x in operands), result)
            assert loop == dtype, f"numpy computes {name} of {dtype} in {loop}: the row is never used"
    return Program(2, tuple(instructions), tuple(range(2, 2 + len(instructions)))), [first, second]


@pytest.mark.parametrize("dtype", some(DTYPES), ids=str)
def test_every_expression_means_what_numpy_means(dtype: np.dtype[Any]) -> None:
    program, inputs = of_table(dtype)
    for instruction, actual in zip(program.instructions, on_device(program, inputs), strict=True):
        operands = inputs[: len(instruction.inputs)]
        with np.errstate(all="ignore"):
            expected = getattr(np, instruction.function)(*operands)
        assert_means_the_same(instruction.function, actual, expected, operands)


#: What is tried of the functions that are written out: parameters and dtypes of operands; T: the dtype in turn.
WRITTEN = {
    "astype": [((), "T")],
    "clip": [((), "TTT"), (("min",), "TT"), (("max",), "TT")],
    "complex": [((), "TT")],
    "copy": [((), "T")],
    "imag": [((), "T")],
    "real": [((), "T")],
    "round": [((), "T"), ((0,), "T")],
    "where": [((), "?TT")],
}


def test_every_function_that_is_written_out_has_a_case() -> None:
    assert WRITTEN.keys() == expressions.WRITTEN_OUT


def written_out(dtype: np.dtype[Any]) -> tuple[Program, list[Array]]:
    """All cases of a dtype as one program."""
    first, second = pairs(hard_values(dtype))
    inputs = [first, second, first[::-1].copy(), first != second]
    real = dtype if dtype.kind != "c" else np.dtype(f"f{dtype.itemsize // 2}")
    instructions = []
    for name, cases in WRITTEN.items():
        for params, kinds in cases:
            operands = tuple(3 if kind == "?" else k for k, kind in enumerate(kinds, -("?" in kinds)))
            if name == "complex":
                if dtype.name not in ("float32", "float64"):
                    continue
                instructions.append(Instruction(name, operands, np.dtype(f"c{2 * dtype.itemsize}"), params))
            elif name == "clip" and dtype.kind in "bc":
                continue  # no dtype of the standard's clip
            elif name == "round" and dtype.kind in "bc":
                continue
            elif name == "astype":
                instructions += [Instruction(name, operands, to, params) for to in DTYPES]
            else:
                instructions.append(Instruction(name, operands, real if name in ("real", "imag") else dtype, params))
    return Program(4, tuple(instructions), tuple(range(4, 4 + len(instructions)))), inputs


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_what_is_written_out_means_what_numpy_means(dtype: np.dtype[Any]) -> None:
    program, inputs = written_out(dtype)
    first = inputs[0]
    with np.errstate(all="ignore"):
        expected = program.run(inputs, (), first.shape).outputs
    found = on_device(program, inputs)
    for instruction, a, e in zip(program.instructions, found, expected, strict=True):
        assert a.dtype == e.dtype
        if instruction.function == "astype" and a.dtype.kind in "iu" and dtype.kind in "fc":
            # What does not fit is left open, by numpy too.
            limits, value = np.iinfo(a.dtype), first.real.astype("f8")
            fits = (value > float(limits.min) - 1) & (value < float(limits.max))
            a, e = a[fits], e[fits]
        np.testing.assert_array_equal(a, e, err_msg=f"{instruction} of {dtype}")


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
def test_integers_wrap_around_though_a_compiler_may_assume_that_they_do_not(dtype: str) -> None:
    """``x + 1 > x`` is false for the largest number; C lets a compiler say it is true."""
    x = np.array([np.iinfo(dtype).max, 3], dtype)
    program = Program(
        1,
        (
            Instruction("add", (0, RuntimeScalar(0)), x.dtype),
            Instruction("greater", (1, 0), BOOL),
            Instruction("multiply", (0, 0), x.dtype),
        ),
        (2, 3),
    )
    grows, squares = on_device(program, [x], (1,))
    np.testing.assert_array_equal(grows, [False, True])
    np.testing.assert_array_equal(squares, [1, 9])


def test_products_of_short_unsigned_integers_do_not_overflow_an_int() -> None:
    x = np.array([65_535, 2], np.uint16)
    (square,) = on_device(Program(1, (Instruction("square", (0,), x.dtype),), (1,)), [x])
    np.testing.assert_array_equal(square, [1, 4])


def test_scalars_take_the_dtype_that_numpy_computes_in() -> None:
    x = np.array([0.5, 1000.0], np.float16)
    program = Program(
        1,
        (
            Instruction("multiply", (0, RuntimeScalar(0)), np.dtype(np.float16)),
            Instruction("add", (0, RuntimeScalar(1)), np.dtype(np.float32)),
            Instruction("less", (0, RuntimeScalar(0)), BOOL),
        ),
        (1, 2, 3),
    )
    scalars = (2.1, np.float32(0.1))
    expected = program.run([x], scalars, x.shape).outputs
    for a, e in zip(on_device(program, [x], scalars), expected, strict=True):
        np.testing.assert_array_equal(a, e)


# ------------------------------------------------------------------------------------------------------- NVRTC


def all_of(dtype: np.dtype[Any]) -> Program:
    """All rows and casts of a dtype."""
    casts = [Instruction("astype", (0,), to) for to in DTYPES]
    instructions = (*of_table(dtype)[0].instructions, *casts)
    return Program(2, instructions, tuple(range(2, 2 + len(instructions))))


def sources(dtype: np.dtype[Any]) -> dict[str, str]:
    """Kernels by name that have all rows, casts and folds of a dtype."""
    of_table = expressions.generate(all_of(dtype), (dtype, dtype), (), cuda_code.CUDA)
    assert of_table is not None
    found = {"distarray_program": cuda_loops.elementwise_source(of_table, 2)}
    results = {"count": np.dtype("i8"), "argmax": np.dtype("i8"), "argmin": np.dtype("i8")}
    reductions = [Reduction(0, name, (0,), results.get(name, dtype)) for name in FOLDED]
    reductions = [r for r in reductions if cuda_reductions.fold_of(r.monoid, dtype, r.dtype) is not None]
    program = Program(1, (), (), tuple(reductions))
    generated, folds = (
        expressions.generate(program, (dtype,), (), cuda_code.CUDA),
        cuda_reductions.folds_of(reductions, [dtype]),
    )
    assert generated is not None and folds is not None
    found["distarray_reduction"] = cuda_reductions.reduction_source(generated, folds, (2, 2), True)
    found["distarray_merge"] = cuda_reductions.merge_source(folds)
    return found


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_compiler_of_cuda_reads_every_expression(dtype: np.dtype[Any]) -> None:
    """It needs no GPU."""
    pytest.importorskip("cupy")
    from cupy._core import core
    from cupy.cuda import compiler

    try:
        options = core.assemble_cupy_compiler_options(("--fmad=false", "--std=c++17", "-arch=compute_90"))
    except RuntimeError as error:  # CuPy finds no headers of CUDA
        pytest.skip(str(error))
    for name, source in sources(dtype).items():
        program = compiler._NVRTCProgram(source, "kern.cu", (), (), name_expressions=None, method="ptx")
        ptx, _ = program.compile((*options, "--device-as-default-execution-space"), None)
        assert f".entry {name}".encode() in ptx
