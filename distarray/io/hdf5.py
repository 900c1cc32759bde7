"""HDF5, by h5py: every task opens the file by itself and reads the chunks of its tile; this process alone writes."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any, NamedTuple, Unpack

from distarray.array.array import DistArray
from distarray.composed.placing import WhereAndLayout, spells_where
from distarray.composed.views import as_distarray
from distarray.io.replacing import replacing
from distarray.io.stores import from_store, in_order, read_before
from distarray.kernels.files import FileState
from distarray.kernels.stores import Box, pieces, slices_of
from distarray.lazy import import_extra
from distarray.types import DType, HostArray, Shape


class DatasetStore(NamedTuple):
    """A DatasetStore is a dataset of an HDF5 file as a `ReadableStore`.

    A file that stays open could be written by nobody, so it is opened for each block: that takes less than a
    millisecond.

    Parameters
    ----------
    state
        Of the file when it was looked at.
    name
        Of the dataset.
    shape, dtype, grain
        As a store has them; no grain where the dataset is not chunked.
    """

    state: FileState
    name: str
    shape: Shape
    dtype: DType
    grain: Shape | None

    @property
    def place(self) -> str:
        """Return where it lies."""
        return self.state.path

    def read(self, box: Box, out: HostArray) -> None:
        """Fill `out` with a box, a few chunks at a time."""
        self.state.check()
        origin = [lo for lo, _ in box]
        with _h5py().File(self.state.path, "r") as file:
            dataset = file[self.name]
            for piece in pieces(box, self.grain or (1,) * len(box), self.dtype.itemsize):
                part = out[slices_of(piece, origin)]
                # What h5py has no way to fill in place: booleans, and what is not native.
                part[...] = dataset[slices_of(piece)]


def _store_of(dataset: Any, state: FileState) -> DatasetStore:
    if dataset.shape is None:
        raise TypeError(f"{state.path}, {dataset.name}: the dataset has no elements, and no shape")
    return DatasetStore(state, dataset.name, dataset.shape, dataset.dtype, dataset.chunks)


def _h5py() -> Any:
    return import_extra("h5py", "reading and writing HDF5 files", "hdf5")


@spells_where
def from_hdf5(
    file: str | os.PathLike[str] | Any, name: str | None = None, **where: Unpack[WhereAndLayout]
) -> DistArray:
    """Return a dataset of an HDF5 file.

    Only its header is read here. The chunks are read by the tasks that need them, in each process by itself; tiles are
    groups of whole chunks. The file must not change before.

    Parameters
    ----------
    file
        Path of the file, on a cluster the same for all workers; or an ``h5py.Dataset``, of which the name is taken.
    name
        Of the dataset.
    team, device, sharding, layout
        Where the array is to live and how it is cut, as for `asarray`.

    Raises
    ------
    OSError
        If there is no such file; when elements are computed, if it has changed.
    KeyError
        If there is no dataset of this name: says which there are.
    TypeError
        If its elements are of a dtype that a DistArray cannot have, or it has no shape.

    Examples
    --------
    >>> import distarray as dx, os, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = os.path.join(folder.name, "x.h5")
    >>> dx.to_hdf5(dx.arange(5), path, "numbers")
    >>> dx.from_hdf5(path, "numbers").sum().item()
    10
    >>> folder.cleanup()
    """
    h5py = _h5py()
    if isinstance(file, h5py.Dataset):
        if name is not None:
            raise ValueError(f"from_hdf5: name={name!r} is for files, but {file.name} is a dataset")
        file.file.flush()
        path = os.path.realpath(file.file.filename)
        store = _store_of(file, FileState.of(path))
    else:
        path = os.path.realpath(os.fspath(file))
        state = FileState.of(path)
        with h5py.File(path, "r") as opened:
            dataset = opened.get(name) if name else None
            if not isinstance(dataset, h5py.Dataset):
                there: list[str] = []
                opened.visititems(lambda key, item: there.append(key) if isinstance(item, h5py.Dataset) else None)
                raise KeyError(f"{path} has no dataset {name!r}; it has {', '.join(there) or 'none'}")
            store = _store_of(dataset, state)
    try:
        return from_store(store, **where)
    except TypeError as error:
        raise TypeError(f"{path}, {store.name}: {error}") from None


def to_hdf5(
    x: Any,
    file: str | os.PathLike[str],
    name: str,
    *,
    mode: str = "a",
    attributes: Mapping[str, Any] | None = None,
    **options: Any,
) -> None:
    """Write an array as a dataset of an HDF5 file, from this process: the format has one writer.

    Computes the array, and brings it here box by box: this process holds one box of it at a time. The dataset has its
    name when it is complete.

    Parameters
    ----------
    x
        A DistArray, or what `asarray` takes.
    file, name
        Path of the file, and the dataset in it; groups on the way are made.
    mode
        "a" adds to the file, "w" makes a new one, which takes the place of the old one when it is complete, "w-"
        refuses to if it is there, "r+" refuses if it is not.
    attributes
        Of the dataset.
    **options
        For ``h5py.Group.create_dataset``: ``chunks=``, ``compression=`` ...

    Raises
    ------
    ValueError
        If there is something of this name.
    TypeError
        If HDF5 has no such dtype (dates).
    """
    h5py = _h5py()
    x = as_distarray(x)
    if x.dtype.kind in "mM":
        raise TypeError(f"to_hdf5: HDF5 has no {x.dtype}; x.astype('int64') keeps its numbers")
    path = os.path.realpath(os.fspath(file))
    if mode != "w":  # a new file takes the place of the old one when that was read
        read_before(x, path)
    with replacing(path) if mode == "w" else nullcontext(path) as target, h5py.File(target, mode) as opened:
        if name in opened:
            raise ValueError(
                f"to_hdf5: {os.fspath(file)} has {name!r} already; delete it with h5py, or use another name"
            )
        _sweep(opened, name)
        unfinished = f"{name}.{uuid.uuid4().hex}.part"
        dataset = opened.create_dataset(unfinished, x.shape, x.dtype, **options)
        try:
            for box, values in in_order(x, dataset.chunks):
                if values.size:
                    dataset[slices_of(box)] = values
            dataset.attrs.update(attributes or {})
            opened.move(unfinished, name)
        except BaseException:
            del opened[unfinished]
            raise


def _sweep(opened: Any, name: str) -> None:
    """Remove what processes that died left of a dataset."""
    parent, _, own = name.rpartition("/")
    group = opened.get(parent or "/")
    for other in list(group) if isinstance(group, _h5py().Group) else ():
        if re.fullmatch(rf"{re.escape(own)}\.[0-9a-f]{{32}}\.part", other):
            del group[other]
