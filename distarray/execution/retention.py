"""Retention: which results of an evaluation are kept, because a live handle still refers to them."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from distarray import config
from distarray.execution.memory import memory_limit
from distarray.expr.expr import Environment, Expr

__all__ = ["result_nbytes", "retained", "streams"]


def retained(nodes: Sequence[Expr], env: Environment) -> set[int]:
    """Pending nodes whose results are kept although nobody asked for them: a live handle still refers to them.

    Never kept: lenses and constants. Always kept: written bases. The rest as long as it fits the memory limit; what a
    kernel makes from nothing goes first, then what is largest: a handle on an array larger than memory streams.
    """
    live = [n for n in nodes if n.is_live and not n.op.repeatable and n.op.kind != "get"]
    if not live or config.get("retain") == "none":
        return {id(n) for n in live if n.op.kind in ("put", "take_put")}
    room = memory_limit(env) * env.size // 2
    kept = set()
    for n in sorted(
        live, key=lambda n: (n.op.kind not in ("put", "take_put"), n.op.kind == "create", result_nbytes(n))
    ):
        room -= result_nbytes(n)
        if room >= 0 or n.op.kind in ("put", "take_put"):
            kept.add(id(n))
    return kept


def streams(node: Expr) -> bool:
    """Whether a pending result is computed anew wherever it is read rather than kept: it would not fit in memory."""
    if node.op.kind in ("put", "take_put"):
        return False
    return node.op.kind == "create" or result_nbytes(node) > memory_limit(node.env) * node.env.size // 2


def result_nbytes(node: Expr) -> int:
    """Bytes of a node's result, or of all its results."""
    if type(node.dtype) is tuple:
        shapes: Any = node.shape  # one for each result
        return sum(prod(s) * d.itemsize for s, d in zip(shapes, node.dtype, strict=True))
    return node.nbytes
