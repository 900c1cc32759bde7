"""Bits of bytes: eight truth values in each, and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from distarray.arguments import MAX_COUNT, choice, integer, refuse_loose_axis
from distarray.array.array import DistArray
from distarray.composed.views import along, as_distarray, moveaxis
from distarray.ops import bits, padding
from distarray.ops.families import by_numpy
from distarray.types import HostArray


@by_numpy(np.packbits)
def packbits(a: Any, /, axis: int | None = None, bitorder: str = "big") -> DistArray:
    """Return truth values as bits of bytes, eight along `axis` in each, of the flattened array by default; zeros at the
    end.

    `bitorder` says whether the first one is the ``big``-gest bit of its byte or the ``little``-st.
    """
    x = as_distarray(a)
    if x.dtype.kind not in "biu":
        raise TypeError("Expected an input array of integer or boolean data type")
    refuse_loose_axis(axis)
    x, axis = along(x, axis)
    x = moveaxis(x, axis, -1)
    choice(bitorder, ("big", "little"), "bitorder")
    n = x.shape[-1]
    truths = x if x.dtype == bool else x != 0
    if n % 8:
        truths = padding.pad(truths, [(0, 0)] * (x.ndim - 1) + [(0, -n % 8)])
    packed = bits.packed_bits(truths.reshape((*x.shape[:-1], -(-n // 8), 8)), bitorder)
    return moveaxis(packed, -1, axis)


def _bits_nbytes(a: HostArray, /, axis: int | None = None, count: int | None = None, bitorder: str = "big") -> int:
    """Return the bytes of as many bits as bytes have, or as are asked for; of nothing too many, since numpy leaves what
    was in memory there.
    """
    return max(8 * a.nbytes, a.size * (count or 0)) if a.size else MAX_COUNT


@by_numpy(np.unpackbits, _bits_nbytes)
def unpackbits(a: Any, /, axis: int | None = None, count: int | None = None, bitorder: str = "big") -> DistArray:
    """Return the bits of bytes as zeros and ones along `axis`, of the flattened array by default: the inverse of
    `packbits`.

    `count` is how many there are: less than all, a negative number of those left out, or more, which are zeros.
    """
    x = as_distarray(a)
    if x.dtype != np.uint8:
        raise TypeError("Expected an input array of unsigned byte data type")
    refuse_loose_axis(axis)
    x, axis = along(x, axis)
    x = moveaxis(x, axis, -1)
    choice(bitorder, ("big", "little"), "bitorder")
    n = 8 * x.shape[-1]
    found = bits.unpacked_bits(x, bitorder).reshape((*x.shape[:-1], n))
    if count is not None:
        count = integer(count, "count")
        if count > MAX_COUNT:
            raise OverflowError(f"count={count} is too large")
        if count < -n:
            raise ValueError(f"-count ({count}) is larger than the number of bits ({n})")
        wanted = count if count >= 0 else n + count
        found = padding.pad(found[..., :wanted], [(0, 0)] * (x.ndim - 1) + [(0, max(wanted - n, 0))])
    return moveaxis(found, -1, axis)
