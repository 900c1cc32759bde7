"""Plans of EinGraphs: what the library and the command line return."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from distarray.errors import ShardingError
from distarray.planner.eindecomp.bounds import op_bound
from distarray.planner.eindecomp.candidates import Kernels, Options
from distarray.planner.eindecomp.costs import Repart, Splits, agg_cost, graph_cost, join_cost, n_kernels, repart_cost
from distarray.planner.eindecomp.graph import EinGraph, parse_graph
from distarray.planner.eindecomp.searches import Problem, exact, linearised, tree

__all__ = ["EinPlan", "Search", "plan", "plan_cost"]

Search: TypeAlias = Literal["exact", "linearised", "tree"]


@dataclass(frozen=True)
class EinPlan:
    """How every operation of a graph is cut.

    Parameters
    ----------
    graph
        What was planned.
    splits
        Parts of each label, by operation.
    options
        What the search could choose from.
    search
        What was really used: ``exact``, ``linearised``, ``tree`` or ``fallback``.
    seconds
        That planning took.
    """

    graph: EinGraph
    splits: Mapping[str, Splits]
    options: Options
    search: str
    seconds: float

    @property
    def cost(self) -> int:
        """Elements, in the paper's count: see `plan_cost`."""
        return graph_cost(self.graph, self.splits, self.options.repart)

    @property
    def lower_bound(self) -> float:
        """Elements that the operations must move, each by itself: it ignores that results may lie well for others."""
        return sum(op_bound(op, self.options.p) for op in self.graph.ops.values())

    def to_json(self) -> dict[str, Any]:
        """As plain data: what the command prints."""
        return {
            "cost": self.cost,
            "plan": {v: {x: int(k) for x, k in d.items()} for v, d in self.splits.items()},
            "search": self.search,
            "seconds": self.seconds,
            "objective": "paper",
            "p": self.options.p,
            "kernels": {v: n_kernels(d) for v, d in self.splits.items()},
            "lower_bound": self.lower_bound,
        }

    def explain(self) -> str:
        """The plan as a table: splits, kernels, and what joining, aggregating and repartitioning cost, in elements."""
        graph, repart = self.graph, self.options.repart
        rows: list[tuple[str, ...]] = [("op", "einsum", "split", "kernels", "join", "agg", "repart", "lower bound")]
        totals = [0, 0, 0, 0.0]
        for v, op in graph.ops.items():
            d = self.splits[v]
            moved = 0
            for u, term in zip(op.inputs, op.terms):
                wanted = tuple([d[x] for x in term])
                if u in graph.ops:
                    made = tuple([self.splits[u][x] for x in graph.ops[u].result])
                    moved += repart_cost(graph.ops[u].shape, made, wanted, repart)
                elif graph.inputs[u].layout is not None:
                    moved += repart_cost(graph.inputs[u].shape, graph.inputs[u].layout or (), wanted, repart)
            facts = (join_cost(op, d), agg_cost(op, d), moved, op_bound(op, self.options.p))
            totals = [a + b for a, b in zip(totals, facts)]
            split = " ".join(f"{x}={k}" for x, k in d.items() if k > 1) or "-"
            text = ",".join("".join(t) for t in op.terms) + "->" + "".join(op.result)
            rows.append((v, text, split, str(n_kernels(d)), *[f"{f:.0f}" for f in facts]))
        rows.append(("total", "", "", "", *[f"{t:.0f}" for t in totals]))
        widths = [max(len(row[c]) for row in rows) for c in range(len(rows[0]))]
        table = [
            "  ".join(cell.ljust(w) if c < 3 else cell.rjust(w) for c, (cell, w) in enumerate(zip(row, widths)))
            for row in rows
        ]
        head = (
            f"EinGraph: {len(graph.ops)} ops, {len(graph.inputs)} inputs, p = {self.options.p}     plan: {self.search}"
            f" ({self.seconds * 1e3:.1f} ms)     objective: paper"
        )
        return "\n".join([head, *[line.rstrip() for line in table], f"cost {self.cost} elements"])


def _graph(given: EinGraph | Mapping[str, Any]) -> EinGraph:
    return given if isinstance(given, EinGraph) else parse_graph(given)


def plan(
    graph: EinGraph | Mapping[str, Any],
    *,
    p: int | None = None,
    splits: Literal["pow2", "any"] | None = None,
    repart: Repart = "paper",
    search: Search = "exact",
    kernels: Kernels = "equal",
) -> EinPlan:
    """Cut every operation of a graph so that the elements moved are fewest, as the paper counts them.

    Parameters
    ----------
    graph
        A graph, or the JSON of a graph file.
    p
        Kernels per operation; what the file says if not given.
    splits
        ``pow2`` or ``any``; what the file says if not given, else ``pow2``.
    repart
        Reading of the repartition cost.
    search
        ``exact``: variable elimination; ``tree``: the paper's DP for trees; ``linearised``: its heuristic.
    kernels
        ``equal``: `p` for every operation; ``upto``: any divisor of it for those that are no contractions.

    Raises
    ------
    ShardingError
        If graph or options cannot be, or the tree search is asked of a graph that is none.

    References
    ----------
    EinDecomp (arXiv 2410.02682), sections 6 to 8.
    """
    found = _graph(graph)
    for name, value, allowed in (("search", search, Search), ("repart", repart, Repart), ("kernels", kernels, Kernels)):
        if value not in get_args(allowed):
            raise ShardingError(f"{name} {value!r} is unknown; use one of {', '.join(get_args(allowed))}")
    size = p if p is not None else found.p
    if size is None:
        raise ShardingError("p is not given: neither as an option nor in the graph")
    kind: Any = splits or found.parts or "pow2"
    if kind not in ("pow2", "any"):
        raise ShardingError(f"splits {kind!r} is unknown; use pow2 or any")
    options = Options(size, kind, kernels, repart)
    started = time.perf_counter()
    problem = Problem(found, options)
    if search == "exact":
        chosen, used = exact(problem)
    elif search == "tree":
        chosen, used = tree(problem), "tree"
    else:
        chosen, used = linearised(problem), "linearised"
    return EinPlan(found, chosen, options, used, time.perf_counter() - started)


def plan_cost(graph: EinGraph | Mapping[str, Any], splits: Mapping[str, Splits], *, repart: Repart = "paper") -> int:
    """Elements that a labelled graph moves, as the paper counts them, with any number of kernels.

    Parameters
    ----------
    splits
        Parts of each label by operation; labels that are left out have one part.

    Raises
    ------
    ShardingError
        If an operation has no splits, or parts do not divide an extent.
    """
    found = _graph(graph)
    full: dict[str, Splits] = {}
    for v, op in found.ops.items():
        if v not in splits:
            raise ShardingError(f"op {v!r} has no splits")
        d = {x: int(splits[v].get(x, 1)) for x in op.labels}
        for x, k in d.items():
            if k < 1 or op.extents[x] % k:
                raise ShardingError(f"op {v!r}: {k} parts do not divide the extent {op.extents[x]} of label {x!r}")
        full[v] = d
    return graph_cost(found, full, repart)
