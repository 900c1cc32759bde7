"""The cluster executor: places tasks strictly, survives the loss of workers, and keeps the scheduler bounded."""

import asyncio
import operator
import os
import signal
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("distributed")

from dask._task_spec import Task, TaskRef

from distarray import config
from distarray.execution.buffers import BufferPool
from distarray.execution.cluster import EMBED_NBYTES, BlocksLostError, ClusterExecutor, failed_key
from distarray.execution.placement import active_client, placement_of, resolve_members, team_for_client
from distarray.execution.worker_plugin import GONE, LOST_SECONDS, LineagePlugin
from distarray.sharding.team import Team

pytestmark = pytest.mark.cluster

# What tasks call comes from numpy, operator or a local scope: worker processes cannot import this file.


def executor(client):
    return ClusterExecutor(client, team_for_client(client))


def constants(run, name, values, members=None):
    tasks = {("dx-" + name, 0, i): Task(("dx-" + name, 0, i), np.full, 4, value) for i, value in enumerate(values)}
    members = {key: i for i, key in enumerate(tasks)} if members is None else members
    return run.submit(tasks, members, list(tasks))


def ring_steps(run, state, first, last):
    """Steps ``x[i] = x[i] + x[i + 1] % 7`` on one block per member: each block depends on all in a few steps."""
    n = run.team.size
    for step in range(first, last):
        old = list(state)
        tasks = {
            ("dx-ring", step, i): Task(
                ("dx-ring", step, i),
                operator.add,
                TaskRef(old[i]),
                Task(None, operator.mod, TaskRef(old[(i + 1) % n]), 7),
            )
            for i in range(n)
        }
        state = run.submit(tasks, {key: key[2] for key in tasks}, list(tasks))
    return state


def ring_oracle(n, steps, dtype=int):
    x = [np.full(4, i + 1) for i in range(n)]
    for _ in range(steps):
        x = [x[i] + x[(i + 1) % n] % 7 for i in range(n)]
    return x


def tasks_of_scheduler(client):
    return client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks))


def eventually(condition, seconds=20.0):
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, "did not come true in time"
        time.sleep(0.02)
    return value


def kill(client, home):
    """SIGKILL the worker process that serves a home."""
    address = placement_of(client).address(home)
    os.kill(client.run(os.getpid, workers=[address])[address], signal.SIGKILL)


# -- running -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cluster", ["cluster4", "process_cluster"])
def test_every_task_runs_on_the_worker_of_its_member(cluster, request):
    """B-3, with work stealing on and one member given nearly all the work."""
    client = request.getfixturevalue(cluster)
    run = executor(client)
    where = lambda: __import__("distributed").get_worker().address
    tasks = {("dx-where", 0, i): Task(("dx-where", 0, i), where) for i in range(200)}
    members = {key: 1 if key[2] % 10 else 2 for key in tasks}
    futures = run.submit(tasks, members, list(tasks))
    assert run.fetch(list(futures.values())) == [run.team.members[members[key]] for key in futures]


def test_only_what_is_kept_stays(cluster4):
    run = executor(cluster4)
    a, b = ("dx-a", 1), ("dx-b", 1)
    futures = run.submit({a: Task(a, np.arange, 5), b: Task(b, np.sum, TaskRef(a))}, {a: 0, b: 1}, [b])
    assert list(futures) == [b]
    assert run.fetch([futures[b]]) == [10]
    eventually(lambda: cluster4.run_on_scheduler(lambda dask_scheduler: dask_scheduler.tasks[a].state) == "released")
    del futures
    eventually(lambda: tasks_of_scheduler(cluster4) == 0)


def test_later_tasks_refer_to_kept_keys_even_if_their_futures_are_dropped_at_once(cluster4):
    run = executor(cluster4)
    state = constants(run, "drop", [1, 2, 3, 4])
    for step in range(1, 60):
        tasks = {
            ("dx-drop", step, i): Task(("dx-drop", step, i), operator.add, TaskRef(old), 1)
            for i, old in enumerate(state)
        }
        state = run.submit(tasks, {key: key[2] for key in tasks}, list(tasks))
    assert [x[0] for x in run.fetch(list(state.values()))] == [60, 61, 62, 63]


def test_release_frees_blocks_now(cluster4):
    run = executor(cluster4)
    futures = constants(run, "free", [1, 2])
    run.wait(futures.values())
    run.release(futures.values())
    eventually(lambda: tasks_of_scheduler(cluster4) == 0)


