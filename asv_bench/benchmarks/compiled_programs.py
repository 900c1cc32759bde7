"""Compiled programs beside the interpreter and JAX: everyday operations and loops, in one interleaved run.

Goal at S, on one core: at least 1.5 x as fast as the interpreter in geometric mean over the operations in which JAX was
ahead of it. `asv_bench/compiled.py` prints the table. Needs Numba.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np

from .everyday import PROGRAMS, operands_of, ran
from .ratios import Goal, Ratio, exactly, interleaved, ratio
from .sizes import SIZE, few, of_size
from .systems import IN_PROCESS

#: Operations in which JAX was ahead, others, and loops.
BEHIND = (
    "20 times x*0.5 + y",
    "var, axis 0",
    "softmax",
    "rolling mean of 8",
    "zonal mean and anomaly",
    "sum((x - y)**2)",
    "where(x > 0, x, y)",
    "sqrt(x*x + y*y) * 2 - x",
)
OTHERS = ("mean, axis 0", "sum", "max, axis 1")
LOOPS = ("Jacobi in place", "sqrt(x*x + y*y) - 0.1*x", "shallow water", "game of life")
EXTENTS = {"XS": 64, "S": 2048}


@cache
def times(name: str, n: int, rounds: int = 7) -> dict[str, list[float]]:
    """Return CPU seconds of ``interpreter``, ``compiled``, ``numpy`` and, where it is installed, ``jax``."""
    from distarray import config
    from distarray.kernels import compiler

    program, ours = PROGRAMS[name], IN_PROCESS["distarray"]

    def with_option(value: bool) -> Callable[[], tuple[Any, ...]]:
        operands = operands_of(program, n, ours)

        def run() -> tuple[Any, ...]:
            with config.set(compiled=value):
                return ran(program, ours, operands)

        return run

    runs: dict[str, Callable[[], object]] = {"interpreter": with_option(False), "compiled": with_option(True)}
    before, compiler.ENOUGH_SECONDS = compiler.ENOUGH_SECONDS, 0.0
    try:
        for _ in range(2 * compiler.ENOUGH_RUNS):
            runs["compiled"]()
            compiler.COMPILER.wait()
    finally:
        compiler.ENOUGH_SECONDS = before
    for x, y in zip(with_option(True)(), with_option(False)(), strict=True):
        np.testing.assert_array_equal(np.asarray(x), np.asarray(y))
    for peer in ("numpy", "jax"):
        if peer in IN_PROCESS and not (peer == "jax" and program.writes):
            system = IN_PROCESS[peer]
            operands = operands_of(program, n, system)
            runs[peer] = lambda system=system, operands=operands: ran(program, system, operands)
    return interleaved(runs, rounds, clock=time.process_time)


def gain(name: str, n: int, rounds: int = 7) -> Ratio:
    """Return the interpreter's time over that of compiled programs."""
    found = times(name, n, rounds)
    return ratio(found["interpreter"], found["compiled"])


def mean_gain(n: int) -> float:
    """Return the geometric mean of the gains where JAX was ahead."""
    return math.exp(sum(math.log(gain(name, n).median) for name in BEHIND) / len(BEHIND))


def goals(size: str = SIZE) -> list[Goal]:
    """What compiled programs win where JAX was ahead."""
    if find_spec("numba") is None:
        return []
    n = of_size(EXTENTS, size)
    return [Goal("compiled programs / interpreter", lambda: exactly(1 / mean_gain(n)), 1 / 1.5)]


class CompiledPrograms:
    """asv: the interpreter's time over that of compiled programs."""

    params = (few([*BEHIND, *OTHERS, *LOOPS], 8), [SIZE])
    param_names = ("program", "size")
    timeout = 600

    def setup(self, program: str, size: str) -> None:
        if find_spec("numba") is None:
            raise NotImplementedError("needs numba")

    def track_gain(self, program: str, size: str) -> float:
        return gain(program, of_size(EXTENTS, size)).median
