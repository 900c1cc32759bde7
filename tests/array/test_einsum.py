"""einsum with joins and aggregations on arrays in tiles: cuts, partial results, tasks, plans, devices, errors."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distarray as dx
from distarray import hooks
from distarray.ops import paths
from distarray.sharding.prime import prime_mesh
from distarray.testing import counting, force_tiles
from distarray.testing.assertions import assert_close, assert_equal

FEW = settings(max_examples=25, derandomize=True, deadline=None)
TEAM = dx.Team((4,), ("T",), members=(0, 1, 2, 3))

rng = np.random.default_rng(0)
X, Y = rng.integers(-9, 9, (7, 11)).astype("f8"), rng.integers(-9, 9, (11, 5)).astype("f8")
WIDE = X[:, :, None], Y[None]

PAIRS: dict[tuple[str, str], Any] = {
    ("absdiff", "max"): lambda x, y: np.abs(x - y).max(1),
    ("sqdiff", "sum"): lambda x, y: ((x - y) ** 2).sum(1),
    ("add", "min"): lambda x, y: (x + y).min(1),
    ("min", "max"): lambda x, y: np.minimum(x, y).max(1),
    ("eq", "sum"): lambda x, y: (x == y).sum(1),
    ("lt", "any"): lambda x, y: (x < y).any(1),
    ("ge", "all"): lambda x, y: (x >= y).all(1),
    ("sub", "prod"): lambda x, y: (x - y).prod(1),
    ("gt", "xor"): lambda x, y: np.logical_xor.reduce(x > y, axis=1),
    ("add", "logaddexp"): lambda x, y: np.logaddexp.reduce(x + y, axis=1),
    ("mul", "sum"): lambda x, y: (x * y).sum(1),
}


@pytest.mark.parametrize("pair", PAIRS, ids="/".join)
def test_partial_results_of_uneven_tiles_combine(pair: tuple[str, str]) -> None:
    expected = PAIRS[pair](*WIDE)
    for n in (1, 3):
        with force_tiles(n):
            x, y = dx.asarray(X), dx.asarray(Y)
            made = dx.einsum("ij,jk->ik", x, y, join=pair[0], agg=pair[1])
            assert_close(made, expected, rtol=1e-12)


@pytest.mark.parametrize("cut", [("T", None), (None, "T")])
def test_a_cut_of_the_aggregated_loop_gives_partial_results(cut: tuple[Any, Any]) -> None:
    x, y = dx.asarray(X, team=TEAM, sharding=cut), dx.asarray(Y, team=TEAM, sharding=cut[::-1])
    with counting() as c:
        assert_equal(dx.einsum("ij,jk->ik", x, y, join="absdiff", agg="max"), PAIRS["absdiff", "max"](*WIDE))
    assert c.by_class["combine"] == (cut[1] is not None)
    assert c.kernels.total() == 4


@st.composite
def problems(draw: st.DrawFn) -> tuple[str, list[tuple[int, ...]], tuple[str, str]]:
    sizes = {c: draw(st.sampled_from([1, 2, 5, 7])) for c in "abcd"}
    terms = draw(st.lists(st.text("abcd", min_size=1, max_size=3), min_size=2, max_size=3))
    found = sorted(set("".join(terms)))
    result = "".join(draw(st.permutations(found)))[: draw(st.integers(0, 2))]
    pair = draw(st.sampled_from([("add", "max"), ("max", "min"), ("add", "sum"), ("or", "any")]))
    return ",".join(terms) + "->" + result, [tuple(sizes[c] for c in t) for t in terms], pair


@FEW
@given(problems())
def test_tiles_give_what_one_block_gives(problem: Any) -> None:
    text, shapes, (join, agg) = problem
    arrays = [np.random.default_rng(i).integers(0, 9, s) for i, s in enumerate(shapes)]
    expected = dx.einsum(text, *[dx.asarray(x) for x in arrays], join=join, agg=agg).compute()
    with force_tiles(3):
        assert_equal(dx.einsum(text, *[dx.asarray(x) for x in arrays], join=join, agg=agg), expected)


def test_a_function_of_the_users_joins_tiles_of_any_number_of_arrays() -> None:
    w = rng.standard_normal(11)

    def weighted(p: Any, q: Any, u: Any) -> Any:
        assert p.shape == q.shape == u.shape
        return u * abs(p - q)

    expected = (w[:, None] * np.abs(WIDE[0] - WIDE[1])).sum(1)
    for n in (1, 3):
        with force_tiles(n):
            arrays = [dx.asarray(v) for v in (X, Y, w)]
            assert_close(dx.einsum("ij,jk,j->ik", *arrays, join=weighted), expected, rtol=1e-12)


def test_a_function_that_fails_fails_at_the_call() -> None:
    def fails(p: Any, q: Any) -> Any:
        if p.size > 2:
            raise ArithmeticError("no such elements")
        return p

    x = dx.asarray(X, team=TEAM, sharding=("T", None))
    with pytest.raises(ArithmeticError, match="no such elements"):
        dx.einsum("ij,kj->ik", x, x, join=fails)
    assert_equal(x, X)


def test_empty_tiles_and_empty_loops() -> None:
    x, y = np.arange(6.0).reshape(3, 2), np.arange(4.0).reshape(2, 2)
    with force_tiles(3):  # axes of two in three tiles
        assert_equal(
            dx.einsum("ij,jk->ik", dx.asarray(x), dx.asarray(y), join="add", agg="max"),
            (x[:, :, None] + y[None]).max(1),
        )
        none = dx.asarray(np.ones((3, 0)))
        assert_equal(dx.einsum("ij,kj->ik", none, none, join="add", agg="prod"), np.ones((3, 3)))
        assert_equal(dx.einsum("ji,jk->ik", none, dx.asarray(x), join="add", agg="max"), np.ones((0, 2)))
        with pytest.raises(ValueError, match="zero-size array to reduction operation maximum"):
            dx.einsum("ij,kj->ik", none, none, join="add", agg="max")


def test_warnings_are_numpys_at_the_users_line() -> None:
    x, y = np.array([[1.0, 5.0], [2.0, 3.0]]), np.array([[0.0, 1.0], [4.0, 0.0]])
    for team, cut in ((None, None), (TEAM, ("T", None))):
        a, b = dx.asarray(x, team=team, sharding=cut), dx.asarray(y, team=team)
        with pytest.warns(RuntimeWarning, match="divide by zero encountered in einsum") as caught:
            dx.einsum("ij,kj->ik", a, b, join="div", agg="max").compute()
        assert {w.filename for w in caught} == {__file__}
        with np.errstate(divide="ignore", invalid="ignore"):
            made = dx.einsum("ij,kj->ik", a, b, join="div", agg="max")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            made.compute()
        with np.errstate(divide="raise"), pytest.raises(FloatingPointError):
            dx.einsum("ij,kj->ik", a, b, join="div", agg="max")


def test_kernels_stay_on_the_strict_device() -> None:
    with dx.use(device="strict"):
        x, y = dx.asarray(X, team=TEAM, sharding=("T", None)), dx.asarray(Y, team=TEAM)
        for pair in (("absdiff", "max"), ("add", "min"), ("sqdiff", "sum"), ("eq", "sum"), ("lt", "any")):
            made = dx.einsum("ij,jk->ik", x, y, join=pair[0], agg=pair[1])
            assert_equal(made, PAIRS[pair](*WIDE))


@pytest.mark.cluster
def test_semirings_on_a_cluster(cluster4: Any) -> None:
    x, y = dx.asarray(X, sharding=(None, "x")), dx.asarray(Y, sharding=("x", None))
    for pair in (("absdiff", "max"), ("add", "logaddexp"), ("gt", "xor")):
        assert_close(dx.einsum("ij,jk->ik", x, y, join=pair[0], agg=pair[1]), PAIRS[pair](*WIDE), rtol=1e-12)
    assert_equal(dx.einsum("ij,jk->ik", x, y, join=lambda p, q: p - q, agg="min"), (WIDE[0] - WIDE[1]).min(1))


# ------------------------------------------------------------------------------------------------------- tasks


@pytest.mark.parametrize(
    ("text", "ndim", "d"), [("aijk,almn->ijklmn", 4, 38), ("aijkl,amnop->ijklmnop", 5, 16)], ids=["a", "b"]
)
def test_outer_products_of_tensors_take_tasks_in_proportion_to_their_bytes(text: str, ndim: int, d: int) -> None:
    """dask#10053 at its full size, planned and not run: a chunk of every pair of chunks is hundreds of thousands."""
    with dx.use(team=TEAM), dx.config.set(memory_limit="8 GiB"):
        a, b = (dx.ones((1024, *[d] * (ndim - 1))) for _ in range(2))
        made = dx.einsum(text, a, b)
        n_tasks = len(made.__dask_graph__())
        # A tile is at most a sixteenth of what a member may use.
        n_tiles = -(-made.nbytes // (4 * (8 << 30) // 16)) * 4
        assert n_tasks <= 3 * max(n_tiles, 4) + 16, (n_tasks, n_tiles)


def test_small_outer_products_of_tensors_are_right() -> None:
    a, b = rng.standard_normal((12, 2, 3, 2)), rng.standard_normal((12, 3, 2, 2))
    x, y = (dx.asarray(v, team=TEAM, sharding=(None, "T", None, None)) for v in (a, b))
    with counting() as c:
        assert_close(dx.einsum("aijk,almn->ijklmn", x, y), np.einsum("aijk,almn->ijklmn", a, b), rtol=1e-12)
    assert c.tasks <= 16


# --------------------------------------------------------------------------------------------------- orders, plans


def test_paths_are_numpys_and_both_take_them() -> None:
    arrays = [np.ones(s) for s in [(3, 4), (4, 5), (5, 2)]]
    ours = [dx.asarray(v) for v in arrays]
    for optimize in ("greedy", "optimal", True, False, ["einsum_path", (1, 2), (0, 1)]):
        path, text = dx.einsum_path("ij,jk,kl->il", *ours, optimize=optimize)
        assert (path, text) == np.einsum_path("ij,jk,kl->il", *arrays, optimize=optimize)
        assert_equal(dx.einsum("ij,jk,kl->il", *ours, optimize=path), np.full((3, 2), 20.0))
    path, text = dx.einsum_path("ij,jk,kl->il", *ours, optimize="auto")
    assert path == ["einsum_path", (1, 2), (0, 1)]
    assert "Complete contraction:  ij,jk,kl->il" in text
    for pair, steps in {("add", "max"): 2, ("add", "sum"): 1}.items():
        path, _ = dx.einsum_path("ij,jk,kl->il", *ours, join=pair[0], agg=pair[1])
        assert len(path) == 1 + steps


@pytest.mark.parametrize("limit", [0, 0.5, -1, 1, 7, 1e9])
@pytest.mark.parametrize("strategy", ["greedy", "optimal"])
def test_a_limit_that_no_intermediate_result_keeps_to_is_none(strategy: str, limit: float) -> None:
    arrays = [np.arange(6.0).reshape(s) for s in [(2, 3), (3, 2), (2, 3)]]
    made = dx.einsum("ij,jk,kl->il", *map(dx.asarray, arrays), optimize=(strategy, limit))
    assert_equal(made, np.einsum("ij,jk,kl->il", *arrays, optimize=(strategy, limit)))


@pytest.mark.parametrize("optimize", ["bogus", ["einsum_path", (0, 5)], ["einsum_path", (0, 1)], [1, 2], [], 3.5])
def test_paths_that_are_none_are_numpys_errors(optimize: Any) -> None:
    arrays = [np.ones((2, 2))] * 3
    with pytest.raises(Exception) as theirs:  # numpy says which
        np.einsum("ij,jk,kl->il", *arrays, optimize=optimize)
    with pytest.raises(theirs.type):
        dx.einsum("ij,jk,kl->il", *[dx.asarray(v) for v in arrays], optimize=optimize)


def test_of_orders_of_as_many_operations_the_one_that_moves_least_is_taken() -> None:
    n = 400
    kept = {"sharding": ("T", None), "team": TEAM}
    a, b, c = (dx.zeros((n, n), **kept) for _ in range(3))  # type: ignore[arg-type]  # keywords of a creator
    wide = dx.zeros((n, n), team=TEAM, sharding=(None, "T"))
    terms, goal, extents = ((0, 1), (1, 2), (2, 3)), (0, 3), (n,) * 4
    for operands, layouts in (((a, b, wide), ((4, 1), (4, 1), (1, 4))), ((a, wide, c), ((4, 1), (1, 4), (4, 1)))):
        with dx.config.set(block_bytes="1 MiB"):
            path, _ = dx.einsum_path("ij,jk,kl->il", *operands, optimize="auto")
        factors = paths.Factors(terms, goal, extents, layouts, 4)
        assert hooks.planned_cost is not None
        cost = {
            order: hooks.planned_cost(factors, paths.steps_of(order, terms, goal), "paper")
            for order in (((0, 1), (0, 1)), ((1, 2), (0, 1)))
        }
        assert cost[tuple(path[1:])] == min(cost.values())
    assert len(set(cost.values())) == 2


def test_orders_of_small_operands_are_not_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> float:
        raise AssertionError("there is nothing to plan")

    monkeypatch.setattr(hooks, "planned_cost", fails)
    x = dx.asarray(np.ones((20, 20)), team=TEAM, sharding=("T", None))
    assert_equal(dx.einsum("ij,jk,kl->il", x, x, x), np.full((20, 20), 400.0))


def test_a_plan_says_how_the_result_is_cut() -> None:
    x, y = dx.asarray(X, team=TEAM), dx.asarray(Y, team=TEAM)
    for join, agg in (("absdiff", "max"), ("mul", "sum")):
        rows = dx.einsum("ij,jk->ik", x, y, join=join, agg=agg, plan="rows")
        assert_close(rows, PAIRS[join, agg](*WIDE))
        assert rows.sharding.parts == (4, 1)
        grid = dx.einsum("ij,jk->ik", x, y, join=join, agg=agg, plan="sqrt")
        assert_close(grid, PAIRS[join, agg](*WIDE))
        assert grid.sharding.parts == (2, 2)
        assert grid.sharding.mesh == prime_mesh(TEAM.mesh)
    assert_equal(dx.einsum("ij->ji", x, plan="rows"), X.T)
    assert_equal(x, X)
    assert_equal(dx.einsum("ij,kj->", x, x, join="add", agg="max", plan="sqrt"), 2 * X.max())
    with dx.use(team=None):
        assert_equal(dx.einsum("ij,jk->ik", dx.asarray(X), dx.asarray(Y), plan="rows"), X @ Y)


@pytest.mark.parametrize(
    ("i", "j", "k", "cut"),
    [
        (4, 1, 1, "2{T}7, 5, 11"),
        (2, 2, 1, "4{T_1}7, 5, 6{T_2}11"),
        (1, 4, 1, "7, 5, 3{T}11"),
        (1, 1, 3, "7, 2{g1}5, 11"),  # one member has nothing to do
        (2, 1, 1, "4{g1}7, 5, 11"),
        (1, 1, 1, "7, 5, 11"),
    ],
)
def test_a_kernel_is_cut_as_a_plan_says(i: int, j: int, k: int, cut: str) -> None:
    found = replace(dx.plan("ij,jk->ik", [X.shape, Y.shape], p=4), splits={"Z": {"i": i, "j": j, "k": k}})
    x, y = dx.asarray(X, team=TEAM), dx.asarray(Y, team=TEAM)
    for join, agg in (("absdiff", "max"), ("mul", "sum")):
        for planner in ("auto", "propagation"):
            with dx.config.set(planner=planner, block_bytes=0):
                z = dx.einsum("ab,bc->ac", x, y, join=join, agg=agg, plan=found)
                assert f"einsum      [{cut}] " in str(dx.explain(z))
                assert_close(z, PAIRS[join, agg](*WIDE))
                assert z.sharding.parts == (i, k)


def test_plans_of_einsum_texts_are_taken() -> None:
    x = dx.asarray(X, team=TEAM)
    three = dx.plan("ij,jk,kl->il", [X.shape, X.T.shape, X.shape], p=4)
    z = dx.einsum("ij,jk,kl->il", x, x.T, x, plan=three)
    assert "1 operation in 1 stage" in str(dx.explain(z))  # one kernel joins all three
    assert_close(z, X @ X.T @ X)
    assert z.sharding.parts == tuple([three.splits["Z"][label] for label in "il"])
    sums = dx.plan("ij->i", [X.shape], p=2, kernels="equal")
    assert_close(dx.einsum("ij->i", x, plan=sums), X.sum(1))
    with dx.use(team=None):
        assert_close(dx.einsum("ij,jk,kl->il", dx.asarray(X), dx.asarray(X.T), dx.asarray(X), plan=three), X @ X.T @ X)
    with pytest.raises(ValueError, match=r"the plan is of ij,jk,kl->il, which is not what is to be computed"):
        dx.einsum("ij,kj,kl->il", x, x, x, plan=three)
    with pytest.raises(ValueError, match="the plan is of ij,jk->ik"):
        dx.einsum("ij,jj->ij", x[:, :7], x[:, :7], plan=dx.plan("ij,jk->ik", [(7, 7)] * 2, p=4))
    with pytest.raises(dx.ShardingError, match="8 parts are more than the 4 members"):
        dx.einsum("ij,kj->ik", x, x, plan=dx.plan("ij,kj->ik", [X.shape] * 2, p=8))
    nodes = [{"id": "A", "shape": [8, 8]}, {"id": "B", "expr": "ij->ji", "inputs": ["A"]}]
    two = dx.plan({"p": 4, "nodes": [*nodes, {"id": "C", "expr": "ij->i", "inputs": ["B"]}]})
    with pytest.raises(dx.ShardingError, match="the plan is of 2 operations"):
        dx.einsum("ij->i", x, plan=two)


def test_rows_and_columns_share_members_evenly() -> None:
    for shape, parts in (((8,), (2, 4)), ((2, 4), (2, 4)), ((9,), (3, 3)), ((5,), (1, 5))):
        axes = ("A", "B")[: len(shape)]
        team = dx.Team(shape, axes, members=tuple(range(int(np.prod(shape)))))
        x = dx.asarray(X, team=team)
        found = dx.einsum("ij,kj->ik", x, x, join="add", agg="max", plan="sqrt")
        assert sorted(found.sharding.parts) == sorted(parts)
        assert_equal(found, (X[:, None] + X[None]).max(-1))
