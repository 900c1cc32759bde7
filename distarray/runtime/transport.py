"""Transport: what carries the messages between member programs, and runs these, in a worker's process.

A program is one Dask task: a coroutine, which gives up its slot at once, so that no program waits for a slot that
another one has. Its steps run on threads of their own. A message is pushed as soon as it is made, from worker to worker
over distributed's own connections, and is delivered once.

A run belongs together. When the scheduler's plugin (`scheduler_runs`) begins it anew, all its programs start over with
the next *attempt*, from the blocks that they were given; messages of earlier attempts are dropped. When it ends, by
success, failure or because nobody wants it, its programs stop and what is left of it is forgotten.
"""

from __future__ import annotations

import asyncio
import contextvars
import pickle
import threading
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from itertools import repeat
from time import time
from typing import Any, NamedTuple

import numpy as np
from dask.typing import Key
from distributed.core import clean_exception
from distributed.metrics import context_meter
from distributed.protocol import to_serialize
from distributed.protocol.pickle import dumps
from distributed.threadpoolexecutor import thread_state as pool_state
from distributed.utils import thread_state
from distributed.worker_state_machine import SecedeEvent

from distarray.lower.bundling import Given
from distarray.lower.member_programs import MemberProgram
from distarray.runtime.alignment import ahead_of
from distarray.runtime.channels import Attempt, Channels
from distarray.runtime.clocks import with_clocks
from distarray.runtime.execution import Execution, Observer, StoppedError, nbytes_of
from distarray.runtime.first_look import ECHO
from distarray.runtime.permits import FreeThreads, Permits
from distarray.runtime.timelines import ROWS
from distarray.runtime.wire import PLUGIN

#: Messages from the scheduler: a run begins an attempt; it is over.
BEGIN = "distarray-begin"
END = "distarray-end"
#: In the metadata of the task of a program: the attempt in which it came to its end.
ATTEMPT = "distarray-attempt"
#: Topic of events for the scheduler: messages of a run may be lost, or one cannot travel, with its error.
RUNS = "distarray-runs"
#: Messages between workers: a value for a program, and the word that one may come.
PUSH = "distarray_push"
GRANT = "distarray_grant"

#: Names of runs that are over, so that late messages of theirs are known.
_N_ENDED = 1000
#: States of a task, on a worker, that the scheduler wants and that has begun.
_WANTED = frozenset({"executing", "long-running"})
#: Between looks at whether the scheduler still wants the task of a program whose run is over.
_LOOK_SECONDS = 0.1
#: Threads that wait for messages; those that run steps are as many as the worker has.
_MOST_THREADS = 10_000


class SentProgram(NamedTuple):
    """A SentProgram is a program as its worker has it.

    Parameters
    ----------
    homes
        Of the members with which it exchanges messages.
    given
        How it finds the blocks that it is given among the arguments of its task; None: these are the blocks.
    """

    program: MemberProgram
    homes: Mapping[int, str]
    given: Given | None = None


def loaded_program(data: bytes) -> SentProgram:
    """Return the program that a scheduler passed on as bytes: it need not unpack what only workers read."""
    found: SentProgram = pickle.loads(data)
    return found


async def run_program(
    key: Key, run: str, member: int, is_queued: bool, program: bytes | SentProgram, parameters: bytes, *given: Any
) -> Any:
    """Run the program of a member, on a worker: the function of its Dask task.

    Parameters
    ----------
    key
        Of the task.
    is_queued
        Whether it begins when the scheduler says so.
    program
        As it was sent, or as the worker has it from an earlier run.
    parameters
        Of this run, and the name of the measurement that it belongs to or None.
    given
        The blocks that it is given, or bundles of these.

    Returns
    -------
    tuple
        What is kept, in the order of the program.
    """
    from distributed.worker import get_worker

    worker = get_worker()
    transport: Transport = worker.plugins[PLUGIN].transport
    sent = loaded_program(program) if isinstance(program, bytes) else program
    filling, measurement = pickle.loads(parameters)
    filled = sent.program.filled(filling, run)
    filled = replace(filled, steps=with_clocks(filled.steps, repeat(member), measurement))
    blocks = given if sent.given is None else sent.given.blocks(given)
    return await transport.run(key, run, member, sent.homes, filled, blocks, is_queued=is_queued)


