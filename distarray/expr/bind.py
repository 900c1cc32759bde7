"""The one door from user input to expressions.

Every operation that makes a node passes through `bind_*` (small arrays are computed at the call, without one):
operands are unboxed, environments compared, shapes and dtypes inferred, and errors raised as numpy raises them, before
any node exists. The functions of `ops` take whatever can be unboxed (a `DistArray`, an `Expr`) and box their result as
their first boxed operand is boxed; so `ops` never imports the array layer, and works on bare expressions in tests and
inside tasks.

Cost: about two microseconds per operation beside the making of the handle; no walk over the expression, but where an
array that no memory holds is read (`pushdown`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextvars import copy_context
from typing import Any, Protocol, TypeAlias, overload, runtime_checkable

import numpy as np

from distarray import hooks
from distarray.dtypes import as_dtype
from distarray.errors import EnvironmentMismatchError, NotSupportedError
from distarray.expr.affine import Affine, restored
from distarray.expr.broadcasting import broadcast_shapes
from distarray.expr.errstates import errstate
from distarray.expr.expr import GET, ITEM, PUT, RESHAPE, SCALARS, Environment, Expr, Scalar, source, user_frame
from distarray.expr.lens import kept_order, strided_dummy
from distarray.expr.op import Op
from distarray.expr.params import ItemParams, ReduceParams
from distarray.expr.pushdown import pushed
from distarray.expr.rewrite import simplify
from distarray.expr.tiles import Tiling, Windows
from distarray.lazy import loaded
from distarray.sharding.sharding import Sharding
from distarray.types import DType

Box: TypeAlias = Callable[..., Any]  # what boxing returns is the caller's type


@runtime_checkable
class Boxed(Protocol):
    """A Boxed is what carries a node: the handle that the user holds."""

    def __dx_node__(self) -> Expr:
        """Return the node of the current value. Called on entry of an operation, before its node exists."""

    def __dx_box__(self, node: Expr, order: Affine | None = None) -> Any:
        """Return a new handle on `node`, which it sees through `order` if numpy has its axes in another order in
        memory.
        """


def identity(node: Expr) -> Any:
    """Return how results are boxed where no operand is boxed."""
    return node


class Operands:
    """Operands are the unboxed operands of one operation.

    Attributes
    ----------
    nodes
        Nodes and Python scalars, in the order of the arguments; literals have become source nodes.
    env
        The environment that all of them share.
    box
        Boxes a result as the first boxed operand is boxed.
    """

    __slots__ = ("box", "env", "nodes")

    def __init__(self, nodes: list[Expr | Scalar], env: Environment, box: Box) -> None:
        self.nodes = nodes
        self.env = env
        self.box = box


def check_mask(value: object, name: str) -> None:
    """Check that no mask hides elements of an operand: there are no masked arrays here, and none is to lose its mask.

    Raises
    ------
    NotSupportedError
        If one does.
    """
    ma = loaded("numpy.ma")  # by those who have masked arrays
    if ma is not None and isinstance(value, ma.MaskedArray) and ma.is_masked(value):
        raise NotSupportedError(
            f"{name}: a masked array, whose mask would be lost; m.filled(value) or dx.asarray(m) gives its values, and "
            "np.ma functions of it and np.asarray(x) a masked array in this process"
        )


def lazily_read(value: Any, env: Environment) -> Expr | None:
    """Return the node of data of others that the tasks read, not this process: large memory maps, dask arrays; None of
    all else.
    """
    if type(value) is np.ndarray or hooks.lazily_read is None:
        return None
    node: Expr | None = hooks.lazily_read(value, env)
    return node


def literal(value: Any, env: Environment, name: str = "array") -> Expr:
    """Return a node of host data used as an operand: it has no environment of its own and adopts `env`.

    A NumPy array is read at the call, whatever its size: later changes by its owner do not show. Large memory maps and
    dask arrays are read by the tasks.

    Raises
    ------
    TypeError
        If `value` is not array-like or of a dtype that distarray does not have.
    NotSupportedError
        If a mask hides elements of it: there are no masked arrays here.
    """
    check_mask(value, name)
    node = lazily_read(value, env)
    if node is not None:
        return node
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    if array.dtype.kind == "O":
        raise TypeError(f"{name}: an operand of type {type(value).__name__} cannot be an operand of a DistArray")
    try:
        dtype = as_dtype(array.dtype)
    except TypeError as error:
        raise TypeError(f"{name}: {error}") from None
    node = source(np.array(array, dtype=dtype, copy=True, order="C"), env)
    assert node.memo is not None
    return node


def nested(value: Any) -> Any:
    """Return sequences that hold arrays as one array, boxed, which are put together where they lie; else `value`."""
    if (type(value) is list or type(value) is tuple) and hooks.nested is not None:
        made = hooks.nested(value)
        return value if made is None else made
    return value


def unbox(name: str, args: Sequence[Any], env: Environment | None = None) -> Operands:
    """Unbox `args`, check that they share one environment, and turn host data into literals of it.

    Raises
    ------
    EnvironmentMismatchError
        If two operands live in different environments; names every operand.
    TypeError
        If nothing among `args` is an array, and no array layer is there to adopt host data (`hooks.adopt`).
    """
    nodes: list[Any] = []
    box: Box | None = None
    plain = False
    clash = False
    fixed = env
    for a in args:
        kind = type(a)
        if kind is Expr:
            node = a
        elif kind in SCALARS:
            nodes.append(a)
            continue
        else:
            enter = getattr(kind, "__dx_node__", None)
            if enter is None and (given := nested(a)) is not a:
                a = given
                enter = type(a).__dx_node__
            if enter is None:
                plain = True
                nodes.append(a)
                continue
            # Given twice, it is read once: another thread may write to it meanwhile.
            node = nodes[0] if nodes and a is args[0] else enter(a)
            if box is None:
                box = a.__dx_box__
        if env is None:
            env = node.env
        elif node.env is not env and node.env != env:
            clash = True
        nodes.append(node)
    if clash:
        met = None if hooks.meet is None else hooks.meet(args, nodes, fixed)
        if met is None:
            listed = ", ".join(f"operand {i} in {n.env}" for i, n in enumerate(nodes) if type(n) is Expr)
            raise EnvironmentMismatchError(
                f"{name}: operands live in different environments ({listed}); move one with x.to_team(...) or "
                "x.to_device(...)"
            )
        nodes, env = met
    if env is None:
        if hooks.adopt is None or not args:
            raise TypeError(f"{name}: none of the operands is a DistArray")
        # numpy scripts call functions on numbers and lists too. Python's numbers are weak beside anything else.
        env, box = hooks.adopt()
        for i, n in enumerate(nodes):
            if not plain or type(n) not in SCALARS:
                nodes[i] = literal(n, env, f"{name}, operand {i}")
        return Operands(nodes, env, box)
    if plain:
        for i, n in enumerate(nodes):
            if type(n) is not Expr and type(n) not in SCALARS:
                nodes[i] = literal(n, env, f"{name}, operand {i}")
    return Operands(nodes, env, box or identity)


# ---------------------------------------------------------------------------------------------- elementwise


def _clip(x: Any, *rest: Any) -> Any:  # arrays and scalars, then which bounds they are
    n = len(rest) // 2
    bounds = dict(zip(rest[n:], rest[:n]))
    return np.clip(x, bounds.get("min"), bounds.get("max"))


#: numpy calls for the result dtypes of elementwise operations that are no numpy function of the same arguments.
_INFER: dict[str, Callable[..., Any]] = {
    "byteswap": lambda x: x,
    "clip": _clip,
    "complex": lambda x, y: np.empty(0, np.result_type(x, y, np.complex64)),
    "frexp": lambda x, which: np.frexp(x)[which],
    "modf": lambda x, which: np.modf(x)[which],
    "reshard": lambda x, *_: x,
    "scalar": lambda x: x,
    "warned": lambda x, *_: x,
}
_inferred: dict[Hashable, DType] = {}
_DUMMY: dict[type, Scalar] = {bool: True, int: 1, float: 1.0, complex: 1j}


def numpy_function(name: str) -> Callable[..., Any]:
    """Return numpy's or, after ``special.``, SciPy's function of that name."""
    if name.startswith("special."):
        import scipy.special  # late: takes a quarter of a second

        found = getattr(scipy.special, name.removeprefix("special."))
        return getattr(found, "__wrapped__", found)  # type: ignore[no-any-return]  # with SCIPY_ARRAY_API=1 it is wrapped
    if not hasattr(np, name):
        raise NotSupportedError(f"{name} with options, or its methods, needs a newer NumPy than {np.__version__}")
    return getattr(np, name)  # type: ignore[no-any-return]  # a ufunc


def infer_map(op: Op, params: tuple[Hashable, ...], args: Sequence[Any]) -> DType:
    """Return the result dtype of an elementwise operation: numpy is asked, on arrays without elements, and remembered.

    Parameters
    ----------
    args
        dtypes of the operands, and Python scalars (weak) in their places.

    Raises
    ------
    TypeError
        If numpy has no loop for these dtypes.
    OverflowError
        If a Python integer does not fit the integer dtype that it meets, as in numpy.
    """
    key_parts: list[Any] = [op.name, params]  # hashable
    cacheable = True
    for a in args:
        kind = type(a)
        if kind is int and not 0 <= a <= 127:
            cacheable = False  # whether it fits depends on its value
            break
        key_parts.append(kind if kind in SCALARS else a)
    key = tuple(key_parts)
    if cacheable:
        known = _inferred.get(key)
        if known is not None:
            return known
        args = [_DUMMY[type(a)] if type(a) in SCALARS else a for a in args]
    if op.name in ("astype", "view") or op.name.startswith("random_"):
        dtype = as_dtype(params[0])
    else:
        dummies = [a if type(a) in SCALARS else np.empty(0, a) for a in args]
        # In a context of its own: an interrupt could leave the state in the user's thread.
        dtype = copy_context().run(_asked, _INFER.get(op.name) or numpy_function(op.name), *dummies, *params)
    if cacheable:
        if len(_inferred) > 20_000:
            _inferred.clear()
        _inferred[key] = dtype
    return dtype


def _asked(function: Callable[..., Any], *args: Any) -> DType:
    with np.errstate(all="ignore"):
        return as_dtype(function(*args).dtype)


def bind_map(op: Op, args: Sequence[Any], params: tuple[Hashable, ...] = ()) -> Any:
    """Return an elementwise operation over broadcast operands.

    Parameters
    ----------
    op
        A ``map`` operation.
    args
        Boxed arrays, nodes, Python scalars (weakly promoted, run-time parameters) and host data.
    params
        Static parameters, passed to the kernel after the operands.

    Returns
    -------
    Boxed
        Lazy, unless the operands have handles and are small and here: then it is computed at once.
    """
    if hooks.map_at_call is not None and (made := hooks.map_at_call(op, args, params)) is not None:
        return made
    return map_node(op, args, params)


def map_node(op: Op, args: Sequence[Any], params: tuple[Hashable, ...] = ()) -> Any:
    """Return what `bind_map` does of operands that nothing is computed of at the call: a node, boxed."""
    operands = unbox(op.name, args)
    nodes = operands.nodes
    shape: tuple[int, ...] | None = None
    same = True
    kinds: list[Any] = []
    for n in nodes:
        if type(n) is Expr:
            if shape is None:
                shape = n.shape
            elif n.shape != shape:
                same = False
            kinds.append(n.dtype)
        else:
            kinds.append(n)
    # As in numpy, operands of no loop are refused before those that do not broadcast.
    dtype = infer_map(op, params, kinds)
    if not same:
        shape = broadcast_shapes(*(n.shape for n in nodes if type(n) is Expr))
    assert shape is not None
    made = simplify(Expr(op, tuple(nodes), shape, dtype, operands.env, params, None, None, user_frame(), errstate()))
    box = operands.box
    return box(made) if made.op is not GET or box is identity else _boxed_in_order(made, box)


def _boxed_in_order(made: Expr, box: Box) -> Any:
    """Return a handle on what is made of transposed arrays: transposed in memory, as numpy has it."""
    if (found := permuted(made)) is not None:
        return box(*found)
    if (pending := made.unsettled()) is None or pending[1].is_in_order:
        return box(made)
    (source,), lens = pending
    assert type(source) is Expr
    order = kept_order([strided_dummy(source.shape, (lens,))])
    if order is None:
        return box(made)
    seen = bind_get(source, lens.permuted(order))
    return box(seen, restored(seen.shape, order))


def permuted(node: Expr) -> tuple[Expr, Affine] | None:
    """Return what a pending node reads, and its lens, if it does nothing but permute axes; else None."""
    if node.op is not GET or (found := node.unsettled()) is None:
        return None
    (source,), lens = found
    assert type(source) is Expr
    return None if lens.is_in_order or lens.permutation(source.shape) is None else (source, lens)


# ------------------------------------------------------------------------------------------------ the rest


@overload
def bind(
    op: Op, args: Sequence[Expr], shape: Any, dtype: Any, params: tuple[Hashable, ...] = (), runtime: Any = None
) -> Expr: ...
@overload
def bind(
    op: Op,
    args: Sequence[Any],
    shape: Any,
    dtype: Any,
    params: tuple[Hashable, ...] = (),
    runtime: Any = None,
    operands: Operands | None = None,
) -> Any: ...
def bind(
    op: Op,
    args: Sequence[Any],
    shape: tuple[int, ...] | tuple[tuple[int, ...], ...],
    dtype: Any,  # a dtype, or a tuple of them for several results
    params: tuple[Hashable, ...] = (),
    runtime: Any = None,  # each family's own
    operands: Operands | None = None,
) -> Any:
    """Return a node of any family whose result shape and dtype the caller has inferred and whose input it has
    checked.
    """
    operands = operands or unbox(op.name, args)
    node = Expr(op, tuple(operands.nodes), shape, dtype, operands.env, params, runtime, None, user_frame(), errstate())  # type: ignore[arg-type]  # several results: tuples of shapes
    return operands.box(simplify(node))


def bind_create(
    op: Op,
    shape: tuple[int, ...],
    dtype: DType,
    env: Environment,
    params: tuple[Hashable, ...] = (),
    runtime: Any = None,
    pin: Sharding | None = None,
) -> Expr:
    """Return a node made from the global index alone; not boxed, since no operand says how."""
    return Expr(op, (), shape, as_dtype(dtype), env, params, runtime, pin, user_frame())


def bind_reduce(
    op: Op, x: Any, axes: tuple[int, ...], dtype: DType, *, keepdims: bool = False, params: tuple[Hashable, ...] = ()
) -> Any:
    """Reduce one operand by a monoid over `axes`; see `accumulator_dtype`.

    Parameters
    ----------
    params
        What the last step needs beside the partial results.
    """
    operands = unbox(op.name, (x,))
    node = operands.nodes[0]
    assert type(node) is Expr
    shape = tuple([1 if i in axes else n for i, n in enumerate(node.shape) if keepdims or i not in axes])
    return bind(op, (), shape, dtype, ReduceParams(axes, keepdims, params), None, operands)


def accumulator_dtype(node: Expr) -> DType:
    """Return the dtype in which the monoid of a reduction runs: the result's, but for moments of complex numbers."""
    operand = node.operands[0]
    if node.op.monoid == "moments" and type(operand) is Expr and operand.dtype.kind == "c":
        # the mean is complex although the variance is not
        dtype: DType = np.result_type(operand.dtype, node.dtype)
        return dtype
    result: DType = node.dtype
    return result