def test_executors_of_sub_teams_share_blocks(cluster4):
    """B-48."""
    whole = executor(cluster4)
    half = ClusterExecutor(cluster4, Team((2,), ("x",), cluster4, whole.team.members[2:]))
    futures = constants(whole, "share", [1, 2, 3, 4])
    key = ("dx-sub", 0, 0)
    more = half.submit({key: Task(key, operator.add, TaskRef(("dx-share", 0, 0)), 5)}, {key: 1}, [key])
    np.testing.assert_array_equal(half.fetch([more[key]])[0], [6, 6, 6, 6])
    assert cluster4.who_has(list(more.values())) == {key: [whole.team.members[3]]}
    del futures


# -- errors --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cluster", ["cluster4", "process_cluster"])
def test_error_of_a_task_keeps_its_class_and_names_the_task(cluster, request):
    """B-16: errors of a kernel at the observation."""
    run = executor(request.getfixturevalue(cluster))
    a, b, c = ("dx-bad", 1, 0), ("dx-after", 1, 0), ("dx-good", 1, 0)
    tasks = {
        a: Task(a, np.linalg.cholesky, -np.eye(2)),
        b: Task(b, operator.add, TaskRef(a), 1),
        c: Task(c, np.ones, 2),
    }
    futures = run.submit(tasks, {a: 0, b: 1, c: 0}, [b, c])
    with pytest.raises(np.linalg.LinAlgError, match="positive definite") as caught:
        run.fetch([futures[c], futures[b]])
    assert failed_key(caught.value) == a
    with pytest.raises(np.linalg.LinAlgError) as again:
        run.wait([futures[b]])
    assert failed_key(again.value) == a
    np.testing.assert_array_equal(run.fetch([futures[c]])[0], [1, 1])


