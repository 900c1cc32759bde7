"""Rewrites: the same value from fewer nodes, decided once, when a node is defined.

`bind` makes a node and passes it through `simplify`; the rows of `RULES` say what becomes of it. A row looks at the new
node and its operands, so a definition stays at a few microseconds, and a chain is simple because each of its nodes was;
the reduction of a constant alone looks one node deeper, through a lens. What needs to know all readers of a node (a
slice pushed through elementwise operations, one pass for two reductions) is not known when it is defined, and belongs
to the planner.

Every row keeps numpy's result, dtype and errors included (payloads and signs of nan are never promised), bit for bit
but for two kinds of float sums. Those over a permuted array go along the memory of the source, as numpy's do, and so
add in another order. Those of equal elements are not added up: a sum is the number of elements times the value, in
double precision, and a mean is the value itself.

A row gives no more nodes and no more bytes (but for lenses, which are free), and computes nothing twice: it leaves out
steps, but never repeats one that somebody else may read. Structure never depends on Python scalars or slice offsets, so
that a loop has one plan: no row forwards ``a[i] = v`` to a later ``a[i]``, nor multiplies by one. (A reduction of a
constant becomes a value where that is in range, which few loops leave.)

None of the last paragraph holds for reads of arrays that no memory holds, which are no rows: `bind_get` hands them to
`pushdown`, which follows the operands as deep as they go, gives as many new nodes as it met, computes again what others
compute too, and forwards what was written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, TypeAlias

import numpy as np

from distarray.expr.affine import Affine, restored
from distarray.expr.expr import GET, RESHAPE, RESHARD, Expr
from distarray.expr.lens import is_unit_axes, kept_order, strided_dummy, unit_axes
from distarray.expr.op import Op, declare
from distarray.expr.params import Labels

#: What a new node becomes: another new one, an older one, or None where the row does not apply.
Rewrite: TypeAlias = Callable[[Expr], Expr | None]


@dataclass(frozen=True, slots=True)
class Rule:
    """A Rule is one row of the table of rewrites.

    Parameters
    ----------
    match
        Name of an operation, or a family of operations (`Op.kind`).
    algebra
        What it does, as an equation from left to right.
    rewrite
        Does it.
    """

    match: str
    algebra: str
    rewrite: Rewrite


def _pending(x: Expr) -> tuple[Any, Any] | None:
    """Return the first operand and the run-time parameter of a node that may be left out.

    None if it has its result, or is cut as the user asked: then it is where the elements lie, and stays. None also
    where another thread is computing it, and writes into what it reads.
    """
    found = None if x.pin is not None else x.unsettled()
    if found is None:
        return None
    operands, runtime = found
    first = operands[0] if operands else None
    if type(first) is Expr and first.memo is not None and first.memo.is_given_up:
        return None
    return first, runtime


def _view(x: Expr) -> tuple[Any, Affine] | None:
    """Return what a node reads, and its lens, if it is a view; what a handle owns is no view, and kept as it lies."""
    return None if x.op is not GET or x.is_live else _pending(x)


def _get(node: Expr, x: Expr, lens: Affine) -> Expr:
    return Expr(GET, (x,), lens.shape, node.dtype, node.env, (), lens, node.pin, node.origin, node.errstate)


def _reshape(node: Expr, x: Expr) -> Expr:
    return Expr(RESHAPE, (x,), node.shape, node.dtype, node.env, (), None, node.pin, node.origin, node.errstate)


#: runtime: the fill value, a numpy scalar of the dtype. ``zeros`` and ``ones`` are this too.
FULL = declare("full", "create", repeatable=True)
#: One element of a ``full``, or what its elements come to: what numpy has a scalar for, and no array.
CONSTANT = declare("constant", "create", repeatable=True)
_FILLED = (FULL, CONSTANT)


def _full(node: Expr, x: Expr, value: Any) -> Expr:  # a numpy scalar
    """Return `x`, of equal elements, of the shape of `node`."""
    op = FULL if node.shape else CONSTANT
    return Expr(op, (), node.shape, node.dtype, node.env, x.params, value, node.pin, node.origin, node.errstate)


# ------------------------------------------------------------------------------------------------------- movement
# Operands of these families are nodes: `bind` sees to it.


def _get_of_get(node: Expr) -> Expr | None:
    x: Any = node.operands[0]
    if x.op is not GET or (found := _pending(x)) is None:
        return None
    source, lens = found
    if not lens.is_in_order and x.is_live:
        return None  # a copy in another order of memory, which decides that of what is made of it
    return _get(node, source, lens.compose(node.runtime))


def _get_whole(node: Expr) -> Expr | None:
    x: Any = node.operands[0]
    return x if node.shape == x.shape and node.runtime.is_identity(x.shape) else None


def _get_of_reshape(node: Expr) -> Expr | None:
    x: Any = node.operands[0]
    if x.op is not RESHAPE or not is_unit_axes(node.runtime, x.shape) or (found := _pending(x)) is None:
        return None
    return _reshape(node, found[0])


def _get_of_full(node: Expr) -> Expr | None:
    x: Any = node.operands[0]
    if x.op not in _FILLED or not _has_whole_axes(node.runtime, x.shape) or (found := _pending(x)) is None:
        return None
    return _full(node, x, found[1]) if node.runtime.is_in_order else None


def _has_whole_axes(lens: Affine, source_shape: tuple[int, ...]) -> bool:
    """Return whether each axis of the view is all of an axis of the source, or has one element.

    The extents of a constant are part of a plan's key, those of a slice are not: ``zeros(n)[k:]`` stays a slice, so
    that a loop over k has one plan. Broadcast axes stay a lens too: less is filled.
    """
    extents = [1] * len(lens.shape)
    for (axis, _, _), n in zip(lens.terms, source_shape):
        if axis is not None:
            extents[axis] = n
    return lens.shape == tuple(extents)


def _reshape_to_same(node: Expr) -> Expr | None:
    x: Any = node.operands[0]
    return x if node.shape == x.shape else None


def _reshape_of_reshape(node: Expr) -> Expr | None:
    x: Any = node.operands[0]
    if x.op is not RESHAPE or (found := _pending(x)) is None:
        return None
    return _reshape(node, found[0])


def _reshape_of_unit_axes(node: Expr) -> Expr | None:
    x: Any = node.operands[0]
    if x.op is not GET or (found := _pending(x)) is None:
        return None
    source, lens = found
    return _reshape(node, source) if is_unit_axes(lens, source.shape) else None


def _reshape_of_full(node: Expr) -> Expr | None:
    x: Any = node.operands[0]
    if x.op not in _FILLED or (found := _pending(x)) is None:
        return None
    return _full(node, x, found[1])


def _reshape_to_unit_axes(node: Expr) -> Expr | None:
    x: Any = node.operands[0]
    if 1 not in x.shape and 1 not in node.shape:
        return None
    lens = unit_axes(x.shape, node.shape)
    return None if lens is None else _get(node, x, lens)


def _put_whole(node: Expr) -> Expr | None:
    base: Any
    value: Any
    base, value = node.operands
    if (
        not base.op.family.is_created
        or type(value) is not Expr
        or value.shape != node.shape
        or value.dtype != node.dtype
        or not node.runtime.is_identity(node.shape)
        # A base that lies somewhere keeps its cut whatever is written to it.
        or _pending(base) is None
    ):
        return None
    return value


# ---------------------------------------------------------------------------------------------------- elementwise
# Dtypes are compared because numpy promotes some on the way: ``conj`` of booleans gives i8. A cast to the same dtype is
# no row: that is how an array is given another cut.


def _identity_on(kinds: str) -> Rewrite:
    """Return the rewrite f(x) -> x for these kinds of dtypes; what a function gives without axes is a number, as `x`
    may not be.
    """

    def rewrite(node: Expr) -> Expr | None:
        x: Any = node.operands[0]
        dtype = x.dtype
        return x if node.shape and dtype.kind in kinds and dtype == node.dtype and not node.params else None

    return rewrite


def _self_inverse(node: Expr) -> Expr | None:
    x: Any = node.operands[0]
    if x.op is not node.op or not node.shape or (found := _pending(x)) is None:
        return None
    source = found[0]
    # logical_not(logical_not(3)) is True
    return source if source.dtype == node.dtype else None


def _idempotent(node: Expr) -> Expr | None:
    x: Any = node.operands[0]
    return x if x.op is node.op and x.dtype == node.dtype else None


def _cast_and_back(node: Expr) -> Expr | None:
    x: Any = node.operands[0]
    if x.op is not node.op or x.dtype == node.dtype or (found := _pending(x)) is None:
        return None
    source = found[0]
    return source if source.dtype == node.dtype and _holds(x.dtype, source.dtype) else None


@lru_cache(maxsize=1024)
def _holds(wide: np.dtype[Any], narrow: np.dtype[Any]) -> bool:
    """Return whether every number of `narrow` is one of `wide`."""
    if narrow.kind in "mM" or wide.kind in "mM" or not np.can_cast(narrow, wide, "safe"):
        return False
    if narrow.kind in "iu" and wide.kind in "fc":
        # numpy's safe casts count i64 -> f64 among them
        return bool(8 * narrow.itemsize <= np.finfo(wide).nmant + 1)
    return True


def _as_numpys(x: Expr) -> np.ndarray[Any, Any]:
    """Return an array, whose elements must not be read, with the strides of numpy's."""
    lenses: list[Affine] = []
    while x.op is GET and not x.is_live and (found := x.unsettled()) is not None:
        (source,), lens = found
        assert type(source) is Expr
        x = source
        lenses.append(lens)
    return strided_dummy(x.shape, tuple(reversed(lenses)))


