"""The verifier: what it accepts runs right, and each condition has a plan that it rejects."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from redistribution_runs import run_steps

from distarray.planner.redistribution import plan
from distarray.sharding.mesh import Mesh
from distarray.sharding.sharding import Sharding
from distarray.testing.redistribution_verifier import verify
from distarray.testing.redistributions import Case, small_cases

MESH = Mesh(("x", "y"), (2, 2))
CASE = Case((8, 8), Sharding(MESH, (("x",), ())), Sharding(MESH, ((), ("x",))))
GOOD = {"op": "alltoall", "src_dim": 0, "dst_dim": 1, "n": 2, "groups": [[0, 2], [1, 3]]}
ROWS = Case((8, 8), Sharding(MESH, (("x",), ())), Sharding(MESH, ((), ())))
GATHER = {"op": "allgather", "dim": 0, "n": 2, "groups": [[0, 2], [1, 3]]}
WHOLE = Case((8, 8), Sharding(MESH, ((), ())), Sharding(MESH, (("x",), ())))
SLICE = {"op": "dynslice", "dim": 0, "n": 2, "index": [0, 0, 1, 1]}
SWAPPED = Case((8,), Sharding(MESH, (("x",),)), Sharding(MESH, (("y",),)))
PERMUTE = {"op": "allpermute", "perm": [0, 2, 1, 3]}
SUMS = Case((8,), Sharding(MESH, ((),), (("x", "sum"),)), Sharding(MESH, (("x",),)))
SCATTER = {"op": "reduce_scatter", "dim": 0, "n": 2, "groups": [[0, 2], [1, 3]]}
EXCHANGE = {"op": "exchange", "shape": [8, 4], "offsets": [[0, 0], [0, 0], [0, 4], [0, 4]]}


@pytest.mark.parametrize(
    ("case", "step"),
    [(CASE, GOOD), (ROWS, GATHER), (WHOLE, SLICE), (SWAPPED, PERMUTE), (SUMS, SCATTER), (CASE, EXCHANGE)],
)
def test_plans_as_they_should_be_are_accepted(case: Case, step: dict[str, Any]) -> None:
    assert verify(*case, [step]) == []


@pytest.mark.parametrize(
    ("case", "step", "changes", "reason"),
    [
        (CASE, GOOD, {"op": "shuffle"}, "no step"),
        (CASE, GOOD, {"src_dim": 2}, "no dimension 2"),
        (CASE, GOOD, {"dst_dim": 0}, "are the same"),
        (CASE, GOOD, {"n": 1}, "n = 1"),
        (CASE, GOOD, {"groups": [[0, 2], [1, 1]]}, "no partition"),
        (CASE, GOOD, {"groups": [[0, 2, 1, 3]]}, "other than 2 devices"),
        (CASE, GOOD, {"groups": [[0, 1], [2, 3]]}, "adjacent tiles in order"),
        (CASE, GOOD, {"groups": [[2, 0], [1, 3]]}, "begin at a multiple|adjacent tiles in order"),
        (CASE, GOOD, {"index": [0, 0, 0, 1]}, "no permutation"),
        (CASE, GOOD, {"index": [1, 0, 0, 1]}, "ends with"),
        (CASE, GOOD, {"groups": None}, "malformed"),
        (ROWS, GATHER, {"dim": 1}, "no multiple of 2"),
        (ROWS, GATHER, {"groups": [[2, 0], [3, 1]]}, "begin at a multiple"),
        (WHOLE, SLICE, {"index": [0, 0, 1]}, "each of 4 devices"),
        (WHOLE, SLICE, {"index": [0, 0, 1, 2]}, "each of 4 devices"),
        (WHOLE, SLICE, {"index": [0, 0, 0, 1]}, "not uniform"),
        (WHOLE, SLICE, {"n": 3, "index": [0, 1, 2, 0]}, "does not divide|more tiles"),
        (WHOLE, SLICE, {"index": [1, 1, 0, 0]}, "ends with"),
        (SWAPPED, PERMUTE, {"perm": [0, 2, 2, 3]}, "no bijection"),
        (SWAPPED, PERMUTE, {"perm": [0, 1, 2, 3]}, "ends with"),
        (SUMS, SCATTER, {"groups": [[0, 1], [2, 3]]}, "addend twice"),
        (CASE, EXCHANGE, {"offsets": [[0, 0], [0, 0], [0, 4]]}, "must have 4 entries"),
        (CASE, EXCHANGE, {"offsets": [[0, 0], [0, 0], [0, 4], [0, 6]]}, "is no box"),
        (CASE, EXCHANGE, {"shape": [8, 5]}, "is no box|has shape"),
    ],
)
def test_every_condition_has_a_plan_that_is_rejected(
    case: Case, step: dict[str, Any], changes: dict[str, Any], reason: str
) -> None:
    """R-10."""
    (found,) = verify(*case, [{**step, **changes}])
    import re

    assert re.search(reason, found), found


def test_what_a_plan_says_of_itself_is_checked() -> None:
    assert verify(*CASE, [GOOD], cost=32, peak=32, mode="paper") == []
    assert verify(*CASE, [GOOD], cost=31) == ["the cost is 32, not 31"]
    assert verify(*CASE, [GOOD], peak=16) == ["the peak is 32, not 16"]
    assert verify(*SUMS, []) != []
    steps = [{"op": "allgather", "dim": 0, "n": 2, "groups": [[0, 2], [1, 3]]}, {**SLICE, "dim": 1}]
    assert any("larger than the bound" in flaw for flaw in verify(*CASE, steps))
    assert any("normal form" in flaw for flaw in verify(*CASE, steps, mode="paper"))


def mutated(rng: random.Random, steps: list[Any]) -> list[Any]:
    """A plan with one thing changed: a step gone, or two entries of groups, index or perm swapped."""
    made = copy.deepcopy(steps)
    k = rng.randrange(len(made))
    step = made[k]
    keys = [key for key in ("groups", "index", "perm", "offsets") if key in step]
    if not keys or rng.random() < 0.2:
        del made[k]
        return made
    values = step[rng.choice(keys)]
    if isinstance(values[0], list) and "groups" in step and values is step["groups"]:
        g, h = rng.randrange(len(values)), rng.randrange(len(values))
        m = rng.randrange(len(values[g]))
        n = rng.randrange(len(values[h]))
        values[g][m], values[h][n] = values[h][n], values[g][m]
    else:
        a, b = rng.sample(range(len(values)), 2)
        values[a], values[b] = values[b], values[a]
    return made


def runs_right(case: Case, steps: list[Any]) -> bool:
    """Whether every device ends with its tile, of its addend where the target keeps addends."""
    a = np.arange(math.prod(case.shape)).reshape(case.shape)
    addends = [a + math.prod(case.shape) * n for n in range(case.src.n_addends)]
    try:
        blocks = run_steps(case, steps, [addends[case.src.addend(d)] for d in range(case.src.mesh.size)])
    except (ValueError, IndexError, KeyError, TypeError):
        return False
    return len(blocks) == case.dst.mesh.size and all(
        np.array_equal(block, addends[case.dst.addend(d)][case.dst.tile_slices(case.shape, case.dst.tile(d))])
        for d, block in enumerate(blocks)
    )


def crossings(n: int) -> Iterator[Case]:
    """From the mesh of one problem to that of another: other devices."""
    cases = list(small_cases(2 * n, seed=5))
    for one, other in zip(cases[:n], cases[n:]):
        if len(one.shape) == len(other.shape) and one.src.mesh.size != other.dst.mesh.size:
            yield Case(one.shape, one.src, other.dst)


def partials(n: int) -> Iterator[Case]:
    """Sums that stay unreduced over an axis of the mesh."""
    for case in small_cases(n, seed=6):
        mesh = Mesh(("k", *case.src.mesh.names), (2, *case.src.mesh.sizes))
        kept = (("k", "sum"),)
        yield Case(case.shape, Sharding(mesh, case.src.axes, kept), Sharding(mesh, case.dst.axes, kept))


@pytest.mark.parametrize(("cases", "n"), [(crossings, 120), (partials, 30)])
def test_a_verdict_on_other_devices_and_addends_is_what_running_the_steps_says(cases: Any, n: int) -> None:
    """R-9."""
    rng = random.Random(2)
    rejected = 0
    for case in cases(n):
        found = plan(*case, mode=rng.choice(["paper", "fused", "direct"]))  # type: ignore[arg-type]
        steps = found.to_json()["steps"]
        assert runs_right(case, steps)
        if not steps:
            continue
        changed = mutated(rng, steps)
        flaws = verify(*case, changed)
        assert flaws or runs_right(case, changed)
        if not runs_right(case, changed):
            assert flaws
        rejected += bool(flaws)
    assert rejected > 10


@pytest.mark.parametrize("uneven", [False, True])
def test_a_verdict_is_what_running_the_steps_says(uneven: bool) -> None:
    """R-9: what is accepted runs right, mutated plans too; what runs wrong is rejected."""
    rng = random.Random(1)
    rejected = accepted = 0
    for case in small_cases(150, seed=4, uneven=uneven):
        found = plan(*case, mode=rng.choice(["paper", "fused", "direct"]))  # type: ignore[arg-type]
        steps = [s.to_json() for s in found.steps]
        if not steps:
            continue
        changed = mutated(rng, steps)
        flaws = verify(*case, changed)
        if flaws:
            rejected += 1
        else:
            accepted += 1
            assert runs_right(case, changed)
        if not runs_right(case, changed):
            assert flaws
    assert rejected > 60
    assert accepted > 0
