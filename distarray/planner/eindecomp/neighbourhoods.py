"""The search of both planners: elimination, and for graphs too wide for it a labelling that no neighbourhood improves.

A neighbourhood is a connected set of variables, small enough to be solved exactly while the rest stays as it is: large
neighbourhood search.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from distarray.planner.eindecomp.elimination import Name, Tables, TooWide, eliminate

#: Variables of a neighbourhood, and rounds over all of them.
MOST_VARIABLES = 12
ROUNDS = 8
#: Entries of the largest table of a neighbourhood: there are many.
MAX_ENTRIES = 200_000


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
    limit = min(max_entries, MAX_ENTRIES)
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
