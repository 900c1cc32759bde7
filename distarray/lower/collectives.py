"""Redistributions as tasks: each tile of each step is put together from slices of the tiles before it.

A stage that does nothing but cut an array in another way is not read through `route`: its plan comes from the
synthesizer (`planner.redistribution`), and this file lowers the steps. In one process a tile is assembled straight from
views of the blocks it needs. On a cluster what one member needs of the blocks of another travels in packs, copies, so
that the blocks may be freed; blocks that are needed whole travel themselves. Slices are not stored: who reads a slice
reads a part of the block that it was taken from.

A tile costs one task and one record that names, per dimension, where the parts of other tiles go: what is kept for it
grows with the sum of the parts along the dimensions, not with their product.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise, product
from math import prod
from typing import Any, NamedTuple, TypeAlias

from distarray.kernels import tasks
from distarray.kernels.specs import Mosaic, StageSpec
from distarray.lower.footprint import Moves, waves
from distarray.lower.messages import in_packs, key_of
from distarray.lower.records import Draft
from distarray.lower.state import Lowering
from distarray.planner.redistributing import movements, redistributed, redistributes, wishes
from distarray.planner.redistribution.transfers import Assembly, Layer, Movement, StoredTile
from distarray.sharding.boxes import Box, relative, shifted, size, tile_box
from distarray.sharding.cuts import boundaries


def moves_of(low: Lowering, draft: Draft) -> Moves | None:
    """Return the moves by which a stage is carried out that only cuts a stored array in another way; None of others."""
    stage, nodes = draft.stage, low.graph.nodes
    if not redistributes(stage, nodes):
        return None
    node, made = low.source(stage.reads[0].node, stage), stage.stores[0][1]
    at = low.located.get(node)
    if at is None or at.on_client or at.create is not None:
        return None
    mode, memory, ranks = wishes(stage, nodes)
    # Where there are copies each member reads what is near, and nothing is planned; unless memory is to be kept to.
    if (at.copies or low.located[made].copies) and memory is None and ranks is None:
        return None
    has_messages = low.site.is_cluster
    plan = redistributed(
        at.shape,
        at.sharding,
        draft.sharding,
        at.dtype.itemsize,
        mode,
        has_messages=has_messages,
        rates=low.site.rates,
        ranks=ranks,
    )
    steps = movements(at.shape, at.sharding, draft.sharding, plan)
    moves = Moves(node, at, draft.sharding, plan, steps, ranks=ranks)
    if ranks is not None:
        result = low.located[made]
        result.members = [ranks[member] for member in result.members]
    if has_messages:
        limit = low.room if memory is None else memory
        moves.waves = waves(moves, limit, is_strict=memory is not None)
    return moves


# -------------------------------------------------------------------------------------------------- second pass


#: Of each part along an axis: where it begins in the tile, where in its block, and how long it is.
_Row: TypeAlias = tuple[tuple[int, int, int], ...]


class _StoredBlock(NamedTuple):
    """A _StoredBlock is a block that tiles are read from."""

    ref: Any
    box: Box
    member: int
    is_source: bool


class _ReadOf(NamedTuple):
    """A _ReadOf is a part of a block, counted from its begin: all of it if `crop` is None."""

    block: _StoredBlock
    crop: Box | None
    is_packed: bool

    @property
    def n_elements(self) -> int:
        return size(self.block.box if self.crop is None else self.crop)

    @property
    def n_rows(self) -> int:
        return len((self.block.box if self.crop is None else self.crop)[0]) if self.block.box else 1


class _Unit(NamedTuple):
    """A _Unit is a tile that is put together, or a part of it where it is filled in turns.

    Parameters
    ----------
    assembly
        With the parts that it is read from.
    box
        What of the tile it is, in elements of the whole array.
    turn, n_turns
        Which part, of how many.
    """

    assembly: Assembly
    box: Box
    turn: int = 0
    n_turns: int = 1


def second_pass(low: Lowering, draft: Draft) -> None:
    """Make the tasks of a redistribution."""
    _Mover(low, draft).lower()


class _Mover:
    def __init__(self, lowering: Lowering, draft: Draft) -> None:
        self.lowering = lowering
        self.draft = draft
        moves = draft.moves
        assert moves is not None
        self.moves = moves
        self.source = moves.source
        (_, i), *_ = draft.stage.stores
        self.result = lowering.located[i]
        self.dtype = lowering.graph.nodes[i].dtype
        self.has_messages = lowering.site.is_cluster
        self.spec = lowering.share(
            StageSpec(None, (), (self.dtype,), layout=draft.sharding.layout, device=lowering.env.device, name="reshard")
        )
        self.stored: dict[StoredTile, _StoredBlock] = {}
        #: By member the tiles that it makes in this turn.
        self.made: defaultdict[int, list[Any]] = defaultdict(list)
        #: Of the step that is lowered: see `Movement`.
        self.is_fine = False
        #: Of the step that is lowered, by axis, extent of the tile and of the region: see `_axes`.
        self.rows: dict[tuple[int, range, range], _Row] = {}

    def lower(self) -> None:
        moves = self.moves
        for movement in moves.movements:
            is_last = moves.is_last(movement)
            turns = moves.waves if is_last else 1
            by_member: defaultdict[int, list[_Unit]] = defaultdict(list)
            n_tiles = Counter([moves.member(movement, a.device) for a in movement.assemblies])
            for assembly in movement.assemblies:
                member = moves.member(movement, assembly.device)
                by_member[member] += _units(movement, assembly, -(-turns // n_tiles[member]))
            self.rows.clear()
            self.is_fine = movement.is_fine
            made: list[defaultdict[int, list[Any]]] = []
            for turn in range(turns):
                # A member packs when it has made its tiles of the turn before the last: two turns are under way.
                before = made[turn - 2] if turn >= 2 else {}
                self.made = defaultdict(list)
                made.append(self.made)
                for member, units in by_member.items():
                    part = units[len(units) * turn // turns : len(units) * (turn + 1) // turns]
                    self._turn(movement, part, member, is_last, before)
        self.lowering.fill_empty(self.result)

    def _turn(
        self,
        movement: Movement,
        units: Sequence[_Unit],
        member: int,
        is_last: bool,
        before: Mapping[int, Sequence[Any]],
    ) -> None:
        """Emit the tiles that a member makes in one turn: what they need of one block elsewhere travels together."""
        filled = [u for u in units if all(u.box)]
        region = self._region(movement, [u.box for u in filled])
        reads = [self._reads(movement, u.assembly, region or u.box, member) for u in filled]
        sent = self._sent(dict.fromkeys([r for found in reads for r in found if r.is_packed]), member, before)
        for (assembly, box, turn, n_turns), found in zip(filled, reads, strict=True):
            shape = tuple(map(len, box))
            axes = self._axes(movement.read, assembly, box, region or box)
            args, parts = _arguments(found, sent)
            crops = tuple([_slices(r.crop) if not r.is_packed else None for r in found])
            crops = crops if any(c is not None for c in crops) else ()
            # Devices go by the rank in the team that the tile is for.
            mosaic = Mosaic(self.moves.mesh(movement).member(assembly.device), shape, axes, crops, parts)
            if n_turns > 1:
                whole = tile_box(movement.made.boundaries, assembly.tile)
                place = relative(box, whole)
                mosaic = mosaic._replace(place=place, tile=tuple(map(len, whole)), turn=turn, n_turns=n_turns)
                box = whole
                if turn:
                    args.append(self.stored[StoredTile(movement.step + 1, assembly.device)].ref)
            ref = self._assembled(mosaic, args, found, assembly, member, is_last)
            self.stored[StoredTile(movement.step + 1, assembly.device)] = _StoredBlock(ref, box, member, False)
            if is_last:
                self.result.refs[self.result.sharding.number(assembly.tile)] = ref
            self.made[member].append(ref)

    def _region(self, movement: Movement, boxes: Sequence[Box]) -> Box | None:
        """Return the box that the tiles of a member fill; in one process, where nothing travels, the whole array."""
        if not self.has_messages:
            return tuple([range(b[0], b[-1]) for b in movement.made.boundaries])
        if not boxes:
            return None
        hull = tuple([range(min(r.start for r in a), max(r.stop for r in a)) for a in zip(*boxes, strict=True)])
        return hull if sum(map(size, boxes)) == size(hull) else None

    def _reads(self, movement: Movement, assembly: Assembly, region: Box, member: int) -> list[_ReadOf]:
        """Return what a tile reads of each block: the part of it that the tiles of the member need together."""
        blocks = [self._block(b) for b in assembly.sources]
        is_sliced = assembly.sources[0].moment < movement.step
        if not self.has_messages and not is_sliced:
            return [_ReadOf(b, None, False) for b in blocks]
        bounds = zip(movement.read.boundaries, assembly.parts, region, strict=True)
        cells = product(*[[_cell(b, p, around) for p in parts] for b, parts, around in bounds])
        return [
            _ReadOf(b, _crop(b.box, cell), self.has_messages and (self.is_fine or b.member != member))
            for b, cell in zip(blocks, cells, strict=True)
        ]

    def _axes(self, read: Layer, assembly: Assembly, box: Box, region: Box) -> tuple[_Row, ...]:
        """Return per axis where each part goes in the tile, and where it lies in what it is read from."""
        found = []
        for axis, (span, around) in enumerate(zip(box, region, strict=True)):
            row = self.rows.get((axis, span, around))
            if row is None:
                row = _row(read.boundaries[axis], assembly.parts[axis], span, around)
                self.rows[axis, span, around] = row
            found.append(row)
        return tuple(found)

    def _block(self, block: StoredTile) -> _StoredBlock:
        found = self.stored.get(block)
        if found is None:
            at = self.source
            tile = at.sharding.tile(block.device)
            number = at.sharding.number(tile)
            found = _StoredBlock(at.refs[number], at.box(tile), at.members[number], True)
            self.stored[block] = found
        return found

    def _sent(
        self, reads: Iterable[_ReadOf], member: int, before: Mapping[int, Sequence[Any]]
    ) -> dict[_ReadOf, tuple[Any, int]]:
        """Return how each part of a block elsewhere comes to a member: (reference, which array of it; -1 if it is one).

        A block that is needed whole travels itself, if it is no small part of a tile. Parts of blocks of one member are
        packed together, up to `PIECE_LIMIT` bytes: one task and one message for many.
        """
        found: dict[_ReadOf, tuple[Any, int]] = {}
        by_source: defaultdict[int, list[_ReadOf]] = defaultdict(list)
        messages, itemsize = self.lowering.messages, self.dtype.itemsize
        for read in reads:
            if read.crop is None and not self.is_fine:
                found[read] = read.block.ref, -1
                nbytes = read.n_elements * itemsize
                messages.carry(read.block.ref, read.block.member, member, read.n_rows, nbytes)
            else:
                by_source[read.block.member].append(read)
        for source, several in by_source.items():
            for pack in in_packs((read, read.n_elements * itemsize) for read in several):
                boxes = [(r.block.ref, _slices(r.crop) or (Ellipsis,)) for r in pack]
                rows, nbytes = sum(r.n_rows for r in pack), sum(r.n_elements for r in pack) * itemsize
                # What waits for the turn before waits for tiles that lie where it runs.
                key = messages.pack(boxes, source, member, rows, nbytes, before.get(source, ()))
                for number, read in enumerate(pack):
                    found[read] = key, number if len(pack) > 1 else -1
        return found

    def _assembled(
        self,
        mosaic: Mosaic,
        args: Sequence[Any],
        reads: Sequence[_ReadOf],
        assembly: Assembly,
        member: int,
        is_last: bool,
    ) -> Any:
        """Return the task that puts a tile together; none where it is a tile of the step before as it is."""
        lowering = self.lowering
        first = reads[0]
        is_whole = len(reads) == 1 and first.crop is None and size(first.block.box) == prod(mosaic.whole)
        # Between two steps tiles have the layout of the target already.
        if is_whole and not first.is_packed and (not first.block.is_source or self._stays()):
            return first.block.ref
        number = self.result.sharding.number(assembly.tile) if is_last else assembly.device
        key = lowering.emit("tile", "reshard", tasks.run_mosaic, (self.spec, mosaic, *args), member, number)
        lowering.count_made(prod(mosaic.shape) * self.dtype.itemsize, member)  # of a part its part
        return key

    def _stays(self) -> bool:
        """Return whether blocks of the source may be those of the target: where teams share a member, what it keeps.

        On a cluster nobody writes to blocks. Other devices than the CPU go by the rank in a team, which is another one.
        """
        is_ours = self.moves.ranks is not None and self.has_messages and self.lowering.env.device == "cpu"
        return is_ours and self.source.sharding.layout == self.draft.sharding.layout


def _arguments(
    reads: Sequence[_ReadOf], sent: Mapping[_ReadOf, tuple[Any, int]]
) -> tuple[list[Any], tuple[tuple[int, int, int], ...]]:
    """Return each block and pack once, and where the parts are among them; nothing where they are one and the same."""
    if not sent:
        return [r.block.ref for r in reads], ()
    args: list[Any] = []
    position: dict[Any, int] = {}
    runs: list[tuple[int, int, int]] = []
    for read in reads:
        ref, number = sent[read] if read.is_packed else (read.block.ref, -1)
        arg = position.setdefault(key_of(ref), len(args))
        if arg == len(args):
            args.append(ref)
        last, first, n = runs[-1] if runs else (-1, -1, 0)
        if number >= 0 and arg == last and number == first + n:
            runs[-1] = arg, first, n + 1
        else:
            runs.append((arg, number, 1))
    return args, tuple(runs)


def _units(movement: Movement, assembly: Assembly, n_turns: int) -> list[_Unit]:
    """Return a tile in so many parts at most: along the axis that is read from fewest blocks, so all of them send in
    turn.
    """
    box = tile_box(movement.made.boundaries, assembly.tile)
    if n_turns < 2 or not box or not size(box):
        return [_Unit(assembly, box)]
    axis = min(range(len(box)), key=lambda a: (len(assembly.parts[a]), -len(box[a])))
    n_turns = min(n_turns, len(box[axis]))
    found = []
    for turn, (a, b) in enumerate(pairwise(boundaries(len(box[axis]), n_turns))):
        part = (*box[:axis], box[axis][a:b], *box[axis + 1 :])
        found.append(_Unit(_within(movement.read, assembly, part), part, turn, n_turns))
    return found


def _within(read: Layer, assembly: Assembly, box: Box) -> Assembly:
    """Return what a part of a tile is read from."""
    kept = [
        [p for p in parts if b[p] < r.stop and b[p + 1] > r.start]
        for b, parts, r in zip(read.boundaries, assembly.parts, box, strict=True)
    ]
    sources = dict(zip(product(*assembly.parts), assembly.sources, strict=True))
    return assembly._replace(parts=tuple(map(tuple, kept)), sources=tuple([sources[c] for c in product(*kept)]))


def _cell(edges: Sequence[int], part: int, region: range) -> range:
    """Return the elements of a part that lie in a region."""
    return range(max(edges[part], region.start), min(edges[part + 1], region.stop))


def _crop(block: Box, cell: Box) -> Box | None:
    """Return where a cell lies in a block; None if it is all of it."""
    return None if block == cell else shifted(cell, [r.start for r in block])


def _slices(crop: Box | None) -> tuple[slice, ...] | None:
    return None if crop is None else tuple([slice(r.start, r.stop) for r in crop])


def _row(edges: Sequence[int], parts: Sequence[int], span: range, region: range) -> _Row:
    row = []
    for p in parts:
        cell = _cell(edges, p, span)
        row.append((cell.start - span.start, cell.start - _cell(edges, p, region).start, len(cell)))
    return tuple(row)
