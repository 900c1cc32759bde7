"""`explain`: how pending arrays would be computed, as a table that people and programs can read.

One line per stage: what is fused into it, how its loops are cut, what it reads, sends and writes, how much memory and
time it needs, and the user's line that it comes from. Bytes, messages and tasks are counted on the tasks that would run
(`predict`), which is why explaining costs as much as planning and lowering, and runs nothing; seconds are those of the
planner's model. With ``analyze=True`` it runs, and what was measured stands beside all of this.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from distarray import config
from distarray.diagnostics.explanation import Explanation, Measured, Result, StageReport, joined
from distarray.diagnostics.predict import Rehearsal, StageTraffic, rehearse, traffic_of
from distarray.diagnostics.resident import watch_peak
from distarray.errors import EnvironmentMismatchError
from distarray.expr.crossing import levels
from distarray.expr.expr import Environment, Expr, Others, Stored, cell_of
from distarray.lower.footprint import most_held, reports
from distarray.lower.liveness import Liveness
from distarray.lower.template import Lowered
from distarray.planner.graph import Graph
from distarray.runtime import evaluate, known_rates, members, observations, prepare, small
from distarray.runtime.clocks import Span
from distarray.runtime.counters import Counters, counting
from distarray.runtime.crossings import Foreseen, beside, foreseen, passage_of, see_run, sources_of
from distarray.runtime.held import ahead, peaks_of
from distarray.runtime.memory import memory_limit
from distarray.runtime.metering import Count, metering
from distarray.runtime.moves import transfers
from distarray.runtime.passes import passes_of
from distarray.runtime.prepare import Prepared
from distarray.runtime.retention import retained
from distarray.runtime.task_times import busy_seconds, measuring
from distarray.sharding.sharding import Sharding
from distarray.sharding.spec import format_type
from distarray.sharding.team import are_beside
from distarray.tables import format_nbytes


def _line(node: Expr) -> str | None:
    """Return the user's line: the path relative to the working directory, or the file and its folder, or the cell."""
    if node.origin is None:
        return None
    file, number = node.origin.line
    if cell := cell_of(file):
        file = cell
    elif os.path.isabs(file):
        relative = os.path.relpath(file) if os.path.splitdrive(file)[0] == os.path.splitdrive(os.getcwd())[0] else file
        file = relative if not relative.startswith(os.pardir) else os.path.join(*file.split(os.sep)[-2:])
    return f"{file}:{number}"


def _notation(node: Expr) -> str:
    if isinstance(node.dtype, tuple):
        shapes: Any = node.shape  # of several results: a tuple of shapes
        return ", ".join(format_type(s, d) for s, d in zip(shapes, node.dtype, strict=True))
    return format_type(node.shape, node.dtype, None if node.memo is None else node.memo.sharding)


# -- explain ----------------------------------------------------------------------------------------------------


def explain(
    targets: Sequence[Expr], *, analyze: bool = False, others: Others = tuple, along: Sequence[Expr] = ()
) -> Explanation:
    """Return how pending nodes would be computed; nothing runs without `analyze`.

    Parameters
    ----------
    targets
        Nodes of one environment.
    analyze
        Compute them, as `distarray.runtime.evaluate.evaluate` does, and put what was counted and measured beside
        the predictions. It is a computation like any other, but for a clock around each task: afterwards the nodes have
        their results.
    along
        Nodes that are made with them, though nobody asked for these.

    Raises
    ------
    EnvironmentMismatchError
        If the targets live in different environments.

    Examples
    --------
    >>> import numpy as np
    >>> from distarray.expr.expr import Environment, source
    >>> from distarray.sharding.team import Team
    >>> print(explain([source(np.arange(3.0), Environment(Team((2,), ("x",))))]))
    0 operations: all results are there, nothing would run
    <BLANKLINE>
    result: f64[3]  source
    """
    env = targets[0].env
    for i, t in enumerate(targets):
        if t.env != env:
            raise EnvironmentMismatchError(
                f"explain: target 0 lives in {env} and target {i} in {t.env}; explain those of one team and device"
            )
    # Where nothing runs, no other thread may settle meanwhile what is planned here, step by step.
    with nullcontext() if analyze else members.locked():
        return joined(_parts(targets, analyze, others, along))


def _parts(targets: Sequence[Expr], analyze: bool, others: Others, along: Sequence[Expr]) -> list[Explanation]:
    """Return what is computed before crossings and how these are moved, step by step, and then the targets."""
    pending = beside(targets, others)
    parts: list[Explanation] = []
    known = _foreseen(targets)
    for step in levels(targets):
        if analyze and parts:
            known = _foreseen(targets)  # what has run is known
        sources = [n for n in sources_of(step) if id(n) not in known.stand_ins]
        for at in dict.fromkeys([n.env for n in sources]):
            parts += _runs([n for n in sources if n.env == at], known, analyze=analyze, others=pending)
        parts += [_crossed(node, known, analyze=analyze, others=pending) for node in step]
    known = _foreseen(targets) if analyze else known
    return [*parts, *_runs(targets, known, analyze=analyze, others=others, along=along)]


