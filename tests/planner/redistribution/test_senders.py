"""What travels between members: who sends it, what counts by member, and which links are preferred."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from distarray.planner.rates import Rates
from distarray.planner.redistribution import plan
from distarray.planner.redistribution.places import places_of
from distarray.planner.redistribution.senders import Pieces, plan_seconds
from distarray.sharding.mesh import Mesh
from distarray.sharding.sharding import Sharding
from distarray.testing.redistributions import Case, family, small_cases

MODES = ("paper", "fused", "direct")


def boxes(case: Case, which: str) -> list[tuple[tuple[int, int], ...]]:
    sharding = getattr(case, which)
    return [sharding.tile_box(case.shape, sharding.tile(d)) for d in range(sharding.mesh.size)]


def elements(shape: tuple[int, ...], box: Any) -> np.ndarray[Any, Any]:
    """Which elements of the array lie in a box."""
    mask = np.zeros(shape, bool)
    mask[tuple(slice(a, b) for a, b in box)] = True
    return mask


@pytest.mark.parametrize("uneven", [False, True])
def test_pieces_bring_every_device_what_it_lacks_each_element_once(uneven: bool) -> None:
    for case in small_cases(60, seed=11, uneven=uneven):
        found = plan(*case, mode="direct")
        if [s.op for s in found.steps] != ["exchange"]:
            continue
        (sent,) = found.pieces
        before, after = boxes(case, "src"), boxes(case, "dst")
        pairs = list(zip(sent.receiver.tolist(), sent.sender.tolist(), sent.size.tolist()))
        assert len({pair[:2] for pair in pairs}) == len(pairs), "one message for each receiver and sender"
        missing = [elements(case.shape, box) & ~elements(case.shape, own) for box, own in zip(after, before)]
        for d, sender, size in pairs:
            piece = elements(case.shape, after[d]) & elements(case.shape, before[sender])
            assert piece.sum() == size > 0
            assert (missing[d] & piece).sum() == size, "nothing comes twice, and nothing that the device holds"
            missing[d] &= ~piece
        assert not any(mask.any() for mask in missing)


def test_received_is_what_the_pieces_hold_in_every_step() -> None:
    for uneven in (False, True):
        for case in small_cases(40, seed=12, uneven=uneven):
            for mode in MODES:
                found = plan(*case, mode=mode)  # type: ignore[arg-type]  # one of the modes
                for step, sent, moment, count in zip(found.steps, found.pieces, found.trace[1:], found.messages):
                    here = np.bincount(sent.receiver, sent.size, found.n_members)
                    if hasattr(step, "groups"):
                        assert (count == step.n - 1).all(), "of each other one of its group"
                    assert (here == moment.received).all()
                assert (found.received_by_member == found.received).all()
                assert (found.lower_bound_by_member == found.lower_bound).all()


def test_no_replica_is_asked_for_much_more_than_the_others() -> None:
    """Section 4.2: the busiest sender gives at most 1.2 times the mean of what is received, in the mean of problems."""
    ratios = []
    for name in "ABCDE":
        for case in family(name, 60, seed=1):
            found = plan(*case, mode="direct")
            if found.received.any():
                ratios.append(found.sent_by_member.max() / found.received.mean())
                assert found.sent_by_member.max() <= 4 / 3 * found.received.max()
    assert np.mean(ratios) <= 1.2


def greedy(found: Any, before: Any) -> int:
    """Largest load of a sender if pieces are given away one by one as the specification says."""
    holders: dict[tuple[int, ...], list[int]] = {}
    for d, tile in enumerate(before.tiles.tolist()):
        holders.setdefault(tuple(tile), []).append(d)
    load = [0] * len(before.tiles)
    (sent,) = found.pieces
    for n in np.lexsort((sent.receiver, -sent.size)).tolist():
        candidates = holders[tuple(before.tiles[sent.sender[n]].tolist())]
        load[min(candidates, key=lambda d: (load[d], d))] += int(sent.size[n])
    return max(load)


def test_senders_are_those_of_the_greedy_rule() -> None:
    n_compared = 0
    for case in [*small_cases(60, seed=13), *small_cases(60, seed=14, uneven=True)]:
        found = plan(*case, mode="direct")
        if [s.op for s in found.steps] == ["exchange"] and found.received.any():
            assert found.sent_by_member.max() == greedy(found, found.trace[0])
            n_compared += 1
    assert n_compared > 60


# ------------------------------------------------------------------------------------------------------ members


def waves(n_members: int, n_waves: int, n: int) -> tuple[Sharding, Sharding, list[int]]:
    """Rows and columns of a square, cut over members and waves, and the member of every place."""
    mesh = Mesh(("x",), (n_members,)).with_waves(n_waves)
    members = [mesh.member(place) for place in range(mesh.size)]
    return Sharding(mesh, (("%1", "x"), ())), Sharding(mesh, ((), ("%1", "x"))), members


def test_places_of_one_member_send_each_other_nothing() -> None:
    n, m, q = 24, 3, 4
    rows, columns, members = waves(m, q, n)
    assert members == [d // q for d in range(m * q)]
    found = plan((n, n), rows, columns, mode="direct", members=members)
    # a member holds a third of the rows, and wants a third of the columns
    assert found.lower_bound_by_member.tolist() == [n * n // m - n * n // m**2] * m
    assert found.received_by_member.tolist() == found.lower_bound_by_member.tolist()
    assert found.sent_by_member.tolist() == found.lower_bound_by_member.tolist()
    assert (found.received > n * n // m // q - n * n // m**2 // q).all(), "by place also what its neighbours held"
    # one message from each place of the others
    assert [count.tolist() for count in found.messages] == [[q * (m - 1)] * m]


def test_waves_of_a_type_that_a_member_holds_already_cost_no_message() -> None:
    mesh = Mesh(("x",), (3,)).with_waves(2, 2)
    a = Sharding(mesh, (("%1", "x"), ("%2",)))
    b = Sharding(mesh, (("%2", "x"), ("%1",)))
    found = plan((12, 8), a, b, members=[mesh.member(place) for place in range(mesh.size)])
    assert found.received_by_member.tolist() == [0, 0, 0]
    assert not any(count.any() for count in found.messages)
    assert found.received.sum() > 0
    assert plan_seconds(found.steps, found.trace, 8, Rates(), found.placement) <= len(found.steps) * 12 * Rates().task


def test_from_one_tile_on_each_member_to_waves() -> None:
    """Another number of places on the same members."""
    team = Mesh(("x",), (4,))
    mesh = team.with_waves(3)
    members = [mesh.member(place) for place in range(mesh.size)]
    src, dst = Sharding(team, (("x",), ())), Sharding(mesh, (("%1", "x"), ()))
    for mode in (*MODES, "auto"):
        finer = plan((24, 24), src, dst, mode=mode, members=range(4), dst_members=members)  # type: ignore[arg-type]
        assert finer.received_by_member.tolist() == [0] * 4
        turned = Sharding(mesh, ((), ("%1", "x")))
        found = plan((24, 24), src, turned, mode=mode, members=range(4), dst_members=members)  # type: ignore[arg-type]
        assert found.received_by_member.tolist() == [24 * 24 // 4 - 24 * 24 // 16] * 4
        assert found.lower_bound_by_member.tolist() == found.received_by_member.tolist()


def member_elements(case: Case, which: str, members: list[int]) -> list[np.ndarray[Any, Any]]:
    held = [np.zeros(case.shape, bool) for _ in range(1 + max(members))]
    for d, box in enumerate(boxes(case, which)):
        held[members[d]] |= elements(case.shape, box)
    return held


@pytest.mark.parametrize("uneven", [False, True])
def test_the_lower_bound_by_member_is_what_none_of_its_places_holds(uneven: bool) -> None:
    rng = random.Random(15)
    for case in small_cases(60, seed=16, uneven=uneven):
        n = case.src.mesh.size
        members = [rng.randrange(max(2, n // 2)) for _ in range(n)]
        found = plan(*case, mode="direct", members=members)
        held, wanted = (member_elements(case, which, members) for which in ("src", "dst"))
        expected = [int((b & ~a).sum()) for a, b in zip(held, wanted)]
        assert found.lower_bound_by_member.tolist() == expected
        if [s.op for s in found.steps] == ["exchange"]:
            assert found.received_by_member.tolist() == expected
        assert found.sent_by_member.sum() == sum(expected)
        for mode in ("paper", "fused"):
            other = plan(*case, mode=mode, members=members)  # type: ignore[arg-type]
            assert (other.received_by_member >= other.lower_bound_by_member).all()


def test_a_member_needs_memory_for_all_its_places() -> None:
    rows, columns, members = waves(2, 4, 64)
    alone = plan((64, 64), rows, columns, mode="direct")
    together = plan((64, 64), rows, columns, mode="direct", members=members)
    assert together.memory == alone.memory + 3 * alone.bound * 8


# -------------------------------------------------------------------------------------------------------- links


def givers_of(sent: Pieces) -> dict[int, set[int]]:
    found: dict[int, set[int]] = {}
    for receiver, giver in zip(sent.receiver.tolist(), sent.giver.tolist()):
        found.setdefault(receiver, set()).add(giver)
    return found


def test_the_nearest_replica_sends() -> None:
    mesh = Mesh(("n", "x"), (2, 2))  # replicas of the source on two nodes
    case = Case((8, 8), Sharding(mesh, (("x",), ())), Sharding(mesh, ((), ("x",))))
    locations = [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
    found = plan(*case, mode="direct", locations=locations)
    assert givers_of(found.pieces[0]) == {0: {1}, 1: {0}, 2: {3}, 3: {2}}
    crossed = plan(*case, mode="direct", locations=[("a", 0), ("b", 0), ("b", 1), ("a", 1)])
    assert givers_of(crossed.pieces[0]) == {0: {3}, 1: {2}, 2: {1}, 3: {0}}


def test_links_of_a_process_move_nothing_and_those_of_a_node_have_their_own_rate() -> None:
    mesh = Mesh(("x",), (4,))
    case = Case((1024, 1024), Sharding(mesh, (("x",), ())), Sharding(mesh, ((), ("x",))))
    rates = Rates(latency=1e-3, bandwidth=1e8, task=0.0, node_bandwidth=1e9)
    nbytes = 8 * 1024 * 1024 // 16  # of a piece

    def seconds(locations: Any) -> float:
        found = plan(*case, mode="direct", locations=locations)
        return plan_seconds(found.steps, found.trace, 8, rates, found.placement)

    waits = 3 * rates.latency
    assert seconds(None) == pytest.approx(waits + 3 * nbytes / rates.bandwidth)
    assert seconds([("a", d) for d in range(4)]) == pytest.approx(waits + 3 * nbytes / 1e9)
    assert seconds([("a", 0)] * 4) == pytest.approx(waits)
    pairs = [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
    assert seconds(pairs) == pytest.approx(waits + 2 * nbytes / rates.bandwidth + nbytes / 1e9)


def test_seconds_of_collectives_by_links_are_those_of_the_closed_form_where_links_are_alike() -> None:
    rates = Rates(latency=3e-4, bandwidth=2e8)
    for case in small_cases(40, seed=17):
        n = case.src.mesh.size
        for mode in MODES:
            found = plan(*case, mode=mode)  # type: ignore[arg-type]  # one of the modes
            by_links = plan(*case, mode=mode, locations=[("a", d) for d in range(n)])  # type: ignore[arg-type]
            expected = plan_seconds(found.steps, found.trace, 4, rates)
            assert plan_seconds(by_links.steps, by_links.trace, 4, rates, by_links.placement) == pytest.approx(expected)


# ------------------------------------------------------------------------------------------- results that stay partial


def test_replicas_of_another_addend_send_nothing() -> None:
    mesh = Mesh(("k", "x", "y"), (2, 2, 2))
    partial = (("k", "sum"),)
    case = Case((8, 8), Sharding(mesh, (("x",), ()), partial), Sharding(mesh, ((), ("x",)), partial))
    found = plan(*case, mode="direct")
    addend = places_of(mesh.sizes).tiles(((0,),))[:, 0]
    for step, (sent, (before, after)) in zip(found.steps, zip(found.pieces, pairwise(found.trace))):
        assert (addend[sent.receiver] == addend[sent.sender]).all()
        assert (np.bincount(sent.receiver, sent.size, 8) == after.received).all(), (step, before)
    assert (found.lower_bound_by_member == found.lower_bound).all()
