"""What the planner knows of the stages of a graph before any is cut: loops, operands, work, and what decides the cut.

A stage is *free* if the planner may cut it, *fixed* if the user or a stored base has decided, and *led* if it lies as
something that another stage makes: a write as its base, one of several results as the kernel that makes them all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log2, prod

import numpy as np

from distarray.expr.expr import Expr
from distarray.expr.joins import PRODUCT, Join
from distarray.planner.graph import Graph
from distarray.planner.loops import Loops, Reading, n_elements, reading, stage_loops
from distarray.planner.partition.box_traffic import View, view_of
from distarray.planner.plan import Stage
from distarray.planner.rates import KernelKind
from distarray.sharding.sharding import Sharding


@dataclass(frozen=True, slots=True, eq=False)
class StageFacts:
    """The StageFacts of a stage are what the search has to know of it, whatever cut it gets.

    Parameters
    ----------
    number
        Of the stage.
    loops, readings
        For the nodes at hand; the types of what other stages make are not known yet.
    views
        Per operand how its elements are read; None for what is made on the spot, held by the client or copied to
        all members, and where tiles read ranges of their own.
    kernel, flops
        What its kernels do, and how many operations for one point of the loops.
    results
        Per result the bytes of an element, and its loops: of a program what it stores, then what it combines.
    leader
        Node that it lies as, and which another stage makes; -1 if it is not led.
    pinned
        Node for which the user said the cut; -1.
    mirrored
        The two loops of the result of a product of a matrix with its own transpose: BLAS computes half of it, and
        mirrors that, where neither of them is cut. Empty for all other stages.
    """

    number: int
    stage: Stage
    loops: Loops
    readings: tuple[Reading, ...]
    views: tuple[View | None, ...]
    kernel: KernelKind
    flops: float
    results: tuple[tuple[int, tuple[int, ...]], ...]
    leader: int
    pinned: int
    mirrored: tuple[int, ...] = ()

    @property
    def itemsize(self) -> int:
        """Return the itemsize of the first result."""
        return self.results[0][0] if self.results else 8

    @property
    def is_written(self) -> bool:
        """Return whether it lies as a base."""
        return self.stage.written >= 0

    @property
    def free(self) -> tuple[int, ...]:
        """Return the loops that may be cut."""
        if self.stage.family.is_tiled or self.stage.family.is_item:
            return ()
        loops = self.loops
        return tuple([i for i, n in enumerate(loops.extents) if n > 1 and i not in loops.whole])

    @property
    def kept(self) -> tuple[int, ...]:
        """Return the loops that may be cut and that all results have: no part of them is partial."""
        return tuple([i for i in self.free if all(i in axes for _, axes in self.results)])

    @property
    def largest_nbytes(self) -> int:
        """Return the bytes of the largest operand or result."""
        found = [r.nbytes for r in self.readings]
        found += [prod(self.loops.extents[a] for a in axes) * s for s, axes in self.results]
        return max(found, default=0)


def facts_of(stages: Sequence[Stage], graph: Graph, outside: Mapping[int, Sharding | None]) -> list[StageFacts]:
    """Return the facts of all stages of a graph.

    Parameters
    ----------
    outside
        See `Graph.lies`; without what may yet lie in any way.
    """
    made = {i: n for n, s in enumerate(stages) for i in s.nodes}
    return [_facts(n, s, graph, outside, made) for n, s in enumerate(stages)]


def _facts(
    number: int, stage: Stage, graph: Graph, outside: Mapping[int, Sharding | None], made: Mapping[int, int]
) -> StageFacts:
    nodes = graph.nodes
    if stage.family.is_item:
        return StageFacts(number, stage, Loops(()), (), (), "map", 0, (), stage.reads[0].node, -1)
    loops = stage_loops(stage, nodes)
    readings, views = [], []
    for p, access in enumerate(stage.reads):
        i = access.node
        # the stage that stores a created node makes it itself
        on_the_spot = graph.is_made_on_the_spot(i, is_stored=made.get(i, number) != number)
        sharding = nodes[i].pin if on_the_spot else outside.get(i)
        r = reading(access, loops, p, nodes, sharding)
        readings.append(r)
        is_nowhere = (
            on_the_spot or (i in outside and outside[i] is None) or r.bounds is not None or r.ranges is not None
        )
        is_nowhere = is_nowhere or _is_everywhere(nodes[i], sharding)
        views.append(None if is_nowhere else view_of(r, loops, nodes[stage.nodes[0]].shape))
    kernel = _kernel(stage, loops, nodes)
    leader = _leader(stage, graph, outside)
    pinned = next((i for i in stage.nodes if nodes[i].pin is not None and nodes[i].op.kind != "put"), -1)
    return StageFacts(
        number,
        stage,
        loops,
        tuple(readings),
        tuple(views),
        kernel,
        _flops(stage, loops, nodes),
        _results(stage, loops, nodes),
        leader,
        pinned,
        _mirrored(readings, nodes) if kernel == "gemm" else (),
    )


def _is_everywhere(node: Expr, sharding: Sharding | None) -> bool:
    """Return whether every member has a copy of the whole array: nobody is ever sent anything of it."""
    if sharding is None or not sharding.is_copied or sharding.n_tiles > 1:
        return False
    return len(sharding.members((0,) * sharding.ndim)) == node.env.size


def _leader(stage: Stage, graph: Graph, outside: Mapping[int, Sharding | None]) -> int:
    below = graph.base(stage.written)
    return -1 if below in outside else below


def _flops(stage: Stage, loops: Loops, nodes: Sequence[Expr]) -> float:
    if stage.family.is_contraction:
        join = nodes[stage.nodes[0]].params.join
        return 1 + max(1, len(join.steps)) if isinstance(join, Join) else 2
    if stage.family.is_fused or not loops.whole:
        return max(1, len(stage.instructions) + len(stage.combines))
    if loops.halo:  # every element of a window is a factor
        return 2
    # A kernel along whole axes (a sort, a transform) takes n log n for n elements, not what its loops multiply to.
    longest = max(loops.extents[i] for i in loops.whole)
    return max(1.0, log2(max(longest, 1))) * n_elements(loops) / max(1, prod(loops.extents))


def _kernel(stage: Stage, loops: Loops, nodes: Sequence[Expr]) -> KernelKind:
    if not stage.family.is_contraction:
        return "map"
    if nodes[stage.nodes[0]].params.join != PRODUCT:
        return "join"
    result = set(loops.results[0])
    # a product of matrices has loops of the result that one operand has and the other lacks
    alone = [result.intersection(axes).difference(other) for axes, other in _pairs(loops)]
    return "gemm" if len(alone) == 2 and all(alone) and loops.reduced else "join"


def _mirrored(readings: Sequence[Reading], nodes: Sequence[Expr]) -> tuple[int, ...]:
    """Return the loops of the result of a product whose operands are one matrix, once transposed; see `StageFacts`."""
    a, b = readings
    dtype = nodes[a.node].dtype
    if a.node != b.node or dtype.kind not in "fc" or dtype == np.float16:  # of which BLAS knows nothing
        return ()
    apart: set[tuple[int, int]] = set()
    for (i, *one), (j, *other) in zip(a.lens.terms, b.lens.terms, strict=True):
        if one != other or (i is None) != (j is None):
            return ()  # other elements
        if i is not None and j is not None and a.loops[i] != b.loops[j]:
            apart.add((a.loops[i], b.loops[j]))  # type: ignore[arg-type]  # the axes of a product all are loops
    return apart.pop() if len(apart) == 1 else ()


def _pairs(loops: Loops) -> list[tuple[tuple[int | None, ...], tuple[int | None, ...]]]:
    operands = loops.operands or ()
    return [(operands[0], operands[1]), (operands[1], operands[0])] if len(operands) == 2 else []


def _results(stage: Stage, loops: Loops, nodes: Sequence[Expr]) -> tuple[tuple[int, tuple[int, ...]], ...]:
    if stage.family.is_fused:
        every = tuple(range(len(loops.extents)))
        found = [(nodes[i].dtype.itemsize, every) for _, i in stage.stores]
        for c in stage.combines:
            found.append((c.dtype.itemsize, tuple([a for a in every if a not in c.axes])))
        return tuple(found)
    dtypes = nodes[stage.nodes[0]].dtypes
    return tuple([(d.itemsize, axes) for d, axes in zip(dtypes, loops.results, strict=True)])
