"""What `explain` found, as records and as a table: for people to read, and as JSON.

Under each stage of the table stands what was measured, in the columns of what was predicted.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from html import escape
from itertools import groupby
from typing import Any, NamedTuple

from distarray.diagnostics.draw import sharding_svg
from distarray.lower.footprint import StepReport
from distarray.runtime.passes import Pass
from distarray.sharding.sharding import Sharding
from distarray.tables import format_nbytes, format_seconds, format_table, html_table

#: Different operations that a line names; more are counted.
MAX_NAMES = 4
#: Characters of a type in the table; explicit boundaries may be long. JSON has all of them.
MAX_TYPE = 56
#: What was measured is off if it differs from what was predicted by more than this share of it.
TOLERANCE = 0.1
#: Stands beside what is off.
MARK = "!"


def is_off(predicted: float, measured: float | None) -> bool:
    """Return whether what was measured is not what was predicted; not if nothing was measured.

    >>> is_off(100, 110), is_off(100, 111), is_off(100, 89), is_off(0, 0), is_off(0, 1)
    (False, True, True, False, True)
    """
    return measured is not None and abs(measured - predicted) > TOLERANCE * predicted


@dataclass(frozen=True, slots=True)
class StageReport:
    """A StageReport is one stage: operations that become one task per tile. Bytes are summed over members, but for
    `peak_bytes`.

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
        See `distarray.diagnostics.predict.StageTraffic`.
    peak_bytes
        Most bytes of blocks on a member while it runs.
    seconds
        That the busiest member takes by the planner's model: to compute, to be sent what it lacks, and for the tasks,
        which one scheduler hands out.
    line
        The user's line of the last operation, ``file:line``.
    measured_tasks, measured_moved_bytes, measured_messages
        What was counted when it ran; None if it was not run. Bytes and messages are those that came to members for its
        tasks, as the members themselves counted them; what tasks of several stages read counts for the first of them.
    measured_seconds
        Of the busiest member: how long it computed, and how long it waited for data; see
        `distarray.runtime.task_times.busy_seconds`. The time of the scheduler is not in it. Of tasks that were fused
        to one each counts for its own stage, and what that one waited for with the first.
    collectives, mode, waves, held_bytes
        Of a stage that cuts an array in another way: its steps, how the synthesizer found them, in how many turns the
        tiles are made, and what a member holds at most, whatever the order in which tasks run.
    chain
        Number of the chain of halo stages that it is in; -1 if it is in none.
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
    seconds: float
    line: str | None
    measured_tasks: int | None = None
    measured_moved_bytes: int | None = None
    measured_messages: int | None = None
    measured_seconds: float | None = None
    collectives: tuple[StepReport, ...] = ()
    mode: str | None = None
    waves: int = 1
    held_bytes: int = 0
    chain: int = -1

    @property
    def off(self) -> tuple[str, ...]:
        """Return the names of the predictions from which what was measured differs by more than `TOLERANCE`."""
        return tuple([n for n in _MEASURED if is_off(getattr(self, n), getattr(self, f"measured_{n}"))])


#: Predictions of a stage that are measured.
_MEASURED = ("tasks", "moved_bytes", "messages", "seconds")


@dataclass(frozen=True, slots=True)
class Result:
    """A Result is an array that is kept: asked for, or referred to by a live handle; how it will lie, where a plan says
    so.
    """

    type: str
    operation: str
    line: str | None
    is_target: bool
    shape: tuple[int, ...] = ()
    sharding: Sharding | None = None

    def as_json(self) -> dict[str, object]:
        """Return what stands in JSON: the type says all of shape and cut."""
        return {name: getattr(self, name) for name in ("type", "operation", "line", "is_target")}

    def drawing(self) -> str:
        """Return its tiles as SVG, coloured by member; empty where nothing is cut."""
        if self.sharding is None or self.sharding.n_tiles < 2:
            return ""
        return sharding_svg(self.shape, self.sharding)


@dataclass(frozen=True, slots=True)
class Measured:
    """A Measured is what was counted and measured when it ran.

    Parameters
    ----------
    wall_seconds
        Wall clock, with planning, until all results were there.
    seconds
        The sum over stages of what their busiest members took.
    tasks
        Handed to the executor.
    moved_bytes, messages
        That came to members from others for these tasks, as the members counted them.
    growth_bytes
        Most bytes by which the memory in use of a process grew; None where the system does not say.
    peak_bytes
        Most bytes of blocks that a member counted at any time, what lay there before included.
    beside_bytes
        What came to workers besides: copies of host data and of lineage, and what others do on the cluster.
    """

    wall_seconds: float
    seconds: float
    tasks: int
    moved_bytes: int
    messages: int
    growth_bytes: int | None
    peak_bytes: int = 0
    beside_bytes: int = 0


