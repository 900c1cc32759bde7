"""Kernels that call functions of the user.

A function sees its blocks read-only: they belong to arrays that others may hold. What it returns is checked against the
shape that its rule promises, and is never written in place: it may be kept by the function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from distarray.kernels.inside import as_task
from distarray.kernels.loans import foreign, lend
from distarray.kernels.namespaces import Block
from distarray.sharding.rule import ShardingRule
from distarray.types import DType, Shape

Params = tuple[Any, ...]


def read_only(blocks: Sequence[Block]) -> list[Block]:
    """Return the blocks as a function of the user may see them."""
    return [lend(block) for block in blocks]


def own(xp: Any, result: Block, seen: Sequence[Block]) -> Block:
    """Return a result as a block that aliases none of the operands; the function may have kept it."""
    block = xp.asarray(result)
    if not isinstance(block, np.ndarray):
        return xp.asarray(block, copy=True) if any(block is s for s in seen) else block
    is_own = block.flags.c_contiguous and block.flags.writeable
    if not is_own or any(np.may_share_memory(block, s) for s in seen if isinstance(s, np.ndarray)):
        return np.array(block, order="C")
    return foreign(block)


def _function(xp: Any, *blocks: Block, params: Params) -> Any:
    """Return what a function of blocks returns; params: the rule, dtypes of the results where promised, the
    function.
    """
    rule, *dtypes, function = params
    seen = read_only(blocks)
    result = as_task(function, *seen)
    given, parsed = [tuple(b.shape) for b in blocks], ShardingRule.parse(rule)
    extents = parsed.bind(given)
    shapes = [tuple([1 if loop == "1" else extents[loop] for loop in term]) for term in parsed.resolve(given).results]
    if len(shapes) == 1:
        result = (result,)
    elif not isinstance(result, tuple | list) or len(result) != len(shapes):
        raise ValueError(f"the function must return a tuple of {len(shapes)} arrays, not {type(result).__name__}")
    made = []
    for k, (value, shape) in enumerate(zip(result, shapes, strict=True)):
        made.append(checked_block(own(xp, value, seen), shape, dtypes[k] if dtypes else None))
    return made[0] if len(made) == 1 else tuple(made)


def checked_block(block: Block, shape: Shape, dtype: DType | str | None) -> Block:
    """Return what a function gave for a tile in the dtype that was promised of it, if one was.

    Raises
    ------
    ValueError
        If its shape is not that of the tile.
    TypeError
        If that would be another kind of number.
    """
    if tuple(block.shape) != shape:
        raise ValueError(
            f"the function gave a block of shape {tuple(block.shape)} for a tile of shape {shape}; where it changes "
            "shapes, say chunks=, drop_axis= or new_axis= (of blockwise: new_axes=, adjust_chunks=)"
        )
    return block if dtype is None else cast_block(block, dtype)


def cast_block(block: Block, dtype: DType | str, name: str = "the function") -> Block:
    """Return a block in the dtype that was promised of it; `name` is of what made it, for the text of errors.

    Raises
    ------
    TypeError
        If that would be another kind of number.
    """
    if not isinstance(block.dtype, np.dtype) or block.dtype == np.dtype(dtype):  # array_api_strict names its own
        return block
    if not np.can_cast(block.dtype, dtype, "same_kind"):
        raise TypeError(f"{name} gave {block.dtype} where dtype={np.dtype(dtype)} was promised")
    return block.astype(dtype)


def _on_tile(xp: Any, *blocks: Block, params: Params) -> Block:
    """Return what a function that knows its place gives; params are (function, index of the tile)."""
    function, tile = params
    seen = read_only(blocks)
    result = as_task(function.on_tile, xp, tuple(tile), *seen)
    return own(xp, result, seen)


BLOCK: dict[str, Callable[..., Any]] = {
    "map_blocks": _function,
    "map_windows": _on_tile,
    "reference_kernel": _function,  # of an operator of ONNX
}
