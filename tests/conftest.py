"""What every test has: property tests that repeat, and marks that skip where the thing they need is missing."""

import gc
import importlib.util
import os
import pkgutil
import signal
from collections.abc import Iterator
from typing import Any

import dask
import numpy as np
import pytest
from hypothesis import settings

import distarray
from distarray.expr.expr import Stored

# Names are loaded when they are first used; tests of the catalogue want all operations, whichever tests run.
for _module in pkgutil.walk_packages(distarray.__path__, "distarray."):
    if _module.name.rpartition(".")[2] not in ("__main__", "cupy_backend", "einops", "flox", "xarray", "xarray_view"):
        try:
            importlib.import_module(_module.name)
        except ModuleNotFoundError as error:  # an extra that is not installed, where the lowest versions are tested
            if (error.name or "distarray").startswith("distarray"):
                raise

# A run that a shell started in the background ignores interrupts; some tests send one.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Dozens of workers live as long as the run, most of them idle: none looks after itself more often than tests need.
dask.config.set(
    {
        "distributed.admin.system-monitor.interval": "10s",
        "distributed.admin.tick.interval": "500ms",
        "distributed.worker.profile.enabled": False,
    }
)
# Plans are those of the default rates, not of what a first look at a cluster finds.
dask.config.set({"distarray.calibration": {}})
# Processes of workers are forks of one that has loaded what they need, which is two seconds of a processor for each.
dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"})

# The same examples in every run, and no deadline: a shared machine may stall any one of them. Who looks for more says
# ``--hypothesis-profile thorough``.
settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=50)
settings.register_profile("thorough", deadline=None, max_examples=500)
settings.load_profile("repeatable")


def _missing_for_gpu() -> str:
    if importlib.util.find_spec("cupy") is None:
        return "CuPy is not installed"
    import cupy

    try:
        return "" if cupy.cuda.runtime.getDeviceCount() else "no CUDA device"
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return str(error)


#: What stands for a GPU in tests that are marked `gpu`: nothing, so that they are skipped where there is none;
#: ``stand-in``: CuPy as numpy plays it (`support/cupy_stand_in.py`); ``strict``: the strict device, in `gpu/` alone.
GPU = os.environ.get("DISTARRAY_GPU", "")


#: Tests of answers that numpy gives since a version, which are ours with whatever numpy: what their names hold.
SINCE_NUMPY = {
    "2.4.0": (
        *("a mean of nothing", "a mean where nothing counts", "test_moments_of_nothing_warn", "test_like_says_where"),
        *("test_nan_of_a_vector_are_one_element", "test_random_programs_equal_numpy", "test_what_has_no_meaning_is"),
        *(f"is_taken_by_name_and_by_position[{name}-" for name in ("corrcoef", "reshape", "save")),
        *(f"is_taken_by_name_and_by_position[{n}{q}-" for n in ("", "nan") for q in ("percentile", "quantile")),
        *("test_arguments_mean_what_numpys_mean[asarray]", "test_arguments_mean_what_numpys_mean[dot]"),
        *(f"close within {none}" for none in ("(inf", "(-inf", "(0.1, nan", "(np.float32(inf", "(array([ 1., nan")),
        *(f"test_tolerances_that_are_none_are_told_as_numpys_state_says[{mode}" for mode in ("print", "warn")),
        *("convolve by 'v'", "correlate by 'v'", "partition at True", "test_tensordot[((0, 0), (0, 1))"),
        *("flat at [True, True]", "flat at ()"),  # NumPy 2.2 ends the process where such a one is written
        *("lie_as_numpys[round of integers-", "lie_as_numpys[zeros F-", "test_grids_of_points_are_ours_by_numpys"),
        *(f"test_what_is_written_and_where_may_be_the_array_itself[<lambda>{k}-" for k in range(2)),
    ),
    "2.3.0": (
        *("an inner product that overflows", "test_norms_of_no_elements", "test_writes_at_indices_stay_in_place"),
        *("test_the_width_of_bins_is_that_of_extremes", "test_malformed_file_is_an_error_that_names_it[negative"),
    ),
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    later = {v: names for v, names in SINCE_NUMPY.items() if np.lib.NumpyVersion(np.__version__) < v}
    for version, names in later.items():
        for item in items:
            if any(name in item.name for name in names):
                item.add_marker(pytest.mark.skip(reason=f"numpy gives this answer since {version}"))
    on_gpu = [item for item in items if item.get_closest_marker("gpu")]
    if GPU == "strict":
        on_gpu = [item for item in on_gpu if item.path.parent.name != "gpu"]
    reason = {"strict": "names the device cuda", "stand-in": ""}.get(GPU) if on_gpu else ""
    if reason is None:
        reason = _missing_for_gpu()
    if reason:
        for item in on_gpu:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(autouse=True)
def _played_gpu(request: pytest.FixtureRequest) -> Iterator[None]:
    if GPU != "stand-in" or not request.node.get_closest_marker("gpu"):
        yield
        return
    import cupy_stand_in

    with cupy_stand_in.playing(n_gpus=2):
        yield


@pytest.fixture(autouse=True)
def _options_stay() -> Iterator[None]:
    """Options are the process's: one that a test leaves behind would change what others count."""
    before = dict(dask.config.get("distarray"))
    yield
    left = {k: v for k, v in dask.config.get("distarray").items() if v != before.get(k)}
    dask.config.set({"distarray": before})
    assert not left, f"the test leaves options behind: {left}"


def pytest_collection_finish() -> None:
    # Tens of thousands of items live as long as the run: no collection of garbage need look at them.
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def _old_objects_are_not_looked_at() -> Iterator[None]:
    """What plans, reports and caches of all tests before refer to takes a collection of garbage seconds in the end."""
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def _blocks_are_arrays() -> Iterator[None]:
    """No block is a scalar of numpy's, which an array without axes turns into by an index: a scalar has no memory."""
    init: Any = Stored.__init__

    def checked(self: Stored, sharding: Any, blocks: Any, *args: Any, **others: Any) -> None:
        init(self, sharding, blocks, *args, **others)
        scalars = [b for b in (blocks if type(blocks) in (list, tuple) else ()) if isinstance(b, np.generic)]
        assert not scalars, f"blocks that are scalars: {scalars}"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stored, "__init__", checked)
        yield


