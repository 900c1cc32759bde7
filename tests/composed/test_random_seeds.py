"""What a seed is: NumPy's, its generators and bit generators; and streams that are shared, copied and restored."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distarray as dx
from distarray.testing.assertions import assert_equal


@pytest.mark.parametrize("make", ["default_rng", "RandomState"])
@pytest.mark.parametrize(
    "seed",
    [-1, 1.5, "a", [1, -1], np.array([0.5]), 2**32, [1, 2**32], [], [[1, 2]], range(3), True, np.uint8(3), {1: 2}],
)
def test_seeds_are_refused_where_numpy_refuses_them(make: str, seed: Any) -> None:
    try:
        getattr(np.random, make)(seed)
    except (ValueError, TypeError) as error:
        with pytest.raises(type(error)):
            getattr(dx.random, make)(seed)
    else:
        assert getattr(dx.random, make)(seed).random(3).shape == (3,)


@pytest.mark.parametrize("make", [dx.random.Generator, dx.random.default_rng, dx.random.RandomState])
@pytest.mark.parametrize("words", ["MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64", "RandomState", "default_rng"])
def test_generators_and_bit_generators_of_numpy_are_seeds(make: Callable[[Any], Any], words: str) -> None:
    source = getattr(dx.random if words.isupper() else np.random, words)
    first = make(source(5)).random(4).compute()
    assert_equal(make(source(5)).random(4), first)
    shared = source(5)
    draws = [make(shared).random(4).compute() for _ in range(2)]
    np.testing.assert_array_equal(draws[0], first)
    assert not np.isin(draws[1], first).any()


def test_generators_share_a_bit_generator() -> None:
    rng = dx.random.default_rng(3)
    other = dx.random.RandomState(rng.bit_generator)
    drawn = [g.random(3).compute() for g in (rng, other, copy.copy(rng))]
    again = dx.random.default_rng(3)
    for x in drawn:
        assert_equal(again.random(3), x)
    apart = copy.deepcopy(rng)
    assert_equal(apart.random(3), rng.random(3).compute())
    words = pickle.loads(pickle.dumps(rng.bit_generator))
    assert words.state == rng.bit_generator.state
    assert_equal(dx.random.Generator(words.spawn(2)[1]).random(3), rng.spawn(2)[1].random(3).compute())


@pytest.mark.parametrize(("state", "error"), [((), TypeError), ({"bit_generator": "MT19937"}, ValueError)])
def test_states_of_other_kinds_are_refused(state: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        dx.random.RandomState(0).set_state(state)
