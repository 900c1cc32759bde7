"""The cache of plans: a bounded LRU with counters (environments.md, B-28 and B-29)."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import NamedTuple

from distarray.planner.plan import Plan

__all__ = ["PlanCache", "PlanCacheInfo"]


class PlanCacheInfo(NamedTuple):
    """Counters of the plan cache, as ``functools.lru_cache`` names them."""

    hits: int
    misses: int
    maxsize: int
    currsize: int


class PlanCache:
    """Plans by key, the least recently used dropped first. Safe for use from several threads."""

    def __init__(self) -> None:
        self._plans: OrderedDict[Hashable, Plan] = OrderedDict()
        self._lock = threading.Lock()
        self._hits = self._misses = 0
        self._maxsize = 0

    def get(self, key: Hashable, make: Callable[[], Plan], maxsize: int) -> Plan:
        """The plan of `key`, made by `make` if it is not here; `maxsize` plans are remembered."""
        with self._lock:
            self._maxsize = maxsize
            plan = self._plans.get(key)
            if plan is not None:
                self._plans.move_to_end(key)
                self._hits += 1
                return plan
            self._misses += 1
        plan = make()
        with self._lock:
            self._plans[key] = plan
            while len(self._plans) > maxsize:
                self._plans.popitem(last=False)
        return plan

    def info(self) -> PlanCacheInfo:
        """Counters since the last `clear`."""
        return PlanCacheInfo(self._hits, self._misses, self._maxsize, len(self._plans))

    def clear(self) -> None:
        """Forget all plans and counters."""
        with self._lock:
            self._plans.clear()
            self._hits = self._misses = 0
