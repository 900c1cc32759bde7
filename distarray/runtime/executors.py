"""Executors: what runs the tasks that `lower` makes.

In process, `ThreadExecutor` walks the tasks in dependency order on a pool of threads, or inline where there is
nothing to overlap; dask's own threaded scheduler costs ten times as much per task. On a cluster,
`cluster.ClusterExecutor` hands the same tasks to the workers. Both give bitwise equal results.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

from dask._task_spec import Alias, Task, TaskRef

from distarray.lower.messages import Key
from distarray.runtime import metering
from distarray.runtime.watching import Watch, watched

__all__ = ["REFERENCES", "ThreadExecutor"]

#: How often a thread that waits for tasks looks whether it was interrupted.
INTERRUPT_SECONDS = 0.2
#: What a task holds of the references that it was made with: aliases in old releases of dask (2025.4).
REFERENCES = frozenset({Alias, TaskRef})


def _resolve(value: Any, results: Mapping[Key, Any]) -> Any:
    return results[value.key] if type(value) in REFERENCES else value


class _Ready:
    """A _Ready is a stack of the tasks whose dependencies have run; the next one to start is last."""

    def __init__(self, tasks: Mapping[Key, Task], after: Mapping[Key, Collection[Key]]) -> None:
        self._waits: dict[Key, int] = {}
        self._readers: dict[Key, list[Key]] = {}
        for key, task in tasks.items():
            needs = {*task.dependencies, *after.get(key, ())}
            self._waits[key] = len(needs)
            for n in needs:
                self._readers.setdefault(n, []).append(key)
        self.keys = [key for key, n in self._waits.items() if n == 0]
        self.keys.reverse()

    def release(self, key: Key) -> None:
        """Add the tasks that waited for this one alone: it has run."""
        freed = []
        for reader in self._readers.get(key, ()):
            self._waits[reader] -= 1
            if not self._waits[reader]:
                freed.append(reader)
        self.keys.extend(reversed(freed))


class ThreadExecutor:
    """Runs tasks on the threads of this process; blocks are the arrays themselves.

    Parameters
    ----------
    size
        Number of threads; 1 runs everything inline.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._pool: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()

    def _workers(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self._size, thread_name_prefix="distarray")
            return self._pool

    def submit(
        self,
        tasks: Mapping[Key, Task],
        members: Mapping[Key, int],
        keep: Collection[Key],
        after: Mapping[Key, Collection[Key]] | None = None,
        inline: bool = False,
    ) -> dict[Key, Any]:
        """Run tasks and return when all are done.

        Parameters
        ----------
        tasks
            In an order in which they can run.
        after
            Further keys that a task waits for, although it reads nothing of them.
        inline
            Run the tasks here, one after the other: they are so small that handing them out costs more.
        """
        kept = set(keep)
        uses: dict[Key, int] = {}
        for task in tasks.values():
            for key in task.dependencies:
                uses[key] = uses.get(key, 0) + 1
        meters = tuple(metering.active)
        for meter in meters:
            meter.begin(members)
        with watched(tasks) as watch:
            if inline or self._size == 1 or len(tasks) == 1:
                return self._inline(tasks, kept, uses, watch, meters)
            return self._threaded(tasks, kept, uses, after or {}, watch, meters)

    def _inline(
        self,
        tasks: Mapping[Key, Task],
        kept: set[Key],
        uses: dict[Key, int],
        watch: Watch | None,
        meters: Sequence[metering.Meter],
    ) -> dict[Key, Any]:
        results: dict[Key, Any] = {}
        try:
            for key, task in tasks.items():
                if watch is not None:
                    watch.before(key)
                for meter in meters:
                    meter.reads(key, task, [_resolve(a, results) for a in task.args])
                results[key] = task.func(*[_resolve(a, results) for a in task.args])
                for meter in meters:
                    meter.made(key, results[key])
                if watch is not None:
                    watch.after(key, results[key])
                self._drop(task, results, kept, uses)
                if key not in kept and not uses.get(key):
                    del results[key]
            return {key: results[key] for key in kept}
        finally:
            results.clear()  # not to be kept by a traceback

    def _drop(self, task: Task, results: dict[Key, Any], kept: set[Key], uses: dict[Key, int]) -> None:
        for key in task.dependencies:
            uses[key] -= 1
            if not uses[key] and key not in kept:
                results.pop(key, None)

    def _threaded(
        self,
        tasks: Mapping[Key, Task],
        kept: set[Key],
        uses: dict[Key, int],
        after: Mapping[Key, Collection[Key]],
        watch: Watch | None,
        meters: Sequence[metering.Meter],
    ) -> dict[Key, Any]:
        results: dict[Key, Any] = {}
        pool = self._workers()
        ready = _Ready(tasks, after)
        running: dict[Future[Any], Key] = {}
        done: set[Future[Any]] = set()
        future: Future[Any] | None = None

        def start(key: Key) -> None:
            task = tasks[key]
            if watch is not None:
                watch.before(key)
            for meter in meters:
                meter.reads(key, task, [_resolve(a, results) for a in task.args])
            running[pool.submit(task.func, *[_resolve(a, results) for a in task.args])] = key

        try:
            while ready.keys or running:
                # Newest first, and few at a time: what was just made is still in cache, and memory stays low.
                while ready.keys and len(running) < self._size + 1:
                    start(ready.keys.pop())
                # An interrupt that comes just before a thread begins to wait does not wake it.
                while not (done := wait(running, INTERRUPT_SECONDS, FIRST_COMPLETED).done):
                    pass
                for future in done:
                    key = running.pop(future)
                    try:
                        results[key] = future.result()
                    except Exception as error:
                        error.add_note(f"in task {key[0]}")
                        raise
                    for meter in meters:
                        meter.made(key, results[key])
                    if watch is not None:
                        watch.after(key, results[key])
                    self._drop(tasks[key], results, kept, uses)
                    if key not in kept and not uses.get(key):
                        results.pop(key, None)
                    ready.release(key)
        except Exception:
            # What runs cannot be stopped; it must be over before the caller may touch the blocks again.
            for future in running:
                future.cancel()
            wait(running)
            raise
        except BaseException:
            # Ctrl-C is answered now. It comes only where nothing is overwritten (`interrupts_deferred`), so what still
            # runs harms nobody: it ends on threads of its own, and what it makes is dropped.
            with self._lock:
                self._pool = None
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        else:
            return {key: results[key] for key in kept}
        finally:
            # A Future holds what its task raised, whose traceback holds this frame: such a cycle, and whoever keeps the
            # traceback, would keep all blocks.
            results.clear()
            running.clear()
            done, future = set(), None

    def fetch(self, handles: Sequence[Any]) -> list[Any]:
        """Return the blocks; they are in this process."""
        return list(handles)
