"""Plans of EinGraphs: what the library and the command line return."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isqrt
from typing import Any, Literal, TypeAlias, get_args

from distarray.errors import ShardingError
from distarray.planner.eindecomp.axis_cuts import AxisCut, n_parts
from distarray.planner.eindecomp.bounds import op_bound
from distarray.planner.eindecomp.candidates import Kernels, Options
from distarray.planner.eindecomp.checks import check_graph, check_p, check_workers, is_integer
from distarray.planner.eindecomp.counting import GraphCount
from distarray.planner.eindecomp.eingraph import EinGraph, EinOp, Label
from distarray.planner.eindecomp.fastest import Limit, PricedGraph, fastest, placed
from distarray.planner.eindecomp.graph_files import parse_graph
from distarray.planner.eindecomp.machine import Machine
from distarray.planner.eindecomp.paper_costs import (
    Repart,
    Splits,
    agg_cost,
    graph_cost,
    join_cost,
    n_kernels,
    repart_costs,
)
from distarray.planner.eindecomp.problems import PaperProblem, exact, linearised, tree
from distarray.planner.rates import Location, Rates, current_rates
from distarray.tables import format_table

#: Columns of the table that people read.
HEADER = (
    "op", "einsum", "split", "kernels", "join MB", "agg MB", "repart MB", "moved MB (pred)", "lower bound MB",
    "peak MB/worker", "seconds",
)  # fmt: skip
#: Columns that are aligned to the left.
TEXTS = 3

Search: TypeAlias = Literal["exact", "linearised", "tree"]
Objective: TypeAlias = Literal["time", "paper"]


@dataclass(frozen=True)
class EinPlan:
    """An EinPlan says how every operation of a graph is cut, and where its kernels and blocks are.

    Parameters
    ----------
    graph
        What was planned, with the layouts that were given.
    splits
        Parts of each label, by operation.
    objective
        ``time`` or ``paper``.
    options
        What the search could choose from.
    machine
        The workers.
    limit
        Bytes that one may use.
    search
        What was really used: ``exact``, ``linearised``, ``tree`` or ``fallback``.
    seconds
        That planning took.
    """

    graph: EinGraph
    splits: Mapping[str, Splits]
    objective: Objective
    options: Options
    machine: Machine
    limit: Limit
    search: str
    seconds: float
    found: PricedGraph | None = None

    @cached_property
    def placed(self) -> PricedGraph:
        """Return the plan on its workers; one for the paper's objective is placed like those for the other."""
        return self.found or placed(self.graph, self.splits, self.machine, self.limit)

    @property
    def count(self) -> GraphCount:
        """Return what the placed plan moves, holds and takes, for each operation and in all."""
        return self.placed.count

    @property
    def cost(self) -> int | float:
        """Return elements, in the paper's count, or predicted seconds: what `plan_cost` says of `splits`."""
        if self.objective == "paper":
            return graph_cost(self.graph, self.splits, self.options.repart)
        return self.count.seconds

    @property
    def placement(self) -> dict[str, Any]:
        """Return the worker of every kernel, by operation: an array with an axis for each of its labels."""
        return {v: o.workers.reshape(o.parts) for v, o in self.placed.placement.ops.items()}

    @property
    def layouts(self) -> dict[str, tuple[AxisCut, ...]]:
        """Return how inputs and results are cut: for each dimension the number of parts, or all boundaries if not
        regular.
        """
        return {name: array.cut for name, array in self.placed.placement.arrays.items()}

    @property
    def owners(self) -> dict[str, Any]:
        """Return the worker of every block of inputs and results: an array with an axis for each dimension."""
        arrays = self.placed.placement.arrays
        return {name: array.owners.reshape([n_parts(cut) for cut in array.cut]) for name, array in arrays.items()}

    @property
    def kernel(self) -> tuple[tuple[tuple[Label, ...], ...], tuple[Label, ...], Splits]:
        """Return what `einsum` takes of a plan of one operation: labels of operands and result, and parts of each
        label.

        Raises
        ------
        ShardingError
            If there are several operations.
        """
        if len(self.graph.ops) != 1:
            raise ShardingError(f"the plan is of {len(self.graph.ops)} operations, and einsum makes one")
        ((name, op),) = self.graph.ops.items()
        return op.terms, op.result, self.splits[name]

    def op_lower_bound(self, v: str) -> float:
        """Return the elements that an operation must move with as many kernels on workers of their own as it has."""
        op = self.graph.ops[v]
        words = None if self.limit.nbytes is None else self.limit.nbytes / op.itemsize
        return op_bound(op, min(self.options.p, n_kernels(self.splits[v])), words)

    @property
    def lower_bound(self) -> float:
        """Return the elements that the operations must move, each by itself: it ignores that results may lie well for
        others.
        """
        return sum([self.op_lower_bound(v) for v in self.graph.ops])

    @property
    def lower_bound_bytes(self) -> float:
        """Return the lower bound in bytes, if all elements of an operation had the smallest of its itemsizes."""
        return sum([self.op_lower_bound(v) * self.graph.smallest_itemsize(v) for v in self.graph.ops])

    def to_json(self) -> dict[str, Any]:
        """Return the plan as plain data: what the command prints."""
        counted = self.count
        return {
            "cost": self.cost,
            "plan": {v: {x: int(k) for x, k in d.items()} for v, d in self.splits.items()},
            "search": self.search,
            "seconds": self.seconds,
            "objective": self.objective,
            "p": self.options.p,
            "kernels": {v: n_kernels(d) for v, d in self.splits.items()},
            "layouts": {u: [n_parts(cut) for cut in self.layouts[u]] for u in self.graph.inputs},
            "predicted_seconds": counted.seconds,
            "moved_bytes": counted.moved_bytes,
            "messages": counted.messages,
            "tasks": counted.tasks,
            "peak_bytes": counted.peak_bytes,
            "streamed": counted.streamed,
            "lower_bound": self.lower_bound,
            "lower_bound_bytes": self.lower_bound_bytes,
            "ops": {v: self._op_json(v) for v in self.graph.ops},
        }

    def _op_json(self, v: str) -> dict[str, Any]:
        counted = self.count.ops[v]
        return {
            "join_bytes": counted.join_bytes,
            "agg_bytes": counted.agg_bytes,
            "moved_bytes": counted.moved_bytes,
            "messages": counted.messages,
            "tasks": counted.tasks,
            "seconds": counted.seconds,
            "peak_bytes": counted.peak_bytes,
            "lower_bound": self.op_lower_bound(v),
        }

    def alternatives(self) -> dict[str, float | str]:
        """Return what other plans cost, in the objective of this one and without a limit; or why there is none."""
        options, machine = self.options, self.machine
        same: dict[str, Any] = {"p": options.p, "rates": machine.rates, "places": machine.places}
        searched: dict[str, Any] = {**same, "splits": options.splits, "repart": options.repart}
        mine: dict[str, Any] = {**searched, "objective": self.objective, "kernels": options.kernels}
        kernels = "upto" if options.kernels == "equal" else "equal"
        objective: Objective = "time" if self.objective == "paper" else "paper"
        others: dict[str, Callable[[], Mapping[str, Splits]]] = {
            f"kernels {kernels}": lambda: plan(self.graph, **{**mine, "kernels": kernels}).splits,
            "linearised": lambda: plan(self.graph, **{**mine, "search": "linearised"}).splits,
            f"{objective} objective": lambda: plan(self.graph, objective=objective, **searched).splits,
            "sqrt": self._sqrt,
            "rows": lambda: {v: self._rows(op) for v, op in self.graph.ops.items()},
        }
        costs: dict[str, float | str] = {}
        for name, splits in others.items():
            try:
                costs[name] = plan_cost(self.graph, splits(), self.objective, options.repart, **same)
            except ShardingError as error:
                costs[name] = str(error)
        return costs

    def _sqrt(self) -> Mapping[str, Splits]:
        """Return every label in the square root of p parts."""
        q = isqrt(self.options.p)
        if q * q != self.options.p:
            raise ShardingError(f"{self.options.p} is not a square")
        return {v: dict.fromkeys(op.labels, q) for v, op in self.graph.ops.items()}

    def _rows(self, op: EinOp) -> Splits:
        """Return the first label of the result in p parts."""
        return {x: min(self.options.p, op.extents[x]) for x in op.result[:1]}

    def explain(self) -> str:
        """Return the plan as a table, for people to read; numbers in megabytes are millions of bytes."""
        return _explained(self)


