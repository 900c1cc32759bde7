"""Generators of random arrays."""

from __future__ import annotations

from typing import Any

from distarray.composed.random_continuous import Continuous
from distarray.composed.random_discrete import Discrete
from distarray.composed.random_order import Order


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
