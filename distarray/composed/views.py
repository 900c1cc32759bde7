"""The functions whose results alias their argument, as numpy's do: handles on the same base.

The lenses come from `distarray.ops.lenses`, which checks what the user wrote; here they become views. The first
argument may be anything that makes an array.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, SupportsIndex

import numpy as np

from distarray.arguments import flag, memory_order, normalize_axis, number, parse_shape
from distarray.array.array import DistArray
from distarray.array.handle import is_scalar
from distarray.composed.conversion import asarray
from distarray.expr.affine import Affine
from distarray.expr.bind import bind_get, bind_reshape, check_mask, unbox
from distarray.expr.broadcasting import broadcast_shapes as _common_shape
from distarray.expr.expr import SOURCE
from distarray.expr.lens import get, strided_dummy
from distarray.expr.lens import shares_memory as _lenses_share
from distarray.expr.side_by_side import side_by_side
from distarray.ops import elementwise, lenses, manipulation
from distarray.types import AxesLike, HostArray


def as_distarray(x: Any) -> DistArray:
    """Return `x`, or the array that ``asarray`` makes of it; see `check_mask`."""
    if isinstance(x, DistArray):
        return x
    check_mask(x, "an operand")
    return asarray(x)


def all_beside(*given: Any) -> list[DistArray]:
    """Return arrays: host data and numbers live where the first array of ours does."""
    first = next((value for value in given if isinstance(value, DistArray)), None)
    return [beside(first, value) for value in given]


def as_it_is(x: Any) -> DistArray:
    """Return an array with the elements that `x` has now, whatever is written to it later: nothing is copied.

    For functions that read an array more than once, while another thread may write to it.
    """
    return x.copy() if isinstance(x, DistArray) else as_distarray(x)


def beside(x: Any, given: Any) -> DistArray:
    """Return `given`, or the array of host data: where `x` lives, if that is an array here."""
    if isinstance(given, DistArray) or not isinstance(x, DistArray):
        return as_distarray(given)
    check_mask(given, "an operand")
    return asarray(given, team=x.team, device=x.device)


def along(x: Any, axis: int | None, *, of_numbers: bool = True) -> tuple[DistArray, int]:
    """Return the array to work on along `axis`, and that axis counted from the front; flattened if the axis is None.

    With `of_numbers` an array without axes is a row of one, as for numpy's functions that take the axis it would have.
    """
    own = as_distarray(x)
    if axis is None or (of_numbers and not own.ndim):
        own = own.ravel()
    return own, normalize_axis(0 if axis is None else axis, own.ndim)


def without_number(x: DistArray) -> DistArray:
    """Return the result of a function of which numpy makes an array, where `x` has no axes: operators in place write to
    it. An array that has axes is returned itself.
    """
    if x.shape:
        return x
    block = x._ready()
    return elementwise.as_array(x) if block is None else x._of(block, SOURCE, x._base.type)


def as_number(x: DistArray) -> DistArray:
    """Return the result of a function of which numpy makes a number, where `x` has no axes. An array that has axes is
    returned itself.
    """
    return x if x.shape or is_scalar(x) else x[()]


# ---------------------------------------------------------------------------------------------------- axes


def _seen(x: Any, lens_of: Callable[..., Affine], *args: Any) -> DistArray:
    """Return the view of an array through the lens that its shape and these arguments give."""
    own = as_distarray(x)
    return own._view(lens_of(own.shape, *args))


def permute_dims(x: Any, /, axes: Sequence[SupportsIndex]) -> DistArray:
    """Return the axes of `x` in the order `axes`. A view."""
    return _seen(x, lenses.permute_lens, axes)


def transpose(a: Any, axes: Sequence[SupportsIndex] | None = None) -> DistArray:
    """Return the axes of `a` in the order `axes`, reversed by default. A view."""
    return _seen(a, lenses.permute_lens, axes)


def matrix_transpose(x: Any, /) -> DistArray:
    """Return the last two axes exchanged. A view."""
    return _seen(x, lenses.matrix_transpose_lens)


def moveaxis(x: Any, source: AxesLike, destination: AxesLike, /) -> DistArray:
    """Return the axes `source` moved to the places `destination`. A view."""
    return _seen(x, lenses.moveaxis_lens, source, destination)


def rollaxis(a: Any, axis: int, start: int = 0) -> DistArray:
    """Return `axis` moved to stand before the axis that is now at `start`. A view."""
    return _seen(a, lenses.rollaxis_lens, axis, start)


def swapaxes(a: Any, axis1: int, axis2: int) -> DistArray:
    """Return two axes exchanged. A view."""
    return as_distarray(a).swapaxes(axis1, axis2)


def flip(x: Any, /, axis: AxesLike = None) -> DistArray:
    """Return the elements in reverse order along `axis`, all axes by default. A view; of no axes the number."""
    return as_number(_seen(x, lenses.flip_lens, axis))


def flipud(m: Any) -> DistArray:
    """Return an array reversed along the first axis. A view."""
    return _seen(m, lenses.flip_lens, 0, 1)


def fliplr(m: Any) -> DistArray:
    """Return an array reversed along the second axis. A view."""
    return _seen(m, lenses.flip_lens, 1, 2)


def rot90(m: Any, k: int = 1, axes: Sequence[int] = (0, 1)) -> DistArray:
    """Return `k` quarter turns in the plane of `axes`. A view."""
    return _seen(m, lenses.rot90_lens, k, axes)


def expand_dims(x: Any, /, axis: AxesLike = 0) -> DistArray:
    """Return new axes of extent 1 at the positions `axis` of the result. A view."""
    return _seen(x, lenses.expand_lens, axis)


def squeeze(x: Any, /, axis: AxesLike = None) -> DistArray:
    """Return an array without the axes `axis`, which must have extent 1; all such axes by default. A view."""
    return _seen(x, lenses.squeeze_lens, axis)


def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> DistArray:
    """Return a diagonal of two axes as the new last axis; a view, read-only as numpy's."""
    return as_distarray(a).diagonal(offset, axis1, axis2)


