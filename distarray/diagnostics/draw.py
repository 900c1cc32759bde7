"""Drawings of a sharding: which member holds which tile, as text and as SVG.

Called by ``dx.visualize_sharding`` and by ``_repr_html_``. A drawing is made from the type alone, so it never computes,
plans or asks a member; and its size is bounded, whatever the number of tiles: long rows of tiles are shortened in text
and drawn together in SVG.
"""

from __future__ import annotations

from collections.abc import Sequence
from colorsys import hls_to_rgb
from html import escape
from itertools import islice, product
from math import prod
from typing import Any

import numpy as np

from distarray.sharding.sharding import Sharding
from distarray.sharding.spec import format_type

#: Parts along an axis that a text grid shows; of more only the first and last ones.
MAX_COLUMNS = 10
#: Grids for which the further cut axes of an array are unrolled.
MAX_GRIDS = 8
#: Replicas, or addends, that a tile names.
MAX_HOLDERS = 4
#: Rectangles along an axis of an SVG; where there are more parts, neighbours share one.
MAX_RECTANGLES = 24
#: Pixels of the longest axis, and of the shortest where the true ratio would make it thinner.
LONGEST, SHORTEST = 240.0, 28.0


# -- what a tile says -------------------------------------------------------------------------------------------


def _holders(sharding: Sharding, tile: Sequence[int]) -> str:
    """Return the members that hold a tile: ``0,4`` are replicas, ``0+4`` addends of one sum."""
    addends = _shortened(range(sharding.n_addends))
    return "+".join(
        ".."
        if addend is None
        else ",".join(
            ".." if member is None else str(member) for member in _shortened(sharding.members(tile, addend=addend))
        )
        for addend in addends
    )


def _shortened(items: Sequence[int]) -> list[int | None]:
    """Return the items, or the first and last ones around None where there are many."""
    return list(items) if len(items) <= MAX_HOLDERS else [*items[:2], None, items[-1]]


def _drawn_axes(sharding: Sharding, n: int) -> tuple[int, ...]:
    """Return the first `n` cut axes, filled up with the first of the others, in order."""
    cut = [axis for axis, parts in enumerate(sharding.parts) if parts > 1]
    whole = [axis for axis, parts in enumerate(sharding.parts) if parts == 1]
    return tuple(sorted((cut + whole)[:n]))


def _shown(parts: int) -> list[int | None]:
    """Return the parts that a text grid shows; None stands for those left out."""
    if parts <= MAX_COLUMNS:
        return list(range(parts))
    half = MAX_COLUMNS // 2
    return [*range(half), None, *range(parts - half, parts)]


def _range(bounds: Sequence[int], part: int | None) -> str:
    return "..." if part is None else f"{bounds[part]}:{bounds[part + 1]}"


class Drawing(str):
    """Drawing is the text of a cut, which shows itself as it is printed, and in a notebook as a picture."""

    __slots__ = ("svg",)
    #: The picture.
    svg: str

    def __repr__(self) -> str:
        return str(self)

    def _repr_svg_(self) -> str:
        return self.svg


# -- text -------------------------------------------------------------------------------------------------------


def visualize_sharding(shape: Sequence[int], sharding: Sharding) -> str:
    """Return the tiles of an array as a grid of text, with the ranks of the members that hold each.

    Parameters
    ----------
    shape
        Global shape.
    sharding
        Its rank must fit `shape`.

    Returns
    -------
    str
        The type; then rows and columns of tiles with their index ranges. ``0,4`` in a tile are replicas, ``0+4``
        addends of a sum not yet reduced. Of an array with more than two axes, the first two that are cut are drawn,
        once for each part of the others.

    Examples
    --------
    >>> from distarray.sharding.mesh import Mesh
    >>> print(visualize_sharding((8, 6), Sharding(Mesh(("R", "C"), (2, 2)), (("R",), ("C",)))))
    [4{R}8, 3{C}6] on Mesh(R=2, C=2)
         0:3 3:6
        +---+---+
    0:4 | 0 | 1 |
        +---+---+
    4:8 | 2 | 3 |
        +---+---+
    >>> print(visualize_sharding((7,), Sharding(Mesh(("R", "C"), (2, 2)), (("R",),))))
    [4{R}7] on Mesh(R=2, C=2)
     0:3 3:7
    +---+---+
    |0,1|2,3|
    +---+---+
    """
    shape = tuple(shape)
    bounds = sharding.boundaries(shape)
    drawn = _drawn_axes(sharding, 2)
    others = [axis for axis in range(len(shape)) if axis not in drawn and sharding.parts[axis] > 1]
    grids = []
    unrolled = product(*(range(sharding.parts[axis]) for axis in others))
    for fixed in islice(unrolled, MAX_GRIDS):
        where = dict(zip(others, fixed, strict=True))
        title = []
        if others:
            index = (_range(bounds[a], where[a]) if a in where else ":" for a in range(len(shape)))
            title = [f"[{', '.join(index)}]"]
        grids.append("\n".join([*title, *_grid(sharding, bounds, drawn, where)]))
    left_out = prod([sharding.parts[axis] for axis in others]) - len(grids)
    if left_out:
        grids.append(f"... and {left_out} more")
    return "\n".join([f"{format_type(shape, None, sharding)} on {sharding.mesh!r}", *grids])


