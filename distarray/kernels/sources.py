"""Blocks read from, and written to, arrays of other libraries that take a tuple of slices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from distarray.kernels.devices import backend_for

__all__ = ["CREATE", "write_part"]

Block = Any  # of any backend
Bounds = Sequence[tuple[int, int]]


def _read_source(backend: Any, box: Bounds, shape: tuple[int, ...], dtype: Any, params: Any, runtime: Any) -> Block:
    host_backend = backend if backend.xp is np else backend_for("cpu")
    extents = tuple([hi - lo for lo, hi in box])
    out = host_backend.empty(extents, dtype)
    if 0 not in extents:
        part = np.asarray(runtime[tuple([slice(lo, hi) for lo, hi in box])])
        if part.shape != extents:
            raise ValueError(f"{type(runtime).__name__} gave {part.shape} for a part of {extents} of an array {shape}")
        out[...] = part
    return backend.adopt(out)


def write_part(
    block: Block,
    target: Any,
    slices: tuple[slice, ...],
    lock: AbstractContextManager[Any] | None,
    device: str,
    member: int,
) -> None:
    """Write the block of a tile into its part of a target that takes slices. Doing it again changes nothing.

    Parameters
    ----------
    lock
        Held while the target is written to; None if it takes several writers.
    """
    host = backend_for(device, member).to_host(block)
    with lock or nullcontext():
        target[slices] = host


#: As `tables.CREATE`.
CREATE: dict[str, Callable[..., Block]] = {"read_source": _read_source}
