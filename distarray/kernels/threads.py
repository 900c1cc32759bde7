"""Threads that work at a kernel beside the one that runs it, while nobody else needs them.

A tile is computed by one step, which has one thread. Where a member has more threads than tiles, a kernel is computed
in parts: the thread that runs it takes them one after the other, and so does every thread that is free meanwhile. None
is waited for that has not begun, so a kernel ends whether or not somebody helps. Which parts there are is decided
before any of them begins, and what they give is put together in their order: the bits of a result do not depend on who
helped.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeAlias

from distarray import hooks
from distarray.kernels.inside import inside_task

__all__ = ["HELPED", "Helpers", "Work", "helped_by", "most_threads", "run_parts"]

#: Elements, each computed by some instructions, from which on help is asked for: it comes some ten microseconds later.
HELPED = 1 << 19

#: What a thread is to do.
Work: TypeAlias = Callable[[], None]


class Helpers(Protocol):
    """Helpers are the threads of a member that may be free."""

    @property
    def n_threads(self) -> int:
        """Return how many threads the member has, the one that asks included."""

    def start(self, work: Work) -> bool:
        """Have a free thread call a function, which raises nothing, in the context of this one (`contextvars`); return
        False if no thread is free.
        """


class _Thread(threading.local):
    helpers: Helpers | None = None


_thread = _Thread()


@contextmanager
def helped_by(helpers: Helpers) -> Iterator[None]:
    """Let kernels that this thread runs meanwhile have these helpers."""
    before, _thread.helpers = _thread.helpers, helpers
    try:
        yield
    finally:
        _thread.helpers = before


def _helpers() -> Helpers | None:
    """Return the helpers of this thread; None where it has none."""
    if _thread.helpers is not None:
        return _thread.helpers
    return None if hooks.find_helpers is None else hooks.find_helpers()


def most_threads() -> int:
    """Return how many threads can work at a kernel of this thread, this one included."""
    helpers = _helpers()
    return 1 if helpers is None else helpers.n_threads


def run_parts(parts: Sequence[Work]) -> None:
    """Call functions, each once, in this thread and in those that are free; return when all are over.

    numpy's floating-point state is that of this thread for all of them.

    Raises
    ------
    BaseException
        What one of them raised first. Those that have not begun then are not called.
    """
    helpers = _helpers() if len(parts) > 1 else None
    if helpers is None:
        for part in parts:
            part()
        return
    shared = _SharedWork(parts)
    for _ in range(len(parts) - 1):
        if not helpers.start(shared.help_out):
            break
    shared.work()
    shared.wait()


class _SharedWork:
    """The _SharedWork is the parts of a kernel, which are taken by several threads until there are no more."""

    def __init__(self, parts: Sequence[Work]) -> None:
        self._left = [*reversed(parts)]
        self._n_running = 0
        self._changed = threading.Condition()
        self._error: BaseException | None = None

    def help_out(self) -> None:
        with inside_task():
            self.work()

    def work(self) -> None:
        while (part := self._next()) is not None:
            error = None
            try:
                part()
            except BaseException as raised:
                error = raised
            with self._changed:
                self._n_running -= 1
                if error is not None:
                    self._error = self._error or error
                    self._left.clear()
                self._changed.notify_all()
            del part, error

    def _next(self) -> Work | None:
        with self._changed:
            if not self._left:
                return None
            self._n_running += 1
            return self._left.pop()

    def wait(self) -> None:
        """Wait for those that others have begun.

        Raises
        ------
        BaseException
            What one of them raised first.
        """
        with self._changed:
            while self._n_running:
                self._changed.wait()
        if self._error is not None:
            try:
                raise self._error
            finally:
                self._error = None  # its traceback holds this frame
