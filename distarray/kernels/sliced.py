"""Runs in slices: a program over a box of loops, one slice that fits the cache after the other.

`Program.run` comes here where a box is not small. All instructions run on one slice before the next one is begun, in
scratch that is reused; a chain of any length so reads its inputs once and writes its outputs once, and reductions run
in the same pass. Here it is decided what is computed before, which slices there are and in which order, and how many
threads take them; `schedule` decides the calls of a slice, and of a program that comes often `compiled` makes them one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from distarray.expr.broadcasting import broadcast_shapes
from distarray.expr.instructions import RuntimeScalar
from distarray.kernels.accumulators import InOrder, accumulator, is_turnable, takes_rows
from distarray.kernels.buffers import POOL
from distarray.kernels.compiled import compiled_for
from distarray.kernels.expressions import Computation
from distarray.kernels.monoids import MONOIDS, Within
from distarray.kernels.outcomes import NOTHING, Called, Noted, Outcome, reduction_cost
from distarray.kernels.schedule import Call, Schedule, Scheduler, Scratch, SliceState, perform, remember
from distarray.kernels.slices import (
    axes_by_stride,
    boxes,
    crossed_extents,
    is_across,
    narrowed,
    reduced_extents,
    turned,
)
from distarray.kernels.threads import HELPED, SharedWork, run_parts, threads_for, threads_for_cost
from distarray.types import DType, HostArray

#: Elements of a slice of a box that is reduced. Part of the meaning of a sum: another number, other bits.
REDUCED_SLICE = 131_072
#: At most so many where nothing is computed beside and the bits of the results do not depend on the slices.
LARGEST_REDUCED_SLICE = 1 << 20
#: Bounds of the elements of other slices, and the bytes that all live slices of one pass should fit in.
SMALLEST_SLICE, LARGEST_SLICE, CACHE_NBYTES = 8_192, 1 << 18, 1 << 21
#: Slices for each thread where the cache asks for none: one may be late.
PER_THREAD = 2
#: A narrow register has at most a fourth of the elements of the box: it is computed at its own shape.
NARROW = 4
#: Where the inner axis is shorter than this, a broadcast operand is written out once, not broadcast by each call.
SHORT_RUN = 64
#: Index and extents of a slice of a box.
_Slice: TypeAlias = tuple[Any, tuple[int, ...]]


class Sliceable(Computation, Protocol):
    """A Sliceable is what runs in slices: a `Program`, which says what each of these is."""

    @property
    def schedules(self) -> dict[Any, Any]: ...
    @property
    def layouts(self) -> dict[Any, Any]: ...
    @property
    def is_rooted(self) -> bool: ...
    def calls(self, dtypes: tuple[DType, ...]) -> list[Call]: ...
    def part(self, outputs: tuple[int, ...], reductions: Sequence[int]) -> Sliceable: ...
    def computed(
        self,
        k: int,
        values: Mapping[int, HostArray],
        shape: tuple[int, ...],
        scalars: Sequence[Any],
        current: list[Called],
    ) -> HostArray: ...


def run_in_slices(
    program: Sliceable,
    inputs: Sequence[HostArray],
    scalars: Sequence[Any],
    shape: tuple[int, ...],
    outs: Sequence[HostArray | None],
    current: list[Called],
    within: Within | None,
    noted: Noted | None,
) -> Outcome:
    """Run a program over a box in as few passes as its reductions allow; the arguments are those of `Program`."""
    if len({r.axes for r in program.reductions}) < 2:
        every = range(len(program.reductions))
        return SlicedRun(program, inputs, scalars, shape, outs, current, within, noted, every).run()
    first, *others = _parted(program, shape)
    partials: list[Any] = [None] * len(program.reductions)
    outcome = Outcome([], [])
    for own in (*others, first):  # that with the outputs is the last, since what is stored may overwrite what is read
        outputs, places = (program.outputs, outs) if own is first else ((), ())
        part = program.part(outputs, own)
        outcome = SlicedRun(part, inputs, scalars, shape, places, current, within, noted, own).run()
        for k, partial in zip(own, outcome.partials, strict=True):
            partials[k] = partial
    return outcome._replace(partials=partials)


def _parted(program: Sliceable, shape: tuple[int, ...]) -> list[list[int]]:
    """Return the reductions, by number, that can run in one pass: those of which slices of other extents would be
    added up have one of their own.
    """
    found: dict[tuple[int, ...], list[int]] = {}
    anywhere = []
    for k, r in enumerate(program.reductions):
        if MONOIDS[r.monoid].is_ordered(r.dtype):
            found.setdefault(reduced_extents(shape, r.axes, REDUCED_SLICE), []).append(k)
        else:
            anywhere.append(k)
    first, *others = found.values() or [[]]
    return [sorted([*first, *anywhere]), *others]


def aliased(out: HostArray | None, inputs: Sequence[HostArray]) -> tuple[int, ...]:
    """Return which of the inputs may share memory with an output."""
    return () if out is None else tuple([i for i, x in enumerate(inputs) if np.may_share_memory(out, x)])


class _Layout(NamedTuple):
    """A _Layout is how a program runs over contiguous arrays of one shape, as a `SlicedRun` of them has found it."""

    calls: list[Call]
    n_threads: int
    extents: tuple[int, ...]
    box: tuple[int, ...]
    slice: tuple[int, ...]
    schedule: Schedule
    used: list[int]


class SlicedRun:
    """A SlicedRun is one run of a program over a box of several slices.

    Registers are a list of entries: inputs, results, scalars, then what the schedule adds. For each slice the entries
    of arrays are set to views, then the steps of the schedule are calls on entries.

    `own` are the numbers that its reductions have in the program of which this is a pass.
    """

    schedule: Schedule
    box: tuple[int, ...]
    slice: tuple[int, ...]
    extents: tuple[int, ...] = ()
    #: Axes of the shape in the order in which the box has them, where that is another one and there are reductions.
    order: tuple[int, ...] | None = None

    def __init__(
        self,
        program: Sliceable,
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
        self.reductions = program.reductions
        self.dtypes = [*(x.dtype for x in inputs), *(i.dtype for i in program.instructions)]
        self.outputs = [
            POOL.take(shape, self.dtypes[r]) if out is None else out
            for r, out in zip(program.outputs, outs, strict=True)
        ]
        #: By output, the inputs that it may be.
        self.aliases = tuple([aliased(out, inputs) for out in outs])
        self.values: dict[int, HostArray] = {}  # by register: inputs, and what is computed before the slices
        self.calls: list[Call] = []  # the rest
        forms = {(x.shape, x.flags.c_contiguous, 0 in x.strides) for x in (*inputs, *self.outputs)}
        is_plain = forms == {(shape, True, False)} and program.is_rooted
        dtypes = *self.dtypes, *[out.dtype for out in self.outputs]
        key = dtypes, shape, self.aliases, threads_for(HELPED), len(scalars)
        layout: _Layout | None = program.layouts.get(key) if is_plain else None
        if layout is None:
            self._compute_narrow(inputs)
            self.n_threads = self._find_threads()
            used, arrays = self._lay_out()
            if is_plain and self.order is None:
                found = self.calls, self.n_threads, self.extents, self.box, self.slice, self.schedule
                remember(program.layouts, key, _Layout(*found, used))
        else:
            self.calls, self.n_threads, self.extents, self.box, self.slice, self.schedule, used = layout
            self.values = {x: inputs[x] for x in used}
            arrays = [*self.values.values(), *self.outputs]
        if len(self.box) == 1:
            arrays = [a.reshape(-1) for a in arrays]
        self.streams = list(zip([*used, *self.schedule.places], arrays, strict=True))
        box = shape if self.order is None else tuple([shape[axis] for axis in self.order])
        self.accumulators = [accumulator(r, box, self.extents, self.order) for r in self.reductions]
        self.compiled = compiled_for(self)

    def _compute_narrow(self, inputs: Sequence[HostArray]) -> None:
        """Compute what is small because its operands are broadcast: ``exp(v[:, None])`` beside a matrix."""
        program, full = self.program, math.prod(self.shape)
        calls = program.calls(tuple(self.dtypes[: len(inputs)]))
        for i, x in enumerate(inputs):
            self.values[i] = x if x.shape == self.shape and all(x.strides) else narrowed(x)
        shapes = [x.shape for x in self.values.values()]
        if all(shape == self.shape for shape in shapes) and program.is_rooted:
            self.calls = calls
            return
        for k, instruction in enumerate(program.instructions):
            own = broadcast_shapes(*(shapes[x] for x in instruction.inputs if not isinstance(x, RuntimeScalar)))
            shapes.append(own)
            register = program.n_inputs + k
            if math.prod(own) * NARROW > full:
                self.calls.append(calls[k])
                continue
            # The operands of a narrow instruction are no wider, so all of them have a value.
            with nullcontext() if self.noted is None else self.noted.of(k):
                self.values[register] = program.computed(k, self.values, own, self.scalars, self.current)

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
            # All that round have the same slices (`_parted`).
            ordered = [r.axes for r in program.reductions if MONOIDS[r.monoid].is_ordered(r.dtype)]
            axes = (ordered or [program.reductions[0].axes])[0]
            self.box, self.slice = self.shape, reduced_extents(self.shape, axes, self._reduced_budget())
            arrays = self._turn(arrays)
            self.extents = self.slice
        else:
            arrays, self.box = axes_by_stride(arrays, self.shape)
            nbytes = sum(a.itemsize for a in arrays) + 2 * max((c.dtype.itemsize for c in self.calls), default=0)
            budget = max(SMALLEST_SLICE, min(LARGEST_SLICE, CACHE_NBYTES // nbytes // 1024 * 1024))
            self.slice = crossed_extents(arrays, self.box, budget)
        box = self.box
        first = tuple(slice(e) for e in self.slice)
        cut = [axis for axis, (e, n) in enumerate(zip(self.slice, box, strict=True)) if e < n]
        shortest = min(self.slice[-1], box[-1] % self.slice[-1] or self.slice[-1]) if box else 1
        states = []
        for a in arrays:
            # Later slices may be thinner, never fatter: what is contiguous here is contiguous there.
            is_contiguous = a[first].flags.c_contiguous
            is_fixed = not any(a.strides[axis] for axis in cut)
            expand = (is_fixed and not is_contiguous and box[-1] < SHORT_RUN) or (
                self.order is None and is_across(a[first])
            )
            has_rows = a.strides[-1:] == (a.itemsize,) and shortest >= SHORT_RUN
            states.append(SliceState(a.dtype, is_contiguous, is_fixed, expand, has_rows))
        given: dict[int, SliceState | None] = dict.fromkeys(self.values)
        given |= dict(zip(streamed, states, strict=False))
        places = states[len(streamed) :]
        reduced = [(r.register, takes_rows(r, len(box))) for r in self.reductions]
        key = (tuple(given.items()), tuple(places), self.aliases, tuple(reduced))
        found = program.schedules.get(key)
        if found is None:
            n_entries = len(self.dtypes) + len(self.scalars)
            scan = Scheduler(self.calls, given, program.outputs, places, reduced, n_entries, self.aliases)
            found = scan.schedule()
            remember(program.schedules, key, found)
        self.schedule = found
        if not program.reductions and self._needs_no_cache(arrays):
            n = self.n_threads
            self.slice = (-(-box[0] // (n if n == 1 else PER_THREAD * n)),)
        self._flatten(arrays)
        return streamed, arrays

    def _turn(self, arrays: list[HostArray]) -> list[HostArray]:
        """Let the slices have long rows where they had short ones and no bit depends on it; return the arrays so."""
        program, box = self.program, self.box
        turnable = [is_turnable(r, box, self.dtypes[r.register]) for r in program.reductions]
        if not self.calls or program.outputs or not all(turnable):
            return arrays
        cut = [axis for axis, (e, n) in enumerate(zip(self.slice, box, strict=True)) if e < n]
        # What is the same in all slices is written out once (`SliceState.expand`).
        order = turned([a for a in arrays if not cut or any(a.strides[axis] for axis in cut)], self.slice)
        if order is None:
            return arrays
        self.order = order
        self.box, self.slice = tuple([box[axis] for axis in order]), tuple([self.slice[axis] for axis in order])
        place = {axis: k for k, axis in enumerate(order)}
        self.reductions = tuple([replace(r, axes=tuple([place[axis] for axis in r.axes])) for r in program.reductions])
        return [a.transpose(order) for a in arrays]

    def _reduced_budget(self) -> int:
        """Return the elements of a slice that is reduced; of a sum they are part of its meaning: the shape decides."""
        if self.calls or any(MONOIDS[r.monoid].is_ordered(r.dtype) for r in self.program.reductions):
            return REDUCED_SLICE
        n = math.prod(self.shape)
        return max(REDUCED_SLICE, min(LARGEST_REDUCED_SLICE, n // (4 * self.n_threads)))

    def _needs_no_cache(self, arrays: Sequence[HostArray]) -> bool:
        """Return whether each slice is one call along memory as it lies, with nothing beside: long copies go past the
        cache.
        """
        return (
            len(self.calls) < 2
            and not self.schedule.slots
            and not any(call.function.makes_more for call in self.calls)
            and all(a.ndim == 1 and a.flags.c_contiguous for a in arrays)
        )

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
        current = [NOTHING]
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
        reduced = {r.axes for r in self.reductions}
        if len(reduced) != 1:
            return axes
        (inner,) = reduced
        return tuple(axis for axis in axes if axis not in inner) + inner
