"""The one door from plans to tasks.

`lower` walks the stages of a plan twice: first (`drafts`) it resolves every cut and collects what every tile reads, so
that all that one member needs of a tile travels in one piece; then (`stage_tasks`) it makes the tasks, and `fuse` joins
those that only hand a block on. What comes out is a `Template`, remembered by geometry, which the runtime fills in for
every run (`runtime.instantiate`). Nothing here knows Dask, clients or locks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from distarray import config
from distarray.expr.expr import Environment
from distarray.lower.fuse import fuse
from distarray.lower.machine import Machine
from distarray.lower.stage_tasks import Lowering
from distarray.lower.template import Template
from distarray.planner.cache import LRUCache
from distarray.planner.graph import Graph
from distarray.planner.plan import Plan
from distarray.planner.rates import current_rates

__all__ = ["lower", "lower_once"]


def lower(
    plan: Plan,
    graph: Graph,
    env: Environment,
    machine: Machine,
    inplace: Mapping[int, int],
    held: Mapping[int, frozenset[int]],
) -> Template:
    """The tasks of a plan for the nodes at hand, remembered by their geometry.

    Parameters
    ----------
    plan, graph
        From the planner (or its cache); their keys agree.
    env
        Team and device of all nodes.
    inplace
        Results that may take over the blocks of a node that nobody needs afterwards.
    held
        By such a node the numbers of the blocks that somebody else has.
    """
    key = _geometry(plan, graph, inplace, held)
    return _TEMPLATES.get(
        key, lambda: _template(plan, graph, env, machine, inplace, held), config.get("plan-cache-size")
    )


def lower_once(plan: Plan, graph: Graph, env: Environment, machine: Machine) -> Template:
    """The tasks of a plan that is only tried: nothing is remembered."""
    return _template(plan, graph, env, machine, {}, {})


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
    plan: Plan,
    graph: Graph,
    env: Environment,
    machine: Machine,
    inplace: Mapping[int, int],
    held: Mapping[int, frozenset[int]],
) -> Template:
    state = Lowering(plan, graph, env, machine, inplace, held)
    state.out.drafts = state.first_pass()
    state.second_pass(state.out.drafts)
    # The routes call back into the lowering: such a cycle would keep all blocks alive until a garbage collection.
    del state.routes
    is_streamed = any(stage.cut.waves for stage in plan.stages)
    fuse(state.template, is_paced=is_streamed and machine.is_cluster)
    return state.template