class _Row(NamedTuple):
    """A _Row is a line of the table: the text of each column."""

    stage: str = ""
    operations: str = ""
    cut: str = ""
    tiles: str = ""
    tasks: str = ""
    read: str = ""
    moved: str = ""
    messages: str = ""
    bound: str = ""
    written: str = ""
    peak: str = ""
    seconds: str = ""
    line: str = ""


#: Columns of numbers.
_RIGHT = (0, *range(4, 12))


def _total(name: str, text: str) -> Any:  # a property
    """Return the sum over the stages of what each has under a name."""
    return property(lambda explanation: sum([getattr(stage, name) for stage in explanation.stages]), doc=text)


@dataclass(frozen=True, slots=True)
class Explanation:
    """An Explanation says how arrays would be computed, or were. Printing it shows a table; notebooks show it as HTML.

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
    rates
        By which seconds are predicted, as text: whether they were calibrated.
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
    saved_seconds
        Predicted seconds of stages that some members compute while others compute another.
    programs
        Members whose tasks would be one program each, and one task of Dask; 0 where each task is one of Dask.
    measured
        With ``analyze=True``.
    passes
        What ran at the calls that made the results, before there was anything to plan: of a sort its runs and
        splitters. Their bytes are in none of the totals.
    """

    environment: str
    n_operations: int
    stages: tuple[StageReport, ...]
    results: tuple[Result, ...]
    plain: str | None = None
    planner: str | None = None
    from_cache: bool = False
    alternatives: tuple[str, ...] = ()
    rates: str = ""
    limit_bytes: int = 0
    peak_bytes: int = 0
    growth_bytes: int = 0
    host_bytes: int = 0
    products_bound_bytes: int = 0
    saved_seconds: float = 0.0
    programs: int = 0
    measured: Measured | None = None
    passes: tuple[Pass, ...] = ()

    tasks = _total("tasks", "Tasks of all stages.")
    read_bytes = _total("read_bytes", "Bytes that stages read.")
    moved_bytes = _total("moved_bytes", "Bytes that members send each other.")
    messages = _total("messages", "Messages between members.")
    lower_bound_bytes = _total("lower_bound_bytes", "Bytes that must be sent at least, given where the results lie.")
    written_bytes = _total("written_bytes", "Bytes of results that are stored, also if they are freed on the way.")

    @property
    def seconds(self) -> float:
        """Return predicted seconds: what the planner compared plans by.

        Stages come one after the other, but for those that some members compute while others compute another.
        """
        return sum([s.seconds for s in self.stages]) - self.saved_seconds

    @property
    def off(self) -> tuple[str, ...]:
        """Return the names of the totals from which what was measured differs by more than `TOLERANCE`."""
        if self.measured is None or not self.stages:
            return ()
        names = (*_MEASURED, "growth_bytes")
        found = [n for n in names if is_off(getattr(self, n), getattr(self.measured, n))]
        # A prediction of memory is a bound.
        is_above = self.measured.peak_bytes > self.peak_bytes * (1 + TOLERANCE)
        return (*found, *(["peak_bytes"] if is_above else []))

    def to_json(self) -> str:
        """Return everything as JSON text: sizes in bytes, totals under ``"total"``, and under ``"off"`` what is off."""
        names = ("read_bytes", "lower_bound_bytes", "written_bytes", *_MEASURED)
        stages = [{**asdict(s), "off": s.off} for s in self.stages]
        total = {**{name: getattr(self, name) for name in names}, "off": self.off}
        results = [r.as_json() for r in self.results]
        return json.dumps({**asdict(self), "stages": stages, "results": results, "total": total})

    def __str__(self) -> str:
        parts = [self._heading()]
        if self.stages:
            parts.append(format_table(_Row._fields, self._table(), _RIGHT))
        parts.append("\n".join(self._facts()))
        return "\n\n".join(parts)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        facts = "".join(f"<li>{escape(fact)}</li>" for fact in self._facts())
        table = html_table(_Row._fields, self._table(), _RIGHT) if self.stages else ""
        drawings = "".join([r.drawing() for r in self.results if r.is_target])
        return f"<div><p><b>{escape(self._heading())}</b></p>{table}<ul>{facts}</ul>{drawings}</div>"

    def _heading(self) -> str:
        operations = f"{self.n_operations} operation{'s' * (self.n_operations != 1)}"
        if self.plain is not None:
            return f"{operations}: {self.plain}"
        n = len(self.stages)
        return f"{operations} in {n} stage{'s' * (n != 1)} on {self.environment}"

    def _table(self) -> list[_Row]:
        """Return a line for each stage and for their total, each followed by what was measured."""
        rows = []
        for number, s in enumerate(self.stages):
            words = {"operations": _named(s.operations), "cut": _shortened(s.cut), "tiles": _tiles(s)}
            rows.append(_predicted(s)._replace(stage=str(number), line=s.line or "", **words))
            if s.measured_tasks is not None:
                rows.append(_measured(s.off, **{n: getattr(s, f"measured_{n}") for n in _MEASURED}))
        rows.append(_predicted(self)._replace(operations="total"))
        if self.measured is not None:
            rows.append(_measured(self.off, **{n: getattr(self.measured, n) for n in _MEASURED}))
        return rows

    def _facts(self) -> list[str]:
        """Return what is said below the table, a line each."""
        facts = [
            f"{'result' if r.is_target else 'kept, it is needed later'}: {_shortened(r.type)}  {r.operation}"
            f"{f'  {r.line}' if r.line else ''}"
            for r in self.results
        ]
        if self.planner is not None:
            facts.append(f"planner: {self.planner}, {'plan from the cache' if self.from_cache else 'planned now'}")
        facts += [f"also considered: {text}" for text in self.alternatives]
        if self.products_bound_bytes:
            bound = format_nbytes(self.products_bound_bytes)
            facts.append(
                f"products must move {bound} at least under any cut, even if each had its operands where it wants them"
            )
        if self.stages:
            facts += self._legend()
        for number, stage in enumerate(self.stages):
            facts += _collectives(number, stage)
        facts += _chains(self.stages)
        facts += [
            f"pass {number} at the call, {_named(p.operations)}: {p.tasks} tasks, {format_nbytes(p.moved_bytes)} "
            f"moved, {format_nbytes(p.peak_bytes)} per member at most"
            for number, p in enumerate(self.passes)
        ]
        if self.host_bytes:
            facts.append(f"host -> team: {format_nbytes(self.host_bytes)}")
        if self.measured is not None:
            facts.append(self._fact_of_measured(self.measured))
        if self.off or any(s.off for s in self.stages):
            facts.append(f"{MARK}: differs from what was predicted by more than {TOLERANCE:.0%}")
        return facts

    def _legend(self) -> list[str]:
        """Say what the columns are."""
        fits = "" if self.peak_bytes <= self.limit_bytes else "; above the limit"
        overlap = "their total is as if no stages overlapped"
        if self.saved_seconds:
            saved = format_seconds(self.saved_seconds)
            overlap = f"their total is less by {saved} in which different members compute different stages"
        programs = f"runs as {self.programs} member programs: one task of Dask each, however many tasks it has"
        return [
            *([programs] if self.programs else ()),
            "read, moved, bound (what this cut must move at least) and written: summed over members",
            f"peak: {format_nbytes(self.peak_bytes)} per member, of {format_nbytes(self.limit_bytes)} allowed{fits}",
            f"seconds: of the busiest member, by {self.rates}; {overlap}",
        ]

    def _fact_of_measured(self, measured: Measured) -> str:
        text = f"measured: {format_seconds(measured.wall_seconds)} with planning"
        if measured.growth_bytes is not None:
            text += f", memory in use grew by {format_nbytes(measured.growth_bytes)} at most"
            if self.stages:
                text += MARK * ("growth_bytes" in self.off)
                text += f" (predicted: blocks of {format_nbytes(self.growth_bytes)})"
        if self.stages:
            text += f"; a member held blocks of {format_nbytes(measured.peak_bytes)} at most"
            text += MARK * ("peak_bytes" in self.off)
        if measured.beside_bytes:
            text += f"; {format_nbytes(measured.beside_bytes)} were copied besides (host data, lineage)"
        return text


