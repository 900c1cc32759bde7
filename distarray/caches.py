"""Bounded caches with counters, and how what they remember is made."""

from __future__ import annotations

import gc
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Generic, NamedTuple, TypeVar


class CacheInfo(NamedTuple):
    """A CacheInfo is the counters of a cache, as ``functools.lru_cache`` names them."""

    hits: int
    misses: int
    maxsize: int
    currsize: int


T = TypeVar("T")


@contextmanager
def collected_later() -> Iterator[None]:
    """Let Python look for garbage in cycles after a block that makes much which lives on.

    Plans and their tasks are up to a million objects, and each look walks all that there are: of 1,000 members it takes
    half of the time of lowering.
    """
    is_on = gc.isenabled()
    try:
        gc.disable()
        yield
    finally:
        if is_on:
            gc.enable()


class LRUCache(Generic[T]):
    """An LRUCache is values by key, the least recently used dropped first. Safe for use from several threads."""

    def __init__(self) -> None:
        self._values: OrderedDict[Hashable, T] = OrderedDict()
        self._lock = threading.Lock()
        self._hits = self._misses = 0
        self._maxsize = 0

    def get(self, key: Hashable, make: Callable[[], T], maxsize: int) -> T:
        """Return the value of `key`, made by `make` if it is not here; `maxsize` values are remembered."""
        with self._lock:
            self._maxsize = maxsize
            value = self._values.get(key)
            if value is not None:
                self._values.move_to_end(key)
                self._hits += 1
                return value
            self._misses += 1
        with collected_later():
            value = make()
        self.put(key, value, maxsize)
        return value

    def put(self, key: Hashable, value: T, maxsize: int) -> None:
        """Remember a value in the place of what was known."""
        with self._lock:
            self._values[key] = value
            while len(self._values) > maxsize:
                self._values.popitem(last=False)

    def info(self) -> CacheInfo:
        """Return the counters since the last `clear`."""
        return CacheInfo(self._hits, self._misses, self._maxsize, len(self._values))

    def clear(self) -> None:
        """Forget all values and counters."""
        with self._lock:
            self._values.clear()
            self._hits = self._misses = 0
