"""A zarr store is read, reduced along its rows, standardised, and written with other chunks, by several systems.

The results are compared with numpy's at the end of `setup`. With a `Client` active all systems use its workers:
``asv_bench/zarr_cluster.py``.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import itertools
import math
import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .inputs import g
from .sizes import SIZE, of_size

__all__ = ["PIPELINES", "ROWS", "ZarrPipelines", "check", "chunks_written", "n_chunks", "source", "target"]

#: Rows: 8 MB, 410 MB, 256 MiB, 12 GiB, 6 GiB.
ROWS = {"XS": 2_000, "S": 100_000, "M/24": 65_536, "G": 3_145_728, "M": 1_572_864}
COLUMNS = 512
#: Chunks of the source and of the result.
FROM, TO = (2048, 128), (512, 512)


def source(folder: str, size: str) -> None:
    """Write the store that is read; each of its columns has a mean and a deviation of its own."""
    import zarr

    rows = of_size(ROWS, size)
    made = zarr.create_array(folder, name="x", shape=(rows, COLUMNS), chunks=FROM, dtype="f8")
    scale, offset = np.linspace(0.5, 2, COLUMNS), np.arange(COLUMNS) / 8
    for k, first in enumerate(range(0, rows, FROM[0])):
        made[first : first + FROM[0]] = g(k + 1, (min(FROM[0], rows - first), COLUMNS)) * scale + offset


def target(folder: str, result: str) -> Any:
    """Return an empty array of the result's chunks, which every system fills."""
    import zarr

    shape = zarr.open_array(folder, path="x", mode="r").shape
    return zarr.create_array(folder, name=result, shape=shape, chunks=TO, dtype="f8", overwrite=True)


def n_chunks(size: str) -> int:
    """Return the chunks of the result."""
    return math.ceil(of_size(ROWS, size) / TO[0]) * math.ceil(COLUMNS / TO[1])


def chunks_written(folder: str, result: str) -> int:
    """Return the chunks of the result that have their names by now."""
    return sum(1 for name in Path(folder, result, "c").glob("*/*") if name.name.isdigit())


# ---------------------------------------------------------------------------------------------------------- systems


def _distarray(folder: str, result: str) -> None:
    import distarray as dx

    x = dx.from_zarr(folder, "x")
    ((x - x.mean(axis=0)) / x.std(axis=0)).to_zarr(target(folder, result))


def _dask(module: str, in_one: bool, folder: str, result: str) -> None:
    """In one graph, or the moments before the rest: dask keeps what two of its steps read, here all of the store."""
    import dask

    da = importlib.import_module(module)
    x = da.from_zarr(folder, component="x")
    mean, deviation = x.mean(axis=0), x.std(axis=0)
    if not in_one:
        mean, deviation = dask.compute(mean, deviation)
    ((x - mean) / deviation).rechunk((FROM[0], COLUMNS)).rechunk(TO).store(target(folder, result), lock=False)


def _cubed(folder: str, result: str) -> None:
    """On the workers of the `Client`, if there is one, which limits what a task may have; on threads else."""
    import cubed
    import cubed.array_api as xp

    options: dict[str, Any] = {"executor_name": "threads", "allowed_mem": "1GB"}
    with contextlib.suppress(ImportError, ValueError):  # the latter where there is none
        from distributed import default_client

        client = default_client()
        # It asks an asynchronous client for the workers' limits, which distributed of 2026 does not answer.
        importlib.import_module("cubed.runtime.executors.dask").check_runtime_memory = lambda spec, client: None
        limits = [worker["memory_limit"] for worker in client.scheduler_info(-1)["workers"].values()]
        options = {
            "executor_name": "dask",
            "executor_options": {"compute_kwargs": {"address": client.scheduler.address}},
            "allowed_mem": int(0.8 * min(limits)),
            "reserved_mem": "150MB",  # what a worker has after its imports
        }
    with tempfile.TemporaryDirectory(dir=folder) as between:
        x = cubed.from_zarr(folder, path="x", spec=cubed.Spec(work_dir=between, **options))
        made = (x - xp.mean(x, axis=0)) / xp.std(x, axis=0)
        cubed.to_zarr(made.rechunk(TO), target(folder, result))


#: By name of the system: ``(folder, name of the result)``. Those that are installed.
PIPELINES: dict[str, Callable[[str, str], None]] = {
    name: pipeline
    for name, module, pipeline in (
        ("dask.array", "dask", partial(_dask, "dask.array", True)),
        ("dask.array in two", "dask", partial(_dask, "dask.array", False)),
        ("dask-array", "dask_array", partial(_dask, "dask_array", True)),
        ("dask-array in two", "dask_array", partial(_dask, "dask_array", False)),
        ("cubed", "cubed", _cubed),
        ("distarray", "distarray", _distarray),
    )
    if importlib.util.find_spec(module)
}


# ------------------------------------------------------------------------------------------------------------ checks


def moments(folder: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the mean and the deviation of each column of the source, of as many rows at a time as a chunk has."""
    import zarr

    x: Any = zarr.open_array(folder, path="x", mode="r")
    bands = [slice(lo, lo + FROM[0]) for lo in range(0, x.shape[0], FROM[0])]
    mean = sum(x[band].sum(axis=0) for band in bands) / x.shape[0]
    squares = sum(np.square(x[band] - mean).sum(axis=0) for band in bands)
    return mean, np.sqrt(squares / x.shape[0])


def check(folder: str, result: str = "y", known: tuple[NDArray[Any], NDArray[Any]] | None = None) -> None:
    """Compare a result with numpy's, band by band; `known` are the `moments`."""
    import zarr

    x: Any = zarr.open_array(folder, path="x", mode="r")
    y: Any = zarr.open_array(folder, path=result, mode="r")
    assert (y.shape, y.chunks) == (x.shape, TO), (y.shape, y.chunks)
    mean, deviation = known or moments(folder)
    for lo, hi in itertools.pairwise([*range(0, x.shape[0], FROM[0]), x.shape[0]]):
        np.testing.assert_allclose(y[lo:hi], (x[lo:hi] - mean) / deviation, rtol=1e-9, atol=1e-9)


class ZarrPipelines:
    params = ([SIZE], list(PIPELINES))
    param_names = ("size", "system")
    timeout = 1200

    def setup(self, size: str, system: str) -> None:
        self.folder = tempfile.mkdtemp()
        source(self.folder, size)
        PIPELINES[system](self.folder, "y")
        if size == "XS":
            check(self.folder)

    def teardown(self, size: str, system: str) -> None:
        shutil.rmtree(self.folder)

    def time_pipeline(self, size: str, system: str) -> None:
        PIPELINES[system](self.folder, "y")

    def peakmem_pipeline(self, size: str, system: str) -> None:
        PIPELINES[system](self.folder, "y")