def diag(v: Any, k: int = 0) -> DistArray:
    """Return the `k`-th diagonal of a matrix, a view, read-only as numpy's; or the matrix with the vector `v` on it."""
    x = as_distarray(v)
    return diagonal(x, k) if x.ndim == 2 else manipulation.diag(x, k)


def matrix_diagonal(x: Any, /, *, offset: int = 0) -> DistArray:
    """Return the diagonals of the last two axes: a view, read-only as numpy's."""
    return diagonal(x, offset, -2, -1)


# --------------------------------------------------------------------------------------------- broadcasting


def broadcast_to(x: Any, /, shape: Sequence[int] | int) -> DistArray:
    """Return `x` seen as an array of `shape`; a read-only view, of which only the elements of `x` exist and travel."""
    own = as_distarray(x)
    return own._view(lenses.broadcast_lens(own.shape, parse_shape(shape)), readonly=True)


@side_by_side
def broadcast_arrays(*arrays: Any) -> tuple[Any, ...]:
    """Return all arrays as views of their common shape; None, text and objects as numpy's arrays, as plotting asks."""
    views = [np.asarray(x) if _is_no_number(x) else as_distarray(x) for x in arrays]
    shape = _common_shape(*(x.shape for x in views)) if views else ()
    return tuple(
        [
            np.broadcast_to(x, shape)
            if isinstance(x, np.ndarray)
            else x._alias()
            if x.shape == shape
            else broadcast_to(x, shape)
            for x in views
        ]
    )


def _is_no_number(x: Any) -> bool:
    return x is None or isinstance(x, str) or (isinstance(x, np.ndarray) and x.dtype.kind in "OUS")


@side_by_side
def meshgrid(*arrays: Any, indexing: str = "xy", sparse: bool = False, copy: bool = True) -> tuple[DistArray, ...]:
    """Return the coordinates of a grid from those along its axes.

    ``indexing="xy"`` exchanges the first two axes, as plots want it. With ``copy=False`` they are views, of which those
    that broadcast are read-only.
    """
    own = all_beside(*arrays)
    grid = lenses.grid_lenses([x.size for x in own], indexing, sparse)
    if not copy or not own:
        return tuple([x.reshape(x.size)._view(lens, readonly=prod(lens.shape) > x.size) for x, lens in zip(own, grid)])
    operands = unbox("meshgrid", own)
    nodes: list[Any] = operands.nodes  # arrays, whose elements are copied when somebody writes
    return tuple([operands.box(bind_get(bind_reshape(n, (n.size,)), lens)) for n, lens in zip(nodes, grid)])


