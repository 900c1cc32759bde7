"""Floating-point events: what numpy would warn of, print, log or call, at the user's line, in the user's process, each
once.

Tasks say what they met (`report`). In process an evaluation gathers it and gives the warnings at its end, in the thread
that asked; what is computed at the call warns there. A Dask worker sends it to the client, which gives the warning when
it arrives; once, however many tiles of an evaluation met the event.
"""

from __future__ import annotations

import sys
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar, copy_context
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from distarray.expr.errstates import EVENTS, IN, ErrState, handler_of, mode_of, modes_to_hear, text_of
from distarray.lazy import loaded

if TYPE_CHECKING:
    from distarray.kernels.outcomes import FloatingPointEvent

#: Topic under which workers send what their tasks met.
TOPIC = "distarray-warning"

#: Text, file, line, kind of the event, mode.
_Warning: TypeAlias = tuple[str, str, int, str, str]
#: An operation, its `Origin`, and numpy's floating-point state there.
Source: TypeAlias = tuple[str, Any, ErrState]
#: Its kind and the function that met it, or what a program says of it.
Event: TypeAlias = "tuple[str, str] | FloatingPointEvent"

#: Of the evaluation that this thread runs, or helps to run, in order; None outside of evaluations.
_gathered: ContextVar[dict[_Warning, None] | None] = ContextVar("gathered", default=None)
#: What Python keeps per module, so that its default filter shows a warning once per line.
_registries: dict[str, dict[Any, Any]] = {}
#: (operation of an evaluation, warning): the latest that came from workers.
_seen: OrderedDict[tuple[str, _Warning], None] = OrderedDict()
_MAX_SEEN = 1000
#: What numpy tells a function that it calls for an event.
_FLAGS = {kind: 1 << i for i, kind in enumerate(EVENTS)}


def report(events: Iterable[Event], where: Sequence[Source], *, is_call: bool = False) -> None:
    """Do of floating-point events what numpy does in the state of the operation, naming the user's line.

    Parameters
    ----------
    events
        What was met.
    where
        The operations that may have caused them. An event that says which it was, is that one's. Of the others the
        first of that name counts, in whose state it is not ignored; if none has the name, the last of all.
    is_call
        Whether this is the user's call, and no part of an evaluation, which other threads may have under way.

    Raises
    ------
    FloatingPointError
        If numpy raises it.
    """
    for kind, function, *number in dict.fromkeys(events):
        told = among(where, *number)
        named = [w for w in told if w[0] == function or _same_function(w[0], function)]
        heeding = [w for w in named or reversed(told) if mode_of(kind, w[2]) != "ignore"]
        if not heeding:
            continue
        _, origin, state = heeding[0]
        text, mode = text_of(kind, function), mode_of(kind, state)
        if mode == "raise":
            raise FloatingPointError(text)
        kind = text.partition(IN)[0]
        file, line = ("<unknown>", 0) if origin is None else origin.line
        _told((text, file, line, kind, mode), is_call=is_call)


def among(where: Sequence[Source], number: int = ~0) -> Sequence[Source]:
    """Return the operations of which one is the instruction or reduction of a program of this number (see `Called`)."""
    return (where[~number:] if number < 0 else where[number : number + 1]) or where


def _same_function(name: str, function: str) -> bool:
    from distarray.kernels.elementwise import event_name

    try:
        return event_name(name) == function
    except ValueError:
        return False


class hearing:  # as `np.errstate`
    """Hear of the events of what runs inside, in one of these operations, and report them as those of a function."""

    __slots__ = ("_met", "_state", "_where")

    def __init__(self, name: str, where: Sequence[Source]) -> None:
        met: dict[tuple[str, str], None] = {}

        def note(kind: str, _flag: int) -> None:
            met[kind, name] = None

        self._met, self._where = met, where
        self._state: Any = np.errstate(call=note, **modes_to_hear([state for _, _, state in where]))

    def __enter__(self) -> None:
        self._state.__enter__()

    def __exit__(self, kind: object, *error: object) -> None:
        self._state.__exit__(kind, *error)
        if self._met and kind is None:
            report(self._met, self._where)


def _told(warning: _Warning, *, is_call: bool) -> None:
    """Give a warning in the process of the user; for `is_call` see `report`."""
    worker_module = loaded("distributed.worker")
    if worker_module is not None:
        try:
            worker = worker_module.get_worker()
        except ValueError:
            pass
        else:
            # The first part of a key names the operation and the evaluation; the rest names the tile.
            key = worker.get_current_task()
            worker.log_event(TOPIC, [str(key[0] if isinstance(key, tuple) else key), *warning])
            return
    gathered = _gathered.get()
    if gathered is not None and not is_call:
        gathered[warning] = None
    else:
        _give(warning)


def received(event: tuple[float, Any]) -> None:
    """Give a warning that a worker sent; the handler of `TOPIC`."""
    name, *said = event[1]
    key = name, tuple(said)
    if key not in _seen:
        _seen[key] = None
        if len(_seen) > _MAX_SEEN:
            _seen.popitem(last=False)
        _give(key[1])


def gathering(function: Callable[..., None], *args: Any) -> None:
    """Call a function in a context of its own, and give the warnings of all kernels that it runs at its end, each once,
    in this thread; part of another such call, leave them to that.

    Not before all is committed: where warnings are errors, a write in place that warned is done nevertheless.
    """
    context = copy_context()
    found: dict[_Warning, None] = {}
    if _gathered.get() is None:
        context.run(_gathered.set, found)  # not in the caller's context, where an interrupt could leave it
    context.run(function, *args)
    for warning in found:
        _give(warning)


def _give(warning: _Warning) -> None:
    text, file, line, kind, mode = warning
    if mode == "warn":
        warnings.warn_explicit(text, RuntimeWarning, file, line, registry=_registries.setdefault(file, {}))
    elif mode == "print":
        sys.stderr.write(f"Warning: {text}\n")
    elif (handler := handler_of(mode)) is None:
        raise NameError(f"python callback specified for {text} but no function found.")
    elif mode.startswith("call"):
        handler(kind, _FLAGS[kind])
    else:
        handler.write(f"Warning: {text}\n")
