"""The methods of numpy's ndarray, each one line to the function of the same name.

``out=`` of a method writes into an array as a ufunc does. Methods that change the array in place (``fill``, ``sort``,
``partition``) write a new version of its base.
"""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np

from distarray.arguments import NOT_GIVEN, integer, memory_order, naming, shown
from distarray.array.handle import is_scalar
from distarray.array.namespace import namespace
from distarray.dtypes import as_dtype, cast_dtype
from distarray.errors import NotSupportedError
from distarray.expr.lens import Bits
from distarray.ops import elementwise, lenses
from distarray.types import AxesLike, DTypeLike

_CLASS = type  # which a parameter hides


class OfNumber:
    """An OfNumber is what numpy's numbers of some dtypes have, and its arrays have not (``is_integer``, ``numerator``),
    as an attribute of arrays of such a dtype without axes, which stand for both. A method computes when it is called,
    all else when it is read.
    """

    __slots__ = ("name",)

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, x: Any, owner: type) -> Any:  # whatever the attribute is
        if x is None:
            return self
        if x.ndim or not hasattr(x.dtype.type, self.name):
            raise AttributeError(
                f"{owner.__name__!r} object has no attribute {self.name!r}: numbers may have it, not "
                f"what is of dtype {x.dtype} and shape {x.shape}"
            )
        if callable(getattr(x.dtype.type, self.name)):
            return lambda: getattr(x._host()[()], self.name)()
        return getattr(x._host()[()], self.name)


