"""The planned path of an evaluation: plan (or its cache), tasks, executor.

Loaded when the first arrays come that are more than one small block each. It is also what the Dask collection protocol
and writers of files ask for tasks.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from math import prod
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from dask._task_spec import Alias, DataNode, Task, TaskRef

from distarray import config
from distarray.expr import crossing
from distarray.expr.expr import Environment, Expr, Stored, postorder
from distarray.kernels.devices import backend_for
from distarray.lower.template import Lowered
from distarray.planner.cache import PLANS, LRUCache, plan_cache_info
from distarray.planner.graph import Graph, canonical
from distarray.planner.plan import Plan
from distarray.planner.propagation import Limits, propagate
from distarray.planner.rates import current_rates
from distarray.runtime import counters, metering, passes
from distarray.runtime.budget import check_held, check_peak, check_whole_kernels, excess_of, names_of, refuse
from distarray.runtime.donation import inplace_results, kept
from distarray.runtime.evaluate import LOCK, STAYS_NBYTES, executor_for, is_small, locked
from distarray.runtime.fit import fitted, held_in, peaks_of
from distarray.runtime.instantiate import make_tasks
from distarray.runtime.interrupts import interrupts_deferred
from distarray.runtime.memory import is_limit_set, limits_to_try, memory_limit
from distarray.runtime.promised import PromisedBlocks, joined, make_here
from distarray.runtime.rates import rates_for, rates_of
from distarray.runtime.rehome import keep_host
from distarray.runtime.retention import is_beyond_memory, result_nbytes, retained
from distarray.runtime.task_times import timed
from distarray.sharding.sharding import Sharding

if TYPE_CHECKING:
    from distarray.planner.partition.plans import Effort

__all__ = [
    "as_cut",
    "check",
    "checked",
    "context_of",
    "exceeds",
    "for_each_block",
    "graph_of",
    "handed_out",
    "host_cut",
    "host_cuts",
    "is_ample",
    "limits_of",
    "lowered_to_run",
    "place",
    "plan_of",
    "rehearsed",
    "run",
]

_runs = itertools.count()
_process = uuid.uuid4().hex[:8]

#: Bytes of results per task below which tasks run one after the other in the calling thread.
INLINE_NBYTES = 32 << 10
#: Bytes of results up to which blocks are taken over: Ctrl-C waits for writes in place, so they take a second at most,
#: or so many times the largest of the results: a few operations are no longer here than in numpy.
INPLACE_NBYTES = 8 << 30
INPLACE_STEPS = 4
#: Runs of a provisional plan before a better one is searched for: the third run has it.
USES_BEFORE_SEARCH = 2
_USES: LRUCache[list[int]] = LRUCache()
#: Plans with the cuts of host arrays, by their numbers and the key that the graph would have with the default cuts.
_INPUTS: LRUCache[tuple[Plan, Mapping[int, Sharding]]] = LRUCache()
#: Times that a member may have an array at most: as it lies, as it is sent, as it arrives, and copied for its loss.
COPIES = 4
#: Largest tile that the planner chooses by itself, as a part of the memory limit.
TILES_PER_LIMIT = 8


def limits_of(env: Environment) -> Limits:
    """What bounds the size of tiles in an environment."""
    limit = memory_limit(env)
    return Limits(config.get("block-bytes"), max(1 << 20, limit // TILES_PER_LIMIT), limit)


def run(env: Environment, order: Sequence[Expr], wanted: set[int], others: Callable[[], Iterable[Expr] | None]) -> None:
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
    check_held([n for n in order if n.memo is None], wanted)
    executor = executor_for(env)
    cuts = host_cuts(order, wanted, env)
    hosts = [n for n in order if id(n) in cuts]
    graph = canonical(order, wanted, context_of(env), as_cut(hosts, cuts))
    plan = checked(graph, env)  # what is too large is not even sent
    if hosts:
        for node in hosts:
            _place(node, env, executor, cuts[id(node)])
        graph = canonical(order, wanted, context_of(env))
    if plan.is_provisional:
        _uses(graph)[0] += 1
    cluster = env.is_cluster
    made = [result_nbytes(n) for n in order if n.memo is None]
    is_long = sum(made) > max(INPLACE_NBYTES, INPLACE_STEPS * max(made, default=0))
    inplace = {} if cluster or is_long else inplace_results(plan, graph, order, others)
    lowered = lowered_to_run(plan, graph, env, inplace)
    overwrites = any(graph.nodes[i].memo is not None for i in inplace.values())
    # Handing tasks to a cluster takes no time, and an interrupt would leave half of its Futures.
    with interrupts_deferred() if overwrites or cluster else nullcontext():
        results = handed_out(lowered, graph, env, others, sum(made))
        kept(results, order, {id(graph.nodes[i]) for i in inplace.values()})


def lowered_to_run(
    plan: Plan, graph: Graph, env: Environment, inplace: Mapping[int, int] = MappingProxyType({})
) -> Lowered:
    """The tasks of a plan that is to run now, counted; for `inplace` see `lower`."""
    lowered = make_tasks(plan, graph, env, f"{_process}-{next(_runs)}", inplace)
    check_whole_kernels(lowered.drafts, graph.nodes, memory_limit(env))
    _count(lowered)
    if counters.active or passes.recording:
        peak = max(peaks_of(lowered, graph, env).peak.values(), default=0)
        passes.note(lowered, peak)
        for c in counters.active:
            c.predicted_peak = max(c.predicted_peak, peak)
    if not env.is_cluster:
        for meter in metering.active:
            meter.found(graph)
    return lowered


def handed_out(
    lowered: Lowered,
    graph: Graph,
    env: Environment,
    others: Callable[[], Iterable[Expr] | None] = tuple,
    n_made: int = 0,
) -> list[tuple[Expr, Stored]]:
    """Give tasks to the executor of a team, with interrupts deferred; what becomes of the results that are kept.

    Parameters
    ----------
    others
        See `evaluate.evaluate`.
    n_made
        Bytes of all results.
    """
    executor = executor_for(env)
    keep = [ref for _, refs in lowered.outputs.values() for ref in refs if isinstance(ref, tuple)]
    before = {id(b) for n in graph.nodes if n.memo is not None for b in n.memo.present}
    if env.is_cluster:
        whole = joined(graph.nodes, timed(lowered), lowered.members, keep, others)
        found = executor.submit(whole.tasks, whole.members, whole.keep, kept_nbytes(lowered, graph))
        for blocks in whole.blocks:
            blocks.settle(found)
    else:
        is_inline = n_made < INLINE_NBYTES * len(lowered.tasks)
        found = executor.submit(timed(lowered), lowered.members, keep, lowered.after, is_inline)
    results = []
    for i, (sharding, refs) in lowered.outputs.items():
        if graph.nodes[i].memo is None:
            stored = Stored(sharding, [found[r] if isinstance(r, tuple) else r for r in refs], exported=False)
            # Tiles of which nothing was to be computed were made with the template, for all its runs.
            stored.share(k for k, r in enumerate(refs) if not isinstance(r, tuple) and id(r) not in before)
            results.append((graph.nodes[i], stored))
    return results


def kept_nbytes(lowered: Lowered, graph: Graph) -> dict[Any, int]:
    """Bytes of each block that tasks make and that is kept."""
    found: dict[Any, int] = {}
    for i, (sharding, refs) in lowered.outputs.items():
        node = graph.nodes[i]
        for tile, ref in zip(sharding.tiles(), refs, strict=True):
            if isinstance(ref, tuple):
                found[ref] = prod(sharding.shard_shape(node.shape, tile)) * node.dtype.itemsize
    return found


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
    """The tasks of targets, before any is handed out.

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


