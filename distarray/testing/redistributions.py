"""Redistribution problems drawn at random: what tests and benchmarks of plans share."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from distarray.sharding.mesh import Mesh
from distarray.sharding.sharding import Sharding

__all__ = ["FAMILIES", "Case", "family", "small_cases"]

#: Sizes of the mesh axes of each family.
FAMILIES: dict[str, tuple[tuple[int, ...], ...]] = {
    "A": ((2, 2, 2),),
    "B": ((4, 6),),
    "C": ((4, 2, 4),),
    "D": ((8, 8),),
    "E": ((2, 3, 5),),
    "F": ((3, 5, 7), (8, 4, 4), (12, 12), (6, 6, 6), (6, 10, 4), (16, 16), (8, 8, 8), (16, 32)),
}
_SMALL = (*(FAMILIES[f][0] for f in "ABCDE"), (3, 5), (12,), (6, 6), (9, 2), (2, 2, 2, 2))
_NAMES = "abcdefgh"


class Case(NamedTuple):
    """A Case is a problem: the shape of an array, how it lies, how it shall lie."""

    shape: tuple[int, ...]
    src: Sharding
    dst: Sharding


def _types(rng: random.Random, sizes: tuple[int, ...], rank: int) -> tuple[tuple[int, ...], ...]:
    axes = list(range(len(sizes)))
    rng.shuffle(axes)
    dims: list[list[int]] = [[] for _ in range(rank)]
    for a in axes:
        if rng.random() >= 1 / (rank + 1):
            dims[rng.randrange(rank)].append(a)
    return tuple(map(tuple, dims))


def _sharding(sizes: tuple[int, ...], dims: Sequence[Sequence[int]]) -> Sharding:
    mesh = Mesh(tuple(_NAMES[: len(sizes)]), sizes)
    return Sharding(mesh, tuple([tuple([_NAMES[a] for a in axes]) for axes in dims]))


def _pair(rng: random.Random, sizes: tuple[int, ...], rank: int) -> Any:
    while True:
        src, dst = _types(rng, sizes, rank), _types(rng, sizes, rank)
        if src != dst:
            counts = [[math.prod(sizes[a] for a in axes) for axes in dims] for dims in (src, dst)]
            return src, dst, [math.lcm(a, b) for a, b in zip(*counts)]


def family(name: str, n: int | None = None, seed: int = 0) -> Iterator[Case]:
    """Return large problems of a family, `n` for each of its meshes: 1000, 300 or 40 if not given. For planning
    only.
    """
    rng = random.Random(f"{name}{seed}")
    low, high = (size << 18 for size in ((64, 6400) if name == "F" else (64, 800)))
    for sizes in FAMILIES[name]:
        for _ in range(n or {"A": 1000, "F": 40}.get(name, 300)):
            yield _large(rng, sizes, name, low, high)


def _large(rng: random.Random, sizes: tuple[int, ...], name: str, low: int, high: int) -> Case:
    while True:
        rank = rng.randint(1, 6)
        src, dst, unit = _pair(rng, sizes, rank)
        if name == "A":
            unit = [8] * rank
        elif rng.random() < 0.5:
            roomy = [math.lcm(u, math.prod(sizes)) for u in unit]
            unit = roomy if math.prod(roomy) <= high else unit
        if math.prod(unit) > high:
            continue
        for _ in range(20):
            total = math.exp(rng.uniform(math.log(low), math.log(high)))
            spread = math.log(max(1.0, total / math.prod(unit)))
            weights = [rng.random() for _ in range(rank)]
            shape = tuple(u * max(1, round(math.exp(spread * w / sum(weights)))) for u, w in zip(unit, weights))
            if low <= math.prod(shape) <= high:
                return Case(shape, _sharding(sizes, src), _sharding(sizes, dst))


def small_cases(n: int, seed: int = 0, *, uneven: bool = False) -> Iterator[Case]:
    """Return small problems, to be run on data; sizes that divide, or any, 0 and fewer elements than parts included."""
    rng = random.Random(f"small{seed}{uneven}")
    while n:
        sizes = rng.choice(_SMALL)
        src, dst, need = _pair(rng, sizes, rng.randint(1, 4))
        shape = tuple(u * rng.choice((1, 1, 2, 3)) for u in need)
        if uneven:
            shape = tuple(rng.randint(0 if rng.random() < 0.1 else 1, max(2, s)) for s in shape)
        if math.prod(shape) <= 20_000:
            n -= 1
            yield Case(shape, _sharding(sizes, src), _sharding(sizes, dst))
