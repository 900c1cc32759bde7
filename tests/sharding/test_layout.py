import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distarray.errors import ShardingError
from distarray.sharding.layout import (
    c_layout,
    drop_axes,
    layout_name,
    layout_of,
    parse_layout,
)
from distarray.testing import strategies as dst


def block(shape, layout):
    """A block of this layout, made by numpy: allocate in order, then look at it in the order of the axes."""
    return np.empty([shape[axis] for axis in layout]).transpose(np.argsort(layout))


shape_and_layout = dst.shapes(max_dims=4, max_side=5).flatmap(
    lambda shape: st.tuples(st.just(shape), dst.layouts(len(shape)))
)


@given(shape_and_layout)
def test_layout_of_finds_the_order_of_a_block(case):
    """Every long axis keeps its order; a block that is C (or F) contiguous is named so."""
    shape, layout = case
    found = layout_of(shape, block(shape, layout).strides)
    assert sorted(found) == list(range(len(shape)))
    if 0 not in shape:
        assert [a for a in found if shape[a] > 1] == [a for a in layout if shape[a] > 1]
        flags = block(shape, layout).flags
        if flags.c_contiguous:
            assert layout_name(found) == "C"
        elif flags.f_contiguous:
            assert layout_name(found) == "F"


@given(st.integers(0, 5).flatmap(dst.layouts), st.sets(st.integers(0, 4)))
def test_dropping_axes_keeps_the_order_of_the_rest(layout, axes):
    """C-4: reductions drop axes and keep the order of the rest."""
    axes = {axis for axis in axes if axis < len(layout)}
    kept = [axis for axis in range(len(layout)) if axis not in axes]
    dropped = drop_axes(layout, axes)
    assert [kept[axis] for axis in dropped] == [axis for axis in layout if axis in kept]
    assert len(dropped) == len(kept)


@given(st.integers(0, 5).flatmap(dst.layouts))
def test_name_and_permutation_are_inverse(layout):
    assert parse_layout(layout_name(layout), len(layout)) == layout


def test_rank_0_and_1_are_always_c():
    for name in ("C", "F"):
        assert parse_layout(name, 0) == ()
        assert parse_layout(name, 1) == (0,)
    assert layout_name(()) == layout_name((0,)) == "C"


def test_letters_stand_for_the_orders():
    assert c_layout(3) == parse_layout("C", 3) == (0, 1, 2)
    assert parse_layout("F", 3) == (2, 1, 0)
    assert parse_layout([2, np.int64(0), 1], 3) == (2, 0, 1)


@pytest.mark.parametrize("layout", ["K", "c", (0, 0), (0,), (1, 2), (0, 1, 2), (0.0, 1.0), 1, None])
def test_what_is_no_permutation_is_an_error(layout):
    """C-15."""
    with pytest.raises(ShardingError, match="is no order of the 2 axes"):
        parse_layout(layout, 2)
