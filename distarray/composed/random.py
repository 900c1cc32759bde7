"""Generators of random arrays: numpy's interface of today, and its older one, behind ``dx.random.rand`` and others."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np

from distarray.array.array import DistArray
from distarray.composed.placing import Where
from distarray.composed.random_continuous import Continuous
from distarray.composed.random_discrete import Discrete
from distarray.composed.random_order import Order
from distarray.types import DTypeLike


class Generator(Continuous, Discrete, Order):
    """A Generator makes random arrays, each drawn from the next stream of a seed.

    The methods have the signatures of numpy's ``Generator`` plus ``team=``, ``device=`` and ``sharding=``. An element
    is a function of the seed, the number of the call and its position: it does not depend on where it is made.

    Parameters
    ----------
    seed
        What numpy's ``SeedSequence`` takes, or one: an integer or a sequence of integers. None: drawn from the system.
        Of a generator or bit generator of numpy's, the next 128 bits. A `bit_generator` of ours is shared.

    Notes
    -----
    The words are those of splitmix64 at the position, keyed by seed and call. Not for cryptography. Parameters are
    numbers, host arrays or DistArrays, and broadcast. Those that are known at the call are checked there, with
    numpy's errors; the values of a DistArray that is not computed, or not here, are seen when the numbers are computed.
    """


def default_rng(seed: Any = None) -> Generator:
    """Return a generator of random arrays.

    Parameters
    ----------
    seed
        As for `Generator`, or a Generator, which is returned itself.

    Examples
    --------
    >>> import distarray as dx
    >>> rng = dx.random.default_rng(1)
    >>> rng.random((1000, 1000)).shape
    (1000, 1000)
    """
    if isinstance(seed, Generator):
        return seed
    return Generator(seed)


class RandomState(Generator):
    """A RandomState is a `Generator` that has the methods of numpy's older one too.

    Its numbers do not depend on the cut, and are not those of numpy's Mersenne Twister.

    Parameters
    ----------
    seed
        As for `Generator`; integers are below ``2**32``, and their sequences have one axis, as numpy's takes them.

    Examples
    --------
    >>> import distarray as dx
    >>> state = dx.random.RandomState(1)
    >>> state.randint(0, 10, size=(2, 3)).shape
    (2, 3)
    """

    def __init__(self, seed: Any = None) -> None:
        if hasattr(seed, "__dx_node__"):
            seed = np.asarray(seed)
        if isinstance(seed, int | np.integer | list | tuple | range | np.ndarray):
            np.random.RandomState(seed)  # refuses what it refuses
        super().__init__(seed)

    def seed(self, seed: Any = None) -> None:
        """Begin again, with the numbers of this seed; without one, of a seed that is drawn from the system."""
        self.set_state(RandomState(seed).get_state())

    def get_state(self, legacy: bool = False) -> dict[str, Any]:
        """Return the state as a dictionary of plain numbers, which `set_state` takes. `legacy` is numpy's: there is no
        other form.
        """
        return self.bit_generator.state

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue where another state was, or this one when it was asked for its state."""
        self.bit_generator.state = state

    def rand(self, *shape: int, **where: Unpack[Where]) -> DistArray:
        """Return uniform numbers in [0, 1) of a shape; one number without it."""
        return self.random(shape or None, **where)

    def randn(self, *shape: int, **where: Unpack[Where]) -> DistArray:
        """Return standard normal numbers of a shape; one number without it."""
        return self.standard_normal(shape or None, **where)

    def random_sample(self, size: Any = None, **where: Unpack[Where]) -> DistArray:
        """Return uniform numbers in [0, 1)."""
        return self.random(size, **where)

    def randint(
        self, low: Any, high: Any = None, size: Any = None, dtype: DTypeLike = int, **where: Unpack[Where]
    ) -> DistArray:
        """Return uniform integers from `low` up to, without, `high`, or from 0 up to `low`."""
        return self.integers(low, high, size, dtype, **where)

    def random_integers(self, low: Any, high: Any = None, size: Any = None, **where: Unpack[Where]) -> DistArray:
        """Return uniform integers from `low` up to `high`, or from 1 up to `low`, both included."""
        return self.integers(1 if high is None else low, low if high is None else high, size, endpoint=True, **where)

    def tomaxint(self, size: Any = None, **where: Unpack[Where]) -> DistArray:
        """Return uniform integers from 0 to the largest of int64."""
        return self.integers(0, 2**63 - 1, size, endpoint=True, **where)


#: Whose methods are the functions of ``distarray.random``.
process_state = RandomState()
