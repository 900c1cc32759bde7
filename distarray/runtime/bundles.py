"""Bundles: the blocks of one array that one member of a cluster has, under one key.

Who reads an array sees a block per tile, each with a key (`BundledBlocks`, `BundledTile`). Programs of members are
given bundles, and find the blocks in them. A task of Dask that reads one tile refers to the tile's key: where tasks are
sent, one is added at the member that has the bundle, which takes the tile out of it (`task_graph.taken_out`). So no
bundle travels for the sake of a tile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from dask.sizeof import sizeof

from distarray.expr.expr import Expr, LazyBlocks, holding
from distarray.kernels.loans import owner
from distarray.lower.bundling import part_of, tile_key
from distarray.lower.messages import Key
from distarray.runtime.wire import pack, unpack
from distarray.sharding.dealing import Dealt, dealt, n_elements


class Bundle:
    """A Bundle is the blocks of one array at one member, in the row-major order of their tiles.

    It refers to the blocks: a newer version of the array that has some of them too takes no memory for these.
    """

    #: Dask gives out one that is in use, rather than to read it from disk once more, if it may refer to it weakly.
    __slots__ = ("__weakref__", "blocks")

    def __init__(self, blocks: Iterable[Any]) -> None:
        self.blocks = tuple(blocks)

    def __len__(self) -> int:
        return len(self.blocks)

    def __getitem__(self, number: int) -> Any:
        return self.blocks[number]

    @property
    def nbytes(self) -> int:
        """Return the bytes of all blocks."""
        return sum([block.nbytes for block in self.blocks])

    def __reduce__(self) -> tuple[Any, ...]:
        # Blocks keep the order of their axes in memory, as those do that travel by themselves.
        return _unpacked, ([pack(block) for block in self.blocks],)


@sizeof.register(Bundle)  # type: ignore[untyped-decorator]  # dask has no type information
def _counted(bundle: Bundle) -> int:
    """Return what Dask counts for it in the memory of a worker."""
    return sum(map(sizeof, bundle.blocks))


def _unpacked(packed: Sequence[Any]) -> Bundle:
    return Bundle([_by_itself(unpack(block)) for block in packed])


def _by_itself(block: Any) -> Any:
    """Return a block in memory of its own: of what came from disk all blocks lie in one buffer, as small ones of a
    message do, at any address, and each would hold all of it.
    """
    base: Any = owner(block).base if isinstance(block, np.ndarray) else None
    is_shared = isinstance(base, memoryview) and memoryview(base.obj).nbytes > block.nbytes
    return block.copy(order="K") if is_shared else block


class BundledTile:
    """A BundledTile stands for a block that is in a bundle, as a Future stands for one that has a key by itself.

    Parameters
    ----------
    bundle
        The Future of the bundle, which lives as long as this.
    number
        Of the block in it.
    n_blocks
        So many of the bundle stand for blocks of the array.
    """

    __slots__ = ("bundle", "n_blocks", "number")

    def __init__(self, bundle: Any, number: int, n_blocks: int) -> None:
        self.bundle = bundle
        self.number = number
        self.n_blocks = n_blocks

    @property
    def key(self) -> Key:
        """Return the key of the task that takes the block out of its bundle."""
        return tile_key(self.bundle.key, self.number)

    @property
    def status(self) -> str:
        """Return what is known of the bundle."""
        status: str = self.bundle.status
        return status

    def __repr__(self) -> str:
        return f"<BundledTile: {self.status}, key: {self.key}>"


class HeldTiles(NamedTuple):
    """HeldTiles are what a member has of an array: bundles of its tiles, and tiles by themselves.

    Parameters
    ----------
    bounds
        Where each of these begins among the tiles of the member, and the number of these.
    refs
        Of each the Future of the bundle, or what stands for the block.
    """

    bounds: tuple[int, ...]
    refs: tuple[Any, ...]


class BundledBlocks(LazyBlocks):
    """BundledBlocks are the blocks of an array of which members have several tiles each: what stands for a block is
    made when it is asked for.

    Parameters
    ----------
    dealt
        Which tiles each member has.
    at
        By member what it has.
    """

    def __init__(self, dealt: Dealt, at: Mapping[int, HeldTiles]) -> None:
        self._dealt = dealt
        self._at = at
        #: Members that have bundles, and the bounds of these.
        self.bundled = frozenset(
            [(member, held.bounds) for member, held in at.items() if len(held.refs) < len(dealt.tiles[member])]
        )

    def part(self, number: int) -> tuple[Any, int, int]:
        """Return the Future of the bundle that a block is in, which of it it is, and how many there are; or of a block
        by itself what stands for it, 0 and 1.
        """
        member, n = self._dealt.places[number]
        bounds, refs = self._at[member]
        part = part_of(bounds, n)
        return refs[part], n - bounds[part], bounds[part + 1] - bounds[part]

    def parts(self, member: int) -> Iterator[tuple[tuple[int, ...], Any]]:
        """Yield the numbers of the blocks of each bundle of a member and its Future, or of a block and what stands for
        it.
        """
        held, tiles = self._at[member], self._dealt.tiles[member]
        for (first, end), ref in zip(pairwise(held.bounds), held.refs, strict=True):
            yield tiles[first:end], ref

    def __len__(self) -> int:
        return len(self._dealt.places)

    def __getitem__(self, number: Any) -> Any:  # an integer, or a slice
        if isinstance(number, slice):
            return [self[n] for n in range(len(self))[number]]
        ref, n, n_blocks = self.part(number)
        return BundledTile(ref, n, n_blocks) if n_blocks > 1 else ref

    @property
    def held(self) -> list[Any]:
        """Return the Futures of bundles, and what stands for blocks that are in none."""
        return [ref for held in self._at.values() for ref in held.refs]


def holdings(node: Expr) -> Iterator[tuple[int, int, Any]]:
    """Yield, for each block or bundle of an evaluated node, its member, its bytes and what stands for it."""
    memo = node.stored
    tiles, sizes = dealt(memo.sharding), n_elements(memo.sharding, node.shape)
    blocks = memo.handles
    for member, numbers in tiles.tiles.items():
        parts = blocks.parts(member) if isinstance(blocks, BundledBlocks) else [((n,), blocks[n]) for n in numbers]
        for together, ref in parts:
            yield member, sum([sizes[n] for n in together]) * node.dtype.itemsize, ref


def futures_behind(blocks: Iterable[Any]) -> list[Any]:
    """Return the Futures that stand for blocks of a cluster, each once."""
    found = [block.bundle if type(block) is BundledTile else block for block in holding(blocks)]
    return list({id(future): future for future in found}.values())
