"""The paper's objective: cost formulas against counting, searches against enumeration, published values."""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distarray.errors import ShardingError
from distarray.planner import eindecomp
from distarray.planner.eindecomp import EinGraph, EinPlan, parse_graph, plan_cost
from distarray.planner.eindecomp.bounds import matmul_bound, op_bound
from distarray.planner.eindecomp.candidates import Options, vectors
from distarray.planner.eindecomp.elimination import eliminate
from distarray.planner.eindecomp.paper_costs import (
    agg_cost,
    graph_cost,
    join_cost,
    n_kernels,
    op_cost,
    repart_cost,
    repart_table,
)
from distarray.planner.eindecomp.problems import PaperProblem, exact
from distarray.sharding.prime import divisors
from distarray.testing import eingraphs, labellings


def plan(graph: Any, **options: Any) -> EinPlan:
    """In the paper's objective."""
    return eindecomp.plan(graph, objective="paper", **options)


READINGS: tuple[Any, ...] = ("paper", "worst", "jax", "cpp")


# ------------------------------------------------------------------------------------------------------- formulas


def matmul_op(n: int = 8) -> Any:
    return parse_graph(eingraphs.matmul(n, n, n)).ops["C"]


def test_worked_costs_of_one_product() -> None:
    op = matmul_op()
    d = {"i": 4, "j": 1, "k": 4}
    assert (n_kernels(d), join_cost(op, d), agg_cost(op, d)) == (16, 512, 0)
    assert agg_cost(op, {"i": 2, "j": 4, "k": 2}) == 192
    found = plan(eingraphs.matmul(8, 8, 8), p=8)
    assert found.cost == 320
    assert found.splits["C"] == {"i": 2, "j": 2, "k": 2}


@pytest.mark.parametrize(
    ("shape", "dp", "dc", "costs"),
    [
        ((8, 8), (2, 4), (4, 1), (320, 320, 320, 384)),
        ((8, 8), (4, 4), (2, 2), (192, 240, 256, 320)),
        ((12,), (2,), (3,), (28, 28, 28, 40)),
        ((12,), (3,), (2,), (20, 20, 28, 40)),
    ],
)
def test_worked_repartition_costs(shape: Any, dp: Any, dc: Any, costs: Any) -> None:
    assert tuple(repart_cost(shape, dp, dc, r) for r in READINGS) == costs
    assert all(repart_cost(shape, dp, dp, r) == 0 for r in READINGS)


def test_uneven_blocks_are_counted() -> None:
    assert repart_cost((10,), (3,), (4,)) == 25


