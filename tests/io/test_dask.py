"""dask.array to and from: the same elements, chunk for tile, nothing gathered."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import distarray as dx
from distarray import config
from distarray.testing import counting
from distarray.testing.assertions import assert_close, assert_equal

da = pytest.importorskip("dask.array")

TEAMS = [None, dx.Team((4,), ("T",)), dx.Team((2, 3), ("R", "C"))]
A = np.random.default_rng(5).standard_normal((37, 23))
CHUNKS = [(5, 7), (37, 23), (37, 4), (9, 23), ((1, 30, 6), (20, 3)), (1, 23)]


@pytest.mark.parametrize("team", TEAMS)
@pytest.mark.parametrize("chunks", CHUNKS)
def test_chunks_become_tiles(chunks: Any, team: Any) -> None:
    array = da.from_array(A, chunks=chunks) * 2
    x = dx.from_dask(array, team=team)
    assert x.team is team
    sizes = [[b - a for a, b in pairwise(bounds) if b > a] for bounds in x.sharding.boundaries(x.shape)]
    assert sizes == [list(axis) for axis in array.chunks]
    assert_equal(x, A * 2)
    with config.set(block_bytes=256):
        assert_equal(x[3:, ::2] + 1, (A * 2)[3:, ::2] + 1)
        assert_close(x.T @ x, (A * 2).T @ (A * 2), rtol=1e-12, atol=1e-12)
        centred = A * 2 - (A * 2).mean(axis=0)
        assert_close((x - x.mean(axis=0)).sum(axis=1), centred.sum(axis=1), rtol=1e-9, atol=1e-12)


def test_tiles_of_many_chunks_are_dealt_out_evenly_and_in_order() -> None:
    team = TEAMS[1]
    assert team is not None
    sharding = dx.from_dask(da.zeros((100, 3), chunks=(10, 1)), team=team).sharding
    members = [sharding.member((i, 0)) for i in range(sharding.parts[0])]
    assert members[:10] == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3]
    assert {sharding.member((4, j)) for j in range(3)} == {1}


@pytest.mark.parametrize("sharding", [("T", None), (None, "T")])
def test_the_cut_that_is_asked_for(sharding: Any) -> None:
    x = dx.from_dask(da.from_array(A, chunks=(5, 7)), team=TEAMS[1], sharding=sharding)
    assert_equal(x, A, sharding=dx.empty(A.shape, team=TEAMS[1], sharding=sharding).sharding)


@pytest.mark.parametrize("shape", [(), (0,), (0, 4), (1, 1)])
def test_small_and_empty_arrays_go_both_ways(shape: tuple[int, ...]) -> None:
    x = dx.from_dask(da.ones(shape, dtype="i2"), team=TEAMS[1])
    assert_equal(x, np.ones(shape, "i2"))
    back = x.to_dask_array().compute()
    assert (back.shape, back.dtype) == (shape, np.dtype("i2"))
    np.testing.assert_array_equal(back, np.ones(shape))


def test_memory_of_others_is_copied_and_fresh_chunks_are_not() -> None:
    mine = A.copy()
    for array in (da.from_array(mine, chunks=37), da.from_array(mine, chunks=(5, 23)), da.from_array(mine).persist()):
        x = dx.from_dask(array, team=TEAMS[1])
        x[0] = -1
        x.compute()
        assert not any(np.shares_memory(block.values, mine) for block in x.iter_blocks())
        assert_equal(x[1:], A[1:])
        np.testing.assert_array_equal(mine, A)
        np.testing.assert_array_equal(array.compute(), A)
    made: list[Any] = []

    def fresh() -> np.ndarray:
        block = np.zeros((300, 300))
        made.append(block.__array_interface__["data"][0])
        return block

    from dask.delayed import delayed

    x = dx.from_dask(da.from_delayed(delayed(fresh)(), (300, 300), float), team=None)
    assert [x.__dx_node__().memo.blocks[0].__array_interface__["data"][0]] == made


def test_what_is_no_array_of_known_chunks_is_refused() -> None:
    unknown = da.from_array(A, chunks=5)
    with pytest.raises(ValueError, match="compute_chunk_sizes"):
        dx.from_dask(unknown[unknown > 0])
    with pytest.raises(TypeError, match=r"is no dask\.array"):
        dx.from_dask(A)
    with pytest.raises(TypeError, match="not supported"):
        dx.from_dask(da.from_array(np.array(["a", "b"])))
    with pytest.raises(TypeError, match="MaskedArray"):
        dx.from_dask(da.ma.masked_greater(da.from_array(A), 0))
    with pytest.raises(ValueError, match="its chunks say"):
        dx.from_dask(da.from_array(A, chunks=37).map_blocks(lambda b: b[1:], dtype=float, chunks=((37,), (23,))))


# -- to dask -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("team", TEAMS)
def test_to_dask_array_is_lazy_and_has_one_chunk_per_tile(team: Any) -> None:
    with config.set(block_bytes=512):
        sharding = None if team is None else (team.axes[0], None)
        x = dx.asarray(A, team=team, sharding=sharding)
        y = x * 2 + 1
        with counting() as counted:
            array = da.asarray(y)
        assert (counted.tasks, counted.fetched_bytes) == (0, 0)
        assert array.dtype == y.dtype
        assert array.shape == y.shape
        if team is not None:
            assert array.chunks[0] == tuple(np.diff(y.sharding.boundaries(y.shape)[0]))
        y[...] = 0  # the values of the time of asking count
        np.testing.assert_array_equal(array.compute(), A * 2 + 1)
        np.testing.assert_array_equal(dx.to_dask_array(x)[::2, 3].compute(), A[::2, 3])


def test_blocks_that_dask_has_are_not_written_in_place() -> None:
    with config.set(block_bytes=512):
        x = (dx.asarray(A, team=TEAMS[1], sharding=("T", None)) + 0.0).persist()
        array = x.to_dask_array()
        x += 1
        x.persist()
        np.testing.assert_array_equal(array.compute(), A)


def test_tiles_without_elements_are_no_chunks() -> None:
    x = dx.from_dask(da.from_array(A, chunks=(9, 23)), team=dx.Team((4,), ("T",)))
    assert x.sharding.n_tiles == 8
    array = x.to_dask_array()
    assert array.chunks == ((9, 9, 9, 9, 1), (23,))
    np.testing.assert_array_equal(array.argmin(axis=0).compute(), A.argmin(axis=0))


def test_there_and_back_again() -> None:
    with config.set(block_bytes=512):
        x = dx.asarray(A, team=TEAMS[2], sharding=("C", "R")) * 3
        y = dx.from_dask(x.to_dask_array(), team=TEAMS[2])
        assert_equal(y - x, np.zeros(A.shape))


# -- on a cluster --------------------------------------------------------------------------------------------------


@pytest.mark.cluster
@pytest.mark.parametrize("cluster", ["cluster4", "process_cluster"])
def test_on_a_cluster_chunks_stay_there(cluster: str, request: Any) -> None:
    client = request.getfixturevalue(cluster)
    array = da.from_array(A, chunks=(5, 23)) * 2
    with config.set(block_bytes=512):
        with counting() as counted:
            x = dx.from_dask(array)
            back = (x + 1).to_dask_array()
        assert counted.fetched_bytes == 0
        assert_equal(x, A * 2)
        where = client.who_has(x.__dx_node__().memo.blocks)
        for block, tile in zip(x.__dx_node__().memo.blocks, x.sharding.tiles()):
            assert tuple(where[block.key]) == (x.team.members[x.sharding.member(tile)],)
        np.testing.assert_array_equal(back.compute(), A * 2 + 1)
        np.testing.assert_array_equal((back + 1).sum(axis=1).compute(), (A * 2 + 2).sum(axis=1))
        assert_equal(dx.from_dask(array.persist(), sharding=(None, "x")), A * 2)
        np.testing.assert_array_equal(x.to_dask_array().persist().compute(), A * 2)
