"""What runs in the workers' processes: they forget lineage as the scheduler does, and lost peers, and idle memory.

A worker remembers the dependencies of every task that it computed, and those of the dependencies, for as long as the
last one is in memory. When the scheduler cuts lineage (`scheduler_plugin`), the workers must follow: their memory would
grow with every step, and a block that is to be read from its copy would wait for what it once was computed from.

A worker spills and pauses by the memory of its process, idle buffers included, so these are told its limit.

When a worker is lost, dask has the others break off what they fetch from it. But a fetch that was queued a moment
before begins a moment after, and would try to reach the lost worker until the connection times out, half a minute by
default; its task would wait for that long although the block is computed again elsewhere. So we look once more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from time import time
from typing import Any

from dask.typing import Key
from distributed.core import Status
from distributed.diagnostics.plugin import WorkerPlugin

from distarray.kernels.buffers import POOL
from distarray.runtime import blas_threads
from distarray.runtime.alignment import align_reads, read_as_dask
from distarray.runtime.connections import hurry
from distarray.runtime.pressure import full_nbytes
from distarray.runtime.transport import Transport
from distarray.runtime.wire import PLUGIN, is_ours

#: Name of the plugin, and of the message from the scheduler.
CUT = PLUGIN
#: Name of the message that a worker is lost.
GONE = "distarray-gone"
#: Name of the message that the last client of ours left.
LEAVE = "distarray-leave"

#: How long a fetch from a worker that was lost may go on.
LOST_SECONDS = 0.5
#: How long messages of other workers may come that these sent before they heard that we leave.
LATE_SECONDS = 1.0

#: States in which the dependencies of a task are in use. The scheduler asks only for blocks that are computed, so these
#: belong to a computation that it has called off.
_ACTIVE = frozenset({"constrained", "executing", "long-running", "ready", "waiting"})


class LineagePlugin(WorkerPlugin):  # type: ignore[misc]  # distributed has no type information
    """A LineagePlugin answers the scheduler's messages that the lineage of blocks is cut, that a worker is lost, and
    that we leave.

    Parameters
    ----------
    generation
        Of the scheduler's plugin that sends the messages: one that leaves must not take the next one's with it.
    """

    name = CUT

    def __init__(self, generation: str) -> None:
        self.generation = generation

    def setup(self, worker: Any) -> None:
        """Set up the worker for our messages: it reads none of another worker before."""
        if (leave := worker.stream_handlers.get(LEAVE)) is not None:
            leave.__self__.transport.close()  # of one that was here before, whose message is late
        self.worker = worker
        POOL.memory, POOL.full = worker.memory_manager.memory_limit, full_nbytes(worker)
        align_reads(worker)
        blas_threads.limit(worker)
        # On the stream that also brings tasks, so that they are heard in their order.
        self.transport = Transport(worker)
        self.handlers = {CUT: self.cut, GONE: self.gone, LEAVE: self.leave, **self.transport.stream_handlers}
        worker.stream_handlers.update(self.handlers)
        worker.handlers.update(self.transport.handlers)

    def transition(self, key: Key, start: str, finish: str, **kwargs: Any) -> None:
        """Let the scheduler know at once of the last task that a worker has."""
        if finish == "memory" and is_ours(key) and not self.worker.state.ready:
            hurry(self.worker.batched_stream)

    def leave(self, generation: str) -> None:
        """Leave the worker as it was.

        A message, since dask's removal of a plugin may overtake messages. And no `teardown`: a worker that closes calls
        it and goes on to hear messages.
        """
        worker = self.worker
        if generation == self.generation and worker.plugins.get(CUT) is self:
            if worker.status not in (Status.closing, Status.closed):
                del worker.plugins[CUT]  # else Dask is about to remove it
            for name in self.handlers:
                del worker.stream_handlers[name]
            self.transport.close()
            asyncio.get_running_loop().call_later(LATE_SECONDS, self._forget_handlers)
            POOL.memory = POOL.full = None
            read_as_dask(worker)
            blas_threads.unlimit()

    def _forget_handlers(self) -> None:
        """Hear other workers no more, if none of us came since."""
        for name, handler in self.transport.handlers.items():
            if self.worker.handlers.get(name) == handler:
                del self.worker.handlers[name]

    def gone(self, address: str) -> None:
        """See to it that blocks of ours are not fetched from a lost worker for long.

        Nothing new is fetched from it: dask's own message that it is lost follows this one.
        """
        if fetched := self._fetched_from(address):
            asyncio.get_running_loop().call_later(LOST_SECONDS, self._give_up, address, fetched)

    def _fetched_from(self, address: str) -> set[Key]:
        return {key for key in self.worker.state.in_flight_workers.get(address, ()) if is_ours(key)}

    def _give_up(self, address: str, fetched: set[Key]) -> None:
        # Who waits for the connection fails, and asks elsewhere.
        if fetched & self._fetched_from(address):
            self.worker.rpc.remove(address, reason=f"worker {address} is lost")

    def cut(self, keys: Sequence[Key]) -> None:
        """Forget what tasks were computed from, and what was known only for their sake."""
        state = self.worker.state
        unused: dict[Any, str] = {}
        for key in keys:
            task = state.tasks.get(key)
            if task is None or task.state in _ACTIVE:
                continue
            for parent in task.dependencies:
                parent.dependents.discard(task)
                parent.waiters.discard(task)
                if parent.state == "released" and not parent.dependents:
                    unused[parent] = "forgotten"
            task.dependencies.clear()
            task.waiting_for_data.clear()
        state._transitions(unused, stimulus_id=f"{CUT}-{time()}")
