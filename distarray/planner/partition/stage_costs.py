"""Predicted seconds of stages, for many cuts at once.

A stage costs what its busiest member computes, what members are sent of its operands and of partial results, and its
tasks. Bytes count on their places (`box_traffic`). `search`
compares cuts by these seconds, `resolved.PartitionProblem` adds them up for whole plans, and `explain` shows them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from math import prod
from typing import Any, NamedTuple

import numpy as np

from distarray.planner.partition.box_traffic import Boxes, boxes_of, most_tiles, moved, stacked
from distarray.planner.partition.facts import StageFacts
from distarray.planner.plan import FAN_IN, Limits, combining_tree
from distarray.planner.rates import Rates, Seconds
from distarray.planner.shardings import result_sharding
from distarray.sharding.dealing import dealing_of
from distarray.sharding.mesh import is_wave
from distarray.sharding.sharding import Sharding

#: Seconds that exceeding the memory limit of a member costs, and each byte above it: no plan that fits is dearer.
OVER_LIMIT = 1e3
BYTE_OVER_LIMIT = 1e-6
#: Operations that BLAS needs for a product of a matrix with its transpose, as a share of those for any product.
MIRRORED = 0.5
#: Results that a member holds of such a product: what it has summed, what it is sent, and some room.
WHOLE_RESULTS = 4


class StageCost(NamedTuple):
    """A StageCost says what one stage costs under one cut: seconds, bytes sent, and a penalty.

    Parameters
    ----------
    seconds
        Predicted, on the busiest member; see `Seconds`.
    nbytes
        Sent between members.
    penalty
        Seconds that count against it, and that nobody waits, since a member would have more than it may.
    """

    seconds: Seconds = Seconds()
    nbytes: int = 0
    penalty: float = 0.0


class CostModel:
    """A CostModel predicts seconds, bytes and memory of a stage under many cuts at once, for a team of `n_members`."""

    def __init__(self, n_members: int, rates: Rates, limits: Limits) -> None:
        self.n_members = n_members
        self.rates = rates
        self.limits = limits

    # ------------------------------------------------------------------------------------------ one stage

    def boxes(self, facts: StageFacts, cuts: Sequence[Sharding]) -> Boxes:
        """Return what each member computes of a stage, by cut."""
        return stacked([boxes_of(c, facts.loops.extents, self.n_members) for c in cuts])

    def transfer_seconds(self, elements: Any, itemsize: int, messages: Any = 1) -> Seconds:
        """Return the seconds to bring elements (.., members) to their members, in so many messages to one of them at
        most.
        """
        return self.sent_seconds(elements.max(axis=-1), elements.mean(axis=-1), itemsize, messages)

    def sent_seconds(self, most: Any, mean: Any, itemsize: int, messages: Any) -> Seconds:
        """Return the seconds in which one member is sent most elements, in so many messages, and each of them a mean:
        they share links (`Rates.bandwidth_own`).
        """
        rates = self.rates
        if not rates.bandwidth:
            return Seconds(np.zeros(np.shape(most)), 0.0)
        second = itemsize / rates.bandwidth
        waits = rates.latency * messages * (most > 0)
        own = rates.bandwidth_own
        return Seconds(most * own * second + waits, mean * (1 - own) * second)

    def own_seconds(self, facts: StageFacts, cuts: Sequence[Sharding], boxes: Boxes) -> Seconds:
        """Return the seconds of computing a stage, combining its partial results, and of its tasks; by cut."""
        n = np.maximum(boxes.n_tiles, 1)
        flops = boxes.sizes * facts.flops / n
        if (share := self._mirrored_share(facts)) < 1:
            whole = [all(cut.parts[i] == 1 for i in facts.mirrored) for cut in cuts]
            flops = flops * np.where(whole, share, 1.0)[:, None]
        kernel = self.rates.flop_seconds(facts.kernel, flops, facts.itemsize)
        seconds = self.rates.busy_seconds(facts.kernel, kernel * boxes.n_tiles)
        n_tasks = boxes.n_tiles.sum(axis=-1)
        parts = np.array([c.parts for c in cuts], np.int64).reshape(len(cuts), len(facts.loops.extents))
        extents = np.array(facts.loops.extents, np.int64)
        apart = np.array([_parts_apart(c) for c in cuts], np.int64).reshape(parts.shape)
        for itemsize, kept, reduced in reductions(facts):
            partials = apart[:, list(reduced)].prod(axis=1)
            waves = parts[:, list(reduced)].prod(axis=1) // partials
            results = parts[:, list(kept)].prod(axis=1)
            tile = np.prod(-(-extents[list(kept)] // parts[:, list(kept)]), axis=1, dtype=float)
            # Each result tile is made at one member, to which a tree brings the partial results of the others.
            each = -(-results // np.array([_n_owners(c, kept) for c in cuts]))
            most = np.minimum(partials - 1, (FAN_IN - 1) * combining_tree(partials)[0]) * each
            mean = (partials - 1) * tile * results / self.n_members
            seconds = seconds + self.sent_seconds(most * tile, mean, itemsize, most)
            # Those of one member are added up there first.
            added = boxes.n_tiles * (tile * (1 - 1 / waves))[:, None]
            seconds = seconds + self.rates.busy_seconds("map", self.rates.flop_seconds("map", added, itemsize))
            n_tasks = n_tasks + np.where(partials > 1, results, 0) + np.where(waves > 1, results * partials, 0)
        return seconds + Seconds(0.0, n_tasks * self.rates.task)  # one scheduler deals with all tasks

    def penalty(self, facts: StageFacts, boxes: Boxes) -> Any:
        """Return what a member has at once above its limit, as seconds that count against a cut and that nobody waits;
        by cut.

        Waves along a loop (`planner.streams`) leave of what has the loop next to nothing, so the rest counts; and what
        one tile needs, where it needs all of it.
        """
        is_busy = boxes.n_tiles > 0
        arrays = [(set(loops), size * boxes.spanned(loops)) for size, loops in facts.results]
        for r in facts.readings:
            cut = {loop for loop in r.loops if loop is not None}
            whole = prod([n for n, loop in zip(r.lens.shape, r.loops, strict=True) if loop is None])
            arrays.append((cut, r.dtype.itemsize * whole * boxes.spanned(sorted(cut)) * is_busy))
        none = np.zeros(is_busy.shape)
        left = [sum([n for loops, n in arrays if loop not in loops], none) for loop in facts.free or (-1,)]
        over = np.minimum.reduce(left) - self.limits.member
        if facts.stage.family.has_whole_axes and facts.loops.whole:
            # A kernel on whole blocks has all of a tile at once: see `runtime.budget`.
            tile = sum([n for _, n in arrays], none) / np.maximum(boxes.n_tiles, 1)
            over = np.maximum(over, tile - self.limits.member)
        over = over.max(axis=-1)
        return np.where(over > 0, OVER_LIMIT + over * BYTE_OVER_LIMIT, 0.0)

    def balanced_seconds(self, facts: StageFacts, boxes: Boxes) -> float:
        """Return the seconds of computing a stage if all members have their share of it, and nothing is sent."""
        share = float(boxes.sizes.sum()) * facts.flops / self.n_members * self._mirrored_share(facts)
        return float(self.rates.flop_seconds(facts.kernel, share, facts.itemsize)) + self.n_members * self.rates.task

    def _mirrored_share(self, facts: StageFacts) -> float:
        """Return the share of its operations that a stage needs where neither loop of its result is cut."""
        result = prod([facts.loops.extents[i] for i in facts.mirrored]) * facts.itemsize
        return MIRRORED if facts.mirrored and WHOLE_RESULTS * result <= self.limits.member else 1.0

    def combined_bytes(self, facts: StageFacts, sharding: Sharding) -> int:
        """Return the bytes of the partial results that are sent to be combined."""
        nbytes = 0
        for itemsize, kept, reduced in reductions(facts):
            members = _members_apart(sharding, facts.loops.extents)
            n_partials = prod(len(members[a]) for a in reduced)
            is_one_there = all(0 in members[a] for a in reduced)  # where they are combined
            nbytes += (n_partials - is_one_there) * prod(facts.loops.extents[a] for a in kept) * itemsize
        return nbytes

    # ---------------------------------------------------------------------------------------------- edges

    def held(self, facts: StageFacts, p: int, lying: Sequence[Sharding]) -> Boxes:
        """Return what each member has of operand `p`, by cut of it."""
        return stacked([boxes_of(s, facts.readings[p].shape, self.n_members) for s in lying])

    def elements_moved(self, facts: StageFacts, p: int, lying: Sequence[Sharding], boxes: Boxes) -> Any:
        """Return the elements that each member is sent of operand `p`: an array (cuts of it, cuts of the stage,
        members).
        """
        view = facts.views[p]
        assert view is not None
        found = moved(view, facts.loops, self.held(facts, p, lying), boxes)
        if facts.stage.family.is_gather and p == 0:
            taken = [b for b, (axis, _, _) in enumerate(view.terms) if axis >= 0 and view.loops[axis] < 0]
            n_sources = np.array([prod(s.parts[b] for b in taken) for s in lying], float)[:, None, None]
            # Every tile asks all that may have its elements, and gets from each what that has.
            found = np.where(n_sources > 1, boxes.sizes * ((n_sources - 1) / n_sources), found)
        return found

    def most_messages(self, facts: StageFacts, p: int, lying: Sequence[Sharding], boxes: Boxes) -> Any:
        """Return how many members send one a part of operand `p`, at most: an array (cuts of it, cuts of the stage)."""
        view = facts.views[p]
        assert view is not None
        return np.minimum(most_tiles(view, facts.loops, facts.readings[p].shape, lying, boxes), self.n_members - 1)

    def read_seconds(self, facts: StageFacts, p: int, lying: Sequence[Sharding], boxes: Boxes) -> Any:
        """Return the seconds to bring operand `p` to a stage: an array (cuts of it, cuts of the stage)."""
        messages = self.most_messages(facts, p, lying, boxes)
        itemsize = facts.readings[p].dtype.itemsize
        return self.transfer_seconds(self.elements_moved(facts, p, lying, boxes), itemsize, messages).total


@lru_cache(maxsize=16384)
def _members_apart(sharding: Sharding, extents: tuple[int, ...]) -> tuple[frozenset[int], ...]:
    """Return which of the members along each axis have parts of it that are not empty, by their numbers there; the
    first of an axis without elements.
    """
    found = []
    for axis, edges in enumerate(sharding.boundaries(extents)):
        row, over, _ = dealing_of(sharding, axis)
        n_row, n_over = (prod(map(sharding.mesh.axis_size, names)) for names in (row, over))
        members = {k // n_row % n_over for k, (a, b) in enumerate(pairwise(edges)) if b > a}
        found.append(frozenset(members or {0}))
    return tuple(found)


@lru_cache(maxsize=16384)
def _parts_apart(sharding: Sharding) -> tuple[int, ...]:
    """Return the parts of each axis that lie on different members: without waves."""
    size = sharding.mesh.axis_size
    return tuple([prod(size(name) for name in names if not is_wave(name)) for names in sharding.axes])


@lru_cache(maxsize=16384)
def _n_owners(sharding: Sharding, kept: tuple[int, ...]) -> int:
    """Return how many members have tiles of a result whose axes run over these loops."""
    return prod(_parts_apart(result_sharding(sharding, kept)))


def reductions(facts: StageFacts) -> list[tuple[int, tuple[int, ...], tuple[int, ...]]]:
    """Return what is combined over tiles: itemsize, loops of the result, loops that are reduced."""
    combines = facts.stage.combines
    if facts.stage.family.is_summed:
        return [(facts.results[0][0], facts.loops.results[0], facts.loops.reduced)]
    combined = facts.results[len(facts.results) - len(combines) :]
    return [(itemsize, kept, c.axes) for (itemsize, kept), c in zip(combined, combines, strict=True)]
