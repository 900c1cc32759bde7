"""Boxes of tiles: dividing a tile into regions, and the runs of elements that a reshape puts end to end."""

from __future__ import annotations

from collections.abc import Sequence

from distarray.expr.lens import Affine
from distarray.kernels.specs import Part
from distarray.sharding.boxes import Box

__all__ = ["count_regions", "frame_of", "is_within", "n_elements", "restrict", "runs", "shifted"]


def n_elements(shape: Sequence[int]) -> int:
    n = 1
    for s in shape:
        n *= s
    return n


def is_within(inner: range, outer: range) -> bool:
    return inner.start >= outer.start and inner.stop <= outer.stop


def frame_of(box: Box) -> Box:
    return tuple([range(len(r)) for r in box])


def shifted(box: Box, start: Sequence[int]) -> Box:
    """Return a box in the coordinates of the tile that begins at `start`."""
    return tuple([range(r.start - s, r.stop - s) for r, s in zip(box, start, strict=True)])


def restrict(lens: Affine, box: Box) -> Affine:
    """Return the part of a view that lies in `box`, from the same array."""
    terms = tuple(
        [
            (None, start, 0)
            if axis is None
            else (axis, start + step * box[axis].start, step if len(box[axis]) > 1 else 1)
            for axis, start, step in lens.terms
        ]
    )
    return Affine(tuple(map(len, box)), terms)


def count_regions(cuts: Sequence[set[int]], found: Sequence[Sequence[tuple[Part, Box]]]) -> int:
    n = 1
    for a, c in enumerate(cuts):
        points = set(c)
        for f in found:
            for _, seen in f:
                points |= {seen[a].start, seen[a].stop}
        n *= max(1, len(points) - 1)
    return n


def runs(lo: int, hi: int, shape: tuple[int, ...]) -> list[tuple[int, int, Box]]:
    """Return the run of elements lo..hi of an array in C order, as boxes: at most 2 * rank - 1 of them.

    Returns
    -------
    list of (start, stop, box)
        Each box holds the elements start..stop, in its own C order.
    """
    if lo >= hi:
        return []
    if not shape:
        return [(0, 1, ())]
    if len(shape) == 1:
        return [(lo, hi, (range(lo, hi),))]
    inner = n_elements(shape[1:])
    first, last = lo // inner, (hi - 1) // inner
    out: list[tuple[int, int, Box]] = []

    def descend(row: int, a: int, b: int) -> None:
        for start, stop, box in runs(a - row * inner, b - row * inner, shape[1:]):
            out.append((start + row * inner, stop + row * inner, (range(row, row + 1), *box)))

    whole_first = first if lo == first * inner else first + 1
    whole_last = last + 1 if hi == (last + 1) * inner else last
    if whole_first > first and (first < last or whole_first > whole_last or lo % inner):
        descend(first, lo, min(hi, (first + 1) * inner))
    if whole_first < whole_last:
        out.append(
            (whole_first * inner, whole_last * inner, (range(whole_first, whole_last), *[range(n) for n in shape[1:]]))
        )
    if whole_last == last and last >= whole_first:
        descend(last, last * inner, hi)
    return out
