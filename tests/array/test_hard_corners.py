"""Where deferred, shared and parallel meet: retries, exports, threads, pickles, Dask, errors, interrupts, memory."""

from __future__ import annotations

import _thread
import copy
import gc
import inspect
import pickle
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from dask._task_spec import Alias, Task, TaskRef
from helpers import peak_nbytes

import distarray as dx
from distarray.array import window
from distarray.composed.blockwise import map_blocks
from distarray.runtime import exports, running

TEAM = dx.Team((4,), ("R",))
#: Small arrays are plain calls, large ones tasks on the pool, middling ones tasks in the calling thread.
SIZES = {"plain": 16, "inline": 64, "pool": 1 << 18}


def rows(values: np.ndarray) -> dx.DistArray:
    return dx.asarray(values, team=TEAM, sharding=("R",) + (None,) * (values.ndim - 1))


@pytest.fixture(params=list(SIZES))
def make(request: pytest.FixtureRequest) -> Callable[[], tuple[np.ndarray, dx.DistArray]]:
    """A numpy array and the DistArray of it, whose blocks are its own; one for each way of evaluating."""

    def made() -> tuple[np.ndarray, dx.DistArray]:
        a = np.arange(float(SIZES[request.param]))
        x = dx.asarray(a) if request.param == "plain" else rows(a)
        # Blocks of the snapshot are parts of one array; these are not.
        x += 0
        return a, x.persist()

    return made


# -- 1. retries ----------------------------------------------------------------------------------------------------


def run_twice(x: dx.DistArray) -> np.ndarray:
    """The value of `x` from its functional tasks, each of which runs two times on the same inputs."""
    node = x._node()
    assert node.memo is None
    name, graph, sharding = exports.graph_of(node)
    results: dict[Any, Any] = {}

    def value(a: Any) -> Any:
        return results[a.key] if isinstance(a, Alias | TaskRef) else a  # an alias in old releases of dask

    for key, task in graph.items():
        if isinstance(task, Task):
            args = [value(a) for a in task.args]
            lost = task.func(*args)
            del lost
            results[key] = task.func(*args)
        else:
            results[key] = results[task.target] if hasattr(task, "target") else task.value
    out = np.empty(x.shape, x.dtype)
    for tile in sharding.tiles():
        out[sharding.tile_slices(x.shape, tile)] = results[name, *tile]
    return out


def _plus_one(x: Any, a: np.ndarray) -> Any:
    x += 1
    return x


def _slices(x: Any, a: np.ndarray) -> Any:
    x[2:-3] *= 3
    x[::-2] = x[::2] + 1
    x[1:] = x[:-1]
    return x


def _masks(x: Any, a: np.ndarray) -> Any:
    x[a > 5] += 2
    x[x > 20] = -1
    return x


def _repeated(x: Any, a: np.ndarray) -> Any:
    x[[0, 0, 13, 0]] += 1
    return x


def _at_add(x: Any, a: np.ndarray) -> Any:
    if isinstance(x, np.ndarray):
        y = x.copy()
        np.add.at(y, [0, 0, 13, 0], 1)
        return y
    return x.at[[0, 0, 13, 0]].add(1)


def _matmul(x: Any, a: np.ndarray) -> Any:
    m = x.reshape(-1, 2)
    m[1:5] += m[2:6] @ np.array([[1.0, 2.0], [3.0, 4.0]])
    return x


@pytest.mark.parametrize("window", [0, 512])
@pytest.mark.parametrize("step", [_plus_one, _slices, _masks, _repeated, _at_add, _matmul])
def test_writes_that_run_twice_apply_once(step: Callable[..., Any], window: int) -> None:
    """B-37: what a retry of every task computes; on a cluster tasks are these."""
    a = np.arange(32.0)
    x = rows(a) + 0
    x.compute()
    before = [b.copy() for b in x._node().memo.blocks]
    held = x._node().memo.blocks
    y = x.copy()
    with dx.config.set(window=512):
        y = step(y, a)
        np.testing.assert_array_equal(run_twice(y), step(a.copy(), a))
    for block, old in zip(held, before, strict=True):
        np.testing.assert_array_equal(block, old)


