"""Streams of random arrays: what a seed is, which key a call has, and where what is drawn lives.

`Generator` is made of this class and of the families of distributions that stand on it.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from hashlib import blake2b
from typing import Any, Self, TypedDict

import numpy as np

from distarray.array.array import DistArray
from distarray.array.environment import TeamLike, environment, is_named, parse_pin
from distarray.array.out import into
from distarray.composed.random_parameters import Parameter, drawn_shape
from distarray.dtypes import as_dtype
from distarray.expr.expr import Environment, Expr
from distarray.ops import elementwise
from distarray.ops.random import drawn, random_bits, random_normal, random_uniform, sampled
from distarray.sharding.spec import ShardingLike
from distarray.types import DType, DTypeLike


class Where(TypedDict, total=False):
    """A Where says where what is drawn lives: the keywords of creators, which all methods of a generator take.

    Without a team and a device it lives where the first parameter that is an array does.
    """

    team: TeamLike
    device: str | None
    sharding: ShardingLike


#: Two threads that draw from one generator draw different arrays.
_counting = threading.Lock()


class RandomStreams:
    """RandomStreams are a seed, and the number of arrays that have been drawn from it.

    Parameters
    ----------
    seed
        An integer, a sequence of integers, or numpy's ``SeedSequence``. None: drawn from the system.
    """

    def __init__(self, seed: Any = None) -> None:
        self._entropy = secrets.randbits(128) if seed is None else _digest(_seed_text(seed))
        self._n_calls = 0

    def __repr__(self) -> str:
        return f"{type(self).__name__}(SplitMix64, call {self._n_calls})"

    @property
    def bit_generator(self) -> SplitMix64:
        """Return the source of the words: its ``state`` can be read, stored and set."""
        return SplitMix64(self)

    def spawn(self, n_children: int) -> list[Self]:
        """Return generators whose numbers have nothing in common with each other's or this one's."""
        halves = self._entropy & (2**64 - 1), self._entropy >> 64
        return [type(self)([*halves, self._key()]) for _ in range(n_children)]

    def _key(self) -> int:
        """Return the key of the next array."""
        with _counting:
            number = self._n_calls
            self._n_calls += 1
        return _digest(f"{self._entropy}:{number}")

    # ------------------------------------------------------------------------------------------- drawing

    def _draw(
        self, make: Callable[..., Any], shape: Any, dtype: DType | None, parameters: tuple[Parameter, ...], where: Where
    ) -> DistArray:
        unknown = set(where) - {"team", "device", "sharding"}
        if unknown:
            raise TypeError(f"unexpected keyword argument {min(unknown)!r}")
        team, device = where.get("team", "current"), where.get("device")
        beside = next((p for p in parameters if isinstance(p, DistArray)), None)
        if beside is not None:
            team = team if is_named(team) else beside.team
            device = beside.device if device is None else device
        env = environment(team, device)
        node = make(shape, self._key(), env) if dtype is None else make(shape, dtype, self._key(), env)
        pin = parse_pin(where.get("sharding"), None, node.shape, node.dtype, env)
        return DistArray._on(node.with_pin(pin))

    def _words(self, size: Any, where: Where, *parameters: Parameter) -> DistArray:
        return self._draw(random_bits, drawn_shape(size, *parameters), None, parameters, where)

    def _uniform(self, size: Any, where: Where, *parameters: Parameter) -> DistArray:
        """Return double precision numbers in [0, 1)."""
        return self._draw(random_uniform, drawn_shape(size, *parameters), np.dtype(np.float64), parameters, where)

    def _open_uniform(self, size: Any, where: Where, *parameters: Parameter) -> DistArray:
        """Return double precision numbers in (0, 1)."""
        return elementwise.maximum(self._uniform(size, where, *parameters), 2.0**-54)  # type: ignore[no-any-return]

    def _exponential(self, size: Any, where: Where, *parameters: Parameter) -> DistArray:
        """Return double precision exponential numbers of mean 1."""
        return -elementwise.log1p(-self._uniform(size, where, *parameters))  # type: ignore[no-any-return]

    def _normal(self, size: Any, where: Where, *parameters: Parameter) -> DistArray:
        """Return double precision normal numbers of mean 0 and deviation 1."""
        return self._draw(random_normal, drawn_shape(size, *parameters), np.dtype(np.float64), parameters, where)

    def _sampled(self, name: str, dtype: DTypeLike, size: Any, where: Where, *parameters: Parameter) -> DistArray:
        """Return numbers of a distribution of `ops.random.sampled`."""
        if all(isinstance(p, int | float) for p in parameters):

            def make(shape: Any, wanted: DType, key: int, env: Environment) -> Expr:
                return drawn(name, shape, wanted, key, parameters, env)

            return self._draw(make, drawn_shape(size), np.dtype(dtype), (), where)
        return sampled(name, dtype, self._words(size, where, *parameters), *parameters)  # type: ignore[no-any-return]

    def _into(
        self, out: Any, size: Any, dtype: DTypeLike, draw: Callable[[Any, DType], DistArray], *parameters: Parameter
    ) -> Any:
        """Return what `draw` makes of (size, dtype), floating, written into `out` if there is one, which then has the
        size.
        """
        wanted = as_dtype(dtype)
        if wanted not in (np.float64, np.float32):
            raise TypeError(f"Unsupported dtype {wanted!r}: random numbers are float64 or float32")
        if out is not None:
            if getattr(out, "dtype", wanted) != wanted:
                raise TypeError(f"Supplied output array has the wrong type. Expected {wanted.name}, got {out.dtype}")
            if size is not None and drawn_shape(size) != getattr(out, "shape", None):
                raise ValueError("size must match out.shape when used together")
            size = getattr(out, "shape", None)
        return into(out, draw(size, wanted))


class SplitMix64:
    """SplitMix64 is what numpy calls a bit generator: the words of a generator, as a hash of seed, call and position.

    Attributes
    ----------
    state
        A dictionary of plain numbers, as numpy's generators have it; setting it brings the generator back.
    """

    def __init__(self, streams: RandomStreams) -> None:
        self._streams = streams

    def __repr__(self) -> str:
        return "SplitMix64"

    @property
    def state(self) -> dict[str, Any]:
        own = self._streams
        return {"bit_generator": "SplitMix64", "state": {"entropy": own._entropy, "calls": own._n_calls}}

    @state.setter
    def state(self, value: dict[str, Any]) -> None:
        if value.get("bit_generator") != "SplitMix64":
            raise ValueError("state must be for a SplitMix64 PRNG")
        self._streams._entropy = int(value["state"]["entropy"])
        self._streams._n_calls = int(value["state"]["calls"])


def _digest(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=16).digest(), "little")


def _seed_text(seed: Any) -> str:
    """Return a seed as text; an integer and the sequence of it alone are one seed."""
    if isinstance(seed, np.random.SeedSequence):
        seed = seed.generate_state(4, np.uint64)
    if hasattr(seed, "__dx_node__"):
        seed = np.asarray(seed)
    words = seed.reshape(-1).tolist() if isinstance(seed, np.ndarray) else seed
    words = list(words) if isinstance(words, list | tuple | range) else [words]
    if not all(isinstance(w, int | np.integer) for w in words):
        raise TypeError(f"seed={seed!r} is neither an integer nor a sequence of integers")
    if any(w < 0 for w in words):
        raise ValueError("expected non-negative integer")
    return ",".join(str(int(w)) for w in words)
