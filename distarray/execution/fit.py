"""Plans that fit: what a plan would hold on a member is counted, and where that is too much it is made to stream.

Nothing is estimated: a plan is lowered, and `liveness` walks through its tasks. So this costs a lowering for each plan
that is tried, and only graphs that might hold more than the limit come this far.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import ceil

from distarray.execution.evaluate import is_cluster
from distarray.execution.liveness import liveness
from distarray.execution.lower import lowered_once
from distarray.execution.memory import n_tasks_at_once
from distarray.execution.retention import result_nbytes
from distarray.expr.expr import Environment
from distarray.planner.graph import Graph
from distarray.planner.plan import Plan
from distarray.planner.propagation import Limits
from distarray.planner.rates import current_rates
from distarray.sharding.mesh import Mesh

__all__ = ["fitted"]

#: Streams that are tried one after the other, each on top of those before it.
MAX_STREAMS = 4
#: Loops that are tried for each.
MAX_HEADS = 6
#: Arrays are streamed of which a member holds more than this part of the limit.
LARGE = 16
#: A wave of an array is at most this part of the limit to begin with, and so much less at last.
WAVES_PER_LIMIT = 8
MAX_FINER = 8
#: A stream must lower the peak by this share of it, and one of more waves than it takes by this share of the limit.
WORTHWHILE = 0.05
#: Tasks of all plans that are tried: some tens of microseconds each.
MAX_TASKS = 10_000


def fitted(plan: Plan, graph: Graph, env: Environment, limits: Limits) -> Plan:
    """The plan, or one like it with streams (`planner.streams`), so that no member holds more than its limit.

    Parameters
    ----------
    plan, graph
        A plan for this graph.
    limits
        What members may hold; what lies there already counts.

    Returns
    -------
    Of the plans that were tried the first that fits, else the one that holds least: then nothing is known that does.
    """
    if sum(map(result_nbytes, graph.nodes)) <= limits.member:  # even all of it at one member
        return plan
    trials = _Trials(graph, env)
    peak = before = trials.peak(plan)
    for _ in range(MAX_STREAMS):
        if peak <= limits.member:
            break
        found = _best(_streamed(plan, trials, limits), limits.member)
        if found is None or found[0] > (1 - WORTHWHILE) * peak:
            break
        peak, plan = found
    if peak == before:
        return plan
    text = f"no streams: {before / 1e6:.3g} MB held by a member"
    return replace(plan, alternatives=(*plan.alternatives, text))


def _best(tried: Iterator[tuple[int, Plan]], limit: int) -> tuple[int, Plan] | None:
    """The first of plans that fits; else the one that holds least, if there is any."""
    best: tuple[int, Plan] | None = None
    for peak, plan in tried:
        if best is None or peak < best[0]:
            best = peak, plan
        if peak <= limit:
            break
    return best


class _Trials:
    """Plans for one graph that are lowered to see what they hold."""

    def __init__(self, graph: Graph, env: Environment) -> None:
        self.graph = graph
        self.env = env
        self.n_tasks = 0

    def peak(self, plan: Plan) -> int:
        """Most bytes of blocks on a member."""
        lowered = lowered_once(plan, self.graph, self.env)
        self.n_tasks += sum(lowered.counts.values())
        env = self.env
        held = liveness(lowered, self.graph, is_cluster=is_cluster(env), n_threads=n_tasks_at_once(env))
        return max(held.peak.values(), default=0)


def _streamed(plan: Plan, trials: _Trials, limits: Limits) -> Iterator[tuple[int, Plan]]:
    """Plans with one stream more, and their peaks: for each loop in as many waves as gain."""
    # not loaded by those whose arrays are small
    from distarray.planner.partition.placed import Planning
    from distarray.planner.streams import Streams

    mesh = Mesh((), ()) if trials.env.team is None else trials.env.team.mesh
    planning = Planning(trials.graph, mesh, limits, current_rates(), plan.stages)
    streams = Streams(plan, planning, limits.member // LARGE)
    seen = {plan.stages}  # a stream may be found from several heads
    for head in streams.heads()[:MAX_HEADS]:
        n_waves = max(2, ceil(head.nbytes * WAVES_PER_LIMIT / limits.member))
        before: int | None = None
        for finer in range(MAX_FINER):
            tried = streams.streamed(head, n_waves << finer)
            if tried is None or tried.stages in seen or trials.n_tasks > MAX_TASKS:
                break
            seen.add(tried.stages)
            peak = trials.peak(tried)
            if before is not None and before - peak < WORTHWHILE * max(before, limits.member):
                break
            yield peak, tried
            before = peak
