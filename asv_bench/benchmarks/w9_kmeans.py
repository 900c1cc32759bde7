"""W9: k-means with all distances: a loop that broadcasts few centres and reduces over many members."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .checks import close
from .inputs import Source, g_at
from .sizes import SIZE
from .workloads import MEMORY, Workload, _Timed, _Tracked, timed_params, tracked_params

__all__ = ["VARIANTS", "KMeans", "KMeansCounts", "workload"]

K, FEATURES, STEPS = 8, 16, 10
ROWS = {"XS": 1_000, "S": 100_000, "M/8": 12_500_000, "M": 100_000_000}
VARIANTS = {"ten steps": ROWS}
#: What `rel` of centres and inertia may be.
LIMIT = 1e-9
_AT_A_TIME = 1 << 19


def distances(xp: Any, X: Any, centres: Any) -> Any:
    """The squares of the distances of rows to centres."""
    return (X * X).sum(1)[:, None] - 2 * (X @ centres.T) + (centres * centres).sum(1)


def kmeans(xp: Any, X: Any) -> tuple[Any, ...]:
    """Labels, centres and inertia."""
    centres = X[:K]
    for _ in range(STEPS):
        labels = distances(xp, X, centres).argmin(1)
        counts = xp.bincount(labels, minlength=K)
        is_member = (labels[:, None] == xp.arange(K)).astype("f8")
        sums = is_member.T @ X
        centres = xp.where(counts[:, None] > 0, sums / xp.maximum(counts, 1)[:, None], centres)
    last = distances(xp, X, centres)
    return last.argmin(1), centres, last.min(1).sum()


def _values(index: NDArray[np.int64]) -> NDArray[np.float64]:
    row, column = index // FEATURES, index % FEATURES
    return 4 * g_at(0, row % K * FEATURES + column) + g_at(1, index)


def workload(variant: str, size: str = SIZE) -> Workload:
    """The rows of a size."""
    n = ROWS[size]
    X = Source((n, FEATURES), "f8", _values, (min(n, 2**17), FEATURES))
    memory = MEMORY.get(size)

    @cache
    def streamed() -> tuple[NDArray[Any], NDArray[Any], float]:
        """Counts of labels, centres and inertia by numpy, some rows at a time."""
        slabs = [slice(lo, hi) for lo, hi in itertools.pairwise([*range(0, n, _AT_A_TIME), n])]
        centres = X.part(slice(0, K))
        for step in range(STEPS + 1):
            counts, sums, inertia = np.zeros(K, int), np.zeros((K, FEATURES)), 0.0
            for rows in slabs:
                x = X.part(rows)
                d2 = distances(np, x, centres)
                labels = d2.argmin(1)
                counts += np.bincount(labels, minlength=K)
                np.add.at(sums, labels, x)
                inertia += d2.min(1).sum()
            if step < STEPS:
                centres = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], centres)
        return counts, centres, inertia

    def check(results: Sequence[Any]) -> None:
        counts, centres, inertia = streamed()
        found = np.bincount(np.asarray(results[0]), minlength=K) if memory is None else counts
        if not np.array_equal(found, counts):
            raise AssertionError(f"labels are counted {found.tolist()}, not {counts.tolist()}")
        close("centres", results[1], centres, LIMIT)
        close("inertia", np.asarray(results[2]).reshape(1), [inertia], LIMIT)

    return Workload("W9 k-means", kmeans, {"X": X}, check, inside=memory is not None and X.nbytes > memory)


class KMeans(_Timed):
    params = timed_params(VARIANTS)
    workload = staticmethod(workload)


class KMeansCounts(_Tracked):
    params = tracked_params(VARIANTS)
    workload = staticmethod(workload)
