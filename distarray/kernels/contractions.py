"""Contractions of blocks: the elements of some blocks joined over labelled loops, and aggregated over some of these.

A sum of products of two blocks is a matrix product (`products`). Every other join and aggregation runs over the
loop space box by box: a box of joined elements lies in scratch that fits the cache, and is folded into the results it
belongs to before the next one is made, so that the loop space, which may be a thousand times larger than operands and
result, never lies in memory.

What comes out is a partial result: without the aggregated loops, in the dtype in which its monoid accumulates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from distarray.expr.joins import PRODUCT, Join
from distarray.expr.params import Labels
from distarray.kernels import products
from distarray.kernels.elementwise import plain_call
from distarray.kernels.inside import as_task
from distarray.kernels.loans import foreign, reshaped
from distarray.kernels.monoids import MONOIDS, Monoid
from distarray.kernels.namespaces import Block
from distarray.kernels.outcomes import Reduction
from distarray.kernels.program import Program
from distarray.kernels.slices import Box, boxes, slice_extents
from distarray.kernels.specs import LoopSlices
from distarray.kernels.user_functions import cast_block, read_only
from distarray.types import DType, HostArray

if TYPE_CHECKING:
    from distarray.kernels.backends import Backend
    from distarray.kernels.specs import Read, StageSpec

#: A join of the user's.
Function = Callable[..., Any]

#: Bytes of a box of joined elements, of each other result of a join's steps, and of what is turned of an operand: with
#: the results that they belong to they are at home in a second-level cache.
SCRATCH_NBYTES = 1 << 18
#: Elements of a box on a device that is slow to start and has memory to spare.
DEVICE_BOX = 1 << 24
#: The innermost loop is a kept one if one has so many elements, and the last of the result if that has as many as a
#: loop needs to hide its start.
SHORT, LONG = 64, 256
#: Steps of which the indices are made at once.
MOST_STEPS = 1024
#: numpy's buffer while inner loops are long. It would copy broadcast operands to it to make them longer than its size.
BUFFER = 512


def contract(backend: Backend, blocks: Sequence[Block], params: tuple[Any, ...], dtype: DType) -> Block:
    """Return the partial result of some blocks.

    Parameters
    ----------
    params
        Labels of each block, labels of the result, join, monoid, and what kernels do not read; after these the function
        of a join, if that is the user's.
    dtype
        Of the result that the partial ones become.
    """
    labels, result, join, agg = params[:4]
    monoid = MONOIDS[agg]
    if join == PRODUCT:
        return products.contract(backend.xp, labels, result, *blocks, dtype=monoid.state(dtype))
    if not any(labels):  # numbers: one point of a loop
        blocks = [backend.xp.reshape(b, (1,)) for b in blocks]
        of_one = ([(0,)] * len(blocks), (0,), *params[2:])
        return backend.xp.reshape(contract(backend, blocks, of_one, dtype), ())
    users = params[-1] if join.is_users else None
    space = _space(labels, result, blocks)
    aligned = [_aligned(backend.xp, b, own, space.loops) for b, own in zip(blocks, labels, strict=True)]
    made = (_on_numpy if backend.xp is np else _on_device)(backend, aligned, join, users, agg, space, dtype)
    kept = [label for label in space.loops if label in result]
    made = reshaped(backend.xp, made, tuple([space.extents[space.loops.index(label)] for label in kept]))
    order = tuple([kept.index(label) for label in result])
    return made if order == tuple(range(len(order))) else backend.xp.permute_dims(made, order)


def loop_slices(stage: StageSpec, reads: Sequence[Read], shape: Sequence[int]) -> LoopSlices | None:
    """Return slices of an aggregated loop that spare a contraction to put its operands together; None if none do.

    What is gained is a copy of the operands that lie in several parts, what it costs are partial results to combine.

    Parameters
    ----------
    reads
        The operands of a tile.
    shape
        Of the tile of the result.
    """
    n_result = prod(shape) * stage.finishes[0].itemsize
    if all(len(read.parts) < 2 for read in reads):
        return None
    labels, result = stage.params[:2]
    joined = [(own, read) for own, read in zip(labels, reads, strict=True) if len(read.parts) > 1]
    cut = {
        label
        for own, read in joined
        for place in read.places
        for label, s, n in zip(own, place, read.shape, strict=True)
        if s != slice(0, n, 1)
    }
    if len(cut) != 1 or not cut.isdisjoint(result):
        return None
    (loop,) = cut
    places = [place[own.index(loop)] for own, read in joined for place in read.places]
    edges = sorted({edge for s in places for edge in (s.start, s.stop)})
    spared = sum([prod(read.shape) * read.dtype.itemsize for _, read in joined])
    if any(s.step != 1 for s in places) or spared < 2 * (len(edges) - 2) * n_result:
        return None
    axes = tuple([own.index(loop) if loop in own else -1 for own in labels])
    slices = tuple([slice(start, stop) for start, stop in pairwise(edges)])
    return LoopSlices(axes, slices, len(slices).bit_length() * n_result)


# ------------------------------------------------------------------------------------------------- the loop space


class _LoopNest(NamedTuple):
    """A _LoopNest is the loops of a contraction, from the outermost to the innermost.

    Attributes
    ----------
    loops
        Labels.
    extents
        Of the loops.
    reduced
        Which of the loops are aggregated.
    """

    loops: Labels
    extents: tuple[int, ...]
    reduced: tuple[int, ...]

    @property
    def kept_shape(self) -> tuple[int, ...]:
        """Return the extents, with 1 for the aggregated loops."""
        return tuple([1 if a in self.reduced else n for a, n in enumerate(self.extents)])

    def boxes(self, extents: Sequence[int], axes: Sequence[int]) -> Iterator[Box]:
        """Return the boxes of the loops at `axes`, in order, with all of the others."""
        own = tuple([e if a in axes else n for a, (n, e) in enumerate(zip(self.extents, extents, strict=True))])
        return boxes(self.extents, own, range(len(own)))


def _space(labels: Sequence[Labels], result: Labels, blocks: Sequence[Block]) -> _LoopNest:
    """Return the loops, in an order in which the innermost one is long.

    That is one of the result, so that boxes are folded by adding rows to rows; but if all loops of the result are
    short, it is the longest aggregated one, which comes behind the other aggregated ones in either case.
    """
    extents: dict[int, int] = {}
    for own, block in zip(labels, blocks, strict=True):
        extents.update(zip(own, block.shape, strict=True))
    reduced = sorted([label for label in extents if label not in result], key=extents.__getitem__)
    kept = list(result)
    if kept and extents[kept[-1]] < LONG:
        longest = max(kept, key=extents.__getitem__)
        if extents[longest] > 4 * extents[kept[-1]]:
            kept = [label for label in kept if label != longest] + [longest]
    innermost = extents[kept[-1]] if kept else 0
    loops = (*kept, *reduced) if reduced and extents[reduced[-1]] > innermost < SHORT else (*reduced, *kept)
    return _LoopNest(
        loops, tuple([extents[i] for i in loops]), tuple([a for a, i in enumerate(loops) if i not in result])
    )


def _aligned(xp: Any, block: Block, own: Labels, loops: Labels) -> Block:
    """Return a block with an axis for every loop, of extent 1 where it does not depend on it."""
    axes = tuple([own.index(label) for label in loops if label in own])
    if axes != tuple(range(len(axes))):
        block = xp.permute_dims(block, axes)
    for a, label in enumerate(loops):
        if label not in own:
            block = xp.expand_dims(block, axis=a)
    return block


def _extents(box: Box) -> list[int]:
    return [s.stop - s.start for s in box]


def _restricted(x: Block, box: Box) -> Block:
    """Return what a box needs of an aligned block."""
    return x[_place(x, box)]


def _place(x: Block, box: Box) -> Box:
    return tuple([slice(None) if n == 1 else s for n, s in zip(x.shape, box, strict=True)])


# ------------------------------------------------------------------------------------------------------- on numpy


def _on_numpy(
    backend: Backend,
    operands: Sequence[HostArray],
    join: Join,
    users: Function | None,
    agg: str,
    space: _LoopNest,
    dtype: DType,
) -> HostArray:
    monoid = MONOIDS[agg]
    out: HostArray = _result_of(monoid, space, dtype, backend)
    if 0 in space.extents:
        return out
    itemsize = max(out.itemsize, *[step.dtype.itemsize for step in join.steps], join.dtype.itemsize)
    walk = _BoxWalk(operands, space, slice_extents(space.extents, SCRATCH_NBYTES // itemsize))
    joined: Callable[..., HostArray] = (
        _StepsJoin(join, len(operands), prod(walk.extents)) if users is None else partial(_joined_by, join, users)
    )
    merge = monoid.ufunc  # not `Monoid.merge`, which orders zeros by their signs: here numpy takes either
    is_single = all(walk.extents[a] == 1 for a in space.reduced)
    old = np.setbufsize(BUFFER) if walk.extents[-1] >= LONG else 0
    try:
        for kept, parts in walk.regions():
            place = out[kept]
            is_first = True
            for blocks, shape in parts:
                made = joined(blocks, shape, place if is_first and is_single else None)
                if not is_single:
                    made = monoid.partial(made, space.reduced, dtype)
                if not is_first:
                    merge(place, made, out=place)
                elif made is not place:
                    place[...] = made
                is_first = False
    finally:
        if old:
            np.setbufsize(old)
    return out


def _result_of(monoid: Monoid, space: _LoopNest, dtype: DType, backend: Backend) -> Block:
    """Return an array for the result; where a loop has no elements it is all there."""
    out = backend.empty(space.kept_shape, monoid.state(dtype) if space.reduced else dtype)
    if 0 in space.extents and 0 not in space.kept_shape:
        identity = monoid.identity(space.kept_shape, dtype, backend.xp, backend.device)
        assert identity is not None, "aggregating nothing without an identity raises at the call"
        out[...] = identity
    return out


class _BoxWalk:
    """A _BoxWalk is the boxes of a loop space, and what each needs of the operands.

    An operand whose elements along the innermost loop are no neighbours is turned: copied in the order of the loops,
    for a run of steps of the last aggregated loop at a time.
    """

    def __init__(self, operands: Sequence[HostArray], space: _LoopNest, extents: tuple[int, ...]) -> None:
        self.operands, self.space, self.extents = operands, space, extents
        self.axis = max(space.reduced, default=-1)
        self.is_across = [x.shape[-1] > 1 and x.strides[-1] != x.itemsize for x in operands]
        self.run = self._run_length() if self.axis >= 0 else 1
        self.full = self._steps(self.run)

    def _runs(self) -> Iterator[tuple[slice, list[tuple[Any, int]]]]:
        """Yield the ranges of the last aggregated loop, each with the index and the extent of its steps."""
        n = self.space.extents[self.axis] if self.axis >= 0 else 1
        for start in range(0, n, self.run):
            stop = min(start + self.run, n)
            yield slice(start, stop), self.full if stop - start == self.run else self._steps(stop - start)

    def _steps(self, n: int) -> list[tuple[Any, int]]:
        if self.axis < 0:
            return [(..., 1)]
        lead, e = (slice(None),) * self.axis, self.extents[self.axis]
        return [((*lead, slice(i, min(i + e, n))), min(i + e, n) - i) for i in range(0, n, e)]

    def _run_length(self) -> int:
        """Return the extent of the last aggregated loop that is walked, and for which operands are turned, at once."""
        step, n = self.extents[self.axis], self.space.extents[self.axis]
        others = [
            prod(min(e, k) for a, (e, k) in enumerate(zip(self.extents, x.shape, strict=True)) if a != self.axis)
            * x.itemsize
            for x, across in zip(self.operands, self.is_across, strict=True)
            if across
        ]
        fitting = SCRATCH_NBYTES // (max(others) * step) if others else MOST_STEPS
        return min(max(1, min(fitting, MOST_STEPS)) * step, n)

    def regions(self) -> Iterator[tuple[Box, Iterator[tuple[list[HostArray], tuple[int, ...]]]]]:
        """Yield the boxes of the kept loops; for each the operands and the shape of every box that is folded into
        it.
        """
        kept = [a for a in range(len(self.extents)) if a not in self.space.reduced]
        for box in self.space.boxes(self.extents, kept):
            yield box, self._boxes(box)

    def _boxes(self, kept: Box) -> Iterator[tuple[list[HostArray], tuple[int, ...]]]:
        space, axis = self.space, self.axis
        moving = [axis >= 0 and x.shape[axis] > 1 for x in self.operands]
        for lead in space.boxes(self.extents, [a for a in space.reduced if a != axis]):
            box = tuple([s if a in space.reduced else k for a, (k, s) in enumerate(zip(kept, lead, strict=True))])
            views = [_restricted(x, box) for x in self.operands]
            shape = _extents(box)  # along the last aggregated loop those of a step
            for run, steps in self._runs():
                before = (slice(None),) * axis
                sources = [x[(*before, run)] if moves else x for x, moves in zip(views, moving, strict=True)]
                # in the order of the loops
                sources = [np.array(x, order="C") if y else x for x, y in zip(sources, self.is_across, strict=True)]
                for index, n in steps:
                    if axis >= 0:
                        shape[axis] = n
                    yield [x[index] if moves else x for x, moves in zip(sources, moving)], tuple(shape)


class _StepsJoin:
    """A _StepsJoin is a join of elementwise steps, each a call of numpy's function that fills scratch."""

    def __init__(self, join: Join, n: int, size: int) -> None:
        last_use = {i: k for k, step in enumerate(join.steps) for i in step.registers}
        slots: list[DType] = []
        free: list[int] = []
        at: dict[int, int] = {}
        self.calls: list[tuple[Callable[..., Any], tuple[int, ...]]] = []
        for k, step in enumerate(join.steps):
            call = plain_call(step.function, step.params, step.dtype)
            ending = [at[i] for i in set(step.registers) if i in at and last_use[i] == k]
            if isinstance(call, np.ufunc):  # which may write over what it reads
                free += ending
                ending = []
            slot = next((s for s in free if slots[s] == step.dtype), len(slots))
            if slot == len(slots):
                slots.append(step.dtype)
            else:
                free.remove(slot)
            free += ending
            at[n + k] = slot
            self.calls.append((call, step.registers))
        self.slots = [np.empty(size, dtype) for dtype in slots]
        self.at = list(at.values())
        self.shape: tuple[int, ...] = ()
        self.steps: list[tuple[Callable[..., Any], tuple[int, ...], HostArray]] = []
        self.dtype = join.dtype

    def __call__(self, blocks: list[HostArray], shape: tuple[int, ...], place: HostArray | None) -> HostArray:
        """Return the joined elements of a box: in `place` if given and of their dtype, else in scratch."""
        if not self.steps or self.shape != shape:
            size = prod(shape)
            scratch = [slot[:size].reshape(shape) for slot in self.slots]
            self.shape = shape
            self.steps = [(call, inputs, scratch[s]) for (call, inputs), s in zip(self.calls, self.at, strict=True)]
        registers = blocks
        for call, inputs, out in self.steps[:-1]:
            registers.append(call(*[registers[i] for i in inputs], out=out))
        call, inputs, out = self.steps[-1]
        if place is not None and place.dtype == self.dtype:
            out = place
        made: HostArray = call(*[registers[i] for i in inputs], out=out)
        return made


