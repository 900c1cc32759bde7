"""What comes to workers: parts of the operands of an operation, and partial results.

Slices travel, not whole blocks. All that a worker needs of one block of an array is one message; it is a copied piece
if it is not the whole block.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from distarray.planner.eindecomp.axis_cuts import n_parts
from distarray.planner.eindecomp.cells import Cells
from distarray.planner.eindecomp.kernel_placement import BlockTable, Operation
from distarray.planner.eindecomp.machine import Machine


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
