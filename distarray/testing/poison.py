"""Memory that nobody has written, made visible: every buffer that is lent or allocated comes full of a pattern."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np

from distarray.kernels.buffers import POOL

__all__ = ["poisoned_buffers"]

#: What numbers other than floats are filled with, byte by byte: large, odd, and of neither sign's extreme.
BYTE = 0xA5


@contextmanager
def poisoned_buffers() -> Iterator[None]:
    """Fill all memory of this process that is handed out uninitialised inside, fresh or recycled, with a pattern.

    Floats and complex numbers are nan, booleans alternate, all else has the bytes 0xA5. A result with an element that
    nobody wrote is then no copy of the right one that happened to lie there before. For all threads of the process.
    """
    empty, empty_like, take = np.empty, np.empty_like, POOL.take

    def poisoned_take(*args: Any, **kwargs: Any) -> Any:
        return _fill(take(*args, **kwargs))

    def poisoned_empty(*args: Any, **kwargs: Any) -> Any:
        return _fill(empty(*args, **kwargs))

    def poisoned_empty_like(*args: Any, **kwargs: Any) -> Any:
        return _fill(empty_like(*args, **kwargs))

    with (
        mock.patch.object(POOL, "take", poisoned_take),
        mock.patch.object(np, "empty", poisoned_empty),
        mock.patch.object(np, "empty_like", poisoned_empty_like),
    ):
        yield


def _fill(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the array, every element of which is the pattern."""
    kind = array.dtype.kind
    if kind in "fc":
        array.fill(complex(np.nan, np.nan) if kind == "c" else np.nan)
    elif kind == "b":
        array.fill(True)
        array.ravel(order="K")[::2] = False
    elif kind in "iumM":
        array.fill(np.frombuffer(bytes([BYTE] * array.itemsize), array.dtype)[0])
    return array
