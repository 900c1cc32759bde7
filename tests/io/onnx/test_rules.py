"""One record for each rule of the operator classes that it accepts, and one that it rejects."""

from __future__ import annotations

import pytest
from onnx_specs import spec

from distarray.io.onnx import infer_node
from distarray.io.onnx.operator_classes import CLASSES, OPERATORS

ROW = spec([0, 1], (0, 4, 2))
COL = spec([0, 1], (1, 6, 2))
WHOLE = spec([[0, 1]])
ROW_OF_SIX = spec([0, 1], (0, 6, 2))
K = spec([0, 1], (0, 6, 2))
HALVES = spec([0, 1], (0, 8, 2))
FUSED = spec([0, 1], (0, (2, 1), (4, 2)))
GRID = spec([0, 1, 2, 3], (0, 4, 2), (1, 6, 2))
IMAGE = spec([0, 1], (1, 4, 2))
BATCH = spec([0, 1], (0, 2, 2))

#: Rule, operator, attributes, shapes, specs, grid and owners (of each output where they differ).
ACCEPTED = [
    ("onnx:U-1", "Tanh", {}, [[4, 6]], [ROW], [2, 1], [[0], [1]]),
    ("onnx:U-1", "Relu", {}, [["N", 6]], [spec([0, 1], (0, "N", 2))], [2, 1], [[0], [1]]),
    ("onnx:U-1", "Clip", {}, [[4], [], []], [ROW, None, None], [2], [[0], [1]]),
    ("onnx:U-1", "CastLike", {}, [[4], [8]], [ROW, spec([2, 3], (0, 8, 2))], [2], [[0], [1]]),
    ("onnx:U-1", "QuantizeLinear", {}, [[4, 6], []], [ROW, None], [2, 1], [[0], [1]]),
    ("onnx:U-2", "Dropout", {}, [[4]], [ROW], [2], [[0], [1]]),
    ("onnx:U-2", "BitwiseNot", {}, [[4]], [ROW], [2], [[0], [1]]),
    ("onnx:U-2", "ConstantOfShape", {}, [[2]], [spec([0, 1], (0, 2, 2))], [1, 1], [[0, 1]]),
    ("onnx:U-2", "Max", {}, [[4]], [ROW], [2], [[0], [1]]),
    ("onnx:N-1", "Max", {}, [[4], [4]], [ROW, ROW], [2], [[0], [1]]),
    ("onnx:N-1", "Add", {}, [[4, 6], [4, 6]], [COL, COL], [1, 2], [[0], [1]]),
    ("onnx:N-1", "DequantizeLinear", {"axis": 0}, [[4, 6], [4]], [ROW, ROW], [2, 1], [[0], [1]]),
    ("onnx:N-1", "BatchNormalization", {}, [[2, 4, 3], *[[4]] * 4], [IMAGE] + [ROW] * 4, [1, 2, 1], [[0], [1]]),
    ("onnx:N-2", "Mul", {}, [[4, 6], [6]], [ROW, WHOLE], [2, 1], [[0], [1]]),
    ("onnx:N-2", "Where", {}, [[4, 1], [4, 6], []], [ROW, ROW, None], [2, 1], [[0], [1]]),
    (
        *("onnx:N-3", "Sub", {}, [[9, 1], [1, 10]]),
        [spec([[0, 1], [2, 3], [4, 5]], (0, 9, 3)), spec([[0, 2, 4], [1, 3, 5]], (1, 10, 2))],
        *([3, 2], [[0], [1], [2], [3], [4], [5]]),
    ),
    ("onnx:N-4", "Sum", {}, [[1], [1], []], [WHOLE] * 3, [1], [[0, 1]]),
    ("onnx:R-1", "ReduceSum", {"axes": [1]}, [[4, 6]], [ROW], [2, 1], [[0], [1]]),
    ("onnx:R-2", "ReduceMax", {"axes": [1]}, [[4, 6]], [COL], [1, 1], [[0, 1]]),
    ("onnx:R-2", "ReduceL2", {"axes": [1]}, [[4, 6]], [GRID], [2, 1], [[0, 1], [2, 3]]),
    ("onnx:R-3", "ReduceMean", {"axes": [-1], "keepdims": 0}, [[4, 6]], [ROW], [2], [[0], [1]]),
    ("onnx:R-3", "ReduceProd", {"noop_with_empty_axes": 1}, [[4, 6]], [ROW], [2, 1], [[0], [1]]),
    ("onnx:R-3", "ReduceMin", {"keepdims": 0}, [[4, 6]], [ROW], [], [[0, 1]]),
    ("onnx:R-3", "ArgMax", {"axes": [1], "keepdims": 0}, [[4, 6]], [ROW], [2], [[0], [1]]),
    ("onnx:M-1", "MatMul", {}, [[4, 6], [6, 2]], [ROW, WHOLE], [2, 1], [[0], [1]]),
    ("onnx:M-1", "MatMul", {}, [[4, 6], [6, 2]], [COL, K], [1, 1], [[0, 1]]),
    ("onnx:M-2", "MatMul", {}, [[2, 4, 6], [6]], [BATCH, WHOLE], [2, 1], [[0], [1]]),
    ("onnx:M-2", "MatMul", {}, [[6], [6]], [K, K], [], [[0, 1]]),
    ("onnx:M-2", "MatMul", {}, [[2, 1, 4, 6], [3, 6, 5]], [BATCH, WHOLE], [2, 1, 1, 1], [[0], [1]]),
    ("onnx:M-3", "Gemm", {"transA": 1}, [[6, 4], [6, 2], [2]], [K, K, WHOLE], [1, 1], [[0, 1]]),
    ("onnx:M-3", "Gemm", {"transB": 1}, [[4, 6], [2, 6]], [ROW, WHOLE], [2, 1], [[0], [1]]),
    ("onnx:M-4", "MatMulInteger", {}, [[4, 6], [6, 2], [4], []], [ROW, WHOLE, ROW, None], [2, 1], [[0], [1]]),
    (
        *("onnx:M-4", "QLinearMatMul", {}, [[4, 6], [], [], [6, 2], [], [], [], []]),
        *([COL, None, None, K] + [None] * 4, [1, 1], [[0, 1]]),
    ),
    ("onnx:M-5", "Einsum", {"equation": "...ij,...jk"}, [[2, 4, 6], [2, 6, 5]], [BATCH] * 2, [2, 1, 1], [[0], [1]]),
    ("onnx:M-5", "Einsum", {"equation": "ij,jk"}, [[4, 6], [6, 2]], [COL, K], [1, 1], [[0, 1]]),
    ("onnx:L-1", "Softmax", {}, [[4, 6]], [ROW], [2, 1], [[0], [1]]),
    ("onnx:L-1", "TopK", {"k": 3}, [[4, 6]], [ROW], [2, 1], [[0], [1]]),
    ("onnx:L-1", "ReverseSequence", {"time_axis": 1, "batch_axis": 0}, [[4, 6], [4]], [ROW, ROW], [2, 1], [[0], [1]]),
    ("onnx:L-1", "OneHot", {"depth": 5}, [[4], [], [2]], [ROW, None, None], [2, 1], [[0], [1]]),
    ("onnx:L-1", "OneHot", {"depth": [5.0]}, [[4], [], [2]], [ROW, None, None], [2, 1], [[0], [1]]),
    ("onnx:L-1", "LRN", {"size": 3}, [[2, 4, 3, 3]], [BATCH], [2, 1, 1, 1], [[0], [1]]),
    ("onnx:V-1", "Transpose", {}, [[4, 6]], [ROW], [1, 2], [[0], [1]]),
    ("onnx:V-1", "Reshape", {"shape": [4, 2, 3]}, [[4, 6]], [COL], [1, 2, 1], [[0], [1]]),
    ("onnx:V-1", "Reshape", {"shape": [2, 4]}, [[8]], [spec([0, 1], (0, 8, 2))], [2, 1], [[0], [1]]),
    ("onnx:V-1", "Reshape", {"shape": [0, -1]}, [["N", 2, 3]], [spec([0, 1], (0, "N", 2))], [2, 1], [[0], [1]]),
    ("onnx:V-1", "Unsqueeze", {"axes": [0, -1]}, [[4]], [ROW], [1, 2, 1], [[0], [1]]),
    ("onnx:V-1", "Squeeze", {}, [[1, 4]], [spec([0, 1], (1, 4, 2))], [2], [[0], [1]]),
    ("onnx:V-1", "Expand", {"shape": [3, 4, 6]}, [[4, 1]], [ROW], [1, 2, 1], [[0], [1]]),
    ("onnx:V-1", "Slice", {"starts": [1], "ends": [5], "axes": [1]}, [[4, 6]], [ROW], [2, 1], [[0], [1]]),
    ("onnx:V-1", "Slice", {"starts": [0], "ends": [9999], "axes": [0]}, [[4, 6]], [ROW], [2, 1], [[0], [1]]),
    ("onnx:V-1", "Concat", {"axis": 1}, [[4, 6], [4, 2]], [ROW, ROW], [2, 1], [[0], [1]]),
    ("onnx:V-1", "Split", {"axis": 1, "split": [2, 4]}, [[4, 6]], [ROW], [2, 1], [[0], [1]]),
    ("onnx:V-1", "Pad", {"pads": [0, 1, 0, 1]}, [[4, 6]], [ROW], [2, 1], [[0], [1]]),
    ("onnx:V-1", "Gather", {"axis": 1}, [[4, 6], [4]], [ROW, WHOLE], [2, 1], [[0], [1]]),
    ("onnx:V-1", "Gather", {"axis": 1}, [[4, 6], [4]], [spec([[0, 1]]), ROW], [1, 2], [[0], [1]]),
    ("onnx:V-1", "GatherND", {"batch_dims": 1}, [[4, 6], [4, 1]], [ROW, ROW], [2], [[0], [1]]),
    ("onnx:V-1", "ScatterElements", {"axis": 1}, [[4, 6], [4, 2], [4, 2]], [ROW] * 3, [2, 1], [[0], [1]]),
    ("onnx:V-1", "DepthToSpace", {"blocksize": 2}, [[2, 8, 2, 2]], [BATCH], [2, 1, 1, 1], [[0], [1]]),
    ("onnx:V-1", "Trilu", {}, [[4, 6]], [COL], [1, 2], [[0], [1]]),
    ("onnx:V-1", "Resize", {"sizes": [4, 9]}, [[4, 6]], [ROW], [2, 1], [[0], [1]]),
    ("onnx:C-1", "Shape", {}, [[4, 6]], [ROW], [1], [[0, 1]]),
    ("onnx:C-1", "RandomNormalLike", {}, [[4, 6]], [ROW], [1, 1], [[0, 1]]),
    ("onnx:K-1", "SoftmaxCrossEntropyLoss", {}, [[4, 6], [4]], [ROW, ROW], [], [[0, 1]]),
]

