"""QR factorisations: of whole matrices, of tall ones by a tree of row blocks, of others by panels."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from distarray.arguments import shown
from distarray.expr.bind import bind, bind_create, bind_get, bind_put, bind_tiles
from distarray.expr.expr import Expr, lying
from distarray.expr.op import declare
from distarray.expr.tiles import Bounds
from distarray.ops.creation import EMPTY, EYE
from distarray.ops.elementwise import multiply
from distarray.ops.families import Array, ready_made
from distarray.ops.lenses import expand_lens, slice_lens
from distarray.ops.linalg.matrices import WHOLE, QRResult, matrices, several
from distarray.ops.linalg.panels import Panels, deal, is_cut, is_tall, recut, row_blocks, rows, transposed
from distarray.ops.manipulation import sliced
from distarray.ops.programs import boxed
from distarray.sharding.sharding import Sharding

#: params: (mode,)
QR = declare("qr", "block", rule=f"... i j -> ... i k, ... k j | {WHOLE}, k: whole")
QR_R = declare("qr_r", "block", rule=f"... i j -> ... k j | {WHOLE}, k: whole")
QR_TILE = declare("qr_tile", "tiles")
QR_R_TILE = declare("qr_r_tile", "tiles")
QR_JOIN = declare("qr_join", "tiles")
QR_SIGNS = declare("qr_signs", "block", rule="i j, k j -> k | i: whole, j: whole, k: whole")
#: params: (row of the diagonal,)
QR_PANEL = declare("qr_panel", "tiles")
QR_FORWARD = declare("qr_forward", "tiles")
#: params: (length of a column,)
QR_BACKWARD = declare("qr_backward", "tiles")


@ready_made(1)
def qr(x: Array, /, mode: str = "reduced") -> Any:
    """Return ``x = Q @ R`` with orthonormal columns in `Q` and an upper triangle `R`.

    A matrix that is cut and has at least twice as many rows as columns is factored by a tree of row blocks, of which a
    member holds one and as many rows again as it has columns; any other one by panels, of which a member holds two.
    ``"complete"`` brings a matrix with more rows than columns to one member. The signs of rows of `R` are LAPACK's, and
    so numpy's, however the matrix is cut; those of rows that are zero but for rounding follow the rounding.

    Parameters
    ----------
    mode
        ``"reduced"``, ``"complete"`` (a square `Q`) or numpy's ``"r"`` (`R` alone).

    Raises
    ------
    MemoryBudgetError
        If a matrix is brought to one member and does not fit its memory budget.
    """
    if not isinstance(mode, str) or mode not in ("reduced", "complete", "r"):
        raise ValueError(f"Unrecognized mode {shown(mode)}; use 'reduced', 'complete' or 'r'")
    node, box = matrices("qr", x)
    *lead, m, n = node.shape
    if is_cut(node) and (mode != "complete" or m <= n):
        q, r = _distributed(node, with_q=mode != "r")
        return box(r) if q is None else QRResult(*boxed("qr", box, [q, r], shared=True))
    k = m if mode == "complete" else min(m, n)
    if mode == "r":
        return box(bind(QR_R, (node,), (*lead, k, n), node.dtype, (mode,)))
    return QRResult(*map(box, several(QR, (node,), ((*lead, m, k), (*lead, k, n)), (node.dtype,) * 2, (mode,))))


def _distributed(node: Expr, *, with_q: bool) -> tuple[Expr | None, Expr]:
    if not is_tall(node.shape):
        return _qr_by_panels(node, with_q=with_q)
    q, r = tall_qr(node, with_q=with_q)
    n = r.shape[0]
    signs = bind(QR_SIGNS, (rows(node, 0, n), r), (n,), r.dtype)
    down = bind_get(signs, expand_lens(signs.shape, 1))
    return None if q is None else multiply(q, signs), multiply(r, down)


# -------------------------------------------------------------------------------------------------- tall matrices


def tall_qr(node: Expr, *, with_q: bool = True) -> tuple[Expr | None, Expr]:
    """Return the reduced factors of a tall matrix that is cut: `Q` cut by rows, `R` whole. The signs of the rows of `R`
    depend on the cut.

    References
    ----------
    J. Demmel, L. Grigori, M. Hoemmen, J. Langou, Communication-optimal parallel and sequential QR and LU
    factorizations, SIAM J. Sci. Comput. 34 (2012), section 3 (TSQR).
    """
    cut = row_blocks(node)
    return _tree(recut(node, cut), cut.boundaries(node.shape)[0], cut, with_q)


def _tree(node: Expr, bounds: Bounds, cut: Sharding, with_q: bool) -> tuple[Expr | None, Expr]:
    """Return `Q`, if wanted, and the triangle of a tall matrix.

    Each row block is factored by itself, and then the triangles of several, one above the other, in fewer and fewer
    blocks.
    """
    m, n = node.shape
    height = [stop - start for start, stop in pairwise(bounds)]
    tops = [0]
    for h in height:
        tops.append(tops[-1] + min(h, n))
    shape = ((tops[-1], n), node.dtype, tops)
    is_last = sum(h > 0 for h in height) == 1
    if not with_q:
        (r,) = bind_tiles(QR_R_TILE, [(node, bounds)], [shape], cut)
        return None, r if is_last else _tree(r, _merged(tops, n, max(height)), cut, False)[1]
    q, r = bind_tiles(QR_TILE, [(node, bounds)], [((m, n), node.dtype, bounds), shape], cut)
    if is_last:
        return q, r
    above, r = _tree(r, _merged(tops, n, max(height)), cut, True)
    assert above is not None
    (q,) = bind_tiles(QR_JOIN, [(q, bounds), (above, tops)], [((m, n), node.dtype, bounds)], cut)
    return q, r


def _merged(bounds: Sequence[int], n: int, largest: int) -> Bounds:
    """Return the boundaries of fewer parts: neighbours joined while they have no more rows than the largest had, or are
    two.
    """
    stops = [0]
    joined = 0
    for start, stop in pairwise(bounds):
        if start < stop:
            fits = stop - stops[-1] <= max(largest, 2 * n)
            if joined >= 2 and not fits:
                stops.append(start)
                joined = 0
            joined += 1
    stops.append(bounds[-1])
    # as many parts as there were; the last ones are empty
    return tuple(stops + [bounds[-1]] * (len(bounds) - len(stops)))


# -------------------------------------------------------------------------------------------------- by panels


class _Reflector(NamedTuple):
    """A _Reflector is the unitary matrix ``I - V @ T @ V^H`` on the rows from `start` on; `v` is `V` transposed."""

    start: int
    v: Expr
    t: Expr


def _qr_by_panels(node: Expr, *, with_q: bool) -> tuple[Expr | None, Expr]:
    """Return what Householder's algorithm gives by panels: each gives one block reflector."""
    m, n = node.shape
    panels = deal(node, n)
    left = recut(transposed(node), panels.cut)
    parts: list[tuple[Expr, int]] = []
    reflectors: list[_Reflector] = []
    for k, start, stop in panels.each():
        if start >= m:
            parts.append((left, start))  # columns that the last reflector has made final
            break
        width = stop - start
        k_rows = min(width, m - start)
        alone, own = panels.alone(k, width), panels.alone(k, k_rows)
        r, v, t = bind_tiles(
            QR_PANEL,
            [(rows(left, 0, width), alone)],
            [((width, m), node.dtype, alone), ((k_rows, m - start), node.dtype, own), ((k_rows,) * 2, node.dtype, own)],
            panels.cut,
            (start,),
        )
        parts.append((r, start))
        reflectors.append(_Reflector(start, v, t))
        if stop < n:
            bounds = panels.left(stop)
            left = panels.step(QR_FORWARD, (rows(left, width, n - start), bounds), [v, t], bounds)
    return (_q_of(reflectors, node, panels) if with_q else None), _r_of(parts, node)


def _r_of(parts: Sequence[tuple[Expr, int]], node: Expr) -> Expr:
    """Return the triangle, from its columns as rows and where they begin."""
    m, n = node.shape
    shape = (min(m, n), n)
    made = bind_create(EMPTY, shape, node.dtype, node.env, (), None, lying(node) if shape == node.shape else None)
    for part, start in parts:
        columns = sliced(part, 1, 0, shape[0])
        made = bind_put(made, slice_lens(shape, 1, start, part.shape[0]), transposed(columns))
    return made


def _q_of(reflectors: Sequence[_Reflector], node: Expr, panels: Panels) -> Expr:
    """Return the columns of the identity times all reflectors, the last one first: each brings its own columns in."""
    m, n = node.shape
    k = min(m, n)

    def bounds(start: int) -> Bounds:
        return tuple([max(min(b, k) - start, 0) for b in panels.bounds])

    last = reflectors[-1]
    made = bind_create(EYE, (k - last.start, m), node.dtype, node.env, (), last.start)
    stop = last.start
    for at in reversed(reflectors):
        made = panels.step(QR_BACKWARD, (made, bounds(stop)), [at.v, at.t], bounds(at.start), (m,))
        stop = at.start
    return recut(transposed(made), lying(node) if k == n else None)
