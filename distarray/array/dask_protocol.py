"""A DistArray is a Dask collection: ``dask.compute(x)``, ``client.persist(x)``, ``dask.delayed(f)(x)`` take it.

What Dask gets is a graph that computes the values that the array has when it is asked: versions are pinned, nothing is
donated, retained or placed. ``x.compute()`` and ``dx.compute`` know placement and budget, and plan jointly.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from distarray.array.handle import AnyHandle
from distarray.array.pickling import Record, flatten, is_arriving, records_of
from distarray.array.versions import lock
from distarray.errors import MemoryBudgetError, NotSupportedError, UnreachableBlocksError
from distarray.expr.affine import Affine
from distarray.expr.expr import SOURCE, Expr, Stored, postorder
from distarray.lazy import loaded
from distarray.runtime.arrivals import in_event_loop
from distarray.runtime.run_names import new_run
from distarray.sharding.sharding import Sharding


def is_dask_array_type(kind: type) -> bool:
    """Return whether values of a type are ``dask.array`` arrays; does not import it."""
    module = loaded("dask.array")
    return module is not None and issubclass(kind, module.Array)


class _GraphOfVersion(Mapping[Any, Any]):
    """A _GraphOfVersion is the tasks of one version, made when first looked at: dask asks for graphs that it never
    uses.
    """

    def __init__(self, node: Expr) -> None:
        self.node = node
        # The version is live: until its blocks are in the graph no write in place may take them over.
        self._slot = node.hold()
        self.layer = f"distarray-{new_run()}"
        self._filled: tuple[str, dict[Any, Any], Sharding] | None = None
        self._lock = threading.Lock()

    def filled(self) -> tuple[str, dict[Any, Any], Sharding]:
        """Return name, tasks and sharding; plan on first use."""
        with self._lock:  # two graphs would have names of their own
            if self._filled is None:
                from distarray.runtime import exports

                self._filled = exports.graph_of(self.node)
            return self._filled

    def excess(self) -> str | None:
        """Return the text of the error where Dask must not put the array together on one worker; None if it may."""
        from distarray.runtime import exports

        why, node = exports.excess_of_whole(self.node), self.node
        return why and (
            f"dask.compute puts the array of shape {node.shape} and {node.nbytes} bytes together on one worker, which "
            f"would hold it twice, {why}, or take x.compute() or np.asarray(x), which bring the blocks to this process"
        )

    def __getitem__(self, key: Any) -> Any:
        return self.filled()[1][key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.filled()[1])

    def __len__(self) -> int:
        return len(self.filled()[1])

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (self.filled()[1],)

    def __dask_tokenize__(self) -> str:
        return self.layer


class Collection:
    """A Collection gives `DistArray` Dask's collection protocol."""

    __slots__ = ()

    #: Planning is ours; without this dask would warn.
    __dask_optimize__ = None

    @property
    def __dask_scheduler__(self) -> Any:
        """Return the scheduler where none is named: dask's threads, the same object as that of dask's own
        collections.
        """
        from dask.threaded import get

        return get

    def _dask_graph(self: Any) -> _GraphOfVersion:
        base, lens = self._base, self._lens
        number, graphs = base.version, base.graphs or {}
        if lens not in graphs:
            made = _GraphOfVersion(self._node())
            with lock:
                if base.version != number:
                    return made
                if base.graphs is None:
                    base.graphs = {}
                # The same for every handle and thread: Dask asks for names, keys and tasks one after the other.
                graphs = base.graphs
                graphs.setdefault(lens, made)
        graph: _GraphOfVersion = graphs[lens]
        return graph

    def __dask_graph__(self: Any) -> Any:
        from dask.highlevelgraph import HighLevelGraph, MaterializedLayer

        # `Client.publish_dataset` and `get_dataset` ask in the client's event loop, where nothing can be waited for,
        # which Futures an array has: those that what travels stands on.
        if in_event_loop():
            return None if is_arriving(self._base) else _futures_of(self._node())
        graph = self._dask_graph()
        return HighLevelGraph({graph.layer: MaterializedLayer(graph)}, {graph.layer: set()})

    def __dask_keys__(self: Any) -> list[Any]:
        name, _, sharding = self._dask_graph().filled()
        return _nested(name, (), sharding.parts)

    def __dask_layers__(self: Any) -> tuple[str, ...]:
        return (self._dask_graph().layer,)

    def __dask_postcompute__(self: Any) -> tuple[Any, _AssembledLater]:
        graph = self._dask_graph()
        node, sharding = graph.node, graph.filled()[2]
        return _assembled, _AssembledLater((node.shape, node.dtype, sharding, graph.excess(), _KeptVersion(graph)))

    def __dask_postpersist__(self: Any) -> tuple[Any, tuple[Any, ...]]:
        graph = self._dask_graph()
        name, _, sharding = graph.filled()
        return _rebuilt, (type(self), name, graph.node, sharding)

    def __dask_tokenize__(self: Any) -> Any:
        from dask.base import tokenize

        try:
            records = flatten(self._node())
        except UnreachableBlocksError:
            # Dask asks for names where nothing can be waited for, too: in the event loop, as `Client.scatter` does, of
            # an array that has just arrived in a pickle.
            if (arrived := records_of(self._base)) is None:
                raise
            return tokenize(repr(self._lens), *_content(arrived))
        return tokenize(*_content(records))

    def visualize(self: Any, filename: str = "mydask", format: str | None = None, **kwargs: Any) -> Any:
        """Draw the tasks that would compute the array, as dask does; see `explain` for how they were chosen."""
        from dask.base import visualize

        return visualize(self, filename=filename, format=format, **kwargs)

    def to_dask_array(self: Any) -> Any:
        """Return a lazy ``dask.array`` of the values that the array has now, one chunk per tile."""
        import dask.array as da
        from dask._task_spec import Alias
        from dask.highlevelgraph import HighLevelGraph, MaterializedLayer

        graph = self._dask_graph()
        name, _, sharding = graph.filled()
        node = graph.node
        layers: dict[str, Any] = {graph.layer: graph}
        chunks = []
        kept = []
        for bounds in sharding.boundaries(node.shape):
            sizes = [stop - start for start, stop in itertools.pairwise(bounds)]
            # Reductions of dask.array are not all made for empty chunks.
            parts = [i for i, n in enumerate(sizes) if n] or [0]
            kept.append(parts)
            chunks.append(tuple(sizes[i] for i in parts))
        chunk_name = f"{graph.layer}-chunks"
        layers[chunk_name] = {
            (chunk_name, *at): Alias((chunk_name, *at), target=(name, *tile))
            for at, tile in zip(
                itertools.product(*(range(len(parts)) for parts in kept)), itertools.product(*kept), strict=True
            )
        }
        high = HighLevelGraph(
            {key: MaterializedLayer(layer) for key, layer in layers.items()},
            {graph.layer: set(), chunk_name: {graph.layer}},
        )
        meta = np.empty((0,) * node.ndim, node.dtype)
        return da.Array(high, chunk_name, tuple(chunks), dtype=node.dtype, meta=meta)


