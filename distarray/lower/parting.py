"""Which kernels are computed in parts: those of large tiles that a free loop runs through, where threads are free."""

from __future__ import annotations

from collections import Counter
from math import prod

from distarray.expr.expr import calls_functions
from distarray.expr.joins import PRODUCT
from distarray.kernels.specs import Parting
from distarray.kernels.threads import HELPED, SOME
from distarray.lower.records import Draft
from distarray.lower.state import Lowering

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
    if not free or prod(extents) * SOME < HELPED:
        return None
    loop = next((i for i in free if extents[i] >= LONG * n_threads), max(free, key=extents.__getitem__))
    results = zip(loops.results, node.dtypes, strict=True)
    nbytes = sum([prod([extents[i] for i in axes]) * dtype.itemsize for axes, dtype in results])
    n = min(extents[loop], n_threads * max(1, -(-nbytes // (n_threads * PART_NBYTES))))
    axes_of = [axes.index(loop) if loop in axes else -1 for axes in loops.operands]
    halo = tuple([around[axis] if axis >= 0 else (0, 0) for around, axis in zip(loops.halo, axes_of)])
    results_along = tuple([axes.index(loop) for axes in loops.results])
    return Parting(n, tuple(axes_of), results_along, -(-nbytes // n) * n_threads, halo, loop)
