"""What an evaluation would do, counted stage by stage without doing it.

`rehearse` goes the way of `runtime.evaluate` up to the tasks: the same results kept, the same plan (from the same
cache), the same writes in place, the same lowering. It changes no node, sends nothing and runs nothing. Bytes and
messages are therefore those of the tasks that would be handed to the executor; they are estimates only where positions
that are not known yet say which elements are sent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from types import MappingProxyType

import numpy as np

from distarray.expr.expr import Environment, Expr, Others
from distarray.lower.footprint import least_moved
from distarray.lower.liveness import Liveness
from distarray.lower.records import Draft
from distarray.lower.template import Lowered
from distarray.planner.cache import plan_cache_info
from distarray.planner.graph import Graph
from distarray.planner.partition.resolved import PartitionProblem, ResolvedStages
from distarray.planner.partition.translation import stage_bound
from distarray.planner.plan import Stage
from distarray.planner.shardings import combined_sharding, result_sharding
from distarray.runtime import members, planning, prepare
from distarray.runtime.crossings import foreseen
from distarray.runtime.instantiate import Instance
from distarray.runtime.known_rates import rates_for
from distarray.runtime.member_runs import memory_of, programs_of
from distarray.sharding.boxes import Box, size, union
from distarray.sharding.sharding import Sharding


@dataclass(frozen=True, slots=True)
class StageTraffic:
    """A StageTraffic is the bytes of one stage, summed over members.

    Parameters
    ----------
    read
        Elements of stored arrays that its tiles read, each once per tile.
    moved, messages
        What is sent for it. A piece that a later stage needs too is sent, and counted, once: with the first.
    lower_bound
        What must be sent at least: per member, what it needs, less what it holds or has received before; and for each
        tile of a reduction one partial result from each member but one. Which elements integer positions name is not
        known before, so it has nothing for these.
    written
        Results that it stores.
    """

    read: int
    moved: int
    messages: int
    lower_bound: int
    written: int


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """A Rehearsal is a plan lowered for the nodes at hand, and what it amounts to.

    Parameters
    ----------
    prepared, instance
        The plan, and the tasks.
    from_cache
        Whether the plan was there before.
    traffic
        By number of the stage.
    memory
        See `Liveness`.
    host_bytes
        Data of this process that travel to the members of a cluster.
    placed
        What the planner's model says of it.
    products_bound
        Bytes that products must move at least, however they are cut.
    n_programs
        Member programs that it would run as; 0 where each task is one of Dask.
    """

    prepared: prepare.Prepared
    instance: Instance
    from_cache: bool
    traffic: tuple[StageTraffic, ...]
    memory: Liveness
    host_bytes: int
    placed: ResolvedStages
    products_bound: float
    n_programs: int


def rehearse(
    targets: Sequence[Expr],
    env: Environment,
    others: Others = tuple,
    stand_ins: Mapping[int, Expr] = MappingProxyType({}),
) -> Rehearsal | None:
    """Plan and lower `targets` without running anything; None if there is nothing to plan because all is small.

    The caller holds the lock of evaluations: nodes that another thread evaluates forget what they were made of.

    Parameters
    ----------
    targets
        Pending nodes of one environment.
    env
        Their environment.
    stand_ins
        Of what is to come from other environments: see `crossings.foreseen`.
    """
    misses = plan_cache_info().misses
    found = prepare.rehearsed(targets, stand_ins, others)
    if found is None:
        return None
    from_cache = plan_cache_info().misses == misses
    prepared, instance = found
    plan, graph, lowered = prepared.plan, prepared.graph, instance.lowered
    host_bytes = 0
    if env.is_cluster:
        in_tasks = sum(a.nbytes for task in lowered.tasks.values() for a in task.args if isinstance(a, np.ndarray))
        host_bytes = in_tasks + sum(n.nbytes for n in prepared.hosts)
    programs = programs_of(instance, others)
    # As the planner counts what it compares: by the types that arrays have, or will have before it runs.
    problem = PartitionProblem(graph, env.mesh, planning.limits_of(env), rates_for(env), plan.stages)
    return Rehearsal(
        prepared,
        instance,
        from_cache,
        traffic_of(lowered, graph, is_cluster=env.is_cluster),
        memory_of(instance, programs),
        host_bytes,
        problem.place(plan.stages),
        sum([stage_bound(facts, env.size) for facts in problem.facts]),
        0 if programs is None else len(programs.by_member),
    )


def planned_sharding(node: Expr, env: Environment) -> Sharding:
    """Return how a pending node will lie, by the plan that would compute it now."""
    with members.locked():
        known = foreseen([node]).stand_ins
        if id(node) in known:
            memo = known[id(node)].stored
            return memo.sharding
        found = prepare.rehearsed([node], known)
        if found is None:
            return Sharding.whole(env.mesh, node.ndim)
        # Operands come before users, and nothing but the node itself was asked for.
        prepared, instance = found
        return instance.outputs[len(prepared.graph.nodes) - 1].sharding


# -- bytes ------------------------------------------------------------------------------------------------------


def traffic_of(lowered: Lowered, graph: Graph, *, is_cluster: bool) -> tuple[StageTraffic, ...]:
    """Return the bytes of each stage of tasks that would run."""
    moved: Counter[int] = Counter()
    messages: Counter[int] = Counter()
    for t in lowered.transfers:
        moved[t.stage] += t.nbytes
        messages[t.stage] += 1
    arrived: dict[tuple[int, int, int], list[Box]] = {}
    return tuple(
        StageTraffic(
            _read(draft, graph),
            moved[number],
            messages[number],
            _least_moved(draft, graph, arrived, is_cluster=is_cluster),
            _written(draft, graph),
        )
        for number, draft in enumerate(lowered.drafts)
    )


def _least_moved(
    draft: Draft, graph: Graph, arrived: dict[tuple[int, int, int], list[Box]], *, is_cluster: bool
) -> int:
    if draft.moves is not None:  # in one process its tiles are sliced out of the blocks of others where these lie
        return least_moved(draft.moves) if is_cluster else 0
    return _new_bytes(draft, graph, arrived) + _combined_bytes(draft, graph)


def _itemsize(graph: Graph, i: int) -> int:
    itemsize: int = graph.nodes[i].dtype.itemsize
    return itemsize


def _read(draft: Draft, graph: Graph) -> int:
    if draft.moves is not None:
        return graph.nodes[draft.moves.node].nbytes
    total = 0
    is_gather = draft.stage.family.is_gather
    if is_gather:  # of its source a tile has the elements that it is made of, whatever boxes they are looked for in
        total += sum([size(tile.box) for tile in draft.tiles]) * _itemsize(graph, draft.stage.nodes[0])
    for wants in draft.wants_of_tasks():
        boxes: dict[tuple[int, int], list[Box]] = {}
        for want in wants[1:] if is_gather else wants:
            if want.node < 0:
                continue  # created where it is read
            if not want.fragments and all(want.box):
                boxes.setdefault((want.node, -1), []).append(want.lens.source_box(want.box))
            for _, number, source, _ in want.fragments:
                boxes.setdefault((want.node, number), []).append(source)
        total += sum(sum(map(size, union(b))) * _itemsize(graph, node) for (node, _), b in boxes.items())
    return total


def _new_bytes(draft: Draft, graph: Graph, arrived: dict[tuple[int, int, int], list[Box]]) -> int:
    """Return the bytes that members need of others' tiles and have not received for an earlier stage; extends
    `arrived`.
    """
    needed: dict[tuple[int, int, int], list[Box]] = {}
    for wants in draft.wants_of_tasks():
        for want in wants:
            for _, number, source, _ in want.fragments:
                if number in want.parcelled:
                    needed.setdefault((want.node, number, want.member), []).append(source)
    total = 0
    for at, boxes in needed.items():
        before = arrived.get(at, [])
        after = union([*before, *boxes])
        total += (sum(map(size, after)) - sum(map(size, before))) * _itemsize(graph, at[0])
        arrived[at] = after
    return total


def _combined_bytes(draft: Draft, graph: Graph) -> int:
    """Return the bytes of the partial results that must travel to be combined."""
    stage, loops = draft.stage, draft.loops
    total = 0
    for c in stage.combines:
        keepdims = graph.nodes[c.node].params.keepdims
        kept = [a for a in range(len(loops.extents)) if a not in c.axes]
        result = combined_sharding(draft.sharding, c.axes, keepdims=keepdims)
        total += _gathered(draft, graph, c.node, kept, result, c.axes if keepdims else ())
    if stage.family.is_summed and loops.reduced:
        kept = list(loops.results[0])
        total += _gathered(draft, graph, stage.nodes[0], kept, result_sharding(draft.sharding, kept), ())
    return total


def _gathered(draft: Draft, graph: Graph, i: int, kept: Sequence[int], result: Sharding, ones: Sequence[int]) -> int:
    members: dict[tuple[int, ...], set[int]] = {}
    sizes: dict[tuple[int, ...], int] = {}
    for tile in draft.tiles:
        if not all(tile.box):
            continue
        index = tuple(0 if a in ones else tile.index[a] for a in (sorted([*kept, *ones]) if ones else kept))
        members.setdefault(index, {result.member(index)}).add(tile.member)
        sizes[index] = prod(len(tile.box[a]) for a in kept)
    return sum((len(m) - 1) * sizes[index] for index, m in members.items()) * _itemsize(graph, i)


def _written(draft: Draft, graph: Graph) -> int:
    stage: Stage = draft.stage
    if stage.family.is_item:
        return 0
    if stage.family.is_write:
        n = sum(size(source.box) for sources in draft.sources for source in sources)
        return n * _itemsize(graph, stage.nodes[0])
    if not stage.family.is_fused:
        return graph.nodes[stage.nodes[0]].nbytes
    total = sum(graph.nodes[i].nbytes for _, i in stage.stores)
    total += sum(graph.nodes[c.node].nbytes for c in stage.combines)
    if stage.write is not None:
        total += prod(draft.loops.extents) * _itemsize(graph, stage.written)
    return total
