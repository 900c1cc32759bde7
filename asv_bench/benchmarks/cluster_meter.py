"""What a run on a cluster costs, measured in the same way for every system.

A plugin of the workers counts where things happen: tasks that ran, bytes that came in from other workers, bytes of
results in store, and the resident memory of the process. The libraries under test are not asked. `interleaved_on` runs
several of them in turn, so that a slow moment of the machine hits all of them.

What is counted

* tasks: runs that ended well, on all workers.
* bytes moved: what the workers themselves log as received, plus the arrays that dask's ``p2p`` sends past that log.
  Data that go to the client are not moved between workers.
* peak stored bytes: the most that one worker had in store, as ``sizeof`` gives it. A view counts for its own elements,
  however much it keeps alive, and what tasks allocate while they run does not count at all: see the resident memory.
* peak resident bytes: the kernel's high-water mark of a worker's process, set back before the run. `resident` is what
  the process had then, inputs included.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from distributed.diagnostics.plugin import WorkerPlugin

__all__ = ["Cost", "Job", "MeteredCluster", "Runs", "interleaved_on", "limited", "measured", "status_bytes", "table"]

_NAME = "benchmark-meter"


# ------------------------------------------------------------------------------------------------------ on workers


class _Received(deque[Any]):
    """A worker's log of transfers, which also adds them up: the log itself forgets."""

    def __init__(self, log: deque[Any]) -> None:
        super().__init__(log, log.maxlen)
        self.nbytes = 0

    def append(self, entry: Any) -> None:
        self.nbytes += entry["total"]
        super().append(entry)


def _array_bytes(value: Any) -> int:
    """Bytes of the arrays in nested tuples and lists."""
    if isinstance(value, (tuple, list)):
        return sum(map(_array_bytes, value))
    return int(getattr(value, "nbytes", 0))


def _metered_shuffles() -> dict[str, int]:
    """Bytes that dask's p2p of this process sent to others, by the address of the sender; grows from now on.

    The shuffle extension has connections of its own, which no log sees. It also sends to its own worker.
    """
    from distributed.shuffle._core import ShuffleRun

    sent: dict[str, int] | None = getattr(ShuffleRun, "_benchmark_sent", None)
    if sent is not None:
        return sent
    found: dict[str, int] = {}
    send = ShuffleRun.send

    async def counted(self: Any, address: str, shards: Any) -> Any:
        if address != self.local_address:
            found[self.local_address] = found.get(self.local_address, 0) + _array_bytes(shards)
        return await send(self, address, shards)

    ShuffleRun.send = counted
    ShuffleRun._benchmark_sent = found
    return found


def status_bytes(name: str) -> int:
    """A line of ``/proc/self/status`` in bytes; 0 where there is no such file."""
    with contextlib.suppress(OSError), open("/proc/self/status", encoding="ascii") as status:
        for line in status:
            if line.startswith(name + ":"):
                return int(line.split()[1]) * 1024
    return 0


def _reset_high_water() -> None:
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")


class _Meter(WorkerPlugin):  # type: ignore[misc]  # distributed has no type information
    """Counts on one worker."""

    name = _NAME
    idempotent = True

    def setup(self, worker: Any) -> None:
        self.worker = worker
        self.log = worker.transfer_incoming_log = _Received(worker.transfer_incoming_log)
        self.shuffled = _metered_shuffles()
        self.is_program: Callable[[Any], bool] = lambda key: False
        self.reset()

    def reset(self) -> None:
        self.tasks = self.log.nbytes = 0
        self.shuffled[self.worker.address] = 0
        plugin = self.worker.plugins.get("distarray-cut")
        if plugin is not None and self not in plugin.transport.observers:
            from distarray.runtime.wire import is_program  # only workers that ran programs of distarray load it

            plugin.transport.observers.append(self)
            self.is_program = is_program
        tasks = self.worker.state.tasks.items()
        self.beside = -sum(task.get_nbytes() for key, task in tasks if self.is_program(key) and task.state == "memory")
        self.stored = self.peak_stored = self.worker.state.nbytes + self.beside
        _reset_high_water()
        self.resident = status_bytes("VmRSS")

    def transition(self, key: Any, start: str, finish: str, **kwargs: Any) -> None:
        self.tasks += finish == "memory" and start in ("executing", "long-running")
        if self.is_program(key) and "memory" in (start, finish):
            # What a member program returns are the blocks that are kept, each under a key of its own.
            nbytes = self.worker.state.tasks[key].get_nbytes()
            self.beside += nbytes if start == "memory" else -nbytes
        self._look()

    def _look(self) -> None:
        self.peak_stored = max(self.peak_stored, self.worker.state.nbytes + self.beside)

    def holds(self, nbytes: int) -> None:
        """A member program of distarray holds so many bytes more; called from its threads."""
        self.beside += nbytes
        self._look()

    def received(self, nbytes: int, slot: int, readers: Any) -> None:
        """A member program got a message: in the log of transfers it is too."""

    def read(self) -> dict[str, int]:
        return {
            "tasks": self.tasks,
            "bytes_moved": self.log.nbytes + self.shuffled[self.worker.address],
            "stored": self.stored,
            "peak_stored": self.peak_stored,
            "resident": self.resident,
            "peak_resident": status_bytes("VmHWM"),
        }


