"""flox with our segments: what it makes of numpy's arrays by the names of its own, lazily."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import distarray as dx
from distarray.testing import counting

flox = pytest.importorskip("flox")
xr = pytest.importorskip("xarray")
from flox.xarray import xarray_reduce  # noqa: E402
from xarray.namedarray.parallelcompat import list_chunkmanagers  # noqa: E402

from distarray.io.flox import segments  # noqa: E402

if "distarray" not in list_chunkmanagers():
    pytest.skip("the package is not installed with its entry points", allow_module_level=True)

NAMES = (
    "sum prod max min mean var std count any all first last nansum nanprod nanmax nanmin nanmean nanvar nanstd".split()
)


def weather(dtype: str) -> Any:
    rng = np.random.default_rng(5)
    values = rng.integers(-4, 5, (3, 20)).astype(dtype)
    if dtype == "f8":
        values[rng.random(values.shape) < 0.2] = np.nan
        values[1, 4:8] = np.nan  # a group without values
    labels = np.array([2, 0, 0, 1, 3, 3, 3, 3, 0, 1, 2, 0, 1, 1, 2, 2, 0, 0, 1, 2])
    return xr.DataArray(values, dims=("x", "time"), coords={"kind": ("time", labels)}, name="a")


@pytest.mark.parametrize("in_tiles", [False, True])
@pytest.mark.parametrize("dtype", ["f8", "i4"])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_groups_are_segments(name: str, dtype: str, in_tiles: bool) -> None:
    a = weather(dtype)
    if name in ("any", "all"):
        a = a > 2
    with dx.use(dx.Team((3,), ("T",), members=(0, 1, 2)) if in_tiles else None), dx.config.set(eager_bytes=0):
        x = dx.asarray(a.values, sharding=(None, "T") if in_tiles else None)
        ours = x.to_xarray(a.dims, a.coords, a.name)
        with counting() as counted:
            made = xarray_reduce(ours, "kind", func=segments(name))
        assert counted.evaluations == 0
        assert type(made.data).__name__ == "XarrayView"
        expected = xarray_reduce(a, "kind", func=name, skipna=False)
        assert made.dtype == expected.dtype
        xr.testing.assert_allclose(made.compute(), expected)


def test_groups_that_are_empty_and_two_at_once() -> None:
    a = weather("f8").assign_coords(odd=("time", np.arange(20) % 2))
    ours = dx.asarray(a.values).to_xarray(a.dims, a.coords, a.name)
    groups = {"expected_groups": np.arange(6)}
    for name in ("nanmean", "nansum", "max", "count", "prod"):
        expected = xarray_reduce(a, "kind", func=name, skipna=False, **groups)
        xr.testing.assert_allclose(xarray_reduce(ours, "kind", func=segments(name), **groups).compute(), expected)
    products = xarray_reduce(ours.fillna(1).astype("i4"), "kind", func=segments("prod"), **groups)
    assert products[:, 4:].values.tolist() == [[1, 1]] * 3
    turned = xarray_reduce(ours * 1j, "kind", func=segments("nanmean"), **groups).compute()
    xr.testing.assert_allclose(turned, xarray_reduce(a, "kind", func="nanmean", skipna=False, **groups) * 1j)
    xr.testing.assert_allclose(
        xarray_reduce(ours, "kind", "odd", func=segments("nanmean")).compute(),
        xarray_reduce(a, "kind", "odd", func="nanmean", skipna=False),
    )
    with pytest.raises(ValueError, match="median"):
        segments("median")
