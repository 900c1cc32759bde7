"""Tiles of the loops of a stage: what each of them reads, turn by turn.

A tile may not be cut where a user asked for it as it is. Where a member cannot hold all that it reads of others for one
at a time, it is *filled* part by part: what a part reads of others comes as a piece of its own, and goes when the part
is there; the parts are filled into one block, one after the other (`tasks.Unfinished`). Source, result and what is on
its way for two turns are all that a member holds.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise

from distarray.expr.lens import Affine
from distarray.lower.copies import again, begin_version, makers, writers
from distarray.lower.footprint import Need, turns
from distarray.lower.records import Draft, Tile
from distarray.lower.state import Lowering
from distarray.sharding.boxes import Box, size, tile_box
from distarray.sharding.cuts import boundaries
from distarray.sharding.sharding import Sharding


def is_fillable(low: Lowering, draft: Draft) -> bool:
    """Return whether the tiles of a stage may be filled in turns: it only stores, and each member makes one large
    tile.
    """
    stage = draft.stage
    if not low.site.is_cluster or not stage.family.is_fused or draft.moves is not None:
        return False
    if stage.write is not None or stage.combines or stage.cut.waves or not stage.stores:
        return False
    nbytes = sum(low.graph.nodes[i].nbytes for _, i in stage.stores)
    return low.site.large < nbytes and draft.sharding.n_tiles <= low.mesh.size


def filled_parts(low: Lowering, draft: Draft) -> list[Tile]:
    """Return the parts of all tiles, turn by turn; none if whole tiles fit, or nothing would."""
    tiles = draft.new_tiles()
    n_turns = turns(_needs(low, draft, tiles), low.room)
    if n_turns is None or n_turns < 2 or max(Counter([t.member for t in tiles]).values()) > 1:
        return []
    axis = _axis(low, draft, tiles[0])
    found = []
    for tile in tiles:
        along = tile.box[axis]
        n = max(1, min(n_turns, len(along)))
        for turn, (a, b) in enumerate(pairwise(boundaries(len(along), n))):
            box = (*tile.box[:axis], along[a:b], *tile.box[axis + 1 :])
            found.append(Tile(tile.index, tile.number, box, tile.member, [], tile.box, turn, n))
    found.sort(key=lambda part: part.turn)
    for part in found:
        part.wants = [
            low.routes.want(low.source(r.node, draft.stage), r.lens, r.box(part.box), part.member, turn=part.turn)
            for r in draft.readings
        ]
    return found


def _needs(low: Lowering, draft: Draft, tiles: list[Tile]) -> dict[int, Need]:
    """Return what each member holds for a stage: its sources, its tile, and what comes and goes."""
    counts: defaultdict[int, Counter[str]] = defaultdict(Counter)
    itemsize = sum(low.graph.nodes[i].dtype.itemsize for _, i in draft.stage.stores)
    for tile in tiles:
        counts[tile.member].update(target=size(tile.box) * itemsize, n_tiles=1)
    for node in {low.source(r.node, draft.stage) for r in draft.readings}:
        at = low.located[node]
        for index, member in zip(at.sharding.tiles(), at.members, strict=False):  # no members where it is made
            counts[member]["source"] += size(at.box(index)) * at.dtype.itemsize
    for tile in tiles:
        seen = set()
        for r in draft.readings:
            at = low.located[low.source(r.node, draft.stage)]
            if not at.members:
                continue
            for index, source, _ in r.lens.fragments(r.box(tile.box), at.boundaries):
                member = at.members[at.near(at.sharding.number(index), tile.member)]
                if member != tile.member and (r.node, index, source) not in seen:
                    seen.add((r.node, index, source))
                    counts[member]["sent"] += size(source) * at.dtype.itemsize
                    counts[tile.member]["received"] += size(source) * at.dtype.itemsize
    return {member: Need(**found) for member, found in counts.items()}


def _axis(low: Lowering, draft: Draft, tile: Tile) -> int:
    """Return the axis along which tiles are divided: that which crosses fewest tiles of what is read, so that all
    send.
    """
    crossed: list[set[range]] = [set() for _ in tile.box]
    for r in draft.readings:
        at = low.located[low.source(r.node, draft.stage)]
        if not at.members:
            continue
        for _, _, view in r.lens.fragments(r.box(tile.box), at.boundaries):
            for loop, along in zip(r.loops, view, strict=True):
                if loop is not None:
                    crossed[loop].add(along)
    return min(range(len(tile.box)), key=lambda a: (len(tile.box[a]) < 2, len(crossed[a]), -len(tile.box[a])))


def loop_tiles(low: Lowering, draft: Draft) -> None:
    """Say what every tile reads, and which tile of the base it writes."""
    bounds = draft.sharding.boundaries(draft.loops.extents)
    if draft.base >= 0:
        begin_version(low, draft)
    if is_fillable(low, draft) and (filled := filled_parts(low, draft)):
        draft.tiles += filled
        return
    for turn, number, index, member in _in_turns(draft.sharding, draft.stage.cut.waves):
        box = tile_box(bounds, index)
        base_number = -1
        if draft.base >= 0:
            found = _base_tile(low, draft, box)
            if found is None:
                continue
            draft.base_tiles.append(found)
            base_number = found[1]
            member = low.located[draft.base].members[base_number] if low.located[draft.base].members else 0
        elif not all(box) and draft.stage.family.is_fused and not draft.stage.stores:
            continue
        wants = [
            low.routes.want(
                low.source(r.node, draft.stage),
                r.lens,
                r.box(box),
                member,
                turn=turn,
                private=base_number if draft.inplace and r.node == draft.base else -1,
            )
            for r in (draft.readings if draft.moves is None else ())
        ]
        draft.tiles.append(Tile(index, number, box, member, wants))
    if (draft.copied or draft.base >= 0) and draft.moves is None:
        draft.tiles += _again(low, draft)


def _again(low: Lowering, draft: Draft) -> list[Tile]:
    """Return the tiles that several members make, as they are made again."""
    n_before = Counter([tile.member for tile in draft.tiles])
    found = []
    for t, tile in enumerate(draft.tiles):
        reads = [(low.source(r.node, draft.stage), r.lens, r.box(tile.box)) for r in draft.readings]
        if draft.base >= 0:
            members = writers(low, draft, draft.base_tiles[t][0], reads)
            draft.base_tiles += [draft.base_tiles[t]] * len(members)
        else:
            members = makers(low, draft, tile.index, reads)
        for member in members:
            wants = [low.routes.want(*read, member, turn=n_before[member]) for read in reads]
            found.append(again(draft, tile, member, wants))
            n_before[member] += 1
    return found


def _base_tile(low: Lowering, draft: Draft, box: Box) -> tuple[tuple[int, ...], int] | None:
    """Return the one tile of the base that a tile of a writing stage falls into; None for an empty one."""
    if not all(box):
        return None
    lens: Affine = low.graph.nodes[draft.stage.written].runtime
    at = low.located[draft.base]
    fragments = lens.fragments(box, at.boundaries)
    assert len(fragments) == 1, "the cut of a writing stage follows its base"
    tile = fragments[0][0]
    return tile, at.sharding.number(tile)


def _in_turns(sharding: Sharding, waves: Sequence[tuple[int, int]]) -> list[tuple[int, int, tuple[int, ...], int]]:
    """Return the tiles in the order of lowering, as (turn, number, index, member): the first of every member, then the
    second ..

    A member takes its tiles wave by wave (`shardings.with_waves`), those of a wave row-major: what passes through in
    waves passes once.
    """
    tiles = list(enumerate(sharding.tiles()))
    if waves:
        tiles.sort(key=lambda tile: _waves_of(tile[1], waves))
    turns: Counter[int] = Counter()
    found = []
    for number, index in tiles:
        member = sharding.member(index)
        found.append((turns[member], number, index, member))
        turns[member] += 1
    return sorted(found)


def _waves_of(index: Sequence[int], waves: Sequence[tuple[int, int]]) -> list[int]:
    """Return which wave of each a tile is in: along a loop they are the fastest, the last ones first."""
    left, found = list(index), []
    for loop, n in reversed(waves):
        left[loop], wave = divmod(left[loop], n)
        found.append(wave)
    return found[::-1]
