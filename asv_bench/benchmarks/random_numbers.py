"""Random arrays: made in place by every thread, the same numbers for every cut.

Goals at S: one thread takes at most 1.5 x numpy's time for uniform and normal numbers; with all threads, no
distribution takes longer than numpy's. A word by position is a hash of 13 passes, where the generators of numpy, which
dask.array runs on all threads, go from one state to the next: to dask.array the ratio is recorded without a goal.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from .ratios import Goal, Ratio, interleaved, ratio
from .sizes import SIZE, of_size
from .systems import SYSTEMS, System

ROWS = {"XS": 20_000, "S": 10_000_000}

#: ``(generator, size)``
PROGRAMS: dict[str, Callable[[Any, int], Any]] = {
    "random": lambda rng, n: rng.random(n),
    "standard_normal": lambda rng, n: rng.standard_normal(n),
    "gamma": lambda rng, n: rng.gamma(2.5, 1.0, n),
    "poisson": lambda rng, n: rng.poisson(30.0, n),
}
COMPARED = ("numpy", "dask.array", "distarray")


def generator(system: System) -> Any:
    """A seeded generator of a system."""
    return system.xp.random.default_rng(1)


@cache  # all ratios of a program come from one interleaved run
def times(program: str, size: str) -> dict[str, list[float]]:
    """Interleaved seconds of `program` by system; ``one member`` is distarray without a team."""
    n = of_size(ROWS, size)
    dx = SYSTEMS["distarray"].xp

    def prepared(name: str) -> Callable[[], object]:
        system, rng = SYSTEMS[name], generator(SYSTEMS[name])
        return lambda: system.force(PROGRAMS[program](rng, n))

    def alone() -> object:
        with dx.use(team=None):
            return PROGRAMS[program](dx.random.default_rng(1), n).persist()

    return interleaved({**{name: prepared(name) for name in COMPARED}, "one member": alone})


def ratio_to(reference: str, program: str, size: str = SIZE, ours: str = "distarray") -> Ratio:
    """Time of distarray over that of `reference`."""
    taken = times(program, size)
    return ratio(taken[ours], taken[reference])


def goals(size: str = SIZE) -> list[Goal]:
    """Where the speed of random numbers is claimed."""
    alone = [
        Goal(f"random {p}, one thread / numpy", lambda p=p: ratio_to("numpy", p, size, "one member"), 1.5)
        for p in ("random", "standard_normal")
    ]
    return alone + [Goal(f"random {p} / numpy", lambda p=p: ratio_to("numpy", p, size), 1.0) for p in PROGRAMS]


class RandomNumbers:
    params = ([SIZE], list(PROGRAMS), list(COMPARED))
    param_names = ("size", "program", "system")
    timeout = 600

    def setup(self, size: str, program: str, system: str) -> None:
        self.system = SYSTEMS[system]
        self.rng = generator(self.system)

    def time_run(self, size: str, program: str, system: str) -> None:
        self.system.force(PROGRAMS[program](self.rng, of_size(ROWS, size)))

    def peakmem_run(self, size: str, program: str, system: str) -> None:
        self.system.force(PROGRAMS[program](self.rng, of_size(ROWS, size)))


class RandomNumbersRatio:
    params = ([SIZE], list(PROGRAMS), [name for name in COMPARED if name != "distarray"])
    param_names = ("size", "program", "reference")
    timeout = 600

    def track_ratio(self, size: str, program: str, reference: str) -> float:
        return ratio_to(reference, program, size).median
