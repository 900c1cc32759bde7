"""Shardings of stages: what a decided cut is for the extents at hand, and how the results of a stage lie then.

A decision (`Cut`) says *whom* a stage follows and holds for any extents; `resolve_cut` turns it into the Sharding of
the stage's loops for the nodes at hand. Planning and lowering both call it, so what was planned is what runs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise, takewhile
from math import prod

from distarray.errors import MemoryBudgetError
from distarray.expr.expr import Expr
from distarray.expr.lens import Affine
from distarray.planner.graph import Graph
from distarray.planner.loops import Loops, Reading, base_reading, reading
from distarray.planner.pieces import edges_of_pieces
from distarray.planner.plan import Along, Assembled, Cut, Followed, Parts, Pinned, Stage, Written
from distarray.sharding.cuts import MAX_TILES, boundaries
from distarray.sharding.layout import drop_axes
from distarray.sharding.mesh import Mesh, is_wave
from distarray.sharding.prime import coarsened, refined
from distarray.sharding.sharding import Sharding


def _pulled(bounds: Sequence[int], start: int, step: int, extent: int) -> tuple[int, ...]:
    """Return the boundaries of a source axis as a view axis with this start and step sees them; what a loop with a halo
    has behind the axis belongs to its last tile.
    """
    if step > 0:
        seen = [-((start - b) // step) for b in bounds]
    else:
        seen = [(start - b) // -step + 1 for b in reversed(bounds)]
    return (*[min(max(b, 0), extent) for b in seen[:-1]], extent)


def follow(loops: Loops, readings: Sequence[Reading], order: Sequence[int], mesh: Mesh) -> Sharding:
    """Return the cut of the loops under which the operands, the first in `order` first, stay where they lie.

    Tiles of one member become one where a tile of what they follow is as large.
    """
    found, partial = _followed(loops, readings, order, mesh)
    for loop, largest in partial.items():
        found = _merged(found, loops.extents, loop, largest)
    return coarsened(found, mesh)


def _followed(
    loops: Loops, readings: Sequence[Reading], order: Sequence[int], mesh: Mesh
) -> tuple[Sharding, dict[int, int]]:
    """Return the cut that follows operands tile by tile, on their mesh; and the loops that run over a part of an axis,
    or over other elements, with the elements of a tile of what they follow.
    """
    n = len(loops.extents)
    axes: list[tuple[str, ...]] = [()] * n
    bounds: list[tuple[int, ...] | None] = [None] * n
    used: set[str] = set()
    chosen = _owned(readings, order)
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
    return type_of(chosen or mesh, tuple(axes), tuple(bounds), layout), partial


def _owned(readings: Sequence[Reading], order: Sequence[int]) -> Mesh | None:
    """Return the mesh of the operands if each is one tile, and somebody said who holds the first that is read."""
    lying = [s for p in order if (s := readings[p].sharding) is not None]
    is_one = all(s.n_tiles == 1 for s in lying)
    return next((s.mesh for s in lying if s.mesh.owners is not None), None) if is_one else None


def _merged(sharding: Sharding, extents: tuple[int, ...], loop: int, largest: int) -> Sharding:
    """Return a type whose waves along a loop are joined, as far as no tile gets more than `largest` elements.

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
    owners = mesh.owners
    if owners is not None:  # all waves of a place have one owner
        owners = tuple([m for p, m in enumerate(owners) if mesh.coordinates(p)[mesh.axis_position(names[0])] < fewer])
    smaller = Mesh(mesh.names, sizes, owners)
    if fewer == 1:
        axes[loop] = names[1:]
        smaller = smaller.without_waves([name for cut in axes for name in cut])
    return type_of(smaller, tuple(axes), tuple(bounds), sharding.layout)


def _layout(loops: Loops, readings: Sequence[Reading], order: Sequence[int]) -> tuple[int, ...]:
    """Return the memory order of what a program stores: as the first operand in `order` that has one shows it."""
    if loops.operands is None:
        for position in order:
            r = readings[position]
            layout = () if r.sharding is None else _seen_layout(r.sharding.layout, r.lens, len(loops.extents))
            if layout:
                return layout
    return ()


