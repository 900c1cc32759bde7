"""Lowering of contractions and kernels on whole blocks: one task per tile of their loops.

Kernels of large tiles that a free loop runs through are computed in parts, where threads are free (`parting`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any, TypeAlias

from distarray.expr.expr import Expr, calls_functions
from distarray.expr.joins import PRODUCT
from distarray.kernels import tasks
from distarray.kernels.contractions import loop_slices
from distarray.kernels.specs import Finish, Folding, Parting, StageSpec, TileSpec
from distarray.kernels.threads import is_helped
from distarray.lower import combining
from distarray.lower.combining import Partials
from distarray.lower.messages import Key
from distarray.lower.records import Draft, Tile
from distarray.lower.route import Arguments
from distarray.lower.state import Lowering
from distarray.planner.loops import Loops

#: Bytes of a part of a result: what is computed in parts is there twice for a while, part by part.
PART_NBYTES = 32 << 20
#: Points of a loop for each thread, so that the outermost such loop is taken.
LONG = 16


def parting(low: Lowering, draft: Draft) -> Parting | None:
    """Return how the kernel of a tile is computed in parts, by threads for which the member has no tiles; or None."""
    is_cluster = low.site.is_cluster
    # In one process members are threads, and share what they have.
    tiles = Counter([tile.member if is_cluster else 0 for tile in draft.tiles])
    n_threads = low.site.n_threads // max(tiles.values(), default=1)
    loops, node = draft.loops, low.graph.nodes[draft.stage.nodes[0]]
    assert loops.operands is not None
    if n_threads < 2 or calls_functions(node):
        return None
    if not is_cluster and draft.stage.family.is_contraction and node.params.join == PRODUCT:
        return None  # BLAS has threads of its own, of which workers of Dask have one
    extents = draft.sharding.shard_shape(loops.extents)
    free = [
        loop
        for loop in loops.results[0]
        if loop not in loops.whole
        and extents[loop] >= n_threads
        and all(axes.count(loop) == 1 for axes in loops.results)
        and all(axes.count(loop) <= 1 for axes in loops.operands)
        and any(loop in axes for axes in loops.operands)
    ]
    if not free or not is_helped(prod(extents)):
        return None
    loop = next((i for i in free if extents[i] >= LONG * n_threads), max(free, key=extents.__getitem__))
    results = zip(loops.results, node.dtypes, strict=True)
    nbytes = sum([prod([extents[i] for i in axes]) * dtype.itemsize for axes, dtype in results])
    n = min(extents[loop], n_threads * max(1, -(-nbytes // (n_threads * PART_NBYTES))))
    axes_of = [axes.index(loop) if loop in axes else -1 for axes in loops.operands]
    halo = tuple([around[axis] if axis >= 0 else (0, 0) for around, axis in zip(loops.halo, axes_of)])
    results_along = tuple([axes.index(loop) for axes in loops.results])
    return Parting(n, tuple(axes_of), results_along, -(-nbytes // n) * n_threads, halo, loop)


#: How partial results of a stage become results: of its node, its loops, and its number.
FinishOf: TypeAlias = Callable[[Expr, Loops, int], Finish]


def finish_of_contraction(node: Expr, loops: Loops, number: int) -> Finish:
    """Return how partial results over parts of the aggregated loops become the elements of a contraction."""
    monoid = node.params.monoid
    return Finish(monoid, monoid, loops.reduced, node.dtype, node.dtype, (), loops.extents, node.dtype)


def finish_of_fold(node: Expr, loops: Loops, number: int) -> Finish:
    """Return how the states of a fold combine, and become its result."""
    dtype, extents = node.dtype, loops.extents
    return Folding(node.op.name, "", loops.reduced, dtype, dtype, node.params, extents, dtype, node=number)


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
    for at in results:
        low.fill_empty(at)


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
