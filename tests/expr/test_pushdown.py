"""Reads of arrays that nothing can hold: right, and of nothing but what they need."""

import time
from typing import Any

import numpy as np
import pytest
from expr_verifier import verify
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import distarray as dx
from distarray import hooks
from distarray.errors import MemoryBudgetError
from distarray.expr import pushdown
from distarray.expr.expr import Expr, postorder
from distarray.kernels.interpret import interpret
from distarray.ops import indexing
from distarray.testing import counting

HUGE = 10**12


@pytest.fixture
def all_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever its size, no pending array is held to be read from."""
    monkeypatch.setattr(hooks, "is_beyond_memory", lambda x: True)
    monkeypatch.setattr(pushdown, "SHARE", 2)
    monkeypatch.setattr(pushdown, "MANY", 3)


def indices(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[Any, ...]:
    found: list[Any] = []
    for n in shape:
        if draw(st.booleans()):
            found.append(draw(st.integers(-n, n - 1)))
        else:
            a, b = draw(st.integers(0, n - 1)), draw(st.integers(1, n))
            step = draw(st.sampled_from([1, 1, 2, 3, -1, -2]))
            low, high = min(a, b - 1), max(a + 1, b)
            found.append(slice(low, high, step) if step > 0 else slice(high - 1, low - 1 if low else None, step))
    return tuple(found)


SHAPES = [(12,), (4, 6), (3, 4, 2), (24,), (2, 3, 4), (1, 12), (6, 1, 4)]


def programs(draw: st.DrawFn) -> tuple[dx.DistArray, Any]:
    """A pending array that is written, reshaped, computed and looked at through others, and numpy's."""
    shape = draw(st.sampled_from(SHAPES))
    values = np.arange(float(np.prod(shape))).reshape(shape)
    x = dx.arange(float(values.size)).reshape(shape)
    for _ in range(draw(st.integers(1, 7))):
        how = draw(st.sampled_from(["put", "put", "put array", "reshape", "get", *MAPS]))
        if how in ("put", "put array"):
            index = indices(draw, values.shape)
            new: Any = draw(st.integers(100, 999))
            if how == "put array":
                new = np.arange(100, 100 + values[index].size, dtype=draw(st.sampled_from(["f8", "i4"])))
                new = new.reshape(values[index].shape)
            values = values.copy()
            values[index] = new
            x = x.copy()
            x[index] = dx.asarray(new) if how == "put array" else new
        elif how == "reshape":
            fits = [s for s in SHAPES if np.prod(s) == values.size] or [(-1,)]
            to = draw(st.sampled_from(fits))
            values, x = values.reshape(to), x.reshape(to)
        elif how == "get" and values.ndim:
            index = indices(draw, values.shape)
            if values[index].size > 1:
                values, x = values[index].copy(), x[index].copy()
        elif how in MAPS and values.ndim >= MAPS[how][0]:
            values, x = MAPS[how][1](np, values), MAPS[how][1](dx, x)
    return x, values


def diagonal(xp: Any, x: Any) -> Any:
    x = x[:, : x.shape[1]].copy()
    xp.fill_diagonal(x.reshape(x.shape[0], -1), 7)
    return x


#: Least number of axes, and what is done.
MAPS: dict[str, tuple[int, Any]] = {
    "map": (1, lambda xp, x: x * 2 + x[..., :1]),
    "twice": (0, lambda xp, x: x * 0.5 + x),
    "outer": (1, lambda xp, x: x.reshape(-1, 1)[:24] + x.reshape(-1)[None, :3]),
    "diagonal": (2, diagonal),
    "roll": (1, lambda xp, x: x + xp.roll(x, 1, axis=0)),
    "flip": (1, lambda xp, x: xp.flip(x, axis=-1) - x),
    "shift": (1, lambda xp, x: x[1:] + x[:-1] if x.shape[0] > 1 else x),
    "transpose": (2, lambda xp, x: x.T),
    "row": (1, lambda xp, x: x + xp.arange(float(x.shape[-1]))),
    "sum": (2, lambda xp, x: xp.sum(x, axis=0)),
}

given_programs = settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])


@given_programs
@given(data=st.data())
def test_reads_of_written_reshaped_and_computed_arrays_are_numpys(all_too_large: None, data: st.DataObject) -> None:
    x, values = programs(data.draw)
    index = indices(data.draw, values.shape)
    np.testing.assert_array_equal(np.asarray(x[index]), values[index])


def value(node: Expr) -> Any:
    order = postorder([node])
    return interpret(order, {id(node)})[id(node)] if node.memo is None else node.memo.blocks[0]


def elements(node: Expr) -> int:
    """The largest pending array that a node needs."""
    return max([n.size for n in postorder([node]) if n.memo is None], default=0)


