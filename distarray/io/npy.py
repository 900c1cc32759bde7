"""numpy's ``.npy`` files: blocks are read where they are needed and written in place into one file."""

from __future__ import annotations

import os
from typing import Any, Literal

import numpy as np

from distarray.array.array import DistArray
from distarray.array.conversion import asarray, iter_blocks

__all__ = ["load", "save"]


def load(file: str | os.PathLike[str], mmap_mode: Literal["r"] | None = "r", **where: Any) -> DistArray:
    """The array in a ``.npy`` file.

    Parameters
    ----------
    file
        Path of the file.
    mmap_mode
        ``"r"``: the file is mapped and read when tasks read it; it must not change meanwhile. None: read now.
    **where
        ``team=``, ``device=``, ``sharding=``, ``layout=``, as for `asarray`.
    """
    host = np.load(file, mmap_mode=mmap_mode, allow_pickle=False)
    if not isinstance(host, np.ndarray):
        host.close()
        raise ValueError(f"{os.fspath(file)!r} is no .npy file; load the members of an archive with numpy.load")
    return asarray(host, **where)


def save(file: str | os.PathLike[str], arr: Any) -> None:
    """Write an array to a ``.npy`` file, block by block; no more than one block is in this process besides its own.

    As numpy does, ``.npy`` is added to a name without it.
    """
    x = arr if isinstance(arr, DistArray) else asarray(arr)
    path = os.fspath(file)
    if not path.endswith(".npy"):
        path += ".npy"
    if not x.size:
        np.save(path, x.compute())
        return
    # A file beside it, so that an array that was loaded from this path can be saved to it.
    partial = path + ".part"
    out = np.lib.format.open_memmap(partial, mode="w+", dtype=x.dtype, shape=x.shape)
    try:
        for block in iter_blocks(x):
            out[block.global_slices] = block.values
        out.flush()
    finally:
        del out
    os.replace(partial, path)
