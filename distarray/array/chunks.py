"""Dask's words for how an array is cut: ``chunks``, ``blocks``, ``rechunk``.

A chunk is a tile. Tiles without elements, which a cut may have at the end of an axis, are no chunks.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from math import ceil, prod
from typing import Any, Generic, Self, TypeAlias

import numpy as np

from distarray.arguments import entry_by_axis, integer, integers, normalize_axis, shown
from distarray.array.handle import AnyHandle
from distarray.array.moves import Block, Movable
from distarray.array.namespace import namespace
from distarray.errors import MemoryBudgetError
from distarray.expr.expr import Environment, cut_of
from distarray.sharding.cuts import MAX_TILES
from distarray.sharding.mesh import Mesh, is_wave
from distarray.sharding.prime import dealt_out, prime_mesh
from distarray.sharding.sharding import Sharding

Chunks = tuple[tuple[int, ...], ...]


class Chunked(Movable):
    """A Chunked has Dask's attributes and methods on chunks, for `DistArray`."""

    __slots__ = ()

    @property
    def chunks(self) -> Chunks:
        """Return the extents of the chunks along each axis.

        As the array lies; of a pending one as the plan says that it will lie: asking plans, and runs nothing. What is
        computed together with other arrays later may come to lie otherwise; `reshard` and `rechunk` make it certain.

        Examples
        --------
        >>> import distarray as dx
        >>> x = dx.zeros((5, 2), team=dx.Team((2,), ("T",)), sharding=("T", None))
        >>> x.chunks, x.numblocks, x.npartitions, x.chunksize
        (((2, 3), (2,)), (2, 1), 2, (3, 2))
        """
        return tuple([tuple([b - a for a, b in axis]) for axis in _parts(self)])

    @property
    def numblocks(self) -> tuple[int, ...]:
        """Return the number of chunks along each axis; see `chunks`."""
        return tuple(map(len, self.chunks))

    @property
    def npartitions(self) -> int:
        """Return the number of chunks; see `chunks`."""
        return prod(self.numblocks)

    @property
    def chunksize(self) -> tuple[int, ...]:
        """Return the largest extent of a chunk along each axis; see `chunks`."""
        return tuple(map(max, self.chunks))

    @property
    def blocks(self) -> BlocksView[Self]:
        """Return the blocks: indexed as Dask's, an array of the chunks that are asked for; iterated, what members hold.

        ``x.blocks[i, j]`` is a view of chunk (i, j); slices and one list of numbers choose several. Going through
        ``x.blocks`` computes the array, and gives for each block its member, its place and its values, brought here
        where they are elsewhere.

        Examples
        --------
        >>> import distarray as dx
        >>> x = dx.arange(5, team=dx.Team((2,), ("T",)), sharding=("T",))
        >>> x.blocks[1].tolist(), x.blocks.shape
        ([2, 3, 4], (2,))
        >>> [block.global_slices for block in x.blocks]
        [(slice(0, 2, None),), (slice(2, 5, None),)]
        """
        return BlocksView(self)

    #: The blocks, under the name that dask.dataframe has for them.
    partitions = blocks

    def rechunk(
        self,
        chunks: Any = "auto",
        threshold: Any = None,
        block_size_limit: Any = None,
        balance: bool = False,
        method: Any = None,
    ) -> Self:
        """Return the array cut into chunks, as Dask says it.

        Parameters
        ----------
        chunks
            An int for all axes, or one entry for each axis, or a dict of axes. An entry is the extent of the chunks,
            -1 for the whole axis, None to leave it, a tuple of extents, or ``"auto"``: the first such axis is cut
            evenly over the members, the others stay whole.
        threshold, block_size_limit, balance, method
            Accepted for Dask's sake, and not used.

        Returns
        -------
        DistArray
            Its tiles are the chunks, neighbours on one member; the array itself if it lies so.

        Raises
        ------
        ValueError
            If chunks do not add up to the array.

        Examples
        --------
        >>> import distarray as dx
        >>> x = dx.arange(10, team=dx.Team((2,), ("T",)))
        >>> x.rechunk(4).chunks
        ((4, 4, 2),)
        """
        wanted = _normal_chunks(chunks, self)
        if wanted == self.chunks:
            return self
        return self._pinned(sharding_of_chunks(wanted, self._env, cut_of(self.__dx_node__())))

    def map_blocks(self, func: Any, *args: Any, **kwargs: Any) -> Any:
        """Return ``map_blocks(func, x, *args)``; see `distarray.map_blocks`."""
        return namespace().map_blocks(func, self, *args, **kwargs)

    def map_overlap(self, func: Any, depth: Any = None, boundary: Any = None, trim: bool = True, **kwargs: Any) -> Any:
        """Call ``distarray.map_overlap(func, x)``, which says more."""
        return namespace().map_overlap(func, self, depth=depth, boundary=boundary, trim=trim, **kwargs)


