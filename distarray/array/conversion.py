"""Arrays from other places and to other places: host data, other teams and devices, other cuts."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, get_args

import numpy as np

from distarray.arguments import count, flag, host_array, integer, memory_order, naming, parse_shape, shown
from distarray.array import window
from distarray.array.array import DistArray
from distarray.array.base import cast
from distarray.array.environment import TeamLike, check_device, environment, forced_parts, is_named, parse_pin, within
from distarray.array.writes import is_scalar
from distarray.dtypes import as_dtype
from distarray.errors import ShardingError
from distarray.expr.bind import bind_create, bind_map, bind_put
from distarray.expr.crossing import crossing, graph
from distarray.expr.expr import RESHARD, Environment, Expr, Stored, cut_of, source
from distarray.expr.lens import Affine, get, strided_dummy
from distarray.expr.side_by_side import first_environment
from distarray.kernels.loans import lend
from distarray.ops import elementwise
from distarray.ops.creation import EMPTY
from distarray.ops.files import FileRange, load_npy
from distarray.runtime import observations, rehome
from distarray.sharding.layout import LayoutLike
from distarray.sharding.sharding import Sharding
from distarray.sharding.spec import ShardingLike
from distarray.sharding.team import Team
from distarray.types import DTypeLike, HostArray

__all__ = [
    "Block", "array", "asanyarray", "asarray", "ascontiguousarray", "asfortranarray", "astype",
    "copy", "from_blocks", "from_host", "frombuffer", "fromiter", "gather", "iter_blocks", "local",
    "pinned", "reshard", "scatter", "to_device", "to_team", "with_layout",
]  # fmt: skip


def asarray(
    obj: Any,
    /,
    dtype: DTypeLike = None,
    *,
    device: str | None = None,
    copy: bool | None = None,
    team: TeamLike = "current",
    sharding: ShardingLike = None,
    layout: LayoutLike | None = None,
    order: Any = None,
) -> DistArray:
    """Return an array of `obj`: a DistArray itself, or of host data.

    Parameters
    ----------
    obj
        A DistArray, a NumPy array, a memory map, numbers in nested sequences, or anything with ``__dlpack__`` or
        ``__array__``.
    dtype
        Cast to this one.
    device, team, sharding, layout
        Where the array is to live. A DistArray that lives elsewhere is refused: ``to_team`` and ``to_device`` move.
    copy
        None: host data are read at the call, so later changes by their owner do not show; but a contiguous memory map
        of a file is read by the tasks, each its part, and the file must not change before. False: not copied; the
        caller promises not to write to them, except through ``asarray(x, copy=False)`` of a DistArray, which aliases
        it. True: copied in any case.
    order
        numpy's; use `layout`.

    Raises
    ------
    ValueError
        If ``copy=False`` and a copy cannot be avoided.
    """
    memory_order(order)
    if copy is not None:
        copy = flag(copy, "copy")
    if isinstance(obj, DistArray):
        return _again(obj, dtype, device, copy, team, sharding, layout)
    home = first_environment((obj,)) if isinstance(obj, list | tuple) else None
    if home is None:
        env = environment(team, device)
    else:
        with within(home):
            env = environment(team, device)
    if isinstance(obj, np.memmap) and copy is not False:
        where = _file_range(obj)
        if where is not None:
            pin = parse_pin(sharding, layout, obj.shape, as_dtype(where.dtype), env)
            mapped = DistArray._on(load_npy(obj.shape, where, env, pin))
            return mapped if dtype is None else astype(mapped, dtype, copy=False)
    host = _host(obj, dtype, copy)
    return from_host(host, env, parse_pin(sharding, layout, host.shape, host.dtype, env), is_ours=copy is not False)


def _again(
    x: DistArray,
    dtype: DTypeLike,
    device: str | None,
    copy: bool | None,
    team: TeamLike,
    sharding: ShardingLike,
    layout: LayoutLike | None,
) -> DistArray:
    from distarray.errors import EnvironmentMismatchError

    if device is not None and check_device(device, x.team) != x.device:
        raise EnvironmentMismatchError(f"asarray: the array is on {x.device!r}, not {device!r}; use x.to_device(...)")
    if is_named(team) and team != x.team:
        raise EnvironmentMismatchError(f"asarray: the array is on {x.team!r}, not {team!r}; use x.to_team(...)")
    result = x
    if dtype is not None and as_dtype(dtype) != x.dtype:
        if copy is False:
            raise ValueError(f"Unable to avoid copy while creating an array as requested: {x.dtype} is not {dtype}")
        result = x.astype(dtype)
    elif copy:
        result = x.copy()
    if copy is not False and not result.shape and is_scalar(result, result._node()):
        result = x._on(cast(result.__dx_node__(), result.dtype))  # an array, which updates write to
    if sharding is not None or layout is not None:
        pin = parse_pin(sharding, layout, x.shape, x.dtype, x._env)
        assert pin is not None
        if pin != x._known_sharding():
            result = reshard(result, pin)
    return result


def _host(obj: Any, dtype: DTypeLike, copy: bool | None) -> HostArray:
    """Return host data as an array that nobody else writes to."""
    kind = type(obj).__name__
    if isinstance(obj, list | tuple):
        obj = _with_hosts(obj)
    wanted = None if dtype is None else as_dtype(dtype)
    try:
        if copy is not False:
            host = np.array(obj, dtype=wanted, copy=True, order="C")
        else:
            host = np.array(obj, dtype=wanted, copy=False)
    except (TypeError, ValueError, OverflowError) as error:
        raise type(error)(f"asarray, operand 0 of type {kind}: {error}") from None
    if host.dtype.kind == "O":
        raise TypeError(f"asarray: {kind} is not an array of numbers, and objects are not supported")
    try:
        supported = as_dtype(host.dtype)
    except TypeError as error:
        raise TypeError(f"asarray, operand 0: {error}") from None
    return host if host.dtype == supported and host.dtype.isnative else host.astype(supported)


def _file_range(mapped: np.memmap[Any, Any]) -> FileRange | None:
    """Return where the elements of a memory map lie in its file; None if its memory has to be read here.

    That is so if they are not one range, if the map is private (its writes do not reach the file), and if the file has
    no name any more.
    """
    pages = getattr(mapped, "_mmap", None)
    if pages is None or not mapped.size or mapped.mode == "c" or not isinstance(mapped.filename, str | os.PathLike):
        return None
    if not (mapped.flags.c_contiguous or mapped.flags.f_contiguous):
        return None
    if mapped.mode != "r":
        # Also so that the first write from now on is seen in the time of the file.
        mapped.flush()
    path = os.path.realpath(os.fspath(mapped.filename))
    try:
        found = os.stat(path)
    except OSError:
        return None
    # A slice of a map has the offset of the whole: the address tells where it is.
    first_page = np.frombuffer(pages, np.uint8).ctypes.data
    before = mapped.offset - mapped.offset % mmap.ALLOCATIONGRANULARITY
    offset = before + mapped.ctypes.data - first_page
    return FileRange(path, offset, mapped.dtype.str, not mapped.flags.c_contiguous, found.st_mtime_ns, found.st_size)


def _with_hosts(items: Sequence[Any]) -> list[Any]:
    """Return nested sequences with their DistArrays as host arrays: numpy would ask each of their elements."""
    return [
        x._host() if isinstance(x, DistArray) else _with_hosts(x) if isinstance(x, list | tuple) else x for x in items
    ]


def from_host(host: HostArray, env: Environment, pin: Sharding | None, *, is_ours: bool = False) -> DistArray:
    """Return an array of this host array, which nobody else writes to; not copied. `is_ours`: nobody else has it
    either.
    """
    node = source(host, env, pin=pin)
    assert node.memo is not None
    node.memo.exported = not is_ours
    if pin is not None and forced_parts.get() is not None:
        # Small host arrays would be computed as one block, whatever their pin.
        blocks = [np.array(host[pin.tile_slices(host.shape, tile)]) for tile in pin.tiles()]
        node.memo = Stored(pin, blocks, exported=False)
    return DistArray._on(node)


def array(
    obj: Any, dtype: DTypeLike = None, *, copy: bool | None = True, ndmin: int = 0, order: Any = "K", **where: Any
) -> DistArray:
    """numpy's ``array``: a new array of `obj`, with at least `ndmin` axes."""
    ndmin = integer(ndmin, "ndmin")
    made = asarray(obj, dtype, order=order, copy=copy, **where)
    if made.ndim < ndmin:
        made = made.reshape((1,) * (ndmin - made.ndim) + made.shape)
    return made


