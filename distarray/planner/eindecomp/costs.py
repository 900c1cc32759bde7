"""Costs of a labelled EinGraph in elements (EinDecomp; specification sections 1.3 to 1.6).

One partition vector per operation, the number of parts of each label, fixes everything. All costs are exact integers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import gcd, prod
from typing import Any, Literal, TypeAlias

import numpy as np

from distarray.planner.eindecomp.graph import EinGraph, EinOp, Label

__all__ = [
    "Repart",
    "Splits",
    "agg_cost",
    "graph_cost",
    "join_cost",
    "n_kernels",
    "op_cost",
    "repart_cost",
    "repart_table",
    "uneven_repart_cost",
]

#: Number of parts of each label of one operation.
Splits: TypeAlias = Mapping[Label, int]
#: Readings of the paper's words on repartitioning.
Repart: TypeAlias = Literal["paper", "worst", "jax", "cpp"]


def n_kernels(d: Splits) -> int:
    """Kernel calls of an operation: the product of the parts of its distinct labels.

    >>> n_kernels({"i": 2, "j": 2, "k": 2})
    8
    """
    return prod(d.values())


def _block(op: EinOp, d: Splits, labels: Sequence[Label]) -> int:
    n = 1
    for x in labels:
        n *= op.extents[x] // d[x]
    return n


def join_cost(op: EinOp, d: Splits) -> int:
    """Elements that go into the kernels of an operation: each reads a block of every input."""
    return n_kernels(d) * sum([_block(op, d, term) for term in op.terms])


def agg_cost(op: EinOp, d: Splits) -> int:
    """Elements that move to combine partial results; zero if no aggregated label is split."""
    n_agg = prod([d[x] for x in op.aggregated])
    return n_kernels(d) // n_agg * (n_agg - 1) * _block(op, d, op.result)


def op_cost(op: EinOp, d: Splits) -> int:
    """Of joining and aggregating."""
    return join_cost(op, d) + agg_cost(op, d)


@lru_cache(maxsize=65536)
def _overlaps(dp: int, dc: int) -> tuple[int, int]:
    """Overlapping pairs of blocks along one dimension, and pairs whose producer lies inside the consumer."""
    inside = sum([j * dc // dp == ((j + 1) * dc - 1) // dp for j in range(dp)])
    return dp + dc - gcd(dp, dc), inside


def repart_cost(shape: Sequence[int], dp: Sequence[int], dc: Sequence[int], repart: Repart = "paper") -> int:
    """Elements that move between a producer's parts and a consumer's; zero if they are equal.

    A consumer block with several pieces receives all but the first; a producer block that is needed in part is sent
    whole, as the paper words it. `repart` chooses another reading.

    >>> repart_cost((8, 8), (2, 4), (4, 1)), repart_cost((12,), (2,), (3,))
    (320, 28)
    """
    if tuple(dp) == tuple(dc):
        return 0
    pairs = inside = consumers = producers = n = 1
    for s, p, c in zip(shape, dp, dc):
        i, w = _overlaps(p, c)
        pairs, inside, consumers, producers, n = pairs * i, inside * w, consumers * c, producers * p, n * s
    n_p, n_c = n // producers, n // consumers
    if repart == "paper":
        return (pairs - consumers) * n_c + (pairs - inside) * n_p
    if repart == "worst":
        return (pairs - consumers) * n_c + (pairs - (consumers if inside else 0)) * n_p
    if repart == "jax":
        return (pairs - consumers) * n_c + pairs * n_p
    return pairs * (n_p + n_c)


def uneven_repart_cost(shape: Sequence[int], dp: Sequence[int], dc: Sequence[int]) -> int:
    """The paper's reading for any extents: block ``j`` of ``q`` is ``[j * e // q, (j + 1) * e // q)``.

    Counted block by block: ``(pieces - 1) * |consumer|``, and ``|producer|`` for each overlap that is only part of one.

    >>> uneven_repart_cost((10,), (3,), (4,))
    25
    """
    if tuple(dp) == tuple(dc):
        return 0
    axes = [_pieces(e, p, c) for e, p, c in zip(shape, dp, dc)]
    total = 0
    for index in np.ndindex(*[len(a) for a in axes]):
        chosen = [axes[i][k] for i, k in enumerate(index)]
        consumer = prod(c for c, _ in chosen)
        n_pieces = prod(len(pieces) for _, pieces in chosen)
        total += (n_pieces - 1) * consumer if n_pieces else 0
        for which in np.ndindex(*[len(pieces) for _, pieces in chosen]):
            overlap = [chosen[i][1][k] for i, k in enumerate(which)]
            producer = prod(b for _, b in overlap)
            if prod(o for o, _ in overlap) != producer:
                total += producer
    return total


def _pieces(e: int, p: int, c: int) -> list[tuple[int, list[tuple[int, int]]]]:
    """For each consumer block its size, and (overlap, size of the producer block) of each piece."""
    found = []
    for j in range(c):
        lo, hi = j * e // c, (j + 1) * e // c
        pieces = []
        for i in range(p):
            a, b = i * e // p, (i + 1) * e // p
            if min(hi, b) > max(lo, a):
                pieces.append((min(hi, b) - max(lo, a), b - a))
        found.append((hi - lo, pieces))
    return found


def repart_table(shape: Sequence[int], producers: Any, consumers: Any, repart: Repart = "paper") -> Any:
    """`repart_cost` for all pairs: an array (producers, consumers) of int64.

    Parameters
    ----------
    producers, consumers
        Parts per dimension, one row each.
    """
    dp, dc = np.asarray(producers, np.int64), np.asarray(consumers, np.int64)
    pairs = inside = np.ones((len(dp), len(dc)), np.int64)
    n = prod(shape)
    for axis in range(dp.shape[1]):
        p, p_at = np.unique(dp[:, axis], return_inverse=True)
        c, c_at = np.unique(dc[:, axis], return_inverse=True)
        found = np.array([[_overlaps(int(x), int(y)) for y in c] for x in p], np.int64)
        pairs = pairs * found[p_at[:, None], c_at[None, :], 0]
        inside = inside * found[p_at[:, None], c_at[None, :], 1]
    count_p, count_c = dp.prod(axis=1), dc.prod(axis=1)
    n_p, n_c = (n // count_p)[:, None], (n // count_c)[None, :]
    if repart == "cpp":
        total = pairs * (n_p + n_c)
    else:
        if repart == "paper":
            sent = pairs - inside
        elif repart == "worst":
            sent = pairs - np.where(inside > 0, count_c[None, :], 0)
        else:
            sent = pairs
        total = (pairs - count_c[None, :]) * n_c + sent * n_p
    same = (dp[:, None, :] == dc[None, :, :]).all(axis=2)
    return np.where(same, 0, total)


def graph_cost(graph: EinGraph, plan: Mapping[str, Splits], repart: Repart = "paper") -> int:
    """The cost of a labelled graph: operations, and every edge on its own (section 1.6).

    Inputs are free unless they lie in a fixed layout.
    """
    total = 0
    for v, op in graph.ops.items():
        d = plan[v]
        total += op_cost(op, d)
        for u, term in zip(op.inputs, op.terms):
            wanted = tuple([d[x] for x in term])
            if u in graph.ops:
                producer = graph.ops[u]
                made = tuple([plan[u][x] for x in producer.result])
                total += repart_cost(producer.shape, made, wanted, repart)
            else:
                layout = graph.inputs[u].layout
                if layout is not None:
                    total += repart_cost(graph.inputs[u].shape, layout, wanted, repart)
    return total
