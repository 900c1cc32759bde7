"""xarray's chunk manager: ``chunked_array_type="distarray"``, found by the entry point ``xarray.chunkmanagers``.

xarray loads this module for all its users who have distarray installed, and then asks the manager whether arrays are
its own, how they are chunked, and to compute, store and map them. Each method is one of xarray's interface in terms of
a function of this package; arrays come in and go out as `XarrayView`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import accumulate, pairwise
from math import prod
from typing import Any

import numpy as np

from distarray.arguments import shown
from distarray.array.array import DistArray, without_dasks
from distarray.array.chunks import Chunks, sharding_of_chunks
from distarray.array.environment import TeamLike, environment
from distarray.composed import blockwise, collections, creation, gufunc, tree_reduction
from distarray.composed.conversion import asarray
from distarray.composed.numpy_signatures import take
from distarray.dtypes import as_dtype
from distarray.errors import MemoryBudgetError, NotSupportedError
from distarray.io.dask import from_dask
from distarray.io.stores import compute_kept, region_of, to_store
from distarray.io.xarray_view import XarrayView, gives_views, viewed
from distarray.kernels.stores import SlicedStore
from distarray.ops.stores import read_store
from distarray.sharding.cuts import MAX_TILES
from distarray.sharding.sharding import Sharding

try:
    from xarray.namedarray.parallelcompat import ChunkManagerEntrypoint
except ImportError:  # of an xarray that has no chunk managers, or has them elsewhere
    ChunkManagerEntrypoint = None

#: Keywords of ``dask.array.from_array``: how chunks are named, locked and kept in graphs.
_DASKS = {"asarray", "fancy", "getitem", "inline_array", "lock", "meta", "name"}


def _chunked(chunks: Chunks, team: TeamLike, device: str | None = None) -> Sharding | None:
    """Return the cut whose tiles are chunks; None for arrays that are not distributed. Raises MemoryBudgetError if they
    are more than the tiles that an array may have.
    """
    env = environment(team, device)
    if (n := prod(map(len, chunks))) > MAX_TILES:
        raise MemoryBudgetError(
            f"{n} chunks are more than the {MAX_TILES} that an array may have; say chunks='auto', which puts chunks of "
            "a store together, or larger ones"
        )
    return None if env.team is None else sharding_of_chunks(chunks, env)


class _Creators:
    """_Creators are the functions of dask.array's namespace that xarray makes arrays with."""

    @staticmethod
    def full(
        shape: Any, fill_value: Any, dtype: Any = None, chunks: Any = "auto", team: TeamLike = "current"
    ) -> XarrayView:
        """Return an array of one value."""
        wanted = as_dtype(np.asarray(fill_value).dtype if dtype is None else dtype)
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        cut = _chunked(_normal(chunks, shape, wanted), team)
        return creation.full(shape, fill_value, dtype=wanted, team=team, sharding=cut)._seen_as(XarrayView)

    @staticmethod
    def arange(
        start: Any, stop: Any = None, step: Any = 1, chunks: Any = "auto", dtype: Any = None, team: TeamLike = "current"
    ) -> XarrayView:
        """Return consecutive numbers."""
        made = creation.arange(start, stop, step, dtype, team=team)
        cut = _chunked(_normal(chunks, made.shape, made.dtype), team)
        return (made if cut is None else made.reshard(cut))._seen_as(XarrayView)


