"""Donation: which blocks an evaluation may overwrite, since nobody needs them afterwards.

Blocks that a task has not made itself are changed only in this process, where no task is repeated, and only if all of
this holds: no live handle and no pending node of any thread needs the old version; nobody else has the block (`loans`);
no kernel of the evaluation can fail midway. That nobody has it is looked up once more when it is written, since other
threads go on meanwhile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from distarray.errors import BlocksLostError
from distarray.expr.expr import Expr, LazyBlocks, Others, Stored, postorder
from distarray.kernels.loans import is_ours, owner, watch, were_overwritten

if TYPE_CHECKING:
    from distarray.planner.graph import Graph
    from distarray.planner.plan import Plan, Stage


def donated(order: Sequence[Expr], wanted: Collection[int], others: Others) -> set[int]:
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
    if memo.home_copy is not None:
        return False  # its blocks are elsewhere
    return not memo.exported and any(k not in memo.shared and is_ours(block) for k, block in enumerate(memo.blocks))


def commit(results: Sequence[tuple[Expr, Stored]], order: Sequence[Expr], taken: Collection[int]) -> None:
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


class _Spoiled(LazyBlocks):
    """_Spoiled are blocks that an evaluation was overwriting when it failed: who asks for them is told so."""

    def __init__(self, n: int) -> None:
        self._n = n

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, number: Any) -> Any:
        raise BlocksLostError("the array was being updated in place when memory ran out, and is lost: make it again")

    @property
    def handles(self) -> Sequence[Any]:
        return self[:]  # type: ignore[no-any-return]  # raises


@contextmanager
def overwriting(order: Iterable[Expr]) -> Iterator[None]:
    """Return a context in which blocks of nodes that nobody needs are overwritten: if it fails midway, which takes that
    memory runs out, none that was begun is ever read again.
    """
    memos = [n.memo for n in order if n.memo is not None and not n.is_live and type(n.memo.blocks) in (list, tuple)]
    watch([block for memo in memos for block in memo.blocks])
    has_failed = True
    try:
        yield
        has_failed = False
    finally:
        for memo in memos:
            if were_overwritten(memo.blocks) and has_failed:
                memo.blocks, memo.exported = _Spoiled(len(memo.blocks)), True


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


def inplace_results(plan: Plan, graph: Graph, order: Sequence[Expr], others: Others) -> dict[int, int]:
    """Return results that may take over the blocks of a node that nobody reads afterwards: result -> that node.

    Writes take over their base, wherever it was made; other results the block of a donated operand.
    """
    nodes, stages = graph.nodes, list(enumerate(plan.stages))
    donors = donated(order, {id(nodes[i]) for i in graph.kept}, others)
    free = {i for i, node in enumerate(nodes) if node.memo is not None and id(node) in donors}
    #: By node the last stage that reads it, or writes into it.
    last = {i: number for number, stage in stages for i in graph.read_by(stage)}
    writes = [(stage.written, graph.base(stage.written), number) for number, stage in stages if stage.written >= 0]
    n_writes = Counter(base for _, base, _ in writes)
    result = {
        put: base
        for put, base, number in writes
        if last[base] == number
        and n_writes[base] == 1
        and base not in graph.kept
        and (base in free or nodes[base].memo is None)
    }
    taken = set(result.values())
    for number, stage in stages:
        if not stage.family.is_fused or not stage.stores:
            continue
        readers = Counter(a.node for a in stage.reads)
        found = [a.node for a in stage.reads if a.node in free and not a.path]
        found = [i for i in found if last[i] == number and readers[i] == 1]
        for register, made in stage.stores:
            kind = nodes[made].shape, nodes[made].dtype
            alike = [i for i in found if i not in taken and (nodes[i].shape, nodes[i].dtype) == kind]
            if alike:
                result[made] = alike[0] if len(alike) == 1 else _free_first(alike, stage, register)
                taken.add(result[made])
    return result


def _free_first(donors: Sequence[int], stage: Stage, register: int) -> int:
    """Return one of the operands of a program that its result in a register may take over: where there is one that is
    read no later than the result is made, so that it is not made elsewhere and copied.
    """
    n = len(stage.reads)
    later = [x for i in stage.instructions[register - n + 1 :] for x in i.inputs] + [c.register for c in stage.combines]
    read_later = {stage.reads[x].node for x in later if type(x) is int and x < n}
    return next((i for i in donors if i not in read_later), donors[0])
