"""Teams that follow the cluster: workers join, retire, pause and come back; clients and schedulers end."""

from __future__ import annotations

import pickle
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import dask
import numpy as np
import pytest
from helpers import collected, eventually
from on_workers import keys_but_templates

import distarray as dx
from distarray.errors import BlocksLostError, ClusterGoneError, EnvironmentMismatchError, WorkerPausedError
from distarray.runtime import placement
from distarray.runtime.clients import placement_of
from distarray.runtime.members import executor_for

distributed = pytest.importorskip("distributed")
Status = pytest.importorskip("distributed.core").Status

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

N = 1 << 15
A = np.arange(float(N))


@contextmanager
def cluster_of(n: int, *, processes: bool = False) -> Iterator[Any]:
    with distributed.LocalCluster(
        n_workers=n,
        threads_per_worker=1,
        processes=processes,
        host="127.0.0.1" if processes else None,
        dashboard_address=None,
        memory_limit="512MiB" if processes else 0,
        silence_logs="CRITICAL",
    ) as cluster:
        yield cluster


@pytest.fixture
def growing() -> Iterator[Any]:
    """Client of a cluster of the test's own, of two workers in this process."""
    with cluster_of(2) as cluster, distributed.Client(cluster) as client:
        yield client


def rows(values: np.ndarray) -> dx.DistArray:
    """Cut over the rows on all workers there are."""
    return dx.asarray(values, sharding=(dx.current_team().axes,) + (None,) * (values.ndim - 1))  # type: ignore[union-attr]


def join(client: Any, n: int) -> None:
    client.cluster.scale(n)
    client.wait_for_workers(n)


def set_status(client: Any, status: Any, workers: Any) -> None:
    def change(dask_worker: Any) -> None:
        dask_worker.status = status

    client.run(change, workers=list(workers))


# -- workers that join and leave -----------------------------------------------------------------------------------


def test_new_arrays_use_the_workers_there_are_and_old_ones_stay(growing: Any) -> None:
    x = rows(A).persist()
    old = x.team
    assert float(x[5]) == 5
    assert dx.current_team() is old
    join(growing, 3)
    assert dx.current_team().size == 3
    assert dx.current_team() is dx.current_team()
    assert dx.zeros(N).team.size == rows(A).team.size == 3
    assert dx.Team((3,), ("x",)) == dx.current_team()
    assert x.team is old
    np.testing.assert_array_equal(np.asarray(x * 2), A * 2)
    assert (x * 2).team is old


def test_arrays_made_before_and_after_a_join_combine(growing: Any) -> None:
    x, y, z = rows(A).persist(), rows(A) * 3, dx.random.default_rng(3).random(N)
    host = np.asarray(z)
    join(growing, 3)
    new = rows(A + 1)
    team = new.team
    assert team.size == 3
    total = y + new
    np.testing.assert_array_equal(np.asarray(total), 4 * A + 1)
    assert total.team is y.team is team, "the older array moved, once"
    view = x[1::2]
    view -= new[::2]  # through a view of an older array
    a = A.copy()
    a[1::2] -= (A + 1)[::2]
    np.testing.assert_array_equal(np.asarray(x), a)
    np.testing.assert_array_equal(np.asarray(new * z), (A + 1) * host)
    np.testing.assert_array_equal(np.asarray(dx.where(z > 0.5, new, 0)), np.where(host > 0.5, A + 1, 0))


def test_what_arrives_in_a_pickle_follows_as_what_was_pickled_does(growing: Any) -> None:
    x, named = rows(A).persist(), dx.ones(N, team=dx.Team((2,), ("x",)))
    data = pickle.dumps((x, rows(A) * 2))
    arrived, pending = pickle.loads(data)
    assert arrived.team is x.team, "the team there is"
    join(growing, 3)
    late = pickle.loads(data)[0]  # of a team that is the current one no more
    np.testing.assert_array_equal(np.asarray(dx.ones(N) + arrived), A + 1)
    np.testing.assert_array_equal(np.asarray(pending + rows(A)), A * 3)
    np.testing.assert_array_equal(np.asarray(late + arrived), A * 2)
    assert late.team == arrived.team == pending.team == dx.current_team()
    with pytest.raises(EnvironmentMismatchError):
        pickle.loads(pickle.dumps(named)) + rows(A)


