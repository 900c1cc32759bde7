"""Loops: the axes over which a stage iterates, and how it sees its operands.

That is all that the planner and lowering know of an operation: one row here for each family says which loops it has,
which of them may not be cut or are reduced, and along which the axes of operands and results run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from distarray.expr.expr import Expr
from distarray.expr.lens import Affine, reshape_groups
from distarray.expr.params import ContractParams, IndexParams
from distarray.expr.tiles import Bounds, Ranges, Tiling, Windows
from distarray.planner.graph import Graph
from distarray.planner.plan import Access, Stage
from distarray.sharding.boxes import Box
from distarray.sharding.rule import ShardingRule, halo_of, loop_of
from distarray.sharding.sharding import Sharding


@dataclass(frozen=True, slots=True)
class Reading:
    """A Reading is one operand of a stage with its type: how the loops of the stage see the source.

    Parameters
    ----------
    node
        Number of the source.
    lens
        From the operand (as the kernel sees it) to the source.
    loops
        Loop of each operand axis, or None where the whole axis is needed.
    shape, dtype
        Of the source.
    sharding
        Of the source; None if it is created on the spot or held by the client.
    bounds
        Boundaries of the tiles along axis 0 of the operand, where loop 0 counts tiles.
    ranges
        For each axis of the operand what each tile reads of it, or None for all, where the loops count tiles.
    halo
        For each axis of the operand how many elements are read before and behind those of its loop, as far as there
        are any; none if it is empty.
    """

    node: int
    lens: Affine
    loops: tuple[int | None, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    sharding: Sharding | None
    bounds: Bounds | None = None
    ranges: tuple[Ranges | None, ...] | None = None
    halo: tuple[tuple[int, int], ...] = ()

    @property
    def nbytes(self) -> int:
        """Return the bytes of the operand, whatever the loops are."""
        return prod(self.lens.shape) * self.dtype.itemsize

    def box(self, loops: Box) -> Box:
        """Return what a box of the loops needs of the operand."""
        found = [range(n) if k is None else loops[k] for k, n in zip(self.loops, self.lens.shape, strict=True)]
        if self.halo:
            with_halo = zip(found, self.halo, self.lens.shape, strict=True)
            found = [
                range(max(0, r.start - before), min(n, r.stop + behind))
                if r
                else range(min(r.start, n), min(r.start, n))
                for r, (before, behind), n in with_halo
            ]
        if self.bounds is not None:
            tile = found[0].start
            found[0] = range(self.bounds[tile], self.bounds[tile + 1])
        if self.ranges is not None:
            found = [r if of is None else range(*of[r.start]) for r, of in zip(found, self.ranges, strict=True)]
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Loops:
    """The Loops of a stage are the axes over which it iterates, and how operands and results follow them.

    Parameters
    ----------
    extents
        Of each loop.
    whole
        Loops that may not be cut.
    results
        Per result the loop of each axis.
    reduced
        Loops whose partial results are combined.
    operands
        Per operand the loop of each axis; None for programs, whose operands broadcast to the loops.
    is_recut
        Whether the loops run over other elements than the operand's axes that they follow (a reshape): they take the
        mesh axes, not the boundaries.
    tiling
        If loop 0 counts tiles and not elements: what each of them is.
    windows
        The same if all loops do.
    halo
        Per operand and axis the elements that are read before and behind those of a tile; none if it is empty.
    pinned
        Of each reduced loop the mesh axes that cut it where the result is pinned; none if nothing is said.
    """

    extents: tuple[int, ...]
    whole: frozenset[int] = frozenset()
    results: tuple[tuple[int, ...], ...] = ()
    reduced: tuple[int, ...] = ()
    operands: tuple[tuple[int | None, ...], ...] | None = None
    is_recut: bool = False
    tiling: Tiling | None = None
    windows: Windows | None = None
    halo: tuple[tuple[tuple[int, int], ...], ...] = ()
    pinned: tuple[tuple[str, ...], ...] = ()


def n_elements(loops: Loops) -> int:
    """Return the elements of the largest result or operand: a kernel that takes a row of i elements to one of j has
    not i * j.
    """
    terms = [*loops.results, *(tuple([k for k in axes if k is not None]) for axes in loops.operands or ())]
    # Several axes may run over one loop: those of a group that a reshape joins.
    return max([prod(loops.extents[k] for k in set(term)) for term in terms], default=prod(loops.extents))


def program_extents(node: Expr) -> tuple[int, ...]:
    """Return the extents of the loops of a node in a program: a write runs over what its lens shows, a reduction over
    its operand, all others over their result.
    """
    if node.op.kind == "put":
        shown: tuple[int, ...] = node.runtime.shape
        return shown
    return _operand_shape(node) if node.op.kind == "reduce" else node.shape


def _operand_shape(node: Expr) -> tuple[int, ...]:
    first = node.operands[0]
    assert type(first) is Expr
    return first.shape


def stage_loops(stage: Stage, nodes: Sequence[Expr]) -> Loops:
    """Return the loops of a stage for these nodes, and along which of them the axes of operands and results run."""
    node = nodes[stage.nodes[0]]
    if stage.family.is_fused:
        return Loops(program_extents(node))
    return node_loops(node)


def node_loops(node: Expr) -> Loops:
    """Return the loops of a node that is a stage by itself."""
    return _OWN.get(node.op.kind, _result_loops)(node)


def _result_loops(node: Expr) -> Loops:
    axes = tuple(range(node.ndim))
    return Loops(node.shape, frozenset(), (axes,))


def _contract_loops(node: Expr) -> Loops:
    inputs, result, _, _, pinned, _ = params = node.params
    assert type(params) is ContractParams
    extents: dict[int, int] = {}
    for labels, o in zip(inputs, node.operands, strict=True):
        assert type(o) is Expr
        extents.update(zip(labels, o.shape, strict=True))
    reduced = [k for k in dict.fromkeys(k for labels in inputs for k in labels) if k not in result]
    order = [*result, *reduced]
    position = {label: i for i, label in enumerate(order)}
    return Loops(
        tuple(extents[k] for k in order),
        frozenset(),
        (tuple(range(len(result))),),
        tuple(range(len(result), len(order))),
        tuple(tuple(position[k] for k in labels) for labels in inputs),
        pinned=pinned,
    )


def _rule_loops(node: Expr) -> Loops:
    # an operation on any number of operands brings its rule along
    rule = ShardingRule.parse(node.op.rule or str(node.params[0]))
    operand_shapes = [o.shape for o in node.operands if type(o) is Expr]
    bound = rule.resolve(operand_shapes, node.shapes)
    extents = rule.bind(operand_shapes, node.shapes)
    order = list(extents)
    position: dict[str, int] = {name: i for i, name in enumerate(order)}
    # Partial results of a fold combine; a kernel on whole blocks gives results. What a kernel adds it adds whole.
    reduced = tuple([position[k] for k in bound.reducing]) if node.op.family.is_summed else ()
    whole = {position[k] for k in (*bound.whole, *bound.reducing, *bound.new) if k in position}.difference(reduced)
    operands = tuple([tuple([loop_of(k) for k in term]) for term in bound.operands])
    halo = tuple([tuple(map(halo_of, term)) for term in bound.operands])
    return Loops(
        tuple(extents.values()),
        frozenset(whole),
        tuple(tuple(position[k] for k in term) for term in bound.results),
        reduced,
        tuple(tuple(position.get(k) for k in term) for term in operands),
        halo=halo if any(any(around) for own in halo for around in own) else (),
    )


def _tile_loops(node: Expr) -> Loops:
    tiling: Tiling = node.runtime
    extents = [tiling.n_tiles]
    results = []
    for shape in node.shapes:
        first = len(extents)
        extents.extend(shape[1:])
        results.append((0, *range(first, len(extents))))
    operands = tuple(
        [
            (None if bounds is None else 0, *(None,) * (len(o.shape) - 1))[: len(o.shape)]
            for bounds, o in zip(tiling.operands, node.nodes(), strict=True)
        ]
    )
    whole = frozenset(range(1, len(extents)))
    return Loops(tuple(extents), whole, tuple(results), (), operands, tiling=tiling)


def _take_loops(node: Expr) -> Loops:
    axes, at, n_index, _ = params = node.params
    assert type(params) is IndexParams
    x = node.operands[0]
    assert type(x) is Expr
    rest = [a for a in range(x.ndim) if a not in axes]
    loop_of: dict[int, int] = {}
    for i, a in enumerate(rest):
        loop_of[a] = i if i < at else i + n_index
    source = tuple(loop_of.get(a) for a in range(x.ndim))
    operands = [source]
    for o in node.operands[1:]:
        assert type(o) is Expr
        shift = n_index - o.ndim
        operands.append(
            tuple(at + shift + i if n == node.shape[at + shift + i] else None for i, n in enumerate(o.shape))
        )
    return Loops(node.shape, frozenset(), (tuple(range(node.ndim)),), (), tuple(operands))


def _take_put_loops(node: Expr) -> Loops:
    operands = [o for o in node.operands if type(o) is Expr]
    positions = tuple([(None,) * o.ndim for o in operands[1:]])
    axes = tuple(range(node.ndim))
    return Loops(node.shape, frozenset(), (axes,), (), (axes, *positions))


def _reshape_loops(node: Expr) -> Loops:
    # Only the first axis of each group is cut: a tile is then one run of elements in each group.
    shape = _operand_shape(node)
    groups = reshape_groups(shape, node.shape)
    whole = [a for _, new in groups for a in new[1:]]
    first = {a: new[0] for old, new in groups if new for a in old}
    operand = tuple(first.get(a) for a in range(len(shape)))
    return Loops(node.shape, frozenset(whole), (tuple(range(node.ndim)),), (), (operand,), is_recut=True)


def _window_loops(node: Expr) -> Loops:
    windows: Windows = node.runtime.geometry
    axes = tuple(range(node.ndim))
    reads = tuple([tuple([None if r is None else r[0] for r in operand]) for operand in windows.operands])
    return Loops(windows.grid, frozenset(), (axes,), (), reads, windows=windows)


#: By kind of operation its loops, where they are not the axes of its result.
_OWN: dict[str, Callable[[Expr], Loops]] = {
    "block": _rule_loops,
    "contract": _contract_loops,
    "fold": _rule_loops,
    "reshape": _reshape_loops,
    "take": _take_loops,
    "take_put": _take_put_loops,
    "tiles": _tile_loops,
    "windows": _window_loops,
}


def reading(access: Access, loops: Loops, position: int, nodes: Sequence[Expr], sharding: Sharding | None) -> Reading:
    """Return how a stage reads one operand: its lens, for the nodes at hand, and the loops of its axes."""
    source = nodes[access.node]
    lens = Affine.identity(source.shape)
    for k in access.path:
        node = nodes[k]
        lens = lens.compose(node.runtime) if node.op.kind == "get" and node.memo is None else lens.broadcast(node.shape)
    if loops.operands is None:
        if lens.shape != loops.extents:
            lens = lens.broadcast(loops.extents)
        axes: tuple[int | None, ...] = tuple(range(len(loops.extents)))
    else:
        axes = loops.operands[position]
    bounds = None if loops.tiling is None else loops.tiling.operands[position]
    ranges = None
    if loops.windows is not None:
        ranges = tuple([None if r is None else r[1] for r in loops.windows.operands[position]])
    lies = None if sharding is None else sharding.with_copies(False)  # of copies lowering knows: who is near reads them
    halo = loops.halo[position] if loops.halo else ()
    return Reading(access.node, lens, axes, source.shape, source.dtype, lies, bounds, ranges, halo)


def base_reading(stage: Stage, graph: Graph, lies: Callable[[int], Sharding | None]) -> Reading | None:
    """Return the base that a stage writes, as its loops see it; None if it writes none."""
    if stage.write is None:
        return None
    put = graph.nodes[stage.written]
    below = graph.base(stage.written)
    lens: Affine = put.runtime
    return Reading(below, lens, tuple(range(len(lens.shape))), put.shape, put.dtype, lies(below))
