"""Results that are brought here while workers are lost: a scheduler that answers as one does, without a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from distarray.runtime import arrivals, attached, connections

worker = pytest.importorskip("distributed.worker")
LOST, ALIVE = "tcp://127.0.0.1:1", "tcp://127.0.0.1:2"


class _State:
    def __init__(self) -> None:
        self.n_waits = 0

    async def wait(self) -> None:
        self.n_waits += 1

    def reset(self) -> None:
        raise AssertionError("nobody said that the result is lost")


class _Future:
    key, status = "block", "finished"

    def __init__(self) -> None:
        self._state = _State()


class _Scheduler:
    """A _Scheduler first tries to reach a worker that is lost, and has heard of that after some looks."""

    def __init__(self, places: Sequence[str]) -> None:
        self.places = list(places)
        self.n_looks = self.n_gathered = 0

    async def who_has(self, keys: Sequence[str]) -> dict[str, list[str]]:
        return {key: list(self.places) for key in keys}

    async def ncores(self, workers: Sequence[str]) -> dict[str, int]:
        self.n_looks += 1
        if self.n_looks == 2 and LOST in self.places:
            self.places.remove(LOST)
        return {address: 1 for address in workers if address in self.places}

    async def gather(self, keys: Sequence[str]) -> dict[str, Any]:
        self.n_gathered += 1
        if LOST in self.places:
            await asyncio.sleep(3600)
        await asyncio.sleep(3 * attached._LOOK_SECONDS)  # longer than a look
        return {"status": "OK", "data": dict.fromkeys(keys, 5)}


class _Client:
    direct_to_workers = False

    def __init__(self, places: Sequence[str]) -> None:
        self.scheduler = _Scheduler(places)


@pytest.mark.parametrize(("places", "n_gathered"), [([LOST, ALIVE], 2), ([ALIVE], 1)])
def test_nobody_waits_for_a_worker_that_is_lost(
    places: list[str], n_gathered: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attached, "_LOOK_SECONDS", 0.02)

    async def gathered(client: _Client, future: _Future) -> Any:
        return await asyncio.wait_for(attached.gathered(client, [future]), 60)

    client, future = _Client(places), _Future()
    assert asyncio.run(gathered(client, future)) == {"block": 5}
    assert client.scheduler.n_gathered == future._state.n_waits == n_gathered


class _Connecting:
    """A _Connecting is the client of a worker that another of its threads has just made."""

    id, asynchronous, scheduler = "client", False, SimpleNamespace(address="tcp://127.0.0.1:1")
    _handle_report_task: Any = None

    def __init__(self, statuses: Sequence[str]) -> None:
        self.statuses = [*statuses]

    @property
    def status(self) -> str:
        return self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]

    @property
    def _scheduler_identity(self) -> dict[str, str]:
        return {"id": "scheduler"} if self.statuses == ["running"] else {}


def test_a_task_waits_for_the_client_that_another_thread_has_just_made(monkeypatch: pytest.MonkeyPatch) -> None:
    client = _Connecting(["newly-created", "connecting", "connecting", "running"])
    monkeypatch.setattr(arrivals, "thread_state", lambda: SimpleNamespace(key="task"))
    monkeypatch.setattr(worker, "get_client", lambda: client)
    assert arrivals.client_named(arrivals.ClusterName("scheduler", "another", "tcp://127.0.0.1:1")) is client


def test_a_client_that_is_being_made_is_waited_for_and_a_broken_one_once(monkeypatch: pytest.MonkeyPatch) -> None:
    client = _Connecting(["newly-created", "connecting", "connecting", "connecting", "connecting", "running"])
    connections.await_start(client)
    assert client.status == "running"
    broken = _Connecting(["connecting"])
    monkeypatch.setattr(connections, "_START_SECONDS", 0.05)
    connections.await_start(broken)
    monkeypatch.setattr(connections, "_START_SECONDS", 3600)
    connections.await_start(broken)
    lost = _Connecting(["connecting"])
    lost._handle_report_task = object()  # it heard a scheduler before
    connections.await_start(lost)
