"""Records of a lowering between its two passes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from distarray.lower.footprint import Moves
from distarray.lower.route import Located, Want
from distarray.planner.loops import Loops, Reading
from distarray.planner.plan import Stage
from distarray.sharding.boxes import Box, tile_box
from distarray.sharding.sharding import Sharding


@dataclass(slots=True)
class Tile:
    """A Tile is what one task of a stage makes, between the two passes, or a part of it that is filled in turns.

    Parameters
    ----------
    whole
        The box of the tile.
    turn, n_turns
        Which part of it, of how many.
    is_again
        Whether another member makes the tile too: then this one is for copies of results (`copies`).
    """

    index: tuple[int, ...]
    number: int
    box: Box
    member: int
    wants: list[Want]
    whole: Box = ()
    turn: int = 0
    n_turns: int = 1
    is_again: bool = False

    def __post_init__(self) -> None:
        self.whole = self.whole or self.box

    @property
    def is_last(self) -> bool:
        """Return whether the tile is there after it."""
        return self.turn == self.n_turns - 1


class Source(NamedTuple):
    """A Source is what one member is asked for, where a tile is made of what several members have.

    Parameters
    ----------
    member
        It runs the task that answers.
    box
        What it has of the elements that are asked for.
    wants
        What its task reads.
    """

    member: int
    box: Box
    wants: list[Want]


class Copied(NamedTuple):
    """A Copied is a result of a stage of which several members have a copy, or make one for what they make of it.

    Parameters
    ----------
    at
        Where it is.
    axes
        Of each of its axes the loop, None where that is reduced; None for all where no tile of the loops is one of it.
    owners
        By number of a tile the members beside its own that are to have it, or may.
    """

    at: Located
    axes: tuple[int | None, ...] | None
    owners: Mapping[int, tuple[int, ...]]


@dataclass(slots=True)
class Draft:
    """A Draft is a stage between the two passes of lowering: its tiles, and what each of them reads.

    Parameters
    ----------
    stage, loops, sharding
        Of the plan; the loops for the extents at hand, and how they are cut.
    readings
        Per operand how it is read.
    tiles
        Of the loops, in the order in which their tasks are made.
    base, base_tiles, inplace
        Where the stage writes: the node that is written to (-1: none), the index and number of each of its tiles that
        is written, and whether this is done in its own blocks.
    sources
        By tile, where each tile is made of what several members have; else empty, and the tiles say what they read.
    extra
        What the passes of a family keep for themselves.
    moves
        Those of a stage that only changes where elements lie.
    grown
        Of a chain of halo stages what `halo_tasks` keeps for all of them.
    copied
        Results that several members are to have.
    """

    stage: Stage
    loops: Loops
    sharding: Sharding
    readings: list[Reading]
    tiles: list[Tile]
    base: int = -1
    base_tiles: list[tuple[tuple[int, ...], int]] = field(default_factory=list)
    inplace: bool = False
    sources: list[list[Source]] = field(default_factory=list)
    extra: Any = None
    grown: Any = None
    moves: Moves | None = None
    copied: list[Copied] = field(default_factory=list)

    def new_tiles(self) -> list[Tile]:
        """Return the tiles of the loops, row-major, as the members that they are of make them; nothing is said of what
        they read.
        """
        bounds, members = self.sharding.boundaries(self.loops.extents), self.sharding.member
        tiles = enumerate(self.sharding.tiles())
        return [Tile(index, n, tile_box(bounds, index), members(index), []) for n, index in tiles]

    def wants_of_tasks(self) -> Iterator[Sequence[Want]]:
        """Yield what each task reads."""
        if self.sources:
            yield from [source.wants for sources in self.sources for source in sources]
        else:
            yield from [tile.wants for tile in self.tiles if all(tile.box)]
