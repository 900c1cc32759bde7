"""The threads of this process that help: with steps of its runs, and with kernels that the user's thread calls."""

from __future__ import annotations

import os
import threading
from _thread import allocate_lock
from collections import deque
from contextlib import suppress
from contextvars import Context, copy_context
from typing import TypeAlias

from distarray.expr.expr import Environment
from distarray.kernels.threads import Work
from distarray.runtime.clients import process_threads

_Given: TypeAlias = tuple[Context, Work]


class ProcessThreads:
    """The ProcessThreads are threads that wait for work of others (`kernels.threads.Helpers`), one piece at a time.

    A thread is made when it is first needed and none is idle. It waits for a lock of its own, which wakes it in some
    microseconds, and is a daemon: what it works at when Python ends is waited for by nobody.

    Parameters
    ----------
    n_threads
        So many work at the same time at most, the one that asks included.
    """

    def __init__(self, n_threads: int) -> None:
        self.n_threads = n_threads
        self._is_left = False
        self._idle: list[_HelpingThread] = []
        self._waiting: deque[_Given] = deque()
        self._n_made = 0
        self._lock = threading.Lock()

    def start(self, work: Work, *, waits: bool = False) -> bool:
        """Have a thread that is idle call a function, in the context of this one.

        Parameters
        ----------
        waits
            Whether the function waits for a thread where none is idle; else False is returned.
        """
        given = copy_context(), work
        with self._lock:
            if self._idle:
                thread = self._idle.pop()
            elif self._n_made < self.n_threads - 1:
                self._n_made += 1
                thread = _HelpingThread(self, self._n_made)
            elif waits:
                self._waiting.append(given)
                return True
            else:
                return False
        thread.give(given)
        return True

    def next_for(self, thread: _HelpingThread) -> _Given | None:
        """Return what waits for a thread of these that has ended its work; where nothing does, None: it is idle."""
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            self._idle.append(thread)
        if self._is_left:
            self._end()
        return None

    def leave(self) -> None:
        """Let all threads end: those that work, when their work is over and nothing waits."""
        self._is_left = True
        self._end()

    def _end(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for thread in idle:
            thread.give(None)


class _HelpingThread:
    """A _HelpingThread calls what it is given, and is idle again; it ends where it is given nothing."""

    def __init__(self, threads: ProcessThreads, number: int) -> None:
        self._threads = threads
        self._wake = allocate_lock()
        self._wake.acquire()
        self._given: _Given | None = None
        threading.Thread(target=self._run, name=f"distarray_{number}", daemon=True).start()

    def give(self, given: _Given | None) -> None:
        self._given = given
        self._wake.release()

    def _run(self) -> None:
        while True:
            self._wake.acquire()
            given, self._given = self._given, None
            if given is None:
                return
            while given is not None:
                context, work = given
                del given
                with suppress(BaseException):  # whoever waits for the work is told by it
                    context.run(work)
                del context, work
                given = self._threads.next_for(self)


_threads: dict[int, ProcessThreads] = {}

if hasattr(os, "register_at_fork"):  # threads do not survive a fork
    os.register_at_fork(after_in_child=_threads.clear)


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
