"""Lowering of contractions and kernels on whole blocks: one task per tile of their loops."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

from distarray.expr.expr import Expr
from distarray.kernels import tasks
from distarray.kernels.contractions import loop_slices
from distarray.kernels.specs import Finish, Folding, StageSpec, TileSpec
from distarray.lower import combining
from distarray.lower.combining import Partials
from distarray.lower.messages import Key
from distarray.lower.parting import parting
from distarray.lower.records import Draft, Tile
from distarray.lower.route import Arguments
from distarray.lower.state import Lowering
from distarray.planner.loops import Loops

#: How partial results of a stage become results: of its node, its loops, and its number.
FinishOf: TypeAlias = Callable[[Expr, Loops, int], Finish]


def finish_of_contraction(node: Expr, loops: Loops, number: int) -> Finish:
    """Return how partial results over parts of the aggregated loops become the elements of a contraction."""
    monoid = node.params.monoid
    return Finish(monoid, monoid, loops.reduced, node.dtype, node.dtype, (), loops.extents)


def finish_of_fold(node: Expr, loops: Loops, number: int) -> Finish:
    """Return how the states of a fold combine, and become its result."""
    return Folding(node.op.name, "", loops.reduced, node.dtype, node.dtype, node.params, loops.extents, node=number)


def second_pass(low: Lowering, draft: Draft, *, run: Callable[..., Any], finish: FinishOf | None) -> None:
    """Make the tasks of a stage that runs a kernel on whole blocks.

    Parameters
    ----------
    run
        The kernel of a tile.
    finish
        How its partial results become results; None where there are none.
    """
    i, loops = draft.stage.nodes[0], draft.loops
    results = low.several.get(i) or [low.located[i]]
    for at in results:
        at.refs = [None] * len(at.members)
    parts = parting(low, draft) if run in (tasks.run_block, tasks.run_contract) else None
    spec = low.share(replace(_kernel_spec(low, draft, finish), parts=parts))
    partials: Partials = {}
    alone = all(draft.sharding.parts[a] == 1 for a in loops.reduced)
    for tile in draft.tiles:
        indices = [tuple([tile.index[a] for a in axes]) for axes in loops.results]
        boxes = [at.box(index) for at, index in zip(results, indices, strict=True)]
        if not any(all(box) for box in boxes):
            continue
        if not (alone or all(tile.box)) and spec.finishes and spec.finishes[0].skips_empty_tiles:
            continue
        key = _emit_kernel(low, draft, spec, tile, tuple(map(len, boxes[0])), alone, run)
        if spec.finishes and not alone:
            partials.setdefault(indices[0], []).append((key, tile.member))
            continue
        keys = low.results(key, len(results), tile.member, tile.number)
        for at, index, box, k in zip(results, indices, boxes, keys, strict=True):
            at.note(at.sharding.number(index), tile.member, k, is_again=tile.is_again)
            low.allocated(box, at.dtype, tile.member)
    if spec.finishes and not alone:
        combining.combine(low, i, spec, 0, partials)
    # tiles without elements, and sums over no elements
    for at in results:
        for number, index in enumerate(at.sharding.tiles()):
            if at.refs[number] is None:
                shape = tuple(map(len, at.box(index)))
                at.refs[number] = low.backend_here(at.members[number]).zeros(shape, at.dtype)


def _kernel_spec(low: Lowering, draft: Draft, finish: FinishOf | None) -> StageSpec:
    number, loops = draft.stage.nodes[0], draft.loops
    node = low.graph.nodes[number]
    finishes = () if finish is None else (finish(node, loops, number),)
    return StageSpec(
        None,
        stores=node.dtypes,
        finishes=finishes,
        device=low.env.device,
        name=getattr(node.params, "name", node.op.name),
        params=node.params,
        extents=loops.extents,
    )


def _emit_kernel(
    low: Lowering,
    draft: Draft,
    spec: StageSpec,
    tile: Tile,
    shape: tuple[int, ...],
    alone: bool,
    run: Callable[..., Any],
) -> Key:
    """Return the task of a tile, whose first result has `shape`."""
    args = Arguments()
    reads = low.reads(draft.readings, tile.wants, args)
    at_operand = tile.box if draft.loops.tiling is None else draft.readings[0].box(tile.box)
    record = TileSpec(
        tile.member,
        shape,
        generated=tuple(args.generated),
        finish=(shape if alone else None,) if spec.finishes else (),
        reads=reads,
        along=loop_slices(spec, reads, shape) if run is tasks.run_contract else None,
        offset=tuple([r.start for r in at_operand]),
    )
    key = low.emit("tile", spec.name, run, (spec, record, *args.given), tile.member, tile.number)
    low.routes.made(tile.member, key)
    return key
