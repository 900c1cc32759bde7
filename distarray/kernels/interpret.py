"""Small stays small: pending nodes whose arrays are one small block each are plain calls, one after the other.

No plan, no task, no pool. Nodes run in program order, so that a write may change its base in place wherever nobody
reads the old version any more, exactly as numpy would. It is also what expressions mean: tests compare plans with it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from distarray.expr.bind import accumulator_dtype
from distarray.expr.expr import Expr, late_params
from distarray.kernels import tables
from distarray.kernels.buffers import POOL
from distarray.kernels.contractions import contract
from distarray.kernels.devices import backend_for
from distarray.kernels.elementwise import elementwise
from distarray.kernels.folds import FOLD
from distarray.kernels.loans import is_ours
from distarray.kernels.monoids import MONOIDS, finish_reduction
from distarray.kernels.reporting import report

__all__ = ["interpret"]

#: Bytes from which a result's block is recycled.
RECYCLED = 1 << 16

Array = np.ndarray[Any, np.dtype[Any]]


def interpret(order: Sequence[Expr], wanted: Collection[int], donated: Collection[int] = ()) -> dict[int, Any]:
    """Evaluate nodes on NumPy blocks in this process.

    Parameters
    ----------
    order
        All nodes needed, operands before users; memoised ones have one block here.
    wanted
        ``id`` of the nodes whose values are returned.
    donated
        ``id`` of memoised nodes whose block may be overwritten, since nobody needs it afterwards.

    Returns
    -------
    dict
        By ``id``: an array that nothing else refers to.
    """
    steps, uses, root = _uses(order, wanted)
    values: dict[int, Any] = {}
    fresh: set[int] = set(donated)
    for node in order:
        if node.memo is not None:
            values[id(node)] = node.memo.blocks[0]
    events: list[tuple[str, Expr]] = []
    now: list[Expr] = []

    def note(kind: str, _flag: int) -> None:
        events.append((kind, now[0]))

    backend = backend_for("cpu", 0)
    with np.errstate(call=note, divide="call", over="call", invalid="call", under="ignore"):
        for node in steps:
            now[:] = (node,)
            kind = node.op.kind
            try:
                if node.errstate is not None:
                    modes = ["call" if m not in ("ignore", "raise") else m for m in node.errstate]
                    divide, over, under, invalid = modes
                    with np.errstate(divide=divide, over=over, under=under, invalid=invalid):  # type: ignore[arg-type]  # literals
                        value = _step(node, kind, values, uses, root, fresh, backend)
                else:
                    value = _step(node, kind, values, uses, root, fresh, backend)
            except Exception as error:
                if node.origin is not None:
                    error.add_note(f"{node.op.name}, called at {node.origin}")
                raise
            values[id(node)] = value
            if not node.op.family.is_view:
                fresh.add(id(node))
            for o in node.operands:
                if type(o) is Expr:
                    i = id(o)
                    r = root.get(i, i)
                    if r != i:
                        uses[i] -= 1
                        if not uses[i]:
                            del values[i]
                    uses[r] -= 1
                    if not uses[r] and r in values and r != id(node):
                        del values[r]
    if events:
        report(
            [(kind, node.op.name) for kind, node in events],
            [(node.op.name, node.origin) for _, node in events if node.origin is not None],
        )
    return {id(node): _owned(node, values[id(node)], fresh, root) for node in order if id(node) in wanted}


def _uses(order: Sequence[Expr], wanted: Collection[int]) -> tuple[list[Expr], dict[int, int], dict[int, int]]:
    """Return what is to be done, in program order; how often each value is read or returned; and what each view is one
    of.

    A view's uses are uses of what it is a view of, too.
    """
    uses: dict[int, int] = {}
    root: dict[int, int] = {}
    steps = []
    for node in order:
        if node.memo is None:
            steps.append(node)
            for o in node.operands:
                if type(o) is Expr:
                    uses[id(o)] = uses.get(id(o), 0) + 1
    for number in wanted:
        uses[number] = uses.get(number, 0) + 1
    for node in order:
        if node.memo is None and node.op.family.is_view:
            first = node.operands[0]
            r = root[id(node)] = root.get(id(first), id(first))
            uses[r] = uses.get(r, 0) + uses.get(id(node), 0)
    steps.sort(key=_program_order)
    return steps, uses, root


def _owned(node: Expr, value: Any, fresh: Collection[int], root: Mapping[int, int]) -> Any:
    """Return a value that is returned: C-contiguous, writeable, and nothing else refers to it."""
    i = id(node)
    is_ours = i not in root and (i in fresh or node.memo is not None)
    if type(node.dtype) is tuple or (
        is_ours and type(value) is np.ndarray and value.flags.c_contiguous and value.flags.writeable
    ):
        return value
    return np.array(value, order="C")


def _program_order(node: Expr) -> int:
    return node.seq


def _step(
    node: Expr,
    kind: str,
    values: dict[int, Any],
    uses: dict[int, int],
    root: dict[int, int],
    fresh: set[int],
    backend: Any,
) -> Any:
    if kind == "map":
        return _map(node, values, uses, root, fresh)
    if kind == "get":
        return node.runtime.read(values[id(node.operands[0])])
    if kind == "put":
        return _put(node, values, uses, root, fresh)
    if kind == "reduce":
        return _reduce(node, values[id(node.operands[0])])
    if kind == "create":
        box = tuple([(0, n) for n in node.shape])
        return tables.CREATE[node.op.name](backend, box, node.shape, node.dtype, node.params, node.runtime)
    blocks = [values[id(o)] for o in node.operands if type(o) is Expr]
    if kind == "reshape":
        return np.reshape(blocks[0], node.shape)
    if kind == "contract":
        partial = contract(backend, blocks, (*node.params, *late_params(node)), node.dtype)
        return finish_reduction(node.op.name, node.params.monoid, partial, 1, node.dtype, ())
    if kind == "item":
        return blocks[0][node.params.number]
    if kind == "take":
        return tables.take(np, blocks[0], blocks[1:], node.params)
    if kind == "take_put":
        base, value, *index = blocks
        new = base if _may_overwrite(node, values, uses, root, fresh) else base.copy()
        tables.put_whole(np, new, value, index, node.params)
        return new
    if kind == "fold":
        fold, params = FOLD[node.op.name], (*node.params, *late_params(node))
        return fold.finish(np, fold.partial(np, *blocks, params=params), node.shape, node.dtype, params)
    if kind == "windows":
        boxes = [node.runtime.box(i, (0,) * node.ndim, b.shape) for i, b in enumerate(blocks)]
        blocks = [b[tuple([slice(r.start, r.stop) for r in box])] for b, box in zip(blocks, boxes, strict=True)]
        return tables.BLOCK[node.op.name](np, *blocks, params=(*node.params, *late_params(node), (0,) * node.ndim))
    params = (*node.params, *late_params(node)) if kind == "block" else (*node.params, (0,) * blocks[0].ndim)
    return tables.BLOCK[node.op.name](np, *blocks, params=params)


def _map(node: Expr, values: dict[int, Any], uses: dict[int, int], root: dict[int, int], fresh: set[int]) -> Array:
    args: list[Any] = []
    dtypes: list[Any] = []
    for o in node.operands:
        if type(o) is Expr:
            value = values[id(o)]
            args.append(value)
            dtypes.append(value.dtype)
        else:
            args.append(o)
            dtypes.append(None)
    function = elementwise(node.op.name, node.params, node.dtype, tuple(dtypes))
    shape = node.shape
    if not function.is_exact:
        for i, a in enumerate(args):
            if dtypes[i] is not None and a.ndim and not (a.flags.c_contiguous and a.shape == shape):
                args[i] = np.array(np.broadcast_to(a, shape), order="C")
    n = node.dtype.itemsize
    for extent in shape:
        n *= extent
    if n < RECYCLED or not shape:
        value = function.call(*args)
        return value if type(value) is np.ndarray else np.asarray(value)
    # Fresh pages cost more than the arithmetic: the block of an operand that ends here is taken over, as numpy does it
    # with temporaries; else one from the pool.
    if function.has_inplace:
        for o in node.operands:
            if type(o) is Expr and o.shape == shape and o.dtype == node.dtype:
                i = id(o)
                if uses[i] == 1 and i in fresh and i not in root:
                    array = values[i]
                    if array.flags.c_contiguous and is_ours(array):
                        return function.call(*args, out=array)  # type: ignore[no-any-return]
    return function.call(*args, out=POOL.take(shape, node.dtype))  # type: ignore[no-any-return]


def _may_overwrite(
    node: Expr, values: dict[int, Any], uses: dict[int, int], root: dict[int, int], fresh: set[int]
) -> bool:
    """Return whether nobody but `node` still reads the buffer of its base, and it is ours."""
    base = id(node.operands[0])
    r = root.get(base, base)
    if r != base or r not in fresh:
        return False
    own = sum(1 for o in node.operands if type(o) is Expr and root.get(id(o), id(o)) == r)
    array = values[base]
    # a kernel may have returned a view of something else
    return uses[r] == own and is_ours(array)


def _put(node: Expr, values: dict[int, Any], uses: dict[int, int], root: dict[int, int], fresh: set[int]) -> Array:
    base: Array = values[id(node.operands[0])]
    value = node.operands[1]
    new = base if _may_overwrite(node, values, uses, root, fresh) else np.array(base, order="C")
    node.runtime.write(new, values[id(value)] if type(value) is Expr else value)
    return new


def _reduce(node: Expr, block: Array) -> Array:
    axes: tuple[int, ...] = node.params.axes
    accumulator = accumulator_dtype(node)
    monoid = MONOIDS[node.op.monoid]
    if 0 in block.shape:
        kept = tuple(1 if a in axes else n for a, n in enumerate(block.shape))
        partial = monoid.identity(kept, accumulator)
        if partial is None:
            return np.empty(node.shape, node.dtype)
    else:
        if not block.flags.c_contiguous:
            block = np.ascontiguousarray(block)
        partial = monoid.partial(block, axes, accumulator)
    n = prod(block.shape[a] for a in axes)
    made = finish_reduction(node.op.name, node.op.monoid, partial, n, node.dtype, node.params.extra)
    return np.reshape(made, node.shape)
