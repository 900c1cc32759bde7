"""The elements of an array as they are read: the common refinement of all its cuts.

A cell lies in one block of every cut, so what workers hold and need of an array are sets of cells.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from distarray.planner.eindecomp.axis_cuts import AxisCut, boundaries, n_parts

#: Cells of one array beyond which every cut has a refinement of its own.
MAX_CELLS = 1 << 18

Cuts = tuple[AxisCut, ...]


class Cells:
    """Cells are the boxes of an array that no cut of it divides: the common refinement of several cuts.

    Parameters
    ----------
    shape
        Of the array.
    cuts
        Of which it is the common refinement.
    """

    def __init__(self, shape: tuple[int, ...], cuts: Iterable[Cuts]) -> None:
        axes = [sorted({b for cut in cuts for b in boundaries(n, cut[a])}) for a, n in enumerate(shape)]
        self._starts = [np.array(axis[:-1], np.int64) for axis in axes]
        self._shape = shape
        self.volume: Any = np.ones(1, np.int64)
        for axis in axes:
            self.volume = np.multiply.outer(self.volume, np.diff(axis)).ravel()
        self._block_of: dict[Cuts, Any] = {}

    def block_of(self, cut: Cuts) -> Any:
        """Return the block, in C order, of every cell in a cut."""
        found = self._block_of.get(cut)
        if found is None:
            found = np.zeros(1, np.int64)
            for n, one, starts in zip(self._shape, cut, self._starts):
                edges = boundaries(n, one)
                # the last of the parts that begin there: those before it are empty
                at = np.searchsorted(edges, starts, "right") - 1
                found = np.add.outer(found * (len(edges) - 1), at).ravel()
            self._block_of[cut] = found
        return found

    def sizes(self, cut: Cuts) -> Any:
        """Return the elements of every block of a cut."""
        return np.bincount(self.block_of(cut), self.volume, prod(map(n_parts, cut)))

    def held(self, own: Cuts, owners: Any, cut: Cuts, p: int) -> Any:
        """Return the elements of each block of a cut (column) that each of `p` workers (row) has, if it has blocks of
        `own`.
        """
        n_tiles = prod(map(n_parts, cut))
        key = owners[self.block_of(own)] * n_tiles + self.block_of(cut)
        return np.bincount(key, self.volume, p * n_tiles).reshape(p, n_tiles)


@lru_cache(maxsize=512)
def refine(shape: tuple[int, ...], cuts: frozenset[Cuts]) -> Cells | None:
    """Return the common refinement of cuts; None if it has too many cells."""
    n_cells = 1
    for axis, n in enumerate(shape):
        n_cells *= len({b for cut in cuts for b in boundaries(n, cut[axis])}) - 1
    return Cells(shape, cuts) if n_cells <= MAX_CELLS else None


@lru_cache(maxsize=4096)
def grid_index(parts: tuple[int, ...], axes: Sequence[int]) -> Any:
    """Return for each point of a grid, in C order, its number in the grid of some of the axes.

    >>> grid_index((2, 3), (1,)).tolist(), grid_index((2, 2), (1, 0)).tolist()
    ([0, 1, 2, 0, 1, 2], [0, 2, 1, 3])
    """
    strides = [0] * len(parts)
    stride = 1
    for axis in reversed(axes):
        strides[axis] = stride
        stride *= parts[axis]
    found = np.zeros(1, np.int64)
    for n, step in zip(parts, strides):
        found = np.add.outer(found, step * np.arange(n)).ravel()
    return found