def context_of(env: Environment) -> tuple[Any, ...]:
    """What decides a plan beside its graph."""
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
    if any(is_beyond_memory(graph.nodes[i]) for i in graph.kept):
        return plan  # it is only looked at: see `check_held`
    limits = limits_of(env)
    if beside := _beside(graph, env):
        plan = replace(plan, beside=beside)
    with rates_of(env):
        found = fitted(plan, graph, env, limits, _eager(plan, graph, env, limits))
        if found.above is None or not env.is_cluster or plan.planner == "propagation":
            return found
        # A plan that moves least may hold more than the one that follows the cuts that there are.
        plain = fitted(replace(propagate(graph, env, limits), beside=beside), graph, env, limits)
        return plain if plain.above is None or plain.above[0] < found.above[0] else found


def _beside(graph: Graph, env: Environment) -> int:
    """Bytes that lie on a member of a cluster beside the blocks of a graph: other arrays, and all copies."""
    if not env.is_cluster:
        return 0
    executor = executor_for(env)
    found, spares = held_in(env), executor.spares()
    for node in graph.nodes:
        memo = node.memo
        if memo is None or memo.on_client or isinstance(node.dtype, tuple):
            continue
        for tile, ref in zip(memo.sharding.tiles(), memo.handles, strict=True):
            member = memo.sharding.member(tile)
            nbytes = prod(memo.sharding.shard_shape(node.shape, tile)) * node.dtype.itemsize
            if not isinstance(ref, tuple):
                found[member] -= nbytes
            elif member in spares:  # host data that are to be sent, and their copies
                found[spares[member]] += nbytes
    return max([0, *found.values()])


