"""Generators of random arrays."""

from __future__ import annotations

import operator
import secrets
from hashlib import blake2b
from typing import Any

import numpy as np

from distarray.array.array import DistArray
from distarray.array.environment import TeamLike, environment, parse_pin
from distarray.array.views import as_distarray
from distarray.dtypes import as_dtype
from distarray.ops import elementwise, sorting
from distarray.ops.random import random_bits, random_normal, random_uniform
from distarray.sharding.spec import ShardingLike
from distarray.types import DTypeLike

__all__ = ["Generator", "default_rng"]


def default_rng(seed: Any = None) -> Generator:
    """A generator of random arrays.

    Parameters
    ----------
    seed
        An integer, a sequence of integers, or a Generator, which is returned itself. None: drawn from the system.

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


class Generator:
    """Random arrays, each drawn from the next stream of a seed.

    The methods have the signatures of numpy's ``Generator`` plus ``team=``, ``device=`` and ``sharding=``. An element
    is a function of the seed, the number of the call and its position: it does not depend on where it is made.

    Notes
    -----
    The numbers are splitmix64 of the position, keyed by seed and call. Not for cryptography.
    """

    def __init__(self, seed: Any = None) -> None:
        if seed is None:
            self._entropy = secrets.randbits(128)
        else:
            words = np.asarray(seed)
            if words.dtype.kind not in "iu" and not isinstance(seed, int):
                raise TypeError(f"seed={seed!r} is neither an integer nor a sequence of integers")
            if any(int(w) < 0 for w in words.reshape(-1).tolist()):
                raise ValueError("expected non-negative integer")
            # An integer and the sequence of it alone are one seed.
            text = ",".join(map(str, words.reshape(-1).tolist()))
            self._entropy = int.from_bytes(blake2b(text.encode(), digest_size=16).digest(), "little")
        self._n_calls = 0

    def __repr__(self) -> str:
        return f"Generator(splitmix64, call {self._n_calls})"

    def spawn(self, n_children: int) -> list[Generator]:
        """Generators whose numbers have nothing in common with each other's or this one's."""
        halves = self._entropy & (2**63 - 1), self._entropy >> 64
        return [default_rng([*halves, self._key()]) for _ in range(n_children)]

    def _key(self) -> int:
        text = f"{self._entropy}:{self._n_calls}"
        self._n_calls += 1
        return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little") >> 1

    def _draw(
        self, make: Any, size: Any, dtype: DTypeLike, team: TeamLike, device: str | None, sharding: ShardingLike
    ) -> DistArray:
        env = environment(team, device)
        shape = () if size is None else size
        args = (shape, self._key(), env) if dtype is None else (shape, dtype, self._key(), env)
        node = make(*args)
        node.pin = parse_pin(sharding, None, node.shape, node.dtype, env)
        return DistArray._on(node)

    # ------------------------------------------------------------------------------------------ continuous

    def random(
        self,
        size: Any = None,
        dtype: DTypeLike = np.float64,
        out: None = None,
        *,
        team: TeamLike = "current",
        device: str | None = None,
        sharding: ShardingLike = None,
    ) -> DistArray:
        """Uniform numbers in [0, 1), of double or single precision."""
        return self._draw(random_uniform, size, _floating(dtype), team, device, sharding)

    def standard_normal(
        self,
        size: Any = None,
        dtype: DTypeLike = np.float64,
        out: None = None,
        *,
        team: TeamLike = "current",
        device: str | None = None,
        sharding: ShardingLike = None,
    ) -> DistArray:
        """Normal numbers of mean 0 and deviation 1."""
        return self._draw(random_normal, size, _floating(dtype), team, device, sharding)

    def uniform(self, low: Any = 0.0, high: Any = 1.0, size: Any = None, **where: Any) -> DistArray:
        """Uniform numbers in ``[low, high)``."""
        return low + (high - low) * self.random(_size(size, low, high), **where)  # type: ignore[no-any-return]

    def normal(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None, **where: Any) -> DistArray:
        """Normal numbers of mean `loc` and deviation `scale`."""
        return loc + scale * self.standard_normal(_size(size, loc, scale), **where)  # type: ignore[no-any-return]

    def lognormal(self, mean: Any = 0.0, sigma: Any = 1.0, size: Any = None, **where: Any) -> DistArray:
        """The exponential of normal numbers."""
        return elementwise.exp(self.normal(mean, sigma, size, **where))  # type: ignore[no-any-return]

    def standard_exponential(
        self, size: Any = None, dtype: DTypeLike = np.float64, method: str = "inv", out: None = None, **where: Any
    ) -> DistArray:
        """Exponential numbers of mean 1, by inversion."""
        return -elementwise.log1p(-self.random(size, dtype, **where))  # type: ignore[no-any-return]

    def exponential(self, scale: Any = 1.0, size: Any = None, **where: Any) -> DistArray:
        """Exponential numbers of mean `scale`."""
        return scale * self.standard_exponential(_size(size, scale), **where)  # type: ignore[no-any-return]

    def logistic(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None, **where: Any) -> DistArray:
        """Logistic numbers, by inversion."""
        u = self.random(_size(size, loc, scale), **where)
        return loc + scale * (elementwise.log(u) - elementwise.log1p(-u))  # type: ignore[no-any-return]

    # --------------------------------------------------------------------------------------------- discrete

    def integers(
        self,
        low: Any,
        high: Any = None,
        size: Any = None,
        dtype: DTypeLike = np.int64,
        endpoint: bool = False,
        *,
        team: TeamLike = "current",
        device: str | None = None,
        sharding: ShardingLike = None,
    ) -> DistArray:
        """Uniform integers from `low` up to, without, `high`, or from 0 up to `low`; with `high` if `endpoint`.

        Raises
        ------
        ValueError
            If there is no such integer, or a bound does not fit the dtype.
        """
        if high is None:
            low, high = 0, low
        start, stop = operator.index(low), operator.index(high) + bool(endpoint)
        wanted = as_dtype(dtype)
        if wanted.kind not in "biu":
            raise TypeError(f"Unsupported dtype {wanted!r} for integers")
        limits = (0, 1) if wanted.kind == "b" else (int(np.iinfo(wanted).min), int(np.iinfo(wanted).max))
        if start < limits[0]:
            raise ValueError(f"low is out of bounds for {wanted.name}")
        if stop - 1 > limits[1]:
            raise ValueError(f"high is out of bounds for {wanted.name}")
        if start >= stop:
            raise ValueError("low >= high")
        bits = self._draw(random_bits, size, None, team, device, sharding)
        n = stop - start
        # Below n of 2**64 numbers are drawn once too often: no one will see it.
        drawn = bits if n == 2**64 else bits % n
        if wanted.kind == "u":
            return (drawn + start).astype(wanted)  # type: ignore[no-any-return]
        # Two's complement: adding a negative start is adding its remainder.
        return (drawn + start % 2**64).astype(np.int64).astype(wanted)  # type: ignore[no-any-return]

    def choice(
        self, a: Any, size: Any = None, replace: bool = True, p: Any = None, axis: int = 0, shuffle: bool = True
    ) -> DistArray:
        """Elements of `a`, or of ``range(a)``, drawn with or without putting back, with probabilities `p` if given."""
        from distarray.ops.indexing import take

        is_range = isinstance(a, int | np.integer)
        n = int(a) if is_range else as_distarray(a).shape[axis]
        count = int(np.prod(() if size is None else size, dtype=object))
        if p is not None:
            if not replace:
                raise ValueError("choice: p= without replacement is not supported; draw with replace=True")
            weights = np.asarray(p, np.float64)
            if weights.shape != (n,) or (weights < 0).any() or abs(weights.sum() - 1) > 1e-8:
                is_size = weights.shape == (n,)
                raise ValueError("probabilities do not sum to 1" if is_size else "a and p must have same size")
            edges = np.cumsum(weights)
            u = self.random(size)
            at: Any = sorting.searchsorted(as_distarray(edges / edges[-1]), u.ravel(), side="right").reshape(u.shape)
        elif replace:
            at = self.integers(n, size=size)
        else:
            if count > n:
                raise ValueError("Cannot take a larger sample than population when replace is False")
            at = self.permutation(n)[:count].reshape(() if size is None else size)
        if is_range:
            return at  # type: ignore[no-any-return]
        return take(as_distarray(a), at, axis=axis)  # type: ignore[no-any-return]

    def permutation(self, x: Any, axis: int = 0) -> DistArray:
        """``range(x)`` or the slices of `x` along `axis` in random order."""
        from distarray.ops.indexing import take

        if isinstance(x, int | np.integer):
            return sorting.argsort(self.random(operator.index(x)))  # type: ignore[no-any-return]
        x = as_distarray(x)
        return take(x, sorting.argsort(self.random(x.shape[axis])), axis=axis)  # type: ignore[no-any-return]

    def shuffle(self, x: DistArray, axis: int = 0) -> None:
        """Bring the slices of `x` along `axis` into random order, in place."""
        x[...] = self.permutation(x, axis)


def _floating(dtype: DTypeLike) -> Any:
    wanted = as_dtype(dtype)
    if wanted not in (np.float64, np.float32):
        raise TypeError(f"Unsupported dtype {wanted!r}: random numbers are float64 or float32")
    return wanted


def _size(size: Any, *parameters: Any) -> Any:
    """The shape of what is drawn: that of the parameters unless said."""
    if size is not None:
        return size
    return np.broadcast_shapes(*(p.shape if hasattr(p, "shape") else np.shape(p) for p in parameters))
