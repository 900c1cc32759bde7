"""Channels: messages from a worker to others, one way, without an answer to each.

A message costs one write here and one read there. What was written may be lost when a connection breaks, and nobody
would know of it; so each channel listens for its end, and says then of which runs it carried messages: these begin anew
(`scheduler_runs`). A worker that cannot be reached is tried again for as long as messages for it wait.

Connections are of the worker's own pool, and few at a time: who sends to many members does so in the order in which
messages come (`lower.turns`). A channel that waits for a connection has another one, with nothing to write, give up
its own. That asks the other end first whether all has come: an answer comes after all that was written before.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias

from distarray.runtime.first_look import ECHO

#: Name of a run, and number of its attempt.
Attempt: TypeAlias = tuple[str, int]

#: Between attempts to reach a worker, at first and at most.
_AGAIN_SECONDS = 0.05
_AGAIN_MOST = 1.0
#: Connections to others at a time. All of a worker are 512 (``distributed.core.ConnectionPool``): who sends to more
#: members than these needs some for what Dask fetches.
_N_OPEN = 64


async def _drained(comm: Any) -> None:
    """Wait until all that was written to a connection has left this process."""
    stream = getattr(comm, "stream", None)
    if stream is not None:  # of tcp and tls, whose writes return when their data are in a buffer
        await stream.write(b"")


class _Waiting(NamedTuple):
    """A _Waiting is a message on its way to a channel; without an attempt it is the question whether all has come."""

    attempt: Attempt | None
    message: dict[str, Any]
    written: Callable[[], None] | None


class _Channel:
    """A _Channel is a connection to another worker, with what is to be written to it."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.waiting: deque[_Waiting] = deque()
        #: Runs of which messages were written to it, or are to be.
        self.attempts: set[Attempt] = set()
        self.comm: Any = None
        self.writer: asyncio.Task[None] | None = None
        self.listener: asyncio.Task[None] | None = None
        #: Whether it gives up its connection once all has come, and the questions that nobody has answered yet.
        self.is_leaving = False
        self.n_asked = 0


