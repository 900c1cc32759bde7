"""Plans, lowered and run in process, against numpy: random expressions over random meshes, and exact counts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distarray import config
from distarray.expr.bind import bind_get, bind_put, bind_reshape
from distarray.expr.expr import Environment, Expr, source
from distarray.expr.indexing import parse_index
from distarray.expr.lens import Affine
from distarray.ops import contractions, elementwise, joining, manipulation, reductions
from distarray.runtime.counters import counting
from distarray.runtime.evaluate import evaluate
from distarray.runtime.observations import fetch
from distarray.sharding.spec import parse_sharding
from distarray.sharding.team import Team


def cut_array(values: np.ndarray, team: Team, sharding: object) -> tuple[Expr, object]:
    node = source(values.copy(), Environment(team))
    node.pin = parse_sharding(sharding, values.shape, team.mesh)
    return node, node.hold()


def lens(shape: tuple[int, ...], index: object) -> Affine:
    return parse_index(index, shape).affine


def value_of(node: Expr) -> np.ndarray:
    evaluate([node])
    return fetch(node)


@st.composite
def programs(draw: st.DrawFn):
    """A team, a sharding and a list of steps; steps pick operands by number."""
    sizes = draw(st.sampled_from([(1,), (2,), (3,), (4,), (2, 2), (1, 3), (3, 2)]))
    axes = ("R", "C")[: len(sizes)]
    n, m = draw(st.integers(1, 9)), draw(st.integers(1, 7))
    sharding = draw(st.sampled_from([(axes[0], None), (None, axes[0]), (axes[0], axes[-1] if len(axes) > 1 else None)]))
    steps = draw(
        st.lists(
            st.tuples(
                st.sampled_from(
                    [
                        "add",
                        "where",
                        "sqrt",
                        "slice",
                        "slice2",
                        "put",
                        "putself",
                        "sum",
                        "max",
                        "argmin",
                        "var",
                        "mean",
                        "matmul",
                        "reshape",
                        "transpose",
                        "flip",
                        "roll",
                        "concat",
                        "row",
                    ]
                ),
                st.integers(0, 99),
                st.integers(0, 99),
                st.integers(0, 2**16),
            ),
            min_size=1,
            max_size=8,
        )
    )
    return sizes, axes, (n, m), sharding, steps


def _random_slice(rng: np.random.Generator, n: int) -> slice:
    a, b = sorted(rng.integers(0, n + 1, 2).tolist())
    step = int(rng.choice([1, 1, 1, 2, 3]))
    if rng.random() < 0.25:
        return slice(b - 1 if b else None, a - 1 if a else None, -step) if b > a else slice(0, 0)
    return slice(a, b, step)


def run_step(name: str, pairs: list, i: int, j: int, seed: int) -> None:
    """Do one step on a (node, numpy) pair and append the result."""
    rng = np.random.default_rng(seed)
    x, a = pairs[i % len(pairs)]
    y, b = pairs[j % len(pairs)]
    out = None
    if name == "add" and a.shape == b.shape:
        out = elementwise.add(x, y), a + b
    elif name == "add" and a.ndim and b.ndim and a.shape[-1] == b.shape[-1]:
        try:
            expected = a + b
        except ValueError:
            return
        out = elementwise.add(x, y), expected
    elif name == "where":
        out = elementwise.where(elementwise.greater(x, 0.5), x, 2.0), np.where(a > 0.5, a, 2.0)
    elif name == "sqrt":
        out = elementwise.sqrt(elementwise.abs(x)), np.sqrt(np.abs(a))
    elif name in ("slice", "slice2"):
        index = tuple(_random_slice(rng, n) for n in a.shape)
        out = bind_get(x, lens(a.shape, index)), a[index]
    elif name in ("put", "putself"):
        index = tuple(_random_slice(rng, n) for n in a.shape)
        value = np.flip(a[index], axis=0) * 2 if name == "putself" and a.ndim else rng.random(a[index].shape)
        new = np.array(a)
        new[index] = value
        if name == "putself" and a.ndim:
            v = elementwise.multiply(bind_get(x, lens(a.shape, index).flipped((0,))), 2)
        else:
            v = source(np.array(value), x.env)
        out = bind_put(x, lens(a.shape, index), v), new
    elif name in ("sum", "max", "argmin", "var", "mean") and a.size:
        axis = [None, 0, -1][seed % 3] if a.ndim else None
        out = getattr(reductions, name)(x, axis=axis), np.asarray(getattr(np, name)(a, axis=axis))
        if name == "argmin":
            out = elementwise.multiply(out[0], 1.0), out[1] * 1.0
    elif name == "matmul" and a.ndim == b.ndim == 2 and a.shape[0] == b.shape[0]:
        out = contractions.matmul(manipulation.swapaxes(x, -1, -2), y), a.T @ b
    elif name == "reshape":
        flat = (a.size,) if seed % 2 or not a.ndim else (*a.shape[::-1],)
        out = bind_reshape(x, flat), a.reshape(flat)
    elif name == "transpose" and a.ndim == 2:
        out = manipulation.swapaxes(x, -1, -2), a.T
    elif name == "flip" and a.ndim:
        out = manipulation.flip(x, axis=0), np.flip(a, axis=0)
    elif name == "roll" and a.ndim:
        out = joining.roll(x, seed % 5, axis=0), np.roll(a, seed % 5, axis=0)
    elif name == "concat" and a.ndim == b.ndim > 0 and a.shape[1:] == b.shape[1:]:
        out = joining.concat([x, y], axis=0), np.concatenate([a, b])
    elif name == "row" and a.ndim and a.shape[0]:
        k = seed % a.shape[0]
        out = bind_get(x, lens(a.shape, k)), a[k]
    if out is not None and out[1].size < 5000:
        pairs.append(out)


@settings(max_examples=150, deadline=None)
@given(programs(), st.booleans())
def test_random_expressions_equal_numpy_on_any_mesh(program, only_last: bool) -> None:
    """B-30 among others: parts without rows, arrays shorter than the team, slices that miss members."""
    sizes, axes, shape, sharding, steps = program
    team = Team(sizes, axes)
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal(shape), rng.standard_normal(shape)
    (x, hx), (y, hy) = cut_array(a, team, sharding), cut_array(b, team, sharding)
    if only_last:
        del hx, hy
    pairs = [(x, a), (y, b)]
    with config.set(block_bytes=0):
        for name, i, j, seed in steps:
            run_step(name, pairs, i, j, seed)
        # With nothing held, all that the last one needs may be overwritten on the way to it.
        held = [] if only_last else [node.hold() for node, _ in pairs]
        for node, expected in pairs[-1:] if only_last else reversed(pairs):
            got = value_of(node)
            assert got.dtype == expected.dtype
            np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)
    del held


def halo(n: int, size: int, target: slice, sources: list[slice]):
    """``b[target] = sum of a[s]`` on row cuts; counts of the evaluation."""
    team = Team((size,), ("R",))
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((n, 3)), rng.standard_normal((n, 3))
    (x, hx), (y, hy) = cut_array(a, team, ("R", None)), cut_array(b, team, ("R", None))
    total, expected = None, 0.0
    for s in sources:
        part = bind_get(x, lens(a.shape, s))
        total = part if total is None else elementwise.add(total, part)
        expected = expected + a[s]
    node = bind_put(y, lens(b.shape, target), total)
    b[target] = expected
    with counting() as c:
        evaluate([node])
    np.testing.assert_array_equal(fetch(node), b)
    del hx, hy
    return c


STAR = [slice(0, 12), slice(1, 13), slice(2, 14), slice(3, 15), slice(4, 16)]


def test_b21_star_stencil_sends_the_union_once() -> None:
    c = halo(16, 4, slice(2, 14), STAR)
    assert (c.messages, c.rows) == (6, 12)
    c = halo(10, 4, slice(2, 8), [slice(k, k + 6) for k in range(5)])
    assert (c.messages, c.rows) == (5, 10)


def test_b22_neighbour_sum_sends_one_row_each_way() -> None:
    c = halo(12, 3, slice(1, 9), [slice(0, 8), slice(2, 10)])
    assert sorted((t.source, t.destination, t.rows) for t in c.transfers) == [
        (0, 1, 1),
        (1, 0, 1),
        (1, 2, 1),
        (2, 1, 1),
    ]


def test_b25_strided_reads_send_exact_elements_not_the_hull() -> None:
    c = halo(12, 4, slice(1, 11, 2), [slice(0, 10, 2), slice(5, 10), slice(1, 6)])
    assert (c.messages, c.rows) == (6, 7)


def test_b24_equal_cuts_move_nothing() -> None:
    team = Team((4,), ("R",))
    a = np.arange(48.0).reshape(16, 3)
    (x, hx), (y, hy) = cut_array(a, team, ("R", None)), cut_array(a + 1, team, ("R", None))
    node = elementwise.multiply(elementwise.add(x, y), x)
    with counting() as c:
        evaluate([node])
    np.testing.assert_array_equal(fetch(node), (a + a + 1) * a)
    assert c.messages == 0 and c.tasks == 4
    del hx, hy


def test_b23_a_write_between_two_reads_forces_a_second_transfer() -> None:
    team = Team((2,), ("R",))
    a = np.arange(8.0)

    def shifted_twice(write: bool) -> int:
        x, hx = cut_array(a, team, ("R",))
        first = elementwise.add(bind_get(x, lens(a.shape, slice(0, 7))), bind_get(x, lens(a.shape, slice(1, 8))))
        changed = bind_put(x, lens(a.shape, slice(3, 5)), -1.0) if write else x
        second = elementwise.multiply(
            bind_get(changed, lens(a.shape, slice(0, 7))), bind_get(changed, lens(a.shape, slice(1, 8)))
        )
        b = a.copy()
        if write:
            b[3:5] = -1
        held = first.hold(), second.hold()
        with counting() as c:
            evaluate([first, second])
        np.testing.assert_array_equal(fetch(first), a[:7] + a[1:])
        np.testing.assert_array_equal(fetch(second), b[:7] * b[1:])
        del hx, held
        return c.messages

    assert shifted_twice(write=False) == 1
    assert shifted_twice(write=True) == 2


def test_b26_core_tasks_depend_on_no_transfer() -> None:
    with config.set(overlap="always"):
        c = halo(64, 4, slice(2, 62), [slice(k, k + 60) for k in range(5)])
    assert (c.messages, c.rows) == (6, 12)
    assert c.by_class["tile"] == 8  # a core and a border on each member, however many operations


@pytest.mark.parametrize("length", [1, 5, 20])
def test_a_chain_is_one_task_per_tile_whatever_its_length(length: int) -> None:
    team = Team((8,), ("R",))
    a = np.arange(64.0)
    x, hx = cut_array(a, team, ("R",))
    node, expected = x, a
    for k in range(length):
        node, expected = elementwise.add(node, k), expected + k
    with counting() as c:
        evaluate([node])
    np.testing.assert_array_equal(fetch(node), expected)
    assert c.tasks == 8
    del hx


def test_a_sum_of_squares_is_a_task_per_tile_and_at_most_three_combines() -> None:
    team = Team((8,), ("R",))
    a = np.arange(64.0)
    (x, hx), (y, hy) = cut_array(a, team, ("R",)), cut_array(a[::-1], team, ("R",))
    node = reductions.sum(elementwise.square(elementwise.subtract(x, y)))
    with counting() as c:
        evaluate([node])
    assert fetch(node) == ((a - a[::-1]) ** 2).sum()
    assert c.tasks <= 8 + 3
    del hx, hy


def test_two_results_of_one_pass_are_one_task_and_two_projections_per_tile() -> None:
    team = Team((4,), ("R",))
    a = np.arange(32.0)
    x, hx = cut_array(a, team, ("R",))
    first = elementwise.add(x, 1)
    second = elementwise.multiply(first, 2)
    held = first.hold()
    with counting() as c:
        evaluate([second])
    assert dict(c.by_class) == {"tile": 4, "project": 8, "piece": 0, "combine": 0}
    assert first.memo is not None
    np.testing.assert_array_equal(fetch(first), a + 1)
    del hx, held
