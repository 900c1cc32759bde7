"""How an array shows itself: its type in one line, its corner values, a drawing of its cut.

``repr`` and ``_repr_html_`` never compute, plan or fail. ``str`` shows what numpy would show and computes only the
elements that are shown.
"""

from __future__ import annotations

from html import escape

from distarray.array import elements
from distarray.array.handle import Handle
from distarray.array.namespace import namespace
from distarray.sharding.sharding import Sharding
from distarray.sharding.spec import format_type


def describe(x: Handle) -> str:
    """Return one line: type, team, device.

    ``DistArray(f64[8192{R}16384, 4096{C}16384], team=Team(R=2, C=4), device="cpu")``
    """
    name = type(x).__name__
    if x._base.expr is None:
        return f"{name}(deleted)"
    sharding = _sharding(x)
    where = "" if sharding is not None or x.team is None else ", not yet placed"
    return f'{name}({format_type(x.shape, x.dtype, sharding)}, team={x.team!r}, device="{x.device}"{where})'


def _sharding(x: Handle) -> Sharding | None:
    """Return how `x` lies, if that is known; a view of something cut is not, until it is placed itself."""
    known = x._known_sharding()
    if known is None or x.team is None:
        return None
    memo = x._base.current.memo
    if memo is not None and memo.on_client and x._base.current.pin is None:
        # A small value that travels with plans: it has no cut.
        return None
    return known


# --------------------------------------------------------------------------------------------------- values


def text(x: Handle) -> str:
    """Return the values exactly as numpy prints them; of a large array only the corners are computed."""
    return str(namespace().array2string(x) if x.ndim else elements.item(x.__dx_node__())[()])


# -------------------------------------------------------------------------------------------------- drawing


def html(x: Handle) -> str:
    """Return a table of facts and, where the cut is known, a drawing of it."""
    # pictures and tables are loaded when one is asked for
    from distarray.diagnostics.draw import sharding_svg
    from distarray.diagnostics.table import format_nbytes, html_table

    if x._base.expr is None:
        return f"<pre>{escape(describe(x))}</pre>"
    sharding = _sharding(x)
    rows = [
        ("type", format_type(x.shape, x.dtype, sharding)),
        ("shape", str(x.shape)),
        ("bytes", format_nbytes(x.nbytes)),
        ("team", repr(x.team)),
        ("device", x.device),
        ("layout", str(x.layout)),
        ("placed", "not yet" if sharding is None else f"{sharding.n_tiles} tiles"),
    ]
    drawing = "" if sharding is None or not x.ndim else sharding_svg(x.shape, sharding, x.dtype)
    return f'<div style="display:flex;gap:1em">{html_table(("array", ""), rows)}{drawing}</div>'


def visualize_sharding(x: Handle) -> str:
    """Return the grid of tiles as text: which member holds which. Plans what is pending; computes nothing."""
    from distarray.diagnostics import draw

    return draw.visualize_sharding(x.shape, x.sharding)
