"""W4: the vorticity of a flow on a periodic grid, squared and summed over the grid for every time.

Two padded arrays and one pass: what `pad` copies or moves, and whether the chain runs as one step.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .checks import close
from .inputs import uniform
from .sizes import SIZE
from .workloads import MEMORY, Workload, _Timed, _Tracked, timed_params, tracked_params

__all__ = ["VARIANTS", "Vorticity", "VorticityCounts", "workload"]

#: Points along y and x, times.
GRIDS = {"XS": (20, 30, 4), "S": (200, 200, 30), "M/8": (2500, 2500, 36), "M": (5000, 5000, 72)}
VARIANTS = {"both": GRIDS}


def vorticity(xp: Any, u: Any, v: Any, dx: Any, dy: Any) -> tuple[Any, ...]:
    """The sums of squares, one for every time."""
    below = ((0, 1), (0, 0), (0, 0))
    w = dx[:, :, None] * xp.pad(u, below, mode="wrap") - dy[:, :, None] * xp.pad(v, below, mode="wrap")
    return ((w * w).sum((0, 1)),)


def workload(variant: str, size: str = SIZE) -> Workload:
    """The flow of a size."""
    ny, nx, nt = GRIDS[size]
    inputs = {
        "u": uniform(1, (ny, nx, nt), blocks=(ny, nx, 1)),
        "v": uniform(2, (ny, nx, nt), blocks=(ny, nx, 1)),
        "dx": uniform(3, (ny + 1, nx)),
        "dy": uniform(4, (ny + 1, nx)),
    }
    memory = MEMORY.get(size)

    @cache
    def streamed() -> NDArray[Any]:
        spacings = inputs["dx"].part(), inputs["dy"].part()
        sums = []
        for t in range(nt):
            now = (slice(None), slice(None), slice(t, t + 1))
            sums += vorticity(np, inputs["u"].part(*now), inputs["v"].part(*now), *spacings)
        return np.concatenate(sums)

    def check(results: Sequence[Any]) -> None:
        close("sums", results[0], streamed())

    held = sum(source.nbytes for source in inputs.values())
    return Workload("W4 vorticity", vorticity, inputs, check, inside=memory is not None and held > memory)


class Vorticity(_Timed):
    params = timed_params(VARIANTS)
    workload = staticmethod(workload)


class VorticityCounts(_Tracked):
    params = tracked_params(VARIANTS)
    workload = staticmethod(workload)
