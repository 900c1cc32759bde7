"""Random numbers depend on the seed, the call and the position; never on team, cut or device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distarray as dx
from distarray.testing.assertions import assert_equal

DRAWS: dict[str, Callable[[Any, Any], Any]] = {
    "random": lambda rng, where: rng.random((60, 7), **where),
    "random, single": lambda rng, where: rng.random((60, 7), np.float32, **where),
    "standard_normal": lambda rng, where: rng.standard_normal((60, 7), **where),
    "uniform": lambda rng, where: rng.uniform(-2, 3, (60, 7), **where),
    "normal": lambda rng, where: rng.normal(5, 2, (60, 7), **where),
    "exponential": lambda rng, where: rng.exponential(2, (60, 7), **where),
    "integers": lambda rng, where: rng.integers(-3, 9, (60, 7), **where),
    "integers, unsigned": lambda rng, where: rng.integers(2**64 - 5, 2**64, (60, 7), np.uint64, **where),
    "permutation": lambda rng, where: rng.permutation(60).reshape(60, 1) + dx.zeros((60, 7), **where, dtype=int),
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
@pytest.mark.parametrize("sharding", [("T", None), (None, "T"), "[1{T; 0,59,59,60}60, 7]"])
def test_the_same_numbers_on_any_cut(draw: Callable[[Any, Any], Any], sharding: Any) -> None:
    team = dx.Team((3,), ("T",))
    with dx.use(team=None):
        expected = draw(dx.random.default_rng(5), {}).compute()
    with dx.use(team):
        rng = dx.random.default_rng(5)
        where = {"sharding": "[59{T; 0,59,59,60}60, 7]" if isinstance(sharding, str) else sharding}
        made = draw(rng, where)
    assert_equal(made, expected)


def test_blocks_that_are_part_of_a_row_have_the_numbers_of_the_whole() -> None:
    whole = dx.random.default_rng(1).random((5, 1000))
    assert_equal(whole[2, 300:700], whole.compute()[2, 300:700])
    assert_equal(dx.random.default_rng(1).random((5, 1000))[::2, ::-3], whole.compute()[::2, ::-3])


def test_seeds_calls_and_children_give_different_numbers() -> None:
    rng, other = dx.random.default_rng(0), dx.random.default_rng(1)
    drawn = [rng.random(50), rng.random(50), other.random(50), *(g.random(50) for g in rng.spawn(2))]
    hosts = [x.compute() for x in drawn]
    for i, a in enumerate(hosts):
        for b in hosts[i + 1 :]:
            assert not np.isin(a, b).any()
    assert dx.random.default_rng(rng) is rng
    assert_equal(dx.random.default_rng([0]).random(5), dx.random.default_rng(0).random(5).compute())


@pytest.mark.parametrize(
    ("draw", "mean", "deviation"),
    [
        (lambda r, n: r.random(n), 0.5, 12**-0.5),
        (lambda r, n: r.random(n, np.float32), 0.5, 12**-0.5),
        (lambda r, n: r.standard_normal(n), 0, 1),
        (lambda r, n: r.normal(3, 2, n), 3, 2),
        (lambda r, n: r.exponential(2, n), 2, 2),
        (lambda r, n: r.integers(0, 10, n), 4.5, (99 / 12) ** 0.5),
        (lambda r, n: r.integers(1, 6, n, endpoint=True), 3.5, (35 / 12) ** 0.5),
    ],
)
def test_moments_are_those_of_the_distribution(draw: Callable[..., Any], mean: float, deviation: float) -> None:
    x = draw(dx.random.default_rng(3), 200_000).compute().astype(float)
    # five standard errors of either
    assert abs(x.mean() - mean) < 5 * deviation / 200_000**0.5
    assert abs(x.std() - deviation) < 0.02 * deviation
    assert abs(np.corrcoef(x[1:], x[:-1])[0, 1]) < 5 / 200_000**0.5


def test_uniform_numbers_are_in_the_half_open_interval() -> None:
    x = dx.random.default_rng(0).random(100_000, np.float32).compute()
    assert x.min() >= 0
    assert x.max() < 1


@pytest.mark.parametrize("bounds", [(5,), (-3, 4), (0, 1), (-(2**63), 2**63), (2**40, 2**40 + 3), (0, 2**63)], ids=str)
def test_integers_keep_their_bounds(bounds: tuple[int, ...]) -> None:
    x = dx.random.default_rng(0).integers(*bounds, size=1000)
    low, high = (0, *bounds) if len(bounds) == 1 else bounds
    host = x.compute()
    assert host.dtype == np.int64
    assert host.min() >= low
    assert int(host.max()) < high
    if high - low < 100:
        assert set(host.tolist()) == set(range(low, high))


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda r: r.integers(5, 5), ValueError),
        (lambda r: r.integers(0, 300, dtype=np.int8), ValueError),
        (lambda r: r.integers(3, dtype=float), TypeError),
        (lambda r: r.random(3, dtype=int), TypeError),
        (lambda r: r.choice(3, 5, replace=False), ValueError),
        (lambda r: r.choice(3, 5, p=[0.5, 0.1, 0.1]), ValueError),
    ],
)
def test_what_cannot_be_drawn_is_refused_at_the_call(call: Callable[[Any], Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        call(dx.random.default_rng(0))


@pytest.mark.parametrize("seed", [-1, 1.5, "a"])
def test_bad_seeds_are_refused(seed: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        dx.random.default_rng(seed)


def test_permutation_choice_and_shuffle_rearrange() -> None:
    rng = dx.random.default_rng(0)
    assert sorted(rng.permutation(20).tolist()) == list(range(20))
    x = dx.arange(12).reshape(6, 2)
    view = x[:, 0]
    rng.shuffle(x)
    assert sorted(view.tolist()) == list(range(0, 12, 2))
    assert_equal(x[:, 1] - x[:, 0], np.ones(6, int))
    assert len(set(rng.choice(10, 10, replace=False).tolist())) == 10
    drawn = rng.choice(np.array([7, 8, 9]), 3000, p=[0.5, 0.0, 0.5]).compute()
    assert set(drawn.tolist()) == {7, 9}
    assert abs((drawn == 7).mean() - 0.5) < 0.05


def test_random_arrays_are_deferred_and_kept_while_they_fit() -> None:
    with dx.testing.counting() as c:
        x = dx.random.default_rng(0).random((1000, 1000))
        assert c.tasks == c.evaluations == 0
        float(x.sum())
    assert "not yet placed" not in repr(x)


def test_random_arrays_that_do_not_fit_are_made_again() -> None:
    with dx.config.set(memory_limit="2 MiB", block_bytes="64 KiB"):
        x = dx.random.default_rng(0).random((1000, 1000))
        mean, deviation = float(x.mean()), float(x.std())
        assert "not yet placed" in repr(x)
    host = x.compute()
    assert mean == pytest.approx(host.mean())
    assert deviation == pytest.approx(host.std())


@pytest.mark.parametrize("name", ["seed", "rand", "randn", "randint", "random", "uniform", "normal", "choice"])
def test_global_state_is_refused_with_the_way_out(name: str) -> None:
    with pytest.raises(TypeError, match=r"default_rng\(seed\)"):
        getattr(dx.random, name)(3)