def asanyarray(obj: Any, dtype: DTypeLike = None, order: Any = None, **where: Any) -> DistArray:
    """Do what `asarray` does: there are no subclasses to keep."""
    return asarray(obj, dtype, order=order, **where)


def ascontiguousarray(obj: Any, dtype: DTypeLike = None, **where: Any) -> DistArray:
    """Return `obj` as an array of at least one axis whose elements follow each other; a copy where numpy makes one."""
    made = asarray(obj, dtype, **where)
    if not strided_dummy(made._base.current.shape, made._lens).flags.c_contiguous:
        made = made.copy()
    return made if made.ndim else made.reshape((1,))


def asfortranarray(obj: Any, dtype: DTypeLike = None, **where: Any) -> DistArray:
    """Return `obj` as an array with blocks of layout F."""
    made = asarray(obj, dtype, **where)
    return made.with_layout("F") if made.ndim > 1 else made


def frombuffer(buffer: Any, dtype: DTypeLike = float, count: int = -1, offset: int = 0, **where: Any) -> DistArray:
    """Return an array of the elements that a buffer holds now."""
    wanted = as_dtype(dtype)
    sizes = integer(count, "count"), integer(offset, "offset")
    with naming(buffer=buffer, dtype=wanted, count=count, offset=offset):
        host = np.frombuffer(buffer, wanted, *sizes)
    return asarray(host, **where)