@pytest.mark.parametrize("old_first", [True, False])
def test_every_way_to_combine_takes_arrays_of_both_teams(growing: Any, old_first: bool) -> None:
    def made(values: np.ndarray) -> dx.DistArray:
        found = rows(values)
        return found.persist()

    m = A[: 64 * 64].reshape(64, 64) % 7
    before = [made(m) for _ in range(6)]
    join(growing, 3)
    after = [made(m + 1) for _ in range(6)]
    (p, q), (f, g) = ((before, after), (m, m + 1)) if old_first else ((after, before), (m + 1, m))
    np.testing.assert_array_equal(np.asarray(p[0] @ q[0]), f @ g)
    np.testing.assert_array_equal(np.asarray(dx.concatenate([p[1], q[1]])), np.concatenate([f, g]))
    p[2][3:9] = q[2][1:7]
    h = f.copy()
    h[3:9] = g[1:7]
    np.testing.assert_array_equal(np.asarray(p[2]), h)
    p[3][q[3] > 3] = -1.0
    h = f.copy()
    h[g > 3] = -1
    np.testing.assert_array_equal(np.asarray(p[3]), h)
    index = q[4][:, 0].astype(int)
    np.testing.assert_array_equal(np.asarray(p[4][index]), f[g[:, 0].astype(int)])
    p[5] += q[5]
    p[5] *= 2
    np.testing.assert_array_equal(np.asarray(p[5]), (f + g) * 2)


def test_a_team_that_somebody_named_follows_nothing(growing: Any) -> None:
    named = dx.Team((2,), ("q",))
    x = dx.asarray(A, team=named, sharding=("q",))
    join(growing, 3)
    with pytest.raises(EnvironmentMismatchError, match="to_team"):
        x + rows(A)
    fresh = named.refresh()
    assert (fresh.size, fresh.axes, named.size) == (3, ("q",), 2)
    y = x.to_team(fresh)
    assert y.team is fresh
    np.testing.assert_array_equal(np.asarray(y + 1), A + 1)
    assert fresh.refresh() is fresh
    assert named.refresh(2) is named


def test_a_refreshed_mesh_keeps_the_members_that_are_there(growing: Any) -> None:
    join(growing, 4)
    named = dx.Team((2, 2), ("r", "c"))
    gone = str(named.members[1])
    join(growing, 5)
    growing.retire_workers([gone])
    eventually(lambda: gone not in growing.scheduler_info(n_workers=-1)["workers"])
    fresh = eventually(lambda: (found := named.refresh()) is not named and found)
    assert [a == b for a, b in zip(fresh.members, named.members, strict=True)] == [True, False, True, True]
    m = A.reshape(-1, 8)
    x = dx.asarray(m, team=named, sharding=("r", "c"))
    np.testing.assert_array_equal(np.asarray(x.to_team(fresh) * 2), m * 2)


def test_data_on_retired_workers_is_kept_and_new_arrays_leave_them_out(growing: Any) -> None:
    join(growing, 3)
    x, z = rows(A).persist(), (rows(A) * 2).persist()
    leaving = [str(m) for m in x.team.members[:2]]
    for address in leaving:
        growing.retire_workers([address])
        eventually(lambda address=address: address not in growing.scheduler_info(n_workers=-1)["workers"])
    assert dx.current_team().size == 1
    np.testing.assert_array_equal(np.asarray(x), A)
    np.testing.assert_array_equal(np.asarray(z[::2] + 1), 2 * A[::2] + 1)
    np.testing.assert_array_equal(np.asarray(z - dx.asarray(A)), A)


def test_a_closed_client_is_collected() -> None:
    with collected() as collect, cluster_of(2) as cluster:
        client = distributed.Client(cluster)
        x = rows(A)
        y = (x @ x + (x * 2).persist()).persist()
        assert float(y[0]) == A @ A
        dead = weakref.ref(client)
        client.close()
        del x, y, client
        eventually(lambda: collect() or dead() is None)


