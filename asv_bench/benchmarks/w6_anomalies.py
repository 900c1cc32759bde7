"""W6: a climatology of every day of the year, smoothed over a window of weights, and the deviation from it.

A reduction over years whose small result is read again by every value of the large array.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .checks import close
from .inputs import Source, g_at
from .sizes import SIZE
from .workloads import MEMORY, Workload, _Timed, _Tracked, timed_params, tracked_params

__all__ = ["VARIANTS", "Anomalies", "AnomaliesCounts", "workload"]

DAYS = 365
#: Years, points along y and x.
GRIDS = {"XS": (2, 3, 4), "S": (4, 20, 30), "M/8": (5, 180, 360), "M": (40, 180, 360)}
VARIANTS = {"both": GRIDS}
HALF = 30
WEIGHTS = 1 - abs(np.arange(-HALF, HALF + 1)) / (HALF + 1)
WEIGHTS /= WEIGHTS.sum()
#: Rows of the grid that are checked where the whole is large.
_SAMPLED_ROWS = 3


def anomalies(xp: Any, x: Any) -> tuple[Any, ...]:
    """The smoothed climatology and the root of the mean square of what deviates from it."""
    by_year = x.reshape((x.shape[0] // DAYS, DAYS, *x.shape[1:]))
    clim = by_year.mean(0)
    smooth = sum(float(w) * xp.roll(clim, -j, 0) for j, w in zip(range(-HALF, HALF + 1), WEIGHTS, strict=True))
    anom = by_year - smooth
    return smooth, xp.sqrt((anom * anom).mean((0, 1)))


class _Seasons:
    """The values of the input at global indices, for a grid of so many points; travels to workers."""

    def __init__(self, n_points: int) -> None:
        self.n_points = n_points

    def __call__(self, index: NDArray[np.int64]) -> NDArray[np.float64]:
        day = index // self.n_points % DAYS
        return 10 * np.sin(2 * np.pi * day / DAYS) + g_at(1, index)


def workload(variant: str, size: str = SIZE) -> Workload:
    """The years of a size."""
    years, ny, nx = GRIDS[size]
    x = Source((DAYS * years, ny, nx), "f8", _Seasons(ny * nx), (DAYS, ny, nx))
    memory = MEMORY.get(size)
    sampled = range(ny) if memory is None else np.linspace(0, ny - 1, _SAMPLED_ROWS).astype(int).tolist()

    @cache
    def reference(row: int) -> tuple[Any, ...]:
        return anomalies(np, x.part(slice(None), slice(row, row + 1)))

    def check(results: Sequence[Any]) -> None:
        for row in sampled:
            smooth, deviation = reference(row)
            close(f"smooth, row {row}", results[0][:, row : row + 1], smooth)
            close(f"deviation, row {row}", results[1][row : row + 1], deviation)

    return Workload(
        "W6 anomalies", anomalies, {"x": x}, check, inside=memory is not None and x.nbytes > memory,
        note="" if memory is None else f"{_SAMPLED_ROWS} rows of the grid are checked",
    )  # fmt: skip


class Anomalies(_Timed):
    params = timed_params(VARIANTS)
    workload = staticmethod(workload)


class AnomaliesCounts(_Tracked):
    params = tracked_params(VARIANTS)
    workload = staticmethod(workload)
