"""Lowering of integer-array reads and writes: routes whose table is the value of the index arrays.

A read cuts the index arrays, not the source: a tile of the result asks every source tile that it may touch, and each
answers with the elements that it has (`take_part`, `take_join`). A write cuts the values: each tile of values says what
it has for every tile of the base (`put_part`), and the base's tile applies the parts in order (`put_join`), so that of
repeated indices the last one wins. Where all is at hand, one task does it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby, pairwise, product
from math import prod
from typing import Any

from distarray.expr.expr import Expr
from distarray.expr.lens import Affine
from distarray.kernels import tasks
from distarray.kernels.specs import StageSpec, TileSpec
from distarray.lower.block_kernels import parting
from distarray.lower.copies import again, begin_version, makers, writers
from distarray.lower.records import Draft, Source, Tile
from distarray.lower.route import Arguments
from distarray.lower.state import Lowering
from distarray.planner.loops import Reading
from distarray.sharding.boxes import Box, intersect, size

# ------------------------------------------------------------------------------------------------------ reads


def _source_boxes(low: Lowering, r: Reading, view: Box) -> list[Box]:
    """Return the boxes of an operand's view that single source tiles hold: what each of them is asked for."""
    at = low.located[low.source(r.node)]
    if at.on_client or at.create is not None:
        return [view]
    return [seen for _, _, seen in r.lens.fragments(view, at.boundaries)]


def first_pass_of_reads(low: Lowering, draft: Draft) -> None:
    """Say what every tile reads at positions."""
    n_before: Counter[int] = Counter()
    for tile in draft.new_tiles():
        reads = [(low.source(r.node), r.lens, r.box(tile.box)) for r in draft.readings]
        for made in (tile, *[again(draft, tile, member, []) for member in makers(low, draft, tile.index, reads)]):
            draft.tiles.append(made)
            draft.sources.append(_sources_of_reads(low, draft, made, n_before[made.member]) if all(tile.box) else [])
            n_before[made.member] += 1


def _sources_of_reads(low: Lowering, draft: Draft, tile: Tile, turn: int) -> list[Source]:
    """Return whom a tile asks: where it reads of several tiles, each of them where it lies; `turn`: how many tiles its
    member makes before it.
    """
    x, *index = draft.readings
    at = low.located[low.source(x.node)]
    views = _source_boxes(low, x, x.box(tile.box))
    sources = []
    for view in views:
        where = tile.member
        if len(views) > 1 and at.members:
            first = x.lens.fragments(view, at.boundaries)[0][0]
            where = at.members[at.near(at.sharding.number(first), tile.member)]
        wants = [low.routes.want(low.source(x.node), x.lens, view, where, turn=turn)]
        wants += [low.routes.want(low.source(r.node), r.lens, r.box(tile.box), where, turn=turn) for r in index]
        sources.append(Source(where, view, wants))
    return sources


