"""Joins and aggregations that are no product: distances in the maximum norm, and shortest paths of two steps.

Goals: at most half the time of numpy in the form that keeps its temporaries in a moderate size (a block of rows, all of
the loop space for it at once), and at most 0.75 of numpy in its fastest form, which steps through the inner loop with
reused arrays of the size of the result. SciPy's `cdist`, a loop in C of one thread, is shown beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

import distarray as dx

from .inputs import g
from .ratios import Goal, Ratio, interleaved, ratio
from .sizes import SIZE

Floats = NDArray[np.float64]

#: (rows, inner, columns)
SHAPES = {
    "distance": {"XS": (200, 16, 200), "S": (2000, 64, 2000)},
    "min-plus": {"XS": (100, 100, 100), "S": (1000, 1000, 1000)},
}
PAIRS = {"distance": ("absdiff", "max"), "min-plus": ("add", "min")}
#: Elements of the loop space that the rows of a block have.
BLOCK = 1 << 21


def _joined(program: str, x: Floats, y: Floats, out: Floats | None = None) -> Floats:
    if program == "min-plus":
        return np.add(x, y, out=out)
    return np.abs(np.subtract(x, y, out=out), out=out)


def by_rows(program: str, x: Floats, y: Floats) -> Floats:
    """A block of rows at a time."""
    fold = np.min if program == "min-plus" else np.max
    made = np.empty((len(x), y.shape[1]))
    step = max(1, BLOCK // y.size)
    for i in range(0, len(x), step):
        fold(_joined(program, x[i : i + step, :, None], y), axis=1, out=made[i : i + step])
    return made


def by_steps(program: str, x: Floats, y: Floats) -> Floats:
    """One step of the inner loop at a time, on arrays of the size of the result."""
    fold = np.minimum if program == "min-plus" else np.maximum
    made, scratch = _joined(program, x[:, 0, None], y[0]), np.empty((len(x), y.shape[1]))
    for k in range(1, len(y)):
        fold(made, _joined(program, x[:, k, None], y[k], scratch), out=made)
    return made


def operands(program: str, size: str) -> tuple[Floats, Floats]:
    n, k, m = SHAPES[program][size]
    return g(1, (n, k)), g(2, (k, m))


def programs(program: str, size: str) -> dict[str, Callable[[], Any]]:
    """What is timed, by system."""
    x, y = operands(program, size)
    join, agg = PAIRS[program]
    a, b = dx.asarray(x), dx.asarray(y)
    found: dict[str, Callable[[], Any]] = {
        "distarray": lambda: dx.einsum("ij,jk->ik", a, b, join=join, agg=agg).compute(),
        "numpy by rows": lambda: by_rows(program, x, y),
        "numpy by steps": lambda: by_steps(program, x, y),
    }
    if program == "distance":
        turned = np.ascontiguousarray(y.T)
        found["scipy"] = lambda: cdist(x, turned, "chebyshev")
    return found


@cache  # all ratios of a program come from one interleaved run
def times(program: str, size: str) -> dict[str, list[float]]:
    return interleaved(programs(program, size))


def ratio_to(reference: str, program: str, size: str = SIZE) -> Ratio:
    """Time of distarray over that of `reference`."""
    taken = times(program, size)
    return ratio(taken["distarray"], taken[reference])


def goals(size: str = SIZE) -> list[Goal]:
    """Where the speed of semirings is claimed."""
    return [
        Goal(f"{program} / {reference}", lambda p=program, r=reference: ratio_to(r, p, size), at_most)
        for program in PAIRS
        for reference, at_most in (("numpy by rows", 0.5), ("numpy by steps", 0.75))
    ]


class Semirings:
    params = ([SIZE], list(PAIRS))
    param_names = ("size", "program")
    timeout = 600

    def setup(self, size: str, program: str) -> None:
        self.run = programs(program, size)["distarray"]

    def time_run(self, size: str, program: str) -> None:
        self.run()

    def peakmem_run(self, size: str, program: str) -> None:
        self.run()


class SemiringsRatio:
    params = ([SIZE], list(PAIRS), ["numpy by rows", "numpy by steps"])
    param_names = ("size", "program", "reference")
    timeout = 600

    def track_ratio(self, size: str, program: str, reference: str) -> float:
        return ratio_to(reference, program, size).median
