"""Verification: whether expressions are what `bind` promises to the planner and to execution.

Layers trust each other: what one has inferred, the next does not infer again. `verify` does, from the operands of each
node alone, and lists whatever disagrees. Tests call it on all that operations make, and who looks for what makes a plan
wrong calls it first. It costs tens of microseconds per node, and computes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any, TypeAlias

import numpy as np

from distarray.dtypes import as_dtype
from distarray.expr.affine import Affine
from distarray.expr.bind import infer_map
from distarray.expr.broadcasting import broadcast_shapes
from distarray.expr.expr import Expr
from distarray.expr.joins import PRODUCT
from distarray.expr.tiles import Tiling, Windows
from distarray.sharding.dealing import dealt
from distarray.sharding.rule import ShardingRule
from distarray.sharding.sharding import Sharding

_Shape: TypeAlias = tuple[int, ...]


class ExprError(AssertionError):
    """An ExprError is raised for an expression that no operation makes: a defect of distarray, never of its user.

    Attributes
    ----------
    violations
        One text for each: the node, the user's line that defined it, and what is wrong.
    """

    def __init__(self, violations: Sequence[str]) -> None:
        self.violations = tuple(violations)
        super().__init__("\n".join(["these expressions are malformed:", *violations]))


def verify(*targets: Expr) -> None:
    """Check every node that `targets` need, down to those with a result.

    Parameters
    ----------
    targets
        Pending nodes or memoised ones.

    Raises
    ------
    ExprError
        Lists all violations: operands defined after their user or in a cycle, environments that differ along an edge,
        shapes and dtypes other than those inferred from the operands, lenses that leave their source or write an
        element twice, parameters that do not fit the operands, pins and results that do not fit the shape.
    """
    order, cycles = _ordered(targets)
    found = [_text(node, "is an operand of itself") for node in cycles]
    for node in order:
        try:
            for problem in _problems(node):
                found.append(_text(node, problem))
        except Exception as error:  # parameters of any other form than bind gives them
            found.append(_text(node, f"cannot be checked: {type(error).__name__}: {error}"))
    if found:
        raise ExprError(found)


def _text(node: Expr, problem: str) -> str:
    line = "unknown line" if node.origin is None else str(node.origin)
    return f"{node!r}, defined at {line}: {problem}"


def _ordered(targets: Sequence[Expr]) -> tuple[list[Expr], list[Expr]]:
    """Return all nodes, operands before users, and those from which an edge leads back to where the walk came from."""
    order: list[Expr] = []
    cycles: list[Expr] = []
    done: dict[int, bool] = {}  # False while the walk is below a node
    stack: list[tuple[Expr, bool]] = [(t, False) for t in reversed(targets)]
    while stack:
        node, is_ready = stack.pop()
        if is_ready:
            done[id(node)] = True
            order.append(node)
        elif id(node) not in done:
            done[id(node)] = False
            stack.append((node, True))
            for o in reversed(node.nodes()):
                if id(o) not in done:
                    stack.append((o, False))
                elif not done[id(o)]:
                    cycles.append(o)
    return order, cycles


def _problems(node: Expr) -> Iterator[str]:
    yield from _check_edges(node)
    yield from _check_type(node)
    if node.memo is not None:
        yield from _check_memo(node)
        return
    if node.pin is not None:
        yield from _check_sharding("pin", node.pin, node.shape)
    record = node.op.family.params
    if record is not None and type(node.params) is not record:
        yield f"has parameters {node.params}, which are no {record.__name__}"
        return
    yield from _FAMILIES[node.op.kind](node)


# ------------------------------------------------------------------------------------------------- every node


def _check_edges(node: Expr) -> Iterator[str]:
    for i, o in enumerate(node.operands):
        if type(o) is not Expr:
            if type(o) not in (bool, int, float, complex):
                yield f"operand {i} is a {type(o).__name__}, neither a node nor a Python scalar"
            continue
        if o.env != node.env and node.op.kind != "crossing":
            yield f"lives in {node.env}, but operand {i} in {o.env}"
        if o.seq >= node.seq:
            yield f"has number {node.seq}, but operand {i} was defined later and has {o.seq}"


def _check_type(node: Expr) -> Iterator[str]:
    if type(node.dtype) is tuple and len(node.shape) != len(node.dtype):
        yield f"has {len(node.dtype)} results, but shapes {node.shape}"
        return
    for shape, dtype in zip(node.shapes, node.dtypes, strict=True):
        if any(type(n) is not int or n < 0 for n in shape):
            yield f"has shape {shape}, whose extents must be non-negative integers"
        if not isinstance(dtype, np.dtype) or as_dtype(dtype) != dtype:
            yield f"has dtype {dtype!r}, which is none of distarray's"


def _check_memo(node: Expr) -> Iterator[str]:
    memo = node.memo
    assert memo is not None
    # What is made from nothing can be made again, and keeps what it is made of.
    if node.operands or (node.runtime is not None and node.op.kind != "create"):
        yield "has a result, but kept what was needed to compute it"
    if type(node.dtype) is tuple:
        if len(memo.blocks) != len(node.dtype):
            yield f"has {len(memo.blocks)} blocks for {len(node.dtype)} results"
        return
    sharding = memo.sharding
    problems = list(_check_sharding("result", sharding, node.shape))
    yield from problems
    n_blocks = 1 if memo.on_client and sharding.n_tiles == 1 else len(dealt(sharding).places) * sharding.n_addends
    if len(memo.blocks) != n_blocks:
        yield f"has {len(memo.blocks)} blocks, but {sharding!r} has {n_blocks}"
    if memo.on_client and n_blocks != 1:
        yield f"is on the client in {n_blocks} blocks, which only a whole array may be"
    if problems or len(memo.blocks) != n_blocks:
        return
    for tile, block in zip(sharding.tiles(), memo.blocks):
        shape = getattr(block, "shape", None)  # a future has none
        if shape is not None and tuple(shape) != sharding.shard_shape(node.shape, tile):
            yield f"has a block of shape {tuple(shape)} for tile {tile} of {sharding!r}"
        dtype = getattr(block, "dtype", node.dtype)
        if isinstance(dtype, np.dtype) and dtype != node.dtype:
            yield f"has a block of dtype {dtype} for tile {tile}"


def _check_sharding(role: str, sharding: Sharding, shape: _Shape) -> Iterator[str]:
    try:
        sharding.boundaries(shape)
    except ValueError as error:
        yield f"{role}: {error}"


# --------------------------------------------------------------------------------------------------- families


def _expect(role: str, value: Any, expected: Any) -> Iterator[str]:  # shapes, dtypes, numbers
    if value != expected:
        yield f"has {role} {value}, but its operands give {expected}"


def _arity(node: Expr, n: int) -> Iterator[str]:
    if len(node.operands) != n or not all(type(o) is Expr for o in node.operands):
        yield f"has operands {node.operands}, but takes {n} nodes"


def _check_source(node: Expr) -> Iterator[str]:
    yield "is a source without blocks"


def _check_create(node: Expr) -> Iterator[str]:
    yield from _arity(node, 0)


def _check_map(node: Expr) -> Iterator[str]:
    shapes = [o.shape for o in node.nodes()]
    if not shapes:
        yield "has no node among its operands, whose environment and shape it takes"
        return
    try:
        shape = broadcast_shapes(*shapes)
    except ValueError as error:
        yield str(error)
    else:
        yield from _expect("shape", node.shape, shape)
    try:
        dtype = infer_map(node.op, node.params, [o.dtype if type(o) is Expr else o for o in node.operands])
    except (TypeError, OverflowError) as error:
        yield f"operands of dtypes {[getattr(o, 'dtype', o) for o in node.operands]} have no loop: {error}"
    else:
        yield from _expect("dtype", node.dtype, dtype)


def _check_get(node: Expr) -> Iterator[str]:
    yield from _arity(node, 1)
    (x,) = node.nodes()
    yield from _check_lens(node.runtime, x.shape)
    yield from _expect("shape", node.shape, node.runtime.shape)
    yield from _expect("dtype", node.dtype, x.dtype)


def _check_lens(lens: Affine, source_shape: _Shape) -> Iterator[str]:
    if len(lens.terms) != len(source_shape):
        yield f"reads through {lens}, but the source has shape {source_shape}"
        return
    is_empty = 0 in lens.shape
    for i, ((axis, start, step), n) in enumerate(zip(lens.terms, source_shape)):
        if axis is None:
            low = high = start
        elif not 0 <= axis < len(lens.shape):
            yield f"term {i} of {lens} names view axis {axis}, which does not exist"
            continue
        elif step == 0:
            yield f"term {i} of {lens} has step 0 along a view axis"
            continue
        else:
            low, high = sorted((start, start + step * (lens.shape[axis] - 1)))
        # A view without elements reads none, wherever it begins.
        if not is_empty and (low < 0 or high >= n):
            yield f"term {i} of {lens} reads elements {low} to {high} of a source axis of extent {n}"


def _check_reshape(node: Expr) -> Iterator[str]:
    yield from _arity(node, 1)
    (x,) = node.nodes()
    if x.size != node.size:
        yield f"has {node.size} elements, but its operand of shape {x.shape} has {x.size}"
    yield from _expect("dtype", node.dtype, x.dtype)


def _check_put(node: Expr) -> Iterator[str]:
    base, value = node.operands
    if type(base) is not Expr:
        yield "writes to a scalar"
        return
    lens: Affine = node.runtime
    yield from _check_version(node, base)
    yield from _check_lens(lens, base.shape)
    if not lens.is_injective:
        yield f"writes elements several times through {lens}"
    if type(value) is Expr:
        yield from _check_value(value, lens.shape)


def _check_version(node: Expr, base: Expr) -> Iterator[str]:
    yield from _expect("shape", node.shape, base.shape)
    yield from _expect("dtype", node.dtype, base.dtype)


def _check_value(value: Expr, shape: _Shape) -> Iterator[str]:
    if not _broadcasts(value.shape, shape):
        yield f"writes a value of shape {value.shape}, which does not broadcast to {shape}"


def _broadcasts(shape: _Shape, to: _Shape) -> bool:
    return len(shape) <= len(to) and all(n in (1, m) for n, m in zip(shape[::-1], to[::-1]))


def _check_reduce(node: Expr) -> Iterator[str]:
    yield from _arity(node, 1)
    (x,) = node.nodes()
    axes, keepdims, _ = node.params
    if len(set(axes)) != len(axes) or not all(0 <= a < x.ndim for a in axes):
        yield f"reduces axes {axes} of an operand of rank {x.ndim}"
        return
    if not node.op.monoid:
        yield "reduces by no monoid"
    shape = tuple(1 if a in axes else n for a, n in enumerate(x.shape) if keepdims or a not in axes)
    yield from _expect("shape", node.shape, shape)


def _check_contract(node: Expr) -> Iterator[str]:
    inputs, result, join, *_ = node.params
    yield from _arity(node, 2 if join == PRODUCT else len(inputs))
    if len(inputs) != len(node.operands):
        yield f"has labels {inputs} for {len(node.operands)} operands"
        return
    extents: dict[int, int] = {}
    for i, (labels, x) in enumerate(zip(inputs, node.nodes(), strict=True)):
        if len(labels) != x.ndim or len(set(labels)) != len(labels):
            yield f"has labels {labels} for operand {i} of shape {x.shape}: one for each axis, all different"
            return
        for label, n in zip(labels, x.shape):
            if extents.setdefault(label, n) != n:
                yield f"has extents {extents[label]} and {n} for label {label}"
    terms = [set(labels) for labels in inputs]
    if len(set(result)) != len(result) or not set(result) <= set().union(*terms):
        yield f"has labels {result} for its result: all different, each of an operand"
        return
    if join == PRODUCT and not (terms[0] ^ terms[1]) <= set(result):
        yield f"sums label {min((terms[0] ^ terms[1]) - set(result))} of one operand alone"
    yield from _expect("shape", node.shape, tuple(extents[label] for label in result))


def _check_block(node: Expr) -> Iterator[str]:
    shapes = [o.shape for o in node.nodes()]
    if len(shapes) != len(node.operands):
        yield "has a scalar among its operands, which a kernel on blocks does not take"
    # An operation on any number of operands brings its rule along.
    text = node.op.rule or str(node.params[0])
    try:
        ShardingRule.parse(text).bind(shapes, node.shapes)
    except ValueError as error:
        yield str(error)


def _check_item(node: Expr) -> Iterator[str]:
    yield from _arity(node, 1)
    (x,) = node.nodes()
    i = node.params.number
    if type(x.dtype) is not tuple or type(i) is not int or not 0 <= i < len(x.dtypes):
        yield f"is result {i} of {x!r}, which has {len(x.dtypes)}"
        return
    yield from _expect("shape", node.shape, x.shapes[i])
    yield from _expect("dtype", node.dtype, x.dtypes[i])


def _check_take(node: Expr) -> Iterator[str]:
    yield from _arity(node, len(node.operands))
    x, *index = node.nodes()
    shape = yield from _taken(node, x, index)
    if shape is not None:
        yield from _expect("shape", node.shape, shape)
    yield from _expect("dtype", node.dtype, x.dtype)


def _check_take_put(node: Expr) -> Iterator[str]:
    yield from _arity(node, len(node.operands))
    base, value, *index = node.nodes()
    yield from _check_version(node, base)
    shape = yield from _taken(node, base, index)
    if shape is not None:
        yield from _check_value(value, shape)


def _taken(node: Expr, x: Expr, index: Sequence[Expr]) -> Any:  # a generator of texts that returns a shape or None
    """Return the shape of the elements of `x` at integer arrays."""
    axes, position, n_index, _ = node.params
    if len(index) != len(axes) or len(set(axes)) != len(axes) or not all(0 <= a < x.ndim for a in axes):
        yield f"has {len(index)} index arrays for axes {axes} of an operand of rank {x.ndim}"
        return None
    for i, o in enumerate(index):
        if o.dtype.kind not in "iu":
            yield f"has an index array {i} of dtype {o.dtype}"
    try:
        at = broadcast_shapes(*(o.shape for o in index))
    except ValueError as error:
        yield str(error)
        return None
    rest = [n for a, n in enumerate(x.shape) if a not in axes]
    if len(at) != n_index or not 0 <= position <= len(rest):
        yield f"has index arrays of rank {len(at)}, said to be {n_index}, at position {position} of {len(rest)}"
        return None
    return (*rest[:position], *at, *rest[position:])


def _check_tiles(node: Expr) -> Iterator[str]:
    tiling: Tiling = node.runtime
    shapes = node.shapes
    operands = [o.shape for o in node.nodes()]
    if len(operands) != len(tiling.operands) or len(shapes) != len(tiling.results):
        yield f"has {len(operands)} operands and {len(shapes)} results, but boundaries for {tiling}"
        return
    for shape, bounds in zip([*operands, *shapes], [*tiling.operands, *tiling.results], strict=True):
        if bounds is None:
            continue
        if list(bounds) != sorted(bounds) or bounds[0] != 0 or len(bounds) != tiling.n_tiles + 1:
            yield f"the boundaries {bounds} do not ascend from 0 in {tiling.n_tiles} steps"
        elif not shape or shape[0] != bounds[-1]:
            yield f"has an operand or result of shape {shape}, but the boundaries end at {bounds[-1]}"
    if node.pin is None and tiling.n_tiles != 1:
        yield f"{tiling.n_tiles} tiles lie nowhere: the node has no pin"
    elif node.pin is not None and node.pin.n_tiles != tiling.n_tiles:
        yield f"is pinned to {node.pin.n_tiles} tiles, but has boundaries for {tiling.n_tiles}"


def _check_windows(node: Expr) -> Iterator[str]:
    windows: Windows = node.runtime
    operands = node.nodes()
    if len(operands) != len(windows.operands) or any(
        x.ndim != len(reads) for x, reads in zip(operands, windows.operands)
    ):
        yield f"has {len(operands)} operands, but reads {windows.operands}"
        return
    for bounds in windows.bounds:
        if not bounds or bounds[0] != 0 or list(bounds) != sorted(bounds):
            yield f"the boundaries {bounds} do not ascend from 0"
            return
    yield from _expect("shape", node.shape, tuple([b[-1] for b in windows.bounds]))
    for x, reads in zip(operands, windows.operands):
        for n, read in zip(x.shape, reads):
            if read is None:
                continue
            if len(read[1]) != windows.grid[read[0]]:
                yield f"has {len(read[1])} ranges for the {windows.grid[read[0]]} tiles of axis {read[0]}"
            elif not all(0 <= start <= stop <= n for start, stop in read[1]):
                yield f"reads {read[1]} of an axis of {n} elements"
    if (node.pin is None) != (prod(windows.grid) == 1) or (node.pin is not None and node.pin.parts != windows.grid):
        yield f"has a grid of {windows.grid} tiles, but the pin {node.pin}"


def _check_crossing(node: Expr) -> Iterator[str]:
    sources = node.nodes()
    if len(node.operands) != 1 or not sources:
        yield f"has the operands {node.operands}, not the one node that is to be elsewhere"
        return
    (source,) = sources
    yield from _expect("shape", node.shape, source.shape)
    yield from _expect("dtype", node.dtype, source.dtype)


#: A family that is missing here cannot be checked, which `verify` reports.
_FAMILIES: dict[str, Callable[[Expr], Iterator[str]]] = {
    "source": _check_source,
    "create": _check_create,
    "map": _check_map,
    "reduce": _check_reduce,
    "get": _check_get,
    "reshape": _check_reshape,
    "put": _check_put,
    "tiles": _check_tiles,
    "windows": _check_windows,
    "fold": _check_block,
    "contract": _check_contract,
    "block": _check_block,
    "item": _check_item,
    "take": _check_take,
    "take_put": _check_take_put,
    "crossing": _check_crossing,
}
