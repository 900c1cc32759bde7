"""What the tests of the catalogue share: an environment, nodes of NumPy arrays, and their evaluation."""

from __future__ import annotations

import warnings
from types import SimpleNamespace

import numpy as np
import pytest

from distarray.expr.expr import Environment, Expr, postorder, source
from distarray.kernels.interpret import interpret

ENV = Environment(None, "cpu")


def node(value) -> Expr:
    array = np.array(value, order="C", copy=True)
    return source(array, ENV)


def evaluate(expr):
    """The value of a node, of a tuple or a list of nodes."""
    if isinstance(expr, (tuple, list)):
        return type(expr)(*map(evaluate, expr)) if hasattr(expr, "_fields") else type(expr)(map(evaluate, expr))
    result = interpret(postorder([expr]), {id(expr)})[id(expr)]
    assert result.shape == expr.shape, f"{expr} evaluates to shape {result.shape}"
    assert result.dtype == expr.dtype, f"{expr} evaluates to dtype {result.dtype}"
    return result


def assert_same(expr, expected, *, rtol=0.0, atol=0.0, signs=True):
    """The value of `expr` is `expected`: bit for bit but for the payload of nan, or within `rtol` and `atol`.

    Without `signs` zeros of either sign are equal: a sum of products need not say which one it is.
    """
    if isinstance(expected, (tuple, list)):
        assert len(expr) == len(expected)
        for e, v in zip(expr, expected):
            assert_same(e, v, rtol=rtol, atol=atol, signs=signs)
        return
    expected = np.asarray(expected)
    assert type(expr) is Expr, expr
    assert expr.shape == expected.shape
    assert expr.dtype == expected.dtype
    value = evaluate(expr)
    if rtol or atol:
        np.testing.assert_allclose(value, expected, rtol=rtol, atol=atol)
    else:
        np.testing.assert_array_equal(value, expected)
        if signs and expected.dtype.kind == "f":
            finite = ~np.isnan(expected)
            np.testing.assert_array_equal(np.signbit(value)[finite], np.signbit(expected)[finite])


def assert_same_error(ours, theirs):
    """Both calls raise, ours an error that who expects numpy's catches."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(Exception) as expected:  # numpy says which
            theirs()
    with pytest.raises(expected.type):
        ours()


KIT = SimpleNamespace(
    env=ENV, node=node, evaluate=evaluate, assert_same=assert_same, assert_same_error=assert_same_error
)


@pytest.fixture(scope="session")
def kit() -> SimpleNamespace:
    """`node`, `evaluate`, `assert_same`, `assert_same_error` and an environment."""
    return KIT
