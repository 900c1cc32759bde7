"""`explain`: how pending arrays would be computed, as a table that people and programs can read.

One line per stage: what is fused into it, how its loops are cut, what it reads, sends and writes, how much memory it
needs, and the user's line that it comes from. The numbers are counted on the tasks that would run (`predict`), which is
why explaining costs as much as planning and lowering, and runs nothing.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from html import escape
from typing import Any

from distarray import config
from distarray.diagnostics.predict import Rehearsal, rehearse
from distarray.diagnostics.resident import watch_peak
from distarray.diagnostics.table import format_nbytes, format_seconds, format_table, html_table
from distarray.errors import EnvironmentMismatchError
from distarray.execution import evaluate
from distarray.execution.counters import Counters, counting
from distarray.execution.footprint import StepReport, most_held, reports
from distarray.execution.memory import memory_limit
from distarray.expr.expr import Environment, Expr, postorder
from distarray.planner.graph import Graph
from distarray.planner.partition.eingraph import stage_bound
from distarray.planner.partition.facts import facts_of
from distarray.sharding.spec import format_type

__all__ = ["Explanation", "Measured", "Result", "StageReport", "explain"]

#: Different operations that a line names; more are counted.
MAX_NAMES = 4
#: Characters of a type in the table; explicit boundaries may be long. JSON has all of them.
MAX_TYPE = 56


@dataclass(frozen=True, slots=True)
class StageReport:
    """One stage: operations that become one task per tile. Bytes are summed over members, but for `peak_bytes`.

    Parameters
    ----------
    operations
        Names in program order.
    kind
        See `distarray.planner.plan.StageKind`.
    cut
        How its loops are cut, in the type notation.
    parts
        Parts of each loop.
    tiles
        Tiles that have elements, or are written.
    tasks
        Tasks that are made for it: tiles, pieces, projections and combinations.
    read_bytes, moved_bytes, messages, lower_bound_bytes, written_bytes
        See `distarray.diagnostics.predict.Traffic`.
    peak_bytes
        Most bytes of blocks on a member while it runs.
    line
        The user's line of the last operation, ``file:line``.
    measured_tasks, measured_moved_bytes, measured_messages
        What was counted when it ran; None if it was not run.
    collectives, mode, waves, held_bytes
        Of a stage that cuts an array in another way: its steps, how the synthesizer found them, in how many turns the
        tiles are made, and what a member holds at most, whatever the order in which tasks run.
    """

    operations: tuple[str, ...]
    kind: str
    cut: str
    parts: tuple[int, ...]
    tiles: int
    tasks: int
    read_bytes: int
    moved_bytes: int
    messages: int
    lower_bound_bytes: int
    written_bytes: int
    peak_bytes: int
    line: str | None
    measured_tasks: int | None = None
    measured_moved_bytes: int | None = None
    measured_messages: int | None = None
    collectives: tuple[StepReport, ...] = ()
    mode: str | None = None
    waves: int = 1
    held_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Result:
    """An array that is kept: asked for, or referred to by a live handle."""

    type: str
    operation: str
    line: str | None
    is_target: bool


@dataclass(frozen=True, slots=True)
class Measured:
    """What was counted and measured when it ran.

    Parameters
    ----------
    seconds
        Wall clock, with planning, until all results were there.
    tasks, moved_bytes, messages
        Counted by the executor.
    peak_growth_bytes
        Most bytes by which the resident set of a process grew; None where the system does not say.
    """

    seconds: float
    tasks: int
    moved_bytes: int
    messages: int
    peak_growth_bytes: int | None


@dataclass(frozen=True, slots=True)
class Explanation:
    """How arrays would be computed, or were. Printing it shows a table; notebooks show it as HTML.

    Parameters
    ----------
    environment
        Team and device, as text.
    n_operations
        Pending operations that are needed.
    stages
        In the order in which they can run; empty if nothing is planned.
    results
        Arrays that are kept.
    plain
        Why nothing is planned, or None.
    planner
        Which planner made the plan; None if there is none.
    from_cache
        Whether the plan was in the cache.
    alternatives
        What the planner compared, as text.
    limit_bytes
        Memory that a member may use.
    peak_bytes
        Most bytes of blocks on a member, what lies there already included.
    growth_bytes
        Most bytes of blocks that a process is predicted to need beside those that lie there already. Without a cluster
        all members are one process.
    host_bytes
        Data of this process that travel to the members.
    products_bound_bytes
        What products must move at least, however they are cut: each by itself, its operands lying as suits it best.
    measured
        With ``analyze=True``.
    """

    environment: str
    n_operations: int
    stages: tuple[StageReport, ...]
    results: tuple[Result, ...]
    plain: str | None = None
    planner: str | None = None
    from_cache: bool = False
    alternatives: tuple[str, ...] = ()
    limit_bytes: int = 0
    peak_bytes: int = 0
    growth_bytes: int = 0
    host_bytes: int = 0
    products_bound_bytes: int = 0
    measured: Measured | None = None

    @property
    def tasks(self) -> int:
        """Tasks of all stages."""
        return sum(s.tasks for s in self.stages)

    @property
    def read_bytes(self) -> int:
        """Bytes that stages read."""
        return sum(s.read_bytes for s in self.stages)

    @property
    def moved_bytes(self) -> int:
        """Bytes sent between members."""
        return sum(s.moved_bytes for s in self.stages)

    @property
    def messages(self) -> int:
        """Messages between members."""
        return sum(s.messages for s in self.stages)

    @property
    def lower_bound_bytes(self) -> int:
        """Bytes that must be sent at least, given where the results lie."""
        return sum(s.lower_bound_bytes for s in self.stages)

    @property
    def written_bytes(self) -> int:
        """Bytes of all results that are stored, also those that are freed on the way."""
        return sum(s.written_bytes for s in self.stages)

    def to_json(self) -> str:
        """Everything as JSON text, sizes in bytes; totals stand under ``"total"``."""
        names = ("tasks", "read_bytes", "moved_bytes", "messages", "lower_bound_bytes", "written_bytes")
        return json.dumps({**asdict(self), "total": {name: getattr(self, name) for name in names}})

    def __str__(self) -> str:
        parts = [self._heading()]
        if self.stages:
            parts.append(format_table(*self._table()))
        parts.append("\n".join(self._facts()))
        return "\n\n".join(parts)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        facts = "".join(f"<li>{escape(fact)}</li>" for fact in self._facts())
        table = html_table(*self._table()) if self.stages else ""
        return f"<div><p><b>{escape(self._heading())}</b></p>{table}<ul>{facts}</ul></div>"

    def _heading(self) -> str:
        operations = f"{self.n_operations} operation{'s' * (self.n_operations != 1)}"
        if self.plain is not None:
            return f"{operations}: {self.plain}"
        n = len(self.stages)
        return f"{operations} in {n} stage{'s' * (n != 1)} on {self.environment}"

    def _table(self) -> tuple[list[str], list[list[str]], list[int]]:
        """Header, rows and the columns of numbers."""
        header = ["stage", "operations", "cut", "tiles", "tasks", "read"]
        header += ["moved", "messages", "bound", "written", "peak"]
        right = [0, *range(4, 11)]
        rows = [
            [
                str(number),
                _named(s.operations),
                _shortened(s.cut),
                _tiles(s),
                str(s.tasks),
                format_nbytes(s.read_bytes),
                format_nbytes(s.moved_bytes),
                str(s.messages),
                format_nbytes(s.lower_bound_bytes),
                format_nbytes(s.written_bytes),
                format_nbytes(s.peak_bytes),
            ]
            for number, s in enumerate(self.stages)
        ]
        total = [
            "",
            "total",
            "",
            "",
            str(self.tasks),
            format_nbytes(self.read_bytes),
            format_nbytes(self.moved_bytes),
            str(self.messages),
            format_nbytes(self.lower_bound_bytes),
            format_nbytes(self.written_bytes),
            format_nbytes(self.peak_bytes),
        ]
        lines = [s.line or "" for s in self.stages]
        if self.measured is not None:
            right += range(11, 14)
            header += ["tasks run", "bytes sent", "messages sent"]
            for row, s in zip(rows, self.stages, strict=True):
                row += [str(s.measured_tasks), format_nbytes(s.measured_moved_bytes or 0), str(s.measured_messages)]
            m = self.measured
            total += [str(m.tasks), format_nbytes(m.moved_bytes), str(m.messages)]
        rows = [[*row, line] for row, line in zip(rows, lines, strict=True)]
        return [*header, "line"], [*rows, [*total, ""]], right

    def _facts(self) -> list[str]:
        """What is said below the table, a line each."""
        facts = [
            f"{'result' if r.is_target else 'kept, a handle refers to it'}: {_shortened(r.type)}  {r.operation}"
            f"{f'  {r.line}' if r.line else ''}"
            for r in self.results
        ]
        if self.planner is not None:
            facts.append(f"planner: {self.planner}, {'plan from the cache' if self.from_cache else 'planned now'}")
        facts += [f"also considered: {text}" for text in self.alternatives]
        if self.products_bound_bytes:
            bound = format_nbytes(self.products_bound_bytes)
            facts.append(
                f"products must move {bound} at least, however cut, if their operands lay best for each of them"
            )
        if self.stages:
            facts.append("read, moved, bound (must be moved at least, so cut) and written: summed over members")
            facts.append(
                f"peak: {format_nbytes(self.peak_bytes)} per member, of {format_nbytes(self.limit_bytes)} allowed"
                + ("" if self.peak_bytes <= self.limit_bytes else "; above the limit")
            )
        for number, stage in enumerate(self.stages):
            facts += _collectives(number, stage)
        if self.host_bytes:
            facts.append(f"host -> team: {format_nbytes(self.host_bytes)}")
        if self.measured is not None:
            text = f"measured: {format_seconds(self.measured.seconds)}"
            if self.measured.peak_growth_bytes is not None:
                text += f", resident memory grew by {format_nbytes(self.measured.peak_growth_bytes)} at most"
                if self.stages:
                    text += f" (predicted: blocks of {format_nbytes(self.growth_bytes)})"
            facts.append(text)
        return facts


# -- words ------------------------------------------------------------------------------------------------------


def _named(operations: Sequence[str]) -> str:
    """Names of operations, repeated ones counted.

    >>> _named(["add", "multiply", "multiply", "add", "multiply", "sum"])
    'add x2, multiply x3, sum'
    """
    counts = Counter(operations)
    names = [name if n == 1 else f"{name} x{n}" for name, n in counts.items()]
    if len(names) > MAX_NAMES:
        others = list(counts.values())[MAX_NAMES - 1 : -1]
        names = [*names[: MAX_NAMES - 1], f"... {sum(others)} more", names[-1]]
    return ", ".join(names)


def _collectives(number: int, stage: StageReport) -> list[str]:
    """A line for each step of a redistribution."""
    how = f"{stage.mode}" + (f" in {stage.waves} waves" if stage.waves > 1 else "")
    lines = [
        f"stage {number}, {how}: {step.name} makes tiles {list(step.tile)}, moves {format_nbytes(step.moved)}, a"
        f" member receives at most {format_nbytes(step.received)} and holds {format_nbytes(step.peak)}"
        for step in stage.collectives
    ]
    if lines:
        lines.append(f"stage {number}: a member holds at most {format_nbytes(stage.held_bytes)} in any order of tasks")
    return lines


def _tiles(stage: StageReport) -> str:
    cut = "x".join(map(str, stage.parts))
    return str(stage.tiles) if stage.tiles == 1 or len(stage.parts) < 2 else f"{stage.tiles} ({cut})"


def _shortened(text: str) -> str:
    if len(text) <= MAX_TYPE:
        return text
    half = (MAX_TYPE - 3) // 2
    return f"{text[:half]}...{text[-half:]}"


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
        the predictions. It is a computation like any other: afterwards the nodes have their results.
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
    # Its tasks refer to blocks, and what somebody refers to is not overwritten.
    del rehearsal, pending
    start = time.perf_counter()
    with counting() as counters, watch_peak(env.team.client if env.team is not None else None) as peak:
        evaluate.evaluate(targets, others)
        evaluate.wait_for(targets)
        seconds = time.perf_counter() - start
    return _with_measured(explanation, targets, counters, seconds, peak.most)


def _results(nodes: Iterable[Expr], targets: Sequence[Expr], types: Callable[[Expr], str]) -> tuple[Result, ...]:
    aimed = {id(t) for t in targets}
    return tuple(Result(types(n), n.op.name, _line(n), id(n) in aimed) for n in nodes)


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
        _results(targets, targets, _notation),
        why,
    )


def _environment(env: Environment) -> str:
    return f"{'this process' if env.team is None else env.team}, device {env.device!r}"


def _planned(targets: Sequence[Expr], operations: Sequence[str], env: Environment, rehearsal: Rehearsal) -> Explanation:
    graph, lowered, memory = rehearsal.graph, rehearsal.lowered, rehearsal.memory
    tasks = Counter(key[1] for key in lowered.tasks)

    def kept_type(node: Expr) -> str:
        sharding, _ = lowered.outputs[number[id(node)]]
        return format_type(node.shape, node.dtype, sharding)

    number = {id(n): i for i, n in enumerate(graph.nodes)}
    stages = []
    for s, draft in enumerate(lowered.drafts):
        traffic = rehearsal.traffic[s]
        last = graph.nodes[draft.stage.nodes[-1]]
        stages.append(
            StageReport(
                tuple(graph.nodes[i].op.name for i in draft.stage.nodes),
                draft.stage.kind,
                _cut(draft, graph),
                draft.sharding.parts,
                len(draft.tiles) or len(draft.extra or ()),
                tasks[s],
                traffic.read,
                traffic.moved,
                traffic.messages,
                traffic.lower_bound,
                traffic.written,
                memory.stage_peak.get(s, 0),
                _line(last),
                collectives=() if draft.moves is None else reports(draft.moves, is_cluster=evaluate.is_cluster(env)),
                mode=None if draft.moves is None else draft.moves.mode,
                waves=1 if draft.moves is None else draft.moves.waves,
                held_bytes=0 if draft.moves is None else most_held(draft.moves, is_cluster=evaluate.is_cluster(env)),
            )
        )
    growth = {m: memory.peak[m] - memory.resident.get(m, 0) for m in memory.peak}
    one_process = not evaluate.is_cluster(env)
    kept = [graph.nodes[i] for i in rehearsal.plan.outputs]
    return Explanation(
        _environment(env),
        len(operations),
        tuple(stages),
        _results(kept, targets, kept_type),
        None,
        rehearsal.plan.planner,
        rehearsal.from_cache,
        rehearsal.plan.alternatives,
        memory_limit(env),
        max(memory.peak.values(), default=0),
        sum(growth.values()) if one_process else max(growth.values(), default=0),
        rehearsal.host_bytes,
        round(sum([stage_bound(f, env.size) for f in facts_of(rehearsal.plan.stages, graph, {})])),
    )


def _cut(draft: Any, graph: Graph) -> str:  # Any: what lowering keeps between its passes
    """The type of a stage's loops; with the dtype where a result has just these axes."""
    if draft.stage.kind == "item":
        return "as before"
    node = graph.nodes[draft.stage.nodes[-1]]
    extents = draft.loops.extents
    dtype = node.dtype if node.shape == extents and not isinstance(node.dtype, tuple) else None
    return format_type(extents, dtype, draft.sharding)


def _with_measured(
    explanation: Explanation, targets: Sequence[Expr], counters: Counters, seconds: float, peak: int | None
) -> Explanation:
    # Keys and messages carry the number of their stage.
    tasks = Counter(key[1] for key in counters.members)
    moved: Counter[int] = Counter()
    messages: Counter[int] = Counter()
    for t in counters.transfers:
        moved[t.stage] += t.nbytes
        messages[t.stage] += 1
    return replace(
        explanation,
        stages=tuple(
            replace(s, measured_tasks=tasks[i], measured_moved_bytes=moved[i], measured_messages=messages[i])
            for i, s in enumerate(explanation.stages)
        ),
        measured=Measured(seconds, counters.tasks, counters.bytes_moved, counters.messages, peak),
    )
