"""What a placed graph moves, holds and takes: counted block by block.

A worker fetches of each operand what its kernels read and it does not have: slices, not whole blocks, and each element
once. What it fetched it keeps while operations read the array, if there is room for that. Where there is not, the plan
is *streamed*: a worker keeps of what it fetched only the blocks that its next kernel reads too.

All that a worker needs of one block of an array is one message; it is a copied piece if it is not the whole block.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from distarray.planner.eindecomp.axis_cuts import boundaries, n_parts
from distarray.planner.eindecomp.cells import Cells
from distarray.planner.eindecomp.kernel_placement import BlockTable, KernelPlacement, Operation
from distarray.planner.eindecomp.kernel_room import alive_first, last_readers
from distarray.planner.eindecomp.machine import Machine
from distarray.planner.plan import FAN_IN, combining_tree


@dataclass
class OperationTraffic:
    """An OperationTraffic counts the bytes and blocks that come to each worker during one operation."""

    nbytes: Any
    seconds: Any
    messages: Any
    pieces: int = 0

    @classmethod
    def none(cls, p: int) -> OperationTraffic:
        """Return the traffic of nothing that comes to any of `p` workers."""
        return cls(np.zeros(p), np.zeros(p), np.zeros(p, np.int64))

    def __add__(self, other: OperationTraffic) -> OperationTraffic:
        return OperationTraffic(
            self.nbytes + other.nbytes,
            self.seconds + other.seconds,
            self.messages + other.messages,
            self.pieces + other.pieces,
        )


def _seconds(machine: Machine, owners: Any, nbytes: Any) -> Any:
    """Return the seconds of what each worker (row) gets of blocks (columns)."""
    if machine.byte_seconds is None:
        return machine.mean_byte_seconds * nbytes.sum(axis=1)
    return (nbytes * machine.byte_seconds[owners].T).sum(axis=1)


# ------------------------------------------------------------------------------------------------- copies are kept


@dataclass
class Copies:
    """A Copies knows what each worker has of one array: its own blocks, and what it fetched, each element once.

    Parameters
    ----------
    array
        As it lies.
    machine
        The workers.
    """

    array: BlockTable
    machine: Machine
    #: Bytes of what each worker fetched.
    nbytes: Any = field(init=False)
    _have: dict[int, Any] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.nbytes = np.zeros(self.machine.p)

    def join(self, operation: Operation, operand: int) -> OperationTraffic:
        """Return what workers fetch for the kernels of an operation, which they have from then on."""
        array, p = self.array, self.machine.p
        cut = operation.cuts[operand]
        cells = array.cells[cut]
        have = self._have.get(id(cells))
        if have is None:
            have = np.zeros((p, len(cells.volume)), bool)
            have[array.owners[cells.block_of(array.cut)], np.arange(len(cells.volume))] = True
        need = np.zeros((p, prod(map(n_parts, cut))), bool)
        need[operation.workers, operation.reads[operand]] = True
        missing = need[:, cells.block_of(cut)] & ~have
        self._have[id(cells)] = have | missing
        came = self._fetched(cells, missing)
        self.nbytes = self.nbytes + came.nbytes
        return came

    def _fetched(self, cells: Cells, missing: Any) -> OperationTraffic:
        array, p = self.array, self.machine.p
        worker, cell = np.nonzero(missing)
        if not len(cell):
            return OperationTraffic.none(p)
        n_blocks = len(array.owners)
        key = worker * n_blocks + cells.block_of(array.cut)[cell]
        got = np.bincount(key, cells.volume[cell], p * n_blocks).reshape(p, n_blocks)
        pieces = int(((got > 0) & (got < cells.sizes(array.cut))).sum())
        nbytes = array.itemsize * got
        seconds = _seconds(self.machine, array.owners, nbytes)
        return OperationTraffic(nbytes.sum(axis=1), seconds, (got > 0).sum(axis=1), pieces)


# ------------------------------------------------------------------------------------------- copies are not kept


def streamed(array: BlockTable, operation: Operation, operand: int, machine: Machine) -> OperationTraffic:
    """Return what workers fetch if each kernel fetches what it reads, unless the one before it read the same block.

    Blocks that the worker owns it has all the time.
    """
    p, cut = machine.p, operation.cuts[operand]
    cells = array.pairs(cut)
    order = np.argsort(operation.workers, kind="stable")
    workers, tiles = operation.workers[order], operation.reads[operand][order]
    again = (workers[1:] == workers[:-1]) & (tiles[1:] == tiles[:-1])
    first = np.append(True, ~again)
    workers, tiles = workers[first], tiles[first]
    # each cell is what one block and one tile have in common
    block, tile = cells.block_of(array.cut), cells.block_of(cut)
    n_tiles = prod(map(n_parts, cut))
    is_part = cells.volume < cells.sizes(array.cut)[block]

    def missing(weights: Any) -> Any:
        """Return the sums over the cells of each fetched tile that the worker does not own."""
        own = np.bincount(array.owners[block] * n_tiles + tile, weights, p * n_tiles).reshape(p, n_tiles)
        return (np.bincount(tile, weights, n_tiles)[None, :] - own)[workers, tiles]

    elements, messages = missing(cells.volume), missing(np.ones(len(block)))
    nbytes: Any = np.bincount(workers, array.itemsize * elements, p)
    pieces = int(missing(is_part.astype(float)).sum())
    if machine.byte_seconds is None:
        seconds: Any = machine.mean_byte_seconds * nbytes
    else:
        held = array.itemsize * cells.held(array.cut, array.owners, cut, p)
        each = (machine.byte_seconds[:, workers] * held[:, tiles]).sum(axis=0)
        seconds = np.bincount(workers, each, p)
    return OperationTraffic(nbytes, seconds, np.bincount(workers, messages, p).astype(np.int64), pieces)


# ------------------------------------------------------------------------------------------------ partial results


def aggregated(operation: Operation, owners: Any, sizes: Any, machine: Machine) -> tuple[OperationTraffic, Any]:
    """Return what moves to bring partial results together, and how many workers send some for each block of the result.

    Parameters
    ----------
    owners, sizes
        Worker and bytes of each block of the result.
    """
    p, n_blocks = machine.p, operation.n_blocks
    sent = np.zeros((p, n_blocks), bool)
    sent[operation.workers, operation.makes] = True
    sent[owners, np.arange(n_blocks)] = False
    n_sent = sent.sum(axis=0)
    nbytes: Any = np.bincount(owners, n_sent * sizes, p)
    if machine.byte_seconds is None:
        seconds: Any = machine.mean_byte_seconds * nbytes
    else:
        seconds = np.bincount(owners, (sent * machine.byte_seconds[:, owners]).sum(axis=0) * sizes, p)
    return OperationTraffic(nbytes, seconds, np.bincount(owners, n_sent, p).astype(np.int64)), n_sent


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
