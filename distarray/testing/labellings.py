"""Usual ways to cut a workload, to compare plans with: parts of each label by operation, for `distarray.plan_cost`.

Their operations may have more or fewer kernels than there are workers; labels that are left out have one part.
"""

from __future__ import annotations

from math import gcd, isqrt, prod
from typing import Any

__all__ = ["attention", "data_parallel", "hidden_parallel", "megatron", "n_kernels", "sequence", "sqrt_parts"]

Json = dict[str, Any]
Labelling = dict[str, dict[str, int]]


def _operations(graph: Json) -> dict[str, set[str]]:
    """Return the labels of each operation."""
    return {node["id"]: {x for x in node["expr"] if x.isalpha()} for node in graph["nodes"] if "expr" in node}


def _by_label(graph: Json, label: str, p: int) -> Labelling:
    return {v: {label: p} if label in labels else {} for v, labels in _operations(graph).items()}


def data_parallel(graph: Json, p: int) -> Labelling:
    """Return the batch, label ``b``, in `p` parts; what has no batch is not cut."""
    return _by_label(graph, "b", p)


def sequence(graph: Json, p: int) -> Labelling:
    """Return the sequence, label ``s``, in `p` parts."""
    return _by_label(graph, "s", p)


def hidden_parallel(graph: Json, p: int) -> Labelling:
    """Return the hidden layer, label ``h``, in `p` parts; what has none by its output label ``o``."""
    return {
        v: {"h": p} if "h" in labels else {"o": p} if "o" in labels else {}
        for v, labels in _operations(graph).items()
    }  # fmt: skip


def sqrt_parts(graph: Json, p: int) -> Labelling:
    """Return every label in the square root of `p` parts: products then have more than `p` kernels.

    Extents that this does not divide are in as many parts as divide both.

    Raises
    ------
    ValueError
        If `p` is no square.
    """
    q = isqrt(p)
    if q * q != p:
        raise ValueError(f"p = {p} is no square")
    shapes = {node["id"]: node["shape"] for node in graph["nodes"] if "shape" in node}
    made: Labelling = {}
    for node in graph["nodes"]:
        if "expr" not in node:
            continue
        left, _, right = node["expr"].replace(" ", "").partition("->")
        extents = dict(node.get("sizes", {}))
        for term, u in zip(left.split(","), node["inputs"]):
            extents |= dict(zip(term, shapes[u]))
        shapes[node["id"]] = [extents[x] for x in right]
        made[node["id"]] = {x: gcd(q, n) for x, n in extents.items()}
    return made


def _tensor_parallel(graph: Json, p: int, feed_forward: str) -> Labelling:
    """Return heads of attention in `p` parts, products of the feed-forward network by a label, and the rest by
    sequence.
    """
    made: Labelling = {}
    for v, labels in _operations(graph).items():
        if v.startswith("wo_"):
            made[v] = {"e": p}  # the heads over which it sums
        elif "m" in labels:
            made[v] = {feed_forward: p}
        elif "t" in labels or labels >= {"e", "f"}:
            made[v] = {"h": p}
        else:
            made[v] = {"s": p}
    return made


def megatron(graph: Json, p: int) -> Labelling:
    """Return column and row parallelism of a LLaMA graph: heads and inner layer in `p` parts, norms and sums by
    sequence.
    """
    return _tensor_parallel(graph, p, "m")


def attention(graph: Json, p: int) -> Labelling:
    """Return heads of a LLaMA graph in `p` parts inside attention, the sequence outside of it."""
    return _tensor_parallel(graph, p, "s")


def n_kernels(labelling: Labelling) -> tuple[int, int]:
    """Return the fewest and the most kernels of an operation."""
    counts = [prod(parts.values()) for parts in labelling.values()]
    return min(counts), max(counts)
