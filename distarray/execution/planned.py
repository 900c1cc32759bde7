"""The planned path of an evaluation: plan (or its cache), tasks, executor.

Loaded when the first arrays come that are more than one small block each. It is also what the Dask collection protocol
and writers of files ask for tasks.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
from dask._task_spec import Alias, DataNode, Task, TaskRef

from distarray import config
from distarray.execution import counters
from distarray.execution.backends import backend_for
from distarray.execution.budget import check_peak, check_whole_kernels
from distarray.execution.donation import inplace_results
from distarray.execution.evaluate import LOCK, executor_for, is_cluster, mesh_of
from distarray.execution.fit import fitted
from distarray.execution.inside import is_inside_task
from distarray.execution.interrupts import interrupts_deferred
from distarray.execution.lower import Lowered, lower
from distarray.execution.memory import memory_limit
from distarray.execution.rates import rates_for, rates_of
from distarray.execution.retention import result_nbytes
from distarray.execution.task_times import timed
from distarray.expr.expr import Environment, Expr, Stored, postorder
from distarray.planner.cache import PLANS, LRUCache
from distarray.planner.graph import Graph, canonical
from distarray.planner.plan import Plan
from distarray.planner.propagation import Limits, propagate
from distarray.planner.rates import current_rates
from distarray.sharding.sharding import Sharding

if TYPE_CHECKING:
    from distarray.planner.partition.plans import Effort

__all__ = [
    "for_each_block",
    "graph_of",
    "host_cuts",
    "lent",
    "limits_of",
    "place",
    "plan_of",
    "run",
]

_runs = itertools.count()
_process = uuid.uuid4().hex[:8]

#: Bytes of results per task below which tasks run one after the other in the calling thread.
INLINE_NBYTES = 32 << 10
#: Runs of a provisional plan before a better one is searched for: the third run has it.
USES_BEFORE_SEARCH = 2
_USES: LRUCache[list[int]] = LRUCache()
#: Plans with the cuts of their host arrays, by the key that the graph would have with the default cuts.
_INPUTS: LRUCache[tuple[Plan, Mapping[int, Sharding]]] = LRUCache()
#: Largest tile that the planner chooses by itself, as a part of the memory limit.
TILES_PER_LIMIT = 8


def limits_of(env: Environment) -> Limits:
    """What bounds the size of tiles in an environment."""
    limit = memory_limit(env)
    return Limits(config.get("block-bytes"), max(1 << 20, limit // TILES_PER_LIMIT), limit)


def run(env: Environment, order: Sequence[Expr], wanted: set[int], others: Callable[[], Iterable[Expr]]) -> None:
    """Evaluate nodes of one environment by tasks, and set the memos of those that are wanted.

    Parameters
    ----------
    order
        All nodes needed, operands before users.
    wanted
        ``id`` of the nodes whose results are kept.
    others
        See `evaluate.evaluate`.
    """
    executor = executor_for(env)
    cuts = host_cuts(order, wanted, env)
    hosts = [n for n in order if id(n) in cuts]
    with lent(hosts, cuts):  # what is too large is not even sent
        graph = canonical(order, wanted, _context(env))
        plan = _found(graph, env)
        check_peak(plan, graph.nodes, memory_limit(env))
    if hosts:
        for node in hosts:
            _place(node, env, executor, cuts[id(node)])
        graph = canonical(order, wanted, _context(env))
    if plan.is_provisional:
        _uses(graph)[0] += 1
    cluster = is_cluster(env)
    inplace = {} if cluster else inplace_results(plan, graph, order, others)
    lowered = lower(plan, graph, env, f"{_process}-{next(_runs)}", inplace)
    check_whole_kernels(lowered.drafts, graph.nodes, memory_limit(env))
    _count(lowered)
    keep = [ref for _, refs in lowered.outputs.values() for ref in refs if isinstance(ref, tuple)]
    overwrites = any(graph.nodes[i].memo is not None for i in inplace.values())
    # Handing tasks to a cluster takes no time, and an interrupt would leave half of its Futures.
    with interrupts_deferred() if overwrites or cluster else nullcontext():
        if cluster:
            found = executor.submit(timed(lowered), lowered.members, keep)
        else:
            nbytes = sum(result_nbytes(n) for n in order if n.memo is None)
            is_inline = nbytes < INLINE_NBYTES * len(lowered.tasks)
            found = executor.submit(timed(lowered), lowered.members, keep, lowered.after, is_inline)
        for i, (sharding, refs) in lowered.outputs.items():
            node = graph.nodes[i]
            if node.memo is None:
                node.settle(Stored(sharding, [found[r] if isinstance(r, tuple) else r for r in refs]))


def _context(env: Environment) -> tuple[Any, ...]:
    limits = limits_of(env)
    return (limits, config.get("planner"), config.get("objective"), config.get("overlap"), rates_for(env))


def _found(graph: Graph, env: Environment) -> Plan:
    """The plan of a graph: made now, or from the cache; searched for when the graph comes the third time."""
    n_kept = config.get("plan-cache-size")
    plan = PLANS.get(graph.key, lambda: _fitted(_plan(graph, env), graph, env), n_kept)
    if plan.is_provisional and _uses(graph)[0] >= USES_BEFORE_SEARCH:
        plan = _fitted(_plan(graph, env, "again"), graph, env)
        PLANS.put(graph.key, plan, n_kept)
    return plan


def _fitted(plan: Plan, graph: Graph, env: Environment) -> Plan:
    limits = limits_of(env)
    with rates_of(env):
        return fitted(plan, graph, env, limits, _eager(plan, graph, env, limits))


def _eager(plan: Plan, graph: Graph, env: Environment, limits: Limits) -> Plan | None:
    """A plan whose products do not wait for all of their operands, if there is one: it may hold more."""
    if not is_cluster(env) or env.size == 1 or config.get("planner") == "propagation":
        return None
    if (
        not any(stage.kind == "contract" for stage in plan.stages)
        or max(map(result_nbytes, graph.nodes)) <= limits.block
    ):
        return None
    from distarray.planner.partition import overlapped

    found = overlapped(plan, graph, mesh_of(env), limits, current_rates())
    return None if found is plan else found


def _uses(graph: Graph) -> list[int]:
    """How often the provisional plan of a graph has run."""
    return _USES.get(graph.key, lambda: [0], config.get("plan-cache-size"))


def _plan(graph: Graph, env: Environment, effort: Effort = "once") -> Plan:
    return _plan_with_inputs(graph, env, {}, effort)[0]


def _plan_with_inputs(
    graph: Graph, env: Environment, inputs: Mapping[int, Sharding], effort: Effort = "once"
) -> tuple[Plan, Mapping[int, Sharding]]:
    """A plan, and how host arrays are cut by it: see `partition_with_inputs`."""
    for c in counters.active:
        c.planner_calls += 1
    planner = config.get("planner")
    limits = limits_of(env)
    with rates_of(env):
        if planner == "propagation":
            return propagate(graph, env, limits), inputs
        # not loaded by those who do without
        from distarray.planner.partition import partition_with_inputs

        if planner == "eindecomp":
            effort = "always"
        return partition_with_inputs(graph, env, limits, current_rates(), inputs, effort, config.get("objective"))


# ------------------------------------------------------------------------------------------------------ host data


def host_cuts(order: Sequence[Expr], wanted: Collection[int], env: Environment) -> dict[int, Sharding]:
    """How large host arrays are cut before their first use, by ``id``: as the user asked, else as suits what is run."""
    hosts = [n for n in order if n.memo is not None and n.memo.on_client]
    cuts = {id(n): cut for n in hosts if (cut := _host_cut(n, env)) is not None}
    free = [n for n in hosts if n.pin is None and id(n) in cuts]
    if not free or env.size == 1 or config.get("planner") == "propagation" or len(cuts) == len(order):
        return cuts
    with lent(hosts, cuts):
        graph = canonical(order, wanted, _context(env))
    number = {id(n): i for i, n in enumerate(graph.nodes)}
    inputs = {number[id(n)]: cuts[id(n)] for n in free}
    n_kept = config.get("plan-cache-size")
    plan, chosen = _INPUTS.get(graph.key, lambda: _with_hosts(graph, env, hosts, cuts, inputs), n_kept)
    if plan.is_provisional and _uses(graph)[0] >= USES_BEFORE_SEARCH:
        plan, chosen = _with_hosts(graph, env, hosts, cuts, inputs, "again")
        _INPUTS.put(graph.key, (plan, chosen), n_kept)
    cuts.update({id(graph.nodes[i]): cut for i, cut in chosen.items()})
    with lent(hosts, cuts):  # the plan is that of the arrays cut so
        graph = canonical(order, wanted, _context(env))
        PLANS.get(graph.key, lambda: _fitted(plan, graph, env), n_kept)
    return cuts


def _with_hosts(
    graph: Graph,
    env: Environment,
    hosts: Sequence[Expr],
    cuts: Mapping[int, Sharding],
    inputs: Mapping[int, Sharding],
    effort: Effort = "once",
) -> tuple[Plan, Mapping[int, Sharding]]:
    with lent(hosts, cuts):
        return _plan_with_inputs(graph, env, inputs, effort)


@contextmanager
def lent(hosts: Sequence[Expr], cuts: Mapping[int, Sharding]) -> Iterator[None]:
    """For as long as something is planned, host arrays lie as they would be cut; keys stand for their tiles."""
    memos = [(n, n.memo) for n in hosts]
    try:
        for number, (node, memo) in enumerate(memos):
            if id(node) in cuts and memo is not None:
                cut = cuts[id(node)]
                keys = [("dx-host", number, t) for t in range(cut.n_tiles)]
                node.memo = Stored(cut, keys, exported=memo.exported)
        yield
    finally:
        for node, memo in memos:
            node.memo = memo


def _host_cut(node: Expr, env: Environment) -> Sharding | None:
    """How a host array is cut if nothing but the array is known; None where it stays in one piece."""
    if node.pin is not None:
        return node.pin
    if node.nbytes <= limits_of(env).block or node.ndim == 0 or (env.size == 1 and env.device == "cpu"):
        return None
    axis = next((a for a, n in enumerate(node.shape) if n >= env.size), int(np.argmax(node.shape)))
    mesh = mesh_of(env)
    return Sharding(mesh, tuple([tuple(reversed(mesh.names)) if a == axis else () for a in range(node.ndim)]))


def _count(lowered: Lowered) -> None:
    for c in counters.active:
        c.tasks += len(lowered.tasks)
        c.by_class.update(lowered.counts)
        c.transfers += lowered.transfers
        c.kernels.update(lowered.kernels)
        c.packed_bytes += lowered.packed_bytes
        c.allocated_bytes += lowered.allocated_bytes
        c.members.update(lowered.members)


def place(node: Expr) -> None:
    """Bring host data of an evaluated node to the members that are to hold its parts, as its first use would."""
    cut = _host_cut(node, node.env) if node.memo is not None and node.memo.on_client else None
    if cut is not None:
        with LOCK:
            _place(node, node.env, executor_for(node.env), cut)


def _place(node: Expr, env: Environment, executor: Any, cut: Sharding) -> None:
    """Cut a large host array into tiles: views of it in this process, blocks on the members of a cluster."""
    memo = node.memo
    assert memo is not None
    array = memo.blocks[0]
    blocks = [_in_layout(array[cut.tile_slices(node.shape, t)], cut.layout) for t in cut.tiles()]
    members = [cut.member(t) for t in cut.tiles()]
    if is_cluster(env):
        run = f"{_process}-{next(_runs)}"
        keys = [(f"dx-source-{run}", 0, i) for i in range(len(blocks))]
        found = executor.put(dict(zip(keys, blocks, strict=True)), dict(zip(keys, members, strict=True)))
        stored: list[Any] = [found[k] for k in keys]
    else:
        stored = [backend_for(env.device, m).adopt(b) for b, m in zip(blocks, members, strict=True)]
    node.memo = Stored(cut, stored, exported=memo.exported)


def _in_layout(part: np.ndarray[Any, Any], layout: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """A part of a host array as a contiguous block with its axes in this order; itself if it is one."""
    ordered = part.transpose(layout)
    if ordered.flags.c_contiguous:
        return part
    return np.ascontiguousarray(ordered).transpose(sorted(range(part.ndim), key=layout.__getitem__))


def plan_of(targets: Sequence[Expr]) -> tuple[Plan, Graph, Environment]:
    """The plan of pending targets, made or from the cache; nothing runs."""
    order = postorder(targets)
    env = targets[0].env
    graph = canonical(order, {id(t) for t in targets}, _context(env))
    return _found(graph, env), graph, env


def _place_hosts(node: Expr) -> None:
    """Cut the large host arrays that a node needs into tiles, so that it is planned as it would be evaluated."""
    order = postorder([node])
    cuts = host_cuts(order, {id(node)}, node.env)
    for leaf in order:
        if id(leaf) in cuts:
            _place(leaf, leaf.env, executor_for(leaf.env), cuts[id(leaf)])


def graph_of(node: Expr) -> tuple[str, dict[Any, Any], Sharding]:
    """A Dask graph that computes one node and changes no handle: versions are pinned, nothing is donated or kept.

    Returns
    -------
    name
        The results have the keys ``(name, *tile)``.
    graph
        Nodes of ``dask._task_spec`` by key, and Futures under their own keys.
    sharding
        How the results tile the array.
    """
    run = f"{_process}-{next(_runs)}"
    # Not the name of its tasks, whose keys have a step and a number where results have a tile.
    name = f"dx-array-{run}"
    graph: dict[Any, Any] = {}
    if node.memo is not None:
        sharding, refs = node.memo.sharding, list(node.memo.blocks)
    else:
        _place_hosts(node)
        plan, nodes, env = plan_of([node])
        lowered = lower(plan, nodes, env, run)
        graph.update(lowered.tasks)
        for leaf in nodes.nodes:
            if leaf.memo is not None and is_cluster(env) and not leaf.memo.on_client:
                graph.update({b.key: b for b in leaf.memo.blocks if not isinstance(b, np.ndarray)})
        ((sharding, refs),) = lowered.outputs.values()
    read = {key for task in graph.values() for key in getattr(task, "dependencies", ())}
    for tile, ref in zip(sharding.tiles(), refs, strict=True):
        key = (name, *tile)
        if isinstance(ref, tuple) and ref not in read:
            # nobody else reads the task: it takes the name of the result
            task = graph.pop(ref)
            graph[key] = Task(key, task.func, *task.args)
        elif isinstance(ref, tuple):
            graph[key] = Alias(key, target=ref)
        elif hasattr(ref, "key"):
            graph[ref.key] = ref
            graph[key] = Alias(key, target=ref.key)
        else:
            graph[key] = DataNode(key, ref)
    return name, graph, sharding


def for_each_block(
    node: Expr, function: Callable[..., Any], arguments: Callable[[tuple[tuple[int, int], ...]], tuple[Any, ...]]
) -> None:
    """Call a function with each block of a node where the block lies, and wait until all calls are over.

    A pending node is computed for it and not kept: each block is freed as soon as the function has had it.

    Parameters
    ----------
    function
        Called as ``function(block, *arguments(box), device, member)``, box: (start, stop) per axis; more than once for
        a block if its member is lost. It must not keep or write the block.
    """
    env = node.env
    memo = node.memo
    if memo is not None and memo.on_client:
        (tile,) = memo.sharding.tiles()
        function(memo.blocks[0], *arguments(memo.sharding.tile_box(node.shape, tile)), env.device, 0)
        return
    executor = executor_for(env)
    run = f"{_process}-{next(_runs)}"
    with nullcontext() if is_inside_task() else LOCK:
        if memo is not None:
            lowered, sharding, refs = Lowered(), memo.sharding, list(memo.blocks)
        else:
            _place_hosts(node)
            plan, graph, _ = plan_of([node])
            lowered = lower(plan, graph, env, run)
            ((sharding, refs),) = lowered.outputs.values()
            check_whole_kernels(lowered.drafts, graph.nodes, memory_limit(env))
            _count(lowered)
        tasks, members, calls = dict(lowered.tasks), dict(lowered.members), []
        for number, (tile, ref) in enumerate(zip(sharding.tiles(), refs, strict=True)):
            key = (f"dx-call-{run}", 0, number)
            member = sharding.member(tile)
            ref = TaskRef(getattr(ref, "key", ref)) if isinstance(ref, tuple) or hasattr(ref, "key") else ref
            tasks[key] = Task(key, function, ref, *arguments(sharding.tile_box(node.shape, tile)), env.device, member)
            members[key] = member
            calls.append(key)
        for c in counters.active:
            c.tasks += len(calls)
            c.by_class["call"] += len(calls)
        if is_cluster(env):
            found = executor.submit(tasks, members, calls)
        else:
            executor.submit(tasks, members, calls, lowered.after)
            return
    executor.wait(found.values())