#: Rules that say which others are meant: numbers of those that find what is wrong.
FOUND_BY = {"S-10": ["N-1"], "R-3": ["R-1"], "U-2": ["N-1"], "M-2": ["N-1", "N-2"], "M-3": ["N-1", "M-1"]}

REJECTED = [
    ("onnx:N-1", "Add", {}, [[4, 6], [4, 6]], [ROW, WHOLE], "axis-sharding-mismatch"),
    ("onnx:N-1", "Add", {}, [[4, 6], [4, 6]], [ROW, COL], "axis-sharding-mismatch"),
    ("onnx:N-1", "Where", {}, [[4], [4], [4]], [ROW, ROW, WHOLE], "axis-sharding-mismatch"),
    ("onnx:U-2", "Max", {}, [[4], [4]], [ROW, WHOLE], "axis-sharding-mismatch"),
    ("onnx:S-10", "Add", {}, [[8], [8]], [HALVES, FUSED], "axis-sharding-mismatch"),
    ("onnx:N-2", "Add", {}, [[4, 6], [1, 6]], [WHOLE, spec([0, 1], (0, 1, 2))], "broadcast-axis-sharded"),
    ("onnx:N-3", "Add", {}, [[4, 1], [1, 6]], [ROW, COL], "empty-intersection"),
    ("onnx:N-3", "Div", {}, [[4], []], [ROW, spec([2])], "empty-intersection"),
    ("onnx:M-1", "MatMul", {}, [[4, 6], [6, 2]], [COL, WHOLE], "axis-sharding-mismatch"),
    ("onnx:M-1", "MatMul", {}, [[4, 6], [6, 2]], [COL, spec([1, 0], (0, 6, 2))], "empty-intersection"),
    ("onnx:R-3", "ReduceSum", {"axes": [2]}, [[4, 6]], [ROW], "attribute-invalid"),
    ("onnx:R-3", "ArgMax", {"axis": -3}, [[4, 6]], [ROW], "attribute-invalid"),
    ("onnx:M-2", "MatMul", {}, [[2, 4, 6], [2, 6, 5]], [BATCH, WHOLE], "axis-sharding-mismatch"),
    ("onnx:M-2", "MatMul", {}, [[2, 4, 6], [1, 6, 5]], [BATCH, spec([0, 1], (0, 1, 2))], "broadcast-axis-sharded"),
    ("onnx:M-3", "Gemm", {}, [[4, 6], [6, 2], [4, 2]], [ROW, WHOLE, WHOLE], "axis-sharding-mismatch"),
    ("onnx:M-3", "Gemm", {"transA": 1}, [[6, 4], [6, 2]], [ROW_OF_SIX, WHOLE], "axis-sharding-mismatch"),
    ("onnx:M-4", "MatMulInteger", {}, [[4, 6], [6, 2], [4]], [ROW, WHOLE, WHOLE], "axis-sharding-mismatch"),
    ("onnx:M-5", "Einsum", {"equation": "ii->i"}, [[4, 4]], [ROW], "unsupported-op"),
    ("onnx:L-1", "Softmax", {}, [[4, 6]], [COL], "axis-must-be-whole"),
    ("onnx:L-1", "CumSum", {"axis": 0}, [[4, 6]], [ROW], "axis-must-be-whole"),
    ("onnx:V-1", "Concat", {"axis": 0}, [[4, 6], [4, 6]], [ROW, ROW], "axis-must-be-whole"),
    ("onnx:V-1", "Gather", {"axis": 0}, [[4, 6], [2]], [ROW, WHOLE], "axis-must-be-whole"),
    ("onnx:V-1", "Slice", {"starts": [1], "ends": [4], "axes": [0]}, [[4, 6]], [ROW], "axis-must-be-whole"),
    ("onnx:V-1", "Reshape", {"shape": [3, 8]}, [[4, 6]], [COL], "output-spec-needed"),
    ("onnx:K-1", "NegativeLogLikelihoodLoss", {}, [[4, 6], [4]], [COL, WHOLE], "axis-must-be-whole"),
    ("onnx:F-1", "Conv", {}, [[2, 4, 3], [2, 4, 1]], [BATCH, WHOLE], "unsupported-op"),
    ("onnx:F-1", "Attention", {}, [[2, 4, 3]] * 3, [BATCH] * 3, "unsupported-op"),
    ("onnx:F-1", "NoSuchOperator", {}, [[4]], [ROW], "unsupported-op"),
]


