"""Bytes that an edge moves under the best placement: a function of the splits of both ends (phase 1).

A consumer with ``N`` kernels reads blocks of ``n_c`` elements: together every block of the array once for each part of
the labels that the array has not. Of these ``R`` are where they are needed if blocks and kernels are placed well:

    moved = N * n_c - R

``R`` is the weight of an assignment of the producer's blocks and the consumer's kernels to workers, ``k_u`` blocks and
``k_v`` kernels on each. No assignment exceeds either of two sums, and for nested splits one reaches the smaller:

    R = min( k_v * sum over blocks of the largest overlap with a kernel's part,
             sum over kernels of min(n_c, k_u * the largest overlap with a block) )

which is ``min(P_u, N) * n_int`` where ``P_u`` blocks and ``N`` kernels have workers of their own. Where splits do not
nest it may be more than any assignment has, so `moved` is a lower bound: phase 2 counts what is really moved.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from distarray.planner.eindecomp.assignment import assign
from distarray.planner.eindecomp.axis_cuts import AxisCut, overlap_tables
from distarray.planner.eindecomp.candidates import block_elements
from distarray.planner.eindecomp.cells import Cells
from distarray.planner.eindecomp.eingraph import EinOp, Input
from distarray.planner.eindecomp.machine import Machine
from distarray.planner.eindecomp.paper_costs import count_parts
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
