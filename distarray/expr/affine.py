"""Affine lenses: views whose every element is one element of the source, at affine indices.

`Affine` is the one class for slices, integers, flips, permutations, new axes, broadcasts and diagonals: they compose to
one `Affine`, however long the chain. Stages read operands through them, `lower` maps boxes of a view to boxes of
tiles, `distarray.expr.lens` chains them with what is not affine. Everything here is pure and works on shapes; `read`
and `write` take blocks of any namespace.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from types import EllipsisType
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from distarray.arguments import check_ndim
from distarray.sharding.boxes import Box, full, intersect, normalise

#: An array of numpy, cupy or array_api_strict; their common protocol has no type, hence Any.
Block: TypeAlias = Any

#: How one source axis is read: (view axis, start, step), or (None, start, 0) where the index is fixed.
Term: TypeAlias = tuple[int | None, int, int]

_EMPTY = range(0)


class ViewSteps(NamedTuple):
    """ViewSteps are the steps that make the view of a block, in order; None or empty where there is nothing to do."""

    key: tuple[int | slice | EllipsisType, ...]
    diagonals: tuple[tuple[int, int], ...]
    transpose: tuple[int, ...] | None
    expand: tuple[slice | None, ...] | None
    broadcast: tuple[int, ...] | None

    @property
    def is_key(self) -> bool:
        """Return whether slices and integers are all there is, so that no element comes twice."""
        return self.expand is None and self.transpose is None and not self.diagonals


class Affine:
    """An Affine is a view of a source array whose every element is one of the source, by affine indices.

    Immutable and hashable. The element of the view at `v` is the element of the source at ``start + step * v[axis]``
    along each source axis (at `start` where `axis` is None). A view axis in no term is new or broadcast; two terms
    with one axis make a diagonal.

    Parameters
    ----------
    shape
        Shape of the view.
    terms
        One per *source* axis: ``(axis, start, step)`` with ``step != 0``, or ``(None, start, 0)``.
    reading
        The steps of `read`, where they are known.

    Notes
    -----
    Steps are kept as 1 along axes with fewer than two elements, so that equal views are mostly equal lenses.
    Axes given to the methods are non-negative and in range: they were normalised where the user's input entered.
    """

    __slots__ = ("_reading", "shape", "terms")

    shape: tuple[int, ...]
    terms: tuple[Term, ...]
    _reading: ViewSteps | None

    def __init__(self, shape: tuple[int, ...], terms: tuple[Term, ...], reading: ViewSteps | None = None) -> None:
        # The slots' own setters pass the guard of __setattr__ at a third of the price of object.__setattr__.
        _set_shape(self, shape)
        _set_terms(self, terms)
        _set_reading(self, reading)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"Affine is immutable; {name!r} cannot be set")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Affine):
            return NotImplemented
        return self.terms == other.terms and self.shape == other.shape

    def __hash__(self) -> int:
        return hash((self.shape, self.terms))

    def __reduce__(self) -> tuple[type[Affine], tuple[tuple[int, ...], tuple[Term, ...]]]:
        return Affine, (self.shape, self.terms)

    def __repr__(self) -> str:
        return f"Affine(shape={self.shape}, terms={self.terms})"

    @staticmethod
    def identity(shape: tuple[int, ...]) -> Affine:
        """Return the lens of the whole array."""
        return Affine(shape, _identity_terms(len(shape)))

    def is_identity(self, source_shape: tuple[int, ...]) -> bool:
        """Return whether the view is the source, element for element."""
        shape = self.shape
        if shape != source_shape:
            return False
        if self.terms == _identity_terms(len(shape)) or 0 in shape:
            return True
        # Along an axis of one element any term is the identity.
        return all(n == 1 or term == (i, 0, 1) for i, (n, term) in enumerate(zip(shape, self.terms)))

    @property
    def is_in_order(self) -> bool:
        """Return whether the axes of the view come in the order of those of the source."""
        last = 0
        for axis, _, _ in self.terms:
            if axis is not None:
                if axis < last:
                    return False
                last = axis
        return True

    def permutation(self, source_shape: tuple[int, ...]) -> tuple[int, ...] | None:
        """Return which axis of the view each axis of the source is, if the view does nothing but permute them: it is
        neither flipped, sliced, broadcast nor a diagonal.
        """
        permuted = tuple([axis for axis, _, _ in self.terms if axis is not None])
        # The terms of fixed indices have step 0.
        if self.terms != tuple([(a, 0, 1) for a in permuted]) or sorted(permuted) != list(range(len(self.shape))):
            return None
        return permuted if source_shape == tuple([self.shape[a] for a in permuted]) else None

    @property
    def is_injective(self) -> bool:
        """Return whether no two elements of the view are one element of the source, so that the view can be written."""
        used = {axis for axis, _, _ in self.terms}
        return all(n <= 1 or axis in used for axis, n in enumerate(self.shape))

    # Making views of the view. Each costs about a microsecond and gives one Affine from the source.

    def compose(self, outer: Affine) -> Affine:
        """Return the lens from the source to the view that `outer` makes of this view.

        >>> rows = Affine((4, 3), ((0, 2, 2), (1, 0, 1)))       # x[2:10:2]
        >>> rows.compose(Affine((3,), ((None, 1, 0), (0, 2, -1))))   # [1, ::-1]
        Affine(shape=(3,), terms=((None, 4, 0), (0, 2, -1)))
        """
        shape, links = outer.shape, outer.terms
        terms: list[Term] = []
        for term in self.terms:
            axis, start, step = term
            if axis is not None:
                # start + step * (outer start + outer step * w)
                axis, first, stride = links[axis]
                if axis is None:
                    term = (None, start + step * first, 0)
                elif shape[axis] > 1:
                    term = (axis, start + step * first, step * stride)
                else:
                    term = (axis, start + step * first, 1)
            terms.append(term)
        return Affine(shape, tuple(terms))

    def permuted(self, axes: Sequence[int]) -> Affine:
        """Return ``permute_dims``: axis `i` of the result is axis ``axes[i]`` of this view."""
        place: dict[int | None, int | None] = {axis: i for i, axis in enumerate(axes)}
        place[None] = None
        shape = self.shape
        return Affine(tuple([shape[a] for a in axes]), tuple([(place[a], b, c) for a, b, c in self.terms]))

    def flipped(self, axes: Sequence[int]) -> Affine:
        """Return the view in which these axes are reversed."""
        shape = self.shape
        terms = [
            (a, b + c * (shape[a] - 1), -c) if a in axes and shape[a] > 1 else (a, b, c)  # type: ignore[index]  # not None
            for a, b, c in self.terms
        ]
        return Affine(shape, tuple(terms))

    def expanded(self, axis: int) -> Affine:
        """Return ``expand_dims``: a new axis of one element at position `axis` of the result."""
        shape = self.shape
        check_ndim(len(shape) + 1)
        terms = [(a + 1, b, c) if a is not None and a >= axis else (a, b, c) for a, b, c in self.terms]
        return Affine((*shape[:axis], 1, *shape[axis:]), tuple(terms))

    def squeezed(self, axes: Sequence[int]) -> Affine:
        """Return ``squeeze``: this view without these axes, which have one element each."""
        kept = [a for a in range(len(self.shape)) if a not in axes]
        place: dict[int | None, int] = {a: i for i, a in enumerate(kept)}
        terms: list[Term] = [(place[a], b, c) if a in place else (None, b, 0) for a, b, c in self.terms]
        return Affine(tuple([self.shape[a] for a in kept]), tuple(terms))

    def broadcast(self, shape: Sequence[int]) -> Affine:
        """Return ``broadcast_to``: new leading axes, and axes of one element repeated.

        Raises
        ------
        ValueError
            If this view does not broadcast to `shape`; numpy's text.
        """
        own, shape = self.shape, tuple(shape)
        check_ndim(len(shape))
        new = len(shape) - len(own)
        if new < 0 or any(n not in (1, m) for n, m in zip(own, shape[new:])):
            raise ValueError(
                "operands could not be broadcast together with remapped shapes [original->remapped]: "
                f"{own} and requested shape {shape}"
            )
        terms: list[Term] = [
            (None, b, 0) if a is None or own[a] != shape[a + new] else (a + new, b, c) for a, b, c in self.terms
        ]
        return Affine(shape, tuple(terms))

    def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Affine:
        """Return ``numpy.diagonal``: the two axes go, their diagonal is the new last axis."""
        shape = self.shape
        low, high = max(-offset, 0), max(offset, 0)
        n = max(min(shape[axis1] - low, shape[axis2] - high), 0)
        kept = [a for a in range(len(shape)) if a not in (axis1, axis2)]
        place: dict[int | None, int] = {a: i for i, a in enumerate(kept)}
        last = len(kept)
        terms: list[Term] = []
        for a, b, c in self.terms:
            if a is None:
                terms.append((None, b, 0))
            elif a in place:
                terms.append((place[a], b, c))
            else:
                terms.append((last, b + c * (low if a == axis1 else high), c if n > 1 else 1))
        return Affine((*[shape[a] for a in kept], n), tuple(terms))

    # Boxes through the view.

    def source_box(self, view_box: Box) -> Box:
        """Return the source elements that a box of the view reads.

        Exact, except on a diagonal: there it is the smallest box around the elements. An empty box reads nothing,
        which only a source of no axes cannot say.
        """
        if not all(view_box):
            return (_EMPTY,) * len(self.terms)
        out = []
        for axis, start, step in self.terms:
            if axis is None:
                out.append(range(start, start + 1))
                continue
            r = view_box[axis]
            if step == 1:
                out.append(range(r.start + start, r.stop + start, r.step) if start else r)
            elif step > 0:
                out.append(normalise(range(start + step * r.start, start + step * r.stop, step * r.step)))
            else:
                out.append(normalise(range(start + step * r.start, start + step * r[-1] - 1, step * r.step)))
        return tuple(out)

    def view_box(self, source_box: Box) -> Box | None:
        """Return the indices of the view that read elements of a box of the source, exactly; None if there are none.

        What a write through the view changes in a tile is the image of this box.
        """
        shape = self.shape
        out = [range(n) for n in shape]
        for (axis, start, step), r in zip(self.terms, source_box):
            if axis is None:
                if start not in r:
                    return None
                continue
            n = shape[axis]
            if step == 1 and r.step == 1:
                lo, hi = max(r.start - start, 0), min(r.stop - start, n)
                own = range(lo, hi) if lo < hi else _EMPTY
            else:
                own = _preimage(start, step, n, r)
            # The terms of a diagonal meet on one axis.
            out[axis] = own if len(out[axis]) == n else intersect(out[axis], own)
        return tuple(out) if all(out) else None

    def restricted(self, view_box: Box, frame: Box) -> Affine:
        """Return the lens from a block that holds the elements of `frame` to a box of this view.

        Parameters
        ----------
        view_box
            Box of this view; axis `a` of the result runs over ``view_box[a]`` in ascending order.
        frame
            Box of the source, a tile or a piece, that contains ``source_box(view_box)``.
        """
        shape = tuple(map(len, view_box))
        terms: list[Term] = []
        for (axis, start, step), f in zip(self.terms, frame):
            if axis is None:
                terms.append((None, (start - f.start) // f.step, 0))
            else:
                r = view_box[axis]
                first = (start + step * r.start - f.start) // f.step
                terms.append((axis, first, step * r.step // f.step if len(r) > 1 else 1))
        return Affine(shape, tuple(terms))

    def fragments(self, view_box: Box, boundaries: Sequence[Sequence[int]]) -> list[tuple[tuple[int, ...], Box, Box]]:
        """Return a box of the view, split by the tiles of the source.

        Parameters
        ----------
        view_box
            Box of the view; empty ones have no fragments.
        boundaries
            Per source axis, the ascending boundaries of its parts from 0 to the extent; parts may be empty.

        Returns
        -------
        list of (tile, source box, view box)
            Index of the source tile, the elements read from it (in the source's coordinates; the smallest box around
            them on a diagonal), and the indices of the view that read them. The view boxes are disjoint and cover
            `view_box`; tiles are in ascending order where no axis is a diagonal.
        """
        if not all(view_box):
            return []
        terms = self.terms
        cuts: list[list[_Cut]] = []
        whole = True
        for term, bounds in zip(terms, boundaries):
            axis, start, step = term
            if axis is None:
                cuts.append([(bisect_right(bounds, start) - 1, range(start, start + 1), _EMPTY)])
                continue
            r = view_box[axis]
            # Most often a box lies in one tile along most axes.
            if step == 1 and r.step == 1:
                source = range(r.start + start, r.stop + start) if start else r
                tile = bisect_right(bounds, source.start) - 1
                if source.stop <= bounds[tile + 1]:
                    cuts.append([(tile, source, r)])
                    continue
            found = _cut(start, step, r, bounds)
            whole = whole and len(found) == 1
            cuts.append(found)
        if whole:
            return [(tuple([c[0][0] for c in cuts]), tuple([c[0][1] for c in cuts]), view_box)]
        axes = [axis for axis, _, _ in terms]
        used = [axis for axis in axes if axis is not None]
        if len(set(used)) < len(used):
            return self._diagonal_fragments(view_box, boundaries)
        out = []
        for chosen in product(*cuts):
            view = list(view_box)
            for axis, cut in zip(axes, chosen):
                if axis is not None:
                    view[axis] = cut[2]
            out.append((tuple([c[0] for c in chosen]), tuple([c[1] for c in chosen]), tuple(view)))
        return out

    def _diagonal_fragments(
        self, view_box: Box, boundaries: Sequence[Sequence[int]]
    ) -> list[tuple[tuple[int, ...], Box, Box]]:
        # The terms of one view axis cut it one after the other: linear in the tiles that the diagonal meets, where
        # the product over source axes would try every pair of tiles.
        runs: list[list[range]] = [[r] for r in view_box]
        for (axis, start, step), bounds in zip(self.terms, boundaries):
            if axis is not None:
                runs[axis] = [cut[2] for r in runs[axis] for cut in _cut(start, step, r, bounds)]
        out = []
        for view in product(*runs):
            source = self.source_box(view)
            tile = tuple([bisect_right(bounds, r.start) - 1 for bounds, r in zip(boundaries, source)])
            out.append((tile, source, view))
        return out

    # Blocks through the view.

    def read_indices(self) -> ViewSteps:
        """Return the steps of `read`, computed once and kept."""
        if self._reading is None:
            _set_reading(self, self._plan_reading())
        assert self._reading is not None
        return self._reading

    def _plan_reading(self) -> ViewSteps:
        shape = self.shape
        key: list[int | slice | EllipsisType] = []
        axes: list[int] = []
        for axis, start, step in self.terms:
            if axis is None:
                key.append(start)
                continue
            axes.append(axis)
            n = shape[axis]
            if n == 0:
                key.append(slice(0, 0, 1))
            elif step > 0:
                key.append(slice(start, start + step * (n - 1) + 1, step))
            else:
                stop = start + step * (n - 1) - 1
                key.append(slice(start, stop if stop >= 0 else None, step))
        # The ellipsis makes a 0-d array, not a scalar that forgot its block.
        key.append(...)
        if axes == list(range(len(shape))):
            return ViewSteps(tuple(key), (), None, None, None)  # what slices and integers are, mostly
        diagonals = []
        while len(set(axes)) < len(axes):
            i = next(i for i, axis in enumerate(axes) if axis in axes[i + 1 :])
            axis = axes[i]
            j = axes.index(axis, i + 1)
            diagonals.append((i, j))
            # numpy's diagonal is the last axis of its result
            axes = [*axes[:i], *axes[i + 1 : j], *axes[j + 1 :], axis]
        order = sorted(range(len(axes)), key=axes.__getitem__)
        transpose = tuple(order) if order != list(range(len(axes))) else None
        expand: tuple[slice | None, ...] | None = None
        broadcast = None
        if len(axes) < len(shape):
            expand = tuple([slice(None) if axis in axes else None for axis in range(len(shape))])
            if any(n != 1 for axis, n in enumerate(shape) if axis not in axes):
                broadcast = shape
        return ViewSteps(tuple(key), tuple(diagonals), transpose, expand, broadcast)

    def read(self, array: Block) -> Block:
        """Return the view of a block: no copy, never a scalar."""
        key, diagonals, transpose, expand, broadcast = self._reading or self.read_indices()
        out = array[key]
        for i, j in diagonals:
            out = _diagonal(out, i, j)
        if transpose is not None:
            # numpy and cupy; the standard itself has the function only
            has_method = hasattr(out, "transpose")
            out = out.transpose(transpose) if has_method else namespace(out).permute_dims(out, transpose)
        if expand is not None:
            out = out[expand]
        if broadcast is not None:
            out = namespace(out).broadcast_to(out, broadcast)
        return out

    def writable(self, array: Block) -> Block:
        """Return the view of a block, to be written."""
        view = self.read(array)
        if self.read_indices().diagonals and isinstance(view, np.ndarray):
            # numpy marks diagonals read-only, for a change that never came; the memory is that of `array`.
            view.flags.writeable = True
        return view

    def write(self, array: Block, value: Block) -> None:
        """Assign to the view of a block, in place; `value` broadcasts.

        Raises
        ------
        ValueError
            If the view repeats elements: numpy's broadcast views are read-only too.
        """
        steps = self.read_indices()
        if steps.is_key and 0 not in self.shape:
            array[steps.key] = value
            return
        if not self.is_injective:
            raise ValueError(f"assignment destination is read-only: a view of shape {self.shape} repeats elements")
        if 0 in self.shape:
            # nothing to write, and maybe a broadcast to no elements, which numpy marks read-only
            return
        if not steps.diagonals or hasattr(array, "diagonal"):
            self.writable(array)[...] = value
            return
        # The standard promises no diagonal that can be written: one element of it at a time.
        axis = next(a for a, _, _ in self.terms if a is not None and sum(t[0] == a for t in self.terms) > 1)
        ndim, n = len(self.shape), self.shape[axis]
        if not hasattr(value, "shape"):
            value = namespace(array).asarray(value, dtype=array.dtype, device=array.device)
        value = namespace(value).broadcast_to(value, self.shape)
        for i in range(n):
            box = tuple([range(i, i + 1) if a == axis else range(m) for a, m in enumerate(self.shape)])
            here = tuple([slice(i, i + 1) if a == axis else slice(None) for a in range(ndim)])
            terms = tuple([(None, b + c * i, 0) if a == axis else (a, b, c) for a, b, c in self.terms])
            Affine(tuple(map(len, box)), terms).write(array, value[here])

    def copy_around(self, source: Block, target: Block) -> None:
        """Assign what a block has outside the view to another one of its shape; inside, where the view has gaps, too.

        A view that is a box costs what lies around it.
        """
        box = self.source_box(full(self.shape))
        if self.read_indices().diagonals or any(r.step != 1 for r in box) or 0 in self.shape:
            target[...] = source
            return
        inside: tuple[slice, ...] = ()
        for r, n in zip(box, source.shape, strict=True):
            for beside in (slice(0, r.start), slice(r.stop, n)):
                if beside.start < beside.stop:
                    target[(*inside, beside, ...)] = source[(*inside, beside, ...)]
            inside += (slice(r.start, r.stop),)


# mypy knows the slots by their annotations, not as the descriptors they are.
_set_shape = Affine.shape.__set__  # type: ignore[attr-defined, misc]
_set_terms = Affine.terms.__set__  # type: ignore[attr-defined, misc]
_set_reading = Affine._reading.__set__  # type: ignore[union-attr, misc]

#: (tile along the source axis, source range, view range)
_Cut: TypeAlias = tuple[int, range, range]

_IDENTITY: list[tuple[Term, ...]] = [tuple([(i, 0, 1) for i in range(ndim)]) for ndim in range(9)]


def _identity_terms(ndim: int) -> tuple[Term, ...]:
    return _IDENTITY[ndim] if ndim < len(_IDENTITY) else tuple([(i, 0, 1) for i in range(ndim)])


@lru_cache(maxsize=4096)
def restored(shape: tuple[int, ...], axes: tuple[int, ...]) -> Affine:
    """Return the lens that gives the axes of an array back their order: those of `shape` are the axes `axes` of what it
    sees.
    """
    return Affine.identity(shape).permuted([axes.index(a) for a in range(len(axes))])


def _preimage(start: int, step: int, n: int, r: range) -> range:
    """Return the ``i`` in ``range(n)`` with ``start + step * i`` in `r`, ascending."""
    if n == 0:
        return _EMPTY
    hit = intersect(normalise(range(start, start + step * n, step)), r)
    if not hit:
        return _EMPTY
    first, last = (hit[0] - start) // step, (hit[-1] - start) // step
    stride = hit.step // abs(step) if len(hit) > 1 else 1
    return range(min(first, last), max(first, last) + 1, stride)


def _cut(start: int, step: int, r: range, bounds: Sequence[int]) -> list[_Cut]:
    """Return the parts of a view range that read different tiles along one source axis, in ascending order of tiles."""
    n = len(r)
    a = start + step * r.start
    stride = step * r.step
    if stride < 0:
        a, stride = a + stride * (n - 1), -stride
    out = []
    done = 0
    while done < n:
        lo = a + stride * done
        tile = bisect_right(bounds, lo) - 1
        # The source elements below the tile's end: ceil((end - a) / stride) of them.
        upto = min(-((a - bounds[tile + 1]) // stride), n)
        view = r[done:upto] if step > 0 else r[n - upto : n - done]
        if upto - done == 1:
            out.append((tile, range(lo, lo + 1), range(view.start, view.start + 1)))
        else:
            view = range(view.start, view[-1] + 1, view.step)
            out.append((tile, range(lo, a + stride * (upto - 1) + 1, stride), view))
        done = upto
    return out


def namespace(array: Block) -> Any:  # a module
    """Return the functions for a block of any backend, by the names of the standard."""
    if isinstance(array, np.ndarray | np.generic):
        return np
    from array_api_compat import array_namespace  # CuPy's arrays do not name theirs

    return array_namespace(array)


def _diagonal(array: Block, i: int, j: int) -> Block:
    if hasattr(array, "diagonal"):
        return array.diagonal(0, i, j)
    xp = namespace(array)
    rest = [axis for axis in range(array.ndim) if axis not in (i, j)]
    return xp.linalg.diagonal(xp.permute_dims(array, (*rest, i, j)))


#: Per source axis: (view axis, step, first touched tile, last touched tile, skipped tiles between them).
Pattern: TypeAlias = tuple[tuple[int | None, int, int, int, tuple[int, ...]], ...]


def touched(affine: Affine, boundaries: Sequence[Sequence[int]]) -> Pattern:
    """Return what of a lens a plan depends on: the pattern of touched tiles, without the offsets.

    Lenses of one shape with equal patterns read the same tiles in the same order, so one plan serves both: offsets
    are run-time parameters (B-29).
    """
    out: list[tuple[int | None, int, int, int, tuple[int, ...]]] = []
    for (axis, start, step), bounds in zip(affine.terms, boundaries):
        if axis is None:
            tile = bisect_right(bounds, start) - 1
            out.append((None, 0, tile, tile, ()))
            continue
        n = affine.shape[axis]
        if n == 0:
            out.append((axis, 1, 0, -1, ()))
            continue
        last = start + step * (n - 1)
        low, high = (start, last) if step > 0 else (last, start)
        first_tile, last_tile = bisect_right(bounds, low) - 1, bisect_right(bounds, high) - 1
        skipped: tuple[int, ...] = ()
        if last_tile - first_tile > 1 and abs(step) > 1:
            met = {cut[0] for cut in _cut(start, step, range(n), bounds)}
            skipped = tuple([t for t in range(first_tile + 1, last_tile) if t not in met])
        out.append((axis, step, first_tile, last_tile, skipped))
    return tuple(out)
