"""User functions as operations: what is passed to them. They are late parameters, so that all calls of one form have
one plan, which keeps no function alive.

A user function is never called when an operation is defined, unless `infer` is asked for. In a task it sees its blocks
read-only, since they belong to arrays that others may hold (`kernels.tables`).
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from distarray.arguments import callback
from distarray.dtypes import as_dtype
from distarray.expr.bind import Operands, unbox
from distarray.expr.expr import Expr
from distarray.expr.op import declare
from distarray.expr.tiles import Windows
from distarray.kernels.user_functions import checked_block
from distarray.types import DType, DTypeLike, HostArray

#: params: (rule, dtypes of the results where they are promised); late: (function,)
MAP_BLOCKS = declare("map_blocks", "block", may_raise=True)
#: late: (function,), which is called as ``function.on_tile(xp, tile, *blocks)``
MAP_WINDOWS = declare("map_windows", "windows", may_raise=True)


@dataclass(frozen=True, slots=True, eq=False)
class UserFunction:
    """A UserFunction is a function with its fixed arguments.

    Parameters
    ----------
    function
        Called with a block in each place of `template` that is None, in order, and `keywords`.
    template
        Positional arguments, each in a tuple of its own; None stands for a block.
    names
        Keywords that stand for blocks, after the positional ones.
    """

    function: Callable[..., Any]
    template: tuple[tuple[Any] | None, ...]
    keywords: dict[str, Any]
    names: tuple[str, ...] = ()

    def __call__(self, *blocks: Any, **more: Any) -> Any:
        given = iter(blocks)
        positional = [next(given) if a is None else a[0] for a in self.template]
        return self.function(*positional, **self.keywords | dict(zip(self.names, given, strict=True)), **more)

    def __repr__(self) -> str:
        return getattr(self.function, "__name__", repr(self.function))


def is_array(value: Any) -> bool:
    """Return whether an argument is an array whose blocks the function gets."""
    return type(value) is Expr or hasattr(type(value), "__dx_node__")


def arguments(
    name: str, function: Callable[..., Any], args: Sequence[Any], keywords: dict[str, Any]
) -> tuple[UserFunction, list[Expr], Operands]:
    """Return a call of a user function: the function with what is fixed, and the nodes of its arrays.

    Raises
    ------
    TypeError
        If it is no function, or no argument is an array.
    """
    callback(function, f"{name}: the first argument")
    arrays = [a for a in args if is_array(a)]
    if not arrays:
        raise TypeError(f"{name}: none of the arguments is a DistArray")
    operands = unbox(name, arrays)
    template = tuple([None if is_array(a) else (a,) for a in args])
    return UserFunction(function, template, keywords), [n for n in operands.nodes if type(n) is Expr], operands


def dtype_of(name: str, dtype: DTypeLike, infer: bool, call: Callable[[], Any]) -> DType:
    """Return the dtype of a result: as said, or that of a call on a small example if the user wants it.

    Raises
    ------
    TypeError
        If nothing says it.
    """
    if dtype is not None:
        return as_dtype(dtype)
    if not infer:
        raise TypeError(f"{name}: say dtype=, or infer=True to have the function called once on blocks of one element")
    return as_dtype(np.asarray(call()).dtype)


def examples(nodes: Sequence[Expr]) -> list[HostArray]:
    """Return blocks of one element, with which a function is called that is to say its dtype."""
    return [np.ones((1,) * node.ndim, node.dtype) for node in nodes]


def has_keyword(function: Callable[..., Any], keyword: str) -> bool:
    """Return whether a function names a keyword among its parameters."""
    try:
        return keyword in inspect.signature(function).parameters
    except (TypeError, ValueError):  # builtins without a signature
        return False


@dataclass(frozen=True, slots=True, eq=False)
class InformedFunction:
    """An InformedFunction is a function that is told where its blocks are: Dask's ``block_id`` and ``block_info``.

    Parameters
    ----------
    function
        The user's.
    places
        For each array its position among the arguments.
    shapes
        Of the arrays.
    windows
        The grid, and what each tile reads.
    dtype
        Of the result.
    """

    function: UserFunction
    places: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...]
    windows: Windows
    dtype: DType
    #: By axis of the grid, for each tile and behind the last one, how many blocks come before it.
    numbers: tuple[tuple[int, ...], ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "numbers", tuple([_numbers(self.windows, axis) for axis in range(len(self.windows.bounds))])
        )

    def on_tile(self, xp: Any, tile: tuple[int, ...], *blocks: Any) -> Any:
        """Return what the function gives for a tile; `xp` is the namespace of the blocks."""
        result = self.function(*blocks, **self.information(tile))
        return checked_block(xp.asarray(result), self.tile_shape(tile), self.dtype)

    def tile_shape(self, tile: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of a tile of the result."""
        return tuple([b[t + 1] - b[t] for b, t in zip(self.windows.bounds, tile, strict=True)])

    def information(self, tile: tuple[int, ...]) -> dict[str, Any]:
        """Return the keywords that tell the function its place, those that it has."""
        told: dict[str, Any] = {}
        if has_keyword(self.function.function, "block_id"):
            told["block_id"] = self.place(tile)
        if has_keyword(self.function.function, "block_info"):
            told["block_info"] = self.block_info(tile)
        return told

    def place(self, tile: Sequence[int]) -> tuple[int, ...]:
        """Return the index of a tile among the blocks: tiles without elements, which members with fewer blocks than
        others have, are none.
        """
        return tuple([n[t] for n, t in zip(self.numbers, tile, strict=True)])

    def block_info(self, tile: tuple[int, ...]) -> dict[Any, dict[str, Any]]:
        """Return Dask's dictionary: by the position of the argument, and by None for the result."""
        info: dict[Any, dict[str, Any]] = {}
        at, counts = self.place(tile), [max(1, n[-1]) for n in self.numbers]
        for i, (place, shape) in enumerate(zip(self.places, self.shapes, strict=True)):
            reads = self.windows.operands[i]
            info[place] = {
                "shape": shape,
                "num-chunks": tuple([1 if read is None else counts[read[0]] for read in reads]),
                "array-location": [(r.start, r.stop) for r in self.windows.box(i, tile, shape)],
                "chunk-location": tuple([0 if read is None else at[read[0]] for read in reads]),
            }
        bounds = self.windows.bounds
        info[None] = {
            "shape": tuple([b[-1] for b in bounds]),
            "num-chunks": tuple(counts),
            "array-location": [(b[t], b[t + 1]) for b, t in zip(bounds, tile, strict=True)],
            "chunk-location": at,
            "chunk-shape": self.tile_shape(tile),
            "dtype": self.dtype,
        }
        return info

    def __repr__(self) -> str:
        return repr(self.function)


def _numbers(windows: Windows, axis: int) -> tuple[int, ...]:
    """Return how many tiles with elements come before each tile of an axis of a grid, and how many there are."""
    read = [r[1] for reads in windows.operands for r in reads if r is not None and r[0] == axis]
    has_elements = [b > a for a, b in itertools.pairwise(windows.bounds[axis])]
    for ranges in read:
        has_elements = [has or b > a for has, (a, b) in zip(has_elements, ranges, strict=True)]
    return tuple(itertools.accumulate(has_elements, initial=0))
