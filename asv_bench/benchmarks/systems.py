"""The systems that are compared: how each takes an input, and what makes it work.

All run the same text against their namespace. Inputs are made and placed before the clock starts. A result stays
where its system keeps it (`force`): gathering into one numpy array is timed for none.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["SYSTEMS", "DaskArray", "DistArray", "Numpy", "System"]


class System(Protocol):
    """An array library under test. `blocks` is the number of blocks per axis; None leaves it to the system."""

    name: str

    @property
    def xp(self) -> Any: ...  # the namespace of another library

    def put(self, value: NDArray[Any], blocks: Sequence[int] | None = None) -> Any:
        """`value` as an array of the system, placed."""

    def force(self, x: Any) -> Any:
        """Do the work of `x`, leaving the result in the system."""


class Numpy:
    name = "numpy"

    @property
    def xp(self) -> Any:
        return np

    def put(self, value: NDArray[Any], blocks: Sequence[int] | None = None) -> Any:
        return value.copy()

    def force(self, x: Any) -> Any:
        return x


def _chunks(shape: Sequence[int], blocks: Sequence[int]) -> tuple[int, ...]:
    return tuple(max(1, math.ceil(n / k)) for n, k in zip(shape, blocks, strict=True))


class DaskArray:
    """dask.array with ``chunks="auto"`` (`fair` false), or with sqrt(p) chunks per axis for p threads."""

    def __init__(self, name: str, fair: bool) -> None:
        self.name = name
        self.fair = fair

    @property
    def xp(self) -> Any:
        import dask.array  # heavy: only where it is compared

        return dask.array

    def put(self, value: NDArray[Any], blocks: Sequence[int] | None = None) -> Any:
        if blocks is None and self.fair:
            blocks = (math.ceil(math.sqrt(os.cpu_count() or 1)),) * value.ndim
        chunks = "auto" if blocks is None else _chunks(value.shape, blocks)
        return self.xp.from_array(value.copy(), chunks=chunks).persist()

    def force(self, x: Any) -> Any:
        return x.persist()


class DistArray:
    name = "distarray"

    @property
    def xp(self) -> Any:
        import distarray

        return distarray

    def put(self, value: NDArray[Any], blocks: Sequence[int] | None = None) -> Any:
        dx = self.xp
        if blocks is None or math.prod(blocks) == 1:
            return dx.asarray(value).persist()
        # Two members along every axis that is cut; what is finer are wave axes, tiles that follow each other on one.
        cut = {axis: k for axis, k in enumerate(blocks) if k > 1}
        if any(k % 2 for k in cut.values()):
            raise ValueError(f"blocks={tuple(blocks)}: two members share an axis, so its blocks are 1 or even")
        members = {axis: "ABCD"[axis] for axis in cut}
        team = dx.Team((2,) * len(cut), tuple(members.values()))
        waves = {axis: f"%{i + 1}" for i, axis in enumerate(cut)}
        mesh = dx.Mesh((*members.values(), *waves.values()), (*team.shape, *(k // 2 for k in cut.values())))
        axes = tuple((waves[axis], members[axis]) if axis in cut else () for axis in range(value.ndim))
        # Host data stay one array of this process until an operation cuts them; adding 0 does.
        return (dx.asarray(value, team=team, sharding=dx.Sharding(mesh, axes)) + 0).persist()

    def force(self, x: Any) -> Any:
        return x.persist()


#: By name, in the order of tables. Both cuts of dask.array: its own choice may be one chunk, hence one thread.
SYSTEMS: dict[str, System] = {
    system.name: system
    for system in (Numpy(), DaskArray("dask.array", fair=False), DaskArray("dask.array-grid", fair=True), DistArray())
}
