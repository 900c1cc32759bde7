"""What runs in a task: the functions that `lower` names. The records that they are told by are in `specs`.

Every function here leaves its arguments as they are, but for blocks that its record lets it overwrite: on a cluster,
where tasks are repeated and results replicated, these are blocks that the same task has made, or fills in turns
(`Unfinished`). Arguments after the records are blocks, pieces (arrays, or lists of arrays) and host data, in the order
that the record counts them in.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import chain, islice, product, repeat
from math import prod
from typing import Any, TypeVar

import numpy as np

from distarray.expr.indexing import highest_position
from distarray.expr.params import IndexParams
from distarray.kernels import tables
from distarray.kernels.accumulators import Accumulator
from distarray.kernels.backends import empty_for
from distarray.kernels.buffers import POOL
from distarray.kernels.contractions import contract
from distarray.kernels.devices import backend_for
from distarray.kernels.folds import FOLD
from distarray.kernels.inside import as_task, is_on_worker
from distarray.kernels.loans import may_overwrite
from distarray.kernels.monoids import MONOIDS, Pairs
from distarray.kernels.parts import filled, in_parts
from distarray.kernels.reporting import Event, Source, among, hearing, report
from distarray.kernels.specs import COPY, Array, Generate, Link, Mosaic, Read, StageSpec, TileSpec
from distarray.sharding.boxes import Box


class Unfinished:
    """An Unfinished is blocks that tasks of one member fill one after the other, each where no other does; the last one
    returns them.

    A task that is run again fills in the same again, so it does not matter what of it is there already: in memory, or
    in what a worker wrote to disk meanwhile. A worker does not count these blocks, which lie in its store under
    several keys, until they are finished: only what its process has in memory tells of them.
    """

    __slots__ = ("blocks",)

    def __init__(self, blocks: Sequence[Array]) -> None:
        self.blocks = blocks

    def __reduce__(self) -> tuple[Any, ...]:
        return _resumed, (self.blocks,)


def _resumed(blocks: Sequence[Array]) -> Unfinished:
    """Return blocks to be written, which are copied where they may be read-only, since they come from disk or another
    worker.
    """
    return Unfinished([b.copy() if isinstance(b, np.ndarray) and not b.flags.writeable else b for b in blocks])


Run = TypeVar("Run", bound=Callable[..., Any])

#: Bytes that a task makes, and needs to make it, for each byte that it reads, at most.
MADE_BY_READ = 2


def _nbytes_by_reads(stage: StageSpec, tile: TileSpec | int, args: Sequence[Any]) -> int:
    """Return what a task makes at most, in bytes: `MADE_BY_READ` times what it reads of its arguments, and what is put
    together to be read.
    """
    if args and isinstance(tile, TileSpec) and tile.reads:
        return sum([prod(r.shape) * r.dtype.itemsize * (MADE_BY_READ + (len(r.parts) > 1)) for r in tile.reads])
    return MADE_BY_READ * sum([a.nbytes for a in args if type(a) is np.ndarray])


def _nbytes_by_tile(stage: StageSpec, tile: TileSpec, args: Sequence[Any]) -> int:
    """Return what a task makes at most, in bytes, that picks the elements of its tile out of what it reads at positions
    that it reads too: `MADE_BY_READ` times both.
    """
    read = [prod(r.shape) * r.dtype.itemsize for r in tile.reads]
    put_together = sum([n for n, r in zip(read, tile.reads) if len(r.parts) > 1])
    positions = sum(read) - sum(read[:: 1 + len(stage.params[0])])
    return MADE_BY_READ * (prod(tile.shape) * stage.stores[0].itemsize + positions) + put_together


def _none_but_leased(stage: StageSpec, tile: TileSpec | int, args: Sequence[Any]) -> int:
    """Return 0: all that a task makes lies in memory of the pool, and waits for room when that is leased."""
    return 0


def _explained(run: Run, *, needs: Callable[[StageSpec, Any, Sequence[Any]], int] = _nbytes_by_reads) -> Run:
    """Let errors of a stage's task name the operations and the user's lines; their class stays.

    Kernels run on the device of the tile. A worker whose memory is full makes room first, for as many bytes as the task
    needs.
    """

    @functools.wraps(run)
    def explained(stage: StageSpec, tile: Any, *args: Any) -> Any:
        try:
            room = _NO_CONTEXT if POOL.full is None else POOL.room_for(needs(stage, tile, args))
            with room, _device_of(stage, tile):
                return as_task(run, stage, tile, *args)
        except Exception as error:
            for name, origin in dict.fromkeys([w[:2] for w in stage.where if w[1] is not None][-3:]):
                error.add_note(f"{name}, called at {origin}")
            raise
        except (SystemExit, KeyboardInterrupt) as error:
            if not is_on_worker():
                raise
            # It would end the worker, and the next one that gets the task.
            raise RuntimeError(f"a function that runs on a worker raised {error!r}") from error

    return explained  # type: ignore[return-value]  # the same signature


def _device_of(stage: StageSpec, tile: TileSpec | int) -> AbstractContextManager[Any]:
    """Return the context in which the member of a tile, or one that is named alone, computes."""
    if stage.device == "cpu":
        return _NO_CONTEXT
    return backend_for(stage.device, tile if isinstance(tile, int) else tile.member).current()


_NO_CONTEXT: AbstractContextManager[None] = nullcontext()


def _arguments(stage: StageSpec, tile: TileSpec, args: Sequence[Any], backend: Any) -> list[Any]:
    values: list[Any] = []
    for a in args:
        # Results of several arrays are tuples, pieces of several boxes lists.
        several = type(a) in (tuple, list)
        is_plain = a is not None and type(a) is not Unfinished
        values.append(tuple(map(backend.adopt, a)) if several else backend.adopt(a) if is_plain else a)
    values += [_generated(g, backend, stage.where) for g in tile.generated]
    values += [r.assemble(values, backend) for r in tile.assembled]
    return values


def _generated(g: Generate, backend: Any, where: Sequence[Source]) -> Array:
    """Return the block of a created array at a global box; all that numpy may tell of it is of its last cast."""
    with hearing("cast", where):
        return tables.CREATE[g.name](backend, g.box, g.shape, g.dtype, g.params, g.runtime)


@functools.partial(_explained, needs=_none_but_leased)
def run_program(stage: StageSpec, tile: TileSpec, *args: Any) -> Any:
    """Return one tile of a program stage: its stored results, then partial or finished reductions, then the written
    tile.

    Returns
    -------
    block, or tuple of blocks
        A tuple where there are several results.
    """
    backend = backend_for(stage.device, tile.member)
    if tile.is_made:
        return _generated(tile.generated[0], backend, stage.where)
    values = _arguments(stage, tile, args, backend)
    program = stage.program
    assert program is not None
    started = list(values[tile.into].blocks) if tile.into >= 0 else None
    results: list[Any] = (
        started[: len(stage.stores)]
        if started is not None
        else [
            values[arg] if arg >= 0 and may_overwrite(values[arg]) else backend.empty(tile.shape, d, stage.layout)
            for d, arg in zip(stage.stores, tile.reuse or (-1,) * len(stage.stores), strict=True)
        ]
    )
    outs = list(results)
    new_base = None
    copy_back = None
    if tile.write is not None:
        lens, base = tile.write.lens, values[tile.write.arg]
        if started is not None:
            new_base = started[-1]
        elif tile.write.is_inplace and may_overwrite(base):
            new_base = base
        else:
            new_base = backend.empty(base.shape, base.dtype, backend.layout_of(base))
            lens.copy_around(base, new_base)  # the view itself is written as a whole
        target = backend.writable_view(lens, new_base)
        if tile.hazard and new_base is base:
            copy_back = target
            target = backend.empty(tile.shape, new_base.dtype)
        if stage.filled >= 0:
            target[...] = stage.scalars[stage.filled]
        else:
            outs.append(target)
    problems: list[Event] = []
    modes = stage.modes
    partials: Sequence[Any] = ()
    # One region has the partials of the tile.
    reductions = program.reductions if len(tile.regions) != 1 else ()
    accumulators = [Accumulator(reduction, tile.shape, None, backend.empty) for reduction in reductions]
    for region in tile.regions:
        inputs = [p.read(values) for p in region.operands]
        place = region.place
        here = outs if place is None else [o[place] for o in outs]
        outcome = program.run(inputs, stage.scalars, region.shape, here, backend, modes, region.start, stage.extents)
        problems += outcome.events
        partials = outcome.partials
        for k, accumulator in enumerate(accumulators):
            with hearing("reduce", _reducing(stage, k)):
                accumulator.add(partials[k], place or tuple(map(slice, (0,) * len(tile.shape), tile.shape)))
    if copy_back is not None:
        copy_back[...] = target
    if problems:
        report(problems, stage.where)
    for k, (finish, shape) in enumerate(zip(stage.finishes, tile.finish, strict=True)):
        with hearing("reduce", _reducing(stage, k)):
            partial = accumulators[k].result() if accumulators else partials[k]
            results.append(partial if shape is None else finish(partial, shape, backend))
    if new_base is not None:
        results.append(new_base)
    if tile.is_unfinished:
        return Unfinished(results)
    return results[0] if len(results) == 1 else tuple(results)


def _reducing(stage: StageSpec, k: int) -> Sequence[Source]:
    """Return the operation that is the `k`-th reduction of a stage: those of a program follow its instructions."""
    assert stage.program is not None
    return among(stage.where, len(stage.program.instructions) + k)


def pack(boxes: Sequence[tuple[slice, ...]], device: str, member: int, *blocks: Array) -> Array | list[Array]:
    """Return copies of one box of each of the first blocks; those that follow are only waited for. Of one box its copy,
    of several a list.
    """
    backend = backend_for(device, member)
    with backend.current():
        found = [backend.copy(backend.adopt(block)[box]) for box, block in zip(boxes, blocks, strict=False)]
    return found[0] if len(found) == 1 else found


def make(function: Callable[[], Any]) -> Any:
    """Return what a function without arguments makes."""
    return function()


def run_mosaic(stage: StageSpec, mosaic: Mosaic, *args: Any) -> Array:
    """Return a tile from slices of blocks: every element is written once."""
    backend = backend_for(stage.device, mosaic.member)
    if mosaic.turn:
        (whole,) = args[-1].blocks
    else:
        whole = backend.empty(mosaic.whole, stage.stores[0], stage.layout)
    out = whole[mosaic.place] if mosaic.place else whole
    axes = [[(slice(t, t + n), slice(b, b + n)) for t, b, n in axis] for axis in mosaic.axes]
    with backend.current():
        for block, crop, cell in zip(mosaic.parts(args), mosaic.crops or repeat(None), product(*axes)):
            part = backend.adopt(block)
            if crop is not None:
                part = part[crop]
            out[tuple([place for place, _ in cell])] = part[tuple([inside for _, inside in cell])]
    return whole if mosaic.turn == mosaic.n_turns - 1 else Unfinished([whole])


def run_fused(links: Sequence[Link], *args: Any) -> Any:
    """Run the tasks one after the other, each with the results that it needs of those before it; the result of the
    last.
    """
    given = iter(args)
    results: list[Any] = []
    for link in links:
        here = list(islice(given, link.n_args))
        for i, n in link.places:
            here[i] = results[n]
        for n in link.dropped:
            results[n] = None  # what the link alone has, it may free
        results.append(link.function(*here))
    return results[-1]


def wrapped(
    key: Any, function: Callable[..., Any], args: Sequence[Any], wrap: Callable[[Any, int, Callable[..., Any]], Any]
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return the function and arguments of a task with something around the function, or around that of each task that
    was fused to it.

    Parameters
    ----------
    wrap
        Called with the key of a task, its number among the fused ones, and its function.
    """
    if function is not run_fused:
        return wrap(key, 0, function), tuple(args)
    links, *given = args
    return function, (tuple([k._replace(function=wrap(k.key, n, k.function)) for n, k in enumerate(links)]), *given)


