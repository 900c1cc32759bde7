"""Copies of blocks to the host, made to raise: proof that kernels stay on their device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from distarray.kernels.backends import is_transport
from distarray.lazy import loaded

__all__ = ["no_host_copies"]

_FORBIDDEN = ("__array__", "__bool__", "__complex__", "__dlpack__", "__float__", "__index__", "__int__", "to_device")


@contextmanager
def no_host_copies() -> Iterator[None]:
    """Make every copy of a block to the host raise, on all threads, unless transport makes it.

    Arrays of array_api_strict then refuse ``float()``, ``int()``, ``bool()``, ``complex()``, indexing by them, DLPack
    and ``to_device``; so do CuPy arrays, and ``cupy.asnumpy``. Used by tests to prove that kernels stay on the device.
    Guards nest; those of two threads must not overlap.
    """
    with ExitStack() as stack:
        for owner, name in _guarded():
            if original := getattr(owner, name, None):
                stack.enter_context(mock.patch.object(owner, name, _refusing(name, original)))
        yield


def _guarded() -> Iterator[tuple[Any, str]]:
    try:
        from array_api_strict._array_object import Array
    except ImportError:
        pass
    else:
        yield from ((Array, name) for name in _FORBIDDEN)
    if (cupy := loaded("cupy")) is not None:
        # Methods of cupy.ndarray cannot be replaced (it is an extension type); this is the door they go through.
        yield cupy, "asnumpy"


def _refusing(name: str, original: Any) -> Any:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        if is_transport():
            return original(*args, **kwargs)
        raise RuntimeError(f"{name} copies a block to the host inside a kernel; only transport may move blocks")

    return refuse
