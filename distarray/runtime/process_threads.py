"""The threads of this process that help: with steps of its runs, and with kernels that the user's thread calls."""

from __future__ import annotations

import threading
from _thread import allocate_lock, start_new_thread
from collections import deque
from contextlib import suppress
from contextvars import Context, copy_context
from typing import TypeAlias

from distarray.expr.expr import Environment
from distarray.forks import in_child
from distarray.kernels.threads import Work
from distarray.runtime.clients import process_threads

_Given: TypeAlias = tuple[Context, Work]


class ProcessThreads:
    """The ProcessThreads are threads that wait for work of others (`kernels.threads.Helpers`), one piece at a time.

    A thread is made when it is first needed and none is free. It waits for a lock of its own, which wakes it in some
    microseconds, and is a daemon: what it works at when Python ends is waited for by nobody.

    Parameters
    ----------
    n_threads
        So many work at the same time at most, the one that asks included.

    Notes
    -----
    A signal may come between any two steps of who gives work, and its handler may raise, or give work too. So whether a
    thread is free follows from what it has and does, a thread that was given something and not woken is woken by who
    comes next, and a piece that is lost so is one that nobody waits for: whoever gave it works too.
    """

    def __init__(self, n_threads: int) -> None:
        self.n_threads = n_threads
        self._threads: list[_HelpingThread] = []
        self._waiting: deque[_Given] = deque()
        self._is_left = False
        self._lock = threading.RLock()

    def start(self, work: Work, *, waits: bool = False) -> bool:
        """Have a thread that is free call a function, in the context of this one.

        Parameters
        ----------
        waits
            Whether the function waits for a thread where none is free; else False is returned.
        """
        given = copy_context(), work
        with self._lock:
            thread = self._free()
            if thread is not None:
                thread.give(given)
            elif waits:
                self._waiting.append(given)
        return waits or thread is not None

    def _free(self) -> _HelpingThread | None:
        """Return a thread that has nothing to do, if there is one or may be one more."""
        found = None
        for thread in self._threads:
            if thread.is_waiting:
                if thread.given is None:
                    found = thread
                else:
                    thread.wake()
        if found is None and len(self._threads) < self.n_threads - 1 and not self._is_left:
            found = _HelpingThread(self)
            try:
                self._threads.append(found)  # first, to be seen by a handler of signals that gives work
                start_new_thread(found.run, ())  # which does not wait until it runs, as those of `threading` do
            except BaseException as error:
                if found in self._threads:
                    self._threads.remove(found)
                found.wake()  # to end, if it has begun
                if not isinstance(error, RuntimeError):  # there can be no more threads
                    raise
                found = None
        return found

    def next_for(self, thread: _HelpingThread) -> _Given | None:
        """Return what waits for a thread of these that has ended its work; None where nothing does: it is free, or to
        end.
        """
        with self._lock:
            thread.given = self._waiting.popleft() if self._waiting else None
            thread.is_waiting = thread.given is None and not self._is_left and thread in self._threads
            return thread.given

    def leave(self) -> None:
        """Let all threads end: those that work, when their work is over and nothing waits."""
        self._is_left = True
        with self._lock:
            for thread in self._threads:
                if thread.is_waiting:
                    thread.wake()


class _HelpingThread:
    """A _HelpingThread calls what it is given, and is free again.

    Attributes
    ----------
    given
        What it is to call, or calls.
    is_waiting
        Whether it waits to be woken.
    """

    __slots__ = ("_lock", "_threads", "given", "is_waiting")

    def __init__(self, threads: ProcessThreads) -> None:
        self._threads = threads
        self._lock = allocate_lock()
        self._lock.acquire()
        self.given: _Given | None = None
        self.is_waiting = True

    def give(self, given: _Given) -> None:
        self.given = given
        self.wake()

    def wake(self) -> None:
        with suppress(RuntimeError):  # it is awake: a handler of signals has come in between
            self._lock.release()

    def run(self) -> None:
        """Call what is given, until the threads are left."""
        is_left = False
        while not is_left:
            self._lock.acquire()
            self.is_waiting = False
            given = self.given or self._threads.next_for(self)  # nothing, where a handler of signals has woken it twice
            while given is not None:
                context, work = given
                del given
                with suppress(BaseException):  # whoever waits for the work is told by it
                    context.run(work)
                del context, work
                given = self._threads.next_for(self)
            is_left = not self.is_waiting


_threads: dict[int, ProcessThreads] = {}

in_child(_threads.clear)  # threads do not survive a fork


def threads_of(n_threads: int) -> ProcessThreads:
    """Return the threads of this process of which so many work at the same time."""
    found = _threads.get(n_threads)
    return _threads.setdefault(n_threads, ProcessThreads(n_threads)) if found is None else found


def forsake(threads: ProcessThreads) -> None:
    """Have others in the place of threads, some of which work at what nobody wants any more."""
    if _threads.get(threads.n_threads) is threads:
        del _threads[threads.n_threads]
    threads.leave()


def helpers_for(env: Environment) -> ProcessThreads | None:
    """Return who helps with a kernel of an environment that this thread calls; None where nobody does."""
    n = process_threads(env)
    return None if n < 2 else threads_of(n)
