"""Min-sum variable elimination: the cheapest choice of one state per variable under pairwise tables.

Exact for every graph, exponential only in its treewidth; a LLaMA block has width 2.

For graphs that are too wide for it both planners take a labelling that no neighbourhood improves (`solved`). A
neighbourhood is a connected set of variables, small enough to be solved exactly while the rest stays as it is: large
neighbourhood search.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from math import prod
from typing import Any, TypeAlias

import numpy as np

#: Entries of the largest table that is made, and of all of them as a multiple of it: some seconds.
MAX_ENTRIES = 60_000_000
MOST_TABLES = 3

#: What names a variable: anything that can be hashed.
Name: TypeAlias = Hashable
#: Costs of states by variable, and of pairs of states by pair of variables.
Tables: TypeAlias = tuple[dict[Name, Any], dict[tuple[Name, Name], Any]]
_Factor: TypeAlias = tuple[tuple[Name, ...], Any]


class TooWide(Exception):
    """A TooWide is raised where a graph needs a table that is too large, or too many large ones."""


def add(tables: dict[tuple[Name, Name], Any], pair: tuple[Name, Name], table: Any) -> None:
    """Add what a pair of variables costs to what it costs already."""
    tables[pair] = tables[pair] + table if pair in tables else table


def eliminate(
    unary: Mapping[Name, Any], pairwise: Mapping[tuple[Name, Name], Any], max_entries: int = MAX_ENTRIES
) -> tuple[Any, dict[Name, int]]:
    """Return the least total and the state of each variable; of equal ones the first.

    Variables go in the order of the tables that their elimination makes, the smallest first. Those of one state have
    gone before: they widen no table in entries, and any number of them may be neighbours of one, where numpy's arrays
    have 64 axes.

    Parameters
    ----------
    unary
        Cost of each state, by variable: integers or floats.
    pairwise
        Costs (states of the first, states of the second), by pair.

    Raises
    ------
    TooWide
        If a table would have more than `max_entries`, or all of them `MOST_TABLES` times as many.
    """
    chosen: dict[Name, int] = {}
    total, unary, pairwise = _of_several_states(unary, pairwise, chosen)
    sizes = {v: len(cost) for v, cost in unary.items()}
    factors: dict[Name, list[_Factor]] = {v: [((v,), cost)] for v, cost in unary.items()}
    for factor in pairwise.items():
        _add(factors, factor)
    trail: list[tuple[Name, tuple[Name, ...], Any]] = []
    for v, scope in _order(sizes, pairwise, max_entries):
        table = _joined((v, *scope), factors.pop(v), sizes)
        best = table.argmin(axis=0)
        least = np.take_along_axis(table, best[None], axis=0)[0]
        trail.append((v, scope, best))
        for a in scope:
            factors[a] = [f for f in factors[a] if v not in f[0]]
        if scope:
            _add(factors, (scope, least))
        else:
            total += least.item()
    for v, scope, best in reversed(trail):
        chosen[v] = int(best[tuple([chosen[w] for w in scope])])
    return total, chosen


def _of_several_states(
    unary: Mapping[Name, Any], pairwise: Mapping[tuple[Name, Name], Any], chosen: dict[Name, int]
) -> tuple[Any, dict[Name, Any], dict[tuple[Name, Name], Any]]:
    """Return what variables of one state cost, and the tables of the others, with what these cost beside them; choose
    the one state.
    """
    costs = {v: np.asarray(cost) for v, cost in unary.items()}
    chosen.update({v: 0 for v, cost in costs.items() if len(cost) == 1})
    left: dict[tuple[Name, Name], Any] = {}
    for (a, b), table in pairwise.items():
        if a in chosen:
            costs[b] = costs[b] + np.asarray(table)[0]
        elif b in chosen:
            costs[a] = costs[a] + np.asarray(table)[:, 0]
        else:
            left[a, b] = np.asarray(table)
    total: Any = sum([costs.pop(v).item() for v in chosen])
    return total, costs, left


def _order(
    sizes: Mapping[Name, int], pairs: Iterable[tuple[Name, Name]], max_entries: int
) -> list[tuple[Name, tuple[Name, ...]]]:
    """Return the variables in the order in which they go, with the neighbours of each at that time: without making a
    table.
    """
    number = {v: i for i, v in enumerate(sizes)}
    neighbours: dict[Name, set[Name]] = {v: set() for v in sizes}
    for a, b in pairs:
        neighbours[a].add(b)
        neighbours[b].add(a)

    def weight(v: Name) -> int:
        return prod([sizes[w] for w in neighbours[v]]) * sizes[v]

    waiting = [(weight(v), number[v], v) for v in sizes]
    heapify(waiting)
    order: list[tuple[Name, tuple[Name, ...]]] = []
    total = 0
    while waiting:
        entries, _, v = heappop(waiting)
        if v not in neighbours or entries != weight(v):
            continue  # it is gone, or waits with another weight
        total += entries
        if entries > max_entries or total > MOST_TABLES * max_entries:
            raise TooWide
        scope = tuple(sorted(neighbours.pop(v), key=number.__getitem__))
        order.append((v, scope))
        for a in scope:
            neighbours[a].discard(v)
            neighbours[a].update([b for b in scope if b != a])
        for a in scope:
            heappush(waiting, (weight(a), number[a], a))
    return order


def _add(factors: dict[Name, list[_Factor]], factor: _Factor) -> None:
    for v in factor[0]:
        factors[v].append(factor)


def _joined(scope: Sequence[Name], factors: Sequence[_Factor], sizes: Mapping[Name, int]) -> Any:
    """Return the sum of tables, with one axis for each variable of `scope`."""
    at = {v: i for i, v in enumerate(scope)}
    total: Any = np.zeros([1] * len(scope), np.result_type(*[f[1] for f in factors]))
    for names, table in sorted(factors, key=lambda f: f[1].size):
        order = sorted(range(len(names)), key=lambda k: at[names[k]])
        shape = [1] * len(scope)
        for k in order:
            shape[at[names[k]]] = sizes[names[k]]
        total = total + table.transpose(order).reshape(shape)
    return np.broadcast_to(total, [sizes[v] for v in scope])


#: Variables of a neighbourhood, and rounds over all of them.
MOST_VARIABLES = 12
ROUNDS = 8
#: Entries of the largest table of a neighbourhood: there are many.
MOST_ENTRIES = 200_000


def solved(
    tables: Tables, starts: Callable[[Tables], Sequence[Mapping[Any, int]]], max_entries: int
) -> tuple[Any, dict[Name, int], str]:
    """Return the least cost that is found, the state of each variable, and how: ``exact`` or ``fallback``.

    Parameters
    ----------
    tables
        Costs of all variables and pairs.
    starts
        Makes the labellings that are improved where elimination would need a table that is too large.
    max_entries
        Of the largest table.
    """
    try:
        return *eliminate(*tables, max_entries), "exact"
    except TooWide:
        chosen = improved(tables, starts(tables), max_entries)
        return total_cost(tables, chosen), chosen, "fallback"


def improved(tables: Tables, starts: Sequence[Mapping[Any, int]], max_entries: int) -> dict[Name, int]:
    """Return the best of some labellings, and what neighbourhoods make of it: its cost never rises.

    Parameters
    ----------
    tables
        Costs of all variables and pairs.
    starts
        States of the operations; other variables get what suits these best.
    max_entries
        Of the largest table.
    """
    unary, pairwise = tables
    neighbours: dict[Name, list[Name]] = {v: [] for v in unary}
    pairs_of: dict[Name, list[tuple[Name, Name]]] = {v: [] for v in unary}
    for a, b in pairwise:
        for v, w in ((a, b), (b, a)):
            neighbours[v].append(w)
            pairs_of[v].append((a, b))
    completed = [_completed(tables, start, pairs_of) for start in starts]
    chosen = min(completed, key=lambda c: total_cost(tables, c))
    limit = min(max_entries, MOST_ENTRIES)
    for _ in range(ROUNDS):
        gained = False
        for v in unary:
            gained |= _solve(_around(v, neighbours), tables, pairs_of, chosen, limit)
        if not gained:
            break
    return chosen


def hopeful(tables: Tables) -> dict[Name, int]:
    """Return the states that would cost least if all neighbours chose to suit them: where `improved` may start."""
    unary, pairwise = tables
    least = {v: np.asarray(cost).copy() for v, cost in unary.items()}
    for (a, b), table in pairwise.items():
        least[a] += table.min(axis=1)
        least[b] += table.min(axis=0)
    return {v: int(cost.argmin()) for v, cost in least.items()}


def total_cost(tables: Tables, chosen: Mapping[Name, int]) -> Any:
    """Return what a labelling costs."""
    unary, pairwise = tables
    total: Any = sum([cost[chosen[v]].item() for v, cost in unary.items()])
    return total + sum([table[chosen[a], chosen[b]].item() for (a, b), table in pairwise.items()])


def _completed(
    tables: Tables, start: Mapping[Any, int], pairs_of: Mapping[Name, Sequence[tuple[Name, Name]]]
) -> dict[Name, int]:
    """Return states with those of the variables that are no operations; these have only operations as neighbours."""
    unary, pairwise = tables
    chosen: dict[Name, int] = dict(start)
    for v, cost in unary.items():
        if v not in chosen:
            rows = [_row(pairwise[pair], pair, v, chosen) for pair in pairs_of[v]]
            chosen[v] = int(np.argmin(sum(rows, cost)))
    return chosen


def _around(v: Name, neighbours: Mapping[Name, Sequence[Name]]) -> list[Name]:
    around = [v]
    for u in around:
        for w in neighbours[u]:
            if len(around) < MOST_VARIABLES and w not in around:
                around.append(w)
    return around


def _row(table: Any, pair: tuple[Name, Name], free: Name, chosen: Mapping[Name, int]) -> Any:
    """Return a pairwise table as a cost of `free`, with the other one fixed."""
    a, b = pair
    return table[:, chosen[b]] if free == a else table[chosen[a]]


def _solve(
    around: list[Name],
    tables: Tables,
    pairs_of: Mapping[Name, Sequence[tuple[Name, Name]]],
    chosen: dict[Name, int],
    max_entries: int,
) -> bool:
    """Give the variables of a neighbourhood their best states while all others stay; return whether that is cheaper.

    Of a neighbourhood that is too wide the first half is solved.
    """
    unary, pairwise = tables
    while around:
        inside = set(around)
        mine = {v: np.asarray(unary[v]) for v in around}
        both: dict[tuple[Name, Name], Any] = {}
        for v in around:
            for pair in pairs_of[v]:
                if inside.issuperset(pair):
                    both[pair] = pairwise[pair]
                else:
                    mine[v] = mine[v] + _row(pairwise[pair], pair, v, chosen)
        before = total_cost((mine, both), chosen)
        try:
            total, found = eliminate(mine, both, max_entries)
        except TooWide:
            around = around[: len(around) // 2]
            continue
        if total < before - 1e-12 * abs(before):
            chosen.update(found)
            return True
        return False
    return False
