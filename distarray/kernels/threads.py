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
from functools import partial
from itertools import pairwise
from typing import Protocol, TypeAlias

from distarray import hooks
from distarray.kernels.inside import inside_task
from distarray.kernels.waits import Condition
from distarray.sharding.cuts import boundaries

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


def threads_for(n_elements: int) -> int:
    """Return how many threads can work at a kernel of this thread, this one included: one where it is small."""
    helpers = _helpers() if n_elements >= HELPED else None
    return 1 if helpers is None else helpers.n_threads


def run_along(extent: int, n: int, part: Callable[[int, int], None]) -> None:
    """Call a function for the begin and the end of each of `n` parts of a loop that has elements: see `run_parts`."""
    run_parts([partial(part, *edges) for edges in pairwise(boundaries(extent, n)) if edges[0] < edges[1]])


def run_parts(parts: Sequence[Work]) -> None:
    """Call functions, each once, in this thread and in those that are free; return when all are over.

    numpy's floating-point state is that of this thread for all of them.

    Raises
    ------
    BaseException
        What the first of them raised that raised something; those behind it may not have been called. All before it
        were, so it is the same one, however many threads there are.
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
        self._left = [*reversed([*enumerate(parts)])]
        #: One for each thread that runs a part: an interrupt may come between any two lines, and none is counted twice.
        self._running: set[object] = set()
        self._lock = threading.RLock()
        self._changed = Condition(self._lock)
        #: Of the first part that raised something.
        self._error: tuple[int, BaseException] | None = None

    def help_out(self) -> None:
        with inside_task():
            self.work()

    def work(self) -> None:
        mine, number = object(), -1
        try:
            while (found := self._next(mine)) is not None:
                number, part = found
                del found
                part()
                del part
        except BaseException as error:
            with self._lock:
                if self._error is None or number < self._error[0]:
                    self._error = number, error
                self._left.clear()
        finally:
            with self._lock:
                self._running.discard(mine)
                self._changed.notify_all()

    def _next(self, mine: object) -> tuple[int, Work] | None:
        with self._lock:
            if not self._left:
                return None
            self._running.add(mine)
            return self._left.pop()

    def wait(self) -> None:
        """Wait for those that others have begun.

        Raises
        ------
        BaseException
            What the first of them raised that raised something.
        """
        with self._lock:
            while self._running:
                self._changed.wait()
        if self._error is not None:
            try:
                raise self._error[1]
            finally:
                self._error = None  # its traceback holds this frame
