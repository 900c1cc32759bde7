"""Workers that are killed, join, leave and pause, beside another client: numpy's numbers, no hang, and no key left.

``DISTARRAY_SOAK_KILLS`` sets the number of kills of the long run (200).
"""

from __future__ import annotations

import functools
import os
import random
import re
import signal
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import eventually, module_at, no_garbage_collected
from on_workers import keys_but_templates

import distarray as dx
from distarray.errors import BlocksLostError
from distarray.runtime import members

distributed = pytest.importorskip("distributed")

pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("ignore")]

#: Longer than any step takes on a machine that does other things too; what hangs takes for ever.
HANGS_SECONDS = 120.0
#: Soon after the last use: nothing is left to a collection of garbage.
KEYS_GO_SECONDS = 30.0


def random_programs() -> Any:
    """Return the module beside this one that writes random programs, changed for the soak."""
    programs = module_at(Path(__file__).with_name("test_random_programs.py"), "random_programs_of_the_soak")
    if not hasattr(programs.Pairs._raises, "__wrapped__"):
        programs.Pairs._raises = _raises(programs.Pairs._raises)
    return programs


def _raises(raises: Callable[[Any, Any, Exception], None]) -> Callable[[Any, Any, Exception], None]:
    """Lines that raise are left out where numpy loses references: it drops the arguments of ``np.add.reduce(x)`` never.

    (numpy 2.4: wherever a method of a ufunc has the override of an array raise.)
    """

    @functools.wraps(raises)
    def run(pairs: Any, line: Any, error: Exception) -> None:
        if not re.search(r"\bnp\.\w+\.(reduce|accumulate|reduceat|outer|at)\(", line.text):
            raises(pairs, line, error)

    return run


class _Beside(threading.Thread):
    """Something that goes on beside the program until it is told to stop; `error` is what it died of."""

    def __init__(self, turn: Callable[[random.Random], None], seconds: float, seed: int) -> None:
        super().__init__(daemon=True)
        self.turn, self.seconds, self.random = turn, seconds, random.Random(seed)
        self.over = threading.Event()
        self.turns = 0
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            while not self.over.wait(self.seconds * self.random.uniform(0.5, 1.5)):
                self.turn(self.random)
                self.turns += 1
        except BaseException as error:
            self.error = error

    def check(self) -> None:
        if self.error is not None:
            raise self.error

    def stop(self) -> None:
        self.over.set()
        self.join(HANGS_SECONDS)
        assert not self.is_alive(), "hangs"
        self.check()


def _pause(seconds: float, dask_worker: Any) -> None:
    """Pause a worker as its memory monitor would, for a time."""
    from distributed.core import Status

    if dask_worker.status != Status.running:
        return
    # Else the monitor lets it go on at its next look.
    manager = dask_worker.memory_manager
    fraction, manager.memory_pause_fraction = manager.memory_pause_fraction, False
    dask_worker.status = Status.paused

    def go_on() -> None:
        manager.memory_pause_fraction = fraction
        if dask_worker.status == Status.paused:
            dask_worker.status = Status.running

    dask_worker.loop.call_later(seconds, go_on)


def _step(xp: Any, x: Any, k: int) -> Any:
    """Exact in floating point, so that no order of operations shows; reads all of `x` in a few steps."""
    if k % 4 == 0:
        x[1:-1] = x[2:] % 5 + x[:-2] % 3
        return x
    if k % 4 == 1:
        return (x + x.sum(axis=0)) % 1009
    if k % 4 == 2:
        return (x + xp.roll(x, 3, axis=0).T[::-1].T) % 1009
    return ((x % 7) @ (x.T[:, : x.shape[1]] % 3)) % 1009


def failing() -> Callable[..., Any]:
    """Workers cannot import this file."""

    def function(block: Any) -> Any:
        raise KeyError("on purpose")

    return function


def let_go(futures: list[Any]) -> None:
    """What dask's own ``gather`` leaves when workers are lost meanwhile, a cycle, holds its Futures."""
    for future in futures:
        future.release()


def _keys(dask_scheduler: Any) -> dict[str, str]:
    """All keys, and why they are there."""
    return {
        str(task.key): f"{task.state}, wanted by {sorted(c.client_key for c in task.who_wants or ())}, "
        f"read by {[d.key for d in task.dependents]}, waited for by {[d.key for d in task.waiters or ()]}"
        for task in map(dask_scheduler.tasks.__getitem__, keys_but_templates(dask_scheduler))
    }


def _workers(dask_scheduler: Any) -> set[str]:
    return set(dask_scheduler.workers)


def assert_no_key_left(client: Any) -> None:
    end = time.monotonic() + KEYS_GO_SECONDS
    while (left := client.run_on_scheduler(_keys)) and time.monotonic() < end:
        time.sleep(0.1)
    assert not left


