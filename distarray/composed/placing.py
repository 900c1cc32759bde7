"""Where new arrays live: the keywords that all functions take that make arrays of no others."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, cleandoc, signature
from typing import Any, TypedDict, TypeVar

from distarray.array.environment import TeamLike, environment
from distarray.expr.expr import Environment
from distarray.sharding.layout import LayoutLike
from distarray.sharding.spec import ShardingLike

F = TypeVar("F", bound=Callable[..., Any])


class Where(TypedDict, total=False):
    """A Where says where a new array lives: on which team and device, the current ones unless given, and how it is cut,
    which the planner chooses otherwise.
    """

    team: TeamLike
    device: str | None
    sharding: ShardingLike


class WhereAndLayout(Where, total=False):
    """A WhereAndLayout says where a new array lives, and the memory order of its blocks."""

    layout: LayoutLike | None


def environment_of(where: Where) -> Environment:
    """Return the team and device that are said, or the current ones."""
    return environment(where.get("team", "current"), where.get("device"))


def taken_where(kwargs: dict[str, Any]) -> WhereAndLayout:
    """Return what keywords say of where an array lives, and take that out of them: the rest is another function's."""
    where: Any = {key: kwargs.pop(key) for key in WhereAndLayout.__annotations__ if key in kwargs}
    return where


#: By how ``**where`` is annotated, what stands for it in a signature.
_SPELLED = {
    f"Unpack[{kind.__name__}]": [
        Parameter(
            name,
            Parameter.KEYWORD_ONLY,
            default="current" if name == "team" else None,
            annotation=hint.__forward_arg__,
        )
        for name, hint in kind.__annotations__.items()
    ]
    for kind in (Where, WhereAndLayout)
}


#: What is said of them.
_SAID = {
    "Unpack[Where]": "`team`, `device` and `sharding` say where it lives and how it is cut, as for `asarray`.",
    "Unpack[WhereAndLayout]": "`team`, `device`, `sharding` and `layout` say where it lives and how it is cut, as for "
    "`asarray`.",
}


def spells_where(function: F) -> F:
    """Let the signature of a function name the keywords that its ``**where`` takes, with their defaults, and its
    docstring, where it does not, say what they are.
    """
    known = signature(function)
    *others, where = known.parameters.values()
    spelled = known.replace(parameters=[*others, *_SPELLED[where.annotation]])
    function.__signature__ = spelled  # type: ignore[attr-defined]  # what inspect reads
    text = function.__doc__
    if text and "sharding" not in text:
        function.__doc__ = f"{cleandoc(text)}\n\n{_SAID[where.annotation]}"
    return function
