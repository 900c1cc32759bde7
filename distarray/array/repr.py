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
    """Return one line: type, team, device; and the value of a number that is known.

    ``DistArray(f64[8192{R}16384, 4096{C}16384], team=Team(R=2, C=4), device="cpu")``
    """
    name = type(x).__name__
    if x._base.expr is None:
        return f"{name}(deleted)"
    sharding, value = _sharding(x), _known_number(x)
    where = "" if sharding is not None or x.team is None or value else ", not yet placed"
    return f'{name}({format_type(x.shape, x.dtype, sharding)}{value}, team={x.team!r}, device="{x.device}"{where})'


def _known_number(x: Handle) -> str:
    """Return `` = 3`` of an array without axes whose value is here, since tuples and lists show the repr of numbers."""
    known = None if x.ndim else x._here()
    return "" if known is None else f" = {known[()]}"


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
    from distarray.tables import format_nbytes, html_table

    if x._base.expr is None:
        return f"<pre>{escape(describe(x))}</pre>"
    sharding = _sharding(x)
    rows = [
        ("type", format_type(x.shape, x.dtype, sharding) + _known_number(x)),
        ("shape", str(x.shape)),
        ("bytes", format_nbytes(x.nbytes)),
        ("team", repr(x.team)),
        ("device", x.device),
        ("layout", str(x.layout)),
        ("placed", "not yet" if sharding is None else f"{sharding.n_tiles} tile{'s' * (sharding.n_tiles != 1)}"),
    ]
    drawing = "" if sharding is None or not x.ndim else sharding_svg(x.shape, sharding, x.dtype)
    return f'<div style="display:flex;align-items:flex-start;gap:1em">{html_table(("array", ""), rows)}{drawing}</div>'


def visualize_sharding(x: Handle) -> str:
    """Return the grid of tiles: which member holds which. Plans what is pending; computes nothing.

    It is text, which a console shows as `print` does, and a notebook as a picture.
    """
    from distarray.diagnostics import draw

    drawing = draw.Drawing(draw.visualize_sharding(x.shape, x.sharding))
    drawing.svg = draw.sharding_svg(x.shape, x.sharding, x.dtype)
    return drawing
