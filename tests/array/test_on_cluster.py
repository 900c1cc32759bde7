"""Arrays on Dask clusters, of threads and of processes: numpy's results, whatever is lost, interrupted or raised."""

from __future__ import annotations

import _thread
import contextlib
import copy
import gc
import math
import os
import pickle
import signal
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from helpers import eventually
from on_workers import keys_but_templates

import distarray as dx
from distarray.ops import programs
from distarray.testing import counting

distributed = pytest.importorskip("distributed")

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]


@pytest.fixture(params=["cluster4", "process_cluster"])
def client(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


def rows(values: np.ndarray) -> dx.DistArray:
    """Cut over the rows on all workers."""
    team = dx.current_team()
    assert team is not None
    assert team.client is not None
    return dx.asarray(values, sharding=(team.axes,) + (None,) * (values.ndim - 1))


def kill_one(client: Any, number: int = 0) -> None:
    """SIGKILL a worker process."""
    _, pid = sorted(client.run(os.getpid).items())[number]
    os.kill(pid, signal.SIGKILL)


def tasks_of_scheduler(client: Any) -> int:
    return len(client.run_on_scheduler(keys_but_templates))


# -- same results (B-20, B-31) -------------------------------------------------------------------------------------


def script(xp: Any, x: Any) -> list[Any]:
    """Views, writes, arithmetic, fancy indexing, on a matrix of shape (24, 6); elementwise results."""
    y = x * 1.1 + xp.sin(x)
    v = y[2:20:3]
    old = y + 0
    v -= 1
    y[1:] = y[:-1] / 3
    y[y > 10] = -3
    y[[0, 5, 5]] += x[[1, 2, 3]]
    y.T[2] = x[:, 1]
    z = xp.where(x > 30, y, x) // 3
    z[::-1] = z + xp.roll(x, 3, axis=0)
    for k in range(1, 24):
        z[k] = z[k - 1] * 0.7 + xp.exp(-x[k])
    return [x, y, v, old, z, xp.max(z, axis=0), xp.sort(z, axis=0), z.reshape(12, 12)[::5], y[x[:, 0] > 50]]


def sums(xp: Any, x: Any) -> list[Any]:
    """Floating-point sums and products."""
    return [x.sum(axis=0), (x @ x.T)[3], x.mean(), xp.linalg.norm(x), x.T @ x[:, 1]]


def test_a_script_has_the_same_bits_as_on_threads(client: Any) -> None:
    a = np.sqrt(np.arange(144.0)).reshape(24, 6)
    threads = dx.Team((2,), ("R",), members=(0, 1))
    with dx.use(threads):
        on_threads = [np.asarray(r) for r in script(dx, dx.asarray(a))]
        sums_on_threads = [np.asarray(r) for r in sums(dx, dx.asarray(a))]
    found = script(dx, rows(a))
    for f, t, e in zip(found, on_threads, script(np, a.copy()), strict=True):
        assert f.team is dx.current_team()
        np.testing.assert_array_equal(np.asarray(f), t)
        np.testing.assert_allclose(np.asarray(f), e, rtol=1e-12, atol=1e-13)
    for f, t in zip(sums(dx, rows(a)), sums_on_threads, strict=True):
        np.testing.assert_allclose(np.asarray(f), t, rtol=1e-13)


@pytest.mark.parametrize("window", [0, 1, 7, 512])
def test_results_are_the_same_at_every_window(cluster4: Any, window: int) -> None:
    """B-17."""
    a = np.sqrt(np.arange(144.0)).reshape(24, 6)
    with dx.use(None):
        expected = [np.asarray(r) for r in script(dx, dx.asarray(a))]
    with dx.config.set(window=window):
        for f, e in zip(script(dx, rows(a)), expected, strict=True):
            np.testing.assert_array_equal(np.asarray(f), e)


# -- element loops -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [64, 1 << 18])
def test_a_loop_over_elements_makes_no_round_trip_per_element(cluster4: Any, n: int) -> None:
    x = rows(np.arange(float(n))) + 1
    with counting() as c:
        total = 0.0
        for i in range(60):
            total += float(x[i])
    assert total == sum(range(1, 61))
    assert c.evaluations <= 4
    x[5] = 100.0
    assert [float(x[i]) for i in range(4, 7)] == [5.0, 100.0, 7.0]


# -- retries and lost workers --------------------------------------------------------------------------------------


def _writes(x: Any, a: np.ndarray) -> None:
    x += 1
    x[2:-3] *= 3
    x[1:] = x[:-1]
    x[a > 20] += 2
    x[[0, 0, 13, 0]] += 1
    m = x.reshape(-1, 2)
    m[1:5] += m[2:6] @ np.array([[1.0, 2.0], [3.0, 4.0]])


def test_writes_survive_the_loss_of_a_worker_after_they_ran(mortal_cluster: Any) -> None:
    """B-37: what was lost is computed again, and every write is applied once."""
    a = np.arange(32.0)
    x = rows(a)
    y = x.at[[0, 0, 31]].add(1)
    _writes(x, a)
    z = x * 2
    dx.persist(x, y, z)
    np.testing.assert_array_equal(np.asarray(z), np.asarray(x) * 2)
    expected = a.copy()
    _writes(expected, a)
    added = a.copy()
    np.add.at(added, [0, 0, 31], 1)
    for number in range(3):
        kill_one(mortal_cluster, number % 2)
        np.testing.assert_array_equal(np.asarray(x), expected)
        np.testing.assert_array_equal(np.asarray(y), added)
        x += 1
        expected += 1
        np.testing.assert_array_equal(np.asarray(x), expected)
        eventually(lambda: len(mortal_cluster.run(os.getpid)) == 3)


def test_a_worker_killed_while_a_loop_runs_changes_no_number(mortal_cluster: Any) -> None:
    a = np.random.default_rng(0).random((30, 30))
    x, b = rows(a), a.copy()
    killer = threading.Timer(0.5, kill_one, (mortal_cluster, 1))
    killer.start()
    start = time.monotonic()
    n = 0
    with dx.config.set(window=20):
        while n < 40 or time.monotonic() < start + 2.5:
            x[1:-1] = (x[:-2] + x[2:]) / 2
            x += 0.5
            b[1:-1] = (b[:-2] + b[2:]) / 2
            b += 0.5
            if n % 10 == 9:
                np.testing.assert_allclose(float(x.sum()), b.sum(), rtol=1e-12)
            n += 1
    killer.join(20)
    np.testing.assert_array_equal(np.asarray(x), b)


def test_host_data_survive_the_loss_of_a_worker(mortal_cluster: Any) -> None:
    """What was sent to a cluster is kept until it is no longer needed; the user's array is not asked again."""
    a = np.random.default_rng(0).random((300, 400))
    x = rows(a)
    expected = a.copy()
    y = (x + 1).persist()
    a[:] = 0
    kill_one(mortal_cluster)
    np.testing.assert_array_equal(np.asarray(x), expected)
    np.testing.assert_array_equal(np.asarray(y), expected + 1)


def hurry_memory_manager(interval: float, dask_scheduler: Any) -> float:
    """Let dask's memory manager act at an interval (seconds, infinity: never); the interval before."""
    manager = dask_scheduler.extensions["amm"]
    before = manager.interval if manager.running else math.inf
    manager.stop()
    manager.interval = interval
    if interval < math.inf:
        manager.start()
    return before


@contextlib.contextmanager
def memory_manager(client: Any, interval: float) -> Iterator[None]:
    before = client.run_on_scheduler(hurry_memory_manager, interval)
    try:
        yield
    finally:
        client.run_on_scheduler(hurry_memory_manager, before)


def test_host_data_keep_two_places_whatever_the_memory_manager_drops(mortal_cluster: Any) -> None:
    """dask's memory manager may drop the copy of a block while the block is made of it."""
    mortal_cluster.run_on_scheduler(hurry_memory_manager, 0.005)
    a = np.random.default_rng(0).random((12, 300, 400))
    arrays = [rows(b) for b in a]
    dx.persist(*[x + 1 for x in arrays])
    kill_one(mortal_cluster)
    for x, b in zip(arrays, a, strict=True):
        np.testing.assert_array_equal(np.asarray(x), b)


def places(client: Any, *arrays: dx.DistArray) -> list[list[str]]:
    """Addresses of the workers that hold each block, once all are there."""
    blocks = [block for x in arrays for block in x.__dx_node__().memo.blocks]
    distributed.wait(blocks)
    return [sorted(who) for who in client.who_has(blocks).values()]


def test_what_was_fetched_leaves_once_it_is_read(cluster4: Any) -> None:
    """A replica is a copy for one reader; blocks are held once, at home, without dask's memory manager."""
    a = np.random.default_rng(0).random((2, 80, 80))
    with dx.config.set(block_bytes=0), memory_manager(cluster4, math.inf):
        x, y = rows(a[0]), rows(a[1])
        z = x + y
        dx.persist(x, y, z)
        before = places(cluster4, x, y, z)
        assert all(len(place) == 1 for place in before)
        product = (z @ y).persist()
        eventually(lambda: places(cluster4, x, y, z) == before, 5)
    np.testing.assert_allclose(np.asarray(product), (a[0] + a[1]) @ a[1])


def test_blocks_stay_at_home_whatever_the_memory_manager_drops(cluster4: Any) -> None:
    a = np.random.default_rng(0).random((2, 80, 80))
    with dx.config.set(block_bytes=0):
        x, y = rows(a[0]), rows(a[1])
        z = x + y
        dx.persist(x, y, z)
        before = places(cluster4, x, y, z)
        with memory_manager(cluster4, 0.002):
            for _ in range(20):
                product = (z @ y + y @ z).persist()
        eventually(lambda: places(cluster4, x, y, z) == before, 5)
    np.testing.assert_allclose(np.asarray(product), (a[0] + a[1]) @ a[1] + a[1] @ (a[0] + a[1]))


# -- long loops ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_updates", [3000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_a_loop_of_updates_keeps_the_scheduler_bounded(cluster4: Any, n_updates: int) -> None:
    """B-17: graph size and memory of the client are bounded, and so is the lineage."""
    n = 16
    x = rows(np.zeros(n))
    expected = np.zeros(n)
    counts = []
    for k in range(n_updates):
        x[k % n] += 1
        expected[k % n] += 1
        if k % 500 == 499:
            counts.append(tasks_of_scheduler(cluster4))
    np.testing.assert_array_equal(np.asarray(x), expected)
    # Two intervals of steps on four tiles, and two windows that wait for their turn.
    assert max(counts) < 4 * 2 * dx.config.get("lineage-interval") + 3 * dx.config.get("window")
    del x
    gc.collect()
    eventually(lambda: tasks_of_scheduler(cluster4) == 0)


def test_lineage_stays_bounded_in_a_loop_of_evaluations(cluster4: Any) -> None:
    x = rows(np.zeros((8, 8)))
    counts = []
    with dx.config.set(lineage_interval=10):
        for k in range(200):
            x += 1
            assert float(x[0, 0]) == k + 1  # the client does not run ahead
            counts.append(tasks_of_scheduler(cluster4))
    np.testing.assert_array_equal(np.asarray(x), np.full((8, 8), 200.0))
    # Cuts are made in the background: a few intervals, of 200 * 4 tasks and more without them.
    assert max(counts) < 60 * 4


# -- snapshots and exports -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [16, 1 << 18])
def test_nothing_is_shared_with_the_users_arrays(client: Any, n: int) -> None:
    a = np.arange(float(n))
    x = rows(a)
    y = x + a
    x.persist()
    a[:] = -1
    host = np.asarray(x)
    block = x.local(1)
    held = block.copy()
    assert not block.flags.writeable
    x += 1
    x[3:7] = 0
    x.persist()
    np.testing.assert_array_equal(host, np.arange(float(n)))
    np.testing.assert_array_equal(block, held)
    np.testing.assert_array_equal(np.asarray(y), 2 * np.arange(float(n)))
    again = np.array(x)
    again[:] = 7
    assert float(x[0]) == 1
    assert (a == -1).all()


def test_updates_are_functional_on_a_cluster(cluster4: Any) -> None:
    """B-7: workers that are threads of this process see the same memory, and never write to it."""
    x = rows(np.arange(1 << 16) * 1.0)
    y = x + 0
    y.persist()
    old = y.copy()
    blocks = [np.asarray(y.local(m)) for m in range(4)]
    before = [b.copy() for b in blocks]
    for _ in range(3):
        y += 1
        y[::2] *= 2
        y.persist()
    for b, value in zip(blocks, before, strict=True):
        np.testing.assert_array_equal(b, value)
    np.testing.assert_array_equal(np.asarray(old), np.arange(1 << 16))


# -- inside tasks --------------------------------------------------------------------------------------------------


def test_dx_works_inside_the_tasks_of_others(client: Any) -> None:
    """DESIGN 4: no team, no pool, no default Client."""

    def inside(n: int) -> tuple[Any, ...]:
        import numpy as np

        import distarray as dx

        x = dx.arange(float(n))
        y = x[::-1]
        y[: n // 2] *= 2
        x[x > 3] += 1
        return dx.current_team(), x.team, float(x.sum()), np.asarray(x.reshape(-1, 2) @ dx.ones((2, 2)))

    found = [f.result(30) for f in [client.submit(inside, n) for n in (10, 100_000)]]
    for n, (current, team, total, product) in zip((10, 100_000), found, strict=True):
        a = np.arange(float(n))
        a[::-1][: n // 2] *= 2
        a[a > 3] += 1
        assert current is team is None
        np.testing.assert_allclose(total, a.sum())
        np.testing.assert_allclose(product, a.reshape(-1, 2) @ np.ones((2, 2)))


def test_dx_works_inside_map_blocks(client: Any) -> None:
    def function(block: Any) -> Any:
        import numpy as np

        import distarray as dx

        x = dx.asarray(block)
        assert x.team is None
        x[1:] += 1
        return np.asarray(x - x.mean())

    a = np.arange(48.0).reshape(16, 3)
    x = rows(a)
    found = np.asarray(dx.map_blocks(function, x, dtype="f8"))
    expected = []
    bounds = [s.start for s in (x.local(m).global_slices[0] for m in range(dx.current_team().size))]
    for block in np.split(a, bounds[1:]):
        b = block.copy()
        b[1:] += 1
        expected.append(b - b.mean())
    np.testing.assert_allclose(found, np.concatenate(expected))


# -- pickles and Dask ----------------------------------------------------------------------------------------------


def test_arrays_are_pickled_within_their_client(client: Any) -> None:
    a = np.arange(160_000.0)  # small ones never leave the client
    x = (rows(a) * 1).persist()
    assert all(hasattr(block, "key") for block in x._node().memo.blocks)
    y = x * 2
    view = x[3:9]
    x2, y2, view2 = pickle.loads(pickle.dumps((x, y, view)))
    view2 += 1
    x += 100
    np.testing.assert_array_equal(np.asarray(y2), a * 2)
    a2 = a.copy()
    a2[3:9] += 1
    np.testing.assert_array_equal(np.asarray(x2), a2)
    np.testing.assert_array_equal(np.asarray(x), a + 100)
    del x, y, view
    gc.collect()
    np.testing.assert_array_equal(np.asarray(x2), a2)
    z = copy.deepcopy(x2)
    z[:] = 0
    np.testing.assert_array_equal(np.asarray(x2), a2)


def test_published_arrays_are_got_by_name(cluster4: Any) -> None:
    """Dask looks at what it gets in its event loop, where no array can wait for anything."""
    host = np.arange(40_000.0)
    with dx.config.set(block_bytes=0):
        x = dx.asarray(host) * 2
        x.persist()
        cluster4.publish_dataset(persisted=x, pending=x + 1)
        del x
        try:
            with distributed.Client(cluster4.scheduler.address, set_as_default=False) as other:
                for client in (cluster4, other):
                    np.testing.assert_array_equal(np.asarray(client.get_dataset("persisted")), host * 2)
                    np.testing.assert_array_equal(np.asarray(client.get_dataset("pending")), host * 2 + 1)
        finally:
            cluster4.unpublish_dataset("persisted")
            cluster4.unpublish_dataset("pending")


def test_dask_arrays_are_operands_that_are_not_computed_at_the_call(cluster4: Any) -> None:
    import dask.array as da

    x, y, a = dx.arange(6.0), da.arange(6.0, chunks=3), np.arange(6.0)
    z = dx.zeros(6)
    with counting() as counted:
        sums = [x + y, y + x, np.add(y, x), dx.add(x, y), np.concatenate([x, y]), dx.asarray(y) - x]
        sums.append(np.where(y > 2, x, 0))
        z[...] = y
        z += y
    assert counted.tasks == 0
    expected = [2 * a, 2 * a, 2 * a, 2 * a, np.concatenate([a, a]), a - a, np.where(a > 2, a, 0)]
    for found, values in zip([*sums, z], [*expected, 2 * a]):
        assert isinstance(found, dx.DistArray)
        np.testing.assert_array_equal(np.asarray(found), values)
    with pytest.raises(TypeError, match=r"out= is a dask\.array"):
        np.multiply(x, 2, out=y)
    np.testing.assert_array_equal((x.to_dask_array() + da.arange(6.0, chunks=3)).compute(), 2 * a)


@pytest.mark.parametrize("client", ["foo", 3, object()])
def test_a_team_of_what_is_no_client_is_refused(client: Any) -> None:
    with pytest.raises(TypeError, match=r"client=.* must be a distributed.Client"):
        dx.Team((2,), ("x",), client)


def test_dask_computes_arrays_and_changes_no_handle(client: Any) -> None:
    import dask
    import dask.array as da

    a = np.arange(32.0)
    x = rows(a).persist()
    y = x[1:] * 2
    x += 1
    lazy = dask.delayed(np.sum)(y)
    before = (x._base.version, x._node().memo, y._node().memo, y._node().operands)
    found = dask.compute(x, y, lazy, da.arange(10, chunks=5).sum())
    np.testing.assert_array_equal(found[0], a + 1)
    np.testing.assert_array_equal(found[1], a[1:] * 2)
    assert found[2:] == ((a[1:] * 2).sum(), 45)
    np.testing.assert_array_equal(client.compute(x).result(30), a + 1)
    (kept,) = dask.persist(y)
    assert (x._base.version, x._node().memo, y._node().memo, y._node().operands) == before
    lazy_x = dask.delayed(np.sum)(x)
    x += 1
    x.persist()
    assert lazy_x.compute() == (a + 1).sum()
    np.testing.assert_array_equal(np.asarray(kept), a[1:] * 2)
    kept += 1
    np.testing.assert_array_equal(np.asarray(kept), a[1:] * 2 + 1)
    np.testing.assert_array_equal(np.asarray(client.persist(x)), a + 2)
    np.testing.assert_array_equal(dask.compute(x)[0], a + 2)
    np.testing.assert_array_equal(np.asarray(y), a[1:] * 2)


# -- errors and warnings -------------------------------------------------------------------------------------------


def fails() -> Callable[[Any], Any]:
    """Workers that are processes cannot import this file."""

    def failing(block: Any) -> Any:
        raise KeyError("no such thing")

    return failing


@pytest.mark.parametrize("name", ["svd", "lstsq"])
def test_what_may_fail_goes_on_with_what_ran_before_it(client: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run of the factors hands the triangle on to that of the decomposition, which would make it again."""
    monkeypatch.setattr(programs, "SMALL", 1000)  # what is larger waits
    host = np.random.default_rng(0).standard_normal((2000, 6))
    x = rows(host)
    with dx.testing.counting() as counted:
        if name == "svd":
            found = dx.linalg.svd(x, full_matrices=False)
        else:
            found = dx.linalg.lstsq(x, x @ np.arange(6.0))
    times: Counter[str] = Counter()
    for (kernel, *_), n in counted.kernels.items():
        times[kernel] += n
    n = len(client.ncores())
    assert n < times["qr_tile"] + times["qr_r_tile"] <= 2 * n  # those of the rows, and those of their triangles
    if name == "svd":
        u, s, vh = map(np.asarray, found)
        np.testing.assert_allclose((u * s) @ vh, host, atol=1e-12)
    else:
        np.testing.assert_allclose(np.asarray(found[0]), np.arange(6.0), atol=1e-12)


def test_what_is_handed_on_takes_no_memory_that_there_is_not(cluster4: Any) -> None:
    """Runs that make in parts what both of them read fit where they would not if the first one kept it as a whole."""
    x = dx.sort(dx.random.default_rng(0).standard_normal((40_000, 10)), axis=1)
    y = x[:, None, :] * dx.asarray(np.arange(1.0, 5.0)[:, None])
    with dx.config.set({"errors": "deferred", "memory-limit": y.nbytes // 4 + (400 << 10)}):
        z = dx.linalg.cholesky(x.T @ x)
        del x
        dx.compute(y, z)
    host = np.asarray(y[:, 0])
    np.testing.assert_allclose(np.asarray(z), np.linalg.cholesky(host.T @ host))


def test_operations_that_may_raise_do_it_at_the_call(client: Any) -> None:
    a = rows(-np.eye(8))
    with pytest.raises(np.linalg.LinAlgError):
        dx.linalg.cholesky(a)
    x = rows(np.arange(16.0))
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError, match="divide"):
        1 / x
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError, match="divide"):
        x[:] = 1 / x
    with pytest.raises(KeyError, match="no such thing"):
        dx.map_blocks(fails(), x, dtype="f8")
    np.testing.assert_array_equal(np.asarray(x), np.arange(16.0))


def test_an_exception_names_the_operation_and_the_users_line(client: Any) -> None:
    x = rows(np.arange(16.0))
    with pytest.raises(KeyError) as caught:
        dx.map_blocks(fails(), x, dtype="f8")
    assert any("map_blocks" in n and __file__ in n for n in caught.value.__notes__)


def test_deferred_errors_are_raised_by_the_observation_alone(client: Any) -> None:
    a = np.arange(16.0)
    x = rows(a)
    with dx.config.set(errors="deferred"):
        good = x + 1
        bad = dx.map_blocks(fails(), x, dtype="f8")
        worse = bad + good
        with pytest.raises(KeyError):
            worse.compute()
        np.testing.assert_array_equal(np.asarray(good), a + 1)
        with dx.config.set(window=2):
            many = [x + k for k in range(8)]
            for k, y in enumerate(many):
                np.testing.assert_array_equal(np.asarray(y), a + k)
        with pytest.raises(KeyError):
            bad.compute()


def test_what_a_failing_call_needed_is_not_lost_with_it(client: Any) -> None:
    a = np.arange(16.0)
    x = rows(a)
    b = x * 3
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError):
        1 / b
    np.testing.assert_array_equal(np.asarray(b), a * 3)
    b += 1
    np.testing.assert_array_equal(np.asarray(b), a * 3 + 1)


def test_a_failed_write_leaves_the_array_as_it_was(client: Any) -> None:
    a = np.arange(16.0)
    x = rows(a)
    view = x[2:]
    with pytest.raises(ValueError, match="broadcast"):
        x[:3] = np.ones(4)
    with pytest.raises(IndexError):
        x[16] = 0
    with pytest.raises(TypeError):
        x += 1j
    with pytest.raises(KeyError):
        view[:] = dx.map_blocks(fails(), view, dtype="f8")
    with np.errstate(all="raise"), pytest.raises(FloatingPointError):
        x //= x
    np.testing.assert_array_equal(np.asarray(x), a)
    view += 1
    a[2:] += 1
    np.testing.assert_array_equal(np.asarray(x), a)


def test_a_floating_point_warning_names_the_users_line(client: Any) -> None:
    x = rows(np.arange(16.0) % 4)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        y = 1 / x
        y.persist()
        np.asarray(y)
        eventually(lambda: caught)
    line = test_a_floating_point_warning_names_the_users_line.__code__.co_firstlineno + 4
    (warning,) = caught
    assert warning.category is RuntimeWarning
    assert "divide by zero encountered in divide" in str(warning.message)
    assert (warning.filename, warning.lineno) == (__file__, line)


def test_errstate_ignore_is_that_of_the_definition(client: Any) -> None:
    x = rows(np.arange(16.0))
    with np.errstate(divide="ignore"):
        y = 1 / x
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert float(y[0]) == np.inf


# -- threads, interrupts -------------------------------------------------------------------------------------------


def test_threads_compute_on_shared_and_on_own_arrays(cluster4: Any) -> None:
    n = 64
    a = np.arange(float(n))
    shared = rows(a)
    derived = shared * 2
    results: dict[int, float] = {}

    def compute(k: int) -> None:
        own = rows(np.full(n, float(k)))
        for i in range(20):
            own += shared
            own[i % n] = derived[3]
            if i % 7 == 0:
                float(own.sum())
        results[k] = float((own + derived).sum())

    threads = [threading.Thread(target=compute, args=(k,), daemon=True) for k in (1, 2, 3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
        assert not t.is_alive(), "deadlock"
    for k in (1, 2, 3):
        own = np.full(n, float(k))
        for i in range(20):
            own += a
            own[i % n] = 6.0
        np.testing.assert_allclose(results[k], (own + a * 2).sum(), rtol=1e-12)


# Python cannot raise Ctrl-C out of a finalizer (of distributed's Future, say): it reports and drops it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_ctrl_c_leaves_arrays_usable_and_never_half_a_step(cluster4: Any) -> None:
    x = rows(np.zeros(64))
    x.persist()
    value = interrupted = 0
    former = signal.signal(signal.SIGALRM, lambda *_: _thread.interrupt_main())
    try:
        for k in range(60):
            try:
                signal.setitimer(signal.ITIMER_REAL, 3e-4 * (k % 30 + 1))
                x += 1
                np.asarray(x)
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                interrupted += 1
            signal.setitimer(signal.ITIMER_REAL, 0)
            found = np.asarray(x)
            np.testing.assert_array_equal(found, found[0])
            assert found[0] in (value, value + 1)
            value = int(found[0])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)
    assert interrupted > 5
    x += 1
    np.testing.assert_array_equal(np.asarray(x), np.full(64, value + 1.0))


# -- memory --------------------------------------------------------------------------------------------------------


def test_an_array_of_four_times_the_memory_limit_streams(cluster4: Any) -> None:
    """B-18."""
    limit = 4 << 20
    team = dx.current_team()
    n = limit * 4 * team.size // 8
    with dx.config.set(memory_limit=limit):
        x = dx.fromfunction(lambda i: np.sin(i), (n,), dtype="f8")
        with counting():
            mean, std = float(x.mean()), float(x.std())
        assert x._node().memo is None
    expected = np.sin(np.arange(float(n)))
    np.testing.assert_allclose([mean, std], [expected.mean(), expected.std()], atol=1e-12)
    stored = cluster4.run(lambda dask_worker: sum(dask_worker.data.get(k).nbytes for k in list(dask_worker.data)))
    assert sum(stored.values()) < limit


@pytest.mark.parametrize("members", [(0, 1), ("a", "b")])
def test_members_that_can_be_no_workers_are_refused_before_anything_is_made(client: Any, members: Any) -> None:
    team = dx.Team(2, "x", client, members)
    with counting() as c, pytest.raises(dx.ShardingError, match="is no address of a worker"):
        dx.asarray(np.arange(4), team=team)
    assert c.tasks == 0


@pytest.mark.parametrize(
    ("ufunc", "index", "value"), [("add", [0, 1], -np.inf), ("divide", [0], np.inf), ("multiply", [19], 0.0)]
)
def test_updates_at_positions_heed_the_floating_point_state(client: Any, ufunc: str, index: Any, value: float) -> None:
    a = np.full(20, np.inf)
    update = getattr(np, ufunc).at
    with dx.config.set(block_bytes=0, eager_bytes=0):
        x = rows(a) + 0
        with np.errstate(all="raise"), pytest.raises(FloatingPointError, match=f"invalid value encountered in {ufunc}"):
            update(x, index, value)
        np.testing.assert_array_equal(np.asarray(x), a)
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("error")
            update(x, index, value)
            update(a, index, value)
            np.testing.assert_array_equal(np.asarray(x), a)
