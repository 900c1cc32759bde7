"""The tasks of a plan for one geometry, and filling them in for a run.

A loop over fixed slices lowers once: its tasks are kept as a `Template` in which blocks are named by node and tile
(`route.Leaf`), and `instantiate` puts in the blocks, the scalars, what only kernels see (`expr.late_params`) and the
name of the run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from dask._task_spec import Task, TaskRef

from distarray.execution.promised import Promise
from distarray.execution.route import ClientBox, Key, Leaf, Transfer
from distarray.execution.tasks import Folding, StageSpec, TileSpec
from distarray.expr.expr import Expr, late_params
from distarray.planner.graph import Graph
from distarray.planner.plan import Plan, Stage
from distarray.sharding.sharding import Sharding

if TYPE_CHECKING:
    from distarray.execution.drafts import Draft

__all__ = ["Lowered", "Recipe", "Template", "instantiate", "is_key", "origins"]


@dataclass(slots=True)
class Lowered:
    """Tasks of one evaluation.

    Parameters
    ----------
    tasks
        In an order in which they can run.
    members
        Rank of the member that runs each.
    after
        Tasks that must wait for others although they read nothing of them: writes in place wait for all readers.
    outputs
        By number of the node: its sharding and, per tile, a key or an array.
    transfers
        Messages between members.
    counts
        Tasks by class: tiles, projections, pieces, combines.
    drafts
        Per stage of the plan how its loops were cut and what its tiles read: what `explain` adds up.
    """

    tasks: dict[Key, Task] = field(default_factory=dict)
    members: dict[Key, int] = field(default_factory=dict)
    after: dict[Key, set[Key]] = field(default_factory=dict)
    outputs: dict[int, tuple[Sharding, list[Any]]] = field(default_factory=dict)
    transfers: list[Transfer] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    kernels: Counter[tuple[str, Any]] = field(default_factory=Counter)
    packed_bytes: int = 0
    allocated_bytes: int = 0
    drafts: list[Draft] = field(default_factory=list)


class Recipe(NamedTuple):
    """A task whose arguments are still named by what they are: keys without a run, `Leaf` and `ClientBox`.

    `waits` are tasks that come before it although it reads nothing of them, so that not too much is under way: its
    function gets their results last, and leaves them alone.
    """

    kind: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    waits: tuple[Key, ...] = ()


@dataclass(slots=True)
class Template:
    """The tasks of a plan for one geometry: all but the blocks, the scalars, the late parameters and the run's name.

    A loop over fixed slices lowers once; what varies from turn to turn is filled in by `instantiate`.

    Parameters
    ----------
    specs
        The record of each stage that its tasks share, and the number of the stage.
    lowered
        Everything that does not vary.
    """

    recipes: dict[Key, Recipe] = field(default_factory=dict)
    specs: list[tuple[StageSpec, int]] = field(default_factory=list)
    lowered: Lowered = field(default_factory=Lowered)


def is_key(a: tuple[Any, ...]) -> bool:
    return len(a) >= 3 and isinstance(a[0], str) and a[0].startswith("dx-")


def instantiate(template: Template, plan: Plan, graph: Graph, run: str) -> Lowered:
    """Fill in what varies: the blocks, the scalars, the late parameters and the name of the run."""
    nodes = graph.nodes
    specs: dict[int, StageSpec] = {}
    for spec, number in template.specs:
        stage = plan.stages[number]
        scalars = tuple([nodes[i].operands[p] for i, p in stage.scalars])
        params = (*spec.params, *late_params(nodes[stage.nodes[0]]))
        finishes = tuple([f.filled(nodes) for f in spec.finishes])
        specs[id(spec)] = replace(spec, scalars=scalars, where=origins(stage, nodes), params=params, finishes=finishes)
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
            return a.filled(nodes)
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


def origins(stage: Stage, nodes: Sequence[Expr]) -> tuple[tuple[str, Any], ...]:
    """The operations of a stage and where the user called them."""
    return tuple([(nodes[i].op.name, nodes[i].origin) for i in stage.nodes if nodes[i].origin is not None])
