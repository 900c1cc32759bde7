"""numpy's ``.npy`` files: each tile is read and written by its own task, in its own bytes of the file.

Nothing goes through the client but the header. On a cluster all workers must see the file under the same path.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import uuid
from collections.abc import Callable
from tokenize import TokenError
from typing import Any, BinaryIO, Literal, TypeAlias

import numpy as np

from distarray.array.array import DistArray
from distarray.array.environment import TeamLike
from distarray.composed.conversion import asarray
from distarray.dtypes import as_dtype
from distarray.io.stores import from_store, to_store
from distarray.kernels.files import FileRange, FileState
from distarray.sharding.layout import LayoutLike
from distarray.sharding.spec import ShardingLike
from distarray.types import DType, Shape

__all__ = ["load", "save"]

PathLike: TypeAlias = "str | os.PathLike[str]"

_Header = tuple[Shape, bool, "np.dtype[Any]"]  # any dtype, also one that we refuse
_READERS: dict[tuple[int, int], Callable[[BinaryIO], _Header]] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def load(
    file: PathLike,
    mmap_mode: Literal["r", "c"] | None = None,
    *,
    team: TeamLike = "current",
    device: str | None = None,
    sharding: ShardingLike = None,
    layout: LayoutLike | None = None,
) -> DistArray:
    """Return the array in a ``.npy`` file, of any byte order and either memory order.

    Only the header is read here. The elements are read by the tasks that need them, each the part that it needs; the
    file must not change before. An array that is held is read once if it fits in memory; ``x.persist()`` reads it now.

    Parameters
    ----------
    file
        Path of the file; on a cluster the same for all workers.
    mmap_mode
        As numpy's; it changes nothing, since files are never read whole.
    team, device, sharding, layout
        Where the array is to live and how it is cut, as for `asarray`.

    Raises
    ------
    OSError
        If there is no such file; when elements are computed, if it has changed.
    ValueError
        If it is no ``.npy`` file, its header is malformed, or it is shorter than its header says.
    TypeError
        If its elements are objects, structures or text.
    """
    if mmap_mode not in (None, "r", "c"):
        raise ValueError(f"load: mmap_mode={mmap_mode!r} would write to the file; use dx.save(path, x)")
    path = os.path.realpath(_path(file))
    with open(path, "rb") as stream:
        shape, fortran_order, stored = _header(stream, path)
        offset = stream.tell()
        found = os.fstat(stream.fileno())
    try:
        as_dtype(stored)
    except TypeError as error:
        raise TypeError(f"{path}: {error}") from None
    nbytes = offset + int(np.prod(shape, dtype=object)) * stored.itemsize
    if found.st_size < nbytes:
        raise ValueError(f"{path} has {found.st_size} bytes, but an array of shape {shape} and {stored} needs {nbytes}")
    where = FileRange(shape, stored.str, path, offset, fortran_order, FileState.of(path, found))
    return from_store(where, team=team, device=device, sharding=sharding, layout=layout)


def _header(stream: BinaryIO, path: str) -> _Header:
    """Shape, memory order and dtype; leaves the stream at the first element."""
    try:
        version = np.lib.format.read_magic(stream)
    except ValueError as error:
        raise ValueError(f"{path} is no .npy file ({error}); numpy.load reads archives (.npz)") from None
    reader = _READERS.get(version)
    if reader is None:
        # Version 3 is there for names of fields that are not latin-1.
        raise TypeError(f"{path} is of version {version} of the format, for structures, which are not supported")
    try:
        header = reader(stream)
    except (
        ValueError,
        TypeError,
        SyntaxError,
        RecursionError,
        MemoryError,
        TokenError,
    ) as error:  # no literal
        raise ValueError(f"{path} is no .npy file: {' '.join(str(error).split())[:200]}") from None
    shape = header[0]
    if any(type(n) is not int or n < 0 for n in shape):
        raise ValueError(f"{path} is no .npy file: its header says that the array has the shape {shape}")
    return header


def save(file: PathLike, arr: Any) -> str:
    """Write an array to a ``.npy`` file, each tile from where it lies into its place in the file.

    Computes the array. One that does not fit in memory is computed tile by tile while it is written. The file appears
    under its name when it is complete, and not at all after a failure. A file that was there keeps its mode; if it has
    other hard links, the array is copied into it when it is complete, and is seen under all of its names. If this copy
    fails, the file is overwritten in part, and the array is in the file beside it that the error names. Blocks of
    layout F make a file in Fortran order.

    Parameters
    ----------
    file
        Path of the file; as numpy does, ``.npy`` is added to a name without it. On a cluster it must mean the same file
        to all workers.
    arr
        A DistArray, or what `asarray` takes.

    Returns
    -------
    str
        The path of the file.

    Raises
    ------
    OSError
        If there is no such folder, or what is there under the name cannot be written to. Nothing is computed then.

    Examples
    --------
    >>> import distarray as dx, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = dx.save(f"{folder}/squares.npy", dx.arange(4) ** 2)
    ...     print(dx.load(path))
    [0 1 4 9]
    """
    name = _path(file)
    name = name if name.endswith(".npy") else name + ".npy"
    # A link stays one, as when it is opened for writing.
    path = os.path.realpath(name)
    old = _to_replace(path)
    x = arr if isinstance(arr, DistArray) else asarray(arr)
    fortran_order = x.layout == "F"
    partial = os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.{uuid.uuid4().hex}.part")
    try:
        offset = _create(partial, x.shape, x.dtype, fortran_order)
        if x.size:
            to_store(x, FileRange(x.shape, x.dtype.str, partial, offset, fortran_order, None))
        _put_in_place(partial, path, old)
    except _HalfCopied as half:
        raise half.error from None
    except BaseException:
        if os.path.exists(partial):
            os.unlink(partial)
        raise
    return name


class _HalfCopied(BaseException):
    """Copying over the old file has begun and failed: the complete file beside it is the only whole one."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


