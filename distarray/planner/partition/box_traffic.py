"""Bytes that move between a producer's tiles and a consumer's, counted on their places: what is needed, but not held.

A member needs the union of what its tiles read of an operand, and holds its own tiles of it. Both are boxes, one per
member, if the tiles of a member follow each other; where they are dealt out in rounds there is one for each round, and
beyond `MAX_ROUNDS` of them tiles count by the share of their hull that they fill. Counts are made for all pairs of cuts
of a producer and a consumer at once, axis by axis. Members are numbered by rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from distarray.expr.lens import reshape_groups
from distarray.planner.loops import Loops, Reading
from distarray.planner.pieces import MAX_ROUNDS
from distarray.sharding.dealing import dealing_of
from distarray.sharding.mesh import Mesh
from distarray.sharding.sharding import Sharding

Numbers = Any  # arrays of numpy: its generic array types say no more


@dataclass(frozen=True, slots=True, eq=False)
class Boxes:
    """Boxes are what each member has of an array, or works on, under one cut or several.

    Parameters
    ----------
    lo, hi
        Along each axis where it begins and ends: arrays (.., members, axes). Equal where a member has nothing.
    n_tiles
        Of each member: (.., members).
    share
        Of the box that its tiles fill.
    rounds
        What members have of each round in which tiles are dealt out to them; none if one box is all that they have.
    """

    lo: Numbers
    hi: Numbers
    n_tiles: Numbers
    share: Numbers
    rounds: tuple[Boxes, ...] = ()

    @property
    def sizes(self) -> Numbers:
        """Return the elements that each member has."""
        return np.prod(self.hi - self.lo, axis=-1, dtype=float) * self.share

    @property
    def by_round(self) -> tuple[Boxes, ...]:
        """Return what members have of each round, one box of each member."""
        return self.rounds or (self,)

    def spanned(self, axes: Sequence[int]) -> Numbers:
        """Return the elements of an array that has some of the axes, as far as a member has them."""
        hull = np.prod((self.hi - self.lo)[..., list(axes)], axis=-1, dtype=float)
        each = [r.spanned(axes) * (r.n_tiles > 0) for r in self.rounds]  # an axis may be the same in each
        return np.minimum(hull, sum(each)) if each else hull


@dataclass(frozen=True, slots=True)
class View:
    """A View says how a stage sees one operand: which of its axes run over elements of the source.

    Parameters
    ----------
    terms
        Per source axis the number of the axis in `loops`, or -1 where the index is fixed; where it starts; the step.
    loops
        Per axis of the view the loop that runs over it, or -1 where all of it is read.
    extents
        Of these axes.
    scale
        Elements that one row of an axis stands for: more than 1 for the first of several axes that a reshape joins.
    shares
        Axes of which the reader needs a run of elements through all: they count by the share that is held.
    halo
        Per axis the elements that are read before and behind those of its loop.
    """

    terms: tuple[tuple[int, int, int], ...]
    loops: tuple[int, ...]
    extents: tuple[int, ...]
    scale: tuple[int, ...]
    shares: tuple[bool, ...]
    halo: tuple[tuple[int, int], ...]


@lru_cache(maxsize=256)
def _members(mesh: Mesh) -> Numbers:
    return np.array([mesh.member(place) for place in range(mesh.size)], np.int64)


@lru_cache(maxsize=16384)
def boxes_of(sharding: Sharding, shape: tuple[int, ...], n_members: int) -> Boxes:
    """Return what each member has of an array."""
    index = np.indices(sharding.parts).reshape(sharding.ndim, sharding.n_tiles)
    first = [0] * sharding.ndim
    places = np.zeros(sharding.n_tiles, np.int64)
    lo = np.zeros((sharding.n_tiles, sharding.ndim), np.int64)
    hi = np.zeros_like(lo)
    for axis, bounds in enumerate(sharding.boundaries(shape)):
        if sharding.parts[axis] > 1:
            # A place is the sum of what the parts of each axis contribute to it.
            offsets = [sharding.place([*first[:axis], t, *first[axis + 1 :]]) for t in range(sharding.parts[axis])]
            places += np.array(offsets, np.int64)[index[axis]]
        edges = np.array(bounds, np.int64)
        lo[:, axis], hi[:, axis] = edges[index[axis]], edges[index[axis] + 1]
    members = _members(sharding.mesh)[places]
    found = _hulls(members, lo, hi, n_members)
    n_rounds, rounds = _rounds(sharding, index)
    if not 1 < n_rounds <= MAX_ROUNDS or np.all(found.share[found.n_tiles > 0] == 1):
        return found
    each = [np.flatnonzero(rounds == k) for k in range(n_rounds)]
    return replace(found, rounds=tuple([_hulls(members[k], lo[k], hi[k], n_members) for k in each]))


def _rounds(sharding: Sharding, index: Numbers) -> tuple[int, Numbers]:
    """Return in how many rounds tiles are dealt out to places, and by number of a tile the one of that tile.

    Parameters
    ----------
    index
        Of each tile along each axis: (axes, tiles).
    """
    n_rounds, found = 1, np.zeros(index.shape[1:], np.int64)
    for axis in range(sharding.ndim):
        n = prod(map(sharding.mesh.axis_size, dealing_of(sharding, axis).rounds))
        n_rounds, found = n_rounds * n, found * n + index[axis] // (sharding.parts[axis] // n)
    return n_rounds, found


def _hulls(members: Numbers, lo: Numbers, hi: Numbers, n_members: int) -> Boxes:
    kept = (hi > lo).all(axis=1)
    members, lo, hi = members[kept], lo[kept], hi[kept]
    n = np.bincount(members, minlength=n_members)
    low = np.full((n_members, lo.shape[1]), np.iinfo(np.int64).max)
    high = np.zeros((n_members, lo.shape[1]), np.int64)
    np.minimum.at(low, members, lo)
    np.maximum.at(high, members, hi)
    low[n == 0] = 0
    filled = np.bincount(members, np.prod(hi - lo, axis=1, dtype=float), minlength=n_members)
    return Boxes(low, high, n, filled / np.maximum(np.prod(high - low, axis=1, dtype=float), 1.0))


def stacked(boxes: Sequence[Boxes]) -> Boxes:
    """Return several cuts as one record with a first axis more."""
    if len(boxes) == 1:
        (b,) = boxes
        return Boxes(b.lo[None], b.hi[None], b.n_tiles[None], b.share[None], tuple([stacked([r]) for r in b.rounds]))
    n_rounds = max([len(b.rounds) for b in boxes])
    return Boxes(
        np.stack([b.lo for b in boxes]),
        np.stack([b.hi for b in boxes]),
        np.stack([b.n_tiles for b in boxes]),
        np.stack([b.share for b in boxes]),
        tuple([stacked([_round(b, k) for b in boxes]) for k in range(n_rounds)]),
    )


def _round(boxes: Boxes, k: int) -> Boxes:
    """Return what members have of one round; what has a single box has it in the first."""
    if k < len(boxes.by_round):
        return boxes.by_round[k]
    return Boxes(boxes.lo, boxes.lo, np.zeros_like(boxes.n_tiles), boxes.share)


def view_of(r: Reading, loops: Loops, result_shape: tuple[int, ...]) -> View:
    """Return how a stage sees an operand.

    Parameters
    ----------
    result_shape
        Of the stage: where its loops run over other elements than the operand's axes, it reads runs of elements through
        several axes.
    """
    touched = sorted({axis for axis, _, _ in r.lens.terms if axis is not None})
    number = {axis: i for i, axis in enumerate(touched)}
    terms = tuple([(-1 if axis is None else number[axis], start, step) for axis, start, step in r.lens.terms])
    of = [r.loops[axis] for axis in touched]
    scale, shares = [1] * len(touched), [False] * len(touched)
    if loops.is_recut:
        for old, _ in reshape_groups(r.lens.shape, result_shape):
            for a in old:
                if a in number:
                    scale[number[a]] = max(1, prod(r.lens.shape[b] for b in old[1:])) if a == old[0] else 1
                    shares[number[a]] = a != old[0]
    return View(
        terms,
        tuple([-1 if loop is None else loop for loop in of]),
        tuple([r.lens.shape[axis] for axis in touched]),
        tuple(scale),
        tuple(shares),
        tuple([r.halo[axis] if r.halo else (0, 0) for axis in touched]),
    )


def _held(view: View, held: Boxes) -> tuple[list[tuple[Numbers, Numbers]], Numbers]:
    """Return per axis of the view the interval that each member has; and the share of them that it has."""
    intervals = [(np.zeros(held.n_tiles.shape, np.int64), np.full(held.n_tiles.shape, n)) for n in view.extents]
    share = np.where(held.n_tiles > 0, held.share, 0.0)
    for b, (axis, start, step) in enumerate(view.terms):
        first, last = held.lo[..., b], held.hi[..., b]
        if axis < 0:
            share = share * ((first <= start) & (start < last))
            continue
        if step > 0:
            a, z = -((start - first) // step), -((start - last) // step)
        else:
            a, z = (start - last) // -step + 1, (start - first) // -step + 1
        lo, hi = intervals[axis]  # a diagonal has several axes of the source
        intervals[axis] = np.maximum(lo, a), np.minimum(hi, z)
    return [(lo * unit, hi * unit) for (lo, hi), unit in zip(intervals, view.scale, strict=True)], share


def needed(view: View, loops: Loops, boxes: Boxes) -> list[tuple[Numbers, Numbers]]:
    """Return per axis of the view the interval that each member needs, in units of `view.scale`."""
    busy = boxes.n_tiles > 0
    found = []
    for axis, loop in enumerate(view.loops):
        if loop < 0 or view.shares[axis]:
            found.append((np.zeros(busy.shape, np.int64), np.where(busy, view.extents[axis], 0)))
            continue
        unit = view.extents[axis] * view.scale[axis] // max(loops.extents[loop], 1) if loops.is_recut else 1
        lo, hi = boxes.lo[..., loop] * unit, boxes.hi[..., loop] * unit
        if any(view.halo[axis]):
            before, behind = view.halo[axis]
            lo, hi = np.maximum(lo - before, 0), np.where(busy, np.minimum(hi + behind, view.extents[axis]), 0)
            lo = np.where(busy, lo, 0)
        found.append((lo, hi))
    return found


def _distinct(lo: Numbers, hi: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Return the different rows of two arrays (cuts, members), and which of them each cut has."""
    n = lo.shape[1]
    rows = np.concatenate([lo, hi], axis=1)
    seen: dict[bytes, int] = {}
    which = [seen.setdefault(row.tobytes(), len(seen)) for row in rows]
    if len(seen) == len(rows):
        return lo, hi, np.arange(len(rows))
    first = np.zeros(len(seen), np.int64)
    first[which[::-1]] = np.arange(len(rows))[::-1]
    return rows[first, :n], rows[first, n:], np.array(which)


