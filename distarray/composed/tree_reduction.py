"""``reduction``: reductions of the user's own, in Dask's spelling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from distarray.arguments import callback, integer, normalize_axes
from distarray.array.out import into
from distarray.composed.user_function import dtype_of, has_keyword, is_array
from distarray.composed.views import as_distarray
from distarray.dtypes import as_dtype
from distarray.errors import NotSupportedError
from distarray.expr.bind import bind, bind_reshape, unbox
from distarray.expr.broadcasting import reduced_shape
from distarray.expr.expr import Expr
from distarray.expr.op import declare
from distarray.types import AxesLike, DType, DTypeLike

#: params: (rule,); late: (steps,)
REDUCTION = declare("reduction", "fold", may_raise=True)


@dataclass(frozen=True, slots=True, eq=False)
class _Steps:
    """_Steps are the functions of a reduction, as `kernels.folds` calls them."""

    functions: tuple[Callable[..., Any], ...]
    axes: tuple[int, ...]
    keepdims: bool
    concatenate: bool
    dtype: DType | None

    def chunk(self, block: Any) -> Any:
        """Return what one block gives."""
        return self.functions[0](block, axis=self.axes, keepdims=True, **self._told(0))

    def combine(self, xp: Any, partials: Sequence[Any]) -> Any:
        """Return one partial result of several."""
        return self.functions[1](self._together(xp, partials), axis=self.axes, keepdims=True)

    def aggregate(self, xp: Any, partials: Sequence[Any]) -> Any:
        """Return the result of what all blocks gave."""
        return self.functions[2](self._together(xp, partials), axis=self.axes, keepdims=self.keepdims, **self._told(2))

    def _told(self, which: int) -> dict[str, DType]:
        has_dtype = self.dtype is not None and has_keyword(self.functions[which], "dtype")
        return {"dtype": self.dtype} if has_dtype else {}  # type: ignore[dict-item]  # it is not None

    def _together(self, xp: Any, partials: Sequence[Any]) -> Any:
        if self.concatenate:
            # Each has been reduced along all axes: along which one they stand in a row does not matter.
            arrays = [xp.asarray(p) for p in partials]
            return xp.concat(arrays, axis=self.axes[0]) if self.axes and len(arrays) > 1 else arrays[0]
        nested = list(partials)
        for _ in self.axes[1:]:
            nested = [[p] for p in nested]
        return nested

    def __repr__(self) -> str:
        return getattr(self.functions[2], "__name__", repr(self.functions[2]))


def reduction(
    x: Any,
    chunk: Callable[..., Any],
    aggregate: Callable[..., Any],
    axis: AxesLike = None,
    keepdims: bool = False,
    dtype: DTypeLike = None,
    split_every: Any = None,
    combine: Callable[..., Any] | None = None,
    name: str | None = None,
    out: Any = None,
    concatenate: bool = True,
    output_size: int = 1,
    meta: Any = None,
    infer: bool = False,
) -> Any:
    """Return a reduction made of functions on blocks.

    Parameters
    ----------
    x
        The array.
    chunk
        Called as ``chunk(block, axis=axes, keepdims=True)`` for each tile. What it gives may be anything that can
        travel; with `concatenate` an array that is reduced along `axis`, with the axes kept.
    aggregate
        Called as ``aggregate(partial, axis=axes, keepdims=keepdims)`` in the end.
    axis
        One axis, several, or None for all.
    dtype
        Of the result; `chunk` and `aggregate` are given it if they have a parameter of that name. Needed, since no
        function is tried out to learn it, unless by `infer`.
    combine
        Called as ``combine(partial, axis=axes, keepdims=True)`` in between; `aggregate` by default.
    concatenate
        Whether `combine` and `aggregate` get the partial results put together in a row along the first of the axes.
        Otherwise they get a list of them, nested as deep as there are axes.
    split_every, name, meta
        Accepted for Dask's sake: up to eight partial results combine in one task.
    infer
        Call the functions once, on a block of one element, to learn the dtype.

    Returns
    -------
    DistArray
        Evaluated at the call, since a user function may raise; see the option ``errors``.

    Examples
    --------
    >>> import numpy as np
    >>> import distarray as dx
    >>> def sums(block, axis, keepdims):
    ...     return np.sum(block * block, axis=axis, keepdims=keepdims)
    >>> dx.reduction(dx.arange(4.0), sums, np.sum, combine=np.sum, dtype="f8").item()
    14.0
    """
    for given, what in ((chunk, "chunk"), (aggregate, "aggregate"), (combine or aggregate, "combine")):
        callback(given, what)
    if integer(output_size, "output_size") != 1:
        raise NotSupportedError(
            f"reduction: output_size={output_size} is not supported; use dx.blockwise with whole blocks"
        )
    operands = unbox("reduction", (x if is_array(x) else as_distarray(x),))
    node = operands.nodes[0]
    assert type(node) is Expr
    axes = normalize_axes(axis, node.ndim)
    said = None if dtype is None else as_dtype(dtype)
    steps = _Steps((chunk, combine or aggregate, aggregate), axes, bool(keepdims), bool(concatenate), said)

    def example() -> Any:
        return steps.aggregate(np, [steps.chunk(np.ones((1,) * node.ndim, node.dtype))])

    found = dtype_of("reduction", dtype, infer, example)
    kept = [a for a in range(node.ndim) if a not in axes]
    rule = " ".join([f"a{a}" for a in range(node.ndim)] or ["()"]) + " -> " + " ".join(f"a{a}" for a in kept)
    made = bind(REDUCTION, (node,), tuple([node.shape[a] for a in kept]), found, (rule,), (steps,))
    made = bind_reshape(made, reduced_shape(node.shape, axes, keepdims))
    return into(out, operands.box(made))
