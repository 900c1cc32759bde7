"""Arrays that lie at every owner: copies on the workers, who is sent what, writes, losses, and what is left."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import eventually
from on_workers import keys_but_templates, waits_for

import distarray as dx
from distarray.runtime import member_runs, planning
from distarray.runtime.hosts import place
from distarray.runtime.members import executor_for
from distarray.sharding.dealing import dealt
from distarray.sharding.mesh import Mesh
from distarray.sharding.sharding import Sharding
from distarray.testing import counting

distributed = pytest.importorskip("distributed")

pytestmark = pytest.mark.cluster

A = np.random.default_rng(0).standard_normal((8, 6))
B = np.random.default_rng(1).standard_normal((8, 6))
WHOLE, ROWS = (None, None), ("x", None)
MAKERS: list[Callable[..., Any]] = [
    lambda np, x, y: x * y + np.tanh(x),
    lambda np, x, y: x @ y.T,
    lambda np, x, y: (x - y).sum(axis=0),
    lambda np, x, y: np.reshape(x, (6, 8)) + 1,
    lambda np, x, y: np.take(x, [3, 1, 7], axis=0) * 2,
    lambda np, x, y: np.sort(y, axis=1)[::-1],
]


def everywhere(ndim: int, n: int = 4) -> Sharding:
    """Return the type of an array of which every member has a copy."""
    return Sharding(Mesh(("x",), (n,)), ((),) * ndim, is_copied=True)


EVERYWHERE = everywhere(2)


@pytest.fixture(autouse=True)
def options() -> Iterator[None]:
    """Plan everything anew, however small it is."""
    with dx.config.set(eager_bytes=0, plan_cache_size=0):
        yield


@pytest.fixture(params=["at once", "with credits", "tasks"])
def come(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run as programs whose messages come as they are made or when they are granted, or as one task for each tile."""
    if request.param == "with credits":
        monkeypatch.setattr(member_runs, "makes_little", lambda *args: False)
        monkeypatch.setattr(planning, "makes_little", lambda *args: False)
    if request.param == "tasks":
        monkeypatch.setattr("distarray.runtime.running.programs_of", lambda instance, others: None)
    return str(request.param)


def on_workers(client: Any, x: Any) -> dict[tuple[int, int], np.ndarray]:
    """By number of a tile and member the block that lies there, as the worker has it."""
    node = x.__dx_node__()
    place(node)
    dx.wait(x)
    memo, found = node.memo, {}
    tiles, members = dealt(memo.sharding), x.team.members
    of = {number: tile for (tile, _), number in tiles.copies.items()}
    for number, ((member, _), block) in enumerate(zip(tiles.places, memo.blocks, strict=True)):
        at = members[member]
        value = client.run(lambda dask_worker, key=block.key: dask_worker.data[key], workers=[at])
        found[of.get(number, number), member] = value[at]
    return found


def moved(make: Callable[[], Any]) -> tuple[Any, dict[int, int]]:
    """What is made, and the bytes that come to each member for it."""
    with counting() as counters:
        x = make().persist()
        dx.wait(x)
    found: dict[int, int] = {}
    for t in counters.transfers:
        found[t.destination] = found.get(t.destination, 0) + t.nbytes
    return x, found


def there(array: np.ndarray, sharding: Any = WHOLE) -> Any:
    x = dx.asarray(array, team=dx.Team((4,), ("x",)), sharding=sharding)
    place(x.__dx_node__())
    return x


def test_every_owner_has_a_copy(cluster4: Any) -> None:
    team = dx.Team((2, 2), ("x", "y"))
    for sharding, owners in [((None, None), {0: {0, 1, 2, 3}}), (("y", None), {0: {0, 2}, 1: {1, 3}})]:
        sent = dx.asarray(A, team=team, sharding=sharding)
        for x in (sent, (dx.asarray(A, team=team) + 0).reshard(sent.sharding)):
            assert x.persist().sharding.is_copied
            found = on_workers(cluster4, x)
            assert {(n, m) for n, members in owners.items() for m in members} == set(found)
            tiles = list(x.sharding.tiles())
            for (number, _), block in found.items():
                np.testing.assert_array_equal(block, A[x.sharding.tile_slices(A.shape, tiles[number])])
            np.testing.assert_array_equal(np.asarray(x), A)


