"""Arrays are made here of what lies elsewhere: host data, arrays of other libraries, blocks."""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from distarray.arguments import (
    MAX_NDIM,
    check_ndim,
    flag,
    host_array,
    integer,
    memory_order,
    naming,
    parse_shape,
    sequence,
    shown,
)
from distarray.array.array import DistArray
from distarray.array.environment import (
    TeamLike,
    check_device,
    current_device,
    environment,
    forced_parts,
    is_named,
    parse_pin,
    within,
)
from distarray.array.handle import is_scalar
from distarray.array.moves import check_root
from distarray.array.versions import block_type
from distarray.dtypes import as_dtype, cast_dtype
from distarray.errors import EnvironmentMismatchError
from distarray.expr.bind import bind_create, bind_put, lazily_read
from distarray.expr.expr import SOURCE, Environment, Expr, Stored, source
from distarray.expr.lens import in_memory
from distarray.expr.side_by_side import NO_ARRAYS, first_environment
from distarray.kernels.devices import backend_for
from distarray.kernels.files import FileRange, FileState
from distarray.kernels.loans import foreign_memory
from distarray.kernels.stores import HostMemory
from distarray.ops import elementwise, joining
from distarray.ops.creation import EMPTY
from distarray.ops.lenses import box_lens
from distarray.ops.stores import read_store
from distarray.runtime.memory import memory_limit
from distarray.runtime.small import is_small
from distarray.sharding.layout import LayoutLike
from distarray.sharding.sharding import Sharding
from distarray.sharding.spec import ShardingLike
from distarray.types import DTypeLike, HostArray


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
    device, team
        Where the array is to live: ``"cpu"``, ``"cuda"`` or ``"cuda:1"``, and a `Team`; ``"current"`` is that of
        `current_team`, None is this process alone. A DistArray that lives elsewhere is refused: ``to_team`` and
        ``to_device`` move.
    sharding
        How the array is cut: for each of its axes the name of the axis of the team that cuts it, several of them, or
        None for no cut. ``("x", None)`` cuts the rows over the axis ``"x"``. By default the planner cuts. A `Sharding`,
        or a type such as ``"[250{x}1000, 8]"``, says the same in full. On a cluster each member gets host data once:
        along axes of the team that `sharding` does not name, each has a copy, which it reads without a message.
    layout
        Order of the axes of a block in memory: ``"C"``, ``"F"`` or a permutation.
    copy
        None: host data are read at the call, so later changes by their owner do not show; but a contiguous memory map
        of a file is read by the tasks, each its part, and the file must not change before. False: not copied; the
        caller promises not to write to them, except through ``asarray(x, copy=False)`` of a DistArray, which aliases
        it. True: copied in any case.
    order
        numpy's: ``"C"`` and ``"F"`` give an array that lies in that order, a copy if need be. Blocks have a `layout`.

    Raises
    ------
    ValueError
        If ``copy=False`` and a copy cannot be avoided.
    """
    if order is not None:
        made = asarray(obj, dtype, device=device, copy=copy, team=team, sharding=sharding, layout=layout)
        if (lies := made._in_order(memory_order(order), [made] if copy else ())) is not made and copy is False:
            raise ValueError("Unable to avoid copy while creating an array as requested: it lies in another order")
        return lies
    if copy is not None:
        copy = flag(copy, "copy")
    if isinstance(obj, DistArray):
        return _again(obj, dtype, device, copy, team, sharding, layout)
    if _is_on_gpu(obj):
        made = _of_gpu(obj, device, copy is not False, team)
        made = made if dtype is None else astype(made, dtype, copy=False)
        pin = parse_pin(sharding, layout, made.shape, made.dtype, made._env)
        return made if pin is None else made.reshard(pin)
    home = first_environment((obj,)) if isinstance(obj, list | tuple) else None
    if home is not None and (stacked := nested(obj)) is not None:
        if copy is False:
            raise ValueError("Unable to avoid copy while creating an array as requested: asarray of several arrays")
        return _again(stacked, dtype, device, None, team, sharding, layout)
    if home is None:
        env = environment(team, device)
    else:
        with within(home):
            env = environment(team, device)
    if isinstance(obj, np.memmap) and copy is not False:
        node = mapped_node(obj, env, parse_pin(sharding, layout, obj.shape, as_dtype(obj.dtype), env))
        if node is not None:
            mapped = DistArray._on(node)
            return mapped if dtype is None else astype(mapped, dtype, copy=False)
    elif copy is not False and (node := lazily_read(obj, env)) is not None:
        return _again(DistArray._on(node), dtype, None, None, env.team, sharding, layout)
    host = _host(obj, dtype, copy)
    pin = parse_pin(sharding, layout, host.shape, host.dtype, env, has_copies=sharding is not None)
    return from_host(host, env, pin, is_ours=copy is not False)


def _again(
    x: DistArray,
    dtype: DTypeLike,
    device: str | None,
    copy: bool | None,
    team: TeamLike,
    sharding: ShardingLike,
    layout: LayoutLike | None,
) -> DistArray:
    if device is not None and check_device(device, x.team) != x.device:
        raise EnvironmentMismatchError(f"asarray: the array is on {x.device!r}, not {device!r}; use x.to_device(...)")
    if is_named(team) and team != x.team:
        raise EnvironmentMismatchError(f"asarray: the array is on {x.team!r}, not {team!r}; use x.to_team(...)")
    result = x = x if type(x) is DistArray else x._seen_as(DistArray)
    if dtype is not None and cast_dtype(x.dtype, as_dtype(dtype)) != x.dtype:
        if copy is False:
            raise ValueError(f"Unable to avoid copy while creating an array as requested: {x.dtype} is not {dtype}")
        result = x.astype(dtype)
    elif copy:
        result = x.copy("K")
    if copy is not False and is_scalar(result):
        result = elementwise.as_array(result)  # which updates write to
    if sharding is not None or layout is not None:
        pin = parse_pin(sharding, layout, x.shape, x.dtype, x._env)
        assert pin is not None
        if pin != x._known_sharding():
            result = result.reshard(pin)
    return result


def _host(obj: Any, dtype: DTypeLike, copy: bool | None) -> HostArray:
    """Return host data as an array that nobody else writes to."""
    kind = type(obj).__name__
    if isinstance(obj, list | tuple):
        obj = _with_hosts(obj)
    wanted = None if dtype is None else as_dtype(dtype)
    try:
        host = np.array(obj, dtype=wanted, copy=copy is not False)
    except (TypeError, ValueError, OverflowError) as error:
        raise type(error)(f"asarray, operand 0 of type {kind}: {_is_to_come(obj) or error}") from None
    try:
        supported = as_dtype(host.dtype)
    except TypeError as error:
        raise TypeError(f"asarray, operand 0 of type {kind}: {_is_to_come(obj) or error}") from None
    if supported == host.dtype and host.dtype.isnative:
        return host
    # Spans of equal units, which numpy finds equal from this side alone, are the same numbers.
    return host.view(supported) if host.dtype == supported else host.astype(supported)


def _is_to_come(obj: Any) -> str:
    """Return what to do with a value of Dask's that is still to be computed; nothing for all else."""
    if type(obj).__module__ not in ("distributed.client", "dask.delayed"):
        return ""
    return "its value is still to come; wait for it, or say what it will be: dx.from_delayed(value, shape, dtype)"


