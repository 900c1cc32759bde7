"""The meter of a cluster: what it counts is what happened, for every system."""

from __future__ import annotations

import numpy as np
import pytest

import distarray as dx

pytest.importorskip("distributed")

from benchmarks.cluster_meter import Cost, Job, Runs, interleaved_on, limited, measured, table
from distributed import wait

SIDE = 256


@pytest.fixture
def metered(cluster4):
    yield cluster4
    cluster4.unregister_worker_plugin("benchmark-meter")


def doubled(x):
    return 2 * x


@pytest.mark.cluster
def test_a_block_that_another_worker_needs_is_counted_once(metered):
    first, second, *_ = metered.scheduler_info()["workers"]
    x = metered.submit(np.ones, (SIDE, SIDE), workers=[first])
    wait(x)
    cost, result = measured(metered, lambda: metered.submit(doubled, x, workers=[second]), wait)
    assert (cost.tasks, cost.bytes_moved) == (1, 8 * SIDE**2)
    assert cost.stored == 8 * SIDE**2
    assert cost.peak_stored == 2 * 8 * SIDE**2  # the block that came, and the result
    again, _ = measured(metered, lambda: metered.submit(np.negative, result, workers=[second]), wait)
    assert (again.tasks, again.bytes_moved) == (1, 0)


@pytest.mark.cluster
@pytest.mark.parametrize("program", [lambda x: x @ x, lambda x: (x + 1).reshard((None, "x"))])
def test_bytes_and_tasks_are_those_that_distarray_counts(metered, program):
    """Tasks that read each other across members are one of Dask's for each member, and one for each block kept."""
    with dx.config.set(block_bytes=0):
        (x,) = dx.wait(dx.arange(float(SIDE**2)).reshape(SIDE, SIDE) + 0)
        with dx.testing.counting() as counted:
            cost, _ = measured(metered, lambda: dx.persist(program(x)), lambda made: dx.wait(*made))
    assert cost.bytes_moved == counted.bytes_moved > 0
    assert cost.tasks == (2 * 4 if counted.by_class["piece"] else counted.tasks) > 0


@pytest.mark.cluster
def test_what_p2p_sends_past_the_log_is_counted(metered):
    import dask
    import dask.array as da

    x = da.random.default_rng(0).random((SIDE, SIDE), chunks=(SIDE // 4, SIDE)).persist()
    wait(x)
    moved = {}
    for method in ("tasks", "p2p"):
        with dask.config.set({"array.rechunk.method": method}):
            moved[method], _ = measured(metered, lambda: x.rechunk((SIDE, SIDE // 4)).persist(), wait)
    # Which workers dask chooses is up to it; were they not counted, what p2p sends would be a few bytes of bookkeeping.
    assert x.nbytes / 4 < moved["p2p"].bytes_moved <= 2 * x.nbytes
    assert moved["tasks"].bytes_moved > x.nbytes / 4


class Cluster:
    """A cluster that is not renewed."""

    def __init__(self, client):
        self.client = client
        self.renewed = 0

    def renew(self):
        self.renewed += 1


@pytest.mark.cluster
def test_jobs_run_in_turn_and_a_failure_is_told(metered):
    calls = []

    def job(name, check=lambda found: None):
        def start(n):
            calls.append(name)
            return metered.submit(doubled, n, pure=False)

        return Job(name, lambda: 21, start, wait, check)

    def wrong(found):
        assert found.result() == 43, "the answer is wrong"

    cluster = Cluster(metered)
    runs = interleaved_on(cluster, [job("a"), job("b"), job("c", wrong)], rounds=2)
    assert calls == ["a", "b", "c", "b", "a", "a", "b"]
    assert [len(run.costs) for run in runs.values()] == [2, 2, 0]
    assert runs["c"].failure.startswith("AssertionError: the answer is wrong")
    assert cluster.renewed == 1
    assert all(cost.tasks == 1 for cost in runs["a"].costs)


def test_a_table_has_ratios_to_ours_and_reasons():
    def cost(wall):
        return Cost(wall, 0.1, 5, 2**20, 0, 2**21, 0, 2**22)

    runs = {
        "theirs": Runs("theirs", cost(9.0), [cost(2.0), cost(4.0)]),
        "distarray": Runs("distarray", cost(9.0), [cost(1.0), cost(2.0)]),
        "other": Runs("other", failure="ImportError: no module"),
    }
    heads, theirs, ours, other = [line.split() for line in table(runs).splitlines()]
    assert heads[:3] == ["system", "wall", "s"]
    assert theirs == ["theirs", "3.000", "0.5", "0.100", "9.000", "5", "1.0", "0.0", "2.0", "0.0", "4.0"]
    assert ours[2] == "-"
    assert " ".join(other) == "other cannot run: ImportError: no module"


def test_what_takes_too_long_is_ended():
    with pytest.raises(TimeoutError, match=r"0\.05 s"), limited(0.05):
        while True:
            pass
