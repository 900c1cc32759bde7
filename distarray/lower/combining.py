"""Lowering of reductions over several tiles: trees of tasks that combine partial results.

Every tile of a reduction gives a partial result for one tile of the result. A member first combines its own, then they
travel to the member that holds the tile of the result, a few at a time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import prod
from typing import Any, TypeAlias, TypeVar

from distarray.kernels import tasks
from distarray.kernels.specs import StageSpec, of_nothing
from distarray.lower.state import Lowering
from distarray.planner.plan import FAN_IN, Combine

T = TypeVar("T", int, None)
#: Index of a tile of the result -> its partial results and the members that have them.
Partials: TypeAlias = dict[tuple[int, ...], list[tuple[Any, int]]]
#: A reduction: the record of its stage, and which of its reductions it is.
Reduction: TypeAlias = tuple[StageSpec, int]


def of_result(low: Lowering, c: Combine, of_loops: Iterable[int], reduced: T) -> tuple[int | T, ...]:
    """Return by axis of a result what belongs to its loop, of what belongs to each loop of the operand; `reduced` for
    the loops that are reduced, where the result keeps their axes.
    """
    keepdims = low.graph.nodes[c.node].params.keepdims
    return tuple([reduced if a in c.axes else n for a, n in enumerate(of_loops) if keepdims or a not in c.axes])


def combine(low: Lowering, i: int, spec: StageSpec, k: int, partials: Partials) -> None:
    """Combine the partial results, of the `k`-th reduction of a stage, for each tile of result `i` that no task has
    made, where the tile is.
    """
    at, reduction = low.located[i], (spec, k)
    for number, index in enumerate(at.sharding.tiles()):
        if at.refs[number] is not None:
            continue
        member = at.members[number]
        shape = tuple(map(len, at.box(index)))
        parts = partials.get(index, [])
        if parts:
            at.refs[number] = _tree(low, reduction, parts, member, shape, number)
        elif 0 in shape:
            at.refs[number] = low.backend_here(member).empty(shape, at.dtype)
        else:
            at.refs[number] = of_nothing(spec.finishes[k], shape, low.backend_here(member))


def _tree(
    low: Lowering,
    reduction: Reduction,
    partials: Sequence[tuple[Any, int]],
    member: int,
    shape: tuple[int, ...],
    number: int,
) -> Any:
    """Return the key of a tile of the result."""
    spec, k = reduction
    nbytes = max(1, prod(shape)) * spec.finishes[k].itemsize
    parts = _combined_at_home(low, partials, reduction, member, shape, number)
    while True:
        is_last = len(parts) <= FAN_IN
        merged = []
        for i in range(0, len(parts), FAN_IN):
            group = parts[i : i + FAN_IN]
            where = member if is_last else group[0][1]
            for ref, source in group:
                low.messages.carry(ref, source, where, shape[0] if shape else 1, nbytes)
            args = (spec, where, k, shape if is_last else None, *[ref for ref, _ in group])
            merged.append((low.emit("combine", "combine", tasks.combine_partials, args, where, number), where))
        if is_last:
            return merged[0][0]
        parts = merged


def _combined_at_home(
    low: Lowering,
    parts: Sequence[tuple[Any, int]],
    reduction: Reduction,
    member: int,
    shape: tuple[int, ...],
    number: int,
) -> list[tuple[Any, int]]:
    """Return partial results, one of each member but of few at `member` itself: what a member has made, as it comes."""
    at_home: defaultdict[int, list[Any]] = defaultdict(list)
    for ref, home in parts:
        at_home[home].append(ref)
    spec, k = reduction
    nbytes = max(1, prod(shape)) * spec.finishes[k].accumulator.itemsize
    n_at_once = max(2, min(FAN_IN, low.site.large // nbytes))
    found = []
    for home, refs in at_home.items():
        while len(refs) > (n_at_once if home == member else 1):
            n = min(n_at_once, len(refs))
            args = (spec, home, k, None, *refs[:n])
            refs[:n] = [low.emit("combine", "combine", tasks.combine_partials, args, home, number)]
        found += [(ref, home) for ref in refs]
    return found
