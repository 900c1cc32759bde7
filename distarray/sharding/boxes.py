"""Strided boxes: which elements of an array travel, are read or are written.

A *box* is a tuple of ``range`` objects, one per axis; its elements are the points of their product. Python's
``range`` compares, hashes, slices and counts as a sequence, at the speed of C, so it needs no class around it.
Every function takes ascending ranges (see `normalise`) and returns them. Lenses (`distarray.expr.lens`) map boxes
through views; routes and pieces are made of boxes. Everything is exact: never a hull where elements were asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import gcd, prod
from typing import Any, TypeAlias

import numpy as np

Box: TypeAlias = tuple[range, ...]

_EMPTY = range(0)
#: Runs whose beginnings are counted together.
_AT_ONCE = 4096


def normalise(r: range) -> range:
    """Return the same elements in ascending order, with a tight ``stop`` and step 1 where there is no second element.

    >>> normalise(range(9, 0, -3)), normalise(range(4, 6, 2)), normalise(range(5, 5))
    (range(3, 10, 3), range(4, 5), range(0, 0))
    """
    n = len(r)
    if n == 0:
        return _EMPTY
    first, last = r[0], r[-1]
    if n == 1:
        return range(first, first + 1)
    return range(first, last + 1, r.step) if r.step > 0 else range(last, first + 1, -r.step)


def full(shape: Sequence[int]) -> Box:
    """Return the box of all elements of an array of this shape."""
    return tuple([range(n) for n in shape])


def tile_box(boundaries: Sequence[Sequence[int]], tile: Sequence[int]) -> Box:
    """Return the elements of a tile, by its place in a grid and the boundaries along each axis.

    >>> tile_box(((0, 3, 7), (0, 5)), (1, 0))
    (range(3, 7), range(0, 5))
    """
    return tuple([range(b[t], b[t + 1]) for b, t in zip(boundaries, tile, strict=True)])


def shifted(box: Box, origin: Sequence[int]) -> Box:
    """Return a box of an array in the coordinates of a block whose first element is at `origin`.

    >>> shifted((range(12, 20, 3), range(4)), (10, 0))
    (range(2, 10, 3), range(0, 4))
    """
    return tuple([range(r.start - o, r.stop - o, r.step) for r, o in zip(box, origin, strict=True)])


def size(box: Box) -> int:
    """Count the elements of a box.

    >>> size((range(0, 10, 2), range(3))), size(())
    (15, 1)
    """
    n = 1
    for r in box:
        n *= len(r)
    return n


def intersect(a: range, b: range) -> range:
    """Return the elements of both ranges, ascending.

    >>> intersect(range(2, 9), range(5, 20)), intersect(range(0, 30, 4), range(2, 30, 6))
    (range(5, 9), range(8, 21, 12))
    """
    p, q = a.step, b.step
    if p == 1 and q == 1:
        lo = a.start if a.start > b.start else b.start
        hi = a.stop if a.stop < b.stop else b.stop
        return range(lo, hi) if lo < hi else _EMPTY
    # Chinese remainder theorem: x = a.start (mod p) and x = b.start (mod q) meet iff g = gcd(p, q) divides the
    # difference of the starts, and then in one class modulo lcm(p, q).
    g = gcd(p, q)
    offset, rest = divmod(b.start - a.start, g)
    if rest:
        return _EMPTY
    step = p // g * q
    modulus = q // g
    x = a.start + p * (offset * pow(p // g, -1, modulus) % modulus if modulus > 1 else 0)
    lo = a.start if a.start > b.start else b.start
    hi = a.stop if a.stop < b.stop else b.stop
    return normalise(range(lo + (x - lo) % step, hi, step))


def intersect_boxes(a: Box, b: Box) -> Box | None:
    """Return the common elements of two boxes of one array, or None where there are none."""
    out = []
    for r, s in zip(a, b, strict=True):
        common = intersect(r, s)
        if not common:
            return None
        out.append(common)
    return tuple(out)


def _within(inner: range, outer: range) -> bool:
    """Return whether a range that is not empty lies in another."""
    if not outer or inner[0] < outer.start or inner[-1] > outer[-1]:
        return False
    step = outer.step
    return step == 1 or ((inner.start - outer.start) % step == 0 and (inner.step % step == 0 or len(inner) == 1))


def contains(outer: Box, inner: Box) -> bool:
    """Return whether every element of `inner` is one of `outer`; an empty box lies in every box."""
    return not all(inner) or all(map(_within, inner, outer))


def relative(box: Box, frame: Box) -> tuple[slice, ...]:
    """Return the slices that read `box` from a block that holds exactly the elements of `frame`, which contains it.

    The block may be a strided box itself, such as a piece.

    >>> relative((range(5, 14, 4),), (range(1, 20, 2),))
    (slice(2, 7, 2),)
    """
    out = []
    for r, f in zip(box, frame, strict=True):
        if f.step == 1:
            out.append(slice(r.start - f.start, r.stop - f.start, r.step))
            continue
        lo, n = (r.start - f.start) // f.step, len(r)
        # A lone element may carry a step that is no multiple of the frame's.
        step = r.step // f.step if n > 1 else 1
        out.append(slice(lo, lo + (n - 1) * step + 1 if n else lo, step))
    return tuple(out)


@dataclass(frozen=True, slots=True)
class IndexRuns:
    """The IndexRuns of a box in an array are its runs of elements that follow each other in row-major order.

    Parameters
    ----------
    first
        Index of the first element of the first run.
    extents, strides
        Of the axes that the runs are counted along, outermost first: their number, and what lies between two of them.
    length
        Elements of each run.
    """

    first: int
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    length: int

    @staticmethod
    def of(box: Sequence[tuple[int, int]], shape: Sequence[int]) -> IndexRuns:
        """Return the longest runs of a box of ``(start, stop)`` per axis.

        >>> IndexRuns.of(((1, 3), (0, 4)), (5, 4)), IndexRuns.of(((1, 3), (2, 4)), (5, 4))
        (IndexRuns(first=4, extents=(), strides=(), length=8), IndexRuns(first=6, extents=(2,), strides=(4,), length=2))
        """
        extents = tuple([stop - start for start, stop in box])
        strides = tuple([prod(shape[axis + 1 :]) for axis in range(len(shape))])
        # Trailing axes that are whole make one run with the axis before them.
        inner = len(shape)
        while inner > 0 and extents[inner - 1] == shape[inner - 1]:
            inner -= 1
        head = max(inner - 1, 0)
        first = sum([start * stride for (start, _), stride in zip(box, strides, strict=True)])
        return IndexRuns(first, extents[:head], strides[:head], prod(extents[head:]))

    def __len__(self) -> int:
        """Return how many there are; none of an empty box."""
        return prod(self.extents) if self.length else 0

    def __iter__(self) -> Iterator[int]:
        """Yield the index at which each run begins."""
        n = len(self)
        if n == 1:  # of most blocks: numpy would only make it slower
            yield self.first
            return
        for begin in range(0, n, _AT_ONCE):
            yield from self.starts(begin, min(begin + _AT_ONCE, n)).tolist()

    def starts(self, begin: int, end: int, xp: Any = np) -> Any:
        """Return the indices at which the runs number ``begin .. end - 1`` begin, as int64 of `xp`.

        >>> IndexRuns.of(((1, 3), (2, 4)), (5, 4)).starts(0, 2)
        array([ 6, 10])
        """
        left = xp.arange(begin, end)
        found = xp.full(end - begin, self.first)
        for n, stride in zip(self.extents[:0:-1], self.strides[:0:-1], strict=True):
            found += left % n * stride
            left //= n
        return found + left * self.strides[0] if self.strides else found


def _range_difference(a: range, b: range) -> list[range]:
    """Return the elements of `a` outside `b`, which lies in `a`, as few ranges."""
    if not b:
        return [a]
    lo, hi = (b[0] - a.start) // a.step, (b[-1] - a.start) // a.step
    parts = [a[:lo], a[hi + 1 :]]
    if len(b) > 1:
        # Positions lo, lo + k, ..., hi of `a` go; between them stay k - 1 residue classes.
        k = b.step // a.step
        parts += [a[lo + c : hi : k] for c in range(1, k)]
    return [normalise(part) for part in parts if part]


def difference(a: Box, b: Box) -> list[Box]:
    """Return the elements of `a` outside `b`, as disjoint boxes.

    >>> difference((range(4), range(4)), (range(1, 3), range(4)))
    [(range(0, 1), range(0, 4)), (range(3, 4), range(0, 4))]
    """
    common = intersect_boxes(a, b)
    if common is None:
        return [a] if all(a) else []
    out = []
    # Axis by axis: what lies outside along this axis is whole along the later ones, so early cuts give the large
    # boxes, contiguous ones in C order.
    for axis, (r, c) in enumerate(zip(a, common, strict=True)):
        out += [(*common[:axis], part, *a[axis + 1 :]) for part in _range_difference(r, c)]
    return out


def _join(a: range, b: range, *, strided: bool) -> range | None:
    """Return the union of two ranges if it is one range, with ``a.start <= b.start``; else None.

    Without `strided` only ranges with equal steps that overlap or abut are joined, which never hides a contiguous run;
    with it, also lone elements (two points are a progression) and interleaved ranges.
    """
    p, q = a.step, b.step
    if p == q:
        if b.start <= a.stop - 1 + p and (p == 1 or (b.start - a.start) % p == 0):
            # The stops are tight, so the next element of `a` would be ``a.stop - 1 + p``.
            return range(a.start, a.stop if a.stop > b.stop else b.stop, p)
        if p == 1 and not strided:
            return None
    if _within(b, a):
        return a
    if _within(a, b):
        return b
    if not strided:
        return None
    n, m = len(a), len(b)
    if n == 1 and m == 1:
        return range(a.start, b.stop, b.start - a.start)
    if n == 1 and b.start - a.start == q:
        return range(a.start, b.stop, q)
    if m == 1 and b.start == a.stop - 1 + p:
        return range(a.start, b.stop, p)
    if n > 1 and p == q and 2 * (b.start - a.start) == p and 0 <= n - m <= 1:
        return range(a.start, max(a.stop, b.stop), p // 2)
    return None


def _start(r: range) -> int:
    return r.start


def _merge(boxes: list[Box], ndim: int, *, strided: bool) -> list[Box]:
    """Join boxes that differ along one axis only, until no two can be joined along any."""
    axis, unchanged = 0, 0
    while len(boxes) > 1 and unchanged < ndim:
        groups: dict[Box, list[range]] = {}
        for box in boxes:
            groups.setdefault(box[:axis] + box[axis + 1 :], []).append(box[axis])
        if len(groups) == len(boxes):
            unchanged += 1
        else:
            joined: list[Box] = []
            for rest, ranges in groups.items():
                head, tail = rest[:axis], rest[axis:]
                if len(ranges) > 1:
                    ranges = _merge_ranges(ranges, strided=strided)
                joined += [(*head, r, *tail) for r in ranges]
            unchanged = 1 if len(joined) < len(boxes) else unchanged + 1
            boxes = joined
        axis = (axis + 1) % ndim
    return boxes


def _merge_ranges(ranges: list[range], *, strided: bool) -> list[range]:
    """Return fewer ranges with the same elements, sorted by start; exact, not minimal where strides interleave."""
    ranges.sort(key=_start)
    out = [ranges[0]]
    for r in ranges[1:]:
        # Runs join their neighbour; a few steps back find the partners of interleaved ones, in linear time.
        for i in range(len(out) - 1, max(len(out) - 5, -1), -1):
            joined = _join(out[i], r, strided=strided)
            if joined is not None:
                out[i] = joined
                break
        else:
            out.append(r)
    return out


def _disjoint(boxes: list[Box]) -> list[Box]:
    """Return the boxes with the same elements, each element in one of them."""
    boxes.sort(key=lambda box: (box[0].start, -size(box)))
    for i, a in enumerate(boxes):
        stop = a[0].stop
        for b in boxes[i + 1 :]:
            if b[0].start >= stop:
                break
            if intersect_boxes(a, b) is not None:
                return _subtracted(boxes)
    return boxes


def _subtracted(boxes: list[Box]) -> list[Box]:
    # The largest stay whole and the smaller ones lose what is covered. Coordinate compression (a grid over all
    # starts and stops) gives more cells to merge again, and none at all for strided boxes.
    boxes.sort(key=size, reverse=True)
    out: list[Box] = []
    for box in boxes:
        parts = [box]
        for kept in out:
            parts = [rest for part in parts for rest in difference(part, kept)]
            if not parts:
                break
        out += parts
    return out


def union(boxes: Iterable[Box]) -> list[Box]:
    """Return disjoint boxes with exactly the elements of all the boxes, few and large.

    Equal and contained boxes collapse, boxes that differ along one axis only and meet there become one, and only what
    still overlaps is cut. Contiguous runs are joined before strided ones.

    Parameters
    ----------
    boxes
        Ascending boxes of one array, in any order, overlapping or not; empty ones are allowed.

    Returns
    -------
    list of Box
        Normalised, in ascending order of their first elements; no boxes for no elements.

    Examples
    --------
    >>> union([(range(3, 4),), (range(4, 6),)])
    [(range(3, 6),)]
    >>> union([(range(0, 10, 2),), (range(5, 10),), (range(1, 6),)])
    [(range(0, 10),)]
    """
    found = list({tuple(map(normalise, box)): None for box in boxes if all(box)})
    if len(found) <= 1:
        return found
    ndim = len(found[0])
    found = _merge(found, ndim, strided=False)
    if len(found) > 1:
        found = _merge(_disjoint(found), ndim, strided=False)
    if len(found) > 1:
        found = _merge(found, ndim, strided=True)
        found.sort(key=_starts)
    return found


def _starts(box: Box) -> tuple[int, ...]:
    return tuple([r.start for r in box])
