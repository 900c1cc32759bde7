"""Mesh: named axes with sizes, a logical grid of places that knows no hardware.

A *place* is numbered row-major over the axes as listed, the first axis slowest, as
``np.arange(mesh.size).reshape(mesh.sizes)``. Ordinary axes say which member of a team a place belongs to. *Wave
axes*, named ``%1``, ``%2``, ..., number the tiles that follow each other on one member; so a mesh may have many more
places than a team has members. Which tiles share a member is the order of the axes in a cut: ``{%1,x}`` (minor first)
puts adjacent tiles on one member (blocked), ``{x,%1}`` deals them out in turn (cyclic, for factorisations).

A mesh may also list the *owner* of each place: any member, in any order, several places on one or none at all. Then
no rule says whom a place belongs to but the list.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Any

from distarray.arguments import MAX_COUNT, integer
from distarray.errors import ShardingError
from distarray.sharding.cuts import MAX_PARTS

_NAME = re.compile(r"%[1-9][0-9]*|[^\W\d]\w*")


def is_wave(name: str) -> bool:
    """Return whether a mesh axis is a wave axis: one that varies within a member.

    >>> is_wave("%1"), is_wave("x")
    (True, False)
    """
    return name.startswith("%")


def _row_major(sizes: Iterable[int]) -> tuple[int, ...]:
    strides = []
    step = 1
    for size in reversed(tuple(sizes)):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


@dataclass(frozen=True, slots=True, repr=False)
class Mesh:
    """A Mesh is named axes with sizes. ``Mesh()`` has no axes and one place.

    Parameters
    ----------
    names
        One name per axis: an identifier, or ``%1``, ``%2``, ... for a wave axis.
    sizes
        One size >= 1 per axis.
    owners
        Per place the rank of the member that it belongs to. None: as the axes say, in the order of the places.

    Raises
    ------
    ShardingError
        If a name repeats or is not a name, a size is not positive, or the two differ in length; if there is not one
        owner for each place.

    Examples
    --------
    >>> mesh = Mesh(("R", "C"), (2, 4))
    >>> mesh, mesh.size, mesh.coordinates(6), mesh.place((1, 2))
    (Mesh(R=2, C=4), 8, (1, 2), 6)
    >>> Mesh(("R",), (3,), (2, 0, 2)).member(1)
    0
    """

    names: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()
    owners: tuple[int, ...] | None = None
    #: Number of places.
    size: int = field(init=False, compare=False)
    #: Distance in places between neighbours along each axis.
    strides: tuple[int, ...] = field(init=False, compare=False)
    #: Number of places when the wave axes are left out: the members that the mesh spans. With owners: up to the last.
    n_members: int = field(init=False, compare=False)
    # (stride in places, size, stride in members) of the axes that are not waves.
    _member_digits: tuple[tuple[int, int, int], ...] = field(init=False, compare=False)
    _index: dict[str, int] = field(init=False, compare=False)
    _hash: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        names = tuple(self.names)
        sizes = tuple([integer(size, "size of a mesh axis") for size in self.sizes])
        if len(names) != len(sizes):
            raise ShardingError(f"mesh has {len(names)} axis names {names} but {len(sizes)} sizes {sizes}")
        for name, size in zip(names, sizes, strict=True):
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                raise ShardingError(f"{name!r} is no name for a mesh axis; use an identifier, or %1, %2, .. for waves")
            if names.count(name) > 1:
                raise ShardingError(f"mesh axis {name!r} is named {names.count(name)} times in {names}")
            if size < 1:
                raise ShardingError(f"mesh axis {name!r} has size {size}; sizes are at least 1")
        put = object.__setattr__
        put(self, "names", names)
        put(self, "sizes", sizes)
        put(self, "size", prod(sizes))
        strides = _row_major(sizes)
        put(self, "strides", strides)
        plain = [i for i, name in enumerate(names) if not is_wave(name)]
        member_sizes = [sizes[i] for i in plain]
        member_strides = _row_major(member_sizes)
        owners = None if self.owners is None else tuple([integer(m, "owner of a place") for m in self.owners])
        if owners is not None and (len(owners) != self.size or min(owners) < 0):
            raise ShardingError(f"owners={owners} must name the member of each of the {self.size} places, from 0 on")
        put(self, "owners", owners)
        put(self, "n_members", prod(member_sizes) if owners is None else 1 + max(owners))
        if self.n_members > MAX_PARTS or self.size > MAX_COUNT:
            raise ShardingError(
                f"a mesh of sizes {sizes} has {self.n_members} members and {self.size} places; at most {MAX_PARTS} and "
                f"{MAX_COUNT} can be"
            )
        put(
            self,
            "_member_digits",
            tuple((strides[i], sizes[i], step) for i, step in zip(plain, member_strides, strict=True)),
        )
        put(self, "_index", {name: i for i, name in enumerate(names)})
        put(self, "_hash", hash((names, sizes, owners)))

    def __hash__(self) -> int:
        return self._hash

    # Slots would pickle the cached hash, but hashes of strings differ between processes.
    def __reduce__(self) -> tuple[Any, ...]:  # Any: the return type of object.__reduce__
        return Mesh, (self.names, self.sizes, self.owners)

    def __repr__(self) -> str:
        axes = [f"{n}={s}" for n, s in zip(self.names, self.sizes, strict=True)]
        return f"Mesh({', '.join(axes if self.owners is None else [*axes, f'owners={self.owners}'])})"

    def __str__(self) -> str:
        """Return the form of the command line: ``x=4,y=6``; parsed by `distarray.sharding.spec.parse_mesh`."""
        return ",".join(f"{n}={s}" for n, s in zip(self.names, self.sizes, strict=True))

    def __contains__(self, name: object) -> bool:
        return name in self._index

    def axis_size(self, name: str) -> int:
        """Return the size of the axis called `name`."""
        return self.sizes[self.axis_position(name)]

    def axis_position(self, name: str) -> int:
        """Return the position of the axis called `name` among the axes.

        Raises
        ------
        ShardingError
            If the mesh has no such axis.
        """
        try:
            return self._index[name]
        except KeyError:
            have = ", ".join(self.names) or "none"
            raise ShardingError(f"mesh axis {name!r} does not exist; the mesh has the axes {have}") from None

    def coordinates(self, place: int) -> tuple[int, ...]:
        """Return the coordinates of a place along each axis; the inverse of `place`."""
        self._check(place)
        return tuple((place // stride) % size for stride, size in zip(self.strides, self.sizes, strict=True))

    def place(self, coordinates: Iterable[int]) -> int:
        """Return the number of the place with these coordinates."""
        coordinates = tuple(coordinates)
        if len(coordinates) != len(self.sizes) or not all(
            0 <= c < size for c, size in zip(coordinates, self.sizes, strict=True)
        ):
            raise ShardingError(f"coordinates {coordinates} are not in {self!r}")
        return sum(c * stride for c, stride in zip(coordinates, self.strides, strict=True))

    def member(self, place: int) -> int:
        """Return the rank of the team member that a place belongs to: its owner, or its index over the axes that are
        not waves.
        """
        self._check(place)
        if self.owners is not None:
            return self.owners[place]
        return sum((place // stride) % size * step for stride, size, step in self._member_digits)

    def without_owners(self) -> Mesh:
        """Return the mesh whose places belong to members by their order alone."""
        return self if self.owners is None else Mesh(self.names, self.sizes)

    def with_waves(self, *sizes: int) -> Mesh:
        """Return this mesh with further wave axes of these sizes, appended as the fastest axes.

        >>> Mesh(("x",), (4,)).with_waves(3, 2)
        Mesh(x=4, %1=3, %2=2)
        """
        last = max((int(name[1:]) for name in self.names if is_wave(name)), default=0)
        names = tuple(f"%{last + 1 + i}" for i in range(len(sizes)))
        owners = None if self.owners is None else tuple([m for m in self.owners for _ in range(prod(sizes))])
        return Mesh(self.names + names, self.sizes + tuple(sizes), owners)

    def without_waves(self, but: Collection[str] = ()) -> Mesh:
        """Return the axes that span the members, and those in `but`; the owners are those of the first tiles."""
        kept = [i for i, name in enumerate(self.names) if not is_wave(name) or name in but]
        if len(kept) == len(self.names):
            return self
        owners = None
        if self.owners is not None:
            steps = [range(0, self.sizes[i] * self.strides[i], self.strides[i]) for i in kept]
            owners = tuple([self.owners[sum(place)] for place in product(*steps)])
        return Mesh(tuple(self.names[i] for i in kept), tuple(self.sizes[i] for i in kept), owners)

    def renamed(self, names: Iterable[str]) -> Mesh:
        """Return the same places under other names of the axes."""
        return Mesh(tuple(names), self.sizes, self.owners)

    def _check(self, place: int) -> None:
        if not 0 <= place < self.size:
            raise ShardingError(f"place {place} is not in {self!r}, which has the places 0 to {self.size - 1}")