@pytest.mark.parametrize(("rule", "op", "attrs", "shapes", "specs", "grid", "owners"), ACCEPTED)
def test_nodes_that_are_accepted(rule, op, attrs, shapes, specs, grid, owners):
    found = infer_node(op, attrs, shapes, specs, None, 6)
    assert found["status"] == "valid", found
    assert (found["outputs"][0]["grid"], found["outputs"][0]["owners"]) == (grid, owners)
    assert found["outputs"][0]["name"] == OPERATORS[op].outputs[0]


@pytest.mark.parametrize(("rule", "op", "attrs", "shapes", "specs", "code"), REJECTED)
def test_nodes_that_are_rejected(rule, op, attrs, shapes, specs, code):
    found = infer_node(op, attrs, shapes, specs, None, 6)
    assert (found["status"], found["error"], found["outputs"]) == ("invalid", code, [])
    number = rule.removeprefix("onnx:")
    assert found["rule"].split()[0] in (number, *FOUND_BY.get(number, ()))


def test_the_two_cases_of_the_text():
    """onnx:U-1, onnx:S-8, onnx:N-3."""
    found = infer_node("Tanh", {}, [[10]], [spec([2, 0, 1], (0, 10, 3))], None, 3)
    assert found.pop("rule").startswith("U-1 ")
    outputs = [{"name": "output", "grid": [3], "owners": [[2], [0], [1]], "shape": [10]}]
    assert found == {"status": "backend_defined", "outputs": outputs}
    parts = [spec([[0, 1], [2, 3], [4, 5]], (0, 9, 3)), spec([[0, 2, 4], [1, 3, 5]], (1, 10, 2))]
    found = infer_node("Sub", {}, [[9, 1], [1, 10]], parts, None, 6)
    assert found.pop("rule").startswith("N-3 ")
    outputs = [{"name": "C", "grid": [3, 2], "owners": [[0], [1], [2], [3], [4], [5]], "shape": [9, 10]}]
    assert found == {"status": "valid", "outputs": outputs}


