"""Products of windows: sums of products of every window of an array with another array, of which no window is made.

A convolution, a weighted moving average and a filter of an image are such products. As a contraction of the view of all
windows (`ops.sliding`) they would need these, which are as many times the array as a window has elements. Here a tile
reads its part of the array and a halo behind it, and looks at that through a view.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from distarray.expr.bind import bind
from distarray.expr.expr import Expr
from distarray.expr.op import declare
from distarray.expr.params import Labels, WindowProductParams
from distarray.ops.sliding import SLIDING
from distarray.types import DType

#: params: `WindowProductParams`
WINDOW_PRODUCT = declare("window_product", "block")
#: params: (rule, how many elements before one its own result needs)
CONVOLUTION = declare("convolution", "block")


def with_windows(
    nodes: Sequence[Expr], labels: Sequence[Labels], result: Labels, dtype: DType, known_as: str
) -> Expr | None:
    """Return the sum of products of two operands if one is a view of windows that slide along axes of the result;
    otherwise None.

    Parameters
    ----------
    labels
        Of each operand: each in both or in the result. The axes within a window are the last ones.
    known_as
        The function of numpy that tells of floating-point events.
    """

    def is_read(node: Expr, own: Labels) -> bool:
        is_pending = node.op is SLIDING and node.memo is None and node.dtype.kind in "biufc"
        return is_pending and all(own[axis] in result for axis in node.params.axes)

    i = next((i for i, (node, own) in enumerate(zip(nodes, labels)) if is_read(node, own)), None)
    if i is None:
        return None
    node, sliding = nodes[i], nodes[i].params
    (x,), other, own, others = node.nodes(), nodes[1 - i], labels[i], labels[1 - i]
    extents = dict(zip(others, other.shape, strict=True))
    shown = [n - sum([w - 1 for w, a in zip(sliding.window, sliding.axes) if a == i]) for i, n in enumerate(x.shape)]
    extents |= dict(zip(own, (*shown, *sliding.window), strict=True))
    terms = [
        [f"l{label}+{n - e}" if n > e else f"l{label}" for label, n, e in zip(own, x.shape, shown)],
        [f"l{label}" for label in others],
    ]
    whole = [label for label in extents if label in own[x.ndim :] or label not in result]
    rule = f"{', '.join(' '.join(term) or '()' for term in terms)} -> {' '.join([f'l{label}' for label in result])}"
    if whole:
        rule += " | " + ", ".join([f"l{label}: whole" for label in whole])
    params = WindowProductParams(rule, sliding.window, sliding.axes, (own, others), result, dtype.str, known_as)
    return bind(WINDOW_PRODUCT, (x, other), tuple([extents[label] for label in result]), dtype, params)


def convolution(x: Expr, row: Expr, mode: str) -> Expr:
    """Return the convolution of a vector with one that is not longer, as `numpy.convolve` has it in each mode; the row
    is whole at every place.
    """
    more = row.size - 1
    before = {"full": more, "same": more - more // 2, "valid": 0}[mode]
    size = x.size + {"full": more, "same": 0, "valid": -more}[mode]
    dtype = np.convolve(np.zeros(1, x.dtype), np.zeros(1, row.dtype)).dtype
    rule = f"i-{before}+{more - before}, j -> i | j: whole"
    return bind(CONVOLUTION, (x, row), (size,), dtype, (rule, before))
