"""numpy's functions that are compositions of others, or that write into their argument.

Each is a few lines of numpy-style code on DistArrays: what is deferred, planned and fused is decided below.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from distarray.arguments import (
    check_cast,
    host_array,
    host_positions,
    index_mode,
    integer,
    integers,
    naming,
    normalize_axes,
    sequence,
    shown,
)
from distarray.array.array import DistArray
from distarray.array.by_numpy import update_by_numpy
from distarray.array.handle import is_scalar
from distarray.array.out import check_written, hosted, into, writes_host
from distarray.composed.creation import zeros
from distarray.composed.nonzero import flatnonzero
from distarray.composed.ufunc_reductions import mask_of
from distarray.composed.views import all_beside, along, as_distarray, beside, broadcast_to, moveaxis
from distarray.dtypes import cast_dtype
from distarray.expr.bind import check_mask, nested
from distarray.expr.broadcasting import broadcast_shapes as common_shape
from distarray.expr.broadcasting import shape_within
from distarray.expr.expr import Expr
from distarray.expr.side_by_side import side_by_side
from distarray.ops import elementwise, indexing, joining, lenses, reductions, repetition
from distarray.ops.families import by_numpy
from distarray.types import Casting

#: Runs of an axis up to which `delete` puts views together: more of them are picked element by element.
FEW_RUNS = 16

# ------------------------------------------------------------------------------------------------ questions


def shape(a: Any) -> tuple[int, ...]:
    """Return the shape of an array, or of what makes one."""
    return a.shape if isinstance(a, DistArray) else np.shape(a)


def ndim(a: Any) -> int:
    """Return the number of axes that `a` has, or would have as an array."""
    return len(shape(a))


def size(a: Any, axis: int | None = None) -> int:
    """Return the number of elements, or the extent of an axis."""
    own = shape(a)
    return math.prod([int(own[a]) for a in normalize_axes(axis, len(own))])


def iterable(y: Any) -> bool:
    """Return whether one can iterate over `y`."""
    return bool(y.ndim) if isinstance(y, DistArray) else np.iterable(y)


def allclose(a: Any, b: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> bool:
    """Return whether all elements are close: `isclose`. Computes."""
    return bool(reductions.all(elementwise.isclose(a, b, rtol, atol, equal_nan)))


@side_by_side
def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> bool:
    """Return whether two arrays have one shape and equal elements. Computes."""
    found = _arrays(a1, a2)
    if found is None:
        return False
    x, y = found
    if x.shape != y.shape:
        return False
    same = x == y
    if equal_nan and x.dtype.kind in "fcmM" and y.dtype.kind in "fcmM":
        same = same | ((x != x) & (y != y))
    return bool(same.all())


@side_by_side
def array_equiv(a1: Any, a2: Any) -> bool:
    """Return whether two arrays broadcast to one shape and have equal elements there. Computes."""
    found = _arrays(a1, a2)
    if found is None:
        return False
    x, y = found
    try:
        common_shape(x.shape, y.shape)
    except ValueError:
        return False
    return bool((x == y).all())


def _arrays(a1: Any, a2: Any) -> tuple[DistArray, DistArray] | None:
    """Return both as arrays; what is nested unevenly is none, and equal to nothing."""
    try:
        first, second = all_beside(a1, a2)
        return first, second
    except ValueError:
        return None


# ----------------------------------------------------------------------------------------------- in place


def copyto(dst: Any, src: Any, casting: Any = "same_kind", where: Any = True) -> None:
    """Copy `src` into `dst`, where `where` is true; the dtypes must cast as `casting` says."""
    if isinstance(dst, DistArray) and update_by_numpy(np.copyto, dst, (src, casting, where)):
        return
    if not isinstance(dst, DistArray):
        if where is True and isinstance(src, DistArray):
            if (own := shape_within(src.shape, np.shape(dst))) is not None and own != src.shape:
                src = src.reshape(own)
            into(dst, src, casting=casting, broadcasts=True)
        else:
            np.copyto(dst, hosted(src), casting, hosted(where))
        return
    # numpy's own errors: for arrays from the dtypes, for numbers from the number itself
    target = np.empty(0, dst.dtype)
    target.setflags(write=not dst._readonly)
    with np.errstate(all="ignore"):
        np.copyto(target, _sample(src), casting=casting)
    if where is True:
        # As an array it casts without a check, and lacks the axes of one element in front that `dst` has not.
        dst[...] = src if hasattr(src, "dtype") and not isinstance(src, np.generic) else _as_array(src)
        return
    mask = beside(dst, mask_of(where))
    if mask.ndim > dst.ndim or any(n not in (1, m) for n, m in zip(mask.shape[::-1], dst.shape[::-1])):
        raise ValueError(f"could not broadcast where mask from shape {mask.shape} into shape {dst.shape}")
    _write_where(dst, mask, beside(dst, src))


def _write_where(dst: DistArray, mask: DistArray, values: DistArray) -> None:
    # Cast first: in a dtype common to both, elements that stay might lose digits.
    dst[...] = elementwise.where(mask, elementwise.astype(values, dst.dtype, copy=False), dst)


def _as_array(src: Any) -> Any:
    """Return a number or a sequence as an array of numpy; one of ours, where arrays of ours are in it."""
    return as_distarray(src) if type(nested(src)) is Expr else np.asarray(src)


def _sample(src: Any) -> Any:
    """Return what casts as `src` does: a number itself, nothing at all of the dtype of an array."""
    if np.ndim(src) == 0 and not isinstance(src, DistArray):
        return src
    return np.empty(0, src.dtype if hasattr(src, "dtype") else np.asarray(src).dtype)


def _given(a: DistArray, values: Any, casting: Casting = "unsafe") -> DistArray:
    """Return what is written into `a`, beside it: arrays cast as `casting` says, numbers and lists as numpy converts
    each.
    """
    is_array = hasattr(values, "dtype") and not isinstance(values, np.generic)
    if not is_array or (casting == "unsafe" and isinstance(values, np.ndarray)):
        with naming(values=values):
            values = np.asarray(values, a.dtype)
    elif not (
        np.can_cast(values.dtype, cast_dtype(values.dtype, a.dtype), casting)
        or (isinstance(values, DistArray) and is_scalar(values))
    ):
        raise TypeError(
            f"Cannot cast array data from {values.dtype!r} to {a.dtype!r} according to the rule {casting!r}: cast the "
            "values with astype"
        )
    return beside(a, values if isinstance(values, DistArray) else np.asarray(values))  # as numpy, what a mask hides


def _mask(name: str, arr: DistArray, mask: Any) -> DistArray:
    """Return a mask, flat: it has an element for each of `arr`."""
    own: DistArray = beside(arr, mask).ravel()
    if own.size != arr.size:
        raise ValueError(f"{name}: mask and data must be the same size")
    return own


def _check_target(name: str, x: Any) -> None:
    """Raise numpy's error of what is no array, or is one that is not to be written."""
    if not isinstance(x, DistArray):
        raise TypeError(f"{name}: {shown(x)} must be an array, not {type(x).__name__}")
    if x._readonly:
        raise ValueError(f"{name}: output array is read-only")


