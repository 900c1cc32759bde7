"""The random programs of the benchmarks draw what they say on every system, at the smallest size."""

import numpy as np
import pytest
from benchmarks import random_numbers
from benchmarks.systems import SYSTEMS

MEANS = {"random": 0.5, "standard_normal": 0.0, "gamma": 2.5, "poisson": 30.0}


@pytest.mark.parametrize("name", random_numbers.COMPARED)
@pytest.mark.parametrize("program", random_numbers.PROGRAMS)
def test_random_programs_have_their_means(program, name):
    system = SYSTEMS[name]
    drawn = system.force(random_numbers.PROGRAMS[program](random_numbers.generator(system), random_numbers.ROWS["XS"]))
    host = np.asarray(drawn)
    assert host.shape == (random_numbers.ROWS["XS"],)
    assert abs(host.mean() - MEANS[program]) < 5 * host.std() / host.size**0.5