@given_programs
@given(data=st.data())
def test_narrowed_nodes_have_the_same_value_and_need_no_more(data: st.DataObject) -> None:
    x, values = programs(data.draw)
    index = indices(data.draw, values.shape)
    node = x[index].__dx_node__()
    found = pushdown.narrowed(node)
    assert found.shape == node.shape
    assert elements(found) <= max(elements(node), 1)
    verify(found)
    np.testing.assert_array_equal(value(found), values[index])


def test_a_corner_of_a_huge_reshaped_array_needs_its_rows_only() -> None:
    x: Any = dx.arange(10**12).reshape(1000, 10**9) * 2
    found = pushdown.narrowed(x[998:, :3].__dx_node__())
    assert max(n.size for n in postorder([found]) if n.op.name != "arange") <= 2 * 10**9
    y: Any = (dx.arange(10**12).reshape(10**9, 1000) + 1)[::7]
    assert str(y[:5]).startswith("[[    1     2     3 ...   998   999  1000]")
    assert str(y).count("...") >= 2


def test_an_operand_that_is_read_twice_is_divided_once() -> None:
    x = dx.zeros(10**13)
    for _ in range(30):
        x = x * 0.5 + x
    assert len(postorder([x[5].__dx_node__()])) < 100
    assert float(x[5]) == 0
    y: Any = dx.arange(10**13)
    for _ in range(40):  # what is asked of each differs, and is joined
        y = y[1:] + y[:-1]
    node = y[10**6].__dx_node__()
    assert len(postorder([node])) < 400
    assert int(y[3]) == 23 * 2**40


def test_a_chain_of_any_length_is_read() -> None:
    """No walk over expressions recurses."""
    x: Any = dx.zeros(10**13)
    for _ in range(2000):
        x = x + 1
    assert float(x[5]) == 2000
    assert str(x).startswith("[2000. 2000.")


def test_an_element_of_a_written_array_larger_than_memory_is_read_alone() -> None:
    x = dx.zeros(HUGE)
    x[5] = 1
    x[3:9] += 2
    with counting() as counts:
        assert [float(x[i]) for i in (2, 3, 5, 8, 9, HUGE - 1)] == [0, 2, 3, 2, 0, 0]
    assert counts.fetched_bytes < 1000
    np.testing.assert_array_equal(np.asarray(x[1:7]), [0, 0, 2, 2, 3, 2])


def test_an_element_of_an_array_written_through_a_reshape_is_read_alone() -> None:
    """A version that a write follows is stored, whatever it is a slice of."""
    x = dx.zeros(10**12)
    x += 1
    x.reshape(-1, 10)[3, 1] = 5
    assert [float(x[31]), float(x[32])] == [5, 1]
    y = dx.arange(10**12) * 2
    y.reshape(10**6, 10**6)[0, 3] = 9
    assert [int(y[3]), int(y[4])] == [9, 8]


def test_parts_of_arrays_put_together_are_read_alone() -> None:
    assert np.asarray(dx.concatenate([dx.zeros(HUGE), dx.ones(HUGE)])[HUGE - 1 : HUGE + 1]).tolist() == [0, 1]
    assert float(dx.tile(dx.arange(3.0), 10**17)[10**17 + 3]) == (10**17 + 3) % 3
    assert int(dx.repeat(dx.arange(3), 10**15)[10**15]) == 1
    assert np.asarray(dx.roll(dx.arange(HUGE), 2)[:3]).tolist() == [HUGE - 2, HUGE - 1, 0]
    assert int(dx.arange(HUGE).reshape(10**6, 10**6)[3, 4]) == 3_000_004
    assert float((dx.zeros((10**6, 10**6)) + 1)[4, 5]) == 1


def test_positions_of_an_array_larger_than_memory_are_read_alone() -> None:
    at = np.array([[3, 10**11], [-1, 3]])
    assert_same = np.testing.assert_array_equal
    assert_same(dx.arange(HUGE)[at], at % HUGE)
    assert_same(dx.take(dx.arange(HUGE) * 2, [5, 7, 6, 10**9]), [10, 14, 12, 2 * 10**9])
    x = dx.arange(HUGE).reshape(10**6, 10**6)
    assert_same(x[[70, 3, 70]][:, :2], [[70_000_000, 70_000_001], [3_000_000, 3_000_001], [70_000_000, 70_000_001]])
    assert_same(x[np.ix_([9, 1], [10**5, 4])], [[9_100_000, 9_000_004], [1_100_000, 1_000_004]])
    assert_same(x[[1, 9], [4, 10**5]], [1_000_004, 9_100_000])
    y = dx.zeros((10**6, 10**6)) + dx.arange(10**6)[:, None]
    assert_same(y[5:, [8, 2]][:2], [[5, 5], [6, 6]])
    many = np.random.default_rng(0).integers(0, 10**6, 200)
    assert_same(y[many, 0], many)
    assert_same(y[many][:, 7], many)


