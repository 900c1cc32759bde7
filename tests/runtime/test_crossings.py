"""Arrays that go to another team when they are needed: graphs of several environments, planned and run as one."""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import signal
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import distarray as dx
from distarray.expr import crossing
from distarray.runtime.clients import placement_of
from distarray.sharding.sharding import Sharding
from distarray.testing import counting
from distarray.testing.strategies import dtypes, shapes, shardings

HOST = np.random.default_rng(0).standard_normal((64, 96))
T3 = dx.Team((3,), ("R",), members=(0, 1, 2))
T4 = dx.Team((4,), ("T",), members=(0, 1, 2, 3))
GRID = dx.Team((2, 2), ("R", "C"), members=(3, 1, 0, 5))


@pytest.fixture(scope="module")
def eight_workers() -> Iterator[Any]:
    distributed = pytest.importorskip("distributed")
    options = {"dashboard_address": None, "memory_limit": 0, "silence_logs": "CRITICAL"}
    with distributed.LocalCluster(n_workers=8, threads_per_worker=1, processes=False, **options) as cluster:
        yield cluster


@pytest.fixture
def eight(eight_workers: Any) -> Iterator[Any]:
    """Client of eight workers of one thread each in this process."""
    from distributed import Client

    with Client(eight_workers) as client:
        yield client