def _reset(client_process: int, dask_worker: Any) -> None:
    if os.getpid() != client_process:  # workers that are threads would all do what the client has done
        gc.collect()
    dask_worker.plugins[_NAME].reset()


def _read(dask_worker: Any) -> dict[str, int]:
    found: dict[str, int] = dask_worker.plugins[_NAME].read()
    return found


def _load(dask_worker: Any) -> tuple[int, int, int]:
    """Bytes in store, bytes under way, tasks at work or waiting."""
    state = dask_worker.state
    return state.nbytes, state.transfer_incoming_bytes, len(state.executing) + len(state.ready) + len(state.waiting)


# ------------------------------------------------------------------------------------------------------ one run

#: Clients whose workers have the meter.
_metered: weakref.WeakSet[Any] = weakref.WeakSet()


@dataclass(frozen=True)
class Cost:
    """What one run cost.

    Attributes
    ----------
    wall
        Seconds from the call of the program until all results are in the memory of workers.
    submit
        Of these, seconds until the program came back: building, planning and sending the graph, and whatever the
        system waited for meanwhile.
    tasks, bytes_moved
        Sums over workers.
    stored, peak_stored, resident, peak_resident
        Of the worker that had most of each; before the run (inputs included), and at most during it.
    """

    wall: float
    submit: float
    tasks: int
    bytes_moved: int
    stored: int
    peak_stored: int
    resident: int
    peak_resident: int


def _settle(client: Any, quiet: float = 0.15, at_most: float = 30.0) -> None:
    """Wait until the workers are idle and what was released is gone: releases arrive some time after the client's."""
    gc.collect()
    end = time.perf_counter() + at_most
    before: Any = None
    while (now := client.run(_load)) != before or any(moving or busy for _, moving, busy in now.values()):
        if time.perf_counter() > end:
            raise TimeoutError(f"the workers are not idle after {at_most} s: (stored, moving, tasks) {now}")
        before = now
        time.sleep(quiet)


def measured(client: Any, start: Callable[[], Any], finish: Callable[[Any], Any]) -> tuple[Cost, Any]:
    """What a program costs, and its results.

    Parameters
    ----------
    client
        Of the cluster. The meter is put on its workers at the first call.
    start
        The program: gives results that are being computed.
    finish
        Waits until these results are all in the memory of workers.
    """
    if client not in _metered:
        client.register_plugin(_Meter())
        _metered.add(client)
    _settle(client)
    client.run(_reset, os.getpid())
    began = time.perf_counter()
    results = start()
    submit = time.perf_counter() - began
    finish(results)
    wall = time.perf_counter() - began
    read = list(client.run(_read).values())

    def most(name: str) -> int:
        return max(one[name] for one in read)

    cost = Cost(
        wall,
        submit,
        sum(one["tasks"] for one in read),
        sum(one["bytes_moved"] for one in read),
        most("stored"),
        most("peak_stored"),
        most("resident"),
        most("peak_resident"),
    )
    return cost, results