@writes_host(np.putmask)
def putmask(a: DistArray, mask: Any, values: Any) -> None:
    """Write, where `mask` is true, the element of `values` at the same flat position, repeated as needed."""
    _check_target("putmask", a)
    at = _mask("putmask", a, mask)
    given = _given(a, values, "safe")
    if given.size == 0:
        return
    _write_where(a, at.reshape(a.shape), given.reshape(()) if given.size == 1 else resize(given, a.shape))


@writes_host(np.place)
def place(arr: DistArray, mask: Any, vals: Any) -> None:
    """Write the first elements of `vals`, repeated as needed, where `mask` is true. Computes the mask."""
    _check_target("place", arr)
    at = flatnonzero(_mask("place", arr, mask))
    given = _given(arr, vals, "safe")
    if not at.size:
        return
    if given.dtype.kind == "m" and np.datetime_data(arr.dtype)[0] == "generic":
        given = given.view(arr.dtype)  # numbers of whatever unit, which NumPy 2.5 does not write elsewhere
    if not given.size:
        raise ValueError("Cannot insert from an empty array!")
    put(arr, at, given)


@writes_host(np.put)
def put(a: DistArray, ind: Any, v: Any, mode: str = "raise") -> None:
    """Write `v` into `a` at positions of the flattened array; the elements of `v` are repeated as needed.

    Positions outside are an error; ``mode="wrap"`` takes them modulo the size, ``mode="clip"`` the nearest position.
    """
    mode = index_mode(mode)
    _check_target("put", a)
    at = (_as_positions(ind) if isinstance(ind, DistArray) else host_positions(ind, "ind")).ravel()
    given = _given(a, v)
    if at.size and not a.size:
        raise IndexError("cannot replace elements of an empty array")
    if mode != "raise" and a.size:
        at = indexing.confined(at, a.size, mode)
    if not at.size or not given.size:
        return
    a.flat[at] = given


def _as_positions(ind: DistArray) -> DistArray:
    """Return positions, which truth values are too; numpy's error of what does not cast to them."""
    np.empty(0, ind.dtype).astype(np.intp, casting="safe")
    return ind.astype(np.intp) if ind.dtype.kind == "b" else ind