def second_pass_of_reads(low: Lowering, draft: Draft) -> None:
    """Make the tasks of a stage that reads at positions."""
    stage = draft.stage
    i = stage.nodes[0]
    node = low.graph.nodes[i]
    at = low.located[i]
    made = StageSpec(None, (), (node.dtype,), device=low.env.device, name="take", params=node.params)
    is_alone = all(len(sources) < 2 for sources in draft.sources)  # else tiles are joined of what each source has
    spec = low.share(replace(made, parts=parting(low, draft) if is_alone else None))
    for tile, sources in zip(draft.tiles, draft.sources, strict=True):
        if not sources:
            at.refs[tile.number] = low.empty_tile(tile, node.dtype)
            continue
        shape = tuple(map(len, tile.box))
        low.allocated(tile.box, node.dtype, tile.member)
        parts: list[tuple[Any, int]] = []
        loops = draft.readings[0].loops
        for where, several in _by_member(sources):
            args, record = _reads(low, draft, several, where, shape)
            if len(sources) == 1:
                key = low.emit("tile", "take", tasks.run_take, (spec, record, *args.given), where, tile.number)
            else:
                starts = tuple(
                    [
                        tuple([r.start - (0 if k is None else tile.box[k].start) for r, k in zip(s.box, loops)])
                        for s in several
                    ]
                )
                key = low.emit(
                    "piece", "take-part", tasks.take_part, (spec, record, starts, *args.given), where, tile.number
                )
            parts.append((key, where))
        if len(sources) > 1:
            rows = shape[0] if shape else 1
            for ref, where in parts:
                low.messages.carry(ref, where, tile.member, rows, prod(shape) * node.dtype.itemsize // len(parts))
            given = (spec, TileSpec(tile.member, shape), *[k for k, _ in parts])
            key = low.emit("tile", "take", tasks.take_join, given, tile.member, tile.number)
        low.routes.made(tile.member, key)
        at.note(at.sharding.number(tile.index), tile.member, key, is_again=tile.is_again)


def _by_member(sources: Sequence[Source]) -> Iterator[tuple[int, list[Source]]]:
    """Yield the sources that follow each other at one member: one task answers for all of them, and one message."""
    for member, several in groupby(sources, lambda source: source.member):
        yield member, list(several)


def _reads(
    low: Lowering, draft: Draft, sources: Sequence[Source], member: int, shape: tuple[int, ...]
) -> tuple[Arguments, TileSpec]:
    """Return the arguments of a task, and its record: the reads of all sources one after the other."""
    args = Arguments()
    wants = [want for source in sources for want in source.wants]
    reads = low.reads([r for _ in sources for r in draft.readings], wants, args)
    return args, TileSpec(member, shape, generated=tuple(args.generated), reads=reads)


# ----------------------------------------------------------------------------------------------------- writes


def _value_readings(low: Lowering, draft: Draft) -> tuple[tuple[int, ...], list[Reading]]:
    """Return the extents of the loops of the values, and value and index operands broadcast to them."""
    node = low.graph.nodes[draft.stage.nodes[0]]
    axes, at, n_index, _ = node.params
    base = low.graph.nodes[draft.base]
    index = [o for o in node.operands[2:] if type(o) is Expr]
    lead: list[int] = [1] * n_index
    for o in index:
        for i, n in enumerate(o.shape):
            if n != 1:
                lead[n_index - o.ndim + i] = n
    rest = [n for a, n in enumerate(base.shape) if a not in axes]
    extents = (*rest[:at], *lead, *rest[at:])
    out = []
    for p, r in enumerate(draft.readings[1:]):
        if p == 0:
            lens = r.lens.broadcast(extents)
        else:
            lens = r.lens.broadcast(tuple(lead))
            # the loops before and after the index loops are new axes of the index operand
            lens = Affine(extents, tuple([(None if a is None else a + at, s, t) for a, s, t in lens.terms]))
        out.append(Reading(r.node, lens, tuple(range(len(extents))), r.shape, r.dtype, r.sharding))
    return extents, out


def first_pass_of_writes(low: Lowering, draft: Draft) -> None:
    """Say what every tile that is written at positions reads."""
    axes, at, n_index, _ = low.graph.nodes[draft.stage.nodes[0]].params
    extents, readings = _value_readings(low, draft)
    below = low.located[draft.base]
    chunks = _chunks_of_values(low, readings[0], extents, range(at + 1, at + n_index))
    rest = [a for a in range(len(below.shape)) if a not in axes]
    axis_of = {(k if k < at else k + n_index): a for k, a in enumerate(rest)}
    draft.extra = []
    begin_version(low, draft)
    for number, tile in enumerate(below.sharding.tiles()):
        frame = below.box(tile)
        inside = [
            tuple([intersect(r, frame[axis_of[loop]]) if loop in axis_of else r for loop, r in enumerate(chunk)])
            for chunk in chunks
        ]
        boxes = [box for box in inside if all(box) and all(frame)]
        reads = [(low.source(r.node), r.lens, box) for box in boxes for r in readings]
        members = [below.members[number] if below.members else 0]
        for member in members + (writers(low, draft, tile, reads) if boxes else []):
            draft.extra.append((number, frame, member, member not in members))
            draft.sources.append(_sources_of_writes(low, readings, boxes, member, are_apart=len(chunks) > 1))
    draft.readings = readings


def _chunks_of_values(low: Lowering, value: Reading, extents: tuple[int, ...], uncut: Sequence[int]) -> list[Box]:
    """Return tiles of the values: as these lie along all loops but the uncut ones, else one."""
    cuts: list[list[range]] = [[range(n)] for n in extents]
    # What is made where it is read, or travels from the client, lies on no member: each tile of the base has all of it.
    if low.located[low.source(value.node)].members and value.sharding is not None and value.sharding.n_tiles > 1:
        lying = value.sharding.boundaries(value.shape)
        for b, (axis, start, step) in enumerate(value.lens.terms):
            if axis is not None and step == 1 and len(lying[b]) > 2 and axis not in uncut:
                points = sorted({min(max(p - start, 0), extents[axis]) for p in lying[b]})
                cuts[axis] = [range(p, q) for p, q in pairwise(points)]
    return [c for c in product(*cuts) if all(c)]


def _sources_of_writes(
    low: Lowering, readings: Sequence[Reading], boxes: Sequence[Box], member: int, *, are_apart: bool
) -> list[Source]:
    """Return whom a tile of a member asks for boxes of the values: each where it lies, if they are apart."""
    value = readings[0]
    source = low.located[low.source(value.node)]
    found = []
    for box in boxes:
        where = member
        if are_apart:
            first = value.lens.fragments(box, source.boundaries)[0][0]
            where = source.members[source.near(source.sharding.number(first), member)]
        wants = [low.routes.want(low.source(r.node), r.lens, box, where) for r in readings]
        found.append(Source(where, box, wants))
    return found


def second_pass_of_writes(low: Lowering, draft: Draft) -> None:
    """Make the tasks of a stage that writes at positions."""
    stage = draft.stage
    i = stage.nodes[0]
    node = low.graph.nodes[i]
    below = low.located[draft.base]
    at = low.located[i]
    tiles = [(*tile, sources) for tile, sources in zip(draft.extra, draft.sources, strict=True)]
    low.inherit(at, below, {number for number, _, _, _, sources in tiles if sources}, draft.inplace)
    extents = low.graph.nodes[draft.base].shape
    spec = low.share(
        StageSpec(None, (), (node.dtype,), device=low.env.device, name="take_put", params=node.params, extents=extents)
    )
    # All parts first: they may read the base, which may then be written in place.
    parts_of: list[tuple[Callable[..., Any], list[Any]]] = []
    for number, frame, member, _, sources in tiles:
        parts: list[Any] = []
        is_here = {source.member for source in sources} == {member} and (len(tiles) == 1 or not draft.inplace)
        for where, several in _by_member(sources):
            shape = (sum([size(source.box) for source in several]),)
            args, record = _reads(low, draft, several, where, shape)
            targets = tuple([(frame, source.box) for source in several])
            if is_here:  # one task looks at all of them and writes
                parts += [record, targets, *args.given]
                continue
            key = low.emit("piece", "put-part", tasks.put_part, (spec, record, targets, *args.given), where, number)
            rows = sum([len(source.box[0]) if source.box else 1 for source in several])
            low.messages.carry(key, where, member, rows, shape[0] * node.dtype.itemsize)
            parts.append(key)
        parts_of.append((tasks.put_here if is_here else tasks.put_join, parts))
    for (number, frame, member, is_again, sources), (run, parts) in zip(tiles, parts_of, strict=True):
        if not sources:
            continue
        inplace = draft.inplace and number not in below.shared
        if not inplace:
            low.allocated(frame, node.dtype, member)
        given = (spec, member, inplace, below.refs[below.near(number, member)], *parts)
        key = low.emit("tile", "take_put", run, given, member, number)
        if inplace:
            low.wait_for_readers(key, below, number)
        at.note(number, member, key, is_again=is_again)