def plan(
    graph: EinGraph | Mapping[str, Any],
    *,
    p: int | None = None,
    objective: Objective = "time",
    splits: Literal["pow2", "any"] | None = None,
    repart: Repart = "paper",
    search: Search = "exact",
    kernels: Kernels | None = None,
    memory_limit: float | None = None,
    rates: Rates | None = None,
    places: Sequence[Location] | None = None,
) -> EinPlan:
    """Cut every operation of a graph so that it runs fastest, or moves least as the paper counts: what `dx.plan` says.

    Parameters
    ----------
    graph, p, objective, splits, repart, search, kernels, memory_limit
        As `dx.plan` takes them.
    rates
        What moving and computing cost; those that hold now if not given.
    places
        (node, process) of each worker; every worker is on a node of its own if not given.

    Raises
    ------
    ShardingError
        If graph or options cannot be, or the tree search is asked of a graph that is none.
    MemoryBudgetError
        If nothing fits `memory_limit`: it names the operation and the smallest limit that would do.

    References
    ----------
    EinDecomp (arXiv 2410.02682), sections 6 to 8.
    """
    _check(objective=objective, search=search, repart=repart, kernels=kernels)
    found = _graph(graph)
    size = p if p is not None else found.p
    if size is None:
        raise ShardingError("p is not given: neither as an option nor in the graph")
    is_paper = objective == "paper"
    kind: Any = splits or found.parts or ("pow2" if is_paper else "any")
    if kind not in ("pow2", "any"):
        raise ShardingError(f"splits {kind!r} is unknown; use pow2 or any")
    options = Options(size, kind, kernels or ("equal" if is_paper else "upto"), repart)
    machine = _machine(found, size, rates, places)
    limit = Limit(memory_limit)
    started = time.perf_counter()
    if not is_paper:
        best, used = fastest(found, options, machine, search, limit)
        seconds = time.perf_counter() - started
        return EinPlan(found, best.splits, objective, options, machine, limit, used, seconds, best)
    problem = PaperProblem(found, options)
    if search == "exact":
        chosen, used = exact(problem)
    else:
        chosen, used = (tree if search == "tree" else linearised)(problem), search
    seconds = time.perf_counter() - started
    return EinPlan(found, chosen, objective, options, machine, limit, used, seconds)


