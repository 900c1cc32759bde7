"""What tests of member programs run on workers and schedulers, which can import this module and not the tests."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import distributed
import numpy as np

import distarray as dx
from distarray.kernels.buffers import POOL
from distarray.runtime import alignment
from distarray.runtime.wire import PLUGIN, TEMPLATE, TOPIC, is_program


def left_at_workers(dask_worker: Any) -> tuple[int, int]:
    """Return the runs that a worker knows of, and the programs that run there."""
    transport = dask_worker.plugins[PLUGIN].transport
    return len(transport._runs), sum(len(run.executions) for run in transport._runs.values())


def left_at_scheduler(dask_scheduler: Any) -> tuple[int, int, int]:
    """Return the runs that the scheduler knows of, their tasks, and the tasks that are programs or anchors."""
    runs = dask_scheduler.plugins[TOPIC].runs
    n_tasks = sum(is_program(key) or str(key[0]).startswith("dx-run-") for key in dask_scheduler.tasks)
    return len(runs._runs), len(runs._of), n_tasks


def trim_pool() -> None:
    """Free the memory that lies idle at a worker."""
    POOL.trim()


def note_reads(dask_worker: Any) -> None:
    """Have a worker note of each large array that it reads whether its elements can be used where they lie."""
    noted = dask_worker.noted_reads = []
    read = alignment._read

    def noting(header: Any, frames: Any) -> Any:
        x = read(header, frames)
        if x.nbytes >= alignment.APART_NBYTES:
            noted.append(x.flags.aligned)
        return x

    dask_worker.reads_before, alignment._read = read, noting


def noted_reads(dask_worker: Any) -> list[bool]:
    """Return what was noted, and note no more."""
    alignment._read = dask_worker.reads_before
    return dask_worker.noted_reads


def kinds_of_tasks(dask_scheduler: Any) -> dict[str, int]:
    return {"program": sum(map(is_program, dask_scheduler.tasks)), "all": len(dask_scheduler.tasks)}


def fails_at(n: int, block: Any) -> Any:
    if block[0, 0] == n:
        raise ZeroDivisionError("on purpose")
    return block


def waits_for(path: str, block: Any) -> Any:
    """Return a block when there is a file of this name."""
    Path(path + f".{os.getpid()}.here").touch()
    while not Path(path).exists():
        time.sleep(0.01)
    return block


def sleeps(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def attempts(dask_scheduler: Any) -> list[int]:
    return [run.attempt for run in dask_scheduler.plugins[TOPIC].runs._runs.values()]


def keys_of(dask_scheduler: Any) -> set[Any]:
    return set(dask_scheduler.tasks)


def keys_but_templates(dask_scheduler: Any) -> list[Any]:
    """Return the keys of all but the programs that workers have for the next run, which stay with their plan."""
    return [key for key in dask_scheduler.tasks if not str(key[0]).startswith(TEMPLATE)]


def keys_in_memory(dask_scheduler: Any) -> list[Any]:
    """Return the keys of what workers hold, but for programs that they have for the next run."""
    return [key for key in keys_but_templates(dask_scheduler) if dask_scheduler.tasks[key].state == "memory"]


def connections(dask_worker: Any) -> list[Any]:
    """Return the connections that messages of programs go over."""
    channels = dask_worker.plugins[PLUGIN].transport._channels._channels.values()
    return [channel.comm for channel in channels if channel.comm is not None and channel.attempts]


def break_connections(dask_worker: Any) -> int:
    """Break the connections that messages of programs went over, as a network does."""
    comms = connections(dask_worker)
    for comm in comms:
        comm.abort()
    return len(comms)


class Untransportable:
    """Is an array to numpy, and refuses to travel."""

    def __reduce__(self) -> Any:
        raise TypeError("stays here")


def asks_others(block: Any) -> Any:
    with distributed.worker_client() as client:
        return block + sum(client.gather([client.submit(sleeps, 0.01 * n, pure=False) for n in range(1, 4)]))


def evaluates_more(block: Any) -> Any:
    """Return a block and the sum of what members of the same cluster compute meanwhile."""
    with distributed.worker_client() as client:
        team = dx.Team((4,), ("r",), client=client)
        z = dx.asarray(np.ones((48, 48)), team=team, sharding=("r", None)).persist()
        return block + float((z + z.T).sum()) / 4608


def waits_for_event(block: Any) -> Any:
    """Return a block when somebody has set an event; the thread is given back meanwhile."""
    with distributed.worker_client():
        assert distributed.Event("go on").wait(20)
    return block


def sum_of_some(x: Any) -> float:
    """Return what a task reads of an array that came to it by name."""
    return float(np.asarray(x[2:13]).sum())


def is_aligned(x: np.ndarray) -> bool:
    """Return whether the elements of an array that came to a task can be used as they lie."""
    return x.flags.aligned
