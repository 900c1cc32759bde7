"""In-place updates of views: Jacobi sweeps of a small grid, where the cost per statement decides.

Goals at S: at most 5 x numpy's time for 100 sweeps of 256 x 256; cut over two members, a loop that plans a few times
at its start and then no more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .inputs import u
from .ratios import Goal, Ratio, exactly, interleaved, ratio
from .sizes import SIZE, of_size
from .systems import SYSTEMS, System

#: grid, sweeps
ROWS = {"XS": ((64, 64), 10), "S": ((256, 256), 100)}
#: dask.array cannot write to a view in place without its graph growing with every sweep.
COMPARED = ("numpy", "distarray")


def jacobi(xp: Any, grid: Any, source: Any, sweeps: int) -> Any:
    for _ in range(sweeps):
        grid[1:-1, 1:-1] = 0.25 * (
            grid[:-2, 1:-1] + grid[2:, 1:-1] + grid[1:-1, :-2] + grid[1:-1, 2:] - source[1:-1, 1:-1]
        )
    return grid


def inputs(system: System, size: str, blocks: tuple[int, int] | None = None) -> tuple[Any, Any]:
    shape, _ = of_size(ROWS, size)
    return system.put(u(1, shape), blocks), system.put(u(2, shape), blocks)


def ratio_to_numpy(size: str = SIZE) -> Ratio:
    """Time of distarray over that of numpy, for all sweeps."""
    _, sweeps = of_size(ROWS, size)

    def prepared(system: System) -> Callable[[], object]:
        grid, source = inputs(system, size)
        return lambda: system.force(jacobi(system.xp, grid, source, sweeps))

    taken = interleaved({name: prepared(SYSTEMS[name]) for name in COMPARED})
    return ratio(taken["distarray"], taken["numpy"])


def counts(size: str = SIZE) -> tuple[float, float]:
    """Plans and tasks per sweep of a grid that is cut over two members, the first sweeps included."""
    import distarray as dx

    _, sweeps = of_size(ROWS, size)
    system = SYSTEMS["distarray"]
    grid, source = inputs(system, size, (2, 1))
    dx.plan_cache_clear()
    with dx.testing.counting() as counted:
        system.force(jacobi(dx, grid, source, sweeps))
    return counted.planner_calls / sweeps, counted.tasks / sweeps


def goals(size: str = SIZE) -> list[Goal]:
    """Where the cost of a loop of small statements is claimed."""
    _, sweeps = of_size(ROWS, size)
    return [
        Goal("in-place Jacobi / numpy", lambda: ratio_to_numpy(size), 5.0),
        Goal("in-place Jacobi, plans / sweeps", lambda: exactly(counts(size)[0]), 5 / sweeps),
    ]


class Jacobi:
    params = ([SIZE], list(COMPARED))
    param_names = ("size", "system")
    timeout = 600

    def setup(self, size: str, system: str) -> None:
        self.system = SYSTEMS[system]
        self.grid, self.source = inputs(self.system, size)
        _, self.sweeps = of_size(ROWS, size)

    def time_sweeps(self, size: str, system: str) -> None:
        self.system.force(jacobi(self.system.xp, self.grid, self.source, self.sweeps))

    def peakmem_sweeps(self, size: str, system: str) -> None:
        self.system.force(jacobi(self.system.xp, self.grid, self.source, self.sweeps))


class JacobiCosts:
    params = (SIZE,)
    param_names = ("size",)
    timeout = 600

    def track_ratio_to_numpy(self, size: str) -> float:
        return ratio_to_numpy(size).median

    def track_plans_per_sweep(self, size: str) -> float:
        return counts(size)[0]

    def track_tasks_per_sweep(self, size: str) -> float:
        return counts(size)[1]
