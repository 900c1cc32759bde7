"""Shortest paths between weak types (Rink et al. 2021, sections 5 and 7.2).

A node is a tuple of part counts, an edge a weak collective on any product of primes, its weight what `Prices` says:
the elements that it moves (figure 11), or seconds (`staged`). Only the normal form is walked: slices, which cost
nothing; all-to-alls; gathers, whose best order is known. `cheapest` finds the cheapest path for a plan with one permute
at the valley.
`by_cost` lists paths for plans without one, best first: its states remember how much of the source each dimension
still holds, since what source and target do not have in common from the major end must go before such a plan ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import count
from math import inf, prod
from typing import Any, NamedTuple, Protocol

from distarray.planner.redistribution.problem import Parts, Problem, factors, tile_size

#: How often `by_cost` may come back to one state, and how many states it may open in all.
MAX_VISITS = 28
MAX_EXPANSIONS = 1000


class Path(NamedTuple):
    """A Path is a way between two weak types in normal form: slices, all-to-alls, then gathers.

    Parameters
    ----------
    slices
        (dimension, n) of each dynslice; costs nothing.
    moves
        (source dimension, target dimension, n) of each all-to-all.
    gathers
        (dimension, n) of each gather, in order.
    cost
        Without a permute; elements or seconds.
    valley
        Largest tile between slices and gathers, where a permute costs least.
    """

    slices: tuple[tuple[int, int], ...]
    moves: tuple[tuple[int, int, int], ...]
    gathers: tuple[tuple[int, int], ...]
    cost: float
    valley: int

    @property
    def n_collectives(self) -> int:
        """Count the steps that move something."""
        return len(self.moves) + len(self.gathers)


class Space:
    """A Space is the weak types that a redistribution may pass on its way between two ends."""

    def __init__(self, problem: Problem) -> None:
        self.n_fixed = problem.n_fixed
        self.shape = shape = problem.shape
        self.src, self.dst = problem.src_parts, problem.dst_parts
        self.n_devices = problem.n_devices
        self.bound = problem.bound
        self.size = prod(shape)
        self.rank = len(shape)
        self.n_src = prod(self.src)
        self.n_dst = prod(self.dst)
        #: With sizes that divide, tiles multiply: a node costs what its number of tiles says.
        self.divides = all(s % k == 0 for s, k in zip(shape * 2, self.src + self.dst))
        self._most = tuple([max(s, a, b) for s, a, b in zip(shape, self.src, self.dst)])
        self._sizes: dict[Parts, int] = {}

    def tile(self, parts: Parts) -> int:
        """Return the elements of the largest tile."""
        if self.divides:
            return self.size // prod(parts)
        found = self._sizes.get(parts)
        if found is None:
            found = self._sizes[parts] = tile_size(self.shape, parts)
        return found

    def may_cut(self, i: int, k: int) -> bool:
        """Return whether dimension `i` may be in `k` parts."""
        if self.divides:
            return self.shape[i] % k == 0
        return k <= self._most[i]

    def is_legal(self, parts: Parts) -> bool:
        """Return whether no tile is larger than those of the ends."""
        return self.divides or self.tile(parts) <= self.bound

    def starts(self) -> Iterator[Parts]:
        """Return what slices make of the source, with at least as many tiles as the target and a multiple of them."""
        for parts, left in self.refinements(self.src, self.n_devices // self.n_src):
            if (self.n_devices // left) % self.n_dst == 0:
                yield parts

    def refinements(self, parts: Parts, n: int) -> Iterator[tuple[Parts, int]]:
        """Yield the ways to cut dimensions further, by factors of `n` in all, and what each leaves of `n`."""

        def extended(i: int, left: int, made: Parts) -> Iterator[tuple[Parts, int]]:
            if i == self.rank:
                yield made, left
                return
            for d in (1, *factors(left)):
                if self.may_cut(i, parts[i] * d):
                    yield from extended(i + 1, left // d, (*made, parts[i] * d))

        return extended(0, n, ())

    def missing(self, parts: Parts) -> int:
        """Return the dimensions that are not cut as finely as the target asks: each needs an all-to-all of its own."""
        return sum([k % d != 0 for k, d in zip(parts, self.dst)])

    def moves(self, parts: Parts) -> Iterator[tuple[int, int, int, Parts]]:
        """Yield all-to-alls: (source dimension, target dimension, n, part counts afterwards)."""
        for i, k in enumerate(parts):
            if k == 1 or i < self.n_fixed:
                continue
            for n in factors(k):
                for j in range(self.n_fixed, self.rank):
                    if i != j and self.may_cut(j, parts[j] * n):
                        new = list(parts)
                        new[i] //= n
                        new[j] *= n
                        after = tuple(new)
                        if self.is_legal(after):
                            yield i, j, n, after


class Prices(Protocol):
    """Prices are what the steps of a path cost, in any one unit; slices cost nothing."""

    #: Whether an all-to-all may follow one between the same dimensions, which could be one.
    may_repeat: bool

    def move(self, tile: int, n: int) -> float:
        """Return the cost of an all-to-all of `n` devices."""

    def permute(self, tile: int) -> float:
        """Return the cost of a permute."""

    def gathers(self, parts: Parts) -> tuple[tuple[tuple[int, int], ...], float]:
        """Return the gathers (dimension, n) that lead to the target, in their order, and what they cost together."""

    def least_move(self, tile: int) -> float:
        """Return what no all-to-all of tiles of at least this size costs less than."""

    def least_gathers(self, tile: int) -> float:
        """Return what the gathers from tiles of at least this size cost at least."""


class Elements:
    """Elements are the prices of the paper (figure 11): an all-to-all and a permute cost the tile, a gather what it
    makes.
    """

    may_repeat = False

    def __init__(self, space: Space) -> None:
        self._space = space
        self._last = space.tile(space.dst)

    def move(self, tile: int, n: int) -> float:
        """Return the elements of the tile as the cost."""
        return tile

    def permute(self, tile: int) -> float:
        """Return the elements of the tile as the cost."""
        return tile

    def gathers(self, parts: Parts) -> tuple[tuple[tuple[int, int], ...], float]:
        """Return one for each dimension, smallest factors first: ``V n1 + V n1 n2 + ..`` has the smallest products
        first.
        """
        steps = [(i, k // d) for i, (k, d) in enumerate(zip(parts, self._space.dst)) if k != d]
        if not steps:
            return (), 0
        steps.sort(key=lambda step: step[1])
        total, now = 0, list(parts)
        for i, n in steps:
            now[i] //= n
            total += self._space.tile(tuple(now))
        return tuple(steps), total

    def least_move(self, tile: int) -> float:
        """Return the elements of the tile as the cost."""
        return tile

    def least_gathers(self, tile: int) -> float:
        """Return what the gather costs that makes the target, the last one; nothing where the tile is that already."""
        return self._last if tile < self._last else 0


def _slices(src: Parts, parts: Parts) -> tuple[tuple[int, int], ...]:
    return tuple([(i, k // s) for i, (s, k) in enumerate(zip(src, parts)) if k != s])


def cheapest(space: Space, prices: Prices, limit: float = inf) -> Path | None:
    """Return the cheapest weak path when a permute at the valley is charged; None if none stays within the bound.

    A* with the number of dimensions that still lack parts, each good for one all-to-all, and the last gather.

    Parameters
    ----------
    limit
        Costs from which on no path is of interest.
    """
    ticket = count()
    heap: list[Any] = []
    best: dict[Parts, tuple[float, int]] = {}

    def push(parts: Parts, g: float, n_moves: int, trail: Any) -> None:
        known = best.get(parts)
        if known is not None and known <= (g, n_moves):
            return
        best[parts] = (g, n_moves)
        missing = space.missing(parts)
        valley = space.tile(parts)
        least = space.size // prod(parts)
        if not missing:
            steps, cost = prices.gathers(parts)
            done = (steps, cost, valley)
            total = g + cost + prices.permute(valley)
            heappush(heap, (total, n_moves + len(steps), next(ticket), g, parts, trail, done))
        # all that lies beyond needs another all-to-all
        beyond = prices.least_move(least) * max(missing, 1) + prices.permute(least) + prices.least_gathers(least)
        heappush(heap, (g + beyond, n_moves + missing, next(ticket), g, parts, trail, None))

    for parts in space.starts():
        if space.is_legal(parts):
            push(parts, 0, 0, (parts, None, None))
    while heap:
        total, _, _, g, parts, trail, done = heappop(heap)
        if total >= limit:
            return None
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
            if previous is None or previous[:2] != (i, j) or prices.may_repeat:
                push(after, g + prices.move(before, n), known[1] + 1, (after, (i, j, n), trail))
    return None


def _walked(trail: Any) -> tuple[Parts, tuple[tuple[int, int, int], ...]]:
    moves = []
    while trail[1] is not None:
        moves.append(trail[1])
        trail = trail[2]
    return trail[0], tuple(reversed(moves))


class _Prefix(NamedTuple):
    """A _Prefix is part counts; per dimension what is left of the source's, and the factors pushed on top of it, top
    last.
    """

    parts: Parts
    left: Parts
    pushed: tuple[tuple[int, ...], ...]


def _popped(state: _Prefix, i: int, n: int) -> tuple[int, tuple[int, ...]] | None:
    """Return what a dimension holds after its `n` minor parts have gone; None if that would split a factor unevenly."""
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


class _Remainder(NamedTuple):
    """A _Remainder is what is still to be done: dimensions that lack parts, hold too much of the source, have too many
    parts.
    """

    missing: int
    over: int
    gathered: int


def by_cost(space: Space, prices: Prices, common: Parts, limit: tuple[float, int]) -> Iterator[Path]:
    """Yield weak paths on which a plan may do without a permute, cheapest first.

    Parameters
    ----------
    common
        Per dimension the product of the axes that source and target share from the major end: all else must go.
    limit
        (cost, collectives) above which no path is of interest.
    """
    search = _ByCost(space, prices, common, limit)
    for parts in space.starts():
        if space.is_legal(parts):
            search.start(parts)
    for _ in range(MAX_EXPANSIONS):
        if not search.heap:
            return
        path = search.step()
        if path is not None:
            yield path


class _ByCost:
    """A _ByCost is the queue of `by_cost`: states to be opened, and paths that are complete, by what they cost at
    least.
    """

    def __init__(self, space: Space, prices: Prices, common: Parts, limit: tuple[float, int]) -> None:
        self.space, self.prices, self.common, self.limit = space, prices, common, limit
        self.heap: list[Any] = []
        self._ticket = count()
        self._visits: dict[tuple[Parts, Parts], int] = {}

    def start(self, parts: Parts) -> None:
        """Begin at what slices make of the source."""
        space = self.space
        pushed = tuple([(k // s,) if k != s else () for k, s in zip(parts, space.src)])
        facts = _Remainder(
            space.missing(parts),
            sum([c % k != 0 for c, k in zip(self.common, space.src)]),
            sum([k > d for k, d in zip(parts, space.dst)]),
        )
        key = self._key(space.size // prod(parts), 0, 0, facts)
        if key <= self.limit:
            self._push(key, 0, 0, _Prefix(parts, space.src, pushed), facts, (parts, None, None))

    def step(self) -> Path | None:
        """Return the first of the queue if it is a path; of a state put what it leads to into the queue."""
        _, _, g, n_moves, state, facts, trail, path = heappop(self.heap)
        if path is not None:
            found: Path = path
            return found
        where = state.parts, state.left
        seen = self._visits[where] = self._visits.get(where, 0) + 1
        if seen <= MAX_VISITS:
            if not facts.missing and _ends(self.space, state, self.common):
                self._complete(g, n_moves, state, facts, trail)
            self._expand(g, n_moves, state, facts, trail)
        return None

    def _key(self, tile: int, g: float, n_moves: int, facts: _Remainder) -> tuple[float, int]:
        # every all-to-all mends one dimension that lacks parts, and empties one that has too much of the source;
        # so does a gather
        missing, over, gathered = facts
        last = self.prices.least_gathers(tile)
        n = max(missing, over - gathered if last else over)
        return g + self.prices.least_move(tile) * n + last, n_moves + n

    def _push(
        self, key: Any, g: float, n_moves: int, state: _Prefix, facts: _Remainder, trail: Any, path: Path | None = None
    ) -> None:
        heappush(self.heap, (key, next(self._ticket), g, n_moves, state, facts, trail, path))

    def _complete(self, g: float, n_moves: int, state: _Prefix, facts: _Remainder, trail: Any) -> None:
        space = self.space
        steps, cost = self.prices.gathers(state.parts)
        key = (g + cost, n_moves + len(steps))
        if key <= self.limit:
            # listed with what it costs in truth: until then cheaper ones may come
            start, moves = _walked(trail)
            path = Path(_slices(space.src, start), moves, steps, g + cost, space.tile(state.parts))
            self._push(key, g, n_moves, state, facts, trail, path)

    def _expand(self, g: float, n_moves: int, state: _Prefix, facts: _Remainder, trail: Any) -> None:
        space, prices, common = self.space, self.prices, self.common
        parts, dst, rank = state.parts, space.dst, range(space.n_fixed, space.rank)
        tile, least = space.tile(parts), space.size // prod(parts)
        last = trail[1][:2] if trail[1] is not None and not prices.may_repeat else None
        for i in rank:
            k, d = parts[i], dst[i]
            for n in factors(k):
                rest = _popped(state, i, n)
                if rest is None:
                    continue
                less = k // n
                before = g + prices.move(tile, n)
                missing = facts.missing + (less % d != 0) - (k % d != 0)
                over = facts.over + (common[i] % rest[0] != 0) - (common[i] % state.left[i] != 0)
                gathered = facts.gathered + (less > d) - (k > d)
                for j in rank:
                    if i == j or last == (i, j):
                        continue
                    old, e = parts[j], dst[j]
                    new = old * n
                    then = _Remainder(missing + (new % e != 0) - (old % e != 0), over, gathered + (new > e) - (old > e))
                    key = self._key(least, before, n_moves + 1, then)
                    if key > self.limit or not space.may_cut(j, new):
                        continue
                    after = _moved(state, i, j, n, rest)
                    if space.is_legal(after.parts):
                        self._push(key, before, n_moves + 1, after, then, (after.parts, (i, j, n), trail))


def _moved(state: _Prefix, i: int, j: int, n: int, rest: tuple[int, tuple[int, ...]]) -> _Prefix:
    """Return the parts after an all-to-all that leaves `rest` of dimension `i`."""
    parts, left, pushed = list(state.parts), list(state.left), list(state.pushed)
    parts[i] //= n
    parts[j] *= n
    left[i], pushed[i] = rest
    pushed[j] = (*pushed[j], n)
    return _Prefix(tuple(parts), tuple(left), tuple(pushed))


def _ends(space: Space, state: _Prefix, common: Parts) -> bool:
    """Return whether all that the target does not keep of the source is gone after the gathers."""
    for i, (k, d) in enumerate(zip(state.parts, space.dst)):
        rest = _popped(state, i, k // d)
        if rest is None or common[i] % rest[0]:
            return False
    return True
