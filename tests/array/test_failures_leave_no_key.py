"""Whatever fails on a cluster, and however: no key of it stays on the scheduler."""

from __future__ import annotations

import os
import pathlib
import signal
import sys
import threading
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers import collected, eventually_equal, no_garbage_collected, some
from on_workers import keys_but_templates

import distarray as dx
from distarray.runtime.members import executor_for

distributed = pytest.importorskip("distributed")

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]


@pytest.fixture(params=["cluster4", "process_cluster"])
def client(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


def rows(values: np.ndarray) -> dx.DistArray:
    """Cut over the rows on all workers, and there."""
    team = dx.current_team()
    assert team is not None
    x = dx.asarray(values, sharding=(team.axes,) + (None,) * (values.ndim - 1))
    with dx.config.set(block_bytes=0):
        np.asarray(x + 1)
    return x


def keys_of_scheduler(client: Any) -> set[Any]:
    return set(client.run_on_scheduler(keys_but_templates))


def raising(error: type[BaseException], *args: Any) -> Callable[..., Any]:
    """Workers that are processes cannot import this file."""

    def function(*blocks: Any, **more: Any) -> Any:
        raise error(*args)

    return function


def unpicklable() -> Callable[..., Any]:
    def function(block: Any) -> Any:
        import threading

        raise ValueError("with a lock", threading.Lock())

    return function


def odd() -> Callable[..., Any]:
    def function(block: Any) -> Any:
        class Odd(ValueError):
            """Takes other arguments than those that it hands on."""

            def __init__(self, what: str, *, where: str) -> None:
                super().__init__(f"{what} {where}")

        raise Odd("odd", where="there")

    return function


def write_with(function: Callable[[Any], Any], x: dx.DistArray) -> None:
    x[1:] = dx.map_blocks(function, x[1:], dtype="f8")


def divide(x: dx.DistArray) -> None:
    with np.errstate(all="raise"):
        x //= x * 0


def budget(x: dx.DistArray) -> None:
    with dx.config.set(memory_limit=1 << 20):
        np.asarray(dx.linalg.cholesky(dx.eye(1000) + x.sum()))


def failing_chunks(x: dx.DistArray) -> None:
    import dask.array as da

    chunks = da.from_array(np.ones((64, 64)), chunks=16).map_blocks(raising(KeyError, "chunk"), dtype="f8")
    np.asarray(dx.from_dask(chunks) + x)


def deferred(x: dx.DistArray) -> None:
    with dx.config.set(errors="deferred"):
        y = dx.map_blocks(raising(KeyError, "late"), x, dtype="f8")
        z = y + x
        x[3:] = z[3:]
        np.asarray(z)  # takes back what was written to `x`


def giving_locks() -> Callable[..., Any]:
    def function(block: Any) -> Any:
        import threading

        import numpy as np

        result = np.empty(block.shape, object)
        result[...] = threading.Lock()
        return result

    return function


def user_kernel(x: dx.DistArray, error: type[BaseException] = KeyError) -> None:
    dx.map_tiles(raising(error, "tile"), x, names=("ij",), over={"x": "i"})


def to_nowhere(x: dx.DistArray) -> None:
    dx.save(pathlib.Path("/proc/nowhere/x.npy"), x + 1)


def to_a_folder(x: dx.DistArray) -> None:
    dx.save("/proc/x.npy", x + 1)


FAILURES: dict[str, tuple[type[BaseException], Callable[[dx.DistArray], Any]]] = {
    "map_blocks": (KeyError, lambda x: dx.map_blocks(raising(KeyError, "x"), x, dtype="f8")),
    "map_tiles": (KeyError, user_kernel),
    "map_overlap": (KeyError, lambda x: np.asarray(dx.map_overlap(raising(KeyError, "x"), x, depth=1, dtype="f8"))),
    "apply_along_axis": (ValueError, lambda x: np.asarray(dx.apply_along_axis(raising(ValueError, "no"), 1, x))),
    "apply_gufunc": (
        KeyError,
        lambda x: dx.apply_gufunc(raising(KeyError, "g"), "(i)->(i)", x, output_dtypes="f8", vectorize=True),
    ),
    "later use": (KeyError, lambda x: np.asarray((dx.map_blocks(raising(KeyError, 1), x + 1, dtype="f8") + x) @ x)),
    "memory": (MemoryError, lambda x: dx.map_blocks(raising(MemoryError, "no room"), x, dtype="f8")),
    "file": (FileNotFoundError, lambda x: dx.map_blocks(raising(FileNotFoundError, 2, "a", "b"), x, dtype="f8")),
    "odd": (ValueError, lambda x: dx.map_blocks(odd(), x, dtype="f8")),
    "exit": (RuntimeError, lambda x: dx.map_blocks(raising(SystemExit, 3), x, dtype="f8")),
    "interrupt in a task": (RuntimeError, lambda x: user_kernel(x, KeyboardInterrupt)),
    "unpicklable result": (TypeError, lambda x: dx.map_blocks(giving_locks(), x, dtype="f8")),
    "unpicklable": (Exception, lambda x: dx.map_blocks(unpicklable(), x, dtype="f8")),
    "wrong shape": (ValueError, lambda x: np.asarray(dx.map_blocks(lambda b: b[:, :1, None], x, dtype="f8"))),
    "cholesky": (np.linalg.LinAlgError, lambda x: np.asarray(dx.linalg.cholesky(-x @ x.T))),
    "solve": (np.linalg.LinAlgError, lambda x: np.asarray(dx.linalg.solve(x * 0, x))),
    "inv": (np.linalg.LinAlgError, lambda x: np.asarray(dx.linalg.inv(x * 0))),
    "errstate": (FloatingPointError, divide),
    "write": (KeyError, lambda x: write_with(raising(KeyError, "w"), x)),
    "write raised by numpy": (ValueError, lambda x: x.__setitem__(slice(3), np.ones((4, 64)))),
    "index": (IndexError, lambda x: x[dx.where(x[:, 0] >= 0, 10_000, 0)] + 1),
    "budget": (MemoryError, budget),
    "from_dask": (KeyError, failing_chunks),
    "deferred": (KeyError, deferred),
    "save nowhere": (OSError, to_nowhere),
    "save unwritable": (OSError, to_a_folder),
}


@pytest.mark.parametrize("kind", some(FAILURES))
def test_a_failure_leaves_no_key_on_the_scheduler(client: Any, kind: str) -> None:
    error, fail = FAILURES[kind]
    a = np.arange(64.0 * 64).reshape(64, 64)
    x = rows(a)
    eventually_equal(dx.current_team().size, lambda: len(keys_of_scheduler(client)))
    before = keys_of_scheduler(client)
    with no_garbage_collected():
        for _ in range(2):
            # What was raised lives no more where the except clause ends.
            try:
                fail(x)
            except error:
                pass
            else:
                raise AssertionError("nothing was raised")
            eventually_equal(before, lambda: keys_of_scheduler(client))
        np.testing.assert_array_equal(np.asarray(x), a)
        del x
        eventually_equal(set(), lambda: keys_of_scheduler(client))


def test_dropped_handles_of_what_runs_leave_no_key(client: Any) -> None:
    x = rows(np.arange(64.0 * 64).reshape(64, 64))
    with no_garbage_collected():
        for k in range(30):
            y = (x @ x + k).persist()
            z = dx.sort(y + x, axis=0)
            z.persist()
            del y, z
        del x
        eventually_equal(set(), lambda: keys_of_scheduler(client))


def test_a_worker_killed_beside_failures_leaves_no_key(mortal_cluster: Any) -> None:
    a = np.arange(64.0 * 64).reshape(64, 64)
    x = rows(a)
    with no_garbage_collected():
        for k in range(2):
            kill = mortal_cluster.run(os.getpid)
            y = (x @ x).persist()
            os.kill(sorted(kill.values())[k], signal.SIGKILL)
            try:
                dx.map_blocks(raising(KeyError, "x"), x, dtype="f8")
            except KeyError:
                pass
            else:
                raise AssertionError("nothing was raised")
            np.testing.assert_allclose(np.asarray(y), a @ a)
            eventually_equal(3, lambda: len(mortal_cluster.scheduler_info()["workers"]))
            del y
        np.testing.assert_array_equal(np.asarray(x), a)
        del x
        eventually_equal(set(), lambda: keys_of_scheduler(mortal_cluster))


def test_blocks_lost_for_good_while_they_are_fetched_leave_no_key(mortal_cluster: Any) -> None:
    x = rows(np.arange(400.0 * 400).reshape(400, 400))
    with no_garbage_collected():
        with dx.config.set(lineage_interval=1):
            y = (x @ x % 7).persist()
        np.asarray(y)
        lineage = executor_for(y.__dx_node__().env)._lineage
        keys = [block.key for block in y.__dx_node__().memo.blocks]
        # Copies are made in the background.
        eventually_equal([True] * 3, lambda: [lineage.record(key).held is not None for key in keys])
        del x
        for pid in sorted(mortal_cluster.run(os.getpid).values())[:2]:
            os.kill(pid, signal.SIGKILL)
        try:
            np.asarray(y)
        except dx.BlocksLostError:
            pass
        else:
            raise AssertionError("nothing was raised")
        del y
        eventually_equal(set(), lambda: keys_of_scheduler(mortal_cluster))


def interrupt(_: int, frame: types.FrameType | None) -> None:
    """Interrupt the main thread, but in a finalizer: Python cannot raise out of one, it reports and drops what it says.

    Where that is the finalizer of distributed's Future, the scheduler is not told and keeps the key: there is no way
    around that from outside. There the interrupt comes a moment later.
    """
    while frame is not None:
        if frame.f_code.co_name == "__del__":
            signal.setitimer(signal.ITIMER_REAL, 1e-5)
            return
        frame = frame.f_back
    signal.raise_signal(signal.SIGINT)


@pytest.fixture
def dropped_interrupts(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes in a callback of a weak reference or of the collector Python drops, and pytest keeps for its report:
    with it the frames that were interrupted, and what these hold.
    """
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)


@pytest.mark.usefixtures("dropped_interrupts")
@pytest.mark.parametrize("n", [64, 400], ids=["in the graph", "scattered"])
def test_interrupts_leave_no_key(cluster4: Any, n: int) -> None:
    """While tasks are submitted, host data sent, results waited for and fetched."""
    team = dx.current_team()
    assert team is not None
    a = np.arange(float(n) * n).reshape(n, n)
    interrupted = 0
    former = signal.signal(signal.SIGALRM, interrupt)
    try:
        with collected() as collect:
            with no_garbage_collected():
                for k in range(80):
                    try:
                        signal.setitimer(signal.ITIMER_REAL, 3e-4 * (k + 1))
                        x = dx.asarray(a, sharding=(team.axes, None))
                        y = (x + k).persist()
                        np.asarray(y.T @ x)
                        signal.setitimer(signal.ITIMER_REAL, 0)
                    except KeyboardInterrupt:
                        interrupted += 1
                    signal.setitimer(signal.ITIMER_REAL, 0)
                    x = y = None
            # Where in distributed's waiting an interrupt comes is chance; some places leave cycles, some of them later.
            eventually_equal(set(), lambda: collect() or keys_of_scheduler(cluster4))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)
    assert interrupted > 5


@pytest.mark.usefixtures("dropped_interrupts")
def test_interrupted_waiting_leaves_no_key(cluster4: Any) -> None:
    team = dx.current_team()
    assert team is not None
    x = dx.asarray(np.arange(64.0), sharding=(team.axes,))
    gate = GATES["interrupted"] = threading.Event()
    with dx.config.set(errors="deferred"):
        y = dx.map_blocks(waits, x, dtype="f8") + 1
    answered, main = threading.Event(), threading.main_thread().ident
    assert main is not None

    def press() -> None:
        # Again and again: Python loses an interrupt that falls into a finalizer or a callback of the collector.
        while not answered.wait(0.5):
            signal.pthread_kill(main, signal.SIGINT)

    presses = threading.Thread(target=press)
    presses.start()
    with no_garbage_collected():
        try:
            np.asarray(y)
        except KeyboardInterrupt:
            answered.set()
        else:
            raise AssertionError("nothing was raised")
        del x, y
        gate.set()
        eventually_equal(set(), lambda: keys_of_scheduler(cluster4))
    presses.join()


#: Workers of this process share them.
GATES: dict[str, threading.Event] = {}


def waits(block: Any) -> Any:
    assert GATES["interrupted"].wait(20)
    return block
