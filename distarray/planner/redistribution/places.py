"""Devices and their prime axes: who holds which tile.

A mesh axis of size 6 is two prime axes, 2 and 3 or 3 and 2; only whole prime axes are ever moved (Rink et al. 2021,
principle 1). Tables are kept per mesh.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice, product
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from distarray.planner.redistribution.problem import Axes
from distarray.sharding.prime import prime_factors

IntArray: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]

#: Orders of the primes of composite axes that are tried, all axes together.
MAX_ORDERS = 24


class PrimeAxis(NamedTuple):
    """A PrimeAxis is a prime factor of a mesh axis: the coordinate of device ``d`` along it is ``d // stride
    % size``.
    """

    stride: int
    size: int


class Places:
    """Places are the devices of a mesh, by the sizes of its axes."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        self.sizes = sizes
        self.n = prod(sizes)
        self.ids: IntArray = np.arange(self.n)
        self.strides = tuple([prod(sizes[a + 1 :]) for a in range(len(sizes))])
        self._coordinates: dict[PrimeAxis, IntArray] = {}
        choices = [islice(_orders(prime_factors(n)), MAX_ORDERS) for n in sizes]
        self.orders = tuple(islice(product(*choices), MAX_ORDERS))

    def primes(self, axes: Iterable[int], order: Sequence[tuple[int, ...]]) -> list[PrimeAxis]:
        """Return the prime axes of mesh axes, minor first, under one order of the primes of each axis."""
        found = []
        for a in axes:
            stride = self.strides[a]
            for p in order[a]:
                found.append(PrimeAxis(stride, p))
                stride *= p
        return found

    def coordinate(self, axis: PrimeAxis) -> IntArray:
        """Return the coordinate of every device along a prime axis."""
        found = self._coordinates.get(axis)
        if found is None:
            found = self._coordinates[axis] = self.ids // axis.stride % axis.size
        return found

    def index(self, axes: Iterable[PrimeAxis]) -> IntArray:
        """Return the number of the part that every device holds of a dimension that is cut over prime axes, minor
        first.
        """
        total: IntArray | None = None
        weight = 1
        for axis in axes:
            here = self.coordinate(axis)
            total = here if total is None else total + weight * here
            weight *= axis.size
        return np.zeros(self.n, np.int64) if total is None else total

    def tiles(self, axes: Axes) -> IntArray:
        """Return the base offset map of a type in units of tiles: an array (devices, dimensions)."""
        out = np.empty((self.n, len(axes)), np.int64)
        for i, names in enumerate(axes):
            out[:, i] = 0
            weight = 1
            for a in names:
                out[:, i] += weight * (self.ids // self.strides[a] % self.sizes[a])
                weight *= self.sizes[a]
        return out


def _orders(primes: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield the different orders of some primes, lexicographically.

    >>> list(_orders((2, 2, 3)))
    [(2, 2, 3), (2, 3, 2), (3, 2, 2)]
    """
    if not primes:
        yield ()
    for p in sorted(set(primes)):
        rest = list(primes)
        rest.remove(p)
        for order in _orders(rest):
            yield (p, *order)


@lru_cache(maxsize=64)
def places_of(sizes: tuple[int, ...]) -> Places:
    """Return the devices of a mesh; the same object for the same sizes."""
    return Places(sizes)
