"""Compiled programs: what has come often is compiled by Numba beside the work, and then serves in place of the calls.

`Program` asks `compiled_for` at each run over several slices. From the third run on, when a program has spent
`ENOUGH_SECONDS`, a thread writes its source (`loop_code`) and compiles it; until then, and for ever where it cannot be
compiled, the interpreter runs. The bits are the interpreter's: slices, threads and accumulators stay as they are, and a
slice that raised a flag of the processor is run once more by the interpreter, which has numpy say what it was.

The source lies in the user's cache, in a file named by a hash of what is in it, with Numba's own cache beside it: later
processes load what they would compile.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import math
import os
import platform
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from distarray import config
from distarray.expr.instructions import Instruction, RuntimeScalar
from distarray.kernels.expressions import Generated, generate
from distarray.kernels.loop_code import LOOPS, source
from distarray.kernels.schedule import Call, Schedule

if TYPE_CHECKING:
    from distarray.kernels.program import Program

DType = np.dtype[Any]
Array = np.ndarray[Any, DType]

#: Runs and seconds of a program before it is compiled, which takes about as long.
ENOUGH_RUNS, ENOUGH_SECONDS = 3, 0.25
#: Where so many slices raised flags, and half of all, a compiled program is given up: it costs more than it wins.
MOST_FLAGGED = 8
#: A program of fewer instructions is a call or two of numpy, which are as fast.
LEAST_INSTRUCTIONS = 2
#: A slice whose inner axis is shorter is a matter of its outer loops.
SHORTEST_RUN = 64
#: Flags of the processor by the keys of numpy's state.
_INTEL, _ARM = {"invalid": 1, "divide": 4, "over": 8, "under": 16}, {"invalid": 1, "divide": 2, "over": 4, "under": 8}
_FLAGS: Mapping[str, Mapping[str, int]] = {"x86_64": _INTEL, "AMD64": _INTEL, "aarch64": _ARM, "arm64": _ARM}


class Run(Protocol):
    """A Run is what `program` knows of one run over several slices."""

    program: Program
    calls: list[Call]
    schedule: Schedule
    scalars: Sequence[Any]
    values: dict[int, Array]
    streams: list[tuple[int, Array]]
    slice: tuple[int, ...]
    is_aliased: bool


class _Layout(NamedTuple):
    """How the arrays of a run come, so far as the source of its slices depends on it.

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


class Compiled:
    """A Compiled is a program in one layout, on its way from the interpreter to machine code.

    Attributes
    ----------
    function
        What `loop_code.source` says, once it is compiled.
    targets
        Entries that the calls of a slice leave behind, and the register that each holds.
    """

    def __init__(self, run: Run, layout: _Layout) -> None:
        self.function: Callable[..., None] | None = None
        self.generated: Generated | None = None
        self.layout = layout
        self.targets = _targets(run)
        self._program = _rest_of(run, self.targets.values())
        self._n_runs, self._seconds, self._is_asked = 0, 0.0, False
        self._n_slices = self._n_flagged = 0

    def ran(self, seconds: float) -> None:
        """Count a run, and have the program compiled when that is due."""
        self._n_runs += 1
        self._seconds += seconds
        if not self._is_asked and self._n_runs >= ENOUGH_RUNS and self._seconds >= ENOUGH_SECONDS:
            self._is_asked = True
            COMPILER.ask(self)

    def compile(self) -> None:
        """Compile it, in the thread that calls; nothing happens to a program that has no source."""
        layout, steps = self.layout, dict(self.layout.steps)
        made = generate(self._program, tuple(d for _, d in layout.dtypes), layout.scalars, LOOPS)
        if made is None:
            return
        inputs = [steps.get(layout.dtypes[x][0], "s") for x in made.inputs]
        outputs = [steps.get(entry, "c") for entry in self.targets]  # scratch is contiguous
        self.generated = made
        self.function = _loaded(source(made, "".join([*inputs, *"s" * len(made.scalars), *outputs]), layout.ndim))

    def bound(self, run: Run, entries: list[Any]) -> BoundSlices | None:
        """Return what runs slices of a run in this thread; None if the interpreter does."""
        if self.function is None or self.generated is None:
            return None
        try:
            return BoundSlices(self, self.function, self.generated, run, entries)
        except (FloatingPointError, OverflowError):  # a scalar that does not fit: numpy says so
            return None

    def count(self, *, is_flagged: bool) -> None:
        """Count a slice; give up where most have raised flags."""
        self._n_slices += 1
        self._n_flagged += is_flagged
        if self._n_flagged >= MOST_FLAGGED and 2 * self._n_flagged > self._n_slices:
            self.function = None