def project(index: int, results: Sequence[Any]) -> Any:
    """Return one result of a task that has several: dropping its handle frees just its block."""
    return results[index]


@functools.partial(_explained, needs=_none_but_leased)
def run_contract(stage: StageSpec, tile: TileSpec, *args: Any) -> Array:
    """Return one tile of a contraction, aggregated over what the tile holds of the reduced loops: a partial result, or
    the result where there is no other tile.
    """
    backend = backend_for(stage.device, tile.member)
    values = _arguments(stage, tile, args, backend)

    def kernel(here: Sequence[Array]) -> Array:
        return contract(backend, here, stage.params, stage.stores[0])

    (shape,) = tile.finish
    with hearing(stage.name, stage.where):
        if tile.along is None:
            partial = in_parts(stage.parts, _joined(tile.reads, values, backend), kernel)
        else:
            pairs = Pairs(MONOIDS[stage.finishes[0].monoid], is_own=True)
            for loop in tile.along.slices:
                operands = zip(tile.reads, tile.along.axes, strict=True)
                blocks = [read.along(axis, loop, values) for read, axis in operands]
                pairs.add(in_parts(stage.parts, blocks, kernel))
            partial = pairs.result()
        return partial if shape is None else stage.finishes[0](partial, shape, backend)


def _joined(reads: Sequence[Read], values: Sequence[Any], backend: Any) -> list[Array]:
    """Return the operands of a contraction: those that are one array in two orders of its axes are put together once,
    since BLAS has half the work with a matrix times its transpose, if it sees that.
    """
    blocks: list[Array] = []
    for k, read in enumerate(reads):
        found = None
        if len(read.parts) > 1:
            orders = [(block, read.order_of(other)) for block, other in zip(blocks, reads[:k], strict=True)]
            found = next(((block, order) for block, order in orders if order is not None), None)
        if found is None:
            blocks.append(read.assemble(values, backend))
        else:
            blocks.append(backend.xp.permute_dims(*found))
    return blocks


