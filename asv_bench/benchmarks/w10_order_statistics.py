"""W10: order statistics on skewed keys, in one vector over all members.

Goals at S: a stable sort takes at most twice numpy's time; no tile of the result is larger than its share, and less
than a twentieth of the elements' bytes comes to the host, whatever the keys.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .inputs import g, u
from .ratios import Goal, Ratio, exactly, interleaved, ratio
from .sizes import SIZE, of_size
from .systems import SYSTEMS, System

#: elements
ROWS = {"XS": 20_000, "S": 1_000_000, "M": 2_000_000_000}
#: dask.array has neither sort nor argsort of a vector.
COMPARED = ("numpy", "distarray")
PERCENTS = [0.1, 1.0, 50.0, 99.0, 99.9]

Vector = NDArray[Any]  # of floats or of integers


def _zipf(n: int) -> Vector:
    return np.minimum(np.floor((1 - u(1, (n,))) ** (-1 / 1.1)), 2.0**31 - 1).astype(np.int64)


#: By name, for n elements. More than half of the integers are 1; the last are sorted in reverse.
KEYS: dict[str, Callable[[int], Vector]] = {
    "lognormal": lambda n: np.exp(3 * g(1, (n,))),
    "zipf": _zipf,
    "reversed": lambda n: -np.arange(n, dtype=np.float64),
}


def edges(keys: str, n: int) -> Vector:
    """The edges of 100 bins, equally wide in the logarithm."""
    return -np.geomspace(n, 1, 101) if keys == "reversed" else np.geomspace(1e-6, 2.0**31, 101)


def sought(keys: str, n: int) -> Vector:
    """A thousand sorted queries."""
    return np.sort(-n * u(2, (1000,)) if keys == "reversed" else np.exp(3 * g(2, (1000,))))


def mean_above(xp: Any, a: Any, percent: float) -> Any:
    return a[a > float(xp.percentile(a, percent))].mean()


#: ``(xp, keys, edges, queries)``
PROGRAMS: dict[str, Callable[[Any, Any, Vector, Vector], Any]] = {
    "sort": lambda xp, a, bins, v: xp.sort(a, stable=True),
    "argsort": lambda xp, a, bins, v: xp.argsort(a, stable=True),
    "percentile": lambda xp, a, bins, v: xp.percentile(a, PERCENTS),
    "unique": lambda xp, a, bins, v: xp.unique(a, return_counts=True),
    "mean above median": lambda xp, a, bins, v: mean_above(xp, a, 50),
    "mean above 99.9 %": lambda xp, a, bins, v: mean_above(xp, a, 99.9),
    "histogram": lambda xp, a, bins, v: xp.histogram(a, bins=bins)[0],
    "searchsorted": lambda xp, a, bins, v: xp.searchsorted(xp.sort(a), v),
}


def operands(system: System, keys: str, size: str, members: int | None = None) -> tuple[Any, Vector, Vector]:
    n = of_size(ROWS, size)
    blocks = None if members is None else (members,)
    return system.put(KEYS[keys](n), blocks), edges(keys, n), sought(keys, n)


def run(system: System, program: str, given: tuple[Any, Vector, Vector]) -> list[Any]:
    """The results of a program, computed."""
    made = PROGRAMS[program](system.xp, *given)
    results = list(made) if isinstance(made, tuple) else [made]
    return [system.force(x) if np.ndim(x) else x for x in results]


def ratio_to_numpy(program: str, keys: str, size: str = SIZE) -> Ratio:
    """Time of distarray, cut over two members, over that of numpy."""

    def prepared(system: System) -> Callable[[], object]:
        given = operands(system, keys, size, 2)
        return lambda: run(system, program, given)

    taken = interleaved({name: prepared(SYSTEMS[name]) for name in COMPARED})
    return ratio(taken["distarray"], taken["numpy"])


def skew(keys: str, size: str = SIZE, members: int = 8) -> tuple[float, float]:
    """The largest tile of a sorted vector over its share; the bytes that came to the host over those of the keys."""
    from distarray.testing import counting

    system = SYSTEMS["distarray"]
    x, *_ = operands(system, keys, size, members)
    with counting() as counted:
        y = system.force(system.xp.sort(x))
    return max(np.diff(y.sharding.boundaries(y.shape)[0])) * members / y.size, counted.fetched_bytes / x.nbytes


def goals(size: str = SIZE) -> list[Goal]:
    """Where what is promised of sorting is claimed."""
    found = []
    for keys in ("lognormal", "zipf"):
        found.append(Goal(f"sort of {keys} keys / numpy", lambda keys=keys: ratio_to_numpy("sort", keys, size), 2.0))
    for keys in KEYS:
        found.append(Goal(f"largest tile / share, {keys}", lambda keys=keys: exactly(skew(keys, size)[0]), 1.001))
        found.append(Goal(f"bytes to the host, {keys}", lambda keys=keys: exactly(skew(keys, size)[1]), 0.05))
    return found


class OrderStatistics:
    params = (list(PROGRAMS), list(KEYS), [SIZE], list(COMPARED))
    param_names = ("program", "keys", "size", "system")
    timeout = 600

    def setup(self, program: str, keys: str, size: str, system: str) -> None:
        self.system = SYSTEMS[system]
        self.given = operands(self.system, keys, size, 2)

    def time_program(self, program: str, keys: str, size: str, system: str) -> None:
        run(self.system, program, self.given)

    def peakmem_program(self, program: str, keys: str, size: str, system: str) -> None:
        run(self.system, program, self.given)


class SkewOfSorting:
    params = (list(KEYS), [SIZE])
    param_names = ("keys", "size")
    timeout = 600

    def track_largest_tile(self, keys: str, size: str) -> float:
        return skew(keys, size)[0]

    def track_bytes_to_host(self, keys: str, size: str) -> float:
        return skew(keys, size)[1]