def _grid(
    sharding: Sharding, bounds: Sequence[Sequence[int]], drawn: Sequence[int], where: dict[int, int]
) -> list[str]:
    """Return lines of one grid; with one drawn axis it is one row, with none one tile."""
    columns = _shown(sharding.parts[drawn[-1]]) if drawn else [0]
    rows = _shown(sharding.parts[drawn[0]]) if len(drawn) > 1 else [0]

    def cell(row: int | None, column: int | None) -> str:
        if row is None or column is None:
            return "..."
        place = dict(zip(drawn, (row, column)[-len(drawn) :], strict=True)) if drawn else {}
        return _holders(sharding, [where.get(a, place.get(a, 0)) for a in range(sharding.ndim)])

    cells = [[cell(row, column) for column in columns] for row in rows]
    heads = [_range(bounds[drawn[-1]], column) for column in columns] if drawn else []
    sides = [_range(bounds[drawn[0]], row) for row in rows] if len(drawn) > 1 else [""]
    width = max(3, *(len(text) for line in [heads, *cells] for text in line))
    side = max(map(len, sides))
    margin = " " * (side + 1) if side else ""
    rule = margin + "+" + "+".join(["-" * width] * len(columns)) + "+"
    lines = [(margin + " " + " ".join(text.center(width) for text in heads)).rstrip()] if heads else []
    lines.append(rule)
    for text, line in zip(sides, cells, strict=True):
        start = text.rjust(side) + " " if side else ""
        lines += [start + "|" + "|".join(entry.center(width) for entry in line) + "|", rule]
    return lines


# -- SVG --------------------------------------------------------------------------------------------------------


def member_colour(member: int) -> str:
    """Return a light colour for a member; neighbouring ranks are far apart on the colour circle.

    >>> member_colour(0), member_colour(1)
    ('#abcced', '#edabb9')
    """
    # The golden angle never repeats a hue and spreads any number of members.
    rgb = hls_to_rgb((210 + member * 137.508) % 360 / 360, 0.8, 0.65)
    return "#" + "".join(f"{round(255 * c):02x}" for c in rgb)


