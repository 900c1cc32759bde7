"""Permits: how many threads of a worker run steps of programs at a time; those that are free help with kernels that
others run (`kernels.threads`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import Context, copy_context
from functools import partial
from typing import Any, TypeAlias

from distributed.utils import thread_state
from distributed.worker import get_worker

from distarray import hooks
from distarray.kernels.threads import Helpers
from distarray.runtime.wire import PLUGIN


class _Holding(threading.local):
    has_permit = False


class Permits:
    """The Permits of a worker let `n` threads run steps at a time: entered around each step.

    To distributed they are the pool of these threads: a function of a user that waits for other tasks
    (``worker_client``, ``secede``) gives its permit back meanwhile, as a task of Dask gives back its slot.
    """

    def __init__(self, n: int) -> None:
        self._free = threading.Semaphore(n)
        self._local = _Holding()
        # What distributed.threadpoolexecutor asks of a pool, beside `remove`, `submit` and `_adjust_thread_count`.
        self._threads = self
        self._rejoin_lock = threading.Lock()
        self._rejoin_list: list[tuple[threading.Thread, threading.Event]] = []

    def __enter__(self) -> None:
        self._free.acquire()
        self._local.has_permit = True

    def __exit__(self, *error: object) -> None:
        if self._local.has_permit:
            self._local.has_permit = False
            self._free.release()

    def spare(self, n_others: int) -> bool:
        """Take a permit, which a thread must `use`, if so many others could have one too; return whether."""
        taken = 0
        while taken <= n_others and self._free.acquire(blocking=False):
            taken += 1
        is_spare = taken > n_others
        for _ in range(taken - is_spare):
            self._free.release()
        return is_spare

    def use(self, work: Callable[[], None]) -> None:
        """Do some work in this thread with a spare permit, and give it back."""
        self._local.has_permit = True
        try:
            work()
        finally:
            self.__exit__()

    def remove(self, thread: threading.Thread) -> None:
        """Take the permit of this thread back: it secedes."""
        if not self._local.has_permit:
            raise KeyError(thread)
        self.__exit__()

    def _adjust_thread_count(self) -> None:
        """Start no thread for one that secedes: others wait for a permit."""

    def submit(self, function: Callable[[], Any]) -> None:
        """Wait until this thread, which has seceded, has a permit again, and tell it so."""
        self.__enter__()
        with self._rejoin_lock:
            (entry,) = [e for e in self._rejoin_list if e[0] is threading.current_thread()]
            self._rejoin_list.remove(entry)
        entry[1].set()


_Start: TypeAlias = Callable[[Any, Context, Callable[[], None]], None]


class FreeThreads:
    """The FreeThreads of a worker are those that neither a task of Dask nor a step of a program needs.

    A step that begins meanwhile waits until a part is over. A task of Dask has a thread of its own in any case.

    Parameters
    ----------
    worker
        Of Dask.
    permits
        Of the threads that run steps of programs.
    start
        Has a thread call a function in a context, as if it were the task of a key.
    """

    def __init__(self, worker: Any, permits: Permits, start: _Start) -> None:
        self._state = worker.state
        self._permits = permits
        self._start = start

    @property
    def n_threads(self) -> int:
        return int(self._state.nthreads)

    def start(self, work: Callable[[], None]) -> bool:
        is_spare = self._permits.spare(len(self._state.executing))
        if is_spare:
            self._start(thread_state.key, copy_context(), partial(self._permits.use, work))
        return is_spare


def _free_threads() -> Helpers | None:
    """Return who helps this thread; None where it runs no task of a worker that has distarray's plugin."""
    if getattr(thread_state, "key", None) is None:
        return None
    try:
        plugin = get_worker().plugins.get(PLUGIN)
    except ValueError:  # no worker runs this thread
        return None
    return None if plugin is None else plugin.transport.free_threads


hooks.find_helpers = _free_threads
