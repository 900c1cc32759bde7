"""Shapes and order: numpy's results for any shape, numpy's errors for what cannot be, and views that stay lenses."""

from __future__ import annotations

import catalogue as ops
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import distarray as dx
from distarray.array.array import DistArray
from distarray.composed import views
from distarray.expr.bind import bind_get
from distarray.expr.expr import postorder
from distarray.ops import lenses

settings.register_profile("shapes", max_examples=40, derandomize=True, deadline=None)
FEW = settings(max_examples=40, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])

shapes = st.lists(st.integers(0, 4), max_size=4).map(tuple)


def numbers(shape, dtype="i8"):
    return np.arange(np.prod(shape, dtype=int), dtype=dtype).reshape(shape)


def both(kit, ours, theirs, *args):
    """Same value or same class of error."""
    try:
        expected = theirs()
    except (ValueError, TypeError, IndexError) as error:
        with pytest.raises(type(error)):
            ours()
        return
    kit.assert_same(ours(), expected)


axes = st.integers(-5, 4)
several = st.one_of(st.none(), axes, st.lists(axes, max_size=3).map(tuple))


@FEW
@given(shapes, several)
def test_flip(kit, shape, axis):
    x = numbers(shape)
    both(kit, lambda: ops.flip(kit.node(x), axis=axis), lambda: np.flip(x, axis))


@FEW
@given(shapes, several)
def test_squeeze(kit, shape, axis):
    x = numbers(tuple(min(n, 2) for n in shape))
    both(kit, lambda: ops.squeeze(kit.node(x), axis=axis), lambda: np.squeeze(x, axis))


@FEW
@given(shapes, st.one_of(axes, st.lists(axes, max_size=3).map(tuple)))
def test_expand_dims(kit, shape, axis):
    x = numbers(shape)
    both(kit, lambda: ops.expand_dims(kit.node(x), axis=axis), lambda: np.expand_dims(x, axis))


@FEW
@given(shapes, st.one_of(st.none(), st.permutations(range(4)), st.lists(axes, max_size=4)))
def test_transpose(kit, shape, order):
    x = numbers(shape)
    if order is not None:
        order = [a for a in order if a < len(shape)] if sorted(order) == [0, 1, 2, 3] else order
        both(kit, lambda: ops.permute_dims(kit.node(x), order), lambda: np.permute_dims(x, order))


@FEW
@given(shapes, axes, axes)
def test_moving_axes(kit, shape, a, b):
    x = numbers(shape)
    both(kit, lambda: ops.moveaxis(kit.node(x), a, b), lambda: np.moveaxis(x, a, b))
    both(kit, lambda: ops.swapaxes(kit.node(x), a, b), lambda: np.swapaxes(x, a, b))
    both(
        kit,
        lambda: bind_get(kit.node(x), lenses.rollaxis_lens(x.shape, a, b)),
        lambda: np.rollaxis(x, a, b),
    )
    both(kit, lambda: ops.moveaxis(kit.node(x), (a, b), (b, a)), lambda: np.moveaxis(x, (a, b), (b, a)))


@FEW
@given(shapes, st.integers(-3, 5), axes, axes)
def test_rot90(kit, shape, k, a, b):
    x = numbers(shape)
    both(kit, lambda: bind_get(kit.node(x), lenses.rot90_lens(shape, k, (a, b))), lambda: np.rot90(x, k, (a, b)))


@FEW
@given(shapes, st.integers(-4, 4), axes, axes)
def test_diagonal(kit, shape, offset, a, b):
    x = numbers(shape)
    both(
        kit,
        lambda: bind_get(kit.node(x), lenses.diagonal_lens(shape, offset, a, b)),
        lambda: np.diagonal(x, offset, a, b),
    )
    both(
        kit,
        lambda: ops.trace(kit.node(x), offset=offset, axis1=a, axis2=b),
        lambda: np.trace(x, offset, a, b),
    )


