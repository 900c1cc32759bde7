"""Stores: arrays that lie outside of all processes, read and written box by box by the tasks that need the boxes.

A store is pickled to where its tasks run, so it holds names (of a file, a bucket, a dataset), never what is open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from math import prod
from typing import Any, Protocol, TypeAlias

import numpy as np

from distarray.expr.expr import Expr
from distarray.kernels.devices import backend_for
from distarray.kernels.namespaces import Block
from distarray.types import DType, HostArray, Shape

#: (start, stop) per axis.
Box: TypeAlias = Sequence[tuple[int, int]]

#: Bytes that a store decodes or encodes at a time, if its chunks are smaller: libraries hold a chunk twice meanwhile.
PIECE_NBYTES = 16 << 20


class ReadableStore(Protocol):
    """A ReadableStore is an array outside that is read, and can be pickled.

    It may have a ``place``, the absolute path of a file or folder or an URL: what was read there is kept when this
    process writes there.

    Attributes
    ----------
    shape, dtype
        Of the whole array, dtype in the byte order of the store.
    grain
        Extents of what is read and written as a whole, a chunk or a shard of chunks, which follow each other from
        index 0 of each axis; None where any box costs what it has in bytes.
    """

    @property
    def shape(self) -> Shape: ...
    @property
    def dtype(self) -> DType: ...
    @property
    def grain(self) -> Shape | None: ...

    def read(self, box: Box, out: HostArray) -> None:
        """Fill `out`, which has the shape of the box, is in C order and native, and not empty."""


class Store(ReadableStore, Protocol):
    """A Store is an array outside whose boxes several processes may write at once, if they share no grain."""

    def write(self, box: Box, values: HostArray) -> None:
        """Write a box, which is not empty. Doing it again changes nothing. What is no whole grain is read before."""


def places_read(nodes: Iterable[Expr]) -> list[str]:
    """Return where the stores lie that pending nodes read, of those that have a ``place``."""
    found = [getattr(n.runtime, "place", None) for n in nodes if n.memo is None and n.op.family.is_created]
    return [place for place in found if place]


def meet(place: str, other: str) -> bool:
    """Return whether of two files, folders or URLs one is, or lies in, the other."""
    return f"{place}/".startswith(f"{other}/") or f"{other}/".startswith(f"{place}/")


class SlicedStore:
    """A SlicedStore is an array of another library, or what it has for one, that takes tuples of slices; a `Store`.

    Parameters
    ----------
    array
        Of zarr, h5py or netCDF4, xarray's adapter of a file: travels with the tasks.
    lock
        Held while it is written to; None if it takes several writers.
    """

    __slots__ = ("array", "lock")

    def __init__(self, array: Any, lock: AbstractContextManager[Any] | None = None) -> None:
        self.array = array
        self.lock = lock

    @property
    def shape(self) -> Shape:
        """Return the shape of the array."""
        return tuple(self.array.shape)

    @property
    def dtype(self) -> DType:
        """Return the dtype of the elements."""
        found: DType = np.dtype(self.array.dtype)
        return found

    @property
    def grain(self) -> Shape | None:
        """Return the extents of its shards, or of its chunks, if it has any."""
        extents = getattr(self.array, "shards", None) or getattr(self.array, "chunks", None)
        return extents if isinstance(extents, tuple) and all(isinstance(n, int) for n in extents) else None

    def read(self, box: Box, out: HostArray) -> None:
        """Fill `out` with a box."""
        part = np.asarray(self.array[tuple([slice(lo, hi) for lo, hi in box])])
        if part.shape != out.shape:
            kind = type(self.array).__name__
            raise ValueError(f"{kind} gave {part.shape} for a part of {out.shape} of an array {self.shape}")
        out[...] = part

    def write(self, box: Box, values: HostArray) -> None:
        """Write a box."""
        with self.lock or nullcontext():
            self.array[tuple([slice(lo, hi) for lo, hi in box])] = values


@dataclass(frozen=True, eq=False, slots=True)
class HostMemory:
    """A HostMemory is an array of NumPy in this process that a GPU reads in parts: nobody writes to it."""

    array: HostArray


def _read_store(
    backend: Any, box: Box, shape: Shape, dtype: DType, params: Any, store: ReadableStore | HostMemory
) -> Block:
    if isinstance(store, HostMemory):
        return backend.adopt(store.array[slices_of(box)])  # without a copy on the host
    extents = tuple([hi - lo for lo, hi in box])
    host_backend = backend if backend.xp is np else backend_for("cpu")
    out = host_backend.empty(extents, dtype)
    if 0 not in extents:
        store.read(box, out)
    return backend.adopt(out)


def write_block(block: Block, store: Store, box: Box, device: str, member: int) -> None:
    """Write the block of a box into a store."""
    if block.size:
        store.write(box, backend_for(device, member).to_host(block))


def slices_of(box: Box, origin: Sequence[int] | None = None) -> tuple[Any, ...]:
    """Return the index of a box in the whole array, or in the block that begins at `origin`: an array in any case, and
    a view of NumPy's.
    """
    begins = origin or (0,) * len(box)
    return (*[slice(lo - o, hi - o) for (lo, hi), o in zip(box, begins, strict=True)], ...)


def pieces(box: Box, grain: Sequence[int], itemsize: int, nbytes: int | None = None) -> Iterator[Box]:
    """Yield boxes that make up a box and are cut on the grain only: of so many bytes, or of one grain where that has
    more.

    Examples
    --------
    >>> list(pieces(((1, 7), (0, 4)), (2, 4), 1, 16))
    [((1, 4), (0, 4)), ((4, 7), (0, 4))]
    """
    nbytes = PIECE_NBYTES if nbytes is None else nbytes
    whole = tuple(box)
    if prod([hi - lo for lo, hi in box]) * itemsize > nbytes:
        for axis, (lo, hi) in enumerate(box):
            first, last = lo // grain[axis], -(-hi // grain[axis])
            if last - first > 1:
                middle = (first + last) // 2 * grain[axis]
                for part in ((lo, middle), (middle, hi)):
                    yield from pieces((*whole[:axis], part, *whole[axis + 1 :]), grain, itemsize, nbytes)
                return
    yield whole


#: As `tables.CREATE`.
CREATE: dict[str, Callable[..., Block]] = {"read_store": _read_store}
