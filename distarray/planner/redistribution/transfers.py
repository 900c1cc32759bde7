"""What every tile of a plan is put together from: the plan as its execution sees it.

A plan speaks of devices that all hold a tile, replicas included. An execution makes a tile only where somebody needs
it: of a replicated source one copy exists, of a replicated target one is wanted. `schedule` walks the plan backwards
from the tiles that are wanted, and names for each the blocks that it is read from. Slices are never stored on their
own: who reads a slice reads a part of the block that it was taken from.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import pairwise, product
from math import prod
from typing import NamedTuple, TypeAlias

import numpy as np

from distarray.planner.redistribution.steps import AllPermute, DynSlice, Exchange, Step
from distarray.planner.redistribution.trace import Moment
from distarray.sharding.cuts import boundaries, parts_of
from distarray.sharding.sharding import Sharding

Tile: TypeAlias = tuple[int, ...]

#: Parts of a tile, on average, beyond which a pack of them costs less than to wait for each.
MANY_PARTS = 32


class Layer(NamedTuple):
    """A Layer says which device holds which tile at one moment of a redistribution.

    Parameters
    ----------
    boundaries
        Of the tiles, per dimension.
    tiles
        Index of the tile of each device that holds one.
    """

    boundaries: tuple[tuple[int, ...], ...]
    tiles: Mapping[int, Tile]

    def n_elements(self, tile: Tile) -> int:
        """Return the number of elements of a tile."""
        return prod([b[t + 1] - b[t] for b, t in zip(self.boundaries, tile, strict=True)])


class StoredTile(NamedTuple):
    """A StoredTile is the stored tile of a device after a step; before the first step if `moment` is 0."""

    moment: int
    device: int


class Assembly(NamedTuple):
    """An Assembly is a tile that a device puts together from parts of tiles of the layer before.

    Parameters
    ----------
    device
        That makes it.
    tile
        Its index in the layer of its moment.
    parts
        Per dimension the parts, of the layer before it, that it has elements of.
    sources
        For each combination of them, row-major, the block that it is read from.
    """

    device: int
    tile: Tile
    parts: tuple[tuple[int, ...], ...]
    sources: tuple[StoredTile, ...]


class Movement(NamedTuple):
    """A Movement is all the tiles that one step of a redistribution makes, and what they are read from.

    Parameters
    ----------
    step
        Number of the step in the plan, from 0.
    made, read
        Layer of the tiles that are made, and of those that they are read from: slices of stored blocks, maybe.
    assemblies
        In the order of their devices.
    """

    step: int
    made: Layer
    read: Layer
    assemblies: tuple[Assembly, ...]

    @property
    def is_fine(self) -> bool:
        """Return whether tiles are made of so many parts that these are packed first, also where they stay on a
        member.
        """
        return sum([len(a.sources) for a in self.assemblies]) > MANY_PARTS * len(self.assemblies)


def layers_of(shape: Sequence[int], trace: Sequence[Moment]) -> list[Layer]:
    """Return the layers of a plan between regular types: every device holds a tile."""
    return [Layer(tuple(map(boundaries, shape, m.parts)), dict(enumerate(map(tuple, m.tiles.tolist())))) for m in trace]


def primary(sharding: Sharding, shape: Sequence[int]) -> Layer:
    """Return the tiles of an array of a type, each at the one place that stores it."""
    return Layer(sharding.boundaries(shape), {sharding.place(tile): tile for tile in sharding.tiles()})


def exchange_of(source: Layer, target: Layer) -> list[Movement]:
    """Return one exchange between any two layers: every tile of the target is read from the tiles of the source."""
    return schedule([source, target], [None], {tile: d for d, tile in source.tiles.items()}, target.tiles)


def schedule(
    layers: Sequence[Layer], steps: Sequence[Step | None], held: Mapping[Tile, int], wanted: Iterable[int]
) -> list[Movement]:
    """Return what every step makes, so that the devices `wanted` have their tile at the end.

    Parameters
    ----------
    layers
        Before the first step and after each.
    steps
        Of the plan; no reductions. None: an exchange between any two layers.
    held
        Which device holds each tile of the source.
    wanted
        Devices that are to have their tile of the target.

    Returns
    -------
    list of Movement
        In the order of the steps; none for slices that a later step takes itself.
    """
    last = len(steps)
    needed: list[set[int]] = [set() for _ in layers]
    needed[last] = set(wanted)

    def base(moment: int, device: int) -> StoredTile:
        """Return the stored block that holds the tile of a device at a moment."""
        while moment and isinstance(steps[moment - 1], DynSlice) and moment < last:
            moment -= 1
        return StoredTile(moment, device if moment else held[layers[0].tiles[device]])

    found = []
    for moment in range(last, 0, -1):
        step, made, read = steps[moment - 1], layers[moment], layers[moment - 1]
        stored = partial(base, moment - 1)
        suppliers = _suppliers(step, made, read, needed[moment - 1], stored)
        overlapped = _overlaps(made, read)
        assemblies = []
        for device in sorted(needed[moment]):
            parts = overlapped(made.tiles[device])
            assemblies.append(Assembly(device, made.tiles[device], parts, suppliers(device, parts)))
        if not isinstance(step, DynSlice) or moment == last:
            found.append(Movement(moment - 1, made, read, tuple(assemblies)))
    return found[::-1]


def _overlaps(made: Layer, read: Layer) -> Callable[[Tile], tuple[tuple[int, ...], ...]]:
    """Return of a tile of `made`, per dimension, the parts of `read` that it has elements of; none of an empty one."""
    axes = [
        [tuple([p for p in parts_of(other, a, b) if other[p] < other[p + 1]]) for a, b in pairwise(own)]
        for own, other in zip(made.boundaries, read.boundaries, strict=True)
    ]
    return lambda tile: tuple([axis[t] for axis, t in zip(axes, tile, strict=True)])


def _suppliers(
    step: Step | None, made: Layer, read: Layer, needed: set[int], stored: Callable[[int], StoredTile]
) -> Callable[[int, Sequence[Sequence[int]]], tuple[StoredTile, ...]]:
    """Return who gives the tiles of `read` to a device: itself, its group, who makes it anyway, who has sent least so
    far.
    """
    holders: defaultdict[Tile, list[int]] = defaultdict(list)
    for device, tile in read.tiles.items():
        holders[tile].append(device)
    if len(holders) == len(read.tiles):  # no replicas, no choice
        only = {tile: stored(device) for tile, (device,) in holders.items()}

        def of_only(device: int, parts: Sequence[Sequence[int]]) -> tuple[StoredTile, ...]:
            tiles = list(product(*parts))
            needed.update([holders[tile][0] for tile in tiles])
            return tuple([only[tile] for tile in tiles])

        return of_only
    sent: Counter[int] = Counter()
    group = None
    if step is not None and not isinstance(step, DynSlice | AllPermute | Exchange):
        group = np.empty(step.groups.size, np.int64)
        group[step.groups] = np.arange(len(step.groups))[:, None]

    def supplier(device: int, source: Tile) -> int:
        candidates = holders[source]
        if read.tiles.get(device) == source:
            candidates = [device]
        elif isinstance(step, AllPermute):
            candidates = [int(step.perm[device])]
        elif group is not None:
            candidates = [d for d in candidates if group[d] == group[device]] or candidates
        chosen = min(candidates, key=lambda d: (d not in needed, sent[stored(d).device], d))
        needed.add(chosen)
        if chosen != device:
            sent[stored(chosen).device] += _shared(made, made.tiles[device], read, source)
        return chosen

    return lambda device, parts: tuple([stored(supplier(device, source)) for source in product(*parts)])


def _shared(made: Layer, tile: Tile, read: Layer, source: Tile) -> int:
    return prod(
        min(a[t + 1], b[s + 1]) - max(a[t], b[s])
        for a, t, b, s in zip(made.boundaries, tile, read.boundaries, source, strict=True)
    )


def traffic(
    movement: Movement, makes: Callable[[int], int], holds: Callable[[int], int]
) -> tuple[Counter[int], Counter[int]]:
    """Return the elements that every member packs or sends in a step, and that it receives from others.

    Parameters
    ----------
    makes, holds
        The member of a device whose tile is made, and of one that holds a block.
    """
    sent: Counter[int] = Counter()
    received: Counter[int] = Counter()
    made, read, is_fine = movement.made.boundaries, movement.read.boundaries, movement.is_fine
    for assembly in movement.assemblies:
        member = makes(assembly.device)
        lengths = np.ones(1, np.int64)
        for own, t, other, parts in zip(made, assembly.tile, read, assembly.parts, strict=True):
            axis = [min(own[t + 1], other[p + 1]) - max(own[t], other[p]) for p in parts]
            lengths = np.multiply.outer(lengths, np.array(axis, np.int64)).ravel()
        for source, n in zip(assembly.sources, lengths.tolist(), strict=True):
            at = holds(source.device)
            if at != member:
                received[member] += n
            if at != member or is_fine:
                sent[at] += n
    return sent, received
