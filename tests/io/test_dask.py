"""dask.array to and from: the same elements, chunk for tile, nothing gathered."""

from __future__ import annotations

import gc
import pickle
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import dask
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


def test_chunks_are_copied_since_others_may_have_them() -> None:
    mine = A.copy()
    for array in (da.from_array(mine, chunks=37), da.from_array(mine, chunks=(5, 23)), da.from_array(mine).persist()):
        x = dx.from_dask(array, team=TEAMS[1])
        x[0] = -1
        x.compute()
        assert not any(np.shares_memory(block.values, mine) for block in x.iter_blocks())
        assert_equal(x[1:], A[1:])
        np.testing.assert_array_equal(mine, A)
        np.testing.assert_array_equal(array.compute(), A)
    kept: list[np.ndarray] = []

    def fresh() -> np.ndarray:
        kept.append(np.zeros((300, 300)))
        return kept[0]

    from dask.delayed import delayed

    x = dx.from_dask(da.from_delayed(delayed(fresh)(), (300, 300), float), team=None)
    assert not np.asarray(x).any()
    kept[0][...] = 1
    assert not np.asarray(x).any()
    x += 2
    np.asarray(x)
    assert (kept[0] == 1).all()


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
        np.asarray(
            dx.from_dask(da.from_array(A, chunks=37).map_blocks(lambda b: b[1:], dtype=float, chunks=((37,), (23,))))
        )


@pytest.mark.parametrize("cluster", [None, pytest.param("cluster4", marks=pytest.mark.cluster)])
def test_a_chunk_of_another_kind_of_number_is_no_part_of_the_array(cluster: Any, request: Any) -> None:
    team = TEAMS[1] if cluster is None else request.getfixturevalue(cluster) and dx.current_team()
    halves = da.ones(8, chunks=4).map_blocks(lambda block: block / 2, dtype=int)
    with pytest.raises(TypeError, match=r"a chunk of the dask\.array gave float64 where dtype=int64 was promised"):
        dx.from_dask(halves, team=team).compute()
    masked = dask.delayed(lambda: np.ma.masked_less(A, 0))()
    with pytest.raises(TypeError, match="a masked array, whose mask would be lost"):
        dx.from_delayed(masked, A.shape, A.dtype, team=team).compute()
    swapped = dask.delayed(lambda: np.asfortranarray(A.astype(">f4")))()
    assert_equal(dx.from_delayed(swapped, A.shape, "f8", team=team), A.astype("f4").astype("f8"))


def test_chunks_are_made_at_the_first_use(thread_team: Any) -> None:
    made: list[int] = []

    def count(block: np.ndarray) -> np.ndarray:
        made.append(block.size)
        return block + 1

    array = da.from_array(A, chunks=(10, 23)).map_blocks(count, dtype=float)
    made.clear()  # dask tries functions on nothing
    x = dx.from_dask(array, team=thread_team)
    y = (x * 2)[3:]
    assert (x.shape, x.dtype, y.shape) == (A.shape, A.dtype, (34, 23))
    assert x.sharding.n_tiles >= 4
    assert not made
    assert_equal(y, ((A + 1) * 2)[3:])
    assert_equal(x[:, 2], (A + 1)[:, 2])
    assert len(made) == 4  # once


@pytest.mark.timeout(60)
def test_chunks_may_be_made_of_arrays(thread_team: Any) -> None:
    """What dask runs in its threads may wait for the lock of evaluations."""
    with dx.use(thread_team), config.set(block_bytes=512):
        y = dx.asarray(A) + 0.0
        array = da.from_array(A, chunks=(10, 23)).map_blocks(lambda block: block + float(y.sum()), dtype=float)
        assert_close(dx.from_dask(array) * 2, (A + A.sum()) * 2, rtol=1e-12, atol=1e-12)
        assert_close(dx.from_dask(array).to_device("cpu").to_team(None), A + A.sum(), rtol=1e-12, atol=1e-12)


@pytest.fixture(params=[None, TEAMS[1]], ids=repr)
def thread_team(request: Any) -> Any:
    return request.param


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
        blocks = list(x.__dx_node__().memo.blocks)
        where = client.who_has(blocks)
        for block, tile in zip(blocks, x.sharding.tiles()):
            assert tuple(where[block.key]) == (x.team.members[x.sharding.member(tile)],)
        np.testing.assert_array_equal(back.compute(), A * 2 + 1)
        np.testing.assert_array_equal((back + 1).sum(axis=1).compute(), (A * 2 + 2).sum(axis=1))
        assert_equal(dx.from_dask(array.persist(), sharding=(None, "x")), A * 2)
        np.testing.assert_array_equal(x.to_dask_array().persist().compute(), A * 2)


@pytest.mark.cluster
@pytest.mark.parametrize("cluster", ["cluster4", "process_cluster"])
def test_on_a_cluster_nothing_is_sent_before_the_first_use(cluster: str, request: Any) -> None:
    client = request.getfixturevalue(cluster)

    def n_tasks() -> int:
        return client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks))

    dx.zeros(3)  # the team
    before = n_tasks()
    values = np.arange(80_000.0).reshape(400, 200)
    array = (da.from_array(values, chunks=(50, 200)) + 1).rechunk((100, 100))
    x = dx.from_dask(array)
    y = (x * 2).sum(axis=0)
    x.explain()
    assert n_tasks() == before
    np.testing.assert_array_equal(np.asarray(y), ((values + 1) * 2).sum(axis=0))
    held = [block for block in x.__dx_node__().memo.handles if hasattr(block, "key") and hasattr(block, "status")]
    assert len(held) == 8  # once evaluated, what a live array needed is kept


