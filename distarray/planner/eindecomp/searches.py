"""Searches over labellings of an EinGraph: tree DP, linearisation, exact elimination, and what wide graphs get."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from distarray.errors import ShardingError
from distarray.planner.eindecomp.candidates import Options, States, states_of
from distarray.planner.eindecomp.costs import Splits, graph_cost, repart_table
from distarray.planner.eindecomp.elimination import MAX_ENTRIES, TooWide, eliminate
from distarray.planner.eindecomp.graph import EinGraph

__all__ = ["Problem", "exact", "linearised", "tree"]

#: Of plans that cost the same, the one with fewer repartitioned edges: costs count in units of this many edges.
TIE = 1024
#: What breaking an equality costs: more than any plan.
NEVER = 1 << 57


class Problem:
    """States and tables of a graph, made once and shared by the searches."""

    def __init__(self, graph: EinGraph, options: Options) -> None:
        self.graph = graph
        self.options = options
        known: dict[Any, States] = {}
        self.states: dict[str, States] = {}
        for name, op in graph.ops.items():
            # repeated layers have equal operations
            outside = tuple([u in graph.ops or any(u in g for g in graph.equal) for u in op.inputs])
            layouts = tuple([graph.inputs[u].layout if u in graph.inputs else None for u in op.inputs])
            key = (op.terms, op.result, tuple(op.extents.items()), outside, layouts)
            if key not in known:
                known[key] = states_of(graph, name, options)
            self.states[name] = known[key]
        self._tables: dict[Any, Any] = {}

    def edge(self, u: str, v: str, operand: int) -> Any:
        """Costs (states of `u`, states of `v`) of one edge; ties count its being repartitioned."""
        a, b = self.states[u], self.states[v]
        key = (id(a), id(b), operand)
        found = self._tables.get(key)
        if found is None:
            cost = repart_table(self.graph.ops[u].shape, a.result, b.wanted[operand], self.options.repart)
            found = self._tables[key] = cost * TIE + (cost > 0)
        return found

    def unary(self, v: str) -> Any:
        """Cost of each state of an operation."""
        return self.states[v].cost * TIE

    def pairwise(self) -> dict[tuple[str, str], Any]:
        """Tables of all pairs of operations that are joined by edges or equalities."""
        found: dict[tuple[str, str], Any] = {}
        for u, v, operand in self.graph.edges:
            table = self.edge(u, v, operand)
            found[u, v] = found[u, v] + table if (u, v) in found else table
        return found

    def ties(self) -> tuple[dict[str, Any], dict[tuple[str, str], Any]]:
        """Equalities as tables: variables for inputs that take part in them, and pairwise tables."""
        unary: dict[str, Any] = {}
        pairwise: dict[tuple[str, str], Any] = {}
        graph = self.graph
        for group in graph.equal:
            cuts: list[Any] = []
            for name in group:
                if name in graph.ops:
                    cuts.append(self.states[name].result)
                else:
                    cuts += [
                        self.states[v].wanted[i]
                        for v, op in graph.ops.items()
                        for i, u in enumerate(op.inputs)
                        if u == name
                    ]
            layouts = np.unique(np.concatenate(cuts), axis=0)
            one = f"= {' '.join(group)}"
            unary[one] = np.zeros(len(layouts), np.int64)
            for name in group:
                if name in graph.ops:
                    self._tie(pairwise, one, name, layouts, self.states[name].result)
                else:
                    for v, op in graph.ops.items():
                        for i, u in enumerate(op.inputs):
                            if u == name:
                                self._tie(pairwise, one, v, layouts, self.states[v].wanted[i])
        return unary, pairwise

    def _tie(self, pairwise: dict[tuple[str, str], Any], one: str, v: str, layouts: Any, cuts: Any) -> None:
        same = (layouts[:, None, :] == cuts[None, :, :]).all(axis=2)
        table = np.where(same, 0, NEVER)
        pairwise[one, v] = pairwise[one, v] + table if (one, v) in pairwise else table

    def plan(self, chosen: Mapping[str, int]) -> dict[str, Splits]:
        """Parts by operation and label."""
        return {v: self.states[v].splits(chosen[v]) for v in self.graph.ops}


def exact(problem: Problem, max_entries: int = MAX_ENTRIES) -> tuple[dict[str, Splits], str]:
    """The cheapest labelling, by elimination; for graphs that are too wide a good one that no window improves.

    Returns
    -------
    plan, search
        The search is ``exact`` or ``fallback``.
    """
    unary = {v: problem.unary(v) for v in problem.graph.ops}
    pairwise = problem.pairwise()
    more, tables = problem.ties()
    unary.update(more)
    pairwise.update(tables)
    try:
        total, chosen = eliminate(unary, pairwise, max_entries)
    except TooWide:
        return problem.plan(_improved(problem, unary, pairwise, max_entries)), "fallback"
    if total >= NEVER:
        raise ShardingError("no labelling satisfies the equalities")
    return problem.plan(chosen), "exact"


# ------------------------------------------------------------------------------------------------------ tree DP


def tree(problem: Problem) -> dict[str, Splits]:
    """Dynamic programming from inputs to outputs: valid where every result is consumed at most once.

    Raises
    ------
    ShardingError
        If a result is consumed twice.
    """
    graph = problem.graph
    if not graph.is_tree:
        raise ShardingError("the graph is no tree: a result is consumed more than once; use the exact search")
    best: dict[str, Any] = {}
    back: dict[tuple[str, str], Any] = {}
    for v, op in graph.ops.items():
        total = problem.unary(v)
        for i, u in enumerate(op.inputs):
            if u in graph.ops:
                through = best[u][:, None] + problem.edge(u, v, i)
                back[u, v] = through.argmin(axis=0)
                total = total + through.min(axis=0)
        best[v] = total
    chosen: dict[str, int] = {v: int(best[v].argmin()) for v in graph.outputs}
    for v in reversed(list(graph.ops)):
        for u in graph.ops[v].inputs:
            if u in graph.ops:
                chosen[u] = int(back[u, v][chosen[v]])
    return problem.plan(chosen)


# --------------------------------------------------------------------------------------------------- linearised


def linearised(problem: Problem, *, aware: bool = False) -> dict[str, Splits]:
    """The paper's heuristic: the longest path of operations that have no label yet, by DP, until all have one.

    Parameters
    ----------
    aware
        Whether edges to operations that have their labels already are charged too.
    """
    return problem.plan(_linearised(problem, aware))


def _linearised(problem: Problem, aware: bool) -> dict[str, int]:
    graph = problem.graph
    chosen: dict[str, int] = {}
    while len(chosen) < len(graph.ops):
        path = _longest_path(graph, chosen)
        best: Any = None
        back = []
        for k, v in enumerate(path):
            cost = problem.unary(v)
            if aware:
                cost = cost + _known_edges(problem, v, chosen)
            if best is None:
                best = cost
                continue
            # an operation may read the one before it twice: the path has one edge of them
            u = path[k - 1]
            through = best[:, None] + problem.edge(u, v, graph.ops[v].inputs.index(u))
            back.append(through.argmin(axis=0))
            best = through.min(axis=0) + cost
        state = int(best.argmin())
        for v, step in zip(reversed(path), [*reversed(back), None], strict=True):
            chosen[v] = state
            if step is not None:
                state = int(step[state])
    return chosen


def _longest_path(graph: EinGraph, done: Mapping[str, int]) -> list[str]:
    length: dict[str, int] = {}
    before: dict[str, str | None] = {}
    for v, op in graph.ops.items():
        if v in done:
            continue
        found = max([u for u in op.inputs if u in length], key=lambda u: length[u], default=None)
        length[v] = 1 if found is None else length[found] + 1
        before[v] = found
    at: str | None = max(length, key=lambda v: length[v])
    path = []
    while at is not None:
        path.append(at)
        at = before[at]
    return path[::-1]


def _known_edges(problem: Problem, v: str, chosen: Mapping[str, int]) -> Any:
    total: Any = 0
    for a, b, operand in problem.graph.edges:
        if b == v and a in chosen:
            total = total + problem.edge(a, b, operand)[chosen[a]]
        elif a == v and b in chosen:
            total = total + problem.edge(a, b, operand)[:, chosen[b]]
    return total


# ------------------------------------------------------------------------------------------------------ fallback

#: Operations of a window, and rounds over all windows.
WINDOW = 12
ROUNDS = 8


def _improved(problem: Problem, unary: Any, pairwise: Any, max_entries: int) -> dict[str, int]:
    """The better linearisation, improved by solving windows exactly with the rest fixed, until none gains."""
    starts = [_linearised(problem, aware) for aware in (False, True)]
    costs = [graph_cost(problem.graph, problem.plan(c), problem.options.repart) for c in starts]
    chosen = starts[int(np.argmin(costs))]
    for name, cost in unary.items():
        if name not in chosen:  # equalities
            total = sum(
                [_row(t, pair, name, chosen) for pair, t in pairwise.items() if name in pair], np.zeros(len(cost))
            )
            chosen[name] = int(np.argmin(total))
    neighbours: dict[str, list[str]] = {v: [] for v in unary}
    for a, b in pairwise:
        neighbours[a].append(b)
        neighbours[b].append(a)
    for _ in range(ROUNDS):
        gained = False
        for v in unary:
            gained |= _solve_window(_around(v, neighbours), unary, pairwise, chosen, max_entries)
        if not gained:
            break
    return chosen


def _around(v: str, neighbours: Mapping[str, Sequence[str]]) -> list[str]:
    window = [v]
    for u in window:
        for w in neighbours[u]:
            if len(window) < WINDOW and w not in window:
                window.append(w)
    return window


def _row(table: Any, pair: tuple[str, str], free: str, chosen: Mapping[str, int]) -> Any:
    """A pairwise table as a cost of `free`, with the other one fixed."""
    a, b = pair
    return table[:, chosen[b]] if free == a else table[chosen[a]]


def _solve_window(window: list[str], unary: Any, pairwise: Any, chosen: dict[str, int], max_entries: int) -> bool:
    while window:
        inside = set(window)
        mine = {v: np.asarray(unary[v]) for v in window}
        tables = {}
        for pair, table in pairwise.items():
            held = [v for v in pair if v in inside]
            if len(held) == 2:
                tables[pair] = table
            elif held:
                mine[held[0]] = mine[held[0]] + _row(table, pair, held[0], chosen)
        before = sum(int(mine[v][chosen[v]]) for v in window) + sum(
            int(t[chosen[a], chosen[b]]) for (a, b), t in tables.items()
        )
        try:
            total, found = eliminate(mine, tables, max_entries)
        except TooWide:
            window = window[: len(window) // 2]
            continue
        if total < before:
            chosen.update(found)
            return True
        return False
    return False
