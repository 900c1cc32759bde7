"""Exchanges: any uniform map to any other in one step, and what each device receives for it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from distarray.planner.redistribution.places import IntArray
from distarray.planner.redistribution.problem import Bounds, Parts, largest_tile
from distarray.planner.redistribution.steps import Exchange


def boxes(tiles: IntArray, shape: Sequence[int], parts: Parts, bounds: Bounds = ()) -> tuple[IntArray, IntArray]:
    """Return where the tile of every device begins and ends, in elements: two arrays (devices, dimensions)."""
    k = np.array(parts, np.int64)
    s = np.array(shape, np.int64)
    start, stop = tiles * s // k, (tiles + 1) * s // k
    for i, b in enumerate(bounds):
        if b is not None:
            edges = np.array(b, np.int64)
            start[:, i], stop[:, i] = edges[tiles[:, i]], edges[tiles[:, i] + 1]
    return start, stop


def exchange(
    tiles: IntArray, shape: Sequence[int], parts: Parts, bounds: Bounds = (), *, crosses: bool = False
) -> Exchange:
    """Return the exchange after which every device holds the tile of this number; of another team, if it crosses."""
    start, stop = boxes(tiles, shape, parts, bounds)
    return Exchange(parts, tiles, largest_tile(shape, parts, bounds), start, stop - start, crosses)


def overlap(a: tuple[IntArray, IntArray], b: tuple[IntArray, IntArray]) -> IntArray:
    """Return the elements that the tiles of every device in two maps have in common."""
    width = np.minimum(a[1], b[1]) - np.maximum(a[0], b[0])
    shared: IntArray = np.maximum(width, 0).prod(axis=1)
    return shared


def received_by_exchange(before: tuple[IntArray, IntArray], after: tuple[IntArray, IntArray]) -> IntArray:
    """Return the elements that every device must get from others: of its new tile what it does not hold."""
    received: IntArray = (after[1] - after[0]).prod(axis=1) - overlap(before, after)
    return received