def mapped_node(mapped: np.memmap[Any, Any], env: Environment, pin: Sharding | None = None) -> Expr | None:
    """Return the node of a memory map that is read by the tasks; None if its memory has to be read here."""
    where = _file_range(mapped)
    return None if where is None else read_store(mapped.shape, as_dtype(where.dtype), where, env, pin)


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
    is_fortran = not mapped.flags.c_contiguous
    return FileRange(mapped.shape, mapped.dtype.str, path, offset, is_fortran, FileState.of(path, found))


def nested(items: Sequence[Any]) -> DistArray | None:
    """Return nested sequences that hold arrays with axes as one array, put together where these lie: in this process if
    they are small and here. None of all else: of arrays without axes the numbers come here.

    Raises
    ------
    ValueError
        If what they hold differs in shape.
    """
    arrays = _arrays_in(items)
    if not any(x.ndim for x in arrays):
        return None
    home = arrays[0]._env
    nodes = [x.__dx_node__() for x in arrays]
    if all(n.memo is not None and n.env == home for n in nodes) and is_small(nodes, home):
        return from_host(_host(items, None, None), home, None, is_ours=True)
    with within(home):
        parts = [x if isinstance(x, DistArray) else asarray(x) for x in items]
    shapes = sorted({x.shape for x in parts})
    if len(shapes) > 1:
        raise ValueError(f"the requested array has an inhomogeneous shape: its items are of the shapes {shapes}")
    return joining.stack(parts)


