"""Chains of halo stages: loops of stencil steps with one exchange for many steps, beside one for each.

What is gained is named here: messages, and tasks, by those of plans without chains. `cluster_seconds` measures the
same on the cluster whose client is open.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import distarray as dx
from distarray.planner import halos
from distarray.planner.rates import Rates
from distarray.runtime import planning

from .ratios import Goal, exactly
from .sizes import SIZE

STEPS = 32
MEMBERS = 4


def jacobi(x: Any, steps: int) -> None:
    """Relax a matrix in place."""
    for _ in range(steps):
        x[1:-1, 1:-1] = 0.25 * (x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:])


def smoothed(x: Any, steps: int) -> Any:
    """Return weighted means of neighbours of neighbours, fewer with each step."""
    for _ in range(steps):
        x = (x[:-2] + x[1:-1] * 2 + x[2:]) * 0.25
    return x


PROGRAMS: dict[str, Callable[[Any, int], Any]] = {"jacobi": jacobi, "smoothed": smoothed}


@contextmanager
def _chains(is_on: bool) -> Iterator[None]:
    """Plan afresh as on a cluster, with chains or without."""

    def chained(plan: Any, graph: Any, env: Any, limits: Any) -> Any:
        return halos.chained(plan, graph, env.mesh, limits, Rates()) if is_on and env.size > 1 else plan

    before, planning._chained = planning._chained, chained
    dx.plan_cache_clear()
    try:
        with dx.config.set(block_bytes=1 << 12):
            yield
    finally:
        planning._chained = before
        dx.plan_cache_clear()


def _run(name: str, x: Any) -> Any:
    made = PROGRAMS[name](x, STEPS)
    return x if made is None else made


def counts(name: str, n: int, is_on: bool) -> tuple[int, int]:
    """Messages and tasks of all steps on a team of this process."""
    with dx.use(dx.Team((MEMBERS,), ("x",))), _chains(is_on):
        x = dx.asarray(np.random.default_rng(0).random((n, 64)), sharding=("x", None)) * 1.0
        x.persist()
        with dx.testing.counting() as counted:
            _run(name, x).persist()
    return len(counted.transfers), counted.tasks


def ratios(name: str, n: int) -> tuple[float, float]:
    """Messages and tasks with chains, by those without."""
    (messages, tasks), (other_messages, other_tasks) = counts(name, n, True), counts(name, n, False)
    return messages / other_messages, tasks / other_tasks


def cluster_seconds(name: str, shape: tuple[int, int], is_on: bool) -> float:
    """Seconds of all steps on the cluster whose client is open."""
    with _chains(is_on):
        x = (
            dx.asarray(np.random.default_rng(0).random(shape), sharding=(dx.current_team().axes[0], None)) * 1.0
        ).persist()
        dx.wait(x)
        start = time.perf_counter()
        dx.wait(_run(name, x).persist())
        return time.perf_counter() - start


def goals(size: str = SIZE) -> list[Goal]:
    """Where fewer messages and tasks are claimed."""
    n = 4096
    return [
        goal
        for name in PROGRAMS
        for goal in (
            Goal(f"halo chains: messages of {name}", lambda name=name: exactly(ratios(name, n)[0]), 1 / 16),
            Goal(f"halo chains: tasks of {name}", lambda name=name: exactly(ratios(name, n)[1]), 1 / 8),
        )
    ]


class HaloChains:
    params = (list(PROGRAMS), [SIZE])
    param_names = ("program", "size")

    def track_messages_ratio(self, program: str, size: str) -> float:
        return ratios(program, 4096)[0]

    def track_tasks_ratio(self, program: str, size: str) -> float:
        return ratios(program, 4096)[1]
