"""Bundles: on a cluster each kept array has one key for each member, whatever the number of its tiles."""

from __future__ import annotations

import os
import pickle
import signal
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers import eventually
from hypothesis import given
from hypothesis import strategies as st
from on_workers import keys_but_templates, keys_in_memory, sum_of_some

import distarray as dx
from distarray.expr.expr import Stored
from distarray.kernels.loans import owner
from distarray.lower.bundling import Output, bundle_of, kept_of, tile_key
from distarray.lower.recipes import Leaf, Unsent, unsent_blocks
from distarray.runtime import instantiate
from distarray.runtime.bundles import Bundle, BundledBlocks, BundledTile, holdings
from distarray.runtime.cluster import ClusterExecutor
from distarray.sharding.dealing import dealt
from distarray.sharding.mesh import Mesh
from distarray.sharding.sharding import Sharding

pytest.importorskip("distributed")

N_TILES, EXTENT = 40, 5
A = np.arange(float(N_TILES * EXTENT))


def in_tiles(values: np.ndarray, extent: int = EXTENT) -> dx.DistArray:
    """Return an array in many tiles, made by tasks on the members."""
    return dx.asarray(values).rechunk(extent).persist()


def kept(client: Any) -> int:
    return len(client.run_on_scheduler(keys_in_memory))


@pytest.fixture(params=["cluster4", "process_cluster"])
def client(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


def test_bundle_keeps_the_memory_order_of_its_blocks() -> None:
    turned = np.arange(24.0).reshape(2, 3, 4).transpose(1, 0, 2)
    found = pickle.loads(pickle.dumps(Bundle([turned, np.arange(3)]), protocol=5))
    assert [block.strides for block in found.blocks] == [turned.strides, (8,)]
    np.testing.assert_array_equal(found[0], turned)
    assert (len(found), found.nbytes) == (2, 24 * 8 + 3 * 8)


def test_key_of_a_tile_names_its_bundle() -> None:
    bundle = ("dx-tiles-add-1", 3, 0)
    assert bundle_of(tile_key(bundle, 7)) == (bundle, 7)
    assert [bundle_of(key) for key in (bundle, ("dx-add-1", 3, 0, 1), "dx-tiles-add", 5)] == [None] * 4


def test_block_of_a_bundle_from_disk_does_not_hold_all_of_it() -> None:
    serialize = pytest.importorskip("distributed.protocol")
    made = Bundle([np.arange(1000.0), np.arange(24.0).reshape(2, 3, 4).transpose(1, 0, 2), np.arange(3)])
    read = serialize.deserialize_bytes(bytearray(b"".join(map(bytes, serialize.serialize_bytelist(made)))))
    for found, block in zip(read.blocks, made.blocks, strict=True):
        assert owner(found).base is None and found.flags.aligned
        assert owner(found).nbytes == found.nbytes
        assert found.strides == block.strides
        np.testing.assert_array_equal(found, block)


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=24),
    st.integers(1, 3),
    st.integers(0, 30),
    st.sets(st.integers(0, 23)),
)
def test_bundles_are_as_large_as_may_be(nbytes: list[int], n_members: int, most: int, untouched: set[int]) -> None:
    """Each tile is kept once, under a key or in a bundle; one more tile would make each bundle too large."""
    mesh = Mesh(("x", "%1"), (n_members, len(nbytes)))
    sharding = Sharding(mesh, (("x", "%1"),))
    tiles = dealt(sharding)
    sizes = [nbytes[n % len(nbytes)] for n in range(len(tiles.places))]
    refs = [Leaf(0, n) if n in untouched else ("dx-add", 1, n) for n in range(len(sizes))]
    members = {ref: m for ref, (m, _) in zip(refs, tiles.places, strict=True) if type(ref) is tuple}
    found = kept_of({2: Output(sharding, refs, sizes)}, members, {0: tuple(m for m, _ in tiles.places)}, most)
    for member, kept in found.by_member[2].items():
        assert [n for part in kept for n in part.numbers] == list(tiles.tiles[member])
        for part, following in zip(kept, [*kept[1:], None], strict=True):
            total = sum(sizes[n] for n in part.numbers)
            assert len(part.numbers) == 1 or total <= most
            assert following is None or total + sizes[following.numbers[0]] > most
            made = [refs[n] for n in part.numbers if type(refs[n]) is tuple]
            assert (part.key is not None) == (len(part.numbers) > 1 and bool(made))
            if part.key is not None:
                assert found.nbytes[part.key] == total
                assert found.bundles[part.key] == (member, tuple(refs[n] for n in part.numbers))
            else:
                assert {key: found.nbytes[key] for key in made} == {key: sizes[key[2]] for key in made}
    assert found.nbytes.keys() == set(found.all_keys)
    assert len(set(found.all_keys)) == len(found.all_keys)


