"""Beyond the paper: at most one exchange over several dimensions and one gather over several dimensions.

A flat exchange (tiles of one size before and after) is an all-to-all over any number of dimensions with a permute
absorbed; a fused gather makes every tile a disjoint union of whole tiles. Together with slices they never cost more
than the paper's plans.

From one team to another, or to a mesh with another number of places, no collective leads, but one exchange does
(`across`). Before it the replicas of the source slice what they hold, so that each sends a part of its own; behind it
the replicas of the target gather what they got from their own team. So every element crosses once, if the sizes permit,
and not once for each replica.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, product
from math import gcd, prod
from typing import Any

import numpy as np

from distarray.planner.redistribution.groups import cells, gather_groups, matched_groups
from distarray.planner.redistribution.links import MemberMap
from distarray.planner.redistribution.permuted import gathers, refined, wanted_permutation
from distarray.planner.redistribution.places import IntArray
from distarray.planner.redistribution.problem import Parts, Problem, factors
from distarray.planner.redistribution.steps import AllGather, AllPermute, AllToAll, DynSlice, Step
from distarray.planner.redistribution.trace import boxes, exchange, received_by_exchange
from distarray.planner.redistribution.weak import Space

#: Pairs of weak types whose received elements are compared.
MAX_PAIRS = 16


def slices_between(parts: Parts, finer: IntArray, finer_parts: Parts) -> list[Step]:
    """Return the dynslices from a map to one that refines it."""
    return [DynSlice(i, f // k, finer[:, i] % (f // k)) for i, (k, f) in enumerate(zip(parts, finer_parts)) if f != k]


def refines(fine: IntArray, fine_parts: Parts, coarse: IntArray, coarse_parts: Parts) -> bool:
    """Return whether every device's fine tile lies in its coarse one, and cuts nest."""
    return all(f % k == 0 for f, k in zip(fine_parts, coarse_parts)) and all(
        (fine[:, i] // (f // k) == coarse[:, i]).all() for i, (f, k) in enumerate(zip(fine_parts, coarse_parts))
    )


def fused_steps(space: Space, src: IntArray, dst: IntArray) -> list[Step] | None:
    """Return a plan of slices, at most one exchange, and at most one gather; None if none stays within the bound."""
    a, b = space.src, space.dst
    if refines(dst, b, src, a):
        return slices_between(a, dst, b)
    direct = _gathered(space, src, dst)
    if direct is not None:
        return direct
    if space.n_dst % space.n_src == 0:
        found = _flat(space, src, dst)
        if found is not None:
            return found
    return _through_a_valley(space, src, dst)


def _gathered(space: Space, src: IntArray, dst: IntArray) -> list[Step] | None:
    """Return slices, then one gather: where every device finds a piece of its own tile in its target tile."""
    a, b = space.src, space.dst
    least = tuple([int(np.lcm(x, y)) for x, y in zip(a, b)])
    n = int(np.prod(least))
    if space.n_devices % n or not all(space.may_cut(i, k) for i, k in enumerate(least)):
        return None
    for level in (1, *reversed(factors(space.n_devices // n))):
        for mid in islice(finer(space, least, n * level), MAX_PAIRS):
            tiles = refined(src, a, mid, dst, b)
            if refines(tiles, mid, dst, b):
                return slices_between(a, tiles, mid) + gather(space, tiles, mid, dst, b)
    return None


def _flat(space: Space, src: IntArray, dst: IntArray) -> list[Step] | None:
    """Return slices to the size of the target, then one exchange."""
    target = space.tile(space.dst)
    best: Any = None
    for mid in finer(space, space.src, space.n_dst):
        if space.tile(mid) > max(target, space.tile(space.src)):
            continue
        tiles = refined(src, space.src, mid, dst, space.dst)
        received = _received(space, tiles, mid, dst, space.dst)
        if best is None or received < best[0]:
            best = received, mid, tiles
    if best is None:
        return None
    _, mid, tiles = best
    return slices_between(space.src, tiles, mid) + moved_as(space, tiles, mid, dst, space.dst)


def _through_a_valley(space: Space, src: IntArray, dst: IntArray) -> list[Step] | None:
    """Return slices to a, a flat exchange to b, a gather: the smallest valley, then what receives least."""
    level = int(np.lcm(space.n_src, space.n_dst))
    candidates: list[tuple[int, int]] = sorted(
        {(-n, n) for n in (level * d for d in (1, *factors(space.n_devices // level))) if space.n_devices % n == 0}
    )
    for _, n_tiles in candidates:
        found = _at_level(space, src, dst, n_tiles)
        if found is not None:
            return found
    return None


def _at_level(space: Space, src: IntArray, dst: IntArray, n_tiles: int) -> list[Step] | None:
    starts = list(finer(space, space.src, n_tiles))
    ends = list(finer(space, space.dst, n_tiles))
    pairs = [(a, b) for a in starts for b in ends if space.tile(a) == space.tile(b)]
    if not pairs:
        return None
    least = min(space.tile(a) for a, _ in pairs)
    pairs = [p for p in pairs if space.tile(p[0]) == least]
    # near types first: they share more of every tile
    pairs.sort(key=lambda p: sum(x != y for x, y in zip(*p)))
    best: Any = None
    for a, b in pairs[:MAX_PAIRS]:
        for first in ("src", "dst"):
            if first == "src":
                x = refined(src, space.src, a, dst, space.dst)
                y = refined(dst, space.dst, b, x, a)
            else:
                y = refined(dst, space.dst, b, src, space.src)
                x = refined(src, space.src, a, y, b)
            received = _received(space, x, a, y, b)
            if best is None or received < best[0]:
                best = received, a, x, b, y
    _, a, x, b, y = best
    return slices_between(space.src, x, a) + moved_as(space, x, a, y, b) + gather(space, y, b, dst, space.dst)


def finer(space: Space, parts: Parts, n_tiles: int) -> Iterator[Parts]:
    """Yield legal refinements of a weak type with this many tiles."""
    n = prod(parts)
    for made, left in space.refinements(parts, n_tiles // n) if n_tiles % n == 0 else ():
        if left == 1 and space.is_legal(made):
            yield made


def _received(space: Space, x: IntArray, a: Parts, y: IntArray, b: Parts) -> int:
    return int(received_by_exchange(boxes(x, space.shape, a), boxes(y, space.shape, b)).sum())


def moved_as(space: Space, x: IntArray, a: Parts, y: IntArray, b: Parts) -> list[Step]:
    """Return one step between two maps with tiles of one size: the simplest collective that does it."""
    if a == b:
        perm = wanted_permutation(cells(x, a), cells(y, b))
        return [] if perm is None else [AllPermute(perm)]
    changed = [i for i, (p, q) in enumerate(zip(a, b)) if p != q]
    if len(changed) == 2:
        for i, j in (changed, changed[::-1]):
            n = a[i] // b[i]
            if n > 1 and a[i] == b[i] * n and b[j] == a[j] * n:
                coarse = x.copy()
                coarse[:, i] //= n
                stays = y.copy()
                stays[:, j] //= n
                if (coarse == stays).all():
                    parts = tuple([k // n if d == i else k for d, k in enumerate(a)])
                    groups, index = matched_groups(cells(coarse, parts), x[:, i] % n, y[:, j] % n, n)
                    return [AllToAll(i, j, n, groups, index)]
    return [exchange(y, space.shape, b)]


def gather(space: Space, x: IntArray, a: Parts, y: IntArray, b: Parts) -> list[Step]:
    """Return one gather, over one dimension or as an exchange over several."""
    changed = [i for i, (p, q) in enumerate(zip(a, b)) if p != q]
    if not changed:
        return []
    if len(changed) == 1:
        (i,) = changed
        n = a[i] // b[i]
        return [AllGather(i, n, gather_groups(cells(y, b), x[:, i] % n, n))]
    return [exchange(y, space.shape, b)]


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
