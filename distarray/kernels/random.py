"""Kernels of random numbers that are made from the global row-major index alone.

An element is a function of its position and the key, nothing else. On the host work goes through slices that stay in
cache; words that slices leave open are decided together, many at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from distarray.kernels.namespaces import Block
from distarray.kernels.random_maps import SAMPLERS
from distarray.kernels.random_words import Indexed, Words, uniform_into, ziggurat
from distarray.kernels.threads import run_along, threads_for
from distarray.sharding.boxes import IndexRuns

#: Elements of one slice: on the host its words and scratch stay in cache, on a GPU it is a kernel's work.
SLICE, DEVICE_SLICE = 8_192, 1 << 22
#: Elements of a slice of samplers, which make many calls for each. Scratch of 128 KiB and more would be mapped from the
#: system and given back by every call: numbers from 0 to 9 then take five times as long.
SAMPLED_SLICE = 15_360
#: Words that are left open before they are decided.
OPEN = 1 << 14

#: (place in the block, words) of one slice after the other.
Slices = Iterator[tuple[slice, Words]]


def _words(xp: Any, slices: Slices, out: Block) -> None:
    for place, words in slices:
        out[place] = words


def _uniform(xp: Any, slices: Slices, out: Block) -> None:
    for place, words in slices:
        uniform_into(words, out[place])


def _normal(xp: Any, slices: Slices, out: Block) -> None:
    tables = ziggurat(xp)
    left: list[Any] = []
    seeds: list[Any] = []
    n_left = 0
    for place, words in slices:
        out[place], open_ = tables.try_once(words)
        left.append(open_ + place.start)
        seeds.append(words[open_])
        n_left += open_.shape[0]
        if n_left > OPEN:
            out[xp.concatenate(left)] = tables.decide(xp.concatenate(seeds))
            left, seeds, n_left = [], [], 0
    if left:
        out[xp.concatenate(left)] = tables.decide(xp.concatenate(seeds))


def _created(fill: Callable[[Any, Slices, Block], None], longest: int = SLICE) -> Callable[..., Block]:
    """Return a kernel that fills the block of a global box, slice by slice of the row-major index."""

    def kernel(backend: Any, box: Any, shape: tuple[int, ...], dtype: Any, params: Any, runtime: Any) -> Block:
        extents = tuple(hi - lo for lo, hi in box)
        # array_api_strict has no in-place arithmetic on words: numpy makes its blocks, which come from nowhere.
        xp = np if hasattr(backend.xp, "__array_api_strict_version__") else backend.xp
        out = backend.empty(extents, dtype) if xp is backend.xp else np.empty(extents, dtype)

        def filled(box: Any, out: Block) -> None:
            with np.errstate(over="ignore"):
                fill(xp, _slices(xp, box, shape, runtime, longest), out.reshape(-1))

        n = threads_for(out.size) if xp is np and extents else 1
        if n > 1:
            (lo, _), *others = box
            run_along(extents[0], n, lambda begin, end: filled(((lo + begin, lo + end), *others), out[begin:end]))
        else:
            filled(box, out)
        return backend.adopt(out)

    return kernel


def _drawn(sample: Callable[..., Any]) -> Callable[..., Block]:
    """Return a kernel of numbers with parameters that are the same for all elements; runtime: (key, *parameters)."""

    def kernel(backend: Any, box: Any, shape: tuple[int, ...], dtype: Any, params: Any, runtime: Any) -> Block:
        def fill(xp: Any, slices: Slices, out: Block) -> None:
            for place, words in slices:
                out[place] = sample(words, *runtime[1:])

        with np.errstate(all="ignore"):
            return _created(fill, SAMPLED_SLICE)(backend, box, shape, dtype, params, runtime[0])

    return kernel


def _slices(xp: Any, box: Any, shape: tuple[int, ...], key: int, longest: int) -> Slices:
    runs = IndexRuns.of(box, shape)
    n, length, done = len(runs), runs.length, 0
    if not n:
        return
    longest = min(longest if xp is np else DEVICE_SLICE, n * length)
    indexed = Indexed(xp, key, longest)
    if 2 * length > longest:
        for start in runs:
            for first in range(start, start + length, longest):
                words = indexed.words(first, min(longest, start + length - first))
                yield slice(done, done + words.size), words
                done += words.size
        return
    for begin in range(0, n, at_once := longest // length):
        words = indexed.words_of_runs(runs.starts(begin, min(begin + at_once, n), xp), length)
        yield slice(done, done + words.size), words
        done += words.size


#: As `tables.CREATE`.
CREATE: dict[str, Callable[..., Block]] = {
    "random_bits": _created(_words),
    "random_normal": _created(_normal),
    "random_uniform": _created(_uniform),
    **{f"drawn_{name}": _drawn(sample) for name, sample in SAMPLERS.items()},
}