def test_the_homes_of_every_team_that_lives_are_held_and_no_others(growing: Any) -> None:
    def needed(home: str) -> int:
        return int(placement._held[home])

    placement = placement_of(growing)
    second = placement.workers[1]
    before = needed(second)
    teams = [dx.Team((1,), (f"axis{n}",), growing, [second]) for n in range(100)]
    arrays = [dx.ones(10, team=team) for team in teams]
    executors = [executor_for(x.__dx_node__().env) for x in arrays]
    eventually(lambda: needed(second) == before + 100)
    # None was forgotten for the others' sake.
    assert [executor_for(x.__dx_node__().env) for x in arrays] == executors
    del executors
    gone = weakref.ref(teams[1])
    del arrays[1:], teams[1:]
    eventually(lambda: needed(second) == before + 1)
    assert gone() is None
    assert len(placement.executors) <= 2
    del arrays, teams
    eventually(lambda: needed(second) == before)


# -- adaptive clusters ---------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_adaptive_clusters_work_from_nothing_to_n_and_back_with_data_held() -> None:
    with cluster_of(0, processes=True) as cluster:
        cluster.adapt(minimum=0, maximum=3, interval="100ms", wait_count=2)
        with distributed.Client(cluster) as client:
            x = dx.asarray(A) + 1
            np.testing.assert_array_equal(np.asarray(x), A + 1)
            team = dx.Team((3,), ("x",))
            assert team.size == 3
            del x
            # Its members are lost before they have anything: whoever comes then serves them.
            eventually(lambda: not client.scheduler_info(n_workers=-1)["workers"])
            y = (dx.asarray(A, team=team, sharding=("x",)) * 2).persist()
            np.testing.assert_array_equal(np.asarray(y + 1), A * 2 + 1)
            eventually(lambda: len(client.scheduler_info(n_workers=-1)["workers"]) == 1)
            np.testing.assert_array_equal(np.asarray(y), A * 2)
            np.testing.assert_array_equal(np.asarray(y * 2), A * 4)
            del y
            eventually(lambda: not client.scheduler_info(n_workers=-1)["workers"])
            eventually(lambda: not client.run_on_scheduler(keys_but_templates))
            np.testing.assert_array_equal(np.asarray(dx.asarray(A) * 5), A * 5)


def test_a_fixed_cluster_is_not_waited_for_to_grow(growing: Any) -> None:
    start = time.monotonic()
    with pytest.raises(ValueError, match=r"3 members .* has 2 workers; .*wait_for_workers\(3\)"):
        dx.Team((3,), ("x",))
    assert time.monotonic() - start < 20


# -- workers that are paused ---------------------------------------------------------------------------------------


def test_the_part_of_a_paused_worker_goes_to_others_and_comes_back(growing: Any) -> None:
    x = rows(A).persist()
    y = (x + 1).persist()
    np.testing.assert_array_equal(np.asarray(y), A + 1)
    paused = str(x.team.members[1])
    with dx.config.set(worker_timeout=0.5):
        set_status(growing, Status.paused, [paused])
        np.testing.assert_array_equal(np.asarray(y[::-1] * 2), (A + 1)[::-1] * 2)
        assert dx.current_team().size == 1
        np.testing.assert_array_equal(np.asarray(dx.zeros(N) + x), A)
        set_status(growing, Status.running, [paused])
        eventually(lambda: dx.current_team().size == 2)
        z = (rows(A) * 3).persist()
        np.testing.assert_array_equal(np.asarray(z), A * 3)
        assert paused in {w for where in growing.who_has(list(z._node().memo.blocks)).values() for w in where}


def test_paused_workers_that_nobody_can_replace_are_an_error_that_names_them(growing: Any) -> None:
    x = rows(A).persist()
    np.testing.assert_array_equal(np.asarray(x), A)
    workers = [str(m) for m in x.team.members]
    set_status(growing, Status.paused, workers)
    y = x * 2
    with dx.config.set(worker_timeout=0.5), pytest.raises(WorkerPausedError, match=r"paused.*worker-timeout") as caught:
        np.asarray(y)
    assert isinstance(caught.value, MemoryError)
    assert any(address in str(caught.value) for address in workers)
    set_status(growing, Status.running, workers)
    np.testing.assert_array_equal(np.asarray(y), A * 2)


