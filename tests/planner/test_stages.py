"""Grouping into stages: what runs in one pass, and what must wait."""

from __future__ import annotations

from math import prod

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from distarray.expr.bind import bind_create, bind_get, bind_put, bind_reshape
from distarray.expr.expr import Environment, Expr, postorder, source
from distarray.expr.indexing import parse_index
from distarray.expr.lens import reshape_groups
from distarray.expr.rewrite import FULL
from distarray.ops import contractions, elementwise, reductions
from distarray.ops.random import RANDOM_NORMAL
from distarray.planner.graph import Graph, canonical
from distarray.planner.plan import Stage
from distarray.planner.stages import group_stages
from distarray.sharding.spec import parse_sharding
from distarray.sharding.team import Team

TEAM = Team((4,), ("R",))
ENV = Environment(TEAM)


def leaf(shape: tuple[int, ...] = (8, 4)) -> Expr:
    node = source(np.zeros(shape), ENV)
    assert node.memo is not None
    node.memo.sharding = parse_sharding(("R",) + (None,) * (len(shape) - 1), shape, TEAM.mesh)
    node.memo.on_client = False
    node.memo.blocks = [np.zeros(node.memo.sharding.shard_shape(shape, t)) for t in node.memo.sharding.tiles()]
    return node


def read(x: Expr, index: object) -> Expr:
    return bind_get(x, parse_index(index, x.shape).affine)


def graph_of(*targets: Expr, keep: tuple[Expr, ...] = ()) -> Graph:
    return canonical(postorder(targets), {id(t) for t in targets + keep}, None)


def stages_of(*targets: Expr, keep: tuple[Expr, ...] = ()) -> list[Stage]:
    return group_stages(graph_of(*targets, keep=keep))


def names(stage: Stage, graph: Graph) -> list[str]:
    return [graph.nodes[i].op.name for i in stage.nodes]


def test_a_chain_and_its_reduction_are_one_stage() -> None:
    x, y = leaf(), leaf()
    (stage,) = stages_of(reductions.sum(elementwise.square(elementwise.subtract(x, y))))
    assert len(stage.instructions) == 2 and len(stage.combines) == 1 and not stage.stores


def test_a_broadcast_result_is_a_barrier() -> None:
    x = leaf()
    first, second = stages_of(elementwise.subtract(x, reductions.mean(x, axis=0)))
    assert first.combines and second.stores


def test_two_passes_over_one_operand_become_one() -> None:
    x, y = leaf(), leaf()
    a, b = reductions.mean(x, axis=0), reductions.mean(elementwise.multiply(x, y), axis=0)
    (stage,) = stages_of(a, b)
    assert len(stage.combines) == 2 and len(stage.reads) == 2


def test_a_slice_of_a_private_result_is_pushed_through_it() -> None:
    x, y = leaf((8,)), leaf((8,))
    node = elementwise.multiply(read(elementwise.add(x, y), slice(2, 5)), 2)
    (stage,) = stages_of(node)
    assert [len(a.path) for a in stage.reads] == [1, 1]
    assert [i.function for i in stage.instructions] == ["add", "multiply"]


def test_a_slice_of_a_shared_result_is_a_barrier() -> None:
    x = leaf((8,))
    total = elementwise.add(x, 1)
    node = elementwise.multiply(read(total, slice(0, 7)), read(total, slice(1, 8)))
    first, second = stages_of(node)
    assert first.stores and len(second.reads) == 2


def test_a_broadcasting_slice_is_not_pushed_through() -> None:
    """exp(v)[:, None] * m must not compute exp for every element of m."""
    v, m = leaf((8,)), leaf((8, 4))
    node = elementwise.multiply(read(elementwise.exp(v), (slice(None), None)), m)
    assert [s.instructions[0].function for s in stages_of(node)] == ["exp", "multiply"]


def test_a_write_runs_in_the_pass_that_makes_its_value() -> None:
    x = leaf((8,))
    value = elementwise.add(read(x, slice(0, 6)), read(x, slice(2, 8)))
    lens = parse_index(slice(1, 7), (8,)).affine
    (stage,) = stages_of(bind_put(x, lens, value))
    assert stage.write is not None and len(stage.instructions) == 1


def test_a_stage_writes_at_most_one_base() -> None:
    x, y, z = leaf((8,)), leaf((8,)), leaf((8,))
    value = elementwise.add(z, 1)
    lens = parse_index(slice(None), (8,)).affine
    stages = stages_of(bind_put(x, lens, value), bind_put(y, lens, elementwise.multiply(value, 2)))
    writes = [s for s in stages if s.write is not None]
    assert len(writes) == 2
    for number, stage in enumerate(stages):
        made = {i for s in stages[:number] for i in s.nodes}
        graph = graph_of(bind_put(x, lens, value), bind_put(y, lens, elementwise.multiply(value, 2)))
        for access in stage.reads:
            assert graph.nodes[access.node].memo is not None or access.node in made


def test_a_stage_has_the_cut_of_one_pin() -> None:
    rows = elementwise.add(leaf((8, 4)), 1)
    rows.pin = parse_sharding(("R", None), (8, 4), TEAM.mesh)
    columns = elementwise.multiply(rows, 2)
    columns.pin = parse_sharding((None, "R"), (8, 4), TEAM.mesh)
    target = elementwise.subtract(columns, 3)
    first, second = stages_of(target)
    graph = graph_of(target)
    assert names(first, graph) == ["add"]
    assert names(second, graph) == ["multiply", "subtract"]


