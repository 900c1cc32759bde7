"""Prices in seconds: the paper's search for plans with few messages.

An exchange of all with all over ``n1 * n2`` devices in two steps, over `n1` and then over `n2`, moves nearly twice the
bytes, but each device waits for ``n1 + n2 - 2`` messages instead of ``n1 * n2 - 1``. Where messages cost most, the
cheapest path is such a one.
"""

from __future__ import annotations

from functools import lru_cache

from distarray.planner.rates import Rates
from distarray.planner.redistribution.links import NETWORK, link_rates
from distarray.planner.redistribution.problem import Parts, factors
from distarray.planner.redistribution.weak import Space

#: Seconds of a message by those of a step, where steps take none.
_ONLY_MESSAGES = 1e9


class StepCosts:
    """StepCosts price the steps of a redistribution by the rates of a cluster.

    Parameters
    ----------
    itemsize
        Bytes of an element.
    """

    may_repeat = True

    def __init__(self, space: Space, itemsize: int, rates: Rates) -> None:
        latency, per_byte = link_rates(rates)
        self._space = space
        self._latency = float(latency[NETWORK])
        self._per_element = float(per_byte[NETWORK]) * itemsize
        self._step = rates.task * space.n_devices
        self._target = space.size // space.n_dst

    def move(self, tile: int, n: int) -> float:
        """Return the cost of a message from each of the others, and all of the tile but its own share."""
        return self._latency * (n - 1) + self._per_element * tile * (n - 1) / n + self._step

    def permute(self, tile: int) -> float:
        """Return the cost of one message, the tile."""
        return self._latency + self._per_element * tile + self._step

    def gathers(self, parts: Parts) -> tuple[tuple[tuple[int, int], ...], float]:
        """Return gathers in as many steps as are worth it: however they are cut, they move the same elements in all."""
        by_message = self._latency / self._step if self._step else _ONLY_MESSAGES
        factors = [(n, i) for i, (k, d) in enumerate(zip(parts, self._space.dst)) for n in _factors(k // d, by_message)]
        total, now = 0.0, list(parts)
        for n, i in sorted(factors):
            total += self._latency * (n - 1) + self._per_element * self._space.tile(tuple(now)) * (n - 1) + self._step
            now[i] //= n
        return tuple([(i, n) for n, i in sorted(factors)]), total

    def least_move(self, tile: int) -> float:
        """Return the cost of one over two devices."""
        return self.move(tile, 2)

    def least_gathers(self, tile: int) -> float:
        """Return the cost of one message, and the elements that the target has more."""
        more = self._target - tile - 1  # tiles are rounded
        return self._latency + self._per_element * more + self._step if more > 0 else 0.0


@lru_cache(maxsize=4096)
def _factors(n: int, by_message: float) -> tuple[int, ...]:
    """Return the factors of `n` for which steps over so many devices, one after the other, take least.

    Parameters
    ----------
    by_message
        Seconds of a message by those of a step.

    Examples
    --------
    >>> _factors(64, 0.0), _factors(64, 0.1), _factors(64, 10.0)
    ((64,), (8, 8), (2, 2, 2, 2, 2, 2))
    """
    best: tuple[float, tuple[int, ...]] = (1 + by_message * (n - 1), (n,)) if n > 1 else (0.0, ())
    for f in factors(n)[1:]:
        found = tuple(sorted((*_factors(n // f, by_message), f)))
        best = min(best, (len(found) + by_message * sum([m - 1 for m in found]), found))
    return best[1]