def _map_permuted(node: Expr) -> Expr | None:
    if len(node.shape) < 2 or node.pin is not None or node.op is RESHARD:
        return None
    for o in node.operands:
        if type(o) is Expr and o.op is GET and (lens := o.runtime) is not None and not lens.is_in_order:
            break
    else:  # as in most
        return None
    order = kept_order([_as_numpys(o) for o in node.operands if type(o) is Expr])
    if order is None:
        return None
    views = [(_view(o) or (o, Affine.identity(o.shape))) if type(o) is Expr else None for o in node.operands]
    ndim = len(order)

    def permuted(x: Expr, lens: Affine) -> Expr:
        for _ in range(ndim - len(lens.shape)):
            lens = lens.expanded(0)
        lens = lens.permuted(order)
        return simplify(Expr(GET, (x,), lens.shape, x.dtype, x.env, (), lens, None, node.origin))

    operands = [o if view is None else permuted(*view) for o, view in zip(node.operands, views, strict=True)]
    shape = tuple([node.shape[a] for a in order])
    facts = (node.env, node.params, node.runtime, None, node.origin, node.errstate)
    made = simplify(Expr(node.op, tuple(operands), shape, node.dtype, *facts))
    return _get(node, made, restored(shape, order))


# -------------------------------------------------------------------------------- reductions and contractions


