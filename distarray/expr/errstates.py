"""numpy's floating-point state as nodes keep it: what becomes of an event is said where the operation is called.

A state is the modes for (divide, over, under, invalid); None is numpy's default. A mode that calls a function or writes
to a log also says which one of this process, so that it can travel: ``"call 3"``.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from itertools import count
from typing import Any, TypeAlias

import numpy as np

from distarray.errors import warn_user
from distarray.types import DType

ErrState: TypeAlias = tuple[str, ...] | None

#: What numpy calls events, and the keys of its state.
EVENTS = {"divide by zero": "divide", "overflow": "over", "underflow": "under", "invalid value": "invalid"}
_KEYS = tuple(EVENTS.values())
#: Between an event and the function that met it, in what numpy says.
IN = " encountered in "
_DEFAULT = ("warn", "warn", "ignore", "warn")
_DEFAULT_STATE = dict(zip(_KEYS, _DEFAULT, strict=True))

#: By number, the functions and logs that users gave to numpy, the last ones of them.
_handlers: OrderedDict[int, Any] = OrderedDict()
_MOST_HANDLERS = 100
_numbers = count()


def errstate() -> ErrState:
    """Return numpy's floating-point state of this thread."""
    state: Mapping[str, Any] = np.geterr()
    if state == _DEFAULT_STATE:
        return None
    modes = [state[key] for key in _KEYS]
    if "call" in modes or "log" in modes:
        number = _number_of(np.geterrcall())
        modes = [f"{mode} {number}" if mode in ("call", "log") else mode for mode in modes]
    return tuple(modes)


def is_heard_at_once(state: ErrState) -> bool:
    """Return whether an event of some kind raises in a state, or calls something of the user's."""
    return state is not None and any(mode not in ("ignore", "warn", "print") for mode in state)


def _number_of(handler: Any) -> int:
    for number, known in list(_handlers.items()):  # other threads add to them
        if known is handler:
            return number
    if len(_handlers) >= _MOST_HANDLERS:
        _handlers.popitem(last=False)
    number = next(_numbers)
    _handlers[number] = handler
    return number


def mode_of(kind: str, state: ErrState) -> str:
    """Return what is to be done of an event in a state; of what is none of numpy's events, to warn of it.

    >>> mode_of("underflow", None), mode_of("overflow encountered in cast", None), mode_of("Mean of empty slice", None)
    ('ignore', 'warn', 'warn')
    """
    key = EVENTS.get(kind.partition(IN)[0])
    return "warn" if key is None else (state or _DEFAULT)[_KEYS.index(key)]


#: By name of an operation, how numpy calls what it does.
_NUMPYS = {
    "accumulate_in_order": "accumulate",
    "linspace": "cast",
    "put": "cast",
    "reduce_in_order": "reduce",
    "reduceat_in_order": "reduceat",
    "set": "cast",
    "tile_scan": "accumulate",
    "tile_segments": "reduceat",
    "tile_totals": "accumulate",
}


def text_of(kind: str, function: str) -> str:
    """Return what numpy says of an event, which may be said already."""
    return f"{kind}{IN}{_NUMPYS.get(function, function)}" if kind in EVENTS else kind


def divide_by_zero(x: float, name: str) -> None:
    """Do what numpy does where it divides a number by 0 by a function of this name, at the user's line."""
    kind = "divide by zero" if x else "invalid value"
    if mode_of(kind, errstate()) == "warn":
        warn_user(text_of(kind, name))
    elif name == "divide":
        np.divide(np.full(1, x), 0)
    else:
        np.float64(x) / 0


def quotient_name(ndim: int, dtype: DType) -> str:
    """Return what numpy calls the division of a number of `dtype` by a count: its scalars of double divide alone."""
    return "divide" if ndim or dtype.char not in "dDlq" else "scalar divide"


def is_heeded(kinds: Iterable[str], state: ErrState) -> bool:
    """Return whether any of some events counts in a state."""
    return any(mode_of(kind, state) != "ignore" for kind in kinds)


@contextmanager
def named(function: str) -> Iterator[None]:
    """Let whoever hears of events know them as those of a function of numpy, where it is none that they know of."""
    call = np.geterrcall()
    if not callable(call):
        yield
        return
    with np.errstate(call=lambda kind, flag: call(text_of(kind, function), flag)):
        yield


def say(text: str) -> None:
    """Let whoever hears of events warn of what numpy's functions in Python warn of when they see the elements."""
    call = np.geterrcall()
    if callable(call):
        call(text, 0)


def handler_of(mode: str) -> Any:
    """Return the function, or the log, of a mode that says which; None if it is not known any more."""
    return _handlers.get(int(mode.split()[1]))


def modes_to_hear(states: Iterable[ErrState]) -> Mapping[str, Any]:
    """Return the state in which numpy calls back of every event that counts in one of several states.

    Also where it is to raise: it would name the function that a kernel happens to call.
    """
    return _modes_to_hear(frozenset(states) or frozenset((None,)))


@lru_cache(maxsize=256)
def _modes_to_hear(states: frozenset[ErrState]) -> Mapping[str, Any]:
    found = [state or _DEFAULT for state in states]
    counting = [any(mode != "ignore" for mode in modes) for modes in zip(*found, strict=True)]
    return {key: "call" if counts else "ignore" for key, counts in zip(_KEYS, counting, strict=True)}
