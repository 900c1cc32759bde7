"""Elementwise chains: one pass over memory whatever the number of operations, on all threads.

Goals at S: the chain and the sum of squares at least 2 x as fast as numpy and 2.5 x as fast as dask.array, with its
own chunks and with a chunk for every thread.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from .inputs import u
from .ratios import Goal, Ratio, interleaved, ratio
from .sizes import SIZE, of_size
from .systems import SYSTEMS, System

SHAPES = {"XS": (400, 400), "S": (4000, 4000)}


def chain(xp: Any, x: Any, y: Any, z: Any) -> Any:
    return xp.sqrt(x * x + y * y) * 2 - z / 3 + x


def squares(xp: Any, x: Any, y: Any, z: Any) -> Any:
    return ((x - y) ** 2).sum()


PROGRAMS: dict[str, Callable[..., Any]] = {"chain": chain, "squares": squares}


def inputs(system: System, size: str) -> tuple[Any, ...]:
    return tuple(system.put(u(seed, of_size(SHAPES, size))) for seed in (1, 2, 3))


@cache  # all ratios of a program come from one interleaved run
def times(program: str, size: str) -> dict[str, list[float]]:
    """Interleaved seconds of `program` by system."""

    def prepared(system: System) -> Callable[[], object]:
        operands = inputs(system, size)
        return lambda: system.force(PROGRAMS[program](system.xp, *operands))

    return interleaved({name: prepared(system) for name, system in SYSTEMS.items()})


def ratio_to(reference: str, program: str, size: str = SIZE) -> Ratio:
    """Time of distarray over that of `reference`."""
    taken = times(program, size)
    return ratio(taken["distarray"], taken[reference])


def goals(size: str = SIZE) -> list[Goal]:
    """Where the speed of a chain is claimed."""
    return [
        Goal(f"elementwise {program} / {reference}", lambda p=program, r=reference: ratio_to(r, p, size), at_most)
        for program in PROGRAMS
        for reference, at_most in (("numpy", 1 / 2), ("dask.array", 1 / 2.5), ("dask.array-grid", 1 / 2.5))
    ]


class Elementwise:
    params = ([SIZE], list(PROGRAMS), list(SYSTEMS))
    param_names = ("size", "program", "system")
    timeout = 600

    def setup(self, size: str, program: str, system: str) -> None:
        self.system = SYSTEMS[system]
        self.operands = inputs(self.system, size)

    def time_run(self, size: str, program: str, system: str) -> None:
        self.system.force(PROGRAMS[program](self.system.xp, *self.operands))

    def peakmem_run(self, size: str, program: str, system: str) -> None:
        self.system.force(PROGRAMS[program](self.system.xp, *self.operands))


class ElementwiseRatio:
    params = ([SIZE], list(PROGRAMS), [name for name in SYSTEMS if name != "distarray"])
    param_names = ("size", "program", "reference")
    timeout = 600

    def track_ratio(self, size: str, program: str, reference: str) -> float:
        return ratio_to(reference, program, size).median
