"""Channels: few connections at a time, all messages in their order, and none that is lost without a word."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from distarray.runtime.first_look import ECHO

pytest.importorskip("distributed")

from distributed.core import ConnectionPool, Server

from distarray.runtime import channels as module
from distarray.runtime.channels import Attempt, Channels

pytestmark = pytest.mark.cluster


class Net:
    """Servers that take messages, and channels to them."""

    def __init__(self) -> None:
        self.came: defaultdict[str, list[int]] = defaultdict(list)
        self.servers: list[Any] = []
        self.lost: list[set[Attempt]] = []
        self.most = 0

    async def start(self, n: int) -> None:
        for _ in range(n):
            server = Server({ECHO: lambda nbytes: None})
            await server.listen("inproc://" if len(self.servers) % 2 else "tcp://127.0.0.1:0")
            await server
            server.handlers["push"] = self._taker(server.address)
            self.servers.append(server)
        self.pool = await ConnectionPool()
        self.channels = Channels(SimpleNamespace(rpc=self.pool), lambda lost: self.lost.append(set(lost)), pytest.fail)

    def _taker(self, address: str) -> Callable[..., Awaitable[None]]:
        async def push(number: int, pause: float = 0.0) -> None:
            self.most = max(self.most, self.pool.active)
            await asyncio.sleep(pause)
            self.came[address].append(number)

        return push

    def send(self, to: int, number: int, run: str = "run", pause: float = 0.0) -> None:
        message = {"op": "push", "reply": False, "number": number, "pause": pause}
        self.channels.send(self.servers[to].address, (run, 0), message)

    async def sent(self, to: int, number: int, run: str = "run", pause: float = 0.0) -> None:
        """Send a message, and wait until it is written; it comes after a pause."""
        self.send(to, number, run, pause)
        await self.until(lambda: self.channels._channels[self.servers[to].address].writer is None)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                await asyncio.sleep(0.005)

    async def end(self) -> None:
        self.channels.close()
        self.pool._validate()
        assert self.pool.active == 0, "what channels had is given back"
        await self.pool.close()
        for server in self.servers:
            await server.close()


def netted(program: Callable[[Net], Awaitable[None]], n: int) -> None:
    async def run() -> None:
        net = Net()
        await net.start(n)
        try:
            await program(net)
        finally:
            await net.end()

    asyncio.run(run())


@pytest.mark.parametrize("n_open", [1, 2, 3, 64])
def test_who_sends_to_many_has_few_connections_at_a_time(monkeypatch: pytest.MonkeyPatch, n_open: int) -> None:
    monkeypatch.setattr(module, "_N_OPEN", n_open)

    async def program(net: Net) -> None:
        for number in range(30):
            for to in range(8):
                net.send(to, number, pause=0.001 * (to == 3))
            if number % 7 == 0:
                await asyncio.sleep(0.01)
        await net.until(lambda: sum(map(len, net.came.values())) == 240)
        assert all(numbers == list(range(30)) for numbers in net.came.values())
        assert net.most <= n_open
        assert not net.lost

    netted(program, 8)


def test_a_connection_is_given_up_after_all_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second channel waits for the first, whose message is under way for a while; so nobody has to ask again."""
    monkeypatch.setattr(module, "_N_OPEN", 1)

    async def program(net: Net) -> None:
        first, second = (server.address for server in net.servers)
        await net.sent(0, 1, pause=0.2)
        net.send(1, 2)
        await asyncio.sleep(0.1)
        assert not net.came, "it has not come, so the connection stays"
        await net.until(lambda: bool(net.came[second]))
        assert net.came == {first: [1], second: [2]}
        assert first not in net.channels._channels
        assert net.pool.available[first], "the connection is there for others"

    netted(program, 2)


def test_what_may_be_lost_while_a_connection_is_given_up_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_N_OPEN", 1)

    async def program(net: Net) -> None:
        first, second = (server.address for server in net.servers)
        await net.sent(0, 1, "slow", pause=5.0)
        net.send(1, 2, "other")
        await net.until(lambda: net.channels._channels[first].is_leaving)
        net.channels._channels[first].comm.abort()
        await net.until(lambda: bool(net.came[second]))
        assert net.lost == [{("slow", 0)}]

    netted(program, 2)


def test_a_channel_that_is_written_to_while_it_gives_up_its_connection_keeps_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_N_OPEN", 1)

    async def program(net: Net) -> None:
        first, second = (server.address for server in net.servers)
        await net.sent(0, 1, pause=0.1)
        net.send(1, 3)
        await net.until(lambda: net.channels._channels[first].is_leaving)
        net.send(0, 2)
        await net.until(lambda: bool(net.came[second]))
        assert net.came == {first: [1, 2], second: [3]} and not net.lost

    netted(program, 2)


def test_connections_that_broke_or_that_no_run_needs_are_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker has 512 of them: when channels kept theirs, those of lost workers were missing for good."""
    monkeypatch.setattr(module, "_N_OPEN", 2)

    async def program(net: Net) -> None:
        address = net.servers[0].address
        for number in range(5):
            net.send(0, number)
            await net.until(lambda number=number: number in net.came[address])
            net.channels._channels[address].comm.abort()
            await net.until(lambda: address not in net.channels._channels)
            net.pool._validate()
            assert net.pool.active == 0
        assert len(net.lost) == 5
        for to in range(4):  # runs that are over need no answer
            net.send(to, 7, f"run{to}")
            await net.until(lambda to=to: 7 in net.came[net.servers[to].address])
            net.channels.forget(f"run{to}", 0)
        assert net.pool.active == 2 and len(net.channels._channels) == 2

    netted(program, 4)


def test_a_worker_that_cannot_be_reached_takes_no_place_once_nobody_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_N_OPEN", 1)

    async def program(net: Net) -> None:
        nowhere, there = "tcp://127.0.0.1:1", net.servers[0].address
        net.channels.send(nowhere, ("gone", 0), {"op": "push", "reply": False, "number": 0})
        await net.until(lambda: nowhere in net.channels._open)
        net.send(0, 5)
        net.channels.forget("gone", 0)
        assert nowhere not in net.channels._channels
        await net.until(lambda: net.came[there] == [5])

    netted(program, 1)
