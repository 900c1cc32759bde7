"""Arrays that arrive in a task, another thread or another process read their blocks from the cluster, or say so."""

from __future__ import annotations

import asyncio
import builtins
import copy
import gc
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest
from dask.tokenize import tokenize

import distarray as dx
from distarray.errors import BlocksLostError, UnreachableBlocksError

distributed = pytest.importorskip("distributed")

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

VALUES = np.arange(600_000.0)


@pytest.fixture(params=["cluster4", "process_cluster"])
def client(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


@pytest.fixture
def lone_worker() -> Iterator[Any]:
    """Client of one worker with one thread."""
    with (
        distributed.LocalCluster(
            1, threads_per_worker=1, processes=False, dashboard_address=None, memory_limit=0
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def on_workers(values: np.ndarray = VALUES) -> dx.DistArray:
    """An array whose blocks are on the workers, and nowhere else."""
    team = dx.current_team()
    assert team is not None
    x = (dx.asarray(values, sharding=(team.axes,) + (None,) * (values.ndim - 1)) * 2).persist()
    assert all(isinstance(block, distributed.Future) for block in blocks(x))
    return x


def blocks(x: dx.DistArray) -> list[Any]:
    return list(x._node().memo.blocks)


def is_known(client: Any, key: Any) -> bool:
    return client.run_on_scheduler(lambda dask_scheduler: key in dask_scheduler.tasks)


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize("library", [pickle, cloudpickle])
def test_a_pickle_of_the_same_client_has_the_same_futures(client: Any, library: Any) -> None:
    x = on_workers()
    again = pickle.loads(library.dumps(x))
    assert again.team == x.team
    assert again.team.client is client
    assert all(a is b for a, b in zip(blocks(again), blocks(x), strict=True))
    assert float(again.sum()) == 2 * VALUES.sum()
    del x
    gc.collect()
    np.testing.assert_array_equal(np.asarray(again[::3]), 2 * VALUES[::3])
    assert again.sharding.n_tiles == again.team.size


def test_what_is_pending_and_views_of_one_base_travel_together(client: Any) -> None:
    x = on_workers()
    view, pending = x[10:-10], x * 3 + 1
    y, y_view, y_pending, z = pickle.loads(pickle.dumps((x, view, pending, copy.deepcopy(x))))
    y_view += 1
    expected = 2 * VALUES
    np.testing.assert_array_equal(np.asarray(x), expected)
    np.testing.assert_array_equal(np.asarray(y_pending), expected * 3 + 1)
    np.testing.assert_array_equal(np.asarray(z), expected)
    expected[10:-10] += 1
    np.testing.assert_array_equal(np.asarray(y), expected)


def test_a_pickled_team_makes_arrays_on_its_cluster(client: Any) -> None:
    team = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(dx.current_team()))))
    assert team == dx.current_team()
    assert team.client is client
    x = (dx.asarray(VALUES, team=team, sharding=(team.axes,)) + 1).persist()
    assert all(isinstance(block, distributed.Future) for block in blocks(x))
    assert float(x.sum()) == (VALUES + 1).sum()


def test_a_task_reads_the_blocks_of_its_arrays(client: Any) -> None:
    x = on_workers()

    def total(y: Any) -> Any:
        import distarray as dx

        assert y.team is None
        return float(y.sum()), float((y + dx.ones(y.shape)).max())

    arrays = {"whole": x, "view": x[3::2], "pending": x + 1, "small": dx.asarray(np.arange(9.0))}
    expected = {"whole": 2 * VALUES, "view": 2 * VALUES[3::2], "pending": 2 * VALUES + 1, "small": np.arange(9.0)}
    for name, y in arrays.items():
        assert client.submit(total, y).result(30) == (expected[name].sum(), expected[name].max() + 1), name
    found = client.gather(client.map(total, list(arrays.values())))
    assert found == [(e.sum(), e.max() + 1) for e in expected.values()]


