"""The cuts that the planner chooses from: what each stage may look like, on places.

A *state* is a concrete cut of one free stage, with all that lies as it does. Its parts run over prime axes of the
team's mesh, so that four members cut two by two as well as along one loop; or over a smaller mesh, where the number of
members has a large prime factor. Beside these regular cuts a stage may lie as its operands do, whatever their
boundaries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import islice, product
from math import prod

from distarray.planner.loops import base_reading
from distarray.planner.partition.facts import StageFacts
from distarray.planner.partition.resolved import PartitionProblem, ResolvedStages
from distarray.planner.plan import Corner, Cut, Limits, Parts, Written
from distarray.planner.shardings import follow, resolve_cut, result_shardings, type_of, type_of_parts
from distarray.sharding.cuts import MAX_TILES
from distarray.sharding.mesh import Mesh
from distarray.sharding.prime import coarsened, dealt_out, prime_factors, prime_mesh, realised, smaller_mesh
from distarray.sharding.sharding import Sharding

#: Cuts of a stage that are compared. More regular ones are thinned out.
MAX_STATES = 64
#: Loops of a stage over which many mesh axes are dealt out.
MAX_LOOPS = 4
#: A smaller grid must use this share of the members.
LEAST_SHARE = 0.85


@dataclass(slots=True, eq=False)
class State:
    """A State is one cut that a variable of the search may have, and the types that follow from it.

    Parameters
    ----------
    cut
        Of the first stage, if it is regular.
    loops
        By number of the stage the type of its loops.
    lies
        By number of the node how what the stages make lies; several results of one kernel each.
    """

    cut: Cut | None
    loops: dict[int, Sharding] = field(default_factory=dict)
    lies: dict[int, tuple[Sharding, ...]] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Variable:
    """A Variable is one decision of the search: a stage with those that lie as it does, or a host array whose cut is
    open, and the states to choose from.

    Parameters
    ----------
    node
        Number of the input, else -1.
    """

    stages: list[StageFacts]
    states: list[State] = field(default_factory=list)
    node: int = -1


@lru_cache(maxsize=64)
def grids(team: Mesh) -> tuple[Mesh, ...]:
    """Return the meshes that regular cuts run over: the team's in prime axes, and a smaller one that factors better.

    >>> grids(Mesh(("x",), (7,)))
    (Mesh(x=7), Mesh(g1=3, g2=2))
    """
    found = [prime_mesh(team)]
    p = team.size
    smaller = max(range(max(1, -int(-LEAST_SHARE * p // 1)), p + 1), key=lambda n: (len(prime_factors(n)), n))
    if len(prime_factors(smaller)) > len(prime_factors(p)) and max(prime_factors(p)) > 3:
        found.append(smaller_mesh(team, smaller))
    return tuple(found)


def regular_cuts(extents: Sequence[int], free: Sequence[int], mesh: Mesh) -> list[tuple[tuple[str, ...], ...]]:
    """Return the ways to deal the axes of a mesh out to loops, with as many places busy as the extents allow.

    Returns
    -------
    Per way and loop the axes that cut it, minor first.

    Examples
    --------
    >>> regular_cuts((8, 8), (0, 1), Mesh(("a", "b"), (2, 2)))
    [(('b', 'a'), ()), (('a',), ('b',)), (('b',), ('a',)), ((), ('b', 'a'))]
    """
    names, sizes = mesh.names, mesh.sizes
    if not free or mesh.size == 1:
        return []
    ways: Iterable[tuple[int, ...]] = product(free, repeat=len(names))
    if len(free) ** len(names) > MAX_STATES:
        ways = _few_ways(extents, free, sizes)
    busy = {way: _n_busy(way, extents, sizes) for way in ways}
    most = max(busy.values())
    found = [way for way, n in busy.items() if n == most and most > 1][:MAX_STATES]
    return [dealt_out(names, way, len(extents)) for way in found]


def _n_busy(way: Sequence[int], extents: Sequence[int], sizes: Sequence[int]) -> int:
    """Return how many places have elements if each axis of a mesh cuts the loop that `way` names for it."""
    parts = [1] * len(extents)
    for i, n in zip(way, sizes, strict=True):
        parts[i] *= n
    return prod([min(n, k) for n, k in zip(extents, parts, strict=True) if k > 1])


def _few_ways(extents: Sequence[int], free: Sequence[int], sizes: Sequence[int]) -> list[tuple[int, ...]]:
    """Return ways in which neighbouring axes go to one loop: one for each number of axes per loop and order of the
    loops.
    """
    found: dict[tuple[int, ...], None] = {}
    loops = sorted(free, key=lambda i: -extents[i])[:MAX_LOOPS]
    for split in _compositions(len(sizes), len(loops)):
        for order in (loops, loops[::-1]):
            counts = split if order is loops else split[::-1]
            found[tuple([i for i, n in zip(order, counts, strict=True) for _ in range(n)])] = None
    return list(found)


def _compositions(n: int, k: int) -> Iterator[tuple[int, ...]]:
    if k == 1:
        yield (n,)
        return
    for first in range(n + 1):
        for rest in _compositions(n - first, k - 1):
            yield (first, *rest)


def _with_waves(
    axes: tuple[tuple[str, ...], ...], mesh: Mesh, facts: StageFacts, limits: Limits
) -> list[tuple[Mesh, Sharding]]:
    """Return the cut, in so many waves that no result tile is larger than what a tile may be.

    Where several members have partial results of one tile, the waves are dealt out to them (`result_shardings`): their
    number is a multiple of that of these members then. Where the tile may be as large as it is, this is another cut.
    """
    extents = facts.loops.extents
    parts = [prod(mesh.axis_size(name) for name in names) for names in axes]
    tile, kept = max(
        ((s * prod(-(-extents[a] // parts[a]) for a in loops), loops) for s, loops in facts.results if loops),
        default=(0, ()),
    )
    waves = -(-tile // limits.tile)
    n_partials = prod([parts[a] for a in facts.free if a not in kept])
    scattered = -(-waves // n_partials) * n_partials
    found = [] if waves > 1 else [(mesh, type_of(mesh, axes))]
    if 1 < scattered <= MAX_TILES // mesh.size and tile > limits.block:
        for loop in facts.free:
            if loop in kept and extents[loop] >= parts[loop] * scattered:
                waved = mesh.with_waves(scattered)
                cut = tuple([("%1", *names) if a == loop else names for a, names in enumerate(axes)])
                return [*found, (waved, type_of(waved, cut))]
    return found or [(mesh, type_of(mesh, axes))]


class _Variables:
    """A _Variables makes the variables of a graph, stage by stage."""

    def __init__(
        self, problem: PartitionProblem, splits: Mapping[int, tuple[int, ...]], corners: Mapping[int, tuple[int, ...]]
    ) -> None:
        self._graph = problem.graph
        self._mesh = problem.mesh
        self._limits = problem.limits
        self._outside = problem.outside
        self._splits = splits
        self._corners = corners
        #: The variable that makes each node, by its number.
        self.made: dict[int, Variable] = {}
        self.variables: list[Variable] = []

    def add_input(self, i: int, lying: Sharding) -> None:
        variable = Variable([], [State(None, {}, {i: (lying,)})], i)
        shape = self._graph.nodes[i].shape
        free = [axis for axis, n in enumerate(shape) if n > 1]
        for grid in grids(self._mesh):
            for axes in regular_cuts(shape, free, grid):
                sharding = coarsened(type_of(grid, axes), self._mesh)
                if sharding != lying:
                    variable.states.append(State(None, {}, {i: (sharding,)}))
        self.variables.append(variable)
        self.made[i] = variable

    def add(self, facts: StageFacts, baseline: Sharding) -> None:
        if facts.leader >= 0 and facts.leader in self.made:
            variable = self.made[facts.leader]
            variable.stages.append(facts)
            for state in variable.states:
                self._record(state, facts, self._led(state, facts))
        else:
            variable = Variable([facts])
            self.variables.append(variable)
            for cut, sharding in self._cuts(facts, baseline):
                state = State(cut)
                variable.states.append(state)
                self._record(state, facts, sharding)
        for i in facts.stage.nodes:
            self.made[i] = variable

    def _record(self, state: State, facts: StageFacts, sharding: Sharding) -> None:
        stage = facts.stage
        state.loops[facts.number] = sharding
        if stage.family.is_item:
            state.lies[stage.nodes[0]] = (sharding,)
            return
        lead = facts.leader
        lies = {lead: state.lies[lead][0]} if lead in state.lies else self._outside
        state.lies.update(result_shardings(stage, sharding, facts.loops, self._graph, lies, self._mesh))

    def _led(self, state: State, facts: StageFacts) -> Sharding:
        """Return the type of the loops of a stage that lies as another."""
        stage = facts.stage
        if stage.family.is_item:
            which: int = self._graph.nodes[stage.nodes[0]].params.number
            return state.lies[facts.leader][which]
        if stage.family.is_write:
            return state.lies[facts.leader][0]
        base = base_reading(stage, self._graph, lambda i: state.lies[i][0])
        nodes, outside = self._graph.nodes, self._outside
        return resolve_cut(Cut(Written()), facts.loops, facts.readings, nodes, base, self._mesh, outside.get)

    def _cuts(self, facts: StageFacts, baseline: Sharding) -> Iterator[tuple[Cut | None, Sharding]]:
        """Yield the cuts of a stage, each once; that of the baseline first."""
        if facts.number in self._splits:
            yield from self._realised(self._splits[facts.number], baseline)
            return
        if facts.number in self._corners:
            yield from self._cornered(facts, self._corners[facts.number], baseline)
            return
        yield None, baseline
        if facts.pinned >= 0 or facts.is_written or not facts.free:
            return
        seen = {baseline}
        is_small = facts.largest_nbytes <= self._limits.block
        for sharding in self._followed(facts):
            # what is not small is never brought together at one member
            if sharding not in seen and len(seen) < MAX_STATES and (is_small or sharding.n_tiles > 1):
                seen.add(sharding)
                yield None, sharding
        if is_small:
            return  # .. and small stays small
        layout = baseline.layout
        for grid in grids(self._mesh):
            for axes in regular_cuts(facts.loops.extents, facts.free, grid):
                for mesh, fine in _with_waves(axes, grid, facts, self._limits):
                    sharding = coarsened(type_of(mesh, fine.axes, (), layout), self._mesh)
                    if sharding not in seen:
                        seen.add(sharding)
                        yield Cut(Parts(fine.parts, fine.axes, mesh.without_owners())), sharding

    def _realised(self, parts: tuple[int, ...], baseline: Sharding) -> Iterator[tuple[Cut | None, Sharding]]:
        """Yield the cuts into so many parts: the ways in which the axes of the mesh may give them."""
        grid = grids(self._mesh)[0]
        found = False
        for axes in islice(realised(parts, grid), MAX_STATES):
            found = True
            sharding = coarsened(type_of(grid, axes, (), baseline.layout), self._mesh)
            yield Cut(Parts(parts, axes, grid.without_owners())), sharding
        if not found:
            yield None, baseline

    def _cornered(
        self, facts: StageFacts, corner: tuple[int, ...], baseline: Sharding
    ) -> Iterator[tuple[Cut | None, Sharding]]:
        """Yield the cuts over the members of one corner of the mesh."""
        grid = grids(self._mesh)[0]
        n = len(corner)
        lead, rest = grid.names[:n][::-1], Mesh(grid.names[n:], grid.sizes[n:])
        loop = max(facts.kept, key=facts.loops.extents.__getitem__)
        uncut: tuple[tuple[str, ...], ...] = ((),) * len(facts.loops.extents)
        for axes in regular_cuts(facts.loops.extents, facts.free, rest) or [uncut]:
            whole = tuple([(*names, *lead) if a == loop else names for a, names in enumerate(axes)])
            for mesh, fine in _with_waves(whole, grid, facts, self._limits):
                cut = Parts(fine.parts, fine.axes, mesh.without_owners(), corner=Corner(loop, corner))
                yield Cut(cut), type_of_parts(cut, facts.loops.extents, baseline.layout, self._mesh)

    def _followed(self, facts: StageFacts) -> Iterator[Sharding]:
        """Yield the cuts under which one operand stays where it lies, or may lie."""
        for p, r in enumerate(facts.readings):
            if facts.views[p] is None:
                lying: Iterable[Sharding] = () if r.sharding is None else (r.sharding,)
            elif r.node in self.made:
                lying = [state.lies[r.node][0] for state in self.made[r.node].states]
            else:
                lying = [s for s in (self._outside.get(r.node),) if s is not None]
            for sharding in dict.fromkeys(lying):
                if sharding.n_tiles > 1:
                    yield follow(facts.loops, [replace(r, sharding=sharding)], [0], self._mesh)


def variables_of(
    problem: PartitionProblem,
    baseline: ResolvedStages,
    splits: Mapping[int, tuple[int, ...]],
    corners: Mapping[int, tuple[int, ...]],
) -> tuple[list[Variable], dict[int, Variable]]:
    """Return the variables of a graph with their states, and by node the one that makes it.

    Parameters
    ----------
    baseline
        The plan that is to be beaten: its cuts are always the first states.
    splits
        By stage how many parts each loop has, where that is decided: then only the axes are chosen.
    corners
        By stage which members compute it, where they are not all: see `branchings`.
    """
    builder = _Variables(problem, splits, corners)
    for i, lying in baseline.inputs.items():
        builder.add_input(i, lying)
    for facts in problem.facts:
        builder.add(facts, baseline.shardings[facts.number])
    return builder.variables, builder.made
