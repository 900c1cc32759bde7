"""Kernels in parts: what is made of some blocks, along one loop, by every thread that is free (`threads`)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from distarray.kernels.backends import NUMPY
from distarray.kernels.specs import Array, Parting
from distarray.kernels.threads import run_along


def filled(
    parting: Parting | None,
    blocks: Sequence[Array],
    kernel: Callable[[Sequence[Array], Array, int], None],
    out: Array,
    offset: Sequence[int] = (),
) -> Array:
    """Return `out`, which a kernel has filled with what it makes of some blocks.

    Parameters
    ----------
    parting
        See `in_parts`.
    kernel
        Takes the blocks, where they go, and where that begins along the loop that is cut; along the first one if none
        is.
    offset
        Where `out` begins, by loop; 0 if nothing is said.
    """
    if parting is None:
        kernel(blocks, out, offset[0] if offset else 0)
        return out
    start = offset[parting.loop] if offset else 0

    def part(begin: int, end: int) -> None:
        here = _parts_of(parting, blocks, start, range(start + begin, start + end))
        kernel(here, _cut(out, parting.results[0], slice(begin, end)), start + begin)

    run_along(out.shape[parting.results[0]], parting.n, part)
    return out


def in_parts(parting: Parting | None, blocks: Sequence[Array], kernel: Callable[[Sequence[Array]], Any]) -> Any:
    """Return what a kernel gives for some blocks: a block, or a tuple of several.

    Parameters
    ----------
    parting
        How it is computed in parts; None if it is not.
    """
    if parting is None:
        return kernel(blocks)
    assert not parting.halo, "kernels whose operands have halos fill a block"
    extent = next(b.shape[axis] for b, axis in zip(blocks, parting.operands, strict=True) if axis >= 0)
    lock = threading.Lock()
    wholes: list[Array] = []

    def part(begin: int, end: int) -> None:
        made = kernel(_parts_of(parting, blocks, 0, range(begin, end)))
        here = made if isinstance(made, tuple) else (made,)
        with lock:
            if not wholes:
                for block, axis in zip(here, parting.results, strict=True):
                    shape = (*block.shape[:axis], extent, *block.shape[axis + 1 :])
                    wholes.append(NUMPY.empty(shape, block.dtype, NUMPY.layout_of(block)))
        for whole, block, axis in zip(wholes, here, parting.results, strict=True):
            _cut(whole, axis, slice(begin, end))[...] = block

    run_along(extent, parting.n, part)
    return wholes[0] if len(wholes) == 1 else tuple(wholes)


def _parts_of(parting: Parting, blocks: Sequence[Array], start: int, loop: range) -> list[Array]:
    """Return what a part of the loop needs of some blocks, which are those of a tile that begins at `start`."""
    halo = parting.halo or ((0, 0),) * len(blocks)
    found = []
    for block, axis, (before, behind) in zip(blocks, parting.operands, halo, strict=True):
        first = max(0, start - before)  # the element of the axis with which the block begins
        found.append(_cut(block, axis, slice(max(0, loop.start - before) - first, loop.stop + behind - first)))
    return found


def _cut(block: Array, axis: int, place: slice) -> Array:
    return block if axis < 0 else block[(*[slice(None)] * axis, place)]