def test_a_stage_that_writes_has_the_cut_of_its_base() -> None:
    x = leaf((8, 4))
    value = elementwise.add(read(x, slice(0, 2)), 1)
    value.pin = parse_sharding((None, "R"), (2, 4), TEAM.mesh)
    first, second = stages_of(bind_put(x, parse_index(slice(3, 5), (8, 4)).affine, value))
    assert first.write is None and second.write is not None


def test_a_value_of_another_dtype_is_cast_in_the_program() -> None:
    x = leaf((8,))
    lens = parse_index(slice(0, 4), (8,)).affine
    (stage,) = stages_of(bind_put(x, lens, source(np.arange(4), ENV)))
    assert [i.function for i in stage.instructions] == ["astype"]


def test_what_only_a_later_stage_reads_is_computed_there() -> None:
    x, y = leaf(), leaf()
    doubled = elementwise.multiply(x, 2)
    node = elementwise.add(doubled, elementwise.subtract(y, reductions.mean(y, axis=0)))
    first, second = stages_of(node)
    assert not first.instructions
    assert sorted(i.function for i in second.instructions) == ["add", "multiply", "subtract"]


def test_kept_results_are_stored_where_they_are_computed() -> None:
    x = leaf()
    b = elementwise.add(x, 1)
    c = elementwise.multiply(b, 2)
    (stage,) = stages_of(c, keep=(b,))
    assert len(stage.stores) == 2


def test_created_operands_are_made_where_they_are_read() -> None:
    x = leaf()
    ones = bind_create(FULL, (8, 4), np.dtype(float), ENV, (), np.float64(1))
    (stage,) = stages_of(elementwise.add(x, ones))
    assert len(stage.reads) == 2


def test_two_passes_over_what_is_read_or_drawn_become_one_and_over_a_constant_do_not() -> None:
    drawn = bind_create(RANDOM_NORMAL, (8, 4), np.dtype(float), ENV, (), None)
    ones = bind_create(FULL, (8, 4), np.dtype(float), ENV, (), np.float64(1))
    for made, n_stages in ((drawn, 1), (ones, 2)):
        stages = stages_of(reductions.mean(made, axis=0), reductions.std(made, axis=0))
        assert len(stages) == n_stages
        assert all(len(stage.reads) == 1 for stage in stages)


def test_products_and_movement_are_stages_of_their_own() -> None:
    x = leaf((8, 4))
    node = elementwise.add(bind_reshape(contractions.matmul(x, x_t(x)), (64,)), 1)
    assert [s.kind for s in stages_of(node)] == ["contract", "reshape", "program"]


def x_t(x: Expr) -> Expr:
    return bind_get(x, parse_index((), x.shape).affine.permuted((1, 0)))


def test_chains_of_thousands_do_not_recurse() -> None:
    node = leaf((8,))
    for k in range(5000):
        node = elementwise.add(node, k)
    (stage,) = stages_of(node)
    assert len(stage.instructions) == 5000


# ------------------------------------------------------------------------------------------------------ keys


def test_offsets_within_a_tile_share_a_key_and_across_tiles_do_not() -> None:
    x = leaf((16,))

    def key(start: int) -> object:
        return graph_of(elementwise.add(read(x, slice(start, start + 2)), 1.5)).key

    assert key(0) == key(1) == key(2)
    assert key(0) != key(3) and key(0) != key(4)


def test_scalars_are_not_in_the_key_but_their_types_are() -> None:
    x = leaf((16,))

    def key(value: object) -> object:
        return graph_of(elementwise.add(x, value)).key

    assert key(1.0) == key(2.5)
    assert key(1.0) != key(1)


def test_the_kept_set_is_in_the_key() -> None:
    x = leaf((16,))
    b = elementwise.add(x, 1)
    c = elementwise.multiply(b, 2)
    assert graph_of(c).key != graph_of(c, keep=(b,)).key


def test_extents_that_follow_from_a_slice_are_not_in_the_key() -> None:
    """A[k+1:, k+1:] -= ... has one plan as long as k stays within a tile."""
    a = leaf((16, 16))

    def key(k: int) -> object:
        block = read(a, (slice(k + 1, None), slice(k + 1, None)))
        row = read(a, (k, slice(k + 1, None)))
        lens = parse_index((slice(k + 1, None), slice(k + 1, None)), a.shape).affine
        return graph_of(bind_put(a, lens, elementwise.subtract(block, row))).key

    assert key(0) == key(1) == key(2)
    assert key(2) != key(5)


# --------------------------------------------------------------------------------------------------- reshapes

shapes = st.lists(st.integers(1, 6), max_size=4).map(tuple)


@given(shapes, st.randoms())
def test_reshape_groups_are_the_finest_with_equal_products(shape: tuple[int, ...], random) -> None:
    primes = [p for n in shape for p in _factors(n)]
    new: list[int] = []
    for p in primes:  # a coarsening that keeps the order of the factors, so that groups exist
        if new and random.random() < 0.5:
            new[-1] *= p
        else:
            new.append(p)
    groups = reshape_groups(shape, tuple(new))
    assert [a for old, _ in groups for a in old] == list(range(len(shape)))
    assert [a for _, b in groups for a in b] == list(range(len(new)))
    for old, fresh in groups:
        assert prod(shape[a] for a in old) == prod(new[b] for b in fresh)


def _factors(n: int) -> list[int]:
    out = []
    d = 2
    while n > 1:
        while n % d == 0:
            out.append(d)
            n //= d
        d += 1
    return out
