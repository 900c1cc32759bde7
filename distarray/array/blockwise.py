"""User functions on blocks: ``map_blocks`` with Dask's signature, and ``map_tiles`` for kernels bound to mesh axes.

A user function is an operation like any other: it has a ShardingRule, made from the shapes of its operands, and is
called once per tile of the result with the blocks of its operands there. It is never called at definition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from distarray.array.array import DistArray
from distarray.array.base import cast
from distarray.array.environment import parse_pin
from distarray.dtypes import as_dtype
from distarray.expr.bind import Operands, bind, broadcast_shapes, normalize_axes, unbox
from distarray.expr.expr import Expr
from distarray.expr.op import declare
from distarray.ops.creation import arange
from distarray.types import DTypeLike

__all__ = ["TileKernel", "UserFunction", "map_blocks", "map_tiles"]

MAP_BLOCKS = declare("map_blocks", "block", may_raise=True)


class UserFunction:
    """A function with its fixed arguments; equal, for plans, if all of them are.

    Parameters
    ----------
    function
        Called with a block in each place of `template` that is None, in order, and `keywords`.
    template
        Positional arguments; None stands for a block.
    """

    __slots__ = ("function", "keywords", "template")

    def __init__(self, function: Callable[..., Any], template: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        self.function = function
        self.template = template
        self.keywords = keywords

    def __call__(self, *blocks: Any) -> Any:
        given = iter(blocks)
        return self.function(*[next(given) if a is _BLOCK else a.value for a in self.template], **self.keywords)

    def __hash__(self) -> int:
        return hash(self.function)

    def __eq__(self, other: object) -> bool:
        # fixed arguments may be arrays, whose comparison is no bool: identity of each is enough to share a plan
        return (
            isinstance(other, UserFunction)
            and self.function == other.function
            and len(self.template) == len(other.template)
            and all(
                a is b or (a is not _BLOCK and b is not _BLOCK and a.value is b.value)
                for a, b in zip(self.template, other.template, strict=True)
            )
            and self.keywords.keys() == other.keywords.keys()
            and all(self.keywords[k] is other.keywords[k] for k in self.keywords)
        )

    def __reduce__(self) -> tuple[Any, ...]:
        template = tuple([None if a is _BLOCK else (a.value,) for a in self.template])
        return _restore, (self.function, template, self.keywords)

    def __repr__(self) -> str:
        return getattr(self.function, "__name__", repr(self.function))


class _Fixed:
    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


_BLOCK = _Fixed(None)


def _restore(function: Any, template: tuple[Any, ...], keywords: dict[str, Any]) -> UserFunction:
    return UserFunction(function, tuple([_BLOCK if a is None else _Fixed(a[0]) for a in template]), keywords)


def map_blocks(
    func: Callable[..., Any],
    *args: Any,
    dtype: DTypeLike = None,
    chunks: Any = None,
    drop_axis: int | Sequence[int] | None = None,
    new_axis: int | Sequence[int] | None = None,
    name: str | None = None,
    infer: bool = False,
    **kwargs: Any,
) -> Any:
    """Call a function on the blocks of arrays that broadcast together.

    Parameters
    ----------
    func
        Takes one block for each array of `args`, other arguments as they are. Its result must have the shape of the
        broadcast blocks, but for `drop_axis` and `new_axis`. It must work for blocks of any size: the planner cuts.
    args
        Arrays and other arguments.
    dtype
        Of the result. Needed, since the function is never called at definition, unless `infer`.
    chunks
        Extents of the new axes: an int or one for each; 1 by default.
    drop_axis, new_axis
        Axes of the broadcast operands that the result lacks (they are never cut), and axes of the result that are new.
    name
        Accepted for Dask's sake; plans and keys do not use it.
    infer
        Call the function once, on blocks of one element, to learn the dtype.
    kwargs
        Passed to the function.

    Returns
    -------
    DistArray
        Evaluated at the call, since a user function may raise; see the option ``errors``.

    Raises
    ------
    TypeError
        If nothing says the dtype, or no argument is an array.

    Examples
    --------
    >>> import distarray as dx
    >>> dx.map_blocks(lambda block: block * 2, dx.arange(3), dtype="int64").tolist()
    [0, 2, 4]
    """
    arrays = [a for a in args if hasattr(type(a), "__dx_node__") or type(a) is Expr]
    template = tuple([_BLOCK if hasattr(type(a), "__dx_node__") or type(a) is Expr else _Fixed(a) for a in args])
    operands = unbox("map_blocks", arrays)
    nodes = [n for n in operands.nodes if type(n) is Expr]
    shape = broadcast_shapes(*[n.shape for n in nodes])
    function = UserFunction(func, template, kwargs)
    if dtype is None:
        if not infer:
            raise TypeError(
                "map_blocks: say dtype=, or infer=True to have the function called once on blocks of one element"
            )
        dtype = np.asarray(function(*[np.ones((1,) * n.ndim, n.dtype) for n in nodes])).dtype
    dropped = () if drop_axis is None else normalize_axes(drop_axis, len(shape), "drop_axis")
    added = (new_axis,) if isinstance(new_axis, int) else tuple(new_axis or ())
    added = normalize_axes(added, len(shape) - len(dropped) + len(added), "new_axis")
    extents = (chunks,) * len(added) if isinstance(chunks, int) else tuple(chunks or (1,) * len(added))
    if len(extents) != len(added):
        raise ValueError(f"map_blocks: chunks={chunks!r} gives {len(extents)} extents for {len(added)} new axes")
    kept = iter([a for a in range(len(shape)) if a not in dropped])
    new = dict(zip(added, extents, strict=True))
    result: list[str] = []
    result_shape: list[int] = []
    for i in range(len(shape) - len(dropped) + len(added)):
        if i in new:
            result.append(f"n{i}")
            result_shape.append(int(new[i]))
        else:
            a = next(kept)
            result.append(f"a{a}")
            result_shape.append(shape[a])
    terms = []
    for n in nodes:
        first = len(shape) - n.ndim
        terms.append(" ".join("1" if m != shape[first + i] else f"a{first + i}" for i, m in enumerate(n.shape)) or "()")
    clauses = [f"a{a}: whole" for a in dropped] + [f"n{i}: new({n})" for i, n in new.items()]
    rule = ", ".join(terms) + " -> " + " ".join(result) + (" | " + ", ".join(clauses) if clauses else "")
    return bind(MAP_BLOCKS, (), tuple(result_shape), as_dtype(dtype), (rule, function), None, operands)


class TileKernel:
    """A kernel as a function of blocks: the arrays', then for each name the indices that the tile has of it.

    Parameters
    ----------
    kernel
        Called with the blocks and the ranges.
    names
        Index names, in the order of their index blocks.
    inplace
        Number of the block that the kernel writes.
    """

    __slots__ = ("inplace", "kernel", "names")

    def __init__(self, kernel: Callable[..., Any], names: str, inplace: int) -> None:
        self.kernel = kernel
        self.names = names
        self.inplace = inplace

    def __call__(self, *given: Any) -> Any:
        n = len(given) - len(self.names)
        blocks, indices = list(given[:n]), given[n:]
        # The version that is written is a new one: a task may run twice, and its block may have other readers.
        blocks[self.inplace] = _writable(blocks[self.inplace])
        ranges = {
            name: range(int(index[0]), int(index[-1]) + 1) if index.shape[0] else range(0)
            for name, index in zip(self.names, indices, strict=True)
        }
        self.kernel(*blocks, ranges)
        result = blocks[self.inplace]
        return np.asarray(result, order="C") if isinstance(result, np.ndarray) else result

    def __hash__(self) -> int:
        return hash((self.kernel, self.names, self.inplace))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TileKernel) and (self.kernel, self.names, self.inplace) == (
            other.kernel,
            other.names,
            other.inplace,
        )

    def __repr__(self) -> str:
        return getattr(self.kernel, "__name__", repr(self.kernel))


def _writable(block: Any) -> Any:  # of any backend
    if hasattr(block, "copy"):
        return block.copy(order="K")
    return block.__array_namespace__().asarray(block, copy=True)


def map_tiles(
    kernel: Callable[..., None],
    *arrays: DistArray,
    names: Sequence[str],
    over: Mapping[str, str],
    inplace: int = 0,
) -> DistArray:
    """Update an array tile by tile with a kernel that knows which part of each index it has.

    Parameters
    ----------
    kernel
        Called as ``kernel(*blocks, ranges)`` once per tile: blocks of `arrays`, each in the memory layout of its array,
        and for each name the `range` of global indices that the tile has of it. It writes the block of operand
        `inplace`; what it returns does not matter, and the other blocks are read-only.
    arrays
        Arrays of one team.
    names
        For each array one letter per axis, as in ``einsum``. A letter stands for one index throughout.
    over
        Mesh axes of the team and the letter that each cuts. What is not cut is whole in every block.
    inplace
        Number of the array that is written, each tile by its owner.

    Returns
    -------
    DistArray
        The array that was written. Evaluated at the call, since a kernel may raise; see the option ``errors``.

    Raises
    ------
    ValueError
        If the letters do not fit the arrays, or a letter that is cut is no axis of the array that is written: its
        tiles would be partial sums.

    Examples
    --------
    >>> import distarray as dx
    >>> def outer(c, a, b, ranges):
    ...     c += a[:, None] * b + ranges["i"].start
    >>> T = dx.Team((2,), ("R",))
    >>> c = dx.zeros((4, 2), team=T)
    >>> a, b = dx.arange(4.0, team=T), dx.asarray([1.0, 2.0], team=T)
    >>> dx.map_tiles(outer, c, a, b, names=("ij", "i", "j"), over={"R": "i"}).tolist()
    [[0.0, 0.0], [1.0, 2.0], [4.0, 6.0], [5.0, 8.0]]
    """
    if len(names) != len(arrays) or not 0 <= inplace < len(arrays):
        raise ValueError(f"map_tiles: {len(names)} names and inplace={inplace} do not fit {len(arrays)} arrays")
    target = arrays[inplace]
    if target._readonly:
        raise ValueError("assignment destination is read-only")
    operands = unbox("map_tiles", arrays)
    nodes = [n for n in operands.nodes if type(n) is Expr]
    extents: dict[str, int] = {}
    for node, letters in zip(nodes, names, strict=True):
        if len(letters) != node.ndim or not letters.isalpha():
            raise ValueError(f"map_tiles: {letters!r} does not name the axes of an array of shape {node.shape}")
        for letter, n in zip(letters, node.shape):
            if extents.setdefault(letter, n) != n:
                raise ValueError(f"map_tiles: index {letter!r} has the extents {extents[letter]} and {n}")
    written = names[inplace]
    for axis, letter in over.items():
        if letter not in written:
            raise ValueError(
                f"map_tiles: mesh axis {axis!r} cuts index {letter!r}, which {written!r} lacks: its tiles would be "
                "partial sums; leave it whole, or use einsum"
            )
    team = operands.env.team
    # The minor mesh axis comes first; a mesh lists its axes from the slowest.
    minor_first = [] if team is None else [axis for axis in reversed(team.axes) if axis in over]
    unknown = over.keys() - set(minor_first)
    if unknown:
        raise ValueError(f"map_tiles: {team!r} has no mesh axis {', '.join(map(repr, sorted(unknown)))}")
    cut = tuple(tuple(axis for axis in minor_first if over[axis] == letter) for letter in written)
    every = "".join(extents)
    indices = [arange(0, n, 1, np.int64, operands.env) for n in extents.values()]
    terms = [" ".join(letters) or "()" for letters in (*names, *every)]
    whole = [f"{letter}: whole" for letter in every if letter not in over.values()]
    rule = ", ".join(terms) + " -> " + " ".join(written) + (" | " + ", ".join(whole) if whole else "")
    inputs = Operands([*nodes, *indices], operands.env, lambda node: node)
    base = nodes[inplace]
    function = TileKernel(kernel, every, inplace)
    value: Expr = bind(MAP_BLOCKS, (), base.shape, base.dtype, (rule, function), None, inputs)
    if team is not None:
        value.pin = parse_pin(cut, None, base.shape, base.dtype, operands.env)
        if target.layout != "C":
            # Results of kernels have blocks of layout C.
            value = cast(value, base.dtype)
            value.pin = parse_pin(cut, target.layout, base.shape, base.dtype, operands.env)
    target._write(value)
    return target
