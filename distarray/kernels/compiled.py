"""Compiled programs: what has come often is one loop nest of machine code, in place of the calls of each slice.

`sliced` asks `compiled_for` at each run over several slices, and calls `BoundSlices.run` in place of the steps of a
slice once the program is compiled (`compiler`). The bits are the interpreter's: slices, threads, accumulators and what
is stored when stay as they are, and a slice that raised a flag of the processor is run once more by the interpreter,
which has numpy say what it was. So a compiled slice overwrites nothing that it reads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, NamedTuple, Protocol

import numpy as np

from distarray.expr.instructions import Instruction, RuntimeScalar
from distarray.kernels.compiler import Candidate, flags, is_on, loaded
from distarray.kernels.expressions import Computation, Generated, generate
from distarray.kernels.loop_code import LOOPS, is_folded, source, unseen
from distarray.kernels.outcomes import Reduction
from distarray.kernels.schedule import Call, Schedule
from distarray.types import DType, HostArray

#: A slice whose inner axis is shorter is a matter of its outer loops.
SHORTEST_RUN = 64


class RunOfSlices(Protocol):
    """A RunOfSlices is what `sliced` knows of one run over several slices."""

    @property
    def program(self) -> Computation: ...

    calls: list[Call]
    schedule: Schedule
    scalars: Sequence[Any]
    values: dict[int, HostArray]
    streams: list[tuple[int, HostArray]]
    slice: tuple[int, ...]
    aliases: tuple[tuple[int, ...], ...]


class CompiledLayout(NamedTuple):
    """A CompiledLayout is how the arrays of a run come, so far as the source of its slices depends on it.

    Attributes
    ----------
    dtypes
        Of the registers that have a value before the first call.
    steps
        By entry, how an array goes along the last axis: see `loop_code.source`.
    scalars
        Types of the run-time scalars.
    ndim
        Axes of the box.
    """

    dtypes: tuple[tuple[int, DType], ...]
    steps: tuple[tuple[int, str], ...]
    scalars: tuple[type, ...]
    ndim: int


class SliceComputation(NamedTuple):
    """A SliceComputation is what the calls of a slice compute, of registers that have a value before."""

    n_inputs: int
    instructions: tuple[Instruction, ...]
    outputs: tuple[int, ...]
    reductions: tuple[Reduction, ...] = ()


class Compiled(Candidate):
    """A Compiled is a program in one layout, on its way from the interpreter to machine code.

    Attributes
    ----------
    targets
        What it stores: see `_targets`.
    """

    def __init__(self, run: RunOfSlices, layout: CompiledLayout) -> None:
        super().__init__()
        self.generated: Generated | None = None
        self.layout = layout
        self.targets = _targets(run)
        self._program = _rest_of(run, self.targets.values())

    def compile(self) -> None:
        """Compile it, in the thread that calls; nothing happens to a program that has no source."""
        layout, steps = self.layout, dict(self.layout.steps)
        made = generate(self._program, tuple(d for _, d in layout.dtypes), layout.scalars, LOOPS)
        if made is None or is_folded(self._program):
            return
        inputs = [steps.get(layout.dtypes[x][0], "s") for x in made.inputs]
        outputs = [steps.get(entry, "c") for entry in self.targets]  # scratch is contiguous
        text = "".join([*inputs, *"s" * len(made.scalars), *outputs])
        self.generated = made
        self.function = loaded(source(made, text, layout.ndim, unseen(self._program)))

    def bound(self, run: RunOfSlices, entries: list[Any]) -> BoundSlices | None:
        """Return what runs slices of a run in this thread; None if the interpreter does."""
        if self.function is None or self.generated is None:
            return None
        try:
            return BoundSlices(self, self.function, self.generated, run, entries)
        except (FloatingPointError, OverflowError):  # a scalar that does not fit: numpy says so
            return None


class BoundSlices:
    """BoundSlices are a compiled program with the arrays of one run, in one thread."""

    def __init__(
        self,
        compiled: Compiled,
        function: Callable[..., None],
        generated: Generated,
        run: RunOfSlices,
        entries: list[Any],
    ) -> None:
        self._compiled, self._function, self._entries = compiled, function, entries
        found = flags()
        assert found is not None
        self._flags, self._mask = found, found.heeded()
        with np.errstate(all="raise"):  # the table has the addresses of these
            self._scalars = [np.array(run.scalars[k], dtype) for k, dtype in generated.scalars]
        streams, (dtypes, *_, ndim) = dict(run.streams), compiled.layout
        registers = [dtypes[x][0] for x in generated.inputs]
        read = [streams[r] if r in streams else run.values[r] for r in registers]
        #: What is stored when the slice is done, since its place may be what is read; of the largest extents.
        self._beside: dict[int, HostArray] = {}
        #: Rows of what lies in scratch, which is another one for slices of other extents.
        self._scratch: list[tuple[int, int]] = []
        rows = [_row(a, ndim) for a in (*read, *self._scalars)]
        aliased = {entry for entry, own in zip(run.schedule.places, run.aliases, strict=True) if own}
        for entry in compiled.targets:
            if entry in streams and entry not in aliased:
                rows.append(_row(streams[entry], ndim))
                continue
            if entry in streams:
                self._beside[entry] = np.empty(math.prod(run.slice), streams[entry].dtype)
            self._scratch.append((entry, len(rows)))
            rows.append([0] * (1 + 2 * ndim))
        self._rows = np.array(rows, np.int64)
        self._table, self._late = self._rows.reshape(-1), self._beside

    def resize(self, extents: tuple[int, ...]) -> None:
        """Go on with slices of other extents, for which the entries of scratch are set."""
        n = math.prod(extents)
        self._late = {entry: a[:n].reshape(extents) for entry, a in self._beside.items()}
        for entry, row in self._scratch:
            a = self._late.get(entry, self._entries[entry])
            self._rows[row, 0], self._rows[row, -len(extents) :] = a.ctypes.data, a.strides

    def run(self, where: Any) -> bool:
        """Run a slice; return False where it raised a flag, and the interpreter is to run it."""
        boxes = (where,) if type(where) is slice else where
        extents = [n for s in boxes for n in (s.start, s.stop - s.start)]
        if not self._compiled.run(self._function, self._flags, self._mask, self._table, *extents):
            return False
        for entry, a in self._late.items():
            np.copyto(self._entries[entry], a)
        return True


def _row(a: HostArray, ndim: int) -> list[int]:
    """Return the row of the table for an array along the box, or for one element."""
    return [a.ctypes.data, *a.strides, *a.strides] if a.ndim else [a.ctypes.data] + [0] * (2 * ndim)


def compiled_for(run: RunOfSlices) -> Compiled | None:
    """Return the program of a run as it is compiled, now or later; None where the interpreter is as good."""
    if not (run.calls and run.streams and is_on()) or run.slice[-1] < SHORTEST_RUN:
        return None
    steps = []
    for entry, a in run.streams:
        stride = a.strides[-1]
        steps.append((entry, "c" if stride == a.itemsize else "x" if stride else "s"))
    if len(run.calls) == 1 and all(step == "c" for _, step in steps):
        return None  # one call of numpy along contiguous rows
    dtypes = tuple([(r, x.dtype) for r, x in run.values.items()])
    layout = CompiledLayout(dtypes, tuple(steps), tuple(map(type, run.scalars)), run.streams[0][1].ndim)
    known: dict[CompiledLayout, Compiled | None] = run.schedule.compiled
    if layout not in known:
        known[layout] = Compiled(run, layout) if _is_compilable(run) else None
    return known[layout]


def _is_compilable(run: RunOfSlices) -> bool:
    """Return whether all bits of a program are IEEE 754's, and no result is left out: numpy would warn of it."""
    program, streams = run.program, dict(run.streams)
    used = {x for call in run.calls for x in call.operands}
    used |= {*program.outputs, *(r.register for r in program.reductions)}
    places = zip(program.outputs, run.schedule.places, strict=True)
    made = {call.register: call.dtype for call in run.calls}
    return (
        all(_order(run, call) and call.register in used for call in run.calls)
        and all(made.get(r, streams[place].dtype) == streams[place].dtype for r, place in places)
        and all(a.dtype.isnative for a in (*run.values.values(), *streams.values()))
    )