def _eager(plan: Plan, graph: Graph, env: Environment, limits: Limits) -> Plan | None:
    """A plan whose products do not wait for all of their operands, if there is one: it may hold more."""
    if not env.is_cluster or env.size == 1 or config.get("planner") == "propagation":
        return None
    if (
        not any(stage.kind == "contract" for stage in plan.stages)
        or max(map(result_nbytes, graph.nodes)) <= limits.block
    ):
        return None
    from distarray.planner.partition import overlapped

    found = overlapped(plan, graph, env.mesh, limits, current_rates())
    return None if found is plan else found


def checked(graph: Graph, env: Environment) -> Plan:
    """The plan of a graph, that its members can hold.

    Raises
    ------
    MemoryBudgetError
        If they cannot: then nothing has run.
    """
    plan = _found(graph, env)
    if not env.is_cluster:
        check_peak(plan, graph.nodes, memory_limit(env))
        return plan
    if exceeds(plan, graph, env) is not None:
        # The plan may be of a time when more was held, or less.
        plan = _fitted(_plan(graph, env), graph, env)
        PLANS.put(graph.key, plan, config.get("plan-cache-size"))
        if (excess := exceeds(plan, graph, env)) is not None:
            (needed, stage), why = excess
            refuse(names_of(plan, graph.nodes, stage), needed, why)
    return plan


def exceeds(plan: Plan, graph: Graph, env: Environment) -> tuple[tuple[int, int], str] | None:
    """What the workers of a cluster cannot hold of a plan: the most bytes of one, and the stage; and why."""
    if is_ample(graph.nodes, env):
        return None
    found = peaks_of(make_tasks(plan, graph, env, "budget"), graph, env)
    why = excess_of(found, env)
    return None if why is None else (found.worst, why)


def is_ample(nodes: Iterable[Expr], env: Environment, n_copies: int = COPIES) -> bool:
    """Whether even one worker could hold all of some nodes, so many times, beside what members hold already."""
    held = max(held_in(env).values(), default=0)
    most = limits_to_try(memory_limit(env), is_worker=True)[0]
    return bool(held + n_copies * sum(map(result_nbytes, nodes)) <= most)


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


