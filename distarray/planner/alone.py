"""Plans for one member: what is small is computed there before the others would have heard of it.

Members that compute together wait for each other, a few milliseconds at each exchange. A program of one member waits
for nobody: it is sent what it reads of others, once, and runs. So a loop over small arrays takes about as long on a
cluster as in one process. `alone` decides it by predicted seconds.
"""

from __future__ import annotations

from dataclasses import replace

from distarray.planner.graph import Graph
from distarray.planner.partition.resolved import PartitionProblem, ResolvedStages
from distarray.planner.plan import ALONE, Cut, Limits, Pinned, Plan, Stage, Whole
from distarray.planner.rates import Rates
from distarray.sharding.mesh import Mesh

#: Arrays that are larger than so many blocks are never brought together at one member.
MOST_BLOCKS = 16
#: A plan for one member must be so much faster: what it keeps lies at that one, and later work begins there.
GAIN = 1.25


def alone(plan: Plan, graph: Graph, mesh: Mesh, limits: Limits, rates: Rates) -> Plan:
    """Return the plan with all its stages at one member, if all is small and that is faster.

    Parameters
    ----------
    plan
        Of a team on a cluster.
    limits
        Arrays of up to so many blocks are small (`MOST_BLOCKS`), and those that are there at a time have the bytes of a
        tile at most.
    """
    if not (is_small(plan, graph, limits) and _is_free(plan, graph)):
        return plan
    stages = tuple([s if s.family.is_item or s.written >= 0 else replace(s, cut=Cut(Whole())) for s in plan.stages])
    together = _placed(graph, mesh, limits, rates, plan.stages, mesh.size)
    waits = n_exchanges(graph, together)
    if not waits:
        return plan
    single = _placed(graph, mesh, limits, rates, stages, 1)
    seconds = [p.seconds + rates.exchange * n for p, n in ((together, waits), (single, n_exchanges(graph, single)))]
    if GAIN * seconds[1] > seconds[0]:
        return plan
    others = (*plan.alternatives, f"{plan.planner}, all members: {seconds[0] * 1e3:.3g} ms predicted")
    stages = tuple([replace(s, chain=-1) for s in stages])
    # Final: what a search could gain over it is little, as all is small.
    return replace(plan, stages=stages, planner=ALONE, alternatives=others, is_provisional=False)


def is_small(plan: Plan, graph: Graph, limits: Limits) -> bool:
    """Return whether one member may have all that a plan reads and makes; other extents may have the same plan."""
    largest = max([node.nbytes for node in graph.nodes])
    return largest <= MOST_BLOCKS * limits.block and _most_nbytes(plan, graph) <= limits.tile


def _is_free(plan: Plan, graph: Graph) -> bool:
    """Return whether nobody has said where anything lies that a plan makes."""
    nodes = graph.nodes
    if any(isinstance(node.dtype, tuple) for node in nodes):
        return False
    for stage in plan.stages:
        if isinstance(stage.cut.rule, Pinned) or stage.cut.waves or stage.family.is_tiled or stage.kind == "windows":
            return False
        base = graph.base(stage.written)
        memo = None if base < 0 else nodes[base].memo
        if memo is not None and (memo.on_client or memo.sharding.n_tiles > 1):
            return False  # a version lies as the one before it
    return True


def _most_nbytes(plan: Plan, graph: Graph) -> int:
    """Return the most bytes that a member has if it runs all stages in their order."""
    last = dict.fromkeys(plan.outputs, len(plan.stages))
    for number, stage in enumerate(plan.stages):
        for i in graph.read_by(stage):
            last[i] = max(last.get(i, 0), number)
    found = most = sum([graph.nodes[i].nbytes for i in last if graph.nodes[i].memo is not None])
    for number, stage in enumerate(plan.stages):
        found += sum([graph.nodes[i].nbytes for i in stage.nodes if i in last])
        most = max(most, found)
        found -= sum([graph.nodes[i].nbytes for i in {*graph.read_by(stage)} if last[i] == number])
    return most


def _placed(
    graph: Graph, mesh: Mesh, limits: Limits, rates: Rates, stages: tuple[Stage, ...], n_busy: int
) -> ResolvedStages:
    """Return stages in their places; each of the busy members runs its own steps."""
    own = replace(rates, task=rates.step / n_busy)
    return PartitionProblem(graph, mesh, limits, own, stages).place(stages)


def n_exchanges(graph: Graph, placed: ResolvedStages) -> int:
    """Return how often members wait for each other, one time after the other: those of a chain of halo stages once."""
    sends = [cost.nbytes > 0 for cost in placed.costs]
    chains = {stage.chain for stage, sent in zip(placed.stages, sends, strict=True) if sent and stage.chain >= 0}
    done: dict[int, int] = {}
    for stage, sent in zip(placed.stages, sends, strict=True):
        begun = max([done.get(i, 0) for i in graph.read_by(stage)], default=0)
        if stage.chain >= 0:
            sent = stage.chain in chains
            chains.discard(stage.chain)
        done.update(dict.fromkeys(stage.nodes, begun + sent))
    return max(done.values(), default=0)
