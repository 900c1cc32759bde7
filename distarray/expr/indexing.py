"""Indices: what ``x[index]`` means, with numpy's semantics, before anything is planned.

The array layer and ``ops`` parse every index here, for reading and for writing. An index of integers, slices, ``None``
and ``...`` is `Basic`: one `Affine`. An index with arrays is `Advanced`: an `Affine` that leaves whole the axes that
arrays run over, those arrays, and where numpy puts their axes in the result. Arrays that are no numpy arrays are never
looked into: only their ``shape`` and ``dtype`` are read. Errors are numpy's, raised here.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from distarray.arguments import check_ndim, naming, shown
from distarray.expr.affine import Affine, Term, ViewSteps
from distarray.expr.broadcasting import broadcast_shapes

#: What users write between the brackets: anything.
Index: TypeAlias = Any

#: An array of integers or booleans, of numpy or opaque: whatever has ``shape`` and ``dtype``.
IndexArray: TypeAlias = Any

_INVALID = (
    "only integers, slices (`:`), ellipsis (`...`), numpy.newaxis (`None`) and integer or boolean arrays are valid "
    "indices"
)


class Basic(NamedTuple):
    """A Basic is an index that is one lens.

    Attributes
    ----------
    affine
        From the indexed array to the result.
    is_view
        Whether numpy gives a view. It gives a copy, a scalar for a result of no axes, where every axis has an integer
        and there is no ``...``, and where an integer is a 0-d array.
    """

    affine: Affine
    is_view: bool

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the result."""
        return self.affine.shape

    @property
    def ndim(self) -> int:
        """Return the number of axes of the result."""
        return len(self.affine.shape)


@dataclass(frozen=True, slots=True, eq=False)
class Advanced:
    """An Advanced is an index with arrays: gather and scatter.

    The result has the axes of `affine`'s view that no array runs over, in order, and in their midst, at `position`, the
    broadcast axes of the arrays.

    Attributes
    ----------
    affine
        From the indexed array to the basic view, in which the axes that arrays run over are whole.
    arrays
        ``(axis in the basic view, array)`` in ascending order of axes. An integer array runs over that axis, a mask of
        `m` axes over that axis and the ``m - 1`` after it. Integer arrays of numpy are copies, checked and
        not negative; those of others are as they came. Masks stay masks: see `without_masks`.
    position
        Where in the result the broadcast axes stand.
    before, after
        Shapes of the axes of the result before and after them.
    index_shape
        The broadcast shape of the arrays; None while there is a mask, whose count is data.
    """

    affine: Affine
    arrays: tuple[tuple[int, IndexArray], ...]
    position: int
    before: tuple[int, ...] = field(init=False)
    after: tuple[int, ...] = field(init=False)
    index_shape: tuple[int, ...] | None = field(init=False)

    def __post_init__(self) -> None:
        over = set(self.axes)
        rest = [n for axis, n in enumerate(self.affine.shape) if axis not in over]
        masked = any(is_mask(array) for _, array in self.arrays)
        shape = None if masked else broadcast_index_shapes([array.shape for _, array in self.arrays])
        object.__setattr__(self, "before", tuple(rest[: self.position]))
        object.__setattr__(self, "after", tuple(rest[self.position :]))
        object.__setattr__(self, "index_shape", shape)
        check_ndim(self.ndim, IndexError)

    @property
    def axes(self) -> tuple[int, ...]:
        """Return the axes of the basic view that arrays run over, masks with all of theirs."""
        return tuple(axis + i for axis, array in self.arrays for i in range(len(array.shape) if is_mask(array) else 1))

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Return the shape of the result; None while there is a mask."""
        return None if self.index_shape is None else (*self.before, *self.index_shape, *self.after)

    @property
    def ndim(self) -> int:
        """Return the number of axes of the result; a mask is as positions in one axis."""
        own = max([1 if is_mask(array) else len(array.shape) for _, array in self.arrays])
        return len(self.before) + own + len(self.after)

    def with_arrays(self, arrays: Iterable[tuple[int, IndexArray]]) -> Advanced:
        """Return the index with its masks replaced by integer arrays, one for each axis of a mask.

        Raises
        ------
        IndexError
            If the arrays do not broadcast.
        """
        return Advanced(self.affine, tuple(sorted(arrays, key=operator.itemgetter(0))), self.position)

    def without_masks(self, nonzero: Callable[[Any], Iterable[IndexArray]]) -> Advanced:
        """Return the index with its masks replaced by what `nonzero` gives of each: one array for each of its axes."""
        found: list[tuple[int, IndexArray]] = []
        for axis, array in self.arrays:
            each = nonzero(array) if is_mask(array) else (array,)
            found += [(axis + i, where) for i, where in enumerate(each)]
        return self.with_arrays(found)


def is_mask(array: IndexArray) -> bool:
    """Return whether an index array is one of truths."""
    return getattr(array.dtype, "kind", None) == "b"


def broadcast_index_shapes(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Return the common shape of index arrays.

    Raises
    ------
    IndexError
        If there is none; numpy's text.
    ValueError
        If it has more elements than 64 bits count.
    """
    try:
        shape = broadcast_shapes(*shapes)
    except ValueError:
        text = " ".join(str(tuple(shape)).replace(", ", ",") for shape in shapes)
        raise IndexError(
            f"shape mismatch: indexing arrays could not be broadcast together with shapes {text}"
        ) from None
    if prod(shape) > np.iinfo(np.intp).max:
        raise ValueError(f"index arrays: a common shape of {shape} is too large: 64 bits do not count its elements")
    return shape