def host_cuts(
    order: Sequence[Expr],
    wanted: Collection[int],
    env: Environment,
    stand_ins: Mapping[int, Expr] = MappingProxyType({}),
) -> dict[int, Sharding]:
    """How large host arrays are cut before their first use, by ``id``: as the user asked, else as suits what is run."""
    hosts = [n for n in order if n.memo is not None and n.memo.on_client]
    cuts = {id(n): cut for n in hosts if (cut := host_cut(n, env)) is not None}
    free = [n for n in hosts if n.pin is None and id(n) in cuts]
    if not free or env.size == 1 or config.get("planner") == "propagation" or len(cuts) == len(order):
        return cuts
    graph = canonical(order, wanted, context_of(env), {**stand_ins, **as_cut(hosts, cuts)})
    number = {id(n): i for i, n in enumerate(order)}
    inputs = {number[id(n)]: cuts[id(n)] for n in free}
    n_kept = config.get("plan-cache-size")
    # What lies already in the default cut stays so: graphs of the same key have other arrays that are still to be cut.
    key = graph.key, tuple(inputs)
    plan, chosen = _INPUTS.get(key, lambda: _plan_with_inputs(graph, env, inputs), n_kept)
    if plan.is_provisional and _uses(graph)[0] >= USES_BEFORE_SEARCH:
        plan, chosen = _plan_with_inputs(graph, env, inputs, "again")
        _INPUTS.put(key, (plan, chosen), n_kept)
    cuts.update({id(order[i]): cut for i, cut in chosen.items()})
    graph = canonical(
        order, wanted, context_of(env), {**stand_ins, **as_cut(hosts, cuts)}
    )  # the plan is that of the arrays cut so
    PLANS.get(graph.key, lambda: _fitted(plan, graph, env), n_kept)
    return cuts


def as_cut(hosts: Sequence[Expr], cuts: Mapping[int, Sharding]) -> dict[int, Expr]:
    """What is planned in the place of host arrays before they are cut: nodes that lie so, with keys for their tiles."""
    found = {}
    for number, node in enumerate(hosts):
        cut = cuts.get(id(node))
        if cut is not None:
            found[id(node)] = there = Expr(node.op, (), node.shape, node.dtype, node.env, pin=node.pin)
            there.memo = Stored(cut, [("dx-host", number, t) for t in range(cut.n_tiles)])
    return found


def host_cut(node: Expr, env: Environment) -> Sharding | None:
    """How a host array is cut if nothing but the array is known; None where it stays in one piece."""
    if node.pin is not None:
        return node.pin
    if node.ndim == 0 or (env.size == 1 and env.device == "cpu"):
        return None
    if node.nbytes <= limits_of(env).block:
        # What stays in this process is brought to a device by every plan anew.
        whole = env.device != "cpu" and node.nbytes > STAYS_NBYTES
        return Sharding.whole(env.mesh, node.ndim) if whole else None
    axis = next((a for a, n in enumerate(node.shape) if n >= env.size), node.shape.index(max(node.shape)))
    mesh = env.mesh
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
    cut = host_cut(node, node.env) if node.memo is not None and node.memo.on_client else None
    if cut is not None:
        with LOCK:
            _place(node, node.env, executor_for(node.env), cut)


def _place(node: Expr, env: Environment, executor: Any, cut: Sharding) -> None:
    """Cut a large host array into tiles: views of it in this process, blocks on the members of a cluster."""
    memo = node.memo
    assert memo is not None
    assert memo.on_client, "an array that is cut already is not cut again"
    array = memo.blocks[0]
    blocks = [_in_layout(array[cut.tile_slices(node.shape, t)], cut.layout) for t in cut.tiles()]
    members = [cut.member(t) for t in cut.tiles()]
    if env.is_cluster:
        run = f"{_process}-{next(_runs)}"
        keys = [(f"dx-source-{run}", 0, i) for i in range(len(blocks))]
        found = executor.put(dict(zip(keys, blocks, strict=True)), dict(zip(keys, members, strict=True)), env.device)
        stored: list[Any] = [found[k] for k in keys]
        keep_host(node, array)
    else:
        stored = [backend_for(env.device, m).adopt(b) for b, m in zip(blocks, members, strict=True)]
    node.memo = Stored(cut, stored, exported=memo.exported and not env.is_cluster, shared=frozenset())
    if memo.shared:
        node.memo.share()