# -- clients and schedulers that end -------------------------------------------------------------------------------


class _Arrays:
    """Arrays of all that can be kept, and one that cannot."""

    def __init__(self) -> None:
        self.host = rows(A)
        self.random = dx.random.default_rng(1).random(N)
        self.written = dx.ones(N, sharding=(dx.current_team().axes,)).persist()  # type: ignore[union-attr]
        self.pending = rows(A * 2) + 1
        self.computed = (self.host * 3).persist()
        np.testing.assert_array_equal(np.asarray(self.host[::2]), A[::2])
        self.numbers = np.asarray(self.random)
        np.testing.assert_array_equal(np.asarray(self.computed), A * 3)

    def check(self) -> None:
        np.testing.assert_array_equal(np.asarray(self.host), A)
        np.testing.assert_array_equal(np.asarray(self.host * 2), A * 2)
        np.testing.assert_array_equal(np.asarray(self.random), self.numbers)
        np.testing.assert_array_equal(np.asarray(self.written), np.ones(N))
        np.testing.assert_array_equal(np.asarray(self.pending), A * 2 + 1)
        np.testing.assert_array_equal(np.asarray(self.pending + rows(A)), A * 3 + 1)


def test_after_a_restart_what_can_be_made_again_works_and_the_rest_says_why(growing: Any) -> None:
    with cluster_of(2, processes=True) as cluster, distributed.Client(cluster) as client:
        arrays = _Arrays()
        team = dx.current_team()
        client.restart()
        with pytest.raises(BlocksLostError, match="restart"):
            np.asarray(arrays.computed)
        with pytest.raises(BlocksLostError, match="restart"):
            np.asarray(arrays.computed + arrays.host)
        assert dx.current_team() == team
        arrays.check()


def test_after_the_client_is_closed_arrays_work_on_a_new_one(growing: Any) -> None:
    with distributed.Client(growing.cluster):
        arrays = _Arrays()
        named = dx.asarray(A, team=dx.Team((2,), ("q",)), sharding=("q",)) + 1
    with distributed.Client(growing.cluster) as new:
        for lost in (lambda: np.asarray(arrays.computed), lambda: np.asarray(arrays.computed + 1)):
            with pytest.raises(ClusterGoneError, match="closed"):
                lost()
        arrays.check()
        assert arrays.pending.team.client is new
        with pytest.raises(ClusterGoneError, match="to_team"):
            np.asarray(named)
        np.testing.assert_array_equal(np.asarray(named.to_team(dx.Team((2,), ("q",)))), A + 1)


def _scheduler() -> tuple[Any, str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "distributed.cli.dask_scheduler", "--port", "0", "--no-dashboard"]
        + ["--host", "127.0.0.1"],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    address = next(line.split("Scheduler at:")[1].strip() for line in process.stderr if "Scheduler at:" in line)
    threading.Thread(target=process.stderr.read, daemon=True).start()
    return process, address


def _worker(address: str) -> Any:
    return subprocess.Popen(
        [sys.executable, "-m", "distributed.cli.dask_worker", address, "--nthreads", "1", "--no-nanny"]
        + ["--no-dashboard"],
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )


@pytest.mark.slow
def test_the_death_of_the_scheduler_ends_every_wait_and_arrays_work_on_a_new_one(growing: Any) -> None:
    scheduler, address = _scheduler()
    workers = [_worker(address) for _ in range(2)]
    try:
        with distributed.Client(address, timeout=5) as client:
            client.wait_for_workers(2)
            arrays = _Arrays()
            with dx.config.set(errors="deferred"):
                slow = dx.map_blocks(sleeper(), rows(A), dtype="f8")
                slow.persist()
                timer = threading.Timer(0.5, scheduler.send_signal, (signal.SIGKILL,))
                timer.start()
                start = time.monotonic()
                with pytest.raises(ClusterGoneError, match="scheduler"):
                    np.asarray(slow)
                assert time.monotonic() - start < 20
            for use in (lambda: np.asarray(arrays.computed), lambda: np.asarray(arrays.pending), lambda: dx.ones(N)):
                with pytest.raises(ClusterGoneError):
                    use()
            with distributed.Client(growing.cluster):
                arrays.check()
    finally:
        for process in (scheduler, *workers):
            process.kill()
            process.wait()


