"""Lowering of reshapes: a tile of the result is, in each group of axes, one run of elements of the source."""

from __future__ import annotations

from itertools import product
from math import prod

from distarray.expr.lens import Affine, reshape_groups
from distarray.kernels import tasks
from distarray.kernels.specs import Region, StageSpec, TileSpec
from distarray.lower.copies import again, makers
from distarray.lower.records import Draft
from distarray.lower.route import Arguments, Want
from distarray.lower.state import Lowering
from distarray.sharding.boxes import Box, size


def first_pass(low: Lowering, draft: Draft) -> None:
    """Say what every tile reads: a few boxes of the source."""
    node = low.graph.nodes[draft.stage.nodes[0]]
    r = draft.readings[0]
    old = r.lens.shape
    groups = reshape_groups(old, node.shape)
    runs_of_tile = []
    for tile in draft.new_tiles():
        box = tile.box
        reads: list[tuple[int, Affine, Box]] = []
        places: list[tuple[tuple[slice, ...], tuple[int, ...]]] = []
        extents: list[int] = []
        per_group: list[list[tuple[slice, Box]]] = []
        for source_axes, result_axes in groups:
            lo, hi = 0, 1
            if result_axes:
                first = box[result_axes[0]]
                inner = prod([node.shape[a] for a in result_axes[1:]])
                lo, hi = first.start * inner, first.stop * inner
            extents.append(hi - lo)
            per_group.append(
                [
                    (slice(start - lo, stop - lo), b)
                    for start, stop, b in _runs(lo, hi, tuple([old[a] for a in source_axes]))
                ]
            )
        for chosen in product(*per_group) if all(box) else ():
            source: list[range] = [range(0)] * len(old)
            for (source_axes, _), (_, b) in zip(groups, chosen, strict=True):
                for a, s in zip(source_axes, b, strict=True):
                    source[a] = s
            reads.append((low.source(r.node), r.lens, tuple(source)))
            place = tuple([c[0] for c in chosen])
            places.append((place, tuple([s.stop - s.start for s in place])))
        tiles = [tile, *[again(draft, tile, member, []) for member in makers(low, draft, tile.index, reads)]]
        for made in tiles:
            made.wants = [low.routes.want(*read, made.member) for read in reads]
        draft.tiles += tiles
        runs_of_tile += [(tuple(extents), places)] * len(tiles)
    draft.extra = runs_of_tile


def second_pass(low: Lowering, draft: Draft) -> None:
    """Make the tasks of a stage that gives elements another shape."""
    stage, nodes = draft.stage, low.graph.nodes
    i = stage.nodes[0]
    node = nodes[i]
    at = low.located[i]
    spec = low.share(StageSpec(None, (), (node.dtype,), device=low.env.device, name="reshape"))
    for tile, (extents, places) in zip(draft.tiles, draft.extra, strict=True):
        if not all(tile.box):
            at.refs[tile.number] = low.empty_tile(tile, node.dtype)
            continue
        args = Arguments()
        reads = low.reads([draft.readings[0]] * len(tile.wants), tile.wants, args)
        regions = tuple([Region(place, shape, (), ()) for place, shape in places])
        record = TileSpec(
            tile.member,
            tuple(map(len, tile.box)),
            regions,
            generated=tuple(args.generated),
            reads=reads,
            offset=extents,
            is_view=len(reads) == 1 and _may_be_view(low, i, tile.wants[0]),
        )
        key = low.emit("tile", "reshape", tasks.run_reshape, (spec, record, *args.given), tile.member, tile.number)
        low.allocated(tile.box, node.dtype, tile.member)
        at.note(at.sharding.number(tile.index), tile.member, key, is_again=tile.is_again)


def _may_be_view(low: Lowering, i: int, want: Want) -> bool:
    """Return whether a tile that reads one run of elements may be a view of the block that has them.

    Within a run nobody writes a block that it reads, if it takes over none. What is kept is a block of its own in this
    process, where later runs may take over that which it would be a view of; on a cluster no run does. A view of a part
    of a block holds all of it, so it is only one of what is there before and after the run.
    """
    is_part = len(want.fragments) != 1
    if not is_part:
        index, _, source, _ = want.fragments[0]
        is_part = size(source) != size(low.located[want.node].box(index))
    if i in low.plan.outputs:
        return low.site.is_cluster and not is_part
    return not low.inplace and not (is_part and (low.site.is_cluster or low.graph.nodes[want.node].memo is None))


def _runs(lo: int, hi: int, shape: tuple[int, ...]) -> list[tuple[int, int, Box]]:
    """Return the run of elements lo..hi of an array in C order, as boxes: at most 2 * rank - 1 of them.

    Returns
    -------
    list of (start, stop, box)
        Each box holds the elements start..stop, in its own C order.
    """
    if lo >= hi:
        return []
    if not shape:
        return [(0, 1, ())]
    if len(shape) == 1:
        return [(lo, hi, (range(lo, hi),))]
    inner = prod(shape[1:])
    first, last = lo // inner, (hi - 1) // inner
    out: list[tuple[int, int, Box]] = []

    def descend(row: int, a: int, b: int) -> None:
        for start, stop, box in _runs(a - row * inner, b - row * inner, shape[1:]):
            out.append((start + row * inner, stop + row * inner, (range(row, row + 1), *box)))

    whole_first = first if lo == first * inner else first + 1
    whole_last = last + 1 if hi == (last + 1) * inner else last
    if whole_first > first and (first < last or whole_first > whole_last or lo % inner):
        descend(first, lo, min(hi, (first + 1) * inner))
    if whole_first < whole_last:
        out.append(
            (whole_first * inner, whole_last * inner, (range(whole_first, whole_last), *[range(n) for n in shape[1:]]))
        )
    if whole_last == last and last >= whole_first:
        descend(last, last * inner, hi)
    return out
