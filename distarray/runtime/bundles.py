"""Bundles: the blocks of one array that one member of a cluster has, under one key.

Who reads an array sees a block per tile, each with a key (`BundledBlocks`, `BundledTile`). Programs of members are
given bundles, and find the blocks in them. A task of Dask that reads one tile refers to the tile's key: where tasks are
sent, one is added at the member that has the bundle, which takes the tile out of it (`task_graph.taken_out`). So no
bundle travels for the sake of a tile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from dask.sizeof import sizeof

from distarray.expr.expr import Expr, named
from distarray.lower.bundling import tile_key
from distarray.lower.messages import Key
from distarray.runtime.wire import pack, unpack
from distarray.sharding.dealing import Dealt, dealt, n_elements


class Bundle:
    """A Bundle is the blocks of one array at one member, in the row-major order of their tiles.

    It refers to the blocks: a newer version of the array that has some of them too takes no memory for these.
    """

    __slots__ = ("blocks",)

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
    return Bundle(map(unpack, packed))


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


class BundledBlocks(Sequence[Any]):
    """BundledBlocks are the blocks of an array of which members have several tiles each: what stands for a block is
    made when it is asked for.

    Parameters
    ----------
    dealt
        Which tiles each member has.
    at
        By member the Future of the bundle of its tiles, or a tuple of what stands for each.
    """

    def __init__(self, dealt: Dealt, at: Mapping[int, Any]) -> None:
        self._dealt = dealt
        self._at = at
        #: Members whose tiles are in a bundle.
        self.bundled = frozenset([member for member, held in at.items() if type(held) is not tuple])

    def bundle(self, member: int) -> Any:
        """Return the Future of the bundle of a member that has one."""
        return self._at[member]

    def __len__(self) -> int:
        return len(self._dealt.places)

    def __getitem__(self, number: Any) -> Any:  # an integer, or a slice
        if isinstance(number, slice):
            return [self[n] for n in range(len(self))[number]]
        member, n = self._dealt.places[number]
        held = self._at[member]
        return held[n] if type(held) is tuple else BundledTile(held, n, len(self._dealt.tiles[member]))

    @property
    def held(self) -> list[Any]:
        """Return the Futures of bundles, and what stands for blocks that are in none."""
        return [one for held in self._at.values() for one in (held if type(held) is tuple else (held,))]

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (named(self),)


def holdings(node: Expr) -> Iterator[tuple[int, int, Any]]:
    """Yield, for each block or bundle of an evaluated node, its member, its bytes and what stands for it."""
    memo = node.stored
    tiles, sizes = dealt(memo.sharding), n_elements(memo.sharding, node.shape)
    blocks = memo.handles
    for member, numbers in tiles.tiles.items():
        if isinstance(blocks, BundledBlocks) and member in blocks.bundled:
            yield member, sum([sizes[n] for n in numbers]) * node.dtype.itemsize, blocks.bundle(member)
        else:
            yield from [(member, sizes[n] * node.dtype.itemsize, blocks[n]) for n in numbers]


def futures_behind(blocks: Iterable[Any]) -> list[Any]:
    """Return the Futures that stand for blocks of a cluster, each once."""
    found = [block.bundle if type(block) is BundledTile else block for block in getattr(blocks, "held", blocks)]
    return list({id(future): future for future in found}.values())