def moved(view: View, loops: Loops, held: Boxes, boxes: Boxes) -> Numbers:
    """Return the elements that each member is sent of an operand.

    Parameters
    ----------
    view
        How the consumer sees the source.
    loops
        Of the consumer.
    held
        What members have of the source, by cut of the producer: (n, members, axes).
    boxes
        What they work on, by cut of the consumer: (m, members, loops).

    Returns
    -------
    Array (n, m, members).
    """
    need: Numbers = 0.0
    have: Numbers = None
    for part in boxes.by_round:
        wanted, has_at_most = needed(view, loops, part), np.where(part.n_tiles > 0, part.share, 0.0)
        needs = has_at_most
        for axis, (lo, hi) in enumerate(wanted):
            if not view.shares[axis]:
                needs = needs * (hi - lo)
        need = need + needs
        distinct = [_distinct(lo, hi) for lo, hi in wanted]
        for own in held.by_round:
            common = _common(view, own, distinct, has_at_most)
            have = common if have is None else np.add(have, common, out=have)
    return np.subtract(need, have, out=have)


def _common(
    view: View, held: Boxes, wanted: Sequence[tuple[Numbers, Numbers, Numbers]], has_at_most: Numbers
) -> Numbers:
    """Return the elements that each member needs and has, of one box of what it has and one of what it works on: an
    array (n, m, members), see `moved`.

    Parameters
    ----------
    wanted
        Per axis of the view the different intervals that members need, and which of them each cut has.
    has_at_most
        Share of its box that a member works on: (m, members).
    """
    intervals, share = _held(view, held)
    found = np.empty((len(share), *has_at_most.shape))
    # One cut of the producer after the other: what all cuts of the consumer have of it fits a cache.
    known: dict[bytes, int] = {}
    for i in range(len(share)):
        rows = [a[i] for interval in intervals for a in interval]
        same = known.setdefault(b"".join([row.tobytes() for row in (share[i], *rows)]), i)
        if same != i:
            found[i] = found[same]
            continue
        have = np.minimum(share[i], has_at_most, out=found[i])
        for axis, ((a, z), (first, last, consumer)) in enumerate(zip(intervals, wanted, strict=True)):
            common = np.minimum(z[i], last)
            common -= np.maximum(a[i], first)
            np.maximum(common, 0, out=common)
            # a run through this axis: only by chance is it what is held
            part = common / max(view.extents[axis], 1) if view.shares[axis] else common
            have *= part if len(part) == len(have) else part[consumer]
    return found


def most_tiles(view: View, loops: Loops, shape: Sequence[int], lying: Sequence[Sharding], boxes: Boxes) -> Numbers:
    """Return of how many tiles of the source one member needs something, about: that of the longest box.

    Parameters
    ----------
    shape, lying
        Of the source, and how it lies, by cut.
    boxes
        What members work on, by cut of the consumer.

    Returns
    -------
    Array (cuts of the source, cuts of the consumer).
    """
    if boxes.rounds:
        return sum([most_tiles(view, loops, shape, lying, q) * q.n_tiles.any(axis=-1) for q in boxes.rounds])
    spans = [(hi - lo).max(axis=-1) for lo, hi in needed(view, loops, boxes)]
    found = np.ones((len(lying), len(boxes.n_tiles)), np.int64)
    for b, (axis, _, step) in enumerate(view.terms):
        if axis >= 0:
            parts = np.array([s.parts[b] for s in lying], np.int64)[:, None]
            span = spans[axis] // view.scale[axis] * abs(step)
            found *= np.clip(-(-span * parts // max(shape[b], 1)), 1, parts)
    return found
