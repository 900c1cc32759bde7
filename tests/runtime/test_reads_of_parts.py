"""A read of a part of what is made from nothing makes that part alone, until such reads have come to a fourth of it."""

from typing import Any

import numpy as np
import pytest

import distarray as dx
from distarray.runtime.retention import READ_NBYTES, SHARE
from distarray.testing import counting

ROWS, COLUMNS, GRAIN = 1600, 1000, 100  # 12.8 MB in chunks of 800 kB


class Counted:
    """A store that knows which boxes of it were read."""

    shape, dtype, grain = (ROWS, COLUMNS), np.dtype(float), (GRAIN, COLUMNS)

    def __init__(self) -> None:
        self.boxes: list[tuple[tuple[int, int], ...]] = []

    def read(self, box: tuple[tuple[int, int], ...], out: np.ndarray) -> None:
        self.boxes.append(box)
        out[...] = values()[tuple(slice(*edges) for edges in box)]

    @property
    def n_rows(self) -> int:
        """Return how many rows were read."""
        return sum(hi - lo for (lo, hi), _ in self.boxes)


def values() -> np.ndarray:
    return np.arange(float(ROWS * COLUMNS)).reshape(ROWS, COLUMNS)


def test_a_row_is_read_alone() -> None:
    store = Counted()
    x = dx.from_store(store)
    np.testing.assert_array_equal(np.asarray(x[7]), values()[7])
    assert store.n_rows <= GRAIN


def test_after_some_rows_all_are_read_and_kept() -> None:
    store = Counted()
    x = dx.from_store(store)
    n_apart = 0
    while store.n_rows < ROWS:
        np.testing.assert_array_equal(np.asarray(x[100 * n_apart]), values()[100 * n_apart])
        n_apart += 1
    assert n_apart == ROWS // GRAIN // SHARE + 1  # each chunk is a sixteenth
    n_read = store.n_rows
    np.testing.assert_array_equal(np.asarray(x), values())
    assert store.n_rows == n_read  # nothing is read again


def test_what_needs_all_keeps_all() -> None:
    store = Counted()
    x = dx.from_store(store)
    y = x[7] + x.sum(axis=0)
    np.testing.assert_array_equal(np.asarray(y), values()[7] + values().sum(axis=0))
    np.testing.assert_array_equal(np.asarray(x[1]), values()[1])
    assert store.n_rows == ROWS


def test_every_tenth_row_meets_all_chunks() -> None:
    store = Counted()
    x = dx.from_store(store)
    np.testing.assert_array_equal(np.asarray(x[::10, 3]), values()[::10, 3])
    np.testing.assert_array_equal(np.asarray(x[1]), values()[1])
    assert store.n_rows == ROWS


@pytest.mark.parametrize("index", [np.s_[::50], np.s_[::-40, 1:], np.s_[-1::-500]])
def test_rows_far_apart_count_with_those_between_them(index: Any) -> None:
    """Stores are read by boxes, so looks at some rows of a file without chunks may read it all."""

    class Contiguous(Counted):
        grain = None

    store = Contiguous()
    x = dx.from_store(store)
    for _ in range(3):
        np.testing.assert_array_equal(np.asarray(x[index]), values()[index])
    assert store.n_rows == ROWS


def test_small_reads_count_as_much_as_an_evaluation_takes() -> None:
    """A loop over elements makes the array before long: then its reads are plain calls."""
    x = dx.random.default_rng(0).random(2_000_000)
    expected = np.asarray(dx.random.default_rng(0).random(2_000_000))
    n_most = x.nbytes // SHARE // READ_NBYTES + 1
    with counting() as counts:
        found = [float(x[i]) for i in range(200)]
    assert found == list(expected[:200])
    assert counts.evaluations <= n_most + 1


def test_a_store_without_elements_may_have_grains_without_any() -> None:
    class Nothing(Counted):
        shape, grain = (3000, 0), (100, 0)

    x = dx.from_store(Nothing())
    np.testing.assert_array_equal(np.asarray(x[7]), np.empty(0))
    np.testing.assert_array_equal(np.asarray(x[:, :0].T), np.empty((0, 3000)))


def test_explain_counts_nothing() -> None:
    store = Counted()
    x = dx.from_store(store)
    for _ in range(10):
        assert "kept" not in str(x[7].explain())
    np.testing.assert_array_equal(np.asarray(x[7]), values()[7])
    assert store.n_rows <= GRAIN


def test_written_parts_are_no_reads_of_parts() -> None:
    x = dx.random.default_rng(0).random(2_000_000)
    expected = np.asarray(dx.random.default_rng(0).random(2_000_000)).copy()
    first = float(x[3])
    x[3] = 5.0
    assert first == expected[3]
    assert float(x[3]) == 5.0
    assert float(x[4]) == expected[4]


@pytest.mark.cluster
def test_a_row_is_read_alone_on_a_cluster(cluster4: object, tmp_path: object) -> None:
    pytest.importorskip("zarr")
    dx.to_zarr(dx.asarray(values()), f"{tmp_path}/x.zarr", chunks=(GRAIN, COLUMNS))
    x = dx.from_zarr(f"{tmp_path}/x.zarr")
    assert "kept" in str(x[7].explain())  # of 13 MB a read counts as a third: all is read at once
    y = dx.random.default_rng(0).random((8000, 1000))
    with counting() as counts:
        row = np.asarray(y[7])
    assert counts.tasks == 1
    np.testing.assert_array_equal(row, np.asarray(y)[7])


def test_a_look_at_what_is_made_of_a_store_reads_what_it_needs() -> None:
    store = Counted()
    x = dx.from_store(store)
    celsius = (x - 273.15) * 2 + x
    expected = (values() - 273.15) * 2 + values()
    del x
    np.testing.assert_array_equal(np.asarray(celsius[7]), expected[7])
    assert store.n_rows <= 2 * GRAIN
    assert float(celsius[700:720].mean()) == expected[700:720].mean()
    assert store.n_rows <= 4 * GRAIN
    for k in range(8):
        np.testing.assert_array_equal(np.asarray(celsius[k * GRAIN]), expected[k * GRAIN])
    n_read = store.n_rows
    np.testing.assert_array_equal(np.asarray(celsius), expected)
    assert store.n_rows == n_read  # all was made meanwhile, and is kept


def test_a_part_of_a_look_can_be_written() -> None:
    """What a handle shows is a view, whatever its elements are made of."""
    x = dx.random.default_rng(0).random(2_000_000) * 2
    expected = np.asarray(dx.random.default_rng(0).random(2_000_000)) * 2
    view = x[10:20]
    assert float(view[0]) == expected[10]
    view += 1
    assert float(x[10]) == expected[10] + 1
    assert float(x[9]) == expected[9]
    np.testing.assert_array_equal(np.asarray(view), expected[10:20] + 1)


def test_what_is_there_beside_a_store_does_not_end_a_look() -> None:
    store = Counted()
    x = dx.from_store(store)
    mean = dx.asarray(values().mean(axis=0))
    anomaly = x - mean
    expected = values() - values().mean(axis=0)
    np.testing.assert_array_equal(np.asarray(anomaly[7]), expected[7])
    assert store.n_rows <= GRAIN
    np.testing.assert_array_equal(np.asarray(anomaly), expected)