class BoundSlices:
    """BoundSlices are a compiled program with the arrays of one run, in one thread."""

    def __init__(
        self, compiled: Compiled, function: Callable[..., None], generated: Generated, run: Run, entries: list[Any]
    ) -> None:
        self._compiled, self._function, self._entries = compiled, function, entries
        self._flags = flags = _flags()
        assert flags is not None
        modes: Mapping[str, Any] = dict(np.geterr())
        self._mask = sum(bit for kind, bit in flags.bits.items() if modes[kind] != "ignore")
        streams, dtypes = dict(run.streams), compiled.layout.dtypes
        with np.errstate(all="raise"):  # the table has the addresses of these
            self._scalars = [np.array(run.scalars[k], dtype) for k, dtype in generated.scalars]
        registers = [dtypes[x][0] for x in generated.inputs]
        read = [streams[r] if r in streams else run.values[r] for r in registers] + self._scalars
        self._table = np.zeros((len(read) + len(compiled.targets), 1 + 2 * compiled.layout.ndim), np.int64)
        rows = dict(zip(compiled.targets, self._table[len(read) :], strict=True))
        #: What is stored when the slice is done, since its place may be what is read.
        self._late = {
            e: np.empty(math.prod(run.slice), streams[e].dtype) for e in rows if e in streams and run.is_aliased
        }
        #: What lies in scratch, which is another one for slices of other extents.
        self._scratch = {entry: row for entry, row in rows.items() if entry not in streams or run.is_aliased}
        in_place = [(streams[entry], row) for entry, row in rows.items() if entry not in self._scratch]
        for a, row in [*zip(read, self._table, strict=False), *in_place]:
            if a.ndim:
                row[:] = a.ctypes.data, *a.strides, *a.strides
            else:
                row[0] = a.ctypes.data
        self._flat = self._table.reshape(-1)

    def resize(self, extents: tuple[int, ...]) -> None:
        """Go on with slices of other extents, for which the entries of scratch are set."""
        for entry, row in self._scratch.items():
            if entry in self._late:
                self._late[entry] = self._late[entry].reshape(-1)[: math.prod(extents)].reshape(extents)
            a = self._late.get(entry, self._entries[entry])
            row[0], row[-len(extents) :] = a.ctypes.data, a.strides

    def run(self, where: Any) -> bool:
        """Run a slice; return False where it raised a flag, and the interpreter is to run it."""
        flags, mask = self._flags, self._mask
        assert flags is not None
        boxes = (where,) if type(where) is slice else where
        flags.clear(mask)
        self._function(self._flat, *[n for s in boxes for n in (s.start, s.stop - s.start)])
        is_flagged = bool(flags.test(mask))
        self._compiled.count(is_flagged=is_flagged)
        if is_flagged:
            return False
        for entry, a in self._late.items():
            np.copyto(self._entries[entry], a)
        return True


def compiled_for(run: Run) -> Compiled | None:
    """Return the program of a run as it is compiled, now or later; None where the interpreter is as good."""
    if not is_on() or len(run.calls) < LEAST_INSTRUCTIONS or run.slice[-1] < SHORTEST_RUN:
        return None
    steps = []
    for entry, a in run.streams:
        stride = a.strides[-1]
        steps.append((entry, "c" if stride == a.itemsize else "x" if stride else "s"))
    dtypes = tuple([(r, x.dtype) for r, x in run.values.items()])
    layout = _Layout(dtypes, tuple(steps), tuple(map(type, run.scalars)), run.streams[0][1].ndim)
    known: dict[_Layout, Compiled | None] = run.schedule.compiled
    if layout not in known:
        known[layout] = Compiled(run, layout) if _is_compilable(run) else None
    return known[layout]


def is_on() -> bool:
    """Return whether programs are compiled in this process."""
    return bool(config.get("compiled")) and _has_compiler()


@cache
def _has_compiler() -> bool:
    return importlib.util.find_spec("numba") is not None and _flags() is not None