def _to_replace(path: str) -> os.stat_result | None:
    """Return the file that is there under the name of the new one; None if there is none.

    Raises
    ------
    OSError
        If it cannot be written to, or there is no folder for it.
    """
    try:
        old = os.stat(path)
    except FileNotFoundError:
        if os.path.isdir(os.path.dirname(path)):
            return None
        raise
    if stat.S_ISDIR(old.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
    return old


def _put_in_place(partial: str, path: str, old: os.stat_result | None) -> None:
    """Give a complete file its name.

    Raises
    ------
    _HalfCopied
        If the complete file is still there and must stay.
    """
    if old is not None and old.st_nlink > 1:
        # Another file under this name would leave the other names with the old array.
        with open(partial, "rb") as source, open(path, "r+b") as target:
            try:
                shutil.copyfileobj(source, target, 1 << 20)
                target.truncate()
                target.flush()
            except OSError as error:
                said = f"{error.strerror or error}: {path} is overwritten in part; the whole array is in {partial}"
                raise _HalfCopied(OSError(error.errno, said) if error.errno else OSError(said)) from None
            except BaseException as error:
                error.add_note(f"{path} is overwritten in part; the whole array is in {partial}")
                raise _HalfCopied(error) from None
        os.unlink(partial)
        return
    if old is not None:
        os.chmod(partial, stat.S_IMODE(old.st_mode))
    os.replace(partial, path)


def _path(file: Any) -> str:
    try:
        path = os.fspath(file)
    except TypeError:
        raise TypeError(
            f"{type(file).__name__} is no path: every task opens the file by itself; use numpy.load and numpy.save for "
            "streams"
        ) from None
    return os.fsdecode(path)


def _create(path: str, shape: Shape, dtype: DType, fortran_order: bool) -> int:
    """Make a file of the final size with the header of such an array, and return the offset of its first element."""
    header = {
        "descr": np.lib.format.dtype_to_descr(dtype),
        "fortran_order": fortran_order,
        "shape": shape,
    }
    with open(path, "xb") as stream:
        # numpy takes a later version only for headers of 64 KiB, which structures alone can have.
        np.lib.format.write_array_header_1_0(stream, header)
        offset = stream.tell()
        stream.truncate(offset + int(np.prod(shape, dtype=object)) * dtype.itemsize)
    return offset
