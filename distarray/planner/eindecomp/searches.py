"""Searches over labellings of an EinGraph: exact elimination, the paper's tree DP, and its linearisation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from distarray.errors import ShardingError
from distarray.planner.eindecomp.eingraph import EinGraph
from distarray.planner.eindecomp.elimination import MAX_ENTRIES
from distarray.planner.eindecomp.neighbourhoods import solved
from distarray.planner.eindecomp.paper_costs import Splits
from distarray.planner.eindecomp.problems import SearchSpace


def exact(problem: SearchSpace, max_entries: int = MAX_ENTRIES) -> tuple[dict[str, Splits], str]:
    """Return the cheapest labelling, by elimination; of graphs that are too wide one that no neighbourhood improves.

    Returns
    -------
    plan, search
        The search is ``exact`` or ``fallback``. What ``fallback`` finds never costs more than what `linearised` does.

    Raises
    ------
    ShardingError
        If equalities cannot be satisfied.
    """
    total, chosen, how = solved(
        problem.tables(), lambda _: [_linearised(problem, aware) for aware in (False, True)], max_entries
    )
    if total >= problem.never:
        raise ShardingError("no labelling satisfies the equalities")
    return problem.plan(chosen), how


# ------------------------------------------------------------------------------------------------------ tree DP


def tree(problem: SearchSpace) -> dict[str, Splits]:
    """Return the plan of dynamic programming from inputs to outputs: valid where every result is consumed at most once.

    Raises
    ------
    ShardingError
        If a result is consumed twice, or arrays must be cut alike.
    """
    graph = problem.graph
    if not graph.is_tree:
        raise ShardingError("the graph is no tree: a result is consumed more than once; use the exact search")
    if graph.equal:
        raise ShardingError("the graph is no tree: arrays must be cut alike; use the exact search")
    return exact(problem)[0]  # the elimination of a tree, a leaf at a time, is that programming


# --------------------------------------------------------------------------------------------------- linearised


def linearised(problem: SearchSpace) -> dict[str, Splits]:
    """Return the paper's heuristic: the longest path of operations that have no label yet, by DP, until all have one.

    Arrays that must be cut alike get the cut that is cheapest for the operations that make or read them, before.
    """
    return problem.plan(_linearised(problem, False))


def _linearised(problem: SearchSpace, aware: bool) -> dict[str, int]:
    """Return the states that the heuristic chooses; `aware`: edges to operations that have their labels already are
    charged too.
    """
    graph = problem.graph
    alone = _tied_down(problem)
    chosen: dict[str, int] = {}
    while len(chosen) < len(graph.ops):
        path = _longest_path(graph, chosen)
        best: Any = None
        back = []
        for k, v in enumerate(path):
            cost = alone[v]
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


def _tied_down(problem: SearchSpace) -> dict[str, Any]:
    """Return the costs of the operations, of which those that must fit a tie fit one cut."""
    alone = {v: problem.alone(v) for v in problem.graph.ops}
    for tie in problem.ties:
        fits = [(v, (tie.cuts[:, None, :] == cuts[None, :, :]).all(axis=2)) for v, cuts in tie.bound]
        totals = sum(
            [np.where(fit, alone[v][None, :], problem.never).min(axis=1) for v, fit in fits], np.zeros(len(tie.cuts))
        )
        cut = int(np.argmin(totals))
        if totals[cut] >= problem.never:
            raise ShardingError(f"no labelling satisfies the equality of {', '.join(tie.group)}")
        for v, fit in fits:
            alone[v] = np.where(fit[cut], alone[v], problem.never)
    return alone


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


def _known_edges(problem: SearchSpace, v: str, chosen: Mapping[str, int]) -> Any:
    total: Any = 0
    for operand, u in enumerate(problem.graph.ops[v].inputs):
        if u in chosen:
            total = total + problem.edge(u, v, operand)[chosen[u]]
    for reader, operand in problem.graph.reads[v]:
        if reader in chosen:
            total = total + problem.edge(v, reader, operand)[:, chosen[reader]]
    return total
