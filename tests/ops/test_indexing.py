"""Integer positions, read and written: numpy's results for any mixture of slices, integers and arrays."""

from __future__ import annotations

import catalogue as ops
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distarray.expr.indexing import Advanced, parse_index
from distarray.ops.indexing import get_item, put_item, put_mask

FEW = settings(max_examples=200, derandomize=True, deadline=None)
SHAPE = (4, 3, 5)


def numbers(shape=SHAPE, dtype="f8"):
    return np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)


def parsed(index, shape):
    found = parse_index(index, shape)
    return found.without_masks(np.nonzero) if isinstance(found, Advanced) else found


@st.composite
def indices(draw):
    """Indices of an array of shape SHAPE: arrays broadcast against each other more often than not."""
    shapes = [(2,), (2,), (1,), (), (3, 1), (3, 2), (0,)]
    items = []
    axis = 0
    for _ in range(draw(st.integers(1, 5))):
        kind = draw(st.sampled_from(["array", "array", "slice", "int", "new", "ellipsis", "list"]))
        if kind == "new":
            items.append(None)
            continue
        if kind == "ellipsis":
            if Ellipsis not in [i for i in items if i is Ellipsis]:
                items.append(...)
            break
        if axis == len(SHAPE):
            break
        n = SHAPE[axis]
        axis += 1
        one = st.integers(-n, n - 1)
        if kind == "array":
            shape = draw(st.sampled_from(shapes))
            size = int(np.prod(shape))
            items.append(np.array(draw(st.lists(one, min_size=size, max_size=size)), int).reshape(shape))
        elif kind == "list":
            items.append(draw(st.lists(one, min_size=1, max_size=2)))
        elif kind == "slice":
            items.append(slice(draw(st.integers(-6, 6)), draw(st.integers(-6, 6)), draw(st.sampled_from([1, 2, -1]))))
        else:
            items.append(draw(one))
    return tuple(items)


@FEW
@given(indices())
def test_getitem_is_numpys(kit, index):
    x = numbers()
    try:
        expected = x[index]
    except IndexError:
        with pytest.raises(IndexError):
            parsed(index, x.shape)
        return
    kit.assert_same(get_item(kit.node(x), parsed(index, x.shape)), expected)


@FEW
@given(indices(), st.data())
def test_setitem_is_numpys(kit, index, data):
    """B-19: the last of repeated indices stays."""
    x = numbers()
    try:
        shape = x[index].shape
    except IndexError:
        return
    kept = tuple(n if data.draw(st.booleans()) else 1 for n in shape)
    kept = kept[data.draw(st.integers(0, len(kept))) :]
    value = -1.0 - numbers(kept)
    new = put_item(kit.node(x), parsed(index, x.shape), kit.node(value))
    expected = x.copy()
    expected[index] = value
    kit.assert_same(new, expected)


MODES = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "power": np.power,
    "minimum": np.minimum,
    "maximum": np.maximum,
    "logical_xor": np.logical_xor,
    "fmax": np.fmax,
    "negative": np.negative,
}


@settings(FEW, max_examples=100)
@given(indices(), st.sampled_from(sorted(MODES)), st.one_of(st.just(2), st.just(2.5), st.none()))
def test_update_of_repeated_indices_accumulates(kit, index, mode, scalar):
    """B-19"""
    x = numbers() + 1
    try:
        shape = x[index].shape
    except IndexError:
        return
    value = scalar if scalar is not None else 1 + numbers(shape) % 3
    expected = x.copy()
    MODES[mode].at(expected, index, *(value,)[: MODES[mode].nin - 1])
    node = kit.node(x)
    new = put_item(node, parsed(index, x.shape), value if scalar is not None else kit.node(value), mode)
    kit.assert_same(new, expected)
    kit.assert_same(node, x)


def test_update_that_does_not_fit_the_dtype_is_numpys_error(kit):
    x = numbers(dtype="i8")
    for index in ((slice(2),), ([0, 1],)):
        with pytest.raises(TypeError, match="same_kind"):  # as x[index] /= 2
            put_item(kit.node(x), parsed(index, x.shape), 2, "divide")


@pytest.mark.parametrize("dtype", ["i1", "u2", "f4", "c8", "?", "M8[D]"])
def test_written_values_are_cast(kit, dtype):
    x = numbers(dtype="i8").astype(dtype)
    value = np.array([3, 4, 5, 6, 7])
    for index in (([0, 2], 1), (0, 1)):
        expected = x.copy()
        expected[index] = value.astype(dtype)
        kit.assert_same(put_item(kit.node(x), parsed(index, x.shape), kit.node(value)), expected)


def test_written_scalars_are_numpys(kit):
    x = numbers(dtype="i2")
    expected = x.copy()
    expected[[0, 1]] = 2.7
    kit.assert_same(put_item(kit.node(x), parsed(([0, 1],), x.shape), 2.7), expected)
    y = np.ones(3, np.uint8)
    kit.assert_same_error(lambda: put_item(kit.node(y), parsed(([0],), y.shape), 300), lambda: y.__setitem__([0], 300))


def test_value_that_does_not_broadcast_is_an_error_at_the_call(kit):
    x = numbers()
    for index in (([0, 1],), (slice(2),)):
        kit.assert_same_error(
            lambda: put_item(kit.node(x), parsed(index, x.shape), np.ones((3, 1, 4))),
            lambda: x.__setitem__(index, np.ones((3, 1, 4))),
        )


