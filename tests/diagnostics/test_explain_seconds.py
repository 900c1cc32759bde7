"""`explain` predicts seconds as the planner does, measures them, and marks what is off."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import distarray as dx
from distarray.diagnostics.explanation import Explanation, is_off
from distarray.planner.partition.resolved import PartitionProblem, ResolvedStages
from distarray.tables import format_nbytes, format_seconds
from distarray.testing import counting

TEAM = dx.Team((4,), ("R",), members=range(4))
#: Nothing costs anything; tests say what does.
FREE = {"latency": 0, "task": 0, "bandwidth": 0, "compute": 0, "gemm": 0, "generic": 0}
#: Links so slow that small arrays are worth a search.
SLOW_LINKS = {"latency": 0, "task": 0, "bandwidth": 1e8}


@pytest.fixture(autouse=True)
def small_blocks() -> Any:
    dx.plan_cache_clear()
    with dx.config.set(block_bytes=0), dx.use(team=TEAM):
        yield
    dx.plan_cache_clear()


def lying(shape: tuple[int, ...], seed: int = 0) -> Any:
    values = np.random.default_rng(seed).random(shape)
    return (dx.asarray(values, sharding=("R", None)) + 0).persist()


def column_sums() -> Any:
    return dx.exp(lying((64, 48))).sum(axis=0)


def standardised() -> Any:
    x = lying((64, 48))
    return (x - x.mean(axis=0)) / x.std(axis=0)


def product() -> Any:
    return lying((64, 64)) @ lying((64, 64), 1) + 1


def from_the_host() -> Any:
    a, b = (dx.asarray(np.random.default_rng(i).random((60, 60))) for i in range(2))
    return a @ b


def sorted_and_gathered() -> Any:
    return dx.sort(lying((64, 48)), axis=0)[np.array([3, 60, 17])]


def written() -> Any:
    x = lying((64, 48)) * 2
    x[10:40] = x[20:50].mean(axis=0)
    return x


PROGRAMS = [column_sums, standardised, product, from_the_host, sorted_and_gathered, written]
programs = pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)


# ---------------------------------------------------------------------------------------------------- predicted


def test_seconds_are_those_of_the_busiest_member_counted_by_hand() -> None:
    def seconds(**rates: float) -> float:
        with dx.config.set(calibration=FREE | rates):
            (stage,) = column_sums().explain().stages
        return stage.seconds

    assert seconds() == 0
    assert seconds(task=1) == 4 + 1  # tiles, and the combination of their sums
    assert seconds(compute=1) == 2 * 16 * 48  # exp and sum
    # three partial results come to one of four members: a fourth is what that waits, the rest the mean
    with dx.config.set(planner="propagation"):
        assert seconds(bandwidth=1) == 3 * 48 * 8 * (0.25 + 0.75 / 4)
    assert seconds(bandwidth=1) == 3 * 48 * 8 / 4  # each member is sent three of a fourth of the columns
    assert seconds(bandwidth=1e30, latency=1) == pytest.approx(3)  # in a message each


@programs
def test_seconds_of_stages_add_up(program: Callable[[], Any]) -> None:
    found = program().explain()
    assert found.seconds == sum(s.seconds for s in found.stages) > 0
    said = json.loads(found.to_json())
    assert said["total"]["seconds"] == found.seconds
    assert [s["seconds"] for s in said["stages"]] == [s.seconds for s in found.stages]


@programs
def test_rates_of_half_the_speed_make_twice_the_seconds(program: Callable[[], Any]) -> None:
    rates = {"latency": 1e-3, "task": 1e-4, "bandwidth": 1e8, "compute": 1e8, "gemm": 1e9, "generic": 1e9}
    slow = {name: 2 * r if name in ("latency", "task") else r / 2 for name, r in rates.items()}
    found = []
    for calibration in (rates, slow):
        with dx.config.set(calibration=calibration, planner="propagation"):
            found.append(program().explain())
    assert found[1].seconds == pytest.approx(2 * found[0].seconds)


@pytest.mark.parametrize("planner", ["propagation", "eindecomp", "auto"])
@programs
def test_the_total_is_what_the_planner_compared(
    program: Callable[[], Any], planner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[ResolvedStages] = []
    place = PartitionProblem.place

    def spied(self: PartitionProblem, *args: Any) -> ResolvedStages:
        compared.append(place(self, *args))
        return compared[-1]

    with dx.config.set(planner=planner, calibration=SLOW_LINKS):
        target = program()
        monkeypatch.setattr(PartitionProblem, "place", spied)
        found = target.explain()
    *by_the_planner, explained = compared
    assert explained.seconds == found.seconds
    same = [p for p in by_the_planner if p.shardings == explained.shardings]
    assert all(p.seconds == found.seconds for p in same)
    # what only follows its operands is planned without counting anything
    assert bool(same) == bool(by_the_planner)
    assert same or planner != "eindecomp" or program not in (product, from_the_host)


def test_the_plan_of_the_other_planner_has_the_seconds_that_it_was_compared_with() -> None:
    found = {}
    for planner in ("propagation", "eindecomp"):
        with dx.config.set(planner=planner, calibration=SLOW_LINKS):
            found[planner] = product().explain()
    first = found["propagation"]
    (text,) = found["eindecomp"].alternatives
    assert text == f"propagation: {format_nbytes(first.moved_bytes)} moved, {format_seconds(first.seconds)} predicted"
    assert found["eindecomp"].seconds < first.seconds


def test_one_process_computes_and_sends_nothing() -> None:
    with dx.config.set(calibration=FREE | {"compute": 1.0, "bandwidth": 1.0, "latency": 1.0}), dx.use(team=None):
        (stage,) = (dx.full((200, 30), 2.0) * 3).explain().stages
    assert stage.seconds == 200 * 30


def test_a_limit_of_memory_is_no_time() -> None:
    """What does not fit is dear for the planner, by seconds that nobody waits."""
    seconds = []
    roots = dx.sqrt(lying((64, 48)))
    for limit in (1 << 30, 1000):
        with dx.config.set(memory_limit=limit, planner="propagation"):
            seconds.append(roots.explain().seconds)
    assert seconds[0] == seconds[1]


def test_the_rates_are_named() -> None:
    assert "by default rates (not calibrated);" in str(column_sums().explain())
    with dx.config.set(calibration={"latency": 1e-3, "task": 1e-4}):
        text = str(column_sums().explain())
    assert "by the option calibration (latency, task), else default rates (not calibrated);" in text


# ----------------------------------------------------------------------------------------------------- measured


@programs
def test_analyze_measures_every_stage(program: Callable[[], Any]) -> None:
    target = program()
    assert all(s.measured_seconds is None for s in target.explain().stages)
    found = target.explain(analyze=True)
    items = [s for s in found.stages if s.kind == "item"]  # one of several results, made by the stage before
    assert all(s.measured_seconds > 0 for s in found.stages if s not in items)
    assert found.measured.seconds == sum(s.measured_seconds for s in found.stages)


def test_what_is_fused_to_one_task_is_measured_stage_by_stage() -> None:
    found = product().explain(analyze=True)
    first, second = found.stages
    assert (first.kind, second.operations) == ("contract", ("add",))
    assert first.measured_tasks == 0  # its tasks have the keys of the second stage
    assert first.measured_seconds > 0
    assert second.measured_seconds > 0


@pytest.mark.cluster
def test_on_a_cluster_too(cluster4: Any) -> None:
    team = dx.Team((4,), ("R",), client=cluster4)
    with dx.use(team=team):
        found = product().explain(analyze=True)
    assert len(found.stages) == 2
    assert all(s.measured_seconds > 0 for s in found.stages)
    assert found.measured.seconds == sum(s.measured_seconds for s in found.stages)


# -------------------------------------------------------------------------------------------------------- marks


def measured(found: Explanation, number: int = 0, **counts: Any) -> Explanation:
    """As if it had run as predicted, but for what is said of one stage."""
    names = ("tasks", "moved_bytes", "messages", "seconds")
    stages = [replace(s, **{f"measured_{n}": getattr(s, n) for n in names}) for s in found.stages]
    stages[number] = replace(stages[number], **{f"measured_{n}": value for n, value in counts.items()})
    run = column_sums().explain(analyze=True).measured
    totals = {n: sum(getattr(s, f"measured_{n}") for s in stages) for n in names}
    return replace(found, stages=tuple(stages), measured=replace(run, growth_bytes=found.growth_bytes, **totals))


def test_nothing_is_marked_that_is_as_predicted() -> None:
    found = measured(standardised().explain())
    assert found.off == ()
    assert "!" not in str(found)


@pytest.mark.parametrize(
    ("share", "is_marked"), [(0.0, True), (0.89, True), (0.91, False), (1.0, False), (1.09, False), (1.11, True)]
)
@pytest.mark.parametrize("name", ["moved_bytes", "seconds"])
def test_what_is_off_by_more_than_a_tenth_is_marked(name: str, share: float, is_marked: bool) -> None:
    plain, number = standardised().explain(), 1
    found = measured(plain, number, **{name: getattr(plain.stages[number], name) * share})
    assert [s.off for s in found.stages] == [(name,) if is_marked and n == number else () for n in range(2)]
    total = sum(getattr(s, f"measured_{name}") for s in found.stages)
    assert found.off == ((name,) if is_off(getattr(found, name), total) else ())
    rows = str(found).splitlines()[3:9]  # what was measured stands below each stage and the total
    marked = [2 * number + 1] * is_marked + [5] * bool(found.off)
    assert [r for r, row in enumerate(rows) if "!" in row] == marked
    assert ("!: differs from what was predicted by more than 10%" in str(found)) == is_marked
    said = json.loads(found.to_json())
    assert [tuple(s["off"]) for s in said["stages"]] == [s.off for s in found.stages]
    assert tuple(said["total"]["off"]) == found.off


@pytest.mark.parametrize(("predicted", "other"), [(0, 0), (0, 1), (10, 11), (10, 12), (10, 9), (10, 8), (1e-9, 2e-9)])
def test_a_tenth_of_what_was_predicted_is_allowed(predicted: float, other: float) -> None:
    assert is_off(predicted, other) == (abs(other - predicted) > predicted / 10)
    assert not is_off(predicted, None)


def test_memory_that_is_off_is_marked() -> None:
    found = measured(standardised().explain())
    assert found.measured is not None
    for growth, off in [(found.growth_bytes * 2, ("growth_bytes",)), (found.growth_bytes, ()), (None, ())]:
        told = replace(found, measured=replace(found.measured, growth_bytes=growth))
        assert told.off == off
        assert ("at most! (predicted" in str(told)) == bool(off)


# ------------------------------------------------------------------------------------------------ what it costs


def test_nobody_else_has_clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    from distarray.runtime import clocks, running

    found = []
    run = running.run_program

    def spied(program: Any, steps: Any, *args: Any, **options: Any) -> Any:
        found.append(sum(getattr(step.function, "func", None) is clocks._run for step in steps))
        return run(program, steps, *args, **options)

    monkeypatch.setattr(running, "run_program", spied)
    column_sums().compute()
    assert found == [0] * len(found)
    target = column_sums()
    found.clear()
    with counting() as counted:
        target.explain(analyze=True)
    assert found == [counted.tasks]
    assert not clocks._spans
