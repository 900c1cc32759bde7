"""Planning changes nothing that a reader sees: explain, sharding and plans in one thread, reads in another."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import distarray as dx
from distarray.expr.expr import postorder
from distarray.runtime.hosts import as_cut, host_cuts

HOST = np.arange(400 * 400.0).reshape(400, 400)  # above block-bytes: cut at its first use, whole until then


def beside(action: Callable[[], object], read: Callable[[], object], n_reads: int) -> None:
    """Read `n_reads` times and more while another thread repeats an action, which it does at least twice."""
    stop, twice = threading.Event(), threading.Event()
    failures: list[BaseException] = []

    def act() -> None:
        try:
            n = 0
            while not stop.is_set():
                action()
                n += 1
                if n == 2:
                    twice.set()
        except BaseException as error:
            failures.append(error)
            twice.set()

    thread = threading.Thread(target=act)
    thread.start()
    try:
        done = 0
        while done < n_reads or not twice.is_set():
            read()
            done += 1
    finally:
        stop.set()
        thread.join()
    assert not failures, failures


@pytest.mark.parametrize("asked", ["explain", "sharding", "json"])
def test_planning_in_one_thread_leaves_reads_in_another_alone(asked: str) -> None:
    x = dx.asarray(HOST, team=dx.Team((2,), ("x",)))

    def plan() -> object:
        product = x.T @ x
        if asked == "sharding":
            return product.sharding
        found = product.explain()
        return str(found) if asked == "explain" else found.to_json()

    def read() -> None:
        # One comparison: each operation of numpy hands the interpreter to the planning thread and waits for it.
        assert np.array_equal(np.asarray(x), HOST)

    beside(plan, read, 300)


@pytest.fixture
def small_blocks() -> Iterator[None]:
    """Host arrays of a few megabytes are cut."""
    with dx.config.set(block_bytes="1 MiB"):
        yield


@pytest.mark.usefixtures("small_blocks")
def test_planning_does_not_touch_the_nodes_of_host_arrays() -> None:
    x = dx.asarray(HOST, team=dx.Team((2,), ("x",)))
    product = (x.T @ x)._node()
    leaf = x._node()
    memo = leaf.memo
    assert memo is not None and memo.on_client
    order = postorder([product])
    cuts = host_cuts(order, {id(product)}, product.env)
    (there,) = as_cut([leaf], cuts).values()
    assert there is not leaf and there.memo is not None and there.memo.sharding.n_tiles == 2
    assert leaf.memo is memo


@pytest.mark.usefixtures("small_blocks")
def test_what_explain_says_is_what_runs_with_host_arrays_cut() -> None:
    """The cut that is planned for a host array is the one that it gets."""
    x = dx.asarray(HOST, team=dx.Team((2,), ("x",)))
    product = x.T @ x
    said = product.sharding
    assert x.sharding.n_tiles == 1
    np.testing.assert_allclose(np.asarray(product), HOST.T @ HOST)
    assert product.sharding == said
    assert x.sharding.n_tiles == 2


@pytest.mark.parametrize("seconds", [1.0, pytest.param(30.0, marks=pytest.mark.slow)])
def test_one_thread_explains_while_two_read_and_write(seconds: float) -> None:
    """Each of two threads writes half of an array, and reads all of it; a third plans what is made of it."""
    host = HOST.copy()
    x = dx.asarray(host, team=dx.Team((2, 2), ("r", "c")))
    halves = [x[:200], x[200:]]
    written = [0, 0]
    end = time.monotonic() + seconds

    def write_and_read(half: int) -> None:
        mine, others = halves[half], host[200 * (1 - half) : 200 * (2 - half)]
        while time.monotonic() < end:
            mine += 1.0
            written[half] += 1
            seen = np.array(x)  # a copy: the memory itself shows what others write to it, while they do
            own, other = seen[200 * half : 200 * (half + 1)], seen[200 * (1 - half) : 200 * (2 - half)]
            assert np.array_equal(own, host[200 * half : 200 * (half + 1)] + written[half])
            # The other thread's half is of one moment: it was never written in part.
            assert np.array_equal(other, others + (other[0, 0] - others[0, 0]))

    def explain() -> None:
        while time.monotonic() < end:
            # What a read of another thread has run meanwhile is there, and is said to be.
            assert "f64[" in str((x @ x.T + x).explain())
            assert x.sharding.n_tiles >= 1

    with ThreadPoolExecutor(3) as pool:
        for done in [*(pool.submit(write_and_read, half) for half in (0, 1)), pool.submit(explain)]:
            done.result()
    assert min(written) > 0
    for half in (0, 1):
        np.testing.assert_array_equal(np.asarray(halves[half]), host[200 * half : 200 * (half + 1)] + written[half])