# -- 2. what was handed out ----------------------------------------------------------------------------------------


def test_a_block_that_was_handed_out_stays_the_arrays(make: Any) -> None:
    """C-8: local and np.asarray of one block are its memory, before and after it is written; of several, a copy."""
    a, x = make()
    n_members = x._env.size if x._known_sharding().n_tiles > 1 else 1
    blocks = [x.local(m) for m in range(n_members)]
    host, before = np.asarray(x), a.copy()
    x += 1
    x[3:9] *= 2
    x[[0, 0]] -= 1
    x.persist()
    a += 1
    a[3:9] *= 2
    a[[0, 0]] -= 1
    for block in blocks:
        np.testing.assert_array_equal(block, a[block.global_slices])
        block[-1] = 77
        a[block.global_slices][-1] = 77
    np.testing.assert_array_equal(host, a if host.flags.writeable else before)
    np.testing.assert_array_equal(np.asarray(x), a)


def test_an_array_exported_by_dlpack_is_its_memory() -> None:
    x = dx.arange(16.0)
    x += 1
    y = np.from_dlpack(x)
    memory = memoryview(np.from_dlpack(x))
    x += 1
    x[2:5] = 0
    expected = np.arange(2.0, 18.0)
    expected[2:5] = 0
    np.testing.assert_array_equal(y, expected)
    np.testing.assert_array_equal(np.asarray(memory), expected)
    np.testing.assert_array_equal(x.compute(), expected)


def test_what_is_written_to_a_local_block_is_read_back(make: Any) -> None:
    """B-45: also after elements were read one by one, which keeps some of them here."""
    a, x = make()
    assert [float(x[i]) for i in range(4)] == [0, 1, 2, 3]
    x.local(0)[1] = 50.0
    assert [float(x[i]) for i in range(4)] == [0, 50, 2, 3]
    a[1] = 50.0
    np.testing.assert_array_equal(np.asarray(x), a)


def test_a_literal_is_read_at_the_call_and_never_written(make: Any) -> None:
    """B-1."""
    a, x = make()
    literal = np.full(a.shape, 2.0)
    y = x * literal
    z = literal - x
    literal[:] = 0
    y += 1
    z += 1
    np.testing.assert_array_equal(np.asarray(y), a * 2 + 1)
    np.testing.assert_array_equal(np.asarray(z), 2 - a + 1)
    assert not literal.any()


@pytest.mark.parametrize("n", [16, 1 << 20])
@pytest.mark.parametrize("pinned", [False, True])
def test_asarray_is_a_snapshot(n: int, pinned: bool) -> None:
    a = np.arange(float(n))
    with dx.config.set(block_bytes="1 MiB"):
        assert pinned or n < 100 or a.nbytes > dx.asarray(a)._env.block_nbytes
        x = rows(a) if pinned else dx.asarray(a)
        y = x + 1
        a[:] = -1
        np.testing.assert_array_equal(np.asarray(x), np.arange(float(n)))
        np.testing.assert_array_equal(np.asarray(y), np.arange(float(n)) + 1)


@pytest.mark.parametrize("n", [16, 1 << 19])
@pytest.mark.parametrize("given_away", [None, False])
def test_steps_in_place_leave_the_users_numpy_array_alone(n: int, given_away: bool | None) -> None:
    a = np.arange(float(n))
    x = dx.asarray(a, copy=given_away)
    x += 1
    x[3:7] = -5
    x[[1, 1]] *= 2
    x.persist()
    x += 1
    x.persist()
    np.testing.assert_array_equal(a, np.arange(float(n)))


def test_pending_work_reads_what_a_write_in_place_would_overwrite(make: Any) -> None:
    """B-7, with every kind of pending reader: shorter-lived, older, a view, in another thread."""
    a, x = make()
    y = x * 2
    v = x[1:5]
    w = v + 1
    results: list[dx.DistArray] = []
    other = threading.Thread(target=lambda: results.append(x * 3))
    other.start()
    other.join(30)
    x += 1
    x.persist()
    x[2:4] = 0
    x.persist()
    np.testing.assert_array_equal(np.asarray(y), a * 2)
    np.testing.assert_array_equal(np.asarray(w), a[1:5] + 1)
    np.testing.assert_array_equal(np.asarray(results[0]), a * 3)


