"""Values of context variables inside a block."""

from __future__ import annotations

from contextvars import ContextVar, Token
from typing import Generic, TypeVar

T = TypeVar("T")


class Scoped(Generic[T]):
    """A Scoped value is that of a context variable inside a ``with`` block.

    It is no generator: one that an interrupt leaves behind is ended later, in a context that is not its own.
    """

    __slots__ = ("_token", "_value", "_variable")

    _token: Token[T]

    def __init__(self, variable: ContextVar[T], value: T) -> None:
        self._variable = variable
        self._value = value

    def __enter__(self) -> None:
        self._token = self._variable.set(self._value)

    def __exit__(self, *_error: object) -> None:
        self._variable.reset(self._token)
