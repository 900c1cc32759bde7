"""The tables of plans in the explanation of EinDecomp: what is planned for workloads, beside usual ways to cut them.

``python docs/plan_table.py`` writes them into ``explanation/eindecomp.md``; a test asks whether they are up to date.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from made import Page

import distarray as dx
from distarray.planner.rates import Rates
from distarray.testing import eingraphs, labellings

Json = dict[str, Any]
Labelling = dict[str, dict[str, int]]
#: Name and workload, and what cuts its tensors (its hidden layer, its heads) instead of its batch.
WORKLOADS: dict[str, tuple[Json, Callable[[Json, int], Labelling] | None]] = {
    "P1 square, s = 8000, p = 16": (eingraphs.matrix_chain(8000, 16), None),
    "P1 skew, s = 8000, p = 16": (eingraphs.matrix_chain(8000, 16, skew=True), None),
    "P2 step, b = 512, f = 65536, p = 4": (eingraphs.ffnn(512, 65536), labellings.hidden_parallel),
    "P3 7B block, b = 4, s = 4096, p = 4": (eingraphs.llama(p=4), labellings.megatron),
    "P4 heads, h = 8, s = 16384, p = 4": (eingraphs.heads(p=4), labellings.hidden_parallel),
}
USUAL: dict[str, Callable[[Json, int], Labelling]] = {
    "SQRT": labellings.sqrt_parts,
    "data parallel": labellings.data_parallel,
    "sequence": labellings.sequence,
}
NOTHING = "-"


def usual(graph: Json, tensor_parallel: Callable[[Json, int], Labelling] | None) -> dict[str, Labelling | None]:
    """Labellings to compare with; None where a workload has no such label, or too little of it."""
    made: dict[str, Labelling | None] = {}
    for name, labelling in {**USUAL, "tensor parallel": tensor_parallel}.items():
        found = labelling(graph, graph["p"]) if labelling is not None else {}
        made[name] = found if found and labellings.n_kernels(found)[1] > 1 else None
    return made


def cost(graph: Json, labelling: Labelling | None, objective: Any, best: float) -> str:
    """How many times the best cost, and how many kernels the operations have if not as many as there are workers."""
    if labelling is None:
        return NOTHING
    try:
        times = dx.plan_cost(graph, labelling, objective) / best
    except dx.ShardingError:  # an extent is smaller than that
        return NOTHING
    few, many = labellings.n_kernels(labelling)
    kernels = "" if few == many == graph["p"] else f", {few} to {many} kernels"
    return f"{times:.2f} x{kernels}"


def paper_table() -> str:
    """Elements, as the paper counts them."""
    lines = ["| workload | planned | fewer kernels allowed | linearised | " + " | ".join(usual_names()) + " |"]
    lines.append("|---" * (4 + len(usual_names())) + "|")
    for name, (graph, tensor_parallel) in WORKLOADS.items():
        best = dx.plan(graph, objective="paper").cost
        others = [{"kernels": "upto"}, {"search": "linearised"}]
        cells = [f"{dx.plan(graph, objective='paper', **o).cost / best:.2f} x" for o in others]  # type: ignore[arg-type]
        cells += [cost(graph, found, "paper", best) for found in usual(graph, tensor_parallel).values()]
        lines.append(f"| {name} | {best / 1e9:.3f} | {' | '.join(cells)} |")
    return "\n".join(lines)


def time_table() -> str:
    """Predicted seconds on workers with the default rates."""
    lines = ["| workload | planned | moved | lower bound | linearised | " + " | ".join(usual_names()) + " |"]
    lines.append("|---" * (5 + len(usual_names())) + "|")
    for name, (graph, tensor_parallel) in WORKLOADS.items():
        found = dx.plan(graph)
        cells = [f"{found.count.moved_bytes / 1e9:.2f} GB", f"{found.lower_bound_bytes / 1e9:.2f} GB"]
        cells.append(f"{dx.plan(graph, search='linearised').cost / found.cost:.2f} x")
        cells += [cost(graph, given, "time", found.cost) for given in usual(graph, tensor_parallel).values()]
        lines.append(f"| {name} | {found.cost:.3g} s | {' | '.join(cells)} |")
    return "\n".join(lines)


def usual_names() -> list[str]:
    return [*USUAL, "tensor parallel"]


def tables() -> str:
    """Both tables, and what stands before each."""
    # whatever is set where this runs: the page has the default rates
    with dx.config.set(calibration=None, objective="time"):
        assert dx.plan(next(iter(WORKLOADS.values()))[0]).machine.rates == Rates()
        return (
            f"Elements as the paper counts them, in 10^9, and the others as multiples of them:\n\n{paper_table()}\n\n"
            f"Predicted seconds with the default rates:\n\n{time_table()}"
        )


PAGE = Page("explanation/eindecomp.md", __file__, tables)

if __name__ == "__main__":
    PAGE.write()
