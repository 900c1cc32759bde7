"""xarray's own tests of duck arrays (``xarray.tests.test_duck_array_wrapping``), with ours in the place of others.

They ask of each method whether its result is still of the type that went in.
"""

from __future__ import annotations

import types
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

import distarray as dx

xr = pytest.importorskip("xarray")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    theirs = pytest.importorskip("xarray.tests.test_duck_array_wrapping")
from xarray.namedarray.parallelcompat import list_chunkmanagers  # noqa: E402  # where there is an xarray

if "distarray" not in list_chunkmanagers():
    pytest.skip("the package is not installed with its entry points", allow_module_level=True)

#: Tests that they expect to fail for all arrays, and that fail for ours, too (`interp` does not), and why.
NOBODYS = {
    "ffill": "compiled code of bottleneck or numbagg",
    "bfill": "compiled code of bottleneck or numbagg",
    "interpolate_na": "the test names no dimension",
    "polyfit": "of data with gaps xarray fits the columns one by one into an array of numpy",
    "rank": "compiled code of bottleneck",
    "rolling_exp_reduce": "compiled code of numbagg",
}


class _Ours:
    def setup_for_test(self, request: Any, namespace: str) -> None:
        from distarray.io.xarray_view import XarrayView

        self.namespace, self.xp, self.Array = namespace, dx, XarrayView
        manager = list_chunkmanagers()["distarray"]
        self.constructor = lambda data: manager.from_array(data, data.shape)
        name = request.node.name.split("test_")[1].split("[")[0]
        if name in NOBODYS:
            pytest.skip(NOBODYS[name])

    get_test_dataarray = theirs._BaseTest.get_test_dataarray


def _unmarked(function: Any) -> Any:
    """A test of theirs without what they expect of numpy alone."""
    made = types.FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__)
    made.pytestmark = [m for m in getattr(function, "pytestmark", []) if m.name == "parametrize"]  # type: ignore[attr-defined]
    return made


def _with_ours(cls: type) -> type:
    body = {name: _unmarked(value) for name, value in vars(cls).items() if name.startswith("test_")}
    made = type(cls.__name__, (_Ours,), {**body, "setUp": vars(cls)["setUp"], "__module__": __name__})
    return pytest.mark.parametrize("namespace", ["distarray"])(made)


@pytest.fixture(autouse=True)
def _as_documented() -> Iterator[None]:
    known = {"chunk_manager": "distarray", "use_bottleneck": False, "use_numbagg": False, "use_flox": False}
    with xr.set_options(**known), dx.config.set(eager_bytes=0), dx.use(dx.Team((2,), ("T",), members=(0, 1))):
        yield


for _name, _value in list(vars(theirs).items()):
    if _name.startswith("Test"):
        globals()[_name] = _with_ours(_value)
