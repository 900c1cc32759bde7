"""zarr: values and dtypes as zarr's own; each chunk is read by one task and written by one task; nothing else moves."""

from __future__ import annotations

import os
import pickle
import signal
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import some
from hypothesis import given, settings
from hypothesis import strategies as st

import distarray as dx
from distarray import config
from distarray.io.stores import cut_on_grain
from distarray.testing import counting, force_tiles
from distarray.testing.assertions import assert_equal

zarr = pytest.importorskip("zarr", minversion="3")
from zarr.storage import MemoryStore, WrapperStore, ZipStore  # noqa: E402  # after it is known to be there

A = np.random.default_rng(0).standard_normal((40, 30))
T4 = dx.Team((4,), ("R",), members=(0, 1, 2, 3))
DTYPES = "? i1 i2 i4 i8 u1 u2 u4 u8 f2 f4 f8 c8 c16 M8[s] M8[ns] m8[us] >i4 >f8".split()


def values(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    made = np.random.default_rng(3).integers(1, 100, shape).astype("i8")
    return np.asarray(made.astype(dtype))


class CountingStore(WrapperStore):
    """Counts the keys of chunks that are read and written."""

    def __init__(self, store: Any) -> None:
        super().__init__(store)
        self.read: Counter[str] = Counter()
        self.written: Counter[str] = Counter()

    async def get(self, key: str, *args: Any, **options: Any) -> Any:
        if key.startswith("c/"):
            self.read[key] += 1
        return await super().get(key, *args, **options)

    async def set(self, key: str, *args: Any, **options: Any) -> None:
        if key.startswith("c/"):
            self.written[key] += 1
        await super().set(key, *args, **options)


def filled(data: np.ndarray, **options: Any) -> Any:
    array = zarr.create_array(MemoryStore(), shape=data.shape, dtype=data.dtype, **options)
    array[...] = data
    return array


def counted(array: Any) -> tuple[Any, CountingStore]:
    store = CountingStore(array.store)
    return zarr.open_array(store, mode="r+"), store


# -- values --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_is_read_and_written_as_zarr_does(dtype: str) -> None:
    expected = values(dtype, (13, 7))
    array = filled(expected, chunks=(4, 3))
    x = dx.from_zarr(array, team=T4)
    assert_equal(x, expected.astype(expected.dtype.newbyteorder("=")))
    made = dx.to_zarr(x, MemoryStore(), chunks=(5, 7))
    assert made.dtype == x.dtype
    np.testing.assert_array_equal(made[...], expected)


@st.composite
def stores(draw: Any) -> dict[str, Any]:
    shape = tuple(draw(st.lists(st.integers(0, 11), min_size=0, max_size=3)))
    chunks = tuple(draw(st.integers(1, 6)) for _ in shape)
    shards = tuple(c * draw(st.integers(1, 3)) for c in chunks) if shape and draw(st.booleans()) else None
    return {"shape": shape, "chunks": chunks, "shards": shards, "dtype": draw(st.sampled_from(DTYPES[:-2]))}


@settings(max_examples=60, deadline=None)
@given(stores(), stores(), st.sampled_from([1, 2, 3]))
def test_any_grid_of_chunks_and_shards_into_any_other(
    source: dict[str, Any], target: dict[str, Any], tiles: int
) -> None:
    """Uneven tails, no axes and empty axes included."""
    shape = source["shape"]
    expected = values(source["dtype"], shape)
    array = filled(expected, chunks=source["chunks"], shards=source["shards"])
    if len(target["shape"]) != len(shape):
        target = {"chunks": "auto", "shards": None}
    with config.set(block_bytes=0), force_tiles(tiles) if tiles > 1 else config.set(window=512):
        x = dx.from_zarr(array, team=T4)
        assert_equal(x, expected)
        made = dx.from_zarr(array, team=T4).to_zarr(MemoryStore(), chunks=target["chunks"], shards=target["shards"])
        np.testing.assert_array_equal(made[...], expected)
        assert made.shape == shape


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_a_region_leaves_the_rest(data: Any) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 12), min_size=1, max_size=3)))
    chunks = tuple(data.draw(st.integers(1, 5)) for _ in shape)
    bounds = [sorted(data.draw(st.tuples(st.integers(0, n), st.integers(0, n)))) for n in shape]
    region = tuple(slice(lo, hi) for lo, hi in bounds)
    expected = values("f8", shape)
    array = filled(expected, chunks=chunks)
    new = -values("f8", tuple(hi - lo for lo, hi in bounds)) - 0.5
    with force_tiles(2):
        dx.to_zarr(dx.asarray(new, team=T4), array, region=region)
    expected[region] = new
    np.testing.assert_array_equal(array[...], expected)


