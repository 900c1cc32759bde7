"""Single operators: the forms of older opsets, chance, what no conformance case shows, and that none is missing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import distarray as dx
from distarray.errors import NotSupportedError
from distarray.testing import counting

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402
from onnx.reference.ops import load_op  # noqa: E402

from distarray.io.onnx import infer_node  # noqa: E402
from distarray.io.onnx.operators import run_node  # noqa: E402
from distarray.io.onnx.operators.graph import ROWS  # noqa: E402

X = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
IMAGES = np.random.default_rng(1).standard_normal((4, 2, 6, 6)).astype(np.float32)
WEIGHTS = np.random.default_rng(2).standard_normal((3, 2, 3, 3)).astype(np.float32)
AXES = np.asarray([0, -1])


def reference(op: str, attributes: dict[str, Any], inputs: list[Any], opset: int, n_outputs: int) -> list[Any]:
    names = [f"i{k}" for k in range(len(inputs))]
    made = [f"o{k}" for k in range(n_outputs)]
    node = helper.make_node(op, names, made, **attributes)
    kinds = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for n, x in zip(names, inputs)
    ]
    graph = helper.make_graph([node], "one", kinds, [onnx.ValueInfoProto(name=n) for n in made])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    return list(ReferenceEvaluator(model).run(None, dict(zip(names, inputs))))


#: operator, opset, attributes, inputs: what is an attribute here is an input in newer opsets, or the other way round.
FORMS = [
    *[(f"Reduce{kind}", opset, {"axes": [0, -1], "keepdims": keep}, [X])
      for kind in ("Max", "Min", "Mean", "Prod", "L1", "L2", "SumSquare", "LogSumExp") for opset in (13, 17)
      for keep in (0, 1)],
    *[(f"Reduce{kind}", opset, {"keepdims": keep}, [X, AXES])
      for kind in ("Max", "Min", "Mean", "Prod", "L1", "L2", "SumSquare", "LogSumExp") for opset in (18, 20, 26)
      for keep in (0, 1)],
    *[("ReduceSum", opset, {}, [X, AXES]) for opset in (13, 18, 26)],
    *[(f"Reduce{kind}", 18, {"noop_with_empty_axes": 1}, [X]) for kind in ("Sum", "Mean", "L1", "L2", "SumSquare")],
    ("ReduceLogSum", 13, {"axes": [1]}, [abs(X)]),
    *[("Squeeze", opset, {}, [X[:1], np.asarray([0])]) for opset in (13, 21)],
    ("Squeeze", 13, {}, [X[:1]]),
    *[("Unsqueeze", opset, {}, [X, np.asarray([-1, 1])]) for opset in (13, 21)],
    *[("Split", opset, {"axis": 2}, [X, np.asarray([1, 3])]) for opset in (13, 18)],
    ("Split", 13, {"axis": -1}, [X]),
    ("Pad", 13, {"mode": "edge"}, [X, np.asarray([0, 1, 1, 0, 2, 0])]),
    ("Pad", 13, {}, [X, np.asarray([0, 1, 1, 0, 2, 0]), np.float32(2)]),
    ("Pad", 19, {"mode": "wrap"}, [X, np.asarray([1, 2]), np.asarray(0, np.float32), np.asarray([2])]),
    ("Slice", 13, {}, [X, np.asarray([-1, 0]), np.asarray([-1000, 2]), np.asarray([2, 1]), np.asarray([-1, 1])]),
    ("TopK", 11, {"axis": 1, "largest": 0}, [X, np.asarray([2])]),
    ("ArgMax", 13, {"axis": -1, "keepdims": 0, "select_last_index": 1}, [np.float32([[1, 3, 3], [2, 2, 1]])]),
    ("Clip", 13, {}, [X, np.float32(-0.5), np.float32(0.5)]),
    ("Softmax", 13, {"axis": 1}, [X]),
    ("BatchNormalization", 15, {}, [X, *[np.float32([1, 2, 3])] * 4]),
    ("BatchNormalization", 15, {"training_mode": 1}, [X, *[np.float32([1, 2, 3])] * 4]),
    ("LayerNormalization", 17, {"axis": -2}, [X, X[0], X[1]]),
    ("Shape", 15, {"start": 1}, [X]),
    ("Cast", 13, {"to": TensorProto.INT32}, [X * 10]),
    ("Mod", 13, {"fmod": 1}, [np.int32([-7, 7, -7]), np.int32([3, -3, -3])]),
    ("Mod", 13, {}, [np.int32([-7, 7, -7]), np.int32([3, -3, -3])]),
    ("Gemm", 13, {"transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0}, [X[0], X[:, :, 0], X[0, :, :2].T[:1, :2]]),
    ("Einsum", 13, {"equation": "...ij, ...jk -> ...ik"}, [X, X.transpose(0, 2, 1)]),
    ("Hardmax", 13, {"axis": 0}, [X]),
    ("DepthToSpace", 13, {"blocksize": 2, "mode": "CRD"}, [X.reshape(1, 4, 2, 3)]),
    ("Conv", 11, {"pads": [1, 1, 1, 1], "strides": [2, 2]}, [IMAGES, WEIGHTS]),
    ("Conv", 22, {"dilations": [2, 2]}, [IMAGES, WEIGHTS, np.float32([1, 2, 3])]),
    ("MaxPool", 12, {"kernel_shape": [2, 2], "strides": [2, 2]}, [IMAGES]),
    ("AveragePool", 19, {"kernel_shape": [3, 3]}, [IMAGES]),
    ("GlobalAveragePool", 13, {}, [IMAGES]),
    ("GlobalMaxPool", 13, {}, [IMAGES]),
    ("ConvTranspose", 11, {}, [IMAGES, WEIGHTS.transpose(1, 0, 2, 3)]),
]  # fmt: skip


@pytest.mark.parametrize(("op", "opset", "attributes", "inputs"), FORMS, ids=lambda v: v if type(v) is str else None)
def test_form_of_an_opset_equals_the_reference(op, opset, attributes, inputs):
    n = {"Split": 2, "TopK": 2, "BatchNormalization": 1 + 2 * attributes.get("training_mode", 0)}.get(op, 1)
    expected = reference(op, attributes, inputs, opset, n)
    given = [dx.asarray(inputs[0]), *inputs[1:]]
    for e, f in zip(expected, run_node(op, "", attributes, given, opset, n), strict=True):
        assert isinstance(f, dx.DistArray)
        assert f.shape == e.shape
        np.testing.assert_allclose(np.asarray(f), e, rtol=1e-4, atol=1e-5)
        # The reference computes some sums in double precision and forgets to cast them.
        assert f.dtype == (inputs[0].dtype if e.dtype == np.float64 else e.dtype)


def test_no_operator_is_missing_in_any_opset():
    missing = set()
    for name in {schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain}:
        for opset in range(13, 27):
            try:
                schema = onnx.defs.get_schema(name, opset, "")
            except onnx.defs.SchemaError:
                continue  # newer than this opset
            versions = [*schema.function_opset_versions, *schema.context_dependent_function_opset_versions]
            if name not in ROWS and not any(v <= opset for v in versions):
                try:
                    load_op("", name, opset)
                except Exception:
                    missing.add(name)
    assert missing == set()


def test_rows_are_operators_of_onnx():
    assert {*ROWS} <= {schema.name for schema in onnx.defs.get_all_schemas()}


def test_integers_divide_towards_zero():
    for dtype in (np.int8, np.int64):
        (found,) = run_node(
            "Div", "", {}, [dx.asarray(np.asarray([-7, 7, -6, 7], dtype)), np.asarray([2, -2, 3, 7], dtype)], 14
        )
        assert found.dtype == dtype
        assert found.tolist() == [-3, -3, -2, 1]


@pytest.mark.parametrize(
    ("op", "attributes", "inputs", "text"),
    [
        ("Split", {}, [X, np.asarray([3, -1])], "split=.*are no parts of axis 0"),
        ("SplitToSequence", {"axis": 1}, [X, np.asarray([1, 1])], "split=.*are no parts of axis 1"),
        ("SplitToSequence", {}, [X, np.asarray(0)], "split=0 must be at least 1"),
        ("Pad", {}, [X, np.asarray([0, 0, -3, 0, 0, -2])], "cut off more than there is"),
        ("Pad", {}, [X, np.asarray([1, 1])], "2 pads for 3 axes"),
        ("GatherND", {}, [X, np.zeros((2, 0), np.int64)], "name no axis"),
        ("Reshape", {}, [X, np.asarray([-1, -1])], "several sizes -1"),
        ("Reshape", {}, [X, np.asarray([2, 3, 4, 0])], "cannot reshape"),
    ],
)
def test_what_does_not_fit_an_array_is_refused(op, attributes, inputs, text):
    with pytest.raises(ValueError, match=text):
        run_node(op, "", attributes, [dx.asarray(inputs[0]), *inputs[1:]], 13)


@pytest.mark.parametrize(("op", "attributes"), [("MaxPool", {}), ("AveragePool", {"pads": [1, 1, 1, 1]})])
def test_a_pool_without_a_window_is_refused(op, attributes):
    with pytest.raises(ValueError, match="a window reaches over 9 elements, of"):
        run_node(op, "", {"kernel_shape": [9, 9], **attributes}, [dx.asarray(IMAGES)], 13)


@pytest.mark.parametrize("opset", [11, 13])
@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
def test_what_runs_along_an_axis_of_nothing_is_nothing(op, opset):
    for shape in ((0, 3), (3, 0)):
        (found,) = run_node(op, "", {"axis": 1}, [dx.zeros(shape, dtype="f4")], opset)
        assert (found.shape, found.dtype) == (shape, np.float32)


BESIDE = X[:, :, :3].astype(np.float64)


@pytest.mark.parametrize(
    ("op", "attributes", "operand", "expected"),
    [
        ("Add", {"broadcast": 1, "axis": 1}, BESIDE[0, 0], BESIDE + BESIDE[0, 0][:, None]),
        ("Sub", {"broadcast": 1, "axis": 0}, BESIDE[:, :, 0], BESIDE - BESIDE[:, :, :1]),
        ("Mul", {"broadcast": 1}, BESIDE[0, 0], BESIDE * BESIDE[0, 0]),
        ("PRelu", {}, BESIDE[0, 0], np.where(BESIDE < 0, BESIDE * BESIDE[0, 0][:, None], BESIDE)),
    ],
)
@pytest.mark.parametrize("small", [True, False])
def test_before_opset_7_a_second_operand_begins_at_an_axis_of_the_first(op, attributes, operand, expected, small):
    first = BESIDE if small else dx.asarray(BESIDE)
    (found,) = run_node(op, "", attributes, [first, operand], 6)
    np.testing.assert_array_equal(np.asarray(found), expected)


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("size", [[1, 3, 2], [1, 2, 3, 2]])
def test_a_grid_of_a_batch_of_one_is_one(n, size):
    theta = np.random.default_rng(0).random((n, len(size) - 1, len(size)), np.float32)
    inputs = [theta, np.asarray([n, *size])]
    (expected,) = reference("AffineGrid", {}, inputs, 20, 1)
    (found,) = run_node("AffineGrid", "", {}, [dx.asarray(theta), inputs[1]], 20)
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-5, atol=1e-6)


def test_ranges_of_large_integers_are_exact():
    bounds = {"start": 1, "limit": 2**53 + 2, "delta": 2**53}
    (found,) = run_node("Range", "", {}, [dx.asarray(np.asarray(n)) for n in bounds.values()], 11)
    assert found.tolist() == [1, 2**53 + 1]
    (form,) = infer_node("Range", bounds, [[], [], []], [None] * 3, None, 2)["outputs"]
    assert form["shape"] == [2]


def test_boxes_that_overlap_are_suppressed_without_a_threshold():
    boxes = np.random.default_rng(0).random((1, 6, 4), np.float32)
    scores, most = np.random.default_rng(1).random((1, 1, 6), np.float32), np.asarray([4])
    (expected,) = reference("NonMaxSuppression", {}, [boxes, scores, most, np.float32([0])], 11, 1)
    (found,) = run_node("NonMaxSuppression", "", {}, [dx.asarray(boxes), dx.asarray(scores), most], 11)
    assert len(expected) > 1
    np.testing.assert_array_equal(np.asarray(found), expected)
    (none,) = run_node("NonMaxSuppression", "", {}, [dx.asarray(boxes), dx.asarray(scores)], 11)
    assert none.shape == (0, 3)


def test_older_forms_of_operators():
    images = dx.asarray(IMAGES)
    (found,) = run_node("Upsample", "", {"height_scale": 2.0, "width_scale": 1.5}, [images], 1)
    np.testing.assert_array_equal(
        np.asarray(found), np.asarray(images)[:, :, np.arange(12) // 2][..., np.arange(9) * 2 // 3]
    )
    own = [np.abs(IMAGES[0]) + k for k in range(4)]
    scale, bias, mean, var = own
    (found,) = run_node("BatchNormalization", "", {"spatial": 0}, [images, *own], 7)
    expected = (IMAGES - mean) / np.sqrt(var + np.float32(1e-5)) * scale + bias
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-4, atol=1e-5)
    (found,) = run_node("Clip", "", {"min": 0.0}, [dx.asarray(np.float16([-1, 2]))], 6)
    assert found.tolist() == [0, 2]
    assert [x.dtype for x in run_node("Dropout", "", {}, [images], 7, 2)] == [np.float32, np.float32]


def test_a_reshape_of_no_elements_keeps_the_sizes_that_it_names():
    (found,) = run_node("Reshape", "", {}, [dx.zeros((0, 3, 4)), np.asarray([0, -1])], 13)
    assert found.shape == (0, 12)


def test_nothing_is_split_into_no_sequence():
    assert run_node("SplitToSequence", "", {}, [dx.zeros((0, 2))], 11) == ([],)


def test_the_pads_of_opset_1_have_another_name():
    (found,) = run_node("Pad", "", {"paddings": [1, 2]}, [dx.ones(2)], 1)
    assert found.tolist() == [0, 1, 1, 0, 0]


@pytest.mark.parametrize("bounds", [(-100, -100, -1), (100, -100, -2), (0, -1, -1), (-1, 100, -1), (1, 100, 2)])
def test_bounds_of_a_slice_are_clamped_as_onnx_says(bounds):
    start, end, step = (np.asarray([n]) for n in bounds)
    inputs = [dx.asarray(X), start, end, np.asarray([2]), step]
    (found,) = run_node("Slice", "", {}, inputs, 13)
    named = {"starts": [bounds[0]], "ends": [bounds[1]], "axes": [2], "steps": [bounds[2]]}
    (form,) = infer_node("Slice", named, [X.shape], [None], None, 2)["outputs"]
    said = onnx.shape_inference.infer_shapes(
        helper.make_model(
            helper.make_graph(
                [helper.make_node("Slice", ["x", "starts", "ends", "axes", "steps"], ["y"])],
                "g",
                [helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)],
                [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
                [onnx.numpy_helper.from_array(np.asarray(v), name) for name, v in named.items()],
            )
        )
    ).graph.output[0]
    assert list(found.shape) == form["shape"] == [d.dim_value for d in said.type.tensor_type.shape.dim]


@pytest.mark.parametrize("dtype", ["u1", "i4"])
@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_resized_integers_are_rounded_and_stay_in_their_range(mode, dtype):
    images = np.random.default_rng(3).choice([0, 7, 250, 255], (2, 1, 16, 16)).astype(dtype)
    sizes = np.asarray([2, 1, 20, 11])
    (expected,) = reference("Resize", {"mode": mode}, [images, np.float32([]), np.float32([]), sizes], 18, 1)
    (found,) = run_node("Resize", "", {"mode": mode}, [dx.asarray(images), None, None, sizes], 18)
    assert found.dtype == dtype
    np.testing.assert_array_equal(np.asarray(found), expected)


# ------------------------------------------------------------------------------------------------------ laziness


@pytest.mark.parametrize(
    ("op", "attributes", "inputs"),
    [
        ("Conv", {}, [IMAGES, WEIGHTS]),
        ("MaxPool", {"kernel_shape": [2, 2]}, [IMAGES]),
        ("LSTM", {"hidden_size": 3}, [X, X[:1, :1].repeat(12, 1), np.ones((1, 12, 3), np.float32)]),
        ("LayerNormalization", {}, [X, X[0, 0]]),
        ("Softmax", {}, [X]),
        ("ReduceMean", {}, [X, AXES]),
        ("Resize", {"mode": "cubic"}, [IMAGES, None, None, np.asarray([4, 2, 9, 3])]),
        ("Gather", {"axis": 1}, [X, np.asarray([[0, -1]])]),
        ("Einsum", {"equation": "bij,bkj->ik"}, [X, X]),
        ("Attention", {}, [IMAGES, IMAGES, IMAGES]),
    ],
)  # fmt: skip
def test_building_does_not_compute(op, attributes, inputs):
    given = [v if v is None or v.dtype.kind == "i" else dx.asarray(v) for v in inputs]
    with dx.config.set(eager_bytes=0), counting() as counts:
        (found,) = run_node(op, "", attributes, given, 23)
        assert counts.evaluations == 0
        found.compute()
        assert counts.evaluations == 1


def test_gathers_by_computed_positions_are_deferred_where_errors_are():
    at = dx.asarray(np.asarray([[[2, 0, 1, 0]], [[0, 0, 1, 2]]])) + 0
    with dx.config.set(eager_bytes=0, errors="deferred"), counting() as counts:
        (found,) = run_node("GatherElements", "", {"axis": 1}, [dx.asarray(X), at], 13)
        assert counts.evaluations == 0
    np.testing.assert_array_equal(np.asarray(found), np.take_along_axis(X, np.asarray(at), 1))


def test_a_kernel_is_cut_along_the_batch():
    team = dx.Team((2,), ("T",))
    images = dx.asarray(IMAGES, team=team, sharding=("T", None, None, None))
    (found,) = run_node("Conv", "", {"pads": [1, 1, 1, 1]}, [images, WEIGHTS], 22)
    (expected,) = reference("Conv", {"pads": [1, 1, 1, 1]}, [IMAGES, WEIGHTS], 22, 1)
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-4, atol=1e-5)
    assert found.sharding.parts == (2, 1, 1, 1)


def test_indices_of_a_pool_count_over_the_batch_and_are_not_cut_along_it():
    team = dx.Team((2,), ("T",))
    images = dx.asarray(IMAGES, team=team, sharding=("T", None, None, None))
    attributes = {"kernel_shape": [2, 2], "strides": [2, 2]}
    expected = reference("MaxPool", attributes, [IMAGES], 22, 2)
    for e, f in zip(expected, run_node("MaxPool", "", attributes, [images], 22, 2)):
        np.testing.assert_array_equal(np.asarray(f), e)


@pytest.mark.parametrize("opset", [13, 22])
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize(
    "attributes",
    [
        {"kernel_shape": [3, 2]},
        {"kernel_shape": [3, 3], "strides": [2, 3], "pads": [1, 0, 2, 1]},
        {"kernel_shape": [4, 3], "strides": [3, 1], "auto_pad": "SAME_UPPER"},
        {"kernel_shape": [6, 1], "strides": [1, 4], "auto_pad": "VALID"},
        {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1},
        {"kernel_shape": [2, 2], "dilations": [2, 3], "pads": [0, 1, 1, 1]},
    ],
)
def test_pools_equal_the_reference(op, attributes, opset):
    known = onnx.defs.get_schema(op, opset, "").attributes
    attributes = {name: value for name, value in attributes.items() if name in known}
    if op == "LpPool" and "ceil_mode" in attributes:
        # The reference takes means of what is there, times the whole window, also where a part of it is outside.
        rows = [slice(i, i + 3) for i in (0, 2, 4)]
        norms = [[np.sqrt((IMAGES[:, :, i, j] ** 2).sum((2, 3))) for j in rows] for i in rows]
        expected = np.moveaxis(np.asarray(norms), (0, 1), (2, 3))
    else:
        (expected,) = reference(op, attributes, [IMAGES], opset, 1)
    (found,) = run_node(op, "", attributes, [dx.asarray(IMAGES)], opset)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-5, atol=1e-6)


# -------------------------------------------------------------------------------------------------------- chance


def test_random_numbers_have_the_moments_that_are_asked_for():
    shape = [100, 100]
    (normal,) = run_node("RandomNormal", "", {"shape": shape, "mean": 3.0, "scale": 2.0, "seed": 1.0}, [], 22)
    assert normal.dtype == np.float32
    assert abs(normal.mean().item() - 3) < 0.1
    assert abs(normal.std().item() - 2) < 0.1
    (uniform,) = run_node("RandomUniformLike", "", {"low": -1.0, "high": 1.0, "seed": 1.0}, [normal], 22)
    assert uniform.shape == (100, 100)
    assert -1 <= uniform.min().item() < -0.9
    assert 0.9 < uniform.max().item() < 1
    (again,) = run_node("RandomNormal", "", {"shape": shape, "mean": 3.0, "scale": 2.0, "seed": 1.0}, [], 22)
    assert dx.array_equal(normal, again)
    (other,) = run_node("RandomNormal", "", {"shape": shape, "mean": 3.0, "scale": 2.0}, [], 22)
    assert not dx.array_equal(normal, other)


def test_bernoulli_multinomial_and_dropout_follow_their_shares():
    (drawn,) = run_node("Bernoulli", "", {"seed": 1.0, "dtype": TensorProto.INT32}, [dx.full((10_000,), 0.25)], 22)
    assert drawn.dtype == np.int32
    assert abs(drawn.mean().item() - 0.25) < 0.02
    logits = dx.asarray(np.log(np.float32([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]])))
    (drawn,) = run_node("Multinomial", "", {"sample_size": 10_000, "seed": 1.0}, [logits], 22)
    assert drawn.dtype == np.int32
    for row, shares in zip(np.asarray(drawn), [(0.5, 0.3, 0.2), (0.1, 0.1, 0.8)]):
        np.testing.assert_allclose(np.bincount(row, minlength=3) / 10_000, shares, atol=0.02)
    ones = dx.ones(10_000, dtype=np.float32)
    made, mask = run_node("Dropout", "", {"seed": 1}, [ones, np.float32(0.25), np.asarray(True)], 22, 2)
    assert made.dtype == np.float32
    assert abs(mask.mean().item() - 0.75) < 0.02
    assert dx.array_equal(made, dx.where(mask, np.float32(1 / 0.75), np.float32(0)))


# -------------------------------------------------------------------------------------- without conformance cases


def test_pools_over_all_of_space():
    (found,) = run_node("GlobalLpPool", "", {"p": 3}, [dx.asarray(IMAGES)], 22)
    expected = (np.abs(IMAGES) ** 3).sum((2, 3), keepdims=True) ** (1 / 3)
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-5)


def test_regions_are_pooled_by_their_largest_elements():
    rois = np.float32([[1, 0, 0, 3, 3], [0, 2, 1, 5, 5], [3, 4, 4, 9, 9]])
    attributes = {"pooled_shape": [2, 2]}
    (found,) = run_node("MaxRoiPool", "", attributes, [dx.asarray(IMAGES), dx.asarray(rois)], 22)
    assert found.shape == (3, 2, 2, 2)
    assert found.dtype == np.float32
    image = IMAGES[1]
    expected = [[image[c, i : i + 2, j : j + 2].max() for j in (0, 2)] for c in (0, 1) for i in (0, 2)]
    np.testing.assert_array_equal(np.asarray(found)[0], np.reshape(expected, (2, 2, 2)))
    # The region of the third one ends outside of the image, where nothing is.
    assert np.asarray(found)[2, :, 1, 1].tolist() == [0, 0]
    # Five rows in two bins overlap in the middle one.
    assert np.asarray(found)[1, 0, 0, 0] == IMAGES[0, 0, 1:4, 2:4].max()


def test_slices_backwards_are_confined_to_the_axis():
    given = [dx.asarray(X[0, 0]), *(np.asarray([n]) for n in (-1000, -(2**62), 0, -1))]
    assert run_node("Slice", "", {}, given, 13)[0].tolist() == X[0, 0, :1].tolist()
    given[1:3] = np.asarray([1000]), np.asarray([-3])
    assert run_node("Slice", "", {}, given, 13)[0].tolist() == X[0, 0, :1:-1].tolist()


def test_depths_may_be_more_than_the_indices_hold():
    (found,) = run_node("OneHot", "", {}, [dx.asarray(np.uint8([3])), np.asarray(300), np.float32([0, 5])], 13)
    assert found.shape == (1, 300)
    assert (found.sum().item(), found[0, 3].item()) == (5, 5)


def test_host_data_are_folded_also_where_an_output_is_not_wanted():
    made = run_node("TopK", "", {}, [np.float32([3, 1, 2]), np.asarray([2])], 13, ["", "at"])
    assert made[0] is None
    assert made[1].tolist() == [0, 2]
    (found,) = run_node("GlobalLpPool", "", {}, [np.ones((1, 1, 4), np.float32)], 13)  # no kernel can fold it
    assert found.tolist() == [[[2]]]


def test_negative_pads_take_away():
    (found,) = run_node("Pad", "", {}, [dx.asarray(X), np.asarray([0, -1, 1, 0, 2, -1]), np.float32(2)], 13)
    expected = np.pad(X[:, 1:, :-1], [(0, 0), (0, 2), (1, 0)], constant_values=2)
    np.testing.assert_array_equal(np.asarray(found), expected)


def test_elements_that_numpy_lacks_are_refused_with_the_node_and_the_type():
    with pytest.raises(NotSupportedError, match=r"node 'n7' \(Cast\): numpy has no elements of type BFLOAT16"):
        run_node("Cast", "", {"to": TensorProto.BFLOAT16}, [dx.asarray(X)], 19, name="n7")
    with pytest.raises(NotSupportedError, match="node of Constant: numpy has no elements of type STRING"):
        run_node("Constant", "", {"value_string": "a"}, [], 19)


def test_unknown_operator_is_refused():
    with pytest.raises(ValueError, match=r"node 'n' \(Foo\): opset 19 of the domain 'ai.onnx' has no such operator"):
        run_node("Foo", "", {}, [dx.asarray(X)], 19, name="n")
    with pytest.raises(ValueError, match="has no such operator"):
        run_node("Gelu", "", {}, [dx.asarray(X)], 19)  # there since opset 20


def test_attributes_may_be_protos():
    (found,) = run_node("Transpose", "", {"perm": helper.make_attribute("perm", [2, 0, 1])}, [dx.asarray(X)], 13)
    np.testing.assert_array_equal(np.asarray(found), X.transpose(2, 0, 1))