@pytest.fixture(autouse=True, scope="session")
def _uncalibrated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What was measured on this machine has no say in tests, and tests leave nothing there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dask.config.PATH", str(tmp_path_factory.mktemp("config")))
        yield


@pytest.fixture(autouse=True, scope="session")
def _compiled_apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What is compiled here, and in workers that start here, is kept apart from what the user has."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("NUMBA_CACHE_DIR", str(tmp_path_factory.mktemp("compiled")))
        yield


def _local_cluster(n_workers: int, *, threads: int, processes: bool) -> Any:
    distributed = pytest.importorskip("distributed")
    if processes:
        distributed.utils.get_mp_context().set_forkserver_preload(["distributed", "distarray.runtime.worker_plugin"])
    # The port of the dashboard is left to the system: 8787 may be taken, and nobody looks at it.
    return distributed.LocalCluster(
        n_workers=n_workers,
        threads_per_worker=threads,
        processes=processes,
        host="127.0.0.1" if processes else None,
        dashboard_address=None,
        # Workers that are threads count the memory of the whole test run as theirs, and would pause for good.
        memory_limit="512MiB" if processes else 0,
        silence_logs="CRITICAL",
    )


def _client_of(cluster: Any) -> Iterator[Any]:
    # A client per test, not per session: while one is open it is the default of every test.
    from distributed import Client

    with Client(cluster) as client:
        yield client


@pytest.fixture(scope="session")
def _threads4() -> Iterator[Any]:
    with _local_cluster(4, threads=int(os.environ.get("DISTARRAY_CLUSTER_THREADS", "1")), processes=False) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def _processes3() -> Iterator[Any]:
    with _local_cluster(3, threads=2, processes=True) as cluster:
        yield cluster


@pytest.fixture
def cluster4(_threads4: Any) -> Iterator[Any]:
    """Client of four workers in this process, of one thread each, or as many as DISTARRAY_CLUSTER_THREADS says."""
    yield from _client_of(_threads4)


@pytest.fixture
def process_cluster(_processes3: Any) -> Iterator[Any]:
    """Client of three workers of two threads each, each a process. Tests leave them alive."""
    yield from _client_of(_processes3)


@pytest.fixture
def mortal_cluster() -> Iterator[Any]:
    """Client of three worker processes of two threads each, of the test's own: it may kill them.

    Their nannies restart them.
    """
    with _local_cluster(3, threads=2, processes=True) as cluster:
        yield from _client_of(cluster)
