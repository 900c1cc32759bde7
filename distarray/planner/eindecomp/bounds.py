"""Lower bounds on the elements that any plan must move (specification section 5)."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod, sqrt

import numpy as np

from distarray.planner.eindecomp.graph import EinOp

__all__ = ["matmul_bound", "op_bound"]


def matmul_bound(m: int, n: int, k: int, p: int) -> float:
    """Elements over the network, summed over `p` workers, of a product with these three extents.

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


def op_bound(op: EinOp, p: int) -> float:
    """Elements that any regular grid of `p` kernels moves for one operation; tight for products of two matrices.

    The least over real splits ``1 <= g <= b``, ``prod g = p``, of what the kernels hold together beyond the arrays
    themselves: convex in ``log g``.
    """
    if not op.aggregated and all(set(t) == set(op.result) for t in op.terms):
        return 0.0
    arrays = [*op.terms, op.result]
    if (
        len(op.terms) == 2
        and len(op.labels) == 3
        and all(len(t) == 2 for t in arrays)
        and len(set(map(frozenset, arrays))) == 3
    ):
        a, b, c = (op.extents[x] for x in op.labels)
        return matmul_bound(a, b, c, p)
    return _least_held(op, arrays, p) - sum(prod(op.extents[x] for x in t) for t in arrays)


def _least_held(op: EinOp, arrays: Sequence[Sequence[str]], p: int) -> float:
    """min over log g of sum_t p |t| / prod g[t]: projected gradient on the simplex of exponents."""
    labels = op.labels
    top = np.array([np.log(op.extents[x]) for x in labels])
    budget = min(float(np.log(p)), float(top.sum()))
    member = np.array([[x in t for x in labels] for t in arrays], float)
    size = np.array([float(prod(op.extents[x] for x in t)) for t in arrays])

    def held(y: np.ndarray) -> float:
        return float((p * size * np.exp(-member @ y)).sum())

    from scipy.optimize import minimize

    start = top * (budget / top.sum()) if top.sum() else top
    scale = held(start)
    found = minimize(
        lambda y: held(y) / scale,
        start,
        jac=lambda y: -(member.T @ (p * size * np.exp(-member @ y))) / scale,
        bounds=[(0.0, t) for t in top],
        constraints=[{"type": "eq", "fun": lambda y: y.sum() - budget, "jac": lambda y: np.ones_like(y)}],
        method="SLSQP",
        options={"ftol": 1e-12, "maxiter": 200},
    )
    return min(held(found.x), scale)
