"""Member programs on a cluster: what the scheduler knows of them, how they end, and what happens when one is lost."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import eventually
from on_workers import (
    Untransportable,
    asks_others,
    attempts,
    break_connections,
    connections,
    evaluates_more,
    fails_at,
    keys_of,
    kinds_of_tasks,
    left_at_scheduler,
    left_at_workers,
    sleeps,
    waits_for,
    waits_for_event,
)

import distarray as dx
from distarray.lower import lower
from distarray.lower.bundling import Output
from distarray.lower.credits import Programs
from distarray.lower.parameters import Parameters
from distarray.lower.recipes import Recipe, named
from distarray.lower.template import Lowered, Template
from distarray.runtime import cluster as runtime_cluster
from distarray.runtime import member_runs, member_tasks, planning, timelines
from distarray.runtime.counters import counting
from distarray.runtime.exports import for_each_block
from distarray.runtime.members import executor_for
from distarray.runtime.task_graph import MemberRun
from distarray.runtime.wire import PLUGIN
from distarray.sharding.sharding import Sharding

distributed = pytest.importorskip("distributed")
dumps = distributed.protocol.pickle.dumps

pytestmark = pytest.mark.cluster


def nothing_left(client: Any) -> bool:
    found = client.run(left_at_workers).values()
    return client.run_on_scheduler(left_at_scheduler) == (0, 0, 0) and set(found) == {(0, 0)}


@pytest.fixture(autouse=True, params=["at once", "with credits"])
def come(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Whether messages come as they are made, or when they are granted as where memory matters; of all members, however
    small the arrays are.
    """
    if request.param == "with credits":
        for door in (member_runs, planning):
            monkeypatch.setattr(door, "makes_little", lambda *args: False)
    with dx.config.set(block_bytes=0):
        yield str(request.param)


@pytest.fixture(params=["threads", "processes"])
def cluster(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue("cluster4" if request.param == "threads" else "process_cluster")


def rows(a: Any) -> Any:
    return dx.asarray(a, sharding=((dx.current_team().mesh.names[0],), *[None] * (a.ndim - 1)))


A = np.random.default_rng(0).random((48, 48))

PROGRAMS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "transposed sum": (lambda x: x + x.T, lambda a: a + a.T),
    "sort": (lambda x: dx.sort(x, axis=0), lambda a: np.sort(a, axis=0)),
    "fft2": (dx.fft.fft2, np.fft.fft2),
    "power": (lambda x: x @ (x @ (x @ x.sum(1))), lambda a: a @ (a @ (a @ a.sum(1)))),
    "take": (lambda x: x[np.arange(47, -1, -3)], lambda a: a[np.arange(47, -1, -3)]),
}


def held_up(x: Any, path: str) -> Any:
    """Return an array whose blocks are made when there is a file of this name."""
    with dx.config.set(errors="deferred"):
        return dx.map_blocks(lambda block: waits_for(path, block), x, dtype=x.dtype)


def held_run(x: Any, path: str) -> Any:
    """Return the sum of an array and its transpose, whose run waits for a file of this name by now."""
    y = (held_up(x[:4], path).sum() * 0 + (x + x.T)).persist()
    eventually(lambda: list(Path(path).parent.glob("*.here")))
    return y


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_are_numpys_and_nothing_is_left(cluster: Any, name: str) -> None:
    ours, numpys = PROGRAMS[name]
    x = rows(A).persist()
    y = ours(x)
    np.testing.assert_allclose(np.asarray(y), numpys(A), rtol=1e-12)
    z = ours(x)
    assert np.asarray(z).tobytes() == np.asarray(y).tobytes(), "one plan gives the same bits"
    del y, z
    eventually(lambda: nothing_left(cluster))


def test_the_scheduler_knows_one_task_of_each_member_and_one_of_each_block_that_is_kept(cluster4: Any) -> None:
    x = (rows(A) + 0).persist()
    dx.wait(x)
    before = cluster4.run_on_scheduler(kinds_of_tasks)["all"]
    v = x.sum(1)
    for _ in range(10):
        v = x @ v
        v = v / dx.linalg.vector_norm(v)
    v.persist()
    dx.wait(v)
    found = cluster4.run_on_scheduler(kinds_of_tasks)
    assert found["program"] == 4
    assert found["all"] - before <= 4 * (1 + 1) + 1  # programs, blocks, and what holds the run together


