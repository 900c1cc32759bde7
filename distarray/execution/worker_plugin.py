"""What runs in the workers' processes: they forget lineage as the scheduler does, and lost peers, and idle memory.

A worker remembers the dependencies of every task that it computed, and those of the dependencies, for as long as the
last one is in memory. When the scheduler cuts lineage (`scheduler_plugin`), the workers must follow: their memory would
grow with every step, and a block that is to be read from its copy would wait for what it once was computed from.

A worker spills and pauses by the memory of its process, idle buffers included, so these are told its limit.

A worker that fetches from a lost one would try to reach it until the connection times out, half a minute by default,
and its task would wait for that long although the block is computed again elsewhere. So it is told.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import time
from typing import Any

from dask.typing import Key
from distributed.diagnostics.plugin import WorkerPlugin

from distarray.execution.buffers import POOL

__all__ = ["CUT", "GONE", "LOST_SECONDS", "LineagePlugin"]

#: Name of the plugin, and of the message from the scheduler.
CUT = "distarray-cut"
#: Name of the message that a worker is lost.
GONE = "distarray-gone"

#: How long a worker tries to reach one that was lost.
LOST_SECONDS = 0.5

#: States in which the dependencies of a task are in use. The scheduler asks only for blocks that are computed, so these
#: belong to a computation that it has called off.
_ACTIVE = frozenset({"constrained", "executing", "long-running", "ready", "waiting"})


class LineagePlugin(WorkerPlugin):  # type: ignore[misc]  # distributed has no type information
    """Answers the scheduler's messages that the lineage of blocks is cut, and that a worker is lost."""

    name = CUT
    idempotent = True

    def __init__(self) -> None:
        #: Addresses of lost workers.
        self.lost: set[str] = set()

    def setup(self, worker: Any) -> None:
        self.worker = worker
        POOL.memory = worker.memory_manager.memory_limit
        worker.stream_handlers[CUT] = self.cut
        worker.stream_handlers[GONE] = self.gone
        pool = worker.rpc
        connect = pool.connect

        async def connect_briefly(addr: str, timeout: float | None = None) -> Any:
            """Connect; to an address that was lost with little patience, since another worker may take it."""
            if addr in self.lost:
                timeout = LOST_SECONDS
            comm = await connect(addr, timeout)
            self.lost.discard(addr)
            return comm

        pool.connect = connect_briefly

    def gone(self, address: str) -> None:
        """Give up connections to a lost worker: who waits for one fails, and asks elsewhere.

        Those under way end at once. A fetch that was queued before the worker heard of the loss begins after it: it
        gives up soon.
        """
        self.lost.add(address)
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
