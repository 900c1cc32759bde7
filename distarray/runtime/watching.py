"""Watching tasks run: Dask's callbacks in process, and progress bars.

What ``dask.diagnostics`` offers (``ProgressBar``, ``Profiler``, one's own ``dask.callbacks.Callback``) works for the
tasks of the in-process executor as for Dask's own schedulers. Arrays that are one small block each run as plain calls,
not as tasks: there is nothing to watch then. On a cluster, ``distributed`` draws.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from dask.callbacks import Callback, local_callbacks, unpack_callbacks


class StepObserver(Protocol):
    """A StepObserver is told of each step of a run; by one thread at a time."""

    def before(self, n: int, args: Sequence[Any]) -> None:
        """Note that a step is about to run with these arguments."""

    def after(self, n: int, value: Any) -> None:
        """Note what a step has returned."""


class Watch:
    """A Watch tells Dask's callbacks how a run of tasks goes on.

    Parameters
    ----------
    tasks
        All of them, by key.
    callbacks
        What `Callback.active` holds.
    """

    def __init__(self, tasks: Mapping[Any, Any], callbacks: Any) -> None:
        self._tasks = tasks
        self._keys = list(tasks)
        self._start, self._start_state, self._before, self._after, self._finish = unpack_callbacks(callbacks)
        self._state: dict[str, Any] = {
            "waiting": dict.fromkeys(tasks, ()),
            "ready": [],
            "running": set(),
            "finished": set(),
            "cache": {},
        }

    def begin(self) -> None:
        """Note that all tasks are known."""
        for call in self._start:
            call(self._tasks)
        for call in self._start_state:
            call(self._tasks, self._state)

    def before(self, n: int, args: Sequence[Any]) -> None:
        """Note that a thread has taken a task."""
        key = self._keys[n]
        self._state["waiting"].pop(key, None)
        self._state["running"].add(key)
        for call in self._before:
            call(key, self._tasks, self._state)

    def after(self, n: int, value: Any) -> None:
        """Note that a task is over."""
        key = self._keys[n]
        self._state["running"].discard(key)
        self._state["finished"].add(key)
        for call in self._after:
            call(key, value, self._tasks, self._state, 0)

    def end(self, *, has_failed: bool) -> None:
        """Note that the run is over."""
        for call in self._finish:
            call(self._tasks, self._state, has_failed)


@contextmanager
def watched(tasks: Callable[[], Mapping[Any, Any]]) -> Iterator[list[Watch]]:
    """Yield a watch for a run of tasks, none if nobody watches; runs inside of tasks are not watched.

    Parameters
    ----------
    tasks
        Returns them, in the order of the steps of the run.
    """
    if not Callback.active:
        yield []
        return
    with local_callbacks() as callbacks:
        watch = Watch(tasks(), callbacks)
        has_failed = True
        try:
            watch.begin()
            yield [watch]
            has_failed = False
        finally:
            watch.end(has_failed=has_failed)


def draw_progress(compute: Callable[[], Sequence[Any]], **options: Any) -> Any:
    """Show how a computation goes on until it is over.

    Parameters
    ----------
    compute
        Starts it, and gives the Futures of its results, none where it runs in this process.
    **options
        Of the progress bar of ``distributed`` or ``dask.diagnostics``.

    Returns
    -------
    object
        A widget in a notebook with a cluster, else None.
    """
    from dask.diagnostics import ProgressBar

    bar = ProgressBar(**{key: value for key, value in options.items() if key in ("minimum", "width", "dt", "out")})
    with bar:
        futures = compute()
    if futures:
        from distributed import progress

        return progress(list(futures), **options)
    if not bar.last_duration:
        # Nothing ran as tasks: a full bar says so.
        bar._start({})
        bar._finish({}, None, False)
    return None
