"""The one door from plans to tasks.

`lower` walks the stages of a plan twice: first (`drafts`) it resolves every cut and collects what every tile reads, so
that all that one member needs of a tile travels in one piece; then (`stage_tasks`) it makes the tasks, and `fuse` joins
those that only hand a block on. What comes out is a `Template`, remembered by geometry and filled in for every run.
Keys are unique per evaluation: a key that named other work before would return the old value.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from distarray import config
from distarray.execution.donation import withheld
from distarray.execution.evaluate import is_cluster
from distarray.execution.fuse import fuse
from distarray.execution.rates import rates_of
from distarray.execution.stage_tasks import Lowering
from distarray.execution.template import Lowered, Template, instantiate
from distarray.expr.expr import Environment
from distarray.planner.cache import LRUCache
from distarray.planner.graph import Graph
from distarray.planner.plan import Plan
from distarray.planner.rates import current_rates

__all__ = ["Lowered", "Template", "lower", "lowered_once"]


def lower(
    plan: Plan, graph: Graph, env: Environment, run: str, inplace: Mapping[int, int] = MappingProxyType({})
) -> Lowered:
    """Make the tasks of a plan for the nodes at hand.

    Parameters
    ----------
    plan, graph
        From the planner (or its cache); their keys agree.
    env
        Team and device of all nodes.
    run
        Names this evaluation: unique in the scheduler's lifetime.
    inplace
        Results that may take over the blocks of a node that nobody needs afterwards. Empty on a cluster, where tasks
        are retried.
    """
    limit = config.get("plan-cache-size")
    nodes = graph.nodes
    held = {i: withheld(memo) for i in inplace.values() if (memo := nodes[i].memo) is not None}
    with rates_of(env):
        key = _geometry(plan, graph, inplace, held)
        template = _TEMPLATES.get(key, lambda: _template(plan, graph, env, inplace, held), limit)
    return instantiate(template, plan, graph, run)


def lowered_once(plan: Plan, graph: Graph, env: Environment) -> Lowered:
    """The tasks of a plan that is only tried: nothing is remembered."""
    with rates_of(env):
        return instantiate(_template(plan, graph, env, {}, {}), plan, graph, "trial")


_TEMPLATES: LRUCache[Template] = LRUCache()


def _geometry(plan: Plan, graph: Graph, inplace: Mapping[int, int], held: Mapping[int, frozenset[int]]) -> Any:
    """What decides the tasks of a plan beside its key: extents, boundaries and lenses."""
    facts: list[Any] = [graph.key, plan.serial, config.get("overlap"), current_rates()]
    facts += [tuple(inplace.items()), tuple(held.items())]
    for node in graph.nodes:
        memo = node.memo
        if memo is not None:
            facts.append((node.shape, memo.on_client, memo.sharding))
        elif node.op.kind in ("get", "put", "tiles"):
            facts.append((node.shape, node.runtime))
        elif node.op.kind == "windows":
            facts.append((node.shape, node.runtime.geometry))
        else:
            facts.append(node.shape)
    return tuple(facts)


def _template(
    plan: Plan, graph: Graph, env: Environment, inplace: Mapping[int, int], held: Mapping[int, frozenset[int]]
) -> Template:
    state = Lowering(plan, graph, env, inplace, held)
    state.out.drafts = state.first_pass()
    state.second_pass(state.out.drafts)
    # The routes call back into the lowering: such a cycle would keep all blocks alive until a garbage collection.
    del state.routes
    is_streamed = any(stage.cut.waves for stage in plan.stages)
    fuse(state.template, is_paced=is_streamed and is_cluster(env))
    return state.template
