"""What blocks are made of: NumPy, CuPy, or array_api_strict, and how each makes, moves and computes them.

`devices.backend_for` gives the backend of one member of a team. Tasks use nothing else of
an array library than the functions of ``backend.xp``, what `Backend` lists, and programs, which `Program.run` hands to
``backend.run`` unless the blocks are NumPy's.

``"strict"`` proves without a GPU that kernels stay on their device: its blocks are arrays of array_api_strict on fake
devices, which refuse to mix and to become NumPy arrays, and under `no_host_copies` to become Python numbers too.
array_api_strict is imported when its device is first asked for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import ModuleType
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike

from distarray.errors import NotSupportedError
from distarray.kernels.buffers import POOL
from distarray.kernels.elementwise import fitted, loop_dtypes, numpy_name
from distarray.kernels.monoids import Within
from distarray.kernels.namespaces import Block
from distarray.kernels.outcomes import Reduction
from distarray.kernels.program import Program
from distarray.sharding.layout import LayoutLike
from distarray.types import DType


class Backend(Protocol):
    """A Backend makes, moves and computes the blocks of one array library on the device of one member.

    Its `name` is ``"numpy"``, ``"cupy"`` or ``"strict"``.

    Attributes
    ----------
    xp
        Namespace with the functions of the array API standard.
    device
        What ``xp`` takes as ``device=``.
    label
        The device string that means this device on every member.
    """

    name: str
    xp: Any
    device: Any
    label: str

    def current(self) -> AbstractContextManager[Any]:
        """Make this thread's kernels run on the device, as CuPy wants of operands that are there."""
        return nullcontext()

    def empty(self, shape: Sequence[int], dtype: DTypeLike, layout: LayoutLike = "C") -> Block:
        """Return a block whose elements are not initialised."""

    def zeros(self, shape: Sequence[int], dtype: DTypeLike) -> Block:
        """Make a block of zeros."""

    def adopt(self, block: Any) -> Block:
        """Return `block` on this device; itself if it is there. Only transport calls this."""

    def to_host(self, block: Block) -> np.ndarray[Any, DType]:
        """Return `block` as a NumPy array. Only transport calls this."""

    def copy(self, block: Block) -> Block:
        """Return the elements of `block` in new memory, in the same order of axes."""

    def layout_of(self, block: Block) -> tuple[int, ...]:
        """Return the axes from outermost to innermost."""
        if block.flags.c_contiguous:
            return tuple(range(block.ndim))
        return tuple(sorted(range(block.ndim), key=lambda axis: -abs(block.strides[axis])))

    def writable_view(self, lens: Any, base: Block) -> Block:
        """Return what `lens` sees of `base`, as a view that can be written."""
        return lens.read(base)

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
        """Return the outputs of a program and the partials of its reductions, by one call of the library per
        instruction; `partial` makes a partial from a register in full. `within` says where the box lies in the whole
        loop space.
        """
        dtypes = [*(x.dtype for x in inputs), *(i.dtype for i in program.instructions)]
        scalars = fitted_scalars(program, inputs, scalars)
        outputs = self.stored_in(program, dtypes, shape, outs)
        registers = list(inputs)
        for i in program.instructions:
            operands = [scalars[x.index] if not isinstance(x, int) else registers[x] for x in i.inputs]
            registers.append(self.call(i.function, i.params, operands, i.dtype))
        # All is read before anything is stored: an output may be an input.
        stored = {*program.outputs, *(r.register for r in program.reductions)}
        whole = {r: self.xp.broadcast_to(registers[r], shape) for r in stored}
        for r in [r for r in stored if outputs and r < program.n_inputs]:
            own = self.empty(shape, dtypes[r])
            own[...] = whole[r]
            whole[r] = own
        reduced = [whole[r.register] for r in program.reductions]
        for r, out in zip(program.outputs, outputs, strict=True):
            out[...] = whole[r]
        return outputs, [partial(r, x) for r, x in zip(program.reductions, reduced, strict=True)]

    def stored_in(
        self, program: Program, dtypes: Sequence[DType], shape: tuple[int, ...], outs: Sequence[Block | None] | None
    ) -> list[Block]:
        """Return the blocks that take the outputs of a program: those of `outs`, and new ones where there is none."""
        places = zip(program.outputs, outs or [None] * len(program.outputs), strict=True)
        return [self.empty(shape, dtypes[r]) if out is None else out for r, out in places]

    def call(self, name: str, params: tuple[Any, ...], operands: Sequence[Any], dtype: DType) -> Block:
        """Return an elementwise function of blocks and scalars, in new memory."""
        raise AssertionError("Program.run computes NumPy blocks itself, slice by slice")


