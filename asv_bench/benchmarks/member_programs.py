"""Member programs: iterative loops on a cluster as one Dask task of each member, beside one for each tile and piece.

What is gained is named here: Dask tasks, which are counted, and seconds on the cluster whose client is open, beside
NumPy in this process and, where it can express the loop, ``dask.array`` on the same cluster (`seconds`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import distarray as dx
from distarray.runtime import running

from .cluster_meter import MeteredCluster, measured
from .ratios import Goal, exactly
from .sizes import SIZE, few, of_size

WORKERS = 4
#: Rows and columns, and steps.
EXTENTS: tuple[int, int] = of_size({"XS": (64, 3), "S": (600, 10), "M/8": (2000, 10), "M": (4000, 10)})


def power(xp: Any, a: Any, steps: int) -> Any:
    """Return the eigenvector of the largest eigenvalue, by the power method."""
    v = a[0] * 0 + 1
    for _ in range(steps):
        v = a @ v
        v = v / xp.sqrt((v * v).sum())
    return v


def clusters(xp: Any, a: Any, steps: int) -> Any:
    """Return the means of a mixture of four Gaussians of the first three columns, by expectation-maximization."""
    points = a[:, :3]
    means = a[:4, :3]
    for _ in range(steps):
        weights = xp.exp(-((points[:, None, :] - means[None]) ** 2).sum(-1))
        weights = weights / weights.sum(1)[:, None]
        means = (weights.T @ points) / weights.sum(0)[:, None]
    return means


def gradients(xp: Any, a: Any, steps: int) -> Any:
    """Return the error of conjugate gradients, which asks for three numbers in each step."""
    matrix = a + a.T + 2 * a.shape[0] * xp.eye(a.shape[0])
    x = a[0] * 0
    r = p = x + 1
    before = float(r @ r)
    for _ in range(steps):
        q = matrix @ p
        alpha = before / float(p @ q)
        x, r = x + alpha * p, r - alpha * q
        after = float(r @ r)
        p, before = r + after / before * p, after
        error = float(abs(r).max())
    return error


def sharpened(xp: Any, a: Any, steps: int) -> Any:
    """Return an image sharpened by the method of Richardson and Lucy, with four transforms in each step."""
    image, kernel = a * 1.0, xp.fft.fft2(a / (a.shape[0] * a.shape[1]))
    for _ in range(steps):
        blurred = xp.fft.ifft2(xp.fft.fft2(image) * kernel).real
        image = image * xp.fft.ifft2(xp.fft.fft2(a / blurred) * xp.conj(kernel)).real
    return image


def relaxed(xp: Any, a: Any, steps: int) -> Any:
    """Return a matrix that is relaxed in place, by the method of Jacobi."""
    u = a * 1.0
    for _ in range(steps):
        u[1:-1, 1:-1] = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])
    return u


def waves(xp: Any, a: Any, steps: int) -> Any:
    """Return the heights of shallow water, with three updates in place per step."""
    h, u, v = a * 1.0, a * 0.5, a.T * 0.5
    for _ in range(steps):
        u[1:-1, 1:-1] -= 0.1 * (h[1:-1, 2:] - h[1:-1, :-2])
        v[1:-1, 1:-1] -= 0.1 * (h[2:, 1:-1] - h[:-2, 1:-1])
        h[1:-1, 1:-1] -= 0.1 * (u[1:-1, 2:] - u[1:-1, :-2] + v[2:, 1:-1] - v[:-2, 1:-1])
    return h


LOOPS: dict[str, Callable[[Any, Any, int], Any]] = {
    "power method": power,
    "mixture of Gaussians": clusters,
    "conjugate gradients": gradients,
    "Richardson-Lucy": sharpened,
    "Jacobi in place": relaxed,
    "shallow water": waves,
}
#: Of each worker: all that its programs read, make and send fits, so that messages come as they are made.
MEMORY = "2GiB"


@contextmanager
def _programs(is_on: bool) -> Iterator[None]:
    before = running.programs_of
    if not is_on:
        running.programs_of = lambda *args: None
    try:
        yield
    finally:
        running.programs_of = before


def _settled(value: Any) -> None:
    if isinstance(value, dx.DistArray):
        dx.wait(value.persist())
    elif hasattr(value, "compute"):
        value.compute()


def seconds(name: str, system: str, a: Any, steps: int) -> float:
    """Return the seconds of a loop on the cluster whose client is open.

    Parameters
    ----------
    system
        ``programs``, ``tasks`` (one for each tile and piece), ``numpy`` or ``dask``, which cannot transform a cut axis.
    """
    if system == "numpy":
        xp, x = np, a
    elif system == "dask":
        import dask.array as da

        xp, x = da, da.from_array(a, chunks=(-(-len(a) // WORKERS), -1)).persist()
    else:
        xp = dx
        x = (dx.asarray(a, sharding=(dx.current_team().axes[0], None)) * 1.0).persist()
        dx.wait(x)
    times = []
    with _programs(system != "tasks"):
        for _ in range(4):  # the first makes plans
            start = time.perf_counter()
            _settled(LOOPS[name](xp, x, steps))
            times.append(time.perf_counter() - start)
    return float(np.median(times[1:]))


def tasks_ratio(client: Any, name: str, a: Any, steps: int) -> float:
    """Return the Dask tasks of a loop of all members, by those that it has as one task for each tile and piece."""
    x = (dx.asarray(a, sharding=(dx.current_team().axes[0], None)) * 1.0).persist()
    dx.wait(x)
    found = []
    for is_on in (True, False):
        with _programs(is_on):
            cost, _ = measured(client, lambda: LOOPS[name](dx, x, steps), _settled)
        found.append(cost.tasks)
    return found[0] / found[1]


def _goal(name: str, n: int, steps: int) -> float:
    with MeteredCluster(WORKERS, MEMORY) as cluster, dx.config.set(block_bytes=0):  # not at one member
        return tasks_ratio(cluster.client, name, np.random.default_rng(0).random((n, n)), steps)


def goals(size: str = SIZE) -> list[Goal]:
    """Where fewer tasks are claimed."""
    at_most = {
        "power method": 0.2,
        "mixture of Gaussians": 0.2,
        "Richardson-Lucy": 0.05,
        "Jacobi in place": 0.5,
        "shallow water": 0.2,
    }
    return [
        Goal(f"member programs: tasks of {name}", lambda name=name: exactly(_goal(name, 64, 10)), most)
        for name, most in at_most.items()
    ]


class MemberPrograms:
    params = (few(LOOPS, 2), [SIZE])
    param_names = ("loop", "size")
    timeout = 600

    def setup(self, loop: str, size: str) -> None:
        self.n, self.steps = EXTENTS
        self.a = np.random.default_rng(0).random((self.n, self.n))
        self.cluster = MeteredCluster(WORKERS, MEMORY)

    def teardown(self, loop: str, size: str) -> None:
        self.cluster.close()

    def track_seconds_by_tasks(self, loop: str, size: str) -> float:
        return seconds(loop, "programs", self.a, self.steps) / seconds(loop, "tasks", self.a, self.steps)

    def track_seconds_by_numpy(self, loop: str, size: str) -> float:
        return seconds(loop, "programs", self.a, self.steps) / seconds(loop, "numpy", self.a, self.steps)


#: Tiles of an array of eight elements in each.
TILES: int = of_size({"XS": 400, "S": 10_000, "M/8": 100_000, "M": 100_000})


class ManyTiles:
    """What an operation on an array in many tiles costs the client, and the scheduler in keys."""

    params = ([SIZE],)
    param_names = ("size",)
    timeout = 600

    def setup(self, size: str) -> None:
        self.cluster = MeteredCluster(WORKERS, MEMORY)
        self.x = dx.ones(8 * TILES).rechunk(8).persist()
        for _ in range(2):  # makes the plan, and has workers keep the programs
            dx.wait((self.x + 1).persist())

    def teardown(self, size: str) -> None:
        self.cluster.close()

    def track_client_seconds_of_repeat(self, size: str) -> float:
        before = time.thread_time()
        (self.x + 1).persist()
        return time.thread_time() - before

    def track_keys_in_memory(self, size: str) -> int:
        x = (self.x + 1).persist()
        dx.wait(x)
        return len(x.__dx_node__().memo.held)
