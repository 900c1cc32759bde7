"""Bounded caches with counters, and how what they remember is made."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Generic, NamedTuple, TypeVar

from distarray.forks import free_in_child


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


class _Remembered(Generic[T]):
    """A _Remembered is a value, and when it was last used: who moved it in an order would hash its long key twice."""

    __slots__ = ("used", "value")

    def __init__(self, value: T, used: int) -> None:
        self.value = value
        self.used = used


class LRUCache(Generic[T]):
    """An LRUCache is values by key, the least recently used dropped first. Safe for use from several threads."""

    def __init__(self) -> None:
        self._values: dict[Hashable, _Remembered[T]] = {}
        self._now = 0
        self._lock = free_in_child(threading.Lock())
        self._hits = self._misses = 0
        self._maxsize = 0

    def get(self, key: Hashable, make: Callable[[], T], maxsize: int) -> T:
        """Return the value of `key`, made by `make` if it is not here; `maxsize` values are remembered."""
        with self._lock:
            self._maxsize = maxsize
            found = self._values.get(key)
            if found is not None:
                found.used = self._now = self._now + 1
                self._hits += 1
                return found.value
            self._misses += 1
        with collected_later():
            value = make()
        self.put(key, value, maxsize)
        return value

    def put(self, key: Hashable, value: T, maxsize: int) -> None:
        """Remember a value in the place of what was known."""
        with self._lock:
            self._now += 1
            self._values[key] = _Remembered(value, self._now)
            while len(self._values) > maxsize:
                del self._values[min(self._values.items(), key=lambda item: item[1].used)[0]]

    def info(self) -> CacheInfo:
        """Return the counters since the last `clear`."""
        return CacheInfo(self._hits, self._misses, self._maxsize, len(self._values))

    def clear(self) -> None:
        """Forget all values and counters."""
        with self._lock:
            self._values.clear()
            self._hits = self._misses = 0
