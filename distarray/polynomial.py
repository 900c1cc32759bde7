"""numpy's package of polynomials, whose functions of values take arrays of ours as points.

Everything else is numpy's own: coefficients are few, and lie in this process. A class of polynomials brings the points
there, too: ``chebval(x, p.coef)`` is ``p(x)`` where they lie, if `p` has the domain of its window. But numpy asks
whether points are arrays of its own, and would pair the coefficients of several polynomials with the points of ours one
by one. Values are elementwise operations on the points, one step for each coefficient.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import ModuleType
from typing import Any

import numpy as np

from distarray.array.array import DistArray
from distarray.array.out import hosted
from distarray.composed.tensors import tensordot
from distarray.composed.views import as_distarray, atleast_1d
from distarray.expr.side_by_side import side_by_side

Function = Callable[..., Any]  # of any signature

#: numpy's modules, one for each basis, and what the names of their functions begin with.
_BASES = {"polynomial": "poly", "chebyshev": "cheb", "legendre": "leg", "laguerre": "lag", "hermite": "herm"}
_BASES["hermite_e"] = "herme"


def _values(theirs: Function) -> Function:
    """Return numpy's function of the values of a polynomial, at points of ours too."""

    @wraps(theirs)
    def values(x: Any, c: Any, tensor: bool = True) -> Any:
        if not isinstance(x, DistArray):
            return theirs(x, hosted(c), tensor=tensor)
        c = np.array(hosted(c), ndmin=1, copy=None)
        if tensor:
            return theirs(x, c.reshape(*c.shape, *(1,) * x.ndim), tensor=False)
        if theirs is np.polynomial.polynomial.polyvalfromroots and x.ndim >= c.ndim:
            raise ValueError(f"x.ndim must be < r.ndim when tensor == False: {x.ndim} is not below {c.ndim}")
        return theirs(x, c, tensor=False)

    return values


def _on_axes(theirs: Function, values: Function, *, is_grid: bool) -> Function:
    """Return numpy's function of the values of a polynomial in several variables: at points, or on the grid of all
    combinations of their coordinates.

    A polynomial in the last variable, whose coefficients are the values of polynomials in those before it, is their
    sum times the values of the basis.
    """

    @wraps(theirs)
    def several(*given: Any, **named: Any) -> Any:
        *points, c = (*given, *[named.pop(name) for name in ("x", "y", "z", "c") if name in named])
        if named or not any(isinstance(p, DistArray) for p in points):
            return theirs(*points, hosted(c), **named)
        return combined(*points, c)

    @side_by_side
    def combined(*given: Any) -> Any:
        first, *others = [as_distarray(p) for p in given[:-1]]
        if not is_grid and any(p.shape != first.shape for p in others):
            raise ValueError(f"{', '.join('xyz'[: len(given) - 1])} are incompatible: their shapes differ")
        made = values(first, given[-1])
        for p in others:
            made = atleast_1d(made)  # as coefficients are: there may be fewer axes of them than variables
            basis = values(p, np.eye(made.shape[0], dtype=made.dtype))
            if is_grid:
                made = tensordot(made, basis, axes=(0, 0))
            else:
                n, *rest = made.shape
                ndim = max(len(rest), p.ndim)
                made = made.reshape(n, *(1,) * (ndim - len(rest)), *rest)
                made = (made * basis.reshape(n, *(1,) * (ndim - p.ndim), *p.shape)).sum(axis=0)
        return made

    return several


def _module(name: str) -> ModuleType:
    numpys: ModuleType = getattr(np.polynomial, name)
    module = ModuleType(f"{__name__}.{name}", numpys.__doc__)
    ours = vars(module)
    ours.update({key: value for key, value in vars(numpys).items() if not key.startswith("__")})
    ours["__all__"] = list(numpys.__all__)
    prefix = _BASES[name]
    values = ours[f"{prefix}val"] = _values(getattr(numpys, f"{prefix}val"))
    for kind in ("val2d", "val3d", "grid2d", "grid3d"):
        full = prefix + kind
        ours[full] = _on_axes(getattr(numpys, full), values, is_grid=kind.startswith("grid"))
    if name == "polynomial":
        ours["polyvalfromroots"] = _values(numpys.polyvalfromroots)
    return module


polynomial, chebyshev, legendre, laguerre, hermite, hermite_e = map(_module, _BASES)
__all__ = list(np.polynomial.__all__)


def __getattr__(name: str) -> Any:
    return getattr(np.polynomial, name)
