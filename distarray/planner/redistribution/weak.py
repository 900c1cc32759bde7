"""Shortest paths between weak types (Rink et al. 2021, sections 5 and 7.2).

A node is a tuple of part counts, an edge a weak collective on any product of primes, its weight the elements that it
moves (figure 11). Only the normal form is walked: slices, which cost nothing; all-to-alls, each at the price of the
tile; gathers, whose best order is known. `cheapest` finds the cheapest path for a plan with one permute at the valley.
`by_cost` lists paths for plans without one, best first: its states remember how much of the source each dimension
still holds, since what source and target do not have in common from the major end must go before such a plan ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import count
from typing import Any, NamedTuple

from distarray.planner.redistribution.problem import Parts, Problem, divisors, tile_size

__all__ = ["Path", "Space", "by_cost", "cheapest"]

#: How often `by_cost` may come back to one state, and how many states it may open in all.
MAX_VISITS = 28
MAX_EXPANSIONS = 1000


class Path(NamedTuple):
    """A weak path in normal form.

    Parameters
    ----------
    slices
        (dimension, n) of each dynslice; costs nothing.
    moves
        (source dimension, target dimension, n) of each all-to-all.
    gathers
        (dimension, n) of each gather, in order.
    cost
        Without a permute.
    valley
        Largest tile between slices and gathers: what a permute costs there.
    """

    slices: tuple[tuple[int, int], ...]
    moves: tuple[tuple[int, int, int], ...]
    gathers: tuple[tuple[int, int], ...]
    cost: int
    valley: int

    @property
    def n_collectives(self) -> int:
        """Steps that move something."""
        return len(self.moves) + len(self.gathers)


class Space:
    """The legal weak types between two ends."""

    def __init__(self, problem: Problem) -> None:
        self.shape = shape = problem.shape
        self.src, self.dst = problem.src_parts, problem.dst_parts
        self.n_devices = problem.n_devices
        self.bound = problem.bound
        self.size = 1
        for s in shape:
            self.size *= s
        self.rank = len(shape)
        self.n_src = _product(self.src)
        self.n_dst = _product(self.dst)
        #: With sizes that divide, tiles multiply: a node costs what its number of tiles says.
        self.divides = all(s % k == 0 for s, k in zip(shape * 2, self.src + self.dst))
        self._most = tuple([max(s, a, b) for s, a, b in zip(shape, self.src, self.dst)])
        self._sizes: dict[Parts, int] = {}

    def tile(self, parts: Parts) -> int:
        """Elements of the largest tile."""
        if self.divides:
            return self.size // _product(parts)
        found = self._sizes.get(parts)
        if found is None:
            found = self._sizes[parts] = tile_size(self.shape, parts)
        return found

    def may_cut(self, i: int, k: int) -> bool:
        """Whether dimension `i` may be in `k` parts."""
        if self.divides:
            return self.shape[i] % k == 0
        return k <= self._most[i]

    def is_legal(self, parts: Parts) -> bool:
        """Whether no tile is larger than those of the ends."""
        return self.divides or self.tile(parts) <= self.bound

    def starts(self) -> Iterator[Parts]:
        """What slices make of the source, with at least as many tiles as the target and a multiple of them."""
        shape = self.src
        rest = self.n_devices // self.n_src
        n_dst = self.n_dst

        def extended(i: int, left: int, parts: Parts) -> Iterator[Parts]:
            if i == self.rank:
                if (self.n_devices // left) % n_dst == 0:
                    yield parts
                return
            yield from extended(i + 1, left, (*parts, shape[i]))
            for n in divisors(left):
                if self.may_cut(i, shape[i] * n):
                    yield from extended(i + 1, left // n, (*parts, shape[i] * n))

        return extended(0, rest, ())

    def gathers(self, parts: Parts) -> tuple[tuple[tuple[int, int], ...], int]:
        """The gathers that lead to the target, smallest factors first, and what they cost.

        Ascending factors are optimal: ``V n1 + V n1 n2 + ..`` has the smallest products first.
        """
        steps = [(i, k // d) for i, (k, d) in enumerate(zip(parts, self.dst)) if k != d]
        if not steps:
            return (), 0
        steps.sort(key=lambda step: step[1])
        total, now = 0, list(parts)
        for i, n in steps:
            now[i] //= n
            total += self.tile(tuple(now))
        return tuple(steps), total

    def missing(self, parts: Parts) -> int:
        """Dimensions that are not cut as finely as the target asks: each needs an all-to-all of its own."""
        return sum([k % d != 0 for k, d in zip(parts, self.dst)])

    def moves(self, parts: Parts) -> Iterator[tuple[int, int, int, Parts]]:
        """All-to-alls: (source dimension, target dimension, n, part counts afterwards)."""
        for i, k in enumerate(parts):
            if k == 1:
                continue
            for n in divisors(k):
                for j in range(self.rank):
                    if i != j and self.may_cut(j, parts[j] * n):
                        new = list(parts)
                        new[i] //= n
                        new[j] *= n
                        after = tuple(new)
                        if self.is_legal(after):
                            yield i, j, n, after


def _product(parts: Parts) -> int:
    n = 1
    for k in parts:
        n *= k
    return n


def _slices(src: Parts, parts: Parts) -> tuple[tuple[int, int], ...]:
    return tuple([(i, k // s) for i, (s, k) in enumerate(zip(src, parts)) if k != s])


def cheapest(space: Space) -> Path | None:
    """The cheapest weak path when a permute at the valley is charged; None if none stays within the bound.

    A* with the number of dimensions that still lack parts, each good for one all-to-all, and the last gather.
    """
    ticket = count()
    heap: list[Any] = []
    last_gather = space.tile(space.dst)
    best: dict[Parts, tuple[int, int]] = {}

    def push(parts: Parts, g: int, n_moves: int, trail: Any) -> None:
        known = best.get(parts)
        if known is not None and known <= (g, n_moves):
            return
        best[parts] = (g, n_moves)
        missing = space.missing(parts)
        valley = space.tile(parts)
        least = space.size // _product(parts)
        if not missing:
            steps, cost = space.gathers(parts)
            done = (steps, cost, valley)
            heappush(heap, (g + cost + valley, n_moves + len(steps), next(ticket), g, parts, trail, done))
        # all that lies beyond needs another all-to-all
        guess = g + least * (max(missing, 1) + 1) + (last_gather if least < last_gather else 0)
        heappush(heap, (guess, n_moves + missing, next(ticket), g, parts, trail, None))

    for parts in space.starts():
        if space.is_legal(parts):
            push(parts, 0, 0, (parts, None, None))
    while heap:
        _, _, _, g, parts, trail, done = heappop(heap)
        if done is not None:
            steps, cost, valley = done
            start, moves = _walked(trail)
            return Path(_slices(space.src, start), moves, steps, g + cost, valley)
        known = best[parts]
        if known[0] < g:
            continue
        before = space.tile(parts)
        previous = trail[1]
        for i, j, n, after in space.moves(parts):
            if previous is None or previous[:2] != (i, j):
                push(after, g + before, known[1] + 1, (after, (i, j, n), trail))
    return None


def _walked(trail: Any) -> tuple[Parts, tuple[tuple[int, int, int], ...]]:
    moves = []
    while trail[1] is not None:
        moves.append(trail[1])
        trail = trail[2]
    return trail[0], tuple(reversed(moves))


class _State(NamedTuple):
    """Part counts; per dimension what is left of the source's, and the factors pushed on top of it, top last."""

    parts: Parts
    left: Parts
    pushed: tuple[tuple[int, ...], ...]