def check_indices(indices: np.ndarray[Any, Any], size: int, axis: int) -> np.ndarray[Any, np.dtype[np.intp]]:
    """Return integer indices along an axis, checked and wrapped: in ``range(size)``.

    Parameters
    ----------
    indices
        Integers of any type and shape.
    size
        Extent of the axis.
    axis
        Named in the error.

    Returns
    -------
    ndarray of intp
        New: an index is read at the call, whatever its owner writes to it later.

    Raises
    ------
    IndexError
        Naming the first index out of bounds; numpy's text.
    """
    signed = indices.astype(np.intp)  # the largest unsigned ones count from the end, as in numpy
    if not are_positions(signed, size, axis):
        signed[signed < 0] += size
    return signed


#: More than any extent.
_BEYOND = 1 << 63


def highest_position(indices: np.ndarray[Any, Any]) -> int:
    """Return the highest of some indices of a signed type if none is negative; else a number above all extents. One
    pass: as unsigned numbers the negative ones are the highest.
    """
    if not indices.size:
        return -1
    if indices.dtype != np.int64:
        return int(indices.max()) if indices.min() >= 0 else _BEYOND
    return int(indices.view(np.uint64).max())


def are_positions(indices: np.ndarray[Any, Any], size: int, axis: int) -> bool:
    """Return whether signed indices along an axis all count from the front; the parameters are those of
    `check_indices`.

    Raises
    ------
    IndexError
        Naming the first index out of bounds; numpy's text.
    """
    if highest_position(indices) < size:
        return True
    low, high = int(indices.min()), int(indices.max())
    if low < -size or high >= size:
        bad = indices[(indices < -size) | (indices >= size)].flat[0]
        raise IndexError(f"index {bad} is out of bounds for axis {axis} with size {size}")
    return low >= 0


#: By shape, slices and integers what they mean: loops have the same over and over, and what a lens has prepared of them
#: is kept with it.
_known: dict[tuple[Any, ...], Basic | Advanced] = {}
MOST_KNOWN = 4096


def parse_index(index: Index, shape: tuple[int, ...]) -> Basic | Advanced:
    """Return what ``x[index]`` means for an `x` of this shape.

    Raises
    ------
    IndexError, TypeError, ValueError
        What numpy raises for the index, with the axis, the index and the extent. What only the contents of opaque
        arrays can show (bounds, counts of masks) is left to whoever reads them.

    Examples
    --------
    >>> parse_index((slice(1, -1), 2), (6, 4))
    Basic(affine=Affine(shape=(4,), terms=((0, 1, 1), (None, 2, 0))), is_view=True)
    >>> parse_index((0, slice(None), [3, -1]), (2, 3, 4)).shape   # separated by a slice: index axes first
    (2, 3)
    """
    known = known_index(index, shape)
    return _parse_general(index if isinstance(index, tuple) else (index,), shape) if known is None else known


