"""Makers of public functions, one per family of operations: what a table of operations is written with.

An elementwise operation is one line: ``sin = ufunc("sin", 1)`` declares its row of the catalogue and makes its
function.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import wraps
from inspect import unwrap
from typing import Any, ParamSpec, TypeAlias, TypeVar

import numpy as np

from distarray import hooks
from distarray.expr.affine import Affine
from distarray.expr.bind import Box, bind_get, bind_map, literal, nested, numpy_function, unbox
from distarray.expr.expr import SCALARS, Expr
from distarray.expr.op import Op, declare
from distarray.expr.side_by_side import first_environment

P = ParamSpec("P")
R = TypeVar("R")

#: Whatever `unbox` accepts; results are boxed as the first boxed operand is, so the type is the caller's.
Array: TypeAlias = Any


_OUT = frozenset({"out"})


class ufunc:  # the name is numpy's
    """A ufunc is an elementwise function, or one of vectors and matrices, with the options and methods of numpy's.

    Called with operands alone it is its operation. Everything else goes the way of numpy's own function, through
    ``__array_ufunc__``: numpy checks the call, and what it means on distributed arrays is decided in one place.

    Parameters
    ----------
    name
        Under which its module has it, and numpy or, after ``special.``, ``scipy.special`` their own.
    nin
        Number of operands.
    function
        What it does if it is more than the operation of that name, which it declares otherwise.
    options
        Those of numpy's options that the function takes itself.

    Examples
    --------
    >>> import distarray as dx
    >>> x = dx.arange(4.0)
    >>> dx.add(x, 1, out=x).tolist()
    [1.0, 2.0, 3.0, 4.0]
    >>> dx.multiply.reduce(x).item(), dx.add.identity, dx.add
    (24.0, 0, <ufunc 'add'>)
    """

    nin: int
    #: The operation that a call is; None where it is more than one.
    op: Op | None

    def __init__(
        self, name: str, nin: int, function: Callable[..., Any] | None = None, options: Collection[str] = ()
    ) -> None:
        self.nin = nin
        self._name = name
        self._function = function
        self._own = frozenset(options)
        self.op = declare(name, "map") if function is None else None
        self.__module__ = self.op.home if self.op is not None else str(getattr(function, "__module__", None))
        self.__doc__ = None if function is None else function.__doc__
        is_scipys = name.startswith("special.")
        # Of what this release of numpy does not have, as matvec before 2.2, the name is ours.
        self.__name__ = (
            name.removeprefix("special.") if is_scipys else getattr(getattr(np, name, None), "__name__", name)
        )
        self.__qualname__ = self.__name__
        if self.__doc__ is None:
            source = "scipy.special" if is_scipys else "numpy"
            self.__doc__ = f"``{source}.{self.__name__}`` of each element; operands broadcast. Lazy."

    def __call__(self, *operands: Array, **options: Any) -> Any:
        if operands and type(operands[0]) in SCALARS:
            operands = self._of_numbers(operands, options)
        if options or len(operands) != self.nin:
            return self._with_options(operands, options)
        if self.op is not None:
            return bind_map(self.op, operands)
        return self._function(*operands)  # type: ignore[misc]  # one of the two is there

    def _with_options(self, operands: tuple[Any, ...], options: dict[str, Any]) -> Any:
        if self.op is not None and len(operands) == self.nin and options.keys() == _OUT and hooks.update_at_call:
            out = options["out"]
            if hooks.update_at_call(self.op, operands, out):
                return out
        if self._function is not None and self._own.issuperset(options) and len(operands) == self.nin:
            return self._function(*operands, **options)
        return self.numpys(*self._placed(operands, options), **options)

    def _of_numbers(self, operands: tuple[Any, ...], options: dict[str, Any]) -> tuple[Any, ...]:
        """Return several numbers of Python, which all are weak and take the dtypes of the loop that numpy chooses, as
        arrays of these; anything else, and what has no loop, as it is.
        """
        if self.nin == 1 or len(operands) != self.nin or not all(type(v) in SCALARS for v in operands):
            return operands
        dtype, loop = options.get("dtype"), options.get("signature")
        if dtype is not None and loop is None:
            loop = (*[None] * self.nin, *[dtype] * self.nout)
        chosen = {} if loop is None else {"signature": loop}
        known = [np.dtype(bool) if type(v) is bool else type(v) for v in operands]
        try:
            dtypes = loop_dtypes(self.numpys, operands, known, options.get("casting", "same_kind"), **chosen)
        except (TypeError, ValueError, OverflowError):
            return operands  # and numpy, or what binds them, says why
        if any(dtype.kind == "O" for dtype in dtypes):
            return operands
        # Integers that the dtype does not have are an error of numpy's.
        return tuple(
            [np.asarray(v, d) if type(v) is int else np.asarray(v).astype(d) for v, d in zip(operands, dtypes)]
        )

    def reduce(self, array: Array, /, *args: Any, **options: Any) -> Any:
        """Return `array` folded along axes, with numpy's ``axis=0, dtype=None, out=None, keepdims=False, initial=...,
        where=True``.
        """
        return self.numpys.reduce(*self._placed((array,), options), *args, **options)

    def accumulate(self, array: Array, /, *args: Any, **options: Any) -> Any:
        """Return each element joined with all before it, with numpy's ``axis=0, dtype=None, out=None``."""
        return self.numpys.accumulate(*self._placed((array,), options), *args, **options)

    def reduceat(self, array: Array, /, *args: Any, **options: Any) -> Any:
        """Return an axis folded from each index to the next, with numpy's ``indices, axis=0, dtype=None, out=None``."""
        return self.numpys.reduceat(*self._placed((array,), options), *args, **options)

    def outer(self, x: Array, y: Array, /, **options: Any) -> Any:
        """Return every element of `x` with every one of `y`; takes the options of a call."""
        return self.numpys.outer(*self._placed((x, y), options), **options)

    def at(self, x: Array, index: Any, /, *value: Any) -> None:
        """Update `x` in place at an index, each repetition of which counts."""
        self.numpys.at(x, index, *value)

    def resolve_dtypes(self, *args: Any, **options: Any) -> Any:
        """Return the dtypes of the loop that computes for some dtypes: numpy's method of this name."""
        return self.numpys.resolve_dtypes(*args, **options)

    def _placed(self, operands: tuple[Any, ...], options: dict[str, Any]) -> tuple[Any, ...]:
        """Return the operands, one of which becomes an array of ours where no argument is one."""
        out = options.get("out")
        outs = out if type(out) is tuple else (out,)
        operands = tuple(map(nested, operands))
        if not operands or any(map(_is_ours, (*operands, *outs))):
            return operands
        assert hooks.adopt is not None
        env, box = hooks.adopt()
        arrays = [i for i, v in enumerate(operands) if not isinstance(v, bool | int | float | complex)]
        at = arrays[0] if arrays else 0  # numbers of Python stay weak where there is an array
        node = literal(operands[at], first_environment(options.values()) or env, self._name)
        return (*operands[:at], box(node), *operands[at + 1 :])

    @property
    def numpys(self) -> Any:
        """Return the function of numpy or SciPy on which calls with options are made."""
        return numpy_function(self._name)

    def __getattr__(self, name: str) -> Any:
        if name == "__signature__":  # made when somebody asks: it is no property, which the class would have too
            return _call_signature(self)
        raise AttributeError(f"'ufunc' object has no attribute {name!r}")

    @property
    def nout(self) -> int:
        """Return the number of results."""
        return int(self.numpys.nout)

    @property
    def nargs(self) -> int:
        """Return the number of operands and results."""
        return self.nin + self.nout

    @property
    def types(self) -> list[str]:
        """Return the loops, in numpy's letters of dtypes; there are none of Python objects."""
        return [loop for loop in self.numpys.types if "O" not in loop]

    @property
    def ntypes(self) -> int:
        """Return the number of loops."""
        return len(self.types)

    @property
    def identity(self) -> Any:
        """Return the result of a reduction of nothing; None if there is none."""
        return self.numpys.identity

    @property
    def signature(self) -> str | None:
        """Return the axes of vectors and matrices that the function works on, as ``(n),(n)->()``; None for
        elementwise functions.
        """
        return self.numpys.signature

    def __repr__(self) -> str:
        return f"<ufunc {self.__name__!r}>"

    def __reduce__(self) -> str:
        return self._name.removeprefix("special.")  # found again under its name in its module


