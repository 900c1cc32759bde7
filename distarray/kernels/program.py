"""Programs: elementwise functions and reductions over one box of loops.

The elementwise part of a stage is a `Program`: instructions over registers. `Program.run` makes numpy's calls one after
the other where the box is small, and has `sliced` cut it into slices that fit the cache where it is not.

Guarantees
----------
Each instruction is one call of the function that numpy would call, so values and dtypes are numpy's. An element of an
output depends only on the elements that it is computed from, never on strides, on the slice, or on what else the
program holds; `elementwise` says how. A reduction adds slices of a geometry that is a function of the shape of the box
alone, in an order that is a function of that shape and the reduced axes; its bits do not depend on what is fused, nor
on how many threads take slices (`threads`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from distarray.expr.instructions import Instruction, RuntimeScalar
from distarray.kernels.accumulators import partial_of
from distarray.kernels.elementwise import elementwise
from distarray.kernels.monoids import Partial, Within
from distarray.kernels.namespaces import Block
from distarray.kernels.outcomes import NOTHING, Called, ErrModes, Noted, Outcome, Reduction
from distarray.kernels.schedule import Call, remember
from distarray.kernels.sliced import aliased, run_in_slices
from distarray.types import DType, HostArray

#: A box of at most so many elements runs without slices and scratch: preparing these takes tens of microseconds.
WHOLE = 16_384
#: One call of a program that runs whole: which it is, function, first and second operand (-1: none), all operands if
#: they are more, and the registers that die with it: their memory serves the next results while it is in cache.
_WholeCall = tuple[Called, Callable[..., Any], int, int, tuple[int, ...] | None, tuple[int, ...]]
_CAST = Called("cast")


@dataclass(frozen=True)
class Program:
    """A Program is elementwise instructions, the registers to be stored in full, and reductions of registers.

    Parameters
    ----------
    n_inputs
        Number of input arrays.
    instructions
        In order; an operand is an input or the result of an earlier instruction.
    outputs
        Registers stored in full. Inputs are legal (they are copied), and so are repetitions.
    reductions
        Reduced registers.

    Attributes
    ----------
    schedules, layouts
        What earlier runs have found, by dtypes and by how the inputs come; layouts by shapes too. They are apart, since
        what is compiled is a schedule's.

    Examples
    --------
    >>> f8 = np.dtype("f8")
    >>> program = Program(2, (Instruction("multiply", (0, 1), f8), Instruction("add", (2, RuntimeScalar(0)), f8)), (3,))
    >>> program.run([np.arange(3.0), np.arange(3.0)], [10], (3,)).outputs
    [array([10., 11., 14.])]
    """

    n_inputs: int
    instructions: tuple[Instruction, ...]
    outputs: tuple[int, ...] = ()
    reductions: tuple[Reduction, ...] = ()
    schedules: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    layouts: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return shared_program, (self.n_inputs, self.instructions, self.outputs, self.reductions)

    def run(
        self,
        inputs: Sequence[Block],
        scalars: Sequence[Any],
        shape: tuple[int, ...],
        outs: Sequence[Block | None] | None = None,
        backend: Any = None,  # a `Backend`, which knows programs
        errstate: ErrModes | None = None,
        origin: Sequence[int] | None = None,
        extents: Sequence[int] | None = None,
    ) -> Outcome:
        """Run over a box of loops.

        Parameters
        ----------
        inputs
            Arrays that broadcast to `shape`; any strides. A 0-d array is a scalar with a dtype.
        scalars
            Values of the run-time scalars. Python's are weak: they take the dtype of the other operand.
        shape
            Extents of the box.
        outs
            Where to store the outputs; None, or None for one of them, allocates. An array may be strided, and may be
            an input exactly, element by element; it may not overlap one in any other way.
        backend
            Of the blocks; NumPy if None.
        errstate
            Modes as for ``numpy.errstate``. ``"raise"`` raises here; what would warn, print, log or call is returned
            as events. None leaves the state of this thread as it is.
        origin, extents
            Where the box begins in the whole loop space and the extents of that, for ``argmax`` and ``argmin``.
        """
        within = None if origin is None or extents is None else Within(origin, extents)
        if errstate is None:
            return self._run(inputs, scalars, shape, outs, backend, [NOTHING], within)
        noted = Noted(errstate)
        current = [NOTHING]
        with noted.by(current):
            outcome = self._run(inputs, scalars, shape, outs, backend, current, within, noted)
        if not noted.events:
            return outcome
        # Whoever came first said so first: in the order of the program they are the same each time.
        order = sorted(noted.events, key=lambda e: (e.number < 0, e.number, e.kind))
        return outcome._replace(events=tuple(order))

    def _run(
        self,
        inputs: Sequence[Block],
        scalars: Sequence[Any],
        shape: tuple[int, ...],
        outs: Sequence[Block | None] | None,
        backend: Any,
        current: list[Called],
        within: Within | None,
        noted: Noted | None = None,
    ) -> Outcome:
        if backend is not None and backend.name != "numpy":

            def partial(reduction: Reduction, block: Block) -> Partial | None:
                return partial_of(reduction, block, shape, within)

            return Outcome(
                *backend.run(self, inputs, scalars, shape, outs, partial, within or Within((0,) * len(shape), shape))
            )
        if outs is None:
            outs = [None] * len(self.outputs)
        if not self.outputs and not self.reductions:
            return Outcome([], [])
        if math.prod(shape) <= WHOLE:
            return self._run_whole(inputs, scalars, shape, outs, current, within)
        return run_in_slices(self, inputs, scalars, shape, outs, current, within, noted)

    def part(self, outputs: tuple[int, ...], reductions: Sequence[int]) -> Program:
        """Return the program that has some of the outputs and, by number, of the reductions of this one."""
        return shared_program(
            self.n_inputs, self.instructions, outputs, tuple([self.reductions[k] for k in reductions])
        )

    def computed(
        self,
        k: int,
        values: Mapping[int, HostArray],
        shape: tuple[int, ...],
        scalars: Sequence[Any],
        current: list[Called],
    ) -> HostArray:
        """Return what one instruction gives, of a shape of its own, from the values of the registers that it reads."""
        i = self.instructions[k]
        read = [x for x in i.inputs if not isinstance(x, RuntimeScalar)]
        operands = tuple(x if isinstance(x, RuntimeScalar) else read.index(x) for x in i.inputs)
        alone = Program(len(read), (Instruction(i.function, operands, i.dtype, i.params),), (len(read),))
        made: HostArray = alone._run([values[x] for x in read], scalars, shape, None, None, current, None).outputs[0]
        return made

    def _run_whole(
        self,
        inputs: Sequence[HostArray],
        scalars: Sequence[Any],
        shape: tuple[int, ...],
        outs: Sequence[HostArray | None],
        current: list[Called],
        within: Within | None,
    ) -> Outcome:
        """Run the one slice that covers the box: numpy's calls one after the other."""
        calls, needs_contiguous = self._whole(tuple([x.dtype for x in inputs]))
        registers: list[Any] = [*inputs, *([None] * len(calls)), *scalars]
        if needs_contiguous:
            for i, x in enumerate(inputs):
                if x.ndim and not (x.flags.c_contiguous and x.shape == shape):
                    registers[i] = np.array(np.broadcast_to(x, shape), order="C")
        n = len(inputs)
        for called, call, first, second, more, dead in calls:
            current[0] = called
            if second < 0:
                registers[n] = call(registers[first])
            elif more is None:
                registers[n] = call(registers[first], registers[second])
            else:
                registers[n] = call(*[registers[i] for i in more])
            for i in dead:
                registers[i] = None
            n += 1
        partials = []
        for k, reduction in enumerate(self.reductions, len(calls)):
            current[0] = Called("reduce", k)
            partials.append(partial_of(reduction, registers[reduction.register], shape, within))
        outputs: list[HostArray] = []
        current[0] = _CAST
        for r in self.outputs if len(outs) > 1 else ():
            if r < self.n_inputs and any(aliased(out, registers[r : r + 1]) for out in outs):
                registers[r] = registers[r].copy()  # before the storing of another output overwrites it
        for r, out in zip(self.outputs, outs, strict=True):
            result = registers[r]
            if out is not None:
                np.copyto(out, result)
                result = out
            elif not (
                type(result) is np.ndarray
                and r >= self.n_inputs
                and result.shape == shape
                and result.flags.c_contiguous
                and not any(result is other for other in outputs)
            ):
                # scalars, inputs, what is still to be broadcast, and numpy's "K" order
                result = np.array(np.broadcast_to(result, shape), order="C")
            outputs.append(result)
        return Outcome(outputs, partials)

    def _whole(self, dtypes: tuple[DType, ...]) -> tuple[list[_WholeCall], bool]:
        """Return the calls of `_run_whole` and whether their operands must be contiguous."""
        found = self.schedules.get(dtypes)
        if found is None:
            calls = self.calls(dtypes)
            last_use = {x: k for k, call in enumerate(calls) for x in call.operands}
            kept = {*self.outputs, *(r.register for r in self.reductions)}
            n_registers = self.n_inputs + len(calls)
            whole = []
            for k, (_, function, where, _, _) in enumerate(calls):
                dead = tuple(x for x in set(where) - kept if x < n_registers and last_use[x] == k)
                second, more = where[1] if len(where) > 1 else -1, where if len(where) > 2 else None
                whole.append((Called(function.name, k), function.call, where[0], second, more, dead))
            contiguous = bool(self.reductions) or not all(call.function.is_exact for call in calls)
            found = remember(self.schedules, dtypes, (whole, contiguous))
        return found  # type: ignore[no-any-return]

    def calls(self, dtypes: tuple[DType, ...]) -> list[Call]:
        """Return the instructions for inputs of given dtypes, operands as indices of a list of registers, then
        scalars.
        """
        found = self.schedules.get(("calls", dtypes))
        if found is None:
            of = [*dtypes, *(i.dtype for i in self.instructions)]
            found = []
            for k, i in enumerate(self.instructions):
                operands = tuple(None if isinstance(x, RuntimeScalar) else of[x] for x in i.inputs)
                function = elementwise(i.function, i.params, i.dtype, operands)
                entries = tuple(len(of) + x.index if isinstance(x, RuntimeScalar) else x for x in i.inputs)
                found.append(Call(self.n_inputs + k, function, entries, i.dtype, k))
            remember(self.schedules, ("calls", dtypes), found)
        return found

    @cached_property
    def is_rooted(self) -> bool:
        """Return whether every instruction has an operand that is not a scalar, so none is narrower than all inputs."""
        return all(any(not isinstance(x, RuntimeScalar) for x in i.inputs) for i in self.instructions)


@lru_cache(maxsize=512)
def shared_program(
    n_inputs: int, instructions: tuple[Instruction, ...], outputs: tuple[int, ...], reductions: tuple[Reduction, ...]
) -> Program:
    """Return the one program of this process that does this: it keeps its schedules, and what is compiled."""
    return Program(n_inputs, instructions, outputs, reductions)