def fitted_scalars(program: Program, inputs: Sequence[Block], scalars: Sequence[Any]) -> Sequence[Any]:
    """Return the run-time scalars of a program as numpy takes them: see `elementwise.fitted`."""
    if not any(type(scalar) is int for scalar in scalars):
        return scalars
    found, dtypes = list(scalars), [*map(_numpy_dtype, inputs), *(i.dtype for i in program.instructions)]
    for i in program.instructions:
        name = numpy_name(i.function)
        known = tuple([dtypes[x] if isinstance(x, int) else _numpy_dtype(scalars[x.index]) for x in i.inputs])
        for place, (x, loop) in enumerate(zip(i.inputs, loop_dtypes(name, known, i.dtype), strict=True)):
            if not isinstance(x, int):
                found[x.index] = fitted(scalars[x.index], name, i.params, place, loop)
    return found


def empty_for(backend: Backend, block: Block, shape: Sequence[int], dtype: DTypeLike) -> Block:
    """Return a block that is not filled yet, which lies as another one does if it has as many axes."""
    return backend.empty(shape, dtype, backend.layout_of(block) if block.ndim == len(shape) else "C")


class NumpyBackend(Backend):
    """A NumpyBackend has its blocks in the memory of the process, big ones from the pool of `buffers`."""

    name = "numpy"
    xp = np
    device = "cpu"
    label = "cpu"

    def empty(self, shape: Sequence[int], dtype: DTypeLike, layout: LayoutLike = "C") -> Block:
        return POOL.take(shape, dtype, layout)

    def zeros(self, shape: Sequence[int], dtype: DTypeLike) -> Block:
        return np.zeros(tuple(shape), dtype)  # fresh pages are zero, and touched only when they are used

    def adopt(self, block: Any) -> Block:
        return block

    def to_host(self, block: Block) -> np.ndarray[Any, DType]:
        return np.asarray(block)

    def copy(self, block: Block) -> Block:
        block = np.asarray(block)
        new = POOL.take(block.shape, block.dtype, "C" if block.flags.c_contiguous else self.layout_of(block))
        np.copyto(new, block)
        return new

    def writable_view(self, lens: Any, base: Block) -> Block:
        view = lens.read(base)
        if not view.flags.writeable:
            # numpy marks diagonals read-only, for a change that never came; the memory is that of `base`.
            view.flags.writeable = True
        return view


#: The backend of ``device="cpu"``.
NUMPY: Backend = NumpyBackend()


