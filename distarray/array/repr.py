"""How an array shows itself: its type in one line, its corner values, a drawing of its cut.

``repr`` and ``_repr_html_`` never compute, plan or fail. ``str`` shows what numpy would show and computes only the
elements that are shown.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from distarray import dtypes
from distarray.array import elements
from distarray.sharding.sharding import Sharding
from distarray.sharding.spec import format_type
from distarray.types import HostArray

if TYPE_CHECKING:
    from distarray.array.array import DistArray

__all__ = ["describe", "html", "text", "visualize_sharding"]


def describe(x: DistArray) -> str:
    """One line: type, team, device.

    ``DistArray(f64[8192{R}16384, 4096{C}16384], team=Team(R=2, C=4), device="cpu")``
    """
    name = type(x).__name__
    if x._base.expr is None:
        return f"{name}(deleted)"
    sharding = _sharding(x)
    where = "" if sharding is not None or x.team is None else ", not yet placed"
    return f'{name}({format_type(x.shape, x.dtype, sharding)}, team={x.team!r}, device="{x.device}"{where})'


def _sharding(x: DistArray) -> Sharding | None:
    """How `x` lies, if that is known; a view of something cut is not, until it is placed itself."""
    known = x._known_sharding()
    if known is None or x.team is None:
        return None
    memo = x._base.current.memo
    if memo is not None and memo.on_client and x._base.current.pin is None:
        # A small value that travels with plans: it has no cut.
        return None
    return known


# --------------------------------------------------------------------------------------------------- values


def text(x: DistArray) -> str:
    """The values exactly as numpy prints them; of a large array only the corners are computed."""
    return str(_printed(x, np.array2string)) if x.ndim else str(elements.item(x.__dx_node__())[()])


def _printed(x: DistArray, array2string: Any) -> str:
    options = np.get_printoptions()
    if x.size <= options["threshold"]:
        return str(array2string(x._host()))
    edge = options["edgeitems"]
    corners = x
    for axis, n in enumerate(x.shape):
        if n > 2 * edge:
            corners = _edges(corners, axis, edge)
    # One more element between the edges, never shown, makes numpy print the dots.
    return str(array2string(_with_gaps(corners._host(), x.shape, edge), threshold=0))


def _edges(x: DistArray, axis: int, edge: int) -> DistArray:
    from distarray.ops.manipulation import concat

    at = (slice(None),) * axis
    joined: DistArray = concat([x[(*at, slice(None, edge))], x[(*at, slice(-edge, None))]], axis=axis)
    return joined


def _with_gaps(corners: HostArray, shape: tuple[int, ...], edge: int) -> HostArray:
    for axis, n in enumerate(shape):
        if n > 2 * edge:
            first = corners[(slice(None),) * axis + (slice(0, 1),)]
            low, high = np.split(corners, [edge], axis=axis)
            corners = np.concatenate([low, first, high], axis=axis)
    return corners


# -------------------------------------------------------------------------------------------------- drawing

#: Pixels of the longest side, and of the shortest that is still seen.
_LONGEST, _SHORTEST = 180, 24


def html(x: DistArray) -> str:
    """A table of facts and, for arrays of one and two axes, a drawing of the cut."""
    if x._base.expr is None:
        return f"<pre>{escape(describe(x))}</pre>"
    sharding = _sharding(x)
    rows = {
        "type": format_type(x.shape, x.dtype, sharding),
        "shape": str(x.shape),
        "dtype": dtypes.notation(x.dtype),
        "bytes": f"{x.nbytes:,}",
        "team": repr(x.team),
        "device": x.device,
        "layout": str(x.layout),
    }
    if sharding is None:
        rows["placed"] = "not yet"
    else:
        rows["tiles"] = " x ".join(map(str, sharding.parts)) or "1"
    table = "".join(f"<tr><th>{key}</th><td>{escape(value)}</td></tr>" for key, value in rows.items())
    drawing = _svg(x.shape, sharding)
    return f'<div style="display:flex;gap:1em"><table>{table}</table>{drawing}</div>'


def _svg(shape: tuple[int, ...], sharding: Sharding | None) -> str:
    if not shape or 0 in shape:
        return ""
    # The last two axes; of a vector one row.
    rows, columns = (1, shape[0]) if len(shape) == 1 else shape[-2:]
    bounds: tuple[tuple[int, ...], ...] = ((0, rows), (0, columns))
    if sharding is not None:
        all_bounds = sharding.boundaries(shape)
        bounds = ((0, 1), all_bounds[0]) if len(shape) == 1 else all_bounds[-2:]
    scale = _LONGEST / max(rows, columns)
    height, width = (max(_SHORTEST, n * scale) for n in (rows, columns))
    lines = [
        f'<rect x="1" y="1" width="{width:.1f}" height="{height:.1f}" fill="#e8f0fa" stroke="#345" stroke-width="2"/>'
    ]
    for cut in bounds[0][1:-1]:
        y = 1 + height * cut / rows
        lines.append(f'<line x1="1" x2="{width + 1:.1f}" y1="{y:.1f}" y2="{y:.1f}" stroke="#345"/>')
    for cut in bounds[1][1:-1]:
        x = 1 + width * cut / columns
        lines.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="1" y2="{height + 1:.1f}" stroke="#345"/>')
    return f'<svg width="{width + 2:.0f}" height="{height + 2:.0f}">{"".join(lines)}</svg>'


def visualize_sharding(x: DistArray) -> str:
    """The grid of tiles as text: which member holds which. Plans what is pending; computes nothing.

    Arrays of one or two axes; of more, the last two.
    """
    sharding = x.sharding
    parts = sharding.parts
    n_rows, n_columns = (1, parts[0]) if len(parts) == 1 else (parts[-2:] if parts else (1, 1))
    size = x._env.size
    cells = []
    for i in range(n_rows):
        row = []
        for j in range(n_columns):
            tile = (0,) * (len(parts) - 2) + ((i, j) if len(parts) > 1 else (j,) if parts else ())
            row.append(",".join(map(str, sharding.members(tile, size))))
        cells.append(row)
    width = max(len(cell) for row in cells for cell in row) + 2
    bar = "+" + "+".join(["-" * width] * n_columns) + "+"
    lines = [bar]
    for row in cells:
        lines += ["|" + "|".join(cell.center(width) for cell in row) + "|", bar]
    return "\n".join(lines)
