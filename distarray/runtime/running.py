"""Evaluations that run by tasks: planned, held against the memory of members, lowered and handed to an executor.

Loaded when the first arrays come that are more than one small block each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from dask._task_spec import TaskRef

from distarray import config
from distarray.expr.expr import Environment, Expr, Others, Stored
from distarray.kernels.devices import hold_pools
from distarray.kernels.stores import places_read
from distarray.lower.bundling import Output
from distarray.lower.credits import Programs
from distarray.lower.template import Lowered
from distarray.runtime import counters, metering
from distarray.runtime.budget import check_held, check_whole_kernels
from distarray.runtime.clients import process_threads
from distarray.runtime.clocks import measurement, timed, with_clocks
from distarray.runtime.donation import commit
from distarray.runtime.executors import run_program
from distarray.runtime.flights import Flight
from distarray.runtime.held import most_held
from distarray.runtime.instantiate import Instance, instance_of
from distarray.runtime.interrupts import interrupts_deferred
from distarray.runtime.member_runs import kept_sizes, memory_of, programs_of
from distarray.runtime.members import executor_for
from distarray.runtime.memory import COPIES, is_limit_set, memory_limit
from distarray.runtime.passes import pass_of
from distarray.runtime.planning import uses_of
from distarray.runtime.prepare import Prepared, prepare, taken_over
from distarray.runtime.progress import planning
from distarray.runtime.promised import joined
from distarray.runtime.run_names import new_run
from distarray.runtime.task_graph import MemberRun, label_of

#: Bytes that are read and made per step below which steps run one after the other in the calling thread.
INLINE_NBYTES = 32 << 10


def begun(env: Environment, order: Sequence[Expr], wanted: set[int], others: Others) -> Flight | None:
    """Plan the evaluation of nodes of one environment; hand it to a cluster, or return it as what is to run here.

    Parameters
    ----------
    order, wanted
        See `Prepared`.
    """
    check_held([n for n in order if n.memo is None], wanted)
    found = prepare(order, wanted, env, others=others).sent()
    plan, graph = found.plan, found.graph
    if plan.is_provisional:
        uses_of(graph)[0] += 1
    cluster = env.is_cluster
    inplace = taken_over(plan, graph, env, order, others)
    instance = instance_to_run(found, inplace, others)
    taken = {id(graph.nodes[i]) for i in inplace.values()}
    if cluster:
        # Handing tasks to a cluster takes no time, and an interrupt would leave half of its Futures.
        with interrupts_deferred():
            commit(handed_out(instance, others), order, taken)
        return None
    nbytes = sum([n.nbytes for n in order])
    return Flight(
        order,
        lambda: handed_out(instance, others, nbytes),
        lambda results: commit(results, order, taken),
        overwrites=any(graph.nodes[i].memo is not None for i in inplace.values()),
    )


def instance_to_run(
    found: Prepared, inplace: Mapping[int, int] = MappingProxyType({}), others: Others = tuple
) -> Instance:
    """Return the run of an evaluation that is to begin now, counted; for `inplace` see `lower`."""
    graph, env = found.graph, found.env
    with planning():
        instance = instance_of(found.plan, graph, env, new_run(), inplace)
    check_whole_kernels(instance.template.lowered.drafts, graph.nodes, env)
    if counters.active:
        count(instance.lowered)
        peak = max(memory_of(instance, programs_of(instance, others)).peak.values(), default=0)
        amount = pass_of(instance.lowered, peak)
        for c in counters.active:
            c.passes.append(amount)
            c.predicted_peak = max(c.predicted_peak, peak)
    if not env.is_cluster:
        for meter in metering.active:
            meter.found(graph)
    return instance


def handed_out(instance: Instance, others: Others, nbytes: int = 0) -> list[tuple[Expr, Stored]]:
    """Give a run to the executor of its team, with interrupts deferred, and return what becomes of the results that are
    kept.

    Parameters
    ----------
    nbytes
        Of all that is read and made.
    """
    env, graph = instance.env, instance.graph
    if env.is_cluster:
        found = sent(instance, others)
        return [(graph.nodes[i], stored) for i, stored in found if graph.nodes[i].memo is None]
    before = {id(b) for n in graph.nodes if n.memo is not None for b in n.memo.present}
    made = run_here(instance, nbytes)
    results = []
    for i, (sharding, refs, _) in instance.outputs.items():
        if graph.nodes[i].memo is None:
            stored = Stored(sharding, [made[r] if isinstance(r, tuple) else r for r in refs], exported=False)
            # Tiles of which nothing was to be computed were made with the template, for all its runs.
            stored.share(k for k, r in enumerate(refs) if not isinstance(r, tuple) and id(r) not in before)
            results.append((graph.nodes[i], stored))
    return results


def run_here(instance: Instance, nbytes: int) -> dict[Any, Any]:
    """Run the program of this process, which reads and makes so many bytes; return what is kept, by key."""
    program = instance.template.in_process
    steps = with_clocks(program.graph.filled(instance.parameters), program.members, measurement())
    is_inline = nbytes < INLINE_NBYTES * len(steps)
    given = [instance.given(ref) for ref in program.given]
    hold_pools(instance.env.device, instance.env.size, config.get("device-memory-limit"))
    n_threads = process_threads(instance.env)
    found = run_program(
        program,
        steps,
        given,
        lambda: instance.lowered.tasks,
        n_threads,
        is_inline=is_inline,
        is_in_order=_is_tight(instance),
    )
    return {instance.named(key): value for key, value in found.items()}


def _is_tight(instance: Instance) -> bool:
    """Return whether a limit is set for the members of this process that steps might exceed if several ran at a time,
    in an order in which they were not predicted to run.
    """
    env = instance.env
    return is_limit_set(env) and most_held(env, instance.graph.nodes, COPIES) > memory_limit(env)


def sent(instance: Instance, others: Others = tuple) -> list[tuple[int, Stored]]:
    """Send a run to the workers of a cluster, as member programs or as tasks; return what becomes of the results, by
    their numbers.
    """
    graph, executor = instance.graph, executor_for(instance.env)
    if instance.template.kept.all_keys and (programs := programs_of(instance, others)) is not None:
        return _sent_as_programs(instance, programs, others)
    nbytes, places = kept_nbytes(instance.outputs), places_read(graph.nodes)
    lowered = instance.lowered
    whole = joined(graph.nodes, timed(lowered), lowered.members, list(nbytes), (), others)
    # Where tiles are blocks from before, there may be nothing to do.
    found = executor.submit(whole.tasks, whole.members, whole.keep, nbytes, places) if whole.tasks else {}
    whole.settle(found)
    return [
        (i, Stored(sharding, [found[r] if isinstance(r, tuple) else r for r in refs], exported=False))
        for i, (sharding, refs, _) in instance.outputs.items()
    ]


def _sent_as_programs(instance: Instance, programs: Programs, others: Others) -> list[tuple[int, Stored]]:
    """Send a run as member programs; what this takes does not depend on the number of tiles that come in bundles."""
    graph, template = instance.graph, instance.template
    ways = instance.given_to(programs)
    blocks = instance.arguments(ways, programs.made)
    read = {block.key for given in blocks.values() for block in given if type(block) is TaskRef}
    keep = list(map(instance.named, template.kept.all_keys))
    keep += [block.key for block in map(instance.given, instance.passed_on)]
    whole = joined(graph.nodes, {}, {}, keep, read, others)
    run = MemberRun(
        instance.run,
        template,
        programs,
        (instance.parameters, measurement()),
        blocks,
        whole.tasks,
        whole.members,
        label_of(graph.nodes[max(template.lowered.outputs)]),
        ways if instance.bundled else {},
        instance.bundled,
    )
    nbytes, places = kept_sizes(instance), places_read(graph.nodes)
    found = executor_for(instance.env).run_programs(run, whole.keep, read, nbytes, places)
    whole.settle(found)
    return [
        (i, Stored(output.sharding, instance.held(i, found), exported=False))
        for i, output in template.lowered.outputs.items()
    ]


def kept_nbytes(outputs: Mapping[int, Output]) -> dict[Any, int]:
    """Return the bytes of each block that tasks make and that is kept, by its key; for `outputs` see `Lowered`."""
    return {
        ref: nbytes
        for output in outputs.values()
        for ref, nbytes in zip(output.refs, output.nbytes, strict=True)
        if isinstance(ref, tuple)
    }


def count(lowered: Lowered) -> None:
    """Add tasks to the counters that are open."""
    for c in counters.active:
        c.tasks += len(lowered.members)
        c.by_class.update(lowered.counts)
        c.transfers += lowered.transfers
        c.kernels.update(lowered.kernels)
        c.packed_bytes += lowered.packed_bytes
        c.allocated_bytes += lowered.allocated_bytes
        c.members.update(lowered.members)