def _runs(
    targets: Sequence[Expr], known: Foreseen, *, analyze: bool, others: Others, along: Sequence[Expr] = ()
) -> list[Explanation]:
    """Return how pending nodes of one environment would be computed: in one run, or on a cluster first what is to run
    apart, as in `evaluate`. The last has the results of all.
    """
    found: list[Explanation] = []
    there = [t for t in targets if t.memo is not None and id(t) not in known.stand_ins]
    left = [*targets, *along] if along else targets
    while first := _first_apart(left, known, others):
        found.append(_explained(first, targets, known, analyze=analyze, others=beside(left, others)))
        left = [t for t in left if t.memo is None and id(t) not in known.stand_ins]
    if left or not found:
        found.append(_explained(left, targets, known, analyze=analyze, others=others))
    if all(part.plain is not None for part in found):
        return found
    results = [*_results(there, targets), *[r for part in found for r in part.results]]
    return [*found[:-1], replace(found[-1], results=tuple(results))]


def _first_apart(targets: Sequence[Expr], known: Foreseen, others: Others) -> list[Expr]:
    """Return the nodes that run before the others; none if one run does for all."""
    if not targets or not targets[0].env.is_cluster:
        return []
    with members.locked():
        order, aimed = prepare.order_of(targets, known.stand_ins), set(map(id, targets))
        kept, _ = retained(order, {*aimed, *known.stand_ins}, targets[0].env, others)
        return evaluate.first_apart(order, aimed | kept, known.stand_ins)


def _foreseen(targets: Sequence[Expr]) -> Foreseen:
    with members.locked():
        return foreseen(targets)


def _explained(
    targets: Sequence[Expr], asked: Sequence[Expr], known: Foreseen, *, analyze: bool, others: Others
) -> Explanation:
    """Return how pending nodes of one environment would be computed in one run, without what their crossings need.

    Parameters
    ----------
    asked
        Those of which it is said that they were asked for.
    """
    env = targets[0].env
    # Before anything runs, here or in another thread: an evaluated node has forgotten what it was made of.
    with members.locked():
        order = prepare.order_of(targets, known.stand_ins)
        pending = [n for n in order if n.memo is None and id(n) not in known.stand_ins]
        operations = [n.op.name for n in pending]
        # What is there has no part in what would run, as in `evaluate`.
        aimed = [t for t in targets if id(t) not in known.stand_ins and t.memo is None]
        with ahead(known.before[id(targets[0])] if id(targets[0]) in known.lying else known.coming):
            rehearsal = rehearse(aimed, env, others, known.stand_ins) if pending else None
        if rehearsal is None:
            explanation = _plain([known.stand_ins.get(id(t), t) for t in targets], operations, env)
        else:
            explanation = _planned(asked, operations, env, rehearsal)
    explanation = replace(explanation, passes=passes_of(order))
    if not analyze:
        if targets is not asked:  # others run after it
            see_run(targets, None if rehearsal is None else (rehearsal.prepared, rehearsal.instance), known)
        return explanation
    kept = () if rehearsal is None else rehearsal.prepared.kept
    # Its tasks refer to blocks, and what somebody refers to is not overwritten.
    del rehearsal, pending, aimed, order
    return _analyzed(explanation, targets, kept, others)


def _analyzed(explanation: Explanation, targets: Sequence[Expr], kept: Sequence[Expr], others: Others) -> Explanation:
    """Compute the targets, and add what was measured meanwhile to the explanation of how they are computed.

    Parameters
    ----------
    kept
        Nodes that the same run stores besides the targets: the time is that until they too are there.
    """
    client = targets[0].env.client
    with (
        counting() as counters,
        watch_peak(client) as peak,
        measuring(client) as spans,
        metering(client) as counts,
    ):
        start = time.perf_counter()
        evaluate.evaluate(targets, others)
        observations.wait_for([*targets, *kept])
        seconds = time.perf_counter() - start
    return _with_measured(explanation, counters, counts.values(), spans, seconds, peak.most)


