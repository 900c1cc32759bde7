"""Workers whose memory is full: what is made and read there waits until dask has made room, and none is ended."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import dask
import numpy as np
import pytest
from helpers import some

import distarray as dx
from distarray.kernels import buffers
from distarray.runtime.pressure import full_nbytes, room_made

distributed = pytest.importorskip("distributed")

MiB = 1 << 20
LIMIT = 256 * MiB


def worker(limit: int | None = 1000, nanny: Any = "tcp://nanny") -> Any:
    manager = SimpleNamespace(memory_limit=limit, memory_spill_fraction=0.7)
    return SimpleNamespace(memory_manager=manager, nanny=nanny)


def test_only_workers_with_a_nanny_and_a_limit_are_full_some_time() -> None:
    with dask.config.set({"distributed.worker.memory.terminate": 0.95, "distributed.worker.memory.transfer": 0.1}):
        assert full_nbytes(worker()) == 850
        assert full_nbytes(worker(nanny=None)) is None
        assert full_nbytes(worker(limit=None)) is None
    with dask.config.set({"distributed.worker.memory.terminate": False}):
        assert full_nbytes(worker()) is None


def test_who_reads_waits_until_blocks_are_on_disk_and_no_longer_than_dask_writes_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(buffers, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(buffers, "PATIENCE_SECONDS", 0.05)
    for used, left in [([900, 800, 700, 600], [600]), ([700, 0], [0])]:
        sizes = list(used)
        monkeypatch.setattr(buffers, "resident_nbytes", lambda sizes=sizes: sizes.pop(0))
        asyncio.run(room_made(worker()))
        assert sizes == left
    monkeypatch.setattr(buffers, "resident_nbytes", lambda: 900)
    asyncio.run(room_made(worker()))  # comes back, although nothing goes
    monkeypatch.setattr(buffers, "resident_nbytes", lambda: pytest.fail("nobody would end it"))
    asyncio.run(room_made(worker(nanny=None)))


def test_who_picks_elements_asks_for_room_for_these_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(buffers.POOL, "full", 1 << 40)
    monkeypatch.setattr(buffers.POOL, "room_for", lambda nbytes: asked.append(nbytes) or nullcontext())
    with dx.config.set(eager_bytes=0, block_bytes=0):
        x = dx.asarray(np.arange(3000.0 * 100).reshape(3000, 100), team=dx.Team((3,), ("x",))).persist()
        asked.clear()
        taken = np.asarray(dx.take(x, np.arange(30) * 77, axis=0))
    np.testing.assert_array_equal(taken, np.asarray(x)[np.arange(30) * 77])
    assert len(asked) > 3  # by who has elements, and by who joins them
    assert 0 < max(asked) <= 2 * (30 * 100 * 8 + 30 * 8)


@pytest.fixture
def full_workers() -> Iterator[Any]:
    """Two workers whose processes have more beside blocks than a fresh one: 110 MiB of 256."""
    with (
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address=None,
            memory_limit=LIMIT,
            silence_logs="CRITICAL",
        ) as cluster,
        distributed.Client(cluster) as client,
    ):

        def watch(dask_worker: Any) -> None:
            """Fill the process, and note the most that it has in memory."""
            dask_worker.distarray_ballast = np.ones(max(0, 110 * MiB - buffers.resident_nbytes()), "u1")
            dask_worker.distarray_most = 0

            def look() -> None:
                while True:
                    dask_worker.distarray_most = max(dask_worker.distarray_most, buffers.resident_nbytes())
                    time.sleep(0.003)

            threading.Thread(target=look, daemon=True).start()

        client.run(watch)
        yield client


@pytest.mark.cluster
@pytest.mark.parametrize("rounds", some([1, 2]))
def test_what_lies_on_disk_is_read_and_used_and_no_worker_comes_near_its_end(full_workers: Any, rounds: int) -> None:
    """Without waiting they reach 240 to 254 MiB: what the process has, and all that dask keeps of blocks beside it."""
    n = int(0.8 * 2 * LIMIT) // 8
    for _ in range(rounds):
        x = (dx.arange(n) * 1.0).persist()
        for i in range(10):
            begin, end = i * n // 10, (i + 1) * n // 10
            np.testing.assert_array_equal(np.asarray(x[begin:end]), np.arange(begin, end, dtype="f8"))
        y = dx.cumsum(x).persist()  # a kernel that takes its memory where numpy does
        assert float(y[n // 3]) == (n // 3) * (n // 3 + 1) / 2
        del x, y
    most = full_workers.run(lambda dask_worker: dask_worker.distarray_most)
    assert len(most) == 2
    assert 150 * MiB < max(most.values()) < 0.92 * LIMIT