def _reduce_full(node: Expr) -> Expr | None:
    x: Any = node.operands[0]
    if x.memo is not None:
        return None
    if x.op is GET:  # all that a lens shows of it is alike
        x = found[0] if (found := _pending(x)) is not None else x
    if x is None or x.op not in _FILLED or (found := _pending(x)) is None:
        return None
    of: Any = node.operands[0]
    axes: tuple[int, ...] = node.params.axes
    n = prod([of.shape[a] for a in axes])
    repeated = _REPEATED.get(node.op.name)
    value = None if repeated is None or not n else repeated(found[1], n, node.dtype)
    return None if value is None else _full(node, x, value)


def _sum_of_equal(value: Any, n: int, dtype: np.dtype[Any]) -> Any:
    """Return the sum of `n` equal numbers, None where it leaves the range of floats: then numpy warns."""
    if dtype.kind in "iu":
        return _wrapped(int(value) * n, dtype) if value.dtype.kind in "biu" else None
    if dtype.kind not in "fc" or not np.can_cast(value.dtype, dtype, "same_kind"):
        return None
    if not np.isfinite(value):
        return dtype.type(value) if dtype.kind == "f" else None
    with np.errstate(all="ignore"):
        total = dtype.type((np.complex128 if dtype.kind == "c" else np.float64)(value) * n)
    return total if np.isfinite(total) else None