def bind_tiles(
    op: Op,
    operands: Sequence[tuple[Expr, Sequence[int] | None]],
    results: Sequence[tuple[tuple[int, ...], Any, Sequence[int]]],
    cut: Sharding | None,
    params: tuple[Hashable, ...] = (),
) -> tuple[Expr, ...]:
    """Bind a kernel on each tile of axis 0; see `Tiling`.

    Parameters
    ----------
    operands
        Nodes, each with its boundaries along axis 0; None: every tile needs all of it.
    results
        Shape, dtype and boundaries along axis 0 of each result.
    cut
        A type whose axis 0 is cut into so many tiles: they lie on its mesh axes. None where there is one tile.

    Returns
    -------
    tuple of Expr
        A node for each result.
    """
    shapes, dtypes = [tuple(s) for s, _, _ in results], [as_dtype(d) for _, d, _ in results]
    tiling = Tiling(
        tuple([None if b is None else tuple(b) for _, b in operands]), tuple([tuple(b) for _, _, b in results])
    )
    pin = None
    if cut is not None and tiling.n_tiles > 1:
        rest = len(shapes[0]) - 1
        pin = Sharding(cut.mesh, (cut.axes[0], *[()] * rest), (), (tiling.results[0], *[None] * rest))
    nodes = tuple([node for node, _ in operands])
    env, frame, state = nodes[0].env, user_frame(), errstate()
    if len(results) == 1:
        return (Expr(op, nodes, shapes[0], dtypes[0], env, params, tiling, pin, frame, state),)
    made = Expr(op, nodes, tuple(shapes), tuple(dtypes), env, params, tiling, pin, frame, state)  # type: ignore[arg-type]  # several results: tuples of shapes
    items = zip(shapes, dtypes, strict=True)
    return tuple([Expr(ITEM, (made,), s, d, env, ItemParams(k), None, None, frame) for k, (s, d) in enumerate(items)])


