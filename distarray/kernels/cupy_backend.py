"""Blocks on a GPU: CuPy arrays, and programs as one generated kernel each.

The only module that imports CuPy; `devices.backend_for` imports it when a ``"cuda"`` device is first asked for.

A program becomes one `cupy.ElementwiseKernel`, or one `cupy.ReductionKernel` if all that it makes is one sum-like
reduction; `cuda_code` writes the source. ``--fmad=false`` keeps the compiler from fusing a product into a sum: an
element has the same bits whatever else is in its kernel. A program that `cuda_code` has no source for runs as CuPy
calls, one per instruction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike

from distarray.errors import NotSupportedError
from distarray.kernels.backends import Layout, axes_by_stride, transport
from distarray.kernels.cuda_code import C_TYPE, PREAMBLE, REDUCE, Generated, cast, generate
from distarray.kernels.elementwise import loop_dtypes, numpy_name
from distarray.kernels.monoids import MONOIDS
from distarray.kernels.random_maps import MAPS

if TYPE_CHECKING:
    from distarray.kernels.outcomes import Reduction
    from distarray.kernels.program import Program

__all__ = ["CupyBackend", "cuda_versions", "gpu_count"]

DType = np.dtype[Any]
Block = Any  # a cupy.ndarray, which has no type information


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
        self._held: int | None = None

    def current(self) -> AbstractContextManager[Any]:
        # One object of several threads would remember for one of them what device another had before.
        return self.cupy.cuda.Device(self.device.id)  # type: ignore[no-any-return]  # CuPy has no type information

    def hold(self, nbytes: int | None) -> None:
        """Bound CuPy's pool on this GPU, of blocks and workspaces together; a bound that somebody else set stays."""
        if nbytes != self._held:
            with self.current():
                self.cupy.get_default_memory_pool().set_limit(size=nbytes or 0)  # 0 is no bound
            self._held = nbytes

    def empty(self, shape: Sequence[int], dtype: DTypeLike, layout: Layout = "C") -> Block:
        shape = tuple(shape)
        with self.current():  # CuPy recycles memory by itself
            if layout in ("C", "F", ()):
                return self.cupy.empty(shape, dtype, order=layout or "C")
            axes = [int(a) for a in layout]
            return self.cupy.empty([shape[a] for a in axes], dtype).transpose([axes.index(a) for a in range(len(axes))])

    def zeros(self, shape: Sequence[int], dtype: DTypeLike) -> Block:
        with self.current():
            return self.cupy.zeros(tuple(shape), dtype)

    def adopt(self, block: Any) -> Block:
        if not isinstance(block, self.cupy.ndarray | np.ndarray | np.generic):
            return block  # not an array: a list of pieces, a literal
        if isinstance(block, self.cupy.ndarray) and block.device == self.device:
            return block
        with self.current(), transport():
            return self.cupy.asarray(block)

    def to_host(self, block: Block) -> np.ndarray[Any, DType]:
        if isinstance(block, np.ndarray | np.generic):
            return np.asarray(block)
        with self.current(), transport():
            return np.asarray(self.cupy.asnumpy(block))

    def copy(self, block: Block) -> Block:
        new = self.empty(block.shape, block.dtype, self.layout_of(block))
        with self.current():
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
        with self.current():
            outputs = [
                self.empty(shape, dtypes[r]) if out is None else out
                for r, out in zip(program.outputs, outs, strict=True)
            ]
            if 0 in shape:
                return outputs, [partial(r, self.empty(shape, dtypes[r.register])) for r in program.reductions]
            generated = generate(program, tuple(dtypes[: len(inputs)]), tuple(map(type, scalars))) if inputs else None
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
        if canonical == "view":
            return arrays[0].copy().view(dtype)
        if canonical == "clip":
            limits = dict(zip(params or ("min", "max"), arrays[1:], strict=True))
            return cupy.clip(arrays[0], limits.get("min"), limits.get("max")).astype(dtype, copy=False)
        if canonical == "complex":
            made = cupy.empty(np.broadcast_shapes(*(x.shape for x in arrays)), dtype)
            made.real[...], made.imag[...] = arrays
            return made
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


# ------------------------------------------------------------------------------------------------------ kernels


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
        preamble=PREAMBLE,
        options=("--fmad=false",),
    )


@lru_cache(maxsize=512)
def _reduction_kernel(generated: Generated, monoid: str, state: DType) -> Any:
    combine, identity = REDUCE[monoid]
    parameters = generated.parameters
    declared = ", ".join(f"const {C_TYPE[d.name]} {name}" for d, name in zip(generated.types, parameters, strict=True))
    accumulator = C_TYPE[state.name]
    (value,) = generated.stored
    result = cast(value, generated.stored_types[0], state)
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
        preamble=PREAMBLE + function,
        options=("--fmad=false",),
    )
