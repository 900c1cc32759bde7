"""W10: every function on every set of keys equals numpy, and no member holds more than its share."""

import numpy as np
import pytest
from benchmarks import w10_order_statistics as w10
from benchmarks.systems import SYSTEMS

SIZES = ["XS", pytest.param("S", marks=pytest.mark.slow)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("members", [2, 8])
@pytest.mark.parametrize("keys", w10.KEYS)
def test_order_statistics_equal_numpy(keys, members, size):
    ours, theirs = SYSTEMS["distarray"], SYSTEMS["numpy"]
    given, expected = w10.operands(ours, keys, size, members), w10.operands(theirs, keys, size)
    for program in w10.PROGRAMS:
        for result, reference in zip(w10.run(ours, program, given), w10.run(theirs, program, expected), strict=True):
            if program.startswith("mean"):
                np.testing.assert_allclose(np.asarray(result), reference, rtol=1e-12)
            else:
                np.testing.assert_array_equal(np.asarray(result), reference)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("keys", w10.KEYS)
def test_no_tile_is_larger_than_its_share_whatever_the_skew(keys, size):
    share, to_host = w10.skew(keys, size)
    assert share == 1.0
    assert to_host < (0.2 if size == "XS" else 0.05)
