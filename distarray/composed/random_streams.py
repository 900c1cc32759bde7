"""Streams of random arrays: what a seed is, which key a call has, and where what is drawn lives.

`Generator` is made of this class and of the families of distributions that stand on it.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Self

import numpy as np
from numpy.random.bit_generator import ISeedSequence

from distarray.arguments import count
from distarray.array.array import DistArray
from distarray.array.environment import environment, is_named, parse_pin
from distarray.composed.placing import Where
from distarray.composed.random_parameters import Parameter, drawn_shape
from distarray.dtypes import as_dtype
from distarray.expr.op import Op
from distarray.forks import free_in_child
from distarray.ops import elementwise
from distarray.ops.random import DRAWN, RANDOM_BITS, RANDOM_NORMAL, RANDOM_UNIFORM, drawn, sampled
from distarray.types import DType, DTypeLike

#: Two threads that draw from one generator draw different arrays.
_counting = free_in_child(threading.Lock())


class SplitMix64:
    """SplitMix64 is what numpy calls a bit generator: a seed, and the number of arrays that have been drawn from it.

    The words of an array are a hash of the seed, this number and the position.

    Parameters
    ----------
    seed
        What numpy's ``SeedSequence`` takes, or one: an integer or a sequence of integers. None: drawn from the system.
        Of a generator or bit generator of numpy's, the next 128 bits.

    Attributes
    ----------
    entropy
        The seed, an integer below ``2**128``.
    n_calls
        Arrays drawn so far.
    """

    def __init__(self, seed: Any = None) -> None:
        self.entropy = secrets.randbits(128) if seed is None else _digest(",".join(map(str, _seed_words(seed))))
        self.n_calls = 0

    def __repr__(self) -> str:
        return "SplitMix64"

    @property
    def state(self) -> dict[str, Any]:
        """Return a dictionary of plain numbers, as numpy's have it; setting it brings the stream back."""
        return {"bit_generator": "SplitMix64", "state": {"entropy": self.entropy, "calls": self.n_calls}}

    @state.setter
    def state(self, value: dict[str, Any]) -> None:
        if not isinstance(value, Mapping):
            raise TypeError(f"state must be a dict that names its bit generator, not a {type(value).__name__}")
        if value.get("bit_generator") != "SplitMix64":
            raise ValueError("state must be for a SplitMix64 PRNG")
        self.entropy, self.n_calls = int(value["state"]["entropy"]), int(value["state"]["calls"])

    def spawn(self, n_children: int) -> list[SplitMix64]:
        """Return streams that have nothing in common with each other or with this one."""
        halves = self.entropy & (2**64 - 1), self.entropy >> 64
        return [SplitMix64([*halves, self.key()]) for _ in range(count(n_children, "n_children"))]

    def key(self) -> int:
        """Return the key of the next array."""
        with _counting:
            number = self.n_calls
            self.n_calls += 1
        return _digest(f"{self.entropy}:{number}")


def _digest(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=16).digest(), "little")


def _seed_words(seed: Any) -> list[int]:
    """Return a seed as integers; one and the sequence of it alone are the same.

    Raises
    ------
    TypeError, ValueError
        As numpy's ``SeedSequence``: if `seed` is neither an integer nor a sequence of integers, or negative.
    """
    if isinstance(seed, np.random.BitGenerator):
        seed = np.random.Generator(seed)
    if isinstance(seed, np.random.Generator | np.random.RandomState):
        seed = int.from_bytes(seed.bytes(16), "little")
    if isinstance(seed, ISeedSequence):
        seed = seed.generate_state(4, np.uint64)
    if hasattr(seed, "__dx_node__") or isinstance(seed, np.ndarray):
        seed = np.asarray(seed).tolist()  # of numbers, too: results of reductions are arrays
    np.random.SeedSequence(seed)  # refuses what it refuses
    return [int(word) for word in np.asarray(seed, object).flat]