def known_index(index: Index, shape: tuple[int, ...]) -> Basic | Advanced | None:
    """Return what `parse_index` does of slices and integers alone, which is looked up; None for any other index."""
    items = index if type(index) is tuple else (index,)
    key: list[Any] = [shape]
    for item, size in zip(items, shape):
        if type(item) is slice:
            key.append(item.indices(size))
        elif type(item) is int:
            key.append(item)
        else:
            return None
    if len(items) > len(shape):
        return None
    known = _known.get(found := tuple(key))
    if known is None:
        known = _parse_plain(key, shape)
        if len(_known) >= MOST_KNOWN:
            _known.clear()
        _known[found] = known
    return known


def _parse_plain(key: Sequence[Any], shape: tuple[int, ...]) -> Basic:
    """Return what slices and integers mean, by their key in `_known`, with its steps on blocks.

    Many a loop has an index once, as ``x[i, :i]``: this takes half of the time of `Affine.read_indices`.
    """
    view: list[int] = []
    terms: list[Term] = []
    cut: list[Any] = []
    for axis, (item, size) in enumerate(zip(key[1:], shape)):
        if type(item) is int:
            if not -size <= item < size:
                raise IndexError(f"index {item} is out of bounds for axis {axis} with size {size}")
            at = item + size if item < 0 else item
            terms.append((None, at, 0))
            cut.append(at)
            continue
        start, stop, step = item
        n = len(range(start, stop, step))
        if n < 2:
            step = 1
        terms.append((len(view), start, step))
        view.append(n)
        if n == 0:
            cut.append(slice(0, 0, 1))
        else:
            stop = start + step * (n - 1) + (1 if step > 0 else -1)
            cut.append(slice(start, stop if stop >= 0 else None, step))
    for size in shape[len(terms) :]:
        terms.append((len(view), 0, 1))
        view.append(size)
    # The ellipsis makes a 0-d array, not a scalar that forgot its block.
    cut.append(...)
    steps = ViewSteps(tuple(cut), (), None, None, None)
    return Basic(Affine(tuple(view), tuple(terms), steps), bool(view))


def _plain(item: Index) -> tuple[Index, int]:
    """Return an item as a slice, int, None, Ellipsis or array, and how many axes of the indexed array it takes."""
    given = item
    if item is None or item is Ellipsis:
        return item, 0
    if type(item) is slice or type(item) is int:
        return item, 1
    if isinstance(item, bool | np.bool_):
        # A boolean without axes takes none: it is a mask of one over a new axis.
        return np.array([item]), 0
    if isinstance(item, int) or (isinstance(item, np.integer) and item.dtype.kind != "m"):  # as time spans are there
        return int(item), 1
    if not (hasattr(item, "shape") and hasattr(item, "dtype")):
        try:
            return operator.index(item), 1
        except TypeError:
            with naming(index=given):
                item = np.asarray(item)
        if item.size == 0 and item.ndim:
            # numpy's empty list of floats indexes nothing
            return item.astype(np.intp), 1
        if item.dtype.kind not in "biu":
            raise IndexError(f"{_INVALID}, not {shown(given)}")
    kind = getattr(item.dtype, "kind", None)
    if kind == "b":
        return (item, len(item.shape)) if item.shape else (item[None], 0)
    if kind in ("i", "u"):
        return item, 1
    raise IndexError(f"arrays used as indices must be of integer (or boolean) type, not {item.dtype}")


def _fitting_mask(mask: IndexArray, shape: tuple[int, ...], axis: int) -> Sequence[IndexArray]:
    """Return a mask over the axes of `shape` from `axis` on: itself, or what stands for it, one index array per axis.

    Raises
    ------
    IndexError
        If an extent of it is neither that of the axis nor 0.
    """
    extents = shape[axis : axis + len(mask.shape)]
    for i, (n, m) in enumerate(zip(extents, mask.shape, strict=True)):
        if m not in (0, n):
            raise IndexError(
                f"boolean index did not match indexed array along axis {axis + i}; "
                f"size of axis is {n} but size of corresponding boolean axis is {m}"
            )
    # As in numpy a mask that has no elements fits any axis, and picks nothing of it.
    return (mask,) if mask.shape == extents else [np.empty(0, np.intp)] * len(extents)


