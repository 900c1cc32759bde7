"""The memory budget of a member, held against what one task of an operation on whole matrices or vectors needs.

Most operations are cut until their tiles fit. A kernel that needs an axis whole (`ShardingRule`'s ``whole``:
eigenvalues, the transform of a vector) cannot be, so here its tiles are measured before any task is handed out.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

from distarray.errors import MemoryBudgetError
from distarray.execution.retention import result_nbytes
from distarray.expr.expr import Expr

if TYPE_CHECKING:
    from distarray.execution.drafts import Draft

__all__ = ["check_whole_kernels"]


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
