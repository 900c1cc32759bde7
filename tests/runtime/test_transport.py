"""A program that begins when its run is over runs no step, and nothing is left of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from distarray.lower.member_programs import MemberProgram

pytest.importorskip("distributed")

from distributed.protocol.pickle import dumps

from distarray.runtime.execution import StoppedError
from distarray.runtime.timelines import ROWS
from distarray.runtime.transport import ATTEMPT, Transport

KEY = ("program-run", 0)


class Worker:
    """What a transport needs of a worker that runs one task."""

    address = "here"
    scheduler_delay = 0.0

    def __init__(self) -> None:
        self.task = SimpleNamespace(state="executing", metadata={})
        self.state = SimpleNamespace(tasks={KEY: self.task}, nthreads=1)

    def handle_stimulus(self, event: Any) -> None:
        self.task.state = "long-running"


async def _on(transport: Transport) -> Any:
    return await transport.run(KEY, "run", 0, {}, MemberProgram(), (), is_queued=False)


def _played(play: Callable[[Worker, Transport], Coroutine[Any, Any, None]]) -> None:
    worker = Worker()
    asyncio.run(play(worker, Transport(worker)))


def test_a_program_whose_run_is_over_ends_when_its_task_is_taken_back() -> None:
    async def play(worker: Worker, transport: Transport) -> None:
        transport.end("run", 1)
        program = asyncio.ensure_future(_on(transport))
        await asyncio.sleep(0.3)
        assert not program.done() and not transport.steps_left()
        worker.task.state = "cancelled"
        with pytest.raises(StoppedError, match="over"):
            await asyncio.wait_for(program, 30)
        assert not transport.steps_left()

    _played(play)


def test_a_program_whose_run_begins_anew_runs_in_that_attempt() -> None:
    async def play(worker: Worker, transport: Transport) -> None:
        transport.end("run", 1)
        program = asyncio.ensure_future(_on(transport))
        await asyncio.sleep(0.01)
        transport.begin("run", 2, {}, None)
        assert await asyncio.wait_for(program, 30) == ()
        assert worker.task.metadata == {ATTEMPT: 2, ROWS: []}

    _played(play)


def test_a_program_whose_run_failed_ends_with_its_error() -> None:
    async def play(worker: Worker, transport: Transport) -> None:
        transport.end("run", 0, dumps(ZeroDivisionError("on purpose")))
        with pytest.raises(ZeroDivisionError, match="on purpose"):
            await asyncio.wait_for(_on(transport), 30)
        assert not transport.steps_left()

    _played(play)
