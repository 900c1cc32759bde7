"""Kernels of bits: eight truth values in a byte, and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from distarray.kernels.namespaces import Block, Namespace, Params, placed


def _weights(xp: Namespace, like: Block, bitorder: str) -> Block:
    """Return what each bit of a byte counts: the first one is the ``big``-gest or the ``little``-st."""
    bits = range(8) if bitorder == "little" else reversed(range(8))
    return xp.asarray([1 << bit for bit in bits], dtype=xp.uint8, **placed(xp, like))


def _packbits(xp: Namespace, x: Block, *, params: Params) -> Block:
    """Return the last axis, eight truth values, as one byte; params: (order of the bits,)."""
    (bitorder,) = params
    if xp is np:
        return np.packbits(x.reshape(-1), bitorder=bitorder).reshape(x.shape[:-1])
    return xp.sum(xp.astype(x, xp.uint8) * _weights(xp, x, bitorder), axis=-1, dtype=xp.uint8)


def _unpackbits(xp: Namespace, x: Block, *, params: Params) -> Block:
    """Return the bits of each byte along a new last axis, as zeros and ones; params: (order of the bits,)."""
    (bitorder,) = params
    if xp is np:
        return np.unpackbits(x.reshape(-1), bitorder=bitorder).reshape(*x.shape, 8)
    return xp.astype((x[..., None] & _weights(xp, x, bitorder)) != 0, xp.uint8)


#: As `tables.BLOCK`: ``(xp, *blocks, params=params) -> block``.
BLOCK: dict[str, Callable[..., Any]] = {"packbits": _packbits, "unpackbits": _unpackbits}
