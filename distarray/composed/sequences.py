"""Sequences of numbers from one value to another: evenly spaced, on a logarithmic scale, in geometric progression.

Between numbers they are made where they lie; between arrays, element by element, of a sequence of indices.
"""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np

from distarray.arguments import count, host_array, integer, normalize_axis
from distarray.array.array import DistArray
from distarray.array.environment import TeamLike
from distarray.composed.creation import arange, created
from distarray.composed.placing import WhereAndLayout, spells_where
from distarray.composed.views import beside, expand_dims, moveaxis
from distarray.dtypes import as_dtype
from distarray.ops import creation, elementwise
from distarray.sharding.layout import LayoutLike
from distarray.sharding.spec import ShardingLike
from distarray.types import DType, DTypeLike


def linspace(
    start: Any,
    stop: Any,
    /,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: DTypeLike = None,
    axis: int = 0,
    *,
    device: str | None = None,
    team: TeamLike = "current",
    sharding: ShardingLike = None,
    layout: LayoutLike | None = None,
) -> Any:  # an array; with the step, as numpy, if `retstep`
    """Return `num` evenly spaced values from `start` to `stop`, which is the last one if `endpoint`.

    Parameters
    ----------
    start, stop
        Numbers, or arrays that broadcast; `axis` says where their sequences lie in the result.
    retstep
        Return the distance of neighbours too.
    device, team, sharding, layout
        Where the result lives and how it is cut, as for `asarray`.
    """
    num, axis = count(num, "num"), integer(axis, "axis")
    start, stop = _end(start, "start"), _end(stop, "stop")
    if dtype is not None:
        dtype = as_dtype(dtype)
    if not np.ndim(start) and not np.ndim(stop) and not any(isinstance(v, DistArray) for v in (start, stop)):
        normalize_axis(axis, 1)
        where: WhereAndLayout = {"team": team, "device": device, "sharding": sharding, "layout": layout}
        made = created(lambda env: creation.linspace(start, stop, num, dtype, endpoint, env), **where)
        n_steps = num - 1 if endpoint else num
        if not retstep:
            return made
        # In a floating dtype, as numpy: differences of small or unsigned integers wrap.
        return made, np.subtract(stop, start, dtype=_inexact(start, stop)) / n_steps if n_steps > 0 else np.nan
    made, step = _between(start, stop, num, endpoint, dtype, axis)
    return (made, step) if retstep else made


def _end(value: Any, name: str) -> Any:
    """Return a number, which is weak, or an array here or there."""
    is_plain = isinstance(value, DistArray | bool | int | float | complex | np.generic)
    return value if is_plain else host_array(value, name)


def _inexact(*values: Any) -> DType:
    """Return the dtype of sequences between these values; Python's numbers are weak, as everywhere."""
    kinds = [v if isinstance(v, bool | int | float | complex) else np.asanyarray(v).dtype for v in values]
    return np.result_type(*kinds, 1.0)


def _between(start: Any, stop: Any, num: int, endpoint: bool, dtype: DType | None, axis: int) -> tuple[DistArray, Any]:
    """Return sequences between the elements of arrays, and their steps: one nan where there are none."""
    home = next((v for v in (start, stop) if isinstance(v, DistArray)), None)
    home = arange(0) if home is None else home
    own = _inexact(*(np.empty(0, v.dtype) if isinstance(v, DistArray) else v for v in (start, stop)))
    wanted = own if dtype is None else dtype
    first, last = (beside(home, v).astype(own, copy=False) for v in (start, stop))
    delta = last - first
    n_steps = num - 1 if endpoint else num
    index = arange(num, dtype=np.int64, team=home.team, device=home.device).reshape((-1,) + (1,) * delta.ndim)
    step: Any = delta / n_steps if n_steps > 0 else np.nan
    # numpy's own steps, as of numbers (`distarray.ops.creation.LinspaceValues`): one step of zero decides for all
    at = index.astype(own)
    values: DistArray = at * (step if n_steps > 0 else delta)
    if n_steps > 0:
        values = elementwise.where((step == 0).any(), at / n_steps * delta, values)
    values = (values + first).astype(own, copy=False)
    if endpoint and num > 1:
        values = elementwise.where(index == num - 1, last, values)
    if wanted.kind in "iu":
        values = elementwise.floor(values)
    return moveaxis(values, 0, axis).astype(wanted, copy=False), step


@spells_where
def logspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    base: Any = 10.0,
    dtype: DTypeLike = None,
    axis: int = 0,
    **where: Unpack[WhereAndLayout],
) -> DistArray:
    """Return `num` values from ``base**start`` to ``base**stop``, evenly spaced on a logarithmic scale."""
    axis = integer(axis, "axis")
    if dtype is not None:
        dtype = as_dtype(dtype)
    start, stop, base = _end(start, "start"), _end(stop, "stop"), _end(base, "base")
    if np.ndim(base):
        shape = np.broadcast_shapes(np.shape(start), np.shape(stop), np.shape(base))
        base = expand_dims(np.broadcast_to(base, shape), axis=axis)
        start = np.broadcast_to(start, shape)
    powers = elementwise.pow(base, linspace(start, stop, num, endpoint, axis=axis, **where))
    return powers if dtype is None else powers.astype(dtype)


@spells_where
def geomspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    dtype: DTypeLike = None,
    axis: int = 0,
    **where: Unpack[WhereAndLayout],
) -> DistArray:
    """Return `num` values from `start` to `stop` in geometric progression; computes of arrays that there is no zero."""
    num = count(num, "num")
    start, stop = (v if isinstance(v, DistArray) else host_array(v, n) for v, n in ((start, "start"), (stop, "stop")))
    if dtype is not None:
        dtype = as_dtype(dtype)
    normalize_axis(axis, len(np.broadcast_shapes(np.shape(start), np.shape(stop))) + 1)
    if any(bool(np.any(np.equal(v, 0))) for v in (start, stop)):
        raise ValueError("Geometric sequence cannot include zero")
    first, last = (v if isinstance(v, DistArray) else np.asarray(v) for v in (start, stop))
    own = np.result_type(first.dtype, last.dtype, float(num), np.zeros((), dtype))
    first = first.astype(own)
    # of the phase of the start, so that the logarithms begin with a real number
    sign = np.sign(first)
    first, last = first / sign, last / sign
    made = logspace(np.log10(first), np.log10(last), num, endpoint, dtype=own, **where)
    if num > 0:
        made = _with_ends(made, first, last if num > 1 and endpoint else None)
    placed = moveaxis(made * sign, 0, axis)
    return placed.astype(own if dtype is None else np.dtype(dtype), copy=False)


def _with_ends(x: DistArray, first: Any, last: Any) -> DistArray:
    """Return `x` with exact values at the ends of its first axis."""
    n = x.shape[0]
    index = arange(n, dtype=np.int64, team=x.team, device=x.device).reshape((-1,) + (1,) * (x.ndim - 1))
    x = elementwise.where(index == 0, beside(x, first), x)
    return x if last is None else elementwise.where(index == n - 1, beside(x, last), x)
