"""Lenses: a view as a pair of functions (get, put) between a base and what the user holds.

A `Lens` is a normalised tuple of links: `Affine` for everything that reads elements at affine indices, `Reshape`,
`Component` and `Bits` for what is not affine. The array layer composes them onto the base of a handle. What numpy would
do, alias or copy, is asked of numpy itself, on arrays without memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Literal, TypeAlias

import numpy as np

from distarray.expr.affine import Affine, Block, namespace, restored, touched
from distarray.sharding.layout import c_layout, layout_of
from distarray.types import DType

__all__ = [
    "Affine",
    "Bits",
    "Component",
    "Lens",
    "Link",
    "Reshape",
    "Sliding",
    "axes_in_memory",
    "compose",
    "get",
    "in_memory",
    "is_in_order",
    "is_unit_axes",
    "kept_order",
    "layout_through",
    "lens_dtype",
    "lens_shape",
    "put",
    "reshape_groups",
    "reshape_is_view",
    "shares_memory",
    "strided_dummy",
    "touched",
    "unit_axes",
    "windows_of",
]


@dataclass(frozen=True, slots=True)
class Reshape:
    """A Reshape is the link of ``reshape`` in C order."""

    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Component:
    """A Component is the link of ``.real`` or ``.imag`` of a complex array."""

    part: Literal["real", "imag"]


@dataclass(frozen=True, slots=True)
class Bits:
    """A Bits is the link of ``view(dtype)`` where elements keep their size: the bits of each as a number of another
    dtype.
    """

    dtype: str


@dataclass(frozen=True, slots=True)
class Sliding:
    """A Sliding is the link of ``sliding_window_view``: every window of some axes, whose extents come as new last axes.

    Parameters
    ----------
    window
        Extent of each window axis.
    axes
        The axis that each slides along.
    shape
        Of the view.
    """

    window: tuple[int, ...]
    axes: tuple[int, ...]
    shape: tuple[int, ...]


Link: TypeAlias = Affine | Reshape | Component | Bits | Sliding

#: Links from the base outwards: first those that act on each element, `Component` and `Bits`, then the others;
#: neighbours that are one are joined. Behind a `Sliding` nothing can be written.
Lens: TypeAlias = tuple[Link, ...]

#: They commute with all other links: real . get = get . real.
_ON_ELEMENTS = (Component, Bits)


def lens_dtype(base_dtype: DType, lens: Lens) -> DType:
    """Return the dtype of the view that `lens` makes of a base."""
    dtype = base_dtype
    for link in lens:
        if type(link) is Component:
            dtype = np.empty(0, dtype).real.dtype
        elif type(link) is Bits:
            dtype = np.dtype(link.dtype)
        else:
            break
    return dtype


def lens_shape(base_shape: tuple[int, ...], lens: Lens) -> tuple[int, ...]:
    """Return the shape of the view that `lens` makes of a base."""
    for link in lens[::-1]:
        if not isinstance(link, _ON_ELEMENTS):
            return link.shape
    return base_shape


def unit_axes(source_shape: tuple[int, ...], shape: tuple[int, ...]) -> Affine | None:
    """Return a reshape that only drops and adds axes of one element, as an Affine; else None."""
    if [n for n in source_shape if n != 1] != [n for n in shape if n != 1]:
        return None
    places = iter([axis for axis, n in enumerate(shape) if n != 1])
    return Affine(shape, tuple([(next(places), 0, 1) if n != 1 else (None, 0, 0) for n in source_shape]))


def is_unit_axes(affine: Affine, source_shape: tuple[int, ...]) -> bool:
    """Return whether the lens only drops and adds axes of one element."""
    expected = unit_axes(source_shape, affine.shape)
    if expected is None:
        return False
    return all(n == 1 or a == b for n, a, b in zip(source_shape, affine.terms, expected.terms))


def compose(base_shape: tuple[int, ...], lens: Lens, link: Link) -> Lens:
    """Return `lens` followed by `link`, normalised.

    Parameters
    ----------
    base_shape
        Shape of the base.
    lens
        Normalised; ``()`` is the base itself.
    link
        Acts on the view that `lens` makes.

    Returns
    -------
    Lens
        Equal chains become one: adjacent Affines compose, of adjacent Reshapes the last stays, a Reshape that only adds
        and drops axes of one element is an Affine, identities vanish. ``()`` if nothing is left.
    """
    if not lens and type(link) is Affine:  # what most views are
        return () if link.is_identity(base_shape) else (link,)
    if isinstance(link, _ON_ELEMENTS):
        n = sum(isinstance(each, _ON_ELEMENTS) for each in lens)
        # bits(b) . bits(a) -> bits(b)
        before = lens[: n - 1] if n and type(link) is type(lens[n - 1]) is Bits else lens[:n]
        return (*before, link, *lens[n:])
    if isinstance(link, Sliding):
        return (*lens, link)
    last = lens[-1] if lens else None
    if isinstance(link, Affine):
        if isinstance(last, Affine):
            # get(b) . get(a) -> get(a . b)
            return _append(base_shape, lens[:-1], last.compose(link))
        return _append(base_shape, lens, link)
    if isinstance(last, Reshape) or (
        # What only drops and adds axes of one element is undone by any reshape.
        isinstance(last, Affine) and is_unit_axes(last, lens_shape(base_shape, lens[:-1]))
    ):
        # reshape(t) . reshape(s) -> reshape(t)
        return compose(base_shape, lens[:-1], link)
    affine = unit_axes(lens_shape(base_shape, lens), link.shape)
    return (*lens, link) if affine is None else compose(base_shape, lens, affine)


def _append(base_shape: tuple[int, ...], lens: Lens, affine: Affine) -> Lens:
    source_shape = lens_shape(base_shape, lens)
    if affine.is_identity(source_shape):
        return lens
    if lens and isinstance(lens[-1], Reshape) and is_unit_axes(affine, source_shape):
        # expand . reshape(s) -> reshape(expanded s)
        return compose(base_shape, lens[:-1], Reshape(affine.shape))
    return (*lens, affine)


def layout_through(link: Link, layout: tuple[int, ...]) -> tuple[int, ...]:
    """Return the order of axes of a layout seen through a link of a lens."""
    if isinstance(link, _ON_ELEMENTS):
        return layout
    if type(link) is not Affine:
        return c_layout(len(link.shape))
    # Outer axes have larger strides; a dummy of a few elements per axis shows the order through the view.
    strides = [0] * len(layout)
    for place, axis in enumerate(reversed(layout)):
        strides[axis] = 2**place
    seen = [0] * len(link.shape)
    for (at, _, _), stride in zip(link.terms, strides):
        if at is not None:
            seen[at] += stride
    return layout_of(link.shape, seen)


def get(lens: Lens, array: Block) -> Block:
    """Return the view of a whole base, a copy only where a reshape needs one."""
    for link in lens:
        if isinstance(link, Affine):
            array = link.read(array)
        elif isinstance(link, Reshape):
            array = namespace(array).reshape(array, link.shape)
        elif isinstance(link, Sliding):
            array = windows_of(array, link.window, link.axes)
        else:
            array = _component(array, link)
    return array


def windows_of(array: Block, window: tuple[int, ...], axes: tuple[int, ...]) -> Block:
    """Return every window of a block; a view of numpy's."""
    if isinstance(array, np.ndarray):
        return np.lib.stride_tricks.sliding_window_view(array, window, axes)
    xp = namespace(array)
    for n, axis in zip(window, axes, strict=True):
        m = array.shape[axis] - n + 1
        parts = [array[(*(slice(None),) * axis, slice(k, k + m), ...)] for k in range(n)]
        array = xp.stack(parts, axis=-1)
    return array


