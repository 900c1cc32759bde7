"""Plans of redistributions: what they cost beside those of other systems, and how long planning takes.

Planning alone, on the problem families of the tests (`distarray.testing.redistributions`). Costs are those of figure 11
of Rink et al. 2021, ratios are theirs / ours except in the goals. Times are CPU times by that of a loop of a million
additions, so that they mean the same on every machine.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence

from distarray.planner.redistribution import plan
from distarray.planner.redistribution.problem import Problem
from distarray.planner.redistribution.synthesize import synthesize
from distarray.testing.redistributions import Case, family

from .baselines import BASELINES
from .baselines.measured import interpreter, measured
from .ratios import Goal, Ratio, exactly
from .sizes import SIZE, of_size

#: Problems of each mesh of a family.
N_PROBLEMS = {"XS": 8, "S": 100, "M": 1000}
FAMILIES = ("A", "B", "C", "D", "E")
#: Those that are recorded: a smoke test takes two.
RECORDED = {"XS": ("A", "E"), "S": FAMILIES}
TIMED = {"XS": ("A", "F"), "S": (*FAMILIES, "F")}


def cases(name: str, size: str = SIZE) -> list[Case]:
    """The problems of a family; of family F, which has eight meshes, fewer of each."""
    n = of_size(N_PROBLEMS, size)
    return list(family(name, max(2, n // 8) if name == "F" else n))


def compared(costs: Sequence[tuple[int, int]]) -> float:
    """Geometric mean of theirs / ours, over the problems where both move something."""
    logs = [math.log(theirs / ours) for theirs, ours in costs if theirs and ours]
    return math.exp(statistics.fmean(logs))


def cost_ratio(name: str, baseline: str, size: str = SIZE) -> float:
    """What a baseline's collectives cost by what ours do, in geometric mean over a family."""
    emit = BASELINES[baseline]
    return compared([(emit(case).cost, plan(*case, mode="paper").cost) for case in cases(name, size)])


def share_above_bound(name: str, baseline: str, size: str = SIZE) -> float:
    """Of the problems of a family those in which a baseline makes a tile larger than source and target."""
    emit = BASELINES[baseline]
    return statistics.fmean([emit(case).peak > plan(*case, mode="direct").bound for case in cases(name, size)])


# ------------------------------------------------------------------------------------------------ planning time


def loop_seconds() -> float:
    """CPU seconds of a loop that every machine has."""
    taken = []
    for _ in range(5):
        start = time.process_time()
        sum(i * i for i in range(10**6))
        taken.append(time.process_time() - start)
    return min(taken)


def planning_seconds(name: str, mode: str, size: str = SIZE) -> list[float]:
    """CPU seconds of planning each problem of a family, no plan remembered, ascending."""
    problems = [Problem.of(*case) for case in cases(name, size)]
    synthesize(problems[0], mode, 4)  # what is imported late
    taken = []
    for problem in problems:
        start = time.process_time()
        synthesize(problem, mode, 4)
        taken.append(time.process_time() - start)
    return sorted(taken)


def _in_loops(statistic: Callable[[list[float]], float], name: str, mode: str, size: str) -> float:
    return statistic(planning_seconds(name, mode, size)) / loop_seconds()


def _p99(taken: list[float]) -> float:
    return taken[math.ceil(0.99 * len(taken)) - 1]


# -------------------------------------------------------------------------------------------------------- goals


def _dearest(baseline: str, size: str) -> Ratio:
    return exactly(max(1 / cost_ratio(name, baseline, size) for name in FAMILIES))


def goals(size: str = SIZE) -> list[Goal]:
    """R-17: cost at most theirs in geometric mean on every family. R-13: a loop takes about 40 ms."""
    costs = [
        Goal(f"plan cost / {baseline}, worst family", lambda baseline=baseline: _dearest(baseline, size), 1.0)
        for baseline in BASELINES
    ]
    times = [
        Goal(f"planning {name} {what} / loop", lambda name=name, f=f: exactly(_in_loops(f, name, "paper", size)), most)
        for name, what, f, most in (
            ("A", "mean", statistics.fmean, 1 / 40),
            ("A", "p99", _p99, 10 / 40),
            ("F", "mean", statistics.fmean, 5 / 40),
            ("F", "max", max, 250 / 40),
        )
    ]
    return [*costs, *times]


# --------------------------------------------------------------------------------------------------- benchmarks


class Costs:
    params = (list(of_size(RECORDED)), list(BASELINES), [SIZE])
    param_names = ("family", "baseline", "size")
    timeout = 600

    def track_cost_ratio(self, name: str, baseline: str, size: str) -> float:
        return cost_ratio(name, baseline, size)

    def track_share_above_bound(self, name: str, baseline: str, size: str) -> float:
        return share_above_bound(name, baseline, size)


class Measured:
    """The same with what XLA and Shardy emit themselves, where jax is installed."""

    params = (list(of_size(RECORDED)), ["xla", "shardy"], [SIZE])
    param_names = ("family", "system", "size")
    timeout = 1800

    def setup(self, name: str, system: str, size: str) -> None:
        python = interpreter()
        if python is None:
            raise NotImplementedError("jax is not installed")  # how asv is told to skip
        self.cases = cases(name, size)
        self.found = measured(system, self.cases, python)

    def track_cost_ratio(self, name: str, system: str, size: str) -> float:
        pairs = zip(self.cases, self.found, strict=True)
        return compared([(found["cost"], plan(*case, mode="paper").cost) for case, found in pairs if found])

    def track_share_above_bound(self, name: str, system: str, size: str) -> float:
        pairs = zip(self.cases, self.found, strict=True)
        return statistics.fmean([found["peak"] > plan(*case, mode="direct").bound for case, found in pairs if found])


class Planning:
    params = (list(of_size(TIMED)), ["paper", "auto"], [SIZE])
    param_names = ("family", "mode", "size")
    timeout = 600

    def track_mean_in_loops(self, name: str, mode: str, size: str) -> float:
        return _in_loops(statistics.fmean, name, mode, size)

    def track_p99_in_loops(self, name: str, mode: str, size: str) -> float:
        return _in_loops(_p99, name, mode, size)

    def track_max_in_loops(self, name: str, mode: str, size: str) -> float:
        return _in_loops(max, name, mode, size)
