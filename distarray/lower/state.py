"""State of one lowering, and what every family of stages does with it: emit tasks, read tiles, keep writes in order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any, TypeVar

import numpy as np

from distarray.expr.expr import Environment
from distarray.kernels import tasks
from distarray.kernels.backends import NUMPY, Backend
from distarray.kernels.devices import backend_for
from distarray.kernels.specs import Part, Read, StageSpec
from distarray.lower.messages import Key, Messages, key_of
from distarray.lower.parameters import origins
from distarray.lower.recipes import ClientBox, Leaf, Recipe, TaskKind, is_key
from distarray.lower.records import Tile
from distarray.lower.route import Arguments, Located, Routes, Want
from distarray.lower.site import Site
from distarray.lower.template import Template
from distarray.planner.graph import Graph
from distarray.planner.loops import Reading
from distarray.planner.plan import Plan, Stage
from distarray.sharding.boxes import Box, relative, size
from distarray.sharding.dealing import dealt
from distarray.sharding.sharding import Sharding

T = TypeVar("T")


class Lowering:
    """A Lowering is the state of one lowering: what is located, drafted and emitted so far."""

    def __init__(
        self,
        plan: Plan,
        graph: Graph,
        env: Environment,
        site: Site,
        inplace: Mapping[int, int],
        held: Mapping[int, frozenset[int]],
    ) -> None:
        self.plan = plan
        self.graph = graph
        self.env = env
        self.site = site
        self.inplace = inplace
        #: By node the numbers of the blocks that somebody else has.
        self.held = held
        overlap = site.overlap
        #: Whether tiles may be split in core and border; then only where the model predicts a gain, unless "always".
        self.has_overlap = overlap == "always" or (overlap is True and site.is_cluster)
        self.overlap_rates = None if overlap == "always" else site.rates
        self.mesh = env.mesh
        #: Nodes that members may make for themselves, since they are to have what is made of them: see `copies`.
        self.wanted: set[int] = set()
        self.template = Template()
        self.out = self.template.lowered
        self.out.counts.update({"tile": 0, "project": 0, "piece": 0, "combine": 0})
        self.located: dict[int, Located] = {}
        self.several: dict[int, list[Located]] = {}
        #: Bytes that it may hold of what the plan reads and makes.
        self.room = max(0, site.memory - plan.beside)
        self.messages = Messages(self.emit_piece, env.device)
        self.routes = Routes(self.located, self.messages, site.large)
        self._step = 0
        self._same: dict[Any, Any] = {}
        #: Blocks of which a tile is no copy any more.
        self._left: list[Any] = []
        #: Tasks that are given a block, by the block: who overwrites it waits for them.
        self._readers: defaultdict[Any, list[Key]] = defaultdict(list)

    # ------------------------------------------------------------------------------------------------ tasks

    def begin(self, step: int) -> None:
        """Go on with a stage of the plan."""
        self._step = step
        self.messages.stage = step
        self.routes.begin()

    def emit(
        self,
        kind: TaskKind,
        name: str,
        function: Callable[..., Any],
        args: Sequence[Any],
        member: int,
        number: int = 0,
        waits: Sequence[Key] = (),
    ) -> Key:
        """Add a task to the template, and return its key.

        Parameters
        ----------
        kind
            What it is for.
        name
            Of its key, which a dashboard shows.
        function, args, waits
            See `Recipe`.
        member
            Rank of the member that runs it.
        number
            Of the tile that it makes; tasks of the same name and stage are told apart by it.
        """
        recipes = self.template.recipes
        key: Key = (f"dx-{name}", self._step, number)
        if key in recipes:
            key = (*key, len(recipes))
        recipes[key] = Recipe(kind, function, tuple(args), tuple(waits))
        self.out.members[key] = member
        self.out.counts[kind] = self.out.counts.get(kind, 0) + 1
        if self.inplace:
            for ref in args:
                if type(ref) is ClientBox:  # a part of the one block of host data
                    self._readers[Leaf(ref.node, 0)].append(key)
                elif type(ref) is Leaf or (type(ref) is tuple and is_key(ref)):
                    self._readers[ref].append(key)
        return key

    def emit_piece(
        self, name: str, function: Callable[..., Any], args: Sequence[Any], member: int, waits: Sequence[Key] = ()
    ) -> Key:
        return self.emit("piece", name, function, args, member, len(self.template.recipes), waits)

    def results(self, key: Key, n: int, member: int, number: int) -> list[Key]:
        """Return the keys of the results of a task: itself, or one projection for each of several."""
        if n == 1:
            return [key]
        return [self.emit("project", "item", tasks.project, (i, key), member, number) for i in range(n)]

    def same(self, value: T) -> T:
        """Return a value equal to this one, always the same: of many tiles it is kept, looked at and sent once."""
        return self._same.setdefault(value, value)  # type: ignore[no-any-return]  # it is equal

    def share(self, spec: StageSpec) -> StageSpec:
        """Return the record that the tasks of the stage share, to be filled in for every run."""
        stage, specs = self.plan.stages[self._step], self.template.specs
        shared = replace(spec, where=origins(stage, self.graph.nodes), number=len(specs), node=stage.nodes[0])
        specs.append((shared, stage))
        return shared

    def allocated(self, box: Box, dtype: np.dtype[Any], member: int) -> None:
        """Count a block that a task of a member makes."""
        self.count_made(size(box) * dtype.itemsize, member)

    def count_made(self, nbytes: int, member: int) -> None:
        """Count bytes of a block that a task of a member makes."""
        self.out.allocated_bytes += nbytes
        self.out.made[member] += nbytes

    # ------------------------------------------------------------------------------------------------ arrays

    def locate_sources(self) -> None:
        """Say where the blocks of what is there lie, and what is made where it is read."""
        nodes = self.graph.nodes
        for i, node in enumerate(nodes):
            memo = node.memo
            if memo is not None:
                refs: list[Any] = [Leaf(i, k) for k in range(len(memo.blocks))]
                self.located[i] = Located(memo.sharding, node.shape, node.dtype, refs, on_client=memo.on_client)
                self.located[i].shared |= self.held.get(i, frozenset())
                self.template.holders[i] = tuple(self.located[i].members)
            elif node.op.family.is_created:
                # A created node is made wherever it is read; only as the base of a write, or when kept, it is stored
                # too, under its own number.
                self.located[~i] = Located(
                    Sharding.whole(self.mesh, node.ndim), node.shape, node.dtype, [], create=node
                )

    def source(self, i: int, stage: Stage | None = None) -> int:
        """Return the number under which a node is read; by the stage that stores it, if that is said."""
        if ~i not in self.located:
            return i
        is_stored = i in self.located and self.graph.is_held(i) and (stage is None or i not in stage.nodes)
        return i if is_stored else ~i

    def lying(self, i: int) -> Sharding | None:
        """Return how a node is cut that is read, as far as that is known."""
        at = self.located[self.source(i)]
        if at.create is not None:
            return at.create.pin
        return None if at.on_client else at.sharding

    def locate(self, i: int, sharding: Sharding) -> None:
        """Say how a result is cut; its blocks come in the second pass."""
        node = self.graph.nodes[i]
        self.located[i] = Located(sharding, node.shape, node.dtype, [None] * len(dealt(sharding).places))

    def inherit(self, at: Located, below: Located, touched: set[int], inplace: bool) -> None:
        """Let a new version begin as the old one; tiles that it does not touch stay shared unless the old one ends."""
        at.refs = list(below.refs)
        if not below.on_client:
            at.members = list(below.members)
        at.shared = set(below.shared) if inplace else set(range(len(at.refs)))
        at.shared -= touched
        for (number, _), copy in at.copies.items():
            if number in touched:
                at.refs[copy] = None  # of the older version
        if not inplace:
            below.shared |= at.shared  # the old one's blocks are the new one's too

    def needs_no_more(self, ref: Any) -> None:
        """Note that a block is not read by a task that was to read it."""
        self._left.append(ref)

    def drop_unread(self) -> None:
        """Drop the tasks that made such blocks of nothing, if nobody else reads these."""
        recipes = self.template.recipes
        found = {ref for ref in self._left if type(ref) is tuple and ref in recipes}
        if not found:
            return
        read = {a for recipe in recipes.values() for a in recipe.args if type(a) is tuple and is_key(a)}
        read.update(ref for i in self.plan.outputs for ref in self.located[i].refs if type(ref) is tuple)
        for key in found - read:
            recipe = recipes[key]
            if recipe.function is tasks.run_program and not recipe.reads():
                spec, tile = recipe.args[:2]
                self.out.counts[recipe.kind] -= 1
                self.count_made(-prod(tile.shape) * spec.stores[0].itemsize, self.out.members.pop(key))
                del recipes[key]

    def empty_tile(self, tile: Tile, dtype: np.dtype[Any]) -> Any:
        return self.backend_here(tile.member).empty(tuple(map(len, tile.box)), dtype)

    def backend_here(self, member: int) -> Backend:
        """Return what makes blocks of a member in this process, which are small: on a cluster it need not have the
        device.
        """
        return NUMPY if self.site.is_cluster else backend_for(self.env.device, member)

    def fill_empty(self, at: Located) -> None:
        """Make the blocks of tiles without elements here, without a task."""
        for number, tile in enumerate(at.sharding.tiles()):
            if at.refs[number] is None:
                shape = tuple(map(len, at.box(tile)))
                assert 0 in shape, "every tile with elements has a task"
                at.refs[number] = self.backend_here(at.members[number]).empty(shape, at.dtype)

    # ------------------------------------------------------------------------------------------------- reads

    def reads(self, readings: Sequence[Reading], wants: Sequence[Want], args: Arguments) -> tuple[Read, ...]:
        """Return what a task reads, each as one block: arguments are all parts of which these are put together."""
        found = [self.routes.parts(want, args) for want in wants]
        return tuple([self.read(r, w.box, parts, args) for r, w, parts in zip(readings, wants, found, strict=True)])

    def read(self, r: Reading, box: Box, found: Sequence[tuple[Part, Box]], args: Arguments) -> Read:
        parts = tuple([args.settle(p) for p, _ in found])
        if len(parts) == 1:
            return Read(tuple(map(len, box)), r.dtype, parts, ((),))
        return Read(tuple(map(len, box)), r.dtype, parts, tuple([relative(seen, box) for _, seen in found]))

    def wait_for_readers(self, key: Key, base: Located, number: int) -> None:
        """Let a task that overwrites a tile of a base wait for all others that read it; none does that is shared."""
        if number in base.shared:
            return
        ref = base.refs[number]
        waits = {k for k in self._readers.get(key_of(ref), ()) if k != key}
        if waits:
            self.out.after.setdefault(key, set()).update(waits)
