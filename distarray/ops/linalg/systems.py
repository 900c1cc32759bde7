"""LU factors with partial pivoting, and what is made of them: solutions, inverses, determinants."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.linalg import LinAlgError

from distarray.expr.bind import bind, bind_create, bind_reshape, bind_tiles, unbox
from distarray.expr.broadcasting import broadcast_shapes
from distarray.expr.expr import Expr, lying
from distarray.expr.op import declare
from distarray.ops.creation import EYE
from distarray.ops.elementwise import add, astype, exp, multiply
from distarray.ops.families import Array, one_array, ready_made
from distarray.ops.linalg.matrices import WHOLE, SlogdetResult, float_dtype, matrices, real_dtype, several
from distarray.ops.linalg.panels import Panels, deal, is_cut, recut, rows, transposed
from distarray.ops.manipulation import expand_dims, squeeze
from distarray.ops.programs import boxed

INV = declare("inv", "block", rule=f"... i j -> ... j i | {WHOLE}", may_raise=True)
DET = declare("det", "block", rule=f"... i j -> ... | {WHOLE}")
SLOGDET = declare("slogdet", "block", rule=f"... i j -> ..., ... | {WHOLE}")
SOLVE = declare("solve", "block", rule=f"... i j, ... i k -> ... j k | {WHOLE}, k: whole", may_raise=True)
#: params: (row of the diagonal,)
LU_PANEL = declare("lu_panel", "tiles")
LU_FORWARD = declare("lu_forward", "tiles")
#: params: (row of the diagonal,)
LU_BACKWARD = declare("lu_backward", "tiles", may_raise=True)


class _Factor(NamedTuple):
    """A _Factor is one panel of ``P @ A = L @ U``; every part lies on the member of the panel.

    Parameters
    ----------
    number, start, stop
        Of the panel.
    packed
        Its columns, as rows: `U`, and below the diagonal `L` in the order of rows of this step.
    order
        The rows that the step puts from `start` on.
    sign, logarithm
        Of the determinant of its part of `U` and of the order, as arrays of one element.
    """

    number: int
    start: int
    stop: int
    packed: Expr
    order: Expr
    sign: Expr
    logarithm: Expr


def _factors(node: Expr, panels: Panels) -> list[_Factor]:
    """Return the right-looking algorithm; rows are exchanged in every panel for itself, so no pivot comes to the
    host.
    """
    n, dtype = node.shape[0], node.dtype
    real = real_dtype(dtype)
    left = recut(transposed(node), panels.cut)
    found = []
    for k, start, stop in panels.each():
        width = stop - start
        alone, one, height = (panels.alone(k, extent) for extent in (width, 1, n - start))
        results = [((width, n), dtype, alone), ((n - start,), np.int64, height), ((1,), dtype, one), ((1,), real, one)]
        parts = bind_tiles(LU_PANEL, [(rows(left, 0, width), alone)], results, panels.cut, (start,))
        factor = _Factor(k, start, stop, *parts)
        found.append(factor)
        if stop < n:
            left = _forward(rows(left, width, n - start), factor, panels, panels.left(stop))
    return found


def _forward(left: Expr, factor: _Factor, panels: Panels, bounds: tuple[int, ...]) -> Expr:
    return panels.step(LU_FORWARD, (left, bounds), [factor.packed, factor.order], bounds)


def _solved(node: Expr, right: Expr) -> Expr:
    """Return the solutions for right-hand sides that are columns, as rows.

    Many right-hand sides are dealt to the members as the matrix is, and panels come to them; few ones are all brought
    to where the panel lies that comes next.
    """
    panels = deal(node, node.shape[0])
    factors = _factors(node, panels)
    sides = right.shape[1]
    is_wide = sides > factors[0].stop
    spread = deal(node, sides) if is_wide else panels
    left = transposed(right)
    if right.op is not EYE:
        left = recut(left, spread.cut if is_wide else None)

    def bounds(factor: _Factor) -> tuple[int, ...]:
        return spread.bounds if is_wide else panels.alone(factor.number, sides)

    for factor in factors:
        left = _forward(left, factor, spread, bounds(factor))
    for factor in reversed(factors):
        at = bounds(factor)
        left = spread.step(LU_BACKWARD, (left, at), [factor.packed], at, (factor.start,))
    return left


@ready_made(1)
def inv(x: Array, /) -> Array:
    """Return the inverses of square matrices.

    A matrix that is cut is factored by panels, and no member holds more than two of them.

    Raises
    ------
    LinAlgError
        If a matrix is not square or singular.
    """
    node, box = matrices("inv", x, square=True)
    if is_cut(node):
        n = node.shape[0]
        found = transposed(_solved(node, bind_create(EYE, (n, n), node.dtype, node.env, (), 0)))
        return boxed("inv", box, [recut(found, lying(one_array("inv", x)[0]))])[0]
    return box(bind(INV, (node,), node.shape, node.dtype))


@ready_made(1)
def det(x: Array, /) -> Array:
    """Return determinants. A matrix that is cut is factored by panels, and no member holds more than two of them."""
    node, box = matrices("det", x, square=True)
    if is_cut(node):
        sign, logarithm = _slogdet_by_panels(node)
        return box(multiply(sign, astype(exp(logarithm), node.dtype)))
    return box(bind(DET, (node,), node.shape[:-2], node.dtype))


@ready_made(1)
def slogdet(x: Array, /) -> SlogdetResult:
    """Return the sign and logarithm of the modulus of determinants; 0 and -inf where a matrix is singular.

    A matrix that is cut is factored by panels, and no member holds more than two of them.
    """
    node, box = matrices("slogdet", x, square=True)
    if is_cut(node):
        return SlogdetResult(*boxed("slogdet", box, _slogdet_by_panels(node), shared=True))
    shape = node.shape[:-2]
    return SlogdetResult(*map(box, several(SLOGDET, (node,), (shape, shape), (node.dtype, real_dtype(node.dtype)))))


def _slogdet_by_panels(node: Expr) -> tuple[Expr, Expr]:
    first, *rest = _factors(node, deal(node, node.shape[0]))
    sign, logarithm = first.sign, first.logarithm
    for factor in rest:
        sign, logarithm = multiply(sign, factor.sign), add(logarithm, factor.logarithm)
    return bind_reshape(sign, ()), bind_reshape(logarithm, ())


@ready_made(2)
def solve(x1: Array, x2: Array, /) -> Array:
    """Return the solutions of ``x1 @ x = x2``; `x2` of one axis is a vector, else matrices, and leading axes broadcast.

    A matrix that is cut is factored by panels, and no member holds more than two of them; the right-hand sides are cut
    along their columns if there are many of them.

    Raises
    ------
    LinAlgError
        If a matrix is not square or singular.
    ValueError
        If the shapes do not fit.
    """
    operands = unbox("solve", (x1, x2))
    a, b = operands.nodes
    if type(a) is not Expr or type(b) is not Expr:
        raise LinAlgError("0-dimensional array given. Array must be at least two-dimensional")
    matrices("solve", a, square=True)
    dtype = float_dtype(a.dtype, b.dtype)
    vector = b.ndim == 1
    if b.ndim == 0:
        raise ValueError("solve: Input operand 1 does not have enough dimensions (has 0, it needs at least 1)")
    right = expand_dims(b, axis=1) if vector else b
    n = a.shape[-1]
    if right.shape[-2] != n:
        raise ValueError(
            f"solve: Input operand 1 has a mismatch in its core dimension 0, with gufunc signature (m,m),(m,n)->(m,n) "
            f"(size {right.shape[-2]} is different from {n})"
        )
    lead = broadcast_shapes(a.shape[:-2], right.shape[:-2])
    cast = [astype(node, dtype, copy=False) for node in (a, right)]
    if is_cut(a) and right.ndim == 2 and right.shape[-1]:
        found = transposed(_solved(*cast))
        found = recut(squeeze(found, axis=-1) if vector else found, lying(b))
        return boxed("solve", operands.box, [found])[0]
    found = bind(SOLVE, cast, (*lead, n, right.shape[-1]), dtype)
    return boxed("solve", operands.box, [squeeze(found, axis=-1) if vector else found])[0]
