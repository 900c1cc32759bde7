"""Moments along the first axis, compiled: numpy's sums row by row in one pass each, with no array of differences.

`monoids` computes the moments of a slice by four functions of numpy, which write and read an array of its size three
times. Where the rows are long, numpy adds one row after the other: a loop that does the same has the same bits.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import cache

import numpy as np

from distarray.kernels.compiler import Candidate, flags, is_on, loaded
from distarray.types import HostArray

#: Mean and sum of squared distances of rows.
_Moments = tuple[HostArray, HostArray]

#: numpy runs along shorter rows in another order.
SHORTEST_ROW = 64

SOURCE = '''"""Moments of rows, written by distarray: it may be deleted at any time."""

from numba import njit

TYPES = [f"void({t}[:, ::1], {t}, {t}[::1], {t}[::1])" for t in ("float32", "float64")]


@njit(TYPES, cache=True, nogil=True, error_model="numpy")
def compiled(x, count, mean, m2):
    for j in range(x.shape[1]):
        mean[j] = 0
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            mean[j] += x[i, j]
    for j in range(x.shape[1]):
        mean[j] /= count
        off = x[0, j] - mean[j]
        m2[j] = off * off
    for i in range(1, x.shape[0]):
        for j in range(x.shape[1]):
            off = x[i, j] - mean[j]
            m2[j] += off * off
'''


class RowMoments(Candidate):
    """RowMoments are the moments of rows, of either precision."""

    def compile(self) -> None:
        self.function = loaded(SOURCE)

    def of(self, block: HostArray) -> _Moments | None:
        """Return mean and sum of squares along the first axis, which has extent 1; None where numpy has to."""
        function, found = self.function, flags()
        if function is None or found is None:
            return None
        shape = (1, *block.shape[1:])
        mean, m2 = np.empty(shape, block.dtype), np.empty(shape, block.dtype)
        args = block.reshape(len(block), -1), block.dtype.type(len(block)), mean.reshape(-1), m2.reshape(-1)
        return (mean, m2) if self.run(function, found, found.heeded(), *args) else None


@cache
def _row_moments() -> RowMoments:
    return RowMoments()


def row_moments(block: HostArray, axes: tuple[int, ...], numpys: Callable[[], _Moments]) -> _Moments:
    """Return mean and sum of squared distances of a block along some axes: by compiled code, or what numpy gives."""
    if (
        axes != (0,)
        or block.dtype.name not in ("float32", "float64")
        or not (is_on() and block.flags.c_contiguous)
        or math.prod(block.shape[1:]) < SHORTEST_ROW
    ):
        return numpys()
    candidate = _row_moments()
    if (made := candidate.of(block)) is not None:
        return made
    started = time.perf_counter()
    made = numpys()
    candidate.ran(time.perf_counter() - started)
    return made
