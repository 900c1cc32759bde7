"""A reshape of elements that lie at their member as it wants them copies nothing, and is never written through."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distarray as dx
from distarray.kernels import tasks
from distarray.kernels.specs import TileSpec

TEAM = dx.Team((3,), ("R",))
VALUES = np.random.default_rng(0).standard_normal((60, 100))


def rows(values: Any = VALUES, team: dx.Team = TEAM) -> dx.DistArray:
    return (dx.asarray(values, team=team) + 0).reshard((team.axes[0], *[None] * (values.ndim - 1))).persist()


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes that each reshape has copied."""
    found: list[int] = []
    run = tasks.run_reshape

    @functools.wraps(run)
    def noted(stage: Any, tile: TileSpec, *args: Any) -> Any:
        made = run(stage, tile, *args)
        found.append(0 if any(np.shares_memory(made, a) for a in args) else made.nbytes)
        return made

    monkeypatch.setattr(tasks, "run_reshape", noted)
    return found


def test_what_is_reshaped_to_be_reduced_is_not_copied(copied: list[int]) -> None:
    x = rows()
    found = x.reshape(6, 10, 100).mean(axis=1).persist()
    assert copied == [0, 0, 0]
    np.testing.assert_allclose(np.asarray(found), VALUES.reshape(6, 10, 100).mean(axis=1))


def test_what_lies_in_several_blocks_or_in_another_order_is_copied(copied: list[int]) -> None:
    x = rows()
    found = x.reshape(5, 12, 100).mean(axis=1).persist()
    assert sum(copied) > 0
    np.testing.assert_allclose(np.asarray(found), VALUES.reshape(5, 12, 100).mean(axis=1))
    copied.clear()
    found = x[:, ::2].reshape(6, 10, 50).mean(axis=1).persist()
    assert sum(copied) == VALUES.nbytes // 2
    np.testing.assert_allclose(np.asarray(found), VALUES[:, ::2].reshape(6, 10, 50).mean(axis=1))


def _written_where_reshaped(x: Any) -> tuple[Any, ...]:
    y = x.reshape(6, 10, 100).copy()
    y[1:5, 2] = 7
    y += 1
    z = x.reshape(-1, 50) * 1
    z[::2] = 0
    return y, z


def _written_after(x: Any) -> tuple[Any, ...]:
    y = x.reshape(6, 10, 100) + 0
    x *= 2
    return y, x.reshape(3, 2000).sum(axis=1)


@pytest.mark.parametrize("write", [_written_where_reshaped, _written_after])
def test_what_is_written_is_no_view(write: Callable[[Any], tuple[Any, ...]]) -> None:
    x, ours = rows(), VALUES.copy()
    for found, expected in zip(write(x), write(ours), strict=True):
        np.testing.assert_allclose(np.asarray(found), expected)
    np.testing.assert_array_equal(np.asarray(x), ours)


def test_what_is_kept_in_this_process_is_a_block_of_its_own() -> None:
    x = rows()
    y = dx.reshape(x, (6000,), copy=True).persist()
    x *= 2
    x.persist()
    np.testing.assert_array_equal(np.asarray(y), VALUES.reshape(-1))


@pytest.mark.cluster
def test_whole_blocks_are_not_copied_on_a_cluster_and_what_is_written_is_no_view(cluster4: Any) -> None:
    x = rows(team=dx.current_team())
    y = (x.reshape(6, 10, 100) * 1).persist()
    flat = x.reshape(-1).persist()
    for found, expected in zip(_written_where_reshaped(x), _written_where_reshaped(VALUES.copy()), strict=True):
        np.testing.assert_array_equal(np.asarray(found), expected)
    x *= 2
    np.testing.assert_array_equal(np.asarray(y), VALUES.reshape(6, 10, 100))
    np.testing.assert_array_equal(np.asarray(flat), 2 * VALUES.reshape(-1))
