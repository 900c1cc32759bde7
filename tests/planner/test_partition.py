"""Cuts chosen from the whole expression: what is planned for known graphs, and that it never moves more."""

from __future__ import annotations

import functools
import itertools
import operator
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distarray as dx
from distarray.expr.bind import bind_create, bind_get, bind_put, bind_reshape
from distarray.expr.expr import SOURCE, Environment, Expr, Stored, postorder
from distarray.expr.indexing import parse_index
from distarray.expr.lens import Affine
from distarray.expr.rewrite import FULL
from distarray.ops import contractions, elementwise, fft, joining, manipulation, reductions
from distarray.planner import shardings
from distarray.planner.eindecomp.bounds import matmul_bound
from distarray.planner.graph import Graph, canonical
from distarray.planner.partition import partition, search, tiers
from distarray.planner.partition.resolved import PartitionProblem
from distarray.planner.partition.tiers import corners_of, is_movable
from distarray.planner.partition.translation import ein_graph, stage_bound
from distarray.planner.plan import Limits, Plan
from distarray.planner.propagation import propagate
from distarray.planner.rates import Rates
from distarray.runtime.instantiate import instance_once
from distarray.sharding.mesh import Mesh, is_wave
from distarray.sharding.prime import prime_mesh
from distarray.sharding.sharding import Sharding
from distarray.sharding.spec import parse_sharding
from distarray.sharding.team import Team
from distarray.testing import counting

F4 = np.dtype("f4")
#: Links so slow that small arrays are worth a search.
SLOW_LINKS = {"latency": 0, "task": 0, "bandwidth": 1e8}
LIMITS = Limits(block=1 << 20, tile=1 << 40)
#: Nothing but bytes and the balance of work.
BYTES = Rates(latency=0.0, task=0.0)
#: The same over links so slow that moving is most of it.
SLOW = replace(BYTES, bandwidth=1e8)


def env_of(n: int) -> Environment:
    return Environment(Team((n,), ("T",), members=tuple(range(n))))


def lying(env: Environment, shape: tuple[int, ...], cut: object = None) -> Expr:
    """An array that is there, cut along its first axis if nothing else is said; without its elements."""
    assert env.team is not None
    if cut is None:
        cut = ("T",) + (None,) * (len(shape) - 1)
    node = Expr(SOURCE, (), shape, F4, env)
    sharding = parse_sharding(cut, shape, env.team.mesh)
    node.memo = Stored(sharding, [None] * sharding.n_tiles)
    return node


def computed(env: Environment, shape: tuple[int, ...]) -> Expr:
    """An array that will be computed, in whichever cut is planned."""
    return elementwise.sqrt(bind_create(FULL, shape, F4, env, (), 2.0))


def matmul(a: Expr, b: Expr) -> Expr:
    return contractions.matmul(a, b)


def transposed(x: Expr) -> Expr:
    return manipulation.swapaxes(x, -1, -2)


def graph_of(*targets: Expr) -> Graph:
    return canonical(postorder(targets), {id(t) for t in targets}, None)


def planned(*targets: Expr, rates: Rates = BYTES, limits: Limits = LIMITS) -> tuple[Graph, Plan]:
    graph = graph_of(*targets)
    return graph, partition(graph, targets[0].env, limits, rates, {}, "always")[0]


def transfers(graph: Graph, plan: Plan) -> int:
    """Bytes that the tasks of a plan send."""
    return sum(t.nbytes for t in instance_once(plan, graph, graph.nodes[0].env).lowered.transfers)


def before(graph: Graph) -> int:
    """Bytes that those of the first planner send."""
    return transfers(graph, propagate(graph, graph.nodes[0].env, LIMITS))


def parts_of(graph: Graph, plan: Plan) -> list[tuple[int, ...]]:
    """Parts of the loops of each product."""
    drafts = instance_once(plan, graph, graph.nodes[0].env).lowered.drafts
    return [d.sharding.parts for d in drafts if d.stage.kind == "contract"]


def predicted(graph: Graph, plan: Plan, limits: Limits = LIMITS) -> int:
    env = graph.nodes[0].env
    assert env.team is not None
    return PartitionProblem(graph, env.team.mesh, limits, BYTES, plan.stages).place(plan.stages).nbytes


# ------------------------------------------------------------------------------------------------- known graphs


def test_a_square_product_on_four_members_is_cut_two_by_two() -> None:
    """The best regular grid: 1.135 of the bound, which takes cubes of side ``n / 4^(1/3)``."""
    n = 2000
    env = env_of(4)
    graph, plan = planned(matmul(computed(env, (n, n)), computed(env, (n, n))))
    assert parts_of(graph, plan) == [(2, 2, 1)]
    assert transfers(graph, plan) == 2 * n * n * 4 <= 1.14 * matmul_bound(n, n, n, 4) * 4
    assert before(graph) == 3 * n * n * 4
    assert plan.planner == "eindecomp"


