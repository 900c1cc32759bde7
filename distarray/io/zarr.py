"""zarr: each task reads the chunks of its tile, and each chunk or shard is written by exactly one task.

A chunk that only part of an array meets (the edge of a region, the end of what is appended to) is read, modified and
written by that task. A `LocalStore` gives a chunk its name when it is complete, object stores do by themselves, and
a task that runs again writes the same bytes: a worker that dies leaves no chunk that is half written.
"""

from __future__ import annotations

import os
import pickle
import warnings
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, Unpack

import numpy as np

from distarray.arguments import choice, normalize_axis, shown
from distarray.array.array import DistArray
from distarray.composed.placing import WhereAndLayout, environment_of, spells_where
from distarray.composed.views import as_distarray
from distarray.expr.expr import Environment
from distarray.io.stores import from_store, read_before, region_of, to_store
from distarray.kernels.stores import Box, pieces, slices_of
from distarray.lazy import import_extra
from distarray.types import DType, HostArray, Shape

#: A store, an URL, a path, a group, an array of zarr: no type is there where zarr is not installed.
StoreLike = Any
Mode = Literal["w", "w-", "a", "r+"]
MODES = ("w", "w-", "a", "r+")


class ZarrStore:
    """A ZarrStore is an array of zarr as a `Store`; many tasks of a process share one.

    Parameters
    ----------
    array
        A ``zarr.Array``.
    """

    __slots__ = ("array", "dtype", "grain", "shape")

    def __init__(self, array: Any) -> None:
        self.array = array
        self.shape: Shape = tuple(array.shape)
        self.dtype: DType = array.dtype
        for name, grid in {"chunks": array.chunks, "shards": array.shards or ()}.items():
            if 0 in [e for e, n in zip(grid, self.shape) if n]:  # zarr makes such an array, and divides by it later
                raise ValueError(f"{name}={grid} of an array of shape {self.shape} at {_place(array)} must be positive")
        self.grain: Shape = tuple([max(1, n) for n in array.shards or array.chunks])

    def __reduce__(self) -> tuple[Any, ...]:
        return _shared, (pickle.dumps(self.array),)

    @property
    def place(self) -> str:
        """Return where it lies."""
        return _place_of(self.array, None)

    def read(self, box: Box, out: HostArray) -> None:
        """Fill `out` with a box, a few chunks at a time."""
        from zarr.core.buffer.cpu import NDBuffer, buffer_prototype

        origin = [lo for lo, _ in box]
        for piece in pieces(box, self.array.chunks, self.dtype.itemsize):
            part = NDBuffer.from_numpy_array(out[slices_of(piece, origin)])
            self.array.get_basic_selection(slices_of(piece), out=part, prototype=buffer_prototype)

    def write(self, box: Box, values: HostArray) -> None:
        """Write a box, a few chunks or one shard at a time."""
        origin = [lo for lo, _ in box]
        for piece in pieces(box, self.grain, self.dtype.itemsize):
            self.array[slices_of(piece)] = values[slices_of(piece, origin)]


@lru_cache(maxsize=64)
def _shared(data: bytes) -> ZarrStore:
    """Return the same store for all tasks of a process that have the same array, whose store keeps its connections."""
    return ZarrStore(pickle.loads(data))


def _zarr() -> Any:
    return import_extra("zarr", "reading and writing zarr stores")


@spells_where
def from_zarr(
    store: StoreLike,
    path: str | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
    **where: Unpack[WhereAndLayout],
) -> DistArray:
    """Return an array of a zarr store.

    Only metadata are read here. The chunks are read by the tasks that need them; tiles are groups of whole chunks, so
    that each is read once. What does not fit in memory streams.

    Parameters
    ----------
    store
        A path, an URL of fsspec, a store, a ``zarr.Group`` or a ``zarr.Array``, of format 2 or 3. On a cluster all
        workers must reach it.
    path
        Path of the array in the store.
    storage_options
        For fsspec.
    team, device, sharding, layout
        Where the array is to live and how it is cut, as for `asarray`.

    Raises
    ------
    FileNotFoundError
        If there is nothing.
    ValueError
        If there is a group: says which arrays it has. If the store is in this process's memory, and the team is not.
    TypeError
        If its elements are of a dtype that a DistArray cannot have.

    Examples
    --------
    >>> import distarray as dx, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> _ = dx.arange(6).to_zarr(folder.name, "numbers", chunks=(4,))
    >>> dx.from_zarr(folder.name, "numbers").sum().item()
    15
    >>> folder.cleanup()
    """
    _zarr()
    _check_reach(store, environment_of(where), writes=False)
    array = _opened(store, path, "r", storage_options)
    try:
        return from_store(ZarrStore(array), **where)
    except TypeError as error:
        raise TypeError(f"{_place(array)}: {error}") from None


