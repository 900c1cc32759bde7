"""The cut rule: where the parts of an axis begin and end.

``n`` elements in ``k`` parts have the boundaries ``floor(i * n / k)``, ``i = 0..k``, everywhere in distarray. Sizes
differ by at most one, parts may be empty, and the rule *nests*: the boundaries for ``k`` parts are among those for
``k * m``. numpy's ``array_split`` and ceil-division do not nest, so splitting by 2 and then by 3 would not equal
splitting by 6. The price: a finer cut is always computed from ``n``, never by cutting a part again.

Explicit boundaries (slices, concatenations, chunked stores) are plain tuples of the same form.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from operator import index

from distarray.errors import ShardingError

#: Of an axis, and members of a mesh: tables have a row for each, and a longer one is made by nobody who waits for it.
MAX_PARTS = 1 << 22
#: Tiles that one array may be cut in when it is computed: they are planned and handed out one by one, at some 0.1 ms.
MAX_TILES = 1 << 17


@lru_cache(maxsize=8192)
def boundaries(n: int, k: int) -> tuple[int, ...]:
    """Return the boundaries of `n` elements in `k` parts: ``k + 1`` numbers from 0 to `n`.

    >>> boundaries(8, 3), boundaries(3, 4)
    ((0, 2, 5, 8), (0, 0, 1, 2, 3))
    """
    if n < 0 or not 1 <= k <= MAX_PARTS:
        raise ShardingError(f"cannot cut {n} elements into {k} parts; need n >= 0 and 1 <= k <= {MAX_PARTS}")
    return tuple(i * n // k for i in range(k + 1))


def owner(n: int, k: int, r: int) -> int:
    """Return the part that holds index `r` when `n` elements are cut into `k` parts; ``0 <= r < n``.

    The last ``i`` with ``floor(i * n / k) <= r`` is the largest ``i`` with ``i * n < (r + 1) * k``.

    >>> [owner(8, 3, r) for r in range(8)]
    [0, 0, 1, 1, 1, 2, 2, 2]
    """
    return ((r + 1) * k - 1) // n


def parts_of(bounds: Sequence[int], start: int, stop: int) -> range:
    """Return the parts that hold the indices ``start <= r < stop``, as one range; empty if there are none.

    Empty parts strictly inside the range are included: callers see them as empty overlaps.

    >>> parts_of((0, 3, 3, 7, 10), 2, 7), parts_of((0, 3, 3, 7, 10), 3, 3)
    (range(0, 3), range(0, 0))
    """
    if start >= stop:
        return range(0)
    # The part of stop - 1 ends at the first boundary >= stop.
    return range(bisect_right(bounds, start) - 1, bisect_left(bounds, stop))


def largest_part(bounds: Sequence[int]) -> int:
    """Return the size of the largest part; for a regular cut this is ``ceil(n / k)``.

    >>> largest_part((0, 3, 3, 7, 10))
    4
    """
    return max(b - a for a, b in pairwise(bounds))


def check_boundaries(bounds: Sequence[int]) -> tuple[int, ...]:
    """Return `bounds` as a tuple of ints, once it is known to cut some number of elements.

    Raises
    ------
    ShardingError
        If there is no part, an entry is not an integer, the first is not 0, or they decrease.
    """
    try:
        result = tuple(index(b) for b in bounds)
    except TypeError:
        raise ShardingError(f"boundaries must be integers, got {bounds!r}") from None
    if len(result) < 2 or result[0] != 0:
        raise ShardingError(f"boundaries {list(result)} must begin with 0 and name at least one part")
    for i, (a, b) in enumerate(pairwise(result)):
        if b < a:
            raise ShardingError(f"boundaries {list(result)} decrease from {a} to {b} at part {i}")
    return result
