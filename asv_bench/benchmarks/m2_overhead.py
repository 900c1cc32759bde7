"""M2: overhead per operation on arrays so small that nothing else counts.

Goals, against dask.array: defining ``x + y`` at most 1/6 of its time, any other operation 1/4; defining and computing
``float((v + v).sum())`` on four elements 1/5, with its synchronous scheduler.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .inputs import u
from .ratios import Goal, Ratio, interleaved, ratio
from .sizes import SIZE, of_size
from .systems import SYSTEMS, System

SHAPES = ((4,), (4, 4))
BLOCKS = (1, 2)  # per axis
ROUNDS = {"XS": 3, "S": 11}
SHORTEST = {"XS": 0.001, "S": 0.02}


def additions(xp: Any, x: Any, y: Any) -> Any:
    for _ in range(100):
        x = x + 1
    return x


def written(xp: Any, x: Any, y: Any) -> Any:
    # A fresh array for each write: a graph that grew from call to call would time its own length.
    fresh = x.copy()
    fresh[0] = 1
    return fresh


PROGRAMS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "x + 1": lambda xp, x, y: x + 1,
    "x + y": lambda xp, x, y: x + y,
    "sin": lambda xp, x, y: xp.sin(x),
    "sum": lambda xp, x, y: x.sum(),
    "x @ y": lambda xp, x, y: x @ y,
    "slice": lambda xp, x, y: x[1:, ::2] if x.ndim == 2 else x[1::2],
    "reshape": lambda xp, x, y: xp.reshape(x, (-1,)),
    "x[0] = 1": written,
    "100 additions": additions,
}


#: asv starts a process for every combination, so that the quick pass takes a few of them.
PARAMS = of_size({"XS": (["x + y", "x[0] = 1"], [(4, 4)], [1]), "S": (list(PROGRAMS), list(SHAPES), list(BLOCKS))})


def small_sum(xp: Any, x: Any, y: Any) -> float:
    return float((x + x).sum())


def operands(system: System, shape: tuple[int, ...], blocks: int) -> tuple[Any, Any]:
    return tuple(system.put(u(seed, shape), (blocks,) * len(shape)) for seed in (1, 2))  # type: ignore[return-value]


def overhead(
    program: str | Callable[[Any, Any, Any], Any],
    compute: bool,
    shape: tuple[int, ...] = (4, 4),
    blocks: int = 1,
    size: str = SIZE,
    systems: tuple[str, ...] = ("numpy", "dask.array", "distarray"),
) -> dict[str, list[float]]:
    """Interleaved seconds per call by system; with `compute`, of the value in this process too."""
    import dask

    text = PROGRAMS[program] if isinstance(program, str) else program

    def prepared(system: System) -> Callable[[], object]:
        x, y = operands(system, shape, blocks)
        xp = system.xp
        if not compute or system.name == "numpy":
            return lambda: text(xp, x, y)
        return lambda: text(xp, x, y).compute()

    with dask.config.set(scheduler="synchronous"):
        return interleaved(
            {name: prepared(SYSTEMS[name]) for name in systems}, of_size(ROUNDS, size), of_size(SHORTEST, size)
        )


def ratio_to_dask(
    program: str | Callable[[Any, Any, Any], Any],
    compute: bool,
    shape: tuple[int, ...] = (4, 4),
    blocks: int = 1,
    size: str = SIZE,
) -> Ratio:
    """Time of distarray over that of dask.array."""
    taken = overhead(program, compute, shape, blocks, size, ("dask.array", "distarray"))
    return ratio(taken["distarray"], taken["dask.array"])


def small_sum_ratio(size: str = SIZE) -> Ratio:
    """``float((v + v).sum())`` on four elements, from text to number."""
    # float computes by itself, so there is nothing to compute afterwards.
    return ratio_to_dask(small_sum, False, (4,), 1, size)


def goals(size: str = SIZE) -> list[Goal]:
    """Where the overhead of an operation is claimed."""
    define = [
        Goal(
            f"M2 define {program} / dask.array",
            lambda p=program: ratio_to_dask(p, False, size=size),
            1 / 6 if program == "x + y" else 1 / 4,
        )
        for program in PROGRAMS
    ]
    return [*define, Goal("M2 float((v + v).sum()) / dask.array", lambda: small_sum_ratio(size), 1 / 5)]


class Overhead:
    params = (*PARAMS, ["numpy", "dask.array", "distarray"])
    param_names = ("program", "shape", "blocks", "system")
    timeout = 600

    def setup(self, program: str, shape: tuple[int, ...], blocks: int, system: str) -> None:
        if system == "numpy" and blocks > 1:
            raise NotImplementedError("numpy has no blocks")  # asv's way to skip a combination
        self.xp = SYSTEMS[system].xp
        self.x, self.y = operands(SYSTEMS[system], shape, blocks)
        self.text = PROGRAMS[program]

    def time_define(self, program: str, shape: tuple[int, ...], blocks: int, system: str) -> None:
        self.text(self.xp, self.x, self.y)

    def time_compute(self, program: str, shape: tuple[int, ...], blocks: int, system: str) -> None:
        if system == "numpy":
            self.text(self.xp, self.x, self.y)
        else:
            self.text(self.xp, self.x, self.y).compute(scheduler="synchronous")


class OverheadRatio:
    params = ([SIZE], *PARAMS)
    param_names = ("size", "program", "shape", "blocks")
    timeout = 600

    def track_define(self, size: str, program: str, shape: tuple[int, ...], blocks: int) -> float:
        return ratio_to_dask(program, False, shape, blocks, size).median

    def track_compute(self, size: str, program: str, shape: tuple[int, ...], blocks: int) -> float:
        return ratio_to_dask(program, True, shape, blocks, size).median


class SmallSum:
    params = (SIZE,)
    param_names = ("size",)

    def track_ratio(self, size: str) -> float:
        return small_sum_ratio(size).median
