"""How blocks reduce to partial results and how these combine: one `Monoid` per kind of reduction.

A *partial* is an array, or a tuple of arrays of one shape, whose reduced axes are kept with extent 1; so partials can
be cut, moved and combined along the axes that remain. `program` makes partials of slices and combines them in pairs of
equal weight, tasks combine those of tiles, and `Monoid.finish` turns the last one into the result.

Functions are those of the array API standard, taken from the namespace of the block, so the same monoids serve every
backend. Blocks are never changed; `merge` may write into its left partial where it says so.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from distarray.expr.affine import namespace
from distarray.expr.errstates import named, quotient_name
from distarray.kernels.buffers import POOL, SMALLEST
from distarray.kernels.compiled_moments import row_moments
from distarray.kernels.namespaces import astype, dtype_of, loop_dtype
from distarray.kernels.searching import first_by_rows, has_long_rows
from distarray.kernels.short_rows import SHORT_TO_COMPARE, reduced
from distarray.kernels.slices import copy_out
from distarray.kernels.ufuncs import combine, halved
from distarray.types import DType, HostArray

#: An array or a tuple of arrays of any backend: backends share no base class.
Partial = Any
Axes = tuple[int, ...]


class Within(NamedTuple):
    """A Within says where a block begins in the whole loop space, and the extents of that space."""

    origin: Sequence[int]
    extents: Sequence[int]


@dataclass(frozen=True)
class Monoid:
    """A Monoid is an associative way to combine partial results.

    Parameters
    ----------
    name
        Of the kind of a reducing loop in a sharding rule.
    n_arrays
        Arrays per partial; a partial of one array is that array, not a tuple.
    """

    name: str
    n_arrays: int = 1

    def state(self, dtype: DType) -> DType:
        """Return the dtype in which values accumulate when the result has `dtype`."""
        return dtype

    def itemsize(self, dtype: DType, operand: DType) -> int:
        """Return the bytes of a partial for each element of a result of `dtype`, of elements of the dtype `operand`."""
        return self.state(dtype).itemsize * self.n_arrays

    def is_ordered(self, dtype: DType) -> bool:
        """Return whether the bits of a result depend on how the elements are parted: floating-point sums round."""
        return True

    def identity(self, shape: Sequence[int], dtype: DType, xp: Any = np, device: Any = None) -> Partial | None:
        """Return the partial of nothing, of `shape` with the reduced axes as 1; None if there is no such value."""
        return None

    def partial(self, block: Any, axes: Axes, dtype: DType, within: Within | None = None) -> Partial:
        """Reduce `block`, which has elements, over `axes`.

        Parameters
        ----------
        block
            Contiguous, if the bits of a sum matter.
        dtype
            Of the result; `state` is applied to it here.
        within
            Where the block is in the whole loop space. Only what yields an index reads it; by default the block is the
            whole.
        """
        raise NotImplementedError

    def total(self, block: HostArray, dtype: DType) -> Any:
        """Reduce all elements of a contiguous numpy block to a number of dtype `state`, for monoids of one array.

        Short, because it is called for every slice.
        """
        raise NotImplementedError

    def number(self, block: HostArray, dtype: DType) -> Any:
        """Return the result of all elements of a contiguous numpy block, which is the whole array, as a number."""
        return self.total(block, dtype)

    def fold(self, totals: HostArray) -> Any:
        """Combine the totals of slices, a 1-d array of dtype `state`."""
        raise NotImplementedError

    @property
    def ufunc(self) -> np.ufunc:
        """Return numpy's function of two partials, for monoids of one array; of two zeros it may take either."""
        raise NotImplementedError

    def merge(self, left: Partial, right: Partial) -> Partial:
        """Combine two; `left` is of earlier elements, and may be overwritten."""
        raise NotImplementedError

    def merged(self, left: Partial, right: Partial) -> Partial:
        """Combine two, neither of which is changed; `left` is of earlier elements."""
        return self.merge(left, right)

    def combine(self, partials: Iterable[Partial | None]) -> Partial | None:
        """Combine any number of partials, in order; None stands for no value. None of them is changed: see `Pairs`."""
        pairs = Pairs(self)
        for partial in partials:
            pairs.add(partial)
        return pairs.result()

    def finish(self, partial: Partial, dtype: DType | None = None, **params: Any) -> Any:
        """Return the result, of `dtype` if given, with the reduced axes still of extent 1."""
        return partial if dtype is None else astype(namespace(partial), partial, dtype)


