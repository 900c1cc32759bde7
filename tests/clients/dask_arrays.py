"""Our arrays where the tests of dask.array import its own: ``import dask.array as da`` gives what stands here.

`backend` enters this before the tests are collected and leaves it afterwards, so that what is imported at run time, by
`distarray` too, is dask's. A name that we have is ours, told with Dask's ``chunks=`` and ``split_every=``; one that we
have not raises `NotOurs` where it is called. The tests use a few helpers of dask's own, which stay.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import ModuleType
from typing import Any

import dask
import dask.array
import numpy
from dask.array import utils
from dask.array.core import normalize_chunks
from dask.array.lib import stride_tricks
from dask.base import tokenize

#: Modules of ours below those of dask.array; the names of its other modules are those of `distarray`.
PARTS = ("fft", "linalg", "random")
#: Modules that stay as they are.
THEIRS = ("numpy_compat", "dispatch", "tests")
#: What the tests compute, compare and say with, beside the functions that they are of.
HELPERS = ("normalize_chunks", "allclose", "svd_flip", "_not_implemented_message")
#: Functions that give blocks to a function: their ``chunks=`` are those of what it returns.
ON_BLOCKS = ("map_blocks", "map_overlap", "blockwise", "apply_gufunc", "gufunc", "as_gufunc", "reduction")
#: What Dask's functions are told of how they shall work; ours decide that.
HOW = (
    "split_every lock inline_array asarray fancy name scheduler internal_method automatic_rechunk merge_chunks limit "
    "traverse"
).split()
#: Methods that take the words of `HOW`.
METHODS = "all any argmax argmin cumprod cumsum max mean min prod reshape std sum var".split()


class NotOurs(Exception):
    """A name of dask.array that we have not."""


class Absent:
    """Stands for a name that we have not: it can be named where tests are collected, and not be called."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __getattr__(self, name: str) -> Absent:
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(f"{self.__name__}.{name}")

    def __call__(self, *args: Any, **options: Any) -> Any:
        raise NotOurs(f"{self.__name__} of dask.array is not ours")


class Front(ModuleType):
    """A module of dask.array with our names in it."""

    def __init__(self, name: str, theirs: ModuleType, ours: Any) -> None:
        super().__init__(name)
        self.theirs, self.ours = theirs, ours
        self.__path__ = list(getattr(theirs, "__path__", []))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name == "Array":
            found = xp().ndarray
        elif name in FUNCTIONS:
            found = FUNCTIONS[name]
        elif (ours := getattr(self.ours, name, None)) is not None and not inspect.ismodule(ours):
            found = in_dasks_words(ours)
        else:
            theirs = getattr(self.theirs, name)  # raises where Dask has no such name either
            is_exception = isinstance(theirs, type) and issubclass(theirs, Exception)
            found = theirs if name in HELPERS or is_exception or not callable(theirs) else Absent(name)
            if inspect.ismodule(theirs) and not theirs.__name__.startswith("dask.array"):
                found = theirs
        setattr(self, name, found)
        return found


def xp() -> Any:
    return importlib.import_module("distarray")


def is_ours(value: Any) -> bool:
    return isinstance(value, xp().ndarray)


# ---------------------------------------------------------------------------------------------------- Dask's words


def in_dasks_words(function: Any) -> Any:
    """Return a function of ours that also takes ``chunks=``, for what it returns, and what Dask is told besides."""
    name = getattr(function, "__name__", "")
    if inspect.isclass(function) or not callable(function) or hasattr(function, "nin"):
        return function
    return cut(function, keeps_chunks=name in ON_BLOCKS)


def cut(function: Callable[..., Any], keeps_chunks: bool = False) -> Any:
    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        options = {key: value for key, value in options.items() if key not in HOW}
        if "cum" in function.__name__:
            options.pop("method", None)
        if keeps_chunks:
            if options.keys().isdisjoint(("dtype", "output_dtypes", "infer")):
                options["infer"] = True  # Dask calls the functions to learn their dtype, and is not asked
            return function(*args, **options)
        chunks = options.pop("chunks", None)
        return in_chunks(function(*args, **options), chunks)

    return call