def test_a_square_product_on_eight_members_is_cut_in_cubes() -> None:
    n = 2000
    env = env_of(8)
    graph, plan = planned(matmul(computed(env, (n, n)), computed(env, (n, n))))
    (draft,) = [d for d in instance_once(plan, graph, env).lowered.drafts if d.stage.kind == "contract"]
    mesh = draft.sharding.mesh
    apart = [prod(mesh.axis_size(name) for name in names if not is_wave(name)) for names in draft.sharding.axes]
    assert apart == [2, 2, 2]
    assert transfers(graph, plan) <= 1.01 * matmul_bound(n, n, n, 8) * 4


@pytest.mark.parametrize("n_members", [2, 3, 4, 6, 8])
def test_partial_results_are_combined_by_the_members_that_have_them(n_members: int) -> None:
    """Each member has a part of all of a product of tall matrices: one is sent as much as any other."""
    env = env_of(n_members)
    graph, plan = planned(matmul(transposed(lying(env, (40_000, 1200))), lying(env, (40_000, 600))))
    received: Counter[int] = Counter()
    for transfer in instance_once(plan, graph, env).lowered.transfers:
        received[transfer.destination] += transfer.nbytes
    result = 1200 * 600 * 4
    assert sum(received.values()) == (n_members - 1) * result
    assert set(received.values()) == {(n_members - 1) * result // n_members}
    assert before(graph) == sum(received.values())


@pytest.mark.parametrize("waves", [1, 2, 3, 4, 6, 8, 12])
def test_waves_of_a_result_lie_at_members_that_have_parts_of_it(waves: int) -> None:
    """As many members as their number allows, and no tile is another one."""
    mesh = Mesh(("r", "c"), (2, 3)).with_waves(waves)
    loops = Sharding(mesh, (("c", "r"), ("%1",)), (), (None, tuple(range(waves + 1))))
    for result in (
        shardings.result_sharding(loops, [1]),
        shardings.combined_sharding(loops, [0], keepdims=False),
        shardings.combined_sharding(loops, [0], keepdims=True),
    ):
        assert result.parts[-1] == waves
        assert result.boundaries((1, waves)[2 - result.ndim :])[-1] == tuple(range(waves + 1))
        members = Counter(result.member(index) for index in result.tiles())
        assert len(members) == {1: 1, 2: 2, 3: 3, 4: 2, 6: 6, 8: 2, 12: 6}[waves]
        assert set(members.values()) == {waves // len(members)}


@pytest.mark.parametrize(("n_members", "at_most"), [(4, 28), (8, 52)])
def test_a_chain_of_stored_matrices_moves_less_than_whole_operands(n_members: int, at_most: int) -> None:
    n = 1000
    env = env_of(n_members)
    a, b, c, d, e = (lying(env, (n, n)) for _ in range(5))
    graph, plan = planned(elementwise.add(matmul(a, b), matmul(c, matmul(d, e))))
    assert transfers(graph, plan) <= at_most * n * n
    assert before(graph) == 3 * (n_members - 1) * n * n * 4


def test_a_chain_of_free_matrices_is_near_the_sum_of_the_bounds() -> None:
    n = 2000
    env = env_of(8)
    a, b, c, d, e = (computed(env, (n, n)) for _ in range(5))
    graph, plan = planned(elementwise.add(matmul(a, b), matmul(c, matmul(d, e))))
    assert transfers(graph, plan) <= 1.5 * 3 * matmul_bound(n, n, n, 8) * 4


def sum_of_products(env: Environment, n: int, n_products: int) -> Expr:
    products = [matmul(computed(env, (n, n)), computed(env, (n, n))) for _ in range(n_products)]
    return functools.reduce(elementwise.add, products)


@pytest.mark.parametrize(
    ("n_members", "n_products", "at_most", "together"),
    [(2, 2, 1, 2), (3, 3, 2, 6), (4, 2, 3, 4), (4, 4, 3, 8), (4, 8, 6, 16), (8, 2, 5, 6), (8, 4, 7.5, 12)],
)
def test_products_that_do_not_need_each_other_are_made_by_some_members_each(
    n_members: int, n_products: int, at_most: float, together: float
) -> None:
    """In multiples of one matrix; `together` is the best that all members can do with one product after the other."""
    n = 2000
    env = env_of(n_members)
    assert env.team is not None
    graph, plan = planned(sum_of_products(env, n, n_products), rates=SLOW)
    assert transfers(graph, plan) == predicted(graph, plan) <= at_most * n * n * 4
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiers, "branchings", lambda *_: [])
        _, whole = planned(sum_of_products(env, n, n_products), rates=SLOW)
    assert transfers(graph, whole) == together * n * n * 4
    planning = PartitionProblem(graph, env.team.mesh, LIMITS, SLOW, plan.stages)
    assert planning.place(plan.stages).seconds < planning.place(whole.stages).seconds
    work: Counter[int] = Counter()
    for draft in instance_once(plan, graph, env).lowered.drafts:
        if draft.stage.kind == "contract":
            for tile in draft.tiles:
                work[tile.member] += prod(map(len, tile.box))
    assert [work[m] for m in range(n_members)] == [n_products * n**3 // n_members] * n_members


def test_a_graph_that_is_too_wide_for_elimination_is_planned_nearly_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """All products of pairs of five matrices: each is a neighbour of each."""
    env = env_of(8)
    matrices = [computed(env, (1000, 1000)) for _ in range(5)]
    products = [matmul(a, b) for a, b in itertools.combinations(matrices, 2)]
    graph, exact = planned(functools.reduce(elementwise.add, products))
    monkeypatch.setattr(search, "MAX_ENTRIES", 1000)
    found = []
    solved = search.solved
    monkeypatch.setattr(search, "solved", lambda *tables: found.append(solved(*tables)) or found[-1])
    plan = partition(graph, env, LIMITS, BYTES, {}, "always")[0]
    assert "fallback" in {how for _, _, how in found}
    assert transfers(graph, plan) <= 1.05 * transfers(graph, exact) < before(graph)


def test_members_are_not_kept_apart_for_what_is_kept() -> None:
    """Two products that somebody holds lie on all members, as any other array."""
    env = env_of(4)
    a, b = (matmul(computed(env, (2000, 2000)), computed(env, (2000, 2000))) for _ in range(2))
    graph, plan = planned(a, b, rates=SLOW)
    drafts = instance_once(plan, graph, env).lowered.drafts
    assert all(len({t.member for t in d.tiles if all(t.box)}) == 4 for d in drafts if d.stage.kind == "contract")


def test_a_tall_product_keeps_the_tall_matrix_where_it_lies() -> None:
    env = env_of(4)
    graph, plan = planned(matmul(lying(env, (100_000, 64)), lying(env, (64, 64))))
    assert parts_of(graph, plan) == [(4, 1, 1)]
    assert transfers(graph, plan) == 3 * 64 * 64 * 4


def test_a_gram_matrix_moves_partial_sums_alone() -> None:
    env = env_of(4)
    x = lying(env, (100_000, 64))
    graph, plan = planned(matmul(transposed(x), x))
    assert parts_of(graph, plan) == [(1, 1, 4)]
    assert transfers(graph, plan) == 3 * 64 * 64 * 4


def test_a_matrix_times_its_transpose_is_cut_where_blas_computes_half_of_it() -> None:
    env = env_of(4)
    x, y = lying(env, (8000, 8000)), lying(env, (8000, 8000))
    turned, fewer = transposed(x), parse_index((slice(1, None),), x.shape).affine
    for a, b, is_mirrored in (
        (turned, x, True),
        (x, turned, True),
        (turned, y, False),
        (x, x, False),
        (bind_get(x, fewer), turned, False),
    ):
        graph, plan = planned(matmul(a, b))
        assert env.team is not None
        (facts,) = PartitionProblem(graph, env.team.mesh, LIMITS, BYTES, plan.stages).facts
        assert facts.mirrored == ((0, 1) if is_mirrored else ())
        assert (parts_of(graph, plan) == [(1, 1, 4)]) == is_mirrored


def test_an_inner_product_of_matrices_cuts_the_long_loop() -> None:
    env = env_of(4)
    graph, plan = planned(matmul(computed(env, (200, 50_000)), computed(env, (50_000, 200))))
    assert parts_of(graph, plan) == [(1, 1, 4)]
    assert transfers(graph, plan) == 3 * 200 * 200 * 4 < before(graph) / 50


@pytest.mark.parametrize("effort", ["once", "always"])
def test_each_of_many_members_has_few_messages(effort: tiers.Effort) -> None:
    """Columns of what lies in rows are a message for each pair of members; partial results go through a tree."""
    n = 200
    env = env_of(n)
    x = lying(env, (80 * n, 5 * n))
    centred = elementwise.subtract(x, bind_reshape(reductions.mean(x, 0), (1, 5 * n)))
    graph = graph_of(reductions.sum(matmul(transposed(centred), x), 0))
    plan, _ = partition(graph, env, LIMITS, Rates(), {}, effort)
    assert len(instance_once(plan, graph, env).lowered.transfers) <= 32 * n


@pytest.mark.parametrize(("n_members", "computing", "busy"), [(5, 1e15, 5), (7, 1e15, 6), (7, 2e10, 7)])
def test_a_prime_number_of_members_may_leave_one_idle(n_members: int, computing: float, busy: int) -> None:
    """Six of seven cut two by three, which moves far less, if computing costs little. Five have no such grid."""
    n = 3000
    env = env_of(n_members)
    rates = Rates(latency=0.0, task=0.0, gemm=computing)
    graph, plan = planned(matmul(computed(env, (n, n)), computed(env, (n, n))), rates=rates)
    (parts,) = parts_of(graph, plan)
    assert prod(parts) == busy
    assert transfers(graph, plan) <= before(graph)


def training_step(env: Environment, b: int, f: int, h: int, o: int) -> tuple[Expr, Expr]:
    x, t = lying(env, (b, f)), lying(env, (b, o))
    w1, w2 = lying(env, (f, h)), lying(env, (h, o))
    z1 = matmul(x, w1)
    hidden = elementwise.maximum(z1, 0.0)
    dz2 = elementwise.divide(elementwise.subtract(elementwise.tanh(matmul(hidden, w2)), t), float(b))
    dw2 = matmul(transposed(hidden), dz2)
    dz1 = elementwise.multiply(matmul(dz2, transposed(w2)), elementwise.greater(z1, 0.0))
    dw1 = matmul(transposed(x), dz1)

    def updated(w: Expr, dw: Expr) -> Expr:
        new = elementwise.subtract(w, elementwise.multiply(dw, 0.01))
        return bind_put(w, Affine.identity(w.shape), new)

    return updated(w1, dw1), updated(w2, dw2)


@pytest.mark.parametrize("n_members", [2, 4, 8])
def test_weights_that_are_updated_in_place_keep_their_cut(n_members: int) -> None:
    env = env_of(n_members)
    targets = training_step(env, 128, 4096, 2048, 3000)
    graph, plan = planned(*targets)
    lowered = instance_once(plan, graph, env).lowered
    assert env.team is not None
    for i in plan.outputs:
        assert lowered.outputs[i].sharding == parse_sharding(("T", None), graph.nodes[i].shape, env.team.mesh)
    assert transfers(graph, plan) <= before(graph)


def transformer_block(env: Environment, b: int, s: int, n_heads: int, d: int, m: int) -> Expr:
    width = n_heads * d
    wq, wk, wv, wo = (lying(env, (width, width)) for _ in range(4))
    w1, w3, w2 = lying(env, (width, m)), lying(env, (width, m)), lying(env, (m, width))
    gains = [computed(env, (width,)) for _ in range(2)]

    def norm(x: Expr, gain: Expr) -> Expr:
        square = reductions.mean(elementwise.multiply(x, x), axis=-1, keepdims=True)
        return elementwise.multiply(elementwise.divide(x, elementwise.sqrt(square)), gain)

    def heads(x: Expr, w: Expr) -> Expr:
        return manipulation.permute_dims(bind_reshape(matmul(x, w), (b, s, n_heads, d)), (0, 2, 1, 3))

    x = lying(env, (b, s, width))
    y = norm(x, gains[0])
    q, k, v = (heads(y, w) for w in (wq, wk, wv))
    scores = matmul(q, transposed(k))
    e = elementwise.exp(elementwise.subtract(scores, reductions.max(scores, axis=-1, keepdims=True)))
    p = elementwise.divide(e, reductions.sum(e, axis=-1, keepdims=True))
    o = bind_reshape(manipulation.permute_dims(matmul(p, v), (0, 2, 1, 3)), (b, s, width))
    r = elementwise.add(x, matmul(o, wo))
    z = norm(r, gains[1])
    gated = elementwise.multiply(elementwise.tanh(matmul(z, w1)), matmul(z, w3))
    return elementwise.add(r, matmul(gated, w2))


@pytest.mark.parametrize(("n_members", "share"), [(4, 0.4), (8, 0.35)])
def test_a_transformer_block_moves_a_fraction(n_members: int, share: float) -> None:
    graph, plan = planned(transformer_block(env_of(n_members), 4, 512, 16, 64, 4096))
    assert transfers(graph, plan) <= share * before(graph)
    assert abs(predicted(graph, plan) - transfers(graph, plan)) <= 0.1 * transfers(graph, plan)


# ------------------------------------------------------------------------------------------- what is not searched


def stencil(env: Environment) -> Expr:
    x = lying(env, (4000, 500))
    inner = parse_index((slice(1, -1), slice(None)), x.shape).affine
    neighbours = [parse_index((s, slice(None)), x.shape).affine for s in (slice(2, None), slice(None, -2))]
    return bind_put(x, inner, elementwise.add(*(bind_get(x, n) for n in neighbours)))


def standardised(env: Environment) -> Expr:
    x = lying(env, (4000, 500))
    return elementwise.divide(elementwise.subtract(x, reductions.mean(x, axis=0)), reductions.std(x, axis=0))


def of_equal_cuts(env: Environment) -> Expr:
    return elementwise.add(lying(env, (4000, 500), (None, "T")), lying(env, (4000, 500), (None, "T")))


def created(env: Environment) -> Expr:
    return reductions.sum(elementwise.exp(computed(env, (4000, 500))), axis=1)


@pytest.mark.parametrize("program", [stencil, standardised, of_equal_cuts, created], ids=lambda p: p.__name__)
def test_elementwise_graphs_whose_operands_lie_alike_follow_them(program: Callable[[Environment], Expr]) -> None:
    graph, plan = planned(program(env_of(4)), rates=Rates())
    assert plan == propagate(graph, env_of(4), LIMITS)


@pytest.mark.parametrize("effort", ["once", "again", "always"])
def test_one_member_is_not_searched_for(effort: tiers.Effort) -> None:
    env = env_of(1)
    graph = graph_of(matmul(lying(env, (3000, 3000)), lying(env, (3000, 3000))))
    assert partition(graph, env, LIMITS, Rates(), {}, effort)[0].planner == "propagation"


def test_the_search_waits_where_it_takes_longer_than_it_can_save() -> None:
    env = env_of(4)
    quick, slow = (graph_of(matmul(lying(env, (n, n)), lying(env, (n, n)))) for n in (600, 8000))
    assert partition(quick, env, LIMITS, Rates(), {})[0].is_provisional
    found, _ = partition(slow, env, LIMITS, Rates(), {})
    assert (found.planner, found.is_provisional) == ("eindecomp", False)


def test_a_search_that_no_number_of_runs_repays_is_never_made() -> None:
    env = env_of(4)
    graph = graph_of(matmul(lying(env, (300_000, 50)), lying(env, (50, 50))))
    for effort in ("once", "again"):
        found, _ = partition(graph, env, Limits(block=0, tile=1 << 40), Rates(latency=0.0), {}, effort)
        assert (found.planner, found.is_provisional, found.alternatives) == ("propagation", False, ())


def test_a_provisional_plan_is_replaced_at_the_third_run() -> None:
    dx.plan_cache_clear()
    rng = np.random.default_rng(0)
    values = [rng.random((300, 300)) for _ in range(2)]
    team = Team((4,), ("T",), members=range(4))
    with dx.use(team=team), dx.config.set(planner="auto", block_bytes=1 << 14, calibration=SLOW_LINKS):
        a, b = ((dx.asarray(v) + 0).persist() for v in values)
        calls, moved = [], []
        for _ in range(5):
            with counting() as c:
                found = np.asarray(a @ b)
            calls.append(c.planner_calls)
            moved.append(c.bytes_moved)
            np.testing.assert_allclose(found, values[0] @ values[1])
    assert calls == [1, 0, 1, 0, 0]
    assert moved[0] == moved[1] > moved[2] == moved[3] == moved[4]


# ------------------------------------------------------------------------------------------------- constraints


def test_what_the_user_pinned_holds() -> None:
    env = env_of(4)
    assert env.team is not None
    product = matmul(lying(env, (1000, 1000)), lying(env, (1000, 1000)))
    product.pin = parse_sharding((None, "T"), product.shape, env.team.mesh)
    again = matmul(product, lying(env, (1000, 1000)))
    graph, plan = planned(again)
    drafts = instance_once(plan, graph, env).lowered.drafts
    assert drafts[0].sharding.parts == (1, 4, 1)
    assert transfers(graph, plan) <= before(graph)


def test_written_parts_stay_in_their_base() -> None:
    env = env_of(4)
    base = lying(env, (1000, 1000), (None, "T"))
    rows = Affine((500, 1000), ((0, 100, 1), (1, 0, 1)))
    graph, plan = planned(bind_put(base, rows, matmul(lying(env, (500, 800)), lying(env, (800, 1000)))))
    lowered = instance_once(plan, graph, env).lowered
    assert [lowered.outputs[i].sharding.parts for i in plan.outputs] == [(1, 4)]
    assert transfers(graph, plan) <= before(graph)


def test_a_kernel_on_whole_blocks_has_tiles_that_fit_a_member() -> None:
    """Where tasks are dear, two members would do; but what one of them would need at once is more than it has."""
    env = env_of(4)
    mesh = prime_mesh(env.team.mesh)  # type: ignore[union-attr]
    halves = Expr(SOURCE, (), (64, 128), F4, env)
    halves.memo = Stored(Sharding(mesh, ((mesh.names[0],), ())), [None] * 2)
    transform = fft.fft(elementwise.add(halves, lying(env, (64, 128), (None, "T"))), axis=-1)
    needed = 64 * 128 * (4 + 8) // 2  # by each of two
    for limit, n_tiles in ((needed, 2), (needed - 1, 4)):
        limits = Limits(block=64, tile=1 << 40, member=limit)
        graph, plan = planned(transform, rates=Rates(latency=0.0, task=1.0), limits=limits)
        drafts = instance_once(plan, graph, env).lowered.drafts
        assert [d.sharding.n_tiles for d in drafts if d.stage.kind == "block"] == [n_tiles]


def test_tiles_of_a_product_respect_the_largest_tile() -> None:
    env = env_of(4)
    limits = Limits(block=1 << 20, tile=1 << 22, member=1 << 30)
    graph, plan = planned(matmul(lying(env, (4000, 1000)), lying(env, (1000, 4000))), limits=limits)
    (parts,) = parts_of(graph, plan)
    assert 4 * prod(-(-n // k) for n, k in zip((4000, 4000), parts[:2], strict=True)) <= 1 << 22


# ------------------------------------------------------------------------------------- host arrays and the paper


def test_host_arrays_are_cut_as_their_first_use_needs() -> None:
    dx.plan_cache_clear()
    n = 400
    rng = np.random.default_rng(0)
    values = [rng.random((n, n)) for _ in range(2)]
    team = Team((4,), ("T",), members=range(4))
    moved = {}
    for planner in ("propagation", "eindecomp"):
        with dx.use(team=team), dx.config.set(planner=planner, block_bytes=1 << 16, calibration=SLOW_LINKS):
            a, b = map(dx.asarray, values)
            y = a @ b
            before = y.explain()
            with counting() as c:
                np.testing.assert_allclose(np.asarray(y), values[0] @ values[1])
            assert c.bytes_moved == before.moved_bytes
            assert c.planner_calls == 0
            moved[planner] = c.bytes_moved
    assert moved == {"propagation": 3 * n * n * 8, "eindecomp": 2 * n * n * 8}
    assert b.sharding.parts == (2, 2)
    dx.plan_cache_clear()


def test_new_host_arrays_of_the_same_kind_ask_nobody() -> None:
    dx.plan_cache_clear()
    rng = np.random.default_rng(0)
    team = Team((4,), ("T",), members=range(4))
    calls = []
    with dx.use(team=team), dx.config.set(planner="eindecomp", block_bytes=1 << 16):
        w = (dx.asarray(rng.random((200, 200))) + 0).persist()
        for _ in range(3):
            batch = rng.random((300, 200))
            with counting() as c:
                np.testing.assert_allclose(np.asarray(dx.asarray(batch) @ w), batch @ np.asarray(w))
            calls.append(c.planner_calls)
    assert calls == [1, 0, 0]
    dx.plan_cache_clear()


def test_the_objective_of_the_paper_has_the_part_counts_of_the_paper() -> None:
    env = env_of(8)
    n = 800
    a, b, c, d, e = (lying(env, (n, n)) for _ in range(5))
    graph = graph_of(elementwise.add(matmul(a, b), matmul(c, matmul(d, e))))
    found, _ = tiers.partition(graph, env, LIMITS, BYTES, {}, objective="paper")
    nodes = [{"id": x, "shape": [n, n], "layout": [8, 1]} for x in "ABCDE"]
    for name, inputs in (("DE", "DE"), ("CDE", ["C", "DE"]), ("AB", "AB")):
        nodes.append({"id": name, "expr": "ij,jk->ik", "inputs": list(inputs)})
    nodes.append({"id": "Y", "expr": "ij,ij->ij", "inputs": ["AB", "CDE"]})
    known = dx.plan({"name": "chain", "p": 8, "nodes": nodes}, objective="paper", splits="any")
    assert f"{known.cost} elements" in found.alternatives[1]
    splits = sorted(sorted(d.values()) for d in known.splits.values() if len(d) == 3)
    assert sorted(map(sorted, parts_of(graph, found))) == splits
    assert transfers(graph, found) > 0


def test_stages_as_an_eingraph() -> None:
    """Sums beside what is stored are operations of their own; written parts lie as their base; views are inputs."""
    env = env_of(4)
    y = matmul(lying(env, (400, 600)), lying(env, (600, 300)))
    rows = Affine((200, 300), ((0, 100, 1), (1, 0, 1)))
    y = bind_put(y, rows, bind_get(y, rows.flipped((0,))))
    z = elementwise.multiply(y, 2.0)
    graph = graph_of(z, reductions.sum(z, axis=0))
    planning = PartitionProblem(graph, env.team.mesh, LIMITS, BYTES, propagate(graph, env, LIMITS).stages)
    placed = planning.place(propagate(graph, env, LIMITS).stages)
    found = ein_graph(graph, planning.facts, placed.shardings, planning.outside)
    assert found is not None
    product, write, last, total = found.ops.values()
    assert [product.shape, write.shape, last.shape, total.shape] == [(400, 300), (200, 300), (400, 300), (300,)]
    assert [found.inputs[u].layout for u in product.inputs] == [(4, 1), (4, 1)]
    assert write.inputs[0] not in found.ops and write.fixed == {"l0": 4}
    assert (last.inputs, total.inputs) == (("s0",), ("s2",))
    assert dx.plan_cost(found, {v: {} for v in found.ops}) > 0
    assert stage_bound(planning.facts[0], 4) == 4 * matmul_bound(400, 600, 300, 4)
    assert stage_bound(planning.facts[2], 4) == 0


# ------------------------------------------------------------------------------------------------- random graphs


def random_program(rng: random.Random, env: Environment) -> list[Expr]:
    """Products, elementwise work, reductions, slices, writes, reshapes and joins of a few matrices."""
    dims = [rng.choice([40, 60, 100, 160, 200]) for _ in range(3)]
    cuts = [("T", None), (None, "T")]
    known = [lying(env, (rng.choice(dims), rng.choice(dims)), rng.choice(cuts)) for _ in range(3)]
    n_inputs = len(known)
    for _ in range(rng.choice([2, 4, 8])):
        x = rng.choice(known[-4:])
        kind = rng.choice(["product", "product", "transpose", "mean", "add", "slice", "write", "reshape", "concat"])
        same = [y for y in known if y.shape == x.shape]
        fitting = [y for y in known if y.shape[0] == x.shape[1]]
        if kind == "product" and fitting:
            known.append(matmul(x, rng.choice(fitting)))
        elif kind == "transpose":
            known.append(elementwise.add(transposed(x), 1.0))
        elif kind == "mean":
            known.append(elementwise.subtract(x, reductions.mean(x, axis=1, keepdims=True)))
        elif kind == "slice":
            known.append(bind_get(x, parse_index((slice(x.shape[0] // 4, None),), x.shape).affine))
        elif kind == "write":
            y = elementwise.add(x, 0.0)
            rows = parse_index((slice(1, 5),), x.shape).affine
            known.append(bind_put(y, rows, bind_get(x, parse_index((slice(3, 7),), x.shape).affine)))
        elif kind == "reshape" and x.shape[0] % 2 == 0:
            known.append(bind_reshape(x, (x.shape[0] // 2, x.shape[1] * 2)))
        elif kind == "concat":
            known.append(joining.concat([x, x]))
        else:
            known.append(elementwise.add(x, rng.choice(same)))
    return known[max(n_inputs, len(known) - 2) :]


SMALL_BLOCKS = Limits(block=4096, tile=1 << 40)


@given(st.integers(0, 10_000), st.sampled_from([2, 3, 4, 6, 7]))
@settings(max_examples=60)
def test_random_graphs_move_no_more_than_before_and_what_is_predicted(seed: int, n_members: int) -> None:
    """With rates by which moving is most of it. The slack is for bytes that are worth their price in balance."""
    env = env_of(n_members)
    targets = random_program(random.Random(seed), env)
    if not targets:
        return
    graph, plan = planned(*targets, rates=SLOW, limits=SMALL_BLOCKS)
    first = propagate(graph, env, SMALL_BLOCKS)
    counted = transfers(graph, plan)
    assert counted <= 1.25 * transfers(graph, first) + 20_000
    for p in (plan, first):
        n = transfers(graph, p)
        assert abs(predicted(graph, p, SMALL_BLOCKS) - n) <= 0.1 * n + 2000


def any_states(rng: random.Random) -> Callable[..., list[tuple[list[int], str]]]:
    def choose(variables: list, *_: object) -> list[tuple[list[int], str]]:
        return [([rng.randrange(len(v.states)) for v in variables], "random")]

    return choose


def any_corners(rng: random.Random) -> Callable[..., list[dict[int, tuple[int, ...]]]]:
    def deal(planning: PartitionProblem, *_: object) -> list[dict[int, tuple[int, ...]]]:
        corners = rng.choice(list(corners_of(planning.mesh)) or [[()]])
        movable = [facts.number for facts in planning.facts if is_movable(facts, planning)]
        return [{n: rng.choice(corners)} for n in movable if rng.random() < 0.7]

    return deal


@given(st.integers(0, 10_000), st.sampled_from([2, 3, 4, 6, 7]))
@settings(max_examples=30)
def test_values_do_not_depend_on_the_cuts_that_are_chosen(seed: int, n_members: int) -> None:
    """The search may choose anything, and any members: here it does, at random."""
    rng = random.Random(seed)
    team = Team((n_members,), ("T",), members=range(n_members))
    n, m, k = (rng.randint(2, 12) for _ in range(3))
    values = [np.random.default_rng(seed + i).integers(-9, 9, s).astype(float) for i, s in enumerate([(n, k), (k, m)])]
    with pytest.MonkeyPatch.context() as patch, dx.config.set(planner="eindecomp", block_bytes=0), dx.use(team=team):
        patch.setattr(tiers, "choose", any_states(rng))
        patch.setattr(tiers, "_is_better", lambda *_: True)
        patch.setattr(tiers, "branchings", any_corners(rng))
        dx.plan_cache_clear()
        a, b = (dx.asarray(v, sharding=rng.choice([("T", None), (None, "T")])) + 0 for v in values)
        c = a @ b
        d = c - dx.sum(c, axis=0)
        d[1:] += c[:-1] * 2
        found = [dx.sort(d.T, axis=0), dx.cumulative_sum(c, axis=1), c.reshape(-1)[::-1], dx.max(d, axis=1)]
        results = [np.asarray(x) for x in dx.compute(*found)]
        dx.plan_cache_clear()
    c = values[0] @ values[1]
    d = c - c.sum(axis=0)
    d[1:] += c[:-1] * 2
    for x, y in zip(
        results, [np.sort(d.T, axis=0), np.cumsum(c, axis=1), c.reshape(-1)[::-1], d.max(axis=1)], strict=True
    ):
        np.testing.assert_array_equal(x, y)


# ------------------------------------------------------------------------------------------------- on a cluster


@pytest.mark.cluster
def test_what_is_predicted_is_sent(cluster4: object) -> None:
    dx.plan_cache_clear()
    rng = np.random.default_rng(0)
    values = [rng.random((256, 256)) for _ in range(5)]
    with dx.config.set(planner="eindecomp"), dx.config.set(block_bytes=1 << 14, calibration=SLOW_LINKS):
        a, b, c, d, e = ((dx.asarray(v) + 0).persist() for v in values)
        y = (a @ b) + (c @ (d @ e))
        before = y.explain()
        with counting() as counted:
            found = np.asarray(y)
    np.testing.assert_allclose(found, values[0] @ values[1] + values[2] @ (values[3] @ values[4]))
    assert before.planner == "eindecomp"
    assert counted.bytes_moved == before.moved_bytes < 3 * 3 * 256 * 256 * 8
    assert isinstance(y.sharding, Sharding)
    dx.plan_cache_clear()


@pytest.mark.cluster
def test_branches_are_computed_side_by_side_on_a_cluster(cluster4: object) -> None:
    def program(xp: Any) -> Any:
        rows, columns = xp.arange(256.0)[:, None], xp.arange(256.0)
        operands = [xp.cos(rows * i - columns) for i in range(8)]
        return functools.reduce(operator.add, map(operator.matmul, operands[::2], operands[1::2]))

    dx.plan_cache_clear()
    with (
        dx.config.set(planner="eindecomp"),
        dx.config.set(block_bytes=1 << 14, calibration=SLOW_LINKS | {"bandwidth": 1e7}),
    ):
        y = program(dx)
        before = y.explain()
        with counting() as counted:
            found = np.asarray(y)
    np.testing.assert_allclose(found, program(np), atol=1e-9)
    assert counted.bytes_moved == before.moved_bytes < 3 * 256 * 256 * 8 + 20_000  # .. for the two ranges
    assert any("by all members" in text for text in before.alternatives)
    assert before.seconds == pytest.approx(sum(s.seconds for s in before.stages) - before.saved_seconds)
    assert before.saved_seconds > 0 and "different members compute different stages" in str(before)
    dx.plan_cache_clear()
