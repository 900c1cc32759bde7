"""Blocks read from and written to files, on the member that holds them.

A file is opened for each block, so that nothing of it stays open between tasks, and members share nothing but its path.
"""

from __future__ import annotations

import mmap
import os
import uuid
import zlib
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from distarray.errors import StateError
from distarray.kernels.devices import backend_for
from distarray.sharding.boxes import runs

__all__ = ["CREATE", "write_block", "write_file"]

#: Bytes of a file that are mapped and read at a time.
MAPPED_NBYTES = 4 << 20

Block = Any  # of any backend
Bounds = Sequence[tuple[int, int]]


def _load_npy(backend: Any, box: Bounds, shape: tuple[int, ...], dtype: Any, params: Any, runtime: Any) -> Block:
    extents = tuple([hi - lo for lo, hi in box])
    host_backend = backend if backend.xp is np else backend_for("cpu")
    out = host_backend.empty(extents, dtype)
    if 0 in extents:
        return backend.adopt(out)
    path, offset, stored, fortran_order, mtime_ns, size = runtime
    fd = os.open(path, os.O_RDONLY)
    try:
        found = os.fstat(fd)
        if (found.st_mtime_ns, found.st_size) != (mtime_ns, size):
            raise OSError(
                f"{path} has changed since the array was defined from it, when it had {size} bytes and was written at "
                f"{mtime_ns} ns; it has {found.st_size}, written at {found.st_mtime_ns} ns. Load it again; x.persist() "
                "reads an array before its file changes"
            )
        with mmap.mmap(fd, 0, access=mmap.ACCESS_READ) as mapped:
            whole = np.ndarray(shape, stored, mapped, offset, order="F" if fortran_order else "C")
            # Copied: a view would hold the mapping, and a file that is cut short under it kills the process.
            part = whole[tuple([slice(lo, hi) for lo, hi in box])]
            _copy(*((out.T, part.T) if fortran_order else (out, part)), mapped)
            del whole, part
    finally:
        os.close(fd)
    return backend.adopt(out)


def _copy(out: Block, part: Block, mapped: mmap.mmap) -> None:
    """Copy a part of a mapped file, a few pages at a time.

    Pages that were touched count as memory of the process, at which a cluster ends it: those between the rows of a
    narrow part, too.
    """
    if part.ndim and len(part) * part.strides[0] > MAPPED_NBYTES:
        n_rows = MAPPED_NBYTES // part.strides[0]
        for i in range(len(part)) if n_rows < 2 else range(0, len(part), n_rows):
            at = i if n_rows < 2 else slice(i, i + n_rows)
            _copy(out[at], part[at], mapped)
    else:
        out[...] = part
        _let_go(mapped)


def _let_go(mapped: mmap.mmap) -> None:
    """Have the pages that were read no longer count as memory of this process."""
    if hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED)


def _bytes_of(host: Block) -> memoryview:
    """Return the bytes of a host array in C order: dates have no buffer of their own."""
    return memoryview(np.ascontiguousarray(host).reshape(-1).view(np.uint8))  # type: ignore[arg-type]  # arrays are buffers


def _load_blocks(backend: Any, box: Bounds, shape: tuple[int, ...], dtype: Any, params: Any, runtime: Any) -> Block:
    """Read a box out of the files of all blocks that it meets; each of them is verified whole first."""
    host_backend = backend if backend.xp is np else backend_for("cpu")
    out = host_backend.empty(tuple([hi - lo for lo, hi in box]), dtype)
    for block, checksum in runtime.boxes():
        common = [(max(a, c), min(b, d)) for (a, b), (c, d) in zip(box, block, strict=True)]
        if any(lo >= hi for lo, hi in common):
            continue
        into = tuple([slice(lo - first, hi - first) for (lo, hi), (first, _) in zip(common, box)])
        part = tuple([slice(lo - first, hi - first) for (lo, hi), (first, _) in zip(common, block)])
        extents = tuple([hi - lo for lo, hi in block])
        _read_file(out[(*into, ...)], runtime.path(block), extents, part, checksum)
    return backend.adopt(out)


def _read_file(out: Block, path: str, extents: tuple[int, ...], part: tuple[slice, ...], checksum: int) -> None:
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
                    _let_go(mapped)
            if found != checksum:
                raise StateError(f"{path} is damaged: its checksum is {found:08x} where its state says {checksum:08x}")
            whole: Block = np.ndarray(extents, out.dtype, mapped)
            _copy(out, whole[(*part, ...)], mapped)
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
    data = _bytes_of(backend_for(device, member).to_host(block))
    if not data:
        return None
    partial = f"{path}.{uuid.uuid4().hex}"
    with open(partial, "xb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(partial, path)
    return zlib.crc32(data)


def write_block(
    block: Block,
    path: str,
    offset: int,
    shape: tuple[int, ...],
    box: Bounds,
    fortran_order: bool,
    device: str,
    member: int,
) -> None:
    """Write the block of a global box into its bytes of a file that is there already.

    Written by ranges, not through a mapping: several hosts may write one page, and a full disk is then an error and no
    signal. Doing it again changes nothing.

    Parameters
    ----------
    offset
        Of the first element of the whole array, in bytes.
    shape
        Of the whole array.
    """
    host = backend_for(device, member).to_host(block)
    if fortran_order:
        # The same bytes, seen with the axes reversed.
        host, shape, box = host.T, shape[::-1], box[::-1]
    data = _bytes_of(host)
    itemsize = host.dtype.itemsize
    done = 0
    fd = os.open(path, os.O_WRONLY)
    try:
        for first, n in runs(box, shape):
            _write(fd, data[done : done + n * itemsize], offset + first * itemsize)
            done += n * itemsize
    finally:
        os.close(fd)


def _write(fd: int, data: memoryview, offset: int) -> None:
    while data:
        n = os.pwrite(fd, data, offset)
        data, offset = data[n:], offset + n


#: As `tables.CREATE`.
CREATE: dict[str, Callable[..., Block]] = {"load_blocks": _load_blocks, "load_npy": _load_npy}
