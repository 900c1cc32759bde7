"""Files: what is written is what numpy reads, what is read is what numpy wrote, and nobody holds more than a tile."""

from __future__ import annotations

import copy
import os
import pickle
import re
import stat
import subprocess
import sys
import threading
import zipfile
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
import pytest

import distarray as dx
from distarray import config
from distarray.io import replacing
from distarray.kernels import files as file_kernels
from distarray.kernels import tables
from distarray.testing import counting
from distarray.testing.assertions import assert_equal

TEAM = dx.Team((2, 3), ("R", "C"))
SHARDINGS = [None, ("R", None), (None, "C"), ("C", "R"), (("C", "R"), None)]
DTYPES = "? i1 u2 <i4 >i4 u8 f2 <f4 >f8 c8 >c16 <M8[s] >m8[ns]".split()


def values(dtype: str, shape: tuple[int, ...] = (13, 7), order: Any = "C") -> np.ndarray:
    rng = np.random.default_rng(3)
    made = rng.integers(0, 100, shape).astype(np.int64).astype(dtype)
    if made.dtype.kind in "fc":
        made = (rng.standard_normal(shape) * 9).astype(dtype)
    return np.asarray(made, order=order)


def native(array: np.ndarray) -> np.ndarray:
    return array.astype(array.dtype.newbyteorder("="))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "array.npy"


# -- reading -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_load_reads_every_dtype_byte_order_and_memory_order(file: Path, dtype: str, order: str) -> None:
    expected = values(dtype, order=order)
    np.save(file, expected)
    for sharding in SHARDINGS:
        with config.set(block_bytes=64):
            assert_equal(dx.load(file, team=TEAM, sharding=sharding), native(expected))
    assert_equal(dx.load(file, team=None), native(expected))


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("shape", [(5,), (40, 9), (3, 2, 70), (0, 4), ()])
def test_parts_are_read_a_few_pages_at_a_time(file: Path, monkeypatch: Any, shape: tuple[int, ...], order: Any) -> None:
    monkeypatch.setattr(file_kernels, "MAPPED_NBYTES", 100)
    expected = values("f8", shape, order)
    np.save(file, expected)
    x = dx.load(file, team=None)
    assert_equal(x, expected)
    if x.ndim > 1 and x.size:
        assert_equal(x[1:, ..., 1::2], expected[1:, ..., 1::2])


