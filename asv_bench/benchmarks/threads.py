"""Two Python threads that evaluate programs of their own: their time over that of one after the other.

Goal: at most 0.7. Operations at the call and short evaluations have one thread each, so that two of them keep two cores
busy; where one evaluation has all threads already there is nothing to win, and such programs are not measured here.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from .ratios import Goal, Ratio, interleaved, ratio
from .sizes import SIZE, few, of_size

STEPS = {"XS": 2, "S": 50}
ROUNDS = {"XS": 3, "S": 11}


def functions(xp: Any, x: Any) -> Any:
    """Operations at the call that take long: functions that round."""
    return xp.exp(xp.sin(x) * 0.5)


def products(xp: Any, x: Any) -> Any:
    """Operations at the call that take about as long as memory does."""
    return xp.sqrt(x * x + x) - 0.1 * x


def numbers(xp: Any, x: Any) -> Any:
    """Numbers that are asked for, of arrays too large for the call and too small for several threads."""
    return float(xp.sum(x * x)) + float(xp.max(x + 1))


#: The program and the extent of its n x n operand, by size.
PROGRAMS: dict[str, tuple[Callable[[Any, Any], Any], dict[str, int]]] = {
    "functions": (functions, {"XS": 16, "S": 512}),
    "products": (products, {"XS": 16, "S": 512}),
    "numbers": (numbers, {"XS": 16, "S": 900}),
}


def side_by_side(name: str, size: str = SIZE, system: str = "distarray") -> Ratio:
    """Time of two threads with a program each over the time of the two programs in one thread."""
    from .systems import IN_PROCESS

    program, extents = PROGRAMS[name]
    xp, n, steps = IN_PROCESS[system].xp, of_size(extents, size), of_size(STEPS, size)
    given = [IN_PROCESS[system].put(np.random.default_rng(seed).random((n, n))) for seed in (1, 2)]

    def work(x: Any) -> None:
        for _ in range(steps):
            program(xp, x)

    with ThreadPoolExecutor(2) as pool:
        times = interleaved(
            {"two": lambda: [*pool.map(work, given)], "one": lambda: [*map(work, given)]}, of_size(ROUNDS, size)
        )
    return ratio(times["two"], times["one"])


def goals(size: str = SIZE) -> list[Goal]:
    """Where two cores are there for two threads."""
    if (os.cpu_count() or 1) < 2:
        return []
    return [
        Goal(f"two threads, {name} / one after the other", lambda n=name: side_by_side(n, size), 0.7)
        for name in PROGRAMS
    ]


class TwoThreadsRatio:
    params = ([SIZE], few(PROGRAMS, 2), ["distarray", "numpy"])
    param_names = ("size", "program", "system")
    timeout = 600

    def track_ratio(self, size: str, program: str, system: str) -> float:
        return side_by_side(program, size, system).median
