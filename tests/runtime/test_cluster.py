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
from helpers import cut_lineage, eventually, some

pytest.importorskip("distributed")

from dask._task_spec import Task, TaskRef
from distributed import Client
from distributed.core import Status

from distarray import config
from distarray.kernels.buffers import BufferPool
from distarray.runtime.alignment import AlignedLoad
from distarray.runtime.clients import active_client, placement_of, resolve_members, team_for_client
from distarray.runtime.cluster import EMBED_NBYTES, BlocksLostError, ClusterExecutor, failed_key
from distarray.runtime.worker_plugin import CUT, GONE, LOST_SECONDS, LineagePlugin
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
    n = len(run.homes)
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
    assert run.fetch(list(futures.values())) == [run.homes[members[key]] for key in futures]


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


def test_released_blocks_are_freed_now(cluster4):
    run = executor(cluster4)
    futures = constants(run, "free", [1, 2])
    run.wait(futures.values())
    for future in futures.values():
        future.release()
    eventually(lambda: tasks_of_scheduler(cluster4) == 0)


def test_executors_of_sub_teams_share_blocks(cluster4):
    """B-48."""
    whole = executor(cluster4)
    half = ClusterExecutor(cluster4, Team((2,), ("x",), cluster4, whole.homes[2:]))
    futures = constants(whole, "share", [1, 2, 3, 4])
    key = ("dx-sub", 0, 0)
    more = half.submit({key: Task(key, operator.add, TaskRef(("dx-share", 0, 0)), 5)}, {key: 1}, [key])
    np.testing.assert_array_equal(half.fetch([more[key]])[0], [6, 6, 6, 6])
    assert cluster4.who_has(list(more.values())) == {key: [whole.homes[3]]}
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
    assert run.homes[2] in held[key]
    assert set().union(*held.values()) == set(run.homes[2:])
    del futures
    eventually(lambda: not any(cluster4.has_what().values()))


# -- lineage -------------------------------------------------------------------------------------------------------


def test_thousand_steps_leave_a_bounded_number_of_tasks_in_scheduler_and_workers(cluster4):
    """B-17: a long loop keeps the graph bounded."""
    run = ClusterExecutor(cluster4, Team((2,), ("x",), cluster4))
    interval, n = 50, len(run.homes)
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
    assert next(run._lineage._counter) <= 4 * 8


def test_cut_lineage_keeps_value_and_key_and_forgets_what_led_to_it(cluster4):
    run = executor(cluster4)
    state = ring_steps(run, constants(run, "ring", [1, 2, 3, 4]), 1, 20)
    run.wait(state.values())
    assert tasks_of_scheduler(cluster4) == 80
    cut_lineage(run, state.values())
    assert tasks_of_scheduler(cluster4) == 8
    for got, expected in zip(run.fetch(list(state.values())), ring_oracle(4, 19)):
        np.testing.assert_array_equal(got, expected)


def test_copies_go_to_the_spare_of_the_home_though_others_fetched_the_block(process_cluster):
    """Two cuts at once see what the other fetched for a moment; copies lie evenly all the same."""
    run = executor(process_cluster)
    state = ring_steps(run, constants(run, "ring", [1, 2, 3]), 1, 3)
    run.wait(state.values())
    process_cluster.replicate(list(state.values()))
    cut_lineage(run, state.values())
    assert {record.copied_to for record in run._lineage._by_key.values()} == set(run.homes)


# -- loss of workers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("victim", [0, 2])
def test_killed_worker_in_a_chain_of_evaluations_changes_nothing(mortal_cluster, victim):
    """B-13, B-37: same numbers, no hang, the same team."""
    run = executor(mortal_cluster)
    team = team_for_client(mortal_cluster)
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
    cut_lineage(run, state.values())
    # What follows depends on cut blocks that the caller no longer holds.
    state = ring_steps(run, state, 5, 10)
    run.wait(state.values())
    placement = placement_of(mortal_cluster)
    for home in run.homes:
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
    cut_lineage(run, state.values())
    for address, pid in mortal_cluster.run(os.getpid).items():
        assert address in run.homes
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
        "import sys; from distarray.runtime.clients import active_client, resolve_members\n"
        "assert active_client() is None and resolve_members(None, 2) == (None, (0, 1))\n"
        "assert 'distributed' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_workers_that_are_lost_while_they_are_asked_give_no_answer_and_no_error(mortal_cluster):
    victim, *others = mortal_cluster.run(os.getpid)

    def answer(victim, dask_worker):
        if dask_worker.address == victim:
            os.kill(os.getpid(), 9)
        return dask_worker.address

    start = time.monotonic()
    assert placement_of(mortal_cluster).ask(answer, victim) == {address: address for address in others}
    assert placement_of(mortal_cluster).ask(answer, "", of=others[:1]) == {others[0]: others[0]}
    assert time.monotonic() - start < 10


