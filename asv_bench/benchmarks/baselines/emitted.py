"""Types while collectives are emitted, and what these cost (Rink et al. 2021, figure 11)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import NamedTuple, TypeAlias

from distarray.testing.redistributions import Case

__all__ = ["Axis", "Emitted", "Types", "types_of"]


class Axis(NamedTuple):
    """A mesh axis, or one of its factors: the mesh axis, the product of the factors that are more minor, the size."""

    name: str
    stride: int
    size: int


#: Per dimension the axes that cut it, major first, as these libraries write them.
Types: TypeAlias = tuple[tuple[Axis, ...], ...]


def types_of(case: Case) -> tuple[Types, Types]:
    """Source and target of a problem, with whole mesh axes."""
    size = dict(zip(case.src.mesh.names, case.src.mesh.sizes))
    source, target = (
        tuple([tuple([Axis(a, 1, size[a]) for a in reversed(axes)]) for axes in sharding.axes])
        for sharding in (case.src, case.dst)
    )
    return source, target


@dataclass
class Emitted:
    """Collectives that were emitted so far.

    Parameters
    ----------
    shape
        Of the array.
    types
        How it lies now.
    """

    shape: tuple[int, ...]
    types: Types
    cost: int = 0
    peak: int = 0
    steps: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.peak = max(self.peak, self.tile)

    @property
    def tile(self) -> int:
        """Elements of the largest tile."""
        return prod([-(-s // parts(axes)) for s, axes in zip(self.shape, self.types)])

    def _emit(self, name: str, types: Iterable[Sequence[Axis]], *, after: bool = False, free: bool = False) -> None:
        before = self.tile
        self.types = tuple(map(tuple, types))
        self.peak = max(self.peak, self.tile)
        self.cost += 0 if free else self.tile if after else before
        self.steps.append(name)

    def slice(self, dim: int, axis: Axis) -> None:
        """Cut a dimension by an axis that is free."""
        types = list(self.types)
        types[dim] = (*types[dim], axis)
        self._emit("slice", types, free=True)

    def gather(self, left: Sequence[int]) -> None:
        """Leave of each dimension so many axes, in one collective."""
        self._emit("gather", [axes[:n] for axes, n in zip(self.types, left)], after=True)

    def all_to_all(self, i: int, j: int, n: int) -> None:
        """Move the `n` minor axes of one dimension to another."""
        types = list(self.types)
        types[i], types[j] = types[i][: len(types[i]) - n], types[j] + types[i][len(types[i]) - n :]
        self._emit("all-to-all", types)

    def permute(self, types: Types) -> None:
        """Other axes of the same sizes."""
        assert list(map(parts, types)) == list(map(parts, self.types))
        self._emit("permute", types)


def parts(axes: Sequence[Axis]) -> int:
    """Into how many parts these axes cut."""
    return prod([axis.size for axis in axes])