def test_fused_axes_go_through_reshapes():
    """onnx:S-7, onnx:U-1, onnx:V-1."""
    cut = spec([0, 1], (1, 4, 2))
    fused = infer_node("Reshape", {"shape": [8]}, [[2, 4]], [cut], None, 2)["outputs"][0]
    assert (fused["grid"], fused["axis_layout"]) == ([2], [[[2, 1], [4, 2]]])
    layout = spec([0, 1], (0, (2, 1), (4, 2)))
    assert infer_node("Relu", {}, [[8]], [layout], None, 2)["outputs"][0]["axis_layout"] == [[[2, 1], [4, 2]]]
    back = infer_node("Reshape", {"shape": [2, 4]}, [[8]], [layout], None, 2)["outputs"][0]
    assert (back["grid"], "axis_layout" in back) == ([1, 2], False)


@pytest.mark.parametrize(
    ("specs", "shapes"),
    [
        ([ROW, spec([[0, 2], 1], (0, 4, 2))], [[4], [4]]),
        ([spec([[0, 1], [2, 3]], (0, 4, 2)), spec([[0, 2]])], [[4], []]),
    ],
)
def test_other_owners_are_a_warning(specs, shapes):
    """onnx:N-2."""
    found = infer_node("Add", {}, shapes, specs, None, 4)
    assert (found["status"], found["warnings"]) == ("valid", ["owners-differ"])