@contextlib.contextmanager
def limited(seconds: float | None) -> Iterator[None]:
    """Raise TimeoutError in the block after some time; the main thread's alarm, so nothing without it or elsewhere."""
    if seconds is None or not hasattr(signal, "SIGALRM") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(signum: int, frame: Any) -> None:
        raise TimeoutError(f"not done within {seconds:g} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# ------------------------------------------------------------------------------------------------------ many runs


class MeteredCluster:
    """Worker processes with one thread each on this machine; `renew` replaces them after a failure.

    Parameters
    ----------
    n_workers
        Number of processes.
    memory_limit
        Of each, as dask takes it: ``"512MiB"``. Dask's defaults hold: it spills, pauses and kills by this limit.
    """

    def __init__(self, n_workers: int = 4, memory_limit: str | int = "512MiB") -> None:
        self.n_workers = n_workers
        self.memory_limit = memory_limit
        self._open()

    def _open(self) -> None:
        from distributed import Client, LocalCluster

        self._cluster = LocalCluster(
            n_workers=self.n_workers,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address=None,
            memory_limit=self.memory_limit,
            silence_logs="CRITICAL",
            env={"EAGER_IMPORT": ""},  # workers load what they need, whatever this process has loaded
        )
        self.client = Client(self._cluster)

    def close(self) -> None:
        self.client.close()
        self._cluster.close()

    def renew(self) -> None:
        with contextlib.suppress(Exception):  # what is broken may also fail to close
            self.close()
        self._open()

    def __enter__(self) -> MeteredCluster:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()


@dataclass(frozen=True)
class Job:
    """A program on a system.

    Attributes
    ----------
    name
        Of the system.
    place
        Makes the operands and waits until they are placed; before the clock starts, and in every round anew.
    start, finish
        See `measured`; `start` takes the operands.
    check
        Raises AssertionError if the results are wrong; after the clock, in the first round.
    """

    name: str
    place: Callable[[], Any]
    start: Callable[[Any], Any]
    finish: Callable[[Any], Any]
    check: Callable[[Any], None] = lambda results: None


@dataclass
class Runs:
    """The rounds of one job; those after `failure` (a text) are missing."""

    name: str
    warm_up: Cost | None = None
    costs: list[Cost] = field(default_factory=list)
    failure: str = ""

    def median(self, name: str) -> float:
        """Of an attribute of `Cost`."""
        return float(np.median([getattr(cost, name) for cost in self.costs]))


def _once(client: Any, job: Job, seconds: float | None, check: bool) -> Cost:
    with limited(seconds):
        operands = job.place()
        cost, results = measured(client, lambda: job.start(operands), job.finish)
    if check:  # numpy may take longer for it
        job.check(results)
    return cost


def _reason(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def interleaved_on(
    cluster: MeteredCluster,
    jobs: Mapping[str, Job] | list[Job],
    rounds: int = 5,
    seconds: float | None = 600.0,
    progress: Callable[[str], object] = lambda text: None,
) -> dict[str, Runs]:
    """Run jobs in turn on one cluster, after one warm-up each; the order turns from round to round.

    Operands are made anew in every round and freed after it, so the memory is one job's alone. A job that fails, gives
    wrong results or takes too long is left out from then on, with the reason, and the next one finds a new cluster.
    """
    queue = list(jobs.values()) if isinstance(jobs, Mapping) else list(jobs)
    runs = {job.name: Runs(job.name) for job in queue}
    for number in range(rounds + 1):  # the first is the warm-up
        for job in queue:
            mine = runs[job.name]
            if mine.failure:
                continue
            try:
                cost = _once(cluster.client, job, seconds, check=number == 0)
            except Exception as error:
                mine.failure = _reason(error)
                progress(f"{job.name}: {mine.failure}")
                cluster.renew()
                continue
            progress(f"round {number} {job.name}: {cost.wall:.3f} s")
            if number == 0:
                mine.warm_up = cost
            else:
                mine.costs.append(cost)
        queue.append(queue.pop(0))
    return runs


# ------------------------------------------------------------------------------------------------------ the table


def _mib(nbytes: float) -> str:
    return f"{nbytes / 2**20:.1f}"


def table(runs: Mapping[str, Runs], reference: str = "distarray") -> str:
    """Runs as text, a line for each system.

    The ratio is `reference` / the system, round by round, the median and what holds 90 % of the rounds (below 1: the
    reference is faster). Memory is that of the worker with most, in MiB.
    """
    from .ratios import ratio

    heads = (
        "system",
        "wall s",
        "ratio [90 %]",
        "submit s",
        "first s",
        "tasks",
        "moved",
        "stored",
        "peak",
        "rss",
        "peak",
    )
    lines = [heads]
    ours = runs[reference].costs if reference in runs else []
    for run in runs.values():
        if run.failure or not run.costs:
            lines.append((run.name, f"cannot run: {run.failure or 'no rounds'}"))
            continue
        n = min(len(ours), len(run.costs))
        compared = run.name != reference and n > 0
        quotient = str(ratio([c.wall for c in ours[:n]], [c.wall for c in run.costs[:n]])) if compared else "-"
        first = run.warm_up.wall if run.warm_up is not None else float("nan")
        lines.append(
            (
                run.name,
                f"{run.median('wall'):.3f}",
                quotient,
                f"{run.median('submit'):.3f}",
                f"{first:.3f}",
                f"{run.median('tasks'):.0f}",
                *(_mib(run.median(name)) for name in ("bytes_moved", "stored", "peak_stored", "resident")),
                _mib(run.median("peak_resident")),
            )
        )
    whole = [line for line in lines if len(line) == len(heads)]
    widths = [max(len(line[i]) for line in whole) for i in range(len(heads))]
    widths[0] = max(len(line[0]) for line in lines)
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=False)).rstrip() for line in lines
    )


def report(text: str) -> None:
    """Progress to the standard error stream, so that tables can be piped."""
    print(text, file=sys.stderr, flush=True)
