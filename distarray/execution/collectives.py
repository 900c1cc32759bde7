"""Redistributions as tasks: each tile of each step is put together from slices of the tiles before it.

A stage that does nothing but cut an array in another way is not read through `route`: its plan comes from the
synthesizer (`planner.redistribution`), and this file lowers the steps. In one process a tile is assembled straight from
views of the blocks it needs. On a cluster what one member needs of a block elsewhere travels as one piece, a copy, so
that the block may be freed; blocks that are needed whole travel themselves. Slices are not stored: who reads a slice
reads a part of the block that it was taken from.

A tile costs one task and one record that names, per dimension, where the parts of other tiles go: what is kept for it
grows with the sum of the parts along the dimensions, not with their product.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from distarray.execution import tasks
from distarray.execution.evaluate import is_cluster
from distarray.execution.footprint import Moves, Window, n_elements, primary, waves, window_of
from distarray.execution.memory import memory_limit
from distarray.execution.route import Located, Transfer, key_of
from distarray.execution.tasks import Mosaic, StageSpec
from distarray.planner import redistribution
from distarray.planner.plan import Stage
from distarray.planner.redistribution import Redistribution
from distarray.planner.redistribution.transfers import (
    Assembly,
    Block,
    Layer,
    Movement,
    exchange_of,
    layers_of,
    schedule,
)
from distarray.sharding.sharding import Sharding

if TYPE_CHECKING:
    from distarray.execution.drafts import Draft, Drafting
    from distarray.execution.stage_tasks import Lowering

__all__ = ["Moves", "first_pass", "is_move", "second_pass"]

#: Names of the operations that leave every element as it is.
_IDENTITIES = frozenset({"reshard", "astype"})


def is_move(drafting: Drafting, stage: Stage) -> bool:
    """Whether a stage only cuts a stored array in another way."""
    if stage.kind != "program" or stage.write is not None or stage.combines:
        return False
    if len(stage.stores) != 1 or len(stage.reads) != 1 or len(stage.instructions) != 1:
        return False
    access, (instruction,) = stage.reads[0], stage.instructions
    nodes = drafting.graph.nodes
    source, made = nodes[access.node], nodes[stage.stores[0][1]]
    if access.path or instruction.function not in _IDENTITIES or source.dtype != made.dtype:
        return False
    at = drafting.located.get(drafting.source(access.node, stage))
    return at is not None and not at.on_client and at.create is None


def first_pass(drafting: Drafting, draft: Draft) -> Moves:
    """Plan a redistribution; see `is_move`."""
    stage = draft.stage
    node = drafting.source(stage.reads[0].node, stage)
    at = drafting.located[node]
    mode, memory = _wishes(drafting, stage)
    plan = _planned(drafting, at, draft.sharding, mode)
    if plan is None:
        movements = exchange_of(primary(at.sharding, at.boundaries), primary(draft.sharding, _cuts(draft)))
    else:
        layers = layers_of(at.shape, plan.trace)
        held = {tile: at.sharding.place(tile) for tile in at.sharding.tiles()}
        wanted = [draft.sharding.place(tile) for tile in draft.sharding.tiles()]
        movements = schedule(layers, plan.steps, held, wanted)
    moves = Moves(node, at, draft.sharding, plan, movements)
    if is_cluster(drafting.env):
        limit = memory_limit(drafting.env) if memory is None else memory
        moves.waves = waves(moves, limit, is_strict=memory is not None)
    return moves


def _wishes(drafting: Drafting, stage: Stage) -> tuple[Any, int | None]:
    """Mode and memory that the user asked for."""
    node = drafting.graph.nodes[stage.stores[0][1]]
    if node.op.name != "reshard":
        return "auto", None
    mode, memory = node.params  # set by array.conversion.reshard
    return mode, memory


def _cuts(draft: Draft) -> tuple[tuple[int, ...], ...]:
    return draft.sharding.boundaries(draft.loops.extents)


def _planned(drafting: Drafting, at: Located, target: Sharding, mode: Any) -> Redistribution | None:
    """The plan of the synthesizer; None where it has no say: cuts or meshes that only an exchange leads between."""
    source = at.sharding
    if source.mesh.size != target.mesh.size or not source.is_regular or not target.is_regular or not at.shape:
        return None
    if [source.mesh.member(p) for p in range(source.mesh.size)] != [
        target.mesh.member(p) for p in range(target.mesh.size)
    ]:
        return None
    if mode == "auto" and not is_cluster(drafting.env):
        mode = "direct"  # messages between threads cost nothing
    plan = redistribution.plan(at.shape, source, target, mode=mode, itemsize=at.dtype.itemsize)
    return plan if plan.steps else None  # everything is where it should be


# -------------------------------------------------------------------------------------------------- second pass


class _Stored(NamedTuple):
    """A block that tiles are read from."""

    ref: Any
    window: Window
    member: int
    is_source: bool


def second_pass(lowering: Lowering, draft: Draft) -> None:
    """Make the tasks of a redistribution."""
    _Mover(lowering, draft).lower()


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
        self.has_messages = is_cluster(lowering.env)
        self.spec = lowering.share(
            StageSpec(None, (), (self.dtype,), layout=draft.sharding.layout, device=lowering.env.device, name="reshard")
        )
        self.stored: dict[Block, _Stored] = {}
        self.pieces: dict[tuple[Any, Window, int], Any] = {}
        #: By member the tiles that it made last, one after the other where there are waves.
        self.made: defaultdict[int, list[Any]] = defaultdict(list)
        #: Of the step that is lowered, by axis, extent of the tile and of the region: see `_axes`.
        self.rows: dict[tuple[int, tuple[int, int], tuple[int, int]], tuple[tuple[slice, slice], ...]] = {}

    def lower(self) -> None:
        moves = self.moves
        for n, movement in enumerate(moves.movements):
            is_last = n == len(moves.movements) - 1
            by_member: defaultdict[int, list[Assembly]] = defaultdict(list)
            for assembly in movement.assemblies:
                by_member[self._member(assembly.device, is_last)].append(assembly)
            turns = moves.waves if is_last else 1
            self.made.clear()
            self.rows.clear()
            for turn in range(turns):
                before = {member: list(keys) for member, keys in self.made.items()}
                for member, assemblies in by_member.items():
                    part = assemblies[len(assemblies) * turn // turns : len(assemblies) * (turn + 1) // turns]
                    self._bundle(movement, part, member, is_last, before)
        self.lowering.fill_empty(self.draft.stage.stores[0][1])

    def _member(self, device: int, is_last: bool) -> int:
        mesh = self.draft.sharding.mesh if is_last else self.source.sharding.mesh
        return mesh.member(device)

    def _bundle(
        self,
        movement: Movement,
        assemblies: Sequence[Assembly],
        member: int,
        is_last: bool,
        before: Mapping[int, Sequence[Any]],
    ) -> None:
        """The tiles that a member makes in one turn: what they need of one block elsewhere travels together."""
        windows = [window_of(movement.made.boundaries, a.tile) for a in assemblies]
        region = self._region(movement, windows)
        for assembly, window in zip(assemblies, windows, strict=True):
            if any(a == b for a, b in window):
                continue
            around = region or window
            args, crops = self._arguments(movement, assembly, around, member, before)
            shape = tuple([b - a for a, b in window])
            mosaic = Mosaic(member, shape, self._axes(movement.read, assembly, window, around), crops)
            ref = self._assembled(mosaic, args, assembly, member, is_last)
            self.stored[Block(movement.step + 1, assembly.device)] = _Stored(ref, window, member, False)
            if is_last:
                self.result.refs[self.result.number(assembly.tile)] = ref
            self.made[member].append(ref)

    def _region(self, movement: Movement, windows: Sequence[Window]) -> Window | None:
        """The box that the tiles of a member fill; in one process, where nothing travels, the whole array."""
        if not self.has_messages:
            return tuple([(b[0], b[-1]) for b in movement.made.boundaries])
        filled = [w for w in windows if all(a < b for a, b in w)]
        if not filled:
            return None
        hull = tuple([(min(a for a, _ in axis), max(b for _, b in axis)) for axis in zip(*filled, strict=True)])
        return hull if sum(map(n_elements, filled)) == n_elements(hull) else None

    def _arguments(
        self,
        movement: Movement,
        assembly: Assembly,
        region: Window,
        member: int,
        before: Mapping[int, Sequence[Any]],
    ) -> tuple[list[Any], tuple[Any, ...]]:
        """Blocks and pieces that a tile is read from, and which part of each is meant (none: all of all)."""
        blocks = [self._block(b) for b in assembly.sources]
        is_sliced = assembly.sources[0].moment < movement.step
        if not self.has_messages and not is_sliced:
            return [b.ref for b in blocks], ()
        args: list[Any] = []
        crops: list[Any] = []
        bounds = zip(movement.read.boundaries, assembly.parts, region, strict=True)
        for block, cell in zip(
            blocks, product(*[[_cell(b, p, r) for p in parts] for b, parts, r in bounds]), strict=True
        ):
            if self.has_messages and block.member != member:
                args.append(self._piece(block, cell, member, before))
                crops.append(None)
            else:
                args.append(block.ref)
                crops.append(_crop(block.window, cell))
        return args, tuple(crops) if any(c is not None for c in crops) else ()

    def _axes(
        self, read: Layer, assembly: Assembly, window: Window, region: Window
    ) -> tuple[tuple[tuple[slice, slice], ...], ...]:
        """Per axis where each part goes in the tile, and where it lies in what it is read from."""
        found = []
        for axis, (span, around) in enumerate(zip(window, region, strict=True)):
            row = self.rows.get((axis, span, around))
            if row is None:
                row = _row(read.boundaries[axis], assembly.parts[axis], span, around)
                self.rows[axis, span, around] = row
            found.append(row)
        return tuple(found)

    def _block(self, block: Block) -> _Stored:
        found = self.stored.get(block)
        if found is None:
            at = self.source
            tile = at.sharding.tile(block.device)
            number = at.number(tile)
            found = _Stored(at.refs[number], window_of(at.boundaries, tile), at.members[number], True)
            self.stored[block] = found
        return found

    def _piece(self, block: _Stored, cell: Window, member: int, before: Mapping[int, Sequence[Any]]) -> Any:
        """What another member needs of a block: the block itself if that is all of it, else a copy of that part."""
        name = key_of(block.ref), cell, member
        piece = self.pieces.get(name)
        if piece is not None:
            return piece
        lowering = self.lowering
        nbytes = n_elements(cell) * self.dtype.itemsize
        crop = _crop(block.window, cell)
        if crop is None:
            piece = block.ref
            self._note(piece, None, block)
        else:
            # What waits for the turn before waits for tiles that lie where it runs.
            waits = before.get(block.member, ())
            args = ((crop,), lowering.env.device, block.member, block.ref, *waits)
            piece = lowering.emit_piece("piece", tasks.extract, args, block.member)
            self._note(block.ref, piece, block)
            lowering.routes.packed_bytes += nbytes
        rows = cell[0][1] - cell[0][0] if cell else 1
        lowering.routes.transfers.append(Transfer(block.member, member, rows, nbytes, lowering.routes.stage))
        self.pieces[name] = piece
        return piece

    def _note(self, ref: Any, reader: Any, block: _Stored) -> None:
        """Who writes a block in place waits for those who read it."""
        if block.is_source and reader is not None:
            self.lowering.routes.readers.setdefault(key_of(ref), []).append(reader)

    def _assembled(self, mosaic: Mosaic, args: Sequence[Any], assembly: Assembly, member: int, is_last: bool) -> Any:
        """The task that puts a tile together; none where it is a tile of the step before as it is."""
        lowering = self.lowering
        blocks = [self._block(b) for b in assembly.sources]
        if len(blocks) == 1 and not mosaic.crops and not blocks[0].is_source and args[0] == blocks[0].ref:
            is_here = not self.has_messages or blocks[0].member == member
            if is_here and n_elements(blocks[0].window) == prod(mosaic.shape) and not (is_last and self._is_ordered()):
                return blocks[0].ref
        number = self.result.number(assembly.tile) if is_last else assembly.device
        key = lowering.emit("tile", "reshard", tasks.run_mosaic, (self.spec, mosaic, *args), member, number)
        lowering.out.allocated_bytes += prod(mosaic.shape) * self.dtype.itemsize
        for block in set(blocks):
            self._note(block.ref, key, block)
        return key

    def _is_ordered(self) -> bool:
        layout = self.draft.sharding.layout
        return layout != tuple(range(len(layout)))


def _cell(boundaries: Sequence[int], part: int, region: tuple[int, int]) -> tuple[int, int]:
    """The elements of a part that lie in a region."""
    return max(boundaries[part], region[0]), min(boundaries[part + 1], region[1])


def _crop(block: Window, cell: Window) -> tuple[slice, ...] | None:
    if block == cell:
        return None
    return tuple([slice(c - b, d - b) for (b, _), (c, d) in zip(block, cell, strict=True)])


def _row(
    boundaries: Sequence[int], parts: Sequence[int], span: tuple[int, int], region: tuple[int, int]
) -> tuple[tuple[slice, slice], ...]:
    row = []
    for p in parts:
        first, after = _cell(boundaries, p, span)
        start = _cell(boundaries, p, region)[0]
        row.append((slice(first - span[0], after - span[0]), slice(first - start, after - start)))
    return tuple(row)
