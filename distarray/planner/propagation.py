"""Propagation: cuts follow what is pinned or already lies somewhere, else the largest operand.

It is a plan by itself where nothing can be gained over it, and the one that the search (`partition`) has to beat.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import prod

from distarray.expr.expr import Environment
from distarray.expr.lens import Affine
from distarray.planner.graph import Graph
from distarray.planner.loops import Loops, Reading, n_elements, node_loops, stage_loops
from distarray.planner.pieces import edges_of_pieces
from distarray.planner.plan import (
    Along,
    Assembled,
    Cut,
    Followed,
    JoinedPiece,
    Limits,
    Pinned,
    Plan,
    Stage,
    Whole,
    Written,
)
from distarray.planner.shardings import Resolver, follow
from distarray.planner.stages import group_stages
from distarray.sharding.mesh import Mesh
from distarray.sharding.sharding import Sharding


def _n_read(lens: Affine) -> int:
    """Return the elements of the source that a view reads, those that it repeats counted once."""
    return prod(lens.shape[a] for a in {axis for axis, _, _ in lens.terms if axis is not None})


def _first_read(stage: Stage) -> int:
    """Return the read that is the first operand of the first operand ... of what a program makes: ties go to its
    layout.
    """
    register = stage.stores[0][0] if stage.stores else stage.combines[0].register if stage.combines else -1
    while register >= len(stage.reads):
        register = next(iter(stage.instructions[register - len(stage.reads)].registers), -1)
    return register


def reading_order(stage: Stage, readings: Sequence[Reading]) -> list[int]:
    """Return the operands that lie somewhere, the one of which most is read first."""
    lies = [p for p, r in enumerate(readings) if r.sharding is not None]
    first = _first_read(stage)
    return sorted(lies, key=lambda p: (-_n_read(readings[p].lens), p != first))


def _auto(loops: Loops, itemsize: int, mesh: Mesh, limits: Limits, n_elements: int | None = None) -> Cut:
    nbytes = (prod(loops.extents) if n_elements is None else n_elements) * itemsize
    if nbytes <= limits.block:
        return Cut(Whole())
    free = [i for i in range(len(loops.extents)) if i not in loops.whole and loops.extents[i] > 1]
    if not free:
        return Cut(Whole())
    waves = max(1, -(-nbytes // (mesh.size * limits.tile)))
    parts = mesh.size * waves
    if parts == 1:
        return Cut(Whole())
    # the outermost axis that is long enough, so that tiles are few runs of memory; else the longest
    loop = next((i for i in free if loops.extents[i] >= parts), max(free, key=lambda i: loops.extents[i]))
    waves = min(waves, -(-loops.extents[loop] // mesh.size))
    return Cut(Along(loop), ((loop, waves),) if waves > 1 else ())


class _Propagation:
    def __init__(self, graph: Graph, env: Environment, limits: Limits) -> None:
        self._graph = graph
        self._mesh = env.mesh
        self._limits = limits
        #: Whether there is nothing that another cut could save: no product, and all is read where it lies.
        self.is_aligned = True
        self._resolver = Resolver(graph, env.mesh, graph.lies())
        self._users: list[list[int]] | None = None

    def decide(self, stage: Stage) -> Stage:
        if stage.family.is_item:
            self._resolver.step(stage, Loops(()), ())
            return replace(stage, cut=Cut(Followed((0,))))
        loops = stage_loops(stage, self._graph.nodes)
        readings = self._resolver.readings(stage, loops)
        stage = replace(stage, cut=self._choose(stage, loops, readings))
        sharding = self._resolver.step(stage, loops, readings)
        is_aligned = not stage.family.is_contraction and _is_aligned(sharding, readings)
        self.is_aligned = self.is_aligned and is_aligned and not self._gathers(stage, loops, sharding)
        return stage

    def _gathers(self, stage: Stage, loops: Loops, sharding: Sharding) -> bool:
        """Return whether members send partial results of more than a block to be combined."""
        reduced = [(c.node, c.axes) for c in stage.combines]
        if stage.family.is_summed:
            reduced.append((stage.nodes[0], loops.reduced))
        large = [axes for i, axes in reduced if self._graph.nodes[i].nbytes > self._limits.block]
        return any(sharding.axes[a] for axes in large for a in axes)

    def _choose(self, stage: Stage, loops: Loops, readings: Sequence[Reading]) -> Cut:
        nodes = self._graph.nodes
        for i in stage.nodes:
            if nodes[i].pin is not None and nodes[i].op.kind != "put":
                return Cut(Pinned(i))
        if stage.write is not None:
            return Cut(Written())
        if stage.family.is_tiled:
            return Cut(Whole())  # one tile: several are pinned
        order = reading_order(stage, readings)
        if order:
            sharding = follow(loops, readings, order, self._mesh)
            if sharding.n_tiles > 1 or sharding.mesh.owners is not None:
                return Cut(Followed(tuple(order)))
        i = stage.nodes[-1]
        assembled = self._cut_of_pieces(i)
        if assembled is not None:
            return assembled
        dtype = nodes[i].dtype
        itemsize = dtype[0].itemsize if isinstance(dtype, tuple) else dtype.itemsize
        if stage.family.is_summed and not stage.family.is_contraction:
            return self._folded(loops, readings)
        if loops.operands is not None and loops.reduced:
            # a product: what counts is the larger of result and operands
            big = max(readings, key=lambda r: prod(r.lens.shape))
            result = prod(loops.extents[a] for a in loops.results[0])
            if prod(big.lens.shape) <= self._limits.block and result <= self._limits.block:
                return Cut(Whole())
            nbytes_loops = Loops(loops.extents, loops.whole | frozenset(loops.reduced))
            return _auto(nbytes_loops, itemsize, self._mesh, self._limits, n_elements(loops))
        cut = _auto(loops, itemsize, self._mesh, self._limits, n_elements(loops))
        if isinstance(cut.rule, Whole) and order:
            return Cut(Followed(tuple(order)))
        return cut

    def _folded(self, loops: Loops, readings: Sequence[Reading]) -> Cut:
        """Return the cut of a fold whose operands lie nowhere: along an axis of the largest of them."""
        big = max(readings, key=lambda r: r.nbytes)
        fixed = [a for a, loop in enumerate(big.loops) if loop is None or loop in loops.whole]
        cut = _auto(Loops(big.lens.shape, frozenset(fixed)), big.dtype.itemsize, self._mesh, self._limits)
        loop = big.loops[cut.rule.loop] if isinstance(cut.rule, Along) else None
        return cut if loop is None else Cut(Along(loop), tuple([(loop, n) for _, n in cut.waves]))

    def _cut_of_pieces(self, i: int) -> Cut | None:
        """Return the cut of a created array that parts are written into (concat, roll): as its reader asks, else as
        they lie.

        Where the base of the writes lies, the result lies: left to the size alone, small parts would all gather at
        one member.
        """
        nodes, operands = self._graph.nodes, self._graph.operands
        if not nodes[i].op.family.is_created:
            return None
        if self._users is None:
            self._users = self._graph.users()
        best: tuple[int, int] = (0, -1)
        pieces: dict[int, list[JoinedPiece]] = {}
        top = i
        while True:
            puts = [k for k in self._users[top] if nodes[k].op.kind == "put" and operands[k][0] == top]
            if len(puts) != 1:
                break
            (top,) = puts
            value = operands[top][1]
            if value is None:
                continue
            source, axes = self._behind(value)
            sharding = self._resolver.lying(source)
            if sharding is None or sharding.n_tiles == 1 or len(sharding.axes) != len(nodes[source].shape):
                continue
            lens = nodes[top].runtime
            for b, (axis, _, step) in enumerate(lens.terms):
                at = None if axis is None or axis >= len(axes) else axes[axis]
                if at is not None and sharding.axes[at]:
                    best = max(best, (prod(lens.shape), b))
                    if step == 1 and 2 * lens.shape[axis] > nodes[source].shape[at]:
                        pieces.setdefault(b, []).append(JoinedPiece(top, source, at))
        if top == i:
            return None
        for k in self._users[top]:
            if nodes[k].pin is not None and nodes[k].shape == nodes[i].shape:
                return Cut(Pinned(k))
        if best[1] < 0:
            return None
        rule = Assembled(best[1], tuple(pieces.get(best[1], ())))
        if len(rule.pieces) > 1 and edges_of_pieces(rule, nodes, self._resolver.lies.get) is not None:
            return Cut(rule)
        return Cut(Along(best[1]))

    def _behind(self, i: int) -> tuple[int, tuple[int | None, ...]]:
        """Return the largest array that node `i` is made of, as far down as nothing lies yet, and its axis for each
        axis of the node that may be cut with it.
        """
        nodes, operands = self._graph.nodes, self._graph.operands
        axes: tuple[int | None, ...] = tuple(range(len(nodes[i].shape)))
        while nodes[i].memo is None and i not in self._resolver.lies:
            node = nodes[i]
            if node.op.kind == "get":
                seen = {axis: b for b, (axis, _, _) in enumerate(node.runtime.terms) if axis is not None}
                axes = tuple(None if a is None else seen.get(a) for a in axes)
                below = operands[i][0]
            elif node.op.kind == "map":
                below = next((o for o in operands[i] if o is not None and nodes[o].shape == node.shape), None)
            elif not node.op.family.is_tiled and (loops := node_loops(node)).operands:
                read = [o for o in operands[i] if o is not None]
                below, runs = max(zip(read, loops.operands), key=lambda operand: nodes[operand[0]].nbytes)
                along = [runs.index(loop) if loop in runs else None for loop in loops.results[0]]
                axes = tuple(None if a is None else along[a] for a in axes)
            else:
                break
            if below is None:
                break
            i = below
        return i, axes


def propagate(graph: Graph, env: Environment, limits: Limits) -> Plan:
    """Plan a graph: group it into stages and choose the cut of each in the order in which they run.

    Parameters
    ----------
    graph
        Canonical nodes.
    env
        Their environment.
    limits
        What bounds the size of tiles.
    """
    return propagated(graph, env, limits)[0]


def propagated(graph: Graph, env: Environment, limits: Limits) -> tuple[Plan, bool]:
    """Return the plan of `propagate`, and whether every operand lies as the stage that reads it is cut."""
    state = _Propagation(graph, env, limits)
    stages = tuple(state.decide(s) for s in group_stages(graph))
    return Plan(stages, tuple(sorted(graph.kept))), state.is_aligned


def _is_aligned(sharding: Sharding, readings: Iterable[Reading]) -> bool:
    """Return whether the loops run over the mesh axes that cut the operands; borders apart, nothing is sent then."""
    for r in readings:
        lying = r.sharding
        if lying is None:
            continue
        for names, (axis, _, _) in zip(lying.axes, r.lens.terms, strict=True):
            loop = None if axis is None else r.loops[axis]
            if names and (axis is not None) and (loop is None or sharding.axes[loop] != names):
                return False
    return True
