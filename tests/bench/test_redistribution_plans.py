"""The baselines of redistribution plans do what they are said to do; ours cost no more."""

from __future__ import annotations

from typing import Any

import pytest
from benchmarks import redistribution_plans as bench
from benchmarks.baselines import BASELINES, greedy, jax_worker, min_cost, replicate_and_slice, reshard_to_collectives

from distarray.planner.redistribution import plan
from distarray.sharding.spec import parse_mesh, parse_type
from distarray.testing.redistributions import Case, family


def case_of(mesh: str, source: str, target: str) -> Case:
    where = parse_mesh(mesh)
    _, shape, src = parse_type(source, where)
    _, _, dst = parse_type(target, where)
    return Case(shape, src, dst)


SWAPPED = case_of("x=4,y=6", "[3{x}12, 2{y}12]", "[2{y}12, 3{x}12]")


def test_replicate_and_slice_gathers_all() -> None:
    made = replicate_and_slice(SWAPPED)
    assert (made.cost, made.peak, made.steps) == (168, 144, ["gather", "gather", "slice", "slice"])
    cut = replicate_and_slice(case_of("x=2,y=2", "[4{x}8, 8]", "[4{x}8, 4{y}8]"))
    assert (cut.cost, cut.steps) == (0, ["slice"])


def test_dtensor_replicates_what_lies_in_another_order() -> None:
    made = greedy(SWAPPED)
    assert made.steps == ["gather", "all-to-all", "slice"]
    assert (made.cost, made.peak) == (36 + 36, 36)
    nested = case_of("x=2,y=2", "[4{y,x}16]", "[8{y}16]")
    assert greedy(nested).steps == ["gather", "gather", "slice"]
    assert min_cost(SWAPPED).cost <= made.cost


@pytest.mark.parametrize(
    ("case", "steps"),
    [
        # what the pass itself emits
        (SWAPPED, ["all-to-all", "permute", "all-to-all"]),
        (case_of("x=2,y=3", "[6{x}12, 4{y}12]", "[4{y}12, 6{x}12]"), ["all-to-all", "permute", "all-to-all"]),
        (case_of("x=4,y=2", "[4{x}16, 4{y}8]", "[8{y}16, 2{x}8]"), ["permute", "all-to-all"]),
        (case_of("x=2,y=2,z=2", "[16, 4{x}8]", "[4{y,x}16, 4{z}8]"), ["slice", "slice", "permute"]),
        (case_of("x=2,y=2,z=2", "[16, 4{x}8, 8]", "[16, 8, 1{z,y,x}8]"), ["slice", "slice", "all-to-all"]),
        (case_of("x=2,y=2,z=2", "[4{y,x}16, 4{z}8]", "[8{z}16, 8]"), ["permute", "gather"]),
    ],
)
def test_shardy_goes_through_its_collectives_in_turn(case: Case, steps: list[str]) -> None:
    assert reshard_to_collectives(case).steps == steps


@pytest.mark.parametrize("baseline", BASELINES)
def test_every_baseline_arrives_at_the_target(baseline: str) -> None:
    for name in "ABE":
        for case in family(name, 12, seed=2):
            made = BASELINES[baseline](case)
            for axes, wanted in zip(made.types, case.dst.axes, strict=True):
                names = list(dict.fromkeys(axis.name for axis in axes))
                assert names == list(reversed(wanted))
            assert list(map(bench_parts, made.types)) == list(case.dst.parts)
            assert made.peak >= made.tile


def bench_parts(axes: Any) -> int:
    n = 1
    for axis in axes:
        n *= axis.size
    return n


@pytest.mark.parametrize("name", bench.FAMILIES)
@pytest.mark.parametrize("baseline", BASELINES)
def test_plans_cost_no_more_than_those_of_others(baseline: str, name: str) -> None:
    """R-17, the part that is planning: in geometric mean on every family."""
    assert bench.cost_ratio(name, baseline, "XS") >= 1.0


def test_others_exceed_the_bound_and_plans_do_not() -> None:
    assert bench.share_above_bound("A", "replicate and slice", "XS") > 0.5
    assert bench.share_above_bound("A", "Shardy", "XS") == 0.0
    assert all(found.peak <= found.bound for found in (plan(*case, mode="paper") for case in bench.cases("A", "XS")))


def test_collectives_of_a_compiled_program_are_priced_like_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    program = """
      %param = f32[4,8]{1,0} parameter(0), sharding={devices=[2,1,2]<=[4] last_tile_dim_replicate}
      %all-to-all = (f32[4,4]{1,0}, f32[4,4]{1,0}) all-to-all(%a, %b), channel_id=1, replica_groups={{0,2},{1,3}}
      %permute = f32[8,4]{1,0} collective-permute(%c), channel_id=2
      ROOT %all-gather = f32[8,8]{1,0} all-gather(%d), channel_id=3
    """
    monkeypatch.setattr(jax_worker, "compiled", lambda problem: program)
    problem = {"mesh": [["x", 2], ["y", 2]], "shape": [8, 8], "src": [["x"], []], "dst": [[], []]}
    assert jax_worker.of_xla(problem) == {
        "cost": 32 + 32 + 64,
        "peak": 64,
        "steps": ["all-to-all", "collective-permute", "all-gather"],
    }


def test_a_compiler_that_aborts_loses_one_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.baselines import measured as module

    given: list[int] = []

    def run(command: list[str], *, input: str, **options: Any) -> Any:
        problems = module.json.loads(input)
        given.append(len(problems))
        n = 2 if len(given) == 1 else len(problems)  # the third kills the process

        class Done:
            stdout = '{"cost": 1}\n' * n

        return Done

    monkeypatch.setattr(module.subprocess, "run", run)
    found = module.measured("xla", list(family("A", 5)), "python")
    assert given == [5, 2]
    assert [f is None for f in found] == [False, False, True, False, False]


def test_planning_is_timed_in_loops() -> None:
    assert 0 < bench._in_loops(max, "B", "paper", "XS") < 10
