"""numpy's ``.npy`` files: each tile is read and written by its own task, in its own bytes of the file.

Nothing goes through the client but the header. On a cluster all workers must see the file under the same path.
"""

from __future__ import annotations

import os
import struct
import zipfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from tokenize import TokenError
from typing import Any, BinaryIO, Literal, TypeAlias, Unpack

import numpy as np

from distarray.arguments import choice
from distarray.array.array import DistArray
from distarray.composed.conversion import asarray
from distarray.composed.placing import WhereAndLayout, spells_where
from distarray.composed.views import as_distarray
from distarray.dtypes import as_dtype
from distarray.expr.affine import restored
from distarray.io.replacing import replacing
from distarray.io.stores import from_store, in_order, to_store
from distarray.kernels.files import FileRange, FileState
from distarray.types import Shape

PathLike: TypeAlias = "str | os.PathLike[str]"

#: The first bytes of archives, that of one without members last.
_ZIPS = (b"PK\x03\x04", b"PK\x05\x06")
#: The first bytes of an array.
_MAGIC = np.lib.format.MAGIC_PREFIX
_Header = tuple[Shape, bool, "np.dtype[Any]"]  # any dtype, also one that we refuse
_READERS: dict[tuple[int, int], Callable[[BinaryIO], _Header]] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


@spells_where
def load(
    file: PathLike | BinaryIO,
    mmap_mode: Literal["r", "c"] | None = None,
    *,
    encoding: Literal["ASCII", "latin1", "bytes"] = "ASCII",
    **where: Unpack[WhereAndLayout],
) -> Any:
    """Return the array in a ``.npy`` file, of any byte order and memory order, or the arrays of an ``.npz`` file.

    Only the header is read here. The elements are read by the tasks that need them, each the part that it needs; the
    file must not change before. Looks at small parts read these; an array that is held is else read once if it fits in
    memory, and ``x.persist()`` reads it now.

    Parameters
    ----------
    file
        Path of the file; on a cluster the same for all workers. An open file is read at the call, by this process, as
        are the compressed arrays of an archive, when they are asked for.
    mmap_mode
        As numpy's; it changes nothing, since files are never read whole.
    encoding
        As numpy's, of text in pickles: it changes nothing.
    team, device, sharding, layout
        Where the array is to live and how it is cut, as for `asarray`.

    Returns
    -------
    DistArray or Archive
        The latter is a mapping of names to arrays.

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
    choice(encoding, ("ASCII", "latin1", "bytes"), "encoding")
    if hasattr(file, "read"):
        read = np.load(file, allow_pickle=False)
        if isinstance(read, np.ndarray):
            return asarray(read, **where)
        members = [(name, read[name]) for name in read.files]
        return Archive({n: partial(bytes if type(m) is bytes else partial(asarray, **where), m) for n, m in members})
    path = os.path.realpath(path_of(file))
    with open(path, "rb") as stream:
        magic = stream.read(4)
        stream.seek(0)
        if magic in _ZIPS:
            return Archive(_members(path, where))
        return _lying(range_at(stream, path), where)


def _lying(found: FileRange, where: WhereAndLayout) -> DistArray:
    """Return an array of a file, in the order of its elements there unless the user says how blocks lie."""
    if not found.fortran_order or where.get("sharding") is not None or where.get("layout") is not None:
        return from_store(found, **where)
    made = from_store(found._replace(shape=found.shape[::-1], fortran_order=False), **where)
    return made._owning(restored(made.shape, tuple(range(made.ndim))[::-1]))


def range_at(stream: BinaryIO, path: str, end: int | None = None) -> FileRange:
    """Return where the array is in a file whose header comes next in `stream`.

    Parameters
    ----------
    end
        Where the bytes of the array end at the latest; by default with the file.
    """
    shape, fortran_order, stored = _header(stream, path)
    offset = stream.tell()
    found = os.fstat(stream.fileno())
    try:
        as_dtype(stored)
    except TypeError as error:
        raise TypeError(f"{path}: {error}") from None
    nbytes = offset + int(np.prod(shape, dtype=object)) * stored.itemsize
    there = found.st_size if end is None else end
    if there < nbytes:
        raise ValueError(f"{path} has {there} bytes, but an array of shape {shape} and {stored} needs {nbytes}")
    return FileRange(shape, stored.str, path, offset, fortran_order, FileState.of(path, found))


class Archive(Mapping[str, Any]):
    """An Archive is the arrays of an ``.npz`` file by name, each made when it is asked for; and the bytes of what else
    is in the file.

    What numpy's `NpzFile` has beside that is there: names that end in ``.npy``, ``files``, ``f.name`` for
    ``["name"]``, ``close()``, ``with``; nothing is kept open.

    Parameters
    ----------
    makers
        What makes each array.
    """

    def __init__(self, makers: Mapping[str, Callable[[], Any]]) -> None:
        self._makers = makers

    @property
    def files(self) -> list[str]:
        """Return the names of the arrays."""
        return list(self._makers)

    @property
    def f(self) -> Attributes:
        """Return what has the arrays as attributes."""
        return Attributes(self)

    def _named(self, name: Any) -> Any:
        return name.removesuffix(".npy") if isinstance(name, str) and name not in self._makers else name

    def __getitem__(self, name: str) -> Any:
        return self._makers[self._named(name)]()

    def __contains__(self, name: object) -> bool:
        return self._named(name) in self._makers

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)

    def close(self) -> None:
        """Do nothing: each array knows its file."""

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Archive({', '.join(self.files)})"


class Attributes:
    """Attributes are the arrays of an archive, each by its name.

    Parameters
    ----------
    archive
        What has them by name.
    """

    def __init__(self, archive: Archive) -> None:
        self._archive = archive

    def __getattr__(self, name: str) -> Any:
        # While a copy is made it has no archive yet, and is asked for what it does not have.
        archive: Archive = object.__getattribute__(self, "_archive")
        try:
            return archive[name]
        except KeyError:
            raise AttributeError(name) from None

    def __dir__(self) -> list[str]:
        return self._archive.files


def _members(path: str, where: WhereAndLayout) -> dict[str, Callable[[], Any]]:
    """Return what makes each array of an archive."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except zipfile.BadZipFile as error:
        raise ValueError(f"{path} is no .npy file and no .npz archive: {error}") from None
    return {m.filename.removesuffix(".npy"): partial(_member, path, m, where) for m in members}


