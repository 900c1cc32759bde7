"""Alignment: arrays that dask reads lie where their elements can be used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("distributed")

from distributed.protocol import deserialize_bytes, serialize_bytelist
from distributed.protocol.serialize import dask_deserialize

from distarray.runtime.alignment import align_reads, aligned, read_as_dask

X = np.arange(24.0)
ARRAYS = [X, X.reshape(4, 6).T, X[:0], np.float64(3), X.astype("c16"), np.broadcast_to(X[:2], (9, 2))]


def read_back(x: Any) -> Any:
    return deserialize_bytes(bytearray(b"".join(map(bytes, serialize_bytelist(x)))))


def are_aligned() -> bool:
    """Return whether arrays of several sizes are, before which headers have several lengths."""
    return all(read_back(np.zeros(n)).flags.aligned for n in (9, 99, 999, 9_999, 99_999, 999_999))


@pytest.fixture(autouse=True)
def as_dask() -> Iterator[None]:
    """Workers that are threads of this process may be there already."""
    before = dask_deserialize.dispatch(np.ndarray)
    read_as_dask()
    yield
    read_as_dask()
    dask_deserialize.register(np.ndarray, before)


@pytest.mark.parametrize("x", ARRAYS, ids=lambda x: f"{x.dtype}{x.shape}")
@pytest.mark.parametrize("is_writeable", [True, False])
def test_arrays_are_read_as_they_were(x: Any, is_writeable: bool) -> None:
    align_reads()
    x = x if isinstance(x, np.float64) or 0 in x.strides else x.copy(order="K")
    if isinstance(x, np.ndarray) and not is_writeable:
        x.flags.writeable = False
    found = read_back(x)
    np.testing.assert_array_equal(found, x)
    assert (found.dtype, found.shape, found.strides) == (x.dtype, x.shape, x.strides)
    assert found.flags.writeable == x.flags.writeable
    assert found.flags.aligned or 0 in x.strides


def test_dask_reads_arrays_as_before_when_nobody_asks_for_more() -> None:
    assert not are_aligned(), "else this file is not needed any more"
    align_reads()
    align_reads()
    assert are_aligned()
    read_as_dask()
    read_as_dask()
    assert not are_aligned()


def test_only_what_is_not_aligned_is_copied() -> None:
    raw = np.zeros(99, np.uint8)
    for offset in range(8):
        x = raw[offset : offset + 88].view("f8")
        assert (aligned(x) is x) == x.flags.aligned


def is_aligned(x: np.ndarray) -> bool:
    return x.flags.aligned


@pytest.mark.cluster
def test_workers_read_aligned_arrays_of_each_other(process_cluster: Any) -> None:
    import distarray as dx

    assert dx.ones(8).sum() == 8  # our plugin is there
    first, second, *_ = process_cluster.scheduler_info(n_workers=-1)["workers"]
    for n in (7, 1001, 30_003):
        x = process_cluster.submit(np.ones, (n, 3), workers=[first])
        assert process_cluster.submit(is_aligned, x, workers=[second]).result(30)