def soak(n_kills: int, *, threads: int, scaling: bool, pausing: bool, seed: int = 0) -> dict[str, Any]:
    """Kill workers one after the other while programs run; numbers of what happened."""
    with (
        distributed.LocalCluster(
            n_workers=4,
            threads_per_worker=threads,
            processes=True,
            host="127.0.0.1",
            dashboard_address=None,
            memory_limit="512MiB",
            silence_logs="CRITICAL",
        ) as cluster,
        distributed.Client(cluster) as client,
        distributed.Client(cluster, set_as_default=False) as second,
    ):
        client.wait_for_workers(4)
        if scaling:
            cluster.adapt(minimum=4, maximum=7, interval="200ms", wait_count=3, target_duration="1s")

        def task_of_others(rng: random.Random) -> None:
            n = rng.randrange(1000)
            # Nothing scattered: dask loses that with its worker, or with the connection that brings it.
            squares = second.map(pow, range(n, n + 4), [2] * 4, pure=False, retries=10)
            total = second.submit(sum, squares, pure=False, retries=10)
            assert total.result(HANGS_SECONDS) == sum(k * k for k in range(n, n + 4))
            assert second.gather(squares) == [k * k for k in range(n, n + 4)]
            let_go([*squares, total])

        def much_to_do(rng: random.Random) -> None:
            """More workers come for it, and go when it is done."""
            naps = second.map(time.sleep, [0.1] * 60, key=f"nap{uuid.uuid4().hex}", pure=False, retries=10)
            assert second.gather(naps) == [None] * 60
            let_go(naps)

        def pause(rng: random.Random) -> None:
            workers = second.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.workers))
            second.run(_pause, rng.uniform(0.2, 2.0), workers=[rng.choice(workers)], on_error="ignore", wait=False)

        beside = {"others": _Beside(task_of_others, 0.1, seed)}
        if scaling:
            beside["bursts"] = _Beside(much_to_do, 8.0, seed + 1)
        if pausing:
            beside["pauses"] = _Beside(pause, 3.0, seed + 2)
        found = _programs_beside_kills(client, n_kills, seed, lambda: [thread.check() for thread in beside.values()])
        for thread in beside.values():
            thread.stop()
        if scaling:
            log = [what["status"] for _, what in cluster._adaptive.log]
            found |= {"ups": log.count("up"), "downs": log.count("down")}
            cluster._adaptive.stop()
        assert_no_key_left(second)
        return {**found, "threads": threads, **{name: thread.turns for name, thread in beside.items()}}


def _programs_beside_kills(client: Any, n_kills: int, seed: int, check: Callable[[], Any]) -> dict[str, Any]:
    """Programs whose numbers are numpy's although a worker is killed somewhere within each round of them."""
    chance = random.Random(seed)
    programs = random_programs()
    longest, steps, kills, n_programs, doubles = 0.0, 0, 0, 0, 0
    a = np.arange(60.0 * 60).reshape(60, 60) % 97
    host = np.arange(2e5)
    with dx.config.set(lineage_interval=20, block_bytes=0):
        team = dx.current_team()
        assert team is not None
        x = dx.asarray(a, sharding=(team.axes, None))
        big = dx.asarray(host, sharding=(team.axes,))
        (big + 1).persist()
        lineage = members.executor_for(x.__dx_node__().env)._lineage

        def is_mended() -> bool:
            """Every block lies on two workers, or can be made again: the next loss loses nothing."""
            bare, is_complete = client.sync(lineage._without_second_place)
            return is_complete and not bare and not lineage._mending

        def kill(pids: list[int], moment: float) -> None:
            nonlocal kills
            time.sleep(moment)
            try:
                os.kill(chance.choice(pids), signal.SIGKILL)
                kills += 1
            except ProcessLookupError:
                pass  # it was scaled down

        while kills < n_kills:
            # Two losses at a time may lose a block and its copy.
            eventually(lambda: len(lineage._placement.workers) >= 4 and is_mended(), HANGS_SECONDS)
            pids = [pid for pid in client.run(os.getpid, on_error="ignore").values() if isinstance(pid, int)]
            there = client.run_on_scheduler(_workers)
            start = time.monotonic()
            killer = threading.Thread(target=kill, args=(pids, chance.uniform(0, 0.6)))
            killer.start()
            is_last = False
            try:
                while not is_last:
                    is_last = not killer.is_alive()
                    x, a = _step(dx, x, steps), _step(np, a, steps)
                    steps += 1
                    if chance.random() < 0.2:
                        with dx.config.set(block_bytes=4096):
                            programs.Program(seed * 100_000 + n_programs, dx.current_team()).run()
                        n_programs += 1
                np.asarray(x)
            except BlocksLostError:
                # As the README says of two that go within a moment: one was scaled down beside the killed one.
                killer.join()
                assert len(there - client.run_on_scheduler(_workers)) >= 2
                doubles += 1
                x, big = dx.asarray(a, sharding=(team.axes, None)), dx.asarray(host, sharding=(team.axes,))
            killer.join()
            if kills % 3 == 0:
                try:
                    dx.map_blocks(failing(), x, dtype="f8")
                except KeyError as error:
                    assert "on purpose" in str(error)
                else:
                    raise AssertionError("nothing was raised")
            np.testing.assert_array_equal(np.asarray(x), a)
            if kills % 5 == 0:
                np.testing.assert_array_equal(np.asarray(big), host)
            longest = max(longest, time.monotonic() - start)
            assert longest < HANGS_SECONDS
            check()
        np.testing.assert_array_equal(np.asarray(big), host)
    return {"kills": kills, "steps": steps, "programs": n_programs, "doubles": doubles, "longest": longest}


@pytest.mark.timeout(300)
def test_a_few_kills_beside_another_client_change_nothing() -> None:
    with no_garbage_collected():
        found = soak(3, threads=2, scaling=False, pausing=False)
    assert (found["kills"], found["doubles"]) == (3, 0)
    assert found["others"] > 0


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("threads", [1, 2])
def test_kills_beside_scaling_pauses_and_another_client_change_nothing(
    threads: int, record_property: Callable[[str, Any], None]
) -> None:
    n_kills = int(os.environ.get("DISTARRAY_SOAK_KILLS", "200"))
    with no_garbage_collected():
        found = soak((n_kills + 1) // 2, threads=threads, scaling=True, pausing=True, seed=threads)
    record_property("soak", found)
    assert found["kills"] == (n_kills + 1) // 2
    assert found["doubles"] <= 1 + n_kills // 20
    assert min(found[what] for what in ("others", "ups", "downs", "pauses")) > 0 or n_kills < 20