def test_arrays_that_functions_close_over_arrive_too(client: Any) -> None:
    x = on_workers()
    shift = on_workers(np.arange(80_000.0))
    found = dx.map_blocks(lambda block: block + float(shift[-1]), x, dtype="f8")
    np.testing.assert_array_equal(np.asarray(found), 2 * VALUES + 2 * 79_999)


def test_a_task_reads_no_block_that_it_does_not_need(client: Any) -> None:
    x = on_workers()

    def element(y: Any) -> Any:
        from distarray.expr.expr import BlockName

        value = float(y[5])
        return value, sum(type(block) is BlockName for block in y._node().memo.blocks._blocks)

    assert client.submit(element, x).result(30) == (10.0, dx.current_team().size - 1)


def test_views_that_arrive_in_a_task_share_their_base(client: Any) -> None:
    x = on_workers()

    def write(y: Any, view: Any) -> Any:
        view += 1
        return float(y.sum()), y, y[:3]

    total, whole, part = client.submit(write, *[pickle.loads(pickle.dumps(x))] * 2).result(30)
    del total, whole, part
    both = (x, x[2:4])
    total, whole, part = client.submit(lambda both: write(*both), both).result(30)
    assert total == 2 * VALUES.sum() + 2
    assert whole.team is None
    assert part.tolist() == [0.0, 2.0, 5.0]
    np.testing.assert_array_equal(np.asarray(x), 2 * VALUES)


def test_a_task_may_hand_its_arrays_back(client: Any) -> None:
    x = on_workers()
    untouched = client.submit(lambda y: y, x).result(30)
    assert untouched.team == x.team
    assert float(untouched.sum()) == 2 * VALUES.sum()
    touched = client.submit(lambda y: (y, float(y[0]))[0], x).result(30)
    assert touched.team is None
    np.testing.assert_array_equal(np.asarray(touched), 2 * VALUES)
    made = client.submit(lambda y: y[:5] + 1, x).result(30)
    assert made.tolist() == [1.0, 3.0, 5.0, 7.0, 9.0]


def test_a_task_waits_for_blocks_that_its_own_thread_has_to_make(lone_worker: Any) -> None:
    go = distributed.Event("go")

    def hold() -> bool:
        from distributed import Event

        return Event("go").wait(30)

    held = lone_worker.submit(hold)
    until(lambda: any(lone_worker.processing().values()))
    x = on_workers()
    assert blocks(x)[0].status == "pending"
    total = lone_worker.submit(lambda y: float(y.sum()), x, priority=100)
    until(lambda: is_known(lone_worker, total.key))
    go.set()
    assert total.result(30) == 2 * VALUES.sum()
    assert held.result(30)


@pytest.mark.parametrize("is_there", [True, False], ids=["in a bundle", "not there yet"])
def test_tasks_that_share_an_array_leave_their_threads_to_what_they_wait_for(lone_worker: Any, is_there: bool) -> None:
    """Whoever reads a block for all waits for a task, which no other may keep from running by its wait for him."""
    x = on_workers().rechunk(200_000).persist() if is_there else dx.zeros(0)
    dx.wait(x)
    go = distributed.Event("go")
    held = lone_worker.submit(lambda: distributed.Event("go").wait(30))
    until(lambda: any(lone_worker.processing().values()))
    x = x if is_there else on_workers()
    sums = lone_worker.map(lambda i: float(x[i:].sum()), range(4), priority=100)
    until(lambda: is_known(lone_worker, sums[-1].key))
    go.set()
    assert [f.result(30) for f in sums] == [2 * VALUES[i:].sum() for i in range(4)]
    assert held.result(30)


def test_a_task_may_use_an_array_of_its_process_by_name(lone_worker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builtins, "shared_array", on_workers(), raising=False)
    total = lone_worker.submit(lambda: float((builtins.shared_array + 1).sum()))
    assert total.result(60) == (2 * VALUES + 1).sum()


