"""Alignment: arrays that dask reads lie where their elements can be used."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("distributed")

from distributed.protocol import deserialize_bytes, serialize_bytelist
from distributed.protocol.serialize import dask_deserialize
from distributed.spill import SpillBuffer
from on_workers import is_aligned, note_reads, noted_reads

import distarray as dx
from distarray.kernels.buffers import POOL
from distarray.runtime.alignment import align_reads, read_as_dask
from distarray.runtime.bundles import Bundle

X = np.arange(24.0)
ARRAYS = [
    X,
    X.reshape(4, 6).T,
    X.reshape(2, 3, 4).transpose(1, 0, 2),
    X[:0],
    np.float64(3),
    np.array(3.0),
    X.astype("c16"),
    X.astype("i1"),
    np.array(["a", "bcd"]),
    np.array([1, None], object),
    np.array([(1, 2.0)], "i1,f8"),
    np.broadcast_to(X[:2], (9, 2)),
]
SIZES = (9, 99, 999, 9_999, 99_999, 999_999)


class Worker:
    """What has data on disk as a worker does."""

    def __init__(self, folder: Path) -> None:
        self.data = SpillBuffer(str(folder), target=1 << 40)
        self.handlers: dict[str, Any] = {"get_data": None}
        self.state = SimpleNamespace(tasks={})

    def read_back(self, x: Any) -> Any:
        """Return what is read from disk, where one in use would be given out."""
        on_disk = self.data.slow.data
        on_disk["x"] = x
        found = on_disk["x"]
        del on_disk["x"]
        return found


def sent(x: Any) -> Any:
    return deserialize_bytes(bytearray(b"".join(map(bytes, serialize_bytelist(x)))))


@pytest.fixture(autouse=True)
def as_dask() -> Iterator[None]:
    """Workers that are threads of this process may be there already."""
    before = dask_deserialize.dispatch(np.ndarray)
    read_as_dask(SimpleNamespace(data={}, handlers={"get_data": None}))
    yield
    read_as_dask(SimpleNamespace(data={}, handlers={"get_data": None}))
    dask_deserialize.register(np.ndarray, before)


@pytest.fixture
def worker(tmp_path: Path) -> Worker:
    return Worker(tmp_path)


@pytest.fixture(params=[None, 1 << 40, 0], ids=["no limit", "all is small", "nothing is small"])
def memory(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int | None:
    monkeypatch.setattr(POOL, "memory", request.param)
    return request.param


def assert_same(found: Any, x: Any) -> None:
    np.testing.assert_array_equal(found, x)
    assert (type(found), found.dtype, found.shape, found.strides) == (type(x), x.dtype, x.shape, x.strides)
    assert found.flags.writeable == x.flags.writeable


@pytest.mark.parametrize("x", ARRAYS, ids=lambda x: f"{x.dtype}{x.shape}")
@pytest.mark.parametrize("is_writeable", [True, False])
def test_arrays_are_read_as_dask_reads_them(memory: int | None, worker: Worker, x: Any, is_writeable: bool) -> None:
    if isinstance(x, np.ndarray) and 0 not in x.strides:
        x = x.copy(order="K")
        x.flags.writeable = is_writeable
    expected = sent(x)
    align_reads(worker)
    assert_same(sent(x), expected)
    from_disk = worker.read_back(x)
    assert_same(from_disk, expected)
    np.testing.assert_array_equal(from_disk, x)
    assert from_disk.flags.aligned or 0 in x.strides


def test_dask_reads_arrays_as_before_when_nobody_asks_for_more(worker: Worker) -> None:
    def are_aligned() -> tuple[bool, bool]:
        ones = [np.ones(n) for n in SIZES]
        return all(sent(x).flags.aligned for x in ones), all(worker.read_back(x).flags.aligned for x in ones)

    assert are_aligned() == (False, False), "else this file is not needed any more"
    align_reads(worker)
    align_reads(worker)
    assert are_aligned() == (True, True)
    read_as_dask(worker)
    read_as_dask(worker)
    assert are_aligned() == (False, False)


def test_only_small_messages_are_copied(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    align_reads(worker)
    monkeypatch.setattr(POOL, "memory", 32 * 8 * 10_000)
    for n in SIZES:
        found = sent(np.ones(n))
        assert found.flags.aligned if n < 10_000 else found.base is not None


@pytest.mark.parametrize("n", [*SIZES, (66 << 20) // 16], ids=str)  # the last one is more than dask puts into a frame
def test_what_comes_from_disk_is_moved_in_place(worker: Worker, monkeypatch: pytest.MonkeyPatch, n: int) -> None:
    align_reads(worker)
    monkeypatch.setattr(POOL, "memory", 0)
    x = np.random.default_rng(n).random((n, 2)).T
    found = worker.read_back(x)
    assert found.flags.aligned and isinstance(found.base, bytearray)
    assert_same(found, x)


def test_several_arrays_stay_what_they_are(memory: int | None, worker: Worker) -> None:
    align_reads(worker)
    arrays = [np.random.default_rng(n).random(n) for n in SIZES]
    for found in (worker.read_back(arrays), sent(arrays), worker.read_back(Bundle(arrays)).blocks):
        for one, x in zip(found, arrays, strict=True):
            np.testing.assert_array_equal(one, x)


def test_bundle_in_use_is_not_read_twice(worker: Worker) -> None:
    worker.data["x"] = made = Bundle([X])
    worker.data.evict()
    assert worker.data["x"] is made


@pytest.mark.cluster
def test_workers_read_aligned_arrays_of_each_other(process_cluster: Any) -> None:
    dx.arange(10, sharding=(dx.current_team().mesh.names[0],)).persist()  # our plugin is there
    first, second, *_ = process_cluster.scheduler_info(n_workers=-1)["workers"]
    for n in (7, 1001, 30_003):
        x = process_cluster.submit(np.ones, (n, 3), workers=[first])
        assert process_cluster.submit(is_aligned, x, workers=[second]).result(30)


@pytest.mark.cluster
def test_programs_read_large_messages_into_buffers_of_their_own(process_cluster: Any) -> None:
    x = dx.random.default_rng(0).random((6000, 500)).persist()
    process_cluster.run(note_reads)
    try:
        y = np.asarray((x[::-1] + x).sum(axis=1))
    finally:
        noted = [is_there for worker in process_cluster.run(noted_reads).values() for is_there in worker]
    np.testing.assert_allclose(y, (np.asarray(x)[::-1] + np.asarray(x)).sum(axis=1))
    assert len(noted) >= 2 and all(noted)
