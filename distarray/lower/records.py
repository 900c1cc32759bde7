"""Records of a lowering between its two passes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from distarray.lower.footprint import Moves
from distarray.lower.route import Want
from distarray.planner.loops import Loops, Reading
from distarray.planner.plan import Stage
from distarray.sharding.boxes import Box
from distarray.sharding.sharding import Sharding

__all__ = ["Draft", "Tile"]


@dataclass(slots=True)
class Tile:
    """A Tile is what one task of a stage makes, between the two passes, or a part of it that is filled in turns.

    Parameters
    ----------
    whole
        The box of the tile.
    turn, n_turns
        Which part of it, of how many.
    """

    index: tuple[int, ...]
    number: int
    box: Box
    member: int
    wants: list[Want]
    whole: Box = ()
    turn: int = 0
    n_turns: int = 1

    def __post_init__(self) -> None:
        self.whole = self.whole or self.box

    @property
    def is_last(self) -> bool:
        """Return whether the tile is there after it."""
        return self.turn == self.n_turns - 1


@dataclass(slots=True)
class Draft:
    """A Draft is a stage between the two passes of lowering: its tiles, and what each of them reads."""

    stage: Stage
    loops: Loops
    sharding: Sharding
    readings: list[Reading]
    tiles: list[Tile]
    base: int = -1
    base_tiles: list[tuple[tuple[int, ...], int]] = field(default_factory=list)
    inplace: bool = False
    extra: Any = None  # what a family keeps between the passes
    is_move: bool = False
    moves: Moves | None = None  # where it is one
