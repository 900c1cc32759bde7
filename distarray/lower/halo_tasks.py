"""Lowering of chains of halo stages: each member computes for itself what its later stages read beyond its tiles.

The planner says which stages go together (`planner.halos`). What members need of arrays from before the chain comes by
routes, as for any stage; all else is read from blocks that the member has made itself, which are larger than its
tiles by the halos of the stages to come. What is kept, or read after the chain, is cut out of these in the end. The
tasks of a member follow each other, so that `fuse` makes one of them, in which later writes take over earlier blocks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from distarray.expr.lens import Affine
from distarray.kernels import tasks
from distarray.kernels.specs import COPY, Region, StageSpec, TileSpec, WrittenBox
from distarray.lower import programs
from distarray.lower.messages import Key
from distarray.lower.records import Draft, Tile
from distarray.lower.route import Arguments, Located, Want
from distarray.lower.state import Lowering
from distarray.planner.halos import (
    MOST_WORK_OF_OTHER_VIEWS,
    HaloStage,
    Needs,
    halo_stage,
    needed_outside,
    needs_of_members,
    tiles_of_members,
)
from distarray.planner.plan import Stage
from distarray.sharding.boxes import Box, relative, tile_box


@dataclass(slots=True)
class _Grown:
    """A _Grown is what a chain keeps between the passes, for all of its stages.

    Parameters
    ----------
    blocks
        By number of the node the grown blocks that members make of it.
    outside
        Nodes that are kept, or read after the chain.
    last
        The last stage of the chain.
    bases
        By node that is written in the chain and was made before, and by member: what the grown block is copied from.
    keys
        By member its tasks.
    """

    blocks: dict[int, Located]
    outside: set[int]
    last: Stage
    bases: dict[tuple[int, int], Want] = field(default_factory=dict)
    keys: defaultdict[int, list[Key]] = field(default_factory=lambda: defaultdict(list))


def first_pass(low: Lowering, drafts: Sequence[Draft], numbers: Sequence[int]) -> bool:
    """Say what the tiles of a chain read; False, and nothing is said, if its stages must be lowered one by one.

    Parameters
    ----------
    drafts, numbers
        Of the stages of the chain, and their numbers in the plan.
    """
    chain = [halo_stage(draft.stage, draft.readings, low.graph) for draft in drafts]
    made = {i for link in chain for i in link.made}
    outside = needed_outside(low.plan, low.graph, numbers) & made
    tiles: dict[int, dict[int, Box]] = {}
    for i in made:
        at = low.located[i]
        found = tiles_of_members(at.sharding, at.shape)
        if found is None or at.on_client or at.copies:
            return False
        tiles[i] = found
    if len({frozenset(of) for of in tiles.values()}) > 1:
        return False
    bases = {link.base for link in chain if link.written >= 0} - made
    if any(low.located[i].on_client or not low.located[i].members for i in bases):
        return False
    members = sorted({m for of in tiles.values() for m in of})
    by_member = needs_of_members(chain, tiles, outside, members, MOST_WORK_OF_OTHER_VIEWS)
    if by_member is None:
        return False
    grown = _Grown({i: _grown_like(low.located[i]) for i in made}, outside, drafts[-1].stage)
    low.begin(numbers[0])  # all that the chain needs of others is sent before it begins
    for step, (draft, link) in enumerate(zip(drafts, chain, strict=True)):
        draft.grown = grown
        _want(low, draft, link, step, grown, by_member)
    return True


def _grown_like(at: Located) -> Located:
    """Return where the grown blocks of a node are: nowhere yet."""
    grown = Located(at.sharding, at.shape, at.dtype, [None] * at.sharding.n_tiles)
    grown.members = list(at.members)
    return grown


def _want(
    low: Lowering,
    draft: Draft,
    link: HaloStage,
    step: int,
    grown: _Grown,
    by_member: Mapping[int, Needs],
) -> None:
    """Say what the tiles of one stage read."""
    for member, (boxes, need) in by_member.items():
        box = boxes[step]
        for i in link.stored:
            if i in need and box is not None:
                made = grown.blocks[i]
                made.frames[made.members.index(member)] = box
        if link.written in need:
            base = grown.blocks.get(link.base)
            number = low.located[link.written].members.index(member)
            if base is None or number not in base.frames:
                frame = need[link.written]
                identity = Affine.identity(low.located[link.base].shape)
                grown.bases[link.written, member] = low.routes.want(low.source(link.base), identity, frame, member)
            else:
                frame = base.frames[number]  # one block serves all versions
            grown.blocks[link.written].frames[number] = frame
        if box is None or not all(box):
            continue
        wants = []
        for r in draft.readings:
            source = low.source(r.node, draft.stage)  # who stores what is created makes it, and does not read it
            at = grown.blocks.get(source)
            number = -1 if at is None else at.members.index(member)
            if at is None or number not in at.frames:
                wants.append(low.routes.want(source, r.lens, box, member))
            else:
                tile = list(at.sharding.tiles())[number]
                wants.append(Want(r.node, r.lens, box, [(tile, number, r.lens.source_box(box), box)], member, grown=at))
        node = link.made[0]
        number = low.located[node].members.index(member)
        draft.tiles.append(Tile(list(low.located[node].sharding.tiles())[number], number, box, member, wants))


# -------------------------------------------------------------------------------------------------- second pass


def second_pass(low: Lowering, draft: Draft) -> None:
    """Make the tasks of one stage of a chain."""
    grown: _Grown = draft.grown
    stage = draft.stage
    link = halo_stage(stage, draft.readings, low.graph)
    spec = low.share(programs.program_spec(low, draft))
    if link.written >= 0:
        _begin_version(low, link, grown)
    for tile in draft.tiles:
        _lower_tile(low, draft, spec, link, tile, grown)
    if stage is grown.last:
        _finish(low, grown)


def _begin_version(low: Lowering, link: HaloStage, grown: _Grown) -> None:
    """Let a new version begin as the old one: with its blocks, or copies of what members need of it."""
    at, below = low.located[link.written], low.located[link.base]
    low.inherit(at, below, set(), inplace=False)
    own, base = grown.blocks[link.written], grown.blocks.get(link.base)
    for number in own.frames:
        want = grown.bases.get((link.written, own.members[number]))
        if want is None:
            assert base is not None
            own.refs[number] = base.refs[number]
        elif want.box == tile_box(below.boundaries, list(below.sharding.tiles())[number]):
            own.refs[number] = below.refs[number]  # who writes to it copies it
        else:
            own.refs[number] = _copied(low, want, at, number, grown)


def _copied(low: Lowering, want: Want, at: Located, number: int, grown: _Grown) -> Any:
    """Return the task that copies a box of an array to one block."""
    args = Arguments()
    shape = tuple(map(len, want.box))
    regions = []
    for part, seen in low.routes.parts(want, args):
        place = relative(seen, want.box)
        regions.append(Region(place, tuple(map(len, seen)), tuple([r.start for r in seen]), (args.settle(part),)))
    spec = low.share(StageSpec(COPY, stores=(at.dtype,), layout=at.sharding.layout, device=low.env.device, name="copy"))
    record = TileSpec(want.member, shape, tuple(regions), generated=tuple(args.generated))
    key = low.emit("tile", "copy", tasks.run_program, (spec, record, *args.given), want.member, number)
    grown.keys[want.member].append(key)
    low.allocated(want.box, at.dtype, want.member)
    return key


def _lower_tile(low: Lowering, draft: Draft, spec: StageSpec, link: HaloStage, tile: Tile, grown: _Grown) -> None:
    """Emit the task of one tile of a stage, and note its blocks."""
    stage = draft.stage
    args = Arguments()
    write = None
    if link.written >= 0:
        assert link.lens is not None
        at = grown.blocks[link.written]
        number = at.members.index(tile.member)
        frame = at.frames[number]
        inside = link.lens.restricted(tile.box, frame)
        write = WrittenBox(args.ref(at.refs[number]), inside, False, programs.is_most(tile.box, frame))
    regions, assembled = programs.regions_of(low, draft, tile, args)
    record = TileSpec(
        tile.member,
        tuple(map(len, tile.box)),
        regions,
        assembled,
        generated=tuple(args.generated),
        write=write,
        offset=tuple([r.start for r in tile.box]),
    )
    name = programs.name_of(low, stage)
    key = low.emit("tile", name, tasks.run_program, (spec, record, *args.given), tile.member, tile.number)
    results = low.results(key, len(link.made), tile.member, tile.number)
    grown.keys[tile.member] += dict.fromkeys([key, *results])
    keys = iter(results)
    for i in link.made:
        at = grown.blocks[i]
        number = at.members.index(tile.member)
        at.refs[number] = next(keys)
        if i != link.written:
            low.allocated(tile.box, at.dtype, tile.member)


def _finish(low: Lowering, grown: _Grown) -> None:
    """Make one task of all of a member, which has the tiles that are needed after the chain."""
    found: defaultdict[int, list[tuple[int, int, Any]]] = defaultdict(list)
    for i in sorted(grown.outside):
        at, blocks = low.located[i], grown.blocks[i]
        for number, tile in enumerate(at.sharding.tiles()):
            if number in blocks.frames and blocks.refs[number] is not None and all(at.box(tile)):
                at.shared.discard(number)
                ref = _cut_out(low, at, blocks, number, tile, grown)
                if ref in grown.keys[at.members[number]]:
                    found[at.members[number]].append((i, number, ref))
                at.refs[number] = ref
        low.fill_empty(at)
    for member, results in found.items():
        keys, refs = grown.keys[member], list(dict.fromkeys([ref for _, _, ref in results]))
        if refs == keys[-1:]:
            (last,) = refs
        else:
            where = member, results[0][1]
            last = low.emit("tile", "chain", tasks.together, refs, *where)
            projected = dict(zip(refs, low.results(last, len(refs), *where), strict=True))
            for i, number, ref in results:
                low.located[i].refs[number] = projected[ref]
        low.template.chains.update({key: last for key in keys if key != last})


def _cut_out(low: Lowering, at: Located, blocks: Located, number: int, tile: tuple[int, ...], grown: _Grown) -> Any:
    """Return the block of a tile: that which was made, or the part of it that is the tile."""
    own, frame = at.box(tile), blocks.frames[number]
    if own == frame:
        return blocks.refs[number]
    args = (relative(own, frame),), low.env.device, at.members[number], blocks.refs[number]
    key = low.emit("tile", "cut", tasks.pack, args, at.members[number], number)
    grown.keys[at.members[number]].append(key)
    return key
