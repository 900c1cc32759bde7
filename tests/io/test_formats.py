"""HDF5, Parquet, raw binary, archives, text, Dask's lazy values: numpy's numbers, and no more read than is needed."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distarray as dx
from distarray import config
from distarray.io import hdf5, parquet
from distarray.testing import counting
from distarray.testing.assertions import assert_equal

A = np.random.default_rng(0).standard_normal((40, 6))
T4 = dx.Team((4,), ("R",), members=(0, 1, 2, 3))
DTYPES = "? i1 i2 <i4 >i4 u8 f2 <f4 >f8 c8 c16".split()


def values(dtype: str, shape: tuple[int, ...] = (13, 7)) -> np.ndarray:
    return np.asarray(np.random.default_rng(3).integers(0, 100, shape).astype(dtype))


@contextmanager
def boxes_read(patch: pytest.MonkeyPatch, store: type) -> Iterator[list[Any]]:
    """The boxes that tasks read of stores of a kind."""
    found: list[Any] = []
    original = store.read  # type: ignore[attr-defined]

    def read(self: Any, box: Any, out: Any) -> None:
        found.append(tuple(box))
        original(self, box, out)

    with patch.context() as inside:
        inside.setattr(store, "read", read)
        yield found


# -- HDF5 ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunks", [None, (4, 3)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_hdf5_of_every_dtype(tmp_path: Path, dtype: str, chunks: Any) -> None:
    h5py = pytest.importorskip("h5py")
    expected = values(dtype)
    native = expected.astype(expected.dtype.newbyteorder("="))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("deep/x", data=expected, chunks=chunks)
    with config.set(block_bytes=64):
        x = dx.from_hdf5(tmp_path / "a.h5", "deep/x", team=T4)
        assert_equal(x, native)
        dx.to_hdf5(x, tmp_path / "a.h5", "y", chunks=chunks, attributes={"unit": "K"})
    with h5py.File(tmp_path / "a.h5") as file:
        assert list(file) == ["deep", "y"]
        assert (file["y"].dtype, file["y"].chunks, file["y"].attrs["unit"]) == (native.dtype, chunks, "K")
        np.testing.assert_array_equal(file["y"][...], expected)
        assert_equal(dx.from_hdf5(file["y"]), native)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (2, 3, 5)])
def test_hdf5_of_any_shape(tmp_path: Path, shape: tuple[int, ...]) -> None:
    pytest.importorskip("h5py")
    dx.to_hdf5(values("f8", shape), tmp_path / "a.h5", "x")
    assert_equal(dx.from_hdf5(tmp_path / "a.h5", "x"), values("f8", shape))


def test_hdf5_reads_each_chunk_once_and_when_it_is_needed(tmp_path: Path, monkeypatch: Any) -> None:
    pytest.importorskip("h5py")
    dx.to_hdf5(A, tmp_path / "a.h5", "x", chunks=(7, 6))
    with config.set(block_bytes=64), boxes_read(monkeypatch, hdf5.DatasetStore) as found:
        x = dx.from_hdf5(tmp_path / "a.h5", "x", team=T4)
        y = (x - x.mean(axis=0)) / x.std(axis=0)
        assert not found
        np.testing.assert_allclose(y.compute(), (A - A.mean(0)) / A.std(0), rtol=1e-12)
    assert sorted(rows for rows, _ in found) == [(k, min(k + 7, 40)) for k in range(0, 40, 7)]


def test_hdf5_says_what_is_wrong(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "a.h5"
    dx.to_hdf5(A, path, "g/x")
    with pytest.raises(KeyError, match=r"no dataset 'y'; it has g/x"):
        dx.from_hdf5(path, "y")
    with pytest.raises(FileNotFoundError):
        dx.from_hdf5(tmp_path / "none.h5", "x")
    with pytest.raises(ValueError, match="has 'g/x' already"):
        dx.to_hdf5(A, path, "g/x")
    with pytest.raises(TypeError, match=r"astype\('int64'\)"):
        dx.to_hdf5(np.zeros(3, "M8[s]"), path, "dates")
    with h5py.File(tmp_path / "b.h5", "w") as file:
        file["null"] = h5py.Empty("f8")
        file["x"] = A
        with pytest.raises(TypeError, match="/null: the dataset has no elements, and no shape"):
            dx.from_hdf5(file["null"])
        with pytest.raises(ValueError, match="name='y' is for files, but /x is a dataset"):
            dx.from_hdf5(file["x"], "y")
    x = dx.from_hdf5(path, "g/x")
    dx.to_hdf5(A, path, "more")
    with pytest.raises(OSError, match="has changed since"):
        x.compute()


def test_a_failed_dataset_is_not_there(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    np.save(tmp_path / "x.npy", A)
    x = dx.load(tmp_path / "x.npy")
    os.unlink(tmp_path / "x.npy")
    with pytest.raises(FileNotFoundError):
        dx.to_hdf5(x, tmp_path / "a.h5", "x")
    with h5py.File(tmp_path / "a.h5") as file:
        assert not list(file)


def test_datasets_of_names_alike_stay_and_what_dead_processes_left_goes(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "a.h5"
    for name in ("g/x.part", "g/x." + 31 * "0" + ".part", "g/y." + 32 * "0" + ".part"):
        dx.to_hdf5(A, path, name)
    with h5py.File(path, "a") as file:
        file["g/x." + 32 * "a" + ".part"] = A
    dx.to_hdf5(A + 1, path, "g/x")
    with h5py.File(path) as file:
        assert sorted(file["g"]) == ["x", "x." + 31 * "0" + ".part", "x.part", "y." + 32 * "0" + ".part"]
        np.testing.assert_array_equal(file["g/x"][...], A + 1)


def test_a_new_hdf5_file_takes_the_place_of_the_old_one_when_it_is_complete(tmp_path: Path) -> None:
    pytest.importorskip("h5py")
    path = tmp_path / "a.h5"
    dx.to_hdf5(A, path, "x")
    for broken, options in ((unreadable(tmp_path), {}), (dx.ones(4), {"chunks": "all"})):
        with pytest.raises((FileNotFoundError, ValueError)):
            dx.to_hdf5(broken, path, "y", mode="w", **options)
        assert_equal(dx.from_hdf5(path, "x"), A)
    assert [p.name for p in tmp_path.iterdir()] == ["a.h5"]
    dx.to_hdf5(dx.from_hdf5(path, "x") + 1, path, "x", mode="w")
    assert_equal(dx.from_hdf5(path, "x"), A + 1)


def unreadable(folder: Path) -> dx.DistArray:
    """Return an array whose file is gone."""
    np.save(folder / "gone.npy", A)
    x = dx.load(folder / "gone.npy")
    os.unlink(folder / "gone.npy")
    return x


# -- Parquet -------------------------------------------------------------------------------------------------------


def table(path: Path, rows: slice = np.s_[:], **options: Any) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    n = np.arange(100)[rows]
    with_nulls = [None if i % 7 == 0 else i for i in n.tolist()]
    columns = {
        "i": n,
        "f": n / 4,
        "b": n % 3 == 0,
        "t": n.astype("M8[ns]"),
        "s": [str(i) for i in n],
        "gaps": with_nulls,
    }
    pq.write_table(pa.table(columns), path, **options)


def test_parquet_columns(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table(path, row_group_size=13)
    n = np.arange(100)
    with config.set(block_bytes=64):
        for name, expected in {"i": n, "f": n / 4, "b": n % 3 == 0, "t": n.astype("M8[ns]")}.items():
            assert_equal(dx.from_parquet(path, name, team=T4), expected)
        both = dx.from_parquet(path, ["f", "i"], team=T4)
        assert_equal(both, np.stack([n / 4, n], axis=1))
        assert_equal(both[30:50, 1] + 1, n[30:50] + 1.0)
        gaps = dx.from_parquet(path, "gaps", float)
        assert int(dx.isnan(gaps).sum()) == 15
        assert_equal(gaps[1:7], np.arange(1.0, 7.0))
        with pytest.raises(ValueError, match=r"has \d nulls"):
            dx.from_parquet(path, "gaps", int).compute()
    numbers = tmp_path / "numbers.parquet"
    pq = pytest.importorskip("pyarrow.parquet")
    pq.write_table(pq.read_table(path).select(["i", "f"]), numbers)
    assert_equal(dx.from_parquet(numbers), np.stack([n, n / 4], axis=1))
    with pytest.raises(KeyError, match="no column 'z'; it has i, f, b"):
        dx.from_parquet(path, "z")
    with pytest.raises(TypeError, match="columns s:"):
        dx.from_parquet(path, "s")
    with pytest.raises(FileNotFoundError):
        dx.from_parquet(tmp_path / "none.parquet", "i")


def test_parquet_columns_that_are_no_numbers(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "a.parquet"
    days = np.array(["2020-01-01", "2020-01-02", "NaT"], "M8[us]")
    columns = {
        "day": days,
        "span": pa.array([0, None, 2], pa.duration("s")),
        "zone": pa.array([0, 1, 2], pa.timestamp("us", tz="UTC")),
        "word": pa.array(list("aba")).dictionary_encode(),
        "time": pa.array([0, 1, 2], pa.time64("us")),
    }
    pq.write_table(pa.table(columns), path)
    assert_equal(dx.from_parquet(path, "day"), days)
    assert_equal(dx.from_parquet(path, "span", "f8"), np.array([0, np.nan, 2]))
    assert_equal(dx.from_parquet(path, ["span", "span"], "f4"), np.array([[0] * 2, [np.nan] * 2, [2] * 2], "f4"))
    for name, kind in {"zone": "timestamp", "word": "dictionary", "time": "time64"}.items():
        with pytest.raises(TypeError, match=f"column '{name}' has {kind}.* NumPy has no elements"):
            dx.from_parquet(path, name)
    with pytest.raises(TypeError, match=r"no common dtype of datetime64\[us\], timedelta64\[s\]"):
        dx.from_parquet(path, ["day", "span"])
    with pytest.raises(ValueError, match="names none"):
        dx.from_parquet(path, [])


def test_parquet_files_of_a_folder_follow_each_other(tmp_path: Path, monkeypatch: Any) -> None:
    for k in range(3):
        table(tmp_path / f"{k}.parquet", np.s_[k * 30 : k * 40 + 10], row_group_size=9)
    expected = np.concatenate([np.arange(100)[k * 30 : k * 40 + 10] for k in range(3)])
    with config.set(block_bytes=64), boxes_read(monkeypatch, parquet.ColumnStore) as found:
        x = dx.from_parquet(tmp_path, "i", team=T4)
        assert not found
        assert_equal(x, expected)
        edges = {group.start for group in x.__dx_node__().runtime.groups}
        assert all(rows[0] in edges for (rows,) in found)
    assert_equal(dx.from_parquet([tmp_path / "1.parquet", f"file://{tmp_path}/0.parquet"], "i")[:3], np.arange(30, 33))


# -- raw binary ----------------------------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(DTYPES), st.integers(0, 30), st.integers(-1, 40), st.integers(0, 50))
def test_fromfile_reads_what_numpy_reads(tmp_path_factory: Any, dtype: str, n: int, count: int, offset: int) -> None:
    path = tmp_path_factory.mktemp("raw") / "x"
    values(dtype, (n,)).tofile(path)
    expected = np.fromfile(path, dtype, count, offset=min(offset, path.stat().st_size))
    found = dx.fromfile(path, dtype, count, offset=min(offset, path.stat().st_size), team=T4)
    assert_equal(found, expected.astype(expected.dtype.newbyteorder("=")))


def test_tofile_writes_what_numpy_writes(tmp_path: Path) -> None:
    for layout in ("C", "F"):
        x = dx.asarray(A, team=T4, sharding=("R", None), layout=layout)
        with counting() as c:
            x.tofile(tmp_path / "x")
        assert c.fetched_bytes == 0
        assert (tmp_path / "x").read_bytes() == A.tobytes()
    stream = io.BytesIO(b"")
    x.tofile(stream)
    assert stream.getvalue() == A.tobytes()
    x[0].tofile(tmp_path / "text", ",")
    assert_equal(dx.fromfile(tmp_path / "text", sep=","), A[0])
    with open(tmp_path / "x", "rb") as file:
        assert_equal(dx.fromfile(file, count=3), A[0, :3])
    with pytest.raises(FileNotFoundError):
        dx.fromfile(tmp_path / "none")


# -- archives and streams ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("save", [dx.savez, dx.savez_compressed, np.savez, np.savez_compressed])
def test_archives_are_numpys(tmp_path: Path, save: Any) -> None:
    x, y = dx.asarray(A, team=T4, layout="F"), dx.arange(3)
    save(tmp_path / "a", x, y=y, scalar=dx.asarray(5))
    for found in (np.load(tmp_path / "a.npz"), dx.load(tmp_path / "a.npz", team=T4)):
        with found:
            assert sorted(found.files) == sorted(found) == ["arr_0", "scalar", "y"]
            np.testing.assert_array_equal(np.asarray(found["arr_0"]), A)
            np.testing.assert_array_equal(np.asarray(found["y"]), np.arange(3))
            assert np.asarray(found["scalar"]).shape == ()
    with pytest.raises(KeyError):
        dx.load(tmp_path / "a.npz")["z"]
    assert os.listdir(tmp_path) == ["a.npz"]


def test_arrays_of_an_archive_that_is_not_compressed_are_read_by_the_tasks(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", one=A, two=A.T)
    found = dx.load(tmp_path / "a.npz", team=T4)
    assert len(found) == 2
    with config.set(block_bytes=64):
        for name, expected in {"one": A, "two": A.T}.items():
            assert found[name].__dx_node__().memo is None
            assert_equal(found[name] * 2, expected * 2)
    with pytest.raises(ValueError, match="un-named"):
        dx.savez(tmp_path / "b.npz", A, arr_0=A)
    assert not (tmp_path / "b.npz").exists()


def test_open_files_are_read_and_written_by_this_process() -> None:
    for x in (dx.asarray(A, team=T4), dx.asarray(A, team=T4, layout="F"), dx.asarray(3.5), dx.zeros((0, 4))):
        stream = io.BytesIO()
        assert dx.save(stream, x) is None
        stream.seek(0)
        np.testing.assert_array_equal(np.load(stream), x.compute())
        stream.seek(0)
        assert_equal(dx.load(stream, team=T4), x.compute())
    stream = io.BytesIO()
    dx.savez(stream, a=A)
    stream.seek(0)
    assert_equal(dx.load(stream)["a"], A)
    np.save(stream := io.BytesIO(), dx.arange(3))  # type: ignore[arg-type]
    assert np.load(io.BytesIO(stream.getvalue())).tolist() == [0, 1, 2]


def test_what_is_streamed_comes_in_small_pieces(monkeypatch: Any) -> None:
    monkeypatch.setattr("distarray.kernels.stores.PIECE_NBYTES", 100)
    sizes: list[int] = []

    class Stream(io.BytesIO):
        def write(self, data: Any) -> int:
            sizes.append(len(data))
            return super().write(data)

    dx.save(stream := Stream(), dx.asarray(A, team=T4))
    assert max(sizes[1:]) <= 100
    np.testing.assert_array_equal(np.load(io.BytesIO(stream.getvalue())), A)


def test_masked_arrays_are_not_written_without_their_masks(tmp_path: Path) -> None:
    pytest.importorskip("h5py")
    pytest.importorskip("zarr")
    masked = np.ma.masked_less(A, 0)
    writers: dict[str, Any] = {"npy": dx.save, "npz": dx.savez, "txt": dx.savetxt}
    writers["h5"] = lambda path, x: dx.to_hdf5(x, path, "x")
    writers["zarr"] = lambda path, x: dx.to_zarr(x, path)
    for name, write in writers.items():
        with pytest.raises(TypeError, match="a masked array, whose mask would be lost"):
            write(tmp_path / name, masked)
    assert not list(tmp_path.iterdir())


# -- text ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "x", [A, A[:, 0], A[:0], A[:, :1] > 0, A[:3] + 1j], ids=["2d", "1d", "empty", "bool", "complex"]
)
@pytest.mark.parametrize("options", [{}, {"fmt": "%.3f", "delimiter": ",", "header": "two\nlines", "footer": "end"}])
def test_text_is_numpys(tmp_path: Path, monkeypatch: Any, x: np.ndarray, options: dict[str, Any]) -> None:
    monkeypatch.setattr("distarray.kernels.stores.PIECE_NBYTES", 100)
    np.savetxt(tmp_path / "numpy", x, **options)
    np.savetxt(tmp_path / "ours", dx.asarray(x, team=T4), **options)
    assert (tmp_path / "ours").read_text() == (tmp_path / "numpy").read_text()
    dx.savetxt(stream := io.StringIO(), x, **options)
    assert stream.getvalue() == (tmp_path / "numpy").read_text()
    if x is A:
        dx.savetxt(tmp_path / "x.gz", x, **options)
        assert_equal(dx.loadtxt(tmp_path / "x.gz", delimiter=options.get("delimiter"), team=T4), np.loadtxt(
            tmp_path / "numpy", delimiter=options.get("delimiter")))  # fmt: skip


def test_text_that_cannot_be_written_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "a.txt.gz"
    dx.savetxt(path, A)
    for broken, options in ((unreadable(tmp_path), {}), (dx.asarray(A), {"fmt": "%d %d"})):
        with pytest.raises((FileNotFoundError, ValueError, AttributeError)):
            dx.savetxt(path, broken, **options)
        assert_equal(dx.loadtxt(path), A)
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt.gz"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names")
def test_pipes_are_written_to_and_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    dx.savetxt(path, dx.arange(2), "%d")
    assert os.read(reader, 100) == b"0\n1\n"
    os.close(reader)
    with pytest.raises(OSError, match="no file that a new one could replace"):
        dx.arange(3).tofile(path)
    assert path.is_fifo()


def test_text_is_read_as_numpy_reads_it() -> None:
    lines = ["# a", "1,2", "3,"]
    assert_equal(dx.genfromtxt(lines, delimiter=","), np.genfromtxt(lines, delimiter=","))
    assert_equal(dx.loadtxt(["1 2", "3 4"], dtype=int, unpack=True), np.array([[1, 3], [2, 4]]))
    assert_equal(np.loadtxt(["1 2"], like=dx.ones(1)), np.array([1.0, 2.0]))
    with pytest.raises(TypeError, match=r"not supported"):
        dx.genfromtxt(["1,a"], delimiter=",", dtype=None, encoding="utf-8")
    with pytest.raises(ValueError, match="Expected 1D or 2D array, got 3D"):
        dx.savetxt(io.StringIO(), dx.zeros((2, 2, 2)))


# -- Dask ----------------------------------------------------------------------------------------------------------


def test_delayed_values_are_computed_when_they_are_used() -> None:
    import dask

    calls: list[int] = []

    @dask.delayed
    def make(n: int) -> np.ndarray:
        calls.append(n)
        return np.arange(float(n))

    x = dx.concat([dx.from_delayed(make(n), (n,), float, team=T4) for n in (3, 5)])
    assert not calls
    assert_equal(x * 2, np.concatenate([np.arange(3.0), np.arange(5.0)]) * 2)
    with pytest.raises(TypeError, match=r"no dask\.delayed object"):
        dx.from_delayed(A, A.shape, float)
    with pytest.raises(ValueError, match="shape"):
        dx.from_delayed(make(4), (3,), float).compute()


def test_columns_of_a_data_frame() -> None:
    pd, dd = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
    frame = dd.from_pandas(pd.DataFrame({"a": np.arange(10.0), "b": np.arange(10.0) ** 2}), npartitions=3)
    x = dx.from_dask(frame.to_dask_array(lengths=True), team=T4)
    assert_equal(x, np.stack([np.arange(10.0), np.arange(10.0) ** 2], axis=1))
    assert_equal(dx.from_dask(frame["b"].to_dask_array(lengths=True)), np.arange(10.0) ** 2)
    with pytest.raises(ValueError, match="compute_chunk_sizes"):
        dx.from_dask(frame.values)


# -- on a cluster --------------------------------------------------------------------------------------------------


@pytest.mark.cluster
def test_workers_read_every_format(process_cluster: Any, tmp_path: Path) -> None:
    pytest.importorskip("h5py")
    table(tmp_path / "t.parquet", row_group_size=13)
    with config.set(block_bytes=64):
        dx.to_hdf5(dx.asarray(A) + 1, tmp_path / "a.h5", "x", chunks=(7, 6))
        dx.savez(tmp_path / "a.npz", x=dx.asarray(A) * 2)
        (dx.asarray(A) * 3).tofile(tmp_path / "raw")
        sources = {
            "hdf5": (dx.from_hdf5(tmp_path / "a.h5", "x"), A + 1),
            "npz": (dx.load(tmp_path / "a.npz")["x"], A * 2),
            "raw": (dx.fromfile(tmp_path / "raw").reshape(A.shape), A * 3),
            "parquet": (dx.from_parquet(tmp_path / "t.parquet", "f"), np.arange(100) / 4),
        }
        for x, expected in sources.values():
            with counting() as c:
                y = (x + 1).persist()
                assert c.fetched_bytes == 0
            np.testing.assert_array_equal(y.compute(), expected + 1)