def test_given_outputs_are_reshards_where_they_differ():
    """onnx:G-3, onnx:R-2, onnx:A-7: names too; creations are made as they are given."""
    one = spec([0])
    found = infer_node("ReduceSum", {"axes": [1]}, [[4, 6]], [COL], [{"name": "y", "spec": one}], 2)
    assert found["outputs"] == [{"name": "y", "grid": [1, 1], "owners": [[0]], "shape": [4, 1]}]
    assert found["reshards"] == ["y"]
    same = infer_node("Relu", {}, [[4]], [ROW], [spec([0, 1], (-1, None, 2))], 2)
    assert (same["status"], same.get("reshards")) == ("valid", None)
    wrong = infer_node("Relu", {}, [[4]], [ROW], [spec([0, 1], (1, 4, 2))], 2)
    assert wrong["error"] == "axis-out-of-range"
    made = infer_node("RandomNormal", {"shape": [4]}, [], [], [ROW], 2)
    assert (made["outputs"][0]["owners"], made.get("reshards")) == ([[0], [1]], None)
    moved = infer_node("Reshape", {"shape": [3, 8]}, [[4, 6]], [COL], [spec([0])], 2)
    assert (moved["status"], moved["reshards"], moved["outputs"][0]["shape"]) == ("valid", ["reshaped"], [3, 8])


