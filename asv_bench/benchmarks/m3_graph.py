"""M3: from an expression to a filled mapping of tasks, by the number of blocks.

Goals: fewer tasks than dask.array, and time no worse than linear in the tasks.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np

from .ratios import Goal, Ratio, exactly, interleaved, ratio
from .sizes import SIZE, of_size
from .systems import SYSTEMS, System

#: blocks per axis of a square array: 10^2, 10^3 ... blocks
BLOCKS = {"XS": (10,), "S": (10, 32, 100), "M": (10, 32, 100, 316)}
BLOCK = 4  # elements per axis of a block: nothing is computed
FEWER = 0.99  # as a ratio of counts
COMPARED = ("dask.array", "distarray")

PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    "(x + 1).sum()": lambda xp, x: (x + 1).sum(),
    "x + x.T": lambda xp, x: x + x.T,
    "x @ x": lambda xp, x: x @ x,
}
#: `x @ x` has blocks^3 products in dask.array: 10^6 tasks at 100 blocks per axis.
LARGEST = {"x @ x": 32}


def operand(system: System, blocks: int) -> Any:
    n = blocks * BLOCK
    return system.put(np.arange(n * n, dtype=np.float64).reshape(n, n), (blocks, blocks))


def graph(x: Any) -> dict[Any, Any]:
    """The filled mapping of tasks of a Dask collection."""
    return dict(x.__dask_graph__())


def added(program: str, system: str, blocks: int) -> dict[Any, Any]:
    """The tasks of a program that its input's blocks do not already have."""
    x = operand(SYSTEMS[system], blocks)
    given = graph(x)
    return {key: task for key, task in graph(PROGRAMS[program](SYSTEMS[system].xp, x)).items() if key not in given}


def n_tasks(program: str, system: str, blocks: int) -> int:
    return len(added(program, system, blocks))


def nbytes_pickled(program: str, system: str, blocks: int) -> int:
    import cloudpickle

    return len(cloudpickle.dumps(added(program, system, blocks), protocol=pickle.HIGHEST_PROTOCOL))


def growth(program: str, blocks: tuple[int, int], rounds: int = 5) -> Ratio:
    """Seconds per task at the larger number of blocks over those at the smaller; 1 is linear."""
    system = SYSTEMS["distarray"]

    def prepared(k: int) -> Callable[[], object]:
        x = operand(system, k)
        return lambda: graph(PROGRAMS[program](system.xp, x))

    small, large = blocks
    taken = interleaved({"small": prepared(small), "large": prepared(large)}, rounds)
    tasks = n_tasks(program, "distarray", large) / n_tasks(program, "distarray", small)
    return ratio([t / tasks for t in taken["large"]], taken["small"])


def task_ratio(program: str, blocks: int) -> Ratio:
    """Tasks of distarray over those of dask.array: a count, so without an interval."""
    return exactly(n_tasks(program, "distarray", blocks) / n_tasks(program, "dask.array", blocks))


def goals(size: str = SIZE) -> list[Goal]:
    """Where the size of a graph is claimed."""
    rows = []
    for program in PROGRAMS:
        allowed = [k for k in of_size(BLOCKS, size) if k <= LARGEST.get(program, math.inf)]
        rows += [
            Goal(f"M3 tasks of {program}, {k * k} blocks / dask.array", lambda p=program, k=k: task_ratio(p, k), FEWER)
            for k in allowed
        ]
        if len(allowed) > 1:
            ends = (allowed[0], allowed[-1])
            # Twice: a graph that no longer fits the caches costs more per task, whoever makes it.
            rows.append(Goal(f"M3 growth of {program}", lambda p=program, e=ends: growth(p, e), 2.0))
    return rows


class Graph:
    params = (list(PROGRAMS), list(of_size(BLOCKS)), list(COMPARED))
    param_names = ("program", "blocks_per_axis", "system")
    timeout = 600

    def setup(self, program: str, blocks: int, system: str) -> None:
        if blocks > LARGEST.get(program, math.inf):
            raise NotImplementedError("too many tasks in dask.array")  # asv's way to skip a combination
        self.xp = SYSTEMS[system].xp
        self.x = operand(SYSTEMS[system], blocks)

    def time_build(self, program: str, blocks: int, system: str) -> None:
        graph(PROGRAMS[program](self.xp, self.x))

    def track_tasks(self, program: str, blocks: int, system: str) -> int:
        return n_tasks(program, system, blocks)

    def track_pickled_bytes(self, program: str, blocks: int, system: str) -> int:
        return nbytes_pickled(program, system, blocks)