@pytest.mark.cluster
def test_on_a_cluster_only_what_is_read_is_made_and_only_what_is_held_is_kept(cluster4: Any) -> None:
    values = np.arange(80_000.0).reshape(400, 200)
    x = dx.from_dask(da.from_array(values, chunks=(50, 200)) + 1)
    assert (x[60:90] * 2).sum().item() == ((values + 1)[60:90] * 2).sum()
    handles = x.__dx_node__().memo.handles
    assert [hasattr(block, "status") for block in handles] == [False, True] + [False] * 6
    kept = x[120] + 1  # reads another one
    x[55] = -1.0
    written = values + 1
    written[55] = -1
    np.testing.assert_array_equal(np.asarray(x), written)
    np.testing.assert_array_equal(np.asarray(kept), (values + 1)[120] + 1)
    assert dx.from_dask(da.from_array(values, chunks=(50, 200)) + 2).sum().item() == (values + 2).sum()
    del x, kept, handles
    deadline = time.monotonic() + 20
    while any(key[0].startswith("dx-from-dask") for key in _keys_in_memory(cluster4)):
        gc.collect()
        assert time.monotonic() < deadline


def _keys_in_memory(client: Any) -> list[Any]:
    return client.run_on_scheduler(
        lambda dask_scheduler: [key for key, task in dask_scheduler.tasks.items() if task.who_has]
    )


@pytest.mark.cluster
def test_promised_chunks_travel_and_move(cluster4: Any, tmp_path: Any) -> None:
    values = np.arange(80_000.0).reshape(400, 200)

    def lazy() -> dx.DistArray:
        return dx.from_dask(da.from_array(values, chunks=(50, 200)) + 1)

    held = lazy()
    for x in (
        pickle.loads(pickle.dumps(held)),
        lazy().to_team(dx.Team((2,), ("x",))),
        lazy().to_team(None),
        dx.from_dask(lazy().to_dask_array()),
        dx.from_dask((lazy() * 1).to_dask_array()),
        dx.from_dask((da.from_array(values, chunks=(50, 200)) + 1).persist()),
    ):
        np.testing.assert_array_equal(np.asarray(x), values + 1)
    assert lazy().persist().sum().item() == (values + 1).sum()
    assert float(lazy()[3, 4]) == values[3, 4] + 1
    dx.save(tmp_path / "x.npy", lazy() * 2)
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), (values + 1) * 2)


# --------------------------------------------------------------------- what Dask's graphs and data sets hold


@pytest.fixture
def blocks_of_workers(cluster4: Any) -> Iterator[Any]:
    """Arrays of ones whose blocks lie on workers, so that they are gone when nobody holds them."""
    with config.set(block_bytes=0, eager_bytes=0):
        yield lambda: (dx.asarray(np.ones((64, 64)), team=dx.current_team()) + 1).persist()


@pytest.mark.cluster
def test_a_delayed_call_holds_what_it_reads(blocks_of_workers: Any) -> None:
    make = blocks_of_workers
    made = [
        dask.delayed(np.sum)(make()),
        dask.delayed(np.sum)(make() * 1),
        dask.delayed(lambda q: q[0].sum() + q[1]["a"].sum())([make() - 2, {"a": make()}]),
    ]
    x = make()
    before = dask.delayed(np.sum)(x)
    x[0] = 6  # the array has another version now
    x.persist()
    gc.collect()
    assert dask.compute(*made, before) == (8192.0,) * 4
    assert made[0].persist().compute() == 8192.0
    assert float(x.sum()) == 8192 + 64 * 4


@pytest.mark.cluster
def test_what_is_published_is_held(cluster4: Any, blocks_of_workers: Any) -> None:
    x = blocks_of_workers()
    y = dx.from_dask(da.ones((64, 64), chunks=16) + 1, team=dx.current_team())
    large = dx.asarray(np.ones((64, 5000))) * 2  # host data of some megabytes
    cluster4.publish_dataset(done=x, pending=x * 2, host=dx.asarray(np.ones(4)) + 1, other=y * 1, large=large)
    del x, y, large
    gc.collect()
    try:
        found = {name: float(cluster4.get_dataset(name).sum()) for name in cluster4.list_datasets()}
    finally:
        for name in cluster4.list_datasets():
            cluster4.unpublish_dataset(name)
    assert found == {"done": 8192, "pending": 16384, "host": 8, "other": 8192, "large": 640_000}


@pytest.mark.cluster
def test_a_future_is_an_array_of_its_value(cluster4: Any) -> None:
    x = dx.from_delayed(cluster4.submit(np.arange, 6.0), (6,), float)
    gc.collect()
    np.testing.assert_array_equal(x * 2, np.arange(6.0) * 2)


@pytest.mark.cluster
def test_what_is_still_to_be_computed_is_refused_with_the_way_out(cluster4: Any) -> None:
    for value in (cluster4.submit(np.arange, 6.0), dask.delayed(np.arange)(6.0)):
        for take in (dx.asarray, lambda v: dx.asarray(v, dtype=float), dx.from_dask):
            with pytest.raises((TypeError, ValueError), match=r"from_delayed"):
                take(value)


def test_an_array_in_other_collections_is_computed_by_dask() -> None:
    xarray = pytest.importorskip("xarray")
    labelled = xarray.DataArray(dx.asarray(np.ones((20, 7)), team=dx.Team((3,), ("r",))) + 1, dims=("a", "b"))
    (found,) = dask.compute(labelled)
    assert float(found.sum()) == 280
    assert dask.delayed(lambda q: float(q.sum()))(labelled).compute() == 280