def blocks(n: int, k: int) -> list[range]:
    return [range(j * n // k, (j + 1) * n // k) for j in range(k)]


def counted_repartition(shape: Any, dp: Any, dc: Any, repart: str) -> int:
    """Block by block, as the words of each reading say."""
    if tuple(dp) == tuple(dc):
        return 0
    total = 0
    producers = list(itertools.product(*[blocks(n, k) for n, k in zip(shape, dp)]))
    anywhere_inside = any(
        all(set(a) <= set(b) for a, b in zip(p, c))
        for c in itertools.product(*[blocks(n, k) for n, k in zip(shape, dc)])
        for p in producers
    )
    for consumer in itertools.product(*[blocks(n, k) for n, k in zip(shape, dc)]):
        pieces = [p for p in producers if all(set(a) & set(b) for a, b in zip(p, consumer))]
        size = math.prod(map(len, consumer))
        whole = math.prod(map(len, producers[0]))
        inside = [p for p in pieces if all(set(a) <= set(b) for a, b in zip(p, consumer))]
        if repart == "paper":
            total += (len(pieces) - 1) * size + (len(pieces) - len(inside)) * whole
        elif repart == "worst":
            total += (len(pieces) - 1) * size + (len(pieces) - (1 if anywhere_inside else 0)) * whole
        elif repart == "jax":
            total += (len(pieces) - 1) * size + len(pieces) * whole
        else:
            total += len(pieces) * (size + whole)
    return total


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 4)), min_size=1, max_size=3))
def test_repartition_costs_are_what_counting_gives(axes: list[tuple[int, int, int]]) -> None:
    dp, dc = [p for _, p, _ in axes], [c for _, _, c in axes]
    shape = [m * math.lcm(p, c) for m, p, c in axes]
    for reading in READINGS:
        assert repart_cost(shape, dp, dc, reading) == counted_repartition(shape, dp, dc, reading)
        assert repart_table(shape, [dp, dc], [dc, dp], reading).tolist() == [
            [repart_cost(shape, a, b, reading) for b in (dc, dp)] for a in (dp, dc)
        ]


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4), st.booleans())
def test_costs_of_an_operation_are_what_counting_gives(i: int, j: int, k: int, is_sum: bool) -> None:
    expr = "ij,jk->ik" if is_sum else "ij,jk->ijk"
    data = {"nodes": [{"id": "A", "shape": [12, 24]}, {"id": "B", "shape": [24, 12]}]}
    data["nodes"].append({"id": "C", "expr": expr, "inputs": ["A", "B"]})
    op = parse_graph(data).ops["C"]
    d = {"i": i, "j": j, "k": k}
    if any(op.extents[x] % n for x, n in d.items()):
        return
    read = made = 0
    groups: dict[Any, int] = {}
    for key in itertools.product(range(i), range(j), range(k)):
        at = dict(zip("ijk", key))
        read += (12 // i) * (24 // j) + (24 // j) * (12 // k)
        out = tuple(at[x] for x in op.result)
        size = math.prod(op.extents[x] // d[x] for x in op.result)
        if out in groups:
            made += size  # one partial result more than the first
        groups[out] = size
    assert (join_cost(op, d), agg_cost(op, d)) == (read, made)
    n_z = math.prod(op.extents[x] // d[x] for x in op.result)
    sizes = sum(math.prod(op.extents[x] // d[x] for x in t) for t in op.terms)
    assert op_cost(op, d) == n_kernels(d) * (sizes + n_z) - math.prod(op.shape)


# --------------------------------------------------------------------------------------------------- candidates


def test_numbers_of_vectors() -> None:
    assert len(list(vectors((1024,) * 6, 1024))) == 3003
    assert len(list(vectors((8,) * 3, 8))) == 10
    assert len(list(vectors((12,) * 3, 12))) == 18


@pytest.mark.parametrize(("p", "n"), [(8, 56), (16, 125), (32, 246)])
def test_of_states_that_look_alike_the_cheapest_is_kept(p: int, n: int) -> None:
    graph = parse_graph(eingraphs.llama())
    states = PaperProblem(graph, Options(p)).states
    assert max(map(len, states.values())) <= n


def test_an_operation_that_is_too_small_has_as_many_kernels_as_it_can() -> None:
    found = plan(eingraphs.matmul(3, 2, 1), p=8, splits="any")
    assert n_kernels(found.splits["C"]) == 2
    assert n_kernels(plan(eingraphs.matmul(5, 5, 5), p=8).splits["C"]) == 1


# ------------------------------------------------------------------------------------------------------ searches


def enumerated(graph: EinGraph, options: Options) -> int | None:
    choices = []
    for op in graph.ops.values():
        extents = [op.extents[x] for x in op.labels]
        for n in reversed(divisors(options.p)):
            found = list(vectors(extents, n))
            if found:
                choices.append([dict(zip(op.labels, row)) for row in found])
                break
    if math.prod(map(len, choices)) > 4000:
        return None
    return min(
        graph_cost(graph, dict(zip(graph.ops, labelling)), options.repart) for labelling in itertools.product(*choices)
    )


def check_searches(seed: int, n: int) -> int:
    rng = random.Random(seed)
    checked = 0
    for _ in range(n):
        p = rng.choice((2, 3, 4, 6, 8, 12))
        data = eingraphs.random_graph(rng, rng.randint(1, 4), p)
        reading = rng.choice(READINGS)
        graph = parse_graph(data)
        best = enumerated(graph, Options(p, "any", "equal", reading))
        if best is None:
            continue
        checked += 1
        found = plan(graph, repart=reading)
        assert found.search == "exact"
        assert found.cost == best == plan_cost(graph, found.splits, repart=reading)
        assert plan(graph, repart=reading, search="linearised").cost >= best
        if graph.is_tree:
            assert plan(graph, repart=reading, search="tree").cost == best
    return checked


def test_elimination_is_enumeration_and_tree_dp_on_random_graphs() -> None:
    assert check_searches(0, 150) > 60


@pytest.mark.slow
def test_elimination_is_enumeration_on_thousands_of_random_graphs() -> None:
    assert check_searches(1, 6000) > 2000


def test_graphs_that_are_too_wide_fall_back_and_are_never_worse_than_linearised() -> None:
    rng = random.Random(2)
    for _ in range(20):
        graph = parse_graph(eingraphs.random_graph(rng, 8, 8))
        problem = PaperProblem(graph, Options(8, "any"))
        found, search = exact(problem, max_entries=300)
        cost = graph_cost(graph, found)
        assert cost <= plan(graph, search="linearised").cost
        assert cost >= plan(graph).cost
        assert search in ("exact", "fallback")
    wide = parse_graph(eingraphs.llama(layers=2))
    assert exact(PaperProblem(wide, Options(8)), max_entries=2000)[1] == "fallback"


def test_elimination_finds_the_least_of_all_assignments() -> None:
    rng = np.random.default_rng(0)
    names = "abcde"
    for _ in range(20):
        unary = {v: rng.integers(0, 50, rng.integers(1, 4)) for v in names}
        pairs = [pair for pair in itertools.combinations(names, 2) if rng.random() < 0.6]
        tables = {(a, b): rng.integers(0, 50, (len(unary[a]), len(unary[b]))) for a, b in pairs}

        def total(state: dict[str, int], unary: Any = unary, tables: Any = tables) -> int:
            return int(
                sum(unary[v][state[v]] for v in names) + sum(t[state[a], state[b]] for (a, b), t in tables.items())
            )

        found, chosen = eliminate(unary, tables)
        every = (dict(zip(names, s)) for s in itertools.product(*[range(len(unary[v])) for v in names]))
        assert found == total(chosen) == min(map(total, every))


def test_any_number_of_variables_of_one_state_may_be_neighbours_of_one() -> None:
    """Each would be an axis of a table, and numpy's arrays have at most 64."""
    rng = np.random.default_rng(1)
    leaves = [*range(1, 100)]
    unary = {0: rng.integers(0, 50, 3), **{v: rng.integers(0, 50, 1 + (v == 50)) for v in leaves}}
    tables = {(0, v): rng.integers(0, 50, (3, len(unary[v]))) for v in leaves[:60]}
    tables |= {(v, 0): rng.integers(0, 50, (len(unary[v]), 3)) for v in leaves[60:]}
    tables |= {(v, v + 1): rng.integers(0, 50, (len(unary[v]), len(unary[v + 1]))) for v in leaves[:-1]}

    def total(state: dict[Any, int]) -> int:
        alone = sum([cost[state[v]] for v, cost in unary.items()])
        return int(alone + sum([table[state[a], state[b]] for (a, b), table in tables.items()]))

    found, chosen = eliminate(unary, tables)
    assert chosen.keys() == unary.keys()
    every = [{**dict.fromkeys(leaves, 0), 0: i, 50: k} for i in range(3) for k in range(2)]
    assert found == total(chosen) == min(map(total, every))


# ------------------------------------------------------------------------------------------------ published values


@pytest.mark.parametrize(
    ("s", "p", "splits", "kernels", "cost"),
    [
        (8000, 8, "pow2", "equal", 1_280_000_000),
        (8000, 8, "pow2", "upto", 1_088_000_000),
        (8000, 16, "pow2", "upto", 1_472_000_000),
        (8000, 64, "pow2", "upto", 2_240_000_000),
        (12000, 6, "any", "equal", 2_448_000_000),
    ],
)
def test_published_costs_of_the_matrix_chain(s: int, p: int, splits: Any, kernels: Any, cost: int) -> None:
    assert plan(eingraphs.matrix_chain(s), p=p, splits=splits, kernels=kernels).cost == cost


def test_plans_beat_the_usual_ones() -> None:
    graph = eingraphs.llama(b=8)
    best = plan(graph, p=8).cost
    assert best < plan_cost(graph, labellings.megatron(graph, 8))
    ops = parse_graph(graph).ops
    for label in "bs":  # data parallel, sequence
        usual = {v: {label: 8} if label in op.extents else {} for v, op in ops.items()}
        assert best <= plan_cost(graph, usual)


def test_planning_is_linear_in_depth() -> None:
    """The work, in entries of tables: 100 operations are four times 25."""
    one, four = (plan(eingraphs.llama(layers=n), p=8) for n in (1, 4))
    assert (len(one.splits), len(four.splits)) == (25, 100)
    assert four.cost < 4.1 * one.cost
    assert four.search == one.search == "exact"


def test_updated_weights_keep_their_layout() -> None:
    found = plan(eingraphs.ffnn(f=512, h=256, o=128), p=4)
    for weight, label_order in (("W1", "fh"), ("W2", "ho")):
        made = [found.splits[f"{weight}n"][x] for x in label_order]
        for v, op in found.graph.ops.items():
            for u, term in zip(op.inputs, op.terms):
                if u == weight:
                    assert [found.splits[v][x] for x in term] == made


def test_a_fixed_layout_is_charged() -> None:
    data = eingraphs.matmul(8, 8, 8)
    free = plan(data, p=8).cost
    data["nodes"][0]["layout"] = [8, 1]
    fixed = plan(data, p=8)
    assert fixed.cost > free
    assert fixed.cost == plan_cost(data, fixed.splits)


def test_broadcast_labels_and_many_operands() -> None:
    data = {
        "p": 4,
        "nodes": [
            {"id": "T", "shape": [8, 8, 8]},
            {"id": "J", "shape": [8, 4]},
            {"id": "K", "shape": [8, 4]},
            {"id": "M", "expr": "ijk,jr,kr->ir", "inputs": ["T", "J", "K"]},
            {"id": "B", "expr": "ir->irz", "inputs": ["M"], "sizes": {"z": 10}},
        ],
    }
    found = plan(data, splits="any")
    assert found.cost == enumerated(found.graph, found.options)
    assert set(found.splits["B"]) == set("irz")


# --------------------------------------------------------------------------------------------------- lower bounds


def test_lower_bound_of_a_product() -> None:
    assert matmul_bound(8000, 8000, 8000, 8) * 4 == pytest.approx(768e6)
    op = matmul_op(64)
    assert op_bound(op, 8) == pytest.approx(matmul_bound(64, 64, 64, 8))
    assert op_bound(op, 1) == 0


@pytest.mark.parametrize("p", [2, 4, 8, 16, 64])
def test_no_labelling_with_p_kernels_moves_less_than_the_bound(p: int) -> None:
    for shape in [(64, 64, 64), (1024, 8, 8), (256, 64, 4)]:
        graph = parse_graph(eingraphs.matmul(*shape))
        op = graph.ops["C"]
        held = sum(math.prod(graph.shape(n)) for n in "ABC")
        for row in vectors([op.extents[x] for x in op.labels], p):
            d = dict(zip(op.labels, row))
            n_z = math.prod(op.extents[x] // d[x] for x in op.result)
            moved = join_cost(op, d) + p * n_z - held
            assert moved >= op_bound(op, p) - 1e-6 * held


# --------------------------------------------------------------------------------------------------------- errors

NODES: list[Any] = [{"id": "A", "shape": [8, 8]}, {"id": "B", "shape": [8, 8]}]


@pytest.mark.parametrize(
    ("node", "says"),
    [
        ({"id": "C", "expr": "ij,jk", "inputs": ["A", "B"]}, "no '->'"),
        ({"id": "C", "expr": "ii->i", "inputs": ["A"]}, "twice"),
        ({"id": "C", "expr": "i1->i", "inputs": ["A"]}, "single letters"),
        ({"id": "C", "expr": "ij,jk->ik", "inputs": ["A"]}, "2 terms and 1 inputs"),
        ({"id": "C", "expr": "ij,jk->ik", "inputs": ["A", "D"]}, "no input 'D'"),
        ({"id": "C", "expr": "ijk->i", "inputs": ["A"]}, "has 2 dimensions"),
        ({"id": "C", "expr": "ij->ijz", "inputs": ["A"]}, "only in the result"),
        ({"id": "A", "shape": [1]}, "twice"),
        ({"id": "C", "shape": [0]}, "positive"),
        ({"id": "C", "shape": [8], "layout": [3]}, "do not divide"),
        ({"id": "C", "shape": [8], "layout": [2, 2]}, "does not fit"),
        ({"shape": [8]}, "no id"),
        ({"id": "C", "shape": [8], "layout": 5}, "layout: 5 is no list"),
        ({"id": "C", "expr": "ij->i", "inputs": "A"}, "inputs: 'A' is no list"),
        ({"id": "C", "expr": "ij->i", "inputs": None}, "inputs: None is no list"),
        ({"id": "C", "expr": "ij->ijz", "inputs": ["A"], "sizes": [1]}, r"sizes \[1\] are no object"),
    ],
)
def test_bad_graphs_are_refused(node: Any, says: str) -> None:
    with pytest.raises(ShardingError, match=says):
        parse_graph({"nodes": [*NODES, node]})


def test_bad_options_are_refused() -> None:
    data = eingraphs.matrix_chain(80)
    with pytest.raises(ShardingError, match="no power of two"):
        plan(data, p=6)
    with pytest.raises(ShardingError, match="search 'quick' is unknown"):
        plan(data, p=8, search="quick")  # type: ignore[arg-type]  # the error is what is tested
    with pytest.raises(ShardingError, match="is no tree"):
        plan(eingraphs.attention(), search="tree")
    with pytest.raises(ShardingError, match="p is not given"):
        plan({"nodes": data["nodes"]})
    with pytest.raises(ShardingError, match="do not divide"):
        plan_cost(data, {v: {"i": 7} for v in ("DE", "CDE", "AB", "Y")})
    with pytest.raises(ShardingError, match="has no splits"):
        plan_cost(data, {})
    for p in ("4", 4.0, True):
        with pytest.raises(ShardingError, match="must be an integer"):
            plan(data, p=p)  # type: ignore[arg-type]
    for nodes, equal, says in (([], [], "list of nodes"), (data["nodes"], "AB", "'AB' is no list")):
        with pytest.raises(ShardingError, match=says):
            parse_graph({"nodes": nodes, "equal": equal})
    whole: dict[str, Any] = {v: {} for v in ("DE", "CDE", "AB", "Y")}
    for p in (0, -1, 4.0, True):
        with pytest.raises(ShardingError, match="must be an integer"):
            plan_cost(data, whole, "time", p=p)  # type: ignore[arg-type]
    for more, says in (
        ({"Z": {}}, "'Z', which is no op"),
        ({"Y": {"q": 1}}, "op 'Y' has no label 'q'"),
        ({"Y": {"i": 2.0}}, "the parts 2.0 of label 'i' are no positive integer"),
        ({"Y": {"i": "2"}}, "the parts '2' of label 'i' are no positive integer"),
        ({"Y": [2, 2]}, "no mapping"),
    ):
        with pytest.raises(ShardingError, match=says):
            plan_cost(data, whole | more)


def test_the_plan_as_data_and_as_text() -> None:
    found = plan(eingraphs.matrix_chain(8000), p=8)
    made = found.to_json()
    assert made["cost"] == 1_280_000_000
    assert set(made["plan"]["Y"]) == {"i", "j"}
    assert made["search"] == "exact"
    assert made["lower_bound"] == pytest.approx(576e6)
    lines = found.explain().splitlines()
    assert lines[2].split()[:6] == ["DE", "ij,jk->ik", "k=4", "j=2", "8", "1280"]
    assert "1.28e+09 elements = 5120 MB | joins of the products only 4352 MB | lower bound 2304 MB" in lines[-2]
    assert "kernels upto 4352 MB (0.85x)" in lines[-1]
    assert "sqrt n/a (8 is not a square)" in lines[-1]