def _popped(state: _State, i: int, n: int) -> tuple[int, tuple[int, ...]] | None:
    """What a dimension holds after its `n` minor parts have gone; None if that would split a factor unevenly."""
    stack, left = state.pushed[i], state.left[i]
    while n > 1 and stack:
        top = stack[-1]
        if n % top == 0:
            stack, n = stack[:-1], n // top
        elif top % n == 0:
            return left, (*stack[:-1], top // n)
        else:
            return None
    if n > 1:
        if left % n:
            return None
        left //= n
    return left, stack


def by_cost(space: Space, common: Parts, limit: tuple[int, int]) -> Iterator[Path]:
    """Weak paths on which a plan may do without a permute, cheapest first.

    Parameters
    ----------
    common
        Per dimension the product of the axes that source and target share from the major end: all else must go.
    limit
        (cost, collectives) above which no path is of interest.
    """
    ticket = count()
    heap: list[Any] = []
    visits: dict[tuple[Parts, Parts], int] = {}
    dst, rank = space.dst, range(space.rank)
    last_gather = space.tile(dst)

    def key_of(tile: int, g: int, n_moves: int, missing: int, over: int, gathered: int) -> tuple[int, int]:
        # every all-to-all mends one dimension that lacks parts, and empties one that has too much of the source;
        # so does a gather
        if tile < last_gather:
            return g + tile * max(missing, over - gathered) + last_gather, n_moves + max(missing, over - gathered)
        least = max(missing, over)
        return g + tile * least, n_moves + least

    for parts in space.starts():
        if not space.is_legal(parts):
            continue
        pushed = tuple([(k // s,) if k != s else () for k, s in zip(parts, space.src)])
        facts = (
            space.missing(parts),
            sum([c % k != 0 for c, k in zip(common, space.src)]),
            sum([k > d for k, d in zip(parts, dst)]),
        )
        key = key_of(space.size // _product(parts), 0, 0, *facts)
        if key <= limit:
            state = _State(parts, space.src, pushed)
            heappush(heap, (key, next(ticket), 0, 0, state, facts, (parts, None, None), None))
    for _ in range(MAX_EXPANSIONS):
        if not heap:
            return
        _, _, g, n_moves, state, facts, trail, path = heappop(heap)
        if path is not None:
            yield path
            continue
        parts = state.parts
        seen = visits[parts, state.left] = visits.get((parts, state.left), 0) + 1
        if seen > MAX_VISITS:
            continue
        missing, over, gathered = facts
        if not missing and _ends(space, state, common):
            steps, cost = space.gathers(parts)
            key = (g + cost, n_moves + len(steps))
            if key <= limit:
                # listed with what it costs in truth: until then cheaper ones may come
                start, moves = _walked(trail)
                path = Path(_slices(space.src, start), moves, steps, g + cost, space.tile(parts))
                heappush(heap, (key, next(ticket), g, n_moves, state, facts, trail, path))
        before = g + space.tile(parts)
        least = space.size // _product(parts)
        last = trail[1][:2] if trail[1] is not None else None
        for i in rank:
            k, d = parts[i], dst[i]
            for n in divisors(k):
                rest = _popped(state, i, n)
                if rest is None:
                    continue
                less = k // n
                missing_i = missing + (less % d != 0) - (k % d != 0)
                over_i = over + (common[i] % rest[0] != 0) - (common[i] % state.left[i] != 0)
                gathered_i = gathered + (less > d) - (k > d)
                for j in rank:
                    if i == j or last == (i, j):
                        continue
                    old = parts[j]
                    new, e = old * n, dst[j]
                    facts = (
                        missing_i + (new % e != 0) - (old % e != 0),
                        over_i,
                        gathered_i + (new > e) - (old > e),
                    )
                    key = key_of(least, before, n_moves + 1, *facts)
                    if key > limit or not space.may_cut(j, new):
                        continue
                    moved = list(parts)
                    moved[i], moved[j] = less, new
                    after = tuple(moved)
                    if not space.is_legal(after):
                        continue
                    left, pushed_on = list(state.left), list(state.pushed)
                    left[i], pushed_on[i] = rest
                    pushed_on[j] = (*pushed_on[j], n)
                    following = _State(after, tuple(left), tuple(pushed_on))
                    way = (after, (i, j, n), trail)
                    heappush(heap, (key, next(ticket), before, n_moves + 1, following, facts, way, None))


def _ends(space: Space, state: _State, common: Parts) -> bool:
    """Whether all that the target does not keep of the source is gone after the gathers."""
    for i, (k, d) in enumerate(zip(state.parts, space.dst)):
        rest = _popped(state, i, k // d)
        if rest is None or common[i] % rest[0]:
            return False
    return True