def test_index_arrays_that_are_nodes_may_be_negative(kit):
    x = numbers()
    i, j = np.array([0, -1, 2]), np.array([[-1], [1]])
    index = (kit.node(i), kit.node(j.astype("i1")))
    lazy = ops.add(index[0], 0)
    for first in (index[0], lazy):
        kit.assert_same(get_item(kit.node(x), parse_index((first, index[1]), x.shape)), x[i, j])
    y = x.copy()
    y[i, j] = 7
    kit.assert_same(put_item(kit.node(x), parse_index((lazy, index[1]), x.shape), 7), y)


def test_index_out_of_bounds_is_found_at_the_call_or_by_the_kernel(kit):
    x = numbers()
    known = kit.node(np.array([0, 9]))
    with pytest.raises(IndexError):
        get_item(kit.node(x), parse_index((known,), x.shape))
    lazy = get_item(kit.node(x), parse_index((ops.add(known, 0),), x.shape))
    assert lazy.op.may_raise
    with pytest.raises(IndexError, match="index 9 is out of bounds for axis 0 with size 4"):
        kit.evaluate(lazy)


@pytest.mark.parametrize("mask_shape", [(4,), (4, 3), SHAPE], ids=str)
@pytest.mark.parametrize("value_shape", [(), (1,), (5,), (1, 5), (3, 5)], ids=str)
def test_mask_setitem_without_counts(kit, mask_shape, value_shape):
    x = numbers()
    mask = np.random.default_rng(0).random(mask_shape) < 0.5
    value = -1.0 - numbers(value_shape)
    rest = SHAPE[len(mask_shape) :]
    expected = x.copy()
    try:
        np.broadcast_to(value, (1, *rest))
    except ValueError:
        with pytest.raises(ValueError, match="could not be broadcast"):
            put_mask(kit.node(x), kit.node(mask), kit.node(value))
        return
    expected[mask] = value
    kit.assert_same(put_mask(kit.node(x), kit.node(mask), kit.node(value)), expected)


def test_mask_setitem_keeps_the_dtype_and_checks_the_mask(kit):
    x = numbers(dtype="i2")
    mask = x > 7
    expected = x.copy()
    expected[mask] = 2.5
    kit.assert_same(put_mask(kit.node(x), kit.node(mask), 2.5), expected)
    for bad in (mask[:2], mask[..., None]):
        kit.assert_same_error(
            lambda: put_mask(kit.node(x), kit.node(bad), 0),
            lambda: x.__setitem__(bad, 0),
        )


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("where", [3 - 1, [0, 2], [[0, -1], [1, 1]], [], np.array(1), np.array([1, 0], "u1")], ids=str)
def test_take_is_numpys(kit, axis, where):
    x = numbers()
    kit.assert_same(ops.take(kit.node(x), where, axis=axis), np.take(x, np.asarray(where, dtype=int), axis))


def test_take_out_of_bounds(kit):
    x = numbers()
    for mode in ("wrap", "clip"):
        kit.assert_same(ops.take(kit.node(x), [7, -9], axis=0, mode=mode), np.take(x, [7, -9], 0, mode=mode))
        lazy = ops.add(kit.node(np.array([7, -9])), 0)
        kit.assert_same(ops.take(kit.node(x), lazy, axis=0, mode=mode), np.take(x, [7, -9], 0, mode=mode))
    kit.assert_same_error(lambda: ops.take(kit.node(x), [7], axis=0), lambda: np.take(x, [7], 0))
    kit.assert_same_error(lambda: ops.take(kit.node(x), np.ones(2), axis=0), lambda: np.take(x, np.ones(2), 0))
    kit.assert_same_error(lambda: ops.take(kit.node(x), [0], axis=3), lambda: np.take(x, [0], 3))
    empty = np.ones((0, 3))
    kit.assert_same_error(lambda: ops.take(kit.node(empty), [0], axis=0), lambda: np.take(empty, [0], 0))
    kit.assert_same(ops.take(kit.node(empty), np.empty(0, int), axis=0), np.take(empty, np.empty(0, int), 0))


@pytest.mark.parametrize("axis", [0, 1, 2, -1, None])
def test_take_along_axis_is_numpys(kit, axis):
    x = numbers()
    where = np.argsort(np.sin(x), axis=axis)
    kit.assert_same(ops.take_along_axis(kit.node(x), kit.node(where), axis=axis), np.take_along_axis(x, where, axis))


def test_take_along_axis_broadcasts_and_checks(kit):
    x = numbers()
    where = np.array([[[0, -1]], [[1, 2]], [[3, 3]], [[-4, 0]]])
    kit.assert_same(ops.take_along_axis(kit.node(x), kit.node(where)), np.take_along_axis(x, where, -1))
    for bad in (where[0], where.astype(float), np.zeros((3, 1, 1), int)):
        kit.assert_same_error(
            lambda: ops.take_along_axis(kit.node(x), kit.node(bad), axis=-1),
            lambda: np.take_along_axis(x, bad, -1),
        )
    with pytest.raises(IndexError):
        ops.take_along_axis(kit.node(x), kit.node(where + 9))