@writes_host(np.fill_diagonal)
def fill_diagonal(a: DistArray, val: Any, wrap: bool = False) -> None:
    """Write along the main diagonal, in place; the elements of `val` are repeated as needed."""
    if a.ndim < 2:
        raise ValueError("array must be at least 2-d")
    if a.ndim > 2 and len(set(a.shape)) > 1:
        raise ValueError("All dimensions of input must be of equal length")
    if a.ndim == 2 and wrap and a.shape[0] > a.shape[1] + 1:
        put(a, np.arange(0, a.size, a.shape[1] + 1), val)
        return
    n = min(a.shape)
    if np.ndim(val):
        val = _given(a, val)
        if not val.size or not n:
            return
        val = val.reshape(()) if val.size == 1 else resize(val, n)
    if a.ndim > 2:
        a[(np.arange(n),) * a.ndim] = val
    else:
        a._view(lenses.diagonal_lens(a.shape))[...] = val


# ------------------------------------------------------------------------------------------- choice, order


@by_numpy(np.select)
@side_by_side
def select(condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0) -> DistArray:
    """Return for each element the first choice whose condition is true."""
    condlist, choicelist = sequence(condlist, "condlist", "masks"), sequence(choicelist, "choicelist", "arrays")
    if len(condlist) != len(choicelist):
        raise ValueError(
            f"list of cases must be same length as list of conditions: choicelist has {len(choicelist)} and condlist "
            f"{len(condlist)}"
        )
    if not condlist:
        raise ValueError("select with an empty condition list is not possible")
    for i, condition in enumerate(condlist):
        held = condition.dtype if hasattr(condition, "dtype") else host_array(condition, f"condlist[{i}]").dtype
        if held.kind != "b":
            raise TypeError(f"invalid entry {i} in condlist: should be boolean ndarray, not of {held}")
    if not hasattr(default, "dtype") and not isinstance(default, bool | int | float | complex):
        default = host_array(default, "default")
    return _chosen(condlist, [*choicelist, default], "same_kind")


def _choice(value: Any, i: int) -> Any:
    """Return a choice as an array or a number; see `check_mask`."""
    if isinstance(value, DistArray | bool | int | float | complex):
        return value
    check_mask(value, f"choices[{i}]")
    return host_array(value, f"choices[{i}]")


def _chosen(conditions: Sequence[Any], choices: Sequence[Any], casting: Casting = "unsafe") -> DistArray:
    """Return for each element the first choice whose condition is true, else the last choice; all of one common
    dtype, to which each but the last one casts as `casting` says: of numbers their own dtype.
    """
    arrays = [_choice(c, i) for i, c in enumerate(choices)]
    dtype = np.result_type(*(getattr(c, "dtype", c) for c in arrays))
    # of one dtype before any two are joined: two numbers of Python would give a dtype of their own
    own: list[Any] = [c if hasattr(c, "dtype") else np.asarray(c) for c in arrays]
    for each in own[:-1]:
        check_cast(each.dtype, dtype, casting)
    others = [c.astype(dtype, copy=False) for c in own]
    result: DistArray = others.pop()
    for condition, array in zip(reversed(conditions), reversed(others)):
        result = elementwise.where(condition, array, result)
    return result


@by_numpy(np.choose)
@side_by_side
def choose(a: Any, choices: Sequence[Any], out: Any = None, mode: str = "raise") -> DistArray:
    """Return for each number in `a` the element that stands there in the choice of this number.

    Numbers that are no choice are an error, found at the call; ``mode="wrap"`` takes them modulo the number of choices,
    ``mode="clip"`` the nearest choice.
    """
    x = as_distarray(a)
    check_cast(x.dtype, np.intp, name="a")
    choices = [_choice(c, i) for i, c in enumerate(sequence(choices, "choices", "arrays"))]
    n = len(choices)
    if not n:
        raise ValueError("choices must be one array at least")
    mode = index_mode(mode)
    arrays = [c for c in choices if hasattr(c, "dtype")]
    for each in arrays:
        check_cast(each.dtype, np.result_type(*arrays))
    shape = common_shape(x.shape, *[np.shape(c) for c in choices])  # before anything is computed
    if mode == "wrap":
        x = x % n
    elif mode == "clip":
        x = x.clip(0, n - 1)
    elif 0 not in shape and bool(((x < 0) | (x >= n)).any()):
        raise ValueError(f"invalid entry in choice array: there are {n} choices")
    # Of one choice every element of `a` takes it: there is a condition, for the shape of the result.
    found = _chosen([x == i for i in range(max(n - 1, 1))], choices if n > 1 else choices * 2)
    return into(out, elementwise.as_scalar(found), casting="unsafe")


