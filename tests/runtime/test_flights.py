"""Threads evaluate side by side: kernels run without the lock, and what one thread needs no other one overwrites."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import distarray as dx
from distarray.runtime import flights

A = np.arange(12.0).reshape(3, 4)


@pytest.fixture(autouse=True)
def deferred() -> Iterator[None]:
    with dx.config.set(eager_bytes=0, block_bytes=0, errors="deferred"):
        yield


def meeting(barrier: threading.Barrier) -> Callable[[Any], Any]:
    """Return a function of a block that ends when as many threads are in it as the barrier wants."""

    def met(block: Any) -> Any:
        barrier.wait(20)
        return block + 1

    return met


def test_kernels_of_two_threads_run_at_the_same_time() -> None:
    barrier = threading.Barrier(2)
    with dx.use(team=None), ThreadPoolExecutor(2) as pool:
        arrays = [dx.map_blocks(meeting(barrier), dx.asarray(A + k), dtype=A.dtype) for k in range(2)]
        found = list(pool.map(np.asarray, arrays))  # alone each of them would wait for ever
    for k in range(2):
        np.testing.assert_array_equal(found[k], A + k + 1)


def test_who_needs_what_another_thread_computes_waits_for_it() -> None:
    began, go_on, calls = threading.Event(), threading.Event(), []

    def slow(block: Any) -> Any:
        calls.append(1)
        began.set()
        assert go_on.wait(20)
        return block + 1

    with dx.use(team=None), ThreadPoolExecutor(3) as pool:
        x = dx.map_blocks(slow, dx.asarray(A), dtype=A.dtype)
        y = x * 2
        first = pool.submit(np.asarray, x)
        assert began.wait(20)
        second = pool.submit(np.asarray, y)
        third = pool.submit(lambda: np.asarray(dx.ones((3, 4)) + A))  # needs nothing of it
        np.testing.assert_array_equal(third.result(20), A + 1)
        assert not second.done()
        go_on.set()
        np.testing.assert_array_equal(first.result(20), A + 1)
        np.testing.assert_array_equal(second.result(20), (A + 1) * 2)
    assert len(calls) == 1


def test_threads_that_need_one_move_carry_it_out_once() -> None:
    began, go_on = threading.Event(), threading.Event()

    def slow(block: Any) -> Any:
        began.set()
        assert go_on.wait(20)
        return block + 1

    here, there = dx.Team((1,), "a"), dx.Team((1,), "b")
    with ThreadPoolExecutor(3) as pool:
        x = dx.map_blocks(slow, dx.asarray(A, team=here), dtype=A.dtype)
        y = x.to_team(there)
        products = [y * k for k in range(2)]
        first = pool.submit(np.asarray, x)
        assert began.wait(20)
        others = [pool.submit(np.asarray, product) for product in products]  # both wait for what moves
        for other in others:
            with pytest.raises(TimeoutError):
                other.result(0.1)
        go_on.set()
        np.testing.assert_array_equal(first.result(20), A + 1)
        for k, other in enumerate(others):
            np.testing.assert_array_equal(other.result(20), (A + 1) * k)


def test_what_a_thread_reads_is_not_overwritten_by_another() -> None:
    began, go_on = threading.Event(), threading.Event()

    def slow(block: Any) -> Any:
        began.set()
        assert go_on.wait(20)
        return block.copy()

    with dx.use(team=None), ThreadPoolExecutor(2) as pool:
        x = dx.asarray(A) + 0
        x.persist()
        y = dx.map_blocks(slow, x, dtype=A.dtype)
        first = pool.submit(np.asarray, y)
        assert began.wait(20)

        def write() -> Any:
            x[1:] = -1
            return np.asarray(x)

        second = pool.submit(write)
        written = second.result(20)
        go_on.set()
        np.testing.assert_array_equal(first.result(20), A)
    np.testing.assert_array_equal(written, np.where(np.arange(3)[:, None] < 1, A, -1))


def test_a_run_that_fails_is_over_for_all() -> None:
    def fails(block: Any) -> Any:
        raise ZeroDivisionError("no")

    with dx.use(team=None), ThreadPoolExecutor(2) as pool:
        x = dx.map_blocks(fails, dx.asarray(A), dtype=A.dtype)
        for computed in [pool.submit(np.asarray, x) for _ in range(4)]:
            with pytest.raises(ZeroDivisionError):
                computed.result(20)
    assert not list(flights._flights)


def test_runs_that_need_much_memory_come_one_after_the_other() -> None:
    inside, most = [], []

    def noted(block: Any) -> Any:
        inside.append(1)
        most.append(len(inside))
        threading.Event().wait(0.05)
        inside.pop()
        return block + 1

    with dx.config.set(memory_limit=4 * A.nbytes), dx.use(team=None), ThreadPoolExecutor(3) as pool:
        arrays = [dx.map_blocks(noted, dx.asarray(A + k), dtype=A.dtype) for k in range(6)]
        for k, found in enumerate(pool.map(np.asarray, arrays)):
            np.testing.assert_array_equal(found, A + k + 1)
    assert max(most) == 1


def test_warnings_are_given_in_the_thread_that_asked() -> None:
    def warned(k: int) -> list[str]:
        with pytest.warns(RuntimeWarning) as caught:
            np.asarray(dx.divide(dx.asarray(A), 0) if k % 2 else dx.log(dx.asarray(-A)))
        return sorted({str(w.message).split(" in ")[1] for w in caught})

    with dx.use(team=None):
        assert warned(0) == ["log"]
        assert warned(1) == ["divide"]


@pytest.mark.parametrize("seed", range(4))
def test_loops_of_several_threads_on_shared_and_own_arrays(seed: int) -> None:
    shared = dx.asarray(A)

    def loop(k: int) -> Any:
        own, reference = shared + k, A + k
        for step in range(30):
            if (step + k) % 3:
                own[1:] += shared[1:] * 0.5
                reference[1:] += A[1:] * 0.5
            else:
                own = dx.sqrt(own * own + 1)
                reference = np.sqrt(reference * reference + 1)
            if step % 5 == seed:
                np.testing.assert_allclose(np.asarray(own), reference, rtol=1e-12)
        return np.asarray(own), reference

    with dx.use(dx.Team((2,), ("T",), members=(0, 1))), ThreadPoolExecutor(4) as pool:
        for found, expected in pool.map(loop, range(4)):
            np.testing.assert_allclose(found, expected, rtol=1e-12)
    np.testing.assert_array_equal(shared, A)
