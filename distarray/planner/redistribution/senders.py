"""What travels in a step: who lacks which piece, and who of those that hold it sends it.

A piece is what a member lacks of one tile of the map before. Where replicas hold that tile, the sender is the one with
the nearest link, then the one that has sent the fewest elements so far, then the lowest; large pieces choose first. So
no replica is asked for much more than the others.

What all of it takes by latencies and bandwidths are the seconds of a plan (`plan_seconds`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from distarray.planner.rates import Rates
from distarray.planner.redistribution.groups import cells
from distarray.planner.redistribution.links import NETWORK, FloatArray, MemberMap, link_rates
from distarray.planner.redistribution.places import IntArray
from distarray.planner.redistribution.steps import (
    AllGather,
    AllPermute,
    AllReduce,
    AllToAll,
    DynSlice,
    Exchange,
    Step,
)
from distarray.planner.redistribution.trace import Moment


class Pieces(NamedTuple):
    """Pieces are the messages of a step. What stays on a member is none; what it needs twice it gets once.

    Parameters
    ----------
    receiver
        Member that gets each piece: the place, where members have one each.
    sender
        Place that holds it before the step.
    giver
        Member of that place.
    size
        Elements.
    """

    receiver: IntArray
    sender: IntArray
    giver: IntArray
    size: IntArray


@lru_cache(maxsize=64)
def one_each(n: int) -> MemberMap:
    """Return the placement of `n` places on a member each."""
    return MemberMap(tuple(range(n)), tuple(range(n)))


def pieces(step: Step, before: Moment, after: Moment, placement: MemberMap, addends: IntArray | None = None) -> Pieces:
    """Return what travels in a step.

    Parameters
    ----------
    before, after
        What holds before and after the step.
    addends
        Where the array is a partial result that stays unreduced: which addend each device holds. It gets no other's.
    """
    givers, takers = _members(before, placement), _members(after, placement)
    if isinstance(step, DynSlice):
        nothing = np.zeros(0, np.int64)
        return Pieces(nothing, nothing, nothing, nothing)
    if isinstance(step, Exchange):
        held, wanted = _Map.of(before, addends), _Map.of(after, addends)
        needs = _needs(held, wanted, givers, takers)
        sender = _senders(needs, held, givers, placement)
        return Pieces(needs.member, sender, givers[sender], needs.size)
    return _in_groups(step, before, after, givers)


def lacking(before: Moment, after: Moment, placement: MemberMap, addends: IntArray | None = None) -> IntArray:
    """Return by member the elements of its tiles in a later map that it does not hold in an earlier one."""
    needs = _needs(
        _Map.of(before, addends), _Map.of(after, addends), _members(before, placement), _members(after, placement)
    )
    return np.bincount(needs.member, needs.size, placement.n_members).astype(np.int64)


def wanted(after: Moment, placement: MemberMap, addends: IntArray | None = None) -> IntArray:
    """Return by member the elements of its tiles, those of several places once."""
    there, takers = _Map.of(after, addends), _members(after, placement)
    key, first = np.unique(takers * there.n_tiles + there.cell, return_index=True)
    size = (after.box[1] - after.box[0]).prod(axis=1)
    return np.bincount(key // there.n_tiles, size[first], placement.n_members).astype(np.int64)


def _members(moment: Moment, placement: MemberMap) -> IntArray:
    return np.array(placement.dst if moment.is_across else placement.src, np.int64)


# --------------------------------------------------------------------------------------------------- exchanges


class _Map(NamedTuple):
    """A _Map says who holds what: tiles by number, row-major; those of one addend after those of the one before."""

    cell: IntArray
    n_cells: int
    n_addends: int
    #: Begin and end of each part, per dimension.
    edges: list[tuple[IntArray, IntArray]]

    @classmethod
    def of(cls, moment: Moment, addends: IntArray | None) -> _Map:
        cell = cells(moment.tiles, moment.parts)
        edges = []
        for i, k in enumerate(moment.parts):
            start, stop = np.empty(k, np.int64), np.empty(k, np.int64)
            # all parts are there: every map is uniform
            start[moment.tiles[:, i]], stop[moment.tiles[:, i]] = moment.box[0][:, i], moment.box[1][:, i]
            edges.append((start, stop))
        n = int(np.prod(moment.parts, dtype=np.int64))
        if addends is None:
            return cls(cell, n, 1, edges)
        return cls(cell + n * addends, n, 1 + int(addends.max()), edges)

    @property
    def n_tiles(self) -> int:
        return self.n_cells * self.n_addends


class _Needs(NamedTuple):
    """_Needs are what members lack: one row per member and tile of the map before."""

    member: IntArray
    tile: IntArray
    size: IntArray


def _overlaps(held: _Map, wanted: _Map) -> tuple[IntArray, IntArray, IntArray]:
    """Return the pairs of a wanted and a held tile with elements in common, and how many these are; by wanted tile."""
    b = a = np.zeros(1, np.int64)
    size = np.ones(1, np.int64)
    for (from_, to), (start, stop) in zip(held.edges, wanted.edges):
        if len(from_) == len(start) == 1 and start[0] < stop[0]:
            size = size * (stop - start)  # an axis that neither cuts
            continue
        first = np.searchsorted(to, start, "right")
        n = np.maximum(np.searchsorted(from_, stop, "left") - first, 0)
        part = np.repeat(np.arange(len(start)), n)
        other = np.arange(len(part)) + np.repeat(first - (n.cumsum() - n), n)
        width = np.minimum(stop[part], to[other]) - np.maximum(start[part], from_[other])
        some = width > 0  # empty parts overlap nothing
        part, other, width = part[some], other[some], width[some]
        b = (b[:, None] * len(start) + part).ravel()
        a = (a[:, None] * len(from_) + other).ravel()
        size = (size[:, None] * width).ravel()
    order = np.argsort(b, kind="stable")
    b, a, size = b[order], a[order], size[order]
    if held.n_addends == 1:
        return b, a, size
    shift = np.arange(held.n_addends)[:, None]
    return (b + shift * wanted.n_cells).ravel(), (a + shift * held.n_cells).ravel(), np.tile(size, held.n_addends)


def _needs(held: _Map, wanted: _Map, givers: IntArray, takers: IntArray) -> _Needs:
    b, a, size = _overlaps(held, wanted)
    # tiles that a member wants, each once
    member, tile = np.divmod(np.unique(takers * wanted.n_tiles + wanted.cell), wanted.n_tiles)
    n = np.bincount(b, minlength=wanted.n_tiles)
    first = (n.cumsum() - n)[tile]
    n = n[tile]
    row = np.arange(int(n.sum())) + np.repeat(first - (n.cumsum() - n), n)
    key = np.repeat(member, n) * held.n_tiles + a[row]
    has = np.zeros((1 + int(max(givers.max(), takers.max()))) * held.n_tiles, bool)
    has[givers * held.n_tiles + held.cell] = True
    lacks = ~has[key]
    key, size = key[lacks], size[row][lacks]
    if len(np.unique(takers)) < len(takers):
        # two tiles of one member that need parts of the same one: one message
        key, inverse = np.unique(key, return_inverse=True)
        size = np.bincount(inverse.ravel(), size, len(key)).astype(np.int64)
    return _Needs(key // held.n_tiles, key % held.n_tiles, size)


def _senders(needs: _Needs, held: _Map, givers: IntArray, placement: MemberMap) -> IntArray:
    """Return a place that holds the tile, for each row of `needs`."""
    holders: IntArray = np.argsort(held.cell, kind="stable").reshape(held.n_tiles, -1)
    n_replicas = holders.shape[1]
    if n_replicas == 1:
        return holders.ravel()[needs.tile]
    order = np.lexsort((needs.member, -needs.size, needs.tile))
    tile, size = needs.tile[order], needs.size[order]
    first = np.searchsorted(tile, tile)
    rank = np.arange(len(tile)) - first
    chosen = np.empty(len(tile), np.int64)
    slot = _slots(givers)
    if not placement.nodes and not slot.any() and (size == size[first]).all():
        chosen[order] = holders[tile, rank % n_replicas]  # equal pieces: the replicas take turns
        return chosen
    sent = np.zeros(1 + int(givers.max()), np.int64)
    far = int(size.sum()) + 1
    # Replicas of different tiles are different places, so the next largest piece of every tile is given away at once;
    # where places share a member, those of one slot at a time.
    turn = rank * (1 + int(slot.max())) + slot[holders[tile, 0]]
    by_turn = np.argsort(turn, kind="stable")
    for now in np.split(by_turn, np.flatnonzero(np.diff(turn[by_turn])) + 1):
        candidates = holders[tile[now]]
        who = givers[candidates]
        price = sent[who]
        if placement.nodes:
            price = price + far * placement.links(who, needs.member[order[now], None])
        best = np.arange(len(now)), price.argmin(axis=1)
        chosen[order[now]] = candidates[best]
        np.add.at(sent, who[best], size[now])
    return chosen


def _slots(members: IntArray) -> IntArray:
    """Return the number of every place among those of its member."""
    slot = np.empty(len(members), np.int64)
    places = np.argsort(members, kind="stable")
    sorted_ = members[places]
    slot[places] = np.arange(len(places)) - np.searchsorted(sorted_, sorted_)
    return slot


# ------------------------------------------------------------------------------------------------- collectives


def _in_groups(step: Step, before: Moment, after: Moment, members: IntArray) -> Pieces:
    if isinstance(step, AllPermute):
        receiver, sender = np.arange(len(members)), step.perm
    else:
        groups: IntArray = step.groups  # type: ignore[union-attr]  # all steps that are left have groups
        receiver = np.broadcast_to(groups[:, :, None], (*groups.shape, groups.shape[1])).ravel()
        sender = np.broadcast_to(groups[:, None, :], (*groups.shape, groups.shape[1])).ravel()
    taker, giver = members[receiver], members[sender]
    moves = taker != giver
    receiver, sender, taker = receiver[moves], sender[moves], taker[moves]
    size = _sizes(step, before, after, receiver, sender)
    key, first, inverse = np.unique(taker * len(members) + sender, return_index=True, return_inverse=True)
    if len(key) < len(taker):
        # slices of one tile add up; what a member needs twice as it is travels once
        adds = isinstance(step, AllToAll)
        size = np.bincount(inverse.ravel(), size, len(key)).astype(np.int64) if adds else size[first]
        taker, sender = taker[first], sender[first]
    if isinstance(step, AllReduce):
        # a part of each goes to one of them, which gives the sum to all
        taker, sender, size = np.tile(taker, 2), np.tile(sender, 2), np.tile(size, 2)
    return Pieces(taker, sender, members[sender], size)


def _sizes(step: Step, before: Moment, after: Moment, receiver: IntArray, sender: IntArray) -> IntArray:
    start, stop = after.box[0][receiver], after.box[1][receiver]
    if isinstance(step, AllToAll | AllGather):
        start, stop = np.maximum(start, before.box[0][sender]), np.minimum(stop, before.box[1][sender])
    size: IntArray = np.maximum(stop - start, 0).prod(axis=1)
    return size // step.n if isinstance(step, AllReduce) else size


def _n_in_groups(step: Step, n_devices: int) -> IntArray:
    if isinstance(step, AllPermute):
        moved: IntArray = (step.perm != np.arange(n_devices)).astype(np.int64)
        return moved
    assert not isinstance(step, DynSlice | Exchange)
    return np.full(n_devices, (2 if isinstance(step, AllReduce) else 1) * (step.n - 1))


def plan_seconds(
    steps: Sequence[Step],
    trace: Sequence[Moment],
    itemsize: int,
    rates: Rates,
    placement: MemberMap | None = None,
    addends: IntArray | None = None,
) -> float:
    """Return predicted seconds of a plan: for each step the slowest member, and a task per place and step.

    A member is as slow as what it waits for, and what it receives or sends, whichever takes longer. In collectives
    of places that lie on a member each, all send as much as they receive.
    """
    total = 0.0
    for step, (before, after) in zip(steps, pairwise(trace)):
        total += rates.task * len(after.received)
        if isinstance(step, DynSlice):
            continue
        if placement is None and not isinstance(step, Exchange):
            latency, per_byte = (float(rate[NETWORK]) for rate in link_rates(rates))
            here = latency * _n_in_groups(step, len(after.received)) + per_byte * itemsize * after.received
        else:
            where = placement or one_each(len(after.received))
            here = _by_links(step, before, after, itemsize, rates, where, addends)
        total += float(here.max(initial=0.0))
    return total


def _by_links(
    step: Step,
    before: Moment,
    after: Moment,
    itemsize: int,
    rates: Rates,
    placement: MemberMap,
    addends: IntArray | None,
) -> FloatArray:
    """Return the seconds of every member in a step, each piece at the rates of its link."""
    sent = pieces(step, before, after, placement, addends)
    latency, per_byte = link_rates(rates)
    link = placement.links(sent.giver, sent.receiver)
    seconds = per_byte[link] * sent.size * itemsize
    n = placement.n_members
    waited = np.bincount(sent.receiver, latency[link], n)
    moved = np.maximum(np.bincount(sent.receiver, seconds, n), np.bincount(sent.giver, seconds, n))
    return np.asarray(waited + moved, np.float64)
