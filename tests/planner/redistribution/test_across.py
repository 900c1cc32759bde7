"""Plans to another mesh and to another team: right on data, each element sent no more often than it must be."""

from __future__ import annotations

import math
import random
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from redistribution_runs import run_steps

from distarray.errors import ShardingError
from distarray.planner.rates import Rates
from distarray.planner.redistribution import plan
from distarray.sharding.mesh import Mesh
from distarray.sharding.sharding import Sharding
from distarray.testing.redistribution_verifier import verify
from distarray.testing.redistributions import Case

MESHES = [(2,), (3,), (4,), (2, 2), (2, 3), (4, 2), (2, 2, 3), (6,), (5,), (8,)]


@st.composite
def cases(draw: st.DrawFn, *, same_size: bool = False, partial: bool = False) -> Case:
    """Two types on two meshes; sizes that divide or do not."""
    sizes = draw(st.sampled_from(MESHES))
    others = [m for m in MESHES if math.prod(m) == math.prod(sizes)] if same_size else MESHES
    rank = draw(st.integers(1, 3))
    a, src = drawn_type(draw, "abc", sizes, rank)
    _, dst = drawn_type(draw, "xyz", draw(st.sampled_from(others)), rank)
    if partial and src.free_axes:
        src = Sharding(a, src.axes, ((src.free_axes[0], "sum"),))
    shape = tuple(draw(st.integers(1, 12)) for _ in range(rank))
    if draw(st.booleans()):
        shape = tuple(math.lcm(k, n) * draw(st.integers(1, 2)) for k, n in zip(src.parts, dst.parts))
    return Case(shape, src, dst)


def drawn_type(draw: st.DrawFn, names: str, sizes: tuple[int, ...], rank: int) -> tuple[Mesh, Sharding]:
    mesh = Mesh(tuple(names[: len(sizes)]), sizes)
    dims: list[list[str]] = [[] for _ in range(rank)]
    for name in draw(st.permutations(mesh.names)):
        at = draw(st.integers(-1, rank - 1))
        if at >= 0:
            dims[at].append(name)
    return mesh, Sharding(mesh, tuple(map(tuple, dims)))


def checked(case: Case, **options: Any) -> Any:
    """The plan, verified and run on data."""
    found = plan(*case, **options)
    crosses = found.solution.problem.crosses
    made = found.to_json()
    flaws = verify(*case, made["steps"], mode=found.mode, cost=found.cost, peak=found.peak, crosses=crosses)
    assert flaws == []
    n = case.src.n_addends
    addends = np.random.default_rng(0).integers(0, 1000, (n, *case.shape))
    blocks = run_steps(case, made["steps"], [addends[case.src.addend(d)] for d in range(case.src.mesh.size)])
    whole = addends.sum(axis=0)
    assert len(blocks) == case.dst.mesh.size
    for d, block in enumerate(blocks):
        np.testing.assert_array_equal(block, whole[case.dst.tile_slices(case.shape, case.dst.tile(d))])
    assert (found.received >= found.lower_bound).all()
    assert (found.received_by_member >= found.lower_bound_by_member).all()
    assert found.sent_by_member.sum() == found.received_by_member.sum()
    return found


@settings(max_examples=40)
@given(cases(same_size=True), st.sampled_from(["paper", "fused", "direct", "auto"]))
def test_to_another_mesh_of_the_same_members(case: Case, mode: str) -> None:
    found = checked(case, mode=mode)
    assert not found.solution.problem.crosses
    assert "mesh" not in str(found.to_json()["steps"])


@settings(max_examples=40)
@given(cases(), st.sampled_from(["paper", "fused", "direct", "auto"]))
def test_to_another_team(case: Case, mode: str) -> None:
    n, m = case.src.mesh.size, case.dst.mesh.size
    found = checked(case, mode=mode, dst_members=range(n, n + m))
    made = found.to_json()
    assert made["dst_mesh"] == [[name, size] for name, size in zip(case.dst.mesh.names, case.dst.mesh.sizes)]
    crossing = [step for step in made["steps"] if "mesh" in step]
    assert [step["op"] for step in crossing] == ["exchange"]
    assert crossing[0]["mesh"] == made["dst_mesh"]
    ops = [step["op"] for step in made["steps"]]
    at = ops.index("exchange")
    assert set(ops[:at]) <= {"dynslice"}
    assert set(ops[at + 1 :]) <= {"allgather"}
    assert found.mode == ("direct" if len(ops) == 1 else "fused")


@settings(max_examples=30)
@given(cases(partial=True), st.sampled_from(["paper", "direct", "auto"]))
def test_partial_sums_are_reduced_before_they_cross(case: Case, mode: str) -> None:
    n, m = case.src.mesh.size, case.dst.mesh.size
    checked(case, mode=mode, dst_members=range(n, n + m))


