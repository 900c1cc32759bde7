"""Bytes of files as stores: each box is read from and written to its own ranges.

A file is opened for each block, so that nothing of it stays open between tasks, and members share nothing but its path.
"""

from __future__ import annotations

import mmap
import os
from typing import Any, NamedTuple

import numpy as np

from distarray.kernels.stores import Box, slices_of
from distarray.sharding.boxes import IndexRuns
from distarray.types import HostArray, Shape

#: Bytes of a file that are mapped and read at a time.
MAPPED_NBYTES = 4 << 20


class FileState(NamedTuple):
    """A FileState tells whether a file is still the one that was looked at.

    Parameters
    ----------
    path
        Absolute; the same on all members.
    mtime_ns, size
        When it was looked at.
    """

    path: str
    mtime_ns: int
    size: int

    @classmethod
    def of(cls, path: str, found: os.stat_result | None = None) -> FileState:
        """Return the state of the file at an absolute path."""
        found = os.stat(path) if found is None else found
        return cls(path, found.st_mtime_ns, found.st_size)

    def check(self, found: os.stat_result | None = None) -> None:
        """Check that the file is as it was.

        Raises
        ------
        OSError
            If it is another.
        """
        now = FileState.of(self.path, found)
        if now != self:
            raise OSError(
                f"{self.path} has changed since the array was defined from it, when it had {self.size} bytes and was "
                f"written at {self.mtime_ns} ns; it has {now.size}, written at {now.mtime_ns} ns. Load it again; "
                "x.persist() reads an array before its file changes"
            )


class FileRange(NamedTuple):
    """A FileRange is the contiguous bytes of an array in a file; a `Store` that has no grain.

    Parameters
    ----------
    shape
        Of the array.
    text
        Its dtype as numpy's text, with the byte order of the file.
    path
        Absolute; the same on all members.
    offset
        Of the first element, in bytes.
    fortran_order
        Whether the first axis varies fastest.
    state
        Of the file when it was looked at; None where it is being written.
    """

    shape: Shape
    text: str
    path: str
    offset: int
    fortran_order: bool
    state: FileState | None

    @property
    def dtype(self) -> np.dtype[Any]:
        """Return the dtype of the elements in the file."""
        return np.dtype(self.text)

    @property
    def place(self) -> str:
        """Return where it lies."""
        return self.path

    @property
    def grain(self) -> None:
        """Return that any box is read alone."""

    def read(self, box: Box, out: HostArray) -> None:
        """Fill `out` with a box, through a mapping that holds a few pages at a time."""
        with open(self.path, "rb", buffering=0) as file:
            if self.state is not None:
                self.state.check(os.fstat(file.fileno()))
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
                order: Any = "F" if self.fortran_order else "C"
                whole = np.ndarray(self.shape, self.text, mapped, self.offset, order=order)
                # Copied: a view would hold the mapping, and a file that is cut short under it kills the process.
                part = whole[slices_of(box)]
                copy_mapped(*((out.T, part.T) if self.fortran_order else (out, part)), mapped)
                del whole, part

    def write(self, box: Box, values: HostArray) -> None:
        """Write a box into its bytes of a file that is there already.

        Written by ranges, not through a mapping: several hosts may write one page, and a full disk is then an error
        and no signal.
        """
        shape = self.shape
        if self.fortran_order:
            # The same bytes, seen with the axes reversed.
            values, shape, box = values.T, shape[::-1], box[::-1]
        data = bytes_of(np.asarray(values, self.dtype))
        itemsize = self.dtype.itemsize
        fd = os.open(self.path, os.O_WRONLY)
        try:
            runs = IndexRuns.of(box, shape)
            nbytes = runs.length * itemsize
            for k, first in enumerate(runs):
                _write(fd, data[k * nbytes : (k + 1) * nbytes], self.offset + first * itemsize)
        finally:
            os.close(fd)


def copy_mapped(out: HostArray, part: HostArray, mapped: mmap.mmap) -> None:
    """Copy a part of a mapped file, a few pages at a time.

    Pages that were touched count as memory of the process, at which a cluster ends it: those between the rows of a
    narrow part, too.
    """
    if part.ndim and len(part) * part.strides[0] > MAPPED_NBYTES:
        n_rows = MAPPED_NBYTES // part.strides[0]
        for i in range(len(part)) if n_rows < 2 else range(0, len(part), n_rows):
            at = i if n_rows < 2 else slice(i, i + n_rows)
            copy_mapped(out[at], part[at], mapped)
    else:
        out[...] = part
        let_go(mapped)


def let_go(mapped: mmap.mmap) -> None:
    """Have the pages that were read no longer count as memory of this process."""
    if hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED)


def bytes_of(host: HostArray) -> memoryview:
    """Return the bytes of a host array in C order: dates have no buffer of their own."""
    return memoryview(np.ascontiguousarray(host).reshape(-1).view(np.uint8))  # type: ignore[arg-type]  # arrays are buffers


def _write(fd: int, data: memoryview, offset: int) -> None:
    while data:
        n = os.pwrite(fd, data, offset)
        data, offset = data[n:], offset + n