def test_the_dashboard_calls_a_program_by_the_users_operation_and_line(cluster4: Any) -> None:
    x = dx.ones((64, 64), sharding=("x", None)).persist()
    line = sys._getframe().f_lineno + 1
    y = (x.T + x).persist()
    dx.wait(y)
    prefixes = cluster4.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.task_prefixes))
    assert f"dx:add@test_programs_on_cluster.py:{line}" in prefixes


def test_the_task_stream_and_the_metrics_of_dask_show_the_steps_of_programs_by_name(
    cluster4: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timelines, "SMALLEST_PART", 0)  # what is short is shown as well
    monkeypatch.setattr(timelines, "SHORTEST", 0)
    x = dx.ones((64, 64), sharding=("x", None)).persist()
    with distributed.get_task_stream(cluster4) as stream:
        y = dx.sort(dx.fft.fft2(x).real, axis=0) @ x
        dx.wait(y.persist())
        shown = eventually(lambda: [row for row in cluster4.get_task_stream() if row["key"][0] == "dx:matmul"])
    assert shown and stream.data is not None
    rows = [row for row in cluster4.get_task_stream() if row["thread"] < 64]  # a lane, no identity of a thread
    assert {"dx:fft", "dx:sort", "dx:matmul"} <= {row["key"][0] for row in rows}
    assert len({row["worker"] for row in rows}) == 4
    drawn = distributed.diagnostics.task_stream.rectangles(rows)
    assert {"dx:sort", "dx:fft"} <= set(drawn["name"]) and min(drawn["duration"]) >= 0

    def measured() -> set[Any]:
        found = cluster4.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.cumulative_worker_metrics))
        return {label[2] for label in found if label[0] == "execute" and str(label[1]).startswith("dx:")}

    assert eventually(lambda: {"dx:fft", "dx:sort", "dx:matmul", "wait"} <= measured())