@st.composite
def ends(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[tuple[int, ...], list[int], Any]:
    """Shape and members (of eight) of a team, and how an array lies there: a seed of a Sharding, or None."""
    size = draw(st.integers(1, 8))
    sizes = draw(st.sampled_from([(size,), *[(k, size // k) for k in range(2, size) if size % k == 0]]))
    members = draw(st.permutations(range(8)))[:size]
    if draw(st.integers(0, 3)) == 0:
        return sizes, members, None
    mesh = dx.Mesh(("x", "y")[: len(sizes)], sizes)
    return sizes, members, draw(shardings(mesh, shape, unreduced=False))


@st.composite
def journeys(draw: st.DrawFn) -> Any:
    """An array and the teams that it goes to, one after the other."""
    shape = draw(shapes(max_dims=3, max_side=12))
    stops = draw(st.lists(ends(shape), min_size=2, max_size=4))
    return shape, draw(dtypes()), stops, draw(st.booleans())


def values(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    n = int(np.prod(shape))
    return (np.arange(n) * 7 % 101).astype("i8").astype(dtype).reshape(shape)


def travels(journey: Any, client: Any = None) -> None:
    """Take an array along; at every stop, what is read there and what was predicted is right."""
    shape, dtype, stops, is_touched = journey
    everyone = None if client is None else dx.Team((8,), ("w",), client).members
    host = values(shape, dtype)
    teams = []
    for sizes, members, cut in stops:
        ranked = members if everyone is None else [everyone[m] for m in members]
        teams.append((dx.Team(sizes, ("x", "y")[: len(sizes)], client, ranked), cut))
    team, cut = teams[0]
    x = dx.asarray(host, team=team, sharding=cut)
    x = dx.where(x == x, x, x) if is_touched else x
    with counting() as c:
        seen = [x]
        for team, cut in teams[1:]:
            seen.append(seen[-1].to_team(team, cut))
    assert c.tasks == 0
    last = seen[-1]
    explained = last.explain()
    with counting() as c:
        last.persist()
    assert c.bytes_moved == explained.moved_bytes
    assert c.messages == explained.messages
    if client is not None:
        assert c.tasks == explained.tasks
    for y, (team, cut) in zip(seen, teams, strict=True):
        assert y.team == team
        found = np.asarray(y)
        assert found.dtype == dtype
        assert found.tobytes() == host.tobytes()
        if cut is not None and y is not x:
            assert y.sharding == cut


@settings(max_examples=150, deadline=None)
@given(journeys())
def test_arrays_are_the_same_wherever_they_go_in_this_process(journey: Any) -> None:
    travels(journey)


SAME_CLIENT = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


@pytest.mark.cluster
@settings(max_examples=60, deadline=None, suppress_health_check=SAME_CLIENT)
@given(journeys())
def test_arrays_are_the_same_wherever_they_go_on_a_cluster(eight: Any, journey: Any) -> None:
    """Teams of 1 to 8, disjoint, overlapping and equal; uneven and explicit cuts, empty parts, nothing at all."""
    travels(journey, eight)


@pytest.mark.cluster
@pytest.mark.slow
@settings(max_examples=800, deadline=None, suppress_health_check=SAME_CLIENT)
@given(journeys())
def test_arrays_are_the_same_on_many_journeys(eight: Any, journey: Any) -> None:
    travels(journey, eight)


#: What a program may do next: a move, an operation of two arrays, a write through a view, a look, a drop.
STEPS = st.lists(
    st.tuples(st.sampled_from(["move", "move", "add", "write", "scale", "look", "drop"]), *[st.integers(0, 99)] * 3),
    max_size=12,
)


def runs(program: Any, teams: list[dx.Team | None]) -> None:
    """Arrays on several teams, beside numpy's: nobody sees where they are, or when they went there."""
    first = np.arange(700.0).reshape(70, 10) % 23
    arrays = [(dx.asarray(first, team=teams[0]).reshard(("x", None)) + 1, first + 1)]
    for what, i, j, k in program:
        x, m = arrays[i % len(arrays)]
        team = teams[k % len(teams)]
        if what == "move":
            arrays.append((x.to_team(team), m if x.team == team else m.copy()))
        elif what == "add":
            y, n = arrays[j % len(arrays)]
            arrays.append((x + y.to_team(x.team) * 2, m + n * 2))
        elif what == "scale":
            x *= 2
            m *= 2
        elif what == "write":
            rows = slice(j % 70, None, 1 + k % 3)
            y, n = arrays[j % len(arrays)]
            x[rows] = y.to_team(x.team)[rows][:, ::-1]
            m[rows] = n[rows][:, ::-1].copy()
        elif what == "look":
            np.testing.assert_array_equal(np.asarray(x), m)
        elif len(arrays) > 1:
            del arrays[i % len(arrays)]
        del x, m
    for x, m in arrays:
        np.testing.assert_array_equal(np.asarray(x), m)


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_programs_that_move_arrays_give_what_numpy_gives(program: Any) -> None:
    def team(*members: int) -> dx.Team:
        return dx.Team((len(members),), ("x",), members=members)

    runs(program, [team(0, 1, 2), team(3, 4, 5), team(0, 2), team(5, 4, 3, 2, 1), None])


@pytest.mark.cluster
@settings(max_examples=40, deadline=None, suppress_health_check=SAME_CLIENT)
@given(STEPS)
def test_programs_that_move_arrays_on_a_cluster_give_what_numpy_gives(eight: Any, program: Any) -> None:
    everyone = dx.Team((8,), ("w",), eight).members

    def team(*members: int) -> dx.Team:
        return dx.Team((len(members),), ("x",), eight, [everyone[m] for m in members])

    runs(program, [team(0, 1, 2), team(3, 4, 5), team(0, 2), team(7, 6, 5, 4, 3, 2, 1), None])


# --------------------------------------------------------------------------------------------------- laziness


def test_nothing_moves_before_it_is_needed() -> None:
    x = dx.asarray(HOST, team=T4, sharding=("T", None)) + 1
    with counting() as c:
        y = x.to_team(T3)
        z = (y * 2).to_team(GRID) + 1
        assert y.sharding.parts == (3, 1)
        assert z.sharding.n_tiles == 4
        z.explain()
    assert (c.tasks, c.evaluations, c.bytes_moved) == (0, 0, 0)
    np.testing.assert_array_equal(np.asarray(z), (HOST + 1) * 2 + 1)


def test_what_is_written_later_does_not_show() -> None:
    x = (dx.asarray(HOST, team=T4, sharding=("T", None)) + 0).persist()
    view = x[3:50:2, ::-1]
    there, seen = x.to_team(T3), view.to_team(T3)
    x[...] = -1
    x += 1
    there_too = there.to_team(T4)
    there[0] = 7
    np.testing.assert_array_equal(np.asarray(x), np.zeros_like(HOST))
    expected = HOST.copy()
    np.testing.assert_array_equal(np.asarray(there_too), HOST)
    expected[0] = 7
    np.testing.assert_array_equal(np.asarray(there), expected)
    np.testing.assert_array_equal(np.asarray(seen), HOST[3:50:2, ::-1])


@pytest.mark.parametrize("first", ["source", "moved"])
def test_blocks_that_are_shared_are_not_written_whoever_comes_first(first: str) -> None:
    x = (dx.asarray(HOST, team=T3, sharding=("R", None)) + 0).persist()
    y = x.to_team(dx.Team((3,), ("S",), members=(5, 6, 7)))
    for z in (x, y) if first == "source" else (y, x):
        z *= 2
        z[1] = 0
        z.persist()
    expected = HOST * 2
    expected[1] = 0
    np.testing.assert_array_equal(np.asarray(x), expected)
    np.testing.assert_array_equal(np.asarray(y), expected)


def test_a_source_that_nobody_holds_is_not_overwritten() -> None:
    """What a pending move reads is needed, also where only the move knows it."""
    x = (dx.asarray(HOST, team=T4, sharding=("T", None)) + 0).persist()
    y = x.to_team(T3)
    z = x + 1
    del x
    np.testing.assert_array_equal(np.asarray(z), HOST + 1)
    np.testing.assert_array_equal(np.asarray(y), HOST)


def test_many_moves_in_one_expression_share_what_they_have_in_common() -> None:
    x = dx.asarray(HOST, team=T4, sharding=("T", None))
    calls = []

    def noted(block: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        calls.append(block.shape)
        return block + 1

    y = dx.map_blocks(noted, x, dtype=x.dtype)
    parts = [(y * k).to_team(T3) for k in range(5)]
    del y
    calls.clear()
    total = sum(parts[1:], parts[0])
    del parts
    np.testing.assert_array_equal(np.asarray(total), sum((HOST + 1) * k for k in range(5)))
    assert len(calls) <= 4


def test_moves_travel_in_pickles() -> None:
    x = dx.asarray(HOST, team=T4, sharding=("T", None)) + 1
    y = x.to_team(T3) * 2
    z = pickle.loads(pickle.dumps(y))
    np.testing.assert_array_equal(np.asarray(z), (HOST + 1) * 2)
    assert z.team == T3


def test_constants_are_made_where_they_are_to_be() -> None:
    x = dx.zeros((10**7, 10**7), team=T4, sharding=("T", None)).to_team(T3)
    assert x.team == T3
    assert x.sharding.parts == (3, 1)
    assert float(x[5, 10**6]) == 0
    y = dx.arange(4000, team=T4).to_team(T3) + 1
    assert [s.operations for s in y.explain().stages] in ([], [("add",)])
    np.testing.assert_array_equal(np.asarray(y), np.arange(4000) + 1)


def test_a_small_part_of_what_moves_is_read() -> None:
    x = dx.asarray(HOST, team=T4, sharding=("T", None)) + 1
    y = x.to_team(T3).T * 2
    assert float(y[5, 60]) == (HOST[60, 5] + 1) * 2
    np.testing.assert_array_equal(np.asarray(y[::3, 7]), ((HOST + 1) * 2).T[::3, 7])


def test_moves_that_are_over_are_forgotten() -> None:
    gc.collect()
    before = len(crossing._pending)
    x = dx.asarray(HOST, team=T4, sharding=("T", None)) + 1
    y, dropped = x.to_team(T3), x.to_team(GRID)
    assert len(crossing._pending) == before + 2
    del dropped
    y.persist()
    gc.collect()
    assert len(crossing._pending) == before


def test_a_move_in_this_process_keeps_to_the_limit() -> None:
    x = (dx.asarray(np.zeros((512, 512)), team=T4, sharding=("T", None)) + 1).persist()
    y = x.to_team(GRID, (None, "C"))
    refused = pytest.raises(dx.MemoryBudgetError, match="to_team")
    with dx.config.set({"memory-limit": "900 KiB"}), counting() as c, refused:
        y.persist()
    assert c.tasks == 0
    assert float(y.sum()) == 512 * 512


def test_a_failure_before_a_move_raises_and_spoils_nothing() -> None:
    x = dx.asarray(HOST, team=T4, sharding=("T", None)) + 0
    with dx.config.set(errors="deferred"):
        y = dx.map_blocks(lambda block: 1 / 0, x, dtype="f8").to_team(T3) + 1
        with pytest.raises(ZeroDivisionError):
            y.compute()
        with pytest.raises(ZeroDivisionError):
            y.compute()
    np.testing.assert_array_equal(np.asarray(x), HOST)


# ------------------------------------------------------------------------------------------------- on a cluster


def halves(client: Any) -> tuple[dx.Team, dx.Team, dx.Team]:
    whole = dx.Team((4,), ("w",), client)
    left, right = (dx.Team((2,), (n,), client, whole.members[i : i + 2]) for n, i in (("a", 0), ("b", 2)))
    return whole, left, right


@pytest.mark.cluster
def test_to_team_sends_no_task_before_it_is_needed(cluster4: Any) -> None:
    whole, left, right = halves(cluster4)
    x = (dx.asarray(HOST, team=left, sharding=("a", None)) + 1).persist()
    np.asarray(x)
    before = cluster4.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks))
    with counting() as c:
        y = x.to_team(right)
        z = (y.sum(axis=0) + 1).to_team(whole)
        assert z.explain().n_operations == 4
    assert (c.tasks, c.evaluations) == (0, 0)
    assert cluster4.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)) == before
    np.testing.assert_allclose(np.asarray(z), (HOST + 1).sum(axis=0) + 1)


@pytest.mark.cluster
def test_nobody_waits_between_what_moves_and_the_move(cluster4: Any) -> None:
    """Tasks of both teams are handed out although none of them has run."""
    from distributed import Event

    _, left, right = halves(cluster4)
    gate = Event("gate-of-moves", client=cluster4)
    x = dx.asarray(HOST, team=left, sharding=("a", None))

    def held(block: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        assert Event("gate-of-moves").wait(30)
        return block + 1

    with dx.config.set(errors="deferred"):
        y = (dx.map_blocks(held, x, dtype=x.dtype).to_team(right) * 2).persist()  # does not wait
    gate.set()
    np.testing.assert_array_equal(np.asarray(y), (HOST + 1) * 2)


@pytest.mark.cluster
def test_workers_count_the_bytes_that_were_predicted(cluster4: Any) -> None:
    whole, left, right = halves(cluster4)
    x = (dx.asarray(np.tile(HOST, (8, 8)), team=left, sharding=("a", None)) + 1).persist()
    for team, cut, moved in (
        (right, None, x.nbytes),
        (right, (None, "b"), x.nbytes),
        (whole, None, x.nbytes * 3 // 4),
        (whole, (None, "w"), x.nbytes * 3 // 4),
        (right, (None, None), x.nbytes),  # one copy of a replicated array is made
    ):
        y = x.to_team(team, cut)
        explained = y.explain(analyze=True)
        assert explained.moved_bytes == moved
        assert explained.lower_bound_bytes == moved
        assert explained.measured is not None
        assert explained.measured.messages == explained.messages
        # The list of the parts that travel together has bytes of its own.
        assert 0 <= explained.measured.moved_bytes - moved <= 200 * explained.messages
        assert explained.stages[-1].operations == ("to_team",)
        assert "exchange" in str(explained)


@pytest.mark.cluster
def test_a_worker_of_both_teams_keeps_what_it_has(cluster4: Any) -> None:
    whole, left, _ = halves(cluster4)
    other = dx.Team((2,), ("c",), cluster4, (whole.members[0], whole.members[3]))
    x = (dx.asarray(HOST, team=left, sharding=("a", None)) + 1).persist()
    y = x.to_team(other)
    with counting() as c:
        y.persist()
    assert (c.tasks, c.bytes_moved) == (1, HOST.nbytes // 2)
    mine, theirs = x._node().memo, y._node().memo
    assert mine is not None
    assert theirs is not None
    assert mine.blocks[0].key == theirs.blocks[0].key
    x += 1
    y[0] = 0
    expected = HOST + 1
    np.testing.assert_array_equal(np.asarray(x), expected + 1)
    expected[0] = 0
    np.testing.assert_array_equal(np.asarray(y), expected)


@pytest.mark.cluster
def test_a_replicated_source_sends_one_copy(cluster4: Any) -> None:
    whole, left, right = halves(cluster4)
    host = np.tile(HOST, (8, 8))
    x = (dx.asarray(host, team=left, sharding=(None, None)) + 1).reshard((None, None)).persist()
    y = x.to_team(right, ("b", None))
    assert y.explain().moved_bytes == host.nbytes
    np.testing.assert_array_equal(np.asarray(y), host + 1)
    back = y.to_team(whole, (None, None)).to_team(left, (None, "a"))
    np.testing.assert_array_equal(np.asarray(back), host + 1)


@pytest.mark.cluster
def test_tiles_of_wave_axes_move_in_waves(cluster4: Any) -> None:
    whole, _, _ = halves(cluster4)
    one, other = (dx.Team((1,), ("c",), cluster4, whole.members[i : i + 1]) for i in (1, 2))
    host = np.arange(5 << 20, dtype="f8").reshape(2560, 2048)

    def waved(team: dx.Team, axis: int) -> Sharding:
        axes: list[tuple[str, ...]] = [(), ()]
        axes[axis] = ("%1", "c")
        return Sharding(team.mesh.with_waves(8), tuple(axes))

    x = (dx.asarray(host, team=one, sharding=waved(one, 0)) + 1).persist()
    y = x.to_team(other, waved(other, 1))
    explained = y.explain(analyze=True)
    assert explained.stages[0].waves > 1
    assert explained.moved_bytes == host.nbytes
    assert explained.measured is not None
    assert explained.measured.peak_bytes <= 1.01 * explained.peak_bytes
    np.testing.assert_array_equal(np.asarray(y), host + 1)
    with dx.config.set({"memory-limit": "60 MiB"}):
        assert x.to_team(other, waved(other, 1)).explain().stages[0].waves > explained.stages[0].waves


@pytest.mark.cluster
def test_what_members_cannot_hold_is_refused_before_anything_runs(cluster4: Any) -> None:
    _, left, right = halves(cluster4)
    host = np.random.default_rng(1).standard_normal((512, 1024))  # 4 MiB
    x = dx.asarray(host, team=left, sharding=("a", None)) + 1
    one = dx.Team((1,), ("c",), cluster4, right.members[:1])
    for y, name in ((x.to_team(one), "to_team"), ((x.to_team(right).T @ x.to_team(right)), "einsum")):
        with (
            dx.config.set({"memory-limit": "6 MiB"}),
            counting() as c,
            pytest.raises(dx.MemoryBudgetError, match=name) as caught,
        ):
            y.compute()
        assert c.tasks == 0
        assert str(6 << 20) in str(caught.value)
        assert x._node().memo is None
    np.testing.assert_array_equal(np.asarray(x.to_team(one)), host + 1)


@pytest.mark.cluster
def test_devices_stay_as_they_are(cluster4: Any) -> None:
    whole, left, right = halves(cluster4)
    host = np.tile(HOST, (8, 8))
    x = dx.asarray(host, team=left, sharding=("a", None)).to_device("strict") + 1
    y = x.to_team(whole) * 2
    assert y.device == "strict"
    z = y.to_team(right, (None, "b")).to_device("cpu")
    np.testing.assert_array_equal(np.asarray(z), (host + 1) * 2)
    memo = y.persist()._node().memo
    assert memo is not None
    devices = cluster4.gather([cluster4.submit(lambda b: str(b.device), block) for block in memo.blocks])
    assert devices == [f"array_api_strict.Device('device{i % 2 + 1}')" for i in range(4)]


@pytest.mark.cluster
def test_a_change_of_device_is_explained_as_it_runs(cluster4: Any) -> None:
    whole, _, _ = halves(cluster4)
    x = (dx.asarray(np.tile(HOST, (8, 8)), team=whole, sharding=("w", None)) + 1).persist()
    with counting() as c:
        y = x.to_device("strict")
        explained = y.explain()
    assert (c.tasks, c.evaluations) == (0, 0)
    with counting() as c:
        y.persist()
    assert (explained.tasks, explained.moved_bytes, explained.messages) == (c.tasks, c.bytes_moved, c.messages)
    assert (c.tasks, c.bytes_moved) == (4, 0)
    np.testing.assert_array_equal(np.asarray(y.to_device("cpu")), np.tile(HOST, (8, 8)) + 1)


@pytest.mark.cluster
def test_between_cluster_and_process_nothing_runs_before_it_is_needed(cluster4: Any) -> None:
    whole, left, _ = halves(cluster4)
    x = dx.asarray(HOST, team=T4, sharding=("T", None)) + 1
    with counting() as c:
        y = x.to_team(left) * 2
        z = y.to_team(T3) + 1
        back = z.to_team(whole)
    assert (c.tasks, c.evaluations, c.fetched_bytes) == (0, 0, 0)
    np.testing.assert_array_equal(np.asarray(back), (HOST + 1) * 2 + 1)
    np.testing.assert_array_equal(np.asarray(y), (HOST + 1) * 2)


@pytest.mark.cluster
def test_what_was_to_leave_a_cluster_that_is_gone_is_made_where_it_was_to_go(eight_workers: Any) -> None:
    from distributed import Client

    with Client(eight_workers) as client:
        members = dx.Team((8,), ("w",), client).members
        named, other = (dx.Team((2,), (n,), client, members[i : i + 2]) for n, i in (("a", 0), ("b", 4)))
        x = dx.asarray(HOST, team=named, sharding=("a", None)) + 1
        here, there = x.to_team(T3) * 2, x.to_team(other) * 2
    np.testing.assert_array_equal(np.asarray(here), (HOST + 1) * 2)
    with pytest.raises(dx.ClusterGoneError, match="to_team"):
        np.asarray(there)
    np.testing.assert_array_equal(np.asarray(there.to_team(T3)), (HOST + 1) * 2)


@pytest.mark.cluster
def test_no_key_is_left_of_what_moved_and_was_dropped(cluster4: Any) -> None:
    whole, left, right = halves(cluster4)
    before = len(cluster4.futures)
    x = dx.asarray(HOST, team=left, sharding=("a", None)) + 1
    y = (x.to_team(right) * 2).to_team(whole) + 1
    np.testing.assert_array_equal(np.asarray(y), (HOST + 1) * 2 + 1)
    del x, y
    deadline = time.monotonic() + 30
    while len(cluster4.futures) > before and time.monotonic() < deadline:  # they are let go in a thread of the client
        cluster4.sync(asyncio.sleep, 0)
    assert len(cluster4.futures) == before


@pytest.mark.cluster
def test_dask_gets_the_graph_of_what_moves(cluster4: Any) -> None:
    import dask

    _, left, right = halves(cluster4)
    y = (dx.asarray(HOST, team=left, sharding=("a", None)) + 1).to_team(right) * 2
    (found,) = dask.compute(y)
    np.testing.assert_array_equal(np.asarray(found), (HOST + 1) * 2)


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.parametrize("victim", range(3))
def test_a_worker_that_is_lost_while_arrays_move_changes_nothing(mortal_cluster: Any, victim: int) -> None:
    members = dx.Team((3,), ("w",), mortal_cluster).members
    left, right = (dx.Team((2,), (n,), mortal_cluster, members[i : i + 2]) for n, i in (("a", 0), ("b", 1)))
    host = np.random.default_rng(victim).standard_normal((600, 512))
    x, expected = dx.asarray(host, team=left, sharding=("a", None)) + 1, host + 1
    home = members[victim]
    for step in range(6):
        x = (x.to_team(right if step % 2 == 0 else left, (None, "b") if step == 2 else None) * 2).persist()
        expected = expected * 2
        if step == 3:
            address = placement_of(mortal_cluster).address(home)
            os.kill(mortal_cluster.run(os.getpid, workers=[address])[address], signal.SIGKILL)
    np.testing.assert_array_equal(np.asarray(x), expected)
