"""Which GPU of its host each worker has: what the scheduler knows of it (`kernels.devices.worker_rank`).

The scheduler gives the lowest rank that no living worker has that sees the same GPUs; so one that takes the place of a
lost worker gets its GPU. Where every worker is given GPUs of its own (``CUDA_VISIBLE_DEVICES`` differs, as dask-cuda
sets it), each is the first of its kind and has the first GPU that it sees.
"""

from __future__ import annotations

from typing import Any

from distributed.diagnostics.plugin import SchedulerPlugin


class DeviceRanks(SchedulerPlugin):  # type: ignore[misc]  # distributed has no type information
    """DeviceRanks gives each worker of a host a rank; registered when the workers of a team are asked for GPUs."""

    name = "distarray-device-ranks"
    idempotent = True

    def __init__(self) -> None:
        #: Group and rank by the address of each living worker that asked.
        self.ranks: dict[str, tuple[Any, int]] = {}

    async def start(self, scheduler: Any) -> None:
        scheduler.handlers["distarray_device_rank"] = self.rank

    def rank(self, address: str, group: Any) -> int:
        """Return the rank of a worker among those of its group."""
        if address not in self.ranks:
            taken = {rank for other, rank in self.ranks.values() if other == group}
            self.ranks[address] = group, next(i for i in range(len(taken) + 1) if i not in taken)
        return self.ranks[address][1]

    def remove_worker(self, scheduler: Any, worker: str, **_: Any) -> None:
        self.ranks.pop(worker, None)