def test_interrupt_leaves_futures_usable_and_frees_what_is_dropped(cluster4):
    run = executor(cluster4)
    go = threading.Event()
    slow, never = ("dx-slow", 1, 0), ("dx-never", 1, 0)
    # Workers of this process: the event is shared, not pickled.
    _gates["interrupt"] = go
    tasks = {
        slow: Task(slow, _pass_gate, "interrupt"),
        never: Task(never, operator.add, TaskRef(slow), 1),
    }
    futures = run.submit(tasks, {slow: 0, never: 1}, [slow, never])
    timer = threading.Timer(0.3, signal.pthread_kill, [threading.main_thread().ident, signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        run.fetch([futures[never]])
    del futures[never]
    eventually(lambda: tasks_of_scheduler(cluster4) == 1)
    go.set()
    assert run.fetch([futures[slow]]) == [1]


_gates = {}


def _pass_gate(name):
    assert _gates[name].wait(20)
    return 1


# -- host data -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cluster", ["cluster4", "process_cluster"])
@pytest.mark.parametrize("n", [0, 5, EMBED_NBYTES // 8 + 1])
def test_put_and_fetch_are_exact(cluster, n, request):
    run = executor(request.getfixturevalue(cluster))
    rng = np.random.default_rng(0)
    blocks = {("dx-put", n, i): rng.standard_normal(n + i) for i in range(3)}
    futures = run.put(blocks, {key: key[2] for key in blocks})
    for got, block in zip(run.fetch(list(futures.values())), blocks.values()):
        np.testing.assert_array_equal(got, block, strict=True)


def test_put_keeps_the_strides_of_permuted_blocks(process_cluster):
    """C-12."""
    run = executor(process_cluster)
    block = np.arange(32 * 33 * 34.0).reshape(32, 33, 34).transpose(1, 2, 0)
    key, probe = ("dx-permuted", 0, 0), ("dx-probe", 0, 0)
    futures = run.put({key: block}, {key: 1})
    futures |= run.submit({probe: Task(probe, lambda b: b.strides, TaskRef(key))}, {probe: 1}, [probe])
    got, strides = run.fetch([futures[key], futures[probe]])
    assert strides == block.strides
    np.testing.assert_array_equal(got, block)


def test_large_host_data_lies_on_two_workers_under_two_keys_until_dropped(cluster4):
    run = executor(cluster4)
    key = ("dx-two", 0, 0)
    futures = run.put({key: np.arange(EMBED_NBYTES)}, {key: 2})
    held = cluster4.who_has()
    assert len(held) == 2
    assert run.team.members[2] in held[key]
    assert set().union(*held.values()) == set(run.team.members[2:])
    del futures
    eventually(lambda: not any(cluster4.has_what().values()))


# -- lineage -------------------------------------------------------------------------------------------------------


def test_thousand_steps_leave_a_bounded_number_of_tasks_in_scheduler_and_workers(cluster4):
    """B-17: a long loop keeps the graph bounded."""
    run = ClusterExecutor(cluster4, Team((2,), ("x",), cluster4))
    interval, n = 50, run.team.size
    most = 0
    with config.set(lineage_interval=interval):
        state = constants(run, "ring", [1, 2])
        for step in range(1, 1001, 25):
            state = ring_steps(run, state, step, step + 25)
            run.wait(state.values())
            known = cluster4.run(lambda dask_worker: len(dask_worker.state.tasks)).values()
            most = max(most, tasks_of_scheduler(cluster4), *known)
    # Up to two intervals while a cut is under way, and the copies of two cuts.
    assert most <= n * (2 * interval + 25 + 8)
    for got, expected in zip(run.fetch(list(state.values())), ring_oracle(n, 1000)):
        np.testing.assert_array_equal(got, expected)
    del state
    eventually(lambda: tasks_of_scheduler(cluster4) == 0)


def test_old_operand_of_every_step_does_not_force_a_cut_per_step(cluster4):
    run = executor(cluster4)
    with config.set(lineage_interval=10):
        old = ring_steps(run, constants(run, "ring", [1, 2, 3, 4]), 1, 9)
        keys = list(old)
        state = old
        for step in range(100, 130):
            tasks = {
                ("dx-mix", step, i): Task(("dx-mix", step, i), operator.add, TaskRef(key), TaskRef(keys[i]))
                for i, key in enumerate(state)
            }
            state = run.submit(tasks, {key: key[2] for key in tasks}, list(tasks))
        run.wait(state.values())
        copies = lambda: len([key for keys in cluster4.has_what().values() for key in keys if "dx-copy" in str(key)])
        # 30 steps: the operand once, the state at most every tenth step.
        eventually(lambda: copies() > 0)
    assert run._lineage._counter.__reduce__()[1][0] <= 4 * 8


def test_cut_lineage_keeps_value_and_key_and_forgets_what_led_to_it(cluster4):
    run = executor(cluster4)
    state = ring_steps(run, constants(run, "ring", [1, 2, 3, 4]), 1, 20)
    run.wait(state.values())
    assert tasks_of_scheduler(cluster4) == 80
    run.cut_lineage(state.values())
    assert tasks_of_scheduler(cluster4) == 8
    for got, expected in zip(run.fetch(list(state.values())), ring_oracle(4, 19)):
        np.testing.assert_array_equal(got, expected)


# -- loss of workers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("victim", [0, 2])
def test_killed_worker_in_a_chain_of_evaluations_changes_nothing(mortal_cluster, victim):
    """B-13, B-37: same numbers, no hang, the same team."""
    run = executor(mortal_cluster)
    team = run.team
    state = constants(run, "ring", [1, 2, 3])
    with config.set(lineage_interval=15):
        state = ring_steps(run, state, 1, 40)
        kill(mortal_cluster, team.members[victim])
        state = ring_steps(run, state, 40, 60)
        start = time.monotonic()
        got = run.fetch(list(state.values()))
        assert time.monotonic() - start < 20
        for block, expected in zip(got, ring_oracle(3, 59)):
            np.testing.assert_array_equal(block, expected)
        assert team_for_client(mortal_cluster) is team
        # Once the nanny has restarted it, the worker serves its rank again, under the old home.
        placement = placement_of(mortal_cluster)
        home = team.members[victim]
        eventually(lambda: len(placement.workers) == 3)
        assert placement.address(home) not in (home, *team.members)
        state = ring_steps(run, state, 60, 70)
        for block, expected in zip(run.fetch(list(state.values())), ring_oracle(3, 69)):
            np.testing.assert_array_equal(block, expected)
        where = mortal_cluster.who_has(list(state.values()))
        assert placement.address(home) in where[("dx-ring", 69, victim)]


def test_blocks_with_a_cut_lineage_survive_one_loss_after_another(mortal_cluster):
    run = executor(mortal_cluster)
    key = ("dx-host", 0, 0)
    host = np.arange(2.0 * EMBED_NBYTES)
    kept = run.put({key: host}, {key: 0})
    state = ring_steps(run, constants(run, "ring", [1, 2, 3]), 1, 5)
    run.cut_lineage(state.values())
    # What follows depends on cut blocks that the caller no longer holds.
    state = ring_steps(run, state, 5, 10)
    run.wait(state.values())
    placement = placement_of(mortal_cluster)
    for home in run.team.members:
        lost = placement.address(home)
        kill(mortal_cluster, home)
        eventually(lambda lost=lost: lost not in placement.workers)
        eventually(lambda: len(placement.workers) == 3 and _mended(run))
        for block, expected in zip(run.fetch(list(state.values())), ring_oracle(3, 9)):
            np.testing.assert_array_equal(block, expected)
        np.testing.assert_array_equal(run.fetch([kept[key]])[0], host)


def _mended(run):
    lineage = run._lineage
    bare, is_complete = run._sync(lineage._without_second_place)
    return is_complete and not bare and not lineage._mending


def test_killed_worker_while_its_task_runs_is_no_failure(mortal_cluster):
    run = executor(mortal_cluster)
    import pathlib
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        mark = pathlib.Path(folder) / "ran"

        def die_the_first_time(path):
            if not path.exists():
                path.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return 5

        key, waiting = ("dx-die", 0, 0), ("dx-wait", 0, 0)
        tasks = {
            key: Task(key, die_the_first_time, mark),
            waiting: Task(waiting, operator.add, TaskRef(key), 1),
        }
        futures = run.submit(tasks, {key: 0, waiting: 0}, [waiting])
        assert run.fetch([futures[waiting]]) == [6]


def test_loss_of_every_copy_is_an_error_that_says_so(mortal_cluster):
    run = executor(mortal_cluster)
    state = constants(run, "ring", [1, 2, 3])
    run.cut_lineage(state.values())
    for address, pid in mortal_cluster.run(os.getpid).items():
        assert address in run.team.members
        os.kill(pid, signal.SIGKILL)
    with pytest.raises(BlocksLostError, match="dx-ring"):
        run.fetch(list(state.values()))
    # The cluster is whole again, so are evaluations.
    assert [x[0] for x in run.fetch(list(constants(run, "next", [7, 8, 9]).values()))] == [7, 8, 9]


# -- who serves ----------------------------------------------------------------------------------------------------


def test_team_of_a_client_is_one_object_while_it_is_held(cluster4):
    """B-13."""
    team = team_for_client(cluster4)
    assert team is team_for_client(cluster4)
    assert team.size == 4
    names = cluster4.scheduler_info()["workers"]
    assert [names[address]["name"] for address in team.members] == [0, 1, 2, 3]
    assert resolve_members(None, 2) == (cluster4, team.members[:2])
    with pytest.raises(ValueError, match=r"5 members .*has 4 workers"):
        resolve_members(cluster4, 5)


def test_no_client_is_active_inside_a_task(cluster4):
    """DESIGN 4: inside a task there is no team."""
    assert active_client() is cluster4
    run = executor(cluster4)
    key = ("dx-inside", 0, 0)
    futures = run.submit({key: Task(key, lambda: repr(active_client()))}, {key: 0}, [key])
    assert run.fetch([futures[key]]) == ["None"]


def test_asking_for_the_active_client_does_not_import_distributed():
    code = (
        "import sys; from distarray.execution.placement import active_client, resolve_members\n"
        "assert active_client() is None and resolve_members(None, 2) == (None, (0, 1))\n"
        "assert 'distributed' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_workers_do_not_wait_for_a_lost_peer(cluster4):
    """distributed would try to reach it for half a minute, and the tasks that need its blocks would wait."""
    executor(cluster4)  # loads the plugins
    nobody = "tcp://127.0.0.1:9"

    async def seconds_of_waiting(dask_worker):
        async def fetch():
            with pytest.raises(OSError, match="is lost"):
                await dask_worker.rpc.connect(nobody, timeout=30)

        attempt = asyncio.ensure_future(fetch())
        start = time.monotonic()
        await asyncio.sleep(0.2)
        assert not attempt.done()
        dask_worker.stream_handlers[GONE](address=nobody)
        await attempt
        return time.monotonic() - start

    assert max(cluster4.run(seconds_of_waiting).values()) < 10


def test_idle_memory_is_told_the_limit_of_the_worker(monkeypatch):
    pool = BufferPool()
    monkeypatch.setattr("distarray.execution.worker_plugin.POOL", pool)
    manager = SimpleNamespace(memory_limit=512 << 20)
    LineagePlugin().setup(
        SimpleNamespace(rpc=SimpleNamespace(connect=None), stream_handlers={}, memory_manager=manager)
    )
    assert pool.memory == 512 << 20


def test_a_lost_worker_is_not_waited_for_whenever_a_fetch_begins():
    class Pool:
        def __init__(self):
            self.asked = []

        async def connect(self, addr, timeout=None):
            self.asked.append((addr, timeout))

        def remove(self, addr, *, reason):
            self.asked.append((addr, reason))

    worker = SimpleNamespace(rpc=Pool(), stream_handlers={}, memory_manager=SimpleNamespace(memory_limit=None))
    LineagePlugin().setup(worker)
    asyncio.run(worker.rpc.connect("a"))
    worker.stream_handlers[GONE]("a")
    asyncio.run(worker.rpc.connect("a"))
    asyncio.run(worker.rpc.connect("a"))  # it was there
    asyncio.run(worker.rpc.connect("b", 3))
    assert worker.rpc.asked == [("a", None), ("a", "worker a is lost"), ("a", LOST_SECONDS), ("a", None), ("b", 3)]
