"""Listening to numpy: which floating point events a computation met that the user's call waits for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import Context
from functools import partial
from typing import Any

import numpy as np

from distarray.expr.errstates import EVENTS, errstate, mode_of, text_of
from distarray.expr.expr import user_frame
from distarray.kernels.reporting import report

#: In which order numpy looks for events after a call.
_ORDER = {kind: n for n, kind in enumerate(EVENTS)}


class Listener:
    """A Listener hears of every floating point event of what it runs, one computation at a time.

    It runs in a context (`contextvars`) of its own, in which numpy has the state for that. So no interrupt can leave
    that state in the user's thread, and none is set and put back, which takes longer than the arithmetic. Each
    computation has a copy of it, since a handler of signals may set another state there.

    Attributes
    ----------
    now
        What is computed now.
    """

    __slots__ = ("_context", "_met", "now")

    def __init__(self) -> None:
        self._met: list[tuple[str, Any]] = []
        self.now: Any = None
        self._context = Context()
        self._context.run(self._listen)

    def _listen(self) -> None:
        np.seterrcall(self)
        np.seterr(all="call")

    def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Return what a function returns."""
        return self._context.copy().run(function, *args)

    def __call__(self, kind: str, _flag: int) -> None:
        self._met.append((kind, self.now))

    def heard(self) -> list[tuple[str, Any]]:
        """Return what was heard, each event with what was computed, and be free for another computation. Events while
        nothing was computed are those of finalizers, which may run anywhere.
        """
        met = self._met
        if met:
            self._met = []
            met = [event for event in met if event[1] is not None]
        self.now = None
        _free.append(self)
        return met


#: Listeners that nobody uses; one whose computation failed is not used again.
_free: list[Listener] = []


def listener() -> Listener:
    """Return one that nobody uses."""
    try:
        return _free.pop()
    except IndexError:
        return Listener()


def heard(function: Callable[..., Any], args: Sequence[Any]) -> tuple[Any, Sequence[str]]:
    """Return what a function of blocks gives where the user's code calls it, and the kinds of the floating point events
    that were met; numpy's state of the call says what becomes of these, and is asked only where there are any.
    """
    try:  # as `listener`, `Listener.run` and `Listener.heard`: every operation on small arrays comes by
        hearing = _free.pop()
    except IndexError:
        hearing = Listener()
    # A ufunc runs no code in which a handler could be called, but where events are met.
    context = hearing._context if type(function) is np.ufunc else hearing._context.copy()
    value = context.run(function, *args)
    if hearing._met:
        return value, [kind for kind, _ in hearing._met]
    _free.append(hearing)
    return value, ()


def tell(met: Sequence[str], name: str) -> Callable[[], None] | None:
    """Return what warns of floating point events of a function, if numpy's state of this thread says so.

    Raises
    ------
    FloatingPointError
        If it says so.
    """
    state = errstate()
    told = []
    # As one call of numpy's has them, in whatever order several threads met them.
    for kind in sorted(met, key=lambda kind: _ORDER.get(kind, len(_ORDER))):
        mode = mode_of(kind, state)
        if mode == "raise":
            raise FloatingPointError(text_of(kind, name))
        if mode != "ignore":
            told.append((kind, name))
    return partial(report, told, [(name, user_frame(), state)], is_call=True) if told else None