def _atleast(ndim: int, arrays: Sequence[Any]) -> Any:  # one array or a tuple of them, as numpy
    results = [x if x.ndim >= ndim else x._view(lenses.atleast_lens(x.shape, ndim)) for x in map(as_distarray, arrays)]
    return results[0] if len(results) == 1 else tuple(results)


def atleast_1d(*arys: Any) -> Any:
    """Return each array with at least one axis. Views."""
    return _atleast(1, arys)


def atleast_2d(*arys: Any) -> Any:
    """Return each array with at least two axes, new ones first. Views."""
    return _atleast(2, arys)


def atleast_3d(*arys: Any) -> Any:
    """Return each array with at least three axes. Views."""
    return _atleast(3, arys)


# -------------------------------------------------------------------------------------------------- reshape


def reshape(x: Any, /, shape: Any, order: str = "C", *, copy: bool | None = None) -> DistArray:
    """Return the elements of `x` in the same order with another shape; one extent may be -1.

    A view exactly where numpy makes one of a C-ordered array; elsewhere the result is a copy, pinned to the values
    that `x` has now.

    Parameters
    ----------
    order
        ``"C"``: the last axis runs fastest; ``"F"``: the first one; ``"A"``: F for a view that lies in that order.
    copy
        True: always a copy. False: a view, or an error.

    Raises
    ------
    ValueError
        If the sizes differ, or with ``copy=False`` if there is no such view.
    """
    own = as_distarray(x)
    new = manipulation.resolve_shape(own.shape, shape)
    if copy is not None:
        copy = flag(copy, "copy")
    if type(order) is str and order == "C":
        return own._reshaped(new, copy)
    order = memory_order(order, ("C", "F", "A"))
    if order == "A":
        order = "F" if strided_dummy(own._base.current.shape, own._lens).flags.fnc else "C"
    if order != "F":
        return own._reshaped(new, copy)
    # reshape(x, s, F) = reshape(x.T, s[::-1], C).T
    return own.T._reshaped(new[::-1], copy).T


def ravel(a: Any, order: str = "C") -> DistArray:
    """Return the elements of `a` in one axis: a view where the array is contiguous in that order, as in numpy.

    `order` is ``"C"``, ``"F"``, ``"A"`` (F for what is contiguous in that order only) or ``"K"``: as they lie in
    memory.
    """
    own = as_distarray(a)
    order = memory_order(order)
    axes = own._axes(order)
    if axes is not None:
        own = own._view(lenses.permute_lens(own.shape, axes))
    # Not every reshape(-1) that can be a view: numpy's ravel is always contiguous.
    is_view = strided_dummy(own._base.current.shape, own._lens).flags.c_contiguous
    return own._reshaped((own.size,), None if is_view else True)


# -------------------------------------------------------------------------------------------------- parts


def real(x: Any, /) -> DistArray:
    """Return the real part; a view."""
    return as_distarray(x).real


def imag(x: Any, /) -> DistArray:
    """Return the imaginary part; a view, and zeros for real arrays."""
    return as_distarray(x).imag


def real_if_close(a: Any, tol: float = 100) -> DistArray:
    """Return the real part where all imaginary parts are nearly zero, else `a`: computes whether they are.

    `tol` is in units of the rounding error of 1, or a distance if it is not above 1.
    """
    own = as_distarray(a)
    number(tol, "tol", real=True)
    if own.dtype.kind != "c":
        return own
    limit = tol * float(np.finfo(own.dtype).eps) if tol > 1 else tol
    return own.real if bool((abs(own.imag) < limit).all()) else own


def isfortran(a: Any) -> bool:
    """Return whether numpy would say so of this view of a C-ordered array: contiguous in F order, and not in C order
    too.
    """
    own = as_distarray(a)
    return bool(strided_dummy(own._base.current.shape, own._lens).flags.fnc)