def test_what_a_function_raises_on_a_worker_is_raised(cluster4):
    with pytest.raises(ZeroDivisionError):
        placement_of(cluster4).ask(operator.truediv, 1, 0)


def test_workers_do_not_wait_for_a_lost_peer(cluster4):
    """distributed would try to reach it for half a minute, if the fetch begins just after the worker heard of it."""
    executor(cluster4)  # loads the plugins
    nobody = "tcp://127.0.0.1:9"

    async def breaks_off(key, dask_worker):
        async def fetch():
            with pytest.raises(OSError, match="is lost"):
                await dask_worker.rpc.connect(nobody, timeout=30)

        dask_worker.state.in_flight_workers[nobody] = {key}
        dask_worker.stream_handlers[GONE](address=nobody)
        attempt = asyncio.ensure_future(fetch())
        await asyncio.wait((attempt,), timeout=4 * LOST_SECONDS)
        del dask_worker.state.in_flight_workers[nobody]
        found = attempt.done()
        dask_worker.rpc.remove(nobody, reason="is lost")
        await attempt
        return found

    assert set(cluster4.run(breaks_off, ("dx-block", 0, 0)).values()) == {True}
    # What others fetch is dask's affair.
    assert set(cluster4.run(breaks_off, "block").values()) == {False}


@pytest.mark.parametrize("status", [Status.running, Status.closing])
def test_idle_memory_is_told_the_limit_of_the_worker(monkeypatch, status, tmp_path):
    pool = BufferPool()
    monkeypatch.setattr("distarray.runtime.worker_plugin.POOL", pool)
    monkeypatch.setattr("distarray.runtime.worker_plugin.LATE_SECONDS", 0.01)
    manager = SimpleNamespace(memory_limit=512 << 20)
    from distributed.spill import SpillBuffer

    plugin = LineagePlugin("this")
    worker = SimpleNamespace(
        stream_handlers={"other": 1},
        handlers={"get_data": 2},
        state=SimpleNamespace(tasks={}),
        _instances=(),
        memory_manager=manager,
        plugins={CUT: plugin},
        nanny="tcp://nanny",
        status=Status.running,
        data=SpillBuffer(str(tmp_path), target=1 << 40),
    )
    plugin.setup(worker)
    plugin.leave("another")  # the message of one that was here before
    assert pool.memory == 512 << 20
    assert 0 < pool.full < pool.memory
    assert isinstance(worker.data.slow.data.load, AlignedLoad) and worker.handlers["get_data"] != 2
    assert worker.plugins == {CUT: plugin}
    worker.status = status

    async def leaves():
        plugin.leave("this")
        assert worker.handlers.keys() > {"get_data"}  # others may have sent something before they heard of it
        await asyncio.sleep(0.1)

    asyncio.run(leaves())
    assert pool.memory is None
    assert pool.full is None
    assert (worker.stream_handlers, worker.handlers) == ({"other": 1}, {"get_data": 2})
    assert worker.plugins == ({} if status == Status.running else {CUT: plugin})  # Dask is about to remove it


def test_worker_that_closes_goes_on_to_understand_messages():
    """It takes its plugins down first."""
    assert "teardown" not in vars(LineagePlugin)


# -- others on the cluster -----------------------------------------------------------------------------------------


def _traces(client):
    """All that we may leave on scheduler and workers."""

    def of_scheduler(dask_scheduler):
        return {
            "policies": sorted(type(p).__name__ for p in dask_scheduler.extensions["amm"].policies),
            "managers": [
                p.manager is dask_scheduler.extensions["amm"] for p in dask_scheduler.extensions["amm"].policies
            ],
            "plugins": sorted(map(str, dask_scheduler.plugins)),
            "worker plugins": sorted(dask_scheduler.worker_plugins),
            "handlers": sorted(dask_scheduler.handlers),
            "stream handlers": sorted(dask_scheduler.stream_handlers),
            "callbacks": sorted(name for name in dask_scheduler.periodic_callbacks if "distarray" in str(name)),
            "attributes": sorted(vars(dask_scheduler)),
        }

    def of_worker(dask_worker):
        return {
            "plugins": sorted(dask_worker.plugins),
            "handlers": sorted(dask_worker.handlers),
            "stream handlers": sorted(dask_worker.stream_handlers),
            "attributes": sorted(vars(dask_worker)),
            "of its pool": sorted(vars(dask_worker.rpc)),
            "functions": sorted(name for name, value in vars(dask_worker).items() if callable(value)),
        }

    return client.run_on_scheduler(of_scheduler), list(client.run(of_worker).values())


