"""The first pass of lowering: how every stage is cut, where its results will lie, and what every tile reads.

All reads of a plan are known before the first task is made, so that all that one member needs of a tile elsewhere
travels in one piece.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from distarray import config
from distarray.expr.expr import Environment
from distarray.expr.lens import Affine, reshape_groups
from distarray.lower import collectives, filling
from distarray.lower.footprint import Moves
from distarray.lower.machine import Machine
from distarray.lower.regions import runs
from distarray.lower.route import Key, Leaf, Located, Routes, Want
from distarray.lower.template import Template
from distarray.planner.graph import Graph
from distarray.planner.plan import Plan, Stage
from distarray.planner.propagation import (
    Loops,
    Reading,
    base_reading,
    combined_sharding,
    kernel_shardings,
    reading,
    resolve_cut,
    stage_loops,
)
from distarray.planner.rates import current_rates
from distarray.sharding.boxes import Box
from distarray.sharding.sharding import Sharding

__all__ = ["Draft", "Drafting", "Tile"]


@dataclass(slots=True)
class Tile:
    """A tile between the two passes, or a part of one that is filled in turns.

    Parameters
    ----------
    whole
        The box of the tile.
    turn, n_turns
        Which part of it, of how many.
    """

    index: tuple[int, ...]
    number: int
    box: Box
    member: int
    wants: list[Want]
    whole: Box = ()
    turn: int = 0
    n_turns: int = 1

    def __post_init__(self) -> None:
        self.whole = self.whole or self.box

    @property
    def is_last(self) -> bool:
        """Whether the tile is there after it."""
        return self.turn == self.n_turns - 1


@dataclass(slots=True)
class Draft:
    """A stage between the two passes."""

    stage: Stage
    loops: Loops
    sharding: Sharding
    readings: list[Reading]
    tiles: list[Tile]
    base: int = -1
    base_tiles: list[tuple[tuple[int, ...], int]] = field(default_factory=list)
    inplace: bool = False
    extra: Any = None  # what a family keeps between the passes
    moves: Moves | None = None


class Drafting:
    """State of one lowering, and its first pass. `stage_tasks.Lowering` adds the second."""

    def __init__(
        self,
        plan: Plan,
        graph: Graph,
        env: Environment,
        machine: Machine,
        inplace: Mapping[int, int],
        held: Mapping[int, frozenset[int]],
    ) -> None:
        self.plan = plan
        self.graph = graph
        self.env = env
        self.machine = machine
        self.inplace = inplace
        #: By node the numbers of the blocks that somebody else has.
        self.held = held
        overlap = config.get("overlap")
        #: Whether tiles may be split in core and border; then only where the model predicts a gain, unless "always".
        self.has_overlap = overlap == "always" or (overlap is True and machine.is_cluster)
        self.overlap_rates = None if overlap == "always" else current_rates()
        self.mesh = env.mesh
        self.template = Template()
        self.out = self.template.lowered
        self.out.counts.update(tile=0, project=0, piece=0, combine=0)
        self.located: dict[int, Located] = {}
        self.several: dict[int, list[Located]] = {}
        #: Bytes on a member from which on what passes through it comes in turns.
        self.large = machine.large
        #: Bytes that it may hold of what the plan reads and makes.
        self.room = max(0, machine.memory - plan.beside)
        self.routes = Routes(self.located, self.emit_piece, env.device, self.large)
        self._step = 0

    def emit_piece(
        self, name: str, function: Callable[..., Any], args: Sequence[Any], member: int, waits: Sequence[Key] = ()
    ) -> Key:
        """Make the task of a piece; only the second pass does."""
        raise NotImplementedError

    # ------------------------------------------------------------------------------------------- first pass

    def first_pass(self) -> list[Draft]:
        nodes = self.graph.nodes
        for i, node in enumerate(nodes):
            memo = node.memo
            if memo is not None:
                refs: list[Any] = [Leaf(i, k) for k in range(len(memo.blocks))]
                self.located[i] = Located(memo.sharding, node.shape, node.dtype, refs, on_client=memo.on_client)
                self.located[i].shared |= self.held.get(i, frozenset())
            elif node.op.kind == "create":
                # A created node is made wherever it is read; only as the base of a write, or when kept, it is stored
                # too, under its own number.
                self.located[~i] = Located(
                    Sharding.whole(self.mesh, node.ndim), node.shape, node.dtype, [], create=node
                )
        drafts = []
        for step, stage in enumerate(self.plan.stages):
            self.routes.begin(step)
            drafts.append(self._draft(stage))
        return drafts

    def source(self, i: int, stage: Stage | None = None) -> int:
        """Number under which a node is read; by the stage that stores it, if that is said."""
        if ~i not in self.located:
            return i
        is_stored = i in self.located and self.graph.is_held(i) and (stage is None or i not in stage.nodes)
        return i if is_stored else ~i

    def _lying(self, i: int) -> Sharding | None:
        at = self.located[self.source(i)]
        if at.create is not None:
            return at.create.pin
        return None if at.on_client else at.sharding

    def _draft(self, stage: Stage) -> Draft:
        nodes = self.graph.nodes
        if stage.kind == "item":
            return self._draft_item(stage)
        loops = stage_loops(stage, nodes)
        readings = [reading(a, loops, p, nodes, self._lying(a.node)) for p, a in enumerate(stage.reads)]
        base = base_reading(stage, self.graph, lambda i: self.located[i].sharding)
        below = -1 if base is None else base.node
        sharding = resolve_cut(stage.cut, loops, readings, nodes, base, self.mesh)
        draft = Draft(stage, loops, sharding, readings, [], below)
        self._place_results(draft)
        draft.inplace = stage.write is not None and stage.write[1] in self.inplace
        if self.has_overlap and any(r.node == draft.base for r in readings):
            draft.inplace = False  # the border reads what the core would have overwritten
        if collectives.is_move(self, stage):
            draft.moves = collectives.first_pass(self, draft)
            self._loop_tiles(draft)
        elif stage.kind == "reshape":
            self._reshape_tiles(draft)
        elif stage.kind in ("take", "take_put"):
            from distarray.lower import gather

            gather.first_pass(self, draft)
        else:
            self._loop_tiles(draft)
        return draft

    def _place_results(self, draft: Draft) -> None:
        """Sharding of what the stage makes; the references come in the second pass."""
        stage, nodes = draft.stage, self.graph.nodes
        for _, i in stage.stores:
            self._locate(i, draft.sharding)
        for c in stage.combines:
            keepdims = bool(nodes[c.node].params[1])
            self._locate(c.node, combined_sharding(draft.sharding, c.axes, keepdims=keepdims))
        if stage.write is not None:
            i = stage.write[1]
            below = self.located[draft.base]
            self._locate(i, below.sharding)
        if stage.kind == "program":
            return
        i = stage.nodes[0]
        node = nodes[i]
        if stage.kind == "take_put":
            found = self.graph.operands[i][0]
            assert found is not None
            draft.base = found
            self._locate(i, self.located[found].sharding)
            draft.inplace = i in self.inplace
            return
        shardings = kernel_shardings(draft.sharding, draft.loops)
        if isinstance(node.dtype, tuple):
            shapes: Any = node.shape  # one for each result
            self.several[i] = [
                Located(*facts, [None] * facts[0].n_tiles) for facts in zip(shardings, shapes, node.dtype, strict=True)
            ]
            self.located[i] = self.several[i][0]
        else:
            self._locate(i, shardings[0])

    def _locate(self, i: int, sharding: Sharding) -> None:
        node = self.graph.nodes[i]
        at = Located(sharding, node.shape, node.dtype, [])
        at.refs = [None] * sharding.n_tiles
        self.located[i] = at

    def _loop_tiles(self, draft: Draft) -> None:
        bounds = draft.sharding.boundaries(draft.loops.extents)
        if filling.is_possible(self, draft) and (filled := filling.parts(self, draft)):
            draft.tiles += filled
            return
        for turn, number, index, member in _in_turns(draft.sharding, draft.stage.cut.waves):
            box = tuple([range(b[t], b[t + 1]) for b, t in zip(bounds, index, strict=True)])
            base_number = -1
            if draft.base >= 0:
                found = self._base_tile(draft, box)
                if found is None:
                    continue
                draft.base_tiles.append(found)
                base_number = found[1]
                member = self.located[draft.base].members[base_number] if self.located[draft.base].members else 0
            elif not all(box) and draft.stage.kind == "program" and not draft.stage.stores:
                continue
            wants = [
                self.routes.want(
                    self.source(r.node, draft.stage),
                    r.lens,
                    r.box(box),
                    member,
                    turn=turn,
                    private=base_number if draft.inplace and r.node == draft.base else -1,
                )
                for r in (draft.readings if draft.moves is None else ())
            ]
            draft.tiles.append(Tile(index, number, box, member, wants))

    def _base_tile(self, draft: Draft, box: Box) -> tuple[tuple[int, ...], int] | None:
        """The one tile of the base that a tile of a writing stage falls into; None for an empty one."""
        if not all(box):
            return None
        assert draft.stage.write is not None
        lens: Affine = self.graph.nodes[draft.stage.write[1]].runtime
        at = self.located[draft.base]
        fragments = lens.fragments(box, at.boundaries)
        assert len(fragments) == 1, "the cut of a writing stage follows its base"
        tile = fragments[0][0]
        return tile, at.number(tile)

    def _draft_item(self, stage: Stage) -> Draft:
        i = stage.nodes[0]
        which = self.graph.nodes[i].params[0]
        assert isinstance(which, int)
        self.located[i] = self.several[stage.reads[0].node][which]
        return Draft(stage, Loops(()), self.located[i].sharding, [], [])

    def _reshape_tiles(self, draft: Draft) -> None:
        """A tile of the result is, in each group of axes, one run of elements: a few boxes of the source."""
        node = self.graph.nodes[draft.stage.nodes[0]]
        r = draft.readings[0]
        old = r.lens.shape
        groups = reshape_groups(old, node.shape)
        bounds = draft.sharding.boundaries(node.shape)
        runs_of_tile = []
        for number, index in enumerate(draft.sharding.tiles()):
            box = tuple([range(b[t], b[t + 1]) for b, t in zip(bounds, index, strict=True)])
            member = draft.sharding.member(index)
            wants: list[Want] = []
            places: list[tuple[tuple[slice, ...], tuple[int, ...]]] = []
            extents: list[int] = []
            per_group: list[list[tuple[slice, Box]]] = []
            for source_axes, result_axes in groups:
                lo, hi = 0, 1
                inner = 1
                for a in result_axes[1:]:
                    inner *= node.shape[a]
                if result_axes:
                    first = box[result_axes[0]]
                    lo, hi = first.start * inner, first.stop * inner
                extents.append(hi - lo)
                per_group.append(
                    [
                        (slice(start - lo, stop - lo), b)
                        for start, stop, b in runs(lo, hi, tuple([old[a] for a in source_axes]))
                    ]
                )
            for chosen in product(*per_group) if all(box) else ():
                source: list[range] = [range(0)] * len(old)
                for (source_axes, _), (_, b) in zip(groups, chosen, strict=True):
                    for a, s in zip(source_axes, b, strict=True):
                        source[a] = s
                wants.append(self.routes.want(self.source(r.node), r.lens, tuple(source), member))
                place = tuple([c[0] for c in chosen])
                places.append((place, tuple([s.stop - s.start for s in place])))
            runs_of_tile.append((tuple(extents), places))
            draft.tiles.append(Tile(index, number, box, member, wants))
        draft.extra = runs_of_tile


def _in_turns(sharding: Sharding, waves: Sequence[tuple[int, int]]) -> list[tuple[int, int, tuple[int, ...], int]]:
    """Tiles as (turn, number, index, member), turn by turn, and so the first ones of all members first.

    A member takes its tiles wave by wave (`propagation.with_waves`), those of a wave row-major: what passes through in
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
    """Which wave of each a tile is in: along a loop they are the fastest, the last ones first."""
    left, found = list(index), []
    for loop, n in reversed(waves):
        left[loop], wave = divmod(left[loop], n)
        found.append(wave)
    return found[::-1]
