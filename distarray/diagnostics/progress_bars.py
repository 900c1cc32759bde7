"""Progress as it is shown: a thread looks at the board of work a few times a second, and draws what it says.

The thread runs while somebody wants to see it (`Shown`), and lets nobody wait: work goes on while it draws.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from time import monotonic
from types import MappingProxyType
from typing import Any, Protocol, TextIO

from distarray.arguments import choice
from distarray.forks import free_in_child
from distarray.lazy import loaded
from distarray.runtime.interrupts import interrupts_deferred
from distarray.runtime.progress import Board, Look, put_up, take_down
from distarray.tables import format_nbytes, format_seconds

#: Seconds between looks; that work takes before it is shown, and a plan.
LOOK_SECONDS, SHOWN_SECONDS, PLANNING_SECONDS = 0.25, 0.5, 1.0
#: Seconds between lines where they cannot be rewritten, as in the log of a batch job.
LOG_SECONDS = 10.0
#: Within which the thread ends: it may be asking a cluster that does not answer.
END_SECONDS = 2.0


def text_of(look: Look) -> str:
    """Return what a look says, on one line; nothing where there is nothing to say yet.

    >>> text_of(Look(8.0, None, 2, 10, 3 << 20))
    '2 of 10 steps, 3 MiB moved, 8 s, about 32 s left'
    >>> text_of(Look(2.0, 2.0, 0, 0, 0))
    'planning for 2 s'
    """
    parts = []
    if look.planning is not None and look.planning >= PLANNING_SECONDS:
        parts.append(f"planning for {format_seconds(look.planning)}")
    if look.n_steps:
        parts.append(f"{look.n_done} of {look.n_steps} steps")
        if look.nbytes:
            parts.append(f"{format_nbytes(look.nbytes)} moved")
        parts.append(format_seconds(look.seconds))
        if look.seconds_left is not None:
            parts.append(f"about {format_seconds(look.seconds_left)} left")
    return ", ".join(parts)


class Bar(Protocol):
    """A Bar draws looks, each in the place of the one before."""

    def draw(self, look: Look, text: str) -> None:
        """Show a look."""

    def clear(self) -> None:
        """Show nothing."""


class PlainBar:
    """A PlainBar is one line of text, written again and again; where that cannot be, a new line now and then."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._is_rewritten = file.isatty() or is_notebook()
        self._width = 0
        self._written = -LOG_SECONDS

    def draw(self, look: Look, text: str) -> None:
        if self._is_rewritten:
            self._write(f"\r{text.ljust(self._width)}")
            self._width = len(text)
        elif monotonic() - self._written >= LOG_SECONDS:
            self._written = monotonic()
            self._write(f"{text}\n")

    def clear(self) -> None:
        if self._width:
            self._write(f"\r{' ' * self._width}\r")
            self._width = 0

    def _write(self, text: str) -> None:
        self._file.write(text)
        self._file.flush()


