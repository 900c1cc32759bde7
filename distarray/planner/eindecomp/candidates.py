"""The partition vectors that a search chooses from (specification sections 2.5 and 2.6)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, TypeAlias

import numpy as np

from distarray.errors import ShardingError
from distarray.planner.eindecomp.costs import Repart, op_cost, repart_cost
from distarray.planner.eindecomp.graph import EinGraph, EinOp

__all__ = ["Kernels", "Options", "States", "divisors", "states_of", "vectors"]

Kernels: TypeAlias = Literal["equal", "upto"]


@dataclass(frozen=True, slots=True)
class Options:
    """What a search may choose.

    Parameters
    ----------
    p
        Kernels per operation.
    splits
        ``pow2``: powers of two; ``any``: every factorisation.
    kernels
        ``equal``: every operation has `p` kernels; ``upto``: those that are no contractions any divisor of it.
    repart
        Reading of the repartition cost.
    """

    p: int
    splits: Literal["pow2", "any"] = "pow2"
    kernels: Kernels = "equal"
    repart: Repart = "paper"

    def __post_init__(self) -> None:
        if self.p < 1:
            raise ShardingError(f"p = {self.p}: there must be at least one kernel")
        if self.splits == "pow2" and self.p & (self.p - 1):
            raise ShardingError(f"p = {self.p} is no power of two; use splits any")


@lru_cache(maxsize=1024)
def divisors(n: int) -> tuple[int, ...]:
    """All divisors, ascending.

    >>> divisors(12)
    (1, 2, 3, 4, 6, 12)
    """
    return tuple([d for d in range(1, n + 1) if n % d == 0])


def vectors(extents: Sequence[int], n: int) -> Iterator[tuple[int, ...]]:
    """All ways to make `n` kernels by splits that divide the extents, in lexicographic order.

    >>> list(vectors((8, 8), 4))
    [(1, 4), (2, 2), (4, 1)]
    """
    if not extents:
        if n == 1:
            yield ()
        return
    for d in divisors(n):
        if extents[0] % d == 0:
            for rest in vectors(extents[1:], n // d):
                yield (d, *rest)


@dataclass(frozen=True, slots=True, eq=False)
class States:
    """The states of one operation: of all vectors that look alike from outside the cheapest.

    Parameters
    ----------
    labels
        Of the operation.
    vectors
        Parts of each label, a row for each state.
    cost
        Of each state: of the operation, and of repartitioning inputs in fixed layouts.
    result
        Parts of the result per dimension, by state.
    wanted
        The same for each input.
    """

    labels: tuple[str, ...]
    vectors: Any
    cost: Any
    result: Any
    wanted: tuple[Any, ...]

    def __len__(self) -> int:
        return len(self.cost)

    def splits(self, state: int) -> dict[str, int]:
        """Parts by label."""
        return {x: int(k) for x, k in zip(self.labels, self.vectors[state])}


def states_of(graph: EinGraph, name: str, options: Options) -> States:
    """The states of an operation."""
    op = graph.ops[name]
    found = list(_viable(op, options))
    at = {x: i for i, x in enumerate(op.labels)}
    costs = []
    for row in found:
        d = dict(zip(op.labels, row))
        cost = op_cost(op, d)
        for u, term in zip(op.inputs, op.terms):
            layout = graph.inputs[u].layout if u in graph.inputs else None
            if layout is not None:
                cost += repart_cost(graph.inputs[u].shape, layout, [d[x] for x in term], options.repart)
        costs.append(cost)
    # From outside only the cut of the result and of computed inputs is seen: keep the cheapest of each.
    seen = [at[x] for x in op.result]
    for u, term in zip(op.inputs, op.terms):
        if u in graph.ops or any(u in group for group in graph.equal):
            seen += [at[x] for x in term]
    best: dict[tuple[int, ...], int] = {}
    for k, row in enumerate(found):
        key = tuple([row[i] for i in seen])
        if key not in best or costs[k] < costs[best[key]]:
            best[key] = k
    kept = sorted(best.values())
    rows = np.array([found[k] for k in kept], np.int64).reshape(len(kept), len(op.labels))
    return States(
        op.labels,
        rows,
        np.array([costs[k] for k in kept], np.int64),
        rows[:, [at[x] for x in op.result]],
        tuple([rows[:, [at[x] for x in term]] for term in op.terms]),
    )


def _viable(op: EinOp, options: Options) -> Iterator[tuple[int, ...]]:
    extents = [op.extents[x] for x in op.labels]
    if options.kernels == "upto" and not op.is_contraction:
        for n in divisors(options.p):
            yield from vectors(extents, n)
        return
    for n in reversed(divisors(options.p)):
        made = list(vectors(extents, n))
        if made:
            yield from made
            return
