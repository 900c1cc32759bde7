"""Columns of Parquet files, by pyarrow: each task reads the row groups of its tile, and of them some columns."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, NamedTuple, Unpack

import numpy as np

from distarray.arguments import sequence
from distarray.array.array import DistArray
from distarray.array.chunks import sharding_of_chunks
from distarray.composed.placing import WhereAndLayout, environment_of, spells_where
from distarray.dtypes import as_dtype
from distarray.expr.expr import Environment
from distarray.io.stores import from_store, tile_room
from distarray.kernels.stores import Box
from distarray.lazy import import_extra
from distarray.sharding.sharding import Sharding
from distarray.types import DType, HostArray, Shape


class RowGroup(NamedTuple):
    """A RowGroup is a part of a Parquet file that is read as a whole.

    Parameters
    ----------
    url
        Of the file, as fsspec takes it.
    number
        In the file.
    start, stop
        Its rows among those of all files.
    """

    url: str
    number: int
    start: int
    stop: int


class ColumnStore(NamedTuple):
    """A ColumnStore is columns of Parquet files as a `ReadableStore`.

    Parameters
    ----------
    groups
        Of all files, in order.
    columns
        Their names.
    shape, dtype
        Of the array: one axis for one column, else two.
    options
        Of fsspec.
    """

    groups: tuple[RowGroup, ...]
    columns: tuple[str, ...]
    shape: Shape
    dtype: DType
    options: dict[str, Any]

    @property
    def grain(self) -> None:
        """Return None: row groups need not have one size, so `from_parquet` says the cut."""

    def read(self, box: Box, out: HostArray) -> None:
        """Fill `out` with a box, a row group at a time."""
        (lo, hi), *others = box
        names = self.columns[slice(*others[0])] if others else self.columns
        for group in self.groups:
            first, last = max(lo, group.start), min(hi, group.stop)
            if first >= last:
                continue
            with _opened(group.url, self.options) as file:
                table = file.read_row_group(group.number, columns=list(names))
            for i, name in enumerate(names):
                column = table[name].slice(first - group.start, last - first)
                if column.null_count and self.dtype.kind not in "fcmM":
                    raise ValueError(
                        f"{group.url}: column {name!r} has {column.null_count} nulls in row group {group.number}, "
                        f"which an array of {self.dtype} cannot have; give dtype='float64' to read them as nan"
                    )
                part = out[first - lo : last - lo]
                part, values = part[:, i] if others else part, column.to_numpy()
                part[...] = values
                if column.null_count and values.dtype.kind in "mM" and self.dtype.kind in "fc":
                    part[np.isnat(values)] = np.nan


def _opened(url: str, options: Mapping[str, Any]) -> Any:
    import fsspec

    parquet = import_extra("pyarrow.parquet", "reading Parquet files", "parquet")
    return parquet.ParquetFile(fsspec.open(url, "rb", **options).open(), pre_buffer=True)


@spells_where
def from_parquet(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    columns: str | Sequence[str] | None = None,
    dtype: Any = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
    **where: Unpack[WhereAndLayout],
) -> DistArray:
    """Return columns of Parquet files as an array: a vector for one name, a row of it for each record for several.

    Only the footers are read here. The row groups are read by the tasks that need them; tiles are groups of whole row
    groups, so that each is read once.

    Parameters
    ----------
    path
        A file, a folder of ``*.parquet`` files, or several files, as paths or URLs of fsspec.
    columns
        One name, or several of one array; by default all that the first file has.
    dtype
        Of the array; by default that to which the columns promote. Nulls are nan, and NaT in dates; elsewhere they are
        a ``ValueError`` when they are read.
    storage_options
        For fsspec.
    team, device, sharding, layout
        Where the array is to live and how it is cut, as for `asarray`.

    Raises
    ------
    ValueError
        If `columns` names none.
    KeyError
        If there is no column of a name: says which there are.
    FileNotFoundError
        If there are no files.
    TypeError
        If elements are text, or anything else that a DistArray cannot have.
    """
    options = dict(storage_options or {})
    urls = _urls(path, options)
    if columns is None:
        with _opened(urls[0], options) as file:
            columns = file.schema_arrow.names
    names = (columns,) if isinstance(columns, str) else tuple(sequence(columns, "columns", "names"))
    if not names:
        raise ValueError("from_parquet: columns=() names none; an array has one column at least")
    groups, dtypes = _footers(urls, names, options)
    try:
        wanted = as_dtype(_common(dtypes) if dtype is None else dtype)
    except TypeError as error:
        raise TypeError(f"from_parquet: columns {', '.join(names)}: {error}") from None
    n_rows = groups[-1].stop if groups else 0
    shape = (n_rows,) if isinstance(columns, str) else (n_rows, len(names))
    store = ColumnStore(tuple(groups), names, shape, wanted, options)
    if where.get("sharding") is None and where.get("layout") is None:
        where["sharding"] = _cut(store, environment_of(where))
    return from_store(store, **where)


def _urls(path: Any, options: Mapping[str, Any]) -> list[str]:
    """Return the files that a user names."""
    import fsspec

    urls = []
    for entry in [path] if isinstance(path, str | os.PathLike) else path:
        text = os.fspath(entry)
        text = text if "://" in text else os.path.abspath(text)
        files, inner = fsspec.core.url_to_fs(text, **options)
        if files.isdir(inner):
            urls += [files.unstrip_protocol(found) for found in sorted(files.glob(f"{inner}/*.parquet"))]
        else:
            urls.append(text)
    if not urls:
        raise FileNotFoundError(f"from_parquet: there are no files *.parquet in {path}")
    return urls


def _footers(
    urls: Sequence[str], names: Sequence[str], options: Mapping[str, Any]
) -> tuple[list[RowGroup], list[np.dtype[Any]]]:
    """Return the row groups of all files, and the dtypes that columns have in any of them."""
    groups: list[RowGroup] = []
    dtypes: list[np.dtype[Any]] = []
    row = 0
    for url in urls:
        with _opened(url, options) as file:
            schema = file.schema_arrow
            for name in names:
                if name not in schema.names:
                    raise KeyError(f"{url} has no column {name!r}; it has {', '.join(schema.names)}")
                try:
                    dtypes.append(np.dtype(schema.field(name).type.to_pandas_dtype()))
                except (TypeError, NotImplementedError):
                    kind = schema.field(name).type
                    raise TypeError(f"{url}: column {name!r} has {kind}, of which NumPy has no elements") from None
            for number in range(file.num_row_groups):
                n_rows = file.metadata.row_group(number).num_rows
                groups.append(RowGroup(url, number, row, row + n_rows))
                row += n_rows
    return groups, dtypes


def _common(dtypes: Sequence[np.dtype[Any]]) -> np.dtype[Any]:
    """Return the dtype to which all promote; TypeError if they have none, as dates and time spans, of which NumPy makes
    dates.
    """
    common = np.result_type(*dtypes)
    if not all(np.can_cast(dtype, common, "same_kind") for dtype in dtypes):
        raise TypeError(f"there is no common dtype of {', '.join(map(str, dict.fromkeys(dtypes)))}; say dtype=")
    return common


def _cut(store: ColumnStore, env: Environment) -> Sharding | None:
    """Return a cut into tiles of whole row groups, as large as `cut_on_grain` makes them."""
    width = prod(store.shape[1:]) * store.dtype.itemsize
    if store.shape[0] * width <= env.block_nbytes:
        return None
    room = max(1, tile_room(store.shape[0] * width, env) // width)
    edges = [0]
    for group, following in itertools.pairwise(store.groups):
        if following.stop - edges[-1] > room:
            edges.append(group.stop)
    edges.append(store.shape[0])
    rows = tuple([b - a for a, b in itertools.pairwise(edges) if b > a])
    return sharding_of_chunks((rows, *[(n,) for n in store.shape[1:]]), env) if len(rows) > 1 else None