def _rectangles(bounds: Sequence[int], pixels: float) -> list[tuple[float, float, int, int]]:
    """Return (start, length) in pixels and (first, behind last) part of what is drawn along an axis, true to scale."""
    parts = len(bounds) - 1
    n = min(parts, MAX_RECTANGLES)
    scale = pixels / bounds[-1] if bounds[-1] else 0.0
    groups = ((i * parts // n, (i + 1) * parts // n) for i in range(n))
    return [(bounds[a] * scale, (bounds[b] - bounds[a]) * scale, a, b) for a, b in groups]


def sharding_svg(shape: Sequence[int], sharding: Sharding, dtype: np.dtype[Any] | None = None) -> str:
    """Return a drawing of the tiles of an array as SVG, coloured by member, sizes true to scale.

    One axis is a row, two are a grid, three are sheets one behind the other. Of an array with more axes, the first
    three that are cut are drawn. Each tile says in its tooltip which it is and who holds it.

    Parameters
    ----------
    shape
        Global shape.
    sharding
        Its rank must fit `shape`.
    dtype
        Named in the title if given.

    Returns
    -------
    str
        An ``<svg>`` element that needs no style sheet or script; its lines and texts take the colour of the page.

    Examples
    --------
    >>> from distarray.sharding.mesh import Mesh
    >>> svg = sharding_svg((3,), Sharding(Mesh(("x",), (2,)), (("x",),)), np.dtype("f8"))
    >>> svg.count("<rect "), "<title>tile 1: 1:3, member 1</title>" in svg
    (2, True)
    """
    shape = tuple(shape)
    bounds = sharding.boundaries(shape)
    drawn = _drawn_axes(sharding, 3)
    longest = max([shape[a] for a in drawn], default=1) or 1
    pixels = [max(SHORTEST, LONGEST * shape[a] / longest) for a in drawn]  # no axis too thin to be seen
    along = [_rectangles(bounds[a], p) for a, p in zip(drawn, pixels, strict=True)]
    one = [(0.0, SHORTEST, 0, 1)]
    x = along[-1] if along else one
    y = along[-2] if len(along) > 1 else one
    # Sheets go back to the upper right, so each hides a part of the next one only.
    depth = along[-3] if len(along) > 2 else [(0.0, 0.0, 0, 1)]
    slant = 0.5
    back = depth[-1][0] * slant
    width = sum(length for _, length, _, _ in x) or SHORTEST
    height = sum(length for _, length, _, _ in y) or SHORTEST
    left = 44.0 if len(along) > 1 else 8.0
    top = 16.0 if len(along) > 2 else 8.0
    body = []
    for start, thick, d0, d1 in reversed(depth):
        dx, dy = left + start * slant, top + back - start * slant
        seen = thick * slant if start else height  # of a sheet behind another the strip above that
        for y0, h, r0, r1 in y:
            for x0, w, c0, c1 in x:
                groups = [(d0, d1), (r0, r1), (c0, c1)][3 - len(drawn) :] if drawn else []
                body.append(_rectangle(sharding, bounds, drawn, groups, (dx + x0, dy + y0, w, h), seen))
    body += _extents([shape[a] for a in drawn], left, top, width, height, back)
    title = format_type(shape, dtype, sharding)
    missing = [str(a) for a in range(len(shape)) if a not in drawn]
    if missing:
        title += f" (axis {missing[0]} not drawn)" if len(missing) == 1 else f" (axes {', '.join(missing)} not drawn)"
    w, h = left + width + back + 28, top + height + back + (24 if drawn else 8)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{w:.0f}" height="{h:.0f}" viewBox="0 0 {w:.0f} {h:.0f}" '
        f'role="img" font-family="sans-serif" font-size="11" fill="currentColor"><title>{escape(title)}</title>'
        f"{''.join(body)}</svg>"
    )


def _rectangle(
    sharding: Sharding,
    bounds: Sequence[Sequence[int]],
    drawn: Sequence[int],
    groups: Sequence[tuple[int, int]],
    box: tuple[float, float, float, float],
    seen: float,
) -> str:
    """Return a tile, or neighbouring tiles drawn as one with the colour of the first; its text where it is seen."""
    first = dict(zip(drawn, (a for a, _ in groups), strict=True))
    tile = [first.get(axis, 0) for axis in range(sharding.ndim)]
    names = [str(a) if b - a <= 1 else f"{a}..{b - 1}" for a, b in groups]
    ranges = [f"{bounds[axis][a]}:{bounds[axis][b]}" for axis, (a, b) in zip(drawn, groups, strict=True)]
    single = all(b - a == 1 for a, b in groups)
    holders = _holders(sharding, tile)
    several = any(c in holders for c in ",+")
    x, y, w, h = box
    says = f"tile {', '.join(names)}: {', '.join(ranges)}" if groups else "one tile"
    says += f", member{'s' if several else ''} {holders}" if single else f", from member {holders}"
    text = ""
    high = min(h, seen)
    if single and w >= 7 * len(holders) + 4 and high >= 13:
        text = (
            f'<text x="{x + w / 2:.1f}" y="{y + high / 2 + 4:.1f}" text-anchor="middle" fill="#222">'
            f"{escape(holders)}</text>"
        )
    return (
        f'<g><title>{escape(says)}</title><rect x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" '
        f'fill="{member_colour(sharding.member(tile))}" stroke="currentColor" stroke-width="0.6"/>{text}</g>'
    )


def _extents(extents: Sequence[int], left: float, top: float, width: float, height: float, back: float) -> list[str]:
    """Return the extents beside the drawn axes."""
    texts = []
    if extents:
        texts.append((left + width / 2, top + back + height + 15, "middle", extents[-1]))
    if len(extents) > 1:
        texts.append((left - 6, top + back + height / 2 + 4, "end", extents[-2]))
    if len(extents) > 2:
        texts.append((left + back / 2 - 4, top + back / 2 - 2, "end", extents[-3]))
    return [f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{n}</text>' for x, y, anchor, n in texts]
