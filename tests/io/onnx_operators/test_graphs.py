"""Whole models: names, initializers, subgraphs, functions, feeds, files beside the model, and what is held."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distarray as dx
from distarray.errors import NotSupportedError
from distarray.testing import counting

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper, parser  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

from distarray.io.onnx import load  # noqa: E402
from distarray.io.onnx.operators import PlainModel, run_graph  # noqa: E402

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def parsed(graph: str, functions: str = "", opsets: str = '"" : 21') -> Any:
    return parser.parse_model(f"<ir_version: 10, opset_import: [{opsets}]>\n{graph}\n{functions}")


def agrees(model: Any, feeds: dict[str, Any]) -> dict[str, Any]:
    """The outputs of a model, which are those of the reference."""
    found = run_graph(model, feeds)
    for expected, f in zip(ReferenceEvaluator(model).run(None, feeds), found.values(), strict=True):
        assert isinstance(f, dx.DistArray)
        assert (f.dtype, f.shape) == (expected.dtype, expected.shape)
        np.testing.assert_allclose(np.asarray(f), expected, rtol=1e-5, atol=1e-6)
    return found


PERCEPTRON = """
perceptron (float[N, 3] x) => (float[N, 2] y) <float[3, 2] w = {1, -2, 3, 0.5, -1, 2}, float[2] b = {0.5, -1}> {
    h = MatMul(x, w)
    s = Add(h, b)
    y = Relu(s)
}
"""


def test_perceptron_runs():
    found = agrees(parsed(PERCEPTRON), {"x": X})
    assert [*found] == ["y"]


def test_a_model_that_is_annotated_is_not_read_for_that():
    model = parsed(PERCEPTRON)
    model.ir_version = 11
    device = model.configuration.add()
    device.name, device.num_devices = "two", 2
    agrees(model, {"x": X})


def test_results_live_where_the_feeds_do():
    team = dx.Team((3,), ("T",))
    y = run_graph(parsed(PERCEPTRON), {"x": dx.asarray(X, team=team)})["y"]
    assert y.team == team


def test_nothing_runs_until_it_is_looked_at_and_nothing_between_is_kept():
    with dx.config.set(eager_bytes=0), counting() as counts:
        y = run_graph(parsed(PERCEPTRON), {"x": X})["y"]
        assert counts.evaluations == 0
        y.compute()
        assert counts.evaluations == 1
    # Nobody holds what is between: product, sum and maximum are one pass, and the result is all that is stored.
    assert sum(counts.kernels.values()) <= 2


def test_initializers_of_old_models_are_inputs_that_may_be_left_out():
    model = parsed(PERCEPTRON)
    model.graph.input.append(helper.make_tensor_value_info("b", TensorProto.FLOAT, [2]))
    agrees(model, {"x": X})
    agrees(model, {"x": X, "b": np.float32([10, 20])})


def test_shapes_are_known_without_running():
    model = parsed("""
    g (float[N, M, 4] x) => (float[A, B] y, int64[1] n)
        <int64[1] rest = {-1}, int64 zero = {0}, int64[1] first = {0}, int64[1] two = {2}> {
        shape = Shape(x)
        rows = Gather(shape, zero)
        rows1 = Unsqueeze(rows, first)
        twice = Mul(rows1, two)
        target = Concat<axis = 0>(twice, rest)
        y = Reshape(x, target)
        half = Cast<to = 1>(rows1)
        root = Sqrt(half)
        n = Cast<to = 7>(root)
    }
    """)
    x = np.arange(48, dtype=np.float32).reshape(4, 3, 4)
    with dx.config.set(eager_bytes=0), counting() as counts:
        found = run_graph(model, {"x": x})
        assert counts.evaluations == 0
    assert found["y"].shape == (8, 6)
    agrees(model, {"x": x})


def test_a_model_that_is_prepared_runs_often_and_sends_its_weights_once():
    model = external(Path(), "")
    del model.graph.initializer[:]
    model.graph.initializer.append(numpy_helper.from_array(WEIGHTS, "w"))
    plain = PlainModel(model)
    for factor in (1, 2):
        x = np.full((40, 50), factor, np.float32)
        np.testing.assert_array_equal(np.asarray(plain.run({"x": x})["y"]), factor * WEIGHTS)
    assert plain.graph.constants()["w"] is plain.graph.constants()["w"]
    with dx.use(team=dx.Team((2,), ("T",))):
        assert plain.run({"x": x})["y"].team.size == 2


def test_writing_into_a_result_changes_no_input():
    model = parsed("g (float[2, 3] x) => (float[2, 3] y, float[3, 2] z) { y = Identity(x)  z = Transpose(x) }")
    x = dx.asarray(X)
    found = run_graph(model, {"x": x})
    found["y"][:] = 0
    found["z"][:] = 0
    np.testing.assert_array_equal(np.asarray(x), X)


def test_what_is_no_model_is_refused():
    with pytest.raises(TypeError, match=r"GraphProto is no ModelProto; onnx\.load"):
        run_graph(parsed(PERCEPTRON).graph, {"x": X})


def test_errors_name_the_node():
    model = parsed("g (float[2, 3] x) => (float[A, B] y) { z = Neg(x)  y = MatMul(z, x) }")
    model.graph.node[1].name = "product"
    with pytest.raises(ValueError, match="matmul") as caught:
        run_graph(model, {"x": X})
    assert caught.value.__notes__ == ["at node 'product' (MatMul)"]


# ----------------------------------------------------------------------------------------------------- subgraphs


BRANCHES = """
g (bool c, float[2, 3] x) => (float[2, 3] y) {
    d = Neg(x)
    y = If (c) <
        then_branch = t () => (float[2, 3] u) <float one = {1}> { u = Add(d, one) },
        else_branch = e () => (float[2, 3] v) { v = Mul(d, x) }
    >
}
"""


@pytest.mark.parametrize("condition", [True, False])
def test_branches_see_what_is_outside(condition):
    agrees(parsed(BRANCHES), {"c": np.asarray(condition), "x": X})


def test_names_of_a_subgraph_are_its_own():
    model = parsed("""
    g (bool c, float[2, 3] x) => (float[2, 3] u) {
        y = If (c) <
            then_branch = t () => (float[2, 3] u) { d = Neg(x)  u = Abs(d) },
            else_branch = e () => (float[2, 3] x) { }
        >
        d = Neg(y)
        u = Add(d, y)
    }
    """)
    for condition in (True, False):
        found = run_graph(model, {"c": np.asarray(condition), "x": X})
        assert not np.asarray(found["u"]).any()


LOOP = """
g (int64 n, float[2, 3] x) => (float[2, 3] last, float[K, 2, 3] all)
    <bool go = {1}, float[2, 3] start = {0, 0, 0, 0, 0, 0}> {
    d = Abs(x)
    last, all = Loop (n, go, start) <
        body = b (int64 i, bool c, float[2, 3] s) => (bool keep, float[2, 3] t, float[2, 3] row) {
            j = Cast<to = 1>(i)
            e = Mul(d, j)
            t = Add(s, e)
            row = Neg(t)
            keep = Identity(c)
        }
    >
}
"""


def test_loops_carry_stack_and_see_what_is_outside():
    found = run_graph(parsed(LOOP), {"n": np.asarray(4), "x": X})
    np.testing.assert_allclose(np.asarray(found["last"]), 6 * X)
    np.testing.assert_allclose(np.asarray(found["all"]), np.stack([-k * X for k in (0, 1, 3, 6)]))


def test_a_loop_without_a_round_gives_what_it_started_with():
    found = run_graph(parsed(LOOP), {"n": np.asarray(0), "x": X})
    assert np.asarray(found["last"]).tolist() == [[0] * 3] * 2
    assert (found["all"].shape, found["all"].dtype) == ((0, 2, 3), np.float32)


def test_a_loop_ends_where_its_condition_does():
    model = parsed("""
    g (float x) => (float last) <bool go = {1}, float ten = {10}> {
        last = Loop ( , go, x) <
            body = b (int64 i, bool c, float s) => (bool keep, float t) { t = Add(s, s)  keep = Less(t, ten) }
        >
    }
    """)
    assert run_graph(model, {"x": np.float32(1)})["last"].item() == 16


def test_scans_run_backwards_and_along_other_axes():
    body = parser.parse_graph(
        "b (float[2] s, float[2] r) => (float[2] t, float[2] o) { t = Add(s, r)  o = Identity(t) }"
    )
    node = helper.make_node(
        "Scan", ["s", "x"], ["last", "all"], body=body, num_scan_inputs=1, scan_input_axes=[1],
        scan_input_directions=[1], scan_output_axes=[-1], scan_output_directions=[1],
    )  # fmt: skip
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("s", [2]), ("x", [2, 3]))]
    outputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("last", [2]), ("all", [2, 3]))]
    model = helper.make_model(
        helper.make_graph([node], "g", infos, outputs), opset_imports=[helper.make_opsetid("", 19)]
    )
    found = run_graph(model, {"s": np.zeros(2, np.float32), "x": X})
    np.testing.assert_allclose(np.asarray(found["last"]), X.sum(1))
    # The last column comes first, and the results stand the other way round again.
    np.testing.assert_allclose(np.asarray(found["all"]), X[:, ::-1].cumsum(1)[:, ::-1])


# ----------------------------------------------------------------------------------------------------- functions


FUNCTIONS = """
<domain: "own", opset_import: ["" : 17]>
scaled <alpha: float = 2.0, axis> (x, bias) => (y)
{
    a = Constant<value_float: float = @alpha>()
    s = Mul(x, a)
    t = Softmax<axis: int = @axis>(s)
    y = Add(t, bias)
}
<domain: "own", opset_import: ["" : 13, "own" : 1]>
twice <axis> (x, bias) => (y)
{
    z = own.scaled<alpha = 3.0, axis: int = @axis>(x, bias)
    y = own.scaled<axis = 0>(z, bias)
}
"""


def test_functions_have_attributes_defaults_and_opsets_of_their_own():
    model = parsed(
        "g (float[2, 3] x, float[3] bias) => (float[2, 3] y) { y = own.twice<axis = 1>(x, bias) }",
        FUNCTIONS,
        '"" : 21, "own" : 1',
    )
    bias = np.float32([1, 2, 3])

    def scaled(x, alpha, axis):
        raised = np.exp(x * alpha)
        return raised / raised.sum(axis, keepdims=True) + bias

    found = run_graph(model, {"x": X, "bias": bias})["y"]
    np.testing.assert_allclose(np.asarray(found), scaled(scaled(X, 3, 1), 2, 0), rtol=1e-5)


@pytest.mark.parametrize("domain", ["", "ai.onnx"])
@pytest.mark.parametrize("of_function", ["", "ai.onnx"])
def test_a_function_has_its_own_opset_by_either_name_of_the_domain(domain, of_function):
    graph = "g (float[2, 2, 3] x) => (float[2, 2, 3] y) { y = own.f(x) }"
    function = f'<domain: "own", opset_import: ["{of_function}" : 18]> f (a) => (b) {{ b = Softmax(a) }}'
    x = np.stack([X, X[::-1]])  # Softmax of opset 11 joins the last two axes
    made = run_graph(parsed(graph, function, f'"{domain}" : 11, "own" : 1'), {"x": x})["y"]
    np.testing.assert_allclose(np.asarray(made), np.exp(x) / np.exp(x).sum(axis=-1, keepdims=True), rtol=1e-5)


def test_a_function_of_another_domain_is_no_operator_of_an_old_opset():
    function = '<domain: "own", opset_import: ["" : 18]> PRelu (a, b) => (c) { c = Add(a, b) }'
    graph = "g (float[2, 3, 3] x, float[3] b) => (float[2, 3, 3] y) { y = own.PRelu(x, b) }"
    x = np.arange(18, dtype=np.float32).reshape(2, 3, 3)
    made = run_graph(parsed(graph, function, '"" : 18, "own" : 1'), {"x": x, "b": X[0]})["y"]
    np.testing.assert_array_equal(np.asarray(made), x + X[0])


def test_a_function_may_be_of_the_domain_of_the_operators():
    function = '<domain: "ai.onnx", opset_import: ["" : 21]> Doubled (a) => (b) { b = Add(a, a) }'
    made = run_graph(parsed("g (float[2, 3] x) => (float[2, 3] y) { y = Doubled(x) }", function), {"x": X})["y"]
    np.testing.assert_array_equal(np.asarray(made), 2 * X)


def test_functions_see_nothing_but_what_they_are_given():
    model = parsed(
        "g (float[2, 3] x) => (float[2, 3] y) { z = Neg(x)  y = own.f(x) }",
        '<domain: "own", opset_import: ["" : 17]> f (x) => (y) { y = Add(x, z) }',
        '"" : 21, "own" : 1',
    )
    with pytest.raises(ValueError, match=r"Add.* reads 'z', which no input, initializer or node"):
        run_graph(model, {"x": X})


def test_functions_that_call_themselves_are_refused():
    model = parsed(
        "g (float[2, 3] x) => (float[2, 3] y) { y = own.f(x) }",
        """<domain: "own", opset_import: ["" : 17, "own" : 1]> f (x) => (y) { y = own.h(x) }
        <domain: "own", opset_import: ["" : 17, "own" : 1]> h (x) => (y) { y = own.f(x) }""",
        '"" : 21, "own" : 1',
    )
    for use in (lambda: run_graph(model, {"x": X}), load(model).infer):
        with pytest.raises(ValueError, match="function 'f': the function calls itself, by f and h"):
            use()


def nested(depth: int, width: int) -> Any:
    """Functions of which each calls the next one `width` times."""
    functions = []
    for i in range(depth):
        step = "Relu" if i == depth - 1 else f"own.f{i + 1}"
        lines = "  ".join(f"t{k + 1} = {step}(t{k})" for k in range(width - 1))
        body = f"t0 = Identity(x)  {lines}  y = {step}(t{width - 1})"
        functions.append(f'<domain: "own", opset_import: ["" : 17, "own" : 1]> f{i} (x) => (y) {{ {body} }}')
    return parsed("g (float[2, 3] x) => (float[2, 3] y) { y = own.f0(x) }", "\n".join(functions), '"" : 21, "own" : 1')


@pytest.mark.parametrize(
    ("depth", "width", "said"),
    [
        (40, 2, "more than 1000000 nodes when its functions are written out"),
        (9, 9, "more than 1000000 nodes when its functions are written out"),
        (400, 1, "functions call each other in turn; at most 64 may"),
    ],
)
def test_functions_that_cannot_be_written_out_are_refused(depth, width, said):
    """onnx:A-2: before ONNX's shape inference, or anything else, goes into them."""
    model = nested(depth, width)
    for use in (lambda: run_graph(model, {"x": X}), load(model).infer):
        with pytest.raises(ValueError, match=said):
            use()


