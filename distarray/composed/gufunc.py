"""Generalised ufuncs of the user: ``apply_gufunc``, ``gufunc`` and ``as_gufunc``, in Dask's spelling.

A signature like ``(i),(i)->()`` says which axes the function needs whole: those are resharded as the planner sees fit.
All others are loops, which broadcast, and are cut freely.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from distarray.arguments import callback, count, mapping, normalize_axis, sequence, shown
from distarray.array import window
from distarray.composed.grid import sharding_when_read
from distarray.composed.user_function import MAP_BLOCKS, UserFunction, examples, is_array
from distarray.deferral import errors_wait
from distarray.dtypes import as_dtype
from distarray.expr.bind import Operands, bind, bind_get, bind_reshape, unbox
from distarray.expr.broadcasting import broadcast_shapes
from distarray.expr.expr import ITEM, Expr
from distarray.expr.params import ItemParams
from distarray.ops.lenses import moveaxis_lens
from distarray.types import DType, Shape

_TERM = r"\((?:\w+(?:,\w+)*)?\)"
_SIGNATURE = re.compile(rf"({_TERM}(?:,{_TERM})*)?->({_TERM}(?:,{_TERM})*),?")


class Signature(NamedTuple):
    """A Signature is the core dimensions of each operand and result; whether results come in a tuple."""

    operands: tuple[tuple[str, ...], ...]
    results: tuple[tuple[str, ...], ...]
    has_several: bool

    @classmethod
    def parse(cls, text: str) -> Signature:
        """Return the signature written as `text`.

        >>> Signature.parse("(i,j),(j)->(i)").operands
        (('i', 'j'), ('j',))
        """
        if not isinstance(text, str):
            raise TypeError(f"apply_gufunc: the signature must be a string, not {type(text).__name__}")
        plain = re.sub(r"\s+", "", text)
        if not _SIGNATURE.fullmatch(plain):
            raise ValueError(f"Not a valid gufunc signature: {text}")
        left, right = plain.split("->")
        results = _terms(right)
        return cls(_terms(left), results, len(results) > 1 or right.endswith(","))


def _terms(text: str) -> tuple[tuple[str, ...], ...]:
    return tuple([tuple(filter(None, term[1:-1].split(","))) for term in re.findall(_TERM, text)])


def apply_gufunc(
    func: Callable[..., Any],
    signature: str,
    *args: Any,
    axes: Sequence[Any] | None = None,
    axis: int | None = None,
    keepdims: bool = False,
    output_dtypes: Any = None,
    output_sizes: Mapping[str, int] | None = None,
    vectorize: bool = False,
    allow_rechunk: bool = True,
    meta: Any = None,
    infer: bool = False,
    **kwargs: Any,
) -> Any:
    """Apply a function that has core dimensions to arrays, over all other axes.

    Parameters
    ----------
    func
        Takes a block for each array, with the core dimensions last, and gives one for each result: an array, or a tuple
        where the signature has several. Its other axes broadcast.
    signature
        numpy's: the core dimensions of operands and results, ``"(i),(j)->(i,j)"``.
    *args
        Arrays.
    axes
        For each operand, and each result that has core dimensions, where these are: a list of tuples (or of ints).
    axis
        Where the one core dimension is that operands and results share.
    keepdims
        Leave reduced core dimensions in the results with extent 1, for signatures whose results have none.
    output_dtypes
        The dtype of the result, or one for each. Needed, since the function is not tried out to learn it, unless
        by `infer`; Dask's ``meta=`` serves too.
    output_sizes
        Extents of core dimensions that only results have.
    vectorize
        Whether the function takes the core dimensions alone, and is to be called for each element of the loops.
    allow_rechunk
        If false, core dimensions that lie in several tiles raise.
    infer
        Call the function once, on blocks of one element, to learn the dtypes.
    **kwargs
        Passed to the function.

    Returns
    -------
    DistArray, or tuple of them
        Evaluated at the call, since a user function may raise; see the option ``errors``.

    Raises
    ------
    ValueError
        If the signature is none, or does not fit the arrays.

    Examples
    --------
    >>> import numpy as np
    >>> import distarray as dx
    >>> x = dx.arange(6.0).reshape(2, 3)
    >>> mean, std = dx.apply_gufunc(lambda b: (b.mean(-1), b.std(-1)), "(i)->(),()", x, output_dtypes=("f8", "f8"))
    >>> mean.tolist()
    [1.0, 4.0]
    >>> outer = dx.apply_gufunc(np.outer, "(i),(j)->(i,j)", x, x, vectorize=True, output_dtypes="f8")
    >>> outer.shape
    (2, 3, 3)
    """
    callback(func, "func")
    parsed = Signature.parse(signature)
    if len(args) != len(parsed.operands):
        raise ValueError(
            f"apply_gufunc: the signature {signature} has {len(parsed.operands)} operands, not {len(args)}"
        )
    operands = unbox("apply_gufunc", [a if is_array(a) else np.asarray(a) for a in args])
    nodes = [n for n in operands.nodes if type(n) is Expr]
    places = _CoreAxes.parse(parsed, nodes, axes, axis, keepdims)
    moved = [
        bind_get(node, moveaxis_lens(node.shape, own, tuple(range(-len(own), 0))))
        for node, own in zip(nodes, places.operands, strict=True)
    ]
    core = _core_extents(parsed, moved, mapping(output_sizes, "output_sizes", "names to extents"))
    if not allow_rechunk:
        _require_whole(parsed, moved)
    plain = re.sub(r"\s+", "", signature)
    called = np.vectorize(func, signature=plain) if vectorize else func
    if meta is not None:
        output_dtypes = tuple([m.dtype for m in meta]) if isinstance(meta, tuple | list) else meta.dtype
    dtypes = _output_dtypes(called, parsed, moved, output_dtypes, infer, kwargs)
    if vectorize:
        func = np.vectorize(func, signature=plain, otypes=dtypes)
    made = _bound(UserFunction(func, (None,) * len(nodes), kwargs), parsed, moved, core, dtypes, operands)
    results = [places.placed(node, k) for k, node in enumerate(made)]
    if not errors_wait():
        window.run(*results)  # all at once: the function is called once per tile
    boxed = tuple([operands.box(node) for node in results])
    return boxed if parsed.has_several else boxed[0]


# ---------------------------------------------------------------------------------------------------- axes


class _CoreAxes(NamedTuple):
    """_CoreAxes say where the core dimensions are: axes of each operand and result."""

    operands: tuple[tuple[int, ...], ...]
    results: tuple[tuple[int, ...], ...]
    keepdims: bool

    @classmethod
    def parse(
        cls, signature: Signature, nodes: Sequence[Expr], axes: Any, axis: int | None, keepdims: bool
    ) -> _CoreAxes:
        """Return what ``axes=``, ``axis=`` and ``keepdims=`` say."""
        if axes is not None and axis is not None:
            raise ValueError("Only one of `axis` or `axes` keyword arguments should be given")
        if keepdims and any(signature.results):
            raise ValueError("`keepdims` can only be used for scalar outputs")
        ins, outs = signature.operands, signature.results
        if axis is not None:
            # As numpy's: operands and results without core dimensions may stand beside.
            if len({*ins, *outs} - {()}) != 1 or max(map(len, ins)) != 1:
                names = ", ".join(sorted({name for term in (*ins, *outs) for name in term}))
                raise ValueError(
                    f"apply_gufunc: axis={shown(axis)} is for one core dimension that all operands and results share, "
                    f"and the core dimensions here are {names or 'none'}; say axes= for each of them"
                )
            axes = [(axis,) if term else () for term in (*ins, *outs)]
        if axes is None:
            given = [tuple(range(-len(term), 0)) for term in (*ins, *outs)]
        else:
            given = [a if isinstance(a, tuple) else (a,) for a in sequence(axes, "axes", "axes of each array")]
            if len(given) == len(ins):
                given += [() if not term else tuple(range(-len(term), 0)) for term in outs]
        if len(given) != len(ins) + len(outs):
            raise ValueError(
                f"apply_gufunc: axes has {len(given)} entries for {len(ins)} operands, {len(outs)} results"
            )
        if keepdims:
            given[len(ins) :] = [max(given[: len(ins)], key=len)] * len(outs)
        for term, own in zip((*ins, *outs), given, strict=True):
            if len(term) != len(own) and not (keepdims and not term):
                raise ValueError(f"apply_gufunc: axes {own} for the core dimensions {term}")
        found = [
            tuple([normalize_axis(a, node.ndim, "axes") for a in own])
            for node, own in zip(nodes, given[: len(ins)], strict=True)
        ]
        return cls(tuple(found), tuple(given[len(ins) :]), bool(keepdims))

    def placed(self, node: Expr, k: int) -> Expr:
        """Return result number `k` with its core dimensions, which are last, where they are asked for."""
        own = self.results[k]
        if self.keepdims:
            node = bind_reshape(node, (*node.shape, *(1,) * len(own)))
        last = tuple(range(-len(own), 0))
        return node if own == last else bind_get(node, moveaxis_lens(node.shape, last, own))


def _core_extents(signature: Signature, nodes: Sequence[Expr], sizes: dict[str, int]) -> dict[str, int]:
    """Return the extent of each core dimension."""
    extents: dict[str, int] = {}
    for term, node in zip(signature.operands, nodes, strict=True):
        if node.ndim < len(term):
            raise ValueError(f"apply_gufunc: an operand of shape {node.shape} lacks the core dimensions {term}")
        for name, n in zip(term, node.shape[node.ndim - len(term) :], strict=True):
            if extents.setdefault(name, n) != n:
                raise ValueError(f"Dimension `'{name}'` with different lengths in arrays: {extents[name]} and {n}")
    for name in {name for term in signature.results for name in term} - extents.keys():
        if name not in sizes:
            raise ValueError(f"apply_gufunc: core dimension {name!r} is in no operand; give its extent in output_sizes")
        extents[name] = count(sizes[name], f"output_sizes[{name!r}]")
    return extents


def _require_whole(signature: Signature, nodes: Sequence[Expr]) -> None:
    for term, node in zip(signature.operands, nodes, strict=True):
        parts = sharding_when_read(node).parts
        for name, n in zip(term, parts[len(parts) - len(term) :], strict=True):
            if n > 1:
                raise ValueError(
                    f"Core dimension `'{name}'` consists of multiple chunks. To fix, rechunk into a single chunk along "
                    "this dimension or set `allow_rechunk=True`"
                )


# ------------------------------------------------------------------------------------------------ the node


def _output_dtypes(
    func: Callable[..., Any], signature: Signature, nodes: Sequence[Expr], given: Any, infer: bool, kwargs: Any
) -> list[DType]:
    n = len(signature.results)
    if given is None:
        if not infer:
            raise TypeError(
                "apply_gufunc: say output_dtypes=, or infer=True to have the function called once on blocks of one "
                "element"
            )
        found = func(*examples(nodes), **kwargs)
        return [as_dtype(np.asarray(f).dtype) for f in (found if signature.has_several else (found,))]
    several = list(given) if isinstance(given, tuple | list) else [given]
    if len(several) != n:
        raise ValueError(f"apply_gufunc: output_dtypes has {len(several)} dtypes for {n} results")
    return [as_dtype(d) for d in several]


def _bound(
    function: UserFunction,
    signature: Signature,
    nodes: Sequence[Expr],
    core: Mapping[str, int],
    dtypes: Sequence[DType],
    operands: Operands,
) -> list[Expr]:
    """Return a node for each result."""
    n_loops = [node.ndim - len(t) for node, t in zip(nodes, signature.operands, strict=True)]
    loops = broadcast_shapes(*[node.shape[:n] for node, n in zip(nodes, n_loops, strict=True)]) if nodes else ()
    terms, whole = [], []
    for k, (node, n) in enumerate(zip(nodes, n_loops, strict=True)):
        first = len(loops) - n
        own = [f"l{first + i}" if node.shape[i] == loops[first + i] else "1" for i in range(n)]
        # A name of its own for each axis: a core dimension may stand twice in one operand.
        names = [f"c{k}x{i}" for i in range(node.ndim - n)]
        whole += [f"{name}: whole" for name in names]
        terms.append(" ".join([*own, *names]) or "()")
    shapes: list[Shape] = []
    results = []
    for k, term in enumerate(signature.results):
        names = [f"n{k}x{i}" for i in range(len(term))]
        whole += [f"{name}: new({core[d]})" for name, d in zip(names, term, strict=True)]
        results.append(" ".join([*(f"l{i}" for i in range(len(loops))), *names]))
        shapes.append((*loops, *(core[d] for d in term)))
    rule = ", ".join(terms) + " -> " + ", ".join(results) + (" | " + ", ".join(whole) if whole else "")
    params = (rule, *[d.str for d in dtypes])
    given = Operands(list(nodes), operands.env, lambda node: node)
    if not signature.has_several:
        return [bind(MAP_BLOCKS, (), shapes[0], dtypes[0], params, (function,), given)]
    if len(shapes) == 1:
        only = _First(function.function, function.template, function.keywords)
        return [bind(MAP_BLOCKS, (), shapes[0], dtypes[0], params, (only,), given)]
    made = bind(MAP_BLOCKS, (), tuple(shapes), tuple(dtypes), params, (function,), given)
    return [bind(ITEM, (made,), s, d, ItemParams(k)) for k, (s, d) in enumerate(zip(shapes, dtypes, strict=True))]


class _First(UserFunction):
    """A _First is a function that returns a tuple of one, as the one."""

    __slots__ = ()

    def __call__(self, *blocks: Any, **more: Any) -> Any:
        (result,) = super().__call__(*blocks, **more)
        return result


class gufunc:  # the name is Dask's
    """A gufunc is a function with a signature, to be called on arrays; see `apply_gufunc` for the parameters.

    Examples
    --------
    >>> import numpy as np
    >>> import distarray as dx
    >>> norm = dx.gufunc(lambda b: np.sqrt((b * b).sum(-1)), signature="(i)->()", output_dtypes="f8")
    >>> norm(dx.asarray([[3.0, 4.0], [6.0, 8.0]])).tolist()
    [5.0, 10.0]
    """

    def __init__(self, pyfunc: Callable[..., Any], *, signature: str, **options: Any) -> None:
        Signature.parse(signature)
        self.pyfunc = pyfunc
        self.signature = signature
        self.options = options
        self.__doc__ = getattr(pyfunc, "__doc__", None) or self.__doc__

    def __call__(self, *args: Any, **options: Any) -> Any:
        return apply_gufunc(self.pyfunc, self.signature, *args, **(self.options | options))


def as_gufunc(signature: str, **options: Any) -> Callable[[Callable[..., Any]], gufunc]:
    """Return a decorator that makes a `gufunc` of a function.

    Examples
    --------
    >>> import distarray as dx
    >>> @dx.as_gufunc("(i)->()", output_dtypes="f8")
    ... def span(block):
    ...     return block.max(-1) - block.min(-1)
    >>> span(dx.asarray([[1.0, 5.0], [2.0, 3.0]])).tolist()
    [4.0, 1.0]
    """
    return lambda pyfunc: gufunc(pyfunc, signature=signature, **options)