def _within(loops: Loops, base: Reading, mesh: Mesh) -> Sharding:
    """Return the cut that follows `base` such that no tile reaches over two tiles of it.

    `_followed` cuts a loop as one axis of the base. A loop that runs along several, as that of a diagonal does, is cut
    where any of them is.
    """
    cut, _ = _followed(loops, [base], [0], mesh)
    lying, extents = base.sharding, loops.extents
    if lying is None or lying.n_tiles == 1 or len({axis for axis, _, _ in base.lens.terms}) == len(base.lens.terms):
        return coarsened(cut, mesh)
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
    return coarsened(Sharding(lying.mesh, tuple(axes), (), tuple(bounds), cut.layout), mesh)


def _seen_layout(layout: tuple[int, ...], lens: Affine, n: int) -> tuple[int, ...]:
    """Return the axis order of a source as its view shows it; C where the view has other axes."""
    order = [lens.terms[b][0] for b in layout]
    seen = [a for a in order if a is not None]
    return tuple(seen) if len(seen) == n and len(set(seen)) == n else ()


def resolve_cut(
    cut: Cut,
    loops: Loops,
    readings: Sequence[Reading],
    nodes: Sequence[Expr],
    base: Reading | None,
    mesh: Mesh,
    lying: Callable[[int], Sharding | None],
) -> Sharding:
    """Return the Sharding of a stage's loops for the nodes at hand.

    Parameters
    ----------
    readings, base
        What the stage reads, and the base that it writes, if it does.
    lying
        Of the number of a node that is stored its type; None if it is not.

    Raises
    ------
    MemoryBudgetError
        If it has more than `MAX_TILES` tiles.
    """
    rule = cut.rule
    if isinstance(rule, Written):
        assert base is not None
        sharding = _within(loops, base, mesh)
    elif isinstance(rule, Followed):
        sharding = follow(loops, readings, rule.order, mesh)
    elif isinstance(rule, Pinned):
        pin = nodes[rule.node].pin
        assert pin is not None
        sharding = _pinned(loops, pin.with_copies(False))  # which results have copies is said by `result_shardings`
    elif isinstance(rule, Parts):
        sharding = type_of_parts(rule, loops.extents, _layout(loops, readings, rule.order), mesh)
    elif isinstance(rule, Assembled) and (found := edges_of_pieces(rule, nodes, lying)) is not None:
        sharding = _assembled(rule.loop, loops.extents, *found)
    else:
        axes: list[tuple[str, ...]] = [()] * len(loops.extents)
        if isinstance(rule, Along | Assembled):
            axes[rule.loop] = tuple(reversed(mesh.names))
        sharding = Sharding(mesh, tuple(axes))
    n_tiles = prod([n for _, n in cut.waves], start=sharding.n_tiles)
    if n_tiles > MAX_TILES:
        raise MemoryBudgetError(
            f"an array of shape {loops.extents} would have to be cut into {n_tiles} tiles, more than the {MAX_TILES} "
            "that an operation may have; compute a part of it at a time, choose larger chunks, or raise the option "
            "memory-limit"
        )
    return with_waves(sharding, cut.waves) if cut.waves else sharding


