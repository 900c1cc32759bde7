"""Annotated models run as annotated: values, where everything lies, and what moves."""

from __future__ import annotations

import json
import os
import signal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx_specs import annotated, spec

import distarray as dx
from distarray import __main__ as command
from distarray.io.onnx.arrays import form_of
from distarray.io.onnx.forms import everywhere
from distarray.lower.bundling import bundle_of
from distarray.runtime.hosts import place
from distarray.sharding.dealing import dealt
from distarray.testing import counting

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402
from onnx_graphs import models  # noqa: E402

from distarray.io.onnx import ShardingError, load  # noqa: E402
from distarray.io.onnx.model import process_team  # noqa: E402
from distarray.io.onnx.protobuf import spec_to_proto  # noqa: E402
from distarray.io.onnx.running import RunningModel  # noqa: E402

X = np.random.default_rng(0).standard_normal((8, 6)).astype("f4")
W = np.random.default_rng(1).standard_normal((6, 8)).astype("f4")
V = np.random.default_rng(2).standard_normal((8, 4)).astype("f4")
ROWS = spec([0, 1], (0, 8, 2))


def node(op, inputs, outputs, *annotations, domain="", **attrs):
    made = helper.make_node(op, inputs.split(","), outputs.split(","), name=f"{op}_{outputs}", domain=domain, **attrs)
    if annotations:
        entry = made.device_configurations.add(configuration_id="team")
        entry.sharding_spec.extend([spec_to_proto(s, name) for name, s in annotations])
    return made


def model(*nodes, weights=None, shape=(8, 6), devices=2, dtype=TensorProto.FLOAT):
    made = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", dtype, shape)],
        [helper.make_tensor_value_info(name, 0, None) for name in nodes[-1].output if name],
        [numpy_helper.from_array(v, n) for n, v in (weights or {}).items()],
    )
    found = helper.make_model(made, ir_version=11, opset_imports=[helper.make_opsetid("", 21)])
    if devices:
        found.configuration.add(name="team", num_devices=devices)
    return found


def perceptron(*annotations, devices=2):
    cuts = [spec(list(range(devices)), (axis, 8, devices)) for axis in (1, 0)]
    return model(
        node("MatMul", "x,w", "h", ("w", cuts[0])),
        node("Relu", "h", "r"),
        node("MatMul", "r,v", "y", ("v", cuts[1]), *annotations),
        weights={"w": W, "v": V},
        devices=devices,
    )


def run(made, x=X, **options):
    """Outputs of a run, and what moved between the members for them; nothing is so small that it is done at once."""
    with dx.config.set(eager_bytes=0), counting() as counters:
        found = load(made, **options).run({"x": x})
        for y in found.values():
            stored(y).persist()
    return found, counters


def stored(y):
    """The array that an output is: of fused axes the one with the axes apart."""
    return type(y)._on(y._base.current) if y._lens else y


def check(made, x=X):
    """Compare a run with the reference; each output lies as inference says."""
    found, counters = run(made, x)
    inferred = load(made).infer()
    for expected, (name, y) in zip(ReferenceEvaluator(made).run(None, {"x": x}), found.items(), strict=True):
        assert (y.dtype, y.shape) == (expected.dtype, expected.shape)
        np.testing.assert_allclose(np.asarray(y), expected, rtol=1e-4, atol=1e-5)
        assert form_of(y).is_same(inferred.tensor_forms[name].with_shape(y.shape))
    return found, counters


# ------------------------------------------------------------------------------------------------ random graphs