@_explained
def combine_partials(stage: StageSpec, member: int, k: int, shape: tuple[int, ...] | None, *partials: Any) -> Any:
    """Return partial results of several tiles for the `k`-th reduction of a stage combined in order; finished where
    `shape` is that of the result.
    """
    backend, finish = backend_for(stage.device, member), stage.finishes[k]
    with hearing(stage.name or "reduce", stage.where if stage.program is None else _reducing(stage, k)):
        partial = finish.combine(partials, backend)
        return partial if shape is None else finish(partial, shape, backend)


@_explained
def run_fold(stage: StageSpec, tile: TileSpec, *args: Any) -> Any:
    """Return what one tile gives to a fold: a partial result, or the result where there is no other tile."""
    backend = backend_for(stage.device, tile.member)
    blocks = _blocks_of(stage, tile, args, backend)
    with hearing(stage.name, stage.where):
        partial = FOLD[stage.name].partial(backend.xp, *blocks, params=stage.params)
        (shape,) = tile.finish
        return partial if shape is None else stage.finishes[0](partial, shape, backend)


@_explained
def run_block(stage: StageSpec, tile: TileSpec, *args: Any) -> Any:
    """Return one tile of a whole-block kernel; a tuple where the operation has several results."""
    backend = backend_for(stage.device, tile.member)
    blocks = _blocks_of(stage, tile, args, backend)

    placed = tables.PLACED.get(stage.name)
    if placed is not None or (backend.xp is np and stage.name in tables.FILL):

        def fill(here: Sequence[Array], out: Array, start: int) -> None:
            if placed is not None:
                placed(out, *here, params=stage.params, start=start)
            else:
                tables.FILL[stage.name](out, *here, params=stage.params)

        out = empty_for(backend, blocks[0], tile.shape, stage.stores[0])
        with hearing(stage.name, stage.where):
            return filled(stage.parts, blocks, fill, out, tile.offset)

    def kernel(here: Sequence[Array]) -> Any:
        return _plain(tables.BLOCK[stage.name](backend.xp, *here, params=stage.params))

    with hearing(stage.name, stage.where):
        return in_parts(stage.parts, blocks, kernel)


