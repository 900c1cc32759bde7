"""The one door from plans to tasks.

`lower` walks the stages of a plan twice: first it resolves every cut and collects what every tile reads, so that all
that one member needs of a tile travels in one piece; then it makes the tasks, in an order in which they can run. Keys
are unique per evaluation: a key that named other work before would return the old value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import product
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from dask._task_spec import Task, TaskRef

from distarray import config
from distarray.execution import program as programs
from distarray.execution import tasks
from distarray.execution.backends import backend_for
from distarray.execution.route import Arguments, ClientBox, Key, Leaf, Located, Routes, Transfer, Want, key_of
from distarray.execution.tasks import Finish, Part, Read, Region, StageSpec, TileSpec
from distarray.expr.expr import Environment, Expr
from distarray.expr.lens import Affine
from distarray.planner.cache import LRUCache
from distarray.planner.graph import Graph, reshape_groups
from distarray.planner.plan import Combine, Instruction, Plan, Stage
from distarray.planner.propagation import (
    Loops,
    Reading,
    combined_sharding,
    reading,
    resolve_cut,
    result_sharding,
    stage_loops,
)
from distarray.sharding.boxes import Box
from distarray.sharding.mesh import Mesh
from distarray.sharding.sharding import Sharding

__all__ = ["Lowered", "Template", "lower"]

#: Partial results that one combining task takes.
FAN_IN = 8
#: Regions of a tile beyond which an operand is put together instead.
MAX_REGIONS = 64


@dataclass(slots=True)
class Lowered:
    """Tasks of one evaluation.

    Parameters
    ----------
    tasks
        In an order in which they can run.
    members
        Rank of the member that runs each.
    after
        Tasks that must wait for others although they read nothing of them: writes in place wait for all readers.
    outputs
        By number of the node: its sharding and, per tile, a key or an array.
    transfers
        Messages between members.
    counts
        Tasks by class: tiles, projections, pieces, combines.
    drafts
        Per stage of the plan how its loops were cut and what its tiles read: what `explain` adds up.
    """

    tasks: dict[Key, Task] = field(default_factory=dict)
    members: dict[Key, int] = field(default_factory=dict)
    after: dict[Key, set[Key]] = field(default_factory=dict)
    outputs: dict[int, tuple[Sharding, list[Any]]] = field(default_factory=dict)
    transfers: list[Transfer] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    kernels: Counter[tuple[str, Any]] = field(default_factory=Counter)
    packed_bytes: int = 0
    allocated_bytes: int = 0
    drafts: list[_Draft] = field(default_factory=list)


class Recipe(NamedTuple):
    """A task whose arguments are still named by what they are: keys without a run, `Leaf` and `ClientBox`."""

    function: Callable[..., Any]
    args: tuple[Any, ...]


@dataclass(slots=True)
class Template:
    """The tasks of a plan for one geometry: all but the blocks, the scalars and the name of the run.

    A loop over fixed slices lowers once; what varies from turn to turn is filled in by `instantiate`.

    Parameters
    ----------
    specs
        The record of each stage that its tasks share, and the number of the stage.
    lowered
        Everything that does not vary.
    """

    recipes: dict[Key, Recipe] = field(default_factory=dict)
    specs: list[tuple[StageSpec, int]] = field(default_factory=list)
    lowered: Lowered = field(default_factory=Lowered)


@dataclass(slots=True)
class _Tile:
    """A tile between the two passes."""

    index: tuple[int, ...]
    number: int
    box: Box
    member: int
    wants: list[Want]


@dataclass(slots=True)
class _Draft:
    """A stage between the two passes."""

    stage: Stage
    loops: Loops
    sharding: Sharding
    readings: list[Reading]
    tiles: list[_Tile]
    base: int = -1
    base_tiles: list[tuple[tuple[int, ...], int]] = field(default_factory=list)
    inplace: bool = False
    extra: Any = None  # what a family keeps between the passes


@lru_cache(maxsize=512)
def _program(
    n_reads: int,
    instructions: tuple[Instruction, ...],
    outputs: tuple[int, ...],
    combines: tuple[tuple[int, str, tuple[int, ...], np.dtype[Any]], ...],
) -> programs.Program:
    """The executable program of a stage; programs keep their register schedules, so equal ones are shared."""
    return programs.Program(
        n_reads,
        tuple([
            programs.Instruction(
                i.function, tuple([r if r >= 0 else programs.Scalar(-1 - r) for r in i.inputs]), i.dtype, i.params
            )
            for i in instructions
        ]),
        outputs,
        tuple([programs.Reduction(*c) for c in combines]),
    )


class _Lowering:
    def __init__(
        self, plan: Plan, graph: Graph, env: Environment, inplace: Mapping[int, int]
    ) -> None:
        self.plan = plan
        self.graph = graph
        self.env = env
        self.inplace = inplace
        self.has_overlap = config.get("overlap") == "always"
        self.mesh = env.team.mesh if env.team is not None else Mesh((), ())
        self.template = Template()
        self.out = self.template.lowered
        self.out.counts.update(tile=0, project=0, piece=0, combine=0)
        self.located: dict[int, Located] = {}
        self.several: dict[int, list[Located]] = {}
        self.routes = Routes(self.located, self._emit_piece, env.device)
        self._step = 0

    # ------------------------------------------------------------------------------------------------ tasks

    def _emit(
        self, kind: str, name: str, function: Callable[..., Any], args: Sequence[Any], member: int, number: int = 0
    ) -> Key:
        recipes = self.template.recipes
        key: Key = (f"dx-{name}", self._step, number)
        if key in recipes:
            key = (*key, len(recipes))
        recipes[key] = Recipe(function, tuple(args))
        self.out.members[key] = member
        self.out.counts[kind] += 1
        return key

    def _emit_piece(self, name: str, function: Callable[..., Any], args: Sequence[Any], member: int) -> Key:
        return self._emit("piece", name, function, args, member, len(self.template.recipes))

    def _results(self, key: Key, n: int, member: int, number: int) -> list[Key]:
        """The keys of the results of a task: itself, or one projection for each of several."""
        if n == 1:
            return [key]
        return [
            self._emit("project", f"item{i}", tasks.project, (i, key), member, number) for i in range(n)
        ]

    # ------------------------------------------------------------------------------------------- first pass

    def first_pass(self) -> list[_Draft]:
        nodes = self.graph.nodes
        for i, node in enumerate(nodes):
            memo = node.memo
            if memo is not None:
                refs: list[Any] = [Leaf(i, k) for k in range(len(memo.blocks))]
                self.located[i] = Located(memo.sharding, node.shape, node.dtype, refs, on_client=memo.on_client)
            elif node.op.kind == "create":
                # A created node is made wherever it is read; only as the base of a write, or when kept, it is stored
                # too, under its own number.
                self.located[~i] = Located(
                    Sharding.whole(self.mesh, node.ndim), node.shape, node.dtype, [], create=node
                )
        return [self._draft(s) for s in self.plan.stages]

    def _source(self, i: int) -> int:
        """Number under which a node is read."""
        return ~i if ~i in self.located else i

    def _lying(self, i: int) -> Sharding | None:
        at = self.located[self._source(i)]
        if at.create is not None:
            return at.create.pin
        return None if at.on_client else at.sharding

    def _draft(self, stage: Stage) -> _Draft:
        nodes = self.graph.nodes
        if stage.kind == "item":
            return self._draft_item(stage)
        loops = stage_loops(stage, nodes)
        readings = [reading(a, loops, p, nodes, self._lying(a.node)) for p, a in enumerate(stage.reads)]
        base = None
        below = -1
        if stage.write is not None:
            put = nodes[stage.write[1]]
            found = self.graph.operands[stage.write[1]][0]
            assert found is not None
            below = found
            axes = tuple(range(len(loops.extents)))
            base = Reading(below, put.runtime, axes, put.shape, self.located[below].sharding)
        sharding = resolve_cut(stage.cut, loops, readings, nodes, base, self.mesh)
        draft = _Draft(stage, loops, sharding, readings, [], below)
        self._place_results(draft)
        draft.inplace = stage.write is not None and stage.write[1] in self.inplace
        if self.has_overlap and any(r.node == draft.base for r in readings):
            draft.inplace = False  # the border reads what the core would have overwritten
        if stage.kind == "reshape":
            self._reshape_tiles(draft)
        elif stage.kind in ("take", "take_put"):
            from distarray.execution import gather

            gather.first_pass(self, draft)
        else:
            self._loop_tiles(draft)
        return draft

    def _place_results(self, draft: _Draft) -> None:
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
        if isinstance(node.dtype, tuple):
            self.several[i] = [
                Located(result_sharding(draft.sharding, axes), shape, dtype, [])  # type: ignore[arg-type]  # several results: shapes
                for axes, shape, dtype in zip(draft.loops.results, node.shape, node.dtype, strict=True)
            ]
            self.located[i] = self.several[i][0]
        else:
            self._locate(i, result_sharding(draft.sharding, draft.loops.results[0]))

    def _locate(self, i: int, sharding: Sharding) -> None:
        node = self.graph.nodes[i]
        at = Located(sharding, node.shape, node.dtype, [])
        at.refs = [None] * sharding.n_tiles
        self.located[i] = at

    def _loop_tiles(self, draft: _Draft) -> None:
        bounds = draft.sharding.boundaries(draft.loops.extents)
        for number, index in enumerate(draft.sharding.tiles()):
            box = tuple([range(b[t], b[t + 1]) for b, t in zip(bounds, index, strict=True)])
            base_number = -1
            member = draft.sharding.member(index)
            if draft.base >= 0:
                found = self._base_tile(draft, box)
                if found is None:
                    continue
                draft.base_tiles.append(found)
                base_number = found[1]
                member = self.located[draft.base].members[base_number] if self.located[draft.base].members else 0
            elif not all(box):
                if draft.stage.kind == "program" and not draft.stage.stores:
                    continue
            wants = [
                self.routes.want(
                    self._source(r.node), r.lens, self._operand_box(r, box), member,
                    private=base_number if draft.inplace and r.node == draft.base else -1,
                )
                for r in draft.readings
            ]
            draft.tiles.append(_Tile(index, number, box, member, wants))

    def _operand_box(self, r: Reading, box: Box) -> Box:
        return tuple([range(n) if k is None else box[k] for k, n in zip(r.loops, r.lens.shape, strict=True)])

    def _base_tile(self, draft: _Draft, box: Box) -> tuple[tuple[int, ...], int] | None:
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

    def _draft_item(self, stage: Stage) -> _Draft:
        i = stage.nodes[0]
        which = self.graph.nodes[i].params[0]
        assert isinstance(which, int)
        self.located[i] = self.several[stage.reads[0].node][which]
        return _Draft(stage, Loops(()), self.located[i].sharding, [], [])

    def _reshape_tiles(self, draft: _Draft) -> None:
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
                        for start, stop, b in _runs(lo, hi, tuple([old[a] for a in source_axes]))
                    ]
                )
            for chosen in product(*per_group) if all(box) else ():
                source: list[range] = [range(0)] * len(old)
                for (source_axes, _), (_, b) in zip(groups, chosen, strict=True):
                    for a, s in zip(source_axes, b, strict=True):
                        source[a] = s
                wants.append(self.routes.want(self._source(r.node), r.lens, tuple(source), member))
                place = tuple([c[0] for c in chosen])
                places.append((place, tuple([s.stop - s.start for s in place])))
            runs_of_tile.append((tuple(extents), places))
            draft.tiles.append(_Tile(index, number, box, member, wants))
        draft.extra = runs_of_tile

    # ------------------------------------------------------------------------------------------ second pass

    def second_pass(self, drafts: Sequence[_Draft]) -> None:
        for step, draft in enumerate(drafts):
            self._step = self.routes.stage = step
            kind = draft.stage.kind
            if kind == "program":
                self._lower_program(draft)
            elif kind == "item":
                pass  # located by the stage that made all results
            elif kind == "reshape":
                self._lower_reshape(draft)
            elif kind in ("take", "take_put"):
                from distarray.execution import gather

                gather.second_pass(self, draft)
            else:
                self._lower_kernel(draft)
        for i in self.plan.outputs:
            at = self.located[i]
            self.out.outputs[i] = (at.sharding, at.refs)
        self.out.transfers = self.routes.transfers
        self.out.packed_bytes = self.routes.packed_bytes
        for draft in drafts:
            for tile in draft.tiles:
                if all(tile.box):
                    for i in draft.stage.nodes:
                        self.out.kernels[self.graph.nodes[i].op.name, tile.index] += 1

    def _shared(self, spec: StageSpec) -> StageSpec:
        """The record that the tasks of the stage share, to be filled in for every run."""
        self.template.specs.append((spec, self._step))
        return spec

    def _errstate(self, stage: Stage) -> tuple[str, ...] | None:
        for i in stage.nodes:
            state = self.graph.nodes[i].errstate
            if state is not None:
                return state
        return None

    def _finish(self, c: Combine, loops: Loops) -> Finish:
        node = self.graph.nodes[c.node]
        return Finish(node.op.name, c.monoid, c.axes, c.dtype, node.dtype, node.params[2:], loops.extents)

    def _lower_program(self, draft: _Draft) -> None:
        stage, nodes, loops = draft.stage, self.graph.nodes, draft.loops
        combines = tuple((c.register, c.monoid, c.axes, c.dtype) for c in stage.combines)
        outputs = tuple(register for register, _ in stage.stores)
        filled = -1
        if stage.write is not None:
            if stage.write[0] >= 0:
                outputs += (stage.write[0],)
            else:
                filled = -1 - stage.write[0]
        program = _program(len(stage.reads), stage.instructions, outputs, combines)
        spec = self._shared(StageSpec(
            program,
            (),
            tuple(nodes[i].dtype for _, i in stage.stores),
            tuple(self._finish(c, loops) for c in stage.combines),
            stage.write is not None,
            draft.sharding.layout,
            self.env.device,
            self._errstate(stage),
            extents=loops.extents,
            filled=filled,
        ))
        name = self._name(stage)
        partials: list[dict[tuple[int, ...], list[tuple[Any, int]]]] = [{} for _ in stage.combines]
        if stage.write is not None:
            at, below = self.located[stage.write[1]], self.located[draft.base]
            self._inherit(at, below, {number for _, number in draft.base_tiles}, draft.inplace)
        if draft.inplace:
            for tile in draft.tiles:
                for want in tile.wants:
                    self.routes.prepare(want)
        in_one_tile = [
            all(draft.sharding.parts[a] == 1 for a in c.axes) for c in stage.combines
        ]
        for t, tile in enumerate(draft.tiles):
            if not all(tile.box):
                for register, i in stage.stores:
                    self.located[i].refs[tile.number] = self._empty(tile, nodes[i].dtype)
                continue
            args = Arguments()
            write = None
            hazard = False
            if stage.write is not None:
                write, hazard = self._write(draft, t, tile, args)
            reuse = self._reuse(draft, tile, args)
            regions, assembled = self._regions(draft, tile, args)
            finish: tuple[tuple[int, ...] | None, ...] = tuple(
                self._combined_shape(c, tile) if alone else None
                for c, alone in zip(stage.combines, in_one_tile, strict=True)
            )
            record = TileSpec(
                tile.member, tuple(map(len, tile.box)), regions, assembled, tuple(args.generated), finish, write,
                hazard, tuple([r.start for r in tile.box]), (), reuse,
            )
            key = self._emit_program(draft, spec, name, record, args, tile)
            self._readers(key, args, draft, t)
            for (_, i), arg in zip(stage.stores, reuse, strict=True):
                if arg >= 0:
                    self._wait_for_readers(key, self.located[self.inplace[i]].refs[tile.number])
            n_results = len(stage.stores) + len(stage.combines) + (stage.write is not None)
            keys = self._results(key, n_results, tile.member, tile.number)
            for k, (_, i) in enumerate(stage.stores):
                self.located[i].refs[tile.number] = keys[k]
            for k, c in enumerate(stage.combines):
                index = self._combined_index(c, tile.index)
                partials[k].setdefault(index, []).append((keys[len(stage.stores) + k], tile.member))
            if stage.write is not None:
                at.refs[draft.base_tiles[t][1]] = keys[-1]
        for k, c in enumerate(stage.combines):
            self._combine(c.node, spec.finishes[k], partials[k], finished=in_one_tile[k])
        for _, i in stage.stores:
            self._fill_empty(i)

    def _emit_program(
        self, draft: _Draft, spec: StageSpec, name: str, record: TileSpec, args: Arguments, tile: _Tile
    ) -> Key:
        """The task of a tile; two of them where its core is to run before what it needs from others has come."""
        local = [r for r in record.regions if not any(p.arg in args.remote for p in r.operands)]
        if (
            not self.has_overlap or spec.finishes or record.assembled or not args.remote
            or not local or len(local) == len(record.regions)
        ):
            return self._emit("tile", name, tasks.run_program, (spec, record, *args.given), tile.member, tile.number)
        # The core: regions whose operands are all here. It is given None for what is still on its way.
        core = [None if k in args.remote else a for k, a in enumerate(args.given)]
        first = self._emit(
            "tile", f"{name}-core", tasks.run_program,
            (spec, replace(record, regions=tuple(local)), *core), tile.member, tile.number,
        )
        self._readers(first, args, draft, -1)
        rest = tuple([r for r in record.regions if r not in local])
        # generated operands are numbered after the given ones, to which the core's results are now added
        n = len(args.given)
        shifted = tuple([
            r._replace(operands=tuple([p._replace(arg=p.arg + 1) if p.arg >= n else p for p in r.operands])) for r in rest
        ])
        border = replace(record, regions=shifted, into=n)
        return self._emit(
            "tile", f"{name}-border", tasks.run_program, (spec, border, *args.given, first), tile.member, tile.number
        )

    def _inherit(self, at: Located, below: Located, touched: set[int], inplace: bool) -> None:
        """A new version begins as the old one; tiles that it does not touch stay shared, unless the old one ends here."""
        at.refs = list(below.refs)
        at.on_client, at.members = below.on_client, below.members
        at.shared = set(below.shared) if inplace else set(range(len(at.refs)))
        at.shared -= touched

    def _name(self, stage: Stage) -> str:
        nodes = self.graph.nodes
        return nodes[stage.nodes[-1]].op.name if stage.nodes else stage.kind

    def _empty(self, tile: _Tile, dtype: np.dtype[Any]) -> Any:
        return backend_for(self.env.device, tile.member).empty(tuple(map(len, tile.box)), dtype)

    def _fill_empty(self, i: int) -> None:
        """Tiles without elements have blocks too: made here, no task."""
        at = self.located[i]
        for number, tile in enumerate(at.sharding.tiles()):
            if at.refs[number] is None:
                shape = tuple(map(len, at.box(tile)))
                assert 0 in shape, "every tile with elements has a task"
                at.refs[number] = backend_for(self.env.device, at.members[number]).empty(shape, at.dtype)

    def _regions(
        self, draft: _Draft, tile: _Tile, args: Arguments
    ) -> tuple[tuple[Region, ...], tuple[Read, ...]]:
        """Boxes of the tile in which every operand is one slice; operands for which that takes too many are assembled."""
        found = [self.routes.parts(w, args) for w in tile.wants]
        box = tile.box
        start = tuple([r.start for r in box])
        if all(len(f) == 1 for f in found):
            operands = tuple([args.settle(f[0][0]) for f in found])
            return (Region(None, tuple(map(len, box)), start, operands),), ()
        cuts: list[set[int]] = [{r.start, r.stop} for r in box]
        split = []
        for f in found:
            plain = len(f) > 1 and all(r.step == 1 for _, seen in f for r in seen)
            split.append(plain)
        n = _count_regions(cuts, [f for f, s in zip(found, split, strict=True) if s])
        if n > MAX_REGIONS:
            split = [False] * len(found)
        for f, s in zip(found, split, strict=True):
            if s:
                for _, seen in f:
                    for a, r in enumerate(seen):
                        cuts[a] |= {r.start, r.stop}
        assembled: list[Read] = []
        whole: dict[int, int] = {}
        for p, (f, s) in enumerate(zip(found, split, strict=True)):
            if len(f) > 1 and not s:
                whole[p] = len(assembled)
                assembled.append(self._read(draft.readings[p], tile.wants[p].box, f, args))
        ordered = [sorted(c) for c in cuts]
        first_assembled = len(args.given) + len(args.generated)
        regions = []
        for chosen in product(*[list(zip(c, c[1:], strict=False)) for c in ordered]):
            part_box = tuple([range(a, b) for a, b in chosen])
            operands_here = []
            for p, f in enumerate(found):
                lens = draft.readings[p].lens
                if p in whole:
                    part = Part(first_assembled + whole[p], -1, Affine.identity(tuple(map(len, box))))
                    operands_here.append(part._replace(lens=part.lens.restricted(part_box_at(part_box, start), _frame(box))))
                    continue
                for part, seen in f:
                    if all(_within(r, s) for r, s in zip(part_box, seen, strict=True)):
                        inner = tuple([
                            range(r.start - s.start, r.stop - s.start) for r, s in zip(part_box, seen, strict=True)
                        ])
                        operands_here.append(args.settle(part)._replace(lens=_restrict(part.lens, inner)))
                        break
                else:
                    raise AssertionError(f"no part of operand {p} covers {part_box} through {lens}")
            place = tuple([slice(a - s, b - s) for (a, b), s in zip(chosen, start, strict=True)])
            regions.append(
                Region(place, tuple(map(len, part_box)), tuple([r.start for r in part_box]), tuple(operands_here))
            )
        return tuple(regions), tuple(assembled)

    def _read(self, r: Reading, box: Box, found: Sequence[tuple[Part, Box]], args: Arguments) -> Read:
        dtype = self.graph.nodes[r.node].dtype
        parts = tuple([args.settle(p) for p, _ in found])
        if len(parts) == 1:
            return Read(tuple(map(len, box)), dtype, parts, ((),))
        places = tuple([
            tuple([slice(s.start - b.start, s.stop - b.start, s.step) for s, b in zip(seen, box, strict=True)])
            for _, seen in found
        ])
        return Read(tuple(map(len, box)), dtype, parts, places)

    def _write(
        self, draft: _Draft, t: int, tile: _Tile, args: Arguments
    ) -> tuple[tuple[int, Affine, bool, bool], bool]:
        assert draft.stage.write is not None
        lens: Affine = self.graph.nodes[draft.stage.write[1]].runtime
        below = self.located[draft.base]
        base_tile, number = draft.base_tiles[t]
        frame = below.box(base_tile)
        arg = args.ref(below.refs[number])
        here = lens.restricted(tile.box, frame)
        image = lens.source_box(tile.box)
        whole = all(len(i) == len(f) for i, f in zip(image, frame, strict=True))
        hazard = draft.inplace and any(
            r.node == draft.base and not (r.lens.terms == lens.terms and r.lens.shape == lens.shape)
            for r in draft.readings
        )
        inplace = draft.inplace and number not in below.shared
        return (arg, here, inplace, whole), hazard

    def _readers(self, key: Key, args: Arguments, draft: _Draft, t: int) -> None:
        for at in args.direct:
            self.routes.readers.setdefault(at, []).append(key)
        if draft.inplace and t >= 0 and draft.base_tiles[t][1] not in self.located[draft.base].shared:
            self._wait_for_readers(key, self.located[draft.base].refs[draft.base_tiles[t][1]])

    def _wait_for_readers(self, key: Key, ref: Any) -> None:
        waits = {k for k in self.routes.readers.get(key_of(ref), ()) if k != key}
        if waits:
            self.out.after.setdefault(key, set()).update(waits)

    def _reuse(self, draft: _Draft, tile: _Tile, args: Arguments) -> tuple[int, ...]:
        """For each stored result the argument whose block it takes over, or -1."""
        out = []
        for _, i in draft.stage.stores:
            arg = -1
            node = self.inplace.get(i)
            if node is not None:
                at = self.located[node]
                if at.sharding == draft.sharding and not at.on_client and at.create is None:
                    arg = args.ref(at.refs[tile.number])
            out.append(arg)
        return tuple(out)

    def _combined_index(self, c: Combine, index: tuple[int, ...]) -> tuple[int, ...]:
        keepdims = bool(self.graph.nodes[c.node].params[1])
        if keepdims:
            return tuple([0 if a in c.axes else i for a, i in enumerate(index)])
        return tuple([i for a, i in enumerate(index) if a not in c.axes])

    def _combined_shape(self, c: Combine, tile: _Tile) -> tuple[int, ...]:
        keepdims = bool(self.graph.nodes[c.node].params[1])
        if keepdims:
            return tuple([1 if a in c.axes else len(r) for a, r in enumerate(tile.box)])
        return tuple([len(r) for a, r in enumerate(tile.box) if a not in c.axes])

    def _combine(
        self, i: int, finish: Finish, partials: Mapping[tuple[int, ...], list[tuple[Any, int]]], *, finished: bool
    ) -> None:
        """A tree of combining tasks for each tile of the result, at the member that holds the tile."""
        at = self.located[i]
        for number, index in enumerate(at.sharding.tiles()):
            member = at.members[number]
            shape = tuple(map(len, at.box(index)))
            parts = partials.get(index, [])
            if not parts:
                if 0 in shape:
                    at.refs[number] = backend_for(self.env.device, member).empty(shape, at.dtype)
                else:
                    at.refs[number] = tasks.of_nothing(finish, shape, backend_for(self.env.device, member))
                continue
            if finished:
                assert len(parts) == 1
                at.refs[number] = parts[0][0]
                continue
            while True:
                last = len(parts) <= FAN_IN
                merged = []
                for k in range(0, len(parts), FAN_IN):
                    group = parts[k : k + FAN_IN]
                    where = member if last else group[0][1]
                    for ref, source in group:
                        self.routes.carry(ref, source, where, shape, max(1, _n(shape)) * at.dtype.itemsize)
                    key = self._emit(
                        "combine", "combine", tasks.combine_partials,
                        (finish, shape if last else None, self.env.device, where, *[ref for ref, _ in group]),
                        where, number,
                    )
                    merged.append((key, where))
                parts = merged
                if last:
                    break
            at.refs[number] = parts[0][0]

    def _lower_kernel(self, draft: _Draft) -> None:
        """Contractions and whole-block kernels: one task per tile of their loops."""
        stage, nodes, loops = draft.stage, self.graph.nodes, draft.loops
        i = stage.nodes[0]
        node = nodes[i]
        several = self.several.get(i)
        dtypes = node.dtype if isinstance(node.dtype, tuple) else (node.dtype,)
        contract = stage.kind == "contract"
        finishes: tuple[Finish, ...] = ()
        if contract:
            monoid = "any" if node.dtype == np.bool_ else "sum"
            finishes = (Finish(monoid, monoid, loops.reduced, node.dtype, node.dtype, (), loops.extents),)
        spec = self._shared(StageSpec(
            None, (), tuple(dtypes), finishes, False, (), self.env.device, node.errstate, (),
            node.op.name, node.params, loops.extents,
        ))
        function = tasks.run_contract if contract else tasks.run_block
        if stage.kind == "compress":
            function = tasks.run_compress
        for at in several or [self.located[i]]:
            at.refs = [None] * at.sharding.n_tiles
        partials: dict[tuple[int, ...], list[tuple[Any, int]]] = {}
        alone = all(draft.sharding.parts[a] == 1 for a in loops.reduced)
        for tile in draft.tiles:
            result_boxes = [tuple([tile.box[a] for a in axes]) for axes in loops.results]
            if all(not all(b) for b in result_boxes):
                continue
            if contract and loops.reduced and not all(tile.box) and not alone:
                continue
            args = Arguments()
            found = [self.routes.parts(w, args) for w in tile.wants]
            reads = tuple([
                self._read(r, w.box, f, args) for r, w, f in zip(draft.readings, tile.wants, found, strict=True)
            ])
            shape = tuple(map(len, result_boxes[0]))
            record = TileSpec(
                tile.member, shape, generated=tuple(args.generated), finish=(shape,) if contract else (), reads=reads,
                offset=tuple([r.start for r in tile.box]),
            )
            key = self._emit("tile", node.op.name, function, (spec, record, *args.given), tile.member, tile.number)
            for where in args.direct:
                self.routes.readers.setdefault(where, []).append(key)
            if contract and not alone:
                index = tuple([tile.index[a] for a in loops.results[0]])
                partials.setdefault(index, []).append((key, tile.member))
                continue
            keys = self._results(key, len(several) if several else 1, tile.member, tile.number)
            for at, k, axes in zip(several or [self.located[i]], keys, loops.results, strict=True):
                at.refs[at.number(tuple([tile.index[a] for a in axes]))] = k
        if contract and not alone:
            self._combine(i, finishes[0], partials, finished=False)
        for k, at in enumerate(several or [self.located[i]]):
            for number, index in enumerate(at.sharding.tiles()):
                if at.refs[number] is None:
                    shape = tuple(map(len, at.box(index)))
                    backend = backend_for(self.env.device, at.members[number])
                    at.refs[number] = backend.zeros(shape, dtypes[k])

    def _lower_reshape(self, draft: _Draft) -> None:
        stage, nodes = draft.stage, self.graph.nodes
        i = stage.nodes[0]
        node = nodes[i]
        at = self.located[i]
        spec = self._shared(StageSpec(None, (), (node.dtype,), device=self.env.device, name="reshape"))
        for tile, (extents, places) in zip(draft.tiles, draft.extra, strict=True):
            if not all(tile.box):
                at.refs[tile.number] = self._empty(tile, node.dtype)
                continue
            args = Arguments()
            found = [self.routes.parts(w, args) for w in tile.wants]
            reads = tuple([
                self._read(draft.readings[0], w.box, f, args) for w, f in zip(tile.wants, found, strict=True)
            ])
            regions = tuple([Region(place, shape, (), ()) for place, shape in places])
            record = TileSpec(
                tile.member, tuple(map(len, tile.box)), regions, (), tuple(args.generated), reads=reads, offset=extents
            )
            key = self._emit("tile", "reshape", tasks.run_reshape, (spec, record, *args.given), tile.member, tile.number)
            for where in args.direct:
                self.routes.readers.setdefault(where, []).append(key)
            at.refs[tile.number] = key


def _is_key(a: tuple[Any, ...]) -> bool:
    return len(a) >= 3 and isinstance(a[0], str) and a[0].startswith("dx-")


def _n(shape: Sequence[int]) -> int:
    n = 1
    for s in shape:
        n *= s
    return n


def _within(inner: range, outer: range) -> bool:
    return inner.start >= outer.start and inner.stop <= outer.stop


def _frame(box: Box) -> Box:
    return tuple([range(len(r)) for r in box])


def part_box_at(box: Box, start: Sequence[int]) -> Box:
    """A box in the coordinates of the tile that begins at `start`."""
    return tuple([range(r.start - s, r.stop - s) for r, s in zip(box, start, strict=True)])


def _restrict(lens: Affine, box: Box) -> Affine:
    """The part of a view that lies in `box`, from the same array."""
    terms = tuple([
        (None, start, 0) if axis is None
        else (axis, start + step * box[axis].start, step if len(box[axis]) > 1 else 1)
        for axis, start, step in lens.terms
    ])
    return Affine(tuple(map(len, box)), terms)


def _count_regions(cuts: Sequence[set[int]], found: Sequence[Sequence[tuple[Part, Box]]]) -> int:
    n = 1
    for a, c in enumerate(cuts):
        points = set(c)
        for f in found:
            for _, seen in f:
                points |= {seen[a].start, seen[a].stop}
        n *= max(1, len(points) - 1)
    return n


def _runs(lo: int, hi: int, shape: tuple[int, ...]) -> list[tuple[int, int, Box]]:
    """The run of elements lo..hi of an array in C order, as boxes: at most 2 * rank - 1 of them.

    Returns
    -------
    list of (start, stop, box)
        Each box holds the elements start..stop, in its own C order.
    """
    if lo >= hi:
        return []
    if not shape:
        return [(0, 1, ())]
    if len(shape) == 1:
        return [(lo, hi, (range(lo, hi),))]
    inner = _n(shape[1:])
    first, last = lo // inner, (hi - 1) // inner
    out: list[tuple[int, int, Box]] = []

    def descend(row: int, a: int, b: int) -> None:
        for start, stop, box in _runs(a - row * inner, b - row * inner, shape[1:]):
            out.append((start + row * inner, stop + row * inner, (range(row, row + 1), *box)))

    whole_first = first if lo == first * inner else first + 1
    whole_last = last + 1 if hi == (last + 1) * inner else last
    if whole_first > first and (first < last or whole_first > whole_last or lo % inner):
        descend(first, lo, min(hi, (first + 1) * inner))
    if whole_first < whole_last:
        out.append(
            (whole_first * inner, whole_last * inner,
             (range(whole_first, whole_last), *[range(n) for n in shape[1:]]))
        )
    if whole_last == last and last >= whole_first:
        descend(last, last * inner, hi)
    return out


def lower(plan: Plan, graph: Graph, env: Environment, run: str, inplace: Mapping[int, int] = MappingProxyType({})) -> Lowered:
    """Make the tasks of a plan for the nodes at hand.

    Parameters
    ----------
    plan, graph
        From the planner (or its cache); their keys agree.
    env
        Team and device of all nodes.
    run
        Names this evaluation: unique in the scheduler's lifetime.
    inplace
        Results that may take over the blocks of a node that nobody needs afterwards. Empty on a cluster, where tasks
        are retried.
    """
    limit = config.get("plan-cache-size")
    template = _TEMPLATES.get(_geometry(graph, inplace), lambda: _template(plan, graph, env, inplace), limit)
    return _instantiate(template, plan, graph, run)


_TEMPLATES: LRUCache[Template] = LRUCache()


def _geometry(graph: Graph, inplace: Mapping[int, int]) -> tuple[Any, ...]:
    """What decides the tasks of a plan beside its key: extents, boundaries and lenses."""
    facts: list[Any] = [graph.key, config.get("overlap"), tuple(inplace.items())]
    for node in graph.nodes:
        memo = node.memo
        if memo is not None:
            facts.append((node.shape, memo.on_client, memo.sharding))
        elif node.op.kind in ("get", "put", "compress"):
            facts.append((node.shape, node.runtime))
        else:
            facts.append(node.shape)
    return tuple(facts)


def _template(plan: Plan, graph: Graph, env: Environment, inplace: Mapping[int, int]) -> Template:
    state = _Lowering(plan, graph, env, inplace)
    state.out.drafts = state.first_pass()
    state.second_pass(state.out.drafts)
    # The routes call back into the lowering: such a cycle would keep all blocks alive until a garbage collection.
    del state.routes
    return state.template


def _instantiate(template: Template, plan: Plan, graph: Graph, run: str) -> Lowered:
    """Fill in what varies: the blocks, the scalars and the name of the run."""
    nodes = graph.nodes
    specs: dict[int, StageSpec] = {}
    for spec, number in template.specs:
        stage = plan.stages[number]
        scalars = tuple([nodes[i].operands[p] for i, p in stage.scalars])
        specs[id(spec)] = replace(spec, scalars=scalars, where=_origins(stage, nodes))
    names: dict[str, str] = {}

    def named(key: Key) -> Key:
        name = names.get(key[0])
        if name is None:
            name = names[key[0]] = f"{key[0]}-{run}"
        return (name, *key[1:])

    def block(leaf: Leaf) -> Any:
        memo = nodes[leaf.node].memo
        assert memo is not None
        return memo.blocks[leaf.number]

    def filled(a: Any) -> Any:
        kind = type(a)
        if kind is tuple and _is_key(a):
            return TaskRef(named(a))
        if kind is Leaf:
            found = block(a)
            # a Future stands for its key, which the executor knows as long as the memo lives
            key = getattr(found, "key", None)
            return found if key is None else TaskRef(key)
        if kind is ClientBox:
            return block(Leaf(a.node, 0))[a.slices]
        if kind is StageSpec:
            return specs.get(id(a), a)
        if kind is TileSpec and a.generated:
            return replace(a, generated=tuple([g._replace(runtime=nodes[g.node].runtime) for g in a.generated]))
        return a

    made: dict[Key, Task] = {}
    for key, (function, args) in template.recipes.items():
        new = named(key)
        made[new] = Task(new, function, *[filled(a) for a in args])
    fixed = template.lowered
    outputs = {}
    for i, (sharding, refs) in fixed.outputs.items():
        outputs[i] = (
            sharding,
            [block(r) if type(r) is Leaf else named(r) if type(r) is tuple and _is_key(r) else r for r in refs],
        )
    return replace(
        fixed,
        tasks=made,
        members=dict(zip(made, fixed.members.values(), strict=True)),
        after={named(k): {named(w) for w in waits} for k, waits in fixed.after.items()},
        outputs=outputs,
    )


def _origins(stage: Stage, nodes: Sequence[Expr]) -> tuple[tuple[str, Any], ...]:
    """The operations of a stage and where the user called them."""
    return tuple([(nodes[i].op.name, nodes[i].origin) for i in stage.nodes if nodes[i].origin is not None])
