"""Tiles that are filled in turns, because a member cannot hold all that it reads of others for one at a time.

A tile may not be cut where a user asked for it as it is. So it is made part by part: what a part reads of others comes
as a piece of its own, and goes when the part is there; the parts are filled into one block, one after the other
(`tasks.Unfinished`). Source, result and what is on its way for two turns are all that a member holds.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING

from distarray.lower.footprint import Need, turns
from distarray.sharding.boxes import size
from distarray.sharding.cuts import boundaries

if TYPE_CHECKING:
    from distarray.lower.drafts import Draft, Drafting, Tile

__all__ = ["is_possible", "parts"]


def is_possible(drafting: Drafting, draft: Draft) -> bool:
    """Whether the tiles of a stage may be filled in turns: it only stores, and each member makes one large tile."""
    stage = draft.stage
    if not drafting.machine.is_cluster or stage.kind != "program" or draft.moves is not None:
        return False
    if stage.write is not None or stage.combines or stage.cut.waves or not stage.stores:
        return False
    nbytes = sum(drafting.graph.nodes[i].nbytes for _, i in stage.stores)
    return drafting.large < nbytes and draft.sharding.n_tiles <= drafting.mesh.size


def parts(drafting: Drafting, draft: Draft) -> list[Tile]:
    """The parts of all tiles, turn by turn; none if whole tiles fit, or nothing would."""
    from distarray.lower.drafts import Tile

    edges = draft.sharding.boundaries(draft.loops.extents)
    tiles = []
    for number, index in enumerate(draft.sharding.tiles()):
        box = tuple([range(b[t], b[t + 1]) for b, t in zip(edges, index, strict=True)])
        tiles.append(Tile(index, number, box, draft.sharding.member(index), []))
    n_turns = turns(_needs(drafting, draft, tiles), drafting.room)
    if n_turns is None or n_turns < 2 or max(Counter([t.member for t in tiles]).values()) > 1:
        return []
    axis = _axis(drafting, draft, tiles[0])
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
            drafting.routes.want(
                drafting.source(r.node, draft.stage), r.lens, r.box(part.box), part.member, turn=part.turn
            )
            for r in draft.readings
        ]
    return found


def _needs(drafting: Drafting, draft: Draft, tiles: list[Tile]) -> dict[int, Need]:
    """What each member holds for a stage: its sources, its tile, and what comes and goes."""
    counts: defaultdict[int, Counter[str]] = defaultdict(Counter)
    itemsize = sum(drafting.graph.nodes[i].dtype.itemsize for _, i in draft.stage.stores)
    for tile in tiles:
        counts[tile.member].update(target=size(tile.box) * itemsize, n_tiles=1)
    for node in {drafting.source(r.node, draft.stage) for r in draft.readings}:
        at = drafting.located[node]
        for index, member in zip(at.sharding.tiles(), at.members, strict=False):  # no members where it is made
            counts[member]["source"] += size(at.box(index)) * at.dtype.itemsize
    for tile in tiles:
        seen = set()
        for r in draft.readings:
            at = drafting.located[drafting.source(r.node, draft.stage)]
            if not at.members:
                continue
            for index, source, _ in r.lens.fragments(r.box(tile.box), at.boundaries):
                member = at.members[at.number(index)]
                if member != tile.member and (r.node, index, source) not in seen:
                    seen.add((r.node, index, source))
                    counts[member]["sent"] += size(source) * at.dtype.itemsize
                    counts[tile.member]["received"] += size(source) * at.dtype.itemsize
    return {member: Need(**found) for member, found in counts.items()}


def _axis(drafting: Drafting, draft: Draft, tile: Tile) -> int:
    """The axis along which tiles are divided: that which crosses fewest tiles of what is read, so that all send."""
    crossed: list[set[range]] = [set() for _ in tile.box]
    for r in draft.readings:
        at = drafting.located[drafting.source(r.node, draft.stage)]
        if not at.members:
            continue
        for _, _, view in r.lens.fragments(r.box(tile.box), at.boundaries):
            for loop, along in zip(r.loops, view, strict=True):
                if loop is not None:
                    crossed[loop].add(along)
    return min(range(len(tile.box)), key=lambda a: (len(tile.box[a]) < 2, len(crossed[a]), -len(tile.box[a])))
