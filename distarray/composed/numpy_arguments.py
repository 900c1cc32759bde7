"""numpy's arguments as our functions take them.

A function here has the standard's signature, numpy's, or one that takes both; what numpy hands to
``__array_function__`` are the arguments as the user wrote them. Which argument means which parameter is said by
numpy's own signature; where it goes is found once for each way of calling a function. An argument that we have no
parameter for is dropped if it says numpy's default, and ``out=`` is written to; everything else is refused.

Public functions take numpy's arguments also where they are called themselves: `spelled`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import lru_cache, wraps
from math import inf
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

import numpy as np

from distarray.arguments import NOT_GIVEN, ORDERS, memory_order, shown
from distarray.array.environment import within
from distarray.array.out import into
from distarray.expr.side_by_side import first_environment

Function = Callable[..., Any]  # of any signature

#: What says nothing on distributed arrays: blocks have the order they have, subclasses of ndarray have no meaning,
#: files of numbers hold no pickles, and what a function may do to its operand's buffer it need not do.
#: None: whatever it says.
_WITHOUT_EFFECT: Mapping[str, tuple[Any, ...] | None] = {
    "subok": (True, False),
    "casting": ("same_kind",),
    "overwrite_input": None,
    "kind": (None, "sort", "table"),
    "allow_pickle": None,
    "fix_imports": None,
}
#: What arguments of neither numpy nor ours are mostly meant for.
_INSTEAD: Mapping[str, str] = {
    "chunks": "; leave it out, or cut with sharding= or x.rechunk(chunks)",
    "split_every": "; leave it out: partial results combine in a tree",
}
#: numpy's names of parameters that have the standard's here, in another place.
_SYNONYMS: Mapping[str, str] = {"rcond": "rtol"}
#: numpy's functions that leave `out` to a ufunc, which broadcasts its result to it.
_BROADCASTING = frozenset({np.isposinf, np.isneginf, np.fix})
#: How numpy's functions cast to `out`, where it is not ``same_kind``.
_CASTINGS: Mapping[Function, str] = dict.fromkeys(
    (np.median, np.nanmedian, np.nanpercentile, np.nanquantile, np.cumulative_sum, np.cumulative_prod), "unsafe"
)


class _Place(NamedTuple):
    """A _Place says where an argument of numpy's goes: to a position, to a keyword, or (both None) nowhere."""

    name: str
    position: int | None = None
    keyword: str | None = None