def _is_compilable(run: Run) -> bool:
    """Return whether all bits of a program are IEEE 754's, and no result is left out: numpy would warn of it."""
    program, streams = run.program, dict(run.streams)
    used = {x for call in run.calls for x in call.operands}
    used |= {*program.outputs, *(r.register for r in program.reductions)}
    places = zip(program.outputs, run.schedule.places, strict=True)
    made = {call.register: call.dtype for call in run.calls}
    return all(call.function.is_exact and call.register in used for call in run.calls) and all(
        made.get(r, streams[place].dtype) == streams[place].dtype for r, place in places
    )


def _targets(run: Run) -> dict[int, int]:
    late = {step.out: step.first for step in run.schedule.late}
    made = {late.get(p, p): r for r, p in zip(run.program.outputs, run.schedule.places, strict=True)}
    made |= {e: r.register for r, e in zip(run.program.reductions, run.schedule.reduced, strict=True)}
    return {entry: register for entry, register in made.items() if entry not in run.values}


def _rest_of(run: Run, stored: Iterable[int]) -> Program:
    """Return what the calls of a slice compute as a program, of the registers that have a value before."""
    program = run.program
    number = {r: k for k, r in enumerate([*run.values, *(call.register for call in run.calls)])}
    instructions = []
    for call in run.calls:
        i = program.instructions[call.register - program.n_inputs]
        operands = tuple(x if isinstance(x, RuntimeScalar) else number[x] for x in i.inputs)
        instructions.append(Instruction(i.function, operands, i.dtype, i.params))
    return type(program)(len(run.values), tuple(instructions), tuple(number[r] for r in stored))


# --------------------------------------------------------------------------------------------------- the compiler


class Compiler:
    """The Compiler is a thread that compiles what it is asked for, one after the other, and ends when all is done.

    Attributes
    ----------
    n_compiled
        Programs.
    failures
        What went wrong with others: the interpreter runs them.
    """

    def __init__(self) -> None:
        self.n_compiled = 0
        self.failures: list[str] = []
        self._asked: deque[Compiled] = deque()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def ask(self, compiled: Compiled) -> None:
        """Have a program compiled, later."""
        with self._lock:
            self._asked.append(compiled)
            if self._thread is None or not self._thread.is_alive():
                # No daemon: the process must not end in the middle of LLVM.
                self._thread = threading.Thread(target=self._work, name="distarray-compiler", daemon=False)
                self._thread.start()

    def wait(self) -> None:
        """Wait until all is compiled that was asked for: for tests and measurements."""
        while (thread := self._thread) is not None:
            thread.join()

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._asked or not threading.main_thread().is_alive():
                    self._asked.clear()
                    self._thread = None
                    return
                compiled = self._asked.popleft()
            try:
                compiled.compile()
                self.n_compiled += compiled.function is not None
            except Exception as error:  # whatever a compiler may say: the interpreter goes on
                self.failures.append(f"{type(error).__name__}: {error}")


#: The one of this process.
COMPILER = Compiler()


def _loaded(text: str) -> Callable[..., None]:
    """Return the function of a source, which is compiled if no process did so before."""
    name = f"distarray_{hashlib.sha256(text.encode()).hexdigest()[:32]}"
    path = _folder() / f"{name}.py"
    if not path.is_file() or path.read_text() != text:
        written = path.with_suffix(f".{os.getpid()}")
        written.write_text(text)
        os.replace(written, path)  # at once: another process may read it
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.slice_of  # type: ignore[no-any-return]  # a function of numba


@cache
def _folder() -> Path:
    """Return the folder of sources: one of the user, or of this process where that cannot be written."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "distarray" / "compiled"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
    except OSError:
        pass
    return Path(tempfile.mkdtemp(prefix="distarray-compiled-"))


class _Flags(NamedTuple):
    """Functions of C for the processor's flags, and the flags by numpy's names."""

    clear: Callable[[int], int]
    test: Callable[[int], int]
    bits: Mapping[str, int]


@cache
def _flags() -> _Flags | None:
    """Return the flags of this thread's processor; None where they are not known."""
    bits = _FLAGS.get(platform.machine())
    try:
        library = ctypes.PyDLL(None)  # keeps the interpreter's lock: a call is shorter than to give it back
        return None if bits is None else _Flags(library.feclearexcept, library.fetestexcept, bits)
    except (OSError, TypeError, AttributeError):
        return None
