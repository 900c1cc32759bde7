"""Tiling and Windows: operations that work on each tile by itself, with boundaries that are known at run time.

Sorting the parts of an array, counting in them, the factor of each row block: what such a kernel gives depends on the
cut, so the cut belongs to the operation. Tile ``i`` of every result is made of tile ``i`` of every operand that is cut,
and of the whole of the others. In a `Tiling` only axis 0 is cut; whoever wants another one moves it there, which costs
nothing. `Windows` cut every axis, and their tiles may read more of an operand than lies in them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

#: Boundaries of the tiles along an axis, from 0 to its extent.
Bounds: TypeAlias = tuple[int, ...]

#: What each tile along an axis of a grid reads of an axis of an operand: (start, stop).
Ranges: TypeAlias = tuple[tuple[int, int], ...]


class Tiling(NamedTuple):
    """A Tiling says how axis 0 of what an operation reads and makes is cut.

    Parameters
    ----------
    operands
        Boundaries for each operand; None where every tile needs all of it.
    results
        Boundaries for each result.
    """

    operands: tuple[Bounds | None, ...]
    results: tuple[Bounds, ...]

    @property
    def geometry(self) -> Tiling:
        """Return what plans and templates remember: all of it."""
        return self

    @property
    def pattern(self) -> tuple[Any, ...]:
        """Return what of it decides a plan: which operands are cut."""
        return tuple([b is None for b in self.operands])

    @property
    def n_tiles(self) -> int:
        """Return the number of tiles; every boundary list has one more."""
        return len(self.results[0]) - 1


class Windows(NamedTuple):
    """Windows are a grid of tiles over all axes of one result, and the box of every operand that each of them reads.

    Boxes may overlap (a halo), leave elements out, or be empty; what of them lies elsewhere is routed, the union of
    what a member needs once.

    Parameters
    ----------
    operands
        For each operand, for each axis of it: the axis of the grid that it goes with, and the range of each of its
        tiles; None where every tile needs the whole axis.
    bounds
        Boundaries of the tiles for each axis of the result.
    late
        What the kernel gets behind its static parameters, and what decides no task: see `expr.late_params`.
    """

    operands: tuple[tuple[tuple[int, Ranges] | None, ...], ...]
    bounds: tuple[Bounds, ...]
    late: tuple[Any, ...] = ()  # functions of the user's, and the like

    @property
    def geometry(self) -> Windows:
        """Return the tiling without the late parameters: what plans and templates remember."""
        return self._replace(late=()) if self.late else self

    @property
    def pattern(self) -> tuple[Any, ...]:
        """Return what of it decides a plan: along which axes of the grid the axes of operands lie."""
        return tuple([tuple([r and r[0] for r in reads]) for reads in self.operands])

    @property
    def grid(self) -> tuple[int, ...]:
        """Return the number of tiles along each axis of the result."""
        return tuple([len(b) - 1 for b in self.bounds])

    def box(self, operand: int, tile: Sequence[int], shape: Sequence[int]) -> tuple[range, ...]:
        """Return what a tile reads of an operand of this shape."""
        axes = zip(self.operands[operand], shape, strict=True)
        return tuple([range(n) if read is None else range(*read[1][tile[read[0]]]) for read, n in axes])
