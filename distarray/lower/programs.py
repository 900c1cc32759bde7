"""Lowering of elementwise programs with their reductions and writes: one task per tile.

A tile of a program is divided into regions in which every operand is one slice of a block or piece.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise, product
from math import prod

from distarray.expr.instructions import RuntimeScalar
from distarray.expr.lens import Affine
from distarray.kernels import tasks
from distarray.kernels.outcomes import Reduction
from distarray.kernels.program import shared_program
from distarray.kernels.specs import Finish, Part, Read, Region, StageSpec, TileSpec, WrittenBox
from distarray.lower import combining
from distarray.lower.combining import Partials
from distarray.lower.messages import Key
from distarray.lower.records import Draft, Tile
from distarray.lower.route import Arguments
from distarray.lower.state import Lowering
from distarray.planner.loops import Loops
from distarray.planner.plan import Combine, Stage
from distarray.planner.rates import hides_a_transfer
from distarray.sharding.boxes import Box, contains, shifted, size
from distarray.sharding.dealing import dealt

#: Regions of a tile beyond which an operand is put together instead.
MAX_REGIONS = 64

#: Bytes of a tile from which on a copy of it takes longer than one key more takes whoever reads the array.
HANDED_ON = 1 << 20

#: Kernels whose block is new, in memory order, and all the memory that they need: a result needs no copy of it.
_MADE_ANEW = ("arange", "drawn_", "empty", "full", "linspace", "random_")


def _is_alone(draft: Draft, c: Combine) -> bool:
    """Return whether a tile has all that one tile of the result is reduced from."""
    return all(draft.sharding.parts[a] == 1 for a in c.axes)


def second_pass(low: Lowering, draft: Draft) -> None:
    """Make the tasks of a stage that runs an elementwise program."""
    stage, nodes = draft.stage, low.graph.nodes
    if stage.write is not None:
        at, below = low.located[stage.written], low.located[draft.base]
        low.inherit(at, below, {number for _, number in draft.base_tiles}, draft.inplace)
    if draft.inplace:
        for tile in draft.tiles:
            for want in tile.wants:
                low.routes.prepare(want)
    copied = _copied(low, draft)
    spec = low.share(program_spec(low, draft))
    partials: list[Partials] = [{} for _ in stage.combines]
    unfinished: dict[int, Key] = {}
    for t, tile in enumerate(draft.tiles):
        if copied is not None and _is_handed_on(low, draft, t, tile, copied):
            continue
        if all(tile.box):
            _lower_program_tile(low, draft, spec, t, tile, partials, unfinished)
        else:
            for _, i in stage.stores:
                low.located[i].refs[tile.number] = low.empty_tile(tile, nodes[i].dtype)
    for k, (c, found) in enumerate(zip(stage.combines, partials, strict=True)):
        combining.combine(low, c.node, spec, k, found)
    for _, i in stage.stores:
        low.fill_empty(low.located[i])


def _copied(low: Lowering, draft: Draft) -> int | None:
    """Return which operand a stage does nothing with but to write it into a base, where blocks are never written in
    place; None of other stages.
    """
    stage = draft.stage
    if not low.site.is_cluster or stage.write is None or stage.instructions or stage.stores or stage.combines:
        return None
    return stage.write[0] if isinstance(stage.write[0], int) else None


def _is_handed_on(low: Lowering, draft: Draft, t: int, tile: Tile, operand: int) -> bool:
    """Return whether a tile that is written as a whole is, from now on, the block that is written: as it lies, whole,
    and at its member.
    """
    want = tile.wants[operand]
    if not all(tile.box) or len(want.fragments) != 1 or want.parcelled or want.grown or tile.n_turns > 1:
        return False
    value, below, new = (low.located[i] for i in (want.node, draft.base, draft.stage.written))
    (index, block, source, _), (base_tile, number) = want.fragments[0], draft.base_tiles[t]
    frame, block_frame = below.box(base_tile), value.box(index)
    nbytes = size(frame) * new.dtype.itemsize
    if value.dtype != new.dtype or size(source) < size(block_frame) or size(tile.box) < size(frame):
        return False
    if (
        tile.is_again
        or draft.copied
        or new.copies
        or nbytes < HANDED_ON
        or value.sharding.layout != new.sharding.layout
    ):
        return False
    # Tiles of a bundle would each be taken out of it where the new array is read.
    if len(dealt(value.sharding).tiles[tile.member]) > 1:
        return False
    written: Affine = low.graph.nodes[draft.stage.written].runtime
    read = want.lens.restricted(want.box, block_frame)
    shape = tuple(map(len, frame))
    if not (written.restricted(tile.box, frame).is_identity(shape) and read.is_identity(shape)):
        return False
    before = below.refs[number]
    new.note(number, tile.member, value.refs[block], is_again=False)
    low.needs_no_more(before)
    return True


def program_spec(low: Lowering, draft: Draft) -> StageSpec:
    stage, loops = draft.stage, draft.loops
    outputs = tuple(register for register, _ in stage.stores)
    filled = -1
    if stage.write is not None:
        written = stage.write[0]
        if isinstance(written, RuntimeScalar):
            filled = written.index
        else:
            outputs += (written,)
    reductions = tuple([Reduction(c.register, c.monoid, c.axes, c.dtype) for c in stage.combines])
    return StageSpec(
        shared_program(len(stage.reads), stage.instructions, outputs, reductions),
        stores=tuple(low.graph.nodes[i].dtype for _, i in stage.stores),
        finishes=tuple(_finish(low, c, loops) for c in stage.combines),
        layout=draft.sharding.layout,
        device=low.env.device,
        extents=loops.extents,
        filled=filled,
    )


def _lower_program_tile(
    low: Lowering,
    draft: Draft,
    spec: StageSpec,
    t: int,
    tile: Tile,
    partials: Sequence[Partials],
    unfinished: dict[int, Key],
) -> None:
    """Emit the task of one tile of a program, note the keys of its results, and append partial results to `partials`.

    Of a tile that is filled in turns it is the task of one of them: `unfinished` has that of the one before.
    """
    stage, nodes = draft.stage, low.graph.nodes
    args = Arguments()
    into = args.ref(unfinished[tile.number]) if tile.turn else -1
    write, hazard = _write(low, draft, t, tile, args) if stage.write is not None else (None, False)
    reuse = _reuse(low, draft, tile, args)
    regions, assembled = regions_of(low, draft, tile, args)
    alone = [_is_alone(draft, c) for c in stage.combines]
    record = TileSpec(
        tile.member,
        tuple(map(len, tile.whole)),
        regions,
        assembled,
        generated=tuple(args.generated),
        finish=tuple(
            combining.of_result(low, c, map(len, tile.box), 1) if is_alone else None
            for c, is_alone in zip(stage.combines, alone, strict=True)
        ),
        write=write,
        hazard=hazard,
        offset=tuple([r.start for r in tile.whole]),
        reuse=reuse,
        into=into,
        is_unfinished=not tile.is_last,
        is_made=_is_made(low, draft, tile, args, reuse),
    )
    key = _emit_program(low, draft, spec, name_of(low, stage), record, args, tile)
    low.routes.made(tile.member, key)
    if draft.inplace:
        low.wait_for_readers(key, low.located[draft.base], draft.base_tiles[t][1])
    if not tile.is_last:
        unfinished[tile.number] = key
        return
    n_results = len(stage.stores) + len(stage.combines) + (stage.write is not None)
    keys = iter(low.results(key, n_results, tile.member, tile.number))
    for (_, i), arg in zip(stage.stores, reuse, strict=True):
        if arg >= 0:
            low.wait_for_readers(key, low.located[low.inplace[i]], tile.number)
        else:
            low.allocated(tile.whole, nodes[i].dtype, tile.member)
        at = low.located[i]
        at.note(at.sharding.number(tile.index), tile.member, next(keys), is_again=tile.is_again)
    for c, is_alone, found in zip(stage.combines, alone, partials, strict=True):
        index = combining.of_result(low, c, tile.index, 0)
        if is_alone:
            at = low.located[c.node]
            at.note(at.sharding.number(index), tile.member, next(keys), is_again=tile.is_again)
        else:
            found.setdefault(index, []).append((next(keys), tile.member))
    if stage.write is not None and write is not None:
        base_tile, number = draft.base_tiles[t]
        if not write.is_inplace:
            below = low.located[draft.base]
            low.allocated(below.box(base_tile), below.dtype, tile.member)
        low.located[stage.written].note(number, tile.member, next(keys), is_again=tile.is_again)


def _is_made(low: Lowering, draft: Draft, tile: Tile, args: Arguments, reuse: tuple[int, ...]) -> bool:
    """Return whether the one result of a tile is what a kernel makes anew for just this box."""
    stage = draft.stage
    if stage.instructions or stage.combines or stage.write is not None or len(stage.stores) != 1:
        return False
    if args.given or len(args.generated) != 1 or reuse != (-1,):
        return False
    made, dtype = args.generated[0], low.graph.nodes[stage.stores[0][1]].dtype
    is_plain = draft.readings[0].lens.is_identity(made.shape) and draft.sharding.layout in (
        (),
        tuple(range(len(made.shape))),
    )
    return is_plain and made.dtype == dtype and made.name.startswith(_MADE_ANEW) and tile.n_turns == 1


def _emit_program(
    low: Lowering, draft: Draft, spec: StageSpec, name: str, record: TileSpec, args: Arguments, tile: Tile
) -> Key:
    """Return the task of a tile; two of them where its core is to run before what it needs from others has come."""
    local = [r for r in record.regions if not any(p.arg in args.remote for p in r.operands)]
    if (
        not low.has_overlap
        or tile.n_turns > 1
        or spec.finishes
        or record.assembled
        or not args.remote
        or not local
        or len(local) == len(record.regions)
        or not _pays(low, draft, record, local, args, tile)
    ):
        return low.emit("tile", name, tasks.run_program, (spec, record, *args.given), tile.member, tile.number)
    # The core: regions whose operands are all here. It is given None for what is still on its way.
    core = [None if k in args.remote else a for k, a in enumerate(args.given)]
    first = low.emit(
        "tile",
        f"{name}-core",
        tasks.run_program,
        (spec, replace(record, regions=tuple(local), is_unfinished=True), *core),
        tile.member,
        tile.number,
    )
    rest = tuple([r for r in record.regions if r not in local])
    # generated operands are numbered after the given ones, to which the core's results are now added
    n = len(args.given)
    moved = tuple(
        [r._replace(operands=tuple([p._replace(arg=p.arg + 1) if p.arg >= n else p for p in r.operands])) for r in rest]
    )
    border = replace(record, regions=moved, into=n)
    return low.emit(
        "tile", f"{name}-border", tasks.run_program, (spec, border, *args.given, first), tile.member, tile.number
    )


def _pays(low: Lowering, draft: Draft, record: TileSpec, local: list[Region], args: Arguments, tile: Tile) -> bool:
    """Return whether the model says that the core of a tile is to be a task of its own."""
    if low.overlap_rates is None:
        return True
    nbytes = sum(
        size(source) * low.graph.nodes[want.node].dtype.itemsize
        for want in tile.wants
        for _, number, source, _ in want.fragments
        if number in want.parcelled
    )
    n_core, n_all = sum(prod(r.shape) for r in local), prod(record.shape)
    return hides_a_transfer(low.overlap_rates, len(args.remote), nbytes, n_core, n_all, len(draft.stage.instructions))


def regions_of(low: Lowering, draft: Draft, tile: Tile, args: Arguments) -> tuple[tuple[Region, ...], tuple[Read, ...]]:
    """Return the boxes of the tile in which every operand is one slice; operands that need too many are assembled."""
    found = [low.routes.parts(w, args) for w in tile.wants]
    box = tile.box
    first = tuple([r.start for r in tile.whole])
    if all(len(f) == 1 for f in found):
        operands = low.same(tuple([args.settle(f[0][0]) for f in found]))
        place = None if tile.n_turns == 1 else tuple([slice(r.start, r.stop) for r in shifted(box, first)])
        return (Region(place, tuple(map(len, box)), tuple([r.start for r in box]), operands),), ()
    is_split = [len(f) > 1 and all(r.step == 1 for _, seen in f for r in seen) for f in found]
    cuts = _cuts(box, [f for f, s in zip(found, is_split, strict=True) if s])
    if prod([len(points) - 1 for points in cuts]) > MAX_REGIONS:
        is_split, cuts = [False] * len(found), _cuts(box, [])
    whole = [p for p, (f, s) in enumerate(zip(found, is_split, strict=True)) if len(f) > 1 and not s]
    assembled = tuple([low.read(draft.readings[p], tile.wants[p].box, found[p], args) for p in whole])
    for n, p in enumerate(whole, len(args.given) + len(args.generated)):
        found[p] = [(Part(n, -1, Affine.identity(tuple(map(len, box)))), box)]
    regions = []
    for chosen in product(*map(pairwise, cuts)):
        here = tuple([range(a, b) for a, b in chosen])
        operands = tuple([args.settle(_part_in(f, here)) for f in found])
        place = tuple([slice(a - s, b - s) for (a, b), s in zip(chosen, first, strict=True)])
        regions.append(Region(place, tuple(map(len, here)), tuple([r.start for r in here]), operands))
    return tuple(regions), assembled


def _cuts(box: Box, found: Sequence[Sequence[tuple[Part, Box]]]) -> list[list[int]]:
    """Return, along each axis, where a box and the parts of operands in it begin and end."""
    points: list[set[int]] = [{r.start, r.stop} for r in box]
    for f in found:
        for _, seen in f:
            for at, r in zip(points, seen, strict=True):
                at |= {r.start, r.stop}
    return [sorted(at) for at in points]


def _part_in(found: Sequence[tuple[Part, Box]], box: Box) -> Part:
    """Return a box of an operand, of the part of it that has all of the box."""
    for part, seen in found:
        if contains(seen, box):
            return part._replace(lens=_restricted(part.lens, shifted(box, [r.start for r in seen])))
    raise AssertionError(f"no part of an operand covers {box}")


def _restricted(lens: Affine, box: Box) -> Affine:
    """Return the part of a view that lies in `box`, from the same array."""
    terms = tuple(
        [
            (None, start, 0)
            if axis is None
            else (axis, start + step * box[axis].start, step if len(box[axis]) > 1 else 1)
            for axis, start, step in lens.terms
        ]
    )
    return Affine(tuple(map(len, box)), terms)


def is_most(box: Box, frame: Box) -> bool:
    """Return whether a box is most of the tile that it is written into.

    A stencil over that much of a block is written into another one: what lies around it is copied sooner than what it
    makes is copied back.
    """
    return 2 * size(box) > size(frame)


def _write(low: Lowering, draft: Draft, t: int, tile: Tile, args: Arguments) -> tuple[WrittenBox, bool]:
    """Return where a tile writes, and whether it reads what it overwrites in place."""
    lens: Affine = low.graph.nodes[draft.stage.written].runtime
    below = low.located[draft.base]
    base_tile, number = draft.base_tiles[t]
    frame = below.box(base_tile)
    arg = args.ref(below.refs[below.near(number, tile.member)])
    here = lens.restricted(tile.box, frame)
    hazard = draft.inplace and any(
        r.node == draft.base and not (r.lens.terms == lens.terms and r.lens.shape == lens.shape) for r in draft.readings
    )
    most = is_most(tile.box, frame)
    inplace = draft.inplace and number not in below.shared and not (hazard and most)
    return WrittenBox(arg, here, inplace, most), hazard and inplace


def _reuse(low: Lowering, draft: Draft, tile: Tile, args: Arguments) -> tuple[int, ...]:
    """Return, for each stored result of a tile, the number of the argument whose block it overwrites, or -1 for a new
    block.
    """
    out = []
    for _, i in draft.stage.stores:
        arg = -1
        node = low.inplace.get(i)
        if node is not None:
            at = low.located[node]
            is_plain = at.sharding == draft.sharding and not at.on_client and at.create is None
            if is_plain and tile.number not in at.shared:
                arg = args.ref(at.refs[tile.number])
        out.append(arg)
    return tuple(out)


def _finish(low: Lowering, c: Combine, loops: Loops) -> Finish:
    node = low.graph.nodes[c.node]
    operand = node.operands[0].dtype  # type: ignore[union-attr]  # a node, as `bind_reduce` says
    return Finish(node.op.name, c.monoid, c.axes, c.dtype, node.dtype, node.params.extra, loops.extents, operand)


def name_of(low: Lowering, stage: Stage) -> str:
    nodes = low.graph.nodes
    return nodes[stage.nodes[-1]].op.name if stage.nodes else stage.kind