def test_functions_in_functions_run():
    for depth, width in ((64, 1), (5, 2)):
        model = nested(depth, width)
        assert load(model).check() == []
        np.testing.assert_array_equal(run_graph(model, {"x": X - 2})["y"], np.maximum(X - 2, 0))


def test_domains_have_versions_of_their_own():
    model = parsed(
        "g (float[2, 3] x) => (float[2, 3] y) { z = Neg(x)  y = ai.onnx.ml.Binarizer<threshold = -2.0>(z) }",
        opsets='"" : 21, "ai.onnx.ml" : 1',
    )
    agrees(model, {"x": X})
    del model.opset_import[1]
    with pytest.raises(ValueError, match=r"\(Binarizer\): .* the model imports no opset of the domain 'ai.onnx.ml'"):
        run_graph(model, {"x": X})


def test_optional_outputs_that_nobody_wants_are_none():
    model = parsed("g (float[2, 3] x, float[3] s) => (float[2, 3] y, float[2, 1] d) { y = LayerNormalization(x, s) }")
    model.graph.node[0].output.extend(["", "d"])
    agrees(model, {"x": X, "s": np.ones(3, np.float32)})


def test_sequences_and_optionals_are_lists_and_none():
    model = parsed(
        """
    g (seq(float[N]) s, optional(float[N]) o) => (seq(float[N]) t, int64 n, bool has) {
        a = SequenceAt(s, n0)  t = SequenceInsert(s, a)  n = SequenceLength(t)  has = OptionalHasElement(o)
    }
    """.replace("n0", "zero")
        .replace("=> (", "=> (")
        .replace(") {", ") <int64 zero = {0}> {", 1)
    )
    found = run_graph(model, {"s": [np.float32([1, 2]), np.float32([3])], "o": None})
    assert [v.tolist() for v in found["t"]] == [[1, 2], [3], [1, 2]]
    assert (found["n"].item(), found["has"].item()) == (3, False)


