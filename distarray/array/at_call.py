"""Operations at the call: on small arrays that are here, what a function does to them was made ready before.

To unbox operands, to infer a result, to make a node and to see that all it needs is small takes ten times as long as
small arrays take to compute. All of that follows from the function, its static arguments, and the shapes and dtypes of
its operands: so it is found out once for each of these, and kept as a call on NumPy's blocks
(`distarray.kernels.ready`). Where operands are larger, elsewhere or not computed, where options say otherwise, and
where something is wrong, there is no answer here, and the operation goes its way through nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from math import prod
from typing import Any, NamedTuple

import numpy as np

from distarray import hooks
from distarray.array.access import read
from distarray.array.environment import forced_parts
from distarray.array.handle import Handle
from distarray.array.lifetime import is_alone
from distarray.array.versions import BlockType, block_type
from distarray.array.window import be_known, traced
from distarray.errors import held_warnings
from distarray.expr.affine import Affine
from distarray.expr.bind import infer_map, permuted
from distarray.expr.broadcasting import broadcast_shapes
from distarray.expr.errstates import errstate, is_heeded
from distarray.expr.expr import GET, ITEM, SCALARS, SOURCE, Environment, Expr, late_params, postorder, user_frame
from distarray.expr.lens import Lens, get
from distarray.expr.op import Op
from distarray.kernels.buffers import SMALLEST
from distarray.kernels.listening import heard, tell
from distarray.kernels.loans import owned
from distarray.runtime import counters, small
from distarray.runtime.process_threads import helpers_for
from distarray.types import DType, HostArray, Shape

#: Types of static arguments, of which equal ones mean the same.
_STATIC = frozenset({type(None), bool, int, str, type, type(np._NoValue)})
#: Calls that are kept of an environment, by function, static arguments and what the operands are (`small.found_in`):
#: those that are eager; None where it goes through nodes.
MOST_KNOWN = 4096


class _Ready(NamedTuple):
    """A _Ready is a call that stands for an operation.

    Attributes
    ----------
    call
        From blocks, and scalars in their places, to a block.
    op
        The operation that makes the result.
    name
        As numpy's warnings spell it.
    nbytes
        Of the largest array that it makes.
    made
        Of the result, or of each of several results.
    is_own
        Whether its result is always memory of its own.
    has_inplace
        Whether the call takes ``out=``, which may be one of the operands.
    put_together
        Makes what the function returns of several results; None of a single one.
    order
        How a single result is seen, where numpy has its axes in another order in memory than it is made in.
    """

    call: Callable[..., Any]
    op: Op
    name: str
    nbytes: int
    made: Any
    is_own: bool = True
    has_inplace: bool = False
    put_together: Callable[[Sequence[Any]], Any] | None = None
    order: Affine | None = None


_UNKNOWN = object()
#: Of a call that was met once. To make it ready takes some times as long as its nodes, and many a call of this shape,
#: or with these numbers, is met but once: it is made ready when it is met again.
_MET = object()
#: The characters of dtypes of numbers that arrays have.
_NUMBERS = frozenset("?bhilqBHILQefdFD")


def _kept(known: dict[Hashable, Any], key: Hashable, ready: _Ready | None) -> _Ready | None:
    if ready is not None and ready.nbytes > known[small.MOST]:
        ready = None
    _keep(known, key, ready)
    return ready


def _keep(known: dict[Hashable, Any], key: Hashable, found: Any) -> None:
    if len(known) >= MOST_KNOWN:
        for other in known.keys() - {small.MOST}:
            known.pop(other, None)
    known[key] = found


def _seen(x: Handle) -> tuple[HostArray, BlockType] | None:
    """Return the elements of an array and what they are; None where they are not computed, in one array of this
    process.
    """
    base = x._base
    block, kind = base.block, base._type
    if block is None or kind is None:
        if (block := base.ready()) is None:
            return None
        kind = base.type
    if lens := x._lens:
        block = get(lens, block)
        kind = block_type(block.dtype, block.shape, kind.env)
    return block, kind


# ---------------------------------------------------------------------------------------------- elementwise


def map_at_call(op: Op, args: Sequence[Any], params: tuple[Hashable, ...] = ()) -> Any:
    """Return an elementwise operation on handles, arrays of numpy and Python scalars, boxed; None where it is not
    computed at the call.

    Raises
    ------
    Exception
        What numpy raises of the operands.
    """
    if not params:  # those that are met most
        if len(args) == 1:
            return _unary_at_call(op, args[0])
        if len(args) == 2:
            return binary_at_call(op, *args)
    return _map_at_call(op, args, params)


def _unary_at_call(op: Op, x: Any) -> Any:
    """Return what `map_at_call` does of one operand: in two thirds of the time where it was met before."""
    be_known()
    seen = _seen(x) if isinstance(x, Handle) else None
    if seen is None:
        return None
    block, kind = seen
    ready = small.found_in(kind.env).get((op, (), kind), _UNKNOWN)
    if ready is None:  # it is known to wait
        return None
    if ready is _UNKNOWN or forced_parts.get() is not None:
        return _map_at_call(op, (x,))
    return _boxed(ready, (block,), x)


def _map_at_call(op: Op, args: Sequence[Any], params: tuple[Hashable, ...] = ()) -> Any:
    """Return what `map_at_call` does of any operands, which may not have met before."""
    if (found := _found(op, args, params)) is None:
        return None
    return _boxed(*found)


def _boxed(ready: _Ready, blocks: Sequence[Any], x: Handle) -> Any:
    """Return the result of an elementwise operation where `x` lives, and warn of events that were met."""
    value, warn = _computed(ready, blocks)
    if warn is not None:
        warn()
    if not value.flags.c_contiguous:
        return x._of_any_order(value, ready.op, ready.made.env)
    return x._of(value, ready.op, ready.made)


def binary_at_call(op: Op, x: Any, y: Any) -> Any:
    """Return what `map_at_call` does of two operands: in half of the time where these have met before."""
    be_known()
    env: Any = None  # below twice what `_seen` does: a call for each operand is a tenth of the time
    first: Any = y
    kind: Any = type(x)
    if kind in SCALARS:
        left = x
    else:
        if not isinstance(x, Handle) and (x := _guest(x, y)) is None:
            return None
        first, base = x, x._base
        left, kind = base.block, base._type
        if left is None or kind is None:
            if (left := base.ready()) is None:
                return None
            kind = base.type
        env = kind.env
        if lens := x._lens:
            left = get(lens, left)
            kind = block_type(left.dtype, left.shape, env)
    other: Any = type(y)
    if other in SCALARS:
        right = y
    elif y is x:  # it is read once: another thread may write to it meanwhile
        right, other = left, kind
    else:
        if not isinstance(y, Handle) and (y := _guest(y, x)) is None:
            return None
        base = y._base
        right, other = base.block, base._type
        if right is None or other is None:
            if (right := base.ready()) is None:
                return None
            other = base.type
        if env is None:
            env = other.env
        elif other.env is not env:
            return None
        if lens := y._lens:
            right = get(lens, right)
            other = block_type(right.dtype, right.shape, env)
    if env is None:  # numbers
        return None
    ready = small.found_in(env).get((op, (), kind, other), _UNKNOWN)
    if ready is None:  # it is known to wait
        return None
    if ready is _UNKNOWN or forced_parts.get() is not None:
        return _map_at_call(op, (x, y))
    return _boxed(ready, (left, right), first)


def update_at_call(op: Op, args: Sequence[Any], out: Any) -> bool:
    """Write an elementwise operation on operands into an array of their shape and dtype, which may be one of them;
    return whether that was done.
    """
    if not isinstance(out, Handle):
        return False
    base, lens = out._base, out._lens
    since = base.version
    link = lens[0] if lens else None
    if out._readonly or not base.shape or len(lens) > 1 or not (link is None or type(link) is Affine):
        return False
    kind = base.type
    found = _found(op, args, (), (out.shape, kind.dtype))
    if found is None or found[2]._base.type.env is not kind.env:
        return False
    ready, blocks, _ = found
    warn: Callable[[], None] | None = None
    made: HostArray | Callable[[HostArray | None], HostArray]
    if ready.nbytes >= SMALLEST and ready.has_inplace and "raise" not in np.geterr().values():

        def made(out: HostArray | None) -> HostArray:
            nonlocal warn
            value, warn = _computed(ready, blocks, out)
            return value

    else:
        made, warn = _computed(ready, blocks)
    if not base.write(link, made, since, is_alone):
        return False
    if warn is not None:
        warn()  # where warnings are errors, numpy has written too
    return True


def _found(
    op: Op, args: Sequence[Any], params: tuple[Hashable, ...], wanted: tuple[Shape, DType] | None = None
) -> tuple[_Ready, list[Any], Handle] | None:
    """Return the call that computes an elementwise operation, its blocks and scalars, and the first of the handles.

    Parameters
    ----------
    wanted
        What shape and dtype the result must have.
    """
    be_known()
    x: Any = None
    env: Any = None
    first = 0
    key: list[Any] = [op, params]
    blocks: list[Any] = []
    for a in args:
        kind: Any = type(a)
        if kind in SCALARS:
            key.append(kind)
            blocks.append(a)
            continue
        if x is not None and a is x:  # given twice, it is read once: another thread may write to it meanwhile
            key.append(key[2 + first])
            blocks.append(blocks[first])
            continue
        if not isinstance(a, Handle) and (a := _guest(a, *args)) is None:
            return None
        if (seen := _seen(a)) is None:
            return None
        block, kind = seen
        if x is None:
            x, env, first = a, kind.env, len(blocks)
        elif kind.env is not env:
            return None
        key.append(kind)
        blocks.append(block)
    if x is None or forced_parts.get() is not None:
        return None
    known = small.found_in(env)
    ready = known.get(found := tuple(key), _UNKNOWN)
    if ready is _UNKNOWN:
        try:
            ready = _kept(known, found, _map_made_ready(op, params, blocks, env))
        except (TypeError, ValueError):
            if wanted is None:
                raise
            return None  # what numpy says first of an update may be that its result does not cast back
    if ready is None or (wanted is not None and (ready.made.shape, ready.made.dtype) != wanted):
        return None
    return ready, blocks, x


def _guest(value: Any, *operands: Any) -> Handle | None:
    """Return a handle that shows an array of numpy for the time of a call, where the first handle among the operands
    is; None if nothing is computed of it at the call there.

    Nobody writes to it, and what is computed has memory of its own.
    """
    if type(value) is not np.ndarray or value.dtype.char not in _NUMBERS or not value.shape or not value.dtype.isnative:
        return None
    x = next((o for o in operands if isinstance(o, Handle)), None)
    if x is None or value.nbytes > small.SMALL_NBYTES:
        return None
    return x._of(np.ascontiguousarray(value), SOURCE, block_type(value.dtype, value.shape, x._env))


def _computed(
    ready: _Ready, blocks: Sequence[Any], out: HostArray | None = None
) -> tuple[HostArray, Callable[[], None] | None]:
    """Return the elements of an elementwise operation, written to `out` if that is given, and what warns of events that
    were met.
    """
    try:
        value, met = heard(ready.call if out is None else partial(ready.call, out=out), blocks)
        warn = tell(met, ready.name) if met else None
    except Exception as error:
        if (origin := user_frame()) is not None:
            error.add_note(f"{ready.op.name}, called at {origin}")
        raise
    if counters.active:
        counters.count_evaluation(is_inline=True)
    return value if type(value) is np.ndarray else np.array(value), warn


def _map_made_ready(op: Op, params: tuple[Hashable, ...], blocks: Sequence[Any], env: Environment) -> _Ready | None:
    from distarray.kernels import elementwise, ready  # late: see `small.interpreter`

    if op.may_raise or any(type(b) is np.ndarray and b.nbytes > small.SMALL_NBYTES for b in blocks):
        return None
    dtypes = [b.dtype if type(b) is np.ndarray else None for b in blocks]
    # As in numpy, operands of no loop are refused before those that do not broadcast.
    dtype = infer_map(op, params, [b if d is None else d for b, d in zip(blocks, dtypes, strict=True)])
    shape = broadcast_shapes(*[b.shape for b in blocks if type(b) is np.ndarray])
    helpers = partial(helpers_for, env)
    call, has_inplace = ready.mapped(op.name, params, tuple(dtypes), shape, dtype, helpers)
    nbytes = prod(shape) * dtype.itemsize
    made = block_type(dtype, shape, env)
    return _Ready(call, op, elementwise.event_name(op.name), nbytes, made, has_inplace=has_inplace)


# ------------------------------------------------------------------------------------------ other functions


def call_at_call(
    function: Callable[..., Any],
    arrays: Sequence[Any],
    static: tuple[Any, ...],
    options: Mapping[str, Any],
    is_boxed: bool = False,
    takes_views: bool = False,
) -> Any:
    """Return ``function(*arrays, *static, **options)`` on handles and arrays of numpy, boxed; None where it is not
    computed at the call.

    Parameters
    ----------
    function
        Makes a node, or a tuple of them, of the nodes of arrays. Which one it is depends on their shapes and dtypes and
        on the other arguments alone, and of arrays that have elements it warns of nothing.
    is_boxed
        Whether it makes handles of handles.
    takes_views
        Whether its kernels read views of whatever strides as they lie, and nodes of the base make nothing else.
    """
    given = (*static, *options.values()) if options else static
    kinds = tuple(map(type, given))  # True is no 1
    if not _STATIC.issuperset(kinds) and not all(map(_is_static, given)):
        return None
    be_known()
    operands = _operands(arrays, takes_views)
    if operands is None:
        return None
    x, env, seen, blocks, lenses = operands
    known = small.found_in(env)
    ready = known.get(found := (function, *options, kinds, given, *seen), _UNKNOWN)
    if ready is _UNKNOWN:
        _keep(known, found, _MET)
        return None
    if ready is _MET:
        leaves = [Expr(SOURCE, (), block.shape, block.dtype, env) for block in blocks]
        nodes = [read(leaf, lens) for leaf, lens in zip(leaves, lenses, strict=True)]
        call = partial(_of_handles, type(x), function) if is_boxed else function
        node = None
        with held_warnings() as told, suppress(Exception):
            node = call(*nodes, *static, **options) if all(block.size for block in blocks) else None
        if told:
            node = None  # what is wrong, more than a function of nodes, or warns goes the way through handles each time
        ready = _kept(known, found, _made_ready(node, leaves, in_order=not any(lenses)))
    if ready is None:
        return None
    try:
        value, met = heard(ready.call, blocks)
    except Exception:
        return None  # the way through nodes raises it where it is met
    if met and is_heeded(met, errstate()):
        return None  # as it warns
    if counters.active:
        counters.count_evaluation(is_inline=True)
    if ready.put_together is None:
        one = x._of(owned(value, blocks, is_own=ready.is_own, is_only=True), ready.op, ready.made)
        return one if ready.order is None else one._owning(ready.order)
    parts = zip(value, ready.made, strict=True)
    return ready.put_together([x._of(owned(part, blocks), ITEM, made) for part, made in parts])


def _operands(
    arrays: Sequence[Any], takes_views: bool
) -> tuple[Handle, Environment, list[Any], list[HostArray], list[Lens]] | None:
    """Return the last of the arrays of a call and their environment; and of each what it is, its elements, and through
    which lens its nodes read these. None where they are not here together, or options cut what is made.
    """
    x: Any = None
    env: Any = None
    kinds: list[Any] = []
    blocks: list[HostArray] = []
    lenses: list[Lens] = []
    for a in arrays:
        if not isinstance(a, Handle) and (a := _guest(a, *arrays)) is None:
            return None
        x, base = a, a._base
        if (block := base.block) is None and (block := base.ready()) is None:
            return None
        made, lens = base._type or base.type, a._lens
        if env is None:
            env = made.env
        elif made.env is not env:
            return None
        if lens:
            seen = get(lens, block)
            if takes_views or (
                seen.flags.c_contiguous
                and not any(type(link) is Affine and link.read_indices().transpose for link in lens)
            ):  # else nodes may reduce the base, and in its order: an axis of one element moves nothing
                block, lens = seen, ()
                made = block_type(block.dtype, block.shape, env)
            else:  # what is made of the view may go along the memory of the base
                kinds.append(lens)
        kinds.append(made)
        blocks.append(block)
        lenses.append(lens)
    return None if env is None or forced_parts.get() is not None else (x, env, kinds, blocks, lenses)


def _is_static(value: Any) -> bool:
    kind = type(value)
    if kind is float:
        return bool(value > 0 or value < 0)  # of zeros two are equal, and nan is not itself
    if isinstance(value, np.dtype):
        return value.kind in "biufc"  # of times two are equal whose units are not
    return kind in _STATIC or (kind is tuple and all(type(v) is int for v in value))


def product_at_call(product: Callable[..., Any], x: Any, y: Any) -> Any:
    """Return what `call_at_call` does of the two operands of a product of matrices: in less time where these have met
    before, and views go to BLAS as they lie.
    """
    be_known()
    x = x if isinstance(x, Handle) else _guest(x, y)
    y = y if isinstance(y, Handle) else _guest(y, x)
    seen = None if x is None else _seen(x)
    found = seen if y is x else None if y is None else _seen(y)
    if seen is None or found is None:
        return None
    (left, kind), (right, other) = seen, found
    if (x._lens and not _is_strided(x._lens)) or (y._lens and not _is_strided(y._lens)):
        return call_at_call(product, (x, y), (), {})
    ready = small.found_in(kind.env).get((product, (), (), kind, other))
    if type(ready) is not _Ready or ready.call is not np.matmul or forced_parts.get() is not None:
        return call_at_call(product, (x, y), (), {}, takes_views=True)
    value, met = heard(np.matmul, (left, right))
    if met:
        return None  # as it warns
    if counters.active:
        counters.count_evaluation(is_inline=True)
    return x._of(owned(value, (), is_own=True), ready.op, ready.made)


def _is_strided(lens: Lens) -> bool:
    return len(lens) == 1 and type(lens[0]) is Affine


def _of_handles(kind: type[Handle], function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Return the nodes that a function of handles makes of nodes."""
    with traced():
        made = function(*[kind._on(a) if type(a) is Expr else a for a in args], **options)
        if isinstance(made, Handle):
            return _node_of(made)
        is_made = isinstance(made, tuple) and all(isinstance(x, Handle) for x in made)
        return getattr(type(made), "_make", tuple)(map(_node_of, made)) if is_made else None