def _product_of_equal(value: Any, n: int, dtype: np.dtype[Any]) -> Any:
    """Return the product of `n` equal integers."""
    if dtype.kind not in "iu" or value.dtype.kind not in "biu":
        return None
    return _wrapped(pow(int(value), n, 1 << 8 * dtype.itemsize), dtype)


def _wrapped(value: int, dtype: np.dtype[Any]) -> Any:
    """Return an integer as the sums and products of numpy have it: modulo the range of the dtype."""
    n_bits = 8 * dtype.itemsize
    value %= 1 << n_bits
    return dtype.type(value - (1 << n_bits) if dtype.kind == "i" and value >> (n_bits - 1) else value)


def _mean_of_equal(value: Any, n: int, dtype: np.dtype[Any]) -> Any:
    return None if _sum_of_equal(value, n, dtype) is None else dtype.type(value)


#: Reductions of equal elements: what (value, number of them, dtype of the result) give; None: they are added up.
_REPEATED: dict[str, Callable[[Any, int, np.dtype[Any]], Any]] = {
    "all": lambda value, n, dtype: dtype.type(bool(value)),
    "any": lambda value, n, dtype: dtype.type(bool(value)),
    "count_nonzero": lambda value, n, dtype: dtype.type(n if value else 0),
    "max": lambda value, n, dtype: value if value.dtype == dtype else None,
    "mean": _mean_of_equal,
    "min": lambda value, n, dtype: value if value.dtype == dtype else None,
    "prod": _product_of_equal,
    "sum": _sum_of_equal,
}


def _reduce_permuted(node: Expr) -> Expr | None:
    x: Any = node.operands[0]
    if (found := _view(x)) is None:
        return None
    axes, keepdims, _ = node.params
    if len(axes) > 1 and node.op.monoid in ("argmax", "argmin"):
        return None  # the index counts the axes in their order
    source, lens = found
    permuted = lens.permutation(source.shape)
    if permuted is None:
        return None
    kept = [a for a in permuted if keepdims or a not in axes]
    if kept != sorted(kept):
        return None
    # A sum goes along the memory of the source, as numpy's does.
    own = tuple([i for i, a in enumerate(permuted) if a in axes])
    params = node.params._replace(axes=own)
    return Expr(
        node.op, (source,), node.shape, node.dtype, node.env, params, None, node.pin, node.origin, node.errstate
    )


def _contract_permuted(node: Expr) -> Expr | None:
    result: Labels = node.params.result
    operands = list(node.operands)
    labels: list[Labels] = list(node.params.operands)
    for i, x in enumerate(node.operands):
        if type(x) is not Expr or (found := _view(x)) is None:
            continue
        source, lens = found
        axes = lens.permutation(source.shape)
        if axes is None:
            continue
        trial = [*labels[:i], tuple([labels[i][a] for a in axes]), *labels[i + 1 :]]
        # The kernel runs over loops in the order of the labels. Another order would be another order of summation.
        if _runs(trial, result) == _runs(labels, result):
            operands[i], labels = source, trial
    if labels == list(node.params.operands):
        return None
    params = node.params._replace(operands=tuple(labels))
    # The late parameters stay: the join may be a function of the user's.
    facts = (node.env, params, node.runtime, node.pin, node.origin, node.errstate)
    return Expr(node.op, tuple(operands), node.shape, node.dtype, *facts)


def _runs(labels: list[tuple[int, ...]], result: tuple[int, ...]) -> list[list[int]]:
    """Return the order of the loops of a product of two operands: batch, summed, rows and columns; else of the
    aggregated ones.
    """
    if len(labels) != 2:
        return [list(dict.fromkeys([k for own in labels for k in own if k not in result]))]
    left, right = labels
    return [
        [k for k in left if k in right and k in result],
        [k for k in left if k in right and k not in result],
        [k for k in left if k not in right],
        [k for k in right if k not in left],
    ]