def test_replicas_of_the_target_are_gathered_behind_the_crossing() -> None:
    a, b = Mesh(("x",), (4,)), Mesh(("y", "z"), (2, 3))
    case = Case((24, 60), Sharding(a, (("x",), ())), Sharding(b, (("y",), ())))
    direct, fused = (checked(case, mode=mode) for mode in ("direct", "fused"))
    total = math.prod(case.shape)
    crossed = [int(p.size.sum()) for p in (direct.pieces[-1], fused.pieces[0])]
    assert crossed == [3 * total, total]
    assert [s.op for s in fused.steps] == ["exchange", "allgather"]
    assert (fused.received_by_member == direct.received_by_member).all()
    # what one place of the source gives is a third of it
    assert 3 * fused.sent_by_member[:4].max() == direct.sent_by_member.max()


def test_replicas_of_the_source_each_send_a_slice() -> None:
    a, b = Mesh(("x", "w"), (2, 3)), Mesh(("y",), (2,))
    case = Case((12, 30), Sharding(a, (("x",), ())), Sharding(b, ((), ("y",))))
    found = checked(case, mode="fused")
    assert [s.op for s in found.steps] == ["dynslice", "exchange"]
    assert set(found.sent_by_member[:6]) == {12 * 30 // 6}


def test_auto_takes_what_is_quicker() -> None:
    a, b = Mesh(("x",), (2,)), Mesh(("y",), (4,))
    small = Case((2, 4), Sharding(a, (("x",), ())), Sharding(b, ((), ())))
    assert checked(small).mode == "direct"
    large = Case((4096, 4096), small.src, small.dst)
    assert plan(*large).mode == "fused"
    free = Rates(bandwidth=0.0)  # bytes cost nothing
    assert plan(*large, rates=free).mode == "direct"


@pytest.mark.parametrize("sizes", [(4,), (2, 2)])
def test_teams_of_one_size_are_told_apart_by_their_members(sizes: tuple[int, ...]) -> None:
    mesh, other = Mesh(("x",), (4,)), Mesh(("p", "q")[: len(sizes)], sizes)
    case = Case((8, 8), Sharding(mesh, (("x",), ())), Sharding(other, (tuple(reversed(other.names)), ())))
    same = plan(*case, mode="paper")
    assert not same.solution.problem.crosses
    assert same.received.sum() == 0
    elsewhere = checked(case, mode="paper", members=range(4), dst_members=range(4, 8))
    assert elsewhere.received.sum() == 64
    assert verify(*case, same.to_json()["steps"], crosses=True) == [
        "the target is another team's, and no exchange leads there"
    ]
    halves = checked(case, mode="direct", members=range(4), dst_members=[0, 1, 6, 7])
    assert halves.received_by_member.tolist() == [0, 0, 0, 0, 0, 0, 16, 16]


def test_a_crossing_that_is_wrong_is_rejected() -> None:
    a, b = Mesh(("x",), (2,)), Mesh(("y",), (3,))
    case = Case((6,), Sharding(a, (("x",),)), Sharding(b, (("y",),)))
    good = plan(*case).to_json()["steps"]
    assert verify(*case, good) == []
    (step,) = good
    for changes, reason in [
        ({"mesh": [["y", 4]]}, "the mesh of the target is"),
        ({"offsets": [[0], [2]]}, "must have 3 entries"),
        ({"offsets": [[0], [4], [2]]}, "ends with"),
    ]:
        (flaw,) = verify(*case, [{**step, **changes}])
        assert reason in flaw
    without = {key: value for key, value in step.items() if key != "mesh"}
    assert verify(*case, [without]) == ["step 0: exchange: offsets and extents must have 2 entries"]
    assert verify(*case, []) == ["the target lies on 3 devices, and the plan ends on 2"]
    assert verify(*case, [step, step]) == ["step 1: exchange: the devices are those of the target already"]


def test_members_must_be_given_for_every_place() -> None:
    a, b = Mesh(("x",), (2,)), Mesh(("y",), (3,))
    types = Sharding(a, (("x",),)), Sharding(b, (("y",),))
    with pytest.raises(ShardingError, match="each of 2 places"):
        plan((6,), *types, members=[0])
    with pytest.raises(ShardingError, match="dst_members must say"):
        plan((6,), *types, dst_members=[0, 1, -1])
    with pytest.raises(ShardingError, match="locations are given for 1 members"):
        plan((6,), *types, locations=[("a", 0)])
    with pytest.raises(ShardingError, match="to another mesh only results move"):
        plan((6,), Sharding(a, ((),), (("x", "sum"),)), Sharding(Mesh(("x", "z"), (2, 1)), ((),), (("x", "sum"),)))


def test_what_is_copied_between_meshes_of_many_sizes_is_what_was_asked_for() -> None:
    rng = random.Random(3)
    for sizes, others in product([(2,), (6,), (2, 4)], repeat=2):
        a, b = (Mesh(tuple(names[: len(s)]), s) for names, s in (("ab", sizes), ("xy", others)))
        shape = tuple(rng.choice((5, 7, 12)) for _ in range(2))
        case = Case(shape, Sharding(a, (a.names, ())), Sharding(b, ((), b.names)))
        checked(case, mode="fused", dst_members=range(a.size, a.size + b.size))
