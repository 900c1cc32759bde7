"""Files of saved states: each has the elements of one block and nothing else, and is read if its checksum is right."""

from __future__ import annotations

import mmap
import os
import uuid
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise, product
from math import prod
from typing import Any

import numpy as np

from distarray.errors import StateError
from distarray.kernels.devices import backend_for
from distarray.kernels.files import MAPPED_NBYTES, bytes_of, copy_mapped, let_go
from distarray.kernels.namespaces import Block
from distarray.kernels.stores import Box, slices_of
from distarray.types import HostArray, Shape


@dataclass(frozen=True, eq=False)
class BlockFiles:
    """BlockFiles are the files of an array of which each has one block: its elements, C order, native byte order; a
    `ReadableStore`.

    It is told from another by identity: files stay as long as somebody may read them.

    Parameters
    ----------
    folder
        Absolute; the same on all members.
    array
        The number of the array among those of the folder.
    dtype
        Of the elements.
    boundaries
        Of the blocks, along each axis.
    checksums
        ``zlib.crc32`` of each file, row-major; None: a block without elements has no file.
    """

    folder: str
    array: int
    dtype: np.dtype[Any]
    boundaries: tuple[tuple[int, ...], ...]
    checksums: tuple[int | None, ...]

    grain = None  # blocks have no regular extents

    @property
    def shape(self) -> Shape:
        """Return the shape of the array."""
        return tuple([bounds[-1] for bounds in self.boundaries])

    def path(self, box: Box) -> str:
        """Return the file of the block of a box: named by where it begins."""
        return path_of(self.folder, self.array, box)

    def boxes(self) -> Iterator[tuple[Box, int]]:
        """Yield the global box of each block that has a file, and its checksum."""
        axes = [list(pairwise(bounds)) for bounds in self.boundaries]
        for box, checksum in zip(product(*axes), self.checksums, strict=True):
            if checksum is not None:
                yield box, checksum

    def read(self, box: Box, out: HostArray) -> None:
        """Fill `out` from the files of all blocks that the box meets; each of them is verified whole first."""
        for block, checksum in self.boxes():
            common = [(max(a, c), min(b, d)) for (a, b), (c, d) in zip(box, block, strict=True)]
            if any(lo >= hi for lo, hi in common):
                continue
            into = slices_of(common, [first for first, _ in box])
            part = slices_of(common, [first for first, _ in block])
            extents = tuple([hi - lo for lo, hi in block])
            _read_file(out[into], self.path(block), extents, part, checksum)


def path_of(folder: str, array: int, box: Box) -> str:
    """Return the file of a block of an array in a folder."""
    return ".".join([f"{folder}/{array}", *[str(lo) for lo, _ in box]])


def _read_file(out: HostArray, path: str, extents: tuple[int, ...], part: tuple[Any, ...], checksum: int) -> None:
    """Read a part of the block in a file, which has the checksum or is an error."""
    try:
        fd = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        raise StateError(
            f"{path} is missing: the state that it belongs to was replaced since it was loaded, or is damaged; load "
            "the state again"
        ) from None
    try:
        nbytes = prod(extents) * out.dtype.itemsize
        if os.fstat(fd).st_size != nbytes:
            raise StateError(f"{path} is damaged: it has {os.fstat(fd).st_size} bytes where its state says {nbytes}")
        with mmap.mmap(fd, 0, access=mmap.ACCESS_READ) as mapped:
            found = 0
            with memoryview(mapped) as data:
                for first in range(0, nbytes, MAPPED_NBYTES):
                    found = zlib.crc32(data[first : first + MAPPED_NBYTES], found)
                    let_go(mapped)
            if found != checksum:
                raise StateError(f"{path} is damaged: its checksum is {found:08x} where its state says {checksum:08x}")
            whole: HostArray = np.ndarray(extents, out.dtype, mapped)
            copy_mapped(out, whole[part], mapped)
            del whole
    finally:
        os.close(fd)


def write_file(block: Block, path: str, device: str, member: int) -> int | None:
    """Write a block into a file of its own, safe from a loss of power when it is there under its name.

    Doing it again changes nothing, also while somebody else does it.

    Returns
    -------
    int
        The checksum of the file (``zlib.crc32``); None if the block has no elements, and no file.
    """
    data = bytes_of(backend_for(device, member).to_host(block))
    if not data:
        return None
    partial = f"{path}.{uuid.uuid4().hex}"
    checksum = write_bytes(partial, data)
    os.replace(partial, path)
    return checksum


def write_bytes(path: str, data: memoryview | bytes) -> int:
    """Write a new file, which is on disk when this returns; its checksum (``zlib.crc32``)."""
    with open(path, "xb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    return zlib.crc32(data)
