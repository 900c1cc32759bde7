"""The memory budget of a member, held against what a plan needs before any task is handed out.

Most operations are cut until they fit, and streamed (`fit`); where even that is not enough, a budget that the user has
set is an error. A kernel that needs an axis whole (`ShardingRule`'s ``whole``: eigenvalues, the transform of a vector)
cannot be cut, so its tiles are measured against any budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

from distarray.errors import MemoryBudgetError
from distarray.execution.memory import is_limit_set
from distarray.execution.retention import result_nbytes
from distarray.expr.expr import Expr
from distarray.planner.plan import Plan

if TYPE_CHECKING:
    from distarray.execution.drafts import Draft

__all__ = ["check_peak", "check_whole_kernels"]


def check_peak(plan: Plan, nodes: Sequence[Expr], limit: int) -> None:
    """Check that a plan keeps to the option ``memory-limit``, if it is set.

    Without it the limit is a guess, half of what a member has: planners aim at it, but what does not fit may yet run,
    and on a cluster blocks may lie on disk.

    Raises
    ------
    MemoryBudgetError
        If nothing that was tried fits; says for what, and how much memory the best plan needs.
    """
    if plan.above is None or not is_limit_set():
        return
    needed, stage = plan.above
    names = ", ".join(dict.fromkeys(nodes[i].op.name for i in plan.stages[stage].nodes))
    raise MemoryBudgetError(
        f"{names}: a member would hold {needed} bytes by the best plan that was found, what lies there already "
        f"included, above the memory-limit of {limit} bytes; raise the option to {needed} or more, drop arrays that "
        "are not needed, or use more workers"
    )


def check_whole_kernels(drafts: Sequence[Draft], nodes: Sequence[Expr], limit: int) -> None:
    """Check that the operands and results of each task of such a kernel fit a member.

    Parameters
    ----------
    drafts
        The stages, cut into tiles.
    nodes
        What `drafts` number.
    limit
        Bytes that a member may use.

    Raises
    ------
    MemoryBudgetError
        If they do not; says how many bytes they are.
    """
    for draft in drafts:
        if draft.stage.kind != "block" or not draft.loops.whole:
            continue
        node = nodes[draft.stage.nodes[0]]
        operands = sum(prod(r.lens.shape) * nodes[r.node].dtype.itemsize for r in draft.readings)
        if operands + result_nbytes(node) <= limit:  # even in one task
            continue
        needed, results = max(_nbytes(draft, nodes))
        if needed > limit:
            raise MemoryBudgetError(
                f"{node.op.name}: one task needs {needed} bytes ({needed - results} of operands, {results} of "
                f"results), above the {limit} bytes that a member may use: this operation is not cut along the axes "
                "that it works on; raise the option memory-limit, or use workers with more memory"
            )


def _nbytes(draft: Draft, nodes: Sequence[Expr]) -> list[tuple[int, int]]:
    """For each tile the bytes of operands and results, and of these the results."""
    node = nodes[draft.stage.nodes[0]]
    dtypes = node.dtype if isinstance(node.dtype, tuple) else (node.dtype,)
    found = []
    for tile in draft.tiles:
        results = sum(
            prod(len(tile.box[a]) for a in axes) * dtype.itemsize
            for axes, dtype in zip(draft.loops.results, dtypes, strict=True)
        )
        operands = sum(
            prod(map(len, want.box)) * nodes[r.node].dtype.itemsize
            for want, r in zip(tile.wants, draft.readings, strict=True)
        )
        found.append((operands + results, results))
    return found