def test_a_pending_array_that_streams_is_not_overtaken_by_a_write() -> None:
    """What is too large to be kept stays pending over a flush, and still reads the old version."""
    x = rows(np.arange(1024.0)) + 0
    x.persist()
    with dx.config.set(memory_limit=1 << 18):
        y = x[:, None] * np.ones(1024)
        dx.config.get("window")
        with dx.config.set(window=1):
            for _ in range(3):
                x += 1
                x.persist()
        assert float(y[5, 7]) == 5.0
        assert float(y.sum()) == 1023 * 512 * 1024.0


# -- 3. threads ----------------------------------------------------------------------------------------------------


def in_threads(*functions: Callable[[], Any], seconds: float = 60) -> list[Any]:
    """The results of functions that run at the same time."""
    results: list[Any] = [None] * len(functions)
    errors: list[BaseException] = []

    def call(i: int) -> None:
        try:
            results[i] = functions[i]()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=call, args=(i,), daemon=True) for i in range(len(functions))]
    for t in threads:
        t.start()
    for t in threads:
        t.join(seconds)
        assert not t.is_alive(), "deadlock"
    if errors:
        raise errors[0]
    return results


@pytest.mark.parametrize("turns", [100, pytest.param(300, marks=pytest.mark.slow)])
def test_handles_may_die_in_another_thread_during_a_flush(turns: int) -> None:
    over = threading.Event()

    class Cycle:
        def __init__(self, array: dx.DistArray) -> None:
            self.array = array
            self.itself = self

    def collect() -> None:
        while not over.is_set():
            gc.collect()

    def compute() -> float:
        try:
            x = rows(np.zeros(4096))
            total = 0.0
            with dx.config.set(window=16):
                for k in range(turns):
                    Cycle(x + k)
                    Cycle(x[1:5])
                    x[k % 4096] += 1
                    if k % 50 == 0:
                        total = float(x.sum())
            total = float(x.sum())
        finally:
            over.set()
        return total

    # What other tests left is not looked at again: each collection would stop the other thread for so long.
    gc.collect()
    gc.freeze()
    try:
        assert in_threads(collect, compute)[1] == turns
    finally:
        gc.unfreeze()


@pytest.mark.parametrize("n", [16, 1 << 16])
def test_threads_compute_on_shared_and_on_own_arrays(n: int) -> None:
    a = np.arange(float(n))
    shared = rows(a)
    derived = shared * 2  # pending in this thread

    def work(k: int) -> Callable[[], float]:
        def compute() -> float:
            own = rows(np.full(n, float(k)))
            for i in range(40):
                own += shared
                own[i % n] = derived[3]
                if i % 7 == 0:
                    float(own.sum())
            return float((own + derived).sum())

        return compute

    found = in_threads(work(1), work(2), work(3))
    for k, value in zip((1, 2, 3), found, strict=True):
        own = np.full(n, float(k))
        for i in range(40):
            own += a
            own[i % n] = 6.0
        np.testing.assert_allclose(value, (own + a * 2).sum(), rtol=1e-12)


# -- 4. inside tasks -----------------------------------------------------------------------------------------------


def _with_arrays(block: np.ndarray) -> np.ndarray:
    x = dx.asarray(block)
    assert x.team is None
    assert dx.current_team() is None
    y = x.copy()
    y[1:] += x[:-1]
    return np.asarray(y - y.mean())


@pytest.mark.parametrize("n", [16, 1 << 18])
def test_dx_works_inside_map_blocks(n: int) -> None:
    """DESIGN 4: inside a task there is no team, and its lock is not waited for."""
    a = np.arange(float(n))
    (found,) = in_threads(lambda: np.asarray(map_blocks(_with_arrays, rows(a), dtype="f8")))
    expected = []
    for block in np.split(a, 4):
        y = block.copy()
        y[1:] += block[:-1]
        expected.append(y - y.mean())
    np.testing.assert_allclose(found, np.concatenate(expected), rtol=1e-12)