def plan_cost(
    graph: EinGraph | Mapping[str, Any],
    splits: Mapping[str, Splits],
    objective: Objective = "paper",
    repart: Repart = "paper",
    *,
    p: int | None = None,
    rates: Rates | None = None,
    places: Sequence[Location] | None = None,
) -> int | float:
    """Return what a labelled graph costs, with any number of kernels: elements as the paper counts them, or predicted
    seconds; what `dx.plan_cost` says.

    Parameters
    ----------
    graph, splits, objective, repart, p
        As `dx.plan_cost` takes them.
    rates, places
        As `plan` takes them.

    Raises
    ------
    ShardingError
        If an operation has no splits, or they do not fit: in the paper's objective parts divide the extents. If `p` is
        no number of workers.
    """
    _check(objective=objective, repart=repart)
    if p is not None:
        check_p(p)
    found = _graph(graph)
    full = _full(found, splits, even=objective == "paper")
    if objective == "paper":
        return graph_cost(found, full, repart)
    size = p or found.p or max([n_kernels(d) for d in full.values()], default=1)
    return placed(found, full, _machine(found, size, rates, places)).count.seconds


def _check(**options: str | None) -> None:
    known: dict[str, Any] = {"objective": Objective, "search": Search, "repart": Repart, "kernels": Kernels}
    for name, value in options.items():
        allowed = get_args(known[name])
        if value is not None and value not in allowed:
            raise ShardingError(f"{name} {value!r} is unknown; use one of {', '.join(allowed)}")


def _graph(given: EinGraph | Mapping[str, Any]) -> EinGraph:
    graph = given if isinstance(given, EinGraph) else parse_graph(given)
    check_graph(graph)
    return graph


def _machine(graph: EinGraph, p: int, rates: Rates | None, places: Sequence[Location] | None) -> Machine:
    check_workers(graph, p)
    return Machine(p, rates or current_rates(), None if places is None else tuple(places))


def _full(graph: EinGraph, splits: Mapping[str, Splits], *, even: bool) -> dict[str, Splits]:
    """Return splits with all labels, checked."""
    if unknown := splits.keys() - graph.ops.keys():
        raise ShardingError(f"splits are given for {sorted(map(str, unknown))[0]!r}, which is no op of the graph")
    full: dict[str, Splits] = {}
    for v, op in graph.ops.items():
        if v not in splits:
            raise ShardingError(f"op {v!r} has no splits")
        if not isinstance(splits[v], Mapping):
            raise ShardingError(f"op {v!r}: its splits {splits[v]!r} are no mapping from labels to parts")
        for x, k in splits[v].items():
            if x not in op.extents:
                raise ShardingError(f"op {v!r} has no label {x!r}")
            if not is_integer(k, 1):
                raise ShardingError(f"op {v!r}: the parts {k!r} of label {x!r} are no positive integer")
        d = {x: int(splits[v].get(x, 1)) for x in op.labels}
        for x, k in d.items():
            if k < 1 or (even and op.extents[x] % k):
                raise ShardingError(f"op {v!r}: {k} parts do not divide the extent {op.extents[x]} of label {x!r}")
            if k > op.extents[x]:
                raise ShardingError(f"op {v!r}: label {x!r} has {op.extents[x]} elements and no {k} parts")
        full[v] = d
    return full


