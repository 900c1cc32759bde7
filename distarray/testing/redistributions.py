"""Redistribution problems drawn at random, and running a plan on data: what tests and benchmarks of plans share."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from distarray.sharding.mesh import Mesh
from distarray.sharding.sharding import Sharding

__all__ = ["FAMILIES", "Case", "family", "run_steps", "small_cases"]

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


# ------------------------------------------------------------------------------------------------ running a plan


def run_steps(case: Case, steps: Sequence[Mapping[str, Any]], addends: Sequence[Any]) -> list[Any]:
    """Return what every device holds at the end of a plan in its JSON form.

    Parameters
    ----------
    addends
        For every device of the source the whole array that its tile is cut out of: the same for all, or an addend each
        where the source is not reduced.

    Raises
    ------
    Exception
        If the steps cannot be run: blocks that do not fit together, devices that are not there.
    """
    shape = case.shape
    tiles = [list(case.src.tile(d)) for d in range(case.src.mesh.size)]
    parts = list(case.src.parts)
    blocks = [addends[d][case.src.tile_slices(shape, t)] for d, t in enumerate(tiles)]
    kept = Sharding(case.src.mesh, case.src.axes, case.dst.unreduced)
    classes = [kept.addend(d) for d in range(len(blocks))]
    for step in steps:
        blocks = _run(step, shape, tiles, parts, blocks, classes)
    return blocks


def _cut(shape: Sequence[int], parts: Sequence[int], i: int, t: int, n: int, m: int) -> slice:
    """Return slice `m` of `n` of tile `t` of dimension `i`, counted from the tile's begin."""
    s, k = shape[i], parts[i]
    begin = t * s // k
    return slice((t * n + m) * s // (k * n) - begin, (t * n + m + 1) * s // (k * n) - begin)


def _run(
    step: Mapping[str, Any], shape: Sequence[int], tiles: Any, parts: list[int], blocks: list[Any], classes: list[int]
) -> list[Any]:
    op = step["op"]
    made = list(blocks)
    if op == "allpermute":
        tiles[:] = [list(tiles[p]) for p in step["perm"]]
        return [blocks[p] for p in step["perm"]]
    if op == "exchange":
        return _exchanged(step, shape, tiles, parts, blocks, classes)
    n = step["n"]
    if op == "dynslice":
        i = step["dim"]
        for d, m in enumerate(step["index"]):
            made[d] = _along(blocks[d], i, _cut(shape, parts, i, tiles[d][i], n, m))
            tiles[d][i] = tiles[d][i] * n + m
        parts[i] *= n
        return made
    for group in step["groups"]:
        if op in ("allgather", "alltoall"):
            i = step["dim"] if op == "allgather" else step["src_dim"]
            whole = np.concatenate([blocks[d] for d in group], axis=i)
        else:
            i, whole = step.get("dim", -1), sum(blocks[d] for d in group)
        index = step.get("index")
        for m, d in enumerate(group):
            made[d] = whole
            if op in ("allgather", "alltoall"):
                tiles[d][i] //= n
            if op in ("alltoall", "reduce_scatter"):
                j = step["dst_dim"] if op == "alltoall" else i
                kept = m if index is None else index[d]
                made[d] = _along(whole, j, _cut(shape, parts, j, tiles[d][j], n, kept))
                tiles[d][j] = tiles[d][j] * n + kept
    if op in ("allgather", "alltoall"):
        parts[i] //= n
    if op in ("alltoall", "reduce_scatter"):
        parts[step["dst_dim"] if op == "alltoall" else i] *= n
    return made


def _along(block: Any, i: int, cut: slice) -> Any:
    return block[(slice(None),) * i + (cut,)]


def _exchanged(
    step: Mapping[str, Any], shape: Sequence[int], tiles: Any, parts: list[int], blocks: list[Any], classes: list[int]
) -> list[Any]:
    """Return every box put together from the blocks of all devices of its class: those with the same addend."""
    wholes = {c: np.full(shape, -1, blocks[0].dtype) for c in classes}
    for c, tile, block in zip(classes, tiles, blocks):
        begin = [t * s // k for t, s, k in zip(tile, shape, parts)]
        wholes[c][tuple([slice(b, b + e) for b, e in zip(begin, block.shape)])] = block
    n = len(step["offsets"])
    extents = step.get("extents") or [step["shape"]] * n
    if "mesh" in step:  # the devices of another team
        classes[:] = [0] * n
        tiles[:] = [[0] * len(shape) for _ in range(n)]
    made = []
    for d, (offset, extent) in enumerate(zip(step["offsets"], extents)):
        made.append(wholes[classes[d]][tuple([slice(o, o + e) for o, e in zip(offset, extent)])])
        for i, s in enumerate(shape):
            # what follows gathers whole tiles: any cut that has these boundaries will do
            fitting = [k for k in range(1, n + 1) if _is_edge(s, k, step["offsets"], extents, i)]
            parts[i] = fitting[0] if fitting else 1
            t = [
                t
                for t in range(parts[i])
                if t * s // parts[i] == offset[i] and (t + 1) * s // parts[i] == offset[i] + extent[i]
            ]
            tiles[d][i] = t[0] if t else 0
    return made


def _is_edge(s: int, k: int, offsets: Any, extents: Any, i: int) -> bool:
    edges = {(o[i], o[i] + e[i]) for o, e in zip(offsets, extents)}
    return edges == {(t * s // k, (t + 1) * s // k) for t in range(k)}
