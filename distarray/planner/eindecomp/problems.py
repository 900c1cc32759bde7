"""What the searches work on: the states of every operation, what each costs, and what each pair of neighbours costs.

There is one for each objective: `PaperProblem` here, in elements, and `TimeProblem` (`seconds`), in seconds.

Searches over labellings of an EinGraph are exact elimination, the paper's tree DP, and its linearisation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from distarray.errors import ShardingError
from distarray.planner.eindecomp.candidates import Options, States, exact_rows
from distarray.planner.eindecomp.eingraph import EinGraph
from distarray.planner.eindecomp.elimination import MAX_ENTRIES, Name, Tables, add, solved
from distarray.planner.eindecomp.paper_costs import Splits, op_cost, repart_table


@dataclass(frozen=True, eq=False)
class Tie:
    """A Tie is a group of arrays that must be cut alike, as one more variable: their cut.

    Parameters
    ----------
    group
        Their names.
    cuts
        Among which it is chosen, a row each.
    bound
        Operations that must fit it: name, and the cut of the array by state.
    """

    group: tuple[str, ...]
    cuts: Any
    bound: tuple[tuple[str, Any], ...]

    @property
    def name(self) -> Name:
        """Return the name of the variable."""
        return ("cut of", self.group)


class SearchSpace(ABC):
    """A SearchSpace holds the states and cost tables of a graph, made once and shared by the searches."""

    graph: EinGraph
    states: dict[str, States]
    #: What breaking an equality costs: more than any plan.
    never: float
    #: By the states of both ends, and the number of the operand, what an edge costs.
    found_edges: dict[tuple[int, int, int], Any]

    @abstractmethod
    def alone(self, v: str) -> Any:
        """Return the cost of each state of an operation, without its edges to other operations."""

    @abstractmethod
    def edge_table(self, u: str, v: str, operand: int) -> Any:
        """Return the costs (states of `u`, states of `v`) of one edge between operations."""

    def edge(self, u: str, v: str, operand: int) -> Any:
        """Return the costs of one edge, the same table for those between operations that have the same states."""
        key = id(self.states[u]), id(self.states[v]), operand
        if key not in self.found_edges:
            self.found_edges[key] = self.edge_table(u, v, operand)
        return self.found_edges[key]

    @abstractmethod
    def tables(self) -> Tables:
        """Return all variables and all pairs: what the exact search solves."""

    @abstractmethod
    def _tie_input(self, u: str, bound: list[tuple[str, Any]], loose: list[Any]) -> None:
        """Add to what a tie is bound to, or may be, what an input that lies as the plan likes says of it."""

    @cached_property
    def ties(self) -> list[Tie]:
        """Return the groups of arrays that must be cut alike, but those of inputs that nothing reads or prescribes."""
        made = []
        for group in self.graph.equal:
            fixed: list[Any] = []
            bound: list[tuple[str, Any]] = []
            loose: list[Any] = []
            for name in group:
                if name in self.graph.ops:
                    bound.append((name, self.states[name].result))
                elif self.graph.inputs[name].parts is not None:
                    fixed.append(self.graph.inputs[name].parts)
                elif self.graph.reads[name]:
                    self._tie_input(name, bound, loose)
            if fixed or bound or loose:
                made.append(tie(group, fixed, bound, loose))
        return made

    def plan(self, chosen: Mapping[Any, int]) -> dict[str, Splits]:
        """Return the parts by operation and label."""
        return {v: self.states[v].splits(chosen[v]) for v in self.graph.ops}

    def edges(self) -> dict[tuple[Name, Name], Any]:
        """Return tables of all pairs of operations that have edges."""
        found: dict[tuple[Name, Name], Any] = {}
        for u, v, operand in self.graph.edges:
            add(found, (u, v), self.edge(u, v, operand))
        return found

    def add_ties(self, tables: Tables) -> None:
        """Add the variables of ties, and that operations must fit them."""
        unary, pairwise = tables
        for tie in self.ties:
            unary[tie.name] = np.zeros(len(tie.cuts), np.int64)
            for v, cuts in tie.bound:
                same = (tie.cuts[:, None, :] == cuts[None, :, :]).all(axis=2)
                add(pairwise, (tie.name, v), np.where(same, 0, self.never))


def tie(group: Sequence[str], fixed: Sequence[Any], bound: Sequence[tuple[str, Any]], loose: Sequence[Any]) -> Tie:
    """Return the variable of arrays that must be cut alike.

    Parameters
    ----------
    fixed
        Cuts in which some of them lie.
    bound
        Operations that must fit it: name, and cuts by state.
    loose
        Other cuts that it may have.

    Raises
    ------
    ShardingError
        If two of them lie differently.
    """
    if len(set(fixed)) > 1:
        raise ShardingError(f"equal: {', '.join(group)} lie in different layouts: {', '.join(map(str, fixed))}")
    cuts = [np.array(fixed[:1])] if fixed else [*[cuts for _, cuts in bound], *loose]
    return Tie(tuple(group), np.unique(np.concatenate(cuts), axis=0), tuple(bound))


class PaperProblem(SearchSpace):
    """A PaperProblem has the paper's objective: elements moved and joined, as exact integers."""

    never = 1 << 57
    #: Of plans that cost the same, the one with fewer repartitioned edges: costs count in units of this many edges.
    TIE = 1024

    def __init__(self, graph: EinGraph, options: Options) -> None:
        self.graph = graph
        self.options = options
        known: dict[Any, States] = {}
        self.states = {}
        for name, op in graph.ops.items():
            # repeated layers have equal operations
            outside = tuple([u in graph.ops or u in graph.tied for u in op.inputs])
            layouts = tuple([graph.inputs[u].layout if u in graph.inputs else None for u in op.inputs])
            key = (op.structure, outside, layouts)
            if key not in known:
                known[key] = paper_states(graph, name, options)
            self.states[name] = known[key]
        self.found_edges = {}

    def alone(self, v: str) -> Any:
        return self.states[v].cost * self.TIE

    def edge_table(self, u: str, v: str, operand: int) -> Any:
        made, wanted = self.states[u].result, self.states[v].wanted[operand]
        cost = repart_table(self.graph.ops[u].shape, made, wanted, self.options.repart)
        return cost * self.TIE + (cost > 0)

    def tables(self) -> Tables:
        tables: Tables = ({v: self.alone(v) for v in self.graph.ops}, self.edges())
        self.add_ties(tables)
        return tables

    def _tie_input(self, u: str, bound: list[tuple[str, Any]], loose: list[Any]) -> None:
        # it lies in the cut in which every operation reads it
        bound += [(v, self.states[v].wanted[i]) for v, i in self.graph.reads[u]]


def paper_states(graph: EinGraph, name: str, options: Options) -> States:
    """Return the states of an operation, in elements: joining, aggregating, and repartitioning inputs in fixed
    layouts.
    """
    op = graph.ops[name]
    rows = exact_rows(op, options)
    cost = op_cost(op, dict(zip(op.labels, rows.T))) + np.zeros(len(rows), np.int64)  # of no labels: one number
    # From outside only the cut of the result and of computed inputs is seen.
    seen = [*op.result]
    for u, term in zip(op.inputs, op.terms):
        if u in graph.ops or u in graph.tied:
            seen += term
        layout = graph.inputs[u].layout if u in graph.inputs else None
        if layout is not None:
            wanted = rows[:, op.columns(term)]
            cost = cost + repart_table(graph.shape(u), [layout], wanted, options.repart)[0]
    return States.of(op, rows, cost, seen)


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
