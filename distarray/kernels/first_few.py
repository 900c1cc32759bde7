"""Kernels of the first few elements of rows, in a stable order: what is chosen is put in order, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from distarray.kernels import sorting
from distarray.kernels.loans import copied
from distarray.kernels.namespaces import Block, Namespace, Params
from distarray.types import HostArray

#: Elements of a row from which on groups of them are looked at first.
MANY_IN_ROW = 1 << 12


def _top_tiles(xp: Namespace, x: Block, params: Params) -> Any:
    """Return the first elements of a tile in stable order and where they stood; params: (how many, descending,
    offset).
    """
    k, descending, (start,) = params
    order = _top_rows(xp, x, params=(min(k, x.shape[0]), descending))
    return xp.take(x, order, axis=0), order + start


def _top_rows(xp: Namespace, x: Block, *, params: Params) -> Block:
    """Return where the first elements of the last axis stand, in stable order; params: (how many, descending)."""
    k, descending = params
    n = x.shape[-1]
    # Complex numbers have no order to compare by; of half precision numbers see `sorting._order_halves`.
    if xp is not np or 4 * k >= n or not k or x.dtype.kind == "c" or x.dtype == np.float16:
        return sorting.argsort(xp, x, params=(descending, True))[..., :k]
    rows = x.reshape(-1, n)
    out = np.empty((len(rows), k), np.intp)
    at_once = max(1, sorting.SLICE // n)
    for begin in range(0, len(rows), at_once):
        some = rows[begin : begin + at_once]
        at = _candidates(some, k, descending)
        order = sorting.argsort(xp, np.take_along_axis(some, at, axis=1), params=(descending, True))
        out[begin : begin + at_once] = np.take_along_axis(at, order, axis=1)
    return out.reshape(*x.shape[:-1], k)


def _candidates(rows: HostArray, k: int, descending: bool) -> HostArray:
    """Return the positions, ascending, of the `k` elements of each row that a stable sort puts first: no full sort."""
    n = rows.shape[1]
    if len(rows) == 1 and n > MANY_IN_ROW and (few := _few_of_row(rows[0], k, descending)) is not None:
        return np.asarray(few[_candidates(rows[:, few], k, descending)])
    place = n - k if descending else k - 1
    parted = copied(rows)
    parted.partition(place, axis=1)
    kth = parted[:, place : place + 1]
    chosen = rows >= kth if descending else rows <= kth
    # Rows with nan among the first, which compare as false, or with more elements that equal the last of these.
    is_unclear = np.count_nonzero(chosen, axis=1) != k
    if descending and (lost := sorting.is_nan(np, parted[:, place:])) is not None:
        is_unclear |= lost.any(axis=1)
    unclear = np.flatnonzero(is_unclear)
    if unclear.size:
        some, limit = rows[unclear], kth[unclear]
        sure, level = (some > limit if descending else some < limit), some == limit
        if (nan := sorting.is_nan(np, some)) is not None:
            is_last = limit != limit
            sure = np.where(is_last, not descending and ~nan, sure | nan if descending else sure)
            level = np.where(is_last, nan, level)
        left = k - np.count_nonzero(sure, axis=1)[:, None]
        chosen[unclear] = sure | (level & (np.cumsum(level, axis=1) <= left))
    return np.asarray(np.flatnonzero(chosen).reshape(-1, k) - n * np.arange(len(rows))[:, None])


def _few_of_row(x: HostArray, k: int, descending: bool) -> HostArray | None:
    """Return the positions, ascending, of few elements of a long row among which the first `k` are; None where that is
    not seen at once.

    The row is looked at in groups: the first element of each of `k` groups is at least as far in front as the last one
    that is chosen.
    """
    n_groups = 8 * k
    groups = x[: x.size // n_groups * n_groups].reshape(n_groups, -1)
    if groups.shape[1] < n_groups:
        return None
    ends = groups.max(axis=1) if descending else groups.min(axis=1)
    limit = np.sort(ends)[-k if descending else k - 1]
    if limit != limit:
        return None
    chosen = x >= limit if descending else x <= limit
    if descending and (nan := sorting.is_nan(np, x)) is not None:
        chosen |= nan
    few = np.flatnonzero(chosen)
    return few if 4 * few.size < x.size else None


#: As `sorting.BLOCK`.
BLOCK: dict[str, Callable[..., Any]] = {"top_rows": _top_rows, "top_tiles": _top_tiles}