def compare(made, data, team=None):
    plain, feeds = made
    n = data.draw(st.sampled_from([2, 4, 8])) if team is None else team.size
    cut = annotated(data.draw(st.randoms(use_true_random=False)), plain, n, feeds)
    with np.errstate(all="ignore"), dx.config.set(eager_bytes=data.draw(st.sampled_from([0, 1 << 17]))):
        found = load(cut, team=team).run(feeds)
        inferred = load(cut).infer()
        is_annotated = any(e.sharding_spec for node in cut.graph.node for e in node.device_configurations)
        again = load(type(plain).FromString(inferred.model.SerializeToString())).infer()
        assert (again.model, again.forms, again.reshards) == (inferred.model, inferred.forms, inferred.reshards)
        for expected, (name, y) in zip(ReferenceEvaluator(plain).run(None, feeds), found.items(), strict=True):
            assert (y.dtype, y.shape) == (expected.dtype, expected.shape), name
            form = inferred.tensor_forms.get(name)
            # what nobody says anything about, and is whole everywhere, lies where the planner has it
            makers = [node for node in cut.graph.node if name in node.output]
            is_said = any(entry.sharding_spec for node in makers for entry in node.device_configurations)
            is_placed = is_said or (team is not None and is_annotated and makers)
            if form is not None and (is_placed or form.owners != (everywhere(n),)):
                assert form_of(y).is_same(form.with_shape(y.shape)), name
                assert team is None or owned(team.client, y) == form.owners, name
            np.testing.assert_allclose(np.asarray(y), expected, rtol=2e-4, atol=2e-4, err_msg=name)


@settings(max_examples=30)
@given(models(), st.data())
def test_random_graphs_with_random_legal_specs_equal_the_reference(made, data):
    """onnx:A-4, onnx:A-5, onnx:A-3, onnx:A-1: also that every output lies as the form of its tensor says, and that what
    is completed stays what it is when it is written and read.
    """
    compare(made, data)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@settings(max_examples=1000)
@given(models(), st.data())
def test_many_random_graphs_with_random_legal_specs_equal_the_reference(made, data):
    """onnx:A-4, onnx:A-5."""
    compare(made, data)


# ------------------------------------------------------------------------------------------------ where things lie


@pytest.mark.parametrize(
    "cut",
    [
        spec([3, 1], (0, 8, 2)),
        spec([2, 0, 1, 3], (0, 8, 2), (1, 6, 2)),
        spec([1, 1, 0], (0, 8, 3)),
        spec([0, 1, 2, 3, 0, 1, 2, 3, 0, 1], (0, 8, 10)),
        spec([2]),
        spec([0, 1], (0, (2, 1), (4, 2))),
    ],
)
def test_every_member_holds_the_parts_that_it_owns_and_no_others(cut):
    """onnx:A-5, onnx:S-1, onnx:S-4, onnx:S-7, onnx:S-8: owners in any order, several or empty shards, fused axes."""
    found, counters = check(model(node("Exp", "x", "y", ("x", cut)), devices=4))
    (y,) = found.values()
    form = form_of(y)
    blocks = list(stored(y).iter_blocks())
    assert [frozenset([block.member]) for block in blocks] == list(form.owners)
    assert sum(block.values.size for block in blocks) == X.size
    assert counters.bytes_moved == 0


def test_parameters_of_unary_nodes_are_not_cut_as_their_input_is():
    """onnx:U-1, onnx:S-7: what CastLike takes only the type of may have any axes."""
    fused = spec([0, 1], (0, (2, 1), (4, 2)))
    like = {"like": np.zeros((2, 0, 3, 1), "f8")}
    check(model(node("CastLike", "x,like", "y", ("x", fused), ("y", fused)), weights=like))
    check(model(node("Clip", "x,low", "y", ("x", fused)), weights={"low": np.float32(0)}))


def test_threads_that_own_a_shard_share_its_memory():
    """onnx:S-3: the type names all owners; in one process a block is there once."""
    found, _ = check(model(node("Exp", "x", "y", ("x", spec([[2, 1], [3]], (0, 8, 2)))), devices=4))
    (y,) = found.values()
    assert form_of(y).owners == (frozenset({1, 2}), frozenset({3}))
    assert [block.member for block in y.iter_blocks()] == [1, 3]
    assert [y.local(member).shape for member in range(4)] == [(0, 0), (4, 6), (4, 6), (4, 6)]
    assert np.shares_memory(y.local(1), y.local(2))


