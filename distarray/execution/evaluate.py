"""Evaluation: from pending nodes to stored blocks, in one atomic step.

`evaluate` collects what its targets need, keeps the results of all nodes that a live handle still refers to, and goes
one of two ways: arrays that are one small block each are plain calls (`interpret`); everything else is planned (or
its plan is found in the cache), lowered to tasks and handed to the executor of its team. Memos are set only when all of
it is submitted, so an interrupt leaves everything as it was.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
import uuid
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
from dask._task_spec import Alias, DataNode, Task, TaskRef

from distarray import config
from distarray.execution import counters
from distarray.execution.backends import backend_for
from distarray.execution.executors import ThreadExecutor
from distarray.execution.inside import is_inside_task
from distarray.execution.interpret import interpret
from distarray.execution.interrupts import interrupts_deferred
from distarray.execution.lower import Lowered, lower
from distarray.execution.memory import memory_limit, n_threads
from distarray.execution.tasks import warnings_gathered
from distarray.expr.expr import Environment, Expr, Stored, postorder
from distarray.planner.cache import LRUCache, PlanCacheInfo
from distarray.planner.graph import Graph, canonical
from distarray.planner.plan import Plan
from distarray.planner.propagation import Limits, propagate
from distarray.sharding.mesh import Mesh
from distarray.sharding.sharding import Sharding
from distarray.sharding.team import Team

__all__ = [
    "blocks_of",
    "evaluate",
    "fetch",
    "for_each_block",
    "graph_of",
    "place",
    "plan_cache_clear",
    "plan_cache_info",
    "plan_of",
]

LOCK = threading.RLock()
_PLANS: LRUCache[Plan] = LRUCache()
_runs = itertools.count()
_process = uuid.uuid4().hex[:8]
_executors: dict[int, ThreadExecutor] = {}
#: By client, then by team: two clients of one cluster make equal teams.
_cluster_executors: weakref.WeakKeyDictionary[Any, dict[Team, Any]] = weakref.WeakKeyDictionary()

#: Bytes up to which a result that was fetched from a cluster stays in this process.
STAYS_NBYTES = 64 << 10
#: Bytes of results per task below which tasks run one after the other in the calling thread.
INLINE_NBYTES = 32 << 10
#: Largest tile that the planner chooses by itself, as a part of the memory limit.
TILES_PER_LIMIT = 16


def plan_cache_info() -> PlanCacheInfo:
    """Hits, misses, maximal and current size of the plan cache."""
    return _PLANS.info()._replace(maxsize=config.get("plan-cache-size"))


def plan_cache_clear() -> None:
    """Forget all plans; arrays are not affected."""
    _PLANS.clear()


def is_cluster(env: Environment) -> bool:
    """Whether the members of an environment are workers of a Dask cluster."""
    return env.team is not None and env.team.client is not None


def executor_for(env: Environment) -> Any:
    """The executor of a team: the cluster's, or the threads of this process."""
    if is_cluster(env):
        assert env.team is not None
        client = env.team.client
        by_team = _cluster_executors.setdefault(client, {})
        executor = by_team.get(env.team)
        if executor is None:
            from distarray.execution.cluster import ClusterExecutor

            executor = by_team[env.team] = ClusterExecutor(client, env.team)
        return executor
    size = 1 if env.team is None or is_inside_task() else min(env.team.size, n_threads())
    executor = _executors.get(size)
    if executor is None:
        executor = _executors[size] = ThreadExecutor(size)
    return executor


if hasattr(os, "register_at_fork"):  # pools of threads do not survive a fork
    os.register_at_fork(after_in_child=_executors.clear)


