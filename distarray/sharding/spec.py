"""The notation of types: printing, parsing, JSON, and the door for the user's ``sharding=``.

One notation serves ``repr``, ``explain``, errors, the command line and user input. It is that of the redistribution
paper, mesh axes minor first::

    type    = [dtype] "[" [dim {"," dim}] "]" {unreduced} ["order=" ("F" | "C" | permutation)] ["copied"]
    dim     = size | tile "{" [axis {"," axis}] [";" boundary {"," boundary}] "}" size
    axis    = name [":" size]
    unreduced = ("+" | monoid) "{" axis {"," axis} "}"

``f64[8{x}256, 1024]`` is 256 rows cut over mesh axis ``x`` into tiles of (at most) 8; ``[128, 64]+{k}`` a sum over
``k`` not yet reduced; ``[4{x; 0,3,7,10}10]`` has explicit boundaries; of ``[8, 4] copied`` every member of a
cluster has a copy. Sizes after ``:`` are checked against the mesh; a
wave axis that the mesh lacks is added when its size is given.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from operator import index
from typing import Any, TypeAlias

import numpy as np

from distarray import dtypes
from distarray.arguments import shown
from distarray.errors import ShardingError
from distarray.sharding.cuts import largest_part
from distarray.sharding.layout import LayoutLike, layout_name
from distarray.sharding.mesh import Mesh, is_wave
from distarray.sharding.sharding import MONOIDS, Sharding

#: What users write for ``sharding=``: None, one entry per array axis, a type in text, or a Sharding.
ShardingLike: TypeAlias = "str | Sharding | Sequence[str | Sequence[str] | None] | None"
_DType: TypeAlias = "np.dtype[Any]"  # Any: numpy's own spelling of "a dtype of whatever scalar"

# The unit of a datetime ends in a letter, so "M8[ns]" cannot be taken for a shape.
_TYPE = re.compile(
    r"\s*(?P<dtype>[Mm]8(?:\[\d*[^\W\d]+\])?|bool|[iufc]\d+)?\s*\[(?P<dims>[^\[\]]*)\]\s*(?P<rest>.*?)\s*", re.DOTALL
)
_DIM = re.compile(r"(?P<tile>\d+)\s*\{(?P<axes>[^{};]*)(?:;(?P<bounds>[^{}]*))?\}\s*(?P<size>\d+)")
_UNREDUCED = re.compile(r"\s*(?P<monoid>\+|[a-z]+)\s*\{(?P<axes>[^{}]*)\}")
_ORDER = re.compile(r"\s*order\s*=\s*(?P<order>[CF]|\([\d\s,]*\))\s*")
_COMMA = re.compile(r",(?![^{}]*\})")  # a comma outside braces


# -- printing ---------------------------------------------------------------------------------------------------


def format_type(shape: Sequence[int], dtype: _DType | None = None, sharding: Sharding | None = None) -> str:
    """Return a type in text; without `sharding`, of an array not yet placed.

    Parameters
    ----------
    shape
        Global shape.
    dtype
        Printed in front if given.
    sharding
        Its rank and explicit boundaries must fit `shape`.

    Examples
    --------
    >>> mesh = Mesh(("C", "R"), (2, 4))
    >>> format_type((64, 32), np.dtype("f8"), Sharding(mesh, (("C", "R"), ()), layout=(1, 0)))
    'f64[8{C,R}64, 32] order=F'
    >>> format_type((8, 6), None, Sharding(mesh, (("C",), ()), (("R", "sum"),)))
    '[4{C}8, 6]+{R}'
    >>> format_type((16384, 16384), np.dtype("f8"))
    'f64[16384, 16384]'
    """
    name = "" if dtype is None else dtypes.notation(dtype)
    if sharding is None:
        return f"{name}[{', '.join(map(str, shape))}]"
    dims = []
    for n, names, bounds, cut in zip(shape, sharding.axes, sharding.bounds, sharding.boundaries(shape), strict=True):
        if not names:
            dims.append(str(n))
            continue
        explicit = "" if bounds is None else f"; {','.join(map(str, bounds))}"
        dims.append(f"{largest_part(cut)}{{{','.join(names)}{explicit}}}{n}")
    text = f"{name}[{', '.join(dims)}]"
    last = None
    for axis, monoid in sharding.unreduced:
        # Neighbours with one monoid share braces; the order between monoids matters and is kept.
        if monoid == last:
            text = f"{text[:-1]},{axis}}}"
        else:
            text += f"+{{{axis}}}" if monoid == "sum" else f" {monoid}{{{axis}}}"
        last = monoid
    order = layout_name(sharding.layout)
    if order != "C":
        text += f" order={order}" if isinstance(order, str) else f" order=({','.join(map(str, order))})"
    return f"{text} copied" if sharding.is_copied else text


# -- parsing ----------------------------------------------------------------------------------------------------


def parse_mesh(text: str) -> Mesh:
    """Return the mesh written as ``x=4,y=6``; the inverse of ``str(mesh)``.

    Raises
    ------
    ShardingError
        If the text is not of that form.
    """
    names, sizes = [], []
    for item in filter(None, map(str.strip, text.split(","))):
        name, equals, size = (part.strip() for part in item.partition("="))
        if not equals or not size.isdecimal():
            raise ShardingError(f"mesh {text!r}: {item!r} is no axis; write name=size, as in x=4,y=6")
        names.append(name)
        sizes.append(int(size))
    return Mesh(tuple(names), tuple(sizes))


def parse_type(text: str, mesh: Mesh) -> tuple[_DType | None, tuple[int, ...], Sharding]:
    """Return the (dtype, shape, sharding) that a type in text means on a mesh; the inverse of `format_type`.

    Raises
    ------
    ShardingError
        If the text is no type, names an axis that is unknown or used twice, or a tile size, axis size or boundary
        does not fit.

    Examples
    --------
    >>> parse_type("f32[3{x}12, 5]+{y}", Mesh(("x", "y"), (4, 2)))[:2]
    (dtype('float32'), (12, 5))
    """
    found = _TYPE.fullmatch(text)
    if found is None:
        raise ShardingError(f"{text!r} is no type; write for example 'f64[8{{x}}256, 1024]', mesh axes minor first")
    try:
        dtype = None if found["dtype"] is None else dtypes.parse_notation(found["dtype"])
    except TypeError as error:
        raise ShardingError(f"{text!r}: {error}") from None
    mesh, axes, bounds, shape, tiles = _parse_dims(text, found["dims"], mesh)
    rest = found["rest"].removesuffix("copied")
    mesh, unreduced, order = _parse_rest(text, rest.rstrip(), mesh)
    try:
        sharding = Sharding(mesh, axes, unreduced, bounds, is_copied=rest != found["rest"])
        if order is not None:
            sharding = sharding.with_layout(order)
        expected = sharding.shard_shape(shape)
    except ShardingError as error:
        raise ShardingError(f"{text!r}: {error}") from None
    for axis, (tile, want) in enumerate(zip(tiles, expected, strict=True)):
        if tile is not None and tile != want:
            raise ShardingError(
                f"{text!r}: axis {axis} has tiles of {tile}, but {shape[axis]} elements "
                f"in {sharding.parts[axis]} parts make tiles of {want}"
            )
    return dtype, shape, sharding


def _parse_dims(text: str, dims: str, mesh: Mesh) -> tuple[Mesh, Any, Any, tuple[int, ...], Sequence[int | None]]:
    # Any: nested tuples that the constructor of Sharding checks
    rows: list[Any] = []
    for axis, item in enumerate(map(str.strip, _COMMA.split(dims)) if dims.strip() else ()):
        if item.isdecimal():
            rows.append(((), None, int(item), None))
            continue
        found = _DIM.fullmatch(item)
        if found is None:
            raise ShardingError(f"{text!r}: axis {axis} is {item!r}; write a size, or tile{{mesh axes}}size")
        mesh, names = _parse_axes(text, found["axes"], mesh)
        cut = None if found["bounds"] is None else _parse_ints(text, found["bounds"])
        rows.append((names, cut, int(found["size"]), int(found["tile"])))
    axes, bounds, shape, tiles = zip(*rows, strict=True) if rows else ((), (), (), ())
    return mesh, axes, bounds, shape, tiles


def _parse_rest(text: str, rest: str, mesh: Mesh) -> tuple[Mesh, tuple[tuple[str, str], ...], LayoutLike | None]:
    unreduced: list[tuple[str, str]] = []
    position = 0
    while found := _UNREDUCED.match(rest, position):
        monoid = "sum" if found["monoid"] == "+" else found["monoid"]
        if monoid not in MONOIDS:
            raise ShardingError(f"{text!r}: {monoid!r} is no monoid; use + or one of {', '.join(MONOIDS)}")
        mesh, names = _parse_axes(text, found["axes"], mesh)
        unreduced += [(name, monoid) for name in names]
        position = found.end()
    if position == len(rest):
        return mesh, tuple(unreduced), None
    order = _ORDER.fullmatch(rest, position)
    if order is None:
        raise ShardingError(f"{text!r}: cannot read {rest[position:]!r}; after ']' come +{{axes}}, order=F and copied")
    name = order["order"]
    return mesh, tuple(unreduced), name if name in ("C", "F") else _parse_ints(text, name.strip("()"))


def _parse_axes(text: str, names: str, mesh: Mesh) -> tuple[Mesh, tuple[str, ...]]:
    result = []
    for item in map(str.strip, names.split(",")) if names.strip() else ():
        name, colon, size = (part.strip() for part in item.partition(":"))
        if colon and not size.isdecimal():
            raise ShardingError(f"{text!r}: {item!r} is no mesh axis; write name or name:size")
        if colon and is_wave(name) and name not in mesh:
            mesh = Mesh(mesh.names + (name,), mesh.sizes + (int(size),))
        elif name not in mesh:
            have = ", ".join(mesh.names) or "none"
            raise ShardingError(f"{text!r} names mesh axis {name!r}, which does not exist; the mesh has {have}")
        elif colon and mesh.axis_size(name) != int(size):
            raise ShardingError(f"{text!r} gives mesh axis {name!r} the size {size}; it is {mesh.axis_size(name)}")
        result.append(name)
    return mesh, tuple(result)


def _parse_ints(text: str, numbers: str) -> tuple[int, ...]:
    items = [item.strip() for item in numbers.split(",") if item.strip()]
    if not all(item.isdecimal() for item in items):
        raise ShardingError(f"{text!r}: {numbers.strip()!r} are not integers")
    return tuple(map(int, items))


# -- the user's sharding= ---------------------------------------------------------------------------------------


def parse_sharding(
    user: ShardingLike, shape: Sequence[int], mesh: Mesh, dtype: _DType | None = None, layout: LayoutLike | None = None
) -> Sharding:
    """Return what the user's ``sharding=`` means for an array of this shape on (the mesh of) a team.

    Parameters
    ----------
    user
        None: nothing is cut. (Where None means that the planner chooses, the caller does not ask.) A tuple: per array
        axis None, a mesh axis, or a tuple of them, minor first. Text: a type. A Sharding: its mesh may refine `mesh`,
        or have fewer members.
    shape
        Global shape of the array.
    mesh
        Mesh of the team.
    dtype
        If given, a dtype in the text must be the same.
    layout
        If given, it overrides the layout of `user`.

    Raises
    ------
    ShardingError
        A mesh axis twice or unknown, an entry too many or too few, another shape or dtype in the text, boundaries
        or a layout that do not fit, a Sharding for another number of members.

    Examples
    --------
    >>> parse_sharding((("C", "R"), None), (64, 32), Mesh(("R", "C"), (2, 4)))
    Sharding(Mesh(R=2, C=4), (('C', 'R'), ()))
    """
    shape = tuple(shape)
    if user is None:
        sharding = Sharding.whole(mesh, len(shape))
    elif isinstance(user, Sharding):
        sharding = user
        if sharding.ndim != len(shape):
            raise ShardingError(f"sharding={user!r} is for {user.ndim} axes, but the array has {len(shape)}: {shape}")
        if user.mesh.n_members > mesh.n_members:  # fewer are the first ones: the others hold nothing
            raise ShardingError(
                f"sharding= is on {user.mesh!r} with {user.mesh.n_members} members, "
                f"but the team is {mesh!r} with {mesh.n_members}"
            )
    elif isinstance(user, str):
        if "[" not in user:
            raise ShardingError(f"sharding={user!r} is no type such as '[8{{x}}64, 32]'; did you mean {(user,)!r}?")
        said, typed, sharding = parse_type(user, mesh)
        if typed != shape:
            raise ShardingError(f"sharding={user!r} is for the shape {typed}, but the array has {shape}")
        if said is not None and dtype is not None and said != dtype:
            raise ShardingError(f"sharding={user!r} is for dtype {said}, but the array has {dtype}")
    else:
        sharding = Sharding(mesh, _parse_entries(user, shape))
    sharding.boundaries(shape)  # explicit boundaries must end where the axes end
    return sharding if layout is None else sharding.with_layout(layout)


def _parse_entries(user: Sequence[str | Sequence[str] | None], shape: tuple[int, ...]) -> tuple[tuple[str, ...], ...]:
    if not isinstance(user, Sequence):
        raise ShardingError(f"sharding={user!r} is neither None, a tuple, a type in text nor a Sharding")
    if len(user) > len(shape):
        raise ShardingError(f"sharding={user!r} has {len(user)} entries, but the array has {len(shape)} axes: {shape}")
    axes: list[tuple[str, ...]] = []
    for axis, entry in enumerate(user):
        names = () if entry is None else (entry,) if isinstance(entry, str) else entry
        if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
            raise ShardingError(
                f"sharding={user!r}: entry {entry!r} of axis {axis} is neither None, a mesh axis nor a tuple of them"
            )
        axes.append(tuple(names))
    return (*axes, *[()] * (len(shape) - len(axes)))  # axes that nobody names are whole, as in JAX


def swap_axis_order(
    entries: Sequence[str | Sequence[str] | None],
) -> tuple[str | tuple[str, ...] | None, ...]:
    """Turn ``sharding=`` entries, minor axis first, into major first as JAX and DTensor write them, or back.

    It is its own inverse, so one function serves both ways.

    >>> swap_axis_order((("C", "R"), None, "x"))
    (('R', 'C'), None, 'x')
    """
    return tuple(entry if entry is None or isinstance(entry, str) else tuple(reversed(entry)) for entry in entries)


# -- JSON -------------------------------------------------------------------------------------------------------


def to_json(shape: Sequence[int], sharding: Sharding, dtype: _DType | None = None) -> dict[str, Any]:
    """Return a type as plain JSON data; keys that would say nothing are left out.

    ``unreduced`` lists mesh axes for sums and ``[axis, monoid]`` for other monoids.

    >>> to_json((12, 5), Sharding(Mesh(("x", "y"), (4, 2)), (("x",), ()), (("y", "sum"),)))
    {'global': [12, 5], 'parts': [['x'], []], 'unreduced': ['y']}
    """
    sharding.boundaries(shape)
    data: dict[str, Any] = {"global": list(shape), "parts": [list(names) for names in sharding.axes]}
    if sharding.unreduced:
        data["unreduced"] = [name if monoid == "sum" else [name, monoid] for name, monoid in sharding.unreduced]
    if not sharding.is_regular:
        data["bounds"] = [None if b is None else list(b) for b in sharding.bounds]
    order = layout_name(sharding.layout)
    if order != "C":
        data["order"] = order if isinstance(order, str) else list(order)
    if sharding.is_copied:
        data["copied"] = True
    if dtype is not None:
        data["dtype"] = dtypes.notation(dtype)
    return data


def mesh_from_json(data: Any) -> Mesh:
    """Return a mesh from a list of ``[name, size]`` in JSON.

    Raises
    ------
    ShardingError
        If it is not of the form, or no mesh.
    """
    # Any: unchecked JSON comes in; what Mesh makes of names and sizes is checked there, but numbers are numbers
    if not isinstance(data, list) or not all(
        isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str) and type(pair[1]) is int for pair in data
    ):
        raise ShardingError(f"mesh {shown(data)} is no list of [name, size]")
    return Mesh(tuple([name for name, _ in data]), tuple([size for _, size in data]))


def from_json(data: Any, mesh: Mesh) -> tuple[_DType | None, tuple[int, ...], Sharding]:
    """Return the (dtype, shape, sharding) of a type in JSON; the inverse of `to_json`. Unknown keys are ignored.

    Raises
    ------
    ShardingError
        If a key is missing or its value is not of the form, or the type is not well-formed on `mesh`.
    """
    if not isinstance(data, Mapping):
        raise ShardingError(f"{shown(data)} is no type in JSON; that is an object with the keys global and parts")
    # Any: unchecked JSON comes in
    try:
        shape = tuple(index(n) for n in data["global"])
        axes = tuple(_json_names(names) for names in data["parts"])
        unreduced = tuple(
            (entry, "sum") if isinstance(entry, str) else (str(entry[0]), str(entry[1]))
            for entry in data.get("unreduced", ())
        )
        bounds = tuple(None if b is None else tuple(b) for b in data.get("bounds") or ())
        dtype = dtypes.parse_notation(data["dtype"]) if "dtype" in data else None
    except (TypeError, KeyError, IndexError) as error:
        raise ShardingError(
            f'{shown(dict(data))} is no type; write {{"global": [..], "parts": [[..], ..]}} ({error!r})'
        ) from None
    if any(n < 0 for n in shape):
        raise ShardingError(f"extents {list(shape)} must not be negative")
    sharding = Sharding(mesh, axes, unreduced, bounds, is_copied=bool(data.get("copied")))
    if data.get("order") is not None:
        sharding = sharding.with_layout(data["order"])
    sharding.boundaries(shape)
    return dtype, shape, sharding


def _json_names(names: Any) -> tuple[str, ...]:  # Any: unchecked JSON
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise TypeError(f"{names!r} is no list of mesh axes")
    return tuple(names)