def test_arrays_and_specs_go_both_ways():
    """onnx:A-1."""
    team = dx.Team((4,), ("d",))
    for cut in (spec([3, 1], (0, 8, 2)), spec([[0, 2], [1]], (1, 6, 2)), spec([0, 1], (0, (2, 1), (4, 2)))):
        x = dx.io.onnx.from_spec(X, cut, team=team)
        proto = dx.io.onnx.spec_of(x, "x")
        again = dx.io.onnx.from_spec(X, proto, team=team)
        assert form_of(again).is_same(form_of(x))
        np.testing.assert_array_equal(np.asarray(x), X)
        x.persist()
        assert dx.io.onnx.from_spec(x, proto, team=team) is x
    with pytest.raises(ShardingError, match="device-out-of-range"):
        dx.io.onnx.from_spec(X, spec([0, 4], (0, 8, 2)), team=team)


def test_cuts_that_the_team_can_say_are_its_own():
    """onnx:A-1: there is one type system; owners are listed only where the axes of the team do not say them."""
    team = dx.Team((2, 2), ("a", "b"))
    x = dx.io.onnx.from_spec(X, spec([[0, 1], [2, 3]], (0, 8, 2)), team=team)
    assert x.sharding == dx.asarray(X, team=team, sharding=("a", None)).sharding


# ------------------------------------------------------------------------------------------------------ what moves


def test_elementwise_nodes_move_nothing():
    """onnx:A-6."""
    found, counters = check(
        model(node("Add", "x,w", "h", ("x", ROWS), ("w", ROWS)), node("Tanh", "h", "y"), weights={"w": W.T.copy()})
    )
    assert counters.bytes_moved == 0
    assert found["y"].sharding.parts == (2, 1)


def test_shards_that_broadcast_to_each_other_meet_where_both_are():
    """onnx:A-6, onnx:N-3."""
    rows = spec([[0, 1], [2, 3], [4, 5]], (0, 9, 3))
    columns = spec([[0, 2, 4], [1, 3, 5]], (1, 10, 2))
    w = np.arange(10, dtype="f4")[None]
    made = model(node("Sub", "x,w", "y", ("x", rows), ("w", columns)), weights={"w": w}, shape=(9, 1), devices=6)
    found, counters = check(made, np.arange(9, dtype="f4")[:, None])
    assert [block.member for block in found["y"].iter_blocks()] == [0, 1, 2, 3, 4, 5]
    assert counters.bytes_moved == 0


@pytest.mark.parametrize("devices", [2, 4])
def test_two_layers_have_one_all_reduce(devices):
    """onnx:A-6: the parts of the sum are all that moves."""
    made = perceptron(devices=devices)
    _, counters = check(made)
    assert load(made).plan().collectives == {"all-reduce": 1}
    assert counters.bytes_moved == (devices - 1) * 8 * 4 * 4


def test_a_sum_whose_result_is_cut_is_a_reduce_scatter():
    """onnx:A-6: each member receives the parts of its own elements."""
    made = perceptron(("y", ROWS))
    _, counters = check(made)
    plan = load(made).plan()
    assert plan.collectives == {"reduce-scatter": 1}
    assert counters.bytes_moved == plan.nbytes == 8 * 4 * 4
    assert sorted(t.destination for t in counters.transfers) == [0, 1]


@pytest.mark.parametrize("op", ["ReduceSum", "ReduceMean", "ReduceL2", "ReduceLogSumExp", "ReduceMax", "ReduceProd"])
def test_a_reduction_to_one_device_is_a_reduce(op):
    """onnx:A-6, onnx:R-2, onnx:R-3."""
    axes = {"axes": np.array([0])}
    made = model(node(op, "x,axes", "y", ("x", spec([1, 0, 1], (0, 8, 3))), ("y", spec([1]))), weights=axes)
    found, counters = check(made)
    plan = load(made).plan()
    assert plan.collectives == {"reduce": 1}
    itemsize = 8 if op == "ReduceMean" and found["y"].dtype == np.float64 else 4
    assert counters.bytes_moved == 6 * itemsize
    assert {t.destination for t in counters.transfers} == {1}


