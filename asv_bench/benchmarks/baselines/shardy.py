"""Shardy's `reshard-to-collectives`: slices, a permute, all-to-alls in the order of the target, gathers.

Not driven by cost: axes are split so that their sizes match, each kind of collective is tried in turn, and where
all-to-alls wait for each other in a circle one is emitted out of order and a second round begins.
"""

from __future__ import annotations

from itertools import islice, permutations, product
from math import gcd, prod

from distarray.sharding.prime import prime_factors
from distarray.testing.redistributions import Case

from .emitted import Axis, Emitted, Types, parts

__all__ = ["reshard_to_collectives"]

#: Rounds after which what is still in the way is gathered.
MAX_ROUNDS = 3
#: Orders of the factors of composite mesh axes that are tried, all axes together.
MAX_ORDERS = 24


def reshard_to_collectives(case: Case) -> Emitted:
    """Of the ways to split composite axes the first that needs one round; else the first."""
    names, sizes = case.src.mesh.names, case.src.mesh.sizes
    mixed = any(gcd(m, n) not in (1, m, n) for m in sizes for n in sizes)
    orders = product(*[([(n,)] if mixed else []) + sorted(set(permutations(prime_factors(n)))) for n in sizes])
    first: Emitted | None = None
    for order in islice(orders, MAX_ORDERS):
        split = {name: _factors(name, primes) for name, primes in zip(names, order)}
        source, target = (
            tuple([tuple([axis for name in reversed(axes) for axis in split[name]]) for axes in sharding.axes])
            for sharding in (case.src, case.dst)
        )
        made = Emitted(case.shape, source)
        rounds = _rounds(made, target, [axis for axes in split.values() for axis in axes])
        first = first or made
        if rounds == 1:
            return made
    assert first is not None
    return first


def _factors(name: str, primes: tuple[int, ...]) -> list[Axis]:
    return [Axis(name, prod(primes[:n]), p) for n, p in reversed(list(enumerate(primes)))]


def _rounds(made: Emitted, target: Types, axes: list[Axis]) -> int:
    """Emit everything; the number of rounds that it took."""
    for n in range(1, MAX_ROUNDS + 3):
        _slice(made, target, axes)
        kept = _kept(made, target)
        in_place = all(held[: len(here)] == here for held, here in zip(made.types, kept))
        if made.types == target or (in_place and _finish(made, target)):
            return n
        other = _arranged(made, target, kept, axes)
        if other is not None and _finish(Emitted(made.shape, other), target):
            made.permute(other)
            _finish(made, target)
            return n
        if _finish(made, target):
            return n
        if n <= MAX_ROUNDS:
            _break_a_circle(made, target)
        else:  # what is in the way is gathered, and cut again
            made.gather([_n_common(held, wanted) for held, wanted in zip(made.types, target)])
    raise AssertionError("what is gathered can be cut")


def _n_common(held: tuple[Axis, ...], wanted: tuple[Axis, ...]) -> int:
    n = 0
    while n < min(len(held), len(wanted)) and held[n] == wanted[n]:
        n += 1
    return n


def _kept(made: Emitted, target: Types) -> Types:
    """What the target begins with in every dimension, as far as the sizes that are there allow."""
    found = []
    for held, wanted in zip(made.types, target):
        k, n = parts(held), 0
        while n < len(wanted) and k % wanted[n].size == 0:
            k //= wanted[n].size
            n += 1
        found.append(wanted[:n])
    return tuple(found)


def _slice(made: Emitted, target: Types, axes: list[Axis]) -> None:
    """By axes that nothing uses yet: where the target wants them, or behind what will be moved there with them.

    Then wherever parts are lacking, by axes that the target wants elsewhere: a permute will put them right.
    """
    for dim, wanted in enumerate(target):
        for n, axis in enumerate(wanted):
            if _is_free(made, axis) and _lacks(made, target, dim, axis):
                at = _behind(made, target, dim, n)
                for i in (dim,) if at is None else (at, dim):
                    if made.shape[i] % (parts(made.types[i]) * axis.size) == 0:
                        made.slice(i, axis)
                        break
    for dim in range(len(target)):
        for axis in axes:
            if _is_free(made, axis) and any(axis in wanted for wanted in target) and _lacks(made, target, dim, axis):
                made.slice(dim, axis)