def _explained(plan: EinPlan) -> str:
    """Return each operation with what it costs in both objectives, totals, and what other plans would cost."""
    rows: list[tuple[str, ...]] = []
    for v, op in plan.graph.ops.items():
        split = " ".join(f"{x}={k}" for x, k in plan.splits[v].items() if k > 1) or "-"
        text = ",".join("".join(term) for term in op.terms) + "->" + "".join(op.result)
        rows.append((v, text, split, str(n_kernels(plan.splits[v])), *_numbers(plan, v)))
    table = format_table(HEADER, rows, right=range(TEXTS, len(HEADER)))
    return "\n".join([_head(plan), table, _total(plan), _alternatives(plan)])


def _megabytes(nbytes: float) -> str:
    """Return millions of bytes, three digits at least.

    >>> _megabytes(1_280_000_000), _megabytes(12_345), _megabytes(0)
    ('1280', '0.0123', '0')
    """
    number = nbytes / 1e6
    return f"{number:.0f}" if number >= 100 or number == 0 else f"{number:.3g}"


def _numbers(plan: EinPlan, v: str) -> tuple[str, ...]:
    """Return the costs of one operation: as the paper counts them, in the bytes of its arrays, and as predicted."""
    op, d, counted = plan.graph.ops[v], plan.splits[v], plan.count.ops[v]
    elements = (join_cost(op, d), agg_cost(op, d), repart_costs(plan.graph, plan.splits, v, plan.options.repart))
    bound = plan.op_lower_bound(v) * plan.graph.smallest_itemsize(v)
    return (
        *[_megabytes(n * op.itemsize) for n in elements],
        _megabytes(counted.moved_bytes),
        _megabytes(bound),
        _megabytes(counted.peak_bytes),
        f"{counted.seconds:.3g}",
    )


def _head(plan: EinPlan) -> str:
    cap = "" if plan.limit.nbytes is None else f", cap {_megabytes(plan.limit.nbytes)} MB/worker"
    return (
        f"EinGraph: {len(plan.graph.ops)} ops, {len(plan.graph.inputs)} inputs, {plan.options.p} workers{cap}     "
        f"plan: {plan.search} ({plan.seconds * 1e3:.1f} ms)     objective: {plan.objective}"
    )


def _total(plan: EinPlan) -> str:
    """Return the line of the totals: the paper's cost, of it what goes into contractions, lower bound and
    prediction.
    """
    graph, splits = plan.graph, plan.splits
    elements = products = nbytes = 0
    for v, op in graph.ops.items():
        cost = join_cost(op, splits[v]) + agg_cost(op, splits[v])
        cost += repart_costs(graph, splits, v, plan.options.repart)
        elements, nbytes = elements + cost, nbytes + cost * op.itemsize
        products += join_cost(op, splits[v]) * op.itemsize if op.is_contraction else 0
    counted = plan.count
    return (
        f"total  paper model {elements:.4g} elements = {_megabytes(nbytes)} MB | joins of the products only "
        f"{_megabytes(products)} MB | lower bound {_megabytes(plan.lower_bound_bytes)} MB (each op by itself) | "
        f"predicted {_megabytes(counted.moved_bytes)} MB in {counted.messages} messages, {counted.seconds:.3g} s, peak "
        f"{_megabytes(counted.peak_bytes)} MB/worker"
    )


def _alternatives(plan: EinPlan) -> str:
    """Return what other plans cost, in the objective of this one, and the ratios to its cost."""
    sizes = {op.itemsize for op in plan.graph.ops.values()}
    texts = []
    for name, cost in plan.alternatives().items():
        if isinstance(cost, str):
            texts.append(f"{name} n/a ({cost})")
            continue
        if plan.objective == "time":
            text = f"{cost:.3g} s"
        else:
            text = f"{_megabytes(cost * min(sizes))} MB" if len(sizes) == 1 else f"{cost:.4g} elements"
        texts.append(f"{name} {text} ({cost / plan.cost:.2f}x)" if plan.cost else f"{name} {text}")
    return "alternatives  " + " | ".join(texts)