def _crossed(node: Expr, known: Foreseen, *, analyze: bool, others: Others) -> Explanation:
    """Return how what a crossing reads would be moved."""
    (source,) = node.nodes()
    env, memo, there = node.env, source.memo or known.lying[id(source)], known.stand_ins[id(node)].memo
    assert there is not None
    found = passage_of(node, source, memo, there.sharding)
    with ahead(known.before[id(node)]):
        stage, peak, growth = _move(node, source, memo, there.sharding) if found is None else _passage(node, found)
    comes = memo.on_client or (found is None and not are_beside(source.env.team, env.team))
    explanation = Explanation(
        _environment(env),
        1,
        (stage,),
        _results([node], [node], lambda _: there.sharding),
        rates=_rates(env),
        limit_bytes=memory_limit(env),
        peak_bytes=peak,
        growth_bytes=growth,
        host_bytes=node.nbytes if comes and env.is_cluster else 0,
    )
    return _analyzed(explanation, [node], (), others) if analyze else explanation


def _passage(node: Expr, found: Prepared) -> tuple[StageReport, int, int]:
    """Return what is predicted of a move between teams of a cluster.

    Returns
    -------
    tuple
        The report of the move; the most bytes that a member holds meanwhile; the bytes that it comes to hold.
    """
    lowered = found.lowered("rehearsal")
    memory = peaks_of(lowered, found.graph, found.env)
    (traffic,) = traffic_of(lowered, found.graph, is_cluster=True)
    expected = known_rates.rates_for(node.env)
    received: Counter[int] = Counter()
    messages: Counter[int] = Counter()
    for t in lowered.transfers:
        received[t.destination] += t.nbytes
        messages[t.destination] += 1
    busiest = [expected.transfer_seconds(messages[m], received[m]) for m in received]
    seconds = max(busiest, default=0.0) + len(lowered.tasks) * expected.task
    stage = _stage(0, lowered, found.graph, traffic, memory, seconds, is_cluster=True)
    growth = [memory.peak[m] - memory.resident.get(m, 0) for m in memory.peak]
    return replace(stage, line=_line(node)), memory.worst[0], max(growth, default=0)