class _LibraryBar:
    """A _LibraryBar is a bar of a library, made when there is something to draw."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._bar: Any = None

    def clear(self) -> None:
        if self._bar is not None:
            self._end()
            self._bar = None

    def _end(self) -> None:
        raise NotImplementedError


class RichBar(_LibraryBar):
    """A RichBar is one of ``rich``."""

    def draw(self, look: Look, text: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        if self._bar is None:
            # What the program prints meanwhile is its own: rich would take it over, from this thread.
            options: dict[str, Any] = {"redirect_stdout": False, "redirect_stderr": False}
            options |= {"auto_refresh": False, "transient": True, "console": Console(file=self._file)}
            self._bar = Progress(BarColumn(), TextColumn("{task.description}"), **options)
            self._task = self._bar.add_task("")
            self._bar.start()
        self._bar.update(self._task, description=text, completed=look.n_done, total=look.n_steps or None)
        self._bar.refresh()

    def _end(self) -> None:
        self._bar.stop()


class TqdmBar(_LibraryBar):
    """A TqdmBar is one of ``tqdm``."""

    def draw(self, look: Look, text: str) -> None:
        from tqdm import tqdm

        if self._bar is None:
            self._bar = tqdm(file=self._file, leave=False, bar_format="{bar:20} {desc}", total=1)
        self._bar.n, self._bar.total = look.n_done, max(look.n_steps, 1)
        self._bar.set_description_str(text)

    def _end(self) -> None:
        self._bar.close()


BARS: Mapping[str, Callable[[TextIO], Bar]] = MappingProxyType({"rich": RichBar, "tqdm": TqdmBar, "plain": PlainBar})


def is_notebook() -> bool:
    """Return whether what is written is shown in a cell of a notebook."""
    ipython = loaded("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return type(shell).__name__ == "ZMQInteractiveShell"


def _bar_of(name: str, file: TextIO) -> Bar:
    """Return the bar of a name, or the first that is installed and can be drawn there."""
    if name == "auto":
        # What rich draws in a notebook from another thread is not in the cell; what is written to stderr is.
        wanted = ["rich", "tqdm"] if file.isatty() else ["tqdm"] if is_notebook() else []
        name = next((package for package in wanted if find_spec(package) is not None), "plain")
    return BARS[name](file)


class _Display:
    """The _Display is the thread that draws, while at least one block wants it; there is one in a process."""

    def __init__(self) -> None:
        self._lock = free_in_child(threading.Lock())
        self._n_blocks = 0
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    def enter(self, bar: str, file: TextIO | None) -> None:
        """Show progress until `leave`; the first of several blocks says how."""
        with self._lock:
            self._n_blocks += 1
            if self._n_blocks == 1:
                self._end = threading.Event()
                drawn = _bar_of(bar, sys.stderr if file is None else file)
                arguments = put_up(), drawn, self._end
                self._thread = threading.Thread(target=_show, args=arguments, name="distarray-progress", daemon=True)
                self._thread.start()

    def leave(self) -> None:
        with self._lock:
            self._n_blocks -= 1
            if self._n_blocks:
                return
            take_down()
            self._end.set()
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.join(END_SECONDS)


def _show(board: Board, bar: Bar, end: threading.Event) -> None:
    """Draw until the end; whatever goes wrong here must not harm the work: a cluster may be gone, or stderr closed."""
    try:
        while not end.wait(LOOK_SECONDS):
            try:
                look = board.look(SHOWN_SECONDS)
            except Exception:  # a cluster that changes or is gone, of whatever class its error is
                continue
            text = "" if look is None else text_of(look)
            if look is None or not text:
                bar.clear()
            elif not end.is_set():
                bar.draw(look, text)
        bar.clear()
    except Exception:  # where it is drawn is no more: then nobody looks
        return


_display = _Display()


class Shown:
    """A Shown is a block in which progress is shown: what ``dx.progress()`` returns. It may be entered several times.

    Parameters
    ----------
    bar
        ``"auto"``, ``"rich"``, ``"tqdm"`` or ``"plain"``.
    file
        Where it is drawn; stderr if None.
    """

    def __init__(self, *, bar: str = "auto", file: TextIO | None = None) -> None:
        self._bar = choice(bar, ("auto", *BARS), "bar")
        if bar in ("rich", "tqdm") and find_spec(bar) is None:
            raise ImportError(f"progress: bar={bar!r} needs {bar}, which is not installed: python -m pip install {bar}")
        self._file = file

    def __enter__(self) -> Shown:
        try:
            with interrupts_deferred():  # which come at its end
                _display.enter(self._bar, self._file)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        with interrupts_deferred():
            _display.leave()


_switched: list[Shown] = []


def switch(is_on: bool, **options: Any) -> None:
    """Show progress from now on, or no more."""
    if is_on and not _switched:
        _switched.append(Shown(**options).__enter__())
    elif not is_on and _switched:
        _switched.pop().__exit__()
