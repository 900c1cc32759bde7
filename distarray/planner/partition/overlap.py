"""Products that begin before all of their operands are there.

A tile of a product waits for everything that it reads. Cut into waves along the loop that is summed, where the operands
that arrive are cut, it waits for one block of each after the other: the first product runs while the next blocks are on
their way, blocks travel as they are, and no panel is put together of them. The price is adding up partial results, at
the member that makes them, and more tasks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import gcd

from distarray.planner.graph import Graph
from distarray.planner.loops import Reading
from distarray.planner.partition.facts import Facts
from distarray.planner.partition.placed import Planning, Walk
from distarray.planner.partition.stage_costs import Costs
from distarray.planner.plan import Plan
from distarray.planner.propagation import Limits
from distarray.planner.rates import Rates
from distarray.planner.shardings import with_waves
from distarray.sharding.mesh import Mesh
from distarray.sharding.sharding import Sharding

__all__ = ["overlapped"]


def overlapped(plan: Plan, graph: Graph, mesh: Mesh, limits: Limits, rates: Rates) -> Plan:
    """Return the plan with waves along summed loops where more of the transfers is hidden by them than they cost."""
    planning = Planning(graph, mesh, limits, rates, plan.stages)
    walk = Walk(planning, {})
    stages = []
    for facts, stage in zip(planning.facts, plan.stages, strict=True):
        if stage.family.is_contraction and not stage.cut.waves:
            waves = _waves(facts, walk.readings(facts), walk.resolved(facts, stage), planning.costs)
            stage = replace(stage, cut=replace(stage.cut, waves=waves))
        walk.step(facts, stage)
        stages.append(stage)
    return plan if tuple(stages) == plan.stages else replace(plan, stages=tuple(stages))


def _waves(facts: Facts, readings: Sequence[Reading], cut: Sharding, costs: Costs) -> tuple[tuple[int, int], ...]:
    """Return the best waves for a product: none, or those of one loop."""
    boxes = costs.boxes(facts, [cut])
    arriving, sending = [], 0.0
    for p, r in enumerate(readings):
        if facts.views[p] is not None and r.sharding is not None:
            seconds = float(costs.read_seconds(facts, p, [r.sharding], boxes)[0, 0])
            if seconds:
                arriving.append(r)
                sending += seconds
    computing = _own_seconds(facts, cut, costs)
    most = 0.0
    best: tuple[tuple[int, int], ...] = ()
    for loop in facts.loops.reduced if arriving else ():
        for n in _divisors([_n_blocks(r, loop, cut, facts) for r in arriving]):
            waves = ((loop, n),)
            longer = _own_seconds(facts, with_waves(cut, facts.loops.extents, waves), costs) - computing
            gain = (1 - 1 / n) * min(sending, computing) - longer
            if gain > most:
                most, best = gain, waves
    return best


def _own_seconds(facts: Facts, cut: Sharding, costs: Costs) -> float:
    return float(costs.own_seconds(facts, [cut], costs.boxes(facts, [cut])).total[0])


def _n_blocks(r: Reading, loop: int, cut: Sharding, facts: Facts) -> int:
    """Into how many blocks an operand is cut within each tile of a loop; 1 if not into whole ones."""
    assert r.sharding is not None
    for b, (axis, start, step) in enumerate(r.lens.terms):
        if axis is not None and r.loops[axis] == loop:
            n, rest = divmod(r.sharding.parts[b], cut.parts[loop])
            is_alike = (
                r.sharding.bounds[b] is None and (start, step) == (0, 1) and r.shape[b] == facts.loops.extents[loop]
            )
            return n if is_alike and not rest else 1
    return 1


def _divisors(numbers: Sequence[int]) -> Iterator[int]:
    """Return numbers above 1 that divide all of these."""
    most = gcd(*numbers)
    return (n for n in range(2, most + 1) if most % n == 0)
