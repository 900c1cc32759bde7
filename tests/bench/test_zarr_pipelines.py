"""The zarr pipeline: every system that is installed writes what numpy computes."""

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
    assert zarr_pipelines.chunks_written(str(tmp_path), "y") == zarr_pipelines.n_chunks("XS") == 4


def test_a_wrong_element_is_found(tmp_path: Path) -> None:
    import zarr

    zarr_pipelines.source(str(tmp_path), "XS")
    zarr_pipelines.PIPELINES["distarray"](str(tmp_path), "y")
    y = zarr.open_array(tmp_path, path="y")
    y[1999, 511] = y[1999, 511] + 1e-6
    with pytest.raises(AssertionError, match="1e-0"):
        zarr_pipelines.check(str(tmp_path))
