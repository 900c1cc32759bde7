"""Every operation of the RFC, and the holes of its other implementations, on 1, 3 and 4 members against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers import some

import distarray as dx
from distarray.testing import counting

TEAMS = [None, dx.Team((1,), ("R",)), dx.Team((3,), ("R",)), dx.Team((4,), ("R",))]
T4 = TEAMS[3]
T22 = dx.Team((2, 2), ("R", "C"))


@pytest.fixture(params=TEAMS, ids=repr)
def team(request: pytest.FixtureRequest) -> dx.Team | None:
    return request.param


def rows(values: Any, team: dx.Team | None, sharding: Any = None) -> dx.DistArray:
    values = np.asarray(values)
    if team is None:
        return dx.asarray(values, team=None)
    cut = ((*team.axes, *(None,) * values.ndim)[: values.ndim]) if sharding is None else sharding
    return dx.asarray(values, team=team, sharding=cut)


def parts(result: Any) -> tuple[Any, ...]:
    return tuple(result) if isinstance(result, tuple | list) else (result,)


@pytest.mark.parametrize("team", [*TEAMS, T22], ids=repr)
def test_operations_of_the_rfc_equal_numpy(
    rfc_operation: Any, rfc_tables: tuple[np.ndarray, ...], team: dx.Team | None
) -> None:
    """B-8, B-20: values, shapes, dtypes and environments; sources stay as they were."""
    theirs = parts(rfc_operation.run(np, *(table.copy() for table in rfc_tables)))
    arrays = [rows(table, team) for table in rfc_tables]
    with dx.use(team):
        ours = parts(rfc_operation.run(dx, *arrays))
    assert len(ours) == len(theirs)
    for x, a in zip(ours, theirs, strict=True):
        assert x.shape == np.shape(a)
        assert x.dtype == np.asarray(a).dtype
        assert x.team == team
        assert x.device == "cpu"
        np.testing.assert_allclose(np.asarray(x), a, rtol=1e-6 if x.dtype == np.float32 else 1e-12, atol=1e-14)
    for x, table in zip(arrays, rfc_tables, strict=True):
        np.testing.assert_array_equal(np.asarray(x), table)


# --------------------------------------------------------------------------------------- guarantees of the table


@pytest.mark.parametrize("shape", [(23,), (3,)])
def test_created_parts_are_slices_of_the_whole_bitwise_and_nothing_moves(shape: tuple[int]) -> None:
    """B-20 in creators: each part is made where it lies."""
    (n,) = shape
    makers = {
        "linspace": lambda xp, **k: xp.linspace(0.1, 7.3, n, **k),
        "open linspace": lambda xp, **k: xp.linspace(-2, 7.3, n, endpoint=False, **k),
        "arange": lambda xp, **k: xp.arange(0.3, 0.3 + n * 0.7 - 0.1, 0.7, **k),
        "ones": lambda xp, **k: xp.ones((n, 2), **k),
        "eye": lambda xp, **k: xp.eye(n, **k),
    }
    for name, make in makers.items():
        whole = make(np)
        cut = ("R",) + (None,) * (whole.ndim - 1)
        with counting() as c:
            x = make(dx, team=T4, sharding=cut).persist()
        assert c.messages == 0, name
        assert x.sharding.n_tiles == 4
        for block in x.blocks:
            assert block.values.tobytes() == whole[block.global_slices].tobytes(), name


def test_attributes_make_no_task() -> None:
    x = rows(np.ones((10, 4)), T4)
    y = x * 2
    with counting() as c:
        assert (y.ndim, y.shape, y.size, y.nbytes, len(y), y.itemsize) == (2, (10, 4), 40, 320, 10, 8)
        assert y.dtype == np.float64
        assert y.T.shape == (4, 10)
        assert y.layout == "C"
        repr(y)
    assert (c.tasks, c.evaluations) == (0, 0)


def test_meshgrid_and_broadcasts_are_views_and_only_unique_elements_travel() -> None:
    x = rows(np.arange(8.0), T4)
    grids = dx.meshgrid(x, dx.arange(3.0, team=T4))
    assert [g.shape for g in grids] == [(3, 8), (3, 8)]
    table = rows(np.ones((8, 1000)), T4)
    row = rows(np.arange(8.0).reshape(8, 1), T4)
    table.persist(), row.persist()
    with counting() as c:
        (table[2:] + dx.broadcast_to(row[:-2], (6, 1000))).persist()
    # The cut is that of the larger operand, read from its third row on: two rows of `row` go to each neighbour.
    assert c.bytes_moved == 6 * 8


def test_concat_sends_one_message_per_pair_at_most() -> None:
    a, b = np.arange(12.0).reshape(12, 1), -np.arange(9.0).reshape(9, 1)
    x, y = rows(a, T4), rows(b, T4)
    x.persist(), y.persist()
    out = dx.zeros((21, 1), team=T4, sharding=("R", None))
    with counting() as c:
        out[...] = dx.concat([x, y])
        out.persist()
    np.testing.assert_array_equal(np.asarray(out), np.concatenate([a, b]))
    pairs = [(t.source, t.destination) for t in c.transfers]
    # one message per source array at most
    assert all(pairs.count(p) <= 2 for p in pairs)
    assert c.rows <= 21


@pytest.mark.parametrize("shift", [1, -1, 2, 5])
def test_roll_exchanges_the_shifted_rows_only(shift: int) -> None:
    a = np.arange(16.0).reshape(16, 1)
    x, out = rows(a, T4), dx.zeros((16, 1), team=T4, sharding=("R", None))
    x.persist(), out.persist()
    with counting() as c:
        out[...] = dx.roll(x, shift, axis=0)
        out.persist()
    np.testing.assert_array_equal(np.asarray(out), np.roll(a, shift, axis=0))
    moved = sum(1 for r in range(16) if r // 4 != ((r + shift) % 16) // 4)
    assert c.rows == moved


def test_a_reshape_that_is_materialised_gathers_at_no_member() -> None:
    a = np.arange(96.0).reshape(8, 12)
    x = rows(a, T4)
    x.persist()
    y = dx.zeros((12, 8), team=T4, sharding=("R", None))
    with counting() as c:
        y[...] = x.reshape(12, 8) + 1
        y.persist()
    np.testing.assert_array_equal(np.asarray(y), a.reshape(12, 8) + 1)
    received = [sum(t.nbytes for t in c.transfers if t.destination == m) for m in range(4)]
    assert max(received) <= a.nbytes // 4


@pytest.mark.parametrize("descending", [False, True])
def test_sorting_is_stable_across_part_borders(team: dx.Team | None, descending: bool) -> None:
    keys = np.random.default_rng(3).integers(0, 4, 37)
    x = rows(keys, team)
    order = np.asarray(dx.argsort(x, descending=descending, stable=True))
    expected = np.argsort(-keys if descending else keys, kind="stable")
    np.testing.assert_array_equal(order, expected)
    np.testing.assert_array_equal(np.asarray(dx.sort(x, descending=descending)), keys[expected])


def test_argmax_is_the_first_occurrence_and_global(team: dx.Team | None) -> None:
    a = np.array([[3, 9, 1], [9, 2, 9], [9, 9, 0], [1, 0, 9], [0, 0, 0]])
    x = rows(a, team)
    assert int(dx.argmax(x)) == 1
    assert int(dx.argmin(x)) == 8
    np.testing.assert_array_equal(np.asarray(dx.argmax(x, axis=0)), a.argmax(axis=0))
    np.testing.assert_array_equal(np.asarray(dx.argmin(x, axis=0)), a.argmin(axis=0))
    nan = np.array([1.0, np.nan, 5.0, np.nan])
    assert int(dx.argmax(rows(nan, team))) == 1


def test_variance_merges_pairwise_and_keeps_its_digits(team: dx.Team | None) -> None:
    """Count, mean and M2: a sum of squares would lose everything here."""
    a = np.random.default_rng(4).random(1000) + 1e9
    x = rows(a, team)
    np.testing.assert_allclose(float(x.var()), a.var(), rtol=1e-6)
    np.testing.assert_allclose(float(dx.std(x, correction=1)), a.std(ddof=1), rtol=1e-6)


def test_dlpack_of_one_block_is_free_and_of_several_an_error() -> None:
    host = np.arange(6.0)
    x = dx.from_dlpack(host)
    np.testing.assert_array_equal(np.from_dlpack(x), host)
    # numpy 2.1 marks what it imports as read-only, and that goes out as a copy
    if np.from_dlpack(host).flags.writeable:
        assert np.shares_memory(np.from_dlpack(x), host)
    cut = rows(np.arange(8.0), T4) + 1
    with pytest.raises(BufferError, match="local"):
        np.from_dlpack(cut)
    np.testing.assert_array_equal(np.from_dlpack(cut.local(1)), [3.0, 4.0])
    assert x.__dlpack_device__() == (1, 0)


# ------------------------------------------------------------------------------------------------- the holes


@pytest.mark.parametrize("axis", [0, 1, 2, (0, 2), (1, 2), (0, 1), None, -1, ()], ids=repr)
@pytest.mark.parametrize("keepdims", [False, True])
def test_reductions_over_some_axes(team: dx.Team | None, axis: Any, keepdims: bool) -> None:
    """B-41."""
    a = np.random.default_rng(0).random((5, 4, 3))
    x = rows(a, team)
    for name in ("sum", "prod", "max", "min", "mean", "var", "std"):
        expected = getattr(np, name)(a, axis=axis, keepdims=keepdims)
        got = getattr(dx, name)(x, axis=axis, keepdims=keepdims)
        assert got.shape == np.shape(expected)
        np.testing.assert_allclose(np.asarray(got), expected, rtol=1e-12, atol=1e-15, err_msg=name)
    np.testing.assert_array_equal(np.asarray(dx.any(x > 0.9, axis=axis)), np.any(a > 0.9, axis=axis))
    np.testing.assert_array_equal(np.asarray(dx.all(x > 0.1, axis=axis)), np.all(a > 0.1, axis=axis))


def test_astype_copies_if_asked(team: dx.Team | None) -> None:
    """B-42."""
    x = rows(np.arange(6.0), team)
    same, other = x.astype("f8", copy=True), dx.astype(x, dx.float32, copy=True)
    x[...] = -1.0
    np.testing.assert_array_equal(np.asarray(same), np.arange(6.0))
    np.testing.assert_array_equal(np.asarray(other), np.arange(6, dtype="f4"))
    assert not dx.shares_memory(x, same)


DTYPES = ["bool", "i1", "i4", "i8", "u1", "u4", "u8", "f2", "f4", "f8", "c8", "c16"]


@pytest.mark.parametrize("first", some(DTYPES))
def test_mixed_dtypes_follow_numpy(team: dx.Team | None, first: str) -> None:
    """B-43, B-8: int32 with float32 too, which the standard leaves out."""
    a = np.arange(7).astype(first)
    for second in DTYPES:
        b = np.array([1, 2, 1, 3, 1, 2, 1]).astype(second)
        x, y = rows(a, team), rows(b, team)
        for function in (np.add, np.multiply, np.equal, np.maximum):
            expected = function(a, b)
            got = function(x, y)
            assert got.dtype == expected.dtype, (first, second)
            np.testing.assert_array_equal(np.asarray(got), expected)
        if first != "bool":
            for scalar in (2, 1.5, 1j, True, np.float32(1.5), np.int8(3)):
                expected = a * scalar
                got = x * scalar
                assert got.dtype == expected.dtype, (first, scalar)
                np.testing.assert_array_equal(np.asarray(got), expected)


@pytest.mark.parametrize(
    ("left", "right"),
    [((6, 5), (5, 4)), ((5,), (5,)), ((6, 5), (5,)), ((5,), (5, 4)), ((3, 6, 5), (3, 5, 4)), ((3, 1, 6, 5), (2, 5, 4)),
     ((6, 0), (0, 4)), ((1, 5), (5, 1))],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "c16"])
def test_matmul_on_any_cut(team: dx.Team | None, left: tuple[int, ...], right: tuple[int, ...], dtype: str) -> None:
    """B-46."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, shape).astype(dtype) for shape in (left, right))
    np.testing.assert_array_equal(np.asarray(rows(a, team) @ rows(b, team)), a @ b)
    if team is not None and len(left) == len(right) == 2:
        inner = rows(a, team, (None, "R")) @ rows(b, team, ("R", None))
        outer = rows(a, team, ("R", None)) @ rows(b, team, (None, "R"))
        np.testing.assert_array_equal(np.asarray(inner), a @ b)
        np.testing.assert_array_equal(np.asarray(outer), a @ b)