def limits_of(env: Environment) -> Limits:
    """What bounds the size of tiles in an environment."""
    return Limits(config.get("block-bytes"), max(1 << 20, memory_limit(env) // TILES_PER_LIMIT))


# ------------------------------------------------------------------------------------------------- evaluate


def evaluate(targets: Sequence[Expr], others: Callable[[], Iterable[Expr]] = tuple) -> None:
    """Compute `targets`, and keep the results of all that they need and a live handle refers to.

    Parameters
    ----------
    targets
        Nodes; afterwards each has a memo.
    others
        Pending nodes that live handles refer to, anywhere: what they need is not overwritten. Called only if a write
        in place is possible.

    Raises
    ------
    Exception
        What a kernel raised, of its own class, with the operation and the user's line in its notes. Nothing is
        changed then.
    """
    # Inside a task everything is this task's own, and whoever waits for the task may hold the lock.
    inside = is_inside_task()
    with nullcontext() if inside else LOCK, nullcontext() if inside else warnings_gathered():
        by_env: dict[Environment, list[Expr]] = {}
        for t in targets:
            if t.memo is None:
                by_env.setdefault(t.env, []).append(t)
        for env, group in by_env.items():
            _evaluate(env, group, others)


def _evaluate(env: Environment, targets: Sequence[Expr], others: Callable[[], Iterable[Expr]]) -> None:
    order = postorder(targets)
    aimed = {id(t) for t in targets}
    wanted = aimed | _retained([n for n in order if n.memo is None and id(n) not in aimed], env)
    for c in counters.active:
        c.evaluations += 1
    if is_small(order, env):
        donated = _donated(order, others)
        with interrupts_deferred() if donated else nullcontext():
            values = interpret(order, wanted, donated)
            mesh = _mesh(env)
            for node in order:
                value = values.get(id(node))
                if value is not None and node.memo is None:
                    several = isinstance(value, tuple)
                    whole = _whole(mesh, 0 if several else len(node.shape))
                    node.settle(Stored(whole, value if several else (value,), on_client=True))
        for c in counters.active:
            c.inline += 1
        return
    executor = executor_for(env)
    for node in order:
        if node.memo is not None and node.memo.on_client:
            _place(node, env, executor)
    graph = canonical(order, wanted, _context(env))
    plan = _PLANS.get(graph.key, lambda: _plan(graph, env), config.get("plan-cache-size"))
    cluster = is_cluster(env)
    inplace = {} if cluster else _inplace(plan, graph, order, others)
    lowered = lower(plan, graph, env, f"{_process}-{next(_runs)}", inplace)
    _count(lowered)
    keep = [ref for _, refs in lowered.outputs.values() for ref in refs if isinstance(ref, tuple)]
    overwrites = any(graph.nodes[i].memo is not None for i in inplace.values())
    with interrupts_deferred() if overwrites else nullcontext():
        if cluster:
            found = executor.submit(lowered.tasks, lowered.members, keep)
        else:
            nbytes = sum(_nbytes(n) for n in order if n.memo is None)
            found = executor.submit(
                lowered.tasks, lowered.members, keep, lowered.after, nbytes < INLINE_NBYTES * len(lowered.tasks)
            )
        for i, (sharding, refs) in lowered.outputs.items():
            node = graph.nodes[i]
            if node.memo is None:
                node.settle(Stored(sharding, [found[r] if isinstance(r, tuple) else r for r in refs]))


def _retained(nodes: Sequence[Expr], env: Environment) -> set[int]:
    """Pending nodes whose results are kept although nobody asked for them: a live handle still refers to them.

    Never kept: lenses and constants. Always kept: written bases. The rest as long as it fits the memory limit; what a
    kernel makes from nothing goes first, then what is largest: a handle on an array larger than memory streams.
    """
    live = [n for n in nodes if n.is_live and not n.op.repeatable and n.op.kind != "get"]
    if not live or config.get("retain") == "none":
        return {id(n) for n in live if n.op.kind in ("put", "take_put")}
    room = memory_limit(env) * env.size // 2
    kept = set()
    for n in sorted(live, key=lambda n: (n.op.kind not in ("put", "take_put"), n.op.kind == "create", _nbytes(n))):
        room -= _nbytes(n)
        if room >= 0 or n.op.kind in ("put", "take_put"):
            kept.add(id(n))
    return kept


def _nbytes(node: Expr) -> int:
    if type(node.dtype) is tuple:
        shapes: Any = node.shape  # one for each result
        return sum(prod(s) * d.itemsize for s, d in zip(shapes, node.dtype, strict=True))
    return node.nbytes


def streams(node: Expr) -> bool:
    """Whether a pending result is computed anew wherever it is read rather than kept: it would not fit in memory."""
    if node.op.kind in ("put", "take_put"):
        return False
    return node.op.kind == "create" or _nbytes(node) > memory_limit(node.env) * node.env.size // 2


def _context(env: Environment) -> tuple[Any, ...]:
    limits = limits_of(env)
    return (limits, config.get("planner"), config.get("overlap"))


def _plan(graph: Graph, env: Environment) -> Plan:
    for c in counters.active:
        c.planner_calls += 1
    return propagate(graph, env, limits_of(env))


@lru_cache(maxsize=256)
def _whole(mesh: Mesh, ndim: int) -> Sharding:
    return Sharding.whole(mesh, ndim)


def _mesh(env: Environment) -> Mesh:
    return env.team.mesh if env.team is not None else Mesh((), ())


def is_small(order: Sequence[Expr], env: Environment) -> bool:
    """Whether every array is one block of at most ``block-bytes`` in this process: then there is nothing to plan."""
    if env.device != "cpu":
        return False
    limit = config.get("block-bytes")
    in_process = not is_cluster(env)
    for node in order:
        memo = node.memo
        if memo is not None:
            if node.pin is not None and memo.on_client and node.pin.n_tiles > 1:
                return False  # to be placed as the user asked
            if not memo.on_client and not (in_process and memo.sharding.n_tiles == 1):
                return False
            if type(memo.blocks[0]) is not np.ndarray:
                return False
        elif node.pin is not None and (node.pin.n_tiles > 1 or not in_process):
            return False
        if type(node.dtype) is tuple:
            if _nbytes(node) > limit:
                return False
        else:
            n = node.dtype.itemsize
            for s in node.shape:
                n *= s
            if n > limit and node.op.kind != "get":
                return False
    return True


def _donated(order: Sequence[Expr], others: Callable[[], Iterable[Expr]]) -> set[int]:
    """Memoised nodes whose blocks may be overwritten: nobody needs them afterwards, and nobody else has them."""
    if not all(_is_safe(n) for n in order if n.memo is None):
        return set()
    free = {id(n) for n in order if n.memo is not None and not n.is_live and _is_unshared(n.memo)}
    if free:
        here = {id(n) for n in order}
        pending = [n for n in others() if id(n) not in here and n.memo is None]
        if pending:
            free -= {id(n) for n in postorder(pending)}
    return free


def _is_unshared(memo: Stored) -> bool:
    """Whether the memo alone refers to its blocks: no view, no DLPack capsule, no piece of user code has them."""
    if memo.exported:
        return False
    for block in memo.blocks:
        # References: the sequence, the loop's name, the argument. A view of a block refers to the block, unless the
        # block is a view itself: then to its base, which is why such blocks count as shared.
        if type(block) is not np.ndarray or isinstance(block.base, np.ndarray) or sys.getrefcount(block) > 3:
            return False
        if not block.flags.writeable:
            return False
    return True


#: Families whose kernels cannot fail midway, so that a failed evaluation leaves all blocks as they were.
_SAFE = frozenset({"map", "reduce", "get", "put", "create", "reshape", "contract", "item"})


def _is_safe(node: Expr) -> bool:
    return (
        node.op.kind in _SAFE
        and not node.op.may_raise
        # what is made from more than the index, as a file's elements are, may not be there
        and (node.op.kind != "create" or node.op.repeatable)
        and (node.errstate is None or "raise" not in node.errstate)
        and not (node.op.name in ("pow", "power") and node.dtype.kind in "iu")
    )


def _inplace(plan: Plan, graph: Graph, order: Sequence[Expr], others: Callable[[], Iterable[Expr]]) -> dict[int, int]:
    """Results that may take over the blocks of a node that nobody reads afterwards: result -> that node.

    Writes take over their base, wherever it was made; other results the block of a donated operand.
    """
    donated = _donated(order, others)
    writes: dict[int, tuple[int, int]] = {}
    last: dict[int, int] = {}
    for number, stage in enumerate(plan.stages):
        for access in stage.reads:
            last[access.node] = number
        put = -1
        if stage.write is not None:
            put = stage.write[1]
        elif stage.kind == "take_put":
            put = stage.nodes[0]
        if put >= 0:
            base = graph.operands[put][0]
            assert base is not None
            last[base] = max(last.get(base, -1), number)
            writes[put] = (base, number)
    result: dict[int, int] = {}
    bases = Counter(base for base, _ in writes.values())
    for put, (base, number) in writes.items():
        node = graph.nodes[base]
        if last[base] > number or base in graph.kept or bases[base] > 1:
            continue
        if node.memo is None or id(node) in donated:
            result[put] = base
    taken = set(result.values())
    for number, stage in enumerate(plan.stages):
        if stage.kind != "program" or not stage.stores:
            continue
        readers = Counter(a.node for a in stage.reads)
        for _, i in stage.stores:
            for access in stage.reads:
                node = graph.nodes[access.node]
                if (
                    id(node) in donated
                    and node.memo is not None
                    and last[access.node] == number
                    and access.node not in taken
                    and readers[access.node] == 1
                    and not access.path
                    and node.shape == graph.nodes[i].shape
                    and node.dtype == graph.nodes[i].dtype
                ):
                    result[i] = access.node
                    taken.add(access.node)
                    break
    return result


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
    if node.memo is not None and node.memo.on_client:
        with LOCK:
            _place(node, node.env, executor_for(node.env))


def _place(node: Expr, env: Environment, executor: Any) -> None:
    """Cut a large host array into tiles: views of it in this process, blocks on the members of a cluster."""
    memo = node.memo
    assert memo is not None
    limits = limits_of(env)
    pin = node.pin
    if pin is None:
        if node.nbytes <= limits.block or node.ndim == 0 or (env.size == 1 and env.device == "cpu"):
            return
        axis = next((a for a, n in enumerate(node.shape) if n >= env.size), int(np.argmax(node.shape)))
        mesh = _mesh(env)
        axes: list[tuple[str, ...]] = [()] * node.ndim
        axes[axis] = tuple(reversed(mesh.names))
        pin = Sharding(mesh, tuple(axes))
    array = memo.blocks[0]
    blocks = [array[pin.tile_slices(node.shape, t)] for t in pin.tiles()]
    members = [pin.member(t) for t in pin.tiles()]
    if is_cluster(env):
        run = f"{_process}-{next(_runs)}"
        keys = [(f"dx-source-{run}", 0, i) for i in range(len(blocks))]
        found = executor.put(
            {k: np.ascontiguousarray(b) for k, b in zip(keys, blocks, strict=True)},
            dict(zip(keys, members, strict=True)),
        )
        stored: list[Any] = [found[k] for k in keys]
    else:
        stored = [
            backend_for(env.device, m).adopt(b if b.flags.c_contiguous else np.ascontiguousarray(b))
            for b, m in zip(blocks, members, strict=True)
        ]
    node.memo = Stored(pin, stored, exported=memo.exported)


# ---------------------------------------------------------------------------------------------- observations


def blocks_of(node: Expr) -> Sequence[Any]:
    """The stored blocks of an evaluated node, row-major: arrays in process, Futures on a cluster."""
    assert node.memo is not None
    return node.memo.blocks


def fetch(node: Expr) -> np.ndarray[Any, Any]:
    """An evaluated node as one host array that the caller owns."""
    memo = node.memo
    assert memo is not None
    for c in counters.active:
        c.fetched_bytes += node.nbytes
    if memo.on_client:
        return np.array(memo.blocks[0], copy=True)
    tiles = list(memo.sharding.tiles())
    found = fetch_blocks(node, range(len(tiles)))
    if len(tiles) == 1:
        if is_cluster(node.env) and node.env.device == "cpu" and node.nbytes <= STAYS_NBYTES:
            # what is small and was brought here stays here, and travels with the plans that use it
            node.memo = Stored(memo.sharding, (found[0],), on_client=True)
        return np.array(found[0], copy=True)
    out = np.empty(node.shape, node.dtype)
    for t, block in zip(tiles, found, strict=True):
        out[memo.sharding.tile_slices(node.shape, t)] = block
    return out


def wait_for(nodes: Iterable[Expr]) -> None:
    """Wait until the blocks of evaluated nodes are there."""
    by_env: dict[Environment, list[Any]] = {}
    for node in nodes:
        if node.memo is not None and is_cluster(node.env) and not node.memo.on_client:
            by_env.setdefault(node.env, []).extend(b for b in node.memo.blocks if not isinstance(b, np.ndarray))
    for env, futures in by_env.items():
        executor_for(env).wait(futures)


def fetch_blocks(node: Expr, numbers: Iterable[int]) -> list[np.ndarray[Any, Any]]:
    """Some blocks of an evaluated node as host arrays; not copied where they are in this process."""
    memo = node.memo
    assert memo is not None
    blocks = [memo.blocks[i] for i in numbers]
    if is_cluster(node.env) and not memo.on_client:
        remote = [i for i, b in enumerate(blocks) if not isinstance(b, np.ndarray)]
        arrived = executor_for(node.env).fetch([blocks[i] for i in remote])
        for i, b in zip(remote, arrived, strict=True):
            blocks[i] = b
    return [b if isinstance(b, np.ndarray) else backend_for(node.env.device, 0).to_host(b) for b in blocks]


def plan_of(targets: Sequence[Expr]) -> tuple[Plan, Graph, Environment]:
    """The plan of pending targets, made or from the cache; nothing runs."""
    order = postorder(targets)
    env = targets[0].env
    graph = canonical(order, {id(t) for t in targets}, _context(env))
    plan = _PLANS.get(graph.key, lambda: _plan(graph, env), config.get("plan-cache-size"))
    return plan, graph, env


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
        plan, nodes, env = plan_of([node])
        lowered = lower(plan, nodes, env, run)
        graph.update(lowered.tasks)
        for leaf in nodes.nodes:
            if leaf.memo is not None and is_cluster(env) and not leaf.memo.on_client:
                graph.update({b.key: b for b in leaf.memo.blocks if not isinstance(b, np.ndarray)})
        ((sharding, refs),) = lowered.outputs.values()
    for tile, ref in zip(sharding.tiles(), refs, strict=True):
        key = (name, *tile)
        if isinstance(ref, tuple):
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
            for leaf in postorder([node]):
                if leaf.memo is not None and leaf.memo.on_client:
                    _place(leaf, env, executor)
            plan, graph, _ = plan_of([node])
            lowered = lower(plan, graph, env, run)
            ((sharding, refs),) = lowered.outputs.values()
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
