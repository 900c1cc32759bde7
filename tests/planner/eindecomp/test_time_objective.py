"""The objective ``time``: its model against counting, its search against enumeration, and what its plans promise."""

from __future__ import annotations

import itertools
import math
import random
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from distarray.errors import ShardingError
from distarray.planner.eindecomp import EinGraph, EinOp, Input, parse_graph, plan, plan_cost
from distarray.planner.eindecomp.assignment import assign
from distarray.planner.eindecomp.bounds import held_bound
from distarray.planner.eindecomp.candidates import Options, kernel_counts, vectors
from distarray.planner.eindecomp.fastest import placed
from distarray.planner.eindecomp.machine import Machine
from distarray.planner.eindecomp.paper_costs import n_kernels
from distarray.planner.eindecomp.problems import PaperProblem, exact, linearised
from distarray.planner.eindecomp.seconds import TIE, TimeProblem, moved_elements
from distarray.planner.rates import Rates
from distarray.testing import eingraphs

RATES = Rates()


# ------------------------------------------------------------------------------------------------ model of phase 1


def boxes(shape: Any, parts: Any) -> list[tuple[range, ...]]:
    axes = [[range(j * n // k, (j + 1) * n // k) for j in range(k)] for n, k in zip(shape, parts)]
    return list(itertools.product(*axes))


def common(a: Any, b: Any) -> int:
    return math.prod(max(0, min(x.stop, y.stop) - max(x.start, y.start)) for x, y in zip(a, b))


def edge(shape: Any, made: Any, wanted: Any, n: int, p: int) -> tuple[int, int, int]:
    """Elements, messages and pieces of an edge, over all blocks and kernels."""
    copies = n // math.prod(wanted)
    blocks = boxes(shape, made)
    tiles = [tile for tile in boxes(shape, wanted) for _ in range(copies)]
    blocks_each, kernels_each = -(-len(blocks) // p), -(-n // p)
    by_block = kernels_each * sum(max(common(a, c) for c in tiles) for a in blocks)
    by_kernel = blocks_each * sum(max(common(a, c) for a in blocks) for c in tiles)
    needed = copies * math.prod(shape)
    moved = needed - min(by_block, by_kernel, needed)
    touched = [(a, c) for a in blocks for c in tiles if common(a, c)]
    parts = [(a, c) for a, c in touched if common(a, c) < math.prod(map(len, a))]
    met = min(kernels_each * len(blocks), blocks_each * n)
    if not moved:
        return 0, 0, 0
    return moved, max(len(touched) - met, 1), max(len(parts) - met, 0)


def seconds(nbytes: float, messages: float, pieces: int, n: int, p: int) -> float:
    active = min(n, p)
    each = nbytes / RATES.bandwidth / active + RATES.latency * math.ceil(messages / active)
    return each + RATES.task * pieces + (TIE if nbytes else 0)


def op_model(op: EinOp, d: Any, p: int) -> float:
    n = n_kernels(d)
    each = -(-n // p)
    points = math.prod(-(-op.extents[x] // k) for x, k in d.items())
    total = each * float(RATES.flop_seconds(op.kernel_kind, points * op.point_flops, op.itemsize))
    partials = math.prod(d[x] for x in op.aggregated)
    groups, sent = n // partials, -(-partials // each) - 1
    nbytes = op.itemsize * math.prod(op.shape) * sent
    total += nbytes / RATES.bandwidth / min(n, p) + RATES.latency * sent * math.ceil(groups / p)
    combines, left = 0, partials
    while left > 1:
        left = -(-left // 8)
        combines += left
    return total + RATES.task * (n + groups * combines)


def model(graph: EinGraph, splits: Any, p: int) -> float:
    """Predicted seconds of phase 1, with the layout of every free input that is best for all its readers together."""
    total = 0.0
    reads: dict[str, list[Any]] = {}
    for v, op in graph.ops.items():
        d = splits[v]
        total += op_model(op, d, p)
        for u, term in zip(op.inputs, op.terms):
            wanted = tuple([d[x] for x in term])
            array, n = graph.array(u), n_kernels(d)
            made: Any = None
            if u in graph.ops:
                made = [splits[u][x] for x in graph.ops[u].result]
            elif graph.inputs[u].layout is not None:
                made = graph.inputs[u].layout
            if made is None:
                reads.setdefault(u, []).append((wanted, n))
                continue
            moved, messages, pieces = edge(array.shape, made, wanted, n, p)
            total += seconds(array.itemsize * moved, messages, pieces, n, p)
    for u, wants in reads.items():
        array = graph.inputs[u]

        def cost(layout: Any, wants: Any = wants, array: Any = array) -> float:
            found = [(edge(array.shape, layout, wanted, n, p), n) for wanted, n in wants]
            return sum(seconds(array.itemsize * e[0], e[1], e[2], n, p) for e, n in found)

        total += min(cost(layout) for layout in CUTS(array.shape, p))
    return total


def CUTS(shape: Any, p: int) -> list[tuple[int, ...]]:
    """Every cut that a reader could want."""
    return [c for n in range(1, p + 1) for c in vectors(shape, n, uneven=True)]


@pytest.mark.parametrize("seed", range(4))
def test_moved_elements_are_what_counting_blocks_gives(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(30):
        p = rng.randint(1, 6)
        shape = [rng.randint(2, 9) for _ in range(rng.randint(1, 2))]
        made = [rng.randint(1, min(n, 4)) for n in shape]
        wanted = [rng.randint(1, min(n, 4)) for n in shape]
        n = math.prod(wanted) * rng.randint(1, 4)
        tables = moved_elements(shape, np.array([made]), np.array([wanted]), np.array([n]), p)
        assert tuple(int(t[0, 0]) for t in tables) == edge(shape, made, wanted, n, p)


def test_for_nested_splits_it_is_the_formula_of_the_paper_minus_what_is_resident() -> None:
    """2.13: N * n_c - min(P_u, N) * n_int; for a product p * (n_X + n_Y + n_Z) - |X| - |Y| - |Z|."""
    for made, wanted, n in [((2, 4), (4, 1), 8), ((4, 2), (2, 2), 8), ((1, 8), (8, 1), 8), ((2, 2), (4, 2), 8)]:
        n_c = math.prod(16 // k for k in wanted)
        n_int = math.prod(min(16 // a, 16 // b) for a, b in zip(made, wanted))
        moved, _, _ = moved_elements((16, 16), np.array([made]), np.array([wanted]), np.array([n]), 8)
        assert moved[0, 0] == n * n_c - min(math.prod(made), n) * n_int
    graph = parse_graph(eingraphs.matmul(64, 64, 64))
    only_bytes = Rates(0.0, 1.0, 0.0, 0.0, gemm=0.0, generic=0.0)
    problem = TimeProblem(graph, Options(8, "any", "upto"), Machine(8, only_bytes))
    for row, cost in zip(problem.states["C"].vectors, problem.states["C"].cost):
        n_each = sum(64 * 64 // (a * b) for a, b in itertools.combinations(row.tolist(), 2))
        assert cost == pytest.approx(4 * (8 * n_each - 3 * 64 * 64) / 8, abs=1e-9)


# ------------------------------------------------------------------------------------------------------ searches


def choices(problem: TimeProblem) -> list[list[dict[str, int]]]:
    return [[dict(zip(op.labels, row)) for row in problem.rows(v).tolist()] for v, op in problem.graph.ops.items()]


def enumerated(problem: TimeProblem, most: int) -> float | None:
    found = choices(problem)
    if math.prod(map(len, found)) > most:
        return None
    names = list(problem.graph.ops)
    return min(model(problem.graph, dict(zip(names, s)), problem.machine.p) for s in itertools.product(*found))


def scaled(data: Any, factor: int) -> Any:
    """A graph with larger arrays, so that bytes count."""
    nodes = [{**n, "shape": [factor * e for e in n["shape"]]} if "shape" in n else n for n in data["nodes"]]
    return {**data, "nodes": nodes}


def check_searches(seed: int, n: int, most: int) -> int:
    rng = random.Random(seed)
    checked = 0
    for _ in range(n):
        p = rng.choice((2, 3, 4, 5, 6))
        graph = parse_graph(scaled(eingraphs.random_graph(rng, rng.randint(1, 3), p), rng.choice((1, 7, 300))))
        problem = TimeProblem(graph, Options(p, "any", "upto"), Machine(p))
        best = enumerated(problem, most)
        if best is None:
            continue
        checked += 1
        splits, search = exact(problem)
        assert search == "exact"
        assert model(graph, splits, p) == pytest.approx(best, rel=1e-9)
        assert model(graph, linearised(problem), p) >= best * (1 - 1e-9)
    return checked


def test_elimination_is_enumeration_on_random_graphs() -> None:
    assert check_searches(0, 12, 120) > 3


@pytest.mark.slow
def test_elimination_is_enumeration_on_many_random_graphs() -> None:
    assert check_searches(1, 150, 2000) > 60


@pytest.mark.parametrize("name", ["chain", "attention", "ffnn", "llama"])
def test_never_slower_than_the_linearised_plan_and_reproducible(name: str) -> None:
    graph = {
        "chain": lambda: eingraphs.matrix_chain(4000, skew=True),
        "attention": lambda: eingraphs.attention(s=1024, a=1024),
        "ffnn": lambda: eingraphs.ffnn(f=2048, h=1024, o=512),
        "llama": lambda: eingraphs.llama(b=2, s=512),
    }[name]()
    found = plan(graph)
    assert found.search == "exact"
    assert found.cost <= plan(graph, search="linearised").cost
    made = found.to_json()
    assert made["cost"] == found.cost == plan_cost(graph, made["plan"], "time")
    assert plan(graph).to_json()["plan"] == made["plan"]
    assert made["moved_bytes"] == sum(op["moved_bytes"] for op in made["ops"].values())


def test_graphs_that_are_too_wide_are_never_slower_than_linearised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("distarray.planner.eindecomp.fastest.MAX_ENTRIES", 200)
    rng = random.Random(3)
    searches = set()
    for _ in range(5):
        graph = parse_graph(scaled(eingraphs.random_graph(rng, 7, 4), 100))
        found = plan(graph)
        searches.add(found.search)
        assert found.cost <= plan(graph, search="linearised").cost
    assert "fallback" in searches


def test_placed_plans_are_near_the_best_of_all_labellings() -> None:
    """All labellings are placed: the plan is among the best, though it looked at few."""
    rng = random.Random(5)
    ratios = []
    while len(ratios) < 8:
        p = rng.choice((2, 4))
        graph = parse_graph(scaled(eingraphs.random_graph(rng, 2, p), 200))
        problem = TimeProblem(graph, Options(p, "any", "upto"), Machine(p))
        found = choices(problem)
        if math.prod(map(len, found)) > 120:
            continue
        every = (dict(zip(graph.ops, s)) for s in itertools.product(*found))
        best = min(placed(graph, splits, problem.machine).count.seconds for splits in every)
        ratios.append(plan(graph).cost / best)
    assert min(ratios) > 1 - 1e-9
    assert max(ratios) < 1.25
    assert sum(ratios) < 1.05 * len(ratios)


def test_tree_search() -> None:
    chain = eingraphs.matrix_chain(2000)
    assert plan(chain, search="tree").cost == pytest.approx(plan(chain, search="tree", kernels="upto").cost)
    assert plan(chain).cost <= plan(chain, search="tree").cost
    with pytest.raises(ShardingError, match="is no tree"):
        plan(eingraphs.attention(s=64, a=64), search="tree")
    with pytest.raises(ShardingError, match="must be cut alike"):
        plan(parse_graph(chain).with_ties((("A", "B"),)), search="tree")


# ----------------------------------------------------------------------------------------- workers, counts, layouts


def test_if_p_factors_badly_fewer_workers_are_used() -> None:
    """2.7: 7 kernels on 7 workers move more of a square product than 6 in a grid; a tall one has good grids of 7."""
    square = parse_graph(eingraphs.matmul(5040, 5040, 5040)).ops["C"]
    tall = parse_graph(eingraphs.matmul(262144, 1024, 1024)).ops["C"]
    counts = {p: kernel_counts(square, Options(p, "any", "upto")) for p in range(1, 65)}
    assert counts[7] == (6,)
    assert counts[8] == (8,)
    assert counts[11] == (10,)
    assert (counts[3], counts[5]) == ((3,), (5,))
    assert all(0.85 * p <= n <= p for p, found in counts.items() for n in found)
    assert kernel_counts(tall, Options(7, "any", "upto")) == (7,)
    assert kernel_counts(square, Options(7, "any", "equal")) == (7,)
    assert n_kernels(plan(eingraphs.matmul(5040, 5040, 5040), p=7).splits["C"]) == 6
    assert n_kernels(plan(eingraphs.matmul(5040, 5040, 5040), p=7, kernels="equal").splits["C"]) == 7


def test_extents_that_nothing_divides_are_cut_all_the_same() -> None:
    found = plan(eingraphs.matmul(997, 991, 983), p=8)
    assert n_kernels(found.splits["C"]) == 8
    small = plan(eingraphs.matmul(5, 1, 1), p=8)
    assert found.cost == plan_cost(eingraphs.matmul(997, 991, 983), found.splits, "time")
    assert n_kernels(small.splits["C"]) == 5
    with pytest.raises(ShardingError, match="do not divide"):
        plan_cost(eingraphs.matmul(997, 991, 983), found.splits)
    with pytest.raises(ShardingError, match="no 8 parts"):
        plan_cost(eingraphs.matmul(5, 1, 1), {"C": {"i": 8}}, "time")


def test_small_operations_have_few_kernels() -> None:
    """Any number of kernels for what is no contraction: one task costs more than a thousand elements."""
    data = {"p": 8, "nodes": [{"id": "a", "shape": [1000]}, {"id": "b", "expr": "i->i", "inputs": ["a"]}]}
    assert n_kernels(plan(data).splits["b"]) == 1
    data["nodes"][0]["shape"] = [100_000_000]  # type: ignore[index]  # a list of dictionaries
    assert n_kernels(plan(data).splits["b"]) == 8
    assert n_kernels(plan(data, kernels="equal", p=4).splits["b"]) == 4


def test_operations_follow_arrays_where_they_lie() -> None:
    """Blocks on given workers stay there: whatever number of them there is."""
    rows = Input((9_000_000,), (5,), (4, 3, 2, 1, 0))
    op = EinOp((("i",),), ("i",), ("a",), {"i": 9_000_000})
    found = plan(EinGraph({"a": rows}, {"b": op, "c": replace(op, inputs=("b",))}), p=8)
    assert found.count.moved_bytes == 0
    assert found.splits == {"b": {"i": 5}, "c": {"i": 5}}
    assert found.placement["c"].tolist() == [4, 3, 2, 1, 0]
    assert found.owners["c"].tolist() == [4, 3, 2, 1, 0]
    assert found.layouts["a"] == (5,)
    irregular = replace(rows, layout=((0, 1_000_000, 9_000_000),), workers=(0, 1))
    found = plan(EinGraph({"a": irregular}, {"b": op}), p=2, rates=replace(RATES, compute=RATES.compute / 20))
    # 1 million elements where they are, and 3.5 million beside them: two even halves
    assert found.count.moved_bytes == 8 * 3_500_000


def test_labels_that_must_stay_whole_and_prescribed_cuts() -> None:
    extents = {"i": 4000, "j": 4000, "k": 4000}
    product = EinOp((("i", "j"), ("j", "k")), ("i", "k"), ("a", "b"), extents, whole=frozenset("ij"))
    inputs = {"a": Input((4000, 4000)), "b": Input((4000, 4000))}
    found = plan(EinGraph(inputs, {"c": product}), p=4)
    assert found.splits["c"] == {"i": 1, "k": 4, "j": 1}
    assert plan(EinGraph(inputs, {"c": product}), p=4, objective="paper").splits["c"] == {"i": 1, "k": 4, "j": 1}
    fixed = replace(product, whole=frozenset(), fixed={"i": 3, "j": 2})
    found = plan(EinGraph(inputs, {"c": fixed}), p=4)
    assert found.splits["c"] == {"i": 3, "k": 1, "j": 2}
    assert max(np.bincount(found.placement["c"].ravel())) == 2


BLOCKS = Input((8,), (4,), (0, 1, 2, 3))
COPY = EinOp((("i",),), ("i",), ("a",), {"i": 8})


@pytest.mark.parametrize(
    ("array", "op", "says"),
    [
        (BLOCKS, replace(COPY, inputs=("z",)), "no input 'z'"),
        (BLOCKS, replace(COPY, inputs=()), "1 terms and 0 inputs"),
        (BLOCKS, replace(COPY, extents={"i": 9}), r"has the shape \(8,\)"),
        (BLOCKS, replace(COPY, fixed={"j": 2}), "no label 'j'"),
        (BLOCKS, replace(COPY, fixed={"i": 2}, whole=frozenset("i")), "cannot have 2 parts"),
        (replace(BLOCKS, workers=(0, 1)), COPY, "given for 2 blocks"),
        (replace(BLOCKS, workers=(0, 1, 2, 7)), COPY, "input 'a' lies on workers"),
        (replace(BLOCKS, layout=(4, 1)), COPY, "does not fit the shape"),
    ],
)
def test_graphs_that_cannot_be_are_refused(array: Input, op: EinOp, says: str) -> None:
    for objective in ("time", "paper"):
        with pytest.raises(ShardingError, match=says):
            plan(EinGraph({"a": array}, {"v": op}), p=4, objective=objective)


def test_tied_arrays_are_cut_alike_and_a_tied_input_has_one_layout() -> None:
    data = eingraphs.ffnn(f=2048, h=1024, o=512)
    found = plan(data)
    for weight in ("W1", "W2"):
        assert found.layouts[weight] == found.layouts[f"{weight}n"]
    tied = plan(parse_graph(eingraphs.matmul(4000, 4000, 1000)).with_ties((("A", "C"),)), p=4)
    assert tied.layouts["A"] == tied.layouts["C"]
    with pytest.raises(ShardingError, match="different layouts"):
        plan(parse_graph(data).with_layouts({"W1": (4, 1), "W2": (1, 4)}).with_ties((("W1", "W2"),)))
    fixed = plan(parse_graph(data).with_layouts({"W1": (4, 1)}))
    assert fixed.layouts["W1n"] == (4, 1)


def test_many_operands_and_broadcast_labels_use_the_same_path() -> None:
    data = eingraphs.mttkrp(256, 256, 256, 8)
    found = plan(data)
    assert n_kernels(found.splits["M"]) == 8
    assert found.cost == plan_cost(data, found.splits, "time")
    nodes = [{"id": "a", "shape": [4096]}, {"id": "b", "expr": "i->iz", "inputs": ["a"], "sizes": {"z": 4096}}]
    broadcast = plan({"p": 4, "nodes": nodes})
    assert n_kernels(broadcast.splits["b"]) == 4
    assert broadcast.splits["b"]["i"] == 4  # nothing moves
    assert broadcast.count.moved_bytes == 0


def test_itemsizes_and_dtypes() -> None:
    data = eingraphs.matmul(2000, 2000, 2000)
    single, double = plan(data), plan({**data, "dtype": "float64"})
    assert double.count.moved_bytes == 2 * single.count.moved_bytes
    with pytest.raises(ShardingError, match="dtype 'f77' is unknown"):
        plan({**data, "dtype": "f77"})


# ------------------------------------------------------------------------------------------------ what is promised


@pytest.mark.parametrize(("skew", "most"), [(False, 1.0), (True, 1.09)])
def test_the_matrix_chain_moves_hardly_more_than_its_bounds(skew: bool, most: float) -> None:
    """Acceptance 7: at p = 8 at most 1.5x and 3x the sum of the bounds; 1.00x and 1.08x are reached."""
    found = plan(eingraphs.matrix_chain(8000, skew=skew))
    assert found.count.moved_bytes <= most * found.lower_bound_bytes * (1 + 1e-9)


SHAPES = {
    "square": (5040, 5040, 5040),
    "tall": (262144, 1024, 1024),
    "inner": (1024, 262144, 1024),
    "outer": (16384, 512, 16384),
}
#: Ratios that no regular grid goes below.
KNOWN = {
    ("square", 3): 1.51, ("square", 5): 1.88, ("square", 11): 1.45, ("square", 15): 1.37, ("outer", 3): 1.37,
    ("outer", 5): 1.62,
}  # fmt: skip
MATCHING = {"square": (8, 64), "tall": (16,), "inner": (16,), "outer": (16,)}


@pytest.mark.parametrize("name", SHAPES)
def test_products_move_hardly_more_than_the_tight_bound(name: str) -> None:
    """Acceptance 7: 1.10x the bound where p has a matching grid, else 1.35x at the number of workers used."""
    for p in range(1, 65):
        found = plan(eingraphs.matmul(*SHAPES[name]), p=p)
        most = 1.10 if p in MATCHING[name] else KNOWN.get((name, p), 1.35)
        assert found.count.moved_bytes <= most * found.lower_bound_bytes + 1e-6, p


def test_any_number_of_workers_costs_no_more_than_the_next_power_of_two() -> None:
    """Acceptance 8: experiment 1, elements; extents are multiples of all parts."""
    for skew in (False, True):
        for kernels in ("equal", "upto"):

            def cost(p: int, skew: bool = skew, kernels: Any = kernels) -> float:
                graph = eingraphs.matrix_chain(640 * p, skew=skew)
                return plan(graph, p=p, objective="paper", splits="any", kernels=kernels).cost / (640 * p) ** 2

            found = {p: cost(p) for p in range(1, 65)}
            for p in found:
                fewer = range(math.ceil(0.85 * p), p + 1)
                allowed = found[1 << (p - 1).bit_length()]
                if not skew and kernels == "upto":
                    allowed *= {5: 1.18, 15: 26 / 23}.get(p, 1.0)
                assert min(found[n] for n in fewer) <= allowed * (1 + 1e-12), (p, skew, kernels)


def cpu_seconds(call: Any, runs: int = 3) -> float:
    best = math.inf
    for _ in range(runs):
        started = time.process_time()
        call()
        best = min(best, time.process_time() - started)
    return best


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["paper", "time"])
@pytest.mark.parametrize(("layers", "p", "most"), [(1, 8, 0.3), (4, 8, 1.5), (1, 32, 3.0)])
def test_planning_time(layers: int, p: int, most: float, objective: Any) -> None:
    """Acceptance 4, on a machine on which this loop takes 0.035 s."""
    scale = cpu_seconds(lambda: sum(i * i for i in range(10**6))) / 0.035
    graph = parse_graph(eingraphs.llama(b=8, layers=layers))
    assert cpu_seconds(lambda: plan(graph, p=p, objective=objective), 2) <= most * scale


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["paper", "time"])
def test_planning_is_linear_in_depth(objective: Any) -> None:
    two, eight = (parse_graph(eingraphs.llama(layers=n)) for n in (2, 8))
    shallow, deep = (cpu_seconds(lambda g=g: plan(g, objective=objective)) for g in (two, eight))
    assert deep <= 1.5 * 4 * shallow


def test_explain_has_a_row_for_every_operation_and_what_else_there_is() -> None:
    found = plan(eingraphs.matrix_chain(8000), p=8)
    lines = found.explain().splitlines()
    assert lines[0].startswith("EinGraph: 4 ops, 5 inputs, 8 workers")
    assert lines[0].endswith("objective: time")
    assert lines[2].split()[:4] == ["DE", "ij,jk->ik", "i=2", "k=2"]
    assert "predicted 2304 MB in 56 messages" in lines[-2]
    assert "kernels equal" in lines[-1]
    assert "paper objective" in lines[-1]
    others = found.alternatives()
    assert others["sqrt"] == "8 is not a square"
    assert all(cost >= found.cost * (1 - 1e-9) for cost in others.values() if not isinstance(cost, str))


# ------------------------------------------------------------------------------------------------------- parts


def test_assignment_is_the_best_of_all() -> None:
    rng = np.random.default_rng(0)
    for _ in range(40):
        p, capacity = int(rng.integers(1, 4)), int(rng.integers(1, 3))
        n = int(rng.integers(1, p * capacity + 1))
        gain = rng.integers(0, 5, (p, n)).astype(float)
        found = assign(gain, capacity)
        assert np.bincount(found, minlength=p).max() <= capacity
        every = [w for w in itertools.product(range(p), repeat=n) if max(map(w.count, w)) <= capacity]
        assert gain[found, np.arange(n)].sum() == max(sum(gain[w, k] for k, w in enumerate(ws)) for ws in every)
    many = assign(np.eye(4)[:, np.arange(400) % 4], 100)
    assert many.tolist() == (np.arange(400) % 4).tolist()


def test_the_bound_of_held_elements_is_the_least_over_real_splits() -> None:
    """Against the best grid for powers of two, and against splits on a fine mesh."""
    op = parse_graph(eingraphs.mttkrp(64, 64, 64, 4)).ops["M"]
    for p in (2, 8, 64):
        bound = held_bound(op, p)
        grids = vectors([op.extents[x] for x in op.labels], p)
        held = []
        for row in grids:
            d = dict(zip(op.labels, row))
            arrays = (*op.terms, op.result)
            held.append(sum(p * math.prod(op.extents[x] / d[x] for x in t) for t in arrays))
        assert bound <= min(held) * (1 + 1e-9)
        assert bound >= 0.9 * min(held)


def test_paper_plans_know_their_placement_too() -> None:
    found = plan(eingraphs.matrix_chain(800), p=8, objective="paper")
    assert isinstance(found.cost, int)
    assert set(found.placement) == {"DE", "CDE", "AB", "Y"}
    assert found.placement["Y"].shape == (2, 4)
    assert found.count.seconds == plan_cost(found.graph, found.splits, "time", p=8)
    assert exact(PaperProblem(found.graph, found.options))[0] == found.splits


# ------------------------------------------------------------------------------------- inputs that are everywhere


def perceptron(batch: int, *, everywhere: bool = True) -> EinGraph:
    """Two products with a function between them; its inputs are what every worker has."""
    shapes = {"x": (batch, 64), "w": (64, 256), "v": (256, 64)}
    inputs = {name: Input(shape, itemsize=4, everywhere=everywhere) for name, shape in shapes.items()}
    sizes = {"b": batch, "f": 64, "h": 256, "o": 64}
    ops = {
        "p": EinOp((("b", "f"), ("f", "h")), ("b", "h"), ("x", "w"), sizes, itemsize=4),
        "r": EinOp((("b", "h"),), ("b", "h"), ("p",), sizes, itemsize=4),
        "y": EinOp((("b", "h"), ("h", "o")), ("b", "o"), ("r", "v"), sizes, itemsize=4),
    }
    return EinGraph(inputs, {v: replace(op, extents={x: sizes[x] for x in op.labels}) for v, op in ops.items()})


def test_what_is_everywhere_moves_nothing_and_weighs_where_it_is_read() -> None:
    found = plan(perceptron(64), p=4)
    assert {v: n_kernels(d) for v, d in found.splits.items()} == {"p": 4, "r": 4, "y": 4}
    assert [d["b"] for d in found.splits.values()] == [4, 4, 4]
    assert found.count.moved_bytes == 0
    assert plan(perceptron(64, everywhere=False), p=4).count.moved_bytes > 0
    weights = 2 * 64 * 256 * 4
    assert found.count.peak_bytes >= weights


def test_memory_decides_whether_what_is_everywhere_is_read_whole() -> None:
    weights = 2 * 64 * 256 * 4
    found = plan(perceptron(16), p=4, memory_limit=weights / 2)
    assert [found.splits[v]["h"] for v in ("p", "y")] == [4, 4]
    assert found.count.moved_bytes == 3 * 16 * 64 * 4  # partial results alone
    assert weights / 4 <= found.count.peak_bytes <= weights / 2
