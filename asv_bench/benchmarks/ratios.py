"""Ratios of times taken in one run.

Absolute times depend on the machine and on what else it does; a ratio of interleaved times does so much less. Every
round times each program once, the order turning from round to round, so that a slow moment hits all of them. A claim
is the median of the rounds' ratios, with the interval that holds 90 % of them.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["Goal", "Ratio", "exactly", "interleaved", "ratio"]

Program = Callable[[], object]


@dataclass(frozen=True)
class Ratio:
    """`median` of ours / theirs over the rounds; 90 % of the rounds lie in ``[low, high]``."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        if self.low == self.high:
            return f"{self.median:.3g}"
        return f"{self.median:.3g} [{self.low:.3g}, {self.high:.3g}]"


def exactly(value: float) -> Ratio:
    """What is counted, or measured once, and so has no interval."""
    return Ratio(value, value, value)


@dataclass(frozen=True)
class Goal:
    """A claim: what `measure` gives is at most `at_most`."""

    name: str
    measure: Callable[[], Ratio]
    at_most: float


def _seconds(program: Program, number: int, clock: Callable[[], float]) -> float:
    start = clock()
    for _ in range(number):
        program()
    return (clock() - start) / number


def interleaved(
    programs: Mapping[str, Program],
    rounds: int = 7,
    shortest: float = 0.01,
    clock: Callable[[], float] = time.perf_counter,
    pause: float = 0.0,
) -> dict[str, list[float]]:
    """Seconds per call of each program in every round.

    Parameters
    ----------
    programs
        What to time, by name. Each is called once before the clock starts.
    rounds
        How often each is timed.
    shortest
        A program quicker than this many seconds is repeated within a round until it takes as long, so that the
        clock's resolution does not show.
    clock
        Gives seconds.
    pause
        Seconds before each is timed, in which a cluster lets go of what was made before.
    """
    numbers: dict[str, int] = {}
    for name, program in programs.items():
        program()
        number = 1
        while (taken := _seconds(program, number, clock) * number) < shortest:
            number = min(10 * number, int(number * 1.2 * shortest / taken) + 1) if taken > 0 else 10 * number
        numbers[name] = number
    order = list(programs)
    times: dict[str, list[float]] = {name: [] for name in order}
    was_enabled = gc.isenabled()
    gc.disable()  # a collection in one program's round would count against that program alone
    try:
        for _ in range(rounds):
            for name in order:
                time.sleep(pause)
                times[name].append(_seconds(programs[name], numbers[name], clock))
            order.append(order.pop(0))
            gc.collect()
    finally:
        if was_enabled:
            gc.enable()
    return times


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> Ratio:
    """Round by round quotient of two rows of `interleaved`; below 1 means that ours is faster.

    >>> print(ratio([1.0, 2.0, 4.0], [2.0, 2.0, 2.0]))
    1 [0.55, 1.9]
    """
    quotients = np.asarray(ours) / np.asarray(theirs)
    low, median, high = np.quantile(quotients, (0.05, 0.5, 0.95))
    return Ratio(float(median), float(low), float(high))
