"""The compiler: a thread beside the work that has Numba compile what has come often, and keeps it on disk.

A `Candidate` is compiled from its third run on, when it has spent `ENOUGH_SECONDS`: programs (`compiled`), moments
(`compiled_moments`). Until then, and for ever where it cannot be compiled, numpy's functions do the work. Compiled code
raises flags of the processor where numpy would warn: whoever calls it clears and tests them (`flags`), and has numpy do
once more what raised one.

A source lies in the user's cache, in a file named by a hash of what is in it, with Numba's own cache beside it: later
processes load what they would compile.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
import platform
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from distarray import hooks
from distarray.forks import in_child

#: Runs and seconds before something is compiled, which takes about as long.
ENOUGH_RUNS, ENOUGH_SECONDS = 3, 0.25
#: Where so many slices raised flags, and half of all, compiled code is given up: it costs more than it wins.
MOST_FLAGGED = 8
#: Flags of the processor by the keys of numpy's state.
_INTEL, _ARM = {"invalid": 1, "divide": 4, "over": 8, "under": 16}, {"invalid": 1, "divide": 2, "over": 4, "under": 8}
_FLAGS: Mapping[str, Mapping[str, int]] = {"x86_64": _INTEL, "AMD64": _INTEL, "aarch64": _ARM, "arm64": _ARM}


class Candidate:
    """A Candidate is compiled when it has come often and spent enough.

    Attributes
    ----------
    function
        What `compile` has made; None before, and where it was given up.
    n_slices, n_flagged
        How many slices it computed, and how many of them raised a flag.
    """

    def __init__(self) -> None:
        self.function: Callable[..., None] | None = None
        self.n_slices = self.n_flagged = 0
        self._n_runs, self._seconds, self._is_asked = 0, 0.0, False

    def compile(self) -> None:
        """Set `function`; where there is no source, leave it as it is."""
        raise NotImplementedError

    def ran(self, seconds: float) -> None:
        """Count a run, and have it compiled when that is due."""
        self._n_runs += 1
        self._seconds += seconds
        if not self._is_asked and self._n_runs >= ENOUGH_RUNS and self._seconds >= ENOUGH_SECONDS:
            self._is_asked = True
            COMPILER.ask(self)

    def run(self, function: Callable[..., None], found: ProcessorFlags, mask: int, *args: Any) -> bool:
        """Call compiled code for a slice; return False where it raised a flag of a mask, and numpy has to do it once
        more. Given up where most have.
        """
        found.clear(mask)
        function(*args)
        is_flagged = bool(found.test(mask))
        self.n_slices += 1
        self.n_flagged += is_flagged
        if self.n_flagged >= MOST_FLAGGED and 2 * self.n_flagged > self.n_slices:
            self.function = None
        return not is_flagged


def is_on() -> bool:
    """Return whether anything is compiled in this process."""
    return _has_compiler() and COMPILER.is_usable and (hooks.may_compile is None or hooks.may_compile())


@cache
def _has_compiler() -> bool:
    return importlib.util.find_spec("numba") is not None and flags() is not None


class Compiler:
    """The Compiler is a thread that compiles what it is asked for, one after the other, and ends when all is done.

    Attributes
    ----------
    n_compiled
        How much is compiled.
    failures
        What went wrong with others: numpy's functions do what they would.
    is_usable
        False in a process that was forked while another one compiled: locks of Numba and of imports may be held there
        by a thread that this process does not have.
    """

    def __init__(self) -> None:
        self.is_usable = True
        self.n_compiled = 0
        self.failures: list[str] = []
        self._asked: deque[Candidate] = deque()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    @property
    def is_this_thread(self) -> bool:
        """Return whether the thread that asks is the one that compiles beside the work."""
        return threading.current_thread() is self._thread

    def ask(self, candidate: Candidate) -> None:
        """Have something compiled, later."""
        with self._lock:
            self._asked.append(candidate)
            if self._thread is None or not self._thread.is_alive():
                # No daemon: the process must not end in the middle of LLVM.
                self._thread = threading.Thread(target=self._work, name="distarray-compiler", daemon=False)
                self._thread.start()

    def forked(self) -> None:
        """Begin anew in a process that was forked."""
        self.is_usable &= self._thread is None
        self._lock, self._thread = threading.Lock(), None
        self._asked.clear()

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
                candidate = self._asked.popleft()
            try:
                candidate.compile()
                self.n_compiled += candidate.function is not None
            except Exception as error:  # whatever a compiler may say: the interpreter goes on
                self.failures.append(f"{type(error).__name__}: {error}")


#: The one of this process.
COMPILER = Compiler()
in_child(COMPILER.forked)


def loaded(text: str) -> Callable[..., None]:
    """Return the function ``compiled`` of a source, which is compiled if no process did so before."""
    name = f"distarray_{hashlib.sha256(text.encode()).hexdigest()[:32]}"
    path = _folder() / f"{name}.py"
    if not path.is_file() or path.read_text() != text:
        written = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
        written.write_text(text)
        os.replace(written, path)  # at once: others may read it
    if COMPILER.is_this_thread:
        _compile_beside(path)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not hasattr(module.compiled, "signatures"):
        raise RuntimeError("Numba compiles nothing here: NUMBA_DISABLE_JIT is set")
    return module.compiled  # type: ignore[no-any-return]  # a function of numba


def _compile_beside(path: Path) -> None:
    """Have another process compile a source into Numba's cache, once.

    Numba changes the filters of warnings while it compiles, which Python has for all threads: a warning that the user
    catches meanwhile would be lost.
    """
    done = path.with_suffix(f".{sys.implementation.cache_tag}")
    if done.exists() or not sys.executable:
        return
    code = f"import sys; sys.path[:] = {[str(path.parent), *sys.path]!r}; import {path.stem}"
    # A session of its own: Ctrl-C is for this process.
    found = subprocess.run(
        [sys.executable, "-c", code], stdin=subprocess.DEVNULL, capture_output=True, start_new_session=True, check=False
    )
    if found.returncode:
        raise RuntimeError(found.stderr.decode(errors="replace").strip().rpartition("\n")[2])
    done.touch()


@cache
def _folder() -> Path:
    """Return the folder of sources: Numba's, if that is said, the user's, or one of this process if none can be
    written.
    """
    try:
        cache = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        folder = Path(cache) / "distarray" / "compiled"
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
    except (OSError, RuntimeError):  # the latter where there is no home
        pass
    return Path(_own_folder().name)


@cache
def _own_folder() -> tempfile.TemporaryDirectory[str]:
    """Return a folder that is deleted when the process ends."""
    return tempfile.TemporaryDirectory(prefix="distarray-compiled-", ignore_cleanup_errors=True)


class ProcessorFlags(NamedTuple):
    """ProcessorFlags are functions of C for the flags of this thread, and the flags by numpy's names."""

    clear: Callable[[int], int]
    test: Callable[[int], int]
    bits: Mapping[str, int]

    def heeded(self) -> int:
        """Return the flags of which numpy would tell in its state of this thread."""
        modes: Mapping[str, Any] = dict(np.geterr())
        return sum(bit for kind, bit in self.bits.items() if modes[kind] != "ignore")


@cache
def flags() -> ProcessorFlags | None:
    """Return the flags of this thread's processor; None where they are not known."""
    bits = _FLAGS.get(platform.machine())
    try:
        library = ctypes.PyDLL(None)  # keeps the interpreter's lock: a call is shorter than to give it back
        return None if bits is None else ProcessorFlags(library.feclearexcept, library.fetestexcept, bits)
    except (OSError, TypeError, AttributeError):
        return None
