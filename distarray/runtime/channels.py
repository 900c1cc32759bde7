"""Channels: messages from a worker to others, one way, without an answer to each.

A message costs one write here and one read there. What was written may be lost when a connection breaks, and nobody
would know of it; so each channel listens for its end, and says then of which runs it carried messages: these begin anew
(`scheduler_runs`). A worker that cannot be reached is tried again for as long as messages for it wait.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias

#: Name of a run, and number of its attempt.
Attempt: TypeAlias = tuple[str, int]

#: Between attempts to reach a worker, at first and at most.
_AGAIN_SECONDS = 0.05
_AGAIN_MOST = 1.0
#: Channels that stay open when no run needs them.
_N_IDLE = 64


async def _drained(comm: Any) -> None:
    """Wait until all that was written to a connection has left this process."""
    stream = getattr(comm, "stream", None)
    if stream is not None:  # of tcp and tls, whose writes return when their data are in a buffer
        await stream.write(b"")


class _Waiting(NamedTuple):
    """A _Waiting is a message on its way to a channel."""

    attempt: Attempt
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

    def send(
        self, address: str, attempt: Attempt, message: dict[str, Any], written: Callable[[], None] | None = None
    ) -> None:
        """Write a message to another worker as soon as those before it are written, and call `written` then."""
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = _Channel(address)
        channel.attempts.add(attempt)
        channel.waiting.append(_Waiting(attempt, message, written))
        if channel.writer is None:
            channel.writer = asyncio.get_running_loop().create_task(self._write(channel))

    def forget(self, name: str, attempt: int) -> None:
        """Let go of what waits for the attempts of a run up to this one; channels that nobody needs close."""
        for channel in self._channels.values():
            over = {a for a in channel.attempts if a[0] == name and a[1] <= attempt}
            if over:
                channel.attempts -= over
                channel.waiting = deque([w for w in channel.waiting if w.attempt not in over])
        idle = [address for address, channel in self._channels.items() if not channel.attempts and not channel.waiting]
        for address in idle[:-_N_IDLE]:
            self._close(self._channels.pop(address))

    def close(self) -> None:
        """Close all, whatever waits."""
        for channel in self._channels.values():
            self._close(channel)
        self._channels.clear()

    def _close(self, channel: _Channel) -> None:
        comm, channel.comm = channel.comm, None
        for task in (channel.writer, channel.listener):
            if task is not None:
                task.cancel()
        if comm is not None:
            comm.abort()

    async def _write(self, channel: _Channel) -> None:
        pause = _AGAIN_SECONDS
        while channel.waiting:
            if channel.comm is None:
                try:
                    channel.comm = await self._worker.rpc.connect(channel.address)
                except OSError:
                    # If the worker is lost, the run will begin anew, or end.
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, _AGAIN_MOST)
                    continue
                except RuntimeError:
                    break  # the worker closes
                channel.listener = asyncio.get_running_loop().create_task(self._listen(channel, channel.comm))
                continue
            attempt, message, written = channel.waiting.popleft()
            try:
                await channel.comm.write(message, on_error="raise")
                if written is not None:
                    await _drained(channel.comm)
            except OSError:
                self._break(channel)
            except Exception as error:
                self._failed(attempt, error)
            del message
            if written is not None:
                written()
            del written
        channel.writer = None

    async def _listen(self, channel: _Channel, comm: Any) -> None:
        """Wait for the end of a connection, on which nobody answers."""
        with suppress(OSError):
            await comm.read()
        if channel.comm is comm:
            self._break(channel)

    def _break(self, channel: _Channel) -> None:
        comm, channel.comm = channel.comm, None
        if comm is not None:
            comm.abort()
        lost = set(channel.attempts)
        channel.attempts.clear()
        channel.waiting.clear()
        if lost:
            self._broken(lost)
