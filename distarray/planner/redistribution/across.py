"""From one team to another, or to a mesh with another number of places.

No collective spans two teams, but one exchange does. Before it the replicas of the source slice what they hold, so that
each sends a part of its own; behind it the replicas of the target gather what they got from their own team. So every
element crosses once, if the sizes permit, and not once for each replica.
"""

from __future__ import annotations

from itertools import islice, product
from math import gcd, prod

import numpy as np

from distarray.planner.redistribution.exchange import exchange
from distarray.planner.redistribution.fused import finer, slices_between
from distarray.planner.redistribution.links import MemberMap
from distarray.planner.redistribution.permuted import gathers, refined
from distarray.planner.redistribution.places import IntArray
from distarray.planner.redistribution.problem import Parts, Problem, factors
from distarray.planner.redistribution.steps import Step
from distarray.planner.redistribution.weak import Space

#: Cuts of either end whose pieces are counted.
MAX_CUTS = 32


def across(problem: Problem, src: IntArray, dst: IntArray, placement: MemberMap) -> list[Step]:
    """Return slices on the team of the source, one exchange, gathers on the team of the target.

    Parameters
    ----------
    src, dst
        Tile indices of the devices of either team.
    placement
        Where they lie: of what a member holds already its places take what they can.
    """
    space = Space(problem)
    starts = _finest(space, space.src, len(src))
    ends = _finest(space, space.dst, len(dst))
    a, b = min(product(starts, ends), key=lambda ab: _n_pieces(*ab))
    x = refined(src, space.src, a, src, space.src)
    y = refined(dst, space.dst, b, _held(x, placement), a)
    crossing = exchange(y, problem.shape, b, crosses=True)
    behind = sorted([(k // d, i) for i, (k, d) in enumerate(zip(b, space.dst)) if k != d])
    return [*slices_between(space.src, x, a), crossing, *gathers(y, b, [(i, n) for n, i in behind])]


def _held(tiles: IntArray, placement: MemberMap) -> IntArray:
    """Return the tile of the source that lies on the member of every place of the target; -1 where none does."""
    at = {member: place for place, member in reversed(list(enumerate(placement.src)))}
    found = np.full((len(placement.dst), tiles.shape[1]), -1, np.int64)
    for place, member in enumerate(placement.dst):
        if member in at:
            found[place] = tiles[at[member]]
    return found


def _finest(space: Space, parts: Parts, n_devices: int) -> list[Parts]:
    """Return the legal cuts with as few replicas as possible that refine a cut."""
    n = prod(parts)
    for level in (*factors(n_devices // n), 1):
        found = list(islice(finer(space, parts, n * level), MAX_CUTS))
        if found:
            return found
    raise AssertionError("a cut refines itself")


def _n_pieces(a: Parts, b: Parts) -> int:
    """Return the pairs of a tile of one cut and one of the other that have elements in common, where sizes divide."""
    return prod([j + k - gcd(j, k) for j, k in zip(a, b)])