class RandomStreams:
    """RandomStreams draw arrays from the stream of a seed.

    Parameters
    ----------
    seed
        What `SplitMix64` takes, or one, which is shared.
    """

    def __init__(self, seed: Any = None) -> None:
        self._bit_generator = seed if isinstance(seed, SplitMix64) else SplitMix64(seed)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(SplitMix64, call {self._bit_generator.n_calls})"

    @property
    def bit_generator(self) -> SplitMix64:
        """Return the source of the words: its ``state`` can be read, stored and set."""
        return self._bit_generator

    def spawn(self, n_children: int) -> list[Self]:
        """Return generators whose numbers have nothing in common with each other's or this one's."""
        return [type(self)(child) for child in self.bit_generator.spawn(n_children)]

    # ------------------------------------------------------------------------------------------- drawing

    def _draw(
        self,
        op: Op,
        shape: Any,
        dtype: DTypeLike,
        parameters: tuple[Parameter, ...],
        where: Where,
        numbers: tuple[Parameter, ...] = (),
    ) -> DistArray:
        """Return what an operation draws that takes these `numbers`; where no team and device are said, it lives where
        the first array of `parameters` does.
        """
        unknown = set(where) - {"team", "device", "sharding"}
        if unknown:
            raise TypeError(
                f"unexpected keyword argument {min(unknown)!r}; team=, device= and sharding= say where and how "
                "an array lies"
            )
        team, device = where.get("team", "current"), where.get("device")
        beside = next((p for p in parameters if isinstance(p, DistArray)), None)
        if beside is not None:
            team = team if is_named(team) else beside.team
            device = beside.device if device is None else device
        env = environment(team, device)
        node = drawn(op, shape, dtype, self._bit_generator.key(), env, numbers)
        pin = parse_pin(where.get("sharding"), None, node.shape, node.dtype, env)
        return DistArray._on(node.with_pin(pin))

    def _words(self, size: Any, where: Where, *parameters: Parameter) -> DistArray:
        return self._draw(RANDOM_BITS, drawn_shape(size, *parameters), np.uint64, parameters, where)

    def _uniform(self, size: Any, where: Where, *parameters: Parameter) -> DistArray:
        """Return double precision numbers in [0, 1)."""
        return self._draw(RANDOM_UNIFORM, drawn_shape(size, *parameters), np.float64, parameters, where)

    def _open_uniform(self, size: Any, where: Where, *parameters: Parameter) -> DistArray:
        """Return double precision numbers in (0, 1)."""
        return elementwise.maximum(self._uniform(size, where, *parameters), 2.0**-54)

    def _exponential(self, size: Any, where: Where, *parameters: Parameter) -> DistArray:
        """Return double precision exponential numbers of mean 1."""
        return -elementwise.log1p(-self._uniform(size, where, *parameters))

    def _normal(self, size: Any, where: Where, *parameters: Parameter) -> DistArray:
        """Return double precision normal numbers of mean 0 and deviation 1."""
        return self._draw(RANDOM_NORMAL, drawn_shape(size, *parameters), np.float64, parameters, where)

    def _sampled(self, name: str, dtype: DTypeLike, size: Any, where: Where, *parameters: Parameter) -> DistArray:
        """Return numbers of a distribution of `ops.random.sampled`."""
        if all(isinstance(p, int | float) for p in parameters):
            return self._draw(DRAWN[name], drawn_shape(size), dtype, (), where, parameters)
        return sampled(name, dtype, self._words(size, where, *parameters), *parameters)


def size_and_dtype(size: Any, dtype: DTypeLike, out: Any) -> tuple[Any, DType]:
    """Return the size, that of `out` if there is one, and the dtype of floating numbers that are to be drawn."""
    wanted = as_dtype(dtype)
    if wanted not in (np.float64, np.float32):
        raise TypeError(f"Unsupported dtype {wanted!r}: random numbers are float64 or float32")
    if out is None:
        return size, wanted
    if getattr(out, "dtype", wanted) != wanted:
        raise TypeError(f"Supplied output array has the wrong type. Expected {wanted.name}, got {out.dtype}")
    shape = getattr(out, "shape", None)
    if size is not None and drawn_shape(size) != shape:
        raise ValueError("size must match out.shape when used together")
    return shape, wanted
