"""Groups of devices for collectives, from who holds which tile.

A step is one all-to-all iff every device stays in its coarse cell and both maps are uniform. Groups then always exist:
inside a cell old positions and new slices form a regular bipartite multigraph, which splits into perfect matchings
(Koenig), and each matching is a group.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from distarray.planner.redistribution.places import IntArray


def cells(tiles: IntArray, parts: Sequence[int]) -> IntArray:
    """Return one number for each device that says which tile it holds."""
    found = np.zeros(len(tiles), np.int64)
    for i, k in enumerate(parts):
        found *= k
        found += tiles[:, i]
    return found


def gather_groups(cell: IntArray, position: IntArray, n: int) -> IntArray:
    """Return groups of `n` devices of one cell, one at each position, in the order of positions; equals in device
    order.
    """
    order = np.lexsort((position, cell))
    replicas = _replicas(cell, n)
    return order.reshape(-1, n, replicas).transpose(0, 2, 1).reshape(-1, n)


def _replicas(cell: IntArray, n: int) -> int:
    # maps are uniform: every cell has as many devices
    n_cells = len(np.unique(cell))
    return len(cell) // (n_cells * n)


def matched_groups(cell: IntArray, position: IntArray, kept: IntArray, n: int) -> tuple[IntArray, IntArray | None]:
    """Return groups in which the slices `kept` are a permutation, and `kept` unless every member keeps its own number.

    Parameters
    ----------
    cell, position, kept
        Of every device: its coarse cell, its place in the group, and the slice that it is to keep.
    """
    groups = gather_groups(cell, position, n)
    if not _is_matching(kept[groups]):
        replicas = _replicas(cell, n)
        order = np.lexsort(((kept - position) % n, position, cell))
        groups = order.reshape(-1, n, replicas).transpose(0, 2, 1).reshape(-1, n)
        if not _is_matching(kept[groups]):
            groups = _koenig(order.reshape(-1, n, replicas), kept, n)
    return groups, None if (kept[groups] == np.arange(n)).all() else kept


def _is_matching(kept: IntArray) -> bool:
    return bool((np.sort(kept, axis=1) == np.arange(kept.shape[1])).all())


def _koenig(devices: IntArray, kept: IntArray, n: int) -> IntArray:
    """Return perfect matchings of each cell: devices by (cell, position, replica), one matching after the other."""
    groups = []
    for cell in devices:
        left = [{} for _ in range(n)]  # type: list[dict[int, list[int]]]
        for position, replicas in enumerate(cell):
            for d in replicas.tolist():
                left[position].setdefault(int(kept[d]), []).append(d)
        for _ in range(devices.shape[2]):
            taken: dict[int, int] = {}  # slice -> position
            for position in range(n):
                assert _augment(position, left, taken, set()), "regular bipartite graphs have perfect matchings"
            group = [0] * n
            for piece, position in taken.items():
                here = left[position][piece]
                group[position] = here.pop(0)
                if not here:
                    del left[position][piece]
            groups.append(group)
    return np.array(groups, np.int64)


def _augment(position: int, left: list[dict[int, list[int]]], taken: dict[int, int], seen: set[int]) -> bool:
    for piece in left[position]:
        if piece in seen:
            continue
        seen.add(piece)
        if piece not in taken or _augment(taken[piece], left, taken, seen):
            taken[piece] = position
            return True
    return False
