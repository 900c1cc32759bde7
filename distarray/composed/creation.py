"""Creation functions: numpy's and the standard's, with ``team=``, ``device=``, ``sharding=`` and ``layout=``.

Which elements an array has is decided in `distarray.ops.creation`; here it is decided where it lives. ``team=`` is the
current team unless given, ``device=`` the current device. ``sharding=`` pins the cut, which the planner chooses
otherwise; ``layout=`` is the memory order of blocks. The functions named ``*_like`` keep the team, device, cut and
layout of their argument. Nothing is computed, and nothing is stored until it is written or needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Unpack

import numpy as np

from distarray.arguments import callback, count, naming, number, parse_shape, shown
from distarray.array.array import DistArray
from distarray.array.environment import TeamLike, environment, is_named, parse_pin
from distarray.composed.conversion import asarray
from distarray.composed.placing import Where, WhereAndLayout, environment_of, spells_where, taken_where
from distarray.composed.views import as_distarray
from distarray.dtypes import as_dtype
from distarray.expr.expr import Environment, Expr
from distarray.expr.side_by_side import side_by_side
from distarray.ops import creation, elementwise
from distarray.ops.families import ready_made
from distarray.ops.joining import stack
from distarray.sharding.layout import LayoutLike
from distarray.sharding.spec import ShardingLike
from distarray.types import DTypeLike, ShapeLike


def created(
    make: Callable[[Environment], Expr],
    *,
    team: TeamLike = "current",
    device: str | None = None,
    sharding: ShardingLike = None,
    layout: LayoutLike | None = None,
) -> DistArray:
    """Return the array of the node that `make` makes for where it is to live."""
    env = environment(team, device)
    node = make(env)
    if sharding is not None or layout is not None:
        node = node.with_pin(parse_pin(sharding, layout, node.shape, node.dtype, env))
    return DistArray._on(node)


@spells_where
def empty(shape: ShapeLike, dtype: DTypeLike = None, **where: Unpack[WhereAndLayout]) -> DistArray:
    """Return an array of `shape` with arbitrary elements, double by default."""
    wanted = np.float64 if dtype is None else dtype
    return created(lambda env: creation.empty(shape, wanted, env), **where)


@spells_where
def zeros(shape: ShapeLike, dtype: DTypeLike = None, **where: Unpack[WhereAndLayout]) -> DistArray:
    """Return an array of `shape` filled with zeros, double by default."""
    return created(lambda env: creation.zeros(shape, dtype, env), **where)


@spells_where
def ones(shape: ShapeLike, dtype: DTypeLike = None, **where: Unpack[WhereAndLayout]) -> DistArray:
    """Return an array of `shape` filled with ones, double by default."""
    return created(lambda env: creation.full(shape, 1, np.float64 if dtype is None else dtype, env), **where)


@side_by_side
@spells_where
def full(shape: ShapeLike, fill_value: Any, dtype: DTypeLike = None, **where: Unpack[WhereAndLayout]) -> DistArray:
    """Return an array of `shape` filled with `fill_value`, by default of its dtype; an array broadcasts to `shape`."""
    with naming(fill_value=fill_value):
        depth = np.ndim(fill_value)
    if depth:
        made = empty(shape, asarray(fill_value).dtype if dtype is None else dtype, **where)
        made[...] = fill_value
        return made
    value = _known(fill_value)
    wanted = fill_value.dtype if dtype is None and isinstance(fill_value, DistArray) else dtype
    return created(lambda env: creation.full(shape, value, wanted, env), **where)


@spells_where
def arange(
    start: Any = None, stop: Any = None, step: Any = 1, dtype: DTypeLike = None, **where: Unpack[WhereAndLayout]
) -> DistArray:
    """Return evenly spaced values from `start` up to, without, `stop`; from 0 up to `start` if there is no `stop`.

    A number, a date or a time span may be an array without axes, whose value is computed at the call.
    """
    if start is None:
        if stop is None:
            raise TypeError("arange() requires stop to be specified.")
        start, stop = stop, None
    start, stop, step = [_known(value) for value in (start, stop, step)]
    return created(lambda env: creation.arange(start, stop, step, dtype, env), **where)


def _known(value: Any) -> Any:
    """Return the number, the date or the time span of an array without axes, and anything else as it is."""
    return value.compute()[()] if isinstance(value, DistArray) and not value.ndim else value


@spells_where
def eye(
    n_rows: int, n_cols: int | None = None, /, k: int = 0, dtype: DTypeLike = None, **where: Unpack[WhereAndLayout]
) -> DistArray:
    """Return a matrix with ones on its `k`-th diagonal and zeros elsewhere, double by default."""
    return created(lambda env: creation.eye(n_rows, n_cols, k, dtype, env), **where)


@spells_where
def identity(n: int, dtype: DTypeLike = None, **where: Unpack[WhereAndLayout]) -> DistArray:
    """Return a square matrix with ones on its diagonal and zeros elsewhere, double by default."""
    return eye(n, dtype=dtype, **where)


@spells_where
def tri(
    n_rows: int, n_cols: int | None = None, k: int = 0, dtype: DTypeLike = None, **where: Unpack[WhereAndLayout]
) -> DistArray:
    """Return a matrix with ones on and below its `k`-th diagonal and zeros above, double by default."""
    return created(lambda env: creation.tri(n_rows, n_cols, k, dtype, env), **where)


def indices(
    dimensions: Sequence[int], dtype: DTypeLike = int, sparse: bool = False, **where: Unpack[Where]
) -> Any:  # as numpy: an array, or a tuple of arrays if sparse
    """Return the index along each axis at every point of a grid: one array with the axes first, or sparse ones.

    A dtype of None is float64, but that of integers for sparse ones, as in numpy.
    """
    if isinstance(dimensions, Iterator):
        dimensions = tuple(dimensions)
    env = environment_of(where)
    if sparse:
        extents = list(enumerate(parse_shape(dimensions, "dimensions")))
        edges = [[n if a == axis else 1 for a, n in extents] for axis, _ in extents]
        return tuple([DistArray._on(creation.indices(edge, dtype, env)[axis]) for axis, edge in enumerate(edges)])
    dtype = as_dtype(dtype)  # None is float64, as where numpy makes an array
    grids = creation.indices(dimensions, dtype, env)
    if not grids:
        return empty((0,), dtype, team=env.team, device=env.device)
    return DistArray._on(stack(grids))


@ready_made(1, is_boxed=True)
def vander(x: Any, N: int | None = None, increasing: bool = False) -> DistArray:
    """Return the matrix of the powers of the elements of a vector, falling by default."""
    x = as_distarray(x)
    if x.ndim != 1:
        raise ValueError("x must be a one-dimensional array or sequence.")
    n = x.shape[0] if N is None else parse_shape((count(N, "N", truths=False),), "N")[0]
    powers = np.arange(n) if increasing else np.arange(n)[::-1]
    return elementwise.pow(x.reshape(-1, 1), powers.copy())


@spells_where
def fftfreq(n: int, /, d: float = 1.0, *, dtype: DTypeLike = None, **where: Unpack[Where]) -> DistArray:
    """Return the frequencies of the elements of an ``fft`` of length `n` of samples at distance `d`."""
    n, d = count(_samples(n), "n", truths=False), number(d, "d")
    half = (n - 1) // 2 + 1
    index = arange(n, dtype=np.int64, **where)
    return _frequencies(elementwise.where(index < half, index, index - n), n, d, dtype)


@spells_where
def rfftfreq(n: int, /, d: float = 1.0, *, dtype: DTypeLike = None, **where: Unpack[Where]) -> DistArray:
    """Return the frequencies of the elements of an ``rfft`` of `n` samples at distance `d`."""
    n, d = _samples(n), number(d, "d")
    index = arange(n // 2 + 1, dtype=np.int64, **where)
    return _frequencies(index, n, d, dtype)


def _samples(n: int) -> int:
    if not isinstance(n, int | np.integer):
        raise ValueError(f"n should be an integer: n={shown(n)} is no number of samples")
    return n if isinstance(n, bool) else int(n)


def _frequencies(index: DistArray, n: int, d: float, dtype: DTypeLike) -> DistArray:
    made = index * (1.0 / (n * d))
    return made if dtype is None else made.astype(dtype)


def fromfunction(
    function: Callable[..., Any], shape: ShapeLike, *, dtype: DTypeLike = float, like: Any = None, **kwargs: Any
) -> DistArray:
    """Return the array whose elements `function` computes from their indices.

    Parameters
    ----------
    function
        Gets one array of indices for each axis, as in numpy, and computes with them elementwise.
    shape
        Shape of the result.
    dtype
        Of the index arrays.
    **kwargs
        ``team=``, ``device=``, ``sharding=``, ``layout=``; anything else is passed to `function`.
    """
    where = taken_where(kwargs)
    callback(function, "function")
    sizes = parse_shape(shape)
    env = environment_of(where)
    made = function(*(DistArray._on(node) for node in creation.indices(sizes, as_dtype(dtype), env)), **kwargs)
    if not isinstance(made, DistArray):
        made = full(sizes, made, **where)
    pin = parse_pin(where.get("sharding"), where.get("layout"), made.shape, made.dtype, env)
    if pin is not None:
        made = made.reshard(pin)
    return made


# ---------------------------------------------------------------------------------------------- like another array


def _like(
    alike: Callable[..., DistArray],
    make: Callable[..., DistArray],
    x: Any,
    dtype: DTypeLike,
    shape: Any,
    *,
    team: TeamLike = "current",
    device: str | None = None,
    sharding: ShardingLike = None,
    layout: LayoutLike | None = None,
) -> DistArray:
    """Return what `alike` makes of `x`, or `make` of its shape where it is to lie otherwise: whatever is not said is
    that of `x`.
    """
    x = as_distarray(x)
    if not is_named(team) and device is None and sharding is None and layout is None:
        return x._like_this(partial(alike, dtype=dtype), None if shape is None else parse_shape(shape))
    return make(
        x.shape if shape is None else shape,
        dtype=x.dtype if dtype is None else dtype,
        device=x.device if device is None else device,
        team=team if is_named(team) else x.team,
        sharding=sharding,
        layout=layout,
    )


@spells_where
def empty_like(x: Any, /, dtype: DTypeLike = None, *, shape: Any = None, **where: Unpack[WhereAndLayout]) -> DistArray:
    """Return an array with arbitrary elements, of the shape, dtype and place of `x` where no other is given."""
    return _like(creation.empty_like, empty, x, dtype, shape, **where)


@spells_where
def zeros_like(x: Any, /, dtype: DTypeLike = None, *, shape: Any = None, **where: Unpack[WhereAndLayout]) -> DistArray:
    """Return an array filled with zeros, of the shape, dtype and place of `x` where no other is given."""
    return _like(partial(creation.full_like, fill_value=0), zeros, x, dtype, shape, **where)


@spells_where
def ones_like(x: Any, /, dtype: DTypeLike = None, *, shape: Any = None, **where: Unpack[WhereAndLayout]) -> DistArray:
    """Return an array filled with ones, of the shape, dtype and place of `x` where no other is given."""
    return _like(partial(creation.full_like, fill_value=1), ones, x, dtype, shape, **where)


@side_by_side
@spells_where
def full_like(
    x: Any, /, fill_value: Any, dtype: DTypeLike = None, *, shape: Any = None, **where: Unpack[WhereAndLayout]
) -> DistArray:
    """Return an array filled with `fill_value`, of the shape, dtype and place of `x` where no other is given."""
    with naming(fill_value=fill_value):
        depth = np.ndim(fill_value)
    if depth:
        made = empty_like(x, dtype=dtype, shape=shape, **where)
        made[...] = fill_value
        return made
    value = _known(fill_value)
    alike, make = (partial(function, fill_value=value) for function in (creation.full_like, full))
    return _like(alike, make, x, dtype, shape, **where)
