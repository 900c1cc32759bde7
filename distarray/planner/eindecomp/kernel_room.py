"""Bytes that a worker needs: what may be chosen under a limit, and in how many waves.

While an operation runs, a worker holds its share of all arrays that are alive, the blocks that one kernel reads, and
the blocks of the result that it makes:

    peak = live + sum over inputs of n_i + blocks of the result

A result is alive from the operation that makes it to the last one that reads it, and to the end if none does; an input
is from the beginning. A worker runs one kernel at a time. Under a limit an operation may run in waves: with ``w * p``
kernels each worker runs ``w``, one after the other, and partial results of one block are summed in place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from distarray.planner.eindecomp.candidates import (
    Options,
    as_rows,
    block_elements,
    ordered,
    uneven_vectors,
    without_whole,
)
from distarray.planner.eindecomp.eingraph import EinGraph, EinOp

#: Waves of an operation and kernels of all its waves, at most.
MAX_WAVES = 64
MAX_KERNELS = 4096


class NoRoom(Exception):
    """A NoRoom is raised where no cut of an operation, whose name is its argument, fits the memory of a worker."""


def alive_first(graph: EinGraph) -> list[str]:
    """Return the inputs that are there when the first operation runs: those that are read."""
    return [u for u in graph.inputs if graph.reads[u]]


def last_readers(graph: EinGraph) -> Mapping[str, tuple[str, ...]]:
    """Return for each operation the arrays that it is the last to read, and nothing needs any more."""
    everywhere = {u for u, array in graph.inputs.items() if array.everywhere}
    last: dict[str, str] = {u: v for v, op in graph.ops.items() for u in op.inputs if u not in everywhere}
    dead: dict[str, list[str]] = {v: [] for v in graph.ops}
    for u, v in last.items():
        dead[v].append(u)
    return {v: tuple(names) for v, names in dead.items()}


@dataclass
class KernelRoom:
    """A KernelRoom says how many bytes the kernels of each operation may use under a limit per worker.

    Parameters
    ----------
    graph, options
        What is planned, and what may be chosen.
    limit
        Bytes per worker, for everything.
    slack
        A worker's share of a result may exceed an even one by this part of it.
    """

    graph: EinGraph
    options: Options
    limit: float
    slack: float = np.inf

    @cached_property
    def live(self) -> Mapping[str, int]:
        """Return the bytes of a worker's share of the arrays that are alive, by operation."""
        graph, dead = self.graph, last_readers(self.graph)
        total = sum([self._share(u) for u in alive_first(graph)])
        found = {}
        for v in graph.ops:
            found[v] = total
            total += self._share(v) - sum([self._share(u) for u in dead[v]])
        return found

    def _share(self, name: str) -> int:
        return -(-self.graph.array(name).nbytes // self.options.p)

    def of(self, v: str) -> float:
        """Return the bytes that the kernels of an operation may use on a worker."""
        return self.limit - self.live[v]

    def needed(self, v: str, rows: Any) -> Any:
        """Return the bytes that they would use, by vector: blocks that a kernel reads, and a share of the result."""
        op = self.graph.ops[v]
        total = np.zeros(len(rows))
        for u, term in zip(op.inputs, op.terms):
            total = total + self.graph.array(u).itemsize * block_elements(op, rows, term)
        share = -(-rows[:, op.columns(op.result)].prod(axis=1) // self.options.p)
        return total + share * op.itemsize * block_elements(op, rows, op.result)

    def fitting(self, v: str, rows: Any) -> Any:
        """Return the vectors that fit; where none does, those of the fewest waves that do.

        Raises
        ------
        NoRoom
            If no number of waves helps.
        """
        for waves in range(1, MAX_WAVES + 1):
            found = rows if waves == 1 else self.in_waves(v, waves)
            uneven = _imbalance(self.graph.ops[v], found, self.options.p)
            even = uneven <= self.slack * self.graph.ops[v].nbytes / self.options.p
            fit = found[even & (self.needed(v, found) <= self.of(v))]
            if len(fit):
                return fit
        raise NoRoom(v)

    def in_waves(self, v: str, waves: int) -> Any:
        """Return the vectors of so many waves; none if there would be too many kernels, or the cut is prescribed."""
        op, n = self.graph.ops[v], waves * self.options.p
        if op.fixed is not None or n > MAX_KERNELS or (self.options.splits == "pow2" and waves & (waves - 1)):
            return as_rows(op, [])
        return ordered(op, as_rows(op, uneven_vectors(tuple(without_whole(op)), n)))

    def least(self, v: str, rows: Any) -> Any:
        """Return, of all vectors, in any number of waves, the one that needs least: for results too large for one
        worker the share that a worker gets counts as much as what a kernel reads.
        """
        found = [rows, *[self.in_waves(v, waves) for waves in range(2, MAX_WAVES + 1)]]
        every = np.concatenate([rows for rows in found if len(rows)])
        return every[np.argmin(self.needed(v, every) + _imbalance(self.graph.ops[v], every, self.options.p))]


def _imbalance(op: EinOp, rows: Any, p: int) -> Any:
    """Return the bytes of the result that a worker may hold beyond the share that is as even as some vector makes
    it.
    """
    blocks = rows[:, op.columns(op.result)].prod(axis=1)
    share = -(-blocks // p) * op.itemsize * block_elements(op, rows, op.result)
    return share - share.min(initial=np.inf)