def _arrays_in(items: Sequence[Any], depth: int = 1) -> list[DistArray]:
    check_ndim(depth)  # a list may hold itself
    if set(map(type, items)) <= NO_ARRAYS:  # numbers are many
        return []
    found = []
    for x in items:
        if isinstance(x, DistArray):
            found.append(x)
        elif isinstance(x, list | tuple):
            found += _arrays_in(x, depth + 1)
    return found


def _with_hosts(items: Sequence[Any]) -> list[Any]:
    """Return nested sequences with the numbers of their DistArrays: numpy would ask each of them for its axes."""
    return [
        x._host() if isinstance(x, DistArray) else _with_hosts(x) if isinstance(x, list | tuple) else x for x in items
    ]


def from_host(host: HostArray, env: Environment, pin: Sharding | None, *, is_ours: bool = False) -> DistArray:
    """Return an array of this host array, which nobody else writes to; not copied. `is_ours`: nobody else has it
    either. What a GPU of this process has room for goes there now, once; what is larger is read from here in parts.
    """
    if not host.flags.c_contiguous:
        inner, order = in_memory(host)
        if pin is None and order is not None and inner.flags.c_contiguous:
            return from_host(inner, env, None, is_ours=is_ours)._owning(order)
        host = np.array(host, order="C") if is_ours else host
    if is_ours and pin is None and env.device == "cpu" and host.flags.c_contiguous and forced_parts.get() is None:
        return DistArray._of(host, SOURCE, block_type(host.dtype, host.shape, env))
    is_one_block = env.size == 1 or (pin is None and host.nbytes <= env.block_nbytes)
    if env.device.startswith("cuda") and is_one_block and not env.is_cluster:
        if host.nbytes > memory_limit(env) // 4:
            return DistArray._on(read_store(host.shape, host.dtype, HostMemory(host), env, pin))
        node = source(backend_for(env.device).adopt(host), env, pin=pin, on_client=False)
        node.stored.exported = False
        return DistArray._on(node)
    node = source(host, env, pin=pin)
    node.stored.exported = not is_ours
    if pin is not None and forced_parts.get() is not None:
        # Small host arrays would be computed as one block, whatever their pin.
        blocks = [np.array(pin.tile_of(host, tile)) for tile in pin.tiles()]
        node.memo = Stored(pin.with_copies(False), blocks, exported=False)
    return DistArray._on(node)


