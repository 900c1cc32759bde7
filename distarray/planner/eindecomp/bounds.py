"""Lower bounds on the elements that any plan must move."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import log, prod, sqrt
from typing import Any

import numpy as np

from distarray.planner.eindecomp.eingraph import EinOp


def matmul_bound(m: int, n: int, k: int, p: int) -> float:
    """Return the elements over the network, summed over `p` workers, of a product with these three extents.

    Memory independent and tight (Al Daas, Ballard, Grigori, Kumar, Rouse 2022, theorem 4.1).

    >>> round(matmul_bound(8000, 8000, 8000, 8) * 4)
    768000000
    """
    m, n, k = sorted((m, n, k), reverse=True)
    if p <= m / n:
        # the smallest array is the one that every worker needs
        held = (m * n + m * k) / p + n * k
    elif p <= m * n / k**2:
        held = 2 * sqrt(m * n * k**2 / p) + m * n / p
    else:
        held = 3 * (m * n * k / p) ** (2 / 3)
    return max(0.0, p * held - (m * n + m * k + n * k))


def cosma_bound(m: int, n: int, k: int, p: int, words: float) -> float:
    """Bound what `held_bound` bounds where a worker holds no more than `words` elements (Kwasniewski and others
    2019).

    >>> round(cosma_bound(8000, 8000, 8000, 8, 1e12)), round(cosma_bound(8000, 8000, 8000, 8, 1e7))
    (192000000, 211817232)
    """
    if p <= m * n * k / words**1.5:
        held = 2 * m * n * k / (p * sqrt(words)) + (words if p > 1 else m * n)
    else:
        held = 3 * (m * n * k / p) ** (2 / 3)
    return max(0.0, p * held - (m * n + m * k + n * k))


def _matrices(op: EinOp) -> tuple[int, int, int] | None:
    """Return the three extents, if it is a product of two matrices."""
    arrays = [*op.terms, op.result]
    if len(op.terms) != 2 or len(op.labels) != 3 or any(len(t) != 2 for t in arrays):
        return None
    if len(set(map(frozenset, arrays))) != 3:
        return None
    a, b, c = (op.extents[x] for x in op.labels)
    return a, b, c


def op_bound(op: EinOp, p: int, words: float | None = None) -> float:
    """Return the elements that any regular grid of `p` kernels moves for one operation; tight for products of two
    matrices.

    The least over real splits ``1 <= g <= b``, ``prod g = p``, of what the kernels hold together beyond the arrays
    themselves: convex in ``log g``.

    Parameters
    ----------
    words
        Elements that a worker can hold, if there is a limit: products of matrices then move more.
    """
    if not op.aggregated and all(set(t) == set(op.result) for t in op.terms):
        return 0.0
    extents = _matrices(op)
    if extents is not None:
        bound = matmul_bound(*extents, p)
        return bound if words is None or p == 1 else max(bound, cosma_bound(*extents, p, words))
    return max(0.0, held_bound(op, p) - sum(map(op.size, (*op.terms, op.result))))


def held_bound(op: EinOp, p: int) -> float:
    """Return the elements that the kernels of `p` real splits hold together, at least: blocks of inputs and result."""
    arrays = tuple([tuple(op.columns(t)) for t in (*op.terms, op.result)])
    return _least_held(tuple([op.extents[x] for x in op.labels]), arrays, p)


@lru_cache(maxsize=4096)
def _least_held(extents: Sequence[int], arrays: Sequence[Sequence[int]], p: int) -> float:
    """Return min over ``y = log g`` of ``sum_t p |t| exp(-y[t])``, by an interior point method with its gap taken
    off.
    """
    top = np.array([log(n) for n in extents if n > 1])
    cut = [i for i, n in enumerate(extents) if n > 1]
    budget = min(log(p), float(top.sum()))
    size = np.array([p * prod([float(extents[i]) for i in t]) for t in arrays])
    member = np.array([[float(i in t) for i in cut] for t in arrays])
    if budget <= 0 or budget >= top.sum() * (1 - 1e-12):  # one point
        return float((size * np.exp(-member @ (top if budget > 0 else 0 * top))).sum())
    scale = float(size.sum())
    return scale * _interior(size / scale, member, top, budget)


def _interior(size: Any, member: Any, top: Any, budget: float) -> float:
    """Return min of ``sum size exp(-member y)`` where ``0 <= y <= top`` and ``sum y = budget``; from below."""
    n = len(top)
    y = top * (budget / top.sum())
    system = np.ones((n + 1, n + 1))
    system[n, n] = 0.0
    t = 10.0
    while True:
        for _ in range(50):
            held = size * np.exp(-member @ y)
            gradient = -t * (member.T @ held) - 1 / y + 1 / (top - y)
            system[:n, :n] = t * (member.T * held) @ member + np.diag(1 / y**2 + 1 / (top - y) ** 2)
            step = np.linalg.solve(system, np.append(-gradient, 0.0))[:n]
            decrement = -gradient @ step
            y = y + step / (1 + sqrt(max(decrement, 0.0)))  # damped: stays inside, since the barrier is self-concordant
            if decrement < 1e-6:
                break
        if 2 * n / t < 1e-9:
            return float((size * np.exp(-member @ y)).sum()) - 2 * n / t
        t *= 20.0
