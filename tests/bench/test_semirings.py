"""Semirings: all that is timed computes the same, and every goal can be measured."""

import numpy as np
import pytest
from benchmarks import semirings


@pytest.mark.parametrize("size", ["XS", pytest.param("S", marks=pytest.mark.slow)])
@pytest.mark.parametrize("program", semirings.PAIRS)
def test_all_ways_to_compute_a_semiring_agree(program, size):
    ours, *others = [np.asarray(run()) for run in semirings.programs(program, size).values()]
    for other in others:
        np.testing.assert_array_equal(ours, other)


def test_goals_are_measured():
    assert [goal.at_most for goal in semirings.goals("XS")] == [0.5, 0.75] * 2
    assert semirings.ratio_to("numpy by rows", "distance", "XS").median > 0