# -- 5. pickles ----------------------------------------------------------------------------------------------------


def roundtrip(*objects: Any) -> Any:
    return pickle.loads(pickle.dumps(objects))


def test_pickled_views_alias_their_base_as_before(make: Any) -> None:
    a, x = make()
    view, flipped, scalar = x[2:9], x[::-1], x[4, ...]
    x2, view2, flipped2, scalar2 = roundtrip(x, view, flipped, scalar)
    view2 *= 10
    flipped2[0] = -1
    assert float(scalar2) == 40
    expected = a.copy()
    expected[2:9] *= 10
    expected[-1] = -1
    np.testing.assert_array_equal(np.asarray(x2), expected)
    np.testing.assert_array_equal(np.asarray(x), a)
    assert dx.shares_memory(x2, view2)
    assert not dx.shares_memory(x, x2)


def test_a_pending_pickle_is_not_overtaken_by_a_write(make: Any) -> None:
    """Arrays and what is pending on them share blocks in the pickle too."""
    a, x = make()
    y = x * 2
    x2, y2 = roundtrip(x, y)
    x2 += 1
    x2.persist()
    x2 += 1
    x2.persist()
    np.testing.assert_array_equal(np.asarray(y2), a * 2)
    np.testing.assert_array_equal(np.asarray(x2), a + 2)


def test_pending_chains_of_any_length_travel() -> None:
    x = rows(np.arange(16.0))
    with dx.config.set(window=100_000):
        y = x
        for _ in range(5000):
            y = y + 1
        (z,) = roundtrip(y)
        assert y._node().memo is None
        np.testing.assert_array_equal(np.asarray(z), np.arange(16.0) + 5000)
    for array in (y, z):
        np.testing.assert_array_equal(np.asarray(array), np.arange(16.0) + 5000)


def test_a_deepcopy_aliases_nothing(make: Any) -> None:
    a, x = make()
    y = copy.deepcopy(x)
    z = copy.deepcopy({"x": x, "view": x[1:3]})
    y += 1
    z["view"][:] = 9
    np.testing.assert_array_equal(np.asarray(x), a)
    np.testing.assert_array_equal(np.asarray(y), a + 1)


# -- 6. Dask collections -------------------------------------------------------------------------------------------


def state_of(x: dx.DistArray) -> tuple[Any, ...]:
    return x._base.version, x._base.expr, x._node().memo, x._node().operands


def test_dask_computes_arrays_and_changes_no_handle(make: Any) -> None:
    import dask
    import dask.array as da

    a, x = make()
    y = x[1:] * 2
    x += 1  # y is older
    v = x[::2]
    before = [state_of(h) for h in (x, y, v)]
    d = da.arange(10, chunks=5).sum()
    double = dask.delayed(lambda n: 2 * n)(21)
    found = dask.compute(x, y, v, d, double, {"nested": [y]})
    np.testing.assert_array_equal(found[0], a + 1)
    np.testing.assert_array_equal(found[1], a[1:] * 2)
    np.testing.assert_array_equal(found[2], (a + 1)[::2])
    assert found[3:5] == (45, 42)
    np.testing.assert_array_equal(found[5]["nested"][0], a[1:] * 2)
    assert all(type(f) is np.ndarray for f in found[:3])
    assert [state_of(h) for h in (x, y, v)] == before
    x += 1
    assert dask.compute(x)[0][3] == 5
    np.testing.assert_array_equal(np.asarray(x), a + 2)
    np.testing.assert_array_equal(found[0], a + 1)


