"""Lenses against numpy: reads, writes, boxes, fragments and the lens laws."""

import pickle
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distarray.expr.indexing import parse_index
from distarray.expr.lens import (
    Affine,
    Component,
    Lens,
    Reshape,
    compose,
    get,
    lens_shape,
    put,
    reshape_is_view,
    shares_memory,
    touched,
)
from distarray.sharding.boxes import Box, contains, full, normalise, relative, size

shapes = st.lists(st.sampled_from([1, 2, 3, 4, 5, 6, 0]), max_size=3).map(tuple)
KINDS = ("slice", "permute", "flip", "expand", "squeeze", "diagonal")


@st.composite
def view_steps(draw: st.DrawFn, shape: tuple[int, ...], kinds: tuple[str, ...] = KINDS) -> Any:
    """(lens of one view operation, the same operation in numpy), for a view of this shape."""
    whole = Affine.identity(shape)
    ndim = len(shape)
    kind = draw(st.sampled_from(kinds))
    if kind == "slice" and ndim:
        index = []
        for n in shape:
            bound = st.none() | st.integers(-n - 1, n + 1)
            some = slice(draw(bound), draw(bound), draw(st.sampled_from([None, 1, 2, -1, -2, 3])))
            # Rather views with elements than without.
            item = some if len(range(n)[some]) or draw(st.integers(0, 9)) == 0 else slice(None)
            index.append(draw(st.integers(-n, n - 1)) if n and draw(st.integers(0, 4)) == 0 else item)
        key = (*index, ...)
        return parse_index(key, shape).affine, lambda x: x[key]
    if kind == "permute":
        axes = draw(st.permutations(range(ndim)))
        return whole.permuted(axes), lambda x: x.transpose(axes)
    if kind == "flip":
        some = tuple(a for a in range(ndim) if draw(st.booleans()))
        return whole.flipped(some), lambda x: np.flip(x, some)
    if kind == "expand":
        axis = draw(st.integers(0, ndim))
        return whole.expanded(axis), lambda x: np.expand_dims(x, axis)
    if kind == "squeeze":
        some = tuple(a for a in range(ndim) if shape[a] == 1 and draw(st.booleans()))
        return whole.squeezed(some), lambda x: np.squeeze(x, some)
    if kind == "diagonal" and ndim >= 2:
        axis1, axis2 = draw(st.permutations(range(ndim)))[:2]
        offset = draw(st.integers(-3, 3))
        return whole.diagonal(offset, axis1, axis2), lambda x: np.diagonal(x, offset, axis1, axis2)
    if kind == "broadcast":
        new = draw(st.lists(st.integers(0, 3), max_size=1))
        wide = (*new, *[draw(st.sampled_from([1, 3])) if n == 1 else n for n in shape])
        return whole.broadcast(wide), lambda x: np.broadcast_to(x, wide)
    return whole, lambda x: x[...]


@st.composite
def views(draw: st.DrawFn, kinds: tuple[str, ...] = KINDS) -> tuple[tuple[int, ...], Affine, np.ndarray]:
    """(source shape, the lens of a chain of views, numpy's view of the flat positions of the source)."""
    shape = draw(shapes)
    affine = Affine.identity(shape)
    expected = np.arange(int(np.prod(shape))).reshape(shape)
    for _ in range(draw(st.integers(0, 4))):
        link, apply = draw(view_steps(affine.shape, kinds))
        affine, expected = affine.compose(link), apply(expected)
    return shape, affine, expected


def numbered(shape: tuple[int, ...]) -> np.ndarray:
    return np.arange(int(np.prod(shape))).reshape(shape)


@st.composite
def boxes_in(draw: st.DrawFn, shape: tuple[int, ...]) -> Box:
    out = []
    for n in shape:
        start = draw(st.integers(0, n))
        out.append(normalise(range(start, draw(st.integers(start, n)), draw(st.integers(1, 3)))))
    return tuple(out)


