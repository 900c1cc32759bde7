"""The zarr pipeline: both systems write what numpy computes."""

from pathlib import Path

import pytest

pytest.importorskip("zarr", minversion="3")
from benchmarks import zarr_pipelines  # after zarr is known to be there


@pytest.mark.parametrize("system", zarr_pipelines.PIPELINES)
@pytest.mark.filterwarnings("ignore::UserWarning:dask")
def test_pipelines_write_what_numpy_computes(system: str, tmp_path: Path) -> None:
    zarr_pipelines.source(str(tmp_path), "XS")
    zarr_pipelines.PIPELINES[system](str(tmp_path), "y")
    zarr_pipelines.check(str(tmp_path))
