"""An execution runs one member program on threads: steps whose slots are full run, in the order of the program.

Whoever runs it provides threads and takes what is sent; messages that arrive are put into their slots from any thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from heapq import heappop, heappush
from time import perf_counter
from typing import Any, Protocol

from distarray.kernels.buffers import POOL
from distarray.kernels.tasks import wrapped
from distarray.lower.member_programs import MemberProgram
from distarray.lower.step_graph import KernelCall, SlotRef
from distarray.runtime.bundles import Bundle
from distarray.runtime.timelines import Noted, Timeline

_thread = threading.local()


def waits_of_thread() -> list[tuple[float, float]]:
    """Return when this thread, which runs a program, waited for messages since it was last asked.

    By ``time.perf_counter``; nothing in other threads.
    """
    found: list[tuple[float, float]] = getattr(_thread, "waits", [])
    _thread.waits = []
    return found


class Observer(Protocol):
    """An Observer is told what an execution holds and receives."""

    def holds(self, nbytes: int) -> None:
        """Note that it holds so many bytes more in its slots, beside what it was given."""

    def received(self, nbytes: int, slot: int, readers: Sequence[KernelCall]) -> None:
        """Note a message, its slot and the steps that read it."""


class Post(Protocol):
    """A Post carries messages from one program of a run to the others; both may be called from any thread."""

    def send(self, number: int, member: int, value: Any, left: Callable[[], None] | None) -> None:
        """Send a message to a member, and call `left` when the value is needed no more."""

    def grant(self, number: int, member: int) -> None:
        """Tell a member that it may send a message to the one that this post belongs to."""


class StoppedError(RuntimeError):
    """A StoppedError says that an execution was stopped before its end."""


class Execution:
    """An Execution is one run of a program.

    Without credits, steps run as soon as their slots are full, the first of the program first, and messages are sent as
    soon as they are made. With credits (`lower.credits`) steps begin strictly in order, at most as many at a time as
    there are threads, and messages are sent when they are granted.

    Parameters
    ----------
    program
        What to do.
    given
        The blocks that it is given, in their order.
    n_threads
        So many steps may run at the same time.
    permit
        Entered around each step: who shares it runs no more steps at a time than it admits.
    start
        Has a thread call a function.
    post
        Carries messages to other programs.
    finish
        Called once, from any thread, when the results are there and all is sent, or the execution failed.
    observers
        See `Observer`; called from any thread.
    """

    def __init__(
        self,
        program: MemberProgram,
        given: Sequence[Any],
        n_threads: int,
        permit: AbstractContextManager[Any],
        start: Callable[[Callable[[], None]], None],
        post: Post,
        finish: Callable[[], None],
        observers: Sequence[Observer] = (),
    ) -> None:
        self._program = program
        self._n_threads = n_threads
        self._permit = permit
        self._start = start
        self._post = post
        self._finish = finish
        self._observers = observers
        self._changed = threading.Condition()
        self._graph = program.graph
        self._given = given
        self._slot_of = program.received_slots
        self._values: dict[int, Any] = {}
        self._filled: set[int] = set()
        self._missing = list(self._graph.missing)
        self._uses = list(self._graph.uses)
        self._n_left = len(program.steps)
        self._n_threads_at_work = 0
        # without credits
        self._ready = list(self._graph.ready)
        self._is_waiting = False
        # with credits
        self._credits = program.credits
        self._room = nullcontext if program.credits is None else POOL.room_is_known
        self._n_begun = 0
        self._running: set[int] = set()
        self._granted: set[tuple[int, int]] = set()
        #: Messages that have left, and how many of those that are awaited in turn.
        self._gone: set[tuple[int, int]] = set()
        self._n_gone = 0
        self._sends = {number: slot for slot, (number, _) in program.sent.items()}
        if self._credits is not None:
            for number, _ in self._credits.sends:
                self._uses[self._sends[number]] += 1
        self.is_over = False
        self.error: BaseException | None = None
        self.results: dict[Any, Any] = {}
        self.timeline = Timeline()

    def begin(self) -> None:
        """Start: give out what is given, and have a first thread work."""
        for slot, value in enumerate(self._given):
            self._fill(slot, value)
        self._given = ()
        with self._changed:
            if self._is_done():
                self._end()
                return
            n = min(self._n_left, self._n_threads if self._credits is not None else 1)
            self._n_threads_at_work += n
        for _ in range(n):
            self._start(self._work)

    def receive(self, number: int, value: Any) -> None:
        """Take a message; what comes twice is dropped."""
        slot = self._slot_of.get(number)
        if slot is None:
            return
        if self._observers and slot not in self._filled:
            readers = [self._program.steps[n] for n in self._graph.readers[slot]]
            for observer in self._observers:
                observer.received(nbytes_of(value), slot, readers)
        self._fill(slot, value)
        with self._changed:
            is_help_wanted = bool(self._ready) and not self._is_waiting and self._wants_help()
        if is_help_wanted:
            self._start(self._work)

    def grant(self, number: int, member: int) -> None:
        """Take the word of a member that a message may come."""
        with self._changed:
            slot = self._sends[number]
            is_due = slot in self._values and (number, member) not in self._granted and not self.is_over
            self._granted.add((number, member))
            value = self._values[slot] if is_due else None
        if is_due:
            self._send(number, member, value)

    def steps_left(self) -> tuple[int, int]:
        """Return how many steps there are, and how many of them are left."""
        return len(self._program.steps), self._n_left

    def _send(self, number: int, member: int, value: Any) -> None:
        self._post.send(number, member, value, None if self._credits is None else lambda: self._left(number, member))

    def _left(self, number: int, member: int) -> None:
        """Note that a message with credit has left."""
        assert self._credits is not None
        with self._changed:
            if self.is_over:
                return
            self._gone.add((number, member))
            sends = self._credits.sends
            while self._n_gone < len(sends) and sends[self._n_gone] in self._gone:
                self._n_gone += 1
            self._let_go(self._sends[number])
            if self._is_done():
                self._end()
            self._changed.notify_all()

    def _wants_help(self) -> bool:
        """Return whether another thread is to come, and count it as here."""
        wants = not self.is_over and 0 < self._n_threads_at_work < self._n_threads and self._credits is None
        self._n_threads_at_work += wants
        return wants

    def stop(self, error: BaseException) -> None:
        """End the execution: no further step begins, and what runs ends by itself and is dropped."""
        with self._changed:
            if not self.is_over:
                self.error = error
                self._end()

    def _is_done(self) -> bool:
        return not self._n_left and (self._credits is None or self._n_gone == len(self._credits.sends))

    def _end(self) -> None:
        self.is_over = True
        if self.error is None:
            self.results = {key: self._values[slot] for key, slot in self._program.results.items()}
            for key, blocks in self._program.bundles.items():
                self.results[key] = Bundle([self._values[a.number] if type(a) is SlotRef else a for a in blocks])
        for slot, value in self._values.items():
            self._note(slot, value, -1)
        self._values.clear()
        self._changed.notify_all()
        self._finish()

    def _fill(self, slot: int, value: Any) -> None:
        with self._changed:
            if self.is_over or slot in self._filled:
                return
            self._filled.add(slot)
            if self._uses[slot]:
                self._values[slot] = value
                self._note(slot, value, 1)
            for n in self._graph.readers[slot]:
                self._missing[n] -= 1
                if not self._missing[n]:
                    if self._credits is None:
                        heappush(self._ready, n)
                    self._changed.notify_all()
            number, members = self._program.sent.get(slot, (-1, ()))
            due = [m for m in members if self._credits is None or (number, m) in self._granted]
        for member in due:
            self._send(number, member, value)

    def _work(self) -> None:
        """Run steps until all are begun."""
        _thread.waits = []
        with self.timeline.lane() as noted:
            self._run_steps(noted)

    def _run_steps(self, noted: Noted) -> None:
        take = self._take_ready if self._credits is None else self._take_next
        while (n := take()) is not None:
            step = self._program.steps[n]
            with self._changed:
                if self.is_over:
                    return
                args = [self._values[a.number] if type(a) is SlotRef else a for a in step.args]
            function, given = wrapped(step.key, step.function, args, noted)
            del args
            try:
                with self._permit, self._room():
                    value = function(*given)
            except BaseException as error:
                self.stop(_named(error, step.key))
                return
            del given
            self._fill(self._graph.first + n, value)
            del value
            self._done(n)

    def _take_ready(self) -> int | None:
        """Return the first step that can run; only one thread waits for messages, others come as steps are ready."""
        with self._changed:
            while not self._ready and not self.is_over and self._n_threads_at_work == 1:
                self._wait()
            if self.is_over or not self._ready:
                self._n_threads_at_work -= 1
                return None
            n = heappop(self._ready)
            is_help_wanted = bool(self._ready) and self._wants_help()
        if is_help_wanted:
            self._start(self._work)
        return n

    def _take_next(self) -> int | None:
        """Begin the next step: grant messages, and wait until it can run; return None if there is none."""
        assert self._credits is not None
        n_steps = len(self._program.steps)
        with self._changed:
            # Those that run are at most so far apart as there are threads: what they hold together is known.
            while not self.is_over and self._running and self._n_begun - min(self._running) >= self._n_threads:
                self._wait()
            if self.is_over or self._n_begun == n_steps:
                self._n_threads_at_work -= 1
                return None
            n = self._n_begun
            self._n_begun += 1
            self._running.add(n)
        for number, member in self._credits.granted[n]:
            self._post.grant(number, member)
        with self._changed:
            while not self.is_over and (self._missing[n] or self._n_gone < self._credits.awaited[n]):
                self._wait()
            return None if self.is_over else n

    def _wait(self) -> None:
        self._is_waiting = True
        begin = perf_counter()
        self._changed.wait()
        self._is_waiting = False
        _thread.waits.append((begin, perf_counter()))

    def _note(self, slot: int, value: Any, sign: int) -> None:
        if self._observers and slot >= len(self._program.given):
            for observer in self._observers:
                observer.holds(sign * nbytes_of(value))

    def _let_go(self, slot: int) -> None:
        """Note that a value is read once less, and let go of what nobody reads any more."""
        self._uses[slot] -= 1
        if not self._uses[slot] and slot in self._values:
            self._note(slot, self._values.pop(slot), -1)

    def _done(self, n: int) -> None:
        """Note that a step has run."""
        with self._changed:
            if self.is_over:
                return
            self._running.discard(n)
            for slot in self._graph.reads[n]:
                self._let_go(slot)
            self._n_left -= 1
            if self._is_done():
                self._end()
            elif self._credits is not None:
                self._changed.notify_all()


def nbytes_of(value: Any) -> int:
    """Return the bytes of an array, or of all arrays in a list or tuple."""
    if isinstance(value, (tuple, list)):
        return sum(map(nbytes_of, value))
    return int(getattr(value, "nbytes", 0))


def _named(error: BaseException, key: Any) -> BaseException:
    """Return an error that says which task raised it."""
    with suppress(Exception):  # a class may allow no attributes
        error._distarray_key = key  # type: ignore[attr-defined]
    return error
