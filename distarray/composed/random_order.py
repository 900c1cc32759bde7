"""Random order and random choice: permutations, shuffles, samples.

A random permutation is the order of random keys, so it does not depend on the cut either; elements then travel to
their places as in any read at integer positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Unpack

import numpy as np

from distarray.arguments import MAX_COUNT, host_array, integer, normalize_axis, shown
from distarray.array.array import DistArray
from distarray.array.out import into
from distarray.composed.placing import Where
from distarray.composed.random_parameters import drawn_shape
from distarray.composed.random_streams import RandomStreams
from distarray.composed.views import as_distarray, beside
from distarray.errors import warn_user
from distarray.ops import elementwise, sorting
from distarray.ops.indexing import take, take_along_axis
from distarray.ops.random import RANDOM_BITS, sampled
from distarray.ops.reductions import cumulative_sum
from distarray.ops.searching import searchsorted


class Order(RandomStreams):
    """Order gives a generator permutations and samples."""

    def permutation(self, x: Any, axis: int = 0, **where: Unpack[Where]) -> DistArray:
        """Return ``range(x)`` or the slices of `x` along `axis` in random order."""
        if (n := _range(x)) is not None:
            return self._order(max(n, 0), where)  # as arange(x)
        given, x = x, as_distarray(x)
        if not x.ndim:
            raise np.exceptions.AxisError(f"x={shown(given)} must be an integer or have one axis at least")
        axis = normalize_axis(axis, x.ndim)
        return take(x, self._order(x.shape[axis], _beside(x, where)), axis=axis)

    def permuted(self, x: Any, *, axis: int | None = None, out: Any = None, **where: Unpack[Where]) -> DistArray:
        """Return `x` with the elements along `axis` in random order, another one for each of the other positions.

        Without an axis all elements change places. `out` may be `x` itself.
        """
        x = as_distarray(x)
        if axis is None and not x.ndim:
            raise TypeError("permuted: x has no axis")
        flat = x.reshape(-1) if axis is None else x
        keys = self._keys(flat.shape, _beside(x, where))
        along = 0 if axis is None else normalize_axis(axis, x.ndim)
        order = sorting.argsort(keys, axis=along)
        mixed = take(flat, order, axis=0) if axis is None else take_along_axis(flat, order, axis=along)
        return into(out, mixed.reshape(x.shape))

    def shuffle(self, x: Any, axis: int = 0) -> None:
        """Bring the slices of `x` along `axis`, or the items of a sequence, into random order, in place."""
        if isinstance(x, DistArray | np.ndarray):
            if x.ndim == 0:
                raise TypeError("shuffle: x has no axis")
            axis = normalize_axis(axis, x.ndim)
            if isinstance(x, DistArray):
                x[...] = self.permutation(x, axis)
            else:
                x[...] = np.take(x, self._order(x.shape[axis], {})._host(), axis)
            return
        if axis != 0:
            raise NotImplementedError("Axis argument is only supported on ndarray objects")
        if not hasattr(x, "__setitem__"):
            raise TypeError(f"shuffle changes arrays and mutable sequences in place, not a {type(x).__name__}")
        if not isinstance(x, Sequence):
            kind = type(x).__name__
            warn_user(f"you are shuffling a {kind!r} object which is not a subclass of 'Sequence'", UserWarning)
        items = [x[i] for i in range(len(x))]
        for i, k in enumerate(self._order(len(items), {})._host().tolist()):
            x[i] = items[k]

    def choice(
        self,
        a: Any,
        size: Any = None,
        replace: bool = True,
        p: Any = None,
        axis: int = 0,
        shuffle: bool = True,
        **where: Unpack[Where],
    ) -> DistArray:
        """Return the elements of `a`, or of ``range(a)``, drawn with or without putting back, with probabilities `p` if
        given.

        Parameters
        ----------
        a
            An integer, or an array, of which slices along `axis` are drawn.
        p
            Probability of each; sums to 1.
        shuffle
            What is drawn without putting back is in random order in any case.
        """
        if (n := _range(a)) is None:
            if not getattr(a, "ndim", isinstance(a, Sequence) and not isinstance(a, str | bytes)):
                raise ValueError(f"a must be a sequence or an integer, not {type(a)}")
            a = as_distarray(a)
            axis = normalize_axis(axis, a.ndim)
            where = _beside(a, where)
        is_range, n = n is not None, a.shape[axis] if n is None else n
        if n > MAX_COUNT:
            raise ValueError(f"a={n} is too large: high is out of bounds for int64")
        shape = drawn_shape(() if size is None else size)
        count = prod(shape)
        if n <= 0 and count:
            kind = "a must be a positive integer" if is_range else "a cannot be empty"
            raise ValueError(f"{kind} unless no samples are taken")
        weights = None if p is None else _weights(p, n)
        if not replace:
            at = self._sample(n, count, weights, where).reshape(shape)
        elif weights is None:
            at = sampled("integers", np.int64, self._words(shape, where), 0, max(n - 1, 0))
        else:
            at = self._weighted(shape, weights, where)
        return at if is_range else take(a, at, axis=axis)

    # ------------------------------------------------------------------------------------------- parts

    def _keys(self, shape: Any, where: Where) -> DistArray:
        """Return random words; two of them are hardly ever equal."""
        return self._draw(RANDOM_BITS, shape, np.uint64, (), where)

    def _order(self, n: int, where: Where) -> DistArray:
        return sorting.argsort(self._keys((n,), where))

    def _sample(self, n: int, count: int, weights: Any, where: Where) -> DistArray:
        """Return positions, each at most once."""
        if count > n:
            raise ValueError("Cannot take a larger sample than population when replace is False")
        if weights is None:
            return self._order(n, where)[:count]
        # Who rings first of alarms that ring at these rates (Efraimidis and Spirakis 2006); rate 0 never rings.
        if int((weights > 0).sum()) < count:
            raise ValueError("Fewer non-zero entries in p than size")
        with np.errstate(divide="ignore", invalid="ignore"):
            rings = self._exponential((n,), where, weights) / weights
            rings = elementwise.where(beside(rings, weights > 0), rings, np.inf)
        return sorting.argsort(rings)[:count]

    def _weighted(self, shape: tuple[int, ...], weights: Any, where: Where) -> DistArray:
        """Return the positions with these probabilities: where uniform numbers fall among their sums."""
        u = self._uniform(shape, _beside(weights, where) if isinstance(weights, DistArray) else where)
        edges = cumulative_sum(beside(u, weights))
        # Of the last one rounding may have left something; what has no weight is never drawn.
        edges = edges / edges[-1]
        return searchsorted(edges, u.reshape(-1), side="right").reshape(shape)


def _beside(x: DistArray, where: Where) -> Where:
    """Return where `x` lives, if nothing else is said."""
    return {"team": x.team, "device": x.device, **where}


def _range(x: Any) -> int | None:
    """Return n where `x` stands for ``range(n)``: an integer, or an array that is one, as of reductions."""
    if isinstance(x, int) or (getattr(x, "ndim", None) == 0 and x.dtype.kind in "iu"):
        return integer(x, "x")
    return None


def _weights(p: Any, n: int) -> Any:
    """Return probabilities as an array of the host or a DistArray; of the latter the sum and the least are computed."""
    dtype = getattr(p, "dtype", None)
    tolerance = float(np.finfo(dtype if dtype is not None and dtype.kind == "f" else np.float64).eps) ** 0.5
    weights = p.astype(np.float64) if isinstance(p, DistArray) else host_array(p, "p", np.float64)
    if weights.ndim != 1:
        raise ValueError("p must be 1-dimensional")
    if weights.shape[0] != n:
        raise ValueError("a and p must have same size")
    total = float(weights.sum())
    if np.isnan(total):
        raise ValueError("Probabilities contain NaN")
    if n and float(weights.min()) < 0:
        raise ValueError("Probabilities are not non-negative")
    if abs(total - 1.0) > tolerance:
        raise ValueError("Probabilities do not sum to 1. See Notes section of docstring for more information.")
    return weights
