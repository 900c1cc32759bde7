"""Blocks on a GPU: CuPy arrays, and programs as one generated kernel each.

The only module that imports CuPy; `devices.backend_for` imports it when a ``"cuda"`` device is first asked for.

A program becomes one `cupy.ElementwiseKernel`, or one `cupy.ReductionKernel` if all that it makes is one sum-like
reduction. Every operand is cast to the dtype that numpy's own resolution gives, so promotion is numpy's whatever the
version of CuPy, and ``--fmad=false`` keeps the compiler from fusing a product into a sum: an element has the same bits
whatever else is in its kernel. A program that needs a function without an expression here, or a dtype that CUDA C has
no type for, runs as CuPy calls, one per instruction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from distarray.errors import NotSupportedError
from distarray.kernels.backends import Layout, axes_by_stride, transport
from distarray.kernels.elementwise import loop_dtypes, numpy_name
from distarray.kernels.monoids import MONOIDS
from distarray.kernels.random_maps import MAPS

if TYPE_CHECKING:
    from distarray.kernels.outcomes import Reduction
    from distarray.kernels.program import Program

__all__ = ["CupyBackend", "cuda_versions", "gpu_count"]

DType = np.dtype[Any]
Block = Any  # a cupy.ndarray, which has no type information

_C_TYPE = {
    "bool": "bool",
    "int8": "signed char",
    "int16": "short",
    "int32": "int",
    "int64": "long long",
    "uint8": "unsigned char",
    "uint16": "unsigned short",
    "uint32": "unsigned int",
    "uint64": "unsigned long long",
    "float32": "float",
    "float64": "double",
    "complex64": "complex<float>",
    "complex128": "complex<double>",
}

_COMPARISON = {
    "equal": "{0} == {1}",
    "not_equal": "{0} != {1}",
    "less": "{0} < {1}",
    "less_equal": "{0} <= {1}",
    "greater": "{0} > {1}",
    "greater_equal": "{0} >= {1}",
}
_LOGICAL = {
    "logical_and": "({0} != {Z}) && ({1} != {Z})",
    "logical_or": "({0} != {Z}) || ({1} != {Z})",
    "logical_xor": "({0} != {Z}) != ({1} != {Z})",
    "logical_not": "{0} == {Z}",
}
_ARITHMETIC = {"add": "{0} + {1}", "subtract": "{0} - {1}", "multiply": "{0} * {1}", "square": "{0} * {0}"}
_SAME_IN_C = "sqrt exp log sin cos tan sinh cosh tanh".split()
_INVERSE = {f"arc{f}": f"a{f}({{0}})" for f in ("sin", "cos", "tan", "sinh", "cosh", "tanh")}
_BITS = {"bitwise_and": "{0} & {1}", "bitwise_or": "{0} | {1}", "bitwise_xor": "{0} ^ {1}"}

#: Expressions by kind of the dtype in which a function computes; {0} {1} {2} are operands of that dtype, {Z} its zero.
_EXPRESSIONS: dict[str, dict[str, str]] = {
    "b": {
        **_COMPARISON,
        **_LOGICAL,
        **_BITS,
        "add": "{0} || {1}",
        "multiply": "{0} && {1}",
        "invert": "!{0}",
        "maximum": "{0} || {1}",
        "minimum": "{0} && {1}",
    },
    "i": {
        **_COMPARISON,
        **_LOGICAL,
        **_ARITHMETIC,
        **_BITS,
        "negative": "-{0}",
        "positive": "{0}",
        "absolute": "{0} < {Z} ? -{0} : {0}",
        "invert": "~{0}",
        "maximum": "{0} < {1} ? {1} : {0}",
        "minimum": "{1} < {0} ? {1} : {0}",
    },
    "f": {
        **_COMPARISON,
        **_LOGICAL,
        **_ARITHMETIC,
        **_INVERSE,
        **{f: f"{f}({{0}})" for f in (*_SAME_IN_C, "expm1", "log1p", "log2", "log10", "exp2", "cbrt")},
        **{f: f"{f}({{0}})" for f in ("floor", "ceil", "trunc", "rint")},
        "divide": "{0} / {1}",
        "reciprocal": "1 / {0}",
        "negative": "-{0}",
        "positive": "{0}",
        "absolute": "fabs({0})",
        "fabs": "fabs({0})",
        "sign": "isnan({0}) ? {0} : ({0} > {Z}) - ({0} < {Z})",
        "isnan": "isnan({0})",
        "isinf": "isinf({0})",
        "isfinite": "isfinite({0})",
        "signbit": "signbit({0})",
        "copysign": "copysign({0}, {1})",
        "arctan2": "atan2({0}, {1})",
        "hypot": "hypot({0}, {1})",
        "power": "pow({0}, {1})",
        # a nan wins, the first of two: numpy's rule
        "maximum": "isnan({0}) || {0} >= {1} ? {0} : {1}",
        "minimum": "isnan({0}) || {0} <= {1} ? {0} : {1}",
    },
    "c": {
        **{f: _COMPARISON[f] for f in ("equal", "not_equal")},
        **_LOGICAL,
        **_ARITHMETIC,
        **{f: f"{f}({{0}})" for f in _SAME_IN_C},
        "divide": "{0} / {1}",
        "negative": "-{0}",
        "positive": "{0}",
        "conjugate": "conj({0})",
        "absolute": "abs({0})",
    },
}
_EXPRESSIONS["u"] = {**_EXPRESSIONS["i"], "absolute": "{0}", "positive": "{0}"}

#: Sum-like monoids as `cupy.ReductionKernel` wants them: how two combine, and of nothing.
_REDUCE = {"sum": ("a + b", "0"), "prod": ("a * b", "1"), "any": ("a || b", "false"), "all": ("a && b", "true")}


@lru_cache(maxsize=1)
def _cupy() -> Any:
    try:
        import cupy
    except ImportError as error:
        raise ImportError(
            "device='cuda' needs CuPy, which is not installed; install the one for your driver: "
            "pip install cupy-cuda12x (or cupy-cuda13x)"
        ) from error
    return cupy


def gpu_count() -> int:
    """Return the number of GPUs that CuPy finds.

    Raises
    ------
    ImportError
        If CuPy is not installed.
    RuntimeError
        If it finds no GPU, or no driver.
    """
    cupy = _cupy()
    try:
        count = int(cupy.cuda.runtime.getDeviceCount())
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise RuntimeError(f"device='cuda' needs an NVIDIA GPU and its driver; CuPy says: {error}") from error
    if not count:
        raise RuntimeError("device='cuda' needs an NVIDIA GPU; CuPy finds none")
    return count


def cuda_versions() -> dict[str, int]:
    """Return the newest version of CUDA that the driver can run, and the one that CuPy was made for; 12040 is 12.4.

    Raises
    ------
    ImportError
        If CuPy is not installed.
    """
    runtime = _cupy().cuda.runtime
    return {"driver": int(runtime.driverGetVersion()), "runtime": int(runtime.runtimeGetVersion())}


class CupyBackend:
    """CuPy arrays on one GPU."""

    name = "cupy"
    has_out = True

    def __init__(self, index: int) -> None:
        self.cupy = _cupy()
        import array_api_compat.cupy

        self.xp = array_api_compat.cupy
        self.device = self.cupy.cuda.Device(index)
        self.label = f"cuda:{index}"

    def empty(self, shape: Sequence[int], dtype: DTypeLike, layout: Layout = "C") -> Block:
        shape = tuple(shape)
        with self.device:  # CuPy recycles memory by itself
            if layout in ("C", "F", ()):
                return self.cupy.empty(shape, dtype, order=layout or "C")
            axes = [int(a) for a in layout]
            return self.cupy.empty([shape[a] for a in axes], dtype).transpose([axes.index(a) for a in range(len(axes))])

    def zeros(self, shape: Sequence[int], dtype: DTypeLike) -> Block:
        with self.device:
            return self.cupy.zeros(tuple(shape), dtype)

    def adopt(self, block: Any) -> Block:
        if not isinstance(block, self.cupy.ndarray | np.ndarray | np.generic):
            return block  # not an array: a list of pieces, a literal
        if isinstance(block, self.cupy.ndarray) and block.device == self.device:
            return block
        with self.device, transport():
            return self.cupy.asarray(block)

    def to_host(self, block: Block) -> np.ndarray[Any, DType]:
        if isinstance(block, np.ndarray | np.generic):
            return np.asarray(block)
        with self.device, transport():
            return np.asarray(self.cupy.asnumpy(block))

    def copy(self, block: Block) -> Block:
        new = self.empty(block.shape, block.dtype, self.layout_of(block))
        with self.device:
            new[...] = block
        return new

    def layout_of(self, block: Block) -> tuple[int, ...]:
        return axes_by_stride(block)

    def writable_view(self, lens: Any, base: Block) -> Block:
        return lens.read(base)

    def run(
        self,
        program: Program,
        inputs: Sequence[Block],
        scalars: Sequence[Any],
        shape: tuple[int, ...],
        outs: Sequence[Block | None] | None,
        partial: Callable[[Reduction, Block], Any],
    ) -> tuple[list[Block], list[Any]]:
        dtypes = [*(x.dtype for x in inputs), *(i.dtype for i in program.instructions)]
        outs = outs or [None] * len(program.outputs)
        with self.device:
            outputs = [
                self.empty(shape, dtypes[r]) if out is None else out
                for r, out in zip(program.outputs, outs, strict=True)
            ]
            if 0 in shape:
                return outputs, [partial(r, self.empty(shape, dtypes[r.register])) for r in program.reductions]
            generated = _generate(program, tuple(dtypes[: len(inputs)]), tuple(map(type, scalars))) if inputs else None
            if generated is None:
                reduced = self._run_calls(program, inputs, scalars, shape, outputs)
                return outputs, [partial(r, x) for r, x in zip(program.reductions, reduced, strict=True)]
            arguments = [self.cupy.broadcast_to(inputs[x], shape) for x in generated.inputs]
            arguments += [dtype.type(scalars[k]) for k, dtype in generated.scalars]
            if generated.reduces:
                (r,) = program.reductions
                kernel = _reduction_kernel(generated, r.monoid, MONOIDS[r.monoid].state(r.dtype))
                return [], [kernel(*arguments, axis=r.axes, keepdims=True)]
            # An output may be an input element by element: a thread stores after it has read all that it reads.
            blocks = [self.empty(shape, dtypes[r]) for r in generated.kept]
            _elementwise_kernel(generated)(*arguments, *outputs, *blocks)
            of = dict(zip(generated.kept, blocks, strict=True))
            return outputs, [partial(r, of[r.register]) for r in program.reductions]

    def _run_calls(
        self,
        program: Program,
        inputs: Sequence[Block],
        scalars: Sequence[Any],
        shape: tuple[int, ...],
        outputs: Sequence[Block],
    ) -> list[Block]:
        """Make one CuPy call per instruction; fill the outputs and returns the reduced registers."""
        registers = list(inputs)
        for i in program.instructions:
            operands = [scalars[x.index] if not isinstance(x, int) else registers[x] for x in i.inputs]
            registers.append(self._call(i.function, i.params, operands, i.dtype))
        # All is read before anything is stored: an output may be an input.
        whole = {
            r: self.cupy.broadcast_to(registers[r], shape)
            for r in (*program.outputs, *(r.register for r in program.reductions))
        }
        if outputs:
            whole = {r: x.copy() if r < program.n_inputs else x for r, x in whole.items()}
        reduced = [whole[r.register] for r in program.reductions]
        for r, out in zip(program.outputs, outputs, strict=True):
            out[...] = whole[r]
        return reduced

    def _call(self, name: str, params: tuple[Any, ...], operands: Sequence[Any], dtype: DType) -> Block:
        cupy, canonical = self.cupy, numpy_name(name)
        known = tuple(_type_of(x) for x in operands)
        arrays = [
            cupy.asarray(x, dtype=d) if d is not None or not isinstance(x, cupy.ndarray) else x
            for x, d in zip(operands, loop_dtypes(canonical, known, dtype), strict=True)
        ]
        if canonical == "copy":
            return arrays[0].copy()
        if canonical == "astype":
            x = arrays[0]
            return (x.real if x.dtype.kind == "c" and dtype.kind not in "cb" else x).astype(dtype)
        if canonical == "clip":
            limits = dict(zip(params or ("min", "max"), arrays[1:], strict=True))
            return cupy.clip(arrays[0], limits.get("min"), limits.get("max")).astype(dtype, copy=False)
        if canonical in MAPS:
            return MAPS[canonical](params, dtype)(*arrays)
        if canonical == "round":
            return cupy.around(arrays[0], *params)
        if canonical.startswith("special."):
            import cupyx.scipy.special

            function = getattr(cupyx.scipy.special, canonical.removeprefix("special."), None)
        else:
            function = getattr(cupy, canonical, None)
        if function is None:
            raise NotSupportedError(f"not on cuda: CuPy has no {canonical}")
        result = function(*arrays)
        if isinstance(result, tuple):
            result = result[params[0]]
        return result.astype(dtype, copy=False)


def _type_of(x: Any) -> DType | type:
    return x.dtype if hasattr(x, "dtype") else type(x)


# ------------------------------------------------------------------------------------------------------ code


class Generated(NamedTuple):
    """Source of one kernel.

    Attributes
    ----------
    inputs, scalars
        Registers that it reads, and (scalar, dtype) pairs; parameters in this order: ``x<register>``, ``s<position>``.
    kept
        Reduced registers, stored after the outputs.
    types
        Of the parameters, as CuPy names dtypes.
    body
        Statements: a declaration ``r<register>`` per instruction.
    stored
        Names of what is stored or reduced.
    reduces
        Whether one reduction is all that the program makes.
    stored_types
        Dtypes of `stored`.
    """

    inputs: tuple[int, ...]
    scalars: tuple[tuple[int, DType], ...]
    kept: tuple[int, ...]
    types: tuple[DType, ...]
    body: str
    stored: tuple[str, ...]
    reduces: bool
    stored_types: tuple[DType, ...]

    @property
    def parameters(self) -> list[str]:
        """Return the names of the parameters that are read."""
        return [f"x{i}" for i in self.inputs] + [f"s{k}" for k in range(len(self.scalars))]


@lru_cache(maxsize=512)
def _generate(program: Program, inputs: tuple[DType, ...], scalars: tuple[type, ...]) -> Generated | None:
    """Return the kernel of a program, or None if a function or a dtype has no CUDA C here."""
    dtypes: list[DType] = list(inputs)
    used: dict[int, None] = {}
    constants: dict[tuple[int, DType], str] = {}
    lines: list[str] = []

    def name(register: int) -> str:
        if register >= len(inputs):
            return f"r{register}"
        used[register] = None
        return f"x{register}"

    for instruction in program.instructions:
        canonical = numpy_name(instruction.function)
        known = []
        for x in instruction.inputs:
            known.append(dtypes[x] if isinstance(x, int) else _scalar_type(scalars[x.index]))
        casts = loop_dtypes(canonical, tuple(known), instruction.dtype)
        terms = []
        for x, d, cast in zip(instruction.inputs, known, casts, strict=True):
            if isinstance(x, int):
                assert isinstance(d, np.dtype)
                terms.append(_cast(name(x), d, cast or d))
            elif cast is None:
                return None
            else:
                terms.append(constants.setdefault((x.index, cast), f"s{len(constants)}"))
        if any(t is None for t in terms) or instruction.dtype.name not in _C_TYPE:
            return None
        expression = _expression(canonical, instruction.params, terms, casts, known, instruction.dtype)
        if expression is None:
            return None
        lines.append(f"const {_C_TYPE[instruction.dtype.name]} r{len(dtypes)} = {expression};")
        dtypes.append(instruction.dtype)
    reduces = (
        not program.outputs
        and len(program.reductions) == 1
        and program.reductions[0].monoid in _REDUCE
        and MONOIDS[program.reductions[0].monoid].state(program.reductions[0].dtype).name in _C_TYPE
    )
    kept = tuple(dict.fromkeys(r.register for r in program.reductions))
    registers = (*program.outputs, *kept)
    stored = tuple(name(r) for r in registers)
    if any(dtypes[x].name not in _C_TYPE for x in used) or not used:
        return None
    types = (*(dtypes[x] for x in used), *(d for _, d in constants))
    stored_types = tuple(dtypes[r] for r in registers)
    return Generated(tuple(used), tuple(constants), kept, types, "\n".join(lines), stored, reduces, stored_types)


def _scalar_type(of: type) -> DType | type:
    return np.dtype(of) if issubclass(of, np.generic) else of


def _cast(term: str, given: DType, wanted: DType) -> str | None:
    """Return a C expression for `term`, which is of dtype `given`, as `wanted`."""
    if given == wanted:
        return term
    if given.name not in _C_TYPE or wanted.name not in _C_TYPE:
        return None
    to = _C_TYPE[wanted.name]
    if given.kind == "c" and wanted.kind == "b":
        return f"({term} != {_C_TYPE[given.name]}(0))"
    if given.kind == "c" and wanted.kind != "c":
        return f"({to})({term}).real()"
    if wanted.kind == "c" and given.kind != "c":
        return f"{to}(({_C_TYPE['float32' if wanted.itemsize == 8 else 'float64']})({term}))"
    return f"({to})({term})"


def _expression(
    canonical: str,
    params: tuple[Any, ...],
    terms: Sequence[str | None],
    casts: Sequence[DType | None],
    known: Sequence[DType | type],
    dtype: DType,
) -> str | None:
    if canonical == "copy":
        return terms[0]
    if canonical == "astype":
        assert isinstance(known[0], np.dtype)
        return _cast(str(terms[0]), known[0], dtype)
    if canonical == "where":
        return f"{terms[0]} ? {terms[1]} : {terms[2]}"
    if canonical in ("real", "imag"):
        assert isinstance(known[0], np.dtype)
        if known[0].kind == "c":
            return f"({terms[0]}).{canonical}()"
        return str(terms[0]) if canonical == "real" else f"({_C_TYPE[dtype.name]})0"
    loop = casts[0]
    if params or loop is None:
        return None
    template = _EXPRESSIONS.get(loop.kind, {}).get(canonical)
    if template is None:
        return None
    return template.format(*terms, Z=f"({_C_TYPE[loop.name]})0" if loop.kind != "c" else f"{_C_TYPE[loop.name]}(0)")


def _declared(types: Sequence[DType], names: Sequence[str]) -> str:
    return ", ".join(f"{d.name} {name}" for d, name in zip(types, names, strict=True))


@lru_cache(maxsize=512)
def _elementwise_kernel(generated: Generated) -> Any:
    names = [f"y{k}" for k in range(len(generated.stored))]
    stores = [f"{y} = {value};" for y, value in zip(names, generated.stored, strict=True)]
    return _cupy().ElementwiseKernel(
        _declared(generated.types, generated.parameters),
        _declared(generated.stored_types, names),
        "\n".join([generated.body, *stores]),
        "distarray_program",
        options=("--fmad=false",),
    )


@lru_cache(maxsize=512)
def _reduction_kernel(generated: Generated, monoid: str, state: DType) -> Any:
    combine, identity = _REDUCE[monoid]
    parameters = generated.parameters
    declared = ", ".join(f"const {_C_TYPE[d.name]} {name}" for d, name in zip(generated.types, parameters, strict=True))
    accumulator = _C_TYPE[state.name]
    (value,) = generated.stored
    result = _cast(value, generated.stored_types[0], state)
    # The map of a ReductionKernel is an expression; statements stand in a function.
    function = f"__device__ {accumulator} distarray_map({declared}) {{\n{generated.body}\nreturn {result};\n}}"
    return _cupy().ReductionKernel(
        _declared(generated.types, parameters),
        f"{state.name} y",
        f"distarray_map({', '.join(parameters)})",
        combine,
        "y = a",
        identity,
        "distarray_reduction",
        reduce_type=accumulator,
        preamble=function,
        options=("--fmad=false",),
    )
