"""Steps of a plan: the typed collectives, at the level of devices (Rink et al. 2021, figures 8 and 10).

Every step acts on *tile indices*: which part of each dimension a device holds, and into how many parts the dimension
is cut. Since cuts nest, the same integers are right for sizes that do not divide (`sharding.cuts`).
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, TypeAlias

import numpy as np

from distarray.planner.redistribution.places import IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Collective:
    """A Collective is a step, by its name and with what it is told."""

    op: ClassVar[str]

    def to_json(self) -> dict[str, Any]:
        """Return the step as plain data, without what is not said."""
        made = {field.name: getattr(self, field.name) for field in fields(self)}
        plain = {name: v.tolist() if isinstance(v, np.ndarray) else v for name, v in made.items() if v is not None}
        return {"op": self.op, **plain}


@dataclass(frozen=True, slots=True, eq=False)
class DynSlice(Collective):
    """In a DynSlice every device keeps one of `n` slices of its tile along `dim`: ``index[d]``. It costs nothing."""

    dim: int
    n: int
    index: IntArray

    op = "dynslice"


@dataclass(frozen=True, slots=True, eq=False)
class AllGather(Collective):
    """In an AllGather the devices of each group, which hold `n` adjacent tiles along `dim` in this order, all get their
    union.
    """

    dim: int
    n: int
    groups: IntArray

    op = "allgather"


@dataclass(frozen=True, slots=True, eq=False)
class AllToAll(Collective):
    """In an AllToAll a group gathers `n` adjacent tiles along `src_dim`, and each member keeps one slice of `dst_dim`.

    Member ``m`` of a group keeps slice ``m``, or ``index[d]`` if given: a permutation inside each group.
    """

    src_dim: int
    dst_dim: int
    n: int
    groups: IntArray
    index: IntArray | None = None

    op = "alltoall"


@dataclass(frozen=True, slots=True, eq=False)
class AllPermute(Collective):
    """In an AllPermute device ``d`` gets the tile that device ``perm[d]`` has, for every device."""

    perm: IntArray

    op = "allpermute"


@dataclass(frozen=True, slots=True, eq=False)
class Exchange(Collective):
    """In an Exchange every device gets any tile, from whoever holds pieces of it.

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
class ReduceScatter(Collective):
    """In a ReduceScatter the devices of each group hold addends of one tile; each gets the sum of one of `n` slices
    along `dim`.
    """

    dim: int
    n: int
    groups: IntArray

    op = "reduce_scatter"


@dataclass(frozen=True, slots=True, eq=False)
class AllReduce(Collective):
    """In an AllReduce the devices of each group hold addends of one tile, and all get the sum."""

    n: int
    groups: IntArray

    op = "all_reduce"


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
