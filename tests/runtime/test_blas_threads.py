"""BLAS has one thread in the process of a worker that no nanny started, for as long as somebody of us is there."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import distarray as dx
from tests.support.helpers import eventually

distributed = pytest.importorskip("distributed")
threadpoolctl = pytest.importorskip("threadpoolctl")

from distarray.runtime import blas_threads  # noqa: E402  # distributed may be missing


def _threads() -> tuple[set[int], set[str | None]]:
    pools = threadpoolctl.threadpool_info()
    return {pool["num_threads"] for pool in pools if pool["user_api"] == "blas"}, {
        os.environ.get(name) for name in blas_threads.VARIABLES
    }


def _worker(address: str, **said: str) -> subprocess.Popen[bytes]:
    free = {name: value for name, value in os.environ.items() if name not in blas_threads.VARIABLES}
    command = [sys.executable, "-m", "distributed.cli.dask_worker", address, "--no-nanny", "--nthreads", "1"]
    path = {**free, "PYTHONPATH": os.pathsep.join(sys.path), **said}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen([*command, "--no-dashboard"], env=path, **quiet)


@pytest.mark.cluster
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="BLAS has one thread anyway")
@pytest.mark.parametrize("said", [{}, {"OPENBLAS_NUM_THREADS": "2"}], ids=["nobody said", "said"])
def test_a_worker_without_a_nanny_has_one_thread_of_blas_while_we_are_there(said: dict[str, str]) -> None:
    alone = distributed.LocalCluster(n_workers=0, dashboard_address=None)
    worker = _worker(alone.scheduler_address, **said)
    try:
        with alone, distributed.Client(alone, set_as_default=False) as other:
            other.wait_for_workers(1)
            (before,) = other.run(_threads).values()
            with distributed.Client(alone):
                x = dx.ones((50, 50), sharding=("x", None))
                np.testing.assert_array_equal(np.asarray(x @ x), np.full((50, 50), 50.0))
                (during,) = other.run(_threads).values()
                assert during == (before if said else ({1}, {"1"}))
                del x
            assert eventually(lambda: list(other.run(_threads).values()) == [before])
    finally:
        worker.kill()
        worker.wait()


@pytest.mark.cluster
def test_a_process_with_a_client_or_a_nanny_is_left_alone(cluster4: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in blas_threads.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    before = _threads()
    blas_threads.limit(SimpleNamespace(nanny=None, _instances=[]))  # this process has a client
    monkeypatch.setattr(blas_threads, "Client", SimpleNamespace(_instances=[]))
    monkeypatch.setattr(blas_threads, "Scheduler", SimpleNamespace(_instances=[]))
    blas_threads.limit(SimpleNamespace(nanny="tcp://nanny", _instances=[]))
    blas_threads.limit(SimpleNamespace(nanny=None, _instances=["another worker"]))
    assert _threads() == before and not blas_threads._limited
    worker = SimpleNamespace(nanny=None, _instances=[])
    for _ in range(2):  # a plugin of ours that follows another one finds it done
        blas_threads.limit(worker)
        assert _threads() == ({1}, {"1"})
    blas_threads.unlimit()
    assert _threads() == before