@pytest.mark.parametrize("axis", [0, 1, "rows", -1])
def test_append_makes_the_array_longer(axis: Any) -> None:
    array = filled(A, chunks=(7, 8), dimension_names=("rows", "columns"))
    number = 0 if axis in (0, "rows") else 1
    for expected in (np.concatenate([A, A + 1], number), np.concatenate([A, A + 1, A + 1], number)):
        dx.to_zarr(dx.asarray(A + 1, team=T4, sharding=("R", None)), array, append_dim=axis)
        np.testing.assert_array_equal(array[...], expected)


def test_append_to_nothing_makes_it(tmp_path: Path) -> None:
    for _ in range(2):
        dx.arange(5).to_zarr(tmp_path, "x", append_dim=0, mode="a")
    assert dx.from_zarr(tmp_path, "x").tolist() == [0, 1, 2, 3, 4] * 2


def test_format_2_is_read_and_written(tmp_path: Path) -> None:
    dx.asarray(A).to_zarr(tmp_path, chunks=(7, 8), zarr_format=2, order="F")
    assert zarr.open_array(tmp_path).metadata.zarr_format == 2
    assert_equal(dx.from_zarr(tmp_path), A)


# -- what an array is in its store ---------------------------------------------------------------------------------


def test_groups_names_attributes_codecs_and_consolidated_metadata(tmp_path: Path) -> None:
    codecs = {"compressors": zarr.codecs.GzipCodec(level=1)}
    x = dx.asarray(A, team=T4)
    made = x.to_zarr(
        tmp_path, "deep/x", chunks=(5, 6), shards=(10, 12), codecs=codecs, dimension_names=("t", None),
        attributes={"unit": "K"}, fill_value=7, consolidated=True,
    )  # fmt: skip
    group = zarr.open_group(tmp_path, mode="r")
    assert group.metadata.consolidated_metadata is not None
    found = group["deep/x"]
    assert (found.chunks, found.shards, found.fill_value, dict(found.attrs)) == ((5, 6), (10, 12), 7, {"unit": "K"})
    assert found.metadata.dimension_names == ("t", None)
    assert "gzip" in str(found.metadata.to_dict()["codecs"])
    assert made.path == "deep/x"
    assert_equal(dx.from_zarr(group["deep"], "x"), A)
    assert_equal(dx.from_zarr(group, "deep/x"), A)
    assert_equal(dx.from_zarr(f"file://{tmp_path}", "deep/x"), A)
    x.to_zarr(zarr.open_group(tmp_path)["deep"], "y")
    (x * 2).to_zarr(zarr.open_group(tmp_path), "deep/y", mode="w", attributes={"n": 1})
    (x * 3).to_zarr(tmp_path, "deep/y", region={}, attributes={"m": 2})
    assert dict(zarr.open_array(tmp_path, path="deep/y").attrs) == {"n": 1, "m": 2}
    assert_equal(dx.from_zarr(tmp_path, "deep/y"), A * 3)


def test_an_url_of_fsspec_is_a_store() -> None:
    x = dx.asarray(A)
    x.to_zarr("memory://one/two", "x", chunks=(9, 9))
    assert_equal(dx.from_zarr("memory://one/two", "x"), A)


def test_zarrs_own_ways_in_take_our_arrays(tmp_path: Path) -> None:
    """Through ``__array__``, chunk by chunk."""
    array = filled(A, chunks=(7, 8))
    array[:] = dx.asarray(A, team=T4) * 2
    np.testing.assert_array_equal(array[...], A * 2)
    array[3:11, ::2] = dx.ones((8, 15), dtype="f4")
    assert (array[3:11, ::2] == 1).all()


# -- laziness, and each chunk once ----------------------------------------------------------------------------------

READERS: dict[str, Any] = {
    "elementwise": lambda x: x * 2 + x,
    "a reduction": lambda x: x.sum(axis=0),
    "another reduction": lambda x: x.max(axis=1),
    "neighbours": lambda x: x[1:] - x[:-1],
    "transposed": lambda x: x.T + 1,
    "a product": lambda x: x.T @ x,
    "two passes": lambda x: (x - x.mean(axis=0)) / x.std(axis=0),
    "itself": lambda x: x,
}