def with_waves(sharding: Sharding, waves: Iterable[tuple[int, int]]) -> Sharding:
    """Return a type whose tiles are cut further along some axes, into so many that follow each other on one member.

    >>> with_waves(Sharding(Mesh(("x",), (2,)), (("x",), ())), [(0, 3)]).axes
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


def _pinned(loops: Loops, pin: Sharding) -> Sharding:
    """Return the type of the loops of a stage whose result is pinned."""
    n = len(loops.extents)
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


def _assembled(
    loop: int, extents: tuple[int, ...], mesh: Mesh, names: tuple[str, ...], rounds: Sequence[tuple[int, ...]]
) -> Sharding:
    """Return the type under which pieces stay where they lie (`edges_of_pieces`); short gaps between them belong to the
    tile before.
    """
    axes: list[tuple[str, ...]] = [()] * len(extents)
    bounds: list[tuple[int, ...] | None] = [None] * len(extents)
    axes[loop] = names
    if len(rounds) > 1:
        mesh = mesh.with_waves(len(rounds))
        axes[loop] = (*names, mesh.names[-1])
    inner = [e for edges in rounds for e in edges[:-1]]
    bounds[loop] = (0, *inner[1:], extents[loop])
    return type_of(mesh, tuple(axes), tuple(bounds))


def type_of_parts(cut: Parts, extents: Sequence[int], layout: tuple[int, ...], mesh: Mesh) -> Sharding:
    """Return the type that a cut into parts means, for loops of these extents and the mesh of the team."""
    bounds: list[tuple[int, ...] | None] = [None] * len(extents)
    if cut.corner is not None:
        loop, coordinates = cut.corner
        bounds[loop] = _corner_bounds(extents[loop], cut.parts[loop], cut.mesh, coordinates)
    return coarsened(type_of(cut.mesh, cut.axes, tuple(bounds), layout), mesh)


def _corner_bounds(extent: int, n_parts: int, mesh: Mesh, corner: Sequence[int]) -> tuple[int, ...]:
    """Return the boundaries by which only members with some coordinates have elements of an axis.

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
    """Return the type of a reduction over `axes` of loops that lie as `sharding`."""
    if not keepdims:
        kept = [a for a in range(sharding.ndim) if a not in axes]
        return result_sharding(sharding, kept, drop_axes(sharding.layout, tuple(axes)))
    return result_sharding(sharding, [-1 if a in axes else a for a in range(sharding.ndim)], sharding.layout)


@lru_cache(maxsize=16384)
def type_of(
    mesh: Mesh,
    axes: tuple[tuple[str, ...], ...],
    bounds: tuple[tuple[int, ...] | None, ...] = (),
    layout: tuple[int, ...] = (),
) -> Sharding:
    """Return a type; the planner asks for the same ones again and again, and making one takes tens of microseconds."""
    return Sharding(mesh, axes, (), bounds, layout)


def result_sharding(sharding: Sharding, loops: Sequence[int], layout: tuple[int, ...] = ()) -> Sharding:
    """Return the type of a result whose axes run over these loops, -1 for those of one element.

    Partial results over the other loops are combined: its mesh has no waves but those that cut it, and those are dealt
    out to the members that have partial results (`_scattered`).
    """
    axes = tuple([() if a < 0 else sharding.axes[a] for a in loops])
    bounds = tuple([None if a < 0 else sharding.bounds[a] for a in loops])
    reduced = [name for a, names in enumerate(sharding.axes) if a not in loops for name in names if not is_wave(name)]
    mesh = sharding.mesh.without_waves([name for names in axes for name in names])
    return type_of(*_scattered(mesh, axes, reduced), bounds, layout)


def _scattered(
    mesh: Mesh, axes: tuple[tuple[str, ...], ...], reduced: Sequence[str]
) -> tuple[Mesh, tuple[tuple[str, ...], ...]]:
    """Return the mesh and the axes of a result whose waves are dealt out to the members that have partial results of
    it, as a reduce-scatter does: each combines its own.

    Parameters
    ----------
    reduced
        Axes of the mesh that cut the loops that are reduced.

    Examples
    --------
    >>> _scattered(Mesh(("x",), (4,)).with_waves(8), ((), ("%1",)), ("x",))
    (Mesh(x=4, %1=2), ((), ('%1', 'x')))
    """
    if not reduced or mesh.owners is not None:
        return mesh, axes
    waves = [tuple(takewhile(is_wave, names)) for names in axes]
    n_waves = [prod(map(mesh.axis_size, names)) for names in waves]
    n_left = max(n_waves, default=1)
    dealt: tuple[str, ...] = ()
    for name in reduced:
        n = mesh.axis_size(name)
        if n > 1 and n_left % n == 0:
            n_left, dealt = n_left // n, (*dealt, name)
    if not dealt:
        return mesh, axes
    axis = n_waves.index(max(n_waves))
    cut = (*dealt, *axes[axis][len(waves[axis]) :])
    mesh = mesh.without_waves([name for names in axes for name in names if name not in waves[axis]])
    if n_left > 1:
        mesh = mesh.with_waves(n_left)
        cut = (mesh.names[-1], *cut)
    return mesh, (*axes[:axis], cut, *axes[axis + 1 :])


