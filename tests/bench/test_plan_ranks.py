"""Plans that are told are those that run, and the tool that ranks them ranks what was run."""

from __future__ import annotations

import pytest

import distarray as dx

pytest.importorskip("distributed")

import plan_ranks
from benchmarks import p1_matrix_chain as p1
from benchmarks import w1_matrix_chain as w1
from benchmarks.cluster_meter import Cost, Runs
from benchmarks.systems import DISTRIBUTED
from benchmarks.told_plans import SEARCHED, TOLD, Told, told_job, told_of
from benchmarks.workloads import on_members

MEMBERS = 4
#: Tiles of the three products of P1 along rows, columns and what is summed, by name of the plan.
PARTS = {
    "rows": [(4, 1, 1)] * 3,
    "columns": [(1, 4, 1)] * 3,
    "grid": [(2, 2, 1)] * 3,
    "inner": [(1, 1, 4)] * 3,
    "rows x inner": [(2, 1, 2)] * 3,
    "columns x inner": [(1, 2, 2)] * 3,
    "rows, columns in turn": [(4, 1, 1), (1, 4, 1), (4, 1, 1)],
    "inner, grid in turn": [(1, 1, 4), (2, 2, 1), (1, 1, 4)],
    "rows in 8 waves": [(32, 1, 1)] * 3,
    "inner in 8 waves": [(1, 1, 32)] * 3,
    "grid, gathered": [(2, 2, 1)] * 3,
    "one member, rows in turn": [(1, 1, 1), (4, 1, 1), (1, 1, 1)],
    "one member": [(1, 1, 1)] * 3,
}


@pytest.fixture(autouse=True)
def small_arrays_are_cut():
    """At this size distarray would leave everything in one block."""
    dx.plan_cache_clear()
    with dx.config.set(block_bytes=0):
        yield
    dx.plan_cache_clear()


@pytest.mark.parametrize("name", TOLD)
def test_a_told_plan_is_what_runs(name):
    workload = p1.workload("square", "XS")
    job = told_job(workload, name, MEMBERS)
    with on_members(DISTRIBUTED["distarray"], MEMBERS):
        placed = job.place()
        with dx.config.set(planner="eindecomp"):
            said = dx.explain(*placed[1])
        assert said.planner == f"told: {name}"
        assert [stage.parts for stage in said.stages if "einsum" in stage.operations] == PARTS[name]
        results = job.start(placed)
        job.finish(results)
        job.check(results)


def test_predictions_are_of_the_plans_that_are_named():
    workload = w1.workload("inner", "XS")
    with on_members(DISTRIBUTED["distarray"], MEMBERS):
        told = told_of(workload, [*TOLD, SEARCHED], MEMBERS)
    assert told["one member"].bytes_moved > told["inner"].bytes_moved > 0
    # arrays that are not small are brought to one member by nobody but the user
    others = [found.seconds for name, found in told.items() if "member" not in name and "gathered" not in name]
    assert told[SEARCHED].seconds == min(others)


def test_the_table_ranks_plans_by_seconds():
    def runs(name, *walls):
        return Runs(name, None, [Cost(wall, 0.1, 5, 2**20, 0, 2**21, 0, 2**22) for wall in walls])

    told = {name: Told(seconds, 2**21) for name, seconds in (("a", 1.0), ("b", 2.0), ("c", 1.5), ("d", 9.0))}
    found = {"a": runs("a", 5.0), "b": runs("b", 7.0, 1.0, 8.0), "c": runs("c", 6.0), "d": Runs("d", failure="no")}
    lines = plan_ranks.table(told, found).splitlines()
    assert [line.split()[0] for line in lines[1:4]] == ["a", "c", "b"]
    assert lines[3].split() == ["b", "2.000", "7.000", "[1.000,", "8.000]", "2.0", "1.0"]
    assert lines[4] == "d: cannot run: no"
    assert lines[5].endswith("3 plans: 1.000, with the fastest rounds -0.500")
    told["a"] = Told(3.0, 0)
    assert "3 plans: -0.500, " in plan_ranks.table(told, found)


class Cluster:
    """A cluster that is not renewed."""

    def __init__(self, client):
        self.client = client


@pytest.mark.cluster
def test_the_tool_runs_plans_on_a_cluster(cluster4, capsys):
    args = plan_ranks._arguments(["P1.*square", "--size", "XS", "--rounds", "1", "--plans", "^(inner|one member)$"])
    (workload,) = plan_ranks._workloads(args)
    try:
        plan_ranks.compare(Cluster(cluster4), workload, args)
    finally:
        cluster4.unregister_worker_plugin("benchmark-meter")
    lines = capsys.readouterr().out.splitlines()
    counted = {line[:10].strip(): line.split()[-2:] for line in lines[3:5]}
    assert set(counted) == {"inner", "one member"}
    assert all(predicted == moved != "0.0" for predicted, moved in counted.values())
    assert "2 plans: " in lines[-1]