def _move(node: Expr, source: Expr, memo: Stored, cut: Sharding) -> tuple[StageReport, int, int]:
    """Return what `_passage` does of a move of blocks that go through this process, or stay where they are."""
    moved = [] if memo.on_client else transfers(source, node.env, memo.sharding, cut)
    nbytes = sum([t.nbytes for t in moved])
    is_there = node.env.is_cluster
    # Blocks that another member of this process is to have are shared.
    held = node.nbytes * (1 if memo.on_client else 2) if not is_there else -(-node.nbytes // node.env.size)
    stage = StageReport(
        operations=(node.op.name,),
        kind="move",
        cut=format_type(node.shape, node.dtype, cut),
        parts=cut.parts,
        tiles=cut.n_tiles,
        tasks=cut.n_tiles if is_there and not memo.on_client and source.env.is_cluster else 0,
        read_bytes=node.nbytes,
        moved_bytes=nbytes,
        messages=len(moved),
        lower_bound_bytes=nbytes,
        written_bytes=0 if memo.on_client else node.nbytes,
        peak_bytes=held,
        seconds=0.0,
        line=_line(node),
    )
    return stage, held, node.nbytes


def _results(
    nodes: Iterable[Expr], targets: Sequence[Expr], cut: Callable[[Expr], Sharding] | None = None
) -> tuple[Result, ...]:
    aimed = {id(t) for t in targets}
    found = []
    for node in nodes:
        sharding = None if cut is None else cut(node)
        text = _notation(node) if sharding is None else format_type(node.shape, node.dtype, sharding)
        found.append(Result(text, node.op.name, _line(node), id(node) in aimed, node.shape, sharding))
    return tuple(found)


def _plain(targets: Sequence[Expr], operations: Sequence[str], env: Environment) -> Explanation:
    if operations:
        limit = format_nbytes(small.most_nbytes(env))
        why = f"plain calls in this process, without a plan: no array exceeds {limit}, or the steps are few"
    else:
        why = "all results are there, nothing would run"
    return Explanation(_environment(env), len(operations), (), _results(targets, targets), plain=why)


def _environment(env: Environment) -> str:
    return f"{'this process' if env.team is None else env.team}, device {env.device!r}"


def _rates(env: Environment) -> str:
    """Return the rates by which seconds are predicted, in words."""
    origin = known_rates.origin(env)
    text = "default rates (not calibrated)" if origin == "not calibrated" else f"rates {origin}"
    said = ", ".join(config.get("calibration") or {})
    return f"the option calibration ({said}), else {text}" if said else text


def _planned(targets: Sequence[Expr], operations: Sequence[str], env: Environment, rehearsal: Rehearsal) -> Explanation:
    prepared, memory = rehearsal.prepared, rehearsal.memory
    plan, kept, outputs = prepared.plan, prepared.kept, rehearsal.instance.outputs
    cuts = {id(n): outputs[i].sharding for n, i in zip(kept, plan.outputs, strict=True)}
    growth = [memory.peak[m] - memory.resident.get(m, 0) for m in memory.peak]
    seconds = [cost.seconds.total for cost in rehearsal.placed.costs]
    lowered, graph = rehearsal.instance.lowered, prepared.graph
    stages = [
        _stage(s, lowered, graph, traffic, memory, seconds[s], is_cluster=env.is_cluster)
        for s, traffic in enumerate(rehearsal.traffic)
    ]
    return Explanation(
        _environment(env),
        len(operations),
        tuple(stages),
        _results(kept, targets, lambda node: cuts[id(node)]),
        planner=plan.planner,
        from_cache=rehearsal.from_cache,
        alternatives=plan.alternatives,
        rates=_rates(env),
        limit_bytes=memory_limit(env),
        peak_bytes=max(memory.peak.values(), default=0),
        growth_bytes=max(growth, default=0) if env.is_cluster else sum(growth),
        host_bytes=rehearsal.host_bytes,
        products_bound_bytes=round(rehearsal.products_bound),
        saved_seconds=round(sum(seconds) - rehearsal.placed.seconds, 9),
        programs=rehearsal.n_programs,
    )


def _stage(
    s: int,
    lowered: Lowered,
    graph: Graph,
    traffic: StageTraffic,
    memory: Liveness,
    seconds: float,
    *,
    is_cluster: bool,
) -> StageReport:
    draft = lowered.drafts[s]
    moves = draft.moves
    report = StageReport(
        operations=tuple(graph.nodes[i].op.name for i in draft.stage.nodes),
        kind=draft.stage.kind,
        cut=_cut(draft, graph),
        parts=draft.sharding.parts,
        tiles=sum(tile.is_last for tile in draft.tiles) or len(draft.extra or ()),
        tasks=sum([key[1] == s for key in lowered.tasks]),
        read_bytes=traffic.read,
        moved_bytes=traffic.moved,
        messages=traffic.messages,
        lower_bound_bytes=traffic.lower_bound,
        written_bytes=traffic.written,
        peak_bytes=memory.stage_peak.get(s, 0),
        seconds=seconds,
        line=_line(graph.nodes[draft.stage.nodes[-1]]),
        chain=-1 if draft.grown is None else draft.stage.chain,
    )
    if moves is None:
        return report
    return replace(
        report,
        collectives=reports(moves, is_cluster=is_cluster),
        mode=moves.mode,
        waves=moves.waves,
        held_bytes=most_held(moves, is_cluster=is_cluster),
    )


def _cut(draft: Any, graph: Graph) -> str:  # Any: what lowering keeps between its passes
    """Return the type of a stage's loops; with the dtype where a result has just these axes."""
    if draft.stage.family.is_item:
        return "as before"
    node = graph.nodes[draft.stage.nodes[-1]]
    extents = draft.loops.extents
    dtype = node.dtype if node.shape == extents and not isinstance(node.dtype, tuple) else None
    return format_type(extents, dtype, draft.sharding)


def _with_measured(
    explanation: Explanation,
    counters: Counters,
    counts: Collection[Count],
    spans: Iterable[Span],
    seconds: float,
    growth: int | None,
) -> Explanation:
    # Keys carry the number of their stage.
    tasks = Counter(key[1] for key in counters.members)
    moved: Counter[int] = Counter()
    messages: Counter[int] = Counter()
    beside = 0  # copies of host data and of lineage, and what other clients move
    for arrival in [a for count in counts for a in count.arrivals]:
        readers = [stage for key, stage in arrival.readers if key in counters.members]
        if readers:
            moved[min(readers)] += arrival.nbytes
            messages[min(readers)] += 1
        else:
            beside += arrival.nbytes
    if not counters.members:  # what is moved without tasks is counted by who moves it
        moved[0] += sum([t.nbytes for t in counters.transfers])
        messages[0] += len(counters.transfers)
    busy = busy_seconds(spans)
    stages = [
        replace(
            s,
            measured_tasks=tasks[i],
            measured_moved_bytes=moved[i],
            measured_messages=messages[i],
            measured_seconds=busy.get(i, 0.0),
        )
        for i, s in enumerate(explanation.stages)
    ]
    total = sum([s.measured_seconds or 0.0 for s in stages])
    measured = Measured(
        wall_seconds=seconds,
        seconds=total,
        tasks=counters.tasks,
        moved_bytes=moved.total(),
        messages=messages.total(),
        growth_bytes=growth,
        peak_bytes=max([count.most for count in counts], default=0),
        beside_bytes=beside,
    )
    return replace(explanation, stages=tuple(stages), measured=measured)
