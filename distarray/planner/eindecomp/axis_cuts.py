"""Cuts of one axis, and how the blocks of two cuts overlap: all that costs and tables are made of.

Blocks are those of the cut rule (`sharding.cuts`): every number of parts is possible, and sizes differ by at most one.
Whatever a repartition costs is, by axis, a sum over overlapping pairs of blocks; over
several axes it is the product of these sums, since blocks are boxes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from distarray.sharding import cuts

#: How an axis is cut: the number of regular parts, or all boundaries, from 0 to the extent.
AxisCut: TypeAlias = int | tuple[int, ...]


def n_parts(cut: AxisCut) -> int:
    """Return the number of parts of a cut.

    >>> n_parts(4), n_parts((0, 3, 10))
    (4, 2)
    """
    return len(cut) - 1 if isinstance(cut, tuple) else cut


def boundaries(extent: int, cut: AxisCut) -> tuple[int, ...]:
    """Return where the parts begin, and the extent.

    >>> boundaries(10, 3)
    (0, 3, 6, 10)
    """
    if isinstance(cut, tuple):
        return cut
    return cuts.boundaries(extent, cut)


class Overlap(NamedTuple):
    """An Overlap is sums over the pairs (producer's block, consumer's block) of one axis that overlap.

    Parameters
    ----------
    pairs
        Their number.
    inside
        Of these, where the producer's block lies inside the consumer's.
    fetched
        Sum of the consumer's sizes.
    sent, sent_inside
        Sum of the producer's sizes: over all pairs, and over those inside.
    held
        Sum over the producer's blocks of the largest overlap of each.
    read
        Sum over the consumer's blocks of the largest overlap of each.
    """

    pairs: int
    inside: int
    fetched: int
    sent: int
    sent_inside: int
    held: int
    read: int


@lru_cache(maxsize=1 << 17)
def overlap(extent: int, producer: AxisCut, consumer: AxisCut) -> Overlap:
    """Return how the blocks of two cuts of an axis overlap.

    >>> overlap(12, 2, 3)
    Overlap(pairs=4, inside=0, fetched=16, sent=24, sent_inside=0, held=8, read=10)
    """
    p, c = boundaries(extent, producer), boundaries(extent, consumer)
    held, read = [0] * (len(p) - 1), [0] * (len(c) - 1)
    pairs = inside = fetched = sent = sent_inside = a = b = 0
    while a < len(held) and b < len(read):
        common = min(p[a + 1], c[b + 1]) - max(p[a], c[b])
        if common > 0:
            size = p[a + 1] - p[a]
            pairs += 1
            fetched += c[b + 1] - c[b]
            sent += size
            if common == size:
                inside += 1
                sent_inside += size
            held[a], read[b] = max(held[a], common), max(read[b], common)
        if p[a + 1] <= c[b + 1]:
            a += 1
        else:
            b += 1
    return Overlap(pairs, inside, fetched, sent, sent_inside, sum(held), sum(read))


@lru_cache(maxsize=4096)
def _axis_table(extent: int, producers: tuple[AxisCut, ...], consumers: tuple[AxisCut, ...]) -> Any:
    """Return the overlaps of all pairs of cuts of one axis: (fields, producers, consumers)."""
    found = [[overlap(extent, p, c) for c in consumers] for p in producers]
    return np.moveaxis(np.array(found, np.int64).reshape(len(producers), len(consumers), -1), 2, 0)


def overlap_tables(shape: Sequence[int], producers: Any, consumers: Any, fields: Sequence[str]) -> list[Any]:
    """Return the sums over overlapping pairs of blocks of whole arrays, for all pairs of cuts.

    Parameters
    ----------
    producers, consumers
        Parts per dimension, one row for each cut: an array of numbers, or a sequence of sequences of cuts.
    fields
        Of `Overlap`.

    Returns
    -------
    list of array
        One (producers, consumers) for each of `fields`, int64.
    """
    wanted = [Overlap._fields.index(name) for name in fields]
    tables = [np.ones((len(producers), len(consumers)), np.int64) for _ in fields]
    for axis, extent in enumerate(shape):
        p, rows = _distinct(producers, axis)
        c, columns = _distinct(consumers, axis)
        found = _axis_table(extent, p, c)
        for table, k in zip(tables, wanted):
            table *= found[k][rows[:, None], columns[None, :]]
    return tables


def _distinct(cuts: Any, axis: int) -> tuple[tuple[AxisCut, ...], Any]:
    """Return the distinct cuts of an axis, and which of them each row has."""
    if isinstance(cuts, np.ndarray):
        found, at = np.unique(cuts[:, axis], return_inverse=True)
        return tuple(found.tolist()), at
    number = {cut: i for i, cut in enumerate(dict.fromkeys([row[axis] for row in cuts]))}
    return tuple(number), np.array([number[row[axis]] for row in cuts], np.intp)


def is_regular(extent: int, cut: AxisCut) -> bool:
    """Return whether a cut is the regular one of its number of parts.

    >>> is_regular(10, 3), is_regular(10, (0, 3, 6, 10)), is_regular(10, (0, 5, 6, 10))
    (True, True, False)
    """
    return not isinstance(cut, tuple) or cut == boundaries(extent, n_parts(cut))