class Pairs:
    """Pairs combines partials of a monoid as they come, in order: neighbours are merged, then pairs of those, so that
    rounding errors, and the partials that are held at a time, grow with the logarithm of their number.

    Parameters
    ----------
    is_own
        Whether the partials may be overwritten; else none of them is changed.
    """

    def __init__(self, monoid: Monoid, *, is_own: bool = False) -> None:
        self._monoid = monoid
        self._is_own = is_own
        #: How many were taken.
        self.n = 0
        #: Of how many times two partials each was merged, and it: fewer from one to the next.
        self._held: list[tuple[int, Partial]] = []

    def add(self, partial: Partial | None) -> None:
        """Take the next partial; None stands for no value."""
        self.n += 1
        if partial is None:
            return
        self._held.append((0, partial))
        while len(self._held) > 1 and self._held[-2][0] == self._held[-1][0]:
            self._merge()

    def result(self) -> Partial | None:
        """Return all of them combined, None of none."""
        while len(self._held) > 1:
            self._merge()
        return self._held.pop()[1] if self._held else None

    def _merge(self) -> None:
        _, right = self._held.pop()
        level, left = self._held.pop()
        merge = self._monoid.merge if level or self._is_own else self._monoid.merged
        self._held.append((level + 1, merge(left, right)))


def _kept(total: Any, ndim: int) -> HostArray:
    return np.asarray(total).reshape((1,) * ndim)


@dataclass(frozen=True)
class _SingleArray(Monoid):
    """A _SingleArray is one array, folded by a ufunc: sums, products, logical and bitwise kinds.

    The standard's reduction of that kind has the name of the monoid.
    """

    ufunc: np.ufunc = np.add

    def state(self, dtype: DType) -> DType:
        # Half floats accumulate in single, as in numpy's own sum: 2049 ones do not add up in float16.
        return np.dtype(np.float32) if dtype == np.float16 else dtype

    def is_ordered(self, dtype: DType) -> bool:
        return dtype.kind in "fc"

    def identity(self, shape: Sequence[int], dtype: DType, xp: Any = np, device: Any = None) -> Partial | None:
        if self.ufunc.identity is None:
            return None
        # -1 is all bits of an unsigned number
        value = np.array(self.ufunc.identity).astype(self.state(dtype)).item()
        if xp is np:
            return np.full(tuple(shape), value, self.state(dtype))
        return xp.full(tuple(shape), value, dtype=dtype_of(xp, self.state(dtype)), device=device)

    def partial(self, block: Any, axes: Axes, dtype: DType, within: Within | None = None) -> Partial:
        if isinstance(block, np.ndarray):
            state = self.state(dtype)
            if len(axes) == block.ndim:
                return _kept(self.total(block, state), block.ndim)
            return reduced(self.ufunc, block, axes, state)
        xp = namespace(block)
        if self.name in ("any", "all"):
            return getattr(xp, self.name)(block, axis=axes, keepdims=True)
        numbers = _numbers(xp, block)
        return getattr(xp, self.name)(numbers, axis=axes, dtype=dtype_of(xp, self.state(dtype)), keepdims=True)

    def merge(self, left: Partial, right: Partial) -> Partial:
        if type(left) is np.ndarray:
            return self.ufunc(left, right, out=left)
        return getattr(namespace(left), self.ufunc.__name__)(left, right)

    def total(self, block: HostArray, dtype: DType) -> Any:
        # Flat: what numpy adds first in a block of several axes would depend on how it joins them.
        return self.ufunc.reduce(block if block.ndim == 1 else block.reshape(-1), dtype=loop_dtype(dtype))

    def fold(self, totals: HostArray) -> Any:
        return self.ufunc.reduce(totals)

    def merged(self, left: Partial, right: Partial) -> Partial:
        if type(left) is not np.ndarray:
            return self.merge(left, right)
        out = POOL.take(left.shape, left.dtype) if left.flags.c_contiguous else None
        return self.ufunc(left, right, out=out)


