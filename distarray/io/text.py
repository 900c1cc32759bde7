"""Text files, in numpy's spelling: one place reads and writes them.

Text has no places that a task could begin at.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from distarray.array.array import DistArray
from distarray.composed.conversion import asarray
from distarray.composed.placing import taken_where
from distarray.composed.views import as_distarray
from distarray.expr.bind import check_mask
from distarray.io.npy import path_of
from distarray.io.replacing import replacing
from distarray.io.stores import in_order


def loadtxt(fname: Any, *args: Any, **kwargs: Any) -> DistArray:
    """Return ``numpy.loadtxt(fname, ...)`` as an array, read at the call by this process.

    Parameters
    ----------
    *args, **kwargs
        numpy's; and ``team=``, ``device=``, ``sharding=``, ``layout=``.

    Examples
    --------
    >>> import distarray as dx
    >>> dx.loadtxt(["1 2", "3 4"]).tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """
    return _read(np.loadtxt, fname, args, kwargs)


def genfromtxt(fname: Any, *args: Any, **kwargs: Any) -> DistArray:
    """Return ``numpy.genfromtxt(fname, ...)`` as an array, read at the call by this process.

    Parameters
    ----------
    *args, **kwargs
        numpy's; and ``team=``, ``device=``, ``sharding=``, ``layout=``.

    Raises
    ------
    TypeError
        If the columns are of several dtypes: there are no structures here.

    Examples
    --------
    >>> import distarray as dx
    >>> dx.genfromtxt(["1,2", "3,"], delimiter=",").tolist()
    [[1.0, 2.0], [3.0, nan]]
    """
    return _read(np.genfromtxt, fname, args, kwargs)


def _read(function: Callable[..., Any], fname: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> DistArray:
    where = taken_where(kwargs)
    host = function(fname, *args, **kwargs)
    check_mask(host, function.__name__)
    return asarray(host, **where)


def savetxt(
    fname: Any,
    X: Any,
    fmt: Any = "%.18e",
    delimiter: str = " ",
    newline: str = "\n",
    header: str = "",
    footer: str = "",
    comments: str = "# ",
    encoding: str | None = None,
) -> None:
    """Write an array of one or two axes as text, as ``numpy.savetxt`` does.

    Computes the array, and brings its rows here, a few at a time. A path names a file that appears when it is complete.

    Parameters
    ----------
    fname
        Path, packed if it ends in .gz, .bz2 or .xz; or an open file.
    X
        A DistArray, or what `asarray` takes.
    fmt, delimiter, newline, header, footer, comments, encoding
        numpy's.
    """
    x = as_distarray(X)
    if x.ndim not in (1, 2):
        raise ValueError(f"Expected 1D or 2D array, got {x.ndim}D array instead: savetxt cannot write shape {x.shape}")
    with _writable(fname, encoding) as stream:
        for box, rows in in_order(x, (1, *x.shape[1:])):
            (first, last), *_ = box
            np.savetxt(
                stream,
                rows,
                fmt,
                delimiter,
                newline,
                header if first == 0 else "",
                footer if last == x.shape[0] else "",
                comments,
            )


@contextmanager
def _writable(fname: Any, encoding: str | None) -> Iterator[Any]:
    if not isinstance(fname, str | os.PathLike):
        yield fname
        return
    path = path_of(fname)
    if os.path.exists(path) and not os.path.isfile(path):  # a device, or a pipe
        with open(path, "w", encoding=encoding or "latin1") as stream:
            yield stream
        return
    with replacing(path) as new:
        open(new, "xb").close()  # numpy packs what the name says, and opens only what is there
        with np.lib.npyio.DataSource().open(new, "wt", encoding or "latin1") as stream:
            yield stream