@by_numpy(np.delete)
@side_by_side
def delete(arr: Any, obj: Any, axis: int | None = None) -> DistArray:
    """Return a copy without the elements at `obj` along `axis`; of the flattened array by default."""
    x, axis = along(arr, axis, of_numbers=False)
    n = x.shape[axis]
    kept = np.ones(n, bool)
    at = _places(obj)
    if isinstance(at, np.ndarray) and at.size and at.dtype.kind in "iu" and (at.min() < -n or at.max() >= n):
        bad = at[(at < -n) | (at >= n)].flat[0]
        raise IndexError(f"index {bad} is out of bounds for axis {axis} with size {n}")
    if isinstance(at, np.ndarray) and at.dtype.kind == "b" and at.shape != (n,):
        raise ValueError(
            f"boolean array argument obj to delete must be one dimensional and match the axis length of {n}"
        )
    with naming(obj=obj):
        kept[at] = False
    low = (slice(None),) * axis
    ends = np.flatnonzero(np.diff(kept, prepend=False, append=False))  # of the runs that stay
    if not 0 < len(ends) <= 2 * FEW_RUNS:
        return x[(*low, np.flatnonzero(kept))]
    runs = [x[(*low, slice(*run))] for run in ends.reshape(-1, 2).tolist()]
    return joining.concat(runs, axis=axis)


@by_numpy(np.insert)
@side_by_side
def insert(arr: Any, obj: Any, values: Any, axis: int | None = None) -> DistArray:
    """Return a copy with `values` before the positions `obj` along `axis`; of the flattened array by default."""
    x, axis = along(arr, axis, of_numbers=False)
    n = x.shape[axis]
    obj = np.arange(n)[obj] if isinstance(obj, slice) else _places(obj, TypeError if np.size(obj) == 1 else IndexError)
    if obj.dtype.kind == "b" and obj.ndim == 1:
        obj = np.flatnonzero(obj)
    if obj.dtype.kind == "b":
        raise ValueError(f"boolean array argument obj to insert must be one dimensional (obj={shown(obj)})")
    if obj.ndim > 1:
        raise ValueError(f"index array argument obj to insert must be one dimensional or scalar (obj={shown(obj)})")
    given = beside(x, values if isinstance(values, DistArray) else host_array(values, "values", x.dtype))
    check_written(cast_dtype(given.dtype, x.dtype), x.dtype)
    given = elementwise.astype(given, x.dtype, copy=False)
    given = given.reshape((1,) * (x.ndim - given.ndim) + given.shape)
    count = int(obj.size)
    if count == 1:
        if obj.ndim == 0:
            # numpy: for one position, the first axis of the values is the axis of insertion
            given = moveaxis(given, 0, axis)
        count = given.shape[axis]
    shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
    if obj.size == 1:
        low, at = (slice(None),) * axis, integer(obj.item(), "obj")
        if not -n <= at <= n:
            raise IndexError(f"index {at} is out of bounds for axis {axis} with size {n}")
        at += n if at < 0 else 0
        with naming(values=values):
            given = broadcast_to(given, shape)
        return joining.concat([x[(*low, slice(at))], given, x[(*low, slice(at, None))]], axis=axis)
    # numpy finds the order, on positions: the k-th value stands behind all elements
    with naming(obj=obj):
        order = np.insert(np.arange(n), obj, n + np.arange(count))
    with naming(values=values):
        given = broadcast_to(given, shape)
    return indexing.take(joining.concat([x, given], axis=axis), order, axis=axis)


def _places(obj: Any, error: type[Exception] = IndexError) -> Any:  # a slice or a host array of integers or of a mask
    """Return the positions along an axis, as they are given to `delete` and `insert`."""
    if isinstance(obj, slice):
        return obj
    try:
        return host_array(obj, "obj", kinds="biu")
    except TypeError as wrong:
        raise error(str(wrong)) from None


def resize(a: Any, new_shape: Any) -> DistArray:
    """Return an array of a new shape, with the elements repeated as needed."""
    x = as_distarray(a).ravel()
    new = integers(new_shape, "new_shape", truths=False)
    if any(n < 0 for n in new):
        raise ValueError("all elements of `new_shape` must be non-negative")
    n = int(np.prod(new, dtype=object))
    if not x.size or not n:
        return zeros(new, x.dtype, team=x.team, device=x.device)
    repeated = x.copy() if n <= x.size else repetition.tile(x, -(-n // x.size))
    return repeated[:n].reshape(new)
