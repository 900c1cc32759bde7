"""Lists that hold arrays stand for one array: it is put together where they lie, and nothing is computed for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import distarray as dx

TEAM = dx.Team((3,), ("T",))


def rows(xp: Any, **where: Any) -> list[Any]:
    return [xp.arange(7.0, **where) * k % 5 for k in (1, 2, 3)]


CALLS: dict[str, Any] = {
    "asarray": lambda xp, a: xp.asarray(a),
    "nested deeper, beside lists": lambda xp, a: xp.asarray([a, [[1, 2, 3, 4, 5, 6, 7]] * 3]),
    "sum": lambda xp, a: xp.sum(a, axis=0),
    "std": lambda xp, a: xp.std(a),
    "maximum.reduce": lambda xp, a: xp.maximum.reduce(a),
    "logical_and.reduce": lambda xp, a: xp.logical_and.reduce([a[0] > 1, a[1] > 1]),
    "add.accumulate": lambda xp, a: xp.add.accumulate(a),
    "argmax": lambda xp, a: xp.argmax(a, axis=0),
    "where": lambda xp, a: xp.where([a[0] > 1, a[1] > 1, a[2] > 1], a, 0),
    "einsum": lambda xp, a: xp.einsum("ij,kj->ik", a, a),
    "an operator": lambda xp, a: xp.ones((3, 7)) + a,
    "numpy's function": lambda xp, a: np.add(a, xp.ones(7)),
    "an option": lambda xp, a: xp.add(a, xp.ones(7), dtype="f4", casting="same_kind"),
    "median": lambda xp, a: xp.median(a, axis=0),
    "one dtype": lambda xp, a: xp.add([a[0].astype("f4"), a[1].astype("f4")], xp.ones(7, dtype="f4")),
}


@pytest.mark.parametrize("name", CALLS)
def test_nested_arrays_are_one_array_that_nobody_gathers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = CALLS[name](np, rows(np))
    gathered: list[Any] = []
    monkeypatch.setattr(dx.DistArray, "_host", lambda x: gathered.append(x))
    with dx.use(TEAM):
        made = CALLS[name](dx, rows(dx, sharding=("T",)))
    assert not gathered
    monkeypatch.undo()
    assert made.dtype == expected.dtype
    np.testing.assert_allclose(made, expected, rtol=1e-14)


def test_nested_arrays_are_written_where_they_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    x = dx.zeros((3, 7), team=TEAM, sharding=(None, "T"))
    with monkeypatch.context() as context:
        context.setattr(dx.DistArray, "_host", None)
        x[:] = rows(dx, team=TEAM, sharding=("T",))
    np.testing.assert_array_equal(x, rows(np))


def test_nested_arrays_live_where_the_first_of_them_does() -> None:
    assert dx.add([dx.ones(3, team=TEAM), [1, 2, 3]], 1).team == TEAM
    assert dx.maximum.reduce([dx.ones(3, team=TEAM), dx.zeros(3, team=TEAM)]).team == TEAM


def test_small_arrays_that_are_here_are_put_together_here() -> None:
    many = [dx.arange(3.0) * k for k in range(50)]
    with dx.testing.counting() as count:
        made = dx.asarray(many)
    assert count.tasks == 0
    assert made.__dx_node__().memo is not None
    np.testing.assert_array_equal(made, np.arange(3.0) * np.arange(50)[:, None])
    assert dx.add(many[:2], 1, dtype="f4", casting="same_kind").dtype == np.float32


def test_nested_arrays_of_several_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"inhomogeneous shape: its items are of the shapes \[\(3,\), \(4,\)\]"):
        dx.asarray([dx.ones(n, team=TEAM, sharding=("T",)) for n in (4, 3)])
    with pytest.raises(ValueError, match="inhomogeneous shape"):
        dx.asarray([dx.arange(3) + 1, dx.arange(4) + 1])
    with pytest.raises(ValueError, match="Unable to avoid copy"):
        dx.asarray([dx.ones(3), dx.ones(3)], copy=False)


def test_numbers_in_a_list_may_be_arrays_without_axes() -> None:
    x = dx.arange(4.0)
    np.testing.assert_array_equal(dx.asarray([x.min(), 1, [x.max(), 2.5][0]]), [0.0, 1.0, 3.0])


@pytest.mark.cluster
def test_nested_arrays_of_workers_stay_there(cluster4: Any) -> None:
    x = dx.random.default_rng(0).random((2000, 400)).persist()
    with dx.testing.counting() as count:
        most = float(dx.maximum.reduce([x, -x, 0.5 * x]).sum())
    assert most == pytest.approx(float(x.sum()))
    assert count.fetched_bytes == 8