def put(lens: Lens, array: Block, value: Block) -> Block:
    """Return a new base that differs from `array` in the view only, which becomes `value`.

    Parameters
    ----------
    value
        Of the view's shape, or broadcasting to it.

    Raises
    ------
    ValueError
        If the view repeats elements.
    """
    xp = namespace(array)
    if not lens:
        out = xp.empty_like(array)
        out[...] = value
        return out
    link, rest = lens[0], lens[1:]
    if isinstance(link, Sliding):
        raise ValueError("assignment destination is read-only: windows share elements")
    if isinstance(link, Reshape):
        inner = put(rest, xp.reshape(array, link.shape), value)
        return xp.reshape(inner, array.shape)
    out = array.copy() if hasattr(array, "copy") else xp.asarray(array, copy=True)
    if isinstance(link, Affine):
        inner = value if not rest else put(rest, link.read(array), value)
        link.write(out, inner)
    else:
        inner = value if not rest else put(rest, _component(array, link), value)
        _component(out, link)[...] = inner
    return out


def _component(array: Block, link: Component | Bits) -> Block:
    if isinstance(link, Bits):
        return array.view(np.dtype(link.dtype))
    if not hasattr(array, link.part):
        # The standard has the functions only, which promise no view.
        xp = namespace(array)
        return xp.real(array) if link.part == "real" else xp.imag(array)
    return array.real if link.part == "real" else array.imag


