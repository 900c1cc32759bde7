"""Moves: an evaluated array in another environment.

Between teams of one cluster workers send to workers, as the synthesizer plans it (`passage`). In this process blocks
are shared, not copied, wherever a block is wanted as it is. Only a move between a cluster and this process, or between
two clusters, brings bytes here, one block at a time. A change of device takes place on the member.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
from dask._task_spec import Task, TaskRef

from distarray.expr.expr import Environment, Expr, Stored
from distarray.expr.lens import Affine
from distarray.kernels.backends import Backend
from distarray.kernels.devices import backend_for, parse_device
from distarray.kernels.loans import is_lent
from distarray.kernels.namespaces import Block
from distarray.lower.messages import Transfer
from distarray.runtime import counters, passage
from distarray.runtime.members import executor_for
from distarray.runtime.reading import read_blocks
from distarray.runtime.rehome import same_cut
from distarray.runtime.run_names import new_run
from distarray.sharding.boxes import relative, tile_box
from distarray.sharding.sharding import Sharding
from distarray.types import Shape


class Piece(NamedTuple):
    """A Piece is what a block of the new cut needs of one of the old cut: which one, where in it, and where it goes."""

    number: int
    source: tuple[slice, ...]
    place: tuple[slice, ...]
    shape: Shape
    is_whole: bool  # all of the old block


class MovedTile(NamedTuple):
    """A MovedTile is a block of the new cut: its member, its shape, and the pieces it is put together from."""

    member: int
    shape: Shape
    pieces: tuple[Piece, ...]


class Target(NamedTuple):
    """A Target is what all blocks of the new cut share; small, since it travels with every task."""

    dtype: np.dtype[Any]
    layout: tuple[int, ...]
    old_device: str
    device: str


def moved(node: Expr, env: Environment, pin: Sharding | None) -> Stored:
    """Return the memo of the elements of an evaluated node in another environment; the same bits. With the lock held.

    Parameters
    ----------
    pin
        How it is to lie there; None keeps the cut (`same_cut`).

    Raises
    ------
    MemoryBudgetError
        If workers cannot hold what it takes.
    """
    memo = node.stored
    if memo.on_client:
        # Small, or not placed yet: its first use brings it to where it is to be.
        return _stored(node, Sharding.whole(env.mesh, node.ndim), _lent(node), on_client=True)
    sharding = same_cut(memo.sharding, node, env) if pin is None else pin
    if passage.is_planned(node.env, env):
        blocks = passage.run(passage.passage(node, memo, env, sharding))
        return _stored(node, sharding, blocks, on_client=False)
    tiles = list(_tiles(memo.sharding, sharding, node.shape))
    target = Target(node.dtype, sharding.layout, node.env.device, env.device)
    _count(node, env, memo.sharding, sharding)
    return _stored(node, sharding, _blocks(node, env, tiles, target), on_client=False)


def _stored(node: Expr, sharding: Sharding, blocks: Sequence[Block], *, on_client: bool) -> Stored:
    """Return the memo of what was made of a node: its own blocks may be among them, or what they are views of."""
    stored = Stored(sharding, blocks, on_client, exported=False)
    if not node.env.is_cluster or node.stored.on_client:
        theirs = {id(block) for block in node.stored.blocks}
        stored.share(k for k, block in enumerate(blocks) if id(block) in theirs)
    return stored


def _tiles(old: Sharding, new: Sharding, shape: Shape) -> Iterator[MovedTile]:
    """Yield the tiles of the new cut, row-major."""
    before, after = old.boundaries(shape), new.boundaries(shape)
    lens = Affine.identity(shape)
    for index in new.tiles():
        box = tile_box(after, index)
        pieces = []
        for tile, common, _ in lens.fragments(box, before):
            lying = tile_box(before, tile)
            extents = tuple(map(len, common))
            pieces.append(
                Piece(old.number(tile), relative(common, lying), relative(common, box), extents, common == lying)
            )
        yield MovedTile(new.member(index), tuple(map(len, box)), tuple(pieces))


# ---------------------------------------------------------------------------------------------------- blocks


def _blocks(node: Expr, env: Environment, tiles: Sequence[MovedTile], target: Target) -> list[Any]:
    """Return the blocks of the new cut: arrays in this process, Futures on a cluster."""
    if not env.is_cluster:
        return list(_made_here(node, tiles, target))
    if node.env.is_cluster and node.env.client is env.client:
        assert all(piece.is_whole for tile in tiles for piece in tile.pieces), "a change of device leaves the cut"
        return _changed(node, env, tiles, target)
    # Blocks in this process are NumPy's, whatever their device is to be: their member brings them to it.
    run, executor = new_run(), executor_for(env)
    futures = []
    for number, (tile, block) in enumerate(zip(tiles, _made_here(node, tiles, target._replace(device="cpu")))):
        key = (f"dx-move-{run}", 0, number)
        futures.append(executor.put({key: block}, {key: tile.member}, env.device)[key])
    return futures


def _made_here(node: Expr, tiles: Sequence[MovedTile], target: Target) -> Iterator[Block]:
    """Yield the blocks of the new cut, made in this process; each of the old ones is here as long as it is needed."""
    remote = node.env.is_cluster
    if remote:
        target = target._replace(old_device="cpu")  # as what they are fetched
    blocks = () if remote else _lent(node)
    uses = Counter(piece.number for tile in tiles for piece in tile.pieces)
    here: dict[int, Block] = {}
    for tile in tiles:
        missing = [piece.number for piece in tile.pieces if piece.number not in here]
        here.update(zip(missing, read_blocks(node, missing) if remote else [blocks[n] for n in missing]))
        parts = [here[p.number] if p.is_whole else here[p.number][p.source] for p in tile.pieces]
        yield put_together(target, tile.member, tile.shape, tuple(p.place for p in tile.pieces), *parts)
        for piece in tile.pieces:
            uses[piece.number] -= 1
            if not uses[piece.number]:
                del here[piece.number]


def _lent(node: Expr) -> list[Block]:
    """Return the blocks of an array in this process for another array to have too: nobody writes to them from now on.

    Where somebody may write to a block already, and where it cannot be known, it is copied.
    """
    memo = node.stored
    if memo.exported or any(type(b) is not np.ndarray or is_lent(b, to_write=True) for b in memo.blocks):
        backend = backend_for(node.env.device if not memo.on_client else "cpu", 0)
        return [backend.copy(block) for block in memo.blocks]
    memo.share()
    return list(memo.blocks)


def put_together(
    target: Target, member: int, shape: Shape, places: Sequence[tuple[slice, ...]], *parts: Block
) -> Block:
    """Return a block of pieces; the piece itself if it is all of it and has its memory order."""
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
    """Return a block on the device of a member."""
    if parse_device(target.old_device).kind == parse_device(target.device).kind or isinstance(block, np.ndarray):
        return backend.adopt(block)
    host = backend_for(target.old_device, member).to_host(block)
    # Of the fake devices the host's array is their own memory.
    return backend.adopt(host.copy() if parse_device(target.old_device).kind == "strict" else host)


# ------------------------------------------------------------------------------------------------- on a cluster


def _changed(node: Expr, env: Environment, tiles: Sequence[MovedTile], target: Target) -> list[Any]:
    """Return blocks that each member of a team of a cluster brings to another device."""
    memo = node.stored
    run = new_run()
    tasks: dict[Any, Task] = {}
    for number, tile in enumerate(tiles):
        refs = [memo.blocks[piece.number] for piece in tile.pieces]
        args = [block if isinstance(block, np.ndarray) else TaskRef(block.key) for block in refs]
        key = (f"dx-move-{run}", 0, number)
        places = tuple(piece.place for piece in tile.pieces)
        tasks[key] = Task(key, put_together, target, tile.member, tile.shape, places, *args)
    counters.count_tasks("tile", len(tasks))
    nbytes = {key: prod(tile.shape) * node.dtype.itemsize for key, tile in zip(tasks, tiles)}
    found = executor_for(env).submit(tasks, dict(zip(tasks, (t.member for t in tiles))), list(tasks), nbytes)
    return list(found.values())


def _count(node: Expr, env: Environment, old: Sharding, new: Sharding) -> None:
    """Note what travels: between members as messages, between a cluster and this process as bytes fetched."""
    if not counters.active:
        return
    if node.env.is_cluster and not (env.is_cluster and node.env.client is env.client):
        counters.count_fetched(node.nbytes)
    found = transfers(node, env, old, new)
    for c in counters.active:
        c.transfers += found


def transfers(node: Expr, env: Environment, old: Sharding, new: Sharding) -> list[Transfer]:
    """Return messages between members if an array that lies so is moved in this process, or on a team to another
    device.
    """
    if node.env.client is not env.client:
        return []
    ranks = [old.member(index) for index in old.tiles()]
    found = []
    for tile in _tiles(old, new, node.shape):
        for piece in tile.pieces:
            source = ranks[piece.number]
            if _member(node.env, source) != _member(env, tile.member):
                rows, nbytes = (piece.shape or (1,))[0], prod(piece.shape) * node.dtype.itemsize
                found.append(Transfer(source, tile.member, rows, nbytes))
    return found


def _member(env: Environment, rank: int) -> Any:
    return env.team.members[rank] if env.team is not None else 0
