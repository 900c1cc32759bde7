"""Lowering of contractions and kernels on whole blocks: one task per tile of their loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from distarray.kernels import tasks
from distarray.kernels.specs import Finish, Folding, StageSpec, TileSpec
from distarray.lower import combining
from distarray.lower.combining import Partials
from distarray.lower.records import Draft, Tile
from distarray.lower.route import Arguments, Key
from distarray.lower.state import Lowering

__all__ = ["second_pass"]

#: What runs in a task for each family of kernels.
_KERNELS: dict[str, Callable[..., Any]] = {
    "block": tasks.run_block,
    "contract": tasks.run_contract,
    "fold": tasks.run_fold,
    "tiles": tasks.run_tiles,
    "windows": tasks.run_tiles,
}


def second_pass(low: Lowering, draft: Draft) -> None:
    """Make the tasks of a stage that runs a kernel on whole blocks."""
    i, loops = draft.stage.nodes[0], draft.loops
    results = low.several.get(i) or [low.located[i]]
    for at in results:
        at.refs = [None] * at.sharding.n_tiles
    spec = low.share(_kernel_spec(low, draft))
    partials: Partials = {}
    alone = all(draft.sharding.parts[a] == 1 for a in loops.reduced)
    for tile in draft.tiles:
        indices = [tuple([tile.index[a] for a in axes]) for axes in loops.results]
        boxes = [at.box(index) for at, index in zip(results, indices, strict=True)]
        if not any(all(box) for box in boxes):
            continue
        if not (alone or all(tile.box)) and _adds_nothing(draft):
            continue
        key = _emit_kernel(low, draft, spec, tile, tuple(map(len, boxes[0])), alone)
        if spec.finishes and not alone:
            partials.setdefault(indices[0], []).append((key, tile.member))
            continue
        keys = low.results(key, len(results), tile.member, tile.number)
        for at, index, box, k in zip(results, indices, boxes, keys, strict=True):
            at.refs[at.number(index)] = k
            low.allocated(box, at.dtype)
    if spec.finishes and not alone:
        combining.combine(low, i, spec.finishes[0], partials)
    # tiles without elements, and sums over no elements
    for at in results:
        for number, index in enumerate(at.sharding.tiles()):
            if at.refs[number] is None:
                shape = tuple(map(len, at.box(index)))
                at.refs[number] = low.backend_here(at.members[number]).zeros(shape, at.dtype)


def _adds_nothing(draft: Draft) -> bool:
    """Return whether a tile of loops without elements gives no partial result."""
    loops = draft.loops
    if draft.stage.kind == "fold":
        return all(loops.extents[a] for a in loops.reduced)
    return draft.stage.kind == "contract" and bool(loops.reduced)


def _kernel_spec(low: Lowering, draft: Draft) -> StageSpec:
    node, loops = low.graph.nodes[draft.stage.nodes[0]], draft.loops
    finishes: tuple[Finish, ...] = ()
    if draft.stage.kind == "contract":
        monoid = node.params.monoid
        finishes = (Finish(monoid, monoid, loops.reduced, node.dtype, node.dtype, (), loops.extents),)
    elif draft.stage.kind == "fold":
        number = draft.stage.nodes[0]
        facts = (node.op.name, "", loops.reduced, node.dtype, node.dtype, node.params, loops.extents)
        finishes = (Folding(*facts, node=number),)
    return StageSpec(
        None,
        (),
        tuple(node.dtype) if isinstance(node.dtype, tuple) else (node.dtype,),
        finishes,
        False,
        (),
        low.env.device,
        node.errstate,
        (),
        node.op.name,
        node.params,
        loops.extents,
    )


def _emit_kernel(low: Lowering, draft: Draft, spec: StageSpec, tile: Tile, shape: tuple[int, ...], alone: bool) -> Key:
    """Return the task of a tile, whose first result has `shape`."""
    stage = draft.stage
    args = Arguments()
    found = [low.routes.parts(w, args) for w in tile.wants]
    reads = tuple([low.read(r, w.box, f, args) for r, w, f in zip(draft.readings, tile.wants, found, strict=True)])
    at_operand = draft.readings[0].box(tile.box) if stage.kind == "tiles" else tile.box
    record = TileSpec(
        tile.member,
        shape,
        generated=tuple(args.generated),
        finish=(shape if alone else None,) if spec.finishes else (),
        reads=reads,
        offset=tuple([r.start for r in at_operand]),
    )
    key = low.emit("tile", spec.name, _KERNELS[stage.kind], (spec, record, *args.given), tile.member, tile.number)
    low.routes.made(tile.member, key)
    for where in args.direct:
        low.routes.readers.setdefault(where, []).append(key)
    return key
