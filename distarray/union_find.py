"""Sets of things that are found out, two by two, to belong together."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class UnionFind(Generic[T]):
    """A UnionFind is disjoint sets of things, for each of which one of them stands: that of a set of one is itself.

    >>> same = UnionFind[str]()
    >>> same.union("a", "b"), same.union("c", "b"), same.find("a"), same.find("d")
    ('a', 'c', 'c', 'd')
    """

    def __init__(self) -> None:
        self._above: dict[T, T] = {}

    def find(self, x: T) -> T:
        """Return what stands for the set of `x`."""
        above = self._above
        while (up := above.get(x, x)) != x:
            above[x] = x = above.get(up, up)
        return x

    def union(self, x: T, y: T) -> T:
        """Make one set of two; return what stands for it, which is what stood for that of `x`."""
        x, y = self.find(x), self.find(y)
        if x != y:
            self._above[y] = x
        return x