def _node_of(x: Handle) -> Expr | None:
    """Return the node of a handle; None of a view without axes, which is no scalar."""
    return None if x._lens and not x.shape else x._node()


def _made_ready(made: Any, leaves: Sequence[Expr], in_order: bool) -> _Ready | None:
    """Return the call that computes a node, or a tuple of them; None where it is to wait, or depends on more than the
    leaves. `in_order`: whether all operands lie in C order, as what is made of them does.
    """
    from distarray.kernels import ready  # late: see `small.interpreter`

    order = None
    if not in_order and type(made) is Expr and (found := permuted(made)) is not None and found[0].op.kind == "map":
        made, order = found
    nodes = made if isinstance(made, tuple) else (made,)
    if not nodes or any(type(node) is not Expr or node in leaves or node.memo is not None for node in nodes):
        return None
    steps = [step for step in postorder(nodes) if step not in leaves]
    steps = [step for step in steps if step.memo is None or small.block_of(step) is None]  # the others are constants
    for step in steps:
        family = step.op.family
        is_made = step.op is GET or family.is_item or (family.is_created and step.op.repeatable)
        # What may raise is computed now in any case: where it does so, the way through nodes tells.
        is_plain = is_made or (family.is_at_once and not late_params(step))
        if step.pin is not None or not is_plain:
            return None
        # A view reads nothing by itself, however large what it is a view of.
        if step.op is not GET and not all(small.is_room_for(step, o) for o in step.nodes()):
            return None
    first, nbytes = nodes[0], max([step.nbytes for step in steps])
    types = [block_type(node.dtype, node.shape, node.env) for node in nodes]
    is_own = first.op.family.is_new or first.op.family.is_contraction
    if not isinstance(made, tuple):
        return _Ready(ready.program(nodes, leaves), first.op, first.op.name, nbytes, types[0], is_own, order=order)
    put_together = getattr(type(made), "_make", type(made))
    return _Ready(ready.program(nodes, leaves), first.op, first.op.name, nbytes, types, put_together=put_together)


hooks.map_at_call, hooks.call_at_call, hooks.update_at_call = map_at_call, call_at_call, update_at_call
