"""Tiles that are filled in turns, because a member cannot hold all that it reads of others for one at a time.

A tile may not be cut where a user asked for it as it is. So it is made part by part: what a part reads of others comes
as a piece of its own, and goes when the part is there; the parts are filled into one block, one after the other
(`tasks.Unfinished`). Source, result and what is on its way for two turns are all that a member holds.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise

from distarray.lower.footprint import Need, turns
from distarray.lower.records import Draft, Tile
from distarray.lower.state import Lowering
from distarray.sharding.boxes import size, tile_box
from distarray.sharding.cuts import boundaries


def is_possible(low: Lowering, draft: Draft) -> bool:
    """Return whether the tiles of a stage may be filled in turns: it only stores, and each member makes one large
    tile.
    """
    stage = draft.stage
    if not low.site.is_cluster or not stage.family.is_fused or draft.moves is not None:
        return False
    if stage.write is not None or stage.combines or stage.cut.waves or not stage.stores:
        return False
    nbytes = sum(low.graph.nodes[i].nbytes for _, i in stage.stores)
    return low.large < nbytes and draft.sharding.n_tiles <= low.mesh.size


def parts(low: Lowering, draft: Draft) -> list[Tile]:
    """Return the parts of all tiles, turn by turn; none if whole tiles fit, or nothing would."""

    edges = draft.sharding.boundaries(draft.loops.extents)
    tiles = []
    for number, index in enumerate(draft.sharding.tiles()):
        box = tile_box(edges, index)
        tiles.append(Tile(index, number, box, draft.sharding.member(index), []))
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