def array(
    obj: Any,
    dtype: DTypeLike = None,
    *,
    copy: bool | None = True,
    ndmin: int = 0,
    ndmax: int = MAX_NDIM,
    order: Any = "K",
    **where: Any,
) -> DistArray:
    """Return a new array of `obj`, with at least `ndmin` axes, as numpy's ``array`` does; sequences that are nested
    deeper than `ndmax` are an error.
    """
    ndmin, ndmax = integer(ndmin, "ndmin"), integer(ndmax, "ndmax")
    if not 0 <= ndmax <= MAX_NDIM:
        raise ValueError(f"ndmax must be in the range [0, {MAX_NDIM}], not {ndmax}")
    if ndmin > ndmax:
        raise ValueError(f"ndmin must be <= ndmax, not {ndmin} and {ndmax}")
    made = asarray(obj, dtype, order=order, copy=copy, **where)
    if made.ndim > ndmax and not hasattr(obj, "ndim"):
        raise ValueError(f"the requested array of {made.ndim} dimensions would exceed ndmax={ndmax}")
    if made.ndim < ndmin:
        made = made.reshape((1,) * (ndmin - made.ndim) + made.shape)
    return made


def asanyarray(obj: Any, dtype: DTypeLike = None, order: Any = None, **where: Any) -> DistArray:
    """Do what `asarray` does: there are no subclasses to keep."""
    return asarray(obj, dtype, order=order, **where)


def ascontiguousarray(obj: Any, dtype: DTypeLike = None, **where: Any) -> DistArray:
    """Return `obj` as an array of at least one axis whose elements follow each other; a copy where numpy makes one."""
    return array(obj, dtype, copy=None, ndmin=1, order="C", **where)


def asfortranarray(obj: Any, dtype: DTypeLike = None, **where: Any) -> DistArray:
    """Return `obj` as an array of at least one axis that lies in F order: a copy where numpy makes one."""
    return array(obj, dtype, copy=None, ndmin=1, order="F", **where)


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
    return asarray(x, copy=True, order=order)


def astype(x: Any, dtype: DTypeLike, /, *, copy: bool = True, device: str | None = None) -> DistArray:
    """Return the elements of `x` as `dtype`; `x` itself if `copy` is false and nothing changes."""
    x = x if isinstance(x, DistArray) else asarray(x)
    made: DistArray = elementwise.astype(x, cast_dtype(x.dtype, as_dtype(dtype)), copy=copy)
    return made if device is None else made.to_device(device)


def from_dlpack(
    x: Any, /, *, device: str | None = None, copy: bool | None = None, team: TeamLike = "current"
) -> DistArray:
    """Return an array of another library, by DLPack; without a copy where it lies in this process's memory.

    What is written there later shows in the array, and not in what was made of it: operations on it are computed at the
    call.

    Parameters
    ----------
    device
        Where the array is to live; a DistArray moves there. By default a DistArray stays, and others get the current
        device.
    copy
        False: never. True: always. None: only where it must.

    Raises
    ------
    ValueError
        If ``copy=False``, and `x` is a DistArray on another device.
    """
    if isinstance(x, DistArray):
        if device is not None and device != x.device:
            if copy is False:
                raise ValueError(f"from_dlpack: an array on {x.device!r} cannot be on {device!r} without a copy")
            return x.to_device(device)
        return asarray(x, copy=copy)
    if _is_on_gpu(x):
        return _of_gpu(x, device, copy, team)
    host = np.from_dlpack(x, copy=copy) if copy is not None else np.from_dlpack(x)
    supported = as_dtype(host.dtype)
    env = environment(team, device)
    if copy is True or supported != host.dtype:
        # With copy=True numpy has copied already; some of its versions mark what they made so as read-only.
        return from_host(
            host.astype(supported, copy=copy is not True or not host.flags.writeable), env, None, is_ours=True
        )
    made = from_host(host, env, None)
    foreign_memory(host)  # from now on: what is made of it has memory of its own
    return made


def _is_on_gpu(x: Any) -> bool:
    """Return whether an array of another library says that it lies in a GPU's memory: DLPack's kinds 2 and 13."""
    if isinstance(x, np.ndarray) or not hasattr(x, "__dlpack_device__"):
        return False
    try:
        return x.__dlpack_device__()[0] in (2, 13)
    except (BufferError, ValueError):  # it lies on several, and cannot be exported
        return False


