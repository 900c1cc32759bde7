"""map_overlap: user functions on tiles and their surroundings, against dask.array and numpy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import distarray as dx
from distarray import config
from distarray.testing import counting, force_tiles
from distarray.testing.assertions import assert_equal

A = np.random.default_rng(0).integers(0, 100, (9, 7)).astype(float)


@pytest.fixture(params=[None, 1, 3], ids=["small", "one tile", "three tiles"])
def tiles(request: pytest.FixtureRequest) -> Iterator[None]:
    with nullcontext() if request.param is None else force_tiles(request.param):
        yield


def stencil(block: np.ndarray) -> np.ndarray:
    """A function of each element and of two around it, on a block that has more around it."""
    return (
        block
        + 2 * np.roll(block, 1, 0)
        + 3 * np.roll(block, -2, 0)
        + 5 * np.roll(block, 1, 1)
        + 7 * np.roll(block, -2, 1)
    )


def dasks(array: np.ndarray) -> Any:
    da = pytest.importorskip("dask.array")
    return da.from_array(array, chunks=array.shape)


@pytest.mark.parametrize(
    "boundary", ["reflect", "periodic", "nearest", 7.0, {0: "periodic", 1: "reflect"}, ("nearest", 3), (3, "periodic")]
)
@pytest.mark.parametrize("depth", [2, {0: 3, 1: 2}, (6, 5)], ids=["2", "dict", "deeper than a tile"])
def test_boundaries_are_dasks(tiles: None, boundary: Any, depth: Any) -> None:
    expected = dasks(A).map_overlap(stencil, depth=depth, boundary=boundary, dtype=float).compute()
    assert_equal(dx.map_overlap(stencil, dx.asarray(A), depth=depth, boundary=boundary, dtype=float), expected)


def test_axes_that_are_not_named_have_no_halo(tiles: None) -> None:
    found = dx.map_overlap(lambda b: np.roll(b, 1, 1), dx.asarray(A), depth={1: 2}, boundary={1: 0}, dtype=float)
    assert_equal(found, np.pad(A, ((0, 0), (1, 0)))[:, :-1])


def test_without_a_boundary_blocks_end_where_the_array_ends(tiles: None) -> None:
    def smooth(block: np.ndarray) -> np.ndarray:
        wide = np.pad(block, 1)
        return wide[:-2, 1:-1] + wide[2:, 1:-1] + wide[1:-1, :-2] + wide[1:-1, 2:]

    assert_equal(dx.map_overlap(smooth, dx.asarray(A), depth=1, dtype=float), smooth(A))


def test_halos_may_differ_before_and_after(tiles: None) -> None:
    def ahead(block: np.ndarray) -> np.ndarray:
        return block[2:] - block[:-2]

    x = dx.asarray(A)
    found = dx.map_overlap(ahead, x, depth={0: (0, 2)}, boundary="periodic", trim=False, dtype=float)
    assert_equal(found, np.roll(A, -2, 0) - A)
    found = dx.map_overlap(lambda block: block, x, depth={0: (2, 0), 1: (0, 1)}, boundary="reflect", dtype=float)
    assert_equal(found, A)


def test_several_arrays_each_have_their_depth(tiles: None) -> None:
    def both(p: np.ndarray, q: np.ndarray) -> np.ndarray:
        return stencil(p) + q

    da = pytest.importorskip("dask.array")
    options = {"depth": [{0: 2, 1: 2}, {0: 2}], "boundary": ["reflect", "reflect"], "dtype": float}
    expected = da.map_overlap(both, dasks(A), dasks(A[0]), **options).compute()
    assert_equal(dx.map_overlap(both, dx.asarray(A), dx.asarray(A[0]), **options), expected)


def test_axes_may_be_dropped_and_added(tiles: None) -> None:
    x = dx.asarray(A)
    found = dx.map_overlap(lambda b: stencil(b).sum(1), x, depth=2, boundary="periodic", drop_axis=1, dtype=float)
    expected = dasks(A).map_overlap(lambda b: stencil(b).sum(1), depth=2, boundary="periodic", drop_axis=1, dtype=float)
    assert_equal(found, expected.compute())
    found = dx.map_overlap(lambda b: b[:, None], x, depth=1, boundary=0, new_axis=1, dtype=float)
    assert_equal(found, A[:, None])


def test_untrimmed_blocks_may_have_other_extents() -> None:
    x = dx.asarray(A, team=dx.Team((3,), ("T",)), sharding=("T", None))
    found = dx.map_overlap(
        lambda block: block.sum(0, keepdims=True),
        x,
        depth={0: 1},
        boundary=0,
        trim=False,
        chunks=((1, 1, 1), (7,)),
        dtype=float,
    )
    assert_equal(found, np.array([A[:4].sum(0), A[2:7].sum(0), A[5:].sum(0)]))


def test_a_function_may_ask_for_its_block() -> None:
    x = dx.asarray(A, team=dx.Team((3,), ("T",)), sharding=("T", None))
    found = x.map_overlap(lambda b, block_id: b * 0 + block_id[0], depth=1, boundary=0, dtype=float)
    assert_equal(found, np.repeat([[0.0], [1.0], [2.0]], 3, axis=0) + 0 * A)


@pytest.mark.parametrize("n_tiles", [2, 4, 8])
def test_a_halo_of_rows_is_two_messages_between_neighbours(n_tiles: int) -> None:
    """Peers, complaint 15: no copy of the array, one exchange of exactly what is needed."""
    team = dx.Team((n_tiles,), ("T",))
    x = dx.asarray(np.arange(64.0).reshape(16, 4), team=team, sharding=("T", None)).persist()
    with config.set(block_bytes=8), counting() as c:
        dx.map_overlap(lambda block: block, x, depth={0: 1}, boundary="reflect", dtype=float)
    assert c.messages == 2 * (n_tiles - 1)
    assert c.bytes_moved == 2 * (n_tiles - 1) * 4 * 8
    assert c.by_class["tile"] == n_tiles


def test_a_halo_deeper_than_the_neighbour_comes_from_whoever_has_it() -> None:
    x = dx.asarray(np.arange(8.0), team=dx.Team((8,), ("T",)), sharding=("T",)).persist()
    with config.set(block_bytes=8), counting() as c:
        y = dx.map_overlap(lambda b: np.convolve(b, np.ones(7), "same"), x, depth=3, boundary=0, dtype=float)
    assert_equal(y, np.convolve(np.arange(8.0), np.ones(7), "same"))
    assert c.messages == sum(min(i, 3) + min(7 - i, 3) for i in range(8))


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"depth": 10}, ValueError, "larger than the array"),
        ({"depth": -1}, ValueError, "negative"),
        ({"depth": 1, "boundary": "mirror"}, ValueError, "mirror"),
        ({"depth": (1,)}, ValueError, "each of 2 axes"),
        ({"depth": 1, "dtype": None}, TypeError, "infer=True"),
        ({"depth": 1, "chunks": (3, 3)}, TypeError, "trim=False"),
        ({"depth": [1, 1]}, ValueError, "1 arrays"),
    ],
)
def test_what_does_not_fit_raises_at_the_call(options: dict[str, Any], error: type[Exception], match: str) -> None:
    def never(block: Any) -> Any:
        raise AssertionError("called at definition")

    with pytest.raises(error, match=match):
        dx.map_overlap(never, dx.asarray(A), **({"dtype": float} | options))


def test_a_block_of_another_shape_raises() -> None:
    with pytest.raises(ValueError, match="shape"):
        dx.map_overlap(lambda block: block[:1], dx.asarray(A), depth=1, boundary=0, dtype=float)


@pytest.mark.cluster
def test_map_overlap_on_a_cluster(cluster4: Any) -> None:
    x = dx.asarray(A, sharding=("x", None))
    found = dx.map_overlap(stencil, x + 0, depth=2, boundary="periodic", dtype=float)
    wide = np.pad(A, 2, mode="wrap")
    assert_equal(found, stencil(wide)[2:-2, 2:-2])
