"""Every function of numpy that distarray has, on the device, against numpy: the table of `test_numpy_coverage`."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from helpers import module_at

import distarray as dx
from distarray.testing import force_tiles

table = module_at(Path(__file__).parents[1] / "composed" / "test_numpy_coverage.py")

#: CuPy has no kernel for these, and neither has distarray: the call says so.
NOT_ON_CUDA = frozenset({"isnat", "nanpercentile", "nanquantile", "spacing"})

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore")]


@pytest.mark.parametrize("tiles", [None, 2], ids=["small", "tiles"])
@pytest.mark.parametrize("row", table.ROWS)
def test_function_is_numpys_on_the_device(cuda: str, row: str, tiles: int | None) -> None:
    with np.errstate(all="ignore"), nullcontext() if tiles is None else force_tiles(tiles):
        expected = table.ROWS[row](table.X)

        def ours() -> None:
            with dx.use(device=cuda):
                table.assert_same(table.ROWS[row](dx.asarray(table.X)), expected)

        if row in NOT_ON_CUDA:
            with pytest.raises(dx.NotSupportedError, match="not on cuda"):
                ours()
        else:
            ours()