def fromiter(iterable: Any, dtype: DTypeLike, count: int = -1, **where: Any) -> DistArray:
    """Return an array of the elements of an iterable."""
    if not hasattr(iterable, "__iter__"):
        raise TypeError(f"iterable={shown(iterable)} must be an iterable of numbers, not {type(iterable).__name__}")
    wanted, n = as_dtype(dtype), integer(count, "count")
    host = np.fromiter(iterable, wanted, n)  # it runs the user's code, whose errors are the user's
    return asarray(host, copy=False, **where)


def copy(x: Any, /, order: Any = "K") -> DistArray:
    """Return a new array of the elements of `x` that aliases nothing."""
    memory_order(order)
    return asarray(x, copy=True)


def astype(x: Any, dtype: DTypeLike, /, *, copy: bool = True, device: str | None = None) -> DistArray:
    """Return the elements of `x` as `dtype`; `x` itself if `copy` is false and nothing changes."""
    x = asarray(x)
    made: DistArray = elementwise.astype(x, dtype, copy=copy)
    return made if device is None else to_device(made, device)


# -------------------------------------------------------------------------------------------- environments


def to_team(x: DistArray, team: Team | None, sharding: ShardingLike = None) -> DistArray:
    """Return the array on another team; with None collected into this process. Values are the same bits.

    Nothing runs before the result is needed; then what is pending for the array is computed where it is, and moves, on
    a cluster without anybody waiting in between. Between teams of one cluster blocks go from worker to worker, by a
    plan of the synthesizer that keeps to the memory of the workers (`distarray.planner.redistribution`) and that
    `explain` shows; a worker of both teams keeps what it has. Between teams of this process blocks are shared, not
    copied, where a block stays what it is. As with every operation, what is written to `x` later does not show.

    Parameters
    ----------
    team
        To the team that it lives on already: the same array, and nothing moves.
    sharding
        The cut there. None keeps the cut, where the teams have the same shape; on another number of members all of
        them cut the axis that had most parts.

    Raises
    ------
    TypeError
        If `team` is no team.
    MemoryBudgetError
        When it is computed, before any task: members cannot hold what it takes.
    """
    if team is not None and not isinstance(team, Team):
        raise TypeError(f"team={team!r} is no Team; use dx.Team(shape, axes), or None for this process")
    if team == x.team and not rehome.is_gone(x._env):
        return x if sharding is None else reshard(x, sharding)
    return _moved(x, environment(team, x.device), sharding)