@pytest.mark.parametrize("extents", [{"chunks": (0, 7)}, {"chunks": (2, 2), "shards": (4, 0)}])
def test_chunks_of_nothing_are_refused_and_leave_no_array(extents: dict[str, Any], tmp_path: Path) -> None:
    for mode in ("w-", "w"):
        with pytest.raises(ValueError, match=r"must be positive"):
            dx.asarray(A).to_zarr(tmp_path, "x", mode=mode, **extents)
        assert not (tmp_path / "x").exists()
    with pytest.raises(ValueError, match=r"must be positive"):  # by zarr itself from 3.4 on
        dx.from_zarr(zarr.create_array(MemoryStore(), shape=A.shape, dtype=A.dtype, **extents))
    nothing = dx.zeros((0, 3)).to_zarr(MemoryStore(), chunks=(1, 2))
    assert nothing.shape == (0, 3)


@pytest.mark.parametrize("chunks", [(7, 30), (7, 8), (40, 4)])
@pytest.mark.parametrize("reader", READERS)
def test_each_chunk_is_read_once(reader: str, chunks: tuple[int, int]) -> None:
    array, store = counted(filled(A, chunks=chunks))
    with config.set(block_bytes=0):
        x = dx.from_zarr(array, team=T4)
        y = READERS[reader](x)
        assert not store.read
        np.testing.assert_allclose(y.compute(), READERS[reader](A), rtol=1e-12, atol=1e-12)
        np.testing.assert_array_equal(x.compute(), A)
    assert set(store.read.values()) == {1}
    assert len(store.read) == np.prod(array.cdata_shape)


def test_a_part_reads_its_chunks_alone() -> None:
    array, store = counted(filled(A, chunks=(10, 10)))
    with config.set(block_bytes=0):
        part = dx.from_zarr(array, team=T4)[12:18, 5:15] + 1
        assert_equal(part, A[12:18, 5:15] + 1)
    assert set(store.read) == {"c/1/0", "c/1/1"}