def _place(array: Any) -> str:
    return str(array.store_path)


def _place_of(store: StoreLike, path: str | None) -> str:
    """Return the absolute path, or the URL, of an array that is or will be."""
    where, name = (store.store, store.path) if isinstance(store, _zarr().Array) else _target(store, path)
    if hasattr(where, "root"):  # zarr's store of files
        where = os.path.realpath(where.root)
    elif hasattr(where, "fs") and hasattr(where, "path"):  # of fsspec
        protocol = where.fs.protocol if isinstance(where.fs.protocol, str) else where.fs.protocol[0]
        where = f"{protocol}://{str(where.path).lstrip('/')}"
    elif isinstance(where, str) and "://" not in where:
        where = os.path.realpath(where)
    return f"{where}/{name}".rstrip("/")


def _target(store: StoreLike, path: str | None) -> tuple[Any, str]:
    """Return where an array is or will be: what zarr takes as a store, and a path in it."""
    zarr = _zarr()
    name = "" if path is None else path.strip("/")
    if isinstance(store, zarr.Group):
        return store.store, "/".join(filter(None, (store.path, name)))
    if isinstance(store, str | os.PathLike):
        text = os.fspath(store)
        # fsspec would write into the file under its name, zarr's own store gives a chunk its name when it is complete.
        text = text.removeprefix("file://")
        return (text if "://" in text or "::" in text else os.path.abspath(text)), name
    return store, name


def _opened(store: StoreLike, path: str | None, mode: str, options: Mapping[str, Any] | None) -> Any:
    """Return the array that is there."""
    zarr = _zarr()
    if isinstance(store, zarr.Array):
        if path:
            raise ValueError(f"path={path!r} is for stores and groups, but {_place(store)} is an array")
        return store
    where, name = _target(store, path)
    found = zarr.open(where, path=name, mode=mode, storage_options=options)
    if isinstance(found, zarr.Group):
        names = ", ".join(sorted(key for key, _ in found.arrays())[:20]) or "no arrays"
        raise ValueError(f"{_place(found)} is a group with {names}; name one by path=")
    return found


def _check_reach(store: StoreLike, env: Environment, *, writes: bool) -> None:
    """Check that workers and this process mean the same by a store: ValueError if it is this process's alone."""
    if not env.is_cluster:
        return
    from zarr.storage import FsspecStore, MemoryStore, ZipStore

    inner: Any = getattr(store, "store", store)  # of a group or an array
    while hasattr(inner, "_store"):
        inner = inner._store
    is_private = isinstance(inner, MemoryStore | dict) or str(inner).startswith("memory://")
    if isinstance(inner, FsspecStore):
        is_private = "memory" in str(getattr(inner.fs, "protocol", ""))
    # A zip archive has one list of its members, which one process writes.
    if is_private or (writes and isinstance(inner, ZipStore)):
        raise ValueError(
            f"{inner} can be {'written' if writes else 'read'} by one process only, but the tasks run on workers of a "
            "cluster; use a path or an URL that all of them reach, or team=None"
        )


