"""Objects that are indexed to make arrays: ``mgrid``, ``ogrid``, ``r_`` and ``c_``, as numpy's."""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import Any

import numpy as np

from distarray.arguments import shown
from distarray.array.array import DistArray
from distarray.array.environment import within
from distarray.composed.conversion import array
from distarray.composed.creation import arange, empty
from distarray.composed.sequences import linspace
from distarray.composed.views import broadcast_to
from distarray.errors import NotSupportedError
from distarray.expr.side_by_side import first_environment
from distarray.ops import joining
from distarray.types import DType


class _Coordinates:
    """A _Coordinates makes coordinates: ``grid[0:1:5j, 0:3]`` has an axis for each slice; an imaginary step is a number
    of points, the last of which is the end.

    Parameters
    ----------
    sparse
        Whether each result has the extent of its own axis only (``ogrid``), or all are one array (``mgrid``).
    """

    def __init__(self, *, sparse: bool) -> None:
        self.sparse = sparse

    def __getitem__(self, key: Any) -> Any:
        key = tuple(key) if isinstance(key, list) else key
        slices = key if isinstance(key, tuple) else (key,)
        for i, each in enumerate(slices):
            if not isinstance(each, slice) or each.stop is None:
                raise TypeError(f"a grid is made of slices with an end: entry {i} is {shown(each)}")
        if not isinstance(key, tuple):
            return _line(key, None)
        bounds = [v for s in slices for v in (s.start or 0, s.stop, _step(s))]
        dtype = np.result_type(0, *bounds)
        lines = [_line(s, dtype) for s in slices]
        n = len(lines)
        columns = tuple([line.reshape([-1 if a == i else 1 for a in range(n)]) for i, line in enumerate(lines)])
        if self.sparse:
            return columns
        shape = tuple([len(line) for line in lines])
        if not columns:
            return empty((0,), dtype)
        return joining.stack([broadcast_to(c.astype(dtype, copy=False), shape) for c in columns])

    def __repr__(self) -> str:
        return "ogrid" if self.sparse else "mgrid"


def _step(s: slice) -> Any:
    return 1 if s.step is None else abs(s.step) if isinstance(s.step, complex) else s.step


def _line(s: slice, dtype: DType | None) -> DistArray:
    """Return the points of one slice, by numpy's arithmetic: of a single one in the dtype of its bounds."""
    start, stop, step = s.start or 0, s.stop, _step(s)
    if isinstance(s.step, complex):
        n = int(step)
        if n != 1:
            step = (stop - start) / float(n - 1)
        dtype = np.result_type(start, stop, float(step)) if dtype is None else dtype
        return arange(0, n, 1, dtype) * step + start
    if dtype is None:
        return arange(start, stop, step)
    return arange(max(0, math.ceil((stop - start) / step)), dtype=dtype) * step + start


class _Joiner:
    """A _Joiner is a maker of arrays from what stands in the brackets: slices, which are ranges, numbers and arrays.

    Parameters
    ----------
    axis
        Along which they are joined.
    ndmin
        Axes that each has at least.
    first
        Where the axes of an array with fewer go, -1 for the last places.
    """

    def __init__(self, name: str, axis: int = 0, ndmin: int = 1, first: int = -1) -> None:
        self.name, self.axis, self.ndmin, self.first = name, axis, ndmin, first

    def __getitem__(self, key: Any) -> DistArray:
        items = key if isinstance(key, tuple) else (key,)
        axis, ndmin, first = self.axis, self.ndmin, self.first
        if items and isinstance(items[0], str):
            axis, ndmin, first = self._directive(items[0])
            items = items[1:]
        if any(isinstance(item, str) for item in items):
            raise ValueError("special directives must be the first entry.")
        env = first_environment(items)
        with nullcontext() if env is None else within(env):
            parts = [_part(item, ndmin, first) for item in items]
            dtype = np.result_type(*[v if np.isscalar(v) else p.dtype for v, p in zip(items, parts)]) if parts else None
            for v in items:
                if type(v) is int:
                    np.asarray(v, dtype)  # what does not fit is numpy's error, a cast would wrap around
            return joining.concat([p if dtype is None else p.astype(dtype, copy=False) for p in parts], axis=axis)

    def _directive(self, text: str) -> tuple[int, int, int]:
        """Return axis, least number of axes, and where axes go, from text such as ``"0,2,1"``."""
        if text in ("r", "c"):
            raise NotSupportedError(f"{self.name}[{text!r}, ...] makes a matrix of numpy's; use dx.r_ or dx.c_, and @")
        try:
            said = [int(v) for v in text.split(",")]
            given = (*said, *(self.axis, self.ndmin, self.first)[len(said) :])
            axis, ndmin, first = given
        except ValueError:
            raise ValueError(f"unknown special directive {text!r}") from None
        return axis, ndmin, first

    def __len__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return self.name


def _part(item: Any, ndmin: int, first: int) -> DistArray:
    if isinstance(item, slice):
        start, step = item.start or 0, 1 if item.step is None else item.step
        is_counted = isinstance(step, complex)
        line = linspace(start, item.stop, int(abs(step))) if is_counted else arange(start, item.stop, step)
        part = array(line, copy=None, ndmin=ndmin)
        return part.swapaxes(-1, first) if ndmin > 1 and first != -1 else part
    part = array(item, copy=None, ndmin=ndmin)
    missing = ndmin - np.ndim(item)
    if np.isscalar(item) or first == -1 or missing <= 0:
        return part
    at = first + missing + 1 if first < 0 else first
    axes = list(range(ndmin))
    return part.transpose(*axes[:at], *axes[missing:], *axes[at:missing])


mgrid = _Coordinates(sparse=False)
ogrid = _Coordinates(sparse=True)
r_ = _Joiner("r_")
c_ = _Joiner("c_", -1, 2, 0)
