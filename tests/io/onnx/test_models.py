"""Models: rules of graphs, reading and writing, completing, and files that nobody should trust."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from onnx_specs import spec

import distarray as dx
from distarray import __main__ as command
from distarray.io.onnx import ShardingError, load

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from distarray.io.onnx.protobuf import spec_from_proto, spec_to_proto  # noqa: E402

ROW = spec([0, 1], (0, 4, 2))
WHOLE = spec([[0, 1]])


def node(op, inputs, outputs, *annotations, stage=None, configuration="pair", **attrs):
    made = helper.make_node(op, inputs.split(","), outputs.split(","), name=f"{op}_{outputs}", **attrs)
    if annotations or stage is not None:
        entry = made.device_configurations.add(configuration_id=configuration)
        entry.sharding_spec.extend([spec_to_proto(s, name) for name, s in annotations])
        if stage is not None:
            entry.pipeline_stage = stage
    return made


def model(*nodes, shape=(4, 6), weights=None, configurations=(("pair", 2),), ir_version=11):
    values = {name: np.ones(n, "f4") for name, n in (weights or {}).items()}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, None)],
        [numpy_helper.from_array(v, n) if isinstance(v, np.ndarray) else v for n, v in values.items()],
    )
    made = helper.make_model(graph, ir_version=ir_version, opset_imports=[helper.make_opsetid("", 21)])
    for name, devices in configurations:
        entry = made.configuration.add()
        if name is not None:
            entry.name = name
        if devices is not None:
            entry.num_devices = devices
    return made


def codes(made, **options):
    return [violation.code for violation in load(made).check(**options)]


def perceptron():
    """Two layers: the first weight cut along N, the second along K."""
    return model(
        node("MatMul", "x,w", "h", ("x", WHOLE), ("w", spec([0, 1], (1, 8, 2)))),
        node("Relu", "h", "r"),
        node("MatMul", "r,v", "y", ("v", spec([0, 1], (0, 8, 2)))),
        weights={"w": (6, 8), "v": (8, 4)},
    )


def test_forms_follow_through_a_model_and_are_written_at_every_node():
    """onnx:G-1, onnx:G-2, onnx:G-3, onnx:A-3."""
    made = perceptron()
    before = made.SerializeToString()
    inferred = load(made).infer()
    forms = inferred.forms
    assert (forms["h"]["grid"], forms["h"]["owners"]) == ([1, 2], [[0], [1]])
    assert (forms["r"]["grid"], forms["y"]["owners"]) == ([1, 2], [[0, 1]])
    assert forms["x"]["owners"] == [[0, 1]]
    for n in inferred.model.graph.node:
        (entry,) = n.device_configurations
        assert {s.tensor_name for s in entry.sharding_spec} == {*n.input, *n.output}
    again = load(inferred.model).infer()
    assert (again.model, again.forms, again.reshards) == (inferred.model, forms, inferred.reshards)
    assert inferred.infer().model == inferred.model
    assert made.SerializeToString() == before
    assert inferred.reshards == [{"tensor": "w", "before": "MatMul_h"}, {"tensor": "v", "before": "MatMul_y"}]


def test_differing_inputs_and_outputs_are_one_reshard_each():
    """onnx:G-3, onnx:G-4, onnx:A-7."""
    made = model(
        node("Relu", "x", "a", ("x", WHOLE), ("a", ROW)), node("Abs", "a", "b", ("a", spec([1, 0], (0, 4, 2))))
    )
    inferred = load(made).infer()
    assert inferred.reshards == [{"tensor": "a", "before": None}, {"tensor": "a", "before": "Abs_b"}]
    assert inferred.forms["b"]["owners"] == [[1], [0]]


def test_models_without_annotations_are_replicated():
    """onnx:G-2, onnx:A-8: operators that cannot be annotated too."""
    made = model(node("LpNormalization", "x", "a"), node("Reshape", "a,s", "b"), configurations=(), weights={})
    made.graph.input.append(helper.make_tensor_value_info("s", TensorProto.INT64, [3]))
    found = load(made, team=dx.Team((3,), ("d",))).infer()
    assert found.configuration is None
    assert found.forms["b"]["owners"] == [[0, 1, 2]]
    assert codes(model(node("LpNormalization", "x", "a", ("x", ROW)))) == ["unsupported-op"]
    gathered = model(node("Relu", "x", "a", ("x", ROW)), node("LpNormalization", "a", "b"))
    assert codes(gathered) == ["gathered"]
    assert load(gathered).infer().forms["b"]["grid"] == [1, 1]
    assert {"tensor": "a", "before": "LpNormalization_b"} in load(gathered).infer().reshards
    partly = model(node("Relu", "x", "a", ("x", ROW)), node("Einsum", "a", "b", equation="ii->i"), shape=(4, 4))
    assert codes(partly) == ["gathered"]
    assert load(load(gathered).infer().model).check()[0].code == "gathered"


def test_one_spec_serves_a_tensor_used_twice():
    """onnx:G-5."""
    assert load(model(node("Mul", "x,x", "y", ("x", ROW)))).infer().forms["y"]["grid"] == [2, 1]


BROKEN = [
    (model(node("Relu", "x", "y", ("x", ROW), ("x", ROW))), ["duplicate-spec"]),
    (model(node("Relu", "x", "y", ("model_x", ROW))), ["unknown-tensor"]),
    (model(node("Clip", "x,,", "y", ("", ROW))), ["unknown-tensor"]),
    (model(node("Relu", "x", "y", ("x", ROW), configuration="other")), ["unknown-configuration"]),
    (model(node("Relu", "x", "y", stage=-1)), ["pipeline-stage"]),
    (model(node("Relu", "x", "y", ("x", ROW)), configurations=((None, 2),)), ["configuration-name-missing"]),
    (model(node("Relu", "x", "y", ("x", ROW)), configurations=(("pair", None),)), ["num-devices-missing"]),
    (model(node("Relu", "x", "y", ("x", ROW)), configurations=(("pair", 10**9),)), ["num-devices-invalid"]),
    (model(node("Relu", "x", "y", ("x", ROW)), ir_version=10), ["ir-version"]),
    (model(node("Relu", "x", "y")), ["nothing-annotated"]),
    (model(node("Relu", "x", "y", ("x", spec([0, 7], (0, 4, 2)))), node("Abs", "y", "z")), ["device-out-of-range"]),
]


@pytest.mark.parametrize(("made", "expected"), BROKEN, ids=lambda value: value[0] if isinstance(value, list) else "")
def test_what_is_wrong_with_a_model_is_said_once(made, expected):
    """onnx:G-5, onnx:G-6, onnx:A-2, onnx:A-12."""
    assert codes(made) == expected
    found = load(made).check()
    if found[0].severity == "error":
        with pytest.raises(ShardingError) as error:
            load(made).infer()
        assert error.value.violations == tuple(found)
        assert isinstance(error.value, ValueError)
    else:
        load(made).infer()


def test_two_entries_for_one_configuration_and_wrong_names_of_devices():
    """onnx:G-5."""
    twice = model(node("Relu", "x", "y", ("x", ROW)))
    twice.graph.node[0].device_configurations.append(twice.graph.node[0].device_configurations[0])
    assert codes(twice) == ["duplicate-configuration"]
    named = model(node("Relu", "x", "y", ("x", ROW)))
    named.configuration[0].device.append("one")
    assert codes(named) == ["device-names-length"]


def test_stages_change_nothing():
    """onnx:G-6."""
    found = load(model(node("Relu", "x", "y", ("x", ROW), stage=3))).infer()
    assert found.stages == {"Relu_y": 3}
    assert found.forms == load(model(node("Relu", "x", "y", ("x", ROW)))).infer().forms
    assert found.model.graph.node[0].device_configurations[0].pipeline_stage == 3


def test_configurations_are_chosen_by_name():
    """onnx:A-9."""
    made = model(node("Relu", "x", "y", ("x", ROW)), configurations=(("pair", 2), ("four", 4)))
    with pytest.raises(ValueError, match="'pair', 'four'"):
        load(made)
    assert load(made, "four").infer().forms["y"]["owners"] == [[0, 1, 2, 3]]
    assert load(made, "pair").infer().forms["y"]["owners"] == [[0], [1]]
    with pytest.raises(ValueError, match="'nine' does not exist"):
        load(made, "nine")
    with pytest.raises(ValueError, match="2 devices, but the team has 3"):
        load(made, "pair", dx.Team((3,), ("d",)))


def test_whole_operands_are_sliced_where_that_is_allowed():
    """onnx:A-10."""
    made = model(node("Add", "x,w", "y", ("x", ROW)), weights={"w": (4, 6)})
    assert codes(made) == ["axis-sharding-mismatch"]
    assert codes(made, strict=False) == ["local-slice"]
    assert load(made).infer(strict=False).forms["y"]["grid"] == [2, 1]


def test_symbols_are_checked_without_sizes():
    """onnx:A-11."""
    made = model(node("Relu", "x", "y", ("x", spec([0, 1], (0, "batch", 2)))), shape=("batch", 6))
    assert codes(made) == []
    assert load(made).infer().forms["y"]["shape"] == ["batch", 6]


@pytest.mark.parametrize(
    "annotation",
    [
        spec([0, 1], (0, 4, 2)),
        spec([[0, 1], 1], (-1, 4, 2)),
        spec([], (0, None, 2)),
        spec([0], (0, "N", 1)),
        spec([0, 1], (0, (2, 1), (4, 2))),
        {"device": [5], "groups": [[5, []], [5, [1, 1]]], "sharded": [{"axis": 9, "shards": [{"dim": 0}]}]},
    ],
)
def test_specs_come_back_from_the_protobuf(annotation):
    """onnx:A-1."""
    proto = spec_to_proto(annotation, "t")
    assert spec_from_proto(onnx.ShardingSpecProto.FromString(proto.SerializeToString())) == annotation


def test_models_come_back_from_files_unchanged(tmp_path):
    """onnx:A-1."""
    inferred = load(perceptron()).infer()
    onnx.save(inferred.model, tmp_path / "m.onnx")
    assert load(tmp_path / "m.onnx").infer().model == inferred.model


def test_models_come_back_from_onnx_ir_unchanged():
    """onnx:A-13."""
    ir = pytest.importorskip("onnx_ir")
    made = load(perceptron()).infer()
    assert load(ir.to_proto(ir.from_proto(made.model))).infer().forms == made.forms


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # making the cases casts what overflows
def test_all_conformance_models_are_legal_and_have_the_shapes_that_they_declare():
    """onnx:A-2, onnx:A-8: the node cases of the onnx package, without annotations; there are no exceptions."""
    from onnx.backend.test.case.node import collect_testcases

    seen, wrong = 0, []
    for case in collect_testcases(None):
        if case.model is None or any(n.domain not in ("", "ai.onnx") for n in case.model.graph.node):
            continue
        seen += 1
        made = load(case.model)
        errors = [str(violation) for violation in made.check() if violation.severity == "error"]
        if errors:
            wrong.append((case.name, errors[0]))
            continue
        forms = made.infer().forms
        for output in case.model.graph.output:
            if output.type.tensor_type.HasField("shape"):
                declared = [d.dim_value or d.dim_param for d in output.type.tensor_type.shape.dim]
                found = forms[output.name]["shape"]
                if len(found) != len(declared) or any(
                    isinstance(n, int) and isinstance(m, int) and n != m for n, m in zip(found, declared)
                ):
                    wrong.append((case.name, found, declared))
    assert seen > 1500
    assert wrong == []


# -- hostile files ------------------------------------------------------------------------------------------------


def test_files_that_are_no_models_are_refused(tmp_path):
    whole = perceptron().SerializeToString()
    for i, data in enumerate([b"", b"no model at all", whole[: len(whole) // 3], whole[:-7], bytes(range(256))]):
        path = tmp_path / f"{i}.onnx"
        path.write_bytes(data)
        try:
            made = load(path)
        except ValueError as error:
            assert "is no ONNX model" in str(error)
        else:  # what was cut off is the end, and what is left is a model
            assert i == 3
            assert isinstance(made.check(), list)
    with pytest.raises(TypeError, match="neither a path nor"):
        load(3)
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "missing.onnx")


def test_huge_numbers_make_one_error_and_no_tables():
    made = model(node("Relu", "x", "y", ("x", spec([0, 1], (0, 4, 2**40), (1, 6, 2**20)))))
    assert codes(made) == ["device-count-mismatch"]
    nothing = spec([], (0, 4, 2**40))
    assert codes(model(node("Relu", "x", "y", ("x", nothing))), strict=False) == ["device-out-of-range"]


def test_annotated_subgraphs_are_said_to_be_unsupported():
    inner = helper.make_graph(
        [node("Relu", "x", "i", ("x", ROW))], "b", [], [helper.make_tensor_value_info("i", 1, None)]
    )
    made = model(
        node("Less", "x,x", "c"), helper.make_node("If", ["c"], ["y"], "if", then_branch=inner, else_branch=inner)
    )
    assert [(v.node, v.code) for v in load(made).check()] == [("if", "unsupported-op")]


def test_without_the_onnx_package_nodes_are_judged_and_files_name_the_extra():
    code = (
        "import sys; sys.modules['onnx'] = None\n"
        "import distarray as dx\n"
        "print(dx.io.onnx.infer_node('Relu', {}, [[4]], [None], None, 2)['status'])\n"
        "try: dx.io.onnx.load('m.onnx')\n"
        "except ImportError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[0] == "valid"
    assert "dask-distarray[onnx]" in done.stdout


@pytest.mark.parametrize("words", [{"value_ints": [4, 3, 2]}, {"value": numpy_helper.from_array(np.array([4, 3, 2]))}])
def test_what_a_constant_says_is_known_in_whatever_words(words):
    made = model(helper.make_node("Constant", [], ["s"], **words), node("Reshape", "x,s", "y", ("x", ROW)))
    inferred = load(made).infer()
    assert inferred.tensor_forms["y"].grid == (2, 1, 1)


# -- command line -------------------------------------------------------------------------------------------------


def test_the_command_line_checks_and_infers(tmp_path, capsys):
    good, bad = tmp_path / "good.onnx", tmp_path / "bad.onnx"
    onnx.save(perceptron(), good)
    onnx.save(model(node("Relu", "x", "y", ("x", spec([0, 7], (0, 4, 2))))), bad)
    assert command.main(["onnx", "check", str(good)]) == 0
    assert capsys.readouterr().out == "3 nodes, nothing wrong\n"
    assert command.main(["onnx", "infer", str(good)]) == 0
    found = capsys.readouterr().out
    assert "MatMul_y" in found
    assert {"tensor", "shape/shards", "devices"} == {*found.splitlines()[0].split()}
    assert "4 8/2" in found
    assert command.main(["onnx", "infer", str(good), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["forms"]["h"]["grid"] == [1, 2]
    for action in ("check", "infer"):
        assert command.main(["onnx", action, str(bad)]) == 1
        line = capsys.readouterr().out.splitlines()[1]
        assert line.split()[:5] == ["Relu_y", "Relu", "error", "S-3", "device-out-of-range"]
    assert command.main(["onnx", "check", str(bad), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)[0]["tensors"] == ["x"]
    assert command.main(["onnx", "check", str(good), "--configuration", "nine"]) == 2
    assert "does not exist" in capsys.readouterr().err


def test_work_grows_with_nodes_and_shards_and_not_with_devices_or_elements():
    n = 50
    nodes = [node("Relu", "x" if i == 0 else f"t{i}", f"t{i + 1}") for i in range(n)]
    nodes[0] = node("Relu", "x", "t1", ("x", spec([0, 1], (0, 2**40, 2))))
    made = model(*nodes, shape=(2**40, 2**20), configurations=(("pair", 100_000),))
    found = load(made).infer()
    assert found.forms[f"t{n}"]["owners"] == [[0], [1]]
