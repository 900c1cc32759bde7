"""Lowering a weak path with at most one permute, placed where tiles are smallest: before the gathers.

Devices choose their slices among replicas so that as many as possible are on their way to the target already, groups
are formed in the order of devices, and one permute at the valley mends the rest (Rink et al. 2021, theorem 6.4).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from distarray.planner.redistribution.groups import cells, gather_groups
from distarray.planner.redistribution.places import IntArray
from distarray.planner.redistribution.steps import AllGather, AllPermute, AllToAll, DynSlice, Step
from distarray.planner.redistribution.weak import Path

Parts = tuple[int, ...]


def lower_permuted(src: IntArray, src_parts: Parts, dst: IntArray, dst_parts: Parts, path: Path) -> list[Step]:
    """Return the steps of a path from one map of tile indices to another.

    Parameters
    ----------
    src, dst
        Tile indices of every device, (devices, dimensions).
    """
    tiles, parts = src.copy(), list(src_parts)
    steps: list[Step] = []
    if path.slices:
        finer = list(src_parts)
        for i, n in path.slices:
            finer[i] *= n
        after = refined(tiles, tuple(parts), tuple(finer), dst, dst_parts)
        for i, n in path.slices:
            steps.append(DynSlice(i, n, after[:, i] % n))
        tiles, parts = after, finer
    for i, j, n in path.moves:
        position = tiles[:, i] % n
        tiles[:, i] //= n
        parts[i] //= n
        groups = gather_groups(cells(tiles, parts), position, n)
        kept = np.empty(len(tiles), np.int64)
        kept[groups] = np.arange(n)
        tiles[:, j] = tiles[:, j] * n + kept
        parts[j] *= n
        steps.append(AllToAll(i, j, n, groups))
    wanted = refined(dst, dst_parts, tuple(parts), tiles, tuple(parts))
    perm = wanted_permutation(cells(tiles, parts), cells(wanted, parts))
    if perm is not None:
        steps.append(AllPermute(perm))
        tiles = wanted
    return [*steps, *gathers(tiles, tuple(parts), path.gathers)]


def gathers(tiles: IntArray, parts: Parts, factors: Iterable[tuple[int, int]]) -> list[Step]:
    """Return all-gathers along dimensions, over so many devices each, from a map."""
    tiles, left = tiles.copy(), list(parts)
    steps: list[Step] = []
    for i, n in factors:
        position = tiles[:, i] % n
        tiles[:, i] //= n
        left[i] //= n
        steps.append(AllGather(i, n, gather_groups(cells(tiles, left), position, n)))
    return steps


def refined(tiles: IntArray, parts: Parts, finer: Parts, liked: IntArray, liked_parts: Parts) -> IntArray:
    """Return a uniform map to finer tiles, each inside the tile that the device has in a coarser map.

    A device gets the fine tile that its tile in the map `liked` lies in, or that lies in it, as long as every fine tile
    goes to equally many devices; the others get what is left, in their order.
    """
    if parts == finer:
        return tiles.copy()
    factors = [f // k for f, k in zip(finer, parts)]
    n_pieces = int(np.prod(factors))
    n = len(tiles)
    cell = cells(tiles, parts)
    order = np.argsort(cell, kind="stable")
    per_cell = n // len(np.unique(cell))
    quota = per_cell // n_pieces
    wish = _wishes(tiles, finer, factors, liked, liked_parts)
    piece = np.full(n, -1, np.int64)
    for start in range(0, n, per_cell):
        members = order[start : start + per_cell].tolist()
        room = [quota] * n_pieces
        rest = []
        for d in members:
            w = wish[d]
            if w >= 0 and room[w]:
                room[w] -= 1
                piece[d] = w
            else:
                rest.append(d)
        free = [w for w in range(n_pieces) for _ in range(room[w])]
        piece[rest] = free
    found = np.empty_like(tiles)
    for i in reversed(range(len(factors))):
        found[:, i] = tiles[:, i] * factors[i] + piece % factors[i]
        piece //= factors[i]
    return found


def _wishes(tiles: IntArray, finer: Parts, factors: list[int], liked: IntArray, liked_parts: Parts) -> list[int]:
    """Return the number of the fine tile, inside of each device's tile, where its liked tile begins; -1 if that is
    elsewhere.
    """
    wish = np.zeros(len(tiles), np.int64)
    inside = np.ones(len(tiles), bool)
    for i, (f, k, q) in enumerate(zip(finer, liked_parts, factors)):
        # Of the fine tiles that the liked one covers the one at its beginning: tile t of k begins in t * f // k of f.
        at = liked[:, i] * f // k - tiles[:, i] * q
        # a liked tile that covers all of this one leaves the choice free
        wide = (liked[:, i] * f <= tiles[:, i] * q * k) & ((liked[:, i] + 1) * f >= (tiles[:, i] + 1) * q * k)
        at = np.where(wide, 0, at)
        inside &= (at >= 0) & (at < q)
        wish = wish * q + at
    return np.where(inside, wish, -1).tolist()  # type: ignore[no-any-return]  # numpy's tolist


def wanted_permutation(held: IntArray, wanted: IntArray) -> IntArray | None:
    """Return from which device each gets the tile that it wants; None if all have it. Those that have it keep it."""
    if (held == wanted).all():
        return None
    perm = np.arange(len(held))
    moving = np.flatnonzero(held != wanted)
    # both maps are uniform and fixed devices hold what they want, so the rest match up tile by tile
    givers = moving[np.argsort(held[moving], kind="stable")]
    takers = moving[np.argsort(wanted[moving], kind="stable")]
    perm[takers] = givers
    return perm
