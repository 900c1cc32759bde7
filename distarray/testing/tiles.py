"""Small arrays in many tiles: the way to send a test suite for arrays down the distributed paths."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from distarray.arguments import integer
from distarray.array.environment import forced_parts

__all__ = ["force_tiles"]


@contextmanager
def force_tiles(n: int) -> Iterator[None]:
    """Let every array that is made inside, and is not told its cut, lie in `n` tiles per axis.

    That is so for what creators make, for every result of an operation, and for what a reshaped view shows. The tiles
    are uneven (sizes about 1 : 2 : 3, empty ones where the axis is short) and have explicit boundaries, of at most
    three axes; small arrays are not computed as one block: what is tested is the planner, the tasks and the routes.
    """
    n = integer(n, "n")
    if n < 1:
        raise ValueError(f"force_tiles: n={n} tiles per axis are too few")
    token = forced_parts.set(n)
    try:
        yield
    finally:
        forced_parts.reset(token)
