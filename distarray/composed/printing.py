"""The values of an array as text, exactly as numpy prints them; of a large one only the corners are computed."""

from __future__ import annotations

import re
from itertools import product
from typing import Any

import numpy as np

from distarray import config
from distarray.array import window
from distarray.array.array import DistArray
from distarray.composed.views import as_distarray
from distarray.expr.pushdown import narrowed
from distarray.runtime import observations
from distarray.types import HostArray


def array2string(
    a: Any,
    max_line_width: int | None = None,
    precision: int | None = None,
    suppress_small: bool | None = None,
    separator: str = " ",
    prefix: str = "",
    *,
    threshold: int | None = None,
    edgeitems: int | None = None,
    **style: Any,  # formatter, sign, floatmode, suffix, legacy
) -> str:
    """Return the values of an array as numpy prints them, the options of numpy's for this one text."""
    small, limits = _shown(as_distarray(a), threshold, edgeitems)
    options = limits | style
    return str(np.array2string(small, max_line_width, precision, suppress_small, separator, prefix, **options))


def array_str(
    a: Any, max_line_width: int | None = None, precision: int | None = None, suppress_small: bool | None = None
) -> str:
    """Return the values of an array as ``print`` shows them."""
    x = as_distarray(a)
    if not x.ndim:
        return str(np.array_str(x._host(), max_line_width, precision, suppress_small))
    return array2string(x, max_line_width, precision, suppress_small)


def array_repr(
    arr: Any, max_line_width: int | None = None, precision: int | None = None, suppress_small: bool | None = None
) -> str:
    """Return the values of an array as numpy's ``repr`` shows them; for what distarray says of an array see
    ``repr(x)``.
    """
    x = as_distarray(arr)
    small, limits = _shown(x, None, None)
    if small.shape == x.shape:
        return str(np.array_repr(small, max_line_width, precision, suppress_small))
    values = np.array2string(small, max_line_width, precision, suppress_small, ", ", "array(", suffix=")", **limits)
    # Shape and dtype, where numpy would say them: asked of it for an array of that shape without memory.
    dummy = np.array_repr(np.broadcast_to(np.zeros((), x.dtype), x.shape), max_line_width)
    found = re.search(r"\],\s+((?:shape|dtype)=.*\))$", dummy, re.DOTALL)
    if found is None:
        return f"array({values})"
    extra = found[1]
    width = np.get_printoptions()["linewidth"] if max_line_width is None else max_line_width
    text = f"array({values},"
    room = width - len(text.rpartition("\n")[2]) - len(extra) - 1
    return text + (" " if room >= 0 else "\n" + " " * len("array(")) + extra


# -------------------------------------------------------------------------------------------------- corners


def _shown(x: DistArray, threshold: int | None, edgeitems: int | None) -> tuple[HostArray, dict[str, Any]]:
    """Return the elements that numpy prints, and the options by which it prints them as a part."""
    options = np.get_printoptions()
    limit = options["threshold"] if threshold is None else threshold
    edge: int = options["edgeitems"] if edgeitems is None else edgeitems
    if x.size <= limit or all(n <= 2 * edge for n in x.shape):
        return x._host(), {"threshold": threshold, "edgeitems": edgeitems}
    # One more element between the edges, never shown, makes numpy print the dots.
    return _with_gaps(_corners(x, edge), x.shape, edge), {"threshold": 0, "edgeitems": edge}


def _corners(x: DistArray, edge: int) -> HostArray:
    """Return the first and last `edge` elements of each long axis, and nothing else computed or kept for it."""
    sides = [(slice(0, edge), slice(n - edge, n)) if n > 2 * edge else (slice(0, n),) for n in x.shape]
    corners = [narrowed(x[at].__dx_node__()) for at in product(*sides)]
    with config.set(retain="none"):  # a live array is not kept whole because its corners are looked at
        window.observe(corners)
    values = [observations.fetch(corner) for corner in corners]
    for axis in reversed(range(x.ndim)):
        n = len(sides[axis])
        values = [np.concatenate(values[k : k + n], axis=axis) for k in range(0, len(values), n)]
    return values[0]


def _with_gaps(corners: HostArray, shape: tuple[int, ...], edge: int) -> HostArray:
    for axis, n in enumerate(shape):
        if n > 2 * edge:
            first = corners[(slice(None),) * axis + (slice(0, 1),)]
            low, high = np.split(corners, [edge], axis=axis)
            corners = np.concatenate([low, first, high], axis=axis)
    return corners
