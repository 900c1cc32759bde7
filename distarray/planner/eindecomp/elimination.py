"""Min-sum variable elimination: the cheapest choice of one state per variable under pairwise tables.

Exact for every graph, exponential only in its treewidth; a LLaMA block has width 2.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
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
    """The graph needs a table that is too large, or too many large ones."""


def add(tables: dict[tuple[Name, Name], Any], pair: tuple[Name, Name], table: Any) -> None:
    """Add what a pair of variables costs to what it costs already."""
    tables[pair] = tables[pair] + table if pair in tables else table


def eliminate(
    unary: Mapping[Name, Any], pairwise: Mapping[tuple[Name, Name], Any], max_entries: int = MAX_ENTRIES
) -> tuple[Any, dict[Name, int]]:
    """Return the least total and the state of each variable; of equal ones the first.

    Variables go in the order of the tables that their elimination makes, the smallest first.

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
    sizes = {v: len(cost) for v, cost in unary.items()}
    factors: dict[Name, list[_Factor]] = {v: [((v,), np.asarray(cost))] for v, cost in unary.items()}
    for pair, table in pairwise.items():
        _add(factors, (pair, np.asarray(table)))
    trail: list[tuple[Name, tuple[Name, ...], Any]] = []
    total: Any = 0
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
    chosen: dict[Name, int] = {}
    for v, scope, best in reversed(trail):
        chosen[v] = int(best[tuple([chosen[w] for w in scope])])
    return total, chosen


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
