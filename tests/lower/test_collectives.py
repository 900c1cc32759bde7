"""Redistributions on data: every mode, on threads and on a cluster, bitwise and with the bytes that were planned."""

from __future__ import annotations

import random
import re
import weakref
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from helpers import some

import distarray as dx
from distarray.array.chunks import sharding_of_chunks
from distarray.errors import MemoryBudgetError, ShardingError
from distarray.lower import lower
from distarray.lower.site import Site
from distarray.planner.rates import Rates
from distarray.runtime.planning import plan_of
from distarray.sharding.mesh import Mesh
from distarray.sharding.sharding import Sharding
from distarray.testing import counting, peaks
from distarray.testing.redistributions import Case, small_cases

MODES = ("paper", "fused", "direct", "auto")


def values(shape: tuple[int, ...]) -> Any:
    return np.arange(np.prod(shape, dtype=int)).reshape(shape)


def run(case: Case, mode: str, **where: Any) -> Any:
    """The array resharded, checked against what it was."""
    whole = values(case.shape)
    x = dx.asarray(whole, sharding=case.src, **where).persist()
    y = x.reshard(case.dst, mode=mode).persist()
    assert y.sharding == case.dst
    for tile, block in zip(case.dst.tiles(), y.iter_blocks(), strict=True):
        assert np.array_equal(block.values, whole[case.dst.tile_slices(case.shape, tile)]), (case, mode)
    assert np.array_equal(np.asarray(x), whole)
    return y


def on_threads(n: int, seed: int) -> None:
    #
    for k, case in enumerate([*small_cases(n, seed), *small_cases(n, seed, uneven=True)]):
        team = dx.Team(case.src.mesh.sizes, case.src.mesh.names)
        run(case, MODES[k % 4], team=team)


def test_random_problems_on_threads() -> None:
    on_threads(60, 1)


@pytest.mark.slow
def test_a_thousand_random_problems_on_threads() -> None:
    on_threads(2000, 2)


def waved(n: int, seed: int) -> list[Case]:
    """Problems on four members, some with several places each."""
    rng = random.Random(seed)
    found = []
    for sizes, n_waves in (((2, 2), 0), ((4,), 0), ((2, 2, 3), 1), ((4, 2), 1), ((2, 2, 2, 3), 2), ((3, 5), 1)):
        names = [*"ab"[: len(sizes) - n_waves], *[f"%{w + 1}" for w in range(n_waves)]]
        mesh = Mesh(tuple(names), sizes)
        for _ in range(n):
            rank = rng.randint(1, 3)
            src, dst = (_type(rng, mesh, rank) for _ in range(2))
            found.append(Case(tuple(rng.randint(0, 13) for _ in range(rank)), src, dst))
    return found


def _type(rng: random.Random, mesh: Mesh, rank: int) -> Sharding:
    axes: list[list[str]] = [[] for _ in range(rank)]
    for name in rng.sample(mesh.names, len(mesh.names)):
        if rng.random() < 0.8:
            axes[rng.randrange(rank)].append(name)
    return Sharding(mesh, tuple(map(tuple, axes)))


def on_cluster(client: Any, n: int, seed: int) -> None:
    #
    for k, case in enumerate(waved(n, seed)):
        names = [name for name in case.src.mesh.names if not name.startswith("%")]
        team = dx.Team([case.src.mesh.axis_size(name) for name in names], names, client=client)
        whole = values(case.shape)
        x = dx.asarray(whole, team=team, sharding=case.src).persist()
        lazy = x.reshard(case.dst, mode=MODES[k % 4])
        explained = lazy.explain()
        with counting() as counted:
            lazy.persist()
        assert counted.bytes_moved == sum(step.moved for stage in explained.stages for step in stage.collectives)
        assert counted.bytes_moved == explained.moved_bytes
        assert np.array_equal(np.asarray(lazy), whole), (case, MODES[k % 4])


@pytest.mark.cluster
def test_random_problems_on_a_cluster(cluster4: Any) -> None:
    on_cluster(cluster4, 5, 3)


@pytest.mark.cluster
@pytest.mark.slow
def test_many_random_problems_on_a_cluster(cluster4: Any) -> None:
    on_cluster(cluster4, 170, 4)


