"""W7: least squares by the normal equations, and logistic regression by six Newton steps, on many rows.

Every step reads all rows for a small result, and the next one needs it: passes over data that may exceed the memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .checks import close
from .inputs import normal, uniform
from .sizes import SIZE
from .workloads import MEMORY, Workload, _Timed, _Tracked, timed_params, tracked_params

__all__ = ["VARIANTS", "Regression", "RegressionCounts", "workload"]

#: Rows, columns, rows of a block.
ROWS = {
    "XS": (2_000, 8, 2**9),
    "S": (100_000, 32, 2**13),
    "G": (4_000_000, 100, 2**17),
    "M/8": (4_000_000, 100, 2**17),
    "M": (32_000_000, 100, 2**17),
}
VARIANTS = {"both": ROWS}
STEPS = 6
#: What `rel` of the coefficients may be.
LIMIT = 1e-8


def sigmoid(xp: Any, x: Any) -> Any:
    return 1 / (1 + xp.exp(-x))


def regression(xp: Any, X: Any, b: Any, e: Any, u: Any) -> tuple[Any, ...]:
    """Coefficients and residual norm of least squares, coefficients of logistic regression."""
    q = X.shape[1]
    y = X @ b + 0.1 * e
    beta = xp.linalg.solve(X.T @ X, X.T @ y)
    residual = xp.sqrt(((y - X @ beta) ** 2).sum())

    z = xp.where(u < sigmoid(xp, X @ b / q**0.5), 1.0, 0.0)
    t = xp.zeros(q)
    s = sigmoid(xp, X @ t)
    for _ in range(STEPS):
        H = X.T @ ((s * (1 - s))[:, None] * X) + 1e-3 * xp.eye(q)
        grad = X.T @ (s - z) + 1e-3 * t
        t = t - xp.linalg.solve(H, grad)
        s = sigmoid(xp, X @ t)
    return beta, residual, t


@cache
def streamed(size: str) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """The results by numpy, from one block of rows at a time."""
    n, q, step = ROWS[size]
    X, b, e, u = _inputs(size).values()
    slabs = [slice(lo, hi) for lo, hi in itertools.pairwise([*range(0, n, step), n])]
    known = b.part()

    def total(function: Any) -> list[Any]:
        """Sums over all blocks of what `function` gives for one."""
        sums: list[Any] = []
        for rows in slabs:
            x = X.part(rows)
            y = x @ known + 0.1 * e.part(rows)
            z = (u.part(rows) < sigmoid(np, x @ known / q**0.5)).astype(np.float64)
            parts = function(x, y, z)
            sums = [a + p for a, p in zip(sums, parts, strict=True)] if sums else list(parts)
        return sums

    beta = np.linalg.solve(*total(lambda x, y, z: (x.T @ x, x.T @ y)))
    (squares,) = total(lambda x, y, z: (((y - x @ beta) ** 2).sum(),))
    t = np.zeros(q)
    for _ in range(STEPS):

        def newton(x: Any, y: Any, z: Any, t: Any = t) -> tuple[Any, ...]:
            s = sigmoid(np, x @ t)
            return x.T @ ((s * (1 - s))[:, None] * x), x.T @ (s - z)

        H, grad = total(newton)
        t = t - np.linalg.solve(H + 1e-3 * np.eye(q), grad + 1e-3 * t)
    return beta, np.sqrt(squares), t


def _inputs(size: str) -> dict[str, Any]:
    n, q, step = ROWS[size]
    return {
        "X": normal(1, (n, q), blocks=(step, q)),
        "b": normal(2, (q,), blocks=(q,)),
        "e": normal(3, (n,), blocks=(step,)),
        "u": uniform(4, (n,), blocks=(step,)),
    }


def workload(variant: str = "both", size: str = SIZE) -> Workload:
    """Both regressions on one set of rows."""
    inputs = _inputs(size)

    def check(results: Sequence[Any]) -> None:
        for name, found, expected in zip(("beta", "residual norm", "t"), results, streamed(size), strict=True):
            close(name, found, expected, LIMIT)

    n, q, _ = ROWS[size]
    return Workload("W7 regression", regression, inputs, check, inside=8 * n * q > MEMORY.get(size, 8 * n * q))


class Regression(_Timed):
    params = timed_params(VARIANTS)
    workload = staticmethod(workload)


class RegressionCounts(_Tracked):
    params = tracked_params(VARIANTS)
    workload = staticmethod(workload)