def _futures_of(node: Expr) -> dict[Any, Any]:
    """Return the Futures, by key, of the blocks on a cluster that a node is, or is made of."""
    from distarray.runtime.bundles import futures_behind

    held = [leaf.memo.held for leaf in postorder([node]) if leaf.memo is not None and leaf.env.is_cluster]
    blocks = [block for some in held for block in some if not isinstance(block, np.ndarray)]
    return {future.key: future for future in futures_behind(blocks)}


def _nested(name: str, tile: tuple[int, ...], parts: Sequence[int]) -> list[Any]:
    if len(tile) == len(parts):
        return [(name, *tile)]
    if len(tile) == len(parts) - 1:
        return [(name, *tile, i) for i in range(parts[-1])]
    return [_nested(name, (*tile, i), parts) for i in range(parts[len(tile)])]


def _flat(blocks: Any, ndim: int) -> list[Any]:
    for _ in range(max(ndim, 1) - 1):
        blocks = [block for inner in blocks for block in inner]
    return list(blocks)


class _KeptVersion:
    """A _KeptVersion is an argument of a task that keeps what the task reads, as long as this process has the task.

    Dask takes the tasks of some graphs (``dask.delayed``) and lets go of the Futures that lie beside them.

    Parameters
    ----------
    graph
        What it keeps; it travels without.
    """

    def __init__(self, graph: _GraphOfVersion | None = None) -> None:
        self.graph = graph

    def __reduce__(self) -> tuple[Any, ...]:
        return _KeptVersion, ()

    def __dask_tokenize__(self) -> Any:
        return ()


