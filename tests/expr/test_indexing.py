"""Indices against numpy: the same elements, shapes, aliasing, writes and errors."""

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distarray.expr.indexing import Advanced, Basic, check_indices, parse_index


def advanced_get(array: np.ndarray, index: Advanced) -> np.ndarray:
    """What an `Advanced` index reads: the reference for every gather."""
    front, rest = _arrays_in_front(index)
    basic = index.affine.read(array).transpose(front + rest)
    gathered = basic[tuple(np.broadcast_arrays(*[i for _, i in index.arrays]))]
    n = len(index.index_shape)
    return np.moveaxis(gathered, range(n), range(index.position, index.position + n))


def advanced_put(array: np.ndarray, index: Advanced, value: np.ndarray) -> None:
    """What an `Advanced` index writes, in place: the reference for every scatter."""
    front, rest = _arrays_in_front(index)
    basic = index.affine.read(array).transpose(front + rest)
    n = len(index.index_shape)
    value = np.moveaxis(np.broadcast_to(value, index.shape), range(index.position, index.position + n), range(n))
    basic[tuple(np.broadcast_arrays(*[i for _, i in index.arrays]))] = value


def _arrays_in_front(index: Advanced) -> tuple[list[int], list[int]]:
    axes = list(index.axes)
    return axes, [a for a in range(len(index.affine.shape)) if a not in axes]


@st.composite
def indices(draw: st.DrawFn, shape: tuple[int, ...], *, arrays: bool) -> Any:
    """An index of an array of this shape; now and then out of bounds, too long or of shapes that do not broadcast."""
    common = draw(st.sampled_from([(2,), (1,), (2, 3), (), (0,)])) if arrays else ()
    items: list[Any] = []
    axis = 0
    has_ellipsis = False
    while axis < len(shape):
        n = shape[axis]
        kinds = ["int", "slice", "slice", "full", "none", "numpy int", "stop"] + ["ellipsis"] * (not has_ellipsis)
        if arrays:
            kinds += ["array", "array", "list", "0-d", "mask", "mask 2", "bool"]
        kind = draw(st.sampled_from(kinds))
        slack = draw(st.integers(0, 40)) == 0
        position = st.integers(-n - slack, max(n - 1 + slack, -n - slack))
        if kind == "stop":
            break
        if kind == "int" or kind == "numpy int" or kind == "0-d":
            if n == 0 and not slack:
                continue
            wrap = {"int": int, "numpy int": np.int64, "0-d": np.array}[kind]
            items.append(wrap(draw(position)))
        elif kind == "slice":
            bound = st.none() | st.integers(-n - 2, n + 2)
            items.append(slice(draw(bound), draw(bound), draw(st.sampled_from([None, 1, 2, 3, -1, -2, -3]))))
        elif kind == "full":
            items.append(slice(None))
        elif kind == "none":
            items.append(None)
            continue
        elif kind == "ellipsis":
            items.append(...)
            has_ellipsis = True
            axis += draw(st.integers(0, len(shape) - axis))
            continue
        elif kind == "bool":
            items.append(draw(st.sampled_from([True, False, np.bool_(True), np.array(True)])))
            continue
        elif kind in ("array", "list"):
            own = common if kind == "array" else common[-1:]
            if draw(st.booleans()):
                own = tuple(1 for _ in own)
            count = int(np.prod(own))
            if n == 0 and count:
                continue
            values = draw(st.lists(position, min_size=count, max_size=count))
            array = np.array(values, dtype=draw(st.sampled_from([np.int64, np.int32, np.intp]))).reshape(own)
            items.append(array.tolist() if kind == "list" and own else array)
        else:
            extents = shape[axis : axis + (2 if kind == "mask 2" else 1)]
            if slack:
                extents = (*extents[:-1], extents[-1] + 1)
            size = int(np.prod(extents))
            if draw(st.booleans()):
                # As many as the other arrays have, or they would hardly ever broadcast.
                flags = [i < 2 for i in range(size)]
            else:
                flags = draw(st.lists(st.booleans(), min_size=size, max_size=size))
            items.append(np.array(flags, dtype=bool).reshape(extents))
            axis += len(extents) - 1
        axis += 1
    if draw(st.integers(0, 30)) == 0:
        items.append(0)
    return items[0] if len(items) == 1 and draw(st.booleans()) else tuple(items)


shapes = st.lists(st.sampled_from([1, 2, 3, 4, 5, 0]), max_size=4).map(tuple)


def parsed(index: Any, shape: tuple[int, ...]) -> Basic | Advanced:
    out = parse_index(index, shape)
    return out.without_masks(np.nonzero) if isinstance(out, Advanced) else out


def numpy_or_error(array: np.ndarray, index: Any) -> Any:
    try:
        return array[index]
    except (IndexError, ValueError, TypeError) as error:
        return error