def _of_gpu(x: Any, device: str | None, copy: bool | None, team: TeamLike) -> DistArray:
    """Return an array of another library's block on a GPU; without a copy where the team is in this process."""
    _, index = x.__dlpack_device__()
    if device is None and not current_device().startswith("cuda"):
        device = "cuda"  # it stays where it is
    env = environment(team, device)
    theirs = backend_for(f"cuda:{int(index)}")
    block = theirs.xp.from_dlpack(x)
    as_dtype(block.dtype)
    if env.is_cluster or not env.device.startswith("cuda"):
        if copy is False:
            raise ValueError(f"from_dlpack: an array on {theirs.label!r} cannot be on {env!r} without a copy")
        return from_host(theirs.to_host(block), env, None, is_ours=True)
    ours = backend_for(env.device)
    moved = ours.adopt(block)
    if moved is block and copy:
        moved = ours.copy(block)
    return DistArray._on(source(moved, env, on_client=False))


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
            node = bind_put(node, box_lens(host.shape, [start for start, _ in box]), source(host, env))
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
    """Return an array of the elements of a host array, cut over the members of a team.

    Parameters
    ----------
    host
        What `numpy.asarray` takes, of any strides.
    team, sharding, layout, device
        Where the array is to live and how it is cut, as for `asarray`.
    root
        Must be the rank of a member; this process holds the data in any case.

    Raises
    ------
    ShardingError, ValueError
        If the cut does not fit the array, or there is no member `root`.
    """
    env = environment(team, device)
    check_root(root, env)
    values = np.asarray(host)
    return asarray(values, team=env.team, device=env.device, sharding=sharding, layout=layout)


# ---------------------------------------------------------------------------------------------- requirements


def asarray_chkfinite(a: Any, dtype: DTypeLike = None, order: Any = None, **where: Any) -> DistArray:
    """Return `a` as an array, if no element is nan or infinite: computes it.

    Raises
    ------
    ValueError
        If one is.
    """
    made = asarray(a, dtype, order=order, **where)
    if made.dtype.kind in "fc" and not bool(elementwise.isfinite(made).all()):
        raise ValueError("array must not contain infs or NaNs")
    return made


#: What numpy's ``require`` may ask for, by its names: blocks are aligned, own their memory or can be copied.
_REQUIREMENTS = {
    **dict.fromkeys(("C", "C_CONTIGUOUS", "CONTIGUOUS"), "C"),
    **dict.fromkeys(("F", "F_CONTIGUOUS", "FORTRAN"), "F"),
    **dict.fromkeys(("W", "WRITEABLE"), "W"),
    **dict.fromkeys(("O", "OWNDATA"), "O"),
    **dict.fromkeys(("A", "ALIGNED", "E", "ENSUREARRAY"), ""),
}


def require(a: Any, dtype: DTypeLike = None, requirements: Any = None, **where: Any) -> DistArray:
    """Return `a` as an array with what numpy's names require: blocks in ``C`` or ``F`` order, own and writable
    memory.
    """
    names = [requirements] if isinstance(requirements, str) else sequence(requirements or (), "requirements", "names")
    unknown = [name for name in names if not isinstance(name, str) or name.upper() not in _REQUIREMENTS]
    if unknown:
        raise KeyError(f"requirements={shown(requirements)}: there is no {unknown[0]!r}")
    wanted = {_REQUIREMENTS[name.upper()] for name in names}
    if wanted >= {"C", "F"}:
        raise ValueError('Cannot specify both "C" and "F" order')
    made = asarray(a, dtype, copy=True if wanted & {"W", "O"} and getattr(a, "_readonly", False) else None, **where)
    if ("C" in wanted and not made.flags.c_contiguous) or ("O" in wanted and made.base is not None):
        made = made.copy()
    return made._in_order("F") if "F" in wanted else made
