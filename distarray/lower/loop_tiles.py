"""Tiles of the loops of a stage: what each of them reads, turn by turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from distarray.expr.lens import Affine
from distarray.lower import filling
from distarray.lower.copies import again, begin_version, makers, writers
from distarray.lower.records import Draft, Tile
from distarray.lower.state import Lowering
from distarray.sharding.boxes import Box, tile_box
from distarray.sharding.sharding import Sharding


def loop_tiles(low: Lowering, draft: Draft) -> None:
    """Say what every tile reads, and which tile of the base it writes."""
    bounds = draft.sharding.boundaries(draft.loops.extents)
    if draft.base >= 0:
        begin_version(low, draft)
    if filling.is_possible(low, draft) and (filled := filling.parts(low, draft)):
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
