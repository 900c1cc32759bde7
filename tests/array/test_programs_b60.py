"""The acceptance programs (B-60): plain NumPy code, on any team and on the strict device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from helpers import some

import distarray as dx
from distarray.testing import counting, no_host_copies

#: Makes an array of the namespace from a host array.
Make = Callable[[np.ndarray], Any]
#: Runs for ever; yields after each iteration the arrays that it goes on with, and the result.
Program = Callable[[Any, Make], Iterator[tuple[Any, ...]]]

N, RADIUS = 17, 2


def star() -> dict[tuple[int, int], float]:
    weights = {}
    for k in range(1, RADIUS + 1):
        for at in ((0, k), (k, 0)):
            weights[at] = 1 / (2 * k * RADIUS)
            weights[-at[0], -at[1]] = -1 / (2 * k * RADIUS)
    return weights


def box() -> dict[tuple[int, int], float]:
    weights = {}
    for k in range(1, RADIUS + 1):
        for i in range(1 - k, k):
            w = 1 / (4 * k * (2 * k - 1) * RADIUS)
            weights[i, k] = weights[k, i] = w
            weights[i, -k] = weights[-k, i] = -w
        weights[k, k] = 1 / (4 * k * RADIUS)
        weights[-k, -k] = -1 / (4 * k * RADIUS)
    return weights


def stencil_2d(weights: dict[tuple[int, int], float]) -> Program:
    def run(xp: Any, make: Make) -> Iterator[tuple[Any, ...]]:
        r, n = RADIUS, N
        a = make(np.add.outer(np.arange(n), np.arange(n)).astype(float))
        b = make(np.zeros((n, n)))
        while True:
            b[r : n - r, r : n - r] += sum(w * a[r + i : n - r + i, r + j : n - r + j] for (i, j), w in weights.items())
            a += 1
            yield a, b

    return run


def wave(xp: Any, make: Make) -> Iterator[tuple[Any, ...]]:
    """A membrane with fixed ends."""
    x = np.linspace(-1, 1, N)
    now = make(np.exp(-10 * np.add.outer(x**2, x**2)))
    before = now.copy()
    while True:
        later = 2 * now - before
        later[1:-1, 1:-1] += 0.1 * (
            now[2:, 1:-1] + now[:-2, 1:-1] + now[1:-1, 2:] + now[1:-1, :-2] - 4 * now[1:-1, 1:-1]
        )
        later[0, :] = later[-1, :] = 0.0
        later[:, 0] = later[:, -1] = 0.0
        before, now = now, later
        yield before, now


def shallow_water(xp: Any, make: Make) -> Iterator[tuple[Any, ...]]:
    """Height and two velocities on a staggered grid with walls."""
    x = np.linspace(-1, 1, N)
    height = make(1 + 0.1 * np.exp(-20 * np.add.outer(x**2, (x - 0.2) ** 2)))
    u, v = make(np.zeros((N + 1, N))), make(np.zeros((N, N + 1)))
    dt, dx_, g = 0.01, 0.1, 9.81
    while True:
        u[1:-1, :] -= g * dt / dx_ * (height[1:, :] - height[:-1, :])
        v[:, 1:-1] -= g * dt / dx_ * (height[:, 1:] - height[:, :-1])
        flux_x = u[1:-1, :] * (height[1:, :] + height[:-1, :]) / 2
        flux_y = v[:, 1:-1] * (height[:, 1:] + height[:, :-1]) / 2
        height[:-1, :] -= dt / dx_ * flux_x
        height[1:, :] += dt / dx_ * flux_x
        height[:, :-1] -= dt / dx_ * flux_y
        height[:, 1:] += dt / dx_ * flux_y
        energy = xp.sum(g * height**2) + xp.sum(u**2) + xp.sum(v**2)
        yield height, u, v, energy


def _erf(xp: Any, x: Any) -> Any:
    """Abramowitz and Stegun, 7.1.26: within 1.5e-7."""
    t = 1 / (1 + 0.3275911 * xp.abs(x))
    poly = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    return xp.where(x < 0, -1.0, 1.0) * (1 - poly * xp.exp(-x * x))


def black_scholes(xp: Any, make: Make) -> Iterator[tuple[Any, ...]]:
    rng = np.random.default_rng(0)
    price, strike = make(rng.uniform(10, 50, 101)), make(rng.uniform(10, 50, 101))
    years = make(rng.uniform(1, 2, 101))
    rate, volatility = 0.1, 0.2
    while True:
        root = volatility * xp.sqrt(years)
        d1 = (xp.log(price / strike) + (rate + volatility**2 / 2) * years) / root
        d2 = d1 - root
        n1, n2 = 0.5 + 0.5 * _erf(xp, d1 / 2**0.5), 0.5 + 0.5 * _erf(xp, d2 / 2**0.5)
        discounted = strike * xp.exp(-rate * years)
        call = price * n1 - discounted * n2
        put = call - price + discounted
        price = price * 1.01
        yield price, call, put


def transpose(xp: Any, make: Make) -> Iterator[tuple[Any, ...]]:
    a = make(np.arange(float(N * N)).reshape(N, N))
    b = make(np.zeros((N, N)))
    while True:
        b += a.T
        a += 1
        yield a, b


PROGRAMS: dict[str, Program] = {
    "stencil-2d, star": stencil_2d(star()),
    "stencil-2d, box": stencil_2d(box()),
    "wave equation": wave,
    "shallow water": shallow_water,
    "Black-Scholes": black_scholes,
    "transpose": transpose,
}
TEAMS = [None, dx.Team((1,), ("R",)), dx.Team((3,), ("R",)), dx.Team((4,), ("R",)), dx.Team((2, 2), ("R", "C"))]
ITERATIONS = 5


def placer(team: dx.Team | None, device: str) -> Make:
    def make(values: np.ndarray) -> dx.DistArray:
        cut = None if team is None else (*team.axes, None)[: values.ndim]
        return dx.asarray(values, team=team, device=device, sharding=cut)

    return make


@pytest.mark.parametrize("device", ["cpu", "strict", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("team", some(TEAMS), ids=repr)
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_equal_numpy_and_plan_nothing_in_the_steady_state(
    name: str, team: dx.Team | None, device: str
) -> None:
    """B-60, B-15, B-28: under the guard against host copies.

    An iteration plans nothing once its state, of two time levels at most, has no host data left in it.
    """
    dx.plan_cache_clear()
    theirs = PROGRAMS[name](np, lambda values: values)
    planner_calls = []
    with nullcontext() if device == "cpu" else no_host_copies():
        ours = PROGRAMS[name](dx, placer(team, device))
        for _ in range(ITERATIONS):
            with counting() as c:
                state = next(ours)
                for x in state:
                    x.persist()
            planner_calls.append(c.planner_calls)
            expected = next(theirs)
    for x, a in zip(state, expected, strict=True):
        assert x.team == team
        assert x.device == device
        np.testing.assert_allclose(np.asarray(x), a, rtol=1e-11, atol=1e-13)
    assert sum(planner_calls[3:]) == 0


@pytest.mark.parametrize("team", TEAMS, ids=repr)
@pytest.mark.parametrize("name", ["stencil-2d, star", "stencil-2d, box"])
def test_the_check_value_of_the_stencil(name: str, team: dx.Team | None) -> None:
    """B-60: the mean absolute value of the interior is 2*(iterations+1), the first one being the warm-up."""
    ours = PROGRAMS[name](dx, placer(team, "cpu"))
    iterations = 4
    for _ in range(iterations + 1):
        _, b = next(ours)
    r = RADIUS
    norm = float(dx.mean(dx.abs(b[r:-r, r:-r])))
    np.testing.assert_allclose(norm, 2 * (iterations + 1), rtol=1e-12)


@pytest.mark.parametrize("name", some(PROGRAMS))
def test_programs_need_no_observation_to_stay_bounded(name: str) -> None:
    """B-60, B-17: fifty iterations without looking plan a few windows, whatever the number of statements in a turn."""
    dx.plan_cache_clear()
    theirs, ours = PROGRAMS[name](np, lambda values: values), PROGRAMS[name](dx, placer(TEAMS[3], "cpu"))
    with counting() as c:
        for _ in range(50):
            state, expected = next(ours), next(theirs)
        results = [np.asarray(x) for x in state]
    for got, a in zip(results, expected, strict=True):
        np.testing.assert_allclose(got, a, rtol=1e-9, atol=1e-11)
    assert c.planner_calls <= 3 + len(state)
