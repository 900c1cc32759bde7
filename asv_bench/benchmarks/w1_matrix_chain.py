"""W1: a chain of two products of matrices, square, short and wide, or tall and thin.

Which way a product is cut decides what moves: a planner's choice against chunks that were fixed before.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from .checks import close, matvec, probe
from .inputs import normal
from .sizes import SIZE
from .workloads import MEMORY, Workload, _Timed, _Tracked, references, timed_params, tracked_params

__all__ = ["VARIANTS", "ChainCounts", "MatrixChain", "workload"]

#: The short side k by variant and size; the long one is 100 k. At M/8 every side is that at M over sqrt(8).
VARIANTS = {
    "square": {"XS": 64, "S": 2048, "G": 16384, "M/8": 11584, "M": 32768},
    "inner": {"XS": 8, "S": 400, "G": 2048, "M/8": 1448, "M": 4096},
    "outer": {"XS": 4, "S": 50, "G": 400, "M/8": 283, "M": 800},
}


def chain(xp: Any, A: Any, B: Any, C: Any) -> tuple[Any, ...]:
    return ((A @ B) @ C,)


def consumed_chain(xp: Any, A: Any, B: Any, C: Any, V: Any) -> tuple[Any, ...]:
    """For results that are larger than the memory."""
    return (((A @ B) @ C) @ V,)


def _shapes(variant: str, k: int) -> tuple[tuple[int, int], ...]:
    long = 100 * k
    if variant == "square":
        return (k, k), (k, k), (k, k)
    if variant == "inner":
        return (k, long), (long, k), (k, k)
    return (long, k), (k, k), (k, long)


def workload(variant: str, size: str = SIZE) -> Workload:
    """The chain of a variant."""
    shapes = _shapes(variant, VARIANTS[variant][size])
    inputs = {name: normal(i + 1, shape, "f4") for i, (name, shape) in enumerate(zip("ABC", shapes, strict=True))}
    A, B, C = inputs.values()
    memory = MEMORY.get(size)
    result = 4 * A.shape[0] * C.shape[1]
    needed = sum(source.nbytes for source in inputs.values()) + 4 * A.shape[0] * B.shape[1] + result
    is_consumed = memory is not None and result > memory

    @cache
    def probed() -> Any:
        return matvec(A, matvec(B, matvec(C, probe(C.shape[1]).part())))

    def check(results: Sequence[Any]) -> None:
        if memory is None:
            close("R", results[0], references(made)[0])
        else:
            close("R @ v", results[0] if is_consumed else results[0] @ probe(C.shape[1], "f4").part(), probed())

    made = Workload(
        f"W1 chain, {variant}",
        consumed_chain if is_consumed else chain,
        inputs | ({"V": probe(C.shape[1], "f4")} if is_consumed else {}),
        check,
        inside=memory is not None and needed > memory,
        note="the result is multiplied by three vectors, since it exceeds the memory" if is_consumed else "",
    )
    return made


class MatrixChain(_Timed):
    params = timed_params(VARIANTS)
    workload = staticmethod(workload)


class ChainCounts(_Tracked):
    params = tracked_params(VARIANTS)
    workload = staticmethod(workload)
