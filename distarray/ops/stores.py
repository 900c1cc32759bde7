"""Arrays that lie outside, in files and chunked stores: read where they are needed, like any array that is made from
the global index.

Which store an array is in is a run-time parameter, so the files of a series have one plan. Unlike other created arrays
these are worth keeping, and reading them may fail.
"""

from __future__ import annotations

from typing import Any

from distarray.expr.bind import bind_create
from distarray.expr.expr import Environment, Expr
from distarray.expr.op import declare
from distarray.sharding.sharding import Sharding
from distarray.types import DType, Shape

#: runtime: a store, see `kernels.stores`
READ_STORE = declare("read_store", "create")


def read_store(shape: Shape, dtype: DType, store: Any, env: Environment, pin: Sharding | None = None) -> Expr:
    """Return the array in a store, in native byte order.

    Raises
    ------
    TypeError
        If distarray does not have the dtype.
    """
    return bind_create(READ_STORE, shape, dtype.newbyteorder("="), env, (), store, pin)
