"""Floating-point warnings: what numpy would warn of, at the user's line, in the user's process, each once.

Tasks say what they met (`report`). In process an evaluation gathers it and gives the warnings at its end, in the thread
that asked; what is computed at the call warns there. A Dask worker sends it to the client, which gives the warning when
it arrives; once, however many tiles of an evaluation met the event.
"""

from __future__ import annotations

import sys
import warnings
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextvars import ContextVar, copy_context
from typing import Any, TypeAlias

#: Topic under which workers send what their tasks met.
TOPIC = "distarray-warning"

#: Text, file, line.
_Warning: TypeAlias = tuple[str, str, int]

#: Of the evaluation that this thread runs, or helps to run, in order; None outside of evaluations.
_gathered: ContextVar[dict[_Warning, None] | None] = ContextVar("gathered", default=None)
#: What Python keeps per module, so that its default filter shows a warning once per line.
_registries: dict[str, dict[Any, Any]] = {}
#: (operation of an evaluation, warning): the latest that came from workers.
_seen: OrderedDict[tuple[str, _Warning], None] = OrderedDict()
_MAX_SEEN = 1000


def report(events: Sequence[tuple[str, str]], where: Sequence[tuple[str, Any]], *, is_call: bool = False) -> None:
    """Warn of floating point events as numpy does, naming the user's line.

    Parameters
    ----------
    events
        (kind, function) pairs.
    where
        (operation, `Origin`) of the operations that may have caused them.
    is_call
        Whether this is the user's call, and no part of an evaluation, which other threads may have under way.
    """
    for kind, function in dict.fromkeys(events):
        here = next(
            (w for w in where if w[0] == function or _same_function(w[0], function)), where[-1] if where else None
        )
        text = f"{kind} encountered in {function}"
        if here is None:
            warnings.warn(text, RuntimeWarning, stacklevel=2)
        else:
            warn(text, *here[1].line, is_call=is_call)


def _same_function(name: str, function: str) -> bool:
    from distarray.kernels.elementwise import numpy_name

    try:
        return numpy_name(name) == function
    except ValueError:
        return False


def warn(text: str, file: str, line: int, *, is_call: bool = False) -> None:
    """Warn of what a task met, in the process of the user; for `is_call` see `report`."""
    worker_module = sys.modules.get("distributed.worker")
    if worker_module is not None:
        try:
            worker = worker_module.get_worker()
        except ValueError:
            pass
        else:
            # The first part of a key names the operation and the evaluation; the rest names the tile.
            key = worker.get_current_task()
            worker.log_event(TOPIC, [str(key[0] if isinstance(key, tuple) else key), text, file, line])
            return
    gathered = _gathered.get()
    if gathered is not None and not is_call:
        gathered[text, file, line] = None
    else:
        _give((text, file, line))


def received(event: tuple[float, Any]) -> None:
    """Give a warning that a worker sent; the handler of `TOPIC`."""
    name, text, file, line = event[1]
    key = name, (text, file, line)
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
    text, file, line = warning
    warnings.warn_explicit(text, RuntimeWarning, file, line, registry=_registries.setdefault(file, {}))
