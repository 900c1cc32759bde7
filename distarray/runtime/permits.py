"""Permits: how many threads of a worker run steps of programs at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any


class _Holding(threading.local):
    has_permit = False


class Permits:
    """The Permits of a worker let so many threads run steps at a time: entered around each step.

    To distributed they are the pool of these threads: a function of a user that waits for other tasks
    (``worker_client``, ``secede``) gives its permit back meanwhile, as a task of Dask gives back its slot.

    Parameters
    ----------
    n
        How many threads.
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

    def spare(self, n_others: int) -> AbstractContextManager[None] | None:
        """Return a permit, which a thread must enter, if so many others could have one too; else None."""
        taken = 0
        while taken <= n_others and self._free.acquire(blocking=False):
            taken += 1
        is_spare = taken > n_others
        for _ in range(taken - is_spare):
            self._free.release()
        return self._entered() if is_spare else None

    @contextmanager
    def _entered(self) -> Iterator[None]:
        self._local.has_permit = True
        try:
            yield
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