# --------------------------------------------------------------------------------------------------------- feeds


@pytest.mark.parametrize(
    ("feeds", "error", "said"),
    [
        ({}, ValueError, "the model's input 'x' is not given; its inputs are x, z"),
        ({"x": X, "z": X, "q": X}, ValueError, "the model has no input 'q'; its inputs are x, z"),
        ({"x": X.astype(float), "z": X}, TypeError, r"input 'x' has dtype float64, but the model takes float32"),
        ({"x": X[0], "z": X}, ValueError, r"input 'x' has shape \(3,\), but the model takes \(N, 3\): 2 axes, not 1"),
        ({"x": X[:, :2], "z": X}, ValueError, r"input 'x' has shape \(2, 2\), but .* takes \(N, 3\): axis 1 is 2 long"),
        ({"x": X, "z": X[:1]}, ValueError, r"input 'z' has shape \(1, 3\), .* and N is 2 by axis 0 of input 'x'"),
        ({"x": ["a"], "z": X}, TypeError, "input 'x' has dtype <U1"),
        ({"x": np.ma.masked_less(X, 3), "z": X}, NotSupportedError, "input 'x': a masked array, whose mask"),
        ([X], TypeError, "feeds"),
    ],
)
def test_wrong_feeds_are_refused(feeds, error, said):
    model = parsed("g (float[N, 3] x, float[N, M] z) => (float[A, B] y) { y = Add(x, z) }")
    with counting() as counts, pytest.raises(error, match=said):
        run_graph(model, feeds)
    assert counts.evaluations == 0


