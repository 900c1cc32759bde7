"""Calls: a function of others is called with each block of a result, in the program of the member that has it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import distarray as dx
from distarray.lower.calls import CALL, calling, of_blocks
from distarray.lower.recipes import Leaf, Recipe
from distarray.runtime import cluster as runtime_cluster
from distarray.testing import counting, peaks

TEAM = dx.Team((4,), ("a",))


def test_each_block_is_called_with_at_its_member_and_what_the_calls_return_is_kept() -> None:
    x = dx.zeros((16, 2), team=TEAM).rechunk((2, 2)).persist()
    sharding = x.sharding
    template = calling(of_blocks(sharding), max, [(n, "path") for n in range(8)], "cpu")
    assert [r.args for r in template.recipes.values()] == [
        (Leaf(0, n), n, "path", "cpu", sharding.member(tile)) for n, tile in enumerate(sharding.tiles())
    ]
    programs = template.programs
    assert {m: [key[0] for key in p.kept_keys] for m, p in programs.items()} == {m: ["dx-tiles-call"] for m in range(4)}
    assert all(key[0] == CALL for p in programs.values() for key, _, _ in p.steps)
    assert set(template.kept.nbytes.values()) == {0}


@pytest.fixture
def sizes_sent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of tasks of each graph that is sent."""
    sent: list[int] = []
    real = runtime_cluster.send

    def spy(client: Any, graph: Any, *rest: Any) -> Any:
        sent.append(len(graph.__dask_graph__()))
        return real(client, graph, *rest)

    monkeypatch.setattr(runtime_cluster, "send", spy)
    return sent


@pytest.mark.cluster
def test_files_are_written_by_programs(cluster4: Any, tmp_path: Any, sizes_sent: list[int]) -> None:
    """One task for each member, and one for what its calls return; whatever is computed, and of blocks that there
    are.
    """
    a = np.arange(4096.0).reshape(64, 64)
    with dx.config.set(block_bytes=0):
        x = (dx.asarray(a, sharding=(dx.current_team().mesh.names[0], None)) + 0).rechunk((4, 64)).persist()
        dx.wait(x)
        for made, expected in [(x + x.T, a + a.T), (x, a), (x[::2] * 2, a[::2] * 2)]:
            sizes_sent.clear()
            with counting() as counted:
                dx.save(tmp_path / "x.npy", made)
            assert counted.fetched_bytes == 0
            assert len(sizes_sent) <= 2, "what a handle refers to is computed before"
            assert max(sizes_sent) <= 4 * (1 + 1)
            np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), expected)


@pytest.mark.cluster
def test_a_file_is_read_turned_and_written_within_a_limit(cluster4: Any, tmp_path: Any, sizes_sent: list[int]) -> None:
    zarr = pytest.importorskip("zarr", minversion="3")
    a = np.random.default_rng(0).random((4096, 64))
    zarr.create_array(tmp_path, name="x", shape=a.shape, chunks=(64, 64), dtype="f8")[...] = a
    limit = 3 * a.nbytes // 4
    with dx.config.set(block_bytes=4096, memory_limit=limit):
        x = dx.from_zarr(tmp_path, "x")
        with peaks() as found:
            made = (x.T + 1).to_zarr(tmp_path, "y", chunks=(64, 64))
    assert len(sizes_sent) <= 2 and max(sizes_sent) <= 4 * (1 + 2), "what a handle refers to may be kept beside"
    assert 0 < max(p.blocks for p in found.values()) <= limit + 1024  # what calls return has a few bytes
    np.testing.assert_array_equal(made[...], a.T + 1)


@pytest.mark.cluster
@pytest.mark.parametrize("chunks", [(64, 64), (64, 1024), (1024, 64)])
def test_a_store_is_written_of_another_in_steps_within_a_fourth_of_it(
    cluster4: Any, tmp_path: Any, sizes_sent: list[int], chunks: tuple[int, int]
) -> None:
    """Each tile is written right after it was made: four members never have all of theirs."""
    zarr = pytest.importorskip("zarr", minversion="3")
    a = np.random.default_rng(0).random((1024, 1024))
    zarr.create_array(tmp_path, name="x", shape=a.shape, chunks=(64, 1024), dtype="f8")[...] = a
    limit = a.nbytes // 4
    with dx.config.set(memory_limit=limit), peaks() as found:
        made = (dx.from_zarr(tmp_path, "x") * 2 + 1).to_zarr(tmp_path, "y", chunks=chunks)
    assert max(sizes_sent) <= 4 * (1 + 1)
    assert 0 < max(p.blocks for p in found.values()) <= limit
    np.testing.assert_array_equal(made[...], a * 2 + 1)


def test_a_call_follows_the_task_that_makes_its_block() -> None:
    template = of_blocks(dx.zeros((16, 2), team=TEAM).rechunk((4, 2)).sharding)
    made = [("dx-add", 0, n) for n in range(4)]
    template.recipes = {key: Recipe("tile", max, (Leaf(0, key[2]),)) for key in made}
    template.lowered.members.update({key: key[2] for key in made})
    template.lowered.outputs = {0: template.lowered.outputs[0]._replace(refs=made)}
    called = calling(template, max, [()] * 4, "cpu")
    assert [key[0] for key in called.recipes] == ["dx-add", CALL] * 4
