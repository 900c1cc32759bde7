"""Results that are brought here while workers are lost: a scheduler that answers as one does, without a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from distarray.runtime import attached

pytest.importorskip("distributed.utils_comm")
LOST, ALIVE = "tcp://127.0.0.1:1", "tcp://127.0.0.1:2"


class _State:
    def reset(self) -> None:
        raise AssertionError("nobody said that the result is lost")


class _Future:
    key = "block"
    _state = _State()


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
    settled: list[int] = []

    async def settle(futures: Sequence[Any]) -> None:
        settled.append(len(futures))

    async def gathered(client: _Client) -> Any:
        return await asyncio.wait_for(attached.gathered(client, [_Future()], settle), 60)

    client = _Client(places)
    assert asyncio.run(gathered(client)) == {"block": 5}
    assert client.scheduler.n_gathered == len(settled) == n_gathered