def test_types_that_numpy_lacks_are_refused():
    model = parsed("g (float[N] x) => (bfloat16[N] y) { h = Neg(x)  y = Cast<to = 16>(h) }")
    model.graph.node[1].name = "shorten"
    with pytest.raises(NotSupportedError, match=r"node 'shorten' \(Cast\): numpy has no elements of type BFLOAT16"):
        run_graph(model, {"x": X[0]})
    model = parsed("g (string[N] x) => (string[N] y) { y = Identity(x) }")
    with pytest.raises(NotSupportedError, match="input 'x': numpy has no elements of type STRING"):
        run_graph(model, {"x": np.asarray(["a"])})


# -------------------------------------------------------------------------------------------------- malformed models


@pytest.mark.parametrize(
    ("graph", "said"),
    [
        ("g (float[N] x) => (float[N] y) { y = Add(x, q) }", "reads 'q', which no input"),
        ("g (float[N] x) => (float[N] y) { a = Add(x, b)  b = Neg(a)  y = Neg(b) }", "the graph has a cycle"),
        ("g (float[N] x) => (float[N] y) { y = Add(x, y) }", "reads what it makes itself"),
        ("g (float[N] x) => (float[N] y) { y = Neg(x)  y = Abs(x) }", "the model makes 'y' twice"),
        ("g (float[N] x) => (float[N] y) { z = Neg(x) }", "the graph's output reads 'y'"),
        ("g (float[N] x) => (float[N] y) { y = Nonsense(x) }", "has no such operator"),
    ],
)
def test_malformed_models_are_refused(graph, said):
    with pytest.raises(ValueError, match=said):
        run_graph(parsed(graph), {"x": X[0]})


