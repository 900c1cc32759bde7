"""Arrays that lie in stores of other libraries: each tile reads its own part of them, in the task that needs it.

A source is whatever gives an array for a tuple of slices: an array of zarr or h5py, xarray's adapter of a file that it
has open. Unlike other created arrays these are worth keeping, and reading them may fail.
"""

from __future__ import annotations

from typing import Any

from distarray.expr.bind import bind_create
from distarray.expr.expr import Environment, Expr
from distarray.expr.op import declare
from distarray.sharding.sharding import Sharding
from distarray.types import DTypeLike, Shape

__all__ = ["read_source"]

#: runtime: the source
READ_SOURCE = declare("read_source", "create")


def read_source(source: Any, shape: Shape, dtype: DTypeLike, env: Environment, pin: Sharding | None = None) -> Expr:
    """Return the array that ``source[slices]`` reads part by part; on a cluster the source travels with the tasks.

    Raises
    ------
    TypeError
        If distarray does not have the dtype.
    """
    return bind_create(READ_SOURCE, shape, dtype, env, (), source, pin)  # type: ignore[arg-type]  # it is parsed there