@st.composite
def boundaries_of(draw: st.DrawFn, shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    cuts = [sorted(draw(st.lists(st.integers(0, n), max_size=4))) for n in shape]
    return [(0, *cut, n) for cut, n in zip(cuts, shape)]


def image(affine: Affine, view_box: Box) -> set[tuple[int, ...]]:
    """The source elements of a box of the view, one by one."""
    return {
        tuple(start + step * (v[axis] if axis is not None else 0) for axis, start, step in affine.terms)
        for v in product(*view_box)
    }


ALL = (*KINDS, "broadcast")


@settings(max_examples=300)
@given(views(ALL))
def test_a_chain_of_views_is_one_affine_that_reads_what_numpy_reads(view: Any) -> None:
    """B-5, B-34, B-40: whatever the length of the chain; without a copy."""
    shape, affine, expected = view
    source = numbered(shape)
    out = affine.read(source)
    np.testing.assert_array_equal(out, expected, strict=True)
    assert isinstance(out, np.ndarray)
    assert out.size == 0 or np.shares_memory(out, source)
    assert affine.is_identity(shape) == (affine.shape == shape and bool((out == source).all()))


@given(st.data())
def test_methods_are_compositions_with_the_lens_of_one_operation(data: st.DataObject) -> None:
    _, affine, _ = data.draw(views(ALL))
    inner = Affine.identity(affine.shape)
    ndim = len(affine.shape)
    axes = data.draw(st.permutations(range(ndim)))
    wide = (2, *affine.shape)
    pairs = [
        (affine.permuted(axes), inner.permuted(axes)),
        (affine.flipped(axes[:1]), inner.flipped(axes[:1])),
        (affine.expanded(ndim), inner.expanded(ndim)),
        (affine.broadcast(wide), inner.broadcast(wide)),
    ]
    if ndim >= 2:
        pairs.append((affine.diagonal(1, *axes[:2]), inner.diagonal(1, *axes[:2])))
    for direct, step in pairs:
        assert direct == affine.compose(step)


def test_broadcast_to_a_shape_that_does_not_fit_raises_numpys_error() -> None:
    for wide in [(4, 2), (3,), (2, 3, 1)]:
        with pytest.raises(ValueError) as theirs:
            np.broadcast_to(np.zeros((2, 3)), wide)
        with pytest.raises(ValueError) as ours:
            Affine.identity((2, 3)).broadcast(wide)
        text = "remapped shapes [original->remapped]: (2, 3) and requested shape"
        assert text in str(ours.value)
        assert str(theirs.value).split(":")[0] in str(ours.value) or "more dimensions" in str(theirs.value)


@settings(max_examples=200)
@given(views(ALL), st.data())
def test_boxes_map_exactly_both_ways(view: Any, data: st.DataObject) -> None:
    shape, affine, _ = view
    box = data.draw(boxes_in(affine.shape))
    source = affine.source_box(box)
    read = image(affine, box)
    used = [axis for axis, _, _ in affine.terms if axis is not None]
    if len(set(used)) == len(used) and (all(box) or shape):
        assert set(product(*source)) == read
    else:
        assert read <= set(product(*source))
    assert all(r == normalise(r) and r.step >= 1 for r in source)

    tile = data.draw(boxes_in(shape))
    back = affine.view_box(tile)
    points = set(product(*tile))
    inside = {v for v in np.ndindex(*affine.shape) if image(affine, tuple(range(i, i + 1) for i in v)) <= points}
    assert (set(product(*back)) if back is not None else set()) == inside


@settings(max_examples=200)
@given(views(ALL), st.data())
def test_fragments_cover_the_box_once_and_stay_in_their_tiles(view: Any, data: st.DataObject) -> None:
    """B-30: parts of no elements and boxes that miss tiles included."""
    shape, affine, expected = view
    bounds = data.draw(boundaries_of(shape))
    box = data.draw(boxes_in(affine.shape))
    fragments = affine.fragments(box, bounds)
    source = numbered(shape)
    out = np.full(affine.shape, -1)
    for tile, source_box, view_box in fragments:
        frame = tuple(range(b[t], b[t + 1]) for b, t in zip(bounds, tile))
        assert contains(frame, source_box)
        assert source_box == affine.source_box(view_box)
        assert size(view_box) > 0
        where = np.ix_(*map(list, view_box))
        assert (out[where] == -1).all()
        # What a task does: slices of one block, or of a piece that holds only what is needed.
        block = source[tuple(slice(r.start, r.stop) for r in frame)]
        out[where] = affine.restricted(view_box, frame).read(block)
        piece = block[relative(source_box, frame)]
        np.testing.assert_array_equal(affine.restricted(view_box, source_box).read(piece), out[where])
    where = np.ix_(*map(list, box))
    np.testing.assert_array_equal(out[where], expected[where])
    assert (out == -1).sum() == out.size - size(box)
    used = [axis for axis, _, _ in affine.terms if axis is not None]
    if len(set(used)) == len(used):
        assert [tile for tile, _, _ in fragments] == sorted({tile for tile, _, _ in fragments})


def test_fragments_of_a_halo_are_the_neighbours_rows() -> None:
    """B-22: 12 rows on 3 members; `b[1:9] = a[0:8]`: part [4, 8) of `b` reads row 3 of the neighbour."""
    shifted = Affine((8,), ((0, 0, 1),))
    assert shifted.fragments((range(3, 7),), [(0, 4, 8, 12)]) == [
        ((0,), (range(3, 4),), (range(3, 4),)),
        ((1,), (range(4, 7),), (range(4, 7),)),
    ]


def test_fragments_of_a_flip_pair_mirrored_tiles() -> None:
    """B-40: 8 in 3 is 2, 3, 3; its mirror 3, 3, 2."""
    flipped = Affine.identity((8,)).flipped((0,))
    fragments = flipped.fragments((range(8),), [(0, 2, 5, 8)])
    assert [(tile, view) for tile, _, view in fragments] == [
        ((0,), (range(6, 8),)),
        ((1,), (range(3, 6),)),
        ((2,), (range(3),)),
    ]


def test_a_tile_maps_to_the_part_of_a_diagonal_that_crosses_it() -> None:
    diagonal = Affine.identity((10, 12)).diagonal(2)
    assert diagonal.view_box((range(6), range(5, 12))) == (range(3, 6),)
    assert diagonal.view_box((range(4, 10), range(7))) == (range(4, 5),)
    assert diagonal.view_box((range(6, 10), range(7))) is None


def test_fragments_of_a_diagonal_meet_only_the_tiles_it_crosses() -> None:
    diagonal = Affine.identity((100, 100)).diagonal()
    bounds = (0, 25, 50, 75, 100)
    fragments = diagonal.fragments((range(100),), [bounds, bounds])
    assert [tile for tile, _, _ in fragments] == [(0, 0), (1, 1), (2, 2), (3, 3)]


@settings(max_examples=200)
@given(views(), st.data())
def test_write_changes_the_view_and_nothing_else(view: Any, data: st.DataObject) -> None:
    """B-4, B-34: elements outside the view are untouched."""
    shape, affine, expected = view
    ours = numbered(shape)
    value = -1 - numbered(affine.shape)
    affine.write(ours, value)
    theirs = numbered(shape).ravel()
    theirs[expected.ravel()] = value.ravel()
    np.testing.assert_array_equal(ours, theirs.reshape(shape))


@settings(max_examples=200)
@given(views(ALL), st.booleans())
def test_what_is_copied_around_a_view_and_the_view_are_the_whole_block(view: Any, is_fortran: bool) -> None:
    shape, affine, _ = view
    source = np.asarray(numbered(shape), order="F" if is_fortran else "C")
    target = np.full_like(source, -1)
    affine.copy_around(source, target)
    assert np.all((target == source) | (target == -1))
    if affine.is_injective:
        affine.write(target, affine.read(source))
    else:
        for index in image(affine, full(affine.shape)):
            target[index] = source[index]
    np.testing.assert_array_equal(target, source)


def test_around_a_box_nothing_else_is_copied() -> None:
    affine = Affine((2, 3), ((0, 1, 1), (1, 3, -1)))
    target = np.full((4, 5), -1)
    affine.copy_around(numbered((4, 5)), target)
    assert np.count_nonzero(target == -1) == 6
    np.testing.assert_array_equal(target[1:3, 1:4], -1)


def test_broadcast_views_are_read_only() -> None:
    """B-36."""
    wide = Affine.identity((3,)).broadcast((2, 3))
    assert not wide.is_injective
    with pytest.raises(ValueError, match="read-only"):
        wide.write(np.zeros(3), 1.0)
    with pytest.raises(ValueError, match="read-only"):
        put((wide,), np.zeros(3), 1.0)
    assert Affine.identity((3,)).broadcast((1, 3)).is_injective


def test_affine_is_an_immutable_value() -> None:
    a, b = Affine.identity((2, 3)), Affine((2, 3), ((0, 0, 1), (1, 0, 1)))
    assert a == b
    assert hash(a) == hash(b)
    assert a != Affine.identity((2, 4))
    with pytest.raises(AttributeError):
        a.shape = (1,)  # type: ignore[misc]
    a.read(np.zeros((2, 3)))
    assert pickle.loads(pickle.dumps(a)) == a
    deep = Affine.identity((1,) * 12)
    assert deep.is_identity((1,) * 12)


def test_touched_depends_on_tiles_not_on_offsets() -> None:
    """B-29: offsets with the same pattern of touched tiles have one plan."""
    bounds = [(0, 10, 20, 30), (0, 8)]

    def pattern(*key: Any) -> Any:
        return touched(parse_index(key, (30, 8)).affine, bounds)

    assert pattern(slice(2, 6)) == pattern(slice(4, 8))
    assert pattern(slice(2, 6)) != pattern(slice(8, 12))
    assert pattern(3) == pattern(9)
    assert pattern(3) != pattern(10)
    assert pattern(slice(2, 6)) != pattern(slice(5, 1, -1))
    # Both read three rows, every sixth, from the first tile to the last; each skips another tile between.
    narrow = [(0, 7, 9, 12, 30), (0, 8)]
    rows = [parse_index(slice(start, start + 13, 6), (30, 8)).affine for start in (2, 5)]
    assert [[step[-1] for step in touched(a, narrow)] for a in rows] == [[(2,), ()], [(1,), ()]]
    square = Affine.identity((8, 8))
    both = [(0, 8), (0, 8)]
    assert touched(square, both) != touched(square.permuted((1, 0)), both)
    hash(pattern(slice(0, 0)))


# Chains with reshapes and components


@st.composite
def chains(draw: st.DrawFn, *, dtype: Any = int, writable: bool = True) -> tuple[tuple[int, ...], Lens, list[Any]]:
    """(base shape, normalised lens, the links before normalisation)."""
    shape = base_shape = draw(st.sampled_from([(4, 6), (2, 3, 4), (24,), (1, 6, 1), (), (0, 3), (5, 4)]))
    lens: Lens = ()
    links: list[Any] = []
    for _ in range(draw(st.integers(0, 6))):
        kind = draw(st.sampled_from(["affine", "affine", "reshape", "part"]))
        if kind == "part" and dtype is complex and not any(isinstance(link, Component) for link in links):
            link: Any = Component(draw(st.sampled_from(["real", "imag"])))
        elif kind == "reshape":
            link = Reshape(draw(reshapes_of(int(np.prod(shape)))))
        else:
            link, _ = draw(view_steps(shape, KINDS if writable else ALL))
        lens = compose(base_shape, lens, link)
        links.append(link)
        shape = shape if isinstance(link, Component) else link.shape
        assert lens_shape(base_shape, lens) == shape
    return base_shape, lens, links


@st.composite
def reshapes_of(draw: st.DrawFn, count: int) -> tuple[int, ...]:
    if count == 0:
        return draw(st.sampled_from([(0,), (0, 2), (3, 0, 1)]))
    out = []
    while count > 1 and len(out) < 4:
        n = draw(st.sampled_from([d for d in range(2, count + 1) if count % d == 0]))
        out.append(n)
        count //= n
    for _ in range(draw(st.integers(0, 2))):
        out.insert(draw(st.integers(0, len(out))), 1)
    return (*out, count) if count > 1 else tuple(out)


@settings(max_examples=200)
@given(chains(writable=False))
def test_normalised_chains_read_as_their_links_do(chain: Any) -> None:
    """B-34: a chain of any length is one lens, of few links."""
    shape, lens, links = chain
    base = numbered(shape)
    expected = base
    for link in links:
        expected = get((link,), expected)
    np.testing.assert_array_equal(get(lens, base), expected, strict=True)
    assert not any(type(a) is type(b) for a, b in pairwise(lens))
    assert len(lens) <= len(links)
    # Nothing in a normal form can be left out.
    again: Lens = ()
    for link in lens:
        again = compose(shape, again, link)
    assert again == lens


@settings(max_examples=200)
@given(chains(dtype=complex))
def test_lens_laws(chain: Any) -> None:
    """B-34: get(put(s, v)) == v, put(s, get(s)) == s, put(put(s, v), w) == put(s, w); s itself never changes."""
    shape, lens, _ = chain
    s = np.asarray(numbered(shape) + 1j * (100 + numbered(shape)))
    before = s.copy()
    v = get(lens, s) * -2 - 7
    w = get(lens, s) + 1000
    np.testing.assert_array_equal(get(lens, put(lens, s, v)), v, strict=True)
    np.testing.assert_array_equal(put(lens, s, get(lens, s)), s, strict=True)
    np.testing.assert_array_equal(put(lens, put(lens, s, v), w), put(lens, s, w), strict=True)
    np.testing.assert_array_equal(s, before)
    changed = put(lens, s, v) != s
    assert changed.sum() <= v.size


def test_normal_forms_of_typical_chains() -> None:
    rows = Affine((2, 6), ((0, 1, 1), (1, 0, 1)))
    flip = Affine.identity((4, 6)).flipped((0,))
    shape = (4, 6)
    # flip . flip -> identity
    assert compose(shape, compose(shape, (), flip), flip) == ()
    # reshape . reshape -> the last
    assert compose(shape, (Reshape((24,)),), Reshape((3, 8))) == (Reshape((3, 8)),)
    assert compose(shape, (Reshape((24,)),), Reshape((4, 6))) == ()
    # reshape that adds an axis of one element -> affine
    assert compose(shape, (rows,), Reshape((2, 1, 6))) == (rows.expanded(1),)
    # expand . reshape -> reshape
    assert compose(shape, (Reshape((24,)),), Affine.identity((24,)).expanded(0)) == (Reshape((1, 24)),)
    # reshape . expand -> reshape
    assert compose(shape, (Affine.identity(shape).expanded(0),), Reshape((24,))) == (Reshape((24,)),)
    # real commutes to the front
    assert compose(shape, (rows, Reshape((12,))), Component("real")) == (Component("real"), rows, Reshape((12,)))


@settings(max_examples=200)
@given(chains(dtype=complex, writable=False), st.data())
def test_reshape_aliases_exactly_where_numpys_does(chain: Any, data: st.DataObject) -> None:
    """B-35: for a C-ordered base, asked of numpy without memory."""
    shape, _, links = chain
    view = np.zeros(shape, complex)
    lens: Lens = ()
    for link in links:
        if isinstance(link, Reshape) and not np.shares_memory(view, view.reshape(link.shape)):
            # numpy copies: the handle is pinned and becomes a base of its own.
            break
        lens, view = compose(shape, lens, link), get((link,), view)
    new = data.draw(reshapes_of(view.size))
    theirs = view.reshape(new)
    assert reshape_is_view(shape, lens, new) == (view.size == 0 or np.shares_memory(view, theirs))


def test_reshape_is_view_needs_no_memory_and_checks_sizes() -> None:
    """B-35, B-50."""
    huge = (1_000_000, 1_000_000)
    transposed = Affine.identity(huge).permuted((1, 0))
    assert reshape_is_view(huge, (), (10**12,))
    assert not reshape_is_view(huge, (transposed,), (10**12,))
    assert reshape_is_view(huge, (transposed,), (10**6, 1000, 1000))
    with pytest.raises(ValueError, match="cannot reshape array of size 6 into shape \\(4,\\)"):
        reshape_is_view((2, 3), (), (4,))


def test_shares_memory_is_exact() -> None:
    """B-5: even and odd rows share nothing, real and imaginary parts neither."""
    shape = (10, 4)
    even, odd = (parse_index(slice(i, None, 2), shape).affine for i in (0, 1))
    flipped = Affine.identity(shape).flipped((0,))
    assert not shares_memory(shape, (even,), (odd,))
    assert shares_memory(shape, (even,), (flipped,))
    assert shares_memory(shape, (), (flipped, Reshape((40,))))
    assert not shares_memory(shape, (Component("real"),), (Component("imag"),))


@settings(max_examples=50)
@given(views(ALL))
def test_reads_and_writes_need_only_the_standard(view: Any) -> None:
    """B-15: blocks of another namespace are never taken to the host."""
    xp = pytest.importorskip("array_api_strict")
    shape, affine, expected = view
    block = xp.asarray(numbered(shape))
    out = affine.read(block)
    assert out.shape == expected.shape
    np.testing.assert_array_equal(np.from_dlpack(out) if out.size else expected, expected)
    if affine.is_injective:
        affine.write(block, xp.asarray(-1 - numbered(affine.shape)))
        theirs = numbered(shape).ravel()
        theirs[expected.ravel()] = (-1 - numbered(affine.shape)).ravel()
        if block.size:
            np.testing.assert_array_equal(np.from_dlpack(block), theirs.reshape(shape))
