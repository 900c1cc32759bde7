"""When errors of kernels are raised: at the call, or when values are asked for."""

from __future__ import annotations

from contextvars import ContextVar

from distarray import config
from distarray.scoped import Scoped

#: Whether errors of kernels wait in this context, whatever the option ``errors`` says.
_waits: ContextVar[bool] = ContextVar("distarray errors wait", default=False)


def errors_wait() -> bool:
    """Return whether what may fail is computed when its values are asked for, and not at the call."""
    return _waits.get() or config.get("errors") == "deferred"


def waiting() -> Scoped[bool]:
    """Return a context in which `errors_wait`, for those who are promised laziness; the option is the process's."""
    return Scoped(_waits, True)