@pytest.mark.cluster
def test_scheduler_knows_a_key_for_each_array_and_member(client: Any) -> None:
    n_members = len(client.scheduler_info(n_workers=-1)["workers"])
    y = in_tiles(A)
    z = (y + 1).persist()
    np.testing.assert_array_equal(np.asarray(z), A + 1)
    eventually(lambda: kept(client) == 2 * n_members)
    # of each run its programs and what holds them together are known as well, as long as it may have to begin anew
    assert len(client.run_on_scheduler(keys_but_templates)) == 2 * (2 * n_members + 1)
    del y
    eventually(lambda: kept(client) == n_members)
    np.testing.assert_array_equal(np.asarray(z[::-1]), A[::-1] + 1)
    del z
    eventually(lambda: kept(client) == 0)


@pytest.mark.cluster
def test_repeat_sends_as_much_for_many_tiles_as_for_few(cluster4: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []
    send = cluster4._send_to_scheduler

    def counted(message: Any) -> None:
        if message.get("op") == "update-graph":
            sent.append(sum(memoryview(frame).nbytes for frame in message["expr_ser"].frames))
        send(message)

    found = {}
    for n_tiles in (40, 400):
        y = in_tiles(np.arange(n_tiles * 2.0), 2)
        for _ in range(2):
            (y * 2).persist()
        with monkeypatch.context() as m:
            m.setattr(cluster4, "_send_to_scheduler", counted)
            z = (y * 2).persist()
        np.testing.assert_array_equal(np.asarray(z), np.arange(n_tiles * 2.0) * 2)
        found[n_tiles] = sent.pop()
    assert not sent
    assert abs(found[400] - found[40]) <= 100
    assert found[400] <= 4_000


READS: dict[str, tuple[Callable[[Any], Any], Callable[[np.ndarray], Any]]] = {
    "a few elements of two tiles": (lambda x: x[3:9], lambda a: a[3:9]),
    "one element": (lambda x: float(x[17]), lambda a: float(a[17])),
    "tiles of other members": (lambda x: dx.roll(x, 71), lambda a: np.roll(a, 71)),
    "all of it": (lambda x: x, lambda a: a),
    "a sum": (lambda x: x.sum(), lambda a: a.sum()),
    "sorted": (lambda x: dx.sort(-x), lambda a: np.sort(-a)),
    "other chunks": (lambda x: x.rechunk(7) * 2, lambda a: a * 2),
    "indices": (lambda x: x[np.array([180, 2, 2, 77])], lambda a: a[[180, 2, 2, 77]]),
    "a chunk": (lambda x: x.blocks[11], lambda a: a[55:60]),
}


@pytest.mark.cluster
@pytest.mark.parametrize("case", READS)
def test_who_reads_an_array_in_bundles_sees_its_blocks(cluster4: Any, case: str) -> None:
    y = in_tiles(A) + 0.5
    y.persist()
    assert isinstance(y.__dx_node__().memo.blocks, BundledBlocks)
    ours, numpys = READS[case]
    np.testing.assert_array_equal(np.asarray(ours(y)), numpys(A + 0.5))


@pytest.mark.cluster
def test_one_tile_is_read_without_the_others(cluster4: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    y = in_tiles(A)
    came: list[int] = []
    gather = ClusterExecutor._gather

    async def counted(self: Any, futures: Any) -> Any:
        found = await gather(self, futures)
        came.extend(block.nbytes for block in found.values())
        return found

    monkeypatch.setattr(ClusterExecutor, "_gather", counted)
    np.testing.assert_array_equal(np.asarray(y[10:15]), A[10:15])
    assert sum(came) == EXTENT * 8


@pytest.mark.cluster
def test_versions_leave_no_older_bundle_behind(cluster4: Any) -> None:
    y, expected = in_tiles(A), A.copy()
    for k in range(6):
        y[7 * k : 7 * k + 2] = -k
        expected[7 * k : 7 * k + 2] = -k
        y.persist()
        eventually(lambda: kept(cluster4) == 4)
    np.testing.assert_array_equal(np.asarray(y), expected)
    old = y.copy()
    y[::3] *= 2
    np.testing.assert_array_equal(np.asarray(old), expected)
    expected[::3] *= 2
    np.testing.assert_array_equal(np.asarray(y), expected)


@pytest.mark.cluster
def test_members_whose_tiles_are_not_written_keep_their_bundle(cluster4: Any) -> None:
    y = in_tiles(A)
    before = y.__dx_node__().memo.blocks
    y[60] = -1
    y.persist()
    after = y.__dx_node__().memo.blocks
    assert [after[10 * m].bundle.key == before[10 * m].bundle.key for m in range(4)] == [True, False, True, True]
    np.testing.assert_array_equal(np.asarray(y), np.where(A == 60, -1, A))


@pytest.fixture
def small_bundles(cluster4: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A cluster on which three tiles are kept under a key, of ten that a member has."""
    monkeypatch.setattr(instantiate, "bundle_nbytes", lambda env: 3 * EXTENT * 8)
    return cluster4


@pytest.mark.parametrize("case", READS)
@pytest.mark.cluster
def test_who_reads_an_array_in_several_bundles_sees_its_blocks(small_bundles: Any, case: str) -> None:
    y = in_tiles(A) + 0.25
    y.persist()
    blocks = y.__dx_node__().memo.blocks
    assert [(block.number, block.n_blocks) for block in blocks[:9]] == 3 * [(0, 3), (1, 3), (2, 3)]
    assert not isinstance(blocks[9], BundledTile)
    ours, numpys = READS[case]
    np.testing.assert_array_equal(np.asarray(ours(y)), numpys(A + 0.25))
    np.testing.assert_array_equal(np.asarray(y), A + 0.25)


@pytest.mark.cluster
def test_bundles_whose_tiles_are_not_written_stay(small_bundles: Any) -> None:
    y = in_tiles(A) + 0.125
    y.persist()
    before = y.__dx_node__().memo.blocks
    y[60] = -1  # of the third tile of the second member
    y.persist()
    after = y.__dx_node__().memo.blocks
    same = {n for n, (a, b) in enumerate(zip(after, before, strict=True)) if a.key == b.key}
    assert same == set(range(N_TILES)) - {10, 11, 12}
    np.testing.assert_array_equal(np.asarray(y), np.where(A == 60, -1, A + 0.125))
    eventually(lambda: kept(small_bundles) == 17)
    del before
    eventually(lambda: kept(small_bundles) == 16)


@pytest.mark.cluster
def test_arrays_in_bundles_travel_by_name(client: Any) -> None:
    y = in_tiles(A)
    np.testing.assert_array_equal(np.asarray(pickle.loads(pickle.dumps(y)) + 1), A + 1)
    assert client.submit(sum_of_some, y).result(30) == A[2:13].sum()


@pytest.mark.cluster
def test_dask_takes_arrays_in_bundles_along(client: Any) -> None:
    import dask

    y = in_tiles(A)
    both = dask.compute(y, y * 2)
    np.testing.assert_array_equal(both[0], A)
    np.testing.assert_array_equal(both[1], A * 2)


@pytest.mark.cluster
def test_tiles_are_told_apart_by_what_they_stand_for(cluster4: Any) -> None:
    y = in_tiles(A)
    blocks = y.__dx_node__().memo.blocks
    assert [type(block) for block in blocks[:2]] == [BundledTile] * 2
    assert len({block.key for block in blocks}) == len(blocks) == N_TILES
    assert len(blocks.held) == 4


@pytest.mark.cluster
def test_bundles_of_a_lost_worker_are_made_again(mortal_cluster: Any) -> None:
    y = in_tiles(A)
    z = (y * 3 + dx.roll(y, 20)).persist()
    expected = A * 3 + np.roll(A, 20)
    np.testing.assert_array_equal(np.asarray(z), expected)
    os.kill(sorted(mortal_cluster.run(os.getpid).values())[0], signal.SIGKILL)
    np.testing.assert_array_equal(np.asarray(z + 1), expected + 1)
    np.testing.assert_array_equal(np.asarray(z), expected)


@pytest.mark.cluster
@pytest.mark.parametrize("first", [0, 1])
def test_arrays_in_bundles_go_to_other_teams(cluster4: Any, first: int) -> None:
    y = in_tiles(A)
    members = dx.current_team().members[first : first + 3]
    team = dx.Team((3,), ("m",), client=cluster4, members=members)
    z = y.to_team(team)
    np.testing.assert_array_equal(np.asarray(z + z[::-1]), A + A[::-1])
    same = y.to_team(dx.Team((2, 2), ("a", "b"), client=cluster4))
    np.testing.assert_array_equal(np.asarray(same.rechunk(8) * 2), A * 2)
    np.testing.assert_array_equal(np.asarray(same + 1), A + 1)


STEPS: list[tuple[Callable[[Any], Any], Callable[[np.ndarray], np.ndarray]]] = [
    (lambda x: x + 1, lambda a: a + 1),
    (lambda x: dx.roll(x, 23), lambda a: np.roll(a, 23)),
    (lambda x: x[::-1] * 2, lambda a: a[::-1] * 2),
    (lambda x: x.at[7:90:5].set(3), lambda a: np.where(np.isin(np.arange(a.size), np.arange(7, 90, 5)), 3, a)),
    (lambda x: dx.sort(x), np.sort),
    (lambda x: x - x.mean(), lambda a: a - a.mean()),
]


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_a_worker_killed_at_any_moment_loses_no_bundle(mortal_cluster: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, expected = in_tiles(A), A
    pid = sorted(mortal_cluster.run(os.getpid).values())[seed % 3]
    killer = threading.Timer(rng.uniform(0, 1), os.kill, (pid, signal.SIGKILL))
    killer.start()
    for k in rng.integers(len(STEPS), size=12):
        ours, numpys = STEPS[k]
        x, expected = ours(x), numpys(expected)
        if rng.random() < 0.7:
            x.persist()
        if rng.random() < 0.3:
            np.testing.assert_allclose(np.asarray(x[11:57]), expected[11:57])
    killer.join()
    np.testing.assert_allclose(np.asarray(x), expected)
    del x
    eventually(lambda: kept(mortal_cluster) == 0)


@pytest.mark.parametrize("is_copied", [False, True])
def test_what_stands_for_blocks_stands_for_their_copies_too(is_copied: bool) -> None:
    cut = Sharding(Mesh(("x",), (3,)), ((), ()), is_copied=is_copied)
    node = dx.zeros((4, 5), team=dx.Team((3,), ("x",))).__dx_node__()
    node.memo = Stored(cut, unsent_blocks(cut, 7))
    found = [(member, nbytes, ref) for member, nbytes, ref in holdings(node)]
    assert found == [(n, 4 * 5 * 8, Unsent(7, n)) for n in range(3 if is_copied else 1)]
