"""What there is of memory, and what is refused for want of it before anything runs."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import distarray as dx
from distarray import config
from distarray.errors import MemoryBudgetError
from distarray.expr.expr import Environment
from distarray.runtime import budget, memory
from distarray.testing import counting


def test_available_memory_is_that_of_the_control_group_where_it_is_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = tuple([str(tmp_path / name) for name in ("max", "current", "stat")])
    monkeypatch.setattr(memory, "_CGROUPS", (files,))
    before = memory.available_nbytes()
    assert before > 0
    for name, text in [("max", "1000"), ("current", "700"), ("stat", "anon 300\ninactive_file 100\n")]:
        (tmp_path / name).write_text(text)
    assert memory.available_nbytes() == 400
    (tmp_path / "max").write_text("max")
    assert memory.available_nbytes() > 400


def test_members_with_a_gpu_have_a_budget_of_their_own() -> None:
    cpu, gpu = Environment(None), Environment(None, "cuda:0")
    with config.set(memory_limit="2 MiB"):
        assert memory.memory_limit(cpu) == memory.memory_limit(gpu) == 2 << 20
        with config.set(device_memory_limit="3 MiB"):
            assert (memory.memory_limit(cpu), memory.memory_limit(gpu)) == (2 << 20, 3 << 20)


def test_each_thread_of_a_worker_has_memory_that_blas_packs_operands_into(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = 512 << 20
    cluster = SimpleNamespace(is_cluster=True, device="cpu")
    for n_threads in (1, 2, 4, 64):
        monkeypatch.setattr(memory, "_worker_facts", lambda env, n=n_threads: memory._Workers(limit, n, 100 << 20))
        packed = min((n_threads - 1) * memory.PACKED_NBYTES, limit // 2)
        assert memory.memory_limit(cluster) == (limit - packed) // 2


def test_an_array_that_is_asked_for_fits_into_this_process_or_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is computed here is in blocks first, and copied from there."""
    x = dx.arange(10_000_000.0, team=dx.Team((2,), ("T",)))
    monkeypatch.setattr(budget, "available_nbytes", lambda: 100_000_000)
    with counting() as counts, pytest.raises(MemoryBudgetError, match="160000000 bytes of the 100000000"):
        np.asarray(x + 1)
    assert counts.tasks == 0
    y = (x + 1).persist()
    assert np.asarray(y)[-1] == 1e7
    monkeypatch.setattr(budget, "available_nbytes", lambda: 50_000_000)
    with pytest.raises(MemoryBudgetError, match="80000000 bytes of the 50000000"):
        np.asarray(y)
    assert float(y[5]) == 6


def test_small_arrays_ask_nobody_for_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "available_nbytes", lambda: 0)
    assert np.asarray(dx.arange(1000.0) + 1)[-1] == 1000


@pytest.mark.cluster
def test_a_result_larger_than_this_process_is_refused_before_workers_compute_it(
    cluster4: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "available_nbytes", lambda: 50_000_000)
    x = dx.arange(10_000_000.0) * 2
    with counting() as counts, pytest.raises(MemoryBudgetError, match="80000000 bytes of the 50000000"):
        np.asarray(x)
    assert counts.tasks == 0
    assert float(x[3]) == 6