def kept(device: str, member: int, block: Array) -> Array:
    """Return a block that another member has made, to be kept here too."""
    backend = backend_for(device, member)
    with backend.current():
        return backend.adopt(block)


def together(*blocks: Array) -> Any:
    """Return blocks as the results of one task."""
    return _plain(blocks)


def _plain(result: Any) -> Any:
    """Return the block itself where a task has one result: there is no projection for it (`Lowering.results`)."""
    return result[0] if isinstance(result, tuple) and len(result) == 1 else result


@_explained
def run_reshape(stage: StageSpec, tile: TileSpec, *args: Any) -> Array:
    """Return one tile of a reshape: runs of elements in each group of axes, put end to end.

    ``stage.params`` is unused; each read comes with the place of its run in the tile, seen with one axis per group.
    """
    backend = backend_for(stage.device, tile.member)
    values = _arguments(stage, tile, args, backend)
    if tile.is_view:
        run = tile.reads[0].assemble(values, backend)
        if backend.xp is np and run.flags.c_contiguous:
            return run.reshape(tile.shape)
    out = backend.empty(tile.shape, stage.stores[0])
    by_group = backend.xp.reshape(out, tile.offset)  # a view
    for read, region in zip(tile.reads, tile.regions, strict=True):
        assert region.place is not None
        run = read.assemble(values, backend)
        place = by_group[(*region.place, ...)]  # an array even where it has no axes
        if backend.xp is np and place.flags.c_contiguous:
            COPY.run([run], (), run.shape, [place.reshape(run.shape)])
        else:
            place[...] = backend.xp.reshape(run, region.shape)
    return out