# ---------------------------------------------------------------------------------------------------------- table

#: Kinds of dtypes for which an operation returns its operand.
_IDENTITIES = {
    "positive": "iufc",
    "conj": "biuf",
    "real": "biuf",
    "abs": "bu",
    "ceil": "biu",
    "floor": "biu",
    "round": "iu",
    "trunc": "biu",
}
#: Exact: signs are bits, and integers wrap. Division is not.
_SELF_INVERSE = ("bitwise_invert", "conj", "logical_not", "negative")
_IDEMPOTENT = ("abs", "ceil", "fabs", "floor", "rint", "trunc")

#: Rows of one operation are tried in this order.
RULES: tuple[Rule, ...] = (
    Rule("get", "get(get(x, p), q) -> get(x, p . q)", _get_of_get),
    Rule("get", "get(x, identity) -> x", _get_whole),
    Rule("get", "get(reshape(x, s), unit axes) -> reshape(x, s with these axes)", _get_of_reshape),
    Rule("get", "get(full(v), whole axes in order) -> full(v)", _get_of_full),
    Rule("reshape", "reshape(x, shape of x) -> x", _reshape_to_same),
    Rule("reshape", "reshape(reshape(x, s), t) -> reshape(x, t)", _reshape_of_reshape),
    Rule("reshape", "reshape(get(x, unit axes), t) -> reshape(x, t)", _reshape_of_unit_axes),
    Rule("reshape", "reshape(full(v), t) -> full(v)", _reshape_of_full),
    # A reshape is a stage of its own, a lens is free. Last: the rows above undo such lenses.
    Rule("reshape", "reshape(x, t) -> get(x, unit axes), if only such axes differ", _reshape_to_unit_axes),
    Rule("put", "put(create, identity, x) -> x", _put_whole),
    *[Rule(name, f"{name}(x) -> x, for kinds {kinds}", _identity_on(kinds)) for name, kinds in _IDENTITIES.items()],
    *[Rule(name, f"{name}({name}(x)) -> x", _self_inverse) for name in _SELF_INVERSE],
    *[Rule(name, f"{name}({name}(x)) -> {name}(x)", _idempotent) for name in _IDEMPOTENT],
    Rule("astype", "astype(astype(x, wider), dtype of x) -> x", _cast_and_back),
    # What is made of transposed arrays is transposed, as numpy has it in memory, and nothing goes across memory.
    Rule("map", "map(permute(x, p), y) -> permute(map(x, permute(y, p^-1)), p), where numpy has that", _map_permuted),
    Rule("reduce", "reduce(full(v), axes) -> full(v of as many)", _reduce_full),
    Rule("reduce", "reduce(permute(x, p), axes) -> reduce(x, axes . p), the others in order", _reduce_permuted),
    Rule("contract", "contract(permute(x, p), y; labels) -> contract(x, y; labels . p)", _contract_permuted),
)

#: Rewrites by operation; filled as operations occur, since the catalogue is declared above this layer.
_rewrites: dict[Op, tuple[Rewrite, ...]] = {}


def simplify(node: Expr) -> Expr:
    """Return what a new node becomes by the table: itself, another new node, or one of those it would have read.

    Parameters
    ----------
    node
        New: no handle and no other node refers to it.

    Returns
    -------
    Expr
        Of the same value, shape, dtype and environment. ``simplify`` of it is itself.
    """
    while True:
        # Most operations have no row: this look-up is all that they pay.
        rewrites = _rewrites.get(node.op)
        if rewrites is None:
            names = (node.op.name, node.op.kind)
            rewrites = _rewrites[node.op] = tuple([rule.rewrite for rule in RULES if rule.match in names])
        for rewrite in rewrites:
            found = rewrite(node)
            if found is not None:
                break
        else:
            return node
        if found.memo is not None:
            return found
        node = found
