"""Which tiles of an array each member has, and how large they are: looked up once for all arrays that are cut alike."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from distarray.sharding.sharding import Sharding

__all__ = ["Dealt", "dealt", "n_elements"]


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

    >>> from distarray.sharding.mesh import Mesh
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


@lru_cache(maxsize=32)
def n_elements(sharding: Sharding, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the elements of each tile of an array of this shape, row-major.

    >>> from distarray.sharding.mesh import Mesh
    >>> n_elements(Sharding(Mesh(("x",), (3,)), (("x",), ())), (8, 2))
    (4, 6, 6)
    """
    found = [1]
    for bounds in sharding.boundaries(shape):
        extents = [stop - start for start, stop in pairwise(bounds)]
        found = [n * extent for n in found for extent in extents]
    return tuple(found)
