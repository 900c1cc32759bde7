"""Running a plan of a redistribution on data: what every device holds at its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from distarray.sharding.sharding import Sharding
from distarray.testing.redistributions import Case


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
