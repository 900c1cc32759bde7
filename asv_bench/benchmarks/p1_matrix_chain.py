"""P1: the first experiment of the EinDecomp paper: ``(A @ B) + (C @ (D @ E))``, all square, or thin and thick in turn.

`inside` makes the operands inside the clock: the paper's placement ("pre-partitioned off-line") and one that counts
everything are tabled both.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from .checks import close, matvec, probe
from .inputs import normal
from .sizes import SIZE
from .workloads import MEMORY, Workload, _Timed, _Tracked, references, timed_params, tracked_params

__all__ = ["SIDES", "VARIANTS", "Exp1", "Exp1Counts", "workload"]

#: The side s at M; at M/8 it is 0.36 of that (1 / sqrt(8) = 0.354), so that every number of workers up to 16 divides
#: most extents; at M/16 there is the smallest alone, a quarter of it.
SIDES = (8000, 12000, 16000, 32000)
SIZES = {
    "XS": {"": 80},
    "S": {"": 1000},
    "G": {"": 8192},
    "M/16": {f" {s}": s // 4 for s in SIDES[:1]},
    "M/8": {f" {s}": s * 36 // 100 for s in SIDES},
    "M": {f" {s}": s for s in SIDES},
}
#: By name, then size; the names of large ones end in the side at M.
VARIANTS = {
    f"{kind}{suffix}": {size: sides[suffix] for size, sides in SIZES.items() if suffix in sides}
    for kind in ("square", "skew")
    for suffix in ("", *SIZES["M"])
}


def chain(xp: Any, A: Any, B: Any, C: Any, D: Any, E: Any) -> tuple[Any, ...]:
    return ((A @ B) + (C @ (D @ E)),)


def _shapes(variant: str, s: int) -> tuple[tuple[int, int], ...]:
    if variant.startswith("square"):
        return ((s, s),) * 5
    thin, thick = s // 10, 10 * s
    return (s, thin), (thin, s), (s, thin), (thin, thick), (thick, s)


def workload(variant: str, size: str = SIZE) -> Workload:
    """The chain of a variant."""
    s = VARIANTS[variant][size]
    shapes = _shapes(variant, s)
    inputs = {name: normal(i + 1, shape, "f4") for i, (name, shape) in enumerate(zip("ABCDE", shapes, strict=True))}
    memory = MEMORY.get(size)
    A, B, C, D, E = inputs.values()

    @cache
    def probed() -> Any:
        v = probe(s).part()
        return matvec(A, matvec(B, v)) + matvec(C, matvec(D, matvec(E, v)))

    def check(results: Sequence[Any]) -> None:
        if memory is None:
            close("Y", results[0], references(made)[0])
        else:
            close("Y @ v", results[0] @ probe(s, "f4").part(), probed())

    nbytes = sum(source.nbytes for source in inputs.values())
    made = Workload(
        f"P1 exp 1, {variant} (s = {s})", chain, inputs, check, inside=memory is not None and nbytes > memory
    )
    return made


class Exp1(_Timed):
    params = timed_params(["square", "skew"])
    workload = staticmethod(workload)


class Exp1Counts(_Tracked):
    params = tracked_params(["square", "skew"])
    workload = staticmethod(workload)