def test_whole_operands_are_sliced_where_that_is_allowed():
    """onnx:A-10."""
    for op, shapes, specs in [
        ("Add", [[4, 6], [4, 6]], [ROW, WHOLE]),
        ("MatMul", [[4, 6], [6, 2]], [COL, WHOLE]),
    ]:
        found = infer_node(op, {}, shapes, specs, None, 4, strict=False)
        assert (found["status"], found["warnings"]) == ("valid", ["local-slice"])
        assert infer_node(op, {}, shapes, [specs[0], spec([0])], None, 4, strict=False)["error"] == (
            "axis-sharding-mismatch"
        )
    assert infer_node("Add", {}, [[4, 6]] * 2, [ROW, COL], None, 4, strict=False)["error"] == "axis-sharding-mismatch"


def test_operators_without_annotations_run_in_plain_form():
    """onnx:F-1, onnx:G-2, onnx:A-8."""
    found = infer_node("Conv", {}, [[2, 4, 3], [2, 4, 1]], [None, None], None, 2)
    assert (found["status"], found["outputs"][0]["owners"]) == ("valid", [[0, 1]])


def test_unlisted_operators_with_complete_specs_of_a_parallel_loop_are_valid():
    """onnx:F-1."""
    found = infer_node("my::Op", {}, [[4], [4]], [ROW, ROW], [ROW], 2)
    assert (found["status"], found["outputs"][0]["grid"]) == ("valid", [2])
    assert infer_node("my::Op", {}, [[4], [4]], [ROW, ROW], [spec([1, 0], (0, 4, 2))], 2)["error"] == "unsupported-op"


@pytest.mark.parametrize("op", OPERATORS)
def test_no_ranks_and_attributes_make_it_raise(op):
    """onnx:A-2: whatever a node looks like, the answer is one of the three."""
    for n_inputs in range(4):
        for rank in range(4):
            for attrs in (
                {},
                {"axis": 7, "axes": [9], "perm": [0, 0], "shape": ["a"], "equation": "..->,"},
                {"axis": 1},
            ):
                shapes = [[4] * rank] * n_inputs
                cut = [spec([0, 1], (0, 4, 2)) if rank else spec([0])] * n_inputs
                for specs in ([None] * n_inputs, cut):
                    found = infer_node(op, attrs, shapes, specs, None, 2)
                    assert found["status"] in ("valid", "invalid", "backend_defined")


def test_every_operator_of_onnx_is_in_exactly_one_class():
    defs = pytest.importorskip("onnx").defs
    schemas = {schema.name: schema for schema in defs.get_all_schemas() if schema.domain == ""}
    assert not set(schemas) - set(OPERATORS), "newer operators that no class has"
    named = [line.partition(":")[0] for group in CLASSES for line in group.operators.split("\n") if line.strip()]
    assert sorted(named) == sorted(set(named))
    for name, schema in schemas.items():
        row = OPERATORS[name]
        assert row.outputs == tuple(output.name for output in schema.outputs), name
        assert row.inputs == tuple(value.name for value in schema.inputs), name
