"""Distinct elements of a vector in several tiles: what stands often goes on once for each tile."""

from __future__ import annotations

import numpy as np
import pytest

import distarray as dx
from distarray.ops import sets
from distarray.testing import counting

TEAM = dx.Team((4,), ("x",))
RNG = np.random.default_rng(0)
VECTORS = {
    "few": RNG.integers(0, 50, 20_000) * 1.5,
    "all differ": RNG.standard_normal(20_000),
    "many": np.round(RNG.standard_normal(100_000), 2),
    "nan": np.where(RNG.random(20_000) < 0.3, np.nan, np.round(RNG.standard_normal(20_000), 1)),
    "far apart": np.repeat(RNG.integers(-(10**9), 10**9, 5_000), 4),
    "one": np.zeros(20_000),
    "in order": np.sort(np.repeat(RNG.standard_normal(9_000), 3)),
    "complex": RNG.integers(0, 30, 9_000) + 1j * RNG.integers(0, 30, 9_000),
    "dates": RNG.integers(0, 500, 9_000).astype("M8[s]"),
    "halves": np.round(RNG.standard_normal(9_000), 1).astype("f2"),
}


@pytest.mark.parametrize("block_bytes", ["64 B", "1 MiB"])
@pytest.mark.parametrize("equal_nan", [True, False])
@pytest.mark.parametrize("name", list(VECTORS))
def test_distinct_elements_of_tiles_are_numpys(
    name: str, equal_nan: bool, block_bytes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = VECTORS[name]
    monkeypatch.setattr(sets, "FEW_NBYTES", 0)
    with dx.config.set(block_bytes=block_bytes):
        x = dx.asarray(values, team=TEAM).reshard(("x",)).persist()
        found = np.asarray(dx.unique(x, equal_nan=equal_nan))
    np.testing.assert_array_equal(found, np.unique(values, equal_nan=equal_nan))
    assert found.dtype == values.dtype


def test_what_stands_often_is_sent_once_for_each_tile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sets, "FEW_NBYTES", 0)
    x = dx.asarray(VECTORS["few"], team=TEAM).reshard(("x",)).persist()
    with dx.config.set(block_bytes="64 B"), counting() as c:
        found = dx.unique(x).persist()
    assert found.shape == (50,)
    # Each tile has all 50; samples to split them by are among these, too.
    assert sum(t.nbytes for t in c.transfers) <= 4 * 50 * 8
    monkeypatch.undo()
    with counting() as c:
        dx.unique(x).persist()
    assert not c.transfers  # they come to this process
    assert c.evaluations == 2
