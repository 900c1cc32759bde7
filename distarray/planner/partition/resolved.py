"""Plans on places: what the cuts of all stages mean for the nodes at hand, what they cost, and how they are said.

A plan says cuts so that they hold for other extents too (`planner.plan`); a search compares types.
`PartitionProblem.place` goes from the one to the other, `PartitionProblem.said` back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from distarray.planner.graph import Graph
from distarray.planner.partition.facts import StageFacts, facts_of
from distarray.planner.partition.received import Received
from distarray.planner.partition.recut import redistribution_steps
from distarray.planner.partition.stage_costs import CostModel, StageCost
from distarray.planner.plan import Cut, Followed, Limits, Parts, Pinned, Stage, Whole, Written
from distarray.planner.propagation import reading_order
from distarray.planner.rates import Rates, Seconds
from distarray.planner.shardings import Resolver, follow
from distarray.sharding.mesh import Mesh
from distarray.sharding.sharding import Sharding


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