def _order(run: RunOfSlices, call: Call) -> int:
    """Return the order in which a call's operands are written, 1 or -1; 0 if its bits are not known."""
    if call.function.is_exact:
        return 1
    if call.function.name not in ("maximum", "minimum") or call.dtype.kind != "f" or len(call.operands) != 2:
        return 0
    given = [run.values.get(x) for x in call.operands]
    made = {c.register: c.dtype for c in run.calls}
    forms = []
    for x, value in zip(call.operands, given, strict=True):
        is_scalar = x not in made and (value is None or not value.ndim)
        dtype = call.dtype if is_scalar else made[x] if value is None else value.dtype
        if dtype != call.dtype:
            return 0
        forms.append(is_scalar)
    return _chosen_zero(call.function.name, call.dtype, tuple(forms))


@cache
def _chosen_zero(name: str, dtype: DType, are_scalars: tuple[bool, ...]) -> int:
    """Return which of two zeros of unlike sign numpy's kernel takes: 1 the first, as the table does, -1 the second.

    IEEE 754 leaves it open, and so do processors; 0 if it is not always the same one.
    """
    found = set()
    for signs in ((0.0, -0.0), (-0.0, 0.0)):
        operands = [dtype.type(z) if is_s else np.full(1024, z, dtype) for z, is_s in zip(signs, are_scalars)]
        negative = np.signbit(getattr(np, name)(*operands, out=np.empty(1024, dtype)))
        matches = [bool((negative == np.signbit(z)).all()) for z in signs]
        found.add(1 if matches[0] else -1 if matches[1] else 0)
    return found.pop() if len(found) == 1 else 0


def _targets(run: RunOfSlices) -> dict[int, int]:
    """Return the entries that the calls of a slice leave behind, and the register that each holds."""
    late = {step.out: step.first for step in run.schedule.late}
    made = {late.get(p, p): r for r, p in zip(run.program.outputs, run.schedule.places, strict=True)}
    made |= {e: r.register for r, e in zip(run.program.reductions, run.schedule.reduced, strict=True)}
    return {entry: register for entry, register in made.items() if entry not in run.values}


def _rest_of(run: RunOfSlices, stored: Iterable[int]) -> SliceComputation:
    """Return what the calls of a slice compute."""
    program = run.program
    number = {r: k for k, r in enumerate([*run.values, *(call.register for call in run.calls)])}
    instructions = []
    for call in run.calls:
        i = program.instructions[call.register - program.n_inputs]
        operands = tuple(x if isinstance(x, RuntimeScalar) else number[x] for x in i.inputs)[:: _order(run, call)]
        instructions.append(Instruction(i.function, operands, i.dtype, i.params))
    return SliceComputation(len(run.values), tuple(instructions), tuple(number[r] for r in stored))
