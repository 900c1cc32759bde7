"""Signals beside writes in place come before or after them."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

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