def joined(parts: Sequence[Explanation]) -> Explanation:
    """Return one explanation of what runs one after the other, in one environment each; the results are those of the
    last.
    """
    last = parts[-1]
    if len(parts) == 1:
        return last
    measured = [part.measured for part in parts if part.measured is not None]
    growths = [m.growth_bytes for m in measured if m.growth_bytes is not None]
    whole = Measured(
        growth_bytes=max(growths, default=None),
        peak_bytes=max([m.peak_bytes for m in measured], default=0),
        **_totals(measured, "wall_seconds", "seconds", "tasks", "moved_bytes", "messages", "beside_bytes"),
    )
    return replace(
        last,
        stages=tuple([stage for part in parts for stage in part.stages]),
        plain=None,
        planner=next((part.planner for part in reversed(parts) if part.planner is not None), None),
        from_cache=all(part.from_cache for part in parts if part.planner is not None),
        alternatives=tuple([text for part in parts for text in part.alternatives]),
        rates=next((part.rates for part in reversed(parts) if part.rates), ""),
        limit_bytes=next((part.limit_bytes for part in reversed(parts) if part.limit_bytes), 0),
        peak_bytes=max([part.peak_bytes for part in parts]),
        growth_bytes=max([part.growth_bytes for part in parts]),
        passes=tuple({id(p): p for part in parts for p in part.passes}.values()),
        measured=whole if measured else None,
        **_totals(parts, "n_operations", "host_bytes", "products_bound_bytes", "saved_seconds", "programs"),
    )


