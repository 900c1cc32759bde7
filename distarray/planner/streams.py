"""Streams: stages that work tile after tile on every member, so that what passes through is never there as a whole.

A plan may hold more than a member has room for: the scores of attention, the product that a reduction follows, the
operands of a product that lie elsewhere. Then a loop of the stage that makes or reads a large array is cut further, in
waves, and so are the stages before and after it, as far as they are cut alike along that loop. Their tiles depend on
one another only within a wave: each wave is one task (`lower.fuse`), of an array in between only a wave is ever
held, and what comes from other members comes wave by wave (`lower.route`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import ceil, prod
from typing import NamedTuple

from distarray.errors import MemoryBudgetError
from distarray.planner.loops import Reading
from distarray.planner.partition.facts import StageFacts
from distarray.planner.partition.resolved import PartitionProblem
from distarray.planner.partition.stage_costs import reductions
from distarray.planner.plan import Pinned, Plan, Stage, Written
from distarray.sharding.dealing import dealing_of
from distarray.sharding.mesh import is_wave
from distarray.sharding.sharding import Sharding


class Head(NamedTuple):
    """A Head is a loop that might be cut further, of a stage that makes or reads a large array.

    Parameters
    ----------
    stage, loop
        Their numbers.
    nbytes
        Of what one member holds of the array, or of a wave of it where it streams.
    """

    stage: int
    loop: int
    nbytes: int


class Streams:
    """Streams knows the streams that a plan may have, so that large arrays pass members in waves.

    Parameters
    ----------
    plan
        Without them, or with some.
    problem
        Its graph, as it is placed.
    large
        Bytes on a member from which on an array is streamed.
    """

    def __init__(self, plan: Plan, problem: PartitionProblem, large: int) -> None:
        self._plan = plan
        self._problem = problem
        self._large = large
        resolver = problem.resolver(problem.inputs)
        self._cuts = [resolver.step(s, f.loops, f.readings) for f, s in zip(problem.facts, plan.stages, strict=True)]
        self._lies = resolver.lies
        #: By node: the stage that makes it, and the loop of each of its axes.
        self._made = {i: (f, axes) for f in problem.facts for i, axes in _made(f, problem).items()}
        self._readers: dict[int, list[tuple[StageFacts, Reading]]] = {}
        for f in problem.facts:
            for r in f.readings:
                self._readers.setdefault(r.node, []).append((f, r))

    def heads(self) -> list[Head]:
        """Return the loops that come into question, those of the largest array first."""
        most: Counter[tuple[int, int]] = Counter()
        for nbytes, facts, loops in (*self._intermediate(), *self._arriving(), *self._whole()):
            for loop in loops:
                if self._room(facts, loop) > 1:
                    most[facts.number, loop] = max(most[facts.number, loop], nbytes)
        return [Head(*at, nbytes) for at, nbytes in most.most_common()]

    def handed_on(self) -> Head | None:
        """Return the loop along which the largest tile that elementwise operations hand on can be cut further; None if
        none is large.
        """
        found = []
        for i, (facts, axes) in self._made.items():
            parts = [self._cuts[facts.number].parts[loop] for loop in axes if loop >= 0]
            nbytes = self._problem.graph.nodes[i].nbytes // prod(parts)
            if facts.stage.family.is_fused and i not in self._problem.graph.kept and nbytes > self._large:
                found += [
                    Head(facts.number, loop, nbytes) for loop in axes if loop >= 0 and self._room(facts, loop) > 1
                ]
        return max(found, key=lambda head: head.nbytes, default=None)

    def _intermediate(self) -> Iterator[tuple[int, StageFacts, Sequence[int]]]:
        """Yield the large arrays that are held only for a while: bytes, the stage that makes them, and its loops.

        Such are partial results, too, of which there is one tile at a time.
        """
        for i, (facts, axes) in self._made.items():
            if self._is_large(i):
                n_waves = prod(n for _, n in self._plan.stages[facts.number].cut.waves)
                yield self._nbytes(i) // n_waves, facts, axes
        for facts in self._problem.facts:
            cut = self._cuts[facts.number]
            for itemsize, kept, reduced in reductions(facts):
                nbytes = itemsize * prod(-(-facts.loops.extents[a] // cut.parts[a]) for a in kept)
                if nbytes > self._large and any(cut.parts[a] > 1 for a in reduced):
                    yield nbytes, facts, kept

    def _arriving(self) -> Iterator[tuple[int, StageFacts, Sequence[int]]]:
        """Yield the operands of which a tile needs much that does not lie where it is made: bytes, the stage, and its
        loops.
        """
        for facts in self._problem.facts:
            cut = self._cuts[facts.number]
            for r, view in zip(facts.readings, facts.views, strict=True):
                loops = [loop for loop in r.loops if loop is not None]
                nbytes = _nbytes_of_tile(r, cut)
                if facts.stage.family.is_gather and r is facts.readings[0]:  # of what comes a tile has its elements
                    loops = list(facts.loops.results[0])
                    tile = prod(-(-facts.loops.extents[loop] // cut.parts[loop]) for loop in loops)
                    nbytes = min(nbytes, r.dtype.itemsize * tile)
                if nbytes > self._large and not (view is not None and self._is_at_hand(r, cut)):
                    yield nbytes, facts, loops

    def _whole(self) -> Iterator[tuple[int, StageFacts, Sequence[int]]]:
        """Yield the kernels that have a whole tile of all operands and results at once, and much of it: bytes, the
        stage, and the loops that all results have.
        """
        for facts in self._problem.facts:
            if facts.stage.family.has_whole_axes and facts.loops.whole:
                cut, extents = self._cuts[facts.number], facts.loops.extents
                nbytes = sum([_nbytes_of_tile(r, cut) for r in facts.readings])
                nbytes += sum(
                    [size * prod([-(-extents[a] // cut.parts[a]) for a in axes]) for size, axes in facts.results]
                )
                if nbytes > self._large:
                    yield nbytes, facts, facts.kept

    def _is_at_hand(self, r: Reading, cut: Sharding) -> bool:
        """Return whether an operand lies as a stage is cut."""
        lying, found = self._lies[r.node], [_loop_over(r, axis) for axis in range(len(r.lens.terms))]
        return all(loop >= 0 and is_alike(cut, loop, lying, axis) for axis, loop in enumerate(found))

    def streamed(self, head: Head, n_waves: int) -> Plan | None:
        """Return the plan with a stream; None if the loop is too short, or a stage would have too many tiles."""
        facts = self._problem.facts[head.stage]
        n_waves = min(n_waves, self._room(facts, head.loop))
        if n_waves < 2:
            return None
        n_parts = self._cuts[head.stage].parts[head.loop] * n_waves
        loops = self._reached(facts, head.loop)
        resolver = self._problem.resolver(self._problem.inputs)
        stages: list[Stage] = []
        for f, stage in zip(self._problem.facts, self._plan.stages, strict=True):
            loop = loops.get(f.number, -1)
            readings = resolver.typed(f.readings)
            if loop >= 0 and resolver.resolved(stage, f.loops, readings).parts[loop] * n_waves == n_parts:
                # else it follows one that is
                stage = replace(stage, cut=replace(stage.cut, waves=(*stage.cut.waves, (loop, n_waves))))
            try:
                resolver.step(stage, f.loops, readings)
            except MemoryBudgetError:
                return None
            stages.append(stage)
        return replace(self._plan, stages=tuple(stages))

    def _reached(self, head: StageFacts, loop: int) -> dict[int, int]:
        """Return, by number of the stage, the loop along which a stream that begins at `head` runs through it."""
        found = {head.number: loop}
        pending = [head]
        while pending:
            facts = pending.pop()
            for other, its in self._neighbours(facts, found[facts.number]):
                if other.number not in found and self._room(other, its) > 1:
                    found[other.number] = its
                    pending.append(other)
        return found

    def _neighbours(self, facts: StageFacts, loop: int) -> Iterator[tuple[StageFacts, int]]:
        """Yield the stages that are cut alike along a loop of this one, and share a large array with it; their
        loops.
        """
        for i, axes in _made(facts, self._problem).items():
            if loop in axes and self._is_large(i):
                axis = axes.index(loop)
                for reader, r in self._readers.get(i, ()):
                    its = _loop_over(r, axis)
                    if its >= 0 and is_alike(self._cuts[reader.number], its, self._lies[i], axis):
                        yield reader, its
        for r in facts.readings:
            if r.node in self._made and self._is_large(r.node):
                maker, axes = self._made[r.node]
                for axis, its in enumerate(axes):
                    is_along = its >= 0 and _loop_over(r, axis) == loop
                    if is_along and is_alike(self._cuts[facts.number], loop, self._lies[r.node], axis):
                        yield maker, its

    def _nbytes(self, i: int) -> int:
        lying = self._lies[i]
        n_members = self._problem.mesh.size if lying is None else min(lying.mesh.n_members, lying.n_tiles)
        return ceil(self._problem.graph.nodes[i].nbytes / n_members)

    def _is_large(self, i: int) -> bool:
        """Return whether an array is held only for a while, and is large."""
        return i not in self._problem.graph.kept and self._nbytes(i) > self._large

    def _room(self, facts: StageFacts, loop: int) -> int:
        """Return into how many waves a loop of a stage may be cut; 1 means that it cannot stream."""
        is_free = loop in facts.free and facts.pinned < 0 and not facts.is_written and facts.leader < 0
        if not is_free or not facts.stage.is_separable or isinstance(facts.stage.cut.rule, Pinned | Written):
            return 1
        return facts.loops.extents[loop] // self._cuts[facts.number].parts[loop]


def _made(facts: StageFacts, problem: PartitionProblem) -> dict[int, tuple[int, ...]]:
    """Return the arrays that a stage makes, with the loop of each axis, -1 for those that it reduces to one element."""
    stage, nodes = facts.stage, problem.graph.nodes
    if stage.family.is_fused:
        every = tuple(range(len(facts.loops.extents)))
        found = {i: every for _, i in stage.stores}
        for c in stage.combines:
            if nodes[c.node].params.keepdims:
                found[c.node] = tuple([-1 if a in c.axes else a for a in every])
            else:
                found[c.node] = tuple([a for a in every if a not in c.axes])
        return found
    if not stage.is_separable or isinstance(nodes[stage.nodes[0]].dtype, tuple):
        return {}
    return {stage.nodes[0]: facts.loops.results[0]}


def _nbytes_of_tile(r: Reading, cut: Sharding) -> int:
    """Return the bytes of an operand that a tile of a stage needs, about."""
    parts = [1 if loop is None else cut.parts[loop] for loop in r.loops]
    return r.dtype.itemsize * prod([-(-n // k) for n, k in zip(r.lens.shape, parts, strict=True)])


def _loop_over(r: Reading, axis: int) -> int:
    """Return the loop that runs over all of an axis of the source of an operand, element by element; -1 if there is
    none.
    """
    seen, start, step = r.lens.terms[axis]
    if seen is None or start or step != 1 or r.lens.shape[seen] != r.shape[axis] or any(map(any, r.halo)):
        return -1
    loop = r.loops[seen]
    return -1 if loop is None else loop


def is_alike(cut: Sharding, loop: int, lying: Sharding | None, axis: int) -> bool:
    """Return whether a loop and an axis have the same part on each member."""
    if lying is None or cut.bounds[loop] != lying.bounds[axis]:
        return False
    names = _dealt(cut, loop)
    is_one = not names or cut.mesh.without_waves() == lying.mesh.without_waves()
    return is_one and names == _dealt(lying, axis)


def _dealt(sharding: Sharding, axis: int) -> list[str | int]:
    """Return the axes of the mesh by which an axis is dealt out to members, and the extents of the waves among them:
    those in a row cut further what a member has.
    """
    _, over, rounds = dealing_of(sharding, axis)
    size = sharding.mesh.axis_size
    return [size(name) if is_wave(name) else name for name in (*over, *rounds)]
