"""Tasks for others: graphs of Dask collections, and calls of a function on each block, as writers of files need."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from dask._task_spec import Alias, DataNode, Task

from distarray.expr import crossing
from distarray.expr.expr import Expr, postorder
from distarray.lower.calls import calling, of_blocks
from distarray.lower.liveness import Liveness
from distarray.lower.template import Template
from distarray.planner.graph import Graph, canonical
from distarray.planner.plan import UNBOUNDED
from distarray.runtime import counters, flights
from distarray.runtime.arrivals import in_event_loop
from distarray.runtime.budget import check_whole_kernels, excess_of, names_of, refuse
from distarray.runtime.bundles import futures_behind
from distarray.runtime.evaluate import settle
from distarray.runtime.held import peaks_of
from distarray.runtime.hosts import place
from distarray.runtime.instantiate import Instance
from distarray.runtime.member_runs import programs_of
from distarray.runtime.members import executor_for, locked
from distarray.runtime.planning import context_of, is_ample
from distarray.runtime.prepare import Prepared, prepare
from distarray.runtime.promised import PromisedBlocks, make_here
from distarray.runtime.run_names import new_run
from distarray.runtime.running import count, run_here, sent
from distarray.runtime.task_graph import taken_out
from distarray.sharding.sharding import Sharding


def graph_of(node: Expr) -> tuple[str, dict[Any, Any], Sharding]:
    """Return a Dask graph that computes one node and changes no handle: versions are pinned, nothing is donated or
    kept.

    Returns
    -------
    name
        The results have the keys ``(name, *tile)``.
    graph
        Nodes of ``dask._task_spec`` by key, and Futures under their own keys.
    sharding
        How the results tile the array.
    """
    run = new_run()
    # Not the name of its tasks, whose keys have a step and a number where results have a tile.
    name = f"dx-array-{run}"
    graph: dict[Any, Any] = {}
    _settle(node)
    for leaf in postorder([node]):
        if leaf.memo is not None and isinstance(leaf.memo.blocks, PromisedBlocks):
            leaf.memo.blocks.make_all()  # dask's graph is to hold what it reads
    if node.env.is_cluster and not in_event_loop():
        place(node)  # one task would have all of it
    if node.memo is not None:
        sharding = node.memo.sharding
        refs = list(node.memo.blocks)[: sharding.n_tiles]
        node.memo.exported = True  # Dask may hand the blocks on
    else:
        with locked():
            order = postorder([node])
            if flights.wait_for(order, node.env):
                return graph_of(node)
            found = prepare(order, {id(node)}, node.env, is_checked=False, is_kept=False)
            # Dask may use a block and drop it
            found, instance = _taken_along(found, lambda now: now.instance(run), is_run_here=False)
            lowered = instance.lowered
            for leaf in found.graph.nodes:
                if leaf.memo is not None:
                    leaf.memo.exported = True  # the tasks have its blocks, for as long as somebody has the graph
        graph.update(lowered.tasks)
        for leaf in found.graph.nodes:
            if leaf.memo is not None and found.env.is_cluster and not leaf.memo.on_client:
                graph.update(_read_by_others(leaf.memo.blocks))
        ((sharding, refs, _),) = lowered.outputs.values()
        refs = refs[: sharding.n_tiles]
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
            graph.update(_read_by_others((ref,)))
            graph[key] = Alias(key, target=ref.key)
        else:
            graph[key] = DataNode(key, ref)
    return name, graph, sharding


def _read_by_others(blocks: Iterable[Any]) -> dict[Any, Any]:
    """Return the part of a graph by which Dask has blocks of a cluster, under their keys: Futures, and tasks that take
    tiles out of bundles.
    """
    here = [block for block in blocks if not isinstance(block, np.ndarray)]
    futures = {future.key: future for future in futures_behind(here)}
    return {**futures, **taken_out([block.key for block in here])}


def excess_of_whole(node: Expr) -> str | None:
    """Return why one worker cannot put the whole array of a node together, as Dask has it done; None if it can.

    It holds all blocks and the array beside what lies there.
    """
    if not node.env.is_cluster:
        return None
    held = max(executor_for(node.env).held().values(), default=0)
    made = 0 if node.memo is not None else node.nbytes // node.env.size
    used = 2 * node.nbytes
    return excess_of(Liveness({}, {0: held + made + used}, {}, {0: (node.nbytes, used)}, {}), node.env)


def for_each_block(
    node: Expr,
    function: Callable[..., Any],
    arguments: Callable[[tuple[tuple[int, int], ...]], tuple[Any, ...]],
    *,
    is_checked_only: bool = False,
) -> tuple[Sharding, list[Any]]:
    """Call a function with each block of a node where the block lies, and wait until all calls are over.

    A pending node is computed for it and not kept: each block is freed as soon as the function has had it.

    Parameters
    ----------
    function
        Called as ``function(block, *arguments(box), device, member)``, box: (start, stop) per axis; more than once for
        a block if its member is lost. It must not keep or write the block.
    is_checked_only
        Whether nothing is called: what would be refused is.

    Returns
    -------
    sharding
        What the blocks were: how they tile the array.
    found
        What the function returned for each, row-major; brought here.

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
        box = memo.sharding.tile_box(node.shape, tile)
        return memo.sharding, [] if is_checked_only else [function(memo.blocks[0], *arguments(box), env.device, 0)]
    make_here((node,))
    run = new_run()

    def with_calls(graph: Graph, template: Template) -> Instance:
        """Return a run that makes blocks, and calls the function with them; no block is kept."""
        ((sharding, *_),) = template.lowered.outputs.values()
        calls = [arguments(sharding.tile_box(node.shape, tile)) for tile in sharding.tiles()]
        return Instance(calling(template, function, calls, env.device), graph, env, run)

    with locked():
        if memo is not None:
            instance = with_calls(canonical((node,), set(), context_of(env)), of_blocks(memo.sharding))
        else:
            order = postorder([node])
            if flights.wait_for(order, env):
                return for_each_block(node, function, arguments, is_checked_only=is_checked_only)
            found = prepare(order, {id(node)}, env, is_checked=False, is_kept=False)
            found, instance = _taken_along(
                found, lambda now: with_calls(now.graph, now.instance(run).template), is_run_here=True
            )
            if counters.active:
                count(found.lowered(run))
        ((sharding, keys, _),) = instance.outputs.values()
        if is_checked_only:
            return sharding, []
        counters.count_tasks("call", len(keys))
        if not env.is_cluster:
            results = run_here(instance, UNBOUNDED)
            return sharding, [results[key] for key in keys]
        ((_, stored),) = sent(instance)
    return sharding, executor_for(env).fetch(list(stored.blocks))