# ------------------------------------------------------------------------------------------------- files beside it


def external(folder: Path, location: str, **entries: str) -> Any:
    model = parsed("g (float[N, 50] x) => (float[N, 50] y) { y = Mul(x, w) }")
    tensor = model.graph.initializer.add()
    tensor.name, tensor.data_type, tensor.data_location = "w", TensorProto.FLOAT, TensorProto.EXTERNAL
    tensor.dims.extend([40, 50])
    for key, value in {"location": location, **entries}.items():
        entry = tensor.external_data.add()
        entry.key, entry.value = key, value
    return model


WEIGHTS = np.arange(2000, dtype=np.float32).reshape(40, 50)


def test_elements_in_a_file_beside_the_model_are_read_by_tasks(tmp_path):
    (tmp_path / "w.bin").write_bytes(b"junk" + WEIGHTS.tobytes())
    model = external(tmp_path, "w.bin", offset="4", length="8000")
    x = np.ones((40, 50), np.float32)
    np.testing.assert_array_equal(np.asarray(run_graph(model, {"x": x}, folder=str(tmp_path))["y"]), WEIGHTS)
    onnx.save(model, tmp_path / "m.onnx")
    dx.save(tmp_path / "x.npy", x)
    found = dx.io.onnx.load(tmp_path / "m.onnx").run({"x": dx.load(tmp_path / "x.npy")})
    np.testing.assert_array_equal(np.asarray(found["y"]), WEIGHTS)


