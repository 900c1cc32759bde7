"""Programs: elementwise functions and reductions over one box of loops, run slice by slice in cache.

The elementwise part of a stage is a `Program`: instructions over registers. `Program.run` cuts the box into slices that
fit the cache and runs all instructions on one slice before it goes on to the next, in scratch that is reused. A chain
of any length so reads its inputs once and writes its outputs once, and reductions run in the same pass. Of a program
that comes often the calls of a slice are compiled to one (`compiled`).

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
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from distarray.expr.broadcasting import broadcast_shapes
from distarray.expr.instructions import Instruction, RuntimeScalar
from distarray.kernels.accumulators import InOrder, accumulator, partial_of, takes_rows
from distarray.kernels.buffers import POOL
from distarray.kernels.compiled import compiled_for
from distarray.kernels.elementwise import elementwise
from distarray.kernels.monoids import MONOIDS, Partial, Within
from distarray.kernels.namespaces import Block
from distarray.kernels.outcomes import Called, ErrModes, Noted, Outcome, Reduction, reduction_cost
from distarray.kernels.schedule import Call, Schedule, Scheduler, Scratch, SliceState, perform
from distarray.kernels.slices import axes_by_stride, boxes, crossed_extents, is_across, narrowed, reduced_extents
from distarray.kernels.threads import HELPED, SharedWork, run_parts, threads_for, threads_for_cost
from distarray.types import DType, HostArray

#: Elements of a slice of a box that is reduced. Part of the meaning of a sum: another number, other bits.
REDUCED_SLICE = 131_072
#: At most so many where nothing is computed beside and the bits of the results do not depend on the slices.
LARGEST_REDUCED_SLICE = 1 << 20
#: A box of at most so many elements runs without slices and scratch: preparing these takes tens of microseconds.
WHOLE = 16_384
#: Bounds of the elements of other slices, and the bytes that all live slices of one pass should fit in.
SMALLEST_SLICE, LARGEST_SLICE, CACHE_NBYTES = 8_192, 1 << 18, 1 << 21
#: Slices for each thread where the cache asks for none: one may be late.
PER_THREAD = 2
#: A narrow register has at most a fourth of the elements of the box: it is computed at its own shape.
NARROW = 4
#: One call of a program that runs whole: which it is, function, first and second operand (-1: none), all operands if
#: they are more, and the registers that die with it: their memory serves the next results while it is in cache.
_WholeCall = tuple[Called, Callable[..., Any], int, int, tuple[int, ...] | None, tuple[int, ...]]
#: Index and extents of a slice of a box.
_Slice: TypeAlias = tuple[Any, tuple[int, ...]]
#: Where the inner axis is shorter than this, a broadcast operand is written out once, not broadcast by each call.
SHORT_RUN = 64
#: Schedules kept per program, and layouts, which differ by shapes too: apart, since what is compiled is a schedule's.
MAX_SCHEDULES = 64
_NOTHING, _CAST = Called(""), Called("cast")


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
    _schedules: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    _layouts: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

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
            return self._run(inputs, scalars, shape, outs, backend, [_NOTHING], within)
        noted = Noted(errstate)
        current = [_NOTHING]
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
        with_outputs, *others = self._parted(shape)
        partials: list[Any] = [None] * len(self.reductions)
        for own in others:  # first, since what is stored may overwrite what is read
            program = self._with((), own)
            found = _SlicedRun(program, inputs, scalars, shape, [], current, within, noted, own).run()
            for k, part in zip(own, found.partials, strict=True):
                partials[k] = part
        program = self._with(self.outputs, with_outputs) if others else self
        outcome = _SlicedRun(program, inputs, scalars, shape, outs, current, within, noted, with_outputs).run()
        for k, part in zip(with_outputs, outcome.partials, strict=True):
            partials[k] = part
        return outcome._replace(partials=partials)

    def _parted(self, shape: tuple[int, ...]) -> list[list[int]]:
        """Return the reductions, by number, that can run in one pass: those of which slices of other extents would be
        added up have one of their own.
        """
        if len({r.axes for r in self.reductions}) < 2:
            return [list(range(len(self.reductions)))]
        found: dict[tuple[int, ...], list[int]] = {}
        anywhere = []
        for k, r in enumerate(self.reductions):
            if MONOIDS[r.monoid].is_ordered(r.dtype):
                found.setdefault(reduced_extents(shape, r.axes, REDUCED_SLICE), []).append(k)
            else:
                anywhere.append(k)
        first, *others = found.values() or [[]]
        return [sorted([*first, *anywhere]), *others]

    def _with(self, outputs: tuple[int, ...], reductions: Sequence[int]) -> Program:
        """Return the program that has some of the outputs and reductions of this one."""
        return shared_program(
            self.n_inputs, self.instructions, outputs, tuple([self.reductions[k] for k in reductions])
        )

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
            if r < self.n_inputs and any(_aliases(out, registers[r : r + 1]) for out in outs):
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
        found = self._schedules.get(dtypes)
        if found is None:
            calls = self._calls(dtypes)
            last_use = {x: k for k, call in enumerate(calls) for x in call.operands}
            kept = {*self.outputs, *(r.register for r in self.reductions)}
            n_registers = self.n_inputs + len(calls)
            whole = []
            for k, (_, function, where, _, _) in enumerate(calls):
                dead = tuple(x for x in set(where) - kept if x < n_registers and last_use[x] == k)
                second, more = where[1] if len(where) > 1 else -1, where if len(where) > 2 else None
                whole.append((Called(function.name, k), function.call, where[0], second, more, dead))
            contiguous = bool(self.reductions) or not all(call.function.is_exact for call in calls)
            found = _remember(self._schedules, dtypes, (whole, contiguous))
        return found  # type: ignore[no-any-return]

    def _calls(self, dtypes: tuple[DType, ...]) -> list[Call]:
        """Return the instructions for inputs of given dtypes, operands as indices of a list of registers, then
        scalars.
        """
        found = self._schedules.get(("calls", dtypes))
        if found is None:
            of = [*dtypes, *(i.dtype for i in self.instructions)]
            found = []
            for k, i in enumerate(self.instructions):
                operands = tuple(None if isinstance(x, RuntimeScalar) else of[x] for x in i.inputs)
                function = elementwise(i.function, i.params, i.dtype, operands)
                entries = tuple(len(of) + x.index if isinstance(x, RuntimeScalar) else x for x in i.inputs)
                found.append(Call(self.n_inputs + k, function, entries, i.dtype, k))
            _remember(self._schedules, ("calls", dtypes), found)
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


def _remember(known: dict[Any, Any], key: Any, value: Any) -> Any:
    if len(known) >= MAX_SCHEDULES:
        known.clear()
    known[key] = value
    return value


def _aliases(out: HostArray | None, inputs: Sequence[HostArray]) -> tuple[int, ...]:
    return () if out is None else tuple([i for i, x in enumerate(inputs) if np.may_share_memory(out, x)])


class _Layout(NamedTuple):
    """A _Layout is how a program runs over contiguous arrays of one shape, as a `_SlicedRun` of them has found it."""

    calls: list[Call]
    n_threads: int
    extents: tuple[int, ...]
    box: tuple[int, ...]
    slice: tuple[int, ...]
    schedule: Schedule
    used: list[int]


class _SlicedRun:
    """A _SlicedRun is one run of a program over a box of several slices.

    Registers are a list of entries: inputs, results, scalars, then what the schedule adds. For each slice the entries
    of arrays are set to views, then the steps of the schedule are calls on entries.

    `own` are the numbers that its reductions have in the program of which this is a pass.
    """

    schedule: Schedule
    box: tuple[int, ...]
    slice: tuple[int, ...]
    extents: tuple[int, ...] = ()

    def __init__(
        self,
        program: Program,
        inputs: Sequence[HostArray],
        scalars: Sequence[Any],
        shape: tuple[int, ...],
        outs: Sequence[HostArray | None],
        current: list[Called],
        within: Within | None,
        noted: Noted | None,
        own: Sequence[int],
    ) -> None:
        self.program = program
        self.reduces = [Called("reduce", len(program.instructions) + k) for k in own]
        self.shape = shape
        self.current = current
        self.noted = noted
        self.within = Within((0,) * len(shape), shape) if within is None else within
        self.scalars = scalars
        self.dtypes = [*(x.dtype for x in inputs), *(i.dtype for i in program.instructions)]
        self.outputs = [
            POOL.take(shape, self.dtypes[r]) if out is None else out
            for r, out in zip(program.outputs, outs, strict=True)
        ]
        #: By output, the inputs that it may be.
        self.aliases = tuple([_aliases(out, inputs) for out in outs])
        self.values: dict[int, HostArray] = {}  # by register: inputs, and what is computed before the slices
        self.calls: list[Call] = []  # the rest
        forms = {(x.shape, x.flags.c_contiguous, 0 in x.strides) for x in (*inputs, *self.outputs)}
        is_plain = forms == {(shape, True, False)} and program.is_rooted
        dtypes = *self.dtypes, *[out.dtype for out in self.outputs]
        key = dtypes, shape, self.aliases, threads_for(HELPED), len(scalars)
        layout: _Layout | None = program._layouts.get(key) if is_plain else None
        if layout is None:
            self._compute_narrow(inputs)
            self.n_threads = self._find_threads()
            used, arrays = self._lay_out()
            if is_plain:
                found = self.calls, self.n_threads, self.extents, self.box, self.slice, self.schedule
                _remember(program._layouts, key, _Layout(*found, used))
        else:
            self.calls, self.n_threads, self.extents, self.box, self.slice, self.schedule, used = layout
            self.values = {x: inputs[x] for x in used}
            arrays = [*self.values.values(), *self.outputs]
        if len(self.box) == 1:
            arrays = [a.reshape(-1) for a in arrays]
        self.streams = list(zip([*used, *self.schedule.places], arrays, strict=True))
        self.accumulators = [accumulator(r, shape, self.extents) for r in program.reductions]
        self.compiled = compiled_for(self)

    def _compute_narrow(self, inputs: Sequence[HostArray]) -> None:
        """Compute what is small because its operands are broadcast: ``exp(v[:, None])`` beside a matrix."""
        program, full = self.program, math.prod(self.shape)
        calls = program._calls(tuple(self.dtypes[: len(inputs)]))
        for i, x in enumerate(inputs):
            self.values[i] = x if x.shape == self.shape and all(x.strides) else narrowed(x)
        shapes = [x.shape for x in self.values.values()]
        if all(shape == self.shape for shape in shapes) and program.is_rooted:
            self.calls = calls
            return
        for k, instruction in enumerate(program.instructions):
            operands = [x for x in instruction.inputs if not isinstance(x, RuntimeScalar)]
            own = broadcast_shapes(*(shapes[x] for x in operands))
            shapes.append(own)
            register = program.n_inputs + k
            if math.prod(own) * NARROW > full:
                self.calls.append(calls[k])
                continue
            # The operands of a narrow instruction are no wider, so all of them have a value.
            alone = Instruction(
                instruction.function,
                tuple(x if isinstance(x, RuntimeScalar) else operands.index(x) for x in instruction.inputs),
                instruction.dtype,
                instruction.params,
            )
            single = Program(len(operands), (alone,), (len(operands),))
            arrays = [self.values[x] for x in operands]
            with nullcontext() if self.noted is None else self.noted.of(k):
                found = single._run(arrays, self.scalars, own, None, None, self.current, None, None)
            self.values[register] = found.outputs[0]

    def _lay_out(self) -> tuple[list[int], list[HostArray]]:
        """Choose axes, slices and schedule; return the registers that are read, and their and the outputs' arrays."""
        program = self.program
        used = {x for call in self.calls for x in call.operands}
        used |= {*program.outputs, *(r.register for r in program.reductions)}
        self.values = {x: v for x, v in self.values.items() if x in used}
        streamed = [x for x, v in self.values.items() if v.ndim]
        arrays = [self.values[x] for x in streamed]
        arrays = [v if v.shape == self.shape else np.broadcast_to(v, self.shape) for v in arrays]
        arrays += self.outputs
        if program.reductions:
            # All that round have the same slices (`Program._parted`).
            ordered = [r.axes for r in program.reductions if MONOIDS[r.monoid].is_ordered(r.dtype)]
            axes = (ordered or [program.reductions[0].axes])[0]
            self.box, self.slice = self.shape, reduced_extents(self.shape, axes, self._reduced_budget())
            self.extents = self.slice
        else:
            arrays, self.box = axes_by_stride(arrays, self.shape)
            self.slice = crossed_extents(arrays, self.box, self._budget(arrays))
        box = self.box
        first = tuple(slice(e) for e in self.slice)
        cut = [axis for axis, (e, n) in enumerate(zip(self.slice, box, strict=True)) if e < n]
        shortest = min(self.slice[-1], box[-1] % self.slice[-1] or self.slice[-1]) if box else 1
        states = []
        for a in arrays:
            # Later slices may be thinner, never fatter: what is contiguous here is contiguous there.
            is_contiguous = a[first].flags.c_contiguous
            is_fixed = not any(a.strides[axis] for axis in cut)
            expand = (is_fixed and not is_contiguous and box[-1] < SHORT_RUN) or is_across(a[first])
            has_rows = a.strides[-1:] == (a.itemsize,) and shortest >= SHORT_RUN
            states.append(SliceState(a.dtype, is_contiguous, is_fixed, expand, has_rows))
        given: dict[int, SliceState | None] = dict.fromkeys(self.values)
        given |= dict(zip(streamed, states, strict=False))
        places = states[len(streamed) :]
        key = (tuple(given.items()), tuple(places), self.aliases)
        found = program._schedules.get(key)
        if found is None:
            reduced = [(r.register, takes_rows(r, len(box))) for r in program.reductions]
            n_entries = len(self.dtypes) + len(self.scalars)
            scan = Scheduler(self.calls, given, program.outputs, places, reduced, n_entries, self.aliases)
            found = scan.schedule()
            _remember(program._schedules, key, found)
        self.schedule = found
        self._flatten(arrays)
        return streamed, arrays

    def _reduced_budget(self) -> int:
        """Return the elements of a slice that is reduced; of a sum they are part of its meaning: the shape decides."""
        if self.calls or any(MONOIDS[r.monoid].is_ordered(r.dtype) for r in self.program.reductions):
            return REDUCED_SLICE
        n = math.prod(self.shape)
        return max(REDUCED_SLICE, min(LARGEST_REDUCED_SLICE, n // (4 * self.n_threads)))

    def _budget(self, arrays: Sequence[HostArray]) -> int:
        """Return the elements of a slice, such that what is alive at one time fits the cache; a call along memory as it
        lies is in no need of one, and long copies go past it.
        """
        if self._needs_no_scratch() and all(a.ndim == 1 and a.flags.c_contiguous for a in arrays):
            n = self.n_threads
            return -(-math.prod(self.shape) // (n if n == 1 else PER_THREAD * n))
        nbytes = sum(a.itemsize for a in arrays) + 2 * max((c.dtype.itemsize for c in self.calls), default=0)
        return max(SMALLEST_SLICE, min(LARGEST_SLICE, CACHE_NBYTES // nbytes // 1024 * 1024))

    def _needs_no_scratch(self) -> bool:
        """Return whether each slice of contiguous arrays is one call that writes the output, and makes nothing else."""
        functions = [call.function for call in self.calls]
        is_stored = any(r in self.values for r in self.program.outputs)  # and copied before an output overwrites it
        may_alias = not any(self.aliases) or (any(f.has_inplace for f in functions) and not is_stored)
        if len(functions) > 1 or not may_alias or any(f.makes_more for f in functions):
            return False
        return all(self.dtypes[r] == out.dtype for r, out in zip(self.program.outputs, self.outputs, strict=True))

    def _find_threads(self) -> int:
        """Return how many threads can work at the slices."""
        cost = sum([call.function.cost for call in self.calls])
        cost += sum([reduction_cost(self.dtypes[r.register]) for r in self.program.reductions])
        if not self.calls:
            cost += sum([2 * self.dtypes[r].itemsize for r in self.program.outputs])
        return threads_for_cost(math.prod(self.shape) * cost)

    def run(self) -> Outcome:
        """Run all slices, in this thread and in those that help; return the outputs and the partials."""
        reducing = list(zip(self.accumulators, self.reduces, strict=True))
        in_order, slices = InOrder(reducing), SharedWork(self._slices())
        n_slices = math.prod(-(-n // e) for n, e in zip(self.box, self.slice, strict=True))
        n = min(self.n_threads, n_slices)
        started = time.perf_counter()
        if n < 2:
            self._take(slices, in_order, self.current)
        else:
            mine, others = lambda: self._take(slices, in_order, self.current), lambda: self._help(slices, in_order)
            run_parts([mine, *[others] * (n - 1)])
        slices.check()
        if self.compiled is not None:
            self.compiled.ran(time.perf_counter() - started)
        return Outcome(self.outputs, [a.result() for a, self.current[0] in reducing])

    def _help(self, slices: SharedWork[_Slice], in_order: InOrder) -> None:
        """Take slices, in another thread as a rule."""
        current = [_NOTHING]
        with nullcontext() if self.noted is None else self.noted.by(current):
            self._take(slices, in_order, current)

    def _take(self, slices: SharedWork[_Slice], in_order: InOrder, current: list[Called]) -> None:
        """Run slices until there are no more, or one raises something."""
        made = self.schedule
        entries: list[Any] = [None] * made.n_entries
        for x, v in self.values.items():
            entries[x] = v
        first_scalar = len(self.dtypes)
        entries[first_scalar : first_scalar + len(self.scalars)] = self.scalars
        places = list(zip(self.accumulators, made.reduced, self.reduces, strict=True))
        streams, fixed, steps, late = self.streams, made.fixed, made.steps, made.late
        scratch = Scratch(made, self.slice)
        compiled = None if self.compiled is None else self.compiled.bound(self, entries)
        extents: tuple[int, ...] | None = None
        number = -1
        try:
            for number, (where, now) in slices:
                for entry, array in streams:
                    entries[entry] = array[where]
                if now != extents:
                    extents = now
                    scratch.fill(entries, extents)
                    perform(fixed, entries, current)
                    if compiled is not None:
                        compiled.resize(extents)
                if compiled is None or not compiled.run(where):
                    perform(steps, entries, current)
                if places:
                    partials = [a.partial(entries[entry], where, self.within) for a, entry, current[0] in places]
                    in_order.add(number, partials, where, current)
                if late:
                    perform(late, entries, current)
        except Exception as error:
            slices.fail(number, error)
        scratch.give_back()

    def _flatten(self, arrays: Sequence[HostArray]) -> None:
        """Walk a box whose slices are consecutive in all arrays as one axis: the same slices, with less to do."""
        if (
            len(self.box) > 1
            and all(a.flags.c_contiguous for a in arrays)
            and all(r.is_total(self.shape) for r in self.program.reductions)
        ):
            # Axes before the last one that is cut are walked step by step.
            cut = max((axis for axis, (e, n) in enumerate(zip(self.slice, self.box, strict=True)) if e < n), default=0)
            if math.prod(self.box[:cut]) == 1 or self.box[cut] % self.slice[cut] == 0:
                self.box, self.slice = (math.prod(self.box),), (math.prod(self.slice),)

    def _slices(self) -> Iterator[_Slice]:
        """Yield the index and extents of each slice in turn."""
        if len(self.box) > 1:
            for box in boxes(self.box, self.slice, self._order()):
                yield box, tuple([s.stop - s.start for s in box])
            return
        (n,), (e,) = self.box, self.slice
        extents = (e,)
        whole = n - n % e
        for start in range(0, whole, e):
            yield slice(start, start + e), extents
        if whole < n:
            yield slice(whole, n), (n - whole,)

    def _order(self) -> tuple[int, ...]:
        """Return the loops over slices from outermost to innermost.

        Kept axes are outermost if all reductions keep the same ones, so that one accumulator is in cache at a time.
        Reduced axes are walked in ascending order in any case: the order is part of the meaning of a sum.
        """
        axes = tuple(range(len(self.box)))
        reduced = {r.axes for r in self.program.reductions}
        if len(reduced) != 1:
            return axes
        (inner,) = reduced
        return tuple(axis for axis in axes if axis not in inner) + inner
