"""Which blocks of an array each member has, and how large they are: looked up once for all arrays that are cut alike.

A block is a tile at its member, or a copy of one at another member that is to have it: here is the one place that says
which copies there are (`Sharding.is_copied`), and how they are numbered.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from distarray.sharding.mesh import is_wave
from distarray.sharding.sharding import Sharding


class AxisDealing(NamedTuple):
    """An AxisDealing says how the parts of an axis are dealt out, as axes of the mesh, minor first.

    Parameters
    ----------
    row
        Waves whose parts follow each other at one member.
    over
        From the first to the last axis that different members are along.
    rounds
        Waves in which the members get parts once more, after all of them have some.
    """

    row: tuple[str, ...]
    over: tuple[str, ...]
    rounds: tuple[str, ...]


def dealing_of(sharding: Sharding, axis: int) -> AxisDealing:
    """Return how the parts of an axis are dealt out to members.

    >>> from distarray.sharding.mesh import Mesh
    >>> dealing_of(Sharding(Mesh(("x", "%1", "%2"), (4, 3, 2)), (("%1", "x", "%2"),)), 0)
    AxisDealing(row=('%1',), over=('x',), rounds=('%2',))
    """
    names = sharding.axes[axis]
    members = [k for k, name in enumerate(names) if not is_wave(name)] or [len(names), len(names) - 1]
    return AxisDealing(names[: members[0]], names[members[0] : members[-1] + 1], names[members[-1] + 1 :])


class Dealt(NamedTuple):
    """A Dealt says who has which blocks: those of the tiles, row-major, and then copies of them at other members.

    Parameters
    ----------
    tiles
        By member the numbers of its blocks, ascending.
    places
        By number of a block its member, and which of the blocks of that member it is.
    copies
        By number of a tile and another member than its own, the number of the block that is its copy there.
    """

    tiles: Mapping[int, tuple[int, ...]]
    places: tuple[tuple[int, int], ...]
    copies: Mapping[tuple[int, int], int]


@lru_cache(maxsize=32)
def dealt(sharding: Sharding) -> Dealt:
    """Return which blocks each member has.

    >>> from distarray.sharding.mesh import Mesh
    >>> dealt(Sharding(Mesh(("x", "%1"), (2, 2)), (("%1", "x"),)))
    Dealt(tiles={0: (0, 1), 1: (2, 3)}, places=((0, 0), (0, 1), (1, 0), (1, 1)), copies={})
    >>> dealt(Sharding(Mesh(("x",), (2,)), ((),), is_copied=True))
    Dealt(tiles={0: (0,), 1: (1,)}, places=((0, 0), (1, 0)), copies={(0, 1): 1})
    """
    homes = [sharding.member(tile) for tile in sharding.tiles()]
    copies: dict[tuple[int, int], int] = {}
    if sharding.is_copied:
        others = [sharding.members(tile) for tile in sharding.tiles()]
        pairs = [(n, m) for n, members in enumerate(others) for m in members if m != homes[n]]
        copies = {pair: n for n, pair in enumerate(pairs, len(homes))}
    tiles: defaultdict[int, list[int]] = defaultdict(list)
    places = []
    for number, member in enumerate([*homes, *[m for _, m in copies]]):
        places.append((member, len(tiles[member])))
        tiles[member].append(number)
    return Dealt({member: tuple(numbers) for member, numbers in tiles.items()}, tuple(places), copies)


@lru_cache(maxsize=32)
def n_elements(sharding: Sharding, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the elements of each block of an array of this shape: see `dealt`.

    >>> from distarray.sharding.mesh import Mesh
    >>> n_elements(Sharding(Mesh(("x",), (3,)), (("x",), ())), (8, 2))
    (4, 6, 6)
    """
    found = [1]
    for bounds in sharding.boundaries(shape):
        extents = [stop - start for start, stop in pairwise(bounds)]
        found = [n * extent for n in found for extent in extents]
    return (*found, *[found[tile] for tile, _ in dealt(sharding).copies])