@pytest.mark.parametrize("location", ["../w.bin", "link", "sub/../../w.bin", "", "nothing.bin"])
def test_no_file_outside_of_the_folder_is_read(tmp_path, location):
    inside = tmp_path / "model"
    inside.mkdir()
    (tmp_path / "w.bin").write_bytes(WEIGHTS.tobytes())
    os.symlink(tmp_path / "w.bin", inside / "link")
    with pytest.raises(ValueError, match=r"initializer 'w': .* is no file in the model's folder"):
        run_graph(external(inside, location), {"x": WEIGHTS}, folder=str(inside))
    with pytest.raises(ValueError, match="is no file in the model's folder"):
        run_graph(external(inside, str(tmp_path / "w.bin")), {"x": WEIGHTS}, folder=str(inside))
    assert [v.code for v in load(external(inside, location), folder=str(inside)).check()] == [
        "data-outside" if location and location != "nothing.bin" else "not-runnable"
    ]
    with pytest.raises(ValueError, match="say folder="):
        run_graph(external(inside, "w.bin"), {"x": WEIGHTS})


@pytest.mark.parametrize("entries", [{"offset": "4"}, {"length": "10"}, {"offset": "-4"}, {"offset": "x"}])
def test_files_that_are_too_short_are_refused(tmp_path, entries):
    (tmp_path / "w.bin").write_bytes(WEIGHTS.tobytes())
    with pytest.raises(ValueError, match="initializer 'w'"):
        run_graph(external(tmp_path, "w.bin", **entries), {"x": WEIGHTS}, folder=str(tmp_path))


def test_truncated_models_are_refused(tmp_path):
    data = parsed(PERCEPTRON).SerializeToString()
    (tmp_path / "m.onnx").write_bytes(data[: len(data) // 2])
    with pytest.raises(ValueError, match=r"m.onnx is no ONNX model"):
        dx.io.onnx.load(tmp_path / "m.onnx").run({})
    with pytest.raises(OSError, match="nothing"):
        dx.io.onnx.load(tmp_path / "nothing.onnx").run({})


def test_sparse_initializers_and_constants_are_dense():
    values = numpy_helper.from_array(np.float32([5, 7]), "s")
    at = numpy_helper.from_array(np.asarray([[0, 1], [1, 2]]), "at")
    model = parsed("g (float[2, 3] x) => (float[2, 3] y) { y = Add(x, s) }")
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, at, [2, 3]))
    expected = X + np.float32([[0, 5, 0], [0, 0, 7]])
    np.testing.assert_array_equal(np.asarray(run_graph(model, {"x": X})["y"]), expected)


CONVOLUTION = """
g (float[N, 2, 6, 6] x, float[3, 2, 3, 3] w) => (float[N, 3, 2, 2] y) {
    c = Conv(x, w)
    p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(c)
    y = Relu(p)
}
"""


def images() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {name: rng.standard_normal(s).astype(np.float32) for name, s in (("x", (8, 2, 6, 6)), ("w", (3, 2, 3, 3)))}


def test_kernels_of_the_reference_run_beside_other_devices():
    with dx.use(device="strict"):
        agrees(parsed(CONVOLUTION), images())


# ------------------------------------------------------------------------------------------------------ on a cluster


@pytest.mark.cluster
def test_models_run_on_a_cluster(cluster4):
    agrees(parsed(PERCEPTRON), {"x": np.random.default_rng(0).standard_normal((64, 3)).astype(np.float32)})
    agrees(parsed(CONVOLUTION), images())
    agrees(parsed(BRANCHES), {"c": np.asarray(True), "x": X})


@pytest.mark.cluster
def test_kernels_travel_to_worker_processes(process_cluster):
    agrees(parsed(CONVOLUTION), images())
    agrees(parsed(PERCEPTRON), {"x": np.ones((64, 3), np.float32)})