def _is_array(stream: Any) -> bool:
    """Return whether an array begins where a binary file stands, which stays there."""
    begin = stream.tell()
    found: bool = stream.read(len(_MAGIC)) == _MAGIC
    stream.seek(begin)
    return found


def _member(path: str, member: zipfile.ZipInfo, where: WhereAndLayout) -> Any:
    """Return an array of an archive: what is not compressed lies in the file as it would in its own. Of what is no
    array, its bytes.
    """
    with open(path, "rb") as stream:
        if member.compress_type == zipfile.ZIP_STORED:
            stream.seek(member.header_offset)
            # The header that stands before the member: two of its fields are the lengths of what follows it.
            n_name, n_extra = struct.unpack("<26x2H", stream.read(30))
            begin = member.header_offset + 30 + n_name + n_extra
            stream.seek(begin)
            if _is_array(stream):
                return _lying(range_at(stream, path, begin + member.file_size), where)
        with zipfile.ZipFile(stream) as archive, archive.open(member) as packed:
            if not _is_array(packed):
                return packed.read()
            return asarray(np.lib.format.read_array(packed, allow_pickle=False), **where)


def _header(stream: BinaryIO, path: str) -> _Header:
    """Return shape, memory order and dtype; leaves the stream at the first element."""
    try:
        version = np.lib.format.read_magic(stream)
    except ValueError as error:
        raise ValueError(f"{path} is no .npy file ({error}); and no archive") from None
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


