"""Arrays from stores and into stores: the one way of every format whose boxes can be read and written by themselves.

Reads happen in the tasks that need them, each grain in one task where the readers allow it; writes where the blocks
lie, each grain by exactly one task: an array whose tiles would share grains is cut along them first.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

from distarray.arguments import entry_by_axis, shown
from distarray.array import window
from distarray.array.array import DistArray
from distarray.array.chunks import sharding_of_chunks
from distarray.array.environment import TeamLike, environment, parse_pin
from distarray.dtypes import as_dtype
from distarray.errors import MemoryBudgetError, NotSupportedError
from distarray.expr.expr import Environment, Expr, cut_of, postorder
from distarray.kernels.stores import Box, ReadableStore, Store, meet, pieces, places_read, slices_of, write_block
from distarray.ops.stores import read_store
from distarray.runtime import evaluate, exports, small
from distarray.runtime.clients import keep_what_reads
from distarray.runtime.planning import TILES_PER_LIMIT, limits_of
from distarray.runtime.retention import is_beyond_memory, streams
from distarray.sharding.cuts import MAX_TILES
from distarray.sharding.layout import LayoutLike
from distarray.sharding.sharding import Sharding
from distarray.sharding.spec import ShardingLike
from distarray.types import HostArray, Shape


def from_store(
    store: ReadableStore,
    *,
    team: TeamLike = "current",
    device: str | None = None,
    sharding: ShardingLike = None,
    layout: LayoutLike | None = None,
) -> DistArray:
    """Return the array in a store.

    Nothing is read here. What is read is the boxes that tasks need, when they need them. Looks at small parts read
    these; an array that is held is else read once if it fits in memory.

    Parameters
    ----------
    store
        Anything that can be pickled and has ``shape``, ``dtype``, ``grain`` (extents of its chunks, or None) and
        ``read(box, out)``, which fills a NumPy array with a box, ``(start, stop)`` per axis.
    team, device, sharding, layout
        Where the array is to live and how it is cut. By default the tiles of what is larger than one block are groups
        of whole chunks.

    Raises
    ------
    TypeError
        If its elements are of a dtype that a DistArray cannot have.

    Examples
    --------
    >>> import numpy as np
    >>> import distarray as dx
    >>> class Squares:
    ...     shape, dtype, grain = (6,), np.dtype("int64"), (2,)
    ...     def read(self, box, out):
    ...         ((lo, hi),) = box
    ...         out[:] = np.arange(lo, hi) ** 2
    >>> dx.from_store(Squares()).tolist()
    [0, 1, 4, 9, 16, 25]
    """
    env = environment(team, device)
    shape, dtype = tuple(store.shape), as_dtype(store.dtype)
    pin = parse_pin(sharding, layout, shape, dtype, env)
    if pin is None and store.grain is not None and prod(shape) * dtype.itemsize > env.block_nbytes:
        pin = cut_on_grain(shape, store.grain, dtype.itemsize, env)
        pin = None if pin is None or pin.n_tiles == 1 else pin
    return DistArray._on(read_store(shape, dtype, store, env, pin))


def cut_on_grain(
    shape: Shape,
    grain: Shape,
    itemsize: int,
    env: Environment,
    origin: Sequence[int] | None = None,
    near: Sharding | None = None,
) -> Sharding | None:
    """Return a cut into tiles that are groups of whole grains of a store; None if there would be too many.

    Tiles are as large as leaves one for each member and eight to its limit of memory, and at least a grain. They
    extend along the last axes first, where the elements of stores follow each other.

    Parameters
    ----------
    origin
        Where the array begins in the store.
    near
        How the array lies.
    """
    origin = origin or (0,) * len(shape)
    if 0 in shape:
        return Sharding.whole(env.mesh, len(shape))
    counts = [-(-(o + n) // g) - o // g for n, g, o in zip(shape, grain, origin, strict=True)]
    extents = [min(n, g) for n, g in zip(shape, grain, strict=True)]
    room = tile_room(prod(shape) * itemsize, env)
    nbytes = prod(extents) * itemsize
    chunks: list[tuple[int, ...]] = []
    n_tiles = 1
    for n, g, o, count, extent in reversed(list(zip(shape, grain, origin, counts, extents, strict=True))):
        together = min(count, max(1, room // nbytes))
        n_groups = -(-count // together)
        together = -(-count // n_groups)
        n_groups = -(-count // together)
        nbytes = nbytes * min(n, together * g) // extent
        n_tiles *= n_groups
        if n_tiles > MAX_TILES:
            return None
        first = o // g
        edges = [0, *[(first + k * together) * g - o for k in range(1, n_groups)], n]
        chunks.append(tuple([b - a for a, b in itertools.pairwise(edges)]))
    return sharding_of_chunks(chunks[::-1], env, near)


def tile_room(nbytes: int, env: Environment) -> int:
    """Return the bytes that tiles may have of an array in a store: one for each member, and eight to its memory."""
    # What a tile is made of is there with it, and what is sent of it.
    return min(limits_of(env).member // TILES_PER_LIMIT, max(1, nbytes // env.size))


def _lies_on_grain(x: DistArray, grain: Shape, origin: Sequence[int]) -> bool:
    """Return whether no two tiles of an array, as it lies, share a grain."""
    cut = cut_of(x.__dx_node__())
    return (
        cut is not None
        and not cut.unreduced
        and all(
            b in (0, n) or (o + b) % g == 0
            for bounds, n, g, o in zip(cut.boundaries(x.shape), x.shape, grain, origin, strict=True)
            for b in bounds
        )
    )


def compute_kept(nodes: Sequence[Expr]) -> None:
    """Compute nodes together, but for those that members cannot hold: these are computed for who reads them."""
    kept: dict[Environment, list[Expr]] = {}
    for n in nodes:
        if n.memo is None and not (streams(n) and not small.is_small(postorder([n]), n.env)):
            kept.setdefault(n.env, []).append(n)
    window.observe([n for alike in kept.values() if _can_be_held(alike) for n in alike])


def _can_be_held(nodes: Sequence[Expr]) -> bool:
    """Return whether members can hold what computing nodes of one environment takes, and the results."""
    try:
        evaluate.check(nodes)
    except MemoryBudgetError:
        return False
    return True


def read_before(x: DistArray, place: str) -> None:
    """Compute an array that reads what is about to be written, before it is: its tasks would read elements of both.

    What was made of it before is kept too.

    Parameters
    ----------
    place
        What is written: the absolute path of a file or folder, or an URL; arrays read it whose stores have this
        ``place``, or one in it, or around it.

    Raises
    ------
    NotSupportedError
        If the array does not fit in memory.
    """
    node = x.__dx_node__()
    if any(meet(found, place) for found in places_read(postorder([node]))):
        if is_beyond_memory(node):
            raise NotSupportedError(
                f"an array of {node.nbytes} bytes, which does not fit in memory, reads from {place}, where it is to be "
                "written; write it elsewhere"
            )
        window.run(node)  # to its end: on a cluster tasks would still read what is written
    keep_what_reads(place)


def region_of(region: Any, shape: Shape) -> list[tuple[int, int]]:
    """Return (start, stop) per axis of a region of an array that is said by slices; axes that are not said are whole.

    >>> region_of(slice(-2, None), (5, 3)), region_of(..., (5,))
    ([(3, 5), (0, 3)], [(0, 5)])

    Raises
    ------
    ValueError
        If it is none.
    """
    entries = entry_by_axis(region if isinstance(region, tuple | list) else [region], len(shape))
    if len(entries) != len(shape) or not all(isinstance(e, slice) and e.step in (None, 1) for e in entries):
        raise ValueError(f"region={shown(region)} must be slices of step 1, at most one for each axis of {shape}")
    return [e.indices(n)[:2] for e, n in zip(entries, shape, strict=True)]


def in_order(x: DistArray, grain: Shape | None = None) -> Iterator[tuple[Box, HostArray]]:
    """Yield the boxes of an array with their values, in C order, for the one writer that this process is.

    This process holds one box at a time. An array that does not fit in memory is computed box by box.

    Parameters
    ----------
    grain
        Boxes are cut between so many elements; by default anywhere.
    """
    compute_kept([x.__dx_node__()])
    for box in pieces([(0, n) for n in x.shape], grain or (1,) * x.ndim, x.dtype.itemsize):
        yield box, x[slices_of(box)].compute()


def to_store(x: DistArray, store: Store, origin: Sequence[int] | None = None, *, is_checked_only: bool = False) -> None:
    """Write an array into a store, each grain of it by one task, where the block that has it lies.

    Computes the array: one that does not fit in memory tile by tile, while it is written.

    Parameters
    ----------
    origin
        Where the array begins in the store; by default at the first element.
    is_checked_only
        Whether nothing is written: what would be refused is.

    Raises
    ------
    MemoryBudgetError
        If no member can hold a grain, or the array has too many of them. Nothing is written then.
    """
    begins = tuple(origin or (0,) * x.ndim)
    node = x.__dx_node__()
    compute_kept([node])
    grain = store.grain
    if grain is not None and not _lies_on_grain(x, grain, begins):
        cut = cut_on_grain(x.shape, grain, x.dtype.itemsize, x._env, begins, cut_of(node))
        if cut is None:
            raise NotSupportedError(
                f"writing an array of shape {x.shape} in chunks of {grain}: these are more tiles than {MAX_TILES}, "
                "and each is to have one writer; write larger chunks or regions"
            )
        node = x._pinned(cut).__dx_node__()

    def arguments(box: Box) -> tuple[Any, ...]:
        return store, tuple([(lo + o, hi + o) for (lo, hi), o in zip(box, begins, strict=True)])

    exports.for_each_block(node, write_block, arguments, is_checked_only=is_checked_only)
