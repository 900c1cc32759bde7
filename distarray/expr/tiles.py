"""Tiling: operations that work on each tile of an axis by itself, with boundaries that are known at run time.

Sorting the parts of an array, counting in them, the factor of each row block: what such a kernel gives depends on the
cut, so the cut belongs to the operation. Tile ``i`` of every result is made of tile ``i`` of every operand that is cut,
and of the whole of the others. Only axis 0 is cut; whoever wants another one moves it there, which costs nothing.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

__all__ = ["Bounds", "Tiling"]

#: Boundaries of the tiles along an axis, from 0 to its extent.
Bounds: TypeAlias = tuple[int, ...]


class Tiling(NamedTuple):
    """How axis 0 of what an operation reads and makes is cut.

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
    def n_tiles(self) -> int:
        """Number of tiles; every boundary list has one more."""
        return len(self.results[0]) - 1