class Methods:
    """Methods gives `DistArray` the methods of numpy's ndarray."""

    __slots__ = ()

    # --------------------------------------------------------------------------------------------- reductions

    def sum(
        self: Any,
        axis: AxesLike = None,
        dtype: DTypeLike = None,
        out: Any = None,
        keepdims: bool = False,
        initial: Any = NOT_GIVEN,
        where: Any = True,
    ) -> Any:
        """Return the sum over `axis`; see `distarray.sum`."""
        return namespace().sum(self, axis, dtype, out, keepdims, initial, where)

    def prod(
        self: Any,
        axis: AxesLike = None,
        dtype: DTypeLike = None,
        out: Any = None,
        keepdims: bool = False,
        initial: Any = NOT_GIVEN,
        where: Any = True,
    ) -> Any:
        """Return the product over `axis`; see `distarray.prod`."""
        return namespace().prod(self, axis, dtype, out, keepdims, initial, where)

    def mean(
        self: Any,
        axis: AxesLike = None,
        dtype: DTypeLike = None,
        out: Any = None,
        keepdims: bool = False,
        *,
        where: Any = True,
    ) -> Any:
        """Return the mean over `axis`; see `distarray.mean`."""
        return namespace().mean(self, axis, dtype, out, keepdims, where=where)

    def std(
        self: Any,
        axis: AxesLike = None,
        dtype: DTypeLike = None,
        out: Any = None,
        ddof: float | None = None,
        keepdims: bool = False,
        *,
        where: Any = True,
        mean: Any = NOT_GIVEN,
        correction: float | None = None,
    ) -> Any:
        """Return the standard deviation over `axis`."""
        keywords = {"where": where, "mean": mean, "correction": correction}
        return namespace().std(self, axis, dtype, out, ddof, keepdims, **keywords)

    def var(
        self: Any,
        axis: AxesLike = None,
        dtype: DTypeLike = None,
        out: Any = None,
        ddof: float | None = None,
        keepdims: bool = False,
        *,
        where: Any = True,
        mean: Any = NOT_GIVEN,
        correction: float | None = None,
    ) -> Any:
        """Return the variance over `axis`; see `distarray.var`."""
        keywords = {"where": where, "mean": mean, "correction": correction}
        return namespace().var(self, axis, dtype, out, ddof, keepdims, **keywords)

    def max(
        self: Any,
        axis: AxesLike = None,
        out: Any = None,
        keepdims: bool = False,
        initial: Any = NOT_GIVEN,
        where: Any = True,
    ) -> Any:
        """Return the largest element along `axis`."""
        return namespace().max(self, axis, out, keepdims, initial, where)

    def min(
        self: Any,
        axis: AxesLike = None,
        out: Any = None,
        keepdims: bool = False,
        initial: Any = NOT_GIVEN,
        where: Any = True,
    ) -> Any:
        """Return the smallest element along `axis`."""
        return namespace().min(self, axis, out, keepdims, initial, where)

    def any(self: Any, axis: AxesLike = None, out: Any = None, keepdims: bool = False, *, where: Any = True) -> Any:
        """Return whether any element along `axis` is true."""
        return namespace().any(self, axis, out, keepdims, where=where)

    def all(self: Any, axis: AxesLike = None, out: Any = None, keepdims: bool = False, *, where: Any = True) -> Any:
        """Return whether all elements along `axis` are true."""
        return namespace().all(self, axis, out, keepdims, where=where)

    def argmax(self: Any, axis: int | None = None, out: Any = None, *, keepdims: bool = False) -> Any:
        """Return the index of the first largest element along `axis`."""
        return namespace().argmax(self, axis, out, keepdims=keepdims)

    def argmin(self: Any, axis: int | None = None, out: Any = None, *, keepdims: bool = False) -> Any:
        """Return the index of the first smallest element along `axis`."""
        return namespace().argmin(self, axis, out, keepdims=keepdims)

    def cumsum(self: Any, axis: int | None = None, dtype: DTypeLike = None, out: Any = None) -> Any:
        """Return partial sums along `axis`; see `distarray.cumsum`."""
        return namespace().cumsum(self, axis, dtype, out)

    def cumprod(self: Any, axis: int | None = None, dtype: DTypeLike = None, out: Any = None) -> Any:
        """Return partial products along `axis`; see `distarray.cumprod`."""
        return namespace().cumprod(self, axis, dtype, out)

    def trace(
        self: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: DTypeLike = None, out: Any = None
    ) -> Any:
        """Return the sum of a diagonal."""
        return namespace().trace(self, offset, axis1, axis2, dtype, out)

    # -------------------------------------------------------------------------------------------- elementwise

    def round(self: Any, decimals: int = 0, out: Any = None) -> Any:
        """Return the elements rounded to `decimals` places."""
        return namespace().round(self, decimals, out)

    def clip(self: Any, min: Any = None, max: Any = None, out: Any = None, **options: Any) -> Any:
        """Return the elements limited to an interval, with the options of a ufunc; see `distarray.clip`."""
        return namespace().clip(self, min, max, out, **options)

    def conj(self: Any, out: Any = None) -> Any:
        """Return the complex conjugate; of real numbers, as numpy's method, the array itself."""
        if out is not None:
            return namespace().conj(self, out)
        return self if self.dtype.kind in "biuf" else elementwise.conj(self)

    conjugate = conj

    def astype(
        self: Any,
        dtype: DTypeLike,
        order: str = "K",
        casting: Any = "unsafe",
        subok: bool = True,
        copy: bool = True,
    ) -> Any:
        """Return the elements as `dtype`; the array itself if `copy` is false and it has that dtype.

        `subok` is numpy's, and so is casting "same_value": whether every element keeps its value is found out at the
        call.

        Raises
        ------
        TypeError
            If numpy's rule `casting` does not allow the dtype.
        ValueError
            If an element would get another value, with "same_value".
        """
        order = memory_order(order)
        wanted = cast_dtype(self.dtype, as_dtype(dtype))
        by_value = type(casting) is str and casting == "same_value"
        is_time = self.dtype.kind in "mM" or wanted.kind in "mM"
        if is_time if by_value else not np.can_cast(self.dtype, wanted, casting):
            raise TypeError(
                f"Cannot cast array data from {self.dtype!r} to {wanted!r} according to the rule {casting!r}"
            )
        if copy and wanted == self.dtype:
            made = self._copied(order)
        else:
            made = elementwise.astype(self, wanted, copy=copy)
            made = made._in_order(order, [self])
        if by_value:
            _check_values(self, made)
        return elementwise.as_scalar(made) if made is not self and is_scalar(self) else made

    def copy(self: Any, order: str = "C") -> Any:
        """Return an array of the same elements that aliases nothing; nothing is copied until one of the two is
        written.
        """
        return self._copied(order if type(order) is str and order == "C" else memory_order(order))

    def view(self: Any, dtype: Any = None, type: Any = None) -> Any:
        """Return the same bits as elements of `dtype`: a view, where the elements keep their size.

        Of another size, the last axis, whose elements follow each other, has more or fewer elements; the result is a
        copy then, which becomes whole along that axis and is not to be written. Of raw bytes ("V8"), which no array
        here has, it is numpy's array of the values, which this gathers as `numpy.asarray` does.

        Raises
        ------
        TypeError
            If `type` is another class of arrays.
        ValueError
            If the last axis does not hold a whole number of the new elements, or its elements do not follow each other.
        """
        kinds = [k for k in (dtype, type) if isinstance(k, _CLASS)]
        kinds = [k for k in kinds if issubclass(k, np.ndarray) or hasattr(k, "__dx_node__")]
        if any(k is not np.ndarray and not isinstance(self, k) for k in kinds):
            raise TypeError(f"view: a DistArray is seen as one of its own class, not as {shown(kinds[0])}")
        if dtype is not None and dtype not in kinds and np.dtype(dtype).kind == "V":
            return np.asarray(self).view(dtype)
        if dtype is not None and dtype not in kinds and not np.dtype(dtype).isnative:
            raise NotSupportedError(
                f"view: no array here has the byte order of {np.dtype(dtype).str!r}; x.byteswap() has the bytes in the "
                "other order"
            )
        wanted = self.dtype if dtype is None or dtype in kinds else as_dtype(dtype)
        if wanted == self.dtype:
            return self._alias()
        if wanted.itemsize == self.itemsize:
            return self._view(Bits(wanted.str))
        if not self.shape:
            raise ValueError("Changing the dtype of a 0d array is only supported if the itemsize is unchanged")
        if self.size and self.shape[-1] != 1 and self._strides()[-1] != self.itemsize:
            raise ValueError("To change to a dtype of a different size, the last axis must be contiguous")
        if self.shape[-1] * self.itemsize % wanted.itemsize:
            raise ValueError(
                f"When changing to a {'larger' if wanted.itemsize > self.itemsize else 'smaller'} dtype, its size must "
                f"be a divisor of the total size in bytes of the last axis of the array: {wanted} of {self.shape[-1]} "
                f"elements of {self.dtype}"
            )
        made = elementwise.bits_of_axis(self, wanted)
        made._readonly = True
        return made

    def byteswap(self: Any, inplace: bool = False) -> Any:
        """Return the elements with their bytes in the other order; with `inplace` the array itself, written."""
        made = elementwise.byteswap(self)
        if not inplace:
            return made
        self[...] = made
        return self

    # -------------------------------------------------------------------------------------------------- shape

    def reshape(self: Any, *shape: Any, order: str = "C", copy: bool | None = None) -> Any:
        """Return the same elements with another shape: a view exactly where numpy makes one."""
        return namespace().reshape(self, shape[0] if len(shape) == 1 else shape, order, copy=copy)

    def ravel(self: Any, order: str = "C") -> Any:
        """Return the elements in one axis: a view where numpy makes one."""
        return namespace().ravel(self, order)

    def flatten(self: Any, order: str = "C") -> Any:
        """Return the elements in one axis: a copy."""
        return self.ravel(order).copy()

    def transpose(self: Any, *axes: Any) -> Any:
        """Return the axes in the order `axes`, reversed by default. A view."""
        order: Any = axes or None
        if len(axes) == 1 and (not hasattr(axes[0], "__index__") or np.ndim(axes[0]) > 0):
            (order,) = axes
        return self._view(lenses.permute_lens(self.shape, order))

    def swapaxes(self: Any, axis1: int, axis2: int) -> Any:
        """Return two axes exchanged. A view."""
        return self._view(lenses.swapaxes_lens(self.shape, axis1, axis2))

    def squeeze(self: Any, axis: AxesLike = None) -> Any:
        """Return the array without axes of extent 1. A view."""
        return self._view(lenses.squeeze_lens(self.shape, axis))

    def diagonal(self: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
        """Return a diagonal; a view, read-only as numpy's."""
        return self._view(lenses.diagonal_lens(self.shape, offset, axis1, axis2), readonly=True)

    def repeat(self: Any, repeats: Any, axis: int | None = None) -> Any:
        """Return each element `repeats` times; see `distarray.repeat`."""
        return namespace().repeat(self, repeats, axis)

    def resize(self: Any, *shape: Any, refcheck: bool = True) -> None:
        """Refuse: an array here has one size for life."""
        raise NotSupportedError("a DistArray cannot be resized in place; use dx.resize(x, shape), a new array")

    # ---------------------------------------------------------------------------------- order, search, choice

    def take(self: Any, indices: Any, axis: int | None = None, out: Any = None, mode: str = "raise") -> Any:
        """Return the elements at integer positions along `axis`."""
        return namespace().take(self, indices, axis, out, mode)

    def put(self: Any, indices: Any, values: Any, mode: str = "raise") -> None:
        """Write at flat positions; see `distarray.put`."""
        namespace().put(self, indices, values, mode)

    def choose(self: Any, *choices: Any, out: Any = None, mode: str = "raise") -> Any:
        """Return for each element the choice of that number, of one sequence of them or of several arguments; see
        `distarray.choose`.
        """
        return namespace().choose(self, choices[0] if len(choices) == 1 else choices, out, mode)

    def nonzero(self: Any) -> Any:
        """Return the positions of the elements that are not zero, one array per axis."""
        return namespace().nonzero(self)

    def compress(self: Any, condition: Any, axis: int | None = None, out: Any = None) -> Any:
        """Return the elements along `axis` where `condition` is true."""
        return namespace().compress(condition, self, axis, out)

    def sort(
        self: Any,
        axis: int = -1,
        kind: Any = None,
        order: Any = None,
        *,
        stable: bool | None = None,
        descending: bool = False,
    ) -> None:
        """Sort along `axis`, in place."""
        options = {"stable": stable, "descending": descending}
        self[...] = namespace().sort(self, integer(axis, "axis"), kind, order, **options)

    def argsort(
        self: Any,
        axis: int | None = -1,
        kind: Any = None,
        order: Any = None,
        *,
        stable: bool | None = None,
        descending: bool = False,
    ) -> Any:
        """Return the positions that sort along `axis`."""
        return namespace().argsort(self, axis, kind, order, stable=stable, descending=descending)

    def partition(self: Any, kth: Any, axis: int = -1, kind: Any = "introselect", order: Any = None) -> None:
        """Partition along `axis`, in place: the elements at `kth` stand where they stand in order."""
        self[...] = namespace().partition(self, kth, integer(axis, "axis"), kind, order)

    def argpartition(self: Any, kth: Any, axis: int | None = -1, kind: Any = "introselect", order: Any = None) -> Any:
        """Return the positions that partition along `axis`."""
        return namespace().argpartition(self, kth, axis, kind, order)

    def searchsorted(self: Any, v: Any, side: Any = "left", sorter: Any = None) -> Any:
        """Return where `v` would have to be inserted to keep the order."""
        return namespace().searchsorted(self, v, side=side, sorter=sorter)

    def dot(self: Any, b: Any, out: Any = None) -> Any:
        """Return the dot product; see `distarray.dot`."""
        return namespace().dot(self, b, out)

    # ------------------------------------------------------------------------------------------------- values

    def fill(self: Any, value: Any) -> None:
        """Set all elements to one value."""
        if hasattr(type(value), "__dx_node__") and value.ndim:
            # Only of one element numpy makes a truth value, and says of all else what it is not.
            value = np.asarray(value) if value.size == 1 else np.broadcast_to(np.zeros((), value.dtype), value.shape)
        if not hasattr(type(value), "__dx_node__"):
            one = np.empty((), self.dtype)
            with naming(value=value):
                one.fill(value)
            value = one[()]
        self[...] = value

    def item(self: Any, *args: Any) -> Any:
        """Return an element as a Python number: the only one, or the one at a flat or full index."""
        if not args:
            if self.size != 1:
                raise ValueError("can only convert an array of size 1 to a Python scalar")
            return self._scalar(lambda host: host.item())
        index = args[0] if len(args) == 1 else args
        if isinstance(index, tuple):
            if len(index) != self.ndim:
                raise ValueError(
                    f"incorrect number of indices for array: index={shown(index)} has {len(index)} for {self.ndim} axes"
                )
            return self[index].item()
        at = integer(index, "index", truths=False)
        if not -self.size <= at < self.size:
            raise IndexError(f"index {at} is out of bounds for size {self.size}")
        return self[tuple(map(int, np.unravel_index(at % self.size, self.shape)))].item()

    is_integer, as_integer_ratio, hex, bit_count = OfNumber(), OfNumber(), OfNumber(), OfNumber()
    numerator, denominator = OfNumber(), OfNumber()

    def tolist(self: Any) -> Any:
        """Return the elements as nested lists of Python numbers."""
        return self._host().tolist()

    def tobytes(self: Any, order: Any = "C") -> bytes:
        """Return the bytes of the elements in C order, in F order, or in that of both in which the array lies (A)."""
        return bytes(self._host().tobytes(("F" if self.flags.fnc else "C") if order in ("A", "a") else order))

    def __bytes__(self: Any) -> bytes:  # of a whole number so many zeros, as Python has it
        return bytes(self.__index__()) if not self.ndim and self.dtype.kind in "iu" else self.tobytes()

    def tofile(self: Any, fid: str | os.PathLike[str], sep: str = "", format: str = "%s") -> None:
        """Write the elements to a file, as numpy does; see `distarray.tofile`."""
        namespace().tofile(self, fid, sep, format)

    def dumps(self: Any) -> bytes:
        """Return the array as a pickle: what it was made from, and blocks of this process."""
        return pickle.dumps(self)

    def dump(self: Any, file: Any) -> None:
        """Write the array as a pickle to a file or its path."""
        if hasattr(file, "write"):
            file.write(self.dumps())
        else:
            Path(file).write_bytes(self.dumps())

    def to_zarr(self: Any, store: Any, path: str | None = None, **options: Any) -> Any:
        """Write the array into a zarr store, each chunk by one task; see `distarray.to_zarr`."""
        return namespace().to_zarr(self, store, path, **options)

    # ---------------------------------------------------------------------------------------------- libraries

    def to_xarray(self: Any, dims: Any = None, coords: Any = None, name: Any = None, attrs: Any = None) -> Any:
        """Return an ``xarray.DataArray`` of a view of the array; see `distarray.to_xarray`."""
        return namespace().to_xarray(self, dims, coords, name, attrs)

    # ---------------------------------------------------------------------------------------------- diagnostics

    def explain(self: Any, *, analyze: bool = False) -> Any:
        """Return how the array would be computed, a table that prints: stages, cuts, bytes moved, memory, seconds.

        Nothing runs. With `analyze` the array is computed, and what was measured stands beside what was predicted. See
        docs/explanation/reading-explain.md.
        """
        return namespace().explain(self, analyze=analyze)


def _check_values(x: Any, made: Any) -> None:
    """Check that all elements have their values in what a cast made of an array.

    Raises
    ------
    ValueError
        If one has another.
    """
    if made.dtype == x.dtype or made.dtype == np.bool:  # truth is no other value
        return
    with np.errstate(all="ignore"):
        back = made.astype(x.dtype)
        is_same = (back == x) & (made == x)  # signs are lost both ways; digits, where the two meet as floats
        is_same = is_same | ((back != back) & (x != x))  # nan
        if not is_same.all():
            raise ValueError(f"could not cast 'same_value' {x.dtype.name} to {made.dtype.name}")
