"""What users of dask.array reach for: chunks and blocks, functions on blocks, reductions of their own, waiting."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask import graph_manipulation

import distarray as dx
from distarray import config
from distarray.testing import counting, force_tiles
from distarray.testing.assertions import assert_close, assert_equal

A = np.random.default_rng(0).integers(0, 100, (11, 4)).astype(float)
TEAM = dx.Team((4,), ("T",))


@pytest.fixture(params=[None, 1, 3], ids=["small", "one tile", "three tiles"])
def tiles(request: pytest.FixtureRequest) -> Iterator[None]:
    with nullcontext() if request.param is None else force_tiles(request.param):
        yield


def rows() -> dx.DistArray:
    return dx.asarray(A, team=TEAM, sharding=("T", None)).persist()


def never(*args: Any, **kwargs: Any) -> Any:
    raise AssertionError("a user's function was called at definition")


# ---------------------------------------------------------------------------------------------------- chunks


def test_chunks_are_the_tiles_as_the_array_lies() -> None:
    x = rows()
    assert x.chunks == ((2, 3, 3, 3), (4,))
    assert (x.numblocks, x.npartitions, x.chunksize) == ((4, 1), 4, (3, 4))
    with config.set(block_bytes=8), counting() as c:
        assert (x + 1).chunks == x.chunks
        assert x[3:].chunks == ((2, 3, 3), (4,))
        assert x.T.chunks == ((4,), (2, 3, 3, 3))
    assert c.tasks == 0
    assert dx.asarray(3.0).chunks == ()
    assert dx.zeros((0, 2)).chunks == ((0,), (2,))
    with force_tiles(3):
        assert dx.asarray(np.ones(2)).chunks == ((1, 1),)  # the tile without elements is no chunk


@pytest.mark.parametrize(
    "chunks", [3, (4, -1), {1: 2}, {-1: 3, 0: (5, 6)}, ((5, 6), (1, 3)), (None, 2), -1, {0: "auto"}, (1, 1)]
)
def test_rechunk_takes_dasks_chunks(chunks: Any) -> None:
    da = pytest.importorskip("dask.array")
    x = rows()
    y = x.rechunk(chunks)
    if "auto" in str(chunks):
        assert y.chunks == ((3, 3, 3, 2), (4,))
    else:
        assert y.chunks == da.from_array(A, chunks=x.chunks).rechunk(chunks).chunks
    assert_equal(y, A)
    assert y.chunks == y.persist().chunks
    assert x.rechunk(x.chunks) is x


def test_arrays_without_a_team_have_chunks_too() -> None:
    y = dx.asarray(A, team=None).rechunk((3, 2)) + 1
    assert y.chunks == ((3, 3, 3, 2), (2, 2))
    assert_equal(y.blocks[1, 1], A[3:6, 2:] + 1)


@pytest.mark.parametrize(
    ("n_members", "chunks", "most"),
    [
        (4, (6, 2), 1),  # 2 x 2 chunks: one each
        (8, (6, 1), 1),  # 2 x 4
        (4, (4, 2), 2),  # 3 x 2 on 2 x 2 members, and not on 3
        (4, (3, 4), 1),  # 4 x 1: along one axis, as always
        (6, (4, 2), 1),  # 3 x 2
        (7, (6, 2), 2),  # a prime number of members has one axis
        (5, (11, 4), 1),
    ],
)
def test_rechunk_keeps_as_many_members_busy_as_there_are_chunks_for(
    n_members: int, chunks: tuple[int, int], most: int
) -> None:
    da = pytest.importorskip("dask.array")
    x = dx.asarray(A, team=dx.Team((n_members,), ("T",))).rechunk(chunks)
    assert x.chunks == da.from_array(A, chunks=chunks).chunks
    held: dict[int, int] = {}
    for tile in x.sharding.tiles():
        if all(b > a for a, b in x.sharding.tile_box(x.shape, tile)):
            member = x.sharding.member(tile)
            held[member] = held.get(member, 0) + 1
    assert max(held.values()) == most
    assert_equal(x, A)


@pytest.mark.parametrize("chunks", [(3,), ((5, 5), (4,)), 0, {5: 2}, (3, 2, 1)])
def test_rechunk_refuses_what_does_not_add_up(chunks: Any) -> None:
    with pytest.raises(ValueError):
        rows().rechunk(chunks)


@pytest.mark.parametrize(
    "index",
    [
        0,
        -1,
        (1, 1),
        (slice(None), 0),
        ([0, 2],),
        (np.array([3, 0, 1]),),
        slice(None, None, -1),
        ([3, 1], slice(0, 1)),
        (..., 1),
        slice(1, 3),
        slice(2, 2),
    ],
)
def test_blocks_are_indexed_as_dasks(index: Any) -> None:
    da = pytest.importorskip("dask.array")
    x = rows().rechunk((3, 2))
    if isinstance(index, slice) and index == slice(2, 2):
        assert_equal(x.blocks[index], A[:0])
        return
    assert_equal(x.blocks[index], da.from_array(A, chunks=(3, 2)).blocks[index].compute())


def test_blocks_are_views_and_say_what_members_hold() -> None:
    x = rows()
    with counting() as c:
        block = x.blocks[1]
        assert (x.blocks.shape, x.blocks.size, len(x.blocks), len(x.blocks.ravel())) == ((4, 1), 4, 4, 4)
    assert c.tasks == 0
    assert dx.shares_memory(block, x)
    block[:] = 0
    assert float(x[2:5].sum()) == 0
    assert [b.member for b in x.blocks] == [0, 1, 2, 3]
    for bad, error in (
        ((0, 0, 0), IndexError),
        (9, IndexError),
        (([0], np.zeros(1, int)), ValueError),
        (None, ValueError),
    ):
        with pytest.raises(error):
            x.blocks[bad]


# ------------------------------------------------------------------------------------------------ map_blocks


def test_block_id_and_block_info_are_dasks() -> None:
    da = pytest.importorskip("dask.array")
    ours: dict[Any, Any] = {}
    theirs: dict[Any, Any] = {}

    def note(into: dict[Any, Any]) -> Any:
        def function(block: Any, row: Any, block_id: Any = None, block_info: Any = None) -> Any:
            if isinstance(block_id, tuple):  # dask calls it with something else, at definition
                into[block_id] = block_info
            return block + row

        return function

    x = rows().rechunk((4, 2))
    y = dx.asarray(A[0], team=TEAM)
    assert_equal(dx.map_blocks(note(ours), x, y, dtype=float), A + A[0])
    arrays = da.from_array(A, chunks=(4, 2)), da.from_array(A[0], chunks=2)
    da.map_blocks(note(theirs), *arrays, dtype=float).compute(scheduler="sync")
    assert ours.keys() == theirs.keys()
    assert ours == theirs


@pytest.mark.parametrize("extents", [(2, 2, 2, 2, 3), (4, 1, 6), (1,) * 11], ids=str)
@pytest.mark.parametrize("members", [2, 3, 4])
def test_blocks_are_numbered_without_the_tiles_that_have_no_elements(extents: tuple[int, ...], members: int) -> None:
    x = dx.asarray(A, team=dx.Team(members, "T")).rechunk((extents, (4,)))
    assert x.numblocks == (len(extents), 1)
    starts = np.cumsum((0, *extents))

    def numbered(block: Any, block_id: Any, block_info: Any) -> Any:
        number = block_id[0]
        for info in (block_info[0], block_info[None]):
            assert (info["num-chunks"], info["chunk-location"]) == ((len(extents), 1), (number, 0))
            assert info["array-location"] == [(starts[number], starts[number + 1]), (0, 4)]
        return np.full(block.shape, number)

    numbers = np.repeat(np.arange(len(extents)), extents)[:, None] + np.zeros(4, int)
    assert_equal(dx.map_blocks(numbered, x, dtype=int), numbers)

    def number(block: Any, block_id: Any) -> Any:
        return np.full(block.shape, block_id[0])

    for said in ({"dtype": int}, {"infer": True}):
        assert_equal(dx.map_overlap(number, x, depth={0: 1}, boundary="nearest", **said), numbers)
    first = dx.map_blocks(lambda block, block_id: np.full((1, 1), block_id[0]), x, dtype=int, chunks=(1, 1))
    assert_equal(first, np.arange(len(extents))[:, None])


def test_blocks_may_have_other_extents(tiles: None) -> None:
    x = dx.asarray(A)
    n, m = x.numblocks
    found = dx.map_blocks(lambda b: np.full((2, 3), b.sum()), x, dtype=float, chunks=(2, 3))
    assert found.shape == (2 * n, 3 * m)
    assert_close(found[::2, ::3].sum(), A.sum())
    found = dx.map_blocks(lambda b: b[:, :1], x, dtype=float, chunks=(x.chunks[0], (1,) * m))
    assert found.shape == (11, m)
    with pytest.raises(ValueError, match="blocks"):
        dx.map_blocks(never, x, dtype=float, chunks=((1,) * (n + 1), (4,) * m))


def test_axes_are_dropped_and_added(tiles: None) -> None:
    x = dx.asarray(A)
    assert_close(dx.map_blocks(lambda b: b.sum(1), x, drop_axis=1, dtype=float), A.sum(1))
    found = dx.map_blocks(lambda b: b[..., None] * np.ones(3), x, new_axis=-1, chunks=3, dtype=float)
    assert_equal(found, A[..., None] * np.ones(3))
    found = x.map_blocks(lambda b, k, scale: b * scale + k, 2, scale=3, dtype=float)
    assert_equal(found, A * 3 + 2)


def test_a_function_is_called_at_definition_only_if_asked_to() -> None:
    """Peers, complaint 20."""
    x = rows()
    with config.set(errors="deferred"):
        dx.map_blocks(never, x, dtype=float)
        dx.map_overlap(never, x, depth=1, dtype=float)
        dx.blockwise(never, "ij", x, "ij", dtype=float)
        dx.apply_gufunc(never, "(i)->()", x, output_dtypes=float)
        dx.reduction(x, never, never, dtype=float)
    for define in (
        lambda **o: dx.map_blocks(np.sign, x, **o),
        lambda **o: dx.map_overlap(np.sign, x, depth=1, **o),
        lambda **o: dx.blockwise(np.sign, "ij", x, "ij", **o),
        lambda **o: dx.apply_gufunc(np.sign, "()->()", x, **o),
        lambda **o: dx.reduction(x, np.sum, np.sum, **o),
    ):
        with pytest.raises(TypeError, match="infer=True"):
            define()
        assert define(infer=True).dtype == np.float64


@pytest.mark.parametrize("tiled", [False, True])
def test_a_wrong_shape_or_kind_of_number_raises(tiled: bool) -> None:
    with force_tiles(3) if tiled else nullcontext():
        x = dx.asarray(A)
        with pytest.raises(ValueError, match="shape"):
            dx.map_blocks(lambda b: b[:1] if len(b) > 1 else b[:0], x, dtype=float)
        with pytest.raises(TypeError, match="promised"):
            dx.map_blocks(lambda b: b, x, dtype=int)
        assert dx.map_blocks(lambda b: b, x, dtype="f4").compute().dtype == np.float32


def test_what_a_function_returns_of_its_block_is_copied() -> None:
    x = rows()
    y = dx.map_blocks(lambda b: b.reshape(b.shape), x, dtype=float)
    x += 1
    assert_equal(y, A)


def test_dasks_functions_work_inside_a_task() -> None:
    def smooth(block: np.ndarray) -> np.ndarray:
        x = dx.asarray(block)
        y = x + 1  # pending: how it will lie is planned
        assert y.chunks == tuple((n,) for n in block.shape)
        inner = dx.map_overlap(lambda b: b[:, 1:-1], y, depth={1: 1}, boundary=0, trim=False, dtype=float)
        return np.asarray(dx.sliding_window_view(inner, 1, axis=0).sum(axis=-1))

    with config.set(block_bytes=8):
        assert_equal(dx.map_blocks(smooth, rows(), dtype=float), A + 1)


# ------------------------------------------------------------------------------------------------- blockwise


def test_blockwise_is_dasks(tiles: None) -> None:
    x = dx.asarray(A)
    assert_close(dx.blockwise(np.matmul, "ij", x, "ik", x.T, "kj", dtype=float), A @ A.T)
    assert_equal(dx.blockwise(np.transpose, "ji", x, "ij", dtype=float), A.T)
    found = dx.blockwise(lambda b, k: b + k, "ij", x, "ij", 7, None, dtype=float)
    assert_equal(found, A + 7)
    found = dx.blockwise(lambda b: b[:, None] * np.ones((2, 1)), "izj", x, "ij", new_axes={"z": 2}, dtype=float)
    assert_equal(found, A[:, None] * np.ones((2, 1)))
    found = dx.blockwise(lambda b, r: b + r, "ij", x, "ij", x[:1], "ij", dtype=float)
    assert_equal(found, A + A[:1])


@pytest.mark.parametrize("change", [lambda n: 2 * n, "twice"])
def test_blockwise_adjusts_chunks(tiles: None, change: Any) -> None:
    x = dx.asarray(A)
    if change == "twice":
        change = tuple(2 * n for n in x.chunks[0])
    found = dx.blockwise(lambda b: np.repeat(b, 2, 0), "ij", x, "ij", adjust_chunks={"i": change}, dtype=float)
    assert_equal(found, np.repeat(A, 2, 0))


@pytest.mark.parametrize(
    ("args", "options", "error"),
    [
        (("ij", "x", "ik"), {}, ValueError),
        (("i", "x", "ij"), {"concatenate": None}, ValueError),
        (("i", "x", "ii"), {}, ValueError),
        (("ij", "x", "i"), {}, ValueError),
        (("ij", "x", None), {}, ValueError),
        (("ij", "x", "ij", "y", "ij"), {}, TypeError),
        (("ijz", "x", "ij"), {"new_axes": {"z": (1, 2)}}, TypeError),
        (("ij", "x"), {}, ValueError),
    ],
)
def test_blockwise_refuses_indices_that_do_not_fit(args: Any, options: dict[str, Any], error: type[Exception]) -> None:
    given = [rows() if a == "x" else A if a == "y" else a for a in args]
    with pytest.raises(error):
        dx.blockwise(never, *given, dtype=float, **options)


# ------------------------------------------------------------------------------------------------- reduction


def mean_chunk(block: np.ndarray, axis: Any, keepdims: bool) -> dict[str, np.ndarray]:
    ones = np.ones_like(block)
    return {"n": ones.sum(axis=axis, keepdims=keepdims), "total": block.sum(axis=axis, keepdims=keepdims)}


def mean_combine(parts: Any, axis: Any, keepdims: bool) -> dict[str, np.ndarray]:
    flat = [parts]
    while not isinstance(flat[0], dict):
        flat = [p for part in flat for p in part]
    return {k: sum(p[k] for p in flat) for k in ("n", "total")}


def mean_aggregate(parts: Any, axis: Any, keepdims: bool) -> np.ndarray:
    whole = mean_combine(parts, axis, True)
    return (whole["total"] / whole["n"]) if keepdims else (whole["total"] / whole["n"]).squeeze(axis)


@pytest.mark.parametrize("axis", [0, 1, -1, (0, 1), None])
@pytest.mark.parametrize("keepdims", [False, True])
def test_reductions_of_arrays_and_of_anything(tiles: None, axis: Any, keepdims: bool) -> None:
    x = dx.asarray(A)
    found = dx.reduction(x, np.sum, np.sum, axis=axis, keepdims=keepdims, dtype=float)
    assert_close(found, A.sum(axis, keepdims=keepdims))
    found = dx.reduction(x, mean_chunk, mean_aggregate, axis, keepdims, float, combine=mean_combine, concatenate=False)
    assert_close(found, A.mean(axis, keepdims=keepdims))


def test_a_reduction_is_a_tree_over_the_tiles() -> None:
    x = dx.asarray(np.arange(64.0), team=dx.Team((64,), ("T",)), sharding=("T",)).persist()
    with config.set(block_bytes=8), counting() as c:
        assert dx.reduction(x, np.max, np.max, dtype=float).item() == 63
    assert c.by_class["tile"] == 64
    assert c.by_class["combine"] == 9


def test_what_raises_in_a_reduction_raises_at_the_call() -> None:
    def fails(block: Any, axis: Any, keepdims: bool) -> Any:
        raise ZeroDivisionError("in the chunk")

    with pytest.raises(ZeroDivisionError, match="in the chunk"):
        dx.reduction(rows(), fails, np.sum, dtype=float)
    with pytest.raises(ValueError, match="shape"):
        dx.reduction(rows(), np.sum, lambda p, axis, keepdims: np.ones(3), dtype=float)


# ------------------------------------------------------------------------------ compute, wait, progress, visualize


@dataclasses.dataclass
class Pair:
    first: Any
    second: Any


def test_compute_looks_into_containers() -> None:
    x = rows()
    found, seven = dx.compute({"a": [x, (x.sum(), 3)], "p": Pair(x.max(), "text"), "s": {1, 2}}, 7)
    assert seven == 7
    assert type(found["a"][0]) is np.ndarray
    assert found["a"][1] == (A.sum(), 3)
    assert (found["p"].first, found["p"].second, found["s"]) == (A.max(), "text", {1, 2})


def _optimized() -> None:
    host = np.arange(40000.0).reshape(200, 200)
    x = dx.asarray(host)
    for array, expected in ((x + 1, host + 1), (x.persist(), host), (x[::2].sum(axis=0), host[::2].sum(axis=0))):
        (made,) = dask.optimize(array)
        assert_close(made, expected)
        made[0] = 7.0
        assert_close(array, expected)


def test_optimize_gives_an_array_of_its_own() -> None:
    _optimized()


@pytest.mark.parametrize("name", ["bind", "wait_on", "clone"])
def test_tasks_are_given_no_other_names(name: str) -> None:
    function = getattr(graph_manipulation, name)
    for x in (rows(), rows() + 1, dx.arange(300_000.0).reshape(3000, 100)):
        with pytest.raises(dx.NotSupportedError, match="other names"):
            dask.compute(function(x, [da.ones(3)]) if name == "bind" else function(x))


def test_wait_keeps_what_it_waited_for() -> None:
    x = rows() + 1
    with counting() as c:
        (same,) = dx.wait(x)
        assert same is x
        x.compute()
    assert c.evaluations == 1


def test_progress_shows_and_returns_whatever_there_is_to_do() -> None:
    for work in (rows() * 2, rows(), dx.arange(3), [rows() + 1, {"k": rows() + 2}]):
        out = io.StringIO()
        assert dx.progress(work, out=out) is None
        assert "100% Completed" in out.getvalue()


def test_dasks_diagnostics_see_the_tasks() -> None:
    diagnostics = pytest.importorskip("dask.diagnostics")
    out = io.StringIO()
    x = rows()
    with diagnostics.ProgressBar(out=out), diagnostics.Profiler() as profiler, counting() as c:
        (x * 2).sum(axis=0).persist()
    assert "100% Completed" in out.getvalue()
    assert len(profiler.results) == c.tasks > 0
    assert dask.callbacks.Callback.active == set()


def test_a_callback_hears_of_a_failure() -> None:
    ends = []

    def fails(block: Any) -> Any:
        raise ZeroDivisionError

    with dask.callbacks.Callback(finish=lambda dsk, state, failed: ends.append(failed)):
        with pytest.raises(ZeroDivisionError):
            dx.map_blocks(fails, rows(), dtype=float)
        (rows() + 1).persist()
    assert ends == [True, False]


@pytest.mark.cluster
def test_dasks_habits_on_a_cluster(cluster4: Any, capsys: Any) -> None:
    _optimized()
    x = dx.asarray(A, sharding=("x", None))
    assert x.chunks == ((2, 3, 3, 3), (4,))
    assert_equal(x.rechunk((3, 2)).blocks[1, 1], A[3:6, 2:])
    found = dx.map_blocks(lambda b, block_id: b + 10 * block_id[0], x, dtype=float)
    assert_equal(found, A + 10 * np.repeat([0, 1, 2, 3], [2, 3, 3, 3])[:, None])
    found = dx.reduction(x, mean_chunk, mean_aggregate, 0, False, float, combine=mean_combine, concatenate=False)
    assert_close(found, A.mean(0))
    low, high = dx.apply_gufunc(lambda b: (b.min(-1), b.max(-1)), "(i)->(),()", x, output_dtypes=(float, float))
    assert_equal(low, A.min(1))
    assert_equal(high, A.max(1))
    (y,) = dx.wait(x * 2 + 1)
    dx.progress(x * 3)
    assert "Completed" in capsys.readouterr().out
    assert_equal(y, A * 2 + 1)


def test_chunks_stay_with_the_members_that_hold_most_of_them() -> None:
    team = dx.Team((4,), ("R",))
    for shape, source, target, members in [
        ((300, 26), (100, 10), (99, 9), [0] * 3 + [1] * 3 + [2] * 6),  # the last, thin row lies with its neighbour
        ((16, 8, 8), (1, 8, 8), (4, 2, 8), [0] * 4 + [1] * 4 + [2] * 4 + [3] * 4),  # cut along its own axis again
        ((16, 16), (16, 2), (2, 16), [0, 0, 1, 1, 2, 2, 3, 3]),  # no chunk for all members along the old axis
        ((10,), (10,), (1,), [0, 0, 0, 1, 1, 1, 2, 2, 2, 3]),  # all on one member before: dealt out
    ]:
        values = np.arange(np.prod(shape)).reshape(shape)
        y = (dx.asarray(values, team=team).rechunk(source) + 0).persist().rechunk(target)
        assert [block.member for block in y.iter_blocks() if block.values.size] == members
        np.testing.assert_array_equal(np.asarray(y), values)