def test_what_is_made_of_copies_is_made_at_each_owner_and_nothing_moves(cluster4: Any, come: str) -> None:
    x, y = there(A), there(B)
    for make in MAKERS:
        expected = make(np, A, B)
        z, received = moved(lambda: make(dx, x, y).reshard(everywhere(expected.ndim)))
        assert received == {}
        found = on_workers(cluster4, z)
        assert len(found) == 4
        for block in found.values():
            assert block.tobytes() == found[0, 0].tobytes()
        np.testing.assert_allclose(np.asarray(z), expected, rtol=1e-12)


def test_functions_of_the_user_are_called_once(cluster4: Any) -> None:
    x = there(A)
    z, received = moved(lambda: dx.apply_along_axis(lambda row: row * 2, 1, x).reshard(EVERYWHERE))
    assert received == dict.fromkeys((1, 2, 3), A.nbytes)
    np.testing.assert_array_equal(np.asarray(z), A * 2)


def test_each_owner_is_sent_what_it_lacks_once(cluster4: Any, come: str) -> None:
    x = there(A, ROWS)
    y, received = moved(lambda: x.reshard(EVERYWHERE))  # an all-gather
    assert received == dict.fromkeys(range(4), A.nbytes * 3 // 4)
    _, received = moved(lambda: y.reshard(ROWS))  # slices
    assert received == {}
    _, received = moved(lambda: x @ y.T)
    assert received == {}
    z, received = moved(lambda: (x[:2] + 1).reshard(EVERYWHERE))  # of one member: a broadcast
    assert received == dict.fromkeys((1, 2, 3), A.nbytes // 4)
    np.testing.assert_array_equal(np.asarray(z), A[:2] + 1)
    z, received = moved(lambda: dx.concat((y, z)).reshard(EVERYWHERE))
    assert received == {}
    np.testing.assert_array_equal(np.asarray(z), np.concatenate([A, A[:2] + 1]))
    z, received = moved(lambda: dx.pad(y, 1).reshard(EVERYWHERE))
    assert received == {}
    np.testing.assert_array_equal(np.asarray(z), np.pad(A, 1))


def test_a_written_array_has_copies_of_what_is_new(cluster4: Any, come: str) -> None:
    """No older copy is ever read; tiles that are not touched stay what they are."""
    x = there(A)
    before = x + 0
    x[2:5] = 7
    x.at[np.array([0, 6])].set(3)
    x[np.array([7])] = there(B)[:1]
    expected = A.copy()
    expected[2:5], expected[7] = 7, B[0]
    _, received = moved(lambda: x)
    assert received == {}
    for block in on_workers(cluster4, x).values():
        np.testing.assert_array_equal(block, expected)
    x[1] = there(B, ROWS)[6]  # of one member: each other is sent the row
    expected[1] = B[6]
    _, received = moved(lambda: x)
    assert received == dict.fromkeys((0, 1, 2), B[6].nbytes)
    for block in on_workers(cluster4, x).values():
        np.testing.assert_array_equal(block, expected)
    y, received = moved(lambda: (x * 2).reshard(EVERYWHERE))
    assert received == {}
    np.testing.assert_array_equal(np.asarray(y), expected * 2)
    np.testing.assert_array_equal(np.asarray(before), A)


def test_copies_count_in_memory_and_go_with_the_handle(cluster4: Any) -> None:
    gc.collect()
    eventually(lambda: not cluster4.run_on_scheduler(keys_but_templates))
    x = there(np.ones((256, 64)))
    n = x.nbytes
    held = executor_for(x._env).held()
    assert [held[m] for m in range(4)] == [n, 2 * n, n, n]  # what is sent is at another member too, for losses
    y = (x + 1).reshard(EVERYWHERE)
    with counting() as counters:
        y.persist()
        dx.wait(y)
    assert counters.predicted_peak == 3 * n
    held = executor_for(x._env).held()
    assert [held[m] for m in range(4)] == [2 * n, 3 * n, 2 * n, 2 * n]
    del x, y
    gc.collect()
    eventually(lambda: not cluster4.run_on_scheduler(keys_but_templates))


def test_more_copies_than_fit_are_refused_before_any_task(cluster4: Any) -> None:
    x = there(np.ones((256, 64)), ROWS)
    with dx.config.set(memory_limit=x.nbytes // 2), counting() as counters:
        with pytest.raises(dx.MemoryBudgetError, match="a member would hold"):
            x.reshard(EVERYWHERE).persist()
        assert counters.tasks == 0


def test_copies_of_a_lost_worker_are_made_again(mortal_cluster: Any, tmp_path: Path) -> None:
    """Of a worker that has them, and of one that is lost while all of them are being made."""
    path, team = str(tmp_path / "go"), dx.Team((3,), ("x",))
    cut, pids = everywhere(2, 3), mortal_cluster.run(os.getpid)
    x = dx.asarray(A, team=team, sharding=WHOLE)
    y = dx.asarray(B, team=team, sharding=ROWS)
    z = ((x * 2).reshard(cut) + y.reshard(cut)).reshard(cut).persist()
    dx.wait(z)
    with dx.config.set(errors="deferred"):
        held = dx.map_blocks(lambda block: waits_for(path, block), y, dtype=y.dtype)
    w = (held.reshard(cut) + z).reshard(cut).persist()
    eventually(lambda: list(tmp_path.glob("*.here")))
    os.kill(pids[team.members[0]], signal.SIGKILL)
    Path(path).touch()
    np.testing.assert_array_equal(np.asarray(w), B + (A * 2 + B))
    np.testing.assert_array_equal(np.asarray(z), A * 2 + B)
    os.kill(pids[team.members[1]], signal.SIGKILL)
    np.testing.assert_array_equal(np.asarray((w + x).reshard(cut).persist()), B + (A * 2 + B) + A)
    copies = executor_for(z._env).fetch(list(z.__dx_node__().memo.blocks), None)
    assert len(copies) == 3
    for block in copies:
        np.testing.assert_array_equal(block, A * 2 + B)
    del x, y, z, w, held, copies, block
    eventually(lambda: not mortal_cluster.run_on_scheduler(keys_but_templates))


def test_copies_are_read_by_other_teams_and_by_dask(cluster4: Any) -> None:
    x = (there(A) + 1).reshard(EVERYWHERE).persist()
    other = dx.Team((3,), ("m",), client=cluster4, members=x.team.members[1:])
    np.testing.assert_array_equal(np.asarray(x.to_team(other) * 2), (A + 1) * 2)
    np.testing.assert_array_equal(np.asarray(x.to_team(None)), A + 1)
    np.testing.assert_array_equal(x.to_dask_array().sum(0).compute(), (A + 1).sum(0))
    assert [block.member for block in x.iter_blocks()] == [0]
    np.testing.assert_array_equal(x.local(2), A + 1)


def test_types_say_that_there_are_copies() -> None:
    from distarray.sharding.spec import format_type, from_json, parse_type, to_json

    sharding = Sharding(Mesh(("x", "y"), (2, 2)), (("x",), ()), is_copied=True)
    text = format_type((8, 6), np.dtype("f4"), sharding)
    assert text == "f32[4{x}8, 6] copied"
    assert parse_type(text, sharding.mesh)[2] == sharding
    assert from_json(to_json((8, 6), sharding), sharding.mesh)[2] == sharding
    assert sharding != sharding.with_copies(False) == Sharding(sharding.mesh, sharding.axes)
    # Nobody replicates.
    assert not Sharding(sharding.mesh, (("x", "y"), ()), is_copied=True).is_copied
