"""Kernels of random numbers: splitmix64 of the global row-major index, and Box-Muller on two of its streams.

An element is a function of its position and the key, nothing else. Work goes through slices that stay in cache.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from distarray.sharding.boxes import runs

__all__ = ["CREATE"]

Block = Any  # of any backend
Words = Any  # an array of 64-bit words, of numpy or cupy

#: Elements of one slice: its words, floats and scratch stay in cache.
SLICE = 16_384

_STEP = 0x9E3779B97F4A7C15
_STREAM = 0xD1B54A32D192ED03
_MIX = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_MASK = 2**64 - 1


def _words(index: Words, key: int) -> Words:
    """64 random bits for each index: splitmix64 (Steele, Lea and Flood 2014). Overwrites `index`."""
    word = index.dtype.type
    index += word(1)
    index *= word(_STEP)
    index += word(key * _STREAM & _MASK)
    for shift, factor in ((30, _MIX[0]), (27, _MIX[1])):
        index ^= index >> word(shift)
        index *= word(factor)
    index ^= index >> word(31)
    return index


def _uniform(xp: Any, index: Words, key: int, dtype: Any) -> Block:
    words = _words(index, key)
    if dtype == np.float32:
        return (words >> words.dtype.type(40)).astype(np.float32) * np.float32(2.0**-24)
    return (words >> words.dtype.type(11)).astype(np.float64) * 2.0**-53


def _normal(xp: Any, index: Words, key: int, dtype: Any) -> Block:
    radius = xp.sqrt(-2.0 * xp.log1p(-_uniform(xp, index.copy(), 2 * key, np.float64)))
    angle = 2.0 * np.pi * _uniform(xp, index, 2 * key + 1, np.float64)
    return (radius * xp.cos(angle)).astype(dtype)


def _bits(xp: Any, index: Words, key: int, dtype: Any) -> Block:
    return _words(index, key)


def _created(values: Callable[[Any, Words, int, Any], Block]) -> Callable[..., Block]:
    """A kernel that fills the block of a global box from the row-major index of each element."""

    def kernel(backend: Any, box: Any, shape: tuple[int, ...], dtype: Any, params: Any, runtime: Any) -> Block:
        extents = tuple(hi - lo for lo, hi in box)
        # On strict, which has no in-place arithmetic on words, numpy makes the block: it comes from nowhere.
        xp = np if hasattr(backend.xp, "__array_api_strict_version__") else backend.xp
        out = xp.empty(prod(extents), dtype)
        key: int = runtime
        done = 0
        with np.errstate(over="ignore"):
            for start, length in runs(box, shape):
                for offset in range(0, length, SLICE):
                    n = min(SLICE, length - offset)
                    first = start + offset
                    index = xp.arange(first, first + n, dtype=np.uint64)
                    out[done : done + n] = values(xp, index, key, dtype)
                    done += n
        block = out.reshape(extents)
        return backend.adopt(block)

    return kernel


#: As `kernels.CREATE`.
CREATE: dict[str, Callable[..., Block]] = {
    "random_bits": _created(_bits),
    "random_normal": _created(_normal),
    "random_uniform": _created(_uniform),
}