# ------------------------------------------------------------------------------------------- what it costs


def test_a_tile_is_one_task_whatever_the_cuts() -> None:
    x = (dx.asarray(values((64, 64)), team=dx.Team((2,), ("R",))).rechunk((64, 1)) + 0).persist()
    with counting() as counted:
        y = x.rechunk((1, 64)).persist()
    assert counted.tasks == y.npartitions == 64


@pytest.mark.cluster
def test_direct_on_a_cluster_moves_the_lower_bound(cluster4: Any) -> None:
    team = dx.Team((2, 2), ("a", "b"), client=cluster4)
    x = dx.asarray(values((12, 20)), team=team, sharding=("a", "b")).persist()
    y = x.reshard((("b", "a"), None), mode="direct")
    explained = y.explain()
    assert explained.moved_bytes == explained.lower_bound_bytes > 0
    with counting() as counted:
        y.persist()
    assert counted.bytes_moved == explained.lower_bound_bytes


def test_explain_names_the_collectives() -> None:
    team = dx.Team((4, 6), ("x", "y"))
    x = dx.asarray(values((12, 12)), team=team, sharding=("x", "y")).persist()
    (stage,) = x.reshard(("y", "x"), mode="paper").explain().stages
    assert stage.mode == "paper"
    assert [step.name for step in stage.collectives] == ["alltoall 0->1 n=2", "alltoall 1->0 n=3", "allpermute"]
    assert [step.received for step in stage.collectives] == [3 * 8, 4 * 8, 6 * 8]
    assert [step.tile for step in stage.collectives] == [(6, 1), (2, 3), (2, 3)]
    text = str(x.reshard(("y", "x"), mode="paper").explain())
    assert "alltoall 0->1 n=2 makes tiles [6, 1]" in text


def test_a_plan_is_looked_up_the_second_time() -> None:
    from distarray.planner.redistribution import cache_info

    team = dx.Team((2, 3), ("a", "b"))
    x = dx.asarray(values((12, 18)), team=team, sharding=("a", "b")).persist()
    x.reshard(("b", "a"), mode="paper").persist()
    misses = cache_info().misses
    for _ in range(3):
        x.reshard(("b", "a"), mode="paper").persist()
    assert cache_info().misses == misses


def test_the_source_may_be_written_afterwards() -> None:
    team = dx.Team((2, 3), ("a", "b"))
    for mode in MODES:
        x = dx.asarray(values((12, 18)), team=team, sharding=("a", "b")).persist()
        y = x.reshard(("b", "a"), mode=mode)
        x += 1
        y2 = y.reshard((None, ("a", "b")), mode=mode)
        y *= 2
        assert np.array_equal(np.asarray(x), values((12, 18)) + 1)
        assert np.array_equal(np.asarray(y), values((12, 18)) * 2)
        assert np.array_equal(np.asarray(y2), values((12, 18)))


@pytest.mark.parametrize("layout", ["C", "F"])
@pytest.mark.parametrize("mode", MODES)
def test_blocks_come_in_the_layout_of_the_target(mode: str, layout: str) -> None:
    team = dx.Team((2, 3), ("a", "b"))
    x = dx.asarray(values((12, 18)), team=team, sharding=("a", "b")).persist()
    y = x.reshard(Sharding(team.mesh, (("b",), ("a",)), layout=layout), mode=mode).persist()
    assert np.array_equal(np.asarray(y), values((12, 18)))
    for block in y.iter_blocks():
        assert block.values.flags[f"{layout}_CONTIGUOUS"]


def test_what_is_refused_keeps_no_blocks_alive() -> None:
    team = dx.Team((4,), ("a",))
    x = (dx.asarray(values((64, 64)), team=team, sharding=("a", None)) + 0).persist()
    plan, graph, env = plan_of([x.reshard((None, "a"), memory=1).__dx_node__()])
    node = weakref.ref(x.__dx_node__())
    with suppress(MemoryBudgetError):
        lower.lower_once(plan, graph, env, Site(True, 1 << 30, 1 << 30, Rates()))
    del x, graph
    assert node() is None, "no cycle that only a garbage collection ends"


