"""What a placed graph moves, holds and takes: counted block by block.

A worker fetches of each operand what its kernels read and it does not have: slices, not whole blocks, and each element
once. What it fetched it keeps while operations read the array, if there is room for that. Where there is not, the plan
is *streamed*: a worker keeps of what it fetched only the blocks that its next kernel reads too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from distarray.planner.eindecomp.axis_cuts import boundaries
from distarray.planner.eindecomp.kernel_placement import KernelPlacement, Operation
from distarray.planner.eindecomp.kernel_room import alive_first, last_readers
from distarray.planner.eindecomp.kernel_traffic import Copies, OperationTraffic, aggregated, streamed
from distarray.planner.plan import FAN_IN, combining_tree


@dataclass(frozen=True, slots=True)
class OpCount:
    """An OpCount says what one operation of a placed graph moves, holds and takes.

    Parameters
    ----------
    join_bytes, agg_bytes
        Over all links: parts of inputs, and partial results.
    messages
        Blocks and pieces that come from other workers, and partial results.
    tasks
        Kernels, copied pieces, and combinations of partial results.
    seconds
        Predicted: kernels, the slowest worker's transfers, and all tasks.
    peak_bytes
        Of the worker that holds most while it runs.
    """

    join_bytes: int
    agg_bytes: int
    messages: int
    tasks: int
    seconds: float
    peak_bytes: int

    @property
    def moved_bytes(self) -> int:
        """Return the bytes that are moved over all links."""
        return self.join_bytes + self.agg_bytes


@dataclass(frozen=True)
class GraphCount:
    """A GraphCount says what a placed graph moves, holds and takes, operation by operation.

    Parameters
    ----------
    ops
        By operation.
    streamed
        Whether copies are dropped as soon as the next kernel does not read them.
    """

    ops: Mapping[str, OpCount]
    streamed: bool

    @property
    def moved_bytes(self) -> int:
        """Return the bytes that are moved over all links."""
        return sum([c.moved_bytes for c in self.ops.values()])

    @property
    def messages(self) -> int:
        """Return the messages over all links."""
        return sum([c.messages for c in self.ops.values()])

    @property
    def tasks(self) -> int:
        """Return all that the scheduler hands out."""
        return sum([c.tasks for c in self.ops.values()])

    @property
    def seconds(self) -> float:
        """Return the predicted seconds, one operation after the other."""
        return sum([c.seconds for c in self.ops.values()])

    @property
    def peak_bytes(self) -> int:
        """Return the bytes of the worker that holds most."""
        return max([c.peak_bytes for c in self.ops.values()], default=0)

    @property
    def fullest(self) -> str:
        """Return the operation during which that is."""
        return max(self.ops, key=lambda v: self.ops[v].peak_bytes)


def count(placed: KernelPlacement, *, streamed: bool = False) -> GraphCount:
    """Count what a placed graph moves, holds and takes.

    Parameters
    ----------
    streamed
        Whether a worker drops what it fetched as soon as its next kernel does not read it.
    """
    meter = _Tally(placed, streamed)
    return GraphCount({v: meter.run(v) for v in placed.ops}, streamed)


@dataclass
class _Tally:
    placed: KernelPlacement
    streamed: bool
    #: Bytes of the blocks that each worker has, and copies by array.
    owned: Any = field(init=False)
    copies: dict[str, Copies] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        graph = self.placed.graph
        self.p = self.placed.machine.p
        self.owned = np.zeros(self.p)
        for u in alive_first(graph):
            self.owned += self.placed.read_bytes(u) if self._is_everywhere(u) else self._blocks(u)
        self.dead = last_readers(graph)
        #: Arrays of which nothing needs copies after an operation.
        self.finished: dict[str, list[str]] = {v: [] for v in graph.ops}
        for name, readers in graph.reads.items():
            if readers:
                self.finished[readers[-1][0]].append(name)

    def _block_bytes(self, name: str) -> Any:
        """Return the bytes of each block of an array."""
        array = self.placed.arrays[name]
        sizes = np.ones(1, np.int64)
        for n, cut in zip(self.placed.graph.shape(name), array.cut):
            sizes = np.multiply.outer(sizes, np.diff(boundaries(n, cut))).ravel()
        return array.itemsize * sizes

    def _blocks(self, name: str) -> Any:
        """Return the bytes of the blocks of an array on each worker."""
        return np.bincount(self.placed.arrays[name].owners, self._block_bytes(name), self.p)

    def _is_everywhere(self, u: str) -> bool:
        inputs = self.placed.graph.inputs
        return u in inputs and inputs[u].everywhere

    def run(self, v: str) -> OpCount:
        """Count one operation, after those before it."""
        operation, rates = self.placed.ops[v], self.placed.machine.rates
        came = OperationTraffic.none(self.p)
        for operand, u in enumerate(operation.op.inputs):
            came += self._join(u, operation, operand)
        held = self._while_joining(operation, self._block_bytes(v))
        tasks = operation.n_kernels + came.pieces
        partial = OperationTraffic.none(self.p)
        if operation.n_blocks < operation.n_kernels:
            partial, then = self._aggregate(v, operation)
            held = np.maximum(held, then)
            tasks += int(combining_tree(np.bincount(operation.makes))[1].sum())
        peak = held + self.owned + sum([c.nbytes for c in self.copies.values()], np.zeros(self.p))
        self.owned += self._blocks(v)
        self._drop(v)
        both = came + partial
        seconds = float(self._kernel_seconds(operation).max()) + rates.task * tasks
        seconds += float(both.seconds.max()) + self.placed.machine.message_seconds * int(both.messages.max())
        join_bytes, agg_bytes = int(came.nbytes.sum()), int(partial.nbytes.sum())
        return OpCount(join_bytes, agg_bytes, int(both.messages.sum()), tasks, seconds, int(np.ceil(peak.max())))

    def _join(self, u: str, operation: Operation, operand: int) -> OperationTraffic:
        array, machine = self.placed.arrays[u], self.placed.machine
        if self._is_everywhere(u):
            return OperationTraffic.none(self.p)
        if self.streamed:
            return streamed(array, operation, operand, machine)
        if u not in self.copies:
            self.copies[u] = Copies(array, machine)
        return self.copies[u].join(operation, operand)

    def _drop(self, v: str) -> None:
        """Take away the blocks and copies of the arrays that an operation was the last to read."""
        for name in self.dead[v]:
            self.owned -= self._blocks(name)
        for name in self.finished[v]:
            self.copies.pop(name, None)

    def _while_joining(self, operation: Operation, sizes: Any) -> Any:
        """Return the bytes of what kernels hold on each worker, beyond blocks and copies.

        Parameters
        ----------
        sizes
            Bytes of each block of the result.
        """
        read = np.zeros(operation.n_kernels)
        for u, cut, reads in zip(operation.op.inputs, operation.cuts, operation.reads):
            array = self.placed.arrays[u]
            if self._is_everywhere(u):
                continue  # what is read of it is there
            if self.streamed or array.cut != cut:  # else the kernel reads the block itself, or the copy of it
                read += array.itemsize * array.cells[cut].sizes(cut)[reads]
        held = np.zeros(self.p)
        made = np.zeros((self.p, operation.n_blocks), bool)
        summed = np.zeros(self.p)
        for kernels in operation.waves():
            workers, makes = operation.workers[kernels], operation.makes[kernels]
            summed[workers] += np.where(made[workers, makes], 0, sizes[makes])
            made[workers, makes] = True
            held[workers] = np.maximum(held[workers], read[kernels] + summed[workers])
        return held

    def _aggregate(self, v: str, operation: Operation) -> tuple[OperationTraffic, Any]:
        """Return what moves to bring partial results together, and what each worker has of them and of results then."""
        sizes, owners = self._block_bytes(v), self.placed.arrays[v].owners
        came, n_sent = aggregated(operation, owners, sizes, self.placed.machine)
        made = np.zeros((self.p, operation.n_blocks), bool)
        made[operation.workers, operation.makes] = True
        made[owners, np.arange(operation.n_blocks)] = True
        incoming = np.zeros(self.p)
        np.maximum.at(incoming, owners, np.minimum(n_sent, 1 if self.streamed else FAN_IN - 1) * sizes)
        return came, made @ sizes + incoming

    def _kernel_seconds(self, operation: Operation) -> Any:
        """Return the seconds of all kernels of each worker."""
        points = np.ones(1)
        for x, n in zip(operation.op.labels, operation.parts):
            points = np.multiply.outer(points, np.diff(boundaries(operation.op.extents[x], n))).ravel()
        seconds = self.placed.machine.kernel_seconds(operation.op, points)
        return np.bincount(operation.workers, seconds, self.p)
