"""Pieces: arrays that are written one after the other into one that is created stay where they lie.

The created array is cut where its pieces are, so that every tile of a piece stays at its member; members have tiles of
each piece, dealt out in rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import prod

from distarray.expr.expr import Expr
from distarray.expr.lens import Affine
from distarray.planner.plan import Assembled
from distarray.sharding.cuts import boundaries
from distarray.sharding.dealing import dealing_of
from distarray.sharding.mesh import Mesh, is_wave
from distarray.sharding.sharding import Sharding

#: Rounds of tiles that an array put together may have: of more it would have too many small tiles. The search counts so
#: many one by one (`partition.box_traffic`).
MAX_ROUNDS = 16


def edges_of_pieces(
    rule: Assembled, nodes: Sequence[Expr], lying: Callable[[int], Sharding | None]
) -> tuple[Mesh, tuple[str, ...], list[tuple[int, ...]]] | None:
    """Return how pieces lie along the loop that they are put together along: the mesh without waves, its axes that cut
    all of them, and for each round of members the boundaries of their parts, long gaps between pieces included; None
    where they lie in different ways, or there are more than `MAX_ROUNDS`.
    """
    edges_of_rounds: set[tuple[int, ...]] = set()  # pieces side by side lie alike
    found: set[tuple[Mesh, tuple[str, ...]]] = set()
    for write, source, axis in rule.pieces:
        lies = lying(source)
        if lies is None or lies.mesh.owners is not None:
            return None
        (row, over, again), sizes = dealing_of(lies, axis), lies.mesh.axis_size
        if not over or any(map(is_wave, over)):
            return None
        found.add((lies.mesh.without_waves(), over))
        lens: Affine = nodes[write].runtime
        (start, extent, step), n_source = _along(lens, rule.loop), nodes[source].shape[axis]
        if step != 1:
            return None
        n_parts = prod(map(sizes, over))
        if extent == n_source:
            edges = lies.boundaries(nodes[source].shape)[axis][:: prod(map(sizes, row))]
        else:
            edges = boundaries(extent, n_parts * prod(map(sizes, again)))
        for k in range(0, len(edges) - 1, n_parts):
            edges_of_rounds.add(tuple([start + e for e in edges[k : k + n_parts + 1]]))
        if len(edges_of_rounds) > MAX_ROUNDS:
            return None
    rounds = sorted(edges_of_rounds)
    if len(found) > 1 or any(a[-1] > b[0] for a, b in pairwise(rounds)):
        return None
    rounds = _with_gaps(rounds, nodes[rule.pieces[0].write].shape[rule.loop])
    return (*found.pop(), rounds) if len(rounds) <= MAX_ROUNDS else None


def _along(lens: Affine, axis: int) -> tuple[int, int, int]:
    """Return where the elements of a view begin along an axis of its source, how many there are, and their step."""
    a, start, step = lens.terms[axis]
    return (start, 1, 1) if a is None else (start, lens.shape[a], step)


def _with_gaps(rounds: Sequence[tuple[int, ...]], extent: int) -> list[tuple[int, ...]]:
    """Return rounds, and one more for each gap between them that is longer than any part: no member has it alone.

    >>> _with_gaps([(0, 2, 4), (5, 7, 9)], 19)
    [(0, 2, 4), (5, 7, 9), (9, 14, 19)]
    """
    longest = max([b - a for edges in rounds for a, b in pairwise(edges)])
    found, at = [], 0
    for edges in [*rounds, (extent,)]:
        if edges[0] - at > longest:
            found.append(tuple([at + e for e in boundaries(edges[0] - at, len(rounds[0]) - 1)]))
        found.append(edges)
        at = edges[-1]
    return found[:-1]