def _picks_nothing(arrays: Sequence[IndexArray]) -> bool:
    """Return whether index arrays have no element in common; of masks that are not numpy's nobody knows here."""
    if any(0 in array.shape for array in arrays):
        return True
    return any(isinstance(array, np.ndarray) and is_mask(array) and not array.any() for array in arrays)


def _parse_general(items: tuple[Index, ...], shape: tuple[int, ...]) -> Basic | Advanced:
    plain: list[tuple[Index, int]] = []
    ellipsis = None
    for given in items:
        if given is Ellipsis:
            if ellipsis is not None:
                raise IndexError("an index can only have a single ellipsis ('...')")
            ellipsis = len(plain)
        plain.append(_plain(given))
    ndim = len(shape)
    taken = sum([n for _, n in plain])
    if taken > ndim:
        raise IndexError(f"too many indices for array: array is {ndim}-dimensional, but {taken} were indexed")
    if ellipsis is None:
        plain.append((Ellipsis, ndim - taken))
    else:
        plain[ellipsis] = (Ellipsis, ndim - taken)

    view: list[int] = []
    terms: list[Term] = []
    arrays: list[tuple[int, IndexArray]] = []
    extents: list[tuple[int, int]] = []  # which of the arrays are of integers, and the axes of `shape` that they index
    has_scalar_array = False
    # numpy puts the index axes where the arrays stand, unless something stands between two of them; integers count as
    # arrays here, and so does a `...` of no axes as something between.
    runs: list[int] = []  # for each run of neighbouring arrays and integers, the axes of the result before it
    kept = 0
    in_run = False
    for item, takes in plain:
        axis = len(terms)
        is_index = item is not None and item is not Ellipsis and type(item) is not slice
        if is_index and not in_run:
            runs.append(kept)
        in_run = is_index
        if item is None:
            view.append(1)
            kept += 1
        elif item is Ellipsis:
            for a in range(axis, axis + takes):
                terms.append((len(view), 0, 1))
                view.append(shape[a])
            kept += takes
        elif type(item) is slice:
            start, stop, step = item.indices(shape[axis])
            n = len(range(start, stop, step))
            terms.append((len(view), start, step if n > 1 else 1))
            view.append(n)
            kept += 1
        elif (is_integer := isinstance(item, int)) or (isinstance(item, np.ndarray) and item.shape == ()):
            has_scalar_array |= not is_integer
            at, size = int(item), shape[axis]
            if not -size <= at < size:
                raise IndexError(f"index {at} is out of bounds for axis {axis} with size {size}")
            terms.append((None, at + size if at < 0 else at, 0))
        elif takes == 0:
            arrays.append((len(view), item))
            view.append(1)
        else:
            if is_mask(item):
                arrays += [(len(view) + i, part) for i, part in enumerate(_fitting_mask(item, shape, axis))]
            else:
                arrays.append((len(view), item))
                extents.append((len(arrays) - 1, axis))
            for a in range(axis, axis + takes):
                terms.append((len(view), 0, 1))
                view.append(shape[a])
    affine = Affine(tuple(view), tuple(terms))
    if not arrays:
        check_ndim(len(view), IndexError)
        return Basic(affine, not has_scalar_array and (bool(view) or ellipsis is not None))
    is_nothing = bool(extents) and _picks_nothing([array for _, array in arrays])
    for i, axis in extents:
        at, array = arrays[i]
        if is_nothing and array.shape:  # numpy looks at no index then, not even at one out of bounds
            arrays[i] = at, np.zeros(array.shape, np.intp)
        elif isinstance(array, np.ndarray):
            arrays[i] = at, check_indices(array, shape[axis], axis)
    return Advanced(affine, tuple(arrays), runs[0] if len(runs) == 1 else 0)
