"""xarray on our arrays: views, the chunk manager that its entry point names, and what goes to stores."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distarray as dx
from distarray.testing import counting

xr = pytest.importorskip("xarray")
from xarray.namedarray.parallelcompat import (  # noqa: E402  # where there is an xarray
    ChunkManagerEntrypoint,
    get_chunked_array_type,
    list_chunkmanagers,
)

from distarray.io.xarray import DistArrayManager  # noqa: E402
from distarray.io.xarray_view import PlannedChunks, XarrayView  # noqa: E402

if "distarray" not in list_chunkmanagers():
    pytest.skip("the package is not installed with its entry points", allow_module_level=True)

TEAM = dx.Team((3,), ("T",), members=(0, 1, 2))
VALUES = np.arange(7 * 4.0).reshape(7, 4)
manager = DistArrayManager()


class Source:
    """An array that is read by slices, and not before it is open."""

    def __init__(self, values: Any) -> None:
        self.values, self.is_open = values, False
        self.shape, self.dtype, self.ndim = values.shape, values.dtype, values.ndim
        self.read: list[Any] = []

    def __getitem__(self, key: Any) -> Any:
        assert self.is_open, "read before values were asked for"
        self.read.append(key)
        return self.values[key]


@pytest.fixture
def view() -> XarrayView:
    with dx.use(TEAM):
        return manager.from_array(VALUES, (3, 2))  # type: ignore[no-any-return]


# --------------------------------------------------------------------------------------------------- views


def test_a_view_shares_the_elements_of_its_array() -> None:
    x = dx.asarray(VALUES)
    a = x.to_xarray(dims=("x", "y"), coords={"y": np.arange(4)}, name="a", attrs={"units": "m"})
    assert type(a.data) is XarrayView
    assert (a.dims, a.name, a.attrs, a.y.values.tolist()) == (("x", "y"), "a", {"units": "m"}, [0, 1, 2, 3])
    with counting() as counted:
        a[0] = -1.0
        x[1, 1] = -2.0
        assert type(dx.asarray(a.data)) is dx.DistArray
    assert counted.fetched_bytes == 0
    np.testing.assert_array_equal(x[0].compute(), [-1, -1, -1, -1])
    assert a.values[1, 1] == -2
    np.testing.assert_array_equal(dx.asarray(a.data).compute(), a.values)


def test_coordinates_of_ours_become_views() -> None:
    x = dx.asarray(VALUES)
    a = dx.to_xarray(x, dims=("x", "y"), coords={"h": (("x", "y"), x + 1), "s": x.sum()})
    assert type(a.h.data) is type(a.s.data) is XarrayView
    np.testing.assert_array_equal((a - a.h).values, -np.ones((7, 4)))


def test_what_is_made_of_views_is_a_view(view: XarrayView) -> None:
    with dx.use(TEAM):
        plain = dx.asarray(VALUES)
    made: dict[str, Any] = {
        "plain + view": plain + view,
        "view + plain": view + plain,
        "plain ** view": plain**view,
        "plain < view": plain < view,
        "plain == view": plain == view,
        "numpy + view": VALUES + view,
        "2 - view": 2 - view,
        "-view": -view,
        "np.add": np.add(plain, view),
        "np.where": np.where(VALUES > 3, plain, view),
        "np.concatenate": np.concatenate([plain, view]),
        "np.einsum": np.einsum("ij,ij->i", plain, view),
        "sum": view.sum(axis=0),
        "T": view.T,
        "slice": view[1:3],
        "positions": view[[0, 2]],
        "reshape": view.reshape(4, 7),
        "astype": view.astype("f4"),
        "np.asarray(like)": np.asarray([1], like=view),
        "svd": np.linalg.svd(view)[1],
        "windows": np.lib.stride_tricks.sliding_window_view(view, 2, axis=0),
        "reduceat": np.add.reduceat(view, [0, 3], axis=0),
        "dx": dx.sin(view),
        "map_blocks": view.map_blocks(np.sin, dtype="f8"),
        "imag": view.imag,
        "copy": copy.copy(view),
        "deepcopy": copy.deepcopy(view),
        "pickle": pickle.loads(pickle.dumps(view)),
    }
    assert {name: type(x) for name, x in made.items()} == dict.fromkeys(made, XarrayView)
    np.testing.assert_array_equal(made["plain + view"].compute(), VALUES * 2)
    q, r = np.linalg.qr(view)
    assert type(q) is type(r) is XarrayView
    before = view
    view += 1
    assert view is before


def test_a_view_is_no_dask_collection_and_hides_its_namespace(view: XarrayView) -> None:
    import dask

    assert not dask.is_dask_collection(view)
    assert dask.is_dask_collection(dx.asarray(view))
    assert not hasattr(view, "__array_namespace__")
    assert get_chunked_array_type(view).array_cls is XarrayView
    assert dask.compute(view)[0] is view  # documented


def test_dask_does_not_take_a_view_in(view: XarrayView) -> None:
    import dask.array as da

    a = xr.DataArray(view, dims=("x", "y"))
    with xr.set_options(chunk_manager="dask"), pytest.raises(TypeError, match="chunk_manager='distarray'"):
        a.chunk(x=2).compute()
    with pytest.raises(TypeError, match="chunk_manager='distarray'"):
        da.from_array(view)
    assert type(a.chunk(x=2, chunked_array_type="distarray").data) is XarrayView


def test_a_view_is_not_written_into_numpys_arrays(view: XarrayView) -> None:
    into = np.zeros((2, 4))
    with pytest.raises(TypeError, match="use_flox=False"):
        np.add.reduceat(view, [0, 3], axis=0, out=into)
    with pytest.raises(TypeError, match="use_flox=False"):
        np.maximum.at(into, np.array([0, 1]), view[:2])
    out = np.add.reduceat(view, [0, 3], axis=0)
    assert np.add.reduceat(view, [0, 3], axis=0, out=out) is out


def test_a_plain_array_in_xarray_is_refused_with_the_way_out() -> None:
    with pytest.raises(TypeError, match=r"pass x\.to_xarray"):
        xr.DataArray(dx.asarray(VALUES)).compute()


def test_errors_of_views_wait() -> None:
    with dx.config.set(eager_bytes=0):
        x = dx.zeros((3, 3))._seen_as(XarrayView)
        inverse = np.linalg.inv(x)
        with pytest.raises(np.linalg.LinAlgError):
            inverse.compute()
        with pytest.raises(np.linalg.LinAlgError):
            dx.linalg.inv(dx.zeros((3, 3)))


def test_one_line_says_how_a_view_lies(view: XarrayView) -> None:
    assert view._repr_inline_(80) == "distarray<6 tiles on 3 members>"
    assert view._repr_inline_(9) == "distarray"
    with dx.config.set(eager_bytes=0), counting() as counted:
        assert "pending" in (view + 1)._repr_inline_(80)
        text = repr(xr.Dataset({"a": (("x", "y"), view + 1)}))
    assert "distarray<pending on 3 members>" in text
    assert (counted.evaluations, counted.planner_calls) == (0, 0)


def test_that_there_are_chunks_needs_no_plan(view: XarrayView) -> None:
    with dx.config.set(eager_bytes=0), counting() as counted:
        chunks = (view * 2 + view.sum()).chunks
        assert type(chunks) is PlannedChunks
        assert len(chunks) == 2
    assert counted.planner_calls == 0
    assert view.chunks == ((3, 3, 1), (2, 2)) == manager.chunks(view)
    with dx.use(dx.Team((4,), ("T",))):
        even = dx.arange(10, sharding=("T",))
    assert even.chunks == ((2, 3, 2, 3),)
    assert even._seen_as(XarrayView).chunks == ((3, 3, 3, 1),)  # as zarr wants them


# ------------------------------------------------------------------------------------------------- manager


def test_the_manager_has_all_of_xarrays_interface() -> None:
    assert isinstance(manager, ChunkManagerEntrypoint)
    assert DistArrayManager.available
    theirs = [n for n in vars(ChunkManagerEntrypoint) if not n.startswith("_")]
    assert [n for n in theirs if n not in vars(DistArrayManager)] == []


def test_without_xarray_loading_the_manager_raises_nothing() -> None:
    code = (
        "import sys; sys.modules['xarray'] = None; import distarray as dx\n"
        "from distarray.io.xarray import DistArrayManager\n"
        "assert not DistArrayManager.available\n"
        "try: dx.ones(3).to_xarray()\n"
        "except ModuleNotFoundError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == (
        "to_xarray needs xarray, which is not installed: pip install 'dask-distarray[xarray]'"
    )


def test_from_array_reads_in_the_tasks() -> None:
    source = Source(VALUES)
    with dx.use(TEAM), dx.config.set(eager_bytes=0):
        x = manager.from_array(source, (3, 4), name="a", lock=False, inline_array=True)
        total = (x * 2).sum()
        source.is_open = True
        assert float(total) == VALUES.sum() * 2
    rows = sorted({(key[0].start, key[0].stop) for key in source.read})
    assert rows == [(0, 3), (3, 6), (6, 7)]
    with dx.use(TEAM), pytest.raises(dx.MemoryBudgetError, match="chunks='auto'"):
        manager.from_array(Source(np.zeros((1000, 1000), "i1")), (1, 1))
    with pytest.raises(TypeError, match="there are team and device"):
        manager.from_array(VALUES, 3, colour="red")


def test_from_array_of_other_things() -> None:
    import dask.array as da

    text = np.array(["a", "b"])
    assert manager.from_array(text, 1) is text
    lazy = da.arange(10, chunks=5)
    assert type(manager.from_array(lazy, (2,))) is XarrayView
    assert manager.from_array(lazy, (2,)).sum().item() == 45
    with dx.use(TEAM):
        assert manager.from_array(VALUES, -1, team=None).team is None
        assert manager.from_array(dx.asarray(VALUES), (4, 4)).chunks == ((4, 3), (4,))


def test_chunks_are_understood_as_dask_does(view: XarrayView) -> None:
    assert manager.normalize_chunks("auto", (10, 10), limit=200, dtype=np.dtype("f8")) == ((5, 5), (5, 5))
    assert manager.normalize_chunks({0: 4}, (7, 4)) == ((4, 3), (4,))
    assert manager.normalize_chunks((0,), (0,)) == ((0,),)
    assert manager.rechunk(view, {0: 7}).chunks == ((7,), (2, 2))
    assert manager.rechunk(view, {}) is view
    assert manager.rechunk(view, "auto").chunks == ((7,), (4,))
    assert manager.get_auto_chunk_size() == 128 << 20


def test_creators_make_views() -> None:
    api = manager.array_api
    with dx.use(TEAM):
        full, numbers = api.full((7, 4), 2, dtype="f4", chunks=(3, 4)), api.arange(6, chunks=4, dtype="i4")
    assert type(full) is type(numbers) is XarrayView
    assert (full.dtype, full.chunks, numbers.chunks) == (np.dtype("f4"), ((3, 3, 1), (4,)), ((4, 2),))
    assert numbers.tolist() == [0, 1, 2, 3, 4, 5]


def test_functions_of_blocks_wait_and_are_right(view: XarrayView) -> None:
    def total(block: Any, axis: Any, keepdims: bool) -> Any:
        return np.sum(block, axis=axis, keepdims=keepdims)

    def fails(block: Any) -> Any:
        raise RuntimeError("called")

    with dx.config.set(eager_bytes=0), counting() as counted:
        made = {
            "reduction": (manager.reduction(view, total, axis=0, dtype="f8"), VALUES.sum(0)),
            "scan": (manager.scan(np.cumsum, np.add, 0, view, axis=0, dtype="f8"), VALUES.cumsum(0)),
            "gufunc": (manager.apply_gufunc(np.sort, "(i)->(i)", view, allow_rechunk=True), np.sort(VALUES)),
            "map_blocks": (manager.map_blocks(np.negative, view), -VALUES),
            "blockwise": (manager.blockwise(np.add, "ij", view, "ij", view, "ij", dtype="f8"), VALUES * 2),
            "shuffle": (manager.shuffle(x=view, indexer=[[1, 3], [0]], axis=0, chunks=None), VALUES[[1, 3, 0]]),
        }
        failing = manager.map_blocks(fails, view, dtype="f8")
    assert counted.evaluations == 0
    for name, (found, expected) in made.items():
        assert type(found) is XarrayView, name
        np.testing.assert_array_equal(found.compute(), expected, err_msg=name)
    with pytest.raises(RuntimeError, match="called"):
        failing.compute()


def test_chunks_are_unified() -> None:
    with dx.use(TEAM):
        x, y = manager.from_array(VALUES, (3, 4)), manager.from_array(VALUES[:, 0], (4,))
    chunks, (a, b, c) = manager.unify_chunks(x, ("i", "j"), y, ("i",), VALUES, ("i", "j"))
    assert chunks == {"i": (3, 1, 2, 1), "j": (4,)}
    assert (a.chunks, b.chunks, c is VALUES) == (((3, 1, 2, 1), (4,)), ((3, 1, 2, 1),), True)


def test_computed_together(view: XarrayView) -> None:
    a = xr.DataArray(view, dims=("x", "y"))
    ds = xr.Dataset({"sum": a.sum("x"), "mean": a.mean("x")}, coords={"m": a.max()})
    tree = xr.DataTree.from_dict({"/": ds})
    with dx.config.set(eager_bytes=0), counting() as counted:
        first, second, third, (fourth, text) = dx.compute(ds, {"a": [a + 1]}, tree, (view * 2, "text"))
    assert counted.evaluations == 1
    assert isinstance(first["sum"].data, np.ndarray)
    assert isinstance(first.m.data, np.ndarray)
    np.testing.assert_array_equal(second["a"][0].data, VALUES + 1)
    np.testing.assert_array_equal(third["mean"].data, VALUES.mean(0))
    np.testing.assert_array_equal(fourth, VALUES * 2)
    assert text == "text"
    with counting() as counted:
        found = (a * 3).to_dataset(name="b").persist()
        kept = dx.persist(a * 3)[0]
        assert type(found.b.data) is type(kept.data) is XarrayView
        assert found.b.data._known_sharding() is not None
    np.testing.assert_array_equal(a.to_numpy(), VALUES)


# -------------------------------------------------------------------------------------------------- stores


class Target:
    """What an array is stored to: notes who wrote what."""

    def __init__(self, shape: tuple[int, ...], chunks: tuple[int, ...] | None = None) -> None:
        self.values = np.full(shape, np.nan)
        self.shape = shape
        self.written: list[Any] = []
        if chunks is not None:
            self.chunks = chunks

    def __setitem__(self, key: Any, value: Any) -> None:
        assert type(value) is np.ndarray
        self.written.append([(k.start, k.stop) for k in key])
        self.values[key] = value


def test_each_chunk_of_a_target_is_written_by_one_task(view: XarrayView) -> None:
    target, second = Target((10, 4), (4, 4)), Target((7, 4))
    manager.store(
        [view + 1, view * 2], [target, second], lock=True, regions=[(slice(2, 9), slice(None)), None], flush=True
    )
    np.testing.assert_array_equal(target.values[2:9], VALUES + 1)
    np.testing.assert_array_equal(second.values, VALUES * 2)
    assert np.isnan(target.values[[0, 1, 9]]).all()
    chunks = [{row // 4 for row in range(*rows)} for rows, _ in target.written]
    assert sorted(map(sorted, chunks)) == [[0], [1], [2]]


def test_storing_later(view: XarrayView) -> None:
    target = Target((7, 4))
    later = manager.store([view], [target], compute=False)
    assert target.written == []
    later.compute()
    np.testing.assert_array_equal(target.values, VALUES)


def test_a_region_is_where_an_array_goes(view: XarrayView) -> None:
    target = Target((9, 4))
    manager.store([view], [target], regions=[slice(-7, None)])
    np.testing.assert_array_equal(target.values[2:], VALUES)
    assert np.isnan(target.values[:2]).all()
    target.written.clear()
    for region, text in (
        ((slice(0, 7, 2), slice(None)), "slices of step 1"),
        ((slice(0, 8),), r"shape \(7, 4\) does not fit \(8, 4\)"),
        ((slice(4, 20),), r"does not fit \(5, 4\)"),
        ((slice(7), slice(4), slice(1)), "at most one for each axis"),
    ):
        with pytest.raises(ValueError, match=text):
            manager.store([view], [target], regions=[region])
    assert target.written == []


def weather() -> Any:
    time = np.datetime64("2001-01-01", "ns") + np.arange(12) * np.timedelta64(1, "D")
    values = np.arange(12 * 4.0).reshape(12, 4)
    return xr.Dataset(
        {"air": (("time", "x"), values), "n": ("time", np.arange(12)), "name": ("x", np.array(list("abcd")))},
        coords={"time": time, "x": np.arange(4), "height": ("x", np.arange(4.0))},
    )


def written_and_read_zarr(folder: Path) -> None:
    ds, options = weather(), {"chunked_array_type": "distarray"}
    ds.drop_vars("name").chunk({"time": 5}, **options).to_zarr(folder / "a", consolidated=False)
    opened = xr.open_zarr(folder / "a", consolidated=False, from_array_kwargs={}, **options)
    assert type(opened.air.data) is XarrayView
    assert opened.air.chunks == ((5, 5, 2), (4,))
    xr.testing.assert_identical(opened.compute(), ds.drop_vars("name"))
    (opened.air - opened.air.mean("x")).to_dataset(name="off").to_zarr(folder / "b", consolidated=False)
    found = xr.open_zarr(folder / "b", consolidated=False, **options)
    xr.testing.assert_allclose(found.off.compute(), ds.air - ds.air.mean("x"))
    part = (opened.air * 0).isel(time=slice(5, 10)).to_dataset(name="air").drop_vars(["x", "height"])
    part.to_zarr(folder / "a", region={"time": slice(5, 10)}, consolidated=False)
    changed = xr.open_zarr(folder / "a", consolidated=False, **options).air.compute()
    np.testing.assert_array_equal(changed[5:10], 0)
    np.testing.assert_array_equal(changed[:5], ds.air[:5])


def test_zarr(tmp_path: Path) -> None:
    pytest.importorskip("zarr", minversion="3")
    with dx.use(TEAM), xr.set_options(chunk_manager="distarray"):
        written_and_read_zarr(tmp_path)


def test_even_cuts_go_to_zarr_as_they_are(tmp_path: Path) -> None:
    pytest.importorskip("zarr", minversion="3")
    with dx.use(dx.Team((4,), ("T",))):
        x = dx.arange(10.0, sharding=("T",)) * 2
        x.to_xarray(dims="x", name="a").to_dataset().to_zarr(tmp_path / "a", consolidated=False)
    np.testing.assert_array_equal(xr.open_zarr(tmp_path / "a", consolidated=False).a, np.arange(10.0) * 2)


@pytest.mark.parametrize("engine", ["netcdf4", "h5netcdf"])
def test_netcdf(engine: str, tmp_path: Path) -> None:
    pytest.importorskip({"netcdf4": "netCDF4", "h5netcdf": "h5netcdf"}[engine])
    if engine == "h5netcdf":
        pytest.importorskip("h5py")
    ds = weather()
    with dx.use(TEAM), xr.set_options(chunk_manager="distarray"):
        ds.chunk({"time": 5}).to_netcdf(tmp_path / "a.nc", engine=engine)
        with xr.open_dataset(tmp_path / "a.nc", engine=engine, chunks={"time": 4}) as opened:
            assert type(opened.air.data) is XarrayView
            assert not isinstance(opened.name.variable._data, XarrayView)  # text stays xarray's
            np.testing.assert_array_equal(opened.air.mean("time").values, ds.air.mean("time"))
            xr.testing.assert_identical(opened.compute(), ds)


@pytest.mark.cluster
def test_zarr_of_a_cluster_is_written_and_read_by_its_workers(process_cluster: Any, tmp_path: Path) -> None:
    pytest.importorskip("zarr", minversion="3")
    with xr.set_options(chunk_manager="distarray"):
        written_and_read_zarr(tmp_path)
        a = weather().air.chunk({"time": 5})
        with pytest.raises(dx.NotSupportedError, match="compute=False"):
            manager.store([a.data], [Target((12, 4))], compute=False)


@pytest.mark.cluster
@pytest.mark.slow
def test_netcdf_of_a_cluster_is_written_and_read_by_its_workers(process_cluster: Any, tmp_path: Path) -> None:
    pytest.importorskip("netCDF4")
    with xr.set_options(chunk_manager="distarray"):
        weather().chunk({"time": 5}).to_netcdf(tmp_path / "a.nc", engine="netcdf4")
        with xr.open_dataset(tmp_path / "a.nc", engine="netcdf4", chunks={"time": 4}) as opened:
            assert type(opened.air.data) is XarrayView
            np.testing.assert_array_equal(opened.air.mean("time").values, weather().air.mean("time"))