def in_chunks(value: Any, chunks: Any) -> Any:
    if type(value) in (list, tuple):
        return type(value)(in_chunks(item, chunks) for item in value)
    if chunks is None or not is_ours(value):
        return value
    if numpy.prod(value.shape) == 0 and not isinstance(chunks, tuple):
        chunks = "auto"
    normal = normalize_chunks(chunks, value.shape, dtype=value.dtype)
    return value.rechunk(normal)


class Generator:
    """A generator of random numbers whose methods take ``chunks=``."""

    kind = "default_rng"

    def __init__(self, seed: Any = None) -> None:
        seed = None if isinstance(seed, type | Generator) else seed  # Dask takes the class of bits
        self.generator = getattr(xp().random, self.kind)(seed)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "generator":
            raise AttributeError(name)
        return cut(getattr(self.generator, name))


class RandomState(Generator):
    kind = "RandomState"


def from_array(x: Any, chunks: Any = "auto", **options: Any) -> Any:
    return in_chunks(xp().asarray(numpy.asarray(x) if not is_ours(x) else x), chunks)


def asarray(a: Any, dtype: Any = None, chunks: Any = None, **options: Any) -> Any:
    options = {key: value for key, value in options.items() if key in ("order", "copy")}
    return in_chunks(xp().asarray(a, dtype=dtype, **options), chunks)


def eye(N: int, chunks: Any = "auto", M: int | None = None, k: int = 0, dtype: Any = float) -> Any:
    return in_chunks(xp().eye(N, M, k=k, dtype=dtype), chunks)


def tri(N: int, M: Any = None, k: int = 0, dtype: Any = float, chunks: Any = "auto", like: Any = None) -> Any:
    return in_chunks(xp().tri(N, M, k, dtype=dtype), chunks)


def fromfunction(function: Any, chunks: Any = "auto", shape: Any = None, dtype: Any = float, **options: Any) -> Any:
    return in_chunks(xp().fromfunction(function, shape, dtype=dtype, **options), chunks)


def apply_along_axis(
    func1d: Any, axis: int, arr: Any, *args: Any, dtype: Any = None, shape: Any = None, **options: Any
) -> Any:
    return xp().apply_along_axis(func1d, axis, arr, *args, **options)  # which finds out both


def rechunk(x: Any, chunks: Any = "auto", *args: Any, **options: Any) -> Any:
    return x.rechunk(chunks, *args, **options)


def topk(x: Any, k: int, axis: int = -1, **options: Any) -> Any:
    return xp().topk(x, abs(k), axis=axis, largest=k > 0)[0]


def argtopk(x: Any, k: int, axis: int = -1, **options: Any) -> Any:
    return xp().topk(x, abs(k), axis=axis, largest=k > 0)[1]


def svd(a: Any, full_matrices: bool = False, **options: Any) -> Any:
    return xp().linalg.svd(a, full_matrices=full_matrices)


def cholesky(a: Any, lower: bool = False) -> Any:
    return xp().linalg.cholesky(a, upper=not lower)


FUNCTIONS: dict[str, Any] = {
    "default_rng": Generator,
    "Generator": Generator,
    "RandomState": RandomState,
    "topk": topk,
    "argtopk": argtopk,
    "svd": svd,
    "cholesky": cholesky,
    "from_array": from_array,
    "asarray": asarray,
    "asanyarray": asarray,
    "eye": eye,
    "tri": tri,
    "fromfunction": fromfunction,
    "rechunk": rechunk,
    "apply_along_axis": apply_along_axis,
    "_array_expr_enabled": lambda: False,
    "array_expr_enabled": lambda: False,
}


