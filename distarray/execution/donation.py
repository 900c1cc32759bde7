"""Donation: which blocks an evaluation may overwrite, since nobody needs them afterwards.

Blocks are changed only in this process, where no task is retried, and only if all of this holds: no live handle and no
pending node of any thread needs the old version; nobody else refers to the block; no kernel of the evaluation can
fail midway.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from distarray.expr.expr import Expr, Stored, postorder

if TYPE_CHECKING:
    from distarray.planner.graph import Graph
    from distarray.planner.plan import Plan

__all__ = ["donated", "inplace_results", "is_unshared"]

#: Families whose kernels cannot fail midway, so that a failed evaluation leaves all blocks as they were.
_SAFE = frozenset({"map", "reduce", "get", "put", "create", "reshape", "contract", "item"})


def donated(order: Sequence[Expr], wanted: Collection[int], others: Callable[[], Iterable[Expr]]) -> set[int]:
    """Memoised nodes whose blocks may be overwritten: nobody needs them afterwards, and nobody else has them.

    Parameters
    ----------
    wanted
        ``id`` of the nodes whose results the evaluation keeps. A pending node that a live handle refers to and that is
        not kept is made again later, from what it reads now: views are never kept.
    """
    if not all(_is_safe(n) for n in order if n.memo is None):
        return set()
    free = {id(n) for n in order if n.memo is not None and not n.is_live and is_unshared(n.memo)}
    if free:
        needed = list(others())
        free -= {id(n) for n in needed if n.memo is not None}
        pending = [n for n in needed if id(n) not in wanted and n.memo is None]
        if pending:
            free -= {id(n) for n in postorder(pending)}
    return free


def is_unshared(memo: Stored) -> bool:
    """Whether the memo alone refers to its blocks: no view, no DLPack capsule, no piece of user code has them."""
    if memo.exported:
        return False
    for block in memo.blocks:
        # References: the sequence, the loop's name, the argument. A view of a block refers to the block, unless the
        # block is a view itself: then to its base, which is why such blocks count as shared.
        if type(block) is not np.ndarray or isinstance(block.base, np.ndarray) or sys.getrefcount(block) > 3:
            return False
        if not block.flags.writeable:
            return False
    return True


def _is_safe(node: Expr) -> bool:
    return (
        node.op.kind in _SAFE
        and not node.op.may_raise
        # what is made from more than the index, as a file's elements are, may not be there
        and (node.op.kind != "create" or node.op.repeatable)
        and (node.errstate is None or "raise" not in node.errstate)
        and not (node.op.name in ("pow", "power") and node.dtype.kind in "iu")
    )


def inplace_results(
    plan: Plan, graph: Graph, order: Sequence[Expr], others: Callable[[], Iterable[Expr]]
) -> dict[int, int]:
    """Results that may take over the blocks of a node that nobody reads afterwards: result -> that node.

    Writes take over their base, wherever it was made; other results the block of a donated operand.
    """
    free = donated(order, {id(graph.nodes[i]) for i in graph.kept}, others)
    writes: dict[int, tuple[int, int]] = {}
    last: dict[int, int] = {}
    for number, stage in enumerate(plan.stages):
        for access in stage.reads:
            last[access.node] = number
        put = -1
        if stage.write is not None:
            put = stage.write[1]
        elif stage.kind == "take_put":
            put = stage.nodes[0]
        if put >= 0:
            base = graph.operands[put][0]
            assert base is not None
            last[base] = max(last.get(base, -1), number)
            writes[put] = (base, number)
    result: dict[int, int] = {}
    bases = Counter(base for base, _ in writes.values())
    for put, (base, number) in writes.items():
        node = graph.nodes[base]
        if last[base] > number or base in graph.kept or bases[base] > 1:
            continue
        if node.memo is None or id(node) in free:
            result[put] = base
    taken = set(result.values())
    for number, stage in enumerate(plan.stages):
        if stage.kind != "program" or not stage.stores:
            continue
        readers = Counter(a.node for a in stage.reads)
        for _, i in stage.stores:
            for access in stage.reads:
                node = graph.nodes[access.node]
                if (
                    id(node) in free
                    and node.memo is not None
                    and last[access.node] == number
                    and access.node not in taken
                    and readers[access.node] == 1
                    and not access.path
                    and node.shape == graph.nodes[i].shape
                    and node.dtype == graph.nodes[i].dtype
                ):
                    result[i] = access.node
                    taken.add(access.node)
                    break
    return result