def unstack(x: Any, /, *, axis: int = 0) -> tuple[DistArray, ...]:
    """Return the slices along `axis`. Views; of a vector they are its elements."""
    own = as_distarray(x)
    if not own.ndim:
        raise ValueError("Input array must be at least 1-d.")
    first = moveaxis(own, axis, 0)
    return tuple(first[i] for i in range(first.shape[0]))


@side_by_side
def array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[DistArray]:
    """Return the parts of `ary` along `axis`, of which the first ones may have one element more. Views."""
    x = as_distarray(ary)
    return [x._view(lens) for lens in lenses.split_lenses(x.shape, indices_or_sections, axis)]


@side_by_side
def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[DistArray]:
    """Return equal parts of `ary` along `axis`. Views."""
    x = as_distarray(ary)
    return [x._view(lens) for lens in lenses.split_lenses(x.shape, indices_or_sections, axis, is_equal=True)]


def _split_along(name: str, axis: int, least: int, ary: Any, indices_or_sections: Any) -> list[DistArray]:
    """Return equal parts along `axis`, or the last one, of what has `least` axes."""
    x = as_distarray(ary)
    if x.ndim < least:
        raise ValueError(f"{name} only works on arrays of {least} or more dimensions")
    return split(x, indices_or_sections, min(axis, x.ndim - 1))


def hsplit(ary: Any, indices_or_sections: Any) -> list[DistArray]:
    """Return the parts along the second axis, of a vector along the first. Views."""
    return _split_along("hsplit", 1, 1, ary, indices_or_sections)


def vsplit(ary: Any, indices_or_sections: Any) -> list[DistArray]:
    """Return the parts along the first axis. Views."""
    return _split_along("vsplit", 0, 2, ary, indices_or_sections)


def dsplit(ary: Any, indices_or_sections: Any) -> list[DistArray]:
    """Return the parts along the third axis. Views."""
    return _split_along("dsplit", 2, 3, ary, indices_or_sections)


# ---------------------------------------------------------------------------------------------- shared memory


def shares_memory(a: Any, b: Any, /, max_work: int | None = None) -> bool:
    """Return whether two arrays have an element in common: views of one base that overlap, or an array of numpy that
    sees the memory of one of ours, as ``np.asarray`` gives it. Computes nothing.
    """
    if not isinstance(a, DistArray) or not isinstance(b, DistArray):
        return _any_pair(np.shares_memory, a, b, max_work)
    return a._base is b._base and _lenses_share(a._base.current.shape, a._lens, b._lens)


def may_share_memory(a: Any, b: Any, /, max_work: int | None = None) -> bool:
    """Return `shares_memory`, which is exact where both are ours; numpy's bounds of memory else.

    What may be the copy that ``np.asarray`` gives of several blocks counts: whoever asks is to work in place, if not,
    and that copy cannot be written. NumPy's own generators ask before they shuffle one (``permutation``).
    """
    if not isinstance(a, DistArray) or not isinstance(b, DistArray):
        return _any_pair(np.may_share_memory, a, b, max_work) or _may_be_copy(a, b) or _may_be_copy(b, a)
    return shares_memory(a, b)


def _may_be_copy(host: Any, x: Any) -> bool:
    """Return whether an array of numpy may be the copy that it sees of an array that is not one block here."""
    if not isinstance(host, np.ndarray) or host.flags.writeable or not isinstance(x, DistArray):
        return False
    return host.shape == x.shape and host.dtype == x.dtype and len(_memory(x)) != 1


def _any_pair(function: Any, a: Any, b: Any, max_work: int | None) -> bool:
    return any(function(p, q, max_work) for p in _memory(a) for q in _memory(b))


def _memory(x: Any) -> list[HostArray]:
    """Return the arrays of numpy in which the elements of an array lie now, as far as they are in this process."""
    if not isinstance(x, DistArray):
        return [x] if isinstance(x, np.ndarray) else []
    memo = x._base.current.memo
    blocks = [] if memo is None else [block for block in memo.present if isinstance(block, np.ndarray)]
    return [get(x._lens, blocks[0])] if len(blocks) == 1 else blocks
