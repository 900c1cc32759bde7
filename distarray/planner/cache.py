"""The caches of plans (B-28, B-29)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distarray.caches import CacheInfo, LRUCache

if TYPE_CHECKING:
    from distarray.planner.eindecomp import EinPlan
    from distarray.planner.plan import Plan

#: The plans of this process, by the key of their graph.
PLANS: LRUCache[Plan] = LRUCache()
#: Those that ``dx.plan`` made, by graph and options.
EINPLANS: LRUCache[EinPlan] = LRUCache()


def plan_cache_info() -> CacheInfo:
    """Return hits, misses, maximal and current size of the plan cache."""
    from distarray import config

    return PLANS.info()._replace(maxsize=config.get("plan-cache-size"))


def plan_cache_clear() -> None:
    """Forget all plans; arrays are not affected."""
    PLANS.clear()
    EINPLANS.clear()
