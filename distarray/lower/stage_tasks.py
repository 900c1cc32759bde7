"""The second pass of lowering: the tasks of every stage, in an order in which they can run.

One method per family of stages; integer-array reads and writes are in `gather`. A tile of a program is divided into
regions in which every operand is one slice of a block or piece.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise, product
from typing import Any

import numpy as np

from distarray.expr.lens import Affine
from distarray.kernels import program as programs
from distarray.kernels import tasks
from distarray.kernels.backends import NUMPY, Backend, backend_for
from distarray.kernels.tasks import Finish, Folding, Part, Read, Region, StageSpec, TileSpec
from distarray.lower import collectives, combining, gather
from distarray.lower.combining import Partials
from distarray.lower.drafts import Draft, Drafting, Tile
from distarray.lower.regions import count_regions, frame_of, is_within, n_elements, restrict, shifted
from distarray.lower.route import Arguments, Key, Located, key_of
from distarray.lower.template import Recipe
from distarray.planner.plan import Combine, Instruction, Stage
from distarray.planner.propagation import Loops, Reading
from distarray.planner.rates import hides_a_transfer
from distarray.sharding.boxes import Box, size

__all__ = ["Lowering"]

#: Regions of a tile beyond which an operand is put together instead.
MAX_REGIONS = 64


#: Kernels whose block is new, in memory order, and all the memory that they need: a result needs no copy of it.
_MADE_ANEW = ("arange", "linspace", "random_", "drawn_")

#: What runs in a task for each family of kernels.
_KERNELS: dict[str, Callable[..., Any]] = {
    "block": tasks.run_block,
    "contract": tasks.run_contract,
    "fold": tasks.run_fold,
    "tiles": tasks.run_tiles,
    "windows": tasks.run_tiles,
}


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
        tuple(
            [
                programs.Instruction(
                    i.function, tuple([r if r >= 0 else programs.Scalar(-1 - r) for r in i.inputs]), i.dtype, i.params
                )
                for i in instructions
            ]
        ),
        outputs,
        tuple([programs.Reduction(*c) for c in combines]),
    )


def _is_alone(draft: Draft, c: Combine) -> bool:
    """Whether a tile has all that one tile of the result is reduced from."""
    return all(draft.sharding.parts[a] == 1 for a in c.axes)


def _adds_nothing(draft: Draft) -> bool:
    """Whether a tile of loops without elements gives no partial result."""
    loops = draft.loops
    if draft.stage.kind == "fold":
        return all(loops.extents[a] for a in loops.reduced)
    return draft.stage.kind == "contract" and bool(loops.reduced)


class Lowering(Drafting):
    """Makes the tasks of a plan."""

    # ------------------------------------------------------------------------------------------------ tasks

    def emit(
        self,
        kind: str,
        name: str,
        function: Callable[..., Any],
        args: Sequence[Any],
        member: int,
        number: int = 0,
        waits: Sequence[Key] = (),
    ) -> Key:
        recipes = self.template.recipes
        key: Key = (f"dx-{name}", self._step, number)
        if key in recipes:
            key = (*key, len(recipes))
        recipes[key] = Recipe(kind, function, tuple(args), tuple(waits))
        self.out.members[key] = member
        self.out.counts[kind] += 1
        return key

    def emit_piece(
        self, name: str, function: Callable[..., Any], args: Sequence[Any], member: int, waits: Sequence[Key] = ()
    ) -> Key:
        return self.emit("piece", name, function, args, member, len(self.template.recipes), waits)

    def _results(self, key: Key, n: int, member: int, number: int) -> list[Key]:
        """The keys of the results of a task: itself, or one projection for each of several."""
        if n == 1:
            return [key]
        return [self.emit("project", f"item{i}", tasks.project, (i, key), member, number) for i in range(n)]

    # ------------------------------------------------------------------------------------------ second pass

    def second_pass(self, drafts: Sequence[Draft]) -> None:
        for step, draft in enumerate(drafts):
            self._step = step
            self.routes.begin(step)
            kind = draft.stage.kind
            if draft.moves is not None:
                collectives.second_pass(self, draft)
            elif kind == "program":
                self._lower_program(draft)
            elif kind == "item":
                pass  # located by the stage that made all results
            elif kind == "reshape":
                self._lower_reshape(draft)
            elif kind in ("take", "take_put"):
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
                if all(tile.box) and tile.is_last:
                    for i in draft.stage.nodes:
                        self.out.kernels[self.graph.nodes[i].op.name, tile.index] += 1

    def share(self, spec: StageSpec) -> StageSpec:
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

    def _lower_program(self, draft: Draft) -> None:
        stage, nodes = draft.stage, self.graph.nodes
        if stage.write is not None:
            at, below = self.located[stage.write[1]], self.located[draft.base]
            self.inherit(at, below, {number for _, number in draft.base_tiles}, draft.inplace)
        if draft.inplace:
            for tile in draft.tiles:
                for want in tile.wants:
                    self.routes.prepare(want)
        spec = self.share(self._program_spec(draft))
        partials: list[Partials] = [{} for _ in stage.combines]
        unfinished: dict[int, Key] = {}
        for t, tile in enumerate(draft.tiles):
            if all(tile.box):
                self._lower_program_tile(draft, spec, t, tile, partials, unfinished)
            else:
                for _, i in stage.stores:
                    self.located[i].refs[tile.number] = self.empty_tile(tile, nodes[i].dtype)
        for c, finish, found in zip(stage.combines, spec.finishes, partials, strict=True):
            combining.combine(self, c.node, finish, found)
        for _, i in stage.stores:
            self.fill_empty(i)

    def _program_spec(self, draft: Draft) -> StageSpec:
        stage, loops = draft.stage, draft.loops
        outputs = tuple(register for register, _ in stage.stores)
        filled = -1
        if stage.write is not None:
            if stage.write[0] >= 0:
                outputs += (stage.write[0],)
            else:
                filled = -1 - stage.write[0]
        combines = tuple((c.register, c.monoid, c.axes, c.dtype) for c in stage.combines)
        return StageSpec(
            _program(len(stage.reads), stage.instructions, outputs, combines),
            (),
            tuple(self.graph.nodes[i].dtype for _, i in stage.stores),
            tuple(self._finish(c, loops) for c in stage.combines),
            stage.write is not None,
            draft.sharding.layout,
            self.env.device,
            self._errstate(stage),
            extents=loops.extents,
            filled=filled,
        )

    def _lower_program_tile(
        self,
        draft: Draft,
        spec: StageSpec,
        t: int,
        tile: Tile,
        partials: Sequence[Partials],
        unfinished: dict[int, Key],
    ) -> None:
        """The task of a tile, and where its results are; what is still to be combined goes to `partials`.

        Of a tile that is filled in turns it is the task of one of them: `unfinished` has that of the one before.
        """
        stage, nodes = draft.stage, self.graph.nodes
        args = Arguments()
        into = args.ref(unfinished[tile.number]) if tile.turn else -1
        write, hazard = self._write(draft, t, tile, args) if stage.write is not None else (None, False)
        reuse = self._reuse(draft, tile, args)
        regions, assembled = self._regions(draft, tile, args)
        alone = [_is_alone(draft, c) for c in stage.combines]
        record = TileSpec(
            tile.member,
            tuple(map(len, tile.whole)),
            regions,
            assembled,
            tuple(args.generated),
            tuple(
                combining.combined_shape(self, c, tile) if is_alone else None
                for c, is_alone in zip(stage.combines, alone, strict=True)
            ),
            write,
            hazard,
            tuple([r.start for r in tile.whole]),
            (),
            reuse,
            into,
            not tile.is_last,
            self._is_made(draft, tile, args, reuse),
        )
        key = self._emit_program(draft, spec, self._name(stage), record, args, tile)
        self.routes.made(tile.member, key)
        self.note_readers(key, args, draft, t)
        if not tile.is_last:
            unfinished[tile.number] = key
            return
        n_results = len(stage.stores) + len(stage.combines) + (stage.write is not None)
        keys = iter(self._results(key, n_results, tile.member, tile.number))
        for (_, i), arg in zip(stage.stores, reuse, strict=True):
            if arg >= 0:
                self.wait_for_readers(key, self.located[self.inplace[i]].refs[tile.number])
            else:
                self.allocated(tile.whole, nodes[i].dtype)
            self.located[i].refs[tile.number] = next(keys)
        for c, is_alone, found in zip(stage.combines, alone, partials, strict=True):
            index = combining.combined_index(self, c, tile.index)
            if is_alone:
                at = self.located[c.node]
                at.refs[at.number(index)] = next(keys)
            else:
                found.setdefault(index, []).append((next(keys), tile.member))
        if stage.write is not None and write is not None:
            base_tile, number = draft.base_tiles[t]
            if not write[2]:
                below = self.located[draft.base]
                self.allocated(below.box(base_tile), below.dtype)
            self.located[stage.write[1]].refs[number] = next(keys)

    def _is_made(self, draft: Draft, tile: Tile, args: Arguments, reuse: tuple[int, ...]) -> bool:
        """Whether the one result of a tile is what a kernel makes anew for just this box."""
        stage = draft.stage
        if stage.instructions or stage.combines or stage.write is not None or len(stage.stores) != 1:
            return False
        if args.given or len(args.generated) != 1 or reuse != (-1,):
            return False
        made, dtype = args.generated[0], self.graph.nodes[stage.stores[0][1]].dtype
        is_plain = draft.readings[0].lens.is_identity(made.shape) and draft.sharding.layout in (
            (),
            tuple(range(len(made.shape))),
        )
        return is_plain and made.dtype == dtype and made.name.startswith(_MADE_ANEW) and tile.n_turns == 1

    def _emit_program(
        self, draft: Draft, spec: StageSpec, name: str, record: TileSpec, args: Arguments, tile: Tile
    ) -> Key:
        """The task of a tile; two of them where its core is to run before what it needs from others has come."""
        local = [r for r in record.regions if not any(p.arg in args.remote for p in r.operands)]
        if (
            not self.has_overlap
            or tile.n_turns > 1
            or spec.finishes
            or record.assembled
            or not args.remote
            or not local
            or len(local) == len(record.regions)
            or not self._pays(draft, record, local, args, tile)
        ):
            return self.emit("tile", name, tasks.run_program, (spec, record, *args.given), tile.member, tile.number)
        # The core: regions whose operands are all here. It is given None for what is still on its way.
        core = [None if k in args.remote else a for k, a in enumerate(args.given)]
        first = self.emit(
            "tile",
            f"{name}-core",
            tasks.run_program,
            (spec, replace(record, regions=tuple(local), is_unfinished=True), *core),
            tile.member,
            tile.number,
        )
        self.note_readers(first, args, draft, -1)
        rest = tuple([r for r in record.regions if r not in local])
        # generated operands are numbered after the given ones, to which the core's results are now added
        n = len(args.given)
        moved = tuple(
            [
                r._replace(operands=tuple([p._replace(arg=p.arg + 1) if p.arg >= n else p for p in r.operands]))
                for r in rest
            ]
        )
        border = replace(record, regions=moved, into=n)
        return self.emit(
            "tile", f"{name}-border", tasks.run_program, (spec, border, *args.given, first), tile.member, tile.number
        )

    def _pays(self, draft: Draft, record: TileSpec, local: list[Region], args: Arguments, tile: Tile) -> bool:
        """Whether the model says that the core of a tile is to be a task of its own."""
        if self.overlap_rates is None:
            return True
        nbytes = sum(
            n_elements(tuple(map(len, source))) * self.graph.nodes[want.node].dtype.itemsize
            for want in tile.wants
            for _, number, source, _ in want.fragments
            if number in want.private
        )
        n_core, n_all = sum(n_elements(r.shape) for r in local), n_elements(record.shape)
        return hides_a_transfer(
            self.overlap_rates, len(args.remote), nbytes, n_core, n_all, len(draft.stage.instructions)
        )

    def allocated(self, box: Box, dtype: np.dtype[Any]) -> None:
        """Count a block that a task makes."""
        self.out.allocated_bytes += n_elements(tuple(map(len, box))) * dtype.itemsize

    def inherit(self, at: Located, below: Located, touched: set[int], inplace: bool) -> None:
        """A new version begins as the old one; tiles that it does not touch stay shared unless the old one ends."""
        at.refs = list(below.refs)
        if not below.on_client:
            at.members = below.members
        at.shared = set(below.shared) if inplace else set(range(len(at.refs)))
        at.shared -= touched
        if not inplace:
            below.shared |= at.shared  # the old one's blocks are the new one's too

    def _name(self, stage: Stage) -> str:
        nodes = self.graph.nodes
        return nodes[stage.nodes[-1]].op.name if stage.nodes else stage.kind

    def empty_tile(self, tile: Tile, dtype: np.dtype[Any]) -> Any:
        return self.backend_here(tile.member).empty(tuple(map(len, tile.box)), dtype)

    def backend_here(self, member: int) -> Backend:
        """What makes blocks of a member in this process, which are small: on a cluster it need not have the device."""
        return NUMPY if self.machine.is_cluster else backend_for(self.env.device, member)

    def fill_empty(self, i: int) -> None:
        """Tiles without elements have blocks too: made here, no task."""
        at = self.located[i]
        for number, tile in enumerate(at.sharding.tiles()):
            if at.refs[number] is None:
                shape = tuple(map(len, at.box(tile)))
                assert 0 in shape, "every tile with elements has a task"
                at.refs[number] = self.backend_here(at.members[number]).empty(shape, at.dtype)

    def _regions(self, draft: Draft, tile: Tile, args: Arguments) -> tuple[tuple[Region, ...], tuple[Read, ...]]:
        """Boxes of the tile in which every operand is one slice; operands that need too many are assembled."""
        found = [self.routes.parts(w, args) for w in tile.wants]
        box = tile.box
        start = tuple([r.start for r in box])
        first = tuple([r.start for r in tile.whole])
        if all(len(f) == 1 for f in found):
            operands = tuple([args.settle(f[0][0]) for f in found])
            place = None if tile.n_turns == 1 else tuple([slice(r.start, r.stop) for r in shifted(box, first)])
            return (Region(place, tuple(map(len, box)), start, operands),), ()
        cuts: list[set[int]] = [{r.start, r.stop} for r in box]
        split = []
        for f in found:
            plain = len(f) > 1 and all(r.step == 1 for _, seen in f for r in seen)
            split.append(plain)
        n = count_regions(cuts, [f for f, s in zip(found, split, strict=True) if s])
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
                assembled.append(self.read(draft.readings[p], tile.wants[p].box, f, args))
        ordered = [sorted(c) for c in cuts]
        first_assembled = len(args.given) + len(args.generated)
        regions = []
        for chosen in product(*[list(pairwise(c)) for c in ordered]):
            part_box = tuple([range(a, b) for a, b in chosen])
            operands_here = []
            for p, f in enumerate(found):
                lens = draft.readings[p].lens
                if p in whole:
                    part = Part(first_assembled + whole[p], -1, Affine.identity(tuple(map(len, box))))
                    operands_here.append(
                        part._replace(lens=part.lens.restricted(shifted(part_box, start), frame_of(box)))
                    )
                    continue
                for part, seen in f:
                    if all(is_within(r, s) for r, s in zip(part_box, seen, strict=True)):
                        inner = tuple(
                            [range(r.start - s.start, r.stop - s.start) for r, s in zip(part_box, seen, strict=True)]
                        )
                        operands_here.append(args.settle(part)._replace(lens=restrict(part.lens, inner)))
                        break
                else:
                    raise AssertionError(f"no part of operand {p} covers {part_box} through {lens}")
            place = tuple([slice(a - s, b - s) for (a, b), s in zip(chosen, first, strict=True)])
            regions.append(
                Region(place, tuple(map(len, part_box)), tuple([r.start for r in part_box]), tuple(operands_here))
            )
        return tuple(regions), tuple(assembled)

    def read(self, r: Reading, box: Box, found: Sequence[tuple[Part, Box]], args: Arguments) -> Read:
        dtype = self.graph.nodes[r.node].dtype
        parts = tuple([args.settle(p) for p, _ in found])
        if len(parts) == 1:
            return Read(tuple(map(len, box)), dtype, parts, ((),))
        places = tuple(
            [
                tuple([slice(s.start - b.start, s.stop - b.start, s.step) for s, b in zip(seen, box, strict=True)])
                for _, seen in found
            ]
        )
        return Read(tuple(map(len, box)), dtype, parts, places)

    def _write(self, draft: Draft, t: int, tile: Tile, args: Arguments) -> tuple[tuple[int, Affine, bool, bool], bool]:
        assert draft.stage.write is not None
        lens: Affine = self.graph.nodes[draft.stage.write[1]].runtime
        below = self.located[draft.base]
        base_tile, number = draft.base_tiles[t]
        frame = below.box(base_tile)
        arg = args.ref(below.refs[number])
        here = lens.restricted(tile.box, frame)
        # Elements are counted, since no two of the view are one of the base: a diagonal reaches from end to end of a
        # tile along every axis, and leaves most of it as it is.
        whole = size(tile.box) == size(frame)
        hazard = draft.inplace and any(
            r.node == draft.base and not (r.lens.terms == lens.terms and r.lens.shape == lens.shape)
            for r in draft.readings
        )
        inplace = draft.inplace and number not in below.shared
        return (arg, here, inplace, whole), hazard

    def note_readers(self, key: Key, args: Arguments, draft: Draft, t: int) -> None:
        for at in args.direct:
            self.routes.readers.setdefault(at, []).append(key)
        if draft.inplace and t >= 0 and draft.base_tiles[t][1] not in self.located[draft.base].shared:
            self.wait_for_readers(key, self.located[draft.base].refs[draft.base_tiles[t][1]])

    def wait_for_readers(self, key: Key, ref: Any) -> None:
        waits = {k for k in self.routes.readers.get(key_of(ref), ()) if k != key}
        if waits:
            self.out.after.setdefault(key, set()).update(waits)

    def _reuse(self, draft: Draft, tile: Tile, args: Arguments) -> tuple[int, ...]:
        """For each stored result the argument whose block it takes over, or -1."""
        out = []
        for _, i in draft.stage.stores:
            arg = -1
            node = self.inplace.get(i)
            if node is not None:
                at = self.located[node]
                is_plain = at.sharding == draft.sharding and not at.on_client and at.create is None
                if is_plain and tile.number not in at.shared:
                    arg = args.ref(at.refs[tile.number])
            out.append(arg)
        return tuple(out)

    def _lower_kernel(self, draft: Draft) -> None:
        """Contractions and whole-block kernels: one task per tile of their loops."""
        i, loops = draft.stage.nodes[0], draft.loops
        results = self.several.get(i) or [self.located[i]]
        for at in results:
            at.refs = [None] * at.sharding.n_tiles
        spec = self.share(self._kernel_spec(draft))
        partials: Partials = {}
        alone = all(draft.sharding.parts[a] == 1 for a in loops.reduced)
        for tile in draft.tiles:
            indices = [tuple([tile.index[a] for a in axes]) for axes in loops.results]
            boxes = [at.box(index) for at, index in zip(results, indices, strict=True)]
            if not any(all(box) for box in boxes):
                continue
            if not (alone or all(tile.box)) and _adds_nothing(draft):
                continue
            key = self._emit_kernel(draft, spec, tile, tuple(map(len, boxes[0])), alone)
            if spec.finishes and not alone:
                partials.setdefault(indices[0], []).append((key, tile.member))
                continue
            keys = self._results(key, len(results), tile.member, tile.number)
            for at, index, box, k in zip(results, indices, boxes, keys, strict=True):
                at.refs[at.number(index)] = k
                self.allocated(box, at.dtype)
        if spec.finishes and not alone:
            combining.combine(self, i, spec.finishes[0], partials)
        # tiles without elements, and sums over no elements
        for at in results:
            for number, index in enumerate(at.sharding.tiles()):
                if at.refs[number] is None:
                    shape = tuple(map(len, at.box(index)))
                    at.refs[number] = self.backend_here(at.members[number]).zeros(shape, at.dtype)

    def _kernel_spec(self, draft: Draft) -> StageSpec:
        node, loops = self.graph.nodes[draft.stage.nodes[0]], draft.loops
        finishes: tuple[Finish, ...] = ()
        if draft.stage.kind == "contract":
            monoid = str(node.params[3])
            finishes = (Finish(monoid, monoid, loops.reduced, node.dtype, node.dtype, (), loops.extents),)
        elif draft.stage.kind == "fold":
            number = draft.stage.nodes[0]
            facts = (node.op.name, "", loops.reduced, node.dtype, node.dtype, node.params, loops.extents)
            finishes = (Folding(*facts, node=number),)
        return StageSpec(
            None,
            (),
            tuple(node.dtype) if isinstance(node.dtype, tuple) else (node.dtype,),
            finishes,
            False,
            (),
            self.env.device,
            node.errstate,
            (),
            node.op.name,
            node.params,
            loops.extents,
        )

    def _emit_kernel(self, draft: Draft, spec: StageSpec, tile: Tile, shape: tuple[int, ...], alone: bool) -> Key:
        """The task of a tile, whose first result has `shape`."""
        stage = draft.stage
        args = Arguments()
        found = [self.routes.parts(w, args) for w in tile.wants]
        reads = tuple([self.read(r, w.box, f, args) for r, w, f in zip(draft.readings, tile.wants, found, strict=True)])
        at_operand = draft.readings[0].box(tile.box) if stage.kind == "tiles" else tile.box
        record = TileSpec(
            tile.member,
            shape,
            generated=tuple(args.generated),
            finish=(shape if alone else None,) if spec.finishes else (),
            reads=reads,
            offset=tuple([r.start for r in at_operand]),
        )
        key = self.emit("tile", spec.name, _KERNELS[stage.kind], (spec, record, *args.given), tile.member, tile.number)
        self.routes.made(tile.member, key)
        for where in args.direct:
            self.routes.readers.setdefault(where, []).append(key)
        return key

    def _lower_reshape(self, draft: Draft) -> None:
        stage, nodes = draft.stage, self.graph.nodes
        i = stage.nodes[0]
        node = nodes[i]
        at = self.located[i]
        spec = self.share(StageSpec(None, (), (node.dtype,), device=self.env.device, name="reshape"))
        for tile, (extents, places) in zip(draft.tiles, draft.extra, strict=True):
            if not all(tile.box):
                at.refs[tile.number] = self.empty_tile(tile, node.dtype)
                continue
            args = Arguments()
            found = [self.routes.parts(w, args) for w in tile.wants]
            reads = tuple(
                [self.read(draft.readings[0], w.box, f, args) for w, f in zip(tile.wants, found, strict=True)]
            )
            regions = tuple([Region(place, shape, (), ()) for place, shape in places])
            record = TileSpec(
                tile.member, tuple(map(len, tile.box)), regions, (), tuple(args.generated), reads=reads, offset=extents
            )
            key = self.emit("tile", "reshape", tasks.run_reshape, (spec, record, *args.given), tile.member, tile.number)
            self.allocated(tile.box, node.dtype)
            for where in args.direct:
                self.routes.readers.setdefault(where, []).append(key)
            at.refs[tile.number] = key
