"""The partition vectors that a search chooses from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, prod
from typing import Any, Literal, TypeAlias

import numpy as np

from distarray.errors import ShardingError
from distarray.planner.eindecomp.bounds import held_bound
from distarray.planner.eindecomp.checks import check_p
from distarray.planner.eindecomp.eingraph import EinOp, Label
from distarray.planner.eindecomp.paper_costs import Repart
from distarray.sharding.prime import divisors

Kernels: TypeAlias = Literal["equal", "upto"]
#: Partition vectors of one operation: parts of each of its labels, a row for each vector.
Rows: TypeAlias = Any

#: Fewer workers than there are may be used: at least this share of them ..
FEWEST = 0.85
#: .. where the best grid of kernels for all of them moves so many times the elements that real splits would.
BAD = 1.35


@dataclass(frozen=True, slots=True)
class Options:
    """Options say which cuts a search of the paper's planner may choose from.

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
        check_p(self.p)
        if self.splits == "pow2" and self.p & (self.p - 1):
            raise ShardingError(f"p = {self.p} is no power of two; use splits any")


def vectors(extents: Sequence[int], n: int, *, uneven: bool = False) -> Iterator[tuple[int, ...]]:
    """Yield all ways to make `n` kernels, in lexicographic order.

    Parameters
    ----------
    uneven
        Whether parts need not divide the extents; none is empty.

    Examples
    --------
    >>> list(vectors((8, 8), 4)), list(vectors((7, 3), 4, uneven=True))
    ([(1, 4), (2, 2), (4, 1)], [(2, 2), (4, 1)])
    """
    if not extents:
        if n == 1:
            yield ()
        return
    for d in divisors(n):
        if d <= extents[0] if uneven else extents[0] % d == 0:
            for rest in vectors(extents[1:], n // d, uneven=uneven):
                yield (d, *rest)


@lru_cache(maxsize=2048)
def uneven_vectors(extents: tuple[int, ...], n: int) -> tuple[tuple[int, ...], ...]:
    """Return `vectors` with uneven blocks: waves ask for the same ones again and again."""
    return tuple(vectors(extents, n, uneven=True))


@dataclass(frozen=True, slots=True, eq=False)
class States:
    """The States of one operation are its cuts: of all that look alike from outside the cheapest.

    Parameters
    ----------
    labels
        Of the operation.
    vectors
        Parts of each label, a row for each state.
    cost
        Of each state: of the operation, and of what its inputs cost whatever other operations do.
    result
        Parts of the result per dimension, by state.
    wanted
        The same for each input.
    """

    labels: tuple[Label, ...]
    vectors: Rows
    cost: Any
    result: Rows
    wanted: tuple[Rows, ...]

    def __len__(self) -> int:
        return len(self.cost)

    @property
    def kernels(self) -> Any:
        """Return the number of kernels of each state."""
        return self.vectors.prod(axis=1)

    def splits(self, state: int) -> dict[Label, int]:
        """Return the parts of each label."""
        return {x: int(k) for x, k in zip(self.labels, self.vectors[state])}

    @classmethod
    def of(cls, op: EinOp, rows: Rows, cost: Any, seen: Sequence[str], *, count_matters: bool = False) -> States:
        """Return the cheapest of the rows that do not differ in what is seen from outside.

        Parameters
        ----------
        rows, cost
            Partition vectors and what each costs, in the order in which they are preferred where costs are equal.
        seen
            Labels that others see.
        count_matters
            Whether others see the number of kernels too.
        """
        keys = [tuple(row) for row in rows[:, op.columns(dict.fromkeys(seen))].tolist()]
        if count_matters:
            keys = list(zip(keys, rows.prod(axis=1).tolist()))
        best: dict[Any, int] = {}
        for k, (key, c) in enumerate(zip(keys, cost.tolist())):
            if key not in best or c < cost[best[key]]:
                best[key] = k
        kept = sorted(best.values())
        rows = rows[kept]
        wanted = tuple([rows[:, op.columns(term)] for term in op.terms])
        return cls(op.labels, rows, cost[kept], rows[:, op.columns(op.result)], wanted)


# --------------------------------------------------------------------------------------------------------- rows


def without_whole(op: EinOp) -> list[int]:
    """Return the extents of the labels as far as they may be cut: one for those that must stay whole, or are empty."""
    return [1 if x in op.whole else max(1, op.extents[x]) for x in op.labels]


def as_rows(op: EinOp, found: Iterable[Sequence[int]]) -> Rows:
    """Return vectors as an array, each once."""
    unique = list(dict.fromkeys([tuple(row) for row in found]))
    return np.array(unique, np.int64).reshape(len(unique), len(op.labels))


def fixed_rows(op: EinOp) -> Rows | None:
    """Return the one row of an operation whose cut is prescribed."""
    if op.fixed is None:
        return None
    return as_rows(op, [[op.fixed.get(x, 1) for x in op.labels]])


def block_elements(op: EinOp, rows: Rows, labels: Sequence[Label]) -> Any:
    """Return the elements of the largest block of an array with these labels, by row."""
    extents = np.array([op.extents[x] for x in labels], np.int64)
    return (-(-extents // rows[:, op.columns(labels)])).prod(axis=1, dtype=float)


def ordered(op: EinOp, rows: Rows) -> Rows:
    """Return the rows in the order of preference where costs are equal: a smaller largest block, then lexicographic."""
    largest = np.max([block_elements(op, rows, term) for term in (*op.terms, op.result)], axis=0)
    return rows[np.lexsort((*rows.T[::-1], largest))]


def exact_rows(op: EinOp, options: Options) -> Rows:
    """Return the vectors of the paper: their parts divide the extents, and there are `p` kernels wherever that is
    possible.
    """
    prescribed = fixed_rows(op)
    if prescribed is not None:
        return prescribed
    extents = without_whole(op)
    if options.kernels == "upto" and not op.is_contraction:
        found = [row for n in divisors(options.p) for row in vectors(extents, n)]
    else:
        found = next(made for n in reversed(divisors(options.p)) if (made := list(vectors(extents, n))))
    return ordered(op, as_rows(op, found))


def uneven_rows(op: EinOp, options: Options, counts: Iterable[int], followed: Iterable[Sequence[int]]) -> Rows:
    """Return the vectors of the objective ``time``: blocks may be uneven, and only contractions need as many kernels.

    Parameters
    ----------
    counts
        Numbers of kernels of the contractions of the graph, of which this one may have any.
    followed
        Vectors that follow arrays in fixed layouts, with as many kernels as these have blocks.
    """
    prescribed = fixed_rows(op)
    if prescribed is not None:
        return prescribed
    extents = without_whole(op)
    wanted = set(counts)
    if options.kernels == "upto" and not op.is_contraction:
        wanted = {d for n in wanted for d in divisors(n)}
    found = [row for n in sorted(wanted) for row in uneven_vectors(tuple(extents), n)]
    if max(map(prod, found), default=0) < max(wanted):
        found += _as_many_as_fit(extents, options)
    if options.kernels == "upto":
        fewest = min(wanted) if op.is_contraction else 1
        found += [tuple(row) for row in followed if prod(row) >= fewest and all(d <= n for d, n in zip(row, extents))]
    return ordered(op, as_rows(op, found))


def _as_many_as_fit(extents: Sequence[int], options: Options) -> list[tuple[int, ...]]:
    """Return where the extents are too small for `p` kernels: the most that they allow."""
    for n in range(min(options.p, prod(extents)), 0, -1):
        if options.splits == "any" or n & (n - 1) == 0:
            made = list(uneven_vectors(tuple(extents), n))
            if made:
                return made
    raise AssertionError("one kernel is always possible")


# ------------------------------------------------------------------------------------------------ fewer workers


def kernel_counts(op: EinOp, options: Options) -> tuple[int, ...]:
    """Return numbers of kernels that a contraction may have: `p`, or fewer if `p` factors badly.

    It does if every grid of `p` kernels moves more than `BAD` times the elements of the best real splits. Then of the
    numbers from `FEWEST` of `p` on those are taken that do not, or the one that comes nearest.
    """
    p = options.p
    if options.splits == "pow2" or options.kernels == "equal" or not op.is_contraction or _is_smooth(p):
        return (p,)
    if p > prod(without_whole(op)) or _excess(op, p) <= BAD:
        return (p,)
    ratios = {n: _excess(op, n) for n in range(ceil(FEWEST * p), p + 1)}
    good = tuple([n for n, ratio in sorted(ratios.items()) if ratio <= BAD])
    return good or (min(ratios, key=lambda n: (ratios[n], -n)),)


def _is_smooth(n: int) -> bool:
    """Return whether it has no prime factor above three: then some grid of so many kernels is near to a cube."""
    for q in (2, 3):
        while n % q == 0:
            n //= q
    return n == 1


def _excess(op: EinOp, n: int) -> float:
    """Return the elements that the best grid of `n` kernels moves over those of the best real splits."""
    rows = as_rows(op, uneven_vectors(tuple(without_whole(op)), n))
    if not len(rows):
        return np.inf
    arrays = (*op.terms, op.result)
    sizes = [op.size(t) for t in arrays]
    held = sum([size * (n // rows[:, op.columns(t)].prod(axis=1)) for size, t in zip(sizes, arrays)])
    moved, least = float(np.min(held)) - sum(sizes), held_bound(op, n) - sum(sizes)
    if moved <= 1e-9 * sum(sizes):
        return 1.0
    return moved / least if least > 0 else np.inf
