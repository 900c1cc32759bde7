"""Models that cannot be run: the checker and whoever runs them say the same, once, and read no other files."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from helpers import calls_made
from hypothesis import given, settings
from hypothesis import strategies as st

from distarray import __main__ as command
from distarray.testing import counting

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper, parser  # noqa: E402

from distarray.io.onnx import ShardingError, annotate, draw, load  # noqa: E402
from distarray.io.onnx.operators import run_graph  # noqa: E402
from distarray.io.onnx.violations import has_errors  # noqa: E402
from distarray.io.onnx.wellformed import MAX_DEPTH  # noqa: E402
from distarray.sharding.team import Team  # noqa: E402

X = np.ones((2, 3), np.float32)


def parsed(body: str, functions: str = "", weights: str = "", shape: str = "2, 3") -> Any:
    opsets = '"" : 21, "own" : 1, "far" : 1'
    inputs = f"float[{shape}] x" + (f", {weights}" if weights else "")
    head = f"<ir_version: 11, opset_import: [{opsets}]> g ({inputs}) => (float[{shape}] y)"
    return parser.parse_model(f"{head} {body} {functions}")


def weighted(**fields: Any) -> Any:
    """A model with one initializer, of which some fields are others."""
    made = parsed("{ y = Mul(x, w) }")
    tensor = made.graph.initializer.add()
    tensor.CopyFrom(numpy_helper.from_array(X, "w"))
    for name, value in fields.items():
        if isinstance(value, list):
            tensor.ClearField(name)
            getattr(tensor, name).extend(value)
        else:
            setattr(tensor, name, value)
    return made


def sparse(*dims: int, at: Any = (0, 5)) -> Any:
    made = parsed("{ y = Mul(x, w) }")
    values = numpy_helper.from_array(np.ones(2, np.float32), "w")
    made.graph.sparse_initializer.append(helper.make_sparse_tensor(values, numpy_helper.from_array(np.array(at)), dims))
    return made


def external(location: str, **entries: str) -> Any:
    made = weighted(data_location=TensorProto.EXTERNAL)
    made.graph.initializer[0].ClearField("raw_data")
    for key, value in {"location": location, **entries}.items():
        made.graph.initializer[0].external_data.add(key=key, value=value)
    return made


def constant_in_a_file() -> Any:
    made = parsed("{ w = Constant<value_float = 1.0>()  y = Mul(x, w) }")
    attribute = made.graph.node[0].attribute[0]
    attribute.CopyFrom(onnx.AttributeProto(name="value", type=onnx.AttributeProto.TENSOR))
    attribute.t.CopyFrom(external("../secret").graph.initializer[0])
    return made


def nested(depth: int) -> Any:
    made = parsed("{ y = If(c) }")
    made.graph.initializer.append(numpy_helper.from_array(np.array(True), "c"))
    node = made.graph.node[0]
    for _ in range(depth):
        graphs = [
            helper.make_graph(
                [helper.make_node("Identity", ["x"], ["u"])], name, [], [helper.make_tensor_value_info("u", 1, None)]
            )
            for name in ("then_branch", "else_branch")
        ]
        node.attribute.extend([helper.make_attribute(graph.name, graph) for graph in graphs])
        then = node.attribute[0].g
        then.node.append(helper.make_node("If", ["c"], ["deeper"]))
        node = then.node[1]
    node.attribute.extend([helper.make_attribute(name, graphs[1]) for name in ("then_branch", "else_branch")])
    return made


def misspelt() -> Any:
    data = parsed("{ y = Nonsense(x) }").SerializeToString()
    return onnx.ModelProto.FromString(data.replace(b"Nonsense", b"Nons\xffnse"))


ENDLESS = '<domain: "own", opset_import: ["" : 17, "own" : 1]> f (x) => (y) { y = own.f(x) }'
LOOSE = '<domain: "own", opset_import: ["" : 17, "own" : 1]> f (x) => (y) { y = Add(x, z) }'
INSIDE = """{ c = Constant<value_int = 1>()  b = Cast<to = 9>(c)  y = If(b) <
    then_branch = t () => (float[2, 3] u) { u = Add(x, q) }, else_branch = e () => (float[2, 3] v) { v = Neg(x) }> }"""

#: The model, and of all that is wrong with it the node and the code.
MALFORMED = {
    "an input that nobody makes": (parsed("{ y = Add(x, q) }"), ("#0", "undefined-tensor")),
    "an input that is made later": (parsed("{ h = Neg(y)  y = Abs(x) }"), ("#0", "undefined-tensor")),
    "a cycle": (parsed("{ a = Add(x, b)  b = Neg(a)  y = Neg(b) }"), ("#0", "undefined-tensor")),
    "a node that reads what it makes": (parsed("{ y = Add(x, y) }"), ("#0", "undefined-tensor")),
    "a name that is made twice": (parsed("{ y = Neg(x)  y = Abs(x) }"), ("#1", "duplicate-name")),
    "an input that is made again": (parsed("{ x = Neg(x)  y = Abs(x) }"), ("#0", "duplicate-name")),
    "an output that nobody makes": (parsed("{ z = Neg(x) }"), ("", "undefined-tensor")),
    "a name inside that nobody makes": (parsed(INSIDE), ("#0", "undefined-tensor")),
    "a name that a function does not see": (parsed("{ z = Neg(x)  y = own.f(x) }", LOOSE), ("#0", "undefined-tensor")),
    "an operator that is no text": (misspelt(), ("", "name-malformed")),
    "an operator that is not there": (parsed("{ y = Nonsense(x) }"), ("#0", "unknown-operator")),
    "an operator that came later": (parsed("{ y = Swish(x) }"), ("#0", "unknown-operator")),
    "a domain that is not imported": (parsed("{ y = other.Op(x) }"), ("#0", "unknown-operator")),
    "an operator that is no more": (parsed("{ y = Upsample(x, x) }"), ("#0", "node-malformed")),
    "too many inputs": (parsed("{ y = Relu(x, x) }"), ("#0", "node-malformed")),
    "too few inputs": (parsed("{ y = Add(x) }"), ("#0", "node-malformed")),
    "too many outputs": (parsed("{ y, z = Relu(x) }"), ("#0", "node-malformed")),
    "an attribute of another type": (parsed('{ y = Softmax<axis = "one">(x) }'), ("#0", "node-malformed")),
    "an attribute that is not there": (parsed("{ y = Softmax<axes = 1>(x) }"), ("#0", "node-malformed")),
    "an attribute that must be there": (parsed("{ y = Cast(x) }"), ("#0", "node-malformed")),
    "types that differ": (parsed("{ i = Cast<to = 7>(x)  y = Add(x, i) }"), ("#1", "types-differ")),
    "data that are too short": (weighted(raw_data=b"abc"), ("", "data-malformed")),
    "data that are too long": (weighted(raw_data=bytes(25)), ("", "data-malformed")),
    "no data": (weighted(raw_data=b""), ("", "data-malformed")),
    "elements of no type": (weighted(data_type=99), ("", "data-malformed")),
    "a negative size": (weighted(dims=[-2, -3]), ("", "data-malformed")),
    "a huge size": (weighted(dims=[2**62, 2**62]), ("", "data-malformed")),
    "a huge sparse tensor": (sparse(10**6, 10**6), ("", "data-malformed")),
    "a sparse tensor with a place outside": (sparse(2, 3, at=(0, 6)), ("", "data-malformed")),
    "a function that calls itself": (parsed("{ y = own.f(x) }", ENDLESS), ("", "endless-model")),
    "graphs within graphs": (nested(MAX_DEPTH), ("#1", "endless-model")),
    "graphs that no file could have": (nested(500), ("#1", "endless-model")),
    "data in a file of a constant": (constant_in_a_file(), ("#0", "data-outside")),
    **{
        f"data at {location}": (external(location), ("", "data-outside"))
        for location in ("/etc/passwd", "../secret", "a/../../b", "C:\\secret", "..\\secret", "\\\\host\\secret")
    },
    "data of another length": (external("w.bin", length="10"), ("", "data-malformed")),
    "data before the file": (external("w.bin", offset="-4"), ("", "data-malformed")),
    "data at no number": (external("w.bin", offset="x"), ("", "data-malformed")),
}  # fmt: skip


@pytest.mark.parametrize("name", MALFORMED)
def test_what_is_malformed_is_said_by_the_checker_and_by_whoever_runs_it(name):
    """onnx:A-2, onnx:W-1, onnx:W-2, onnx:W-3, onnx:W-4: one error each, with node and code."""
    made, expected = MALFORMED[name]
    loaded = load(made)
    (found,) = [v for v in loaded.check() if v.severity == "error"]
    assert (found.node, found.code) == expected
    assert "\n" not in found.message
    uses = [
        loaded.infer,
        loaded.plan,
        lambda: loaded.run({"x": X}),
        lambda: run_graph(made, {"x": X}),
        lambda: draw(made),
    ]
    for use in [*uses, lambda: annotate(made, Team((2,), ("d",)))]:
        with counting() as counters, pytest.raises(ShardingError) as error:
            use()
        assert str(error.value) == str(found)
        assert counters.tasks == 0


def test_shapes_of_optional_inputs_are_no_types():
    """onnx:A-11: an input that may be none is given with a shape, which its type has inside."""
    inputs = "(optional(float[4]) x) => (bool y)"
    made = parser.parse_model(f'<ir_version: 11, opset_import: ["" : 21]> g {inputs} {{ y = OptionalHasElement(x) }}')
    made.configuration.add(name="two", num_devices=2)
    assert load(made).plan({"x": (4,)}).nbytes == 0
    assert load(made).run({"x": np.ones(4, np.float32)})["y"].item() is True


def test_configurations_of_a_malformed_model_are_known():
    """onnx:A-9."""
    made = parsed("{ y = Add(x, q) }")
    for name in ("one", "two"):
        made.configuration.add(name=name, num_devices=2)
    assert [v.code for v in load(made, "two").check()] == ["undefined-tensor"]
    with pytest.raises(ValueError, match="'one', 'two'"):
        load(made)


def test_several_errors_are_said_together():
    """onnx:A-2."""
    made = parsed("{ y = Add(p, q)  y = Nonsense(x) }")
    assert [(v.node, v.code, v.tensors) for v in load(made).check()] == [
        ("#0", "undefined-tensor", ("p",)),
        ("#0", "undefined-tensor", ("q",)),
        ("#1", "unknown-operator", ("x", "y")),
        ("#1", "duplicate-name", ("y",)),
    ]


@pytest.mark.parametrize(
    ("made", "said"),
    [(parsed("{ y = far.Op(x) }"), "has no such operator"), (external("w.bin"), "say folder=")],
    ids=["operator", "file"],
)
def test_what_can_be_judged_and_not_run_is_a_warning(made, said):
    """onnx:W-2, onnx:W-3."""
    assert [(v.code, v.severity) for v in load(made).check()] == [("not-runnable", "warning")]
    assert load(made).infer().forms["y"]["owners"] == [[0]]
    for use in (lambda: load(made).run({"x": X}), lambda: run_graph(made, {"x": X})):
        with pytest.raises(ShardingError, match=said):
            use()


def test_models_within_the_limits_are_fine():
    """onnx:W-3, onnx:W-4."""
    assert load(nested(MAX_DEPTH - 1)).check() == []
    np.testing.assert_array_equal(run_graph(nested(MAX_DEPTH - 1), {"x": X})["y"], X)
    np.testing.assert_array_equal(run_graph(sparse(2, 3), {"x": X})["y"], [[1, 0, 0], [0, 0, 1]])


def test_links_that_lead_out_of_the_folder_are_refused(tmp_path):
    """onnx:W-3: by the checker too, and to a folder; links that stay inside are read."""
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "w.bin").write_bytes((2 * X).tobytes())
    (tmp_path / "secret").write_bytes(X.tobytes())
    os.symlink(tmp_path / "secret", tmp_path / "m" / "file")
    os.symlink(tmp_path, tmp_path / "m" / "up")
    os.symlink("w.bin", tmp_path / "m" / "inside")
    for location in ("file", "up/secret"):
        onnx.save(external(location), tmp_path / "m" / "m.onnx")
        assert [v.code for v in load(tmp_path / "m" / "m.onnx").check()] == ["data-outside"]
        with pytest.raises(ShardingError, match="is no file in the model's folder"):
            load(tmp_path / "m" / "m.onnx").run({"x": X})
    onnx.save(external("inside"), tmp_path / "m" / "m.onnx")
    assert load(tmp_path / "m" / "m.onnx").check() == []
    np.testing.assert_array_equal(load(tmp_path / "m" / "m.onnx").run({"x": X})["y"], 2 * X)
    planned = annotate(tmp_path / "m" / "m.onnx", Team((2,), ("d",)))
    np.testing.assert_array_equal(planned.run({"x": X})["y"], 2 * X)


@pytest.mark.parametrize("location", ["w.bin", "fifo", "folder"])
def test_files_that_are_none_are_not_opened(tmp_path, location):
    """onnx:W-3."""
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")  # opening it would wait for ever
    onnx.save(external(location), tmp_path / "m.onnx")
    assert [v.code for v in load(tmp_path / "m.onnx").check()] == ["not-runnable"]
    with pytest.raises(ShardingError, match="is no file in the model's folder that has 24 bytes"):
        load(tmp_path / "m.onnx").run({"x": X})


def changed(data: bytes, random: Any) -> bytes:
    """Bytes of which some are others, or missing, or there twice."""
    made = bytearray(data)
    for _ in range(random.choice([1, 1, 2, 4])):
        i, n = random.randrange(len(made)), random.randrange(1, 12)
        made[i : i + random.choice([0, 1, 1, n])] = random.choice([b"", random.randbytes(1), bytes(made[i : i + n])])
    return bytes(made)


@settings(max_examples=200)
@given(st.randoms(use_true_random=False))
def test_files_with_bytes_that_are_others_are_refused_or_judged(tmp_path_factory, random):
    """onnx:A-2: whatever they say, there is an error that says so, or a model that can be completed and planned."""
    path = tmp_path_factory.getbasetemp() / "changed.onnx"
    planned = annotate(parsed("{ h = MatMul(x, w)  y = Neg(h) }", weights="float[3, 3] w"), Team((2,), ("d",)))
    path.write_bytes(changed(planned.model.SerializeToString(), random))
    try:
        made = load(path)
    except ValueError:
        return
    is_wrong = has_errors(made.check())
    for use in (made.infer, made.plan):
        try:
            use()
            assert not is_wrong
        except ShardingError:
            assert is_wrong


@pytest.mark.parametrize("most", [120, pytest.param(500, marks=pytest.mark.slow)])
def test_a_model_of_500_nodes_is_checked_and_completed_in_no_time(most):
    """onnx:A-2, onnx:A-3: 0.2 and 0.5 seconds, counted in calls; a node costs as much in a long model as in a short."""
    counted = {}
    for n in (most // 2, most):
        lines = [
            "h0 = Relu(x)",
            *(f"h{i + 1} = {'Add' if i % 2 else 'MatMul'}(h{i}, w)" for i in range(n - 2)),
            f"y = Neg(h{n - 2})",
        ]
        model = parsed("{ " + "  ".join(lines) + " }", weights="float[3, 3] w", shape="3, 3")
        made = load(annotate(model, Team((3,), ("d",))).model)
        counted[n] = [calls_made(made.check), calls_made(made.infer)]
    for few, many, per_node in zip(counted[most // 2], counted[most], (600, 700), strict=True):
        assert many < 2.1 * few
        assert many < most * per_node


def test_the_command_line_says_what_is_malformed(tmp_path, capsys):
    path = str(tmp_path / "m.onnx")
    onnx.save(parsed("{ y = Add(x, q) }"), path)
    for action in ("check", "infer", "plan", "run", "draw"):
        assert command.main(["onnx", action, path]) == 1
        assert capsys.readouterr().out.splitlines()[1].split()[:5] == ["#0", "Add", "error", "W-1", "undefined-tensor"]
    onnx.save(nested(40), path)  # protobuf reads no such file
    assert command.main(["onnx", "check", path]) == 2
    assert "is no ONNX model" in capsys.readouterr().err
