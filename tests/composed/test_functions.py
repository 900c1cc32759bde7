"""Functions of `distarray.composed.functions` that write into their argument, and compositions: values and refusals."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distarray as dx
from distarray.expr.expr import postorder
from distarray.testing import counting, force_tiles
from distarray.testing.assertions import assert_equal

TEAM = dx.Team((2,), ("R",))


def on_team(values: Any, dtype: Any = None) -> dx.DistArray:
    host = np.array(values, dtype)
    return dx.asarray(host, team=TEAM, sharding=("R", *[None] * (host.ndim - 1)))


def outcome(call: Callable[[], Any]) -> Any:
    """What a call gives, or the type of its error."""
    try:
        return np.asarray(call()).tolist()
    except Exception as error:
        return type(error)


COPIES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "float to ints": ([1, 2], 1.5, {}),
    "whole float to ints": ([1, 2], 1.0, {}),
    "float to ints, where": ([1, 2], 1.5, {"where": [True, False]}),
    "float to ints, unsafe": ([1, 2], 1.5, {"casting": "unsafe"}),
    "number of numpy": ([1, 2], np.float64(1.5), {}),
    "floats to ints": ([1, 2], [1.5, 2.5], {}),
    "int to booleans": ([True, False], 1, {}),
    "complex to floats": ([1.0, 2.0], 1j, {}),
    "bool to ints": ([1, 2], True, {}),
    "int to floats": ([1.0, 2.0], 3, {}),
    "no such casting": ([1.0, 2.0], 3, {"casting": "nonsense"}),
    "where of another shape": ([1, 2], 1, {"where": [True, False, True]}),
    "where with more axes": ([1, 2], 1, {"where": [[True, False], [False, True]]}),
    "where of numbers": ([1, 2], 9, {"where": [1, 0]}),
    "where of an array of numbers": ([1, 2], 9, {"where": np.array([1, 0])}),
    "where nothing": ([1, 2], 9, {"where": False}),
    "of another shape": ([1, 2], [1, 2, 3], {}),
}


@pytest.mark.parametrize("name", COPIES)
@pytest.mark.parametrize("ours", [False, True], ids=["host value", "our value"])
def test_copyto_casts_and_refuses_as_numpys(name: str, ours: bool) -> None:
    values, src, options = COPIES[name]

    def call(xp: Any, x: Any, given: Any) -> Any:
        xp.copyto(x, given, **options)
        return x

    given = on_team(src) if ours and np.ndim(src) else src
    x = on_team(values)
    assert outcome(lambda: call(dx, x, given)) == outcome(lambda: call(np, np.array(values), src))
    if isinstance(outcome(lambda: call(np, np.array(values), src)), type):
        np.testing.assert_array_equal(np.asarray(x), np.array(values), err_msg="a refused write changes nothing")


@pytest.mark.parametrize(
    "call",
    [
        lambda xp, x: xp.place(x, [True], 1),
        lambda xp, x: xp.place(x, [True, False, True, True, False], 1),
        lambda xp, x: xp.place(x, [[True, False], [False, True]], [7, 8]),
        lambda xp, x: xp.place(x, [1, 0, 0, 1], [7]),
        lambda xp, x: xp.place(x, [True, False, False, True], []),
        lambda xp, x: xp.place(x, [False] * 4, []),
        lambda xp, x: xp.putmask(x, [True], 1),
        lambda xp, x: xp.putmask(x, [[True, False], [False, True]], [7, 8]),
        lambda xp, x: xp.putmask(x, [True, False, True, True], []),
        lambda xp, x: xp.put(x, [1, 2], []),
        lambda xp, x: xp.put(x, [1, 2, 3], [7, 8]),
        lambda xp, x: xp.put(x, [4], 1),
        lambda xp, x: xp.fill_diagonal(x.reshape(2, 2), [7]),
        lambda xp, x: xp.fill_diagonal(x.reshape(2, 2), []),
        lambda xp, x: xp.fill_diagonal(x.reshape(2, 2), [[7, 8, 9]]),
        lambda xp, x: xp.fill_diagonal(x.reshape(4, 1), [7], wrap=True),
        lambda xp, x: xp.fill_diagonal(x, 1),
    ],
)
def test_masks_and_positions_are_checked_as_numpys(call: Callable[[Any, Any], Any]) -> None:
    def changed(xp: Any, x: Any) -> Any:
        call(xp, x)
        return x

    values = [1.0, 2.0, 3.0, 4.0]
    assert outcome(lambda: changed(dx, on_team(values))) == outcome(lambda: changed(np, np.array(values)))


def test_host_values_go_where_the_array_lives() -> None:
    """Values, masks and positions that are no DistArrays take the team of the array that is written."""
    x = on_team(np.zeros((3, 3)))
    dx.fill_diagonal(x, [1, 2, 3])
    dx.put(x, [1], [9])
    dx.putmask(x, x == 9, [4, 5])
    dx.place(x, [[False] * 3, [True, False, True], [False] * 3], [6, 7])
    dx.copyto(x, 8, where=[False, True, False])
    a = np.zeros((3, 3))
    np.fill_diagonal(a, [1, 2, 3])
    np.put(a, [1], [9])
    np.putmask(a, a == 9, [4, 5])
    np.place(a, [[False] * 3, [True, False, True], [False] * 3], [6, 7])
    np.copyto(a, 8, where=[False, True, False])
    np.testing.assert_array_equal(np.asarray(x), a)
    np.testing.assert_array_equal(np.asarray(dx.insert(x, 1, [1, 2, 3], axis=0)), np.insert(a, 1, [1, 2, 3], axis=0))


@pytest.mark.parametrize("name", ["copyto", "putmask"])
def test_elements_that_stay_keep_all_their_digits(name: str) -> None:
    """Integers that no float holds, beside floats that are written."""
    values = [2**62 + 1, 5, -(2**60) - 1]
    mask = [False, True, False]
    for x, xp in ((np.array(values), np), (on_team(values), dx)):
        if name == "copyto":
            xp.copyto(x, np.array(1.5), where=mask, casting="unsafe")
        else:
            xp.putmask(x, mask, [1.5])
        assert np.asarray(x).tolist() == [values[0], 1, values[2]]


@pytest.mark.parametrize("value", [4, [4], 2.5])
def test_insert_into_a_written_constant(value: Any) -> None:
    """What is made where it is read lies on no member that its values could be sent from."""
    v = dx.zeros(10, team=TEAM, sharding=("R",))
    v.fill(4)
    np.testing.assert_array_equal(np.asarray(dx.insert(v, 2, value)), np.insert(np.full(10, 4.0), 2, value))
    w = dx.zeros((6, 4), team=TEAM, sharding=("R", None))
    w[np.array([0, 5, 0])] = dx.ones((3, 4), team=TEAM, sharding=("R", None))
    np.testing.assert_array_equal(np.asarray(w)[:, 0], [1, 0, 0, 0, 0, 1])


def test_resize_refuses_negative_extents() -> None:
    with pytest.raises(ValueError, match="non-negative"):
        dx.resize(on_team([1, 2, 3]), -1)


@pytest.mark.parametrize("blocks", ["abc", ["a"], [["a", "b"]], b"x", None, {}, [1, None]], ids=repr)
def test_from_blocks_takes_numbers_only(blocks: Any) -> None:
    with pytest.raises(TypeError):
        dx.from_blocks(blocks)


def test_from_blocks_of_numbers_is_numpys_block() -> None:
    with force_tiles(1):
        np.testing.assert_array_equal(np.asarray(dx.from_blocks([[1, 2], [3, 4]])), np.block([[1, 2], [3, 4]]))


@pytest.mark.parametrize("mode", ["wrap", "clip"])
@pytest.mark.parametrize("is_array", [False, True])
def test_put_takes_positions_outside_as_numpy_does(mode: str, is_array: bool) -> None:
    expected, at = np.arange(12.0).reshape(3, 4), np.array([-1, 13, 5, -30])
    x = dx.asarray(expected)
    np.put(expected, at, [-5.0, -6.0, -7.0], mode)
    dx.put(x, dx.asarray(at) if is_array else at, [-5.0, -6.0, -7.0], mode)
    np.testing.assert_array_equal(x, expected)


def test_tri_of_a_negative_number_of_rows_and_a_histogram_without_edges_are_empty_as_numpys() -> None:
    assert dx.tri(-1).shape == np.tri(-1).shape
    for found, expected in zip(dx.histogram(dx.arange(4.0), []), np.histogram(np.arange(4.0), []), strict=True):
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype)


@pytest.mark.parametrize("order", ["c", "f", "a", "k"])
def test_order_may_be_written_in_lower_case_as_in_numpy(order: str) -> None:
    x = np.arange(12.0).reshape(3, 4)
    np.testing.assert_array_equal(dx.asarray(x).ravel(order), x.ravel(order))
    np.testing.assert_array_equal(dx.asarray(x).copy(order), x)


@pytest.mark.parametrize("src", [1.0, 2 - 1j, np.array([1j])], ids=["number", "complex", "array"])
def test_copyto_a_view_that_is_read_only_is_refused_before_its_dtype_is_looked_at(src: Any) -> None:
    for xp in (np, dx):
        with pytest.raises(ValueError, match="assignment destination is read-only"):
            xp.copyto(xp.broadcast_to(xp.asarray(np.arange(3.0)), (2, 3)), src)


def test_a_histogram_counts_elements_where_they_lie() -> None:
    """Rows are counted as rows: in one vector all elements would be copied. A few long ones are too few tiles."""
    rng = np.random.default_rng(0)
    with dx.use(team=dx.Team((3,), ("T",), members=range(3))), dx.config.set(block_bytes=1 << 10):
        for shape, is_copied in (((100, 7), False), ((48, 3, 5), False), ((2, 900), True)):
            values = rng.standard_normal(shape)
            x = dx.asarray(values)
            with counting() as c:
                found = np.asarray(dx.histogram(x, bins=9, range=(-1.0, 1.0))[0])
            np.testing.assert_array_equal(found, np.histogram(values, bins=9, range=(-1.0, 1.0))[0])
            assert ("reshape" in {name for name, _ in c.kernels}) == is_copied


@pytest.mark.parametrize("n_tiles", [1, 3])
@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("ii->i", (4, 4)), ("ij->ji", (3, 4)), ("ji", (3, 4)), ("...->...", (3, 4)), ("iji->ij", (3, 2, 3)),
        ("iii->i", (3, 3, 3)), ("i...->...i", (3, 4, 2)), ("ijij->ji", (2, 3, 2, 3)), ("ij->i", (3, 4)), ("i->i", (0,)),
    ],
)  # fmt: skip
def test_an_einsum_that_aggregates_nothing_is_a_view(text: str, shape: tuple[int, ...], n_tiles: int) -> None:
    a = np.arange(float(np.prod(shape))).reshape(shape)
    with force_tiles(n_tiles):
        x = dx.asarray(a.copy())
        expected, made = np.einsum(text, a), np.einsum(text, x)
        a *= 2
        x *= 2
        np.testing.assert_array_equal(made, expected)
        expected += 1
        made += 1
        np.testing.assert_array_equal(x, a)


@pytest.mark.parametrize("sizes", [(2,), (4,), (2, 2)], ids=repr)
@pytest.mark.parametrize("text", ["ii->i", "iii->i", "iji->ij"])
def test_a_diagonal_is_written_where_one_tile_has_all(text: str, sizes: tuple[int, ...]) -> None:
    shape = [4] * len(text.split("->")[0])
    a = np.arange(4.0 ** len(shape)).reshape(shape)
    with dx.config.set({"eager_bytes": 0, "block_bytes": 0}), force_tiles(1):
        x = dx.asarray(a.copy(), team=dx.Team(sizes, tuple("AB"[: len(sizes)])))
        for xp, y in ((np, a), (dx, x)):
            diagonal = xp.einsum(text, y)
            y *= 2
            diagonal += 1
        np.testing.assert_array_equal(x, a)


def test_a_matrix_of_blocks_is_one_array() -> None:
    """Each block is written once: no row of blocks is made on the way."""
    with dx.config.set(eager_bytes=0):
        a, b, c, d = (dx.ones(shape) + k for k, shape in enumerate([(3, 2), (3, 4), (1, 2), (1, 4)]))
        matrix = dx.block([[a, b], [c, d]])
        assert [node.op.name for node in postorder([matrix.__dx_node__()])].count("empty") == 1
        np.testing.assert_array_equal(
            np.asarray(matrix), np.block([[np.asarray(x) for x in row] for row in ((a, b), (c, d))])
        )


@pytest.mark.parametrize("tiles", [1, 3])
@pytest.mark.parametrize("bitorder", ["big", "little"])
@pytest.mark.parametrize("shape", [(), (0,), (1,), (16,), (3, 29), (2, 0, 5)])
@pytest.mark.parametrize("dtype", ["?", "u1", "i4"])
def test_bits_in_bytes_are_numpys(dtype: str, shape: tuple[int, ...], bitorder: Any, tiles: int) -> None:
    host = (np.arange(math.prod(shape)).reshape(shape) * 37 % 11 % 3).astype(dtype)
    with dx.config.set(eager_bytes=0), force_tiles(tiles):
        for axis in (None, 0, -1) if shape else (None,):
            packed = np.packbits(host, axis=axis, bitorder=bitorder)
            assert_equal(dx.packbits(dx.asarray(host), axis=axis, bitorder=bitorder), packed)
            assert_equal(
                dx.unpackbits(dx.asarray(packed), axis=axis, bitorder=bitorder),
                np.unpackbits(packed, axis=axis, bitorder=bitorder),
            )


@pytest.mark.parametrize("shape", [(0,), (2, 0)])
def test_bits_of_no_bytes_are_zeros(shape: tuple[int, ...]) -> None:
    for seen in range(1, 4):
        np.full((2, 17)[2 - len(shape) :], seen, np.uint8)  # what numpy finds in memory where it writes no bits
        bits = dx.unpackbits(dx.zeros(shape, "u1"), axis=-1, count=17)
        assert_equal(bits, np.zeros((*shape[:-1], 17), np.uint8))


PLACES: list[Any] = [
    *(0, -1, 3, np.array(2), [1], [-2], slice(2, 5), slice(None, None, 2), slice(6, 2, -1), [], [4, 1, 1, -1]),
    np.arange(7) % 3 == 0,
    np.ones(7, bool),
]


@pytest.mark.parametrize("tiles", [1, 3])
@pytest.mark.parametrize("at", PLACES, ids=str)
def test_delete_and_insert_are_numpys(at: Any, tiles: int) -> None:
    host = np.arange(35).reshape(5, 7)
    count = 1 if np.ndim(at) == 0 and not isinstance(at, slice) else np.arange(7)[at].size
    values = [
        7.9,
        np.arange(5.0)[:, None] if count else 1.0,
        np.arange(5.0 * count).reshape(5, count) if count > 1 else 2,
    ]
    with dx.config.set(eager_bytes=0), force_tiles(tiles):
        x = dx.asarray(host)
        assert_equal(dx.delete(x, at, axis=1), np.delete(host, at, axis=1))
        assert_equal(dx.delete(x[2], at), np.delete(host[2], at))
        assert_equal(dx.insert(x[2], at, 3.5), np.insert(host[2], at, 3.5))
        for value in values:
            assert_equal(dx.insert(x, at, value, axis=1), np.insert(host, at, value, axis=1))


@pytest.mark.parametrize("at", [-3, [5], [0, 7]], ids=str)
def test_insert_names_a_place_that_is_not_there_before_values_that_do_not_fit(at: Any) -> None:
    host = np.zeros((3, 2))
    with dx.config.set(eager_bytes=0):
        for xp in (np, dx):
            with pytest.raises(IndexError, match="out of bounds"):
                xp.insert(xp.asarray(host), at, np.zeros((4, 5)), axis=1)


@pytest.mark.parametrize("at", [[[1]], np.array([[1, 2]]), np.array(True), np.array([[True]])], ids=str)
def test_insert_refuses_places_that_are_no_row(at: Any) -> None:
    for xp in (np, dx):
        with pytest.raises(ValueError, match="must be one dimensional"):
            xp.insert(xp.asarray([1, 2, 3]), at, 4)


@pytest.mark.parametrize("tiles", [1, 3])
@pytest.mark.parametrize("shape", [(), (0,), (7,), (30, 41)], ids=str)
@pytest.mark.parametrize("dtype", ["f4", "f8", "c16", "i8"])
def test_norms_of_all_elements_are_numpys(dtype: str, shape: tuple[int, ...], tiles: int) -> None:
    host = (np.arange(math.prod(shape)).reshape(shape) % 23 - 9).astype(dtype)
    with dx.config.set(eager_bytes=0), force_tiles(tiles):
        x = dx.asarray(host)
        for y, theirs in ((x, host), (x + 1, host + 1)):
            expected = np.linalg.norm(theirs)
            np.testing.assert_allclose(dx.linalg.norm(y), expected, rtol=1e-6 if dtype == "f4" else 1e-14)
            made = dx.linalg.norm(y, keepdims=True)
            assert made.shape == (1,) * len(shape)
            assert made.dtype == expected.dtype
