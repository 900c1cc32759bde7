"""Moves between environments: bits, shares of memory, and what travels (B-38)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import distarray as dx
from distarray.testing import counting, force_tiles

T3 = dx.Team((3,), ("R",), members=(0, 1, 2))
T4 = dx.Team((4,), ("T",), members=(0, 1, 2, 3))
T2 = dx.Team((4,), ("R",), members=(4, 5, 6, 7))
GRID = dx.Team((2, 2), ("R", "C"), members=(0, 1, 2, 3))
VALUES = np.random.default_rng(0).standard_normal((10, 7))


def blocks(x: dx.DistArray) -> list[Any]:
    memo = x.persist()._node().memo
    assert memo is not None
    return list(memo.blocks)


def cut(team: dx.Team | None, sharding: Any = None, layout: Any = None) -> dx.DistArray:
    """An array of several blocks that is not a host array."""
    x = dx.asarray(VALUES, team=team, sharding=sharding, layout=layout) + 0.0
    return x.persist()


def assert_same_bits(x: dx.DistArray, values: np.ndarray = VALUES) -> None:
    assert np.asarray(x).tobytes() == values.tobytes()


# ------------------------------------------------------------------------------------------- in this process


def test_a_team_of_the_same_shape_shares_the_blocks() -> None:
    """B-38."""
    x = cut(T3, ("R", None))
    with counting() as c:
        y = x.to_team(dx.Team((3,), ("S",), members=(5, 6, 7))).persist()
    assert y.sharding.axes == (("S",), ())
    assert all(np.shares_memory(a, b) for a, b in zip(blocks(x), blocks(y), strict=True))
    assert (c.allocated_bytes, c.fetched_bytes, c.bytes_moved) == (0, 0, VALUES.nbytes)
    assert_same_bits(y)


@pytest.mark.parametrize("change", ["source", "moved"])
@pytest.mark.parametrize("how", ["in place", "by index", "local"])
def test_shared_blocks_are_never_written(change: str, how: str) -> None:
    x = cut(T4, ("T", None))
    y = x.to_team(T2)
    one, other = (x, y) if change == "source" else (y, x)
    if how == "in place":
        one += 1
        one.persist()
    elif how == "by index":
        one[2:5] = 0
        one.persist()
    else:
        one.local(1)[...] = -1
    assert_same_bits(other)
    assert np.asarray(one).tobytes() != VALUES.tobytes()


def test_a_block_that_the_user_may_write_to_is_copied() -> None:
    x = cut(T4, ("T", None))
    mine = x.local(0)
    y = x.to_team(T2)
    np.asarray(mine)[...] = 99
    assert_same_bits(y)


@pytest.mark.parametrize("layout", [None, "F"])
@pytest.mark.parametrize("there", [None, T3, T4, GRID], ids=repr)
@pytest.mark.parametrize("sharding", [("R", "C"), ("C", None), (("C", "R"), None), (None, "R"), (None, None)], ids=str)
def test_values_and_layout_are_kept_on_any_team(sharding: Any, there: dx.Team | None, layout: Any) -> None:
    x = cut(GRID, sharding, layout)
    y = x.to_team(there)
    assert y.team == there
    assert y.layout == x.layout
    assert_same_bits(y)
    assert_same_bits(x)
    if there is not None and there != GRID:
        assert y.sharding.n_tiles == (there.size if x.sharding.n_tiles > 1 else 1)
    assert_same_bits(y * 1.0)


def test_the_cut_that_is_asked_for() -> None:
    x = cut(T4, ("T", None))
    y = x.to_team(GRID, ("C", "R"))
    assert y.sharding.axes == (("C",), ("R",))
    assert [b.shape for b in blocks(y)] == [(5, 3), (5, 4), (5, 3), (5, 4)]
    assert all(b.flags.c_contiguous for b in blocks(y))
    assert_same_bits(y)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1, 1), (2,)], ids=str)
def test_arrays_with_few_elements_or_none(shape: tuple[int, ...]) -> None:
    host = np.arange(np.prod(shape), dtype="i4").reshape(shape)
    with force_tiles(3):
        x = dx.asarray(host, team=T4)
        for there in (T3, GRID, None):
            assert_same_bits(x.to_team(there), host)
            assert_same_bits((x + 1).to_team(there), host + 1)


def test_a_host_array_is_placed_by_its_first_use() -> None:
    x = dx.asarray(VALUES, team=T4)
    with counting() as c:
        y = x.to_team(T3, ("R", None)).persist()
    assert (c.tasks, c.bytes_moved) == (0, 0)
    assert_same_bits(y + 0.0, VALUES)
    assert y.sharding.n_tiles == 3


def test_pending_work_is_done_where_it_was_and_later_writes_do_not_show() -> None:
    x = cut(T4, ("T", None))
    doubled = x * 2
    y = doubled.to_team(T3)
    doubled[:] = 0
    assert_same_bits(y, VALUES * 2)
    with pytest.raises(dx.EnvironmentMismatchError):
        y + x


@pytest.mark.parametrize("dtype", ["bool", "i2", "f4", "c16"])
def test_devices_change_block_by_block(dtype: str) -> None:
    host = (VALUES * 10).astype(dtype)
    x = (dx.asarray(host, team=T4, sharding=("T", None)) != 0).persist() if dtype == "bool" else None
    x = x if x is not None else (dx.asarray(host, team=T4, sharding=("T", None)) + host.dtype.type(0)).persist()
    with counting() as c:
        there = x.to_device("strict").persist()
    assert (c.fetched_bytes, c.messages) == (0, 0)
    assert there.sharding == x.sharding
    assert [str(b.device) for b in blocks(there)] == [f"array_api_strict.Device('device{i % 2 + 1}')" for i in range(4)]
    back = there.to_device("strict:2").to_device("cpu")
    assert back.sharding == x.sharding
    assert_same_bits(back, np.asarray(x))
    # what came back is not the memory of the device
    back += back
    assert_same_bits(there, np.asarray(x))


# ----------------------------------------------------------------------------------------------- on a cluster


def are_on(client: Any, x: dx.DistArray, workers: Any) -> bool:
    """Whether each of these workers has its block; others that read it may have a replica."""
    from distributed import wait

    wait(blocks(x))
    return all(worker in client.who_has()[b.key] for b, worker in zip(blocks(x), workers, strict=True))


@pytest.mark.cluster
def test_between_teams_of_a_cluster_nothing_comes_here(cluster4: Any) -> None:
    """B-38."""
    whole = dx.Team((4,), ("R",), cluster4)
    left, right = (
        dx.Team((2,), (name,), cluster4, members=whole.members[i : i + 2]) for name, i in (("A", 0), ("B", 2))
    )
    host = np.random.default_rng(1).standard_normal((64, 512))
    x = dx.asarray(host, team=left, sharding=("A", None)) + 0.0
    with counting() as c:
        same = x.to_team(right)
        other = x.to_team(right, (None, "B"))
        wide = x.to_team(whole)
        back = wide.to_team(left)
        for y in (same, other, wide, back):
            y.persist()
    assert c.fetched_bytes == 0
    assert are_on(cluster4, same, right.members)
    assert are_on(cluster4, wide, whole.members)
    assert [y.sharding.parts for y in (same, other, wide, back)] == [(2, 1), (1, 2), (4, 1), (2, 1)]
    for y in (same, other, wide, back):
        assert_same_bits(y, host)
        assert_same_bits(y + y, host + host)


@pytest.mark.cluster
def test_a_block_in_fortran_order_arrives_in_it(process_cluster: Any) -> None:
    whole = dx.Team((3,), ("R",), process_cluster)
    first, rest = dx.Team((1,), ("A",), process_cluster, whole.members[:1]), whole.members[1:]
    host = np.random.default_rng(1).standard_normal((30, 20, 10))
    x = dx.asarray(host, team=first, sharding=(None, "A", None), layout=(1, 0, 2))
    x = (x + 0.0).with_layout((1, 0, 2)).persist()
    y = x.to_team(dx.Team((2,), ("B",), process_cluster, rest), ("B", None, None))
    assert_same_bits(y, host)
    z = x.to_team(dx.Team((1,), ("B",), process_cluster, rest[:1]))
    assert z.layout == x.layout == (1, 0, 2)
    strides = process_cluster.submit(lambda block: block.strides, blocks(z)[0]).result()
    assert sorted(strides, reverse=True) == [strides[1], strides[0], strides[2]]


@pytest.mark.cluster
def test_between_a_cluster_and_this_process(cluster4: Any) -> None:
    there = dx.Team((4,), ("R",), cluster4)
    host = np.random.default_rng(1).standard_normal((64, 512))
    x = cut_of(host)
    y = x.to_team(there)
    assert y.sharding.parts == (4, 1)
    x += 1  # what the workers have is theirs
    x.persist()
    assert_same_bits(y, host)
    with counting() as c:
        z = (y * 2).to_team(T3).persist()
    assert c.fetched_bytes == host.nbytes
    assert z.sharding.parts == (3, 1)
    assert_same_bits(z, host * 2)
    alone = y.to_team(None)
    assert alone.team is None
    assert_same_bits(alone, host)


def cut_of(host: np.ndarray) -> dx.DistArray:
    return (dx.asarray(host, team=T4, sharding=("T", None)) + 0.0).persist()


@pytest.mark.cluster
def test_devices_change_on_the_workers(cluster4: Any) -> None:
    team = dx.Team((4,), ("R",), cluster4)
    host = np.random.default_rng(1).standard_normal((64, 512))
    x = dx.asarray(host, team=team, sharding=("R", None)) + 0.0
    with counting() as c:
        back = x.to_device("strict").to_device("cpu").persist()
    assert (c.fetched_bytes, c.bytes_moved) == (0, 0)
    assert_same_bits(back, host)


@pytest.mark.cluster
def test_what_fails_before_a_move_raises_when_it_is_observed(cluster4: Any) -> None:
    left = dx.Team((2,), ("A",), cluster4)
    x = dx.asarray(np.ones((64, 512)), team=left, sharding=("A", None))
    with dx.config.set(errors="deferred"):
        broken = dx.map_blocks(lambda block: 1 / 0, x, dtype="f8")
        y = broken.to_team(dx.Team((4,), ("R",), cluster4))
        with pytest.raises(ZeroDivisionError):
            y.compute()
    assert_same_bits(x, np.ones((64, 512)))