@pytest.mark.parametrize("op", ["ReduceSum", "ReduceMean", "ReduceL2", "ReduceLogSumExp", "ReduceMax"])
def test_a_reduction_over_no_axes_does_what_comes_before_and_after(op):
    """onnx:R-3."""
    no_axes = {"axes": np.array([], np.int64)}
    check(model(node(op, "x,axes", "y", ("x", ROWS), noop_with_empty_axes=1), weights=no_axes))
    check(model(node(op, "x,axes", "y", ("x", ROWS), keepdims=0), weights=no_axes))


@pytest.mark.parametrize(
    "op", ["ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMean", "ReduceSumSquare"]
)
def test_a_reduction_of_integers_in_parts_is_one_of_integers(op):
    """onnx:R-3: no part is cut down to an integer."""
    x = np.random.default_rng(3).integers(1, 9, (8, 6), np.int32)
    axes = {"axes": np.array([0])}
    whole = load(model(node(op, "x,axes", "y"), weights=axes, devices=0, dtype=TensorProto.INT32)).run({"x": x})["y"]
    made = model(node(op, "x,axes", "y", ("x", ROWS)), weights=axes, dtype=TensorProto.INT32)
    found = run(made, x)[0]["y"]
    assert found.dtype == whole.dtype == np.int32
    np.testing.assert_array_equal(np.asarray(found), np.asarray(whole))


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
def test_positions_are_those_of_the_whole_axis(op, last):
    """onnx:R-3: the first of equal elements, or the last."""
    x = np.array([[3, 1], [0, 1], [3, 0], [0, 0]], "f4")
    x = np.concatenate([x, x])
    made = model(node(op, "x", "y", ("x", spec([1, 0, 1], (0, 8, 3))), axis=0, select_last_index=last), shape=(8, 2))
    check(made, x)


def test_an_output_in_another_form_is_one_reshard():
    """onnx:A-7, onnx:G-3, onnx:G-4."""
    columns = spec([0, 1], (1, 6, 2))
    made = model(node("Exp", "x", "h", ("x", ROWS), ("h", columns)), node("Neg", "h", "y", ("h", ROWS)))
    plan = load(made).plan()
    assert [(e.tensor, e.when, e.collective) for e in plan.edges] == [
        ("x", "before", "slice"), ("h", "after", "all-to-all"), ("h", "before", "all-to-all"),
    ]  # fmt: skip
    assert plan.edges[1].received == plan.edges[2].received == (48, 48)
    check(made)