class DistArrayManager(*([] if ChunkManagerEntrypoint is None else [ChunkManagerEntrypoint])):  # type: ignore[misc]
    """A DistArrayManager does for xarray with our arrays what it does with chunked arrays of any kind.

    What may fail waits until values are asked for; see `deferral.waiting`.
    """

    #: xarray leaves out a manager that is not.
    available = ChunkManagerEntrypoint is not None

    def __init__(self) -> None:
        self.array_cls = XarrayView

    def is_chunked_array(self, data: Any) -> bool:
        """Return whether this is a view.

        Raises
        ------
        TypeError
            If it is a DistArray, which xarray takes for one of Dask's.
        """
        if isinstance(data, DistArray) and type(data) is not XarrayView:
            raise TypeError(
                "xarray has a DistArray as it is, which is a Dask collection too; pass x.to_xarray(dims=...), whose "
                "data xarray knows as ours"
            )
        return isinstance(data, XarrayView)

    def chunks(self, data: Any) -> Chunks:
        """Return the extents of the chunks along each axis."""
        return tuple(data.chunks)

    def normalize_chunks(
        self, chunks: Any, shape: Any = None, limit: Any = None, dtype: Any = None, previous_chunks: Any = None
    ) -> Chunks:
        """Return what the user says about chunks as extents for each axis, as dask.array understands it."""
        return _normal(chunks, shape, dtype, limit, previous_chunks)

    def from_array(
        self, data: Any, chunks: Any, team: TeamLike = "current", device: str | None = None, **options: Any
    ) -> Any:
        """Return an array of host data, of a ``dask.array``, or of what reads slices, which the tasks do.

        Text and objects stay what they are: numpy's, or read by xarray when looked at.

        Parameters
        ----------
        team, device
            Where the array is to live.
        **options
            Of dask.array, most of which xarray passes to every manager: accepted, and not used.
        """
        if unknown := options.keys() - _DASKS:
            raise TypeError(f"from_array_kwargs: no {', '.join(sorted(unknown))} here; there are team and device")
        if isinstance(data, DistArray):
            return self.rechunk(viewed(data), chunks)
        if data.dtype.kind not in "biufcMm":
            return getattr(data, "array", data) if not isinstance(data, np.ndarray) else data
        wanted = _normal(chunks, data.shape, data.dtype, previous=getattr(data, "chunks", None))
        if hasattr(data, "__dask_graph__"):
            return from_dask(data.rechunk(wanted), team=team, device=device)._seen_as(XarrayView)
        cut = _chunked(wanted, team, device)
        if isinstance(data, np.ndarray):
            return asarray(data, team=team, device=device, sharding=cut)._seen_as(XarrayView)
        return XarrayView._on(
            read_store(tuple(data.shape), as_dtype(data.dtype), SlicedStore(data), environment(team, device), cut)
        )

    def rechunk(self, data: XarrayView, chunks: Any, **_options: Any) -> XarrayView:
        """Return a view cut into chunks; axes that the mapping `chunks` does not name stay as they are."""
        plain = data._seen_as(DistArray)
        if isinstance(chunks, Mapping):
            if all(entry is None for entry in chunks.values()):
                return data
            entries = [chunks.get(a) for a in range(plain.ndim)]
            known = plain.chunks if None in entries else ()
            chunks = tuple([known[a] if entry is None else entry for a, entry in enumerate(entries)])
        return plain.rechunk(_normal(chunks, plain.shape, plain.dtype))._seen_as(XarrayView)

    def compute(self, *data: Any, **options: Any) -> tuple[Any, ...]:
        """Return views as numpy arrays, computed by one plan; anything else as it is."""
        return collections.compute(*data, **without_dasks(options))

    def persist(self, *data: Any, **options: Any) -> tuple[Any, ...]:
        """Compute views by one plan and keep their values where they lie."""
        return collections.persist(*data, **without_dasks(options))

    @property
    def array_api(self) -> Any:
        """Return the functions that make arrays."""
        return _Creators

    def get_auto_chunk_size(self) -> int:
        """Return the bytes of a chunk where the user says ``"auto"``: Dask's option ``array.chunk-size``."""
        import dask
        from dask.utils import parse_bytes

        return int(parse_bytes(dask.config.get("array.chunk-size")))

    # ------------------------------------------------------------------------------------- functions of blocks

    @gives_views
    def reduction(
        self,
        arr: Any,
        func: Callable[..., Any],
        combine_func: Callable[..., Any] | None = None,
        aggregate_func: Callable[..., Any] | None = None,
        axis: Any = None,
        dtype: Any = None,
        keepdims: bool = False,
    ) -> Any:
        """Return a reduction made of functions on blocks; see `distarray.reduction`."""
        last = aggregate_func or combine_func or func
        return tree_reduction.reduction(
            arr, func, last, axis, keepdims, dtype, combine=combine_func, infer=dtype is None
        )

    def scan(
        self, func: Callable[..., Any], binop: Any, ident: Any, arr: Any, axis: Any = None, dtype: Any = None,
        **_options: Any,
    ) -> Any:  # fmt: skip
        """Return ``func(arr, axis=axis)``, each block of it whole along `axis`: nothing has to be carried over."""

        def along_last(block: Any) -> Any:
            return func(block, axis=-1)

        return self.apply_gufunc(
            along_last, "(i)->(i)", arr, axes=[(axis,), (axis,)], output_dtypes=dtype, allow_rechunk=True
        )

    @gives_views
    def apply_gufunc(
        self,
        func: Callable[..., Any],
        signature: str,
        *args: Any,
        output_dtypes: Any = None,
        vectorize: bool | None = None,
        allow_rechunk: bool = False,
        meta: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Return what a function with core dimensions gives; see `distarray.apply_gufunc`."""
        infer = output_dtypes is None and meta is None
        return gufunc.apply_gufunc(
            func, signature, *args, output_dtypes=output_dtypes, vectorize=bool(vectorize),
            allow_rechunk=allow_rechunk, meta=meta, infer=infer, **kwargs,
        )  # fmt: skip

    @gives_views
    def map_blocks(self, func: Callable[..., Any], *args: Any, dtype: Any = None, **kwargs: Any) -> Any:
        """Return what a function of blocks gives; see `distarray.map_blocks`."""
        return blockwise.map_blocks(func, *args, dtype=dtype, infer=dtype is None, **kwargs)

    @gives_views
    def blockwise(self, func: Callable[..., Any], out_ind: Any, *args: Any, dtype: Any = None, **kwargs: Any) -> Any:
        """Return what a function of blocks with named axes gives; see `distarray.blockwise`."""
        return blockwise.blockwise(func, out_ind, *args, dtype=dtype, infer=dtype is None, **kwargs)

    def unify_chunks(self, *args: Any, **_options: Any) -> tuple[dict[Any, tuple[int, ...]], list[Any]]:
        """Return the chunks that all arrays can have, by dimension, and the arrays in them.

        Parameters
        ----------
        *args
            Pairs of an array and the names of its dimensions.
        """
        pairs = [(x, tuple(dims)) for x, dims in zip(args[::2], args[1::2], strict=True)]
        edges: dict[Any, set[int]] = {}
        for x, dims in pairs:
            if isinstance(x, XarrayView):
                for dim, own in zip(dims, x.chunks, strict=True):
                    edges.setdefault(dim, set()).update(accumulate(own, initial=0))
        chunks = {dim: tuple([b - a for a, b in pairwise(sorted(own))]) or (0,) for dim, own in edges.items()}
        made = [
            self.rechunk(x, {a: chunks[dim] for a, dim in enumerate(dims)}) if isinstance(x, XarrayView) else x
            for x, dims in pairs
        ]
        return chunks, made

    @gives_views
    def shuffle(self, x: Any, indexer: Sequence[Sequence[int]], axis: int, chunks: Any) -> Any:
        """Return the elements along `axis` in the order of the lists of positions, one after the other."""
        return take(x, np.concatenate([np.asarray(group, np.int64) for group in indexer]), axis=axis)

    # ------------------------------------------------------------------------------------------------- stores

    def store(
        self,
        sources: Sequence[Any],
        targets: Sequence[Any],
        *,
        lock: Any = None,
        compute: bool = True,
        flush: bool = True,
        regions: Any = None,
        **options: Any,
    ) -> Any:
        """Write arrays into targets that take slices, each tile by the member that has it; planned together.

        Where a target has chunks of its own, each of them is written by one task.

        Parameters
        ----------
        regions
            For each target the slices that the array goes to; None for all of it.
        compute
            If false, return a ``dask.delayed`` object that does it; not on a cluster.
        """
        given: list[Any] = list(sources) if isinstance(sources, list | tuple) else [sources]
        into: list[Any] = list(targets) if isinstance(targets, list | tuple) else [targets]
        where = list(regions) if isinstance(regions, list) else [regions] * len(given)
        held = _write_lock(lock)
        if compute:
            return _store(given, into, held, where)
        if any(x._env.is_cluster for x in given):
            raise NotSupportedError("compute=False: on a cluster arrays are stored at the call; say compute=True")
        import dask

        # Without arguments: Dask looks for collections in those.
        return dask.delayed(partial(_store, given, into, held, where), pure=False)()


def _write_lock(lock: Any) -> Any:
    if lock is True:
        from dask.utils import SerializableLock

        return SerializableLock()
    return lock or None


def _store(sources: Sequence[Any], targets: Sequence[Any], lock: Any, regions: Sequence[Any]) -> None:
    arrays = [x._seen_as(DistArray) for x in sources]
    starts = [_starts(x, target, region) for x, target, region in zip(arrays, targets, regions, strict=True)]
    compute_kept([x.__dx_node__() for x in arrays])
    for x, target, at in zip(arrays, targets, starts, strict=True):
        to_store(x, SlicedStore(target, lock), at)


def _starts(x: DistArray, target: Any, region: Any) -> tuple[int, ...]:
    """Return where an array begins in its target."""
    if region is None:  # axes of a file may have no extent before they are written
        return (0,) * x.ndim
    bounds = region_of(region, tuple(target.shape))
    if (there := tuple([hi - lo for lo, hi in bounds])) != x.shape:
        raise ValueError(f"an array of shape {x.shape} does not fit {there}, region={shown(region)} of {target.shape}")
    return tuple([lo for lo, _ in bounds])


def _normal(chunks: Any, shape: Any, dtype: Any, limit: Any = None, previous: Any = None) -> Chunks:
    """Return chunks as extents for each axis, by Dask's rules."""
    from dask.array.core import normalize_chunks

    if shape is not None and 0 in shape and "auto" in (chunks if isinstance(chunks, tuple | list) else (chunks,)):
        chunks = tuple(shape)  # dask would divide by the zero
    made = normalize_chunks(chunks, shape=shape, limit=limit, dtype=dtype, previous_chunks=previous)
    return tuple([tuple(map(int, own)) for own in made])
