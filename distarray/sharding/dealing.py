"""Which tiles of an array each member has: a fact of its sharding, looked up once for all arrays that are cut alike."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from distarray.sharding.sharding import Sharding

__all__ = ["Dealt", "dealt"]


class Dealt(NamedTuple):
    """A Dealt says who has which tiles.

    Parameters
    ----------
    tiles
        By member the numbers of its tiles, ascending.
    places
        By number of a tile its member, and which of the tiles of that member it is.
    """

    tiles: Mapping[int, tuple[int, ...]]
    places: tuple[tuple[int, int], ...]


@lru_cache(maxsize=32)
def dealt(sharding: Sharding) -> Dealt:
    """Return which tiles each member has.

    >>> from distarray.sharding import Mesh
    >>> dealt(Sharding(Mesh(("x", "%1"), (2, 2)), (("%1", "x"),)))
    Dealt(tiles={0: (0, 1), 1: (2, 3)}, places=((0, 0), (0, 1), (1, 0), (1, 1)))
    """
    tiles: defaultdict[int, list[int]] = defaultdict(list)
    places = []
    for number, tile in enumerate(sharding.tiles()):
        member = sharding.member(tile)
        places.append((member, len(tiles[member])))
        tiles[member].append(number)
    return Dealt({member: tuple(numbers) for member, numbers in tiles.items()}, tuple(places))
