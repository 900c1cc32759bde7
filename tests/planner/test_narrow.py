"""Parts of pending arrays are computed from parts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import distarray as dx
from distarray import ops
from distarray.execution.interpret import interpret
from distarray.expr.bind import bind_get, bind_reshape
from distarray.expr.expr import Environment, Expr, postorder, source
from distarray.expr.lens import Affine
from distarray.ops.manipulation import slice_lens
from distarray.planner.narrow import narrowed

ENV = Environment(None)


def value(node: Expr) -> Any:
    order = postorder([node])
    return interpret(order, {id(node)})[id(node)] if node.memo is None else node.memo.blocks[0]


def elements(node: Expr) -> int:
    """The largest pending array that a node needs."""
    return max([n.size for n in postorder([node]) if n.memo is None], default=0)


@st.composite
def programs(draw: Any) -> tuple[Expr, int]:
    """A slice of a chain of reshapes, slices, transposes and elementwise operations."""
    shape = draw(st.sampled_from([(12,), (4, 6), (2, 3, 4), (1, 12), (24, 1)]))
    a = np.arange(float(math.prod(shape))).reshape(shape)
    x: Any = source(a, ENV)
    for _ in range(draw(st.integers(1, 5))):
        kind = draw(st.sampled_from(["map", "reshape", "slice", "transpose", "row", "sum"]))
        if kind == "map":
            x = ops.add(ops.multiply(x, 2), x)
        elif kind == "reshape":
            fitting = [
                s
                for s in [(x.size,), (2, -1), (3, -1), (-1, 2), (2, -1, 2), (1, -1)]
                if x.size % abs(math.prod(s)) == 0
            ]
            choice = draw(st.sampled_from(fitting))
            known = abs(math.prod(choice))
            x = (
                bind_reshape(x, tuple(x.size // known if n == -1 else n for n in choice))
                if -1 in choice
                else bind_reshape(x, choice)
            )
        elif kind == "slice" and x.ndim:
            axis = draw(st.integers(0, x.ndim - 1))
            n = x.shape[axis]
            lo = draw(st.integers(0, n - 1))
            step = draw(st.sampled_from([1, 1, 2]))
            x = bind_get(x, slice_lens(x.shape, axis, lo, len(range(lo, n, step)), step))
        elif kind == "transpose":
            x = ops.permute_dims(x, tuple(reversed(range(x.ndim))))
        elif kind == "row" and x.ndim:
            x = ops.add(x, source(np.arange(float(x.shape[-1])), ENV))
        elif kind == "sum" and x.ndim > 1:
            x = ops.sum(x, axis=0)
    box = [draw(st.integers(0, n - 1)) for n in x.shape]
    lens = Affine.identity(x.shape).restricted(
        tuple(range(b, draw(st.integers(b + 1, n))) for b, n in zip(box, x.shape)), tuple(map(range, x.shape))
    )
    return bind_get(x, lens), a.size


@settings(max_examples=200, deadline=None)
@given(programs())
def test_narrowed_nodes_have_the_same_value(program: tuple[Expr, int]) -> None:
    node, _ = program
    found = narrowed(node)
    assert found.shape == node.shape
    np.testing.assert_array_equal(value(found), value(node))
    assert elements(found) <= max(elements(node), 1)


def test_a_corner_of_a_huge_reshaped_array_needs_its_rows_only() -> None:
    x: Any = dx.arange(10**12).reshape(1000, 10**9) * 2
    found = narrowed(x[998:, :3].__dx_node__())
    assert max(n.size for n in postorder([found]) if n.op.name != "arange") <= 2 * 10**9
    y: Any = (dx.arange(10**12).reshape(10**9, 1000) + 1)[::7]
    assert str(y[:5]).startswith("[[    1     2     3 ...   998   999  1000]")
    assert str(y).count("...") >= 2
