"""Donation: which blocks an evaluation may overwrite, since nobody needs them afterwards.

Blocks that a task has not made itself are changed only in this process, where no task is repeated, and only if all of
this holds: no live handle and no pending node of any thread needs the old version; nobody else has the block (`loans`);
no kernel of the evaluation can fail midway. That nobody has it is looked up once more when it is written, since other
threads go on meanwhile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from distarray.expr.expr import Expr, Stored, postorder
from distarray.kernels.loans import is_ours, owner

if TYPE_CHECKING:
    from distarray.planner.graph import Graph
    from distarray.planner.plan import Plan


def donated(order: Sequence[Expr], wanted: Collection[int], others: Callable[[], Iterable[Expr] | None]) -> set[int]:
    """Return the memoised nodes whose blocks may be overwritten: nobody needs them afterwards, and nobody else has
    them.

    Parameters
    ----------
    wanted
        ``id`` of the nodes whose results the evaluation keeps. A pending node that a live handle refers to and that is
        not kept is made again later, from what it reads now: views are never kept.
    """
    if not all(_is_safe(n) for n in order if n.memo is None):
        return set()
    unneeded = [n for n in order if n.memo is not None and not n.is_live and _has_any(n.memo)]
    free = {id(n) for n in unneeded}
    if free:
        for node in unneeded:
            node.stored.is_given_up = True
        # Asked after that: what is not live now cannot be read by an operation that begins later.
        found = others()
        if found is None:
            return set()
        needed = list(found)
        free -= {id(n) for n in needed if n.memo is not None}
        pending = [n for n in needed if id(n) not in wanted and n.memo is None]
        if pending:
            free -= {id(n) for n in postorder(pending)}
    return free


def withheld(memo: Stored) -> frozenset[int]:
    """Return numbers of the blocks that somebody else has: they are left as they are, whatever is done to the
    others.
    """
    if memo.exported:
        return frozenset(range(len(memo.blocks)))
    lent = [k for k, block in enumerate(memo.blocks) if k not in memo.shared and not is_ours(block)]
    return memo.shared.union(lent) if lent else memo.shared


def _has_any(memo: Stored) -> bool:
    return not memo.exported and any(k not in memo.shared and is_ours(block) for k, block in enumerate(memo.blocks))


def kept(results: Sequence[tuple[Expr, Stored]], order: Sequence[Expr], taken: Collection[int]) -> None:
    """Set the memos of results, made by our own kernels; note which of their blocks another array has too.

    Parameters
    ----------
    order
        All nodes that were needed.
    taken
        ``id`` of the memoised nodes whose blocks could be overwritten: they are the results' now.
    """
    if results and results[0][0].env.is_cluster:
        for node, stored in results:  # tasks, which are repeated, write no block of another one
            node.settle(stored)
        return
    made: dict[int, tuple[Stored, int]] = {}
    for _, stored in results:
        for k, block in enumerate(stored.blocks):
            there = made.setdefault(id(block), here := (stored, k))
            if there is not here:
                _share(there, here)
            if isinstance(block, np.ndarray) and isinstance(block.base, np.ndarray):
                # A view: never written itself, and what it is a view of is not either.
                there = made.setdefault(id(owner(block)), here)
                if there is not here:
                    _share(there, here)
    for node in order:
        memo = node.memo
        if memo is None:
            continue
        if taken and id(node) in taken:
            # Those that an earlier version has as well were left as they are, and go on to the result.
            for k in memo.shared:
                if (place := made.get(id(memo.blocks[k]))) is not None:
                    _share(place)
            memo.exported = True
            continue
        blocks = memo.blocks if type(memo.blocks) is tuple else memo.present
        if not made.keys().isdisjoint(map(id, blocks)):
            for k, block in enumerate(blocks):
                if id(block) in made:
                    _share(made[id(block)], (memo, k))
    for node, stored in results:
        node.settle(stored)


def _share(*places: tuple[Stored, int]) -> None:
    for memo, k in places:
        memo.share((k,))


def _is_safe(node: Expr) -> bool:
    return (
        node.op.family.is_safe
        and not node.op.may_raise
        # what is made from more than the index, as a file's elements are, may not be there
        and (not node.op.family.is_created or node.op.repeatable)
        and not node.is_to_raise
        and not (node.op.name in ("pow", "power") and node.dtype.kind in "iu")
    )


def inplace_results(
    plan: Plan, graph: Graph, order: Sequence[Expr], others: Callable[[], Iterable[Expr] | None]
) -> dict[int, int]:
    """Return results that may take over the blocks of a node that nobody reads afterwards: result -> that node.

    Writes take over their base, wherever it was made; other results the block of a donated operand.
    """
    free = donated(order, {id(graph.nodes[i]) for i in graph.kept}, others)
    writes: dict[int, tuple[int, int]] = {}
    last: dict[int, int] = {}
    for number, stage in enumerate(plan.stages):
        for access in stage.reads:
            last[access.node] = number
        put = stage.written
        if put >= 0:
            base = graph.base(put)
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
        if not stage.family.is_fused or not stage.stores:
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
