"""dask.array: its arrays as ours and ours as its."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from distarray.array.array import DistArray
from distarray.array.conversion import asarray
from distarray.array.environment import TeamLike, environment, parse_pin
from distarray.dtypes import as_dtype
from distarray.expr.bind import bind_create, bind_put
from distarray.expr.expr import Expr, source
from distarray.expr.lens import Affine
from distarray.ops.creation import EMPTY
from distarray.sharding.spec import ShardingLike

__all__ = ["from_dask", "to_dask_array"]


def to_dask_array(x: DistArray) -> Any:
    """A lazy ``dask.array`` of the values that `x` has now, one chunk per tile."""
    return x.to_dask_array()


def from_dask(
    array: Any,
    *,
    team: TeamLike = "current",
    device: str | None = None,
    sharding: ShardingLike = None,
) -> DistArray:
    """An array of the chunks of a ``dask.array``, which dask computes now, chunk by chunk.

    Parameters
    ----------
    array
        With known chunks.
    sharding
        The cut; the planner's choice by default, whatever the chunks were.

    Raises
    ------
    ValueError
        If the extents of chunks are not known.
    """
    if any(np.isnan(n) for sizes in array.chunks for n in sizes):
        raise ValueError("from_dask: the chunk sizes are not known; call array.compute_chunk_sizes() first")
    dtype = as_dtype(array.dtype)
    env = environment(team, device)
    if array.ndim == 0:
        return asarray(np.asarray(array.compute()), team=team, device=device)
    pin = parse_pin(sharding, None, array.shape, dtype, env)
    node: Expr = bind_create(EMPTY, tuple(array.shape), dtype, env, pin=pin)
    bounds = [tuple(itertools.accumulate(sizes, initial=0)) for sizes in array.chunks]
    import dask

    places = list(itertools.product(*(range(len(sizes)) for sizes in array.chunks)))
    chunks = dask.compute(*(array.blocks[at] for at in places))
    for at, chunk in zip(places, chunks):
        host = np.ascontiguousarray(chunk, dtype=dtype)
        if host.size:
            terms = tuple((axis, b[i], 1) for axis, (b, i) in enumerate(zip(bounds, at)))
            node = bind_put(node, Affine(host.shape, terms), source(host, env))
    return DistArray._on(node)