def test_a_dask_graph_names_the_version_of_the_time_of_asking(make: Any) -> None:
    import dask

    a, x = make()
    lazy = dask.delayed(np.sum)(x)
    y = x + 1
    later = dask.delayed(np.sum)(y)
    graph = x.__dask_graph__()
    x += 1
    x.persist()
    y[:] = 0
    y.persist()
    assert lazy.compute() == a.sum()
    assert later.compute() == (a + 1).sum()
    values = [v for v in dask.get(graph, list(graph)) if isinstance(v, np.ndarray) and v.size]
    np.testing.assert_array_equal(np.sort(np.concatenate(values)), a)


def test_dask_persist_gives_an_array_and_changes_no_handle(make: Any) -> None:
    import dask

    a, x = make()
    y = x * 3
    before = state_of(y)
    (z,) = dask.persist(y)
    assert state_of(y) == before
    assert type(z) is dx.DistArray
    assert z.shape == y.shape
    assert z.dtype == y.dtype
    z += 1
    np.testing.assert_array_equal(np.asarray(z), a * 3 + 1)
    np.testing.assert_array_equal(np.asarray(y), a * 3)


def test_dask_tokens_tell_versions_apart(make: Any) -> None:
    from dask.base import tokenize

    _, x = make()
    first = tokenize(x)
    assert first == tokenize(x)
    view = tokenize(x[1:])
    assert view != first
    x += 1
    assert tokenize(x) != first


# -- 8. errors that try catches, and floating point state ----------------------------------------------------------


def here() -> int:
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return frame.f_back.f_lineno


def test_cholesky_raises_at_the_call() -> None:
    a = dx.asarray(-np.eye(4))
    with pytest.raises(np.linalg.LinAlgError):
        dx.linalg.cholesky(a)


def test_deferred_errors_are_raised_by_the_observation() -> None:
    with dx.config.set(errors="deferred"):
        lower = dx.linalg.cholesky(dx.asarray(-np.eye(4)))
        with pytest.raises(np.linalg.LinAlgError):
            lower.compute()


def test_errstate_raise_reaches_the_tasks_at_the_call(make: Any) -> None:
    a, x = make()
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError, match="divide"):
        1 / x
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError, match="divide"):
        x[:] = 1 / x
    np.testing.assert_array_equal(np.asarray(x), a)


def test_a_floating_point_warning_names_the_users_line_once(make: Any) -> None:
    _, x = make()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        line = here() + 1
        y = 1 / (x % 4)  # all tiles divide by zero
        y.persist()
    assert [(w.category, str(w.message), w.filename, w.lineno) for w in caught] == [
        (RuntimeWarning, "divide by zero encountered in divide", __file__, line)
    ]


def test_errstate_ignore_is_that_of_the_definition(make: Any) -> None:
    _, x = make()
    with np.errstate(divide="ignore"):
        y = 1 / x
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert float(y[0]) == np.inf
    with np.errstate(all="ignore"):
        z = np.sqrt(x - 5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isnan(float(z[0]))


def test_a_write_in_place_that_warned_is_done_where_warnings_are_errors(make: Any) -> None:
    """No half of it: the warning is given when all is committed."""
    a, x = make()
    y = x - 5
    x -= 5
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeWarning, match="divide by zero"):
            x **= -1  # small arrays warn at the call
            x.persist()
    with np.errstate(divide="ignore"):
        np.testing.assert_array_equal(np.asarray(x), (a - 5) ** -1)
    np.testing.assert_array_equal(np.asarray(y), a - 5)


# -- 9. failures ---------------------------------------------------------------------------------------------------


def _fails(block: np.ndarray) -> np.ndarray:
    raise KeyError("no such thing")


def test_an_exception_in_a_task_names_the_operation_and_the_users_line(make: Any) -> None:
    _, x = make()
    with pytest.raises(KeyError, match="no such thing") as caught:
        map_blocks(_fails, x, dtype="f8")
    line = here() - 1
    assert any("map_blocks" in n and f"{__file__}:{line}" in n for n in caught.value.__notes__)


