"""Calls that were made ready: an operation on NumPy blocks of known shapes and dtypes, looked up and checked once.

What they compute is what `interpret` computes of the same nodes, to the bit; they are called over and over, by
`distarray.array.at_call`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, TypeAlias

import numpy as np

from distarray.expr.bind import accumulator_dtype
from distarray.expr.expr import Expr, postorder
from distarray.expr.joins import PRODUCT
from distarray.expr.lens import is_in_order, kept_order
from distarray.kernels import interpret, products
from distarray.kernels.buffers import POOL, SMALLEST
from distarray.kernels.elementwise import Elementwise, elementwise
from distarray.kernels.monoids import MONOIDS, finish_reduction
from distarray.kernels.threads import Helpers, run_along
from distarray.types import DType, HostArray, Shape

#: Elements of a part of a function that takes longer than a pass over memory: another thread comes some ten
#: microseconds later, some hundreds where it has slept.
PART_ELEMENTS = 1 << 17
#: From blocks, and scalars in their places, to a block; of no axes it may be a scalar of numpy's.
Call: TypeAlias = Callable[..., Any]


def mapped(
    name: str,
    params: tuple[Any, ...],
    dtypes: tuple[DType | None, ...],
    shape: Shape,
    dtype: DType,
    helpers: Callable[[], Helpers | None],
) -> tuple[Call, bool]:
    """Return an elementwise operation, and whether it takes ``out=``, which may be an operand.

    Parameters
    ----------
    dtypes
        Of the operands; of scalars None.
    helpers
        Returns who helps the thread that calls it.
    """
    function = elementwise(name, params, dtype, dtypes)
    call = function.call
    if not function.is_exact:
        n_parts = prod(shape) // PART_ELEMENTS

        def called(shape: Shape, *args: Any) -> HostArray:
            return _called_in_parts(function, args, shape, dtype, n_parts, helpers() if n_parts > 1 else None)

        return _in_order(called, shape), False
    nbytes = prod(shape) * dtype.itemsize
    if not shape or nbytes < SMALLEST:
        return call, False
    new, lease = np.ndarray, POOL.lease
    made = _in_order(lambda shape, *args: call(*args, out=new(shape, dtype, lease(nbytes))), shape)

    def computed(*args: Any, out: HostArray | None = None) -> Any:
        return made(*args) if out is None else call(*args, out=out)

    return computed, function.has_inplace


def _called_in_parts(
    function: Elementwise, args: Sequence[Any], shape: Shape, dtype: DType, n_parts: int, helpers: Helpers | None
) -> HostArray:
    """Return an elementwise function of blocks and scalars, computed in parts along the first axis, each of which may
    be another thread's.
    """
    if helpers is None or (n := min(helpers.n_threads, n_parts, rows := shape[0])) < 2:
        return interpret.called(function, args, shape, dtype)
    out = POOL.take(shape, dtype)
    cut = [type(a) is np.ndarray and a.ndim == len(shape) and len(a) == rows for a in args]

    def part(begin: int, end: int) -> None:
        own = [a[begin:end] if is_cut else a for a, is_cut in zip(args, cut)]
        interpret.called(function, own, (end - begin, *shape[1:]), dtype, out[begin:end])

    run_along(rows, n, part, helpers)
    return out


def _in_order(call: Call, shape: Shape) -> Call:
    """Return an elementwise call whose result lies as numpy lays it: where the operands lie in another order than C,
    all have their axes in that order.

    Parameters
    ----------
    call
        Makes a result in C order: of its shape, and then the operands.
    shape
        Of the result.
    """

    def ordered(*args: Any) -> Any:
        order = _order_of(args)
        if order is None:
            return call(shape, *args)
        n = len(order)
        given = [a[(None,) * (n - a.ndim)].transpose(order) if type(a) is np.ndarray else a for a in args]
        return call(tuple([shape[a] for a in order]), *given).transpose([order.index(a) for a in range(n)])

    return ordered


def _order_of(args: Sequence[Any]) -> tuple[int, ...] | None:
    """Return the order of axes, if it is not that of C, in which numpy lays what it makes of blocks and scalars."""
    for a in args:
        if type(a) is np.ndarray and not a.flags.c_contiguous and not is_in_order(a.strides):
            return kept_order([a for a in args if type(a) is np.ndarray])
    return None


def program(nodes: Sequence[Expr], leaves: Sequence[Expr]) -> Call:
    """Return what computes a node from the blocks of the nodes that stand for operands; of several nodes the values of
    all. Nodes that are computed are constants: each has one block in this process.
    """
    node, family = nodes[0], nodes[0].op.family
    is_one = len(nodes) == 1
    if is_one and list(node.operands) == list(leaves) and (node.op.kind == "reduce" or family.is_contraction):
        known = _contraction(node) if family.is_contraction else _reduction(node)
        if known is not None:
            return known
    order = postorder(nodes)
    constants = {id(node): _read_only(node.memo.blocks[0]) for node in order if node.memo is not None}
    steps = [step for step in order if step.memo is None and all(step is not leaf for leaf in leaves)]
    given, ends = [id(leaf) for leaf in leaves], [id(node) for node in nodes]
    readers = interpret.Readers.of(steps, [*given, *constants, *ends])
    plan = []
    for step in steps:
        value = interpret.made_ready(step, readers.copy())
        plan.append((id(step), value, readers.ended(step)))
        family = step.op.family
        if family.is_new or family.is_write or family.is_created or family.is_contraction:
            readers.fresh.add(id(step))

    def run(*blocks: Any) -> Any:
        values = dict(zip(given, blocks, strict=True))
        if constants:
            values |= constants
        for i, value, ended in plan:
            values[i] = value(values)
            for over in ended:
                del values[over]
        return values[ends[0]] if is_one else [values[end] for end in ends]

    return run


def _read_only(block: HostArray) -> HostArray:
    """Return a block as nobody takes it over: what is given out is another one."""
    view = block.view()
    view.flags.writeable = False
    return view


def _reduction(node: Expr) -> Call:
    (operand,) = node.nodes()
    axes, shape, dtype, extra = node.params.axes, node.shape, node.dtype, node.params.extra
    accumulator, name, which = accumulator_dtype(node), node.op.name, node.op.monoid
    reduced, n = interpret.reduced, prod([operand.shape[a] for a in axes])
    monoid = MONOIDS[which]
    is_number = not shape and accumulator == dtype == monoid.state(dtype)
    if is_number and which != "moments" and n and operand.nbytes <= interpret.IN_SLICES:
        number = monoid.number
        if name != "mean":
            return lambda block: number(np.ascontiguousarray(block), dtype)
        if dtype.kind == "f":
            return lambda block: number(np.ascontiguousarray(block), dtype) / n

    def reduce(block: Any) -> Any:
        made = reduced(which, block, axes, accumulator)
        if name == "mean" or type(made) is not np.ndarray or made.dtype != dtype:
            made = finish_reduction(name, which, made, n, len(shape), dtype, extra)
        return made.reshape(shape)

    return reduce


def _contraction(node: Expr) -> Call | None:
    labels, result, join, monoid = node.params[:4]
    if len(labels) != 2:
        return None
    x, y = node.nodes()
    if join != PRODUCT or not x.dtype == y.dtype == node.dtype == MONOIDS[monoid].state(node.dtype):
        return None
    product = products.matrix_product(labels, result, x.shape, y.shape)
    (left, rows), (right, columns) = product.operands
    if product.inner:
        return lambda a, b: products.contract(np, labels, result, a, b, dtype=node.dtype)
    function, made, order = np.matmul if product.is_summed else np.multiply, product.shape, product.order
    is_left_ready, is_right_ready = left is None and x.shape == rows, right is None and y.shape == columns
    if (
        function is np.matmul
        and left is right is order is None
        and x.ndim in (1, 2)
        and y.ndim in (1, 2)
        and (rows, columns) == ((1, *x.shape)[-2:], (*y.shape, 1)[:2])
        and made == (*x.shape[:-1], *y.shape[1:])
    ):
        return np.matmul  # which takes vectors as they are

    def contract(a: Any, b: Any) -> Any:
        if not is_left_ready:
            a = (a if left is None else a.transpose(left)).reshape(rows)
        if not is_right_ready:
            b = (b if right is None else b.transpose(right)).reshape(columns)
        joined = function(a, b)
        if joined.shape != made:
            joined = joined.reshape(made)
        return joined if order is None else joined.transpose(order)

    return contract