def to_zarr(
    x: Any,
    store: StoreLike,
    path: str | None = None,
    *,
    mode: Mode | None = None,
    region: Any = None,
    append_dim: int | str | None = None,
    chunks: Any = None,
    shards: Any = None,
    codecs: Any = None,
    dimension_names: Sequence[str | None] | None = None,
    attributes: Mapping[str, Any] | None = None,
    consolidated: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    **create: Any,
) -> Any:
    """Write an array into a zarr store, each chunk or shard by the one task that has all of it.

    Computes the array. One that does not fit in memory is computed tile by tile while it is written.

    Parameters
    ----------
    x
        A DistArray, or what `asarray` takes.
    store, path
        As for `from_zarr`: where the array is to be, groups on the way are made; or a ``zarr.Array``.
    mode
        "w-": a new array. "w": a new array, in place of what is there. "r+": into the array that is there. "a": as
        "r+" or, if nothing is there, a new one. By default "r+" with `region` or an array, "a" with `append_dim`, and
        else "w-".
    region
        Slices, one for each axis, or by axis or dimension name in a dict: the part of the array in the store that is
        written. Of chunks that it meets partly the rest stays; two that write at once must not share chunks.
    append_dim
        Axis, or dimension name, at the end of which the array is appended. One at a time may append.
    chunks, shards
        Of a new array; by default zarr chooses.
    codecs
        Of a new array: what ``zarr.create_array`` takes as ``compressors=``, or a dict of ``filters``, ``serializer``
        and ``compressors``.
    dimension_names
        Of a new array.
    attributes
        Set on the array, those of other names stay.
    consolidated
        Whether to write the metadata of all arrays at the root of the store, so that a group opens at once.
    storage_options
        For fsspec.
    **create
        ``fill_value=``, ``order=``, ``zarr_format=`` ..., for ``zarr.create_array``.

    Returns
    -------
    zarr.Array
        The array in the store.

    Raises
    ------
    ValueError
        If there is an array already or none, the shape does not fit what is written to, or other processes cannot
        write to the store.
    TypeError
        If elements would lose what they are (``same_kind``).
    MemoryBudgetError
        If no member can hold a chunk or shard. A new array that fails is removed, an array that was appended to gets
        its shape back.
    """
    _zarr()
    x = as_distarray(x)
    given = dict(chunks=chunks, shards=shards, dimension_names=dimension_names, **_codecs(codecs), **create)
    given = {name: value for name, value in given.items() if value is not None}
    way = _mode(store, mode, region, append_dim)
    _check_reach(store, x._env, writes=True)
    read_before(x, _place_of(store, path))
    if way == "w":  # what is refused leaves the array that it would have replaced
        given = _with_format(given, store, path, storage_options)
        trial, _ = _array_for(x, _zarr().storage.MemoryStore(), None, "w-", given, attributes, None)
        to_store(x, ZarrStore(trial), is_checked_only=True)
    array, is_new = _array_for(x, store, path, way, given, attributes, storage_options)
    before = tuple(array.shape)
    try:
        if not np.can_cast(x.dtype, array.dtype, "same_kind"):
            raise TypeError(f"to_zarr: {x.dtype} cannot be cast to the {array.dtype} of {_place(array)}; use x.astype")
        origin = _origin(x, array, region, None if is_new else append_dim)
        if attributes and not is_new:
            array.update_attributes(dict(attributes))
        to_store(x, ZarrStore(array), origin)
    except BaseException:
        _undo(array, before, is_new=is_new)
        raise
    if consolidated:
        _consolidate(array)
    return array


def _codecs(codecs: Any) -> dict[str, Any]:
    if isinstance(codecs, Mapping):
        return {
            choice(name, ("filters", "serializer", "compressors"), "codecs"): given for name, given in codecs.items()
        }
    return {} if codecs is None else {"compressors": codecs}


def _mode(store: StoreLike, mode: Mode | None, region: Any, append_dim: int | str | None) -> str:
    into_array = isinstance(store, _zarr().Array)
    if region is not None and append_dim is not None:
        raise ValueError("to_zarr: region= and append_dim= exclude each other")
    if mode is None:
        return "r+" if region is not None or into_array else "a" if append_dim is not None else "w-"
    choice(mode, MODES, "mode")
    if (
        (region is not None and mode != "r+")
        or (mode == "w" and append_dim is not None)
        or (into_array and mode != "r+")
    ):
        raise ValueError(
            f"to_zarr: mode={mode!r} makes an array, but region=, append_dim= or an array says to write into one"
        )
    return mode