@pytest.mark.parametrize("is_after", [True, False])
def test_a_reshard_keeps_to_the_memory_or_is_refused_before_any_task(is_after):
    """onnx:A-7: the planner of redistributions makes it, and of a member's memory takes no more than is allowed."""
    n = 1024
    rows, columns = spec([0, 1, 2, 3], (0, n, 4)), spec([3, 2, 1, 0], (1, n, 4))
    nodes = [node("Exp", "x", "y", ("x", rows), ("y", columns))]
    if not is_after:
        nodes = [node("Exp", "x", "h", ("x", rows)), node("Neg", "h", "y", ("h", columns))]
    made, x = model(*nodes, shape=(n, n), devices=4), np.ones((n, n), "f4")
    assert load(made).plan().collectives == {"all-to-all": 1}
    allowed = x.nbytes  # a quarter before, a quarter after, and what is on its way
    with dx.config.set(memory_limit=allowed):
        y = load(made).run({"x": x})["y"]
        text = str(y.explain())
        assert text.count("in place (one process)" if is_after else "reshard x2, negative") == 1
        with counting() as counters:
            y.persist()
        assert 0 < counters.predicted_peak <= allowed
    with dx.config.set(memory_limit=x.nbytes // 4), counting() as counters:
        with pytest.raises(dx.MemoryBudgetError, match="a member would hold"):
            load(made).run({"x": x})["y"].persist()
        assert counters.tasks == 0


def test_sizes_that_are_symbols_are_known_when_inputs_are():
    """onnx:A-11."""
    made = model(node("Exp", "x", "y", ("x", spec([0, 1], (0, None, 2)))), shape=("n", 6))
    assert load(made).plan().nbytes is None
    assert load(made).plan({"x": (8, 6)}).nbytes == 0
    check(made)
    made = model(node("Exp", "x", "y", ("x", spec([0, 1], (0, 10, 2)))), shape=("n", 6))
    assert load(made).check() == []
    with pytest.raises(ShardingError, match="dim-mismatch"):
        load(made).run({"x": X})


@pytest.mark.parametrize(
    "nodes",
    [
        [node("Add", "x,w", "y", ("x", ROWS), ("w", spec([[0, 1]])))],
        [node("MatMul", "x,v", "y", ("x", spec([1, 0], (1, 6, 2))), ("v", spec([[0, 1]])))],
    ],
)
def test_whole_operands_are_sliced_where_they_lie(nodes):
    """onnx:A-10."""
    made = model(*nodes, weights={"w": W.T.copy(), "v": W})
    with pytest.raises(ShardingError, match="axis-sharding-mismatch"):
        load(made).run({"x": X})
    with counting() as counters:
        y = load(made).run({"x": X}, strict=False)["y"].persist()
    np.testing.assert_allclose(np.asarray(y), ReferenceEvaluator(made).run(None, {"x": X})[0], rtol=1e-4)
    assert counters.bytes_moved == (8 * 8 * 4 if nodes[0].op_type == "MatMul" else 0)
    assert [e.collective for e in load(made).plan(strict=False).edges if e.collective != "slice"] == (
        ["all-reduce"] if nodes[0].op_type == "MatMul" else []
    )


def test_subgraphs_see_tensors_in_their_forms():
    """onnx:A-8: If is not annotated, and reads what is cut."""
    branches = {}
    for name, op in (("then_branch", "Neg"), ("else_branch", "Abs")):
        inner = [helper.make_node(op, ["h"], [f"{name}_y"])]
        out = helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, None)
        branches[name] = helper.make_graph(inner, name, [], [out])
    made = model(node("Exp", "x", "h", ("x", ROWS)), node("If", "c", "y", **branches), weights={"c": np.array(False)})
    np.testing.assert_allclose(np.asarray(run(made)[0]["y"]), np.exp(X), rtol=1e-5)


# ------------------------------------------------------------------------------------------ without annotations


def test_models_without_annotations_have_the_same_numbers():
    """onnx:A-8."""
    made = perceptron()
    for n in made.graph.node:
        del n.device_configurations[:]
    del made.configuration[:]
    expected = ReferenceEvaluator(made).run(None, {"x": X})[0]
    for options in ({}, {"team": dx.Team((2,), ("d",))}):
        found, _ = run(made, **options)
        np.testing.assert_allclose(np.asarray(found["y"]), expected, rtol=1e-5)


def test_nodes_that_nobody_says_anything_about_are_cut_as_the_planner_sees_fit():
    """onnx:A-8: also in a model with annotations."""
    team = dx.Team((2,), ("d",), members=range(2))
    cut = dx.asarray(X, team=team, sharding=("d", None)).persist()
    made = model(node("Exp", "x", "h"), node("Transpose", "h", "y", ("h", spec([1, 0], (1, 6, 2)))))
    made.graph.output.append(helper.make_tensor_value_info("h", 0, None))
    found = load(made, team=team).run({"x": cut})
    assert found["h"].sharding == cut.sharding
    assert form_of(found["y"]).owners == (frozenset([1]), frozenset([0]))
    np.testing.assert_allclose(np.asarray(found["y"]), np.exp(X).T, rtol=1e-5)


def test_unsupported_operators_run_plain_and_are_refused_where_they_are_annotated():
    """onnx:A-8."""
    plain = node("LpNormalization", "h", "y")
    check(model(node("Exp", "x", "h", ("x", ROWS)), plain))
    made = model(node("LpNormalization", "x", "y", ("x", ROWS)))
    with pytest.raises(ShardingError, match=r"LpNormalization_y \(LpNormalization\): F-1 unsupported-op"):
        load(made).run({"x": X})


def test_inputs_are_refused_that_lie_elsewhere_or_do_not_fit():
    made = model(node("Exp", "x", "y", ("x", ROWS)))
    with pytest.raises(ValueError, match="lies on Team"):
        load(made).run({"x": dx.asarray(X, team=dx.Team((4,), ("d",)))})
    with pytest.raises(ValueError, match="has 2 devices, but the team has 4"):
        load(made).run({"x": X}, team=dx.Team((4,), ("d",)))
    with pytest.raises(TypeError, match="has dtype float64"):
        load(made).run({"x": X.astype("f8")})