def _in_layout(part: np.ndarray[Any, Any], layout: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """A part of a host array as a contiguous block with its axes in this order; itself if it is one."""
    ordered = part.transpose(layout)
    if ordered.flags.c_contiguous:
        return part
    return np.ascontiguousarray(ordered).transpose(sorted(range(part.ndim), key=layout.__getitem__))


def plan_of(
    targets: Sequence[Expr], stand_ins: Mapping[int, Expr] = MappingProxyType({})
) -> tuple[Plan, Graph, Environment]:
    """The plan of pending targets, made or from the cache; nothing runs. For `stand_ins` see `canonical`."""
    order = crossing.graph(targets)
    env = targets[0].env
    graph = canonical(order, {id(t) for t in targets}, context_of(env), stand_ins)
    return _found(graph, env), graph, env


def _settle(node: Expr) -> None:
    """Bring what a node needs of other environments to its own."""
    if crossing.are_pending():
        from distarray.runtime import crossings

        make_here([node])
        with locked():
            crossings.settle([node])


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
    _settle(node)
    for leaf in postorder([node]):
        if leaf.memo is not None and isinstance(leaf.memo.blocks, PromisedBlocks):
            leaf.memo.blocks.make_all()  # dask's graph is to hold what it reads
    if node.memo is not None:
        sharding, refs = node.memo.sharding, list(node.memo.blocks)
        node.memo.exported = True  # Dask may hand the blocks on
    else:
        with locked():
            _place_hosts(node)
            plan, nodes, env = plan_of([node])
            lowered = make_tasks(plan, nodes, env, run)
            for leaf in nodes.nodes:
                if leaf.memo is not None:
                    leaf.memo.exported = True  # the tasks have its blocks, for as long as somebody has the graph
        graph.update(lowered.tasks)
        for leaf in nodes.nodes:
            if leaf.memo is not None and env.is_cluster and not leaf.memo.on_client:
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


def _check_calls(lowered: Lowered, plan: Plan, graph: Graph, env: Environment) -> None:
    """Check that members can hold what tasks need of which nothing is kept."""
    if not is_limit_set() and not env.is_cluster:
        return
    found = peaks_of(lowered, graph, env)
    if (why := excess_of(found, env)) is not None:
        needed, stage = found.worst
        refuse(names_of(plan, graph.nodes, stage), needed, why)


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

    Raises
    ------
    MemoryBudgetError
        If members cannot hold what computing the blocks needs; then nothing has run.
    """
    env = node.env
    _settle(node)
    memo = node.memo
    if memo is not None and memo.on_client:
        (tile,) = memo.sharding.tiles()
        function(memo.blocks[0], *arguments(memo.sharding.tile_box(node.shape, tile)), env.device, 0)
        return
    executor = executor_for(env)
    make_here((node,))
    run = f"{_process}-{next(_runs)}"
    with locked():
        if memo is not None:
            lowered, sharding, refs, nodes = Lowered(), memo.sharding, list(memo.blocks), []
        else:
            _place_hosts(node)
            plan, graph, _ = plan_of([node])
            lowered, nodes = make_tasks(plan, graph, env, run), graph.nodes
            ((sharding, refs),) = lowered.outputs.values()
            check_whole_kernels(lowered.drafts, graph.nodes, memory_limit(env))
        tasks, members, calls = dict(lowered.tasks), dict(lowered.members), []
        for number, (tile, ref) in enumerate(zip(sharding.tiles(), refs, strict=True)):
            key = (f"dx-call-{run}", 0, number)
            member = sharding.member(tile)
            ref = TaskRef(getattr(ref, "key", ref)) if isinstance(ref, tuple) or hasattr(ref, "key") else ref
            tasks[key] = Task(key, function, ref, *arguments(sharding.tile_box(node.shape, tile)), env.device, member)
            members[key] = member
            calls.append(key)
        if memo is None:
            _check_calls(replace(lowered, tasks=tasks, members=members, outputs={}), plan, graph, env)
            _count(lowered)
        for c in counters.active:
            c.tasks += len(calls)
            c.by_class["call"] += len(calls)
        if env.is_cluster:
            whole = joined(nodes, tasks, members, calls)
            found = executor.submit(whole.tasks, whole.members, whole.keep)
            for blocks in whole.blocks:
                blocks.settle(found)
        else:
            executor.submit(tasks, members, calls, lowered.after)
            return
    executor.wait(found.values())
