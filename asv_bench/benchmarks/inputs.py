"""Seeded inputs that are pure functions of the global row-major index.

They are equal for every system and every cut, and any subset can be recomputed to check a result. The generator is
splitmix64 on ``index + 1``, with a second odd constant that separates the seeds.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

__all__ = ["g", "g_at", "u", "u_at"]

Floats = NDArray[np.float64]


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
