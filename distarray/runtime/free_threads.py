"""Free threads of a worker: they help with kernels that its other threads run (`kernels.threads`)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import Context, copy_context
from typing import Any, TypeAlias

from distributed.utils import thread_state
from distributed.worker import get_worker

from distarray import hooks
from distarray.kernels.threads import Helpers
from distarray.runtime.permits import Permits
from distarray.runtime.wire import PLUGIN

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
        permit = self._permits.spare(len(self._state.executing))
        if permit is None:
            return False
        self._start(thread_state.key, copy_context(), lambda: _entered(permit, work))
        return True


def _entered(permit: AbstractContextManager[None], work: Callable[[], None]) -> None:
    with permit:
        work()


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
