"""Where elements stand: in a sorted row, by binary search or a guess that is checked; and the first that is extreme."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np

_Row: TypeAlias = np.ndarray[Any, np.dtype[Any]]

#: Elements that are looked up at a time: what is needed in between stays in cache.
SLICE = 1 << 15
#: Elements from which on it pays to guess, and numbers in the row.
MANY, SHORTEST = 1 << 14, 4
#: Bytes of elements of which all patterns of bits are searched, if there are so many times as many elements.
LOOKED_UP, TIMES = 2, 4
#: Part of the elements of the first slice that may be guessed wrong, else all are searched.
WRONG = 0.1
#: Along rows of so many elements at least, passes over at most so many rows take less time than a search of each
#: column; as far as so many elements stay in a cache meanwhile.
LONG, FEW, CACHED = 512, 64, 1 << 18
#: As FEW, of the last axis, where the rows do not lie as such.
FEWEST = 10


def searchsorted(xp: Any, row: Any, sought: Any, side: Literal["left", "right"]) -> Any:
    """Return how many numbers of a sorted row stand before each element, as ``searchsorted`` of the namespace does.

    A binary search mispredicts most of its branches. In a row of about even steps, as edges of bins are, the place is
    guessed by one product, and looked at: only where the guess is wrong is there a search.
    """
    if xp is np:
        if sought.dtype.kind in "biuf" and sought.itemsize <= LOOKED_UP and sought.size >= TIMES << 8 * sought.itemsize:
            return _looked_up(row, sought, side)
        dtype = np.result_type(row, sought)  # in which numpy compares
        if dtype.char in "fdilq" and sought.dtype.kind in "iuf":
            with np.errstate(all="ignore"):
                found = _guessed(row, sought, side)
            if found is not None:
                return found
    return xp.searchsorted(row, sought, side=side)


def _looked_up(row: _Row, sought: _Row, side: Literal["left", "right"]) -> _Row:
    """Return what `searchsorted` does of elements of a few bits, of which there are many: it is found once for each
    pattern of bits.
    """
    bits = np.dtype(f"u{sought.itemsize}")
    patterns = np.arange(1 << 8 * bits.itemsize, dtype=bits).view(sought.dtype)
    return np.searchsorted(row, patterns, side).take(np.ascontiguousarray(sought).view(bits))


def _guessed(row: _Row, sought: _Row, side: Literal["left", "right"]) -> _Row | None:
    """Return what `searchsorted` does; None where guesses would not pay."""
    n = row.size
    if sought.size < MANY or n < SHORTEST:
        return None
    row = row.astype(np.result_type(row, sought), copy=False)
    first, last = float(row[0]), float(row[-1])
    if not (np.isfinite(first) and np.isfinite(last) and first < last):
        return None
    end = np.inf if row.dtype.kind == "f" else np.iinfo(row.dtype).max
    ends = np.append(row[1:], row.dtype.type(end))
    is_begun, is_before = (np.less_equal, np.less) if side == "right" else (np.less, np.less_equal)
    flat = sought.reshape(-1)
    found = np.empty(flat.size, np.intp)
    scratch = np.empty(SLICE), np.empty(SLICE, np.intp), np.empty(SLICE, row.dtype), *np.empty((2, SLICE), bool)
    for start in range(0, flat.size, SLICE):
        x, out = flat[start : start + SLICE].astype(row.dtype, copy=False), found[start : start + SLICE]
        place, number, edge, begun, before = [s[: x.size] for s in scratch]
        np.subtract(x, first, out=place)
        np.multiply(place, (n - 1) / (last - first), out=place)
        if side == "left":  # what equals a number stands before it
            np.subtract(np.ceil(place, out=place), 1, out=place)
        np.fmin(np.fmax(place, 0, out=place), n - 1, out=place)  # nan is 0, and found to be wrong
        np.copyto(number, place, casting="unsafe")
        # It stands behind `number` if that is so.
        is_begun(np.take(row, number, out=edge, mode="clip"), x, out=begun)
        is_before(x, np.take(ends, number, out=edge, mode="clip"), out=before)
        np.add(number, 1, out=out)
        wrong = np.flatnonzero(~np.logical_and(begun, before, out=begun))
        if not start and wrong.size > WRONG * x.size:
            return None
        out[wrong] = np.searchsorted(row, x[wrong], side)
    return found.reshape(sought.shape)


def has_long_rows(block: _Row, axis: int) -> bool:
    """Return whether elements along an axis are best compared row by row: they are few, and numpy's argmax would begin
    anew for each column.
    """
    if block.dtype.kind not in "biuf":
        return False
    if axis == block.ndim - 1:  # turned first, which costs a pass
        return bool(block.shape[axis] <= FEWEST and block.size >= LONG * FEWEST)
    return bool(block.shape[axis] <= FEW and block.shape[-1] >= LONG)


def first_by_rows(block: _Row, axis: int, *, is_max: bool) -> tuple[_Row, _Row]:
    """Return the largest or smallest elements along an axis and the indices of the first of them, or of a nan."""
    if axis == block.ndim - 1:
        turned = np.ascontiguousarray(block.reshape(-1, block.shape[-1]).T)
        found = first_by_rows(turned, 0, is_max=is_max)
        return found[0].reshape(*block.shape[:-1], 1), found[1].reshape(*block.shape[:-1], 1)
    rows = np.moveaxis(block, axis, 0)
    n = len(rows)
    value, at = np.empty(rows.shape[1:], block.dtype), np.empty(rows.shape[1:], np.intp)
    n_columns = max(LONG, CACHED * block.shape[-1] // block.size)
    for start in range(0, block.shape[-1], n_columns):
        part = (..., slice(start, start + n_columns))
        best = (np.maximum if is_max else np.minimum).reduce(rows[:, *part], axis=0, out=value[part])
        is_best = np.empty(best.shape, np.bool_)
        left, most = is_best.view(np.uint8), np.zeros(best.shape, np.uint8)  # rows from the first of the best on
        for i in range(n):
            np.equal(rows[i][part], best, out=is_best)
            np.maximum(np.multiply(left, n - i, out=left), most, out=most)
        np.subtract(n, most, out=at[part], dtype=np.intp)
    if block.dtype.kind == "f" and (nan := value != value).any():
        at[nan] = np.isnan(rows[:, nan]).argmax(axis=0)
    return np.expand_dims(value, axis), np.expand_dims(at, axis)
