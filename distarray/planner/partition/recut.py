"""What redistributions cost beside their last tiles: those of the steps before, and what each step moves.

On a cluster one exchange moves what members need and do not hold, as any operand does that is read
(`CostModel.read_seconds`). Where the synthesizer takes several collectives instead, each of them makes tiles, and they
move more than that in all. In one process tiles are put together from views of blocks, and nothing moves.
"""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np

from distarray.planner.graph import Graph
from distarray.planner.partition.facts import StageFacts
from distarray.planner.partition.stage_costs import CostModel, StageCost
from distarray.planner.rates import Seconds
from distarray.planner.redistributing import movements, n_exchanges, redistributed, redistributes, wishes
from distarray.planner.redistribution.transfers import Movement, traffic
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
