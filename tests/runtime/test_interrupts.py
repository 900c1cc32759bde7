"""Signals beside writes in place come before or after them."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from helpers import some

from distarray.kernels.waits import Condition
from distarray.runtime.clients import placement_of
from distarray.runtime.interrupts import interrupts_deferred

SIGNALS = [signal.SIGINT, signal.SIGALRM, signal.SIGTERM, signal.SIGUSR1]


class _Came(Exception):
    pass


@pytest.fixture
def handled() -> Iterator[list[int]]:
    """Handlers that note their signal and raise; those there were come back."""
    came: list[int] = []

    def handler(number: int, frame: Any) -> None:
        came.append(number)
        raise _Came(number)

    before = {number: signal.signal(number, handler) for number in SIGNALS}
    yield came
    for number, old in before.items():
        signal.signal(number, old)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_comes_after_the_block_and_only_once(handled: list[int], number: int) -> None:
    done = []
    with pytest.raises(_Came), interrupts_deferred():
        signal.raise_signal(number)
        signal.raise_signal(number)
        done.append(True)
    assert done and handled == [number]


def test_all_signals_that_came_are_delivered_and_all_handlers_are_back(handled: list[int]) -> None:
    handlers = [signal.getsignal(number) for number in SIGNALS]
    with pytest.raises(_Came), interrupts_deferred():
        for number in SIGNALS:
            signal.raise_signal(number)
    assert sorted(handled) == sorted(SIGNALS)
    assert [signal.getsignal(number) for number in SIGNALS] == handlers


def test_an_error_of_the_block_is_raised_where_no_signal_came(handled: list[int]) -> None:
    with pytest.raises(KeyError), interrupts_deferred():
        raise KeyError
    with pytest.raises(_Came) as caught, interrupts_deferred():
        signal.raise_signal(signal.SIGALRM)
        raise KeyError
    assert isinstance(caught.value.__context__, KeyError)


def test_other_threads_set_no_handlers() -> None:
    seen: list[Any] = []

    def run() -> None:
        with interrupts_deferred():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGINT)]


def _interrupted(step: Callable[[], Any], n: int) -> int:
    """Repeat a step while `n` alarms come, at moments that differ; return how many of them ended it."""

    def repeat(seconds: float) -> None:  # a function: in Python 3.13 no `try` around a loop sees what comes as it jumps
        signal.setitimer(signal.ITIMER_REAL, seconds)
        end = time.monotonic() + 1
        while time.monotonic() < end:
            step()

    came = 0
    for k in range(n):
        try:
            repeat(2.5e-6 * (k % 40 + 1))
        except _Came:
            came += 1
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    return came


#: What a handler raises in a finalizer is lost.
_lost = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@_lost
def test_a_wait_ends_with_what_the_handler_raised_and_its_lock_is_free(handled: list[int]) -> None:
    lock = threading.RLock()
    changed = Condition(lock)

    def step() -> None:
        with lock:
            changed.wait(1e-6)

    assert _interrupted(step, 3000) > 2900
    assert not lock._is_owned()  # type: ignore[attr-defined]


@_lost
@pytest.mark.cluster
@pytest.mark.parametrize("n", some([300, 1500]))
def test_a_wait_for_a_cluster_ends_with_what_the_handler_raised_and_the_loop_goes_on(
    cluster4: Any, handled: list[int], n: int
) -> None:
    placement = placement_of(cluster4)

    async def answer() -> int:
        return 3

    assert _interrupted(lambda: placement.sync(answer), n) > n * 14 // 15
    assert placement.sync(answer) == 3
