"""DLPack: what is exported is the array's own memory, or says why not (section 6 of the ecosystem's specification)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers import peak_nbytes

import distarray as dx
from distarray.testing import force_tiles, no_host_copies
from distarray.testing.assertions import assert_equal

COPIES = [None, False, True]
#: A test writes to what numpy has imported.
writes = pytest.mark.skipif(
    not np.from_dlpack(np.ones(1)).flags.writeable, reason="numpy 2.1 marks all that it imports as read-only"
)


class Consumer:
    """What a consumer does: it asks for the capsule with the words of the standard."""

    def __init__(self, x: dx.DistArray, **asked: Any) -> None:
        self.x, self.asked = x, asked

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.x.__dlpack_device__()

    def __dlpack__(self, **_: Any) -> Any:
        return self.x.__dlpack__(max_version=(1, 0), **self.asked)


def exported(x: dx.DistArray, copy: bool | None) -> np.ndarray:
    return np.from_dlpack(Consumer(x, copy=copy))


@pytest.fixture(params=[1, 3], ids=["one tile", "tiles"])
def tiles(request: pytest.FixtureRequest) -> Any:
    with force_tiles(request.param):
        yield


@writes
@pytest.mark.usefixtures("tiles")
@pytest.mark.parametrize("copy", COPIES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (5,), (2, 2), (4, 0, 3), (3, 4, 5)], ids=str)
def test_the_consumer_writes_to_the_array_unless_it_asked_for_a_copy(shape: tuple[int, ...], copy: bool | None) -> None:
    a = np.arange(float(np.prod(shape, dtype=int))).reshape(shape)
    x = dx.asarray(a) + 1
    got = exported(x, copy)
    np.testing.assert_array_equal(got, a + 1)
    got[...] = 7
    assert_equal(x, a + 1 if copy else np.full(shape, 7.0))


@writes
@pytest.mark.usefixtures("tiles")
def test_views_are_exported_as_views() -> None:
    x = dx.asarray(np.arange(24.0).reshape(4, 6)) + 0
    for view in (x[1:3, ::2], x.T, x.reshape(6, 4), dx.flip(x, axis=0)):
        exported(view, False)[...] = 1
        assert bool(dx.all(view == 1))
        x[...] = 2


@writes
@pytest.mark.usefixtures("tiles")
def test_what_was_computed_before_keeps_its_value() -> None:
    x = dx.asarray(np.arange(4.0)) + 0
    other, sums = x.copy(), x + 1
    exported(x, None)[...] = 9
    assert_equal(other, np.arange(4.0))
    assert_equal(sums, np.arange(4.0) + 1)
    assert_equal(x + 1, np.full(4, 10.0))


def test_later_writes_reach_the_consumer() -> None:
    x = dx.asarray(np.arange(4.0)) + 0
    got = exported(x, False)
    x[0] = 5.0
    assert float(x[0]) == 5.0
    np.testing.assert_array_equal(got, [5.0, 1.0, 2.0, 3.0])


@writes
def test_what_is_read_only_is_copied_or_marked() -> None:
    x = dx.broadcast_to(dx.asarray([1.0, 2.0]), (3, 2))
    assert exported(x, None).flags.writeable
    assert not exported(x, False).flags.writeable


@pytest.mark.parametrize("copy", COPIES, ids=str)
def test_an_array_that_is_cut_over_members_is_not_brought_together(copy: bool | None) -> None:
    x = dx.asarray(np.arange(8.0), team=dx.Team((2,), ("R",)), sharding=("R",)) + 0
    with pytest.raises(BufferError, match=r"x\.local\(member\), or x\.compute\(\)"):
        exported(x, copy)
    np.testing.assert_array_equal(np.from_dlpack(x.local(1)), [4.0, 5.0, 6.0, 7.0])


def test_tiles_of_a_large_array_are_not_joined() -> None:
    with force_tiles(2):
        x = dx.ones((100, 100)) + 0
        with pytest.raises(BufferError, match="blocks"):
            exported(x, None)
        with pytest.raises(BufferError, match="blocks"):
            exported(x[:2, :3], False)
        assert exported(x[:2, :3], None).shape == (2, 3)


def test_large_host_data_are_exported_before_their_first_use_cuts_them() -> None:
    a = np.arange(300_000.0)
    x = dx.asarray(a, copy=False, team=dx.Team((2,), ("R",)))
    assert np.shares_memory(exported(x, False), a)


def test_export_is_transport_on_the_strict_device() -> None:
    """B-15: what the user asks for may be moved."""
    with no_host_copies():
        x = dx.asarray([1.0, 2.0], device="strict") + 0
        np.testing.assert_array_equal(exported(x, None), [1.0, 2.0])


@pytest.mark.parametrize("copy", [None, True])
def test_an_array_of_ours_moves_to_the_device_that_is_asked_for(copy: bool | None) -> None:
    x = dx.asarray([1.0, 2.0], device="strict")
    moved = dx.from_dlpack(x, device="cpu", copy=copy)
    assert moved.device == "cpu"
    assert_equal(moved, [1.0, 2.0])
    assert dx.from_dlpack(x).device == "strict"
    with pytest.raises(ValueError, match="without a copy"):
        dx.from_dlpack(x, device="cpu", copy=False)


@writes
@pytest.mark.cluster
def test_small_results_of_a_cluster_come_to_stay(cluster4: Any) -> None:
    x = dx.asarray(np.arange(3.0)) + 1
    exported(x, False)[0] = 5
    assert_equal(x, [5.0, 2.0, 3.0])


@writes
@pytest.mark.parametrize("dtype", ["f8", "i2"])
def test_a_copy_is_made_once_and_is_ours(dtype: str) -> None:
    host = np.arange(1 << 20).astype(dtype)
    dx.from_dlpack(host[:4], copy=True).persist()  # what is loaded at the first call
    x, peak = peak_nbytes(lambda: dx.from_dlpack(host, copy=True))
    assert peak < 1.5 * host.nbytes
    expected = host.copy()
    host[3] = 9
    x[5] = 8
    expected[5] = 8
    assert_equal(x, expected)
    assert host[5] == 5
