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
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from distarray import config
from distarray.diagnostics.explanation import Explanation, Measured, Result, StageReport
from distarray.diagnostics.predict import Rehearsal, rehearse
from distarray.diagnostics.resident import watch_peak
from distarray.diagnostics.table import format_nbytes
from distarray.errors import EnvironmentMismatchError
from distarray.execution import evaluate, rates
from distarray.execution.counters import Counters, counting
from distarray.execution.footprint import most_held, reports
from distarray.execution.memory import memory_limit
from distarray.execution.task_times import Span, busy_seconds, measuring
from distarray.expr.expr import Environment, Expr, postorder
from distarray.planner.graph import Graph
from distarray.sharding.sharding import Sharding
from distarray.sharding.spec import format_type

__all__ = ["Explanation", "Measured", "Result", "StageReport", "explain"]


def _line(node: Expr) -> str | None:
    """The user's line: the path relative to the working directory, or the file and its folder."""
    if node.origin is None:
        return None
    file, number = node.origin.line
    if os.path.isabs(file):
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
    targets: Sequence[Expr], *, analyze: bool = False, others: Callable[[], Iterable[Expr]] = tuple
) -> Explanation:
    """How pending nodes would be computed; nothing runs without `analyze`.

    Parameters
    ----------
    targets
        Nodes of one environment.
    analyze
        Compute them, as `distarray.execution.evaluate.evaluate` does, and put what was counted and measured beside
        the predictions. It is a computation like any other, but for a clock around each task: afterwards the nodes have
        their results.
    others
        As for `evaluate`: pending nodes of other live handles, whose operands are not overwritten.

    Raises
    ------
    EnvironmentMismatchError
        If the targets live in different environments.

    Examples
    --------
    >>> import numpy as np
    >>> from distarray.expr.expr import Environment, source
    >>> from distarray.sharding import Team
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
    pending = [n for n in postorder(targets) if n.memo is None]
    operations = [n.op.name for n in pending]
    rehearsal = rehearse(targets, env, others) if pending else None
    # Taken before anything runs: an evaluated node has forgotten what it was made of.
    if rehearsal is None:
        explanation = _plain(targets, operations, env)
    else:
        explanation = _planned(targets, operations, env, rehearsal)
    if not analyze:
        return explanation
    kept = [] if rehearsal is None else [rehearsal.graph.nodes[i] for i in rehearsal.plan.outputs]
    # Its tasks refer to blocks, and what somebody refers to is not overwritten.
    del rehearsal, pending
    client = env.team.client if env.team is not None else None
    with counting() as counters, watch_peak(client) as peak, measuring(client) as spans:
        start = time.perf_counter()
        evaluate.evaluate(targets, others)
        evaluate.wait_for([*targets, *kept])
        seconds = time.perf_counter() - start
    return _with_measured(explanation, counters, spans, seconds, peak.most)


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
        limit = format_nbytes(config.get("block-bytes"))
        why = f"plain calls in this process, no plan; every array is one block of at most {limit} (block-bytes)"
    else:
        why = "all results are there, nothing would run"
    return Explanation(
        _environment(env),
        len(operations),
        (),
        _results(targets, targets),
        why,
    )


def _environment(env: Environment) -> str:
    return f"{'this process' if env.team is None else env.team}, device {env.device!r}"


def _rates(env: Environment) -> str:
    """The rates by which seconds are predicted, in words."""
    origin = rates.origin(env)
    text = "default rates (not calibrated)" if origin == "not calibrated" else f"rates {origin}"
    said = ", ".join(config.get("calibration") or {})
    return f"the option calibration ({said}), else {text}" if said else text


def _planned(targets: Sequence[Expr], operations: Sequence[str], env: Environment, rehearsal: Rehearsal) -> Explanation:
    graph, lowered, memory = rehearsal.graph, rehearsal.lowered, rehearsal.memory

    def kept_cut(node: Expr) -> Sharding:
        return lowered.outputs[number[id(node)]][0]

    number = {id(n): i for i, n in enumerate(graph.nodes)}
    growth = {m: memory.peak[m] - memory.resident.get(m, 0) for m in memory.peak}
    one_process = not evaluate.is_cluster(env)
    kept = [graph.nodes[i] for i in rehearsal.plan.outputs]
    return Explanation(
        _environment(env),
        len(operations),
        _stages(rehearsal, is_cluster=not one_process),
        _results(kept, targets, kept_cut),
        None,
        rehearsal.plan.planner,
        rehearsal.from_cache,
        rehearsal.plan.alternatives,
        _rates(env),
        memory_limit(env),
        max(memory.peak.values(), default=0),
        sum(growth.values()) if one_process else max(growth.values(), default=0),
        rehearsal.host_bytes,
        round(rehearsal.products_bound),
        round(sum([c.seconds.total for c in rehearsal.placed.costs]) - rehearsal.placed.seconds, 9),
    )


def _stages(rehearsal: Rehearsal, *, is_cluster: bool) -> tuple[StageReport, ...]:
    """What is predicted of each stage."""
    graph, lowered = rehearsal.graph, rehearsal.lowered
    tasks = Counter(key[1] for key in lowered.tasks)
    found = []
    for s, draft in enumerate(lowered.drafts):
        traffic, moves = rehearsal.traffic[s], draft.moves
        report = StageReport(
            operations=tuple(graph.nodes[i].op.name for i in draft.stage.nodes),
            kind=draft.stage.kind,
            cut=_cut(draft, graph),
            parts=draft.sharding.parts,
            tiles=len(draft.tiles) or len(draft.extra or ()),
            tasks=tasks[s],
            read_bytes=traffic.read,
            moved_bytes=traffic.moved,
            messages=traffic.messages,
            lower_bound_bytes=traffic.lower_bound,
            written_bytes=traffic.written,
            peak_bytes=rehearsal.memory.stage_peak.get(s, 0),
            seconds=rehearsal.placed.costs[s].seconds.total,
            line=_line(graph.nodes[draft.stage.nodes[-1]]),
        )
        if moves is not None:
            report = replace(
                report,
                collectives=reports(moves, is_cluster=is_cluster),
                mode=moves.mode,
                waves=moves.waves,
                held_bytes=most_held(moves, is_cluster=is_cluster),
            )
        found.append(report)
    return tuple(found)


def _cut(draft: Any, graph: Graph) -> str:  # Any: what lowering keeps between its passes
    """The type of a stage's loops; with the dtype where a result has just these axes."""
    if draft.stage.kind == "item":
        return "as before"
    node = graph.nodes[draft.stage.nodes[-1]]
    extents = draft.loops.extents
    dtype = node.dtype if node.shape == extents and not isinstance(node.dtype, tuple) else None
    return format_type(extents, dtype, draft.sharding)


def _with_measured(
    explanation: Explanation, counters: Counters, spans: Iterable[Span], seconds: float, growth: int | None
) -> Explanation:
    # Keys and messages carry the number of their stage.
    tasks = Counter(key[1] for key in counters.members)
    moved: Counter[int] = Counter()
    messages: Counter[int] = Counter()
    for t in counters.transfers:
        moved[t.stage] += t.nbytes
        messages[t.stage] += 1
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
    measured = Measured(seconds, total, counters.tasks, counters.bytes_moved, counters.messages, growth)
    return replace(explanation, stages=tuple(stages), measured=measured)