def test_another_thread_reads_arrays_of_a_client_that_is_not_the_default(cluster4: Any) -> None:
    address = cluster4.scheduler.address
    with distributed.Client(address, set_as_default=False) as other:
        team = dx.Team((2,), ("x",), client=other)
        x = (dx.asarray(VALUES, team=team, sharding=("x",)) * 2).persist()
        data, found = pickle.dumps(x), []

        def read() -> None:
            again = pickle.loads(data)
            found.extend([again.team.client, float(again.sum()), float(x.sum())])

        thread = threading.Thread(target=read)
        thread.start()
        thread.join(60)
        assert found == [other, 2 * VALUES.sum(), 2 * VALUES.sum()]


_SCRIPT = """
import pickle, sys
import distarray as dx
from distarray.errors import UnreachableBlocksError

def main():
    data = open(sys.argv[1], "rb").read()
    x = pickle.loads(data)
    try:
        print(float(x.sum()))
    except UnreachableBlocksError as error:
        assert sys.argv[2] in str(error), error
    else:
        raise AssertionError("read without a client")
    assert pickle.loads(pickle.dumps(x))._base is not None
    from distributed import Client
    with Client(sys.argv[2]) as client:
        y = x * 2 + dx.ones(x.shape, team=x.team)
        assert x.team.client is client and x.team == dx.current_team()
        print(float(x.sum()), float(y[-1]))

if __name__ == "__main__":
    main()
"""


def test_another_process_reads_through_its_client_and_says_when_it_has_none(
    process_cluster: Any, tmp_path: Path
) -> None:
    x = on_workers()
    file, script = tmp_path / "x", tmp_path / "script.py"
    file.write_bytes(pickle.dumps(x))
    script.write_text(_SCRIPT)
    address = process_cluster.scheduler.address
    done = subprocess.run(
        [sys.executable, str(script), str(file), address], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(2 * VALUES.sum()), str(4 * VALUES[-1] + 1)]
    assert float(x.sum()) == 2 * VALUES.sum()


def test_an_array_of_a_closed_cluster_cannot_be_reached() -> None:
    with (
        distributed.LocalCluster(1, processes=False, dashboard_address=None, memory_limit=0) as cluster,
        distributed.Client(cluster) as client,
    ):
        address = client.scheduler.address
        data = pickle.dumps(on_workers())
    x = pickle.loads(data)
    for read in (lambda: x.sum(), lambda: np.asarray(x), lambda: x + 1, lambda: x.team):
        with pytest.raises(UnreachableBlocksError, match=address):
            read()


@pytest.mark.parametrize("is_in_task", [False, True])
@pytest.mark.parametrize("read", [np.asarray, str, lambda x: float(x[0]), lambda x: (x + 1).tolist()])
def test_a_small_array_that_is_held_may_be_read_while_it_travels(
    client: Any, read: Callable[[Any], Any], is_in_task: bool
) -> None:
    x = on_workers().reshape(-1, 5).sum(axis=0).persist()
    data = pickle.dumps(x)
    for _ in range(2):
        read(x)
    gc.collect()
    if is_in_task:
        found = client.submit(lambda data: np.asarray(pickle.loads(data)), data, pure=False).result(30)
    else:
        found = np.asarray(pickle.loads(data))
    np.testing.assert_array_equal(found, 2 * VALUES.reshape(-1, 5).sum(axis=0))


@pytest.mark.parametrize("is_in_task", [False, True])
@pytest.mark.parametrize("is_released", [False, True])
def test_an_array_that_nobody_held_meanwhile_is_lost(client: Any, is_in_task: bool, is_released: bool) -> None:
    x = on_workers()
    dx.wait(x)  # else nobody has it yet, either
    # dask keeps the names of what live results were made from
    y = (x + 1).persist() if is_released else None
    data, keys = pickle.dumps(x), [block.key for block in blocks(x)]
    if y is not None:
        y.sum().compute()
    del x
    gc.collect()
    until(lambda: not any(client.who_has().get(str(key)) or client.who_has([key]).get(key) for key in keys))
    assert y is None or all(is_known(client, key) for key in keys)
    with pytest.raises(BlocksLostError, match="must be held"):
        if is_in_task:
            client.submit(lambda data: float(np.asarray(pickle.loads(data))[0]), data).result(30)
        else:
            np.asarray(pickle.loads(data))


