"""Raw binary files: numbers and nothing else, in numpy's spelling; each task reads and writes its own bytes."""

from __future__ import annotations

import os
from typing import Any, Unpack

import numpy as np

from distarray.arguments import integer
from distarray.array.array import DistArray
from distarray.composed.conversion import asarray
from distarray.composed.placing import WhereAndLayout, spells_where
from distarray.dtypes import as_dtype
from distarray.io.npy import path_of
from distarray.io.replacing import replacing
from distarray.io.stores import from_store, in_order, to_store
from distarray.kernels.files import FileRange, FileState
from distarray.types import DTypeLike


@spells_where
def fromfile(
    file: Any,
    dtype: DTypeLike = float,
    count: int = -1,
    sep: str = "",
    offset: int = 0,
    **where: Unpack[WhereAndLayout],
) -> DistArray:
    """Return the numbers in a binary file, as a vector; reshape it for other shapes.

    They are read by the tasks that need them. Text (`sep`) and open files are read at the call, by this process.

    Parameters
    ----------
    file
        Path, on a cluster the same for all workers; or an open file.
    dtype
        Of the numbers, in any byte order.
    count
        How many; -1 for all that are there.
    sep, offset
        numpy's; `offset` in bytes.
    team, device, sharding, layout
        Where the array is to live and how it is cut, as for `asarray`.

    Raises
    ------
    OSError
        If there is no such file; when elements are computed, if it has changed.

    Examples
    --------
    >>> import distarray as dx, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     dx.arange(6).tofile(f"{folder}/x")
    ...     print(dx.fromfile(f"{folder}/x", int, offset=16).reshape(2, 2))
    [[2 3]
     [4 5]]
    """
    as_dtype(dtype)
    if sep or not isinstance(file, str | bytes | os.PathLike):
        return asarray(np.fromfile(file, dtype, count, sep, offset), **where)
    path = os.path.realpath(path_of(file))
    state = FileState.of(path)
    stored, begin = np.dtype(dtype), integer(offset, "offset")
    if not begin >= 0:
        raise ValueError(f"fromfile: offset={begin} must not be negative")
    there = max(0, state.size - begin) // stored.itemsize
    n = integer(count, "count")
    return from_store(FileRange(((there if n < 0 else min(n, there)),), stored.str, path, begin, False, state), **where)


def tofile(x: DistArray, fid: Any, sep: str = "", format: str = "%s") -> None:
    """Write the elements in C order, as ``numpy.ndarray.tofile`` does; the same as ``x.tofile(...)``.

    To a path each task writes its own bytes, and the file appears when it is complete. To an open file this process
    writes, a few MiB at a time; text (`sep`) needs all elements here, within the limits of ``np.asarray``.
    """
    if sep:
        np.asarray(x).tofile(fid, sep, format)
    elif hasattr(fid, "write"):
        for _, values in in_order(x):
            fid.write(values.tobytes())
    else:
        with replacing(path_of(fid)) as new:
            with open(new, "xb") as stream:
                stream.truncate(x.nbytes)
            if x.size:
                to_store(x, FileRange(x.shape, x.dtype.str, new, 0, False, None))