def _kernel_shardings(sharding: Sharding, loops: Loops) -> tuple[Sharding, ...]:
    """Return the types of the results of a stage that is no program."""
    found = tuple([result_sharding(sharding, axes) for axes in loops.results])
    if loops.windows is not None:
        return (found[0].with_bounds(loops.windows.bounds),)
    if loops.tiling is None:
        return found
    return tuple([s.with_bounds((b, *[None] * (s.ndim - 1))) for s, b in zip(found, loops.tiling.results, strict=True)])


def result_shardings(
    stage: Stage, sharding: Sharding, loops: Loops, graph: Graph, lies: Mapping[int, Sharding | None], mesh: Mesh
) -> dict[int, tuple[Sharding, ...]]:
    """Return the types of what a stage makes, by number of the node: one, or one for each of several results.

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
        found[c.node] = (combined_sharding(sharding, c.axes, keepdims=nodes[c.node].params.keepdims),)
    i, written = stage.nodes[0], stage.written
    if written < 0 and not stage.family.is_fused:
        found[i] = _kernel_shardings(sharding, loops)
    # Where the user said who is to have an array, all of them have it.
    found = {
        i: tuple([s.with_copies() for s in types]) if (pin := nodes[i].pin) is not None and pin.is_copied else types
        for i, types in found.items()
    }
    if written >= 0:
        found[written] = (lies[graph.base(written)] or Sharding.whole(mesh, nodes[written].ndim),)
    return found


class Resolver:
    """A Resolver goes over the stages of a plan in their order, and knows where everything lies that was made so far.

    Parameters
    ----------
    lies
        Types of what is stored before; None for what the client holds.
    """

    def __init__(self, graph: Graph, mesh: Mesh, lies: Mapping[int, Sharding | None]) -> None:
        self._graph = graph
        self._mesh = mesh
        self.lies = dict(lies)
        self._several: dict[int, tuple[Sharding, ...]] = {}

    def lying(self, i: int) -> Sharding | None:
        """Return how a node lies for its readers; what is made where it is read lies as was asked for it."""
        is_made = self._graph.is_made_on_the_spot(i, is_stored=i in self.lies)
        return self._graph.nodes[i].pin if is_made else self.lies.get(i)

    def readings(self, stage: Stage, loops: Loops) -> list[Reading]:
        """Return the operands of a stage."""
        nodes = self._graph.nodes
        return [reading(access, loops, p, nodes, self.lying(access.node)) for p, access in enumerate(stage.reads)]

    def typed(self, readings: Iterable[Reading]) -> list[Reading]:
        """Return operands with the types that they have."""
        return [replace(r, sharding=self.lying(r.node)) for r in readings]

    def resolved(self, stage: Stage, loops: Loops, readings: Sequence[Reading]) -> Sharding:
        """Return what the cut of a stage means."""
        base = base_reading(stage, self._graph, self.lies.__getitem__)
        return resolve_cut(stage.cut, loops, readings, self._graph.nodes, base, self._mesh, self.lies.get)

    def step(self, stage: Stage, loops: Loops, readings: Sequence[Reading]) -> Sharding:
        """Return the type of the loops of a stage; what it makes lies from now on."""
        i = stage.nodes[0]
        if stage.family.is_item:
            which: int = self._graph.nodes[i].params.number
            found = self.lies[i] = self._several[stage.reads[0].node][which]
            return found
        sharding = self.resolved(stage, loops, self.typed(readings))
        made = result_shardings(stage, sharding, loops, self._graph, self.lies, self._mesh)
        self.lies.update({node: types[0] for node, types in made.items()})
        self._several.update(made)
        return sharding