def reshape_groups(old: tuple[int, ...], new: tuple[int, ...]) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]:
    """Return the finest grouping of axes such that a reshape acts inside each group.

    Each entry is (axes of the old shape, axes of the new shape) with equal products; axes of extent 1 join a neighbour.

    >>> reshape_groups((2, 3, 4), (6, 4))
    (((0, 1), (0,)), ((2,), (1,)))
    """
    if 0 in old:
        return ((tuple(range(len(old))), tuple(range(len(new)))),)
    groups: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    i = j = 0
    while i < len(old) or j < len(new):
        a: list[int] = []
        b: list[int] = []
        p = q = 1
        if i < len(old):
            p *= old[i]
            a.append(i)
            i += 1
        if j < len(new):
            q *= new[j]
            b.append(j)
            j += 1
        while p != q:
            if p < q:
                p *= old[i]
                a.append(i)
                i += 1
            else:
                q *= new[j]
                b.append(j)
                j += 1
        if (not a or not b) and groups:  # trailing axes of extent 1
            x, y = groups.pop()
            groups.append((x + tuple(a), y + tuple(b)))
        else:
            groups.append((tuple(a), tuple(b)))
    return tuple(groups)


# What numpy would do, asked of numpy itself on arrays without memory.

#: Complex, so that components have their strides; never dereferenced beyond its one element.
_BUFFER = np.zeros(1, np.complex64)


def strided_dummy(base_shape: tuple[int, ...], lens: Lens = ()) -> np.ndarray[Any, Any]:
    """Return an array with the shape and strides that numpy's view of a C-ordered base has; its elements must not be
    read.

    A reshape for which numpy would copy gives the strides of the copy.
    """
    strides = []
    step = _BUFFER.itemsize
    for n in reversed(base_shape):
        strides.append(step)
        step *= n
    if step == 0:
        dummy = np.empty(base_shape, _BUFFER.dtype)  # whose strides numpy chooses
    else:
        dummy = np.lib.stride_tricks.as_strided(_BUFFER, base_shape, strides[::-1])
    for i, link in enumerate(lens):
        if isinstance(link, Bits):
            continue  # which changes no stride
        if isinstance(link, Reshape):
            try:
                dummy = dummy.reshape(link.shape, copy=False)
            except ValueError:
                return strided_dummy(link.shape, lens[i + 1 :])
        else:
            dummy = get((link,), dummy)
    return dummy


def kept_order(operands: Sequence[np.ndarray[Any, Any]]) -> tuple[int, ...] | None:
    """Return the axes, outermost first, in the order in which numpy lays the result of an elementwise operation on
    arrays, whose elements are not read; None where that is C order.
    """
    # The order of the operands ("K"), which two elements along each axis tell.
    few = [np.lib.stride_tricks.as_strided(x, [min(n, 2) for n in x.shape], x.strides) for x in operands]
    made = np.nditer([*few, None], ["zerosize_ok"], order="K").operands[-1]
    order = axes_in_memory(made)
    long = [a for a in order if made.shape[a] > 1]
    return None if long == sorted(long) else order


def is_in_order(strides: tuple[int, ...]) -> bool:
    """Return whether the axes of an array come in the order in which they are in memory, none of them broadcast."""
    if len(strides) == 2:
        return abs(strides[0]) >= abs(strides[1])
    found = [abs(stride) for stride in strides]
    return found == sorted(found, reverse=True)


def axes_in_memory(array: np.ndarray[Any, Any]) -> tuple[int, ...]:
    """Return the axes of an array of numpy's, the outermost in memory first."""
    strides = array.strides
    return tuple(sorted(range(len(strides)), key=lambda axis: -abs(strides[axis])))


def in_memory(array: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], Affine | None]:
    """Return an array of numpy's with its axes in the order of memory, and the lens that it is seen through; None where
    they are in it.
    """
    axes = axes_in_memory(array)
    if axes == tuple(range(array.ndim)):
        return array, None
    inner = array.transpose(axes)
    return inner, restored(inner.shape, axes)


def reshape_is_view(base_shape: tuple[int, ...], lens: Lens, shape: tuple[int, ...]) -> bool:
    """Return whether ``reshape(shape)`` of a view of a C-ordered base aliases it in numpy (B-35).

    Handles that are pinned copies are bases of their own: ask with their shape and the empty lens.

    Raises
    ------
    ValueError
        If the sizes differ; numpy's text.
    """
    own = lens_shape(base_shape, lens)
    if prod(own) != prod(shape):
        raise ValueError(f"cannot reshape array of size {prod(own)} into shape {shape}")
    if not lens:
        return True
    try:
        strided_dummy(base_shape, lens).reshape(shape, copy=False)
    except ValueError:
        return False
    return True


def shares_memory(base_shape: tuple[int, ...], a: Lens, b: Lens) -> bool:
    """Return whether two views of one base have an element in common.

    A reshape for which numpy would copy shares nothing but with itself; ask with lenses of views only.
    """
    return bool(np.shares_memory(strided_dummy(base_shape, a), strided_dummy(base_shape, b)))
