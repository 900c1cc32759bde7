"""Sharding: the distributed type of an array, without its dtype and shape.

It says how each array axis is cut over mesh axes, which mesh axes hold addends of a sum (or another monoid) that is
not yet reduced, and in which order a block lies in memory. Mesh axes named nowhere replicate. Everything here is a
fact about the type; who moves what is the planner's business.

Words: a *tile* is an index of parts, one number per array axis; a *place* is a number of the mesh; an *addend* is an
index over the unreduced axes. A place holds one addend of one tile. Several places that hold the same one are
replicas, and the lowest of them is primary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Any

from distarray.errors import ShardingError
from distarray.sharding import cuts
from distarray.sharding.layout import Layout, LayoutLike, layout_name, parse_layout
from distarray.sharding.mesh import Mesh

#: What partial results may be combined with. The last three carry a state of several arrays: ``moments`` is
#: (count, mean, M2), ``argmax`` and ``argmin`` are (value, index).
MONOIDS = ("sum", "prod", "max", "min", "any", "all", "moments", "argmax", "argmin")

_Bounds = tuple[int, ...] | None


@dataclass(frozen=True, slots=True, repr=False)
class Sharding:
    """A Sharding says how the elements of an array lie on a mesh.

    Parameters
    ----------
    mesh
        The places. It may refine the mesh of the team, and may have wave axes.
    axes
        Per array axis the mesh axes that cut it, **minor (fastest changing) first**; ``()`` is uncut.
    unreduced
        Pairs (mesh axis, monoid), minor axis first: the places along it hold addends.
    bounds
        Per array axis None for the regular cut, or explicit boundaries. Boundaries that are the regular ones
        become None, so that equal cuts are equal types.
    layout
        Order of the axes of a block in memory, outermost first; C if not given.
    is_copied
        Whether, on a cluster, each member of the replicas of a tile has a copy of it; else one is kept, at the primary
        place. False where nobody replicates.

    Raises
    ------
    ShardingError
        If a mesh axis is used twice or does not exist, the ranks differ, or boundaries or layout are none.

    Examples
    --------
    >>> s = Sharding(Mesh(("x", "y"), (2, 3)), (("y", "x"), ()))
    >>> s.parts, s.n_tiles, s.tile_box((10, 4), (1, 0)), s.place((1, 0))
    ((6, 1), 6, ((1, 3), (0, 4)), 1)
    """

    mesh: Mesh
    axes: tuple[tuple[str, ...], ...]
    unreduced: tuple[tuple[str, str], ...] = ()
    bounds: tuple[_Bounds, ...] = ()
    layout: Layout = ()
    is_copied: bool = False
    #: Number of array axes.
    ndim: int = field(init=False, compare=False)
    #: Number of parts of each array axis.
    parts: tuple[int, ...] = field(init=False, compare=False)
    n_tiles: int = field(init=False, compare=False)
    #: Number of partial results to be combined for each element; 1 when nothing is unreduced.
    n_addends: int = field(init=False, compare=False)
    #: Places that hold the same addend of the same tile.
    n_replicas: int = field(init=False, compare=False)
    #: Whether no axis has explicit boundaries.
    is_regular: bool = field(init=False, compare=False)
    #: Mesh axes that are named nowhere, in mesh order.
    free_axes: tuple[str, ...] = field(init=False, compare=False)
    # Per array axis (stride in places, size) of its mesh axes, minor first; then the same of the unreduced axes.
    _digits: tuple[tuple[tuple[int, int], ...], ...] = field(init=False, compare=False)
    _addend_digits: tuple[tuple[int, int], ...] = field(init=False, compare=False)
    # Tables made at the first use: per array axis the place offset of each part; the offsets of the replicas.
    _offsets: tuple[tuple[int, ...], ...] | None = field(init=False, compare=False)
    _replica_offsets: tuple[int, ...] | None = field(init=False, compare=False)
    _hash: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        mesh = self.mesh
        axes = tuple(map(_names, self.axes))
        unreduced = tuple((name, monoid) for name, monoid in self.unreduced)
        _check_axes(mesh, axes, unreduced)
        ndim = len(axes)
        digits = tuple(_digits_of(mesh, names) for names in axes)
        addend_digits = _digits_of(mesh, [name for name, _ in unreduced])
        parts = tuple(prod(size for _, size in axis) for axis in digits)
        bounds = _normal_bounds(self.bounds, parts)
        layout = parse_layout(self.layout or "C", ndim)
        used = {name for names in axes for name in names} | {name for name, _ in unreduced}
        put = object.__setattr__
        put(self, "axes", axes)
        put(self, "unreduced", unreduced)
        put(self, "bounds", bounds)
        put(self, "layout", layout)
        put(self, "ndim", ndim)
        put(self, "parts", parts)
        put(self, "n_tiles", prod(parts))
        put(self, "n_addends", prod(size for _, size in addend_digits))
        put(self, "n_replicas", mesh.size // (self.n_tiles * self.n_addends))
        put(self, "is_copied", self.is_copied and self.n_replicas > 1)
        put(self, "is_regular", all(b is None for b in bounds))
        put(self, "free_axes", tuple(name for name in mesh.names if name not in used))
        put(self, "_digits", digits)
        put(self, "_addend_digits", addend_digits)
        put(self, "_offsets", None)
        put(self, "_replica_offsets", None)
        put(self, "_hash", hash((mesh, axes, unreduced, bounds, layout, self.is_copied)))

    @classmethod
    def whole(cls, mesh: Mesh, ndim: int, layout: LayoutLike = "C") -> Sharding:
        """Return the type of an array that every place holds whole."""
        return cls(mesh, ((),) * ndim, layout=parse_layout(layout, ndim))

    # -- elements -----------------------------------------------------------------------------------------------

    def boundaries(self, shape: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """Return the boundaries of the parts of each axis of an array of this shape.

        Raises
        ------
        ShardingError
            If the rank is not that of the sharding, or explicit boundaries end elsewhere than the axis.
        """
        if len(shape) != self.ndim:
            raise ShardingError(f"shape {tuple(shape)} has {len(shape)} axes, but {self!r} is for {self.ndim}")
        if self.is_regular:
            return tuple(map(cuts.boundaries, shape, self.parts))
        result = []
        for axis, (n, k, explicit) in enumerate(zip(shape, self.parts, self.bounds, strict=True)):
            if explicit is not None and explicit[-1] != n:
                raise ShardingError(
                    f"the boundaries {list(explicit)} of axis {axis} end at {explicit[-1]}, but its extent is {n}"
                )
            result.append(cuts.boundaries(n, k) if explicit is None else explicit)
        return tuple(result)

    def tile_box(self, shape: Sequence[int], tile: Sequence[int]) -> tuple[tuple[int, int], ...]:
        """Return global index range ``(start, stop)`` of a tile along each axis."""
        return tuple((b[t], b[t + 1]) for b, t in zip(self.boundaries(shape), tile, strict=True))

    def tile_slices(self, shape: Sequence[int], tile: Sequence[int]) -> tuple[slice, ...]:
        """Return the slices that cut a tile out of the whole array."""
        return tuple(slice(b[t], b[t + 1]) for b, t in zip(self.boundaries(shape), tile, strict=True))

    def tile_of(self, array: Any, tile: Sequence[int]) -> Any:
        """Return what the whole array has of a tile: a view, also of an array without axes."""
        return array[(*self.tile_slices(array.shape, tile), ...)]

    def shard_shape(self, shape: Sequence[int], tile: Sequence[int] | None = None) -> tuple[int, ...]:
        """Return the shape of a tile; of the largest one, which is what types print, if `tile` is None."""
        if tile is None:
            if self.is_regular and len(shape) == self.ndim:
                return tuple([-(-n // k) for n, k in zip(shape, self.parts, strict=True)])
            return tuple(map(cuts.largest_part, self.boundaries(shape)))
        return tuple(b[t + 1] - b[t] for b, t in zip(self.boundaries(shape), tile, strict=True))

    def tiles(self) -> Iterator[tuple[int, ...]]:
        """Return all tiles, row-major (the last axis fastest)."""
        return product(*map(range, self.parts))

    def number(self, tile: Sequence[int]) -> int:
        """Return the row-major number of a tile."""
        n = 0
        for t, parts in zip(tile, self.parts, strict=True):
            n = n * parts + t
        return n

    # -- places -------------------------------------------------------------------------------------------------

    def place(self, tile: Sequence[int], addend: int = 0) -> int:
        """Return the primary (lowest) place that holds an addend of a tile."""
        offsets = self._offsets
        if offsets is None:
            offsets = tuple(_offsets_of(digits) for digits in self._digits)
            object.__setattr__(self, "_offsets", offsets)
        place = sum([table[t] for table, t in zip(offsets, tile, strict=True)])
        for stride, size in self._addend_digits:
            place += addend % size * stride
            addend //= size
        return place

    def places(self, tile: Sequence[int], addend: int = 0) -> tuple[int, ...]:
        """Return all places that hold an addend of a tile, ascending: its replicas, the primary one first."""
        offsets = self._replica_offsets
        if offsets is None:
            steps = [(self.mesh.strides[i], self.mesh.sizes[i]) for i in map(self.mesh.axis_position, self.free_axes)]
            offsets = tuple(sorted(map(sum, product(*(range(0, n * step, step) for step, n in steps)))))
            object.__setattr__(self, "_replica_offsets", offsets)
        first = self.place(tile, addend)
        return tuple([first + offset for offset in offsets])

    def tile(self, place: int) -> tuple[int, ...]:
        """Return the tile that a place holds (an addend of)."""
        if not 0 <= place < self.mesh.size:
            raise ShardingError(f"place {place} is not in {self.mesh!r}")
        return tuple([_index_of(place, digits) for digits in self._digits])

    def addend(self, place: int) -> int:
        """Return which addend of its tile a place holds; 0 when nothing is unreduced."""
        return _index_of(place, self._addend_digits)

    def member(self, tile: Sequence[int], addend: int = 0) -> int:
        """Return the rank of the team member at the primary place of a tile, within which wave axes vary. Cost: about a
        microsecond.
        """
        return self.mesh.member(self.place(tile, addend))

    def members(self, tile: Sequence[int], addend: int = 0) -> tuple[int, ...]:
        """Return ranks of all members that hold an addend of a tile, ascending and distinct."""
        return tuple(sorted({self.mesh.member(place) for place in self.places(tile, addend)}))

    # -- other types --------------------------------------------------------------------------------------------

    def with_bounds(self, bounds: Sequence[Sequence[int] | None] | None) -> Sharding:
        """Return the sharding with these explicit boundaries per array axis (None: the regular cut)."""
        explicit = () if bounds is None else tuple(None if b is None else tuple(b) for b in bounds)
        return Sharding(self.mesh, self.axes, self.unreduced, explicit, self.layout, self.is_copied)

    def with_layout(self, layout: LayoutLike) -> Sharding:
        """Return the sharding with blocks in another memory order."""
        order = parse_layout(layout, self.ndim)
        return Sharding(self.mesh, self.axes, self.unreduced, self.bounds, order, self.is_copied)

    def with_copies(self, is_copied: bool = True) -> Sharding:
        """Return the type whose replicas are copies, or of which one copy is kept; itself if it is that."""
        if self.is_copied == (is_copied and self.n_replicas > 1):
            return self
        return Sharding(self.mesh, self.axes, self.unreduced, self.bounds, self.layout, is_copied)

    # -- value --------------------------------------------------------------------------------------------------

    def __hash__(self) -> int:
        return self._hash

    # Slots would pickle the cached hash, but hashes of strings differ between processes.
    def __reduce__(self) -> tuple[Any, ...]:  # Any: the return type of object.__reduce__
        return Sharding, (self.mesh, self.axes, self.unreduced, self.bounds, self.layout, self.is_copied)

    def __repr__(self) -> str:
        extra = ""
        if self.unreduced:
            extra += f", unreduced={self.unreduced!r}"
        if not self.is_regular:
            extra += f", bounds={self.bounds!r}"
        name = layout_name(self.layout)
        if name != "C":
            extra += f", layout={name!r}"
        if self.is_copied:
            extra += ", is_copied=True"
        return f"Sharding({self.mesh!r}, {self.axes!r}{extra})"


def _names(entry: Sequence[str] | str | None) -> tuple[str, ...]:
    # Typed as tuples, but a bare name or None must not be taken apart or fail obscurely: both are what sharding= takes.
    if entry is None:
        return ()
    return (entry,) if isinstance(entry, str) else tuple(entry)


def _check_axes(mesh: Mesh, axes: tuple[tuple[str, ...], ...], unreduced: tuple[tuple[str, str], ...]) -> None:
    user = tuple(names[0] if len(names) == 1 else names or None for names in axes)
    # Per mesh axis the array axis that it cuts, or the monoid that it reduces by.
    seen: dict[str, int | str] = {}
    for name, role in [(name, i) for i, names in enumerate(axes) for name in names] + list(unreduced):
        if name not in mesh:
            have = ", ".join(mesh.names) or "none"
            raise ShardingError(f"sharding={user} names mesh axis {name!r}, which does not exist; the mesh has {have}")
        if name in seen:
            first = seen[name]
            if isinstance(role, int):
                where = f"for array axes {first} and {role}" if role != first else f"twice for array axis {role}"
                raise ShardingError(
                    f"sharding={user} names mesh axis {name!r} {where}; a mesh axis can cut one array axis only"
                )
            other = f"cuts array axis {first}" if isinstance(first, int) else f"is reduced by {first} already"
            raise ShardingError(
                f"mesh axis {name!r} is left unreduced by {role}, but it {other}; it can do one thing only"
            )
        seen[name] = role
    for name, monoid in unreduced:
        if monoid not in MONOIDS:
            raise ShardingError(f"unreduced axis {name!r} has the monoid {monoid!r}; use one of {', '.join(MONOIDS)}")


def _normal_bounds(bounds: Sequence[Sequence[int] | None], parts: tuple[int, ...]) -> tuple[_Bounds, ...]:
    if not bounds:
        return (None,) * len(parts)
    if len(bounds) != len(parts):
        raise ShardingError(f"boundaries are given for {len(bounds)} axes of an array with {len(parts)}")
    result: list[_Bounds] = []
    for axis, (explicit, k) in enumerate(zip(bounds, parts, strict=True)):
        if explicit is None:
            result.append(None)
            continue
        try:
            checked = cuts.check_boundaries(explicit)
        except ShardingError as error:
            raise ShardingError(f"axis {axis}: {error}") from None
        if len(checked) != k + 1:
            raise ShardingError(
                f"axis {axis} is cut into {k} parts, but its boundaries {list(checked)} make {len(checked) - 1}"
            )
        result.append(None if checked == cuts.boundaries(checked[-1], k) else checked)
    return tuple(result)


def _digits_of(mesh: Mesh, names: Sequence[str]) -> tuple[tuple[int, int], ...]:
    positions = map(mesh.axis_position, names)
    return tuple((mesh.strides[i], mesh.sizes[i]) for i in positions)


def _offsets_of(digits: tuple[tuple[int, int], ...]) -> tuple[int, ...]:
    # The part number counts with the minor axis fastest: prepend the minor axes to what the major ones give.
    offsets = [0]
    for stride, size in reversed(digits):
        offsets = [offset + i * stride for offset in offsets for i in range(size)]
    return tuple(offsets)


def _index_of(place: int, digits: tuple[tuple[int, int], ...]) -> int:
    number, weight = 0, 1
    for stride, size in digits:
        number += place // stride % size * weight
        weight *= size
    return number
