"""The two strategies of torch's DTensor: one collective per mesh dimension, greedily or along a shortest path."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import count

from distarray.testing.redistributions import Case

from .emitted import Axis, Emitted, parts, types_of

__all__ = ["greedy", "min_cost"]


def greedy(case: Case) -> Emitted:
    """Replicate over the mesh axes that lie below another axis than in the target, then one collective for each.

    Inner axes first, so that none is gathered from under another; what remains to be cut is cut from outer to inner.
    """
    source, target = types_of(case)
    made = Emitted(case.shape, source)
    wanted = {axis: (dim, n) for dim, axes in enumerate(target) for n, axis in enumerate(axes)}
    position = {name: n for n, name in enumerate(case.src.mesh.names)}
    held = [(n, position[axis.name], dim, axis) for dim, axes in enumerate(source) for n, axis in enumerate(axes)]
    for n, _, dim, axis in sorted(held, reverse=True):
        if made.types[dim][: n + 1] == target[dim][: n + 1]:
            continue
        to, above = wanted.get(axis, (dim, -1))
        if to != dim and made.types[to] == target[to][:above]:
            made.all_to_all(dim, to, 1)
        else:
            made.gather([n if i == dim else len(axes) for i, axes in enumerate(made.types)])
    for dim, axes in enumerate(target):
        for axis in axes[len(made.types[dim]) :]:
            made.slice(dim, axis)
    return made


#: Elements that a hop of a ring costs beside what it carries: so of paths that move as much the shorter one is taken.
HOP = 1.0


def min_cost(case: Case) -> Emitted:
    """The shortest path over types, one mesh axis in a step, by the cost of collectives on a ring.

    A gather over `n` devices carries ``(n - 1) / n`` of its result in `n` - 1 hops, an all-to-all as much of the tile.
    No step permutes, and no tile is too large.
    """
    source, target = types_of(case)
    free = [Axis(a, 1, n) for a, n in zip(case.src.mesh.names, case.src.mesh.sizes)]
    ticket = count()
    start = Emitted(case.shape, source)
    heap: list[tuple[float, int, Emitted]] = [(0.0, next(ticket), start)]
    best = {source: 0.0}
    while heap:
        price, _, made = heappop(heap)
        if made.types == target:
            return made
        if price > best[made.types]:
            continue
        for after, n in _following(made, free):
            carried = 0.0 if after.steps[-1] == "slice" else (after.cost - made.cost) * (n - 1) / n + HOP * (n - 1)
            if price + carried < best.get(after.types, float("inf")):
                best[after.types] = price + carried
                heappush(heap, (price + carried, next(ticket), after))
    raise AssertionError("every type can be reached")


def _following(made: Emitted, axes: list[Axis]) -> Iterator[tuple[Emitted, int]]:
    used = {axis for held in made.types for axis in held}
    for i, held in enumerate(made.types):
        if held:
            after = _copy(made)
            after.gather([len(a) - (j == i) for j, a in enumerate(made.types)])
            yield after, held[-1].size
        for j in range(len(made.types)) if held else ():
            if i != j and _can_cut(made, j, held[-1]):
                after = _copy(made)
                after.all_to_all(i, j, 1)
                yield after, held[-1].size
        for axis in axes:
            if axis not in used and _can_cut(made, i, axis):
                after = _copy(made)
                after.slice(i, axis)
                yield after, axis.size


def _can_cut(made: Emitted, dim: int, axis: Axis) -> bool:
    return parts(made.types[dim]) * axis.size <= made.shape[dim]


def _copy(made: Emitted) -> Emitted:
    return Emitted(made.shape, made.types, made.cost, made.peak, [*made.steps])