def _array_for(
    x: DistArray,
    store: StoreLike,
    path: str | None,
    mode: str,
    given: Mapping[str, Any],
    attributes: Mapping[str, Any] | None,
    options: Mapping[str, Any] | None,
) -> tuple[Any, bool]:
    """Return the array that is written to, and whether it was made for that."""
    zarr = _zarr()
    if mode in ("r+", "a"):
        try:
            found = _opened(store, path, "r+", options)
        except FileNotFoundError:
            if mode == "r+":
                raise
        else:
            if given:
                raise ValueError(f"to_zarr: {', '.join(given)}= are for new arrays, but {_place(found)} is there")
            return found, False
    where, name = _target(store, path)
    own = dict(attributes) if attributes else None
    given = _with_format(given, store, path, options)
    try:
        made = zarr.create_array(
            where, name=name or None, shape=x.shape, dtype=x.dtype, attributes=own, overwrite=mode == "w",
            storage_options=options, **given,
        )  # fmt: skip
    except (zarr.errors.ContainsArrayError, zarr.errors.ContainsGroupError) as error:
        raise ValueError(
            f"to_zarr: {error} mode='w' replaces it; region=, append_dim= or mode='r+' write into an array"
        ) from None
    return made, True


def _with_format(
    given: Mapping[str, Any], store: StoreLike, path: str | None, options: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return options of a new array with the format of the group in which it is made, unless they say or there is none.

    Of groups of two formats in one place zarr would open the newer ones, and not find the arrays of the others.
    """
    zarr = _zarr()
    group = store
    if not isinstance(group, zarr.Group):
        where, name = _target(store, path)
        if "zarr_format" in given or not name:
            return dict(given)
        try:
            group = zarr.open_group(where, mode="r", storage_options=options)
        except (FileNotFoundError, zarr.errors.ContainsArrayError):
            return dict(given)
    return {"zarr_format": group.metadata.zarr_format, **given}


def _axis(array: Any, name: int | str, parameter: str) -> int:
    if not isinstance(name, str):
        return normalize_axis(name, array.ndim, parameter)
    names = getattr(array.metadata, "dimension_names", None) or ()
    if name not in names:
        raise ValueError(f"to_zarr: {parameter}={name!r} is no dimension of {_place(array)}, which has {shown(names)}")
    return int(names.index(name))


def _origin(x: DistArray, array: Any, region: Any, append_dim: int | str | None) -> Shape:
    """Return where `x` begins in an array, which is made longer if `x` is appended."""
    shape = tuple(array.shape)
    begins = [0] * len(shape)
    fits = shape
    if append_dim is not None and x.ndim == len(shape):
        axis = _axis(array, append_dim, "append_dim")
        begins[axis] = shape[axis]
        fits = (*shape[:axis], x.shape[axis], *shape[axis + 1 :])
        if x.shape == fits:
            array.resize((*shape[:axis], shape[axis] + x.shape[axis], *shape[axis + 1 :]))
    elif region is not None:
        bounds = _region(array, region)
        begins = [lo for lo, _ in bounds]
        fits = tuple([hi - lo for lo, hi in bounds])
    if x.shape != fits:
        raise ValueError(f"to_zarr: an array of shape {x.shape} does not fit {fits} of {_place(array)}, {shape}")
    return tuple(begins)


def _region(array: Any, region: Any) -> list[tuple[int, int]]:
    """Return (start, stop) per axis."""
    if isinstance(region, Mapping):
        by_axis = {_axis(array, name, "region"): entry for name, entry in region.items()}
        region = tuple([by_axis.get(axis, slice(None)) for axis in range(array.ndim)])
    return region_of(region, tuple(array.shape))


def _undo(array: Any, before: Shape, *, is_new: bool) -> None:
    """Remove an array that was not finished, or give one its shape back."""
    from zarr.core.sync import sync  # what zarr's own synchronous functions are made of

    if is_new:
        sync(array.store_path.delete_dir())
    elif tuple(array.shape) != before:
        array.resize(before)


def _consolidate(array: Any) -> None:
    with warnings.catch_warnings():
        # That the format does not specify it is what the user chose.
        warnings.filterwarnings("ignore", "Consolidated metadata is currently not part", UserWarning)
        _zarr().consolidate_metadata(array.store)
