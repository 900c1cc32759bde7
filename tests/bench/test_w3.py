"""The benchmark of resharding: every variant arrives bitwise right, in the blocks that were asked for."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks import w3_reshard as w3


def check(name: str, size: str) -> None:
    variant = w3.VARIANTS[name][size]
    x = w3.source("distarray", variant)
    y = w3.reshard(x, variant)
    for array, block in ((x, variant.source), (y, variant.target)):
        assert array.chunks == tuple(
            tuple(min(b, n - lo) for lo in range(0, n, b)) for n, b in zip(array.shape, block, strict=True)
        )
    np.testing.assert_array_equal(np.asarray(y), w3.values(variant))


@pytest.mark.parametrize("name", w3.VARIANTS)
def test_every_variant_is_right_at_the_smallest_size(name: str) -> None:
    check(name, "XS")


@pytest.mark.slow
@pytest.mark.parametrize("name", w3.VARIANTS)
def test_every_variant_is_right_at_size_s(name: str) -> None:
    check(name, "S")


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.parametrize("name", w3.VARIANTS)
def test_fewer_bytes_move_than_with_dask(name: str) -> None:
    # R-17; in one run, on the same workers, counted by them
    from benchmarks.cluster_meter import MeteredCluster, interleaved_on
    from benchmarks.workloads import job

    workload = w3.workload(name, "S")
    systems = ("distarray", "dask.array-tasks", "dask.array-p2p")
    with MeteredCluster(4, "1GiB") as cluster:
        runs = interleaved_on(cluster, [job(workload, system, 4) for system in systems], rounds=1)
    assert not any(run.failure for run in runs.values())
    moved = {system: run.costs[0].bytes_moved for system, run in runs.items()}
    assert moved["distarray"] <= min(moved.values())