def to_device(x: DistArray, device: str, /, *, stream: Any = None) -> DistArray:
    """Return the array on another device of its team; the same array if it is there already.

    Each member moves its own blocks, when the result is needed; the cut stays.

    Raises
    ------
    ValueError
        If `device` is no device string, or a `stream` is given: moves are ordered by the expressions.
    """
    if stream is not None:
        raise ValueError("to_device: stream must be None; moves are ordered by what reads them")
    check_device(device, x.team)
    return x if device == x.device else _moved(x, Environment(x.team, device), None)


def _moved(x: DistArray, env: Environment, sharding: ShardingLike) -> DistArray:
    pin = parse_pin(sharding, None, x.shape, x.dtype, env)
    node = x.__dx_node__()
    before = node.env
    if rehome.healed(graph([node]), before, env) is not before:
        return x if sharding is None else reshard(x, sharding)
    memo = node.memo
    if pin is None and not (memo is not None and memo.on_client) and (known := cut_of(node)) is not None:
        from distarray.runtime.rehome import same_cut

        pin = same_cut(known, node, env)
    if memo is None and node.op.repeatable:
        # Of the index alone, at no cost: it is made there.
        return x._on(Expr(node.op, (), node.shape, node.dtype, env, node.params, node.runtime, pin, node.origin))
    there = crossing(node, env, pin)
    return x._on(there)


def reshard(x: DistArray, sharding: ShardingLike, *, mode: str = "auto", memory: int | None = None) -> DistArray:
    """Return the array cut in another way, in the same environment; lazy.

    A sequence of collectives that the synthesizer plans (`distarray.planner.redistribution`), in which no tile is ever
    larger than the larger of source and target. Operations on the result read straight from the source where they can.

    Parameters
    ----------
    sharding
        The cut, in any form that ``sharding=`` takes. None: `x` itself.
    mode
        ``auto``: the fastest by the rates of the cluster; in one process, where messages cost nothing, one exchange.
        ``paper``: the cheapest sequence of collectives of Rink et al. 2021. ``fused``: with several dimensions in one
        step. ``direct``: one exchange, which receives the least that is possible.
    memory
        Bytes that a member of a cluster may hold for it, source and target included; its limit by default. With less
        than all at once would take, the tiles are made in waves.

    Raises
    ------
    ShardingError
        If the cut does not fit the array, or the mode is unknown.
    MemoryBudgetError
        When it is computed, before any task: no number of waves fits into `memory`.
    """
    from distarray.planner.redistribution import Mode

    if mode not in get_args(Mode):
        raise ShardingError(f"reshard: mode {mode!r} is unknown; use one of {', '.join(get_args(Mode))}")
    if memory is not None:
        memory = count(memory, "memory")
    pin = parse_pin(sharding, None, x.shape, x.dtype, x._env)
    return pinned(x, pin, mode, memory) if pin is not None else x


def with_layout(x: DistArray, layout: LayoutLike) -> DistArray:
    """Return the array with blocks in another memory order; the cut stays."""
    return pinned(x, x.sharding.with_layout(layout))


def pinned(x: DistArray, pin: Sharding, mode: str = "auto", memory: int | None = None) -> DistArray:
    """Return the array cut as `pin` says."""
    node: Expr = bind_map(RESHARD, (x.__dx_node__(),), (mode, memory))
    return x._on(node.with_pin(pin))


# ------------------------------------------------------------------------------------------ blocks


class Block(NamedTuple):
    """A block of an array: who holds it, where it lies in the whole, and its elements."""

    member: int
    global_slices: tuple[slice, ...]
    values: Any  # an array of the backend


