"""Random programs of which each loses a worker, or two, at a random moment: numpy's numbers, no hang, nothing left.

``DISTARRAY_KILLED_PROGRAMS`` sets the number of programs (600).
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import eventually, eventually_equal, module_at, no_garbage_collected
from on_workers import left_at_scheduler, left_at_workers

import distarray as dx
from distarray.errors import BlocksLostError
from distarray.runtime import members

distributed = pytest.importorskip("distributed")

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

N_PROGRAMS = int(os.environ.get("DISTARRAY_KILLED_PROGRAMS", "600"))
N_WORKERS = 3
HANGS_SECONDS = 120.0
#: In which a nanny restarts its worker, if it does.
NANNY_SECONDS = 10.0

soak = module_at(Path(__file__).with_name("test_soak.py"), "soak_of_killed_programs")


class Workers:
    """Workers that can be lost, and that are there again some time later."""

    def __init__(self, cluster: Any, threads: int) -> None:
        self.cluster = cluster
        self.threads = threads

    def lose(self, one: random.Random) -> None:
        """Lose one of them at once."""
        raise NotImplementedError

    def restore(self) -> None:
        """Start those that nobody else starts again."""


class WithNannies(Workers):
    """Processes that their nannies restart; where one gives up, as nannies do whose worker is killed while it starts,
    another comes.
    """

    def __init__(self, cluster: Any, threads: int) -> None:
        super().__init__(cluster, threads)
        self.pids: list[int] = []
        self.complete = time.monotonic()

    def lose(self, one: random.Random) -> None:
        if alive := [pid for pid in self.pids if _is_alive(pid)]:
            os.kill(one.choice(alive), signal.SIGKILL)

    def restore(self) -> None:
        found = distributed.get_client().run(os.getpid, on_error="ignore")
        self.pids = [pid for pid in found.values() if isinstance(pid, int)]
        if len(self.pids) >= N_WORKERS:
            self.complete = time.monotonic()
        elif time.monotonic() > self.complete + NANNY_SECONDS:
            self.complete = time.monotonic()
            self.cluster.scale(len(self.cluster.workers) + 1)


class WithoutNannies(Workers):
    """Processes that nobody restarts: others come in their place."""

    def __init__(self, cluster: Any, threads: int) -> None:
        super().__init__(cluster, threads)
        self.processes: list[subprocess.Popen[bytes]] = []

    def lose(self, one: random.Random) -> None:
        if alive := [process for process in self.processes if process.poll() is None]:
            one.choice(alive).kill()

    def restore(self) -> None:
        self.processes = [process for process in self.processes if process.poll() is None]
        command = [sys.executable, "-m", "distributed.cli.dask_worker", self.cluster.scheduler_address, "--no-nanny"]
        command += ["--nthreads", str(self.threads), "--memory-limit", "512MiB", "--no-dashboard"]
        path = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        for _ in range(N_WORKERS - len(self.processes)):
            process = subprocess.Popen(command, env=path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            self.processes.append(process)


class InThisProcess(Workers):
    """Workers of this process, which leave without a word."""

    def __init__(self, cluster: Any, threads: int) -> None:
        super().__init__(cluster, threads)
        self.workers: list[Any] = []

    def lose(self, one: random.Random) -> None:
        if self.workers:
            worker = self.workers.pop(one.randrange(len(self.workers)))

            async def end() -> None:
                worker.batched_stream.abort()  # the scheduler hears nothing any more
                await worker.close(timeout=1, executor_wait=False, nanny=False)

            asyncio.run_coroutine_threadsafe(end(), worker.loop.asyncio_loop)

    def restore(self) -> None:
        async def start() -> Any:
            return await distributed.Worker(self.cluster.scheduler_address, nthreads=self.threads, memory_limit=0)

        while len(self.workers) < N_WORKERS:
            self.workers.append(self.cluster.sync(start))


def _is_alive(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


@contextmanager
def workers_of(kind: type[Workers], threads: int) -> Iterator[tuple[Any, Workers]]:
    """Yield a client of a cluster of such workers, and them."""
    with (
        distributed.LocalCluster(
            n_workers=N_WORKERS if kind is WithNannies else 0,
            threads_per_worker=threads,
            processes=kind is not InThisProcess,
            host=None if kind is InThisProcess else "127.0.0.1",
            dashboard_address=None,
            memory_limit="512MiB" if kind is not InThisProcess else 0,
            silence_logs="CRITICAL",
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        workers = kind(cluster, threads)
        try:
            workers.restore()
            client.wait_for_workers(N_WORKERS)
            yield client, workers
        finally:
            if isinstance(workers, WithoutNannies):
                for process in workers.processes:
                    process.kill()
            for worker in getattr(workers, "workers", ()):
                cluster.sync(worker.close)


def run_beside(workers: Workers, n_lost: int, moments: random.Random, run: Callable[[], Any]) -> None:
    """Run a program while workers are lost."""

    def lose() -> None:
        for _ in range(n_lost):
            time.sleep(moments.uniform(0, 0.4))
            workers.lose(moments)

    killer = threading.Thread(target=lose)
    killer.start()
    try:
        run()
    finally:
        killer.join()


@pytest.mark.timeout(7200)
@pytest.mark.parametrize(
    ("kind", "threads", "n_lost", "share"),
    [
        (WithNannies, 1, 1, 0.2),
        (WithNannies, 2, 1, 0.2),
        (WithoutNannies, 2, 1, 0.15),
        (InThisProcess, 1, 1, 0.3),
        (WithNannies, 2, 2, 0.17),
    ],
)
def test_random_programs_survive_their_workers(
    kind: type[Workers], threads: int, n_lost: int, share: float, record_property: Callable[[str, Any], None]
) -> None:
    moments = random.Random(f"{kind.__name__} {threads} {n_lost}")
    programs = soak.random_programs()
    n_programs, lost, longest = max(1, round(share * N_PROGRAMS)), 0, 0.0
    a = np.arange(60.0 * 60).reshape(60, 60) % 97
    with no_garbage_collected(), workers_of(kind, threads) as (client, workers), dx.config.set(lineage_interval=20):
        x = dx.asarray(a, sharding=(dx.current_team().axes, None))
        lineage = members.executor_for(x.__dx_node__().env)._lineage

        def is_mended() -> bool:
            """All workers are there, and every block lies on two or can be made again: a loss loses nothing."""
            workers.restore()
            if len(lineage._placement.workers) < N_WORKERS or lineage._mending:
                return False
            bare, is_complete = client.sync(lineage._without_second_place)
            return bool(is_complete and not bare)

        for seed in range(n_programs):
            eventually(is_mended, HANGS_SECONDS)
            workers.restore()
            program = programs.Program(9_000_000 + seed, dx.current_team())

            def run(program: Any = program, seed: int = seed) -> None:
                nonlocal x, a
                program.run()
                for k in range(4):
                    x, a = soak._step(dx, x, seed + k), soak._step(np, a, seed + k)
                np.testing.assert_array_equal(np.asarray(x), a)

            start = time.monotonic()
            try:
                run_beside(workers, n_lost, moments, run)
            except Exception as error:
                cause = getattr(error, "error", error)
                # As the README says of two that go within a moment.
                if not isinstance(cause, BlocksLostError) or n_lost < 2:
                    raise
                lost += 1
                x = dx.asarray(a, sharding=(dx.current_team().axes, None))
            longest = max(longest, time.monotonic() - start)
            assert longest < HANGS_SECONDS
        del x
        soak.assert_no_key_left(client)
        assert client.run_on_scheduler(left_at_scheduler) == (0, 0, 0)
        eventually_equal({(0, 0)}, lambda: {*client.run(left_at_workers, on_error="ignore").values()})
    record_property("programs", {"run": n_programs, "lost": lost, "longest": longest})
    assert lost <= n_programs // 3