@pytest.mark.parametrize("make", [lambda r: r.random((3000, 4000)), lambda r: r.random((3000, 4000)) * 2])
@pytest.mark.parametrize(
    "index", [np.array([5, 2999, 5]), (slice(None, None, 2), np.array([7, 9, 8])), np.ix_([2, 1000], [3, 3999])]
)
def test_positions_of_random_numbers_are_made_alone(make: Any, index: Any) -> None:
    x = make(dx.random.default_rng(1))
    found = np.asarray(x[index])
    assert x.__dx_node__().memo is None, "all of it was made"
    np.testing.assert_array_equal(found, np.asarray(x)[index])
    assert x.__dx_node__().memo is not None
    np.testing.assert_array_equal(found, np.asarray(x[index]))


def test_positions_of_what_is_small_or_is_made_of_stored_arrays_are_taken_of_all_of_it() -> None:
    for x in (dx.random.default_rng(1).random((300, 400)), dx.asarray(np.arange(4e6)).reshape(1000, 4000) * 2):
        found = x[np.array([5, 999 % len(x)])]
        assert [n.op.name for n in postorder([found.__dx_node__()])].count("take") == 1
        assert found.__dx_node__().operands[0] is x.__dx_node__()


@pytest.mark.parametrize("index", [np.s_[[5, 9, 5], 1:], np.s_[::2, [0, 1]], np.s_[[5, 9], [2, 0]]])
def test_positions_in_views_of_stored_arrays_are_not_sorted(index: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of a stored array is to be made, so that a look at how its positions lie would be in vain."""
    monkeypatch.setattr(indexing, "_runs", lambda at: pytest.fail("positions were sorted"))
    host = np.arange(6e6).reshape(2_000_000, 3)
    np.testing.assert_array_equal(dx.asarray(host)[index], host[index])
    with dx.config.set(eager_bytes=0):
        np.testing.assert_array_equal(dx.asarray(host)[::-1][index], host[::-1][index])


def test_many_writes_to_an_array_larger_than_memory_are_kept_and_read() -> None:
    """No walk recurses, and a full window runs none of them."""
    x = dx.zeros(HUGE)
    for i in range(700):
        x[i : i + 3] = i
    assert np.asarray(x[698:703]).tolist() == [698, 699, 699, 699, 0]


@pytest.mark.parametrize(
    "ask",
    [
        lambda: np.asarray(dx.ones(10**11)),
        lambda: dx.ones(10**11).persist(),
        lambda: np.asarray(dx.tile(dx.zeros(3), 10**15)),
        lambda: written().sum().item(),
        lambda: np.asarray(written()),
        lambda: dx.ones(10**15).tolist(),
    ],
)
def test_what_cannot_fit_is_refused_at_once_with_the_numbers(ask: Any) -> None:
    start = time.perf_counter()
    with pytest.raises(MemoryBudgetError, match=r"[0-9]+ bytes") as caught:
        ask()
    assert isinstance(caught.value, MemoryError)
    assert time.perf_counter() - start < 5


def written() -> dx.DistArray:
    x = dx.zeros(HUGE)
    x[5] = 1
    return x


@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "i4", "u8", "u1", "bool", "c16"])
@pytest.mark.parametrize("value", [0, 1, 3])
@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "any", "all", "mean", "count_nonzero"])
@pytest.mark.parametrize("axis", [None, 0, (0, 2)])
def test_reductions_of_equal_elements_are_numpys(name: str, value: int, dtype: str, axis: Any) -> None:
    values = np.full((3, 4, 5), value, dtype)
    x = dx.full((3, 4, 5), value, dtype=dtype)
    wanted = np.asarray(getattr(np, name)(values, axis=axis))
    got = getattr(dx, name)(x, axis=axis)
    assert got.dtype == wanted.dtype
    assert got.shape == wanted.shape
    np.testing.assert_allclose(np.asarray(got), wanted, rtol=1e-6)


def test_sums_of_ever_so_many_equal_elements_are_closed_forms() -> None:
    with counting() as counts:
        assert float(dx.ones(10**18).sum()) == 1e18
        assert float(dx.full((10**9, 10**9), 2.5)[5:].mean(axis=0)[7]) == 2.5
        assert int(dx.full(10**18, 3, dtype="i8").sum()) == 3 * 10**18
        assert int(dx.full(2**33, 2**31, dtype="i8").sum()) == 0  # it wraps, as numpy's
        assert bool(dx.zeros(10**18).any()) is False
        assert int(dx.count_nonzero(dx.ones(10**18))) == 10**18
    assert counts.tasks == 0


@pytest.mark.filterwarnings("ignore:overflow encountered")
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38])
@pytest.mark.parametrize("name", ["sum", "mean", "max", "prod"])
def test_reductions_of_equal_numbers_at_the_ends_of_the_range_are_numpys(name: str, value: float) -> None:
    wanted = getattr(np.full(20, value, "f4"), name)()
    np.testing.assert_array_equal(np.asarray(getattr(dx.full(20, value, dtype="f4"), name)()), wanted)