@pytest.mark.parametrize("cluster", some(["cluster4", "process_cluster"]))
def test_everything_is_as_before_once_the_last_client_of_ours_left(cluster, request):
    other = request.getfixturevalue(cluster)
    address = other.scheduler.address
    eventually(lambda: "distarray" not in str(_traces(other)))  # who was here before may be leaving yet
    before = _traces(other)
    assert "PlacementPlugin" not in str(before)
    data = other.scatter([1, 2, 3])
    for _ in range(2):  # what leaves does not take what comes with it
        with Client(address, set_as_default=False) as first, Client(address, set_as_default=False) as second:
            for client in (first, second):
                run = executor(client)
                state = ring_steps(run, constants(run, f"ring-{client.id}", range(len(run.homes))), 1, 5)
                cut_lineage(run, state.values())
                run.fetch(list(state.values()))
                assert "ReduceVisits" in _traces(other)[0]["policies"]
                assert "distarray-cut" in _traces(other)[1][0]["plugins"]
            del state, run
            second.close()
            assert "ReduceVisits" in _traces(other)[0]["policies"]  # for the first, which is here still
        eventually(lambda: _traces(other) == before)
    assert other.gather(data) == [1, 2, 3]
    assert other.submit(operator.add, *data[:2]).result() == 3


_GO_ON = threading.Event()


def _when_told(value):
    _GO_ON.wait(60)
    return value


def test_a_replica_that_is_still_to_be_read_is_not_dropped(cluster4):
    """The memory manager acts every other second; a reader that waits longer would have the block sent once more."""
    run = executor(cluster4)
    cluster4.run_on_scheduler(lambda dask_scheduler: dask_scheduler.extensions["amm"].stop())
    _GO_ON.clear()
    try:
        block, first, late, second = [(f"dx-{name}", 0, 0) for name in ("block", "first", "late", "second")]
        tasks = {
            block: Task(block, np.arange, 4),
            first: Task(first, np.sum, TaskRef(block)),
            late: Task(late, _when_told, TaskRef(first)),
            second: Task(second, np.multiply, TaskRef(block), TaskRef(late)),
        }
        kept = run.submit(tasks, {block: 0, first: 1, late: 2, second: 1}, [block, second])

        def suggested(dask_scheduler):
            found = dask_scheduler.tasks.get(block)
            manager = dask_scheduler.extensions["amm"]
            (policy,) = [p for p in manager.policies if type(p).__name__ == "ReduceVisits"]
            manager.pending = {}
            try:
                of_block = [[s.op for s in p.run() if s.ts is found] for p in (policy, policy.replaced)]
            finally:
                del manager.pending
            return 0 if found is None else len(found.who_has or ()), *of_block

        eventually(lambda: cluster4.run_on_scheduler(suggested) == (2, [], ["drop"]))
        _GO_ON.set()
        np.testing.assert_array_equal(run.fetch([kept[second]])[0], [0, 6, 12, 18])
    finally:
        _GO_ON.set()
        cluster4.run_on_scheduler(lambda dask_scheduler: dask_scheduler.extensions["amm"].start())


def test_replicas_of_others_are_left_to_dask(cluster4):
    """A task of ours that reads them drops none of them, and the memory manager's policy is dask's for them."""
    run = executor(cluster4)
    cluster4.run_on_scheduler(lambda dask_scheduler: dask_scheduler.extensions["amm"].stop())
    try:
        data = cluster4.scatter(np.arange(4), broadcast=True)
        home = run.homes[1]
        key = ("dx-reads", 0, 0)
        kept = run.submit({key: Task(key, np.sum, TaskRef(data.key))}, {key: 1}, [key])
        assert run.fetch([kept[key]]) == [6]
        assert len(cluster4.who_has([data])[data.key]) == 4
        assert home in cluster4.who_has([data])[data.key]

        def suggested(dask_scheduler):
            (policy,) = [p for p in dask_scheduler.extensions["amm"].policies if type(p).__name__ == "ReduceVisits"]
            manager = dask_scheduler.extensions["amm"]
            manager.pending = {}
            try:
                return [[(s.op, str(s.ts.key), s.candidates) for s in p.run()] for p in (policy, policy.replaced)]
            finally:
                del manager.pending

        ours, dasks = cluster4.run_on_scheduler(suggested)
        assert ours == dasks
        assert len(ours) == 3
    finally:
        cluster4.run_on_scheduler(lambda dask_scheduler: dask_scheduler.extensions["amm"].start())