def test_modes_that_are_unknown_are_errors_at_the_call() -> None:
    team = dx.Team((2,), ("a",))
    with pytest.raises(ShardingError, match="mode 'best' is unknown"):
        dx.zeros((4, 4), team=team).reshard((None, "a"), mode="best")


# ------------------------------------------------------------------------------------------------- waves


@pytest.mark.cluster
def test_waves_fit_into_memory(cluster4: Any) -> None:
    # within memory where it is set
    team = dx.Team((4,), ("a",), client=cluster4)
    whole = values((64, 64))
    x = dx.asarray(whole, team=team).rechunk((2, 64)).persist()
    nbytes = whole.nbytes // 4
    plain = x.rechunk((64, 2))
    assert plain.explain().stages[0].waves == 1
    y = x.reshard(plain.sharding, memory=int(2.9 * nbytes))
    (stage,) = y.explain().stages
    assert stage.waves > 1
    assert np.array_equal(np.asarray(y), whole)
    with pytest.raises(MemoryBudgetError, match="needs at least"):
        x.reshard(plain.sharding, memory=2 * nbytes).persist()
    assert np.array_equal(np.asarray(x), whole)


@pytest.mark.cluster
def test_one_tile_is_filled_in_turns_by_programs_that_hold_it_once(cluster4: Any) -> None:
    # what is filled in is one block, whoever fills it
    team = dx.Team((4,), ("a",), client=cluster4)
    whole = np.arange(2048.0)[:, None] - np.arange(2048.0)
    x = dx.subtract.outer(*[dx.arange(2048.0, team=team)] * 2).reshard(("a", None)).persist()
    dx.wait(x)
    cut = x.rechunk((2048, 512)).sharding
    memory = least_memory(x, cut, "auto")
    assert memory < 3 * whole.nbytes / 4, "twice the tile would be too much"
    y = x.reshard(cut, memory=memory)
    told = y.explain()
    assert told.programs == 4 and told.stages[0].waves > 1
    with counting() as counted, peaks() as found:
        dx.wait(y.persist())
    assert max(p.blocks for p in found.values()) <= memory
    assert sum(t.nbytes for t in counted.transfers) == whole.nbytes * 3 // 4
    assert np.array_equal(np.asarray(y), whole)


def least_memory(x: dx.DistArray, cut: Sharding, mode: str) -> int:
    """Return the fewest bytes that a member may be let hold for a redistribution."""
    try:
        x.reshard(cut, mode=mode, memory=1).persist()
    except MemoryBudgetError as error:  # pytest's record of it would hold the array
        return int(re.findall(r"needs at least (\d+) bytes", str(error))[0])
    raise AssertionError("a byte is too little")


@pytest.mark.cluster
@pytest.mark.parametrize("bound", ["none", "what it takes", "least"])
@pytest.mark.parametrize("mode", some(MODES, 3))
def test_members_never_hold_more_than_was_said(cluster4: Any, mode: str, bound: str) -> None:
    # R-7, measured; as programs, whose credits keep to what the user lets members hold
    team = dx.Team((4,), ("a",), client=cluster4)
    for shape, source, target in [
        ((256, 256), (256, 4), (4, 256)),
        ((256, 256), (16, 16), (2, 256)),
        ((300, 266), (100, 100), (99, 99)),
    ]:
        x = (dx.asarray(values(shape), team=team).rechunk(source) + 0).persist()
        dx.wait(x)
        cut = sharding_of_chunks(x.rechunk(target).chunks, x._env)
        y = x.reshard(cut, mode=mode)
        if bound != "none":
            memory = y.explain().stages[0].held_bytes if bound == "what it takes" else least_memory(x, cut, mode)
            y = x.reshard(cut, mode=mode, memory=memory)
        told = y.explain()
        assert told.programs == 4
        said = told.peak_bytes if bound == "none" else told.stages[0].held_bytes
        with peaks() as found:
            dx.wait(y.persist())
        most = max(p.blocks for p in found.values())
        n_packs = told.stages[0].tasks - told.stages[0].tiles
        assert 0 < most <= said + 256 * n_packs  # a pack is a list, which has a few bytes itself
        assert np.array_equal(np.asarray(y), values(shape))
        del y
