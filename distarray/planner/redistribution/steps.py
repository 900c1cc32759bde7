"""Steps of a plan: the typed collectives, at the level of devices (Rink et al. 2021, figures 8 and 10).

Every step acts on *tile indices*: which part of each dimension a device holds, and into how many parts the dimension
is cut. Since cuts nest, the same integers are right for sizes that do not divide (`sharding.cuts`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from distarray.planner.redistribution.places import IntArray


@dataclass(frozen=True, slots=True, eq=False)
class DynSlice:
    """Every device keeps one of `n` slices of its tile along `dim`: ``index[d]``. Costs nothing."""

    dim: int
    n: int
    index: IntArray

    op = "dynslice"

    def to_json(self) -> dict[str, Any]:
        """Return the step as plain data."""
        return {"op": self.op, "dim": self.dim, "n": self.n, "index": self.index.tolist()}


@dataclass(frozen=True, slots=True, eq=False)
class AllGather:
    """The devices of each group, which hold `n` adjacent tiles along `dim` in this order, all get their union."""

    dim: int
    n: int
    groups: IntArray

    op = "allgather"

    def to_json(self) -> dict[str, Any]:
        """Return the step as plain data."""
        return {"op": self.op, "dim": self.dim, "n": self.n, "groups": self.groups.tolist()}


@dataclass(frozen=True, slots=True, eq=False)
class AllToAll:
    """A group gathers `n` adjacent tiles along `src_dim`, and each member keeps one slice of `dst_dim`.

    Member ``m`` of a group keeps slice ``m``, or ``index[d]`` if given: a permutation inside each group.
    """

    src_dim: int
    dst_dim: int
    n: int
    groups: IntArray
    index: IntArray | None = None

    op = "alltoall"

    def to_json(self) -> dict[str, Any]:
        """Return the step as plain data."""
        made = {"op": self.op, "src_dim": self.src_dim, "dst_dim": self.dst_dim, "n": self.n}
        made["groups"] = self.groups.tolist()
        if self.index is not None:
            made["index"] = self.index.tolist()
        return made


@dataclass(frozen=True, slots=True, eq=False)
class AllPermute:
    """Device ``d`` gets the tile that device ``perm[d]`` has, for every device."""

    perm: IntArray

    op = "allpermute"

    def to_json(self) -> dict[str, Any]:
        """Return the step as plain data."""
        return {"op": self.op, "perm": self.perm.tolist()}


@dataclass(frozen=True, slots=True, eq=False)
class Exchange:
    """Every device gets any tile, from whoever holds pieces of it.

    Parameters
    ----------
    parts
        Part counts afterwards. Where a dimension is explicitly cut, `offsets` and `extents` say its boundaries.
    tiles
        Tile index of every device afterwards, (devices, dimensions).
    shape
        Of the largest tile.
    offsets, extents
        In elements, (devices, dimensions).
    crosses
        Whether the devices afterwards are those of the target's team.
    """

    parts: tuple[int, ...]
    tiles: IntArray
    shape: tuple[int, ...]
    offsets: IntArray
    extents: IntArray
    crosses: bool = False

    op = "exchange"

    def to_json(self) -> dict[str, Any]:
        """Return the step as plain data; extents only where they differ."""
        made = {"op": self.op, "shape": list(self.shape), "offsets": self.offsets.tolist()}
        if (self.extents != self.shape).any():
            made["extents"] = self.extents.tolist()
        return made


@dataclass(frozen=True, slots=True, eq=False)
class ReduceScatter:
    """The devices of each group hold addends of one tile; each gets the sum of one of `n` slices along `dim`."""

    dim: int
    n: int
    groups: IntArray

    op = "reduce_scatter"

    def to_json(self) -> dict[str, Any]:
        """Return the step as plain data."""
        return {"op": self.op, "dim": self.dim, "n": self.n, "groups": self.groups.tolist()}


@dataclass(frozen=True, slots=True, eq=False)
class AllReduce:
    """The devices of each group hold addends of one tile, and all get the sum."""

    n: int
    groups: IntArray

    op = "all_reduce"

    def to_json(self) -> dict[str, Any]:
        """Return the step as plain data."""
        return {"op": self.op, "n": self.n, "groups": self.groups.tolist()}


Step: TypeAlias = DynSlice | AllGather | AllToAll | AllPermute | Exchange | ReduceScatter | AllReduce


def without_addends(step: Step) -> Step:
    """Return a step of the problem with addends as a first dimension, which it leaves alone, for the array itself."""
    if isinstance(step, AllToAll):
        return replace(step, src_dim=step.src_dim - 1, dst_dim=step.dst_dim - 1)
    if isinstance(step, DynSlice | AllGather):
        return replace(step, dim=step.dim - 1)
    if isinstance(step, Exchange):
        return replace(
            step,
            parts=step.parts[1:],
            tiles=step.tiles[:, 1:],
            shape=step.shape[1:],
            offsets=step.offsets[:, 1:],
            extents=step.extents[:, 1:],
        )
    assert isinstance(step, AllPermute), "sums come before"
    return step
