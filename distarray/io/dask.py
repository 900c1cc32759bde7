"""``dask.array``: its arrays as ours, and ours as its."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, Unpack

import dask
import numpy as np
from dask._task_spec import Task, TaskRef, convert_legacy_graph
from dask.base import get_scheduler
from dask.delayed import Delayed

from distarray.arguments import parse_shape
from distarray.array.array import DistArray
from distarray.array.chunks import sharding_of_chunks
from distarray.array.environment import TeamLike, environment
from distarray.composed.placing import Where
from distarray.dtypes import as_dtype
from distarray.expr.bind import check_mask
from distarray.expr.expr import SOURCE, Environment, Expr, Stored
from distarray.kernels.devices import backend_for
from distarray.kernels.user_functions import cast_block
from distarray.lazy import loaded
from distarray.runtime.promised import PromisedBlocks, Sources
from distarray.sharding.sharding import Sharding
from distarray.sharding.spec import ShardingLike
from distarray.types import DType, DTypeLike, HostArray, Shape, ShapeLike


def to_dask_array(x: DistArray) -> Any:
    """Return a lazy ``dask.array`` of the values that `x` has now, one chunk per tile; the same as
    ``x.to_dask_array()``.
    """
    return x.to_dask_array()


def from_dask(
    array: Any, *, team: TeamLike = "current", device: str | None = None, sharding: ShardingLike = None
) -> DistArray:
    """Return an array of the chunks of a ``dask.array``.

    Dask's tasks compute the chunks when the array is first used. On a cluster they are part of that evaluation, as far
    as it reads what they make, and each chunk goes to the member that holds its tile; what no array keeps is freed as
    soon as it has been read. Where not all chunks fit in memory, those that share no task with others are made one
    after the other. In this process dask's own scheduler computes all chunks first.

    Parameters
    ----------
    array
        Of known chunks, with numpy arrays in them.
    team, device
        Where the result is to live.
    sharding
        The cut. By default the chunks are the tiles, neighbours on one member.

    Raises
    ------
    TypeError
        If `array` is no ``dask.array``, or its chunks or elements are nothing that a DistArray can have; at the first
        use, if a chunk turns out to be of another kind of number, or masked.
    ValueError
        If the extents of chunks are not known; at the first use, if a chunk turns out to be of another shape.

    Examples
    --------
    >>> import dask.array as da
    >>> import distarray as dx
    >>> dx.from_dask(da.arange(10, chunks=4)).sum().item()
    45
    """
    is_later = type(array).__module__ in ("distributed.client", "dask.delayed")  # the latter seem to have any attribute
    is_array = hasattr(array, "chunks") and hasattr(array, "__dask_keys__") and not is_later
    if isinstance(array, DistArray) or not is_array:
        way = "dx.from_delayed takes values of which one says the shape" if is_later else "dx.asarray takes host data"
        raise TypeError(f"from_dask: {type(array).__name__} is no dask.array; {way}")
    x = DistArray._on(dask_node(array, environment(team, device)))
    return x if sharding is None else x.reshard(sharding)


def dask_node(array: Any, env: Environment) -> Expr:
    """Return the node of a ``dask.array`` in an environment; raises as `from_dask`."""
    shape = array.shape
    if any(n != n for sizes in array.chunks for n in sizes):  # unknown extents are nan
        raise ValueError("from_dask: the chunk sizes are not known; call array.compute_chunk_sizes() first")
    if type(array._meta) is not np.ndarray:
        raise TypeError(
            f"from_dask: the chunks are {type(array._meta).__name__}; map them to numpy arrays first, "
            "array.map_blocks(numpy.asarray)"
        )
    dtype = as_dtype(array.dtype)
    cut = sharding_of_chunks(array.chunks, env)
    name = f"dx-from-dask-{uuid.uuid4().hex}"
    make = (_on_cluster if env.is_cluster else _in_process)(array, cut, env, name)
    blocks = PromisedBlocks(env, [(name, 0, number) for number in range(cut.n_tiles)], make)
    node = Expr(SOURCE, (), shape, dtype, env)
    # Dask may keep what it gives away, a persisted collection for example: never written in place.
    node.memo = Stored(cut, blocks, exported=True)
    return node


def from_delayed(value: Any, shape: ShapeLike, dtype: DTypeLike, **where: Unpack[Where]) -> DistArray:
    """Return an array of the value that a ``dask.delayed`` object, or a Future, will have; computed when it is first
    used.

    Parameters
    ----------
    value
        Its task must give a NumPy array of this shape and dtype.
    **where
        ``team=``, ``device=``, ``sharding=``; several of them make one array by `concat` or `block`.

    Examples
    --------
    >>> import dask
    >>> import numpy as np
    >>> import distarray as dx
    >>> dx.from_delayed(dask.delayed(np.arange)(4), (4,), int).sum().item()
    6
    """
    import dask.array as da

    if not isinstance(value, Delayed) and not _is_future(value):
        text = f"from_delayed: {type(value).__name__} is no dask.delayed object or Future; dx.asarray takes host data"
        raise TypeError(text)
    return from_dask(da.from_delayed(value, parse_shape(shape), as_dtype(dtype)), **where)


def _is_future(value: object) -> bool:
    """Return whether a value is a Future of a client; does not import it."""
    client = loaded("distributed.client")
    return client is not None and isinstance(value, client.Future)


def _keys(array: Any, cut: Sharding) -> list[Any]:
    """Return the key of the chunk of each tile, row-major; None for the empty tiles that no chunk is behind."""
    n_chunks = array.numblocks
    return [(array.name, *tile) if all(i < n for i, n in zip(tile, n_chunks)) else None for tile in cut.tiles()]


def _in_process(array: Any, cut: Sharding, env: Environment, name: str) -> Callable[[Sequence[int]], list[Any]]:
    def make(numbers: Sequence[int]) -> list[Any]:
        (optimized,) = dask.optimize(array)
        keys = _keys(optimized, cut)
        get = get_scheduler(collections=[optimized])
        found = deque(get(optimized.__dask_graph__(), [key for key in keys if key is not None]))
        blocks = []
        for key, tile in zip(keys, cut.tiles()):
            chunk, extents = None if key is None else found.popleft(), cut.shard_shape(array.shape, tile)
            # Whether somebody else has the chunk, and may write to it, cannot be known.
            blocks.append(_block(chunk, extents, array.dtype, env.device, cut.member(tile), copy=True))
        return blocks

    return make


def _on_cluster(array: Any, cut: Sharding, env: Environment, name: str) -> Callable[[Sequence[int]], Sources]:
    # Once: the tasks of a block have the same names whenever it is made.
    sources = cache(partial(_sources, array, cut, env, name))
    return lambda numbers: sources()


def _sources(array: Any, cut: Sharding, env: Environment, name: str) -> Sources:
    """Return Dask's tasks, and one for each tile that makes its block of its chunk."""
    (optimized,) = dask.optimize(array)
    # Futures of what was persisted are no tasks: the array holds them.
    tasks: dict[Any, Any] = convert_legacy_graph(dict(optimized.__dask_graph__()))
    members: dict[Any, int] = {}
    for number, (key, tile) in enumerate(zip(_keys(optimized, cut), cut.tiles())):
        extents = cut.shard_shape(array.shape, tile)
        member = cut.member(tile)
        own = (name, 0, number)
        ref = None if key is None else TaskRef(key)
        tasks[own] = Task(own, _block, ref, extents, array.dtype, env.device, member)
        members[own] = member
    return Sources(tasks, members)


def _block(chunk: Any, extents: Shape, dtype: DType, device: str, member: int, copy: bool = False) -> Any:
    """Return a chunk as a block on its member: contiguous, of its own memory, of the promised shape and dtype."""
    backend = backend_for(device, member)
    if chunk is None:
        return backend.empty(extents, dtype)
    if np.shape(chunk) != tuple(extents):
        raise ValueError(f"a chunk of the dask.array has shape {np.shape(chunk)}, but its chunks say {tuple(extents)}")
    check_mask(chunk, "from_dask")
    host: HostArray = np.asarray(chunk)
    made = cast_block(host, dtype, "a chunk of the dask.array")
    is_others = made is host and (copy or host.base is not None or not host.flags.writeable)
    return backend.adopt(np.array(made, order="C") if is_others or not made.flags.c_contiguous else made)
