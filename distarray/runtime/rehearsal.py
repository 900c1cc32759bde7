"""Evaluations that do not run: whether members could hold them, and the tasks that they would be."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from distarray.expr import crossing
from distarray.expr.expr import Environment, Expr
from distarray.lower.template import Lowered
from distarray.planner.cache import plan_cache_info
from distarray.planner.graph import Graph, canonical
from distarray.planner.plan import Plan
from distarray.runtime.donation import inplace_results
from distarray.runtime.hosts import as_cut, host_cuts
from distarray.runtime.instantiate import make_tasks
from distarray.runtime.memory import is_limit_set
from distarray.runtime.planning import checked, context_of, is_ample, plan_of
from distarray.runtime.retention import retained
from distarray.runtime.small import is_small

__all__ = ["Rehearsed", "check", "rehearsed"]


def check(
    env: Environment, order: Sequence[Expr], wanted: set[int], stand_ins: Mapping[int, Expr] = MappingProxyType({})
) -> None:
    """Check that members can hold what these nodes need: see `evaluate.check`."""
    if not env.is_cluster and not is_limit_set():
        return
    cuts = host_cuts(order, wanted, env, stand_ins)
    hosts = [n for n in order if id(n) in cuts]
    graph = canonical(order, wanted, context_of(env), {**stand_ins, **as_cut(hosts, cuts)})
    if not env.is_cluster or not is_ample(graph.nodes, env):
        checked(graph, env)


class Rehearsed(NamedTuple):
    """A Rehearsed is the tasks of targets, made and counted, before any is handed out.

    Parameters
    ----------
    plan, graph, lowered
        In the graph others stand in for host arrays, and for what is to come from other environments.
    from_cache
        Whether the plan was there before.
    host_bytes
        Of host arrays that would be sent.
    kept
        Nodes whose results would be kept, by the numbers of ``plan.outputs``.
    """

    plan: Plan
    graph: Graph
    lowered: Lowered
    from_cache: bool
    host_bytes: int
    kept: tuple[Expr, ...]


def rehearsed(
    targets: Sequence[Expr],
    stand_ins: Mapping[int, Expr],
    others: Callable[[], Iterable[Expr] | None] = tuple,
) -> Rehearsed | None:
    """Plan and lower pending targets of one environment as `evaluate` would; None if all is small. Nothing runs.

    Parameters
    ----------
    stand_ins
        Of the crossings that they need: see `crossings.foreseen`.
    others
        As for `evaluate`.
    """
    env = targets[0].env
    order = crossing.graph(targets)
    if is_small([stand_ins.get(id(n), n) for n in order], env):
        return None
    aimed = {id(t) for t in targets}
    pending = [n for n in order if n.memo is None and id(n) not in aimed and id(n) not in stand_ins]
    kept_too = retained(pending, env)
    wanted = [*targets, *(n for n in order if id(n) in kept_too)]
    hosts = [n for n in order if n.memo is not None and n.memo.on_client]
    # Host arrays would be cut into tiles first.
    misses = plan_cache_info().misses
    cuts = host_cuts(order, {id(n) for n in wanted}, env, stand_ins)
    plan, graph, _ = plan_of(wanted, {**stand_ins, **as_cut(hosts, cuts)})
    from_cache = plan_cache_info().misses == misses
    inplace = {} if env.is_cluster else inplace_results(plan, graph, order, others)
    lowered = make_tasks(plan, graph, env, "rehearsal", inplace)
    order = crossing.graph(wanted)
    host_bytes = sum(n.nbytes for n in hosts if id(n) in cuts)
    return Rehearsed(plan, graph, lowered, from_cache, host_bytes, tuple([order[i] for i in plan.outputs]))
