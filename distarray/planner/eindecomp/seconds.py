"""The objective ``time``, phase 1: predicted seconds as a function of splits.

Every operation takes the time of its kernels, of what comes to its workers, and of its tasks. What comes is counted as
under the best placement (`moved`), so that every term belongs to one operation or to one edge. Inputs in no layout get
one: an input with one reader lies as this wants it; others are variables of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from distarray.planner.eindecomp.axis_cuts import n_parts
from distarray.planner.eindecomp.candidates import Options, Rows, States, kernel_counts, uneven_rows
from distarray.planner.eindecomp.eingraph import EinGraph, EinOp, Input, Label
from distarray.planner.eindecomp.elimination import Name, Tables, add
from distarray.planner.eindecomp.kernel_room import KernelRoom
from distarray.planner.eindecomp.machine import Machine
from distarray.planner.eindecomp.moved import edge_seconds, free_input_seconds, op_seconds, placed_input_seconds
from distarray.planner.eindecomp.problems import SearchSpace

#: Cuts of an array that operations may follow.
FOLLOWED = 4


def layout_of_input(u: str) -> Name:
    """Return the variable of an input in no layout that is read more than once."""
    return ("layout of", u)


@dataclass
class TimeProblem(SearchSpace):
    """A TimeProblem has predicted seconds as its objective, for the workers of a machine.

    Parameters
    ----------
    graph, options, machine
        What is planned, what may be chosen, and for whom.
    room
        Bytes that the kernels of each operation may use, if there is a limit.
    """

    graph: EinGraph
    options: Options
    machine: Machine
    room: KernelRoom | None = None
    states: dict[str, States] = field(init=False)
    never: float = field(init=False, default=1e18)

    def __post_init__(self) -> None:
        self.followed = followed_vectors(self.graph)
        self._counts: dict[object, tuple[int, ...]] = {}
        #: Numbers of kernels that contractions may have.
        self.counts = {v: self._counts_of(op) for v, op in self.graph.ops.items() if op.is_contraction}
        self._everywhere = sorted({self.options.p, *[n for found in self._counts.values() for n in found]})
        self._tables: dict[Any, Any] = {}
        known: dict[Any, States] = {}
        self.states = {}
        for v, op in self.graph.ops.items():
            key = (op.structure, self._surroundings(v), tuple(self.followed[v]), self.room and self.room.of(v))
            if key not in known:
                rows = self.rows(v)
                known[key] = self._states(v, rows if self.room is None else self.room.fitting(v, rows))
            self.states[v] = known[key]

    # ------------------------------------------------------------------------------------------------- operations

    def _counts_of(self, op: EinOp) -> tuple[int, ...]:
        if op.structure not in self._counts:
            self._counts[op.structure] = kernel_counts(op, self.options)
        return self._counts[op.structure]

    def rows(self, v: str) -> Rows:
        """Return all vectors of an operation, whatever they need."""
        counts = self.counts.get(v, self._everywhere)
        return uneven_rows(self.graph.ops[v], self.options, counts, self.followed[v])

    def _is_free(self, u: str) -> bool:
        """Return whether it is an input that may lie as the plan likes."""
        return u in self.graph.inputs and self.graph.inputs[u].layout is None

    def _is_everywhere(self, u: str) -> bool:
        """Return whether it is an input that costs nothing to read."""
        return u in self.graph.inputs and self.graph.inputs[u].everywhere

    def _is_shared(self, u: str) -> bool:
        """Return whether it is such an input, and its layout is a variable."""
        is_read_again = len(self.graph.reads[u]) > 1 or u in self.graph.tied
        return self._is_free(u) and not self._is_everywhere(u) and is_read_again

    def _surroundings(self, v: str) -> tuple[object, ...]:
        """Return what states depend on beside the operation."""
        graph = self.graph
        arrays: list[object] = [bool(graph.reads[v]), v in graph.tied]
        for u in graph.ops[v].inputs:
            array = graph.array(u)
            lies = (array.layout, array.workers, array.everywhere) if isinstance(array, Input) else None
            arrays.append((self._is_shared(u), lies, array.itemsize))
        return tuple(arrays)

    def _states(self, v: str, rows: Any) -> States:
        op, graph = self.graph.ops[v], self.graph
        kernels = rows.prod(axis=1)
        cost = op_seconds(op, rows, self.machine)
        seen: list[Label] = [*op.result] if graph.reads[v] or v in graph.tied else []
        has_edges = False
        for u, term in zip(op.inputs, op.terms):
            array, wanted = graph.array(u), rows[:, op.columns(term)]
            if self._is_everywhere(u):
                continue
            if u in graph.ops or self._is_shared(u):
                seen += term
                has_edges = True
            elif self._is_free(u):
                cost = cost + free_input_seconds(array.shape, array.itemsize, wanted, kernels, self.machine)
            else:
                cost = cost + self._input_seconds(graph.inputs[u], wanted, kernels)
        return States.of(op, rows, cost, seen, count_matters=has_edges)

    def _input_seconds(self, array: Input, wanted: Rows, kernels: Any) -> Any:
        """Return the seconds of reading an input in a fixed layout."""
        if array.workers is not None:
            return placed_input_seconds(array, wanted, kernels, self.machine)
        layout = [array.layout]
        return edge_seconds(array.shape, array.itemsize, layout, wanted, kernels, self.machine)[0]

    def alone(self, v: str) -> Any:
        """Return the seconds of each state, with shared inputs as it wants them."""
        states, op = self.states[v], self.graph.ops[v]
        total = states.cost
        for operand, u in enumerate(op.inputs):
            if self._is_shared(u):
                array, wanted = self.graph.inputs[u], states.wanted[operand]
                total = total + free_input_seconds(array.shape, array.itemsize, wanted, states.kernels, self.machine)
        return total

    # ------------------------------------------------------------------------------------------------------ edges

    def edge(self, u: str, v: str, operand: int) -> Any:
        a, b, array = self.states[u], self.states[v], self.graph.ops[u]
        key = (id(a), id(b), operand)
        if key not in self._tables:
            self._tables[key] = edge_seconds(
                array.shape, array.itemsize, a.result, b.wanted[operand], b.kernels, self.machine
            )
        return self._tables[key]

    def input_edge(self, u: str, cuts: Any, v: str, operand: int) -> Any:
        """Return the seconds (cuts of the input, states of its reader)."""
        array, states = self.graph.inputs[u], self.states[v]
        return edge_seconds(array.shape, array.itemsize, cuts, states.wanted[operand], states.kernels, self.machine)

    def tables(self) -> Tables:
        pairwise = self.edges()
        unary: dict[Name, Any] = {v: states.cost for v, states in self.states.items()}
        self.add_ties((unary, pairwise))
        for u in self.graph.inputs:
            if self._is_shared(u) and u not in self.graph.tied:
                cuts = self.wanted_cuts(u)
                unary[layout_of_input(u)] = np.zeros(len(cuts))
                self._add_reads(pairwise, layout_of_input(u), u, cuts)
        for one in self.ties:
            for u in one.group:
                if self._is_free(u):
                    self._add_reads(pairwise, one.name, u, one.cuts)
        return unary, pairwise

    def _add_reads(self, pairwise: dict[tuple[Name, Name], Any], name: Name, u: str, cuts: Any) -> None:
        for v, operand in self.graph.reads[u]:
            add(pairwise, (name, v), self.input_edge(u, cuts, v, operand))

    def wanted_cuts(self, u: str) -> Any:
        """Return all cuts in which an input is read by some state."""
        rows = [self.states[v].wanted[operand] for v, operand in self.graph.reads[u]]
        return np.unique(np.concatenate(rows), axis=0)

    def _tie_input(self, u: str, bound: list[tuple[str, Any]], loose: list[Any]) -> None:
        # its readers need not read it in the cut in which it lies
        loose.append(self.wanted_cuts(u))


def followed_vectors(graph: EinGraph) -> Mapping[str, Sequence[tuple[int, ...]]]:
    """Return for each operation the vectors by which it is cut like arrays whose cut is prescribed.

    Operations on arrays in fixed layouts, and on results of operations in fixed cuts, may have as many kernels as
    there are blocks, whatever the number of workers; so may those that read the results of such operations.
    """
    cuts: dict[str, list[tuple[int, ...]]] = {}
    for u, array in graph.inputs.items():
        cuts[u] = [] if array.layout is None else [tuple([n_parts(cut) for cut in array.layout])]
    found: dict[str, Sequence[tuple[int, ...]]] = {}
    for v, op in graph.ops.items():
        if op.fixed is not None:
            rows = [tuple([op.fixed.get(x, 1) for x in op.labels])]
        else:
            rows = [_following(op, term, cut) for u, term in zip(op.inputs, op.terms) for cut in cuts[u]]
        rows = list(dict.fromkeys([row for row in rows if max(row, default=1) > 1]))[:FOLLOWED]
        found[v] = rows
        results = [tuple([dict(zip(op.labels, row))[x] for x in op.result]) for row in rows]
        cuts[v] = list(dict.fromkeys([cut for cut in results if max(cut, default=1) > 1]))
    return found


def _following(op: EinOp, term: Sequence[Label], cut: Sequence[int]) -> tuple[int, ...]:
    parts = dict(zip(term, cut))
    return tuple([1 if x in op.whole else parts.get(x, 1) for x in op.labels])