def _stored(x: DistArray) -> tuple[Expr, Stored]:
    node = x.__dx_node__()
    window.observe((node,))
    from distarray.runtime import hosts

    hosts.place(node)
    assert node.memo is not None
    return node, node.memo


def iter_blocks(x: DistArray, visit: Sequence[str] | None = None) -> Iterator[Block]:
    """Yield the blocks one after the other, computed and brought here where they are elsewhere; read-only.

    Parameters
    ----------
    visit
        Mesh axes, the slowest first: the order of visits. Row-major over tiles by default.
    """
    node, memo = _stored(x)
    sharding = memo.sharding
    tiles = list(enumerate(sharding.tiles()))
    if visit is not None:
        if not isinstance(visit, str | list | tuple):
            raise TypeError(f"visit={shown(visit)} must be names of mesh axes, not {type(visit).__name__}")
        rank = [sharding.mesh.axis_position(name) for name in visit]
        tiles.sort(key=lambda item: [sharding.mesh.coordinates(sharding.place(item[1]))[p] for p in rank])
    held = node.hold()  # what is written to the array meanwhile is written elsewhere
    for number, tile in tiles:
        (block,) = observations.fetch_blocks(node, (number,))
        yield Block(sharding.member(tile), sharding.tile_slices(node.shape, tile), lend(block))
    del held


def local(x: DistArray, member: int = 0) -> Any:
    """Return the block that a member holds, with its `global_slices`.

    In this process it shares memory with the array: what is pending is computed first, and writing to it changes `x`
    and every alias. From another process it is a read-only copy.

    Raises
    ------
    IndexError
        If there is no such member.
    ValueError
        If the member holds several tiles; use `iter_blocks`.
    """
    from distarray.array.lifetime import own_storage

    size = x._env.size
    member = integer(member, "member")
    if not 0 <= member < size:
        raise IndexError(f"member {member} is not one of the {size} of {x.team!r}")
    window.flush()
    version = own_storage(x._base)
    memo = version.memo
    assert memo is not None
    sharding = memo.sharding
    numbers = [i for i, tile in enumerate(sharding.tiles()) if memo.on_client or member in sharding.members(tile, size)]
    if len(numbers) > 1:
        raise ValueError(f"member {member} holds {len(numbers)} tiles of {sharding!r}; use x.iter_blocks()")
    if not numbers:
        tile_slices = tuple(slice(0, 0) for _ in version.shape)
        return LocalBlock(np.empty((0,) * version.ndim, version.dtype), tile_slices)
    tile = list(sharding.tiles())[numbers[0]]
    frame = tuple(range(*s.indices(n)) for s, n in zip(sharding.tile_slices(version.shape, tile), version.shape))
    is_here = not version.env.is_cluster or memo.on_client
    block = memo.blocks[numbers[0]] if is_here else observations.fetch_blocks(version, numbers)[0]
    values, slices = _through(x, block, frame)
    return LocalBlock(lend(values, writeable=is_here and not x._readonly), slices)


def _through(x: DistArray, block: Any, frame: tuple[range, ...]) -> tuple[Any, tuple[slice, ...]]:
    """Return what the lens of a view sees of a block."""
    if not x._lens:
        return block, tuple(slice(r.start, r.stop) for r in frame)
    if len(x._lens) == 1 and type(x._lens[0]) is Affine:
        lens = x._lens[0]
        box = lens.view_box(frame)
        if box is None:
            return block[tuple(slice(0, 0) for _ in frame)], tuple(slice(0, 0) for _ in lens.shape)
        return lens.restricted(box, frame).read(block), tuple(slice(r.start, r.stop, r.step) for r in box)
    if all(r.start == 0 and r.stop == n for r, n in zip(frame, x._base.current.shape)):
        return get(x._lens, block), tuple(slice(0, n) for n in x.shape)
    raise ValueError("local: a block of a reshaped view of a cut array has no place in it; use the base's blocks")


