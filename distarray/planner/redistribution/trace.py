"""What a plan does, step by step: exchanges, maps, largest tiles, costs, elements received."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from distarray.planner.redistribution.places import IntArray
from distarray.planner.redistribution.problem import Bounds, Parts, Problem, largest_tile
from distarray.planner.redistribution.steps import (
    AllGather,
    AllPermute,
    AllReduce,
    AllToAll,
    DynSlice,
    Exchange,
    ReduceScatter,
    Step,
)


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


class Moment(NamedTuple):
    """A Moment is the state after a step: the tile of every device, and what the step cost.

    Parameters
    ----------
    shape
        Of the largest tile.
    size
        Its elements.
    cost
        Of the step, in elements (figure 11).
    received
        Elements that every device gets from others in the step.
    box
        Begin and end of every device's tile, in elements.
    tiles, parts
        Tile index of every device, (devices, dimensions), and parts of each dimension.
    is_across
        Whether the devices are those of the target, where that lies on another team.
    """

    shape: tuple[int, ...]
    size: int
    cost: int
    received: IntArray
    box: tuple[IntArray, IntArray]
    tiles: IntArray
    parts: Parts
    is_across: bool = False


def moments(problem: Problem, src: IntArray, steps: Sequence[Step]) -> list[Moment]:
    """Return what holds before the first step, then after each."""
    shape = problem.shape
    tiles, parts = src.copy(), list(problem.src_parts)
    box = boxes(tiles, shape, problem.src_parts, problem.src_bounds)
    largest = _shape(shape, problem.src_parts, box)
    found = [Moment(largest, prod(largest), 0, np.zeros(len(tiles), np.int64), box, src, problem.src_parts)]
    for step in steps:
        if isinstance(step, Exchange):
            tiles, parts = step.tiles.copy(), list(step.parts)
            after = step.offsets, step.offsets + step.extents
            largest = step.shape
        else:
            _advance(step, tiles, parts)
            after = boxes(tiles, shape, tuple(parts))
            largest = _shape(shape, tuple(parts), after)
        size = prod(largest)
        before = found[-1]
        is_across = before.is_across
        if isinstance(step, Exchange) and step.crosses:
            is_across, received = True, (after[1] - after[0]).prod(axis=1)
        else:
            received = received_by_exchange(before.box, after)
        if isinstance(step, ReduceScatter):
            received = (after[1] - after[0]).prod(axis=1) * (step.n - 1)
        elif isinstance(step, AllReduce):
            # reduce-scatter and all-gather of 1/n each
            received = 2 * (after[1] - after[0]).prod(axis=1) * (step.n - 1) // step.n
        cost = step_cost(step, before.size, size)
        found.append(Moment(largest, size, cost, received, after, tiles.copy(), tuple(parts), is_across))
    return found


def step_cost(step: Step, before: int, after: int) -> int:
    """Return the elements that a step moves, per device (Rink et al. 2021, figure 11)."""
    if isinstance(step, DynSlice):
        return 0
    if isinstance(step, AllGather | Exchange):
        return after
    return 2 * before if isinstance(step, AllReduce) else before


def _advance(step: Step, tiles: IntArray, parts: list[int]) -> None:
    if isinstance(step, DynSlice):
        tiles[:, step.dim] = tiles[:, step.dim] * step.n + step.index
        parts[step.dim] *= step.n
    elif isinstance(step, AllGather):
        tiles[:, step.dim] //= step.n
        parts[step.dim] //= step.n
    elif isinstance(step, AllToAll):
        kept = step.index
        if kept is None:
            kept = np.empty(len(tiles), np.int64)
            kept[step.groups] = np.arange(step.n)
        tiles[:, step.src_dim] //= step.n
        parts[step.src_dim] //= step.n
        tiles[:, step.dst_dim] = tiles[:, step.dst_dim] * step.n + kept
        parts[step.dst_dim] *= step.n
    elif isinstance(step, AllPermute):
        tiles[:] = tiles[step.perm]
    elif isinstance(step, ReduceScatter):
        kept = np.empty(len(tiles), np.int64)
        kept[step.groups] = np.arange(step.n)
        tiles[:, step.dim] = tiles[:, step.dim] * step.n + kept
        parts[step.dim] *= step.n


def _shape(shape: Sequence[int], parts: Parts, box: tuple[IntArray, IntArray]) -> tuple[int, ...]:
    if len(box[0]) and box[0].shape[1]:
        # all tiles are there in a uniform map, so this is ceil(s / k)
        return tuple((box[1] - box[0]).max(axis=0).tolist())
    return largest_tile(shape, parts)