@pytest.mark.parametrize("sharding", [None, ("R", None), (None, "R")])
@pytest.mark.parametrize("options", [{"chunks": (7, 8)}, {"chunks": (2, 3), "shards": (8, 9)}])
def test_each_chunk_is_written_once_whatever_the_cut(sharding: Any, options: Any) -> None:
    store = CountingStore(MemoryStore())
    with config.set(block_bytes=64), counting() as c:
        x = dx.asarray(A, team=T4, sharding=sharding)
        made = x.to_zarr(store, **options)
    np.testing.assert_array_equal(made[...], A)
    assert set(store.written.values()) == {1}
    assert len(store.written) == np.prod([-(-n // g) for n, g in zip(A.shape, made.shards or made.chunks)])
    assert c.fetched_bytes == 0


def test_what_lies_on_the_grain_is_written_where_it_lies() -> None:
    with config.set(block_bytes=64), counting() as c:
        x = dx.asarray(A, team=T4, sharding=("R", None)).persist()
        x.to_zarr(MemoryStore(), chunks=(5, 30))
    assert c.messages == 0


def test_what_is_not_kept_is_computed_and_written_tile_by_tile() -> None:
    expected = np.tile(A, (4000, 1))
    array, store = counted(filled(expected, chunks=(8000, 30)))
    with config.set(memory_limit="16MiB", block_bytes=4096):
        x = dx.from_zarr(array, team=T4)
        with counting() as c:
            made = (x * 2).to_zarr(MemoryStore(), chunks=(4000, 30))
        assert x.__dx_node__().memo is None
        assert c.fetched_bytes == 0
        assert c.by_class["call"] > 1
    np.testing.assert_array_equal(made[...], expected * 2)
    assert set(store.read.values()) == {1}


def test_what_members_cannot_keep_is_written_tile_by_tile() -> None:
    a = np.arange(1 << 21).reshape(2048, 1024)
    with config.set(memory_limit=a.nbytes // 8):
        rolled = dx.roll(dx.from_zarr(filled(a, chunks=(256, 256)), team=T4), 1000, axis=0)
        made = rolled.to_zarr(MemoryStore(), chunks=(256, 256))
    np.testing.assert_array_equal(made[...], np.roll(a, 1000, axis=0))


GRID = np.arange(120_000.0).reshape(400, 300)
#: From store to store: what is made, and the chunks that it is written in.
THROUGH: dict[str, tuple[Callable[[Any, Any], Any], tuple[int, ...]]] = {
    "elementwise": (lambda xp, x: xp.sqrt(x * 2 + 1) - xp.clip(x, 5, 900), (80, 60)),
    "reduced": (lambda xp, x: x.sum(axis=1), (80,)),
    "centred": (lambda xp, x: x - x.mean(axis=0), (80, 60)),
    "transposed": (lambda xp, x: x.T, (60, 80)),
    "rolled": (lambda xp, x: xp.roll(x, (37, 23), (0, 1)), (80, 60)),
    "rechunked": (lambda xp, x: x, (50, 75)),
}


def _through(name: str, share: int, path: Path) -> None:
    """Write what is made of a store to another one, with a limit of that share of it."""
    function, chunks = THROUGH[name]
    zarr.create_array(str(path / "a"), shape=GRID.shape, chunks=(80, 60), dtype="f8")[:] = GRID
    with config.set(memory_limit=GRID.nbytes // share):
        x = dx.from_zarr(str(path / "a"))
        made = function(dx, x).to_zarr(str(path / "b"), chunks=chunks)
    np.testing.assert_allclose(made[...], function(np, GRID), rtol=1e-13)


@pytest.mark.parametrize("share", [1, 2, 4, 8])
@pytest.mark.parametrize("name", THROUGH)
def test_stores_pass_members_that_can_hold_a_few_chunks(name: str, share: int, tmp_path: Path) -> None:
    _through(name, share, tmp_path)


@pytest.mark.cluster
@pytest.mark.parametrize("share", some([8, 4, 2, 1], 3))
@pytest.mark.parametrize("name", THROUGH)
def test_stores_pass_workers_that_can_hold_a_few_chunks(
    name: str, share: int, cluster4: object, tmp_path: Path
) -> None:
    _through(name, share, tmp_path)


def test_what_cannot_hold_a_chunk_and_what_it_is_made_of_is_refused(tmp_path: Path) -> None:
    with pytest.raises(dx.MemoryBudgetError, match="memory-limit of 60000 bytes"):
        _through("elementwise", 16, tmp_path)


def test_a_version_that_members_cannot_keep_is_written_and_not_lost() -> None:
    a = np.arange(1 << 21).reshape(2048, 1024)
    expected = a + 1
    expected[:1000] = expected[-1000:] * 2
    x = dx.from_zarr(filled(a, chunks=(256, 256)), team=T4) + 1
    x[:1000] = x[-1000:] * 2
    with config.set(memory_limit=a.nbytes // 3):
        made = x.to_zarr(MemoryStore(), chunks=(256, 256))
    np.testing.assert_array_equal(made[...], expected)
    assert_equal(x, expected)


def test_the_cut_is_of_whole_chunks_from_any_origin() -> None:
    env = dx.zeros((1,), team=T4)._env
    cut = cut_on_grain((100, 10), (8, 4), 8, env, (5, 2))
    assert cut is not None
    rows, columns = cut.boundaries((100, 10))
    assert all((5 + b) % 8 == 0 for b in rows[1:-1] if b not in (0, 100))
    assert all((2 + b) % 4 == 0 for b in columns[1:-1] if b not in (0, 10))
    assert cut_on_grain((10**9, 10**9), (1, 1), 8, env) is None
    assert dx.from_zarr(zarr.create_array(MemoryStore(), shape=(10**9, 10**9), chunks=(1, 1), dtype="f8"))[0, 0] == 0


def test_series_of_stores_have_one_plan() -> None:
    with config.set(block_bytes=64):
        for i in range(3):
            x = dx.from_zarr(filled(A + i, chunks=(7, 8)), team=T4)
            with counting() as c:
                assert_equal(x * 2, (A + i) * 2)
    assert c.planner_calls == 0


def test_an_array_of_a_store_travels_by_name(tmp_path: Path) -> None:
    dx.asarray(A).to_zarr(tmp_path)
    data = pickle.dumps(dx.from_zarr(tmp_path))
    assert len(data) < 8192
    assert_equal(pickle.loads(data), A)


# -- what cannot be ------------------------------------------------------------------------------------------------


def test_bad_input_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    x = dx.asarray(A, team=T4)
    x.to_zarr(tmp_path, "x", chunks=(7, 8), dimension_names=("t", "c"))
    refused: list[tuple[Any, type[Exception], str]] = [
        (lambda: dx.from_zarr(tmp_path), ValueError, r"group with x; name one by path="),
        (lambda: dx.from_zarr(tmp_path, "y"), FileNotFoundError, ""),
        (lambda: x.to_zarr(tmp_path, "x"), ValueError, "mode='w' replaces it"),
        (lambda: x.to_zarr(tmp_path, "y", region=np.s_[:]), FileNotFoundError, ""),
        (lambda: x.to_zarr(tmp_path, "x", region=np.s_[:5]), ValueError, r"\(40, 30\) does not fit \(5, 30\)"),
        (lambda: x.to_zarr(tmp_path, "x", region=np.s_[::2]), ValueError, "slices of step 1"),
        (lambda: x.to_zarr(tmp_path, "x", region={"z": slice(3)}), ValueError, "region='z' is no dimension"),
        (lambda: x.to_zarr(tmp_path, "x", append_dim="z"), ValueError, "append_dim='z' is no dimension"),
        (lambda: x[0].to_zarr(tmp_path, "x", append_dim=0), ValueError, "does not fit"),
        (lambda: x[:, 1:].to_zarr(tmp_path, "x", append_dim=0), ValueError, "does not fit"),
        (lambda: x.to_zarr(tmp_path, "x", append_dim=0, region=np.s_[:]), ValueError, "exclude each other"),
        (lambda: x.to_zarr(tmp_path, "x", mode="w", region=np.s_[:]), ValueError, "makes an array"),
        (lambda: x.to_zarr(tmp_path, "x", mode="x"), ValueError, "mode="),
        (lambda: x.to_zarr(tmp_path, "x", mode="r+", chunks=(1, 1)), ValueError, "chunks= are for new arrays"),
        (lambda: (x + 1j).to_zarr(tmp_path, "x", region={}), TypeError, "use x.astype"),
        (lambda: x.to_zarr(tmp_path, "y", codecs={"zip": 1}), ValueError, "codecs"),
    ]
    with counting() as c:
        for call, kind, text in refused:
            with pytest.raises(kind, match=text or None):
                call()
    assert c.tasks == 0
    assert sorted(os.listdir(tmp_path)) == ["x", "zarr.json"]
    np.testing.assert_array_equal(zarr.open_array(tmp_path, path="x")[...], A)


def test_elements_that_no_array_has_are_refused() -> None:
    array = zarr.create_array(MemoryStore(), shape=(3,), dtype=[("a", "i4"), ("b", "f8")], zarr_format=2)
    with pytest.raises(TypeError, match="memory://"):
        dx.from_zarr(array)


class Failing:
    """A source whose last elements cannot be read."""

    shape, dtype, grain = (40, 30), np.dtype("f8"), (10, 30)

    def read(self, box: Any, out: np.ndarray) -> None:
        if box[0][1] == 40:
            raise OSError("a bad sector")
        out[...] = 1


def test_a_failure_leaves_no_new_array_and_gives_an_old_one_its_shape_back(tmp_path: Path) -> None:
    with config.set(block_bytes=64):
        x = dx.from_store(Failing(), team=T4)
        with pytest.raises(OSError, match="a bad sector"):
            x.to_zarr(tmp_path, "x", chunks=(10, 10))
        assert not (tmp_path / "x").exists()
        dx.asarray(A).to_zarr(tmp_path, "y", chunks=(7, 10))
        with pytest.raises(OSError, match="a bad sector"):
            x.to_zarr(tmp_path, "y", append_dim=0)
    np.testing.assert_array_equal(zarr.open_array(tmp_path, path="y")[...], A)


# -- on a cluster --------------------------------------------------------------------------------------------------


@pytest.mark.cluster
@pytest.mark.parametrize("cluster", ["cluster4", "process_cluster"])
def test_workers_read_and_write_their_own_chunks(cluster: str, request: Any, tmp_path: Path) -> None:
    request.getfixturevalue(cluster)
    zarr.create_array(tmp_path, name="x", shape=A.shape, chunks=(7, 8), dtype="f8")[...] = A
    with config.set(block_bytes=64), counting() as c:
        x = dx.from_zarr(tmp_path, "x")
        made = ((x - x.mean(axis=0)) / x.std(axis=0)).to_zarr(tmp_path, "y", chunks=(9, 30))
        (x[:5] + 1).to_zarr(tmp_path, "x", append_dim=0)
        assert c.fetched_bytes == 0
    np.testing.assert_allclose(made[...], (A - A.mean(axis=0)) / A.std(axis=0), rtol=1e-12)
    np.testing.assert_array_equal(zarr.open_array(tmp_path, path="x")[40:], A[:5] + 1)
    for store in (MemoryStore(), "memory://x"):
        with pytest.raises(ValueError, match="one process only"):
            x.to_zarr(store)
    with pytest.raises(ValueError, match="read by one process only"):
        dx.from_zarr(filled(A))
    with pytest.raises(ValueError, match="written by one process only"):
        x.to_zarr(ZipStore(tmp_path / "x.zip", mode="w"))


@pytest.mark.cluster
def test_a_worker_that_dies_while_it_writes_loses_no_chunk(mortal_cluster: Any, tmp_path: Path) -> None:
    marker = str(tmp_path / "died")

    class Deadly:
        """Kills the first process that reads its second half."""

        shape, dtype, grain = (64, 16), np.dtype("i8"), (4, 16)

        def read(self, box: Any, out: Any) -> None:
            ((lo, hi), _) = box
            if lo >= 32:
                try:
                    os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
                except FileExistsError:
                    pass
                else:
                    os.kill(os.getpid(), signal.SIGKILL)
            out[...] = np.arange(lo, hi)[:, None] * 16 + np.arange(16)

    with config.set(block_bytes=64):
        made = (dx.from_store(Deadly()) + 1).to_zarr(tmp_path, "x", chunks=(4, 8))
    assert os.path.exists(marker)
    np.testing.assert_array_equal(made[...], np.arange(1024).reshape(64, 16) + 1)
    assert made.nchunks_initialized == 32


@pytest.mark.cluster
@pytest.mark.parametrize("second", ["writes another region", "appends"])
def test_two_clients_write_disjoint_regions_at_once(process_cluster: Any, tmp_path: Path, second: str) -> None:
    from distributed import Client

    n_rows = 40 if second == "appends" else 80
    zarr.create_array(tmp_path, shape=(n_rows, 30), chunks=(8, 7), dtype="f8")
    where: list[dict[str, Any]] = [{"region": (slice(0, 40),)}, {"region": (slice(40, 80),)}]
    if second == "appends":
        where[1] = {"append_dim": 0}
    errors: list[BaseException] = []
    together = threading.Barrier(2)

    def write(number: int) -> None:
        try:
            with Client(process_cluster.scheduler.address, set_as_default=False) as client:
                team = dx.Team((3,), ("x",), client)
                x = dx.asarray(A, team=team) + number
                together.wait()
                x.to_zarr(tmp_path, **where[number])
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(i,)) for i in range(2)]
    with config.set(block_bytes=64):  # an option is the process's
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not errors
    np.testing.assert_array_equal(zarr.open_array(tmp_path)[...], np.concatenate([A, A + 1]))


def test_zarrs_own_functions_take_our_arrays(tmp_path: Path) -> None:
    values = np.arange(24.0).reshape(4, 6)
    x = dx.asarray(values)
    with zarr.config.set({"array.rectilinear_chunks": True}):  # as zarr 3.4 takes chunks of Dask's form, of any array
        np.testing.assert_array_equal(zarr.array(x)[:], values)
        zarr.save(str(tmp_path / "saved.zarr"), x)
        np.testing.assert_array_equal(zarr.load(str(tmp_path / "saved.zarr")), values)


@pytest.mark.parametrize("block_bytes", [None, 200])
def test_what_reads_the_place_that_is_written_is_computed_before(tmp_path: Path, block_bytes: int | None) -> None:
    a, path, group = np.arange(300.0).reshape(20, 15), str(tmp_path / "z"), str(tmp_path / "g")
    with config.set(block_bytes=block_bytes):
        dx.to_zarr(dx.asarray(a), path, chunks=(5, 5))
        dx.to_zarr(dx.from_zarr(path) * 2, path, mode="w", chunks=(4, 7))
        np.testing.assert_array_equal(zarr.open_array(path)[:], a * 2)
        dx.to_zarr(dx.from_zarr(path)[::-1], path, mode="r+")
        np.testing.assert_array_equal(zarr.open_array(path)[:], a[::-1] * 2)
        dx.to_zarr(dx.asarray(a), group, "inside", chunks=(5, 5))
        dx.to_zarr(dx.from_zarr(group, "inside"), group, mode="w")
        np.testing.assert_array_equal(zarr.open_array(group)[:], a)


@pytest.mark.cluster
@pytest.mark.parametrize("mode", ["w", "r+"])
def test_workers_have_read_the_place_before_it_is_written(process_cluster: Any, tmp_path: Path, mode: Any) -> None:
    a, path = np.arange(120_000.0).reshape(400, 300), str(tmp_path / "z")
    for _ in range(3):
        dx.to_zarr(dx.asarray(a), path, chunks=(80, 60), mode="w")
        with config.set(block_bytes=1 << 17):
            dx.to_zarr(dx.roll(dx.from_zarr(path), 100, axis=0) * 2, path, mode=mode)
        np.testing.assert_array_equal(zarr.open_array(path)[:], np.roll(a, 100, axis=0) * 2)


@pytest.mark.parametrize("source", ["a", "b"])
def test_a_write_that_is_refused_leaves_what_it_would_have_replaced(tmp_path: Path, source: str) -> None:
    values = np.arange(120_000.0).reshape(400, 300)
    for name in "ab":
        dx.to_zarr(dx.asarray(values), str(tmp_path / name), chunks=(80, 60))
    with config.set(memory_limit=1 << 16), pytest.raises(dx.MemoryBudgetError):
        dx.to_zarr(dx.from_zarr(str(tmp_path / source)) * 2, str(tmp_path / "b"), mode="w", chunks=(400, 300))
    with pytest.raises(ValueError, match=r"non-negative|positive"):
        dx.to_zarr(dx.from_zarr(str(tmp_path / source)), str(tmp_path / "b"), mode="w", chunks=(0, -3))
    for name in "ab":
        np.testing.assert_array_equal(zarr.open_array(str(tmp_path / name))[:], values)


def test_what_reads_the_place_and_does_not_fit_in_memory_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "z")
    zarr.create_array(path, shape=(1 << 20, 1 << 20), chunks=(1 << 10, 1 << 10), dtype="f8", fill_value=1.0)
    with pytest.raises(dx.NotSupportedError, match="does not fit in memory"):
        dx.to_zarr(dx.from_zarr(path) + 1, path, mode="w")
    assert zarr.open_array(path).shape == (1 << 20, 1 << 20)


@pytest.mark.cluster
@pytest.mark.parametrize("interval", [1000, 1])
def test_what_was_read_from_a_place_that_is_written_since_survives_its_worker(
    mortal_cluster: Any, tmp_path: Path, interval: int
) -> None:
    """The tasks that read it are not run again: they would read what is there now."""
    a = np.arange(300.0 * 400).reshape(300, 400)
    path = str(tmp_path / "a.zarr")
    dx.to_zarr(dx.asarray(a), path, chunks=(50, 400))
    with config.set(lineage_interval=interval):
        read = dx.from_zarr(path, sharding=("x", None)).persist()
        derived = (read + 1).persist()
        dx.to_zarr(read * 2, path, mode="w", chunks=(50, 400))
        for process in sorted(mortal_cluster.run(os.getpid).values())[:1]:
            os.kill(process, signal.SIGKILL)
        np.testing.assert_array_equal(np.asarray(read), a)
        np.testing.assert_array_equal(np.asarray(derived), a + 1)
        np.testing.assert_array_equal(np.asarray(read + derived), 2 * a + 1)
    np.testing.assert_array_equal(zarr.open_array(path)[...], a * 2)


@pytest.mark.parametrize("is_path", [False, True])
@pytest.mark.parametrize("mode", ["w-", "w", "a"])
def test_an_array_in_a_group_has_the_format_of_the_group(tmp_path: Path, is_path: bool, mode: Any) -> None:
    """zarr finds no arrays of format 2 beside one of format 3."""
    root = zarr.open_group(tmp_path, mode="w", zarr_format=2)
    root.create_array("g/a", data=A)
    options = {"append_dim": 0} if mode == "a" else {}
    made = dx.asarray(A, team=T4).to_zarr(tmp_path if is_path else root, "g/b", mode=mode, **options)
    assert made.metadata.zarr_format == 2
    found = zarr.open_group(tmp_path, mode="r")["g"]
    assert sorted(found.array_keys()) == ["a", "b"]
    np.testing.assert_array_equal(found["b"][:], A)
    newer = dx.asarray(A).to_zarr(tmp_path / "new.zarr", "g/b")
    assert newer.metadata.zarr_format == 3
