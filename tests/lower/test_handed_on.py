"""On a cluster a tile that is written as a whole is the block that is written: arrays are joined without a task."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import distarray as dx
from distarray.lower import programs
from distarray.testing import counting

A, B = np.random.default_rng(0).standard_normal((2, 80, 6))


def rows(values: Any) -> dx.DistArray:
    team = dx.current_team()
    return (dx.asarray(values) + 0).reshard((team.mesh.names, None)).persist()


@pytest.fixture(autouse=True)
def however_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "HANDED_ON", 0)


@pytest.mark.cluster
def test_joined_arrays_are_the_blocks_of_those_without_a_task(cluster4: Any) -> None:
    x, y = rows(A), rows(B)
    with counting() as c:
        z = dx.concatenate([x, y]).persist()
    assert (c.tasks, c.allocated_bytes) == (0, 0)
    np.testing.assert_array_equal(np.asarray(z), np.concatenate([A, B]))
    with counting() as c:
        total = z.sum(axis=0).persist()
    assert c.by_class["tile"] == 8
    np.testing.assert_allclose(np.asarray(total), np.concatenate([A, B]).sum(axis=0))


@pytest.mark.cluster
def test_writes_to_joined_arrays_leave_the_others_alone_and_these_outlive_them(cluster4: Any) -> None:
    x, y = rows(A), rows(B)
    z = dx.concatenate([x, y]).persist()
    z[3] = 5
    z[-1] *= 2
    x += 1
    expected = np.concatenate([A, B])
    expected[3] = 5
    expected[-1] *= 2
    np.testing.assert_array_equal(np.asarray(z), expected)
    np.testing.assert_array_equal(np.asarray(x), A + 1)
    np.testing.assert_array_equal(np.asarray(y), B)
    w = dx.concatenate([x, y]).persist()
    del x, y
    np.testing.assert_array_equal(np.asarray(w), np.concatenate([A + 1, B]))


@pytest.mark.cluster
@pytest.mark.parametrize(
    "make",
    [
        lambda xp, x, y: xp.concatenate([x + 1, y, x]),
        lambda xp, x, y: xp.concatenate([xp.concatenate([x, y]), x]),
        lambda xp, x, y: xp.concatenate([x.astype("f4"), y.astype("f4")]),
        lambda xp, x, y: xp.concatenate([x, xp.round(y).astype("i8")]),
        lambda xp, x, y: xp.concatenate([x[::-1], y]),
        lambda xp, x, y: xp.concatenate([x[:60], y[20:]]),
        lambda xp, x, y: xp.concatenate([x, y], axis=1),
        lambda xp, x, y: xp.concatenate([x[:, ::-1], y]),
        lambda xp, x, y: xp.stack([x, y]),
        lambda xp, x, y: xp.concatenate([x, x]) * 2,
    ],
)
def test_joined_arrays_are_numpys_however_they_are_made(make: Any, cluster4: Any) -> None:
    x, y = rows(A), rows(B)
    found = make(dx, x, y).persist()
    np.testing.assert_array_equal(np.asarray(found), make(np, A, B))
    np.testing.assert_array_equal(np.asarray(x), A)


def test_in_one_process_where_blocks_are_written_in_place_they_are_copied() -> None:
    team = dx.Team((3,), ("R",))
    x, y = ((dx.asarray(v, team=team) + 0).reshard(("R", None)).persist() for v in (A, B))
    z = dx.concatenate([x, y]).persist()
    x += 1
    z *= 2
    dx.persist(x, z)
    np.testing.assert_array_equal(np.asarray(x), A + 1)
    np.testing.assert_array_equal(np.asarray(z), 2 * np.concatenate([A, B]))