class _LocalRun:
    """A _LocalRun is what a worker knows of a run: its attempt, the programs that run here, and messages for those to
    come.
    """

    def __init__(self) -> None:
        self.attempt = 0
        #: Who serves homes that do not serve themselves.
        self.where: Mapping[str, str] = {}
        #: Runs that have to be over before its programs begin, if it is queued; None before its turn is known.
        self.after: set[str] | None = None
        self.executions: dict[int, Execution] = {}
        #: By attempt and member what its execution is to be told.
        self.early: defaultdict[tuple[int, int], list[Callable[[Execution], None]]] = defaultdict(list)

    def is_due(self) -> bool:
        """Return whether its programs may begin, if it is queued."""
        return self.after is not None and not self.after

    def stop(self, error: BaseException) -> None:
        """Stop what runs."""
        for execution in list(self.executions.values()):
            execution.stop(error)


class Transport:
    """A Transport belongs to a worker: it runs programs there, and sends and receives their messages.

    Parameters
    ----------
    worker
        A ``distributed.Worker``. All methods run in its event loop, if nothing else is said.
    """

    def __init__(self, worker: Any) -> None:
        self._worker = worker
        self._runs: dict[str, _LocalRun] = {}
        #: By name of a run that is over its last attempt, and its error as it came.
        self._ended: OrderedDict[str, tuple[int, Any]] = OrderedDict()
        self._channels = Channels(worker, self._broken, self._failed)
        #: Set whenever a run begins or ends.
        self._changed = asyncio.Event()
        #: Of the executions that begin from now on.
        self.observers: list[Observer] = []
        self.stream_handlers: dict[str, Callable[..., Any]] = {BEGIN: self.begin, END: self.end}
        self.handlers: dict[str, Callable[..., Any]] = {PUSH: self.pushed, GRANT: self.granted, ECHO: self.echo}

    def close(self) -> None:
        """Stop what runs."""
        for run in self._runs.values():
            run.stop(StoppedError("the last client that uses distarray has left"))
        self._runs.clear()
        self._changed.set()
        self._channels.close()
        if "_threads" in vars(self):
            self._threads.shutdown(wait=False)

    @cached_property
    def _threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(_MOST_THREADS, thread_name_prefix="distarray-program")

    @cached_property
    def _permits(self) -> Permits:
        return Permits(self._worker.state.nthreads)

    @cached_property
    def free_threads(self) -> FreeThreads:
        """Return those that help with kernels."""
        return FreeThreads(self._worker, self._permits, self._start_as)

    def echo(self, nbytes: int) -> Any:
        """Answer another worker that looks how long it takes (`first_look`), with so many bytes."""
        return to_serialize(np.zeros(nbytes, np.uint8))

    # -- programs ------------------------------------------------------------------------------------------------

    async def run(
        self,
        key: Key,
        name: str,
        member: int,
        homes: Mapping[int, str],
        program: MemberProgram,
        given: Sequence[Any],
        *,
        is_queued: bool,
    ) -> tuple[Any, ...]:
        """Run a program until one of its attempts is done."""
        self._worker.handle_stimulus(SecedeEvent(key=key, compute_duration=0.0, stimulus_id=f"secede-{time()}"))
        loop = asyncio.get_running_loop()
        while True:
            run = await self._run_of(name, key)
            while is_queued and not run.is_due() and self._runs.get(name) is run:
                self._changed.clear()
                await self._changed.wait()
            if self._runs.get(name) is not run:
                raise self._end_of(name)
            attempt = run.attempt
            over = asyncio.Event()
            start = partial(self._start_as, key, contextvars.copy_context())  # which names the worker
            post = _LoopPost(self, loop, name, attempt, member, homes)

            def finish(over: asyncio.Event = over) -> None:
                with suppress(RuntimeError):  # the loop has ended
                    loop.call_soon_threadsafe(over.set)

            n_threads = self._worker.state.nthreads
            execution = Execution(program, given, n_threads, self._permits, start, post, finish, tuple(self.observers))
            run.executions[member] = execution
            execution.begin()
            for tell in run.early.pop((attempt, member), ()):
                tell(execution)
            try:
                await over.wait()
            except BaseException:
                execution.stop(StoppedError("the worker closes"))
                raise
            if run.attempt != attempt and self._runs.get(name) is run:
                continue
            if run.executions.get(member) is execution:
                del run.executions[member]
            if (error := execution.error) is not None:
                execution.error = None
                try:
                    raise error
                finally:
                    del error  # its traceback holds this frame, which would hold it
            # It travels with the message that the task is done.
            metadata = {ATTEMPT: attempt, ROWS: execution.timeline.rows(self._worker.scheduler_delay)}
            self._worker.state.tasks[key].metadata.update(metadata)
            for label, seconds in execution.timeline.seconds().items():
                context_meter.digest_metric(label, seconds, "seconds")
            return tuple(execution.results.values())

    def steps_left(self) -> dict[str, dict[int, tuple[int, int]]]:
        """Return by run and member the steps of each program that runs here, and how many of them are left."""
        return {
            name: {member: execution.steps_left() for member, execution in list(run.executions.items())}
            for name, run in list(self._runs.items())
        }

    async def _run_of(self, name: str, key: Key) -> _LocalRun:
        """Return what is known of a run, for a program that is to begin.

        It may begin when the run is over: then the scheduler takes its task back, or has the run begin anew; what it
        says of either is on its way. Else that is raised with which the run ended.
        """
        while name not in self._runs and name in self._ended:
            task = self._worker.state.tasks.get(key)
            if self._ended[name][1] is not None or task is None or task.state not in _WANTED:
                raise self._end_of(name)
            self._changed.clear()
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._changed.wait(), _LOOK_SECONDS)
        return self._runs.setdefault(name, _LocalRun())

    def _end_of(self, name: str) -> BaseException:
        """Return the error with which the programs of a run that is over end."""
        _, error = self._ended.get(name, (0, None))
        # A new one each time: one that was raised holds the frames that it left.
        found: BaseException = StoppedError("the run is over") if error is None else clean_exception(error)[1]
        return found

    def _start_as(self, key: Key, context: contextvars.Context, function: Callable[[], None]) -> None:
        """Have a thread call a function in a copy of a context, as if it were the task of a key."""
        worker = self._worker
        state = worker.execution_state

        def as_task() -> None:
            thread_state.key, thread_state.execution_state, thread_state.start_time = key, state, time()
            pool_state.proceed, pool_state.executor = True, self._permits
            ident = threading.get_ident()
            with worker.active_threads_lock:
                worker.active_threads[ident] = key
            try:
                function()
            finally:
                with worker.active_threads_lock:
                    worker.active_threads.pop(ident, None)
                del thread_state.key, thread_state.execution_state, thread_state.start_time
                del pool_state.proceed, pool_state.executor

        self._threads.submit(context.copy().run, as_task)

    # -- messages of the scheduler -------------------------------------------------------------------------------

    def begin(self, run: str, attempt: int, where: Mapping[str, str], after: Collection[str] | None) -> None:
        """Begin an attempt of a run.

        Parameters
        ----------
        where
            Who serves homes that do not serve themselves.
        after
            Runs that have to be over here before its programs begin; None if its turn has not come.
        """
        if run in self._ended and self._ended[run][0] >= attempt:
            return
        self._ended.pop(run, None)
        record = self._runs.setdefault(run, _LocalRun())
        record.where = where
        record.after = None if after is None else {name for name in after if name not in self._ended}
        self._changed.set()
        if attempt > record.attempt:
            record.attempt = attempt
            for key in [key for key in record.early if key[0] < attempt]:
                del record.early[key]
            self._channels.forget(run, attempt - 1)
            record.stop(StoppedError("the run begins anew"))

    def end(self, run: str, attempt: int, error: Any = None) -> None:
        """End a run, after this attempt: what is left of it here stops, with an error as distributed passes it on."""
        self._ended[run] = attempt, error
        for other in self._runs.values():
            if other.after is not None:
                other.after.discard(run)
        self._changed.set()
        self._channels.forget(run, attempt)
        if len(self._ended) > _N_ENDED:
            self._ended.popitem(last=False)
        record = self._runs.get(run)
        if record is not None and record.attempt <= attempt:
            del self._runs[run]
            record.stop(self._end_of(run))

    # -- messages between programs -------------------------------------------------------------------------------

    def send(
        self,
        attempt: Attempt,
        home: str,
        member: int,
        number: int,
        value: Any,
        left: Callable[[], None] | None,
    ) -> None:
        """Send a message to the program of a member, and call `left` when its value is needed here no more."""
        if (address := self._address(attempt, home)) is None:
            return
        if address == self._worker.address:
            self._tell(attempt, member, lambda execution: execution.receive(number, value))
            if left is not None:
                left()
            return
        message = {"op": PUSH, "reply": False, "name": attempt[0], "attempt": attempt[1], "member": member}
        message |= {"number": number, "who": self._worker.address, "sent": time()}
        message |= ahead_of(nbytes_of(value)) | {"data": to_serialize(value)}
        self._channels.send(address, attempt, message, left)

    def grant(self, attempt: Attempt, home: str, member: int, number: int, to: int) -> None:
        """Tell the program of a member that it may send a message to another one."""
        if (address := self._address(attempt, home)) is None:
            return
        if address == self._worker.address:
            self._tell(attempt, member, lambda execution: execution.grant(number, to))
            return
        message = {"op": GRANT, "reply": False, "name": attempt[0], "attempt": attempt[1]}
        self._channels.send(address, attempt, {**message, "member": member, "number": number, "to": to})

    def _address(self, attempt: Attempt, home: str) -> str | None:
        """Return the worker that serves a home in an attempt; None if this is over."""
        return self._runs[attempt[0]].where.get(home, home) if self._is_current(*attempt) else None

    def _broken(self, attempts: Collection[Attempt]) -> None:
        """Have runs begin anew whose messages may be lost."""
        for name, attempt in attempts:
            if self._is_current(name, attempt):
                self._worker.log_event(RUNS, {"run": name, "attempt": attempt, "exception": None})

    def _failed(self, attempt: Attempt, error: Exception) -> None:
        """End a run of which something cannot travel; the program that made it may be over."""
        try:
            exception = dumps(error)
        except Exception:
            exception = dumps(RuntimeError(repr(error)))
        self._worker.log_event(RUNS, {"run": attempt[0], "attempt": attempt[1], "exception": exception})

    def _is_current(self, name: str, attempt: int) -> bool:
        """Return whether a run is under way here, and has not begun a later attempt."""
        run = self._runs.get(name)
        return run is not None and run.attempt <= attempt

    async def pushed(
        self, name: str, attempt: int, member: int, number: int, data: Any, who: str, sent: float, ahead: Any = None
    ) -> None:
        """Take a message of another worker, and note it where the worker notes what it fetches."""
        now, nbytes = time(), nbytes_of(data)
        seconds = max(0.001, now - sent)
        entry = {"start": now - seconds, "stop": now, "middle": now - seconds / 2, "duration": seconds, "who": who}
        self._worker.transfer_incoming_log.append({**entry, "keys": {}, "total": nbytes, "bandwidth": nbytes / seconds})
        self._tell((name, attempt), member, lambda execution: execution.receive(number, data))

    async def granted(self, name: str, attempt: int, member: int, number: int, to: int) -> None:
        """Take the word of another worker that a message may come."""
        self._tell((name, attempt), member, lambda execution: execution.grant(number, to))

    def _tell(self, attempt: Attempt, member: int, tell: Callable[[Execution], None]) -> None:
        """Tell the execution of a program something: now, or when it begins."""
        name, number = attempt
        if name in self._ended and self._ended[name][0] >= number:
            return
        run = self._runs.setdefault(name, _LocalRun())
        execution = run.executions.get(member)
        if number == run.attempt and execution is not None and not execution.is_over:
            try:
                tell(execution)
            except Exception as error:  # nobody is told of it by an answer
                self._failed(attempt, error)
        elif number >= run.attempt:
            run.early[attempt[1], member].append(tell)


class _LoopPost:
    """A _LoopPost carries the messages of one program in one attempt, to members at some homes: from its threads to
    the event loop.
    """

    def __init__(
        self, transport: Transport, loop: Any, name: str, attempt: int, member: int, homes: Mapping[int, str]
    ) -> None:
        self._transport = transport
        self._loop = loop
        self._attempt = name, attempt
        self._member = member
        self._homes = homes

    def send(self, number: int, member: int, value: Any, left: Callable[[], None] | None) -> None:
        home = self._homes[member]
        self._loop.call_soon_threadsafe(self._transport.send, self._attempt, home, member, number, value, left)

    def grant(self, number: int, member: int) -> None:
        home = self._homes[member]
        self._loop.call_soon_threadsafe(self._transport.grant, self._attempt, home, member, number, self._member)
