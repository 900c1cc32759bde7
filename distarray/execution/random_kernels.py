"""Kernels of random numbers: splitmix64 of the global row-major index, and Box-Muller on two of its streams.

An element is a function of its position and the key, nothing else. Work goes through slices that stay in cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from math import prod
from typing import Any

import numpy as np

__all__ = ["CREATE"]

Block = Any  # of any backend
Words = Any  # an array of 64-bit words, of numpy or cupy

#: Elements of one slice: its words and scratch stay in cache.
SLICE = 8_192

_STEP = 0x9E3779B97F4A7C15
_STREAM = 0xD1B54A32D192ED03
_MIX = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_MASK = 2**64 - 1


class _Slice:
    """Scratch for one slice after the other."""

    def __init__(self, xp: Any) -> None:
        self.xp = xp
        # What the step adds from one element to the next; the arithmetic wraps around.
        self.steps = xp.arange(SLICE, dtype=np.uint64) * np.uint64(_STEP)
        self.words = xp.empty(SLICE, np.uint64)
        self.scratch = xp.empty(SLICE, np.uint64)

    def bits(self, first: int, n: int, key: int) -> Words:
        """64 random bits for each of `n` indices: splitmix64 (Steele et al. 2014). Valid until the next call."""
        xp, z, t = self.xp, self.words[:n], self.scratch[:n]
        # (index + 1) * step + key * stream
        xp.add(self.steps[:n], np.uint64(((first + 1) * _STEP + key * _STREAM) & _MASK), out=z)
        for shift, factor in _MIX:
            xp.right_shift(z, np.uint64(shift), out=t)
            xp.bitwise_xor(z, t, out=z)
            xp.multiply(z, np.uint64(factor), out=z)
        xp.right_shift(z, np.uint64(31), out=t)
        xp.bitwise_xor(z, t, out=z)
        return z

    def uniform(self, first: int, n: int, key: int, out: Block) -> None:
        """Numbers in [0, 1), all multiples of the smallest step that the dtype has below 1."""
        z = self.bits(first, n, key)
        digits = 24 if out.dtype == np.float32 else 53
        self.xp.right_shift(z, np.uint64(64 - digits), out=z)
        out[...] = z
        out *= out.dtype.type(2.0**-digits)

    def normal(self, first: int, n: int, key: int, out: Block) -> None:
        """Normal numbers: the radius from one stream, the angle from another."""
        xp = self.xp
        radius, angle = xp.empty(n), xp.empty(n)
        self.uniform(first, n, 2 * key, radius)
        self.uniform(first, n, 2 * key + 1, angle)
        xp.log1p(xp.negative(radius, out=radius), out=radius)
        radius *= -2.0
        xp.sqrt(radius, out=radius)
        angle *= 2.0 * np.pi
        radius *= xp.cos(angle, out=angle)
        out[...] = radius

    def words_into(self, first: int, n: int, key: int, out: Block) -> None:
        """The bits themselves."""
        out[...] = self.bits(first, n, key)


def _created(fill: Callable[[_Slice, int, int, int, Block], None]) -> Callable[..., Block]:
    """A kernel that fills the block of a global box, slice by slice of the row-major index."""

    def kernel(backend: Any, box: Any, shape: tuple[int, ...], dtype: Any, params: Any, runtime: Any) -> Block:
        extents = tuple(hi - lo for lo, hi in box)
        # array_api_strict has no in-place arithmetic on words: numpy makes its blocks, which come from nowhere.
        xp = np if hasattr(backend.xp, "__array_api_strict_version__") else backend.xp
        key: int = runtime
        out = xp.empty(prod(extents), dtype)
        done = 0
        with np.errstate(over="ignore"):
            slices = _Slice(xp)
            for start, length in _runs(box, shape):
                for offset in range(0, length, SLICE):
                    n = min(SLICE, length - offset)
                    fill(slices, start + offset, n, key, out[done : done + n])
                    done += n
        return backend.adopt(out.reshape(extents))

    return kernel


def _runs(box: Any, shape: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    """The box as runs of consecutive row-major indices: (first index, length), in order."""
    extents = [hi - lo for lo, hi in box]
    if 0 in extents:
        return
    strides = [prod(shape[a + 1 :]) for a in range(len(shape))]
    # Trailing axes that are whole make one run with the axis before them.
    inner = len(shape)
    while inner > 0 and extents[inner - 1] == shape[inner - 1]:
        inner -= 1
    head = max(inner - 1, 0)
    length = prod(extents[head:])
    base = sum(box[a][0] * strides[a] for a in range(head, len(shape)))
    for at in product(*(range(lo, hi) for lo, hi in box[:head])):
        yield base + sum(i * s for i, s in zip(at, strides)), length


#: As `kernels.CREATE`.
CREATE: dict[str, Callable[..., Block]] = {
    "random_bits": _created(_Slice.words_into),
    "random_normal": _created(_Slice.normal),
    "random_uniform": _created(_Slice.uniform),
}
