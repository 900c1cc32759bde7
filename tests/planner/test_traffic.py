"""Bytes by arrays of boxes, against counting element by element."""

from __future__ import annotations

from itertools import product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from distarray.expr.lens import Affine
from distarray.planner.loops import Loops, Reading
from distarray.planner.partition.box_traffic import Boxes, boxes_of, most_tiles, moved, stacked, view_of
from distarray.planner.partition.resolved import Received
from distarray.sharding.boxes import tile_box
from distarray.sharding.mesh import Mesh
from distarray.sharding.sharding import Sharding

MESH = Mesh(("a", "b", "c"), (2, 3, 2))
N = MESH.size


@st.composite
def cuts(draw: st.DrawFn, ndim: int) -> Sharding:
    """Some axes of the mesh over some axes of an array, or waves that follow each other on a member."""
    mesh = MESH.with_waves(2) if draw(st.booleans()) else MESH
    axes: list[list[str]] = [[] for _ in range(ndim)]
    for name in draw(st.permutations(list(MESH.names))):
        to = draw(st.integers(-1, ndim - 1))
        if to >= 0:
            axes[to].append(name)
    if mesh is not MESH and ndim:
        axes[draw(st.integers(0, ndim - 1))].insert(0, "%1")
    return Sharding(mesh, tuple(map(tuple, axes)))


@st.composite
def views(draw: st.DrawFn) -> tuple[tuple[int, ...], Affine]:
    """A source and a lens with steps, fixed indices, new and permuted axes."""
    shape = tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=3)))
    lens = Affine.identity(shape)
    terms, extents = [], []
    for axis, n in enumerate(shape):
        if draw(st.booleans()):
            terms.append((axis, 0, 1))
            extents.append(n)
            continue
        start, step = draw(st.integers(0, n - 1)), draw(st.sampled_from([-2, -1, 1, 2, 3]))
        extents.append((start // -step if step < 0 else (n - 1 - start) // step) + 1)
        terms.append((axis, start, step))
    lens = lens.compose(Affine(tuple(extents), tuple(terms)))
    lens = lens.permuted(draw(st.permutations(range(len(extents)))))
    return shape, lens.expanded(0) if draw(st.booleans()) else lens


def owned(sharding: Sharding, shape: tuple[int, ...]) -> list[set[tuple[int, ...]]]:
    found: list[set[tuple[int, ...]]] = [set() for _ in range(N)]
    for tile in sharding.tiles():
        found[sharding.member(tile)].update(product(*[range(a, b) for a, b in sharding.tile_box(shape, tile)]))
    return found


def seen(lens: Affine, index: tuple[int, ...]) -> tuple[int, ...]:
    return tuple([start if axis is None else start + step * index[axis] for axis, start, step in lens.terms])


@given(views(), st.data())
@settings(max_examples=150)
def test_moved_is_what_is_needed_and_not_held(drawn: tuple[tuple[int, ...], Affine], data: st.DataObject) -> None:
    shape, lens = drawn
    loops = Loops(lens.shape)
    held = [data.draw(cuts(len(shape))) for _ in range(2)]
    work = [data.draw(cuts(len(lens.shape))) for _ in range(2)]
    r = Reading(0, lens, tuple(range(len(lens.shape))), shape, np.dtype(float), None)
    view = view_of(r, loops, lens.shape)
    found = moved(
        view,
        loops,
        stacked([boxes_of(s, shape, N) for s in held]),
        stacked([boxes_of(s, lens.shape, N) for s in work]),
    )
    for i, producer in enumerate(held):
        have = owned(producer, shape)
        for k, consumer in enumerate(work):
            need = [{seen(lens, index) for index in of} for of in owned(consumer, lens.shape)]
            assert found[i, k].tolist() == [len(n - h) for n, h in zip(need, have, strict=True)]


@given(st.data())
@settings(max_examples=150)
def test_a_halo_is_needed_too(data: st.DataObject) -> None:
    """Windows: a member that works on some elements needs those around them, as far as there are any."""
    shape = tuple([data.draw(st.integers(1, 9)) for _ in range(data.draw(st.integers(1, 2)))])
    halo = tuple([(data.draw(st.integers(0, 4)), data.draw(st.integers(0, 4))) for _ in shape])
    extents = tuple([data.draw(st.integers(1, n + before)) for n, (before, _) in zip(shape, halo, strict=True)])
    loops = Loops(extents, halo=(halo,))
    r = Reading(0, Affine.identity(shape), tuple(range(len(shape))), shape, np.dtype(float), None, halo=halo)
    held, work = data.draw(cuts(len(shape))), data.draw(cuts(len(shape)))
    have = owned(held, shape)
    need: list[set[tuple[int, ...]]] = [set() for _ in have]
    for member in range(N):
        boxes = [tile_box(work.boundaries(extents), index) for index in work.tiles() if work.member(index) == member]
        for box in filter(all, boxes):
            reads = [
                range(max(0, x.start - before), min(n, x.stop + behind))
                for x, n, (before, behind) in zip(box, shape, halo, strict=True)
            ]
            assert r.box(box) == tuple(reads)
            need[member].update(product(*reads))
    found = moved(
        view_of(r, loops, extents), loops, stacked([boxes_of(held, shape, N)]), stacked([boxes_of(work, extents, N)])
    )
    assert found[0, 0].tolist() == [len(n - h) for n, h in zip(need, have, strict=True)]


def boxes(lo: list[list[int]], hi: list[list[int]]) -> Boxes:
    one = np.ones((1, len(lo)))
    return Boxes(np.array([lo]), np.array([hi]), one.astype(int), one)


def test_what_came_before_is_not_sent_again() -> None:
    shape = (8, 8)
    loops = Loops(shape)
    view = view_of(Reading(0, Affine.identity(shape), (0, 1), shape, np.dtype(float), None), loops, shape)
    held = boxes([[0, 0]], [[8, 2]])
    received = Received()
    sizes = []
    for lo, hi in (([0, 0], [4, 8]), ([0, 0], [4, 8]), ([2, 0], [6, 8]), ([0, 0], [8, 1])):
        work = boxes([lo], [hi])
        sizes.append(received.less(0, view, loops, held, work, moved(view, loops, held, work)[0, 0]).tolist())
    assert sizes == [[24.0], [0.0], [12.0], [0.0]]


def test_tiles_dealt_out_in_turn_count_by_their_share() -> None:
    cyclic = Sharding(Mesh(("x", "%1"), (2, 4)), (("x", "%1"),))
    found = boxes_of(cyclic, (16,), 2)
    assert found.lo.tolist() == [[0], [2]]
    assert found.hi.tolist() == [[14], [16]]
    assert found.sizes.tolist() == [8.0, 8.0]


def test_a_member_gets_a_message_of_each_tile_that_its_box_meets() -> None:
    shape = (24, 24)
    loops = Loops(shape)
    view = view_of(Reading(0, Affine.identity(shape), (0, 1), shape, np.dtype(float), None), loops, shape)
    rows, blocks, whole = [Sharding(MESH, axes) for axes in ((("a", "b", "c"), ()), (("a",), ("b", "c")), ((), ()))]
    lying = [rows, blocks, whole]
    found = most_tiles(view, loops, shape, lying, stacked([boxes_of(s, shape, N) for s in lying]))
    assert found.tolist() == [[1, 6, 12], [6, 1, 12], [1, 1, 1]]
    every = view_of(Reading(0, Affine.identity(shape), (None, 1), shape, np.dtype(float), None), loops, shape)
    assert most_tiles(every, loops, shape, [rows], stacked([boxes_of(rows, shape, N)])).tolist() == [[12]]
