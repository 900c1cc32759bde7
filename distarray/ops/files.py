"""Arrays that lie in files: read where they are needed, like any array that is made from the global index.

Which bytes an element has is a run-time parameter (`FileRange`), so the files of a series have one plan. Unlike other
created arrays these are worth keeping, and reading them may fail.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from distarray.dtypes import as_dtype
from distarray.expr.bind import bind_create
from distarray.expr.expr import Environment, Expr
from distarray.expr.op import declare
from distarray.sharding.sharding import Sharding
from distarray.types import Shape

__all__ = ["FileRange", "load_npy"]

#: runtime: `FileRange`
LOAD_NPY = declare("load_npy", "create")


class FileRange(NamedTuple):
    """The contiguous bytes of an array in a file.

    Parameters
    ----------
    path
        Absolute; the same on all members.
    offset
        Of the first element, in bytes.
    dtype
        As numpy's text, with the byte order of the file.
    fortran_order
        Whether the first axis varies fastest.
    mtime_ns, size
        Of the file when it was looked at: a file that has others by the time it is read has changed.
    """

    path: str
    offset: int
    dtype: str
    fortran_order: bool
    mtime_ns: int
    size: int


def load_npy(shape: Shape, where: FileRange, env: Environment, pin: Sharding | None = None) -> Expr:
    """Return the array of `shape` in a file, in native byte order.

    Raises
    ------
    TypeError
        If distarray does not have the dtype.
    """
    dtype: np.dtype[Any] = as_dtype(where.dtype).newbyteorder("=")
    return bind_create(LOAD_NPY, shape, dtype, env, (), where, pin)
