"""numpy's ``vectorize`` and ``frompyfunc``: functions of Python numbers, called for each element in the tasks.

What numpy's classes check and keep is theirs; here is where the elements are and which dtype results have. There are no
arrays of Python objects, so a dtype has to be known: it is said, or found by a call with the first elements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from distarray.arguments import NOT_GIVEN, callback, integer
from distarray.composed.gufunc import Signature, apply_gufunc
from distarray.composed.user_function import UserFunction
from distarray.composed.views import all_beside
from distarray.dtypes import as_dtype
from distarray.errors import NotSupportedError
from distarray.types import DType, DTypeLike


class vectorize:  # the name is numpy's
    """A vectorize is a function of Python numbers as one of arrays, which broadcast; the function is called for each
    element.

    Parameters
    ----------
    pyfunc
        The function; without it, the object is a decorator.
    otypes
        dtypes of the results, as text of numpy's letters or a sequence. Without them the function is called once at the
        definition of a result, with the first elements, which are computed.
    doc
        Its docstring.
    excluded
        Positions and names of arguments that are passed as they are.
    cache
        numpy's; the first call serves for the dtypes alone, since results are made in other places.
    signature
        numpy's core dimensions, ``"(i),(i)->()"``: the function is called with arrays of these.

    Returns
    -------
    DistArray, or tuple of them
        Evaluated at the call, since a user function may raise; see the option ``errors``.

    Raises
    ------
    NotSupportedError
        If results are objects or text.

    Examples
    --------
    >>> import distarray as dx
    >>> @dx.vectorize(otypes="d")
    ... def larger(a, b):
    ...     return a if a > b else b
    >>> larger(dx.arange(4.0), 1.5).tolist()
    [1.5, 1.5, 2.0, 3.0]
    """

    def __init__(
        self,
        pyfunc: Any = NOT_GIVEN,
        otypes: Any = None,
        doc: str | None = None,
        excluded: Any = None,
        cache: bool = False,
        signature: str | None = None,
    ) -> None:
        self._options = {"otypes": otypes, "doc": doc, "excluded": excluded, "cache": cache, "signature": signature}
        self._numpys = np.vectorize(pyfunc, **self._options)
        if pyfunc is not NOT_GIVEN:
            callback(pyfunc, "pyfunc")
            self.__name__ = getattr(pyfunc, "__name__", type(pyfunc).__name__)
            self.__doc__ = self._numpys.__doc__
        self.pyfunc = pyfunc
        self.signature = signature
        self.excluded: set[int | str] = self._numpys.excluded
        self.otypes: str | list[DType] | None = self._numpys.otypes  # before numpy 2.4 letters, which lack units
        if self.otypes is not None:
            _checked([as_dtype(letter) for letter in self.otypes], "otypes")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.pyfunc is NOT_GIVEN:
            return vectorize(*args, **self._options)
        places = [i for i in range(len(args)) if i not in self.excluded]
        names = [name for name in kwargs if name not in self.excluded]
        given = [args[i] for i in places] + [kwargs[name] for name in names]
        if not given:
            return self.pyfunc(*args, **kwargs)
        # what is filled in is not kept
        template = tuple([None if i in places else (value,) for i, value in enumerate(args)])
        fixed = {name: None if name in names else value for name, value in kwargs.items()}
        function = UserFunction(self.pyfunc, template, fixed, tuple(names))
        return _applied(function, given, self.signature, self.otypes)


def _applied(
    function: Callable[..., Any], given: Sequence[Any], signature: str | None, otypes: Sequence[DTypeLike] | None
) -> Any:
    """Return a function of elements, or of the core dimensions of `signature`, applied to arrays."""
    arrays = all_beside(*given)
    sizes: dict[str, int] = {}
    if otypes is None:
        results = _first_results(function, arrays, signature)
        dtypes = _checked([r.dtype for r in results], "the results of the first call")
        n_results = len(results)
        if signature is not None:
            terms = Signature.parse(signature).results
            sizes = {n: size for t, r in zip(terms, results) for n, size in zip(t, r.shape)}
    else:
        dtypes = [as_dtype(each) for each in otypes]
        n_results = len(dtypes)
    if signature is not None:
        return apply_gufunc(
            function, signature, *arrays, output_dtypes=dtypes, vectorize=True, output_sizes=sizes or None
        )
    text = f"{','.join(['()'] * len(arrays))}->{','.join(['()'] * n_results)}"
    on_blocks = np.vectorize(function, otypes=dtypes)
    return apply_gufunc(on_blocks, text, *arrays, output_dtypes=dtypes)


def _first_results(function: Callable[..., Any], arrays: Sequence[Any], signature: str | None) -> list[Any]:
    """Return what the function gives for the first elements, as arrays of numpy."""
    if any(not x.size for x in arrays):
        raise ValueError("cannot call `vectorize` on size 0 inputs unless `otypes` is set")
    cores = None if signature is None else Signature.parse(signature)
    if cores is None:
        values = [x[(0,) * x.ndim].compute()[()] for x in arrays]  # numpy's numbers have the dtypes that results follow
    else:
        values = [x[(0,) * (x.ndim - len(t))].compute() for x, t in zip(arrays, cores.operands)]
    made = function(*values)
    several = isinstance(made, tuple) and (cores is None or len(cores.results) > 1)
    return [np.asarray(r) for r in (made if several else (made,))]


def _checked(dtypes: list[DType], what: str) -> list[DType]:
    for dtype in dtypes:
        if dtype.kind not in "biufcmM":
            raise NotSupportedError(
                f"vectorize: {what} are of {dtype}, and arrays hold numbers, dates and booleans; say otypes= of such a "
                "dtype"
            )
    return dtypes


class frompyfunc:  # the name is numpy's
    """A frompyfunc is a function of Python numbers with a fixed number of operands and results, called for each
    element.

    numpy's gives arrays of Python objects, which there are none of: a call says the dtype of its results.

    Parameters
    ----------
    func
        Called with Python numbers.
    nin, nout
        Numbers of operands and results.
    identity
        The result of a reduction of nothing.

    Examples
    --------
    >>> import distarray as dx
    >>> gcd = dx.frompyfunc(lambda a, b: a if not b else gcd.pyfunc(b, a % b), 2, 1)
    >>> gcd(dx.asarray([12, 18]), 8, dtype="i8").tolist()
    [4, 2]
    """

    def __init__(self, func: Callable[..., Any], /, nin: int, nout: int, *, identity: Any = None) -> None:
        self.pyfunc = callback(func, "func")
        self.nin = integer(nin, "nin")
        self.nout = integer(nout, "nout")
        self.identity = identity
        np.frompyfunc(func, self.nin, self.nout)  # numpy's errors
        self.__name__ = getattr(func, "__name__", "?")

    @property
    def nargs(self) -> int:
        """Return the number of operands and results."""
        return self.nin + self.nout

    def __call__(self, *operands: Any, dtype: DTypeLike = None) -> Any:
        if len(operands) != self.nin:
            raise TypeError(f"{self.__name__}() takes {self.nin} positional arguments but {len(operands)} were given")
        if dtype is None:
            raise NotSupportedError(
                f"{self.__name__}: numpy makes an array of Python objects here, which there is none of; say dtype= at "
                "the call, or use distarray.vectorize"
            )
        (found,) = _checked([as_dtype(dtype)], "the results")
        return _applied(self.pyfunc, operands, None, [found] * self.nout)

    def __repr__(self) -> str:
        return f"<ufunc {self.__name__ + ' (vectorized)'!r}>"
