"""What a member wants of a tile elsewhere: one piece, or one for each few turns."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import distarray as dx
from distarray.kernels import tasks
from distarray.lower.loop_tiles import _in_turns
from distarray.lower.route import Turn, _by_turns
from distarray.lower.template import Lowered
from distarray.planner.shardings import with_waves
from distarray.runtime.instantiate import instance_once
from distarray.runtime.planning import plan_of
from distarray.sharding.boxes import Box, intersect_boxes
from distarray.testing import counting

TEAM = dx.Team((4,), ("x",))
rng = np.random.default_rng(0)


@st.composite
def boxes(draw: Any) -> dict[Box, Turn]:
    """Boxes of a block of 12 x 12 elements, and when each is read first."""
    found = {}
    for _ in range(draw(st.integers(1, 12))):
        box = tuple(
            range(start, start + draw(st.integers(1, 6))) for start in draw(st.tuples(*[st.integers(0, 6)] * 2))
        )
        found[box] = draw(st.tuples(st.integers(0, 1), st.integers(0, 5)))
    return found


@given(boxes())
def test_there_are_as_many_pieces_as_turns_that_share_nothing(wanted: dict[Box, Turn]) -> None:
    together = [{turn} for turn in set(wanted.values())]
    for (a, s), (b, t) in combinations(wanted.items(), 2):
        if intersect_boxes(a, b) is not None:
            near = [group for group in together if s in group or t in group]
            together = [group for group in together if group not in near] + [set().union(*near)]
    assert len(_by_turns(wanted, 100)) == len(together)


@given(boxes(), st.integers(1, 8))
def test_pieces_hold_every_box_once_and_share_no_element(wanted: dict[Box, Turn], n_pieces: int) -> None:
    pieces = _by_turns(wanted, n_pieces)
    assert 1 <= len(pieces) <= n_pieces
    assert {box: turn for piece in pieces for box, turn in piece.items()} == wanted
    assert sum(map(len, pieces)) == len(wanted)
    for one, other in combinations(pieces, 2):
        assert all(intersect_boxes(a, b) is None for a in one for b in other)
        assert not set(one.values()) & set(other.values())  # what one turn reads travels together
    assert [min(piece.values()) for piece in pieces] == sorted(min(piece.values()) for piece in pieces)


#: Bytes of a member with which the operands have room, and little else.
TIGHT = 2_700_000


def lowered_product(limit: int) -> tuple[Lowered, Any, Any]:
    """A product that reduces a long loop, of operands that lie in rows: one is cut otherwise, and so sent."""
    a, b = rng.normal(size=(32, 20_000)), rng.normal(size=(20_000, 32))
    with dx.config.set(block_bytes=0, planner="eindecomp"):
        x, y = [(dx.asarray(v, team=TEAM) + 0).persist() for v in (a, b)]
        with dx.config.set(memory_limit=limit):
            product = x @ y
            plan, graph, env = plan_of([product.__dx_node__()])
            return instance_once(plan, graph, env).lowered, product, a @ b


def keys_of(lowered: Lowered, function: Any) -> list[Any]:
    return [key for key, task in lowered.tasks.items() if task.func is function]


def test_what_arrives_for_turns_comes_turn_by_turn() -> None:
    whole, _, _ = lowered_product(1 << 30)
    paced, product, expected = lowered_product(TIGHT)
    moved = [sum(t.nbytes for t in x.transfers) for x in (whole, paced)]
    assert moved[0] == moved[1]  # every element travels once
    assert len(whole.transfers) < 2 * 12
    assert len(keys_of(paced, tasks.pack)) >= 24
    with dx.config.set(block_bytes=0, planner="eindecomp", memory_limit=TIGHT), counting() as counted:
        product.persist()
    assert counted.tasks == len(paced.tasks)
    np.testing.assert_allclose(np.asarray(product), expected, rtol=1e-10, atol=1e-10)


def test_a_piece_waits_for_the_turn_before_the_last() -> None:
    lowered, _, _ = lowered_product(TIGHT)
    order = {key: number for number, key in enumerate(lowered.tasks)}
    for key, task in lowered.tasks.items():
        assert all(order[d] < order[key] for d in task.dependencies if d in order)
    tiles = keys_of(lowered, tasks.run_contract)
    n_turns = len(tiles) // 4
    assert n_turns > 4

    own: defaultdict[int, list[int]] = defaultdict(list)
    for tile in lowered.drafts[0].tiles:
        own[tile.member].append(tile.number)

    def turn(tile: Any) -> int:
        return own[lowered.members[tile]].index(tile[2])

    for key in keys_of(lowered, tasks.pack):
        first = min(turn(t) for t in tiles if key in lowered.tasks[t].dependencies)
        waits = lowered.tasks[key].dependencies & set(order)
        assert {lowered.members[w] for w in waits} <= {lowered.members[key]}  # no data travel to be waited for
        assert [turn(w) for w in waits] == ([first - 2] if first >= 2 else [])


def test_partial_results_are_combined_where_they_are_made() -> None:
    a = rng.normal(size=(40, 30))
    dealt = dx.Sharding(dx.Mesh(("x", "%1"), (4, 10)), (("x", "%1"), ()))  # in turn: neighbours are at other members
    with dx.config.set(block_bytes=0):
        x = dx.asarray(a, team=TEAM).reshard(dealt).persist()
        total = x.sum(axis=0)
        plan, graph, env = plan_of([total.__dx_node__()])
        lowered = instance_once(plan, graph, env).lowered
        np.testing.assert_allclose(np.asarray(total), a.sum(axis=0))
    assert len(keys_of(lowered, tasks.run_program)) == 40
    assert [t.source for t in lowered.transfers] == [1, 2, 3]  # one partial result of each other member
    combines = [lowered.tasks[key] for key in keys_of(lowered, tasks.combine_partials)]
    assert max(len(task.args) - 4 for task in combines) <= 8


@pytest.mark.parametrize("n_waves", [1, 2, 3, 7])
def test_turns_go_wave_by_wave(n_waves: int) -> None:
    rows = dx.Sharding(dx.Mesh(("x", "%1"), (2, 3)), (("%1", "x"), ()))
    waves = [(1, n_waves)] if n_waves > 1 else []
    sharding = with_waves(rows, waves)
    turns = _in_turns(sharding, waves)
    assert sorted(number for _, number, _, _ in turns) == list(range(sharding.n_tiles))
    for member in range(2):
        own = [(turn, index) for turn, _, index, where in turns if where == member]
        assert [turn for turn, _ in own] == list(range(3 * n_waves))
        assert [index[1] for _, index in own] == [w for w in range(n_waves) for _ in range(3)]
        assert all(a[0] < b[0] for (_, a), (_, b) in pairwise(own) if a[1] == b[1])


FINE = dx.Mesh(("x", "%1"), (4, 3))
PROGRAMS: dict[str, Any] = {
    "m + m.T": lambda xp, m: m + m.T,
    "m + m.T + m[::-1].T": lambda xp, m: m + m.T + m[::-1].T,
    "take": lambda xp, m: xp.take(m, (np.arange(24) * 7) % 24, axis=0),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_between_two_members_there_is_one_message_however_many_tiles(name: str) -> None:
    """Three tiles at each of four members: all that one needs of another at a time travels together."""
    a = rng.normal(size=(24, 24))
    with dx.config.set(block_bytes=0, planner="propagation"):
        m = dx.asarray(a, team=TEAM).reshard(dx.Sharding(FINE, (("%1", "x"), ()))).persist()
        result = PROGRAMS[name](dx, m)
        plan, graph, env = plan_of([result.__dx_node__()])
        lowered = instance_once(plan, graph, env).lowered
        np.testing.assert_array_equal(np.asarray(result), PROGRAMS[name](np, a))
    # A message carries packs, or parts for one tile of the result; host data travel with tasks.
    packs = Counter((t.source, t.destination) for t in lowered.transfers)
    assert len(packs) == 12
    n_tiles = len(lowered.drafts[0].tiles) // 4 if name.startswith("take") else 1
    assert max(packs.values()) <= n_tiles + name.startswith("take")
    assert lowered.counts["piece"] <= 12 * n_tiles + 4 * n_tiles * name.startswith("take")


def test_writes_at_positions_keep_their_order_where_one_task_answers_for_several_tiles() -> None:
    """The last of equal positions wins, across the tiles of the values and the members that have them."""
    base, values = np.zeros(24), np.arange(36.0)
    at = np.arange(36) % 7
    with dx.config.set(block_bytes=0):
        x = dx.asarray(base, team=TEAM).reshard(dx.Sharding(FINE, (("%1", "x"),))).persist()
        v = dx.asarray(values, team=TEAM).reshard(dx.Sharding(FINE, (("%1", "x"),))).persist()
        with counting() as counted:
            x[at] = v
            x.persist()
    base[at] = values
    np.testing.assert_array_equal(np.asarray(x), base)
    assert counted.by_class["piece"] <= 12 * 4 + 12  # for each tile of the base one task at each member, and packs