def test_what_does_not_depend_on_a_failure_is_evaluated(make: Any) -> None:
    """B-16, and at the end of a window too."""
    a, x = make()
    with dx.config.set(errors="deferred"):
        good = x + 1
        bad = map_blocks(_fails, x, dtype="f8")
        worse = bad + 1
        better = x * 2
        np.testing.assert_array_equal(np.asarray(good), a + 1)
        with pytest.raises(KeyError):
            worse.compute()
        np.testing.assert_array_equal(np.asarray(better), a * 2)
        with dx.config.set(window=2):
            both = [x + k for k in range(8)]
            for k, y in enumerate(both):
                np.testing.assert_array_equal(np.asarray(y), a + k)
        with pytest.raises(KeyError):
            bad.compute()


@pytest.mark.parametrize("window", [0, 1, 512])
def test_a_failed_write_leaves_the_array_as_it_was(make: Any, window: int) -> None:
    a, x = make()
    view = x[2:]

    def bad_kernel() -> None:
        x[:] = map_blocks(_fails, x, dtype="f8")

    def bad_division() -> None:
        with np.errstate(divide="raise"):
            view[...] = x[2:] / (x[2:] - 5)

    def bad_update() -> None:
        y = x
        with np.errstate(all="raise"):
            y //= x

    def assign(index: Any, value: Any) -> Callable[[], None]:
        return lambda: x.__setitem__(index, value)

    failures: list[tuple[type[Exception], Callable[[], Any]]] = [
        (ValueError, assign(slice(0, 3), np.ones(4))),
        (IndexError, assign(len(a), 0)),
        (IndexError, assign([0, len(a)], 0)),
        (IndexError, assign((0, 0), 0)),
        (ValueError, assign(slice(0, 2), "ab")),
        (TypeError, lambda: x.__iadd__(1j)),
        (ValueError, lambda: x.__iadd__(np.ones((2, len(a))))),
        (KeyError, bad_kernel),
        (FloatingPointError, bad_division),
        (FloatingPointError, bad_update),
    ]
    with dx.config.set(window=window):
        for error, write in failures:
            with pytest.raises(error):
                write()
            np.testing.assert_array_equal(np.asarray(x), a)
        view += 1
        a[2:] += 1
        np.testing.assert_array_equal(np.asarray(x), a)


# -- 10. Ctrl-C ----------------------------------------------------------------------------------------------------


@contextmanager
def interrupt_after(seconds: float) -> Iterator[None]:
    """Ctrl-C while the block runs, if it runs so long."""
    former = signal.signal(signal.SIGALRM, lambda *_: _thread.interrupt_main())
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)


def test_ctrl_c_in_a_kernel_leaves_everything_as_it_was(make: Any) -> None:
    a, x = make()

    def interrupted(block: np.ndarray) -> np.ndarray:
        raise KeyboardInterrupt

    pending = x * 2
    with pytest.raises(KeyboardInterrupt) as caught:
        x[1:] = map_blocks(interrupted, x[1:], dtype="f8")
    assert caught.tb is not None
    # The traceback keeps the interrupted arrays; no later evaluation may run their kernel again.
    window.flush()
    np.testing.assert_array_equal(np.asarray(x), a)
    np.testing.assert_array_equal(np.asarray(pending), a * 2)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # interrupts that Python loses
@pytest.mark.parametrize("n", [16, 1 << 14, 1 << 18])
def test_ctrl_c_never_leaves_half_a_step(n: int) -> None:
    """Steps in place overwrite blocks that are needed to try again: they are over, or not begun.

    NumPy's floating-point state is the user's all the time.
    """
    x = rows(np.zeros(n)) + 0 if n > 16 else dx.zeros(n) + 0
    x.persist()
    value, interrupted, delay = 0, 0, 1e-3
    for _ in range(3000):
        try:
            with interrupt_after(delay):
                x += 1
                x.persist()
        except KeyboardInterrupt:
            interrupted += 1
            delay *= 1.15
        else:
            delay = max(delay / 1.15, 1e-6)  # so that about every second step is interrupted, however fast the machine
        assert np.geterrcall() is None and np.geterr()["divide"] == "warn"
        found = np.asarray(x)
        np.testing.assert_array_equal(found, found[0])
        assert found[0] in (value, value + 1)
        value = int(found[0])
        if min(interrupted, value) > 50:
            break
    assert interrupted > 50
    assert value > 50


