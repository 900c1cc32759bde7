"""The synthesizer: the cheapest sequence of collectives from one type to another, within a memory bound.

Implements Rink et al. 2021, "Memory-efficient array redistribution through portable collective communication", in the
mode ``paper``, and goes beyond it in ``fused`` (several dimensions in one step), ``direct`` (one exchange, which
receives the least that is possible) and ``auto`` (whichever takes the fewest seconds).

Guarantees, for sizes that divide: no tile on the way is larger than the larger one of source and target, a plan has at
most one permute, and its cost is at most that of the optimum plus one target tile.

Where the source is a partial sum it is reduced first. A reduce-scatter is a slice that costs a tile: afterwards the
axis that held addends cuts a dimension. Which dimension, the search decides: every unreduced prime axis may go to any
dimension that can be cut, or be all-reduced.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from math import inf, prod

from distarray.planner.rates import Rates, current_rates
from distarray.planner.redistribution.aligned import common_parts, lower_aligned
from distarray.planner.redistribution.fused import across, fused_steps, refines, slices_between
from distarray.planner.redistribution.groups import cells, gather_groups
from distarray.planner.redistribution.links import MemberMap
from distarray.planner.redistribution.permuted import lower_permuted
from distarray.planner.redistribution.places import IntArray, Places, places_of
from distarray.planner.redistribution.problem import Axes, Parts, Problem
from distarray.planner.redistribution.senders import plan_seconds
from distarray.planner.redistribution.staged import StepCosts
from distarray.planner.redistribution.steps import AllReduce, DynSlice, ReduceScatter, Step, without_addends
from distarray.planner.redistribution.trace import Moment, exchange, moments
from distarray.planner.redistribution.weak import Elements, Path, Prices, Space, by_cost, cheapest
from distarray.sharding.prime import prime_factors

#: Assignments of unreduced prime axes to dimensions that are tried, and places of all of them.
MAX_ASSIGNMENTS = 256
MAX_ASSIGNED_PLACES = 1 << 14


def with_prime_axes(problem: Problem) -> Problem:
    """Return the same problem on the mesh whose axes are all prime: devices keep their numbers."""
    split: list[tuple[int, ...]] = []
    sizes: list[int] = []
    for n in problem.sizes:
        primes = prime_factors(n)  # minor first, and the last of a mesh is its fastest
        split.append(tuple(range(len(sizes) + len(primes) - 1, len(sizes) - 1, -1)))
        sizes.extend(reversed(primes))

    def over(axes: Axes) -> Axes:
        return tuple([tuple([p for a in names for p in split[a]]) for names in axes])

    return replace(
        problem,
        sizes=tuple(sizes),
        src=over(problem.src),
        dst=over(problem.dst) if problem.dst_sizes is None else problem.dst,
        src_unreduced=tuple([p for a in problem.src_unreduced for p in split[a]]),
        dst_unreduced=tuple([p for a in problem.dst_unreduced for p in split[a]]),
    )


def reductions(problem: Problem) -> Iterator[tuple[Problem, list[Step]]]:
    """Yield ways to reduce what the target does not leave unreduced: the problem that is left, and the steps.

    Parameters
    ----------
    problem
        With prime axes.
    """
    todo = [a for a in problem.src_unreduced if a not in problem.dst_unreduced]
    n_tried = min(MAX_ASSIGNMENTS, max(1, MAX_ASSIGNED_PLACES // problem.n_devices))
    for choice in islice(_assignments(problem, todo), n_tried):
        yield _after(problem, list(zip(todo, choice)))


def _assignments(problem: Problem, todo: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield where unreduced axes may go, each to a dimension that it can cut, or nowhere (-1)."""

    def extended(made: tuple[int, ...], parts: Parts) -> Iterator[tuple[int, ...]]:
        if len(made) == len(todo):
            yield made
            return
        for dim, s in enumerate(problem.shape):
            finer = parts[dim] * problem.sizes[todo[len(made)]]
            if finer <= s and (s % problem.src_parts[dim] or s % finer == 0):
                yield from extended((*made, dim), (*parts[:dim], finer, *parts[dim + 1 :]))
        yield from extended((*made, -1), parts)

    return extended((), problem.src_parts)


def _after(problem: Problem, choice: list[tuple[int, int]]) -> tuple[Problem, list[Step]]:
    places = places_of(problem.sizes)
    steps: list[Step] = []
    src = [list(axes) for axes in problem.src]
    by_dim: dict[int, list[int]] = {}
    for axis, dim in choice:
        by_dim.setdefault(dim, []).append(axis)
    for dim, axes in sorted(by_dim.items(), reverse=True):
        n = prod([problem.sizes[a] for a in axes])
        if dim < 0:
            steps.append(AllReduce(n, _varying(places, axes)))
            continue
        steps.append(ReduceScatter(dim, n, _varying(places, axes)))
        src[dim][:0] = axes
    return replace(problem, src=tuple(map(tuple, src)), src_unreduced=problem.dst_unreduced), steps