def call(function: Function, ours: Function, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Return ``function(*args, **kwargs)`` of numpy, computed by `ours`.

    Raises
    ------
    TypeError
        `Refused`, if an argument means something that `ours` has no parameter for.
    """
    places = _places(function, ours, len(args), tuple(kwargs))
    positional: dict[int, Any] = {}
    keywords: dict[str, Any] = {}
    out = order = None
    for place, value in zip(places, (*args, *kwargs.values()), strict=True):
        if value is NOT_GIVEN or (value is None and place.name in _SYNONYMS and place.keyword != place.name):
            continue
        if place.position is not None:
            positional[place.position] = value
        elif place.keyword is not None:
            if place.keyword in keywords:
                raise ValueError(f"{function.__name__}: {place.keyword}= and what means the same can't be both set")
            keywords[place.keyword] = value
        elif place.name == "out" and ((known := _signature(function)) is None or "out" in known.parameters):
            out = value
        elif place.name == "order":
            allowed = ("C", "F") if _default(function, "order") == "C" else ORDERS  # new arrays have one of two
            order = None if value is None else memory_order(value, allowed)
        elif not _says_nothing(function, place.name, value):
            raise Refused(f"no {place.name}= here" + _INSTEAD.get(place.name, ""))
    if len(positional) != max(positional, default=-1) + 1:
        raise Refused("an argument in the middle is missing")
    given = [positional[i] for i in range(len(positional))]
    _check(ours, len(given), tuple(keywords))
    made = ours(*given, **keywords)
    if order is not None and hasattr(made, "_in_order"):
        made = made._in_order(order, [x for x in given if hasattr(x, "flags")] or [made])
    return into(out, made, casting=_CASTINGS.get(function, "same_kind"), broadcasts=function in _BROADCASTING)


def spelled(theirs: Any, ours: Any, home: str) -> Any:
    """Return a public function that takes the arguments of numpy's too, by position and by name; `ours` itself where it
    takes them all, or where numpy has no such function.

    A call that `ours` takes costs one more frame. What numpy's arguments mean is decided in `call`; with ``like=`` the
    result lives where that array does.

    Parameters
    ----------
    home
        The module in which the function is found by its name.
    """
    if not (isinstance(ours, FunctionType) and callable(theirs)) or isinstance(theirs, type) or theirs is ours:
        return ours
    known, wanted = _signature(ours), _signature(theirs)
    if known is None or wanted is None:
        return ours
    taken = list(known.parameters.values())
    names = frozenset([p.name for p in taken if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)])
    more = [p for p in wanted.parameters.values() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    n_own = _n_positional(known)
    takes_more = any(p.kind is p.VAR_KEYWORD for p in wanted.parameters.values())
    # What hands over all keywords, and does not say so, would have another function refuse those that nobody has.
    hands_over = inspect.unwrap(ours).__code__.co_flags & inspect.CO_VARKEYWORDS
    takes_more |= bool(hands_over) and not any(p.kind is p.VAR_KEYWORD for p in taken)
    if n_own >= _n_positional(wanted) and names.issuperset([p.name for p in more]) and not takes_more:
        return ours

    @wraps(ours)
    def function(*args: Any, **kwargs: Any) -> Any:
        if len(args) > n_own or not names.issuperset(kwargs):
            return _as_numpys(theirs, ours, args, kwargs)
        return ours(*args, **kwargs)

    _own[function] = ours
    function.__module__ = home
    # what has no place in ours comes last, by name; an operand that has another name here has a place
    extra = [
        p.replace(kind=p.KEYWORD_ONLY) for i, p in enumerate(more) if p.name not in names and _is_extra(p, known, i)
    ]
    by_kind = sorted([*taken, *extra], key=lambda p: p.kind)
    function.__signature__ = known.replace(parameters=by_kind)  # type: ignore[attr-defined]  # what inspect reads
    return function


def _n_positional(signature: inspect.Signature) -> float:
    kinds = [p.kind for p in signature.parameters.values()]
    if inspect.Parameter.VAR_POSITIONAL in kinds:
        return inf
    return sum(kind <= inspect.Parameter.POSITIONAL_OR_KEYWORD for kind in kinds)


#: Functions that `spelled` made, and what they call.
_own: dict[Function, Function] = {}


def own(function: Function) -> Function:
    """Return the function of ours that a public one calls."""
    return _own.get(function, function)


def spell_module(public: dict[str, Any], numpys: ModuleType) -> None:
    """Let the functions of a module, whose names are in ``__all__``, take the arguments of those in numpy's module."""
    public.update(
        {name: spelled(getattr(numpys, name, None), public[name], public["__name__"]) for name in public["__all__"]}
    )


def _is_extra(wanted: inspect.Parameter, own: inspect.Signature, index: int) -> bool:
    return wanted.default is not wanted.empty and _keyword(wanted.name, index, own, ()) == _Place(wanted.name)


def _as_numpys(theirs: Function, ours: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    try:
        wanted = _signature(theirs)
        if "like" not in kwargs or (wanted is not None and "like" not in wanted.parameters):
            return call(theirs, ours, args, kwargs)
        like = kwargs.pop("like")
        if like is not None and not hasattr(type(like), "__array_function__"):
            raise TypeError(
                "The `like` argument must be an array-like that implements the `__array_function__` protocol: "
                f"like={shown(like)}"
            )
        env = first_environment((like,))
        with nullcontext() if env is None else within(env):
            return call(theirs, ours, args, kwargs)
    except Refused as refusal:
        raise TypeError(f"{ours.__name__}(): {refusal}") from None


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
    mine = _signature(ours)
    assert mine is not None, ours
    if theirs is None:
        return (*[_Place("", i) for i in range(n_args)], *[_keyword(name, None, mine, ()) for name in keywords])
    parameters = list(theirs.parameters.values())
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    names = tuple(theirs.parameters)
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        # (*arrays), (f, *distances): positions are positions
        by_position = [_Place("", i) for i in range(n_args)]
    else:
        if n_args > len(positional):
            raise Refused(f"takes {len(positional)} positional arguments but {n_args} were given")
        by_position = [_keyword(p.name, i, mine, names) for i, p in enumerate(positional[:n_args])]
        for i, (place, own_there) in enumerate(zip(by_position, mine.parameters.values())):
            # What has the same place and no default stands there: functions look for their arrays in front.
            is_same = place.position == i or (place.keyword == own_there.name and own_there.default is own_there.empty)
            if not is_same or own_there.kind in (own_there.VAR_POSITIONAL, own_there.KEYWORD_ONLY):
                break
            by_position[i] = _Place(place.name, position=i)
    index = {p.name: i for i, p in enumerate(positional)}
    return (*by_position, *[_keyword(name, index.get(name), mine, names) for name in keywords])


def _keyword(name: str, index: int | None, own: inspect.Signature, names: tuple[str, ...]) -> _Place:
    """Return where numpy's parameter `name`, at the position `index`, goes."""
    if name not in own.parameters and _SYNONYMS.get(name) in own.parameters:
        return _Place(name, keyword=_SYNONYMS[name])
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
    is_numpys = not names or name in names
    if any(p.kind is p.VAR_KEYWORD for p in ours) and not (is_numpys and name in (*_WITHOUT_EFFECT, "order")):
        return _Place(name, keyword=name)
    return _Place(name)


def _says_nothing(function: Function, name: str, value: Any) -> bool:
    if name in _WITHOUT_EFFECT:
        known = _WITHOUT_EFFECT[name]
        return known is None or value is None or (isinstance(value, str | bool) and value in known)
    default = _default(function, name)
    return value is default or (isinstance(value, bool | int | float | str) and value == default)


def _default(function: Function, name: str) -> Any:
    """Return what a parameter of a function is where nothing is given; ``inspect.Parameter.empty`` if it has none."""
    signature = _signature(function)
    parameter = None if signature is None else signature.parameters.get(name)
    return inspect.Parameter.empty if parameter is None else parameter.default
