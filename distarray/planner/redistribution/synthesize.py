"""The synthesizer: the cheapest sequence of collectives from one type to another, within a memory bound.

Implements Rink et al. 2021, "Memory-efficient array redistribution through portable collective communication", in the
mode ``paper``, and goes beyond it in ``fused`` (several dimensions in one step), ``direct`` (one exchange, which
receives the least that is possible) and ``auto`` (whichever takes the fewest seconds).

Guarantees, for sizes that divide: no tile on the way is larger than the larger one of source and target, a plan has at
most one permute, and its cost is at most that of the optimum plus one target tile.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from distarray.planner.rates import Rates, current_rates
from distarray.planner.redistribution.aligned import common_parts, lower_aligned
from distarray.planner.redistribution.exchange import boxes, exchange, received_by_exchange
from distarray.planner.redistribution.fused import fused_steps
from distarray.planner.redistribution.permuted import lower_permuted
from distarray.planner.redistribution.places import IntArray, places_of
from distarray.planner.redistribution.problem import Problem
from distarray.planner.redistribution.reductions import reductions, with_prime_axes
from distarray.planner.redistribution.steps import DynSlice, Step
from distarray.planner.redistribution.timing import plan_seconds
from distarray.planner.redistribution.trace import Moment, moments
from distarray.planner.redistribution.weak import Space, by_cost, cheapest

__all__ = ["Solution", "synthesize", "target_tiles"]


@dataclass(frozen=True)
class Solution:
    """Steps of a plan, for all arrays and meshes that differ in names alone.

    Parameters
    ----------
    problem
        What was asked.
    steps
        Collectives, in order.
    mode
        How they were found: never ``auto``.
    seconds
        That planning took.
    """

    problem: Problem
    steps: tuple[Step, ...]
    mode: str
    seconds: float

    @cached_property
    def trace(self) -> list[Moment]:
        """What holds before the first step and after each."""
        return moments(self.problem, places_of(self.problem.sizes).tiles(self.problem.src), self.steps)

    @cached_property
    def lower_bound(self) -> IntArray:
        """Elements that every device must get from others, whatever the plan.

        Of its target what it does not hold; all of it where sums are not yet reduced.
        """
        before = boxes(
            places_of(self.problem.sizes).tiles(self.problem.src),
            self.problem.shape,
            self.problem.src_parts,
            self.problem.src_bounds,
        )
        after = boxes(target_tiles(self.problem), self.problem.shape, self.problem.dst_parts, self.problem.dst_bounds)
        if set(self.problem.src_unreduced) - set(self.problem.dst_unreduced):
            whole: IntArray = (after[1] - after[0]).prod(axis=1)
            return whole
        return received_by_exchange(before, after)


# ------------------------------------------------------------------------------------------------------ searches


def _paper(problem: Problem) -> list[Step] | None:
    """The cheapest plan in normal form with at most one permute, which is priced inside the search."""
    places = places_of(problem.sizes)
    space = Space(problem)
    with_permute = cheapest(space)
    if with_permute is None:
        return None
    if problem.dst_sizes is None and problem.dst_order is None:
        limit = (with_permute.cost + with_permute.valley, with_permute.n_collectives)
        for path in by_cost(space, common_parts(problem), limit):
            steps = lower_aligned(problem, places, path)
            if steps is not None:
                return steps
    return lower_permuted(
        places.tiles(problem.src), problem.src_parts, target_tiles(problem), problem.dst_parts, with_permute
    )


def target_tiles(problem: Problem) -> IntArray:
    """The tile index of every device in the target."""
    tiles = places_of(problem.dst_sizes or problem.sizes).tiles(problem.dst)
    return tiles if problem.dst_order is None else tiles[list(problem.dst_order)]


def _fused(problem: Problem) -> list[Step] | None:
    return fused_steps(Space(problem), places_of(problem.sizes).tiles(problem.src), target_tiles(problem))


def _direct(problem: Problem) -> list[Step]:
    """One exchange; slices where nothing is received at all."""
    src, dst = places_of(problem.sizes).tiles(problem.src), target_tiles(problem)
    if problem.is_regular:
        a, b = problem.src_parts, problem.dst_parts
        if all(y % x == 0 for x, y in zip(a, b)) and all(
            (dst[:, i] // (y // x) == src[:, i]).all() for i, (x, y) in enumerate(zip(a, b))
        ):
            return [DynSlice(i, y // x, dst[:, i] % (y // x)) for i, (x, y) in enumerate(zip(a, b)) if x != y]
    return [exchange(dst, problem.shape, problem.dst_parts, problem.dst_bounds)]


def synthesize(problem: Problem, mode: str, itemsize: int = 8, rates: Rates | None = None) -> Solution:
    """The steps for a problem; see `plan`."""
    started = time.perf_counter()
    if set(problem.src_unreduced) - set(problem.dst_unreduced):
        return _reduced(problem, mode, itemsize, rates, started)
    if not problem.is_regular or 0 in problem.shape or not problem.shape:
        return _finished(problem, _direct(problem), "direct", started)
    if mode == "auto":
        return _fastest(problem, itemsize, rates or current_rates(), started)
    if mode == "direct":
        return _finished(problem, _direct(problem), "direct", started)
    steps = _paper(problem) if mode == "paper" else None
    if steps is not None:
        return _finished(problem, steps, "paper", started)
    steps = _fused(problem)
    if steps is not None:
        return _finished(problem, steps, "fused", started)
    return _finished(problem, _direct(problem), "direct", started)


def _finished(problem: Problem, steps: Sequence[Step], mode: str, started: float) -> Solution:
    return Solution(problem, tuple(steps), mode, time.perf_counter() - started)


#: Of plans that take equally long: fewer steps, then the first of these.
_PREFERRED = ("direct", "fused", "paper")


def _fastest(problem: Problem, itemsize: int, rates: Rates, started: float) -> Solution:
    found = []
    src = places_of(problem.sizes).tiles(problem.src)
    candidates = {"direct": _direct(problem), "fused": _fused(problem), "paper": _paper(problem)}
    for mode, steps in candidates.items():
        if steps is not None:
            seconds = plan_seconds(steps, moments(problem, src, steps), itemsize, rates)
            found.append((seconds, len(steps), _PREFERRED.index(mode), mode, steps))
    _, _, _, mode, best = min(found, key=lambda f: f[:3])
    return _finished(problem, best, mode, started)


def _reduced(problem: Problem, mode: str, itemsize: int, rates: Rates | None, started: float) -> Solution:
    """Reductions first, then the plan for what they leave; the cheapest of all ways."""
    prime = with_prime_axes(problem)
    best: Any = None
    for rest, steps, cost in reductions(prime):
        tail = synthesize(rest, mode, itemsize, rates)
        key = (cost + sum([m.cost for m in tail.trace]), len(steps) + len(tail.steps))
        if best is None or key < best[0]:
            best = key, [*steps, *tail.steps], tail.mode
    assert best is not None, "all-reduce is always possible"
    return Solution(problem, tuple(best[1]), best[2], time.perf_counter() - started)