def _varying(places: Places, axes: list[int]) -> IntArray:
    """Return groups of devices that differ in these axes alone, in the order of their index over them, minor first."""
    tiles = places.tiles((tuple(axes), tuple([a for a in range(len(places.sizes)) if a not in axes])))
    n = prod([places.sizes[a] for a in axes])
    return gather_groups(cells(tiles[:, 1:], (places.n // n,)), tiles[:, 0], n)


@dataclass(frozen=True)
class Solution:
    """A Solution is the steps of a plan, for all arrays and meshes that differ in names alone.

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
        """Return what holds before the first step and after each."""
        return moments(self.problem, source_tiles(self.problem), self.steps)

    @cached_property
    def last(self) -> Moment:
        """Return the target, as a moment that one exchange leads to."""
        problem = self.problem
        step = exchange(
            target_tiles(problem), problem.shape, problem.dst_parts, problem.dst_bounds, crosses=problem.crosses
        )
        return moments(problem, source_tiles(problem), [step])[-1]

    @cached_property
    def lower_bound(self) -> IntArray:
        """Return the elements that every device must get from others, whatever the plan.

        Of its target what it does not hold; all of it where sums are not yet reduced, or on another team.
        """
        if self.is_reduced_on_the_way:
            start, stop = self.last.box
            whole: IntArray = (stop - start).prod(axis=1)
            return whole
        return self.last.received

    @property
    def is_reduced_on_the_way(self) -> bool:
        """Return whether the source is a partial result that the target is not."""
        return bool(set(self.problem.src_unreduced) - set(self.problem.dst_unreduced))

    @cached_property
    def addends(self) -> IntArray | None:
        """Return which addend every device holds at both ends; None if the target is reduced."""
        return addends(self.problem)


def source_tiles(problem: Problem) -> IntArray:
    """Return the tile index of every device in the source."""
    return places_of(problem.sizes).tiles(problem.src)


def target_tiles(problem: Problem) -> IntArray:
    """Return the tile index of every device in the target."""
    tiles = places_of(problem.dst_sizes or problem.sizes).tiles(problem.dst)
    return tiles if problem.dst_order is None else tiles[list(problem.dst_order)]


def addends(problem: Problem) -> IntArray | None:
    """Return which addend every device holds at both ends; None if the target is reduced."""
    if not problem.dst_unreduced:
        return None
    found: IntArray = places_of(problem.sizes).tiles((problem.dst_unreduced,))[:, 0]
    return found


# ------------------------------------------------------------------------------------------------------ searches


def _paper(problem: Problem) -> list[Step] | None:
    """Return the cheapest plan in normal form with at most one permute, which is priced inside the search."""
    space = Space(problem)
    prices = Elements(space)
    with_permute = cheapest(space, prices)
    if with_permute is None:
        return None
    limit = (with_permute.cost + prices.permute(with_permute.valley), with_permute.n_collectives)
    steps = _without_permute(problem, space, prices, limit)
    return _lowered(problem, with_permute) if steps is None else steps


def _staged(problem: Problem, itemsize: int, rates: Rates, limit: float) -> list[Step] | None:
    """Return the quickest plan in normal form, if it takes less than `limit` seconds."""
    space = Space(problem)
    prices = StepCosts(space, itemsize, rates)
    with_permute, n = cheapest(space, prices, limit), 0
    if with_permute is not None:
        limit, n = with_permute.cost + prices.permute(with_permute.valley), with_permute.n_collectives
    steps = _without_permute(problem, space, prices, (limit, n)) if limit < inf else None
    return _lowered(problem, with_permute) if steps is None and with_permute is not None else steps


def _without_permute(problem: Problem, space: Space, prices: Prices, limit: tuple[float, int]) -> list[Step] | None:
    """Return the cheapest plan that is found to need no permute."""
    if problem.dst_sizes is not None or problem.dst_order is not None:
        return None  # axes of the one mesh are none of the other
    places = places_of(problem.sizes)
    for path in by_cost(space, prices, common_parts(problem), limit):
        steps = lower_aligned(problem, places, path)
        if steps is not None:
            return steps
    return None


def _lowered(problem: Problem, path: Path) -> list[Step]:
    src, dst = source_tiles(problem), target_tiles(problem)
    return lower_permuted(src, problem.src_parts, dst, problem.dst_parts, path)


def _fused(problem: Problem) -> list[Step] | None:
    return fused_steps(Space(problem), source_tiles(problem), target_tiles(problem))


def _direct(problem: Problem) -> list[Step]:
    """Return one exchange; slices where nothing is received at all."""
    src, dst = source_tiles(problem), target_tiles(problem)
    if problem.is_regular and not problem.crosses:
        a, b = problem.src_parts, problem.dst_parts
        if refines(dst, b, src, a):
            return slices_between(a, dst, b)
    return [exchange(dst, problem.shape, problem.dst_parts, problem.dst_bounds, crosses=problem.crosses)]


# --------------------------------------------------------------------------------------------------------- modes


@dataclass(frozen=True, slots=True)
class _Model:
    """A _Model is what says how long a plan takes."""

    itemsize: int
    rates: Rates
    placement: MemberMap | None

    def seconds(self, problem: Problem, steps: Sequence[Step]) -> float:
        """Return seconds, to ten digits: what differs by rounding takes equally long."""
        trace = moments(problem, source_tiles(problem), steps)
        found = plan_seconds(steps, trace, self.itemsize, self.rates, self.placement, addends(problem))
        return float(f"{found:.9e}")


def synthesize(
    problem: Problem,
    mode: str,
    itemsize: int = 8,
    rates: Rates | None = None,
    placement: MemberMap | None = None,
) -> Solution:
    """Return the steps for a problem; see `plan`."""
    started = time.perf_counter()
    model = _Model(itemsize, rates or current_rates(), placement)
    steps, used = _steps_and_mode(problem, mode, model)
    return Solution(problem, tuple(steps), used, time.perf_counter() - started)


#: Of plans that take equally long: fewer steps, then the first of these.
_PREFERRED = ("direct", "fused", "paper")
#: Ways to reduce partial results whose plans are searched for in seconds.
MAX_WAYS = 4


def _steps_and_mode(problem: Problem, mode: str, model: _Model) -> tuple[list[Step], str]:
    if set(problem.src_unreduced) - set(problem.dst_unreduced):
        return _reduced(problem, mode, model)
    if problem.dst_unreduced:
        steps, used = _steps_and_mode(problem.with_addends(), mode, model)
        return [without_addends(step) for step in steps], used
    if mode == "direct" or not problem.is_regular or 0 in problem.shape or not problem.shape:
        return _direct(problem), "direct"
    if problem.crosses:
        return _crossed(problem, mode, model)
    if mode == "auto":
        return _quickest(problem, model)
    steps_of_paper = _paper(problem) if mode == "paper" else None
    if steps_of_paper is not None:
        return steps_of_paper, "paper"
    fused = _fused(problem)
    return (_direct(problem), "direct") if fused is None else (fused, "fused")


def _quickest(problem: Problem, model: _Model) -> tuple[list[Step], str]:
    direct = _direct(problem)
    if all(isinstance(step, DynSlice) for step in direct):
        return direct, "direct"  # nothing moves
    found = []

    def compare(steps: list[Step] | None, mode: str) -> None:
        if steps is not None:
            found.append((model.seconds(problem, steps), len(steps), _PREFERRED.index(mode), steps, mode))

    compare(direct, "direct")
    compare(_fused(problem), "fused")
    compare(_paper(problem), "paper")
    # The search knows one class of links: where there are more it cannot say what is too slow.
    limit = min([f[0] for f in found]) if model.placement is None else inf
    compare(_staged(problem, model.itemsize, model.rates, limit), "paper")
    return min(found, key=lambda f: f[:3])[3:]


def _crossed(problem: Problem, mode: str, model: _Model) -> tuple[list[Step], str]:
    assert model.placement is not None, "the places of the target are others"
    direct = _direct(problem)
    steps = across(problem, source_tiles(problem), target_tiles(problem), model.placement)
    if len(steps) == 1 or (mode == "auto" and model.seconds(problem, direct) <= model.seconds(problem, steps)):
        return direct, "direct"
    return steps, "fused"


def _reduced(problem: Problem, mode: str, model: _Model) -> tuple[list[Step], str]:
    """Return reductions first, then the plan for what they leave; the best of all ways."""
    prime = with_prime_axes(problem)
    ways = list(reductions(prime))
    if mode == "auto":

        def quick(way: tuple[Problem, list[Step]]) -> float:
            rest, steps = way
            return model.seconds(prime, [*steps, *_steps_and_mode(rest, "direct", model)[0]])

        ways = sorted(ways, key=quick)[:MAX_WAYS]
    found = []
    for n, (rest, steps) in enumerate(ways):
        tail, used = _steps_and_mode(rest, mode, model)
        whole = [*steps, *tail]
        price = (
            model.seconds(prime, whole)
            if mode == "auto"
            else sum([m.cost for m in moments(prime, source_tiles(prime), whole)])
        )
        found.append((price, len(whole), n, whole, used))
    return min(found)[3:]
