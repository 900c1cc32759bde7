"""Kernels in parts: what is made of some blocks, along one loop, by every thread that is free (`threads`)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from distarray.kernels.backends import NUMPY
from distarray.kernels.specs import Array, Parting
from distarray.kernels.threads import run_along


def filled(
    parting: Parting | None, blocks: Sequence[Array], kernel: Callable[[Sequence[Array], Array], None], out: Array
) -> Array:
    """Return `out`, which a kernel has filled with what it makes of some blocks; for `parting` see `in_parts`."""
    if parting is None:
        kernel(blocks, out)
        return out

    def part(begin: int, end: int) -> None:
        kernel(_here(parting, blocks, begin, end), _cut(out, parting.results[0], slice(begin, end)))

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
    extent = next(b.shape[axis] for b, axis in zip(blocks, parting.operands, strict=True) if axis >= 0)
    joined = _JoinedParts(extent, parting.results)

    def part(begin: int, end: int) -> None:
        joined.put(slice(begin, end), kernel(_here(parting, blocks, begin, end)))

    run_along(extent, parting.n, part)
    return joined.blocks[0] if len(joined.blocks) == 1 else tuple(joined.blocks)


def _here(parting: Parting, blocks: Sequence[Array], begin: int, end: int) -> list[Array]:
    """Return what a part of the loop needs of some blocks."""
    reach = parting.reach or (0,) * len(blocks)
    return [
        _cut(b, axis, slice(begin, end + more)) for b, axis, more in zip(blocks, parting.operands, reach, strict=True)
    ]


def _cut(block: Array, axis: int, place: slice) -> Array:
    return block if axis < 0 else block[(*[slice(None)] * axis, place)]


class _JoinedParts:
    """A _JoinedParts joins the blocks of parts to whole ones, each as soon as it is there.

    Parameters
    ----------
    extent
        Of the loop that is cut.
    axes
        By result the axis along which it runs.
    """

    def __init__(self, extent: int, axes: Sequence[int]) -> None:
        self._extent = extent
        self._axes = axes
        self._lock = threading.Lock()
        self.blocks: list[Array] = []

    def put(self, place: slice, made: Any) -> None:
        """Take what a part gives, a block or several; from any thread."""
        blocks = made if isinstance(made, tuple) else (made,)
        with self._lock:
            if not self.blocks:
                for block, axis in zip(blocks, self._axes, strict=True):
                    shape = (*block.shape[:axis], self._extent, *block.shape[axis + 1 :])
                    self.blocks.append(NUMPY.empty(shape, block.dtype, NUMPY.layout_of(block)))
        for whole, block, axis in zip(self.blocks, blocks, self._axes, strict=True):
            _cut(whole, axis, place)[...] = block
