"""Moves: an evaluated array in another environment, block by block.

Between teams of one cluster workers send to workers: where a block of the old cut holds more than one block of the new
one needs, the member that has it cuts the piece out; the member that is to have the new block puts the pieces together.
In this process blocks are shared, not copied, wherever a block is wanted as it is. Only a move between a cluster and
this process, or between two clusters, brings bytes here, one block at a time. A change of device takes place on the
member.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from itertools import count, pairwise, product
from math import prod
from typing import Any, NamedTuple, TypeAlias
from uuid import uuid4

import numpy as np
from dask._task_spec import Task, TaskRef

from distarray import config
from distarray.execution import counters
from distarray.execution.backends import Backend, backend_for, parse_device
from distarray.execution.donation import is_unshared
from distarray.execution.evaluate import LOCK, executor_for, fetch_blocks, is_cluster, mesh_of
from distarray.execution.inside import is_inside_task
from distarray.execution.route import Transfer
from distarray.execution.tasks import extract
from distarray.expr.expr import SOURCE, Environment, Expr, Stored
from distarray.sharding.mesh import Mesh, is_wave
from distarray.sharding.sharding import Sharding
from distarray.types import Shape

__all__ = ["moved", "same_cut"]

Block: TypeAlias = Any  # of any backend

_runs = count()
_process = uuid4().hex[:8]


class Piece(NamedTuple):
    """What a block of the new cut needs of one of the old cut: which one, where in it, and where it goes."""

    number: int
    source: tuple[slice, ...]
    place: tuple[slice, ...]
    shape: Shape
    is_whole: bool  # all of the old block


class Tile(NamedTuple):
    """A block of the new cut: its member, its shape, and the pieces it is put together from."""

    member: int
    shape: Shape
    pieces: tuple[Piece, ...]


class Target(NamedTuple):
    """What all blocks of the new cut share; small, since it travels with every task."""

    dtype: np.dtype[Any]
    layout: tuple[int, ...]
    old_device: str
    device: str


def moved(node: Expr, env: Environment, pin: Sharding | None) -> Expr:
    """An evaluated node of the elements of an evaluated node, in another environment; the same bits.

    Parameters
    ----------
    pin
        How it is to lie there; None keeps the cut (`same_cut`).
    """
    memo = node.memo
    assert memo is not None
    there = Expr(SOURCE, (), node.shape, node.dtype, env, pin=pin)
    # Inside a task everything is this task's own, and whoever waits for the task may hold the lock.
    with nullcontext() if is_inside_task() else LOCK:
        if memo.on_client:
            # Small, or not placed yet: its first use brings it to where it is to be.
            there.memo = Stored(Sharding.whole(mesh_of(env), node.ndim), _lent(node), on_client=True)
            return there
        sharding = same_cut(memo.sharding, node, env) if pin is None else pin
        tiles = list(_tiles(memo.sharding, sharding, node.shape))
        target = Target(node.dtype, sharding.layout, node.env.device, env.device)
        _count(node, env, memo.sharding, tiles)
        there.memo = Stored(sharding, _blocks(node, env, tiles, target))
    return there


def same_cut(sharding: Sharding, node: Expr, env: Environment) -> Sharding:
    """The cut of an array in another environment, if nobody says another one.

    Between meshes of equal sizes every tile stays what it is. On another number of members all of them cut the axis
    that had most parts; an array of one tile stays one, unless it is larger than ``block-bytes``.
    """
    mesh, there = sharding.mesh, mesh_of(env)
    plain = [i for i, name in enumerate(mesh.names) if not is_wave(name)]
    if tuple(mesh.sizes[i] for i in plain) == there.sizes:
        names = dict(zip([mesh.names[i] for i in plain], there.names))
        renamed = Mesh(tuple(names.get(name, name) for name in mesh.names), mesh.sizes)
        axes = tuple(tuple(names.get(name, name) for name in cut) for cut in sharding.axes)
        return Sharding(renamed, axes, (), sharding.bounds, sharding.layout)
    axes_there: list[tuple[str, ...]] = [()] * node.ndim
    if sharding.n_tiles > 1:
        axes_there[max(range(node.ndim), key=sharding.parts.__getitem__)] = tuple(reversed(there.names))
    elif node.ndim and node.nbytes > config.get("block-bytes"):
        axes_there[max(range(node.ndim), key=node.shape.__getitem__)] = tuple(reversed(there.names))
    return Sharding(there, tuple(axes_there), layout=sharding.layout)


def _tiles(old: Sharding, new: Sharding, shape: Shape) -> Iterator[Tile]:
    """The tiles of the new cut, row-major."""
    before, after = old.boundaries(shape), new.boundaries(shape)
    for index in new.tiles():
        box = [(b[i], b[i + 1]) for b, i in zip(after, index)]
        per_axis = [list(_overlaps(start, stop, b)) for (start, stop), b in zip(box, before)]
        pieces = []
        for chosen in product(*per_axis):
            number = 0
            for (part, _, _), n in zip(chosen, old.parts):
                number = number * n + part
            starts = [b[part] for (part, _, _), b in zip(chosen, before)]
            pieces.append(
                Piece(
                    number,
                    tuple(slice(lo - start, hi - start) for (_, lo, hi), start in zip(chosen, starts)),
                    tuple(slice(lo - start, hi - start) for (_, lo, hi), (start, _) in zip(chosen, box)),
                    tuple(hi - lo for _, lo, hi in chosen),
                    all(lo == b[part] and hi == b[part + 1] for (part, lo, hi), b in zip(chosen, before)),
                )
            )
        yield Tile(new.member(index), tuple(stop - start for start, stop in box), tuple(pieces))


def _overlaps(start: int, stop: int, bounds: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """The parts between these boundaries that have elements of a range: (part, from, to)."""
    for part, (first, last) in enumerate(pairwise(bounds)):
        low, high = max(start, first), min(stop, last)
        if low < high:
            yield part, low, high


# ---------------------------------------------------------------------------------------------------- blocks


def _blocks(node: Expr, env: Environment, tiles: Sequence[Tile], target: Target) -> list[Any]:
    """The blocks of the new cut: arrays in this process, Futures on a cluster."""
    if not is_cluster(env):
        return list(_made_here(node, tiles, target))
    if is_cluster(node.env) and _client(node.env) is _client(env):
        return _sent(node, env, tiles, target)
    # Blocks in this process are NumPy's, whatever their device is to be: who uses them adopts them.
    run, executor = f"{_process}-{next(_runs)}", executor_for(env)
    futures = []
    for number, (tile, block) in enumerate(zip(tiles, _made_here(node, tiles, target._replace(device="cpu")))):
        key = (f"dx-move-{run}", 0, number)
        futures.append(executor.put({key: block}, {key: tile.member})[key])
    return futures


def _client(env: Environment) -> Any:
    assert env.team is not None
    return env.team.client


def _made_here(node: Expr, tiles: Sequence[Tile], target: Target) -> Iterator[Block]:
    """The blocks of the new cut, made in this process; each of the old ones is here as long as it is needed."""
    remote = is_cluster(node.env)
    if remote:
        target = target._replace(old_device="cpu")  # as what they are fetched
    blocks = () if remote else _lent(node)
    uses = Counter(piece.number for tile in tiles for piece in tile.pieces)
    here: dict[int, Block] = {}
    for tile in tiles:
        missing = [piece.number for piece in tile.pieces if piece.number not in here]
        here.update(zip(missing, fetch_blocks(node, missing) if remote else [blocks[n] for n in missing]))
        parts = [here[p.number] if p.is_whole else here[p.number][p.source] for p in tile.pieces]
        yield put_together(target, tile.member, tile.shape, tuple(p.place for p in tile.pieces), *parts)
        for piece in tile.pieces:
            uses[piece.number] -= 1
            if not uses[piece.number]:
                del here[piece.number]


def _lent(node: Expr) -> list[Block]:
    """The blocks of an array in this process for another array to have too: nobody writes to them from now on.

    Read-only memory is what is never donated and never handed out to be written (`array.lifetime`). Where somebody may
    write to a block already, and where memory cannot be marked, it is copied.
    """
    memo = node.memo
    assert memo is not None
    lent_before = all(type(block) is np.ndarray and not block.flags.writeable for block in memo.blocks)
    if memo.exported or not (lent_before or is_unshared(memo)):
        backend = backend_for(node.env.device if not memo.on_client else "cpu", 0)
        return [backend.copy(block) for block in memo.blocks]
    lent = [block.view() for block in memo.blocks]
    for block in lent:
        block.flags.writeable = False
    node.memo = Stored(memo.sharding, lent, memo.on_client, memo.exported)
    return lent


def put_together(
    target: Target, member: int, shape: Shape, places: Sequence[tuple[slice, ...]], *parts: Block
) -> Block:
    """A block of pieces; the piece itself if it is all of it and has its memory order."""
    backend = backend_for(target.device, member)
    found = [_carried(part, target, backend, member) for part in parts]
    if len(found) == 1 and tuple(found[0].shape) == shape and _has_layout(found[0], target.layout, backend):
        return found[0]
    block = backend.empty(shape, target.dtype, target.layout)
    for place, part in zip(places, found, strict=True):
        block[place] = part
    return block


def _has_layout(block: Block, layout: tuple[int, ...], backend: Backend) -> bool:
    if isinstance(block, np.ndarray):
        return bool(block.transpose(layout).flags.c_contiguous)
    return backend.layout_of(block) == layout


def _carried(block: Block, target: Target, backend: Backend, member: int) -> Block:
    """A block on the device of a member."""
    if parse_device(target.old_device).kind == parse_device(target.device).kind or isinstance(block, np.ndarray):
        return backend.adopt(block)
    host = backend_for(target.old_device, member).to_host(block)
    # Of the fake devices the host's array is their own memory.
    return backend.adopt(host.copy() if parse_device(target.old_device).kind == "strict" else host)


# ------------------------------------------------------------------------------------------------- on a cluster


def _sent(node: Expr, env: Environment, tiles: Sequence[Tile], target: Target) -> list[Any]:
    """Between teams of one cluster: pieces are cut out where they lie and put together where they are to be."""
    memo = node.memo
    assert memo is not None
    run, member_of = f"{_process}-{next(_runs)}", [memo.sharding.member(index) for index in memo.sharding.tiles()]
    cuts: dict[Any, Task] = {}
    cut_at: dict[Any, int] = {}
    tasks: dict[Any, Task] = {}
    for number, tile in enumerate(tiles):
        refs: list[Any] = []
        for piece in tile.pieces:
            block = memo.blocks[piece.number]
            if isinstance(block, np.ndarray):  # made in this process, as a sum over nothing is
                refs.append(block[piece.source])
                continue
            name = block.key
            if not piece.is_whole:
                name = (f"dx-piece-{run}", 0, len(cuts))
                cut_at[name] = member_of[piece.number]
                cuts[name] = Task(name, extract, (piece.source,), target.old_device, cut_at[name], TaskRef(block.key))
            refs.append(TaskRef(name))
        key = (f"dx-move-{run}", 0, number)
        places = tuple(piece.place for piece in tile.pieces)
        tasks[key] = Task(key, put_together, target, tile.member, tile.shape, places, *refs)
    for c in counters.active:
        c.tasks += len(cuts) + len(tasks)
        c.by_class.update(piece=len(cuts), tile=len(tasks))
    # Whoever reads the pieces is sent while they are held.
    held = executor_for(node.env).submit(cuts, cut_at, list(cuts)) if cuts else {}
    found = executor_for(env).submit(tasks, dict(zip(tasks, (t.member for t in tiles))), list(tasks))
    del held
    return list(found.values())


def _count(node: Expr, env: Environment, old: Sharding, tiles: Sequence[Tile]) -> None:
    """Note what travels: between members as messages, between a cluster and this process as bytes fetched."""
    if not counters.active:
        return
    if is_cluster(node.env) and not (is_cluster(env) and _client(node.env) is _client(env)):
        for c in counters.active:
            c.fetched_bytes += node.nbytes
    if is_cluster(node.env) != is_cluster(env):
        return
    ranks = [old.member(index) for index in old.tiles()]
    for tile in tiles:
        for piece in tile.pieces:
            source = ranks[piece.number]
            if _member(node.env, source) != _member(env, tile.member):
                rows, nbytes = (piece.shape or (1,))[0], prod(piece.shape) * node.dtype.itemsize
                for c in counters.active:
                    c.transfers.append(Transfer(source, tile.member, rows, nbytes))


def _member(env: Environment, rank: int) -> Any:
    return env.team.members[rank] if env.team is not None else 0
