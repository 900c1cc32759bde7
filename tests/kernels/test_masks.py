"""Elements where a mask is true, and where it is: numpy's, in slices and parts."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distarray.kernels import masks

DTYPES = ["?", "i1", "i4", "f2", "f8", "c16", "M8[s]"]


@settings(max_examples=200, derandomize=True, deadline=None)
@given(st.data())
def test_they_are_numpys(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(0, 5), min_size=1, max_size=3)))
    n_axes = data.draw(st.integers(1, len(shape)))
    rng = np.random.default_rng(data.draw(st.integers(0, 100)))
    block: Any = rng.integers(0, 100, shape).astype("i8").astype(data.draw(st.sampled_from(DTYPES)))
    mask: Any = rng.random(shape[:n_axes]) < data.draw(st.sampled_from([0, 0.1, 0.5, 1]))
    if data.draw(st.booleans()):
        block, mask = np.asfortranarray(block), np.asfortranarray(mask)
    n_threads = data.draw(st.integers(1, 4))
    with (
        mock.patch.multiple(masks, FEW=0, SLICE=data.draw(st.integers(1, 7))),
        mock.patch.object(masks, "threads_for", return_value=n_threads),
    ):
        found, places = masks.compressed(block, mask), masks.where_true(mask)
    assert (found.dtype, found.shape) == (block.dtype, block[mask].shape)
    np.testing.assert_array_equal(found, block[mask])
    assert not np.shares_memory(found, block)
    assert len(places) == mask.ndim
    for one, other in zip(places, mask.nonzero(), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("share", [0.001, 0.5])
def test_of_many_elements(share: float) -> None:
    block = np.random.default_rng(0).random((3, 40_000))
    mask = block < share
    np.testing.assert_array_equal(masks.compressed(block, mask), block[mask])
    np.testing.assert_array_equal(masks.where_true(mask), mask.nonzero())
