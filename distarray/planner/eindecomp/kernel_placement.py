"""Phase 2: kernels and blocks on workers.

Kernels go to the workers that hold most of what they need, operation by operation in topological order; where that
does not decide, to where the other operands of their readers are. Partial results of a block come together where most
of them are. Inputs that may lie anywhere go where they are read. Then every operation is placed again, with all its
neighbours where they are, as long as this saves bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import gcd, prod
from typing import Any

import numpy as np

from distarray.planner.eindecomp.assignment import assign
from distarray.planner.eindecomp.axis_cuts import AxisCut, n_parts
from distarray.planner.eindecomp.cells import Cells, grid_index, refine
from distarray.planner.eindecomp.eingraph import EinGraph, EinOp
from distarray.planner.eindecomp.machine import Machine
from distarray.planner.eindecomp.paper_costs import Splits

#: Rounds in which all operations are placed again.
ROUNDS = 2
Cuts = tuple[AxisCut, ...]


@dataclass(eq=False)
class Operation:
    """An Operation is an operation of a graph with the cut of each of its labels.

    Parameters
    ----------
    op
        The operation.
    parts
        Of each of its labels.
    """

    op: EinOp
    parts: tuple[int, ...]
    #: Worker of each kernel, in C order over the labels.
    workers: Any = None

    def __post_init__(self) -> None:
        operands = [tuple(self.op.columns(term)) for term in self.op.terms]
        result = tuple(self.op.columns(self.op.result))
        self.cuts: list[Cuts] = [tuple([self.parts[a] for a in axes]) for axes in operands]
        #: For each operand the block of its cut that each kernel reads.
        self.reads = [grid_index(self.parts, axes) for axes in operands]
        self.result: Cuts = tuple([self.parts[a] for a in result])
        #: The block of the result of which each kernel makes a part.
        self.makes = grid_index(self.parts, result)

    @property
    def n_kernels(self) -> int:
        """Return the number of kernels of all waves."""
        return prod(self.parts)

    @property
    def n_blocks(self) -> int:
        """Return the number of blocks of the result."""
        return prod(map(n_parts, self.result))

    def waves(self) -> list[Any]:
        """Return the kernels that run at the same time: the first ones of all workers, the second ones, and so on."""
        if self.n_kernels == len(set(self.workers.tolist())):
            return [np.arange(self.n_kernels)]
        order = np.argsort(self.workers, kind="stable")
        workers = self.workers[order]
        rank = np.arange(len(order)) - np.searchsorted(workers, workers, "left")
        return [order[rank == wave] for wave in range(int(rank.max()) + 1)]


@dataclass(eq=False)
class BlockTable:
    """A BlockTable says how one array is cut, and which worker has each of its blocks.

    Parameters
    ----------
    shape, cut
        Elements and parts per dimension.
    itemsize
        Bytes of an element.
    cells
        For each cut in which it is read the common refinement of that, its own, and other cuts.
    owners
        Worker of each block in C order; None before it is placed.
    """

    shape: tuple[int, ...]
    cut: Cuts
    itemsize: int
    cells: Mapping[Cuts, Cells]
    owners: Any = None

    def pairs(self, cut: Cuts) -> Cells:
        """Return the common refinement of its own cut and another one: each cell is in one block of both."""
        shape = self.shape
        return refine(shape, frozenset([self.cut, cut])) or Cells(shape, (self.cut, cut))

    def held(self, cut: Cuts, p: int) -> Any:
        """Return the bytes of each block of a cut (column) that are on each worker (row)."""
        return self.itemsize * self.cells[cut].held(self.cut, self.owners, cut, p)

    def gain(self, needs: Mapping[Cuts, Any], p: int) -> Any:
        """Return the bytes that need not move if a worker (row) has a block (column): what it needs of it.

        Parameters
        ----------
        needs
            For each cut in which the array is read the blocks (columns) that workers (rows) need.
        """
        n_blocks = prod(map(n_parts, self.cut))
        total = np.zeros((p, n_blocks))
        by_cells: dict[int, tuple[Cells, Any]] = {}
        for cut, need in needs.items():
            cells = self.cells[cut]
            there = need[:, cells.block_of(cut)]
            before = by_cells.get(id(cells))
            by_cells[id(cells)] = (cells, there if before is None else before[1] | there)
        for cells, there in by_cells.values():
            worker, cell = np.nonzero(there)
            key = worker * n_blocks + cells.block_of(self.cut)[cell]
            total += np.bincount(key, cells.volume[cell], p * n_blocks).reshape(p, n_blocks)
        return self.itemsize * total


@dataclass(eq=False)
class KernelPlacement:
    """A KernelPlacement says on which worker every kernel and every block of a labelled graph is.

    Parameters
    ----------
    graph, machine
        What is placed, on what.
    splits
        Parts of each label, by operation.
    layouts
        Of the inputs.
    """

    graph: EinGraph
    machine: Machine
    splits: Mapping[str, Splits]
    layouts: Mapping[str, Cuts]
    ops: dict[str, Operation] = field(init=False)
    arrays: dict[str, BlockTable] = field(init=False)

    def __post_init__(self) -> None:
        graph = self.graph
        self.ops = {v: Operation(op, tuple([self.splits[v][x] for x in op.labels])) for v, op in graph.ops.items()}
        self.arrays = {name: self._layout(name) for name in (*graph.inputs, *graph.ops)}
        self._free = [u for u, array in graph.inputs.items() if array.workers is None]

    def _layout(self, name: str) -> BlockTable:
        graph = self.graph
        own = self.layouts[name] if name in graph.inputs else self.ops[name].result
        wanted = [self.ops[v].cuts[i] for v, i in graph.reads[name]]
        shape = tuple(graph.shape(name))
        common = refine(shape, frozenset([own, *wanted]))
        cells = {cut: common or refine(shape, frozenset([own, cut])) or Cells(shape, (own, cut)) for cut in wanted}
        given = graph.inputs[name].workers if name in graph.inputs else None
        owners = None if given is None else np.array(given, np.intp)
        return BlockTable(shape, own, graph.array(name).itemsize, cells, owners)

    def read_bytes(self, name: str) -> Any:
        """Return the bytes of what each worker reads of an array, each element once."""
        return self.arrays[name].gain(self._needs(name), self.machine.p).sum(axis=1)

    # -------------------------------------------------------------------------------------------------- placing

    def place(self) -> None:
        """Place all kernels and blocks."""
        for v in self.ops:
            self._place(v, ahead=True)
        self._place_inputs()

    def place_again(self) -> None:
        """Place every operation with its neighbours where they are: readers first, so that what they need is known."""
        for v in reversed(self.ops):
            self._place(v, ahead=False)
        self._place_inputs()

    def snapshot(self) -> dict[str, Any]:
        """Return the workers and owners as they are."""
        return {
            **{f"op {v}": operation.workers for v, operation in self.ops.items()},
            **{f"of {name}": layout.owners for name, layout in self.arrays.items()},
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Put workers and owners back as they were."""
        for v, operation in self.ops.items():
            operation.workers = saved[f"op {v}"]
        for name, layout in self.arrays.items():
            layout.owners = saved[f"of {name}"]

    def _place(self, v: str, *, ahead: bool) -> None:
        operation = self.ops[v]
        p, n = self.machine.p, operation.n_kernels
        array = self.arrays[v]
        worth = array.gain(self._needs(v, ahead=ahead), p)
        gain = self._resident(v) + (worth * operation.n_blocks / n)[:, operation.makes]
        operation.workers = self._assigned(operation, gain)
        array.owners = self._owners(operation, worth)

    def _assigned(self, operation: Operation, gain: Any) -> Any:
        """Return the workers for kernels; of those that make parts of one block as many on one as it runs waves.

        Their partial results are summed there, and no other worker holds one.
        """
        n = operation.n_kernels
        capacity = -(-n // self.machine.p)
        together = gcd(n // operation.n_blocks, capacity)  # kernels of one block are next to each other
        chunks = gain.reshape(len(gain), n // together, together).sum(axis=2)
        return np.repeat(assign(chunks, capacity // together), together)

    def _resident(self, v: str) -> Any:
        """Return the bytes of what each kernel (column) reads that are on each worker (row)."""
        operation, p = self.ops[v], self.machine.p
        total = np.zeros((p, operation.n_kernels))
        for u, cut, reads in zip(operation.op.inputs, operation.cuts, operation.reads):
            array = self.arrays[u]
            if array.owners is not None and not self._follows(u):
                total += array.held(cut, p)[:, reads]
        return total

    def _follows(self, u: str) -> bool:
        """Return whether an input goes wherever its only reader is, or is wherever it is read."""
        array = self.graph.inputs.get(u)
        return array is not None and (array.everywhere or (array.workers is None and len(self.graph.reads[u]) == 1))

    def _needs(self, name: str, *, ahead: bool = False) -> dict[Cuts, Any]:
        """Return the blocks (columns) of each cut of an array that workers (rows) need.

        Parameters
        ----------
        ahead
            Whether readers that are not placed yet are thought to be where their other operands are.
        """
        needs: dict[Cuts, Any] = {}
        for v, i in self.graph.reads[name]:
            reader = self.ops[v]
            workers = reader.workers
            if workers is None and ahead:
                workers = self._expected(v)
            if workers is None:
                continue
            cut = reader.cuts[i]
            if cut not in needs:
                needs[cut] = np.zeros((self.machine.p, prod(map(n_parts, cut))), bool)
            needs[cut][workers, reader.reads[i]] = True
        return needs

    def _expected(self, v: str) -> Any:
        """Return where the kernels of an operation would be by what is placed of its operands; None if that says
        nothing.
        """
        gain = self._resident(v)
        return self._assigned(self.ops[v], gain) if gain.any() else None

    def _owners(self, operation: Operation, worth: Any) -> Any:
        """Return where each block of the result is: where most of its partial results are, and of these where it is
        worth most.
        """
        n_blocks, p = operation.n_blocks, self.machine.p
        if n_blocks == operation.n_kernels:
            owners = np.empty(n_blocks, np.intp)
            owners[operation.makes] = operation.workers
            return owners
        key = operation.workers * n_blocks + operation.makes
        partials = np.bincount(key, minlength=p * n_blocks).reshape(p, n_blocks)
        return assign(partials + 0.5 * worth / (1.0 + worth.max()), -(-n_blocks // p))

    def _place_inputs(self) -> None:
        p = self.machine.p
        for u in self._free:
            array = self.arrays[u]
            gain = array.gain(self._needs(u), p)
            array.owners = assign(gain, -(-gain.shape[1] // p))
