"""Plans on places: what the cuts of all stages mean for the nodes at hand, what they cost, and how they are said.

A plan says cuts so that they hold for other extents too (`planner.plan`); a search compares types. `Planning.place`
goes from the one to the other, `Planning.said` back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from distarray.planner.graph import Graph
from distarray.planner.loops import Reading, base_reading
from distarray.planner.partition.facts import Facts, facts_of, is_made_on_the_spot, lies_outside
from distarray.planner.partition.received import Received
from distarray.planner.partition.recut import redistribution_steps
from distarray.planner.partition.stage_costs import Costs, StageCost
from distarray.planner.plan import Cut, Followed, Limits, Parts, Pinned, Stage, Whole, Written
from distarray.planner.propagation import reading_order
from distarray.planner.rates import Rates, Seconds
from distarray.planner.shardings import follow, resolve_cut, result_shardings
from distarray.sharding.mesh import Mesh
from distarray.sharding.sharding import Sharding


@dataclass(frozen=True, slots=True, eq=False)
class PlacedStages:
    """PlacedStages are stages with their cuts, resolved for the nodes at hand, and what they cost.

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


class Planning:
    """A Planning holds a graph with the facts of its stages; it turns cuts into shardings and costs (`place`), and back
    (`said`).

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
        self.outside = {i: lying for i, lying in lies_outside(graph).items() if i not in inputs}
        self.facts = facts_of(stages, graph, self.outside)
        self.costs = Costs(mesh.size, rates, limits)

    def place(self, stages: Sequence[Stage], inputs: Mapping[int, Sharding] | None = None) -> PlacedStages:
        """Return the types that the cuts of stages mean, and their costs."""
        walk = Walk(self, self.inputs if inputs is None else inputs)
        shardings = [walk.step(facts, stage) for facts, stage in zip(self.facts, stages, strict=True)]
        costs = tuple(self._stage_costs(shardings, walk.lies))
        return PlacedStages(tuple(stages), tuple(shardings), walk.inputs, costs, self._until_done(shardings, costs))

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
        walk = Walk(self, inputs)
        found = []
        for facts, stage in zip(self.facts, stages, strict=True):
            regular, sharding = wanted[facts.number]
            free = not stage.family.is_item and not isinstance(stage.cut.rule, Pinned | Written)
            if free and not _is_same(walk.resolved(facts, stage), sharding):
                stage = replace(stage, cut=_said(facts, walk.readings(facts), regular, sharding, self.mesh))
            walk.step(facts, stage)
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
                seconds += self.costs.transfer_seconds(elements, facts.itemsizes[p], messages)
                nbytes += round(float(elements.sum())) * facts.itemsizes[p]
            yield StageCost(seconds, nbytes, float(self.costs.penalty(facts, boxes)[0]))

    def _until_done(self, shardings: Sequence[Sharding], costs: Sequence[StageCost]) -> float:
        """Return the seconds until the last stage is done.

        A stage begins when what it reads is there and its members have done what comes before. A part of the members
        is what some uneven cuts keep to (`branches`); the stages of all others wait for everybody.
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


class Walk:
    """A Walk goes over stages in their order, and knows where everything lies that was made so far."""

    def __init__(self, planning: Planning, inputs: Mapping[int, Sharding]) -> None:
        self._planning = planning
        self.inputs = inputs
        self.lies: dict[int, Sharding | None] = {**planning.outside, **inputs}
        self._several: dict[int, tuple[Sharding, ...]] = {}

    def readings(self, facts: Facts) -> list[Reading]:
        """Return the operands of a stage with the types that they have."""
        graph = self._planning.graph

        def lying(i: int) -> Sharding | None:
            on_the_spot = is_made_on_the_spot(graph, i, is_stored=i in self.lies)
            return graph.nodes[i].pin if on_the_spot else self.lies.get(i)

        return [replace(r, sharding=lying(r.node)) for r in facts.readings]

    def resolved(self, facts: Facts, stage: Stage) -> Sharding:
        """Return what the cut of a stage means."""
        planning = self._planning
        base = base_reading(stage, planning.graph, self.lies.__getitem__)
        return resolve_cut(stage.cut, facts.loops, self.readings(facts), planning.graph.nodes, base, planning.mesh)

    def step(self, facts: Facts, stage: Stage) -> Sharding:
        """Return the type of the loops of a stage; what it makes lies from now on."""
        graph = self._planning.graph
        if stage.family.is_item:
            which: int = graph.nodes[stage.nodes[0]].params.number
            found: Sharding = self._several[stage.reads[0].node][which]
            self.lies[stage.nodes[0]] = found
            return found
        sharding = self.resolved(facts, stage)
        made = result_shardings(stage, sharding, facts.loops, graph, self.lies, self._planning.mesh)
        for node, types in made.items():
            self.lies[node] = types[0]
            self._several[node] = types
        return sharding


def _is_same(a: Sharding, b: Sharding) -> bool:
    return a.mesh == b.mesh and a.axes == b.axes and a.bounds == b.bounds


def _said(facts: Facts, readings: Sequence[Any], regular: Cut | None, wanted: Sharding, mesh: Mesh) -> Cut:
    """Return a cut that means the wanted type for these operands, and that holds for other extents too."""
    order = tuple(reading_order(facts.stage, readings))
    if wanted.n_tiles == 1:
        return Cut(Whole())
    for first in (None, *order):
        tried = order if first is None else (first, *[p for p in order if p != first])
        if tried and _is_same(follow(facts.loops, readings, tried, mesh), wanted):
            return Cut(Followed(tried))
    if regular is None:
        names = tuple(zip(wanted.mesh.names, wanted.mesh.sizes, strict=True))
        return Cut(Parts(wanted.parts, wanted.axes, names, order))
    assert isinstance(regular.rule, Parts)
    return replace(regular, rule=replace(regular.rule, order=order))
