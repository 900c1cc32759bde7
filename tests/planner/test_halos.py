"""Chains of halo stages: what a member needs of each node is enough to compute its tiles, and no member needs all."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from distarray.expr.lens import Affine
from distarray.planner.halos import HaloStage, needed_boxes
from distarray.sharding.boxes import Box

N = 40


def sliced(start: int, n: int) -> Affine:
    return Affine((n,), ((0, start, 1),))


@st.composite
def chains(draw: st.DrawFn) -> list[HaloStage]:
    """Stages that write a part of the newest version of one of two arrays from shifted reads of both."""
    versions = [0, 1]
    stages = []
    for k in range(draw(st.integers(1, 6))):
        which = draw(st.integers(0, 1))
        start, n = draw(st.integers(0, 4)), draw(st.integers(1, N - 8))
        reads = []
        for _ in range(draw(st.integers(1, 3))):
            of, at = draw(st.integers(0, 1)), start + draw(st.integers(-2, 2))
            if at >= 0 and at + n <= N:
                reads.append((versions[of], sliced(at, n)))
        number = 2 + k
        stages.append(HaloStage((), number, versions[which], sliced(start, n), tuple(reads)))
        versions[which] = number
    return stages


def computed(stages: list[HaloStage], arrays: dict[int, Any], boxes: list[Box | None] | None = None) -> dict[int, Any]:
    """The arrays that stages make; of each stage only a box of its loops, if that is said."""
    for k, stage in enumerate(stages):
        assert stage.lens is not None
        loop = range(stage.lens.shape[0]) if boxes is None else (boxes[k] or (range(0),))[0]
        new = arrays[stage.base].copy()
        first = stage.lens.terms[0][1]
        value = np.full(len(loop), 1.0 + k)
        for node, lens in stage.reads:
            at = lens.terms[0][1]
            value = value * 0.5 + arrays[node][at + loop.start : at + loop.stop]
        new[first + loop.start : first + loop.stop] = value
        arrays[stage.written] = new
    return arrays


@settings(max_examples=200, deadline=None)
@given(chains(), st.integers(1, 5), st.data())
def test_what_a_member_needs_is_enough(stages: list[HaloStage], n_members: int, data: st.DataObject) -> None:
    whole = {i: np.random.default_rng(i).random(N) for i in range(2)}
    expected = computed(stages, dict(whole))
    made = [stage.written for stage in stages]
    outside = {made[-1], *data.draw(st.sets(st.sampled_from(made)))}
    for member in range(n_members):
        tile = range(N * member // n_members, N * (member + 1) // n_members)
        boxes, need = needed_boxes(stages, dict.fromkeys(outside, (tile,)))
        here = {}
        for i in range(2):
            here[i] = np.full(N, np.nan)
            if i in need:
                (r,) = need[i]
                here[i][r.start : r.stop] = whole[i][r.start : r.stop]
        found = computed(stages, here, boxes)
        for i in outside:
            np.testing.assert_array_equal(found[i][tile.start : tile.stop], expected[i][tile.start : tile.stop])


def test_halos_are_as_deep_as_the_chain_is_long() -> None:
    steps = [
        HaloStage((), k + 1, k, sliced(1, N - 2), tuple([(k, sliced(at, N - 2)) for at in (0, 2)])) for k in range(4)
    ]
    boxes, need = needed_boxes(steps, {4: (range(10, 20),)})
    assert need[0] == (range(6, 24),)
    assert [None if box is None else box[0] for box in boxes] == [
        range(6, 22),
        range(7, 21),
        range(8, 20),
        range(9, 19),
    ]
    boxes, need = needed_boxes(steps, {4: (range(10),)})
    assert need[0] == (range(14),)  # an array has no elements before its first