class LocalBlock(np.ndarray[Any, Any]):
    """A numpy view of a block that knows its place in the whole array."""

    global_slices: tuple[slice, ...]

    def __new__(cls, values: Any, global_slices: tuple[slice, ...]) -> Any:  # arrays of other backends as they are
        if not isinstance(values, np.ndarray):
            return values
        block = values.view(cls)
        block.global_slices = global_slices
        return block

    def __array_finalize__(self, obj: Any) -> None:
        self.global_slices = getattr(obj, "global_slices", ())


def from_blocks(
    blocks: Any,
    shape: Sequence[int] | None = None,
    *,
    team: TeamLike = "current",
    device: str | None = None,
    sharding: Sharding | None = None,
) -> DistArray:
    """Return an array of blocks that exist in this process.

    Parameters
    ----------
    blocks
        Nested lists of arrays as ``numpy.block`` takes them; or, with `sharding`, a list of the blocks in row-major
        order of their tiles, which are then used as they are.
    shape
        With `sharding`: the global shape.
    """
    if sharding is None:
        host = host_array(np.block(blocks), "blocks")  # a new array, which nobody else has
        return from_host(host, environment(team, device), None, is_ours=True)
    env = environment(team, device)
    if shape is None:
        raise ValueError("from_blocks: with sharding= the global shape is needed")
    whole = parse_shape(shape)
    pin = parse_pin(sharding, None, whole, np.asarray(blocks[0]).dtype, env)
    assert pin is not None
    tiles = list(pin.tiles())
    if len(blocks) != len(tiles):
        raise ValueError(f"from_blocks: {len(blocks)} blocks for the {len(tiles)} tiles of {pin!r}")
    dtype = as_dtype(np.asarray(blocks[0]).dtype)
    node: Expr = bind_create(EMPTY, whole, dtype, env, pin=pin)
    for tile, block in zip(tiles, blocks):
        box = pin.tile_box(whole, tile)
        host = np.asarray(block, dtype=dtype)
        expected = tuple(stop - start for start, stop in box)
        if host.shape != expected:
            raise ValueError(
                f"from_blocks: the block of tile {tile} has shape {host.shape}, but the tile has {expected}"
            )
        if host.size:
            terms = tuple((axis, start, 1) for axis, (start, _) in enumerate(box))
            node = bind_put(node, Affine(host.shape, terms), source(host, env))
    return DistArray._on(node)


def scatter(
    host: Any,
    *,
    team: TeamLike = "current",
    sharding: ShardingLike = None,
    layout: LayoutLike = "C",
    root: int = 0,
    device: str | None = None,
) -> DistArray:
    """Return a host array, cut over a team. The source may have any strides.

    Raises
    ------
    ShardingError, ValueError
        If the cut does not fit the array, or there is no member `root`.
    """
    env = environment(team, device)
    _check_root(root, env)
    values = np.asarray(host)
    return asarray(values, team=env.team, device=env.device, sharding=sharding, layout=layout)


def gather(x: DistArray, *, order: Any = "C", out: Any = None, root: int = 0) -> HostArray:
    """Return the whole array as a host array, in memory order `order`, or written into `out`.

    Raises
    ------
    ValueError, TypeError
        If `out` has another shape or dtype or is read-only.
    """
    _check_root(root, x._env)
    if out is None:
        return np.asarray(x._host(), order=order)
    if not isinstance(out, np.ndarray):
        raise TypeError(f"gather: out must be a numpy array, not {type(out).__name__}")
    if out.shape != x.shape:
        raise ValueError(f"gather: out has shape {out.shape}, but the array has {x.shape}")
    if out.dtype != x.dtype:
        raise TypeError(f"gather: out has dtype {out.dtype}, but the array has {x.dtype}")
    if not out.flags.writeable:
        raise ValueError("gather: out is read-only")
    for block in iter_blocks(x):
        out[block.global_slices] = block.values
    return out


def _check_root(root: int, env: Environment) -> None:
    if not 0 <= integer(root, "root") < env.size:
        raise ValueError(f"root={root} is no member of {env.team!r}, which has {env.size}")
