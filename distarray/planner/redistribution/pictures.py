"""Plans as pictures in text: what tiles look like after every step, and how large they are."""

from __future__ import annotations

from collections.abc import Sequence

from distarray.errors import ShardingError
from distarray.planner.redistribution.redistributions import Redistribution, named
from distarray.planner.redistribution.trace import Moment

_GAP = "   "


def draw_tiles(found: Redistribution, device: int = 0) -> str:
    """Return the elements of a matrix before a plan and after each step: tiles in turn ``.`` and ``:``, one device's
    ``#``.

    Parameters
    ----------
    found
        A plan for an array with two dimensions.
    device
        Whose tile is marked.

    Raises
    ------
    ShardingError
        If the array has another number of dimensions.
    """
    if len(found.shape) != 2:
        raise ShardingError(f"draw_tiles: the array has {len(found.shape)} dimensions; only matrices are drawn")
    columns = [[title, *_grid(found, moment, device)] for title, moment in zip(_titles(found), found.trace)]
    return _side_by_side(columns)


def _grid(found: Redistribution, moment: Moment, device: int) -> list[str]:
    start, stop = (edges.tolist() for edges in moment.box)
    rows = [["."] * found.shape[1] for _ in range(found.shape[0])]
    for d in sorted(range(len(start)), key=lambda d: d == device):  # the one that is marked last
        here = "#" if d == device else ".:"[int(moment.tiles[d].sum()) % 2]
        for row in rows[start[d][0] : stop[d][0]]:
            row[start[d][1] : stop[d][1]] = here * (stop[d][1] - start[d][1])
    return ["".join(row) for row in rows]


def draw_sizes(found: Redistribution) -> str:
    """Return how large the largest tile is before a plan and after each step: twice as large is one line higher."""
    sizes = [max(moment.size, 1) for moment in found.trace]
    levels = [round(size / min(sizes)).bit_length() for size in sizes]
    top = max(levels)
    labels = [""] * top
    for size, level in zip(sizes, levels):
        labels[top - level] = str(size)
    width = max(map(len, labels))
    columns = [[label.rjust(width) for label in labels] + [""]]
    for title, level in zip(_titles(found), levels):
        columns.append([" " * len(title)] * (top - level) + ["#" * len(title)] * level + [title])
    return _side_by_side(columns)


def _titles(found: Redistribution) -> list[str]:
    return ["source", *map(named, found.steps)]


def _side_by_side(columns: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in columns]
    lines = zip(*columns, strict=True)
    return "\n".join(_GAP.join(cell.ljust(w) for cell, w in zip(line, widths)).rstrip() for line in lines)
