"""Operands that are others' data and read by the tasks: memory maps of files and dask arrays.

`expr.bind` asks for these (`hooks.lazily_read`) before it reads host data at the call.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from distarray import config
from distarray.array.dask_protocol import is_dask_array_type
from distarray.composed.conversion import mapped_node
from distarray.expr.expr import Environment, Expr


def lazily_read(value: Any, env: Environment) -> Expr | None:
    """Return the node of a memory map above ``literal-max-bytes`` or of a dask array; None of all else.

    The file of a memory map must not change before the tasks have read it, as for `asarray`.
    """
    if isinstance(value, np.memmap):
        return mapped_node(value, env) if value.nbytes > config.get("literal-max-bytes") else None
    if is_dask_array_type(type(value)):
        from distarray.io.dask import dask_node

        return dask_node(value, env)
    return None
