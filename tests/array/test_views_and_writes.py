"""Views alias, writes are seen by every alias, and program order holds: on a team whose arrays are really cut."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distarray as dx
from distarray.testing import counting, force_tiles

TEAMS = [None, dx.Team((1,), ("R",)), dx.Team((3,), ("R",)), dx.Team((4,), ("R",))]


@pytest.fixture(params=TEAMS, ids=repr)
def team(request: pytest.FixtureRequest) -> dx.Team | None:
    return request.param


def rows(values: np.ndarray, team: dx.Team | None) -> dx.DistArray:
    """Cut along the first axis, whatever its size."""
    if team is None:
        return dx.asarray(values, team=None)
    return dx.asarray(values, team=team, sharding=("R",) + (None,) * (values.ndim - 1))


def table() -> np.ndarray:
    return np.arange(40.0).reshape(10, 4)


# ------------------------------------------------------------------------------------------------- aliases

VIEWS: dict[str, Callable[[Any], Any]] = {
    "slice": lambda x: x[2:7],
    "strided": lambda x: x[1:9:3, ::2],
    "reversed": lambda x: x[::-1],
    "reversed strided": lambda x: x[8:1:-2, ::-1],
    "row": lambda x: x[3],
    "element": lambda x: x[3, 1, ...],
    "transposed": lambda x: x.T,
    "view of a view": lambda x: x[1:].T[::2, ::-1],
    "new axis": lambda x: x[:, None, 1:],
    "reshaped": lambda x: x.reshape(4, 10),
    "reshaped slice": lambda x: x[2:6].reshape(16),
    "reshaped and cut": lambda x: x.reshape(5, 8)[1:, 3],
    "ravelled": lambda x: x.ravel()[5:23:4],
    "squeezed": lambda x: x[2:3].squeeze(axis=0),
    "swapped": lambda x: x.swapaxes(0, 1)[2],
}


@pytest.mark.parametrize("look", VIEWS)
def test_every_alias_sees_every_write(look: str, team: dx.Team | None) -> None:
    """B-4: the base when a view is written, the view when the base is, and views of both."""
    a = table()
    x = rows(a, team)
    v, b = VIEWS[look](x), VIEWS[look](a)
    others = {name: (make(x), make(a)) for name, make in VIEWS.items()}
    v[...] = v * 2 - 100
    b[...] = b * 2 - 100
    np.testing.assert_array_equal(np.asarray(x), a)
    x += 1
    a += 1
    v *= 3
    b *= 3
    x[4:, 1:3] = x[:6, 2:4]
    a[4:, 1:3] = a[:6, 2:4].copy()
    np.testing.assert_array_equal(np.asarray(v), b)
    for name, (ours, theirs) in others.items():
        np.testing.assert_array_equal(np.asarray(ours), theirs, err_msg=name)


@pytest.mark.parametrize("look", VIEWS)
def test_a_view_costs_nothing_across_part_borders(look: str) -> None:
    """B-5, B-40: strided and reversed ones too."""
    x = rows(table(), TEAMS[3])
    x.persist()
    with counting() as c:
        view = VIEWS[look](x)
        assert view.shape == VIEWS[look](table()).shape
    assert (c.tasks, c.messages, c.allocated_bytes, c.fetched_bytes) == (0, 0, 0, 0)
    assert dx.shares_memory(x, view)
    assert dx.shares_memory(view, view)


def test_views_that_do_not_overlap_share_nothing() -> None:
    """B-5: `shares_memory` is exact."""
    x = rows(table(), TEAMS[3])
    assert not dx.shares_memory(x[:3], x[3:])
    assert not dx.shares_memory(x[::2], x[1::2])
    assert not dx.shares_memory(x[:, 0], x[:, 3])
    assert not dx.shares_memory(x, x.copy())
    assert dx.shares_memory(x[:4].T, x[3:, 1])


def test_an_update_touches_only_the_blocks_it_writes() -> None:
    """B-4: with a live handle on the old version, only touched blocks are copied."""
    x = rows(table(), TEAMS[3]) + 0
    x.persist()
    old = x.copy()
    before = [x._base.current.memo.blocks[i] for i in range(4)]
    x[0] = -1.0
    with counting() as c:
        x.persist()
    after = x._base.current.memo.blocks
    assert after[0] is not before[0]
    assert [after[i] is before[i] for i in (1, 2, 3)] == [True] * 3
    assert c.allocated_bytes <= 2 * 4 * 8
    np.testing.assert_array_equal(np.asarray(old), table())


# -------------------------------------------------------------------------------------------- program order


def test_pending_work_keeps_the_values_it_read(team: dx.Team | None) -> None:
    """B-7."""
    x = rows(table(), team)
    later, part = x + 1, x[2:5] * 2
    x[...] = 0
    np.testing.assert_array_equal(np.asarray(later), table() + 1)
    np.testing.assert_array_equal(np.asarray(part), table()[2:5] * 2)
    assert float(x.sum()) == 0


OVERLAPS: dict[str, Callable[[Any], Any]] = {
    "shift down": lambda a: a.__setitem__(slice(1, None), a[:-1]),
    "shift up": lambda a: a.__setitem__(slice(None, -1), a[1:]),
    "reverse": lambda a: a.__setitem__(slice(None), a[::-1]),
    "reverse both": lambda a: a.__setitem__(slice(None), a[::-1, ::-1]),
    "evens from odds": lambda a: a.__setitem__(slice(0, None, 2), a[1::2]),
    "reversed target": lambda a: a.__setitem__(slice(None, None, -1), a),
    "add of itself": lambda a: a[1:].__iadd__(a[:-1]),
    "row over all": lambda a: a.__setitem__(slice(None), a[3]),
    "columns": lambda a: a.__setitem__((slice(None), slice(1, None)), a[:, :-1]),
    "average": lambda a: a[1:-1].__setitem__(slice(None), (a[:-2] + a[2:]) / 2),
    "square of a part": lambda a: a[3:7].__imul__(a[3:7]),
}


@pytest.mark.parametrize("name", OVERLAPS)
def test_overlapping_assignment_is_numpys(name: str, team: dx.Team | None) -> None:
    """B-7."""
    a = table()
    x = rows(a, team)
    OVERLAPS[name](x)
    OVERLAPS[name](a)
    np.testing.assert_array_equal(np.asarray(x), a)


@pytest.mark.parametrize("window", [0, 1, 7, 64])
def test_dropping_temporaries_between_writes_changes_nothing(window: int) -> None:
    """B-7: nor does rebinding a name."""
    with dx.config.set(window=window):
        a = table()
        x = rows(a, TEAMS[2])
        t, s = x[1:] * 2, a[1:] * 2
        x[0] = 5.0
        a[0] = 5.0
        t, s = t + x[:-1], s + a[:-1]
        x[2:4] = t[:2]
        a[2:4] = s[:2]
        del t
        view = x[::-1]
        x += view
        a = a + a[::-1]
        x, y = x * 2, x
        np.testing.assert_array_equal(np.asarray(x), a * 2)
        np.testing.assert_array_equal(np.asarray(y), a)
        np.testing.assert_array_equal(np.asarray(view), a[::-1])


# --------------------------------------------------------------------------------------- functional updates

UPDATES = {
    "set": lambda a, i, v: a.__setitem__(i, v),
    "add": np.add.at,
    "subtract": np.subtract.at,
    "multiply": np.multiply.at,
    "divide": np.divide.at,
    "power": np.power.at,
    "min": np.minimum.at,
    "max": np.maximum.at,
}
INDICES: dict[str, Any] = {
    "slice": slice(2, 8, 3),
    "reversed": (slice(7, 1, -2), slice(None, None, -1)),
    "element": (3, 2),
    "integers": np.array([1, 9, 4]),
    "repeated integers": np.array([1, 1, 9, 1, 0]),
    "pairs": (np.array([0, 5, 5, 9]), np.array([3, 1, 1, 0])),
    "mask": table() > 17,
    "mask of rows": np.arange(10) % 3 == 1,
    "integers and slice": (np.array([2, 2, 7]), slice(1, 3)),
}


@pytest.mark.parametrize("index", INDICES)
@pytest.mark.parametrize("method", UPDATES)
def test_functional_updates_are_numpys_and_leave_the_source(method: str, index: str) -> None:
    """B-19, B-6: repeated indices accumulate, and `set` keeps the last in index order."""
    at = INDICES[index]
    a = table() + 1
    x = rows(a, TEAMS[2])
    value = np.random.default_rng(0).integers(1, 4, a[at].shape).astype(float)
    expected = a.copy()
    UPDATES[method](expected, at, value)
    result = getattr(x.at[at], method)(value)
    again = getattr(dx.at(x)[at], method)(value)
    assert not dx.shares_memory(x, result)
    np.testing.assert_allclose(np.asarray(result), expected, rtol=1e-15)
    np.testing.assert_allclose(np.asarray(again), expected, rtol=1e-15)
    np.testing.assert_array_equal(np.asarray(x), a)


@pytest.mark.parametrize("first", ["source", "result"])
def test_a_functional_result_aliases_nothing_whichever_is_written_later(first: str, team: dx.Team | None) -> None:
    """B-6."""
    x = rows(table(), team)
    made = {"at": x.at[2:4].set(-1.0), "copy": x[2:4].copy(), "dx.copy": dx.copy(x), "astype": x.astype("f8")}
    before = {name: np.asarray(y) for name, y in made.items()}
    if first == "source":
        x[...] = 7.0
        for name, y in made.items():
            np.testing.assert_array_equal(np.asarray(y), before[name], err_msg=name)
    else:
        for y in made.values():
            y[...] = 7.0
        np.testing.assert_array_equal(np.asarray(x), table())


# ---------------------------------------------------------------------------------------------- the laws

SHAPE = (6, 4, 3)


@st.composite
def chains(draw: st.DrawFn) -> list[Callable[[Any], Any]]:
    """View operations that have a put, to be applied one after the other."""
    links: list[Callable[[Any], Any]] = []
    a = np.empty(SHAPE)
    for _ in range(draw(st.integers(1, 7))):
        kind = draw(st.sampled_from("slice flip permute expand squeeze reshape int".split()))
        if kind == "slice" and a.ndim:
            axis = draw(st.integers(0, a.ndim - 1))
            n = a.shape[axis]
            bound = st.none() | st.integers(-n - 1, n + 1)
            at = (slice(None),) * axis + (slice(draw(bound), draw(bound), draw(st.sampled_from([1, 2, 3, -1, -2]))),)
            link = lambda x, at=at: x[at]
        elif kind == "flip" and a.ndim:
            axis = draw(st.integers(0, a.ndim - 1))
            link = lambda x, axis=axis: _ns(x).flip(x, axis=axis)
        elif kind == "permute":
            order = tuple(draw(st.permutations(range(a.ndim))))
            link = lambda x, order=order: _ns(x).permute_dims(x, order)
        elif kind == "expand" and a.ndim < 5:
            axis = draw(st.integers(0, a.ndim))
            link = lambda x, axis=axis: _ns(x).expand_dims(x, axis=axis)
        elif kind == "squeeze" and 1 in a.shape:
            axis = a.shape.index(1)
            link = lambda x, axis=axis: _ns(x).squeeze(x, axis=axis)
        elif kind == "int" and a.ndim > 1 and a.shape[0]:
            k = draw(st.integers(-a.shape[0], a.shape[0] - 1))
            link = lambda x, k=k: x[k]
        elif kind == "reshape" and a.flags.c_contiguous and a.size:
            parts = draw(st.sampled_from([k for k in range(1, 7) if a.size % k == 0]))
            link = lambda x, parts=parts: x.reshape(parts, -1)
        else:
            continue
        a = link(a)
        links.append(link)
    return links


def _ns(x: Any) -> Any:
    return np if isinstance(x, np.ndarray) else dx


def _through(links: list[Callable[[Any], Any]], x: Any) -> Any:
    for link in links:
        x = link(x)
    return x


@settings(max_examples=120)
@given(chains(), st.sampled_from(TEAMS))
def test_views_obey_the_lens_laws(links: list[Callable[[Any], Any]], team: dx.Team | None) -> None:
    """B-34: get(put(s, v)) == v, put(s, get(s)) == s, put(put(s, v), w) == put(s, w); the rest is untouched."""
    a = np.random.default_rng(5).random(SHAPE)
    x = rows(a, team)
    view, seen = _through(links, x), _through(links, a)
    assert view.shape == seen.shape
    assert dx.shares_memory(x, view) == bool(seen.size)
    np.testing.assert_array_equal(np.asarray(view), seen)
    view[...] = view
    np.testing.assert_array_equal(np.asarray(x), a)
    v, w = np.random.default_rng(6).random((2, *seen.shape))
    view[...] = v
    np.testing.assert_array_equal(np.asarray(view), v)
    view[...] = w
    untouched = np.ones(SHAPE, bool)
    _through(links, untouched)[...] = False
    expected = a.copy()
    _through(links, expected)[...] = w
    got = np.asarray(x)
    np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(got[untouched], a[untouched])


def test_a_chain_of_views_adds_no_task_per_link() -> None:
    """B-34: a chain of any length is one lens."""
    x = rows(np.arange(64.0).reshape(16, 4), TEAMS[3])
    x.persist()
    with counting() as one:
        (x[::-1] + 1).persist()
    view = x
    for _ in range(31):
        view = dx.flip(view.T, axis=1).T
    with counting() as many:
        (view + 1).persist()
    assert many.tasks == one.tasks
    np.testing.assert_array_equal(np.asarray(view), np.arange(64.0).reshape(16, 4)[::-1])


# ------------------------------------------------------------------------------------------ reshape, astype

SOURCES: dict[str, Callable[[Any], Any]] = {
    "whole": lambda x: x,
    "rows": lambda x: x[2:8],
    "columns": lambda x: x[:, 1:3],
    "transposed": lambda x: x.T,
    "strided rows": lambda x: x[::2],
    "reversed": lambda x: x[::-1],
    "one column": lambda x: x[:, 2],
    "new axis": lambda x: x[:, None],
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("layout", ["C", "F"])
@pytest.mark.parametrize("parts", [(-1,), (2, -1), (-1, 2), (1, -1, 1)])
def test_reshape_aliases_exactly_where_numpys_does(source: str, layout: str, parts: tuple[int, ...]) -> None:
    """B-35, B-50: whatever the layout of the blocks; copy=False raises where there is no view, copy=True pins."""
    a = table()
    x = dx.asarray(a, team=TEAMS[2], sharding=("R", None), layout=layout)
    theirs, ours = SOURCES[source](a), SOURCES[source](x)
    aliases = np.shares_memory(a, theirs.reshape(parts))
    reshaped = ours.reshape(parts)
    assert reshaped.shape == theirs.reshape(parts).shape
    assert dx.shares_memory(x, reshaped) == aliases
    if aliases:
        assert dx.shares_memory(x, dx.reshape(ours, parts, copy=False))
    else:
        with pytest.raises(ValueError, match="copy"):
            dx.reshape(ours, parts, copy=False)
    pinned = dx.reshape(ours, parts, copy=True)
    assert not dx.shares_memory(x, pinned)
    before = theirs.reshape(parts).copy()
    ours[...] = -1.0
    np.testing.assert_array_equal(np.asarray(pinned), before)
    np.testing.assert_array_equal(np.asarray(reshaped), np.full_like(before, -1) if aliases else before)


def test_a_reshape_that_copies_in_meaning_copies_nothing_at_the_call() -> None:
    """B-35: a handle pinned at the current version."""
    x = rows(table(), TEAMS[3])
    x.persist()
    with counting() as c:
        x.T.reshape(-1)
    assert (c.tasks, c.allocated_bytes) == (0, 0)


def test_astype_to_the_same_dtype_without_copy_is_the_array() -> None:
    """B-35, B-42: with copy (the default) it aliases nothing."""
    x = rows(table(), TEAMS[2])
    assert x.astype("f8", copy=False) is x
    assert dx.astype(x, dx.float64, copy=False) is x
    copied = x.astype("f8")
    copied[...] = 0
    np.testing.assert_array_equal(np.asarray(x), table())
    assert x.astype("f4", copy=False).dtype == np.float32


# --------------------------------------------------------------------------------------- what numpy does too


def test_broadcast_views_are_read_only(team: dx.Team | None) -> None:
    """B-36."""
    view = dx.broadcast_to(rows(table(), team), (3, 10, 4))
    calls: list[Callable[[], Any]] = [
        lambda: view.__setitem__(0, 1.0),
        lambda: view[1].__iadd__(1),
        lambda: view.T.__setitem__(..., 0),
        lambda: view.fill(0),
        lambda: view.sort(),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="read-only"):
            call()
    np.testing.assert_array_equal(np.asarray(view), np.broadcast_to(table(), (3, 10, 4)))


@pytest.mark.parametrize(
    "index",
    [
        slice(5, 99), slice(-99, 3), slice(99, 5), slice(12, 99), slice(None, -99), slice(99, None, -1),
        slice(99, -99, -3), (slice(3, 3), slice(0, 99)), (slice(-4, 99), slice(99, -99, -2)), slice(None, None, 99),
    ],
    ids=repr,
)  # fmt: skip
def test_slices_past_the_end_are_clipped(index: Any, team: dx.Team | None) -> None:
    """B-47, B-36: on reading and on writing."""
    a = table()
    x = rows(a, team)
    assert x[index].shape == a[index].shape
    np.testing.assert_array_equal(np.asarray(x[index]), a[index])
    x[index] = -5.0
    a[index] = -5.0
    np.testing.assert_array_equal(np.asarray(x), a)


def test_full_integer_indexing_is_pinned_and_with_an_ellipsis_a_view(team: dx.Team | None) -> None:
    """B-36."""
    x = rows(table(), team)
    pinned, view = x[7, 2], x[7, 2, ...]
    assert pinned.shape == view.shape == ()
    x[7, 2] = -1.0
    assert (float(pinned), float(view)) == (30.0, -1.0)
    view[...] = 4.0
    assert float(x[7, 2]) == 4.0
    assert not dx.shares_memory(x, pinned)
    assert dx.shares_memory(x, view)


ADVANCED: dict[str, Any] = {
    "list": [3, 0, 9],
    "array": np.array([[1, 8], [-1, 2]]),
    "mask": table() > 11,
    "mask of rows": np.arange(10) > 6,
    "with slice": (slice(1, 4), [3, 0]),
    "pairs": ([0, 5, 9], [1, 1, 3]),
    "of nothing": np.zeros(0, int),
}


@pytest.mark.parametrize("index", ADVANCED)
def test_advanced_indexing_reads_a_copy_and_writes_in_place(index: str, team: dx.Team | None) -> None:
    """B-36."""
    a = table()
    x = rows(a, team)
    at = ADVANCED[index]
    copied = x[at]
    np.testing.assert_array_equal(np.asarray(copied), a[at])
    assert not dx.shares_memory(x, copied)
    copied[...] = 99.0
    np.testing.assert_array_equal(np.asarray(x), a)
    view = x.T
    x[at] = -3.0
    a[at] = -3.0
    np.testing.assert_array_equal(np.asarray(x), a)
    np.testing.assert_array_equal(np.asarray(view), a.T)
    x[at] += 2.0
    a[at] += 2.0
    np.testing.assert_array_equal(np.asarray(x), a)


NEGATIVE = [
    slice(None, None, -1), slice(None, None, -3), slice(7, 2, -2), (slice(None, None, -1), slice(None, None, -1)),
    (slice(8, None, -4), slice(3, 0, -1)), (-1, slice(None, None, -1)), slice(2, 7, -1),
]  # fmt: skip


@pytest.mark.parametrize("index", NEGATIVE, ids=repr)
def test_negative_strides_read_write_and_compute(index: Any, team: dx.Team | None) -> None:
    """B-40."""
    a = table()
    x = rows(a, team)
    np.testing.assert_array_equal(np.asarray(x[index]), a[index])
    np.testing.assert_array_equal(np.asarray(x[index] * 2 + x[index]), a[index] * 3)
    np.testing.assert_array_equal(np.asarray(x[index].sum(axis=0)), a[index].sum(axis=0))
    x[index] = x[index][::-1] + 1
    a[index] = a[index][::-1] + 1
    np.testing.assert_array_equal(np.asarray(x), a)


# ---------------------------------------------------------------------------------------------- local parts


@pytest.mark.parametrize("look", ["slice", "strided", "reversed", "reversed strided", "transposed", "new axis"])
def test_the_local_part_of_a_view_can_be_read_and_written(look: str, team: dx.Team | None) -> None:
    """B-45, C-8: in this process it shares memory with the array; every alias sees what is written."""
    a = table()
    x = rows(a, team)
    view, b = VIEWS[look](x), VIEWS[look](a)
    pending = x + 0.5
    size = 1 if team is None else team.size
    seen = np.zeros(b.shape, int)
    for member in range(size):
        part = view.local(member)
        if not part.size:
            continue
        np.testing.assert_array_equal(part, b[part.global_slices])
        seen[part.global_slices] += 1
        part[...] = part * 10 + member
        b[part.global_slices] = b[part.global_slices] * 10 + member
    assert (seen == 1).all()
    np.testing.assert_array_equal(np.asarray(view), b)
    np.testing.assert_array_equal(np.asarray(x), a)
    np.testing.assert_array_equal(np.asarray(pending), table() + 0.5)


def test_the_local_part_of_a_read_only_view_is_read_only() -> None:
    """B-45, B-36."""
    part = dx.broadcast_to(rows(table(), TEAMS[2]), (2, 10, 4)).local(1)
    assert not part.flags.writeable


@pytest.mark.cluster
def test_the_local_part_from_another_process_is_a_read_only_copy(process_cluster: Any) -> None:
    """B-45, B-31."""
    team = dx.Team((3,), ("R",))
    x = rows(table(), team)
    part = x[::-1].local(1)
    np.testing.assert_array_equal(part, table()[::-1][part.global_slices])
    assert not part.flags.writeable


@pytest.mark.parametrize("tiles", [1, 3])
def test_a_copy_of_a_view_keeps_its_values_when_another_evaluation_writes_the_base(tiles: int) -> None:
    """B-6: a pending copy that shares its node with a view is not stored when that node is computed for others."""
    with force_tiles(tiles):
        a = np.arange(5.0).reshape(5, 1)
        x = dx.asarray(a)
        f, g = dx.flip(x), dx.flip(x)
        c = f.copy()
        t = g[[-4, -1]]
        f *= g
        np.testing.assert_array_equal(np.asarray(t), a[::-1][[-4, -1]])
        np.testing.assert_array_equal(np.asarray(x), a * a)
        np.testing.assert_array_equal(np.asarray(c), a[::-1])


def test_tiles_that_a_copy_shares_with_its_source_are_not_overwritten_with_the_source() -> None:
    """B-4, B-6: a write to the copy leaves the tiles that it does not touch shared."""
    with force_tiles(3):
        a = np.arange(6.0)
        x = dx.asarray(a).copy()
        view, taken, c = x.T, x[[-3, 3]], x.copy()
        np.asarray(taken)
        b = a.copy()
        b[-5] = c[-5] = 2
        view += c
        np.testing.assert_array_equal(np.asarray(x), a + b)
        np.testing.assert_array_equal(np.asarray(c), b)
