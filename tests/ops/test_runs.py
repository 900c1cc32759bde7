"""Exact splitting: the right numbers in a bounded number of rounds and samples, whatever the keys."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distarray.expr.expr import Environment, source
from distarray.ops.runs import SAMPLES, Runs, _even, elements_at, split

ENV = Environment(None, "cpu")


def runs_of(tiles, descending=False):
    bounds = tuple(np.cumsum([0, *map(len, tiles)]).tolist())
    return Runs(source(np.concatenate(tiles), ENV), None, bounds, None, descending)


def driven(program, tiles):
    """What a program returns, and how many elements it looked at in each round."""
    rounds = []
    try:
        ask = next(program)
        while True:
            (node,) = ask.values
            positions, bounds = node.operands[1].memo.blocks[0], node.runtime.operands[1]
            seen = [t[positions[a:b]] for t, a, b in zip(tiles, bounds, bounds[1:])]
            rounds.append(len(positions))
            ask = program.send((np.concatenate(seen),))
    except StopIteration as stop:
        return stop.value, rounds


def expected(tiles, ranks):
    """By a stable sort of all elements."""
    owner = np.repeat(np.arange(len(tiles)), list(map(len, tiles)))
    order = owner[np.argsort(np.concatenate(tiles), stable=True)]
    return np.array([np.bincount(order[:r], minlength=len(tiles)) for r in ranks]).T


@given(
    st.lists(st.lists(st.integers(0, 5), max_size=30), min_size=1, max_size=6),
    st.lists(st.floats(0, 1), min_size=1, max_size=5),
    st.booleans(),
)
def test_split_is_that_of_a_stable_sort(drawn, shares, as_nan):
    tiles = [np.sort(np.array(t, float)) for t in drawn]
    if as_nan:
        tiles = [np.sort(np.where(t == 5, np.nan, t)) for t in tiles]
    n = sum(map(len, tiles))
    ranks = np.array([round(s * n) for s in shares])
    found, _ = driven(split(runs_of(tiles), ranks), tiles)
    np.testing.assert_array_equal(found, expected(tiles, ranks))


KEYS = {
    "drawn": lambda i, n, rng: rng.random(n),
    "constant": lambda i, n, rng: np.ones(n),
    "half equal": lambda i, n, rng: np.where(rng.random(n) < 0.5, 0.5, rng.random(n)),
    "in order": lambda i, n, rng: np.arange(n) + i * n,
    "reversed": lambda i, n, rng: np.arange(n) - i * n,
    "lognormal": lambda i, n, rng: np.exp(20 * rng.standard_normal(n)),
    "dense in one tile": lambda i, n, rng: rng.random(n) if i else 0.5 + rng.random(n) * 1e-9,
}


@pytest.mark.parametrize("n_tiles", [2, 8, 24])
@pytest.mark.parametrize("keys", KEYS)
def test_two_rounds_of_few_samples_are_enough(keys, n_tiles):
    rng = np.random.default_rng(0)
    tiles = [np.sort(KEYS[keys](i, 40_000 // n_tiles, rng)) for i in range(n_tiles)]
    n = sum(map(len, tiles))
    ranks = np.arange(1, n_tiles) * n // n_tiles
    found, rounds = driven(split(runs_of(tiles), ranks), tiles)
    np.testing.assert_array_equal(found, expected(tiles, ranks))
    assert len(rounds) <= 2
    assert sum(rounds) <= min(8 * n_tiles * n**0.5, 2 * SAMPLES)


def test_the_limit_of_samples_costs_rounds_and_not_exactness(monkeypatch):
    monkeypatch.setattr("distarray.ops.runs.SAMPLES", 64)
    rng = np.random.default_rng(0)
    tiles = [np.sort(rng.integers(0, 1000, 5_000)) for _ in range(4)]
    ranks = np.array([5_000, 10_000, 10_001])
    found, rounds = driven(split(runs_of(tiles), ranks), tiles)
    np.testing.assert_array_equal(found, expected(tiles, ranks))
    assert max(rounds) <= 4 * 3 * 32
    assert len(rounds) > 2


def test_elements_of_ranks_in_either_order():
    rng = np.random.default_rng(0)
    tiles = [np.sort(rng.integers(0, 50, n)) for n in (100, 0, 300)]
    ranks = np.array([[0, 399], [7, 200]])
    everything = np.sort(np.concatenate(tiles))
    found, _ = driven(elements_at(runs_of(tiles), ranks), tiles)
    np.testing.assert_array_equal(found, everything[ranks])
    turned = [t[::-1] for t in tiles]
    found, _ = driven(elements_at(runs_of(turned, descending=True), ranks), turned)
    np.testing.assert_array_equal(found, everything[::-1][ranks])


def test_even_shares_of_huge_tiles_do_not_overflow():
    n = 10**10
    bounds = np.array([0, n // 3, n // 2, n])
    lengths, ranks = np.diff(bounds), np.array([0, n // 4, n // 2, n - 1, n])
    found = _even(lengths, ranks)
    assert found.tolist() == [[int(a) * int(r) // n for r in ranks] for a in lengths]
    assert (np.diff(found, axis=1) >= 0).all() and found[:, -1].tolist() == lengths.tolist()


def test_even_shares_of_nothing_are_none():
    assert _even(np.zeros(3, np.int64), np.zeros(2, np.int64)).tolist() == [[0, 0]] * 3
    assert _even(np.array([5]), np.empty(0, np.int64)).shape == (1, 0)
