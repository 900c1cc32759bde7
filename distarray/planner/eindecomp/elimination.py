"""Min-sum variable elimination: the cheapest choice of one state per variable under pairwise tables.

Exact for every graph, exponential only in its treewidth; a LLaMA block has width 2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

__all__ = ["TooWide", "eliminate"]

#: Entries of the largest table that is made.
MAX_ENTRIES = 60_000_000


class TooWide(Exception):
    """The graph needs a table that is too large."""


def eliminate(
    unary: Mapping[str, Any], pairwise: Mapping[tuple[str, str], Any], max_entries: int = MAX_ENTRIES
) -> tuple[int, dict[str, int]]:
    """The least total and the state of each variable; of equal ones the first.

    Parameters
    ----------
    unary
        Cost of each state, by variable.
    pairwise
        Costs (states of the first, states of the second), by pair.

    Raises
    ------
    TooWide
        If a table would have more than `max_entries`.
    """
    sizes = {v: len(cost) for v, cost in unary.items()}
    factors: list[tuple[tuple[str, ...], Any]] = [((v,), np.asarray(cost)) for v, cost in unary.items()]
    factors += [(pair, np.asarray(table)) for pair, table in pairwise.items()]
    neighbours: dict[str, set[str]] = {v: set() for v in unary}
    for a, b in pairwise:
        neighbours[a].add(b)
        neighbours[b].add(a)
    trail: list[tuple[str, tuple[str, ...], Any]] = []
    total = 0
    left = list(unary)
    while left:
        v = min(left, key=lambda u: (prod([sizes[w] for w in neighbours[u]]) * sizes[u], left.index(u)))
        left.remove(v)
        scope = tuple(sorted(neighbours.pop(v), key=left.index))
        if sizes[v] * prod([sizes[w] for w in scope]) > max_entries:
            raise TooWide
        mine = [f for f in factors if v in f[0]]
        factors = [f for f in factors if v not in f[0]]
        table = _joined((v, *scope), mine, sizes)
        best = table.argmin(axis=0)
        least = np.take_along_axis(table, best[None], axis=0)[0]
        trail.append((v, scope, best))
        if scope:
            factors.append((scope, least))
            for a in scope:
                neighbours[a].discard(v)
                neighbours[a].update(b for b in scope if b != a)
        else:
            total += int(least)
    chosen: dict[str, int] = {}
    for v, scope, best in reversed(trail):
        chosen[v] = int(best[tuple([chosen[w] for w in scope])])
    return total, chosen


def _joined(scope: Sequence[str], factors: Sequence[tuple[tuple[str, ...], Any]], sizes: Mapping[str, int]) -> Any:
    """The sum of tables, with one axis for each variable of `scope`."""
    at = {v: i for i, v in enumerate(scope)}
    total: Any = np.zeros([1] * len(scope), np.int64)
    small = sorted(factors, key=lambda f: f[1].size)
    for names, table in small:
        order = sorted(range(len(names)), key=lambda k: at[names[k]])
        shape = [1] * len(scope)
        for k in order:
            shape[at[names[k]]] = sizes[names[k]]
        total = total + table.transpose(order).reshape(shape)
    return np.broadcast_to(total, [sizes[v] for v in scope])
