"""From a plan to the tasks of one run: the template is looked up or made, and filled in.

What varies from run to run is filled in: the blocks, the scalars, what only kernels see (`expr.late_params`) and the
name of the run. Keys are unique per evaluation: a key that named other work before would return the old value.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from types import MappingProxyType
from typing import Any

from dask._task_spec import Task, TaskRef

from distarray import config
from distarray.expr.expr import Environment, Expr, late_params
from distarray.kernels.specs import Folding, StageSpec, TileSpec
from distarray.lower import lower
from distarray.lower.messages import Key
from distarray.lower.route import ClientBox, Leaf
from distarray.lower.site import Site
from distarray.lower.template import Lowered, Template, is_key
from distarray.planner.graph import Graph
from distarray.planner.plan import Plan, Stage
from distarray.runtime.donation import withheld
from distarray.runtime.known_rates import rates_for
from distarray.runtime.memory import STREAMED, memory_limit
from distarray.runtime.promised import Promise
from distarray.runtime.shipping import shipped

__all__ = ["make_tasks", "make_tasks_once", "new_run", "tasks_of"]

_runs = itertools.count()
_process = uuid.uuid4().hex[:8]


def new_run() -> str:
    """Return a name for tasks that no others have had or will have."""
    return f"{_process}-{next(_runs)}"


def make_tasks(
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
    held = {i: withheld(memo) for i in inplace.values() if (memo := graph.nodes[i].memo) is not None}
    template = lower.lower(plan, graph, env, _site(env), inplace, held)
    return _instantiate(template, plan, graph, env, run)


def tasks_of(plan: Plan, graph: Graph, env: Environment) -> Lowered:
    """Return what is known of the tasks of a plan, whatever varies from run to run: all but the tasks themselves."""
    return lower.lower(plan, graph, env, _site(env), {}, {}).lowered


def make_tasks_once(plan: Plan, graph: Graph, env: Environment) -> Lowered:
    """Return the tasks of a plan that is only tried: see `lower.lower_once`."""
    return _instantiate(lower.lower_once(plan, graph, env, _site(env)), plan, graph, env, "trial")


def _site(env: Environment) -> Site:
    limit = memory_limit(env)
    overlap, n_kept = config.get("overlap"), config.get("plan-cache-size")
    return Site(env.is_cluster, limit, max(1, limit // STREAMED), rates_for(env), overlap, n_kept)


def _instantiate(template: Template, plan: Plan, graph: Graph, env: Environment, run: str) -> Lowered:
    """Fill in what varies: the blocks, the scalars, the late parameters and the name of the run."""
    nodes = graph.nodes

    @cache
    def late_of(i: int) -> tuple[Any, ...]:
        late = late_params(nodes[i])
        return shipped(late) if late and env.is_cluster else late

    specs: dict[int, StageSpec] = {}
    for spec, number in template.specs:
        stage = plan.stages[number]
        scalars = tuple([nodes[i].operands[p] for i, p in stage.scalars])
        late = late_of(stage.nodes[0])
        params = (*spec.params, *late) if late else spec.params
        finishes = tuple([f.filled(late_of) for f in spec.finishes])
        specs[id(spec)] = replace(spec, scalars=scalars, where=_origins(stage, nodes), params=params, finishes=finishes)
    names: dict[str, str] = {}

    def named(key: Key) -> Key:
        name = names.get(key[0])
        if name is None:
            name = names[key[0]] = f"{key[0]}-{run}"
        return (name, *key[1:])

    blocks = [None if node.memo is None else node.memo.handles for node in nodes]

    def block(leaf: Leaf) -> Any:
        return blocks[leaf.node][leaf.number]  # type: ignore[index]  # leaves are of memoised nodes

    def filled(a: Any) -> Any:
        kind = type(a)
        if kind is tuple and is_key(a):
            return TaskRef(named(a))
        if kind is Leaf:
            found = block(a)
            # a Future stands for its key, which the executor knows as long as the memo lives
            key = getattr(found, "key", None)
            return found if key is None else TaskRef(key)
        if kind is ClientBox:
            return block(Leaf(a.node, 0))[a.slices]
        if kind is StageSpec:
            return specs.get(id(a), a)
        if kind is Folding:
            return a.filled(late_of)
        if kind is TileSpec and a.generated:
            return replace(a, generated=tuple([g._replace(runtime=nodes[g.node].runtime) for g in a.generated]))
        return a

    made: dict[Key, Task] = {}
    for key, (_, function, args, waits) in template.recipes.items():
        new = named(key)
        made[new] = Task(new, function, *[filled(a) for a in (*args, *waits)])
    fixed = template.lowered

    def result(ref: Any) -> Any:
        if type(ref) is Leaf:
            found = block(ref)
            return found.key if type(found) is Promise else found
        return named(ref) if type(ref) is tuple and is_key(ref) else ref

    outputs = {i: (sharding, [result(r) for r in refs]) for i, (sharding, refs) in fixed.outputs.items()}
    return replace(
        fixed,
        tasks=made,
        members=dict(zip(made, fixed.members.values(), strict=True)),
        after={named(k): {named(w) for w in waits} for k, waits in fixed.after.items()},
        outputs=outputs,
    )


def _origins(stage: Stage, nodes: Sequence[Expr]) -> tuple[tuple[str, Any], ...]:
    """Return the operations of a stage and where the user called them."""
    return tuple([(nodes[i].op.name, nodes[i].origin) for i in stage.nodes if nodes[i].origin is not None])
