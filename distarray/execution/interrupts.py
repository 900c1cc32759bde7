"""Ctrl-C beside writes in place: it comes before they begin or after they are committed, never between.

A write that takes over the block of an evaluated array destroys what would be needed to try again. Everything else that
an evaluation does is functional, and may be interrupted anywhere.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["interrupts_deferred"]


@contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Let Ctrl-C wait for the end of a block; a few microseconds."""
    # Only the main thread is interrupted, and only it may set handlers.
    handler = signal.getsignal(signal.SIGINT) if threading.current_thread() is threading.main_thread() else None
    if not callable(handler):
        yield
        return
    came: list[tuple[Any, ...]] = []
    signal.signal(signal.SIGINT, lambda *args: came.append(args))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if came:
            handler(*came[-1])
