"""Programs that run in this process: its threads take the steps themselves.

Nobody hands steps out. The thread that asks for results works too, and others come only while there is a step that
nobody has taken: a program of which each step waits for the one before never wakes another thread. On a cluster,
`cluster.ClusterExecutor` has workers run the same steps. Both give bitwise equal results.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextvars import copy_context
from typing import Any, Literal

from distarray.kernels.threads import Work, helped_by
from distarray.kernels.waits import Condition
from distarray.lower.member_programs import MemberProgram
from distarray.lower.messages import Key
from distarray.lower.step_graph import KernelCall, SlotRef
from distarray.runtime import metering, progress
from distarray.runtime.process_threads import ProcessThreads, forsake, threads_of
from distarray.runtime.watching import StepObserver, watched


def run_program(
    program: MemberProgram,
    steps: Sequence[KernelCall],
    given: Sequence[Any],
    tasks: Callable[[], Mapping[Key, Any]],
    n_threads: int,
    *,
    is_inline: bool = False,
    is_in_order: bool = False,
) -> dict[Key, Any]:
    """Run a program on the threads of this process, and return what it keeps, by key, when all is done.

    Parameters
    ----------
    program
        Says what waits for what.
    steps
        Its steps, with the parameters of this run.
    given
        The blocks that it is given, in their order.
    tasks
        Returns by key, in the order of the steps, what these do, for Dask's callbacks and for meters.
    n_threads
        So many steps run at the same time, one of them in the thread that asks.
    is_inline
        Run the steps here, one after the other: they are so small that another thread costs more.
    is_in_order
        Run them one after the other, with other threads for their kernels alone: so members hold what they were
        predicted to hold.
    """
    values = [*given, *[None] * len(steps)]
    try:
        with watched(tasks) as watches, progress.counted(len(steps)) as work:
            observers = [*watches, *[meter.of_run(program, tasks()) for meter in metering.active]]
            if work is not None:
                observers.append(work)
            if is_inline or n_threads == 1:
                _run_inline(program, steps, values, observers)
            elif is_in_order:
                helped_by(threads_of(n_threads), lambda: _run_inline(program, steps, values, observers))
            else:
                _Run(program, steps, values, observers, threads_of(n_threads)).work()
        return {key: values[slot] for key, slot in program.results.items()}
    finally:
        values.clear()  # not to be kept by a traceback


def _run_inline(
    program: MemberProgram, steps: Sequence[KernelCall], values: list[Any], observers: Sequence[StepObserver]
) -> None:
    slot, freed = len(program.given), program.graph.freed
    for n, step in enumerate(steps):
        args = [values[a.number] if type(a) is SlotRef else a for a in step.args]
        for observer in observers:
            observer.before(n, args)
        values[slot] = step.function(*args)
        for observer in observers:
            observer.after(n, values[slot])
        for old in freed[n]:
            values[old] = None
        slot += 1


class _Run:
    """A _Run is one run of a program on several threads, each of which takes the newest step that can run.

    What was just made is still in cache, and memory stays low. Threads that have no step help with the kernels of the
    others (`kernels.threads.Helpers`).

    Parameters
    ----------
    values
        By slot; it is filled.
    threads
        Those that help the one that asks.
    """

    def __init__(
        self,
        program: MemberProgram,
        steps: Sequence[KernelCall],
        values: list[Any],
        observers: Sequence[StepObserver],
        threads: ProcessThreads,
    ) -> None:
        self._graph = program.graph
        self._steps = steps
        self._values = values
        self._observers = observers
        self._threads = threads
        self.n_threads = threads.n_threads
        self._observed = threading.Lock()
        self._missing = list(self._graph.missing)
        self._uses = list(self._graph.uses)
        self._ready = self._graph.ready[::-1]
        #: Parts of kernels that wait for a thread.
        self._parts: list[Work] = []
        self._n_left = len(steps)
        self._n_running = 0
        self._n_waiting = 0
        self._n_helpers = 0
        self._lock = threading.RLock()
        self._changed = Condition(self._lock)
        self.is_over = False
        self.error: BaseException | None = None

    def work(self) -> None:
        """Run steps until all are over; threads of the pool come to help while steps are ready. Raise what one does."""
        try:
            self._help_out()
            with self._lock:
                while self._n_running:
                    self._changed.wait()
        except BaseException:
            # Ctrl-C is answered now. It comes only where nothing is overwritten (`interrupts_deferred`), so what still
            # runs harms nobody: it ends on threads of its own, and what it makes is dropped.
            self.is_over = True
            forsake(self._threads)
            raise
        if self.error is not None:
            try:
                raise self.error
            finally:
                self.error = None  # its traceback holds this frame

    def _help_out(self) -> None:
        helped_by(self, self._run_steps)

    def _run_steps(self) -> None:
        while (taken := self._take()) is not None:
            n, args = taken
            del taken
            if n < 0:
                self._run_part(args)
            else:
                self._run(n, args)

    def _call_help(self) -> None:
        self._threads.start(self._help_out, waits=True)

    def start(self, work: Work) -> bool:
        context = copy_context()
        with self._lock:
            is_free = self._n_running + len(self._parts) < self.n_threads
            is_seen = len(self._parts) < self._n_waiting
            if self.is_over or not is_free or not (is_seen or self._n_helpers < self.n_threads - 1):
                return False
            self._parts.append(lambda: context.run(work))
            if is_seen:
                self._changed.notify()
                return True
            self._n_helpers += 1
        self._call_help()
        return True

    def _run_part(self, parts: list[Any]) -> None:
        parts.pop()()
        with self._lock:
            self._n_running -= 1
            if not self._n_running:
                self._changed.notify_all()

    def _take(self) -> tuple[int, list[Any]] | None:
        """Return the number of a step that is to run now, and its arguments; or -1 and a part of a kernel; None if
        there will be none.
        """
        with self._lock:
            while not self._ready and not self._parts and self._n_left and not self.is_over:
                self._n_waiting += 1
                self._changed.wait()
                self._n_waiting -= 1
            if self._parts:
                self._n_running += 1
                return -1, [self._parts.pop()]
            if self.is_over or not self._ready:
                return None
            n = self._ready.pop()
            self._n_running += 1
            if self._ready and self._n_waiting:
                self._changed.notify()
            is_help_wanted = bool(self._ready) and not self._n_waiting and self._n_helpers < self.n_threads - 1
            self._n_helpers += is_help_wanted
            args = [self._values[a.number] if type(a) is SlotRef else a for a in self._steps[n].args]
        if is_help_wanted:
            self._call_help()
        return n, args

    def _run(self, n: int, args: list[Any]) -> None:
        step = self._steps[n]
        try:
            self._tell("before", n, args)
            value = step.function(*args)
            self._tell("after", n, value)
        except BaseException as error:
            self._done(n, None, error)
            if not isinstance(error, Exception):
                raise
        else:
            args.clear()
            self._done(n, value, None)

    def _tell(self, event: Literal["before", "after"], n: int, value: Any) -> None:
        if self._observers:
            with self._observed:
                for observer in self._observers:
                    getattr(observer, event)(n, value)

    def _done(self, n: int, value: Any, error: BaseException | None) -> None:
        """Note what a step has returned, or raised."""
        with self._lock:
            self._n_running -= 1
            self._n_left -= 1
            if error is not None:
                self.error = self.error or error
                self.is_over = True
            if self.is_over:
                self._values.clear()
            else:
                self._fill(n, value)
            if self.is_over or not self._n_left:
                self._changed.notify_all()

    def _fill(self, n: int, value: Any) -> None:
        made = self._graph.first + n
        if self._uses[made]:
            self._values[made] = value
        for slot in self._graph.reads[n]:
            self._uses[slot] -= 1
            if not self._uses[slot]:
                self._values[slot] = None
        freed = []
        for reader in self._graph.readers[made]:
            self._missing[reader] -= 1
            if not self._missing[reader]:
                freed.append(reader)
        self._ready.extend(reversed(freed))