class Channels:
    """The Channels of a worker bring messages to others. All methods run in the worker's event loop.

    Parameters
    ----------
    worker
        A ``distributed.Worker``.
    broken
        Called with the runs whose messages may be lost, since a connection broke.
    failed
        Called with a run of which a message cannot travel, and the error.
    """

    def __init__(
        self,
        worker: Any,
        broken: Callable[[Collection[Attempt]], None],
        failed: Callable[[Attempt, Exception], None],
    ) -> None:
        self._worker = worker
        self._broken = broken
        self._failed = failed
        self._channels: dict[str, _Channel] = {}
        #: Those that have a connection, or are to get one: who wrote longest ago first.
        self._open: dict[str, _Channel] = {}
        self._n_waiting = 0
        #: Set whenever one has nothing to write any more, or gave up its connection.
        self._changed = asyncio.Event()

    def send(
        self, address: str, attempt: Attempt, message: dict[str, Any], written: Callable[[], None] | None = None
    ) -> None:
        """Write a message to another worker as soon as those before it are written, and call `written` then."""
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = _Channel(address)
        channel.attempts.add(attempt)
        channel.is_leaving = False
        self._queue(channel, _Waiting(attempt, message, written))

    def forget(self, name: str, attempt: int) -> None:
        """Let go of what waits for the attempts of a run up to this one."""
        for channel in list(self._channels.values()):
            over = {a for a in channel.attempts if a[0] == name and a[1] <= attempt}
            if over:
                channel.attempts -= over
                channel.waiting = deque([w for w in channel.waiting if w.attempt not in over])
                if channel.comm is None and channel.writer is not None and not channel.waiting:
                    channel.writer.cancel()  # which waits for a connection
                    channel.writer = None
                self._drop(channel)

    def close(self) -> None:
        """Close all channels, whatever waits."""
        for channel in list(self._channels.values()):
            for task in (channel.writer, channel.listener):
                if task is not None:
                    task.cancel()
            self._disconnect(channel)
        self._channels.clear()

    def _queue(self, channel: _Channel, waiting: _Waiting) -> None:
        channel.waiting.append(waiting)
        if channel.writer is None:
            channel.writer = asyncio.get_running_loop().create_task(self._write(channel))

    def _drop(self, channel: _Channel) -> None:
        """Forget a channel that has no connection, and that nobody needs."""
        if channel.comm is None and channel.writer is None and not channel.attempts:
            self._channels.pop(channel.address, None)

    async def _write(self, channel: _Channel) -> None:
        pause = _AGAIN_SECONDS
        while channel.waiting:
            if channel.comm is None:
                try:
                    await self._connect(channel)
                except OSError:
                    # If the worker is lost, the run will begin anew, or end.
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, _AGAIN_MOST)
                except RuntimeError:
                    break  # the worker closes
                continue
            self._open[channel.address] = self._open.pop(channel.address)
            attempt, message, written = channel.waiting.popleft()
            try:
                await channel.comm.write(message, on_error="raise")
                if written is not None:
                    await _drained(channel.comm)
            except OSError:
                self._break(channel)
            except Exception as error:
                if attempt is not None:
                    self._failed(attempt, error)
            del message
            if written is not None:
                written()
            del written
        channel.writer = None
        self._leave(channel, has_ended=True)  # its listener reads on
        self._drop(channel)
        self._changed.set()

    async def _connect(self, channel: _Channel) -> None:
        """Give a channel a connection, once it may have one, and listen to it."""
        await self._enter(channel)
        try:
            channel.comm = await self._worker.rpc.connect(channel.address)
        except BaseException:
            self._disconnect(channel)
            raise
        channel.n_asked = 0
        channel.listener = asyncio.get_running_loop().create_task(self._listen(channel, channel.comm))

    async def _enter(self, channel: _Channel) -> None:
        """Wait until one more channel may have a connection."""
        self._n_waiting += 1
        try:
            while len(self._open) >= _N_OPEN:
                self._changed.clear()
                self._make_room()
                if len(self._open) >= _N_OPEN:
                    await self._changed.wait()
        finally:
            self._n_waiting -= 1
        self._open[channel.address] = channel

    def _make_room(self) -> None:
        """Have as many channels give up their connections as others wait for one, if they have nothing to write."""
        n_leaving = sum([channel.is_leaving for channel in self._open.values()])
        for channel in list(self._open.values()):
            if n_leaving >= self._n_waiting:
                return
            if channel.comm is None or channel.writer is not None or channel.is_leaving:
                continue
            n_leaving += 1
            if channel.attempts:
                channel.is_leaving = True
                channel.n_asked += 1
                self._queue(channel, _Waiting(None, {"op": ECHO, "nbytes": 0, "reply": True}, None))
            else:
                self._disconnect(channel)
                self._drop(channel)

    async def _listen(self, channel: _Channel, comm: Any) -> None:
        """Wait for answers, and for the end of a connection."""
        with suppress(OSError):
            while channel.comm is comm:
                await comm.read()
                channel.n_asked -= 1
                self._leave(channel, has_ended=False)
        if channel.comm is comm:
            self._break(channel)

    def _leave(self, channel: _Channel, *, has_ended: bool) -> None:
        """Give up the connection of a channel that is to, if all has come."""
        if channel.is_leaving and not channel.n_asked and channel.writer is None:
            channel.is_leaving = False
            channel.attempts.clear()
            self._disconnect(channel, has_ended=has_ended)
            self._drop(channel)

    def _disconnect(self, channel: _Channel, *, has_ended: bool = True) -> None:
        """Give the connection of a channel back to the worker's pool: closed, or for others to use, if nobody reads."""
        comm, channel.comm = channel.comm, None
        if comm is not None:
            if has_ended:
                comm.abort()
            self._worker.rpc.reuse(channel.address, comm)
        if self._open.get(channel.address) is channel:
            del self._open[channel.address]
        self._changed.set()

    def _break(self, channel: _Channel) -> None:
        self._disconnect(channel)
        lost = set(channel.attempts)
        channel.attempts.clear()
        channel.waiting.clear()
        channel.is_leaving = False
        self._drop(channel)
        if lost:
            self._broken(lost)