# -- 11. memory ----------------------------------------------------------------------------------------------------


def test_an_array_of_four_times_the_memory_limit_streams() -> None:
    """B-18."""
    limit = 8 << 20
    n = limit * 4 // 8
    with dx.config.set(memory_limit=limit):
        team = dx.Team((2,), ("R",))
        x = dx.fromfunction(lambda i: np.sin(i), (n,), dtype="f8", team=team)
        (mean, std), peak = peak_nbytes(lambda: (float(x.mean()), float(x.std())))
        assert x._node().memo is None
    expected = np.sin(np.arange(float(n)))
    np.testing.assert_allclose([mean, std], [expected.mean(), expected.std()], atol=1e-12)
    assert peak < limit * team.size
    assert peak < x.nbytes // 2


# -- 12. windows ---------------------------------------------------------------------------------------------------


def script(xp: Any, x: Any) -> list[Any]:
    """Views, writes, arithmetic, fancy indexing, on a matrix of shape (24, 6)."""
    y = x * 2 + 1
    v = y[2:20:3]
    old = y + 0
    v -= 1
    y[1:] = y[:-1]
    y[y > 90] = -3
    y[[0, 5, 5]] += x[[1, 2, 3]]
    y.T[2] = x[:, 1]
    z = xp.where(x > 30, y, x) // 3
    z[::-1] = z + xp.roll(x, 3, axis=0)
    for k in range(1, 24):
        z[k] = z[k - 1] * 0.5 + x[k]
    return [x, y, v, old, z, xp.max(z, axis=0), xp.sort(z, axis=0), (x @ x.T)[3], z.sum(), z.reshape(12, 12)[::5]]


@pytest.mark.parametrize("window", [0, 1, 7, 512])
def test_results_are_the_same_at_every_window(window: int) -> None:
    """B-17."""
    a = np.arange(144.0).reshape(24, 6)
    expected = script(np, a.copy())
    with dx.config.set(window=window):
        found = script(dx, rows(a))
        for f, e in zip(found, expected, strict=True):
            np.testing.assert_array_equal(np.asarray(f), e)


@pytest.mark.parametrize("value", [7.0, np.arange(62.0)], ids=["number", "array"])
def test_who_takes_over_a_block_waits_for_the_write_that_copies_it(value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sum takes over the block of its operand, of which a write keeps what it does not touch: both read it."""
    lowered: list[Any] = []
    real = running.instance_to_run
    monkeypatch.setattr(running, "instance_to_run", lambda *given: lowered.append(real(*given)) or lowered[-1])
    a = np.arange(64.0)
    x, w = ((rows(v) + 0).persist() for v in (a, a + 1))
    lowered.clear()
    y = x + w
    x[1:63] = value
    dx.persist(x, y)
    found = lowered[0].lowered
    assert len(lowered) == 1
    writes = {key for key in found.tasks if key[0].startswith("dx-put")}
    overwriting = {key for key in found.tasks if key[0].startswith("dx-add")}
    assert len(overwriting) == 4
    for key in overwriting:
        assert any(found.members[write] == found.members[key] for write in found.after.get(key, set()) & writes)
    expected = a.copy()
    expected[1:63] = value
    np.testing.assert_array_equal(np.asarray(x), expected)
    np.testing.assert_array_equal(np.asarray(y), a + a + 1)


@pytest.mark.parametrize("shape", [(10,), (300, 300), (1000, 1000)])
def test_an_array_that_came_in_a_pickle_is_an_operand(shape):
    """Nobody has asked for its node yet when an operation asks whether its memory may be written over."""
    x = np.arange(float(np.prod(shape))).reshape(shape)
    arrived = pickle.loads(pickle.dumps(dx.asarray(x)))
    np.testing.assert_array_equal(np.asarray(arrived + 1), x + 1)
    np.testing.assert_array_equal(np.asarray(2 - pickle.loads(pickle.dumps(dx.asarray(x)))), 2 - x)
