"""Host data of large arrays: how they are cut before their first use, and how they come to the members."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
from dask._task_spec import Task, TaskRef

from distarray import config
from distarray.caches import LRUCache
from distarray.expr.expr import Environment, Expr, Stored
from distarray.kernels.devices import backend_for
from distarray.kernels.loans import is_lent
from distarray.kernels.tasks import kept
from distarray.lower.liveness import Liveness
from distarray.lower.messages import Key
from distarray.lower.recipes import unsent_blocks
from distarray.lower.template import Lowered
from distarray.planner.cache import PLANS
from distarray.planner.graph import Graph, canonical
from distarray.planner.plan import Plan
from distarray.runtime import counters
from distarray.runtime.budget import excess_of, refuse
from distarray.runtime.held import peaks_of
from distarray.runtime.members import LOCK, executor_for
from distarray.runtime.planning import (
    USES_BEFORE_SEARCH,
    context_of,
    fit_to_memory,
    is_ample,
    limits_of,
    plan_with_inputs,
    uses_of,
)
from distarray.runtime.reading import STAYS_NBYTES
from distarray.runtime.rehome import keep_host
from distarray.runtime.run_names import new_run
from distarray.sharding.dealing import dealt, n_elements
from distarray.sharding.sharding import Sharding

#: Plans with the cuts of host arrays, by their numbers and the key that the graph would have with the default cuts.
_INPUTS: LRUCache[tuple[Plan, Mapping[int, Sharding]]] = LRUCache()


def host_cuts(
    order: Sequence[Expr],
    wanted: Collection[int],
    env: Environment,
    stand_ins: Mapping[int, Expr] = MappingProxyType({}),
) -> dict[int, Sharding]:
    """Return how large host arrays are cut before their first use, by ``id``: as the user asked, else as suits what is
    run.
    """
    hosts = [n for n in order if n.memo is not None and n.memo.on_client]
    cuts = {id(n): cut for n in hosts if (cut := host_cut(n, env)) is not None}
    free = [n for n in hosts if n.pin is None and id(n) in cuts]
    if not free or env.size == 1 or config.get("planner") == "propagation" or len(cuts) == len(order):
        return cuts
    graph = graph_as_cut(order, wanted, env, stand_ins, cuts)
    number = {id(n): i for i, n in enumerate(order)}
    inputs = {number[id(n)]: cuts[id(n)] for n in free}
    n_kept = config.get("plan-cache-size")
    # What lies already in the default cut stays so: graphs of the same key have other arrays that are still to be cut.
    key = graph.key, tuple(inputs)
    plan, chosen = _INPUTS.get(key, lambda: plan_with_inputs(graph, env, inputs), n_kept)

    def fitting(plan: Plan, chosen: Mapping[int, Sharding]) -> tuple[dict[int, Sharding], Plan]:
        """Return the cuts that a plan chose, and it as it fits: it is that of the arrays cut so."""
        as_chosen = {**cuts, **{id(order[i]): cut for i, cut in chosen.items()}}
        graph = graph_as_cut(order, wanted, env, stand_ins, as_chosen)
        return as_chosen, PLANS.get(graph.key, lambda: fit_to_memory(plan, graph, env), n_kept)

    found, fitted = fitting(plan, chosen)
    if plan.is_provisional and uses_of(graph)[0] >= USES_BEFORE_SEARCH:
        again, chosen_again = plan_with_inputs(graph, env, inputs, "again")
        other, fitted_again = fitting(again, chosen_again)
        # See `found_plan`.
        if fitted_again.above is None or fitted.above is not None:
            found, plan, chosen = other, again, chosen_again
        _INPUTS.put(key, (replace(plan, is_provisional=False), chosen), n_kept)
    return found


def graph_as_cut(
    order: Sequence[Expr],
    wanted: Collection[int],
    env: Environment,
    stand_ins: Mapping[int, Expr],
    cuts: Mapping[int, Sharding],
) -> Graph:
    """Return the graph of nodes as it is planned, with host arrays that are cut."""
    hosts = [n for n in order if id(n) in cuts]
    return canonical(order, wanted, context_of(env), {**stand_ins, **as_cut(hosts, cuts)})


def as_cut(hosts: Sequence[Expr], cuts: Mapping[int, Sharding]) -> dict[int, Expr]:
    """Return what is planned in the place of host arrays before they are cut: nodes that lie so, with keys for their
    tiles.
    """
    found = {}
    for number, node in enumerate(hosts):
        cut = cuts[id(node)]
        found[id(node)] = there = Expr(node.op, (), node.shape, node.dtype, node.env, pin=node.pin)
        there.memo = Stored(cut, unsent_blocks(cut, number))
    return found


def host_cut(node: Expr, env: Environment) -> Sharding | None:
    """Return how a host array is cut if nothing but the array is known; None where it stays in one piece."""
    if node.pin is not None:
        return node.pin if env.is_cluster else node.pin.with_copies(False)
    if node.ndim == 0 or (env.size == 1 and env.device == "cpu" and not env.is_cluster):
        return None
    if not env.is_cluster and is_lent(node.stored.blocks[0], to_write=True):
        return None  # parts could be copies, which what is written to the whole would not reach
    if node.nbytes <= limits_of(env).block:
        # What stays in this process is brought to a device by every plan anew.
        whole = env.device != "cpu" and node.nbytes > STAYS_NBYTES
        return Sharding.whole(env.mesh, node.ndim) if whole else None
    axis = next((a for a, n in enumerate(node.shape) if n >= env.size), node.shape.index(max(node.shape)))
    mesh = env.mesh
    return Sharding(mesh, tuple([tuple(reversed(mesh.names)) if a == axis else () for a in range(node.ndim)]))


def place(node: Expr) -> None:
    """Bring host data of an evaluated node to the members that are to hold its parts, as its first use would."""
    if node.memo is None or not node.memo.on_client:
        return
    with LOCK:
        # Another thread may have brought them meanwhile.
        cut = host_cut(node, node.env) if node.memo.on_client else None
        if cut is not None:
            check_room([*as_cut([node], {id(node): cut}).values()], node.env)
            put([node], {id(node): cut})


def check_room(coming: Sequence[Expr], env: Environment) -> None:
    """Check that the workers of a cluster can hold host arrays (`as_cut`), and the copies of them, before any is sent.

    What is computed with them is checked by its plan, which includes this (`prepare`).

    Raises
    ------
    MemoryBudgetError
        If they cannot.
    """
    if not env.is_cluster or is_ample(coming, env):
        return
    found = _when_come(coming, env)
    if (why := excess_of(found, env)) is not None:
        refuse("asarray", found.worst[0], why)


def _when_come(coming: Sequence[Expr], env: Environment) -> Liveness:
    """Return what the workers of a cluster hold when host arrays have come."""
    return peaks_of(Lowered(), Graph([*coming], [()] * len(coming), frozenset(), ()), env)


def put(hosts: Sequence[Expr], cuts: Mapping[int, Sharding]) -> None:
    """Cut large host arrays into tiles: views of them in this process, blocks on the members of a cluster.

    The largest comes first, as `liveness` counts them.
    """
    for node in sorted(hosts, key=lambda node: -node.nbytes):
        _put_one(node, cuts[id(node)])


def _put_one(node: Expr, cut: Sharding) -> None:
    memo, env = node.stored, node.env
    assert memo.on_client, "an array that is cut already is not cut again"
    array = memo.blocks[0]
    blocks = [_in_layout(cut.tile_of(array, t), cut.layout) for t in cut.tiles()]
    members = [cut.member(t) for t in cut.tiles()]
    if env.is_cluster:
        run = new_run()
        keys = [(f"dx-source-{run}", 0, i) for i in range(len(blocks))]
        if counters.active:
            peak = _when_come([*as_cut([node], {id(node): cut}).values()], env).worst[0]
            for c in counters.active:
                c.predicted_peak = max(c.predicted_peak, peak)
        at = dict(zip(keys, members, strict=True))
        futures = executor_for(env).put(dict(zip(keys, blocks, strict=True)), at, env.device)
        stored: list[Any] = [*[futures[k] for k in keys], *_copied(keys, cut, node, env)]
        keep_host(node, array)
    else:
        stored = [backend_for(env.device, m).adopt(b) for b, m in zip(blocks, members, strict=True)]
    node.memo = Stored(cut, stored, exported=memo.exported and not env.is_cluster, shared=frozenset())
    if memo.shared:
        node.memo.share()


def _copied(keys: Sequence[Key], cut: Sharding, node: Expr, env: Environment) -> list[Any]:
    """Return what stands for the copies of blocks that members are sent, from one worker to the other."""
    found, sizes = dealt(cut), n_elements(cut, node.shape)
    tasks, members, nbytes = {}, {}, {}
    for (number, member), block in found.copies.items():
        key = (*keys[number][:2], block)
        tasks[key] = Task(key, kept, env.device, member, TaskRef(keys[number]))
        members[key], nbytes[key] = member, sizes[block] * node.dtype.itemsize
    return list(executor_for(env).submit(tasks, members, list(tasks), nbytes).values()) if tasks else []


def _in_layout(part: np.ndarray[Any, Any], layout: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Return a part of a host array as a contiguous block with its axes in this order; itself if it is one."""
    ordered = part.transpose(layout)
    if ordered.flags.c_contiguous:
        return part
    return np.ascontiguousarray(ordered).transpose(sorted(range(part.ndim), key=layout.__getitem__))
