"""Branches: products that do not need each other, each made by a part of the members, beside plans without them.

What is gained is named here: a sum of products of computed matrices moves three matrices in place of eight on four
members. On four workers of one machine 4 products of 2000 x 2000 then take 0.63 s in place of 0.86 (`branch_seconds`).
"""

from __future__ import annotations

import functools
import operator
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import distarray as dx
from distarray.planner.partition import tiers

from .ratios import Goal, exactly
from .sizes import SIZE

#: Rows of the matrices, of which only plans are made.
ROWS = 2000
#: Members, products, and the bytes moved by those that plans without branches move, at most.
CASES = ((2, 2, 1 / 2), (4, 2, 3 / 4), (4, 4, 3 / 8), (8, 4, 5 / 8))
#: An ordinary network, on which moving a matrix takes some time beside multiplying it.
RATES = {"bandwidth": 1e8, "task": 0.0, "latency": 0.0}


@contextmanager
def _branches(n_tried: int) -> Iterator[None]:
    """Plan afresh, with so many ways to deal out branches that are tried."""
    before, tiers.MAX_BRANCHINGS = tiers.MAX_BRANCHINGS, n_tried
    dx.plan_cache_clear()
    try:
        with dx.config.set(planner="eindecomp", block_bytes=1 << 14):
            yield
    finally:
        tiers.MAX_BRANCHINGS = before
        dx.plan_cache_clear()


def sum_of_products(n: int, n_products: int) -> Any:
    """The sum of products of matrices that are computed in the same expression."""
    rows, columns = dx.arange(float(n))[:, None], dx.arange(float(n))
    operands = [rows * i - columns for i in range(2 * n_products)]
    return functools.reduce(operator.add, map(operator.matmul, operands[::2], operands[1::2]))


def moved_bytes(n: int, n_members: int, n_products: int, n_tried: int) -> int:
    """The bytes that its plan moves."""
    with dx.use(dx.Team((n_members,), ("x",))), dx.config.set(calibration=RATES), _branches(n_tried):
        return int(sum_of_products(n, n_products).explain().moved_bytes)


def bytes_ratio(n: int, n_members: int, n_products: int) -> float:
    """What is moved with branches, by what is moved without."""
    with_branches, without = (moved_bytes(n, n_members, n_products, k) for k in (tiers.MAX_BRANCHINGS, 0))
    return with_branches / without


def branch_seconds(n: int, n_products: int, n_tried: int) -> float:
    """Seconds on the cluster whose client is open, whose rates were measured (`dx.calibrate`)."""
    with _branches(n_tried):
        start = time.perf_counter()
        dx.wait(sum_of_products(n, n_products).persist())
        return time.perf_counter() - start


def goals(size: str = SIZE) -> list[Goal]:
    """Where fewer bytes are claimed; the ranges that matrices are made of move too."""
    return [
        Goal(
            f"branches: bytes of {k} products on {p} members",
            lambda p=p, k=k: exactly(bytes_ratio(ROWS, p, k)),
            1.1 * at_most,
        )
        for p, k, at_most in CASES
    ]


class Branches:
    params = ([f"{k} products on {p}" for p, k, _ in CASES], [SIZE])
    param_names = ("case", "size")

    def track_bytes_ratio(self, case: str, size: str) -> float:
        n_products, _, _, n_members = case.split()
        return bytes_ratio(ROWS, int(n_members), int(n_products))
