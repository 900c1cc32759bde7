"""The graph files of the workloads are those that the generators make, and are what the papers say."""

from __future__ import annotations

import json
from math import prod
from typing import Any

import pytest
from graphs import write

from distarray.planner.eindecomp import parse_graph, plan, plan_cost
from distarray.testing import eingraphs, labellings

GRAPHS = write.graphs()


def flops(graph: Any) -> int:
    """As the specification counts: two for each point of a product, one for each element of a sum."""
    return sum(prod(op.extents.values()) * (2 if op.aggregated else 1) for op in parse_graph(graph).ops.values())


def test_files_are_up_to_date() -> None:
    there = {path.name: path.read_text() for path in write.HERE.glob("*.json")}
    assert there == write.texts(), "run: python asv_bench/graphs/write.py"


@pytest.mark.parametrize("name", GRAPHS)
def test_files_are_graphs(name: str) -> None:
    text = write.as_text(GRAPHS[name])
    assert json.loads(text) == GRAPHS[name]
    graph = parse_graph(json.loads(text))
    assert graph.p is not None
    assert graph.ops


def test_sizes_are_those_of_the_paper() -> None:
    s = 8000
    assert flops(GRAPHS["exp1_square_8000"]) == 6 * s**3 + s**2
    assert flops(GRAPHS["exp1_skew_8000"]) == 2.4 * s**3 + s**2
    counts = {name: len(parse_graph(graph).ops) for name, graph in GRAPHS.items()}
    assert counts["llama_7b_block"] == counts["llama_65b_block"] == 19
    assert [counts[f"llama_7b_norms_{k}"] for k in (1, 2, 4, 8)] == [25, 50, 100, 200]
    assert (counts["ffnn_forward_b128_f8192"], counts["ffnn_step_b512_f597540"]) == (3, 10)
    assert (counts["chain_64"], counts["elementwise_100"]) == (64, 100)
    weights = parse_graph(GRAPHS["llama_7b_block"])
    assert sum(prod(weights.shape(n)) for n in weights.inputs if n != "x0") == 4 * 4096**2 + 3 * 4096 * 11008


def test_powers_of_a_matrix_are_squarings_and_sums() -> None:
    graph = parse_graph(eingraphs.matrix_powers(8, 3))
    assert [op.inputs for op in graph.ops.values()][:3] == [("A", "A"), ("A2", "A2"), ("A4", "A4")]
    assert [v for v in graph.ops if not graph.reads[v]] == ["S_A8"]


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 100])
def test_the_graph_of_elementwise_operations_has_as_many_as_asked(n: int) -> None:
    graph = parse_graph(eingraphs.elementwise(n))
    assert len(graph.ops) == n
    assert not any(op.is_contraction for op in graph.ops.values())


# ---------------------------------------------------------------------------------------------------------- labellings

LLAMA = eingraphs.llama(b=8, s=1024)


@pytest.mark.parametrize("labelling", [labellings.data_parallel, labellings.sequence, labellings.megatron])
def test_usual_labellings_use_all_workers_and_are_not_better(labelling: Any) -> None:
    usual = labelling(LLAMA, 8)
    assert labellings.n_kernels(usual) == (8, 8)
    assert plan_cost(LLAMA, usual) >= plan(LLAMA, p=8, objective="paper").cost


def test_tensor_parallelism_cuts_heads_inner_layer_and_sequence() -> None:
    usual = labellings.megatron(LLAMA, 4)
    by_part = {v: next(iter(parts)) for v, parts in usual.items()}
    assert {v for v, x in by_part.items() if x == "m"} == {"g0", "u0", "a0", "m0", "dn0"}
    assert {v for v, x in by_part.items() if x == "e"} == {"wo_0"}
    softmax = {f"{x}_Z0" for x in "CDERY"}
    assert {v for v, x in by_part.items() if x == "h"} == {"q0", "k0", "v0", "S0", "Z0", "o0", *softmax}
    inside = labellings.attention(LLAMA, 4)
    assert {v for v in usual if usual[v] != inside[v]} == {"g0", "u0", "a0", "m0", "dn0"}
    assert inside["g0"] == {"s": 4}


def test_square_roots_make_more_kernels_than_workers() -> None:
    graph = eingraphs.matrix_chain(80)
    usual = labellings.sqrt_parts(graph, 16)
    assert usual["DE"] == {"i": 4, "j": 4, "k": 4}
    assert labellings.n_kernels(usual) == (16, 64)
    with pytest.raises(ValueError, match="no square"):
        labellings.sqrt_parts(graph, 8)
    small = labellings.sqrt_parts({"nodes": [{"id": "A", "shape": [6]}, *_sum_of("A")]}, 16)
    assert small == {"S": {"i": 2, "z": 4}}


def _sum_of(name: str) -> list[dict[str, Any]]:
    return [{"id": "S", "expr": "i->iz", "inputs": [name], "sizes": {"z": 8}}]


def test_hidden_parallelism_falls_back_to_the_outputs() -> None:
    usual = labellings.hidden_parallel(eingraphs.ffnn(), 4)
    assert (usual["Z1"], usual["dZ2"], usual["dW1"]) == ({"h": 4}, {"o": 4}, {"h": 4})
