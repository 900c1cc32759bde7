"""Chains of halo stages: several stages in a row that each read a little of their neighbours' tiles, with one exchange.

A loop of stencil steps is bound by its exchanges: each step waits for what the members beside it have made. A chain
exchanges once. Each member is sent what all its steps need, a halo as deep as the chain is long, and computes for
itself what its later steps read beyond its tiles. The same elements come of the same operations, so results are equal
bit by bit; what is computed twice is the price.

What that gains is counted in ``asv_bench/benchmarks/halo_chains.py``: a 32nd of messages and tasks.

`chained` decides which stages go together, by predicted seconds; `needed_boxes` says what a member needs of each node,
for the planner and for `lower.halo_tasks`, which makes the tasks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, pairwise
from typing import NamedTuple, TypeAlias

from distarray.expr.lens import Affine
from distarray.planner.graph import Graph
from distarray.planner.loops import Reading
from distarray.planner.partition.resolved import PartitionProblem
from distarray.planner.plan import Limits, Plan, Stage
from distarray.planner.rates import Rates
from distarray.planner.redistributing import redistributes
from distarray.sharding.boxes import Box, intersect_boxes, size, tile_box
from distarray.sharding.cuts import boundaries
from distarray.sharding.mesh import Mesh
from distarray.sharding.sharding import Sharding

#: Stages of a chain at most.
DEEPEST = 64
#: A member computes at most so many times its own elements where a chain is planned; and where it is lowered, else its
#: stages are lowered one by one: the planner saw views of other offsets, if another expression shares its plan.
MOST_WORK, MOST_WORK_OF_OTHER_VIEWS = 1.5, 2.0
#: Members whose seconds are predicted: those of others are alike.
MOST_MEMBERS = 8

#: By stage the box that a member computes, and by node the box that it needs of it.
Needs: TypeAlias = tuple[list[Box | None], dict[int, Box]]


class HaloStage(NamedTuple):
    """A HaloStage is what a stage makes and reads, for the boxes that its tiles need.

    Parameters
    ----------
    stored
        Numbers of the nodes that are stored as its loops run.
    written, base, lens
        Node that is a new version of `base`, written through a lens; -1 if there is none.
    reads
        Nodes that are read, and the lens from the loops to each.
    """

    stored: tuple[int, ...]
    written: int
    base: int
    lens: Affine | None
    reads: tuple[tuple[int, Affine], ...]

    @property
    def made(self) -> tuple[int, ...]:
        """Return the numbers of all nodes that it makes."""
        return self.stored if self.written < 0 else (*self.stored, self.written)


def halo_stage(stage: Stage, readings: Sequence[Reading], graph: Graph) -> HaloStage:
    """Return what a program stage makes and reads."""
    written = stage.written
    lens = graph.nodes[written].runtime if written >= 0 else None
    stored, reads = tuple([i for _, i in stage.stores]), tuple([(r.node, r.lens) for r in readings])
    return HaloStage(stored, written, graph.base(written), lens, reads)


def needed_boxes(stages: Sequence[HaloStage], wanted: Mapping[int, Box]) -> Needs:
    """Return what one member computes and needs of a chain.

    Parameters
    ----------
    stages
        In the order in which they run.
    wanted
        By number of the node the box that the member must have in the end.

    Returns
    -------
    By stage the box of its loops, None for nothing; and by number of the node the box that the member needs of it.
    """
    need = dict(wanted)
    boxes: list[Box | None] = []
    for stage in reversed(stages):
        found = [need[i] for i in stage.stored if i in need]
        if stage.lens is not None and stage.written in need:
            inside = stage.lens.view_box(need[stage.written])
            found += [] if inside is None else [inside]
        box = _hull(found) if found else None
        boxes.append(box)
        if box is not None:
            if stage.lens is not None:
                _grow(need, stage.written, stage.lens.source_box(box))
            for node, lens in stage.reads:
                _grow(need, node, lens.source_box(box))
        if stage.written in need:
            _grow(need, stage.base, need[stage.written])
    return boxes[::-1], need


def _grow(need: dict[int, Box], node: int, box: Box) -> None:
    need[node] = _hull([need[node], box] if node in need else [box])


def _hull(boxes: Sequence[Box]) -> Box:
    """Return the smallest box without gaps around some boxes that have elements."""
    return tuple(
        [range(min(r.start for r in along), max(r[-1] for r in along) + 1) for along in zip(*boxes, strict=True)]
    )


def needed_outside(plan: Plan, graph: Graph, numbers: Sequence[int]) -> set[int]:
    """Return the nodes that are kept, or read by stages other than those of these numbers."""
    inside = set(numbers)
    read = [i for n, stage in enumerate(plan.stages) if n not in inside for i in graph.read_by(stage)]
    return {*plan.outputs, *read}


def tiles_of_members(sharding: Sharding, shape: tuple[int, ...]) -> dict[int, Box] | None:
    """Return the tile of each member; None if some have several."""
    if sharding.n_tiles > sharding.mesh.n_members or sharding.unreduced:
        return None
    edges = sharding.boundaries(shape)
    found: dict[int, Box] = {}
    for tile in sharding.tiles():
        member = sharding.member(tile)
        if member in found:
            return None
        found[member] = tile_box(edges, tile)
    return found


# ------------------------------------------------------------------------------------------------------ decisions


def chained(plan: Plan, graph: Graph, mesh: Mesh, limits: Limits, rates: Rates) -> Plan:
    """Return the plan with its halo stages in chains, where fewer exchanges gain more than is computed twice."""
    if not any(_is_shifted(stage, graph) for stage in plan.stages):
        return plan
    problem = PartitionProblem(graph, mesh, limits, rates, plan.stages)
    resolver = problem.resolver({})
    links: list[HaloStage | None] = []
    for facts, stage in zip(problem.facts, plan.stages, strict=True):
        readings = resolver.typed(facts.readings)
        sharding = resolver.step(stage, facts.loops, readings)
        is_plain = (
            stage.kind == "program"
            and not stage.combines
            and not stage.cut.waves
            and sharding.mesh.n_members == mesh.size
            and not redistributes(stage, graph.nodes)  # has a schedule of its own
        )
        links.append(halo_stage(stage, readings, graph) if is_plain else None)
    stages = list(plan.stages)
    chain = 0
    for numbers in _runs(links):
        for group in _groups(numbers, links, plan, resolver.lies, problem):
            for number in group:
                stages[number] = replace(stages[number], chain=chain)
            chain += 1
    return plan if not chain else replace(plan, stages=tuple(stages))


def _is_shifted(stage: Stage, graph: Graph) -> bool:
    """Return whether a stage reads through a view."""
    return stage.kind == "program" and any(
        graph.nodes[k].op.kind == "get" for access in stage.reads for k in access.path
    )


def _runs(links: Sequence[HaloStage | None]) -> Iterator[list[int]]:
    """Yield the numbers of stages that follow each other and may be in one chain."""
    for linked, numbers in groupby(range(len(links)), lambda number: links[number] is not None):
        run = list(numbers)
        if linked and len(run) > 1:
            yield run


def _groups(
    numbers: Sequence[int],
    links: Sequence[HaloStage | None],
    plan: Plan,
    lies: Mapping[int, Sharding | None],
    problem: PartitionProblem,
) -> list[Sequence[int]]:
    """Return the chains of a run of stages: as long as makes the run fastest."""
    least: tuple[float, list[Sequence[int]]] = (float("inf"), [])
    n_groups = len(numbers)
    while True:
        edges = boundaries(len(numbers), n_groups)
        groups = [numbers[a:b] for a, b in pairwise(edges)]
        if len(groups[0]) > DEEPEST:
            return least[1]
        seconds = 0.0
        for group in groups:
            found = _seconds(group, links, plan, lies, problem)
            if found is None:
                return least[1]
            seconds += found
        if seconds < least[0]:
            least = seconds, [group for group in groups if len(group) > 1]
        if n_groups == 1:
            return least[1]
        n_groups = -(-n_groups // 2)


def _seconds(
    numbers: Sequence[int],
    links: Sequence[HaloStage | None],
    plan: Plan,
    lies: Mapping[int, Sharding | None],
    problem: PartitionProblem,
) -> float | None:
    """Return what some stages take as one chain, on the member for which it is most; None if that is not possible."""
    graph, rates = problem.graph, problem.costs.rates
    chain = [link for number in numbers if (link := links[number]) is not None]
    made = {i for link in chain for i in link.made}
    tiles: dict[int, dict[int, Box]] = {}
    for i in {*made, *[node for link in chain for node, _ in link.reads], *[link.base for link in chain]} - {-1}:
        lying = lies.get(i)
        found = None if lying is None else tiles_of_members(lying, graph.nodes[i].shape)
        if found is not None:
            tiles[i] = found
        elif lying is not None or i in made:
            return None  # of a member several tiles, which would each grow
    if len({frozenset(tiles[i]) for i in made}) > 1:
        return None  # who has a tile of one has a tile of all
    outside = made & needed_outside(plan, graph, numbers)
    members = range(0, problem.mesh.size, -(-problem.mesh.size // MOST_MEMBERS))
    needs = needs_of_members(chain, tiles, outside, members, MOST_WORK)
    if needs is None:
        return None
    most = 0.0
    for member, (boxes, need) in needs.items():
        seconds = 0.0
        for number, box in zip(numbers, boxes, strict=True):
            facts, n = problem.facts[number], 0 if box is None else size(box)
            seconds += float(rates.flop_seconds(facts.kernel, n * facts.flops, facts.itemsize))
        arriving = sum(
            [
                (size(box) - _held(box, tiles[node].get(member))) * graph.nodes[node].dtype.itemsize
                for node, box in need.items()
                if node in tiles and node not in made
            ]
        )
        if arriving and rates.bandwidth:
            seconds += rates.exchange + arriving / rates.bandwidth
        most = max(most, seconds)
    return most


def needs_of_members(
    chain: Sequence[HaloStage],
    tiles: Mapping[int, Mapping[int, Box]],
    outside: Collection[int],
    members: Iterable[int],
    most_work: float,
) -> dict[int, Needs] | None:
    """Return what members that have tiles of nodes of a chain compute and need, as `needed_boxes`; None if one of them
    would compute more than so many times its own elements.

    Parameters
    ----------
    tiles
        By node, and by member, its tile.
    outside
        Nodes that are kept, or read after the chain.
    """
    found = {}
    for member in members:
        wanted = {i: tiles[i][member] for i in outside if member in tiles[i] and all(tiles[i][member])}
        if not wanted:
            continue
        boxes, need = needed_boxes(chain, wanted)
        if sum([size(box) for box in boxes if box is not None]) > most_work * _own_elements(chain, tiles, member):
            return None
        found[member] = boxes, need
    return found


def _own_elements(chain: Sequence[HaloStage], tiles: Mapping[int, Mapping[int, Box]], member: int) -> int:
    """Return the elements that a member computes of its own tiles."""
    total = 0
    for link in chain:
        found = [tiles[i][member] for i in link.stored if member in tiles[i] and all(tiles[i][member])]
        if link.written >= 0 and member in tiles[link.written]:
            assert link.lens is not None
            inside = link.lens.view_box(tiles[link.written][member])
            found += [] if inside is None else [inside]
        total += size(_hull(found)) if found else 0
    return total


def _held(box: Box, tile: Box | None) -> int:
    """Return how many elements of a box lie in the tile that a member has, if it has one."""
    common = None if tile is None else intersect_boxes(box, tile)
    return 0 if common is None else size(common)
