"""Panels: how a matrix that is cut is brought into the form in which factorisations work on it.

A panel is a block of neighbouring columns. It is stored as rows of the transposed matrix, whole along the other axis,
so that one member can factor it and apply it. Panels are dealt to the members in turn: when the first ones are done,
every member still has work. What one step makes of what is left of the matrix is one `bind_tiles` node, with a task
for each panel that is left; a panel that is done is sent to whoever still has one. So a factorisation of `P` panels
makes about ``P**2 / 2`` tasks, none of which holds more than two panels, and moves ``members / 2`` times the matrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from distarray.expr.bind import bind_get, bind_map, bind_tiles
from distarray.expr.expr import Expr, lying
from distarray.expr.op import Op
from distarray.expr.tiles import Bounds
from distarray.ops.elementwise import ASTYPE, conj
from distarray.ops.lenses import matrix_transpose_lens
from distarray.ops.manipulation import sliced
from distarray.ops.programs import over_all_places, row_cut
from distarray.sharding.sharding import Sharding

#: Columns of a panel where the matrix has enough of them: a product with fewer is slow.
WIDTH = 128
#: Panels for each member where they stay that wide: more of them balance the work better, and cost more tasks.
TURNS = 4


class Panels(NamedTuple):
    """A Panels says how a matrix is cut into panels, which are dealt to the members of its team.

    Parameters
    ----------
    cut
        The type of the transposed matrix: its axis 0 in as many parts as there are panels.
    bounds
        Boundaries of the panels; some may be empty.
    """

    cut: Sharding
    bounds: Bounds

    def each(self) -> list[tuple[int, int, int]]:
        """Return number, start and stop of each panel that is not empty."""
        ends = zip(self.bounds, self.bounds[1:])
        return [(k, start, stop) for k, (start, stop) in enumerate(ends) if start < stop]

    def left(self, start: int) -> Bounds:
        """Return the boundaries of what is left of the panels behind the first `start` columns."""
        return tuple([max(b - start, 0) for b in self.bounds])

    def alone(self, k: int, extent: int) -> Bounds:
        """Return the boundaries of an axis of this extent that lies where panel `k` does."""
        return tuple([0 if i <= k else extent for i in range(len(self.bounds))])

    def step(
        self, op: Op, tiles: tuple[Expr, Bounds], whole: Sequence[Expr], bounds: Bounds, params: tuple[Any, ...] = ()
    ) -> Expr:
        """Return one node: a kernel on each tile of an array like the transposed matrix, with all of some small
        ones.
        """
        node = tiles[0]
        result = ((bounds[-1], *node.shape[1:]), node.dtype, bounds)
        (made,) = bind_tiles(op, [tiles, *[(w, None) for w in whole]], [result], self.cut, params)
        return made


def is_cut(node: Expr) -> bool:
    """Return whether one matrix is to be worked on by several members: it lies in several tiles, or is large."""
    if node.ndim != 2 or node.env.size == 1 or not node.size:
        return False
    known = lying(node)
    if known is not None and known.n_tiles > 1:
        return True
    return node.nbytes > node.env.block_nbytes


def deal(node: Expr, extent: int) -> Panels:
    """Return panels of `extent` columns for the members of the node's team."""
    assert node.env.team is not None
    mesh = node.env.team.mesh
    turns = max(1, min(TURNS, extent // (mesh.size * WIDTH)))
    # the members vary fastest: the first panels go to different ones
    cut = Sharding(mesh.with_waves(turns), ((*reversed(mesh.names), "%1"), ()))
    return Panels(cut, cut.boundaries((extent, 1))[0])


def is_tall(shape: Sequence[int]) -> bool:
    """Return whether a matrix of this shape has enough rows that row blocks of it have factors smaller than
    themselves.
    """
    return shape[0] >= 2 * shape[1]


def row_blocks(node: Expr) -> Sharding:
    """Return how a matrix that is cut lies in row blocks: as it does, if only its rows are cut; else evenly over its
    team.
    """
    return row_cut(node) or over_all_places(node, 2)


def recut(node: Expr, cut: Sharding | None) -> Expr:
    """Return the same elements in another cut; None leaves it open."""
    if cut is None:
        return node
    made: Expr = bind_map(ASTYPE, (node,), (node.dtype.str,))
    return made.with_pin(cut)


def transposed(node: Expr) -> Expr:
    """Return matrices with rows as columns, not conjugated."""
    return bind_get(node, matrix_transpose_lens(node.shape))


def adjoint(node: Expr) -> Expr:
    """Return conjugated matrices with rows as columns."""
    turned = transposed(node)
    return conj(turned) if node.dtype.kind == "c" else turned


def rows(node: Expr, start: int, stop: int, *, columns_from: int = 0) -> Expr:
    """Return some neighbouring rows of a matrix, and of these the columns from one on."""
    made = sliced(node, 0, start, stop - start)
    return sliced(made, 1, columns_from, node.shape[1] - columns_from)