def _is_free(made: Emitted, axis: Axis) -> bool:
    return not any(axis in held for held in made.types)


def _lacks(made: Emitted, target: Types, dim: int, axis: Axis) -> bool:
    """Whether the target cuts a dimension into more parts by the size of an axis."""
    k, goal = parts(made.types[dim]), parts(target[dim])
    return goal // gcd(k, goal) % axis.size == 0


def _behind(made: Emitted, target: Types, dim: int, n: int) -> int | None:
    """The dimension whose minor axes go to `dim` and are followed there by axis `n`; its rest must be in place."""
    held = made.types[dim]
    if held != target[dim][: len(held)] or len(held) >= n:
        return None
    run = target[dim][len(held) : n]
    for i, (axes, wanted) in enumerate(zip(made.types, target)):
        if i != dim and axes[-len(run) :] == run and axes[: len(wanted)] == wanted:
            return i
    return None


def _arranged(made: Emitted, target: Types, kept: Types, axes: list[Axis]) -> Types | None:
    """What a permute can make of the sizes that are there: what is kept, then what other dimensions wait for."""
    placed = {axis for here in kept for axis in here}
    waiting = [axis for wanted in target for axis in wanted if axis not in placed]
    spare = [axis for axis in axes if axis not in placed and axis not in waiting]
    goes_to = {axis: dim for dim, wanted in enumerate(target) for axis in wanted}
    found = []
    for held, here in zip(made.types, kept):
        k = parts(held) // parts(here)
        chosen: list[Axis] = []
        for pool in (waiting, spare):
            for axis in list(pool):
                if k % axis.size == 0:
                    chosen.append(axis)
                    pool.remove(axis)
                    k //= axis.size
        if k > 1:
            return None
        # what goes first must be the most minor, what is gathered the most major; sorting keeps the target's order
        found.append((*here, *sorted(chosen, key=lambda axis: -goes_to.get(axis, len(target)))))
    return tuple(found)


def _finish(made: Emitted, target: Types) -> bool:
    """All-to-alls in the order of the target, then one gather; nothing, if they do not lead there."""
    types = list(made.types)
    moves: list[tuple[int, int, int]] = []
    moved = True
    while moved:
        moved = False
        for j, wanted in enumerate(target):
            n = len(types[j])
            if types[j] != wanted[:n]:
                continue
            i = next((i for i, a in enumerate(types) if i != j and n < len(wanted) and wanted[n] in a), None)
            run = () if i is None else types[i][types[i].index(wanted[n]) :]
            if i is not None and run == wanted[n : n + len(run)]:
                types[i], types[j] = types[i][: len(types[i]) - len(run)], types[j] + run
                moves.append((i, j, len(run)))
                moved = True
    if any(held[: len(wanted)] != wanted for held, wanted in zip(types, target)):
        return False
    for move in moves:
        made.all_to_all(*move)
    if made.types != target:
        made.gather([len(wanted) for wanted in target])
    return True


def _break_a_circle(made: Emitted, target: Types) -> None:
    """Move axes to their dimension though it is not ready for them; or gather, if none are on top."""
    for j, wanted in enumerate(target):
        for i, held in enumerate(made.types):
            n = 0
            while n < len(held) and held[-1 - n] in wanted:
                n += 1
            if i != j and n:
                made.all_to_all(i, j, n)
                return
    dim = next(i for i, (held, wanted) in enumerate(zip(made.types, target)) if held[: len(wanted)] != wanted)
    common = _n_common(made.types[dim], target[dim])
    made.gather([common if i == dim else len(held) for i, held in enumerate(made.types)])
