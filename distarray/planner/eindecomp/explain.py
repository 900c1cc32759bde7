"""Plans as tables, for people to read (specification section 7)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distarray.planner.eindecomp.costs import agg_cost, join_cost, n_kernels, repart_costs

if TYPE_CHECKING:
    from distarray.planner.eindecomp.plans import EinPlan

__all__ = ["explained"]

HEADER = (
    "op", "einsum", "split", "kernels", "join MB", "agg MB", "repart MB", "moved MB (pred)", "lower bound MB",
    "peak MB/worker", "seconds",
)  # fmt: skip
#: Columns that are aligned to the left.
TEXTS = 3


def explained(plan: EinPlan) -> str:
    """Each operation with what it costs in both objectives, totals, and what other plans would cost."""
    rows: list[tuple[str, ...]] = [HEADER]
    for v, op in plan.graph.ops.items():
        split = " ".join(f"{x}={k}" for x, k in plan.splits[v].items() if k > 1) or "-"
        text = ",".join("".join(term) for term in op.terms) + "->" + "".join(op.result)
        rows.append((v, text, split, str(n_kernels(plan.splits[v])), *_numbers(plan, v)))
    widths = [max(len(row[c]) for row in rows) for c in range(len(HEADER))]
    lines = []
    for row in rows:
        cells = [cell.ljust(w) if c < TEXTS else cell.rjust(w) for c, (cell, w) in enumerate(zip(row, widths))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join([_head(plan), *lines, _total(plan), _alternatives(plan)])


def _megabytes(nbytes: float) -> str:
    """Millions of bytes, three digits at least.

    >>> _megabytes(1_280_000_000), _megabytes(12_345), _megabytes(0)
    ('1280', '0.0123', '0')
    """
    number = nbytes / 1e6
    return f"{number:.0f}" if number >= 100 or number == 0 else f"{number:.3g}"


def _numbers(plan: EinPlan, v: str) -> tuple[str, ...]:
    """Costs of one operation: as the paper counts them, in the bytes of its arrays, and as predicted."""
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
    """In all: the paper's cost, of it what goes into contractions, lower bound and prediction."""
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
    """What other plans cost, in the objective of this one, and the ratios to its cost."""
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