def sleeper() -> Callable[[Any], Any]:
    """Workers that are processes cannot import this file."""

    def sleeping(block: Any) -> Any:
        import time

        time.sleep(60)
        return block

    return sleeping


_gate = threading.Event()


def _through_gate(block: Any) -> Any:
    assert _gate.wait(60)  # workers of this process share it
    return block


def test_a_scheduler_that_says_goodbye_ends_every_wait() -> None:
    # Workers that close try for as long as this to tell a scheduler that is gone.
    quick = dask.config.set({"distributed.comm.timeouts.connect": "2s"})
    with quick, cluster_of(2) as cluster, distributed.Client(cluster) as client:
        _gate.clear()
        with dx.config.set(errors="deferred"):
            x = dx.map_blocks(_through_gate, rows(A).persist(), dtype="f8").persist()
            threading.Timer(0.3, client.loop.add_callback, (cluster.scheduler.close,)).start()
            with pytest.raises(ClusterGoneError):
                np.asarray(x)
        _gate.set()


def test_what_lost_its_client_goes_where_the_arrays_live_that_it_meets() -> None:
    host = np.arange(2000.0).reshape(500, 4)
    with cluster_of(2) as cluster:
        client = distributed.Client(cluster)
        x, lazy, row, named = dx.asarray(host), dx.ones((500, 4)), dx.ones(4), dx.ones(4, team=dx.Team((2,), ("q",)))
        float((x + lazy).sum())
        client.close()
        np.testing.assert_array_equal(np.asarray(x + dx.asarray(host)), host * 2)
        np.testing.assert_array_equal(np.asarray(dx.ones(4) + row), np.full(4, 2.0))
        np.testing.assert_array_equal(np.asarray(dx.concat([lazy, dx.asarray(host)])), np.concat([host * 0 + 1, host]))
        assert x.team == dx.current_team()
        with pytest.raises(EnvironmentMismatchError):
            named + dx.ones(4)


def test_arrays_of_two_clients_of_a_cluster_meet_only_where_they_are_moved(growing: Any) -> None:
    """What one client lets go of may be gone before the scheduler hears what another one makes of it."""
    host = np.arange(200_000.0).reshape(2000, 100)
    x = dx.asarray(host, sharding=("x", None)) * 1
    with distributed.Client(growing.scheduler.address) as other:
        y = dx.asarray(host, sharding=("x", None)) * 2
        assert y.team.client is other
        with pytest.raises(EnvironmentMismatchError, match=other.id):
            x + y
        with pytest.raises(EnvironmentMismatchError, match=other.id):
            x[[0, 1]] = y[:2]
        moved = y.to_team(x.team)
        assert moved.team.client is growing
        moved.persist()
        assert x.to_team(x.team) is x
    np.testing.assert_array_equal(np.asarray(moved + x), host * 3)


def test_who_waits_for_a_worker_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(placement.logger, "warning", lambda text, *args: said.append(text % args))
    with cluster_of(1) as cluster, distributed.Client(cluster) as client, dx.config.set(worker_timeout=1):
        host = np.arange(600_000.0)  # more than what is computed where it lies, in this process
        x = dx.asarray(host)
        float(x.sum())
        cluster.scale(0)
        eventually(lambda: not client.scheduler_info()["workers"])
        with ThreadPoolExecutor(1) as pool:
            found = pool.submit(lambda: np.asarray(x * 2))
            eventually(lambda: said, 20)
            cluster.scale(1)
            np.testing.assert_array_equal(found.result(60), host * 2)
    assert [text.split(" since ")[0] for text in said] == ["no worker serves"]