def _parts(x: Any) -> list[list[tuple[int, int]]]:
    """Return where the chunks along each axis begin and end."""
    found = []
    for bounds in x.sharding.boundaries(x.shape):
        tiles = list(itertools.pairwise(bounds))
        found.append([(a, b) for a, b in tiles if b > a] or tiles[:1])
    return found


# ------------------------------------------------------------------------------------------------ blocks


class BlocksView(Generic[AnyHandle]):
    """A BlocksView is the blocks of an array; see `Chunked.blocks`."""

    __slots__ = ("_array",)

    def __init__(self, array: AnyHandle) -> None:
        self._array: Any = array

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the number of chunks along each axis."""
        return tuple(map(len, _parts(self._array)))

    @property
    def size(self) -> int:
        """Return the number of chunks."""
        return prod(self.shape)

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[Block]:
        return iter(self._array.iter_blocks())

    def ravel(self) -> list[AnyHandle]:
        """Return a view of each chunk, row-major."""
        return [self[at] for at in itertools.product(*map(range, self.shape))]

    def __getitem__(self, index: Any) -> AnyHandle:
        """Return the chunks that are asked for, put together; a view, unless they are not neighbours in their order."""
        result = self._array
        parts = _parts(result)
        chosen = _chosen(index, [len(p) for p in parts])
        for axis, (numbers, own) in enumerate(zip(chosen, parts, strict=True)):
            before = (slice(None),) * axis
            if list(numbers) == list(range(numbers[0], numbers[0] + len(numbers))) if len(numbers) else True:
                low, high = (own[numbers[0]][0], own[numbers[-1]][1]) if len(numbers) else (0, 0)
                result = result[(*before, slice(low, high))]
            else:
                result = namespace().concat([result[(*before, slice(*own[i]))] for i in numbers], axis=axis)
        return result  # type: ignore[no-any-return]  # of the class of the array


def _chosen(index: Any, counts: Sequence[int]) -> list[Sequence[int]]:
    """Return the numbers of the chunks along each axis that an index names."""
    items = [i.tolist() if isinstance(i, np.ndarray) else i for i in (index if isinstance(index, tuple) else (index,))]
    if any(item is None for item in items):
        raise ValueError("blocks: new axes are not supported; index the result")
    items = entry_by_axis(items, len(counts))
    if len(items) > len(counts):
        raise IndexError(f"blocks: {len(items)} indices for an array of {len(counts)} axes")
    if sum(isinstance(item, list) for item in items) > 1:
        raise ValueError("blocks: only one axis may be indexed by a list")
    chosen: list[Sequence[int]] = []
    for item, n in zip(items, counts, strict=True):
        if isinstance(item, slice):
            chosen.append(range(n)[item])
        elif isinstance(item, list):
            chosen.append([_block(i, n) for i in item])
        else:
            chosen.append([_block(item, n)])
    return chosen


def _block(i: Any, n: int) -> int:
    at = integer(i, "blocks: index")
    if not -n <= at < n:
        raise IndexError(f"blocks: index {at} is out of bounds for an axis of {n} blocks")
    return at % n


# ----------------------------------------------------------------------------------------------- rechunk


def _normal_chunks(chunks: Any, x: Any) -> Chunks:
    """Return what the user says, as extents for each axis."""
    shape = x.shape
    if isinstance(chunks, Mapping):
        by_axis = {normalize_axis(a, len(shape), "chunks: axis"): entry for a, entry in chunks.items()}
        entries: list[Any] = [by_axis.get(a) for a in range(len(shape))]
    elif isinstance(chunks, tuple | list):
        entries = list(chunks)
        if len(shape) == 1 and len(entries) > 1 and all(isinstance(c, int) for c in entries):
            entries = [tuple(entries)]  # the extents of the chunks of the only axis
    else:
        entries = [chunks] * len(shape)
    if len(entries) != len(shape):
        raise ValueError(
            f"rechunk: chunks={shown(chunks)} gives {len(entries)} entries for an array of {len(shape)} axes"
        )
    known = x.chunks if any(entry is None for entry in entries) else ()
    first_auto = next((a for a, entry in enumerate(entries) if isinstance(entry, str) and entry == "auto"), -1)
    made = []
    for axis, (entry, n) in enumerate(zip(entries, shape, strict=True)):
        if entry is None:
            made.append(known[axis])
        elif isinstance(entry, str) and entry == "auto":
            made.append(_blocks_of(n, max(1, ceil(n / x._env.size)) if axis == first_auto else n))
        elif isinstance(entry, tuple | list):
            entry = integers(entry, "chunks")
            if sum(entry) != n or any(c < 0 for c in entry):
                raise ValueError(f"rechunk: the chunks {tuple(entry)} of axis {axis} do not add up to its extent {n}")
            made.append(entry)
        else:
            size = integer(entry, "chunks")
            if size < 1 and size != -1:
                raise ValueError(f"rechunk: chunks of extent {size} along axis {axis}")
            made.append(_blocks_of(n, n if size == -1 else size))
    return tuple(made)


def _blocks_of(n: int, size: int) -> tuple[int, ...]:
    if not n:
        return (0,)
    if n > size * MAX_TILES:
        raise MemoryBudgetError(
            f"rechunk: {n} elements in chunks of {size} are {-(-n // size)} chunks, more than the {MAX_TILES} that an "
            "array may have; choose larger chunks"
        )
    rest = n % size
    return (size,) * (n // size) + ((rest,) if rest else ())


def sharding_of_chunks(chunks: Sequence[Sequence[int]], env: Environment, near: Sharding | None = None) -> Sharding:
    """Return the cut whose tiles are the chunks, in row-major order, and empty tiles for members that have fewer than
    others.

    One axis is dealt out to the members in blocks of neighbours, or several where no axis has chunks for all members;
    chunks that are not dealt out follow each other on one.

    Parameters
    ----------
    near
        How the array lies. If its axis that is dealt out has chunks for all members, they go to whoever has most of
        them already, as long as nobody gets much more than others. Otherwise the axis with most chunks is dealt out,
        evenly, or so many axes as keep most members busy.

    Examples
    --------
    >>> from distarray.sharding.team import Team
    >>> sharding_of_chunks(((4, 4), (3, 3)), Environment(Team((4,), ("x",)))).axes
    (('x_1',), ('x_2',))
    """
    mesh = env.mesh
    if all(len(sizes) == 1 for sizes in chunks):
        return Sharding.whole(mesh, len(chunks))
    dealt, counts = _dealt(chunks, mesh.size, near)
    deals = [((), [len(sizes)]) if axis != dealt else (mesh.names[::-1], counts) for axis, sizes in enumerate(chunks)]
    several = _deals_over_several(chunks, mesh)
    if several is not None and _most(several, chunks) * UNEVEN < _most(deals, chunks):
        mesh, deals = prime_mesh(mesh), several
    n_waves = [max(n) for _, n in deals]
    refined = mesh.with_waves(*(n for n in n_waves if n > 1))
    names = iter(refined.names[len(mesh.names) :])
    axes = [((next(names), *over) if n > 1 else over) for (over, _), n in zip(deals, n_waves, strict=True)]
    bounds = [
        tuple(_padded(list(itertools.accumulate(sizes, initial=0)), counts))
        for sizes, (_, counts) in zip(chunks, deals, strict=True)
    ]
    return Sharding(refined, tuple(axes), bounds=tuple(bounds))


#: By axis of an array the mesh axes that it is dealt out over, minor first, and the number of chunks of each part.
_Deals: TypeAlias = list[tuple[tuple[str, ...], list[int]]]


def _most(deals: _Deals, chunks: Sequence[Sequence[int]]) -> int:
    """Return the elements of the member that has most."""
    found = 1
    for (_, counts), sizes in zip(deals, chunks, strict=True):
        edges = list(itertools.accumulate(sizes, initial=0))
        groups = list(itertools.accumulate(counts, initial=0))
        found *= max(edges[b] - edges[a] for a, b in itertools.pairwise(groups))
    return found


def _deals_over_several(chunks: Sequence[Sequence[int]], mesh: Mesh) -> _Deals | None:
    """Return chunks dealt out over the prime axes of a mesh so that the member with most has as little as can be."""
    fine = prime_mesh(mesh)
    if len(chunks) ** len(fine.names) > MAX_DEALS:
        return None
    found: list[_Deals] = []
    for way in itertools.product(range(len(chunks)), repeat=len(fine.names)):
        dealt = zip(dealt_out(fine.names, way, len(chunks)), chunks, strict=True)
        found.append([(over, _even(len(sizes), prod(map(fine.axis_size, over)))) for over, sizes in dealt])
    return min(found, key=lambda deals: _most(deals, chunks))


def _padded(edges: Sequence[int], counts: Sequence[int]) -> list[int]:
    """Return the boundaries with as many tiles for each member, empty ones after its chunks."""
    found = [0]
    first = 0
    for n in counts:
        own = edges[first + 1 : first + 1 + n]
        found += own
        found += found[-1:] * (max(counts) - n)
        first += n
    return found


def _dealt(chunks: Sequence[Sequence[int]], n_members: int, near: Sharding | None) -> tuple[int, list[int]]:
    """Return the axis that is dealt out, and how many chunks each member gets of it."""
    found = None if near is None else _dealt_axis(near, n_members, tuple(map(sum, chunks)))
    if found is not None and len(chunks[found[0]]) >= n_members:
        axis, owned = found
        return axis, _nearest(chunks[axis], owned) or _even(len(chunks[axis]), n_members)
    longest = max(range(len(chunks)), key=lambda axis: len(chunks[axis]))
    return longest, _even(len(chunks[longest]), n_members)


def _even(n_chunks: int, n_members: int) -> list[int]:
    """Return as many chunks for each member; the last ones may have fewer."""
    most = -(-n_chunks // n_members)
    return [min(most, max(0, n_chunks - most * m)) for m in range(n_members)]


def _dealt_axis(near: Sharding, n_members: int, shape: tuple[int, ...]) -> tuple[int, list[tuple[int, int]]] | None:
    """Return the one axis that is cut over the members, with what each of them has of it; None if there is none."""
    mesh = near.mesh
    over = [a for a, names in enumerate(near.axes) if any(not is_wave(n) for n in names)]
    if len(over) != 1 or mesh.n_members != n_members:
        return None
    (axis,) = over
    edges = near.boundaries(shape)[axis]
    owned: dict[int, tuple[int, int]] = {}
    for part, (a, b) in enumerate(itertools.pairwise(edges)):
        tile = [part if other == axis else 0 for other in range(near.ndim)]
        if b > a:
            low, high = owned.get(mesh.member(near.place(tile)), (a, b))
            owned[mesh.member(near.place(tile))] = min(low, a), max(high, b)
    return axis, [owned.get(m, (0, 0)) for m in range(n_members)]


#: Ways to deal chunks out over several axes that are compared.
MAX_DEALS = 4096
#: How much more of an axis a member may get than if it were dealt out evenly, so that less is moved.
UNEVEN = 1.1


def _nearest(sizes: Sequence[int], owned: Sequence[tuple[int, int]]) -> list[int] | None:
    """Return chunks for each member, each to whoever has most of it; None if that is not in order, or too uneven."""
    edges = list(itertools.accumulate(sizes, initial=0))
    chosen = []
    for a, b in itertools.pairwise(edges):
        shared = [max(0, min(b, high) - max(a, low)) for low, high in owned]
        chosen.append(max(range(len(owned)), key=shared.__getitem__))
    loads = [0] * len(owned)
    for member, size in zip(chosen, sizes, strict=True):
        loads[member] += size
    even = _even(len(sizes), len(owned))
    most = max(edges[sum(even[: m + 1])] - edges[sum(even[:m])] for m in range(len(even)))
    if chosen != sorted(chosen) or max(loads) > UNEVEN * most:
        return None
    return [chosen.count(m) for m in range(len(owned))]
