"""Plans for partial results: reduced on the way, or moved addend by addend."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from redistribution_runs import run_steps

from distarray.planner.rates import Rates
from distarray.planner.redistribution import plan
from distarray.sharding.mesh import Mesh
from distarray.sharding.sharding import Sharding
from distarray.testing.redistribution_verifier import verify
from distarray.testing.redistributions import Case

MESH = Mesh(("k", "x", "y"), (4, 2, 3))
SHAPES = [(12, 12), (24, 6), (5, 7)]
MODES = ("paper", "fused", "direct", "auto")


def checked(case: Case, mode: Any) -> Any:
    """The plan, verified, and run on data: every device ends with its tile of the addend that is its own."""
    found = plan(*case, mode=mode)
    steps = found.to_json()["steps"]
    assert verify(*case, steps, mode=found.mode, cost=found.cost, peak=found.peak) == []
    addends = np.random.default_rng(0).integers(0, 100, (case.src.n_addends, *case.shape))
    held = [addends[case.src.addend(d)] for d in range(MESH.size)]
    kept = Sharding(MESH, case.src.axes, case.dst.unreduced)
    for d, block in enumerate(run_steps(case, steps, held)):
        mine = {case.src.addend(e) for e in range(MESH.size) if kept.addend(e) == kept.addend(d)}
        expected = addends[sorted(mine)].sum(axis=0)
        np.testing.assert_array_equal(block, expected[case.dst.tile_slices(case.shape, case.dst.tile(d))])
    assert (found.received >= found.lower_bound).all()
    assert (found.received_by_member >= found.lower_bound_by_member).all()
    return found


REDUCED = [
    ((("x",), ("y",)), (("y",), ("x",))),
    (((), ()), (("k",), ())),
    (((), ("y", "x")), ((), ())),
    ((("x",), ()), (("k", "y"), ("x",))),
]


@pytest.mark.parametrize("mode", MODES)
def test_partial_sums_are_reduced(mode: Any) -> None:
    for shape in SHAPES:
        for a, b in REDUCED:
            checked(Case(shape, Sharding(MESH, a, (("k", "sum"),)), Sharding(MESH, b)), mode)


KEPT = [
    ((("x",), ("y",)), (("y",), ("x",))),
    ((("x", "y"), ()), ((), ("y",))),
    ((("y",), ()), ((), ("x",))),
    (((), ()), (("x",), ())),
    ((("x",), ()), ((), ())),
]


@pytest.mark.parametrize("mode", MODES)
def test_addends_that_the_target_keeps_never_meet(mode: Any) -> None:
    """A device gets elements of its own addend only, whatever replicas of other addends could give it."""
    for shape in SHAPES:
        for a, b in KEPT:
            partial = (("k", "sum"),)
            found = checked(Case(shape, Sharding(MESH, a, partial), Sharding(MESH, b, partial)), mode)
            # as on a mesh without the axis
            less = Mesh(("x", "y"), (2, 3))
            assert found.cost == plan(shape, Sharding(less, a), Sharding(less, b), mode=found.mode).cost


@pytest.mark.parametrize("mode", MODES)
def test_of_two_unreduced_axes_one_may_stay(mode: Any) -> None:
    for a, b in [((("y",), ()), ((), ("y",))), (((), ()), (("x",), ("y",)))]:
        src = Sharding(MESH, a, (("k", "sum"), ("x", "sum")))
        checked(Case((12, 12), src, Sharding(MESH, b, (("k", "sum"),))), mode)


def test_any_order_of_the_target_leaves_every_device_its_addend() -> None:
    partial = (("k", "sum"),)
    src, dst = Sharding(MESH, (("x", "y"),), partial), Sharding(MESH, (("y", "x"),), partial)
    found = plan((12,), src, dst, mode="paper", target_order="any")
    assert found.cost == 0
    addends = np.arange(48).reshape(4, 12)
    case = Case((12,), src, dst)
    blocks = run_steps(case, found.to_json()["steps"], [addends[src.addend(d)] for d in range(MESH.size)])
    for d, (block, tile) in enumerate(zip(blocks, found.target[:, 0].tolist())):
        np.testing.assert_array_equal(block, addends[src.addend(d), 2 * tile : 2 * tile + 2])


def test_mixing_addends_that_the_target_keeps_is_rejected() -> None:
    partial = (("k", "sum"),)
    case = Case((12,), Sharding(MESH, (("x",),), partial), Sharding(MESH, (("x",),), partial))
    n = MESH.size
    swapped = {"op": "allpermute", "perm": [(d + 6) % n for d in range(n)]}
    assert "another addend" in verify(*case, [swapped])[0]
    gathered = Case((12,), case.src, Sharding(MESH, ((),), partial))
    groups = [[d, (d + 3) % n + 0] if d % 6 < 3 else None for d in range(n)]
    good = [g for g in groups if g is not None]
    step = {"op": "allgather", "dim": 0, "n": 2, "groups": good}
    assert verify(*gathered, [step]) == []
    mixed = [[a, (b + 6) % n] for a, b in good]
    assert "different addends" in verify(*gathered, [{**step, "groups": mixed}])[0]


def test_auto_reduces_in_the_quickest_way() -> None:
    """A reduce-scatter over the axis that the target cuts, rather than an all-reduce and a slice."""
    src = Sharding(MESH, ((), ()), (("k", "sum"),))
    found = plan((4096, 4096), src, Sharding(MESH, (("k",), ())), mode="auto", rates=Rates(latency=0.0, task=0.0))
    assert [s.op for s in found.steps] == ["reduce_scatter"]
    assert found.received_by_member.tolist() == [3 * 4096 * 1024] * MESH.size


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("n", "shape"), [(64, (1, 64, 8)), (256, (3, 12)), (512, (1, 5)), (128, (2,) * 4)])
def test_many_addends_of_arrays_that_can_hardly_be_cut_are_reduced(n: int, shape: tuple[int, ...], mode: Any) -> None:
    """Of the ways to reduce them the first few hundred may be none at all."""
    mesh = Mesh(("k",), (n,))
    uncut = ((),) * len(shape)
    case = Case(shape, Sharding(mesh, uncut, (("k", "sum"),)), Sharding(mesh, uncut))
    found = plan(*case, mode=mode)
    steps = found.to_json()["steps"]
    assert verify(*case, steps, mode=found.mode, cost=found.cost, peak=found.peak) == []
