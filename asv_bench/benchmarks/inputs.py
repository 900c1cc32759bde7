"""Seeded inputs that are pure functions of the global row-major index.

They are equal for every system and every cut, and any subset can be recomputed to check a result. The generator is
splitmix64 on ``index + 1``, with a second odd constant that separates the seeds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Source", "g", "g_at", "normal", "u", "u_at", "uniform"]

Floats = NDArray[np.float64]
#: Elements of a block that are computed at a time: what is made on the way stays in cache.
_AT_A_TIME = 1 << 16


def u_at(seed: int, index: NDArray[np.integer]) -> Floats:
    """Uniform numbers in [0, 1) at the given global indices.

    >>> u_at(7, np.arange(1))
    array([0.06564445])
    """
    step, start = np.uint64(0x9E3779B97F4A7C15), np.uint64(seed * 0xD1B54A32D192ED03 % 2**64)
    with np.errstate(over="ignore"):  # the arithmetic wraps around; numpy warns where the operand is 0-d
        z = (np.asarray(index).astype(np.uint64) + np.uint64(1)) * step + start
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(11)).astype(np.float64) * 2.0**-53


def g_at(seed: int, index: NDArray[np.integer]) -> Floats:
    """Normal numbers at the given global indices (Box-Muller on two uniform streams)."""
    radius = np.sqrt(-2.0 * np.log1p(-u_at(2 * seed, index)))
    return radius * np.cos(2.0 * np.pi * u_at(2 * seed + 1, index))


def u(seed: int, shape: tuple[int, ...]) -> Floats:
    """The uniform input of a workload as a whole array."""
    return u_at(seed, np.arange(math.prod(shape))).reshape(shape)


def g(seed: int, shape: tuple[int, ...]) -> Floats:
    """The normal input of a workload as a whole array."""
    return g_at(seed, np.arange(math.prod(shape))).reshape(shape)


@dataclass(frozen=True)
class Source:
    """An operand as a recipe, from which every system makes its own array block by block, wherever the block lies.

    Calling it with the indices along each axis, shaped to broadcast against each other, gives that part of the array.

    Attributes
    ----------
    shape, dtype
        Of the whole array.
    values
        Elements at global row-major indices, in float64; pickled by reference, so a function of a module or a partial
        of one.
    blocks
        Shape of the blocks that the workload prescribes; None leaves it to the system.
    """

    shape: tuple[int, ...]
    dtype: str
    values: Callable[[NDArray[np.int64]], NDArray[Any]]
    blocks: tuple[int, ...] | None = None

    def __call__(self, *places: NDArray[np.integer]) -> NDArray[Any]:
        strides = [math.prod(self.shape[axis + 1 :]) for axis in range(len(self.shape))]
        offsets = [np.asarray(place, np.int64) * stride for place, stride in zip(places, strides, strict=True)]
        block = np.empty(np.broadcast_shapes(*[offset.shape for offset in offsets]), self.dtype)
        self._fill(block, offsets)
        return block

    def _fill(self, block: NDArray[Any], offsets: list[NDArray[np.int64]]) -> None:
        if block.size <= _AT_A_TIME:
            block[...] = self.values(sum(offsets, np.zeros(block.shape, np.int64)))
            return
        axis = max(range(block.ndim), key=block.shape.__getitem__)
        middle = block.shape[axis] // 2
        for part in (slice(0, middle), slice(middle, None)):
            at = (slice(None),) * axis + (part,)
            self._fill(block[at], [offset[at] if offset.shape[axis] > 1 else offset for offset in offsets])

    @cached_property
    def nbytes(self) -> int:
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    def part(self, *slices: slice) -> NDArray[Any]:
        """The elements in a box; axes that are not named are whole."""
        rest = (slice(None),) * (len(self.shape) - len(slices))
        ranges = [np.arange(n)[at] for n, at in zip(self.shape, (*slices, *rest), strict=True)]
        return self(*np.ix_(*ranges))


def normal(seed: int, shape: tuple[int, ...], dtype: str = "f8", blocks: tuple[int, ...] | None = None) -> Source:
    """`g` as a recipe."""
    return Source(shape, dtype, partial(g_at, seed), blocks)


def uniform(seed: int, shape: tuple[int, ...], dtype: str = "f8", blocks: tuple[int, ...] | None = None) -> Source:
    """`u` as a recipe."""
    return Source(shape, dtype, partial(u_at, seed), blocks)