def test_a_repeat_sends_what_varies(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most 20 kB and 1 kB for each member, however many steps; nothing is planned or lowered."""
    sent: list[int] = []
    real = runtime_cluster.send

    def spy(client: Any, graph: Any, *rest: Any) -> Any:
        sent.append(len(dumps(graph)))
        return real(client, graph, *rest)

    monkeypatch.setattr(runtime_cluster, "send", spy)
    x = rows(A).persist()
    v = x.sum(1).persist()

    def power(scale: float, steps: int) -> Any:
        w, expected = v, A.sum(1)
        for _ in range(steps):
            w, expected = x @ w * scale, A @ expected * scale
        np.testing.assert_allclose(np.asarray(w), expected, rtol=1e-12)

    for steps in (5, 60):
        for n in range(5):
            sent.clear()
            lowered = lower._TEMPLATES.info().misses
            with counting() as counted:
                power(0.01 * (n + 1), steps)
        assert counted.planner_calls == 0 and lower._TEMPLATES.info().misses == lowered
        assert len(sent) == 1
        assert sent[0] <= 20_000 + 4 * 1_000


def test_programs_are_known_to_workers_for_as_long_as_their_template(cluster4: Any) -> None:
    x = rows(A).persist()

    def known() -> set[Any]:
        return {key for key in cluster4.run_on_scheduler(keys_of) if str(key[0]).startswith("dx-template-")}

    before = known()
    with dx.config.set(plan_cache_size=1, planner="propagation"):  # which never looks for a better plan
        for n in range(3):
            np.testing.assert_array_equal(np.asarray(x + n * x.T), A + n * A.T)
            assert len(known() - before) == (4 if n else 0), "from the second run on"
        np.testing.assert_array_equal(np.asarray(x.T - x), A.T - A)
        eventually(lambda: known() <= before)


def test_a_session_of_many_programs_has_as_many_at_the_scheduler_as_are_remembered(cluster4: Any) -> None:
    def known() -> int:
        return sum(str(key[0]).startswith("dx-template-") for key in cluster4.run_on_scheduler(keys_of))

    before, n_plans = known(), 3
    with dx.config.set(plan_cache_size=n_plans, planner="propagation"):
        for n in range(12, 24):
            x = rows(A[:n, :n]).persist()
            for k in range(2):
                np.testing.assert_array_equal(np.asarray(x + k * x.T), A[:n, :n] + k * A[:n, :n].T)
            del x
            # The last that was lowered is remembered beside them while it is a trial.
            eventually(lambda: known() <= before + 4 * (n_plans + 1))
    assert known() > before


def test_an_error_ends_the_programs_of_its_run_and_no_other(cluster: Any) -> None:
    a = np.arange(48.0 * 48).reshape(48, 48)
    x = rows(a).persist()
    with dx.config.set(errors="deferred"):
        bad = dx.map_blocks(lambda block: fails_at(0, block), x, dtype=x.dtype)
    y = bad + bad.T
    with pytest.raises(ZeroDivisionError, match="on purpose") as raised:
        np.asarray(y)
    assert any("map_blocks" in note and Path(__file__).name in note for note in raised.value.__notes__)
    np.testing.assert_array_equal(np.asarray(x + x.T), a + a.T)
    del y, bad, raised
    eventually(lambda: nothing_left(cluster))


@pytest.mark.timeout(60)
@pytest.mark.parametrize("is_last", [False, True])
def test_a_run_ends_of_which_some_programs_are_given_what_failed(cluster: Any, is_last: bool) -> None:
    """The others wait for messages of those: they are told the error, before they begin or after."""
    a = np.arange(48.0 * 48).reshape(48, 48)
    x = rows(a).persist()
    n = 48 * (48 - x.chunks[0][-1]) if is_last else 0  # the first element of a block
    for is_made_first in (True, False):
        with dx.config.set(errors="deferred"):
            bad = dx.map_blocks(lambda block: fails_at(n, block), x, dtype=x.dtype).persist()
        if is_made_first:
            time.sleep(0.3)
        for target in (bad.rechunk((16, 24)), bad + bad.T):
            with pytest.raises(ZeroDivisionError, match="on purpose"):
                for_each_block(target.__dx_node__(), lambda block, device, member: None, lambda box: ())
        with pytest.raises(ZeroDivisionError, match="on purpose"):
            np.asarray(bad.rechunk((16, 24)))
        del bad, target
    eventually(lambda: nothing_left(cluster))


@pytest.mark.parametrize("is_one_block", [False, True])
def test_what_nobody_wants_any_more_stops(cluster: Any, tmp_path: Path, is_one_block: bool) -> None:
    path = str(tmp_path / "go")
    x = rows(A).persist()
    held = held_up(x[:2], path)
    y = (held.sum() + (x.T @ x).sum() if is_one_block else held.sum() + x.T @ x).persist()
    eventually(lambda: list(tmp_path.glob("*.here")))
    del y, held
    eventually(lambda: cluster.run_on_scheduler(left_at_scheduler) == (0, 0, 0))
    Path(path).touch()
    eventually(lambda: nothing_left(cluster))
    np.testing.assert_array_equal(np.asarray(x + x.T), A + A.T)


def test_programs_take_no_slot_of_others_and_wait_for_no_slot_for_ever(cluster4: Any) -> None:
    """Workers of one thread, the long tasks of a user on some, runs of two clients in both orders."""
    x = rows(A).persist()
    addresses = list(cluster4.scheduler_info()["workers"])
    long = [cluster4.submit(sleeps, 0.3 + 0.1 * n, workers=[w], pure=False) for n, w in enumerate(addresses[:2])]
    errors: list[BaseException] = []

    def beside() -> None:
        try:
            with distributed.Client(cluster4.scheduler.address, set_as_default=False) as other:
                team = dx.Team((4,), ("r",), client=other)
                z = dx.asarray(A, team=team, sharding=("r", None))
                for _ in range(5):
                    np.testing.assert_array_equal(np.asarray(z.T + z), A.T + A)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=beside)
    thread.start()
    for _ in range(5):
        np.testing.assert_array_equal(np.asarray(x + x.T), A + A.T)
    thread.join(60)
    assert not thread.is_alive() and not errors
    assert cluster4.gather(long) == [0.3, 0.4]


def test_runs_with_credits_come_one_after_the_other(
    cluster: Any, tmp_path: Path, come: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a program of the one holds need not fit beside that of the other."""
    monkeypatch.setattr(member_tasks, "calls_back", lambda lates: False)  # the function that holds the first one up
    path = str(tmp_path / "go")
    x = rows(A).persist()
    y = held_run(x, path)
    z = (x - x.T).persist()
    if come == "with credits":
        time.sleep(0.3)
        n_programs = sum(n for _, n in cluster.run(left_at_workers).values())
        assert n_programs <= 4, "those of the second have not begun"
    Path(path).touch()
    np.testing.assert_array_equal(np.asarray(z), A - A.T)
    np.testing.assert_array_equal(np.asarray(y), A + A.T)
    del y, z
    eventually(lambda: nothing_left(cluster))


def test_a_run_waits_for_none_that_waits_for_its_blocks_or_for_a_function(process_cluster: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "go")
    x = rows(A).persist()
    held = held_up(x[:4], path).persist()  # tasks of their own
    y = (held.sum() * 0 + (x + x.T)).persist()
    np.testing.assert_array_equal(np.asarray((x - x.T)[-2:]), (A - A.T)[-2:])
    Path(path).touch()
    np.testing.assert_array_equal(np.asarray(y), A + A.T)
    with dx.config.set(errors="deferred"):
        z = dx.map_blocks(waits_for_event, x + x.T, dtype=x.dtype)
    z = (z + x.T).persist()
    np.testing.assert_array_equal(np.asarray(x - x.T), A - A.T)
    with process_cluster.as_current():
        distributed.Event("go on").set()
    np.testing.assert_array_equal(np.asarray(z), A + A.T + A.T)


def test_a_run_that_waits_for_another_may_be_dropped(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member_tasks, "calls_back", lambda lates: False)
    path = str(tmp_path / "go")
    x = rows(A).persist()
    y = held_run(x, path)
    z = (x - x.T).persist()
    time.sleep(0.1)
    del z
    Path(path).touch()
    np.testing.assert_array_equal(np.asarray(y), A + A.T)
    del y
    eventually(lambda: nothing_left(cluster))


def test_a_function_in_a_program_may_wait_for_another_run(cluster4: Any) -> None:
    """That run does not wait for the one that it is a part of."""
    x = rows(A).persist()
    with dx.config.set(errors="deferred"):
        y = dx.map_blocks(evaluates_more, x, dtype=x.dtype)
    assert (y + y.T).explain().programs == 4
    np.testing.assert_allclose(np.asarray(y + y.T), A + A.T + 2, rtol=1e-12)


def workers_of(client: Any) -> dict[str, int]:
    found: dict[str, int] = client.run(os.getpid)
    return found


@pytest.mark.parametrize("is_first", [True, False])
def test_a_run_of_which_a_worker_is_lost_begins_anew(mortal_cluster: Any, tmp_path: Path, is_first: bool) -> None:
    """The lost one holds up the others, or is done and waits for nobody."""
    path = str(tmp_path / "go")
    x = rows(A).persist()
    dx.wait(x)
    pids = list(workers_of(mortal_cluster).values())
    part = x[:4] if is_first else x[-4:]
    held = held_up(part, path)
    y = (held.sum() * 0 + (x + x.T)).persist()
    z = dx.sort(y, axis=0).persist()  # a later run, in flight
    eventually(lambda: list(tmp_path.glob("*.here")))
    here = int(next(tmp_path.glob("*.here")).name.split(".")[-2])
    for pid in pids:
        if (pid == here) == is_first:
            os.kill(pid, signal.SIGKILL)
            break
    time.sleep(0.2)
    Path(path).touch()
    np.testing.assert_array_equal(np.asarray(y), A + A.T)
    np.testing.assert_array_equal(np.asarray(z), np.sort(A + A.T, axis=0))
    del y, z, held, part
    eventually(lambda: nothing_left(mortal_cluster))


def test_a_worker_that_comes_back_to_its_address_is_told_which_attempt_it_is_in(tmp_path: Path) -> None:
    """While it was away nobody served its home: the run begins anew at an address where nobody hears of it."""
    path = str(tmp_path / "go")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    options = {"host": "127.0.0.1", "dashboard_address": None, "silence_logs": "CRITICAL"}
    with (
        distributed.LocalCluster(n_workers=1, threads_per_worker=2, worker_port=port, **options) as cluster,
        distributed.Client(cluster) as client,
    ):
        ((address, pid),) = client.run(os.getpid).items()
        assert address.endswith(port)
        x = dx.asarray(A).rechunk((2, A.shape[1])).persist()
        held = held_up(x, path)
        y = (held + held.T).persist()
        eventually(lambda: list(tmp_path.glob("*.here")))
        os.kill(pid, signal.SIGKILL)
        Path(path).touch()
        np.testing.assert_array_equal(np.asarray(y), A + A.T)
        del x, held, y


def test_a_run_ends_of_which_given_data_are_lost(mortal_cluster: Any, tmp_path: Path) -> None:
    """Both workers that had a block of host data are killed: the other programs would wait for those that read it."""
    path, a = str(tmp_path / "go"), np.arange(90_000.0).reshape(300, 300)
    team, pids = dx.Team((3,), ("x",)), mortal_cluster.run(os.getpid)
    held = held_up(dx.asarray(a, team=team, sharding=("x", None)), path)
    y = (held + held.T).persist()
    eventually(lambda: list(tmp_path.glob("*.here")))
    for member in (1, 2):
        os.kill(pids[team.members[member]], signal.SIGKILL)
    Path(path).touch()
    with pytest.raises(dx.BlocksLostError, match="workers were lost"):
        np.asarray(y)
    del y, held
    eventually(lambda: nothing_left(mortal_cluster))


def test_results_that_are_lost_when_their_run_is_over_are_made_again_by_the_whole_run(mortal_cluster: Any) -> None:
    x = rows(A).persist()
    y = (x + x.T).persist()
    z = (y @ y.sum(1)).persist()
    dx.wait(z)
    pid = next(iter(workers_of(mortal_cluster).values()))
    os.kill(pid, signal.SIGKILL)
    np.testing.assert_array_equal(np.asarray(y), A + A.T)
    np.testing.assert_allclose(np.asarray(z), (A + A.T) @ (A + A.T).sum(1), rtol=1e-12)


def test_a_chain_of_runs_begins_anew_once_each(mortal_cluster: Any) -> None:
    """What one is given has to be made by all of the ones before: they begin at once, not one after the other."""
    x, a = rows(A).persist(), A.copy()
    with dx.config.set(window=4):
        for _ in range(12):
            x = x + x.T
            a = a + a.T
            x, a = x / 2.0, a / 2.0
        x.persist()
    dx.wait(x)
    pid = next(iter(workers_of(mortal_cluster).values()))
    os.kill(pid, signal.SIGKILL)
    np.testing.assert_array_equal(np.asarray(x), a)
    found = mortal_cluster.run_on_scheduler(attempts)
    # The worker that comes back may take a part over while they run.
    assert len(found) > 2 and max(found) <= 3


def test_a_cluster_is_restarted_while_a_run_is_under_way(mortal_cluster: Any, tmp_path: Path) -> None:
    """The scheduler insists that no task is left then, also none that is kept in case that its run begins anew."""
    before = mortal_cluster.run(os.getpid).values()
    y = held_run(rows(A).persist(), str(tmp_path / "go"))
    mortal_cluster.restart()
    assert not {*before} & {*mortal_cluster.run(os.getpid).values()}
    with pytest.raises(dx.BlocksLostError):
        np.asarray(y)
    x = rows(A).persist()
    np.testing.assert_array_equal(np.asarray(x + x.T), A + A.T)
    del x, y
    eventually(lambda: nothing_left(mortal_cluster))


def test_nothing_is_held_for_clients_that_have_gone(cluster4: Any) -> None:
    """A chain of runs, each of which is needed by the next, is let go of with the last client, which breaks off."""
    before = cluster4.run_on_scheduler(keys_of)
    with distributed.Client(cluster4.scheduler.address, set_as_default=False) as other:
        x = dx.asarray(A, team=dx.Team((4,), ("r",), client=other), sharding=("r", None))
        for _ in range(4):
            x = (x + x.T).persist()
        dx.wait(x)
        name = other.id
        cluster4.run_on_scheduler(lambda dask_scheduler: dask_scheduler.remove_client(name, stimulus_id="broken"))
        eventually(lambda: cluster4.run_on_scheduler(keys_of) <= before, 10)


def test_messages_that_are_lost_with_a_connection_are_sent_again(process_cluster: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "go")
    x = rows(A).persist()
    y = held_run(x, path)
    eventually(lambda: sum(process_cluster.run(break_connections).values()))
    eventually(lambda: 1 in process_cluster.run_on_scheduler(attempts))
    Path(path).touch()
    np.testing.assert_array_equal(np.asarray(y), A + A.T)
    del y
    eventually(lambda: nothing_left(process_cluster))


def test_what_is_pushed_to_a_worker_that_is_not_set_up_yet_waits_there(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker serves a home as soon as the scheduler knows of it: others push to it before it has the plugin."""
    is_set_up, add = threading.Event(), distributed.Worker.plugin_add
    joining: list[Any] = []

    async def late(worker: Any, plugin: Any, name: str | None = None, **options: Any) -> Any:
        if name == PLUGIN:
            joining.append(worker)
            await asyncio.get_running_loop().run_in_executor(None, is_set_up.wait, 10)
        return await add(worker, plugin, name=name, **options)

    options = {"processes": False, "protocol": "tcp", "dashboard_address": None, "threads_per_worker": 1}
    with distributed.LocalCluster(n_workers=2, **options) as cluster, distributed.Client(cluster) as client:
        x = rows(A).persist()
        np.testing.assert_array_equal(np.asarray((x + x.T).persist()), A + A.T)
        monkeypatch.setattr(distributed.Worker, "plugin_add", late)
        with caplog.at_level("WARNING", logger="distributed"):
            cluster.sync(cluster.workers.pop(1).close)
            cluster.scale(2)
            client.wait_for_workers(2)
            y = (x * 2 + x.T).persist()
            eventually(lambda: connections(cluster.workers[0]), 5)
            time.sleep(0.2)
            assert PLUGIN not in joining[0].plugins
            is_set_up.set()
            np.testing.assert_array_equal(np.asarray(y), A * 2 + A.T)
        assert "No handler" not in caplog.text
        del x, y


def test_what_cannot_travel_ends_the_run_with_its_error(process_cluster: Any) -> None:
    x = rows(A).persist()
    env = (x + 0).__dx_node__().env
    executor = executor_for(env)
    one, two = ("dx-one", 0, 0), ("dx-two", 1, 0)
    recipes = {one: Recipe("tile", Untransportable, ()), two: Recipe("tile", repr, (one,))}
    lowered = Lowered(members={one: 0, two: 1}, outputs={0: Output(Sharding.whole(env.mesh, 0), [two], [0])})
    template = Template(recipes=recipes, lowered=lowered)
    run = MemberRun(
        "stays",
        template,
        Programs(template.programs, None, {}),
        (Parameters((), (), {}, {}), None),
        {0: (), 1: ()},
        {},
        {},
    )
    found = executor.run_programs(run, [named(two, "stays")], (), {})
    with pytest.raises(TypeError, match=r"stays here|serialize"):
        executor.fetch(list(found.values()))
    del found, x
    eventually(lambda: nothing_left(process_cluster))


def test_explain_says_which_evaluations_run_as_programs(cluster4: Any) -> None:
    x = (rows(A) + 0).persist()
    told = (x + x.T).explain()
    assert told.programs == 4
    assert "runs as 4 member programs" in str(told)
    assert (x + 1).explain().programs == 0  # no messages
    with dx.config.set(memory_limit=x.nbytes):
        assert (x + x.T).explain().programs == 4  # with credits: not all that it makes fits at once
    bounded = x.reshard((None, dx.current_team().mesh.names[0]), memory=x.nbytes)
    assert bounded.explain().programs == 4


def test_a_function_in_a_program_may_wait_for_other_tasks(cluster4: Any) -> None:
    """As in any task of Dask: it gives its thread back meanwhile, and has one again when it goes on."""
    x = rows(A).persist()
    with dx.config.set(errors="deferred"):
        y = dx.map_blocks(asks_others, x, dtype=x.dtype)
    z = y + y.T
    assert z.explain().programs == 4
    np.testing.assert_allclose(np.asarray(z), A + A.T + 0.12, rtol=1e-12)
    np.testing.assert_array_equal(np.asarray(x + x.T), A + A.T)  # all threads are there again
    del y, z
    eventually(lambda: nothing_left(cluster4))


def test_small_loops_run_at_one_member(cluster: Any) -> None:
    """As one program there; those that have parts of what it reads send them."""

    def mixture(xp: Any, points: Any) -> Any:
        means = points[:4]
        for _ in range(5):
            weights = xp.exp(-((points[:, None, :] - means[None]) ** 2).sum(-1))
            weights = weights / weights.sum(1)[:, None]
            means = (weights.T @ points) / weights.sum(0)[:, None]
        return means

    a = np.random.default_rng(0).random((200, 3))
    with dx.config.set(block_bytes="1 MiB"):
        x = rows(a).persist()
        dx.wait(x)
        before = cluster.run_on_scheduler(keys_of)
        for _ in range(3):
            y = mixture(dx, x).persist()
            dx.wait(y)
            (block,) = y.__dx_node__().memo.blocks
            assert block.key in cluster.run_on_scheduler(keys_of)
            np.testing.assert_allclose(np.asarray(y), mixture(np, a), rtol=1e-12)
        assert "planner: one member" in str(mixture(dx, x).explain())
        assert {len(key) for key in cluster.run_on_scheduler(keys_of) - before if key[0] == block.key[0]} == {3}
        del y, block
        eventually(lambda: nothing_left(cluster))


def test_results_of_small_loops_that_are_kept_fill_all_members(cluster4: Any) -> None:
    """When the first has its part others have the work: nothing is refused that all of them can hold."""
    a = np.random.default_rng(0).random((8_000, 8))
    with dx.config.set(block_bytes="1 MiB", memory_limit="24 MiB"):
        x = rows(a).persist()
        kept = []
        for n in range(60):
            y = x * n
            for _ in range(3):
                y = y - y.mean(0)
                y = y / (1 + dx.abs(y).max())
            kept.append(y.persist())
        members = {m for y in kept for m in (y.__dx_node__().memo.sharding.parts[0],)}
        assert members == {1, 4}
        expected = a * 59.0
        for _ in range(3):
            expected = expected - expected.mean(0)
            expected = expected / (1 + np.abs(expected).max())
        np.testing.assert_allclose(np.asarray(kept[-1]), expected, rtol=1e-9, atol=1e-12)


def test_a_run_of_one_block_is_known_for_as_long_as_what_is_made_of_it(mortal_cluster: Any) -> None:
    """The scheduler lets go of it when nothing is left to make again."""
    x = rows(A).persist()
    total = (x @ x).sum().persist()
    product = (x * total + x.T).persist()
    dx.wait(product)
    expected = float((A @ A).sum())
    del total
    pid = next(iter(workers_of(mortal_cluster).values()))
    os.kill(pid, signal.SIGKILL)
    np.testing.assert_allclose(np.asarray(product), A * expected + A.T, rtol=1e-12)
    del product
    eventually(lambda: nothing_left(mortal_cluster))


def test_a_run_of_one_block_that_fails_leaves_nothing(cluster4: Any) -> None:
    x = rows(A).persist()
    with dx.config.set(errors="deferred"):
        y = dx.map_blocks(lambda block: fails_at(A[0, 0], block), x, dtype=x.dtype)
        with pytest.raises(ZeroDivisionError, match="on purpose"):
            float((y + y.T).sum())
    del y
    eventually(lambda: nothing_left(cluster4))