def save(file: PathLike | BinaryIO, arr: Any) -> str | None:
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
        to all workers. To an open file this process writes, and has a few MiB at a time.
    arr
        A DistArray, or what `asarray` takes.

    Returns
    -------
    str
        The path of the file; None for an open file.

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
    x = as_distarray(arr)
    if hasattr(file, "write"):
        write_stream(file, x)
        return None
    name = path_of(file)
    name = name if name.endswith(".npy") else name + ".npy"
    with replacing(name) as new:
        fortran_order = x.layout == "F"
        with open(new, "xb") as stream:
            _write_header(stream, x, fortran_order)
            offset = stream.tell()
            stream.truncate(offset + x.nbytes)
        if x.size:
            to_store(x, FileRange(x.shape, x.dtype.str, new, offset, fortran_order, None))
    return name


def write_stream(stream: Any, x: DistArray) -> None:
    """Write an array to an open file as numpy does; this process has a few MiB of it at a time."""
    fortran_order = x.layout == "F"
    _write_header(stream, x, fortran_order)
    for _, values in in_order(x.T if fortran_order else x):
        stream.write(values.tobytes())


def path_of(file: Any) -> str:
    """Return a path as text."""
    try:
        path = os.fspath(file)
    except TypeError:
        raise TypeError(f"{type(file).__name__} is neither a path nor an open binary file") from None
    return os.fsdecode(path)


def _write_header(stream: Any, x: DistArray, fortran_order: bool) -> None:
    header = {"descr": np.lib.format.dtype_to_descr(x.dtype), "fortran_order": fortran_order, "shape": x.shape}
    # numpy takes a later version only for headers of 64 KiB, which structures alone can have.
    np.lib.format.write_array_header_1_0(stream, header)


def savez(file: PathLike | BinaryIO, *args: Any, **kwds: Any) -> None:
    """Write arrays to an ``.npz`` file, as ``numpy.savez`` does: this process writes them, and has a few MiB at a time.

    A path names a file that appears when it is complete. `load` reads its arrays in the tasks, as it does ``.npy``.

    Parameters
    ----------
    file
        Path, to which ``.npz`` is added as numpy does, or an open file.
    *args, **kwds
        Arrays; those without a name are ``arr_0``, ``arr_1`` ...

    Examples
    --------
    >>> import distarray as dx, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     dx.savez(f"{folder}/two.npz", dx.arange(3), b=dx.ones(2))
    ...     found = dx.load(f"{folder}/two.npz")
    ...     print(found.files, found["arr_0"])
    ['b', 'arr_0'] [0 1 2]
    """
    _save_archive(file, args, kwds, zipfile.ZIP_STORED)


def savez_compressed(file: PathLike | BinaryIO, *args: Any, **kwds: Any) -> None:
    """Do what `savez` does, with arrays compressed: `load` reads them in this process, when they are asked for."""
    _save_archive(file, args, kwds, zipfile.ZIP_DEFLATED)


def _save_archive(file: Any, args: tuple[Any, ...], kwds: dict[str, Any], compression: int) -> None:
    named = dict(kwds)
    named.pop("allow_pickle", None)  # numpy's
    for i, value in enumerate(args):
        if f"arr_{i}" in named:
            raise ValueError(f"Cannot use un-named variables and keyword arr_{i}")
        named[f"arr_{i}"] = value
    arrays = {name: as_distarray(value) for name, value in named.items()}
    if hasattr(file, "write"):
        _write_archive(file, arrays, compression)
        return
    name = path_of(file)
    with replacing(name if name.endswith(".npz") else name + ".npz") as new, open(new, "xb") as stream:
        _write_archive(stream, arrays, compression)


def _write_archive(stream: Any, arrays: Mapping[str, DistArray], compression: int) -> None:
    with zipfile.ZipFile(stream, "w", compression) as archive:
        for name, x in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                write_stream(member, x)
