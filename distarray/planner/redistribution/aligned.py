"""Lowering a weak path without a permute: every tile index is a function of whole prime axes.

Each dimension is a stack of slots, major at the bottom: the axes of the source, then what the steps push. Gathers and
all-to-alls pop slots. What survives must be the axes of the target, in their order; what is popped again is filled with
any axes that are free as long as the slot lives. If that works out, the last map is the target's and no permute is
needed (Rink et al. 2021, section 7.3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from distarray.planner.redistribution.groups import cells, matched_groups
from distarray.planner.redistribution.permuted import gathers
from distarray.planner.redistribution.places import Places, PrimeAxis
from distarray.planner.redistribution.problem import Problem
from distarray.planner.redistribution.steps import AllToAll, DynSlice, Step
from distarray.planner.redistribution.weak import Path
from distarray.sharding.prime import prime_factors

_FOREVER = 1 << 30


@dataclass(slots=True, eq=False)
class _AxisFactor:
    """An _AxisFactor is a factor of a dimension: known axes (major first), or `n` parts of axes that are found
    later.
    """

    n: int
    born: int
    axes: list[PrimeAxis] | None
    dies: int = _FOREVER


#: What one step pushes: the pieces of its slot, major first.
_Push: TypeAlias = list[_AxisFactor]


def common_parts(problem: Problem) -> tuple[int, ...]:
    """Return per dimension the product of the axes that source and target share from the major end."""
    found = []
    for a, b in zip(problem.src, problem.dst):
        n = 1
        for x, y in zip(reversed(a), reversed(b)):
            if x != y:
                break
            n *= problem.sizes[x]
        found.append(n)
    return tuple(found)


def lower_aligned(problem: Problem, places: Places, path: Path) -> list[Step] | None:
    """Return the steps of a path, or None if it needs a permute under every order of the primes."""
    for order in places.orders:
        pushes = _assigned(problem, places, path, order)
        if pushes is not None:
            return _steps(problem, places, path, pushes)
    return None


def _assigned(problem: Problem, places: Places, path: Path, order: Sequence[tuple[int, ...]]) -> list[_Push] | None:
    stacks = [[_AxisFactor(a.size, 0, [a]) for a in reversed(places.primes(axes, order))] for axes in problem.src]
    slots = [slot for stack in stacks for slot in stack]
    pushes: list[_Push] = []

    def push(i: int, n: int, time: int) -> None:
        slot = _AxisFactor(n, time, None)
        slots.append(slot)
        stacks[i].append(slot)
        pushes.append([slot])

    def pop(i: int, n: int, time: int) -> bool:
        stack = stacks[i]
        while n > 1:
            top = stack[-1]
            if n % top.n == 0:
                n //= top.n
                top.dies = time
                stack.pop()
            elif top.axes is None and top.n % n == 0:
                piece = _AxisFactor(n, top.born, None, time)
                top.n //= n
                slots.append(piece)
                for p in pushes:
                    if top in p:
                        p.insert(p.index(top) + 1, piece)
                n = 1
            else:
                return False
        return True

    for i, n in path.slices:
        push(i, n, 0)
    time = 0
    for i, j, n in path.moves:
        time += 1
        if not pop(i, n, time):
            return None
        push(j, n, time)
    for i, n in path.gathers:
        time += 1
        if not pop(i, n, time):
            return None
    for stack, axes in zip(stacks, problem.dst):
        if not _survives(stack, list(reversed(places.primes(axes, order)))):
            return None
    return pushes if _fill(slots, places, order) else None


def _survives(stack: list[_AxisFactor], target: list[PrimeAxis]) -> bool:
    """Give the slots that are left on a stack the axes of the target; return whether the axes that they have agree."""
    at = 0
    for slot in stack:
        if slot.axes is not None:
            if at >= len(target) or slot.axes[0] != target[at]:
                return False
            at += 1
            continue
        n, first = 1, at
        while n < slot.n and at < len(target):
            n *= target[at].size
            at += 1
        if n != slot.n:
            return False
        slot.axes = target[first:at]
    return at == len(target)


def _fill(slots: list[_AxisFactor], places: Places, order: Sequence[tuple[int, ...]]) -> bool:
    """Give the slots that are popped again axes that nobody else has meanwhile; return whether there are such axes."""
    used: dict[PrimeAxis, list[tuple[int, int]]] = {a: [] for a in places.primes(range(len(order)), order)}
    for slot in slots:
        for a in slot.axes or ():
            if any(born < slot.dies and slot.born < dies for born, dies in used[a]):
                return False
            used[a].append((slot.born, slot.dies))
    open_slots = [(slot, p) for slot in slots if slot.axes is None for p in prime_factors(slot.n)]
    chosen: list[PrimeAxis] = []

    def backtrack(k: int) -> bool:
        if k == len(open_slots):
            return True
        slot, p = open_slots[k]
        for a, spans in used.items():
            if a.size == p and not any(born < slot.dies and slot.born < dies for born, dies in spans):
                spans.append((slot.born, slot.dies))
                chosen.append(a)
                if backtrack(k + 1):
                    return True
                chosen.pop()
                spans.pop()
        return False

    if not backtrack(0):
        return False
    for (slot, _), a in zip(open_slots, chosen):
        slot.axes = [*(slot.axes or ()), a]
    return True


def _steps(problem: Problem, places: Places, path: Path, pushes: list[_Push]) -> list[Step]:
    tiles = places.tiles(problem.src)
    parts = list(problem.src_parts)
    steps: list[Step] = []
    # minor axes first
    indices = (places.index(a for piece in reversed(push) for a in reversed(piece.axes or [])) for push in pushes)
    for i, n in path.slices:
        index = next(indices)
        tiles[:, i] = tiles[:, i] * n + index
        parts[i] *= n
        steps.append(DynSlice(i, n, index))
    for i, j, n in path.moves:
        kept = next(indices)
        position = tiles[:, i] % n
        tiles[:, i] //= n
        parts[i] //= n
        groups, index_or_none = matched_groups(cells(tiles, parts), position, kept, n)
        tiles[:, j] = tiles[:, j] * n + kept
        parts[j] *= n
        steps.append(AllToAll(i, j, n, groups, index_or_none))
    return [*steps, *gathers(tiles, tuple(parts), path.gathers)]