def loop_dtypes(
    function: np.ufunc, operands: Sequence[Any], known: Sequence[Any], casting: str, **chosen: Any
) -> tuple[np.dtype[Any], ...]:
    """Return the dtypes of the loop that numpy chooses for operands, of which `known` are the dtypes, or the types of
    Python's numbers; its TypeError where there is none, or it does not cast to it.
    """
    # Of a number that does not cast so, NumPy 2.4 ends the process below.
    if casting == "equiv" and any(type(v) in SCALARS for v in operands):
        empty = [v if type(v) in SCALARS else np.empty((0,) * max(v.ndim, 1), d) for v, d in zip(operands, known)]
        with np.errstate(all="ignore"):
            function(*empty, casting=casting, **chosen)
    return function.resolve_dtypes((*known, *[None] * function.nout), casting=casting, **chosen)  # type: ignore[arg-type]


def ready_made(n: int | None, *, is_boxed: bool = False) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator of functions of `n` arrays, None for any number, and of static arguments: on small arrays that
    are here they are computed at the call, by what was made ready at an earlier one.

    What such a function makes depends on shapes, dtypes and the other arguments alone, and of arrays that have elements
    it warns of nothing.

    Parameters
    ----------
    is_boxed
        Whether it takes boxed arrays alone: it is composed of others, and makes what it makes of them without looking
        at elements.
    """

    def decorated(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def called(*args: P.args, **options: P.kwargs) -> R:
            at_call = hooks.call_at_call
            n_arrays = len(args) if n is None else n
            if at_call is not None and args and len(args) >= n_arrays and type(args[0]) is not Expr:
                made: R | None = at_call(function, args[:n_arrays], args[n_arrays:], options, is_boxed)
                if made is not None:
                    return made
            return function(*args, **options)

        return called

    return decorated


def by_numpy(
    numpys: Callable[..., Any], bound: Callable[..., int] | None = None
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator of functions that numpy's function has to the bit, of the same arguments: on small arrays that
    are here that one is called.

    Parameters
    ----------
    bound
        From the arguments, the bytes that the result may take; None: about as many as the operands.
    """

    def decorated(function: Callable[P, R]) -> Callable[P, R]:
        code = unwrap(function).__code__
        names = code.co_varnames[: code.co_argcount]
        most = names.index("out") if "out" in names else len(names)  # what is written to is none of the operands

        @wraps(function)
        def called(*args: P.args, **options: P.kwargs) -> R:
            if hooks.call_by_numpy is not None and len(args) <= most:
                made: R | None = hooks.call_by_numpy(numpys, args, options, bound)
                if made is not None:
                    return made
            return function(*args, **options)

        return called

    return decorated


