"""Two hundred lines of xarray's users on our arrays: numpy's results, ours in type, and nothing read too early.

Where xarray itself reads or brings data here the list in ``docs/how-to/xarray.md`` says so, and why.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import some

import distarray as dx

xr = pytest.importorskip("xarray")
from xarray.namedarray.parallelcompat import list_chunkmanagers  # noqa: E402  # where there is an xarray
from xarray_workflows import LOSSES, READS, WORKFLOWS, Source, dataset  # noqa: E402

if "distarray" not in list_chunkmanagers():
    pytest.skip("the package is not installed with its entry points", allow_module_level=True)

DOCS = Path(__file__).parents[2] / "docs" / "how-to" / "xarray.md"
HAS_BOTTLENECK = importlib.util.find_spec("bottleneck") is not None
#: Along each dimension: three tiles in time.
CHUNKS = {"time": (14, 14, 12)}
#: What xarray does by bottleneck alone.
FILLING = ("ffill", "bfill")
#: What runs on a cluster in every run; the others are slow.
SOME = (
    "mean with gaps", "weighted mean by numpy", "isel pointwise", "idxmax", "groupby month mean", "rolling mean",
    "polyfit", "apply_ufunc core in pieces",
)  # fmt: skip


def lazy(ds: Any, *, in_tiles: bool) -> Any:
    """The data of a dataset as views of sources that note when they are read; coordinates stay numpy's."""
    manager = list_chunkmanagers()["distarray"]

    def view(name: str, v: Any) -> Any:
        chunks = tuple([CHUNKS.get(dim, (n,)) if in_tiles else (n,) for dim, n in v.sizes.items()])
        return v.copy(data=manager.from_array(Source(name, v.values), chunks))

    return ds.assign({name: view(name, v) for name, v in ds.data_vars.items()})


def arrays(made: Any) -> dict[str, Any]:
    return dict(made.data_vars) if isinstance(made, xr.Dataset) else {"": made}


@contextmanager
def as_documented(*, bottleneck: bool = False) -> Iterator[None]:
    """The options that the documentation recommends."""
    known = {"chunk_manager": "distarray", "use_bottleneck": bottleneck, "use_numbagg": False, "use_flox": False}
    with xr.set_options(**known), dx.config.set(eager_bytes=0):
        yield


@pytest.fixture(scope="module")
def weather() -> Any:
    return dataset()


def check(name: str, ds: Any, *, in_tiles: bool) -> None:
    workflow = WORKFLOWS[name]
    kind, _ = LOSSES.get(name, ("", ""))
    needs = name in FILLING
    if needs and not HAS_BOTTLENECK:
        pytest.skip("xarray fills forwards by bottleneck")
    with as_documented(bottleneck=needs), np.errstate(all="ignore"):
        expected = workflow(ds)
        READS.clear()
        made = workflow(lazy(ds, in_tiles=in_tiles))
        assert bool(READS) == bool(kind), f"{name} reads {sorted(set(READS))} at the call; the list says {kind!r}"
        is_ours = {k: type(v.variable._data).__name__ == "XarrayView" for k, v in arrays(made).items()}
        assert all(is_ours.values()) == (kind != "gathers"), f"{name}: {is_ours}; the list says {kind!r}"
        found = made.compute()
    xr.testing.assert_allclose(found, expected)
    assert [a.dtype for a in arrays(found).values()] == [a.dtype for a in arrays(expected).values()]
    assert {k: (a.dims, a.attrs) for k, a in arrays(found).items()} == {
        k: (a.dims, a.attrs) for k, a in arrays(expected).items()
    }


@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore:Polyfit")
@pytest.mark.parametrize("name", WORKFLOWS)
def test_on_three_tiles(name: str, weather: Any) -> None:
    with dx.use(dx.Team((3,), ("T",), members=(0, 1, 2))):
        check(name, weather, in_tiles=True)


@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore:Polyfit")
@pytest.mark.parametrize("name", some(WORKFLOWS, 4))
def test_on_one_tile(name: str, weather: Any) -> None:
    with dx.use(team=None):
        check(name, weather, in_tiles=False)


@pytest.mark.cluster
@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore:Polyfit")
def test_on_a_cluster(cluster4: Any, weather: Any) -> None:
    for name in SOME:
        check(name, weather, in_tiles=True)


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore:Polyfit")
def test_all_on_a_cluster(cluster4: Any, weather: Any) -> None:
    for name in WORKFLOWS:
        if HAS_BOTTLENECK or name not in FILLING:
            check(name, weather, in_tiles=True)


def test_there_are_two_hundred_and_the_losses_are_documented() -> None:
    assert len(WORKFLOWS) >= 200
    assert LOSSES.keys() <= WORKFLOWS.keys()
    text = DOCS.read_text(encoding="utf-8")
    assert [row for _, row in LOSSES.values() if f"| {row} |" not in text] == []
