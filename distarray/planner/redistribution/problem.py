"""The redistribution problem: one array, how it lies and how it shall lie, as the searches see it.

Searches know nothing of names: a mesh is the sizes of its axes, a type the positions of the axes that cut each
dimension. What they walk through are *weak types*: part counts per dimension (Rink et al. 2021, section 5).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from math import prod
from typing import TypeAlias

from distarray.errors import ShardingError
from distarray.sharding.mesh import Mesh
from distarray.sharding.prime import divisors
from distarray.sharding.sharding import Sharding

#: Part counts per dimension: a weak type.
Parts: TypeAlias = tuple[int, ...]
#: Per dimension the positions of the mesh axes that cut it, minor first.
Axes: TypeAlias = tuple[tuple[int, ...], ...]
#: Explicit boundaries per dimension; None where the cut is regular.
Bounds: TypeAlias = tuple[tuple[int, ...] | None, ...]


@lru_cache(maxsize=4096)
def factors(n: int) -> tuple[int, ...]:
    """Return the divisors of `n` above 1, descending: what a part may be cut by.

    >>> factors(12)
    (12, 6, 4, 3, 2)
    """
    return divisors(n)[:0:-1]


def largest_tile(shape: Sequence[int], parts: Parts, bounds: Bounds = ()) -> tuple[int, ...]:
    """Return the extents of the largest tile, along each dimension by itself."""
    every = bounds or [None] * len(parts)
    return tuple(
        [
            -(-s // k) if b is None else max(hi - lo for lo, hi in pairwise(b))
            for s, k, b in zip(shape, parts, every, strict=True)
        ]
    )


def tile_size(shape: Sequence[int], parts: Parts, bounds: Bounds = ()) -> int:
    """Return the elements of the largest tile."""
    return prod(largest_tile(shape, parts, bounds))


@dataclass(frozen=True, slots=True)
class Problem:
    """A Problem is one redistribution to be planned: a shape, and the types before and after.

    Parameters
    ----------
    sizes
        Of the mesh axes; a device is a place of the mesh, numbered row-major.
    shape
        Global shape.
    src, dst
        Mesh axes that cut each dimension.
    src_bounds, dst_bounds
        Explicit boundaries; ``()`` where every cut is regular.
    src_unreduced, dst_unreduced
        Mesh axes over which the array is a partial result, minor first.
    dst_sizes
        Of the mesh of the target, if it is another one.
    dst_order
        Where the consumer takes tiles in any order: device ``d`` gets the tile that the type gives to ``dst_order[d]``.
    crosses
        Whether the devices of the target are others: another team, or another number of places.
    n_fixed
        Dimensions at the front that no step may touch; see `with_addends`.
    """

    sizes: tuple[int, ...]
    shape: tuple[int, ...]
    src: Axes
    dst: Axes
    src_bounds: Bounds = ()
    dst_bounds: Bounds = ()
    src_unreduced: tuple[int, ...] = ()
    dst_unreduced: tuple[int, ...] = ()
    dst_sizes: tuple[int, ...] | None = None
    dst_order: tuple[int, ...] | None = None
    crosses: bool = False
    n_fixed: int = 0

    @classmethod
    def of(cls, shape: Sequence[int], src: Sharding, dst: Sharding, *, crosses: bool = False) -> Problem:
        """Return the problem of two types.

        Parameters
        ----------
        crosses
            Whether the places of the target are others than those of the source. They are if their numbers differ.

        Raises
        ------
        ShardingError
            If the ranks differ, or the target leaves something unreduced that is not a partial result in the source or
            lies on another mesh.
        """
        mesh, dst_mesh = src.mesh, dst.mesh
        if not len(shape) == src.ndim == dst.ndim:
            raise ShardingError(f"types of rank {src.ndim} and {dst.ndim} do not fit an array of shape {tuple(shape)}")
        src.boundaries(shape), dst.boundaries(shape)
        if not set(dst.unreduced) <= set(src.unreduced):
            raise ShardingError(f"the target is unreduced over {dst.unreduced}, the source over {src.unreduced}")
        crosses = crosses or mesh.size != dst_mesh.size
        if dst.unreduced and (crosses or mesh != dst_mesh):
            raise ShardingError(f"the target is unreduced over {dst.unreduced}: to another mesh only results move")
        return cls(
            mesh.sizes,
            tuple(shape),
            _positions(mesh, src.axes),
            _positions(dst_mesh, dst.axes),
            () if src.is_regular else src.bounds,
            () if dst.is_regular else dst.bounds,
            tuple([mesh.axis_position(name) for name, _ in src.unreduced]),
            tuple([dst_mesh.axis_position(name) for name, _ in dst.unreduced]),
            None if dst_mesh.sizes == mesh.sizes else dst_mesh.sizes,
            crosses=crosses,
        )

    def with_addends(self) -> Problem:
        """Return the problem of an array that is a partial result and stays one, with its addends as a first dimension.

        A device never gets elements of another addend than its own. So they are a dimension that is cut into single
        elements by the unreduced axes, before and after.
        """
        axes = self.dst_unreduced
        n = prod([self.sizes[a] for a in axes])
        return replace(
            self,
            shape=(n, *self.shape),
            src=(axes, *self.src),
            dst=(axes, *self.dst),
            src_bounds=(None, *self.src_bounds) if self.src_bounds else (),
            dst_bounds=(None, *self.dst_bounds) if self.dst_bounds else (),
            src_unreduced=(),
            dst_unreduced=(),
            n_fixed=1,
        )

    @property
    def n_devices(self) -> int:
        """Return the number of places."""
        return prod(self.sizes)

    @property
    def is_regular(self) -> bool:
        """Return whether no boundaries are explicit."""
        return not self.src_bounds and not self.dst_bounds

    @property
    def src_parts(self) -> Parts:
        """Return the part counts of the source."""
        return tuple([prod([self.sizes[a] for a in axes]) for axes in self.src])

    @property
    def dst_parts(self) -> Parts:
        """Return the part counts of the target."""
        sizes = self.dst_sizes or self.sizes
        return tuple([prod([sizes[a] for a in axes]) for axes in self.dst])

    @property
    def bound(self) -> int:
        """Return the elements of the larger of the largest tiles of source and target: no tile on the way may be
        larger.
        """
        ends = ((self.src_parts, self.src_bounds), (self.dst_parts, self.dst_bounds))
        return max([tile_size(self.shape, parts, bounds) for parts, bounds in ends])


def _positions(mesh: Mesh, axes: Sequence[Sequence[str]]) -> Axes:
    return tuple([tuple([mesh.axis_position(name) for name in names if mesh.axis_size(name) > 1]) for names in axes])
