"""How many tiles there are: no more than elements, members and memory justify, whatever the chain of operations."""

import time
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distarray as dx
from distarray import config
from distarray.errors import MemoryBudgetError
from distarray.planner import shardings
from distarray.planner.partition.resolved import PartitionProblem
from distarray.planner.plan import Limits
from distarray.planner.propagation import propagate
from distarray.planner.rates import Rates
from distarray.planner.streams import Head, Streams
from distarray.runtime.instantiate import instance_once
from distarray.runtime.planning import plan_of

#: Small enough for tests to cut everything: bytes of a block, and of a tile.
BLOCK, TILE = 64, 256


#: Chains are made of these: each takes the namespace and an array.
STEPS: dict[str, Callable[[Any, Any], Any]] = {
    "flat": lambda xp, x: x.reshape(-1),
    "fold": lambda xp, x: x.reshape(2, -1) if x.size % 2 == 0 else x,
    "long": lambda xp, x: x.reshape(-1, 1),
    "concat": lambda xp, x: xp.concatenate([x, x[: max(len(x) // 2, 1)]]),
    "concat flat": lambda xp, x: xp.concatenate([x.reshape(-1), x.reshape(-1)]),
    "stack": lambda xp, x: xp.stack([x, x], axis=-1),
    "tile": lambda xp, x: xp.tile(x, 2),
    "repeat": lambda xp, x: xp.repeat(x, 2, axis=0),
    "pad": lambda xp, x: xp.pad(x, 1),
    "meshgrid": lambda xp, x: xp.stack([g.reshape(-1) for g in xp.meshgrid(x.reshape(-1)[:4], x.reshape(-1)[:3])]),
    "broadcast": lambda xp, x: xp.broadcast_to(x[None], (2, *x.shape)),
    "transpose": lambda xp, x: x.T,
    "few": lambda xp, x: x[:3],
    "every third": lambda xp, x: x[::3],
    "reversed": lambda xp, x: x[::-1],
    "tail": lambda xp, x: x[1:] if len(x) > 1 else x,
    "more": lambda xp, x: x + 1,
    "outer": lambda xp, x: x.reshape(-1)[:6, None] * x.reshape(-1)[None, :6],
    "sum": lambda xp, x: x.sum(axis=-1, keepdims=True),
}
TEAMS = [((2,), ("a",)), ((3,), ("a",)), ((2, 2), ("a", "b")), ((2, 3), ("a", "b"))]
SHAPES = [(24,), (7, 5), (4, 3, 5), (2, 30), (61,), (1, 9), (5, 5, 5)]


@st.composite
def leaves(draw: st.DrawFn) -> tuple[np.ndarray[Any, Any], dx.DistArray, int]:
    """A host array, the same distributed, and the elements of its largest tile."""
    shape = draw(st.sampled_from(SHAPES))
    sizes, names = draw(st.sampled_from(TEAMS))
    team = dx.Team(sizes, names)
    values = np.arange(float(prod(shape))).reshape(shape)
    how = draw(st.sampled_from(["free", "rows", "chunks", "uneven"]))
    if how == "rows":
        x = dx.asarray(values, team=team, sharding=(names, *[None] * (len(shape) - 1)))
    else:
        x = dx.asarray(values, team=team)
    if how == "chunks":
        x = x.rechunk(draw(st.integers(1, 4)))
    if how == "uneven":
        n = shape[0]
        cut = draw(st.integers(1, n))
        x = x.rechunk({0: (cut, *[1] * (n - cut))})
    largest = prod(map(max, x.chunks)) if how != "free" else x.size
    return values, x, largest


def cuts_of(x: dx.DistArray, limits: Limits) -> list[tuple[str, tuple[int, ...], int, int]]:
    """Of each stage: kind, parts, tiles, and elements of the largest array that it reads or makes."""
    node = x.__dx_node__()
    if node.memo is not None:
        return []
    _, graph, env = plan_of([node])
    found = []
    for draft in instance_once(propagate(graph, env, limits), graph, env).lowered.drafts:
        sizes = [graph.nodes[i].size for i in draft.stage.nodes]
        sizes += [prod(r.lens.shape) for r in draft.readings] + [
            prod(draft.loops.extents[a] for a in axes) for axes in draft.loops.results
        ]
        found.append((draft.stage.kind, draft.sharding.parts, draft.sharding.n_tiles, max(sizes)))
    return found


CHAINS = st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=6)


@settings(max_examples=25)
@given(leaf=leaves(), chain=CHAINS)
def test_tiles_of_every_stage_are_bounded_by_elements_members_and_memory(
    leaf: tuple[Any, dx.DistArray, int], chain: Sequence[str]
) -> None:
    check_chain(leaf, chain)


@pytest.mark.slow
@settings(max_examples=600)
@given(leaf=leaves(), chain=CHAINS)
def test_tiles_of_every_stage_are_bounded_for_many_chains(
    leaf: tuple[Any, dx.DistArray, int], chain: Sequence[str]
) -> None:
    check_chain(leaf, chain)


def check_chain(leaf: tuple[Any, dx.DistArray, int], chain: Sequence[str]) -> None:
    values, x, largest = leaf
    size = x.__dx_node__().env.size
    per_tile = min(largest, TILE // 8)
    asked = prod(map(len, x.chunks)) + size if x.__dx_node__().pin is not None else size
    with config.set(block_bytes=BLOCK):
        for step in chain:
            if values.size > 3000 or values.ndim > 6:
                break
            values, x = STEPS[step](np, values), STEPS[step](dx, x)
            for kind, parts, n_tiles, n_elements in cuts_of(x, Limits(BLOCK, TILE)):
                # Two neighbours that were not joined have more elements than a tile.
                assert n_tiles <= max(asked, size * (2 + 2 * n_elements // per_tile)), (step, kind, parts)
                assert all(n <= max(n_elements, asked) for n in parts), (step, kind, parts)
        np.testing.assert_array_equal(np.asarray(x), values)


@pytest.mark.parametrize("n", [20, 50, 51])
def test_flattened_cubes_are_put_together_in_few_tiles(n: int) -> None:
    values = np.arange(float(n**3)).reshape(n, n, n)
    x = dx.asarray(values)
    y = dx.concatenate([x.reshape(-1), x.reshape(-1)])
    for _, _, n_tiles, _ in cuts_of(y, Limits(1 << 20, 1 << 28)):
        assert n_tiles <= x.__dx_node__().env.size
    np.testing.assert_array_equal(np.asarray(y), np.concatenate([values.reshape(-1)] * 2))


@pytest.mark.parametrize(("n", "k"), [(7, 4), (15, 5)])
def test_coordinates_of_a_grid_are_stacked_in_few_tiles(n: int, k: int) -> None:
    axes = [np.arange(float(n)) + i for i in range(k)]
    y = dx.stack([q.reshape(-1) for q in dx.meshgrid(*axes)], axis=-1)
    for _, _, n_tiles, _ in cuts_of(y, Limits(1 << 20, 1 << 28)):
        assert n_tiles <= y.__dx_node__().env.size
    np.testing.assert_array_equal(np.asarray(y), np.stack([q.reshape(-1) for q in np.meshgrid(*axes)], axis=-1))


@pytest.mark.parametrize(("part", "most"), [(slice(5), 2), (slice(None, None, 200), 6), (slice(7, None, 20_000), 2)])
def test_a_few_elements_of_many_tiles_lie_in_few(part: slice, most: int) -> None:
    values = np.arange(200_000.0)
    x = dx.asarray(values, team=dx.Team((2,), ("T",))).rechunk(200).persist()
    assert x.sharding.n_tiles == 1000
    y = x[part] + 1
    assert y.sharding.n_tiles <= most
    np.testing.assert_array_equal(np.asarray(y), values[part] + 1)


def test_chunks_that_are_kept_whole_stay_as_they_are() -> None:
    x = dx.arange(20, team=dx.Team((2,), ("T",))).rechunk({0: (1, 1, 1, 7, 10)}).persist()
    assert (x + 1).chunks == x.chunks == ((1, 1, 1, 7, 10),)


@pytest.mark.parametrize("array", [lambda: dx.arange(10**18) % 7, lambda: dx.linspace(0, 1, 10**17) ** 2])
def test_what_would_have_too_many_tiles_is_refused_at_once(array: Callable[[], dx.DistArray]) -> None:
    start = time.perf_counter()
    with pytest.raises(MemoryBudgetError, match="tiles, more than the"):
        float(array().sum())
    assert time.perf_counter() - start < 10


def test_chunks_as_many_as_elements_are_refused_before_any_table_is_made() -> None:
    for chunks in (1, (1, -1), {1: 1}):
        with pytest.raises(MemoryBudgetError, match="chunks"):
            dx.zeros((10**9, 10**9)).rechunk(chunks)


@pytest.mark.parametrize("ndim", [3, 40, 63])
def test_tile_repeats_arrays_of_as_many_axes_as_numpy_has(ndim: int) -> None:
    values = np.arange(24.0).reshape((2, *[1] * (ndim - 3), 3, 4))
    for times in [(3, *[1] * (ndim - 1)), (2, *[1] * (ndim - 3), 2, 3), (*[1] * (ndim - 3), 2, 1, 2, 2)[-ndim:]]:
        np.testing.assert_array_equal(np.asarray(dx.tile(dx.asarray(values), times)), np.tile(values, times))


def test_coordinates_of_thirty_axes_are_stacked_and_tiled() -> None:
    axes = [np.arange(2.0)] * 3 + [np.zeros(1)] * 27
    times = [2] * 4 + [1] * 25 + [2] * 2
    got = dx.tile(dx.stack(dx.meshgrid(*axes, indexing="ij"), axis=-1), times)
    wanted = np.tile(np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1), times)
    np.testing.assert_array_equal(np.asarray(got), wanted)


def test_a_stream_of_too_many_tiles_is_no_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not tried, and nobody is told that his array has too many tiles."""
    team = dx.Team((2,), ("T",))
    x = dx.arange(4096.0, team=team).reshape(64, 64)
    with dx.config.set(eager_bytes=0):
        plan, graph, env = plan_of([((x + 1) @ (x * 2)).sum(axis=0).__dx_node__()])
    streams = Streams(plan, PartitionProblem(graph, env.mesh, Limits(1, 1), Rates(), plan.stages), 1)
    heads = streams.heads()
    assert heads
    assert any(streams.streamed(head, 16) is not None for head in heads)
    monkeypatch.setattr(shardings, "MAX_TILES", 8)
    assert all(streams.streamed(head, 16) is None for head in heads)


def test_a_kernel_that_has_whole_rows_may_take_fewer_of_them_at_a_time() -> None:
    """All of a tile is there at once, operands and results, however the array lies."""
    team = dx.Team((2,), ("T",))
    x = dx.arange(4096.0, team=team).reshape(64, 64).reshard(("T", None)).persist()
    with dx.config.set(eager_bytes=0):
        plan, graph, env = plan_of([dx.sort(x, axis=1).__dx_node__()])
    nbytes = 2 * 32 * 64 * 8
    for large, found in ((nbytes, []), (nbytes - 1, [Head(0, 0, nbytes)])):
        streams = Streams(plan, PartitionProblem(graph, env.mesh, Limits(1, 1), Rates(), plan.stages), large)
        assert streams.heads() == found
    finer = streams.streamed(found[0], 4)
    assert finer is not None
    assert finer.stages[0].cut.waves == ((0, 4),)