COLUMNS = """
import re, sys
import distarray as dx

def most():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) << 10

float((dx.load(sys.argv[1], team=None)[:9, :9] + 1).sum())
before = most()
(dx.load(sys.argv[1], team=None)[:, :8] + 1).persist()
print(most() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system has no /proc")
def test_a_narrow_part_holds_no_pages_of_the_rest(file: Path) -> None:
    """A cluster ends workers by what they have in memory, pages of mapped files included."""
    np.save(file, np.ones((8 << 10, 1024)))
    found = subprocess.run([sys.executable, "-c", COLUMNS, file], capture_output=True, text=True, check=True)
    assert int(found.stdout) < 24 << 20


@pytest.mark.parametrize("shape", [(), (1,), (0,), (3, 0), (0, 4), (2, 3, 5)])
def test_load_and_save_of_any_shape(file: Path, shape: tuple[int, ...]) -> None:
    expected = values("f8", shape)
    np.save(file, expected)
    x = dx.load(file, team=TEAM)
    assert_equal(x, expected)
    again = np.load(dx.save(file.with_name("again"), x))
    assert again.shape == shape
    np.testing.assert_array_equal(again, expected)


def test_load_reads_no_element_before_they_are_needed_and_only_those(file: Path, monkeypatch: Any) -> None:
    np.save(file, values("f8", (40, 6)))
    read: list[int] = []

    def counted(backend: Any, box: Any, *rest: Any) -> Any:
        read.append(int(np.prod([hi - lo for lo, hi in box])))
        return kernel(backend, box, *rest)

    kernel = tables.CREATE["read_store"]
    monkeypatch.setitem(tables.CREATE, "read_store", counted)
    with config.set(block_bytes=64):
        x = dx.load(file, team=TEAM)
        part = x[10:14, 2:4] * 2
        del x
        assert read == []
        assert_equal(part, values("f8", (40, 6))[10:14, 2:4] * 2)
    assert sum(read) == 8


def test_load_brings_nothing_to_other_members(file: Path) -> None:
    np.save(file, values("f8", (40, 6)))
    with config.set(block_bytes=64), counting() as counted:
        (dx.load(file, team=TEAM) + 1).persist()
    assert counted.messages == 0
    assert set(counted.members.values()) == set(range(6))


def test_a_held_array_is_not_read_again(file: Path) -> None:
    expected = values("f8")
    np.save(file, expected)
    with config.set(block_bytes=64):
        x = dx.load(file, team=TEAM).persist()
        np.save(file, -expected[1:])
        assert_equal(x, expected)


@pytest.mark.parametrize("block_bytes", [64, 1 << 20])
def test_a_changed_file_is_an_error_that_says_so(file: Path, block_bytes: int) -> None:
    np.save(file, values("f8"))
    x = dx.load(file, team=TEAM)
    np.save(file, values("f8", (14, 7)))
    with config.set(block_bytes=block_bytes), pytest.raises(OSError, match="has changed since"):
        x.compute()
    file.unlink()
    with config.set(block_bytes=block_bytes), pytest.raises(FileNotFoundError):
        x.compute()


def test_a_failed_read_leaves_an_array_that_was_to_be_updated_in_place_as_it_was(file: Path) -> None:
    start = np.arange(91.0).reshape(13, 7)
    np.save(file, values("f8"))
    with config.set(block_bytes=64):
        y = dx.asarray(start, team=TEAM, sharding=("R", None)) + 0.0
        y.persist()
        z = y + dx.load(file, team=TEAM)
        file.unlink()
        with pytest.raises(FileNotFoundError):
            z.compute()
        assert_equal(y, start)


def test_what_is_no_array_of_numbers_is_refused(file: Path) -> None:
    for bad in (np.array([None]), np.zeros(2, "f8, i4"), np.array(["a"]), np.zeros(2, np.longdouble)):
        np.save(file, bad, allow_pickle=True)
        with pytest.raises(TypeError, match="not supported"):
            dx.load(file)
    file.write_bytes(b"PK\x03\x04 and so on")
    with pytest.raises(ValueError, match=r"no \.npy file"):
        dx.load(file)
    np.save(file, values("f8"))
    os.truncate(file, file.stat().st_size - 1)
    with pytest.raises(ValueError, match="needs"):
        dx.load(file)
    with pytest.raises(FileNotFoundError):
        dx.load(file.with_name("none.npy"))
    with pytest.raises(TypeError, match="is neither a path nor an open binary file"):
        dx.load(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="would write"):
        dx.load(file, mmap_mode="r+")  # type: ignore[arg-type]


@pytest.mark.parametrize("encoding", ["ASCII", "latin1", "bytes", "utf-8"])
def test_encodings_of_pickles_change_nothing(file: Path, encoding: Any) -> None:
    np.save(file, np.arange(3.0))
    if encoding != "utf-8":
        np.testing.assert_array_equal(dx.load(file, encoding=encoding), np.load(file, encoding=encoding))
        return
    for xp in (np, dx):
        with pytest.raises(ValueError, match="encoding"):
            xp.load(file, encoding=encoding)


def test_files_of_a_series_have_one_plan(file: Path) -> None:
    with config.set(block_bytes=64):
        for i in range(4):
            np.save(file, values("f8") + i)
            with counting() as counted:
                assert_equal(dx.load(file, team=TEAM) * 2, (values("f8") + i) * 2)
    assert counted.planner_calls == 0


def test_a_loaded_array_travels_by_the_name_of_its_file(file: Path) -> None:
    np.save(file, values("f8", (400, 7)))
    data = pickle.dumps(dx.load(file, team=None))
    assert len(data) < 4096
    assert_equal(pickle.loads(data), values("f8", (400, 7)))


# -- memory maps ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["r", "r+"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_a_memory_map_is_read_by_the_tasks(file: Path, order: str, mode: Any) -> None:
    expected = values("f8", (2000, 7), order)
    np.save(file, expected)
    mapped = np.load(file, mmap_mode=mode)
    views = {"all": np.s_[:], "transposed": None, "rows": np.s_[700:1900], "columns": np.s_[:, 2:5], "one": np.s_[4]}
    for index in views.values():
        view = mapped.T if index is None else mapped[index]
        want = expected.T if index is None else expected[index]
        x = dx.asarray(view, team=None)
        is_one_range = view.flags.c_contiguous or view.flags.f_contiguous
        assert (x._base.current.memo is None) == is_one_range
        with config.set(block_bytes=64):
            assert_equal(x, want)
            assert_equal(dx.asarray(view, "f4", team=TEAM), want.astype("f4"))


def test_a_map_whose_memory_is_not_the_files_is_read_at_the_call(file: Path) -> None:
    np.save(file, values("f8"))
    private = np.load(file, mmap_mode="c")
    private[0] = 99
    x = dx.asarray(private, team=TEAM)
    private[0] = 0
    assert_equal(x[0], np.full(7, 99.0))
    gone = np.load(file, mmap_mode="r")
    file.unlink()
    assert_equal(dx.asarray(gone, team=TEAM), values("f8"))


def test_a_writable_map_that_is_written_before_it_is_read_is_an_error(file: Path) -> None:
    np.save(file, values("f8"))
    os.utime(file, ns=(0, 0))
    mapped = np.load(file, mmap_mode="r+")
    x = dx.asarray(mapped, team=TEAM)
    mapped[0] = 99
    mapped.flush()
    with pytest.raises(OSError, match="has changed since"):
        x.compute()


# -- writing -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["?", "i2", "f4", "f8", "c16", "M8[ns]"])
@pytest.mark.parametrize("sharding", SHARDINGS)
@pytest.mark.parametrize("layout", ["C", "F"])
def test_save_is_numpys_file_of_any_cut_and_layout(file: Path, dtype: str, sharding: Any, layout: Any) -> None:
    expected = values(dtype)
    x = dx.asarray(expected, team=TEAM, sharding=sharding, layout=layout)
    assert dx.save(file, x) == str(file)
    np.save(file.with_name("numpy.npy"), np.asarray(expected, order=layout))
    assert file.read_bytes() == file.with_name("numpy.npy").read_bytes()
    assert sorted(os.listdir(file.parent)) == ["array.npy", "numpy.npy"]


def test_save_takes_views_lists_and_names_without_suffix(file: Path) -> None:
    x = dx.asarray(values("f8", (5, 6, 7)), team=TEAM, sharding=("R", "C", None))
    want = values("f8", (5, 6, 7))[::-1, 1:4].transpose(2, 0, 1)
    np.testing.assert_array_equal(np.load(dx.save(file, x[::-1, 1:4].transpose(2, 0, 1))), want)
    path = dx.save(str(file.with_name("list")), [[1, 2], [3, 4]])
    assert path.endswith("list.npy")
    np.testing.assert_array_equal(np.load(path), [[1, 2], [3, 4]])


def test_save_of_what_is_not_kept_computes_and_writes_tile_by_tile(file: Path) -> None:
    with config.set(block_bytes=4096):
        x = dx.random.default_rng(1).random((500, 31), team=TEAM)
        with counting() as counted:
            dx.save(file, x)
        assert x.__dx_node__().memo is None
        assert counted.fetched_bytes == 0
        assert counted.by_class["call"] == counted.by_class["tile"]
        assert_equal(dx.load(file, team=TEAM), x.compute())


def test_an_array_can_be_saved_to_the_file_that_it_is_read_from(file: Path) -> None:
    np.save(file, values("f8", (500, 7)))
    with config.set(block_bytes=4096):
        dx.save(file, dx.load(file, team=TEAM) + 1)
    np.testing.assert_array_equal(np.load(file), values("f8", (500, 7)) + 1)


def test_save_through_a_link_keeps_the_link(file: Path) -> None:
    link = file.with_name("link.npy")
    link.symlink_to(file)
    dx.save(link, dx.arange(5))
    assert link.is_symlink()
    np.testing.assert_array_equal(np.load(file), np.arange(5))


def test_a_failed_save_leaves_the_old_file_and_nothing_else(file: Path, monkeypatch: Any) -> None:
    np.save(file, np.arange(3))
    x = (dx.asarray(values("f8"), team=TEAM, sharding=("R", None)) + 1).persist()
    lock, calls = threading.Lock(), []

    def full_disk(fd: int, data: Any, offset: int) -> int:
        with lock:
            calls.append(offset)
            if len(calls) > 1:
                raise OSError(28, "No space left on device")
        return pwrite(fd, data, offset)

    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", full_disk)
    with pytest.raises(OSError, match="No space left"):
        dx.save(file, x)
    assert os.listdir(file.parent) == ["array.npy"]
    np.testing.assert_array_equal(np.load(file), np.arange(3))


def test_short_writes_are_continued(file: Path, monkeypatch: Any) -> None:
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: pwrite(fd, data[:5], offset))
    x = dx.asarray(values("f8"), team=TEAM, sharding=("R", None))
    np.testing.assert_array_equal(np.load(dx.save(file, x)), values("f8"))


def test_blocks_of_another_backend_are_read_and_written(file: Path) -> None:
    pytest.importorskip("array_api_strict")
    x = dx.asarray(values("f8"), team=TEAM, device="strict", sharding=("R", None)) * 2
    dx.save(file, x)
    y = dx.load(file, team=TEAM, device="strict", sharding=(None, "C"))
    assert_equal(y + 1, values("f8") * 2 + 1)


# -- on a cluster --------------------------------------------------------------------------------------------------


@pytest.mark.cluster
@pytest.mark.parametrize("cluster", ["cluster4", "process_cluster"])
def test_workers_read_and_write_their_own_tiles(cluster: str, request: Any, file: Path) -> None:
    request.getfixturevalue(cluster)
    expected = values("f8", (201, 13))
    np.save(file, expected)
    with config.set(block_bytes=1024), counting() as counted:
        x = dx.load(file, sharding=(None, "x"))
        y = x * 2 + 1
        np.testing.assert_array_equal(np.load(dx.save(file.with_name("out"), y)), expected * 2 + 1)
        np.testing.assert_array_equal(np.load(dx.save(file.with_name("copy"), x)), expected)
        assert counted.fetched_bytes == 0
        assert counted.messages == 0
    mapped = np.load(file, mmap_mode="r")
    assert_equal(dx.asarray(mapped[3:]) * 2, expected[3:] * 2)


@pytest.mark.cluster
def test_a_failure_on_a_worker_leaves_no_file(cluster4: Any, file: Path) -> None:
    np.save(file, values("f8", (201, 13)))
    with config.set(block_bytes=1024):
        x = dx.load(file) + 1
        np.save(file, values("f8"))
        with pytest.raises(OSError, match="has changed since"):
            dx.save(file.with_name("out"), x)
    assert os.listdir(file.parent) == ["array.npy"]


def header(text: bytes, version: int = 1) -> bytes:
    size = len(text).to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes([version, 0]) + size + text


MALFORMED = {
    "nothing": b"",
    "another magic": b"\x93NUMPX\x01\x00" + bytes(200),
    "magic alone": b"\x93NUMPY\x01\x00",
    "half a header": header(b"{'descr': '<f8', 'fortran_order': False, 'shape': (3,), }")[:40],
    "negative extent": header(b"{'descr': '<f8', 'fortran_order': False, 'shape': (-3,), }"),
    "negative extents": header(b"{'descr': '<f8', 'fortran_order': False, 'shape': (-3, -4), }") + bytes(96),
    "extent of True": header(b"{'descr': '<f8', 'fortran_order': False, 'shape': (True,), }") + bytes(8),
    "extent of a float": header(b"{'descr': '<f8', 'fortran_order': False, 'shape': (3.0,), }") + bytes(24),
    "shape of a number": header(b"{'descr': '<f8', 'fortran_order': False, 'shape': 3, }") + bytes(24),
    "more than there is": header(b"{'descr': '<f8', 'fortran_order': False, 'shape': (3,), }") + bytes(23),
    "more than can be": header(b"{'descr': '<f8', 'fortran_order': False, 'shape': (%d,), }" % 10**30) + bytes(80),
    "order of text": header(b"{'descr': '<f8', 'fortran_order': 'C', 'shape': (3,), }") + bytes(24),
    "key missing": header(b"{'descr': '<f8', 'shape': (3,), }") + bytes(24),
    "no dtype": header(b"{'descr': 'x9', 'fortran_order': False, 'shape': (3,), }") + bytes(24),
    "dtype of a number": header(b"{'descr': 8, 'fortran_order': False, 'shape': (3,), }") + bytes(24),
    "no dictionary": header(b"[1, 2]") + bytes(24),
    "an expression": header(b"__import__('os').getcwd()") + bytes(24),
    "keys that cannot be": header(b"{[]: 1}") + bytes(24),
    "unfinished": header(b"{'descr': '<f8', 'fortran_order': False, 'shape': (3,") + bytes(24),
    "nested deeply": header(b"(" * 5000 + b")" * 5000) + bytes(24),
    "too long": header(b" " * 60_000 + b"{'descr': '<f8', 'fortran_order': False, 'shape': (3,), }", 2) + bytes(24),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_file_is_an_error_that_names_it(file: Path, name: str) -> None:
    file.write_bytes(MALFORMED[name])
    with pytest.raises((ValueError, EOFError, TypeError, OverflowError, TokenError)):
        np.load(file)
    with pytest.raises(ValueError, match=re.escape(str(file))):
        dx.load(file)


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o666])
def test_save_over_a_file_keeps_its_mode(file: Path, mode: int) -> None:
    dx.save(file, np.arange(3.0))
    file.chmod(mode)
    dx.save(file, np.arange(5.0))
    assert stat.S_IMODE(file.stat().st_mode) == mode
    np.testing.assert_array_equal(np.load(file), np.arange(5.0))


@pytest.mark.parametrize("n", [2, 5000])
def test_save_over_a_file_with_hard_links_is_seen_under_all_names(file: Path, n: int) -> None:
    np.save(file, np.arange(100.0))
    file.chmod(0o640)
    other = file.with_name("other.npy")
    os.link(file, other)
    dx.save(file, dx.arange(n))
    assert file.samefile(other)
    assert stat.S_IMODE(other.stat().st_mode) == 0o640
    np.testing.assert_array_equal(np.load(other), np.arange(n))
    assert sorted(p.name for p in file.parent.iterdir()) == ["array.npy", "other.npy"]


@pytest.mark.parametrize("letter", ["x", "\N{GRINNING FACE}"])
def test_a_file_may_have_the_longest_name_that_there_is(file: Path, letter: str) -> None:
    long = file.with_name(letter * (250 // len(letter.encode())) + ".npy")
    np.testing.assert_array_equal(np.load(dx.save(long, dx.arange(3)) or ""), np.arange(3))


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), OSError("gone"), KeyboardInterrupt()])
def test_a_failed_copy_over_a_file_with_hard_links_keeps_the_array(
    file: Path, monkeypatch: Any, error: BaseException
) -> None:
    np.save(file, np.arange(100.0))
    os.link(file, file.with_name("other.npy"))

    def failing(source: Any, target: Any, length: int) -> None:
        target.write(source.read(10))
        raise error

    monkeypatch.setattr("shutil.copyfileobj", failing)
    with pytest.raises(type(error)) as raised:
        dx.save(file, dx.arange(7.0))
    (kept,) = file.parent.glob(".part.*")
    assert str(kept) in "\n".join([str(raised.value), *getattr(raised.value, "__notes__", [])])
    assert getattr(raised.value, "errno", None) == getattr(error, "errno", None)
    np.testing.assert_array_equal(np.load(kept), np.arange(7.0))


def test_a_file_with_hard_links_that_cannot_be_opened_is_as_before(file: Path, monkeypatch: Any) -> None:
    np.save(file, np.arange(100.0))
    os.link(file, file.with_name("other.npy"))

    def refusing(path: Any, mode: str = "r") -> Any:
        if mode == "r+b":
            raise PermissionError(13, "Permission denied", path)
        return open(path, mode)

    monkeypatch.setattr(replacing, "open", refusing, raising=False)
    with pytest.raises(PermissionError):
        dx.save(file, dx.arange(7.0))
    assert sorted(os.listdir(file.parent)) == ["array.npy", "other.npy"]
    np.testing.assert_array_equal(np.load(file), np.arange(100.0))


def test_save_where_nothing_can_be_written_computes_nothing(file: Path, monkeypatch: Any) -> None:
    x = dx.arange(100.0) + 1
    file.mkdir()
    with counting() as c:
        with pytest.raises(IsADirectoryError, match=re.escape(str(file))):
            dx.save(file, x)
        with pytest.raises(FileNotFoundError, match=re.escape(str(file.parent / "none"))):
            dx.save(file.parent / "none" / "x.npy", x)
        read_only = file.parent / "x.npy"
        np.save(read_only, np.arange(3))
        monkeypatch.setattr(os, "access", lambda path, mode: False)  # whose user may write to anything
        with pytest.raises(PermissionError, match=re.escape(str(read_only))):
            dx.save(read_only, x)
    assert c.tasks == c.evaluations == 0
    np.testing.assert_array_equal(np.load(read_only), np.arange(3))


@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 4), (5,), ()])
def test_what_is_saved_in_fortran_order_lies_so(file: Path, shape: tuple[int, ...]) -> None:
    expected = np.asfortranarray(np.arange(float(np.prod(shape))).reshape(shape))
    np.save(file, expected)
    for x in (dx.load(file), dx.load(file, team=TEAM)):
        assert x.strides == expected.strides
        assert_equal(x, expected)
    dx.save(file, x)
    assert np.load(file).flags.f_contiguous
    np.savez(file.with_suffix(".npz"), a=expected)
    assert dx.load(file.with_suffix(".npz"))["a"].strides == expected.strides


@pytest.mark.parametrize("save", [np.savez, dx.savez, dx.savez_compressed])
def test_arrays_of_an_archive_have_any_name(file: Path, save: Any) -> None:
    names = ("kind", "like", "hermitian", "out", "order", "subok", "fix_imports", "a.npy")
    save(file.with_suffix(".npz"), **{name: dx.arange(i + 1) for i, name in enumerate(names)})
    sizes = {name: i + 1 for i, name in enumerate(names)}
    with np.load(file.with_suffix(".npz")) as found:
        assert {name: found[name].size for name in found.files} == sizes
    assert {name: x.size for name, x in dx.load(file.with_suffix(".npz")).items()} == sizes


def test_an_archive_travels_with_its_attributes(file: Path) -> None:
    np.savez(file.with_suffix(".npz"), a=np.arange(3))
    archive = dx.load(file.with_suffix(".npz"))
    for f in (copy.copy(archive.f), pickle.loads(pickle.dumps(archive.f))):
        assert_equal(f.a, np.arange(3))


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_what_is_in_an_archive_is_found_as_numpy_finds_it(file: Path, compression: int, is_open: bool) -> None:
    expected = np.arange(3)
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name in ("a.npy", "b"):
            with archive.open(name, "w") as member:
                np.save(member, expected)
        for name, text in (("text", b"no array"), ("short", b"")):
            archive.writestr(name, text)
    with open(file, "rb") as stream, np.load(file) as theirs:
        ours = dx.load(stream if is_open else file)
        assert ours.files == theirs.files
        for name in ("a", "a.npy", "b", "text", "nothing", 3):
            assert (name in ours) == (name in theirs)
        for name in ("a", "a.npy", "b"):
            assert_equal(ours[name], expected)
        assert_equal(ours.f.a, expected)
        assert dir(ours.f) == dir(theirs.f)
        assert (ours["text"], ours["short"]) == (b"no array", b"")
        for wrong in (lambda x: x["c"], lambda x: x[1, 2]):
            with pytest.raises(KeyError):
                wrong(ours)
        with pytest.raises(AttributeError):
            _ = ours.f.c


def test_files_of_numbers_are_the_same_whatever_is_said_of_pickles(file: Path) -> None:
    x = dx.arange(4)
    dx.save(file, x, allow_pickle=False)
    np.save(file, x, allow_pickle=False)
    for options in ({"allow_pickle": True}, {"allow_pickle": False, "fix_imports": False}):
        assert_equal(dx.load(file, **options), np.arange(4))
    np.save(file, np.array([{}]), allow_pickle=True)
    with pytest.raises(TypeError):
        dx.load(file, allow_pickle=True)
