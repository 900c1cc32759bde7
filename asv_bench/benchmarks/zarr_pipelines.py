"""A zarr store is read, reduced along its rows, standardised, and written with other chunks; beside dask.array.

The results are compared with numpy's at the end of `setup`. By hand, on a cluster: with a `Client` active both systems
use it.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np

from .inputs import g
from .sizes import SIZE, of_size

__all__ = ["PIPELINES", "ZarrPipelines", "source"]

#: Rows; chunks of the source and of the result.
ROWS = {"XS": 2_000, "S": 100_000, "M": 1_600_000}
COLUMNS = 512
FROM, TO = (2048, 128), (512, 512)


def source(folder: str, size: str) -> None:
    """Write the store that is read."""
    import zarr

    rows = of_size(ROWS, size)
    made = zarr.create_array(folder, name="x", shape=(rows, COLUMNS), chunks=FROM, dtype="f8")
    for k, first in enumerate(range(0, rows, FROM[0])):
        made[first : first + FROM[0]] = g(k + 1, (min(FROM[0], rows - first), COLUMNS))


def _distarray(folder: str, result: str) -> None:
    import distarray as dx

    x = dx.from_zarr(folder, "x")
    mean, deviation = x.mean(axis=0), x.std(axis=0)
    ((x - mean) / deviation).to_zarr(folder, result, chunks=TO, mode="w")


def _dask(folder: str, result: str) -> None:
    import dask.array as da

    x = da.from_zarr(folder, component="x")
    made = ((x - x.mean(axis=0)) / x.std(axis=0)).rechunk((FROM[0], COLUMNS)).rechunk(TO)
    made.to_zarr(folder, component=result, overwrite=True)


#: By name of the system: ``(folder, name of the result)``.
PIPELINES: dict[str, Callable[[str, str], None]] = {"dask.array": _dask, "distarray": _distarray}


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


def check(folder: str) -> None:
    """Compare a result with numpy's."""
    import zarr

    group: Any = zarr.open_group(folder, mode="r")
    x = group["x"][...]
    np.testing.assert_allclose(group["y"][...], (x - x.mean(axis=0)) / x.std(axis=0), rtol=1e-9, atol=1e-12)
    assert group["y"].chunks == TO
