"""How full the process of a worker is, and waiting until dask has made room in it.

A worker writes blocks to disk when the memory of its process passes a part of its limit; it looks ten times a second.
What is made, or read back from disk, faster than that fills up all of the share of blocks (``memory.target``) beside
what the process has anyway, and the nanny ends the process, although every block could have gone to disk in time. So
whoever brings much to a worker waits first: tasks of ours before they make anything (`BufferPool.full`), and reads of
blocks that may lie on disk (`room_made`). What a plan takes at a time then comes on top of what dask means to be there
(`memory.Room`).

Everything here runs in the process of the worker.
"""

from __future__ import annotations

import asyncio
from typing import Any

import dask

from distarray.kernels.buffers import looks_for_room


def full_nbytes(worker: Any) -> int | None:
    """Return the bytes of the process up to which a worker may make something; None where no nanny would end it.

    What others send meanwhile has room above it.
    """
    limit, ends = worker.memory_manager.memory_limit, dask.config.get("distributed.worker.memory.terminate", False)
    if worker.nanny is None or not limit or not ends:
        return None
    return int(limit * (ends - (dask.config.get("distributed.worker.memory.transfer", False) or 0)))


async def room_made(dask_worker: Any) -> None:
    """Wait until a worker has no more in memory than that at which it begins to write blocks to disk.

    No longer than it goes on doing so: what is in use does not go to disk.
    """
    manager = dask_worker.memory_manager
    if dask_worker.nanny is None or not manager.memory_limit or not manager.memory_spill_fraction:
        return
    for seconds in looks_for_room(int(manager.memory_limit * manager.memory_spill_fraction)):
        await asyncio.sleep(seconds)
