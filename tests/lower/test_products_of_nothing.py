"""Products of arrays without elements, which are read from no tile."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import distarray as dx

TEAM = dx.Team((3,), ("r",))


@pytest.mark.parametrize("options", [{}, {"eager_bytes": 0}, {"eager_bytes": 0, "block_bytes": 0}], ids=str)
@pytest.mark.parametrize("dtype", ["i1", "f8"])
def test_a_product_over_nothing_is_planned_where_an_operand_is_cut(dtype: str, options: dict[str, Any]) -> None:
    a = np.zeros((12, 0), dtype)
    with dx.config.set(options), dx.use(team=TEAM):
        x = dx.asarray(a, sharding=(("r",), None))
        made = dx.tensordot(x, x.swapaxes(0, -1), axes=1)
        values, first = dx.unique(made, return_index=True)  # which makes it
        assert values.tolist() == [0] and first.tolist() == [0]
        np.testing.assert_array_equal(np.asarray(made), np.zeros((12, 12), dtype))
