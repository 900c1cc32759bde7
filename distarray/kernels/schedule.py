"""From calls on registers to steps on scratch: what one slice of a program runs.

`sliced` makes a schedule once for each way that inputs can come (dtypes, contiguous or not, broadcast or not) and runs
it for every slice. Scratch is given out by a linear scan over the calls, so a chain of any length needs two or three
slices of it. Operands of functions that are not exact, and registers that are reduced, are copied to contiguous scratch
first if they are not contiguous: see `elementwise`.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from distarray.kernels.buffers import ALIGNMENT
from distarray.kernels.elementwise import Elementwise
from distarray.kernels.outcomes import Called
from distarray.kernels.slices import copy_out
from distarray.types import DType, HostArray

#: Schedules kept per program, and as many layouts.
MAX_SCHEDULES = 64


class SliceState(NamedTuple):
    """A SliceState says how a slice of an array comes.

    Attributes
    ----------
    dtype
        Of the array.
    is_contiguous
        All slices are contiguous in the order of the loops.
    is_fixed
        All slices of one shape have the same elements.
    expand
        Better copied out once than broadcast by every call.
    has_rows
        The last axis is contiguous and long: what is added up along other axes may be read as it lies.
    """

    dtype: DType
    is_contiguous: bool
    is_fixed: bool = False
    expand: bool = False
    has_rows: bool = False


class Call(NamedTuple):
    """A Call is ``registers[register] = function(*operands)``, an instruction of some number; operands are indices of
    registers and scalars.
    """

    register: int
    function: Elementwise
    operands: tuple[int, ...]
    dtype: DType
    number: int


class Step(NamedTuple):
    """A Step is one call per slice. Arity is spelled out because the loop over the steps is the overhead of a
    program.
    """

    called: Called
    call: Callable[..., Any]
    first: int
    second: int  # -1 if there is none
    more: tuple[int, ...] | None  # all operands, if they are more than two
    out: int


@dataclass
class Schedule:
    """A Schedule is steps over a list of entries.

    Attributes
    ----------
    n_entries
        Length of the list: registers, scalars, then what the schedule adds.
    fixed, steps, late
        Run when the shape of the slice changes; for every slice before the reductions; after them.
    scratch
        (entry, dtype, slot) of every entry that lies in scratch.
    slots
        Bytes per element of each slot.
    places
        Entry of each output.
    reduced
        Entry of each reduced register.
    compiled
        What `compiled` keeps of it.
    """

    n_entries: int
    fixed: list[Step] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    late: list[Step] = field(default_factory=list)
    scratch: list[tuple[int, DType, int]] = field(default_factory=list)
    slots: list[int] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    reduced: list[int] = field(default_factory=list)
    compiled: dict[Any, Any] = field(default_factory=dict)


class Scheduler:
    """A Scheduler finds the steps of one slice, in a linear scan over the calls.

    Parameters
    ----------
    calls
        In order.
    given
        Registers that have a value before the first call. None: a 0-d array, good as any operand as it is.
    outputs, places
        Registers to be stored, and how the arrays come where they are stored.
    reduced
        Registers that are reduced, and whether rows of them are added up: see `SliceState.has_rows`.
    n_entries
        Number of registers and scalars.
    aliases
        By output, in their order, the given registers that it may be, element by element: nothing is stored in it
        while these are still to be read.
    """

    def __init__(
        self,
        calls: Sequence[Call],
        given: Mapping[int, SliceState | None],
        outputs: Sequence[int],
        places: Sequence[SliceState],
        reduced: Sequence[tuple[int, bool]],
        n_entries: int,
        aliases: Sequence[Sequence[int]],
    ) -> None:
        self.calls, self.given, self.outputs, self.places = calls, given, outputs, places
        self.reduced, self.aliases = reduced, aliases
        self.made = Schedule(n_entries + len(outputs), places=list(range(n_entries, n_entries + len(outputs))))
        self.home = {register: register for register in given}  # entry where the value of a register lies
        self.contiguous = {r for r, state in given.items() if state is None or state.is_contiguous}  # entries
        self.dtype = {r: state.dtype for r, state in given.items() if state is not None}
        self.dtype |= {c.register: c.dtype for c in calls}
        self.copies: dict[int, int] = {}  # entry of the contiguous copy of a register
        self.slot: dict[int, int] = {}  # of an entry that lies in scratch
        self.free: list[int] = []
        self.last_use = {c.register: t for t, c in enumerate(calls)}
        self.last_use |= {x: t for t, c in enumerate(calls) for x in c.operands}
        read_at_end = [register for register, _ in reduced] + [r for r in outputs if r in given]
        self.last_use |= dict.fromkeys(read_at_end, len(calls))
        self.read_until = [max([self.last_use.get(x, -1) for x in own], default=-1) for own in aliases]  # by output
        made_at = dict.fromkeys(given, len(calls)) | {c.register: t for t, c in enumerate(calls)}
        #: Outputs that are stored when all is read.
        self.last = [k for k, r in enumerate(outputs) if r in given or self.read_until[k] > made_at[r]]
        self.last_use |= dict.fromkeys([outputs[k] for k in self.last], len(calls))

    def schedule(self) -> Schedule:
        """Return the steps."""
        for register, state in self.given.items():
            if state is not None and state.expand:
                self._copy(register)
        for t, call in enumerate(self.calls):
            self._call(t, call)
        self.made.reduced = [
            self.home[register] if by_rows and self._has_rows(register) else self._contiguous(register)
            for register, by_rows in self.reduced
        ]
        for k in self.last:
            register = self.outputs[k]
            if register not in self.copies and any(register in own for own in self.aliases):
                self._copy(register)  # before the storing of another output overwrites it
            entry = self.copies.get(register, self.home[register])
            self.made.late.append(_copy_step(entry, self.made.places[k]))
        return self.made

    def _call(self, t: int, call: Call) -> None:
        function = call.function
        operands = []
        for x in call.operands:
            if x not in self.home:  # a scalar
                operands.append(x)
            elif function.is_exact:
                operands.append(self.copies.get(x, self.home[x]))
            else:
                operands.append(self._contiguous(x))
        stored = [k for k, r in enumerate(self.outputs) if r == call.register and k not in self.last]
        dying = {
            x
            for x in (*call.operands, call.register)
            if self.last_use[x] == t and (x in self.home or x == call.register)
        }
        if stored and self._is_direct(t, call, stored[0]):
            entry = self.made.places[stored.pop(0)]
        else:
            entry = self._scratch(call, dying)
        self.home[call.register] = entry
        more = tuple(operands) if len(operands) > 2 else None
        second = operands[1] if len(operands) > 1 else -1
        self.made.steps.append(
            Step(Called(function.name, call.number), function.call, operands[0], second, more, entry)
        )
        self.made.steps.extend(_copy_step(entry, self.made.places[k]) for k in stored)
        for x in dying:
            self._release(self.home[x])
            if x in self.copies:
                self._release(self.copies.pop(x))

    def _is_direct(self, t: int, call: Call, k: int) -> bool:
        """Return whether the result may be computed where it is stored as an output."""
        place = self.places[k]
        if place.dtype != call.dtype or not (call.function.is_exact or place.is_contiguous):
            return False
        if self.read_until[k] == t and not call.function.has_inplace:
            return False
        if place.is_contiguous:
            self.contiguous.add(self.made.places[k])
        return True

    def _has_rows(self, register: int) -> bool:
        state = self.given.get(register)
        return state is not None and state.has_rows

    def _contiguous(self, register: int) -> int:
        """Return the entry of a contiguous array with the values of a register."""
        if register in self.copies:
            return self.copies[register]
        home = self.home[register]
        return home if home in self.contiguous else self._copy(register)

    def _copy(self, register: int) -> int:
        state = self.given.get(register)
        is_fixed = state is not None and state.is_fixed
        slot = self._new_slot(self.dtype[register]) if is_fixed else self._slot(self.dtype[register])
        entry = self.copies[register] = self._entry(self.dtype[register], slot)
        if is_fixed:
            del self.slot[entry]  # it outlives the slice: its slot is never free again
        (self.made.fixed if is_fixed else self.made.steps).append(_copy_step(self.home[register], entry))
        return entry

    def _scratch(self, call: Call, dying: set[int]) -> int:
        """Return an entry in scratch for a result: in place of an operand that dies, if it can be."""
        if call.function.has_inplace:
            for x in dying - {call.register}:
                entry = self.home[x]
                if entry in self.slot and self.dtype[x] == call.dtype:
                    return self._entry(call.dtype, self.slot.pop(entry))
        return self._entry(call.dtype, self._slot(call.dtype))

    def _entry(self, dtype: DType, slot: int) -> int:
        entry = self.made.n_entries
        self.made.n_entries += 1
        self.made.scratch.append((entry, dtype, slot))
        self.slot[entry] = slot
        self.contiguous.add(entry)
        return entry

    def _slot(self, dtype: DType) -> int:
        if not self.free:
            return self._new_slot(dtype)
        # the one that fits best; of equals the last used, which is in the nearest cache
        best = min(reversed(self.free), key=lambda s: abs(self.made.slots[s] - dtype.itemsize))
        self.free.remove(best)
        self.made.slots[best] = max(self.made.slots[best], dtype.itemsize)
        return best

    def _new_slot(self, dtype: DType) -> int:
        self.made.slots.append(dtype.itemsize)
        return len(self.made.slots) - 1

    def _release(self, entry: int) -> None:
        slot = self.slot.pop(entry, None)
        if slot is not None:
            self.free.append(slot)


def _copy_step(source: int, target: int) -> Step:
    return Step(Called("cast"), copy_out, source, -1, None, target)


def remember(known: dict[Any, Any], key: Any, value: Any) -> Any:
    """Return a value, after it is put into what a program knows: all of that is forgotten where it is too much."""
    if len(known) >= MAX_SCHEDULES:
        known.clear()
    known[key] = value
    return value


def perform(steps: Sequence[Step], entries: list[Any], current: list[Called]) -> None:
    """Run steps on a list of entries, and say in `current` what is called."""
    for called, call, first, second, more, out in steps:
        current[0] = called
        if more is not None:
            call(*[entries[i] for i in more], out=entries[out])
        elif second < 0:
            call(entries[first], out=entries[out])
        else:
            call(entries[first], entries[second], out=entries[out])


class Scratch:
    """A Scratch is memory for the slots of a schedule, kept by each thread from run to run."""

    _local = threading.local()

    def __init__(self, made: Schedule, extents: tuple[int, ...]) -> None:
        n = math.prod(extents)
        self.made = made
        self.starts: list[int] = []
        end = 0
        for i, itemsize in enumerate(made.slots):
            self.starts.append(end)
            # An odd number of lines apart: slots a multiple of 4 KiB apart would share sets of the cache.
            end += -(-n * itemsize // ALIGNMENT) * ALIGNMENT + ALIGNMENT * (2 * i + 1)
        # Taken out while in use: a run inside a run of the same thread makes its own.
        memory = self._local.__dict__.pop("memory", None)
        if memory is None or memory.nbytes < end + ALIGNMENT:
            memory = np.empty(end + ALIGNMENT, np.uint8)
        self.memory: HostArray = memory
        self.offset = -memory.ctypes.data % ALIGNMENT if made.slots else 0

    def fill(self, entries: list[Any], extents: tuple[int, ...]) -> None:
        """Set the entries in scratch to arrays of the extents of a slice."""
        n = math.prod(extents)
        for entry, dtype, slot in self.made.scratch:
            start = self.offset + self.starts[slot]
            entries[entry] = self.memory[start : start + n * dtype.itemsize].view(dtype).reshape(extents)

    def give_back(self) -> None:
        self._local.memory = self.memory