@functools.partial(_explained, needs=_nbytes_by_tile)
def run_take(stage: StageSpec, tile: TileSpec, *args: Any) -> Array:
    """Return one tile of an integer-array read whose source is all here."""
    backend = backend_for(stage.device, tile.member)
    blocks = _blocks_of(stage, tile, args, backend)
    if backend.xp is not np:
        return tables.take(backend.xp, blocks[0], blocks[1:], stage.params)

    def fill(here: Sequence[Array], out: Array, start: int) -> None:
        _take_into(out, here[0], here[1:], stage.params)

    return filled(stage.parts, blocks, fill, backend.empty(tile.shape, blocks[0].dtype))


def _take_into(out: Array, x: Array, index: Sequence[Array], params: IndexParams) -> None:
    """Fill a NumPy block with what `tables.take` gives."""
    axes, position, *_ = params
    if len(axes) == 1 and position == axes[0] and x.flags.c_contiguous and out.flags.c_contiguous and out.size:
        at, n = index[0], x.shape[position]
        if highest_position(at) < n:  # else the mode decides: where it is to raise, numpy fills a copy first
            np.take(x, at, axis=position, out=out, mode="clip")
            return
    out[...] = tables.take(np, x, index, params)


@functools.partial(_explained, needs=_nbytes_by_tile)
def take_part(stage: StageSpec, tile: TileSpec, starts: Sequence[tuple[int, ...]], *args: Any) -> list[Any]:
    """Return what some source tiles have of a result tile, for each of them what `tables.take_part` gives; `starts`
    says where they begin.
    """
    backend = backend_for(stage.device, tile.member)
    blocks = _blocks_of_each(stage, tile, args, backend, len(starts))
    return [tables.take_part(backend.xp, x, index, at, stage.params) for (x, *index), at in zip(blocks, starts)]


def _blocks_of(stage: StageSpec, tile: TileSpec, args: Sequence[Any], backend: Any) -> list[Array]:
    """Return the operands of a kernel that runs on whole blocks."""
    values = _arguments(stage, tile, args, backend)
    return [r.assemble(values, backend) for r in tile.reads]


def _blocks_of_each(stage: StageSpec, tile: TileSpec, args: Sequence[Any], backend: Any, n: int) -> list[list[Array]]:
    """Return the operands of `n` calls whose reads stand one after the other."""
    blocks = _blocks_of(stage, tile, args, backend)
    each = len(blocks) // n
    return [blocks[k : k + each] for k in range(0, len(blocks), each)]


@functools.partial(_explained, needs=_nbytes_by_tile)
def take_join(stage: StageSpec, tile: TileSpec, *parts: Any) -> Array:
    """Return a result tile from what each source tile had of it."""
    backend = backend_for(stage.device, tile.member)
    adopted = [tuple(map(backend.adopt, part)) for part in chain.from_iterable(parts)]
    return tables.take_join(backend, tile.shape, stage.stores[0], adopted, stage.params)