def _joined_by(
    join: Join, function: Function, blocks: list[HostArray], shape: tuple[int, ...], place: HostArray | None
) -> HostArray:
    """Return the joined elements of a box by a function of the user's, which sees the operands in the shape of that."""
    made: HostArray = _called(np, join, function, read_only([np.broadcast_to(x, shape) for x in blocks]), shape)
    return made


def _called(xp: Any, join: Join, function: Function, blocks: Sequence[Block], shape: tuple[int, ...]) -> Block:
    """Return what a function of the user's gives, as contiguous elements of the dtype of the join.

    Raises
    ------
    ValueError
        If the shape is another one.
    TypeError
        If the dtype is one that does not cast to the promised one in kind.
    """
    made = as_task(lambda: xp.asarray(function(*blocks)))
    if tuple(made.shape) != shape:
        raise ValueError(f"join: {join.name} gave an array of shape {tuple(made.shape)} for arrays of shape {shape}")
    made = cast_block(made, join.dtype, f"join: {join.name}")
    return foreign(np.ascontiguousarray(made)) if xp is np else made


# ------------------------------------------------------------------------------------------------- on other devices


def _on_device(
    backend: Backend,
    operands: Sequence[Block],
    join: Join,
    users: Function | None,
    agg: str,
    space: _LoopNest,
    dtype: DType,
) -> Block:
    """Run box by box too, by programs: their backends know the functions of their library, and how to fuse them."""
    monoid, xp = MONOIDS[agg], backend.xp
    out = _result_of(monoid, space, dtype, backend)
    if 0 in space.extents:
        return out
    program = _program(len(operands), join, agg, space.reduced, dtype)
    extents = slice_extents(space.extents, DEVICE_BOX)
    for kept in space.boxes(extents, [a for a in range(len(extents)) if a not in space.reduced]):
        total: Any = None
        for reduced in space.boxes(extents, space.reduced):
            box = tuple([r if a in space.reduced else k for a, (k, r) in enumerate(zip(kept, reduced, strict=True))])
            shape = tuple(_extents(box))
            inputs = [_restricted(x, box) for x in operands]
            if users is not None:
                inputs = [_called(xp, join, users, [xp.broadcast_to(x, shape) for x in inputs], shape)]
            outcome = program.run(inputs, (), shape, None, backend)
            (partial,) = outcome.partials or outcome.outputs
            total = partial if total is None else monoid.merge(total, partial)
        out[_place(out, kept)] = total
    return out


def _program(n: int, join: Join, agg: str, reduced: tuple[int, ...], dtype: DType) -> Program:
    """Return the steps of a join, and the reduction of what they make; of a user's join the reduction alone."""
    n = n if join.steps else 1
    last = n + len(join.steps) - 1
    if not reduced:
        return Program(n, join.steps, (last,))
    return Program(n, join.steps, (), (Reduction(last, agg, reduced, dtype),))