@pytest.mark.parametrize("is_in_task", [False, True])
def test_who_reads_what_is_gone_beside_others_that_do_is_told_so_too(client: Any, is_in_task: bool) -> None:
    """The first Future of a key of nobody's is asked about; the others, which share its state, waited for ever."""
    x = on_workers()
    dx.wait(x)
    data, keys = pickle.dumps(x), [block.key for block in blocks(x)]
    del x
    gc.collect()
    until(lambda: not any(is_known(client, key) for key in keys))

    def read_twice(data: bytes) -> list[str]:
        arrays, said = [pickle.loads(data), pickle.loads(data)], []
        for y in arrays:
            try:
                np.asarray(y)
            except Exception as error:  # its class is that of the worker's module
                said.append(type(error).__name__)
        return said

    found = client.submit(read_twice, data, pure=False).result(30) if is_in_task else read_twice(data)
    assert found == ["BlocksLostError"] * 2


def test_tasks_of_several_workers_that_compute_on_members_have_keys_of_their_own(process_cluster: Any) -> None:
    """Workers that are forks of one process gave their runs the same names; and of two tasks of a worker, the second
    found the client that the first one was making to be lost."""

    def computes(n: int) -> list[float]:
        with distributed.worker_client() as client:
            team, found = dx.Team((3,), ("r",), client=client), []
            for k in range(4):
                y = dx.asarray(np.arange(10_000.0).reshape(100, 100) * n + k, team=team, sharding=("r", None))
                found.append(float((y + y.T)[3:].sum()))
            return found

    places = sorted(process_cluster.scheduler_info()["workers"])
    tasks = [process_cluster.submit(computes, n, workers=[places[n % 3]]) for n in range(6)]
    for n, task in enumerate(tasks):
        values = [np.arange(10_000.0).reshape(100, 100) * n + k for k in range(4)]
        np.testing.assert_allclose(task.result(60), [(a + a.T)[3:].sum() for a in values])


def test_what_has_just_arrived_is_scattered_and_named(client: Any) -> None:
    """Dask makes names of what it scatters in its event loop, where the client of an array cannot be asked for."""
    x = on_workers()
    for view in (lambda y: y, lambda y: y[5:9]):
        data = pickle.dumps(view(x))
        arrived = pickle.loads(data)
        future = client.scatter(arrived)
        assert client.submit(lambda y: float(np.asarray(y).sum()), future).result(30) == float(view(x).sum())
        assert tokenize(pickle.loads(data)) == tokenize(pickle.loads(data)) != tokenize(x + 1)
        np.testing.assert_array_equal(arrived, view(x))


# -- asynchronous clients ------------------------------------------------------------------------------------------


def test_an_asynchronous_client_is_refused_at_the_first_array() -> None:
    async def main() -> None:
        async with (
            distributed.LocalCluster(
                1, processes=False, dashboard_address=None, memory_limit=0, asynchronous=True
            ) as cluster,
            distributed.Client(cluster, asynchronous=True),
        ):
            for make in (lambda: dx.zeros(3), lambda: dx.asarray([1.0]), lambda: dx.Team((1,), ("x",))):
                with pytest.raises(RuntimeError, match="asynchronous here"):
                    make()
            assert dx.arange(4, team=None).sum().item() == 6
            with dx.use(None):
                assert dx.arange(4).sum().item() == 6

            def in_a_thread(address: str) -> float:
                with distributed.Client(address):
                    return on_workers().sum().item()

            found = await asyncio.to_thread(in_a_thread, cluster.scheduler_address)
            assert found == 2 * VALUES.sum()

    asyncio.run(main())


def test_a_synchronous_client_is_refused_in_the_thread_of_its_loop(cluster4: Any) -> None:
    async def make() -> Any:
        return dx.zeros(3)

    with pytest.raises(RuntimeError, match="asynchronous here"):
        cluster4.sync(make)
    assert dx.zeros(3).team is dx.current_team()
