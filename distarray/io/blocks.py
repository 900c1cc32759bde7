"""Writers: a function called with each block of several arrays, where the block lies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from distarray.array import window
from distarray.array.array import DistArray
from distarray.expr.expr import Expr, postorder
from distarray.runtime import exports, small
from distarray.runtime.retention import streams

__all__ = ["Boxes", "for_each_block"]

#: Arguments of the function for a box: (start, stop) per axis.
Boxes = Callable[[tuple[tuple[int, int], ...]], tuple[Any, ...]]


def for_each_block(arrays: Sequence[DistArray], function: Callable[..., Any], arguments: Sequence[Boxes]) -> None:
    """Call a function with each block of arrays, and wait until all calls are over.

    Pending arrays are computed together, what they share once; one that does not fit in memory is computed block by
    block for its calls, and not kept. See `exports.for_each_block`.

    Parameters
    ----------
    arguments
        Of each array: what the function gets beside the block, by its box.
    """
    nodes = [x.__dx_node__() for x in arrays]
    window.observe([node for node in nodes if node.memo is None and not _streams(node)])
    for node, own in zip(nodes, arguments, strict=True):
        exports.for_each_block(node, function, own)


def _streams(node: Expr) -> bool:
    return streams(node) and not small.is_small(postorder([node]), node.env)
