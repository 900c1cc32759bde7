"""Plans of graphs: made or from the cache, searched for when they come again, kept to the memory of members."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from distarray import config
from distarray.caches import LRUCache
from distarray.expr import crossing
from distarray.expr.expr import Environment, Expr, Others
from distarray.lower.recipes import Unsent
from distarray.planner.cache import PLANS
from distarray.planner.graph import Graph, canonical
from distarray.planner.plan import ALONE, Limits, Plan
from distarray.planner.propagation import propagate
from distarray.planner.rates import current_rates
from distarray.runtime import counters
from distarray.runtime.budget import check_peak, excess_of, names_of, refuse
from distarray.runtime.bundles import holdings
from distarray.runtime.fit import fitted
from distarray.runtime.held import has_room, held_in, most_held, peaks_of, standing_of
from distarray.runtime.instantiate import instance_of
from distarray.runtime.known_rates import rates_for, rates_of
from distarray.runtime.member_runs import makes_little, programs_of
from distarray.runtime.memory import COPIES, is_limit_set, memory_limit
from distarray.runtime.retention import is_beyond_memory
from distarray.sharding.sharding import Sharding

if TYPE_CHECKING:
    from distarray.planner.partition.tiers import Effort

#: Runs of a provisional plan before a better one is searched for: the third run has it.
USES_BEFORE_SEARCH = 2
_USES: LRUCache[list[int]] = LRUCache()
#: A member that has more than this part of what it may have gets no work of others.
MOST_HELD = 0.25
#: Largest tile that the planner chooses by itself, as a part of the memory limit.
TILES_PER_LIMIT = 8


def limits_of(env: Environment) -> Limits:
    """Return what bounds the size of tiles in an environment."""
    limit = memory_limit(env)
    return Limits(env.block_nbytes, max(1, min(1 << 20, limit // 2), limit // TILES_PER_LIMIT), limit)


def context_of(env: Environment) -> tuple[Any, ...]:
    """Return what decides a plan beside its graph."""
    limits = limits_of(env)
    return (limits, config.get("planner"), config.get("objective"), config.get("overlap"), rates_for(env))


def found_plan(graph: Graph, env: Environment, *, is_kept: bool = True) -> Plan:
    """Return the plan of a graph: made now, or from the cache; searched for when the graph comes the third time.

    For `is_kept` see `fitted`.
    """

    def fitting(effort: Effort = "once") -> Plan:
        return fit_to_memory(_plan(graph, env, effort), graph, env, is_kept=is_kept)

    n_kept = config.get("plan-cache-size")
    key: Any = graph.key if is_kept else (graph.key, "passed on")
    plan = PLANS.get(key, fitting, n_kept)
    if plan.is_provisional and uses_of(graph)[0] >= USES_BEFORE_SEARCH:
        found = fitting("again")
        # One that is faster by prediction takes the place of one that fits only if it fits, too.
        plan = replace(plan, is_provisional=False) if found.above is not None and plan.above is None else found
        PLANS.put(key, plan, n_kept)
    if plan.planner == ALONE and not _may_be_alone(plan, graph, env):
        return PLANS.get((key, "all members"), fitting, n_kept)
    return plan


def fit_to_memory(plan: Plan, graph: Graph, env: Environment, *, is_kept: bool = True) -> Plan:
    """Return a plan, cut into more waves where it is counted to hold more than members may.

    Raises
    ------
    MemoryBudgetError
        If no number of waves fits.
    """
    if is_kept and any(is_beyond_memory(graph.nodes[i]) for i in graph.kept):
        return plan  # it is only looked at: see `check_held`
    limits = limits_of(env)
    if beside := _beside(graph, env):
        plan = replace(plan, beside=beside)
    with rates_of(env):
        plan = _chained(plan, graph, env, limits)
        if not env.is_cluster or (plan.planner == config.get("planner") == "propagation"):
            return fitted(plan, graph, env, limits, is_kept=is_kept)

        def other() -> Plan:
            # The plan that moves least may hold more than the one that follows the cuts that there are, or less.
            is_searched = plan.planner != "propagation"
            found = propagate(graph, env, limits) if is_searched else _plan(graph, env, "other")
            return replace(found, beside=beside)

        return fitted(plan, graph, env, limits, other, is_kept=is_kept)


def _beside(graph: Graph, env: Environment) -> int:
    """Return the bytes that lie on a member of a cluster beside the blocks of a graph: other arrays, and all copies."""
    if not env.is_cluster:
        return 0
    standing = standing_of(env)
    found = Counter(standing.held)
    for node in graph.nodes:
        memo = node.memo
        if memo is None or memo.on_client or isinstance(node.dtype, tuple):
            continue
        for member, nbytes, ref in holdings(node):
            spare = standing.copied_to(member, nbytes, memo.sharding, ref.number) if type(ref) is Unsent else None
            if not isinstance(ref, tuple):
                found[member] -= nbytes
            elif spare is not None:
                found[spare] += nbytes
    return max([0, *found.values()])


def _chained(plan: Plan, graph: Graph, env: Environment, limits: Limits) -> Plan:
    """Return the plan with fewer exchanges where that is faster on a cluster: halo stages in chains, or all at one
    member.
    """
    if not env.is_cluster or env.size == 1:
        return plan
    from distarray.planner.alone import alone  # not loaded by those who do without
    from distarray.planner.halos import chained

    rates = current_rates()
    plan = chained(plan, graph, env.mesh, limits, rates)
    is_auto = config.get("planner") == "auto" and config.get("objective") == "time"
    return alone(plan, graph, env.mesh, limits, rates) if is_auto and not _has_much(env) else plan


def _may_be_alone(plan: Plan, graph: Graph, env: Environment) -> bool:
    """Return whether a plan for one member may run for the nodes at hand."""
    from distarray.planner.alone import is_small

    return not _has_much(env) and is_small(plan, graph, limits_of(env))


def _has_much(env: Environment) -> bool:
    """Return whether the first member has so much that it is not to be filled further while others are empty."""
    return bool(held_in(env)[0] > MOST_HELD * memory_limit(env))


def checked(graph: Graph, env: Environment, others: Others = tuple) -> Plan:
    """Return the plan of a graph, that its members can hold.

    Raises
    ------
    MemoryBudgetError
        If they cannot: then nothing has run.
    """
    n_made = PLANS.info().misses
    plan = found_plan(graph, env)
    if not env.is_cluster:
        check_peak(plan, graph.nodes, env)
        return plan
    excess = exceeds(plan, graph, env, others)
    if excess is not None and PLANS.info().misses == n_made:
        # The plan is of a time when more was held, or less.
        plan = fit_to_memory(_plan(graph, env), graph, env)
        PLANS.put(graph.key, plan, config.get("plan-cache-size"))
        excess = exceeds(plan, graph, env, others)
    if excess is not None:
        (needed, stage), why = excess
        refuse(names_of(plan, graph.nodes, stage), needed, why)
    return plan


def exceeds(plan: Plan, graph: Graph, env: Environment, others: Others = tuple) -> tuple[tuple[int, int], str] | None:
    """Return what the workers of a cluster cannot hold of a plan: the most bytes of one, and the stage; and why."""
    if is_ample(graph.nodes, env):
        return None
    instance = instance_of(plan, graph, env, "budget")
    if makes_little(instance.template.lowered, graph, env) or programs_of(instance, others) is not None:
        return None
    found = peaks_of(instance.lowered, graph, env)
    why = excess_of(found, env)
    return None if why is None else (found.worst, why)


def is_ample(nodes: Iterable[Expr], env: Environment, n_copies: int = COPIES) -> bool:
    """Return whether nothing has to be planned to know that members can hold some nodes: even one worker could, so many
    times, beside what members hold already; or no limit is set for members of this process.
    """
    if not env.is_cluster:
        return not is_limit_set(env)
    return has_room(env, most_held(env, nodes, n_copies))


def uses_of(graph: Graph) -> list[int]:
    """Return how often the provisional plan of a graph has run."""
    return _USES.get(graph.key, lambda: [0], config.get("plan-cache-size"))


def _plan(graph: Graph, env: Environment, effort: Effort = "once") -> Plan:
    return plan_with_inputs(graph, env, {}, effort)[0]


def plan_with_inputs(
    graph: Graph, env: Environment, inputs: Mapping[int, Sharding], effort: Effort = "once"
) -> tuple[Plan, Mapping[int, Sharding]]:
    """Return a plan, and how host arrays are cut by it: see `partition`."""
    for c in counters.active:
        c.planner_calls += 1
    planner = config.get("planner")
    limits = limits_of(env)
    with rates_of(env):
        if planner == "propagation":
            return propagate(graph, env, limits), inputs
        # not loaded by those who do without
        from distarray.planner.partition import partition

        if planner == "eindecomp" and effort != "other":
            effort = "always"
        return partition(graph, env, limits, current_rates(), inputs, effort, config.get("objective"))


def plan_of(targets: Sequence[Expr]) -> tuple[Plan, Graph, Environment]:
    """Return the plan of pending targets, made or from the cache; nothing runs."""
    order = crossing.graph(targets)
    env = targets[0].env
    graph = canonical(order, {id(t) for t in targets}, context_of(env))
    return found_plan(graph, env), graph, env
