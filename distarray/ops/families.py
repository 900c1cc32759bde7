"""Makers of public functions, one per family of operations: what a table of operations is written with.

An operation of a family is one line: ``sin = unary("sin")`` declares its row of the catalogue and makes its function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from distarray.expr.affine import Affine
from distarray.expr.bind import Box, bind_get, bind_map, unbox
from distarray.expr.expr import Expr
from distarray.expr.op import Op, declare

__all__ = ["Array", "binary", "one_array", "unary", "view"]

#: Whatever `unbox` accepts; results are boxed as the first boxed operand is, so the type is the caller's.
Array: TypeAlias = Any


def unary(name: str, doc: str = "") -> Callable[[Array], Array]:
    """Declare the elementwise operation `name` of one operand and make its function."""
    op = declare(name, "map")

    def function(x: Array, /) -> Array:
        return bind_map(op, (x,))

    _name(function, op, doc)
    return function


def binary(name: str, doc: str = "") -> Callable[[Array, Array], Array]:
    """Declare the elementwise operation `name` of two operands and make its function."""
    op = declare(name, "map")

    def function(x1: Array, x2: Array, /) -> Array:
        return bind_map(op, (x1, x2))

    _name(function, op, doc)
    return function


def _name(function: Callable[..., Array], op: Op, doc: str) -> None:
    function.__name__ = function.__qualname__ = op.name
    function.__doc__ = doc or f"``{op.name}`` of each element, as in numpy; operands broadcast. Lazy."


def one_array(name: str, x: Array) -> tuple[Expr, Box]:
    """Return the node of the only operand of `name`, and how to box the result.

    Raises
    ------
    TypeError
        If `x` is no array of distarray.
    """
    operands = unbox(name, (x,))
    node = operands.nodes[0]
    assert type(node) is Expr
    return node, operands.box


def view(name: str, x: Array, make: Callable[[tuple[int, ...]], Affine]) -> Array:
    """Return `x` read through the lens that `make` returns for its shape."""
    node, box = one_array(name, x)
    return box(bind_get(node, make(node.shape)))
