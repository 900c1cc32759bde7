"""Bytes that workers count are those that were predicted, and what they hold stays below the limit of a member."""

from __future__ import annotations

import pytest
from benchmarks import p1_matrix_chain, p2_training_step, p4_attention

import distarray as dx

WORKLOADS = {
    "P1 square": lambda size: p1_matrix_chain.workload("square", size),
    "P1 skew": lambda size: p1_matrix_chain.workload("skew", size),
    "P2": lambda size: p2_training_step.workload("float32", size),
    "P4": lambda size: p4_attention.workload("plain", size),
    "P4 causal, one head": lambda size: p4_attention.workload("causal, one head", size),
}

#: Of a member.
LIMIT = 32 << 20


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.parametrize("n_workers", [4, 8])
def test_workers_count_what_was_predicted(n_workers: int) -> None:
    from benchmarks.cluster_meter import MeteredCluster, interleaved_on
    from benchmarks.systems import DISTRIBUTED
    from benchmarks.workloads import job, place, predicted

    system = DISTRIBUTED["distarray"]
    with dx.config.set(block_bytes=0, memory_limit=LIMIT), MeteredCluster(n_workers, "512MiB") as cluster:
        for name, make in WORKLOADS.items():
            workload = make("S")
            run = interleaved_on(cluster, [job(workload, system.name, n_workers)], rounds=3)[system.name]
            assert not run.failure, name
            told = predicted(system, workload, place(system, workload, n_workers))  # by the plan of the last round
            counted = run.costs[-1]
            # What is moved besides are the wrappings of small messages.
            off = abs(counted.bytes_moved - told.bytes_moved)
            assert off <= 0.1 * told.bytes_moved + 2e4, (name, counted.bytes_moved, told.bytes_moved)
            # What comes in ahead of its turn is beside what was predicted.
            assert max(counted.peak_stored, told.peak) <= LIMIT, (name, counted.peak_stored, told.peak)
