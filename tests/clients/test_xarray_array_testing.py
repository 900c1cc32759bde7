"""The suite of xarray-array-testing, which draws variables and asks of their methods the type and the values.

It is on no registry: put a clone of xarray-contrib/xarray-array-testing on PYTHONPATH.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import distarray as dx
from distarray.testing import force_tiles

xr = pytest.importorskip("xarray")
pytest.importorskip("xarray_array_testing", reason="a clone on PYTHONPATH holds it")

from hypothesis import strategies as st  # noqa: E402  # where there is the suite
from xarray.namedarray.parallelcompat import list_chunkmanagers  # noqa: E402
from xarray_array_testing.creation import CreationTests  # noqa: E402
from xarray_array_testing.indexing import IndexingTests  # noqa: E402
from xarray_array_testing.reduction import ReductionTests  # noqa: E402

if "distarray" not in list_chunkmanagers():
    pytest.skip("the package is not installed with its entry points", allow_module_level=True)

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # products of halves


@pytest.fixture(autouse=True, params=[1, 2], ids=["one tile", "two tiles"])
def _as_documented(request: Any) -> Iterator[None]:
    known = {"chunk_manager": "distarray", "use_bottleneck": False, "use_numbagg": False, "use_flox": False}
    with xr.set_options(**known), dx.use(dx.Team((request.param,), ("T",))), force_tiles(request.param):
        yield


class Ours:
    """Ours is what the suite asks of a type of arrays."""

    @property
    def xp(self) -> ModuleType:
        return dx

    @staticmethod
    def array_type(op: str) -> type:
        from distarray.io.xarray_view import XarrayView

        return XarrayView

    @staticmethod
    def array_strategy_fn(*, shape: tuple[int, ...], dtype: Any) -> Any:
        values = (1 + (np.arange(int(np.prod(shape))) % 7 == 3)).reshape(shape).astype(dtype)  # few twos: products fit
        return st.builds(list_chunkmanagers()["distarray"].from_array, st.just(values), st.just(shape))

    @staticmethod
    def assert_equal(a: Any, b: Any) -> None:
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-3)

    def assert_dimension_indexers_equal(self, a: Any, b: Any) -> None:
        a, b = (each if isinstance(each, dict) else {"": each} for each in (a, b))
        assert a.keys() == b.keys()
        for name in a:
            np.testing.assert_array_equal(np.asarray(a[name]), np.asarray(b[name]))


class TestCreation(Ours, CreationTests):
    pass


class TestReduction(Ours, ReductionTests):
    pass


class TestIndexing(Ours, IndexingTests):
    pass