def bind_windows(
    op: Op,
    operands: Sequence[Expr],
    windows: Windows,
    dtype: Any,
    cut: Sharding | None,
    params: tuple[Hashable, ...] = (),
) -> Expr:
    """Bind a kernel on each tile of a grid; see `Windows`.

    Parameters
    ----------
    windows
        What each tile makes, and what it reads of `operands`.
    cut
        A type of the rank of the result with as many parts: the tiles lie on its mesh axes. None for a single tile.
    params
        Static parameters; the kernel gets them, the late ones of `windows`, and the index of the tile last.
    """
    shape = tuple([b[-1] for b in windows.bounds])
    pin = None
    if cut is not None and cut.n_tiles > 1:
        assert cut.parts == windows.grid, (cut, windows.grid)
        pin = Sharding(cut.mesh, cut.axes, (), windows.bounds)
    env = operands[0].env
    return Expr(op, tuple(operands), shape, as_dtype(dtype), env, params, windows, pin, user_frame(), errstate())


def bind_get(x: Expr, lens: Affine) -> Expr:
    """Return `x` read through an affine lens. Reads of reads compose: a chain of views is one node."""
    if x.memo is not None and lens.shape != x.shape:  # what is computed is read as it is, and cannot fail
        return Expr(GET, (x,), lens.shape, x.dtype, x.env, (), lens)
    return pushed(simplify(Expr(GET, (x,), lens.shape, x.dtype, x.env, (), lens, None, user_frame())))


def bind_reshape(x: Expr, shape: tuple[int, ...]) -> Expr:
    """Return the elements of `x` in C order with another shape of the same size."""
    return simplify(Expr(RESHAPE, (x,), shape, x.dtype, x.env, (), None, None, user_frame()))


def bind_put(base: Expr, lens: Affine, value: Expr | Scalar) -> Expr:
    """Return a new version of `base` in which the elements that `lens` sees are `value`'s, cast to `base.dtype`.

    `lens` must be injective, since a broadcast view is read-only, and `value` must broadcast to ``lens.shape``: both
    are checked by the caller, as numpy does it, before any node exists.
    """
    node = Expr(PUT, (base, value), base.shape, base.dtype, base.env, (), lens, base.pin, user_frame(), errstate())
    return simplify(node)
