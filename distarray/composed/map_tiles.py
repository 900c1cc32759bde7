"""``map_tiles``: kernels bound to mesh axes, which know the ranges of their indices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from distarray.arguments import callback, integer, mapping, sequence, shown
from distarray.array.access import cast
from distarray.array.array import DistArray
from distarray.array.environment import parse_pin
from distarray.composed.user_function import MAP_BLOCKS
from distarray.expr.bind import Operands, bind, unbox
from distarray.expr.expr import Expr
from distarray.ops.creation import arange
from distarray.sharding.team import Team


@dataclass(frozen=True, slots=True, eq=False)
class TileKernel:
    """A TileKernel is a kernel as a function of blocks: the arrays', then for each name the indices that the tile has
    of it.

    Parameters
    ----------
    kernel
        Called with the blocks and the ranges.
    names
        Index names, in the order of their index blocks.
    inplace
        Number of the block that the kernel writes.
    """

    kernel: Callable[..., Any]
    names: str
    inplace: int

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
    callback(kernel, "kernel")
    names = sequence(names, "names", "texts")
    over = mapping(over, "over", "mesh axes to letters")
    inplace = integer(inplace, "inplace")
    if len(names) != len(arrays) or not 0 <= inplace < len(arrays):
        raise ValueError(f"map_tiles: {len(names)} names and inplace={inplace} do not fit {len(arrays)} arrays")
    target = arrays[inplace]
    if target._readonly:
        raise ValueError("assignment destination is read-only")
    operands = unbox("map_tiles", arrays)
    nodes = [n for n in operands.nodes if type(n) is Expr]
    extents, cut = _extents(nodes, names), _cut(over, names[inplace], operands.env.team)
    every = "".join(extents)
    indices = [arange(0, n, 1, np.int64, operands.env) for n in extents.values()]
    terms = [" ".join(letters) or "()" for letters in (*names, *every)]
    whole = [f"{letter}: whole" for letter in every if letter not in over.values()]
    rule = ", ".join(terms) + " -> " + " ".join(names[inplace]) + (" | " + ", ".join(whole) if whole else "")
    inputs = Operands([*nodes, *indices], operands.env, lambda node: node)
    base = nodes[inplace]
    function = TileKernel(kernel, every, inplace)
    value: Expr = bind(MAP_BLOCKS, (), base.shape, base.dtype, (rule,), (function,), inputs)
    if operands.env.team is not None:
        value = value.with_pin(parse_pin(cut, None, base.shape, base.dtype, operands.env))
        if target.layout != "C":
            # Results of kernels have blocks of layout C.
            pin = parse_pin(cut, target.layout, base.shape, base.dtype, operands.env)
            value = cast(value, base.dtype).with_pin(pin)
    target._write(value)
    return target


def _extents(nodes: Sequence[Expr], names: Sequence[Any]) -> dict[str, int]:
    """Return by letter the extent of its index, of nodes whose axes have one letter each."""
    extents: dict[str, int] = {}
    for node, letters in zip(nodes, names, strict=True):
        if not isinstance(letters, str) or len(letters) != node.ndim or not letters.isalpha():
            raise ValueError(
                f"map_tiles: names has {shown(letters)}, which does not name the axes of an array of shape {node.shape}"
            )
        for letter, n in zip(letters, node.shape):
            if extents.setdefault(letter, n) != n:
                raise ValueError(f"map_tiles: index {letter!r} has the extents {extents[letter]} and {n}")
    return extents


def _cut(over: Mapping[str, Any], written: str, team: Team | None) -> tuple[tuple[str, ...], ...]:
    """Return the mesh axes of a team that cut each axis of the array that is written, the minor one first."""
    for axis, letter in over.items():
        if not isinstance(letter, str) or letter not in written:
            raise ValueError(
                f"map_tiles: over={over}: mesh axis {axis!r} cuts index {letter!r}, which {written!r} lacks: its "
                "tiles would be partial sums; leave it whole, or use einsum"
            )
    # A mesh lists its axes from the slowest.
    minor_first = [] if team is None else [axis for axis in reversed(team.axes) if axis in over]
    unknown = over.keys() - set(minor_first)
    if unknown:
        raise ValueError(f"map_tiles: {team!r} has no mesh axis {', '.join(map(repr, sorted(unknown)))}")
    return tuple(tuple(axis for axis in minor_first if over[axis] == letter) for letter in written)
