"""Partial sums: what a plan does first where the source is not yet reduced.

A reduce-scatter is a slice that costs a tile: afterwards the axis that held addends cuts a dimension. Which dimension,
the search decides: every unreduced prime axis may go to any dimension that can be cut, or be all-reduced.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from math import prod

from distarray.planner.redistribution.groups import cells, gather_groups
from distarray.planner.redistribution.places import IntArray, Places, places_of
from distarray.planner.redistribution.problem import Axes, Problem
from distarray.planner.redistribution.steps import AllReduce, ReduceScatter, Step
from distarray.sharding.prime import prime_factors

#: Assignments of unreduced prime axes to dimensions that are tried.
MAX_ASSIGNMENTS = 256


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
    rank = len(problem.shape)
    for n, choice in enumerate(product((*range(rank), -1), repeat=len(todo))):
        if n == MAX_ASSIGNMENTS:
            return
        found = _reduced(problem, list(zip(todo, choice)))
        if found is not None:
            yield found


def _reduced(problem: Problem, choice: list[tuple[int, int]]) -> tuple[Problem, list[Step]] | None:
    places = places_of(problem.sizes)
    steps: list[Step] = []
    src = [list(axes) for axes in problem.src]
    parts = list(problem.src_parts)
    by_dim: dict[int, list[int]] = {}
    for axis, dim in choice:
        by_dim.setdefault(dim, []).append(axis)
    for dim, axes in sorted(by_dim.items(), reverse=True):
        n = prod([problem.sizes[a] for a in axes])
        if dim < 0:
            steps.append(AllReduce(n, _varying(places, axes)))
            continue
        s, finer = problem.shape[dim], parts[dim] * n
        if finer > s or (s % parts[dim] == 0 and s % finer):
            return None
        steps.append(ReduceScatter(dim, n, _varying(places, axes)))
        src[dim][:0] = axes
        parts[dim] *= n
    return replace(problem, src=tuple(map(tuple, src)), src_unreduced=problem.dst_unreduced), steps


def _varying(places: Places, axes: list[int]) -> IntArray:
    """Return groups of devices that differ in these axes alone, in the order of their index over them, minor first."""
    tiles = places.tiles((tuple(axes), tuple([a for a in range(len(places.sizes)) if a not in axes])))
    n = prod([places.sizes[a] for a in axes])
    return gather_groups(cells(tiles[:, 1:], (places.n // n,)), tiles[:, 0], n)
