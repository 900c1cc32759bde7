"""Branches: parts of an expression that do not need each other, computed side by side by a part of the members each.

A product that half of the members compute moves less than one that all of them do, and takes twice as long; of two
products that do not need each other, each with its own half, both are done in the same time as one after the other.
So what comes before a stage that gathers several results of alike work may go to corners of the mesh: the places with
the same coordinates along its first axes. What that gains is counted in ``asv_bench/benchmarks/branches.py``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations
from math import prod
from typing import TypeAlias

import numpy as np

from distarray.planner.partition.facts import StageFacts
from distarray.planner.partition.resolved import PartitionProblem, ResolvedStages
from distarray.sharding.mesh import Mesh
from distarray.sharding.prime import prime_mesh
from distarray.sharding.sharding import Sharding

#: By number of the stage the coordinates of the members that compute it.
Corners: TypeAlias = Mapping[int, tuple[int, ...]]
#: Branches have nearly the same work: the mean is at least this share of the most.
LEAST_SHARE = 0.85
#: Stages that may end branches: those that wait longest for their operands.
MAX_ENDS = 8


def branchings(problem: PartitionProblem, placed: ResolvedStages, least: float) -> list[Corners]:
    """Return the ways to deal branches out to the corners of the mesh that may save something; what may save most
    first.

    Parameters
    ----------
    placed
        A plan in which all members compute every stage.
    least
        Seconds: ways that can save no more are left out.
    """
    own = [_own_seconds(problem, facts, s) for facts, s in zip(problem.facts, placed.shardings, strict=True)]
    waits = [float(c.seconds.total) - s for c, s in zip(placed.costs, own, strict=True)]
    before = _ancestors(problem)
    movable = {facts.number for facts in problem.facts if is_movable(facts, problem)}
    ends = sorted([n for n in movable if waits[n] > 0], key=lambda n: -waits[n])[:MAX_ENDS]
    found: list[tuple[float, Corners]] = []
    for corners in corners_of(problem.mesh):
        for chosen in combinations(sorted(ends), len(corners)):
            if any(a in before[b] for a, b in combinations(chosen, 2)):
                continue
            branches = [sorted(movable & _alone(end, chosen, before)) for end in chosen]
            work = [sum([own[n] for n in branch]) for branch in branches]
            saved = sum([waits[n] for branch in branches for n in branch])
            if sum(work) >= LEAST_SHARE * len(work) * max(work) and saved > least:
                found.append((saved, {n: at for branch, at in zip(branches, corners, strict=True) for n in branch}))
    return [dealt for _, dealt in sorted(found, key=lambda pair: -pair[0])]


def _alone(end: int, ends: Collection[int], before: Sequence[set[int]]) -> set[int]:
    """Return a stage and those before it that no other end needs."""
    return {end, *before[end]}.difference(*[before[other] for other in ends if other != end])


def _own_seconds(problem: PartitionProblem, facts: StageFacts, sharding: Sharding) -> float:
    """Return the seconds of computing a stage, without what it waits for."""
    if facts.stage.family.is_item:
        return 0.0
    return problem.costs.balanced_seconds(facts, problem.costs.boxes(facts, [sharding]))


def _ancestors(problem: PartitionProblem) -> list[set[int]]:
    """Return, for each stage, the numbers of all stages whose results it needs, directly or through others."""
    made = {i: facts.number for facts in problem.facts for i in facts.stage.nodes}
    found: list[set[int]] = []
    for facts in problem.facts:
        direct = {made[r.node] for r in facts.readings if made.get(r.node, facts.number) != facts.number}
        found.append(direct.union(*[found[n] for n in direct]))
    return found


def is_movable(facts: StageFacts, problem: PartitionProblem) -> bool:
    """Return whether a stage may be computed by some members only: nobody keeps what it makes."""
    return (
        facts.stage.is_separable
        and not facts.loops.is_recut
        and bool(facts.kept)
        and facts.pinned < 0
        and facts.leader < 0
        and not facts.is_written
        and facts.largest_nbytes > problem.limits.block
        and not any(i in problem.graph.kept for i in facts.stage.nodes)
    )


def corners_of(mesh: Mesh) -> Iterator[list[tuple[int, ...]]]:
    """Yield the coordinates of the corners of a mesh, for one and more of its first prime axes.

    >>> [len(corners) for corners in corners_of(Mesh(("x",), (8,)))]
    [2, 4, 8]
    """
    sizes = prime_mesh(mesh).sizes
    for n in range(1, len(sizes) + 1):
        if prod(sizes[:n]) > MAX_ENDS:
            return
        yield [tuple(map(int, c)) for c in np.ndindex(*sizes[:n])]