def _taken_along(
    found: Prepared, instance_of: Callable[[Prepared], Instance], *, is_run_here: bool
) -> tuple[Prepared, Instance]:
    """Return an evaluation with its host data sent, and its run.

    Parameters
    ----------
    instance_of
        Makes the run; its results are not kept.
    is_run_here
        Whether it is sent by us, maybe as programs. Dask runs it as tasks.

    Raises
    ------
    MemoryBudgetError
        If members cannot hold what the tasks need, even if no result is kept; then nothing was sent.
    """
    plan, graph, env = found.plan, found.graph, found.env
    instance = instance_of(found)
    check_whole_kernels(instance.template.lowered.drafts, graph.nodes, env)
    if not (is_ample(graph.nodes, env) or (is_run_here and programs_of(instance) is not None)):
        held = peaks_of(replace(instance.lowered, outputs={}), graph, env)
        if (why := excess_of(held, env)) is not None:
            needed, stage = held.worst
            refuse(names_of(plan, graph.nodes, stage), needed, why)
    if not found.cuts:
        return found, instance
    found = found.sent()
    return found, instance_of(found)


def _settle(node: Expr) -> None:
    """Bring what a node needs of other environments to its own."""
    if crossing.are_pending():
        make_here([node])
        with locked():
            settle([node])
