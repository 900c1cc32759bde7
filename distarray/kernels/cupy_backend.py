"""Blocks on a GPU: CuPy arrays, and programs as one generated kernel each.

The only module that imports CuPy; `devices.backend_for` imports it when a ``"cuda"`` device is first asked for.

A program becomes one kernel, whatever it stores and reduces; `cuda_code` writes its statements and `cuda_loops` the
loops around them. ``--fmad=false`` keeps the compiler from fusing a product into a sum: an
element has the same bits whatever else is in its kernel. A program that `cuda_code` has no source for runs as CuPy
calls, one per instruction.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from distarray.errors import NotSupportedError
from distarray.forks import free_in_child
from distarray.kernels.backends import Backend, fitted_scalars, transport
from distarray.kernels.cuda_code import CUDA
from distarray.kernels.cuda_loops import BLOCK, MAX_ELEMENTS, elementwise_source, n_at_once, nest_of
from distarray.kernels.cuda_reductions import (
    KernelFold,
    folds_of,
    is_across,
    merge_source,
    reduction_source,
    results_of,
    shares,
)
from distarray.kernels.elementwise import loop_dtypes, numpy_name
from distarray.kernels.expressions import Generated, generate
from distarray.kernels.namespaces import Block
from distarray.kernels.random_maps import MAPS
from distarray.sharding.layout import LayoutLike
from distarray.types import DType

if TYPE_CHECKING:
    from distarray.kernels.monoids import Within
    from distarray.kernels.outcomes import Reduction
    from distarray.kernels.program import Program


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


class CupyBackend(Backend):
    """A CupyBackend has CuPy arrays on one GPU."""

    name = "cupy"

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

    def empty(self, shape: Sequence[int], dtype: DTypeLike, layout: LayoutLike = "C") -> Block:
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
        with self.cupy.cuda.Device(block.device.id):  # where it lies, which may be the GPU of another member
            return block.copy(order="K")

    def run(
        self,
        program: Program,
        inputs: Sequence[Block],
        scalars: Sequence[Any],
        shape: tuple[int, ...],
        outs: Sequence[Block | None] | None,
        partial: Callable[[Reduction, Block], Any],
        within: Within,
    ) -> tuple[list[Block], list[Any]]:
        dtypes = [*(x.dtype for x in inputs), *(i.dtype for i in program.instructions)]
        scalars = fitted_scalars(program, inputs, scalars)
        with self.current():
            generated = None
            if inputs and 0 not in shape:
                generated = generate(program, tuple(dtypes[: len(inputs)]), tuple(map(type, scalars)), CUDA)
            if generated is None and 0 not in shape:
                return super().run(program, inputs, scalars, shape, outs, partial, within)
            outputs = self.stored_in(program, dtypes, shape, outs)
            if generated is None:
                return outputs, [partial(r, self.empty(shape, dtypes[r.register])) for r in program.reductions]
            arguments = _KernelArguments(
                [inputs[int(x[1:])] for x in generated.parameters[: len(generated.inputs)]],
                outputs,
                [dtype.type(scalars[k]) for k, dtype in generated.scalars],
            )
            folds = folds_of(program.reductions, dtypes)
            if folds is not None:
                made = self._reduce(generated, folds, program.reductions, arguments, shape, within)
                if made is not None:
                    return outputs, made
            # An output may be an input element by element: a thread stores after it has read all that it reads.
            blocks = [self.empty(shape, dtypes[r.register]) for r in program.reductions]
            self._store(generated, arguments._replace(stored=[*outputs, *blocks]), shape)
            return outputs, [partial(r, x) for r, x in zip(program.reductions, blocks, strict=True)]

    def _store(self, generated: Generated, arguments: _KernelArguments, shape: tuple[int, ...]) -> None:
        """Compute all that a program stores, in launches of at most `MAX_ELEMENTS`."""
        if math.prod(shape) > MAX_ELEMENTS:
            axis = max(range(len(shape)), key=shape.__getitem__)
            for half in (slice(shape[axis] // 2), slice(shape[axis] // 2, None)):
                part = tuple([len(range(*half.indices(n))) if a == axis else n for a, n in enumerate(shape)])
                self._store(generated, arguments.narrowed(axis - len(shape), half), part)
            return
        arrays = [*arguments.read, *arguments.stored]
        nest = nest_of(shape, tuple(range(len(shape))), tuple([_steps(x, shape) for x in arrays]), is_free=True)
        n_blocks = -(-nest.n // (BLOCK * n_at_once(generated)))
        kernel = _kernel(elementwise_source(generated, nest.ndim), "distarray_program")
        kernel((n_blocks,), (BLOCK,), (*arrays, *arguments.scalars, np.uint32(nest.n), *nest.arguments))

    def _reduce(
        self,
        generated: Generated,
        folds: tuple[KernelFold, ...],
        reductions: Sequence[Reduction],
        arguments: _KernelArguments,
        shape: tuple[int, ...],
        within: Within,
    ) -> list[Any] | None:
        """Return the partials of a program whose reductions one kernel makes; None if one launch cannot."""
        axes = reductions[0].axes
        kept_axes = tuple([a for a in range(len(shape)) if a not in axes])
        if max(math.prod(shape[a] for a in group) for group in (axes, kept_axes)) > MAX_ELEMENTS:
            return None
        arrays = [*arguments.read, *arguments.stored]
        counted = axes if any(fold.has_index for fold in folds) else ()
        counts = [math.prod(within.extents[b] for b in axes if b > a) if a in counted else 0 for a in range(len(shape))]
        steps = tuple([_steps(x, shape) for x in arrays])
        # The index of an element goes along with the arrays, and decides nothing.
        kept, reduced = (nest_of(shape, a, (*steps, tuple(counts)), n_guides=len(steps)) for a in (kept_axes, axes))
        first = sum(o * n for o, n in zip(within.origin, counts, strict=True))
        shared = shares(kept.n, reduced.n, n_at_once(generated), is_across(shape, kept_axes, steps))
        n_shares = shared.grid[1]

        def made(is_last: bool, n: int) -> list[Block]:
            return [self.cupy.empty((n, kept.n), d) for _, d, _ in results_of(folds, is_last)]

        results = made(n_shares == 1, n_shares)
        source = reduction_source(generated, folds, (kept.ndim, reduced.ndim), n_shares == 1)
        numbers = (np.uint32(kept.n), np.uint32(reduced.n), *shared.arguments, np.int64(first))
        given = (*arrays, *results, *arguments.scalars, *numbers, *kept.arguments, *reduced.arguments)
        _kernel(source, "distarray_reduction")(shared.grid, (BLOCK,), given)
        if n_shares > 1:
            fields, results = results, made(True, 1)
            again = shares(kept.n, n_shares, 1, False, n_blocks=1)
            given = (*fields, *results, np.uint32(kept.n), np.uint32(n_shares), *again.arguments)
            _kernel(merge_source(folds), "distarray_merge")(again.grid, (BLOCK,), given)
        blocks = iter([self._whole(x, shape, kept.order) for x in results])
        partials = [[next(blocks) for _ in fold.results] for fold in folds]
        return [p[0] if len(p) == 1 else tuple(p) for p in partials]

    def _whole(self, kept: Block, shape: tuple[int, ...], order: tuple[int, ...]) -> Block:
        """Return an array over the kept axes in the order of a nest as one over all axes, the reduced of extent 1."""
        ascending = sorted(order)
        block = kept.reshape([shape[a] for a in order]).transpose([order.index(a) for a in ascending])
        return self.cupy.expand_dims(block, tuple(a for a in range(len(shape)) if a not in order))

    def call(self, name: str, params: tuple[Any, ...], operands: Sequence[Any], dtype: DType) -> Block:
        cupy, canonical = self.cupy, numpy_name(name)
        known = tuple([x.dtype if hasattr(x, "dtype") else type(x) for x in operands])
        if dtype.kind not in "biufc":
            raise NotSupportedError(f"not on cuda: CuPy has no arrays of dtype {dtype}")
        arrays = [
            cupy.asarray(x, dtype=d) if d is not None or not isinstance(x, cupy.ndarray) else x
            for x, d in zip(operands, loop_dtypes(canonical, known, dtype), strict=True)
        ]
        if canonical in ("copy", "warned"):  # to look at the elements here would be to wait for them
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


# ------------------------------------------------------------------------------------------------------ kernels


class _KernelArguments(NamedTuple):
    """The _KernelArguments of a kernel are the arrays that it reads and stores, and values of its scalars."""

    read: list[Block]
    stored: list[Block]
    scalars: list[Any]

    def narrowed(self, axis: int, part: slice) -> _KernelArguments:
        """Return what concerns a part of the box along an axis, which is counted from the last."""

        def of(x: Block) -> Block:
            return x[(..., part, *[slice(None)] * (-1 - axis))] if x.ndim >= -axis and x.shape[axis] > 1 else x

        return self._replace(read=[of(x) for x in self.read], stored=[of(x) for x in self.stored])


def _steps(x: Block, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the steps of an array along the axes of the box that it is broadcast to, in bytes."""
    steps = [s if n == m else 0 for s, n, m in zip(x.strides, x.shape, shape[len(shape) - x.ndim :], strict=True)]
    return (*(0,) * (len(shape) - x.ndim), *steps)


_compiling = free_in_child(threading.Lock())


def _kernel(source: str, name: str) -> Any:
    """Return a kernel that is compiled; of the threads that need a new one, one compiles it."""
    with _compiling:
        return _compiled(source, name)


@lru_cache(maxsize=1024)
def _compiled(source: str, name: str) -> Any:
    kernel = _cupy().RawKernel(source, name, options=("--fmad=false",))
    kernel.compile()
    return kernel
