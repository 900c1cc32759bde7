"""Costs of a labelled EinGraph in elements (EinDecomp, sections 6 and 7).

One partition vector per operation, the number of parts of each label, fixes everything. All costs are exact integers,
for blocks of any sizes: every sum over blocks is written as a product of sums over the parts of one axis.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, Literal, TypeAlias

import numpy as np

from distarray.planner.eindecomp.axis_cuts import AxisCut, n_parts, overlap, overlap_tables
from distarray.planner.eindecomp.eingraph import EinGraph, EinOp, Label

#: Number of parts of each label of one operation.
Splits: TypeAlias = Mapping[Label, int]
#: Readings of the paper's words on repartitioning.
Repart: TypeAlias = Literal["paper", "worst", "jax", "cpp"]


def n_kernels(d: Splits) -> int:
    """Return the kernel calls of an operation: the product of the parts of its distinct labels.

    >>> n_kernels({"i": 2, "j": 2, "k": 2})
    8
    """
    return prod(d.values())


def result_parts(op: EinOp, d: Splits) -> tuple[int, ...]:
    """Return the parts of the result per dimension."""
    return tuple([d[x] for x in op.result])


def wanted_parts(op: EinOp, d: Splits, operand: int) -> tuple[int, ...]:
    """Return the parts per dimension in which an operand is read."""
    return tuple([d[x] for x in op.terms[operand]])


def join_cost(op: EinOp, d: Splits) -> int:
    """Return the elements that go into the kernels of an operation: each reads a block of every input.

    All blocks of an input together are the input, and each is read once for every part of the labels it has not.
    """
    n = n_kernels(d)
    return sum([n // prod([d[x] for x in term]) * op.size(term) for term in op.terms])


def agg_cost(op: EinOp, d: Splits) -> int:
    """Return the elements that move to combine partial results; zero if no aggregated label is split."""
    return prod(op.shape) * (prod([d[x] for x in op.aggregated]) - 1)


def op_cost(op: EinOp, d: Splits) -> int:
    """Return what joining and aggregating cost in one operation; of many labellings at once if parts are columns."""
    return join_cost(op, d) + agg_cost(op, d)


def repart_cost(shape: Sequence[int], dp: Sequence[AxisCut], dc: Sequence[AxisCut], repart: Repart = "paper") -> int:
    """Return the elements that move between a producer's parts and a consumer's; zero if they are equal.

    A consumer block with several pieces receives all but the first; a producer block that is needed in part is sent
    whole, as the paper words it. `repart` chooses another reading.

    >>> repart_cost((8, 8), (2, 4), (4, 1)), repart_cost((12,), (2,), (3,)), repart_cost((10,), (3,), (4,))
    (320, 28, 25)
    """
    if tuple(dp) == tuple(dc):
        return 0
    found = [overlap(extent, p, c) for extent, p, c in zip(shape, dp, dc)]
    sums = {field: prod([getattr(axis, field) for axis in found]) for field in _OVERLAPS}
    moved: int = _repartitioned(prod(shape), prod(map(n_parts, dp)), prod(map(n_parts, dc)), repart, **sums)
    return moved


def repart_table(shape: Sequence[int], producers: Any, consumers: Any, repart: Repart) -> Any:
    """Return `repart_cost` for all pairs: an array (producers, consumers) of int64.

    Parameters
    ----------
    producers, consumers
        Parts per dimension, one row each.
    """
    sums = dict(zip(_OVERLAPS, overlap_tables(shape, producers, consumers, _OVERLAPS)))
    blocks, parts = count_parts(producers)[:, None], count_parts(consumers)[None, :]
    return np.where(_same(producers, consumers), 0, _repartitioned(prod(shape), blocks, parts, repart, **sums))


#: The sums over overlapping blocks (`Overlap`) that repartitioning is priced by.
_OVERLAPS = ("fetched", "sent", "sent_inside", "inside")


def _repartitioned(
    n: int, blocks: Any, parts: Any, repart: Repart, *, fetched: Any, sent: Any, sent_inside: Any, inside: Any
) -> Any:
    """Return the elements that move from `blocks` of a producer to `parts` of a consumer of an array of `n` elements:
    numbers, or tables over pairs of cuts.
    """
    if repart == "paper":
        return fetched - n + sent - sent_inside
    if repart == "worst":
        # one piece of each consumer's block is free if any producer's block lies inside one
        return fetched - n + sent - parts * n // blocks * (inside > 0)
    return fetched - n + sent if repart == "jax" else fetched + sent


def count_parts(cuts: Any) -> Any:
    """Return the number of blocks of each cut."""
    if isinstance(cuts, np.ndarray):
        return cuts.prod(axis=1)
    return np.array([prod(map(n_parts, row)) for row in cuts], np.int64)


def _same(producers: Any, consumers: Any) -> Any:
    if isinstance(producers, np.ndarray) and isinstance(consumers, np.ndarray):
        return (producers[:, None, :] == consumers[None, :, :]).all(axis=2)
    wanted = [tuple(c) for c in np.asarray(consumers).tolist()] if isinstance(consumers, np.ndarray) else consumers
    return np.array([[tuple(p) == tuple(c) for c in wanted] for p in producers])


def repart_costs(graph: EinGraph, plan: Mapping[str, Splits], v: str, repart: Repart) -> int:
    """Return the elements that repartitioning moves into one operation; inputs are free unless they lie in a fixed
    layout.
    """
    op = graph.ops[v]
    total = 0
    for i, u in enumerate(op.inputs):
        made: Sequence[AxisCut] | None
        made = result_parts(graph.ops[u], plan[u]) if u in graph.ops else graph.inputs[u].layout
        if made is not None:
            total += repart_cost(graph.shape(u), made, wanted_parts(op, plan[v], i), repart)
    return total


def graph_cost(graph: EinGraph, plan: Mapping[str, Splits], repart: Repart = "paper") -> int:
    """Return the cost of a labelled graph: operations, and every edge on its own."""
    return sum([op_cost(op, plan[v]) + repart_costs(graph, plan, v, repart) for v, op in graph.ops.items()])
