"""Random words, and numbers that are functions of single words: uniform and normal ones.

A word is 64 random bits. The words of an array are a hash of the global row-major index, keyed by 128 bits: that of
splitmix64 (Steele, Lea and Flood 2014), with the second half of the key between its two rounds. A word is also the seed
of a stream of its own (`word`): methods that try several times draw from it, so what one element takes does not show
in another. Everything runs on numpy and on cupy (`xp`); there is no state.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

Words = Any  # a vector of uint64, of numpy or cupy
Floats = Any  # a vector of float64, of numpy or cupy

_STEP = 0x9E3779B97F4A7C15
_STREAM = 0xD1B54A32D192ED03
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_S11, _S12, _S27, _S30, _S31 = (np.uint64(n) for n in (11, 12, 27, 30, 31))
_MASK = 2**64 - 1


def namespace(words: Words) -> Any:
    """Return the module whose array `words` is."""
    if isinstance(words, np.ndarray | np.generic):
        return np
    import cupy  # whoever has such an array has it

    return cupy


class Indexed:
    """An Indexed is the words of indices under one key, of at most `longest` at a time."""

    def __init__(self, xp: Any, key: int, longest: int) -> None:
        # What the step adds from one index to the next; all arithmetic wraps around.
        self._steps = xp.arange(longest, dtype=np.uint64) * np.uint64(_STEP)
        self._offset = (key & _MASK) * _STREAM + _STEP
        self._key = np.uint64(key >> 64 & _MASK)

    def words(self, first: int, n: int) -> Words:
        """Return words of the indices ``first .. first + n - 1``, in a new array."""
        # Between the rounds: added to the index alone, the key would make all arrays windows of one sequence.
        return _mixed(self._steps[:n] + np.uint64((first * _STEP + self._offset) & _MASK), self._key)

    def words_of_runs(self, starts: Any, n: int) -> Words:
        """Return words of `n` consecutive indices from each of `starts` on, one after the other in a new array."""
        at = starts.astype(np.uint64) * np.uint64(_STEP) + np.uint64(self._offset & _MASK)
        return _mixed((at[:, None] + self._steps[:n]).reshape(-1), self._key)


def word(seeds: Words, k: int) -> Words:
    """Return word `k` of the stream that each of `seeds` begins: splitmix64."""
    return _mixed(seeds + np.uint64((k + 1) * _STEP & _MASK))


def _mixed(z: Words, key: np.uint64 | None = None) -> Words:
    """Return words mixed by the two rounds of splitmix64, in their own memory; `key` comes between the rounds."""
    z ^= z >> _S30
    z *= _FIRST
    if key is not None:
        z ^= key
    z ^= z >> _S27
    z *= _SECOND
    z ^= z >> _S31
    return z


def uniform(words: Words) -> Floats:
    """Return numbers in [0, 1): multiples of ``2**-53``."""
    found = namespace(words).empty(words.shape, np.float64)
    uniform_into(words, found)
    return found


def uniform_into(words: Words, out: Any) -> None:
    """Write numbers in [0, 1): multiples of the smallest step that the dtype of `out` has below 1."""
    digits = 24 if out.dtype == np.float32 else 53
    out[...] = words >> np.uint64(64 - digits)
    out *= out.dtype.type(2.0**-digits)


def open_uniform(words: Words) -> Floats:
    """Return numbers in (0, 1): odd multiples of ``2**-53``, whose logarithms are finite and below zero."""
    z = (words >> _S12).astype(np.float64)
    z += 0.5
    z *= 2.0**-52
    return z


class Ziggurat(NamedTuple):
    """A Ziggurat is layers of equal area that cover the right half of the normal density (Marsaglia and Tsang 2000,
    Doornik 2005).

    Parameters
    ----------
    width
        By layer and sign (256 and up: the left half): what the 53 bits of a word are multiplied by.
    inside
        By layer and sign: words below it lie under the density whatever their height.
    low, high
        By layer: the density at its lower and at its upper end.
    """

    width: Floats
    inside: Any  # uint64
    low: Floats
    high: Floats

    def try_once(self, words: Words) -> tuple[Floats, Any]:
        """Return numbers, and the positions of those (1.2 %) whose word has not decided."""
        layer = (words & np.uint64(511)).view(np.int64)
        z = words >> _S11
        x = z.astype(np.float64)
        x *= self.width[layer]
        return x, namespace(words).nonzero(z >= self.inside[layer])[0]

    def decide(self, words: Words) -> Floats:
        """Return the numbers of words that `try_once` has left open."""
        xp = namespace(words)
        found = xp.empty(words.shape, np.float64)
        at = xp.arange(words.shape[0])
        while at.shape[0]:
            layer = (words & np.uint64(255)).view(np.int64)
            x = (words >> _S11).astype(np.float64) * self.width[(words & np.uint64(511)).view(np.int64)]
            height = self.low[layer] + uniform(word(words, 0)) * (self.high[layer] - self.low[layer])
            is_tail = layer == 0
            ends = is_tail | (height < xp.exp(-0.5 * x * x))
            value = xp.where(is_tail, xp.copysign(_tail(words), x), x)
            found[at[ends]] = value[ends]
            # The others begin anew with another word; most of them are decided by it.
            words, at = word(words[~ends], 1), at[~ends]
            x, open_ = self.try_once(words)
            found[at] = x
            words, at = words[open_], at[open_]
        return found


#: Where the tail begins, and the area of a layer of 256.
_RIGHT, _AREA = 3.6541528853610088, 0.00492867323399


def _tail(seeds: Words) -> Floats:
    """Return normal numbers above `_RIGHT` (Marsaglia 1964)."""
    xp = namespace(seeds)
    found = xp.empty(seeds.shape, np.float64)
    at, k = xp.arange(seeds.shape[0]), 2
    while at.shape[0]:
        x = xp.sqrt(_RIGHT**2 - 2.0 * xp.log(open_uniform(word(seeds, k))))
        ends = uniform(word(seeds, k + 1)) * x < _RIGHT
        found[at[ends]] = x[ends]
        seeds, at, k = seeds[~ends], at[~ends], k + 2
    return found


@lru_cache(maxsize=8)
def ziggurat(xp: Any) -> Ziggurat:
    """Return the tables of the normal distribution, as arrays of `xp`."""
    ends = [_AREA / np.exp(-0.5 * _RIGHT**2), _RIGHT]
    for _ in range(254):
        ends.append(np.sqrt(-2.0 * np.log(_AREA / ends[-1] + np.exp(-0.5 * ends[-1] ** 2))))
    x = np.array([*ends, 0.0])
    density = np.exp(-0.5 * x * x)
    inside = np.floor(x[1:] / x[:-1] * 2.0**53).astype(np.uint64)
    width = x[:-1] * 2.0**-53
    return Ziggurat(
        xp.asarray(np.concatenate([width, -width])),
        xp.asarray(np.concatenate([inside, inside])),
        xp.asarray(density[:-1]),
        xp.asarray(density[1:]),
    )


def normal(words: Words) -> Floats:
    """Return normal numbers of mean 0 and deviation 1, each a function of its word."""
    tables = ziggurat(namespace(words))
    x, at = tables.try_once(words)
    if at.shape[0]:
        x[at] = tables.decide(words[at])
    return x
