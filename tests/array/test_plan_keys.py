"""What is in a plan's key and what is not: the same call site, with one thing changed at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import distarray as dx
from distarray.testing import counting

T4 = dx.Team((4,), ("R",))
T22 = dx.Team((2, 2), ("R", "C"))


@pytest.fixture(autouse=True)
def _no_plans() -> Iterator[None]:
    dx.plan_cache_clear()
    yield
    dx.plan_cache_clear()


def make(
    shape: tuple[int, ...] = (16, 6),
    dtype: str = "f8",
    team: dx.Team = T4,
    sharding: Any = ("R", None),
    layout: Any = "C",
    device: str = "cpu",
) -> dx.DistArray:
    values = np.arange(np.prod(shape)).astype(dtype).reshape(shape)
    x = dx.asarray(values, team=team, sharding=sharding, layout=layout, device=device)
    x.persist()
    return x


def planned(call: Callable[[], Any]) -> tuple[int, np.ndarray]:
    """Planner calls, and the value."""
    with counting() as c:
        value = np.asarray(call())
    return c.planner_calls, value


def statement(x: Any) -> Any:
    return (x[1:] * 2.5 + x[:-1]).sum(axis=0)


def expected(x: dx.DistArray) -> np.ndarray:
    return statement(np.asarray(x))


def test_the_second_run_of_a_plan_asks_nobody() -> None:
    """B-28: planner calls 0, same values."""
    x = make()
    first, value = planned(lambda: statement(x))
    again, same = planned(lambda: statement(x))
    other, _ = planned(lambda: statement(make()))
    assert (first, again, other) == (1, 0, 0)
    np.testing.assert_array_equal(value, same)
    np.testing.assert_allclose(value, expected(x), rtol=1e-14)


CHANGES: dict[str, dict[str, Any]] = {
    "number of axes": {"shape": (16, 6, 2), "sharding": ("R", None, None)},
    "dtype": {"dtype": "f4"},
    "integer dtype": {"dtype": "i8"},
    "sharding": {"sharding": (None, "R")},
    "layout of the blocks": {"layout": "F"},
    "team": {"team": dx.Team((3,), ("R",))},
    "members of the team": {"team": dx.Team((4,), ("R",), members=(4, 5, 6, 7))},
    "shape of the team": {"team": T22},
    "replicated along a mesh axis": {"team": T22, "sharding": ("R", None)},
    "both axes cut": {"team": T22, "sharding": ("R", "C")},
    "device": {"device": "strict"},
    "mapping of members to devices": {"device": "strict:1"},
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_in_the_key_plans_anew_and_gives_the_right_values(change: str) -> None:
    """B-29, C-3: the layout too."""
    x, y = make(), make(**CHANGES[change])
    assert planned(lambda: statement(x))[0] == 1
    calls, value = planned(lambda: statement(y))
    assert calls == 1
    np.testing.assert_allclose(value, expected(y), rtol=1e-6)
    # and back: both plans are there
    assert planned(lambda: statement(x))[0] == planned(lambda: statement(y))[0] == 0


@pytest.mark.parametrize("shape", [(17, 6), (16, 7), (12, 5), (9, 1), (3, 6), (1, 6), (300, 300)])
def test_other_extents_at_the_same_call_site_are_right(shape: tuple[int, ...]) -> None:
    """B-29: a key of the call site alone would read stale bounds."""
    x = make()
    planned(lambda: statement(x))
    y = make(shape=shape)
    np.testing.assert_allclose(planned(lambda: statement(y))[1], expected(y), rtol=1e-13)


STRUCTURES: dict[str, Callable[[Any], Any]] = {
    "another operation": lambda x: (x[1:] * 2.5 - x[:-1]).sum(axis=0),
    "one operand twice": lambda x: ((y := x[1:]) * 2.5 + y).sum(axis=0),
    "another axis": lambda x: (x[1:] * 2.5 + x[:-1]).sum(axis=1),
    "keepdims": lambda x: (x[1:] * 2.5 + x[:-1]).sum(axis=0, keepdims=True),
    "dtype of a sum": lambda x: (x[1:] * 2.5 + x[:-1]).sum(axis=0, dtype="f4"),
    "a longer chain": lambda x: (x[1:] * 2.5 + x[:-1] + 1).sum(axis=0),
    "type of a scalar": lambda x: (x[1:] * 2j + x[:-1]).sum(axis=0),
}


@pytest.mark.parametrize("structure", STRUCTURES)
def test_another_expression_is_another_plan(structure: str) -> None:
    """B-29."""
    x = make()
    planned(lambda: statement(x))
    calls, value = planned(lambda: STRUCTURES[structure](x))
    assert calls == 1
    np.testing.assert_allclose(value, STRUCTURES[structure](np.asarray(x)), rtol=1e-6)


def test_which_results_are_kept_is_in_the_key() -> None:
    """B-29."""
    x = make()

    def fused() -> Any:
        return (x * 2 + 1).sum(axis=0)

    def held() -> Any:
        held.y = x * 2  # type: ignore[attr-defined]
        return (held.y + 1).sum(axis=0)  # type: ignore[attr-defined]

    assert planned(fused)[0] == 1
    calls, value = planned(held)
    assert calls == 1
    np.testing.assert_array_equal(value, planned(fused)[1])
    assert planned(fused)[0] == planned(held)[0] == 0
    with counting() as c:
        np.asarray(held.y)  # type: ignore[attr-defined]
    assert c.tasks == 0


@pytest.mark.parametrize("option", [{"memory_limit": "64 MiB"}, {"overlap": "always"}, {"block_bytes": 0}], ids=repr)
def test_options_that_change_a_plan_are_in_the_key(option: dict[str, Any]) -> None:
    """B-29: the memory bound among them."""
    x = make()
    _, value = planned(lambda: statement(x))
    with dx.config.set(option):
        calls, again = planned(lambda: statement(x))
    assert calls == 1
    np.testing.assert_allclose(again, value, rtol=1e-14)


def test_values_that_are_parameters_of_a_run_are_not_in_the_key() -> None:
    """B-29: Python scalars, integer positions, slice offsets with the same pattern of touched tiles, index arrays."""
    x = make((40, 6))
    host = np.asarray(x)
    runs: dict[str, Callable[[Any, int], Any]] = {
        "scalars": lambda a, k: a * (k + 0.5) - k,
        "positions": lambda a, k: a[11 + k] * 2 + a[12 + k],
        "offsets": lambda a, k: a[11 + k : 14 + k] + a[12 + k : 15 + k],
        "write offsets": lambda a, k: _written(a, k),
        "index arrays": lambda a, k: a[np.array([k, 30 - k, 3 * k])] + 1,
    }
    for name, run in runs.items():
        counts = []
        for k in range(5):
            calls, value = planned(lambda run=run, k=k: run(x, k))
            counts.append(calls)
            np.testing.assert_array_equal(value, run(host, k), err_msg=name)
        assert sum(counts[1:]) == 0, name


def _written(a: Any, k: int) -> Any:
    b = a.copy()
    b[12 + k, 1:3] = 5.0 + k
    return b


@pytest.mark.parametrize(
    "read", [lambda x, i: x[i], lambda x, i: np.take(x, i, axis=0), lambda x, i: np.take_along_axis(x, i[:, None], 0)]
)
def test_the_extent_that_positions_count_from_is_not_in_the_key(read: Callable[[Any, Any], Any]) -> None:
    x = make((64, 3))
    host, at = np.asarray(x), np.array([0, -1, 7, -20, 3, 19, -11, 5])
    index = make((8,), "i8", sharding=("R",)) * 0 + dx.asarray(at, team=T4, sharding=("R",))
    index.persist()
    for k in range(13):  # the first tile is read from another row each time, and the others whole
        np.testing.assert_array_equal(read(x[k:], index), read(host[k:], at))
        if k == 1:
            plans = dx.plan_cache_info().currsize
    assert plans and dx.plan_cache_info().currsize == plans
    with pytest.raises(IndexError, match="index -20 is out of bounds for axis 0 with size 19"):
        read(x[45:], index).persist()


def test_offsets_that_touch_other_tiles_are_right() -> None:
    """B-29: the pattern of touched tiles is in the key."""
    x = make((40, 6))
    host = np.asarray(x)
    for k in range(36):
        _, value = planned(lambda k=k: x[k : k + 3] * 2 + x[k + 1 : k + 4])
        np.testing.assert_array_equal(value, host[k : k + 3] * 2 + host[k + 1 : k + 4])


def test_the_cache_is_bounded_and_can_be_inspected_and_cleared() -> None:
    """B-29."""
    x = make()
    assert dx.plan_cache_info()[:2] == (0, 0)
    assert dx.plan_cache_info().currsize == 0
    planned(lambda: statement(x))
    planned(lambda: statement(x))
    info = dx.plan_cache_info()
    assert (info.hits, info.misses, info.currsize) == (1, 1, 1)
    assert info.maxsize == dx.config.get("plan-cache-size")
    with dx.config.set(plan_cache_size=2):
        for n in range(1, 6):
            y = x
            for _ in range(n):
                y = y + 1
            planned(lambda y=y: y)
        assert dx.plan_cache_info().currsize <= 2
        assert dx.plan_cache_info().maxsize == 2
        assert planned(lambda: statement(x))[0] == 1  # the oldest went first
    dx.plan_cache_clear()
    assert dx.plan_cache_info() == (0, 0, dx.config.get("plan-cache-size"), 0)


def test_without_room_every_run_plans() -> None:
    """B-29: and is right."""
    x = make()
    with dx.config.set(plan_cache_size=0):
        for _ in range(2):
            calls, value = planned(lambda: statement(x))
            assert calls == 1
            np.testing.assert_allclose(value, expected(x), rtol=1e-14)


def test_a_second_scatter_plans_nothing() -> None:
    """C-20: of the same shapes, dtype, cut and layouts."""
    host = np.arange(96.0).reshape(16, 6)
    for k in range(2):
        with counting() as c:
            x = dx.scatter(host + k, team=T4, sharding=("R", None), layout="F")
            np.testing.assert_array_equal(x.gather(), host + k)
        assert c.planner_calls == 0 if k else c.planner_calls <= 1
