"""Bounded caches with counters: of plans (B-28, B-29), and of what is made from them."""

from __future__ import annotations

import gc
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from distarray.planner.eindecomp import EinPlan
    from distarray.planner.plan import Plan


class PlanCacheInfo(NamedTuple):
    """A PlanCacheInfo is the counters of the plan cache, as ``functools.lru_cache`` names them."""

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

    def info(self) -> PlanCacheInfo:
        """Return the counters since the last `clear`."""
        return PlanCacheInfo(self._hits, self._misses, self._maxsize, len(self._values))

    def clear(self) -> None:
        """Forget all values and counters."""
        with self._lock:
            self._values.clear()
            self._hits = self._misses = 0


#: The plans of this process, by the key of their graph.
PLANS: LRUCache[Plan] = LRUCache()
#: Those that ``dx.plan`` made, by graph and options.
EINPLANS: LRUCache[EinPlan] = LRUCache()


def plan_cache_info() -> PlanCacheInfo:
    """Return hits, misses, maximal and current size of the plan cache."""
    from distarray import config

    return PLANS.info()._replace(maxsize=config.get("plan-cache-size"))


def plan_cache_clear() -> None:
    """Forget all plans; arrays are not affected."""
    PLANS.clear()
    EINPLANS.clear()
