"""numpy's iterators over elements: ``ndenumerate``, ``broadcast`` and ``nditer``; values come here some rows at a time.

Each brings at most `CHUNK_NBYTES` at once, in C order. A loop over single elements is for small arrays: what is
computed of all of them belongs into an expression.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np

from distarray.arguments import sequence, shown
from distarray.array.array import DistArray
from distarray.composed.views import as_distarray, broadcast_arrays
from distarray.errors import NotSupportedError
from distarray.expr.broadcasting import broadcast_shapes
from distarray.types import HostArray

#: Bytes that come here at once.
CHUNK_NBYTES = 1 << 20


def _chunks(x: DistArray) -> Iterator[HostArray]:
    """Yield the elements in C order, as host arrays of one axis."""
    if not x.ndim or x.nbytes <= CHUNK_NBYTES:
        yield x.compute().reshape(-1)
        return
    n = len(x)
    rows = CHUNK_NBYTES // (x.nbytes // n)
    if not rows:
        for i in range(n):
            yield from _chunks(x[i])
        return
    for i in range(0, n, rows):
        yield x[i : i + rows].compute().reshape(-1)


def _values(x: DistArray) -> Iterator[Any]:
    """Yield the elements in C order, as numpy's scalars."""
    for chunk in _chunks(x):
        yield from chunk


class ndenumerate:  # the name is numpy's
    """An ndenumerate is an iterator over pairs of an index and the element there, in C order.

    Examples
    --------
    >>> import distarray as dx
    >>> [(i, int(v)) for i, v in dx.ndenumerate(dx.asarray([[1, 2], [3, 4]]))]
    [((0, 0), 1), ((0, 1), 2), ((1, 0), 3), ((1, 1), 4)]
    """

    def __init__(self, arr: Any) -> None:
        x = as_distarray(arr)
        self._pairs = zip(np.ndindex(x.shape), _values(x))

    def __next__(self) -> tuple[tuple[int, ...], Any]:
        return next(self._pairs)

    def __iter__(self) -> Self:
        return self


#: As many as numpy's broadcast takes.
_MOST_ARRAYS = 64


class broadcast:  # the name is numpy's
    """A broadcast is an iterator over the elements of arrays that broadcast, which tells their common shape.

    Examples
    --------
    >>> import distarray as dx
    >>> b = dx.broadcast(dx.asarray([[1], [2]]), dx.asarray([3, 4]))
    >>> b.shape, [(int(p), int(q)) for p, q in b]
    ((2, 2), [(1, 3), (1, 4), (2, 3), (2, 4)])
    """

    def __init__(self, *args: Any) -> None:
        if len(args) > _MOST_ARRAYS:
            raise ValueError(f"Need at least 0 and at most {_MOST_ARRAYS} array objects, not {len(args)}.")
        self._arrays = [as_distarray(a) for a in args]
        self.shape: tuple[int, ...] = broadcast_shapes(*[x.shape for x in self._arrays]) if args else ()
        self.numiter = len(args)
        self.ndim = self.nd = len(self.shape)
        self.size = math.prod(self.shape)
        self.reset()

    def reset(self) -> None:
        """Begin again."""
        self.index = 0
        self._tuples = zip(*[_values(x) for x in broadcast_arrays(*self._arrays)])

    def __next__(self) -> tuple[Any, ...]:
        values = next(self._tuples)
        self.index += 1
        return values

    def __iter__(self) -> Self:
        return self


#: What `nditer` may be told: these mean nothing for it, or it does them.
_FLAGS = frozenset({"multi_index", "c_index", "refs_ok", "zerosize_ok", "buffered", "common_dtype", "delay_bufalloc"})


class nditer:  # the name is numpy's
    """An nditer is an iterator over the elements of arrays that broadcast, to be read.

    Parameters
    ----------
    op
        An array, or a sequence of arrays.
    flags
        ``multi_index`` and ``c_index`` are kept; ``external_loop``, ``f_index`` and ``reduce_ok`` are refused.
    op_flags
        Of each operand; ``readonly`` only.
    order
        ``C`` or ``K``, which are one here.

    Raises
    ------
    NotSupportedError
        For operands that are written, and for orders and loops of numpy's buffers.

    Examples
    --------
    >>> import distarray as dx
    >>> it = dx.nditer(dx.asarray([5, 7]), flags=["multi_index"])
    >>> [(it.multi_index, int(v)) for v in it]
    [((0,), 5), ((1,), 7)]
    """

    def __init__(
        self, op: Any, flags: Sequence[str] | None = None, op_flags: Any = None, *, order: str = "K", **options: Any
    ) -> None:
        way = "use an expression of arrays, dx.fromfunction or dx.map_blocks"
        wanted = sequence(flags or (), "flags", "names")
        if unknown := set(wanted) - _FLAGS:
            raise NotSupportedError(f"nditer: flags={sorted(unknown)} speak of numpy's buffers; {way}")
        written = {w for group in (op_flags or ()) for w in ([group] if isinstance(group, str) else group)}
        if not written <= {"readonly", "nbo", "aligned", "contig", "copy"}:
            raise NotSupportedError(f"nditer: op_flags={shown(op_flags)}: elements are read here, not written; {way}")
        if order not in ("C", "K", "A") or any(v is not None for v in options.values()):
            raise NotSupportedError(f"nditer: order={order!r} and options {sorted(options)} are numpy's; {way}")
        self._one = not isinstance(op, list | tuple)
        if not self._one and any(x is None for x in op):
            raise NotSupportedError(f"nditer: None asks for an array to be written, and elements are read here; {way}")
        self._broadcast = broadcast(*([op] if self._one else op))
        if not self._broadcast.size and "zerosize_ok" not in wanted:
            raise ValueError("Iteration of zero-sized operands is not enabled")
        self._flags = wanted
        self.shape = self._broadcast.shape
        self.ndim = self._broadcast.ndim
        self.nop = self._broadcast.numiter
        self.itersize = self._broadcast.size
        self.index = 0
        self._is_begun = False
        self._read: tuple[Any, ...] | None = None

    @property
    def multi_index(self) -> tuple[int, ...]:
        """Return the index of the element that it is at."""
        if "multi_index" not in self._flags:
            raise ValueError("Iterator is not tracking a multi-index")
        return tuple([int(i) for i in np.unravel_index(min(self.index, max(self.itersize - 1, 0)), self.shape)])

    @property
    def finished(self) -> bool:
        """Return whether it is past the last element."""
        return self.index >= self.itersize

    @property
    def value(self) -> Any:
        """Return the element that it is at, a copy; of several operands a tuple."""
        if self.finished:
            raise ValueError("Iterator is past the end")
        if self._read is None:
            self._read = tuple([np.asarray(v) for v in next(self._broadcast)])
        return self._read[0] if self._one else self._read

    def iternext(self) -> bool:
        """Go on to the next element; return whether there is one."""
        if not self.finished:
            _ = self.value  # which is read in turn
            self._read = None
            self.index += 1
        return not self.finished

    def __getitem__(self, index: int | slice) -> Any:
        value = self.value
        return ((value,) if self._one else value)[index]

    def __next__(self) -> Any:
        if self._is_begun:
            self.iternext()
        self._is_begun = True
        if self.finished:
            raise StopIteration
        return self.value

    def __iter__(self) -> Self:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        pass
