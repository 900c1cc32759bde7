from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distarray.errors import ShardingError
from distarray.sharding.cuts import boundaries, check_boundaries, largest_part, owner, parts_of


def test_every_cut_is_balanced_and_covers_the_axis():
    """B-12: for all n <= 200 and k <= 16, sizes sum to n and differ by at most 1."""
    for n in range(201):
        for k in range(1, 17):
            bounds = boundaries(n, k)
            sizes = [b - a for a, b in pairwise(bounds)]
            assert len(sizes) == k
            assert bounds[0] == 0
            assert sum(sizes) == n
            assert max(sizes) - min(sizes) <= 1
            assert largest_part(bounds) == -(-n // k)


def test_a_finer_cut_keeps_every_coarser_boundary():
    """B-12: for all n <= 200 and k, m <= 16, the i-th boundary for k is boundary i * m for k * m (U1)."""
    for n in range(201):
        for k in range(1, 17):
            coarse = boundaries(n, k)
            for m in range(1, 17):
                assert boundaries(n, k * m)[::m] == coarse


def test_owner_agrees_with_the_boundaries():
    """B-12: ((r + 1) * k - 1) // n is the part whose range holds r, for all n <= 200 and k <= 16."""
    for n in range(1, 201):
        for k in range(1, 17):
            bounds = boundaries(n, k)
            for i in range(k):
                assert all(owner(n, k, r) == i for r in range(bounds[i], bounds[i + 1]))


@pytest.mark.parametrize(
    ("n", "k", "sizes"),
    [(8, 3, [2, 3, 3]), (10, 4, [2, 3, 2, 3]), (31, 8, [3] + [4] * 7), (3, 4, [0, 1, 1, 1])],
)
def test_sizes_of_the_examples(n, k, sizes):
    """B-12."""
    bounds = boundaries(n, k)
    assert [b - a for a, b in pairwise(bounds)] == sizes


def test_a_refined_cut_is_not_a_cut_of_the_parts():
    """B-12, the trap: 10 in 6 parts is computed from 10, not by halving the three parts."""
    assert boundaries(10, 6) == (0, 1, 3, 5, 6, 8, 10)
    parts = boundaries(10, 3)
    halved = {a + b for a, n in zip(parts, [3, 3, 4], strict=False) for b in boundaries(n, 2)}
    assert sorted(halved) == [0, 1, 3, 4, 6, 8, 10]


explicit = st.lists(st.integers(0, 5), min_size=1, max_size=8).map(
    lambda sizes: tuple(sum(sizes[:i]) for i in range(len(sizes) + 1))
)


@given(explicit, st.data())
def test_parts_of_a_range_are_those_of_its_elements(bounds, data):
    start = data.draw(st.integers(0, bounds[-1]))
    stop = data.draw(st.integers(start, bounds[-1]))
    parts = parts_of(bounds, start, stop)
    hit = [i for r in range(start, stop) for i, (a, b) in enumerate(pairwise(bounds)) if a <= r < b]
    assert list(parts) == (list(range(hit[0], hit[-1] + 1)) if hit else [])


@given(explicit)
def test_explicit_boundaries_pass_the_check(bounds):
    assert check_boundaries(list(bounds)) == bounds


@pytest.mark.parametrize(
    ("bounds", "text"),
    [
        ((0, 3, 2, 7), "decrease from 3 to 2 at part 1"),
        ((1, 7), "begin with 0"),
        ((0,), "at least one part"),
        ((), "begin with 0"),
        ((0, 2.5, 7), "must be integers"),
        (7, "must be integers"),
    ],
)
def test_bad_boundaries_name_the_numbers(bounds, text):
    with pytest.raises(ShardingError, match=text):
        check_boundaries(bounds)


def test_no_parts_is_an_error():
    with pytest.raises(ShardingError, match="5 elements into 0 parts"):
        boundaries(5, 0)