class StrictBackend(Backend):
    """A StrictBackend has arrays of array_api_strict on one of its fake devices."""

    name = "strict"

    def __init__(self, index: int) -> None:
        try:
            import array_api_strict
        except ImportError as error:
            raise ImportError(
                "device='strict' needs array_api_strict; install it with: pip install array-api-strict"
            ) from error
        self.xp = _standard(array_api_strict)
        self.xp.fft, self.xp.linalg = _standard(array_api_strict.fft), _standard(array_api_strict.linalg)
        self.device = array_api_strict.Device(f"device{index}")
        self.label = f"strict:{index}"
        self._cpu = array_api_strict.Device("CPU_DEVICE")

    def empty(self, shape: Sequence[int], dtype: DTypeLike, layout: LayoutLike = "C") -> Block:
        # The standard knows no strides, so every layout is C order here.
        return self.xp.empty(tuple(shape), dtype=self.dtype(dtype), device=self.device)

    def zeros(self, shape: Sequence[int], dtype: DTypeLike) -> Block:
        return self.xp.zeros(tuple(shape), dtype=self.dtype(dtype), device=self.device)

    def adopt(self, block: Any) -> Block:
        if hasattr(block, "__array_namespace__") and not isinstance(block, (np.ndarray, np.generic)):
            if block.device == self.device:
                return block
            with transport():
                return block.to_device(self.device)
        if not isinstance(block, (np.ndarray, np.generic)):
            return block  # not an array: a list of pieces, a literal
        self.dtype(block.dtype)
        return self.xp.asarray(np.array(block), device=self.device)

    def to_host(self, block: Block) -> np.ndarray[Any, DType]:
        if isinstance(block, (np.ndarray, np.generic)):
            return np.asarray(block)
        with transport():
            return np.asarray(block.to_device(self._cpu))

    def copy(self, block: Block) -> Block:
        return self.xp.asarray(block, copy=True)

    def layout_of(self, block: Block) -> tuple[int, ...]:
        return tuple(range(block.ndim))

    def writable_view(self, lens: Any, base: Block) -> Block:
        if lens.read_indices().diagonals:
            raise NotSupportedError("not on strict: the standard has no diagonal that can be written")
        return lens.read(base)

    def dtype(self, dtype: Any) -> Any:
        """Return `dtype` as array_api_strict spells it."""
        if not isinstance(dtype, np.dtype | type | str):
            return dtype
        name = np.dtype(dtype).name
        if not hasattr(self.xp, name):
            raise NotSupportedError(f"not on strict: the standard has no dtype {name}")
        return getattr(self.xp, name)

    def call(self, name: str, params: tuple[Any, ...], operands: Sequence[Any], dtype: DType) -> Block:
        """Return one function by the standard's rules: no mixed dtypes, no scalars without an array."""
        xp, canonical = self.xp, numpy_name(name)
        known = [_numpy_dtype(x) for x in operands]
        arrays = [self._array(x, d) for x, d in zip(operands, loop_dtypes(canonical, tuple(known), dtype), strict=True)]
        if canonical in ("copy", "warned"):
            return xp.asarray(arrays[0], copy=True)
        if canonical == "astype":
            return self._cast(arrays[0], self.dtype(dtype))
        if canonical.startswith("logical_"):
            arrays = [self._cast(x, xp.bool) for x in arrays]
        if canonical == "clip":
            limits: Mapping[str, Any] = dict(zip(params or ("min", "max"), arrays[1:], strict=True))
            return xp.clip(arrays[0], limits.get("min"), limits.get("max"))
        if canonical in ("real", "conjugate") and not xp.isdtype(arrays[0].dtype, "complex floating"):
            return xp.asarray(arrays[0], copy=True)
        if canonical == "imag" and not xp.isdtype(arrays[0].dtype, "complex floating"):
            return xp.zeros_like(arrays[0])
        function = getattr(xp, _STANDARD_NAME.get(canonical, canonical), None)
        if function is None or (params and params != (0,)):
            raise NotSupportedError(f"not on strict: the standard has no {canonical}{params or ''}")
        result = function(*arrays)
        if canonical == "sign" and xp.isdtype(result.dtype, "complex floating"):
            result = xp.where(arrays[0] == 0, xp.zeros_like(result), result)  # its own keeps the signs of the zeros
        return result if result.dtype == self.dtype(dtype) else xp.astype(result, self.dtype(dtype))

    def _cast(self, x: Block, dtype: Any) -> Block:
        """Return what numpy's casts of complex numbers give, which the standard leaves to functions."""
        xp = self.xp
        if xp.isdtype(x.dtype, "complex floating") and not xp.isdtype(dtype, "complex floating"):
            if dtype == xp.bool:
                return x != 0
            x = xp.real(x)
        return xp.astype(x, dtype)

    def _array(self, x: Any, dtype: DType | None) -> Block:
        """Return `x` of the dtype in which the function computes."""
        if hasattr(x, "to_device") and not isinstance(x, (np.ndarray, np.generic)):
            wanted = x.dtype if dtype is None else self.dtype(dtype)
            return x if x.dtype == wanted else self._cast(x, wanted)
        value = x.item() if isinstance(x, (np.ndarray, np.generic)) else x
        return self.xp.asarray(value, dtype=None if dtype is None else self.dtype(dtype), device=self.device)


class _NotInStandardError(NotSupportedError, AttributeError):
    """The standard has no function of this name; an AttributeError, so that ``hasattr`` may ask."""


def _standard(namespace: Any) -> Any:
    """Return the functions of a module of array_api_strict, and an error that says so for every other name."""
    copied = ModuleType(namespace.__name__, namespace.__doc__)
    copied.__dict__.update(vars(namespace))

    def missing(name: str) -> Any:
        raise _NotInStandardError(f"not on strict: the standard has no {name}")

    copied.__dict__["__getattr__"] = missing
    return copied


def _numpy_dtype(x: Any) -> DType | type:
    """Return the dtype of an array of any backend; the type of a Python scalar, which numpy resolves as weak."""
    if isinstance(x, (bool, int, float, complex)) and not isinstance(x, np.generic):
        return type(x)
    dtype = x.dtype
    return dtype if isinstance(dtype, np.dtype) else np.dtype(str(dtype).rpartition(".")[2])


_SPELLINGS = "abs acos acosh asin asinh atan atan2 atanh bitwise_invert bitwise_left_shift bitwise_right_shift conj pow"
#: The standard's names of functions, by numpy's own where they are others.
_STANDARD_NAME = {"rint": "round", **{numpy_name(name): name for name in _SPELLINGS.split()}}


# ------------------------------------------------------------------------------------------------------ transport

_local = threading.local()


@contextmanager
def transport() -> Iterator[None]:
    """Allow what moves blocks to do what kernels may not: see `distarray.testing.no_host_copies`."""
    before = getattr(_local, "moves", False)
    _local.moves = True
    try:
        yield
    finally:
        _local.moves = before


def is_transport() -> bool:
    """Return whether this thread moves blocks."""
    return bool(getattr(_local, "moves", False))
