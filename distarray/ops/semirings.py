"""Joins and aggregations by name: what ``einsum`` may do with elements that meet, and with what it makes of them.

A join is a composition of elementwise functions of `ops`; what kernels run is traced from it (`traced`). An aggregation
is a monoid, by its name in `kernels.monoids`. `DISTRIBUTIVE` says which pairs are semirings: theirs are the products
of several operands that may be made two by two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import Any

import numpy as np

from distarray.expr.expr import Environment, Expr, postorder, source
from distarray.expr.instructions import Instruction
from distarray.expr.joins import Join
from distarray.ops import elementwise, reductions, special, ufunc_methods
from distarray.ops.families import Array, of_numpy
from distarray.types import DType


def absdiff(x: Array, y: Array) -> Array:
    """Return ``|x - y|``; of unsigned integers too, whose differences wrap."""
    if {x.dtype.kind, y.dtype.kind} in ({"u"}, {"u", "b"}):
        return elementwise.subtract(elementwise.maximum(x, y), elementwise.minimum(x, y))
    return elementwise.abs(elementwise.subtract(x, y))


def sqdiff(x: Array, y: Array) -> Array:
    """Return ``(x - y) ** 2``, as it stands: with ``|x|^2 - 2xy + |y|^2`` small distances of long vectors would be
    noise.
    """
    return elementwise.square(elementwise.subtract(x, y))


def _identity(x: Array) -> Array:
    return x


#: Joins: the function, and its number of operands.
JOINS: dict[str, tuple[Callable[..., Array], int]] = {
    "mul": (elementwise.multiply, 2),
    "add": (elementwise.add, 2),
    "sub": (elementwise.subtract, 2),
    "div": (elementwise.divide, 2),
    "floordiv": (elementwise.floor_divide, 2),
    "mod": (elementwise.remainder, 2),
    "pow": (elementwise.pow, 2),
    "absdiff": (absdiff, 2),
    "sqdiff": (sqdiff, 2),
    "min": (elementwise.minimum, 2),
    "max": (elementwise.maximum, 2),
    "eq": (elementwise.equal, 2),
    "ne": (elementwise.not_equal, 2),
    "lt": (elementwise.less, 2),
    "le": (elementwise.less_equal, 2),
    "gt": (elementwise.greater, 2),
    "ge": (elementwise.greater_equal, 2),
    "and": (elementwise.logical_and, 2),
    "or": (elementwise.logical_or, 2),
    "xor": (elementwise.logical_xor, 2),
    "identity": (_identity, 1),
    "neg": (elementwise.negative, 1),
    "abs": (elementwise.abs, 1),
    "square": (elementwise.square, 1),
    "sqrt": (elementwise.sqrt, 1),
    "exp": (elementwise.exp, 1),
    "log": (elementwise.log, 1),
    "reciprocal": (elementwise.reciprocal, 1),
    "not": (elementwise.logical_not, 1),
    "conj": (elementwise.conj, 1),
}

#: Joins of two operands that join more of them from the left, and a single one by leaving it as it is: each has one
#: meaning for every number of operands. Those before the bar are associative, the others read so in every formula.
_FOLDING = frozenset(
    """
    multiply add minimum maximum fmin fmax logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor
    gcd lcm hypot logaddexp logaddexp2 | subtract divide
    """.split()
) - {"|"}
_NOT_OF_ONE = frozenset({"subtract", "divide"})

#: Aggregations: the monoid, and the ufunc that says which dtype its results have.
AGGREGATIONS: dict[str, tuple[str, str]] = {
    "sum": ("sum", "add"),
    "prod": ("prod", "multiply"),
    "max": ("max", "maximum"),
    "min": ("min", "minimum"),
    "any": ("any", "logical_or"),
    "all": ("all", "logical_and"),
    "xor": ("logical_xor", "logical_xor"),
    **{
        name: (name, name)
        for name in (
            *("bitwise_and", "bitwise_or", "bitwise_xor"),
            *("fmax", "fmin", "gcd", "lcm", "hypot", "logaddexp", "logaddexp2"),
        )
    },
}

#: (join, aggregation) such that the join distributes over the aggregation, is associative and commutative, and what
#: aggregates nothing annihilates (or there is no such value: then aggregating nothing raises). Only then
#: agg_jk join(x_ij, y_jk, z_kl) = agg_k join(agg_j join(x_ij, y_jk), z_kl).
DISTRIBUTIVE: frozenset[tuple[str, str]] = frozenset(
    {
        ("multiply", "sum"),  # x(y + z) = xy + xz: the ring of numbers; up to rounding
        ("add", "max"),  # x + max(y, z) = max(x + y, x + z): tropical; rounding is monotone, integers must not wrap
        ("add", "min"),
        ("add", "logaddexp"),  # x + log(e^y + e^z) = log(e^(x+y) + e^(x+z)): products and sums of logarithms
        ("add", "logaddexp2"),
        ("maximum", "min"),  # max(x, min(y, z)) = min(max(x, y), max(x, z)): an order is a distributive lattice
        ("minimum", "max"),
        ("logical_and", "any"),  # x and (y or z) = (x and y) or (x and z): Boolean algebra, in both directions
        ("logical_or", "all"),
        ("logical_and", "logical_xor"),  # the field of two elements
        ("bitwise_and", "bitwise_or"),  # the same on every bit
        ("bitwise_or", "bitwise_and"),
        ("bitwise_and", "bitwise_xor"),
        # Not (multiply, max): x max(y, z) = max(xy, xz) for x >= 0 alone, and no dtype says that without wrapping.
        # Not (logical_or, any) and its like: idempotent, but what aggregates nothing annihilates nothing.
    }
)


@dataclass(frozen=True, slots=True)
class Joining:
    """A Joining is a join that is parsed and fits the number of operands.

    Parameters
    ----------
    name
        As the user wrote it.
    function
        Of arrays of this package; for a function of the user's: of blocks.
    key
        The elementwise function that it is, or its own name: what `DISTRIBUTIVE` knows.
    is_users
        Whether it is a function of the user's.
    """

    name: str
    function: Callable[..., Any]
    key: str
    is_users: bool = False


# ----------------------------------------------------------------------------------------------------- parsing


def parse_join(join: Any, n: int) -> Joining:
    """Return the join that a name, a ufunc or a function means for `n` operands.

    Raises
    ------
    ValueError
        If there is none of that name, or it takes another number of operands.
    TypeError
        If it is neither a name nor a function.
    """
    if isinstance(join, str):
        return _of_name(join, n)
    join = of_numpy(join)
    if isinstance(join, np.ufunc):
        found = _of_ufunc(join, n)
        if found is not None:
            return found
    if not callable(join):
        raise TypeError(f"join={join!r} is neither a name nor a function; names are {_known(JOINS)}")
    return Joining(getattr(join, "__name__", type(join).__name__), join, "", is_users=True)


@lru_cache(maxsize=256)
def _of_name(name: str, n: int) -> Joining:
    if name in JOINS:
        function, arity = JOINS[name]
        return _fitted(name, function, arity, getattr(function, "__name__", name), n)
    ufunc = getattr(np, name, None)
    found = _of_ufunc(ufunc, n) if isinstance(ufunc, np.ufunc) else None
    if found is None:
        raise ValueError(f"join={name!r} is unknown; known are {_known(JOINS)}, and numpy's elementwise functions")
    return found


def _of_ufunc(ufunc: np.ufunc, n: int) -> Joining | None:
    """Return the join of a ufunc that is an elementwise function here; None for others: they are called as functions
    are.
    """
    name = ufunc.__name__
    function: Any = getattr(elementwise, name, None) if getattr(np, name, None) is ufunc else special.function_of(ufunc)
    if function is None or ufunc.nout != 1:
        return None
    return _fitted(name, function, ufunc.nin, name, n)


@lru_cache(maxsize=256)
def _fitted(name: str, function: Callable[..., Array], arity: int, key: str, n: int) -> Joining:
    """Return a join of `arity` operands as one of `n`."""
    if n == arity:
        return Joining(name, function, key)
    if arity == 2 and key in _FOLDING:
        if n > 2:
            return Joining(name, lambda *arrays: reduce(function, arrays), key)
        if key not in _NOT_OF_ONE:
            return Joining(name, _identity, key)
    raise ValueError(
        f"join={name!r} joins {arity} operand{'s' * (arity > 1)}, but the expression has {n}; give a function of {n} "
        "arrays"
    )


def parse_agg(agg: Any) -> str:
    """Return the monoid that a name, an associative ufunc or a reducing function of numpy means.

    Raises
    ------
    ValueError
        If there is none.
    """
    agg = of_numpy(agg)
    name = agg if isinstance(agg, str) else getattr(agg, "__name__", "")
    if isinstance(agg, str) or (name and getattr(np, name, None) is agg):
        for known, (monoid, ufunc) in AGGREGATIONS.items():
            if name in (known, ufunc):
                return monoid
    raise ValueError(
        f"agg={agg!r} is no aggregation; known are {_known(AGGREGATIONS)}, and numpy's associative ufuncs "
        f"({', '.join(sorted(_UFUNC.values()))})"
    )


def _known(table: dict[str, Any]) -> str:
    return ", ".join(table)


# ------------------------------------------------------------------------------------------------ aggregations

_UFUNC = dict(AGGREGATIONS.values())


def aggregate(agg: str, node: Expr, axes: tuple[int, ...], dtype: DType) -> Expr:
    """Reduce one array by a monoid over axes, in the dtype of the result."""
    return reductions.folded(_UFUNC[agg], node, axes, dtype)


def aggregated_dtype(agg: str, dtype: DType, wanted: DType | None) -> DType:
    """Return the dtype of what elements of `dtype` aggregate to: numpy's, or `wanted` where the monoid has a choice.

    Raises
    ------
    TypeError
        If numpy aggregates no such elements.
    """
    return ufunc_methods.resolved_dtype(_UFUNC[agg], "reduce", dtype, None if agg in _LOGICAL else wanted)


_LOGICAL = frozenset({"any", "all", "logical_xor"})


def summand_dtype(agg: str, wanted: DType | None) -> DType | None:
    """Return the dtype to which a join is cast before it is aggregated; None: as it is."""
    return np.dtype(bool) if agg in _LOGICAL else wanted


def of_nothing(agg: str, dtype: DType) -> np.generic:
    """Return what no elements aggregate to, as a number of `dtype`.

    Raises
    ------
    ValueError
        If the monoid has no identity; numpy's text.
    """
    value = ufunc_methods.of_nothing(_UFUNC[agg], dtype)
    if value is None:
        raise ValueError(f"zero-size array to reduction operation {_UFUNC[agg]} which has no identity")
    return value


# ------------------------------------------------------------------------------------------------------ tracing


@lru_cache(maxsize=1024)
def traced(joining: Joining, dtypes: tuple[DType, ...], then: DType | None) -> Join:
    """Return the steps of a join of operands of these dtypes, and its dtype; cast to `then` at the end.

    Raises
    ------
    TypeError
        If numpy has no loops for them.
    """
    env = Environment(None)
    operands = [source(np.zeros((), dtype), env) for dtype in dtypes]
    made: Expr = joining.function(*operands)
    if then is not None:
        made = elementwise.astype(made, then, copy=False)
    register = {id(node): i for i, node in enumerate(operands)}
    steps: list[Instruction] = []
    for node in postorder([made]):
        if id(node) not in register:
            inputs = tuple([register[id(o)] for o in node.operands])
            register[id(node)] = len(register)
            steps.append(Instruction(node.op.name, inputs, node.dtype, node.params))
    return Join(joining.name, made.dtype, tuple(steps))


def loop_dtypes(join: Join, dtypes: Sequence[DType]) -> tuple[DType, ...]:
    """Return the dtypes in which the steps of a join read its operands: cast once, they need no cast in every box."""
    known = [*dtypes, *[step.dtype for step in join.steps]]
    read: list[set[DType]] = [set() for _ in dtypes]
    for step in join.steps:
        ufunc = getattr(np, step.function, None)
        if isinstance(ufunc, np.ufunc):
            loop = ufunc.resolve_dtypes((*[known[i] for i in step.registers], *[None] * ufunc.nout))
        else:
            loop = tuple([known[i] for i in step.registers])
        for i, dtype in zip(step.registers, loop):
            if i < len(dtypes):
                read[i].add(dtype)
    return tuple([next(iter(found)) if len(found) == 1 else dtype for found, dtype in zip(read, dtypes)])