# ----------------------------------------------------------------------------------------------------- comparing


def computed(value: Any) -> Any:
    """Return the values of an array of ours, of which what it said of itself is true."""
    if not is_ours(value):
        return value
    shape, dtype, chunks = value.shape, value.dtype, value.chunks
    found = value.compute()
    assert numpy.shape(found) == shape, f"shape {shape}, values of {numpy.shape(found)}"
    assert numpy.asarray(found).dtype == dtype, f"dtype {dtype}, values of {numpy.asarray(found).dtype}"
    assert tuple(map(sum, chunks)) == shape, f"shape {shape}, chunks {chunks}"
    return found


def assert_eq(a: Any, b: Any, *args: Any, **options: Any) -> Any:
    return utils.assert_eq(computed(a), computed(b), *args, **options)


def same_keys(a: Any, b: Any) -> bool:
    """Whether two arrays are the same; Dask's tests tell it by the names of tasks."""
    return a.shape == b.shape and numpy.array_equal(computed(a), computed(b), equal_nan=True)


FUNCTIONS |= {"assert_eq": assert_eq, "same_keys": same_keys}


class Pointwise:
    """The ``vindex`` of Dask: arrays are indexed together, and their axes come first."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __getitem__(self, key: Any) -> Any:
        key = key if isinstance(key, tuple) else (key,)
        key += (slice(None),) * (self.array.ndim - len(key))
        at = [axis for axis, item in enumerate(key) if not isinstance(item, slice)]
        cut = self.array[tuple(slice(None) if axis in at else item for axis, item in enumerate(key))]
        moved = xp().moveaxis(cut, at, range(len(at)))
        points = [key[axis] if is_ours(key[axis]) else numpy.asarray(key[axis]) for axis in at]
        return moved[tuple([p if is_ours(p) or p.size else p.astype(int) for p in points])]


def method_on_blocks(function: Callable[..., Any]) -> Callable[..., Any]:
    call = cut(function, keeps_chunks=True)
    return lambda x, func, *args, **options: call(func, x, *args, **options)


def dasks_attributes(array: type) -> None:
    """Give our arrays what the tests use of Dask's beside its graph."""
    array.name = property(lambda x: tokenize(numpy.asarray(x)))  # that of its values, as in `same_keys`
    array.vindex = property(Pointwise)
    array._meta = property(lambda x: numpy.empty((0,) * x.ndim, x.dtype))
    for name in METHODS:
        setattr(array, name, cut(getattr(array, name)))
    for name in ("map_blocks", "map_overlap"):
        setattr(array, name, method_on_blocks(getattr(xp(), name)))


# ------------------------------------------------------------------------------------------------------ entering


@contextmanager
def entered() -> Iterator[None]:
    """Have ``dask.array`` and the modules in it mean ours while tests are collected."""
    with suppress(ImportError):
        importlib.import_module("dask.dataframe")  # which dask's conftest imports, and which needs dask's arrays
    names = [f"dask.array.{module.name}" for module in pkgutil.iter_modules(dask.array.__path__)]
    theirs = {"dask.array": dask.array}
    for name in names:
        if name.rpartition(".")[2] not in THEIRS:
            with suppress(ImportError):
                theirs[name] = importlib.import_module(name)
    ours = xp()
    dasks_attributes(ours.ndarray)
    fronts = {}
    for name, module in theirs.items():
        part = name.rpartition(".")[2]
        fronts[name] = Front(name, module, getattr(ours, part) if part in PARTS else ours)
        if inspect.ismodule(vars(dask.array).get(part)):
            setattr(fronts["dask.array"], part, fronts[name])
    stride_tricks.sliding_window_view = cut(ours.sliding_window_view)  # imported while tests run
    real = dask.array
    sys.modules.update(fronts)
    dask.array = fronts["dask.array"]
    try:
        yield
    finally:
        sys.modules.update(theirs)
        dask.array = real
