"""The workloads of the paper and of applications: all systems give numpy's values, all checks find what is wrong."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
from benchmarks import p2_training_step as p2
from benchmarks import p3_transformer_block as p3
from benchmarks import p4_attention as p4
from benchmarks import w3_reshard as w3
from benchmarks import workloads
from benchmarks.systems import DISTRIBUTED
from helpers import some

import distarray as dx

FILES = {
    name.split("_")[0]: importlib.import_module(f"benchmarks.{name}")
    for name in (
        "w1_matrix_chain",
        "w2_einsum",
        "w4_vorticity",
        "w5_quadratic_means",
        "w6_anomalies",
        "w7_regression",
        "w9_kmeans",
        "p1_matrix_chain",
        "p2_training_step",
        "p3_transformer_block",
        "p4_attention",
    )
}
ROWS = [(name, variant) for name, file in FILES.items() for variant, sizes in file.VARIANTS.items() if "XS" in sizes]
MEMBERS = 4


@pytest.fixture(autouse=True)
def small_arrays_are_cut():
    """At this size distarray would leave everything in one block."""
    with dx.config.set(block_bytes=0):
        yield


@pytest.fixture
def large(monkeypatch):
    """The smallest size is taken for one that no result of is compared as a whole."""
    monkeypatch.setitem(workloads.MEMORY, "XS", 1 << 40)


def results(name, case, baseline=None):
    system = DISTRIBUTED[name]
    with workloads.on_members(system, MEMBERS):
        operands = workloads.place(system, case, MEMBERS, baseline)
        made = workloads.run(system, case, operands, baseline)
        system.finish(*made)
    return made


@pytest.mark.parametrize("system", ["numpy", "distarray"])
@pytest.mark.parametrize(("file", "variant"), ROWS)
def test_programs_equal_numpy_in_double_precision(file, variant, system):
    case = FILES[file].workload(variant, "XS")
    case.check(results(system, case))


@pytest.mark.filterwarnings("ignore:Increasing number of chunks")
@pytest.mark.parametrize("system", some(["dask.array", "dask.array-grid", "dask-array"]))
@pytest.mark.parametrize(("file", "variant"), [row for row in ROWS if row[1] not in ("plain, large", "float64")])
def test_other_systems_run_the_same_text(file, variant, system):
    if system == "dask-array":
        pytest.importorskip("dask_array")
    if file == "p3" and variant == "plain":
        pytest.skip("the masked variant has all of it")
    case = FILES[file].workload(variant, "XS")
    case.check(results(system, case))


@pytest.mark.parametrize("planner", ["distarray-eindecomp", "distarray-propagation"])
@pytest.mark.parametrize("file", some(FILES))
def test_every_planner_gives_the_same_values(file, planner):
    case = FILES[file].workload(next(iter(FILES[file].VARIANTS)), "XS")
    case.check(results(planner, case))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Increasing number of chunks")
@pytest.mark.parametrize("system", ["distarray", "dask.array-grid"])
@pytest.mark.parametrize(("file", "variant"), ROWS)
def test_programs_equal_numpy_at_size_s(file, variant, system):
    case = FILES[file].workload(variant, "S")
    case.check(results(system, case))


# ------------------------------------------------------------------------------------------------------ what is checked


def off_by_one_element(found):
    """The results with a wrong element in each, far from the smallest: a sample need not see any other."""
    wrong = [np.array(x, np.float64) for x in found]
    for x in wrong:
        x += np.abs(x).max() * 1e-2
    return [x.astype(y.dtype) for x, y in zip(wrong, found, strict=True)]


@pytest.mark.parametrize(("file", "variant"), ROWS)
def test_a_wrong_result_fails_its_check(file, variant):
    case = FILES[file].workload(variant, "XS")
    with pytest.raises(AssertionError, match="is off by"):
        case.check(off_by_one_element(results("numpy", case)))


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize(("file", "variant"), ROWS)
def test_samples_and_probes_agree_with_numpy_and_see_a_wrong_result(file, variant, monkeypatch):
    if file == "p3":  # large ones have one layer
        monkeypatch.setitem(p3.VARIANTS[variant], "XS", p3.VARIANTS[variant]["XS"]._replace(layers=1))
    case = FILES[file].workload(variant, "XS")
    found = results("numpy", case)
    case.check(found)
    with pytest.raises(AssertionError, match="is off by"):
        case.check(off_by_one_element(found))


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize(("file", "variant"), [("w1", "outer"), ("w2", "a"), ("p1", "skew"), ("p2", "float32")])
def test_samples_are_taken_of_distributed_results(file, variant):
    case = FILES[file].workload(variant, "XS")
    case.check(results("distarray", case))


@pytest.mark.parametrize(("file", "variant"), [("w1", "outer"), ("w7", "both"), ("p1", "square")])
def test_operands_beyond_the_memory_are_made_inside_the_clock(file, variant, monkeypatch):
    monkeypatch.setitem(workloads.MEMORY, "XS", 1 << 10)
    case = FILES[file].workload(variant, "XS")
    assert case.inside
    case.check(results("distarray", case))


def test_a_result_beyond_the_memory_is_consumed(monkeypatch):
    monkeypatch.setitem(workloads.MEMORY, "XS", 1 << 10)
    found = results("distarray", FILES["w1"].workload("outer", "XS"))
    assert found[0].shape == (400, 3)


def test_the_normal_equations_of_streamed_blocks_are_numpys():
    w7 = FILES["w7"]
    case = w7.workload("both", "XS")
    for streamed, whole in zip(w7.streamed("XS"), workloads.references(case), strict=True):
        np.testing.assert_allclose(streamed, whole, rtol=1e-9)


@pytest.mark.parametrize("name", w3.VARIANTS)
def test_sums_of_resharded_blocks_are_those_of_the_source(name, monkeypatch):
    monkeypatch.setitem(workloads.MEMORY, "XS", 1 << 10)
    case = w3.workload(name, "XS")
    assert case.inside
    found = results("distarray", case)
    case.check(found)
    with pytest.raises(AssertionError):
        case.check([np.asarray(found[0]) + 1])


# ------------------------------------------------------------------------------------------------------------ baselines

BASELINES = [("p2", "float32", name) for name in p2.BASELINES] + [("p3", "causal", name) for name in p3.BASELINES]


@pytest.mark.parametrize(("file", "variant", "baseline"), BASELINES)
def test_baselines_give_the_same_values(file, variant, baseline):
    case = FILES[file].workload(variant, "XS")
    case.check(results("distarray", case, baseline))


@pytest.mark.parametrize("baseline", [None, *p2.BASELINES])
def test_weights_keep_their_sharding_through_the_steps(baseline):
    case, system = p2.workload("float32", "XS"), DISTRIBUTED["distarray"]
    with workloads.on_members(system, MEMBERS):
        operands = workloads.place(system, case, MEMBERS, baseline)
        before = {name: x.sharding for name, x in zip(case.inputs, operands, strict=True)}
        found = workloads.run(system, case, operands, baseline)
    workloads.assert_kept(case, before, found)
    if baseline == "hidden parallel":
        assert [x.axes for x in before.values()] == [((), ()), ((), ()), ((), ("x",)), (("x",), ())]
        with pytest.raises(AssertionError, match="W1 was"):
            workloads.assert_kept(case, before, [x.reshard(("x", None)) for x in found])


def test_tensor_parallel_weights_and_states_are_cut_as_megatron_says():
    case, system = p3.workload("causal", "XS"), DISTRIBUTED["distarray"]
    with workloads.on_members(system, MEMBERS):
        operands = workloads.place(system, case, MEMBERS, "heads and ffn")
        (out,) = workloads.run(system, case, operands, "heads and ffn")
    axes = {name: x.sharding.axes for name, x in zip(case.inputs, operands, strict=True)}
    assert axes["Wq0"] == axes["W3" + "1"] == ((), ("x",))
    assert axes["Wo1"] == axes["W2" + "0"] == (("x",), ())
    assert out.sharding.axes == ((), ("x",), ())


# ------------------------------------------------------------------------------------------------------ what is counted


def test_numpy_forms_the_scores_of_attention():
    assert p4.peak_over_scores("plain", "XS", "numpy", MEMBERS) >= 1


def test_planning_is_predicted_without_a_run():
    case, system = FILES["p1"].workload("square", "XS"), DISTRIBUTED["distarray"]
    with workloads.on_members(system, MEMBERS):
        operands = workloads.place(system, case, MEMBERS)
        with dx.testing.counting() as counted:
            told = workloads.predicted(system, case, operands)
        assert counted.tasks == 0
        with dx.testing.counting() as counted:
            workloads.run(system, case, operands)
    assert told.plan_seconds > 0
    assert (told.tasks, told.bytes_moved) == (counted.tasks, counted.bytes_moved)
