"""Arrays that are put together stay where they lie: every tile of a piece at its member."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distarray as dx
from distarray import Team
from distarray.expr.bind import bind_get
from distarray.expr.expr import Environment, Expr, Stored
from distarray.expr.indexing import parse_index
from distarray.ops import creation, joining, reductions
from distarray.planner.pieces import MAX_ROUNDS
from distarray.planner.plan import Along, Assembled
from distarray.planner.propagation import propagate
from distarray.planner.streams import is_alike
from distarray.sharding.mesh import Mesh
from distarray.sharding.sharding import Sharding
from tests.planner.test_partition import (
    SMALL_BLOCKS,
    elementwise,
    env_of,
    graph_of,
    lying,
    matmul,
    parse_sharding,
    planned,
    predicted,
    transfers,
)

NBYTES = 4


def moved(x: Expr) -> int:
    graph = graph_of(x)
    return transfers(graph, propagate(graph, x.env, SMALL_BLOCKS))


def rule_of(x: Expr) -> Any:
    return propagate(graph_of(x), x.env, SMALL_BLOCKS).stages[0].cut.rule


def rows(x: Expr, *where: int | None) -> Expr:
    return bind_get(x, parse_index((slice(*where),), x.shape).affine)


def test_joined_rows_move_nothing() -> None:
    env = env_of(4)
    x, y = lying(env, (2000, 30)), lying(env, (1000, 30))
    assert moved(joining.concat([x, y])) == 0
    assert moved(joining.concat([x, x, y, x])) == 0
    assert moved(joining.concat([elementwise.sqrt(x), elementwise.add(y, 1.0)])) == 0
    assert moved(joining.stack([x, x])) == 0
    assert moved(joining.concat([x, x], axis=1)) == 0


def test_what_is_made_of_joined_rows_follows_them() -> None:
    env = env_of(4)
    joined = joining.concat([lying(env, (2000, 30)), lying(env, (1000, 30))])
    assert moved(elementwise.sqrt(joined)) == 0
    assert moved(reductions.sum(joined, axis=1)) == 0
    assert moved(reductions.sum(joined, axis=0)) == 3 * 30 * NBYTES  # as of any array on four members


def test_joined_again_what_was_joined_moves_nothing() -> None:
    env = env_of(3)
    x, joined = lying(env, (300, 40)), lying(env, (500, 40))
    mesh, bounds = env.mesh.with_waves(2), (0, 100, 200, 300, 400, 450, 500)
    joined.memo = Stored(Sharding(mesh, (("T", "%1"), ()), (), (bounds, None)), [None] * 6)
    assert moved(joining.concat([joined, x])) == 0
    assert moved(joining.concat([x, joined, joined])) == 0


def test_blocks_of_a_matrix_stay() -> None:
    env = env_of(4)
    a, b, c, d = (lying(env, shape) for shape in [(300, 20), (300, 40), (100, 20), (100, 40)])
    assert moved(joining.blocks([[a, b], [c, d]], 2, 2)) == 0


def test_joined_slices_move_the_rows_at_the_borders_of_tiles() -> None:
    env = env_of(4)
    x, y = lying(env, (2000, 30)), lying(env, (1000, 30))
    assert moved(joining.concat([rows(x, 0, -1), rows(y, 1, None)])) <= 8 * 30 * NBYTES


def test_a_few_rows_more_go_to_a_neighbour() -> None:
    env = env_of(4)
    x, y = lying(env, (2000, 30)), lying(env, (1000, 30))
    few = lying(env, (3, 30), (None, None))
    assert moved(joining.concat([x, few, y])) <= 3 * 30 * NBYTES


def test_joined_columns_of_a_grid_stay() -> None:
    env = Environment(Team((2, 2), ("R", "C"), members=range(4)))
    x = lying(env, (400, 200), (None, "C"))
    assert moved(joining.concat([x, x], axis=1)) == 0
    assert moved(joining.concat([x, x], axis=0)) == 0


def test_pieces_that_lie_in_different_ways_are_cut_over_all_members() -> None:
    env = env_of(4)
    x, y = lying(env, (2000, 400), ("T", None)), lying(env, (2000, 400), (None, "T"))
    assert isinstance(rule_of(joining.concat([x, x])), Assembled)
    assert isinstance(rule_of(joining.concat([x, y])), Along)


def test_many_small_pieces_are_cut_over_all_members() -> None:
    env = env_of(2)
    x = lying(env, (200, 10))
    assert isinstance(rule_of(joining.concat([x] * MAX_ROUNDS)), Assembled)
    assert rule_of(joining.concat([x] * (MAX_ROUNDS + 1))) == Along(0)


def test_long_gaps_between_pieces_are_dealt_out_too() -> None:
    """What lies nowhere yet, as random numbers and zeros do, is made by all members."""
    team = Team((4,), ("T",), members=range(4))
    with dx.config.set({"block-bytes": 0, "eager-bytes": 0}), dx.use(team=team):
        x, y = (dx.asarray(np.arange(n * 2.0).reshape(n, 2), sharding=("T", None)).persist() for n in (200, 100))
        for pieces in ([x, 2000, y], [2000, x, y], [x, y, 2000]):
            joined = dx.concatenate([dx.zeros((p, 2)) if isinstance(p, int) else p for p in pieces]).persist()
            rows = [0] * 4
            for tile in joined.sharding.tiles():
                rows[joined.sharding.place(tile) // (joined.sharding.n_tiles // 4)] += joined.sharding.shard_shape(
                    joined.shape, tile
                )[0]
            assert rows == [2300 // 4] * 4
            expected = np.concatenate([np.zeros((p, 2)) if isinstance(p, int) else np.asarray(p) for p in pieces])
            np.testing.assert_array_equal(np.asarray(joined), expected)


def test_appending_again_and_again_makes_no_ever_smaller_tiles() -> None:
    team = Team((2,), ("T",), members=range(2))
    with dx.config.set({"block-bytes": 0, "eager-bytes": 0}), dx.use(team=team):
        joined = dx.asarray(np.arange(6.0), sharding=("T",)).persist()
        for n in range(1, 2 * MAX_ROUNDS):
            piece = dx.asarray(np.arange(6.0 * n, 6 * n + 6), sharding=("T",)).persist()
            joined = dx.concatenate([joined, piece]).persist()
            assert joined.sharding.n_tiles <= 2 * MAX_ROUNDS
        np.testing.assert_array_equal(np.asarray(joined), np.arange(12.0 * MAX_ROUNDS))


def test_a_plan_for_pieces_holds_for_reversed_ones() -> None:
    """Steps are no part of what a plan is kept under."""
    team = Team((3,), ("T",), members=range(3))
    values = np.arange(40.0).reshape(10, 4)
    with dx.config.set({"block-bytes": 0, "eager-bytes": 0}), dx.use(team=team):
        for last in (slice(10, 20), slice(19, 9, -1)):
            x, z, expected = dx.asarray(values, sharding=("T", None)).persist(), dx.empty((20, 4)), np.empty((20, 4))
            z[:10], expected[:10] = x, values
            z[last], expected[last] = x, values
            np.testing.assert_array_equal(np.asarray(z), expected)


def test_members_of_rounds_have_other_parts_than_those_of_tiles_in_a_row() -> None:
    """Stages that are cut in such different ways are no neighbours of one stream: each part would be sent."""
    mesh = Mesh(("T",), (2,))
    waves = mesh.with_waves(3)
    plain, minor, rounds = Sharding(mesh, (("T",),)), Sharding(waves, (("%1", "T"),)), Sharding(waves, (("T", "%1"),))
    assert is_alike(plain, 0, minor, 0)
    assert is_alike(rounds, 0, rounds, 0)
    assert not is_alike(plain, 0, rounds, 0)
    assert not is_alike(rounds, 0, minor, 0)


@given(st.integers(0, 10_000), st.sampled_from([2, 3, 4, 6, 7]))
@settings(max_examples=40)
def test_bytes_of_what_reads_joined_arrays_are_those_that_are_predicted(seed: int, n_members: int) -> None:
    """Members have several boxes of what is joined, and each is counted."""
    rng, env = random.Random(seed), env_of(n_members)
    x, y = (lying(env, (rng.choice([40, 100, 130]), 60)) for _ in range(2))
    gap = creation.zeros((600, 60), x.dtype, env)
    joined = joining.concat(rng.choice([[x, y], [x, x], [x, y, x], [x, gap, y]]))
    readers: list[Callable[[Expr], Expr]] = [
        lambda c: matmul(c, lying(env, (60, 80), rng.choice([("T", None), (None, "T")]))),
        lambda c: rows(c, c.shape[0] // 4, None),
        lambda c: elementwise.add(c, lying(env, c.shape)),
        lambda c: elementwise.subtract(c, reductions.mean(c, axis=0, keepdims=True)),
        lambda c: joining.concat([c, c]),
    ]
    target = rng.choice(readers)(joined)
    graph, plan = planned(target, limits=SMALL_BLOCKS)
    for p in (plan, propagate(graph, env, SMALL_BLOCKS)):
        assert predicted(graph, p, SMALL_BLOCKS) == pytest.approx(transfers(graph, p), abs=500, rel=0.02)


def test_many_rounds_count_by_the_share_of_their_hull() -> None:
    """A user may deal rows out in a hundred rounds: plans are made in no more time for that."""
    env = env_of(2)
    x = lying(env, (400, 10))
    waves = Mesh(("T", "%1"), (2, 100))
    node = lying(env, (400, 10))
    node.memo = Stored(Sharding(waves, (("T", "%1"), ())), [None] * 200)
    graph, plan = planned(elementwise.add(node, x), limits=SMALL_BLOCKS)
    assert predicted(graph, plan, SMALL_BLOCKS) > 0
    assert parse_sharding(("T", None), (400, 10), env.team.mesh).n_tiles == 2


READERS: dict[str, Callable[[Any, Any], Any]] = {
    "itself": lambda xp, c: c,
    "sum": lambda xp, c: c.sum(axis=0),
    "argmax": lambda xp, c: c.argmax(axis=0),
    "sort": lambda xp, c: xp.sort(c, axis=0),
    "cumsum": lambda xp, c: xp.cumsum(c, axis=0),
    "product": lambda xp, c: c.T @ c,
    "reversed": lambda xp, c: c + c[::-1],
    "rows": lambda xp, c: c[[0, -1, len(c) // 2]],
    "mask": lambda xp, c: c[c > 3],
    "flat": lambda xp, c: c.reshape(-1),
    "joined again": lambda xp, c: xp.concatenate([c, c[:1], c]),
    "stencil": lambda xp, c: c[2:] - 2 * c[1:-1] + c[:-2],
    "written": lambda xp, c: _written(c),
    "median": lambda xp, c: xp.median(c, axis=0),
    "transform": lambda xp, c: xp.fft.fft(c, axis=0),
    "rolled": lambda xp, c: xp.roll(c, 2, axis=0) - c,
}


def _written(c: Any) -> Any:
    z = c.copy()
    z[::3] = z[::3] * 2
    z[1:5] += 7
    return z


@given(st.integers(0, 10_000), st.sampled_from(sorted(READERS)), st.integers(2, 8), st.booleans())
@settings(max_examples=80)
def test_values_of_what_reads_joined_arrays_are_numpys(seed: int, reader: str, n_members: int, is_kept: bool) -> None:
    rng = random.Random(seed)
    team = Team((n_members,), ("T",), members=range(n_members))
    lengths = [rng.choice([0, 1, n_members, n_members + 1, 13, 20]) for _ in range(rng.choice([2, 3, 4]))] + [2]
    values = [np.random.default_rng(seed + i).integers(0, 50, (n, 5)).astype(float) for i, n in enumerate(lengths)]
    planner = rng.choice(["propagation", "eindecomp"])
    with dx.config.set({"planner": planner, "block-bytes": rng.choice([0, 64]), "eager-bytes": 0}), dx.use(team=team):
        joined = dx.concatenate([dx.asarray(v, sharding=("T", None)) + 0 for v in values])
        if is_kept:
            joined = joined.persist()
        expected = np.concatenate(values)
        np.testing.assert_allclose(np.asarray(READERS[reader](dx, joined)), READERS[reader](np, expected), atol=1e-9)
        np.testing.assert_array_equal(np.asarray(joined), expected)
