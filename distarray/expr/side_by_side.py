"""Where a function of several arrays works: where the first array among its arguments lives.

Host data has no environment. An operation gives its host operands that of its arrays (`bind.unbox`); a function that is
a composition of operations, or that makes an array of one argument before it looks at another one, is marked by
`side_by_side`: what it makes of host data then lives where the first array among its arguments does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np

from distarray import hooks
from distarray.arguments import check_ndim
from distarray.expr.expr import Environment

P = ParamSpec("P")
R = TypeVar("R")

#: Classes of what is neither an array nor holds one.
NO_ARRAYS: frozenset[type] = frozenset(
    {bool, int, float, complex, str, bytes, type(None), type(np._NoValue), type, slice}
)
#: These, and classes of arrays that were met: none of them is host data.
_NOT_HOST: set[type] = set(NO_ARRAYS)


def side_by_side(function: Callable[P, R]) -> Callable[P, R]:
    """Let what `function` makes of host data live where the first array among its arguments lives."""

    @wraps(function)
    def placed(*args: P.args, **kwargs: P.kwargs) -> R:
        if _NOT_HOST.issuperset(map(type, args)) and (not kwargs or _NOT_HOST.issuperset(map(type, kwargs.values()))):
            return function(*args, **kwargs)
        kinds = {*map(type, args), *map(type, kwargs.values())}
        _NOT_HOST.update([kind for kind in kinds if hasattr(kind, "__dx_node__")])
        if kinds <= _NOT_HOST:
            return function(*args, **kwargs)
        env = first_environment((*args, *kwargs.values()))
        if env is None or hooks.within is None:
            return function(*args, **kwargs)
        with hooks.within(env):
            return function(*args, **kwargs)

    return placed


def first_environment(values: Iterable[Any], depth: int = 0) -> Environment | None:
    """Return where the first array among `values` lives, or in the sequences among them; None if there is none.

    Raises
    ------
    ValueError
        If sequences are nested deeper than any array, as those that hold themselves are.
    """
    check_ndim(depth)
    nested = []
    for value in values:
        kind = type(value)
        if kind in NO_ARRAYS:
            continue
        if hasattr(kind, "__dx_node__"):
            env: Environment = value.__dx_node__().env
            return env
        if kind is list or kind is tuple:
            nested.append(value)
    for value in nested:
        found = first_environment(value, depth + 1)
        if found is not None:
            return found
    return None
