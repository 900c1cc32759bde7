"""Strided boxes against sets of points."""

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distarray.sharding.boxes import (
    Box,
    IndexRuns,
    contains,
    difference,
    full,
    intersect,
    intersect_boxes,
    normalise,
    relative,
    size,
    union,
)

EXTENT = 14


def points(box: Box) -> set[tuple[int, ...]]:
    return set(product(*box))


@st.composite
def ranges(draw: st.DrawFn, *, may_be_empty: bool = True) -> range:
    start = draw(st.integers(0, EXTENT - 1))
    count = draw(st.integers(0 if may_be_empty else 1, EXTENT))
    step = draw(st.sampled_from([1, 1, 1, 2, 3, 4, 5]))
    return normalise(range(start, min(start + count * step, EXTENT), step))


def boxes(ndim: int) -> st.SearchStrategy[Box]:
    return st.tuples(*[ranges()] * ndim)


several = st.integers(1, 3).flatmap(lambda ndim: st.lists(boxes(ndim), max_size=6))


@given(st.integers(-20, 20), st.integers(-20, 20), st.integers(-5, 5).filter(bool))
def test_normalise_keeps_the_elements_and_makes_stop_tight(start: int, stop: int, step: int) -> None:
    r = range(start, stop, step)
    out = normalise(r)
    assert sorted(r) == list(out)
    assert out.step >= 1
    assert not out or out.stop == out[-1] + 1
    assert len(out) > 1 or out.step == 1


@given(ranges(), ranges())
def test_intersect_is_the_common_elements_ascending(a: range, b: range) -> None:
    out = intersect(a, b)
    assert list(out) == sorted(set(a) & set(b))
    assert normalise(out).step == out.step


@given(several)
def test_intersect_boxes_and_contains_agree_with_point_sets(many: list[Box]) -> None:
    for a, b in combinations(many, 2):
        common = intersect_boxes(a, b)
        assert (points(common) if common is not None else set()) == points(a) & points(b)
        assert contains(a, b) == (points(b) <= points(a))


@given(several)
def test_difference_is_exact_and_disjoint(many: list[Box]) -> None:
    for a, b in combinations(many, 2):
        parts = difference(a, b)
        assert sum(map(size, parts)) == len(points(a) - points(b))
        assert set().union(*map(points, parts)) == points(a) - points(b)


@settings(max_examples=300)
@given(several)
def test_union_covers_exactly_the_elements_once(many: list[Box]) -> None:
    """B-25: the union of the needed elements, never the hull."""
    out = union(many)
    expected = set().union(*map(points, many))
    assert set().union(*map(points, out)) == expected
    assert sum(map(size, out)) == len(expected)
    assert all(box == tuple(map(normalise, box)) for box in out)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 6)), max_size=8))
def test_union_of_contiguous_ranges_is_the_maximal_runs(spans: list[tuple[int, int]]) -> None:
    out = union([(range(a, a + n),) for a, n in spans])
    covered = sorted({i for a, n in spans for i in range(a, a + n)})
    runs = sum(1 for i, p in enumerate(covered) if i == 0 or covered[i - 1] != p - 1)
    assert len(out) <= runs
    # Whatever is joined beyond the runs is made of lone elements only.
    assert all(r.step == 1 or all(e - 1 not in covered and e + 1 not in covered for e in r) for (r,) in out)


@pytest.mark.parametrize(
    ("many", "expected"),
    [
        ([(range(3, 4),), (range(4, 6),)], [(range(3, 6),)]),
        ([(range(2, 5),), (range(2, 5),), (range(3, 4),)], [(range(2, 5),)]),
        ([(range(0, 8, 2),), (range(1, 8, 2),)], [(range(8),)]),
        ([(range(0, 16, 4),), (range(2, 10, 4),)], [(range(0, 13, 4),), (range(2, 7, 4),)]),
        ([(range(0, 6, 3),), (range(6, 12, 3),)], [(range(0, 10, 3),)]),
        ([(range(4), range(3)), (range(4), range(3, 5))], [(range(4), range(5))]),
        ([(range(4), range(3)), (range(4, 6), range(3)), (range(6), range(3, 5))], [(range(6), range(5))]),
        ([(), ()], [()]),
        ([(range(0), range(4))], []),
        # A star stencil's rows and columns of one tile stay two strips when they do not meet.
        ([(range(1), range(9)), (range(1, 9), range(1))], [(range(1), range(9)), (range(1, 9), range(1))]),
    ],
)
def test_union_is_as_few_boxes_as_the_shape_allows(many: list[Box], expected: list[Box]) -> None:
    assert union(many) == expected


def test_union_of_the_b25_example_sends_each_row_once() -> None:
    """B-25: `a[0:10:2]`, `a[5:10]`, `a[1:6]` of 12 rows are the ten rows 0..9."""
    assert union([(range(0, 10, 2),), (range(5, 10),), (range(1, 6),)]) == [(range(10),)]


def test_union_of_overlapping_squares_is_three_boxes() -> None:
    assert len(union([(range(8), range(8)), (range(4, 12), range(4, 12))])) == 3


@given(ranges(may_be_empty=False), st.data())
def test_relative_reads_a_box_from_a_strided_frame(frame: range, data: st.DataObject) -> None:
    inner = intersect(frame, data.draw(ranges()))
    array = np.arange(EXTENT)
    np.testing.assert_array_equal(array[list(frame)][relative((inner,), (frame,))], list(inner))


def test_full_is_every_element_of_a_shape() -> None:
    assert full((2, 3)) == (range(2), range(3))
    assert size(full((2, 3))) == 6
    assert full(()) == ()


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 5), st.integers(0, 5)), min_size=0, max_size=4))
def test_runs_are_the_maximal_rows_of_a_box(axes: list[tuple[int, int, int]]) -> None:
    shape = tuple(n for n, _, _ in axes)
    box = tuple((min(a, b, n), min(max(a, b), n)) for n, a, b in axes)
    inside = np.arange(np.prod(shape, dtype=int)).reshape(shape)[tuple(slice(*r) for r in box)]
    runs = IndexRuns.of(box, shape)
    assert [first + i for first in runs for i in range(runs.length)] == inside.ravel().tolist()
    assert len(list(runs)) == len(runs)