def _totals(of: Sequence[Any], *names: str) -> dict[str, Any]:  # numbers
    return {name: sum([getattr(each, name) for each in of]) for name in names}


# -- words ------------------------------------------------------------------------------------------------------


def _predicted(found: StageReport | Explanation) -> _Row:
    """Return the numbers of a stage, or of all of them."""
    return _Row(
        tasks=str(found.tasks),
        read=format_nbytes(found.read_bytes),
        moved=format_nbytes(found.moved_bytes),
        messages=str(found.messages),
        bound=format_nbytes(found.lower_bound_bytes),
        written=format_nbytes(found.written_bytes),
        peak=format_nbytes(found.peak_bytes),
        seconds=format_seconds(found.seconds),
    )


def _measured(off: Sequence[str], tasks: int, moved_bytes: int, messages: int, seconds: float) -> _Row:
    """Return what was measured, in the columns of what was predicted; marked if it is off."""

    def marked(name: str, text: str) -> str:
        return text + MARK * (name in off)

    return _Row(
        operations="  measured",
        tasks=marked("tasks", str(tasks)),
        moved=marked("moved_bytes", format_nbytes(moved_bytes)),
        messages=marked("messages", str(messages)),
        seconds=marked("seconds", format_seconds(seconds)),
    )


def _named(operations: Sequence[str]) -> str:
    """Return the names of operations, repeated ones counted.

    >>> _named(["add", "multiply", "multiply", "add", "multiply", "sum"])
    'add x2, multiply x3, sum'
    """
    counts = Counter(operations)
    names = [name if n == 1 else f"{name} x{n}" for name, n in counts.items()]
    if len(names) > MAX_NAMES:
        others = list(counts.values())[MAX_NAMES - 1 : -1]
        names = [*names[: MAX_NAMES - 1], f"... {sum(others)} more", names[-1]]
    return ", ".join(names)


def _chains(stages: Sequence[StageReport]) -> list[str]:
    """Return a line for each chain of halo stages."""
    found: list[str] = []
    first = 0
    for chain, several in groupby(stages, lambda stage: stage.chain):
        n = len(list(several))
        if chain >= 0:
            text = "exchange once, at the first: members compute what they need beside their tiles"
            found.append(f"stages {first} to {first + n - 1} {text}")
        first += n
    return found


def _collectives(number: int, stage: StageReport) -> list[str]:
    """Return a line for each step of a redistribution."""
    how = f"{stage.mode}" + (f" in {stage.waves} waves" if stage.waves > 1 else "")
    lines = [
        f"stage {number}, {how}: {step.name} makes tiles {list(step.tile)}, {_moved(stage, step)} holds "
        f"{format_nbytes(step.peak)}"
        for step in stage.collectives
    ]
    if lines:
        lines.append(f"stage {number}: a member holds at most {format_nbytes(stage.held_bytes)} in any order of tasks")
    return lines


def _moved(stage: StageReport, step: StepReport) -> str:
    """Say what a step moves, up to the verb of what a member holds."""
    if stage.moved_bytes or not step.moved:
        return f"moves {format_nbytes(step.moved)}, a member receives at most {format_nbytes(step.received)} and"
    return f"reads {format_nbytes(step.moved)} of other members in place (one process), a member"


def _tiles(stage: StageReport) -> str:
    cut = "x".join(map(str, stage.parts))
    return str(stage.tiles) if stage.tiles == 1 or len(stage.parts) < 2 else f"{stage.tiles} ({cut})"


def _shortened(text: str) -> str:
    if len(text) <= MAX_TYPE:
        return text
    half = (MAX_TYPE - 3) // 2
    return f"{text[:half]}...{text[-half:]}"
