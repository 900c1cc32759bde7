"""The seeded inputs of the workloads."""

import numpy as np
import pytest
from benchmarks.inputs import g, g_at, u, u_at
from hypothesis import given
from hypothesis import strategies as st


def test_uniform_check_values_hold_exactly():
    assert u(0, (3,)).tolist() == [0.8833108082136426, 0.43152799704850997, 0.026433771592597743]
    assert u(7, (1,))[0] == 0.06564445050516932


def test_normal_check_values_hold_to_the_last_digits():
    # log1p and cos may differ in the last bit between C libraries.
    assert g(1, (2,)) == pytest.approx([0.6077397704949684, -0.46978178010855604], rel=1e-15)


@given(st.integers(0, 200), st.lists(st.integers(0, 2**40), min_size=1, max_size=20))
def test_inputs_are_pure_functions_of_the_global_index(seed, indices):
    index = np.array(indices)
    alone = np.array([u_at(seed, index[i : i + 1])[0] for i in range(len(indices))])
    assert np.array_equal(u_at(seed, index), alone)
    assert ((alone >= 0) & (alone < 1)).all()


def test_an_array_is_numbered_in_row_major_order():
    assert np.array_equal(u(3, (4, 5, 6))[2, 3, 4], u_at(3, np.array((2 * 5 + 3) * 6 + 4)))
    assert np.array_equal(g(3, (4, 5)).ravel()[7:9], g_at(3, np.arange(7, 9)))


def test_moments_are_those_of_the_distributions():
    uniform, normal = u(1, (100_000,)), g(1, (100_000,))
    assert abs(uniform.mean() - 1 / 2) < 0.005
    assert abs(uniform.var() - 1 / 12) < 0.002
    assert abs(normal.mean()) < 0.02
    assert abs(normal.var() - 1) < 0.02


def test_seeds_give_unrelated_streams():
    streams = np.stack([u(seed, (10_000,)) for seed in range(6)])
    assert np.abs(np.corrcoef(streams) - np.eye(6)).max() < 0.05
