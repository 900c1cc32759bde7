"""numpy's arguments as our functions take them.

A function here has the standard's signature, numpy's, or one that takes both; what numpy hands to
``__array_function__`` are the arguments as the user wrote them. Which argument means which parameter is said by
numpy's own signature; where it goes is found once for each way of calling a function. An argument that we have no
parameter for is dropped if it says numpy's default, and ``out=`` is written to; everything else is refused.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from distarray.array.out import into

__all__ = ["call"]

Function = Callable[..., Any]  # of any signature

#: What says nothing on distributed arrays: blocks have the order they have, subclasses of ndarray have no meaning, and
#: what a function may do to its operand's buffer it need not do.
_WITHOUT_EFFECT: Mapping[str, tuple[Any, ...]] = {
    "order": ("K", "C", "A", "F"),
    "subok": (True, False),
    "casting": ("same_kind",),
    "overwrite_input": (True, False),
    "kind": (None, "sort", "table"),
}


class _Place(NamedTuple):
    """Where an argument of numpy's goes: to a position, to a keyword, or (both None) nowhere."""

    name: str
    position: int | None = None
    keyword: str | None = None


def call(function: Function, ours: Function, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """``function(*args, **kwargs)`` of numpy, by `ours`.

    Raises
    ------
    TypeError
        `Refused`, if an argument means something that `ours` has no parameter for.
    """
    places = _places(function, ours, len(args), tuple(kwargs))
    positional: dict[int, Any] = {}
    keywords: dict[str, Any] = {}
    out = None
    for place, value in zip(places, (*args, *kwargs.values()), strict=True):
        if value is np._NoValue:
            continue
        if place.position is not None:
            positional[place.position] = value
        elif place.keyword is not None:
            keywords[place.keyword] = value
        elif place.name == "out":
            out = value
        elif not _says_nothing(function, place.name, value):
            raise Refused(f"no {place.name}= here")
    if len(positional) != max(positional, default=-1) + 1:
        raise Refused("an argument in the middle is missing")
    given = [positional[i] for i in range(len(positional))]
    _check(ours, len(given), tuple(keywords))
    made = ours(*given, **keywords)
    return made if out is None else into(out, made)


class Refused(TypeError):
    """The arguments of a call mean something that our function does not do."""


@lru_cache(maxsize=2048)
def _signature(function: Function) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except ValueError:  # a function of C, before numpy 2.4
        return None


@lru_cache(maxsize=4096)
def _check(ours: Function, n_args: int, keywords: tuple[str, ...]) -> None:
    signature = _signature(ours)
    assert signature is not None, ours
    try:
        signature.bind(*[None] * n_args, **dict.fromkeys(keywords))
    except TypeError as error:
        raise Refused(str(error)) from None


@lru_cache(maxsize=4096)
def _places(function: Function, ours: Function, n_args: int, keywords: tuple[str, ...]) -> tuple[_Place, ...]:
    """Return where each argument of a call goes: the positional ones, then those by keyword."""
    theirs = _signature(function)
    own = _signature(ours)
    assert own is not None, ours
    if theirs is None:
        return (*[_Place("", i) for i in range(n_args)], *[_keyword(name, None, own, ()) for name in keywords])
    parameters = list(theirs.parameters.values())
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    names = tuple(theirs.parameters)
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        # (*arrays), (f, *distances): positions are positions
        by_position = [_Place("", i) for i in range(n_args)]
    else:
        if n_args > len(positional):
            raise Refused(f"takes {len(positional)} positional arguments but {n_args} were given")
        by_position = [_keyword(p.name, i, own, names) for i, p in enumerate(positional[:n_args])]
    index = {p.name: i for i, p in enumerate(positional)}
    return (*by_position, *[_keyword(name, index.get(name), own, names) for name in keywords])


def _keyword(name: str, index: int | None, own: inspect.Signature, names: tuple[str, ...]) -> _Place:
    """Return where numpy's parameter `name`, at the position `index`, goes."""
    ours = list(own.parameters.values())
    positional = [p for p in ours if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    same = own.parameters.get(name)
    if same is not None and same.kind in (same.POSITIONAL_OR_KEYWORD, same.KEYWORD_ONLY):
        return _Place(name, keyword=name)
    if index is not None and index < len(positional):
        there = positional[index]
        if there.kind is there.POSITIONAL_ONLY:
            return _Place(name, position=index)
        # Another name at the same place, unless numpy has a parameter of that name elsewhere.
        if there.name not in names:
            return _Place(name, keyword=there.name)
    if any(p.kind is p.VAR_KEYWORD for p in ours) and name not in _WITHOUT_EFFECT:
        return _Place(name, keyword=name)
    return _Place(name)


def _says_nothing(function: Function, name: str, value: Any) -> bool:
    if name in _WITHOUT_EFFECT:
        known = _WITHOUT_EFFECT[name]
        return value is None or (isinstance(value, str | bool) and value in known)
    signature = _signature(function)
    parameter = None if signature is None else signature.parameters.get(name)
    if parameter is None:
        return False
    default = parameter.default
    return value is default or (isinstance(value, bool | int | float | str) and value == default)