@settings(max_examples=300)
@given(st.data())
def test_basic_indices_read_numpys_elements_and_alias_where_numpy_does(data: st.DataObject) -> None:
    """B-36, B-40, B-47: slices are clipped, steps may be negative, integers alone give a copy."""
    shape = data.draw(shapes)
    index = data.draw(indices(shape, arrays=False))
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    expected = numpy_or_error(array, index)
    if isinstance(expected, Exception):
        with pytest.raises(type(expected)) as caught:
            parse_index(index, shape)
        assert str(caught.value) == str(expected)
        return
    out = parse_index(index, shape)
    assert isinstance(out, Basic)
    np.testing.assert_array_equal(out.affine.read(array), expected, strict=True)
    assert out.shape == np.shape(expected)
    assert out.is_view == (isinstance(expected, np.ndarray) and (expected.base is not None))


@settings(max_examples=500)
@given(st.data())
def test_any_index_reads_and_writes_as_numpy(data: st.DataObject) -> None:
    """B-36: advanced indexing reads a copy and writes in place, whatever is mixed and however separated."""
    shape = data.draw(shapes)
    index = data.draw(indices(shape, arrays=True))
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    expected = numpy_or_error(array, index)
    if isinstance(expected, Exception):
        with pytest.raises(type(expected)):
            parsed(index, shape)
        return
    out = parsed(index, shape)
    assert out.shape == np.shape(expected)
    ours, theirs = array.copy(), array.copy()
    value = -1 - np.arange(np.prod(expected.shape, dtype=int)).reshape(expected.shape)
    theirs[index] = value
    if isinstance(out, Basic):
        np.testing.assert_array_equal(out.affine.read(array), expected)
        out.affine.write(ours, value)
    else:
        np.testing.assert_array_equal(advanced_get(array, out), expected, strict=True)
        advanced_put(ours, out, value)
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    "index",
    [
        5,
        -4,
        (..., 9),
        (0, 0, 0, 0),
        (0, 0, 0, [0]),
        (..., ...),
        1.0,
        "a",
        [1.5],
        np.array([1.0]),
        np.array([]),
        [[0, 1, 9]],
        (slice(None), [0, -9]),
        ([0, 1], [0, 1, 2]),
        (slice(None), np.ones((4, 6), bool)),
        np.ones(4, bool),
        (0, 0, np.ones((5, 5), bool)),
        slice(None, None, 0),
        slice(1.0, None),
        (np.uint64(7),),
    ],
    ids=repr,
)
def test_errors_are_numpys_in_class_and_text(index: Any) -> None:
    array = np.zeros((3, 4, 5))
    with pytest.raises((IndexError, TypeError, ValueError)) as theirs:
        array[index]
    with pytest.raises(type(theirs.value)) as ours:
        parsed(index, array.shape)
    # ours goes on with what was given
    assert str(ours.value).strip().startswith(str(theirs.value).strip())


class Opaque:
    """An array that nobody may look into, as a DistArray is: shape, dtype and new axes only."""

    def __init__(self, shape: tuple[int, ...], dtype: Any) -> None:
        self.shape, self.dtype = shape, np.dtype(dtype)

    def __getitem__(self, index: None) -> "Opaque":
        assert index is None
        return Opaque((1, *self.shape), self.dtype)


def test_opaque_integer_arrays_stay_as_they_are() -> None:
    rows = Opaque((7, 2), int)
    out = parse_index((slice(None), rows, 3), (4, 5, 6))
    assert isinstance(out, Advanced)
    assert out.arrays == ((1, rows),)
    assert (out.shape, out.position) == ((4, 7, 2), 1)
    scalar = parse_index(Opaque((), int), (4, 5))
    assert isinstance(scalar, Advanced)
    assert scalar.shape == (5,)


def test_opaque_masks_stay_with_their_first_axis_until_counted() -> None:
    """B-9: what a mask gives has a shape only when its elements were counted."""
    mask = Opaque((5, 6), bool)
    out = parse_index((slice(1, 3), mask), (4, 5, 6, 2))
    assert isinstance(out, Advanced)
    assert out.arrays == ((1, mask),)
    assert out.axes == (1, 2)
    assert out.shape is out.index_shape is None
    assert (out.before, out.after) == ((2,), (2,))
    counted = out.with_arrays([(1, np.arange(3)), (2, np.arange(3))])
    assert counted.shape == (2, 3, 2)
    zero_d = parse_index(Opaque((), bool), (4,))
    assert isinstance(zero_d, Advanced)
    assert [(axis, array.shape) for axis, array in zero_d.arrays] == [(0, (1,))]
    assert zero_d.affine.shape == (1, 4)


def test_integer_arrays_are_read_at_the_call() -> None:
    """B-1: a later change of an index array by its owner does not show."""
    rows = np.array([0, 1, 2])
    out = parse_index(rows, (5,))
    assert isinstance(out, Advanced)
    rows[:] = 4
    np.testing.assert_array_equal(out.arrays[0][1], [0, 1, 2])


@given(st.lists(st.integers(-6, 5), max_size=9))
def test_check_indices_wraps_negatives(values: list[int]) -> None:
    out = check_indices(np.array(values, int), 6, 0)
    np.testing.assert_array_equal(out, np.arange(6)[np.array(values, int)])
    assert out.dtype == np.intp


def test_parsed_indices_pickle() -> None:
    for index in [(slice(1, 3), 2), ([0, 1], slice(None))]:
        out = parse_index(index, (4, 5))
        assert pickle.loads(pickle.dumps(out)).affine == out.affine
