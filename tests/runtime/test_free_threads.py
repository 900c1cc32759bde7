"""One worker with several threads: kernels are computed by all that are free, never by more than it has."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import distarray as dx
from distarray.kernels import program, sliced, threads
from distarray.runtime.permits import FreeThreads, Permits

distributed = pytest.importorskip("distributed")

pytestmark = pytest.mark.cluster

N_THREADS = 3


@pytest.fixture(scope="module")
def worker() -> Iterator[Any]:
    with distributed.LocalCluster(
        1, threads_per_worker=N_THREADS, processes=False, dashboard_address=None, memory_limit=0
    ) as cluster:
        yield cluster


class Counted:
    """How many threads came to help."""

    n = 0


@pytest.fixture
def helped(worker: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Counted]:
    """How many threads were there to help: with kernels however small."""
    monkeypatch.setattr(threads, "HELPED", 1)
    monkeypatch.setattr(program, "WHOLE", 4)
    monkeypatch.setattr(sliced, "REDUCED_SLICE", 256)
    monkeypatch.setattr(sliced, "LARGEST_SLICE", 256)
    monkeypatch.setattr(sliced, "SMALLEST_SLICE", 256)
    counted = Counted()
    start = FreeThreads.start

    def counting(free: FreeThreads, work: Callable[[], None]) -> bool:
        has_begun = start(free, work)
        counted.n += has_begun
        return has_begun

    monkeypatch.setattr(FreeThreads, "start", counting)
    with distributed.Client(worker), dx.config.set(block_bytes=0):
        yield counted


A = np.random.default_rng(0).random((90, 70))

KERNELS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "chain": (lambda x: dx.sqrt(x * x + 1) - x, lambda a: np.sqrt(a * a + 1) - a),
    "softmax": (
        lambda x: dx.exp(x) / dx.exp(x).sum(axis=1, keepdims=True),
        lambda a: np.exp(a) / np.exp(a).sum(axis=1, keepdims=True),
    ),
    "matmul": (lambda x: x @ x.T, lambda a: a @ a.T),
    "semiring": (
        lambda x: dx.einsum("ij,kj->ik", x, x, join="add", agg="min"),
        lambda a: (a[:, None] + a[None]).min(-1),
    ),
    "sort rows": (lambda x: dx.sort(x, axis=1), lambda a: np.sort(a, axis=1)),
    "sort columns": (lambda x: dx.sort(x, axis=0), lambda a: np.sort(a, axis=0)),
    "sort a vector": (lambda x: dx.sort(dx.reshape(x, (-1,)) + 0j), lambda a: np.sort(a + 0j, axis=None)),
    "argsort": (lambda x: dx.argsort(x, axis=0), lambda a: np.argsort(a, axis=0)),
    "fft": (lambda x: dx.fft.fft(x, axis=0), lambda a: np.fft.fft(a, axis=0)),
    "cumulative sum": (lambda x: dx.cumulative_sum(x, axis=1), lambda a: np.cumsum(a, axis=1)),
    "median": (lambda x: dx.median(x, axis=0), lambda a: np.median(a, axis=0)),
    "solve": (
        lambda x: dx.linalg.solve(x[:64, :64].reshape((16, 16, 16)) + 16 * dx.eye(16), x[:64, :4].reshape((16, 16, 1))),
        lambda a: np.linalg.solve(a[:64, :64].reshape((16, 16, 16)) + 16 * np.eye(16), a[:64, :4].reshape((16, 16, 1))),
    ),
}


@pytest.mark.parametrize("name", KERNELS)
def test_free_threads_help_and_values_are_numpys(helped: Counted, name: str) -> None:
    ours, numpys = KERNELS[name]
    x = dx.asarray(A).persist()
    found = [np.asarray(ours(x)) for _ in range(3)]
    np.testing.assert_allclose(found[0], numpys(A), rtol=1e-12, atol=1e-12)
    assert {f.tobytes() for f in found} == {found[0].tobytes()}, "the bits do not depend on who helped"
    assert helped.n


def test_random_numbers_are_those_of_one_thread(helped: Counted) -> None:
    with dx.config.set(team=None):
        expected = np.asarray(dx.random.default_rng(5).standard_normal((300, 40)))
    found = np.asarray(dx.random.default_rng(5).standard_normal((300, 40)))
    assert found.tobytes() == expected.tobytes()
    assert helped.n


def test_a_function_of_the_user_is_called_once_per_tile(helped: Counted) -> None:
    calls: list[tuple[int, ...]] = []

    def function(block: Any) -> Any:
        calls.append(block.shape)
        return block * 2

    y = dx.apply_gufunc(function, "(i)->(i)", dx.asarray(A), output_dtypes=float)
    np.testing.assert_array_equal(np.asarray(y), A * 2)
    assert set(calls) <= {A.shape, (0, 0), (1, 1)}


def test_no_more_threads_run_than_the_worker_has(worker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    lock, now, most, met = threading.Lock(), [0], [0], threading.Event()

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            with lock:
                now[0] += 1
                most[0] = max(most[0], now[0])
                if now[0] > 1:
                    met.set()
            met.wait(1)  # on a busy machine the first one would be done before another begins
            try:
                return function(*args)
            finally:
                with lock:
                    now[0] -= 1

        return call

    monkeypatch.setattr(threads, "HELPED", 1)
    monkeypatch.setattr(sliced.SlicedRun, "_take", counted(sliced.SlicedRun._take))
    with distributed.Client(worker), dx.config.set(block_bytes=0):
        x = dx.asarray(np.random.default_rng(1).random((600, 600))).persist()
        results = [dx.exp(x * k).sum(axis=0) for k in range(12)]
        found = dx.compute(*results)
    for k, f in enumerate(found):
        np.testing.assert_allclose(np.asarray(f), np.exp(np.asarray(x) * k).sum(axis=0))
    assert 1 < most[0] <= N_THREADS


def test_host_data_are_sent_to_the_only_worker_once(worker: Any) -> None:
    with distributed.Client(worker):
        x = dx.asarray(np.ones((1000, 1000)))
        assert "host -> team: 7.63 MiB" in str((x + 1).explain())
        assert float(x.sum()) == 1e6
        assert "host -> team" not in str((x + 1).explain())


def test_a_spare_permit_is_one_beside_those_that_others_could_have() -> None:
    permits = Permits(2)
    assert not permits.spare(2)
    with permits:
        assert not permits.spare(1)
        assert permits.spare(0)
        assert not permits.spare(0)
        with ThreadPoolExecutor(1) as pool:
            pool.submit(permits.use, lambda: None).result()
    assert permits.spare(1)


def test_threads_without_a_worker_have_no_help() -> None:
    assert threads.threads_for(1 << 40) == 1