@_explained
def put_part(stage: StageSpec, tile: TileSpec, boxes: Sequence[tuple[Box, Box]], *args: Any) -> list[Any]:
    """Return what some tiles of values write into one tile of the base, in order; `boxes`: the base's and the values',
    for each of them.
    """
    backend = backend_for(stage.device, tile.member)
    # Of what tasks read they return nothing: who reads it last may write there.
    return [_apart(backend, part) for part in _put_parts(stage, tile, boxes, args, backend)]


def _put_parts(
    stage: StageSpec, tile: TileSpec, boxes: Sequence[tuple[Box, Box]], args: Sequence[Any], backend: Any
) -> list[tuple[Any, ...]]:
    """Return what some tiles of values write into one tile of the base, in order; arrays may be views of blocks."""
    blocks = _blocks_of_each(stage, tile, args, backend, len(boxes))
    axes = stage.params[0]
    whole = [all(len(frame[a]) == stage.extents[a] for a in axes) for frame, _ in boxes]
    return [
        tables.put_part(backend.xp, v, index, box, stage.params, is_whole=is_whole)
        for (v, *index), box, is_whole in zip(blocks, boxes, whole)
    ]


def _apart(backend: Any, part: tuple[Any, ...], block: Array | None = None) -> tuple[Any, ...]:
    """Return a part with copies of the arrays that may share memory, with anything or with a block."""

    def is_apart(a: Any) -> bool:
        if not isinstance(a, np.ndarray):
            return True
        return a.base is None if block is None else not np.may_share_memory(a, block)

    return tuple([a if is_apart(a) else backend.copy(a) for a in part])


@_explained
def put_join(stage: StageSpec, member: int, inplace: bool, base: Array, *parts: Any) -> Array:
    """Return a new version of a base's tile: the parts are applied in order."""
    backend = backend_for(stage.device, member)
    base = backend.adopt(base)
    new = base if inplace and may_overwrite(base) else backend.copy(base)
    each = chain.from_iterable(parts)
    here = [tuple([backend.adopt(a) if hasattr(a, "dtype") else a for a in part]) for part in each]
    return _put(stage, backend, new, here)


def _put(stage: StageSpec, backend: Any, new: Array, parts: Sequence[tuple[Any, ...]]) -> Array:
    """Return a block into which parts were written, in order."""
    with hearing("cast" if stage.params.mode == "set" else stage.params.mode, stage.where):
        for part in parts:
            tables.put_apply(backend.xp, new, part, stage.params)
    return new


def _nbytes_by_record(stage: StageSpec, member: Any, args: Sequence[Any]) -> int:
    """Return what a task that writes at positions makes at most, in bytes: what it makes of what it reads."""
    return _nbytes_by_reads(stage, args[2], args[4:])


@functools.partial(_explained, needs=_nbytes_by_record)
def put_here(
    stage: StageSpec,
    member: int,
    inplace: bool,
    base: Array,
    tile: TileSpec,
    boxes: Sequence[tuple[Box, Box]],
    *args: Any,
) -> Array:
    """Return a new version of a base's tile, into which tiles of values that are here are written in order."""
    backend = backend_for(stage.device, member)
    base = backend.adopt(base)
    new = base if inplace and may_overwrite(base) else backend.copy(base)
    parts = _put_parts(stage, tile, boxes, args, backend)
    if new is base:  # which may be what is written, or say where
        parts = [_apart(backend, part, base) for part in parts]
    return _put(stage, backend, new, parts)


@_explained
def run_tiles(stage: StageSpec, tile: TileSpec, *args: Any) -> Any:
    """Run a kernel on one tile; the last of its params is where the first operand's tile begins, or its place in a
    grid.
    """
    backend = backend_for(stage.device, tile.member)
    blocks = _blocks_of(stage, tile, args, backend)
    with hearing(stage.name, stage.where):
        return _plain(tables.BLOCK[stage.name](backend.xp, *blocks, params=(*stage.params, tile.offset)))