def _numbers(xp: Any, block: Any) -> Any:
    """Return `block`, of the numbers 0 and 1 if it is boolean: the standard neither adds nor orders truth values."""
    return block if xp is np or not xp.isdtype(block.dtype, "bool") else xp.astype(block, xp.uint8)


@dataclass(frozen=True)
class _NonZeros(_SingleArray):
    """A _NonZeros is the number of elements that are not zero."""

    def total(self, block: HostArray, dtype: DType) -> Any:
        return np.count_nonzero(block)

    def partial(self, block: Any, axes: Axes, dtype: DType, within: Within | None = None) -> Partial:
        if isinstance(block, np.ndarray):
            if len(axes) == block.ndim:
                return _kept(self.state(dtype).type(self.total(block, dtype)), block.ndim)
            counts = np.count_nonzero(block, axis=axes, keepdims=True) if axes else block.astype(np.bool_)
            return np.asarray(counts, self.state(dtype))
        xp = namespace(block)
        return xp.astype(xp.count_nonzero(block, axis=axes, keepdims=True), dtype_of(xp, dtype))


@dataclass(frozen=True)
class _UfuncFold(_SingleArray):
    """An _UfuncFold is an associative ufunc that the standard has no reduction for."""

    def partial(self, block: Any, axes: Axes, dtype: DType, within: Within | None = None) -> Partial:
        if isinstance(block, np.ndarray):
            return super().partial(block, axes, dtype)
        xp = namespace(block)
        block = astype(xp, block, self.state(dtype))
        for axis in axes:
            block = halved(xp, self.name, block, axis)
        return block


@dataclass(frozen=True)
class _Extremum(Monoid):
    """An _Extremum is the largest or smallest element; nan, NaT if there is one. Of zeros, +0 is the larger one.

    numpy leaves open which of two zeros it takes, and then the cut of an array would show in the sign of the result.
    With `passes_nan` a nan counts only among nans, as in ``fmax``.
    """

    is_max: bool = True
    passes_nan: bool = False

    def is_ordered(self, dtype: DType) -> bool:
        return False

    @property
    def ufunc(self) -> np.ufunc:
        if self.passes_nan:
            return np.fmax if self.is_max else np.fmin
        return np.maximum if self.is_max else np.minimum

    def partial(self, block: Any, axes: Axes, dtype: DType, within: Within | None = None) -> Partial:
        if not isinstance(block, np.ndarray):
            xp = namespace(block)
            if self.passes_nan:
                for axis in axes:
                    block = halved(xp, self.name, block, axis)
                return block
            if xp.isdtype(block.dtype, "bool"):  # the standard does not order them
                return (xp.any if self.is_max else xp.all)(block, axis=axes, keepdims=True)
            return (xp.max if self.is_max else xp.min)(block, axis=axes, keepdims=True)
        if len(axes) == block.ndim:
            return _kept(self.total(block, dtype), block.ndim)
        best = reduced(self.ufunc, block, axes, block.dtype, SHORT_TO_COMPARE)
        if block.dtype.kind == "f" and axes and (zero := best == 0).any():
            # A maximum of zeros is -0 only if all of them are; a minimum is +0 only if all of them are.
            sought = np.logical_and(block == 0, np.signbit(block) != self.is_max)
            found = np.logical_or.reduce(sought, axis=axes, keepdims=True)
            best[zero] = np.where(found[zero] == self.is_max, 0.0, -0.0)
        return best

    def total(self, block: HostArray, dtype: DType) -> Any:
        flat = block if block.ndim == 1 else block.reshape(-1)
        best = self.ufunc.reduce(flat)
        if flat.dtype.kind == "f" and best == 0:
            has_other = bool(((flat == 0) & (np.signbit(flat) != self.is_max)).any())
            return flat.dtype.type(0.0 if has_other == self.is_max else -0.0)
        return best

    def fold(self, totals: HostArray) -> Any:
        return self.total(totals, totals.dtype)

    def merge(self, left: Partial, right: Partial) -> Partial:
        if type(left) is not np.ndarray:
            xp, name = namespace(left), self.ufunc.__name__
            if xp.isdtype(left.dtype, "bool"):
                name = "logical_or" if self.is_max else "logical_and"
            return combine(xp, name)(left, right)
        if left.dtype.kind == "f" and (zeros := (left == 0) & (right == 0)).any():
            # (-0) + (-0) = -0 and every other sum of zeros is +0; the minimum is its mirror image. Other sums overflow.
            best, left, right = np.asarray(self.ufunc(left, right)), left[zeros], right[zeros]
            best[zeros] = left + right if self.is_max else -((-left) + (-right))
            return best
        return self.ufunc(left, right)


