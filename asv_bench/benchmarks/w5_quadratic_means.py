"""W5: three means of products of two arrays: who reads its operands once, and holds only blocks of the results."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from numpy.typing import NDArray

from .checks import close
from .inputs import normal
from .sizes import SIZE
from .workloads import MEMORY, Workload, _Timed, _Tracked, timed_params, tracked_params

__all__ = ["VARIANTS", "QuadraticMeans", "QuadraticMeansCounts", "workload"]

SHAPES = {"XS": (8, 1, 20, 30), "S": (50, 1, 99, 192), "M/8": (62, 1, 987, 1920), "M": (500, 1, 987, 1920)}
VARIANTS = {"three": SHAPES}


def means(xp: Any, a: Any, b: Any) -> tuple[Any, ...]:
    """The means of both squares and of the product."""
    return (a * a).mean(0), (b * b).mean(0), (a * b).mean(0)


def workload(variant: str, size: str = SIZE) -> Workload:
    """The two arrays of a size."""
    shape = SHAPES[size]
    blocks = (10, *shape[1:])
    inputs = {"a": normal(1, shape, blocks=blocks), "b": normal(2, shape, blocks=blocks)}
    memory = MEMORY.get(size)

    @cache
    def streamed() -> tuple[NDArray[Any], ...]:
        sums: list[Any] = [0, 0, 0]
        for t in range(shape[0]):
            a, b = (source.part(slice(t, t + 1))[0] for source in inputs.values())
            sums = [sums[0] + a * a, sums[1] + b * b, sums[2] + a * b]
        return tuple(total / shape[0] for total in sums)

    def check(results: Sequence[Any]) -> None:
        for name, found, expected in zip(("a a", "b b", "a b"), results, streamed(), strict=True):
            close(name, found, expected)

    held = sum(source.nbytes for source in inputs.values())
    return Workload("W5 quadratic means", means, inputs, check, inside=memory is not None and held > memory)


class QuadraticMeans(_Timed):
    params = timed_params(VARIANTS)
    workload = staticmethod(workload)


class QuadraticMeansCounts(_Tracked):
    params = tracked_params(VARIANTS)
    workload = staticmethod(workload)
