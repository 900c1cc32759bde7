"""The first planner: cuts follow what is pinned or already lies somewhere, else the largest operand.

A decision (`Cut`) says *whom* a stage follows and holds for any extents; `resolve_cut` turns it into the Sharding of
the stage's loops for the nodes at hand. Planning and lowering both call it, so what was planned is what runs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from math import prod
from typing import Any

from distarray.errors import MemoryBudgetError
from distarray.expr.expr import Environment, Expr
from distarray.expr.lens import Affine, reshape_groups
from distarray.expr.tiles import Bounds, Ranges, Tiling, Windows
from distarray.planner.graph import Graph
from distarray.planner.plan import Access, Cut, Plan, Stage
from distarray.planner.stages import group_stages
from distarray.sharding.boxes import Box
from distarray.sharding.cuts import MAX_TILES, boundaries
from distarray.sharding.layout import drop_axes
from distarray.sharding.mesh import Mesh, is_wave
from distarray.sharding.prime import coarsened, refined
from distarray.sharding.rule import ShardingRule
from distarray.sharding.sharding import Sharding

__all__ = ["Limits", "Loops", "Reading", "base_reading", "combined_sharding", "propagate", "resolve_cut", "stage_loops"]


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits say how large blocks and tiles may be, and what a member may hold, in bytes.

    Parameters
    ----------
    block
        An array up to this size stays one block.
    tile
        No tile that the planner chooses is larger: longer axes get wave axes.
    member
        What a member may have at once.
    """

    block: int
    tile: int
    member: int = 1 << 62


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
    shape
        Of the source.
    sharding
        Of the source; None if it is created on the spot or held by the client.
    bounds
        Boundaries of the tiles along axis 0 of the operand, where loop 0 counts tiles.
    ranges
        For each axis of the operand what each tile reads of it, or None for all, where the loops count tiles.
    """

    node: int
    lens: Affine
    loops: tuple[int | None, ...]
    shape: tuple[int, ...]
    sharding: Sharding | None
    bounds: Bounds | None = None
    ranges: tuple[Ranges | None, ...] | None = None

    def box(self, loops: Box) -> Box:
        """What a box of the loops needs of the operand."""
        found = [range(n) if k is None else loops[k] for k, n in zip(self.loops, self.lens.shape, strict=True)]
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
        Loops whose partial results are summed.
    operands
        Per operand the loop of each axis; None for programs, whose operands broadcast to the loops.
    is_recut
        Whether the loops run over other elements than the operand's axes that they follow (a reshape): they take the
        mesh axes, not the boundaries.
    tiling
        If loop 0 counts tiles and not elements: what each of them is.
    windows
        The same if all loops do.
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
    pinned: tuple[tuple[str, ...], ...] = ()


def _shape(node: Expr, what: str) -> tuple[int, ...]:
    if what == "shape":
        return node.shape
    if what == "lens":
        lens_shape: tuple[int, ...] = node.runtime.shape
        return lens_shape
    first = node.operands[0]
    assert type(first) is Expr
    return first.shape


def stage_loops(stage: Stage, nodes: Sequence[Expr]) -> Loops:
    """Loops of a stage for the nodes at hand."""
    what, number = stage.shape_of
    node = nodes[number]
    if what != "labels":
        return Loops(_shape(node, what))
    kind = node.op.kind
    if kind == "contract":
        return _contract_loops(node)
    if kind in ("block", "fold"):
        return _rule_loops(node)
    if kind == "reshape":
        # Only the first axis of each group is cut: a tile is then one run of elements in each group.
        groups = reshape_groups(_shape(node, "operand"), node.shape)
        whole = [a for _, new in groups for a in new[1:]]
        first = {a: new[0] for old, new in groups if new for a in old}
        operand = tuple(first.get(a) for a in range(len(_shape(node, "operand"))))
        return Loops(node.shape, frozenset(whole), (tuple(range(node.ndim)),), (), (operand,), is_recut=True)
    if kind == "take":
        return _take_loops(node)
    if kind == "tiles":
        return _tile_loops(node)
    if kind == "windows":
        windows: Windows = node.runtime.geometry
        axes = tuple(range(node.ndim))
        reads = tuple([tuple([None if r is None else r[0] for r in operand]) for operand in windows.operands])
        return Loops(windows.grid, frozenset(), (axes,), (), reads, windows=windows)
    if kind == "take_put":
        operands = [o for o in node.operands if type(o) is Expr]
        positions = tuple([(None,) * o.ndim for o in operands[1:]])
        axes = tuple(range(node.ndim))
        return Loops(node.shape, frozenset(), (axes,), (), (axes, *positions))
    return Loops(node.shape, frozenset(), (tuple(range(node.ndim)),))


def _contract_loops(node: Expr) -> Loops:
    inputs: tuple[tuple[int, ...], ...]
    inputs, result, _, _, *pinned = node.params  # set by ops.contractions and ops.einsums
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
        pinned=pinned[0] if pinned else (),
    )


def _rule_loops(node: Expr) -> Loops:
    # an operation on any number of operands brings its rule along
    rule = ShardingRule.parse(node.op.rule or str(node.params[0]))
    operand_shapes = [o.shape for o in node.operands if type(o) is Expr]
    several = isinstance(node.dtype, tuple)
    result_shapes = list(node.shape) if several else [node.shape]
    bound = rule.resolve(operand_shapes, result_shapes)  # type: ignore[arg-type]  # several results: shapes
    extents = rule.bind(operand_shapes, result_shapes)  # type: ignore[arg-type]
    order = list(extents)
    position: dict[str, int] = {name: i for i, name in enumerate(order)}
    # Partial results of a fold combine; a kernel on whole blocks gives results. What a kernel adds it adds whole.
    reduced = tuple([position[k] for k in bound.reducing]) if node.op.kind == "fold" else ()
    whole = {position[k] for k in (*bound.whole, *bound.reducing, *bound.new) if k in position}.difference(reduced)
    return Loops(
        tuple(extents.values()),
        frozenset(whole),
        tuple(tuple(position[k] for k in term) for term in bound.results),
        reduced,
        tuple(tuple(position.get(k) for k in term) for term in bound.operands),
    )


def _tile_loops(node: Expr) -> Loops:
    tiling: Tiling = node.runtime
    shapes: Sequence[Any] = node.shape if isinstance(node.dtype, tuple) else (node.shape,)
    extents = [tiling.n_tiles]
    results = []
    for shape in shapes:
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
    axes: tuple[int, ...]
    axes, at, n_index = node.params[:3]  # set by ops.indexing
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


def reading(access: Access, loops: Loops, position: int, nodes: Sequence[Expr], sharding: Sharding | None) -> Reading:
    """The lens of one operand for the nodes at hand."""
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
    return Reading(access.node, lens, axes, source.shape, sharding, bounds, ranges)


def base_reading(stage: Stage, graph: Graph, lies: Callable[[int], Sharding | None]) -> Reading | None:
    """The base that a stage writes, as its loops see it; None if it writes none."""
    if stage.write is None:
        return None
    put = graph.nodes[stage.write[1]]
    below = graph.operands[stage.write[1]][0]
    assert below is not None
    lens: Affine = put.runtime
    return Reading(below, lens, tuple(range(len(lens.shape))), put.shape, lies(below))


def _pulled(bounds: Sequence[int], start: int, step: int, extent: int) -> tuple[int, ...]:
    """Boundaries of a source axis as a view axis with this start and step sees them."""
    if step > 0:
        return tuple(min(max(-((start - b) // step), 0), extent) for b in bounds)
    return tuple(min(max((start - b) // -step + 1, 0), extent) for b in reversed(bounds))


def follow(
    loops: Loops, readings: Sequence[Reading], order: Sequence[int], mesh: Mesh, *, is_merging: bool = True
) -> Sharding:
    """The cut of the loops under which the operands, the first in `order` first, stay where they lie.

    Tiles of one member become one where a tile of what they follow is as large; not without `is_merging`: then each
    tile lies in one tile of it.
    """
    n = len(loops.extents)
    axes: list[tuple[str, ...]] = [()] * n
    bounds: list[tuple[int, ...] | None] = [None] * n
    used: set[str] = set()
    chosen: Mesh | None = None
    #: Loops that run over a part of an axis, or over other elements, with the elements of a tile of what they follow.
    partial: dict[int, int] = {}
    layout = _layout(loops, readings, order)
    meshes = {s.mesh for p in order if (s := readings[p].sharding) is not None and s.n_tiles > 1}
    for position in order:
        r = readings[position]
        sharding = r.sharding
        if sharding is None or sharding.n_tiles == 1:
            continue
        if len(meshes) > 1:
            sharding = refined(sharding)  # a cut of the team's mesh is one of its prime axes too
        if chosen is not None and sharding.mesh != chosen:
            continue
        lying = sharding.boundaries(r.shape)
        for b, (axis, start, step) in enumerate(r.lens.terms):
            names = sharding.axes[b]
            if not names or axis is None:
                continue
            loop = r.loops[axis]
            if loop is None or loop in loops.whole or axes[loop] or used.intersection(names):
                continue
            axes[loop] = names
            used.update(names)
            chosen = sharding.mesh
            is_all = not start and step == 1 and lying[b][-1] == loops.extents[loop]
            if loops.is_recut or not is_all:
                partial[loop] = prod(sharding.shard_shape(r.shape))
            if loops.is_recut:
                continue
            if not is_all or sharding.bounds[b] is not None:
                bounds[loop] = _pulled(lying[b], start, step, loops.extents[loop])
    found = type_of(chosen or mesh, tuple(axes), tuple(bounds), layout)
    if is_merging:
        for loop, largest in partial.items():
            found = _merged(found, loops.extents, loop, largest)
    return coarsened(found, mesh)


def _merged(sharding: Sharding, extents: tuple[int, ...], loop: int, largest: int) -> Sharding:
    """A type whose waves along a loop are joined, as far as no tile gets more than `largest` elements.

    What shows a few elements of an array of many tiles has these elements in few tiles, and not one for each of those.

    >>> waves = Mesh(("x",), (2,)).with_waves(50)
    >>> _merged(Sharding(waves, (("%1", "x"),), (), (tuple(range(101)),)), (100,), 0, 20).bounds
    ((0, 20, 40, 50, 70, 90, 100),)
    """
    names = sharding.axes[loop]
    if not names or not is_wave(names[0]):
        return sharding
    mesh = sharding.mesh
    edges = sharding.boundaries(extents)[loop]
    n = mesh.axis_size(names[0])
    others = prod([k for a, k in enumerate(sharding.shard_shape(extents)) if a != loop])
    longest = largest // max(others, 1)
    ends_of_places = []
    for first in range(0, len(edges) - 1, n):
        start, ends = edges[first], []
        for a, b in pairwise(edges[first : first + n + 1]):
            if b - start > longest and a > start:
                ends.append(a)
                start = a
        ends_of_places.append([*ends, edges[first + n]])
    fewer = max(map(len, ends_of_places))
    if fewer == n:
        return sharding
    sizes = tuple([fewer if name == names[0] else size for name, size in zip(mesh.names, mesh.sizes, strict=True)])
    axes, bounds = list(sharding.axes), list(sharding.bounds)
    bounds[loop] = (0, *[end for ends in ends_of_places for end in (*ends, *ends[-1:] * (fewer - len(ends)))])
    smaller = Mesh(mesh.names, sizes)
    if fewer == 1:
        axes[loop] = names[1:]
        smaller = smaller.without_waves([name for cut in axes for name in cut])
    return type_of(smaller, tuple(axes), tuple(bounds), sharding.layout)


def _layout(loops: Loops, readings: Sequence[Reading], order: Sequence[int]) -> tuple[int, ...]:
    """The memory order of what a program stores: as the first operand in `order` that has one shows it."""
    if loops.operands is None:
        for position in order:
            r = readings[position]
            layout = () if r.sharding is None else _seen_layout(r.sharding.layout, r.lens, len(loops.extents))
            if layout:
                return layout
    return ()


def _within(extents: tuple[int, ...], base: Reading, cut: Sharding) -> Sharding:
    """A cut that follows `base`, refined so that no tile reaches over two tiles of it.

    `follow` cuts a loop as one axis of the base. A loop that runs along several, as that of a diagonal does, is to be
    cut where any of them is.
    """
    lying = base.sharding
    if lying is None or len({axis for axis, _, _ in base.lens.terms}) == len(base.lens.terms):
        return cut
    edges: dict[int, set[int]] = {}
    names: dict[int, tuple[str, ...]] = {}
    for b, (axis, start, step) in enumerate(base.lens.terms):
        loop = None if axis is None else base.loops[axis]
        if loop is not None and lying.axes[b]:
            pulled = _pulled(lying.boundaries(base.shape)[b], start, step, extents[loop])
            edges.setdefault(loop, set()).update((0, *pulled, extents[loop]))
            names[loop] = lying.axes[b] + names.get(loop, ())
    bounds, axes = list(cut.bounds), list(cut.axes)
    for loop, found in edges.items():
        if names[loop] != axes[loop]:
            axes[loop] = names[loop]
            n_edges = prod(map(lying.mesh.axis_size, names[loop])) + 1
            bounds[loop] = (*sorted(found), *[extents[loop]] * (n_edges - len(found)))
    return Sharding(cut.mesh, tuple(axes), (), tuple(bounds), cut.layout)


def _seen_layout(layout: tuple[int, ...], lens: Affine, n: int) -> tuple[int, ...]:
    """The axis order of a source as its view shows it; C where the view has other axes."""
    order = [lens.terms[b][0] for b in layout]
    seen = [a for a in order if a is not None]
    return tuple(seen) if len(seen) == n and len(set(seen)) == n else ()


def resolve_cut(
    cut: Cut, loops: Loops, readings: Sequence[Reading], nodes: Sequence[Expr], base: Reading | None, mesh: Mesh
) -> Sharding:
    """The Sharding of a stage's loops for the nodes at hand.

    Raises
    ------
    MemoryBudgetError
        If it has more than `MAX_TILES` tiles.
    """
    sharding = _resolved(cut, loops, readings, nodes, base, mesh)
    n_tiles = prod([n for _, n in cut.waves], start=sharding.n_tiles)
    if n_tiles > MAX_TILES:
        raise MemoryBudgetError(
            f"an array of shape {loops.extents} would have to be cut into {n_tiles} tiles, more than the {MAX_TILES} "
            "that an operation may have; compute a part of it at a time, choose larger chunks, or raise the option "
            "memory-limit"
        )
    return with_waves(sharding, loops.extents, cut.waves) if cut.waves else sharding


def with_waves(sharding: Sharding, extents: Sequence[int], waves: Iterable[tuple[int, int]]) -> Sharding:
    """A type whose tiles are cut further along some axes, into so many that follow each other on one member.

    >>> with_waves(Sharding(Mesh(("x",), (2,)), (("x",), ())), (8, 8), [(0, 3)]).axes
    (('%1', 'x'), ())
    """
    for axis, n in waves:
        mesh = sharding.mesh.with_waves(n)
        axes, bounds = list(sharding.axes), list(sharding.bounds)
        axes[axis] = (mesh.names[-1], *axes[axis])
        edges = bounds[axis]
        if edges is not None:
            bounds[axis] = (0, *[a + (b - a) * (i + 1) // n for a, b in pairwise(edges) for i in range(n)])
        sharding = type_of(mesh, tuple(axes), tuple(bounds), sharding.layout)
    return sharding


def _resolved(
    cut: Cut, loops: Loops, readings: Sequence[Reading], nodes: Sequence[Expr], base: Reading | None, mesh: Mesh
) -> Sharding:
    n = len(loops.extents)
    if cut.how == "base":
        assert base is not None
        return _within(loops.extents, base, follow(loops, [base], [0], mesh, is_merging=False))
    if cut.how == "follow":
        return follow(loops, readings, cut.order, mesh)
    if cut.how == "pin":
        pin = nodes[cut.node].pin
        assert pin is not None
        if loops.tiling is not None:
            return Sharding(pin.mesh, (pin.axes[0], *[()] * (n - 1)))
        if loops.windows is not None:
            return Sharding(pin.mesh, pin.axes)
        if not loops.results or loops.results[0] == tuple(range(n)):
            return pin
        # The pin is of the result; loops that it lacks are cut as is said beside it, by default not.
        reduced = dict(zip(loops.reduced, loops.pinned, strict=False))
        at = {loop: axis for axis, loop in enumerate(loops.results[0])}
        return Sharding(
            pin.mesh,
            tuple(pin.axes[at[loop]] if loop in at else reduced.get(loop, ()) for loop in range(n)),
            (),
            tuple(pin.bounds[at[loop]] if loop in at else None for loop in range(n)),
        )
    if cut.how == "parts":
        return type_of_parts(cut, loops.extents, _layout(loops, readings, cut.order), mesh)
    axes: list[tuple[str, ...]] = [()] * n
    if cut.how == "auto":
        axes[cut.loop] = tuple(reversed(mesh.names))
    return Sharding(mesh, tuple(axes))


def type_of_parts(cut: Cut, extents: Sequence[int], layout: tuple[int, ...], mesh: Mesh) -> Sharding:
    """The type that a cut into parts means, for loops of these extents and the mesh of the team."""
    grid = Mesh(*zip(*cut.mesh, strict=True))
    bounds: list[tuple[int, ...] | None] = [None] * len(extents)
    if cut.corner:
        bounds[cut.loop] = _corner_bounds(extents[cut.loop], cut.parts[cut.loop], grid, cut.corner)
    return coarsened(type_of(grid, cut.axes, tuple(bounds), layout), mesh)


def _corner_bounds(extent: int, n_parts: int, mesh: Mesh, corner: Sequence[int]) -> tuple[int, ...]:
    """Boundaries by which only members with some coordinates have elements of an axis.

    Parameters
    ----------
    n_parts
        Of the axis. The first axes of `mesh`, as many as `corner` has coordinates, are the major ones that cut it.

    Examples
    --------
    >>> _corner_bounds(10, 4, Mesh(("a", "b"), (2, 2)), (1,))
    (0, 0, 0, 5, 10)
    """
    n_corners, number = 1, 0
    for size, coordinate in zip(mesh.sizes, corner, strict=False):
        n_corners, number = n_corners * size, number * size + coordinate
    inner = n_parts // n_corners
    return (*[0] * (number * inner), *boundaries(extent, inner), *[extent] * ((n_corners - 1 - number) * inner))


def combined_sharding(sharding: Sharding, axes: Collection[int], *, keepdims: bool) -> Sharding:
    """The type of a reduction over `axes` of loops that lie as `sharding`."""
    if not keepdims:
        kept = [a for a in range(sharding.ndim) if a not in axes]
        cut, bounds = tuple([sharding.axes[a] for a in kept]), tuple([sharding.bounds[a] for a in kept])
        return _type_of_result(sharding.mesh, cut, bounds, drop_axes(sharding.layout, tuple(axes)))
    cut = tuple([() if a in axes else names for a, names in enumerate(sharding.axes)])
    bounds = tuple([None if a in axes else b for a, b in enumerate(sharding.bounds)])
    return _type_of_result(sharding.mesh, cut, bounds, sharding.layout)


@lru_cache(maxsize=16384)
def type_of(
    mesh: Mesh,
    axes: tuple[tuple[str, ...], ...],
    bounds: tuple[tuple[int, ...] | None, ...] = (),
    layout: tuple[int, ...] = (),
) -> Sharding:
    """A type; the planner asks for the same ones again and again, and making one takes tens of microseconds."""
    return Sharding(mesh, axes, (), bounds, layout)


def result_sharding(sharding: Sharding, axes: Sequence[int]) -> Sharding:
    """The type of a result whose axes run over these loops."""
    cut, bounds = tuple([sharding.axes[a] for a in axes]), tuple([sharding.bounds[a] for a in axes])
    return _type_of_result(sharding.mesh, cut, bounds)


def _type_of_result(
    mesh: Mesh,
    axes: tuple[tuple[str, ...], ...],
    bounds: tuple[tuple[int, ...] | None, ...],
    layout: tuple[int, ...] = (),
) -> Sharding:
    """A type whose mesh has no waves but those that cut something: partial results of the others are combined."""
    return type_of(mesh.without_waves([name for names in axes for name in names]), axes, bounds, layout)


def _n_read(lens: Affine) -> int:
    """Elements of the source that a view reads, those that it repeats counted once."""
    return prod(lens.shape[a] for a in {axis for axis, _, _ in lens.terms if axis is not None})


def kernel_shardings(sharding: Sharding, loops: Loops) -> tuple[Sharding, ...]:
    """The types of the results of a stage that is no program."""
    found = tuple([result_sharding(sharding, axes) for axes in loops.results])
    if loops.windows is not None:
        return (found[0].with_bounds(loops.windows.bounds),)
    if loops.tiling is None:
        return found
    return tuple([s.with_bounds((b, *[None] * (s.ndim - 1))) for s, b in zip(found, loops.tiling.results, strict=True)])


def result_shardings(
    stage: Stage, sharding: Sharding, loops: Loops, graph: Graph, lies: Mapping[int, Sharding | None], mesh: Mesh
) -> dict[int, tuple[Sharding, ...]]:
    """The types of what a stage makes, by number of the node: one, or one for each of several results.

    Parameters
    ----------
    sharding
        Of its loops.
    lies
        Types of stored nodes, that of a written base among them.
    """
    nodes = graph.nodes
    found: dict[int, tuple[Sharding, ...]] = {i: (sharding,) for _, i in stage.stores}
    for c in stage.combines:
        found[c.node] = (combined_sharding(sharding, c.axes, keepdims=bool(nodes[c.node].params[1])),)
    i = stage.nodes[0]
    written = i if stage.kind == "take_put" else -1 if stage.write is None else stage.write[1]
    if written >= 0:
        below = graph.operands[written][0]
        assert below is not None
        found[written] = (lies[below] or Sharding.whole(mesh, nodes[written].ndim),)
    elif stage.kind != "program":
        found[i] = kernel_shardings(sharding, loops)
    return found


def _first_read(stage: Stage) -> int:
    """The read that is the first operand of the first operand ... of what a program makes: ties go to its layout."""
    register = stage.stores[0][0] if stage.stores else stage.combines[0].register if stage.combines else -1
    while register >= len(stage.reads):
        inputs = stage.instructions[register - len(stage.reads)].inputs
        register = next((r for r in inputs if r >= 0), -1)
    return register


def reading_order(stage: Stage, readings: Sequence[Reading]) -> list[int]:
    """The operands that lie somewhere, the one of which most is read first."""
    lies = [p for p, r in enumerate(readings) if r.sharding is not None]
    first = _first_read(stage)
    return sorted(lies, key=lambda p: (-_n_read(readings[p].lens), p != first))


def _n_elements(loops: Loops) -> int:
    """Of the largest result or operand: a kernel that takes a row of i elements to one of j has not i * j."""
    terms = [*loops.results, *(tuple([k for k in axes if k is not None]) for axes in loops.operands or ())]
    # Several axes may run over one loop: those of a group that a reshape joins.
    return max([prod(loops.extents[k] for k in set(term)) for term in terms], default=prod(loops.extents))


def _auto(loops: Loops, itemsize: int, mesh: Mesh, limits: Limits, n_elements: int | None = None) -> Cut:
    nbytes = (prod(loops.extents) if n_elements is None else n_elements) * itemsize
    if nbytes <= limits.block:
        return Cut("whole")
    free = [i for i in range(len(loops.extents)) if i not in loops.whole and loops.extents[i] > 1]
    if not free:
        return Cut("whole")
    waves = max(1, -(-nbytes // (mesh.size * limits.tile)))
    parts = mesh.size * waves
    if parts == 1:
        return Cut("whole")
    # the outermost axis that is long enough, so that tiles are few runs of memory; else the longest
    loop = next((i for i in free if loops.extents[i] >= parts), max(free, key=lambda i: loops.extents[i]))
    waves = min(waves, -(-loops.extents[loop] // mesh.size))
    return Cut("auto", loop=loop, waves=((loop, waves),) if waves > 1 else ())


class _Propagation:
    def __init__(self, graph: Graph, env: Environment, limits: Limits) -> None:
        self._graph = graph
        self._mesh = env.mesh
        self._limits = limits
        #: Whether there is nothing that another cut could save: no product, and all is read where it lies.
        self.is_aligned = True
        self._lying: dict[int, Sharding | None] = {}
        self._several: dict[int, tuple[Sharding, ...]] = {}
        self._users: list[list[int]] | None = None
        for i, node in enumerate(graph.nodes):
            if node.memo is not None:
                self._lying[i] = None if node.memo.on_client else node.memo.sharding

    def decide(self, stage: Stage) -> Stage:
        if stage.kind == "item":
            return self._item(stage)
        nodes = self._graph.nodes
        loops = stage_loops(stage, nodes)
        readings = [reading(a, loops, p, nodes, self._seen(a.node)) for p, a in enumerate(stage.reads)]
        base = base_reading(stage, self._graph, self._lying.__getitem__)
        cut = self._choose(stage, loops, readings)
        sharding = resolve_cut(cut, loops, readings, nodes, base, self._mesh)
        self.is_aligned = self.is_aligned and stage.kind != "contract" and _is_aligned(sharding, readings)
        for i, found in result_shardings(stage, sharding, loops, self._graph, self._lying, self._mesh).items():
            self._lying[i] = found[0]
            self._several[i] = found
        return _with_cut(stage, cut)

    def _seen(self, i: int) -> Sharding | None:
        """How a source lies for its readers; what a kernel makes is made where it is read, in the cut asked for it."""
        node = self._graph.nodes[i]
        if node.memo is None and node.op.kind == "create" and not (i in self._lying and self._graph.is_held(i)):
            return node.pin
        return self._lying.get(i)

    def _item(self, stage: Stage) -> Stage:
        i = stage.nodes[0]
        which = self._graph.nodes[i].params[0]
        assert isinstance(which, int)
        self._lying[i] = self._several[stage.reads[0].node][which]
        return _with_cut(stage, Cut("follow", (0,)))

    def _choose(self, stage: Stage, loops: Loops, readings: Sequence[Reading]) -> Cut:
        nodes = self._graph.nodes
        for i in stage.nodes:
            if nodes[i].pin is not None and nodes[i].op.kind != "put":
                return Cut("pin", node=i)
        if stage.write is not None:
            return Cut("base")
        if stage.kind in ("tiles", "windows"):
            return Cut("whole")  # one tile: several are pinned
        order = reading_order(stage, readings)
        if order:
            sharding = follow(loops, readings, order, self._mesh)
            if sharding.n_tiles > 1:
                return Cut("follow", tuple(order))
        i = stage.nodes[-1]
        assembled = self._assembled(i)
        if assembled is not None:
            return assembled
        dtype = nodes[i].dtype
        itemsize = dtype[0].itemsize if isinstance(dtype, tuple) else dtype.itemsize
        if stage.kind == "fold":
            return self._folded(loops, readings)
        if loops.operands is not None and loops.reduced:
            # a product: what counts is the larger of result and operands
            big = max(readings, key=lambda r: prod(r.lens.shape))
            result = prod(loops.extents[a] for a in loops.results[0])
            if prod(big.lens.shape) <= self._limits.block and result <= self._limits.block:
                return Cut("whole")
            nbytes_loops = Loops(loops.extents, loops.whole | frozenset(loops.reduced))
            return _auto(nbytes_loops, itemsize, self._mesh, self._limits, _n_elements(loops))
        cut = _auto(loops, itemsize, self._mesh, self._limits, _n_elements(loops))
        if cut.how == "whole" and order:
            return Cut("follow", tuple(order))
        return cut

    def _folded(self, loops: Loops, readings: Sequence[Reading]) -> Cut:
        """The cut of a fold whose operands lie nowhere: along an axis of the largest of them."""
        big = max(readings, key=lambda r: prod(r.lens.shape) * self._graph.nodes[r.node].dtype.itemsize)
        fixed = [a for a, loop in enumerate(big.loops) if loop is None or loop in loops.whole]
        itemsize = self._graph.nodes[big.node].dtype.itemsize
        cut = _auto(Loops(big.lens.shape, frozenset(fixed)), itemsize, self._mesh, self._limits)
        loop = big.loops[cut.loop] if cut.how == "auto" else None
        return cut if loop is None else replace(cut, loop=loop, waves=tuple([(loop, n) for _, n in cut.waves]))

    def _assembled(self, i: int) -> Cut | None:
        """The cut of a created array that parts are written into (concat, roll): as its reader asks, else as they lie.

        Where the base of the writes lies, the result lies: left to the size alone, small parts would all gather at
        one member.
        """
        nodes, operands = self._graph.nodes, self._graph.operands
        if nodes[i].op.kind != "create":
            return None
        if self._users is None:
            self._users = self._graph.users()
        best: tuple[int, int] = (0, -1)
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
            sharding = self._seen(source)
            if sharding is None or sharding.n_tiles == 1 or len(sharding.axes) != len(nodes[source].shape):
                continue
            lens = nodes[top].runtime
            for b, (axis, _, _) in enumerate(lens.terms):
                if axis is not None and axis < len(axes) and axes[axis] is not None and sharding.axes[axes[axis]]:
                    best = max(best, (prod(lens.shape), b))
        if top == i:
            return None
        for k in self._users[top]:
            if nodes[k].pin is not None and nodes[k].shape == nodes[i].shape:
                return Cut("pin", node=k)
        return Cut("auto", loop=best[1]) if best[1] >= 0 else None

    def _behind(self, i: int) -> tuple[int, tuple[int | None, ...]]:
        """The largest array that elementwise work and views above it end in, and its axis for each axis of node `i`."""
        nodes, operands = self._graph.nodes, self._graph.operands
        axes: tuple[int | None, ...] = tuple(range(len(nodes[i].shape)))
        while nodes[i].memo is None and i not in self._lying:
            node = nodes[i]
            if node.op.kind == "get":
                seen = {axis: b for b, (axis, _, _) in enumerate(node.runtime.terms) if axis is not None}
                axes = tuple(None if a is None else seen.get(a) for a in axes)
                below = operands[i][0]
            elif node.op.kind == "map":
                below = next((o for o in operands[i] if o is not None and nodes[o].shape == node.shape), None)
            else:
                break
            if below is None:
                break
            i = below
        return i, axes


def _with_cut(stage: Stage, cut: Cut) -> Stage:
    return replace(stage, cut=cut)


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
    """The plan of `propagate`, and whether every operand lies as the stage that reads it is cut."""
    state = _Propagation(graph, env, limits)
    stages = tuple(state.decide(s) for s in group_stages(graph))
    return Plan(stages, tuple(sorted(graph.kept))), state.is_aligned


def _is_aligned(sharding: Sharding, readings: Iterable[Reading]) -> bool:
    """Whether the loops run over the mesh axes that cut the operands; borders apart, nothing is sent then."""
    for r in readings:
        lying = r.sharding
        if lying is None:
            continue
        for names, (axis, _, _) in zip(lying.axes, r.lens.terms, strict=True):
            loop = None if axis is None else r.loops[axis]
            if names and (axis is not None) and (loop is None or sharding.axes[loop] != names):
                return False
    return True
