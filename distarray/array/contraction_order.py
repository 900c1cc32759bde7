"""What contraction orders cost by the best plan for them: how `ops.paths` ranks those of about as many operations."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from distarray.ops.paths import Factors, PathStep

Objective = Literal["time", "paper"]


@lru_cache(maxsize=1024)
def planned_cost(factors: Factors, steps: tuple[PathStep, ...], objective: Objective) -> float:
    """Return what the best plan costs for the products of an order on the members that there are."""
    from distarray.planner.eindecomp import EinGraph, EinOp, Input, plan  # late: where there is a choice of orders

    layouts = factors.parts or (None,) * len(factors.terms)
    inputs = {
        f"x{i}": Input(tuple([factors.extents[k] for k in term]), layout, itemsize=factors.itemsize)
        for i, (term, layout) in enumerate(zip(factors.terms, layouts, strict=True))
    }
    join, agg = ("mul", "sum") if factors.is_product else ("join", "agg")
    names = list(inputs)
    ops: dict[str, EinOp] = {}
    for n, step in enumerate(steps):
        labels = [*step.result, *(k for term in step.terms for k in term)]
        names.append(f"y{n}")
        ops[f"y{n}"] = EinOp(
            tuple([_named(term) for term in step.terms]),
            _named(step.result),
            tuple([names[i] for i in step.factors]),
            {str(k): factors.extents[k] for k in labels},
            join,
            agg,
            itemsize=factors.itemsize,
        )
    graph = EinGraph(inputs, ops)
    return float(plan(graph, p=factors.n_members, objective=objective, splits="any", kernels="upto").cost)


def _named(labels: tuple[int, ...]) -> tuple[str, ...]:
    return tuple([str(k) for k in labels])
