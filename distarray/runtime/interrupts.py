"""Signals beside writes in place: they come before these begin or after they are committed, never between.

A write that takes over the block of an evaluated array destroys what would be needed to try again. Everything else that
an evaluation does is functional, and may be interrupted anywhere. So Ctrl-C waits, and so do the signals by which other
programs raise: alarms of time limits, requests to end.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # what `signal` wraps; that takes ten times as long
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

#: Signals whose handlers may raise in the main thread.
_SIGNALS = tuple(
    [
        int(getattr(signal, name))
        for name in ("SIGINT", "SIGALRM", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGVTALRM", "SIGPROF")
        if hasattr(signal, name)
    ]
)


@contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Let signals that have handlers wait for the end of a block; a few microseconds, in the main thread."""
    # Only the main thread runs handlers, and only it may set them.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: dict[int, Any] = {}
    try:
        with ExitStack() as handlers:  # all are set back, whatever one of them raises meanwhile
            for number in _SIGNALS:
                handler = _signal.getsignal(number)
                if callable(handler):
                    handlers.callback(_signal.signal, number, handler)
                    _signal.signal(number, came.__setitem__)
            yield
    finally:
        _deliver(list(came))


def _deliver(numbers: list[int]) -> None:
    """Send all of some signals, whatever their handlers raise; without a variable that would keep what they raise."""
    if numbers:
        try:
            signal.raise_signal(numbers[0])
        finally:
            _deliver(numbers[1:])
