"""User functions on blocks: ``map_blocks`` with Dask's signature.

A user function is an operation like any other: it has a ShardingRule, made from the shapes of its operands, and is
called once per tile of the result with the blocks of its operands there. It is never called at definition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from distarray.dtypes import as_dtype
from distarray.expr.bind import bind, broadcast_shapes, normalize_axes, unbox
from distarray.expr.expr import Expr
from distarray.expr.op import declare
from distarray.types import DTypeLike

__all__ = ["UserFunction", "map_blocks"]

MAP_BLOCKS = declare("map_blocks", "block", may_raise=True)


class UserFunction:
    """A function with its fixed arguments; equal, for plans, if all of them are.

    Parameters
    ----------
    function
        Called with a block in each place of `template` that is None, in order, and `keywords`.
    template
        Positional arguments; None stands for a block.
    """

    __slots__ = ("function", "keywords", "template")

    def __init__(self, function: Callable[..., Any], template: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        self.function = function
        self.template = template
        self.keywords = keywords

    def __call__(self, *blocks: Any) -> Any:
        given = iter(blocks)
        return self.function(*[next(given) if a is _BLOCK else a.value for a in self.template], **self.keywords)

    def __hash__(self) -> int:
        return hash(self.function)

    def __eq__(self, other: object) -> bool:
        # fixed arguments may be arrays, whose comparison is no bool: identity of each is enough to share a plan
        return (
            isinstance(other, UserFunction)
            and self.function == other.function
            and len(self.template) == len(other.template)
            and all(a is b or (a is not _BLOCK and b is not _BLOCK and a.value is b.value)
                    for a, b in zip(self.template, other.template, strict=True))
            and self.keywords.keys() == other.keywords.keys()
            and all(self.keywords[k] is other.keywords[k] for k in self.keywords)
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self.function, tuple([None if a is _BLOCK else (a.value,) for a in self.template]), self.keywords)

    def __repr__(self) -> str:
        return getattr(self.function, "__name__", repr(self.function))


class _Fixed:
    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


_BLOCK = _Fixed(None)


def _restore(function: Any, template: tuple[Any, ...], keywords: dict[str, Any]) -> UserFunction:
    return UserFunction(function, tuple([_BLOCK if a is None else _Fixed(a[0]) for a in template]), keywords)


def map_blocks(
    func: Callable[..., Any],
    *args: Any,
    dtype: DTypeLike = None,
    chunks: Any = None,
    drop_axis: int | Sequence[int] | None = None,
    new_axis: int | Sequence[int] | None = None,
    name: str | None = None,
    infer: bool = False,
    **kwargs: Any,
) -> Any:
    """Call a function on the blocks of arrays that broadcast together.

    Parameters
    ----------
    func
        Takes one block for each array of `args`, other arguments as they are. Its result must have the shape of the
        broadcast blocks, but for `drop_axis` and `new_axis`. It must work for blocks of any size: the planner cuts.
    args
        Arrays and other arguments.
    dtype
        Of the result. Needed, since the function is never called at definition, unless `infer`.
    chunks
        Extents of the new axes: an int or one for each; 1 by default.
    drop_axis, new_axis
        Axes of the broadcast operands that the result lacks (they are never cut), and axes of the result that are new.
    name
        Accepted for Dask's sake; plans and keys do not use it.
    infer
        Call the function once, on blocks of one element, to learn the dtype.
    kwargs
        Passed to the function.

    Returns
    -------
    DistArray
        Evaluated at the call, since a user function may raise; see the option ``errors``.

    Raises
    ------
    TypeError
        If nothing says the dtype, or no argument is an array.

    Examples
    --------
    >>> import distarray as dx
    >>> dx.map_blocks(lambda block: block * 2, dx.arange(3), dtype="int64").tolist()
    [0, 2, 4]
    """
    arrays = [a for a in args if hasattr(type(a), "__dx_node__") or type(a) is Expr]
    template = tuple([_BLOCK if hasattr(type(a), "__dx_node__") or type(a) is Expr else _Fixed(a) for a in args])
    operands = unbox("map_blocks", arrays)
    nodes = [n for n in operands.nodes if type(n) is Expr]
    shape = broadcast_shapes(*[n.shape for n in nodes])
    function = UserFunction(func, template, kwargs)
    if dtype is None:
        if not infer:
            raise TypeError(
                "map_blocks: say dtype=, or infer=True to have the function called once on blocks of one element"
            )
        dtype = np.asarray(function(*[np.ones((1,) * n.ndim, n.dtype) for n in nodes])).dtype
    dropped = () if drop_axis is None else normalize_axes(drop_axis, len(shape), "drop_axis")
    added = (new_axis,) if isinstance(new_axis, int) else tuple(new_axis or ())
    added = normalize_axes(added, len(shape) - len(dropped) + len(added), "new_axis")
    extents = (chunks,) * len(added) if isinstance(chunks, int) else tuple(chunks or (1,) * len(added))
    if len(extents) != len(added):
        raise ValueError(f"map_blocks: chunks={chunks!r} gives {len(extents)} extents for {len(added)} new axes")
    kept = iter([a for a in range(len(shape)) if a not in dropped])
    new = dict(zip(added, extents, strict=True))
    result: list[str] = []
    result_shape: list[int] = []
    for i in range(len(shape) - len(dropped) + len(added)):
        if i in new:
            result.append(f"n{i}")
            result_shape.append(int(new[i]))
        else:
            a = next(kept)
            result.append(f"a{a}")
            result_shape.append(shape[a])
    terms = []
    for n in nodes:
        first = len(shape) - n.ndim
        terms.append(" ".join("1" if m != shape[first + i] else f"a{first + i}" for i, m in enumerate(n.shape)) or "()")
    clauses = [f"a{a}: whole" for a in dropped] + [f"n{i}: new({n})" for i, n in new.items()]
    rule = ", ".join(terms) + " -> " + " ".join(result) + (" | " + ", ".join(clauses) if clauses else "")
    return bind(MAP_BLOCKS, (), tuple(result_shape), as_dtype(dtype), (rule, function), None, operands)
