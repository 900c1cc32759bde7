"""Creation: any box of what is made is numpy's whole array there, bit for bit."""

from __future__ import annotations

import catalogue as ops
import numpy as np
import pytest
from helpers import some
from hypothesis import given, settings
from hypothesis import strategies as st

import distarray as dx
from distarray.expr.op import CATALOGUE
from distarray.kernels.devices import backend_for
from distarray.kernels.tables import CREATE
from distarray.ops import creation

FEW = settings(max_examples=150, derandomize=True, deadline=None)
DTYPES = "? b B h H i I l L e f d F D".split()
CPU = backend_for("cpu")


def block(node, box):
    return CREATE[node.op.name](CPU, box, node.shape, node.dtype, node.params, node.runtime)


def assert_boxes(node, expected):
    """Every box of `node` that its halves and thirds make is that of `expected`."""
    assert (node.shape, node.dtype) == (expected.shape, expected.dtype)
    cuts = [sorted({0, n // 3, n // 2, n}) for n in expected.shape]
    boxes = [[(lo, hi) for lo in c for hi in c if lo <= hi] for c in cuts]
    for box in boxes[0] if len(boxes) == 1 else [(a, b) for a in boxes[0] for b in boxes[1]]:
        box = (box,) if len(boxes) == 1 else box
        got = block(node, box)
        want = expected[tuple(slice(lo, hi) for lo, hi in box)]
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)
        assert got.tobytes() == want.tobytes() or np.isnan(want.astype("c16")).any()


def test_kernels_and_catalogue_agree():
    made = {name for name, op in CATALOGUE.items() if op.kind == "create"}
    assert made >= {"empty", "full", "arange", "linspace", "eye", "tri"}
    assert all(CATALOGUE[name].repeatable for name in ("empty", "full", "arange", "linspace", "eye", "tri"))
    assert set(CREATE) >= {"empty", "full", "arange", "linspace", "eye", "tri"}


@FEW
@given(
    st.one_of(st.integers(-50, 50), st.floats(-50, 50)),
    st.one_of(st.none(), st.integers(-50, 50), st.floats(-50, 50)),
    st.one_of(st.integers(-7, 7).filter(bool), st.floats(0.3, 7), st.floats(-7, -0.3)),
    st.sampled_from([None, None, "b", "h", "l", "e", "f", "d", "F", "D"]),
)
def test_arange_boxes_are_numpys(kit, start, stop, step, dtype):
    """B-12, and section 7 of the environments: part == global slice, bitwise."""
    with np.errstate(all="ignore"):
        expected = np.arange(start, stop, step, dtype=dtype) if stop is not None else np.arange(0, start, step, dtype)
        node = creation.arange(start, stop, step, dtype, kit.env)
        assert_boxes(node, expected)


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != "?"])
def test_arange_of_every_dtype(kit, dtype):
    expected = np.arange(3, 100, 7, dtype=dtype)
    assert_boxes(creation.arange(3, 100, 7, dtype, kit.env), expected)


@pytest.mark.parametrize("dtype", ["u8", "i8", "u1"])
def test_descending_arange_wraps_as_numpys(kit, dtype):
    expected = np.arange(100, 3, -7, dtype=dtype)
    assert_boxes(creation.arange(100, 3, -7, dtype, kit.env), expected)


def test_large_arange_of_floats_is_numpys(kit):
    for args in ((0.1, 3000.7, 0.1), (0, 1e5, 1.1), (-5.0, 1e4, 1 / 3)):
        for dtype in (None, "f4", "f2"):
            expected = np.arange(*args, dtype=dtype)
            with np.errstate(all="ignore"):
                assert_boxes(creation.arange(*args, dtype, kit.env), expected)


def test_arange_of_dates(kit):
    start, stop = np.datetime64("2024-01-01"), np.datetime64("2024-03-01")
    assert_boxes(creation.arange(start, stop, 2, None, kit.env), np.arange(start, stop, 2))
    step = np.timedelta64(3, "D")
    assert_boxes(creation.arange(start, stop, step, None, kit.env), np.arange(start, stop, step))


def test_bad_arange_is_numpys_error(kit):
    kit.assert_same_error(lambda: creation.arange(0, 5, 0, None, kit.env), lambda: np.arange(0, 5, 0))
    kit.assert_same_error(lambda: creation.arange(0, 5, 1, "?", kit.env), lambda: np.arange(0, 5, 1, "?"))
    kit.assert_same_error(lambda: creation.arange(0, 300, 1, "O", kit.env), lambda: np.ones(2, "i8").astype("zz"))


@FEW
@given(
    st.one_of(st.integers(-9, 9), st.floats(-1e6, 1e6), st.complex_numbers(max_magnitude=1e3)),
    st.one_of(st.integers(-9, 9), st.floats(-1e6, 1e6)),
    st.integers(0, 40),
    st.booleans(),
    st.sampled_from([None, None, "f", "d", "D", "l"]),
)
def test_linspace_boxes_are_numpys(kit, start, stop, num, endpoint, dtype):
    if isinstance(start, complex) and dtype in ("f", "d", "l"):
        return
    with np.errstate(all="ignore"):
        expected = np.linspace(start, stop, num, endpoint=endpoint, dtype=dtype)
        assert_boxes(creation.linspace(start, stop, num, dtype, endpoint, kit.env), expected)


def test_linspace_ends_exactly(kit):
    for num in (2, 3, 49, 50):
        values = kit.evaluate(creation.linspace(0.1, 0.7, num, None, True, kit.env))
        assert (values[0], values[-1]) == (0.1, 0.7)


