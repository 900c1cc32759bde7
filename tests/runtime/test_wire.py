"""Blocks travel with their strides and without a copy."""

import itertools

import numpy as np
import pytest

from distarray.runtime.wire import pack, unpack


@pytest.mark.parametrize("axes", list(itertools.permutations(range(3))))
def test_permuted_block_travels_contiguous_and_comes_back_with_its_strides(axes):
    """C-12."""
    block = np.arange(24.0).reshape(2, 3, 4).transpose(axes)
    sent, order = pack(block)
    assert sent.flags.forc
    assert np.shares_memory(sent, block)
    arrived = unpack((sent.copy("A"), order))
    assert arrived.strides == block.strides
    np.testing.assert_array_equal(arrived, block)


@pytest.mark.parametrize(
    "block", [np.arange(12.0)[::-2], np.arange(24).reshape(4, 6)[:, ::2], np.float64(3.0), (np.ones(2), 3)]
)
def test_what_has_no_order_of_its_own_travels_as_it_is(block):
    sent, order = pack(block)
    assert sent is block
    assert order is None
    assert unpack((sent, order)) is block
