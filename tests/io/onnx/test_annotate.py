"""Annotations that are planned: accepted by the checker, within the memory, and no slower than the usual ones."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from helpers import module_at
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx_specs import spec

import distarray as dx
from distarray import __main__ as command
from distarray.errors import MemoryBudgetError
from distarray.io.onnx.crossings import held_bytes, redistributed, reduced
from distarray.io.onnx.forms import TensorForm

onnx = pytest.importorskip("onnx")
from onnx import helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402
from onnx_graphs import models  # noqa: E402

from distarray.io.onnx import annotate, load  # noqa: E402
from distarray.io.onnx.protobuf import spec_to_proto  # noqa: E402

PEER = ("replicated", "data parallel", "Megatron")
EXAMPLE = module_at(Path(__file__).parents[3] / "docs" / "examples" / "onnx_models.py")
perceptron, transformer_block = EXAMPLE.perceptron, EXAMPLE.transformer_block


def team(n):
    return dx.Team((n,), ("d",))


def errors(model):
    return [str(violation) for violation in model.check() if violation.severity == "error"]


# -- two models -------------------------------------------------------------------------------------------------------


def test_perceptron_whose_weights_fit_is_cut_by_its_batch_and_moves_nothing():
    made = perceptron()
    before = made.SerializeToString()
    found = annotate(made, team(4))
    assert made.SerializeToString() == before
    assert errors(found) == []
    forms = found.infer().forms
    assert [forms[name]["grid"] for name in "hry"] == [[4, 1]] * 3
    assert found.cost.nbytes == 0
    assert found.cost.seconds == found.costs["data parallel"].seconds


def test_perceptron_whose_weights_do_not_fit_is_cut_by_columns_and_rows_with_one_reduction():
    memory = 12_000_000  # a quarter of the weights is 8 MiB
    found = annotate(perceptron(), team(4), memory)
    assert errors(found) == []
    forms = found.infer().forms
    assert [forms[name]["grid"] for name in "hr"] == [[1, 4]] * 2
    moved = [crossing for node in found.cost.nodes for crossing in node.crossings if crossing.total]
    assert [(crossing.tensor, crossing.collective) for crossing in moved] == [("y", "reduce")]
    assert found.cost.nbytes == 3 * 64 * 1024 * 4  # three devices send their part of y
    assert found.cost.peak_bytes <= memory < found.costs["data parallel"].peak_bytes
    assert found.cost.seconds < found.costs["Megatron"].seconds


def test_megatron_is_one_all_reduce_for_each_pair_of_layers():
    found = annotate(transformer_block(), team(4)).costs["Megatron"]
    kinds = [crossing.collective for node in found.nodes for crossing in node.crossings if crossing.total]
    assert kinds == ["all-reduce"] * 2
    assert found.nbytes == 2 * 2 * 3 * (2 * 64 * 128 * 4)  # twice, a ring of 4 over the residual stream


@pytest.mark.parametrize("n", [2, 3, 4])
def test_block_is_planned_to_be_faster_than_usual_annotations(n):
    found = annotate(transformer_block(), team(n))
    assert errors(found) == []
    assert all(found.cost.seconds <= found.costs[peer].seconds for peer in PEER)
    assert found.infer().infer().forms == found.infer().forms
    lines = found.table().splitlines()
    assert [line.split("  ")[0] for line in lines[1:]] == ["planned", *PEER]


def test_heads_are_cut_through_reshapes_where_memory_is_short():
    found = annotate(transformer_block(1, 32, 8, 64), team(4), 6_000_000)
    forms = found.infer().forms
    assert (forms["q"]["grid"], forms["q1"]["grid"], forms["s"]["grid"]) == ([1, 1, 4], [1, 1, 4, 1], [1, 4, 1, 1])
    assert found.cost.peak_bytes <= 6_000_000


@pytest.mark.parametrize("made", [perceptron(8, 16, 32, 8), transformer_block(2, 8, 4, 4)], ids=["perceptron", "block"])
def test_plans_are_measured_beside_those_that_they_were_compared_with(made):
    """onnx:A-4: each gives the numbers of the reference."""
    shape = [d.dim_value for d in made.graph.input[0].type.tensor_type.shape.dim]
    feeds = {"x": np.random.default_rng(0).standard_normal(shape).astype("f4")}
    found = annotate(made, team(4))
    (expected,) = ReferenceEvaluator(made).run(None, feeds)
    for name in ("planned", *PEER):
        np.testing.assert_allclose(found.peer(name).run(feeds, strict=False)["y"], expected, rtol=1e-3, atol=1e-4)
        plan = found.peer(name).plan({"x": shape}, strict=False)
        assert plan.nbytes == found.costs[name].nbytes
    measured = found.measure(feeds, n_runs=1)
    assert [*measured] == [*found.costs]
    assert min(measured.values()) > 0
    head, *rows = found.table(measured).splitlines()
    assert head.split() == ["annotation", "moved", "seconds", "measured", "held", "collectives"]
    assert len(rows) == 4
    with pytest.raises(ValueError, match="'mine' is none of planned, replicated, data parallel, Megatron"):
        found.peer("mine")
    with pytest.raises(ValueError, match="n_runs=0"):
        found.measure(feeds, n_runs=0)


def test_the_example_measures_both_models(capsys):
    EXAMPLE.main(["--runs", "1", "--batch", "16"])
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.endswith("nodes")] == ["perceptron, 3 nodes", "block, 23 nodes"]
    assert sum("measured" in line for line in lines) == 2
    assert sum(line.startswith(("planned", *PEER)) for line in lines) == 8


def test_memory_that_nothing_keeps_to_is_said_with_the_numbers():
    with pytest.raises(MemoryBudgetError, match=r"memory=1000000 is too little on each of 4 devices: .* 9\d{6} bytes"):
        annotate(perceptron(), team(4), 1_000_000)


def test_symbols_need_numbers_and_stay():
    with pytest.raises(ValueError, match=r"'x' has the symbolic size 'batch'; .*sizes={'batch': 32}"):
        annotate(perceptron("batch"), team(2))
    found = annotate(perceptron("batch"), team(2), sizes={"batch": 64})
    entry = found.model.graph.node[0].device_configurations[0].sharding_spec[0]
    assert (entry.tensor_name, entry.sharded_dim[0].simple_sharding[0].dim_param) == ("x", "batch")
    assert found.infer().forms["y"] == {"name": "y", "grid": [2, 1], "owners": [[0], [1]], "shape": ["batch", 1024]}


@pytest.mark.parametrize(
    ("arguments", "options", "error", "said"),
    [
        ((4,), {}, TypeError, "team=4 is no team"),
        ((team(2), -1), {}, ValueError, "memory=-1 must be a number of bytes"),
        ((team(2), "1 GB"), {}, TypeError, "memory"),
        ((team(2),), {"sizes": {"batch": 0}}, ValueError, "'batch': 0} is no size"),
        ((team(2),), {"sizes": 8}, TypeError, "sizes"),
    ],
)
def test_arguments_that_cannot_be_are_refused(arguments, options, error, said):
    with pytest.raises(error, match=said):
        annotate(perceptron("batch", 8, 8, 8), *arguments, **options)


def test_other_configurations_stay_and_one_of_the_name_is_replaced():
    made = perceptron(8, 16, 32, 8)
    made.configuration.add(name="mine", num_devices=2)
    entry = made.graph.node[1].device_configurations.add(configuration_id="mine")
    entry.sharding_spec.append(spec_to_proto(spec([0, 1], (0, 8, 2)), "h"))
    once = annotate(made, team(4))
    assert [c.name for c in once.model.configuration] == ["mine", "planned"]
    assert load(once.model, "mine").infer().forms["r"]["grid"] == [2, 1]
    again = annotate(once, team(2))
    assert [(c.name, c.num_devices) for c in again.model.configuration] == [("mine", 2), ("planned", 2)]
    assert errors(again) == []


def test_operators_that_cannot_be_annotated_read_whole_inputs():
    nodes = [
        helper.make_node("MatMul", ["x", "x"], ["a"], "twice"),
        helper.make_node("LpNormalization", ["a"], ["b"], "plain"),
        helper.make_node("Relu", ["b"], ["y"], "after"),
    ]
    infos = [helper.make_tensor_value_info(name, 1, [64, 64]) for name in "xy"]
    made = helper.make_model(
        helper.make_graph(nodes, "g", infos[:1], infos[1:]), opset_imports=[helper.make_opsetid("", 21)]
    )
    found = annotate(made, team(4))
    assert errors(found) == []
    assert not found.model.graph.node[1].device_configurations
    assert found.infer().forms["b"]["owners"] == [[0, 1, 2, 3]]


def test_attributes_may_say_that_a_node_cannot_be_annotated():
    node = helper.make_node("BatchNormalization", [*"xabcd"], ["y"], "norm", training_mode=1)
    infos = [helper.make_tensor_value_info(name, 1, [2, 8, 4] if name in "xy" else [8]) for name in "xabcdy"]
    graph = helper.make_graph([node], "g", infos[:-1], infos[-1:])
    found = annotate(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]), team(2))
    assert not found.model.graph.node[0].device_configurations
    assert errors(found) == []


@settings(max_examples=15)
@given(models(), st.integers(1, 4))
def test_random_models_are_annotated_as_the_checker_accepts(made, n):
    """onnx:A-2, onnx:A-3."""
    found = annotate(made[0], team(n))
    assert errors(found) == []
    inferred = found.infer()
    assert inferred.infer().forms == inferred.forms


@pytest.mark.parametrize("memory", [None, 700_000])
@pytest.mark.parametrize("n", [3, 4])
def test_blocks_run_as_they_are_planned(n, memory):
    """onnx:A-4, onnx:A-6: what was predicted to move is what the plan of the run says."""
    made = transformer_block()
    x = np.random.default_rng(1).standard_normal((2, 64, 128)).astype("f4")
    found = annotate(made, team(n), memory)
    np.testing.assert_allclose(found.run({"x": x})["y"], ReferenceEvaluator(made).run(None, {"x": x})[0], atol=1e-5)
    plan = found.plan({"x": x.shape})
    moved = [crossing.collective for node in found.cost.nodes for crossing in node.crossings if crossing.total]
    assert plan.collectives == {kind: moved.count(kind) for kind in moved}
    assert plan.nbytes == found.cost.nbytes


@settings(max_examples=15)
@given(models(), st.integers(2, 4))
def test_random_models_run_as_they_are_planned(made, n):
    """onnx:A-4."""
    model, feeds = made
    with np.errstate(all="ignore"):
        expected = ReferenceEvaluator(model).run(None, feeds)
        found = annotate(model, team(n)).run(feeds)
    for e, (name, f) in zip(expected, found.items(), strict=True):
        np.testing.assert_allclose(np.asarray(f), e, rtol=2e-4, atol=2e-4, err_msg=name)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # making the cases casts what overflows
@pytest.mark.parametrize("part", range(6))
def test_all_conformance_models_are_annotated_as_the_checker_accepts(part):
    """onnx:A-2: the node cases of the onnx package, on 2 to 4 devices; there are no exceptions."""
    from onnx.backend.test.case.node import collect_testcases

    wrong, n_cut = [], 0
    for i, case in enumerate(collect_testcases(None)):
        if i % 6 != part or case.model is None or any(n.domain not in ("", "ai.onnx") for n in case.model.graph.node):
            continue
        dims = [d for v in case.model.graph.input for d in v.type.tensor_type.shape.dim]
        found = annotate(case.model, team(2 + i // 6 % 3), sizes={d.dim_param: 4 for d in dims if d.dim_param})
        wrong += [(case.name, error) for error in errors(found)]
        n_cut += any(max(form["grid"], default=1) > 1 for form in found.infer().forms.values())
    assert wrong == []
    assert n_cut > 20


# -- bytes ------------------------------------------------------------------------------------------------------------


@st.composite
def a_form(draw, shape):
    grid = [draw(st.integers(1, min(n, 3))) for n in shape]
    owners = [frozenset(draw(st.sets(st.integers(0, 3), min_size=1, max_size=2))) for _ in range(np.prod(grid))]
    cuts = tuple(((n, k),) if k > 1 else () for n, k in zip(shape, grid))
    if shape[0] == 6 and grid[0] == 2 and draw(st.booleans()):
        cuts = (((2, 1), (3, 2)), *cuts[1:])  # an axis made by fusing axes
    return TensorForm(shape, cuts, tuple(owners))


def elements(form, device):
    """Which elements a device holds, one by one."""
    held = np.zeros(form.shape, bool)
    axes = []
    for n, cut in zip(form.shape, form.cuts):
        numbers = np.zeros(n, int)
        for i in range(n):
            left, at, number = n, i, 0
            for size, k in cut or ((n, 1),):
                left //= size
                number = number * k + next(p for p in range(k) if at // left < (p + 1) * size // k)
                at %= left
            numbers[i] = number
        axes.append(numbers)
    for index in np.ndindex(*form.shape):
        number = 0
        for numbers, k, i in zip(axes, form.grid, index):
            number = number * k + numbers[i]
        held[index] = device in form.owners[number]
    return held


@given(st.sampled_from([(6, 4), (5, 2), (6,)]).flatmap(lambda shape: st.tuples(a_form(shape), a_form(shape))))
def test_what_a_device_gets_is_what_it_needs_and_lacks(both):
    source, target = both
    found = redistributed("x", source, target, 4, 8)
    for device in range(4):
        lacking = elements(target, device) & ~elements(source, device)
        assert found.nbytes[device] == 8 * lacking.sum()


def test_sums_move_as_rings_do():
    """onnx:A-6: all-reduce, reduce and reduce-scatter of 4 parts of 32 elements."""
    everybody = frozenset(range(4))
    parts = TensorForm.whole((8, 4), everybody)
    rows = TensorForm((8, 4), (((8, 4),), ()), tuple(frozenset([i]) for i in range(4)))
    found = {
        "all-reduce": reduced("x", parts, parts, 4, 4, 1),
        "reduce": reduced("x", parts, TensorForm.whole((8, 4), frozenset([2])), 4, 4, 1),
        "reduce-scatter": reduced("x", parts, rows, 4, 4, 1),
    }
    assert {name: crossing.collective for name, crossing in found.items()} == {name: name for name in found}
    assert [crossing.total for crossing in found.values()] == [2 * 3 * 32, 3 * 32, 3 * 32]
    assert found["reduce"].nbytes.tolist() == [0, 0, 96, 0]
    assert found["reduce-scatter"].nbytes.tolist() == [24, 24, 24, 24]
    # more parts than devices: those on one device are combined there
    assert reduced("x", parts, parts, 12, 4, 1).total == found["all-reduce"].total
    # who has no part gets one more
    assert reduced("x", TensorForm.whole((8, 4), frozenset([0, 1])), rows, 2, 4, 1).nbytes.tolist() == [8, 8, 16, 16]


# -- drawings ---------------------------------------------------------------------------------------------------------


def test_a_drawing_shows_forms_and_collectives():
    drawing = dx.io.onnx.draw(annotate(perceptron(), team(4), 12_000_000))
    lines = [line.split() for line in str(drawing).splitlines()]
    assert ["Gemm_h", "Gemm", "reads", "x", "64", "1024", "all"] in lines
    assert ["reads", "w", "1024", "4096/4", "0", "1", "2", "3", "slice"] in lines
    assert lines[-1][:7] == ["makes", "y", "64", "1024", lines[-1][4], "reduce", "768"]
    assert repr(drawing) == str(drawing)


def test_a_drawing_without_numbers_for_symbols_says_no_bytes():
    found = annotate(perceptron("batch"), team(4), 12_000_000, sizes={"batch": 64})
    assert str(dx.io.onnx.draw(found)).endswith("reduce")
    assert str(dx.io.onnx.draw(found, sizes={"batch": 64})).endswith("reduce 768 KiB")


def test_a_drawing_is_a_graph_where_graphviz_is():
    pytest.importorskip("graphviz")
    source = dx.io.onnx.draw(annotate(perceptron(), team(4), 12_000_000)).graph().source
    assert source.count("->") == 8
    assert "reduce 768 KiB of y" in source
    assert "4096/4" in source


def test_a_drawing_names_the_extra_where_graphviz_is_missing(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "graphviz", None)
    drawing = dx.io.onnx.draw(annotate(perceptron(8, 8, 8, 8), team(2)))
    with pytest.raises(ModuleNotFoundError, match=r"dask-distarray\[viz\]"):
        drawing.graph()
    assert [*drawing._repr_mimebundle_()] == ["text/plain"]


# -- command line -----------------------------------------------------------------------------------------------------


def test_the_command_line_annotates_and_draws(tmp_path, capsys):
    bare, out = str(tmp_path / "bare.onnx"), str(tmp_path / "out.onnx")
    onnx.save(perceptron("batch", 64, 64, 64), bare)
    line = ["onnx", "annotate", bare, "--team", "4", "--size", "batch=64"]
    assert command.main([*line, "-o", out]) == 0
    assert capsys.readouterr().out.splitlines()[1].startswith("planned")
    assert command.main(["onnx", "check", out]) == 0
    assert command.main(["onnx", "draw", out]) == 0
    assert "batch/4 64" in capsys.readouterr().out
    assert command.main([*line, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["forms"]["y"]["grid"] == [4, 1]
    assert found["costs"]["planned"]["moved_bytes"] == 0
    np.save(tmp_path / "x.npy", np.ones((64, 64), "f4"))
    assert command.main([*line, "--json", "--input", f"x={tmp_path / 'x.npy'}"]) == 0
    assert [*json.loads(capsys.readouterr().out)["measured_seconds"]] == ["planned", *PEER]
    for wrong, said in (
        (["onnx", "annotate", bare], "--team 4"),
        ([*line[:4], "0"], "1 to"),
        ([*line[:5], "--size", "batch"], "SYMBOL=N"),
        (line[:5], "symbolic size 'batch'"),
        (["onnx", "draw", out, "--json"], "infer --json"),
    ):
        assert command.main(wrong) == 2
        assert said in capsys.readouterr().err


def test_forms_of_more_shards_than_pairs_are_counted_of_have_sizes():
    n, each = 1024, 16
    owners = tuple(frozenset(range(each * i, each * (i + 1))) for i in range(n))
    form = TensorForm((4 * n,), (((4 * n, n),),), owners)
    assert held_bytes(form, each * n, 8).tolist() == [32] * (each * n)
    fine = TensorForm((5000,), (((5000, 2100),),), tuple(frozenset([i]) for i in range(2100)))
    assert held_bytes(fine, 2100, 1).sum() == 5000
    fused = TensorForm((12,), (((3, 2), (4, 3)),), tuple(frozenset([i]) for i in range(6)))
    assert held_bytes(fused, 6, 1).tolist() == [1, 1, 2, 2, 2, 4]
    assert reduced("x", form, form, each, each * n, 8).collective == "all-reduce"
