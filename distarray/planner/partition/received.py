"""What members have received of an array: a second reader of the same elements is sent nothing.

All that one member needs of a tile of another member travels in one piece, whichever stages need it
(`lower.route`). Boxes overlap exactly; of several earlier ones that which overlaps most counts.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from distarray.planner.loops import Loops
from distarray.planner.partition.box_traffic import Boxes, View, needed

Numbers = Any  # arrays of numpy: its generic array types say no more


class Received:
    """A Received knows which elements of each node each member was sent so far: they come once."""

    def __init__(self) -> None:
        #: By node: the lower and upper bounds of boxes (boxes, members, axes), with room for more, and their number.
        self._boxes: dict[int, tuple[Numbers, int]] = {}

    def less(self, node: int, view: View, loops: Loops, held: Boxes, boxes: Boxes, elements: Numbers) -> Numbers:
        """Return the elements (members) of a node that a stage is sent and was not sent before, and note them.

        Parameters
        ----------
        held, boxes
            What members have of the node, and work on: for one cut each.
        """
        again = np.zeros(elements.shape)
        for part in boxes.by_round:
            again += self._again(node, source_boxes(view, loops, part), held)
        return np.maximum(elements - again, 0.0)

    def _again(self, node: int, box: tuple[Numbers, Numbers], held: Boxes) -> Numbers:
        """Return the elements of a box of each member that it was sent before, and note the box."""
        lo, hi = box
        known, n = self._boxes.get(node, (np.empty((2, 1, *lo.shape), np.int64), 0))
        first, last = np.maximum(lo, known[0, :n]), np.minimum(hi, known[1, :n])
        again = _volume(first, last)
        for part in held.by_round:
            again -= _volume(np.maximum(first, part.lo[0]), np.minimum(last, part.hi[0]))
        if n == known.shape[1]:
            known = np.concatenate([known, np.empty_like(known)], axis=1)
        known[:, n] = lo, hi
        self._boxes[node] = known, n + 1
        return again.max(axis=0, initial=0.0)


def _volume(lo: Numbers, hi: Numbers) -> Numbers:
    return np.prod(np.clip(hi - lo, 0, None), axis=-1, dtype=float)


def source_boxes(view: View, loops: Loops, boxes: Boxes) -> tuple[Numbers, Numbers]:
    """Return the hull of what each member needs, in the source: arrays (members, axes of the source)."""
    intervals = needed(view, loops, boxes)
    n_members = boxes.n_tiles.shape[-1]
    lo = np.zeros((n_members, len(view.terms)), np.int64)
    hi = np.ones_like(lo)
    for b, (axis, start, step) in enumerate(view.terms):
        if axis < 0:
            lo[:, b], hi[:, b] = start, start + 1
            continue
        unit = view.scale[axis]
        a, z = intervals[axis][0][0] // unit, -(-intervals[axis][1][0] // unit)
        first, last = start + step * a, start + step * (z - 1)
        lo[:, b] = np.minimum(first, last)
        hi[:, b] = np.where(z > a, np.maximum(first, last) + 1, lo[:, b])
    hi[boxes.n_tiles[0] == 0] = lo[boxes.n_tiles[0] == 0]
    return lo, hi
