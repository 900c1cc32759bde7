"""Plans on places: what the cuts of all stages mean for the nodes at hand, what they cost, and how they are said.

A plan says cuts so that they hold for other extents too (`planner.plan`); a search compares types.
`PartitionProblem.place` goes from the one to the other, `PartitionProblem.said` back.

All that one member needs of a tile of another member travels in one piece, whichever stages need it (`lower.route`): a
second reader of the same elements is sent nothing (`Received`).

Redistributions cost what their steps before the last make and move (`redistribution_steps`). On a cluster one exchange
moves what members need and do not hold, as any operand does that is read (`CostModel.read_seconds`). Where the
synthesizer takes several collectives instead, each of them makes tiles, and they move more than that in all. In one
process tiles are put together from views of blocks, and nothing moves.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from distarray.planner.graph import Graph
from distarray.planner.loops import Loops
from distarray.planner.partition.box_traffic import Boxes, View, needed
from distarray.planner.partition.facts import StageFacts, facts_of
from distarray.planner.partition.stage_costs import CostModel, StageCost
from distarray.planner.plan import Cut, Followed, Limits, Parts, Pinned, Stage, Whole, Written
from distarray.planner.propagation import reading_order
from distarray.planner.rates import Rates, Seconds
from distarray.planner.redistributing import movements, n_exchanges, redistributed, redistributes, wishes
from distarray.planner.redistribution.transfers import Movement, traffic
from distarray.planner.shardings import Resolver, follow
from distarray.sharding.mesh import Mesh
from distarray.sharding.sharding import Sharding


def redistribution_steps(
    facts: StageFacts, graph: Graph, source: Sharding, target: Sharding, costs: CostModel
) -> StageCost | None:
    """Return what a stage moves and makes on the way to its result; None if that is what any reader of its operand
    moves.

    Parameters
    ----------
    source
        Type of the one array that it reads.
    target
        Of its result.
    """
    stage, nodes = facts.stage, graph.nodes
    if not redistributes(stage, nodes):
        return None
    (r,) = facts.readings
    itemsize = r.dtype.itemsize
    team = nodes[r.node].env.team
    has_messages = team is not None and team.client is not None
    mode = wishes(stage, nodes).mode
    plan = redistributed(r.shape, source, target, itemsize, mode, has_messages=has_messages, rates=costs.rates)
    if plan is None or n_exchanges(plan) < 2:
        return None if has_messages else StageCost()
    seconds, nbytes = Seconds(), 0
    steps = movements(r.shape, source, target, plan)
    for movement in steps:
        is_last = movement is steps[-1]
        mesh = target.mesh if is_last else source.mesh
        if has_messages:
            _, received = traffic(movement, mesh.member, source.mesh.member)
            elements = np.array([received[m] for m in range(costs.n_members)], float)
            seconds += costs.transfer_seconds(elements, itemsize, _most_messages(movement, mesh, source.mesh))
            nbytes += received.total() * itemsize
        if not is_last:  # the tiles of the last step are those of the stage
            seconds += _made_seconds(movement, mesh, itemsize, costs)
    return StageCost(seconds, nbytes)


def _most_messages(movement: Movement, made: Mesh, read: Mesh) -> int:
    """Return how many members send one something in a step, at most."""
    senders: defaultdict[int, set[int]] = defaultdict(set)
    for assembly in movement.assemblies:
        member = made.member(assembly.device)
        senders[member].update({read.member(s.device) for s in assembly.sources} - {member})
    return max(map(len, senders.values()), default=0)


def _made_seconds(movement: Movement, mesh: Mesh, itemsize: int, costs: CostModel) -> Seconds:
    """Return the seconds in which the busiest member puts the tiles of a step together, and of their tasks."""
    made: Counter[int] = Counter()
    for assembly in movement.assemblies:
        made[mesh.member(assembly.device)] += movement.made.n_elements(assembly.tile)
    each = costs.rates.flop_seconds("map", [made[m] for m in range(costs.n_members)], itemsize)
    return costs.rates.busy_seconds("map", each) + Seconds(0.0, len(movement.assemblies) * costs.rates.task)


Numbers = Any  # arrays of numpy: its generic array types say no more


class Received:
    """A Received knows which elements of each node each member was sent so far: they come once."""

    def __init__(self) -> None:
        #: By node: the lower and upper bounds of boxes (boxes, members, axes), with room for more, and their number.
        self._boxes: dict[int, tuple[Numbers, int]] = {}

    def less(self, node: int, view: View, loops: Loops, held: Boxes, boxes: Boxes, elements: Numbers) -> Numbers:
        """Return the elements (members) of a node that a stage is sent and was not sent before, and note them.

        Parameters
        ----------
        held, boxes
            What members have of the node, and work on: for one cut each.
        """
        again = np.zeros(elements.shape)
        for part in boxes.by_round:
            again += self._again(node, source_boxes(view, loops, part), held)
        return np.maximum(elements - again, 0.0)

    def _again(self, node: int, box: tuple[Numbers, Numbers], held: Boxes) -> Numbers:
        """Return the elements of a box of each member that it was sent before, and note the box."""
        lo, hi = box
        known, n = self._boxes.get(node, (np.empty((2, 1, *lo.shape), np.int64), 0))
        first, last = np.maximum(lo, known[0, :n]), np.minimum(hi, known[1, :n])
        again = _volume(first, last)
        for part in held.by_round:
            again -= _volume(np.maximum(first, part.lo[0]), np.minimum(last, part.hi[0]))
        if n == known.shape[1]:
            known = np.concatenate([known, np.empty_like(known)], axis=1)
        known[:, n] = lo, hi
        self._boxes[node] = known, n + 1
        return again.max(axis=0, initial=0.0)


def _volume(lo: Numbers, hi: Numbers) -> Numbers:
    return np.prod(np.clip(hi - lo, 0, None), axis=-1, dtype=float)


def source_boxes(view: View, loops: Loops, boxes: Boxes) -> tuple[Numbers, Numbers]:
    """Return the hull of what each member needs, in the source: arrays (members, axes of the source)."""
    intervals = needed(view, loops, boxes)
    n_members = boxes.n_tiles.shape[-1]
    lo = np.zeros((n_members, len(view.terms)), np.int64)
    hi = np.ones_like(lo)
    for b, (axis, start, step) in enumerate(view.terms):
        if axis < 0:
            lo[:, b], hi[:, b] = start, start + 1
            continue
        unit = view.scale[axis]
        a, z = intervals[axis][0][0] // unit, -(-intervals[axis][1][0] // unit)
        first, last = start + step * a, start + step * (z - 1)
        lo[:, b] = np.minimum(first, last)
        hi[:, b] = np.where(z > a, np.maximum(first, last) + 1, lo[:, b])
    hi[boxes.n_tiles[0] == 0] = lo[boxes.n_tiles[0] == 0]
    return lo, hi


@dataclass(frozen=True, slots=True, eq=False)
class ResolvedStages:
    """ResolvedStages are stages with their cuts, resolved for the nodes at hand, and what they cost.

    Parameters
    ----------
    shardings
        Types of the loops, by stage.
    inputs
        How the inputs lie that may lie in any way.
    costs
        By stage.
    seconds
        Predicted, of all stages: one after the other, but for those that different members compute (`_until_done`).
    """

    stages: tuple[Stage, ...]
    shardings: tuple[Sharding, ...]
    inputs: Mapping[int, Sharding]
    costs: tuple[StageCost, ...]
    seconds: float

    @property
    def nbytes(self) -> int:
        """Return the bytes that are sent between members."""
        return sum([c.nbytes for c in self.costs])

    @property
    def price(self) -> float:
        """Return what plans are compared by: seconds, and more where members have not the memory."""
        return self.seconds + sum([c.penalty for c in self.costs])


class PartitionProblem:
    """A PartitionProblem is a graph whose stages are to be cut, with what is known of each and the cost model.

    It turns the cuts of a plan into shardings and costs (`place`), and shardings back into cuts (`said`).

    Parameters
    ----------
    stages
        Of any plan of it.
    inputs
        Host arrays that are about to be cut, and how they are if nothing speaks for another cut.
    """

    def __init__(
        self,
        graph: Graph,
        mesh: Mesh,
        limits: Limits,
        rates: Rates,
        stages: Sequence[Stage],
        inputs: Mapping[int, Sharding] = MappingProxyType({}),
    ) -> None:
        self.graph = graph
        self.mesh = mesh
        self.limits = limits
        self.inputs = inputs
        self.outside = {i: lying for i, lying in graph.lies().items() if i not in inputs}
        self.facts = facts_of(stages, graph, self.outside)
        self.costs = CostModel(mesh.size, rates, limits)

    def resolver(self, inputs: Mapping[int, Sharding]) -> Resolver:
        """Return where everything lies before the first stage, if inputs lie so that may lie in any way."""
        return Resolver(self.graph, self.mesh, {**self.outside, **inputs})

    def place(self, stages: Sequence[Stage], inputs: Mapping[int, Sharding] | None = None) -> ResolvedStages:
        """Return the types that the cuts of stages mean, and their costs."""
        inputs = self.inputs if inputs is None else inputs
        resolver = self.resolver(inputs)
        shardings = [resolver.step(s, f.loops, f.readings) for f, s in zip(self.facts, stages, strict=True)]
        costs = tuple(self._stage_costs(shardings, resolver.lies))
        return ResolvedStages(tuple(stages), tuple(shardings), inputs, costs, self._until_done(shardings, costs))

    def said(
        self, stages: Sequence[Stage], wanted: Mapping[int, tuple[Cut | None, Sharding]], inputs: Mapping[int, Sharding]
    ) -> tuple[Stage, ...]:
        """Return the stages with cuts that mean the wanted types.

        Parameters
        ----------
        stages
            With cuts that are kept where they mean just that.
        wanted
            By number of the stage the type of its loops, and a cut that means it if there is a regular one.
        """
        resolver = self.resolver(inputs)
        found = []
        for facts, stage in zip(self.facts, stages, strict=True):
            regular, sharding = wanted[facts.number]
            free = not stage.family.is_item and not isinstance(stage.cut.rule, Pinned | Written)
            readings = resolver.typed(facts.readings)
            if free and not _is_same(resolver.resolved(stage, facts.loops, readings), sharding):
                stage = replace(stage, cut=_said(facts, readings, regular, sharding, self.mesh))
            resolver.step(stage, facts.loops, readings)
            found.append(stage)
        return tuple(found)

    def _stage_costs(self, shardings: Sequence[Sharding], lies: Mapping[int, Sharding | None]) -> Iterator[StageCost]:
        """Yield what each stage costs; what a member is sent for one stage it has for the others."""
        received = Received()
        for facts, sharding in zip(self.facts, shardings, strict=True):
            if facts.stage.family.is_item:
                yield StageCost()
                continue
            boxes = self.costs.boxes(facts, [sharding])
            own = self.costs.own_seconds(facts, [sharding], boxes)
            seconds = Seconds(float(own.own[0]), float(own.shared[0]))
            nbytes = self.costs.combined_bytes(facts, sharding)
            for p, r in enumerate(facts.readings):
                view, lying = facts.views[p], lies.get(r.node)
                if view is None or lying is None:
                    continue
                steps = redistribution_steps(facts, self.graph, lying, sharding, self.costs)
                if steps is not None:
                    seconds, nbytes = seconds + steps.seconds, nbytes + steps.nbytes
                    continue
                held = self.costs.held(facts, p, [lying])
                elements = self.costs.elements_moved(facts, p, [lying], boxes)[0, 0]
                elements = received.less(r.node, view, facts.loops, held, boxes, elements)
                messages = self.costs.most_messages(facts, p, [lying], boxes)[0, 0]
                seconds += self.costs.transfer_seconds(elements, r.dtype.itemsize, messages)
                nbytes += round(float(elements.sum())) * r.dtype.itemsize
            yield StageCost(seconds, nbytes, float(self.costs.penalty(facts, boxes)[0]))

    def _until_done(self, shardings: Sequence[Sharding], costs: Sequence[StageCost]) -> float:
        """Return the seconds until the last stage is done.

        A stage begins when what it reads is there and its members have done what comes before. A part of the members
        is what some uneven cuts keep to (`branchings`); the stages of all others wait for everybody.
        """
        total = float(sum([c.seconds.total for c in costs]))
        if all(s.is_regular for s in shardings):
            return total
        free = np.zeros(self.costs.n_members)
        done: dict[int, float] = {}
        for facts, sharding, cost in zip(self.facts, shardings, costs, strict=True):
            members: Any = slice(None)
            if not sharding.is_regular and not facts.stage.family.is_item:
                members = np.flatnonzero(self.costs.boxes(facts, [sharding]).n_tiles[0])
            started = max([free[members].max(initial=0.0), *[done.get(r.node, 0.0) for r in facts.readings]])
            free[members] = done_now = started + cost.seconds.own
            done.update(dict.fromkeys(facts.stage.nodes, done_now))
        return float(free.max()) + float(sum([c.seconds.shared for c in costs]))


def _is_same(a: Sharding, b: Sharding) -> bool:
    return a.mesh == b.mesh and a.axes == b.axes and a.bounds == b.bounds


def _said(facts: StageFacts, readings: Sequence[Any], regular: Cut | None, wanted: Sharding, mesh: Mesh) -> Cut:
    """Return a cut that means the wanted type for these operands, and that holds for other extents too."""
    order = tuple(reading_order(facts.stage, readings))
    if wanted.n_tiles == 1:
        return Cut(Whole())
    for first in (None, *order):
        tried = order if first is None else (first, *[p for p in order if p != first])
        if tried and _is_same(follow(facts.loops, readings, tried, mesh), wanted):
            return Cut(Followed(tried))
    if regular is None:
        return Cut(Parts(wanted.parts, wanted.axes, wanted.mesh.without_owners(), order))
    assert isinstance(regular.rule, Parts)
    return replace(regular, rule=replace(regular.rule, order=order))