@FEW
@given(shapes, st.lists(st.integers(-1, 24), max_size=3))
def test_reshape(kit, shape, new):
    x = numbers(shape)
    both(kit, lambda: ops.reshape(kit.node(x), tuple(new)), lambda: x.reshape(new))
    flat = [x.size // 2, 2] if x.size % 2 == 0 else [-1]
    both(kit, lambda: ops.reshape(kit.node(x), flat), lambda: x.reshape(flat))
    both(kit, lambda: ops.ravel(kit.node(x)), lambda: x.ravel())


@FEW
@given(shapes, st.lists(st.integers(-1, 24), max_size=3), st.sampled_from("CF"))
def test_reshape_in_an_order(shape, new, order):
    x = numbers(shape)
    for to in (tuple(new), [x.size // 2, 2] if x.size % 2 == 0 else [-1]):
        try:
            expected = x.reshape(to, order=order)
        except ValueError:
            with pytest.raises(ValueError):
                dx.asarray(x).reshape(to, order=order)
            continue
        np.testing.assert_array_equal(np.asarray(dx.asarray(x).reshape(to, order=order)), expected)
    np.testing.assert_array_equal(np.asarray(dx.asarray(x).ravel(order)), x.ravel(order))


@FEW
@given(shapes, shapes)
def test_broadcast_to(kit, shape, to):
    x = numbers(shape)
    both(kit, lambda: ops.broadcast_to(kit.node(x), to), lambda: np.broadcast_to(x, to))
    wide = (2, *(3 if n == 1 else n for n in shape))
    both(kit, lambda: ops.broadcast_to(kit.node(x), wide), lambda: np.broadcast_to(x, wide))


def test_broadcast_shapes(kit):
    assert ops.broadcast_shapes((3, 1), 4, ()) == np.broadcast_shapes((3, 1), 4, ())
    kit.assert_same_error(lambda: ops.broadcast_shapes((3,), (2,)), lambda: np.broadcast_shapes((3,), (2,)))


VIEWS = [
    lambda x: ops.flip(x, axis=0),
    lambda x: ops.permute_dims(x, (1, 2, 0)),
    lambda x: ops.squeeze(ops.expand_dims(x, axis=(0, 2)), axis=0),
    lambda x: ops.broadcast_to(x, (2, 2, 3, 4)),
    lambda x: bind_get(x, lenses.diagonal_lens(x.shape, 1, 0, 2)),
    lambda x: bind_get(x, lenses.rot90_lens(x.shape, 1, (0, 1))),
    lambda x: bind_get(x, lenses.split_lenses(x.shape, 3, 2)[1]),
    lambda x: ops.swapaxes(x, -1, -2),
    lambda x: ops.moveaxis(x, 0, -1),
]


@pytest.mark.parametrize("second", VIEWS)
@pytest.mark.parametrize("first", VIEWS)
def test_views_of_views_are_one_lens(kit, first, second):
    base = kit.node(numbers((2, 3, 4)))
    view = first(base)
    try:
        view = second(view)
    except (ValueError, IndexError):
        pytest.skip("not for this shape")
    assert view is base or view.operands == (base,)


def test_lenses_are_those_of_the_functions(kit):
    x = kit.node(numbers((2, 3, 4)))
    pairs = [
        (lenses.permute_lens(x.shape, (2, 0, 1)), ops.permute_dims(x, (2, 0, 1))),
        (lenses.flip_lens(x.shape, (0, -1)), ops.flip(x, axis=(0, -1))),
        (lenses.expand_lens(x.shape, (0, 2)), ops.expand_dims(x, axis=(0, 2))),
        (lenses.broadcast_lens(x.shape, (5, 2, 3, 4)), ops.broadcast_to(x, (5, 2, 3, 4))),
    ]
    for lens, made in pairs:
        assert bind_get(x, lens).runtime == made.runtime


# -------------------------------------------------------------------------------------------------- put together


@FEW
@given(st.lists(shapes, min_size=1, max_size=3), st.one_of(st.none(), axes))
def test_concat_of_any_shapes(kit, several, axis):
    arrays = [numbers(s) + 100 * i for i, s in enumerate(several)]
    both(kit, lambda: ops.concat([kit.node(a) for a in arrays], axis=axis), lambda: np.concatenate(arrays, axis))


@FEW
@given(shapes, st.lists(st.integers(0, 3), min_size=1, max_size=4), axes)
def test_concat_along_an_axis(kit, shape, lengths, axis):
    if not -len(shape) <= axis < len(shape):
        return
    arrays = []
    for i, n in enumerate(lengths):
        s = list(shape)
        s[axis] = n
        arrays.append(numbers(tuple(s)) + 100 * i)
    kit.assert_same(ops.concat([kit.node(a) for a in arrays], axis=axis), np.concatenate(arrays, axis))


@pytest.mark.parametrize("dtypes", ["bB", "if", "fD", "lL"])
def test_concat_and_stack_promote(kit, dtypes):
    arrays = [numbers((2, 3), d) for d in dtypes]
    nodes = [kit.node(a) for a in arrays]
    kit.assert_same(ops.concat(nodes), np.concatenate(arrays))
    kit.assert_same(ops.stack(nodes), np.stack(arrays))
    kit.assert_same(ops.concat(nodes, dtype="c16"), np.concatenate(arrays, dtype="c16"))


def test_concat_is_one_empty_array_and_its_writes(kit):
    made = ops.concat([kit.node(numbers((2, 3))), kit.node(numbers((1, 3)))])
    assert [made.op.kind, made.operands[0].op.kind] == ["put", "put"]
    assert made.operands[0].operands[0].op.name == "empty"


@FEW
@given(shapes, st.integers(1, 3), axes)
def test_stack(kit, shape, n, axis):
    arrays = [numbers(shape) + 100 * i for i in range(n)]
    both(kit, lambda: ops.stack([kit.node(a) for a in arrays], axis=axis), lambda: np.stack(arrays, axis))


def test_stack_of_unlike_shapes_is_an_error(kit):
    x, y = numbers((2,)), numbers((3,))
    kit.assert_same_error(lambda: ops.stack([kit.node(x), kit.node(y)]), lambda: np.stack([x, y]))
    kit.assert_same_error(lambda: ops.concat([]), lambda: np.concatenate([]))
    kit.assert_same_error(lambda: ops.stack([]), lambda: np.stack([]))


@FEW
@given(st.lists(shapes, min_size=1, max_size=3), st.sampled_from(["vstack", "hstack", "dstack", "column_stack"]))
def test_stacks_by_direction(kit, several, name):
    arrays = [numbers(s) for s in several]
    both(kit, lambda: getattr(ops, name)([kit.node(a) for a in arrays]), lambda: getattr(np, name)(arrays))
    arrays = [arrays[0], arrays[0] + 100]
    both(kit, lambda: getattr(ops, name)([kit.node(a) for a in arrays]), lambda: getattr(np, name)(arrays))


@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_at_least(kit, ndim):
    for a in [numbers(s) for s in ((), (3,), (2, 3), (2, 3, 4))]:
        kit.assert_same(ops.at_least(ndim, kit.node(a)), getattr(np, f"atleast_{ndim}d")(a))


@FEW
@given(shapes, st.one_of(st.integers(-1, 4), st.lists(st.integers(-3, 6), max_size=3)), axes)
def test_splits(kit, shape, where, axis):
    x = numbers(shape)

    def parts(name, *args):
        return [part.__dx_node__() for part in getattr(views, name)(DistArray._on(kit.node(x)), *args)]

    both(kit, lambda: parts("array_split", where, axis), lambda: np.array_split(x, where, axis))
    if where == 0:
        return  # numpy divides by zero
    both(kit, lambda: parts("split", where, axis), lambda: np.split(x, where, axis))
    for name in ("hsplit", "vsplit", "dsplit"):
        both(kit, lambda: parts(name, where), lambda: getattr(np, name)(x, where))


@FEW
@given(shapes, st.one_of(st.integers(-6, 6), st.lists(st.integers(-6, 6), max_size=2).map(tuple)), several)
def test_roll(kit, shape, shift, axis):
    x = numbers(shape)
    if axis == ():
        return  # numpy fails to unpack its own broadcast
    both(kit, lambda: ops.roll(kit.node(x), shift, axis=axis), lambda: np.roll(x, shift, axis))


@FEW
@given(shapes, st.one_of(st.integers(-1, 3), st.lists(st.integers(0, 3), max_size=4)), st.one_of(st.none(), axes))
def test_repeat(kit, shape, repeats, axis):
    x = numbers(shape)
    both(kit, lambda: ops.repeat(kit.node(x), repeats, axis=axis), lambda: np.repeat(x, repeats, axis))


def test_repeat_by_an_array_of_counts(kit):
    x = numbers((3, 4))
    kit.assert_same(ops.repeat(kit.node(x), [2, 0, 3], axis=0), np.repeat(x, [2, 0, 3], axis=0))
    kit.assert_same(ops.repeat(kit.node(x), [2], axis=1), np.repeat(x, [2], axis=1))


@FEW
@given(shapes, st.one_of(st.integers(-1, 3), st.lists(st.integers(0, 3), max_size=5).map(tuple)))
def test_tile(kit, shape, times):
    x = numbers(shape)
    both(kit, lambda: ops.tile(kit.node(x), times), lambda: np.tile(x, times))


PADDING = st.one_of(st.integers(0, 5), st.tuples(st.integers(0, 9), st.integers(0, 9)))


@settings(FEW, max_examples=120)
@given(shapes, st.data(), st.sampled_from(["constant", "edge", "wrap", "reflect", "symmetric"]))
def test_pad(kit, shape, data, mode):
    x = numbers(shape)
    if not shape:
        return
    width = data.draw(
        st.one_of(PADDING, st.lists(st.tuples(*[st.integers(0, 6)] * 2), min_size=x.ndim, max_size=x.ndim))
    )
    both(kit, lambda: ops.pad(kit.node(x), width, mode), lambda: np.pad(x, width, mode))


def test_pad_with_values_for_each_side(kit):
    x = numbers((2, 3))
    values = ((1, 2), (3, 4))
    kit.assert_same(
        ops.pad(kit.node(x), ((1, 2), (2, 1)), constant_values=values),
        np.pad(x, ((1, 2), (2, 1)), constant_values=values),
    )
    # numpy takes a mapping of axes since 2.2
    kit.assert_same(ops.pad(kit.node(x), {1: (2, 0)}), np.pad(x, ((0, 0), (2, 0))))


@FEW
@given(shapes, st.integers(-4, 4))
def test_triangles_and_diagonals(kit, shape, k):
    x = numbers(shape) + 1
    for name in ("tril", "triu"):
        both(kit, lambda: getattr(ops, name)(kit.node(x), k=k), lambda: getattr(np, name)(x, k))
    both(kit, lambda: ops.diag(kit.node(x), k), lambda: np.diag(x, k))
    both(kit, lambda: ops.diagflat(kit.node(x), k), lambda: np.diagflat(x, k))


@pytest.mark.parametrize("dtype", ["?", "B", "e", "F", "m8[s]"])
def test_triangle_keeps_the_dtype(kit, dtype):
    x = np.ones((3, 4)).astype(dtype)
    kit.assert_same(ops.tril(kit.node(x)), np.tril(x))


@FEW
@given(shapes, axes, st.integers(-1, 4))
def test_diff(kit, shape, axis, n):
    x = numbers(shape) ** 2
    both(kit, lambda: ops.diff(kit.node(x), axis=axis, n=n), lambda: np.diff(x, n, axis))


def test_diff_with_ends_and_of_booleans(kit):
    x = numbers((3, 4)) ** 2
    kit.assert_same(ops.diff(kit.node(x), prepend=1, append=2), np.diff(x, prepend=1, append=2))
    kit.assert_same(ops.diff(kit.node(x), axis=0, append=kit.node(x)), np.diff(x, axis=0, append=x))
    b = np.array([True, False, False, True])
    kit.assert_same(ops.diff(kit.node(b)), np.diff(b))
    kit.assert_same(ops.ediff1d(kit.node(x), to_end=[7, 8], to_begin=-1), np.ediff1d(x, to_end=[7, 8], to_begin=-1))


def test_append_flattens_without_an_axis(kit):
    x = numbers((2, 3))
    kit.assert_same(ops.append(kit.node(x), [1, 2]), np.append(x, [1, 2]))
    kit.assert_same(ops.append(kit.node(x), kit.node(x), axis=0), np.append(x, x, axis=0))


def test_a_roll_over_several_axes_passes_over_the_data_once() -> None:
    x = dx.asarray(np.arange(24.0).reshape(2, 3, 4), team=dx.Team((2,), ("x",)), sharding=("x", None, None)).persist()
    with dx.config.set(block_bytes=0):
        y = dx.roll(x, (1, 2, -1), (0, 1, 2))
        assert [n.op.name for n in postorder([y.__dx_node__()])].count("empty") == 1
        np.testing.assert_array_equal(np.asarray(y), np.roll(np.arange(24.0).reshape(2, 3, 4), (1, 2, -1), (0, 1, 2)))
