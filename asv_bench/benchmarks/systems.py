"""The systems that are compared: how each takes an input, and what makes it work.

All run the same text against their namespace. Inputs are made and placed before the clock starts. A result stays
where its system keeps it (`force`): gathering into one numpy array is timed for none.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import os
import tempfile
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache, partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from .inputs import Source

__all__ = ["DISTRIBUTED", "IN_PROCESS", "SYSTEMS", "Cubed", "DaskArray", "DistArray", "Jax", "Numpy", "System"]

Program = Callable[..., tuple[Any, ...]]


class System(Protocol):
    """An array library under test. `blocks` is the number of blocks per axis; None leaves it to the system."""

    name: str
    planner: str  # distarray's option; "" of the others

    @property
    def xp(self) -> Any: ...  # the namespace of another library

    def put(self, value: NDArray[Any], blocks: Sequence[int] | None = None) -> Any:
        """`value` as an array of the system, placed."""

    def spread(self, value: NDArray[Any], n_workers: int) -> Any:
        """`value` as an array of the system, a block of rows at each worker of the cluster."""

    def force(self, x: Any) -> Any:
        """Do the work of `x`, leaving the result in the system."""

    def make(self, source: Source, parts: int, cut: Any = None) -> Any:
        """The operand of a workload for `parts` workers, not yet computed; `cut` is a sharding of distarray."""

    def start(self, program: Program, operands: Sequence[Any], **options: Any) -> tuple[Any, ...]:
        """Results of ``program(xp, *operands, **options)``, being computed and staying in the system."""

    def finish(self, *arrays: Any) -> None:
        """Wait until arrays are computed."""


class Numpy:
    name = "numpy"
    planner = ""

    @property
    def xp(self) -> Any:
        return np

    def put(self, value: NDArray[Any], blocks: Sequence[int] | None = None) -> Any:
        return value.copy()

    def spread(self, value: NDArray[Any], n_workers: int) -> Any:
        return value

    def force(self, x: Any) -> Any:
        return x

    def make(self, source: Source, parts: int, cut: Any = None) -> Any:
        return source.part()

    def start(self, program: Program, operands: Sequence[Any], **options: Any) -> tuple[Any, ...]:
        return program(np, *operands, **options)

    def finish(self, *arrays: Any) -> None:
        pass


def _open_grid(xp: Any, shape: Sequence[int], chunks: Sequence[Any] | None) -> list[Any]:
    """The indices along each axis, shaped to broadcast against each other."""
    made = []
    for axis, n in enumerate(shape):
        places = xp.arange(n) if chunks is None else xp.arange(n, chunks=(chunks[axis],))
        made.append(places[tuple(slice(None) if axis == a else None for a in range(len(shape)))])
    return made


def _chunks(shape: Sequence[int], blocks: Sequence[int]) -> tuple[int, ...]:
    return tuple(max(1, math.ceil(n / k)) for n, k in zip(shape, blocks, strict=True))


def _grid(shape: Sequence[int], parts: int) -> tuple[int, ...]:
    """Block sizes of sqrt(p) blocks per axis."""
    return _chunks(shape, (math.ceil(math.sqrt(parts)),) * len(shape))


class DaskArray:
    """dask.array with ``chunks="auto"`` (`fair` false), or with sqrt(p) chunks per axis for p threads.

    `module` is another library of its kind; `rechunk` says how blocks are exchanged (``tasks``, ``p2p``).
    """

    planner = ""

    def __init__(self, name: str, fair: bool, module: str = "dask.array", rechunk: str | None = None) -> None:
        self.name = name
        self.fair = fair
        self.module = module
        self.rechunk = rechunk

    @property
    def xp(self) -> Any:
        return importlib.import_module(self.module)  # heavy, or not installed: only where it is compared

    def put(self, value: NDArray[Any], blocks: Sequence[int] | None = None) -> Any:
        if blocks is None and self.fair:
            blocks = (math.ceil(math.sqrt(os.cpu_count() or 1)),) * value.ndim
        chunks = "auto" if blocks is None else _chunks(value.shape, blocks)
        return self.xp.from_array(value.copy(), chunks=chunks).persist()

    def spread(self, value: NDArray[Any], n_workers: int) -> Any:
        return self.put(value, (n_workers, *[1] * (value.ndim - 1)))

    def force(self, x: Any) -> Any:
        return x.persist()

    def make(self, source: Source, parts: int, cut: Any = None) -> Any:
        from dask.array.core import normalize_chunks

        shape, xp = source.shape, self.xp
        wanted = source.blocks or (_grid(shape, parts) if self.fair else "auto")
        chunks = normalize_chunks(wanted, shape, dtype=np.dtype(source.dtype))
        meta = np.empty((0,) * len(shape), source.dtype)
        # Without `chunks` an axis of one block would count as broadcast, with an extent of 1.
        return xp.map_blocks(source, *_open_grid(xp, shape, chunks), dtype=source.dtype, meta=meta, chunks=chunks)

    def start(self, program: Program, operands: Sequence[Any], **options: Any) -> tuple[Any, ...]:
        import dask

        with dask.config.set({"array.rechunk.method": self.rechunk}):
            made: tuple[Any, ...] = dask.persist(*program(self.xp, *operands, **options))
        return made

    def finish(self, *arrays: Any) -> None:
        from distributed import futures_of, wait

        if pending := futures_of(arrays):
            wait(pending)
            for future in pending:
                if future.status != "finished":
                    future.result()  # raises what its task raised


class DistArray:
    """distarray, with one of its planners; with `fair`, operands are placed as those of dask.array's fair baseline."""

    def __init__(self, name: str = "distarray", planner: str = "auto", fair: bool = False) -> None:
        self.name = name
        self.planner = planner
        self.fair = fair

    @property
    def xp(self) -> Any:
        import distarray

        return distarray

    def put(self, value: NDArray[Any], blocks: Sequence[int] | None = None) -> Any:
        dx = self.xp
        if blocks is None or math.prod(blocks) == 1:
            return dx.asarray(value).persist()
        # Two members along every axis that is cut; what is finer are wave axes, tiles that follow each other on one.
        cut = {axis: k for axis, k in enumerate(blocks) if k > 1}
        if any(k % 2 for k in cut.values()):
            raise ValueError(f"blocks={tuple(blocks)}: two members share an axis, so its blocks are 1 or even")
        members = {axis: "ABCD"[axis] for axis in cut}
        team = dx.Team((2,) * len(cut), tuple(members.values()))
        waves = {axis: f"%{i + 1}" for i, axis in enumerate(cut)}
        mesh = dx.Mesh((*members.values(), *waves.values()), (*team.shape, *(k // 2 for k in cut.values())))
        axes = tuple((waves[axis], members[axis]) if axis in cut else () for axis in range(value.ndim))
        # Host data stay one array of this process until an operation cuts them; adding 0 does.
        return (dx.asarray(value, team=team, sharding=dx.Sharding(mesh, axes)) + 0).persist()

    def spread(self, value: NDArray[Any], n_workers: int) -> Any:
        x = self.xp.asarray(value)
        return (x + 0).reshard((self.xp.current_team().mesh.names, *[None] * (x.ndim - 1))).persist()

    def force(self, x: Any) -> Any:
        return x.persist()

    def make(self, source: Source, parts: int, cut: Any = None) -> Any:
        dx = self.xp
        # Errors of a user's function are wanted at the call by default, which would compute it there.
        with dx.config.set(errors="deferred"):
            x = dx.map_blocks(source, *_open_grid(dx, source.shape, None), dtype=source.dtype)
        if cut is not None:
            return x.reshard(cut)
        blocks = source.blocks or (_grid(source.shape, parts) if self.fair else None)
        return x if blocks is None else x.rechunk(blocks)

    def start(self, program: Program, operands: Sequence[Any], **options: Any) -> tuple[Any, ...]:
        dx = self.xp
        with dx.config.set(planner=self.planner):
            made: tuple[Any, ...] = dx.persist(*program(dx, *operands, **options))
        return made

    def finish(self, *arrays: Any) -> None:
        self.xp.wait(*arrays)


class Jax:
    """JAX on the CPUs, in double precision. A program is compiled as a whole unless it says that it ``waits``."""

    name = "jax"
    planner = ""

    @cached_property
    def xp(self) -> Any:
        import jax

        jax.config.update("jax_enable_x64", True)
        jax.config.update("jax_platforms", "cpu")
        return importlib.import_module("jax.numpy")

    def put(self, value: NDArray[Any], blocks: Sequence[int] | None = None) -> Any:
        return self.xp.asarray(value)

    spread = put  # it has no workers

    def force(self, x: Any) -> Any:
        return x.block_until_ready()

    def make(self, source: Source, parts: int, cut: Any = None) -> Any:
        return self.put(source.part())

    def start(self, program: Program, operands: Sequence[Any], **options: Any) -> tuple[Any, ...]:
        run = partial(program, self.xp) if getattr(program, "waits", False) else self._compiled(program)
        made: tuple[Any, ...] = run(*operands, **options)
        return made

    @lru_cache(maxsize=64)  # noqa: B019  # the systems live as long as the process
    def _compiled(self, program: Program) -> Any:
        import jax

        return jax.jit(partial(program, self.xp))

    def finish(self, *arrays: Any) -> None:
        for x in arrays:
            x.block_until_ready()


class Cubed:
    """cubed on the threads of this process. What it computes it returns as numpy arrays."""

    name = "cubed"
    planner = ""

    @cached_property
    def xp(self) -> Any:
        return importlib.import_module("cubed.array_api")

    @cached_property
    def _spec(self) -> Any:
        import cubed

        self._folder = tempfile.TemporaryDirectory(prefix="cubed-")
        return cubed.Spec(work_dir=self._folder.name, allowed_mem="4GB", executor_name="threads")

    def put(self, value: NDArray[Any], blocks: Sequence[int] | None = None) -> Any:
        import cubed

        return cubed.from_array(value, chunks="auto", spec=self._spec)

    def spread(self, value: NDArray[Any], n_workers: int) -> Any:
        return self.put(value)

    def force(self, x: Any) -> Any:
        return x.compute()

    def make(self, source: Source, parts: int, cut: Any = None) -> Any:
        return self.put(source.part())

    def start(self, program: Program, operands: Sequence[Any], **options: Any) -> tuple[Any, ...]:
        import cubed

        made: tuple[Any, ...] = tuple(cubed.compute(*program(self.xp, *operands, **options)))
        return made

    def finish(self, *arrays: Any) -> None:
        pass


#: By name, in the order of tables. Both cuts of dask.array: its own choice may be one chunk, hence one thread.
SYSTEMS: dict[str, System] = {
    system.name: system
    for system in (Numpy(), DaskArray("dask.array", fair=False), DaskArray("dask.array-grid", fair=True), DistArray())
}

#: What the workloads of the paper are compared on, by name: dask-array may be missing, and plans of distarray have
#: several makers.
DISTRIBUTED: dict[str, System] = SYSTEMS | {
    system.name: system
    for system in (
        DaskArray("dask.array-tasks", fair=False, rechunk="tasks"),
        DaskArray("dask.array-p2p", fair=False, rechunk="p2p"),
        DaskArray("dask-array", fair=False, module="dask_array"),
        DaskArray("dask-array-grid", fair=True, module="dask_array"),
        DistArray("distarray-grid", fair=True),
        DistArray("distarray-eindecomp", planner="eindecomp"),
        DistArray("distarray-propagation", planner="propagation"),
    )
}

#: What everyday programs are compared on in one process: what is installed.
IN_PROCESS: dict[str, System] = {
    name: system
    for name, module, system in (
        ("numpy", "numpy", SYSTEMS["numpy"]),
        ("dask.array", "dask.array", SYSTEMS["dask.array"]),
        ("dask-array", "dask_array", DISTRIBUTED["dask-array"]),
        ("cubed", "cubed", Cubed()),
        ("jax", "jax", Jax()),
        ("distarray", "distarray", SYSTEMS["distarray"]),
    )
    if importlib.util.find_spec(module.partition(".")[0])
}