def test_linspace_of_denormal_steps(kit):
    tiny = np.nextafter(0, 1)
    expected = np.linspace(0, tiny, 5)
    assert_boxes(creation.linspace(0, tiny, 5, None, True, kit.env), expected)
    kit.assert_same_error(lambda: creation.linspace(0, 1, -1, None, True, kit.env), lambda: np.linspace(0, 1, -1))


@pytest.mark.parametrize("dtype", some(DTYPES))
@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (4, 0), (5, 7), (7, 5)], ids=str)
@pytest.mark.parametrize("k", [-9, -2, 0, 1, 9])
def test_eye_and_tri_boxes_are_numpys(kit, shape, k, dtype):
    assert_boxes(creation.eye(*shape, k, dtype, kit.env), np.eye(*shape, k, dtype=dtype))
    assert_boxes(creation.tri(*shape, k, dtype, kit.env), np.tri(*shape, k, dtype=dtype))


@pytest.mark.parametrize("dtype", [*DTYPES, None, "m8[s]", "M8[D]"])
@pytest.mark.parametrize("value", [0, 1, 2.5, True, -0.0, np.float32(3)])
def test_full_is_numpys(kit, value, dtype):
    if dtype in ("M8[D]", "m8[s]") and isinstance(value, float | np.floating):
        pytest.skip("dates are integers")
    if dtype == "M8[D]" and isinstance(value, bool):
        pytest.skip("no date is true")
    expected = np.full((3, 4), value, dtype)
    assert_boxes(creation.full((3, 4), value, dtype, kit.env), expected)


def test_full_checks_its_value_at_the_call(kit):
    kit.assert_same_error(lambda: creation.full(3, 300, "u1", kit.env), lambda: np.full(3, 300, "u1"))
    kit.assert_same_error(lambda: creation.full(-1, 0, "f8", kit.env), lambda: np.full(-1, 0, "f8"))
    kit.assert_same_error(lambda: creation.empty(1.5, "f8", kit.env), lambda: np.empty(1.5, "f8"))


def test_zeros_and_ones_are_double_by_default(kit):
    kit.assert_same(creation.zeros((2, 0), None, kit.env), np.zeros((2, 0)))
    assert dx.ones(3).dtype == np.float64
    assert creation.empty((2, 3), "f4", kit.env).shape == (2, 3)


@pytest.mark.parametrize("dtype", [None, "i2", "c8"])
@pytest.mark.parametrize("shape", [None, (2,), ()])
def test_like_takes_dtype_and_shape(kit, dtype, shape):
    x = np.ones((3, 2), "f4")
    kit.assert_same(
        ops.full_like(kit.node(x), 7, dtype=dtype, shape=shape), np.full_like(x, 7, dtype=dtype, shape=shape)
    )
    made = ops.empty_like(kit.node(x), dtype=dtype, shape=shape)
    assert (made.shape, made.dtype) == (np.empty_like(x, dtype, shape=shape).shape, np.dtype(dtype or "f4"))


@pytest.mark.parametrize("indexing", ["xy", "ij"])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("lengths", [(), (3,), (3, 4), (2, 0, 3), (2, 3, 4)], ids=str)
def test_meshgrid_is_numpys_and_made_of_views(kit, lengths, sparse, indexing):
    axes = [np.arange(n) * 1.5 for n in lengths]
    made = [x.__dx_node__() for x in dx.meshgrid(*map(dx.asarray, axes), indexing=indexing, sparse=sparse)]
    kit.assert_same(made, list(np.meshgrid(*axes, indexing=indexing, sparse=sparse)))
    assert all(g.op.kind in ("get", "source") for g in made)


def test_meshgrid_flattens_what_is_no_vector(kit):
    axes = [np.array(3), np.arange(4.0).reshape(2, 2)]
    kit.assert_same([x.__dx_node__() for x in dx.meshgrid(*map(dx.asarray, axes))], list(np.meshgrid(*axes)))


@pytest.mark.parametrize("shape", [(), (3,), (2, 1, 3), (0, 2)], ids=str)
def test_indices_are_broadcast_views(kit, shape):
    made = creation.indices(shape, None, kit.env)
    kit.assert_same(made, list(np.indices(shape)))


@pytest.mark.parametrize(
    "shape",
    [{}, {1: 2}, {3}, frozenset(), True, "ab", None, 2.5, iter((2, 3)), object()],
    ids=lambda shape: type(shape).__name__,
)
@pytest.mark.parametrize("name", ["zeros", "ones", "empty", "full", "zeros_like", "random"])
def test_a_shape_is_a_number_or_a_sequence_of_them(name, shape):
    call = {
        "full": lambda: dx.full(shape, 7),
        "zeros_like": lambda: dx.zeros_like(dx.ones(3), shape=shape),
        "random": lambda: dx.random.default_rng(0).random(shape),
    }.get(name, lambda: getattr(dx, name)(shape))
    if shape is None and name in ("zeros_like", "random"):
        assert call().shape == ((3,) if name == "zeros_like" else ())
        return
    with pytest.raises(TypeError):
        call()


@pytest.mark.parametrize(
    "shape", [(), [], 3, (2, 3), [2, 3], np.int64(3), np.array([2, 3]), np.array(3), range(3)], ids=str
)
def test_shapes_are_numpys(shape):
    assert dx.zeros(shape).shape == np.zeros(shape).shape
