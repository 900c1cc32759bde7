"""The objective ``time``, phase 1: predicted seconds as a function of splits.

Every operation takes the time of its kernels, of what comes to its workers, and of its tasks. What comes is counted as
under the best placement (`moved_elements`), so that every term belongs to one operation or to one edge. Inputs in no
layout get one: an input with one reader lies as this wants it; others are variables of their own.

A consumer with ``N`` kernels reads blocks of ``n_c`` elements: together every block of the array once for each part of
the labels that the array has not. Of these ``R`` are where they are needed if blocks and kernels are placed well:

    moved = N * n_c - R

``R`` is the weight of an assignment of the producer's blocks and the consumer's kernels to workers, ``k_u`` blocks and
``k_v`` kernels on each. No assignment exceeds either of two sums, and for nested splits one reaches the smaller:

    R = min( k_v * sum over blocks of the largest overlap with a kernel's part,
             sum over kernels of min(n_c, k_u * the largest overlap with a block) )

which is ``min(P_u, N) * n_int`` where ``P_u`` blocks and ``N`` kernels have workers of their own. Where splits do not
nest it may be more than any assignment has, so this is a lower bound: phase 2 counts what is really moved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from distarray.planner.eindecomp.assignment import assign
from distarray.planner.eindecomp.axis_cuts import AxisCut, n_parts, overlap_tables
from distarray.planner.eindecomp.candidates import Options, Rows, States, block_elements, kernel_counts, uneven_rows
from distarray.planner.eindecomp.cells import Cells
from distarray.planner.eindecomp.eingraph import EinGraph, EinOp, Input, Label
from distarray.planner.eindecomp.elimination import Name, Tables, add
from distarray.planner.eindecomp.kernel_room import KernelRoom
from distarray.planner.eindecomp.machine import Machine
from distarray.planner.eindecomp.paper_costs import count_parts
from distarray.planner.eindecomp.problems import SearchSpace
from distarray.planner.plan import combining_tree

#: Of plans that are equally fast, the one that moves fewer arrays: seconds for each, less than anything takes.
TIE = 1e-11


def moved_elements(shape: Sequence[int], producers: Any, consumers: Any, kernels: Any, p: int) -> tuple[Any, Any, Any]:
    """Return elements, messages and copied pieces of an edge, for all pairs of splits.

    Parameters
    ----------
    producers
        Parts of the array as it is made, by state of the producer.
    consumers, kernels
        Parts in which it is read, and number of kernels, by state of the consumer.
    p
        Workers.

    Returns
    -------
    elements, messages, pieces
        Tables (producers, consumers): summed over workers. A piece is a part of a block that is copied to be sent.
    """
    held, read, pairs, inside = overlap_tables(shape, producers, consumers, ["held", "read", "pairs", "inside"])
    blocks, parts = count_parts(producers)[:, None], count_parts(consumers)[None, :]
    kernels = np.asarray(kernels, np.int64)[None, :]
    copies = kernels // parts
    blocks_each, kernels_each = -(-blocks // p), -(-kernels // p)
    needed = copies * prod(shape)
    moved = needed - np.minimum(np.minimum(kernels_each * held, blocks_each * copies * read), needed)
    met = np.minimum(kernels_each * blocks, blocks_each * kernels)
    messages = np.where(moved > 0, np.maximum(copies * pairs - met, 1), 0)
    pieces = np.where(moved > 0, np.maximum(copies * (pairs - inside) - met, 0), 0)
    return moved, messages, pieces


def moved_if_read_as_it_lies(shape: Sequence[int], consumers: Any, kernels: Any, p: int) -> tuple[Any, Any]:
    """Return elements and messages, by state of its reader, of an array that lies in the parts in which it is read."""
    parts = count_parts(consumers)
    copies = kernels // parts
    moved = np.maximum(copies - -(-kernels // p), 0) * prod(shape)
    met = np.minimum(-(-kernels // p) * parts, -(-parts // p) * kernels)
    return moved, np.where(moved > 0, np.maximum(kernels - met, 1), 0)


def edge_seconds(
    shape: Sequence[int], itemsize: int, producers: Any, consumers: Any, kernels: Any, machine: Machine
) -> Any:
    """Return predicted seconds of an edge, for all pairs of splits; and a little more where anything moves at all."""
    moved, messages, pieces = moved_elements(shape, producers, consumers, kernels, machine.p)
    return _seconds(itemsize * moved, messages, np.asarray(kernels)[None, :], machine) + machine.rates.task * pieces


def placed_input_seconds(array: Input, consumers: Any, kernels: Any, machine: Machine) -> Any:
    """Return predicted seconds of reading an input whose blocks have workers, by state of the reader.

    Here the assignment of kernels is known exactly: each goes to a worker that has much of what it reads.
    """
    assert array.layout is not None
    assert array.workers is not None
    _, messages, pieces = moved_elements(array.shape, [array.layout], consumers, kernels, machine.p)
    found = [
        _moved_from(array.shape, array.layout, array.workers, tuple(cut), n, machine.p)
        for cut, n in zip(consumers.tolist(), kernels.tolist())
    ]
    moved = np.array(found, float)
    messages = np.where(moved > 0, np.maximum(messages[0], 1), 0)
    pieces = np.where(moved > 0, pieces[0], 0)
    return _seconds(array.itemsize * moved, messages, kernels, machine) + machine.rates.task * pieces


@lru_cache(maxsize=1 << 14)
def _moved_from(
    shape: tuple[int, ...], layout: tuple[AxisCut, ...], workers: tuple[int, ...], cut: tuple[int, ...], n: int, p: int
) -> float:
    """Return the elements that come to `n` kernels, each of which reads a block of `cut`."""
    cells = Cells(shape, (layout, cut))
    held = cells.held(layout, np.array(workers, np.intp), cut, p)
    copies = n // held.shape[1]
    gain = np.tile(held, (1, copies))
    resident = gain[assign(gain, -(-n // p)), np.arange(n)].sum()
    return float(copies * prod(shape) - resident)


def free_input_seconds(shape: Sequence[int], itemsize: int, consumers: Any, kernels: Any, machine: Machine) -> Any:
    """Return predicted seconds of reading an input that lies as its reader wants it, by state of the reader."""
    moved, messages = moved_if_read_as_it_lies(shape, consumers, kernels, machine.p)
    return _seconds(itemsize * moved, messages, kernels, machine)


def _seconds(nbytes: Any, messages: Any, kernels: Any, machine: Machine) -> Any:
    active = np.minimum(kernels, machine.p)
    each = -(-messages // active)  # of the worker that gets most
    return machine.mean_byte_seconds * nbytes / active + machine.message_seconds * each + TIE * (nbytes > 0)


def op_seconds(op: EinOp, rows: Any, machine: Machine) -> Any:
    """Return predicted seconds of an operation by vector, without its edges: kernels, aggregation and tasks."""
    kernels = rows.prod(axis=1)
    each = -(-kernels // machine.p)
    active = np.minimum(kernels, machine.p)
    seconds = each * machine.kernel_seconds(op, block_elements(op, rows, op.labels))
    partials = rows[:, op.columns(op.aggregated)].prod(axis=1)
    groups = kernels // partials
    sent = -(-partials // each) - 1  # by each group: partial results on one worker are summed there
    rates = machine.rates
    bytes_in = op.itemsize * prod(op.shape) * sent
    most = sent * -(-groups // machine.p)  # partial results that come to one worker
    seconds = seconds + machine.mean_byte_seconds * bytes_in / active + machine.message_seconds * most
    return seconds + rates.task * (kernels + groups * combining_tree(partials)[1])


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
        self.found_edges = {}
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

    def edge_table(self, u: str, v: str, operand: int) -> Any:
        return self._read_seconds(u, self.states[u].result, v, operand)

    def _read_seconds(self, u: str, cuts: Any, v: str, operand: int) -> Any:
        """Return the seconds (cuts of an array, states of its reader)."""
        array, states = self.graph.array(u), self.states[v]
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
            add(pairwise, (name, v), self._read_seconds(u, cuts, v, operand))

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
