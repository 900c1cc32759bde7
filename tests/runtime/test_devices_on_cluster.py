"""Devices on a cluster: the workers have them, blocks are brought to them once, each worker has a GPU of its own."""

from __future__ import annotations

import os
import threading
import types
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import distarray as dx
from distarray.kernels import backends, devices
from distarray.kernels.backends import StrictBackend
from distarray.kernels.devices import backend_for

distributed = pytest.importorskip("distributed")
pytest.importorskip("array_api_strict")

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

VALUES = np.arange(400_000.0).reshape(1000, 400)


@pytest.fixture
def transfers(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Arrays that were brought from the host to a device and back; the workers are threads of this process."""
    counted: Counter[str] = Counter()
    lock = threading.Lock()
    adopt, to_host = StrictBackend.adopt, StrictBackend.to_host

    def counting_adopt(self: Any, block: Any) -> Any:
        if isinstance(block, np.ndarray) and block.size:
            with lock:
                counted["to the device"] += 1
        return adopt(self, block)

    def counting_to_host(self: Any, block: Any) -> Any:
        assert threading.current_thread() is not threading.main_thread(), "a block was read on the client"
        with lock:
            counted["to the host"] += 1
        return to_host(self, block)

    monkeypatch.setattr(StrictBackend, "adopt", counting_adopt)
    monkeypatch.setattr(StrictBackend, "to_host", counting_to_host)
    return counted


def rows(values: np.ndarray, device: str = "strict", **pin: Any) -> dx.DistArray:
    return dx.asarray(values, device=device, **(pin or {"sharding": (dx.current_team().axes, None)}))


@pytest.mark.parametrize("how", ["cut", "uncut", "small", "moved", "to a team"])
def test_host_data_are_brought_to_the_device_once(cluster4: Any, transfers: Counter[str], how: str) -> None:
    values = VALUES[:50] if how == "small" else VALUES  # below and above what is one block, 1 MiB
    if how == "moved":
        with dx.use(None):
            x = dx.asarray(values, device="strict")
        transfers.clear()
        x = x.to_team(dx.current_team())
    elif how == "to a team":
        x = rows(values, "cpu").persist().to_device("strict")
    else:
        x = rows(values) if how == "cut" else dx.asarray(values, device="strict")
    x.persist()
    first = (x * 2).persist()
    arrived = transfers["to the device"]
    assert 0 < arrived <= 4
    for k in range(1, 5):
        assert (x + float(k)).sum().persist().device == "strict"
        (x[k:] * x[:-k]).persist()
    assert transfers["to the device"] == arrived
    assert not transfers["to the host"] or how == "moved"
    np.testing.assert_array_equal(np.asarray(first), values * 2)
    assert transfers["to the host"] <= 4 + (how == "moved")


def test_results_of_a_device_come_to_the_client_as_host_arrays(process_cluster: Any) -> None:
    x = rows(VALUES)
    np.testing.assert_array_equal(np.asarray(x * 2), VALUES * 2)
    for block in x.iter_blocks():
        assert isinstance(block.values, np.ndarray)
        np.testing.assert_array_equal(block.values, VALUES[block.global_slices])
    assert isinstance(x.local(1), np.ndarray)
    assert float(x[3, 4]) == VALUES[3, 4]
    # tiles without elements, and sums over none, are made on the client
    few = rows(np.ones((2, 3)))
    np.testing.assert_array_equal(np.asarray(few[1:] + 1), np.full((1, 3), 2.0))
    np.testing.assert_array_equal(np.asarray(few[:0].sum(axis=0)), np.zeros(3))
    assert x.devices == ("strict:1", "strict:2", "strict:1")


# -- GPUs, played by numpy ---------------------------------------------------------------------------------------------


class FakeGpu:
    """What `cupy_backend` would give: numpy arrays on a numbered device."""

    name, xp, device = "numpy", np, "cpu"

    def __init__(self, index: int) -> None:
        self.label = f"cuda:{index}"

    def __getattr__(self, name: str) -> Any:
        return getattr(backends.NUMPY, name)


def has_gpus(count: int) -> Any:
    def play(dask_worker: Any = None) -> None:
        from distarray.kernels import devices

        def cupy(index: int, wraps: bool) -> Any:
            if not wraps and index >= count:
                raise ValueError(f"device='cuda:{index}' names GPU {index}, but CuPy finds {count} here")
            return FakeGpu(index % count)

        devices._cupy = cupy

    return play


@pytest.fixture
def gpu_cluster() -> Iterator[Any]:
    """Client, in a process without GPUs, of two workers that have the same two."""
    with (
        distributed.LocalCluster(
            2, threads_per_worker=1, processes=True, host="127.0.0.1", dashboard_address=None, silence_logs="CRITICAL"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        import cloudpickle

        cloudpickle.register_pickle_by_value(test_module())
        try:
            client.run(has_gpus(2))
            yield client
        finally:
            cloudpickle.unregister_pickle_by_value(test_module())


def test_module() -> types.ModuleType:
    import sys

    return sys.modules[__name__]


test_module.__test__ = False  # type: ignore[attr-defined]


def test_a_client_without_a_gpu_uses_those_of_its_workers(gpu_cluster: Any) -> None:
    with dx.use(None), pytest.raises((ImportError, RuntimeError), match="cuda"):
        dx.zeros(3, device="cuda")
    x = rows(VALUES, "cuda")
    assert x.device == "cuda"
    np.testing.assert_array_equal(np.asarray(x @ x.T), VALUES @ VALUES.T)
    np.testing.assert_array_equal(np.asarray(dx.ones((6, 4), device="cuda:1") * 3), np.full((6, 4), 3.0))
    with dx.use(device="cuda"):
        assert dx.arange(5.0).sum().item() == 10
    assert rows(VALUES, "cpu").to_device("cuda").devices == x.devices


def test_each_worker_of_a_host_has_its_own_gpu(gpu_cluster: Any) -> None:
    x = rows(VALUES, "cuda")
    assert sorted(x.devices) == ["cuda:0", "cuda:1"]
    # Whatever the rank in the team: the GPU is the worker's.
    team = dx.current_team()
    turned = dx.Team((2,), ("x",), gpu_cluster, tuple(reversed(team.members)))
    assert dx.ones(9, team=turned, device="cuda").devices == tuple(reversed(x.devices))
    assert all(dx.ones(9, team=part, device="cuda").devices == (d,) for part, d in zip(team.split("x"), x.devices))


def test_workers_with_gpus_of_their_own_have_the_first_that_they_see(gpu_cluster: Any) -> None:
    def see(gpus: str) -> None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus

    for gpus, address in zip(("0,1", "1,0"), gpu_cluster.scheduler_info()["workers"], strict=True):
        gpu_cluster.run(see, gpus, workers=[address])
    assert rows(VALUES, "cuda").devices == ("cuda:0", "cuda:0")


def test_a_device_that_a_worker_lacks_is_refused_with_its_address(gpu_cluster: Any) -> None:
    for device in ("cuda:2", "cuda:99"):
        with pytest.raises(ValueError, match=r"on worker tcp://127.*finds 2"):
            dx.zeros(3, device=device)
        with pytest.raises(ValueError, match="on worker"), dx.use(device=device):
            pass
    with pytest.raises(ValueError, match="use cpu, cuda"):
        dx.zeros(3, device="gpu")


def test_a_device_is_asked_for_once_per_team(gpu_cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    dx.zeros(3, device="cuda")
    monkeypatch.setattr(type(gpu_cluster), "run", lambda *args, **kwargs: pytest.fail("asked again"))
    dx.zeros(3, device="cuda")


def test_a_worker_that_takes_the_place_of_a_lost_one_has_its_gpu() -> None:
    from distarray.runtime.device_ranks import DeviceRanks

    ranks = DeviceRanks()
    assert [ranks.rank(address, ["host", ""]) for address in ("a", "b", "c")] == [0, 1, 2]
    assert ranks.rank("d", ["other host", ""]) == 0
    assert ranks.rank("b", ["host", ""]) == 1
    ranks.remove_worker(None, "b")
    assert [ranks.rank(address, ["host", ""]) for address in ("e", "a", "f")] == [1, 0, 3]


def test_members_of_one_process_have_gpus_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "_cupy", lambda index, wraps: FakeGpu(index % 2))
    assert [backend_for("cuda", member).label for member in range(4)] == ["cuda:0", "cuda:1"] * 2