class _AssembledLater(tuple[Any, ...]):
    """An _AssembledLater is further arguments of `_assembled`: who unpacks them makes the task that puts an array
    together, and learns there that no worker could run it.

    Dask asks for them also where it makes no such task (``dask.persist``), and reads them in the scheduler. xarray
    joins them to a tuple of its own; then the task says so.
    """

    __slots__ = ()

    def __iter__(self) -> Iterator[Any]:
        _check_excess(self[3])
        return super().__iter__()


def _check_excess(excess: str | None) -> None:
    """Raise the error where no worker can put an array together; `excess` is its text."""
    if excess is not None:
        raise MemoryBudgetError(excess)


def _assembled(
    blocks: Any, shape: tuple[int, ...], dtype: Any, sharding: Sharding, excess: str | None, _: _KeptVersion
) -> Any:
    """Return the whole array of its blocks, in one task on one worker: ``x.compute()`` needs no such task."""
    _check_excess(excess)
    out = np.empty(shape, dtype)
    for tile, block in zip(sharding.tiles(), _flat(blocks, len(shape))):
        sharding.tile_of(out, tile)[...] = block
    return out


def _rebuilt(
    results: Mapping[Any, Any],
    kind: type[AnyHandle],
    name: str,
    of: Expr,
    sharding: Sharding,
    rename: Mapping[str, str] | None = None,
) -> AnyHandle:
    """Return an array of the blocks that dask computed for a node: arrays, or Futures under a client.

    Where dask has computed nothing (``dask.optimize``), it is an array of the node itself, which plans on its own.
    """
    from dask._task_spec import GraphNode

    name = (rename or {}).get(name, name)
    blocks = [results[(name, *tile)] for tile in sharding.tiles()]
    # `dask.graph_manipulation` wraps tasks in tuples, which Dask took for tasks once
    is_wrapped = any(isinstance(block, tuple) for block in blocks)
    if is_wrapped or any(isinstance(block, GraphNode) for block in blocks):
        if is_wrapped or rename:
            raise NotSupportedError("the tasks of a DistArray cannot be given other names: take x.to_dask_array()")
        return kind._on(of)
    if not of.env.is_cluster:
        blocks = [block.result() if hasattr(block, "result") else block for block in blocks]
    node = Expr(SOURCE, (), of.shape, of.dtype, of.env)
    node.memo = Stored(sharding, blocks, exported=True)
    return kind._on(node)


def _content(records: Iterable[Record]) -> list[Any]:
    """Return what the values of a node depend on, as data that Dask makes a token of."""
    content: list[Any] = []
    for op, operands, shape, dtype, env, params, runtime, _, _, _, memo in records:
        blocks = None if memo is None else [getattr(block, "key", block) for block in memo.handles]
        place = repr((env.device, env.team, None if env.team is None else env.team.cluster))
        content.append((op.name, operands, shape, str(dtype), place, repr(params), _plain(runtime), blocks))
    return content


def _plain(runtime: Any) -> Any:
    """Return a run-time parameter as Dask makes tokens of it: functions by what they do, data by all of them.

    The text of a lens has all that it is; that of a function or of an array has not.
    """
    return repr(runtime) if type(runtime) is Affine else runtime
