"""Bits of bytes: eight truth values in each, and back."""

from __future__ import annotations

import numpy as np

from distarray.expr.bind import bind
from distarray.expr.op import declare
from distarray.ops.families import Array, one_array

#: params: (order of the bits,)
PACKBITS = declare("packbits", "block", rule="... i b -> ... i | b: whole")
UNPACKBITS = declare("unpackbits", "block", rule="... i -> ... i b | b: new(8)")


def packed_bits(x: Array, bitorder: str) -> Array:
    """Return the last axis of truth values, eight of them, as one byte."""
    node, box = one_array("packbits", x)
    return box(bind(PACKBITS, (node,), node.shape[:-1], np.dtype(np.uint8), (bitorder,)))


def unpacked_bits(x: Array, bitorder: str) -> Array:
    """Return the bits of each byte along a new last axis, as zeros and ones."""
    node, box = one_array("unpackbits", x)
    return box(bind(UNPACKBITS, (node,), (*node.shape, 8), node.dtype, (bitorder,)))
