"""Arrays in another shape or order: views, reshapes, diagonals and triangles.

Nothing here has a kernel, and a view is a lens (`lenses`). What numpy copies is a chain of writes through lenses, or a
reshape of a broadcast. Arrays are put together in `joining`, elements repeated in `repetition`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, SupportsIndex

import numpy as np

from distarray.arguments import check_ndim, diagonal, integer, integers, parse_shape
from distarray.expr.bind import bind_create, bind_get, bind_put, bind_reshape
from distarray.expr.broadcasting import broadcast_shapes as _broadcast_shapes
from distarray.expr.expr import Expr
from distarray.ops.creation import TRI, constant
from distarray.ops.elementwise import where
from distarray.ops.families import Array, one_array, ready_made, view
from distarray.ops.lenses import (
    atleast_lens,
    broadcast_lens,
    diagonal_lens,
    expand_lens,
    flip_lens,
    moveaxis_lens,
    permute_lens,
    slice_lens,
    squeeze_lens,
    swapaxes_lens,
)
from distarray.types import AxesLike, Shape

# ---------------------------------------------------------------------------------------------------------------- views


def permute_dims(x: Array, /, axes: Sequence[SupportsIndex]) -> Array:
    """Return the axes of `x` in the order `axes`. A view."""
    return view("permute_dims", x, permute_lens, axes)


def moveaxis(x: Array, source: AxesLike, destination: AxesLike, /) -> Array:
    """Return the axes `source` moved to the places `destination`. A view."""
    return view("moveaxis", x, moveaxis_lens, source, destination)


def swapaxes(a: Array, axis1: int, axis2: int) -> Array:
    """Return two axes exchanged. A view."""
    return view("swapaxes", a, swapaxes_lens, axis1, axis2)


def flip(x: Array, /, axis: AxesLike = None) -> Array:
    """Return the elements in reverse order along `axis`, all axes by default. A view."""
    return view("flip", x, flip_lens, axis)


def expand_dims(x: Array, /, axis: AxesLike = 0) -> Array:
    """Return new axes of extent 1 at the positions `axis` of the result. A view."""
    return view("expand_dims", x, expand_lens, axis)


def squeeze(x: Array, /, axis: AxesLike = None) -> Array:
    """Return an array without the axes `axis`, which must have extent 1; all such axes by default. A view."""
    return view("squeeze", x, squeeze_lens, axis)


def broadcast_to(x: Array, /, shape: Sequence[int] | int) -> Array:
    """Return `x` seen as an array of `shape`. A read-only view; only the elements of `x` exist and travel."""
    return view("broadcast_to", x, broadcast_lens, parse_shape(shape))


def broadcast_shapes(*shapes: Any) -> Shape:
    """Return the shape to which arrays of these shapes broadcast."""
    return _broadcast_shapes(*map(parse_shape, shapes)) if shapes else ()


def sliced(node: Expr, axis: int, start: int, length: int, step: int = 1) -> Expr:
    """Return `length` elements from `start` on along an axis; with step 0 one element again and again. Nothing is
    checked.
    """
    return bind_get(node, slice_lens(node.shape, axis % node.ndim, start, length, step))


def slice_at(node: Expr, axis: int, i: int) -> Expr:
    """Return the slice at `i` of an axis, which it does not have. Nothing is checked."""
    return bind_get(node, slice_lens(node.shape, axis % node.ndim, i, 1).squeezed((axis % node.ndim,)))


def at_least(ndim: int, x: Array) -> Array:
    """Return an array with `ndim` axes at least, one to three, as numpy adds them. A view."""
    return view(f"atleast_{ndim}d", x, atleast_lens, ndim)


# -------------------------------------------------------------------------------------------------------------- reshape


def resolve_shape(old: Shape, new: Any) -> Shape:
    """Return the shape `new` for the elements of an array of shape `old`, its -1 replaced.

    Raises
    ------
    ValueError
        If the sizes differ, or there are several -1; numpy's text.
    """
    shape = given = integers(new, "shape", truths=False)
    check_ndim(len(shape))
    size = math.prod(old)
    unknown = [i for i, n in enumerate(shape) if n < 0]
    if len(unknown) > 1:
        raise ValueError(f"can only specify one unknown dimension, not shape={given}")
    if unknown:
        known = math.prod(n for n in shape if n >= 0)
        if known and size % known == 0:
            shape = tuple(size // known if n < 0 else n for n in shape)  # whatever is negative is unknown
    if math.prod(shape) != size or (unknown and min(shape) < 0):
        raise ValueError(f"cannot reshape array of size {size} into shape {str(given).replace(' ', '')}")
    return shape


def reshape(x: Array, /, shape: Any) -> Array:
    """Return the elements of `x` in the same order with another shape; one extent may be -1."""
    node, box = one_array("reshape", x)
    return box(bind_reshape(node, resolve_shape(node.shape, shape)))


def ravel(a: Array) -> Array:
    """Return the elements of `a` in one axis."""
    node, box = one_array("ravel", a)
    return box(bind_reshape(node, (node.size,)))


# ------------------------------------------------------------------------------------------------- diagonals, triangles


def diag(v: Array, k: int = 0) -> Array:
    """Return the `k`-th diagonal of a matrix (a view), or the matrix with the vector `v` on it."""
    if np.ndim(v) == 1:
        return _with_diagonal(v, integer(k, "k"))
    node, box = one_array("diag", v)
    if node.ndim != 2:
        raise ValueError("Input must be 1- or 2-d.")
    return box(bind_get(node, diagonal_lens(node.shape, k)))


@ready_made(1)
def _with_diagonal(v: Array, k: int) -> Array:
    """Return the matrix with a vector on its `k`-th diagonal and zeros elsewhere."""
    node, box = one_array("diag", v)
    n = node.shape[0] + abs(k)
    zeros = constant((n, n), 0, node.dtype, node.env)
    return box(bind_put(zeros, diagonal_lens((n, n), k), node) if node.shape[0] else zeros)


def diagflat(v: Array, k: int = 0) -> Array:
    """Return the matrix with the elements of `v` on its `k`-th diagonal."""
    return diag(ravel(v), k)


@ready_made(1)
def tril(x: Array, /, k: int = 0) -> Array:
    """Return `x` with zeros above the `k`-th diagonal of its last two axes."""
    return _triangle("tril", x, k)


@ready_made(1)
def triu(x: Array, /, k: int = 0) -> Array:
    """Return `x` with zeros below the `k`-th diagonal of its last two axes."""
    return _triangle("triu", x, k)


def _triangle(name: str, x: Array, k: int) -> Array:
    node, box = one_array(name, x)
    if node.ndim == 0:
        raise TypeError(f"{name}: the array needs at least one axis")
    if node.ndim == 1:
        # numpy: a vector is every row of a square matrix
        node = bind_get(node, broadcast_lens(node.shape, (node.shape[0], node.shape[0])))
    k = diagonal(k, less=0 if name == "tril" else 1)
    mask = bind_create(TRI, node.shape[-2:], np.dtype(bool), node.env, (), k)
    zero: Any = constant((), 0, node.dtype, node.env) if node.dtype.kind in "mM" else node.dtype.type(0).item()
    return box(where(mask, node, zero) if name == "tril" else where(mask, zero, node))
