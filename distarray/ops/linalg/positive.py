"""Cholesky's factorisation, on whole matrices and by panels."""

from __future__ import annotations

from distarray.expr.bind import bind, bind_put, bind_tiles
from distarray.expr.expr import Expr, lying
from distarray.expr.op import declare
from distarray.ops.creation import constant
from distarray.ops.families import Array, one_array, ready_made
from distarray.ops.lenses import box_lens
from distarray.ops.linalg.matrices import WHOLE, matrices
from distarray.ops.linalg.panels import adjoint, deal, is_cut, recut, rows
from distarray.ops.programs import boxed
from distarray.sharding.sharding import Sharding

#: params: (upper,)
CHOLESKY = declare("cholesky", "block", rule=f"... i j -> ... i j | {WHOLE}", may_raise=True)
CHOLESKY_PANEL = declare("cholesky_panel", "tiles", may_raise=True)
CHOLESKY_UPDATE = declare("cholesky_update", "tiles")


@ready_made(1)
def cholesky(x: Array, /, *, upper: bool = False) -> Array:
    """Return the triangle `L` with ``x = L @ L^H``, or `U` with ``x = U^H @ U`` if `upper`; only that triangle of `x`
    is read.

    A matrix that is cut is factored by panels, and no member holds more than two of them; stacks are factored matrix
    by matrix.

    Raises
    ------
    LinAlgError
        If a matrix is not square or not positive definite.
    """
    node, box = matrices("cholesky", x, square=True)
    if is_cut(node):
        (made,) = boxed("cholesky", box, [_by_panels(node, bool(upper), lying(one_array("cholesky", x)[0]))])
        return made
    return box(bind(CHOLESKY, (node,), node.shape, node.dtype, (bool(upper),)))


def _by_panels(node: Expr, upper: bool, pin: Sharding | None) -> Expr:
    """Return the right-looking algorithm on rows of ``U``: numpy's `upper` as they are, else of the adjoint."""
    n, dtype = node.shape[0], node.dtype
    panels = deal(node, n)
    if not upper:
        node = adjoint(node)
    left = recut(node, panels.cut)
    made = constant((n, n), 0, dtype, node.env, pin)
    for k, start, stop in panels.each():
        width = stop - start
        alone = panels.alone(k, width)
        (factor,) = bind_tiles(
            CHOLESKY_PANEL, [(rows(left, 0, width), alone)], [((width, n - start), dtype, alone)], panels.cut
        )
        if stop < n:
            bounds = panels.left(stop)
            tail = rows(left, width, n - start, columns_from=width)
            left = panels.step(CHOLESKY_UPDATE, (tail, bounds), [factor], bounds)
        # rows of U from its diagonal on, or columns of L
        factor = factor if upper else adjoint(factor)
        made = bind_put(made, box_lens(factor.shape, (start, start)), factor)
    return made