@dataclass(frozen=True)
class _ArgExtremum(Monoid):
    """An _ArgExtremum is the largest or smallest element and its index; numpy's rule: the first nan, else the first of
    equals.

    The index counts the reduced axes of the whole loop space in C order.
    """

    is_max: bool = True

    def itemsize(self, dtype: DType, operand: DType) -> int:
        return operand.itemsize + np.dtype(np.intp).itemsize

    def is_ordered(self, dtype: DType) -> bool:
        return False

    def number(self, block: HostArray, dtype: DType) -> Any:
        rows = block.reshape(-1)
        return rows.argmax() if self.is_max else rows.argmin()

    def partial(self, block: Any, axes: Axes, dtype: DType, within: Within | None = None) -> Partial:
        xp = namespace(block)
        block = _numbers(xp, block)
        kept = tuple(a for a in range(block.ndim) if a not in axes)
        shape = tuple(1 if a in axes else n for a, n in enumerate(block.shape))
        inner = tuple(block.shape[a] for a in axes)
        if len(axes) == block.ndim and xp is np:
            rows = block.reshape(-1)
            local = _kept(np.intp(rows.argmax() if self.is_max else rows.argmin()), block.ndim)
            value = _kept(rows[local.item()], block.ndim)
        elif xp is np and len(axes) == 1 and has_long_rows(block, axes[0]):
            value, local = first_by_rows(block, axes[0], is_max=self.is_max)
        elif xp is np and len(axes) == 1 and axes[0] < block.ndim - 1 and block.nbytes >= SMALLEST:
            # NumPy too turns the block, in memory that is new for each slice: workers of Dask give it back at once.
            turned = POOL.take((*[block.shape[a] for a in kept], *inner), block.dtype)
            copy_out(np.moveaxis(block, axes[0], -1), turned)
            at = turned.argmax(axis=-1) if self.is_max else turned.argmin(axis=-1)
            local, value = at.reshape(shape), np.take_along_axis(turned, at[..., None], axis=-1).reshape(shape)
        elif len(axes) == 1:
            local = (xp.argmax if self.is_max else xp.argmin)(block, axis=axes[0], keepdims=True)
            value = xp.take_along_axis(block, local, axis=axes[0])
        else:
            rows = xp.reshape(xp.permute_dims(block, kept + axes), (*(block.shape[a] for a in kept), math.prod(inner)))
            local = (xp.argmax if self.is_max else xp.argmin)(rows, axis=-1, keepdims=True)
            value = xp.reshape(xp.take_along_axis(rows, local, axis=-1), shape)
            local = xp.reshape(local, shape)
        if not axes or within is None:
            return value, local
        start, whole = [within.origin[a] for a in axes], [within.extents[a] for a in axes]
        if len(axes) == 1:
            return value, local + start[0]
        index: Any = 0
        rest = local
        strides_local = [math.prod(inner[i + 1 :]) for i in range(len(inner))]
        strides_whole = [math.prod(whole[i + 1 :]) for i in range(len(inner))]
        for i in range(len(inner)):  # unravel in the block, ravel in the whole
            index = (rest // strides_local[i] + start[i]) * strides_whole[i] + index
            rest = rest % strides_local[i]
        return value, index

    def merge(self, left: Partial, right: Partial) -> Partial:
        (a, i), (b, j) = left, right
        if type(a) is np.ndarray and a.size == 1 and a.dtype.kind != "c":
            return right if _is_first(b.flat[0], j.flat[0], a.flat[0], i.flat[0], is_max=self.is_max) else left
        xp = namespace(a)
        with np.errstate(invalid="ignore"):  # complex numbers that are nan, of which numpy's function says nothing
            better, equal = (b > a if self.is_max else b < a), a == b
        if _has_nan(a):
            nan_a, nan_b = a != a, b != b
            better, equal = (better & ~nan_a) | (nan_b & ~nan_a), equal | (nan_a & nan_b)
        chosen = better | (equal & (j < i))
        return xp.where(chosen, b, a), xp.where(chosen, j, i)

    def finish(self, partial: Partial, dtype: DType | None = None, **params: Any) -> Any:
        return super().finish(partial[1], dtype)


def _is_first(x: Any, at: int, other: Any, other_at: int, *, is_max: bool) -> bool:
    """Return whether numpy's rule chooses `x` of two elements; where they stand decides between equal ones."""
    if x != x or other != other:
        return bool(x != x and (other == other or at < other_at))
    return bool(at < other_at if x == other else (x > other) == is_max)


def _has_nan(x: Any) -> bool:
    if isinstance(x, np.ndarray):
        return x.dtype.kind in "fcMm"
    return bool(namespace(x).isdtype(x.dtype, ("real floating", "complex floating")))


@dataclass(frozen=True)
class _Moments(Monoid):
    """_Moments are count, mean and sum of squared distances from the mean (M2).

    Merged in pairs as by Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample
    variances" (1979), which neither cancels nor passes twice over memory.
    """

    def state(self, dtype: DType) -> DType:
        return np.dtype(np.float32) if dtype == np.float16 else dtype

    def itemsize(self, dtype: DType, operand: DType) -> int:
        return sum([d.itemsize for d in self._dtypes(dtype)])

    def _dtypes(self, dtype: DType) -> tuple[DType, DType, DType]:
        """Return the dtypes of count, mean and M2."""
        state = self.state(dtype)
        return np.dtype(np.int64), state, _real(state)

    def identity(self, shape: Sequence[int], dtype: DType, xp: Any = np, device: Any = None) -> Partial | None:
        where = {} if xp is np else {"device": device}
        return tuple([xp.zeros(tuple(shape), dtype=dtype_of(xp, d), **where) for d in self._dtypes(dtype)])

    def partial(self, block: Any, axes: Axes, dtype: DType, within: Within | None = None) -> Partial:
        xp = namespace(block)
        state = self.state(dtype)
        n = math.prod(block.shape[a] for a in axes)
        block = _numbers(xp, block)

        def numpys() -> tuple[Any, Any]:
            mean = xp.sum(block, axis=axes, dtype=dtype_of(xp, state), keepdims=True) / n
            if xp is np and state.kind != "c":
                # A buffer that is used again: the system would map a new one for each slice.
                off = np.subtract(block, mean, out=POOL.take(block.shape, state))
                square = np.multiply(off, off, out=off)
            else:
                off = astype(xp, block, state) - mean
                square = xp.real(off) ** 2 + xp.imag(off) ** 2 if state.kind == "c" else off * off
            return mean, xp.sum(square, axis=axes, keepdims=True)

        mean, m2 = row_moments(block, axes, numpys) if xp is np and block.dtype == state else numpys()
        return xp.full_like(mean, n, dtype=dtype_of(xp, np.dtype(np.int64))), mean, m2

    def merge(self, left: Partial, right: Partial) -> Partial:
        (n, mean, m2), (k, other_mean, other_m2) = left, right
        xp = namespace(mean)
        total = n + k
        real = m2.dtype
        # Of two empty partials the total is 0: any divisor gives 0.
        share = xp.astype(k, real) / xp.astype(xp.where(total == 0, xp.ones_like(total), total), real)
        delta = other_mean - mean
        is_complex = xp.isdtype(delta.dtype, "complex floating")
        distance = xp.real(delta) ** 2 + xp.imag(delta) ** 2 if is_complex else delta * delta
        m2 = m2 + other_m2 + distance * (xp.astype(n, real) * share)
        return total, mean + delta * xp.astype(share, mean.dtype), m2

    def finish(
        self, partial: Partial, dtype: DType | None = None, *, of: str = "var", correction: float = 0.0, **params: Any
    ) -> Any:
        """Return ``of="mean"``, ``"var"`` or ``"std"``; the divisor of the last two is ``count - correction``, at least
        0.
        """
        n, mean, m2 = partial
        xp = namespace(mean)
        if of == "mean":
            result = xp.where(n == 0, xp.full_like(mean, math.nan), mean)
        else:
            divisor = xp.astype(n, m2.dtype) - correction
            result = m2 / xp.where(divisor < 0, xp.zeros_like(divisor), divisor)
            result = xp.sqrt(result) if of == "std" else result
        return super().finish(result, dtype)


def _real(dtype: DType) -> DType:
    return np.dtype(f"f{dtype.itemsize // 2}") if dtype.kind == "c" else dtype


#: By the kind of a reducing loop.
MONOIDS: dict[str, Monoid] = {
    "sum": _SingleArray("sum", ufunc=np.add),
    "prod": _SingleArray("prod", ufunc=np.multiply),
    "any": _SingleArray("any", ufunc=np.logical_or),
    "all": _SingleArray("all", ufunc=np.logical_and),
    "count": _NonZeros("count", ufunc=np.add),
    "max": _Extremum("max", is_max=True),
    "min": _Extremum("min", is_max=False),
    "bitwise_and": _UfuncFold("bitwise_and", ufunc=np.bitwise_and),
    "bitwise_or": _UfuncFold("bitwise_or", ufunc=np.bitwise_or),
    "bitwise_xor": _UfuncFold("bitwise_xor", ufunc=np.bitwise_xor),
    "logical_xor": _UfuncFold("logical_xor", ufunc=np.logical_xor),
    "gcd": _UfuncFold("gcd", ufunc=np.gcd),
    "lcm": _UfuncFold("lcm", ufunc=np.lcm),
    "hypot": _UfuncFold("hypot", ufunc=np.hypot),
    "logaddexp": _UfuncFold("logaddexp", ufunc=np.logaddexp),
    "logaddexp2": _UfuncFold("logaddexp2", ufunc=np.logaddexp2),
    "fmax": _Extremum("fmax", is_max=True, passes_nan=True),
    "fmin": _Extremum("fmin", is_max=False, passes_nan=True),
    "argmax": _ArgExtremum("argmax", 2, is_max=True),
    "argmin": _ArgExtremum("argmin", 2, is_max=False),
    "moments": _Moments("moments", 3),
}


_PLAIN: AbstractContextManager[None] = nullcontext()


def finish_reduction(
    name: str, monoid: str, partial: Any, n: int, ndim: int, dtype: np.dtype[Any], params: tuple[Any, ...]
) -> Any:
    """Return the result of a reduction from its one remaining partial result.

    Parameters
    ----------
    name
        Of the operation: a mean is a sum divided, var and std are read off the moments.
    n
        Elements reduced into each element of the result. Of a mean of nothing who called it was told.
    ndim
        Axes of the result.
    params
        The operation's own static parameters: the correction of var and std.
    """
    if name != "mean" and type(partial) is np.ndarray and partial.dtype == dtype:
        return MONOIDS[monoid].finish(partial, dtype)
    if name == "mean" or monoid == "moments":
        if name == "mean":
            with named(quotient_name(ndim, dtype)) if dtype.kind == "c" else _PLAIN:
                partial = partial / n if n else partial * np.nan
        else:
            less = params[0] if params else 0.0
            divides = np.errstate(all="ignore") if not n else named(quotient_name(ndim, dtype)) if n <= less else _PLAIN
            with divides:
                partial = MONOIDS[monoid].finish(partial, of=name, correction=less)
        with named("cast") if dtype == np.float16 else _PLAIN:
            result = astype(namespace(partial), partial, dtype)
    else:
        result = MONOIDS[monoid].finish(partial, dtype)
    # numpy's functions turn arrays without axes into scalars, which cannot be written
    return np.asarray(result) if isinstance(result, np.generic) else result
