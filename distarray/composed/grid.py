"""Grids: explicit tiles for user functions whose result depends on how their operands are cut."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

from distarray.expr.expr import Expr, lying
from distarray.expr.tiles import Bounds, Ranges
from distarray.kernels.inside import is_inside_task
from distarray.sharding.mesh import Mesh
from distarray.sharding.sharding import Sharding


def sharding_when_read(node: Expr) -> Sharding:
    """Return how the elements of a node lie when an operation reads them: host data are placed, what is pending is
    planned.
    """
    # Late: what plans and places is loaded when the first array is cut.
    if node.memo is not None and not is_inside_task():  # there they stay, and whoever waits may hold the lock
        from distarray.runtime import hosts

        hosts.place(node)
    if (known := lying(node)) is not None:
        return known
    from distarray.diagnostics.predict import planned_sharding

    return planned_sharding(node, node.env)


class Grid(NamedTuple):
    """A Grid is tiles over the axes of operands that broadcast together.

    Parameters
    ----------
    mesh
        The places.
    axes
        The mesh axes that cut each axis.
    bounds
        Boundaries of the tiles along each axis.
    """

    mesh: Mesh
    axes: tuple[tuple[str, ...], ...]
    bounds: tuple[Bounds, ...]

    def uncut(self, axes: Sequence[int]) -> Grid:
        """Return the grid with these axes whole."""
        return Grid(
            self.mesh,
            tuple([() if a in axes else names for a, names in enumerate(self.axes)]),
            tuple([(0, b[-1]) if a in axes else b for a, b in enumerate(self.bounds)]),
        )

    def cut(self, of: Sequence[int | None]) -> Sharding:
        """Return the type of a result whose axes are these axes of the grid; None is an axis of one tile."""
        return Sharding(self.mesh, tuple([() if a is None else self.axes[a] for a in of]))


def grid_over(nodes: Sequence[Expr], axes: Sequence[Sequence[int]], shape: Sequence[int]) -> Grid:
    """Return the tiles of the largest operand, as the axes of the grid see them.

    Parameters
    ----------
    nodes
        Operands; the first of the largest stays where it lies.
    axes
        For each operand the axes of the grid that its axes go with.
    shape
        Of the grid. Where an operand has another extent, it broadcasts.
    """
    big = max(range(len(nodes)), key=lambda i: nodes[i].size)
    sharding, extents = sharding_when_read(nodes[big]), nodes[big].shape
    names: list[tuple[str, ...]] = [()] * len(shape)
    bounds: list[Bounds] = [(0, n) for n in shape]
    for axis, n, own, known in zip(axes[big], extents, sharding.axes, sharding.boundaries(extents), strict=True):
        if n == shape[axis] and own:
            names[axis], bounds[axis] = own, known
    return Grid(sharding.mesh, tuple(names), tuple(bounds))


def ranges_of(bounds: Bounds) -> Ranges:
    """Return the tiles between boundaries as ranges."""
    return tuple(itertools.pairwise(bounds))