def test_what_lies_in_its_form_is_read_there():
    """onnx:A-6: no copy of an input."""
    team = dx.Team((2,), ("d",))
    x = dx.asarray(X, team=team, sharding=("d", None)).persist()
    with counting() as counters:
        y = load(model(node("Exp", "x", "y", ("x", ROWS))), team=team).run({"x": x})["y"].persist()
    assert (counters.bytes_moved, counters.tasks) == (0, 2)
    np.testing.assert_allclose(np.asarray(y), np.exp(X), rtol=1e-5)


def test_a_run_is_deferred():
    made = load(model(node("Exp", "x", "y", ("x", ROWS))))
    with counting() as counters:
        y = made.run({"x": X})["y"]
        assert counters.tasks == 0
    np.testing.assert_allclose(np.asarray(y), np.exp(X), rtol=1e-5)


# ---------------------------------------------------------------------------------------------------- command line


def test_the_command_line_plans_and_runs(tmp_path, capsys):
    path, file = str(tmp_path / "m.onnx"), str(tmp_path / "x.npy")
    onnx.save(perceptron(), path)
    np.save(file, X)
    assert command.main(["onnx", "plan", path]) == 0
    assert "all-reduce" in capsys.readouterr().out
    assert command.main(["onnx", "plan", path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["collectives"] == {"all-reduce": 1}
    assert command.main(["onnx", "run", path, "--input", f"x={file}", "--json", "--team", "2"]) == 0
    found = json.loads(capsys.readouterr().out)["y"]
    assert (found["dtype"], found["shape"]) == ("float32", [8, 4])
    np.testing.assert_allclose(found["values"], np.maximum(X @ W, 0) @ V, rtol=1e-4)
    assert command.main(["onnx", "run", path, "--input", f"x={file}"]) == 0
    assert "y: " in capsys.readouterr().out
    assert command.main(["onnx", "run", path, "--input", file]) == 2
    assert "x=FILE.npy" in capsys.readouterr().err
    np.savez(tmp_path / "x.npz", x=X)
    np.save(tmp_path / "double.npy", X.astype("f8"))
    for action, name, text in (
        ("plan", "x.npz", "an archive"),
        ("run", "x.npz", "an archive"),
        ("run", "double.npy", "has dtype"),
    ):
        assert command.main(["onnx", action, path, "--input", f"x={tmp_path / name}"]) == 2
        assert text in capsys.readouterr().err
    assert command.main(["onnx", "run", path, "--team", "3"]) == 2
    assert "the team has 3" in capsys.readouterr().err


# --------------------------------------------------------------------------------------------------------- cluster


def received_by(counters, n):
    found = [0] * n
    for t in counters.transfers:
        found[t.destination] += t.nbytes
    return tuple(found)


def at_worker(dask_worker, key):
    """A block in the store of a worker, which may be in a bundle; None if it is not there."""
    bundle = bundle_of(key)
    found = dask_worker.data.get(key if bundle is None else bundle[0])
    return found if bundle is None or found is None else found[bundle[1]]


def owned(client, y):
    """By number of a shard the devices whose workers have it, and the blocks there, which are equal bit by bit."""
    node = stored(y).persist().__dx_node__()
    place(node)
    dx.wait(stored(y))
    memo, members = node.memo, y.team.members
    tiles = dealt(memo.sharding)
    shards = {number: shard for (shard, _), number in tiles.copies.items()}
    owners, blocks = {}, {}
    for number, ((member, _), block) in enumerate(zip(tiles.places, memo.blocks, strict=True)):
        shard, at = shards.get(number, number), members[member]
        here = block if isinstance(block, np.ndarray) else client.run(at_worker, key=block.key, workers=[at])[at]
        assert here is not None and blocks.setdefault(shard, here).tobytes() == here.tobytes()
        owners.setdefault(shard, set()).add(member)
    return tuple(frozenset(owners[shard]) for shard in sorted(owners))


ALL4, ROWS4 = spec([[0, 1, 2, 3]]), spec([0, 1, 2, 3], (0, 8, 4))
ON_FOUR = {
    "two layers": (perceptron(devices=4), {"all-reduce": 1}, (192,) * 4),
    "two layers, cut": (perceptron(("y", ROWS4), devices=4), {"reduce-scatter": 1}, (96,) * 4),
    "two layers, one device": (perceptron(("y", spec([2])), devices=4), {"reduce": 1}, (0, 0, 384, 0)),
    "replicas": (
        model(node("Exp", "x", "h", ("x", ALL4)), node("Add", "h,w", "y"), weights={"w": W.T.copy()}, devices=4),
        {},
        (0,) * 4,
    ),
    "groups": (
        model(node("Exp", "x", "h", ("x", spec([[0, 1], [2, 3]], (0, 8, 2)))), node("Neg", "h", "y"), devices=4),
        {},
        (0,) * 4,
    ),
    "a product, and along an axis": (
        model(
            node("MatMul", "x,w", "h", ("x", ALL4)),
            node("Softmax", "h", "s"),
            node("Transpose", "s", "y"),
            weights={"w": W},
            devices=4,
        ),
        {},
        (0,) * 4,
    ),
    "whole again": (
        model(node("Exp", "x", "h", ("x", ROWS4), ("h", ALL4)), node("Neg", "h", "y"), devices=4),
        {"all-gather": 1},
        (144,) * 4,
    ),
    "slices of replicas": (
        model(node("Exp", "x", "h", ("x", ALL4)), node("Neg", "h", "y", ("h", spec([3, 1], (1, 6, 2)))), devices=4),
        {},
        (0,) * 4,
    ),
    "a sum at another device": (
        model(
            node("ReduceSum", "x,axes", "y", ("x", ROWS4), ("y", spec([2]))), weights={"axes": np.array([0])}, devices=4
        ),
        {"reduce": 1},
        (0, 0, 72, 0),
    ),
    "uneven sums": (
        model(node("ReduceMean", "x,axes", "y", ("x", ROWS4)), weights={"axes": np.array([0])}, devices=4),
        {"all-reduce": 1},
        None,
    ),
    "sums of two groups": (
        model(
            node("ReduceL2", "x,axes", "y", ("x", spec([[0, 1], [2, 3]], (0, 8, 2)))),
            weights={"axes": np.array([0])},
            devices=4,
        ),
        {"all-reduce": 1},
        None,
    ),
}


@pytest.mark.cluster
@pytest.mark.parametrize("n", [10, pytest.param(200, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])])
def test_random_graphs_on_a_cluster_equal_the_reference(cluster4, n):
    """onnx:A-4, onnx:A-5: each worker has what its device owns."""
    team = dx.Team((4,), ("d",))

    @settings(max_examples=n)
    @given(models(), st.data())
    def check(made, data):
        compare(made, data, team)

    check()


@pytest.mark.cluster
@pytest.mark.parametrize("name", ON_FOUR)
def test_on_a_cluster_every_owner_has_its_shards_and_gets_what_the_plan_says(cluster4, name):
    """onnx:A-5, onnx:A-6, onnx:A-4: also that replicas are equal bit by bit; what comes to each device is counted."""
    made, collectives, expected = ON_FOUR[name]
    loaded = load(made, team=dx.Team((4,), ("d",)))
    plan = loaded.plan()
    assert plan.collectives == collectives
    with dx.config.set(eager_bytes=0), counting() as counters:
        y = loaded.run({"x": X})["y"]
        stored(y).persist()
    received = received_by(counters, 4)
    assert received == tuple(np.sum([e.received for e in plan.edges], axis=0, dtype=int) if plan.edges else (0,) * 4)
    assert expected is None or received == expected
    assert owned(cluster4, y) == loaded.infer().tensor_forms["y"].with_shape(y.shape).owners
    np.testing.assert_allclose(np.asarray(y), ReferenceEvaluator(made).run(None, {"x": X})[0], rtol=1e-4)


@pytest.mark.cluster
def test_replicated_weights_are_sent_in_the_first_run_alone(cluster4):
    """onnx:A-6: large ones, which no task carries; they lie at each owner as long as the model is there."""
    n = 600
    w = np.random.default_rng(3).standard_normal((n, n)).astype("f4")
    made = model(
        node("MatMul", "x,w", "y", ("x", spec([0, 1, 2, 3], (0, 8, 4)))), weights={"w": w}, shape=(8, n), devices=4
    )
    loaded, x = load(made, team=dx.Team((4,), ("d",))), np.ones((8, n), "f4")
    puts = []
    for _ in range(3):
        before = cluster4.run_on_scheduler(
            lambda dask_scheduler: {k for k in dask_scheduler.tasks if "source" in str(k)}
        )
        with counting() as counters:
            y = loaded.run({"x": x})["y"].persist()
            np.testing.assert_allclose(np.asarray(y), x @ w, rtol=1e-3)
        after = cluster4.run_on_scheduler(
            lambda dask_scheduler: {k for k in dask_scheduler.tasks if "source" in str(k)}
        )
        puts.append(len(after - before))
        assert counters.bytes_moved == 0
    assert puts == [8, 4, 4]  # blocks of the weights and of the input, then those of the input alone


@pytest.mark.cluster
def test_a_worker_that_is_lost_between_two_nodes_changes_no_value(mortal_cluster):
    """onnx:A-4, onnx:A-5."""
    team = dx.Team((3,), ("d",))
    made = perceptron(devices=3)
    loaded = load(made, team=team)
    expected = ReferenceEvaluator(made).run(None, {"x": X})[0]
    with dx.config.set(eager_bytes=0):
        first = loaded.run({"x": X})["y"].persist()
        dx.wait(first)
        os.kill(mortal_cluster.run(os.getpid)[team.members[1]], signal.SIGKILL)
        second = loaded.run({"x": X})["y"].persist()
        np.testing.assert_allclose(np.asarray(second), expected, rtol=1e-4)
        np.testing.assert_array_equal(np.asarray(first), np.asarray(second))


@pytest.mark.cluster
def test_what_moves_on_a_cluster_is_what_the_plan_says(process_cluster):
    """onnx:A-4, onnx:A-5, onnx:A-6, onnx:A-7."""
    team = dx.Team((2,), ("d",))
    moved = {}
    for name, made in {
        "elementwise": model(node("Exp", "x", "h", ("x", spec([1, 0], (0, 8, 2)))), node("Neg", "h", "y")),
        "all-reduce": perceptron(),
        "reduce-scatter": perceptron(("y", ROWS)),
        "reduce": perceptron(("y", spec([1]))),
        "all-to-all": model(node("Exp", "x", "y", ("x", ROWS), ("y", spec([1, 0], (1, 6, 2))))),
    }.items():
        found, counters = run(made, team=team)
        np.testing.assert_allclose(np.asarray(found["y"]), ReferenceEvaluator(made).run(None, {"x": X})[0], rtol=1e-4)
        moved[name] = counters.bytes_moved
        plan = load(made, team=team).plan()
        assert list(plan.collectives) == ([name] if name != "elementwise" else [])
        assert plan.nbytes == moved[name], name
    assert moved == {"elementwise": 0, "all-reduce": 256, "reduce-scatter": 128, "reduce": 128, "all-to-all": 96}


def test_threads_run_one_model_with_inputs_of_several_sizes():
    """What follows for the inputs of a run is what that run gets, whatever another thread runs meanwhile."""

    class Model(RunningModel):
        """A model whose last run is always one of another thread."""

        @property
        def _last(self):
            return None, None, None

        @_last.setter
        def _last(self, value):
            """Be overtaken."""

    made = model(node("Relu", "x", "y", ("x", spec([0, 1], (0, "n", 2)))), shape=("n", 6))
    running = Model(made, None, "team", process_team(2))
    for n in (4, 6):
        y = running.run({"x": X[:n]}, strict=True)["y"]
        np.testing.assert_array_equal(np.asarray(y), np.maximum(X[:n], 0))
