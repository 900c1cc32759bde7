"""Arrays that lie in files: read where they are needed, like any array that is made from the global index.

Which bytes an element has is a run-time parameter (`FileRange`, `BlockFiles`), so the files of a series have one plan.
Unlike other created arrays these are worth keeping, and reading them may fail.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any, NamedTuple

import numpy as np

from distarray.dtypes import as_dtype
from distarray.expr.bind import bind_create
from distarray.expr.expr import Environment, Expr
from distarray.expr.op import declare
from distarray.sharding.sharding import Sharding
from distarray.types import DType, Shape

__all__ = ["BlockFiles", "FileRange", "load_blocks", "load_npy"]

#: The (start, stop) of a block along each axis.
Box = tuple[tuple[int, int], ...]

#: runtime: `FileRange`
LOAD_NPY = declare("load_npy", "create")
#: runtime: `BlockFiles`
LOAD_BLOCKS = declare("load_blocks", "create")


class FileRange(NamedTuple):
    """The contiguous bytes of an array in a file.

    Parameters
    ----------
    path
        Absolute; the same on all members.
    offset
        Of the first element, in bytes.
    dtype
        As numpy's text, with the byte order of the file.
    fortran_order
        Whether the first axis varies fastest.
    mtime_ns, size
        Of the file when it was looked at: a file that has others by the time it is read has changed.
    """

    path: str
    offset: int
    dtype: str
    fortran_order: bool
    mtime_ns: int
    size: int


@dataclass(frozen=True, eq=False)
class BlockFiles:
    """The files of an array of which each has one block: its elements, C order, native byte order, and nothing else.

    It is told from another by identity: files stay as long as somebody may read them.

    Parameters
    ----------
    folder
        Absolute; the same on all members.
    array
        The number of the array among those of the folder.
    boundaries
        Of the blocks, along each axis.
    checksums
        ``zlib.crc32`` of each file, row-major; None: a block without elements has no file.
    """

    folder: str
    array: int
    boundaries: tuple[tuple[int, ...], ...]
    checksums: tuple[int | None, ...]

    def path(self, box: Box) -> str:
        """Return the file of the block of a box: named by where it begins."""
        return ".".join([f"{self.folder}/{self.array}", *[str(lo) for lo, _ in box]])

    def boxes(self) -> Iterator[tuple[Box, int]]:
        """Yield the global box of each block that has a file, and its checksum."""
        axes = [list(pairwise(bounds)) for bounds in self.boundaries]
        for box, checksum in zip(product(*axes), self.checksums, strict=True):
            if checksum is not None:
                yield box, checksum


def load_blocks(shape: Shape, dtype: DType, files: BlockFiles, env: Environment, pin: Sharding | None = None) -> Expr:
    """Return the array of `shape` whose blocks are in files."""
    return bind_create(LOAD_BLOCKS, shape, dtype, env, (), files, pin)


def load_npy(shape: Shape, where: FileRange, env: Environment, pin: Sharding | None = None) -> Expr:
    """Return the array of `shape` in a file, in native byte order.

    Raises
    ------
    TypeError
        If distarray does not have the dtype.
    """
    dtype: np.dtype[Any] = as_dtype(where.dtype).newbyteorder("=")
    return bind_create(LOAD_NPY, shape, dtype, env, (), where, pin)