def of_numpy(function: Any) -> Any:
    """Return numpy's function for a `ufunc`, and anything else as it is."""
    return function.numpys if isinstance(function, ufunc) else function


def _is_ours(value: object) -> bool:
    return hasattr(type(value), "__dx_node__")


def _call_signature(function: ufunc) -> Any:
    """Return numpy's signature of the call of a ufunc; operands have the standard's names."""
    from inspect import Parameter, Signature

    names = ["x"] if function.nin == 1 else [f"x{i}" for i in range(1, function.nin + 1)]
    out = None if function.nout == 1 else (None,) * function.nout
    options: dict[str, Any] = {"where": True}
    if function.signature is not None:
        options = {"axes": None, "axis": -1 if function._name == "vecdot" else None, "keepdims": False}
    options |= {"casting": "same_kind", "order": "K", "dtype": None, "subok": True, "signature": None}
    return Signature(
        [
            *[Parameter(name, Parameter.POSITIONAL_ONLY) for name in names],
            Parameter("out", Parameter.POSITIONAL_OR_KEYWORD, default=out),
            *[Parameter(name, Parameter.KEYWORD_ONLY, default=value) for name, value in options.items()],
        ]
    )


def ufunc_of(nin: int, *options: str) -> Callable[[Callable[..., Any]], ufunc]:
    """Return a decorator that makes a ufunc of a function of `nin` operands that is more than one operation."""
    return lambda function: ufunc(function.__name__, nin, function, options)


def one_array(name: str, x: Array) -> tuple[Expr, Box]:
    """Return the node of the only operand of `name`, and how to box the result.

    Raises
    ------
    TypeError
        If `x` is no array of distarray.
    """
    operands = unbox(name, (x,))
    node = operands.nodes[0]
    assert type(node) is Expr
    return node, operands.box


def view(name: str, x: Array, lens_of: Callable[..., Affine], *args: Any) -> Array:
    """Return `x` read through the lens that its shape and these arguments give."""
    node, box = one_array(name, x)
    return box(bind_get(node, lens_of(node.shape, *args)))
